//! Two data folders of one shard: what is shared is shared, what is not is not, and a failure of one is told of that one.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod log_common;

use corelog_reactor::sim::{DiskFault, DiskOpKind, NodeId, SimDisk, SimWorld};
use corelog_reactor::{Reactor, ReactorLimits};
use corelog_storage::disk::datadir::DataDir;
use corelog_storage::ids::Offset;
use corelog_storage::log::{CommitLogUse, Log, LogConfig, LogName, StorageEnv, StorageOptions};
use log_common::*;
use std::path::Path;
use std::time::Duration;

struct Bench {
    world: SimWorld,
    node: NodeId,
    reactor: Reactor,
}

fn bench() -> Bench {
    let world = SimWorld::new(1);
    let node = world.add_node();
    let limits = ReactorLimits { pool_bytes_max: 64 << 20, ..ReactorLimits::default() };
    let reactor = Reactor::new(world.driver(node), limits);
    Bench { world, node, reactor }
}

impl Bench {
    fn disk(&self) -> SimDisk {
        self.world.disk(self.node)
    }

    async fn folders(&self, options: StorageOptions) -> ([DataDir; 2], StorageEnv, StorageEnv) {
        let options = StorageOptions { data_folders: 2, ..options };
        let (first, one) = storage(&self.reactor, Path::new("/one"), options.clone()).await;
        let second = DataDir::open(&self.reactor, Path::new("/two")).await.unwrap();
        let two = one.beside(second.share(), options);
        ([first, second], one, two)
    }
}

async fn log_in(env: &StorageEnv) -> Log {
    let config = LogConfig { segment_bytes_max: 100 << 10, ..LogConfig::default() };
    let log = Log::create(env, name(), config).await.unwrap();
    lead(&log).await;
    log
}

async fn fill(log: &Log, bytes: usize, seed: u64) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < bytes {
        append(log, &batch(1, 5_000, seed + all.len() as u64)).unwrap();
        commit_all(log).await;
        all = read_all(log, Offset(0), 1 << 20).await;
    }
    all
}

#[test]
fn logs_of_two_folders_share_the_memory_for_tails_and_the_places_for_open_segments_and_never_each_others_records() {
    let bench = bench();
    bench.reactor.block_on(async {
        const TAILS: usize = 128 << 10;
        let options = StorageOptions { tail_cache_bytes_max: TAILS, cold_segments_max: 2, ..StorageOptions::default() };
        let (_data, one, two) = bench.folders(options).await;
        // The same name, offsets and sizes in both: only the bytes differ.
        let (log_one, log_two) = (log_in(&one).await, log_in(&two).await);
        let in_one = fill(&log_one, 400 << 10, 1).await;
        let in_two = fill(&log_two, 400 << 10, 1_000_000_000).await;
        assert_ne!(in_one, in_two);
        assert_eq!(one.tail_bytes(), two.tail_bytes(), "one number for both");
        assert!(one.tail_bytes() <= TAILS, "{} bytes of tails, {TAILS} may be", one.tail_bytes());
        for _ in 0..2 {
            assert!(read_all(&log_one, Offset(0), 50 << 10).await == in_one, "the first folder's records");
            assert!(read_all(&log_two, Offset(0), 50 << 10).await == in_two, "the second folder's records");
        }
        log_one.close().await.unwrap();
        log_two.close().await.unwrap();
        drop((log_one, log_two));
        assert_eq!(one.tail_bytes(), 0, "given back by both");
    });
}

#[test]
fn a_failing_folder_fences_its_logs_alone_and_a_trial_tells_which_one_it_is() {
    let bench = bench();
    bench.reactor.block_on(async {
        let options = StorageOptions { commit_log: CommitLogUse::Always, ..StorageOptions::default() };
        let (_data, one, two) = bench.folders(options).await;
        let (log_one, log_two) = (log_in(&one).await, log_in(&two).await);
        fill(&log_one, 20 << 10, 1).await;
        fill(&log_two, 20 << 10, 2).await;
        bench.disk().set_fault(|op| op.path.starts_with("/two").then_some(DiskFault::Errno(libc::EIO)));
        append(&log_two, &batch(1, 100, 3)).unwrap();
        assert!(log_two.commit().await.is_err());
        let failures = two.until_failed(0).await;
        assert!(failures > 0 && log_two.fenced().is_some());
        assert!(two.try_folder().await.is_err(), "a trial of a folder that fails");
        assert!(one.try_folder().await.is_ok(), "a trial of the other one");
        fill(&log_one, 40 << 10, 1).await;
        assert_eq!((one.failures(), log_one.fenced()), (0, None));
        bench.disk().clear_fault();
        assert!(two.try_folder().await.is_ok(), "it is well again");
        let left: Vec<_> = ["/one", "/two"].map(|folder| bench.disk().list(Path::new(folder))).concat();
        assert!(!left.iter().any(|path| path.to_string_lossy().contains(".trial")), "{left:?}");
    });
}

#[test]
fn nothing_is_acknowledged_once_the_folder_has_another_file_system_and_another_folder_goes_on() {
    for commit_log in [CommitLogUse::Never, CommitLogUse::Always] {
        let bench = bench();
        bench.reactor.block_on(async {
            let (_data, one, two) =
                bench.folders(StorageOptions { commit_log, first_room_bytes: 0, ..StorageOptions::default() }).await;
            let (log_one, log_two) = (log_in(&one).await, log_in(&two).await);
            bench.disk().set_device(Path::new("/two"), 7);
            // More than the first segment's file holds, or the first that goes to the commit log.
            let mut refused = false;
            for n in 0..40 {
                append(&log_one, &batch(1, 5_000, n)).unwrap();
                commit_all(&log_one).await;
                if !refused {
                    append(&log_two, &batch(1, 5_000, n)).unwrap();
                    refused = log_two.commit().await.is_err();
                }
            }
            assert!(refused && log_two.fenced().is_some(), "{commit_log:?}: {:?}", log_two.status());
            assert!(log_two.durable_end() < log_two.log_end(), "{commit_log:?}: {:?}", log_two.status());
            assert!(two.try_folder().await.is_err(), "{commit_log:?}: a trial of it");
            assert!(two.flush_checkpoint().await.is_err(), "{commit_log:?}: its checkpoint");
            let config = LogConfig::default();
            let other = LogName { topic: "other".to_owned(), ..name() };
            assert!(Log::create(&two, other, config).await.is_err(), "{commit_log:?}: a new log in it");
            assert_eq!((log_one.durable_end(), one.failures()), (Offset(40), 0), "{commit_log:?}");
        });
    }
}

#[test]
fn a_folder_whose_mount_does_not_answer_holds_up_nobody_but_its_own_logs() {
    let bench = bench();
    bench.reactor.block_on(async {
        let options = StorageOptions { first_room_bytes: 0, ..StorageOptions::default() };
        let (_data, one, two) = bench.folders(options).await;
        let (log_one, log_two) = (log_in(&one).await, log_in(&two).await);
        const LONG: Duration = Duration::from_secs(3600);
        bench.disk().set_fault(|op| {
            (op.kind == DiskOpKind::Stat && op.path.starts_with("/two")).then_some(DiskFault::Slow(LONG))
        });
        for log in [&log_one, &log_two] {
            append(log, &batch(1, 100, 3)).unwrap();
        }
        let (own, began) = (log_two.clone(), bench.reactor.now());
        bench.reactor.spawn(async move { own.commit().await.unwrap() }).unwrap();
        commit_all(&log_one).await;
        assert!(bench.reactor.now().saturating_since(began) < Duration::from_secs(1));
        assert_eq!((log_one.durable_end(), log_two.durable_end()), (Offset(1), Offset(0)));
        bench.reactor.sleep(LONG).await;
        assert_eq!(log_two.durable_end(), Offset(1), "it has answered");
    });
}

#[test]
fn a_segment_that_cannot_be_opened_for_a_read_is_a_failure_of_its_folder() {
    let bench = bench();
    bench.reactor.block_on(async {
        let options = StorageOptions { tail_cache_bytes_max: 64 << 10, ..StorageOptions::default() };
        let (_data, one, two) = bench.folders(options).await;
        let log = log_in(&two).await;
        fill(&log, 400 << 10, 1).await;
        log.close().await.unwrap();
        drop(log);
        let log = Log::open(&two, name(), LogConfig::default()).await.unwrap();
        bench.disk().set_fault(|op| op.path.starts_with("/two").then_some(DiskFault::Errno(libc::EIO)));
        let corelog_storage::log::ReadOutcome::Cold(plan) = log.read(Offset(0), log.log_end(), 4_000, true).unwrap()
        else {
            panic!("it is in memory");
        };
        assert!(log.read_cold(plan).await.is_err());
        assert_eq!((one.failures(), two.failures() > 0), (0, true));
    });
}
