//! A run of consecutive batches: a produce request's records, a fetch response, a piece of a segment.
//!
//! Holds: the walk from batch to batch by their lengths.
//! Never touches: CRCs or records; a batch that the walk yields is whole, not yet proven sound.

use super::{BatchHeader, HEADER_BYTES, HeaderError, LENGTH_PREFIX_BYTES, crc_ok, field};

/// One whole batch within a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchView<'a> {
    /// Its decoded header.
    pub header: BatchHeader,
    /// Exactly its bytes, header included.
    pub bytes: &'a [u8],
    /// Where it starts in the blob.
    pub position: usize,
}

impl<'a> BatchView<'a> {
    /// The batch that `bytes` start with, which must be there whole; further bytes are left out.
    ///
    /// # Errors
    /// When the header is unsound or bytes are missing.
    pub fn first(bytes: &'a [u8]) -> Result<Self, BatchError> {
        Self::at(bytes, 0)
    }

    fn at(blob: &'a [u8], position: usize) -> Result<Self, BatchError> {
        let rest = blob.get(position..).unwrap_or_default();
        let header = match BatchHeader::parse(rest) {
            Ok(header) => header,
            Err(HeaderError::TooShort { have }) => {
                // A length that is already there says how much is missing.
                let length =
                    rest.get(field::LENGTH..).and_then(|tail| tail.first_chunk::<4>()).map(|b| i32::from_be_bytes(*b));
                let need =
                    length.map_or(HEADER_BYTES, |length| usize::try_from(length).unwrap_or(0) + LENGTH_PREFIX_BYTES);
                return Err(BatchError::Truncated { position, need: need.max(HEADER_BYTES), have });
            }
            Err(error @ (HeaderError::Magic { .. } | HeaderError::Length { .. })) => {
                return Err(BatchError::Header { position, error });
            }
        };
        let need = header.total_bytes();
        match rest.get(..need) {
            Some(bytes) => Ok(Self { header, bytes, position }),
            None => Err(BatchError::Truncated { position, need, have: rest.len() }),
        }
    }

    /// The records, still compressed if the attributes say so.
    #[inline]
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.bytes.get(field::RECORDS..).unwrap_or_default()
    }

    /// Whether the stored CRC matches.
    #[inline]
    #[must_use]
    pub fn crc_ok(&self) -> bool {
        crc_ok(self.bytes)
    }
}

/// Why the walk over a blob stopped before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// The blob ends within a batch. Normal at the end of a size-limited fetch, and after a crash.
    #[error("batch at byte {position} needs {need} bytes, {have} are there")]
    Truncated {
        /// Where the batch starts in the blob.
        position: usize,
        /// Bytes that it takes (at least a header).
        need: usize,
        /// Bytes that are there.
        have: usize,
    },
    /// What stands there is no version 2 batch.
    #[error("no batch at byte {position}: {error}")]
    Header {
        /// Where in the blob.
        position: usize,
        /// What is wrong with it.
        error: HeaderError,
    },
}

/// Walks over the batches of a blob; after an error it ends.
#[derive(Clone, Debug)]
pub struct Batches<'a> {
    blob: &'a [u8],
    position: usize,
    failed: bool,
}

impl<'a> Batches<'a> {
    /// A walk from the first byte of `blob`.
    #[must_use]
    pub const fn new(blob: &'a [u8]) -> Self {
        Self { blob, position: 0, failed: false }
    }

    /// Bytes of the whole batches walked over so far.
    #[must_use]
    pub const fn position(&self) -> usize {
        self.position
    }
}

impl<'a> Iterator for Batches<'a> {
    type Item = Result<BatchView<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.position == self.blob.len() {
            return None;
        }
        let item = BatchView::at(self.blob, self.position);
        match &item {
            Ok(view) => self.position += view.bytes.len(),
            Err(_) => self.failed = true,
        }
        Some(item)
    }
}
