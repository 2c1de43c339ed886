//! Writing what stays of a batch.
//!
//! Holds: the walk that copies the surviving records behind their new header. Keys, values, headers, offsets and
//! timestamps pass through untouched; base offset, last offset delta, producer fields and leader epoch stay the
//! batch's. Never touches: which records survive.

use super::filter::Survivors;
use super::records::WholeRecords;
use crate::batch::{
    BatchHeader, BatchView, BuildError, CompressError, Compressor, DecompressScratch, HEADER_BYTES, ScanError,
    ScanState, TargetCodec, seal, varint,
};
use crate::ids::Timestamp;
use std::ops::ControlFlow;

/// Why a batch could not be written anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RewriteError {
    /// Its records cannot be read.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// The new batch cannot be made.
    #[error(transparent)]
    Build(#[from] BuildError),
}

/// The walk under way. The new batch is appended to the buffer that was given.
#[derive(Debug)]
pub struct SurvivorRewrite<'a> {
    records: WholeRecords<'a>,
    survivors: &'a Survivors,
    compressor: Option<Compressor>,
    at: usize,
    start: usize,
    record: Vec<u8>,
}

impl<'a> SurvivorRewrite<'a> {
    /// Starts to write behind what is in `out`. The codec is the batch's, at its default level.
    ///
    /// # Errors
    /// When the codec is unknown or fails to start.
    pub fn new(
        batch: &BatchView<'a>,
        survivors: &'a Survivors,
        decompressed_bytes_max: u64,
        scratch: &'a mut DecompressScratch,
        out: &mut Vec<u8>,
    ) -> Result<Self, RewriteError> {
        let attributes = batch.header.attributes;
        let codec = attributes.compression().ok_or(ScanError::UnknownCodec { id: attributes.compression_id() })?;
        let start = out.len();
        out.extend_from_slice(&[0; HEADER_BYTES]);
        Ok(Self {
            records: WholeRecords::new(batch, decompressed_bytes_max, scratch)?,
            survivors,
            compressor: Some(Compressor::new(TargetCodec::default_of(codec)).map_err(BuildError::from)?),
            at: 0,
            start,
            record: Vec::new(),
        })
    }

    /// Goes on for about `bytes_max` bytes. Whether the batch is done. After an error, what is behind the start of the
    /// batch in
    /// `out` means nothing.
    ///
    /// # Errors
    /// When the records cannot be read or the batch cannot be made.
    pub fn step(&mut self, bytes_max: usize, out: &mut Vec<u8>) -> Result<bool, RewriteError> {
        let Self { records, survivors, compressor, at, record: bytes, .. } = self;
        let Some(target) = compressor else {
            return Ok(true);
        };
        let mut failed: Option<CompressError> = None;
        let state = records.step(bytes_max, |record, source| {
            let stays = survivors.stays.get(*at / 64).is_some_and(|word| word >> (*at % 64) & 1 == 1);
            *at += 1;
            if stays {
                bytes.clear();
                copy(&survivors.header, record.timestamp, source, bytes);
                if let Err(error) = target.write(bytes, out) {
                    failed = Some(error);
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        })?;
        if let Some(error) = failed {
            return Err(BuildError::from(error).into());
        }
        if state != ScanState::Done {
            return Ok(false);
        }
        if let Some(compressor) = self.compressor.take() {
            compressor.finish(out).map_err(BuildError::from)?;
        }
        seal(out, self.start, self.survivors.header)?;
        Ok(true)
    }
}

/// Appends a batch that has a header only.
///
/// # Errors
/// Never: a header fits.
pub fn write_header(header: BatchHeader, out: &mut Vec<u8>) -> Result<(), BuildError> {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_BYTES]);
    seal(out, start, header)
}

/// Appends a record with its timestamp counted from the new base, the rest as it is. `source` was decoded before.
fn copy(header: &BatchHeader, timestamp: Timestamp, source: &[u8], out: &mut Vec<u8>) {
    let delta = timestamp.0.wrapping_sub(header.base_timestamp.0);
    let prefix = varint::read_int(source).map_or(0, |(_, bytes)| bytes);
    let body = source.get(prefix..).unwrap_or_default();
    // The attributes of a record have no meaning: Kafka writes 0.
    let behind_attributes = body.get(1..).unwrap_or_default();
    let old = varint::read_long(behind_attributes).map_or(0, |(_, bytes)| bytes);
    let rest = behind_attributes.get(old..).unwrap_or_default();
    varint::write_int(out, (1 + varint::long_bytes(delta) + rest.len()) as i32);
    out.push(0);
    varint::write_long(out, delta);
    out.extend_from_slice(rest);
}
