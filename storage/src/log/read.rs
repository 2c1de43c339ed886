//! Planning a read: which bytes answer it, and where they are.
//!
//! Holds: the hot path (slices of the tail, no copy) and the plan of the cold one. Never touches: files.
//!
//! Batches are returned whole, from the one that contains the wanted offset on, never past the caller's upper limit and
//! never across a segment's end.

use super::Log;
use super::error::{Damage, ReadError};
use super::state::Segment;
use crate::batch::{BatchHeader, HEADER_BYTES};
use crate::ids::Offset;
use crate::segment::offset_index::{OffsetEntry, OffsetIndex};
use crate::segment::scan::BatchFault;
use crate::segment::tail::{Tail, TailSlices};
use corelog_reactor::File;
use std::rc::Rc;

/// What a read found.
#[derive(Debug)]
pub enum ReadOutcome {
    /// Nothing below the limit yet, or the first batch alone is larger than allowed.
    Empty,
    /// Bytes in memory.
    Hot(HotRead),
    /// Bytes on disk: go on with [`Log::read_cold`].
    Cold(ColdPlan),
}

/// Whole batches in memory. The slices may go to another core.
#[derive(Debug)]
pub struct HotRead {
    /// The bytes, in order.
    pub slices: TailSlices,
    /// Their number.
    pub bytes: usize,
    /// The offset behind the last batch.
    pub next_offset: Offset,
}

/// Which bytes of which file answer a read.
#[derive(Debug)]
pub struct ColdPlan {
    pub(super) segment: Offset,
    /// Offset behind the segment's last record.
    pub(super) segment_end: Offset,
    pub(super) from: Offset,
    pub(super) upper: Offset,
    pub(super) bytes_max: usize,
    pub(super) at_least_one: bool,
    /// Bytes of the segment that may be read: those its file has on stable storage.
    pub(super) limit: u64,
    /// Exchanges of segments by compaction, when the plan was made.
    pub(super) swaps: u64,
    /// File, and where in it the wanted batch is, if the segment is not sealed.
    pub(super) open: Option<(Rc<File>, Near)>,
}

impl ColdPlan {
    /// Whether the bytes are in a sealed segment.
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        self.open.is_none()
    }

    /// The segment's base offset.
    #[must_use]
    pub fn segment(&self) -> Offset {
        self.segment
    }

    /// The most that this read can bring, unless its first batch alone is larger: an estimate from above, since only the
    /// file tells where the wanted batch starts.
    #[must_use]
    pub fn bytes_at_most(&self) -> usize {
        let from = self.open.as_ref().map_or(0, |(_, near)| near.floor);
        usize::try_from(self.limit.saturating_sub(from)).unwrap_or(usize::MAX).min(self.bytes_max)
    }
}

/// What an index tells of the place of a batch: between these two positions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Near {
    pub(super) floor: u64,
    pub(super) ceiling: u64,
    /// The entry that the floor comes from: to be proved by the batch that stands there.
    pub(super) entry: Option<OffsetEntry>,
}

impl Near {
    /// Where the batch that contains `from` is, in a segment of `limit` bytes.
    pub(super) fn of(offsets: Option<&OffsetIndex>, from: Offset, limit: u64) -> Self {
        let (floor, ceiling) = offsets.map_or((0, None), |offsets| offsets.around(from));
        let entry = offsets.and_then(|offsets| offsets.floor(from));
        Self { floor: u64::from(floor), ceiling: ceiling.map_or(limit, u64::from).min(limit), entry }
    }

    /// The same by the entry before `entry`, which has turned out to be false: then its neighbour says nothing either.
    pub(super) fn before(entry: OffsetEntry, offsets: Option<&OffsetIndex>, limit: u64) -> Self {
        let before = Offset(entry.last_offset.0.saturating_sub(1));
        Self { ceiling: limit, ..Self::of(offsets, before, limit) }
    }
}

/// Bytes, limits and choices of one read.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub(super) from: Offset,
    pub(super) upper: Offset,
    pub(super) bytes_max: usize,
    pub(super) at_least_one: bool,
}

impl Log {
    /// Reads from the batch that contains `from` on: whole batches below `upper`, at most `bytes_max` bytes, with
    /// `at_least_one` also a first batch that is larger.
    ///
    /// # Errors
    /// When `from` is not within the log (its end is), or the bytes do not hold.
    pub fn read(
        &self,
        from: Offset,
        upper: Offset,
        bytes_max: usize,
        at_least_one: bool,
    ) -> Result<ReadOutcome, ReadError> {
        let state = self.0.state.borrow();
        let (log_start, log_end) = (state.log_start, state.log_end);
        if from < log_start || from > log_end {
            return Err(ReadError::OutOfRange { offset: from, log_start, log_end });
        }
        let wanted = Wanted { from, upper: upper.min(log_end), bytes_max, at_least_one };
        // Less than a header holds no batch: the disk need not be asked.
        if from >= wanted.upper || bytes_max < HEADER_BYTES && !at_least_one {
            return Ok(ReadOutcome::Empty);
        }
        let Some((segment, end)) = state.segment_of(from) else {
            return Ok(ReadOutcome::Empty);
        };
        let hot_from = hot_start(segment, from);
        if let Some(position) = hot_from {
            // Slices keep memory that the tail may want to let go of: none while there is little of it.
            if self.0.env.is_short_of_memory() {
                return Err(ReadError::Busy { bytes: bytes_max });
            }
            let read = read_hot(segment, end, position, wanted)?;
            self.0.env.count(|c| c.reads_hot += 1);
            return Ok(read.map_or(ReadOutcome::Empty, ReadOutcome::Hot));
        }
        if segment.written == 0 {
            return Ok(ReadOutcome::Empty);
        }
        let open = segment.file.as_ref().map(|file| {
            let offsets = segment.index.as_ref().map(|index| &index.offsets);
            (file.clone(), Near::of(offsets, from, segment.written))
        });
        self.0.env.count(|c| c.reads_cold += 1);
        Ok(ReadOutcome::Cold(ColdPlan {
            segment: segment.base,
            segment_end: end,
            from,
            upper: wanted.upper,
            bytes_max,
            at_least_one,
            limit: segment.written,
            swaps: state.swaps,
            open,
        }))
    }
}

/// A batch boundary in memory at or before the batch that contains `from`.
fn hot_start(segment: &Segment, from: Offset) -> Option<u64> {
    let index = segment.index.as_ref()?;
    let floor = u64::from(index.offsets.floor_position(from));
    let restored = segment.restored.filter(|(offset, _)| *offset <= from).map_or(0, |(_, position)| position);
    let start = floor.max(restored);
    (start >= segment.tail.start() && start < segment.tail.end()).then_some(start)
}

fn header_at(tail: &Tail, base: Offset, position: u64) -> Result<BatchHeader, ReadError> {
    let mut head = [0; HEADER_BYTES];
    if position + HEADER_BYTES as u64 > tail.end() {
        return Err(ReadError::Damaged { segment: base, position, fault: Damage::Batch(BatchFault::CutShort) });
    }
    tail.copy_out(position, &mut head);
    BatchHeader::parse(&head).map_err(|error| ReadError::Damaged {
        segment: base,
        position,
        fault: Damage::Batch(BatchFault::Header(error)),
    })
}

fn read_hot(
    segment: &Segment,
    segment_end: Offset,
    position: u64,
    wanted: Wanted,
) -> Result<Option<HotRead>, ReadError> {
    let tail = &segment.tail;
    let mut walk = Walk::new(position, wanted);
    while walk.position() < tail.end() {
        let header = header_at(tail, segment.base, walk.position())?;
        if !walk.step(&header) {
            break;
        }
        // The index leads over what certainly belongs to the answer.
        if let Some((start, _)) = walk.found()
            && let Some(index) = &segment.index
        {
            let by_bytes = index.offsets.floor_by_position(start + wanted.bytes_max as u64);
            let by_offset = index.offsets.floor(Offset(wanted.upper.0.saturating_sub(1)));
            if let (Some(a), Some(b)) = (by_bytes, by_offset) {
                walk.skip_to(u64::from(a.position.min(b.position)));
            }
        }
    }
    let Some((start, end)) = walk.found() else {
        return Ok(None);
    };
    let next_offset = if end < tail.end() { header_at(tail, segment.base, end)?.base_offset } else { segment_end };
    let mut slices = TailSlices::new();
    tail.slices(start, end, &mut slices);
    Ok(Some(HotRead { slices, bytes: (end - start) as usize, next_offset }))
}

/// The walk from batch to batch that decides where an answer starts and ends.
pub(super) struct Walk {
    wanted: Wanted,
    position: u64,
    start: Option<u64>,
    end: u64,
}

impl Walk {
    /// A walk from a batch boundary at or before the wanted batch.
    pub(super) const fn new(position: u64, wanted: Wanted) -> Self {
        Self { wanted, position, start: None, end: position }
    }

    /// Where the next batch starts.
    pub(super) const fn position(&self) -> u64 {
        self.position
    }

    /// Start and end of the answer so far.
    pub(super) fn found(&self) -> Option<(u64, u64)> {
        self.start.map(|start| (start, self.end))
    }

    /// Whether the batch with this header, at the walk's position, belongs to the answer or lies before it. If not, the
    /// walk is over.
    pub(super) fn step(&mut self, header: &BatchHeader) -> bool {
        let bytes = header.total_bytes() as u64;
        let Some(last) = header.last_offset() else {
            return false;
        };
        if last < self.wanted.from {
            self.position += bytes;
            return true;
        }
        if last >= self.wanted.upper {
            return false;
        }
        let end = self.position + bytes;
        let start = self.start.unwrap_or(self.position);
        let is_first = self.start.is_none();
        if end - start > self.wanted.bytes_max as u64 && !(is_first && self.wanted.at_least_one) {
            return false;
        }
        self.start = Some(start);
        self.end = end;
        self.position = end;
        true
    }

    /// Moves over batches that are known to belong to the answer, up to the one that starts at `position`.
    pub(super) fn skip_to(&mut self, position: u64) {
        if self.start.is_some() && position > self.position {
            self.position = position;
            self.end = position;
        }
    }
}
