//! The folder that is made beside the wanted one, and takes its place at the end.
//!
//! Holds: its life: made, filled file by file, synced, renamed, or removed when the import fails. Never touches:
//! what is in
//! the files; Kafka's folders, which are only read.
//!
//! ```text
//! DIR.importing/               made; refused if it is there: an import that was killed left it
//!   meta.properties            whose it is
//!   <topic>-<partition>/       files copied and synced; partition.metadata last
//!   log-checkpoint             logs that start later than their first segment, or have gaps. Then each log is opened,
//!                              checked, closed
//!   __cluster_metadata-0/      last: without it no broker starts on the folder
//! DIR/                         renamed, its parent synced
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use corelog_storage::disk::checkpoint::{CheckpointEntry, CheckpointSet};
use corelog_storage::disk::datadir::CHECKPOINT_FILE;
use corelog_storage::disk::meta::{PARTITION_METADATA, PartitionMetadata};
use corelog_storage::ids::{Offset, PartitionIndex};
use corelog_storage::log::{LogName, SEGMENT_SUFFIXES};

use super::holes::close_segments;
use super::plan::CarriedLog;

const SUFFIX: &str = ".importing";
/// The one that has no number.
pub const EPOCHS: &str = "leader-epoch-checkpoint";

/// The folder, removed with all that is in it unless it was put in place.
#[derive(Debug)]
pub struct Stage {
    path: PathBuf,
    into: PathBuf,
    is_done: bool,
}

impl Stage {
    /// Makes it. The wanted folder is not there, or empty.
    pub fn make(into: &Path) -> io::Result<Self> {
        if fs::read_dir(into).is_ok_and(|mut entries| entries.next().is_some()) {
            let words = format!("{} is there already, and not empty: name a folder that is to be made", into.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, words));
        }
        let mut name = into.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        name.push(SUFFIX);
        let path = into.with_file_name(name);
        if let Some(parent) = into.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            fs::create_dir_all(parent)?;
        }
        match fs::create_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let words = format!("{} is what an import that was cut short has left: remove it", path.display());
                Err(io::Error::new(io::ErrorKind::AlreadyExists, words))
            }
            Err(error) => Err(error),
            Ok(()) => Ok(Self { path, into: into.to_owned(), is_done: false }),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is to be known of logs when they are opened: where one starts whose first segment reaches further back, and
    /// below which offset (as [`copy`](Self::copy) has found) one has gaps.
    pub fn write_checkpoint(&self, logs: &[CarriedLog], holes_below: &[Option<Offset>]) -> io::Result<()> {
        let mut known = CheckpointSet::default();
        for (log, holes_below) in logs.iter().zip(holes_below) {
            let Some(first) = bases(log).first().copied() else { continue };
            let start = log.log_start.unwrap_or(first).max(first);
            if start > first || holes_below.is_some() {
                let entry = CheckpointEntry::starting_at(log.name.topic.clone(), Offset(first));
                let compacted_to = holes_below.unwrap_or(Offset::ZERO);
                known.set(log.name.key(), CheckpointEntry { log_start: Offset(start), compacted_to, ..entry });
            }
        }
        write_synced(&self.path.join(CHECKPOINT_FILE), &known.encode())
    }

    /// Copies a log's files, and ends its segments where the next ones start; durable when it returns. The offset below
    /// which it has gaps.
    pub fn copy(&self, log: &CarriedLog) -> io::Result<Option<Offset>> {
        self.copy_files(&log.from, &log.name, log.files.keys(), Some(log.name.partition))?;
        let folder = self.path.join(log.name.to_string());
        close_segments(&folder, &bases(log), log.log_start.unwrap_or(0))
    }

    /// Copies these files of a log, and writes whose it is: with its number for us, without for Kafka.
    pub fn copy_files<'a>(
        &self,
        from: &Path,
        name: &LogName,
        files: impl Iterator<Item = &'a String>,
        partition: Option<PartitionIndex>,
    ) -> io::Result<()> {
        let folder = self.path.join(name.to_string());
        fs::create_dir(&folder)?;
        for file in files {
            let to = folder.join(file);
            fs::copy(from.join(file), &to)?;
            File::open(&to)?.sync_all()?;
        }
        sync_folder(&folder)?;
        let owner = PartitionMetadata { topic_id: name.topic_id, partition };
        write_synced(&folder.join(PARTITION_METADATA), &owner.encode())?;
        sync_folder(&folder)?;
        sync_folder(&self.path)
    }

    /// Puts the folder in its place.
    pub fn finish(mut self) -> io::Result<()> {
        sync_folder(&self.path)?;
        fs::rename(&self.path, &self.into)?;
        self.is_done = true;
        match self.into.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            Some(parent) => sync_folder(parent),
            None => sync_folder(Path::new(".")),
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if !self.is_done
            && let Err(error) = fs::remove_dir_all(&self.path)
        {
            tracing::warn!(folder = %self.path.display(), %error, "cannot remove what was made so far");
        }
    }
}

/// The base offsets of its segments, in order.
fn bases(log: &CarriedLog) -> Vec<i64> {
    // Names of twenty digits are in order.
    log.files.keys().filter_map(|name| name.strip_suffix(".log")?.parse().ok()).collect()
}

/// The files of a log that go along, and their lengths, by name.
pub fn carried_files(folder: &Path) -> io::Result<BTreeMap<String, u64>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let Some(file) = entry.file_name().to_str().map(str::to_owned) else { continue };
        if file == EPOCHS || SEGMENT_SUFFIXES.iter().any(|suffix| file.ends_with(suffix)) {
            files.insert(file, entry.metadata()?.len());
        }
    }
    Ok(files)
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    fs::write(path, bytes)?;
    File::open(path)?.sync_all()
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
