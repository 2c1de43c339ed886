//! Zig-zag variable-length numbers, as records use them (protocol buffers' `sint32` and `sint64`).
//!
//! Holds: encoding, decoding from a slice, decoding byte by byte.
//! Never touches: records.
//!
//! Like Kafka, a number may be written longer than needed, and bits past its width are dropped; a continuation bit in the last
//! byte that the width allows (5th or 10th) is an error.

/// Bytes of the longest 32-bit number.
pub const VARINT_BYTES_MAX: usize = 5;
/// Bytes of the longest 64-bit number.
pub const VARLONG_BYTES_MAX: usize = 10;

/// Why bytes are no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VarintError {
    /// The bytes end within the number.
    Truncated,
    /// The number goes on past its width.
    TooLong,
}

/// How wide a number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// 32 bits.
    Int,
    /// 64 bits.
    Long,
}

impl Width {
    const fn bytes_max(self) -> u8 {
        match self {
            Self::Int => VARINT_BYTES_MAX as u8,
            Self::Long => VARLONG_BYTES_MAX as u8,
        }
    }
}

/// A number of which some bytes have been seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Partial {
    raw: u64,
    bytes: u8,
}

impl Partial {
    /// Whether no byte has been seen.
    pub const fn is_empty(self) -> bool {
        self.bytes == 0
    }

    /// Takes bytes from `input` until the number is whole.
    ///
    /// Returns the bytes taken and, when whole, the number (32-bit ones sign-extended); the state is then empty again.
    #[inline]
    pub fn take(&mut self, input: &[u8], width: Width) -> Result<(usize, Option<i64>), VarintError> {
        // Nearly every number in a record is one byte long.
        if self.bytes == 0
            && let Some(&byte) = input.first()
            && byte < 0x80
        {
            return Ok((1, Some(unzigzag(u64::from(byte)))));
        }
        self.take_slowly(input, width)
    }

    fn take_slowly(&mut self, input: &[u8], width: Width) -> Result<(usize, Option<i64>), VarintError> {
        for (at, &byte) in input.iter().enumerate() {
            self.raw |= u64::from(byte & 0x7f).wrapping_shl(u32::from(self.bytes) * 7);
            self.bytes += 1;
            if byte < 0x80 {
                let raw = match width {
                    Width::Int => self.raw & 0xffff_ffff,
                    Width::Long => self.raw,
                };
                *self = Self::default();
                return Ok((at + 1, Some(unzigzag(raw))));
            }
            if self.bytes == width.bytes_max() {
                return Err(VarintError::TooLong);
            }
        }
        Ok((input.len(), None))
    }
}

/// The 32-bit number that `input` starts with, and its length in bytes.
#[inline]
pub fn read_int(input: &[u8]) -> Result<(i32, usize), VarintError> {
    // The low 32 bits went through the zig-zag, so the cast keeps the value.
    read(input, Width::Int).map(|(value, bytes)| (value as i32, bytes))
}

/// The 64-bit number that `input` starts with, and its length in bytes.
#[inline]
pub fn read_long(input: &[u8]) -> Result<(i64, usize), VarintError> {
    read(input, Width::Long)
}

#[inline]
fn read(input: &[u8], width: Width) -> Result<(i64, usize), VarintError> {
    match Partial::default().take(input, width)? {
        (bytes, Some(value)) => Ok((value, bytes)),
        (_, None) => Err(VarintError::Truncated),
    }
}

/// Appends a 32-bit number.
#[inline]
pub fn write_int(out: &mut Vec<u8>, value: i32) {
    write_raw(out, u64::from(zigzag_int(value)));
}

/// Appends a 64-bit number.
#[inline]
pub fn write_long(out: &mut Vec<u8>, value: i64) {
    write_raw(out, zigzag(value));
}

/// Bytes that a 32-bit number takes.
#[inline]
pub const fn int_bytes(value: i32) -> usize {
    raw_bytes(zigzag_int(value) as u64)
}

/// Bytes that a 64-bit number takes.
#[inline]
pub const fn long_bytes(value: i64) -> usize {
    raw_bytes(zigzag(value))
}

fn write_raw(out: &mut Vec<u8>, mut raw: u64) {
    while raw >= 0x80 {
        out.push((raw as u8) | 0x80);
        raw >>= 7;
    }
    out.push(raw as u8);
}

const fn raw_bytes(raw: u64) -> usize {
    (64 - (raw | 1).leading_zeros() as usize).div_ceil(7)
}

const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

const fn zigzag_int(value: i32) -> u32 {
    ((value << 1) ^ (value >> 31)) as u32
}

const fn unzigzag(raw: u64) -> i64 {
    (raw >> 1) as i64 ^ -((raw & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_number_that_goes_on_past_its_width_is_refused() {
        assert_eq!(read_int(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x00]), Err(VarintError::TooLong));
        assert_eq!(read_long(&[0xff; 11]), Err(VarintError::TooLong));
        assert_eq!(read_int(&[0x80]), Err(VarintError::Truncated));
    }

    #[test]
    fn known_encodings_are_those_of_protocol_buffers() {
        for (value, bytes) in
            [(0, &[0_u8][..]), (-1, &[1]), (1, &[2]), (63, &[126]), (-64, &[127]), (64, &[0x80, 1]), (300, &[0xd8, 4])]
        {
            let mut out = Vec::new();
            write_int(&mut out, value);
            assert_eq!(out, bytes, "{value}");
        }
    }

    proptest! {
        #[test]
        fn numbers_survive_encoding(int: i32, long: i64, cut in 0_usize..15) {
            let mut out = Vec::new();
            write_int(&mut out, int);
            prop_assert_eq!(out.len(), int_bytes(int));
            prop_assert_eq!(read_int(&out), Ok((int, out.len())));
            out.clear();
            write_long(&mut out, long);
            prop_assert_eq!(out.len(), long_bytes(long));
            prop_assert_eq!(read_long(&out), Ok((long, out.len())));

            let (head, tail) = out.split_at(cut.min(out.len() - 1));
            let mut partial = Partial::default();
            prop_assert_eq!(partial.take(head, Width::Long), Ok((head.len(), None)));
            prop_assert_eq!(partial.take(tail, Width::Long), Ok((tail.len(), Some(long))));
        }
    }
}
