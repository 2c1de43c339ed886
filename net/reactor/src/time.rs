//! Points in time as the loop hands them out.
//!
//! Holds: the monotonic clock's type and the wall clock's type. Never touches: a clock (drivers read those).

use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// Nanoseconds on a clock that never goes back; its zero means nothing (boot time, or the start of a simulation).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Monotonic(u64);

impl Monotonic {
    /// The clock's zero.
    pub const ZERO: Monotonic = Monotonic(0);
    /// A point that never comes.
    pub const MAX: Monotonic = Monotonic(u64::MAX);

    /// A point `nanos` nanoseconds after the clock's zero.
    pub const fn from_nanos(nanos: u64) -> Monotonic {
        Monotonic(nanos)
    }

    /// Nanoseconds since the clock's zero.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time passed since `earlier`; zero when `earlier` is the later one.
    pub const fn saturating_since(self, earlier: Monotonic) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// This point moved on by `by`, stopping at [`Monotonic::MAX`].
    pub fn saturating_add(self, by: Duration) -> Monotonic {
        Monotonic(self.0.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Add<Duration> for Monotonic {
    type Output = Monotonic;
    /// Saturates: a deadline beyond the clock's range is one that never comes.
    fn add(self, by: Duration) -> Monotonic {
        self.saturating_add(by)
    }
}

impl AddAssign<Duration> for Monotonic {
    fn add_assign(&mut self, by: Duration) {
        *self = *self + by;
    }
}

impl Sub for Monotonic {
    type Output = Duration;
    /// Saturates at zero.
    fn sub(self, earlier: Monotonic) -> Duration {
        self.saturating_since(earlier)
    }
}

impl fmt::Debug for Monotonic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

/// Milliseconds since 1970-01-01 UTC: what record timestamps use. May jump when the host's clock is set.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct UnixMillis(pub i64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_since_a_later_point_is_zero() {
        let early = Monotonic::from_nanos(5);
        let late = early + Duration::from_nanos(7);
        assert_eq!(late.saturating_since(early), Duration::from_nanos(7));
        assert_eq!(early.saturating_since(late), Duration::ZERO);
    }

    #[test]
    fn a_deadline_past_the_clocks_range_is_the_last_point() {
        assert_eq!(Monotonic::from_nanos(1) + Duration::MAX, Monotonic::MAX);
    }
}
