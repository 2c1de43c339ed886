//! What the log tests share: batches, a simulated node, an opened data folder, reading everything back.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used)]

use corelog_reactor::ring::{RingConfig, RingDriver};
use corelog_reactor::sim::{NodeId, SimDisk, SimWorld};
use corelog_reactor::{Reactor, ReactorLimits, ShardId};
use corelog_storage::batch::{AppendOrigin, BatchBuilder, Batches, TargetCodec};
use corelog_storage::disk::datadir::DataDir;
use corelog_storage::ids::{
    LeaderEpoch, Offset, PartitionIndex, ProducerEpoch, ProducerId, Sequence, Timestamp, TopicId,
};
use corelog_storage::log::{
    AppendError, Appended, LeaderBatch, Log, LogConfig, LogName, ReadOutcome, StorageEnv, StorageOptions,
};
use std::path::Path;
use std::time::Duration;

/// The time of all records of idempotent producers: these expire, and so they write in the year 2096.
pub const PRODUCED_AT: i64 = 4_000_000_000_000;

/// A batch of `count` records with values of `value_bytes`, derived from `seed`.
pub fn batch(count: i32, value_bytes: usize, seed: u64) -> Vec<u8> {
    build(BatchBuilder::new(TargetCodec::None), count, value_bytes, seed, 1_000_000 + seed as i64)
}

/// The same from an idempotent producer.
pub fn producer_batch(count: i32, value_bytes: usize, seed: u64, id: i64, sequence: i32) -> Vec<u8> {
    let builder = BatchBuilder::new(TargetCodec::None).producer(ProducerId(id), ProducerEpoch(0), Sequence(sequence));
    build(builder, count, value_bytes, seed, PRODUCED_AT)
}

fn build(mut builder: BatchBuilder, count: i32, value_bytes: usize, seed: u64, time: i64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    for _ in 0..count {
        let value: Vec<u8> = (0..value_bytes)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                // Never zero: the disk's zeroes must not look like data.
                (state >> 32) as u8 | 1
            })
            .collect();
        builder.append(Timestamp(time), None, Some(&value), &[]);
    }
    builder.build().expect("a batch")
}

pub fn name() -> LogName {
    LogName { topic: "orders".to_owned(), partition: PartitionIndex(0), topic_id: TopicId([7; 16]) }
}

/// A reactor on the real ring.
pub fn ring() -> Reactor {
    let driver = RingDriver::new(RingConfig::default()).expect("io_uring");
    let limits = ReactorLimits { pool_bytes_max: 64 << 20, ..ReactorLimits::default() };
    Reactor::new(Box::new(driver), limits)
}

/// A simulated node with a disk of its own.
pub struct Bench {
    pub world: SimWorld,
    pub node: NodeId,
    pub reactor: Reactor,
    /// What logs are opened with.
    pub options: StorageOptions,
}

/// Not attached to the world: `block_on` runs it.
pub fn bench(seed: u64) -> Bench {
    let world = SimWorld::new(seed);
    let node = world.add_node();
    let reactor = start(&world, node);
    let options = StorageOptions { no_space_retry: Duration::from_millis(5), ..StorageOptions::default() };
    Bench { world, node, reactor, options }
}

/// A reactor on a simulated node, not attached to its world.
pub fn start(world: &SimWorld, node: NodeId) -> Reactor {
    let limits = ReactorLimits { pool_bytes_max: 64 << 20, ..ReactorLimits::default() };
    Reactor::new(world.driver(node), limits)
}

impl Bench {
    pub fn disk(&self) -> SimDisk {
        self.world.disk(self.node)
    }

    pub fn cut_power(&mut self) {
        self.world.crash(self.node);
        self.reactor = start(&self.world, self.node);
    }

    /// A process that ends without a word.
    pub fn kill(&mut self) {
        self.reactor = start(&self.world, self.node);
    }

    pub async fn open(&self, config: LogConfig) -> (DataDir, StorageEnv, Log) {
        self.open_with(config, self.options.clone()).await
    }

    pub async fn open_with(&self, config: LogConfig, options: StorageOptions) -> (DataDir, StorageEnv, Log) {
        let (data, env) = storage(&self.reactor, Path::new("/data"), options).await;
        let log = Log::open_or_create(&env, name(), config).await.unwrap();
        (data, env, log)
    }
}

/// A data folder with the storage of shard 0. Keep the first for as long as the second is used.
pub async fn storage(reactor: &Reactor, path: &Path, options: StorageOptions) -> (DataDir, StorageEnv) {
    let data = DataDir::open(reactor, path).await.expect("a data folder");
    let env = StorageEnv::new(reactor.clone(), ShardId(0), data.share(), options);
    env.remove_leftovers(data.leftovers().to_vec());
    (data, env)
}

pub fn append(log: &Log, bytes: &[u8]) -> Result<Appended, AppendError> {
    let batch = LeaderBatch::as_it_is(bytes, AppendOrigin::Client).expect("a batch");
    log.append_as_leader(batch, log.epoch(), Timestamp(2_000_000))
}

pub async fn commit_all(log: &Log) {
    while log.needs_commit() {
        log.commit().await.expect("a commit");
    }
}

/// Begins the next leader epoch at the log's end.
pub async fn lead(log: &Log) {
    let next = LeaderEpoch(log.epoch().0 + 1);
    log.new_epoch(next, log.log_end()).expect("a new epoch");
}

/// All batches from `from` on, read in pieces of about `piece` bytes.
pub async fn read_all(log: &Log, from: Offset, piece: usize) -> Vec<u8> {
    let mut all = Vec::new();
    let mut at = from;
    while at < log.log_end() {
        let next = match log.read(at, log.log_end(), piece, true).expect("a read") {
            ReadOutcome::Empty => panic!("nothing at {at} of {:?}", log.status()),
            ReadOutcome::Hot(hot) => {
                let bytes: usize = hot.slices.iter().map(|s| s.len()).sum();
                assert_eq!(bytes, hot.bytes);
                hot.slices.iter().for_each(|s| all.extend_from_slice(s));
                hot.next_offset
            }
            ReadOutcome::Cold(plan) => {
                let cold = log.read_cold(plan).await.expect("a cold read").expect("bytes");
                all.extend_from_slice(&cold);
                cold.next_offset
            }
        };
        assert!(next > at, "the read at {at} leads to {next}");
        at = next;
    }
    all
}

/// Base and last offsets of the batches in `bytes`, each with a good CRC.
pub fn offsets(bytes: &[u8]) -> Vec<(i64, i64)> {
    Batches::new(bytes)
        .map(|b| {
            let b = b.expect("a whole batch");
            assert!(b.crc_ok(), "CRC of the batch at {}", b.header.base_offset);
            (b.header.base_offset.0, b.header.last_offset().expect("offsets").0)
        })
        .collect()
}
