//! Reading wire values out of a frame.
//!
//! Holds: the cursor, its heap budget, and the primitive readers with their checks.
//! Never touches: message layouts (see [`super::message`]), sockets.

use std::ops::Range;

/// Heap that decoding one message may take unless the caller says otherwise.
///
/// A frame may be 100 MiB (`socket.request.max.bytes`), and an array element of one byte on the wire becomes tens of bytes
/// in memory; this bounds the product, not the parts.
pub const HEAP_BYTES_MAX_DEFAULT: usize = 16 << 20;

/// Longest string Kafka accepts, in bytes, whatever the encoding of its length (KIP-482 keeps the limit of the old one).
pub(super) const STRING_BYTES_MAX: usize = i16::MAX as usize;

/// Why bytes could not be read as the message they claim to be: always the peer's mistake.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}, byte {offset}: {kind}")]
pub struct DecodeError {
    /// The field being read, as `Struct.field`.
    pub field: &'static str,
    /// Where in the message the reader stood.
    pub offset: usize,
    /// What was wrong.
    pub kind: DecodeErrorKind,
}

/// What was wrong with the bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeErrorKind {
    /// The message ends inside a value.
    #[error("{needed} bytes needed, {left} left")]
    Truncated {
        /// Bytes the value takes.
        needed: usize,
        /// Bytes there are.
        left: usize,
    },
    /// A length below zero that doesn't mean null.
    #[error("length {length} is negative")]
    NegativeLength {
        /// The length read.
        length: i64,
    },
    /// An array claims more elements than the remaining bytes can hold.
    #[error("{claimed} elements claimed, {left} bytes left")]
    ArrayBeyondEnd {
        /// Elements claimed.
        claimed: usize,
        /// Bytes there are.
        left: usize,
    },
    /// Null in a field, or a version of it, that cannot be null.
    #[error("null is not allowed in version {version}")]
    Null {
        /// Version of the message.
        version: i16,
    },
    /// A variable-length integer of more than 32 bits.
    #[error("variable-length integer is longer than 32 bits")]
    Varint,
    /// A string that isn't UTF-8.
    #[error("string is not UTF-8")]
    Utf8,
    /// A string above Kafka's limit of 32,767 bytes.
    #[error("string of {length} bytes is longer than 32767")]
    StringTooLong {
        /// Bytes claimed.
        length: usize,
    },
    /// Decoding would take more heap than allowed.
    #[error("{wanted} bytes of heap wanted, {left} left of the message's budget")]
    HeapBudget {
        /// Bytes the next array would take.
        wanted: usize,
        /// Bytes left in the budget.
        left: usize,
    },
    /// A tagged field whose value doesn't fill the size it was given.
    #[error("tagged field ends {left} bytes before its size")]
    TaggedFieldSize {
        /// Bytes left unread.
        left: usize,
    },
    /// A tagged field that this version of the message doesn't have.
    #[error("tag {tag} is not valid in version {version}")]
    TagVersion {
        /// The tag.
        tag: u32,
        /// Version of the message.
        version: i16,
    },
    /// The caller asked for a version outside the table of [`super::ApiKey::versions`].
    #[error("version {version} is not supported")]
    UnsupportedVersion {
        /// Version of the message.
        version: i16,
    },
    /// Bytes behind the end of the message, where the caller wants none.
    #[error("{left} bytes behind the end of the message")]
    Trailing {
        /// Bytes left unread.
        left: usize,
    },
}

/// A cursor over one message, with the version it is read in and the heap it may still take.
#[derive(Debug, Clone)]
pub struct Decoder<'a> {
    rest: &'a [u8],
    // Bytes of the message behind the end of `rest`: not zero only inside a tagged field.
    behind: usize,
    bytes_total: usize,
    version: i16,
    flexible: bool,
    heap_bytes_left: usize,
    field: &'static str,
}

impl<'a> Decoder<'a> {
    /// Starts reading `bytes` as a message of `version`; `flexible` selects KIP-482's compact encoding with tagged fields.
    pub fn new(bytes: &'a [u8], version: i16, flexible: bool) -> Self {
        Self {
            rest: bytes,
            behind: 0,
            bytes_total: bytes.len(),
            version,
            flexible,
            heap_bytes_left: HEAP_BYTES_MAX_DEFAULT,
            field: "message",
        }
    }

    /// Bounds the heap that decoding may take, in bytes, nested arrays included.
    #[must_use]
    pub fn with_heap_bytes_max(mut self, heap_bytes_max: usize) -> Self {
        self.heap_bytes_left = heap_bytes_max;
        self
    }

    /// The version being read.
    #[inline]
    pub fn version(&self) -> i16 {
        self.version
    }

    /// Whether lengths are compact and structures end in tagged fields (KIP-482).
    #[inline]
    pub fn flexible(&self) -> bool {
        self.flexible
    }

    /// The bytes not yet read.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Heap that may still be taken, in bytes.
    #[inline]
    pub fn heap_bytes_left(&self) -> usize {
        self.heap_bytes_left
    }

    /// Names the field that is read next, for errors.
    #[inline]
    pub fn enter(&mut self, field: &'static str) {
        self.field = field;
    }

    /// Builds an error that points at the current field and byte.
    #[cold]
    pub fn error(&self, kind: DecodeErrorKind) -> DecodeError {
        DecodeError { field: self.field, offset: self.bytes_total - self.behind - self.rest.len(), kind }
    }

    /// Fails if bytes are left. Kafka ignores what stands behind a request, so only tests and clients ask for this.
    pub fn finish(&self) -> Result<(), DecodeError> {
        match self.rest.len() {
            0 => Ok(()),
            left => Err(self.error(DecodeErrorKind::Trailing { left })),
        }
    }

    /// The next `len` bytes, borrowed from the frame.
    #[inline]
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        match self.rest.split_at_checked(len) {
            Some((head, rest)) => {
                self.rest = rest;
                Ok(head)
            }
            None => Err(self.error(DecodeErrorKind::Truncated { needed: len, left: self.rest.len() })),
        }
    }

    /// The next `N` bytes as an array: the base of every fixed-width value.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        match self.rest.split_first_chunk::<N>() {
            Some((head, rest)) => {
                self.rest = rest;
                Ok(*head)
            }
            None => Err(self.error(DecodeErrorKind::Truncated { needed: N, left: self.rest.len() })),
        }
    }

    /// An unsigned variable-length integer, least significant group first, of at most 32 bits.
    #[inline]
    pub fn uvarint(&mut self) -> Result<u32, DecodeError> {
        let mut value = 0u32;
        let mut shift = 0u32;
        loop {
            let [byte] = self.array::<1>()?;
            // The fifth byte has room for four bits.
            if shift == 28 && byte > 0x0f {
                return Err(self.error(DecodeErrorKind::Varint));
            }
            value |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
            shift += 7;
        }
    }

    /// Length of a nullable string: at most 32,767, as in Kafka.
    #[inline]
    pub(super) fn string_len(&mut self) -> Result<Option<usize>, DecodeError> {
        if !self.flexible {
            let length = i16::from_be_bytes(self.array()?);
            return self.signed_len(i64::from(length));
        }
        match self.uvarint()?.checked_sub(1) {
            None => Ok(None),
            Some(length) if length as usize > STRING_BYTES_MAX => {
                Err(self.error(DecodeErrorKind::StringTooLong { length: length as usize }))
            }
            Some(length) => Ok(Some(length as usize)),
        }
    }

    /// Length of a nullable byte field or count of a nullable array.
    #[inline]
    pub(super) fn long_len(&mut self) -> Result<Option<usize>, DecodeError> {
        if self.flexible {
            return Ok(self.uvarint()?.checked_sub(1).map(|length| length as usize));
        }
        let length = i32::from_be_bytes(self.array()?);
        self.signed_len(i64::from(length))
    }

    // Kafka takes every negative length for null; only -1 is ever sent, so anything else is refused here.
    #[inline]
    fn signed_len(&self, length: i64) -> Result<Option<usize>, DecodeError> {
        match length {
            -1 => Ok(None),
            _ => match usize::try_from(length) {
                Ok(length) => Ok(Some(length)),
                Err(_) => Err(self.error(DecodeErrorKind::NegativeLength { length })),
            },
        }
    }

    /// Count of a nullable array whose elements take at least `element_bytes_min` each: refused at once when the rest of
    /// the message cannot hold that many.
    #[inline]
    pub(super) fn array_len(&mut self, element_bytes_min: usize) -> Result<Option<usize>, DecodeError> {
        let Some(claimed) = self.long_len()? else {
            return Ok(None);
        };
        let left = self.rest.len();
        if claimed > left / element_bytes_min.max(1) {
            return Err(self.error(DecodeErrorKind::ArrayBeyondEnd { claimed, left }));
        }
        Ok(Some(claimed))
    }

    /// Charges `wanted` bytes of heap to the message's budget.
    #[inline]
    pub(super) fn charge(&mut self, wanted: usize) -> Result<(), DecodeError> {
        match self.heap_bytes_left.checked_sub(wanted) {
            Some(left) => {
                self.heap_bytes_left = left;
                Ok(())
            }
            None => Err(self.error(DecodeErrorKind::HeapBudget { wanted, left: self.heap_bytes_left })),
        }
    }

    /// Text of `len` bytes. Stricter than Kafka, which replaces malformed sequences: a name that cannot be told from
    /// another one is refused.
    #[inline]
    pub(super) fn text(&mut self, len: usize) -> Result<&'a str, DecodeError> {
        let bytes = self.take(len)?;
        std::str::from_utf8(bytes).map_err(|_| self.error(DecodeErrorKind::Utf8))
    }

    /// Reads the tagged fields at the end of a flexible structure; does nothing in other versions.
    ///
    /// `known` reads the value of a tag it knows and says so; the rest is skipped. Each field takes two bytes or more, so
    /// the loop ends with the message whatever count it claims.
    #[inline]
    pub(super) fn tagged_fields(
        &mut self,
        mut known: impl FnMut(&mut Self, u32) -> Result<bool, DecodeError>,
    ) -> Result<(), DecodeError> {
        if !self.flexible {
            return Ok(());
        }
        let claimed = self.uvarint()? as usize;
        if claimed > self.rest.len() / 2 {
            return Err(self.error(DecodeErrorKind::ArrayBeyondEnd { claimed, left: self.rest.len() }));
        }
        for _ in 0..claimed {
            let tag = self.uvarint()?;
            let size = self.uvarint()? as usize;
            let value = self.take(size)?;
            // The value is read through a window of exactly its size, so that a field cannot reach past it.
            let after = std::mem::replace(&mut self.rest, value);
            self.behind += after.len();
            let read = known(self, tag)?;
            if read && !self.rest.is_empty() {
                return Err(self.error(DecodeErrorKind::TaggedFieldSize { left: self.rest.len() }));
            }
            self.behind -= after.len();
            self.rest = after;
        }
        Ok(())
    }
}

/// Where `part` lies in `frame`, if it was borrowed from it: turns a borrowed record batch into a range that can travel
/// to another core together with the frame.
pub fn range_within(frame: &[u8], part: &[u8]) -> Option<Range<usize>> {
    let start = (part.as_ptr() as usize).checked_sub(frame.as_ptr() as usize)?;
    let end = start.checked_add(part.len())?;
    (end <= frame.len()).then_some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uvarint(bytes: &[u8]) -> Result<u32, DecodeErrorKind> {
        Decoder::new(bytes, 0, true).uvarint().map_err(|e| e.kind)
    }

    #[test]
    fn a_variable_length_integer_has_at_most_32_bits() {
        assert_eq!(uvarint(&[0x00]), Ok(0));
        assert_eq!(uvarint(&[0x80, 0x01]), Ok(128));
        assert_eq!(uvarint(&[0xff, 0xff, 0xff, 0xff, 0x0f]), Ok(u32::MAX));
        assert_eq!(uvarint(&[0xff, 0xff, 0xff, 0xff, 0x1f]), Err(DecodeErrorKind::Varint));
        assert_eq!(uvarint(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x00]), Err(DecodeErrorKind::Varint));
        assert_eq!(uvarint(&[0x80]), Err(DecodeErrorKind::Truncated { needed: 1, left: 0 }));
    }

    #[test]
    fn unknown_tagged_fields_are_skipped_and_a_claimed_count_cannot_exceed_the_bytes() {
        let mut d = Decoder::new(&[2, 9, 1, 0xaa, 200, 1, 0, 7], 0, true);
        d.tagged_fields(|_, _| Ok(false)).unwrap();
        assert_eq!(d.rest(), &[7]);
        let mut d = Decoder::new(&[0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0], 0, true);
        let kind = d.tagged_fields(|_, _| Ok(false)).unwrap_err().kind;
        assert_eq!(kind, DecodeErrorKind::ArrayBeyondEnd { claimed: u32::MAX as usize, left: 2 });
    }

    #[test]
    fn a_known_tagged_field_must_fill_its_size_exactly() {
        let read = |d: &mut Decoder<'_>, _| d.array::<2>().map(|_| true);
        assert!(Decoder::new(&[1, 0, 2, 1, 2], 0, true).tagged_fields(read).is_ok());
        let longer = Decoder::new(&[1, 0, 3, 1, 2, 3], 0, true).tagged_fields(read).unwrap_err();
        assert_eq!(longer.kind, DecodeErrorKind::TaggedFieldSize { left: 1 });
        let shorter = Decoder::new(&[1, 0, 1, 1, 2, 3], 0, true).tagged_fields(read).unwrap_err();
        assert_eq!(shorter.kind, DecodeErrorKind::Truncated { needed: 2, left: 1 });
        assert_eq!(shorter.offset, 3);
    }

    #[test]
    fn a_borrowed_part_is_found_in_its_frame_and_a_stranger_is_not() {
        let frame = [0u8; 16];
        assert_eq!(range_within(&frame, &frame[3..9]), Some(3..9));
        assert_eq!(range_within(&frame[..8], &frame[3..9]), None);
        assert_eq!(range_within(&frame[4..], &frame[3..9]), None);
    }
}
