//! The index of aborted transactions of a log, on the simulated disk: whatever the log goes through, and wherever the power
//! is cut, it says what was aborted, and nothing else.
//!
//! Run one seed with `CORELOG_SEED=n`, more of them with `CORELOG_SEEDS=n`, from `CORELOG_SEED_FIRST=n` on.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod log_common;
mod log_model;
mod log_txn;

use corelog_reactor::sim::{NodeId, SimDisk, SimWorld};
use corelog_reactor::{Reactor, ReactorLimits};
use corelog_storage::disk::datadir::DataDir;
use corelog_storage::ids::{LeaderEpoch, Offset, Timestamp};
use corelog_storage::log::{CommitLogUse, Log, LogConfig, ReadError, StorageEnv, StorageOptions};
use log_common::*;
use log_model::{Dice, run, seeds};
use log_txn::*;
use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

fn options(seed: u64) -> StorageOptions {
    let mut dice = Dice(seed ^ 0x0709);
    StorageOptions {
        first_room_bytes: [0, 4 << 10][dice.below(2) as usize],
        commit_bytes_max: [4 << 10, 4 << 20][dice.below(2) as usize],
        tail_cache_bytes_max: [16 << 10, 8 << 20][dice.below(2) as usize],
        recovery_point_bytes_max: [1 << 10, 3 << 10, 32 << 20][dice.below(3) as usize],
        spare_bytes_max: [0, 1 << 20][dice.below(2) as usize],
        checkpoint_interval: Duration::from_millis(5),
        no_space_retry: Duration::from_millis(5),
        cold_segments_max: 3,
        commit_log: [CommitLogUse::Always, CommitLogUse::Auto, CommitLogUse::Never][dice.below(3) as usize],
        commit_log_file_bytes: 64 << 10,
        commit_log_files_max: 2 + dice.below(3) as usize,
        write_back_bytes: [1 << 10, 256 << 10][dice.below(2) as usize],
        ..StorageOptions::default()
    }
}

fn config(seed: u64) -> LogConfig {
    let mut dice = Dice(seed ^ 0xC0F1);
    LogConfig {
        segment_bytes_max: [4 << 10, 16 << 10, 1 << 20][dice.below(3) as usize],
        index_interval_bytes: [1, 512, 4096][dice.below(3) as usize],
        file_delete_delay_ms: [0, 3][dice.below(2) as usize],
        ..LogConfig::default()
    }
}

fn reactor_of(world: &SimWorld, node: NodeId) -> Reactor {
    world.reactor(node, ReactorLimits { pool_bytes_max: 64 << 20, ..ReactorLimits::default() })
}

type Kept = (DataDir, StorageEnv);

async fn open(reactor: Reactor, seed: u64) -> (Kept, Log) {
    let (data, env) = storage(&reactor, Path::new("/data"), options(seed)).await;
    let log = Log::open_or_create(&env, name(), config(seed)).await.expect("an open log");
    ((data, env), log)
}

/// What outlives a crash: what was written, and the leader's epochs.
#[derive(Default)]
struct World {
    history: History,
    led: i32,
    acked: i64,
}

impl World {
    fn lead(&mut self, log: &Log) {
        self.led += 1;
        log.new_epoch(LeaderEpoch(self.led), log.log_end()).expect("a new epoch");
    }

    /// What is there after a crash.
    fn take_stock(&mut self, log: &Log, what: &str) {
        assert_eq!(log.fenced(), None, "{what}");
        let end = log.log_end().0;
        assert!(end >= self.acked, "{what}: the log ends at {end}, {} was acknowledged", self.acked);
        self.history.cut(end);
        assert_eq!(self.history.end(), end, "{what}: not at the end of a batch");
        self.acked = end;
    }
}

/// Does all that a log goes through, for ever or for `steps`.
async fn work(reactor: Reactor, log: Log, state: Rc<RefCell<World>>, mut dice: Dice, steps: u64) {
    for _ in 0..steps {
        for _ in 0..=dice.below(6) {
            state.borrow_mut().history.step(&log, &mut dice);
        }
        match dice.below(60) {
            0 => {
                let offset = log.log_start().0 + dice.below((log.durable_end() - log.log_start()) as u64 + 1) as i64;
                let _ = log.delete_records(Offset(offset)).await;
            }
            1 => {
                let before = log.config();
                log.set_config(LogConfig { retention_bytes_max: Some(dice.below(20 << 10)), ..before.clone() });
                let _ = log.retain(Timestamp(PRODUCED_AT), log.durable_end()).await;
                log.set_config(before);
            }
            2 | 3 => {
                let from = log.log_start().0;
                let to = from + dice.below((log.log_end().0 - from) as u64 + 1) as i64;
                {
                    let mut state = state.borrow_mut();
                    // Of the batch that holds the offset nothing stays.
                    let floor = state.history.written.iter().find(|w| to < w.next).map_or(to, |w| w.base);
                    state.acked = state.acked.min(floor);
                }
                if let Ok(end) = log.truncate_to(Offset(to)).await {
                    let mut state = state.borrow_mut();
                    state.history.cut(end.0);
                    state.acked = state.acked.min(end.0);
                    if log.fenced().is_none() {
                        state.lead(&log);
                    }
                }
            }
            4..8 => {
                let history = state.borrow().history.clone();
                check_found(&log, &history, &mut dice, "while it is written to").await;
            }
            _ => {}
        }
        if dice.below(3) > 0 {
            let _ = log.commit().await;
            let mut state = state.borrow_mut();
            state.acked = log.durable_end().0.min(state.history.end());
        } else {
            reactor.sleep(Duration::from_micros(200 * dice.below(20))).await;
        }
    }
}

/// Several lives of one log. Returns how many entries were checked, and how many cuts there were.
fn lives(seed: u64) -> (usize, u64) {
    let world = SimWorld::new(seed);
    let node = world.add_node();
    world.disk(node).set_short_per_mille((seed % 3) as u32 * 20);
    let state: Rc<RefCell<World>> = Rc::default();
    state.borrow_mut().history.value_bytes_max = [40, 600][seed as usize % 2];
    let mut dice = Dice(seed);
    let (mut checked, mut cuts) = (0, 0);
    for life in 0..6 {
        let what = format!("seed {seed}, life {life}");
        let reactor = reactor_of(&world, node);
        if dice.one_in(4) {
            let own = reactor.clone();
            reactor.spawn(async move { drop(open(own, seed).await) }).expect("a task");
            world.run_for(Duration::from_micros(dice.below(6_000)));
            world.crash(node);
            cuts += 1;
            continue;
        }
        let (kept, log) = run(&world, &reactor, open(reactor.clone(), seed));
        state.borrow_mut().take_stock(&log, &what);
        let history = state.borrow().history.clone();
        checked += history.aborted().len();
        check_files(&world.disk(node), &history, log.log_end().0, false, &what);
        let (own, mut own_dice, said) = (log.clone(), Dice(dice.next()), what.clone());
        run(&world, &reactor, async move { check_found(&own, &history, &mut own_dice, &said).await });
        state.borrow_mut().lead(&log);
        let millis = [2, 20, 200][dice.below(3) as usize];
        match dice.below(5) {
            0 => {
                let task = work(reactor.clone(), log.clone(), state.clone(), Dice(dice.next()), 5 + dice.below(100));
                run(&world, &reactor, task);
                let own = log.clone();
                run(&world, &reactor, async move { own.close().await.expect("a clean end") });
                let mut state = state.borrow_mut();
                state.acked = log.log_end().0;
                check_files(&world.disk(node), &state.history, log.log_end().0, true, &what);
                drop((kept, log));
                world.stop(&reactor);
            }
            n => {
                let task = work(reactor.clone(), log.clone(), state.clone(), Dice(dice.next()), u64::MAX);
                reactor.spawn(task).expect("a task");
                world.run_for(Duration::from_millis(1 + dice.below(millis)));
                drop((kept, log));
                if n == 1 {
                    world.stop(&reactor);
                } else {
                    world.crash(node);
                    cuts += 1;
                }
            }
        }
    }
    (checked, cuts)
}

#[test]
fn the_index_says_what_was_aborted_through_rolls_retention_truncations_and_power_cuts() {
    let (mut checked, mut cuts) = (0, 0);
    for seed in seeds(300) {
        println!("seed {seed}");
        let (more, more_cuts) = lives(seed);
        (checked, cuts) = (checked + more, cuts + more_cuts);
    }
    println!("{checked} entries, {cuts} power cuts");
    assert!(checked > 1_000, "{checked} entries");
}

/// How a life of the broker ends.
#[derive(Clone, Copy, Debug)]
enum End {
    PowerCut,
    /// The kernel keeps what it was given, for now.
    Kill,
}

fn end_life(world: &SimWorld, node: NodeId, reactor: &Reactor, end: End) -> Reactor {
    match end {
        End::PowerCut => world.crash(node),
        End::Kill => world.stop(reactor),
    }
    world.disk(node).clear_fault();
    reactor_of(world, node)
}

/// Transactions over several segments, a move of the recovery point, a truncation, more of them, a clean end; it stops at its
/// `step`th operation, and the start after it may stop at one, too. Returns whether they got that far.
fn interrupted(step: u64, end: End, start: Option<(u64, End)>, seed: u64) -> bool {
    let what = format!("step {step} {end:?}, start {start:?}, seed {seed}");
    let world = SimWorld::new(seed ^ step << 8);
    let node = world.add_node();
    let mut reactor = reactor_of(&world, node);
    let state: Rc<RefCell<World>> = Rc::default();
    state.borrow_mut().history.value_bytes_max = 200;
    let mut got_there;
    {
        let (kept, log) = run(&world, &reactor, open(reactor.clone(), seed));
        let (own, own_state, own_reactor) = (log.clone(), state.clone(), reactor.clone());
        let script = async move {
            own_state.borrow_mut().lead(&own);
            let mut dice = Dice(seed);
            for round in 0..2 {
                for _ in 0..14 {
                    for _ in 0..5 {
                        own_state.borrow_mut().history.step(&own, &mut dice);
                    }
                    commit_all(&own).await;
                    own_state.borrow_mut().acked = own.durable_end().0;
                }
                own_reactor.sleep(Duration::from_millis(20)).await;
                if round == 0 {
                    let to = own.log_end().0 * (1 + dice.below(9) as i64) / 10;
                    own_state.borrow_mut().acked = 0;
                    let end = own.truncate_to(Offset(to)).await.unwrap();
                    let mut state = own_state.borrow_mut();
                    state.history.cut(end.0);
                    state.acked = end.0;
                    state.lead(&own);
                }
            }
            own.close().await.unwrap();
        };
        got_there = until(&world, node, &reactor, step, script);
        drop((kept, log));
    }
    reactor = end_life(&world, node, &reactor, end);
    if let Some((step, end)) = start {
        let own = reactor.clone();
        got_there &= until(&world, node, &reactor, step, async move { drop(open(own, seed).await) });
        reactor = end_life(&world, node, &reactor, end);
    }
    // The index is right, and stays so when other records get the offsets and the power goes.
    for last in [false, true] {
        let (kept, log) = run(&world, &reactor, open(reactor.clone(), seed));
        state.borrow_mut().take_stock(&log, &what);
        let history = state.borrow().history.clone();
        check_files(&world.disk(node), &history, log.log_end().0, false, &what);
        let (own, own_state, said) = (log.clone(), state.clone(), what.clone());
        run(&world, &reactor, async move {
            check_found(&own, &history, &mut Dice(seed), &said).await;
            own_state.borrow_mut().lead(&own);
            for _ in 0..9 {
                own_state.borrow_mut().history.plain(&own, 10, 100);
                commit_all(&own).await;
            }
            own_state.borrow_mut().acked = own.durable_end().0;
        });
        if last {
            break;
        }
        drop((kept, log));
        reactor = end_life(&world, node, &reactor, End::PowerCut);
    }
    got_there
}

#[test]
fn an_end_at_any_operation_leaves_the_index_of_what_is_in_the_log() {
    for end in [End::PowerCut, End::Kill] {
        let steps =
            (0..5_000).find(|step| !(0..3).map(|seed| interrupted(*step, end, None, seed)).fold(false, |a, b| a | b));
        assert!(steps.is_some_and(|steps| steps > 100), "{steps:?} operations");
        println!("{steps:?} operations");
    }
}

#[test]
fn a_start_that_ends_at_any_operation_leaves_it_too() {
    for (first, second) in [(End::PowerCut, End::Kill), (End::Kill, End::PowerCut)] {
        for step in [60, 150] {
            let steps = (0..1_000).find(|start| {
                let any = (0..3).map(|seed| interrupted(step, first, Some((*start, second)), seed));
                !any.fold(false, |a, b| a | b)
            });
            assert!(steps.is_some_and(|steps| steps > 10), "{steps:?} operations");
        }
    }
}

/// A closed log of several segments with aborted transactions, of which one lasts over a segment's end.
fn closed(bench: &mut Bench) -> History {
    let mut history = History { value_bytes_max: 200, ..History::default() };
    bench.reactor.block_on(async {
        let (_data, _env, log) = bench.open(few_bytes()).await;
        lead(&log).await;
        let mut dice = Dice(5);
        while log.status().segments < 4 {
            assert!(history.step(&log, &mut dice));
            commit_all(&log).await;
        }
        for _ in 0..9 {
            history.data(&log, 3, 1, 10);
            history.marker(&log, 3, true);
        }
        commit_all(&log).await;
        log.close().await.unwrap();
    });
    bench.kill();
    let end = history.end();
    check_files(&bench.disk(), &history, end, true, "closed");
    let segments = segments(&bench.disk(), end);
    let crosses = |t: &corelog_storage::log::AbortedTxn| {
        segments.iter().any(|(base, _)| t.first_offset.0 < *base && *base <= t.last_offset.0)
    };
    assert!(history.aborted().iter().any(crosses), "none over a segment's end");
    assert!(segments.iter().all(|(base, next)| !history.index(*base, *next).is_empty()));
    history
}

fn few_bytes() -> LogConfig {
    LogConfig { segment_bytes_max: 4 << 10, ..LogConfig::default() }
}

/// The next start, and that its repairs are durable.
fn reopened(bench: &mut Bench, history: &History, what: &str) {
    for _ in 0..2 {
        bench.reactor.block_on(async {
            let (_data, _env, log) = bench.open(few_bytes()).await;
            assert_eq!((log.fenced(), log.log_end().0), (None, history.end()), "{what}");
            check_found(&log, history, &mut Dice(1), what).await;
        });
        bench.cut_power();
        check_files(&bench.disk(), history, history.end(), true, what);
    }
}

type Damage = (&'static str, fn(Vec<u8>) -> Vec<u8>);

/// What can be seen of a damaged entry.
const DAMAGES: [Damage; 8] = [
    ("another version", |mut bytes| {
        bytes[1] = 1;
        bytes
    }),
    ("zeroes in the middle", |mut bytes| {
        let at = bytes.len() / 2 / ENTRY_BYTES * ENTRY_BYTES;
        bytes[at..].fill(0);
        bytes
    }),
    ("part of an entry less", |bytes| bytes[..bytes.len() - 7].to_vec()),
    ("part of an entry more", |bytes| [&bytes[..], &bytes[..20]].concat()),
    ("an entry twice", |bytes| [&bytes[..ENTRY_BYTES], &bytes[..]].concat()),
    ("a marker before the segment", |mut bytes| {
        bytes[10..26].fill(0);
        bytes
    }),
    ("the first behind the last", |mut bytes| {
        bytes[10] = 1;
        bytes
    }),
    ("noise", |bytes| bytes.iter().map(|b| b ^ 0xA5).collect()),
];

#[test]
fn a_damaged_index_is_read_anew_from_the_batches_whatever_segment_it_is_of() {
    for (what, damage) in DAMAGES {
        for segment in 0..4 {
            for without_snapshots in [false, true] {
                let mut bench = bench(4);
                let history = closed(&mut bench);
                let disk = bench.disk();
                let base = segments(&disk, history.end())[segment].0;
                let at = path(base, ".txnindex");
                let damaged = damage(disk.contents(&at).unwrap());
                assert!(disk.put(&at, &damaged));
                if without_snapshots {
                    for at in bases_of(&disk, ".snapshot") {
                        assert!(disk.put(&path(at, ".snapshot"), b"no snapshot"));
                    }
                }
                disk.set_short_per_mille(300);
                let what = format!("{what}, segment {segment}, without snapshots: {without_snapshots}");
                reopened(&mut bench, &history, &what);
            }
        }
    }
}

#[test]
fn entries_behind_the_end_are_dropped_for_good_and_so_is_an_index_without_a_segment() {
    for count in [1, 2_000] {
        let mut bench = bench(4);
        let history = closed(&mut bench);
        let (disk, end) = (bench.disk(), history.end());
        let last = segments(&disk, end)[3].0;
        let ahead = |n: i64| corelog_storage::log::AbortedTxn {
            producer_id: corelog_storage::ids::ProducerId(1),
            first_offset: Offset(end),
            last_offset: Offset(end + n),
            last_stable_offset: Offset(end + n + 1),
        };
        let more: Vec<u8> = (0..count).map(ahead).flat_map(bytes_of).collect();
        let whole = disk.contents(&path(last, ".txnindex")).unwrap();
        assert!(disk.put(&path(last, ".txnindex"), &[&whole[..], &more].concat()));
        assert!(disk.put(&path(end + 3, ".txnindex"), &bytes_of(ahead(4))));
        reopened(&mut bench, &history, &format!("{count} entries ahead"));
    }
}

#[test]
fn an_index_that_is_damaged_while_the_log_is_open_is_an_error_and_never_an_answer() {
    let mut bench = bench(4);
    let history = closed(&mut bench);
    let disk = bench.disk();
    let first = path(segments(&disk, history.end())[0].0, ".txnindex");
    let whole = disk.contents(&first).unwrap();
    bench.reactor.block_on(async {
        let (_data, _env, log) = bench.open(few_bytes()).await;
        let ask = || log.aborted_transactions(Offset(0), Offset(i64::MAX), 1_000);
        for damaged in [vec![], whole[..20].to_vec(), vec![7; whole.len()], whole[..whole.len() - 1].to_vec()] {
            assert!(disk.put(&first, &damaged));
            let error = ask().await.unwrap_err();
            let is_expected =
                matches!(&error, ReadError::Io { error, .. } if error.kind() == io::ErrorKind::InvalidData);
            assert!(is_expected, "{} bytes: {error}", damaged.len());
        }
        assert!(disk.put(&first, &whole));
        check_found(&log, &history, &mut Dice(2), "whole again").await;
    });
}

#[test]
fn of_more_transactions_than_may_be_there_are_none_and_of_a_smaller_range_there_are_some() {
    let mut bench = bench(4);
    let history = closed(&mut bench);
    bench.reactor.block_on(async {
        let (_data, _env, log) = bench.open(few_bytes()).await;
        let all = history.aborted();
        let upper = Offset(history.end());
        assert_eq!(log.aborted_transactions(Offset(0), upper, all.len()).await.unwrap().as_ref(), Some(&all));
        assert_eq!(log.aborted_transactions(Offset(0), upper, all.len() - 1).await.unwrap(), None);
        let last = all.last().unwrap();
        let some = log.aborted_transactions(last.last_offset, upper, 1).await.unwrap();
        assert_eq!(some, Some(vec![*last]));
        let below = log.aborted_transactions(Offset(-1), upper, 1).await;
        assert!(matches!(below, Err(ReadError::OutOfRange { .. })), "{below:?}");
    });
}

#[test]
fn many_aborted_transactions_do_not_wait_in_memory_for_the_recovery_point() {
    let bench = bench(6);
    bench.reactor.block_on(async {
        let (_data, _env, log) = bench.open(LogConfig::default()).await;
        lead(&log).await;
        for n in 0..9_000 {
            append(&log, &data_batch(1, n, 1, 0, 1)).unwrap();
            append_marker(&log, 1, true).unwrap();
            if n % 50 == 0 {
                commit_all(&log).await;
            }
        }
        commit_all(&log).await;
        bench.reactor.sleep(Duration::from_millis(100)).await;
        let filed = bench.disk().contents(&path(0, ".txnindex")).unwrap_or_default().len() / ENTRY_BYTES;
        assert!(filed >= 4_096, "{filed} entries in the file");
        // Found by halves in the file, and in memory.
        for from in [0, 1, 4_000, 8_191, 12_345, 17_999] {
            let found = log.aborted_transactions(Offset(from), Offset(from + 1), 10).await.unwrap().unwrap();
            let lasts: Vec<i64> = found.iter().map(|t| t.last_offset.0).collect();
            assert_eq!(lasts, [from | 1], "from {from}");
        }
        let all = log.aborted_transactions(Offset(0), log.log_end(), 10_000).await.unwrap().unwrap();
        assert_eq!(all.len(), 9_000);
    });
}

#[test]
fn the_index_of_a_segment_below_the_log_start_is_set_aside_with_it_and_goes_with_it() {
    let mut bench = bench(5);
    let history = closed(&mut bench);
    let disk: SimDisk = bench.disk();
    let starts: Vec<i64> = segments(&disk, history.end()).iter().map(|(base, _)| *base).collect();
    bench.reactor.block_on(async {
        let config = LogConfig { file_delete_delay_ms: 60_000, ..few_bytes() };
        let (_data, _env, log) = bench.open(config).await;
        log.delete_records(Offset(starts[2])).await.unwrap();
        bench.reactor.sleep(Duration::from_secs(1)).await;
        assert_eq!(bases_of(&disk, ".txnindex"), starts[2..]);
        for suffix in [".log.deleted", ".txnindex.deleted"] {
            assert_eq!(bases_of(&disk, suffix), starts[..2], "{suffix}");
        }
        check_found(&log, &history, &mut Dice(3), "with less of it").await;
        bench.reactor.sleep(Duration::from_secs(61)).await;
        assert_eq!(
            (bases_of(&disk, ".txnindex"), bases_of(&disk, ".txnindex.deleted")),
            (starts[2..].to_vec(), vec![])
        );
    });
}

#[test]
fn a_follower_has_the_index_that_its_leader_has() {
    let mut bench = bench(7);
    let history = closed(&mut bench);
    let bytes = bench.reactor.block_on(async {
        let (_data, _env, log) = bench.open(few_bytes()).await;
        read_all(&log, Offset(0), 3_000).await
    });
    let other = log_common::bench(8);
    let disk = other.disk();
    other.reactor.block_on(async {
        let (_data, _env, log) = other.open(few_bytes()).await;
        log.append_as_follower(&bytes, Timestamp(PRODUCED_AT)).unwrap();
        commit_all(&log).await;
        check_found(&log, &history, &mut Dice(4), "a follower").await;
        log.close().await.unwrap();
    });
    check_files(&disk, &history, history.end(), true, "a follower");
}
