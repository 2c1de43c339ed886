//! Torn or rotten: what the bytes behind the last sound batch are.
//!
//! Holds: the judgement over the bytes that one interrupted write can have left. Never touches: files.
//!
//! What a crash can leave: at most one write was in flight, of at most `COMMIT_BYTES_MAX`, over space that held zeroes;
//! each of its 512-byte sectors is old (zeroes) or new. Several batches travel in one write, so a torn batch may well
//! have a sound one behind it. Everything before the write was on stable storage.
//!
//! Hence a bad batch with a sound one behind it is
//! - TORN if the crash explains it: a sector of it is still all zeroes, and the sound batch lies within the reach of the
//!   one write;
//! - ROTTEN otherwise: the bytes were whole once, and are no longer.
//!
//! Without a sound batch behind it, it is torn: nothing behind it was ever acknowledged.

use crate::batch::{BatchHeader, BatchView, HEADER_BYTES};
use crate::ids::{LeaderEpoch, Offset};

/// What a disk writes whole or not at all.
pub const SECTOR_BYTES: u64 = 512;

/// What stands behind the last sound batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Zeroes only.
    Clean,
    /// The remains of a write that a crash interrupted; they end before `garbage_end` (a position in the segment).
    Torn {
        /// Behind the last byte that is not zero.
        garbage_end: u64,
    },
    /// Acknowledged bytes have changed.
    Rotten {
        /// The sound batch that proves it: its position, if there is one.
        sound_at: Option<u64>,
    },
}

/// Judges `bytes`, which start at `position` of the segment, where the batch with base offset `expected` should stand,
/// after batches of `epoch`. `bytes` reach as far as one interrupted write can have reached, or to the segment's end.
#[must_use]
pub fn judge(bytes: &[u8], position: u64, expected: Offset, epoch: LeaderEpoch) -> Verdict {
    let Some(last) = bytes.iter().rposition(|b| *b != 0) else {
        return Verdict::Clean;
    };
    let garbage_end = position + last as u64 + 1;
    match find_sound(bytes, expected, epoch) {
        None => Verdict::Torn { garbage_end },
        Some(sound) if has_old_sector(bytes, sound, position) => Verdict::Torn { garbage_end },
        Some(sound) => Verdict::Rotten { sound_at: Some(position + sound as u64) },
    }
}

/// Where a sound batch behind the bad one starts.
///
/// A batch's payload may hold whole batches (a mirrored segment, say), which prove nothing. So where the bad batch still
/// has its header, the search starts behind it; nearer, since the length itself may have rotted, only the batch with
/// exactly the next offset counts. Where the header is gone, everything counts.
fn find_sound(bytes: &[u8], expected: Offset, epoch: LeaderEpoch) -> Option<usize> {
    let header = BatchHeader::parse(bytes).ok().filter(|h| h.base_offset == expected && h.last_offset_delta >= 0);
    let search = |from: usize, next: Option<Offset>| {
        let last_start = bytes.len().checked_sub(HEADER_BYTES)?;
        (from..=last_start).find(|at| {
            let rest = bytes.get(*at..).unwrap_or_default();
            is_sound(rest, expected, epoch, next)
        })
    };
    match header {
        Some(header) => {
            search(header.total_bytes(), None).or_else(|| search(1, header.last_offset().map(Offset::next)))
        }
        None => search(1, None),
    }
}

fn is_sound(bytes: &[u8], expected: Offset, epoch: LeaderEpoch, next: Option<Offset>) -> bool {
    let Ok(view) = BatchView::first(bytes) else {
        return false;
    };
    let header = &view.header;
    // A batch holds at most 2^31 offsets, and one write a few thousand batches: what claims to be further on is payload.
    let ahead = header.base_offset.distance_from(expected);
    (1..=i64::from(i32::MAX)).contains(&ahead)
        && next.is_none_or(|next| header.base_offset == next)
        && header.leader_epoch >= epoch
        && header.last_offset_delta >= 0
        && view.crc_ok()
}

/// Whether a sector that holds some of the first `len` bytes still shows what was there before the write: zeroes only.
/// `bytes` start at `position` of the segment. The sector in which the sound batch starts counts as well: the first bytes of
/// a batch are zeroes while its offset is small.
fn has_old_sector(bytes: &[u8], len: usize, position: u64) -> bool {
    let end = position + len as u64;
    let mut start = position;
    while start < end {
        let sector_end = (start / SECTOR_BYTES + 1) * SECTOR_BYTES;
        let from = (start - position) as usize;
        let to = usize::try_from(sector_end - position).map_or(bytes.len(), |to| to.min(bytes.len()));
        if bytes.get(from..to).is_some_and(|s| s.iter().all(|b| *b == 0)) {
            return true;
        }
        start = sector_end;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::field;
    use crate::segment::sample::{batch, batch_of};

    const EPOCH: LeaderEpoch = LeaderEpoch(3);

    fn verdict(bytes: &[u8], position: u64) -> Verdict {
        judge(bytes, position, Offset(10), EPOCH)
    }

    #[test]
    fn zeroes_are_clean_space() {
        assert_eq!(verdict(&[0; 9_000], 700), Verdict::Clean);
        assert_eq!(verdict(&[], 700), Verdict::Clean);
    }

    #[test]
    fn a_bad_batch_with_nothing_sound_behind_it_is_torn() {
        let mut bytes = batch(10, 1, 3, 2_000);
        bytes[1_000] ^= 1;
        let garbage_end = 300 + bytes.len() as u64;
        bytes.extend_from_slice(&[0; 4_096]);
        assert_eq!(verdict(&bytes, 300), Verdict::Torn { garbage_end });
    }

    #[test]
    fn a_changed_byte_before_a_sound_batch_is_rot() {
        let mut bytes = batch(10, 1, 3, 2_000);
        let first = bytes.len();
        bytes[1_000] ^= 1;
        bytes.extend_from_slice(&batch(11, 1, 3, 100));
        let sound_at = Some(300 + first as u64);
        assert_eq!(verdict(&bytes, 300), Verdict::Rotten { sound_at });
        // Also when the header itself is hit, so that the next batch has to be searched for.
        bytes[9] ^= 0x55;
        bytes[16] = 9;
        assert_eq!(verdict(&bytes, 300), Verdict::Rotten { sound_at });
    }

    #[test]
    fn a_sector_that_was_never_written_before_a_sound_batch_is_torn() {
        let mut bytes = batch(10, 1, 3, 2_000);
        // Position 300: the batch's share of the third sector is bytes 724..1236 of it.
        bytes[724..1_236].fill(0);
        bytes.extend_from_slice(&batch(11, 1, 3, 100));
        let garbage_end = 300 + bytes.len() as u64;
        assert_eq!(verdict(&bytes, 300), Verdict::Torn { garbage_end });
        // One byte short of the sector: no crash leaves that.
        bytes[724] = 1;
        assert!(matches!(verdict(&bytes, 300), Verdict::Rotten { .. }));
    }

    #[test]
    fn a_first_sector_that_was_never_written_is_torn_too() {
        let mut bytes = batch(10, 1, 3, 2_000);
        bytes[..212].fill(0);
        bytes.extend_from_slice(&batch(11, 1, 3, 100));
        assert!(matches!(verdict(&bytes, 300), Verdict::Torn { .. }));
    }

    #[test]
    fn zeroes_in_a_sector_that_was_written_explain_nothing() {
        let mut bytes = batch(10, 1, 3, 1_000);
        let first = bytes.len();
        let sector_start = (first as u64 / SECTOR_BYTES * SECTOR_BYTES) as usize;
        bytes[sector_start..].fill(0);
        bytes.extend_from_slice(&batch(11, 1, 3, 100));
        assert!(matches!(verdict(&bytes, 0), Verdict::Rotten { .. }));
    }

    #[test]
    fn a_sector_that_holds_only_the_zeroes_at_the_front_of_the_sound_batch_may_be_old() {
        // The sound batch starts four bytes before a sector's end; the upper half of its base offset is zero.
        let mut bytes = batch(10, 1, 3, 1_020 - 61);
        assert_eq!(bytes.len(), 1_020);
        bytes[512..].fill(0);
        bytes.extend_from_slice(&batch(11, 1, 3, 100));
        assert!(matches!(verdict(&bytes, 0), Verdict::Torn { .. }));
    }

    #[test]
    fn a_batch_within_the_payload_of_a_torn_one_proves_nothing() {
        let inner = batch(500, 1, 3, 100);
        let mut bytes = batch_of(10, 1, 3, &[inner, vec![7; 3_000]].concat(), |_| ());
        bytes[1_024..1_536].fill(0);
        assert!(matches!(verdict(&bytes, 0), Verdict::Torn { .. }));
    }

    #[test]
    fn a_rotten_length_does_not_hide_the_next_batch() {
        let mut bytes = batch(10, 1, 3, 1_000);
        bytes[field::LENGTH + 1] = 0x10;
        let sound_at = Some(bytes.len() as u64);
        bytes.extend_from_slice(&batch(11, 1, 3, 100));
        assert_eq!(verdict(&bytes, 0), Verdict::Rotten { sound_at });
    }

    #[test]
    fn batches_of_another_place_prove_nothing() {
        for other in [batch(10, 1, 3, 100), batch(9, 1, 3, 100), batch(11, 1, 2, 100)] {
            let mut bytes = batch(10, 1, 3, 600);
            bytes[500] ^= 1;
            bytes.extend_from_slice(&other);
            assert!(matches!(verdict(&bytes, 0), Verdict::Torn { .. }));
        }
    }
}
