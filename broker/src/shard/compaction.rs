//! Compaction of a shard's partitions, in the background, one at a time.
//!
//! Holds: the choice of the dirtiest log, and what a round is told. Never touches: what a round does
//! (`corelog_storage::log`).
//!
//! As Kafka's cleaner, with two differences: each core compacts the partitions it owns, so `log.cleaner.threads` means
//! nothing, and memory and pace are shared by the cores; and all of it goes on in slices, between which the core
//! serves.

use std::collections::HashSet;
use std::rc::Rc;

use corelog_storage::batch::validate::DECOMPRESSED_BYTES_MAX_DEFAULT;
use corelog_storage::compact::{Candidate, GroupLimits, Wishes};
use corelog_storage::log::{CompactionError, CompactionRules, Pace, TRANSACTIONS_MAX_DEFAULT};
use tracing::{debug, error, info};

use super::Shard;
use crate::config::{BrokerConfig, TopicConfig};
use crate::partition::Partition;
use crate::partition::call::PartitionKey;

/// Bytes that a round works on before others get their turn: some tens of microseconds, with the codecs some hundreds.
const SLICE_BYTES: usize = 64 << 10;
/// The least memory for keys that a core gets, however small its share: 2700 of them.
const MAP_BYTES_MIN: usize = 64 << 10;

/// Compacts what is due, until the shard ends.
pub async fn compact(shard: Rc<Shard>) {
    if !shard.config().cleaner.is_enabled {
        return;
    }
    let pace = Pace::new(0.0, f64::MAX);
    // Those of which a round has found that it can come no further: until a restart, as in Kafka.
    let mut given_up = HashSet::new();
    loop {
        let config = shard.config();
        let share = |of_all: f64| of_all / config.shards.max(1) as f64;
        pace.set(share(config.cleaner.bytes_per_second_min), share(config.cleaner.bytes_per_second_max));
        let Some((partition, candidate, rules)) = dirtiest(&shard, &config, &mut given_up).await else {
            shard.reactor().sleep(config.cleaner.backoff).await;
            continue;
        };
        let result = partition.log().compact(&candidate, &rules, &pace).await;
        let (topic, number) = (partition.topic(), partition.key().partition.0);
        match result {
            Ok(done) => {
                debug!(%topic, partition = number, ?done, bytes_per_second = pace.rate() as u64, "compacted");
                if done.clean_to > candidate.first_dirty {
                    continue;
                }
                // It came no further, say before a transaction that is open: later.
            }
            Err(CompactionError::Interrupted) => {}
            Err(reason @ CompactionError::Shortage { .. }) => {
                info!(%topic, partition = number, %reason, "not compacted; a later round tries again");
            }
            Err(reason) => {
                give_up(&partition, &reason, &mut given_up);
                if partition.log().fenced().is_some() {
                    partition.catch_up(&shard);
                }
            }
        }
        shard.reactor().sleep(config.cleaner.backoff).await;
    }
}

fn give_up(partition: &Partition, reason: &CompactionError, given_up: &mut HashSet<PartitionKey>) {
    let (topic, number) = (partition.topic(), partition.key().partition.0);
    error!(%topic, partition = number, %reason, "the partition is not compacted any more until a restart");
    given_up.insert(partition.key());
}

/// The log of which the largest part is dirty, of those that are due.
async fn dirtiest(
    shard: &Rc<Shard>,
    config: &BrokerConfig,
    given_up: &mut HashSet<PartitionKey>,
) -> Option<(Rc<Partition>, Candidate, CompactionRules)> {
    let partitions: Vec<_> = shard.partitions.borrow().values().cloned().collect();
    given_up.retain(|key| partitions.iter().any(|partition| partition.key() == *key));
    let mut best: Option<(Rc<Partition>, Candidate, CompactionRules)> = None;
    for partition in partitions {
        let topic = partition.config();
        if !topic.cleanup_policy.compact || given_up.contains(&partition.key()) {
            continue;
        }
        let rules = rules(&topic, config);
        let undecided = partition.log().producers(|producers| producers.first_unstable());
        let stable = undecided.map_or(partition.last_stable(), |first| first.min(partition.last_stable()));
        match partition.log().compaction_candidate(&rules, stable, shard.unix_now()).await {
            Ok(Some(found)) if found.is_due(&rules.wishes) => {
                if best.as_ref().is_none_or(|(_, other, _)| other.dirty_ratio() < found.dirty_ratio()) {
                    best = Some((partition, found, rules));
                }
            }
            Err(reason) if reason.is_lasting() => give_up(&partition, &reason, given_up),
            Ok(_) | Err(_) => {}
        }
        // A shard may have thousands of them.
        shard.reactor().yield_now().await;
    }
    best
}

fn rules(topic: &TopicConfig, broker: &BrokerConfig) -> CompactionRules {
    let millis = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
    let share = broker.cleaner.map_bytes_max / broker.shards.max(1) as u64;
    CompactionRules {
        wishes: Wishes {
            dirty_ratio_min: topic.cleanable_dirty_ratio_min,
            lag_ms_min: millis(topic.compaction_lag_ms_min),
            lag_ms_max: millis(topic.compaction_lag_ms_max),
        },
        delete_retention_ms: millis(topic.delete_retention_ms),
        limits: GroupLimits {
            bytes: u64::from(topic.segment_bytes),
            index_bytes: u64::from(topic.segment_index_bytes),
        },
        map_bytes_max: usize::try_from(share).unwrap_or(usize::MAX).max(MAP_BYTES_MIN),
        load_factor: broker.cleaner.map_load_factor,
        decompressed_bytes_max: DECOMPRESSED_BYTES_MAX_DEFAULT,
        transactions_max: TRANSACTIONS_MAX_DEFAULT,
        slice_bytes: SLICE_BYTES,
    }
}
