//! What the tests of retention share: a simulated node with one log of records of one size, and its files.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::log_common::*;
use corelog_reactor::Reactor;
use corelog_storage::batch::{BatchBuilder, HEADER_BYTES, TargetCodec};
use corelog_storage::disk::datadir::DataDir;
use corelog_storage::ids::Timestamp;
use corelog_storage::log::{Log, LogConfig, StorageEnv, StorageOptions};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Batches of one record are as large as this one.
pub const BATCH_BYTES: u64 = HEADER_BYTES as u64 + 1_009;
/// Batches in a segment.
pub const PER_SEGMENT: i64 = 4;
/// The time of the first record.
pub const THEN: i64 = 4_000_000_000_000;

pub fn config() -> LogConfig {
    LogConfig { segment_bytes_max: (BATCH_BYTES * PER_SEGMENT as u64) as u32, ..LogConfig::default() }
}

pub fn hurried_bench(seed: u64) -> Bench {
    let bench = bench(seed);
    Bench { options: hurried(bench.options.clone()), ..bench }
}

fn hurried(options: StorageOptions) -> StorageOptions {
    let wait = Duration::from_millis(5);
    StorageOptions { no_space_retry: wait, checkpoint_interval: wait, ..options }
}

impl Bench {
    pub fn files(&self) -> Vec<String> {
        files(&self.reactor)
    }

    /// The log's files, once nothing happens any more.
    pub async fn files_in_the_end(&self) -> Vec<String> {
        self.reactor.sleep(Duration::from_secs(2)).await;
        self.files()
    }
}

pub async fn open(reactor: &Reactor, config: LogConfig, options: StorageOptions) -> (DataDir, StorageEnv, Log) {
    let (data, env) = storage(reactor, Path::new("/data"), hurried(options)).await;
    let log = Log::open_or_create(&env, name(), config).await.unwrap();
    (data, env, log)
}

pub fn files(reactor: &Reactor) -> Vec<String> {
    let entries = reactor.list_dir(Path::new("/data/orders-0")).unwrap();
    let mut names: Vec<String> = entries.into_iter().map(|e| e.name.into_string().unwrap()).collect();
    names.sort();
    names
}

pub fn path(base: i64, suffix: &str) -> PathBuf {
    PathBuf::from(format!("/data/orders-0/{base:020}{suffix}"))
}

/// The records' files.
pub fn logs(files: &[String]) -> Vec<i64> {
    files.iter().filter_map(|name| name.strip_suffix(".log")?.parse().ok()).collect()
}

pub fn one_record(time: i64) -> Vec<u8> {
    let mut builder = BatchBuilder::new(TargetCodec::None);
    builder.append(Timestamp(time), None, Some(&[7; 1_000]), &[]);
    let bytes = builder.build().unwrap();
    assert_eq!(bytes.len() as u64, BATCH_BYTES, "the size of a batch in these tests");
    bytes
}

/// Appends a record for each time, committed one by one.
pub async fn fill(log: &Log, times: impl IntoIterator<Item = i64>) {
    lead(log).await;
    for time in times {
        append(log, &one_record(time)).unwrap();
        commit_all(log).await;
    }
}

/// One record a second.
pub fn seconds(count: i64) -> impl Iterator<Item = i64> {
    (0..count).map(|n| THEN + n * 1_000)
}

pub async fn retain(log: &Log, now: i64) -> (u64, u64) {
    let retained = log.retain(Timestamp(now), log.durable_end()).await.unwrap();
    (retained.over_size.segments, retained.expired.segments)
}

pub fn limits(log: &Log, bytes: Option<u64>, ms: Option<i64>) {
    log.set_config(LogConfig { retention_bytes_max: bytes, retention_ms_max: ms, ..log.config() });
}
