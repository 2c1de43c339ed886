//! Gzip, RFC 1952: members of a header, a deflate stream, a CRC-32 and a length.
//!
//! Holds: the member framing around the inflater, both checks included.
//! Never touches: names, comments and times in the header; they are skipped.

use super::{DecompressError, DecompressScratch, Piece, input_slice, take, window};
use crate::batch::Compression;
use flate2::{Crc, Decompress, FlushDecompress, Status};

/// First bytes of a member: magic and the only method there is, deflate.
pub(super) const MAGIC: [u8; 3] = [0x1f, 0x8b, 8];

const FLAG_HEADER_CRC: u8 = 1 << 1;
const FLAG_EXTRA: u8 = 1 << 2;
const FLAG_NAME: u8 = 1 << 3;
const FLAG_COMMENT: u8 = 1 << 4;
const FLAGS_RESERVED: u8 = 0xe0;

/// The inflater and the checksum of its output.
pub(super) struct Inflater {
    raw: Decompress,
    crc: Crc,
}

impl Inflater {
    /// Bytes it holds, roughly: 32 KiB of window and its tables.
    pub(super) const fn bytes(&self) -> usize {
        45 * 1024
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    #[default]
    Start,
    Member,
    Trailer,
    End,
}

impl State {
    pub(super) fn step(
        &mut self,
        input: &[u8],
        position: &mut usize,
        scratch: &mut DecompressScratch,
        bytes_max: usize,
    ) -> Result<Piece, DecompressError> {
        let inflater = scratch.gzip.get_or_insert_with(|| Inflater { raw: Decompress::new(false), crc: Crc::new() });
        match self {
            Self::End => return Ok(Piece::End),
            Self::Start => {
                *position = skip_header(input, *position)?;
                inflater.raw.reset(false);
                inflater.crc.reset();
                *self = Self::Member;
            }
            Self::Member => {}
            // Checked once the output has been looked at, as in Kafka, where a fault in the records comes first.
            Self::Trailer => {
                *self = check_trailer(input, position, &inflater.crc)?;
                return Ok(Piece::Nothing);
            }
        }
        let out = window(&mut scratch.window, bytes_max);
        let (in_before, out_before) = (inflater.raw.total_in(), inflater.raw.total_out());
        let status = inflater
            .raw
            .decompress(input_slice(input, *position), out, FlushDecompress::None)
            .map_err(|_| corrupt("bad deflate stream"))?;
        let consumed = (inflater.raw.total_in() - in_before) as usize;
        let produced = (inflater.raw.total_out() - out_before) as usize;
        *position += consumed;
        inflater.crc.update(out.get(..produced).unwrap_or_default());
        if status == Status::StreamEnd {
            *self = Self::Trailer;
        } else if consumed == 0 && produced == 0 {
            return Err(corrupt("it ends within a member"));
        }
        Ok(if produced == 0 { Piece::Nothing } else { Piece::Window(produced) })
    }
}

/// Compares a member's CRC and length with those of its output; returns what comes next.
fn check_trailer(input: &[u8], position: &mut usize, crc: &Crc) -> Result<State, DecompressError> {
    let cut = || corrupt("it ends within the trailer");
    let stored: [u8; 4] = take(input, position).ok_or_else(cut)?;
    let length: [u8; 4] = take(input, position).ok_or_else(cut)?;
    if u32::from_le_bytes(stored) != crc.sum() {
        return Err(corrupt("wrong CRC"));
    }
    if u32::from_le_bytes(length) != crc.amount() {
        return Err(corrupt("wrong length"));
    }
    match input.get(*position..).unwrap_or_default() {
        [] => Ok(State::End),
        rest if rest.starts_with(&MAGIC) => Ok(State::Start),
        _ => Err(DecompressError::Trailing { codec: Compression::Gzip }),
    }
}

/// The position behind the member header that starts at `position`.
fn skip_header(input: &[u8], mut position: usize) -> Result<usize, DecompressError> {
    let start = position;
    let cut = || corrupt("it ends within a header");
    let magic: [u8; 3] = take(input, &mut position).ok_or_else(cut)?;
    if magic != MAGIC {
        return Err(corrupt("no gzip header"));
    }
    let [flags, _time @ .., _extra_flags, _system] = take::<7>(input, &mut position).ok_or_else(cut)?;
    if flags & FLAGS_RESERVED != 0 {
        return Err(corrupt("reserved header flags"));
    }
    if flags & FLAG_EXTRA != 0 {
        let bytes = u16::from_le_bytes(take(input, &mut position).ok_or_else(cut)?);
        position += usize::from(bytes);
    }
    for flag in [FLAG_NAME, FLAG_COMMENT] {
        if flags & flag != 0 {
            let text = input.get(position..).ok_or_else(cut)?;
            position += text.iter().position(|&byte| byte == 0).ok_or_else(cut)? + 1;
        }
    }
    if flags & FLAG_HEADER_CRC != 0 {
        let mut crc = Crc::new();
        crc.update(input.get(start..position).ok_or_else(cut)?);
        let stored = u16::from_le_bytes(take(input, &mut position).ok_or_else(cut)?);
        if u32::from(stored) != crc.sum() & 0xffff {
            return Err(corrupt("wrong header CRC"));
        }
    }
    if position > input.len() { Err(cut()) } else { Ok(position) }
}

const fn corrupt(what: &'static str) -> DecompressError {
    DecompressError::Corrupt { codec: Compression::Gzip, what }
}
