//! The number types of a partition log: one type per kind of number.
//!
//! Holds: offsets, epochs, sequences, ids and timestamps as distinct types, and the only arithmetic that makes sense on each.
//! Never touches: bytes, clocks, files.
//!
//! Two offsets do not add; an offset plus a distance does:
//!
//! ```compile_fail
//! use corelog_storage::ids::Offset;
//! let _ = Offset(1) + Offset(2);
//! ```

use core::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// The bare number, for encoding.
            #[inline]
            #[must_use]
            pub const fn get(self) -> $inner {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

number! {
    /// The position of a record in a partition, counted from 0. `-1` means "none" where Kafka says so.
    Offset(i64)
}
number! {
    /// How many times leadership of a partition has changed. `-1` means "unknown".
    LeaderEpoch(i32)
}
number! {
    /// The id of an idempotent or transactional producer. `-1` means "not idempotent".
    ProducerId(i64)
}
number! {
    /// The incarnation of a producer id; a higher epoch fences the lower ones. `-1` means "none".
    ProducerEpoch(i16)
}
number! {
    /// A record's number in its producer's stream to one partition. Wraps from `i32::MAX` to 0; `-1` means "none".
    Sequence(i32)
}
number! {
    /// A partition's number within its topic.
    PartitionIndex(i32)
}
number! {
    /// Milliseconds since the Unix epoch. `-1` means "none".
    Timestamp(i64)
}

impl Offset {
    /// The first offset of every partition.
    pub const ZERO: Self = Self(0);
    /// "No offset", as Kafka writes it.
    pub const NONE: Self = Self(-1);

    /// The offset `n` records further on (or back, if negative). `None` past the end of the number range.
    #[inline]
    #[must_use]
    pub const fn plus(self, n: i64) -> Option<Self> {
        match self.0.checked_add(n) {
            Some(v) => Some(Self(v)),
            None => None,
        }
    }

    /// The offset right after this one; stays at `i64::MAX`, which no log reaches.
    #[inline]
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// How many offsets lie between `earlier` and this one; negative if `earlier` is later.
    #[inline]
    #[must_use]
    pub const fn distance_from(self, earlier: Self) -> i64 {
        self.0.wrapping_sub(earlier.0)
    }
}

/// Moves an offset by a distance. Overflow is our own mistake (no log holds 2^63 records), so it asserts.
impl core::ops::Add<i64> for Offset {
    type Output = Self;

    #[inline]
    fn add(self, n: i64) -> Self {
        let sum = self.0.checked_add(n);
        assert!(sum.is_some(), "offset {self} + {n} leaves the number range");
        Self(sum.unwrap_or(i64::MAX))
    }
}

/// The distance between two offsets.
impl core::ops::Sub for Offset {
    type Output = i64;

    #[inline]
    fn sub(self, earlier: Self) -> i64 {
        self.distance_from(earlier)
    }
}

impl LeaderEpoch {
    /// "Unknown epoch", as Kafka writes it.
    pub const NONE: Self = Self(-1);
}

impl ProducerId {
    /// "Not an idempotent producer".
    pub const NONE: Self = Self(-1);

    /// Whether a batch with this id takes part in idempotence. Every negative id means "none", as in Kafka.
    #[inline]
    #[must_use]
    pub const fn is_some(self) -> bool {
        self.0 > Self::NONE.0
    }
}

impl ProducerEpoch {
    /// "No epoch".
    pub const NONE: Self = Self(-1);
}

impl Sequence {
    /// "No sequence": the batch is not idempotent, or is a control batch.
    pub const NONE: Self = Self(-1);
    /// The first sequence of a producer epoch.
    pub const ZERO: Self = Self(0);

    /// The sequence `n` records further on. After `i32::MAX` comes 0.
    ///
    /// `n` is a last-offset delta or a record count, never negative when it comes from a validated batch;
    /// for a negative `n` the result is unspecified but defined (no panic).
    #[inline]
    #[must_use]
    pub const fn plus(self, n: i32) -> Self {
        if self.0 > i32::MAX.wrapping_sub(n) {
            Self(n.wrapping_sub(i32::MAX.wrapping_sub(self.0)).wrapping_sub(1))
        } else {
            Self(self.0.wrapping_add(n))
        }
    }

    /// The sequence `n` records back. Before 0 comes `i32::MAX`.
    #[inline]
    #[must_use]
    pub const fn minus(self, n: i32) -> Self {
        if self.0 < n {
            Self(i32::MAX.wrapping_sub(n.wrapping_sub(self.0)).wrapping_add(1))
        } else {
            Self(self.0.wrapping_sub(n))
        }
    }
}

impl Timestamp {
    /// "No timestamp".
    pub const NONE: Self = Self(-1);
}

/// The immutable id of a topic (KIP-516): 16 bytes, shown as Kafka shows it, in URL-safe base64 without padding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct TopicId(pub [u8; 16]);

impl TopicId {
    /// The all-zero id, which Kafka uses for "no id given".
    pub const ZERO: Self = Self([0; 16]);
}

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let number = u128::from_be_bytes(self.0);
        // 128 bits are 21 whole sextets and two bits; the last digit carries those two, left-aligned.
        for digit in 0..22_u32 {
            let sextet = if digit < 21 { (number >> (122 - 6 * digit)) & 63 } else { (number & 3) << 4 };
            let character = DIGITS.get(sextet as usize).copied().unwrap_or(b'?');
            fmt::Write::write_char(f, char::from(character))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_sequence_after_the_largest_is_zero() {
        assert_eq!(Sequence(i32::MAX).plus(1), Sequence(0));
        assert_eq!(Sequence(i32::MAX - 1).plus(3), Sequence(1));
        assert_eq!(Sequence(0).minus(1), Sequence(i32::MAX));
    }

    #[test]
    fn a_topic_id_is_shown_in_url_safe_base64() {
        assert_eq!(TopicId::ZERO.to_string(), "AAAAAAAAAAAAAAAAAAAAAA");
        assert_eq!(TopicId([0xff; 16]).to_string(), "_____________________w");
        let counting: [u8; 16] = core::array::from_fn(|i| i as u8);
        assert_eq!(TopicId(counting).to_string(), "AAECAwQFBgcICQoLDA0ODw");
    }

    #[test]
    #[should_panic(expected = "leaves the number range")]
    fn an_offset_past_the_number_range_is_our_own_mistake() {
        let _ = Offset(i64::MAX) + 1;
    }

    proptest! {
        #[test]
        fn sequences_go_round_a_circle_of_two_to_the_31(start in 0..=i32::MAX, n in 0..=i32::MAX) {
            let moved = Sequence(start).plus(n);
            let expected = (i64::from(start) + i64::from(n)) % (1_i64 << 31);
            prop_assert_eq!(i64::from(moved.0), expected);
            prop_assert_eq!(moved.minus(n), Sequence(start));
        }
    }
}
