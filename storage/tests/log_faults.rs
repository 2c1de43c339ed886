//! The log and a disk that fails: errors, a full disk, torn tails, rot.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod log_common;

use corelog_reactor::OpenHow;
use corelog_reactor::sim::{DiskFault, DiskOpKind};
use corelog_storage::disk::datadir::DataDir;
use corelog_storage::ids::{LeaderEpoch, Offset, Timestamp};
use corelog_storage::log::{AppendError, CommitError, Damage, FenceReason, Log, LogConfig, OpenError, StorageOptions};
use log_common::*;
use std::path::{Path, PathBuf};
use std::time::Duration;

fn segment(base: i64) -> PathBuf {
    PathBuf::from(format!("/data/orders-0/{base:020}.log"))
}

fn small_segments() -> LogConfig {
    LogConfig { segment_bytes_max: 32 << 10, ..LogConfig::default() }
}

/// Fills a log with `batches` batches of one record, about 1 KiB each, committed one by one.
async fn fill(log: &Log, batches: u64) {
    lead(log).await;
    for n in 0..batches {
        append(log, &batch(1, 1_000, n)).unwrap();
        commit_all(log).await;
    }
}

#[test]
fn a_failed_write_fences_the_log_until_a_restart() {
    let mut bench = bench(1);
    bench.reactor.block_on(async {
        let (_data, _env, log) = bench.open(LogConfig::default()).await;
        fill(&log, 5).await;
        append(&log, &batch(1, 1_000, 5)).unwrap();
        bench.disk().eio_where(|op| op.kind == DiskOpKind::DurableWrite);
        assert!(matches!(log.commit().await, Err(CommitError::Fenced(FenceReason::Io { .. }))));
        bench.disk().clear_fault();
        assert!(matches!(append(&log, &batch(1, 10, 6)), Err(AppendError::Fenced(_))));
        assert!(matches!(log.commit().await, Err(CommitError::Fenced(_))));
        assert!(!log.needs_commit());
        assert_eq!(log.durable_end(), Offset(5));
        assert!(log.truncate_to(Offset(2)).await.is_err());
        assert!(log.delete_records(Offset(2)).await.is_err());
        // What is known good can be read.
        let all = read_all(&log, Offset(0), 10_000).await;
        assert_eq!(offsets(&all).len(), 6);
    });
    bench.cut_power();
    bench.reactor.block_on(async {
        let (_data, _env, log) = bench.open(LogConfig::default()).await;
        assert_eq!(log.fenced(), None);
        assert!(log.log_end() >= Offset(5), "{:?}", log.status());
        lead(&log).await;
        append(&log, &batch(1, 10, 7)).unwrap();
        commit_all(&log).await;
    });
}

#[test]
fn a_log_that_finds_no_file_handle_refuses_appends_and_goes_on_once_there_is_one() {
    let mut bench = bench(3);
    bench.reactor.block_on(async {
        let (_data, _env, log) = bench.open(small_segments()).await;
        fill(&log, 2).await;
        let needs_handle = |kind| matches!(kind, DiskOpKind::Open | DiskOpKind::SyncFolder);
        bench.disk().set_fault(move |op| needs_handle(op.kind).then_some(DiskFault::Errno(libc::EMFILE)));
        let mut appended = 2;
        // Up to the next segment, which takes a new file.
        while !log.status().no_space {
            if append(&log, &batch(1, 10_000, appended)).is_ok() {
                appended += 1;
            }
            let committing = log.clone();
            bench.reactor.spawn(async move { committing.commit().await.unwrap() }).unwrap();
            bench.reactor.sleep(Duration::from_millis(20)).await;
            assert!(appended < 20, "{:?}", log.status());
        }
        assert!(matches!(append(&log, &batch(1, 10, 3)), Err(AppendError::NoSpace)));
        assert_eq!(log.fenced(), None);
        bench.disk().clear_fault();
        bench.reactor.sleep(Duration::from_millis(200)).await;
        append(&log, &batch(1, 10, 3)).expect("an append once there are handles");
        commit_all(&log).await;
        assert_eq!((log.fenced(), log.log_end()), (None, Offset(appended as i64 + 1)));
    });
    bench.cut_power();
    bench.reactor.block_on(async {
        let (_data, _env, log) = bench.open(small_segments()).await;
        assert_eq!(log.fenced(), None);
        assert_eq!(offsets(&read_all(&log, Offset(0), 1 << 20).await).len() as i64, log.log_end().0);
    });
}

#[test]
fn a_full_disk_refuses_appends_and_lifts_by_itself() {
    let bench = bench(2);
    bench.reactor.block_on(async {
        let (_data, env, log) = bench.open(LogConfig::default()).await;
        fill(&log, 2).await;
        append(&log, &batch(1, 200_000, 2)).unwrap();
        bench.disk().set_fault(|op| (op.kind == DiskOpKind::DurableWrite).then_some(DiskFault::Errno(libc_enospc())));
        let committing = log.clone();
        bench.reactor.spawn(async move { committing.commit().await.unwrap() }).unwrap();
        bench.reactor.sleep(Duration::from_millis(50)).await;
        assert!(matches!(append(&log, &batch(1, 10, 3)), Err(AppendError::NoSpace)));
        assert!(log.status().no_space);
        assert_eq!((log.durable_end(), log.log_end()), (Offset(2), Offset(3)));
        bench.disk().clear_fault();
        bench.reactor.sleep(Duration::from_millis(50)).await;
        assert_eq!(log.durable_end(), Offset(3));
        assert!(!log.status().no_space);
        append(&log, &batch(1, 10, 3)).unwrap();
        commit_all(&log).await;
        assert_eq!(env.counters().no_space, 1);
        assert_eq!(log.fenced(), None);
    });
}

const fn libc_enospc() -> i32 {
    28
}

#[test]
fn a_commit_that_is_dropped_in_flight_fences_the_log() {
    let bench = bench(3);
    bench.reactor.block_on(async {
        let (_data, _env, log) = bench.open(LogConfig::default()).await;
        fill(&log, 2).await;
        append(&log, &batch(1, 1_000, 2)).unwrap();
        {
            let mut commit = std::pin::pin!(log.commit());
            std::future::poll_fn(|cx| {
                assert!(commit.as_mut().poll(cx).is_pending());
                std::task::Poll::Ready(())
            })
            .await;
        }
        assert_eq!(log.fenced(), Some(FenceReason::CommitDropped));
    });
}

#[test]
fn a_torn_tail_is_cut_and_zeroed() {
    let mut bench = bench(4);
    let end = bench.reactor.block_on(async {
        let (_data, _env, log) = bench.open(LogConfig::default()).await;
        fill(&log, 5).await;
        log.status().bytes
    });
    bench.cut_power();
    // What an interrupted write could have left: the front of a batch.
    let mut bytes = bench.disk().contents(&segment(0)).unwrap();
    let torn = batch(1, 1_000, 9);
    bytes[end as usize..end as usize + 600].copy_from_slice(&torn[..600]);
    assert!(bench.disk().put(&segment(0), &bytes));
    bench.reactor.block_on(async {
        let (_data, _env, log) = bench.open(LogConfig::default()).await;
        assert_eq!(log.fenced(), None);
        assert_eq!(log.log_end(), Offset(5));
        let bytes = bench.disk().contents(&segment(0)).unwrap();
        assert!(bytes[end as usize..].iter().all(|b| *b == 0), "the torn tail is still there");
    });
}

/// Opens a log whose first segment has one flipped bit, and returns why it is fenced.
fn fenced_by_rot(seed: u64, at: u64, config: LogConfig, batches: u64) -> (Option<FenceReason>, Vec<u8>, Vec<u8>, i64) {
    let mut bench = bench(seed);
    bench.reactor.block_on(async {
        let (_data, env, log) = bench.open(config.clone()).await;
        fill(&log, batches).await;
        bench.reactor.sleep(Duration::from_secs(1)).await;
        env.flush_checkpoint().await.unwrap();
    });
    bench.cut_power();
    assert!(bench.disk().rot(&segment(0), at, 0x10));
    let before = bench.disk().contents(&segment(0)).unwrap();
    let (reason, end) = bench.reactor.block_on(async {
        let (_data, _env, log) = bench.open(config).await;
        if log.fenced().is_some() {
            assert!(matches!(
                append(&log, &batch(1, 10, 0)),
                Err(AppendError::Fenced(_) | AppendError::StaleEpoch { .. })
            ));
            // Up to the damage it can be read.
            let good = read_all(&log, Offset(0), 5_000).await;
            assert_eq!(offsets(&good).len() as i64, log.log_end().0);
        }
        (log.fenced(), log.log_end().0)
    });
    (reason, before, bench.disk().contents(&segment(0)).unwrap(), end)
}

#[test]
fn a_flipped_bit_before_a_sound_batch_fences_and_changes_nothing() {
    let (reason, before, after, end) = fenced_by_rot(5, 2_500, LogConfig::default(), 10);
    assert!(
        matches!(reason, Some(FenceReason::Rot { segment: Offset(0), offset: Offset(2), fault: Damage::Batch(_), .. })),
        "{reason:?}"
    );
    assert_eq!(end, 2);
    assert!(before == after, "the file was changed");
}

#[test]
fn a_flipped_bit_in_the_last_acknowledged_batch_is_taken_for_a_torn_write() {
    // Nothing behind it proves that it was whole once, and the recovery point has not come that far.
    let (reason, ..) = fenced_by_rot(6, 9_800, LogConfig::default(), 10);
    assert_eq!(reason, None);
}

#[test]
fn a_damaged_end_of_a_sealed_segment_fences_the_log() {
    let config = small_segments();
    // Somewhere in the last batch of the first segment.
    let (reason, before, after, end) = fenced_by_rot(7, 31_000, config, 100);
    assert!(matches!(reason, Some(FenceReason::Rot { segment: Offset(0), .. })), "{reason:?}");
    assert!(end < 31, "{end}");
    assert!(before == after, "the file was changed");
}

#[test]
fn a_missing_index_is_rebuilt() {
    let mut bench = bench(8);
    let expected = bench.reactor.block_on(async {
        let (_data, _env, log) = bench.open(small_segments()).await;
        fill(&log, 100).await;
        let all = read_all(&log, Offset(0), 3_000).await;
        log.close().await.unwrap();
        all
    });
    bench.cut_power();
    for suffix in ["index", "timeindex"] {
        let path = segment(0).with_extension(suffix);
        assert!(bench.disk().put(&path, b"nonsense, not an index"));
    }
    bench.reactor.block_on(async {
        let (_data, _env, log) = bench.open(small_segments()).await;
        assert_eq!(log.fenced(), None);
        assert!(read_all(&log, Offset(0), 3_000).await == expected, "the bytes differ");
        let found = log.offset_for_timestamp(Timestamp(1_000_000 + 17), Offset(100)).await.unwrap().unwrap();
        assert_eq!(found.offset, Offset(17));
    });
}

#[test]
fn offsets_are_found_by_time_hot_and_cold() {
    let mut bench = bench(9);
    let check = async |log: &Log| {
        for n in [0, 1, 42, 99] {
            let found = log.offset_for_timestamp(Timestamp(1_000_000 + n), Offset(100)).await.unwrap().unwrap();
            assert_eq!((found.timestamp, found.offset), (Timestamp(1_000_000 + n), Offset(n)));
        }
        assert_eq!(log.offset_for_timestamp(Timestamp(1_000_100), Offset(100)).await.unwrap(), None);
        // Below the limit only.
        assert_eq!(log.offset_for_timestamp(Timestamp(1_000_090), Offset(50)).await.unwrap(), None);
        let max = log.max_timestamp(Offset(100)).await.unwrap().unwrap();
        assert_eq!((max.timestamp, max.offset), (Timestamp(1_000_099), Offset(99)));
    };
    bench.reactor.block_on(async {
        let (_data, _env, log) = bench.open(small_segments()).await;
        fill(&log, 100).await;
        check(&log).await;
        log.close().await.unwrap();
    });
    bench.cut_power();
    bench.reactor.block_on(async {
        let (_data, env, log) = bench.open(small_segments()).await;
        check(&log).await;
        assert!(env.counters().reads_cold > 0);
    });
}

#[test]
fn a_busy_log_rolls_into_pre_written_spares() {
    let mut bench = bench(10);
    bench.reactor.block_on(async {
        let (_data, env, log) = bench.open(LogConfig::default()).await;
        lead(&log).await;
        for n in 0..600 {
            append(&log, &batch(1, 20_000, n)).unwrap();
            commit_all(&log).await;
            bench.reactor.sleep(Duration::from_millis(2)).await;
        }
        let counters = env.counters();
        assert!(counters.rolls_to_spare >= 2, "{counters:?} {:?}", env.spares().counters());
        // Only before the first spare was ready, and when a batch met the end of the room.
        assert!(counters.commits_growing < counters.commits / 4, "{counters:?}");
        assert!(env.spares().bytes_in_use() <= env.options().prewritten_bytes_max);
        log.close().await.unwrap();
    });
    bench.cut_power();
    bench.reactor.block_on(async {
        let (_data, _env, log) = bench.open(LogConfig::default()).await;
        assert_eq!(offsets(&read_all(&log, Offset(0), 1 << 20).await).len(), 600);
    });
}

#[test]
fn eviction_keeps_the_tail_within_its_budget() {
    let bench = bench(11);
    bench.reactor.block_on(async {
        let options = StorageOptions { tail_cache_bytes_max: 256 << 10, ..bench.options.clone() };
        let (_data, env, log) = bench.open_with(LogConfig::default(), options).await;
        lead(&log).await;
        for n in 0..300 {
            append(&log, &batch(1, 10_000, n)).unwrap();
            commit_all(&log).await;
            assert!(env.tail_bytes() <= 300 << 10, "{} bytes", env.tail_bytes());
        }
        assert!(env.counters().chunks_evicted > 0);
        assert_eq!(offsets(&read_all(&log, Offset(0), 100_000).await).len(), 300);
        assert!(env.counters().reads_cold > 0 && env.counters().reads_hot > 0, "{:?}", env.counters());
        drop(log);
        assert_eq!(env.tail_bytes(), 0);
    });
}

#[test]
fn back_pressure_comes_before_memory_runs_out() {
    let bench = bench(12);
    bench.reactor.block_on(async {
        let options = StorageOptions { pending_bytes_max: 100_000, ..bench.options.clone() };
        let (_data, _env, log) = bench.open_with(LogConfig::default(), options).await;
        lead(&log).await;
        let mut appended = 0;
        let refused = loop {
            match append(&log, &batch(1, 10_000, appended)) {
                Ok(_) => appended += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(refused, AppendError::Full { pending } if pending > 80_000), "{refused}");
        commit_all(&log).await;
        append(&log, &batch(1, 10_000, appended)).unwrap();
    });
}

#[test]
fn a_follower_keeps_the_leaders_offsets_and_epochs() {
    let bench = bench(13);
    bench.reactor.block_on(async {
        let (_data, env, leader) = bench.open(small_segments()).await;
        fill(&leader, 10).await;
        lead(&leader).await;
        append(&leader, &batch(3, 100, 77)).unwrap();
        commit_all(&leader).await;
        let bytes = read_all(&leader, Offset(0), 1 << 20).await;
        let topic_id = corelog_storage::ids::TopicId([8; 16]);
        let other = corelog_storage::log::LogName { topic: "copy".to_owned(), topic_id, ..name() };
        let follower = Log::create(&env, other, small_segments()).await.unwrap();
        let appended = follower.append_as_follower(&bytes, Timestamp(0)).unwrap().unwrap();
        assert_eq!((appended.base_offset, appended.last_offset), (Offset(0), Offset(12)));
        commit_all(&follower).await;
        assert!(read_all(&follower, Offset(0), 1 << 20).await == bytes, "the bytes differ");
        assert_eq!(follower.epoch_end_offset(LeaderEpoch(0)).end, Offset(10));
        // Again, or with a gap: refused.
        assert!(matches!(follower.append_as_follower(&bytes, Timestamp(0)), Err(AppendError::NotNext(_))));
    });
}

#[test]
fn a_deleted_log_leaves_nothing_behind() {
    let mut bench = bench(14);
    bench.reactor.block_on(async {
        let (_data, env, log) = bench.open(small_segments()).await;
        fill(&log, 50).await;
        log.delete().await.unwrap();
        assert!(matches!(append(&log, &batch(1, 1, 1)), Err(AppendError::Closed)));
        bench.reactor.sleep(Duration::from_secs(1)).await;
        let left = bench.disk().list(Path::new("/data"));
        assert!(left.iter().all(|p| !p.to_string_lossy().contains("orders")), "{left:?}");
        // The same name can be used again, by another topic.
        let again = corelog_storage::log::LogName { topic_id: corelog_storage::ids::TopicId([9; 16]), ..name() };
        let log = Log::create(&env, again, small_segments()).await.unwrap();
        assert_eq!(log.log_end(), Offset(0));
    });
    bench.cut_power();
    bench.reactor.block_on(async {
        let data = DataDir::open(&bench.reactor, Path::new("/data")).await.unwrap();
        let topics: Vec<_> = data.checkpoints().iter().map(|(key, _)| key.topic_id.0[0]).collect();
        assert_eq!(topics, [9], "one entry, of the log that is there");
    });
}

#[test]
fn records_without_partition_metadata_are_never_taken_for_an_unfinished_creation() {
    let mut bench = bench(31);
    bench.reactor.block_on(async {
        let (_data, _env, log) = bench.open(LogConfig::default()).await;
        fill(&log, 20).await;
        log.close().await.unwrap();
        bench.reactor.unlink(Path::new("/data/orders-0/partition.metadata")).await.unwrap();
        bench.reactor.sync_dir(Path::new("/data/orders-0")).await.unwrap();
    });
    bench.cut_power();
    bench.reactor.block_on(async {
        let (_data, env) = storage(&bench.reactor, Path::new("/data"), StorageOptions::default()).await;
        let refused = Log::open_or_create(&env, name(), LogConfig::default()).await.map(|_| ());
        assert!(matches!(refused, Err(OpenError::Unclaimed { .. })), "{refused:?}");
        let kept = bench.reactor.open(&segment(0), OpenHow::read()).await.unwrap();
        assert!(kept.len().unwrap() > 20 * 1_000, "the records are still there");
    });
}

#[test]
fn a_spare_that_was_taken_away_is_not_written_into() {
    let mut bench = bench(32);
    bench.reactor.block_on(async {
        let (_data, env, log) = bench.open(LogConfig::default()).await;
        lead(&log).await;
        for n in 0..600 {
            for spare in bench.reactor.list_dir(Path::new("/data/.spare")).unwrap_or_default() {
                let _ = bench.reactor.unlink(&Path::new("/data/.spare").join(spare.name)).await;
            }
            append(&log, &batch(1, 20_000, n)).unwrap();
            commit_all(&log).await;
            bench.reactor.sleep(Duration::from_millis(2)).await;
        }
        assert!(env.counters().rolls_to_spare > 0, "no spare was ever used: {:?}", env.counters());
    });
    bench.cut_power();
    bench.reactor.block_on(async {
        let (_data, _env, log) = bench.open(LogConfig::default()).await;
        assert_eq!(log.fenced(), None);
        assert_eq!(offsets(&read_all(&log, Offset(0), 1 << 20).await).len(), 600, "every acknowledged record is there");
    });
}

#[test]
fn records_whose_deletion_failed_are_there_after_a_restart() {
    let mut bench = bench(33);
    bench.reactor.block_on(async {
        let (_data, _env, log) = bench.open(LogConfig::default()).await;
        fill(&log, 10).await;
        bench.disk().eio_where(|op| op.path.to_string_lossy().contains("log-checkpoint"));
        assert!(log.delete_records(Offset(5)).await.is_err());
        assert_eq!(log.log_start(), Offset(0));
        bench.disk().clear_fault();
        // The checkpoint is written meanwhile.
        bench.reactor.sleep(Duration::from_secs(2)).await;
        assert_eq!(log.log_start(), Offset(0));
    });
    bench.cut_power();
    bench.reactor.block_on(async {
        let (_data, _env, log) = bench.open(LogConfig::default()).await;
        assert_eq!((log.log_start(), log.log_end()), (Offset(0), Offset(10)));
        log.delete_records(Offset(5)).await.expect("the same deletion, asked for again");
    });
    bench.cut_power();
    bench.reactor.block_on(async {
        let (_data, _env, log) = bench.open(LogConfig::default()).await;
        assert_eq!((log.log_start(), log.log_end()), (Offset(5), Offset(10)));
    });
}

#[test]
fn a_deletion_that_fails_takes_nothing_back_of_one_that_succeeds() {
    let mut bench = bench(34);
    bench.reactor.block_on(async {
        let (_data, _env, log) = bench.open(LogConfig::default()).await;
        fill(&log, 10).await;
        bench.reactor.sleep(Duration::from_secs(2)).await;
        let mut left = 1;
        bench.disk().eio_where(move |op| {
            let hit = left > 0 && op.kind == DiskOpKind::Sync && op.path.to_string_lossy().contains("log-checkpoint");
            left -= u32::from(hit);
            hit
        });
        let other = log.clone();
        let second = std::rc::Rc::new(std::cell::Cell::new(None));
        let out = second.clone();
        bench.reactor.spawn(async move { out.set(Some(other.delete_records(Offset(6)).await.is_ok())) }).unwrap();
        assert!(log.delete_records(Offset(3)).await.is_err());
        bench.reactor.sleep(Duration::from_secs(2)).await;
        assert_eq!((second.get(), log.log_start()), (Some(true), Offset(6)));
    });
    bench.cut_power();
    bench.reactor.block_on(async {
        let (_data, _env, log) = bench.open(LogConfig::default()).await;
        assert_eq!(log.log_start(), Offset(6), "a log start that was seen goes back");
    });
}
