//! Records, decoded: keys, values and headers as slices of the batch.
//!
//! Holds: the iterator over uncompressed records. For validation, which needs no contents, see [`walk`](super::walk).
//! Never touches: compression; decompress first (see [`decompress_all`](super::decompress_all)).

use super::varint::{self, VarintError};
use super::{BatchHeader, TimestampType, walk::MalformedRecords};
use crate::ids::{Offset, Sequence, Timestamp};

/// One record, borrowed from its batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its offset, absolute if the batch's base offset is.
    pub offset: Offset,
    /// Its timestamp; the batch's append time if the broker set it.
    pub timestamp: Timestamp,
    /// Its number in its producer's stream, or [`Sequence::NONE`].
    pub sequence: Sequence,
    /// The key; `None` for null.
    pub key: Option<&'a [u8]>,
    /// The value; `None` for null, which deletes the key on a compacted topic.
    pub value: Option<&'a [u8]>,
    /// The headers, in order.
    pub headers: RecordHeaders<'a>,
}

/// The headers of a record: an iterator over `(key, value)`; keys should be UTF-8 but nobody checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordHeaders<'a> {
    count: i32,
    rest: &'a [u8],
}

impl RecordHeaders<'_> {
    /// How many are left.
    #[must_use]
    pub const fn count_left(&self) -> i32 {
        self.count
    }
}

impl<'a> Iterator for RecordHeaders<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.count <= 0 {
            return None;
        }
        self.count -= 1;
        let mut body = Body { rest: self.rest, index: 0, body_bytes: 0 };
        // The record iterator walked over every header before it handed them out, so neither read can fail.
        let key = body.bytes().ok().flatten()?;
        let value = body.bytes().ok()?;
        self.rest = body.rest;
        Some((key, value))
    }
}

/// Walks over the records of one batch; after an error it ends.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
    header: BatchHeader,
    next_index: i32,
    failed: bool,
}

impl<'a> Records<'a> {
    /// A walk over `payload`: the batch's records, not (or no longer) compressed.
    #[must_use]
    pub const fn new(header: &BatchHeader, payload: &'a [u8]) -> Self {
        Self { rest: payload, header: *header, next_index: 0, failed: false }
    }

    fn record(&mut self) -> Result<Record<'a>, MalformedRecords> {
        let index = self.next_index;
        let promised = self.header.record_count;
        let too_few = MalformedRecords::TooFew { promised, found: index };
        let (length, prefix) = varint::read_int(self.rest).map_err(|error| match error {
            VarintError::Truncated => too_few,
            VarintError::TooLong => MalformedRecords::Number { index },
        })?;
        let bytes = usize::try_from(length).map_err(|_| MalformedRecords::NegativeLength { index, length })?;
        let tail = self.rest.get(prefix..).unwrap_or_default();
        let (Some(record), Some(rest)) = (tail.get(..bytes), tail.get(bytes..)) else {
            return Err(too_few);
        };
        let mut body = Body { rest: record, index, body_bytes: length };
        body.take(1)?;
        let timestamp_delta = body.number(varint::read_long)?;
        let offset_delta = body.number(varint::read_int)?;
        let key = body.bytes()?;
        let value = body.bytes()?;
        let count = body.number(varint::read_int)?;
        if count < 0 || count as usize > body.rest.len() {
            return Err(MalformedRecords::HeaderCount { index, count });
        }
        let headers = RecordHeaders { count, rest: body.rest };
        for _ in 0..count {
            let length = body.number(varint::read_int)?;
            let bytes = usize::try_from(length).map_err(|_| MalformedRecords::HeaderKey { index, length })?;
            body.take(bytes)?;
            body.bytes()?;
        }
        if !body.rest.is_empty() {
            return Err(body.mismatch());
        }
        self.rest = rest;
        self.next_index += 1;
        let header = &self.header;
        Ok(Record {
            // Offsets of a batch that nobody validated may overflow; wrapping keeps this total, as in Kafka.
            offset: Offset(header.base_offset.0.wrapping_add(i64::from(offset_delta))),
            timestamp: record_timestamp(header, timestamp_delta),
            sequence: if header.base_sequence.0 < 0 { Sequence::NONE } else { header.base_sequence.plus(offset_delta) },
            key,
            value,
            headers,
        })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, MalformedRecords>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let promised = self.header.record_count;
        if self.next_index >= promised {
            if self.rest.is_empty() {
                return None;
            }
            self.failed = true;
            return Some(Err(MalformedRecords::Trailing { promised }));
        }
        let item = self.record();
        self.failed = item.is_err();
        Some(item)
    }
}

/// The timestamp of a record with this delta.
#[inline]
pub(super) fn record_timestamp(header: &BatchHeader, timestamp_delta: i64) -> Timestamp {
    match header.attributes.timestamp_type() {
        TimestampType::CreateTime => Timestamp(header.base_timestamp.0.wrapping_add(timestamp_delta)),
        TimestampType::LogAppendTime => header.max_timestamp,
    }
}

type ReadNumber<T> = fn(&[u8]) -> Result<(T, usize), VarintError>;

/// What is left of one record's bytes.
struct Body<'a> {
    rest: &'a [u8],
    index: i32,
    body_bytes: i32,
}

impl<'a> Body<'a> {
    fn number<T>(&mut self, read: ReadNumber<T>) -> Result<T, MalformedRecords> {
        let (value, bytes) = read(self.rest).map_err(|error| match error {
            VarintError::Truncated => self.mismatch(),
            VarintError::TooLong => MalformedRecords::Number { index: self.index },
        })?;
        self.rest = self.rest.get(bytes..).unwrap_or_default();
        Ok(value)
    }

    fn take(&mut self, bytes: usize) -> Result<&'a [u8], MalformedRecords> {
        match (self.rest.get(..bytes), self.rest.get(bytes..)) {
            (Some(taken), Some(rest)) => {
                self.rest = rest;
                Ok(taken)
            }
            _ => Err(self.mismatch()),
        }
    }

    fn bytes(&mut self) -> Result<Option<&'a [u8]>, MalformedRecords> {
        match usize::try_from(self.number(varint::read_int)?) {
            Ok(bytes) => self.take(bytes).map(Some),
            // Every negative length means null, not only -1.
            Err(_) => Ok(None),
        }
    }

    fn mismatch(&self) -> MalformedRecords {
        MalformedRecords::LengthMismatch { index: self.index, body_bytes: self.body_bytes }
    }
}
