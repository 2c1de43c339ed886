//! Torn or rotten: what the bytes behind the last whole frame are.
//!
//! Holds: the judgement over what one interrupted append can have left. Never touches: files, the frames before it.
//!
//! One append is under way at a time, at the end of the file. A power cut leaves each 512-byte sector of it old (zeroes, or
//! behind the file's end) or new, and the file's length anything between the old one and the new one. So a frame that a
//! crash tore lacks its end, or shows a sector that holds nothing of it. One that does neither was whole once.
//!
//! What this cannot tell apart: a frame damaged in one place that by nature has nothing but zeroes in one sector.

use super::frame::{BODY_BYTES_MAX, FRAME_HEADER_BYTES, FRAME_MAGIC, frame_crc};

/// What a disk writes whole or not at all.
const SECTOR_BYTES: usize = 512;

/// Whether an append that was interrupted explains what stands from byte `at` of a log file on, which is no frame and has
/// none behind it.
pub fn is_torn(file: &[u8], at: usize) -> bool {
    let tail = file.get(at..).unwrap_or_default();
    let to_boundary = SECTOR_BYTES - at % SECTOR_BYTES;
    let (first, behind) = tail.split_at_checked(to_boundary).unwrap_or((tail, &[]));
    if is_old(first) {
        return true;
    }
    // The first sector is new, so a frame starts here, unless its first bytes have changed since.
    if first.iter().zip(&FRAME_MAGIC).any(|(found, expected)| found != expected) || is_whole_but_for_its_length(tail) {
        return false;
    }
    behind.chunks(SECTOR_BYTES).any(is_old) || lacks_its_end(tail)
}

fn is_old(sector: &[u8]) -> bool {
    sector.iter().all(|byte| *byte == 0)
}

/// Whether these bytes would be a frame if its length said that it ends where they end.
fn is_whole_but_for_its_length(tail: &[u8]) -> bool {
    let Some(([_, _, crc], body)) = header(tail) else {
        return false;
    };
    u32::try_from(body.len()).is_ok_and(|len| frame_crc(len, body) == crc)
}

/// Whether the frame that starts here goes on behind the end of the file.
fn lacks_its_end(tail: &[u8]) -> bool {
    header(tail).is_none_or(|([_, len, _], body)| (body.len() + 1..=BODY_BYTES_MAX).contains(&(len as usize)))
}

/// The three words of a frame's header, and what follows.
fn header(tail: &[u8]) -> Option<([u32; 3], &[u8])> {
    let (header, body) = tail.split_first_chunk::<FRAME_HEADER_BYTES>()?;
    let (words, _) = header.as_chunks::<4>();
    let words: &[[u8; 4]; 3] = words.try_into().ok()?;
    Some((words.map(u32::from_be_bytes), body))
}

#[cfg(test)]
mod tests {
    use super::super::Entry;
    use super::super::frame::{Scan, put_frame, scan};
    use super::*;

    /// A log whose last frame starts at `at` and has a body of about `len` bytes, none of them zero for long.
    fn log(at: usize, len: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        // A frame with one entry has 36 bytes beside what the entry says.
        put_frame(&mut bytes, &[Entry { index: 1, term: 1, bytes: vec![1; at - 36] }]);
        assert_eq!(bytes.len(), at);
        put_frame(&mut bytes, &[Entry { index: 2, term: 1, bytes: vec![0xA7; len] }]);
        bytes
    }

    /// Where the last frame starts, and how much it says: within a sector, across one boundary (also in its header), long.
    const SHAPES: [(usize, usize); 8] =
        [(100, 60), (480, 100), (500, 100), (509, 10), (511, 700), (512, 476), (1030, 3000), (512, 5000)];

    #[test]
    fn sectors_of_the_last_frame_that_are_old_are_a_torn_end() {
        for (at, len) in SHAPES {
            let whole = log(at, len);
            let bounds: Vec<usize> = (at / SECTOR_BYTES..=(whole.len() - 1) / SECTOR_BYTES).collect();
            for lost in 1_u32..1 << bounds.len().min(8) {
                let mut torn = whole.clone();
                for (_, sector) in bounds.iter().enumerate().filter(|(nth, _)| lost >> nth & 1 == 1) {
                    let (from, to) = ((sector * SECTOR_BYTES).max(at), ((sector + 1) * SECTOR_BYTES).min(torn.len()));
                    torn[from..to].fill(0);
                }
                assert!(matches!(scan(&torn, 1), Scan::Ends { end, .. } if end == at), "{at} {len} {lost:b}");
            }
        }
    }

    #[test]
    fn a_last_frame_without_its_end_is_torn() {
        for (at, len) in SHAPES {
            let whole = log(at, len);
            for cut in at..whole.len() {
                assert!(matches!(scan(&whole[..cut], 1), Scan::Ends { end, .. } if end == at), "{at} {len} {cut}");
            }
        }
    }

    #[test]
    fn a_flipped_bit_anywhere_in_the_last_frame_is_rot() {
        for (at, len) in SHAPES {
            let whole = log(at, len);
            for bit in at * 8..whole.len() * 8 {
                let mut rotten = whole.clone();
                rotten[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(scan(&rotten, 1), Scan::Rotten { offset: at, expected: 2 }, "{at} {len} bit {bit}");
            }
        }
    }
}
