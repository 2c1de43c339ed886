//! Batches without records, for offsets that compaction has left out.
//!
//! Holds: how they are made. Never touches: where they are put.

use super::rewrite::write_header;
use crate::batch::{Attributes, BatchHeader, BuildError};
use crate::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};

/// Offsets that compaction may have left out between two batches: 2048 batches without records. A peer or a folder that
/// claims more than these is not believed.
const GAP_OFFSETS_MAX: u64 = 2048 << 31;

/// Why a gap is not filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GapError {
    /// No sound log lacks so many offsets in one place.
    #[error("{offsets} offsets are missing from {from} on: no compaction leaves out so many")]
    TooWide {
        /// The first one.
        from: Offset,
        /// How many.
        offsets: u64,
    },
    /// A header could not be made.
    #[error(transparent)]
    Build(#[from] BuildError),
}

/// Appends as many as it takes from `from` up to `to`.
///
/// # Errors
/// When that is further than the compaction of a sound log leaves out; `out` is as it was then.
pub fn fill_gap(from: Offset, to: Offset, leader_epoch: LeaderEpoch, out: &mut Vec<u8>) -> Result<(), GapError> {
    let offsets = u64::try_from(to.0.saturating_sub(from.0)).unwrap_or(0);
    if offsets > GAP_OFFSETS_MAX {
        return Err(GapError::TooWide { from, offsets });
    }
    let mut at = from;
    while at < to {
        let last_offset_delta = i32::try_from(to.0 - at.0 - 1).unwrap_or(i32::MAX);
        let header = BatchHeader {
            base_offset: at,
            length: 0,
            leader_epoch,
            crc: 0,
            attributes: Attributes(0),
            last_offset_delta,
            base_timestamp: Timestamp::NONE,
            max_timestamp: Timestamp::NONE,
            producer_id: ProducerId::NONE,
            producer_epoch: ProducerEpoch::NONE,
            base_sequence: Sequence::NONE,
            record_count: 0,
        };
        write_header(header, out)?;
        at = Offset(at.0 + i64::from(last_offset_delta) + 1);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Batches;

    #[test]
    fn more_offsets_than_one_batch_can_have_get_two() {
        let (from, to) = (Offset(5), Offset(5 + (1 << 31) + 10));
        let mut bytes = Vec::new();
        fill_gap(from, to, LeaderEpoch(3), &mut bytes).unwrap();
        let headers: Vec<_> = Batches::new(&bytes).map(|batch| batch.unwrap().header).collect();
        assert_eq!(headers.len(), 2);
        assert_eq!(headers[0].base_offset, from);
        assert_eq!(headers[0].last_offset().map(Offset::next), Some(headers[1].base_offset));
        assert_eq!(headers[1].last_offset().map(Offset::next), Some(to));
    }

    #[test]
    fn a_gap_that_no_compaction_leaves_is_refused_before_anything_is_made() {
        let mut bytes = Vec::new();
        for to in [i64::MAX, (2048 << 31) + 6] {
            let refused = fill_gap(Offset(5), Offset(to), LeaderEpoch(3), &mut bytes).unwrap_err();
            assert!(matches!(refused, GapError::TooWide { .. }), "{refused}");
            assert!(bytes.is_empty());
        }
        fill_gap(Offset(5), Offset((2048 << 31) + 5), LeaderEpoch(3), &mut bytes).unwrap();
        assert_eq!(Batches::new(&bytes).count(), 2048);
    }
}
