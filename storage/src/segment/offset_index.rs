//! The sparse offset index of one segment, in Kafka's format.
//!
//! Holds: `(relative offset: u32, position: u32)` entries, big-endian on disk, one about every `index.interval.bytes`.
//! Never touches: files, timestamps.
//!
//! An entry names the LAST offset of a batch and the position of that batch's first byte. So the batch that contains a
//! target offset never starts before the position of the greatest entry whose offset is at most the target.

use crate::ids::Offset;

/// Bytes of one entry on disk.
pub const OFFSET_ENTRY_BYTES: usize = 8;

/// One entry, resolved against the segment's base offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetEntry {
    /// The last offset of the batch.
    pub last_offset: Offset,
    /// Where the batch starts in the segment.
    pub position: u32,
}

/// Why the bytes of an index file are no index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// Not a whole number of entries.
    #[error("{bytes} bytes are no whole number of {entry_bytes}-byte entries")]
    Length {
        /// Bytes of the file.
        bytes: usize,
        /// Bytes of an entry.
        entry_bytes: usize,
    },
    /// Entries must rise.
    #[error("entry {entry} does not lie behind the one before it")]
    Order {
        /// The offending entry's number.
        entry: usize,
    },
    /// An entry's offset lies further behind the base offset than a segment reaches.
    #[error("entry {entry} lies {relative} offsets behind the segment's base")]
    Range {
        /// The offending entry's number.
        entry: usize,
        /// Its distance from the base.
        relative: u32,
    },
    /// An entry points past the segment's end.
    #[error("entry {entry} points to byte {position} of a segment of {segment_bytes}")]
    Position {
        /// The offending entry's number.
        entry: usize,
        /// Where it points.
        position: u64,
        /// The segment's length.
        segment_bytes: u64,
    },
    /// A sealed segment with several intervals of data, but no entry.
    #[error("no entries for a segment of {segment_bytes} bytes")]
    Missing {
        /// The segment's length.
        segment_bytes: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Packed {
    relative: u32,
    position: u32,
}

/// The entries of one segment, in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetIndex {
    base: Offset,
    entries: Vec<Packed>,
}

impl OffsetIndex {
    /// An empty index of the segment that starts at `base`.
    #[must_use]
    pub const fn new(base: Offset) -> Self {
        Self { base, entries: Vec::new() }
    }

    /// The base offset of the segment.
    #[must_use]
    pub const fn base(&self) -> Offset {
        self.base
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

    /// Adds the batch that ends with `last_offset` and starts at `position`.
    ///
    /// # Panics
    /// When the batch does not lie behind the entry before it, or too far from the base: our own mistakes.
    pub fn append(&mut self, last_offset: Offset, position: u32) {
        let distance = last_offset - self.base;
        let relative = u32::try_from(distance).unwrap_or(u32::MAX);
        assert!(
            i64::from(relative) == distance && distance <= i64::from(i32::MAX),
            "offset {last_offset} lies too far from segment base {}",
            self.base
        );
        if let Some(last) = self.entries.last() {
            assert!(relative > last.relative, "index entry {relative} does not lie behind {}", last.relative);
            assert!(position > last.position, "index position {position} does not lie behind {}", last.position);
        }
        self.entries.push(Packed { relative, position });
    }

    fn resolve(&self, packed: Packed) -> OffsetEntry {
        OffsetEntry { last_offset: self.base + i64::from(packed.relative), position: packed.position }
    }

    fn before(&self, count: usize) -> Option<OffsetEntry> {
        let packed = count.checked_sub(1).and_then(|i| self.entries.get(i))?;
        Some(self.resolve(*packed))
    }

    /// A position at or before the start of the batch that contains `target`; 0 when no entry helps.
    #[must_use]
    pub fn floor_position(&self, target: Offset) -> u32 {
        self.floor(target).map_or(0, |e| e.position)
    }

    /// [`Self::floor_position`], and the position of the entry behind it: the batch that contains `target` ends there or
    /// before. None: no entry says where it ends.
    #[must_use]
    pub fn around(&self, target: Offset) -> (u32, Option<u32>) {
        let distance = target - self.base;
        let behind = self.entries.partition_point(|e| i64::from(e.relative) <= distance);
        let floor = self.before(behind).map_or(0, |e| e.position);
        // The next entry's batch may be the wanted one itself: entries name their batch's last offset.
        (floor, self.entries.get(behind + 1).map(|e| e.position))
    }

    /// The entry with the greatest offset that is at most `target`.
    #[must_use]
    pub fn floor(&self, target: Offset) -> Option<OffsetEntry> {
        let distance = target - self.base;
        self.before(self.entries.partition_point(|e| i64::from(e.relative) <= distance))
    }

    /// The last entry whose batch starts at or before `position`.
    #[must_use]
    pub fn floor_by_position(&self, position: u64) -> Option<OffsetEntry> {
        self.before(self.entries.partition_point(|e| u64::from(e.position) <= position))
    }

    /// The last entry.
    #[must_use]
    pub fn last(&self) -> Option<OffsetEntry> {
        self.before(self.entries.len())
    }

    /// Takes the last entry away.
    pub fn pop(&mut self) -> Option<OffsetEntry> {
        let last = self.last()?;
        self.entries.pop();
        Some(last)
    }

    /// Drops the entries of batches that start at or behind `position`.
    pub fn truncate_to_position(&mut self, position: u64) {
        let keep = self.entries.partition_point(|e| u64::from(e.position) < position);
        self.entries.truncate(keep);
    }

    /// The entries from number `from` on, in the file's format.
    #[must_use]
    pub fn encode_from(&self, from: usize) -> Vec<u8> {
        let entries = self.entries.get(from..).unwrap_or_default();
        let mut out = Vec::with_capacity(entries.len() * OFFSET_ENTRY_BYTES);
        for entry in entries {
            out.extend_from_slice(&entry.relative.to_be_bytes());
            out.extend_from_slice(&entry.position.to_be_bytes());
        }
        out
    }

    /// Reads an index file of a segment that starts at `base` and is `segment_bytes` long.
    ///
    /// # Errors
    /// When the bytes are not rising entries that point into the segment.
    pub fn decode(base: Offset, bytes: &[u8], segment_bytes: u64) -> Result<Self, IndexError> {
        let (chunks, rest) = bytes.as_chunks::<OFFSET_ENTRY_BYTES>();
        if !rest.is_empty() {
            return Err(IndexError::Length { bytes: bytes.len(), entry_bytes: OFFSET_ENTRY_BYTES });
        }
        let mut entries: Vec<Packed> = Vec::with_capacity(chunks.len());
        for (entry, chunk) in chunks.iter().enumerate() {
            let [a, b, c, d, e, f, g, h] = *chunk;
            let packed =
                Packed { relative: u32::from_be_bytes([a, b, c, d]), position: u32::from_be_bytes([e, f, g, h]) };
            if let Some(last) = entries.last()
                && (packed.relative <= last.relative || packed.position <= last.position)
            {
                return Err(IndexError::Order { entry });
            }
            if i32::try_from(packed.relative).is_err() {
                return Err(IndexError::Range { entry, relative: packed.relative });
            }
            if u64::from(packed.position) >= segment_bytes {
                return Err(IndexError::Position { entry, position: u64::from(packed.position), segment_bytes });
            }
            entries.push(packed);
        }
        Ok(Self { base, entries })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index() -> OffsetIndex {
        let mut index = OffsetIndex::new(Offset(100));
        index.append(Offset(109), 500);
        index.append(Offset(119), 1_000);
        index.append(Offset(129), 1_500);
        index
    }

    #[test]
    fn a_lookup_finds_a_position_at_or_before_the_batch() {
        let index = index();
        assert_eq!(index.floor_position(Offset(100)), 0);
        assert_eq!(index.floor_position(Offset(108)), 0);
        assert_eq!(index.floor_position(Offset(109)), 500);
        assert_eq!(index.floor_position(Offset(128)), 1_000);
        assert_eq!(index.floor_position(Offset(5_000)), 1_500);
        assert_eq!(index.around(Offset(105)), (0, Some(1_000)), "the first entry's batch may be the wanted one");
        assert_eq!(index.around(Offset(109)), (500, Some(1_500)));
        assert_eq!(index.around(Offset(128)), (1_000, None));
        assert_eq!(index.floor_by_position(1_499).map(|e| e.position), Some(1_000));
        assert_eq!(index.floor_by_position(499), None);
    }

    #[test]
    fn an_index_reads_back_what_it_wrote() {
        let index = index();
        let bytes = index.encode_from(0);
        assert_eq!(bytes.len(), 24);
        assert_eq!(bytes.get(..8), Some(&[0, 0, 0, 9, 0, 0, 1, 244][..]));
        assert_eq!(OffsetIndex::decode(Offset(100), &bytes, 2_000), Ok(index.clone()));
        assert_eq!(index.encode_from(2).len(), 8);
    }

    #[test]
    fn an_index_that_is_no_index_is_refused() {
        let bytes = index().encode_from(0);
        assert!(matches!(
            OffsetIndex::decode(Offset(100), &bytes[..23], 2_000),
            Err(IndexError::Length { bytes: 23, .. })
        ));
        assert!(matches!(OffsetIndex::decode(Offset(100), &bytes, 1_500), Err(IndexError::Position { entry: 2, .. })));
        let mut far = bytes.clone();
        far[16] = 0x80;
        assert!(matches!(OffsetIndex::decode(Offset(100), &far, 2_000), Err(IndexError::Range { entry: 2, .. })));
        let doubled = [bytes.clone(), bytes].concat();
        assert!(matches!(OffsetIndex::decode(Offset(100), &doubled, 2_000), Err(IndexError::Order { entry: 3 })));
    }

    #[test]
    fn truncation_drops_entries_behind_the_cut_only() {
        let mut index = index();
        index.truncate_to_position(1_500);
        assert_eq!(index.last().map(|e| e.position), Some(1_000));
        index.truncate_to_position(0);
        assert!(index.is_empty());
    }
}
