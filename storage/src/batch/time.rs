//! Finding records by time within a batch, for ListOffsets.
//!
//! Holds: two searches, sliced like every scan, since the batch may be large and compressed.
//! Never touches: which batch to search; the time index knows.

use super::codec::DecompressScratch;
use super::record::record_timestamp;
use super::scan::{RecordScan, ScanError, ScanState};
use super::{BatchHeader, BatchView, TimestampType};
use crate::ids::{Offset, Timestamp};
use core::ops::ControlFlow;

/// A search under way.
#[derive(Debug)]
pub struct TimeSearch<'a> {
    scan: RecordScan<'a>,
    header: BatchHeader,
    wanted: Wanted,
}

#[derive(Clone, Copy, Debug)]
enum Wanted {
    /// The first record at or after a time and an offset.
    AtOrAfter(Timestamp, Offset),
    /// The first record with exactly this time.
    Exactly(Timestamp),
}

impl<'a> TimeSearch<'a> {
    /// Looks for the first record whose timestamp is `from` or later and whose offset is `from_offset` or higher.
    ///
    /// # Errors
    /// When the codec is unknown.
    pub fn at_or_after(
        batch: &BatchView<'a>,
        from: Timestamp,
        from_offset: Offset,
        bytes_max: u64,
        scratch: &'a mut DecompressScratch,
    ) -> Result<Self, ScanError> {
        let scan = RecordScan::new(batch, bytes_max, scratch)?;
        Ok(Self { scan, header: batch.header, wanted: Wanted::AtOrAfter(from, from_offset) })
    }

    /// Looks for the earliest of the records that carry the batch's max timestamp (KIP-734).
    ///
    /// # Errors
    /// When the codec is unknown.
    pub fn of_max_timestamp(
        batch: &BatchView<'a>,
        bytes_max: u64,
        scratch: &'a mut DecompressScratch,
    ) -> Result<Self, ScanError> {
        let scan = RecordScan::new(batch, bytes_max, scratch)?;
        Ok(Self { scan, header: batch.header, wanted: Wanted::Exactly(batch.header.max_timestamp) })
    }

    /// Goes on for about `bytes_max` bytes. `None`: call again. `Some(None)`: there is no such record.
    ///
    /// # Errors
    /// When the records cannot be read.
    pub fn step(&mut self, bytes_max: usize) -> Result<Option<Option<(Timestamp, Offset)>>, ScanError> {
        let (header, wanted) = (self.header, self.wanted);
        let mut found = None;
        let state = self.scan.step(bytes_max, |facts| {
            let timestamp = record_timestamp(&header, facts.timestamp_delta);
            let offset = Offset(header.base_offset.0.wrapping_add(i64::from(facts.offset_delta)));
            let matches = match wanted {
                Wanted::AtOrAfter(from, from_offset) => timestamp >= from && offset >= from_offset,
                Wanted::Exactly(exactly) => timestamp == exactly,
            };
            if matches {
                found = Some((timestamp, offset));
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        Ok(match state {
            ScanState::Pending => None,
            ScanState::Stopped | ScanState::Done => Some(found),
        })
    }

    fn run(mut self) -> Result<Option<(Timestamp, Offset)>, ScanError> {
        loop {
            if let Some(found) = self.step(usize::MAX)? {
                return Ok(found);
            }
        }
    }
}

/// The first record of a batch whose timestamp is `from` or later and whose offset is `from_offset` or higher, in one go.
///
/// # Errors
/// When the records cannot be read or decompress to more than `bytes_max` bytes.
pub fn first_at_or_after(
    batch: &BatchView<'_>,
    from: Timestamp,
    from_offset: Offset,
    bytes_max: u64,
    scratch: &mut DecompressScratch,
) -> Result<Option<(Timestamp, Offset)>, ScanError> {
    TimeSearch::at_or_after(batch, from, from_offset, bytes_max, scratch)?.run()
}

/// The offset of the earliest record with the batch's max timestamp, in one go. `None` if compaction has removed it.
///
/// # Errors
/// As [`first_at_or_after`].
pub fn offset_of_max_timestamp(
    batch: &BatchView<'_>,
    bytes_max: u64,
    scratch: &mut DecompressScratch,
) -> Result<Option<Offset>, ScanError> {
    // With append time every record carries it, so the first one is the earliest: no need to look.
    let header = &batch.header;
    if header.attributes.timestamp_type() == TimestampType::LogAppendTime
        && i64::from(header.record_count) == i64::from(header.last_offset_delta) + 1
    {
        return Ok(Some(header.base_offset));
    }
    Ok(TimeSearch::of_max_timestamp(batch, bytes_max, scratch)?.run()?.map(|(_, offset)| offset))
}
