//! A stamp in a record's value: who sent it, which one it is, when it was due, and a checksum over all of the value.
//!
//! Holds: its bytes. Never touches: what is done with it (end-to-end latency, verification).
//!
//! ```text
//!   0        4          8          16        24        28
//!   +--------+----------+----------+---------+---------+ - - -
//!   | "CLGB" | producer | sequence | due, ns | CRC-32C | rest of the value
//!   +--------+----------+----------+---------+---------+ - - -
//!            |<----------- and ----------->|           |<-- this: covered by the CRC
//! ```

/// Bytes at the front of a value.
pub const STAMP_BYTES: usize = 28;
const MAGIC: &[u8; 4] = b"CLGB";
const CRC_AT: usize = 24;

/// What a value says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Which connection of the generator sent it.
    pub producer: u32,
    /// Counts a producer's records of one partition, from 0.
    pub sequence: u64,
    /// When it was due to be sent, nanoseconds of the monotonic clock.
    pub at_ns: u64,
}

impl Stamp {
    /// Writes it over the first bytes of `value`; a value without room stays as it is.
    pub fn write(self, value: &mut [u8]) {
        let Some((head, rest)) = value.split_first_chunk_mut::<STAMP_BYTES>() else { return };
        head[..4].copy_from_slice(MAGIC);
        head[4..8].copy_from_slice(&self.producer.to_be_bytes());
        head[8..16].copy_from_slice(&self.sequence.to_be_bytes());
        head[16..CRC_AT].copy_from_slice(&self.at_ns.to_be_bytes());
        let crc = crc32c::crc32c_append(crc32c::crc32c(&head[..CRC_AT]), rest);
        head[CRC_AT..].copy_from_slice(&crc.to_be_bytes());
    }

    /// Reads it and checks the value; `None` for a value without a stamp or with a damaged one.
    pub fn read(value: &[u8]) -> Option<Self> {
        let (head, rest) = value.split_first_chunk::<STAMP_BYTES>()?;
        let crc = crc32c::crc32c_append(crc32c::crc32c(&head[..CRC_AT]), rest);
        (head.starts_with(MAGIC) && head[CRC_AT..] == crc.to_be_bytes()).then(|| Self {
            producer: u32::from_be_bytes([head[4], head[5], head[6], head[7]]),
            sequence: be64(&head[8..16]),
            at_ns: be64(&head[16..CRC_AT]),
        })
    }

    /// Only the time, unchecked: end-to-end runs count what arrives, `verify` checks it.
    #[inline]
    pub fn due_ns(value: &[u8]) -> Option<u64> {
        let head = value.first_chunk::<STAMP_BYTES>()?;
        head.starts_with(MAGIC).then(|| be64(&head[16..CRC_AT]))
    }
}

fn be64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_read_back_and_any_changed_byte_is_noticed() {
        let stamp = Stamp { producer: 7, sequence: 1 << 40, at_ns: u64::MAX - 3 };
        let mut value = vec![9; 100];
        stamp.write(&mut value);
        assert_eq!(Stamp::read(&value), Some(stamp));
        assert_eq!(Stamp::due_ns(&value), Some(stamp.at_ns));
        for at in 0..value.len() {
            value[at] ^= 1;
            assert_eq!(Stamp::read(&value), None, "byte {at} changed unnoticed");
            value[at] ^= 1;
        }
        assert_eq!(Stamp::read(&value[..STAMP_BYTES - 1]), None);
    }
}
