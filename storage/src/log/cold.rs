//! Reading what is only on disk: direct reads, so that the page cache plays no part. ([`super::cold_range`] is the other
//! way, which reads nothing.)
//!
//! Holds: the execution of a plan. (The few sealed segments that stay open with their indexes: [`super::cold_segments`].)
//! Never touches: bytes that are not on stable storage.

use super::Log;
use super::cold_range::Places;
use super::cold_segments::ColdSegment;
use super::env::StorageEnv;
use super::error::{Damage, ReadError};
use super::index_check::names;
use super::names::{DELETED, INDEX, LOG, TIME_INDEX, segment_path, with_suffix};
use super::read::{ColdPlan, Near, ReadOutcome, Walk, Wanted};
use super::scan_file::scan_file;
use crate::batch::{BatchHeader, HEADER_BYTES, crc_of};
use crate::disk::files::{read_file, read_full};
use crate::disk::{BLOCK_BYTES, align_down, align_up};
use crate::ids::{LeaderEpoch, Offset, Timestamp};
use crate::segment::index::SegmentIndex;
use crate::segment::offset_index::{IndexError, OffsetEntry, OffsetIndex};
use crate::segment::scan::{BatchFault, ScanStop, Scanner};
use crate::segment::time_index::{TimeIndex, TimestampOffset};
use corelog_reactor::{AlignedBuf, File, IoBufs, IoVecs, OpenHow};
use std::cell::RefCell;
use std::io;
use std::ops::Deref;
use std::rc::Rc;

/// Index entries that are tried, one before the other, until one is true.
const FALSE_ENTRIES_MAX: usize = 8;

/// Bytes one cold read asks the disk for, unless a single batch is larger.
const READ_BYTES_MAX: usize = 1 << 20;
const _: () = assert!((READ_BYTES_MAX as u64).is_multiple_of(BLOCK_BYTES));

/// Whole batches that were read from the disk. May go to another core.
#[derive(Debug)]
pub struct ColdRead {
    buf: AlignedBuf,
    start: usize,
    end: usize,
    /// Where in the segment it begins.
    position: u64,
    /// The offset behind the last batch.
    pub next_offset: Offset,
}

impl ColdRead {
    /// Checks every batch's checksum. Ends before the first that is damaged.
    ///
    /// # Errors
    /// When that is the first of all.
    pub fn checked(mut self, segment: Offset) -> Result<Self, ReadError> {
        let mut position = 0;
        while let Some(rest) = self.get(position..).filter(|rest| !rest.is_empty()) {
            // Read as whole batches: a header that is none, or too long, is damage like any other.
            let fault = match BatchHeader::parse(rest) {
                Ok(header) => match rest.get(..header.total_bytes()) {
                    Some(batch) if crc_of(batch) == header.crc => {
                        position += batch.len();
                        continue;
                    }
                    Some(batch) => BatchFault::Crc { found: crc_of(batch), stored: header.crc },
                    None => BatchFault::CutShort,
                },
                Err(error) => BatchFault::Header(error),
            };
            if position == 0 {
                return Err(ReadError::Damaged { segment, position: self.position, fault: Damage::Batch(fault) });
            }
            if let Ok(header) = BatchHeader::parse(rest) {
                self.next_offset = header.base_offset;
            }
            self.end = self.start + position;
            break;
        }
        Ok(self)
    }
}

impl Deref for ColdRead {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.buf.get(self.start..self.end).unwrap_or_default()
    }
}

// SAFETY: the bytes are in a pool buffer of this value alone; they neither move nor change.
unsafe impl IoBufs for ColdRead {
    fn expose(&self, into: &mut IoVecs) {
        into.push(self);
    }
}

impl Log {
    /// Executes a plan of [`read`](Self::read). `None`: the first batch alone is larger than allowed, or passes the
    /// limit.
    ///
    /// # Errors
    /// When the disk fails, there is no memory, or the bytes do not hold; [`ReadError::OutOfRange`] when the records
    /// were deleted meanwhile.
    pub async fn read_cold(&self, mut plan: ColdPlan) -> Result<Option<ColdRead>, ReadError> {
        let from = plan.from;
        let read = loop {
            let (upper, bytes_max, at_least_one) = (plan.upper, plan.bytes_max, plan.at_least_one);
            let (swaps, is_sealed) = (plan.swaps, plan.is_sealed());
            let read = self.execute(plan).await;
            // What an old segment's file gives is right, for as long as it gives something.
            if !is_sealed || matches!(read, Ok(Some(_))) || !self.was_exchanged(swaps, read.as_ref().err()).await {
                break read;
            }
            plan = match self.read(from, upper, bytes_max, at_least_one)? {
                ReadOutcome::Cold(plan) => plan,
                ReadOutcome::Empty => return Ok(None),
                ReadOutcome::Hot(_) => return Err(ReadError::Busy { bytes: bytes_max }),
            };
        };
        let (log_start, log_end) = (self.log_start(), self.log_end());
        if read.is_err() && from < log_start {
            // Deleted between plan and read, the segment's file with them: whatever the disk says is no fault of its
            // own.
            return Err(ReadError::OutOfRange { offset: from, log_start, log_end });
        }
        read
    }

    /// Whether compaction has put other segments in the place of those that were there at `swaps`. Waits for an
    /// exchange that is under way.
    pub(super) async fn was_exchanged(&self, swaps: u64, error: Option<&ReadError>) -> bool {
        let inner = &*self.0;
        let at_rest = || {
            let state = inner.state.borrow();
            state.swapping.is_none().then_some(state.swaps)
        };
        let is_caught = matches!(error, Some(ReadError::Io { error, .. }) if error.kind() == io::ErrorKind::WouldBlock);
        inner.changed.until(at_rest).await != swaps || is_caught
    }

    /// Exchanges so far; `None` while the files of this segment may be those of either.
    pub(super) fn exchanges(&self, base: Offset) -> Option<u64> {
        let state = self.0.state.borrow();
        state.swapping.is_none_or(|first| base < first).then_some(state.swaps)
    }

    async fn execute(&self, plan: ColdPlan) -> Result<Option<ColdRead>, ReadError> {
        let sealed = match &plan.open {
            Some(_) => None,
            None => Some(self.cold_segment(plan.segment, plan.limit).await?),
        };
        let (file, mut near) = match (&plan.open, &sealed) {
            (Some((file, near)), _) => (&**file, *near),
            (None, Some(segment)) => (&segment.file, Near::of(Some(&segment.index.offsets), plan.from, plan.limit)),
            (None, None) => return Ok(None),
        };
        for _ in 0..FALSE_ENTRIES_MAX {
            let entry = match read_planned(&self.0.env, file, near, &plan).await? {
                Planned::Read(read) => return Ok(read),
                Planned::FalseEntry(entry) => entry,
            };
            tracing::warn!(log = %self.0.name, segment = %plan.segment, ?entry, "a false index entry");
            near = match &sealed {
                Some(segment) => Near::before(entry, Some(&segment.index.offsets), plan.limit),
                None => {
                    let state = self.0.state.borrow();
                    let index = state.segment(plan.segment).and_then(|segment| segment.index.as_ref());
                    Near::before(entry, index.map(|index| &index.offsets), plan.limit)
                }
            };
        }
        // From the segment's first batch on: slow, and right whatever the index says.
        let Planned::Read(read) = read_planned(&self.0.env, file, Near::of(None, plan.from, plan.limit), &plan).await?
        else {
            return Ok(None);
        };
        if let Some(segment) = &sealed
            && self.rebuild_index(plan.segment, plan.limit, file, segment.swaps).await.is_ok()
        {
            self.0.env.cold().close(self.0.number, Some(plan.segment));
        }
        Ok(read)
    }

    /// A sealed segment of `bytes`, opened now or before. Its indexes are rebuilt if they are missing or damaged.
    pub(super) async fn cold_segment(&self, base: Offset, bytes: u64) -> Result<Rc<ColdSegment>, ReadError> {
        let inner = &*self.0;
        if let Some(segment) = inner.env.cold().find(inner.number, base) {
            return Ok(segment);
        }
        let io = |error| {
            inner.env.note_error(&error);
            ReadError::Io { segment: base, error }
        };
        let swaps = self.exchanges(base);
        let file = self.open_sealed(base, bytes).await.map_err(io)?;
        let index = match self.load_index(base, bytes).await.map_err(io)? {
            Ok(index) => index,
            Err(fault) => {
                tracing::warn!(log = %inner.name, segment = %base, %fault, "rebuilding the indexes of a segment");
                self.rebuild_index(base, bytes, &file, swaps).await?
            }
        };
        if swaps.is_none() || self.exchanges(base) != swaps {
            // The one file may be the old segment's and the other the new one's.
            return Err(io(io::ErrorKind::WouldBlock.into()));
        }
        if let Some(segment) = inner.env.cold().find(inner.number, base) {
            // Another reader has opened it meanwhile. A second one would stay when the first is taken out.
            return Ok(segment);
        }
        let (shared, places) = (RefCell::default(), Places::default());
        let segment = Rc::new(ColdSegment { log: inner.number, base, file, index, shared, places, swaps });
        inner.env.cold().insert(segment.clone());
        Ok(segment)
    }

    /// The file of a sealed segment of `bytes`; also the one that an exchange which failed half-way has put aside.
    async fn open_sealed(&self, base: Offset, bytes: u64) -> io::Result<File> {
        let inner = &*self.0;
        let how = OpenHow { direct: inner.env.options().direct, ..OpenHow::read() };
        let path = segment_path(&inner.folder, base, LOG);
        let opened = inner.env.reactor().open(&path, how).await;
        if inner.state.borrow().broken_swap.is_none_or(|first| base < first)
            || opened.as_ref().is_ok_and(|file| file.len().is_ok_and(|len| len == bytes))
        {
            return opened;
        }
        inner.env.reactor().open(&with_suffix(&path, DELETED), how).await
    }

    /// Both indexes of a segment, from their files.
    pub(super) async fn load_index(&self, base: Offset, bytes: u64) -> io::Result<Result<SegmentIndex, IndexError>> {
        load_index(&self.0.env, &self.0.folder, base, bytes).await
    }

    /// The largest timestamp of a sealed segment's batches: by its time index, if the batch that the last entry names proves
    /// it, and its last batch; else by all of them. Nobody else can tell what an index without a checksum is worth, and
    /// records go by it. Of what a compaction has left without records, which its index leaves out, the last batch tells:
    /// it is the newest, unless a producer's clock goes back.
    pub(super) async fn proved_newest(&self, base: Offset, bytes: u64, end: Offset) -> Result<Timestamp, ReadError> {
        let segment = self.cold_segment(base, bytes).await?;
        let header_of = async |from: Offset| {
            let plan = ColdPlan {
                segment: base,
                segment_end: end,
                from,
                upper: end,
                bytes_max: HEADER_BYTES,
                at_least_one: true,
                limit: bytes,
                swaps: segment.swaps.unwrap_or_default(),
                open: None,
            };
            let read = self.execute(plan).await?;
            Ok::<_, ReadError>(read.as_deref().and_then(|batch| BatchHeader::parse(batch).ok()))
        };
        let TimestampOffset { timestamp, offset } = segment.index.largest;
        if timestamp.0 >= 0 && header_of(offset).await?.is_some_and(|header| header.max_timestamp == timestamp) {
            let last = if base < self.compacted_to() { header_of(Offset(end.0 - 1)).await? } else { None };
            return Ok(last.map_or(timestamp, |last| timestamp.max(last.max_timestamp)));
        }
        if !segment.index.times.is_empty() {
            tracing::warn!(log = %self.0.name, segment = %base, %timestamp, "the time index is wrong about its last entry");
        }
        Ok(self.reread_index(base, bytes).await?.newest)
    }

    /// The indexes of a sealed segment, made anew from its batches, for who finds that they say what is not.
    pub(super) async fn reread_index(&self, base: Offset, bytes: u64) -> Result<SegmentIndex, ReadError> {
        let segment = self.cold_segment(base, bytes).await?;
        let index = self.rebuild_index(base, bytes, &segment.file, segment.swaps).await?;
        self.0.env.cold().forget(self.0.number, Some(base));
        Ok(index)
    }

    async fn rebuild_index(
        &self,
        base: Offset,
        bytes: u64,
        file: &File,
        swaps: Option<u64>,
    ) -> Result<SegmentIndex, ReadError> {
        let inner = &*self.0;
        let io = |error| ReadError::Io { segment: base, error };
        let interval = inner.config.borrow().index_interval_bytes;
        let mut index = SegmentIndex::new(base);
        let mut scanner = Scanner::new(0, base, LeaderEpoch::NONE, None).with_holes_below(self.compacted_to());
        let stop = scan_file(inner.env.reactor(), file, &mut scanner, bytes, |b| {
            index.note(&b.header, b.last_offset, b.position, b.bytes, interval);
        })
        .await
        .map_err(io)?;
        if let Some(ScanStop::Fault(fault)) = stop {
            return Err(ReadError::Damaged {
                segment: base,
                position: scanner.position(),
                fault: Damage::Batch(fault),
            });
        }
        index.finish();
        if swaps.is_none() || self.exchanges(base) != swaps || self.fenced().is_some() {
            // The file is no longer the segment's, and its index must not take the place of the other one's.
            return Ok(index);
        }
        // A read that was planned before the segment went leaves none behind it.
        let is_gone = inner.state.borrow().segment(base).is_none();
        // Only a help for the next time: what was read is good without it.
        if !is_gone && let Err(error) = self.write_index_files(base, &index).await {
            tracing::warn!(log = %inner.name, segment = %base, %error, "cannot write rebuilt indexes");
        }
        Ok(index)
    }
}

/// Both indexes of a segment that is `bytes` long, from their files in `folder`. A missing file counts as damaged.
pub(super) async fn load_index(
    env: &StorageEnv,
    folder: &std::path::Path,
    base: Offset,
    bytes: u64,
) -> io::Result<Result<SegmentIndex, IndexError>> {
    let missing = IndexError::Missing { segment_bytes: bytes };
    let mut files = [const { None }; 2];
    for (slot, suffix) in files.iter_mut().zip([INDEX, TIME_INDEX]) {
        match read_file(env.reactor(), &segment_path(folder, base, suffix)).await {
            Ok(bytes) => *slot = Some(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    let [Some(offsets), Some(times)] = files else {
        return Ok(Err(missing));
    };
    let decoded =
        OffsetIndex::decode(base, &offsets, bytes).and_then(|offsets| Ok((offsets, TimeIndex::decode(base, &times)?)));
    Ok(decoded.map(|(offsets, times)| SegmentIndex::from_files(base, offsets, times)))
}

/// How a planned read ended.
enum Planned {
    Read(Option<ColdRead>),
    /// Where the entry says that a batch starts there is none, or another one.
    FalseEntry(OffsetEntry),
}

async fn read_planned(env: &StorageEnv, file: &File, near: Near, plan: &ColdPlan) -> Result<Planned, ReadError> {
    let wanted =
        Wanted { from: plan.from, upper: plan.upper, bytes_max: plan.bytes_max, at_least_one: plan.at_least_one };
    let mut position = near.floor;
    let mut to_prove = near.entry;
    // Where the index can't promise that the wanted batch fits, its header is looked at first: many partitions whose
    // batches are larger than the client takes would else be read for nothing, again and again.
    let mut may_be_too_large = !plan.at_least_one && near.ceiling.saturating_sub(near.floor) > plan.bytes_max as u64;
    // A batch, or the batches before the wanted one, may be larger than one read: then the next read starts where this
    // one got to, and is as large as it must be.
    let mut need = HEADER_BYTES;
    loop {
        if position >= plan.limit {
            return Ok(to_prove.map_or(Planned::Read(None), Planned::FalseEntry));
        }
        let start = align_down(position);
        let ahead =
            if std::mem::take(&mut may_be_too_large) { 0 } else { plan.bytes_max.saturating_add(BLOCK_BYTES as usize) };
        let bytes = ahead.min(READ_BYTES_MAX).max(need + (position - start) as usize);
        let end = align_up(start + bytes as u64).min(align_up(plan.limit));
        let buf = take(env, (end - start) as usize)?;
        let (result, buf) = read_full(file, buf, start).await;
        if let Err(error) = &result {
            env.note_error(error);
        }
        let have = result.map_err(|error| ReadError::Io { segment: plan.segment, error })?;
        env.count(|c| c.bytes_cold += have as u64);
        let have = have.min(usize::try_from(plan.limit - start).unwrap_or(have));
        let at = |position: u64| {
            let from = usize::try_from(position - start).unwrap_or(have).min(have);
            buf.get(from..have).unwrap_or_default()
        };
        let mut walk = Walk::new(position, wanted);
        let mut cut_short = None;
        let mut next = plan.segment_end;
        while walk.position() < plan.limit {
            let rest = at(walk.position());
            if rest.len() < HEADER_BYTES {
                cut_short = Some(HEADER_BYTES);
                break;
            }
            let parsed = BatchHeader::parse(rest);
            if let Some(entry) = to_prove.take()
                && !parsed.as_ref().is_ok_and(|header| names(entry, header))
            {
                return Ok(Planned::FalseEntry(entry));
            }
            let header = match parsed {
                Ok(header) => header,
                // What was found before the damage is an answer; the next read gets the error.
                Err(_) if walk.found().is_some() => break,
                Err(error) => {
                    return Err(ReadError::Damaged {
                        segment: plan.segment,
                        position: walk.position(),
                        fault: Damage::Batch(BatchFault::Header(error)),
                    });
                }
            };
            next = header.base_offset;
            let last = header.last_offset().unwrap_or(header.base_offset);
            let is_wanted = last >= plan.from;
            if is_wanted && rest.len() < header.total_bytes() {
                cut_short = Some(header.total_bytes());
                break;
            }
            if !walk.step(&header) {
                break;
            }
            next = last.next();
        }
        if let Some((from, to)) = walk.found() {
            let within = |p: u64| (p - start) as usize;
            let read = ColdRead { start: within(from), end: within(to), buf, position: from, next_offset: next };
            return Ok(Planned::Read(Some(read)));
        }
        let Some(bytes) = cut_short else {
            return Ok(Planned::Read(None));
        };
        if !plan.at_least_one && bytes > plan.bytes_max {
            return Ok(Planned::Read(None));
        }
        if walk.position() == position && need >= bytes {
            if let Some(entry) = to_prove {
                return Ok(Planned::FalseEntry(entry));
            }
            // All of it was asked for: the rest is not durable yet, or the file has lost it.
            if end >= align_up(plan.limit) && have as u64 >= plan.limit - start {
                return Ok(Planned::Read(None));
            }
            return Err(ReadError::Damaged {
                segment: plan.segment,
                position,
                fault: Damage::Batch(BatchFault::CutShort),
            });
        }
        position = walk.position();
        need = bytes;
    }
}

/// Memory for a cold read, if enough is left for what must go on.
pub(super) fn take(env: &StorageEnv, bytes: usize) -> Result<AlignedBuf, ReadError> {
    env.reactor().pool().take_leaving(bytes, 2 * env.reserve_bytes()).map_err(|_| ReadError::Busy { bytes })
}
