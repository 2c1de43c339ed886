//! A log's folder and its entry in the checkpoint: made, lost, given up, deleted, and a crash between any two steps of that.
//!
//! Every crash is tried at every request that the disk gets, once as a kill and once as a power cut.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod log_common;

use corelog_reactor::sim::{NodeId, SimDisk, SimWorld};
use corelog_reactor::{OpenHow, Reactor, ReactorLimits, ShardId};
use corelog_storage::disk::checkpoint::LogKey;
use corelog_storage::disk::datadir::DataDir;
use corelog_storage::disk::files::write_synced;
use corelog_storage::ids::{Offset, PartitionIndex};
use corelog_storage::log::{Log, LogConfig, LogName, OpenError, StorageEnv, StorageOptions};
use log_common::*;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

const FOLDER: &str = "/data/orders-0";
/// More requests than anything here makes: the cut that comes after the end.
const CUTS_MAX: u64 = 2_000;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Cut {
    Kill,
    Power,
}

struct Bench {
    world: SimWorld,
    node: NodeId,
}

impl Bench {
    fn new(seed: u64) -> Self {
        let world = SimWorld::new(seed);
        let node = world.add_node();
        Self { world, node }
    }

    fn disk(&self) -> SimDisk {
        self.world.disk(self.node)
    }

    fn start(&self) -> Reactor {
        let limits = ReactorLimits { pool_bytes_max: 64 << 20, ..ReactorLimits::default() };
        self.world.reactor(self.node, limits)
    }

    /// Runs a future to its end, or until the disk has got `requests` more; then there is no value.
    fn run_until<T: 'static>(
        &self,
        reactor: &Reactor,
        requests: u64,
        future: impl Future<Output = T> + 'static,
    ) -> Option<T> {
        let slot: Rc<RefCell<Option<T>>> = Rc::default();
        let out = slot.clone();
        let task = async move {
            let value = future.await;
            out.borrow_mut().replace(value);
        };
        reactor.spawn(task).expect("a task");
        let last = self.disk().requests() + requests;
        self.world.run_until(|| slot.borrow().is_some() || self.disk().requests() >= last).expect("an end");
        slot.borrow_mut().take()
    }

    fn run<T: 'static>(&self, reactor: &Reactor, future: impl Future<Output = T> + 'static) -> T {
        self.run_until(reactor, u64::MAX / 2, future).expect("a value")
    }

    fn cut(&self, how: Cut, reactor: &Reactor) {
        match how {
            Cut::Kill => self.world.stop(reactor),
            Cut::Power => self.world.crash(self.node),
        }
    }
}

fn options() -> StorageOptions {
    StorageOptions { checkpoint_interval: Duration::from_millis(5), ..StorageOptions::default() }
}

async fn open(reactor: Reactor) -> (DataDir, StorageEnv, Result<Log, OpenError>) {
    let (data, env) = storage(&reactor, Path::new("/data"), options()).await;
    let log = Log::open_or_create(&env, name(), LogConfig::default()).await;
    (data, env, log)
}

async fn append_one(log: &Log) {
    lead(log).await;
    append(log, &batch(1, 100, 1)).expect("an append");
    commit_all(log).await;
}

/// Makes a log with one acknowledged record, in a life of its own.
fn make(bench: &Bench) {
    let reactor = bench.start();
    bench.run(&reactor, {
        let reactor = reactor.clone();
        async move {
            let (_data, _env, log) = open(reactor).await;
            append_one(&log.unwrap()).await;
        }
    });
    bench.world.crash(bench.node);
}

async fn rename(reactor: &Reactor, from: &str, to: &str) {
    reactor.rename(Path::new(from), Path::new(to)).await.unwrap();
    reactor.sync_dir(Path::new("/data")).await.unwrap();
}

fn key() -> LogKey {
    LogKey { topic_id: name().topic_id, partition: name().partition }
}

/// For every cut: `try_it` says whether its work was done before the cut came.
fn at_every_request(mut try_it: impl FnMut(Cut, u64) -> bool) {
    for how in [Cut::Kill, Cut::Power] {
        let last = (0..CUTS_MAX).find(|requests| try_it(how, *requests));
        let last = last.expect("an end of the work");
        assert!(last > 5, "the work of {last} requests was never interrupted");
    }
}

#[test]
fn a_creation_cut_at_any_request_raises_no_alarm_and_loses_no_record_afterwards() {
    at_every_request(|how, requests| {
        let bench = Bench::new(requests);
        let reactor = bench.start();
        let done = bench.run_until(&reactor, requests, open(reactor.clone())).is_some();
        bench.cut(how, &reactor);
        let reactor = bench.start();
        let own = reactor.clone();
        bench.run(&reactor, async move {
            let (_data, _env, log) = open(own).await;
            append_one(&log.expect("a log after an interrupted creation")).await;
        });
        bench.world.crash(bench.node);
        let reactor = bench.start();
        let (_data, _env, log) = bench.run(&reactor, open(reactor.clone()));
        let log = log.expect("a log after a power cut");
        assert_eq!((log.fenced(), log.log_end()), (None, Offset(1)), "{how:?} after {requests} requests");
        done
    });
}

#[test]
fn a_log_whose_folder_is_gone_is_not_made_anew_until_somebody_says_so() {
    let bench = Bench::new(1);
    make(&bench);
    let reactor = bench.start();
    let own = reactor.clone();
    bench.run(&reactor, async move {
        rename(&own, FOLDER, "/data/elsewhere").await;
        let (_data, env, log) = open(own.clone()).await;
        assert!(matches!(log, Err(OpenError::Lost { .. })), "{:?}", log.err());
        let other = LogName { partition: PartitionIndex(1), ..name() };
        append_one(&Log::open_or_create(&env, other, LogConfig::default()).await.unwrap()).await;
    });
    assert!(!bench.disk().list(Path::new("/data")).contains(&PathBuf::from(FOLDER)), "nothing was made");
    bench.world.crash(bench.node);

    // The folder comes back, as an empty mount point first.
    let reactor = bench.start();
    let own = reactor.clone();
    bench.run(&reactor, async move {
        own.mkdir(Path::new(FOLDER)).await.unwrap();
        let (_data, _env, log) = open(own.clone()).await;
        assert!(matches!(log, Err(OpenError::Lost { .. })), "{:?}", log.err());
        own.remove_dir(Path::new(FOLDER)).await.unwrap();
        rename(&own, "/data/elsewhere", FOLDER).await;
    });
    bench.world.crash(bench.node);
    let reactor = bench.start();
    let (data, env, log) = bench.run(&reactor, open(reactor.clone()));
    assert_eq!(log.unwrap().log_end(), Offset(1));
    drop((data, env));
    bench.world.crash(bench.node);

    // It is lost for good, and given up.
    let reactor = bench.start();
    let own = reactor.clone();
    bench.run(&reactor, async move {
        rename(&own, FOLDER, "/data/elsewhere").await;
        give_up(&own).await;
        let (_data, _env, log) = open(own.clone()).await;
        let log = log.expect("an empty log");
        assert_eq!((log.fenced(), log.log_end()), (None, Offset(0)));
        append_one(&log).await;
    });
    bench.world.crash(bench.node);

    // Its permission was for once.
    let reactor = bench.start();
    let own = reactor.clone();
    bench.run(&reactor, async move {
        let (_data, _env, log) = open(own.clone()).await;
        assert_eq!(log.unwrap().log_end(), Offset(1));
        rename(&own, FOLDER, "/data/elsewhere-too").await;
    });
    bench.world.crash(bench.node);
    let reactor = bench.start();
    let (_data, _env, log) = bench.run(&reactor, open(reactor.clone()));
    assert!(matches!(log, Err(OpenError::Lost { .. })), "{:?}", log.err());
}

async fn give_up(reactor: &Reactor) {
    reactor.mkdir(Path::new(FOLDER)).await.unwrap();
    write_synced(reactor, &Path::new(FOLDER).join("accept-loss"), Vec::new()).await.unwrap();
    reactor.sync_dir(Path::new(FOLDER)).await.unwrap();
    reactor.sync_dir(Path::new("/data")).await.unwrap();
}

#[test]
fn giving_a_lost_log_up_can_be_cut_at_any_request() {
    at_every_request(|how, requests| {
        let bench = Bench::new(requests);
        make(&bench);
        let reactor = bench.start();
        let own = reactor.clone();
        bench.run(&reactor, async move {
            rename(&own, FOLDER, "/data/elsewhere").await;
            give_up(&own).await;
        });
        let done = bench.run_until(&reactor, requests, open(reactor.clone())).is_some();
        bench.cut(how, &reactor);
        let reactor = bench.start();
        let own = reactor.clone();
        bench.run(&reactor, async move {
            let (_data, _env, log) = open(own).await;
            let log = log.unwrap_or_else(|error| panic!("{how:?} after {requests} requests: {error}"));
            assert_eq!((log.fenced(), log.log_end()), (None, Offset(0)), "{how:?} after {requests} requests");
            append_one(&log).await;
        });
        bench.world.crash(bench.node);
        let reactor = bench.start();
        let (_data, _env, log) = bench.run(&reactor, open(reactor.clone()));
        assert_eq!(log.unwrap().log_end(), Offset(1), "{how:?} after {requests} requests");
        done
    });
}

#[test]
fn a_deletion_cut_at_any_request_leaves_the_whole_log_or_nothing_of_it() {
    for in_the_life_of_its_creation in [true, false] {
        at_every_request(|how, requests| {
            let when = format!("{how:?} after {requests} requests");
            let bench = Bench::new(requests);
            if !in_the_life_of_its_creation {
                make(&bench);
            }
            let reactor = bench.start();
            let (data, env, log) = bench.run(&reactor, open(reactor.clone()));
            let log = log.unwrap();
            let own = log.clone();
            bench.run(&reactor, async move { append_one(&own).await });
            let end = log.log_end();
            let own = log.clone();
            let done = bench.run_until(&reactor, requests, async move { own.delete().await.unwrap() }).is_some();
            drop((data, env, log));
            bench.cut(how, &reactor);

            // A start that does not know the topic, and then one that looks whether the log is whole.
            let reactor = bench.start();
            let own = reactor.clone();
            let (is_known, has_folder) = bench.run(&reactor, async move {
                let (data, env) = storage(&own, Path::new("/data"), options()).await;
                let is_known = data.checkpoints().get(&key()).is_some();
                let has_folder = env.topic_of_folder("orders-0").await.unwrap().is_some();
                own.sleep(Duration::from_secs(1)).await;
                (is_known, has_folder)
            });
            assert_eq!(is_known, has_folder, "an entry without a folder, or a folder without an entry; {when}");
            assert!(!(done && has_folder), "the deleted log is there again; {when}");
            let left = bench.disk().list(Path::new("/data"));
            let deleted = left.iter().filter(|path| path.to_string_lossy().contains("-delete")).count();
            assert_eq!(deleted, 0, "what is deleted is removed; {when}: {left:?}");
            bench.world.crash(bench.node);
            let reactor = bench.start();
            let (_data, _env, log) = bench.run(&reactor, open(reactor.clone()));
            let log = log.unwrap_or_else(|error| panic!("{when}: {error}"));
            let expected = if is_known { end } else { Offset(0) };
            assert_eq!((log.fenced(), log.log_end()), (None, expected), "{when}");
            done
        });
    }
}

#[test]
fn a_log_that_could_not_be_opened_is_deleted_with_its_topic() {
    let bench = Bench::new(3);
    make(&bench);
    let reactor = bench.start();
    let own = reactor.clone();
    bench.run(&reactor, async move {
        rename(&own, FOLDER, "/data/elsewhere").await;
        let (_data, env, log) = open(own.clone()).await;
        assert!(log.is_err());
        env.delete_unopened(&name()).await.unwrap();
    });
    bench.world.crash(bench.node);
    let reactor = bench.start();
    let (data, _env, log) = bench.run(&reactor, open(reactor.clone()));
    assert!(data.checkpoints().is_empty(), "{:?}", data.checkpoints());
    assert_eq!(log.unwrap().log_end(), Offset(0));
}

#[test]
fn a_strays_folder_gets_another_name_and_keeps_its_records() {
    let bench = Bench::new(4);
    make(&bench);
    let reactor = bench.start();
    let own = reactor.clone();
    let now = bench.run(&reactor, async move {
        let (_data, env) = storage(&own, Path::new("/data"), options()).await;
        env.set_stray_aside("orders-0", key()).await.unwrap()
    });
    bench.world.crash(bench.node);
    assert!(now.to_string_lossy().ends_with("-stray"), "{now:?}");
    let reactor = bench.start();
    let own = reactor.clone();
    bench.run(&reactor, async move {
        // Its topic is known again: the folder gets its name back.
        rename(&own, &now.to_string_lossy(), FOLDER).await;
        let (_data, _env, log) = open(own.clone()).await;
        assert_eq!(log.unwrap().log_end(), Offset(1));
    });
}

#[test]
fn a_mark_of_deletion_never_touches_a_newer_topics_folder() {
    let bench = Bench::new(5);
    make(&bench);
    let reactor = bench.start();
    let own = reactor.clone();
    bench.run(&reactor, async move {
        let (_data, env) = storage(&own, Path::new("/data"), options()).await;
        let old = LogName { topic_id: corelog_storage::ids::TopicId([9; 16]), ..name() };
        env.mark_deleted(&old);
        env.flush_checkpoint().await.unwrap();
        own.open(&Path::new("/data").join("log-checkpoint.0"), OpenHow::read()).await.expect("the mark is on disk");
    });
    bench.world.crash(bench.node);
    let reactor = bench.start();
    let (data, env, log) = bench.run(&reactor, open(reactor.clone()));
    assert_eq!(log.unwrap().log_end(), Offset(1));
    assert_eq!(data.leftovers().iter().filter(|l| l.to_string_lossy().contains("orders")).count(), 0);
    // Whichever shard owns it next: its entry is there.
    let moved = StorageEnv::new(env.reactor().clone(), ShardId(1), data.share(), options());
    assert!(moved.checkpoints_at_start().get(&key()).is_some());
}

/// Simulated seed 95684: all durable records were deleted while the first ones behind them waited for space, and the broker ended.
/// The segments before them were gone, and theirs had no file yet: the log passed for lost.
#[test]
fn a_log_whose_records_are_all_deleted_before_the_next_segment_has_a_file_is_not_taken_for_lost() {
    let bench = Bench::new(1);
    let config = || LogConfig { segment_bytes_max: 32 << 10, ..LogConfig::default() };
    let reactor = bench.start();
    let own = reactor.clone();
    let end = bench.run(&reactor, async move {
        let (_data, env) = storage(&own, Path::new("/data"), options()).await;
        let log = Log::open_or_create(&env, name(), config()).await.unwrap();
        lead(&log).await;
        for seed in 0.. {
            append(&log, &batch(1, 1_000, seed)).unwrap();
            // The one that begins a segment waits.
            if env.counters().rolls_to_empty > 0 {
                break;
            }
            commit_all(&log).await;
        }
        own.sleep(Duration::from_millis(100)).await;
        let end = log.durable_end();
        assert_eq!(log.delete_records(end).await.unwrap(), end);
        own.sleep(Duration::from_millis(100)).await;
        end
    });
    assert_eq!(end, Offset(30));
    // A power cut may bring the removed file back, a kill doesn't.
    bench.cut(Cut::Kill, &reactor);

    let reactor = bench.start();
    let own = reactor.clone();
    bench.run(&reactor, async move {
        let (_data, env) = storage(&own, Path::new("/data"), options()).await;
        let log = Log::open(&env, name(), config()).await.unwrap();
        assert_eq!((log.fenced(), log.log_start(), log.log_end()), (None, end, end));
        for seed in 0..10 {
            lead(&log).await;
            append(&log, &batch(1, 1_000, seed)).unwrap();
            commit_all(&log).await;
        }
        own.sleep(Duration::from_millis(100)).await;
        let files = own.list_dir(Path::new(FOLDER)).unwrap();
        let is_old = files.iter().any(|file| file.name.to_str() == Some("00000000000000000000.log"));
        assert!(!is_old, "the segment of the deleted records goes once the next one has a file: {files:?}");
    });
}
