//! What one log is at this moment.
//!
//! Holds: the segments, the offsets, producers, epochs, what waits for the disk; every change to them that needs no
//! waiting. Never touches: files (the futures in `commit`, `keeper`, `change` do, and then change this).
//!
//! ```text
//!   older segments (sealed, or waiting to be)        active segment
//!   [........][........][........]                   [........|#####|          ]
//!   ^log_start                                        durable_end^    ^log_end  ^room (pre-written)
//! ```
//!
//! Of a segment, three positions: what its file has, what is durable, and its end.
//!
//! ```text
//!   file        [###############]
//!   commit log                  [######]
//!   memory                  [..................]       the block of `written` and all behind it
//!                               ^      ^       ^
//!                          written  durable  end
//! ```

use super::config::LogConfig;
use super::error::FenceReason;
use super::room::RoomDemand;
use crate::batch::{BatchHeader, HEADER_BYTES};
use crate::commit_log::FileId;
use crate::disk::checkpoint::CheckpointEntry;
use crate::disk::spare::{Charge, Spare, SpareTicket};
use crate::epochs::EpochCache;
use crate::ids::{LeaderEpoch, Offset, Timestamp};
use crate::producers::ProducerState;
use crate::segment::index::SegmentIndex;
use crate::segment::tail::Tail;
use crate::segment::txn_index::{AbortedTxn, TxnIndex};
use corelog_reactor::{File, Monotonic};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

/// Sizes of tail chunks: a quiet partition holds one block, a busy one megabytes.
pub(super) const CHUNK_BYTES_MIN: usize = 4 << 10;
pub(super) const CHUNK_BYTES_MAX: usize = 1 << 20;
/// A chunk that lasted less than this is followed by a larger one,
const CHUNK_GROWS_WITHIN: Duration = Duration::from_millis(100);
/// and one that lasted longer than this by a smaller one.
const CHUNK_SHRINKS_AFTER: Duration = Duration::from_secs(5);

/// Aborted transactions that wait in memory for a segment's file: with so many, the recovery point moves, and takes them along.
const ABORTED_PENDING_MAX: usize = 4096;

/// Whether a log takes writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// It does.
    Open,
    /// Not until the disk has space again.
    NoSpace,
    /// Not until a restart.
    Fenced(FenceReason),
    /// No more: it is closed, or about to be.
    Closed,
}

/// Where a segment is in its life: `Active -> Rolled -> Sealed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Takes appends.
    Active,
    /// Takes no more appends; its last bytes become durable, then it is sealed.
    Rolled,
    /// Trimmed, indexed, synced.
    Sealed,
}

/// One segment.
pub(super) struct Segment {
    pub(super) base: Offset,
    pub(super) phase: Phase,
    /// Open while it is not sealed; `None` as well until the first commit makes the file.
    pub(super) file: Option<Rc<File>>,
    /// The pre-written file that its first commit moves in.
    pub(super) spare: Option<Spare>,
    /// The spare has been renamed into the folder, though not yet durably.
    pub(super) spare_moved: bool,
    /// Length of the file: writes up to here change no metadata.
    pub(super) room: u64,
    /// The share of the budget for pre-written space.
    pub(super) charge: Option<Charge>,
    /// Its bytes in memory; its end is the segment's length.
    pub(super) tail: Tail,
    /// A batch boundary in the tail that no index entry may lead to: where the tail was restored, or where the file
    /// ends while the commit log has what is behind it.
    pub(super) restored: Option<(Offset, u64)>,
    /// Bytes before this position are on stable storage in the segment's file.
    pub(super) written: u64,
    /// Bytes before this position are on stable storage: from `written` on in the commit log.
    pub(super) durable: u64,
    /// Where the last batch ends that is durable as a whole.
    pub(super) boundary: u64,
    /// End position and next offset of the batches that are not durable yet.
    pub(super) ends: VecDeque<(u64, Offset)>,
    /// In memory while the segment is not sealed, or has a tail.
    pub(super) index: Option<SegmentIndex>,
    /// Its index files were missing or damaged when it was opened, and are not written anew yet.
    pub(super) is_index_lost: bool,
    /// Max timestamp of the first batch.
    pub(super) first_timestamp: Option<Timestamp>,
    /// When it became the active one, or was found by this start.
    pub(super) created: Timestamp,
    /// By how much sooner than `segment.ms` says it is rolled: its share of `segment.jitter.ms`.
    pub(super) jitter_ms: i64,
    /// The largest timestamp of its batches, also of those without records, once it takes no more and somebody has asked.
    pub(super) newest: Option<Timestamp>,
    /// The producers at its end, taken when it was rolled.
    pub(super) snapshot: Option<Vec<u8>>,
    /// Its index of aborted transactions; most segments have none.
    pub(super) aborted: Option<Box<TxnIndex>>,
}

impl Segment {
    /// A new, empty active segment.
    pub(super) fn new(base: Offset, now: Timestamp) -> Self {
        Self {
            base,
            phase: Phase::Active,
            file: None,
            spare: None,
            spare_moved: false,
            room: 0,
            charge: None,
            tail: Tail::new(0),
            restored: None,
            written: 0,
            durable: 0,
            boundary: 0,
            ends: VecDeque::new(),
            index: Some(SegmentIndex::new(base)),
            is_index_lost: false,
            first_timestamp: None,
            created: now,
            jitter_ms: 0,
            newest: None,
            snapshot: None,
            aborted: None,
        }
    }

    /// A sealed segment of `bytes`.
    pub(super) fn sealed(base: Offset, bytes: u64, now: Timestamp) -> Self {
        Self {
            phase: Phase::Sealed,
            tail: Tail::new(bytes),
            written: bytes,
            durable: bytes,
            boundary: bytes,
            room: bytes,
            index: None,
            ..Self::new(base, now)
        }
    }

    /// Its length.
    pub(super) const fn bytes(&self) -> u64 {
        self.tail.end()
    }

    /// Bytes that are durable in the commit log alone.
    pub(super) const fn unwritten(&self) -> u64 {
        self.durable - self.written
    }

    /// Whether its file has all of it, on stable storage.
    pub(super) const fn is_written(&self) -> bool {
        self.written == self.tail.end()
    }
}

/// A point that the recovery point can move to once everything below it is durable.
pub(super) struct Capture {
    pub(super) offset: Offset,
    pub(super) segment_base: Offset,
    pub(super) position: u64,
    pub(super) snapshot: Vec<u8>,
}

/// What a log has in one file of the commit log: it needs the file until its segment is written up to there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    pub(super) file: FileId,
    pub(super) segment: Offset,
    pub(super) end: u64,
}

/// The changing part of a log.
pub(super) struct State {
    pub(super) status: Status,
    /// A truncation, closing or deletion is under way: nothing else starts.
    pub(super) changing: bool,
    /// The one commit that may be under way.
    pub(super) writing: bool,
    /// The one write to a segment that may be in flight: a commit's, or one that follows the commit log.
    pub(super) filing: bool,
    /// The keeper is at work on older segments.
    pub(super) keeping: bool,
    /// The files of segments are being exchanged for a compacted one, which has this base: they stay until that is
    /// done.
    pub(super) swapping: Option<Offset>,
    /// An exchange of the segments from this base on has failed half-way: their files may have other names.
    pub(super) broken_swap: Option<Offset>,
    /// Exchanges so far: a reader whose plan is older may find other files.
    pub(super) swaps: u64,
    /// Truncations so far: what a compaction has read may be gone.
    pub(super) cuts: u64,
    pub(super) log_start: Offset,
    pub(super) log_end: Offset,
    pub(super) durable_end: Offset,
    pub(super) older: VecDeque<Segment>,
    pub(super) active: Segment,
    pub(super) pending_bytes: u64,
    pub(super) producers: ProducerState,
    /// No transaction was aborted behind this offset; nor at all, if there is none. So most logs are not searched for any.
    pub(super) aborted_to: Option<Offset>,
    pub(super) epochs: EpochCache,
    /// The checkpoint of epochs has all that records were written in; durable once the folder is synced.
    pub(super) are_epochs_written: bool,
    /// A leader's epoch never goes back below this.
    pub(super) epoch_begun: LeaderEpoch,
    /// The newest epoch was begun by a leader, and has no record yet: nothing is lost if the checkpoint has it not. The next
    /// leader begins another one at the same offset, which takes its place, as if it had never been.
    pub(super) is_epoch_unused: bool,
    /// What is, or is about to be, in the shard's checkpoint.
    pub(super) checkpoint: CheckpointEntry,
    pub(super) capture: Option<Capture>,
    pub(super) bytes_since_capture: u64,
    /// The newest snapshot that lies within a segment.
    pub(super) inner_snapshot: Option<Offset>,
    pub(super) ticket: Option<SpareTicket>,
    /// Oldest first, at most one for each file.
    pub(super) marks: SmallVec<[Mark; 4]>,
    pub(super) room_demand: RoomDemand,
    chunk_bytes: usize,
    chunk_since: Monotonic,
}

impl State {
    pub(super) fn new(
        active: Segment,
        log_start: Offset,
        log_end: Offset,
        producers: ProducerState,
        epochs: EpochCache,
        checkpoint: CheckpointEntry,
        now: Monotonic,
    ) -> Self {
        Self {
            status: Status::Open,
            changing: false,
            writing: false,
            filing: false,
            keeping: false,
            swapping: None,
            broken_swap: None,
            swaps: 0,
            cuts: 0,
            log_start,
            log_end,
            durable_end: log_end,
            older: VecDeque::new(),
            active,
            pending_bytes: 0,
            producers,
            aborted_to: None,
            epoch_begun: epochs.latest().map_or(LeaderEpoch::NONE, |e| e.epoch),
            epochs,
            are_epochs_written: false,
            is_epoch_unused: false,
            checkpoint,
            capture: None,
            bytes_since_capture: 0,
            inner_snapshot: None,
            ticket: None,
            marks: SmallVec::new(),
            room_demand: RoomDemand::new(now),
            chunk_bytes: CHUNK_BYTES_MIN,
            chunk_since: now,
        }
    }

    /// The facts that hold whenever nobody is in the middle of changing them.
    pub(super) fn assert_invariants(&self) {
        let (start, durable, end) = (self.log_start, self.durable_end, self.log_end);
        assert!(start <= end, "log start {start} behind log end {end}");
        assert!(durable <= end, "durable end {durable} behind log end {end}");
        let active = &self.active;
        assert!(active.base <= end, "active segment {} behind log end {end}", active.base);
        assert!(
            active.written <= active.durable && active.durable <= active.bytes(),
            "written byte {}, durable byte {}, the segment's end {}",
            active.written,
            active.durable,
            active.bytes()
        );
        if let Some(last) = self.older.back() {
            assert!(last.base < active.base, "segment {} before segment {}", last.base, active.base);
            assert!(last.phase != Phase::Active, "segment {} is active behind the active one", last.base);
            assert!(
                last.is_written() || active.durable == 0,
                "segment {} has durable bytes before {} is written",
                active.base,
                last.base
            );
        }
    }

    /// The newest leader epoch that was ever begun here, also when a truncation has removed its records.
    pub(super) fn epoch(&self) -> LeaderEpoch {
        self.epoch_begun.max(self.epoch_of_end())
    }

    /// The epoch of the log's last record, or the one begun behind it.
    pub(super) fn epoch_of_end(&self) -> LeaderEpoch {
        self.epochs.latest().map_or(LeaderEpoch::NONE, |e| e.epoch)
    }

    /// All segments, oldest first.
    pub(super) fn segments(&self) -> impl DoubleEndedIterator<Item = &Segment> {
        self.older.iter().chain(std::iter::once(&self.active))
    }

    /// The segments from the one that holds `offset` on, each with the offset behind its last.
    pub(super) fn segments_from(&self, offset: Offset) -> impl Iterator<Item = (&Segment, Offset)> {
        let first = self.older.partition_point(|s| s.base <= offset).saturating_sub(1);
        let first = if offset >= self.active.base { self.older.len() } else { first };
        let nexts = self.older.iter().skip(first + 1).map(|s| s.base);
        let ends = nexts.chain((first < self.older.len()).then_some(self.active.base)).chain([self.log_end]);
        self.older.iter().skip(first).chain(std::iter::once(&self.active)).zip(ends)
    }

    /// Number of the older segment with this base, or of the first behind it.
    fn older_at(&self, base: Offset) -> usize {
        self.older.partition_point(|s| s.base < base)
    }

    /// The segment with this base offset.
    pub(super) fn segment(&self, base: Offset) -> Option<&Segment> {
        if self.active.base == base {
            return Some(&self.active);
        }
        self.older.get(self.older_at(base)).filter(|s| s.base == base)
    }

    /// The segment with this base offset.
    pub(super) fn segment_mut(&mut self, base: Offset) -> Option<&mut Segment> {
        if self.active.base == base {
            return Some(&mut self.active);
        }
        let at = self.older_at(base);
        self.older.get_mut(at).filter(|s| s.base == base)
    }

    /// Puts a compacted segment into the place of older ones, which are returned.
    pub(super) fn replace_older(&mut self, base: Offset, count: usize, fresh: Segment) -> Vec<Segment> {
        let first = self.older_at(base);
        let last = (first + count).min(self.older.len());
        let old: Vec<Segment> = self.older.drain(first..last).collect();
        self.older.insert(first, fresh);
        old
    }

    /// The segment that holds `offset`, and the offset behind its last.
    pub(super) fn segment_of(&self, offset: Offset) -> Option<(&Segment, Offset)> {
        if offset >= self.active.base {
            return Some((&self.active, self.log_end));
        }
        let next = self.older.partition_point(|s| s.base <= offset);
        let segment = self.older.get(next.checked_sub(1)?)?;
        let end = self.older.get(next).map_or(self.active.base, |s| s.base);
        Some((segment, end))
    }

    /// The oldest segment with bytes that its file has not.
    pub(super) fn first_unwritten(&self) -> Option<&Segment> {
        // All older ones are written but for the last few.
        self.segments().rev().take_while(|s| !s.is_written() || s.bytes() == 0).filter(|s| !s.is_written()).last()
    }

    /// The offset behind what is durable of a segment: not of one behind the first that has anything that is not.
    pub(super) fn end_of_durable(&self, base: Offset) -> Option<Offset> {
        if base == self.active.base {
            return (self.durable_end >= base).then_some(self.durable_end);
        }
        let next = self.older_at(base) + 1;
        let end = self.older.get(next).map_or(self.active.base, |next| next.base);
        (self.durable_end >= base).then_some(self.durable_end.min(end))
    }

    /// Takes out a mark of what its segment has by now.
    pub(super) fn take_mark(&mut self) -> Option<Mark> {
        let first = *self.marks.first()?;
        let is_written = self.segment(first.segment).is_none_or(|s| first.end <= s.written);
        is_written.then(|| self.marks.remove(0))
    }

    /// Whether everything that is to be in the recovery point is in the segments.
    pub(super) fn is_capture_written(&self, capture: &Capture) -> bool {
        self.segment(capture.segment_base).is_none_or(|s| capture.position <= s.written)
    }

    /// The size of the spare to ask for now, if one is due: half of the room is used and none is on its way.
    pub(super) fn spare_due(&mut self, config: &LogConfig, bytes_max: u64) -> Option<u64> {
        if self.ticket.as_ref().is_some_and(SpareTicket::has_failed) {
            self.ticket = None;
        }
        if self.ticket.is_some() || self.active.bytes() * 2 < self.active_room() {
            return None;
        }
        self.room_demand.next_spare(bytes_max.min(u64::from(config.segment_bytes_max)))
    }

    fn active_room(&self) -> u64 {
        match &self.active.spare {
            Some(spare) => spare.bytes,
            None => self.active.room,
        }
    }

    /// Size of the next tail chunk, for at least `need` bytes if one chunk can be that large: at most `bytes_max`.
    pub(super) fn next_chunk_bytes(&mut self, need: u64, bytes_max: usize, now: Monotonic) -> usize {
        let lasted = now.saturating_since(self.chunk_since);
        self.chunk_since = now;
        if lasted < CHUNK_GROWS_WITHIN {
            self.chunk_bytes = (self.chunk_bytes * 4).min(CHUNK_BYTES_MAX);
        } else if lasted > CHUNK_SHRINKS_AFTER {
            self.chunk_bytes = (self.chunk_bytes / 4).max(CHUNK_BYTES_MIN);
        }
        let need = usize::try_from(need).unwrap_or(CHUNK_BYTES_MAX).min(CHUNK_BYTES_MAX);
        self.chunk_bytes.max(need.next_power_of_two()).min(bytes_max)
    }

    /// Copies a batch into the tail, which has the room, and takes note of it everywhere but in the producers.
    pub(super) fn push(
        &mut self,
        header: &BatchHeader,
        last_offset: Offset,
        head: &[u8; HEADER_BYTES],
        records: &[u8],
        config: &LogConfig,
        now: Monotonic,
    ) {
        assert!(
            header.base_offset == self.log_end,
            "batch {} appended at log end {}",
            header.base_offset,
            self.log_end
        );
        let bytes = HEADER_BYTES + records.len();
        let active = &mut self.active;
        let position = active.bytes();
        active.tail.append(head);
        active.tail.append(records);
        if let Some(index) = &mut active.index {
            index.note(header, last_offset, position, bytes, config.index_interval_bytes);
        }
        if position == 0 {
            active.first_timestamp = Some(header.max_timestamp);
        }
        self.log_end = last_offset.next();
        active.ends.push_back((active.tail.end(), self.log_end));
        self.pending_bytes += bytes as u64;
        self.bytes_since_capture += bytes as u64;
        self.room_demand.appended(bytes as u64, now);
    }

    /// A transaction was aborted whose marker is in the active segment.
    pub(super) fn note_aborted(&mut self, aborted: AbortedTxn) {
        self.aborted_to = self.aborted_to.max(Some(aborted.last_offset));
        let pending = self.active.aborted.get_or_insert_default().note(aborted);
        if pending >= ABORTED_PENDING_MAX {
            // More than any log may have to say until then.
            self.bytes_since_capture = self.bytes_since_capture.max(u64::MAX / 2);
        }
    }

    /// Remembers the log end as the next recovery point, if it is far enough behind and none waits already.
    pub(super) fn capture_if_due(&mut self, bytes_max: u64) {
        if self.bytes_since_capture < bytes_max || self.capture.is_some() {
            return;
        }
        self.bytes_since_capture = 0;
        self.capture = Some(Capture {
            offset: self.log_end,
            segment_base: self.active.base,
            position: self.active.bytes(),
            snapshot: self.producers.snapshot(),
        });
    }

    /// A write to the segment's file has made it durable up to `position`, and with it the log, if that is further than
    /// it was.
    pub(super) fn made_written(&mut self, base: Offset, position: u64, file_end: u64) {
        let durable_end = self.durable_end;
        let Some(segment) = self.segment_mut(base) else {
            return;
        };
        assert!(
            segment.written <= position && position <= segment.bytes(),
            "written byte {position} of a segment at {}..{}",
            segment.written,
            segment.bytes()
        );
        segment.written = position;
        segment.room = segment.room.max(file_end);
        if position > segment.durable {
            self.made_durable(base, position);
        }
        assert!(durable_end <= self.durable_end, "durable end moves back from {durable_end} to {}", self.durable_end);
        self.assert_invariants();
    }

    /// The segment is durable up to `position`, and the log up to the last batch that ends there or before.
    pub(super) fn made_durable(&mut self, base: Offset, position: u64) {
        let durable_end = self.durable_end;
        let Some(segment) = self.segment_mut(base) else {
            return;
        };
        assert!(
            segment.durable <= position && position <= segment.bytes(),
            "durable byte {position} of a segment at {}..{}",
            segment.durable,
            segment.bytes()
        );
        let bytes = position - segment.durable;
        segment.durable = position;
        let mut reached = durable_end;
        while let Some((end, next)) = segment.ends.front()
            && *end <= position
        {
            segment.boundary = *end;
            reached = *next;
            segment.ends.pop_front();
        }
        assert!(durable_end <= reached, "durable end moves back from {durable_end} to {reached}");
        assert!(self.pending_bytes >= bytes, "{bytes} bytes durable of {} pending", self.pending_bytes);
        self.pending_bytes -= bytes;
        self.durable_end = reached;
        self.assert_invariants();
    }
}
