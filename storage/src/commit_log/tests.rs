//! The commit log alone, on the simulated disk: what it says is durable is found again, in order, whatever happens.

use super::COMMIT_LOG_FOLDER;
use super::files::{FileId, Holder};
use super::format::{FIRST_WRITE, encode_file_header};
use super::replay::{DoneWith, EntryReader, Replay, put_away};
use super::writer::{CommitLog, Parts, Piece};
use crate::disk::checkpoint::{CheckpointEntry, CheckpointSet, LogKey};
use crate::disk::presence::Presence;
use crate::disk::reserve::Reserve;
use crate::ids::{Offset, PartitionIndex, TopicId};
use corelog_reactor::sim::{DiskOpKind, NodeId, SimWorld};
use corelog_reactor::{Reactor, ReactorLimits, ShardId};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};
use std::time::Duration;

pub(super) const DATA: &str = "/data";
pub(super) const FILE_BYTES: u64 = 128 << 10;
const LOGS: i32 = 5;

pub(super) fn key(partition: i32) -> LogKey {
    LogKey { topic_id: TopicId([3; 16]), partition: PartitionIndex(partition) }
}

fn checkpoints(replay_from: u64) -> CheckpointSet {
    let mut set = CheckpointSet::default();
    for partition in 0..LOGS {
        let entry = CheckpointEntry::starting_at("t".to_owned(), Offset::ZERO);
        set.set(key(partition), CheckpointEntry { replay_from, ..entry });
    }
    set
}

pub(super) fn reactor_of(world: &SimWorld, node: NodeId) -> Reactor {
    world.reactor(node, ReactorLimits { pool_bytes_max: 16 << 20, ..ReactorLimits::default() })
}

pub(super) fn run<T: 'static>(world: &SimWorld, reactor: &Reactor, future: impl Future<Output = T> + 'static) -> T {
    let slot: Rc<RefCell<Option<T>>> = Rc::default();
    let out = slot.clone();
    let task = async move {
        let value = future.await;
        out.borrow_mut().replace(value);
    };
    reactor.spawn(task).unwrap();
    world.run_until(|| slot.borrow().is_some()).unwrap();
    let value = slot.borrow_mut().take();
    value.unwrap()
}

pub(super) fn commit_log(reactor: &Reactor, replay: &Replay) -> CommitLog {
    CommitLog::new(Path::new(DATA), parts(reactor, replay))
}

pub(super) fn parts(reactor: &Reactor, replay: &Replay) -> Parts {
    Parts {
        reactor: reactor.clone(),
        shard: ShardId(2),
        direct: true,
        reserve: Reserve::new(Path::new(DATA), 0),
        presence: Presence::of(reactor, Path::new(DATA)),
        file_bytes: FILE_BYTES,
        file_batch_bytes: FILE_BYTES,
        files_max: 3,
        no_space_retry: Duration::from_millis(1),
        write_back_bytes: 16 << 10,
        break_durability_for_a_test: false,
        next_sequence: replay.next_sequence(),
        next_number: replay.next_number(),
    }
}

pub(super) fn read(world: &SimWorld, reactor: &Reactor, replay_from: u64) -> Replay {
    let on = reactor.clone();
    let read = async move { Replay::read(&on, Path::new(DATA), &checkpoints(replay_from)).await };
    run(world, reactor, read).unwrap()
}

fn byte_of(partition: i32, offset: i64) -> u8 {
    (partition as i64 * 31 + offset * 7) as u8 | 1
}

/// A log that puts one piece in after the other, and gives files back when asked.
pub(super) struct User {
    /// How often it was asked,
    pub(super) asked: Cell<u64>,
    /// and whether it could be.
    pub(super) looked_at: Cell<u64>,
    pub(super) log: CommitLog,
    partition: i32,
    /// Offsets that are durable.
    pub(super) acked: Cell<i64>,
    marks: RefCell<Vec<FileId>>,
    /// Bytes that its segment has not.
    pub(super) unwritten: Cell<usize>,
    /// How long its segment's write takes; `None`: it is fenced.
    takes: Option<Duration>,
    is_due: Cell<bool>,
    me: Weak<User>,
}

impl Holder for User {
    fn can_do_without(&self, file: FileId) -> bool {
        self.looked_at.set(self.looked_at.get() + 1);
        self.takes.is_some() && self.marks.borrow().contains(&file)
    }

    fn ask_write_back(&self) {
        let (Some(takes), Some(me)) = (self.takes, self.me.upgrade()) else { return };
        if self.is_due.replace(true) {
            return;
        }
        self.asked.set(self.asked.get() + 1);
        let reactor = self.log.0.reactor.clone();
        let write_back = async move {
            reactor.sleep(takes).await;
            me.is_due.set(false);
            me.unwritten.set(0);
            me.marks.take().into_iter().for_each(|file| me.log.release(file));
        };
        self.log.0.reactor.spawn(write_back).unwrap();
    }
}

impl User {
    pub(super) fn new(log: &CommitLog, partition: i32, acked: i64, is_stuck: bool) -> Rc<Self> {
        Self::that_takes(log, partition, acked, (!is_stuck).then_some(Duration::ZERO))
    }

    pub(super) fn that_takes(log: &CommitLog, partition: i32, acked: i64, takes: Option<Duration>) -> Rc<Self> {
        Rc::new_cyclic(|me| Self {
            asked: Cell::default(),
            looked_at: Cell::default(),
            log: log.clone(),
            partition,
            acked: Cell::new(acked),
            marks: RefCell::default(),
            unwritten: Cell::default(),
            takes,
            is_due: Cell::default(),
            me: me.clone(),
        })
    }

    /// One piece; whether it found a place and is durable.
    pub(super) async fn commit(self: &Rc<Self>, bytes: usize) -> Option<bool> {
        let start = self.acked.get();
        let piece = Piece {
            key: key(self.partition),
            segment: Offset::ZERO,
            position: start as u64 * 10,
            start: Offset(start),
            end: Offset(start + 1),
            bytes,
        };
        let ticket = self.log.stage(&piece, |out| out.fill(byte_of(self.partition, start)))?;
        if self.marks.borrow().last() != Some(&ticket.file()) {
            let me: Rc<dyn Holder> = self.clone();
            self.log.hold(ticket.file(), Rc::downgrade(&me));
            self.marks.borrow_mut().push(ticket.file());
        }
        self.unwritten.set(self.unwritten.get() + bytes);
        let is_durable = ticket.await.is_ok();
        if is_durable {
            self.acked.set(start + 1);
        }
        Some(is_durable)
    }

    pub(super) async fn commit_for_ever(self: Rc<Self>, reactor: Reactor) {
        let mut n = self.partition as u64;
        loop {
            n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if self.commit(1 + (n >> 40) as usize % 5_000).await.is_none() {
                reactor.sleep(Duration::from_micros(n >> 54)).await;
            }
        }
    }
}

/// The entries of a log must be a gapless run that reaches what was acknowledged.
async fn check(reactor: Reactor, replay: Rc<Replay>, partition: i32, acked: i64) -> i64 {
    let mut end = None;
    let mut sequence = 0;
    for entry in replay.entries(&key(partition)) {
        assert!(entry.sequence >= sequence);
        sequence = entry.sequence;
        if let Some(end) = end {
            assert_eq!(entry.start.0, end, "partition {partition}");
        }
        end = Some(entry.end.0);
        assert_eq!(entry.position, entry.start.0 as u64 * 10);
        let bytes = EntryReader::new(reactor.clone()).begin().read(&entry).await.unwrap();
        assert!(bytes.len() == entry.bytes as usize && bytes.iter().all(|b| *b == byte_of(partition, entry.start.0)));
    }
    let end = end.unwrap_or(0);
    assert!(end >= acked, "partition {partition}: {end} of {acked} acknowledged");
    end
}

pub(super) fn files(world: &SimWorld, node: NodeId) -> Vec<PathBuf> {
    world.disk(node).list(&Path::new(DATA).join(COMMIT_LOG_FOLDER))
}

pub(super) fn world(seed: u64) -> (SimWorld, NodeId) {
    let world = SimWorld::new(seed);
    let node = world.add_node();
    world.disk(node).mkdir_all(Path::new(DATA));
    (world, node)
}

/// One that never writes back holds the first file: then the others go on with the rest.
#[test]
fn what_is_durable_is_found_after_a_power_cut_also_when_files_are_used_again_and_again() {
    let mut recycles = 0;
    for seed in 0..200 {
        let (world, node) = world(seed);
        world.disk(node).set_short_per_mille((seed % 3) as u32 * 20);
        let reactor = reactor_of(&world, node);
        let replay = read(&world, &reactor, 0);
        let log = commit_log(&reactor, &replay);
        let users: Vec<Rc<User>> =
            (0..LOGS).map(|partition| User::new(&log, partition, 0, partition == 0 && seed % 2 == 0)).collect();
        for user in &users {
            reactor.spawn(user.clone().commit_for_ever(reactor.clone())).unwrap();
        }
        world.run_for(Duration::from_micros(500 + seed * 997));
        let acked: Vec<(i64, bool)> = users.iter().map(|u| (u.acked.get(), u.takes.is_none())).collect();
        recycles += log.counters().recycles;
        drop((users, log, replay));
        world.crash(node);
        let reactor = reactor_of(&world, node);
        let replay = Rc::new(read(&world, &reactor, 0));
        for (partition, (acked, _)) in (0..).zip(acked) {
            // Files were taken into use again with what was in the segments: only the end is certain.
            run(&world, &reactor, check(reactor.clone(), replay.clone(), partition, acked.min(0)));
            let end = replay.entries(&key(partition)).last().map(|e| e.end.0);
            assert!(end.is_none_or(|end| end >= acked), "seed {seed}, {partition}: {end:?} of {acked}");
        }
    }
    assert!(recycles > 200, "{recycles} files used again");
}

#[test]
fn without_recycling_everything_durable_is_there() {
    for seed in 0..100 {
        let (world, node) = world(seed);
        let reactor = reactor_of(&world, node);
        let replay = read(&world, &reactor, 0);
        let log = commit_log(&reactor, &replay);
        let users: Vec<Rc<User>> = (0..LOGS).map(|partition| User::new(&log, partition, 0, true)).collect();
        for user in &users {
            reactor.spawn(user.clone().commit_for_ever(reactor.clone())).unwrap();
        }
        world.run_for(Duration::from_micros(300 + seed * 300));
        let acked: Vec<i64> = users.iter().map(|u| u.acked.get()).collect();
        drop((users, log, replay));
        world.crash(node);
        let reactor = reactor_of(&world, node);
        let replay = Rc::new(read(&world, &reactor, 0));
        for (partition, acked) in (0..).zip(acked) {
            run(&world, &reactor, check(reactor.clone(), replay.clone(), partition, acked));
        }
        let before = files(&world, node).len();
        let mut gone = 0;
        for partition in 0..LOGS {
            gone += replay.settle(&key(partition)).len();
        }
        assert!(replay.is_done() && gone <= before);
    }
}

#[test]
fn a_failed_write_fails_all_behind_it_and_switches_the_commit_log_off() {
    let (world, node) = world(5);
    let reactor = reactor_of(&world, node);
    let log = commit_log(&reactor, &read(&world, &reactor, 0));
    let users: Vec<Rc<User>> = (0..LOGS).map(|partition| User::new(&log, partition, 0, false)).collect();
    for user in &users {
        reactor.spawn(user.clone().commit_for_ever(reactor.clone())).unwrap();
    }
    world.run_for(Duration::from_millis(20));
    assert!(users.iter().all(|u| u.acked.get() > 0));
    world.disk(node).eio_where(|op| op.kind == DiskOpKind::DurableWrite);
    world.run_for(Duration::from_millis(20));
    let acked: Vec<i64> = users.iter().map(|u| u.acked.get()).collect();
    world.disk(node).clear_fault();
    world.run_for(Duration::from_millis(20));
    assert_eq!(acked, users.iter().map(|u| u.acked.get()).collect::<Vec<_>>());
    let (own, user) = (reactor.clone(), users[1].clone());
    assert_eq!(run(&world, &own, async move { user.commit(10).await }), None);
    // Asked to write back what they had in there.
    assert!(users.iter().all(|u| u.marks.borrow().is_empty()));
}

#[test]
fn a_full_disk_means_no_place_and_it_is_tried_again_later() {
    let (world, node) = world(6);
    let reactor = reactor_of(&world, node);
    let log = commit_log(&reactor, &read(&world, &reactor, 0));
    world.disk(node).set_capacity(Some(64 << 10));
    let user = User::new(&log, 0, 0, false);
    reactor.spawn(user.clone().commit_for_ever(reactor.clone())).unwrap();
    world.run_for(Duration::from_millis(20));
    assert_eq!((user.acked.get(), log.counters().files), (0, 0));
    world.disk(node).set_capacity(None);
    world.run_for(Duration::from_millis(20));
    assert!(user.acked.get() > 0);
}

#[test]
fn commits_of_one_turn_go_in_one_write() {
    let (world, node) = world(7);
    let reactor = reactor_of(&world, node);
    let log = commit_log(&reactor, &read(&world, &reactor, 0));
    let users: Vec<Rc<User>> = (0..LOGS).map(|partition| User::new(&log, partition, 0, false)).collect();
    let (first, own) = (users[0].clone(), reactor.clone());
    // Until there is a file.
    run(&world, &reactor, async move {
        while first.commit(10).await.is_none() {
            own.sleep(Duration::from_millis(1)).await;
        }
    });
    let before = log.counters();
    for user in users {
        reactor.spawn(async move { assert_eq!(user.commit(700).await, Some(true)) }).unwrap();
    }
    world.run_for(Duration::from_millis(5));
    let after = log.counters();
    assert_eq!((after.commits - before.commits, after.writes - before.writes), (LOGS as u64, 1));
}

/// A file of three writes of two pieces each, of partitions 0 and 1.
fn three_writes(world: &SimWorld, node: NodeId) -> (PathBuf, Vec<u64>) {
    let reactor = reactor_of(world, node);
    let log = commit_log(&reactor, &read(world, &reactor, 0));
    let users: Vec<Rc<User>> = (0..2).map(|partition| User::new(&log, partition, 0, true)).collect();
    let own = reactor.clone();
    run(world, &reactor, async move {
        while users[0].acked.get() < 1 {
            if users[0].commit(10).await.is_none() {
                own.sleep(Duration::from_millis(1)).await;
            }
        }
        for _ in 0..3 {
            for user in &users {
                let user = user.clone();
                own.spawn(async move { assert_eq!(user.commit(10).await, Some(true)) }).unwrap();
            }
            own.sleep(Duration::from_millis(5)).await;
        }
    });
    drop(log);
    world.stop(&reactor);
    let path = files(world, node).first().cloned().unwrap();
    (path, (0..4).map(|n| FIRST_WRITE + n * 4_096).collect())
}

#[test]
fn a_damaged_header_hides_nothing() {
    let (world, node) = world(9);
    let (path, _) = three_writes(&world, node);
    assert!(world.disk(node).rot(&path, 9, 0x10));
    let reactor = reactor_of(&world, node);
    assert_eq!(read(&world, &reactor, 0).entries(&key(1)).len(), 3);
}

#[test]
fn what_an_earlier_use_of_the_file_left_does_not_count() {
    let (world, node) = world(10);
    let (path, _) = three_writes(&world, node);
    let mut bytes = world.disk(node).contents(&path).unwrap();
    bytes[..20].copy_from_slice(&encode_file_header(5));
    world.disk(node).put(&path, &bytes);
    let reactor = reactor_of(&world, node);
    let replay = read(&world, &reactor, 0);
    assert!(replay.is_done());
    assert_eq!(replay.next_sequence(), 5);
    assert!(files(&world, node).is_empty(), "a file without entries is removed");
}

#[test]
fn entries_before_the_floor_of_a_log_are_left_out() {
    let (world, node) = world(11);
    let (_, _) = three_writes(&world, node);
    let reactor = reactor_of(&world, node);
    assert_eq!(read(&world, &reactor, 3).entries(&key(0)).iter().map(|e| e.sequence).collect::<Vec<_>>(), [3, 4]);
    let replay = read(&world, &reactor, 99);
    assert!(replay.is_done() && replay.next_sequence() == 99);
    assert!(files(&world, node).is_empty());
}

/// The checkpoint may be lost.
#[test]
fn entries_of_a_log_that_no_checkpoint_knows_stay_until_somebody_says_that_it_is_gone() {
    let (world, node) = world(11);
    let (path, _) = three_writes(&world, node);
    let reactor = reactor_of(&world, node);
    let on = reactor.clone();
    let read = async move { Replay::read(&on, Path::new(DATA), &CheckpointSet::default()).await };
    let replay = run(&world, &reactor, read).unwrap();
    let mut logs = replay.logs();
    logs.sort_unstable();
    assert_eq!((logs, replay.entries(&key(0)).len()), (vec![key(0), key(1)], 4));
    assert_eq!(files(&world, node), std::slice::from_ref(&path));
    assert_eq!((replay.settle(&key(0)), replay.settle(&key(1))), (vec![], vec![DoneWith::of(path)]));
}

/// Whether it does is chance: so, many times.
#[test]
fn a_removed_file_that_comes_back_does_not_count_again() {
    for seed in 0..40 {
        let (world, node) = world(seed);
        let (path, _) = three_writes(&world, node);
        let reactor = reactor_of(&world, node);
        let replay = read(&world, &reactor, 0);
        let done = [replay.settle(&key(0)), replay.settle(&key(1))].concat();
        assert_eq!(done, [DoneWith::of(path)]);
        // Removed, but not durably.
        world.disk(node).eio_where(|op| op.kind == DiskOpKind::SyncFolder);
        let on = reactor.clone();
        let remove = async move { put_away(&on, &Path::new(DATA).join(COMMIT_LOG_FOLDER), done).await };
        run(&world, &reactor, remove);
        assert!(files(&world, node).is_empty());
        world.stop(&reactor);
        world.disk(node).clear_fault();
        // A start that doesn't see it gives out its sequences.
        let reactor = reactor_of(&world, node);
        assert_eq!(read(&world, &reactor, 0).next_sequence(), 1);
        world.crash(node);
        assert!(files(&world, node).is_empty(), "seed {seed}");
    }
}

#[test]
fn a_file_of_another_version_or_one_that_cannot_be_read_stops_the_start() {
    let (world, node) = world(12);
    let (path, _) = three_writes(&world, node);
    let reactor = reactor_of(&world, node);
    world.disk(node).eio_where(|op| op.kind == DiskOpKind::Read);
    let on = reactor.clone();
    let read = async move { Replay::read(&on, Path::new(DATA), &checkpoints(0)).await.map(drop) };
    let (at, error) = run(&world, &reactor, read).unwrap_err();
    assert_eq!((at, error.raw_os_error()), (path, Some(libc::EIO)));
}

#[test]
fn a_log_that_nobody_settles_keeps_its_files_alone() {
    let mut by_file = BTreeMap::new();
    let (world, node) = world(13);
    let (path, _) = three_writes(&world, node);
    let reactor = reactor_of(&world, node);
    let replay = read(&world, &reactor, 0);
    by_file.insert(0, replay.settle(&key(0)));
    by_file.insert(1, replay.settle(&key(1)));
    by_file.insert(2, replay.settle(&key(1)));
    assert_eq!(by_file.into_values().collect::<Vec<_>>(), [vec![], vec![DoneWith::of(path)], vec![]]);
}

#[test]
fn a_file_that_finds_no_memory_for_its_header_stays_in_the_rotation() {
    let (world, node) = world(14);
    let reactor = reactor_of(&world, node);
    let log = commit_log(&reactor, &read(&world, &reactor, 0));
    let user = User::new(&log, 0, 0, false);
    reactor.spawn(user.clone().commit_for_ever(reactor.clone())).unwrap();
    world.run_for(Duration::from_millis(300));
    assert!(log.counters().recycles > 0);
    let mut taken = Vec::new();
    while let Ok(buf) = reactor.pool().take(4_096) {
        taken.push(buf);
    }
    world.run_for(Duration::from_millis(300));
    let before = log.counters().recycles;
    drop(taken);
    world.run_for(Duration::from_millis(300));
    assert!(log.counters().recycles > before + 3, "{before}, then {}", log.counters().recycles);
    assert_eq!(log.counters().files, 3);
}
