//! What the leader writes into a batch's header: place and, where the topic says so, time.
//!
//! Holds: changes to the 61 header bytes, which may be a copy: the records are not needed.
//! Never touches: the records.

use super::{Attributes, BatchHeader, HEADER_BYTES, TimestampType, field, header::put};
use crate::ids::{LeaderEpoch, Offset, Timestamp};

const _: () = assert!(field::ATTRIBUTES < HEADER_BYTES);

/// Writes base offset and leader epoch. The CRC covers neither, so it stays.
#[inline]
pub fn stamp_place(header: &mut [u8; HEADER_BYTES], base_offset: Offset, leader_epoch: LeaderEpoch) {
    put(header, field::BASE_OFFSET, base_offset.0.to_be_bytes());
    put(header, field::LEADER_EPOCH, leader_epoch.0.to_be_bytes());
}

/// Writes timestamp type and max timestamp, and the CRC that follows from them. Returns whether anything changed.
///
/// `parsed` must be the header that `header` decodes to, with a CRC that has been verified: the new CRC is computed from the old
/// one and the changed header bytes alone, whatever the size of the batch. CRCs are linear: for messages that end in the same
/// `n` bytes, the difference of the CRCs is the difference of the CRCs of the beginnings, shifted by `n` zero bytes.
pub fn stamp_time(
    header: &mut [u8; HEADER_BYTES],
    parsed: &mut BatchHeader,
    kind: TimestampType,
    max_timestamp: Timestamp,
) -> bool {
    if parsed.attributes.timestamp_type() == kind && parsed.max_timestamp == max_timestamp {
        return false;
    }
    let before = header_crc(header);
    let attributes: Attributes = parsed.attributes.known().with_timestamp_type(kind);
    put(header, field::ATTRIBUTES, attributes.0.to_be_bytes());
    put(header, field::MAX_TIMESTAMP, max_timestamp.0.to_be_bytes());
    let after = header_crc(header);
    let records_bytes = parsed.total_bytes() - HEADER_BYTES;
    let crc = crc32c::crc32c_combine(before ^ after, parsed.crc, records_bytes);
    put(header, field::CRC, crc.to_be_bytes());
    parsed.attributes = attributes;
    parsed.max_timestamp = max_timestamp;
    parsed.crc = crc;
    true
}

fn header_crc(header: &[u8; HEADER_BYTES]) -> u32 {
    crc32c::crc32c(header.get(field::ATTRIBUTES..).unwrap_or_default())
}
