//! What a run came to: the one thing that reports, comparisons and `--json` are made of.
//!
//! Holds: figures and their units. Never touches: how they were measured or will be shown.

use serde::{Deserialize, Serialize};

use super::latency::{CurvePoint, Interval, Percentiles};
use super::machine::OthersUsage;
use super::process::Usage;

/// One run of one workload against one broker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// What was run: `produce`, `consume`, `e2e` ...
    pub kind: String,
    /// The broker's name in a comparison, else its address.
    pub broker: String,
    /// The options in force, in words.
    pub workload: String,
    /// When it began, milliseconds since 1970.
    pub started_unix_ms: i64,
    /// Seconds of the measured part, after the warm-up.
    pub seconds: f64,
    /// False if the run broke off: the figures are those up to there.
    pub complete: bool,
    /// Why it broke off.
    pub stopped_by: Option<String>,
    /// What was produced.
    pub produced: Option<Side>,
    /// What was consumed.
    pub consumed: Option<Side>,
    /// The broker's process.
    pub broker_usage: Option<Usage>,
    /// This process.
    pub own_usage: Usage,
    /// What `verify` found, in words.
    #[serde(default)]
    pub verified: Option<Verified>,
    /// What else ran on the machine; not known where the broker's process isn't.
    #[serde(default)]
    pub others_usage: Option<OthersUsage>,
}

/// What `verify` found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verified {
    /// Nothing lost, doubled, damaged or out of order.
    pub clean: bool,
    /// In words.
    pub found: String,
}

/// One direction of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// Requests answered.
    pub requests: u64,
    /// Records in them.
    pub records: u64,
    /// Bytes of those records' batches, as sent.
    pub bytes: u64,
    /// Records that were due in the measured time and have no answer: they count in `latency` with their age at the end.
    #[serde(default)]
    pub unanswered: u64,
    /// From the intended time of sending (produce) or from the record's stamp (end to end) to the answer.
    pub latency: Percentiles,
    /// From the actual time of sending to the answer: what a closed-loop tool would show.
    pub service: Percentiles,
    /// The curve of `latency`.
    pub curve: Vec<CurvePoint>,
    /// The run second by second.
    pub timeline: Vec<Interval>,
}

impl RunResult {
    /// Records a second, of the direction that matters most.
    pub fn records_per_s(&self) -> f64 {
        self.main().map_or(0.0, |side| per(side.records as f64, self.seconds))
    }

    /// Megabytes (10^6) a second.
    pub fn mb_per_s(&self) -> f64 {
        self.main().map_or(0.0, |side| per(side.bytes as f64 / 1e6, self.seconds))
    }

    /// Requests a second.
    pub fn requests_per_s(&self) -> f64 {
        self.main().map_or(0.0, |side| per(side.requests as f64, self.seconds))
    }

    /// CPU seconds of the broker for each gigabyte (10^9) that went through it in the main direction.
    pub fn broker_cpu_s_per_gb(&self) -> Option<f64> {
        let (usage, side) = (self.broker_usage?, self.main()?);
        (side.bytes > 0).then(|| usage.cpu_s / (side.bytes as f64 / 1e9))
    }

    /// CPU microseconds of the broker for each request, of either direction.
    pub fn broker_cpu_us_per_request(&self) -> Option<f64> {
        let usage = self.broker_usage?;
        let requests: u64 = [&self.produced, &self.consumed].into_iter().flatten().map(|side| side.requests).sum();
        (requests > 0).then(|| usage.cpu_s * 1e6 / requests as f64)
    }

    /// Bytes that the broker wrote to the disk for each byte of records.
    pub fn write_amplification(&self) -> Option<f64> {
        let (usage, side) = (self.broker_usage?, self.produced.as_ref()?);
        (side.bytes > 0 && usage.written_bytes > 0).then(|| usage.written_bytes as f64 / side.bytes as f64)
    }

    /// Whether requests of one kind, each sent and answered, are what the run measures: then service time says something.
    pub fn has_service_time(&self) -> bool {
        matches!(self.kind.as_str(), "produce" | "mixed" | "consume")
    }

    /// The direction that the run is about: where records arrive, unless the load on it is the point.
    pub fn main(&self) -> Option<&Side> {
        match self.kind.as_str() {
            "produce" | "mixed" => self.produced.as_ref(),
            _ => self.consumed.as_ref().or(self.produced.as_ref()),
        }
    }
}

fn per(amount: f64, seconds: f64) -> f64 {
    if seconds > 0.0 { amount / seconds } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_of_either_direction_is_a_request() {
        let side = |requests| Some(Side { requests, bytes: 1, ..Side::default() });
        let usage = Some(Usage { cpu_s: 1.0, ..Usage::default() });
        let mut result = RunResult { kind: "e2e".into(), broker_usage: usage, ..RunResult::default() };
        (result.produced, result.consumed) = (side(15_000), side(5_000));
        assert_eq!(result.broker_cpu_us_per_request(), Some(50.0));
        result.produced = None;
        assert_eq!(result.broker_cpu_us_per_request(), Some(200.0));
    }
}
