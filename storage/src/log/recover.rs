//! Recovery: what of the files is the log.
//!
//! Holds: the reading of a log's folder after a stop or a crash, and the repairs that need no decision.
//! Never touches: a log that is open.
//!
//! Sealed segments below the recovery point are trusted after a look at their ends. The rest is read and checked batch by
//! batch. Where that ends decides [`crate::segment::verdict`] between a clean end, a torn write (zeroed on disk, and the
//! zeroes synced, before anything is appended behind it) and rot (the log opens fenced; not a byte is changed).
//!
//! Before that judgement the last segment gets what the commit logs have and it lacks (`reapply`).
//!
//! Order of the repairs, each on stable storage before the next: segments of an interrupted truncation, torn tail zeroed,
//! recovered bytes synced, indexes of aborted transactions (`recover_txn`), snapshots and epochs behind the end removed,
//! checkpoint.

use super::config::LogConfig;
use super::env::StorageEnv;
use super::error::{Damage, FenceReason, OpenError};
use super::names::{LOG, LogName, SNAPSHOT, TXN_INDEX, parse_file_name, segment_path};
use super::recover_read::Scanned;
use super::recover_txn::TxnRepair;
use super::repair::{discard, remove_segment_files};
use super::replay::Part;
use super::state::{Phase, Segment};
use crate::batch::BatchHeader;
use crate::commit_log::replay::Entry;
use crate::disk::checkpoint::{CheckpointEntry, RecoveryPoint};
use crate::disk::files::{read_file, unlink_if_there};
use crate::disk::{BLOCK_BYTES, COMMIT_BYTES_MAX, align_down, align_up};
use crate::epochs::EpochCache;
use crate::ids::{LeaderEpoch, Offset, Timestamp};
use crate::producers::{ProducerState, ProducerStateLimits};
use crate::segment::scan::ScanStop;
use crate::segment::tail::Tail;
use crate::segment::verdict::{Verdict, judge};
use corelog_reactor::DirEntry;
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};

/// What recovery found; what a log is opened with.
pub(super) struct Recovered {
    pub(super) older: VecDeque<Segment>,
    pub(super) active: Segment,
    pub(super) log_start: Offset,
    pub(super) log_end: Offset,
    pub(super) producers: ProducerState,
    pub(super) epochs: EpochCache,
    pub(super) checkpoint: CheckpointEntry,
    pub(super) rot: Option<FenceReason>,
    /// Bytes that were read and checked.
    pub(super) scanned_bytes: u64,
    /// The newest epoch of any batch that was looked at.
    pub(super) newest_epoch: LeaderEpoch,
    /// Segments wholly below the log start: to be removed.
    pub(super) below_start: Vec<Offset>,
    /// The snapshot the producers were loaded from.
    pub(super) snapshot_at: Option<Offset>,
}

/// One recovery under way.
pub(super) struct Recovery<'a> {
    pub(super) env: &'a StorageEnv,
    pub(super) folder: &'a Path,
    /// What the commit logs have of it.
    pub(super) entries: Vec<Entry>,
    pub(super) index_interval: u32,
    pub(super) now: Timestamp,
    pub(super) recovery: RecoveryPoint,
    pub(super) limit: Option<Offset>,
    pub(super) log_start: Offset,
    /// Below this offset the log was compacted: batches need not join there.
    pub(super) holes_below: Offset,
    /// There was an entry in the checkpoint: the log was created to its end.
    pub(super) is_known: bool,
    /// A log that ends before this has lost acknowledged records.
    pub(super) must_reach: Offset,
    /// Batches from here on are new to the producers' state.
    pub(super) replay_from: Offset,
    pub(super) producers: ProducerState,
    pub(super) epochs: EpochCache,
    /// Nothing is known of the epochs: every segment is asked for its own.
    pub(super) are_epochs_missing: bool,
    pub(super) scanned_bytes: u64,
    /// The newest epoch of any batch that was looked at, also below the log start.
    pub(super) newest_epoch: LeaderEpoch,
    /// Producer snapshots there are.
    pub(super) snapshots: Vec<Offset>,
    /// Segments that have an index of aborted transactions.
    pub(super) txn_indexes: Vec<Offset>,
    /// What is to be done to these indexes,
    pub(super) txn_repairs: Vec<(Offset, TxnRepair)>,
    /// and the segments that were looked at so far.
    pub(super) parts: Vec<Part>,
}

/// Small files beside the segments that are not the log any more, or not all of it.
struct SmallFiles {
    /// Producer snapshots that nobody needs.
    snapshots: Vec<Offset>,
    /// Indexes of aborted transactions of which there is no segment. One that begins there later must not find them: a
    /// crash may keep the removal of a segment's records, and not that of its index.
    stray_txn_indexes: Vec<Offset>,
}

/// What is left behind the last sound batch of the last segment.
enum End {
    Clean,
    Garbage(u64),
    Rot(FenceReason),
}

pub(super) fn failed<'p>(path: &'p Path, what: &'static str) -> impl FnOnce(io::Error) -> OpenError + 'p {
    move |error| OpenError::Io { path: path.to_path_buf(), what, error }
}

/// Recovers the log in `folder`, whose files are `entries`.
pub(super) async fn recover(
    env: &StorageEnv,
    name: &LogName,
    folder: &Path,
    entries: &[DirEntry],
    epochs: EpochCache,
    checkpoint: Option<CheckpointEntry>,
    config: &LogConfig,
) -> Result<Recovered, OpenError> {
    let now = Timestamp(env.reactor().unix_ms().0);
    let offsets_of = |suffix| {
        let mut found: Vec<Offset> = entries.iter().filter_map(|e| parse_file_name(e.name.to_str()?, suffix)).collect();
        found.sort_unstable();
        found
    };
    let mut bases = offsets_of(LOG);
    let snapshots = offsets_of(SNAPSHOT);
    let txn_indexes = offsets_of(TXN_INDEX);
    let first = bases.first().copied();
    let known = checkpoint.is_some();
    let mut entry =
        checkpoint.unwrap_or_else(|| CheckpointEntry::starting_at(name.topic.clone(), first.unwrap_or(Offset::ZERO)));
    let limits = ProducerStateLimits { idle_ms_max: config.producer_idle_ms_max, ..ProducerStateLimits::default() };
    let mut recovery = Recovery {
        env,
        folder,
        entries: env.replay().entries(&name.key()),
        index_interval: config.index_interval_bytes,
        now,
        recovery: entry.recovery,
        limit: entry.truncate_to,
        log_start: entry.log_start,
        holes_below: entry.compacted_to,
        is_known: known,
        must_reach: match entry.truncate_to {
            // The cut may have fallen before the log start, if that lay within the batch that had to go.
            Some(_) => entry.recovery.offset,
            None => entry.recovery.offset.max(entry.log_start),
        },
        replay_from: Offset::ZERO,
        producers: ProducerState::new(limits, Offset::ZERO),
        are_epochs_missing: epochs.latest().is_none(),
        epochs,
        scanned_bytes: 0,
        newest_epoch: LeaderEpoch::NONE,
        snapshots: snapshots.clone(),
        txn_indexes: Vec::new(),
        txn_repairs: Vec::new(),
        parts: Vec::new(),
    };
    // Those before it were cut off: also by a truncation that was interrupted, which comes first.
    recovery.entries.retain(|e| e.sequence >= entry.replay_from);
    if let Some(limit) = entry.truncate_to {
        recovery.drop_segments_from(limit, &mut bases).await?;
    }
    let mut below_start = Vec::new();
    // What lies behind the recovery point is read all the same: the producers' state is in no snapshot yet.
    let unneeded = entry.log_start.min(entry.recovery.offset);
    while bases.get(1).is_some_and(|next| *next <= unneeded) {
        below_start.push(bases.remove(0));
    }
    let missing = match bases.first() {
        Some(first) if !known || *first <= entry.log_start => None,
        Some(_) | None => Some(FenceReason::Rot {
            segment: entry.log_start,
            position: 0,
            offset: entry.log_start,
            fault: Damage::Missing,
        }),
    };
    let first = bases.first().copied().unwrap_or(entry.log_start);
    let snapshot_at = recovery.load_snapshot(&snapshots, first).await?;
    let is_stray = |at: &Offset| bases.binary_search(at).is_err() && !below_start.contains(at);
    // As Kafka's start does it: those at segments' bases stay, for truncations, and the one that counts.
    let snapshots = snapshots.into_iter().filter(|at| Some(*at) != snapshot_at && is_stray(at)).collect();
    let (stray_txn_indexes, of_segments) = txn_indexes.into_iter().partition(is_stray);
    recovery.txn_indexes = of_segments;
    let small = SmallFiles { snapshots, stray_txn_indexes };
    let mut found = if missing.is_some() && bases.is_empty() {
        Found::nothing(first, now)
    } else {
        recovery.read_segments(&bases).await?
    };
    if missing.is_some() {
        found.rot = missing;
    }
    entry.log_start = entry.log_start.max(first).min(found.log_end);
    // The file may have been written before the log start moved.
    recovery.epochs.truncate_from_start(entry.log_start);
    if found.rot.is_none() {
        recovery.repair(&mut found, &small, &mut entry).await?;
        env.settle(&name.key());
    }
    Ok(Recovered {
        older: found.older,
        active: found.active,
        log_start: entry.log_start,
        log_end: found.log_end,
        producers: recovery.producers,
        epochs: recovery.epochs,
        checkpoint: entry,
        rot: found.rot,
        scanned_bytes: recovery.scanned_bytes,
        newest_epoch: recovery.newest_epoch,
        below_start,
        snapshot_at,
    })
}

/// The segments as they were read.
struct Found {
    older: VecDeque<Segment>,
    active: Segment,
    log_end: Offset,
    /// What must be zeroed behind the active segment's end, and up to where.
    garbage_end: Option<u64>,
    /// The active segment holds bytes that no recovery point vouches for.
    is_unsynced: bool,
    rot: Option<FenceReason>,
}

impl Found {
    fn nothing(at: Offset, now: Timestamp) -> Self {
        Self {
            older: VecDeque::new(),
            active: Segment::new(at, now),
            log_end: at,
            garbage_end: None,
            is_unsynced: false,
            rot: None,
        }
    }
}

impl Recovery<'_> {
    pub(super) fn path(&self, base: Offset, suffix: &str) -> PathBuf {
        segment_path(self.folder, base, suffix)
    }

    /// The first step of a truncation that was interrupted: segments that start at or behind its offset go, last one first.
    async fn drop_segments_from(&self, limit: Offset, bases: &mut Vec<Offset>) -> Result<(), OpenError> {
        while bases.len() > 1
            && let Some(base) = bases.pop_if(|last| *last >= limit)
        {
            remove_segment_files(self.env, self.folder, base)
                .await
                .map_err(failed(self.folder, "remove a truncated segment"))?;
        }
        Ok(())
    }

    /// Loads the newest sound producer snapshot at or below the recovery point, and replays from there.
    async fn load_snapshot(&mut self, snapshots: &[Offset], first: Offset) -> Result<Option<Offset>, OpenError> {
        let highest = self.recovery.offset.min(self.limit.unwrap_or(self.recovery.offset)).max(first);
        for at in snapshots.iter().rev().filter(|at| (first..=highest).contains(*at)) {
            let path = self.path(*at, SNAPSHOT);
            let bytes = read_file(self.env.reactor(), &path).await.map_err(failed(&path, "read it"))?;
            match self.producers.load(&bytes, *at, self.now) {
                Ok(()) => {
                    self.replay_from = *at;
                    return Ok(Some(*at));
                }
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "a producer snapshot is skipped");
                }
            }
        }
        self.producers.reset(first);
        self.replay_from = first;
        Ok(None)
    }

    async fn read_segments(&mut self, bases: &[Offset]) -> Result<Found, OpenError> {
        let mut older = VecDeque::new();
        let mut nexts = bases.iter().skip(1);
        for base in bases {
            let base = *base;
            let Some(next) = nexts.next().copied() else {
                return self.read_last(older, base).await;
            };
            // The recovery point moves into a segment only once those before it are sealed; of the one it lies in that is
            // not known, not even if it lies at its end.
            let trusted = next <= self.recovery.segment_base && next <= self.replay_from;
            if trusted && let Some(bytes) = self.check_sealed(base, next).await? {
                let part = Part { base, bytes, end: next, is_last: false };
                let aborted = self.take_up_aborted(part, next, Vec::new()).await?;
                older.push_back(Segment { aborted, ..Segment::sealed(base, bytes, self.now) });
                continue;
            }
            // A truncation cuts the last segment: those behind it are gone already.
            let scanned = self.scan(base, !trusted, None).await?;
            if scanned.next == next {
                older.push_back(self.rolled(base, scanned, false).await?);
                continue;
            }
            let fault = match scanned.stop {
                Some(ScanStop::Fault(fault)) => Damage::Batch(fault),
                Some(ScanStop::Limit) | None => Damage::End { found: scanned.next, expected: next },
            };
            let rot = FenceReason::Rot { segment: base, position: scanned.position, offset: scanned.next, fault };
            return self.found(older, base, scanned, End::Rot(rot)).await;
        }
        Ok(Found::nothing(self.replay_from, self.now))
    }

    async fn read_last(&mut self, older: VecDeque<Segment>, base: Offset) -> Result<Found, OpenError> {
        let mut scanned = self.scan(base, true, self.limit).await?;
        let entries = std::mem::take(&mut self.entries);
        if scanned.stop != Some(ScanStop::Limit)
            && let Some(rot) = self.reapply(base, &mut scanned, &entries).await?
        {
            return self.found(older, base, scanned, End::Rot(rot)).await;
        }
        let end = self.judge_end(base, &scanned).await?;
        self.found(older, base, scanned, end).await
    }

    async fn found(
        &mut self,
        older: VecDeque<Segment>,
        base: Offset,
        scanned: Scanned,
        end: End,
    ) -> Result<Found, OpenError> {
        let (garbage_end, rot) = match end {
            End::Clean => (None, None),
            End::Garbage(end) => (Some(end), None),
            End::Rot(reason) => (None, Some(reason)),
        };
        let log_end = scanned.next;
        let is_unsynced = log_end > self.recovery.offset || scanned.is_mended;
        let mut active = self.rolled(base, scanned, true).await?;
        active.phase = Phase::Active;
        active.snapshot = None;
        active.restored = Some((log_end, active.bytes()));
        Ok(Found { older, active, log_end, garbage_end, is_unsynced, rot })
    }

    async fn rolled(&mut self, base: Offset, scanned: Scanned, is_last: bool) -> Result<Segment, OpenError> {
        let part = Part { base, bytes: scanned.position, end: scanned.next, is_last };
        let vouched = self.recovery.offset.min(part.end);
        let aborted = self.take_up_aborted(part, vouched, scanned.aborted).await?;
        Ok(Segment {
            phase: Phase::Rolled,
            file: Some(scanned.file),
            room: scanned.file_bytes,
            tail: Tail::new(scanned.position),
            written: scanned.position,
            durable: scanned.position,
            boundary: scanned.position,
            index: Some(scanned.index),
            first_timestamp: scanned.first_timestamp,
            is_index_lost: scanned.is_index_lost,
            snapshot: Some(self.producers.snapshot()),
            aborted,
            ..Segment::new(base, self.now)
        })
    }

    /// Torn, rotten or clean: what stands behind the last sound batch of the last segment.
    async fn judge_end(&self, base: Offset, scanned: &Scanned) -> Result<End, OpenError> {
        let rot = |fault| {
            End::Rot(FenceReason::Rot { segment: base, position: scanned.position, offset: scanned.next, fault })
        };
        let fault = match scanned.stop {
            Some(ScanStop::Fault(fault)) => Some(fault),
            Some(ScanStop::Limit) | None => None,
        };
        if scanned.next < self.must_reach {
            let end = Damage::End { found: scanned.next, expected: self.must_reach };
            return Ok(rot(fault.map_or(end, Damage::Batch)));
        }
        if scanned.stop == Some(ScanStop::Limit) {
            return Ok(End::Garbage(scanned.file_bytes));
        }
        let Some(fault) = fault else {
            return Ok(End::Clean);
        };
        let path = self.path(base, LOG);
        let window = self
            .read_range(scanned, scanned.position, align_up(scanned.position) + COMMIT_BYTES_MAX)
            .await
            .map_err(failed(&path, "read it"))?;
        // A batch larger than one write: what of it was durable lies before the write that was interrupted.
        let batch_bytes = BatchHeader::parse(&window)
            .ok()
            .filter(|h| h.base_offset == scanned.next)
            .map_or(0, |h| h.total_bytes() as u64);
        let reach = align_up(scanned.position + batch_bytes) + COMMIT_BYTES_MAX;
        let window = if batch_bytes == 0 {
            window
        } else {
            self.read_range(scanned, scanned.position, reach).await.map_err(failed(&path, "read it"))?
        };
        match judge(&window, scanned.position, scanned.next, self.newest_epoch) {
            Verdict::Clean => Ok(End::Clean),
            Verdict::Rotten { .. } => Ok(rot(Damage::Batch(fault))),
            Verdict::Torn { garbage_end } => {
                // Bytes beyond the reach of one write were durable once: then so was the batch before them.
                let beyond = self.has_bytes(scanned, reach).await.map_err(failed(&path, "read it"))?;
                Ok(if beyond { rot(Damage::Batch(fault)) } else { End::Garbage(garbage_end) })
            }
        }
    }

    /// Makes the disk say what recovery found, before anything relies on it.
    async fn repair(
        &mut self,
        found: &mut Found,
        small: &SmallFiles,
        entry: &mut CheckpointEntry,
    ) -> Result<(), OpenError> {
        let reactor = self.env.reactor();
        let path = self.path(found.active.base, LOG);
        let position = found.active.bytes();
        if let Some(file) = found.active.file.clone() {
            let aligned = align_down(position);
            let block = self.read_block(&file, &path, aligned).await?;
            let block = block
                .get(..(position - aligned) as usize)
                .ok_or_else(|| failed(&path, "read it")(io::Error::from(io::ErrorKind::UnexpectedEof)))?;
            if let Some(garbage_end) = found.garbage_end {
                tracing::info!(log = %self.folder.display(), position, garbage_end, offset = %found.log_end, "zeroing what an interrupted write left");
                found.active.room = discard(self.env, &file, block, position, garbage_end)
                    .await
                    .map_err(failed(&path, "zero a torn tail"))?;
            }
            if found.is_unsynced || found.garbage_end.is_some() {
                file.fsync().await.map_err(failed(&path, "sync it"))?;
            }
            if !block.is_empty() {
                let buf = reactor
                    .pool()
                    .take(BLOCK_BYTES as usize)
                    .map_err(|e| failed(&path, "read it")(io::Error::new(io::ErrorKind::OutOfMemory, e)))?;
                found.active.tail.restore_block(buf, block);
            }
        }
        for segment in found.older.iter().filter(|s| s.phase == Phase::Rolled) {
            if let Some(file) = &segment.file {
                file.fsync().await.map_err(failed(&path, "sync a segment"))?;
            }
        }
        let segments = found.older.iter_mut().chain(std::iter::once(&mut found.active));
        let is_index_changed = self.repair_txn_indexes(segments).await?;
        for at in &small.stray_txn_indexes {
            unlink_if_there(reactor, &self.path(*at, TXN_INDEX))
                .await
                .map_err(failed(self.folder, "remove an index of aborted transactions"))?;
        }
        for at in &small.snapshots {
            unlink_if_there(reactor, &self.path(*at, SNAPSHOT))
                .await
                .map_err(failed(self.folder, "remove a producer snapshot"))?;
        }
        if is_index_changed || !self.is_settled(found, small, entry) {
            reactor.sync_dir(self.folder).await.map_err(failed(self.folder, "sync it"))?;
        }
        // An epoch that starts right at the end stays: it may have had records, below the log start by now.
        self.epochs.truncate_from_end(found.log_end.next());
        if entry.truncate_to.take().is_some() {
            // The truncation is complete now.
            entry.cut_compaction(found.log_end);
            if entry.recovery.offset > found.log_end {
                entry.recovery = RecoveryPoint { offset: found.log_end, segment_base: found.active.base, position };
            }
            entry.version += 1;
        }
        Ok(())
    }

    /// Whether the folder's entries are durable without a sync of this start's: nothing was repaired, and there is no file but
    /// those that the recovery point, or the log's creation, has vouched for. So of thousands of idle logs none is synced.
    fn is_settled(&self, found: &Found, small: &SmallFiles, entry: &CheckpointEntry) -> bool {
        let is_untouched = found.garbage_end.is_none()
            && entry.truncate_to.is_none()
            && found.older.iter().all(|segment| segment.phase == Phase::Sealed)
            && small.stray_txn_indexes.is_empty()
            && small.snapshots.iter().all(|at| *at <= found.log_end);
        // The log's first segment has its entry from the log's creation.
        let is_first = self.is_known && found.active.base == Offset::ZERO;
        let is_below = found.active.bytes() > 0 && !found.is_unsynced;
        is_untouched && (is_first || is_below)
    }
}
