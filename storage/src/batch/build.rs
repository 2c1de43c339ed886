//! Building a batch from records, for our own topics, tests and the load generator.
//!
//! Holds: the encoder of records and the header around them.
//! Never touches: validation; what it builds is valid by construction.

use super::codec::{CompressError, Compressor, TargetCodec};
use super::{Attributes, BatchHeader, HEADER_BYTES, LENGTH_PREFIX_BYTES, TimestampType, crc_of, field, varint};
use crate::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};

/// A header's key and value.
pub type RecordHeader<'a> = (&'a [u8], Option<&'a [u8]>);

/// Why a batch could not be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The codec failed.
    #[error(transparent)]
    Compress(#[from] CompressError),
    /// The batch's length does not fit its field.
    #[error("a batch of {bytes} bytes does not fit its length field")]
    TooLarge {
        /// Bytes it would have.
        bytes: usize,
    },
}

/// A batch under construction. Can be used again after [`build_into`](Self::build_into).
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    target: TargetCodec,
    template: BatchHeader,
    payload: Vec<u8>,
    next_delta: i32,
    base_timestamp: Option<Timestamp>,
    max_timestamp: Timestamp,
    count: i32,
    append_time: Option<Timestamp>,
}

impl BatchBuilder {
    /// An empty batch at offset 0, of no producer, with the records' own timestamps.
    #[must_use]
    pub const fn new(target: TargetCodec) -> Self {
        Self {
            target,
            template: BatchHeader {
                base_offset: Offset::ZERO,
                length: 0,
                leader_epoch: LeaderEpoch::NONE,
                crc: 0,
                attributes: Attributes(0),
                last_offset_delta: 0,
                base_timestamp: Timestamp::NONE,
                max_timestamp: Timestamp::NONE,
                producer_id: ProducerId::NONE,
                producer_epoch: ProducerEpoch::NONE,
                base_sequence: Sequence::NONE,
                record_count: 0,
            },
            payload: Vec::new(),
            next_delta: 0,
            base_timestamp: None,
            max_timestamp: Timestamp::NONE,
            count: 0,
            append_time: None,
        }
    }

    /// Sets base offset and leader epoch.
    #[must_use]
    pub const fn at(mut self, base_offset: Offset, leader_epoch: LeaderEpoch) -> Self {
        self.template.base_offset = base_offset;
        self.template.leader_epoch = leader_epoch;
        self
    }

    /// Makes it a batch of an idempotent producer.
    #[must_use]
    pub const fn producer(mut self, id: ProducerId, epoch: ProducerEpoch, base_sequence: Sequence) -> Self {
        self.template.producer_id = id;
        self.template.producer_epoch = epoch;
        self.template.base_sequence = base_sequence;
        self
    }

    /// Makes it part of a transaction.
    #[must_use]
    pub const fn transactional(mut self) -> Self {
        self.template.attributes = self.template.attributes.with_transactional(true);
        self
    }

    /// Makes it a batch of control records.
    #[must_use]
    pub const fn control(mut self) -> Self {
        self.template.attributes = self.template.attributes.with_control(true);
        self
    }

    /// Makes every record's timestamp the broker's append time.
    #[must_use]
    pub const fn log_append_time(mut self, now: Timestamp) -> Self {
        self.append_time = Some(now);
        self
    }

    /// Appends a record at the next offset.
    pub fn append(
        &mut self,
        timestamp: Timestamp,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[RecordHeader<'_>],
    ) {
        self.append_at(self.next_delta, timestamp, key, value, headers);
    }

    /// Appends a record at a given offset, relative to the base offset: what compaction leaves has gaps.
    ///
    /// # Panics
    /// If the delta does not grow, which is our own mistake.
    pub fn append_at(
        &mut self,
        offset_delta: i32,
        timestamp: Timestamp,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[RecordHeader<'_>],
    ) {
        assert!(offset_delta >= self.next_delta, "offset delta {offset_delta} after {} were used", self.next_delta);
        let base = *self.base_timestamp.get_or_insert(timestamp);
        let timestamp_delta = timestamp.0.wrapping_sub(base.0);
        encode_record(&mut self.payload, offset_delta, timestamp_delta, key, value, headers);
        self.next_delta = offset_delta.saturating_add(1);
        self.max_timestamp = self.max_timestamp.max(timestamp);
        self.count += 1;
    }

    /// Records so far.
    #[must_use]
    pub const fn count(&self) -> i32 {
        self.count
    }

    /// Bytes of the batch if it were not compressed.
    #[must_use]
    pub fn uncompressed_bytes(&self) -> usize {
        HEADER_BYTES + self.payload.len()
    }

    /// The batch's bytes.
    ///
    /// # Errors
    /// When the codec fails or the batch is too large for its length field.
    pub fn build(mut self) -> Result<Vec<u8>, BuildError> {
        let mut out = Vec::new();
        self.build_into(&mut out)?;
        Ok(out)
    }

    /// Appends the batch's bytes to `out` and drops its records; offset, producer and codec stay for the next batch.
    ///
    /// # Errors
    /// As [`build`](Self::build); `out` is then as before.
    pub fn build_into(&mut self, out: &mut Vec<u8>) -> Result<(), BuildError> {
        let start = out.len();
        let result = self.write(out, start);
        if result.is_err() {
            out.truncate(start);
        }
        self.payload.clear();
        (self.next_delta, self.count) = (0, 0);
        (self.base_timestamp, self.max_timestamp) = (None, Timestamp::NONE);
        result
    }

    fn write(&self, out: &mut Vec<u8>, start: usize) -> Result<(), BuildError> {
        out.extend_from_slice(&[0; HEADER_BYTES]);
        let mut compressor = Compressor::new(self.target)?;
        compressor.write(&self.payload, out)?;
        compressor.finish(out)?;
        let kind = if self.append_time.is_some() { TimestampType::LogAppendTime } else { TimestampType::CreateTime };
        let header = BatchHeader {
            attributes: self.template.attributes.with_compression(self.target.codec()).with_timestamp_type(kind),
            last_offset_delta: (self.next_delta - 1).max(0),
            base_timestamp: self.base_timestamp.unwrap_or(Timestamp::NONE),
            max_timestamp: self.append_time.unwrap_or(self.max_timestamp),
            record_count: self.count,
            ..self.template
        };
        seal(out, start, header)
    }
}

/// Writes `header` over the first bytes of the batch that starts at `start` and ends with `out`, its length and CRC computed.
pub(crate) fn seal(out: &mut [u8], start: usize, mut header: BatchHeader) -> Result<(), BuildError> {
    let batch = out.get_mut(start..).unwrap_or_default();
    let bytes = batch.len();
    header.length =
        i32::try_from(bytes.saturating_sub(LENGTH_PREFIX_BYTES)).map_err(|_| BuildError::TooLarge { bytes })?;
    if let Some(slot) = batch.first_chunk_mut::<HEADER_BYTES>() {
        *slot = header.encode();
    }
    let crc = crc_of(batch);
    if let Some(slot) = batch.get_mut(field::CRC..).and_then(|rest| rest.first_chunk_mut()) {
        *slot = crc.to_be_bytes();
    }
    Ok(())
}

fn encode_record(
    out: &mut Vec<u8>,
    offset_delta: i32,
    timestamp_delta: i64,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    headers: &[RecordHeader<'_>],
) {
    let headers_bytes: usize = headers.iter().map(|(key, value)| field_bytes(Some(key)) + field_bytes(*value)).sum();
    let body_bytes = 1
        + varint::long_bytes(timestamp_delta)
        + varint::int_bytes(offset_delta)
        + field_bytes(key)
        + field_bytes(value)
        + varint::int_bytes(headers.len() as i32)
        + headers_bytes;
    varint::write_int(out, body_bytes as i32);
    out.push(0);
    varint::write_long(out, timestamp_delta);
    varint::write_int(out, offset_delta);
    write_field(out, key);
    write_field(out, value);
    varint::write_int(out, headers.len() as i32);
    for (key, value) in headers {
        write_field(out, Some(key));
        write_field(out, *value);
    }
}

fn field_bytes(bytes: Option<&[u8]>) -> usize {
    bytes.map_or(varint::int_bytes(-1), |bytes| varint::int_bytes(bytes.len() as i32) + bytes.len())
}

fn write_field(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => {
            varint::write_int(out, bytes.len() as i32);
            out.extend_from_slice(bytes);
        }
        None => varint::write_int(out, -1),
    }
}

const _: () = assert!(field::CRC < field::ATTRIBUTES, "the CRC must not cover itself");
