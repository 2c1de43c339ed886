//! Figures for people, as text.

use std::fmt::Write as _;

use crate::measure::latency::Percentiles;
use crate::measure::process::Usage;
use crate::measure::result::{RunResult, Side};

/// One run.
pub fn single(result: &RunResult) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "\n{} on {}, {:.1} s", result.kind, result.broker, result.seconds);
    if let Some(reason) = &result.stopped_by {
        let _ = writeln!(out, "  BROKE OFF, figures up to there: {reason}");
    }
    if let Some(side) = &result.produced {
        direction(&mut out, "produced", side, result.seconds);
    }
    if let Some(side) = &result.consumed {
        direction(&mut out, "consumed", side, result.seconds);
    }
    let _ = writeln!(
        out,
        "  {:<12} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}",
        "µs", "p50", "p90", "p99", "p99.9", "p99.99", "max"
    );
    if let Some(side) = result.main() {
        percentiles(&mut out, "latency", &side.latency);
        if result.has_service_time() {
            percentiles(&mut out, "service time", &side.service);
        }
    }
    let unanswered: u64 = [&result.produced, &result.consumed].into_iter().flatten().map(|side| side.unanswered).sum();
    if unanswered > 0 {
        let _ = writeln!(
            out,
            "  {:<12} {unanswered} records that were due have no answer: they count with their age when the run gave up",
            "unanswered"
        );
    }
    if let Some(found) = result.verified.as_ref().filter(|verified| !verified.clean) {
        let _ = writeln!(out, "  VERIFICATION FAILED: {}", found.found);
    }
    match &result.broker_usage {
        Some(usage) => {
            usage_line(&mut out, "broker", usage, result.seconds);
            if let Some(cost) = result.broker_cpu_s_per_gb() {
                let _ = write!(out, "  {:<12} {cost:.3} CPU s/GB", "cost");
            }
            if let Some(cost) = result.broker_cpu_us_per_request() {
                let _ = write!(out, ", {cost:.1} CPU µs a request");
            }
            if let Some(factor) = result.write_amplification() {
                let _ = write!(out, ", {factor:.2} bytes written for each byte");
            }
            out.push('\n');
        }
        None if !result.complete => {}
        None => out.push_str("  broker       its process is not known: give --broker-pid for its CPU and memory\n"),
    }
    usage_line(&mut out, "generator", &result.own_usage, result.seconds);
    if let Some(others) = &result.others_usage {
        let share = |cpu_s: f64| if result.seconds > 0.0 { cpu_s / result.seconds * 100.0 } else { 0.0 };
        let (ran, stolen) = (share(others.cpu_s), share(others.stolen_s));
        let _ = writeln!(out, "  {:<12} others ran for {ran:.0} % of a core, the host took {stolen:.1} %", "machine");
    }
    out
}

fn direction(out: &mut String, name: &str, side: &Side, seconds: f64) {
    let per = |amount: u64| if seconds > 0.0 { amount as f64 / seconds } else { 0.0 };
    let _ = writeln!(
        out,
        "  {name:<12} {:.0} records/s, {:.1} MB/s, {:.0} requests/s ({} records)",
        per(side.records),
        per(side.bytes) / 1e6,
        per(side.requests),
        side.records
    );
}

fn percentiles(out: &mut String, name: &str, p: &Percentiles) {
    if p.count == 0 {
        let _ = writeln!(out, "  {name:<12} nothing was counted");
        return;
    }
    let _ = writeln!(
        out,
        "  {name:<12} {:>10.1} {:>10.1} {:>10.1} {:>10.1} {:>10.1} {:>10.1}",
        p.p50, p.p90, p.p99, p.p999, p.p9999, p.max
    );
}

fn usage_line(out: &mut String, name: &str, usage: &Usage, seconds: f64) {
    let share = if seconds > 0.0 { usage.cpu_s / seconds * 100.0 } else { 0.0 };
    let _ = writeln!(
        out,
        "  {name:<12} {:.2} CPU s ({share:.0} % of a core; user {:.2}, system {:.2}), {:.0} MiB resident, {} context switches",
        usage.cpu_s,
        usage.user_s,
        usage.system_s,
        usage.resident_bytes as f64 / (1 << 20) as f64,
        usage.switches
    );
}
