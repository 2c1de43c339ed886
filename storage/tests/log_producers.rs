//! A log's producers: how long they are remembered.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod log_common;

use corelog_storage::ids::{LeaderEpoch, Offset, ProducerId, Timestamp};
use corelog_storage::log::{AppendError, CommitLogUse, Log, LogConfig, StorageOptions};
use log_common::*;
use std::path::Path;
use std::time::Duration;

/// The time in every batch of [`producer_batch`].
const WRITTEN: i64 = 4_000_000_000_000;

fn remembers_for(idle_ms: i64) -> LogConfig {
    LogConfig { producer_idle_ms_max: idle_ms, ..LogConfig::default() }
}

#[test]
fn a_silent_producer_is_forgotten_after_the_configured_time_and_not_before() {
    let reactor = bench(1).reactor;
    reactor.block_on(async {
        let (_data, env) = storage(&reactor, Path::new("/data"), StorageOptions::default()).await;
        let log = Log::open_or_create(&env, name(), remembers_for(5_000)).await.unwrap();
        lead(&log).await;
        append(&log, &producer_batch(2, 10, 1, 42, 0)).unwrap();
        assert_eq!(log.expire_producers(Timestamp(WRITTEN + 4_999)), 0);
        assert!(matches!(append(&log, &producer_batch(2, 10, 1, 42, 0)), Err(AppendError::Duplicate { .. })));
        // Changed while the log is open: it counts from the next look on.
        log.set_config(remembers_for(10_000));
        assert_eq!(log.expire_producers(Timestamp(WRITTEN + 9_999)), 0);
        assert_eq!(log.expire_producers(Timestamp(WRITTEN + 10_000)), 1);
        assert!(log.producers(|p| p.get(ProducerId(42)).is_none()));
        // As Kafka has it: what it sends now is as from a new producer, also with a sequence in the middle.
        append(&log, &producer_batch(2, 10, 1, 42, 7)).unwrap();
        commit_all(&log).await;
        log.close().await.unwrap();
    });
}

#[test]
fn the_configured_time_holds_for_what_a_start_loads() {
    let reactor = bench(2).reactor;
    reactor.block_on(async {
        let (_data, env) = storage(&reactor, Path::new("/data"), StorageOptions::default()).await;
        let log = Log::open_or_create(&env, name(), LogConfig::default()).await.unwrap();
        lead(&log).await;
        append(&log, &producer_batch(2, 10, 1, 42, 0)).unwrap();
        commit_all(&log).await;
        log.close().await.unwrap();
        let log = Log::open(&env, name(), remembers_for(3_000)).await.unwrap();
        assert_eq!(log.expire_producers(Timestamp(WRITTEN + 2_999)), 0);
        assert_eq!(log.expire_producers(Timestamp(WRITTEN + 3_000)), 1);
    });
}

/// Found by seed 455410 of `log_crash`. A recovery point right at the end of a segment has the snapshot that the segment's
/// seal writes as well: it went when the next recovery point was made, and where all records before it were deleted and those
/// behind it cut off, nothing knew the producer any more. A record sent again would have been taken for a new one. (Kafka
/// forgets the producer here: its `truncateAndReload` drops snapshots at the log start.)
#[test]
fn a_cut_back_to_the_log_start_still_knows_the_producer_of_the_records_that_were_deleted() {
    let reactor = bench(3).reactor;
    reactor.block_on(async {
        let options = StorageOptions {
            recovery_point_bytes_max: 4 << 10,
            commit_log: CommitLogUse::Never,
            ..StorageOptions::default()
        };
        let (_data, env) = storage(&reactor, Path::new("/data"), options).await;
        let config = LogConfig { segment_bytes_max: 16 << 10, ..LogConfig::default() };
        let log = Log::open_or_create(&env, name(), config).await.unwrap();
        lead(&log).await;
        // The first fills the segment and more than the bytes up to a recovery point: that lies at its end.
        append(&log, &producer_batch(2, 7_000, 1, 42, 0)).unwrap();
        commit_all(&log).await;
        reactor.sleep(Duration::from_millis(100)).await;
        append(&log, &producer_batch(2, 7_000, 2, 42, 2)).unwrap();
        commit_all(&log).await;
        reactor.sleep(Duration::from_millis(100)).await;
        assert_eq!(log.status().segments, 2, "the second batch begins the second segment");
        log.delete_records(Offset(2)).await.unwrap();
        reactor.sleep(Duration::from_millis(100)).await;
        assert_eq!(log.truncate_to(Offset(2)).await.unwrap(), Offset(2));
        assert_eq!((log.log_start(), log.log_end()), (Offset(2), Offset(2)));
        log.new_epoch(LeaderEpoch(log.epoch().0 + 1), log.log_end()).unwrap();
        assert!(matches!(append(&log, &producer_batch(2, 7_000, 1, 42, 0)), Err(AppendError::Duplicate { .. })));
        append(&log, &producer_batch(2, 7_000, 2, 42, 2)).unwrap();
        commit_all(&log).await;
    });
}
