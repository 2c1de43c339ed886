//! What the `recovery` target checks of any data folder. Shared with the test that replays the committed corpus.
//!
//! Holds: the properties of opening a log on damaged files. Never touches: the fuzzer.
//!
//! The input's first byte picks a folder that the engine left behind (crashed, closed, with deleted records, empty), the rest
//! says what happens to its files: see `damage`. Then the log is opened by the real recovery on the simulated disk, the power
//! is cut, and it is opened again.
//!
//! - Nothing panics, and no length on the disk sizes an allocation.
//! - What lies below the recovery point and is still sound is readable and unchanged, or the log is refused or fenced, with a
//!   reason. Sound segments are kept to their last batch, also above the recovery point.
//! - Indexes and snapshots are aids: without them, or with false ones, the log opens as it was.
//! - What recovery has checked is sound batches with contiguous offsets.
//! - A fenced log's segments are not changed.
//! - The second open finds what the first one found. A log that opens takes records again, and keeps them.

pub mod damage;
pub mod image;
pub mod sim;

use damage::{Choices, damage};
use image::{Files, Image, PRODUCER, checkpoint_of};
use sim::{Machine, OPTIONS, name};

use corelog_storage::batch::{BatchError, BatchView, Batches};
use corelog_storage::ids::{Offset, Timestamp};
use corelog_storage::log::{FenceReason, Log, LogConfig, LogStatus, OpenError, ReadError, ReadOutcome};
use corelog_storage::producers::decode_snapshot;
use std::cell::OnceCell;

/// No single allocation is larger: the largest is a step of a small file's read, and the files here are smaller than that.
pub const ALLOCATION_BYTES_MAX: usize = 256 << 10;

/// Bytes of one read: a few batches, so that reads start within segments too.
const READ_BYTES: usize = 600;

thread_local! {
    static IMAGES: OnceCell<Vec<Image>> = const { OnceCell::new() };
}

/// What a start found.
#[derive(Debug, PartialEq)]
pub struct Found {
    pub status: LogStatus,
    producer_end: Offset,
    batches: Vec<Read>,
}

impl Found {
    /// First and last offsets of the batches that were read.
    #[allow(dead_code, reason = "for tests of single findings")]
    pub fn offsets(&self) -> Vec<(i64, i64)> {
        let offsets = |read: &Read| match read {
            Read::Batch(batch) => Some((batch.base.0, batch.last.0)),
            Read::Damaged { .. } => None,
        };
        self.batches.iter().filter_map(offsets).collect()
    }
}

/// One batch that was read, or where no batch could be read.
#[allow(dead_code, reason = "the error is for whoever reads a failure")]
#[derive(Clone, Debug)]
enum Read {
    Batch(Batch),
    Damaged { at: Offset, error: String },
}

#[derive(Clone, PartialEq)]
struct Batch {
    base: Offset,
    last: Offset,
    is_sound: bool,
    bytes: Vec<u8>,
}

impl PartialEq for Read {
    /// Damage is met where it was met before, perhaps by another way.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Batch(ours), Self::Batch(theirs)) => ours == theirs,
            (Self::Damaged { at, .. }, Self::Damaged { at: theirs, .. }) => at == theirs,
            _ => false,
        }
    }
}

impl std::fmt::Debug for Batch {
    /// Without the bytes: whoever reads a failure wants to see which batches there were.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}..={}{}", self.base, self.last, if self.is_sound { "" } else { " (broken)" })
    }
}

/// See the module.
pub fn recovery(input: &[u8]) {
    let Some((which, rest)) = input.split_first() else { return };
    IMAGES.with(|images| {
        let images = images.get_or_init(image::all);
        let image = &images[usize::from(which & 0x1f) % images.len()];
        let files = damage(image, &mut Choices::new(rest));
        check(image, &files, which & 0x20 != 0);
    });
}

/// Holds what recovery makes of `files`, an image that was damaged, to the properties. What it found; `None` if it refused.
pub fn check(image: &Image, files: &Files, goes_on: bool) -> Option<Found> {
    let machine = Machine::new(1, files);
    let way = Way::new(image, files);
    let Some(first) = start(&machine, &way) else {
        assert!(!only_aids_differ(image, files), "refused, though only indexes and snapshots are damaged");
        return None;
    };
    let after = machine.files();
    check_found(image, files, &way, &first);
    if first.status.fenced.is_some() && checkpoint_of(files).is_none_or(|entry| entry.truncate_to.is_none()) {
        assert!(segments(files).eq(segments(&after)), "a fenced log's segments were changed");
    }
    machine.crash();
    let second = start(&machine, &way).expect("a log that opened before");
    let fence = second.status.fenced.as_ref().filter(|_| first.status.fenced.is_none());
    if fence.is_some_and(|reason| is_damage_below(reason, image, files, &way)) {
        return Some(first);
    }
    assert_eq!(shown(&second), shown(&first), "the second start finds something else");
    machine.crash();
    if goes_on && second.status.fenced.is_none() {
        let after = check_going_on(&machine, &way, &second);
        assert!(after.is_none_or(|reason| is_damage_below(&reason, image, files, &way)), "fenced while it went on");
    }
    Some(first)
}

/// Damage below the recovery point may show only later: when a snapshot has to be written again (which the power cut may
/// undo), recovery reads from an older one.
fn is_damage_below(reason: &FenceReason, image: &Image, files: &Files, way: &Way) -> bool {
    let is_below = matches!(reason, FenceReason::Rot { offset, .. } if *offset < way.trusted_to);
    is_below && segments(files).ne(segments(&image.files))
}

/// What must be the same at the next start.
fn shown(found: &Found) -> (Offset, Offset, bool, &[Read]) {
    (found.status.log_start, found.status.log_end, found.status.fenced.is_some(), &found.batches)
}

fn segments(files: &Files) -> impl Iterator<Item = (&String, &Vec<u8>)> {
    files.iter().filter(|(path, _)| path.ends_with(".log"))
}

/// Whether what is not an index or a snapshot is as the engine left it.
fn only_aids_differ(image: &Image, files: &Files) -> bool {
    let is_aid = |path: &str| [".index", ".timeindex", ".snapshot"].iter().any(|suffix| path.ends_with(suffix));
    let others = |files: &'_ Files| -> Vec<(String, Vec<u8>)> {
        files.iter().filter(|(path, _)| !is_aid(path)).map(|(path, bytes)| (path.clone(), bytes.clone())).collect()
    };
    others(&image.files) == others(files)
}

/// How a log is read to its end, past whatever is damaged.
#[derive(Clone)]
struct Way {
    /// Recovery need not have read what lies below.
    trusted_to: Offset,
    /// Where batches used to start.
    bases: Vec<Offset>,
    config: LogConfig,
}

impl Way {
    fn new(image: &Image, files: &Files) -> Self {
        let trusted_to = checkpoint_of(files).map_or(Offset(i64::MIN), |entry| entry.recovery.offset);
        let bases = image.batches.iter().map(|known| known.base).collect();
        Self { trusted_to, bases, config: image.config.clone() }
    }

    /// The next offset to read from when nothing can be read at `at`.
    fn after(&self, at: Offset) -> Offset {
        let next = self.bases.iter().copied().filter(|base| *base > at && *base < self.trusted_to).min();
        next.unwrap_or(self.trusted_to)
    }
}

/// Opens the log and reads all of it. `None` if it is refused.
fn start(machine: &Machine, way: &Way) -> Option<Found> {
    let way = way.clone();
    let found = machine.try_run(OPTIONS(), move |_, env| async move {
        match Log::open(&env, name(), way.config.clone()).await {
            Ok(log) => Some(look(&log, &way).await),
            Err(OpenError::Io { path, what, error }) => panic!("the disk is whole, yet {path:?}: {what}: {error}"),
            Err(_) => None,
        }
    });
    found.ok().flatten()
}

async fn look(log: &Log, way: &Way) -> Found {
    let status = log.status();
    assert_eq!(status.durable_end, status.log_end, "what recovery keeps is durable");
    let producer_end = log.producers(|p| p.get(PRODUCER).map_or(Offset::NONE, |e| e.last_offset()));
    let mut batches = Vec::new();
    let mut at = status.log_start;
    while at < status.log_end {
        let read = read_at(log, at).await.and_then(|bytes| split(&bytes, at));
        match read {
            Ok(read) => {
                let next = read.iter().map(|read| read.last.next()).max().expect("a batch");
                // A damaged batch below the recovery point may claim offsets above it.
                at = if at < way.trusted_to { next.min(way.trusted_to) } else { next };
                let read = read.into_iter().filter(|read| read.base < at);
                batches.extend(read.map(Read::Batch));
            }
            Err(error) => {
                // Damage below the recovery point shows when it is read.
                assert!(at < way.trusted_to, "at {at} of {status:?}: {error}");
                batches.push(Read::Damaged { at, error });
                at = way.after(at);
            }
        }
    }
    // Below the recovery point a damaged batch may claim the offsets of those behind it.
    let unread = status.log_start..way.trusted_to.min(status.log_end);
    for base in way.bases.iter().filter(|base| unread.contains(*base)) {
        let is_hidden = !batches.iter().any(|read| matches!(read, Read::Batch(batch) if batch.base == *base));
        if is_hidden && let Ok(read) = read_at(log, *base).await.and_then(|bytes| split(&bytes, *base)) {
            batches.extend(read.into_iter().take(1).map(Read::Batch));
        }
    }
    // Whatever the time indexes say: an answer or an error.
    let _ = log.offset_for_timestamp(Timestamp(4_000_000_000_005), status.log_end).await;
    let _ = log.max_timestamp(status.log_end).await;
    Found { status, producer_end, batches }
}

async fn read_at(log: &Log, at: Offset) -> Result<Vec<u8>, String> {
    let cold = match log.read(at, log.log_end(), READ_BYTES, true).map_err(|error| error.to_string())? {
        ReadOutcome::Empty => return Err("empty".to_owned()),
        ReadOutcome::Hot(hot) => {
            let mut bytes = Vec::with_capacity(hot.bytes);
            hot.slices.iter().for_each(|slice| bytes.extend_from_slice(slice));
            return Ok(bytes);
        }
        ReadOutcome::Cold(plan) => log.read_cold(plan).await,
    };
    match cold {
        Ok(Some(cold)) => Ok(cold.to_vec()),
        Ok(None) => Err("nothing".to_owned()),
        Err(ReadError::Busy { bytes }) => panic!("{bytes} bytes of memory for a file of a few thousand"),
        Err(error) => Err(error.to_string()),
    }
}

/// The batches in `bytes`, up to the first that is none: the first contains `at`, each starts where the one before it ends.
fn split(bytes: &[u8], at: Offset) -> Result<Vec<Batch>, String> {
    let mut found: Vec<Batch> = Vec::new();
    for batch in Batches::new(bytes) {
        match next_batch(batch, at, found.last()) {
            Ok(batch) => found.push(batch),
            Err(error) if found.is_empty() => return Err(error),
            Err(_) => break,
        }
    }
    if found.is_empty() { Err("no batch".to_owned()) } else { Ok(found) }
}

fn next_batch(batch: Result<BatchView<'_>, BatchError>, at: Offset, before: Option<&Batch>) -> Result<Batch, String> {
    let batch = batch.map_err(|error| error.to_string())?;
    let base = batch.header.base_offset;
    let last = batch.header.last_offset().filter(|last| *last >= base).ok_or("no offsets")?;
    let is_next = match before {
        Some(before) => base == before.last.next(),
        None => (base..=last).contains(&at),
    };
    if !is_next {
        return Err(format!("a batch of {base} to {last} at {at}"));
    }
    Ok(Batch { base, last, is_sound: batch.crc_ok(), bytes: batch.bytes.to_vec() })
}

fn check_found(image: &Image, files: &Files, way: &Way, found: &Found) {
    for read in &found.batches {
        if let Read::Batch(batch) = read {
            assert!(batch.is_sound || batch.base < way.trusted_to, "a broken batch at {}", batch.base);
        }
    }
    let same = |is: fn(&str) -> bool| {
        image.files.iter().filter(|(path, _)| is(path)).eq(files.iter().filter(|(path, _)| is(path)))
    };
    let only_aids = only_aids_differ(image, files);
    let status = &found.status;
    if let Some(reason) = &status.fenced {
        assert!(!only_aids, "{reason}, though only indexes and snapshots are damaged");
        return;
    }
    // Without an entry in the checkpoint the files alone say where the log starts.
    if !same(|path| path.starts_with("log-checkpoint")) || checkpoint_of(files).is_none() {
        return;
    }
    assert_eq!(status.log_start, image.log_start);
    assert!(status.log_end >= image.recovery, "cut to {} below the recovery point {}", status.log_end, image.recovery);
    let are_segments_whole = same(|path| path.ends_with(".log"));
    if are_segments_whole {
        assert_eq!(status.log_end, image.log_end, "sound segments were cut");
    }
    for known in image.batches.iter().filter(|known| known.last >= image.log_start) {
        let is_whole = are_segments_whole
            || known.last < image.recovery
                && files.get(&known.file).and_then(|bytes| bytes.get(..known.end_position))
                    == image.files.get(&known.file).and_then(|bytes| bytes.get(..known.end_position));
        let is_there = || found.batches.iter().any(|read| matches!(read, Read::Batch(b) if b.bytes == known.bytes));
        assert!(!is_whole || is_there(), "the batch of {} to {} is lost: {found:?}", known.base, known.last);
    }
    if only_aids && image.log_start == Offset::ZERO && are_snapshots_missing_or_true(image, files) {
        assert_eq!(found.producer_end, image.producer_end, "the producer's end");
    }
}

fn are_snapshots_missing_or_true(image: &Image, files: &Files) -> bool {
    let mut snapshots = files.iter().filter(|(path, _)| path.ends_with(".snapshot"));
    snapshots.all(|(path, bytes)| image.files.get(path) == Some(bytes) || decode_snapshot(bytes).is_err())
}

/// A log that opened takes records again, and keeps them. If it is fenced later, why.
fn check_going_on(machine: &Machine, way: &Way, before: &Found) -> Option<FenceReason> {
    let end = before.status.log_end;
    if end.0 > i64::MAX / 2 {
        return None;
    }
    let config = way.config.clone();
    let appended = machine.run(OPTIONS(), |_, env| async move {
        let log = Log::open(&env, name(), config).await.expect("a log that opened before");
        if log.fenced().is_some() || log.epoch().0 == i32::MAX {
            return Err(log.fenced());
        }
        image::lead(&log).await;
        image::append(&log, &image::batch(1, 0)).await;
        Ok(())
    });
    machine.crash();
    if let Err(fenced) = appended {
        return fenced;
    }
    let after = start(machine, way).expect("a log that opened before");
    if after.status.fenced.is_some() {
        return after.status.fenced;
    }
    assert_eq!(after.status.log_end.0, end.0 + 2, "the appended batch");
    let is_new = |read: &Read| matches!(read, Read::Batch(batch) if batch.base == end);
    let is_checked = |read: &Read| matches!(read, Read::Batch(batch) if batch.base >= way.trusted_to);
    let checked = after.batches.into_iter().filter(is_checked);
    let (new, others): (Vec<Read>, Vec<Read>) = checked.partition(is_new);
    let before: Vec<Read> = before.batches.iter().filter(|read| is_checked(read)).cloned().collect();
    assert!(matches!(&new[..], [Read::Batch(batch)] if batch.is_sound), "{new:?} at {end}, {others:?}, {before:?}");
    assert_eq!(others, before);
    machine.crash();
    None
}
