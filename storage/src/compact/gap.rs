//! Batches without records, for offsets that compaction has left out.
//!
//! Holds: how they are made. Never touches: where they are put.

use super::rewrite::write_header;
use crate::batch::{Attributes, BatchHeader, BuildError};
use crate::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};

/// Appends as many as it takes from `from` up to `to`.
///
/// # Errors
/// Never: headers fit.
pub fn fill_gap(from: Offset, to: Offset, leader_epoch: LeaderEpoch, out: &mut Vec<u8>) -> Result<(), BuildError> {
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
}
