//! Arrays that stay in the frame.
//!
//! Holds: a validated array of borrowed elements and its iterator: what keeps Produce and Fetch free of allocation.
//! Never touches: the heap; but its elements count against the message's budget of it ([`ELEMENT_HEAP_BYTES`]).

use std::fmt;

use super::value::{Nullable, Wire, not_null};
use super::{DecodeError, Decoder, Encoder, FieldType};

/// What an element costs whoever handles it: it owns no heap itself, but each partition of a produce or fetch gets an entry in
/// several lists on the way to its answer. It counts against the message's heap budget, so that a request can't name
/// millions.
pub const ELEMENT_HEAP_BYTES: usize = 512;

/// An array read in place: walked once when it is decoded, so that walking it again cannot fail.
///
/// The other direction, a request that a client builds, borrows its elements from a slice ([`LazyArray::from_slice`]).
pub struct LazyArray<'a, T> {
    elements: Elements<'a, T>,
}

enum Elements<'a, T> {
    Frame { bytes: &'a [u8], len: usize, version: i16, flexible: bool },
    Slice(&'a [T]),
}

impl<'a, T> LazyArray<'a, T> {
    /// An array of these elements, for encoding.
    pub const fn from_slice(elements: &'a [T]) -> Self {
        Self { elements: Elements::Slice(elements) }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        match self.elements {
            Elements::Frame { len, .. } => len,
            Elements::Slice(elements) => elements.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<'a, T: Wire<'a> + Clone> LazyArray<'a, T> {
    /// The elements, in order.
    pub fn iter(&self) -> LazyIter<'a, T> {
        LazyIter(match self.elements {
            Elements::Frame { bytes, len, version, flexible } => {
                // The budget was charged for them when they were first decoded.
                let decoder = Decoder::new(bytes, version, flexible).with_heap_bytes_max(usize::MAX);
                Iter::Frame { decoder, left: len }
            }
            Elements::Slice(elements) => Iter::Slice(elements.iter()),
        })
    }
}

impl<T> Clone for LazyArray<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for LazyArray<'_, T> {}

impl<T> Clone for Elements<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Elements<'_, T> {}

impl<T> Default for LazyArray<'_, T> {
    fn default() -> Self {
        Self::from_slice(&[])
    }
}

impl<'a, T: Wire<'a> + Clone + PartialEq> PartialEq for LazyArray<'a, T> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl<'a, T: Wire<'a> + Clone + fmt::Debug> fmt::Debug for LazyArray<'a, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a, T: Wire<'a> + Clone> IntoIterator for LazyArray<'a, T> {
    type Item = T;
    type IntoIter = LazyIter<'a, T>;

    fn into_iter(self) -> LazyIter<'a, T> {
        self.iter()
    }
}

impl<'a, T: Wire<'a> + Clone> IntoIterator for &LazyArray<'a, T> {
    type Item = T;
    type IntoIter = LazyIter<'a, T>;

    fn into_iter(self) -> LazyIter<'a, T> {
        self.iter()
    }
}

/// Iterator over a [`LazyArray`], by value: elements are small bundles of borrows.
#[derive(Clone)]
pub struct LazyIter<'a, T>(Iter<'a, T>);

#[derive(Clone)]
enum Iter<'a, T> {
    Frame { decoder: Decoder<'a>, left: usize },
    Slice(std::slice::Iter<'a, T>),
}

impl<'a, T: Wire<'a> + Clone> Iterator for LazyIter<'a, T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        match &mut self.0 {
            Iter::Slice(elements) => elements.next().cloned(),
            Iter::Frame { decoder, left } => {
                *left = left.checked_sub(1)?;
                match T::decode(decoder) {
                    Ok(element) => Some(element),
                    // The same bytes were decoded in the same version before: only a mistake of ours leads here.
                    Err(error) => panic!("an array that was valid is not any more: {error}"),
                }
            }
        }
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = match &self.0 {
            Iter::Frame { left, .. } => *left,
            Iter::Slice(elements) => elements.len(),
        };
        (left, Some(left))
    }
}

impl<'a, T: Wire<'a> + Clone> ExactSizeIterator for LazyIter<'a, T> {}

impl<'a, T: Wire<'a> + Clone> Wire<'a> for LazyArray<'a, T> {
    const TYPE: &'static FieldType = &FieldType::Lazy(T::TYPE);

    #[inline]
    fn decode(d: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        let array = Self::decode_nullable(d)?;
        not_null(d, array)
    }

    #[inline]
    fn encode(&self, e: &mut Encoder) {
        Self::encode_nullable(Some(self), e);
    }

    #[inline]
    fn min_size(version: i16, flexible: bool) -> usize {
        Self::min_size_nullable(version, flexible)
    }
}

impl<'a, T: Wire<'a> + Clone> Nullable<'a> for LazyArray<'a, T> {
    fn decode_nullable(d: &mut Decoder<'a>) -> Result<Option<Self>, DecodeError> {
        let (version, flexible) = (d.version(), d.flexible());
        let Some(len) = d.array_len(T::min_size(version, flexible))? else {
            return Ok(None);
        };
        // Before they are looked at: what is too much is refused at once.
        d.charge(len.saturating_mul(ELEMENT_HEAP_BYTES))?;
        let start = d.rest();
        for _ in 0..len {
            T::decode(d)?;
        }
        let (bytes, _) = start.split_at(start.len() - d.rest().len());
        Ok(Some(Self { elements: Elements::Frame { bytes, len, version, flexible } }))
    }

    fn encode_nullable(value: Option<&Self>, e: &mut Encoder) {
        e.long_len(value.map(Self::len));
        for element in value.into_iter().flatten() {
            element.encode(e);
        }
    }

    #[inline]
    fn min_size_nullable(_version: i16, flexible: bool) -> usize {
        if flexible { 1 } else { 4 }
    }
}
