//! Zstandard, RFC 8878 (KIP-110).
//!
//! Holds: the streaming decoder's context and the walk over frames.
//! Never touches: dictionaries.

use super::{DecompressError, DecompressScratch, Piece, input_slice, window};
use crate::batch::Compression;
use ::zstd::zstd_safe::{DCtx, InBuffer, OutBuffer, ResetDirective};

/// A context larger than this goes back to the allocator after its batch: the window of levels up to 19 fits.
const RETAINED_BYTES_MAX: usize = (8 << 20) + (1 << 20);

/// The decoder, whose window (as large as the frame says, at most 128 MiB, zstd's own default limit) is kept between batches.
pub(super) struct Context(DCtx<'static>);

impl Context {
    fn new() -> Option<Self> {
        DCtx::try_create().map(Self)
    }

    pub(super) fn reset(&mut self) {
        // Forgetting the frame in progress cannot fail.
        let _ = self.0.reset(ResetDirective::SessionOnly);
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.sizeof()
    }

    pub(super) fn is_large(&self) -> bool {
        self.bytes() > RETAINED_BYTES_MAX
    }
}

#[derive(Debug)]
pub(super) struct State {
    /// 0 between frames, otherwise more is to come.
    expects: usize,
}

impl Default for State {
    fn default() -> Self {
        // Not even an empty batch compresses to no bytes.
        Self { expects: 1 }
    }
}

impl State {
    pub(super) fn step(
        &mut self,
        input: &[u8],
        position: &mut usize,
        scratch: &mut DecompressScratch,
        bytes_max: usize,
    ) -> Result<Piece, DecompressError> {
        if self.expects == 0 && *position == input.len() {
            return Ok(Piece::End);
        }
        if scratch.zstd.is_none() {
            scratch.zstd = Context::new();
        }
        let Some(context) = &mut scratch.zstd else {
            return Err(corrupt("no memory for its context"));
        };
        let mut source = InBuffer::around(input_slice(input, *position));
        let mut target = OutBuffer::around(window(&mut scratch.window, bytes_max));
        let result = context.0.decompress_stream(&mut target, &mut source);
        let (consumed, produced) = (source.pos(), target.pos());
        *position += consumed;
        match result {
            Ok(expects) => self.expects = expects,
            Err(_) => {
                // Whatever state the error left goes with the context.
                scratch.zstd = None;
                return Err(corrupt("bad frame"));
            }
        }
        match (consumed, produced) {
            (0, 0) => Err(corrupt("it ends within a frame")),
            (_, 0) => Ok(Piece::Nothing),
            (_, produced) => Ok(Piece::Window(produced)),
        }
    }
}

const fn corrupt(what: &'static str) -> DecompressError {
    DecompressError::Corrupt { codec: Compression::Zstd, what }
}
