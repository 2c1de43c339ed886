//! Many logs in one data folder, on one or more shards, and the model of what each must be.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used)]

use crate::log_common::*;
use corelog_reactor::sim::{NodeId, SimWorld};
use corelog_reactor::{Reactor, ReactorLimits, ShardId};
use corelog_storage::disk::datadir::DataDir;
use corelog_storage::ids::{LeaderEpoch, Offset, PartitionIndex, ProducerId, TopicId};
use corelog_storage::log::{
    AppendError, CommitLogUse, Log, LogConfig, LogName, StorageCounters, StorageEnv, StorageOptions,
};
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

pub const DATA: &str = "/data";
pub const LOGS: usize = 6;

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
}

#[derive(Clone)]
pub struct Entry {
    pub base: i64,
    pub next: i64,
    pub bytes: Vec<u8>,
    pub sequence: i32,
}

/// What one log must be.
#[derive(Default)]
pub struct Model {
    pub entries: Vec<Entry>,
    pub acked: i64,
    pub log_start: i64,
    pub deleting: Option<i64>,
    pub truncating: Option<i64>,
    pub sequence: i32,
    pub appends: u64,
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
}

pub type Models = Rc<Vec<RefCell<Model>>>;

pub fn models() -> Models {
    Rc::new((0..LOGS).map(|_| RefCell::default()).collect())
}

/// Two topics with the same names of partitions, and records of the same sizes.
pub fn name_of(log: usize) -> LogName {
    let (topic, id) = if log.is_multiple_of(2) { ("orders", 7) } else { ("orders2", 8) };
    let partition = PartitionIndex((log / 2) as i32);
    LogName { topic: topic.to_owned(), partition, topic_id: TopicId([id; 16]) }
}

pub fn options(seed: u64) -> StorageOptions {
    let mut dice = Dice(seed ^ 0x0709);
    StorageOptions {
        first_room_bytes: [0, 4 << 10, 64 << 10][dice.below(3) as usize],
        commit_bytes_max: [16 << 10, 4 << 20][dice.below(2) as usize],
        tail_cache_bytes_max: [64 << 10, 256 << 10, 8 << 20][dice.below(3) as usize],
        recovery_point_bytes_max: [20 << 10, 200 << 10, 32 << 20][dice.below(3) as usize],
        spare_bytes_max: [0, 1 << 20][dice.below(2) as usize],
        checkpoint_interval: Duration::from_millis(5),
        no_space_retry: Duration::from_millis(5),
        cold_segments_max: 3,
        commit_log: if seed.is_multiple_of(5) { CommitLogUse::Auto } else { CommitLogUse::Always },
        commit_log_file_bytes: [64 << 10, 128 << 10, 1 << 20][dice.below(3) as usize],
        commit_log_files_max: 2 + dice.below(3) as usize,
        write_back_bytes: [2 << 10, 16 << 10, 256 << 10][dice.below(3) as usize],
        ..StorageOptions::default()
    }
}

pub fn config(seed: u64) -> LogConfig {
    let mut dice = Dice(seed ^ 0xC0F1);
    LogConfig {
        segment_bytes_max: [24 << 10, 100 << 10, 2 << 20][dice.below(3) as usize],
        index_interval_bytes: [1, 512, 4096][dice.below(3) as usize],
        ..LogConfig::default()
    }
}

pub fn append_some(log: &Log, number: usize, model: &RefCell<Model>, dice: &mut Dice) {
    for _ in 0..=dice.below(3) {
        let mut model = model.borrow_mut();
        let count = 1 + dice.below(3) as i32;
        let value_bytes = [100, 100, 300, 300, 3_000][dice.below(5) as usize];
        let seed = model.appends * LOGS as u64 + number as u64;
        model.appends += 1;
        let sequence = model.sequence;
        let bytes = producer_batch(count, value_bytes, seed, number as i64, sequence);
        match append(log, &bytes) {
            Ok(appended) => {
                assert_eq!(appended.base_offset.0, model.end(), "an append went to another place");
                let mut stamped = bytes;
                stamped[..8].copy_from_slice(&appended.base_offset.0.to_be_bytes());
                stamped[12..16].copy_from_slice(&log.epoch().0.to_be_bytes());
                model.sequence = sequence.wrapping_add(count);
                let (base, next, sequence) = (appended.base_offset.0, appended.last_offset.0 + 1, model.sequence);
                model.entries.push(Entry { base, next, bytes: stamped, sequence });
            }
            Err(AppendError::Full { .. } | AppendError::NoSpace | AppendError::Fenced(_) | AppendError::Closed) => {
                return;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

pub async fn work(reactor: Reactor, log: Log, number: usize, models: Models, mut dice: Dice, may_truncate: bool) {
    let model = &models[number];
    loop {
        append_some(&log, number, model, &mut dice);
        match dice.below(60) {
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
            1 if may_truncate => {
                let (from, to) = (model.borrow().log_start, model.borrow().end());
                let offset = from + dice.below((to - from + 1) as u64) as i64;
                model.borrow_mut().truncating = Some(offset);
                if let Ok(end) = log.truncate_to(Offset(offset)).await {
                    model.borrow_mut().cut(end.0);
                    model.borrow_mut().truncating = None;
                    let next = LeaderEpoch(log.epoch().0 + 1);
                    // Not if it is being closed.
                    if log.new_epoch(next, log.log_end()).await.is_err() {
                        return;
                    }
                }
            }
            2..=6 => check_read(&log, model, &mut dice).await,
            _ => {}
        }
        if dice.below(4) > 0 {
            let _ = log.commit().await;
            let mut model = model.borrow_mut();
            let durable = log.durable_end().0;
            assert!(durable >= model.acked, "durable end {durable} behind acknowledged {}", model.acked);
            model.acked = durable;
        }
        reactor.sleep(Duration::from_micros(dice.below(400))).await;
    }
}

/// What is acknowledged can be read, wherever it is.
pub async fn check_read(log: &Log, model: &RefCell<Model>, dice: &mut Dice) {
    use corelog_storage::log::ReadOutcome;
    let (start, end) = (log.log_start().0, log.durable_end().0);
    if start >= end {
        return;
    }
    let from = start + dice.below((end - start) as u64) as i64;
    let expected = {
        let model = model.borrow();
        let entry = model.entries.iter().find(|e| e.base <= from && from < e.next);
        entry.expect("an entry for an offset within the log").bytes.clone()
    };
    let found = match log.read(Offset(from), Offset(end), 2_000, true).expect("a read") {
        ReadOutcome::Empty => panic!("nothing at {from} of {:?}", log.status()),
        ReadOutcome::Hot(hot) => hot.slices.iter().flat_map(|s| s.to_vec()).collect(),
        ReadOutcome::Cold(plan) => {
            log.read_cold(plan).await.expect("a cold read").expect("acknowledged bytes").to_vec()
        }
    };
    assert!(found.starts_with(&expected), "the batch at {from} is another one");
}

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

/// A data folder with its shards and logs, open.
pub struct Broker {
    pub reactor: Reactor,
    pub envs: Vec<StorageEnv>,
    pub logs: Vec<Log>,
    pub _data: DataDir,
}

impl Broker {
    pub async fn open(reactor: Reactor, seed: u64, shards: usize, options: StorageOptions) -> Broker {
        let data = DataDir::open(&reactor, Path::new(DATA)).await.expect("a data folder");
        let env = |shard| StorageEnv::new(reactor.clone(), ShardId(shard as u16), data.share(), options.clone());
        let envs: Vec<StorageEnv> = (0..shards).map(env).collect();
        let mut logs = Vec::new();
        for log in 0..LOGS {
            let open = Log::open_or_create(&envs[log % shards], name_of(log), config(seed)).await;
            logs.push(open.expect("an open log"));
        }
        Broker { reactor, envs, logs, _data: data }
    }

    pub fn start(world: &SimWorld, node: NodeId, seed: u64, shards: usize, options: StorageOptions) -> Broker {
        let limits = ReactorLimits { pool_bytes_max: 64 << 20, ..ReactorLimits::default() };
        let reactor = world.reactor(node, limits);
        run(world, &reactor.clone(), Broker::open(reactor, seed, shards, options))
    }

    pub fn work(&self, world: &SimWorld, models: &Models, dice: &mut Dice, may_truncate: bool) {
        for (number, log) in self.logs.iter().enumerate() {
            let own = log.clone();
            run(world, &self.reactor, async move { lead(&own).await });
            let dice = Dice(dice.next());
            let task = work(self.reactor.clone(), log.clone(), number, models.clone(), dice, may_truncate);
            self.reactor.spawn(task).expect("a task");
        }
    }

    pub fn counters(&self) -> Vec<StorageCounters> {
        self.envs.iter().map(StorageEnv::counters).collect()
    }

    pub fn check(&self, world: &SimWorld, models: &Models) -> Result<(), String> {
        for (number, log) in self.logs.iter().enumerate() {
            if let Some(reason) = log.fenced() {
                return Err(format!("log {number} is fenced: {reason}"));
            }
            let own = log.clone();
            let found = run(world, &self.reactor, async move { read_all(&own, own.log_start(), 10_000).await });
            check(log, number, &found, &mut models[number].borrow_mut()).map_err(|e| format!("log {number}: {e}"))?;
        }
        Ok(())
    }

    pub fn close(&self, world: &SimWorld) {
        for log in self.logs.clone() {
            // Its worker may be at it, or it is fenced.
            run(world, &self.reactor, async move { drop(log.close().await) });
        }
        for env in self.envs.clone() {
            run(world, &self.reactor, async move {
                env.finish().await;
                env.flush_checkpoint().await.expect("a checkpoint");
            });
        }
    }
}

pub fn check(log: &Log, number: usize, found: &[u8], model: &mut Model) -> Result<(), String> {
    let (start, end) = (log.log_start().0, log.log_end().0);
    let mut acked = model.acked;
    if let Some(to) = model.truncating.take() {
        let floor = model.entries.iter().find(|e| to < e.next).map_or(to, |e| e.base);
        acked = acked.min(floor);
        if end == floor {
            model.log_start = model.log_start.min(floor);
        }
    }
    if end < acked {
        return Err(format!("log end {end} behind acknowledged {acked}"));
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
    let last = log.producers(|p| p.get(ProducerId(number as i64)).map(|e| e.last_offset().0));
    if end > 0 && last != Some(end - 1) {
        return Err(format!("the producer's last offset is {last:?}, the log's end {end}"));
    }
    Ok(())
}
