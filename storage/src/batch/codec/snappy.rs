//! Snappy, as Kafka's clients write it.
//!
//! Holds: the two framings, and a block decoder that can stop and go on.
//! Never touches: the "snappy framing format" of google/snappy (stream identifier `ff 06 00 00 sNaPpY`), which no Kafka client writes.
//!
//! ```text
//!  xerial:  82 53 4e 41 50 50 59 00 | version i32 | compatible i32 | { length i32 | block }*        numbers big-endian
//!  bare:    block                                                  (librdkafka and the Go clients)
//!  block:   uncompressed length, LEB128 | elements: literals and copies
//! ```
//!
//! A copy may reach back to the start of its block, so a block's whole output must be at hand. A block says up front how much that
//! is, and since the densest element makes 64 bytes from 3, a length that the input cannot fill is refused before it sizes anything.

use super::{DecompressError, DecompressScratch, Piece, take};
use crate::batch::Compression;
use core::ops::Range;

/// First bytes of the xerial framing.
pub(super) const XERIAL_MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
/// The version that snappy-java writes, also its oldest compatible one.
pub(super) const XERIAL_VERSION: i32 = 1;
const XERIAL_HEADER_BYTES: usize = 16;
/// The first four magic bytes where a chunk length is expected: another xerial stream follows.
const XERIAL_MAGIC_AS_LENGTH: i32 = i32::from_be_bytes([0x82, b'S', b'N', b'A']);

/// Most bytes of output a byte of input can make, rounded up.
const EXPANSION_MAX: usize = 22;
/// Blocks up to this size go through the `snap` crate in one go (well under a millisecond); larger ones are decoded in slices.
const ONE_GO_BYTES_MAX: usize = 1 << 20;

#[derive(Debug)]
pub(super) enum State {
    /// Before the only block of a bare payload.
    Bare,
    /// Before the header of a xerial stream.
    Header,
    /// Before a chunk's length, or the end.
    Chunks,
    /// Within a large block.
    Block(Block),
    End,
}

#[derive(Debug)]
pub(super) struct Block {
    /// Elements not yet decoded, in the input.
    elements: Range<usize>,
    /// Output of the block when whole.
    bytes: usize,
    is_bare: bool,
}

impl State {
    pub(super) fn new(input: &[u8]) -> Self {
        // snappy-java decides the same way: sixteen bytes that start with the magic, or a bare block.
        if input.len() >= XERIAL_HEADER_BYTES && input.starts_with(&XERIAL_MAGIC) { Self::Header } else { Self::Bare }
    }

    /// The next piece; `None` if a block's output exceeds what is left of the bound.
    pub(super) fn step(
        &mut self,
        input: &[u8],
        position: &mut usize,
        scratch: &mut DecompressScratch,
        bytes_max: usize,
        output_left: u64,
    ) -> Result<Option<Piece>, DecompressError> {
        let chunk = &mut scratch.snappy_chunk;
        match self {
            Self::End => Ok(Some(Piece::End)),
            Self::Bare => self.start(input, *position..input.len(), position, chunk, output_left, true),
            Self::Header => {
                read_xerial_header(input, position)?;
                *self = Self::Chunks;
                Ok(Some(Piece::Nothing))
            }
            Self::Chunks if *position == input.len() => {
                *self = Self::End;
                Ok(Some(Piece::End))
            }
            Self::Chunks => {
                let length = i32::from_be_bytes(
                    take(input, position).ok_or(DecompressError::Trailing { codec: Compression::Snappy })?,
                );
                if length == XERIAL_MAGIC_AS_LENGTH {
                    *position -= size_of::<i32>();
                    *self = Self::Header;
                    return Ok(Some(Piece::Nothing));
                }
                let end = usize::try_from(length)
                    .ok()
                    .and_then(|bytes| position.checked_add(bytes))
                    .filter(|&end| end <= input.len())
                    .ok_or_else(|| corrupt("a chunk longer than the data"))?;
                self.start(input, *position..end, position, chunk, output_left, false)
            }
            Self::Block(block) => {
                let produced = block.slice(input, chunk, bytes_max)?;
                *position = block.elements.start;
                if chunk.len() == block.bytes {
                    *self = if block.is_bare { Self::End } else { Self::Chunks };
                }
                Ok(Some(Piece::SnappyChunk(produced)))
            }
        }
    }

    /// Begins a block; `None` if its output exceeds what is left of the bound.
    fn start(
        &mut self,
        input: &[u8],
        range: Range<usize>,
        position: &mut usize,
        chunk: &mut Vec<u8>,
        output_left: u64,
        is_bare: bool,
    ) -> Result<Option<Piece>, DecompressError> {
        let block = input.get(range.clone()).unwrap_or_default();
        let bytes = snap::raw::decompress_len(block).map_err(|_| corrupt("bad block length"))?;
        if bytes > block.len().saturating_mul(EXPANSION_MAX) {
            return Err(corrupt("a block length that its data cannot fill"));
        }
        if bytes as u64 > output_left {
            return Ok(None);
        }
        let after = if is_bare { Self::End } else { Self::Chunks };
        if bytes <= ONE_GO_BYTES_MAX {
            if chunk.len() < bytes {
                chunk.resize(bytes, 0);
            }
            let out = chunk.get_mut(..bytes).unwrap_or_default();
            snap::raw::Decoder::new().decompress(block, out).map_err(|_| corrupt("bad block"))?;
            *position = range.end;
            *self = after;
            return Ok(Some(if bytes == 0 { Piece::Nothing } else { Piece::SnappyChunk(0..bytes) }));
        }
        // The length was readable, so it ends in the first byte without a continuation bit.
        let prefix = block.iter().position(|byte| byte & 0x80 == 0).map_or(block.len(), |at| at + 1);
        chunk.clear();
        chunk.reserve_exact(bytes);
        *position = range.start + prefix;
        *self = Self::Block(Block { elements: *position..range.end, bytes, is_bare });
        Ok(Some(Piece::Nothing))
    }
}

impl Block {
    /// Decodes elements until about `bytes_max` more bytes are out; returns where they are.
    fn slice(&mut self, input: &[u8], out: &mut Vec<u8>, bytes_max: usize) -> Result<Range<usize>, DecompressError> {
        let start = out.len();
        let target = (start + bytes_max).min(self.bytes);
        while out.len() < target {
            let elements = input.get(self.elements.clone()).unwrap_or_default();
            let consumed = self.element(elements, out).ok_or_else(|| corrupt("bad element"))?;
            self.elements.start += consumed;
        }
        if out.len() == self.bytes && !self.elements.is_empty() {
            return Err(DecompressError::Trailing { codec: Compression::Snappy });
        }
        Ok(start..out.len())
    }

    /// Decodes one element; returns its size.
    fn element(&self, elements: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        let (&tag, rest) = elements.split_first()?;
        let (length, offset, consumed) = match tag & 0b11 {
            0 => {
                let (length, extra) = match tag >> 2 {
                    short @ 0..60 => (usize::from(short) + 1, 0),
                    long => {
                        let extra = usize::from(long) - 59;
                        let mut number = [0; 4];
                        number.get_mut(..extra)?.copy_from_slice(rest.get(..extra)?);
                        ((u32::from_le_bytes(number) as usize).checked_add(1)?, extra)
                    }
                };
                let literal = rest.get(extra..extra.checked_add(length)?)?;
                if length > self.bytes - out.len() {
                    return None;
                }
                out.extend_from_slice(literal);
                return Some(1 + extra + length);
            }
            1 => {
                let low = *rest.first()?;
                (4 + usize::from((tag >> 2) & 0b111), usize::from(tag >> 5) << 8 | usize::from(low), 2)
            }
            2 => (1 + usize::from(tag >> 2), usize::from(u16::from_le_bytes(*rest.first_chunk()?)), 3),
            _ => (1 + usize::from(tag >> 2), u32::from_le_bytes(*rest.first_chunk()?) as usize, 5),
        };
        if offset == 0 || length > self.bytes - out.len() {
            return None;
        }
        let from = out.len().checked_sub(offset)?;
        if offset >= length {
            out.extend_from_within(from..from + length);
        } else {
            // The copy overlaps what it writes: it repeats the last `offset` bytes.
            for at in from..from + length {
                out.push(*out.get(at)?);
            }
        }
        Some(consumed)
    }
}

fn read_xerial_header(input: &[u8], position: &mut usize) -> Result<(), DecompressError> {
    let cut = || corrupt("it ends within a stream header");
    let magic: [u8; 8] = take(input, position).ok_or_else(cut)?;
    let version = i32::from_be_bytes(take(input, position).ok_or_else(cut)?);
    let _compatible: [u8; 4] = take(input, position).ok_or_else(cut)?;
    if magic != XERIAL_MAGIC {
        return Err(corrupt("bad stream header"));
    }
    if version < XERIAL_VERSION {
        return Err(corrupt("a stream version before the first"));
    }
    Ok(())
}

const fn corrupt(what: &'static str) -> DecompressError {
    DecompressError::Corrupt { codec: Compression::Snappy, what }
}
