//! Many logs in one data folder, on one or more shards, and the model of what each must be.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used)]

use crate::log_common::*;
use crate::log_model::*;
use corelog_reactor::sim::{NodeId, SimWorld};
use corelog_reactor::{Reactor, ReactorLimits, ShardId};
use corelog_storage::disk::datadir::DataDir;
use corelog_storage::ids::{Offset, PartitionIndex, TopicId};
use corelog_storage::log::{CommitLogUse, Log, LogName, StorageCounters, StorageEnv, StorageOptions};
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

pub const DATA: &str = "/data";
pub const LOGS: usize = 6;

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

pub fn append_some(log: &Log, number: usize, model: &RefCell<Model>, dice: &mut Dice) {
    for _ in 0..=dice.below(3) {
        let mut model = model.borrow_mut();
        let count = 1 + dice.below(3) as i32;
        let value_bytes = [100, 100, 300, 300, 3_000][dice.below(5) as usize];
        let seed = model.appends * LOGS as u64 + number as u64;
        if !model.append(log, number as i64, count, value_bytes, seed) {
            return;
        }
    }
}

pub async fn work(reactor: Reactor, log: Log, number: usize, models: Models, mut dice: Dice, may_truncate: bool) {
    let model = &models[number];
    loop {
        append_some(&log, number, model, &mut dice);
        match dice.below(60) {
            0 => delete_some(&log, model, &mut dice).await,
            7 => retain_some(&log, model, &mut dice).await,
            1 if may_truncate => {
                let (from, to) = (model.borrow().log_start, model.borrow().end());
                let offset = from + dice.below((to - from + 1) as u64) as i64;
                model.borrow_mut().truncating = Some(offset);
                if let Ok(end) = log.truncate_to(Offset(offset)).await {
                    model.borrow_mut().cut(end.0);
                    model.borrow_mut().truncating = None;
                    // Not if it is being closed.
                    if !model.borrow_mut().lead(&log) {
                        return;
                    }
                }
            }
            2..=6 => check_read(&log, model, &mut dice, log.durable_end()).await,
            _ => {}
        }
        if dice.below(4) > 0 {
            commit_some(&log, model).await;
        }
        reactor.sleep(Duration::from_micros(dice.below(400))).await;
    }
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

    pub fn work(&self, models: &Models, dice: &mut Dice, may_truncate: bool) {
        for (number, log) in self.logs.iter().enumerate() {
            assert!(models[number].borrow_mut().lead(log), "a new leader");
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
            let own = log.clone();
            let found = run(world, &self.reactor, async move { read_all(&own, own.log_start(), 10_000).await });
            let mut model = models[number].borrow_mut();
            model.check(log, number as i64, &found).map_err(|e| format!("log {number}: {e}"))?;
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
