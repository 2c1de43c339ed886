//! The line that moves while a run goes on. Quiet when nobody looks.

use std::io::{IsTerminal, Write, stderr};

use crate::load::run::Progress;
use crate::measure::latency::Interval;

/// The progress line on standard error.
pub struct Line {
    shown: bool,
    open: bool,
}

impl Line {
    /// Shows nothing if told so, or if standard error is no terminal.
    pub fn new(quiet: bool) -> Self {
        Self { shown: !quiet && stderr().is_terminal(), open: false }
    }

    /// A second has passed.
    pub fn show(&mut self, progress: &Progress<'_>) {
        if !self.shown {
            return;
        }
        let phase = if progress.at_s <= 0.0 { "warm-up" } else { "run" };
        let mut text = format!("{phase} {:5.0} s", progress.at_s);
        if let Some(second) = progress.produced {
            text.push_str(&format!("  produced {}", rates(second)));
        }
        if let Some(second) = progress.consumed {
            text.push_str(&format!("  consumed {}", rates(second)));
        }
        if progress.behind > 0 {
            text.push_str(&format!("  behind {}", progress.behind));
        }
        if let Some(away_s) = progress.away_s {
            text.push_str(&format!("  broker away for {away_s:.0} s"));
        }
        // Clears the rest of the line: the last one may have been longer.
        let _ = write!(stderr(), "\r{text}\x1b[K");
        self.open = true;
    }

    /// The run is over: what follows begins on a line of its own.
    pub fn end(&mut self) {
        if std::mem::take(&mut self.open) {
            let _ = writeln!(stderr());
        }
    }
}

fn rates(second: &Interval) -> String {
    let latency = &second.latency;
    let mut text = format!("{:>9}/s {:7.1} MB/s", second.records, second.bytes as f64 / 1e6);
    if latency.count > 0 {
        let [p50, p99, p999] = [latency.p50, latency.p99, latency.p999].map(|us| us / 1e3);
        text.push_str(&format!("  p50 {p50:.2} p99 {p99:.2} p99.9 {p999:.2} ms"));
    }
    text
}
