//! The fields of Kafka's metadata records: its flexible encoding (KIP-482).
//!
//! Holds: a reader over the bytes of one record. Never touches: which fields a record has (`kafka_record`).
//!
//! ```text
//! varint    unsigned, LEB128, at most 5 bytes     string, array   varint of length + 1 (0: null), then content
//! numbers   big-endian                            tagged fields   varint count, each: varint tag, varint size, bytes
//! ```

use corelog_storage::ids::TopicId;
use thiserror::Error;

/// Why bytes are no fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FieldError {
    /// They end too early.
    #[error("it ends too early")]
    Truncated,
    /// A number has too many bytes.
    #[error("a number in it has too many bytes")]
    Number,
    /// A text is not UTF-8.
    #[error("a text in it is not UTF-8")]
    Text,
    /// A field that must be there is null.
    #[error("a field is null that must not be")]
    Null,
    /// Bytes are left over.
    #[error("{0} bytes are left over")]
    LeftOver(usize),
}

/// What is left of a record's bytes.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    /// So many bytes.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], FieldError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(FieldError::Truncated)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], FieldError> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(FieldError::Truncated)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub fn i8(&mut self) -> Result<i8, FieldError> {
        Ok(i8::from_be_bytes(self.array()?))
    }

    pub fn i16(&mut self) -> Result<i16, FieldError> {
        Ok(i16::from_be_bytes(self.array()?))
    }

    pub fn i32(&mut self) -> Result<i32, FieldError> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    pub fn i64(&mut self) -> Result<i64, FieldError> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    pub fn id(&mut self) -> Result<TopicId, FieldError> {
        Ok(TopicId(self.array()?))
    }

    pub fn varint(&mut self) -> Result<u32, FieldError> {
        let mut value = 0_u64;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.array::<1>()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return u32::try_from(value).map_err(|_| FieldError::Number);
            }
        }
        Err(FieldError::Number)
    }

    /// The length of a string or an array; `None` for null.
    fn length(&mut self) -> Result<Option<usize>, FieldError> {
        Ok(self.varint()?.checked_sub(1).map(|length| length as usize))
    }

    pub fn nullable_text(&mut self) -> Result<Option<String>, FieldError> {
        let Some(length) = self.length()? else { return Ok(None) };
        let text = str::from_utf8(self.take(length)?).map_err(|_| FieldError::Text)?;
        Ok(Some(text.to_owned()))
    }

    pub fn text(&mut self) -> Result<String, FieldError> {
        self.nullable_text()?.ok_or(FieldError::Null)
    }

    /// An array, item by item: no length sizes memory before its bytes were there.
    pub fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Result<T, FieldError>) -> Result<Vec<T>, FieldError> {
        let mut items = Vec::new();
        for _ in 0..self.length()?.unwrap_or(0) {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// The tagged fields, which end a structure.
    pub fn tagged(
        &mut self,
        mut each: impl FnMut(u32, Fields<'a>) -> Result<(), FieldError>,
    ) -> Result<(), FieldError> {
        for _ in 0..self.varint()? {
            let (tag, size) = (self.varint()?, self.varint()?);
            each(tag, Fields(self.take(size as usize)?))?;
        }
        Ok(())
    }

    /// The tagged fields that end a record; nothing stands behind them.
    pub fn end(mut self, each: impl FnMut(u32, Fields<'a>) -> Result<(), FieldError>) -> Result<(), FieldError> {
        self.tagged(each)?;
        match self.0.len() {
            0 => Ok(()),
            left => Err(FieldError::LeftOver(left)),
        }
    }
}
