//! The one batch of a produce request's partition.
//!
//! Holds: the checks that do not need the topic (1-6 of the table).
//! Never touches: anything behind the header.

use super::ProduceError;
use crate::batch::{BatchHeader, BatchView, Compression, HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC_V2, field};

/// The smallest length field of any format version: a version 0 record without key and value.
const LENGTH_MIN: i32 = 14;
/// The first request version that may carry zstd (KIP-110).
const ZSTD_VERSION_MIN: i16 = 7;

/// Finds the one batch that `records` of a produce request of this version must consist of. Bytes of a cut batch behind it are
/// left out, as Kafka leaves them out.
///
/// # Errors
/// See the table of [the module](super).
pub fn sole_batch(records: &[u8], version: i16) -> Result<BatchView<'_>, ProduceError> {
    let Some((magic, bytes)) = frame(records)? else {
        return Err(ProduceError::NoBatch { version });
    };
    if magic != MAGIC_V2 {
        return Err(ProduceError::OldMagic { version, magic });
    }
    let batch = records.get(..bytes).unwrap_or_default();
    if bytes < HEADER_BYTES {
        return Err(ProduceError::TooShort { bytes });
    }
    let header = BatchHeader::parse(batch).map_err(|_| ProduceError::TooShort { bytes })?;
    if version < ZSTD_VERSION_MIN && header.attributes.compression() == Some(Compression::Zstd) {
        return Err(ProduceError::ZstdTooEarly { version });
    }
    if frame(records.get(bytes..).unwrap_or_default())?.is_some() {
        return Err(ProduceError::SecondBatch { version });
    }
    Ok(BatchView { header, bytes: batch, position: 0 })
}

/// Version and size of the batch that `bytes` start with; `None` if they hold no whole one.
fn frame(bytes: &[u8]) -> Result<Option<(i8, usize)>, ProduceError> {
    let Some(prefix) = bytes.first_chunk::<LENGTH_PREFIX_BYTES>() else {
        return Ok(None);
    };
    let length =
        prefix.get(field::LENGTH..).and_then(|tail| tail.first_chunk()).map_or(0, |tail| i32::from_be_bytes(*tail));
    if length < LENGTH_MIN {
        return Err(ProduceError::Length { length });
    }
    let Some(&magic) = bytes.get(field::MAGIC) else {
        return Ok(None);
    };
    let magic = magic.cast_signed();
    if !(0..=MAGIC_V2).contains(&magic) {
        return Err(ProduceError::UnknownMagic { magic });
    }
    // `length` is positive, so the cast keeps the value.
    let total = LENGTH_PREFIX_BYTES + length as usize;
    Ok((bytes.len() >= total).then_some((magic, total)))
}
