//! Answering a read by a range of a sealed segment's file, without reading it: it is sent through the page cache.
//!
//! Holds: where such a range begins and ends. Never touches: the bytes in it; how they are sent.
//!
//! Only sealed segments: their files don't change, so that the page cache can't be stale, as it could where direct writes
//! still go. Only whole batches: a range begins and ends with a batch that was looked at (its header), as the sparse index
//! is believed only where the segment bears it out. Nothing between is looked at: whoever wants that checked reads
//! ([`Log::read_cold`]). Headers are read directly, not through the page cache: a page that is there already stops the kernel's
//! reading ahead, which begins anew behind it with its smallest pages (decision 0008).
//!
//! ```text
//!   index entries    v              v               v              v
//!   batches          |   |    |     |    |     |    |   |    |     |
//!                       ^ from: a walk of a few     ^ the last entry that fits, its header read:
//!                         headers, or known           known for the reader's next fetch
//! ```

use super::Log;
use super::cold::take;
use super::cold_segments::ColdSegment;
use super::index_check::names;
use super::names::{LOG, segment_path};
use super::read::{ColdPlan, Near};
use crate::batch::{BatchHeader, HEADER_BYTES};
use crate::disk::files::read_full;
use crate::disk::{align_down, align_up};
use crate::ids::Offset;
use corelog_reactor::{AlignedBuf, File, SharedFile};
use std::cell::RefCell;
use std::collections::VecDeque;

/// Headers' blocks that are read to find where a range begins.
const WALK_READS_MAX: usize = 8;
/// Readers of one segment whose place is remembered.
const PLACES_MAX: usize = 16;

/// Whole batches in a file. May go to another core.
#[derive(Clone, Debug)]
pub struct ColdRange {
    /// The segment's file.
    pub file: SharedFile,
    /// Where the first batch begins.
    pub start: u64,
    /// Where the last one ends.
    pub end: u64,
    /// Where the segment ends.
    pub file_end: u64,
    /// The offset behind the last batch.
    pub next_offset: Offset,
}

impl ColdRange {
    /// How many bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        (self.end - self.start) as usize
    }
}

/// Batches of one segment whose place is known: `(first offset, position)`, last found last.
#[derive(Debug, Default)]
pub(super) struct Places(RefCell<VecDeque<(Offset, u64)>>);

impl Places {
    fn find(&self, offset: Offset) -> Option<u64> {
        self.0.borrow().iter().find(|(known, _)| *known == offset).map(|(_, position)| *position)
    }

    fn note(&self, offset: Offset, position: u64) {
        let mut places = self.0.borrow_mut();
        if places.iter().any(|(known, _)| *known == offset) {
            return;
        }
        if places.len() >= PLACES_MAX {
            places.pop_front();
        }
        places.push_back((offset, position));
    }
}

impl Log {
    /// The range of a sealed segment's file that answers the plan of a [`read`](Self::read). `None`: there is none worth
    /// it, or none that is certain: [`read_cold`](Self::read_cold) answers, also with what is wrong.
    pub async fn cold_range(&self, plan: &ColdPlan) -> Option<ColdRange> {
        let options = self.0.env.options();
        // Where writes go through the page cache themselves, a segment that is cut changes what is on its way.
        let bytes_min = options.range_bytes_min.max(HEADER_BYTES) as u64;
        if !plan.is_sealed() || !options.direct || (plan.bytes_at_most() as u64) < bytes_min {
            return None;
        }
        let segment = self.cold_segment(plan.segment, plan.limit).await.ok()?;
        let near = Near::of(Some(&segment.index.offsets), plan.from, plan.limit);
        if plan.limit - near.floor < bytes_min {
            return None;
        }
        let file = self.shared_file(&segment).await?;
        let start = match segment.places.find(plan.from) {
            Some(position) => position,
            None => self.find_start(&segment.file, near, plan).await?,
        };
        let room_end = start.saturating_add(plan.bytes_max as u64);
        let (end, next_offset) = if plan.limit <= room_end && plan.segment_end <= plan.upper {
            (plan.limit, plan.segment_end)
        } else {
            let offsets = &segment.index.offsets;
            let by_bytes = offsets.floor_by_position(room_end)?;
            let by_offset = offsets.floor(Offset(plan.upper.0.saturating_sub(1)))?;
            // The batch of this entry is left out. All before it lie below the limit, as even its own last offset does.
            let entry = if by_bytes.position < by_offset.position { by_bytes } else { by_offset };
            let end = u64::from(entry.position);
            if end < start.saturating_add(bytes_min) {
                return None;
            }
            let header = self.header_at(&segment.file, end, plan.limit).await?;
            if !names(entry, &header) {
                return None;
            }
            segment.places.note(header.base_offset, end);
            (end, header.base_offset)
        };
        if end < start.saturating_add(bytes_min) || file.is_revoked() || plan.from < self.log_start() {
            return None;
        }
        self.0.env.count(|c| {
            c.reads_ranged += 1;
            c.bytes_ranged += end - start;
        });
        Some(ColdRange { file, start, end, file_end: plan.limit, next_offset })
    }

    /// The segment's file, open for the page cache; `None` if it is not to be trusted.
    async fn shared_file(&self, segment: &ColdSegment) -> Option<SharedFile> {
        let inner = &*self.0;
        let open = segment.shared.borrow().clone();
        let file = match open {
            Some(file) => file,
            None => {
                let (path, before) = (segment_path(&inner.folder, segment.base, LOG), inner.env.cold().revocations());
                let swaps = self.exchanges(segment.base)?;
                let file = inner.env.reactor().open_shared(&path).await.ok()?;
                // Revoked by then, it could not be found yet.
                if inner.env.cold().revocations() != before {
                    return None;
                }
                // It may be the file of the segment that took this one's place.
                if self.exchanges(segment.base) != Some(swaps) {
                    return None;
                }
                // Also where an exchange broke off: the old one, whose headers prove where a range ends, has another name then.
                let broken = inner.state.borrow().broken_swap;
                if broken.is_some_and(|first| segment.base >= first) {
                    return None;
                }
                inner.env.cold().lent(inner.number, segment.base, &file);
                segment.shared.borrow_mut().get_or_insert(file).clone()
            }
        };
        (!file.has_failed() && !file.is_revoked()).then_some(file)
    }

    /// Where the batch that contains the wanted offset begins.
    async fn find_start(&self, file: &File, near: Near, plan: &ColdPlan) -> Option<u64> {
        let mut position = near.floor;
        let mut to_prove = near.entry;
        for _ in 0..WALK_READS_MAX {
            let blocks = self.blocks_at(file, position, plan.limit).await?;
            let begin = position;
            while position < plan.limit {
                let rest = blocks.from(position);
                if rest.len() < HEADER_BYTES {
                    break;
                }
                let header = BatchHeader::parse(rest).ok()?;
                if to_prove.take().is_some_and(|entry| !names(entry, &header)) {
                    return None;
                }
                let last = header.last_offset()?;
                if last >= plan.from {
                    return (last < plan.upper).then_some(position);
                }
                position += header.total_bytes() as u64;
            }
            if position == begin {
                return None;
            }
        }
        None
    }

    async fn header_at(&self, file: &File, position: u64, limit: u64) -> Option<BatchHeader> {
        BatchHeader::parse(self.blocks_at(file, position, limit).await?.from(position)).ok()
    }

    /// The block of `position`, and the next one if a header from there on goes into it.
    async fn blocks_at(&self, file: &File, position: u64, limit: u64) -> Option<Blocks> {
        let env = &self.0.env;
        let start = align_down(position);
        let end = align_up(position + HEADER_BYTES as u64).min(align_up(limit));
        let buf = take(env, usize::try_from(end.checked_sub(start)?).ok()?).ok()?;
        // What fails here fails in the careful read, too, which says so.
        let (read, buf) = read_full(file, buf, start).await;
        let have = read.ok()?.min(usize::try_from(limit.saturating_sub(start)).unwrap_or(usize::MAX));
        Some(Blocks { buf, start, have })
    }
}

/// A few blocks of a segment.
struct Blocks {
    buf: AlignedBuf,
    start: u64,
    /// Bytes of them that the segment has.
    have: usize,
}

impl Blocks {
    /// What there is from this position of the segment on.
    fn from(&self, position: u64) -> &[u8] {
        let within = usize::try_from(position.saturating_sub(self.start)).unwrap_or(usize::MAX);
        self.buf.get(within..self.have).unwrap_or_default()
    }
}
