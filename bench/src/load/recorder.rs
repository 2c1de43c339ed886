//! Counts one direction of a run within its window.
//!
//! Holds: totals, latencies, the seconds. Never touches: the clock; every time is given.
//!
//! A record counts towards *throughput* when its answer falls into the window, and towards *latency* when it was due in
//! the window, however late its answer comes.

use crate::error::BenchError;
use crate::measure::latency::{Interval, Latency};
use crate::measure::result::Side;

/// The measured part of a run, in nanoseconds of the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Its start: the warm-up is over.
    pub from_ns: u64,
    /// Its end.
    pub to_ns: u64,
}

impl Window {
    const fn holds(self, at: u64) -> bool {
        self.from_ns <= at && at < self.to_ns
    }
}

/// An answer, as far as it is counted.
#[derive(Clone, Copy, Debug)]
pub struct Answered {
    /// When it came.
    pub now_ns: u64,
    /// When its request left.
    pub sent_ns: u64,
    /// Records in it.
    pub records: u64,
    /// Bytes of batches.
    pub bytes: u64,
}

/// See the module.
pub struct Recorder {
    window: Window,
    latency: Latency,
    service: Latency,
    totals: (u64, u64, u64),
    second: (u64, u64),
    second_from_ns: u64,
    timeline: Vec<Interval>,
    /// Some records had a due time.
    has_due: bool,
    unanswered: u64,
}

impl Recorder {
    /// Counts within `window`, whose start was at `unix_ms`.
    ///
    /// # Errors
    /// No memory.
    pub fn new(window: Window, unix_ms: i64) -> Result<Self, BenchError> {
        Ok(Self {
            window,
            latency: Latency::new(unix_ms)?,
            service: Latency::new(unix_ms)?,
            totals: (0, 0, 0),
            second: (0, 0),
            second_from_ns: window.from_ns,
            timeline: Vec::new(),
            has_due: false,
            unanswered: 0,
        })
    }

    /// Moves the window's end: the run broke off, or had no fixed end.
    pub const fn end_at(&mut self, to_ns: u64) {
        self.window.to_ns = to_ns;
    }

    /// An answer came.
    #[inline]
    pub fn answered(&mut self, answer: Answered) {
        if self.window.holds(answer.now_ns) {
            self.totals.0 += 1;
            self.totals.1 += answer.records;
            self.totals.2 += answer.bytes;
            self.second.0 += answer.records;
            self.second.1 += answer.bytes;
        }
        if self.window.holds(answer.sent_ns) {
            self.service.record(answer.now_ns - answer.sent_ns.min(answer.now_ns), answer.records);
        }
    }

    /// `records` that were due at `due_ns` are done at `now_ns`.
    #[inline]
    pub fn latency(&mut self, due_ns: u64, now_ns: u64, records: u64) {
        if self.window.holds(due_ns) {
            self.latency.record(now_ns.saturating_sub(due_ns), records);
            self.has_due = true;
        }
    }

    /// `records` that were due at `due_ns` have no answer at `now_ns`, and none is waited for any more. They count as if it had
    /// come now: left out they would make a broker that hangs look quick.
    pub fn gave_up(&mut self, due_ns: u64, now_ns: u64, records: u64) {
        if self.window.holds(due_ns) {
            self.unanswered += records;
            self.latency(due_ns, now_ns, records);
        }
    }

    /// A second is over (or the run is). Returns it.
    pub fn tick(&mut self, now_ns: u64) -> Interval {
        let (from, to) = (self.second_from_ns, now_ns);
        let start = self.window.from_ns;
        let latency = self.latency.end_interval(from.saturating_sub(start), to.saturating_sub(start));
        let service = self.service.end_interval(from.saturating_sub(start), to.saturating_sub(start));
        let interval = Interval {
            at_s: to.saturating_sub(start) as f64 / 1e9,
            records: self.second.0,
            bytes: self.second.1,
            latency: if self.has_due { latency } else { service },
        };
        self.second = (0, 0);
        self.second_from_ns = now_ns;
        interval
    }

    /// Keeps a second for the time line.
    pub fn keep(&mut self, interval: Interval) {
        self.timeline.push(interval);
    }

    /// Records so far, within the window.
    pub const fn records(&self) -> u64 {
        self.totals.1
    }

    /// Bytes so far, within the window.
    pub const fn bytes(&self) -> u64 {
        self.totals.2
    }

    /// The histogram that latencies are reported from: from due times where there were any.
    pub const fn reported(&self) -> &Latency {
        if self.has_due { &self.latency } else { &self.service }
    }

    /// What it came to.
    pub fn side(&self) -> Side {
        Side {
            requests: self.totals.0,
            records: self.totals.1,
            bytes: self.totals.2,
            unanswered: self.unanswered,
            latency: self.reported().percentiles(),
            service: self.service.percentiles(),
            curve: self.reported().curve(),
            timeline: self.timeline.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_charged_to_every_record_that_was_due_in_it() {
        let mut recorder = Recorder::new(Window { from_ns: 0, to_ns: 2_000_000_000 }, 0).unwrap();
        // One record due each millisecond; the broker answers at once, but for a whole second it answers nothing.
        for due_ms in 0..2000u64 {
            let due = due_ms * 1_000_000;
            let now = if (500..1500).contains(&due_ms) { 1_500_000_000 } else { due + 1000 };
            recorder.latency(due, now, 1);
            recorder.answered(Answered { now_ns: now, sent_ns: now - 1000, records: 1, bytes: 10 });
        }
        recorder.tick(2_000_000_000);
        let side = recorder.side();
        assert_eq!((side.requests, side.records, side.bytes), (2000, 2000, 20_000));
        assert!(side.latency.p90 > 700_000.0, "{:?}", side.latency);
        assert!(side.service.p9999 < 2.0, "service time hides the stall: {:?}", side.service);
    }

    #[test]
    fn what_was_never_answered_counts_with_its_age() {
        let mut recorder = Recorder::new(Window { from_ns: 0, to_ns: 3_000_000_000 }, 0).unwrap();
        (0..1000u64).for_each(|ms| recorder.latency(ms * 1_000_000, ms * 1_000_000 + 1000, 1));
        // Then the broker hangs; the run gives up after a minute.
        (1000..3500u64).for_each(|ms| recorder.gave_up(ms * 1_000_000, 63_000_000_000, 1));
        recorder.tick(63_000_000_000);
        let side = recorder.side();
        assert_eq!((side.unanswered, side.latency.count), (2000, 3000), "those that were due in the measured time");
        assert!(side.latency.p50 > 59e6 && side.latency.max > 61e6, "{:?}", side.latency);
    }

    #[test]
    fn what_lies_outside_of_the_window_does_not_count() {
        let mut recorder = Recorder::new(Window { from_ns: 1000, to_ns: 2000 }, 0).unwrap();
        recorder.answered(Answered { now_ns: 999, sent_ns: 900, records: 1, bytes: 1 });
        recorder.answered(Answered { now_ns: 2000, sent_ns: 1900, records: 1, bytes: 1 });
        recorder.latency(999, 1500, 1);
        recorder.latency(1999, 5000, 1);
        recorder.tick(5000);
        let side = recorder.side();
        assert_eq!((side.records, side.latency.count, side.service.count), (0, 1, 1));
    }
}
