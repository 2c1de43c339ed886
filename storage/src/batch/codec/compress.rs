//! Compression, as Kafka's own clients would do it, so that every consumer can read the result.
//!
//! Holds: one writer over the four codecs; output goes to a buffer that the caller owns.
//! Never touches: what the bytes mean.

use super::{PIECE_BYTES_MAX, gzip, lz4, snappy};
use crate::batch::Compression;
use ::zstd::stream::raw::{Encoder, InBuffer, Operation, OutBuffer};
use flate2::{Compress, Crc, FlushCompress, Status};
use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};

/// The default level of gzip in Kafka's configuration: "the codec's own".
pub const GZIP_LEVEL_DEFAULT: i32 = -1;
/// The default level of zstd in Kafka's configuration.
pub const ZSTD_LEVEL_DEFAULT: i32 = 3;

/// The chunk that snappy-java compresses at a time by default.
const SNAPPY_CHUNK_BYTES: usize = 32 * 1024;
/// Kafka's lz4 block: size code 4.
const LZ4_BLOCK_BYTES: usize = 64 * 1024;
const LZ4_BLOCK_CODE: u8 = 4;

/// A codec with its level, as a topic's configuration asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetCodec {
    /// Not compressed.
    None,
    /// `compression.gzip.level`: 1-9 or [`GZIP_LEVEL_DEFAULT`].
    Gzip {
        /// The level.
        level: i32,
    },
    /// Xerial framing.
    Snappy,
    /// Independent blocks of 64 KiB. `compression.lz4.level` changes nothing here: the encoder has one level.
    Lz4,
    /// `compression.zstd.level`: -131072 to 22.
    Zstd {
        /// The level.
        level: i32,
    },
}

impl TargetCodec {
    /// The codec without its level.
    #[must_use]
    pub const fn codec(self) -> Compression {
        match self {
            Self::None => Compression::None,
            Self::Gzip { .. } => Compression::Gzip,
            Self::Snappy => Compression::Snappy,
            Self::Lz4 => Compression::Lz4,
            Self::Zstd { .. } => Compression::Zstd,
        }
    }

    /// The codec at its default level.
    #[must_use]
    pub const fn default_of(codec: Compression) -> Self {
        match codec {
            Compression::None => Self::None,
            Compression::Gzip => Self::Gzip { level: GZIP_LEVEL_DEFAULT },
            Compression::Snappy => Self::Snappy,
            Compression::Lz4 => Self::Lz4,
            Compression::Zstd => Self::Zstd { level: ZSTD_LEVEL_DEFAULT },
        }
    }
}

/// A codec's library failed on our own input: out of memory, or a level that it does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{codec} could not compress")]
pub struct CompressError {
    /// The codec.
    pub codec: Compression,
}

/// One compression under way.
pub struct Compressor(Stream);

enum Stream {
    Plain,
    Gzip { raw: Compress, crc: Crc, started: bool },
    Snappy { encoder: Box<snap::raw::Encoder>, chunk: Vec<u8>, started: bool },
    Lz4 { table: Box<CompressTable>, block: Vec<u8>, started: bool },
    Zstd(Encoder<'static>),
}

impl core::fmt::Debug for Compressor {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self.0 {
            Stream::Plain => "Compressor(none)",
            Stream::Gzip { .. } => "Compressor(gzip)",
            Stream::Snappy { .. } => "Compressor(snappy)",
            Stream::Lz4 { .. } => "Compressor(lz4)",
            Stream::Zstd(_) => "Compressor(zstd)",
        })
    }
}

impl Compressor {
    /// A compressor for one payload.
    ///
    /// # Errors
    /// When the codec refuses the level.
    pub fn new(target: TargetCodec) -> Result<Self, CompressError> {
        Ok(Self(match target {
            TargetCodec::None => Stream::Plain,
            TargetCodec::Gzip { level } => {
                let level = match level {
                    GZIP_LEVEL_DEFAULT => flate2::Compression::default(),
                    0..=9 => flate2::Compression::new(level as u32),
                    _ => {
                        return Err(CompressError { codec: Compression::Gzip });
                    }
                };
                Stream::Gzip { raw: Compress::new(level, false), crc: Crc::new(), started: false }
            }
            TargetCodec::Snappy => Stream::Snappy {
                encoder: Box::new(snap::raw::Encoder::new()),
                chunk: Vec::with_capacity(SNAPPY_CHUNK_BYTES),
                started: false,
            },
            TargetCodec::Lz4 => Stream::Lz4 {
                table: Box::new(CompressTable::large()),
                block: Vec::with_capacity(LZ4_BLOCK_BYTES),
                started: false,
            },
            TargetCodec::Zstd { level } => {
                Stream::Zstd(Encoder::new(level).map_err(|_| CompressError { codec: Compression::Zstd })?)
            }
        }))
    }

    /// Takes the next bytes; output that is ready goes to `out`.
    ///
    /// # Errors
    /// When the codec's library fails.
    pub fn write(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), CompressError> {
        match &mut self.0 {
            Stream::Plain => {
                out.extend_from_slice(bytes);
                Ok(())
            }
            Stream::Gzip { raw, crc, started } => {
                start_gzip(started, out);
                crc.update(bytes);
                deflate(raw, bytes, out, FlushCompress::None)
            }
            Stream::Snappy { encoder, chunk, started } => {
                start_snappy(started, out);
                in_blocks(bytes, chunk, SNAPPY_CHUNK_BYTES, |chunk| snappy_chunk(encoder, chunk, out))
            }
            Stream::Lz4 { table, block, started } => {
                start_lz4(started, out);
                in_blocks(bytes, block, LZ4_BLOCK_BYTES, |block| lz4_block(table, block, out))
            }
            Stream::Zstd(encoder) => {
                let failed = |_| CompressError { codec: Compression::Zstd };
                let mut source = InBuffer::around(bytes);
                while source.pos() < bytes.len() {
                    append_zstd(out, |target| encoder.run(&mut source, target).map_err(failed))?;
                }
                Ok(())
            }
        }
    }

    /// Writes what is left, and the codec's end.
    ///
    /// # Errors
    /// When the codec's library fails.
    pub fn finish(self, out: &mut Vec<u8>) -> Result<(), CompressError> {
        match self.0 {
            Stream::Plain => Ok(()),
            Stream::Gzip { mut raw, crc, mut started } => {
                start_gzip(&mut started, out);
                deflate(&mut raw, &[], out, FlushCompress::Finish)?;
                out.extend_from_slice(&crc.sum().to_le_bytes());
                out.extend_from_slice(&crc.amount().to_le_bytes());
                Ok(())
            }
            Stream::Snappy { mut encoder, chunk, mut started } => {
                start_snappy(&mut started, out);
                if chunk.is_empty() { Ok(()) } else { snappy_chunk(&mut encoder, &chunk, out) }
            }
            Stream::Lz4 { mut table, block, mut started } => {
                start_lz4(&mut started, out);
                if !block.is_empty() {
                    lz4_block(&mut table, &block, out)?;
                }
                out.extend_from_slice(&0_u32.to_le_bytes());
                Ok(())
            }
            Stream::Zstd(mut encoder) => {
                let failed = |_| CompressError { codec: Compression::Zstd };
                while append_zstd(out, |target| encoder.finish(target, true).map_err(failed))? > 0 {}
                Ok(())
            }
        }
    }
}

/// Fills `block` from `bytes` and hands it on each time it is full.
fn in_blocks(
    mut bytes: &[u8],
    block: &mut Vec<u8>,
    block_bytes: usize,
    mut full: impl FnMut(&[u8]) -> Result<(), CompressError>,
) -> Result<(), CompressError> {
    while !bytes.is_empty() {
        if block.len() == block_bytes {
            full(block)?;
            block.clear();
        }
        let (head, rest) = bytes.split_at(bytes.len().min(block_bytes - block.len()));
        block.extend_from_slice(head);
        bytes = rest;
    }
    Ok(())
}

fn start_gzip(started: &mut bool, out: &mut Vec<u8>) {
    if !core::mem::replace(started, true) {
        out.extend_from_slice(&gzip::MAGIC);
        // No flags, no time, no hint, and "unknown" as the system, as Java writes it.
        out.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0xff]);
    }
}

fn deflate(raw: &mut Compress, bytes: &[u8], out: &mut Vec<u8>, flush: FlushCompress) -> Result<(), CompressError> {
    let failed = CompressError { codec: Compression::Gzip };
    let mut rest = bytes;
    loop {
        out.reserve(PIECE_BYTES_MAX.min(bytes.len() + 1024));
        let before = raw.total_in();
        let status = raw.compress_vec(rest, out, flush).map_err(|_| failed)?;
        rest = rest.get((raw.total_in() - before) as usize..).unwrap_or_default();
        let is_done = match flush {
            FlushCompress::Finish => status == Status::StreamEnd,
            _ => rest.is_empty(),
        };
        if is_done {
            return Ok(());
        }
    }
}

fn start_snappy(started: &mut bool, out: &mut Vec<u8>) {
    if !core::mem::replace(started, true) {
        out.extend_from_slice(&snappy::XERIAL_MAGIC);
        out.extend_from_slice(&snappy::XERIAL_VERSION.to_be_bytes());
        out.extend_from_slice(&snappy::XERIAL_VERSION.to_be_bytes());
    }
}

fn snappy_chunk(encoder: &mut snap::raw::Encoder, chunk: &[u8], out: &mut Vec<u8>) -> Result<(), CompressError> {
    let failed = CompressError { codec: Compression::Snappy };
    let start = out.len();
    out.resize(start + size_of::<i32>() + snap::raw::max_compress_len(chunk.len()), 0);
    let body = out.get_mut(start + size_of::<i32>()..).unwrap_or_default();
    let bytes = encoder.compress(chunk, body).map_err(|_| failed)?;
    if let Some(length) = out.get_mut(start..).and_then(|rest| rest.first_chunk_mut()) {
        *length = (bytes as i32).to_be_bytes();
    }
    out.truncate(start + size_of::<i32>() + bytes);
    Ok(())
}

fn start_lz4(started: &mut bool, out: &mut Vec<u8>) {
    if !core::mem::replace(started, true) {
        let descriptor = [lz4::FLAG_VERSION | lz4::FLAG_INDEPENDENT, LZ4_BLOCK_CODE << 4];
        out.extend_from_slice(&lz4::MAGIC.to_le_bytes());
        out.extend_from_slice(&descriptor);
        out.push(lz4::header_checksum(&descriptor));
    }
}

fn lz4_block(table: &mut CompressTable, block: &[u8], out: &mut Vec<u8>) -> Result<(), CompressError> {
    let failed = CompressError { codec: Compression::Lz4 };
    let start = out.len();
    out.resize(start + size_of::<u32>() + get_maximum_output_size(block.len()), 0);
    let body = out.get_mut(start + size_of::<u32>()..).unwrap_or_default();
    let compressed = compress_into_with_table(block, body, table).map_err(|_| failed)?;
    let (word, bytes) = if compressed < block.len() {
        (compressed as u32, compressed)
    } else {
        if let Some(stored) = body.get_mut(..block.len()) {
            stored.copy_from_slice(block);
        }
        (block.len() as u32 | lz4::STORED, block.len())
    };
    if let Some(length) = out.get_mut(start..).and_then(|rest| rest.first_chunk_mut()) {
        *length = word.to_le_bytes();
    }
    out.truncate(start + size_of::<u32>() + bytes);
    Ok(())
}

/// Lets zstd write to the end of `out`.
fn append_zstd<T>(
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut OutBuffer<'_, [u8]>) -> Result<T, CompressError>,
) -> Result<T, CompressError> {
    let start = out.len();
    out.resize(start + PIECE_BYTES_MAX / 2, 0);
    let mut target = OutBuffer::around(out.get_mut(start..).unwrap_or_default());
    let result = write(&mut target);
    let written = target.pos();
    out.truncate(start + written);
    result
}
