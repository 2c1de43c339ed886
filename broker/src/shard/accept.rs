//! Accepts connections and places each on a shard.
//!
//! Holds: the accept loop of a listener (on shard 0) and how many connections each shard has. Never touches: requests.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use corelog_reactor::{Listener, RawConn, ShardId};
use tracing::{info, warn};

use super::mail::Mail;
use super::{Shard, connection};

/// Pause after a failed accept (file handles used up, say), so that the loop doesn't spin.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// Connections per shard. Written by the accepting shard and by the shard that loses a connection; read to place the next.
#[derive(Debug)]
pub struct Loads(Vec<AtomicUsize>);

impl Loads {
    /// No connections yet.
    pub fn new(shards: usize) -> Loads {
        Loads((0..shards).map(|_| AtomicUsize::new(0)).collect())
    }

    /// Picks the shard with the fewest connections and counts one more there; `None` if even that one has `each_max`.
    pub fn place(&self, each_max: usize) -> Option<ShardId> {
        let loads = self.0.iter().map(|load| load.load(Ordering::Relaxed));
        let (least, load) = loads.enumerate().min_by_key(|(_, load)| *load)?;
        if load >= each_max {
            return None;
        }
        self.0[least].fetch_add(1, Ordering::Relaxed);
        Some(ShardId(least as u16))
    }

    /// A connection of `shard` is gone.
    pub fn left(&self, shard: ShardId) {
        self.0[usize::from(shard.0)].fetch_sub(1, Ordering::Relaxed);
    }

    /// Connections of all shards.
    pub fn total(&self) -> usize {
        self.0.iter().map(|load| load.load(Ordering::Relaxed)).sum()
    }
}

/// Accepts until the broker stops.
pub async fn run(shard: Rc<Shard>, listener: Listener, number: usize) {
    loop {
        match listener.accept().await {
            Ok((raw, peer)) => place(&shard, raw, peer, number),
            Err(error) => {
                shard.counters().accepts_failed.increment();
                warn!(%error, "accept failed: raise the open-file limit (ulimit -n) if it says too many open files");
                shard.reactor().sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

fn place(shard: &Rc<Shard>, raw: RawConn, peer: SocketAddr, listener: usize) {
    let (limit, each_max) = (shard.config().connections_max, shard.config().connections_per_core_max);
    let loads = &shard.server().loads;
    let placed = if loads.total() < limit { loads.place(each_max) } else { None };
    let Some(to) = placed else {
        shard.counters().connections_refused.increment();
        info!(%peer, limit, each_max, "connection refused: max.connections or corelog.connections.per.core.max reached");
        return;
    };
    if to == shard.id() {
        connection::adopt(shard, raw, peer, listener);
    } else {
        shard.send(to, Mail::Connection { raw, peer, listener });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_goes_to_the_shard_with_the_fewest() {
        let loads = Loads::new(3);
        let placed = [(); 3].map(|()| loads.place(1));
        assert_eq!(placed, [0, 1, 2].map(|shard| Some(ShardId(shard))));
        assert_eq!(loads.place(1), None, "every shard has its most");
        loads.left(ShardId(1));
        assert_eq!(loads.place(1), Some(ShardId(1)));
        assert_eq!(loads.total(), 3);
    }
}
