//! Accepts connections and places each on a shard.
//!
//! Holds: the accept loop of a listener (on shard 0) and how many connections each shard and each address has. Never touches: requests.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use corelog_reactor::{Listener, Monotonic, RawConn, ShardId};
use corelog_storage::disk::files::remedy;
use rustc_hash::FxHashMap;
use thiserror::Error;
use tracing::{info, warn};

use super::mail::Mail;
use super::{Shard, connection};
use crate::config::BrokerConfig;

/// Pause after an accept that failed (file handles used up, say); twice as long after each further one,
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// up to this.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Between two lines about it.
const TELL_EVERY: Duration = Duration::from_secs(5);

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

/// Accepts that fail: how long to wait, and whether to tell.
#[derive(Debug)]
struct Failures {
    pause: Duration,
    told_at: Option<Monotonic>,
    /// Since it was told.
    count: u64,
    is_recovery_told: bool,
}

impl Failures {
    const fn new() -> Failures {
        Failures { pause: PAUSE_MIN, told_at: None, count: 0, is_recovery_told: true }
    }

    /// One more. How long to wait, and how many there were since the last line, if there is to be another.
    fn failed(&mut self, now: Monotonic) -> (Duration, Option<u64>) {
        let pause = self.pause;
        self.pause = (pause * 2).min(PAUSE_MAX);
        self.count += 1;
        if self.told_at.is_some_and(|at| now.saturating_since(at) < TELL_EVERY) {
            return (pause, None);
        }
        self.told_at = Some(now);
        self.is_recovery_told = false;
        (pause, Some(std::mem::take(&mut self.count)))
    }

    /// An accept worked. Whether that is news.
    fn succeeded(&mut self) -> bool {
        self.pause = PAUSE_MIN;
        !std::mem::replace(&mut self.is_recovery_told, true)
    }
}

/// Accepts until the broker stops. What is connected goes on, whatever happens here.
pub async fn run(shard: Rc<Shard>, listener: Listener, number: usize) {
    let mut failures = Failures::new();
    loop {
        match listener.accept().await {
            Ok((raw, peer)) => {
                if failures.succeeded() {
                    info!("connections are accepted again");
                }
                place(&shard, raw, peer, number);
            }
            // The client has hung up before its turn came: its place is free for the next.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                shard.counters().accepts_failed.increment();
                let (pause, told) = failures.failed(shard.reactor().now());
                if let Some(count) = told {
                    warn!(
                        %error,
                        count,
                        "connections cannot be accepted{}. Those there are go on; new ones wait in the listen backlog",
                        remedy(&error)
                    );
                }
                shard.reactor().sleep(pause).await;
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
    fn accepts_that_go_on_failing_are_tried_less_often_and_told_with_a_count_every_few_seconds() {
        let (mut failures, mut now, mut told) = (Failures::new(), Monotonic::ZERO, Vec::new());
        let end = now + Duration::from_secs(60);
        let mut tries = 0;
        while now < end {
            let (pause, count) = failures.failed(now);
            assert!((PAUSE_MIN..=PAUSE_MAX).contains(&pause), "{pause:?}");
            told.extend(count);
            now += pause;
            tries += 1;
        }
        assert!((60..70).contains(&tries), "{tries} tries in a minute");
        assert_eq!(told[0], 1, "the first is told at once");
        assert!((10..=12).contains(&told.len()), "{told:?}");
        assert!(told.iter().sum::<u64>() + TELL_EVERY.as_secs() >= tries, "{told:?} of {tries}");
    }

    #[test]
    fn accepts_that_fail_now_and_then_are_told_no_more_often_and_so_is_their_recovery() {
        let (mut failures, mut now, mut lines) = (Failures::new(), Monotonic::ZERO, 0);
        for _ in 0..1000 {
            let (pause, told) = failures.failed(now);
            assert_eq!(pause, PAUSE_MIN, "each is the first since one worked");
            lines += usize::from(told.is_some()) + usize::from(failures.succeeded());
            now += Duration::from_millis(10);
        }
        assert_eq!(lines, 4, "two of each in ten seconds");
    }

    #[test]
    fn the_broker_has_its_most_before_any_address_does() {
        let config = config(&[("max.connections", "1")]);
        let loads = Loads::new(2);
        assert!(loads.place(HOME, &config).is_ok());
        assert_eq!(loads.place(HOME, &config), Err(Refusal::Broker(1)));
    }
}
