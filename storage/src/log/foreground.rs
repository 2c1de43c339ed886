//! How long commits take while nothing else is done, and how many are slower beside background work.
//!
//! Holds: the times of commits that had the core and the disk to themselves; the count of slow ones since it was last
//! asked for. Never touches: the clock (the caller brings times), what background work does about it (`compaction::pace`).
//!
//! A commit is *undisturbed* if it began when background work had rested for a while. What is compared is the
//! tail: a commit is *slow* if it takes a quarter longer than 99 of 100 undisturbed ones. As long as no more than one of a
//! hundred is slow, the 99th percentile beside background work is within that quarter.

use corelog_reactor::Monotonic;
use std::cell::{Cell, RefCell};
use std::time::Duration;

/// How long after background work's last step it is still felt: the disk has what was written in its cache.
const FELT: Duration = Duration::from_millis(10);
/// Buckets for each doubling of a time: neighbours are 9 % apart.
const PER_DOUBLING: u32 = 8;
/// Times from 1 us (everything below counts as that) to 16 s.
const BUCKETS: usize = 24 * PER_DOUBLING as usize;
/// Once so many undisturbed commits are counted each counts half: what was is forgotten as new ones come.
const COUNTED_MAX: u32 = 4096;
/// Fewer undisturbed commits than this say nothing about their tail.
const COUNTED_MIN: u32 = 100;
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
#[derive(Debug)]
pub(crate) struct Foreground {
    undisturbed: RefCell<Durations>,
    /// Since the last look,
    beside: Cell<Beside>,
    /// and before it.
    before: Cell<Beside>,
    felt_until: Cell<Monotonic>,
    /// The bucket of the first time that is slow; known once enough undisturbed ones are counted.
    slow_from: Cell<Option<usize>>,
}

impl Default for Foreground {
    fn default() -> Self {
        Self {
            undisturbed: RefCell::new(Durations::default()),
            beside: Cell::default(),
            before: Cell::default(),
            felt_until: Cell::new(Monotonic::ZERO),
            slow_from: Cell::new(None),
        }
    }
}

impl Foreground {
    /// A commit that began at `began` has ended. Counts it; nothing is allocated.
    pub(crate) fn committed(&self, began: Monotonic, now: Monotonic) {
        let bucket = bucket_of(now.saturating_since(began));
        if began >= self.felt_until.get() {
            self.undisturbed.borrow_mut().count(bucket);
            return;
        }
        let mut beside = self.beside.get();
        beside.commits += 1;
        beside.slow += u64::from(self.slow_from.get().is_some_and(|from| bucket >= from));
        self.beside.set(beside);
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
        self.slow_from.set(self.undisturbed.borrow().slow_from());
    }

    /// Whether enough is known of undisturbed commits to call others slow.
    pub(crate) fn is_known(&self) -> bool {
        self.slow_from.get().is_some()
    }
}

/// How often each time was seen, the older the lighter.
#[derive(Debug)]
struct Durations {
    counts: [u32; BUCKETS],
    counted: u32,
}

impl Default for Durations {
    fn default() -> Self {
        Self { counts: [0; BUCKETS], counted: 0 }
    }
}

impl Durations {
    fn count(&mut self, bucket: usize) {
        if self.counted >= COUNTED_MAX {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.counted = self.counts.iter().sum();
        }
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += 1;
            self.counted += 1;
        }
    }

    /// The first bucket of which every time is a slow one.
    fn slow_from(&self) -> Option<usize> {
        if self.counted < COUNTED_MIN {
            return None;
        }
        let rank = (f64::from(self.counted) * TAIL).ceil() as u32;
        let mut seen = 0;
        let tail = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        })?;
        Some(tail + 1 + (SLOWER.log2() * f64::from(PER_DOUBLING)).round() as usize)
    }
}

fn bucket_of(took: Duration) -> usize {
    let us = (took.as_nanos() as f64 / 1000.0).max(1.0);
    ((us.log2() * f64::from(PER_DOUBLING)) as usize).min(BUCKETS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Monotonic {
        Monotonic::from_nanos(us * 1000)
    }

    /// Undisturbed commits of 100 us, of which two of a hundred take 400.
    fn known() -> Foreground {
        let foreground = Foreground::default();
        for n in 0..1000u64 {
            let took = if n % 50 == 0 { 400 } else { 100 };
            foreground.committed(at(n * 1000), at(n * 1000 + took));
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
            foreground.committed(at(2_000_001), at(2_000_001 + took));
        }
        assert_eq!(foreground.beside(), Beside { commits: 3, slow: 0 });
        foreground.committed(at(2_000_001), at(2_000_001 + 560));
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
            foreground.committed(at(n), at(n + 100));
        }
        foreground.begin_count();
        assert!(!foreground.is_known());
        for n in 0..100 {
            foreground.committed(at(10_000 + n), at(10_100 + n));
        }
        foreground.begin_count();
        assert!(foreground.is_known());
    }

    #[test]
    fn what_undisturbed_commits_took_long_ago_is_forgotten() {
        let foreground = known();
        for n in 0..200_000u64 {
            foreground.committed(at(3_000_000 + n * 1000), at(3_000_000 + n * 1000 + 2_000));
        }
        foreground.begin_count();
        foreground.disturb(at(300_000_000));
        foreground.committed(at(300_000_001), at(300_002_001));
        assert_eq!(foreground.beside(), Beside { commits: 1, slow: 0 });
    }

    #[test]
    fn no_time_is_too_short_or_too_long_to_be_counted() {
        for took in [Duration::ZERO, Duration::from_nanos(1), Duration::from_secs(1 << 40), Duration::MAX] {
            assert!(bucket_of(took) < BUCKETS);
        }
        assert_eq!(bucket_of(Duration::from_micros(2)), PER_DOUBLING as usize);
    }
}
