//! How long the loop's turns take: the histogram of stalls.
//!
//! Holds: turn lengths in nanoseconds. Never touches: the clock.
//!
//! A turn that has more to do is measured from its reap to the next one, so with the handing over of its operations (the
//! kernel sends, and starts writes, in that call). One that sleeps ends where it begins to: its handing over is the same
//! call as its sleep, and can't be told from it.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Longest turn told apart from longer ones.
const TURN_MAX: Duration = Duration::from_secs(60);

/// Turn lengths since the start.
pub(crate) struct Stalls {
    turns: Option<Histogram<u64>>,
    longest: Duration,
}

impl Stalls {
    pub fn new() -> Stalls {
        // Two digits, fixed bounds: about 30 KiB, and recording never allocates.
        let turns = Histogram::new_with_bounds(1, TURN_MAX.as_nanos() as u64, 2).ok();
        debug_assert!(turns.is_some(), "fixed bounds are valid");
        Stalls { turns, longest: Duration::ZERO }
    }

    pub fn record(&mut self, turn: Duration) {
        self.longest = self.longest.max(turn);
        if let Some(turns) = &mut self.turns {
            turns.saturating_record(turn.as_nanos().clamp(1, TURN_MAX.as_nanos()) as u64);
        }
    }

    pub fn snapshot(&self) -> StallSnapshot {
        StallSnapshot { turns: self.turns.clone(), longest: self.longest }
    }
}

/// A copy of the turn lengths at one moment.
#[derive(Clone, Debug)]
pub struct StallSnapshot {
    turns: Option<Histogram<u64>>,
    longest: Duration,
}

impl StallSnapshot {
    /// Turns recorded.
    pub fn turns(&self) -> u64 {
        self.turns.as_ref().map_or(0, Histogram::len)
    }

    /// The length that `percent` percent of turns do not exceed, to two digits.
    pub fn percentile(&self, percent: f64) -> Duration {
        Duration::from_nanos(self.turns.as_ref().map_or(0, |t| t.value_at_percentile(percent)))
    }

    /// The longest turn, exactly.
    pub fn longest(&self) -> Duration {
        self.longest
    }

    /// Turns longer than `limit`, to two digits.
    pub fn longer_than(&self, limit: Duration) -> u64 {
        let Some(turns) = &self.turns else { return 0 };
        let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        turns.iter_recorded().filter(|v| v.value_iterated_to() > limit).map(|v| v.count_since_last_iteration()).sum()
    }

    /// The histogram itself, in nanoseconds.
    pub fn histogram(&self) -> Option<&Histogram<u64>> {
        self.turns.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_counted_by_length() {
        let mut stalls = Stalls::new();
        for _ in 0..98 {
            stalls.record(Duration::from_micros(10));
        }
        stalls.record(Duration::from_millis(50));
        stalls.record(Duration::from_secs(100));
        let seen = stalls.snapshot();
        assert_eq!(seen.turns(), 100);
        assert!(seen.percentile(50.0) < Duration::from_micros(11), "{:?}", seen.percentile(50.0));
        assert_eq!(seen.longest(), Duration::from_secs(100));
        assert_eq!(seen.longer_than(Duration::from_millis(1)), 2);
    }
}
