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
    /// What else ran on the machine; not known where the broker's process isn't.
    #[serde(default)]
    pub others_usage: Option<OthersUsage>,
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

    /// CPU microseconds of the broker for each request.
    pub fn broker_cpu_us_per_request(&self) -> Option<f64> {
        let (usage, side) = (self.broker_usage?, self.main()?);
        (side.requests > 0).then(|| usage.cpu_s * 1e6 / side.requests as f64)
    }

    /// Bytes that the broker wrote to the disk for each byte of records.
    pub fn write_amplification(&self) -> Option<f64> {
        let (usage, side) = (self.broker_usage?, self.produced.as_ref()?);
        (side.bytes > 0 && usage.written_bytes > 0).then(|| usage.written_bytes as f64 / side.bytes as f64)
    }

    /// The direction that the run is about: consuming, unless it only produced.
    pub fn main(&self) -> Option<&Side> {
        match self.kind.as_str() {
            "produce" => self.produced.as_ref(),
            _ => self.consumed.as_ref().or(self.produced.as_ref()),
        }
    }
}

fn per(amount: f64, seconds: f64) -> f64 {
    if seconds > 0.0 { amount / seconds } else { 0.0 }
}
