//! What a shard does besides serving: closing idle connections, reporting, stopping.
//!
//! Holds: the slow timer, the status line, the order of a shard's stop. Never touches: requests.

use std::fmt::Write as _;
use std::rc::Rc;
use std::time::Duration;

use corelog_net::wire::ErrorCode;
use tracing::{info, warn};

use super::Shard;
use super::together::together;

/// How often idle connections are looked for.
const SWEEP: Duration = Duration::from_secs(10);
/// How long a stop waits for produces in flight to be answered.
const DRAIN_MAX: Duration = Duration::from_secs(2);
/// How often it looks.
const DRAIN_LOOK: Duration = Duration::from_millis(5);
/// A turn longer than this is counted as a stall.
const STALL: Duration = Duration::from_millis(10);
/// Logs closed at once.
const CLOSES_AT_ONCE: usize = 16;

/// Closes idle connections until the shard ends.
pub async fn sweep(shard: Rc<Shard>) {
    let Some(idle_max) = shard.config().connection_idle_max else { return };
    loop {
        shard.reactor().sleep(SWEEP.min(idle_max)).await;
        let closed = shard.connections.close_idle(shard.reactor().now(), idle_max);
        shard.counters().connections_idle_closed.add(closed as u64);
    }
}

/// Logs what the shard has done, asked for by SIGUSR1.
pub fn report(shard: &Shard) {
    let mut line = String::new();
    for (name, number) in shard.counters().all() {
        let _ = write!(line, " {name}={number}");
    }
    let (reactor, stalls) = (shard.reactor().counters(), shard.reactor().stalls());
    let storage = shard.storage().counters();
    info!(
        shard = shard.id().0,
        partitions = shard.partitions.borrow().len(),
        connections = shard.connections.count(),
        asks = shard.asks().open_count(),
        watches = shard.watches.borrow().len(),
        fetches_for_others = shard.serving.fetches(),
        turn_p50_us = stalls.percentile(50.0).as_micros() as u64,
        turn_p99_us = stalls.percentile(99.0).as_micros() as u64,
        turn_max_us = stalls.longest().as_micros() as u64,
        turns_over_10_ms = stalls.longer_than(STALL),
        ?reactor,
        ?storage,
        "status:{line}"
    );
}

/// Stops the shard: no more requests, what is in flight becomes durable, logs are closed so that the next start has
/// nothing to scan.
pub async fn stop(shard: Rc<Shard>) {
    let deadline = shard.reactor().now() + DRAIN_MAX;
    while !shard.produces().borrow().is_empty() && shard.reactor().now() < deadline {
        shard.reactor().sleep(DRAIN_LOOK).await;
    }
    shard.connections.close_all();
    let partitions: Vec<_> = shard.partitions.borrow_mut().drain().map(|(_, partition)| partition).collect();
    let closes = partitions.into_iter().map(|partition| {
        let shard = Rc::clone(&shard);
        async move {
            if let Err(reason) = partition.log().close().await {
                warn!(topic = %partition.topic(), partition = partition.key().partition.0, %reason, "log not closed cleanly; the next start recovers it");
            }
            partition.refuse_waiting(&shard, ErrorCode::NotLeaderOrFollower);
        }
    });
    together(CLOSES_AT_ONCE, closes).await;
    if let Err(reason) = shard.storage().flush_checkpoint().await {
        warn!(shard = shard.id().0, %reason, "checkpoint not written; the next start scans more");
    }
    shard.finish();
}
