//! The log against a model, through power cuts: on the simulated disk, which keeps of what was not synced whatever the
//! seed decides.
//!
//! After each cut: nothing acknowledged is lost, nothing appears twice or changed, offsets are contiguous.
//! Run one seed with `CORELOG_SEED=n`, more of them with `CORELOG_SEEDS=n`, from `CORELOG_SEED_FIRST=n` on.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod log_common;
mod log_model;

use corelog_reactor::sim::{NodeId, SimWorld};
use corelog_reactor::{Reactor, ReactorLimits};
use corelog_storage::disk::datadir::DataDir;
use corelog_storage::ids::{Offset, ProducerId};
use corelog_storage::log::{CommitLogUse, Log, StorageEnv, StorageOptions};
use log_common::*;
use log_model::*;
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

const PRODUCER: i64 = 42;

fn options(seed: u64) -> StorageOptions {
    let mut dice = Dice(seed ^ 0x0709);
    StorageOptions {
        first_room_bytes: [0, 4 << 10, 64 << 10][dice.below(3) as usize],
        commit_bytes_max: [4 << 10, 16 << 10, 4 << 20][dice.below(3) as usize],
        tail_cache_bytes_max: [16 << 10, 256 << 10, 8 << 20][dice.below(3) as usize],
        recovery_point_bytes_max: [20 << 10, 200 << 10, 32 << 20][dice.below(3) as usize],
        spare_bytes_max: [0, 1 << 20][dice.below(2) as usize],
        checkpoint_interval: Duration::from_millis(5),
        no_space_retry: Duration::from_millis(5),
        cold_segments_max: 3,
        commit_log: [CommitLogUse::Always, CommitLogUse::Auto, CommitLogUse::Never][dice.below(3) as usize],
        commit_log_file_bytes: [64 << 10, 256 << 10][dice.below(2) as usize],
        commit_log_files_max: 2 + dice.below(3) as usize,
        write_back_bytes: [1 << 10, 16 << 10, 256 << 10][dice.below(3) as usize],
        ..StorageOptions::default()
    }
}

fn append_some(log: &Log, model: &RefCell<Model>, dice: &mut Dice) {
    for _ in 0..=dice.below(6) {
        let mut model = model.borrow_mut();
        let count = 1 + dice.below(4) as i32;
        let value_bytes = match dice.below(10) {
            0 => 4_000 + dice.below(9_000),
            1 => 500,
            _ => dice.below(300),
        };
        let seed = model.appends;
        if !model.append(log, PRODUCER, count, value_bytes as usize, seed) {
            return;
        }
    }
}

/// Appends, commits, reads and changes the log for ever; the power cut ends it.
async fn work(log: Log, model: Rc<RefCell<Model>>, mut dice: Dice) {
    let reactor_pause = Duration::from_micros(200);
    loop {
        append_some(&log, &model, &mut dice);
        match dice.below(40) {
            0 => delete_some(&log, &model, &mut dice).await,
            6 | 7 => retain_some(&log, &model, &mut dice).await,
            1 => {
                let (from, to) = (model.borrow().log_start, model.borrow().end());
                let offset = from + dice.below((to - from + 1) as u64) as i64;
                model.borrow_mut().truncating = Some(offset);
                if let Ok(end) = log.truncate_to(Offset(offset)).await {
                    assert!(end.0 <= offset || end.0 == to, "truncated to {end} instead of {offset}");
                    {
                        let mut model = model.borrow_mut();
                        model.cut(end.0);
                        model.truncating = None;
                    }
                    let last = log.producers(|p| p.get(ProducerId(PRODUCER)).map_or(0, |e| e.last_offset().0 + 1));
                    assert_eq!(last, end.0, "the producer's end after a truncation to {offset}: {:?}", log.status());
                    if log.fenced().is_none() {
                        model.borrow_mut().lead(&log);
                    }
                }
            }
            2..=5 => check_read(&log, &model, &mut dice, log.log_end()).await,
            _ => {}
        }
        if dice.below(3) > 0 {
            commit_some(&log, &model).await;
        } else {
            log_pause(reactor_pause, &mut dice).await;
        }
    }
}

thread_local! {
    static REACTOR: RefCell<Option<Reactor>> = const { RefCell::new(None) };
}

async fn log_pause(pause: Duration, dice: &mut Dice) {
    let reactor = REACTOR.with(|r| r.borrow().clone()).expect("a reactor");
    reactor.sleep(pause * dice.below(20) as u32).await;
}

fn reactor_of(world: &SimWorld, node: NodeId) -> Reactor {
    let limits = ReactorLimits { pool_bytes_max: 64 << 20, ..ReactorLimits::default() };
    let reactor = world.reactor(node, limits);
    REACTOR.with(|r| r.borrow_mut().replace(reactor.clone()));
    reactor
}

async fn open(reactor: Reactor, seed: u64, options: StorageOptions) -> (DataDir, StorageEnv, Log) {
    let (data, env) = storage(&reactor, Path::new("/data"), options).await;
    let log = Log::open_or_create(&env, name(), config(seed)).await.expect("an open log");
    (data, env, log)
}

fn check(log: &Log, found: &[u8], model: &mut Model) -> Result<(), String> {
    model.check(log, PRODUCER, found)?;
    if log.durable_end() != log.log_end() {
        return Err(format!("durable end {} of {}", log.durable_end(), log.log_end()));
    }
    Ok(())
}

/// Several lives of one log, each ended by a power cut or a kill. Returns how many power cuts there were.
fn lives(seed: u64, options: impl Fn() -> StorageOptions) -> Result<u64, String> {
    let world = SimWorld::new(seed);
    let node = world.add_node();
    world.disk(node).set_short_per_mille((seed % 3) as u32 * 20);
    let model: Rc<RefCell<Model>> = Rc::default();
    let mut dice = Dice(seed);
    let mut cuts = 0;
    for _life in 0..6 {
        let reactor = reactor_of(&world, node);
        // Now and then the power fails during recovery, too.
        if dice.one_in(4) {
            let own = reactor.clone();
            let options = options();
            reactor.spawn(async move { drop(open(own, seed, options).await) }).expect("a task");
            world.run_for(Duration::from_micros(dice.below(6_000)));
            world.crash(node);
            cuts += 1;
            continue;
        }
        let (data, env, log) = run(&world, &reactor, open(reactor.clone(), seed, options()));
        let found = if log.fenced().is_none() {
            let own = log.clone();
            run(&world, &reactor, async move { read_all(&own, own.log_start(), 10_000).await })
        } else {
            Vec::new()
        };
        check(&log, &found, &mut model.borrow_mut())?;
        assert!(model.borrow_mut().lead(&log), "seed {seed}: a new leader");
        let task = work(log.clone(), model.clone(), Dice(dice.next()));
        reactor.spawn(task).expect("a task");
        let millis = [2, 20, 200][dice.below(3) as usize];
        world.run_for(Duration::from_millis(1 + dice.below(millis)));
        match dice.below(5) {
            0 => {
                // A kill: the kernel has everything, the process is gone.
                drop((data, env, log));
                world.stop(&reactor);
            }
            _ => {
                drop((data, env, log));
                world.crash(node);
                cuts += 1;
            }
        }
    }
    Ok(cuts)
}

#[test]
fn nothing_acknowledged_is_lost_in_a_power_cut() {
    let (mut lived, mut cuts) = (0, 0);
    for seed in seeds(300) {
        println!("seed {seed}");
        match lives(seed, || options(seed)) {
            Ok(more) => (lived, cuts) = (lived + 1, cuts + more),
            Err(what) => panic!("seed {seed}: {what}"),
        }
    }
    println!("{lived} seeds, {cuts} power cuts");
}

#[test]
fn a_creation_that_was_interrupted_can_be_repeated() {
    for seed in seeds(300) {
        let world = SimWorld::new(seed);
        let node = world.add_node();
        let mut dice = Dice(seed);
        for _try in 0..3 {
            let reactor = reactor_of(&world, node);
            let own = reactor.clone();
            reactor.spawn(async move { drop(open(own, seed, options(seed)).await) }).expect("a task");
            world.run_for(Duration::from_micros(dice.below(8_000)));
            world.crash(node);
        }
        let reactor = reactor_of(&world, node);
        let (_data, _env, log) = run(&world, &reactor, open(reactor.clone(), seed, options(seed)));
        assert_eq!((log.fenced(), log.log_end()), (None, Offset(0)), "seed {seed}");
    }
}

#[test]
fn without_synced_writes_the_power_cut_test_fails() {
    let broken = |seed| StorageOptions { break_durability_for_a_test: true, ..options(seed) };
    let failed = (0..40).any(|seed| lives(seed, || broken(seed)).is_err());
    assert!(failed, "the test does not notice that commits are not durable");
}
