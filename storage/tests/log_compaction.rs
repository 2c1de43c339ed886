//! Compaction of a log against a model, through power cuts and disk faults: on the simulated disk.
//!
//! At any time: every record that is there is one that was written, at its offset; of each key the newest one is there;
//! behind what was compacted all are there; and no log is fenced by a crash.
//! Run one seed with `CORELOG_SEED=n`, more of them with `CORELOG_SEEDS=n`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod log_common;
mod log_model;

use corelog_reactor::sim::{DiskFault, NodeId, SimWorld};
use corelog_reactor::{Reactor, ReactorLimits};
use corelog_storage::batch::{
    AppendOrigin, BatchBuilder, Batches, DecompressScratch, Records, TargetCodec, decompress_all,
};
use corelog_storage::compact::Wishes;
use corelog_storage::disk::datadir::DataDir;
use corelog_storage::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};
use corelog_storage::log::{
    Compacted, CompactionError, CompactionRules, Damage, FenceReason, LeaderBatch, Log, LogConfig, Pace, ReadOutcome,
    StorageEnv, StorageOptions,
};
use corelog_storage::producers::EndMarker;
use log_common::*;
use log_model::{Dice, run, seeds};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

const PRODUCER: i64 = 42;
/// Producers expire: records are of the year 2096.
const TIME: i64 = 4_000_000_000_000;

type Written = (u64, Option<Vec<u8>>);

/// All that was ever written and may still be there.
#[derive(Default)]
struct Model {
    records: BTreeMap<i64, Written>,
    sequence: i32,
    acked: i64,
    /// Rounds go up to here, and truncations no further back: as with a high watermark.
    stable: i64,
    truncating: Option<i64>,
    log_start: i64,
    deleting: Option<i64>,
}

impl Model {
    fn end(&self) -> i64 {
        self.records.last_key_value().map_or(0, |(offset, _)| offset + 1)
    }

    /// Appends a batch of `count` records with keys below `keys`. Returns whether the log took it.
    fn append(&mut self, log: &Log, dice: &mut Dice, count: u64, keys: u64) -> bool {
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
        }
        self.sequence += count as i32;
        true
    }

    fn newest(&self) -> BTreeMap<u64, i64> {
        self.records.iter().map(|(offset, (key, _))| (*key, *offset)).collect()
    }

    fn cut(&mut self, end: i64) {
        self.records.split_off(&end);
        self.acked = self.acked.min(end);
        self.stable = self.stable.min(end);
        self.log_start = self.log_start.min(end);
    }

    /// What is wrong with a log that holds `found`.
    fn check(&mut self, log: &Log, found: &[u8]) -> Result<(), String> {
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
        if truncating.is_none() && !starts.contains(&Some(log.log_start().0)) {
            return Err(format!("log start {} instead of one of {starts:?}", log.log_start()));
        }
        self.log_start = log.log_start().0;
        self.acked = end;
        self.check_records(log, found)
    }

    fn check_records(&self, log: &Log, found: &[u8]) -> Result<(), String> {
        let start = log.log_start().0;
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
        let there: BTreeMap<i64, ()> = seen.iter().map(|(offset, ..)| (*offset, ())).collect();
        for (key, offset) in self.newest() {
            if offset >= start && !there.contains_key(&offset) {
                return Err(format!("the newest record of key {key}, {offset}, is not there"));
            }
        }
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
fn records(bytes: &[u8]) -> Vec<(i64, u64, Option<Vec<u8>>)> {
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

fn config(segment_bytes_max: u32) -> LogConfig {
    LogConfig { segment_bytes_max, index_interval_bytes: 512, ..LogConfig::default() }
}

fn options(dice: &mut Dice) -> StorageOptions {
    StorageOptions {
        first_room_bytes: [0, 4 << 10][dice.below(2) as usize],
        tail_cache_bytes_max: [16 << 10, 8 << 20][dice.below(2) as usize],
        checkpoint_interval: Duration::from_millis(5),
        no_space_retry: Duration::from_millis(5),
        spare_bytes_max: 0,
        cold_segments_max: 3,
        ..StorageOptions::default()
    }
}

fn rules() -> CompactionRules {
    CompactionRules {
        wishes: Wishes { dirty_ratio_min: 0.0, lag_ms_min: 0, lag_ms_max: i64::MAX },
        delete_retention_ms: i64::MAX / 4,
        slice_bytes: 4 << 10,
        ..CompactionRules::default()
    }
}

fn pace() -> Pace {
    Pace::new(f64::MAX)
}

async fn compact(log: &Log, rules: &CompactionRules) -> Result<Option<Compacted>, CompactionError> {
    compact_below(log, rules, log.durable_end()).await
}

async fn compact_below(
    log: &Log,
    rules: &CompactionRules,
    stable: Offset,
) -> Result<Option<Compacted>, CompactionError> {
    let Some(candidate) = log.compaction_candidate(rules, stable, Timestamp(TIME)).await? else {
        return Ok(None);
    };
    log.compact(&candidate, rules, &pace()).await.map(Some)
}

fn reactor_of(world: &SimWorld, node: NodeId) -> Reactor {
    world.reactor(node, ReactorLimits { pool_bytes_max: 64 << 20, ..ReactorLimits::default() })
}

async fn open(reactor: Reactor, config: LogConfig, options: StorageOptions) -> (DataDir, StorageEnv, Log) {
    let (data, env) = storage(&reactor, Path::new("/data"), options).await;
    let log = Log::open_or_create(&env, name(), config).await.expect("an open log");
    (data, env, log)
}

/// Appends batches until there are `segments` segments, all but the last one sealed.
async fn fill(reactor: &Reactor, log: &Log, model: &RefCell<Model>, dice: &mut Dice, segments: usize, keys: u64) {
    while log.status().segments < segments {
        let count = 1 + dice.below(8);
        assert!(model.borrow_mut().append(log, dice, count, keys), "{:?}", log.status());
        commit_all(log).await;
        model.borrow_mut().acked = log.durable_end().0;
    }
    reactor.sleep(Duration::from_millis(100)).await;
}

fn files(reactor: &Reactor) -> Vec<String> {
    let entries = reactor.list_dir(Path::new("/data/orders-0")).unwrap();
    let mut names: Vec<String> = entries.iter().map(|e| e.name.to_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_round_leaves_the_newest_record_of_each_key_and_the_log_goes_on() {
    let world = SimWorld::new(1);
    let node = world.add_node();
    let model: Rc<RefCell<Model>> = Rc::default();
    let reactor = reactor_of(&world, node);
    let own = (reactor.clone(), model.clone());
    run(&world, &reactor, async move {
        let (reactor, model) = own;
        let mut dice = Dice(1);
        let (_data, _env, log) = open(reactor.clone(), config(16 << 10), options(&mut dice)).await;
        lead(&log).await;
        fill(&reactor, &log, &model, &mut dice, 9, 30).await;
        let before = (log.log_end(), log.status().bytes);
        let done = compact(&log, &rules()).await.unwrap().expect("a round");
        assert_eq!(done.segments, (8, 1));
        assert_eq!(log.status().segments, 2);
        assert!(log.status().bytes < before.1 / 2, "{:?} after {before:?}", log.status());
        assert_eq!(Some(done.clean_to), log.clean_to());
        assert_eq!(log.log_end(), before.0);
        let all = read_all(&log, Offset(0), 10_000).await;
        model.borrow_mut().check(&log, &all).unwrap();
        let dirty = records(&all).iter().filter(|(offset, ..)| *offset < done.clean_to.0).count();
        assert!(dirty <= 30, "{dirty} records of 30 keys");
        // Nothing is left to do, and doing it all the same changes nothing.
        assert!(compact(&log, &rules()).await.unwrap().is_none());
        // From any offset, also one that is gone, the next batch comes.
        for from in 0..log.log_end().0 {
            let piece = match log.read(Offset(from), log.log_end(), 100, true).unwrap() {
                ReadOutcome::Hot(hot) => hot.slices.iter().flat_map(|s| s.to_vec()).collect::<Vec<u8>>(),
                ReadOutcome::Cold(plan) => log.read_cold(plan).await.unwrap().expect("bytes").to_vec(),
                ReadOutcome::Empty => panic!("nothing at {from}"),
            };
            let (_, last) = offsets(&piece)[0];
            let expected = offsets(&all).into_iter().find(|(_, last)| *last >= from).unwrap();
            assert_eq!(last, expected.1, "read from {from}");
        }
        // Times are found, too.
        let (offset, ..) = records(&all)[3];
        let found = log.offset_for_timestamp(Timestamp(TIME + offset), log.log_end()).await.unwrap().unwrap();
        assert_eq!(found.offset, Offset(offset));
        fill(&reactor, &log, &model, &mut dice, 5, 30).await;
        let done = compact(&log, &rules()).await.unwrap().expect("another round");
        assert_eq!(done.segments, (4, 1), "the compacted segment and the three behind it become one");
        let all = read_all(&log, Offset(0), 10_000).await;
        model.borrow_mut().check(&log, &all).unwrap();
    });
    // The replaced files go a while later.
    assert!(files(&reactor).iter().any(|name| name.ends_with(".deleted")));
    world.run_for(Duration::from_secs(70));
    let left = files(&reactor);
    assert!(
        left.iter().all(|n| !n.ends_with(".deleted") && !n.ends_with(".cleaned") && !n.ends_with(".swap")),
        "{left:?}"
    );
    assert_eq!(left.iter().filter(|n| n.ends_with(".log")).count(), 2, "{left:?}");
    assert_eq!(left.iter().filter(|n| n.ends_with(".index")).count(), 1, "{left:?}");
}

#[test]
fn a_compacted_log_opens_again_with_and_without_its_indexes_and_snapshots() {
    for what in ["", ".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint", "all"] {
        let world = SimWorld::new(2);
        let node = world.add_node();
        let model: Rc<RefCell<Model>> = Rc::default();
        let reactor = reactor_of(&world, node);
        let own = (reactor.clone(), model.clone());
        run(&world, &reactor, async move {
            let (reactor, model) = own;
            let mut dice = Dice(2);
            let (_data, _env, log) = open(reactor.clone(), config(16 << 10), options(&mut dice)).await;
            lead(&log).await;
            fill(&reactor, &log, &model, &mut dice, 9, 30).await;
            compact(&log, &rules()).await.unwrap().expect("a round");
            fill(&reactor, &log, &model, &mut dice, 4, 30).await;
        });
        world.crash(node);
        let reactor = reactor_of(&world, node);
        let own = (reactor.clone(), model.clone());
        run(&world, &reactor, async move {
            let (reactor, model) = own;
            for entry in reactor.list_dir(Path::new("/data/orders-0")).unwrap() {
                let name = entry.name.to_str().unwrap();
                let goes = match what {
                    "" => false,
                    "all" => !name.ends_with(".log") && name != "partition.metadata",
                    suffix => name.ends_with(suffix),
                };
                if goes {
                    reactor.unlink(&Path::new("/data/orders-0").join(name)).await.unwrap();
                }
            }
            let (_data, _env, log) = open(reactor.clone(), config(16 << 10), options(&mut Dice(2))).await;
            let all = read_all(&log, log.log_start(), 10_000).await;
            model.borrow_mut().check(&log, &all).unwrap_or_else(|error| panic!("without {what:?}: {error}"));
            let sequence = model.borrow().sequence - 1;
            let last = log.producers(|p| p.get(ProducerId(PRODUCER)).map(|p| p.last_sequence().0));
            assert_eq!(last, Some(sequence), "without {what:?}");
            lead(&log).await;
            let mut dice = Dice(5);
            assert!(model.borrow_mut().append(&log, &mut dice, 3, 30));
            commit_all(&log).await;
            reactor.sleep(Duration::from_millis(100)).await;
            compact(&log, &rules()).await.unwrap().expect("a round");
            let all = read_all(&log, log.log_start(), 10_000).await;
            model.borrow_mut().check(&log, &all).unwrap();
        });
    }
}

#[test]
fn a_truncation_to_within_what_was_compacted_cuts_behind_the_last_batch_before_it() {
    for offset in (1..120).step_by(7) {
        let world = SimWorld::new(6);
        let node = world.add_node();
        let model: Rc<RefCell<Model>> = Rc::default();
        let reactor = reactor_of(&world, node);
        let own = (reactor.clone(), model.clone());
        let expected = run(&world, &reactor, async move {
            let (reactor, model) = own;
            let mut dice = Dice(6);
            let (_data, _env, log) = open(reactor.clone(), config(8 << 10), options(&mut dice)).await;
            lead(&log).await;
            fill(&reactor, &log, &model, &mut dice, 9, 30).await;
            compact(&log, &rules()).await.unwrap().expect("a round");
            let all = read_all(&log, Offset(0), 10_000).await;
            let before: Vec<_> = offsets(&all).into_iter().take_while(|(_, last)| *last < offset).collect();
            let end = log.truncate_to(Offset(offset)).await.unwrap();
            assert_eq!(end.0, before.last().map_or(0, |(_, last)| last + 1), "truncated to {offset}");
            assert!(log.clean_to().unwrap() <= end);
            lead(&log).await;
            assert_eq!(append(&log, &batch(2, 10, 1)).unwrap().base_offset, end);
            commit_all(&log).await;
            let all = read_all(&log, Offset(0), 10_000).await;
            assert_eq!(offsets(&all), [&before[..], &[(end.0, end.0 + 1)]].concat());
            offsets(&all)
        });
        world.crash(node);
        let reactor = reactor_of(&world, node);
        let own = reactor.clone();
        run(&world, &reactor, async move {
            let (_data, _env, log) = open(own, config(8 << 10), options(&mut Dice(6))).await;
            assert_eq!(log.fenced(), None, "truncated to {offset}");
            assert_eq!(offsets(&read_all(&log, Offset(0), 10_000).await), expected);
        });
    }
}

fn segment(base: i64) -> PathBuf {
    PathBuf::from(format!("/data/orders-0/{base:020}.log"))
}

/// Opens a log with one compacted segment, after `change` has changed its files.
fn opened_after(change: impl AsyncFn(&Reactor, i64) + 'static) -> Option<FenceReason> {
    let world = SimWorld::new(3);
    let node = world.add_node();
    let model: Rc<RefCell<Model>> = Rc::default();
    let reactor = reactor_of(&world, node);
    let own = reactor.clone();
    let active = run(&world, &reactor, async move {
        let mut dice = Dice(3);
        let (_data, _env, log) = open(own.clone(), config(16 << 10), options(&mut dice)).await;
        lead(&log).await;
        fill(&own, &log, &model, &mut dice, 6, 30).await;
        let done = compact(&log, &rules()).await.unwrap().expect("a round");
        for _ in 0..3 {
            assert!(model.borrow_mut().append(&log, &mut dice, 2, 30));
            commit_all(&log).await;
        }
        own.sleep(Duration::from_millis(100)).await;
        done.clean_to.0
    });
    world.crash(node);
    let reactor = reactor_of(&world, node);
    let own = reactor.clone();
    run(&world, &reactor, async move {
        change(&own, active).await;
        let (_data, _env, log) = open(own.clone(), config(16 << 10), options(&mut Dice(3))).await;
        log.fenced()
    })
}

#[test]
fn a_compacted_segment_that_lost_its_end_is_rot_and_so_is_a_hole_behind_what_was_compacted() {
    assert_eq!(opened_after(async |_, _| ()), None);
    let shortened = opened_after(async |reactor, _| {
        let file = reactor.open(&segment(0), corelog_reactor::OpenHow::write()).await.unwrap();
        let bytes = file.len().unwrap() as usize;
        let (read, all) = file.read_at(vec![0; bytes], 0).await;
        assert_eq!(read.unwrap(), bytes);
        let last = Batches::new(&all).last().unwrap().unwrap();
        file.truncate(last.position as u64).await.unwrap();
    });
    assert!(matches!(shortened, Some(FenceReason::Rot { fault: Damage::End { .. }, .. })), "{shortened:?}");
    let missing = opened_after(async |reactor, active| {
        let file = reactor.open(&segment(active), corelog_reactor::OpenHow::write()).await.unwrap();
        let bytes = file.len().unwrap() as usize;
        let (read, all) = file.read_at(vec![0; bytes], 0).await;
        assert_eq!(read.unwrap(), bytes);
        let second = Batches::new(&all).nth(1).unwrap().unwrap().position;
        let mut moved = all[second..].to_vec();
        moved.resize(bytes, 0);
        let (written, _) = file.write_at(moved, 0, corelog_reactor::Durability::Dsync).await;
        assert_eq!(written.unwrap(), bytes);
    });
    assert!(matches!(missing, Some(FenceReason::Rot { .. })), "{missing:?}");
}

#[test]
fn a_round_that_reads_a_damaged_batch_writes_nothing_anew() {
    let world = SimWorld::new(4);
    let node = world.add_node();
    let model: Rc<RefCell<Model>> = Rc::default();
    let reactor = reactor_of(&world, node);
    let own = reactor.clone();
    run(&world, &reactor, async move {
        let mut dice = Dice(4);
        let (_data, _env, log) = open(own.clone(), config(16 << 10), options(&mut dice)).await;
        lead(&log).await;
        fill(&own, &log, &model, &mut dice, 4, 30).await;
        let file = own.open(&segment(0), corelog_reactor::OpenHow::write()).await.unwrap();
        let (read, byte) = file.read_at(vec![0; 1], 900).await;
        read.unwrap();
        let (written, _) = file.write_at(vec![byte[0] ^ 1], 900, corelog_reactor::Durability::Dsync).await;
        written.unwrap();
        let error = compact(&log, &rules()).await.unwrap_err();
        assert!(matches!(error, CompactionError::Damaged { segment: Offset(0), .. }), "{error}");
        assert!(error.is_lasting());
        assert_eq!((log.status().segments, log.clean_to(), log.fenced()), (4, None, None));
        let left = own.list_dir(Path::new("/data/orders-0")).unwrap();
        assert!(left.iter().all(|e| !e.name.to_str().unwrap().ends_with(".cleaned")));
    });
}

#[test]
fn aborted_records_go_and_delete_nothing_and_a_round_ends_before_what_is_undecided() {
    let world = SimWorld::new(8);
    let node = world.add_node();
    let reactor = reactor_of(&world, node);
    let own = reactor.clone();
    run(&world, &reactor, async move {
        let (_data, _env, log) = open(own.clone(), config(4 << 10), options(&mut Dice(8))).await;
        lead(&log).await;
        let filler = |log: &Log| {
            let mut builder = BatchBuilder::new(TargetCodec::None);
            let key = log.log_end().0.to_be_bytes();
            builder.append(Timestamp(TIME), Some(&key), Some(&[1; 3_000]), &[]);
            append(log, &builder.build().unwrap()).unwrap();
        };
        let transactional = |log: &Log, producer: i64, value: &[u8]| {
            let builder = BatchBuilder::new(TargetCodec::None).transactional();
            let mut builder = builder.producer(ProducerId(producer), ProducerEpoch(0), Sequence(0));
            builder.append(Timestamp(TIME), Some(b"shared"), Some(value), &[]);
            append(log, &builder.build().unwrap()).unwrap().base_offset
        };
        let marker = |log: &Log, producer: i64, is_abort| {
            let (key, value) = EndMarker { is_abort, coordinator_epoch: 0 }.encode();
            let builder = BatchBuilder::new(TargetCodec::None).transactional().control();
            let mut builder = builder.producer(ProducerId(producer), ProducerEpoch(0), Sequence::NONE);
            builder.append(Timestamp(TIME), Some(&key), Some(&value), &[]);
            let bytes = builder.build().unwrap();
            let batch = LeaderBatch::as_it_is(&bytes, AppendOrigin::Coordinator).unwrap();
            log.append_as_leader(batch, log.epoch(), Timestamp(TIME)).unwrap();
        };
        let committed = transactional(&log, 1, b"committed");
        marker(&log, 1, false);
        filler(&log);
        let aborted = transactional(&log, 2, b"aborted");
        marker(&log, 2, true);
        (0..4).for_each(|_| filler(&log));
        let open = transactional(&log, 3, b"undecided");
        (0..4).for_each(|_| filler(&log));
        commit_all(&log).await;
        own.sleep(Duration::from_millis(100)).await;
        // The caller's limit would be the last stable offset. Even without it a round ends before the open transaction.
        let done = compact(&log, &rules()).await.unwrap().expect("a round");
        assert!(aborted < done.clean_to && done.clean_to <= open, "{done:?}, open since {open}");
        let all = read_all(&log, Offset(0), 10_000).await;
        let mut found = Vec::new();
        for batch in Batches::new(&all).map(Result::unwrap).filter(|b| !b.header.attributes.is_control()) {
            for record in Records::new(&batch.header, batch.payload()).map(Result::unwrap) {
                if record.key == Some(b"shared") {
                    found.push(record.offset);
                }
            }
        }
        assert_eq!(found, [committed, open]);
    });
}

/// Appends, compacts, deletes and truncates for ever; the power cut ends it.
async fn work(reactor: Reactor, log: Log, model: Rc<RefCell<Model>>, mut dice: Dice, rounds: Rc<Cell<u64>>) {
    let compacting = (log.clone(), rounds, model.clone());
    let task = async move {
        let (log, rounds, model) = compacting;
        let mut map_bytes = Dice(log.log_end().0 as u64);
        loop {
            // Often too small for all keys.
            let rules = CompactionRules { map_bytes_max: [24 * 8, 1 << 20][map_bytes.below(2) as usize], ..rules() };
            let stable = {
                let mut model = model.borrow_mut();
                model.stable = model.acked;
                Offset(model.stable)
            };
            match compact_below(&log, &rules, stable).await {
                Ok(done) => rounds.set(rounds.get() + u64::from(done.is_some())),
                Err(CompactionError::Interrupted | CompactionError::Shortage { .. }) => {}
                Err(CompactionError::Fenced(_)) => return,
                Err(error) => panic!("{error}"),
            }
            log_pause(&log, 3).await;
        }
    };
    reactor.spawn(task).expect("a task");
    loop {
        let count = 1 + dice.below(8);
        let keys = [5, 60, 1000][dice.below(3) as usize];
        model.borrow_mut().append(&log, &mut dice, count, keys);
        match dice.below(60) {
            0 => {
                let (from, to) = (model.borrow().log_start, model.borrow().acked);
                let offset = from + dice.below((to - from + 1) as u64) as i64;
                model.borrow_mut().deleting = Some(offset);
                if log.delete_records(Offset(offset)).await.is_ok() {
                    model.borrow_mut().log_start = log.log_start().0;
                    model.borrow_mut().deleting = None;
                }
            }
            1 => {
                let (from, to) = (model.borrow().stable.max(log.log_start().0), model.borrow().end());
                let offset = from + dice.below((to - from + 1) as u64) as i64;
                model.borrow_mut().truncating = Some(offset);
                if let Ok(end) = log.truncate_to(Offset(offset)).await {
                    let mut model = model.borrow_mut();
                    model.cut(end.0);
                    model.truncating = None;
                    let sequence =
                        log.producers(|p| p.get(ProducerId(PRODUCER)).map_or(0, |p| p.last_sequence().0 + 1));
                    model.sequence = sequence;
                }
                if log.fenced().is_none() {
                    let next = LeaderEpoch(log.epoch().0 + 1);
                    let _ = log.new_epoch(next, log.log_end()).await;
                }
            }
            2..=8 => {
                let all = read_all(&log, log.log_start(), 5_000).await;
                model.borrow().check_records(&log, &all).unwrap();
            }
            _ => {}
        }
        let _ = log.commit().await;
        model.borrow_mut().acked = log.durable_end().0;
        if dice.one_in(3) {
            log_pause(&log, dice.below(20)).await;
        }
    }
}

thread_local! {
    static REACTOR: RefCell<Option<Reactor>> = const { RefCell::new(None) };
}

async fn log_pause(_log: &Log, hundreds_of_micros: u64) {
    let reactor = REACTOR.with(|r| r.borrow().clone()).expect("a reactor");
    reactor.sleep(Duration::from_micros(100 * (1 + hundreds_of_micros))).await;
}

fn lives(seed: u64, rounds: &Rc<Cell<u64>>) -> Result<(), String> {
    let world = SimWorld::new(seed);
    let node = world.add_node();
    let model: Rc<RefCell<Model>> = Rc::default();
    let mut dice = Dice(seed);
    let config = config([6 << 10, 20 << 10][dice.below(2) as usize]);
    for _life in 0..6 {
        let reactor = reactor_of(&world, node);
        REACTOR.with(|r| r.borrow_mut().replace(reactor.clone()));
        let opening = open(reactor.clone(), config.clone(), options(&mut dice));
        // Now and then the power fails during recovery, too.
        if dice.one_in(4) {
            reactor.spawn(async move { drop(opening.await) }).expect("a task");
            world.run_for(Duration::from_micros(dice.below(6_000)));
            world.crash(node);
            continue;
        }
        let (data, env, log) = run(&world, &reactor, opening);
        if let Some(reason) = log.fenced() {
            return Err(format!("fenced: {reason}"));
        }
        let own = log.clone();
        let found = run(&world, &reactor, async move { read_all(&own, own.log_start(), 10_000).await });
        model.borrow_mut().check(&log, &found)?;
        model.borrow_mut().sequence =
            log.producers(|p| p.get(ProducerId(PRODUCER)).map_or(0, |p| p.last_sequence().0 + 1));
        let own = log.clone();
        run(&world, &reactor, async move { lead(&own).await });
        let work = work(reactor.clone(), log.clone(), model.clone(), Dice(dice.next()), rounds.clone());
        reactor.spawn(work).expect("a task");
        let millis = [20, 100, 400][dice.below(3) as usize];
        world.run_for(Duration::from_millis(1 + dice.below(millis)));
        drop((data, env, log));
        if dice.one_in(5) {
            world.stop(&reactor);
        } else {
            world.crash(node);
        }
    }
    Ok(())
}

#[test]
fn through_power_cuts_no_newest_record_is_lost_and_none_comes_back_changed() {
    let rounds = Rc::new(Cell::new(0));
    for seed in seeds(200) {
        println!("seed {seed}");
        if let Err(what) = lives(seed, &rounds) {
            panic!("seed {seed}: {what}");
        }
    }
    println!("{} rounds", rounds.get());
}

/// One round with something done at its `step`th operation on the disk. Returns whether the round got that far.
fn round_with(step: u64, is_cut: bool, fault: Option<i32>) -> bool {
    let world = SimWorld::new(7 + step);
    let node = world.add_node();
    let model: Rc<RefCell<Model>> = Rc::default();
    let reactor = reactor_of(&world, node);
    let own = (reactor.clone(), model.clone());
    let (data, env, log) = run(&world, &reactor, async move {
        let (reactor, model) = own;
        let mut dice = Dice(7);
        let opened = open(reactor.clone(), config(8 << 10), options(&mut dice)).await;
        lead(&opened.2).await;
        fill(&reactor, &opened.2, &model, &mut dice, 7, 40).await;
        model.borrow_mut().stable = opened.2.durable_end().0;
        opened
    });
    let count = Rc::new(Cell::new(0));
    let counted = count.clone();
    world.disk(node).set_fault(move |_| {
        counted.set(counted.get() + 1);
        fault.filter(|_| counted.get() == step + 1).map(DiskFault::Errno)
    });
    let ended: Rc<Cell<bool>> = Rc::default();
    let (own, end) = (log.clone(), ended.clone());
    reactor
        .spawn(async move {
            let _ = compact(&own, &CompactionRules { limits: small_groups(), ..rules() }).await;
            end.set(true);
        })
        .expect("a task");
    let (seen, end) = (count.clone(), ended.clone());
    world.run_until(move || end.get() || (is_cut && seen.get() > step)).expect("an end");
    let got_there = count.get() > step;
    world.disk(node).clear_fault();
    if !is_cut {
        // What is good can be read, whatever has failed.
        let own = (log.clone(), model.clone());
        run(&world, &reactor, async move {
            let all = read_all(&own.0, own.0.log_start(), 3_000).await;
            own.1.borrow().check_records(&own.0, &all).unwrap_or_else(|e| panic!("fault at step {step}: {e}"));
        });
    }
    drop((data, env, log));
    world.crash(node);
    let reactor = reactor_of(&world, node);
    let own = (reactor.clone(), model);
    run(&world, &reactor, async move {
        let (reactor, model) = own;
        let (_data, _env, log) = open(reactor.clone(), config(8 << 10), options(&mut Dice(7))).await;
        let all = read_all(&log, log.log_start(), 10_000).await;
        model.borrow_mut().check(&log, &all).unwrap_or_else(|error| panic!("step {step}: {error}"));
        lead(&log).await;
        model.borrow_mut().stable = log.durable_end().0;
        compact(&log, &rules()).await.unwrap_or_else(|error| panic!("step {step}: {error}"));
        let all = read_all(&log, log.log_start(), 10_000).await;
        model.borrow_mut().check(&log, &all).unwrap_or_else(|error| panic!("step {step}, compacted: {error}"));
    });
    got_there
}

/// So that a round makes several exchanges.
fn small_groups() -> corelog_storage::compact::GroupLimits {
    corelog_storage::compact::GroupLimits { bytes: 20 << 10, index_bytes: u64::MAX }
}

#[test]
fn a_power_cut_after_any_operation_of_a_round_leaves_a_sound_log() {
    let steps = (0..2_000).find(|step| !round_with(*step, true, None)).expect("an end of the round");
    assert!(steps > 60, "{steps} operations");
}

#[test]
fn an_error_of_any_operation_of_a_round_leaves_a_log_that_can_be_read_and_opens_again() {
    for errno in [libc::EIO, libc::ENOSPC] {
        let steps = (0..2_000).find(|step| !round_with(*step, false, Some(errno))).expect("an end of the round");
        assert!(steps > 60, "{steps} operations");
    }
}
