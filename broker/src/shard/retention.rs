//! The rounds of retention: every log of the shard is asked, now and then, what of it is too old or too much.
//!
//! Holds: when, and in which order. Never touches: which segments those are (`corelog_storage::log` decides), files.

use std::rc::Rc;

use corelog_storage::log::ChangeError;
use tracing::{debug, warn};

use super::Shard;
use crate::partition::Partition;

/// Goes round every `log.retention.check.interval.ms`, the first time after `log.initial.task.delay.ms`, until the shard
/// ends.
pub async fn rounds(shard: Rc<Shard>) {
    let config = shard.config();
    shard.reactor().sleep(config.initial_task_delay).await;
    loop {
        round(&shard).await;
        shard.reactor().sleep(config.retention_check_interval).await;
    }
}

/// One partition after the other: what they ask of the disk is never more than one of them does.
async fn round(shard: &Rc<Shard>) {
    let partitions: Vec<_> = shard.partitions.borrow().values().cloned().collect();
    let (began, mut segments, mut bytes) = (shard.reactor().now(), 0, 0);
    for partition in partitions {
        let (more_segments, more_bytes) = retain(shard, &partition).await;
        segments += more_segments;
        bytes += more_bytes;
        shard.reactor().yield_now().await;
    }
    let took_ms = shard.reactor().now().saturating_since(began).as_millis() as u64;
    debug!(shard = shard.id().0, segments, bytes, took_ms, "a round of retention");
}

async fn retain(shard: &Rc<Shard>, partition: &Rc<Partition>) -> (u64, u64) {
    let log = partition.log();
    if log.fenced().is_some() {
        return (0, 0);
    }
    match log.retain(shard.unix_now(), partition.high_watermark()).await {
        Ok(retained) => {
            let (size, age) = (retained.over_size, retained.expired);
            (size.segments + age.segments, size.bytes + age.bytes)
        }
        // Going away, or being changed: the next round finds it, or not.
        Err(ChangeError::Closed) => (0, 0),
        Err(reason) => {
            warn!(topic = %partition.topic(), partition = partition.key().partition.0, %reason, "retention failed; the next round tries again");
            if log.fenced().is_some() {
                partition.catch_up(shard);
            }
            (0, 0)
        }
    }
}
