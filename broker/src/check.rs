//! What the machine has against a broker: told at start, and by `corelog check`.
//!
//! Holds: the questions put to the host, the words and numbers of the answer. Never touches: settings, requests; the data
//! folder beyond the disk probe's scratch file.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use corelog_reactor::ring;
use corelog_storage::disk::datadir::DataDirError;
use corelog_storage::disk::probe;
use corelog_tune::host::{self, Finding, Outcome, Severity, Wants};
use serde::Serialize;
use tracing::{info, warn};

use crate::config::BrokerConfig;
use crate::start::StartError;

/// The exit code of `corelog check` when the broker would start, and an acknowledgement might promise too much.
const EXIT_UNSAFE: u8 = 60;
/// Less room than this on the data folder's disk is off.
const FREE_PERCENT_MIN: u64 = 5;
/// Where the host says what it is set to.
const ROOT: &str = "/";

/// Logs a line for each thing that is off. Called once, when the data folder is there. Takes a millisecond or two.
pub fn warn_of_host(config: &BrokerConfig) {
    for finding in host::findings(Path::new(ROOT), &wants(config)) {
        match finding.severity {
            Severity::Unsafe => warn!("{finding}"),
            Severity::Costs => info!("{finding}"),
        }
    }
}

/// What this configuration asks of a host.
fn wants(config: &BrokerConfig) -> Wants {
    let folder = config.data_dir.clone();
    let connections = config.connections_max.min(config.connections_per_core_max.saturating_mul(config.shards));
    Wants {
        connections_max: connections as u64,
        partitions: config.more_data_dirs.iter().map(|folder| partitions_in(folder)).sum::<u64>()
            + partitions_in(&folder),
        shards: config.shards,
        cores: config.cores.clone(),
        memory_bytes: config.memory_bytes_per_core.saturating_mul(config.shards as u64),
        listen_backlog: config.listen_backlog,
        data_folder: existing(&folder),
    }
}

/// Folders in the data folder: one a partition, and hidden ones of our own.
fn partitions_in(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let is_partition = |entry: &fs::DirEntry| {
        !entry.file_name().to_string_lossy().starts_with('.') && entry.file_type().is_ok_and(|kind| kind.is_dir())
    };
    entries.flatten().filter(is_partition).count() as u64
}

/// The folder without links, or the one it will be made in.
fn existing(folder: &Path) -> PathBuf {
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_path_buf());
    folder.ancestors().find_map(|folder| fs::canonicalize(folder).ok()).unwrap_or(folder)
}

/// How a check went, from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    /// As it should be.
    Ok,
    /// The host doesn't say.
    Unknown,
    /// Costs speed or room.
    Costs,
    /// An acknowledgement may promise what the disk hasn't got.
    Unsafe,
    /// The broker doesn't start.
    Fatal,
}

/// One check, as it is printed.
#[derive(Clone, Debug, Serialize)]
struct Row {
    check: &'static str,
    status: Status,
    what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

/// Everything that `corelog check` has to say.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    checks: Vec<Row>,
    exit_code: u8,
}

impl Report {
    /// Looks at everything: kernel, disk, settings of the host.
    #[must_use]
    pub fn new(config: &BrokerConfig) -> Report {
        let (kernel, kernel_exit) = kernel_row();
        let (disk, disk_exit) = disk_row(&config.data_dir);
        let host = host::checks(Path::new(ROOT), &wants(config));
        let rows = host.into_iter().map(|check| row(check.name, check.outcome));
        // The broker starts without one of these: its partitions are offline then.
        let more = config.more_data_dirs.iter().map(|folder| {
            let (row, exit) = disk_row(folder);
            Row { status: if exit.is_some() { Status::Costs } else { row.status }, ..row }
        });
        let checks: Vec<Row> = [kernel, disk].into_iter().chain(more).chain(rows).collect();
        let unsafe_exit = checks.iter().any(|row| row.status == Status::Unsafe).then_some(EXIT_UNSAFE);
        let exit_code = kernel_exit.or(disk_exit).or(unsafe_exit).unwrap_or(0);
        Report { checks, exit_code }
    }

    /// The broker's own exit code if it could not start here; 60 if it could, and an acknowledgement might promise too
    /// much; else 0.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        self.exit_code
    }

    /// For people.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for row in &self.checks {
            let status = match row.status {
                Status::Ok => "ok",
                Status::Unknown => "unknown",
                Status::Costs => "costs",
                Status::Unsafe => "UNSAFE",
                Status::Fatal => "FATAL",
            };
            let _ = writeln!(text, "{status:8} {:15} {}", row.check, row.what);
            for (name, words) in [("cost", row.cost), ("fix", row.fix.as_deref())] {
                if let Some(words) = words {
                    let _ = writeln!(text, "{:24} {name}: {words}", "");
                }
            }
        }
        let count = |status| self.checks.iter().filter(|row| row.status == status).count();
        let _ = writeln!(
            text,
            "\n{} checks: {} fatal, {} unsafe, {} cost something, {} not told by this host",
            self.checks.len(),
            count(Status::Fatal),
            count(Status::Unsafe),
            count(Status::Costs),
            count(Status::Unknown)
        );
        text
    }

    /// For scripts: `{"checks": [{"check", "status", "what", "cost"?, "fix"?}], "exit_code"}`.
    #[must_use]
    pub fn json(&self) -> String {
        format!("{:#}\n", serde_json::json!(self))
    }
}

fn row(check: &'static str, outcome: Outcome) -> Row {
    match outcome {
        Outcome::Fine(what) => Row { check, status: Status::Ok, what, cost: None, fix: None },
        Outcome::Unknown => {
            Row { check, status: Status::Unknown, what: "this host doesn't say".into(), cost: None, fix: None }
        }
        Outcome::Off(Finding { severity, what, cost, fix }) => {
            let status = match severity {
                Severity::Costs => Status::Costs,
                Severity::Unsafe => Status::Unsafe,
            };
            Row { check, status, what, cost: Some(cost), fix: Some(fix) }
        }
    }
}

fn fatal(check: &'static str, failure: &StartError) -> (Row, Option<u8>) {
    let row = Row { check, status: Status::Fatal, what: failure.to_string(), cost: None, fix: None };
    (row, Some(failure.exit_code()))
}

fn kernel_row() -> (Row, Option<u8>) {
    match ring::probe() {
        Ok(kernel) => {
            let what = format!("Linux {}.{}, with all that io_uring needs", kernel.version.0, kernel.version.1);
            (row("kernel", Outcome::Fine(what)), None)
        }
        Err(missing) => fatal("kernel", &missing.into()),
    }
}

fn disk_row(folder: &Path) -> (Row, Option<u8>) {
    let check = "disk";
    if let Some(path) = folder.ancestors().find(|path| path.exists()).filter(|path| !path.is_dir()) {
        return fatal(check, &DataDirError::NotAFolder { path: path.to_path_buf() }.into());
    }
    if !folder.is_dir() {
        let what = format!("{} isn't there yet; the broker makes it and tries it", folder.display());
        return (Row { check, status: Status::Unknown, what, cost: None, fix: None }, None);
    }
    let disk = match probe::probe(folder) {
        Ok(disk) => disk,
        Err(error) => return fatal(check, &error.into()),
    };
    let costs = |what, cost, fix| Outcome::Off(Finding { severity: Severity::Costs, what, cost, fix });
    let outcome = match disk.direct_refused {
        Some(reason) => costs(
            reason,
            "each commit goes through the page cache and a sync",
            "put the data folder on ext4 or XFS".into(),
        ),
        None if disk.free_bytes < disk.total_bytes / 100 * FREE_PERCENT_MIN => costs(
            format!("{} MiB of {} MiB are free", disk.free_bytes >> 20, disk.total_bytes >> 20),
            "a full disk refuses produces until there is room",
            "make room: delete topics, or records (kafka-delete-records.sh)".into(),
        ),
        None => Outcome::Fine(format!(
            "{}: direct I/O in blocks of {} bytes, durable writes, {} MiB free",
            disk.file_system,
            disk.block_bytes,
            disk.free_bytes >> 20
        )),
    };
    (row(check, outcome), None)
}
