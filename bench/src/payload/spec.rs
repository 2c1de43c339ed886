//! The records' shape as the user asked for it.
//!
//! Holds: sizes, keys, contents, codec. Never touches: batches.

use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;

use corelog_storage::batch::{Compression, TargetCodec};

use crate::error::BenchError;

/// The most that is read of a file of lines.
const LINES_BYTES_MAX: u64 = 256 << 20;

/// How long values are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueSource {
    /// Between these many bytes, both included, uniformly.
    Bytes(usize, usize),
    /// The lines of a file, in turn.
    Lines(PathBuf),
}

/// Records to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordSpec {
    /// Their values.
    pub values: ValueSource,
    /// Distinct keys, or none for null keys.
    pub keys: Option<u64>,
    /// How batches are compressed.
    pub codec: Compression,
    /// Seed of contents.
    pub seed: u64,
}

/// Bytes of a key.
pub const KEY_BYTES: usize = 20;

/// The key with this number, in text.
pub fn key(number: u64) -> [u8; KEY_BYTES] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut key = *b"key-0000000000000000";
    for (digit, nibble) in key.iter_mut().rev().take(16).zip(0..) {
        *digit = DIGITS[(number >> (4 * nibble)) as usize & 15];
    }
    key
}

/// A small generator of numbers (SplitMix64): the same seed makes the same load.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts from `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number in `0..bound` (0 for an empty range).
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in (0, 1].
    pub fn unit(&mut self) -> f64 {
        ((self.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }
}

/// Makes values and keys one after the other.
pub struct RecordMaker {
    spec: RecordSpec,
    random: Random,
    lines: Vec<Vec<u8>>,
    next_line: usize,
}

impl RecordMaker {
    /// Reads the lines if there are any to read.
    ///
    /// # Errors
    /// The file can't be read or is empty.
    pub fn new(spec: RecordSpec) -> Result<Self, BenchError> {
        let lines = match &spec.values {
            ValueSource::Bytes(..) => Vec::new(),
            ValueSource::Lines(path) => {
                let file = File::open(path).map_err(BenchError::file(path))?;
                let mut bytes = Vec::new();
                file.take(LINES_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(BenchError::file(path))?;
                if bytes.is_empty() || bytes.len() as u64 > LINES_BYTES_MAX {
                    let what = if bytes.is_empty() { "no lines in it" } else { "more than 256 MiB" };
                    return Err(BenchError::Usage(format!("{}: {what}", path.display())));
                }
                // The end of a line is not the beginning of another one.
                let lines = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
                lines.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
            }
        };
        let random = Random::new(spec.seed);
        Ok(Self { spec, random, lines, next_line: 0 })
    }

    /// The next value, at least `least` bytes long.
    pub fn value(&mut self, least: usize) -> Vec<u8> {
        match &self.spec.values {
            ValueSource::Bytes(low, high) => {
                let spread = (high - low) as u64 + 1;
                let bytes = (low + self.random.below(spread) as usize).max(least);
                text(&mut self.random, bytes)
            }
            ValueSource::Lines(_) => {
                let mut line = self.lines[self.next_line % self.lines.len()].clone();
                self.next_line += 1;
                line.resize(line.len().max(least), b' ');
                line
            }
        }
    }

    /// The next key.
    pub fn key(&mut self) -> Option<[u8; KEY_BYTES]> {
        Some(key(self.random.below(self.spec.keys?)))
    }

    /// How batches are compressed.
    pub const fn codec(&self) -> TargetCodec {
        TargetCodec::default_of(self.spec.codec)
    }
}

/// Bytes that compress about as log lines do: words of a small vocabulary and numbers.
fn text(random: &mut Random, bytes: usize) -> Vec<u8> {
    const WORDS: [&str; 16] = [
        "request",
        "accepted",
        "from",
        "partition",
        "leader",
        "offset",
        "committed",
        "INFO",
        "latency",
        "bytes",
        "consumer",
        "group",
        "segment",
        "rolled",
        "at",
        "epoch",
    ];
    let mut out = Vec::with_capacity(bytes + 24);
    while out.len() < bytes {
        let dice = random.next_u64();
        match dice & 3 {
            0 => out.extend_from_slice(format!("{:x} ", dice >> 24).as_bytes()),
            _ => {
                out.extend_from_slice(WORDS[(dice >> 2) as usize % WORDS.len()].as_bytes());
                out.push(b' ');
            }
        }
    }
    out.truncate(bytes);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_its_number_in_text() {
        for number in [0, 9, 0xabc, u64::MAX] {
            assert_eq!(key(number)[..], *format!("key-{number:016x}").as_bytes());
        }
    }

    #[test]
    fn the_same_seed_makes_the_same_records() {
        let spec = RecordSpec { values: ValueSource::Bytes(10, 200), keys: Some(5), codec: Compression::None, seed: 7 };
        let (mut one, mut two) = (RecordMaker::new(spec.clone()).unwrap(), RecordMaker::new(spec).unwrap());
        for _ in 0..100 {
            let value = one.value(0);
            assert!((10..=200).contains(&value.len()));
            assert_eq!((value, one.key()), (two.value(0), two.key()));
        }
    }
}
