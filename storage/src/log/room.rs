//! Whether pre-written room pays for a log, and how much of it.
//!
//! Holds: the log's rate, what its last commits were, the size of the next spare. Never touches: files, the spares
//! themselves (`disk::spare`).
//!
//! A spare costs a second write of every byte that will lie in it, so it has to bring something (decision 0004):
//!
//! | the commits | room |
//! |---|---|
//! | small, written to the segment | pays: a small durable write that makes its file grow costs twice one that does not |
//! | large | does not: what growing costs is spread over hundreds of KiB, the zeroes are not |
//! | through the commit log | does not: the segment follows in large writes |
//! | rare | does not: nobody waits for the next one |

use corelog_reactor::Monotonic;
use std::time::Duration;

/// How often the rate of appends is measured.
const RATE_WINDOW: Duration = Duration::from_millis(200);
/// Sizes of spare segments, by class; class 0 has none, its files grow.
const SPARE_BYTES: [u64; 5] = [0, 1 << 20, 4 << 20, 16 << 20, 64 << 20];
/// Below this many bytes a second a log needs no spares.
const SPARE_RATE_MIN: u64 = 256 << 10;
/// A write of so many bytes costs no more when its file grows by it than zeroes and a write over them do.
const LARGE_BYTES: u64 = 256 << 10;
/// Weight of the newest commit.
const COMMIT_WEIGHT: f32 = 1.0 / 8.0;
/// With more than this share of small direct commits room pays.
const PAYS_FROM: f32 = 0.5;

/// What a log needs in the way of pre-written room.
pub(super) struct RoomDemand {
    since: Monotonic,
    bytes: u64,
    per_second: u64,
    class: usize,
    /// Share of the last commits that were small, and written to the segment.
    small: f32,
}

impl RoomDemand {
    pub(super) const fn new(now: Monotonic) -> Self {
        Self { since: now, bytes: 0, per_second: 0, class: 0, small: 0.0 }
    }

    /// `bytes` were appended.
    pub(super) fn appended(&mut self, bytes: u64, now: Monotonic) {
        self.bytes += bytes;
        let window = now.saturating_since(self.since);
        if window >= RATE_WINDOW {
            let millis = u64::try_from(window.as_millis()).unwrap_or(u64::MAX).max(1);
            self.per_second = self.bytes.saturating_mul(1000) / millis;
            self.bytes = 0;
            self.since = now;
        }
    }

    /// A commit wrote `bytes` to the segment.
    pub(super) fn committed(&mut self, bytes: u64) {
        self.learn(if bytes < LARGE_BYTES { 1.0 } else { 0.0 });
    }

    /// A commit went through the commit log.
    pub(super) fn logged(&mut self) {
        self.learn(0.0);
    }

    fn learn(&mut self, small: f32) {
        self.small += (small - self.small) * COMMIT_WEIGHT;
    }

    /// The size of the next spare, at most `bytes_max`; `None`: none would pay.
    pub(super) fn next_spare(&mut self, bytes_max: u64) -> Option<u64> {
        let rate = self.per_second;
        let wanted = SPARE_BYTES.iter().position(|bytes| rate < *bytes).unwrap_or(SPARE_BYTES.len() - 1);
        // A second's worth; one class up at a time, so that a burst alone costs little.
        let pays = rate >= SPARE_RATE_MIN && self.small > PAYS_FROM;
        self.class = if pays { wanted.clamp(1, self.class + 1) } else { 0 };
        let bytes = *SPARE_BYTES.get(self.class)?;
        (bytes > 0 && bytes <= bytes_max).then_some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log that gets `rate` bytes a second, and asks after some commits.
    fn asked(rate: u64, commits: impl Fn(&mut RoomDemand)) -> Option<u64> {
        let now = Monotonic::ZERO;
        let mut demand = RoomDemand::new(now);
        demand.appended(rate, now + Duration::from_secs(1));
        commits(&mut demand);
        demand.next_spare(64 << 20)
    }

    fn small(demand: &mut RoomDemand) {
        (0..8).for_each(|_| demand.committed(4096));
    }

    #[test]
    fn many_small_commits_want_room_one_class_at_a_time() {
        assert_eq!(asked(100 << 20, small), Some(1 << 20));
        let now = Monotonic::ZERO;
        let mut demand = RoomDemand::new(now);
        demand.appended(100 << 20, now + Duration::from_secs(1));
        small(&mut demand);
        let sizes: Vec<_> = (0..5).map(|_| demand.next_spare(64 << 20)).collect();
        assert_eq!(sizes, [1 << 20, 4 << 20, 16 << 20, 64 << 20, 64 << 20].map(Some));
    }

    #[test]
    fn a_slow_log_wants_none() {
        assert_eq!(asked(SPARE_RATE_MIN - 1, small), None);
    }

    #[test]
    fn large_commits_and_those_through_the_commit_log_want_none() {
        assert_eq!(asked(100 << 20, |demand| (0..8).for_each(|_| demand.committed(LARGE_BYTES))), None);
        assert_eq!(asked(100 << 20, |demand| (0..8).for_each(|_| demand.logged())), None);
        let then_large = |demand: &mut RoomDemand| {
            small(demand);
            (0..8).for_each(|_| demand.committed(LARGE_BYTES));
        };
        assert_eq!(asked(100 << 20, then_large), None);
    }

    #[test]
    fn nothing_is_wanted_before_a_few_commits_have_said_what_they_are() {
        assert_eq!(asked(100 << 20, |demand| (0..5).for_each(|_| demand.committed(4096))), None);
        assert!(asked(100 << 20, |demand| (0..6).for_each(|_| demand.committed(4096))).is_some());
    }
}
