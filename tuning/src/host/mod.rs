//! Checks of the host: each says what is set, what that costs, and what changes it.
//!
//! Holds: the list of checks and what a check can say. Never touches: settings.
//!
//! Everything is read below a root, `/` in production and a folder of samples in tests: small files of /proc and /sys, so
//! that all checks together take a millisecond or two. What can't be read is unknown, and nobody's fault.

mod cpu;
mod disk;
mod limits;
mod memory;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// What the broker is going to ask of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// Connections that may be open at once.
    pub connections_max: u64,
    /// Partitions there are.
    pub partitions: u64,
    /// Shards, each a busy thread.
    pub shards: usize,
    /// The cores they run on.
    pub cores: Vec<usize>,
    /// Buffer memory of all shards together.
    pub memory_bytes: u64,
    /// `socket.listen.backlog.size`
    pub listen_backlog: u32,
    /// Where the logs are: absolute, without links.
    pub data_folder: PathBuf,
}

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Speed, or room.
    Costs,
    /// An acknowledgement may promise what the disk hasn't got.
    Unsafe,
}

/// Something that is set to a broker's disadvantage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What is set, and to what.
    pub what: String,
    /// What it costs.
    pub cost: &'static str,
    /// What changes it.
    pub fix: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}. Fix: {}", self.what, self.cost, self.fix)
    }
}

/// What a check says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// As a broker would have it.
    Fine(String),
    /// Not so.
    Off(Finding),
    /// The host doesn't say.
    Unknown,
}

/// One check and what it said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// Its name, for scripts.
    pub name: &'static str,
    /// What it said.
    pub outcome: Outcome,
}

/// A check of the host: None for what it doesn't say.
type Look = fn(&Facts<'_>) -> Option<Outcome>;

const CHECKS: [(&str, Look); 15] = [
    ("file-system", disk::file_system),
    ("write-barriers", disk::barriers),
    ("write-cache", disk::write_cache),
    ("io-scheduler", disk::scheduler),
    ("read-ahead", disk::read_ahead),
    ("open-files", limits::open_files),
    ("locked-memory", limits::locked_memory),
    ("listen-backlog", limits::listen_backlog),
    ("memory", memory::budget),
    ("huge-pages", memory::huge_pages),
    ("swap", memory::swap),
    ("cpu-governor", cpu::governor),
    ("cpu-quota", cpu::quota),
    ("cpu-sharing", cpu::sharing),
    ("clock-source", cpu::clock_source),
];

/// Looks at the host under `root`.
#[must_use]
pub fn checks(root: &Path, wants: &Wants) -> Vec<Check> {
    let facts = Facts { root, wants };
    let of = |(name, look): (&'static str, Look)| Check { name, outcome: look(&facts).unwrap_or(Outcome::Unknown) };
    CHECKS.into_iter().map(of).collect()
}

/// Only what is off.
#[must_use]
pub fn findings(root: &Path, wants: &Wants) -> Vec<Finding> {
    let off = |check: Check| match check.outcome {
        Outcome::Off(finding) => Some(finding),
        Outcome::Fine(_) | Outcome::Unknown => None,
    };
    checks(root, wants).into_iter().filter_map(off).collect()
}

/// The memory that this process may have: the machine's, or its control group's where that is less. `None` if the host doesn't
/// say.
#[must_use]
pub fn memory_bytes(root: &Path) -> Option<u64> {
    let wants = Wants::default();
    memory::there(&Facts { root, wants: &wants }).map(|(bytes, _)| bytes)
}

/// Where the checks read, and what for.
struct Facts<'a> {
    root: &'a Path,
    wants: &'a Wants,
}

impl Facts<'_> {
    fn read(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.root.join(file)).ok().map(|text| text.trim().to_owned())
    }

    fn number(&self, file: &str) -> Option<u64> {
        self.read(file)?.parse().ok()
    }

    /// This process's folders of the unified control groups, its own first, then those around it.
    fn groups(&self) -> Vec<String> {
        let own = self.read("proc/self/cgroup").unwrap_or_default();
        let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
        Path::new(own).ancestors().map(|path| format!("sys/fs/cgroup/{}", path.display())).collect()
    }
}

fn fine(what: impl Into<String>) -> Option<Outcome> {
    Some(Outcome::Fine(what.into()))
}

fn costs(what: String, cost: &'static str, fix: impl Into<String>) -> Option<Outcome> {
    Some(Outcome::Off(Finding { severity: Severity::Costs, what, cost, fix: fix.into() }))
}

fn unsafe_is(what: String, cost: &'static str, fix: impl Into<String>) -> Option<Outcome> {
    Some(Outcome::Off(Finding { severity: Severity::Unsafe, what, cost, fix: fix.into() }))
}

/// What is in brackets: how the kernel marks the choice among several.
fn chosen(text: &str) -> Option<&str> {
    Some(text.split_once('[')?.1.split_once(']')?.0)
}

#[cfg(test)]
mod tests;
