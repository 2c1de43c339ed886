//! Finding offsets by time, for ListOffsets.
//!
//! Holds: the way from a timestamp over the time index to a record. Never touches: the high watermark (callers bring it).

use super::Log;
use super::error::{Damage, ReadError};
use super::read::ReadOutcome;
use crate::batch::{
    BatchError, BatchView, Batches, DecompressScratch, ScanError, first_at_or_after, offset_of_max_timestamp,
};
use crate::ids::{Offset, Timestamp};
use crate::segment::scan::BatchFault;
use crate::segment::time_index::TimestampOffset;

/// Bytes read at once while searching.
const READ_BYTES: usize = 64 << 10;
/// Decompressed bytes of one batch that a search looks at; more is taken for an attack.
const DECOMPRESSED_BYTES_MAX: u64 = 1 << 30;

/// Why a search by time found no answer.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    /// The log could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A batch's records cannot be read.
    #[error("batch at offset {base_offset}: {error}")]
    Records {
        /// The batch.
        base_offset: Offset,
        /// What is wrong with it.
        error: ScanError,
    },
}

/// What is known of one segment without reading it.
struct Part {
    base: Offset,
    bytes: u64,
    largest: Option<TimestampOffset>,
    /// Where the first batch at or after the wanted time cannot lie before, if the index is in memory.
    start: Option<Offset>,
}

impl Log {
    /// The first record whose timestamp is `timestamp` or later, at or behind the log start and below `upper`.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub async fn offset_for_timestamp(
        &self,
        timestamp: Timestamp,
        upper: Offset,
    ) -> Result<Option<TimestampOffset>, LookupError> {
        self.again_if_changed(async || self.find_offset(timestamp, upper).await).await
    }

    /// Does it once more for as long as compaction has exchanged segments underneath, or the log's start has passed the
    /// place that was looked at: what is sought lies behind it then.
    async fn again_if_changed<T>(&self, search: impl AsyncFn() -> Result<T, LookupError>) -> Result<T, LookupError> {
        loop {
            let (swaps, log_start) = (self.0.state.borrow().swaps, self.log_start());
            match search().await {
                Err(LookupError::Read(ReadError::OutOfRange { .. })) if self.log_start() > log_start => {}
                Err(LookupError::Read(error)) if self.was_exchanged(swaps, Some(&error)).await => {}
                other => return other,
            }
        }
    }

    async fn find_offset(&self, timestamp: Timestamp, upper: Offset) -> Result<Option<TimestampOffset>, LookupError> {
        let log_start = self.log_start();
        let parts = self.parts(|times| {
            let entry = times.floor(timestamp);
            entry.map(|e| e.offset)
        });
        for mut part in parts {
            if part.largest.is_none() {
                let cold = self.cold_segment(part.base, part.bytes).await?;
                part.largest = Some(cold.index.largest);
                part.start = cold.index.times.floor(timestamp).map(|e| e.offset);
            }
            if part.largest.is_none_or(|l| l.timestamp < timestamp) {
                continue;
            }
            let from = part.start.unwrap_or(part.base).max(log_start);
            let mut scratch = DecompressScratch::new();
            let found = self
                .search(from, upper, |batch| {
                    if batch.header.max_timestamp < timestamp {
                        return Ok(None);
                    }
                    let found = first_at_or_after(batch, timestamp, log_start, DECOMPRESSED_BYTES_MAX, &mut scratch)?;
                    Ok(found.map(|(timestamp, offset)| TimestampOffset { timestamp, offset }))
                })
                .await?;
            return Ok(found.filter(|f| f.offset < upper));
        }
        Ok(None)
    }

    /// The earliest record with the largest timestamp below `upper` (KIP-734). `None` for a log without records.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub async fn max_timestamp(&self, upper: Offset) -> Result<Option<TimestampOffset>, LookupError> {
        self.again_if_changed(async || self.find_max_timestamp(upper).await).await
    }

    async fn find_max_timestamp(&self, upper: Offset) -> Result<Option<TimestampOffset>, LookupError> {
        let mut reread = Vec::new();
        loop {
            let mut best: Option<(TimestampOffset, Offset, u64)> = None;
            for part in self.parts(|_| None) {
                let largest = match part.largest {
                    Some(largest) => largest,
                    None => self.cold_segment(part.base, part.bytes).await?.index.largest,
                };
                let is_readable = largest.timestamp != Timestamp::NONE && largest.offset < upper;
                if is_readable && best.is_none_or(|(b, ..)| largest.timestamp > b.timestamp) {
                    best = Some((largest, part.base, part.bytes));
                }
            }
            let Some((best, base, bytes)) = best else {
                return Ok(None);
            };
            // A Kafka's own index may lead to a header that its compaction has left.
            let may_reread = !reread.contains(&base) && self.is_index_on_disk(base);
            let mut scratch = DecompressScratch::new();
            let from = best.offset.max(self.log_start());
            let found = self
                .search(from, upper, |batch| {
                    let is_named = batch.header.last_offset() == Some(best.offset);
                    if may_reread && is_named && batch.header.record_count == 0 {
                        return Ok(Some(None));
                    }
                    let found = offset_of_max_timestamp(batch, DECOMPRESSED_BYTES_MAX, &mut scratch)?;
                    let timestamp = batch.header.max_timestamp;
                    Ok(found.map(|offset| Some(TimestampOffset { timestamp, offset })))
                })
                .await?;
            match found {
                Some(None) => {
                    self.reread_index(base, bytes).await?;
                    reread.push(base);
                }
                Some(found) => return Ok(found),
                None => return Ok(None),
            }
        }
    }

    fn is_index_on_disk(&self, base: Offset) -> bool {
        self.0.state.borrow().segment(base).is_some_and(|segment| segment.index.is_none())
    }

    fn parts(&self, start: impl Fn(&crate::segment::time_index::TimeIndex) -> Option<Offset>) -> Vec<Part> {
        let state = self.0.state.borrow();
        state
            .segments()
            .filter(|s| s.bytes() > 0)
            .map(|s| Part {
                base: s.base,
                bytes: s.bytes(),
                largest: s.index.as_ref().map(|i| i.largest),
                start: s.index.as_ref().and_then(|i| start(&i.times)),
            })
            .collect()
    }

    /// Walks over the batches from `from` on until `look` finds something.
    async fn search<T>(
        &self,
        mut from: Offset,
        upper: Offset,
        mut look: impl FnMut(&BatchView<'_>) -> Result<Option<T>, ScanError>,
    ) -> Result<Option<T>, LookupError> {
        loop {
            let (bytes, next) = match self.read(from, upper, READ_BYTES, true)? {
                ReadOutcome::Empty => return Ok(None),
                ReadOutcome::Hot(hot) => {
                    let mut bytes = Vec::with_capacity(hot.bytes);
                    for slice in &hot.slices {
                        bytes.extend_from_slice(slice);
                    }
                    (bytes, hot.next_offset)
                }
                ReadOutcome::Cold(plan) => match self.read_cold(plan).await? {
                    Some(cold) => (cold.to_vec(), cold.next_offset),
                    None => return Ok(None),
                },
            };
            for batch in Batches::new(&bytes) {
                let batch = batch.map_err(|error| damaged(from, error))?;
                let base_offset = batch.header.base_offset;
                let found = look(&batch).map_err(|error| LookupError::Records { base_offset, error })?;
                if found.is_some() {
                    return Ok(found);
                }
            }
            if next <= from {
                return Ok(None);
            }
            from = next;
            self.0.env.reactor().yield_now().await;
        }
    }
}

fn damaged(segment: Offset, error: BatchError) -> ReadError {
    let (position, fault) = match error {
        BatchError::Truncated { position, .. } => (position, BatchFault::CutShort),
        BatchError::Header { position, error } => (position, BatchFault::Header(error)),
    };
    ReadError::Damaged { segment, position: position as u64, fault: Damage::Batch(fault) }
}
