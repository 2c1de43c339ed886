//! What the tests of transactions in a log share: what was written, and what the index of aborted transactions must then say.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used)]

use crate::log_common::{PRODUCED_AT, append, batch};
use crate::log_model::Dice;
use corelog_reactor::Reactor;
use corelog_reactor::sim::{NodeId, SimDisk, SimWorld};
use corelog_storage::batch::{AppendOrigin, BatchBuilder, TargetCodec};
use corelog_storage::ids::{Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};
use corelog_storage::log::{AbortedTxn, AppendError, Appended, LeaderBatch, Log};
use corelog_storage::producers::EndMarker;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

pub const FOLDER: &str = "/data/orders-0";
pub const ENTRY_BYTES: usize = 34;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Plain,
    Data,
    Commit,
    Abort,
}

#[derive(Clone, Copy, Debug)]
pub struct Written {
    pub base: i64,
    pub next: i64,
    pub producer: i64,
    pub kind: Kind,
}

/// All that is in a log, and was before its start.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub written: Vec<Written>,
    /// What one step writes at the most.
    pub value_bytes_max: u64,
}

impl History {
    pub fn end(&self) -> i64 {
        self.written.last().map_or(0, |w| w.next)
    }

    pub fn cut(&mut self, end: i64) {
        self.written.retain(|w| w.next <= end);
    }

    fn sequence(&self, producer: i64) -> i32 {
        let of = self.written.iter().filter(|w| w.producer == producer && w.kind == Kind::Data);
        of.map(|w| (w.next - w.base) as i32).sum()
    }

    fn is_open(&self, producer: i64) -> bool {
        self.written.iter().rev().find(|w| w.producer == producer).is_some_and(|w| w.kind == Kind::Data)
    }

    /// The entries, by what Kafka's documents say and not by what the log does: a transaction lasts from its first record to
    /// its marker; what is undecided then is the oldest of the others that have none yet.
    pub fn aborted(&self) -> Vec<AbortedTxn> {
        let mut open: BTreeMap<i64, i64> = BTreeMap::new();
        let mut aborted = Vec::new();
        for w in &self.written {
            match w.kind {
                Kind::Plain => {}
                Kind::Data => {
                    open.entry(w.producer).or_insert(w.base);
                }
                Kind::Commit | Kind::Abort => {
                    let first = open.remove(&w.producer);
                    if let (Kind::Abort, Some(first)) = (w.kind, first) {
                        let undecided = open.values().copied().min().unwrap_or(w.base + 1);
                        aborted.push(AbortedTxn {
                            producer_id: ProducerId(w.producer),
                            first_offset: Offset(first),
                            last_offset: Offset(w.base),
                            last_stable_offset: Offset(undecided),
                        });
                    }
                }
            }
        }
        aborted
    }

    /// Writes something: records of a transaction or of none, or a marker. Returns whether the log took it.
    pub fn step(&mut self, log: &Log, dice: &mut Dice) -> bool {
        let producer = 1 + dice.below(4) as i64;
        match dice.below(8) {
            0..4 => {
                let count = 1 + dice.below(3) as i32;
                let bytes = dice.below(self.value_bytes_max.max(1));
                self.data(log, producer, count, bytes as usize)
            }
            4 | 5 => self.marker(log, producer, true),
            6 => self.marker(log, producer, false),
            _ => self.plain(log, 1 + dice.below(3) as i32, dice.below(self.value_bytes_max.max(1)) as usize),
        }
    }

    pub fn plain(&mut self, log: &Log, count: i32, value_bytes: usize) -> bool {
        let bytes = batch(count, value_bytes, self.end() as u64);
        self.note(append(log, &bytes), 0, Kind::Plain)
    }

    pub fn data(&mut self, log: &Log, producer: i64, count: i32, value_bytes: usize) -> bool {
        self.keyed(log, producer, count, 0, value_bytes)
    }

    /// The same with keys from this one on.
    pub fn keyed(&mut self, log: &Log, producer: i64, count: i32, key: u8, value_bytes: usize) -> bool {
        let bytes = data_batch(producer, self.sequence(producer), count, key, value_bytes);
        self.note(append(log, &bytes), producer, Kind::Data)
    }

    /// Ends a transaction, if there is one, or not.
    pub fn marker(&mut self, log: &Log, producer: i64, is_abort: bool) -> bool {
        let kind = if is_abort { Kind::Abort } else { Kind::Commit };
        self.note(append_marker(log, producer, is_abort), producer, kind)
    }

    fn note(&mut self, appended: Result<Appended, AppendError>, producer: i64, kind: Kind) -> bool {
        match appended {
            Ok(Appended { base_offset, last_offset, .. }) => {
                assert_eq!(base_offset.0, self.end(), "an append went to another place");
                self.written.push(Written { base: base_offset.0, next: last_offset.0 + 1, producer, kind });
                true
            }
            Err(AppendError::Full { .. } | AppendError::NoSpace | AppendError::Fenced(_) | AppendError::Closed) => {
                false
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// The bytes of the index of the segment from `base` to `next`.
    pub fn index(&self, base: i64, next: i64) -> Vec<u8> {
        let is_in = |entry: &AbortedTxn| (base..next).contains(&entry.last_offset.0);
        self.aborted().into_iter().filter(is_in).flat_map(bytes_of).collect()
    }
}

/// A batch of a transaction.
pub fn data_batch(producer: i64, sequence: i32, count: i32, key: u8, value_bytes: usize) -> Vec<u8> {
    let builder = BatchBuilder::new(TargetCodec::None).transactional();
    let mut builder = builder.producer(ProducerId(producer), ProducerEpoch(0), Sequence(sequence));
    for n in 0..count {
        builder.append(Timestamp(PRODUCED_AT), Some(&[key + n as u8]), Some(&vec![1; value_bytes]), &[]);
    }
    builder.build().unwrap()
}

/// The end of a transaction.
pub fn append_marker(log: &Log, producer: i64, is_abort: bool) -> Result<Appended, AppendError> {
    let (key, value) = EndMarker { is_abort, coordinator_epoch: 0 }.encode();
    let builder = BatchBuilder::new(TargetCodec::None).transactional().control();
    let mut builder = builder.producer(ProducerId(producer), ProducerEpoch(0), Sequence::NONE);
    builder.append(Timestamp(PRODUCED_AT), Some(&key), Some(&value), &[]);
    let bytes = builder.build().unwrap();
    let batch = LeaderBatch::as_it_is(&bytes, AppendOrigin::Coordinator).unwrap();
    log.append_as_leader(batch, log.epoch(), Timestamp(PRODUCED_AT))
}

/// An entry as Kafka writes it.
pub fn bytes_of(entry: AbortedTxn) -> Vec<u8> {
    let numbers = [entry.producer_id.0, entry.first_offset.0, entry.last_offset.0, entry.last_stable_offset.0];
    [&0_i16.to_be_bytes()[..], &numbers.map(i64::to_be_bytes).concat()].concat()
}

pub fn path(base: i64, suffix: &str) -> PathBuf {
    Path::new(FOLDER).join(format!("{base:020}{suffix}"))
}

pub fn bases_of(disk: &SimDisk, suffix: &str) -> Vec<i64> {
    let name = |path: &PathBuf| path.file_name()?.to_str()?.strip_suffix(suffix)?.parse().ok();
    disk.list(Path::new(FOLDER)).iter().filter_map(name).collect()
}

/// The segments that have a file: where each starts, and where the next one does, or the log ends.
pub fn segments(disk: &SimDisk, log_end: i64) -> Vec<(i64, i64)> {
    let mut bases = bases_of(disk, ".log");
    bases.sort_unstable();
    let nexts = bases.iter().skip(1).copied().chain([log_end]).collect::<Vec<_>>();
    bases.into_iter().zip(nexts).collect()
}

/// Every index on the disk is what it must be. Of segments that are not sealed it may lack the last entries, unless `all` must
/// be there. No file is without an entry, and none without a segment.
pub fn check_files(disk: &SimDisk, history: &History, log_end: i64, all: bool, what: &str) {
    let segments = segments(disk, log_end);
    for base in bases_of(disk, ".txnindex") {
        assert!(segments.iter().any(|(of, _)| *of == base), "{what}: an index at {base} without a segment");
        assert_ne!(disk.contents(&path(base, ".txnindex")).unwrap(), [], "{what}: an empty index at {base}");
    }
    for (base, next) in segments {
        // One below the log start loses its small files before its records.
        if disk.contents(&path(base, ".index")).is_none() && next < log_end {
            continue;
        }
        let found = disk.contents(&path(base, ".txnindex")).unwrap_or_default();
        let expected = history.index(base, next);
        let is_right = if all { found == expected } else { expected.starts_with(&found) };
        let numbers = |bytes: &[u8]| bytes.chunks(ENTRY_BYTES).map(AbortedTxn::parse).collect::<Vec<_>>();
        assert!(is_right, "{what}: segment {base}..{next} has {:?} of {:?}", numbers(&found), numbers(&expected));
    }
}

/// The log finds what it must, in the whole and in parts.
pub async fn check_found(log: &Log, history: &History, dice: &mut Dice, what: &str) {
    let (start, end) = (log.log_start(), log.log_end());
    let all = history.aborted();
    let expected = |from: Offset, upper: Offset| -> Vec<AbortedTxn> {
        all.iter().filter(|t| t.last_offset >= from && t.first_offset < upper).copied().collect()
    };
    let mut ranges = vec![(start, Offset(i64::MAX)), (start, end)];
    for _ in 0..8 {
        let from = start.0 + dice.below((end - start) as u64 + 1) as i64;
        ranges.push((Offset(from), Offset(from + 1 + dice.below(30) as i64)));
    }
    for (from, upper) in ranges {
        let found = log.aborted_transactions(from, upper, 100_000).await;
        let found = found.unwrap_or_else(|error| panic!("{what}: {from}..{upper}: {error}")).expect("few enough");
        assert_eq!(found, expected(from, upper), "{what}: {from}..{upper} of {start}..{end}");
    }
}

/// Runs `work` until the disk's `step`th operation, or to its end. Returns whether it got that far.
pub fn until(
    world: &SimWorld,
    node: NodeId,
    reactor: &Reactor,
    step: u64,
    work: impl Future<Output = ()> + 'static,
) -> bool {
    let count = Rc::new(Cell::new(0));
    let own = count.clone();
    world.disk(node).set_fault(move |_| {
        own.set(own.get() + 1);
        None
    });
    let ended: Rc<Cell<bool>> = Rc::default();
    let end = ended.clone();
    let task = async move {
        work.await;
        end.set(true);
    };
    reactor.spawn(task).expect("a task");
    let seen = count.clone();
    world.run_until(move || ended.get() || seen.get() > step).expect("an end");
    world.disk(node).clear_fault();
    count.get() > step
}
