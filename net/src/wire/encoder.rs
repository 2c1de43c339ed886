//! Writing wire values into a frame.
//!
//! Holds: the growing head of one frame, the holes that payload held elsewhere goes into, the primitive writers.
//! Never touches: message layouts (see [`super::message`]), sockets, the payload itself.

use std::ops::Range;

use bytes::{BufMut, BytesMut};
use smallvec::SmallVec;

use super::decoder::STRING_BYTES_MAX;

/// Why a message could not be written: our own side asked for something the protocol has no bytes for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {kind}")]
pub struct EncodeError {
    /// The field being written, as `Struct.field`.
    pub field: &'static str,
    /// What was wrong.
    pub kind: EncodeErrorKind,
}

/// What could not be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeErrorKind {
    /// Null in a field, or a version of it, that cannot be null.
    #[error("null is not allowed in version {version}")]
    Null {
        /// Version of the message.
        version: i16,
    },
    /// A string above Kafka's limit of 32,767 bytes.
    #[error("string of {length} bytes is longer than 32767")]
    StringTooLong {
        /// Bytes of the string.
        length: usize,
    },
    /// A count or length that doesn't fit Kafka's 32 bits, sign included.
    #[error("length {length} does not fit 31 bits")]
    LengthTooLong {
        /// Elements or bytes.
        length: usize,
    },
    /// The caller asked for a version outside the table of [`super::ApiKey::versions`].
    #[error("version {version} is not supported")]
    UnsupportedVersion {
        /// Version of the message.
        version: i16,
    },
}

/// A place in an encoded head where payload held elsewhere belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hole {
    /// Position in [`Encoded::head`] before which the payload goes.
    pub at: usize,
    /// Bytes of payload, counted in the frame's size already.
    pub len: usize,
}

/// A finished frame: its head and where the payload goes.
#[derive(Debug)]
pub struct Encoded {
    /// Every byte of the frame but the payload, the four-byte size at the front included.
    pub head: BytesMut,
    /// The holes, in ascending order.
    pub holes: SmallVec<[Hole; 8]>,
}

/// What to send next of an [`Encoded`] frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// These bytes of the head.
    Head(Range<usize>),
    /// The payload of the hole with this index.
    Payload {
        /// Index in [`Encoded::holes`].
        hole: usize,
        /// Bytes of payload.
        len: usize,
    },
}

impl Encoded {
    /// Bytes of the whole frame, payload and size prefix included.
    pub fn frame_bytes(&self) -> usize {
        self.head.len() + self.holes.iter().map(|hole| hole.len).sum::<usize>()
    }

    /// The frame in sending order: pieces of the head and payloads in turn, empty ones left out.
    pub fn pieces(&self) -> impl Iterator<Item = Piece> + '_ {
        let starts = std::iter::once(0).chain(self.holes.iter().map(|hole| hole.at));
        let ends = self.holes.iter().map(|hole| hole.at).chain(std::iter::once(self.head.len()));
        let heads = starts.zip(ends).map(|(start, end)| Piece::Head(start..end));
        let payloads = self.holes.iter().enumerate();
        let payloads =
            payloads.map(|(hole, at)| Some(Piece::Payload { hole, len: at.len })).chain(std::iter::once(None));
        heads.zip(payloads).flat_map(|(head, payload)| [Some(head), payload]).flatten().filter(|piece| match piece {
            Piece::Head(range) => !range.is_empty(),
            Piece::Payload { len, .. } => *len > 0,
        })
    }
}

/// Writes one frame: size prefix, header, body.
///
/// The primitive writers don't return errors: the first one is kept and comes out of [`Encoder::finish`], so that encoding
/// a message reads as a list of its fields.
#[derive(Debug)]
pub struct Encoder {
    buf: BytesMut,
    version: i16,
    flexible: bool,
    holes: SmallVec<[Hole; 8]>,
    field: &'static str,
    error: Option<EncodeError>,
}

const SIZE_BYTES: usize = 4;

impl Encoder {
    /// Starts a frame in `buf`, which must be empty (its capacity is used), with room for the size prefix.
    ///
    /// Most callers want [`super::RequestHeader::begin`] or [`super::ResponseHeader::begin`], which write the header too.
    pub fn new(mut buf: BytesMut, version: i16, flexible: bool) -> Self {
        assert!(buf.is_empty(), "{} bytes in the buffer of a new frame", buf.len());
        buf.put_bytes(0, SIZE_BYTES);
        Self { buf, version, flexible, holes: SmallVec::new(), field: "message", error: None }
    }

    /// Closes the frame: fills in its size, payload of holes included.
    ///
    /// # Errors
    /// The first thing that could not be written. The buffer is lost with it: it holds half a frame.
    pub fn finish(mut self) -> Result<Encoded, EncodeError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let payload: usize = self.holes.iter().map(|hole| hole.len).sum();
        let length = self.buf.len() - SIZE_BYTES + payload;
        let Ok(size) = i32::try_from(length) else {
            return Err(EncodeError { field: "frame", kind: EncodeErrorKind::LengthTooLong { length } });
        };
        if let Some(prefix) = self.buf.first_chunk_mut::<SIZE_BYTES>() {
            *prefix = size.to_be_bytes();
        }
        Ok(Encoded { head: self.buf, holes: self.holes })
    }

    /// The version being written.
    #[inline]
    pub fn version(&self) -> i16 {
        self.version
    }

    /// Whether lengths are compact and structures end in tagged fields (KIP-482).
    #[inline]
    pub fn flexible(&self) -> bool {
        self.flexible
    }

    /// From here on lengths are compact, or not: a header and its body can differ in this.
    #[inline]
    pub(super) fn set_flexible(&mut self, flexible: bool) {
        self.flexible = flexible;
    }

    /// Bytes of the head so far, size prefix included.
    #[inline]
    pub fn head_bytes(&self) -> usize {
        self.buf.len()
    }

    /// Makes room for `additional` bytes, so that a response whose size is known grows once.
    pub fn reserve(&mut self, additional: usize) {
        self.buf.reserve(additional);
    }

    /// Names the field that is written next, for errors.
    #[inline]
    pub fn enter(&mut self, field: &'static str) {
        self.field = field;
    }

    /// Notes that the message cannot be written; the first note is kept.
    #[cold]
    pub fn fail(&mut self, kind: EncodeErrorKind) {
        if self.error.is_none() {
            self.error = Some(EncodeError { field: self.field, kind });
        }
    }

    /// Notes null where this version doesn't allow it.
    #[cold]
    pub(super) fn fail_null(&mut self) {
        self.fail(EncodeErrorKind::Null { version: self.version });
    }

    /// Appends bytes as they are.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) {
        self.buf.extend_from_slice(bytes);
    }

    /// An unsigned variable-length integer.
    #[inline]
    pub fn uvarint(&mut self, value: u32) {
        let (bytes, len) = uvarint_bytes(value);
        self.buf.extend_from_slice(bytes.get(..len).unwrap_or(&bytes));
    }

    /// Length of a nullable string.
    #[inline]
    pub(super) fn string_len(&mut self, length: Option<usize>) {
        let length = match length {
            None if self.flexible => return self.uvarint(0),
            None => return self.put(&(-1i16).to_be_bytes()),
            Some(length) => length,
        };
        match i16::try_from(length) {
            Ok(_) if self.flexible => self.uvarint(length as u32 + 1),
            Ok(length) => self.put(&length.to_be_bytes()),
            Err(_) => self.fail(EncodeErrorKind::StringTooLong { length }),
        }
        const _: () = assert!(STRING_BYTES_MAX == i16::MAX as usize);
    }

    /// Length of a nullable byte field or count of a nullable array.
    #[inline]
    pub fn long_len(&mut self, length: Option<usize>) {
        let length = match length {
            None if self.flexible => return self.uvarint(0),
            None => return self.put(&(-1i32).to_be_bytes()),
            Some(length) => length,
        };
        match i32::try_from(length) {
            Ok(length) if self.flexible => self.uvarint(length as u32 + 1),
            Ok(length) => self.put(&length.to_be_bytes()),
            Err(_) => self.fail(EncodeErrorKind::LengthTooLong { length }),
        }
    }

    /// Leaves a hole of `len` bytes for payload that is sent from where it lies.
    pub(super) fn hole(&mut self, len: usize) {
        self.holes.push(Hole { at: self.buf.len(), len });
    }

    /// Ends a structure that has no tagged fields to write; writes nothing where there are none at all.
    #[inline]
    pub fn no_tagged_fields(&mut self) {
        if self.flexible {
            self.uvarint(0);
        }
    }

    /// A tagged field: tag, size, value. The size goes in front once the value is there; such fields are rare and small.
    pub(super) fn tagged(&mut self, tag: u32, value: impl FnOnce(&mut Self)) {
        self.uvarint(tag);
        let (start, holes) = (self.buf.len(), self.holes.len());
        value(self);
        assert_eq!(self.holes.len(), holes, "a tagged field cannot hold external records");
        let length = self.buf.len() - start;
        let Ok(size) = u32::try_from(length) else {
            return self.fail(EncodeErrorKind::LengthTooLong { length });
        };
        let (bytes, prefix) = uvarint_bytes(size);
        self.buf.put_bytes(0, prefix);
        self.buf.copy_within(start..start + length, start + prefix);
        for (to, from) in self.buf.iter_mut().skip(start).zip(bytes.iter().take(prefix)) {
            *to = *from;
        }
    }
}

fn uvarint_bytes(mut value: u32) -> ([u8; 5], usize) {
    let mut bytes = [0u8; 5];
    let mut len = 0;
    for byte in &mut bytes {
        len += 1;
        if value < 0x80 {
            *byte = value as u8;
            break;
        }
        *byte = value as u8 | 0x80;
        value >>= 7;
    }
    (bytes, len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Decoder;

    #[test]
    fn a_variable_length_integer_reads_back_at_every_width() {
        for shift in 0..32 {
            for value in [1u32 << shift, (1u32 << shift) - 1, u32::MAX >> shift] {
                let (bytes, len) = uvarint_bytes(value);
                let mut d = Decoder::new(&bytes[..len], 0, true);
                assert_eq!(d.uvarint(), Ok(value));
                assert_eq!(d.finish(), Ok(()));
            }
        }
    }

    #[test]
    fn a_tagged_field_longer_than_127_bytes_gets_a_two_byte_size() {
        let mut e = Encoder::new(BytesMut::new(), 0, true);
        e.tagged(3, |e| e.put(&[7; 200]));
        let head = e.finish().unwrap().head;
        assert_eq!(&head[..9], &[0, 0, 0, 203, 3, 200, 1, 7, 7]);
        assert_eq!(head.len(), 4 + 203);
    }

    #[test]
    fn pieces_alternate_head_and_payload_and_leave_out_empty_ones() {
        let holes = [Hole { at: 4, len: 10 }, Hole { at: 6, len: 0 }, Hole { at: 6, len: 3 }];
        let encoded = Encoded { head: BytesMut::from(&[0u8; 6][..]), holes: SmallVec::from_slice(&holes) };
        assert_eq!(encoded.frame_bytes(), 19);
        let pieces: Vec<_> = encoded.pieces().collect();
        let expected = [
            Piece::Head(0..4),
            Piece::Payload { hole: 0, len: 10 },
            Piece::Head(4..6),
            Piece::Payload { hole: 2, len: 3 },
        ];
        assert_eq!(pieces, expected);
    }

    #[test]
    fn the_first_thing_that_cannot_be_written_is_reported() {
        let mut e = Encoder::new(BytesMut::new(), 3, false);
        e.enter("X.name");
        e.string_len(Some(40_000));
        e.enter("X.other");
        e.fail_null();
        let error = e.finish().unwrap_err();
        assert_eq!(error.field, "X.name");
        assert_eq!(error.kind, EncodeErrorKind::StringTooLong { length: 40_000 });
    }
}
