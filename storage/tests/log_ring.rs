//! The log on the real ring: a temporary folder, direct I/O.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod log_common;

use corelog_storage::ids::{LeaderEpoch, Offset, ProducerId, TopicId};
use corelog_storage::log::{AppendError, Log, LogConfig, LogName, OpenError, ReadError, ReadOutcome, StorageOptions};
use log_common::*;

fn small_segments() -> LogConfig {
    LogConfig { segment_bytes_max: 256 << 10, ..LogConfig::default() }
}

fn folder() -> tempfile::TempDir {
    // Not /tmp, which may be memory: direct I/O is what is tested.
    tempfile::Builder::new().prefix("corelog-log-").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

#[test]
fn what_was_committed_is_there_after_a_clean_stop_and_nothing_is_scanned() {
    let folder = folder();
    let reactor = ring();
    let expected = reactor.block_on(async {
        let (_data, env) = storage(&reactor, folder.path(), StorageOptions::default()).await;
        let log = Log::create(&env, name(), small_segments()).await.unwrap();
        lead(&log).await;
        for n in 0..300 {
            append(&log, &batch(3, 500 + n * 7, n as u64)).unwrap();
            if n % 5 == 0 {
                commit_all(&log).await;
            }
        }
        let hot = read_all(&log, Offset(0), 10_000).await;
        log.close().await.unwrap();
        assert_eq!(log.durable_end(), Offset(900));
        assert!(log.status().segments > 2, "{:?}", log.status());
        hot
    });
    assert_eq!(offsets(&expected).len(), 300);
    reactor.block_on(async {
        let (_data, env) = storage(&reactor, folder.path(), StorageOptions::default()).await;
        let log = Log::open(&env, name(), small_segments()).await.unwrap();
        assert_eq!((log.log_end(), log.durable_end()), (Offset(900), Offset(900)));
        assert_eq!(log.epoch(), LeaderEpoch(0));
        assert!(read_all(&log, Offset(0), 10_000).await == expected, "the bytes differ");
        assert!(read_all(&log, Offset(0), 1 << 20).await == expected, "the bytes differ");
        // And it goes on.
        lead(&log).await;
        let next = append(&log, &batch(1, 10, 1)).unwrap();
        assert_eq!(next.base_offset, Offset(900));
        commit_all(&log).await;
        assert_eq!(offsets(&read_all(&log, Offset(890), 1 << 20).await).last(), Some(&(900, 900)));
    });
    reactor.shutdown();
}

#[test]
fn the_segment_being_written_is_at_hand_and_a_sealed_one_is_not() {
    let folder = folder();
    let reactor = ring();
    reactor.block_on(async {
        let (_data, env) = storage(&reactor, folder.path(), StorageOptions::default()).await;
        let log = Log::create(&env, name(), small_segments()).await.unwrap();
        lead(&log).await;
        for n in 0..300 {
            append(&log, &batch(3, 500 + n * 7, n as u64)).unwrap();
            commit_all(&log).await;
            assert!(reactor.counters().files_at_hand >= 1, "the segment of batch {n}");
        }
        assert!(log.status().segments > 2, "{:?}", log.status());
        log.close().await.unwrap();
        let left = reactor.counters().files_at_hand;
        assert!(left <= 1, "{left}: sealed segments should have given their places back");
    });
    reactor.shutdown();
}

/// Pages of a file that are in the page cache.
fn cached_pages(path: &std::path::Path) -> usize {
    let file = std::fs::File::open(path).unwrap();
    let (fd, len) = (std::os::fd::AsRawFd::as_raw_fd(&file), file.metadata().unwrap().len() as usize);
    // SAFETY: a fresh mapping of a file that is not changed meanwhile.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, libc::MAP_SHARED, fd, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    let mut pages = vec![0u8; len.div_ceil(4096)];
    // SAFETY: our own mapping, and a byte for each of its pages.
    assert_eq!(unsafe { libc::mincore(at, len, pages.as_mut_ptr()) }, 0);
    // SAFETY: our own mapping, used by nobody else.
    unsafe { libc::munmap(at, len) };
    pages.iter().filter(|page| **page & 1 == 1).count()
}

#[test]
fn finding_where_a_range_begins_and_ends_puts_no_page_into_the_way_of_the_kernels_reading_ahead() {
    let folder = folder();
    let reactor = ring();
    reactor.block_on(async {
        let options = StorageOptions { range_bytes_min: 4096, ..StorageOptions::default() };
        let (_data, env) = storage(&reactor, folder.path(), options).await;
        let log = Log::create(&env, name(), small_segments()).await.unwrap();
        lead(&log).await;
        for n in 0..300 {
            append(&log, &batch(3, 500 + n * 7, n as u64)).unwrap();
            commit_all(&log).await;
        }
        log.close().await.unwrap();
        drop(log);
        let log = Log::open(&env, name(), small_segments()).await.unwrap();
        let (mut files, mut ranges) = (std::collections::BTreeSet::new(), 0);
        for from in (0..600).step_by(20).map(Offset) {
            let ReadOutcome::Cold(plan) = log.read(from, log.log_end(), 30_000, true).unwrap() else { continue };
            let Some(range) = log.cold_range(&plan).await else { continue };
            ranges += 1;
            if files.insert(range.file.path().to_owned()) {
                // Whatever its writing has left there.
                let file = std::fs::File::open(range.file.path()).unwrap();
                file.sync_all().unwrap();
                // SAFETY: no pointers involved.
                unsafe { libc::posix_fadvise(std::os::fd::AsRawFd::as_raw_fd(&file), 0, 0, libc::POSIX_FADV_DONTNEED) };
            }
        }
        assert!(ranges > 10 && files.len() > 1, "{ranges} ranges of {files:?}");
        for path in files {
            assert_eq!(cached_pages(&path), 0, "{}", path.display());
        }
    });
    reactor.shutdown();
}

#[test]
fn what_was_committed_is_there_after_a_kill() {
    let folder = folder();
    let reactor = ring();
    let expected = reactor.block_on(async {
        let (_data, env) = storage(&reactor, folder.path(), StorageOptions::default()).await;
        let log = Log::create(&env, name(), small_segments()).await.unwrap();
        lead(&log).await;
        for n in 0..200 {
            append(&log, &batch(2, 1_000, n)).unwrap();
            commit_all(&log).await;
        }
        // Appended, never committed.
        append(&log, &batch(2, 1_000, 200)).unwrap();
        read_all(&log, Offset(0), 1 << 20).await
    });
    reactor.shutdown();
    let reactor = ring();
    reactor.block_on(async {
        let (_data, env) = storage(&reactor, folder.path(), StorageOptions::default()).await;
        let log = Log::open(&env, name(), small_segments()).await.unwrap();
        assert_eq!(log.log_end(), Offset(400));
        let found = read_all(&log, Offset(0), 1 << 20).await;
        assert!(expected.starts_with(&found), "the bytes differ");
        lead(&log).await;
        assert_eq!(append(&log, &batch(1, 10, 1)).unwrap().base_offset, Offset(400));
        commit_all(&log).await;
    });
    reactor.shutdown();
}

#[test]
fn a_log_of_another_topic_id_is_refused() {
    let folder = folder();
    let reactor = ring();
    reactor.block_on(async {
        let (_data, env) = storage(&reactor, folder.path(), StorageOptions::default()).await;
        let log = Log::create(&env, name(), LogConfig::default()).await.unwrap();
        drop(log);
        let other = LogName { topic_id: TopicId([8; 16]), ..name() };
        assert!(matches!(
            Log::open(&env, other.clone(), LogConfig::default()).await,
            Err(OpenError::TopicId { found: TopicId([7, ..]), .. })
        ));
        assert!(matches!(Log::create(&env, other, LogConfig::default()).await, Err(OpenError::TopicId { .. })));
        assert!(matches!(Log::create(&env, name(), LogConfig::default()).await, Err(OpenError::AlreadyExists { .. })));
        let missing = LogName { topic: "nothing".to_owned(), ..name() };
        assert!(matches!(Log::open(&env, missing, LogConfig::default()).await, Err(OpenError::NotFound { .. })));
    });
    reactor.shutdown();
}

#[test]
fn a_duplicate_is_recognised_and_says_where_the_original_is() {
    let folder = folder();
    let reactor = ring();
    reactor.block_on(async {
        let (_data, env) = storage(&reactor, folder.path(), StorageOptions::default()).await;
        let log = Log::create(&env, name(), LogConfig::default()).await.unwrap();
        lead(&log).await;
        append(&log, &producer_batch(3, 10, 1, 5, 0)).unwrap();
        let second = producer_batch(2, 10, 2, 5, 3);
        append(&log, &second).unwrap();
        let before = log.log_end();
        assert!(matches!(
            append(&log, &second),
            Err(AppendError::Duplicate { base_offset: Offset(3), last_offset: Offset(4), .. })
        ));
        assert!(matches!(append(&log, &producer_batch(1, 10, 3, 5, 9)), Err(AppendError::Producer(_))));
        assert_eq!(log.log_end(), before);
        assert_eq!(log.producers(|p| p.get(ProducerId(5)).map(|e| e.last_offset())), Some(Offset(4)));
        commit_all(&log).await;
        log.close().await.unwrap();
        let log = Log::open(&env, name(), LogConfig::default()).await.unwrap();
        lead(&log).await;
        assert!(matches!(append(&log, &second), Err(AppendError::Duplicate { base_offset: Offset(3), .. })));
    });
    reactor.shutdown();
}

#[test]
fn reads_outside_the_log_are_refused_and_never_pass_the_limit() {
    let folder = folder();
    let reactor = ring();
    reactor.block_on(async {
        let (_data, env) = storage(&reactor, folder.path(), StorageOptions::default()).await;
        let log = Log::create(&env, name(), LogConfig::default()).await.unwrap();
        lead(&log).await;
        for n in 0..50 {
            append(&log, &batch(10, 100, n)).unwrap();
        }
        assert!(matches!(
            log.read(Offset(501), Offset(500), 1_000, true),
            Err(ReadError::OutOfRange { log_end: Offset(500), .. })
        ));
        assert!(matches!(log.read(Offset(-1), Offset(500), 1_000, true), Err(ReadError::OutOfRange { .. })));
        use corelog_storage::log::ReadOutcome;
        assert!(matches!(log.read(Offset(500), Offset(500), 1_000, true), Ok(ReadOutcome::Empty)));
        // The batch 10..=19 contains the limit: it is not returned.
        let Ok(ReadOutcome::Hot(hot)) = log.read(Offset(5), Offset(15), 1 << 20, true) else { panic!("not hot") };
        assert_eq!(hot.next_offset, Offset(10));
        assert!(matches!(log.read(Offset(12), Offset(15), 1 << 20, true), Ok(ReadOutcome::Empty)));
        // Too small for one batch.
        assert!(matches!(log.read(Offset(0), Offset(500), 100, false), Ok(ReadOutcome::Empty)));
        let Ok(ReadOutcome::Hot(hot)) = log.read(Offset(0), Offset(500), 100, true) else { panic!("not hot") };
        assert_eq!(hot.next_offset, Offset(10));
        // The size of an answer is used up, but not passed.
        let one = hot.bytes;
        let Ok(ReadOutcome::Hot(hot)) = log.read(Offset(0), Offset(500), one * 20 + 5, true) else { panic!("not hot") };
        assert_eq!((hot.next_offset, hot.bytes), (Offset(200), one * 20));
    });
    reactor.shutdown();
}

#[test]
fn deleted_records_stay_deleted_and_their_segments_go() {
    let folder = folder();
    let reactor = ring();
    reactor.block_on(async {
        let (_data, env) = storage(&reactor, folder.path(), StorageOptions::default()).await;
        let log = Log::create(&env, name(), small_segments()).await.unwrap();
        lead(&log).await;
        for n in 0..200 {
            append(&log, &batch(1, 5_000, n)).unwrap();
            commit_all(&log).await;
        }
        // The keeper seals in the background.
        reactor.sleep(std::time::Duration::from_millis(300)).await;
        assert_eq!(log.delete_records(Offset(120)).await.unwrap(), Offset(120));
        assert_eq!(log.log_start(), Offset(120));
        assert_eq!(log.delete_records(Offset(10)).await.unwrap(), Offset(120));
        assert!(log.delete_records(Offset(201)).await.is_err());
        assert!(log.read(Offset(119), Offset(200), 1, true).is_err());
        reactor.sleep(std::time::Duration::from_millis(300)).await;
        assert!(!log.folder().join("00000000000000000000.log").exists());
        assert_eq!(offsets(&read_all(&log, Offset(120), 1 << 20).await).len(), 80);
    });
    reactor.shutdown();
    let reactor = ring();
    reactor.block_on(async {
        let (_data, env) = storage(&reactor, folder.path(), StorageOptions::default()).await;
        let log = Log::open(&env, name(), small_segments()).await.unwrap();
        assert_eq!((log.log_start(), log.log_end()), (Offset(120), Offset(200)));
    });
    reactor.shutdown();
}

#[test]
fn a_truncated_log_goes_on_at_the_cut() {
    let folder = folder();
    let reactor = ring();
    reactor.block_on(async {
        let (_data, env) = storage(&reactor, folder.path(), StorageOptions::default()).await;
        let log = Log::create(&env, name(), small_segments()).await.unwrap();
        lead(&log).await;
        for n in 0..200 {
            append(&log, &producer_batch(1, 5_000, n, 9, n as i32)).unwrap();
        }
        let all = read_all(&log, Offset(0), 1 << 20).await;
        // Within a sealed segment, with more behind it, partly not durable yet.
        assert_eq!(log.truncate_to(Offset(77)).await.unwrap(), Offset(77));
        assert_eq!((log.log_end(), log.durable_end()), (Offset(77), Offset(77)));
        assert_eq!(log.producers(|p| p.get(ProducerId(9)).map(|e| e.last_offset())), Some(Offset(76)));
        let kept = read_all(&log, Offset(0), 1 << 20).await;
        assert!(all.starts_with(&kept));
        assert_eq!(offsets(&kept).len(), 77);
        lead(&log).await;
        for n in 77..120 {
            append(&log, &producer_batch(1, 3_000, n + 1_000, 9, n as i32)).unwrap();
            commit_all(&log).await;
        }
        let again = read_all(&log, Offset(0), 1 << 20).await;
        assert!(again.starts_with(&kept));
        assert_eq!(offsets(&again).len(), 120);
        assert_eq!(log.epoch_end_offset(LeaderEpoch(0)).end, Offset(77));
    });
    reactor.shutdown();
    let reactor = ring();
    reactor.block_on(async {
        let (_data, env) = storage(&reactor, folder.path(), StorageOptions::default()).await;
        let log = Log::open(&env, name(), small_segments()).await.unwrap();
        assert_eq!(log.log_end(), Offset(120));
        assert_eq!(offsets(&read_all(&log, Offset(0), 1 << 20).await).len(), 120);
        assert_eq!(log.epoch_of(Offset(76)), Some(LeaderEpoch(0)));
        assert_eq!(log.epoch_of(Offset(77)), Some(LeaderEpoch(1)));
    });
    reactor.shutdown();
}

#[test]
fn a_truncation_believes_no_wrong_index() {
    let folder = folder();
    let reactor = ring();
    reactor.block_on(async {
        let (_data, env) = storage(&reactor, folder.path(), StorageOptions::default()).await;
        let log = Log::create(&env, name(), small_segments()).await.unwrap();
        lead(&log).await;
        for n in 0..200 {
            append(&log, &batch(1, 5_000, n)).unwrap();
            commit_all(&log).await;
        }
        let all = read_all(&log, Offset(0), 1 << 20).await;
        log.close().await.unwrap();
        // In a sealed segment each entry but the last gets the position of the next one: in order, and wrong.
        let path = log.folder().join("00000000000000000000.index");
        let sound = std::fs::read(&path).unwrap();
        let entries: Vec<&[u8]> = sound.chunks(8).collect();
        assert!(entries.len() > 4, "{}", entries.len());
        let wrong: Vec<u8> = entries.windows(2).flat_map(|two| [&two[0][..4], &two[1][4..]].concat()).collect();
        std::fs::write(&path, wrong).unwrap();
        let target = i64::from(u32::from_be_bytes(entries[2][..4].try_into().unwrap()));
        drop(log);

        let log = Log::open(&env, name(), small_segments()).await.unwrap();
        assert_eq!(log.truncate_to(Offset(target)).await.unwrap(), Offset(target));
        let kept = read_all(&log, Offset(0), 1 << 20).await;
        assert!(all.starts_with(&kept));
        assert_eq!(offsets(&kept).len() as i64, target);
    });
    reactor.shutdown();
}

#[test]
fn a_cold_read_of_records_deleted_since_its_plan_is_out_of_range_and_no_disk_failure() {
    let folder = folder();
    let reactor = ring();
    reactor.block_on(async {
        let (_data, env) = storage(&reactor, folder.path(), StorageOptions::default()).await;
        let log = Log::create(&env, name(), small_segments()).await.unwrap();
        lead(&log).await;
        for n in 0..300 {
            append(&log, &batch(3, 500 + n * 7, n as u64)).unwrap();
            commit_all(&log).await;
        }
        log.close().await.unwrap();
        drop(log);
        let log = Log::open(&env, name(), small_segments()).await.unwrap();
        let ReadOutcome::Cold(plan) = log.read(Offset(0), log.log_end(), 1 << 20, true).unwrap() else {
            panic!("a log that was just opened has its records on disk");
        };
        log.delete_records(Offset(600)).await.unwrap();
        let first = log.folder().join("00000000000000000000.log");
        while first.exists() {
            reactor.sleep(std::time::Duration::from_millis(1)).await;
        }
        let read = log.read_cold(plan).await;
        assert!(matches!(read, Err(ReadError::OutOfRange { log_start: Offset(600), .. })), "{read:?}");
    });
    reactor.shutdown();
}
