//! How fast a shard compacts.
//!
//! Holds: the rate, what of it is used, and when it changes. Never touches: what is read and written; how long commits
//! take (`foreground`).
//!
//! Every step is paid for: who was too quick sleeps. The rate is between two bounds, the operator's and a least one that
//! keeps compaction from standing still, and goes by the commits beside it:
//!
//! | of a window's commits | the rate |
//! |---|---|
//! | more than one in a hundred is slow, or none of those under way has ended | falls by a third |
//! | at most so many | rises by a step, if compaction would have used more |
//! | there are none | doubles |
//! | it isn't known yet what undisturbed ones take | stays |
//!
//! Once in a while it rests, so that there are commits without it to compare with.

use crate::log::foreground::Foreground;
use corelog_reactor::{Monotonic, Reactor};
use std::cell::Cell;
use std::time::Duration;

/// A window ends with so many commits: of fewer the one in a hundred can't be told,
const WINDOW_COMMITS: u64 = 400;
/// or after this.
const WINDOW_MAX: Duration = Duration::from_secs(1);
/// Slow ones of a hundred that are borne.
const SLOW_PERCENT_MAX: u64 = 1;
/// What the rate starts from, and the step it rises by.
const RATE_AT_FIRST: f64 = 32.0 * 1024.0 * 1024.0;
const RATE_STEP: f64 = 4.0 * 1024.0 * 1024.0;
/// What is left of it when commits get slow.
const RATE_LEFT: f64 = 0.67;
/// No disk is quicker.
const RATE_MAX: f64 = 64.0 * 1024.0 * 1024.0 * 1024.0;
/// Work between two rests, and how long one is: a twentieth of the time.
const WORK: Duration = Duration::from_millis(950);
const REST: Duration = Duration::from_millis(50);
/// Debts smaller than this are not slept for.
const SLEEP_MIN: Duration = Duration::from_millis(1);

/// How fast all rounds of a shard may go: at most `log.cleaner.io.max.bytes.per.second`, and slower while commits beside
/// them are slow.
#[derive(Debug)]
pub struct Pace {
    /// Bytes a second: what it may be at least and at most,
    bounds: Cell<(f64, f64)>,
    /// and what it is.
    rate: Cell<f64>,
    /// When what was read and written so far is paid for.
    paid_at: Cell<Monotonic>,
    window: Cell<Window>,
    rest_at: Cell<Monotonic>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    began: Monotonic,
    /// Whether the rate held compaction up.
    is_held_up: bool,
}

impl Pace {
    /// Between so many bytes a second and so many.
    #[must_use]
    pub fn new(least: f64, most: f64) -> Self {
        let pace = Self {
            bounds: Cell::new((0.0, 0.0)),
            rate: Cell::new(RATE_AT_FIRST),
            paid_at: Cell::new(Monotonic::ZERO),
            window: Cell::default(),
            rest_at: Cell::new(Monotonic::ZERO),
        };
        pace.set(least, most);
        pace
    }

    /// Other bounds from now on. Where they contradict each other the upper one holds.
    pub fn set(&self, least: f64, most: f64) {
        let most = most.clamp(1.0, RATE_MAX);
        self.bounds.set((least.clamp(1.0, most), most));
        self.set_rate(self.rate.get());
    }

    /// Bytes a second at present.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.rate.get()
    }

    fn set_rate(&self, rate: f64) {
        let (least, most) = self.bounds.get();
        self.rate.set(rate.clamp(least, most));
    }

    /// Takes note of so many bytes, and waits until they are paid for. Others get their turn in any case.
    pub(in crate::log) async fn spend(&self, reactor: &Reactor, foreground: &Foreground, bytes: u64) {
        let now = reactor.now();
        match self.owed(now, foreground, bytes) {
            Some(until) => reactor.sleep_until(until).await,
            None => reactor.yield_now().await,
        }
        foreground.disturb(reactor.now());
    }

    /// Until when to sleep for so many bytes.
    fn owed(&self, now: Monotonic, foreground: &Foreground, bytes: u64) -> Option<Monotonic> {
        self.look(now, foreground);
        let seconds = bytes as f64 / self.rate.get();
        let paid_at = self.paid_at.get().max(now) + Duration::from_secs_f64(seconds.min(3600.0));
        self.paid_at.set(paid_at);
        if now >= self.rest_at.get() {
            self.rest_at.set(now + REST + WORK);
            return Some(paid_at.max(now + REST));
        }
        let is_held_up = paid_at.saturating_since(now) > SLEEP_MIN;
        if is_held_up {
            self.window.set(Window { is_held_up, ..self.window.get() });
        }
        is_held_up.then_some(paid_at)
    }

    /// Changes the rate if it is time to.
    fn look(&self, now: Monotonic, foreground: &Foreground) {
        let window = self.window.get();
        let (beside, age) = (foreground.beside(), now.saturating_since(window.began));
        if beside.commits < WINDOW_COMMITS && age < WINDOW_MAX {
            return;
        }
        let rate = self.rate.get();
        // A window older than two of its lengths is left from an earlier round: what it has says nothing of now.
        let is_of_now = age < 2 * WINDOW_MAX;
        let is_stuck = foreground.is_stuck_since(window.began);
        if is_stuck || beside.slow * 100 > beside.commits * SLOW_PERCENT_MAX {
            self.set_rate(if is_of_now { rate * RATE_LEFT } else { rate });
        } else if window.is_held_up && beside.commits == 0 {
            self.set_rate(rate * 2.0);
        } else if window.is_held_up && is_of_now && foreground.is_known() {
            self.set_rate(rate + RATE_STEP);
        }
        self.window.set(Window { began: now, is_held_up: false });
        foreground.begin_count();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: f64 = 1024.0 * 1024.0;

    fn ms(at: u64) -> Monotonic {
        Monotonic::from_nanos(at * 1_000_000)
    }

    /// Commits of 100 us each millisecond until `until`, before compaction begins.
    fn undisturbed(until: u64) -> Foreground {
        let foreground = Foreground::default();
        for at in 0..until {
            foreground.begun(ms(at));
            foreground.ended(ms(at), ms(at) + Duration::from_micros(100));
        }
        foreground
    }

    /// What a commit takes: microseconds beside compaction, and while it rests.
    type CommitUs = Option<(u64, u64)>;

    /// Compacts 64 KiB a step from `from` to `until`, with a commit each millisecond, if there are any. Returns the bytes.
    fn compact(pace: &Pace, foreground: &Foreground, from: u64, until: u64, commit_us: CommitUs) -> u64 {
        let (mut now, mut commit, mut bytes) = (ms(from), ms(from), 0);
        while now < ms(until) {
            let until = pace.owed(now, foreground, 64 << 10);
            bytes += 64 << 10;
            let next = until.unwrap_or(now + Duration::from_micros(50));
            while let Some((beside, resting)) = commit_us
                && commit < next
            {
                let us = if commit.saturating_since(now) > Duration::from_millis(5) { resting } else { beside };
                foreground.begun(commit);
                foreground.ended(commit, commit + Duration::from_micros(us));
                commit += Duration::from_millis(1);
            }
            now = next;
            foreground.disturb(now);
        }
        bytes
    }

    #[test]
    fn the_operators_bound_holds_when_nothing_else_is_done() {
        let pace = Pace::new(8.0 * MIB, 50.0 * MIB);
        let bytes = compact(&pace, &Foreground::default(), 0, 10_000, None);
        assert!((bytes as f64) < 505.0 * MIB && bytes as f64 > 440.0 * MIB, "{bytes} bytes");
    }

    #[test]
    fn without_commits_it_gets_as_fast_as_it_can() {
        let pace = Pace::new(8.0 * MIB, f64::MAX);
        let bytes = compact(&pace, &Foreground::default(), 0, 30_000, None);
        // 64 KiB in 50 us are 1.3 GB/s.
        assert!(bytes as f64 > 15_000.0 * MIB, "{bytes} bytes");
    }

    #[test]
    fn slow_commits_bring_it_down_to_the_least_and_quick_ones_up_again() {
        let (pace, foreground) = (Pace::new(8.0 * MIB, f64::MAX), undisturbed(1000));
        compact(&pace, &foreground, 1000, 6000, Some((300, 100)));
        assert!(pace.rate() < 8.1 * MIB, "{} bytes a second", pace.rate());
        compact(&pace, &foreground, 6000, 16_000, Some((100, 100)));
        assert!(pace.rate() > 40.0 * MIB, "{} bytes a second", pace.rate());
    }

    #[test]
    fn commits_that_are_as_slow_while_it_rests_do_not_hold_it_up() {
        let (pace, foreground) = (Pace::new(8.0 * MIB, f64::MAX), undisturbed(1000));
        compact(&pace, &foreground, 1000, 16_000, Some((300, 300)));
        assert!(pace.rate() > 40.0 * MIB, "{} bytes a second", pace.rate());
    }

    #[test]
    fn while_commits_are_under_way_and_none_ends_it_goes_at_the_least() {
        let (pace, foreground) = (Pace::new(8.0 * MIB, f64::MAX), undisturbed(1000));
        foreground.begun(ms(1000));
        compact(&pace, &foreground, 1001, 10_000, None);
        assert!(pace.rate() < 8.1 * MIB, "{} bytes a second", pace.rate());
    }

    #[test]
    fn its_rests_are_long_enough_for_undisturbed_commits() {
        let (pace, foreground) = (Pace::new(8.0 * MIB, f64::MAX), Foreground::default());
        compact(&pace, &foreground, 0, 10_000, Some((100, 100)));
        assert!(foreground.is_known());
    }

    #[test]
    fn an_upper_bound_below_the_least_rate_holds() {
        let pace = Pace::new(8.0 * MIB, 1.0 * MIB);
        let bytes = compact(&pace, &undisturbed(1000), 1000, 11_000, Some((100, 100)));
        assert!((bytes as f64) < 10.2 * MIB, "{bytes} bytes");
    }
}
