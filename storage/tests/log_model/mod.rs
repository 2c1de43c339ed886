//! What the tests of logs through power cuts share: dice, the model of one log, running the simulated world.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used)]

use crate::log_common::{PRODUCED_AT, append, producer_batch};
use corelog_reactor::Reactor;
use corelog_reactor::sim::SimWorld;
use corelog_storage::ids::{LeaderEpoch, Offset, ProducerId, Timestamp};
use corelog_storage::log::{AppendError, Log, LogConfig, ReadOutcome};
use std::cell::RefCell;
use std::rc::Rc;

/// A small generator of its own, so that what a test does never depends on what the simulation draws.
pub struct Dice(pub u64);

impl Dice {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// One appended batch as it must be found again.
#[derive(Clone)]
pub struct Entry {
    pub base: i64,
    pub next: i64,
    pub bytes: Vec<u8>,
    /// The producer's sequence behind it.
    pub sequence: i32,
}

/// What a log must be.
#[derive(Default)]
pub struct Model {
    pub entries: Vec<Entry>,
    /// Everything below was acknowledged.
    pub acked: i64,
    pub log_start: i64,
    /// A DeleteRecords that may or may not have happened.
    pub deleting: Option<i64>,
    /// Retention that may or may not have moved the log start: to the end of a batch, and not beyond this.
    pub retaining: Option<i64>,
    /// A truncation that may or may not have happened.
    pub truncating: Option<i64>,
    pub sequence: i32,
    pub appends: u64,
    /// The newest leader epoch that was ever begun. As a controller's it outlives every crash: none is begun twice.
    pub led: Option<i32>,
}

impl Model {
    pub fn end(&self) -> i64 {
        self.entries.last().map_or(0, |e| e.next)
    }

    pub fn cut(&mut self, end: i64) {
        self.entries.retain(|e| e.next <= end);
        self.acked = self.acked.min(end);
        self.log_start = self.log_start.min(end);
        self.sequence = self.entries.last().map_or(0, |e| e.sequence);
    }

    /// Appends a batch of the producer's. Returns whether the log took it.
    pub fn append(&mut self, log: &Log, producer: i64, count: i32, value_bytes: usize, seed: u64) -> bool {
        self.appends += 1;
        let bytes = producer_batch(count, value_bytes, seed, producer, self.sequence);
        match append(log, &bytes) {
            Ok(appended) => {
                assert_eq!(appended.base_offset.0, self.end(), "an append went to another place");
                let mut stamped = bytes;
                stamped[..8].copy_from_slice(&appended.base_offset.0.to_be_bytes());
                stamped[12..16].copy_from_slice(&log.epoch().0.to_be_bytes());
                self.sequence = self.sequence.wrapping_add(count);
                let (base, next, sequence) = (appended.base_offset.0, appended.last_offset.0 + 1, self.sequence);
                self.entries.push(Entry { base, next, bytes: stamped, sequence });
                true
            }
            Err(
                AppendError::Full { .. }
                | AppendError::NoSpace
                | AppendError::Fenced(_)
                | AppendError::TooLarge { .. }
                | AppendError::Closed,
            ) => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// Begins the next leader epoch at the log's end. Returns whether the log took it.
    pub fn lead(&mut self, log: &Log) -> bool {
        let next = self.led.map_or(0, |led| led + 1);
        self.led = Some(next);
        log.new_epoch(LeaderEpoch(next), log.log_end()).is_ok()
    }

    /// What is wrong with the log after a cut, if anything; `found` are its bytes. What was in doubt is known then.
    pub fn check(&mut self, log: &Log, producer: i64, found: &[u8]) -> Result<(), String> {
        if let Some(reason) = log.fenced() {
            return Err(format!("fenced: {reason}"));
        }
        let (start, end) = (log.log_start().0, log.log_end().0);
        let mut acked = self.acked;
        if let Some(to) = self.truncating.take() {
            // The batch that contains the offset is gone as well.
            let floor = self.entries.iter().find(|e| to < e.next).map_or(to, |e| e.base);
            acked = acked.min(floor);
            if end == floor {
                self.log_start = self.log_start.min(floor);
            }
        }
        if end < acked {
            return Err(format!("log end {end} behind acknowledged {acked}"));
        }
        if log.epoch().0 > self.led.unwrap_or(-1) {
            return Err(format!("leader epoch {}, and none after {:?} was begun", log.epoch(), self.led));
        }
        let starts = [Some(self.log_start), self.deleting.take().map(|d| d.max(self.log_start))];
        let is_retained = self.retaining.take().is_some_and(|upper| self.log_start <= start && start <= upper)
            && self.entries.iter().any(|e| e.next == start);
        if !starts.contains(&Some(start)) && !is_retained {
            return Err(format!("log start {start} instead of one of {starts:?}"));
        }
        self.log_start = start;
        if end != 0 && !self.entries.iter().any(|e| e.next == end) {
            return Err(format!("log end {end} is no end of a batch"));
        }
        let first = self.entries.iter().find(|e| start < e.next).map_or(start, |e| e.base);
        let expected: Vec<u8> =
            self.entries.iter().filter(|e| e.base >= first && e.next <= end).flat_map(|e| e.bytes.clone()).collect();
        if found != expected {
            let at = found.iter().zip(&expected).position(|(a, b)| a != b);
            return Err(format!("{} bytes instead of {}, differing at {at:?}", found.len(), expected.len()));
        }
        self.cut(end);
        self.acked = end;
        for entry in self.entries.iter().filter(|e| e.base >= start) {
            let stamped = entry.bytes.get(12..16).and_then(|epoch| epoch.try_into().ok()).map(i32::from_be_bytes);
            let known = log.epoch_of(Offset(entry.base)).map(|epoch| epoch.0);
            if known != stamped {
                return Err(format!("leader epoch {known:?} at {}, written in {stamped:?}", entry.base));
            }
        }
        // Below the log start producers may have been forgotten with the records.
        let last = log.producers(|p| p.get(ProducerId(producer)).map(|e| e.last_offset().0));
        if end > 0 && last != Some(end - 1) {
            return Err(format!("the producer's last offset is {last:?}, the log's end {end}"));
        }
        Ok(())
    }
}

pub fn config(seed: u64) -> LogConfig {
    let mut dice = Dice(seed ^ 0xC0F1);
    LogConfig {
        segment_bytes_max: [24 << 10, 100 << 10, 2 << 20][dice.below(3) as usize],
        index_interval_bytes: [1, 512, 4096][dice.below(3) as usize],
        file_delete_delay_ms: [0, 3][dice.below(2) as usize],
        ..LogConfig::default()
    }
}

/// Deletes records up to some acknowledged offset.
pub async fn delete_some(log: &Log, model: &RefCell<Model>, dice: &mut Dice) {
    let (from, to) = (model.borrow().log_start, model.borrow().acked);
    let offset = from + dice.below((to - from + 1) as u64) as i64;
    model.borrow_mut().deleting = Some(offset);
    if log.delete_records(Offset(offset)).await.is_ok() {
        let mut model = model.borrow_mut();
        model.log_start = offset.max(model.log_start);
        model.deleting = None;
    }
}

/// Retains less, by size or by time, below some acknowledged offset.
pub async fn retain_some(log: &Log, model: &RefCell<Model>, dice: &mut Dice) {
    let before = log.config();
    let by_size = dice.one_in(2);
    let bytes_max = dice.below(log.status().bytes + 1);
    log.set_config(LogConfig {
        retention_bytes_max: by_size.then_some(bytes_max),
        // Every record is as old as the next one: all of them go.
        retention_ms_max: (!by_size).then_some(1_000),
        ..before.clone()
    });
    let acked = model.borrow().acked;
    let upper = if dice.one_in(2) { acked } else { dice.below(acked as u64 + 1) as i64 };
    model.borrow_mut().retaining = Some(upper);
    let retained = log.retain(Timestamp(PRODUCED_AT + 2_000), Offset(upper)).await;
    log.set_config(before);
    if retained.is_ok() {
        let mut model = model.borrow_mut();
        let start = log.log_start().0;
        assert!(start <= upper.max(model.log_start), "retained from {start} on, with {upper} as the upper end");
        assert!(start == model.log_start || model.entries.iter().any(|e| e.next == start), "{start} is within a batch");
        if by_size && start > model.log_start {
            let left: usize = model.entries.iter().filter(|e| e.base >= start).map(|e| e.bytes.len()).sum();
            assert!(left as u64 >= bytes_max, "{left} bytes are left of at least {bytes_max}");
        }
        model.log_start = start;
        model.retaining = None;
    }
}

/// Commits, and takes what is durable for acknowledged.
pub async fn commit_some(log: &Log, model: &RefCell<Model>) {
    let _ = log.commit().await;
    let mut model = model.borrow_mut();
    let durable = log.durable_end().0;
    assert!(durable >= model.acked, "durable end {durable} behind acknowledged {}", model.acked);
    model.acked = durable;
}

/// Some batch below `end` is what it must be, wherever it is read from. What is not durable yet is in memory, or not to be
/// seen.
pub async fn check_read(log: &Log, model: &RefCell<Model>, dice: &mut Dice, end: Offset) {
    let start = log.log_start().0;
    if start >= end.0 {
        return;
    }
    let is_durable = end <= log.durable_end();
    let from = start + dice.below((end.0 - start) as u64) as i64;
    let expected = {
        let model = model.borrow();
        let entry = model.entries.iter().find(|e| e.base <= from && from < e.next);
        entry.expect("an entry for an offset within the log").bytes.clone()
    };
    let found = match log.read(Offset(from), end, 2_000, true).expect("a read") {
        ReadOutcome::Empty => panic!("nothing at {from} of {:?}", log.status()),
        ReadOutcome::Hot(hot) => hot.slices.iter().flat_map(|s| s.to_vec()).collect(),
        ReadOutcome::Cold(plan) => match log.read_cold(plan).await.expect("a cold read") {
            Some(cold) => cold.to_vec(),
            None if is_durable => panic!("acknowledged bytes at {from} are not there"),
            None => return,
        },
    };
    assert!(found.starts_with(&expected), "the batch at {from} is another one");
}

/// Runs a future on an attached reactor to its end.
pub fn run<T: 'static>(world: &SimWorld, reactor: &Reactor, future: impl Future<Output = T> + 'static) -> T {
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

/// `CORELOG_SEED` alone, or `CORELOG_SEEDS` of them (or `count`) from `CORELOG_SEED_FIRST` (or 0) on.
pub fn seeds(count: u64) -> Box<dyn Iterator<Item = u64>> {
    let number = |name| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    match number("CORELOG_SEED") {
        Some(seed) => Box::new(seed..seed + 1),
        None => {
            let first = number("CORELOG_SEED_FIRST").unwrap_or(0);
            Box::new(first..first + number("CORELOG_SEEDS").unwrap_or(count))
        }
    }
}
