//! The record batches of a partition, on their way out or in.
//!
//! Holds: how they appear in a message: absent, in the frame, or left out of it. Never touches: what is in a batch.

use super::value::{Nullable, Wire};
use super::{DecodeError, Decoder, Encoder, FieldType};

/// Record batches of one partition in a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Records<'a> {
    /// No field value at all. Kafka's clients take it for empty.
    #[default]
    Null,
    /// The bytes, copied into the frame; also what decoding yields.
    Inline(&'a [u8]),
    /// Bytes that are sent from where they lie: only their length enters the head, followed by a [`super::Hole`].
    External {
        /// Bytes of payload.
        len: usize,
    },
}

impl<'a> Wire<'a> for Records<'a> {
    const TYPE: &'static FieldType = <Option<&'a [u8]> as Wire<'a>>::TYPE;

    #[inline]
    fn decode(d: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        Ok(match <&'a [u8]>::decode_nullable(d)? {
            None => Self::Null,
            Some(bytes) => Self::Inline(bytes),
        })
    }

    #[inline]
    fn encode(&self, e: &mut Encoder) {
        match *self {
            Self::Null => e.long_len(None),
            Self::Inline(bytes) => <&[u8]>::encode_nullable(Some(&bytes), e),
            Self::External { len } => {
                e.long_len(Some(len));
                e.hole(len);
            }
        }
    }

    #[inline]
    fn min_size(version: i16, flexible: bool) -> usize {
        <&'a [u8]>::min_size_nullable(version, flexible)
    }
}
