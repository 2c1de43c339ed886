//! What else ran on the machine while something was measured.
//!
//! Holds: a reading of /proc/stat, and what of it was neither the broker's nor ours. Never touches: single processes.
//!
//! A figure measured beside somebody's build, or on a host that took the CPU away, is worth nothing; this says so beside it.

use std::fs;

use serde::{Deserialize, Serialize};

use super::process::Usage;

/// A reading: CPU seconds of all cores since the machine was started.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MachineSample {
    /// In processes, the kernel's threads included; without interrupts.
    busy_s: f64,
    /// A virtual machine's, taken by its host.
    stolen_s: f64,
}

/// Between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OthersUsage {
    /// CPU seconds of processes other than the broker and the generator.
    pub cpu_s: f64,
    /// CPU seconds that a virtual machine's host kept for itself.
    pub stolen_s: f64,
}

impl MachineSample {
    /// Reads the counters now; `None` where there is no /proc/stat.
    pub fn take() -> Option<Self> {
        let per_second = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok().flatten()? as f64;
        Self::parse(&fs::read_to_string("/proc/stat").ok()?, per_second)
    }

    /// proc_stat(5): `cpu  user nice system idle iowait irq softirq steal ...`, in ticks.
    fn parse(text: &str, per_second: f64) -> Option<Self> {
        let fields: Vec<f64> =
            text.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace().map_while(|f| f.parse().ok()).collect();
        let seconds = |index: usize| fields.get(index).map(|ticks| ticks / per_second);
        Some(Self { busy_s: seconds(0)? + seconds(1)? + seconds(2)?, stolen_s: seconds(7)? })
    }

    /// What others used since `before`, given what the `known` ones did. Ticks are coarse: a little below zero is nothing.
    pub fn since(&self, before: &Self, known: &[Option<Usage>]) -> OthersUsage {
        let known: f64 = known.iter().flatten().map(|usage| usage.cpu_s).sum();
        OthersUsage {
            cpu_s: (self.busy_s - before.busy_s - known).max(0.0),
            stolen_s: (self.stolen_s - before.stolen_s).max(0.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_neither_the_brokers_nor_ours_is_others() {
        let at = |text| MachineSample::parse(text, 100.0).unwrap();
        let before = at("cpu  1000 10 500 9000 3 4 5 20 0 0\ncpu0 1 2 3\n");
        let after = at("cpu  1600 10 800 9900 3 4 50 70 0 0\n");
        let usage = |cpu_s| Some(Usage { cpu_s, ..Usage::default() });
        let others = after.since(&before, &[usage(5.0), None, usage(2.5)]);
        assert!((others.cpu_s - 1.5).abs() < 1e-6 && (others.stolen_s - 0.5).abs() < 1e-6, "{others:?}");
        assert_eq!(after.since(&before, &[usage(9.1)]).cpu_s, 0.0, "ticks are coarse");
        assert_eq!(MachineSample::parse("intr 1 2", 100.0), None);
        assert!(MachineSample::take().is_some_and(|now| now.busy_s > 0.0));
    }
}
