//! Retention: what goes by age and by size, in which steps, and what a crash between them leaves.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod log_common;
mod log_retention_bench;

use corelog_reactor::sim::{DiskFault, DiskOpKind, SimWorld};
use corelog_reactor::{OpenHow, ReactorLimits};
use corelog_storage::batch::{BatchBuilder, TargetCodec};
use corelog_storage::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};
use corelog_storage::log::{CommitLogUse, Log, LogConfig, ReadError, ReadOutcome, StorageOptions};
use log_common::*;
use log_retention_bench::*;
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

#[test]
fn segments_go_while_without_the_oldest_there_are_still_as_many_bytes_as_the_limit() {
    // Five full segments and one of two batches: 22 batches.
    for (batches_kept, start) in [(23, 0), (22, 0), (19, 0), (18, 4), (17, 4), (3, 16), (2, 20), (1, 20), (0, 22)] {
        let bench = hurried_bench(batches_kept);
        bench.reactor.block_on(async {
            let (_data, env, log) = bench.open(config()).await;
            fill(&log, seconds(22)).await;
            limits(&log, Some(batches_kept * BATCH_BYTES), None);
            let (over_size, expired) = retain(&log, i64::MAX).await;
            assert_eq!((log.log_start(), expired), (Offset(start), 0), "{batches_kept} batches kept");
            assert_eq!(over_size, (start as u64).div_ceil(PER_SEGMENT as u64));
            assert_eq!(env.counters().segments_over_size, over_size);
            let left = logs(&bench.files_in_the_end().await);
            assert_eq!(
                left,
                (start..=20).step_by(4).chain((start == 22).then_some(22)).filter(|b| *b >= start).collect::<Vec<_>>()
            );
            assert_eq!(log.status().bytes, (22 - start) as u64 * BATCH_BYTES, "the size that DescribeLogDirs tells");
            assert_eq!(env.counters().segments_removed, over_size);
        });
    }
}

#[test]
fn segments_go_from_the_oldest_on_as_long_as_their_newest_record_is_older_than_the_limit() {
    let bench = hurried_bench(1);
    bench.reactor.block_on(async {
        let (_data, env, log) = bench.open(config()).await;
        // The second segment has the newest record of the first three, in its middle.
        let times = [0, 1, 2, 3, 4, 50, 6, 7, 8, 9, 10, 11, 60, 61, 62, 63, 64];
        fill(&log, times.map(|s| THEN + s * 1_000)).await;
        limits(&log, None, Some(10_000));
        for (second, start) in [(0, 0), (13, 0), (14, 4), (30, 4), (60, 4), (61, 12), (73, 12), (74, 16)] {
            // Exactly as old as the limit is not older: one millisecond less than the next second.
            retain(&log, THEN + second * 1_000 - 1).await;
            assert_eq!(log.log_start(), Offset(start), "at second {second}");
        }
        assert_eq!(env.counters().segments_expired, 4);
        // Then the active segment, which takes a new one.
        assert_eq!(retain(&log, THEN + 74_000).await, (0, 0), "exactly as old as the limit");
        assert_eq!(retain(&log, THEN + 74_001).await, (0, 1));
        assert_eq!((log.log_start(), log.log_end()), (Offset(17), Offset(17)));
        assert_eq!(logs(&bench.files_in_the_end().await), [17]);
        // An empty one stays.
        assert_eq!(retain(&log, i64::MAX).await, (0, 0));
        append(&log, &one_record(THEN)).unwrap();
        commit_all(&log).await;
        assert_eq!(offsets(&read_all(&log, log.log_start(), 1_000).await), [(17, 17)]);
    });
}

#[test]
fn what_is_not_below_the_high_watermark_or_not_durable_stays() {
    let bench = hurried_bench(2);
    bench.reactor.block_on(async {
        let (_data, _env, log) = bench.open(config()).await;
        fill(&log, seconds(12)).await;
        limits(&log, Some(0), Some(0));
        for (upper, start) in [(0, 0), (3, 0), (4, 4), (7, 4), (8, 8), (11, 8)] {
            log.retain(Timestamp(i64::MAX), Offset(upper)).await.unwrap();
            assert_eq!(log.log_start(), Offset(start), "with a high watermark of {upper}");
        }
        append(&log, &one_record(THEN)).unwrap();
        log.retain(Timestamp(i64::MAX), log.log_end()).await.unwrap();
        assert_eq!((log.log_start(), log.durable_end(), log.log_end()), (Offset(12), Offset(12), Offset(13)));
        commit_all(&log).await;
        log.retain(Timestamp(i64::MAX), log.log_end()).await.unwrap();
        assert_eq!(log.log_start(), Offset(13));
    });
}

#[test]
fn without_limits_nothing_goes_but_what_lies_below_the_log_start() {
    let bench = hurried_bench(3);
    bench.reactor.block_on(async {
        let (_data, _env, log) = bench.open(config()).await;
        fill(&log, seconds(12)).await;
        assert_eq!(retain(&log, i64::MAX).await, (0, 0));
        log.delete_records(Offset(9)).await.unwrap();
        assert_eq!(retain(&log, i64::MAX).await, (0, 0));
        assert_eq!(log.log_start(), Offset(9));
        assert_eq!(logs(&bench.files_in_the_end().await), [8]);
    });
}

#[test]
fn a_log_that_has_lost_all_its_records_goes_on_where_it_was_after_a_restart() {
    for is_cut in [false, true] {
        let mut bench = hurried_bench(4);
        let producer = |sequence| {
            let ids = (ProducerId(9), ProducerEpoch(0), Sequence(sequence));
            let mut builder = BatchBuilder::new(TargetCodec::None).producer(ids.0, ids.1, ids.2);
            builder.append(Timestamp(THEN), None, Some(&[7; 100]), &[]);
            builder.build().unwrap()
        };
        bench.reactor.block_on(async {
            let (_data, _env, log) = bench.open(config()).await;
            fill(&log, seconds(7)).await;
            append(&log, &producer(0)).unwrap();
            commit_all(&log).await;
            lead(&log).await;
            limits(&log, None, Some(0));
            assert_eq!(retain(&log, i64::MAX).await, (0, 2));
            bench.reactor.sleep(Duration::from_secs(1)).await;
            let files = bench.files();
            let expected = ["00000000000000000008.log", "00000000000000000008.snapshot"];
            assert_eq!(files, [expected.as_slice(), &["leader-epoch-checkpoint", "partition.metadata"]].concat());
            if !is_cut {
                log.close().await.unwrap();
            }
        });
        bench.cut_power();
        bench.reactor.block_on(async {
            let (_data, _env, log) = bench.open(config()).await;
            assert_eq!((log.fenced(), log.log_start(), log.log_end()), (None, Offset(8), Offset(8)));
            assert_eq!(log.epoch(), LeaderEpoch(1), "the epoch that was begun");
            assert_eq!(log.epoch_of(Offset(8)), Some(LeaderEpoch(1)));
            assert!(log.producers(|p| p.get(ProducerId(9)).is_some()), "the producer is known as before");
            lead(&log).await;
            append(&log, &producer(1)).unwrap();
            commit_all(&log).await;
            assert_eq!(offsets(&read_all(&log, Offset(8), 1_000).await), [(8, 8)]);
        });
    }
}

#[test]
fn leader_epochs_start_where_the_log_starts() {
    let mut bench = hurried_bench(5);
    bench.reactor.block_on(async {
        let (_data, _env, log) = bench.open(config()).await;
        for _ in 0..3 {
            fill(&log, seconds(4)).await;
        }
        limits(&log, Some(5 * BATCH_BYTES), None);
        retain(&log, 0).await;
        assert_eq!(log.log_start(), Offset(4));
        assert_eq!(log.epoch_of(Offset(4)), Some(LeaderEpoch(1)));
        assert_eq!(log.epoch_end_offset(LeaderEpoch(0)).end, Offset(4), "no further back than the log start");
        bench.reactor.sleep(Duration::from_secs(1)).await;
        let file =
            bench.reactor.open(Path::new("/data/orders-0/leader-epoch-checkpoint"), OpenHow::read()).await.unwrap();
        let (read, bytes) = file.read_at(vec![0; 100], 0).await;
        assert_eq!(String::from_utf8_lossy(&bytes[..read.unwrap()]), "0\n2\n1 4\n2 8\n");
    });
    bench.cut_power();
    bench.reactor.block_on(async {
        let (_data, _env, log) = bench.open(config()).await;
        assert_eq!(log.epoch_of(Offset(4)), Some(LeaderEpoch(1)));
        assert_eq!(log.log_start(), Offset(4));
    });
}

/// What is expected in the end, whichever steps the crash left: no file of what lies below the log start.
fn is_clean(log: &Log, files: &[String]) -> Result<(), String> {
    let start = log.log_start().0;
    let (Some(first), rest) = (logs(files).first().copied(), files) else { return Err("no segment".to_owned()) };
    let second = logs(files).get(1).copied();
    if first > start || second.is_some_and(|second| second <= start) {
        return Err(format!("segments from {first} on, the log start at {start}"));
    }
    let number = |name: &str| name.split('.').next().and_then(|n| n.parse::<i64>().ok());
    let stray = rest.iter().find(|name| name.ends_with(".deleted") || number(name).is_some_and(|base| base < first));
    stray.map_or(Ok(()), |name| Err(format!("{name} is still there, the first segment is {first}")))
}

/// Crashes at every step of a retention in turn, until one is not reached any more.
fn crash_at_every_step(delay_ms: u64, commit_log: CommitLogUse, with_active: bool) -> u64 {
    let count = 11;
    for step in 0.. {
        let world = SimWorld::new(step);
        let node = world.add_node();
        let reactor = world.reactor(node, ReactorLimits { pool_bytes_max: 64 << 20, ..ReactorLimits::default() });
        let options = StorageOptions { commit_log, ..StorageOptions::default() };
        let config = LogConfig { file_delete_delay_ms: delay_ms, ..config() };
        let (filled, over) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
        let task = {
            let (own, config, options) = (reactor.clone(), config.clone(), options.clone());
            let (filled, over) = (filled.clone(), over.clone());
            async move {
                let (_data, _env, log) = open(&own, config, options).await;
                fill(&log, seconds(count)).await;
                filled.set(true);
                own.sleep(Duration::from_millis(50)).await;
                limits(&log, None, Some(if with_active { 0 } else { 5_000 }));
                retain(&log, THEN + 11_001).await;
                own.sleep(Duration::from_millis(delay_ms + 300)).await;
                over.set(true);
                std::future::pending::<()>().await;
            }
        };
        reactor.spawn(task).unwrap();
        world.run_until(|| filled.get()).unwrap();
        world.run_for(Duration::from_millis(40));
        let mut steps = 0;
        while steps < step && !over.get() {
            world.step();
            steps += 1;
        }
        let was_over = over.get();
        if step % 3 == 0 {
            world.stop(&reactor)
        } else {
            world.crash(node)
        }
        drop(reactor);

        let reader = start(&world, node);
        reader.block_on(async {
            let (_data, _env, log) = open(&reader, config, options).await;
            assert_eq!((log.fenced(), log.log_end()), (None, Offset(count)), "step {step}");
            let after = if with_active { count } else { 4 };
            let log_start = log.log_start().0;
            assert!(log_start == 0 || log_start == after, "step {step}: log start {log_start}");
            assert!(!was_over || log_start == after, "step {step}: it was over, and the log starts at {log_start}");
            let found = offsets(&read_all(&log, Offset(log_start), 3_000).await);
            assert_eq!(found, (log_start..count).map(|n| (n, n)).collect::<Vec<_>>(), "step {step}");
            // The same decision again, and the log goes on.
            lead(&log).await;
            limits(&log, None, Some(if with_active { 0 } else { 5_000 }));
            retain(&log, THEN + 11_001).await;
            append(&log, &one_record(THEN)).unwrap();
            commit_all(&log).await;
            assert_eq!((log.log_start(), log.log_end()), (Offset(after), Offset(count + 1)), "step {step}");
            reader.sleep(Duration::from_millis(delay_ms + 1_000)).await;
            if let Err(what) = is_clean(&log, &files(&reader)) {
                panic!("step {step}: {what}: {:?}", files(&reader));
            }
        });
        if was_over {
            return step;
        }
    }
    unreachable!("some step is the last");
}

#[test]
fn a_crash_at_any_step_leaves_the_log_as_it_was_or_as_it_is_to_be() {
    for with_active in [false, true] {
        for (delay_ms, commit_log) in [(0, CommitLogUse::Always), (20, CommitLogUse::Never)] {
            let steps = crash_at_every_step(delay_ms, commit_log, with_active);
            assert!(steps > 20, "{steps} steps are too few to show anything");
        }
    }
}

#[test]
fn files_are_set_aside_and_go_after_the_delay() {
    let mut bench = hurried_bench(6);
    let delayed = || LogConfig { file_delete_delay_ms: 60_000, ..config() };
    bench.reactor.block_on(async {
        let (_data, env, log) = bench.open(delayed()).await;
        fill(&log, seconds(10)).await;
        limits(&log, Some(2 * BATCH_BYTES), None);
        retain(&log, 0).await;
        bench.reactor.sleep(Duration::from_secs(1)).await;
        let files = bench.files();
        assert_eq!(logs(&files), [8]);
        for base in ["0".repeat(20), format!("{:020}", 4)] {
            for suffix in [".log", ".index", ".timeindex"] {
                assert!(files.contains(&format!("{base}{suffix}.deleted")), "{files:?}");
            }
        }
        bench.reactor.sleep(Duration::from_secs(58)).await;
        assert_eq!(bench.files(), files, "before the delay is over");
        assert_eq!(env.counters().segments_removed, 0);
        bench.reactor.sleep(Duration::from_secs(2)).await;
        assert_eq!(is_clean(&log, &bench.files()), Ok(()));
        assert_eq!((env.counters().segments_removed, env.counters().segment_bytes_removed), (2, 8 * BATCH_BYTES));
        limits(&log, Some(0), None);
        retain(&log, 0).await;
        bench.reactor.sleep(Duration::from_secs(1)).await;
        assert!(bench.files().iter().any(|name| name.ends_with(".deleted")));
    });
    bench.kill();
    bench.reactor.block_on(async {
        let (_data, _env, log) = bench.open(delayed()).await;
        assert_eq!(log.log_start(), Offset(10));
        bench.reactor.sleep(Duration::from_secs(1)).await;
        assert_eq!(is_clean(&log, &bench.files()), Ok(()), "a start waits for no delay");
    });
}

/// Kafka's compaction leaves such files beside a segment of the same name.
#[test]
fn a_file_that_an_earlier_run_has_set_aside_takes_no_segment_of_its_name_with_it() {
    let mut bench = hurried_bench(7);
    bench.reactor.block_on(async {
        let (_data, _env, log) = bench.open(config()).await;
        fill(&log, seconds(10)).await;
        log.close().await.unwrap();
        for suffix in [".log.deleted", ".txnindex.deleted"] {
            bench.reactor.open(&path(4, suffix), OpenHow::write().create()).await.unwrap();
        }
    });
    bench.kill();
    bench.reactor.block_on(async {
        let (_data, _env, log) = bench.open(config()).await;
        let files = bench.files_in_the_end().await;
        assert_eq!(logs(&files), [0, 4, 8]);
        assert_eq!(is_clean(&log, &files), Ok(()));
        assert_eq!(read_all(&log, Offset(0), 10_000).await.len() as u64, 10 * BATCH_BYTES);
    });
}

#[test]
fn reads_under_way_end_well_or_are_told_that_the_records_are_gone() {
    let mut bench = hurried_bench(8);
    bench.reactor.block_on(async {
        let (_data, _env, log) = bench.open(config()).await;
        fill(&log, seconds(10)).await;
        log.close().await.unwrap();
    });
    bench.kill();
    bench.reactor.block_on(async {
        let (_data, _env, log) = bench.open(config()).await;
        let plan = |from| match log.read(Offset(from), log.log_end(), 3_000, true) {
            Ok(ReadOutcome::Cold(plan)) => plan,
            other => panic!("{other:?}"),
        };
        let (before, late) = (plan(0), plan(5));
        let own = log.clone();
        let found = Rc::new(RefCell::new(None));
        let slot = Rc::clone(&found);
        bench.disk().set_fault(|op| (op.kind == DiskOpKind::Read).then_some(DiskFault::Slow(Duration::from_secs(1))));
        bench.reactor.spawn(async move { *slot.borrow_mut() = Some(own.read_cold(before).await) }).unwrap();
        bench.reactor.sleep(Duration::from_millis(1)).await;
        bench.disk().clear_fault();
        limits(&log, Some(2 * BATCH_BYTES), None);
        retain(&log, 0).await;
        bench.reactor.sleep(Duration::from_secs(3)).await;
        match found.borrow_mut().take() {
            Some(Ok(Some(read))) => assert_eq!(offsets(&read)[0], (0, 0)),
            Some(Err(ReadError::OutOfRange { .. })) => {}
            other => panic!("{other:?}"),
        }
        assert!(matches!(log.read_cold(late).await, Err(ReadError::OutOfRange { .. })));
        assert!(matches!(log.read(Offset(7), Offset(10), 1, true), Err(ReadError::OutOfRange { .. })));
        assert_eq!(is_clean(&log, &bench.files_in_the_end().await), Ok(()));
    });
}

#[test]
fn records_without_timestamps_are_as_old_as_their_file() {
    let bench = hurried_bench(9);
    bench.reactor.block_on(async {
        let (_data, _env, log) = bench.open(config()).await;
        let begun = bench.reactor.unix_ms().0;
        fill(&log, [-1; 6]).await;
        limits(&log, None, Some(60_000));
        retain(&log, begun + 59_000).await;
        assert_eq!(log.log_start(), Offset(0));
        retain(&log, bench.reactor.unix_ms().0 + 61_000).await;
        assert_eq!(log.log_start(), Offset(6));
    });
}

#[test]
fn a_time_index_that_has_rotted_makes_nothing_go_sooner() {
    let mut bench = hurried_bench(10);
    bench.reactor.block_on(async {
        let (_data, _env, log) = bench.open(config()).await;
        fill(&log, seconds(10)).await;
        log.close().await.unwrap();
        let index = bench.reactor.open(&path(0, ".timeindex"), OpenHow::write()).await.unwrap();
        let len = index.len().unwrap();
        assert_eq!(len % 12, 0);
        // Its last entry now says: a thousand milliseconds after 1970.
        index.truncate(0).await.unwrap();
        let mut entry = 1_000_i64.to_be_bytes().to_vec();
        entry.extend_from_slice(&3_u32.to_be_bytes());
        index.write_at(entry, 0, corelog_reactor::Durability::Dsync).await.0.unwrap();
    });
    bench.kill();
    bench.reactor.block_on(async {
        let (_data, _env, log) = bench.open(config()).await;
        limits(&log, None, Some(1_000));
        assert_eq!(retain(&log, THEN + 4_000).await, (0, 0), "the last record of the segment is a second old");
        assert_eq!(retain(&log, THEN + 4_001).await, (0, 1));
    });
}

#[test]
fn a_big_file_gets_shorter_step_by_step_while_commits_go_on() {
    let bench = hurried_bench(11);
    bench.reactor.block_on(async {
        let roomy = LogConfig { segment_bytes_max: 60 << 20, ..LogConfig::default() };
        let options = StorageOptions { spare_bytes_max: 0, ..StorageOptions::default() };
        let (_data, env, log) = open(&bench.reactor, roomy, options).await;
        lead(&log).await;
        for n in 0..70 {
            append(&log, &batch(1, 1_000_000, n)).unwrap();
            commit_all(&log).await;
        }
        bench.reactor.sleep(Duration::from_secs(1)).await;
        assert_eq!(log.status().segments, 2);
        let steps = Rc::new(Cell::new(0));
        let own = Rc::clone(&steps);
        bench.disk().set_fault(move |op| {
            own.set(own.get() + u32::from(op.kind == DiskOpKind::Truncate));
            None
        });
        limits(&log, Some(1 << 20), None);
        retain(&log, 0).await;
        let mut seen = Vec::new();
        while env.counters().segments_removed == 0 {
            append(&log, &batch(1, 100, 0)).unwrap();
            commit_all(&log).await;
            seen.push(steps.get());
            bench.reactor.sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(steps.get(), 3, "60 MB in steps of 16 MiB");
        seen.dedup();
        assert_eq!(seen, [0, 1, 2, 3], "commits between the steps");
    });
}

#[test]
fn on_a_full_disk_segments_go_at_once() {
    let bench = hurried_bench(12);
    bench.reactor.block_on(async {
        let delayed = LogConfig { file_delete_delay_ms: 3_600_000, ..config() };
        let (_data, env, log) = bench.open(delayed).await;
        fill(&log, seconds(10)).await;
        env.reserve().fill(&bench.reactor).await.unwrap();
        bench.reactor.sleep(Duration::from_millis(100)).await;
        bench.disk().set_capacity(Some(bench.disk().used_bytes()));
        let mut appended = 10;
        while !log.status().no_space {
            if append(&log, &one_record(THEN)).is_ok() {
                appended += 1;
            }
            let committing = log.clone();
            bench.reactor.spawn(async move { committing.commit().await.unwrap() }).unwrap();
            bench.reactor.sleep(Duration::from_millis(20)).await;
            assert!(appended < 40, "{:?}", log.status());
        }
        limits(&log, Some(BATCH_BYTES), None);
        retain(&log, 0).await;
        assert!(log.log_start() >= Offset(8), "{:?}", log.status());
        bench.reactor.sleep(Duration::from_millis(500)).await;
        append(&log, &one_record(THEN)).expect("an append once there is space");
        assert_eq!(log.fenced(), None);
    });
}

#[test]
fn a_log_that_is_deleted_while_its_segments_are_being_removed_leaves_its_successor_alone() {
    for seed in 0..60 {
        let bench = hurried_bench(seed);
        bench.reactor.block_on(async {
            let (_data, env, log) = bench.open(config()).await;
            fill(&log, seconds(30)).await;
            limits(&log, Some(0), None);
            retain(&log, 0).await;
            bench.reactor.sleep(Duration::from_micros(seed * 37)).await;
            log.delete().await.unwrap();
            drop(log);
            let again = Log::create(&env, name(), config()).await.unwrap();
            fill(&again, seconds(6)).await;
            bench.reactor.sleep(Duration::from_secs(2)).await;
            assert_eq!(logs(&bench.files()), [0, 4], "seed {seed}");
            assert_eq!(offsets(&read_all(&again, Offset(0), 10_000).await).len(), 6, "seed {seed}");
        });
    }
}

#[test]
fn a_segment_is_rolled_sooner_by_up_to_its_jitter() {
    let lasted = |jitter, seed| {
        let bench = hurried_bench(seed);
        bench.reactor.block_on(async {
            let config = LogConfig { segment_ms_max: 10_000, segment_jitter_ms_max: jitter, ..LogConfig::default() };
            let (_data, _env, log) = bench.open(config).await;
            fill(&log, (0..100).map(|n| THEN + n * 100)).await;
            fill(&log, [THEN + 10_001]).await;
            bench.reactor.sleep(Duration::from_secs(1)).await;
            logs(&bench.files()).get(1).copied().unwrap_or(0)
        })
    };
    assert_eq!(lasted(0, 1), 100, "without a jitter: behind ten seconds");
    let mut rolled: Vec<i64> = (0..20).map(|seed| lasted(5_000, seed)).collect();
    assert!(rolled.iter().all(|at| (50..=100).contains(at)), "{rolled:?}");
    rolled.sort_unstable();
    rolled.dedup();
    assert!(rolled.len() > 10, "not all at once: {rolled:?}");
    // Never longer than the time itself, however large it is.
    assert!((0..20).all(|seed| (1..=100).contains(&lasted(i64::MAX, seed))));
}

#[test]
fn a_segment_whose_index_is_full_is_rolled() {
    let (rising, alike) = (1_000, 0);
    // The first batch of a segment has no entry; the time index keeps a place for the last one.
    let cases = [(10 << 20, rising, 60), (12 * 20, rising, 20), (8 * 10, alike, 11), (4, alike, 1)];
    for (index_bytes_max, step, first_segment) in cases {
        let bench = hurried_bench(1);
        bench.reactor.block_on(async {
            let config = LogConfig { index_bytes_max, index_interval_bytes: 1, ..LogConfig::default() };
            let (_data, _env, log) = bench.open(config).await;
            fill(&log, (0..60).map(|n| THEN + n * step)).await;
            bench.reactor.sleep(Duration::from_secs(1)).await;
            let second = logs(&bench.files()).get(1).copied().unwrap_or(60);
            assert_eq!(second, first_segment, "with indexes of at most {index_bytes_max} bytes");
        });
    }
}
