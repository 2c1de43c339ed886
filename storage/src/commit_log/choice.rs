//! Which way a commit goes: by what the two ways cost, as far as is measured.
//!
//! Holds: the cost of a durable write, how many commits share one, the choice. Never touches: the clock (the caller
//! brings times), whether a commit may be logged at all.
//!
//! A durable write of `p` bytes costs `a + b p`. Of the `k` commits under way at a time, each
//!
//! ```text
//!   direct    a + b p                                its own write
//!   logged    a / k + b p                            its share of a write,
//!             + p (a / W + b)                        and of a later write of W bytes to its segment
//! ```
//!
//! So logged costs less where `p < a (1 - 1/k) / (b + a / W)`. With the 100 us and 1 us/KiB that this starts from, and
//! W of 512 KiB, that is 42 KiB at k = 2 and 77 KiB at k = 12.

use std::time::Duration;

/// Weight of the newest observation of `k`.
const COMMITS_WEIGHT: f64 = 1.0 / 32.0;
/// What is left of a measurement's weight after the next one.
const COST_DECAY: f64 = 1.0 - 1.0 / 64.0;
/// From so many commits at a time on the commit log is used,
const ON_FROM: f64 = 2.0;
/// and no more below so many: between the two it stays as it is.
const OFF_BELOW: f64 = 1.5;
/// Larger pieces always go directly: a write that large spreads its own cost, and the copy, the CRC and the second write
/// of a logged one cost the core more than that.
const PIECE_BYTES_MAX: f64 = 256.0 * 1024.0;
/// What is believed before anything is measured: microseconds of a write, and of each byte.
const COST_AT_FIRST: (f64, f64) = (100.0, 1.0 / 1024.0);
/// What can be believed: between a fast NVMe and a bad day of a rotating disk.
const WRITE_US: (f64, f64) = (10.0, 20_000.0);
const BYTE_US: (f64, f64) = (0.05 / 1024.0, 50.0 / 1024.0);
/// Sizes that differ less than this (in bytes, standard deviation) say nothing about what a byte costs.
const SPREAD_BYTES_MIN: f64 = 2048.0;

/// Sums of the measurements, the older the lighter.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    n: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
}

/// The choice of one shard in one data folder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    under_way: u32,
    /// Commits under way when one starts, itself among them: smoothed.
    commits: f64,
    is_on: bool,
    sums: Sums,
    write_us: f64,
    byte_us: f64,
    write_back_bytes: f64,
}

impl Choice {
    /// Nothing is measured yet.
    pub(crate) fn new(write_back_bytes: u64) -> Self {
        let (write_us, byte_us) = COST_AT_FIRST;
        Self {
            under_way: 0,
            commits: 1.0,
            is_on: false,
            sums: Sums::default(),
            write_us,
            byte_us,
            write_back_bytes: write_back_bytes as f64,
        }
    }

    /// A commit starts.
    pub(crate) fn begin(&mut self) {
        self.under_way += 1;
        self.commits += (f64::from(self.under_way) - self.commits) * COMMITS_WEIGHT;
        if self.commits >= ON_FROM {
            self.is_on = true;
        } else if self.commits < OFF_BELOW {
            self.is_on = false;
        }
    }

    /// A commit has ended.
    pub(crate) fn end(&mut self) {
        assert!(self.under_way > 0, "a commit ended, but none was under way");
        self.under_way -= 1;
    }

    /// A durable write of `bytes` has taken so long.
    pub(crate) fn measured(&mut self, bytes: u64, took: Duration) {
        let (x, y) = (bytes as f64, took.as_secs_f64() * 1e6);
        let old = self.sums;
        let sums = Sums {
            n: old.n * COST_DECAY + 1.0,
            x: old.x * COST_DECAY + x,
            y: old.y * COST_DECAY + y,
            xx: old.xx * COST_DECAY + x * x,
            xy: old.xy * COST_DECAY + x * y,
        };
        self.sums = sums;
        let variance = sums.xx / sums.n - (sums.x / sums.n).powi(2);
        if variance > SPREAD_BYTES_MIN * SPREAD_BYTES_MIN {
            let slope = (sums.xy / sums.n - sums.x * sums.y / (sums.n * sums.n)) / variance;
            self.byte_us = slope.clamp(BYTE_US.0, BYTE_US.1);
        }
        self.write_us = ((sums.y - self.byte_us * sums.x) / sums.n).clamp(WRITE_US.0, WRITE_US.1);
    }

    /// Pieces smaller than this go through the commit log.
    pub(crate) fn piece_bytes(&self) -> f64 {
        if !self.is_on {
            return 0.0;
        }
        let shared = self.write_us * (1.0 - 1.0 / self.commits);
        (shared / (self.byte_us + self.write_us / self.write_back_bytes)).min(PIECE_BYTES_MAX)
    }

    /// Whether a piece of so many bytes shall go through the commit log.
    pub(crate) fn prefers(&self, bytes: usize) -> bool {
        (bytes as f64) < self.piece_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITE_BACK: u64 = 512 << 10;

    /// `at_once` commits that begin together, again and again.
    fn rounds(choice: &mut Choice, at_once: u32, rounds: usize) {
        for _ in 0..rounds {
            (0..at_once).for_each(|_| choice.begin());
            (0..at_once).for_each(|_| choice.end());
        }
    }

    #[test]
    fn one_partition_alone_never_uses_the_commit_log() {
        let mut choice = Choice::new(WRITE_BACK);
        rounds(&mut choice, 1, 1_000);
        assert!(!choice.prefers(1));
    }

    #[test]
    fn small_pieces_of_many_partitions_use_it_and_large_ones_do_not() {
        let mut choice = Choice::new(WRITE_BACK);
        rounds(&mut choice, 16, 100);
        assert!(choice.prefers(1_024) && choice.prefers(64 << 10));
        assert!(!choice.prefers(96 << 10) && !choice.prefers(1 << 20));
    }

    #[test]
    fn between_its_two_bounds_the_choice_stays_what_it_is() {
        let mut choice = Choice::new(WRITE_BACK);
        // 1.5 to 2 commits on average: one alone, then two, then one...
        let mixed = |choice: &mut Choice| {
            for n in 0..2_000 {
                rounds(choice, if n % 2 == 0 { 3 } else { 1 }, 1);
            }
        };
        mixed(&mut choice);
        assert!((OFF_BELOW..ON_FROM).contains(&choice.commits) && !choice.is_on, "{choice:?}");
        rounds(&mut choice, 8, 100);
        mixed(&mut choice);
        assert!((OFF_BELOW..ON_FROM).contains(&choice.commits) && choice.is_on, "{choice:?}");
        rounds(&mut choice, 1, 1_000);
        assert!(!choice.is_on);
    }

    #[test]
    fn the_cost_of_a_write_is_found_from_writes_of_different_sizes() {
        let mut choice = Choice::new(WRITE_BACK);
        for n in 0..1_000_u64 {
            let bytes = (1 + n % 64) * 4_096;
            choice.measured(bytes, Duration::from_nanos(250_000 + bytes * 2));
        }
        assert!((choice.write_us - 250.0).abs() < 5.0, "{choice:?}");
        assert!((choice.byte_us - 0.002).abs() < 0.0001, "{choice:?}");
    }

    #[test]
    fn writes_of_one_size_leave_the_cost_of_a_byte_as_it_was_believed() {
        let mut choice = Choice::new(WRITE_BACK);
        (0..1_000).for_each(|_| choice.measured(4_096, Duration::from_micros(54)));
        assert!((choice.write_us - 50.0).abs() < 0.1 && choice.byte_us == COST_AT_FIRST.1, "{choice:?}");
    }

    #[test]
    fn a_disk_whose_writes_are_cheap_takes_only_small_pieces() {
        let mut choice = Choice::new(WRITE_BACK);
        rounds(&mut choice, 16, 100);
        (0..1_000)
            .for_each(|n| choice.measured((1 + n % 16) * 4_096, Duration::from_nanos(10_000 + (1 + n % 16) * 4_000)));
        assert!(choice.prefers(4_096) && !choice.prefers(16 << 10), "{choice:?}");
    }

    #[test]
    fn nonsense_is_kept_within_what_can_be() {
        let mut choice = Choice::new(WRITE_BACK);
        rounds(&mut choice, 1_000, 3);
        (0..100_u64).for_each(|n| choice.measured(n << 20, Duration::from_secs(100 - n)));
        assert!((WRITE_US.0..=WRITE_US.1).contains(&choice.write_us), "{choice:?}");
        assert!(choice.piece_bytes() <= PIECE_BYTES_MAX && choice.piece_bytes() >= 0.0);
        choice.measured(0, Duration::ZERO);
        assert!(choice.piece_bytes().is_finite());
    }
}
