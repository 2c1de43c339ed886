//! The times of a compacted log, on the simulated disk: what a search finds, and how old its segments are to retention.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod log_common;
mod log_compacted;
mod log_model;

use corelog_reactor::sim::SimWorld;
use corelog_reactor::{Durability, OpenHow};
use corelog_storage::batch::{BatchBuilder, Batches, TargetCodec};
use corelog_storage::compact::GroupLimits;
use corelog_storage::ids::{Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};
use corelog_storage::log::{CompactionRules, Log, LogConfig, StorageEnv};
use log_common::*;
use log_compacted::*;
use log_model::{Dice, run};
use std::path::Path;
use std::time::Duration;

/// One record; of an idempotent producer, if it has an id.
fn keyed(key: u64, time: i64, id: Option<i64>) -> Vec<u8> {
    let mut builder = BatchBuilder::new(TargetCodec::None);
    if let Some(id) = id {
        builder = builder.producer(ProducerId(id), ProducerEpoch(0), Sequence(0));
    }
    builder.append(Timestamp(time), Some(&key.to_be_bytes()), Some(&[1; 10_000]), &[]);
    builder.build().unwrap()
}

/// A log of one record a batch and segment, compacted, two segments to one, and opened again if `is_reopened`: then `look` at it. It is told how many
/// records each batch has.
fn compacted(
    batches: &'static [(u64, i64, Option<i64>)],
    is_reopened: bool,
    look: impl AsyncFn(&StorageEnv, &Log, &[i32]) + 'static,
) {
    let world = SimWorld::new(10);
    let node = world.add_node();
    let reactor = reactor_of(&world, node);
    let own = reactor.clone();
    run(&world, &reactor, async move {
        let (_data, env, mut log) = open(own.clone(), config(16 << 10), options(&mut Dice(10))).await;
        lead(&log).await;
        for (key, time, id) in batches {
            append(&log, &keyed(*key, TIME + time, *id)).unwrap();
            commit_all(&log).await;
        }
        own.sleep(Duration::from_millis(100)).await;
        assert_eq!(log.status().segments, batches.len());
        let limits = GroupLimits { bytes: 25 << 10, index_bytes: u64::MAX };
        compact(&log, &CompactionRules { limits, ..rules() }).await.unwrap().expect("a round");
        if is_reopened {
            log.close().await.unwrap();
            log = Log::open(&env, name(), config(16 << 10)).await.unwrap();
        }
        let counts: Vec<i32> = Batches::new(&read_all(&log, Offset(0), 100_000).await)
            .map(|batch| batch.unwrap().header.record_count)
            .collect();
        look(&env, &log, &counts).await;
    });
}

async fn latest(log: &Log) -> (i64, Offset) {
    let found = log.max_timestamp(log.log_end()).await.unwrap().unwrap();
    (found.timestamp.0 - TIME, found.offset)
}

#[test]
fn a_header_that_a_round_has_left_has_no_time_that_a_search_would_find() {
    // The first one is its producer's last: what stays of it is its header.
    const BATCHES: &[(u64, i64, Option<i64>)] = &[(1, 9_000, Some(PRODUCER)), (1, 0, None), (2, 1, None)];
    for is_reopened in [false, true] {
        compacted(BATCHES, is_reopened, async |_, log, counts| {
            assert_eq!(counts, [0, 1, 1]);
            assert_eq!(latest(log).await, (1, Offset(2)));
            let found = log.offset_for_timestamp(Timestamp(TIME + 2), log.log_end()).await.unwrap();
            assert_eq!(found, None);
        });
    }
}

#[test]
fn a_time_index_that_leads_to_a_header_without_records_is_made_anew() {
    const BATCHES: &[(u64, i64, Option<i64>)] =
        &[(1, 9_000, Some(PRODUCER)), (3, 20, None), (1, 50, None), (2, 1, None)];
    compacted(BATCHES, false, async |env, log, counts| {
        assert_eq!(counts, [0, 1, 1, 1]);
        log.close().await.unwrap();
        // As a Kafka's cleaner writes it.
        let path = Path::new("/data/orders-0/00000000000000000000.timeindex");
        let file = env.reactor().open(path, OpenHow::write()).await.unwrap();
        file.truncate(0).await.unwrap();
        let mut entry = (TIME + 9_000).to_be_bytes().to_vec();
        entry.extend_from_slice(&0_u32.to_be_bytes());
        file.write_at(entry, 0, Durability::Dsync).await.0.unwrap();
        drop(file);
        let log = Log::open(env, name(), config(16 << 10)).await.unwrap();
        assert_eq!(latest(&log).await, (50, Offset(2)));
        log.close().await.unwrap();
        let log = Log::open(env, name(), config(16 << 10)).await.unwrap();
        assert_eq!(latest(&log).await, (50, Offset(2)), "and stays so");
    });
}

/// The log start after retention of a second, at that time.
async fn start_after_retention(log: &Log, now: i64) -> Offset {
    log.set_config(LogConfig { retention_ms_max: Some(1_000), ..log.config() });
    log.retain(Timestamp(TIME + now), log.log_end()).await.unwrap();
    log.log_start()
}

#[test]
fn a_compacted_segment_is_as_new_as_its_newest_batch_also_if_that_is_a_header() {
    // Two make one segment, which ends with a header.
    const BATCHES: &[(u64, i64, Option<i64>)] =
        &[(1, 0, None), (3, 5_000, None), (3, 6_000, None), (2, 7_000, None), (4, 8_000, None)];
    for is_reopened in [false, true] {
        compacted(BATCHES, is_reopened, async |_, log, counts| {
            assert_eq!(counts, [1, 0, 1, 1, 1]);
            assert_eq!(start_after_retention(log, 6_000).await, Offset(0));
            assert_eq!(start_after_retention(log, 6_001).await, Offset(2));
        });
    }
}

#[test]
fn a_compacted_segment_without_a_record_is_as_old_as_its_headers_say() {
    const BATCHES: &[(u64, i64, Option<i64>)] =
        &[(3, 0, None), (3, 10, None), (3, 6_000, None), (2, 7_000, None), (4, 8_000, None)];
    for is_reopened in [false, true] {
        compacted(BATCHES, is_reopened, async |_, log, counts| {
            assert_eq!(counts, [0, 1, 1, 1]);
            assert_eq!(start_after_retention(log, 1_010).await, Offset(0));
            assert_eq!(start_after_retention(log, 1_011).await, Offset(2));
        });
    }
}
