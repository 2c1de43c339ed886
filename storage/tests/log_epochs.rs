//! A leader epoch needs no write of its own: it is durable with its first batch, and in the checkpoint of epochs before the
//! recovery point passes that batch. So a log that is idle from a start to a stop writes nothing.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod log_common;

use corelog_reactor::sim::{DiskFault, DiskOpKind};
use corelog_storage::ids::{LeaderEpoch, Offset};
use corelog_storage::log::{AppendError, Log, LogConfig};
use log_common::*;
use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

impl Bench {
    fn has_checkpoint(&self) -> bool {
        let entries = self.reactor.list_dir(Path::new("/data/orders-0")).unwrap();
        entries.iter().any(|entry| entry.name == "leader-epoch-checkpoint")
    }
}

/// The epoch of each of the first records.
fn epochs(log: &Log, count: i64) -> Vec<Option<i32>> {
    (0..count).map(|at| log.epoch_of(Offset(at)).map(|epoch| epoch.0)).collect()
}

/// Batches of one record, about 500 bytes each, committed one by one.
async fn fill(log: &Log, batches: u64) {
    for n in 0..batches {
        append(log, &batch(1, 500, n)).expect("an append");
        commit_all(log).await;
    }
}

fn small_segments() -> LogConfig {
    LogConfig { segment_bytes_max: 2_000, ..LogConfig::default() }
}

#[test]
fn an_epoch_is_durable_with_its_first_batch_and_needs_no_file() {
    let mut bench = bench(30);
    for life in 0..4 {
        bench.reactor.block_on(async {
            let (_data, _env, log) = bench.open(LogConfig::default()).await;
            let known: Vec<_> = (0..life).map(Some).collect();
            assert_eq!(epochs(&log, life.into()), known, "read from the batches");
            log.new_epoch(LeaderEpoch(life), log.log_end()).expect("an epoch");
            fill(&log, 1).await;
            assert!(!bench.has_checkpoint());
        });
        bench.cut_power();
    }
}

#[test]
fn an_epoch_that_a_crash_took_away_and_the_one_that_follows_it_leave_what_a_recorded_one_leaves() {
    let mut bench = bench(31);
    bench.reactor.block_on(async {
        let (_data, _env, log) = bench.open(LogConfig::default()).await;
        log.new_epoch(LeaderEpoch(2), Offset(0)).expect("an epoch");
        fill(&log, 3).await;
        log.new_epoch(LeaderEpoch(5), Offset(3)).expect("an epoch");
        append(&log, &batch(1, 500, 3)).expect("an append that never becomes durable");
    });
    bench.cut_power();
    bench.reactor.block_on(async {
        let (_data, _env, log) = bench.open(LogConfig::default()).await;
        assert_eq!((log.log_end(), log.epoch()), (Offset(3), LeaderEpoch(2)));
        log.new_epoch(LeaderEpoch(6), Offset(3)).expect("the next one, as the controller counts");
        fill(&log, 1).await;
        // A follower that has records of epoch 5 is told to cut them off.
        assert_eq!(log.epoch_end_offset(LeaderEpoch(5)).end, Offset(3));
        assert_eq!(epochs(&log, 4), [2, 2, 2, 6].map(Some));
    });
}

#[test]
fn an_epoch_is_begun_on_a_full_disk_and_no_segment_is_sealed_before_its_checkpoint_has_space() {
    let mut bench = bench(31);
    bench.reactor.block_on(async {
        let (_data, _env, log) = bench.open(small_segments()).await;
        lead(&log).await;
        fill(&log, 2).await;
        let full = DiskFault::Errno(libc::ENOSPC);
        bench.disk().set_fault(move |op| op.path.to_string_lossy().contains("leader-epoch").then_some(full));
        lead(&log).await;
        fill(&log, 4).await;
        bench.reactor.sleep(Duration::from_secs(3)).await;
        assert_eq!(log.fenced(), None);
        assert!(!bench.has_checkpoint() && log.status().segments > 1);
        bench.disk().clear_fault();
        bench.reactor.sleep(Duration::from_secs(3)).await;
        assert!(bench.has_checkpoint());
    });
    bench.cut_power();
    bench.reactor.block_on(async {
        let (_data, _env, log) = bench.open(small_segments()).await;
        assert_eq!((log.epoch(), log.log_end()), (LeaderEpoch(1), Offset(6)));
        assert_eq!(epochs(&log, 6), [0, 0, 1, 1, 1, 1].map(Some));
    });
}

#[test]
fn a_checkpoint_of_epochs_that_cannot_be_written_fences_the_log() {
    let bench = bench(32);
    bench.reactor.block_on(async {
        let (_data, _env, log) = bench.open(small_segments()).await;
        lead(&log).await;
        fill(&log, 1).await;
        bench.disk().eio_where(|op| op.path.to_string_lossy().contains("leader-epoch"));
        fill(&log, 5).await;
        bench.reactor.sleep(Duration::from_millis(50)).await;
        bench.disk().clear_fault();
        assert!(matches!(append(&log, &batch(1, 10, 2)), Err(AppendError::Fenced(_))));
    });
}

#[test]
fn a_kept_log_without_new_records_is_closed_without_a_write_of_its_epochs() {
    let mut bench = bench(34);
    bench.reactor.block_on(async {
        let (_data, _env, log) = bench.open(LogConfig::default()).await;
        lead(&log).await;
        fill(&log, 2).await;
        log.close().await.expect("a clean stop");
    });
    for _ in 0..3 {
        bench.cut_power();
        bench.reactor.block_on(async {
            let (_data, _env, log) = bench.open(LogConfig::default()).await;
            assert_eq!(log.epoch(), LeaderEpoch(0), "an epoch without records is nobody's");
            bench.disk().eio_where(|op| op.path.to_string_lossy().contains("leader-epoch"));
            lead(&log).await;
            assert_eq!(log.epoch_at_end(), LeaderEpoch(1));
            log.close().await.expect("nothing of the epochs is written");
            bench.disk().clear_fault();
        });
    }
}

#[test]
fn a_log_without_new_records_is_opened_led_and_closed_without_a_write_in_its_folder() {
    for (records, seed) in [(0, 40), (3, 41)] {
        let mut bench = bench(seed);
        bench.reactor.block_on(async {
            let (_data, _env, log) = bench.open(LogConfig::default()).await;
            lead(&log).await;
            fill(&log, records).await;
            log.close().await.expect("a clean stop");
        });
        for _ in 0..3 {
            bench.cut_power();
            bench.reactor.block_on(async {
                let changes = Rc::new(Cell::new(0));
                let count = changes.clone();
                bench.disk().set_fault(move |op| {
                    let is_change = !matches!(op.kind, DiskOpKind::Read | DiskOpKind::Open);
                    count.set(count.get() + i32::from(is_change && op.path.to_string_lossy().contains("orders-0")));
                    None
                });
                let (_data, _env, log) = bench.open(LogConfig::default()).await;
                assert_eq!(log.log_end(), Offset(records as i64));
                lead(&log).await;
                log.close().await.expect("a clean stop");
                assert_eq!(changes.get(), 0, "with {records} records");
            });
        }
        bench.cut_power();
        bench.reactor.block_on(async {
            let (_data, _env, log) = bench.open(LogConfig::default()).await;
            lead(&log).await;
            fill(&log, 1).await;
            assert_eq!(offsets(&read_all(&log, Offset(0), 10_000).await).len(), records as usize + 1);
        });
    }
}
