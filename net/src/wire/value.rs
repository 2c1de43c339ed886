//! How each kind of field appears on the wire.
//!
//! Holds: [`Wire`] and [`Nullable`] and their implementations for Rust's own types.
//! Never touches: structures (see [`super::message`]).

use super::decoder::DecodeErrorKind;
use super::{DecodeError, Decoder, Encoder, ErrorCode, FieldType, Uuid};

/// A value that has a place in a message. `'a` is the frame it is borrowed from.
pub trait Wire<'a>: Sized {
    /// The layout, as data.
    const TYPE: &'static FieldType;

    /// Reads the value in the decoder's version.
    ///
    /// # Errors
    /// Bytes that don't hold such a value; see [`DecodeErrorKind`].
    fn decode(d: &mut Decoder<'a>) -> Result<Self, DecodeError>;

    /// Writes the value in the encoder's version.
    fn encode(&self, e: &mut Encoder);

    /// Bytes that no encoding of this type in this version goes below: what a claimed count is held against.
    fn min_size(version: i16, flexible: bool) -> usize;
}

/// A value that has a null beside it on the wire, so that `Option` of it is a [`Wire`] type.
pub trait Nullable<'a>: Wire<'a> {
    /// The layout of the nullable form.
    const NULLABLE_TYPE: &'static FieldType = &FieldType::Nullable(Self::TYPE);

    /// Reads the value or null.
    ///
    /// # Errors
    /// As [`Wire::decode`].
    fn decode_nullable(d: &mut Decoder<'a>) -> Result<Option<Self>, DecodeError>;

    /// Writes the value or null.
    fn encode_nullable(value: Option<&Self>, e: &mut Encoder);

    /// As [`Wire::min_size`], for the nullable form.
    fn min_size_nullable(version: i16, flexible: bool) -> usize;
}

impl<'a, T: Nullable<'a>> Wire<'a> for Option<T> {
    const TYPE: &'static FieldType = T::NULLABLE_TYPE;

    #[inline]
    fn decode(d: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        T::decode_nullable(d)
    }

    #[inline]
    fn encode(&self, e: &mut Encoder) {
        T::encode_nullable(self.as_ref(), e);
    }

    #[inline]
    fn min_size(version: i16, flexible: bool) -> usize {
        T::min_size_nullable(version, flexible)
    }
}

/// The value of a nullable reading, where null isn't allowed.
#[inline]
pub(super) fn not_null<T>(d: &Decoder<'_>, value: Option<T>) -> Result<T, DecodeError> {
    value.ok_or_else(|| d.error(DecodeErrorKind::Null { version: d.version() }))
}

macro_rules! numbers {
    ($($ty:ty: $layout:expr;)*) => {$(
        impl<'a> Wire<'a> for $ty {
            const TYPE: &'static FieldType = &$layout;

            #[inline]
            fn decode(d: &mut Decoder<'a>) -> Result<Self, DecodeError> {
                Ok(<$ty>::from_be_bytes(d.array()?))
            }

            #[inline]
            fn encode(&self, e: &mut Encoder) {
                e.put(&self.to_be_bytes());
            }

            #[inline]
            fn min_size(_version: i16, _flexible: bool) -> usize {
                size_of::<$ty>()
            }
        }
    )*};
}

numbers! {
    i8: FieldType::Int(1);
    i16: FieldType::Int(2);
    u16: FieldType::Int(2);
    i32: FieldType::Int(4);
    i64: FieldType::Int(8);
    f64: FieldType::Float64;
}

impl<'a> Wire<'a> for bool {
    const TYPE: &'static FieldType = &FieldType::Bool;

    #[inline]
    fn decode(d: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        let [byte] = d.array()?;
        Ok(byte != 0)
    }

    #[inline]
    fn encode(&self, e: &mut Encoder) {
        e.put(&[u8::from(*self)]);
    }

    #[inline]
    fn min_size(_version: i16, _flexible: bool) -> usize {
        1
    }
}

impl<'a> Wire<'a> for ErrorCode {
    const TYPE: &'static FieldType = &FieldType::ErrorCode;

    /// A code we don't know reads as [`ErrorCode::UnknownServerError`], as Kafka's clients do.
    #[inline]
    fn decode(d: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        Ok(Self::try_from(i16::decode(d)?).unwrap_or(Self::UnknownServerError))
    }

    #[inline]
    fn encode(&self, e: &mut Encoder) {
        self.code().encode(e);
    }

    #[inline]
    fn min_size(_version: i16, _flexible: bool) -> usize {
        2
    }
}

impl<'a> Wire<'a> for Uuid {
    const TYPE: &'static FieldType = &FieldType::Uuid;

    #[inline]
    fn decode(d: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        Ok(Self(d.array()?))
    }

    #[inline]
    fn encode(&self, e: &mut Encoder) {
        e.put(&self.0);
    }

    #[inline]
    fn min_size(_version: i16, _flexible: bool) -> usize {
        16
    }
}

// Strings, bytes and arrays: the plain form is the nullable one without its null.
macro_rules! not_null_form {
    () => {
        #[inline]
        fn decode(d: &mut Decoder<'a>) -> Result<Self, DecodeError> {
            let value = Self::decode_nullable(d)?;
            not_null(d, value)
        }

        #[inline]
        fn encode(&self, e: &mut Encoder) {
            Self::encode_nullable(Some(self), e);
        }

        #[inline]
        fn min_size(version: i16, flexible: bool) -> usize {
            Self::min_size_nullable(version, flexible)
        }
    };
}

impl<'a> Wire<'a> for &'a str {
    const TYPE: &'static FieldType = &FieldType::String;
    not_null_form!();
}

impl<'a> Nullable<'a> for &'a str {
    #[inline]
    fn decode_nullable(d: &mut Decoder<'a>) -> Result<Option<Self>, DecodeError> {
        match d.string_len()? {
            None => Ok(None),
            Some(len) => d.text(len).map(Some),
        }
    }

    #[inline]
    fn encode_nullable(value: Option<&Self>, e: &mut Encoder) {
        e.string_len(value.map(|text| text.len()));
        e.put(value.map_or(&[], |text| text.as_bytes()));
    }

    #[inline]
    fn min_size_nullable(_version: i16, flexible: bool) -> usize {
        if flexible { 1 } else { 2 }
    }
}

impl<'a> Wire<'a> for &'a [u8] {
    const TYPE: &'static FieldType = &FieldType::Bytes;
    not_null_form!();
}

impl<'a> Nullable<'a> for &'a [u8] {
    #[inline]
    fn decode_nullable(d: &mut Decoder<'a>) -> Result<Option<Self>, DecodeError> {
        match d.long_len()? {
            None => Ok(None),
            Some(len) => d.take(len).map(Some),
        }
    }

    #[inline]
    fn encode_nullable(value: Option<&Self>, e: &mut Encoder) {
        e.long_len(value.map(|bytes| bytes.len()));
        e.put(value.copied().unwrap_or_default());
    }

    #[inline]
    fn min_size_nullable(_version: i16, flexible: bool) -> usize {
        if flexible { 1 } else { 4 }
    }
}

impl<'a, T: Wire<'a>> Wire<'a> for Vec<T> {
    const TYPE: &'static FieldType = &FieldType::Array(T::TYPE);
    not_null_form!();
}

impl<'a, T: Wire<'a>> Nullable<'a> for Vec<T> {
    fn decode_nullable(d: &mut Decoder<'a>) -> Result<Option<Self>, DecodeError> {
        let element_bytes_min = T::min_size(d.version(), d.flexible());
        let Some(len) = d.array_len(element_bytes_min)? else {
            return Ok(None);
        };
        // The count has been held against the bytes there are; now against the heap the message may take.
        d.charge(len.saturating_mul(size_of::<T>()))?;
        let mut elements = Vec::with_capacity(len);
        for _ in 0..len {
            elements.push(T::decode(d)?);
        }
        Ok(Some(elements))
    }

    fn encode_nullable(value: Option<&Self>, e: &mut Encoder) {
        e.long_len(value.map(Vec::len));
        for element in value.into_iter().flatten() {
            element.encode(e);
        }
    }

    #[inline]
    fn min_size_nullable(_version: i16, flexible: bool) -> usize {
        if flexible { 1 } else { 4 }
    }
}
