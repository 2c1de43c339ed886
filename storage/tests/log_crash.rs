//! The log against a model, through power cuts: on the simulated disk, which keeps of what was not synced whatever the
//! seed decides.
//!
//! After each cut: nothing acknowledged is lost, nothing appears twice or changed, offsets are contiguous.
//! Run one seed with `CORELOG_SEED=n`, more of them with `CORELOG_SEEDS=n`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod log_common;

use corelog_reactor::sim::{NodeId, SimWorld};
use corelog_reactor::{Reactor, ReactorLimits};
use corelog_storage::disk::datadir::DataDir;
use corelog_storage::ids::{Offset, ProducerId};
use corelog_storage::log::{AppendError, CommitLogUse, Log, LogConfig, StorageEnv, StorageOptions};
use log_common::*;
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

const PRODUCER: i64 = 42;

/// A small generator of its own, so that what the test does never depends on what the simulation draws.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// One appended batch as it must be found again.
#[derive(Clone)]
struct Entry {
    base: i64,
    next: i64,
    bytes: Vec<u8>,
    /// The producer's sequence behind it.
    sequence: i32,
}

/// What the log must be.
#[derive(Default)]
struct Model {
    entries: Vec<Entry>,
    /// Everything below was acknowledged.
    acked: i64,
    log_start: i64,
    /// A DeleteRecords that may or may not have happened.
    deleting: Option<i64>,
    /// A truncation that may or may not have happened.
    truncating: Option<i64>,
    sequence: i32,
    appends: u64,
    /// The leader epoch that was begun durably; a truncation may take it away again.
    led: Option<i32>,
}

impl Model {
    fn end(&self) -> i64 {
        self.entries.last().map_or(0, |e| e.next)
    }

    fn cut(&mut self, end: i64) {
        self.entries.retain(|e| e.next <= end);
        self.acked = self.acked.min(end);
        self.log_start = self.log_start.min(end);
        self.sequence = self.entries.iter().rev().map(|e| e.sequence).next().unwrap_or(0);
    }
}

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

fn config(seed: u64) -> LogConfig {
    let mut dice = Dice(seed ^ 0xC0F1);
    LogConfig {
        segment_bytes_max: [24 << 10, 100 << 10, 2 << 20][dice.below(3) as usize],
        index_interval_bytes: [1, 512, 4096][dice.below(3) as usize],
        ..LogConfig::default()
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
        model.appends += 1;
        let sequence = model.sequence;
        let bytes = producer_batch(count, value_bytes as usize, seed, PRODUCER, sequence);
        match append(log, &bytes) {
            Ok(appended) => {
                assert_eq!(appended.base_offset.0, model.end(), "an append went to another place");
                let mut stamped = bytes;
                stamped[..8].copy_from_slice(&appended.base_offset.0.to_be_bytes());
                stamped[12..16].copy_from_slice(&log.epoch().0.to_be_bytes());
                model.sequence = sequence.wrapping_add(count);
                let (base, next) = (appended.base_offset.0, appended.last_offset.0 + 1);
                let sequence = model.sequence;
                model.entries.push(Entry { base, next, bytes: stamped, sequence });
            }
            Err(
                AppendError::Full { .. } | AppendError::NoSpace | AppendError::Fenced(_) | AppendError::TooLarge { .. },
            ) => {
                return;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Appends, commits, reads and changes the log for ever; the power cut ends it.
async fn work(log: Log, model: Rc<RefCell<Model>>, mut dice: Dice) {
    let reactor_pause = Duration::from_micros(200);
    loop {
        append_some(&log, &model, &mut dice);
        match dice.below(40) {
            0 => {
                let (from, to) = (model.borrow().log_start, model.borrow().acked);
                let offset = from + dice.below((to - from + 1) as u64) as i64;
                model.borrow_mut().deleting = Some(offset);
                if log.delete_records(Offset(offset)).await.is_ok() {
                    let mut model = model.borrow_mut();
                    model.log_start = offset.max(model.log_start);
                    model.deleting = None;
                }
            }
            1 => {
                let (from, to) = (model.borrow().log_start, model.borrow().end());
                let offset = from + dice.below((to - from + 1) as u64) as i64;
                model.borrow_mut().truncating = Some(offset);
                model.borrow_mut().led = None;
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
                        lead(&log).await;
                        model.borrow_mut().led = Some(log.epoch().0);
                    }
                }
            }
            2..=5 => check_read(&log, &model, &mut dice).await,
            _ => {}
        }
        if dice.below(3) > 0 {
            let _ = log.commit().await;
            let mut model = model.borrow_mut();
            let durable = log.durable_end().0;
            assert!(durable >= model.acked, "durable end {durable} behind acknowledged {}", model.acked);
            model.acked = durable;
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

async fn check_read(log: &Log, model: &RefCell<Model>, dice: &mut Dice) {
    let (start, end) = (log.log_start().0, log.log_end().0);
    if start == end {
        return;
    }
    let from = start + dice.below((end - start) as u64) as i64;
    let expected = {
        let model = model.borrow();
        let entry = model.entries.iter().find(|e| e.base <= from && from < e.next);
        entry.expect("an entry for an offset within the log").bytes.clone()
    };
    use corelog_storage::log::ReadOutcome;
    let found = match log.read(Offset(from), Offset(end), 2_000, true).expect("a read") {
        ReadOutcome::Empty => panic!("nothing at {from} of {:?}", log.status()),
        ReadOutcome::Hot(hot) => hot.slices.iter().flat_map(|s| s.to_vec()).collect(),
        // Bytes that are not durable yet are in memory or not to be seen.
        ReadOutcome::Cold(plan) => match log.read_cold(plan).await.expect("a cold read") {
            Some(cold) => cold.to_vec(),
            None => return,
        },
    };
    assert!(found.starts_with(&expected), "the batch at {from} is another one");
}

fn reactor_of(world: &SimWorld, node: NodeId) -> Reactor {
    let limits = ReactorLimits { pool_bytes_max: 64 << 20, ..ReactorLimits::default() };
    let reactor = world.reactor(node, limits);
    REACTOR.with(|r| r.borrow_mut().replace(reactor.clone()));
    reactor
}

/// Runs a future on an attached reactor to its end.
fn run<T: 'static>(world: &SimWorld, reactor: &Reactor, future: impl Future<Output = T> + 'static) -> T {
    let slot: Rc<RefCell<Option<T>>> = Rc::default();
    let out = slot.clone();
    let task = async move {
        let value = future.await;
        out.borrow_mut().replace(value);
    };
    reactor.spawn(task).expect("a task");
    world.run_until(|| slot.borrow().is_some()).expect("an end");
    let value = slot.borrow_mut().take();
    value.expect("a value")
}

async fn open(reactor: Reactor, seed: u64, options: StorageOptions) -> (DataDir, StorageEnv, Log) {
    let (data, env) = storage(&reactor, Path::new("/data"), options).await;
    let log = Log::open_or_create(&env, name(), config(seed)).await.expect("an open log");
    (data, env, log)
}

/// What is wrong with the log after a power cut, if anything.
fn check(log: &Log, found: &[u8], model: &mut Model) -> Result<(), String> {
    if let Some(reason) = log.fenced() {
        return Err(format!("fenced: {reason}"));
    }
    let (start, end) = (log.log_start().0, log.log_end().0);
    let mut acked = model.acked;
    if let Some(to) = model.truncating.take() {
        // The batch that contains the offset is gone as well.
        let floor = model.entries.iter().find(|e| to < e.next).map_or(to, |e| e.base);
        acked = acked.min(floor);
        if end == floor {
            model.log_start = model.log_start.min(floor);
        }
    }
    if end < acked {
        return Err(format!("log end {end} behind acknowledged {acked}"));
    }
    if Some(log.epoch().0) < model.led {
        return Err(format!("leader epoch {} after {:?} was begun", log.epoch(), model.led));
    }
    if log.durable_end().0 != end {
        return Err(format!("durable end {} of {end}", log.durable_end()));
    }
    let starts = [Some(model.log_start), model.deleting.take().map(|d| d.max(model.log_start))];
    if !starts.contains(&Some(start)) {
        return Err(format!("log start {start} instead of one of {starts:?}"));
    }
    model.log_start = start;
    if end != 0 && !model.entries.iter().any(|e| e.next == end) {
        return Err(format!("log end {end} is no end of a batch"));
    }
    let first = model.entries.iter().find(|e| start < e.next).map_or(start, |e| e.base);
    let expected: Vec<u8> =
        model.entries.iter().filter(|e| e.base >= first && e.next <= end).flat_map(|e| e.bytes.clone()).collect();
    if found != expected {
        let at = found.iter().zip(&expected).position(|(a, b)| a != b);
        return Err(format!("{} bytes instead of {}, differing at {at:?}", found.len(), expected.len()));
    }
    model.cut(end);
    model.acked = end;
    // Below the log start producers may have been forgotten with the records.
    let last = log.producers(|p| p.get(ProducerId(PRODUCER)).map(|e| e.last_offset().0));
    if end > 0 && last != Some(end - 1) {
        return Err(format!("the producer's last offset is {last:?}, the log's end {end}"));
    }
    Ok(())
}

/// Several lives of one log, each ended by a power cut, a kill or a clean stop.
fn lives(seed: u64, options: impl Fn() -> StorageOptions) -> Result<(), String> {
    let world = SimWorld::new(seed);
    let node = world.add_node();
    world.disk(node).set_short_per_mille((seed % 3) as u32 * 20);
    let model: Rc<RefCell<Model>> = Rc::default();
    let mut dice = Dice(seed);
    for _life in 0..6 {
        let reactor = reactor_of(&world, node);
        // Now and then the power fails during recovery, too.
        if dice.one_in(4) {
            let own = reactor.clone();
            let options = options();
            reactor.spawn(async move { drop(open(own, seed, options).await) }).expect("a task");
            world.run_for(Duration::from_micros(dice.below(6_000)));
            world.crash(node);
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
        let own = log.clone();
        run(&world, &reactor, async move { lead(&own).await });
        model.borrow_mut().led = Some(log.epoch().0);
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
            }
        }
    }
    Ok(())
}

fn seeds(count: u64) -> Box<dyn Iterator<Item = u64>> {
    let number = |name| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    match number("CORELOG_SEED") {
        Some(seed) => Box::new(seed..seed + 1),
        None => Box::new(0..number("CORELOG_SEEDS").unwrap_or(count)),
    }
}

#[test]
fn nothing_acknowledged_is_lost_in_a_power_cut() {
    for seed in seeds(300) {
        println!("seed {seed}");
        if let Err(what) = lives(seed, || options(seed)) {
            panic!("seed {seed}: {what}");
        }
    }
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
