//! Sound batches for unit tests. Their records are opaque bytes: the log never looks into them.

use crate::batch::{Attributes, BatchHeader, HEADER_BYTES, LENGTH_PREFIX_BYTES, crc_of, field};
use crate::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};

/// A batch of `count` records with `payload` bytes behind its header.
pub(crate) fn batch(base: i64, count: i32, epoch: i32, payload: usize) -> Vec<u8> {
    let payload: Vec<u8> = (0..payload).map(|i| (i as u8).wrapping_mul(31) | 1).collect();
    batch_of(base, count, epoch, &payload, |_| ())
}

/// A batch with these payload bytes and a header changed by `change`; its CRC is right.
pub(crate) fn batch_of(
    base: i64,
    count: i32,
    epoch: i32,
    payload: &[u8],
    change: impl FnOnce(&mut BatchHeader),
) -> Vec<u8> {
    let mut header = BatchHeader {
        base_offset: Offset(base),
        length: (HEADER_BYTES - LENGTH_PREFIX_BYTES + payload.len()) as i32,
        leader_epoch: LeaderEpoch(epoch),
        crc: 0,
        attributes: Attributes(0),
        last_offset_delta: count - 1,
        base_timestamp: Timestamp(1_000 + base),
        max_timestamp: Timestamp(1_000 + base),
        producer_id: ProducerId::NONE,
        producer_epoch: ProducerEpoch::NONE,
        base_sequence: Sequence::NONE,
        record_count: count,
    };
    change(&mut header);
    let mut bytes = header.encode().to_vec();
    bytes.extend_from_slice(payload);
    let crc = crc_of(&bytes).to_be_bytes();
    bytes[field::CRC..field::CRC + 4].copy_from_slice(&crc);
    bytes
}
