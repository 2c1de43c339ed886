//! Logs whose commit log, segment or checkpoint is not as it was left: what is lost is noticed, what is not is there.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod log_common;
mod log_many;
mod log_model;

use corelog_reactor::sim::{DiskFault, DiskOpKind, NodeId, SimWorld};
use corelog_reactor::{Reactor, ReactorLimits, ShardId};
use corelog_storage::disk::checkpoint::{CheckpointSet, LogKey};
use corelog_storage::disk::datadir::DataDir;
use corelog_storage::ids::Offset;
use corelog_storage::log::{
    CommitLogUse, Damage, FenceReason, Log, LogConfig, ReadOutcome, StorageEnv, StorageOptions,
};
use log_common::*;
use log_many::*;
use log_model::*;
use std::cell::RefCell;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Everything stays in the commit log.
fn kept() -> StorageOptions {
    StorageOptions {
        commit_log: CommitLogUse::Always,
        write_back_bytes: 1 << 20,
        commit_log_file_bytes: 1 << 20,
        commit_log_files_max: 2,
        commit_bytes_max: 4 << 20,
        tail_cache_bytes_max: 8 << 20,
        checkpoint_interval: Duration::from_millis(5),
        ..options(1)
    }
}

fn start(world: &SimWorld, node: NodeId, options: StorageOptions) -> Broker {
    Broker::start(world, node, 1, 1, options)
}

/// Appends and commits batches of one record to the first logs in turn, each in a write of its own. Returns what the logs
/// have then.
fn fill(world: &SimWorld, broker: &Broker, logs: usize, rounds: u64) -> Vec<Vec<u8>> {
    let (own, all) = (broker.reactor.clone(), broker.logs.clone());
    run(world, &broker.reactor, async move {
        let mut bytes = Vec::new();
        for log in &all[..logs] {
            lead(log).await;
        }
        for n in 0..rounds {
            for log in &all[..logs] {
                append(log, &batch(1, 100, n)).unwrap();
                log.commit().await.unwrap();
                own.sleep(Duration::from_millis(1)).await;
            }
        }
        for log in &all[..logs] {
            bytes.push(read_all(log, Offset(0), 1_000).await);
        }
        bytes
    })
}

fn contents(world: &SimWorld, broker: &Broker, number: usize) -> Vec<u8> {
    let log = broker.logs[number].clone();
    run(world, &broker.reactor, async move { read_all(&log, Offset(0), 1_000).await })
}

fn commit_logs(world: &SimWorld, node: NodeId) -> Vec<PathBuf> {
    world.disk(node).list(&Path::new(DATA).join(".commit"))
}

fn segment_of(folder: &str) -> PathBuf {
    Path::new(DATA).join(folder).join("00000000000000000000.log")
}

/// Where in its file the commit log has a write with this batch of the log.
fn place_of(world: &SimWorld, node: NodeId, path: &Path, batch: &[u8]) -> u64 {
    let bytes = world.disk(node).contents(path).unwrap();
    let at = bytes.windows(batch.len()).position(|w| w == batch);
    at.expect("the batch is in the commit log") as u64
}

/// The `nth` batch of what a log has.
fn nth(all: &[u8], nth: usize) -> &[u8] {
    let mut at = 0;
    for _ in 0..nth {
        at += bytes_at(all, at);
    }
    &all[at..at + bytes_at(all, at)]
}

fn bytes_at(all: &[u8], at: usize) -> usize {
    12 + u32::from_be_bytes(all[at + 8..at + 12].try_into().unwrap()) as usize
}

#[test]
fn a_log_whose_last_records_were_in_a_damaged_write_is_fenced_and_the_others_are_whole() {
    let world = SimWorld::new(1);
    let node = world.add_node();
    let broker = start(&world, node, kept());
    let all = fill(&world, &broker, 2, 30);
    // Three more for the second one alone.
    let log = broker.logs[1].clone();
    let more = run(&world, &broker.reactor, async move {
        for n in 100..103 {
            append(&log, &batch(1, 100, n)).unwrap();
            log.commit().await.unwrap();
        }
        read_all(&log, Offset(0), 1_000).await
    });
    drop(broker);
    world.crash(node);
    let path = commit_logs(&world, node)[0].clone();
    let at = place_of(&world, node, &path, nth(&all[0], 29));
    assert!(world.disk(node).rot(&path, at + 70, 1));
    for _ in 0..2 {
        let broker = start(&world, node, kept());
        // Nothing of the log comes behind it: only the write itself says that there was something.
        let reason = broker.logs[0].fenced();
        assert!(
            matches!(
                reason,
                Some(FenceReason::Rot { fault: Damage::Unapplied { found: Offset(29), expected: Offset(30) }, .. })
            ),
            "{reason:?}"
        );
        assert_eq!(contents(&world, &broker, 1), more);
        assert!(broker.logs[1].fenced().is_none());
        world.run_for(Duration::from_millis(50));
        let names: Vec<_> = commit_logs(&world, node).iter().map(|p| p.to_string_lossy().into_owned()).collect();
        assert!(names.iter().any(|name| name.contains("damaged")), "{names:?}");
        drop(broker);
        world.crash(node);
    }
}

#[test]
fn a_log_that_lacks_records_in_the_middle_is_fenced_where_the_damage_is() {
    let world = SimWorld::new(2);
    let node = world.add_node();
    let broker = start(&world, node, kept());
    let all = fill(&world, &broker, 2, 30);
    drop(broker);
    world.crash(node);
    let path = commit_logs(&world, node)[0].clone();
    let at = place_of(&world, node, &path, nth(&all[0], 20));
    assert!(world.disk(node).rot(&path, at + 70, 1));
    let broker = start(&world, node, kept());
    let reason = broker.logs[0].fenced();
    assert!(
        matches!(reason, Some(FenceReason::Rot { fault: Damage::Unapplied { found: Offset(20), .. }, .. })),
        "{reason:?}"
    );
    assert_eq!(contents(&world, &broker, 1), all[1], "what comes behind a damaged write is not lost");
}

#[test]
fn a_damaged_write_whose_records_are_in_the_segments_costs_nothing() {
    let world = SimWorld::new(3);
    let node = world.add_node();
    let options = || StorageOptions { write_back_bytes: 2 << 10, ..kept() };
    let broker = start(&world, node, options());
    let all = fill(&world, &broker, 2, 60);
    drop(broker);
    world.crash(node);
    let path = commit_logs(&world, node)[0].clone();
    let at = place_of(&world, node, &path, nth(&all[0], 20));
    assert!(world.disk(node).rot(&path, at + 70, 1));
    let broker = start(&world, node, options());
    for (number, all) in all.iter().enumerate() {
        assert!(broker.logs[number].fenced().is_none());
        assert_eq!(contents(&world, &broker, number), *all);
    }
    world.run_for(Duration::from_millis(50));
    let names: Vec<_> = commit_logs(&world, node).iter().map(|p| p.to_string_lossy().into_owned()).collect();
    assert!(names.iter().any(|name| name.contains("aside")), "{names:?}");
}

#[test]
fn bytes_that_the_segment_has_otherwise_than_the_commit_log_fence_the_log() {
    let world = SimWorld::new(4);
    let node = world.add_node();
    let options = || StorageOptions { write_back_bytes: 2 << 10, ..kept() };
    let broker = start(&world, node, options());
    let all = fill(&world, &broker, 2, 60);
    world.run_for(Duration::from_millis(50));
    drop(broker);
    world.crash(node);
    let path = segment_of("orders-0");
    let written = world.disk(node).contents(&path).unwrap();
    // The last batch that the segment has: its epoch is covered by no checksum, and nothing behind it shows that it is wrong.
    let mut last = 0;
    let mut next = 0;
    while written.get(next..next + 61).is_some_and(|b| b[..8] != [0; 8] || next == 0) && next < all[0].len() {
        last = next;
        next += bytes_at(&all[0], next);
    }
    assert!(last > 0);
    assert!(world.disk(node).rot(&path, last as u64 + 15, 2));
    let broker = start(&world, node, options());
    let reason = broker.logs[0].fenced();
    assert!(matches!(reason, Some(FenceReason::Rot { fault: Damage::Differs { .. }, .. })), "{reason:?}");
    assert!(broker.logs[1].fenced().is_none());
    assert_eq!(contents(&world, &broker, 1), all[1]);
}

#[test]
fn a_lost_checkpoint_loses_nothing_of_what_the_commit_log_has() {
    let world = SimWorld::new(5);
    let node = world.add_node();
    let broker = start(&world, node, kept());
    let all = fill(&world, &broker, 3, 30);
    let logged = broker.counters()[0].logged_commits;
    assert!(logged > 80, "{logged}");
    drop(broker);
    world.crash(node);
    for path in world.disk(node).list(Path::new(DATA)) {
        if path.file_name().unwrap().to_string_lossy().starts_with("log-checkpoint") {
            world.disk(node).put(&path, &CheckpointSet::default().encode());
        }
    }
    let broker = start(&world, node, kept());
    for (number, all) in all.iter().enumerate() {
        assert!(broker.logs[number].fenced().is_none());
        assert_eq!(contents(&world, &broker, number), *all);
    }
}

/// With nothing behind the cut, only the floor in the checkpoint says that what the commit log has does not count.
#[test]
fn what_was_cut_off_does_not_come_back_also_when_nothing_was_appended_since() {
    let world = SimWorld::new(11);
    let node = world.add_node();
    let broker = start(&world, node, kept());
    fill(&world, &broker, 1, 30);
    let log = broker.logs[0].clone();
    let end = run(&world, &broker.reactor, async move { log.truncate_to(Offset(20)).await.unwrap() });
    assert_eq!(end, Offset(20));
    drop(broker);
    world.crash(node);
    let broker = start(&world, node, kept());
    assert_eq!((broker.logs[0].fenced(), broker.logs[0].log_end()), (None, Offset(20)));
}

async fn env_of(reactor: Reactor, options: StorageOptions) -> (DataDir, StorageEnv) {
    let data = DataDir::open(&reactor, Path::new(DATA)).await.expect("a data folder");
    let env = StorageEnv::new(reactor.clone(), ShardId(0), data.share(), options);
    (data, env)
}

fn key_of(log: usize) -> LogKey {
    let name = name_of(log);
    LogKey { topic_id: name.topic_id, partition: name.partition }
}

#[test]
fn a_folder_that_is_set_aside_gets_what_the_commit_log_has_of_it() {
    let world = SimWorld::new(6);
    let node = world.add_node();
    let broker = start(&world, node, kept());
    let all = fill(&world, &broker, 2, 30);
    drop(broker);
    world.crash(node);
    assert!(!world.disk(node).contents(&segment_of("orders-0")).unwrap().starts_with(&all[0]));
    let reactor = world.reactor(node, ReactorLimits { pool_bytes_max: 64 << 20, ..ReactorLimits::default() });
    let own = reactor.clone();
    let (to, unsettled) = run(&world, &reactor, async move {
        let (_data, env) = env_of(own.clone(), kept()).await;
        let to = env.set_stray_aside("orders-0", key_of(0)).await.unwrap();
        let log = Log::open(&env, name_of(1), config(1)).await.unwrap();
        own.sleep(Duration::from_millis(50)).await;
        drop(log);
        (to, env.unsettled())
    });
    let segment = to.join("00000000000000000000.log");
    assert_eq!(world.disk(node).contents(&segment).unwrap(), all[0]);
    assert_eq!((unsettled, commit_logs(&world, node)), (vec![], Vec::<PathBuf>::new()));
}

#[test]
fn entries_of_logs_that_nobody_knows_keep_their_files_until_that_is_said() {
    let world = SimWorld::new(7);
    let node = world.add_node();
    let broker = start(&world, node, kept());
    fill(&world, &broker, 2, 10);
    drop(broker);
    world.crash(node);
    let reactor = world.reactor(node, ReactorLimits { pool_bytes_max: 64 << 20, ..ReactorLimits::default() });
    let own = reactor.clone();
    let disk = world.disk(node);
    run(&world, &reactor, async move {
        let (_data, env) = env_of(own.clone(), kept()).await;
        let log = Log::open(&env, name_of(1), config(1)).await.unwrap();
        own.sleep(Duration::from_millis(20)).await;
        let folder = Path::new(DATA).join(".commit");
        assert_eq!(disk.list(&folder).len(), 1);
        env.settle_unknown(|key| *key == key_of(0));
        own.sleep(Duration::from_millis(20)).await;
        assert_eq!((env.unsettled(), disk.list(&folder).len()), (vec![key_of(0)], 1));
        env.settle_unknown(|_| false);
        own.sleep(Duration::from_millis(20)).await;
        assert_eq!((env.unsettled(), disk.list(&folder).len()), (vec![], 0));
        drop(log);
    });
}

#[test]
fn what_the_commit_log_has_is_put_in_with_the_memory_that_reading_takes() {
    let world = SimWorld::new(8);
    let node = world.add_node();
    let options = || StorageOptions { commit_log_file_bytes: 4 << 20, first_room_bytes: 0, ..kept() };
    let reactor = world.reactor(node, ReactorLimits { pool_bytes_max: 64 << 20, ..ReactorLimits::default() });
    let own = reactor.clone();
    let (all, logged) = run(&world, &reactor, async move {
        let (_data, env) = env_of(own.clone(), options()).await;
        let log = Log::open_or_create(&env, name_of(0), LogConfig::default()).await.unwrap();
        lead(&log).await;
        for n in 0..13 {
            append(&log, &batch(1, if n == 0 { 100 } else { 60_000 }, n)).unwrap();
            log.commit().await.unwrap();
            own.sleep(Duration::from_millis(if n == 0 { 200 } else { 0 })).await;
        }
        (read_all(&log, Offset(0), 1_000).await, env.counters().logged_commits)
    });
    assert!(logged > 10, "{logged}");
    world.crash(node);
    // One piece of the reading, and a few blocks.
    let limits = ReactorLimits { pool_bytes_max: 560 << 10, ..ReactorLimits::default() };
    let reactor = world.reactor(node, limits);
    let own = reactor.clone();
    let end = run(&world, &reactor, async move {
        let (_data, env) = env_of(own, options()).await;
        let log = Log::open(&env, name_of(0), LogConfig::default()).await.expect("an open log");
        (log.fenced(), log.log_end())
    });
    assert_eq!(end, (None, Offset(13)));
    let written = world.disk(node).contents(&segment_of("orders-0")).unwrap();
    assert!(written.starts_with(&all));
}

/// Its turn was asked for while the reactor took no tasks.
#[test]
fn a_log_whose_write_back_could_not_be_begun_is_written_back_later() {
    let world = SimWorld::new(9);
    let node = world.add_node();
    let limits = ReactorLimits { pool_bytes_max: 64 << 20, tasks_max: 64, ..ReactorLimits::default() };
    let reactor = world.reactor(node, limits);
    let own = reactor.clone();
    let options = StorageOptions { write_back_bytes: 2 << 10, commit_log_file_bytes: 4 << 20, ..kept() };
    let written_back = run(&world, &reactor, async move {
        let (_data, env) = env_of(own.clone(), options).await;
        let log = Log::open_or_create(&env, name_of(0), config(1)).await.unwrap();
        lead(&log).await;
        let commit_some = async |from: u64| {
            for n in from..from + 40 {
                append(&log, &batch(1, 100, n)).unwrap();
                log.commit().await.unwrap();
            }
        };
        // Until the commit log is in use.
        while env.counters().logged_commits == 0 {
            append(&log, &batch(1, 100, 1)).unwrap();
            log.commit().await.unwrap();
            own.sleep(Duration::from_millis(1)).await;
        }
        own.sleep(Duration::from_millis(50)).await;
        let is_over = Rc::new(RefCell::new(false));
        loop {
            let (is_over, on) = (is_over.clone(), own.clone());
            let filler = async move {
                while !*is_over.borrow() {
                    on.sleep(Duration::from_millis(1)).await;
                }
            };
            if own.spawn(filler).is_err() {
                break;
            }
        }
        let before = env.counters().write_backs;
        commit_some(100).await;
        assert_eq!(env.counters().write_backs, before, "there was no task for it");
        *is_over.borrow_mut() = true;
        own.sleep(Duration::from_millis(50)).await;
        commit_some(200).await;
        own.sleep(Duration::from_millis(50)).await;
        env.counters().write_backs - before
    });
    assert!(written_back > 0);
}

/// A rolled segment whose file lacks its end for a moment: what the memory has of it is found all the same.
#[test]
fn the_end_of_a_rolled_segment_can_be_read_while_only_the_commit_log_has_it() {
    let world = SimWorld::new(10);
    let node = world.add_node();
    let reactor = world.reactor(node, ReactorLimits { pool_bytes_max: 64 << 20, ..ReactorLimits::default() });
    let own = reactor.clone();
    let disk = world.disk(node);
    let options = StorageOptions {
        write_back_bytes: 100 << 10,
        commit_log_file_bytes: 1 << 20,
        tail_cache_bytes_max: 128 << 10,
        first_room_bytes: 0,
        spare_bytes_max: 0,
        ..kept()
    };
    let config = LogConfig { segment_bytes_max: 128 << 10, index_interval_bytes: 1 << 20, ..LogConfig::default() };
    run(&world, &reactor, async move {
        let (_data, env) = env_of(own.clone(), options).await;
        let log = Log::open_or_create(&env, name_of(0), config.clone()).await.unwrap();
        let other = Log::open_or_create(&env, name_of(1), config).await.unwrap();
        lead(&log).await;
        lead(&other).await;
        // Until the commit log is in use, and not quite so much that it is due.
        let mut n = 0;
        while env.counters().logged_commits == 0 {
            append(&log, &batch(1, 100, n)).unwrap();
            log.commit().await.unwrap();
            own.sleep(Duration::from_millis(5)).await;
            n += 1;
        }
        let is_segment = |op: &corelog_reactor::sim::DiskOp| {
            op.kind == DiskOpKind::DurableWrite && op.path.starts_with(Path::new(DATA).join("orders-0"))
        };
        disk.set_fault(move |op| is_segment(op).then_some(DiskFault::Slow(Duration::from_millis(50))));
        let mut bytes = 0;
        while bytes < 100 << 10 {
            let more = batch(1, 4_000, n);
            append(&log, &more).unwrap();
            log.commit().await.unwrap();
            bytes += more.len();
            n += 1;
        }
        // Due now, and not begun. One more commit, on its way when the segment is rolled.
        let from = log.durable_end();
        append(&log, &batch(1, 1_000, n)).unwrap();
        {
            let mut commit = pin!(log.commit());
            let mut cx = Context::from_waker(Waker::noop());
            assert!(matches!(commit.as_mut().poll(&mut cx), Poll::Pending));
            append(&log, &batch(1, 30_000, n + 1)).unwrap();
            commit.await.unwrap();
        }
        assert!(log.durable_end() > from);
        let upper = log.durable_end();
        own.sleep(Duration::from_millis(60)).await;
        assert!(env.counters().write_backs > 0);
        // The memory is wanted for another log.
        for n in 0..40 {
            append(&other, &batch(1, 8_000, n)).unwrap();
            other.commit().await.unwrap();
        }
        let is_there = match log.read(from, upper, 10_000, true).unwrap() {
            ReadOutcome::Hot(hot) => hot.bytes > 0,
            ReadOutcome::Cold(plan) => log.read_cold(plan).await.unwrap().is_some(),
            ReadOutcome::Empty => false,
        };
        assert!(is_there, "nothing at {from}");
    });
}
