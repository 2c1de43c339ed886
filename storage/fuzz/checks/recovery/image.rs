//! Folders as the engine leaves them, on the simulated disk.
//!
//! Holds: the making of a few tiny data folders, and what is in them. Never touches: damage.

use super::sim::{Machine, OPTIONS, TOPIC, name};
use corelog_storage::batch::{AppendOrigin, BatchBuilder, Batches, TargetCodec, TimestampType};
use corelog_storage::disk::checkpoint::{CheckpointSet, LogKey};
use corelog_storage::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};
use corelog_storage::log::{LeaderBatch, Log, LogConfig, StorageOptions};
use std::collections::BTreeMap;

/// The producer of every second batch.
pub const PRODUCER: ProducerId = ProducerId(42);

/// The files of a data folder, by their path within it.
pub type Files = BTreeMap<String, Vec<u8>>;

/// A batch in a segment.
#[derive(Clone, Debug)]
pub struct Known {
    pub file: String,
    pub end_position: usize,
    pub base: Offset,
    pub last: Offset,
    pub bytes: Vec<u8>,
}

/// A sound folder.
#[derive(Clone, Debug)]
pub struct Image {
    pub files: Files,
    pub batches: Vec<Known>,
    pub log_start: Offset,
    pub log_end: Offset,
    /// Everything below this was on stable storage, indexed and in a snapshot.
    pub recovery: Offset,
    /// The last offset of [`PRODUCER`].
    pub producer_end: Offset,
    pub config: LogConfig,
}

/// How a folder came to be.
#[derive(Clone, Copy)]
struct Recipe {
    batches: u64,
    /// Appended bytes between two recovery points.
    recovery_point_bytes_max: u64,
    segment_bytes_max: u32,
    delete_to: i64,
    is_closed: bool,
    first_room_bytes: u64,
}

const CRASHED: Recipe = Recipe {
    batches: 22,
    recovery_point_bytes_max: 1 << 20,
    segment_bytes_max: 2048,
    delete_to: 0,
    is_closed: false,
    first_room_bytes: 4096,
};

const RECIPES: [Recipe; 6] = [
    CRASHED,
    // A recovery point within the active segment.
    Recipe { recovery_point_bytes_max: 500, first_room_bytes: 0, ..CRASHED },
    Recipe { is_closed: true, ..CRASHED },
    Recipe { delete_to: 13, recovery_point_bytes_max: 500, ..CRASHED },
    Recipe { batches: 0, ..CRASHED },
    // An active segment of several blocks, of which recovery need not read the first ones.
    Recipe { batches: 60, recovery_point_bytes_max: 2000, segment_bytes_max: 1 << 20, ..CRASHED },
];

/// All of them.
pub fn all() -> Vec<Image> {
    RECIPES.iter().map(make).collect()
}

/// An index entry for almost every batch.
const fn config_of(recipe: &Recipe) -> LogConfig {
    LogConfig {
        segment_bytes_max: recipe.segment_bytes_max,
        segment_ms_max: i64::MAX,
        segment_jitter_ms_max: 0,
        index_bytes_max: 10 << 20,
        index_interval_bytes: 100,
        message_bytes_max: 1 << 20,
        timestamp_type: TimestampType::CreateTime,
        producer_idle_ms_max: 86_400_000,
        retention_ms_max: None,
        retention_bytes_max: None,
        file_delete_delay_ms: 0,
    }
}

/// A batch of one to three records, from [`PRODUCER`] every second time.
pub fn batch(number: u64, sequence: i32) -> Vec<u8> {
    let count = 1 + (number % 3) as i32;
    let mut builder = BatchBuilder::new(TargetCodec::None);
    if number.is_multiple_of(2) {
        builder = builder.producer(PRODUCER, ProducerEpoch(0), Sequence(sequence));
    }
    for nth in 0..count {
        // Never zero: the disk's zeroes must not look like data.
        let value: Vec<u8> =
            (0..(number * 41 + 7) % 120).map(|at| (at * 37 + number * 11 + nth as u64) as u8 | 1).collect();
        // Idle producers expire: this one writes in the year 2096.
        let time = Timestamp(4_000_000_000_000 + ((number * 7) % 10) as i64);
        builder.append(time, Some(b"k"), Some(&value), &[]);
    }
    builder.build().expect("a batch")
}

/// Appends a batch and makes it durable.
pub async fn append(log: &Log, bytes: &[u8]) {
    let batch = LeaderBatch::as_it_is(bytes, AppendOrigin::Client).expect("a batch");
    log.append_as_leader(batch, log.epoch(), Timestamp(2_000_000)).expect("an append");
    while log.needs_commit() {
        log.commit().await.expect("a commit");
    }
}

/// Begins the next leader epoch.
pub async fn lead(log: &Log) {
    let next = LeaderEpoch(log.epoch().0 + 1);
    log.new_epoch(next, log.log_end()).expect("a new epoch");
}

fn make(recipe: &Recipe) -> Image {
    let recipe = *recipe;
    let machine = Machine::new(7, &Files::new());
    let options = StorageOptions {
        recovery_point_bytes_max: recipe.recovery_point_bytes_max,
        first_room_bytes: recipe.first_room_bytes,
        ..OPTIONS()
    };
    let (log_start, log_end, producer_end) = machine.run(options, move |_, env| async move {
        let log = Log::create(&env, name(), config_of(&recipe)).await.expect("a log");
        lead(&log).await;
        let mut sequence = 0;
        for number in 0..recipe.batches {
            if number == recipe.batches / 2 {
                lead(&log).await;
            }
            append(&log, &batch(number, sequence)).await;
            if number.is_multiple_of(2) {
                sequence += 1 + (number % 3) as i32;
            }
            // The keeper seals and moves the recovery point meanwhile.
            env.reactor().sleep(std::time::Duration::from_millis(20)).await;
        }
        if recipe.delete_to > 0 {
            log.delete_records(Offset(recipe.delete_to)).await.expect("a new log start");
            env.reactor().sleep(std::time::Duration::from_millis(100)).await;
        }
        if recipe.is_closed {
            log.close().await.expect("a closed log");
        } else {
            env.flush_checkpoint().await.expect("a checkpoint");
        }
        (log.log_start(), log.log_end(), log.producers(|p| p.get(PRODUCER).map_or(Offset::NONE, |e| e.last_offset())))
    });
    machine.crash();
    let files = machine.files();
    let recovery = checkpoint_of(&files).map_or(Offset::ZERO, |entry| entry.recovery.offset);
    let batches = files.iter().filter(|(path, _)| path.ends_with(".log")).flat_map(batches_of).collect();
    Image { batches, files, log_start, log_end, recovery, producer_end, config: config_of(&recipe) }
}

/// What the checkpoint files say about the log, if they can be read.
pub fn checkpoint_of(files: &Files) -> Option<corelog_storage::disk::checkpoint::CheckpointEntry> {
    let mut merged = CheckpointSet::default();
    for (_, bytes) in files.iter().filter(|(path, _)| path.starts_with("log-checkpoint")) {
        merged.merge(CheckpointSet::decode(bytes).ok()?);
    }
    merged.get(&key()).cloned()
}

/// The log's key.
pub fn key() -> LogKey {
    LogKey { topic_id: name().topic_id, partition: name().partition }
}

fn batches_of((path, bytes): (&String, &Vec<u8>)) -> Vec<Known> {
    assert!(path.starts_with(TOPIC), "a segment at {path}");
    let mut at = 0;
    let mut found = Vec::new();
    for batch in Batches::new(bytes) {
        let Ok(batch) = batch else { break };
        let end = at + batch.bytes.len();
        found.push(Known {
            file: path.clone(),
            end_position: end,
            base: batch.header.base_offset,
            last: batch.header.last_offset().expect("offsets"),
            bytes: batch.bytes.to_vec(),
        });
        at = end;
    }
    found
}
