//! Kafka's data folders as they lie on the disk.
//!
//! Holds: what is in them: identity, logs, checkpoints, the marks of an orderly stop. Never touches: what is
//! carried (`plan`);
//! the folders, which are only read.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use corelog_storage::disk::files::remedy;
use corelog_storage::disk::meta::{META_PROPERTIES, MetaError, MetaProperties, PARTITION_METADATA, PartitionMetadata};
use corelog_storage::ids::TopicId;
use nix::fcntl::{FcntlArg, fcntl};
use thiserror::Error;

use super::metadata_log::MetadataError;
use crate::names::CLUSTER_METADATA;

/// Kafka writes it at the end of an orderly stop, and removes it at its next start.
const CLEAN_SHUTDOWN: &str = ".kafka_cleanshutdown";
/// Where logs start whose first segment reaches further back.
const LOG_STARTS: &str = "log-start-offset-checkpoint";
/// Up to where followers had each log.
const HIGH_WATERMARKS: &str = "replication-offset-checkpoint";

/// Why a folder is none to import from.
#[derive(Debug, Error)]
pub enum SourceError {
    /// The system refuses.
    #[error("cannot read {path}: {error}{}", remedy(error))]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// It is no folder of Kafka's.
    #[error("{path} is no data folder of Kafka: it has no {META_PROPERTIES}")]
    NoFolder {
        /// The folder.
        path: PathBuf,
    },
    /// A small file is damaged.
    #[error("{path}: {reason}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Somebody uses it.
    #[error("{path} is in use by process {pid}: stop that Kafka first")]
    InUse {
        /// The folder.
        path: PathBuf,
        /// Who.
        pid: i32,
    },
    /// The Kafka was killed.
    #[error(
        "{path} has no {CLEAN_SHUTDOWN}: that Kafka runs, or did not stop in an orderly way. Start it once more and \
         stop it with SIGTERM (kafka-server-stop.sh): what a crash has left is for Kafka to put right"
    )]
    Unclean {
        /// The folder.
        path: PathBuf,
    },
    /// The folders are not of one broker.
    #[error("{one} is of cluster {}, node {}, and {other} of another: give the log.dirs of one broker",
    ours.cluster_id, ours.node_id)]
    Strangers {
        /// The first folder.
        one: PathBuf,
        /// What its meta.properties says.
        ours: MetaProperties,
        /// The other one.
        other: PathBuf,
    },
    /// None of the folders has the metadata.
    #[error(
        "there is no {CLUSTER_METADATA}-0 in {folders}: give all log.dirs of that Kafka, and its metadata.log.dir. \
         A Kafka that keeps its metadata in ZooKeeper must be migrated to KRaft first"
    )]
    NoMetadata {
        /// Where it was looked for.
        folders: String,
    },
    /// The metadata cannot be read.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
}

/// One partition's folder.
#[derive(Clone, Debug)]
pub struct FoundLog {
    pub path: PathBuf,
    /// Whose it says it is.
    pub topic_id: TopicId,
    /// From Kafka's checkpoints, if they know it.
    pub log_start: Option<i64>,
    pub high_watermark: Option<i64>,
}

/// All folders of one broker.
#[derive(Debug)]
pub struct Source {
    pub meta: MetaProperties,
    /// Where the metadata is.
    pub metadata: PathBuf,
    /// By topic and partition.
    pub logs: BTreeMap<(String, i32), FoundLog>,
    /// Folders that are no partition's: strays, deleted ones, moves that were not completed.
    pub left_out: Vec<PathBuf>,
}

/// Looks at the folders.
pub fn look(folders: &[PathBuf]) -> Result<Source, SourceError> {
    let mut source: Option<Source> = None;
    let mut metadata = None;
    for folder in folders {
        let meta = read_meta(folder)?;
        is_at_rest(folder)?;
        let source = source.get_or_insert_with(|| Source {
            meta: meta.clone(),
            metadata: PathBuf::new(),
            logs: BTreeMap::new(),
            left_out: Vec::new(),
        });
        if (&source.meta.cluster_id, source.meta.node_id) != (&meta.cluster_id, meta.node_id) {
            let (one, ours) = (folders.first().unwrap_or(folder).clone(), source.meta.clone());
            return Err(SourceError::Strangers { one, ours, other: folder.clone() });
        }
        let place = folder.join(format!("{CLUSTER_METADATA}-0"));
        if place.is_dir() {
            metadata = Some(place);
        }
        look_into(folder, source)?;
    }
    match (source, metadata) {
        (Some(source), Some(metadata)) => Ok(Source { metadata, ..source }),
        _ => {
            let folders: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
            Err(SourceError::NoMetadata { folders: folders.join(", ") })
        }
    }
}

fn read_meta(folder: &Path) -> Result<MetaProperties, SourceError> {
    let path = folder.join(META_PROPERTIES);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound && folder.is_dir() => {
            return Err(SourceError::NoFolder { path: folder.to_owned() });
        }
        Err(error) => return Err(SourceError::Io { path, error }),
    };
    MetaProperties::decode(&bytes).map_err(|error| {
        let reason = match error {
            MetaError::Value { key: "version", .. } => {
                format!("{error}: of a Kafka with ZooKeeper, which must be migrated to KRaft first")
            }
            other => other.to_string(),
        };
        SourceError::File { path, reason }
    })
}

/// Kafka holds a lock of the POSIX kind on `.lock`, and leaves a mark when it has stopped.
fn is_at_rest(folder: &Path) -> Result<(), SourceError> {
    if let Ok(file) = File::open(folder.join(".lock")) {
        let mut lock = libc::flock {
            l_type: libc::F_WRLCK as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: 0,
            l_len: 0,
            l_pid: 0,
        };
        if fcntl(file.as_fd(), FcntlArg::F_GETLK(&mut lock)).is_ok() && lock.l_type != libc::F_UNLCK as libc::c_short {
            return Err(SourceError::InUse { path: folder.to_owned(), pid: lock.l_pid });
        }
    }
    if folder.join(CLEAN_SHUTDOWN).exists() {
        return Ok(());
    }
    Err(SourceError::Unclean { path: folder.to_owned() })
}

fn look_into(folder: &Path, source: &mut Source) -> Result<(), SourceError> {
    let failed = |error| SourceError::Io { path: folder.to_owned(), error };
    let (starts, marks) = (read_checkpoint(&folder.join(LOG_STARTS))?, read_checkpoint(&folder.join(HIGH_WATERMARKS))?);
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = entry.path();
        let metadata = path.join(PARTITION_METADATA);
        let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
        if name == format!("{CLUSTER_METADATA}-0") || !metadata.is_file() {
            continue;
        }
        let Some(key) = split(&name).filter(|key| !source.logs.contains_key(key)) else {
            source.left_out.push(path);
            continue;
        };
        let bytes = fs::read(&metadata).map_err(|error| SourceError::Io { path: metadata.clone(), error })?;
        let owner = PartitionMetadata::decode(&bytes);
        let owner = owner.map_err(|error| SourceError::File { path: metadata, reason: error.to_string() })?;
        let (log_start, high_watermark) = (starts.get(&key).copied(), marks.get(&key).copied());
        source.logs.insert(key, FoundLog { path, topic_id: owner.topic_id, log_start, high_watermark });
    }
    Ok(())
}

/// Topic and partition in a folder's name, if Kafka would write it so.
fn split(name: &str) -> Option<(String, i32)> {
    let (topic, partition) = name.rsplit_once('-')?;
    let partition: i32 = partition.parse().ok()?;
    (partition >= 0 && format!("{topic}-{partition}") == name).then(|| (topic.to_owned(), partition))
}

/// One of Kafka's offset checkpoints; one that is missing says nothing.
fn read_checkpoint(path: &Path) -> Result<BTreeMap<(String, i32), i64>, SourceError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(SourceError::Io { path: path.to_owned(), error }),
    };
    let damaged = |reason: &str| SourceError::File { path: path.to_owned(), reason: reason.to_owned() };
    let mut lines = text.lines();
    if lines.next() != Some("0") {
        return Err(damaged("it is not of version 0"));
    }
    let count: usize = lines
        .next()
        .and_then(|line| line.parse().ok())
        .ok_or_else(|| damaged("it does not say how many entries it has"))?;
    let mut offsets = BTreeMap::new();
    for line in lines.filter(|line| !line.is_empty()) {
        let words: Vec<&str> = line.split(' ').collect();
        let entry = match words[..] {
            [topic, partition, offset] => partition.parse().ok().zip(offset.parse().ok()).map(|e| (topic, e)),
            _ => None,
        };
        let (topic, (partition, offset)) = entry.ok_or_else(|| damaged(&format!("line {line:?} is no entry")))?;
        offsets.insert((topic.to_owned(), partition), offset);
    }
    if offsets.len() != count {
        return Err(damaged(&format!("it has {} entries instead of {count}", offsets.len())));
    }
    Ok(offsets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_as_kafka_writes_them() {
        assert_eq!(split("a-b-12"), Some(("a-b".to_owned(), 12)));
        for other in ["a", "a-", "a-01", "a-1-stray", "a-1.c0ffee-delete", "a-1.c0ffee-future"] {
            assert_eq!(split(other), None, "{other}");
        }
    }

    #[test]
    fn an_offset_checkpoint_is_read_whole_or_not_at_all() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("checkpoint");
        assert!(read_checkpoint(&path).expect("none is there").is_empty());
        fs::write(&path, "0\n2\na 0 5\nb 3 7\n").expect("write");
        let read = read_checkpoint(&path).expect("sound");
        assert_eq!(read, BTreeMap::from([(("a".to_owned(), 0), 5), (("b".to_owned(), 3), 7)]));
        for bad in ["", "1\n0\n", "0\nx\n", "0\n2\na 0 5\n", "0\n1\na 0\n", "0\n1\na 0 x\n"] {
            fs::write(&path, bad).expect("write");
            assert!(read_checkpoint(&path).is_err(), "{bad:?}");
        }
    }
}
