//! Ranges of sealed segments: what they hold is what a cold read brings, and they end when the file changes.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod log_common;

use corelog_reactor::sim::{DiskFault, DiskOpKind};
use corelog_storage::batch::HEADER_BYTES;
use corelog_storage::disk::datadir::DataDir;
use corelog_storage::ids::Offset;
use corelog_storage::log::{
    ColdPlan, ColdRange, Damage, Log, LogConfig, ReadError, ReadOutcome, StorageEnv, StorageOptions,
};
use corelog_storage::segment::scan::BatchFault;
use log_common::*;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

const RANGE_MIN: usize = 4096;

impl Bench {
    /// A log of several sealed segments of about 200 KiB, just opened: nothing of it is in memory.
    async fn cold_log(&self, value_bytes: impl Fn(u64) -> usize) -> (DataDir, StorageEnv, Log) {
        self.cold_log_with(value_bytes, StorageOptions { range_bytes_min: RANGE_MIN, ..StorageOptions::default() })
            .await
    }

    async fn cold_log_with(
        &self,
        value_bytes: impl Fn(u64) -> usize,
        options: StorageOptions,
    ) -> (DataDir, StorageEnv, Log) {
        let (data, env) = storage(&self.reactor, Path::new("/data"), options).await;
        let config = LogConfig { segment_bytes_max: 200 << 10, ..LogConfig::default() };
        let log = Log::create(&env, name(), config.clone()).await.unwrap();
        lead(&log).await;
        let (mut n, mut bytes) = (0, 0);
        while bytes < 700 << 10 {
            let batch = batch(1 + (n % 4) as i32, value_bytes(n), n);
            append(&log, &batch).unwrap();
            commit_all(&log).await;
            (n, bytes) = (n + 1, bytes + batch.len());
        }
        log.close().await.unwrap();
        drop(log);
        let log = Log::open(&env, name(), config).await.unwrap();
        (data, env, log)
    }

    fn bytes_of(&self, range: &ColdRange) -> Vec<u8> {
        let file = self.disk().contents(range.file.path()).unwrap();
        assert!(range.end <= range.file_end && range.file_end as usize <= file.len());
        file[range.start as usize..range.end as usize].to_vec()
    }
}

fn plan(log: &Log, from: Offset, upper: Offset, bytes_max: usize) -> Option<ColdPlan> {
    match log.read(from, upper, bytes_max, true).unwrap() {
        ReadOutcome::Cold(plan) => Some(plan),
        ReadOutcome::Hot(_) | ReadOutcome::Empty => None,
    }
}

fn index_of(range: &ColdRange) -> PathBuf {
    range.file.path().with_extension("index")
}

#[test]
fn a_range_holds_whole_batches_from_the_wanted_one_on_within_both_limits() {
    // Batches smaller and larger than an index interval, and a mix.
    let sizes: [fn(u64) -> usize; 3] = [|_| 100, |_| 9_000, |n| 50 + (n * n * 37 % 20_000) as usize];
    for (seed, size) in sizes.into_iter().enumerate() {
        let bench = bench(seed as u64);
        bench.reactor.block_on(async {
            let (_data, env, log) = bench.cold_log(size).await;
            let mut ranges = 0;
            let end = log.log_end();
            for from in (0..end.0).step_by(7).map(Offset) {
                for bytes_max in [5_000, 50_000, 1 << 20] {
                    for upper in [end, Offset((from.0 + end.0) / 2 + 1)] {
                        let Some(first) = plan(&log, from, upper, bytes_max) else { continue };
                        let Some(range) = log.cold_range(&first).await else { continue };
                        ranges += 1;
                        let what = format!("{from} below {upper}, {bytes_max} bytes: {range:?}");
                        let bytes = bench.bytes_of(&range);
                        assert_eq!(bytes.len(), range.bytes());
                        assert!((RANGE_MIN..=bytes_max).contains(&bytes.len()), "{what}");
                        let batches = offsets(&bytes);
                        assert!(batches[0].0 <= from.0 && from.0 <= batches[0].1, "{what}");
                        let last = batches.last().unwrap().1;
                        assert!(last < upper.0, "{what}");
                        assert_eq!(range.next_offset, Offset(last + 1), "{what}");
                        // The copying path brings the same. Where it ends depends on how it reads.
                        let again = plan(&log, from, upper, bytes_max).unwrap();
                        let copied = log.read_cold(again).await.unwrap().unwrap();
                        let both = copied.len().min(bytes.len());
                        assert!(copied[..both] == bytes[..both], "{what}: {} bytes copied", copied.len());
                    }
                }
            }
            assert!(ranges > 20, "{ranges} ranges of {end}");
            assert_eq!(env.counters().reads_ranged, ranges);
        });
    }
}

#[test]
fn a_reader_that_goes_on_gets_every_byte_once_and_reads_one_header_for_a_range() {
    let bench = bench(1);
    bench.reactor.block_on(async {
        let (_data, _env, log) = bench.cold_log(|n| 300 + (n % 3_000) as usize).await;
        let all = read_all(&log, Offset(0), 1 << 20).await;
        let (mut at, mut got, mut ranges) = (Offset(0), Vec::new(), 0);
        let before = bench.disk().requests();
        while let Some(plan) = plan(&log, at, log.log_end(), 30_000)
            && plan.is_sealed()
        {
            let range = log.cold_range(&plan).await;
            (at, ranges) = match range {
                Some(range) => {
                    got.extend(bench.bytes_of(&range));
                    (range.next_offset, ranges + 1)
                }
                // What is left of the segment is too little for a range.
                None => {
                    let read = log.read_cold(plan).await.unwrap().unwrap();
                    got.extend_from_slice(&read);
                    (read.next_offset, ranges)
                }
            };
        }
        assert!(all.starts_with(&got) && got.len() > 400 << 10, "{} of {} bytes", got.len(), all.len());
        let requests = bench.disk().requests() - before;
        // One each, and for each of the few segments: opening, the walk to its first batch, what was left of it.
        assert!(ranges > 15 && requests <= ranges + 3 * 8, "{requests} requests for {ranges} ranges");
    });
}

#[test]
fn a_header_that_lies_across_two_blocks_begins_and_ends_a_range_like_any_other() {
    let across = |position: u64| position % 4096 > 4096 - HEADER_BYTES as u64;
    let (mut starts, mut ends) = (0, 0);
    for (seed, size) in [180, 200, 217, 231, 260].into_iter().enumerate() {
        let bench = bench(seed as u64);
        bench.reactor.block_on(async {
            let (_data, _env, log) = bench.cold_log(|n| size + (n % 13) as usize).await;
            // All within the first segment.
            for from in (0..300).map(Offset) {
                for bytes_max in [20_000, 60_000, 110_000] {
                    let plan = plan(&log, from, log.log_end(), bytes_max).unwrap();
                    let range = log.cold_range(&plan).await.unwrap_or_else(|| panic!("{from}, {bytes_max}, {size}"));
                    starts += u32::from(across(range.start));
                    ends += u32::from(across(range.end));
                }
            }
        });
    }
    assert!(starts > 0 && ends > 0, "{starts} {ends}");
}

#[test]
fn no_range_is_given_of_what_may_still_be_written_or_is_too_little_or_where_writes_go_through_the_page_cache() {
    let bench = bench(2);
    bench.reactor.block_on(async {
        let (_data, _env, log) = bench.cold_log(|_| 1_000).await;
        let end = log.log_end();
        let last = plan(&log, Offset(end.0 - 1), end, 1 << 20).unwrap();
        assert!(!last.is_sealed());
        assert!(log.cold_range(&last).await.is_none());
        assert!(log.cold_range(&plan(&log, Offset(0), end, RANGE_MIN - 1).unwrap()).await.is_none());
    });
    let bench = self::bench(3);
    bench.reactor.block_on(async {
        let options = StorageOptions { range_bytes_min: RANGE_MIN, direct: false, ..StorageOptions::default() };
        let (_data, _env, log) = bench.cold_log_with(|_| 1_000, options).await;
        assert!(log.cold_range(&plan(&log, Offset(0), log.log_end(), 1 << 20).unwrap()).await.is_none());
    });
}

#[test]
fn a_false_index_gives_no_range_and_a_file_that_failed_a_reader_none_either() {
    let bench = bench(4);
    bench.reactor.block_on(async {
        let (_data, _env, log) = bench.cold_log(|_| 1_000).await;
        let from = Offset(50);
        let range = log.cold_range(&plan(&log, from, log.log_end(), 40_000).unwrap()).await.unwrap();
        range.file.fail();
        assert!(log.cold_range(&plan(&log, from, log.log_end(), 40_000).unwrap()).await.is_none());
        let read = log.read_cold(plan(&log, from, log.log_end(), 40_000).unwrap()).await.unwrap().unwrap();
        assert!(read.starts_with(&bench.bytes_of(&range)));

        // Each entry but the last gets the position of the next one: in order, and wrong.
        let path = index_of(&range);
        log.close().await.unwrap();
        drop((log, range, read));
        let sound = bench.disk().contents(&path).unwrap();
        let entries: Vec<&[u8]> = sound.chunks(8).collect();
        let wrong: Vec<u8> = entries.windows(2).flat_map(|two| [&two[0][..4], &two[1][4..]].concat()).collect();
        assert!(bench.disk().put(&path, &wrong));
        let (_data, env) = {
            drop((_data, _env));
            storage(
                &bench.reactor,
                Path::new("/data"),
                StorageOptions { range_bytes_min: RANGE_MIN, ..StorageOptions::default() },
            )
            .await
        };
        let log = Log::open(&env, name(), LogConfig::default()).await.unwrap();
        assert!(log.cold_range(&plan(&log, from, log.log_end(), 40_000).unwrap()).await.is_none());
        let read = log.read_cold(plan(&log, from, log.log_end(), 40_000).unwrap()).await.unwrap().unwrap();
        assert!(offsets(&read)[0].0 <= from.0 && offsets(&read)[0].1 >= from.0);
    });
}

#[test]
fn whoever_still_sends_from_a_segment_is_told_before_it_is_cut_or_removed_and_not_when_its_log_is_closed() {
    type Change = fn(&Log) -> std::pin::Pin<Box<dyn Future<Output = ()> + '_>>;
    let changes: [(&str, bool, Change); 4] = [
        ("truncated", true, |log| Box::pin(async { log.truncate_to(Offset(20)).await.map(drop).unwrap() })),
        ("deleted", true, |log| Box::pin(async { log.delete_records(log.log_end()).await.map(drop).unwrap() })),
        ("deleted with its log", true, |log| Box::pin(async { log.delete().await.unwrap() })),
        ("closed", false, |log| Box::pin(async { log.close().await.unwrap() })),
    ];
    for (nth, (what, expected, change)) in changes.into_iter().enumerate() {
        let bench = bench(10 + nth as u64);
        bench.reactor.block_on(async {
            // One open segment: those that readers have are not found among the open ones any more.
            let options =
                StorageOptions { range_bytes_min: RANGE_MIN, cold_segments_max: 1, ..StorageOptions::default() };
            let (_data, _env, log) = bench.cold_log_with(|_| 1_000, options).await;
            let first = log.cold_range(&plan(&log, Offset(0), log.log_end(), 40_000).unwrap()).await.unwrap();
            let second = log.cold_range(&plan(&log, Offset(100), log.log_end(), 40_000).unwrap()).await.unwrap();
            change(&log).await;
            // A deleted segment's file goes later: until then its readers may go on.
            for _ in 0..600 {
                if !expected || first.file.is_revoked() {
                    break;
                }
                bench.reactor.sleep(Duration::from_secs(1)).await;
            }
            assert_eq!(first.file.is_revoked(), expected, "{what}");
            drop(log);
            assert_eq!(first.file.is_revoked(), expected, "{what}");
            drop(second);
        });
    }
}

#[test]
fn a_segment_that_made_room_for_another_one_is_removed_when_its_last_reader_has_ended_and_not_before() {
    let bench = bench(6);
    bench.reactor.block_on(async {
        let options = StorageOptions { cold_segments_max: 1, ..StorageOptions::default() };
        let (_data, _env, log) = bench.cold_log_with(|_| 1_000, options).await;
        log.set_config(LogConfig { file_delete_delay_ms: 0, ..log.config() });
        let path = log.folder().join("00000000000000000000.log");
        let whole = bench.disk().contents(&path).unwrap();
        let slow = path.clone();
        bench.disk().set_fault(move |op| {
            let is_it = op.kind == DiskOpKind::Read && op.path == slow;
            is_it.then_some(DiskFault::Slow(Duration::from_secs(10)))
        });
        let read: Rc<RefCell<Option<Vec<u8>>>> = Rc::default();
        let (own, slot) = (log.clone(), Rc::clone(&read));
        let task = async move {
            let cold = own.read_cold(plan(&own, Offset(0), own.log_end(), 40_000).unwrap()).await;
            slot.borrow_mut().replace(cold.unwrap().unwrap().to_vec());
        };
        bench.reactor.spawn(task).unwrap();
        bench.reactor.sleep(Duration::from_secs(1)).await;
        // Another segment takes the only place.
        let last = plan(&log, Offset(300), log.log_end(), 40_000).unwrap();
        assert!(last.is_sealed());
        log.read_cold(last).await.unwrap().unwrap();
        log.delete_records(log.log_end()).await.unwrap();
        bench.reactor.sleep(Duration::from_secs(5)).await;
        assert_eq!(*read.borrow(), None, "it is still read");
        assert!(bench.disk().contents(&path).as_ref() == Some(&whole), "and whole");
        bench.reactor.sleep(Duration::from_secs(10)).await;
        let got = read.take().expect("an end");
        assert!(got.len() > 30_000 && whole.starts_with(&got), "{} bytes", got.len());
        assert_eq!(bench.disk().contents(&path), None, "nobody reads it any more");
    });
}

#[test]
fn a_checked_read_ends_before_a_damaged_batch_and_fails_at_it() {
    let bench = bench(5);
    bench.reactor.block_on(async {
        let (_data, _env, log) = bench.cold_log(|_| 1_000).await;
        let whole = || plan(&log, Offset(0), log.log_end(), 60_000).unwrap();
        let sound = log.read_cold(whole()).await.unwrap().unwrap().checked(Offset(0)).unwrap();
        let batches = offsets(&sound);
        assert!(batches.len() > 6);
        // A bit within the records of the fifth.
        let before: usize =
            corelog_storage::batch::Batches::new(&sound).take(4).map(|b| b.unwrap().header.total_bytes()).sum();
        let file = log.folder().join("00000000000000000000.log");
        assert!(bench.disk().rot(&file, before as u64 + 100, 1));

        let unchecked = log.read_cold(whole()).await.unwrap().unwrap();
        assert_eq!(unchecked.len(), sound.len(), "unchecked, damage is served, as in Kafka");
        let checked = unchecked.checked(Offset(0)).unwrap();
        assert_eq!((checked.len(), checked.next_offset), (before, Offset(batches[4].0)));
        let next =
            log.read_cold(plan(&log, checked.next_offset, log.log_end(), 60_000).unwrap()).await.unwrap().unwrap();
        let error = next.checked(Offset(0)).unwrap_err();
        let ReadError::Damaged { position, fault: Damage::Batch(BatchFault::Crc { .. }), .. } = error else {
            panic!("{error}");
        };
        assert_eq!(position, before as u64);
    });
}
