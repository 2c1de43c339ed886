//! Latencies of a run: one histogram for the whole, one for each second of it.
//!
//! Holds: counting, percentiles, the interval log. Never touches: where a latency is counted from: that is the caller's
//! choice, and the one that matters (see `load`).

use std::time::{Duration, UNIX_EPOCH};

use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2Serializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use serde::Serialize;

use crate::error::BenchError;

/// Largest latency told apart; longer ones count as this.
const NANOS_MAX: u64 = 3_600_000_000_000;
/// Decimal digits that are kept.
const DIGITS: u8 = 3;

/// Percentiles of a distribution, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, serde::Deserialize)]
pub struct Percentiles {
    /// Values counted.
    pub count: u64,
    /// Smallest.
    pub min: f64,
    /// Mean.
    pub mean: f64,
    /// Half are below.
    pub p50: f64,
    /// 90 % are below.
    pub p90: f64,
    /// 99 % are below.
    pub p99: f64,
    /// 99.9 % are below.
    pub p999: f64,
    /// 99.99 % are below.
    pub p9999: f64,
    /// Largest.
    pub max: f64,
}

/// One second of a run.
#[derive(Clone, Debug, PartialEq, Serialize, serde::Deserialize)]
pub struct Interval {
    /// Seconds since the run's start, at its end.
    pub at_s: f64,
    /// Records answered in it.
    pub records: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Their latencies.
    pub latency: Percentiles,
}

/// A point of the percentile curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, serde::Deserialize)]
pub struct CurvePoint {
    /// Share of values at or below, 0 to 1.
    pub quantile: f64,
    /// Microseconds.
    pub us: f64,
}

/// A histogram with its seconds.
pub struct Latency {
    whole: Histogram<u64>,
    second: Histogram<u64>,
    log: Vec<u8>,
    started_unix: Duration,
}

impl Latency {
    /// Nothing counted yet; `unix_ms` is the start that the interval log names.
    ///
    /// # Errors
    /// No memory for it.
    pub fn new(unix_ms: i64) -> Result<Self, BenchError> {
        let make = || {
            let histogram = Histogram::new_with_bounds(1, NANOS_MAX, DIGITS);
            histogram.map_err(|error| BenchError::Setup(format!("histogram: {error}")))
        };
        let started_unix = Duration::from_millis(unix_ms.max(0) as u64);
        Ok(Self { whole: make()?, second: make()?, log: Vec::new(), started_unix })
    }

    /// Counts `count` records of one latency.
    #[inline]
    pub fn record(&mut self, nanos: u64, count: u64) {
        let nanos = nanos.clamp(1, NANOS_MAX);
        // Within the bounds given above a value always has its place.
        let _ = self.second.record_n(nanos, count);
    }

    /// Ends a second (or what there is of it): adds it to the whole and to the log.
    pub fn end_interval(&mut self, from_ns: u64, to_ns: u64) -> Percentiles {
        let percentiles = percentiles(&self.second);
        let _ = self.whole.add(&self.second);
        let mut serializer = V2Serializer::new();
        let since = Duration::from_nanos(from_ns);
        let length = Duration::from_nanos(to_ns.saturating_sub(from_ns));
        let mut builder = IntervalLogWriterBuilder::new();
        if self.log.is_empty() {
            builder.add_comment("corelog-bench, nanoseconds").with_base_time(UNIX_EPOCH + self.started_unix);
        }
        if to_ns > from_ns
            && let Ok(mut writer) = builder.begin_log_with(&mut self.log, &mut serializer)
        {
            let _ = writer.write_histogram(&self.second, since, length, None::<Tag<'_>>);
        }
        self.second.reset();
        percentiles
    }

    /// What is counted so far, seconds that have ended.
    pub fn percentiles(&self) -> Percentiles {
        percentiles(&self.whole)
    }

    /// The curve from the smallest to the largest, finer towards the end.
    pub fn curve(&self) -> Vec<CurvePoint> {
        let mut points: Vec<CurvePoint> = Vec::new();
        for value in self.whole.iter_quantiles(5) {
            let point = CurvePoint { quantile: value.quantile_iterated_to(), us: micros(value.value_iterated_to()) };
            if points.last() != Some(&point) {
                points.push(point);
            }
        }
        points
    }

    /// The percentile distribution in the text form of HdrHistogram (`.hgrm`), in microseconds.
    pub fn hgrm(&self) -> String {
        let mut text =
            format!("{:>12} {:>16} {:>12} {:>16}\n\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)");
        for value in self.whole.iter_quantiles(5) {
            let quantile = value.quantile_iterated_to();
            let inverse = if quantile < 1.0 { format!("{:.2}", 1.0 / (1.0 - quantile)) } else { "Infinity".into() };
            let us = micros(value.value_iterated_to());
            let below = self.whole.count_between(0, value.value_iterated_to());
            text.push_str(&format!("{us:>12.3} {quantile:>16.12} {below:>12} {inverse:>16}\n"));
        }
        let whole = &self.whole;
        text.push_str(&format!(
            "#[Mean    = {:>12.3}, StdDeviation   = {:>12.3}]\n#[Max     = {:>12.3}, Total count    = {:>12}]\n",
            whole.mean() / 1e3,
            whole.stdev() / 1e3,
            micros(whole.max()),
            whole.len()
        ));
        text
    }

    /// The interval log (V2), a line for each second, in nanoseconds.
    pub fn interval_log(&self) -> &[u8] {
        &self.log
    }
}

fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}

fn percentiles(histogram: &Histogram<u64>) -> Percentiles {
    if histogram.is_empty() {
        return Percentiles::default();
    }
    let at = |quantile| micros(histogram.value_at_quantile(quantile));
    Percentiles {
        count: histogram.len(),
        min: micros(histogram.min()),
        mean: histogram.mean() / 1e3,
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        p999: at(0.999),
        p9999: at(0.9999),
        max: micros(histogram.max()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_what_was_counted() {
        let mut latency = Latency::new(0).unwrap();
        (1..=1000).for_each(|us| latency.record(us * 1000, 1));
        latency.end_interval(0, 1_000_000_000);
        let p = latency.percentiles();
        assert_eq!(p.count, 1000);
        for (got, want) in [(p.p50, 500.0), (p.p99, 990.0), (p.p999, 999.0), (p.max, 1000.0), (p.min, 1.0)] {
            assert!((got - want).abs() <= want / 500.0, "{got} is not {want}");
        }
        assert!(latency.hgrm().contains("Total count    =         1000"));
    }

    #[test]
    fn the_interval_log_can_be_read_back() {
        use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
        let mut latency = Latency::new(1_700_000_000_000).unwrap();
        for second in 0..3u64 {
            latency.record(1000 * (second + 1), 7);
            latency.end_interval(second * 1_000_000_000, (second + 1) * 1_000_000_000);
        }
        let intervals = IntervalLogIterator::new(latency.interval_log())
            .filter(|entry| matches!(entry, Ok(LogEntry::Interval(_))))
            .count();
        assert_eq!(intervals, 3);
    }
}
