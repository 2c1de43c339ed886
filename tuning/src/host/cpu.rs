//! The cores: how fast they clock, how much of them is ours, what a look at the clock costs.
//!
//! Holds: the checks of the processor. Never touches: settings, pinning.

use super::{Facts, Outcome, costs, fine};

/// Clock sources that are read without a system call.
const FAST_CLOCKS: [&str; 5] =
    ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter", "riscv_clocksource"];

/// A core that clocks down answers late.
pub(super) fn governor(facts: &Facts<'_>) -> Option<Outcome> {
    let of = |core: &usize| {
        let governor = facts.read(&format!("sys/devices/system/cpu/cpu{core}/cpufreq/scaling_governor"))?;
        Some((*core, governor))
    };
    let governors: Vec<(usize, String)> = facts.wants.cores.iter().filter_map(of).collect();
    match governors.iter().find(|(_, governor)| governor != "performance") {
        None if governors.is_empty() => None,
        None => fine("performance"),
        Some((core, governor)) => costs(
            format!("the frequency governor of core {core} is {governor}"),
            "requests after a pause are slow: the core clocks up first",
            "cpupower frequency-set -g performance",
        ),
    }
}

/// A group's quota takes all cores away for the rest of a period, tens of milliseconds.
pub(super) fn quota(facts: &Facts<'_>) -> Option<Outcome> {
    let mut least: Option<f64> = None;
    let mut seen = false;
    for group in facts.groups() {
        let Some(text) = facts.read(&format!("{group}/cpu.max")) else { continue };
        seen = true;
        let mut words = text.split_whitespace().map(str::parse::<f64>);
        if let (Some(Ok(quota)), Some(Ok(period))) = (words.next(), words.next())
            && period > 0.0
        {
            let cores = quota / period;
            least = Some(least.map_or(cores, |least| least.min(cores)));
        }
    }
    let shards = facts.wants.shards;
    match least {
        None if !seen => None,
        None => fine("none"),
        Some(cores) if cores >= shards as f64 => fine(format!("{cores:.1} cores for {shards} shards")),
        Some(cores) => costs(
            format!("the control group may use {cores:.1} cores, {shards} shards want one each"),
            "when the quota is used up all shards stand still for the rest of the period, up to 100 ms",
            format!("lift the quota (docker: --cpuset-cpus instead of --cpus), or set corelog.shards={}", whole(cores)),
        ),
    }
}

fn whole(cores: f64) -> usize {
    (cores as usize).max(1)
}

/// Every shard wants a core of its own.
pub(super) fn sharing(facts: &Facts<'_>) -> Option<Outcome> {
    let (shards, cores) = (facts.wants.shards, facts.wants.cores.len());
    if cores == 0 {
        return None;
    }
    if shards <= cores {
        return fine(format!("{shards} shards on {cores} cores"));
    }
    costs(
        format!("{shards} shards share {cores} cores"),
        "shards wait for each other, and none is pinned",
        format!("set corelog.shards={cores}, or let the process use more cores"),
    )
}

/// The loop looks at the clock twice a turn.
pub(super) fn clock_source(facts: &Facts<'_>) -> Option<Outcome> {
    let source = facts.read("sys/devices/system/clocksource/clocksource0/current_clocksource")?;
    if FAST_CLOCKS.contains(&source.as_str()) {
        return fine(source);
    }
    costs(
        format!("the clock source is {source}"),
        "each look at the clock is a system call, two or more a turn",
        "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource (kernel parameters: clocksource=tsc tsc=reliable)",
    )
}
