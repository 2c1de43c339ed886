//! Writing a validated batch anew: with another codec, or with its offsets put in order.
//!
//! Holds: the rewrite under way. Keys, values, headers, timestamps and producer fields pass through untouched; but where a
//! client falsely set LogAppendTime, every record gets the batch's max timestamp: that is what was judged.
//! Never touches: base offset and leader epoch; they are stamped afterwards, as for any batch.

use super::build::seal;
use super::codec::{Compressor, DecompressScratch, Decompression};
use super::validate::{ProduceError, Validated, ValidationRules};
use super::varint::{self, Partial, VarintError, Width};
use super::{BatchHeader, BatchView, BuildError, Compression, HEADER_BYTES, TimestampType};

/// A rewrite under way. Goes through the same number of slices as the validation did.
#[derive(Debug)]
pub struct Rewrite<'a> {
    stream: Decompression<'a>,
    compressor: Option<Compressor>,
    renumber: Option<Renumber>,
    header: BatchHeader,
    out: Vec<u8>,
    rules: &'a ValidationRules,
}

impl<'a> Rewrite<'a> {
    /// Starts on a batch whose validation asked for it. `None` if it did not.
    ///
    /// # Errors
    /// When the target codec fails to start.
    pub fn new(
        batch: &BatchView<'a>,
        validated: &Validated,
        rules: &'a ValidationRules,
        scratch: &'a mut DecompressScratch,
    ) -> Result<Option<Self>, ProduceError> {
        let Some(plan) = validated.rewrite else {
            return Ok(None);
        };
        let attributes = batch.header.attributes;
        let source = attributes.compression().ok_or(ProduceError::UnknownCodec { id: attributes.compression_id() })?;
        let bytes_max = if source == Compression::None { u64::MAX } else { rules.decompressed_bytes_max };
        let compressor = Compressor::new(plan.target).map_err(|error| ProduceError::Compress { codec: error.codec })?;
        // As Kafka reads such a batch: the records' own deltas mean nothing, whatever they say. They must not come to
        // mean something when the type bit goes, since nobody has judged them.
        let has_append_time = attributes.timestamp_type() == TimestampType::LogAppendTime;
        Ok(Some(Self {
            stream: Decompression::new(source, batch.payload(), bytes_max, scratch),
            compressor: Some(compressor),
            // Where nothing is to be renumbered, the numbers are 0, 1, 2 … already.
            renumber: (plan.renumber || has_append_time).then(|| Renumber { has_append_time, ..Renumber::default() }),
            header: BatchHeader {
                // The base timestamp of new records is no delete horizon.
                attributes: attributes
                    .known()
                    .with_compression(plan.target.codec())
                    .with_timestamp_type(validated.timestamp_type)
                    .with_delete_horizon(false),
                base_timestamp: if has_append_time { batch.header.max_timestamp } else { batch.header.base_timestamp },
                max_timestamp: validated.max_timestamp,
                ..batch.header
            },
            out: vec![0; HEADER_BYTES],
            rules,
        }))
    }

    /// Goes on for about `bytes_max` bytes of the records. `None`: call again. The new batch is checked against the topic's
    /// limits and still has the old base offset and leader epoch.
    ///
    /// # Errors
    /// When the records cannot be read after all, the codec fails, or the new batch exceeds a limit.
    pub fn step(&mut self, bytes_max: usize) -> Result<Option<Vec<u8>>, ProduceError> {
        let input_end = self.stream.consumed().saturating_add(bytes_max);
        let output_end = self.stream.produced().saturating_add(bytes_max as u64);
        let Some(compressor) = &mut self.compressor else {
            return Ok(None);
        };
        while let Some(piece) = self.stream.next_piece(bytes_max)? {
            let result = match &mut self.renumber {
                Some(renumber) => {
                    let renumbered = renumber.feed(piece).map_err(|_| ProduceError::ChangedUnderneath)?;
                    compressor.write(renumbered, &mut self.out)
                }
                None => compressor.write(piece, &mut self.out),
            };
            result.map_err(|error| ProduceError::Compress { codec: error.codec })?;
            if self.stream.consumed() >= input_end || self.stream.produced() >= output_end {
                return Ok(None);
            }
        }
        self.finish().map(Some)
    }

    fn finish(&mut self) -> Result<Vec<u8>, ProduceError> {
        let mut out = core::mem::take(&mut self.out);
        if let Some(compressor) = self.compressor.take() {
            compressor.finish(&mut out).map_err(|error| ProduceError::Compress { codec: error.codec })?;
        }
        self.rules.check_batch_bytes(out.len())?;
        seal(&mut out, 0, self.header).map_err(|error| match error {
            BuildError::Compress(error) => ProduceError::Compress { codec: error.codec },
            BuildError::TooLarge { bytes } => {
                ProduceError::BatchTooLarge { bytes, bytes_max: self.rules.batch_bytes_max }
            }
        })?;
        self.rules.check_segment_bytes(out.len())?;
        Ok(out)
    }
}

/// Gives records the offsets 0, 1, 2 …, and where asked for the base timestamp, piece by piece.
#[derive(Debug, Default)]
struct Renumber {
    /// Every timestamp is the base timestamp.
    has_append_time: bool,
    field: Field,
    number: Partial,
    attributes: u8,
    timestamp_delta: i64,
    left: usize,
    next_delta: i32,
    out: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default)]
enum Field {
    #[default]
    Length,
    Attributes,
    TimestampDelta,
    OffsetDelta,
    Rest,
}

impl Renumber {
    fn feed(&mut self, piece: &[u8]) -> Result<&[u8], VarintError> {
        self.out.clear();
        let mut rest = piece;
        while !rest.is_empty() {
            let consumed = match self.field {
                Field::Length => {
                    let (consumed, value) = self.number.take(rest, Width::Int)?;
                    if let Some(value) = value {
                        self.left = usize::try_from(value).unwrap_or(0);
                        self.field = Field::Attributes;
                    }
                    consumed
                }
                Field::Attributes => {
                    self.attributes = rest.first().copied().unwrap_or(0);
                    self.field = Field::TimestampDelta;
                    self.left = self.left.saturating_sub(1);
                    1
                }
                Field::TimestampDelta => {
                    let (consumed, value) = self.number.take(rest, Width::Long)?;
                    if let Some(value) = value {
                        self.timestamp_delta = if self.has_append_time { 0 } else { value };
                        self.field = Field::OffsetDelta;
                    }
                    self.left = self.left.saturating_sub(consumed);
                    consumed
                }
                Field::OffsetDelta => {
                    let (consumed, value) = self.number.take(rest, Width::Int)?;
                    self.left = self.left.saturating_sub(consumed);
                    if value.is_some() {
                        self.begin_record();
                    }
                    consumed
                }
                Field::Rest => {
                    let bytes = self.left.min(rest.len());
                    self.out.extend_from_slice(rest.get(..bytes).unwrap_or_default());
                    self.left -= bytes;
                    if self.left == 0 {
                        self.field = Field::Length;
                    }
                    bytes
                }
            };
            rest = rest.get(consumed..).unwrap_or_default();
        }
        Ok(&self.out)
    }

    fn begin_record(&mut self) {
        let body = 1 + varint::long_bytes(self.timestamp_delta) + varint::int_bytes(self.next_delta) + self.left;
        varint::write_int(&mut self.out, body as i32);
        self.out.push(self.attributes);
        varint::write_long(&mut self.out, self.timestamp_delta);
        varint::write_int(&mut self.out, self.next_delta);
        self.next_delta += 1;
        self.field = Field::Rest;
    }
}
