//! The bytes of the metadata log's files.
//!
//! Holds: frames, the scan that finds where a log ends, the snapshot's and the hard state's files.
//! Never touches: the files themselves.
//!
//! ```text
//! log       frame*                                     one frame per append: what is torn was never acknowledged
//! frame     magic:4  len:u32  crc:u32  body[len]       crc32c over len and body
//! body      first_index:u64  count:u32  (term:u64  len:u32  bytes)*
//! snapshot  magic:4  format:u32  crc:u32  index:u64  term:u64  bytes      crc32c over index, term and bytes
//! hard      magic:4  format:u32  crc:u32  term:u64  voted_for:i32  commit:u64
//! ```
//!
//! All numbers are big-endian.

use super::torn::is_torn;
use super::{Entry, HardState, SnapshotMeta};

/// What a frame starts with.
pub const FRAME_MAGIC: [u8; 4] = *b"CLMF";
const SNAPSHOT_MAGIC: [u8; 4] = *b"CLMS";
const HARD_STATE_MAGIC: [u8; 4] = *b"CLMH";
const FORMAT: u32 = 1;

/// Magic, length and checksum.
pub const FRAME_HEADER_BYTES: usize = 12;
const BODY_HEADER_BYTES: usize = 12;
const ENTRY_HEADER_BYTES: usize = 12;

/// The largest body of a frame: far above what a request can ask for, far below what a length can say.
pub const BODY_BYTES_MAX: usize = 128 << 20;

/// How many bytes these entries take as one frame's body.
pub fn body_bytes(entries: &[Entry]) -> usize {
    let each = entries.iter().map(|entry| ENTRY_HEADER_BYTES + entry.bytes.len());
    BODY_HEADER_BYTES + each.sum::<usize>()
}

/// Appends one frame with these entries. They are in order, without gaps, and at least one.
pub fn put_frame(out: &mut Vec<u8>, entries: &[Entry]) {
    let body_len = body_bytes(entries);
    assert!(body_len <= BODY_BYTES_MAX, "a frame of {body_len} bytes");
    let first = entries.first().map_or(0, |entry| entry.index);
    out.reserve(FRAME_HEADER_BYTES + body_len);
    out.extend_from_slice(&FRAME_MAGIC);
    let checked_from = out.len() + 8;
    out.extend_from_slice(&(body_len as u32).to_be_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&first.to_be_bytes());
    out.extend_from_slice(&(entries.len() as u32).to_be_bytes());
    for entry in entries {
        out.extend_from_slice(&entry.term.to_be_bytes());
        out.extend_from_slice(&(entry.bytes.len() as u32).to_be_bytes());
        out.extend_from_slice(&entry.bytes);
    }
    let crc = frame_crc(body_len as u32, out.get(checked_from..).unwrap_or_default());
    if let Some(place) = out.get_mut(checked_from - 4..checked_from) {
        place.copy_from_slice(&crc.to_be_bytes());
    }
}

/// A frame's checksum.
pub fn frame_crc(body_len: u32, body: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&body_len.to_be_bytes()), body)
}

/// What a scan of a log file found.
#[derive(Debug, PartialEq, Eq)]
pub enum Scan {
    /// Frames, and perhaps a torn one behind them.
    Ends {
        /// Their entries.
        entries: Vec<Entry>,
        /// Where the last whole frame ends: from here on, nothing was acknowledged.
        end: usize,
    },
    /// A frame that cannot be read, and one behind it that can.
    Damaged {
        /// Where.
        offset: usize,
        /// The index that belongs there.
        expected: u64,
        /// The first index that can be read again.
        found: u64,
    },
    /// The last frame cannot be read, and no interrupted append explains that.
    Rotten {
        /// Where.
        offset: usize,
        /// The index that belongs there.
        expected: u64,
    },
    /// A frame with the wrong index.
    OutOfOrder {
        /// Where.
        offset: usize,
        /// The index that belongs there.
        expected: u64,
        /// The index that is there.
        found: u64,
    },
}

/// Reads a log file whose first entry is to have the index `first`.
pub fn scan(bytes: &[u8], first: u64) -> Scan {
    let mut entries: Vec<Entry> = Vec::new();
    let mut at = 0;
    let mut expected = first;
    while let Some((frame, len)) = bytes.get(at..).and_then(read_frame) {
        let found = frame.first().map_or(0, |entry| entry.index);
        if found != expected {
            return Scan::OutOfOrder { offset: at, expected, found };
        }
        expected += frame.len() as u64;
        entries.extend(frame);
        at += len;
    }
    match readable_behind(bytes, at) {
        Some(found) => Scan::Damaged { offset: at, expected, found },
        None if is_torn(bytes, at) => Scan::Ends { entries, end: at },
        None => Scan::Rotten { offset: at, expected },
    }
}

/// The first index of the first frame that can be read behind `at`.
fn readable_behind(bytes: &[u8], at: usize) -> Option<u64> {
    let behind = bytes.get(at + 1..)?;
    let starts = behind.array_windows().enumerate().filter(|(_, window)| **window == FRAME_MAGIC);
    for (start, _) in starts {
        if let Some((frame, _)) = behind.get(start..).and_then(read_frame) {
            return frame.first().map(|entry| entry.index);
        }
    }
    None
}

/// The entries of the frame that `bytes` starts with, and its length; `None` when there is no valid one.
fn read_frame(bytes: &[u8]) -> Option<(Vec<Entry>, usize)> {
    let (magic, rest) = bytes.split_first_chunk::<4>()?;
    let (len, rest) = rest.split_first_chunk::<4>()?;
    let (crc, rest) = rest.split_first_chunk::<4>()?;
    let body_len = u32::from_be_bytes(*len);
    let body = rest.get(..usize::try_from(body_len).ok()?)?;
    if *magic != FRAME_MAGIC || frame_crc(body_len, body) != u32::from_be_bytes(*crc) {
        return None;
    }
    let entries = read_body(body)?;
    Some((entries, FRAME_HEADER_BYTES + body.len()))
}

fn read_body(body: &[u8]) -> Option<Vec<Entry>> {
    let (first, rest) = body.split_first_chunk::<8>()?;
    let (count, mut rest) = rest.split_first_chunk::<4>()?;
    let first = u64::from_be_bytes(*first);
    let count = u32::from_be_bytes(*count);
    let mut entries = Vec::new();
    for at in 0..u64::from(count) {
        let (term, behind) = rest.split_first_chunk::<8>()?;
        let (len, behind) = behind.split_first_chunk::<4>()?;
        let (bytes, behind) = behind.split_at_checked(u32::from_be_bytes(*len) as usize)?;
        rest = behind;
        entries.push(Entry { index: first.checked_add(at)?, term: u64::from_be_bytes(*term), bytes: bytes.to_vec() });
    }
    (rest.is_empty() && !entries.is_empty()).then_some(entries)
}

/// Why a snapshot's or the hard state's file cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub enum FileFault {
    /// Of a later version.
    UnknownFormat(u32),
    /// Damaged.
    Damaged(&'static str),
}

/// The bytes of a snapshot's file.
pub fn snapshot_file(meta: SnapshotMeta, bytes: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(16 + bytes.len());
    body.extend_from_slice(&meta.index.to_be_bytes());
    body.extend_from_slice(&meta.term.to_be_bytes());
    body.extend_from_slice(bytes);
    sealed(SNAPSHOT_MAGIC, &body)
}

/// Reads a snapshot's file.
pub fn read_snapshot_file(bytes: &[u8]) -> Result<(SnapshotMeta, &[u8]), FileFault> {
    let body = unsealed(SNAPSHOT_MAGIC, bytes)?;
    let parts = body.split_first_chunk::<8>().and_then(|(index, rest)| {
        let (term, rest) = rest.split_first_chunk::<8>()?;
        Some((SnapshotMeta { index: u64::from_be_bytes(*index), term: u64::from_be_bytes(*term) }, rest))
    });
    parts.ok_or(FileFault::Damaged("it is too short"))
}

/// The bytes of the hard state's file.
pub fn hard_state_file(state: HardState) -> Vec<u8> {
    let mut body = Vec::with_capacity(20);
    body.extend_from_slice(&state.term.to_be_bytes());
    body.extend_from_slice(&state.voted_for.to_be_bytes());
    body.extend_from_slice(&state.commit.to_be_bytes());
    sealed(HARD_STATE_MAGIC, &body)
}

/// Reads the hard state's file.
pub fn read_hard_state_file(bytes: &[u8]) -> Result<HardState, FileFault> {
    let body = unsealed(HARD_STATE_MAGIC, bytes)?;
    let parts = body.split_first_chunk::<8>().and_then(|(term, rest)| {
        let (voted_for, rest) = rest.split_first_chunk::<4>()?;
        let commit: &[u8; 8] = rest.try_into().ok()?;
        Some(HardState {
            term: u64::from_be_bytes(*term),
            voted_for: i32::from_be_bytes(*voted_for),
            commit: u64::from_be_bytes(*commit),
        })
    });
    parts.ok_or(FileFault::Damaged("it has the wrong length"))
}

fn sealed(magic: [u8; 4], body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(12 + body.len());
    out.extend_from_slice(&magic);
    out.extend_from_slice(&FORMAT.to_be_bytes());
    out.extend_from_slice(&crc32c::crc32c(body).to_be_bytes());
    out.extend_from_slice(body);
    out
}

fn unsealed(magic: [u8; 4], bytes: &[u8]) -> Result<&[u8], FileFault> {
    let too_short = FileFault::Damaged("it is too short");
    let header = bytes.split_first_chunk::<4>().and_then(|(found, rest)| {
        let (format, rest) = rest.split_first_chunk::<4>()?;
        let (crc, body) = rest.split_first_chunk::<4>()?;
        Some((*found, u32::from_be_bytes(*format), u32::from_be_bytes(*crc), body))
    });
    let Some((found, format, crc, body)) = header else {
        return Err(too_short);
    };
    if found != magic {
        return Err(FileFault::Damaged("it starts with the wrong bytes"));
    }
    if format != FORMAT {
        return Err(FileFault::UnknownFormat(format));
    }
    if crc32c::crc32c(body) != crc {
        return Err(FileFault::Damaged("its checksum is wrong"));
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(index: u64, len: usize) -> Entry {
        Entry { index, term: index / 3 + 1, bytes: vec![index as u8; len] }
    }

    /// Three frames with entries 1, 2-3 and 4, and where each frame starts.
    fn log() -> (Vec<u8>, Vec<Entry>, [usize; 4]) {
        let entries: Vec<Entry> = (1..=4).map(|i| entry(i, 10 * i as usize)).collect();
        let mut bytes = Vec::new();
        let mut starts = [0; 4];
        for (frame, range) in [0..1, 1..3, 3..4].into_iter().enumerate() {
            put_frame(&mut bytes, &entries[range]);
            starts[frame + 1] = bytes.len();
        }
        (bytes, entries, starts)
    }

    #[test]
    fn what_was_written_is_read_back() {
        let (bytes, entries, starts) = log();
        assert_eq!(scan(&bytes, 1), Scan::Ends { entries, end: starts[3] });
        assert_eq!(scan(&[], 7), Scan::Ends { entries: Vec::new(), end: 0 });
    }

    #[test]
    fn a_log_that_is_cut_anywhere_ends_before_the_torn_frame() {
        let (bytes, entries, starts) = log();
        let whole = |cut: usize| match cut {
            c if c < starts[1] => (0, starts[0]),
            c if c < starts[2] => (1, starts[1]),
            c if c < starts[3] => (3, starts[2]),
            _ => (4, starts[3]),
        };
        for cut in 0..=bytes.len() {
            let (count, end) = whole(cut);
            let expected = Scan::Ends { entries: entries[..count].to_vec(), end };
            assert_eq!(scan(&bytes[..cut], 1), expected, "cut at {cut}");
        }
    }

    #[test]
    fn a_flipped_bit_before_the_last_frame_is_damage_and_in_it_rot() {
        let (bytes, _, starts) = log();
        for at in 0..bytes.len() {
            let mut rotten = bytes.clone();
            rotten[at] ^= 0x10;
            let found = scan(&rotten, 1);
            let expected = if at < starts[1] {
                Scan::Damaged { offset: 0, expected: 1, found: 2 }
            } else if at < starts[2] {
                Scan::Damaged { offset: starts[1], expected: 2, found: 4 }
            } else {
                Scan::Rotten { offset: starts[2], expected: 4 }
            };
            assert_eq!(found, expected, "byte {at}");
        }
    }

    #[test]
    fn a_log_with_the_wrong_first_index_or_a_gap_is_out_of_order() {
        let (bytes, _, starts) = log();
        assert_eq!(scan(&bytes, 2), Scan::OutOfOrder { offset: 0, expected: 2, found: 1 });
        let mut gap = bytes[..starts[1]].to_vec();
        gap.extend_from_slice(&bytes[starts[2]..]);
        assert_eq!(scan(&gap, 1), Scan::OutOfOrder { offset: starts[1], expected: 2, found: 4 });
    }

    #[test]
    fn snapshot_and_hard_state_files_are_read_back_and_any_flipped_bit_is_noticed() {
        let meta = SnapshotMeta { index: 42, term: 7 };
        let file = snapshot_file(meta, b"state");
        assert_eq!(read_snapshot_file(&file), Ok((meta, b"state".as_slice())));
        let state = HardState { term: 9, voted_for: 1, commit: 40 };
        let hard = hard_state_file(state);
        assert_eq!(read_hard_state_file(&hard), Ok(state));
        for at in 0..file.len() {
            let mut rotten = file.clone();
            rotten[at] ^= 1;
            assert!(read_snapshot_file(&rotten).is_err(), "byte {at}");
        }
        for at in 0..hard.len() {
            let mut rotten = hard.clone();
            rotten[at] ^= 1;
            assert!(read_hard_state_file(&rotten).is_err(), "byte {at}");
            assert!(read_hard_state_file(&hard[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn a_file_of_a_later_format_is_named_as_such() {
        let mut file = snapshot_file(SnapshotMeta { index: 1, term: 1 }, b"");
        file[7] = 2;
        assert_eq!(read_snapshot_file(&file), Err(FileFault::UnknownFormat(2)));
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_break_the_scan(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = scan(&bytes, 1);
            let _ = read_snapshot_file(&bytes);
            let _ = read_hard_state_file(&bytes);
        }

        #[test]
        fn hostile_bodies_with_a_right_checksum_never_break_the_scan(body in prop::collection::vec(any::<u8>(), 0..100)) {
            let mut bytes = FRAME_MAGIC.to_vec();
            bytes.extend_from_slice(&(body.len() as u32).to_be_bytes());
            bytes.extend_from_slice(&frame_crc(body.len() as u32, &body).to_be_bytes());
            bytes.extend_from_slice(&body);
            let _ = scan(&bytes, 1);
        }
    }
}
