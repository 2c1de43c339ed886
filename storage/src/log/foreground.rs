//! How long commits take while nothing else is done, and how many are slower beside background work.
//!
//! Holds: the times of commits that had the core and the disk to themselves; the count of slow ones since it was last
//! asked for. Never touches: the clock (the caller brings times), what background work does about it (`compaction::pace`).
//!
//! A commit is *undisturbed* if it began when background work had rested for a while. What is compared is the
//! tail: a commit is *slow* if it takes a quarter longer than 99 of 100 undisturbed ones. As long as no more than one of a
//! hundred is slow, the 99th percentile beside background work is within that quarter.

use corelog_reactor::Monotonic;
use hdrhistogram::Histogram;
use std::cell::{Cell, RefCell};
use std::time::Duration;

/// How long after background work's last step it is still felt: the disk has what was written in its cache.
const FELT: Duration = Duration::from_millis(10);
/// Longer times are not told apart.
const LONGEST_US: u64 = 60_000_000;
/// Undisturbed commits that are counted before those that were counted earlier are forgotten.
const COUNTED_MAX: u64 = 2048;
/// Fewer undisturbed commits than this say nothing about their tail.
const COUNTED_MIN: u64 = 100;
/// Which of the undisturbed are in the tail, and how much longer than it a slow commit takes.
const TAIL: f64 = 0.99;
const SLOWER: f64 = 1.25;

/// Commits beside background work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beside {
    /// Those that ended.
    pub commits: u64,
    /// Slow ones among them.
    pub slow: u64,
}

/// The commits of one shard, in all its data folders.
#[derive(Debug, Default)]
pub(crate) struct Foreground {
    undisturbed: RefCell<Durations>,
    /// Since the last look,
    beside: Cell<Beside>,
    /// and before it.
    before: Cell<Beside>,
    felt_until: Cell<Monotonic>,
    /// A longer time is slow; known once enough undisturbed ones are counted.
    slow_above: Cell<Option<Duration>>,
    under_way: Cell<u32>,
    /// Since when none of those under way has ended.
    waiting_since: Cell<Monotonic>,
}

impl Foreground {
    /// A commit begins.
    pub(crate) fn begun(&self, now: Monotonic) {
        if self.under_way.replace(self.under_way.get() + 1) == 0 {
            self.waiting_since.set(now);
        }
    }

    /// The commit that began at `began` has ended. Counts it; nothing is allocated.
    pub(crate) fn ended(&self, began: Monotonic, now: Monotonic) {
        assert!(self.under_way.get() > 0, "a commit ended, but none was under way");
        self.under_way.set(self.under_way.get() - 1);
        self.waiting_since.set(now);
        let took = now.saturating_since(began);
        if began >= self.felt_until.get() {
            self.undisturbed.borrow_mut().count(took);
            return;
        }
        let mut beside = self.beside.get();
        beside.commits += 1;
        beside.slow += u64::from(self.slow_above.get().is_some_and(|limit| took > limit));
        self.beside.set(beside);
    }

    /// Whether commits are under way, and none has ended since `then`: a disk that hangs has no slow commits, and none at all.
    pub(crate) fn is_stuck_since(&self, then: Monotonic) -> bool {
        self.under_way.get() > 0 && self.waiting_since.get() <= then
    }

    /// Background work takes a step now.
    pub(crate) fn disturb(&self, now: Monotonic) {
        self.felt_until.set(now + FELT);
    }

    /// What was seen beside background work since the last look.
    pub(crate) fn beside(&self) -> Beside {
        self.beside.get()
    }

    /// And since the start.
    pub(crate) fn in_all(&self) -> Beside {
        let (before, beside) = (self.before.get(), self.beside.get());
        Beside { commits: before.commits + beside.commits, slow: before.slow + beside.slow }
    }

    /// Begins anew to count what is beside it, by what undisturbed commits take now.
    pub(crate) fn begin_count(&self) {
        self.before.set(self.in_all());
        self.beside.set(Beside::default());
        self.slow_above.set(self.undisturbed.borrow().slow_above());
    }

    /// Whether enough is known of undisturbed commits to call others slow.
    pub(crate) fn is_known(&self) -> bool {
        self.slow_above.get().is_some()
    }
}

/// How often each time was seen lately: of the last [`COUNTED_MAX`] to twice as many commits.
#[derive(Debug)]
struct Durations {
    /// Microseconds, to two digits: 19 KiB together. `None` if the bounds were wrong, which they are not.
    counting: Option<Histogram<u32>>,
    before: Option<Histogram<u32>>,
}

impl Default for Durations {
    fn default() -> Self {
        let empty = || Histogram::new_with_bounds(1, LONGEST_US, 2).ok();
        Self { counting: empty(), before: empty() }
    }
}

impl Durations {
    fn count(&mut self, took: Duration) {
        if self.counting.as_ref().is_some_and(|counting| counting.len() >= COUNTED_MAX) {
            std::mem::swap(&mut self.counting, &mut self.before);
            self.counting.as_mut().map(Histogram::reset);
        }
        if let Some(counting) = &mut self.counting {
            counting.saturating_record(u64::try_from(took.as_micros()).unwrap_or(LONGEST_US).clamp(1, LONGEST_US));
        }
    }

    /// What a slow commit exceeds.
    fn slow_above(&self) -> Option<Duration> {
        let mut all = self.before.clone()?;
        all.add(self.counting.as_ref()?).ok()?;
        let is_known = all.len() >= COUNTED_MIN;
        is_known.then(|| Duration::from_micros(all.value_at_quantile(TAIL)).mul_f64(SLOWER))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Monotonic {
        Monotonic::from_nanos(us * 1000)
    }

    fn commit(foreground: &Foreground, began: Monotonic, ended: Monotonic) {
        foreground.begun(began);
        foreground.ended(began, ended);
    }

    /// Undisturbed commits of 100 us, of which two of a hundred take 400.
    fn known() -> Foreground {
        let foreground = Foreground::default();
        for n in 0..1000u64 {
            let took = if n % 50 == 0 { 400 } else { 100 };
            commit(&foreground, at(n * 1000), at(n * 1000 + took));
        }
        foreground.begin_count();
        foreground
    }

    #[test]
    fn a_commit_is_slow_that_takes_a_quarter_longer_than_the_undisturbed_tail() {
        let foreground = known();
        assert!(foreground.is_known());
        foreground.disturb(at(2_000_000));
        for took in [100, 400, 480] {
            commit(&foreground, at(2_000_001), at(2_000_001 + took));
        }
        assert_eq!(foreground.beside(), Beside { commits: 3, slow: 0 });
        commit(&foreground, at(2_000_001), at(2_000_001 + 560));
        assert_eq!(foreground.beside(), Beside { commits: 4, slow: 1 });
        foreground.begin_count();
        assert_eq!(foreground.beside(), Beside::default());
        assert_eq!(foreground.in_all(), Beside { commits: 4, slow: 1 });
    }

    #[test]
    fn a_commit_that_began_while_background_work_is_felt_says_nothing_of_undisturbed_ones() {
        let foreground = Foreground::default();
        foreground.disturb(at(0));
        for n in 0..1000 {
            commit(&foreground, at(n), at(n + 100));
        }
        foreground.begin_count();
        assert!(!foreground.is_known());
        for n in 0..100 {
            commit(&foreground, at(10_000 + n), at(10_100 + n));
        }
        foreground.begin_count();
        assert!(foreground.is_known());
    }

    #[test]
    fn what_undisturbed_commits_took_long_ago_is_forgotten() {
        let foreground = known();
        for n in 0..200_000u64 {
            commit(&foreground, at(3_000_000 + n * 1000), at(3_000_000 + n * 1000 + 2_000));
        }
        foreground.begin_count();
        foreground.disturb(at(300_000_000));
        commit(&foreground, at(300_000_001), at(300_002_001));
        assert_eq!(foreground.beside(), Beside { commits: 1, slow: 0 });
    }

    #[test]
    fn no_time_is_too_short_or_too_long_to_be_counted() {
        let mut durations = Durations::default();
        for took in [Duration::ZERO, Duration::from_nanos(1), Duration::from_secs(1 << 40), Duration::MAX] {
            (0..100).for_each(|_| durations.count(took));
        }
        assert!(durations.slow_above().is_some_and(|limit| limit >= Duration::from_micros(LONGEST_US)));
    }

    #[test]
    fn commits_of_which_none_ends_are_stuck() {
        let foreground = Foreground::default();
        assert!(!foreground.is_stuck_since(at(100)), "there are none");
        foreground.begun(at(50));
        foreground.begun(at(60));
        assert!(foreground.is_stuck_since(at(50)) && !foreground.is_stuck_since(at(49)));
        foreground.ended(at(50), at(200));
        assert!(foreground.is_stuck_since(at(200)) && !foreground.is_stuck_since(at(199)), "one has ended, one waits");
        foreground.ended(at(60), at(300));
        assert!(!foreground.is_stuck_since(at(400)));
    }
}
