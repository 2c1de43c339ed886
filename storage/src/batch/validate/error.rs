//! Why an append is refused, and which of Kafka's errors the client gets to see.
//!
//! Holds: the refusals with what their log line needs, and the kind of each.
//! Never touches: numeric error codes; the API layer maps kinds to them.

use crate::batch::codec::DecompressError;
use crate::batch::scan::ScanError;
use crate::batch::{Compression, MalformedRecords};
use crate::ids::{ProducerId, Sequence, Timestamp};
use core::fmt;

/// The error that a client sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProduceErrorKind {
    /// `CORRUPT_MESSAGE` (2), retriable.
    CorruptMessage,
    /// `MESSAGE_TOO_LARGE` (10); Java splits the batch and tries again.
    MessageTooLarge,
    /// `RECORD_LIST_TOO_LARGE` (18).
    RecordListTooLarge,
    /// `INVALID_TIMESTAMP` (32).
    InvalidTimestamp,
    /// `UNSUPPORTED_COMPRESSION_TYPE` (76).
    UnsupportedCompressionType,
    /// `INVALID_RECORD` (87).
    InvalidRecord,
    /// `UNKNOWN_SERVER_ERROR` (-1).
    UnknownServerError,
}

/// Why an append is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProduceError {
    /// A length that no batch of any version can have.
    #[error("batch length {length} is below the smallest of any version")]
    Length {
        /// The length field.
        length: i32,
    },
    /// A version that does not exist.
    #[error("batch format version {magic} does not exist")]
    UnknownMagic {
        /// The version.
        magic: i8,
    },
    /// No whole batch.
    #[error("a produce request of version {version} needs one record batch for each partition")]
    NoBatch {
        /// The request's version.
        version: i16,
    },
    /// Version 0 or 1.
    #[error("a produce request of version {version} needs batch format version 2, not {magic}")]
    OldMagic {
        /// The request's version.
        version: i16,
        /// The batch's version.
        magic: i8,
    },
    /// Zstandard before the request version that knows it (KIP-110).
    #[error("a produce request of version {version} must not use zstd")]
    ZstdTooEarly {
        /// The request's version.
        version: i16,
    },
    /// Another batch behind the first.
    #[error("a produce request of version {version} must have one record batch only for each partition")]
    SecondBatch {
        /// The request's version.
        version: i16,
    },
    /// Clients leave offsets to the broker.
    #[error("the base offset in a produce request must be 0, not {base_offset}")]
    BaseOffset {
        /// The base offset.
        base_offset: i64,
    },
    /// Larger than `max.message.bytes`.
    #[error("a batch of {bytes} bytes exceeds the topic's maximum of {bytes_max}")]
    BatchTooLarge {
        /// Bytes of the batch, length prefix included.
        bytes: usize,
        /// The topic's maximum.
        bytes_max: usize,
    },
    /// Larger than `segment.bytes`.
    #[error("a batch of {bytes} bytes exceeds the segment size of {bytes_max}")]
    SegmentTooSmall {
        /// Bytes of the batch.
        bytes: usize,
        /// The topic's segment size.
        bytes_max: usize,
    },
    /// Shorter than its header.
    #[error("a batch of {bytes} bytes is shorter than its header")]
    TooShort {
        /// Bytes of the batch.
        bytes: usize,
    },
    /// Wrong CRC.
    #[error("the batch's stored CRC is {stored:#010x}, its computed one {computed:#010x}")]
    Crc {
        /// In the header.
        stored: u32,
        /// Of the bytes.
        computed: u32,
    },
    /// An unassigned codec.
    #[error("compression codec {id} is unknown")]
    UnknownCodec {
        /// Its number.
        id: u8,
    },
    /// No offsets, or negative ones.
    #[error("the last offset delta {last_offset_delta} leaves no room for a record")]
    OffsetRange {
        /// Last offset delta.
        last_offset_delta: i32,
    },
    /// No records, or a negative number of them.
    #[error("the batch says it has {count} records")]
    RecordCount {
        /// The count.
        count: i32,
    },
    /// As many offsets as records are wanted.
    #[error("the batch spans {offsets} offsets and says it has {count} records")]
    CountMismatch {
        /// Offsets.
        offsets: i64,
        /// Records.
        count: i32,
    },
    /// Control records are the broker's.
    #[error("clients must not write control records")]
    ControlBatch,
    /// An idempotent batch needs a sequence.
    #[error("producer {producer_id} sent the sequence {base_sequence}")]
    NegativeSequence {
        /// The producer.
        producer_id: ProducerId,
        /// Its sequence.
        base_sequence: Sequence,
    },
    /// The records cannot be decompressed.
    #[error(transparent)]
    Decompress(DecompressError),
    /// The records are not encoded as they should be.
    #[error(transparent)]
    Malformed(#[from] MalformedRecords),
    /// Some records are refused one by one.
    #[error(transparent)]
    Records(Box<RefusedRecords>),
    /// The target codec failed.
    #[error("{codec} could not compress")]
    Compress {
        /// The codec.
        codec: Compression,
    },
    /// The bytes differ from those that were validated: our own mistake, caught before it reaches the log.
    #[error("the batch changed between its validation and its rewrite")]
    ChangedUnderneath,
}

impl ProduceError {
    /// Which error the client gets.
    #[must_use]
    pub fn kind(&self) -> ProduceErrorKind {
        match self {
            Self::Length { .. } | Self::UnknownMagic { .. } | Self::TooShort { .. } | Self::Crc { .. } => {
                ProduceErrorKind::CorruptMessage
            }
            Self::NoBatch { .. }
            | Self::OldMagic { .. }
            | Self::SecondBatch { .. }
            | Self::BaseOffset { .. }
            | Self::OffsetRange { .. }
            | Self::RecordCount { .. }
            | Self::CountMismatch { .. }
            | Self::ControlBatch
            | Self::NegativeSequence { .. }
            | Self::Decompress(DecompressError::Trailing { .. })
            | Self::Malformed(_) => ProduceErrorKind::InvalidRecord,
            Self::ZstdTooEarly { .. } => ProduceErrorKind::UnsupportedCompressionType,
            Self::BatchTooLarge { .. } | Self::Decompress(DecompressError::TooLarge { .. }) => {
                ProduceErrorKind::MessageTooLarge
            }
            Self::SegmentTooSmall { .. } => ProduceErrorKind::RecordListTooLarge,
            Self::Records(refused) => {
                if refused.has_timestamps {
                    ProduceErrorKind::InvalidTimestamp
                } else {
                    ProduceErrorKind::InvalidRecord
                }
            }
            // Kafka lets these two escape as exceptions of no wire code.
            Self::UnknownCodec { .. } | Self::Decompress(DecompressError::Corrupt { .. }) => {
                ProduceErrorKind::UnknownServerError
            }
            Self::Compress { .. } | Self::ChangedUnderneath => ProduceErrorKind::UnknownServerError,
        }
    }

    /// The records refused one by one: only then does Kafka fill `record_errors` and `error_message` (KIP-467); for every other
    /// refusal it leaves the list empty and the message null.
    #[must_use]
    pub fn refused_records(&self) -> Option<&RefusedRecords> {
        match self {
            Self::Records(refused) => Some(refused),
            _ => None,
        }
    }
}

impl From<ScanError> for ProduceError {
    fn from(error: ScanError) -> Self {
        match error {
            ScanError::UnknownCodec { id } => Self::UnknownCodec { id },
            ScanError::Decompress(error) => Self::Decompress(error),
            ScanError::Malformed(error) => Self::Malformed(error),
        }
    }
}

impl From<DecompressError> for ProduceError {
    fn from(error: DecompressError) -> Self {
        Self::Decompress(error)
    }
}

/// Records refused one by one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefusedRecords {
    /// The first of them, at most [`REFUSED_RECORDS_MAX`].
    pub records: Vec<RefusedRecord>,
    /// How many there are.
    pub total: u32,
    /// Whether a timestamp is among the reasons, which then decides the error code.
    pub has_timestamps: bool,
}

/// How many refused records a response lists. Kafka lists all; a batch can have a hundred thousand.
pub const REFUSED_RECORDS_MAX: usize = 1000;

/// One refused record; its `Display` is the message for `record_errors`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedRecord {
    /// Its place in the batch.
    pub index: i32,
    /// Why.
    pub reason: RecordRefusal,
}

/// Why a record is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordRefusal {
    /// A compacted topic needs keys.
    NoKey,
    /// Too far from the broker's time.
    Timestamp {
        /// The record's.
        timestamp: Timestamp,
        /// Earliest admitted.
        earliest: Timestamp,
        /// Latest admitted.
        latest: Timestamp,
    },
    /// Producers must not say that the broker set the time.
    LogAppendTime,
}

impl RefusedRecords {
    pub(super) fn push(&mut self, index: i32, reason: RecordRefusal) {
        self.total = self.total.saturating_add(1);
        self.has_timestamps |= match reason {
            RecordRefusal::NoKey => false,
            RecordRefusal::Timestamp { .. } | RecordRefusal::LogAppendTime => true,
        };
        if self.records.len() < REFUSED_RECORDS_MAX {
            self.records.push(RefusedRecord { index, reason });
        }
    }
}

impl fmt::Display for RefusedRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason {
            RecordRefusal::NoKey => f.write_str("a compacted topic accepts no record without a key"),
            RecordRefusal::Timestamp { timestamp, earliest, latest } => {
                write!(f, "timestamp {timestamp} is out of range, which is [{earliest}, {latest}] now")
            }
            RecordRefusal::LogAppendTime => f.write_str("a producer must not set the timestamp type LogAppendTime"),
        }
    }
}

impl fmt::Display for RefusedRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} record(s) refused", self.total)?;
        for (place, record) in self.records.iter().take(3).enumerate() {
            let before = if place == 0 { ": " } else { "; " };
            write!(f, "{before}record {}: {record}", record.index)?;
        }
        if self.total > 3 { f.write_str("; …") } else { Ok(()) }
    }
}

impl core::error::Error for RefusedRecords {}
