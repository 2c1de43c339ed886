//! Going through the whole records of one batch, in slices.
//!
//! Holds: decompression, joined with the collection of what a piece cuts in two. The memory besides the batch and the
//! codec's is one record. Never touches: what is done with the records.

use crate::batch::varint::{self, VarintError};
use crate::batch::{
    BatchHeader, BatchView, Compression, DecompressScratch, Decompression, MalformedRecords, Record, Records,
    ScanError, ScanState,
};
use core::ops::ControlFlow;

/// The walk under way.
#[derive(Debug)]
pub struct WholeRecords<'a> {
    stream: Decompression<'a>,
    records: Collector,
}

/// What the records are put together in.
#[derive(Debug)]
struct Collector {
    /// The batch's, promising one record: they are decoded one by one.
    header: BatchHeader,
    promised: i32,
    seen: i32,
    /// The record of which some bytes are still to come.
    cut: Vec<u8>,
}

impl<'a> WholeRecords<'a> {
    /// Starts on a batch whose records decompress to at most `bytes_max` bytes.
    ///
    /// # Errors
    /// When the codec is unknown.
    pub fn new(batch: &BatchView<'a>, bytes_max: u64, scratch: &'a mut DecompressScratch) -> Result<Self, ScanError> {
        let attributes = batch.header.attributes;
        let codec = attributes.compression().ok_or(ScanError::UnknownCodec { id: attributes.compression_id() })?;
        let bytes_max = if codec == Compression::None { u64::MAX } else { bytes_max };
        // A batch that a compaction has emptied has no payload at all, whatever its codec.
        let payload = if batch.header.record_count == 0 { &[] } else { batch.payload() };
        let codec = if batch.header.record_count == 0 { Compression::None } else { codec };
        Ok(Self {
            stream: Decompression::new(codec, payload, bytes_max, scratch),
            records: Collector {
                header: BatchHeader { record_count: 1, ..batch.header },
                promised: batch.header.record_count,
                seen: 0,
                cut: Vec::new(),
            },
        })
    }

    /// Goes on for about `bytes_max` bytes. `see` is given each record with its bytes, the length in front included.
    ///
    /// # Errors
    /// When the records cannot be read; the walk is over then.
    pub fn step(
        &mut self,
        bytes_max: usize,
        mut see: impl FnMut(&Record<'_>, &[u8]) -> ControlFlow<()>,
    ) -> Result<ScanState, ScanError> {
        let input_end = self.stream.consumed().saturating_add(bytes_max);
        let output_end = self.stream.produced().saturating_add(bytes_max as u64);
        loop {
            let left = usize::try_from(output_end.saturating_sub(self.stream.produced())).unwrap_or(usize::MAX);
            let Some(piece) = self.stream.next_piece(left)? else {
                self.records.finish()?;
                return Ok(ScanState::Done);
            };
            if self.records.feed(piece, &mut see)?.is_break() {
                return Ok(ScanState::Stopped);
            }
            if self.stream.consumed() >= input_end || self.stream.produced() >= output_end {
                return Ok(ScanState::Pending);
            }
        }
    }
}

impl Collector {
    fn feed(
        &mut self,
        piece: &[u8],
        see: &mut impl FnMut(&Record<'_>, &[u8]) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, MalformedRecords> {
        let mut rest = piece;
        while !rest.is_empty() {
            if self.seen >= self.promised {
                return Err(MalformedRecords::Trailing { promised: self.promised });
            }
            if self.cut.is_empty() {
                let Some((record, behind)) = self.bytes_of(rest)?.and_then(|bytes| rest.split_at_checked(bytes)) else {
                    self.cut.extend_from_slice(rest);
                    return Ok(ControlFlow::Continue(()));
                };
                rest = behind;
                if self.hand_out(record, see)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
                continue;
            }
            // Its length may itself be cut: then byte by byte.
            let wanted = self.bytes_of(&self.cut)?.map_or(1, |bytes| bytes.saturating_sub(self.cut.len()));
            let (taken, behind) = rest.split_at(wanted.min(rest.len()));
            self.cut.extend_from_slice(taken);
            rest = behind;
            if self.bytes_of(&self.cut)? == Some(self.cut.len()) {
                let record = core::mem::take(&mut self.cut);
                let flow = self.hand_out(&record, see)?;
                self.cut = record;
                self.cut.clear();
                if flow.is_break() {
                    return Ok(flow);
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Bytes of the record that `bytes` start with, once its length is there.
    fn bytes_of(&self, bytes: &[u8]) -> Result<Option<usize>, MalformedRecords> {
        let index = self.seen;
        match varint::read_int(bytes) {
            Ok((length, prefix)) => match usize::try_from(length) {
                Ok(body) => Ok(Some(prefix + body)),
                Err(_) => Err(MalformedRecords::NegativeLength { index, length }),
            },
            Err(VarintError::Truncated) => Ok(None),
            Err(VarintError::TooLong) => Err(MalformedRecords::Number { index }),
        }
    }

    fn hand_out(
        &mut self,
        bytes: &[u8],
        see: &mut impl FnMut(&Record<'_>, &[u8]) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, MalformedRecords> {
        let too_few = MalformedRecords::TooFew { promised: self.promised, found: self.seen };
        let record = Records::new(&self.header, bytes).next().ok_or(too_few)??;
        self.seen += 1;
        Ok(see(&record, bytes))
    }

    fn finish(&self) -> Result<(), MalformedRecords> {
        if self.seen == self.promised && self.cut.is_empty() {
            return Ok(());
        }
        Err(MalformedRecords::TooFew { promised: self.promised, found: self.seen })
    }
}
