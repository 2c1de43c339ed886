//! What a shard does besides serving: closing connections that are idle or stand still, forgetting idle producers, reporting,
//! stopping.
//!
//! Holds: the slow timers, the status line, the order of a shard's stop. Never touches: requests.

use std::fmt::Write as _;
use std::rc::Rc;
use std::time::Duration;

use corelog_net::wire::ErrorCode;
use corelog_storage::disk::files::is_no_space;
use tracing::{info, warn};

use super::together::together;
use super::{Shard, controlling};

/// How often connections are looked at, at least.
const SWEEP: Duration = Duration::from_secs(10);
/// How often at most, however short the times are: a limit of zero must not keep the shard from everything else.
const LOOK_MIN: Duration = Duration::from_millis(50);
/// Looks within the time that a connection may stand still: it is closed at most that part of it late.
const LOOKS_PER_TIMEOUT: u32 = 4;
/// How often connections are looked at while frames wait for memory.
const PRESSED_LOOK: Duration = Duration::from_millis(250);
/// How long a stop waits for produces in flight to be answered.
const DRAIN_MAX: Duration = Duration::from_secs(2);
/// How often it looks.
const DRAIN_LOOK: Duration = Duration::from_millis(5);
/// A turn longer than this is counted as a stall.
const STALL: Duration = Duration::from_millis(10);
/// Logs closed at once.
const CLOSES_AT_ONCE: usize = 16;

/// Closes connections that are idle or stand still, until the shard ends.
pub async fn sweep(shard: Rc<Shard>) {
    let config = shard.config();
    let idle_max = config.connection_idle_max.unwrap_or(Duration::MAX);
    let stall_max = config.connection_progress_timeout;
    let look = SWEEP.min(idle_max).min(stall_max / LOOKS_PER_TIMEOUT).max(LOOK_MIN);
    let (mut pressed, mut waits_seen) = (false, 0);
    loop {
        if pressed {
            shard.reactor().sleep(look.min(PRESSED_LOOK)).await;
        } else {
            // Or sooner, if frames wait for memory.
            let _ = shard.reactor().within(look, shard.pressed.notified()).await;
        }
        // Pressed as long as frames have waited since the last look: the memory is needed until none does.
        let waits = shard.counters().memory_waits.get();
        pressed = std::mem::replace(&mut waits_seen, waits) != waits;
        let swept = shard.connections.sweep(shard.reactor().now(), idle_max, stall_max, pressed);
        shard.counters().connections_idle_closed.add(swept.idle);
        shard.counters().connections_stalled.add(swept.stalled);
    }
}

/// Forgets idle producers every now and then, until the shard ends.
pub async fn expire_producers(shard: Rc<Shard>) {
    let interval = shard.config().producer_id_check_interval;
    loop {
        shard.reactor().sleep(interval).await;
        let (now, mut expired) = (shard.unix_now(), 0);
        let partitions: Vec<_> = shard.partitions.borrow().values().cloned().collect();
        for partition in partitions {
            expired += partition.log().expire_producers(now);
            // A partition may know a hundred thousand producers: others go on between any two.
            shard.reactor().yield_now().await;
        }
        shard.counters().producers_expired.add(expired as u64);
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
        frame_bytes = shard.frame_memory.held(),
        pool_bytes = shard.reactor().pool().in_use(),
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
    for folder in &shard.folders().more {
        let (data, is_online) = (folder.path.display(), shard.is_online(folder));
        let storage = folder.opened.as_ref().map(|(_, storage)| storage.counters());
        info!(shard = shard.id().0, %data, is_online, ?storage, "status of a data folder");
    }
}

/// Stops the shard: no more requests, what is in flight becomes durable, logs are closed so that the next start has
/// nothing to scan.
pub async fn stop(shard: Rc<Shard>) {
    // A change that the controller has recorded is carried out on every shard first: a topic half deleted, say.
    controlling::rest(&shard).await;
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
    for (number, storage) in shard.storages() {
        let more = number.checked_sub(1).and_then(|at| shard.folders().more.get(at));
        if more.is_some_and(|folder| !shard.is_online(folder)) {
            continue;
        }
        storage.finish().await;
        if let Err(reason) = storage.spend(is_no_space, async || storage.flush_checkpoint().await).await {
            let data = storage.data().display();
            warn!(shard = shard.id().0, %data, %reason, "checkpoint not written; the next start scans more");
        }
    }
    controlling::stop(&shard).await;
    shard.finish();
}
