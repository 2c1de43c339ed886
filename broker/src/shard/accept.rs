//! Accepts connections and places each on a shard.
//!
//! Holds: the accept loop of a listener (on shard 0) and how many connections each shard and each address has. Never touches: requests.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use corelog_reactor::{Listener, RawConn, ShardId};
use rustc_hash::FxHashMap;
use thiserror::Error;
use tracing::{info, warn};

use super::mail::Mail;
use super::{Shard, connection};
use crate::config::BrokerConfig;

/// Pause after a failed accept (file handles used up, say), so that the loop doesn't spin.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// How many connections there are, by shard and by address. Written by the accepting shard and by the shard that loses a
/// connection; read to place the next.
#[derive(Debug)]
pub struct Loads {
    by_shard: Vec<AtomicUsize>,
    /// A lock, since connections of one address end on any shard: taken once when a connection begins and once when it
    /// ends, never for a request.
    by_ip: Mutex<FxHashMap<IpAddr, usize>>,
}

/// Why a connection is turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Refusal {
    /// Of the broker's.
    #[error("the broker has its most connections, max.connections={0}")]
    Broker(usize),
    /// Of every shard's.
    #[error("every core has its most connections, corelog.connections.per.core.max={0}")]
    Cores(usize),
    /// Of its address's.
    #[error("its address has its most connections, max.connections.per.ip or its override: {0}")]
    Address(usize),
}

impl Loads {
    /// No connections yet.
    pub fn new(shards: usize) -> Loads {
        Loads { by_shard: (0..shards).map(|_| AtomicUsize::new(0)).collect(), by_ip: Mutex::default() }
    }

    /// Picks the shard with the fewest connections, and counts one more there and for the address `ip`.
    ///
    /// # Errors
    /// The limit that is reached; nothing is counted then.
    pub fn place(&self, ip: IpAddr, config: &BrokerConfig) -> Result<ShardId, Refusal> {
        if self.total() >= config.connections_max {
            return Err(Refusal::Broker(config.connections_max));
        }
        let loads = self.by_shard.iter().map(|load| load.load(Ordering::Relaxed));
        let least = loads.enumerate().min_by_key(|(_, load)| *load);
        let Some((least, _)) = least.filter(|(_, load)| *load < config.connections_per_core_max) else {
            return Err(Refusal::Cores(config.connections_per_core_max));
        };
        let ip = ip.to_canonical();
        let ip_max = config.connections_per_ip_overrides.get(&ip).copied().unwrap_or(config.connections_per_ip_max);
        let mut by_ip = self.by_ip();
        let of_ip = by_ip.get(&ip).copied().unwrap_or(0);
        if of_ip >= ip_max {
            return Err(Refusal::Address(ip_max));
        }
        by_ip.insert(ip, of_ip + 1);
        self.by_shard[least].fetch_add(1, Ordering::Relaxed);
        Ok(ShardId(least as u16))
    }

    /// A connection of `shard` from `ip` is gone.
    pub fn left(&self, shard: ShardId, ip: IpAddr) {
        self.by_shard[usize::from(shard.0)].fetch_sub(1, Ordering::Relaxed);
        let ip = ip.to_canonical();
        let mut by_ip = self.by_ip();
        if let Some(count) = by_ip.get_mut(&ip) {
            *count -= 1;
            if *count == 0 {
                by_ip.remove(&ip);
            }
        }
    }

    /// Connections of all shards.
    pub fn total(&self) -> usize {
        self.by_shard.iter().map(|load| load.load(Ordering::Relaxed)).sum()
    }

    fn by_ip(&self) -> MutexGuard<'_, FxHashMap<IpAddr, usize>> {
        self.by_ip.lock().unwrap_or_else(PoisonError::into_inner)
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
    let to = match shard.server().loads.place(peer.ip(), &shard.config()) {
        Ok(to) => to,
        Err(reason) => {
            shard.counters().connections_refused.increment();
            info!(%peer, %reason, "connection refused");
            return;
        }
    };
    if to == shard.id() {
        connection::adopt(shard, raw, peer, listener);
    } else {
        shard.send(to, Mail::Connection { raw, peer, listener });
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::config::tests::config;

    const HOME: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn a_connection_goes_to_the_shard_with_the_fewest() {
        let config = config(&[("corelog.connections.per.core.max", "1")]);
        let loads = Loads::new(3);
        let placed = [(); 3].map(|()| loads.place(HOME, &config));
        assert_eq!(placed, [0, 1, 2].map(|shard| Ok(ShardId(shard))));
        assert_eq!(loads.place(HOME, &config), Err(Refusal::Cores(1)), "every shard has its most");
        loads.left(ShardId(1), HOME);
        assert_eq!(loads.place(HOME, &config), Ok(ShardId(1)));
        assert_eq!(loads.total(), 3);
    }

    #[test]
    fn an_address_has_its_own_limit_whichever_way_it_is_written() {
        let config =
            config(&[("max.connections.per.ip", "2"), ("max.connections.per.ip.overrides", "10.0.0.1:1,[::1]:0")]);
        let loads = Loads::new(2);
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        assert!(loads.place(HOME, &config).is_ok() && loads.place(ip("::ffff:127.0.0.1"), &config).is_ok());
        assert_eq!(loads.place(HOME, &config), Err(Refusal::Address(2)));
        assert!(loads.place(ip("10.0.0.1"), &config).is_ok(), "another address");
        assert_eq!(loads.place(ip("10.0.0.1"), &config), Err(Refusal::Address(1)), "the override");
        assert_eq!(loads.place(ip("::1"), &config), Err(Refusal::Address(0)));
        assert_eq!(loads.total(), 3, "what is refused is not counted");
        loads.left(ShardId(0), ip("::ffff:127.0.0.1"));
        assert!(loads.place(HOME, &config).is_ok());
    }

    #[test]
    fn the_broker_has_its_most_before_any_address_does() {
        let config = config(&[("max.connections", "1")]);
        let loads = Loads::new(2);
        assert!(loads.place(HOME, &config).is_ok());
        assert_eq!(loads.place(HOME, &config), Err(Refusal::Broker(1)));
    }
}
