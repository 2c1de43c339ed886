//! LZ4 frames (LZ4 frame format 1.6.x), the kind that Kafka admits: independent blocks, no dictionary.
//!
//! Holds: the frame around `lz4_flex`'s block decoder, all of its checksums included (Kafka skips the content checksum, but a
//! consumer may not).
//! Never touches: the legacy frame, and the wrong header checksum that old clients wrote for message format 0.

use super::xxh32::{Xxh32, xxh32};
use super::{DecompressError, DecompressScratch, Piece, take};
use crate::batch::Compression;
use core::ops::Range;

/// First bytes of a frame, little-endian.
pub(super) const MAGIC: u32 = 0x184D_2204;
/// The block is stored as it is.
pub(super) const STORED: u32 = 0x8000_0000;
/// Version 01 in the top two bits of the flags.
pub(super) const FLAG_VERSION: u8 = 0b0100_0000;
/// Blocks do not refer to each other.
pub(super) const FLAG_INDEPENDENT: u8 = 1 << 5;
const FLAG_BLOCK_CHECKSUM: u8 = 1 << 4;
const FLAG_CONTENT_SIZE: u8 = 1 << 3;
const FLAG_CONTENT_CHECKSUM: u8 = 1 << 2;
const FLAG_RESERVED_OR_DICTIONARY: u8 = 0b11;

#[derive(Debug, Default)]
pub(super) enum State {
    #[default]
    Start,
    Frame(Frame),
    End,
}

#[derive(Debug)]
pub(super) struct Frame {
    /// At most 4 MiB.
    block_bytes_max: u32,
    has_block_checksums: bool,
    content_bytes: Option<u64>,
    content_checksum: Option<Xxh32>,
    produced: u64,
    /// What of the last decoded block has not been handed out.
    left: Range<u32>,
}

impl State {
    /// A block is decoded as a whole, and handed out in pieces: who walks over 4 MiB of records does so in slices.
    pub(super) fn step(
        &mut self,
        input: &[u8],
        position: &mut usize,
        scratch: &mut DecompressScratch,
        bytes_max: usize,
    ) -> Result<Piece, DecompressError> {
        if let Self::Start = self {
            *self = Self::Frame(read_header(input, position)?);
        }
        let Self::Frame(frame) = self else {
            return Ok(Piece::End);
        };
        if !frame.left.is_empty() {
            return Ok(frame.next_of_block(bytes_max));
        }
        match frame.block(input, position, &mut scratch.lz4_block)? {
            Some(Piece::Lz4Block(decoded)) => {
                frame.left = 0..decoded.len() as u32;
                Ok(frame.next_of_block(bytes_max))
            }
            Some(piece) => Ok(piece),
            None if *position == input.len() => {
                *self = Self::End;
                Ok(Piece::End)
            }
            None => Err(DecompressError::Trailing { codec: Compression::Lz4 }),
        }
    }
}

impl Frame {
    fn next_of_block(&mut self, bytes_max: usize) -> Piece {
        let start = self.left.start;
        let bytes_max = u32::try_from(bytes_max).unwrap_or(u32::MAX);
        self.left.start = self.left.end.min(start.saturating_add(bytes_max));
        Piece::Lz4Block(start as usize..self.left.start as usize)
    }

    /// The next block, or `None` at the end mark.
    fn block(
        &mut self,
        input: &[u8],
        position: &mut usize,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<Piece>, DecompressError> {
        let cut = || corrupt("it ends within the frame");
        let word = u32::from_le_bytes(take(input, position).ok_or_else(cut)?);
        let bytes = (word & !STORED) as usize;
        // As in Kafka, a block of no bytes is the end, whether marked as stored or not.
        if bytes == 0 {
            if let Some(checksum) = &self.content_checksum {
                let stored = u32::from_le_bytes(take(input, position).ok_or_else(cut)?);
                if stored != checksum.finish() {
                    return Err(corrupt("wrong content checksum"));
                }
            }
            if self.content_bytes.is_some_and(|promised| promised != self.produced) {
                return Err(corrupt("wrong content size"));
            }
            return Ok(None);
        }
        let bytes_max = self.block_bytes_max as usize;
        if bytes > bytes_max {
            return Err(corrupt("a block larger than the frame allows"));
        }
        let start = *position;
        let block = input.get(start..start + bytes).ok_or_else(cut)?;
        *position += bytes;
        if self.has_block_checksums && u32::from_le_bytes(take(input, position).ok_or_else(cut)?) != xxh32(block) {
            return Err(corrupt("wrong block checksum"));
        }
        let (piece, content) = if word & STORED != 0 {
            (Piece::Input(start..start + bytes), block)
        } else {
            if buffer.len() < bytes_max {
                buffer.resize(bytes_max, 0);
            }
            let out = buffer.get_mut(..bytes_max).unwrap_or_default();
            let produced = lz4_flex::block::decompress_into(block, out).map_err(|_| corrupt("bad block"))?;
            (Piece::Lz4Block(0..produced), buffer.get(..produced).unwrap_or_default())
        };
        if let Some(checksum) = &mut self.content_checksum {
            checksum.update(content);
        }
        self.produced += content.len() as u64;
        Ok(Some(piece))
    }
}

fn read_header(input: &[u8], position: &mut usize) -> Result<Frame, DecompressError> {
    let cut = || corrupt("it ends within the frame header");
    if u32::from_le_bytes(take(input, position).ok_or_else(cut)?) != MAGIC {
        return Err(corrupt("no lz4 frame"));
    }
    let descriptor_start = *position;
    let [flags, descriptor] = take(input, position).ok_or_else(cut)?;
    if flags & 0xc0 != FLAG_VERSION {
        return Err(corrupt("unknown frame version"));
    }
    if flags & FLAG_RESERVED_OR_DICTIONARY != 0 {
        return Err(corrupt("a reserved flag or a dictionary"));
    }
    if flags & FLAG_INDEPENDENT == 0 {
        return Err(corrupt("blocks that depend on each other"));
    }
    let block_size = (descriptor >> 4) & 0x07;
    if descriptor & 0x8f != 0 || block_size < 4 {
        return Err(corrupt("bad block size"));
    }
    let content_bytes = if flags & FLAG_CONTENT_SIZE != 0 {
        Some(u64::from_le_bytes(take(input, position).ok_or_else(cut)?))
    } else {
        None
    };
    let described = input.get(descriptor_start..*position).ok_or_else(cut)?;
    let [stored] = take(input, position).ok_or_else(cut)?;
    if stored != header_checksum(described) {
        return Err(corrupt("wrong header checksum"));
    }
    Ok(Frame {
        // 4, 5, 6, 7 stand for 64 KiB, 256 KiB, 1 MiB, 4 MiB.
        block_bytes_max: 1 << (2 * block_size + 8),
        has_block_checksums: flags & FLAG_BLOCK_CHECKSUM != 0,
        content_bytes,
        content_checksum: (flags & FLAG_CONTENT_CHECKSUM != 0).then(Xxh32::new),
        produced: 0,
        left: 0..0,
    })
}

/// The header's checksum: the second byte of the hash over everything between magic and checksum.
pub(super) fn header_checksum(described: &[u8]) -> u8 {
    (xxh32(described) >> 8) as u8
}

const fn corrupt(what: &'static str) -> DecompressError {
    DecompressError::Corrupt { codec: Compression::Lz4, what }
}
