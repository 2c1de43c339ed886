//! The bytes of a commit-log file.
//!
//! Holds: the file's header, the header of a write, the entries in it, their checks. Never touches: files.
//!
//! ```text
//!   block 0        header: "CLCF", version (u32), generation (u64), CRC-32C over the three
//!   block 1        a write: "CLCW", CRC-32C over the rest, sequence (u64), generation (u64), first (u64), follows (u64),
//!                           bytes (u32), entries (u32)
//!                           entry: topic id (16), partition (i32), bytes (u32), segment base (i64), position in the
//!                                  segment (u64), first offset (i64), offset behind the last (i64), whole batches
//!                           entry...
//!                  zeroes up to the next block
//!   next block     a write
//! ```
//!
//! Numbers are big-endian. `bytes` of a write counts its header and its entries, without the zeroes behind them. `first`
//! is the sequence of the first write in this use of the file, and `follows` says which file was written to before:
//! its number and one, or zero. So any sound write tells where its own file starts, and where the one before it ends.
//!
//! A file is used again without being cleared. Sequences only rise, over all files and all runs, and a file's
//! generation is a sequence that none of its older writes has reached. So what an earlier use left is known by its
//! generation, and behind the writes of this use it ends the file.

use crate::disk::BLOCK_BYTES;
use crate::disk::checkpoint::LogKey;
use crate::ids::{Offset, PartitionIndex, TopicId};

/// Where the first write of a file starts.
pub const FIRST_WRITE: u64 = BLOCK_BYTES;
/// Bytes of a file's header, within its block.
pub const FILE_HEADER_BYTES: usize = 20;
/// Bytes of the header of a write.
pub const WRITE_HEADER_BYTES: usize = 48;
/// Bytes before an entry's batches.
pub const ENTRY_HEADER_BYTES: usize = 56;
/// The largest write.
pub const WRITE_BYTES_MAX: usize = 1 << 20;

/// No run comes so far: a million writes a second for half a million years. What claims to is no write.
pub const SEQUENCE_MAX: u64 = u64::MAX / 2;
/// So far a write may be behind the sequence at which its file got its header: what this file and the one before it can
/// hold.
pub const SEQUENCES_AHEAD_MAX: u64 = 2 * FILE_BYTES_MAX / BLOCK_BYTES;
/// The largest file.
pub const FILE_BYTES_MAX: u64 = 4 << 30;

const FILE_MAGIC: [u8; 4] = *b"CLCF";
const WRITE_MAGIC: [u8; 4] = *b"CLCW";
const VERSION: u32 = 2;
/// Where the checked bytes of a write start: behind magic and CRC.
const CHECKED_FROM: usize = 8;

const _: () = assert!((WRITE_BYTES_MAX as u64).is_multiple_of(BLOCK_BYTES));
// A disk writes 512 bytes whole or not at all: a header is old or new, never torn.
const _: () = assert!(FILE_HEADER_BYTES <= 512);

/// Why a file's header says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderFault {
    /// All zeroes: the file was never taken into use.
    Unused,
    /// It was written by another version.
    Version(u32),
    /// It is damaged.
    Damaged,
}

/// The header of a file that is taken into use from the sequence `generation` on.
#[must_use]
pub fn encode_file_header(generation: u64) -> [u8; FILE_HEADER_BYTES] {
    let mut out = [0; FILE_HEADER_BYTES];
    put(&mut out, 0, &FILE_MAGIC);
    put(&mut out, 4, &VERSION.to_be_bytes());
    put(&mut out, 8, &generation.to_be_bytes());
    let crc = crc32c::crc32c(out.get(..16).unwrap_or_default());
    put(&mut out, 16, &crc.to_be_bytes());
    out
}

/// The generation of a file that starts with `bytes`.
///
/// # Errors
/// When there is none.
pub fn decode_file_header(bytes: &[u8]) -> Result<u64, HeaderFault> {
    let Some(header) = bytes.first_chunk::<FILE_HEADER_BYTES>() else {
        return Err(if bytes.iter().all(|b| *b == 0) { HeaderFault::Unused } else { HeaderFault::Damaged });
    };
    if header.iter().all(|b| *b == 0) {
        return Err(HeaderFault::Unused);
    }
    let crc = crc32c::crc32c(header.get(..16).unwrap_or_default());
    if header.get(..4) != Some(&FILE_MAGIC) || number(header, 16).map(u32::from_be_bytes) != Some(crc) {
        return Err(HeaderFault::Damaged);
    }
    match (number(header, 4).map(u32::from_be_bytes), number(header, 8).map(u64::from_be_bytes)) {
        (Some(VERSION), Some(generation)) => Ok(generation),
        (Some(version), _) => Err(HeaderFault::Version(version)),
        (None, _) => Err(HeaderFault::Damaged),
    }
}

/// What stands before the entries of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteHeader {
    /// One more than the write before it in the shard's log.
    pub sequence: u64,
    /// Of the file at the time.
    pub generation: u64,
    /// The sequence of the file's first write since it got its header.
    pub first: u64,
    /// The number and one of the file that was written to before this one; zero if there was none in this run.
    pub follows: u64,
    /// Of the header and the entries.
    pub bytes: u32,
    /// Number of entries.
    pub entries: u32,
}

impl WriteHeader {
    /// Completes a write whose entries are in place: `bytes` are all of it.
    pub fn seal(&self, bytes: &mut [u8]) {
        assert!(bytes.len() == self.bytes as usize, "a write of {} bytes in {}", self.bytes, bytes.len());
        put(bytes, 0, &WRITE_MAGIC);
        put(bytes, 8, &self.sequence.to_be_bytes());
        put(bytes, 16, &self.generation.to_be_bytes());
        put(bytes, 24, &self.first.to_be_bytes());
        put(bytes, 32, &self.follows.to_be_bytes());
        put(bytes, 40, &self.bytes.to_be_bytes());
        put(bytes, 44, &self.entries.to_be_bytes());
        let crc = crc32c::crc32c(bytes.get(CHECKED_FROM..).unwrap_or_default());
        put(bytes, 4, &crc.to_be_bytes());
    }

    /// The header at the front of `bytes`, unchecked but for numbers that can be.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let header = bytes.first_chunk::<WRITE_HEADER_BYTES>()?;
        let found = Self {
            sequence: u64::from_be_bytes(number(header, 8)?),
            generation: u64::from_be_bytes(number(header, 16)?),
            first: u64::from_be_bytes(number(header, 24)?),
            follows: u64::from_be_bytes(number(header, 32)?),
            bytes: u32::from_be_bytes(number(header, 40)?),
            entries: u32::from_be_bytes(number(header, 44)?),
        };
        // A file is written to at the latest when the one before it is full, and a write takes a block of it.
        let is_possible = (WRITE_HEADER_BYTES..=WRITE_BYTES_MAX).contains(&(found.bytes as usize))
            && found.generation <= found.first
            && found.first <= found.sequence
            && found.sequence - found.generation <= SEQUENCES_AHEAD_MAX
            && found.sequence <= SEQUENCE_MAX;
        (header.get(..4) == Some(&WRITE_MAGIC) && is_possible).then_some(found)
    }

    /// The header of the write that `bytes` start with, if all of it is there and its CRC holds.
    #[must_use]
    pub fn check(bytes: &[u8]) -> Option<Self> {
        let header = Self::parse(bytes)?;
        let whole = bytes.get(..header.bytes as usize)?;
        let crc = crc32c::crc32c(whole.get(CHECKED_FROM..)?);
        (number(whole, 4).map(u32::from_be_bytes) == Some(crc)).then_some(header)
    }
}

/// What stands before an entry's batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryHeader {
    /// Whose batches.
    pub key: LogKey,
    /// Of the batches.
    pub bytes: u32,
    /// Base offset of the segment they belong to.
    pub segment: Offset,
    /// Where in it they start.
    pub position: u64,
    /// Their first offset.
    pub start: Offset,
    /// The offset behind their last.
    pub end: Offset,
}

impl EntryHeader {
    /// Writes it to the front of `out`, which has the room.
    pub fn encode(&self, out: &mut [u8]) {
        put(out, 0, &self.key.topic_id.0);
        put(out, 16, &self.key.partition.0.to_be_bytes());
        put(out, 20, &self.bytes.to_be_bytes());
        put(out, 24, &self.segment.0.to_be_bytes());
        put(out, 32, &self.position.to_be_bytes());
        put(out, 40, &self.start.0.to_be_bytes());
        put(out, 48, &self.end.0.to_be_bytes());
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let header = bytes.first_chunk::<ENTRY_HEADER_BYTES>()?;
        let offset = |at| number(header, at).map(i64::from_be_bytes).map(Offset);
        let found = Self {
            key: LogKey {
                topic_id: TopicId(number(header, 0)?),
                partition: PartitionIndex(i32::from_be_bytes(number(header, 16)?)),
            },
            bytes: u32::from_be_bytes(number(header, 20)?),
            segment: offset(24)?,
            position: u64::from_be_bytes(number(header, 32)?),
            start: offset(40)?,
            end: offset(48)?,
        };
        (found.segment >= Offset::ZERO && found.segment <= found.start && found.start < found.end).then_some(found)
    }
}

/// The entries of a checked write, each with the position of its batches in the write. `None` ends it early: the writer
/// made no such entry.
pub fn entries(write: &[u8]) -> impl Iterator<Item = Option<(EntryHeader, usize)>> + '_ {
    let count = WriteHeader::parse(write).map_or(0, |h| h.entries);
    let mut at = WRITE_HEADER_BYTES;
    (0..count).map_while(move |_| {
        // Behind an entry that is none nothing follows.
        if at > write.len() {
            return None;
        }
        let entry = write.get(at..).and_then(EntryHeader::parse);
        let start = at + ENTRY_HEADER_BYTES;
        let end = entry.map_or(usize::MAX, |e| start + e.bytes as usize);
        at = end;
        Some(entry.filter(|_| end <= write.len()).map(|e| (e, start)))
    })
}

fn put(out: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(slot) = out.get_mut(at..at + bytes.len()) {
        slot.copy_from_slice(bytes);
    }
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.first_chunk::<N>().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(partition: i32, start: i64, bytes: u32) -> EntryHeader {
        EntryHeader {
            key: LogKey { topic_id: TopicId([9; 16]), partition: PartitionIndex(partition) },
            bytes,
            segment: Offset(3),
            position: 4_711,
            start: Offset(start),
            end: Offset(start + 5),
        }
    }

    fn write(list: &[EntryHeader]) -> Vec<u8> {
        let mut out = vec![0; WRITE_HEADER_BYTES];
        for e in list {
            let mut head = [0; ENTRY_HEADER_BYTES];
            e.encode(&mut head);
            out.extend_from_slice(&head);
            out.extend((0..e.bytes).map(|n| n as u8 | 1));
        }
        let header = WriteHeader {
            sequence: 77,
            generation: 70,
            first: 72,
            follows: 3,
            bytes: out.len() as u32,
            entries: list.len() as u32,
        };
        header.seal(&mut out);
        out
    }

    #[test]
    fn a_write_reads_back_what_was_put_in() {
        let list = [entry(0, 10, 100), entry(1, 500, 1), entry(0, 15, 3_000)];
        let mut bytes = write(&list);
        let header = WriteHeader::check(&bytes).unwrap();
        assert_eq!((header.sequence, header.generation, header.entries), (77, 70, 3));
        assert_eq!((header.first, header.follows), (72, 3));
        // Whatever stands behind it.
        bytes.extend_from_slice(&[7; 900]);
        assert_eq!(WriteHeader::check(&bytes), Some(header));
        bytes.truncate(header.bytes as usize);
        let found: Vec<_> = entries(&bytes).map(Option::unwrap).collect();
        assert_eq!(found.iter().map(|f| f.0).collect::<Vec<_>>(), list);
        for (e, at) in found {
            let batches = &bytes[at..at + e.bytes as usize];
            assert!(batches.iter().enumerate().all(|(n, b)| *b == n as u8 | 1));
        }
    }

    #[test]
    fn a_write_with_any_byte_changed_is_none() {
        let sound = write(&[entry(0, 10, 40), entry(1, 500, 7)]);
        for at in 0..sound.len() {
            let mut bytes = sound.clone();
            bytes[at] ^= 1;
            assert_eq!(WriteHeader::check(&bytes), None, "byte {at}");
        }
    }

    #[test]
    fn a_part_of_a_write_is_none() {
        let sound = write(&[entry(0, 10, 40), entry(1, 500, 7)]);
        for len in 0..sound.len() {
            assert_eq!(WriteHeader::check(&sound[..len]), None, "{len} bytes");
        }
    }

    #[test]
    fn a_length_that_no_write_has_is_refused_before_anything_is_read() {
        for bytes in [0, WRITE_HEADER_BYTES as u32 - 1, WRITE_BYTES_MAX as u32 + 1, u32::MAX] {
            let mut sound = write(&[entry(0, 10, 40)]);
            put(&mut sound, 40, &bytes.to_be_bytes());
            assert_eq!(WriteHeader::parse(&sound), None);
        }
    }

    #[test]
    fn sequences_that_no_write_of_its_file_can_have_are_refused() {
        let with = |sequence, generation, first| {
            let mut bytes = write(&[entry(0, 10, 40)]);
            let found = WriteHeader::parse(&bytes).unwrap();
            WriteHeader { sequence, generation, first, ..found }.seal(&mut bytes);
            WriteHeader::check(&bytes).map(|found| found.sequence)
        };
        assert_eq!(with(9, 5, 6), Some(9));
        assert_eq!(with(5 + SEQUENCES_AHEAD_MAX, 5, 6), Some(5 + SEQUENCES_AHEAD_MAX));
        for (sequence, generation, first) in [
            (5, 6, 6),
            (9, 5, 4),
            (9, 5, 10),
            (u64::MAX, 5, 6),
            (6 + SEQUENCES_AHEAD_MAX, 5, 6),
            (u64::MAX, u64::MAX, u64::MAX),
        ] {
            assert_eq!(with(sequence, generation, first), None, "{sequence} {generation} {first}");
        }
    }

    #[test]
    fn entries_that_reach_out_of_their_write_are_told() {
        let mut bytes = write(&[entry(0, 10, 40), entry(1, 500, 7)]);
        put(&mut bytes, WRITE_HEADER_BYTES + 20, &4_000_u32.to_be_bytes());
        let found: Vec<_> = entries(&bytes).collect();
        assert_eq!(found, [None]);
        put(&mut bytes, WRITE_HEADER_BYTES + 20, &u32::MAX.to_be_bytes());
        assert_eq!(entries(&bytes).collect::<Vec<_>>(), [None]);
    }

    #[test]
    fn a_file_header_with_any_byte_changed_is_damaged() {
        let sound = encode_file_header(123_456_789);
        assert_eq!(decode_file_header(&sound), Ok(123_456_789));
        for at in 0..sound.len() {
            let mut bytes = sound;
            bytes[at] ^= 1;
            assert_eq!(decode_file_header(&bytes), Err(HeaderFault::Damaged), "byte {at}");
            assert_eq!(decode_file_header(&sound[..at.max(1)]), Err(HeaderFault::Damaged), "{at} bytes");
        }
        assert_eq!(decode_file_header(&[0; 4_096]), Err(HeaderFault::Unused));
        assert_eq!(decode_file_header(&[]), Err(HeaderFault::Unused));
    }

    #[test]
    fn another_version_is_told_from_damage() {
        let mut bytes = encode_file_header(5);
        for version in [1, VERSION + 1] {
            put(&mut bytes, 4, &version.to_be_bytes());
            let crc = crc32c::crc32c(&bytes[..16]);
            put(&mut bytes, 16, &crc.to_be_bytes());
            assert_eq!(decode_file_header(&bytes), Err(HeaderFault::Version(version)));
        }
    }
}
