//! The walk over encoded records, piece by piece.
//!
//! Holds: a state machine that takes the bytes of records in pieces of any size and reports each record's numbers.
//! Never touches: keys' and values' contents; it skips them, so its memory is the same for any batch. No allocation.
//!
//! ```text
//!   Length -> Attributes -> TimestampDelta -> OffsetDelta -> KeyLength ~> ValueLength ~> HeaderCount
//!     ^                                                                                       |
//!     |   (record reported, ~> = skips that many bytes)                                       v
//!     +------------------------------------------------- HeaderValueLength <~ HeaderKeyLength <+ once a header
//! ```

use super::varint::{Partial, VarintError, Width, read_int, read_long};
use core::ops::ControlFlow;

/// What the walk tells about one record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordFacts {
    /// Its place in the batch, from 0.
    pub index: i32,
    /// Its offset, relative to the base offset.
    pub offset_delta: i32,
    /// Its timestamp, relative to the base timestamp.
    pub timestamp_delta: i64,
    /// Bytes of the key; negative for null.
    pub key_bytes: i32,
    /// Bytes of the value; negative for null.
    pub value_bytes: i32,
    /// Bytes after the length field.
    pub body_bytes: i32,
}

/// Why bytes are not the records that the header promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedRecords {
    /// A record's length is negative.
    #[error("record {index} has the negative length {length}")]
    NegativeLength {
        /// Which record.
        index: i32,
        /// Its length field.
        length: i32,
    },
    /// A variable-length number goes on past its width.
    #[error("record {index} holds a number that is too long")]
    Number {
        /// Which record.
        index: i32,
    },
    /// A record's fields and its length disagree.
    #[error("the fields of record {index} do not fill its {body_bytes} bytes exactly")]
    LengthMismatch {
        /// Which record.
        index: i32,
        /// Its length field.
        body_bytes: i32,
    },
    /// A header count that is negative or cannot fit.
    #[error("record {index} says it has {count} headers")]
    HeaderCount {
        /// Which record.
        index: i32,
        /// The count.
        count: i32,
    },
    /// A header without a key.
    #[error("record {index} has a header key of {length} bytes")]
    HeaderKey {
        /// Which record.
        index: i32,
        /// The key's length field.
        length: i32,
    },
    /// The bytes end before the last promised record does.
    #[error("the batch promises {promised} records and ends within or before record {found}")]
    TooFew {
        /// What the header says.
        promised: i32,
        /// Records that were whole.
        found: i32,
    },
    /// Bytes follow the last promised record.
    #[error("bytes follow the last of the {promised} records that the batch promises")]
    Trailing {
        /// What the header says.
        promised: i32,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Length,
    Attributes,
    TimestampDelta,
    OffsetDelta,
    KeyLength,
    ValueLength,
    HeaderCount,
    HeaderKeyLength,
    HeaderValueLength,
}

/// The walk's state between two pieces.
#[derive(Clone, Debug)]
pub struct RecordWalk {
    field: Field,
    number: Partial,
    /// Bytes of a key, value or header still to be skipped.
    skip: u32,
    /// Bytes of the current record not yet accounted for.
    left: u32,
    headers_left: u32,
    facts: RecordFacts,
    promised: i32,
}

impl RecordWalk {
    /// A walk over `promised` records; a negative number promises none.
    #[must_use]
    pub fn new(promised: i32) -> Self {
        Self {
            field: Field::Length,
            number: Partial::default(),
            skip: 0,
            left: 0,
            headers_left: 0,
            facts: RecordFacts::default(),
            promised: promised.max(0),
        }
    }

    /// Records reported so far.
    #[must_use]
    pub const fn records(&self) -> i32 {
        self.facts.index
    }

    /// Walks over the next piece, reporting the records whose numbers become complete in it. Stops early on a break.
    ///
    /// # Errors
    /// When the bytes are not the promised records; the walk is over then.
    pub fn feed(
        &mut self,
        piece: &[u8],
        mut report: impl FnMut(&RecordFacts) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, MalformedRecords> {
        let mut rest = piece;
        loop {
            if self.skip > 0 {
                let skipped = (self.skip as usize).min(rest.len());
                rest = rest.get(skipped..).unwrap_or_default();
                self.skip -= skipped as u32;
            }
            if rest.is_empty() {
                return Ok(ControlFlow::Continue(()));
            }
            if self.field == Field::Length
                && self.number.is_empty()
                && let Some((facts, bytes)) = self.whole_record(rest)
            {
                rest = rest.get(bytes..).unwrap_or_default();
                self.facts.index += 1;
                if report(&facts).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
                continue;
            }
            let consumed = match self.field {
                Field::Length => self.begin(rest)?,
                Field::Attributes => {
                    // No attribute of a record means anything yet; clients may set whatever they like.
                    self.spend(1)?;
                    self.field = Field::TimestampDelta;
                    1
                }
                Field::TimestampDelta => {
                    let (consumed, value) = self.body_number(rest, Width::Long)?;
                    if let Some(value) = value {
                        self.facts.timestamp_delta = value;
                        self.field = Field::OffsetDelta;
                    }
                    consumed
                }
                Field::OffsetDelta => self.int(rest, |walk, value| {
                    walk.facts.offset_delta = value;
                    walk.field = Field::KeyLength;
                    Ok(())
                })?,
                Field::KeyLength => self.int(rest, |walk, value| {
                    walk.facts.key_bytes = value;
                    walk.field = Field::ValueLength;
                    walk.skip_over(value)
                })?,
                Field::ValueLength => self.int(rest, |walk, value| {
                    walk.facts.value_bytes = value;
                    walk.field = Field::HeaderCount;
                    walk.skip_over(value)
                })?,
                Field::HeaderCount => self.int(rest, |walk, count| {
                    // A header takes two bytes or more, so a count that cannot fit is refused before it is believed.
                    match u32::try_from(count) {
                        Ok(wanted) if wanted <= walk.left => walk.headers_left = wanted,
                        _ => {
                            return Err(MalformedRecords::HeaderCount { index: walk.facts.index, count });
                        }
                    }
                    walk.field = Field::HeaderKeyLength;
                    Ok(())
                })?,
                Field::HeaderKeyLength => self.int(rest, |walk, length| {
                    if length < 0 {
                        return Err(MalformedRecords::HeaderKey { index: walk.facts.index, length });
                    }
                    walk.field = Field::HeaderValueLength;
                    walk.skip_over(length)
                })?,
                Field::HeaderValueLength => self.int(rest, |walk, length| {
                    walk.headers_left -= 1;
                    walk.field = Field::HeaderKeyLength;
                    walk.skip_over(length)
                })?,
            };
            rest = rest.get(consumed..).unwrap_or_default();
            if self.field == Field::HeaderKeyLength && self.headers_left == 0 && self.number.is_empty() {
                if self.left != 0 {
                    return Err(self.mismatch());
                }
                let facts = self.facts;
                self.facts.index += 1;
                self.field = Field::Length;
                if report(&facts).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
    }

    /// The record that `rest` starts with, and its length, if all of it is there, and nothing is wrong with it: the usual case,
    /// at a third of the cost. Anything else is for the walk field by field, which says what it is.
    #[inline]
    fn whole_record(&self, rest: &[u8]) -> Option<(RecordFacts, usize)> {
        if self.facts.index >= self.promised {
            return None;
        }
        let (length, prefix) = read_int(rest).ok()?;
        let body = rest.get(prefix..prefix.checked_add(usize::try_from(length).ok()?)?)?;
        let mut at = 1;
        let int = |at: &mut usize| {
            let (value, bytes) = read_int(body.get(*at..)?).ok()?;
            *at += bytes;
            Some(value)
        };
        let (timestamp_delta, bytes) = read_long(body.get(at..)?).ok()?;
        at += bytes;
        let offset_delta = int(&mut at)?;
        let key_bytes = int(&mut at)?;
        // Every negative length means null, not only -1.
        at += usize::try_from(key_bytes).unwrap_or(0);
        let value_bytes = int(&mut at)?;
        at += usize::try_from(value_bytes).unwrap_or(0);
        for _ in 0..u32::try_from(int(&mut at)?).ok()? {
            at += usize::try_from(int(&mut at)?).ok()?;
            at += usize::try_from(int(&mut at)?).unwrap_or(0);
        }
        let facts = RecordFacts {
            index: self.facts.index,
            offset_delta,
            timestamp_delta,
            key_bytes,
            value_bytes,
            body_bytes: length,
        };
        (at == body.len()).then_some((facts, prefix + body.len()))
    }

    /// Ends the walk after the last piece.
    ///
    /// # Errors
    /// When promised records are missing.
    pub fn finish(&self) -> Result<(), MalformedRecords> {
        if self.facts.index == self.promised && self.skip == 0 && self.field == Field::Length && self.number.is_empty()
        {
            return Ok(());
        }
        // The last record is reported before its last header value has been skipped over.
        let cut = i32::from(self.skip > 0 && self.field == Field::Length);
        Err(MalformedRecords::TooFew { promised: self.promised, found: self.facts.index - cut })
    }

    fn begin(&mut self, rest: &[u8]) -> Result<usize, MalformedRecords> {
        if self.facts.index >= self.promised {
            return Err(MalformedRecords::Trailing { promised: self.promised });
        }
        let index = self.facts.index;
        let (consumed, value) =
            self.number.take(rest, Width::Int).map_err(|_: VarintError| MalformedRecords::Number { index })?;
        if let Some(value) = value {
            let length = value as i32;
            self.left = u32::try_from(length).map_err(|_| MalformedRecords::NegativeLength { index, length })?;
            self.facts.body_bytes = length;
            self.field = Field::Attributes;
        }
        Ok(consumed)
    }

    #[inline]
    fn int(
        &mut self,
        rest: &[u8],
        then: impl FnOnce(&mut Self, i32) -> Result<(), MalformedRecords>,
    ) -> Result<usize, MalformedRecords> {
        let (consumed, value) = self.body_number(rest, Width::Int)?;
        if let Some(value) = value {
            then(self, value as i32)?;
        }
        Ok(consumed)
    }

    #[inline]
    fn body_number(&mut self, rest: &[u8], width: Width) -> Result<(usize, Option<i64>), MalformedRecords> {
        let index = self.facts.index;
        let (consumed, value) =
            self.number.take(rest, width).map_err(|_: VarintError| MalformedRecords::Number { index })?;
        self.spend(consumed as u32)?;
        Ok((consumed, value))
    }

    #[inline]
    fn spend(&mut self, bytes: u32) -> Result<(), MalformedRecords> {
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(self.mismatch()),
        }
    }

    #[inline]
    fn skip_over(&mut self, length: i32) -> Result<(), MalformedRecords> {
        // Every negative length means null, not only -1.
        let bytes = u32::try_from(length).unwrap_or(0);
        self.spend(bytes)?;
        self.skip = bytes;
        Ok(())
    }

    fn mismatch(&self) -> MalformedRecords {
        MalformedRecords::LengthMismatch { index: self.facts.index, body_bytes: self.facts.body_bytes }
    }
}
