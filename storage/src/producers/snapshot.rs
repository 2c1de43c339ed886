//! Kafka's `.snapshot` file, version 1: the producers at an offset.
//!
//! Holds: its encoder and its decoder.
//! Never touches: files. The name is the offset, in twenty digits, with `.snapshot`.
//!
//! ```text
//!  version i16 = 1 | crc u32 | count i32 | count x { producer id i64 | epoch i16 | last sequence i32 | last offset i64
//!                                                  | offset delta i32 | timestamp i64 | coordinator epoch i32
//!                                                  | transaction start i64 }
//! ```
//!
//! Numbers are big-endian; the CRC-32C covers everything behind it; -1 stands for "none". Kafka writes one entry a producer, with
//! its last batch: what it sends again after a restart is out of order then, unless it was the last. Here a producer has an entry
//! for each batch that is remembered, oldest first. Kafka takes the last entry of a producer for the whole, which it is.

use super::{BatchMemory, ProducerEntry};
use crate::ids::{Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};

/// Bytes of one producer.
pub const SNAPSHOT_BYTES_PER_ENTRY: usize = 8 + 2 + 4 + 8 + 4 + 8 + 4 + 8;
/// Id and epoch: entries that have the same, one behind the other, are one producer's batches.
const SAME_PRODUCER_BYTES: usize = 8 + 2;
const VERSION: i16 = 1;
const COVERED_FROM: usize = 2 + 4;
const HEADER_BYTES: usize = COVERED_FROM + 4;

type Entry = [u8; SNAPSHOT_BYTES_PER_ENTRY];

/// Why bytes are no snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// Too few bytes, or too many.
    #[error("producer snapshot of {bytes} bytes where {count} producers take {expected}")]
    Length {
        /// Bytes there are.
        bytes: usize,
        /// Producers promised; -1 if that is not even there.
        count: i32,
        /// Bytes they would take.
        expected: usize,
    },
    /// Another version.
    #[error("producer snapshot has version {version}, {VERSION} is known")]
    Version {
        /// The version found.
        version: i16,
    },
    /// The bytes have changed since.
    #[error("producer snapshot's stored CRC is {stored:#010x}, its computed one {computed:#010x}")]
    Crc {
        /// In the file.
        stored: u32,
        /// Of the bytes.
        computed: u32,
    },
}

/// The bytes of a snapshot of these producers.
#[must_use]
pub fn encode_snapshot<'a>(producers: impl Iterator<Item = &'a ProducerEntry> + Clone) -> Vec<u8> {
    let entries_of = |producer: &ProducerEntry| producer.batches().count().max(1);
    let count: usize = producers.clone().map(entries_of).sum();
    let mut out = Vec::with_capacity(HEADER_BYTES + count * SNAPSHOT_BYTES_PER_ENTRY);
    out.extend_from_slice(&VERSION.to_be_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&(count as i32).to_be_bytes());
    for producer in producers {
        let older = entries_of(producer) - 1;
        for batch in producer.batches().take(older) {
            encode_entry(&mut out, producer, Some(batch), batch.timestamp);
        }
        // A marker may have come behind the last batch: the producer's own time.
        encode_entry(&mut out, producer, producer.last_batch(), producer.last_timestamp);
    }
    let crc = crc32c::crc32c(out.get(COVERED_FROM..).unwrap_or_default());
    if let Some(slot) = out.get_mut(2..).and_then(|rest| rest.first_chunk_mut()) {
        *slot = crc.to_be_bytes();
    }
    out
}

fn encode_entry(out: &mut Vec<u8>, producer: &ProducerEntry, batch: Option<&BatchMemory>, timestamp: Timestamp) {
    let start = out.len();
    out.extend_from_slice(&producer.producer_id.0.to_be_bytes());
    out.extend_from_slice(&producer.epoch.0.to_be_bytes());
    out.extend_from_slice(&batch.map_or(Sequence::NONE, |batch| batch.last_sequence).0.to_be_bytes());
    out.extend_from_slice(&batch.map_or(Offset::NONE, |batch| batch.last_offset).0.to_be_bytes());
    out.extend_from_slice(&batch.map_or(0, |batch| batch.offset_delta).to_be_bytes());
    out.extend_from_slice(&timestamp.0.to_be_bytes());
    out.extend_from_slice(&producer.coordinator_epoch.to_be_bytes());
    out.extend_from_slice(&producer.transaction_start.unwrap_or(Offset::NONE).0.to_be_bytes());
    let bytes = out.len() - start;
    assert!(bytes == SNAPSHOT_BYTES_PER_ENTRY, "a snapshot entry of {bytes} bytes");
}

/// The producers of a snapshot, one by one. Of two with the same id the later one counts, as in Kafka.
///
/// # Errors
/// When version, length or CRC are wrong. Nothing is allocated, whatever the file says.
pub fn decode_snapshot(bytes: &[u8]) -> Result<impl Iterator<Item = ProducerEntry>, SnapshotError> {
    let too_short = SnapshotError::Length { bytes: bytes.len(), count: -1, expected: HEADER_BYTES };
    let mut reader = Reader(bytes);
    let version = i16::from_be_bytes(reader.take().ok_or(too_short)?);
    if version != VERSION {
        return Err(SnapshotError::Version { version });
    }
    let stored = u32::from_be_bytes(reader.take().ok_or(too_short)?);
    let computed = crc32c::crc32c(bytes.get(COVERED_FROM..).unwrap_or_default());
    if stored != computed {
        return Err(SnapshotError::Crc { stored, computed });
    }
    let count = i32::from_be_bytes(reader.take().ok_or(too_short)?);
    let expected = usize::try_from(count)
        .ok()
        .and_then(|count| count.checked_mul(SNAPSHOT_BYTES_PER_ENTRY))
        .and_then(|entries| entries.checked_add(HEADER_BYTES));
    if expected != Some(bytes.len()) {
        return Err(SnapshotError::Length { bytes: bytes.len(), count, expected: expected.unwrap_or(0) });
    }
    let (entries, _) = reader.0.as_chunks::<SNAPSHOT_BYTES_PER_ENTRY>();
    let same_producer = |one: &Entry, next: &Entry| one[..SAME_PRODUCER_BYTES] == next[..SAME_PRODUCER_BYTES];
    Ok(entries.chunk_by(same_producer).filter_map(|entries| {
        let (last, older) = entries.split_last()?;
        Some(decode_entry(last).after(older.iter().filter_map(|entry| decode_entry(entry).last_batch().copied())))
    }))
}

fn decode_entry(bytes: &Entry) -> ProducerEntry {
    let mut reader = Reader(bytes);
    let mut entry = ProducerEntry::new(ProducerId(i64::from_be_bytes(reader.field())));
    entry.epoch = ProducerEpoch(i16::from_be_bytes(reader.field()));
    let last_sequence = Sequence(i32::from_be_bytes(reader.field()));
    let last_offset = Offset(i64::from_be_bytes(reader.field()));
    let offset_delta = i32::from_be_bytes(reader.field());
    let timestamp = Timestamp(i64::from_be_bytes(reader.field()));
    entry.coordinator_epoch = i32::from_be_bytes(reader.field());
    let transaction_start = Offset(i64::from_be_bytes(reader.field()));
    entry.transaction_start = (transaction_start.0 >= 0).then_some(transaction_start);
    if last_offset.0 >= 0 {
        entry.remember(BatchMemory { last_sequence, last_offset, offset_delta, timestamp });
    }
    entry.last_timestamp = timestamp;
    entry
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*bytes)
    }

    /// The next field of an entry, whose length was checked as a whole.
    fn field<const N: usize>(&mut self) -> [u8; N] {
        self.take().unwrap_or([0; N])
    }
}
