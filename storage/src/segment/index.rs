//! Both indexes of one segment, fed batch by batch as Kafka's `LogSegment.append` feeds them.
//!
//! Holds: the offset index, the time index, the largest timestamp so far, the bytes since the last entry.
//! Never touches: files.

use super::offset_index::{OFFSET_ENTRY_BYTES, OffsetIndex};
use super::time_index::{TIME_ENTRY_BYTES, TimeIndex, TimestampOffset};
use crate::batch::BatchHeader;
use crate::ids::{Offset, Timestamp};

/// What a segment knows about where its offsets and timestamps lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentIndex {
    /// Sparse offsets.
    pub offsets: OffsetIndex,
    /// Sparse timestamps.
    pub times: TimeIndex,
    /// The largest timestamp of any record, with the last offset of its batch.
    pub largest: TimestampOffset,
    /// The largest timestamp of any batch: also of headers that a compaction has left. They name a time that no record has, so a
    /// search must not come upon it (and `kafka-dump-log` finds fault with a time index that does); but a segment is as new as
    /// that, as in Kafka. What is known of batches before the last [rewind](Self::rewind) is no more than `largest` says.
    pub newest: Timestamp,
    bytes_since_entry: u64,
}

impl SegmentIndex {
    /// The empty index of the segment that starts at `base`.
    #[must_use]
    pub const fn new(base: Offset) -> Self {
        Self {
            offsets: OffsetIndex::new(base),
            times: TimeIndex::new(base),
            largest: TimestampOffset { timestamp: Timestamp::NONE, offset: base },
            newest: Timestamp::NONE,
            bytes_since_entry: 0,
        }
    }

    /// An index read back from its files. Before it may grow again it must be [rewound](Self::rewind).
    #[must_use]
    pub fn from_files(base: Offset, offsets: OffsetIndex, times: TimeIndex) -> Self {
        let largest = times.last().unwrap_or(TimestampOffset { timestamp: Timestamp::NONE, offset: base });
        Self { offsets, times, largest, newest: largest.timestamp, bytes_since_entry: 0 }
    }

    /// Takes note of a batch of `bytes` that starts at `position`; an entry is due once more than `interval` bytes have
    /// passed since the last one.
    pub fn note(&mut self, header: &BatchHeader, last_offset: Offset, position: u64, bytes: usize, interval: u32) {
        // No segment of ours reaches further; a file may claim to. Such batches are found without an index.
        if i32::try_from(last_offset - self.offsets.base()).is_err() {
            self.bytes_since_entry += bytes as u64;
            return;
        }
        self.newest = self.newest.max(header.max_timestamp);
        if header.record_count > 0 && header.max_timestamp > self.largest.timestamp {
            self.largest = TimestampOffset { timestamp: header.max_timestamp, offset: last_offset };
        }
        if self.bytes_since_entry > u64::from(interval)
            && let Ok(position) = u32::try_from(position)
        {
            self.offsets.append(last_offset, position);
            self.times.maybe_append(self.largest);
            self.bytes_since_entry = 0;
        }
        self.bytes_since_entry += bytes as u64;
    }

    /// Whether one of the two files would have `bytes_max` bytes with the entries that may come: as Kafka counts, which keeps
    /// a place for the time index's last entry.
    #[must_use]
    pub fn is_full(&self, bytes_max: u32) -> bool {
        let bytes_max = bytes_max as usize;
        self.offsets.len() >= bytes_max / OFFSET_ENTRY_BYTES || self.times.len() + 1 >= bytes_max / TIME_ENTRY_BYTES
    }

    /// What sealing adds: the time index ends with the segment's largest timestamp.
    pub fn finish(&mut self) {
        self.times.maybe_append(self.largest);
    }

    /// Forgets what lies at or behind `position` and goes back to the last indexed batch before it. Returns where that
    /// batch starts: noting every batch from there on brings the index to the state it would have had.
    pub fn rewind(&mut self, position: u64) -> u64 {
        self.offsets.truncate_to_position(position);
        let Some(entry) = self.offsets.pop() else {
            *self = Self::new(self.offsets.base());
            return 0;
        };
        // The time entry made with this one says what is the largest up to it, so it stays.
        self.times.truncate_to(entry.last_offset.next());
        self.largest =
            self.times.last().unwrap_or(TimestampOffset { timestamp: Timestamp::NONE, offset: self.offsets.base() });
        self.newest = self.largest.timestamp;
        self.bytes_since_entry = u64::MAX / 2;
        u64::from(entry.position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Attributes, HEADER_BYTES, LENGTH_PREFIX_BYTES};
    use crate::ids::{LeaderEpoch, ProducerEpoch, ProducerId, Sequence};

    fn header(base: i64, bytes: usize, time: i64) -> BatchHeader {
        BatchHeader {
            base_offset: Offset(base),
            length: (bytes - LENGTH_PREFIX_BYTES) as i32,
            leader_epoch: LeaderEpoch(0),
            crc: 0,
            attributes: Attributes(0),
            last_offset_delta: 0,
            base_timestamp: Timestamp(time),
            max_timestamp: Timestamp(time),
            producer_id: ProducerId::NONE,
            producer_epoch: ProducerEpoch::NONE,
            base_sequence: Sequence::NONE,
            record_count: 1,
        }
    }

    /// Notes `count` batches of varying sizes and times, starting with number `from` at its position.
    fn note(index: &mut SegmentIndex, from: i64, count: i64) -> u64 {
        let mut position = 0;
        for n in 0..count {
            let bytes = HEADER_BYTES + (n as usize * 37) % 300;
            let time = 1_000 + (n * 7919) % 101;
            if n >= from {
                index.note(&header(n, bytes, time), Offset(n), position, bytes, 512);
            }
            position += bytes as u64;
        }
        position
    }

    fn number_at(position: u64) -> i64 {
        let mut at = 0;
        let mut n = 0;
        while at < position {
            at += HEADER_BYTES as u64 + (n as u64 * 37) % 300;
            n += 1;
        }
        assert_eq!(at, position, "not the start of a batch");
        n
    }

    #[test]
    fn a_header_without_records_has_no_time_that_a_search_finds_and_still_makes_the_segment_newer() {
        let mut index = SegmentIndex::new(Offset(0));
        index.note(&header(0, 600, 10), Offset(0), 0, 600, 512);
        index.note(&BatchHeader { record_count: 0, ..header(1, 600, 99) }, Offset(1), 600, 600, 512);
        index.note(&header(2, 600, 11), Offset(2), 1200, 600, 512);
        assert_eq!(index.largest, TimestampOffset { timestamp: Timestamp(11), offset: Offset(2) });
        assert_eq!(index.newest, Timestamp(99));
        assert_eq!(index.offsets.len(), 2, "it is found by its offset all the same");
    }

    #[test]
    fn a_rewound_index_grows_back_to_what_it_was() {
        let mut whole = SegmentIndex::new(Offset(0));
        let end = note(&mut whole, 0, 200);
        assert!(whole.offsets.len() > 20, "{}", whole.offsets.len());
        for cut in [0, 1, 512, 513, 5_000, end / 2, end - 1, end] {
            let mut again = whole.clone();
            let resume = again.rewind(cut);
            assert!(resume <= cut);
            note(&mut again, number_at(resume), 200);
            assert_eq!(again, whole, "cut at {cut}");
        }
    }
}
