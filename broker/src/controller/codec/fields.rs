//! What records are made of: numbers, texts, lists, options.
//!
//! Holds: the writing of each, and the checked reading. Never touches: which fields a record has (the room above).

use corelog_storage::ids::{LeaderEpoch, PartitionIndex, TopicId};

use super::super::record::Endpoint;
use super::DecodeError;

pub(super) fn put_length(out: &mut Vec<u8>, length: usize) {
    let number = u32::try_from(length);
    assert!(number.is_ok(), "a metadata record holds {length} of something");
    let mut number = number.unwrap_or(u32::MAX);
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    put_length(out, text.len());
    out.extend_from_slice(text.as_bytes());
}

pub(super) fn put_option<T>(out: &mut Vec<u8>, option: Option<T>, put: impl FnOnce(&mut Vec<u8>, T)) {
    match option {
        None => out.push(0),
        Some(value) => {
            out.push(1);
            put(out, value);
        }
    }
}

pub(super) fn put_ids(out: &mut Vec<u8>, ids: &[i32]) {
    put_length(out, ids.len());
    for id in ids {
        out.extend_from_slice(&id.to_be_bytes());
    }
}

pub(super) fn put_partition(out: &mut Vec<u8>, topic: TopicId, partition: PartitionIndex) {
    out.extend_from_slice(&topic.0);
    out.extend_from_slice(&partition.0.to_be_bytes());
}

pub(super) fn put_epochs(out: &mut Vec<u8>, leader_epoch: LeaderEpoch, partition_epoch: i32) {
    out.extend_from_slice(&leader_epoch.0.to_be_bytes());
    out.extend_from_slice(&partition_epoch.to_be_bytes());
}

/// What is left to read.
pub(super) struct Input<'a>(pub(super) &'a [u8]);

impl<'a> Input<'a> {
    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        match self.0.split_at_checked(len) {
            Some((taken, rest)) => {
                self.0 = rest;
                Ok(taken)
            }
            None => Err(DecodeError::Truncated { missing: len - self.0.len() }),
        }
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        match self.0.split_first_chunk::<N>() {
            Some((taken, rest)) => {
                self.0 = rest;
                Ok(*taken)
            }
            None => Err(DecodeError::Truncated { missing: N - self.0.len() }),
        }
    }

    pub(super) fn u8(&mut self) -> Result<u8, DecodeError> {
        self.array().map(u8::from_be_bytes)
    }

    pub(super) fn i16(&mut self) -> Result<i16, DecodeError> {
        self.array().map(i16::from_be_bytes)
    }

    pub(super) fn i32(&mut self) -> Result<i32, DecodeError> {
        self.array().map(i32::from_be_bytes)
    }

    pub(super) fn i64(&mut self) -> Result<i64, DecodeError> {
        self.array().map(i64::from_be_bytes)
    }

    pub(super) fn length(&mut self) -> Result<usize, DecodeError> {
        let mut number: u32 = 0;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.u8()?;
            let digits = u32::from(byte & 0x7f);
            if shift == 28 && digits > 0x0f {
                return Err(DecodeError::MalformedLength);
            }
            number |= digits << shift;
            if byte & 0x80 == 0 {
                return usize::try_from(number).map_err(|_| DecodeError::MalformedLength);
            }
        }
        Err(DecodeError::MalformedLength)
    }

    pub(super) fn text(&mut self) -> Result<&'a str, DecodeError> {
        let len = self.length()?;
        std::str::from_utf8(self.take(len)?).map_err(|_| DecodeError::MalformedText)
    }

    pub(super) fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, DecodeError> {
        match self.u8()? {
            0 => Ok(None),
            1 => read(self).map(Some),
            other => Err(DecodeError::MalformedOption(other)),
        }
    }

    pub(super) fn list<T>(
        &mut self,
        read: impl Fn(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let count = self.length()?;
        // Grows with what is really there: every item takes at least a byte.
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(read(self)?);
        }
        Ok(items)
    }

    pub(super) fn endpoint(&mut self) -> Result<Endpoint, DecodeError> {
        Ok(Endpoint {
            listener: self.text()?.to_owned(),
            host: self.text()?.to_owned(),
            port: self.array().map(u16::from_be_bytes)?,
            security_protocol: self.i16()?,
        })
    }

    pub(super) fn end(&self) -> Result<(), DecodeError> {
        match self.0.len() {
            0 => Ok(()),
            left => Err(DecodeError::TrailingBytes(left)),
        }
    }
}
