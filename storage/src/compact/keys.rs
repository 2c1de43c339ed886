//! The first pass of a compaction: the keys of the part that is not compacted yet.
//!
//! Holds: the walk over one batch that puts its keys into the map. Never touches: files; aborted batches, whose keys
//! count for nothing (the caller leaves them out, see [`Transactions`](super::Transactions)).

use super::key_map::{KeyMap, Put};
use super::records::WholeRecords;
use crate::batch::{BatchView, DecompressScratch, ScanError, ScanState};
use crate::ids::Offset;
use core::ops::ControlFlow;

/// The walk over one batch.
#[derive(Debug)]
pub struct KeyScan<'a> {
    records: WholeRecords<'a>,
    from: Offset,
    last_offset: Offset,
}

impl<'a> KeyScan<'a> {
    /// Starts on a batch, whose records before `from` don't count.
    ///
    /// # Errors
    /// When the codec is unknown.
    pub fn new(
        batch: &BatchView<'a>,
        from: Offset,
        bytes_max: u64,
        scratch: &'a mut DecompressScratch,
    ) -> Result<Self, ScanError> {
        let last_offset = batch.header.last_offset().unwrap_or(batch.header.base_offset);
        Ok(Self { records: WholeRecords::new(batch, bytes_max, scratch)?, from, last_offset })
    }

    /// Goes on for about `bytes_max` bytes. [`ScanState::Stopped`]: the map is full, and the round ends with the map's
    /// latest offset, which may lie within this batch.
    ///
    /// # Errors
    /// When the records cannot be read.
    pub fn step(&mut self, map: &mut KeyMap, bytes_max: usize) -> Result<ScanState, ScanError> {
        let from = self.from;
        let state = self.records.step(bytes_max, |record, _| match record.key {
            Some(key) if record.offset >= from && map.put(key, record.offset) == Put::Full => ControlFlow::Break(()),
            Some(_) | None => ControlFlow::Continue(()),
        })?;
        if state == ScanState::Done && self.last_offset >= from {
            map.reach(self.last_offset);
        }
        Ok(state)
    }
}
