//! Decompression in bounded pieces and compression, for the four codecs.
//!
//! Holds: one interface over gzip, snappy, lz4 and zstd, whose state lives in a scratch that is used again and again.
//! Never touches: what the bytes mean. Input is always in memory whole; output comes in pieces and is bounded in total, so that
//! neither a large batch nor a bomb holds a core or its memory.
//!
//! | codec | what clients write | accepted besides | memory of the scratch |
//! |---|---|---|---|
//! | gzip | one member (RFC 1952) | several members | 64 KiB + the inflater (about 45 KiB) |
//! | snappy | Java: xerial framing, 32 KiB chunks; librdkafka, Go: one bare block | xerial streams one after the other | one chunk, at most 22 x its input |
//! | lz4 | one frame of independent blocks, no dictionary | content size, block and content checksums | one block, 64 KiB - 4 MiB as the frame says |
//! | zstd | one frame | several and skippable frames | the frame's window, at most 128 MiB; given back above 8 MiB |
//!
//! Stricter than Kafka in one thing: bytes behind the end of a gzip or lz4 stream are refused, since some consumers choke on
//! them; Kafka stores them unread.

mod compress;
mod gzip;
mod lz4;
mod snappy;
mod xxh32;
mod zstd;

pub use compress::{CompressError, Compressor, GZIP_LEVEL_DEFAULT, TargetCodec, ZSTD_LEVEL_DEFAULT};

use super::Compression;

/// How much output one call makes at most, for the codecs that let us choose.
pub const PIECE_BYTES_MAX: usize = 64 * 1024;
/// How much input one call takes at most, so that input which yields no output cannot hold a core either.
const INPUT_BYTES_MAX: usize = 64 * 1024;
/// A buffer larger than this is given back when its batch is done.
const RETAINED_BYTES_MAX: usize = 1 << 20;

/// Why compressed bytes could not be decompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecompressError {
    /// The bytes are not what the codec writes.
    #[error("undecodable {codec} data: {what}")]
    Corrupt {
        /// The codec.
        codec: Compression,
        /// What is wrong.
        what: &'static str,
    },
    /// Bytes follow the end of the stream.
    #[error("bytes follow the end of the {codec} data")]
    Trailing {
        /// The codec.
        codec: Compression,
    },
    /// The output would exceed the bound.
    #[error("decompresses to more than {bytes_max} bytes")]
    TooLarge {
        /// The bound.
        bytes_max: u64,
    },
}

/// Decoder state that outlives a batch: one per decompression in flight on a core. Starts small and fills in as codecs are met.
#[derive(Default)]
pub struct DecompressScratch {
    window: Vec<u8>,
    gzip: Option<gzip::Inflater>,
    lz4_block: Vec<u8>,
    snappy_chunk: Vec<u8>,
    zstd: Option<zstd::Context>,
}

impl DecompressScratch {
    /// An empty scratch; nothing is allocated until a codec is met.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes held between batches, roughly.
    #[must_use]
    pub fn retained_bytes(&self) -> usize {
        self.window.capacity()
            + self.lz4_block.capacity()
            + self.snappy_chunk.capacity()
            + self.gzip.as_ref().map_or(0, gzip::Inflater::bytes)
            + self.zstd.as_ref().map_or(0, zstd::Context::bytes)
    }

    fn shrink(&mut self) {
        for buffer in [&mut self.lz4_block, &mut self.snappy_chunk] {
            if buffer.capacity() > RETAINED_BYTES_MAX {
                *buffer = Vec::new();
            }
        }
        if self.zstd.as_ref().is_some_and(zstd::Context::is_large) {
            self.zstd = None;
        }
    }
}

impl core::fmt::Debug for DecompressScratch {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("DecompressScratch").field("retained_bytes", &self.retained_bytes()).finish()
    }
}

/// One decompression under way.
#[derive(Debug)]
pub struct Decompression<'a> {
    stream: Stream,
    input: &'a [u8],
    /// Bytes of input consumed.
    position: usize,
    produced: u64,
    bytes_max: u64,
    scratch: &'a mut DecompressScratch,
}

/// Where each codec stands between two pieces; the heavy parts are in the scratch.
#[derive(Debug)]
enum Stream {
    Plain,
    Gzip(gzip::State),
    Snappy(snappy::State),
    Lz4(lz4::State),
    Zstd(zstd::State),
}

/// Where the bytes of a piece are.
enum Piece {
    /// In the input, for codecs that store incompressible parts as they are.
    Input(core::ops::Range<usize>),
    Window(usize),
    Lz4Block(core::ops::Range<usize>),
    SnappyChunk(core::ops::Range<usize>),
    /// Nothing came out of this much input.
    Nothing,
    End,
}

impl<'a> Decompression<'a> {
    /// Starts on `input`, whose output must not exceed `bytes_max`. Resets the scratch.
    #[must_use]
    pub fn new(codec: Compression, input: &'a [u8], bytes_max: u64, scratch: &'a mut DecompressScratch) -> Self {
        let stream = match codec {
            Compression::None => Stream::Plain,
            Compression::Gzip => Stream::Gzip(gzip::State::default()),
            Compression::Snappy => Stream::Snappy(snappy::State::new(input)),
            Compression::Lz4 => Stream::Lz4(lz4::State::default()),
            Compression::Zstd => {
                if let Some(context) = &mut scratch.zstd {
                    context.reset();
                }
                Stream::Zstd(zstd::State::default())
            }
        };
        Self { stream, input, position: 0, produced: 0, bytes_max, scratch }
    }

    /// Bytes put out so far.
    #[must_use]
    pub const fn produced(&self) -> u64 {
        self.produced
    }

    /// Bytes of input consumed so far.
    #[must_use]
    pub const fn consumed(&self) -> usize {
        self.position
    }

    /// The next piece of output, about `bytes_max` bytes at most; `None` at the end. A piece may be empty: input was consumed
    /// that put out nothing. The unit that lz4 decodes at once is its block, which may be as large as 4 MiB.
    ///
    /// # Errors
    /// When the input is corrupt or ends too early, or the output exceeds its bound.
    pub fn next_piece(&mut self, bytes_max: usize) -> Result<Option<&[u8]>, DecompressError> {
        let bytes_max = bytes_max.clamp(1, PIECE_BYTES_MAX);
        let scratch = &mut *self.scratch;
        let output_left = self.bytes_max.saturating_sub(self.produced);
        let piece = match &mut self.stream {
            Stream::Plain => {
                let bytes = bytes_max.min(self.input.len() - self.position);
                self.position += bytes;
                if bytes == 0 { Piece::End } else { Piece::Input(self.position - bytes..self.position) }
            }
            Stream::Gzip(state) => state.step(self.input, &mut self.position, scratch, bytes_max)?,
            Stream::Snappy(state) => {
                match state.step(self.input, &mut self.position, scratch, bytes_max, output_left)? {
                    Some(piece) => piece,
                    None => {
                        return Err(DecompressError::TooLarge { bytes_max: self.bytes_max });
                    }
                }
            }
            Stream::Lz4(state) => state.step(self.input, &mut self.position, scratch, bytes_max)?,
            Stream::Zstd(state) => state.step(self.input, &mut self.position, scratch, bytes_max)?,
        };
        let bytes = match piece {
            Piece::Input(range) => self.input.get(range),
            Piece::Window(bytes) => self.scratch.window.get(..bytes),
            Piece::Lz4Block(range) => self.scratch.lz4_block.get(range),
            Piece::SnappyChunk(range) => self.scratch.snappy_chunk.get(range),
            Piece::Nothing => Some(&[][..]),
            Piece::End => return Ok(None),
        }
        .unwrap_or_default();
        self.produced += bytes.len() as u64;
        if self.produced > self.bytes_max {
            return Err(DecompressError::TooLarge { bytes_max: self.bytes_max });
        }
        Ok(Some(bytes))
    }
}

impl Drop for Decompression<'_> {
    fn drop(&mut self) {
        self.scratch.shrink();
    }
}

/// Decompresses a whole payload at once, for small batches of our own topics and for tools.
///
/// # Errors
/// As [`Decompression::next_piece`].
pub fn decompress_all(
    codec: Compression,
    input: &[u8],
    bytes_max: u64,
    scratch: &mut DecompressScratch,
) -> Result<Vec<u8>, DecompressError> {
    let mut out = Vec::new();
    let mut stream = Decompression::new(codec, input, bytes_max, scratch);
    while let Some(piece) = stream.next_piece(PIECE_BYTES_MAX)? {
        out.extend_from_slice(piece);
    }
    Ok(out)
}

/// The window that streaming codecs write to, grown to its one size on first use.
fn window(buffer: &mut Vec<u8>, bytes: usize) -> &mut [u8] {
    if buffer.len() < PIECE_BYTES_MAX {
        buffer.resize(PIECE_BYTES_MAX, 0);
    }
    buffer.get_mut(..bytes).unwrap_or_default()
}

/// The next bytes of input for a streaming codec.
fn input_slice(input: &[u8], position: usize) -> &[u8] {
    let rest = input.get(position..).unwrap_or_default();
    rest.get(..rest.len().min(INPUT_BYTES_MAX)).unwrap_or_default()
}

/// `N` bytes of input, moving past them.
fn take<const N: usize>(input: &[u8], position: &mut usize) -> Option<[u8; N]> {
    let bytes = input.get(*position..)?.first_chunk::<N>().copied()?;
    *position += N;
    Some(bytes)
}
