//! When arrivals are due.
//!
//! Holds: the times, from a rate and a seed. Never touches: the clock; times go in and come out.

use crate::payload::spec::Random;

/// How load arrives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// As fast as answers come: a closed loop, for finding out what is possible.
    Unlimited,
    /// Records a second, evenly spaced.
    Constant(f64),
    /// Records a second on average, arriving independently of each other, as those of many clients do.
    Poisson(f64),
}

impl Pace {
    /// Records a second, if limited.
    pub const fn rate(self) -> Option<f64> {
        match self {
            Self::Unlimited => None,
            Self::Constant(rate) | Self::Poisson(rate) => Some(rate),
        }
    }
}

/// The times at which arrivals are due, ascending.
#[derive(Clone, Debug)]
pub struct Schedule {
    gap_ns: f64,
    poisson: bool,
    random: Random,
    next_ns: f64,
    start_ns: u64,
}

impl Schedule {
    /// Arrivals of `records_each` records from `start_ns` on; `None` if the pace has no schedule.
    pub fn new(pace: Pace, records_each: usize, start_ns: u64, seed: u64) -> Option<Self> {
        let gap_ns = 1e9 * records_each as f64 / pace.rate()?;
        let poisson = matches!(pace, Pace::Poisson(_));
        let mut schedule = Self { gap_ns, poisson, random: Random::new(seed), next_ns: 0.0, start_ns };
        // Not at the start itself: a run of n gaps would have n + 1 arrivals, which shows in short ones.
        schedule.next_ns = if poisson { schedule.gap() } else { gap_ns / 2.0 };
        Some(schedule)
    }

    fn gap(&mut self) -> f64 {
        // Inverse transform of the exponential distribution.
        if self.poisson { -self.random.unit().ln() * self.gap_ns } else { self.gap_ns }
    }

    /// When the next arrival is due.
    pub const fn peek(&self) -> u64 {
        self.start_ns + self.next_ns as u64
    }

    /// Takes the next arrival.
    pub fn pop(&mut self) -> u64 {
        let due = self.peek();
        self.next_ns += self.gap();
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_pace_is_even_and_has_no_arrival_too_many() {
        let mut schedule = Schedule::new(Pace::Constant(1000.0), 10, 500, 1).unwrap();
        let due: Vec<u64> = (0..4).map(|_| schedule.pop()).collect();
        assert_eq!(due, [5_000_500, 15_000_500, 25_000_500, 35_000_500]);
    }

    #[test]
    fn a_poisson_pace_keeps_its_mean_and_spreads_as_it_should() {
        let mut schedule = Schedule::new(Pace::Poisson(1e6), 1, 0, 42).unwrap();
        let due: Vec<u64> = (0..200_001).map(|_| schedule.pop()).collect();
        let gaps: Vec<f64> = due.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean / 1000.0 - 1.0).abs() < 0.02, "mean gap {mean} ns");
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.03, "an exponential gap deviates by its mean");
    }

    #[test]
    fn short_runs_have_as_many_poisson_arrivals_as_their_rate_says() {
        // A hundred runs of ten mean gaps each: 1,000 arrivals, give or take three deviations of 32.
        let arrivals = |seed| {
            let mut schedule = Schedule::new(Pace::Poisson(1000.0), 1, 0, seed).unwrap();
            std::iter::from_fn(|| Some(schedule.pop())).take_while(|due| *due < 10_000_000).count()
        };
        let all: usize = (0..100).map(arrivals).sum();
        assert!((905..=1095).contains(&all), "{all} arrivals");
    }

    #[test]
    fn an_unlimited_pace_has_no_schedule() {
        assert!(Schedule::new(Pace::Unlimited, 1, 0, 0).is_none());
    }
}
