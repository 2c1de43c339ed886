//! What the operator sees of an import.
//!
//! Holds: the progress lines and the table at the end. Never touches: what is done.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;
use std::time::{Duration, Instant};

use super::plan::{CarriedLog, Plan};

/// How often a long import says how far it is.
const EVERY: Duration = Duration::from_secs(1);
const MIB: u64 = 1 << 20;

/// What came of one log.
#[derive(Clone, Debug)]
pub struct CarriedFacts {
    pub topic: String,
    pub start: i64,
    pub end: i64,
    pub segments: usize,
    pub bytes: u64,
}

/// How far it is.
pub struct Progress<'a> {
    out: &'a mut dyn Write,
    logs: usize,
    bytes: u64,
    logs_done: usize,
    bytes_done: u64,
    said: Instant,
}

impl<'a> Progress<'a> {
    pub fn new(out: &'a mut dyn Write, plan: &Plan) -> Self {
        Self { out, logs: plan.logs.len(), bytes: plan.bytes(), logs_done: 0, bytes_done: 0, said: Instant::now() }
    }

    /// One more.
    pub fn done(&mut self, log: &CarriedLog) {
        self.logs_done += 1;
        self.bytes_done += log.bytes();
        if self.said.elapsed() < EVERY && self.logs_done < self.logs {
            return;
        }
        self.said = Instant::now();
        let (done, all) = (self.bytes_done / MIB, self.bytes / MIB);
        // A closed standard error is no reason to stop.
        let _ = writeln!(self.out, "corelog: {} of {} partitions, {done} of {all} MiB", self.logs_done, self.logs);
    }
}

/// A line a topic.
pub fn table(facts: &[CarriedFacts]) -> String {
    let mut topics: BTreeMap<&str, (usize, usize, u64, i64)> = BTreeMap::new();
    for fact in facts {
        let sum = topics.entry(&fact.topic).or_default();
        *sum = (sum.0 + 1, sum.1 + fact.segments, sum.2 + fact.bytes, sum.3 + fact.end - fact.start);
    }
    let width = topics.keys().map(|name| name.len()).max().unwrap_or(0).max("topic".len());
    let mut text = String::new();
    let _ = writeln!(text, "{:width$}  partitions  segments        bytes      offsets", "topic");
    for (topic, (partitions, segments, bytes, offsets)) in topics {
        let _ = writeln!(text, "{topic:width$}  {partitions:>10}  {segments:>8}  {bytes:>11}  {offsets:>11}");
    }
    text
}

/// What would be carried, before it is.
pub fn outlook(plan: &Plan) -> String {
    let mut topics: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
    for log in &plan.logs {
        let sum = topics.entry(&log.name.topic).or_default();
        *sum = (sum.0 + 1, sum.1 + log.bytes());
    }
    let width = topics.keys().map(|name| name.len()).max().unwrap_or(0).max("topic".len());
    let mut text = String::new();
    let _ = writeln!(text, "{:width$}  partitions        bytes", "topic");
    for (topic, (partitions, bytes)) in topics {
        let _ = writeln!(text, "{topic:width$}  {partitions:>10}  {bytes:>11}");
    }
    text
}
