//! Topic ids and other identifiers of 16 bytes.
//!
//! Holds: the value and its text form. Never touches: how ids are chosen.

use std::fmt;
use std::str::FromStr;

/// A 128-bit identifier, written as Kafka writes it: URL-safe base64 without padding, 22 characters (KIP-516).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uuid(pub [u8; 16]);

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const TEXT_CHARS: usize = 22;

impl Uuid {
    /// The id that stands for "no id".
    pub const ZERO: Self = Self([0; 16]);

    /// Whether this is [`Uuid::ZERO`].
    pub fn is_zero(self) -> bool {
        self == Self::ZERO
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = u128::from_be_bytes(self.0);
        // 21 groups of six bits and one of two, which is padded with zero bits to the right.
        for group in 0..TEXT_CHARS as u32 {
            let index = match 122u32.checked_sub(6 * group) {
                Some(shift) => (bits >> shift) & 0x3f,
                None => (bits << 4) & 0x3f,
            };
            let letter = ALPHABET.get(index as usize).copied().unwrap_or(b'?');
            fmt::Write::write_char(f, char::from(letter))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Text that isn't an identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an id is 22 characters of URL-safe base64")]
pub struct ParseUuidError;

impl FromStr for Uuid {
    type Err = ParseUuidError;

    fn from_str(text: &str) -> Result<Self, ParseUuidError> {
        // Kafka also reads the padded form.
        let text = text.strip_suffix("==").unwrap_or(text).as_bytes();
        if text.len() != TEXT_CHARS {
            return Err(ParseUuidError);
        }
        let mut bits = 0u128;
        for (position, letter) in text.iter().enumerate() {
            let index = ALPHABET.iter().position(|l| l == letter).ok_or(ParseUuidError)? as u128;
            if position + 1 == TEXT_CHARS {
                bits = (bits << 2) | (index >> 4);
            } else {
                bits = (bits << 6) | index;
            }
        }
        Ok(Self(bits.to_be_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_form_is_kafkas_url_safe_base64() {
        assert_eq!(Uuid::ZERO.to_string(), "AAAAAAAAAAAAAAAAAAAAAA");
        // Kafka's own reserved id for the metadata topic: the number one.
        assert_eq!(Uuid(1u128.to_be_bytes()).to_string(), "AAAAAAAAAAAAAAAAAAAAAQ");
        assert_eq!(Uuid([0xff; 16]).to_string(), "_____________________w");
        assert_eq!(Uuid([0xfb; 16]).to_string(), "-_v7-_v7-_v7-_v7-_v7-w");
    }

    #[test]
    fn the_text_form_reads_back_and_anything_else_is_refused() {
        for seed in 0..200u128 {
            let id = Uuid((seed.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)).to_be_bytes());
            assert_eq!(id.to_string().parse(), Ok(id));
            assert_eq!(format!("{id}==").parse(), Ok(id));
        }
        for text in ["", "AAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAA+"] {
            assert_eq!(text.parse::<Uuid>(), Err(ParseUuidError));
        }
    }
}
