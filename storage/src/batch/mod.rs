//! Record batches, format version 2 (KIP-98): the unit that clients send, disks hold and fetches return.
//!
//! Holds: the header, the walk over a batch's records, validation, stamping, compression, building.
//! Never touches: files, sockets, the clock, partitions' state. Bytes come in, facts or new bytes go out.
//!
//! ```text
//!  0        8       12       16   17      21       23        27       35       43       51     53        57       61
//!  +--------+--------+--------+---+-------+--------+---------+--------+--------+--------+------+---------+--------+- - -
//!  | base   | length | leader | m | crc   | attri- | last    | base   | max    | pro-   | pro- | base    | record | records
//!  | offset |        | epoch  | 2 |       | butes  | offset  | time-  | time-  | ducer  | ducer| sequence| count  |
//!  |        |        |        |   |       |        | delta   | stamp  | stamp  | id     | epoch|         |        |
//!  +--------+--------+--------+---+-------+--------+---------+--------+--------+--------+------+---------+--------+- - -
//!                                         |<-------------------- covered by the CRC-32C --------------------------- - -
//! ```
//!
//! `length` counts the bytes after itself. The CRC covers neither the base offset nor the leader epoch, so that a leader
//! stamps both without touching the rest.

mod blob;
mod build;
mod codec;
mod header;
mod record;
mod rewrite;
mod scan;
mod stamp;
mod time;
pub mod validate;
pub(crate) mod varint;
mod walk;

pub use blob::{BatchError, BatchView, Batches};
pub(crate) use build::seal;
pub use build::{BatchBuilder, BuildError, RecordHeader};
pub use codec::{
    CompressError, Compressor, DecompressError, DecompressScratch, Decompression, GZIP_LEVEL_DEFAULT, TargetCodec,
    ZSTD_LEVEL_DEFAULT, decompress_all,
};
pub use header::{Attributes, BatchHeader, Compression, HeaderError, TimestampType, crc_of, crc_ok};
pub use record::{Record, RecordHeaders, Records};
pub use rewrite::Rewrite;
pub use scan::{RecordScan, ScanError, ScanState};
pub use stamp::{stamp_place, stamp_time};
pub use time::{TimeSearch, first_at_or_after, offset_of_max_timestamp};
pub use validate::{ProduceError, ProduceErrorKind, Validated, Validation, ValidationRules, sole_batch, validate};
pub use walk::{MalformedRecords, RecordFacts, RecordWalk};

/// Where each field of the header lies, in bytes from the batch's first byte. All numbers are big-endian.
pub mod field {
    /// `i64`: the offset of the first record.
    pub const BASE_OFFSET: usize = 0;
    /// `i32`: bytes after this field.
    pub const LENGTH: usize = 8;
    /// `i32`: the epoch of the leader that stamped the batch.
    pub const LEADER_EPOCH: usize = 12;
    /// `i8`: the format version, 2.
    pub const MAGIC: usize = 16;
    /// `u32`: CRC-32C of everything from [`ATTRIBUTES`] to the end.
    pub const CRC: usize = 17;
    /// `i16`: see [`Attributes`](super::Attributes).
    pub const ATTRIBUTES: usize = 21;
    /// `i32`: last offset minus base offset.
    pub const LAST_OFFSET_DELTA: usize = 23;
    /// `i64`: the timestamp that record timestamps are relative to, or the delete horizon.
    pub const BASE_TIMESTAMP: usize = 27;
    /// `i64`: the largest timestamp, or the append time.
    pub const MAX_TIMESTAMP: usize = 35;
    /// `i64`: the producer's id, -1 for none.
    pub const PRODUCER_ID: usize = 43;
    /// `i16`: the producer's epoch, -1 for none.
    pub const PRODUCER_EPOCH: usize = 51;
    /// `i32`: the sequence of the first record, -1 for none.
    pub const BASE_SEQUENCE: usize = 53;
    /// `i32`: how many records follow.
    pub const RECORD_COUNT: usize = 57;
    /// The records, compressed as the attributes say.
    pub const RECORDS: usize = 61;
}

/// Where an append comes from, which says how much of it is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AppendOrigin {
    /// A client's produce request: everything is checked.
    Client,
    /// One of this broker's coordinators: offset commits, transaction markers.
    Coordinator,
    /// The partition's leader, whose checks are not repeated; also recovery.
    Replication,
}

/// The format version that this broker stores.
pub const MAGIC_V2: i8 = 2;
/// Bytes of base offset and length, which precede what `length` counts.
pub const LENGTH_PREFIX_BYTES: usize = field::LEADER_EPOCH;
/// Bytes of a batch without records.
pub const HEADER_BYTES: usize = field::RECORDS;

const _: () = assert!(field::LENGTH + size_of::<i32>() == LENGTH_PREFIX_BYTES);
const _: () = assert!(field::RECORD_COUNT + size_of::<i32>() == HEADER_BYTES);
