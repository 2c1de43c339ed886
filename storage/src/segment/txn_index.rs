//! Kafka's index of aborted transactions of one segment: its entries, and what an open log knows of them.
//!
//! Holds: the format (`AbortedTxn` in Kafka), what an entry can be, the entries that wait for their file.
//! Never touches: the file (`log/txn_index`).
//!
//! The entry of a transaction lies in the index of the segment that holds its ABORT marker. So entries come in the order of
//! their last offsets, and the order of the log.

use crate::ids::{Offset, ProducerId};
use crate::producers::CompletedTransaction;

/// Bytes of an entry, all numbers big-endian: version (i16), producer id, first offset, last offset (the marker's), last
/// stable offset (i64 each).
pub const TXN_ENTRY_BYTES: usize = 34;
/// The only version there is.
const VERSION: i16 = 0;

/// A transaction that was aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTxn {
    /// Whose.
    pub producer_id: ProducerId,
    /// Its first record.
    pub first_offset: Offset,
    /// Its marker.
    pub last_offset: Offset,
    /// The first undecided offset when the marker was written. Whatever ends later began at this offset or behind it: a
    /// search that has come here need not go on for what lies before.
    pub last_stable_offset: Offset,
}

impl AbortedTxn {
    /// The entry of a transaction that ended, if that was an abort.
    #[must_use]
    pub fn of(ended: CompletedTransaction) -> Option<Self> {
        let CompletedTransaction { producer_id, first_offset, last_offset, last_stable_offset, is_aborted } = ended;
        is_aborted.then_some(Self { producer_id, first_offset, last_offset, last_stable_offset })
    }

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; TXN_ENTRY_BYTES] {
        let mut out = [0; TXN_ENTRY_BYTES];
        let (version, numbers) = out.split_at_mut(size_of::<i16>());
        version.copy_from_slice(&VERSION.to_be_bytes());
        let fields = [self.producer_id.0, self.first_offset.0, self.last_offset.0, self.last_stable_offset.0];
        for (slot, field) in numbers.as_chunks_mut().0.iter_mut().zip(fields) {
            *slot = field.to_be_bytes();
        }
        out
    }

    /// Reads an entry. `None` if there are too few bytes, or it is of another version.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (version, rest) = bytes.split_first_chunk()?;
        let (producer_id, rest) = rest.split_first_chunk()?;
        let (first, rest) = rest.split_first_chunk()?;
        let (last, rest) = rest.split_first_chunk()?;
        let last_stable = rest.first_chunk()?;
        let offset = |bytes: &[u8; 8]| Offset(i64::from_be_bytes(*bytes));
        (i16::from_be_bytes(*version) == VERSION).then(|| Self {
            producer_id: ProducerId(i64::from_be_bytes(*producer_id)),
            first_offset: offset(first),
            last_offset: offset(last),
            last_stable_offset: offset(last_stable),
        })
    }

    /// Whether Kafka can have written it into the index of the segment at `base`, behind an entry of `previous`.
    #[must_use]
    pub fn is_sound(&self, base: Offset, previous: Option<Offset>) -> bool {
        self.first_offset.0 >= 0
            && self.first_offset < self.last_offset
            && base <= self.last_offset
            && previous.is_none_or(|previous| previous < self.last_offset)
    }

    /// Whether a record from `from` on and below `upper` may belong to it.
    #[must_use]
    pub fn overlaps(&self, from: Offset, upper: Offset) -> bool {
        self.last_offset >= from && self.first_offset < upper
    }
}

/// The bytes of entries.
#[must_use]
pub fn encode_all(entries: &[AbortedTxn]) -> Vec<u8> {
    entries.iter().flat_map(AbortedTxn::encode).collect()
}

/// What an open log knows of a segment's index. A segment without aborted transactions has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TxnIndex {
    /// Entries in the file.
    filed: u64,
    /// The last offset of the last of them.
    filed_to: Option<Offset>,
    /// Those behind them, which are in memory alone.
    pending: Vec<AbortedTxn>,
}

impl TxnIndex {
    /// An index whose file has `filed` entries, the last one up to `filed_to`, and that lacks `pending`. `None` without any.
    #[must_use]
    pub fn new(filed: u64, filed_to: Option<Offset>, pending: Vec<AbortedTxn>) -> Option<Box<Self>> {
        (filed > 0 || !pending.is_empty()).then(|| Box::new(Self { filed, filed_to, pending }))
    }

    /// One more. How many wait for the file now.
    pub fn note(&mut self, entry: AbortedTxn) -> usize {
        let last = self.last_offset();
        assert!(
            last.is_none_or(|last| last < entry.last_offset),
            "an aborted transaction ends at {}, behind one that ends at {last:?}",
            entry.last_offset
        );
        self.pending.push(entry);
        self.pending.len()
    }

    /// Entries in the file.
    #[must_use]
    pub const fn filed(&self) -> u64 {
        self.filed
    }

    /// The last offset of the last entry in the file.
    #[must_use]
    pub const fn filed_to(&self) -> Option<Offset> {
        self.filed_to
    }

    /// The last offset of the last entry.
    #[must_use]
    pub fn last_offset(&self) -> Option<Offset> {
        self.pending.last().map(|last| last.last_offset).or(self.filed_to)
    }

    /// Entries that wait for the file.
    #[must_use]
    pub fn pending(&self) -> &[AbortedTxn] {
        &self.pending
    }

    /// Those of them whose marker lies below `end`.
    #[must_use]
    pub fn pending_below(&self, end: Offset) -> &[AbortedTxn] {
        let below = self.pending.partition_point(|entry| entry.last_offset < end);
        self.pending.get(..below).unwrap_or_default()
    }

    /// The file has the first `count` that waited.
    pub fn filed_more(&mut self, count: usize) {
        let count = count.min(self.pending.len());
        let filed_to = self.pending.get(..count).and_then(<[AbortedTxn]>::last).map(|last| last.last_offset);
        self.filed_to = filed_to.or(self.filed_to);
        self.pending.drain(..count);
        self.filed += count as u64;
        if self.pending.is_empty() {
            self.pending = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(first: i64, last: i64) -> AbortedTxn {
        AbortedTxn {
            producer_id: ProducerId(7),
            first_offset: Offset(first),
            last_offset: Offset(last),
            last_stable_offset: Offset(last + 1),
        }
    }

    #[test]
    fn an_entry_is_thirty_four_bytes_as_kafka_writes_them() {
        let bytes = entry(258, 772).encode();
        let numbers =
            [[0, 0, 0, 0, 0, 0, 0, 7], [0, 0, 0, 0, 0, 0, 1, 2], [0, 0, 0, 0, 0, 0, 3, 4], [0, 0, 0, 0, 0, 0, 3, 5]];
        assert_eq!(bytes.to_vec(), [&[0, 0][..], &numbers.concat()].concat());
        assert_eq!(AbortedTxn::parse(&bytes), Some(entry(258, 772)));
        assert_eq!(AbortedTxn::parse(&bytes[..33]), None);
        for version in [[0, 1], [255, 255]] {
            assert_eq!(AbortedTxn::parse(&[&version[..], &bytes[2..]].concat()), None);
        }
    }

    #[test]
    fn an_entry_is_sound_where_kafka_can_have_written_it() {
        // A transaction may have begun in an earlier segment; its marker lies in this one.
        let sound = entry(90, 110);
        assert!(sound.is_sound(Offset(100), None) && sound.is_sound(Offset(110), Some(Offset(109))));
        assert!(!sound.is_sound(Offset(111), None), "the marker lies before the segment");
        assert!(!sound.is_sound(Offset(100), Some(Offset(110))), "last offsets rise");
        for first in [110, 111] {
            assert!(!entry(first, 110).is_sound(Offset(100), None), "the marker stands behind the records");
        }
        assert!(!entry(-1, 110).is_sound(Offset(100), None));
    }

    #[test]
    fn a_transaction_overlaps_what_lies_between_its_first_record_and_its_marker() {
        let one = entry(10, 20);
        for (from, upper, is_in) in [(0, 10, false), (0, 11, true), (15, 16, true), (20, 30, true), (21, 30, false)] {
            assert_eq!(one.overlaps(Offset(from), Offset(upper)), is_in, "{from}..{upper}");
        }
    }

    #[test]
    fn what_the_file_has_is_not_kept_in_memory() {
        let mut index = TxnIndex::default();
        for last in 1..=5 {
            assert_eq!(index.note(entry(0, last)), last as usize);
        }
        assert_eq!(index.pending_below(Offset(4)).len(), 3);
        index.filed_more(3);
        assert_eq!((index.filed(), index.filed_to()), (3, Some(Offset(3))));
        assert_eq!(index.pending(), [entry(0, 4), entry(0, 5)]);
        index.filed_more(2);
        assert_eq!((index.filed(), index.filed_to(), index.pending.capacity()), (5, Some(Offset(5)), 0));
    }

    #[test]
    #[should_panic(expected = "behind one that ends at")]
    fn entries_come_in_the_order_of_their_markers() {
        let mut index = TxnIndex::new(3, Some(Offset(9)), Vec::new()).unwrap();
        index.note(entry(0, 9));
    }
}
