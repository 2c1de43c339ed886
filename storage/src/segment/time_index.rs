//! The sparse time index of one segment, in Kafka's format (KIP-33).
//!
//! Holds: `(timestamp: i64, relative offset: u32)` entries, big-endian on disk: "no record up to this offset is younger".
//! Never touches: files, the clock.

use super::offset_index::IndexError;
use crate::ids::{Offset, Timestamp};

/// Bytes of one entry on disk.
pub const TIME_ENTRY_BYTES: usize = 12;

/// A timestamp and the offset that belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampOffset {
    /// The largest timestamp up to the offset.
    pub timestamp: Timestamp,
    /// The last offset of the batch that holds it.
    pub offset: Offset,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Packed {
    timestamp: i64,
    relative: u32,
}

/// The entries of one segment, in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeIndex {
    base: Offset,
    entries: Vec<Packed>,
}

impl TimeIndex {
    /// An empty index of the segment that starts at `base`.
    #[must_use]
    pub const fn new(base: Offset) -> Self {
        Self { base, entries: Vec::new() }
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds an entry, unless its timestamp is no larger than the last one's (as Kafka does).
    pub fn maybe_append(&mut self, at: TimestampOffset) {
        if self.entries.last().is_some_and(|last| at.timestamp.0 <= last.timestamp) || at.timestamp.0 < 0 {
            return;
        }
        let distance = at.offset - self.base;
        let relative = u32::try_from(distance).unwrap_or(u32::MAX);
        assert!(
            i64::from(relative) == distance && distance <= i64::from(i32::MAX),
            "offset {} lies too far from segment base {}",
            at.offset,
            self.base
        );
        self.entries.push(Packed { timestamp: at.timestamp.0, relative });
    }

    /// The entry with the greatest timestamp that is at most `timestamp`.
    #[must_use]
    pub fn floor(&self, timestamp: Timestamp) -> Option<TimestampOffset> {
        let count = self.entries.partition_point(|e| e.timestamp <= timestamp.0);
        self.at(count.checked_sub(1)?)
    }

    /// The last entry: the segment's largest timestamp.
    #[must_use]
    pub fn last(&self) -> Option<TimestampOffset> {
        self.at(self.entries.len().checked_sub(1)?)
    }

    fn at(&self, entry: usize) -> Option<TimestampOffset> {
        let packed = self.entries.get(entry)?;
        Some(TimestampOffset { timestamp: Timestamp(packed.timestamp), offset: self.base + i64::from(packed.relative) })
    }

    /// Drops the entries at or behind `offset`.
    pub fn truncate_to(&mut self, offset: Offset) {
        let distance = offset - self.base;
        let keep = self.entries.partition_point(|e| i64::from(e.relative) < distance);
        self.entries.truncate(keep);
    }

    /// The entries from number `from` on, in the file's format.
    #[must_use]
    pub fn encode_from(&self, from: usize) -> Vec<u8> {
        let entries = self.entries.get(from..).unwrap_or_default();
        let mut out = Vec::with_capacity(entries.len() * TIME_ENTRY_BYTES);
        for entry in entries {
            out.extend_from_slice(&entry.timestamp.to_be_bytes());
            out.extend_from_slice(&entry.relative.to_be_bytes());
        }
        out
    }

    /// Reads an index file of a segment that starts at `base`.
    ///
    /// # Errors
    /// When the bytes are not rising entries.
    pub fn decode(base: Offset, bytes: &[u8]) -> Result<Self, IndexError> {
        let (chunks, rest) = bytes.as_chunks::<TIME_ENTRY_BYTES>();
        if !rest.is_empty() {
            return Err(IndexError::Length { bytes: bytes.len(), entry_bytes: TIME_ENTRY_BYTES });
        }
        let mut entries: Vec<Packed> = Vec::with_capacity(chunks.len());
        for (entry, chunk) in chunks.iter().enumerate() {
            let [a, b, c, d, e, f, g, h, i, j, k, l] = *chunk;
            let packed = Packed {
                timestamp: i64::from_be_bytes([a, b, c, d, e, f, g, h]),
                relative: u32::from_be_bytes([i, j, k, l]),
            };
            if let Some(last) = entries.last()
                && (packed.timestamp <= last.timestamp || packed.relative < last.relative)
            {
                return Err(IndexError::Order { entry });
            }
            if i32::try_from(packed.relative).is_err() {
                return Err(IndexError::Range { entry, relative: packed.relative });
            }
            entries.push(packed);
        }
        Ok(Self { base, entries })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(timestamp: i64, offset: i64) -> TimestampOffset {
        TimestampOffset { timestamp: Timestamp(timestamp), offset: Offset(offset) }
    }

    #[test]
    fn only_rising_timestamps_are_kept() {
        let mut index = TimeIndex::new(Offset(10));
        index.maybe_append(entry(-1, 10));
        index.maybe_append(entry(50, 12));
        index.maybe_append(entry(50, 15));
        index.maybe_append(entry(40, 17));
        index.maybe_append(entry(60, 20));
        assert_eq!(index.len(), 2);
        assert_eq!(index.floor(Timestamp(49)), None);
        assert_eq!(index.floor(Timestamp(59)), Some(entry(50, 12)));
        assert_eq!(index.last(), Some(entry(60, 20)));
    }

    #[test]
    fn a_time_index_reads_back_what_it_wrote() {
        let mut index = TimeIndex::new(Offset(10));
        index.maybe_append(entry(50, 12));
        index.maybe_append(entry(60, 20));
        let bytes = index.encode_from(0);
        assert_eq!(bytes.len(), 24);
        assert_eq!(TimeIndex::decode(Offset(10), &bytes), Ok(index.clone()));
        assert!(TimeIndex::decode(Offset(10), &bytes[..13]).is_err());
        let mut far = bytes.clone();
        far[20] = 0x80;
        assert!(matches!(TimeIndex::decode(Offset(10), &far), Err(IndexError::Range { entry: 1, .. })));
        index.truncate_to(Offset(20));
        assert_eq!(index.last(), Some(entry(50, 12)));
    }
}
