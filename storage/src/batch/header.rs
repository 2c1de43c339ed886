//! The 61-byte header of a record batch.
//!
//! Holds: the decoded header, its attributes, the CRC.
//! Never touches: the records behind the header.

use super::{HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC_V2, field};
use crate::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};
use core::fmt;

/// Why bytes are not the header of a version 2 batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Fewer bytes than a header has.
    #[error("{have} bytes are too few for a batch header of {HEADER_BYTES}")]
    TooShort {
        /// Bytes there are.
        have: usize,
    },
    /// Another format version.
    #[error("batch format version {magic} where {MAGIC_V2} is expected")]
    Magic {
        /// The version found.
        magic: i8,
    },
    /// A length that does not even cover the header.
    #[error("batch length {length} is less than the {} bytes that the header needs", HEADER_BYTES - LENGTH_PREFIX_BYTES)]
    Length {
        /// The length field.
        length: i32,
    },
}

/// How a batch's records are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Compression {
    /// Not compressed.
    None = 0,
    /// RFC 1952.
    Gzip = 1,
    /// Snappy, in the framing of snappy-java ("xerial").
    Snappy = 2,
    /// LZ4 frames.
    Lz4 = 3,
    /// Zstandard (KIP-110).
    Zstd = 4,
}

impl Compression {
    /// The codec with this number in the attributes; 5, 6 and 7 are unassigned.
    #[inline]
    #[must_use]
    pub const fn from_id(id: u8) -> Option<Self> {
        match id {
            0 => Some(Self::None),
            1 => Some(Self::Gzip),
            2 => Some(Self::Snappy),
            3 => Some(Self::Lz4),
            4 => Some(Self::Zstd),
            _ => None,
        }
    }

    /// Its number in the attributes.
    #[inline]
    #[must_use]
    pub const fn id(self) -> u8 {
        self as u8
    }

    /// Its name in configurations.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Who set a batch's timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimestampType {
    /// The producer, record by record.
    CreateTime,
    /// The broker: one append time for the whole batch, in the max timestamp field.
    LogAppendTime,
}

/// The attributes field: `compression(0-2) | timestamp type(3) | transactional(4) | control(5) | delete horizon(6)`.
///
/// As in Kafka, only the low byte means anything.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Attributes(pub i16);

impl Attributes {
    const COMPRESSION_MASK: i16 = 0x07;
    const LOG_APPEND_TIME: i16 = 0x08;
    const TRANSACTIONAL: i16 = 0x10;
    const CONTROL: i16 = 0x20;
    const DELETE_HORIZON: i16 = 0x40;

    /// The codec's number, which may be unassigned.
    #[inline]
    #[must_use]
    pub const fn compression_id(self) -> u8 {
        (self.0 & Self::COMPRESSION_MASK) as u8
    }

    /// The codec; `None` if its number is unassigned.
    #[inline]
    #[must_use]
    pub const fn compression(self) -> Option<Compression> {
        Compression::from_id(self.compression_id())
    }

    /// Who set the timestamps.
    #[inline]
    #[must_use]
    pub const fn timestamp_type(self) -> TimestampType {
        if self.0 & Self::LOG_APPEND_TIME == 0 { TimestampType::CreateTime } else { TimestampType::LogAppendTime }
    }

    /// Whether the batch belongs to a transaction.
    #[inline]
    #[must_use]
    pub const fn is_transactional(self) -> bool {
        self.0 & Self::TRANSACTIONAL != 0
    }

    /// Whether the batch holds control records (transaction markers), which clients never see.
    #[inline]
    #[must_use]
    pub const fn is_control(self) -> bool {
        self.0 & Self::CONTROL != 0
    }

    /// Whether the base timestamp is a delete horizon (KIP-534).
    #[inline]
    #[must_use]
    pub const fn has_delete_horizon(self) -> bool {
        self.0 & Self::DELETE_HORIZON != 0
    }

    /// These attributes with another codec.
    #[inline]
    #[must_use]
    pub const fn with_compression(self, codec: Compression) -> Self {
        Self((self.0 & !Self::COMPRESSION_MASK) | codec.id() as i16)
    }

    /// These attributes with another timestamp type.
    #[inline]
    #[must_use]
    pub const fn with_timestamp_type(self, kind: TimestampType) -> Self {
        self.with_bit(Self::LOG_APPEND_TIME, matches!(kind, TimestampType::LogAppendTime))
    }

    /// These attributes with the transactional flag set or cleared.
    #[inline]
    #[must_use]
    pub const fn with_transactional(self, on: bool) -> Self {
        self.with_bit(Self::TRANSACTIONAL, on)
    }

    /// These attributes with the control flag set or cleared.
    #[inline]
    #[must_use]
    pub const fn with_control(self, on: bool) -> Self {
        self.with_bit(Self::CONTROL, on)
    }

    /// These attributes with the delete-horizon flag set or cleared.
    #[inline]
    #[must_use]
    pub const fn with_delete_horizon(self, on: bool) -> Self {
        self.with_bit(Self::DELETE_HORIZON, on)
    }

    /// The bits that have a meaning; what Kafka keeps when it rewrites the field.
    #[inline]
    #[must_use]
    pub const fn known(self) -> Self {
        Self(self.0 & 0x7f)
    }

    const fn with_bit(self, bit: i16, on: bool) -> Self {
        if on { Self(self.0 | bit) } else { Self(self.0 & !bit) }
    }
}

impl fmt::Debug for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Attributes({:#06x}: {:?} {:?}", self.0, self.compression(), self.timestamp_type())?;
        for (on, name) in [
            (self.is_transactional(), " transactional"),
            (self.is_control(), " control"),
            (self.has_delete_horizon(), " delete-horizon"),
        ] {
            if on {
                f.write_str(name)?;
            }
        }
        f.write_str(")")
    }
}

/// A decoded header. Cheap to copy; says nothing about whether the records or the CRC are sound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the first record (in a produce request: 0).
    pub base_offset: Offset,
    /// Bytes after the length field; at least 49.
    pub length: i32,
    /// Epoch of the leader that stamped the batch; -1 or anything else in a produce request.
    pub leader_epoch: LeaderEpoch,
    /// Stored CRC-32C.
    pub crc: u32,
    /// Flags and codec.
    pub attributes: Attributes,
    /// Last offset minus base offset. Negative only in bytes that nobody has validated.
    pub last_offset_delta: i32,
    /// What record timestamps are relative to, or the delete horizon.
    pub base_timestamp: Timestamp,
    /// Largest record timestamp, or the append time.
    pub max_timestamp: Timestamp,
    /// Producer, or [`ProducerId::NONE`].
    pub producer_id: ProducerId,
    /// Its epoch.
    pub producer_epoch: ProducerEpoch,
    /// Sequence of the first record, or [`Sequence::NONE`].
    pub base_sequence: Sequence,
    /// How many records the batch says it has. 0 after compaction has emptied it.
    pub record_count: i32,
}

impl BatchHeader {
    /// Decodes the header that `bytes` start with. The records need not be there.
    ///
    /// # Errors
    /// When there are fewer than 61 bytes, the version is not 2 or the length does not cover the header.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, HeaderError> {
        let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(HeaderError::TooShort { have: bytes.len() });
        };
        let magic = i8::from_be_bytes(take(header, field::MAGIC));
        if magic != MAGIC_V2 {
            return Err(HeaderError::Magic { magic });
        }
        let length = i32::from_be_bytes(take(header, field::LENGTH));
        if length < (HEADER_BYTES - LENGTH_PREFIX_BYTES) as i32 {
            return Err(HeaderError::Length { length });
        }
        Ok(Self {
            base_offset: Offset(i64::from_be_bytes(take(header, field::BASE_OFFSET))),
            length,
            leader_epoch: LeaderEpoch(i32::from_be_bytes(take(header, field::LEADER_EPOCH))),
            crc: u32::from_be_bytes(take(header, field::CRC)),
            attributes: Attributes(i16::from_be_bytes(take(header, field::ATTRIBUTES))),
            last_offset_delta: i32::from_be_bytes(take(header, field::LAST_OFFSET_DELTA)),
            base_timestamp: Timestamp(i64::from_be_bytes(take(header, field::BASE_TIMESTAMP))),
            max_timestamp: Timestamp(i64::from_be_bytes(take(header, field::MAX_TIMESTAMP))),
            producer_id: ProducerId(i64::from_be_bytes(take(header, field::PRODUCER_ID))),
            producer_epoch: ProducerEpoch(i16::from_be_bytes(take(header, field::PRODUCER_EPOCH))),
            base_sequence: Sequence(i32::from_be_bytes(take(header, field::BASE_SEQUENCE))),
            record_count: i32::from_be_bytes(take(header, field::RECORD_COUNT)),
        })
    }

    /// Encodes the header, the stored CRC included as it is.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        put(&mut out, field::BASE_OFFSET, self.base_offset.0.to_be_bytes());
        put(&mut out, field::LENGTH, self.length.to_be_bytes());
        put(&mut out, field::LEADER_EPOCH, self.leader_epoch.0.to_be_bytes());
        put(&mut out, field::MAGIC, MAGIC_V2.to_be_bytes());
        put(&mut out, field::CRC, self.crc.to_be_bytes());
        put(&mut out, field::ATTRIBUTES, self.attributes.0.to_be_bytes());
        put(&mut out, field::LAST_OFFSET_DELTA, self.last_offset_delta.to_be_bytes());
        put(&mut out, field::BASE_TIMESTAMP, self.base_timestamp.0.to_be_bytes());
        put(&mut out, field::MAX_TIMESTAMP, self.max_timestamp.0.to_be_bytes());
        put(&mut out, field::PRODUCER_ID, self.producer_id.0.to_be_bytes());
        put(&mut out, field::PRODUCER_EPOCH, self.producer_epoch.0.to_be_bytes());
        put(&mut out, field::BASE_SEQUENCE, self.base_sequence.0.to_be_bytes());
        put(&mut out, field::RECORD_COUNT, self.record_count.to_be_bytes());
        out
    }

    /// Bytes of the whole batch, its length prefix included; at least 61.
    #[inline]
    #[must_use]
    pub const fn total_bytes(&self) -> usize {
        // `parse` refused lengths below 49, so the cast keeps the value.
        LENGTH_PREFIX_BYTES + self.length as usize
    }

    /// Offset of the last record (compaction keeps it even if that record is gone).
    /// `None` only in bytes that nobody has validated.
    #[inline]
    #[must_use]
    pub const fn last_offset(&self) -> Option<Offset> {
        self.base_offset.plus(self.last_offset_delta as i64)
    }

    /// Sequence of the last record, with Kafka's wrap-around; [`Sequence::NONE`] if the batch has none.
    #[inline]
    #[must_use]
    pub fn last_sequence(&self) -> Sequence {
        if self.base_sequence == Sequence::NONE {
            Sequence::NONE
        } else {
            self.base_sequence.plus(self.last_offset_delta)
        }
    }

    /// Whether the batch takes part in idempotence.
    #[inline]
    #[must_use]
    pub const fn has_producer_id(&self) -> bool {
        self.producer_id.is_some()
    }

    /// The time at which tombstones and aborted markers in the batch may go (KIP-534).
    #[inline]
    #[must_use]
    pub const fn delete_horizon(&self) -> Option<Timestamp> {
        if self.attributes.has_delete_horizon() { Some(self.base_timestamp) } else { None }
    }
}

/// The CRC-32C that a whole batch should carry: over everything from the attributes on.
#[inline]
#[must_use]
pub fn crc_of(batch: &[u8]) -> u32 {
    crc32c::crc32c(batch.get(field::ATTRIBUTES..).unwrap_or_default())
}

/// Whether the stored CRC of a whole batch (exactly its bytes) matches. Bytes shorter than a header never do.
#[inline]
#[must_use]
pub fn crc_ok(batch: &[u8]) -> bool {
    match batch.first_chunk::<HEADER_BYTES>() {
        Some(header) => u32::from_be_bytes(take(header, field::CRC)) == crc_of(batch),
        None => false,
    }
}

/// `N` bytes of the header; the offsets are constants that lie within it, checked where they are declared.
#[inline]
fn take<const N: usize>(header: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    header.get(at..).and_then(|rest| rest.first_chunk::<N>()).copied().unwrap_or([0; N])
}

#[inline]
pub(super) fn put<const N: usize>(header: &mut [u8; HEADER_BYTES], at: usize, value: [u8; N]) {
    if let Some(slot) = header.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<N>()) {
        *slot = value;
    }
}
