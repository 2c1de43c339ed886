//! Going through the records of one batch in slices: decompression and the walk, joined.
//!
//! Holds: the scan under way. Never touches: what is looked for; the caller is told of every record.

use super::codec::{DecompressError, DecompressScratch, Decompression};
use super::walk::{MalformedRecords, RecordFacts, RecordWalk};
use super::{BatchView, Compression};
use core::ops::ControlFlow;

/// Why a scan failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScanError {
    /// The codec's number is unassigned.
    #[error("compression codec {id} is unknown")]
    UnknownCodec {
        /// Its number.
        id: u8,
    },
    /// The records could not be decompressed.
    #[error(transparent)]
    Decompress(#[from] DecompressError),
    /// They are not the records that the header promises.
    #[error(transparent)]
    Malformed(#[from] MalformedRecords),
}

/// How a slice of a scan ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanState {
    /// Call again: there is more.
    Pending,
    /// The caller broke off.
    Stopped,
    /// All records were seen, and nothing follows them.
    Done,
}

/// A scan under way.
#[derive(Debug)]
pub struct RecordScan<'a> {
    stream: Decompression<'a>,
    walk: RecordWalk,
}

impl<'a> RecordScan<'a> {
    /// Starts on a batch whose records decompress to `bytes_max` bytes at most.
    ///
    /// # Errors
    /// When the codec is unknown.
    pub fn new(batch: &BatchView<'a>, bytes_max: u64, scratch: &'a mut DecompressScratch) -> Result<Self, ScanError> {
        let attributes = batch.header.attributes;
        let codec: Compression =
            attributes.compression().ok_or(ScanError::UnknownCodec { id: attributes.compression_id() })?;
        // Records that are not compressed are in memory anyway: there is nothing to bound.
        let bytes_max = if codec == Compression::None { u64::MAX } else { bytes_max };
        Ok(Self {
            stream: Decompression::new(codec, batch.payload(), bytes_max, scratch),
            walk: RecordWalk::new(batch.header.record_count),
        })
    }

    /// Goes on for about `bytes_max` bytes, of input or of output, whichever is more.
    ///
    /// # Errors
    /// When the records cannot be read; the scan is over then.
    pub fn step(
        &mut self,
        bytes_max: usize,
        mut report: impl FnMut(&RecordFacts) -> ControlFlow<()>,
    ) -> Result<ScanState, ScanError> {
        let input_end = self.stream.consumed().saturating_add(bytes_max);
        let output_end = self.stream.produced().saturating_add(bytes_max as u64);
        loop {
            let left = output_end.saturating_sub(self.stream.produced());
            let Some(piece) = self.stream.next_piece(usize::try_from(left).unwrap_or(usize::MAX))? else {
                self.walk.finish()?;
                return Ok(ScanState::Done);
            };
            if self.walk.feed(piece, &mut report)?.is_break() {
                return Ok(ScanState::Stopped);
            }
            if self.stream.consumed() >= input_end || self.stream.produced() >= output_end {
                return Ok(ScanState::Pending);
            }
        }
    }

    /// Bytes of the records when not compressed, as far as the scan has come.
    #[must_use]
    pub const fn uncompressed_bytes(&self) -> u64 {
        self.stream.produced()
    }
}
