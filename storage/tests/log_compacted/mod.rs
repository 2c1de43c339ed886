//! What the tests of compaction share: the model of a compacted log, rounds, the simulated world around them.
#![allow(dead_code, unused_imports, clippy::unwrap_used, clippy::expect_used)]

use crate::log_common::*;
use crate::log_model::{Dice, run};
use corelog_reactor::sim::{DiskFault, NodeId, SimWorld};
use corelog_reactor::{Reactor, ReactorLimits};
use corelog_storage::batch::{
    AppendOrigin, BatchBuilder, Batches, DecompressScratch, Records, TargetCodec, decompress_all,
};
use corelog_storage::compact::Wishes;
use corelog_storage::disk::datadir::DataDir;
use corelog_storage::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};
use corelog_storage::log::{
    CommitLogUse, Compacted, CompactionError, CompactionRules, Damage, FenceReason, LeaderBatch, Log, LogConfig, Pace,
    ReadOutcome, StorageEnv, StorageOptions,
};
use corelog_storage::producers::EndMarker;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

pub const PRODUCER: i64 = 42;
/// Producers expire: records are of the year 2096.
pub const TIME: i64 = 4_000_000_000_000;

pub type Written = (u64, Option<Vec<u8>>);

/// All that was ever written and may still be there.
#[derive(Default)]
pub struct Model {
    pub records: BTreeMap<i64, Written>,
    pub sequence: i32,
    pub acked: i64,
    /// Rounds go up to here, and truncations no further back: as with a high watermark.
    pub stable: i64,
    pub truncating: Option<i64>,
    pub log_start: i64,
    pub deleting: Option<i64>,
    /// Retention that may have moved the log start, and to where at most.
    pub retaining: Option<i64>,
    /// The time, for tombstones; and how long after they were written they may go. Without it they stay.
    pub now: i64,
    pub tombstones_go_after: Option<i64>,
    written_at: BTreeMap<i64, i64>,
    /// Where a reader found nothing: nothing may come back there.
    gone: RefCell<BTreeSet<i64>>,
}

impl Model {
    pub fn end(&self) -> i64 {
        self.records.last_key_value().map_or(0, |(offset, _)| offset + 1)
    }

    /// Appends a batch of `count` records with keys below `keys`. Returns whether the log took it.
    pub fn append(&mut self, log: &Log, dice: &mut Dice, count: u64, keys: u64) -> bool {
        let codec = [TargetCodec::None, TargetCodec::Lz4, TargetCodec::Zstd { level: 1 }][dice.below(3) as usize];
        let mut builder =
            BatchBuilder::new(codec).producer(ProducerId(PRODUCER), ProducerEpoch(0), Sequence(self.sequence));
        let mut written = Vec::new();
        for n in 0..count {
            let key = dice.below(keys);
            let value = (!dice.one_in(12)).then(|| vec![1 + dice.below(200) as u8; dice.below(400) as usize]);
            let time = Timestamp(TIME + self.end() + n as i64);
            builder.append(time, Some(&key.to_be_bytes()), value.as_deref(), &[]);
            written.push((key, value));
        }
        let Ok(appended) = append(log, &builder.build().unwrap()) else {
            return false;
        };
        assert_eq!(appended.base_offset, log.log_end() + -(count as i64));
        for (n, record) in written.into_iter().enumerate() {
            self.records.insert(appended.base_offset.0 + n as i64, record);
            self.written_at.insert(appended.base_offset.0 + n as i64, self.now);
        }
        self.sequence += count as i32;
        true
    }

    pub fn newest(&self) -> BTreeMap<u64, i64> {
        self.records.iter().map(|(offset, (key, _))| (*key, *offset)).collect()
    }

    pub fn cut(&mut self, end: i64) {
        self.records.split_off(&end);
        self.gone.borrow_mut().split_off(&end);
        self.acked = self.acked.min(end);
        self.stable = self.stable.min(end);
        self.log_start = self.log_start.min(end);
    }

    /// What is wrong with a log that holds `found`.
    pub fn check(&mut self, log: &Log, found: &[u8]) -> Result<(), String> {
        if let Some(reason) = log.fenced() {
            return Err(format!("fenced: {reason}"));
        }
        let end = log.log_end().0;
        let truncating = self.truncating.take();
        let floor = truncating.map_or(self.acked, |to| to.min(self.acked));
        // Of a batch that holds the offset of a truncation nothing stays.
        if end < floor - if truncating.is_some() { 8 } else { 0 } && log.clean_to().is_none() {
            return Err(format!("log end {end} behind acknowledged {floor}"));
        }
        if truncating.is_none() && end < self.acked {
            return Err(format!("log end {end} behind acknowledged {}", self.acked));
        }
        self.cut(end);
        let starts = [Some(self.log_start), self.deleting.take()];
        let retaining = self.retaining.take();
        let is_retained = retaining.is_some_and(|to| (self.log_start..=to).contains(&log.log_start().0));
        if truncating.is_none() && !is_retained && !starts.contains(&Some(log.log_start().0)) {
            return Err(format!("log start {} instead of one of {starts:?}", log.log_start()));
        }
        self.log_start = log.log_start().0;
        self.acked = end;
        self.check_records(log, found)
    }

    /// Every record was written, each one once, in order.
    pub fn check_read(&self, found: &[u8]) -> Result<Vec<(i64, u64, Option<Vec<u8>>)>, String> {
        let seen = records(found);
        let mut next = 0;
        for (offset, key, value) in &seen {
            if *offset < next {
                return Err(format!("offset {offset} behind {next}"));
            }
            next = offset + 1;
            match self.records.get(offset) {
                Some((k, v)) if k == key && v == value => {}
                other => return Err(format!("record {offset} with key {key} instead of {other:?}")),
            }
        }
        Ok(seen)
    }

    /// Every record that is there was written, and of each key the newest one is there.
    pub fn check_records(&self, log: &Log, found: &[u8]) -> Result<(), String> {
        let start = log.log_start().0;
        let seen = self.check_read(found)?;
        let there: BTreeMap<i64, ()> = seen.iter().map(|(offset, ..)| (*offset, ())).collect();
        for (key, offset) in self.newest() {
            if offset < start || there.contains_key(&offset) {
                continue;
            }
            let is_tombstone = self.records[&offset].1.is_none();
            let may_go = self.tombstones_go_after.is_some_and(|after| self.written_at[&offset] + after <= self.now);
            if !is_tombstone || !may_go {
                return Err(format!("the newest record of key {key}, {offset}, is not there"));
            }
            if let Some((older, ..)) = seen.iter().find(|(_, k, _)| *k == key) {
                return Err(format!("the tombstone {offset} of key {key} is gone, and {older} is there"));
            }
        }
        let mut gone = self.gone.borrow_mut();
        if let Some(back) = there.keys().find(|offset| gone.contains(offset)) {
            return Err(format!("record {back} was gone, and is back"));
        }
        let last = seen.last().map_or(start, |(offset, ..)| *offset);
        let missing = self.records.range(start..last.max(start)).filter(|(offset, _)| !there.contains_key(offset));
        gone.extend(missing.map(|(offset, _)| *offset));
        drop(gone);
        let clean_to = log.clean_to().unwrap_or(Offset::ZERO).0.max(start);
        // An exchange of the round under way may have taken records out behind that, but never one that is not stable.
        for (offset, _) in self.records.range(clean_to.max(self.stable)..) {
            if !there.contains_key(offset) {
                return Err(format!("record {offset} is not there, compacted up to {clean_to}"));
            }
        }
        Ok(())
    }
}

/// Offset, key and value of all records.
pub fn records(bytes: &[u8]) -> Vec<(i64, u64, Option<Vec<u8>>)> {
    let mut out = Vec::new();
    let mut scratch = DecompressScratch::new();
    for batch in Batches::new(bytes) {
        let batch = batch.expect("a whole batch");
        assert!(batch.crc_ok(), "CRC of batch {}", batch.header.base_offset);
        if batch.header.record_count == 0 {
            continue;
        }
        let codec = batch.header.attributes.compression().expect("a codec");
        let payload = decompress_all(codec, batch.payload(), 1 << 24, &mut scratch).expect("sound data");
        for record in Records::new(&batch.header, &payload) {
            let record = record.expect("a sound record");
            assert_eq!(record.timestamp.0, TIME + record.offset.0, "the time of record {}", record.offset);
            let key = u64::from_be_bytes(record.key.expect("a key").try_into().expect("eight bytes"));
            out.push((record.offset.0, key, record.value.map(<[u8]>::to_vec)));
        }
    }
    out
}

pub fn config(segment_bytes_max: u32) -> LogConfig {
    LogConfig { segment_bytes_max, index_interval_bytes: 512, ..LogConfig::default() }
}

pub fn options(dice: &mut Dice) -> StorageOptions {
    StorageOptions {
        first_room_bytes: [0, 4 << 10][dice.below(2) as usize],
        tail_cache_bytes_max: [16 << 10, 8 << 20][dice.below(2) as usize],
        checkpoint_interval: Duration::from_millis(5),
        no_space_retry: Duration::from_millis(5),
        spare_bytes_max: 0,
        cold_segments_max: 3,
        range_bytes_min: 512,
        commit_log: [CommitLogUse::Always, CommitLogUse::Auto, CommitLogUse::Never][dice.below(3) as usize],
        commit_log_file_bytes: 64 << 10,
        ..StorageOptions::default()
    }
}

pub fn rules() -> CompactionRules {
    CompactionRules {
        wishes: Wishes { dirty_ratio_min: 0.0, lag_ms_min: 0, lag_ms_max: i64::MAX },
        delete_retention_ms: i64::MAX / 4,
        slice_bytes: 4 << 10,
        ..CompactionRules::default()
    }
}

pub fn pace() -> Pace {
    Pace::new(1.0, f64::MAX)
}

pub async fn compact(log: &Log, rules: &CompactionRules) -> Result<Option<Compacted>, CompactionError> {
    compact_below(log, rules, log.durable_end()).await
}

pub async fn compact_below(
    log: &Log,
    rules: &CompactionRules,
    stable: Offset,
) -> Result<Option<Compacted>, CompactionError> {
    let Some(candidate) = log.compaction_candidate(rules, stable, Timestamp(TIME)).await? else {
        return Ok(None);
    };
    log.compact(&candidate, rules, &pace()).await.map(Some)
}

pub fn reactor_of(world: &SimWorld, node: NodeId) -> Reactor {
    world.reactor(node, ReactorLimits { pool_bytes_max: 64 << 20, ..ReactorLimits::default() })
}

pub async fn open(reactor: Reactor, config: LogConfig, options: StorageOptions) -> (DataDir, StorageEnv, Log) {
    let (data, env) = storage(&reactor, Path::new("/data"), options).await;
    let log = Log::open_or_create(&env, name(), config).await.expect("an open log");
    (data, env, log)
}

/// Appends batches until there are `segments` segments, all but the last one sealed.
pub async fn fill(reactor: &Reactor, log: &Log, model: &RefCell<Model>, dice: &mut Dice, segments: usize, keys: u64) {
    while log.status().segments < segments {
        let count = 1 + dice.below(8);
        assert!(model.borrow_mut().append(log, dice, count, keys), "{:?}", log.status());
        commit_all(log).await;
        model.borrow_mut().acked = log.durable_end().0;
    }
    reactor.sleep(Duration::from_millis(100)).await;
}

/// A log that is opened, led and filled: what a round begins with. Keep the first for as long as the log is used.
pub async fn filled(
    reactor: &Reactor,
    mut dice: Dice,
    config: LogConfig,
    segments: usize,
    keys: u64,
) -> ((DataDir, StorageEnv), Log, Rc<RefCell<Model>>, Dice) {
    let model: Rc<RefCell<Model>> = Rc::default();
    let (data, env, log) = open(reactor.clone(), config, options(&mut dice)).await;
    lead(&log).await;
    fill(reactor, &log, &model, &mut dice, segments, keys).await;
    ((data, env), log, model, dice)
}

pub fn files(reactor: &Reactor) -> Vec<String> {
    let entries = reactor.list_dir(Path::new("/data/orders-0")).unwrap();
    let mut names: Vec<String> = entries.iter().map(|e| e.name.to_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

/// All from the log start on, as much of it as possible by ranges of files. Ends where a file was taken back.
pub async fn read_ranges(reactor: &Reactor, log: &Log, piece: usize) -> (Vec<u8>, usize) {
    let (mut all, mut at, mut ranges) = (Vec::new(), log.log_start(), 0);
    while at < log.log_end() {
        at = match log.read(at, log.log_end(), piece, true).expect("a read") {
            ReadOutcome::Empty => panic!("nothing at {at} of {:?}", log.status()),
            ReadOutcome::Hot(hot) => {
                hot.slices.iter().for_each(|s| all.extend_from_slice(s));
                hot.next_offset
            }
            ReadOutcome::Cold(plan) => match log.cold_range(&plan).await {
                Some(range) => {
                    // A client takes its time.
                    reactor.sleep(Duration::from_micros(50)).await;
                    let (read, bytes) = range.file.read_at(reactor, vec![0; range.bytes()], range.start).await;
                    if range.file.is_revoked() {
                        break;
                    }
                    assert_eq!(read.expect("a read"), range.bytes(), "{range:?}");
                    all.extend_from_slice(&bytes);
                    ranges += 1;
                    range.next_offset
                }
                None => {
                    let cold = log.read_cold(plan).await.expect("a cold read").expect("bytes");
                    all.extend_from_slice(&cold);
                    cold.next_offset
                }
            },
        };
    }
    (all, ranges)
}
