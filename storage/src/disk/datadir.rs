//! A data folder: its lock, its identity, the checkpoints in it, and what a crash or a deletion left behind.
//!
//! Holds: what happens to a data folder before any log in it opens. Never touches: logs.
//!
//! ```text
//! <data>/.lock                    held with flock(2) for as long as the broker runs; the holder's pid
//!        meta.properties          cluster, node and folder id (Kafka's format)
//!        log-checkpoint           all shards' checkpoints as merged at the last start
//!        log-checkpoint.<shard>   what a shard has written since
//!        .spare/                  pre-written spare segments
//!        .commit/                 the shards' commit logs
//!        .reserve                 space for what must work on a full disk
//!        <topic>-<partition>/     one log
//!        *-delete/                being removed
//!        *-stray/                 a log of a topic that nobody knows; kept
//! ```

use super::checkpoint::{CheckpointError, CheckpointSet};
use super::files::{SCRATCH_SUFFIX, is_no_space, mkdir_if_missing, read_file, remedy, replace_file, unlink_if_there};
use super::meta::{META_PROPERTIES, MetaError, MetaProperties, PARTITION_METADATA, PartitionMetadata};
use super::remove::{DELETE_SUFFIX, aside};
use super::reserve::Reserve;
use super::spare::SPARE_FOLDER;
use crate::commit_log::replay::Replay;
use corelog_reactor::{DirEntry, Reactor, ShardId};
use std::fs::TryLockError;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Name of the lock file, as Kafka's.
pub const LOCK_FILE: &str = ".lock";
/// Name of the merged checkpoint; each shard's own has the shard's number behind a dot.
pub const CHECKPOINT_FILE: &str = "log-checkpoint";

/// Why a data folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// Another process holds it.
    #[error("{path} is in use by process {holder}: stop that broker, or give this one a data folder of its own")]
    Locked {
        /// The folder.
        path: PathBuf,
        /// The pid in the lock file, as it stands there.
        holder: String,
    },
    /// `meta.properties` is damaged.
    #[error("{path}: {error}; restore the file, or move the folder away to start afresh")]
    Meta {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: MetaError,
    },
    /// A checkpoint is damaged. It says what was deleted, so it is not ignored.
    #[error(
        "{path}: {error}; removing the file makes recovery read everything, and records deleted by DeleteRecords come back"
    )]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: CheckpointError,
    },
    /// A commit log cannot be read. It holds acknowledged records that may be nowhere else.
    #[error(
        "{path}: cannot read it: {error}{}; moving it away gives up the acknowledged records in it that no segment has",
        remedy(error)
    )]
    CommitLog {
        /// The file.
        path: PathBuf,
        /// How it failed.
        error: io::Error,
    },
    /// It is a file, or lies below one.
    #[error("{path} is a file, not a folder: choose another with --data-dir or log.dirs, or move the file away")]
    NotAFolder {
        /// The file.
        path: PathBuf,
    },
    /// The disk failed, or a permission is missing.
    #[error("{path}: cannot {what}: {error}{}", remedy(error))]
    Io {
        /// The folder or file.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// How it failed.
        error: io::Error,
    },
}

impl DataDirError {
    /// Whether the disk was full.
    fn is_no_space(&self) -> bool {
        matches!(self, Self::Io { error, .. } if is_no_space(error))
    }
}

/// What every shard gets of a data folder.
#[derive(Clone, Debug)]
pub struct DataShare {
    /// Where it is.
    pub path: PathBuf,
    /// The shards' checkpoints, merged.
    pub checkpoints: Arc<CheckpointSet>,
    /// The space for what must work on a full disk.
    pub reserve: Reserve,
    /// What the commit logs of the last runs hold.
    pub replay: Arc<Replay>,
}

/// A data folder that is ours.
#[derive(Debug)]
pub struct DataDir {
    share: DataShare,
    meta: Option<MetaProperties>,
    leftovers: Vec<PathBuf>,
    // Held for their flocks; closing them lets go. None in the simulation.
    _lock: Option<Lock>,
}

impl DataDir {
    /// Takes the folder: makes it if it is missing, locks it, merges the shards' checkpoints, moves what was left over
    /// out of the way. To be called once, before any shard opens a log in it.
    ///
    /// # Errors
    /// See [`DataDirError`].
    pub async fn open(reactor: &Reactor, path: &Path) -> Result<Self, DataDirError> {
        let io = |what| move |error| DataDirError::Io { path: path.to_path_buf(), what, error };
        if let Some(path) = file_in_the_way(reactor, path) {
            return Err(DataDirError::NotAFolder { path });
        }
        make_folders(reactor, path).await.map_err(io("make it"))?;
        let lock = if reactor.is_simulated() { None } else { Some(lock(path)?) };
        let entries = reactor.list_dir(path).map_err(io("list it"))?;
        let meta = read_meta(reactor, path, &entries).await?;
        let mut leftovers = set_leftovers_aside(reactor, path, &entries).await.map_err(io("clean it up"))?;
        let reserve = Reserve::new(path, checkpoint_files(&entries).map(|(_, bytes)| bytes).sum());
        // Beside the work: a second try, with the reserve's space, must not forget what the first one has renamed.
        let mut deleted = Vec::new();
        let merge = async || merge_checkpoints(reactor, path, &entries, &mut deleted).await;
        let checkpoints = reserve.spend(reactor, DataDirError::is_no_space, merge).await?;
        leftovers.append(&mut deleted);
        let replay = Replay::read(reactor, path, &checkpoints).await;
        let replay = replay.map_err(|(path, error)| DataDirError::CommitLog { path, error })?;
        let (checkpoints, replay) = (Arc::new(checkpoints), Arc::new(replay));
        let share = DataShare { path: path.to_path_buf(), checkpoints, reserve, replay };
        Ok(Self { share, meta, leftovers, _lock: lock })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.share.path
    }

    /// Whose data it holds; `None` in a new folder.
    #[must_use]
    pub fn meta(&self) -> Option<&MetaProperties> {
        self.meta.as_ref()
    }

    /// Writes whose data it holds; durable when it returns.
    ///
    /// # Errors
    /// When the disk fails.
    pub async fn set_meta(&mut self, reactor: &Reactor, meta: MetaProperties) -> Result<(), DataDirError> {
        let path = self.path().join(META_PROPERTIES);
        replace_file(reactor, &path, meta.encode()).await.map_err(|error| DataDirError::Io {
            path,
            what: "write it",
            error,
        })?;
        self.meta = Some(meta);
        Ok(())
    }

    /// The shards' checkpoints, merged.
    #[must_use]
    pub fn checkpoints(&self) -> &CheckpointSet {
        &self.share.checkpoints
    }

    /// What every shard's `StorageEnv` is made with.
    #[must_use]
    pub fn share(&self) -> DataShare {
        self.share.clone()
    }

    /// The space for what must work on a full disk.
    #[must_use]
    pub fn reserve(&self) -> &Reserve {
        &self.share.reserve
    }

    /// Folders to be removed in the background, by one shard (`StorageEnv::remove_leftovers`).
    #[must_use]
    pub fn leftovers(&self) -> &[PathBuf] {
        &self.leftovers
    }
}

/// Where a shard writes its checkpoint.
#[must_use]
pub fn checkpoint_path(data: &Path, shard: ShardId) -> PathBuf {
    data.join(format!("{CHECKPOINT_FILE}.{shard}"))
}

/// Whether this is a checkpoint's name, and not that of a topic's folder or of somebody's copy of the file.
fn is_checkpoint(name: &str) -> bool {
    name.strip_prefix(CHECKPOINT_FILE).is_some_and(|rest| {
        let number = rest.strip_prefix('.').unwrap_or("none");
        rest.is_empty() || (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    })
}

/// The file that stands where the folder, or one above it, should be.
fn file_in_the_way(reactor: &Reactor, path: &Path) -> Option<PathBuf> {
    let is_no_folder =
        |path: &Path| reactor.list_dir(path).is_err_and(|error| error.kind() == io::ErrorKind::NotADirectory);
    path.ancestors().take_while(|path| is_no_folder(path)).last().map(Path::to_path_buf)
}

/// Makes the folder and what is missing above it; each new entry is synced, and that of the folder that is there: whoever
/// made it may have been killed before its sync.
async fn make_folders(reactor: &Reactor, path: &Path) -> io::Result<()> {
    let mut missing = Vec::new();
    let mut at = Some(path);
    while let Some(folder) = at.filter(|f| !f.as_os_str().is_empty()) {
        if reactor.list_dir(folder).is_ok() {
            match sync_parent(reactor, folder).await {
                // Then it is not ours to make either.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
                other => other?,
            }
            break;
        }
        missing.push(folder);
        at = folder.parent();
    }
    for folder in missing.into_iter().rev() {
        mkdir_if_missing(reactor, folder).await?;
        sync_parent(reactor, folder).await?;
    }
    Ok(())
}

async fn sync_parent(reactor: &Reactor, folder: &Path) -> io::Result<()> {
    match folder.parent().filter(|p| !p.as_os_str().is_empty()) {
        Some(parent) => reactor.sync_dir(parent).await,
        None => Ok(()),
    }
}

/// What keeps other brokers out: the folder itself, and the lock file in it. The file names the holder and keeps Kafka out
/// as well; the folder's own lock stands also when somebody has removed the file.
#[derive(Debug)]
struct Lock {
    _folder: std::fs::File,
    _file: std::fs::File,
}

fn lock(data: &Path) -> Result<Lock, DataDirError> {
    let path = data.join(LOCK_FILE);
    let io = |what| {
        let path = path.clone();
        move |error| DataDirError::Io { path, what, error }
    };
    let mut file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(io("open it"))?;
    let folder = std::fs::File::open(data).map_err(io("open its folder"))?;
    let folder_lock = match folder.try_lock() {
        // A file system that has locks on files only (NFS): the file must do.
        Err(TryLockError::Error(_)) => Ok(()),
        other => other,
    };
    match file.try_lock().and(folder_lock) {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // Only for the message: whoever holds the lock wrote its pid, unless the file is not the one it wrote.
            let _ = file.read_to_string(&mut holder);
            let holder = Some(holder.trim()).filter(|pid| !pid.is_empty()).unwrap_or("(its lock file was removed)");
            return Err(DataDirError::Locked { path: data.to_path_buf(), holder: holder.to_owned() });
        }
        Err(TryLockError::Error(error)) => return Err(io("lock it")(error)),
    }
    match name_holder(&mut file) {
        // The pid is for other brokers' messages only: it is no reason not to start.
        Err(error) if !is_no_space(&error) => Err(io("write it")(error)),
        _ => Ok(Lock { _folder: folder, _file: file }),
    }
}

/// Writes our pid into the lock file, over the one of the last holder: a full disk would not give back a block let go of.
fn name_holder(file: &mut std::fs::File) -> io::Result<()> {
    let pid = format!("{}\n", std::process::id());
    file.rewind()?;
    file.write_all(pid.as_bytes())?;
    file.set_len(pid.len() as u64)
}

async fn read_meta(
    reactor: &Reactor,
    data: &Path,
    entries: &[DirEntry],
) -> Result<Option<MetaProperties>, DataDirError> {
    if !entries.iter().any(|e| e.name == META_PROPERTIES) {
        return Ok(None);
    }
    let path = data.join(META_PROPERTIES);
    let bytes = match read_file(reactor, &path).await {
        Ok(bytes) => bytes,
        Err(error) => {
            return Err(DataDirError::Io { path, what: "read it", error });
        }
    };
    match MetaProperties::decode(&bytes) {
        Ok(meta) => Ok(Some(meta)),
        Err(error) => Err(DataDirError::Meta { path, error }),
    }
}

/// The checkpoint files' names, and their bytes.
fn checkpoint_files(entries: &[DirEntry]) -> impl Iterator<Item = (&str, u64)> {
    let files = entries.iter().filter(|e| !e.is_dir).filter_map(|e| Some((e.name.to_str()?, e.len)));
    files.filter(|(name, _)| is_checkpoint(name))
}

/// Reads all checkpoint files into one, writes that durably, and only then removes the shards' files: a crash between
/// merges the same entries again. Entries of deleted logs end here; their folders, renamed, are added to `deleted`.
async fn merge_checkpoints(
    reactor: &Reactor,
    data: &Path,
    entries: &[DirEntry],
    deleted: &mut Vec<PathBuf>,
) -> Result<CheckpointSet, DataDirError> {
    let names: Vec<&str> = checkpoint_files(entries).map(|(name, _)| name).collect();
    let mut merged = CheckpointSet::default();
    for name in &names {
        let path = data.join(name);
        let bytes = match read_file(reactor, &path).await {
            Ok(bytes) => bytes,
            Err(error) => {
                return Err(DataDirError::Io { path, what: "read it", error });
            }
        };
        match CheckpointSet::decode(&bytes) {
            Ok(set) => merged.merge(set),
            Err(error) => return Err(DataDirError::Checkpoint { path, error }),
        }
    }
    finish_deletions(reactor, data, entries, &merged, deleted).await?;
    merged.retain(|_, entry| !entry.is_deleted);
    let io = |what| move |error| DataDirError::Io { path: data.join(CHECKPOINT_FILE), what, error };
    replace_file(reactor, &data.join(CHECKPOINT_FILE), merged.encode()).await.map_err(io("write it"))?;
    for name in names.iter().filter(|name| **name != CHECKPOINT_FILE) {
        unlink_if_there(reactor, &data.join(name)).await.map_err(io("remove the shards' files beside it"))?;
    }
    reactor.sync_dir(data).await.map_err(io("sync its folder"))?;
    Ok(merged)
}

/// The folders of logs whose deletion was recorded and then interrupted: renamed, durably.
async fn finish_deletions(
    reactor: &Reactor,
    data: &Path,
    entries: &[DirEntry],
    merged: &CheckpointSet,
    renamed: &mut Vec<PathBuf>,
) -> Result<(), DataDirError> {
    for (key, entry) in merged.iter().filter(|(_, entry)| entry.is_deleted) {
        let name = format!("{}-{}", entry.topic, key.partition);
        if !entries.iter().any(|e| e.is_dir && e.name == *name) {
            continue;
        }
        let folder = data.join(&name);
        let io = |what| {
            let path = folder.clone();
            move |error| DataDirError::Io { path, what, error }
        };
        let found = match read_file(reactor, &folder.join(PARTITION_METADATA)).await {
            Ok(bytes) => PartitionMetadata::decode(&bytes).ok(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(io("read its partition.metadata")(error)),
        };
        // A new topic of the old name may have made its own folder since.
        if found.map(|found| found.topic_id) != Some(key.topic_id) {
            continue;
        }
        let to = aside(reactor, data, &name, DELETE_SUFFIX);
        reactor.rename(&folder, &to).await.map_err(io("rename it, to remove it"))?;
        renamed.push(to);
    }
    if !renamed.is_empty() {
        reactor.sync_dir(data).await.map_err(|error| DataDirError::Io {
            path: data.to_path_buf(),
            what: "sync it",
            error,
        })?;
    }
    Ok(())
}

/// Removes scratch files, renames the old spares away, and says which folders are to be removed.
async fn set_leftovers_aside(reactor: &Reactor, data: &Path, entries: &[DirEntry]) -> io::Result<Vec<PathBuf>> {
    let mut leftovers = Vec::new();
    for entry in entries {
        let Some(name) = entry.name.to_str() else {
            continue;
        };
        let path = data.join(name);
        if entry.is_dir && name.ends_with(DELETE_SUFFIX) {
            leftovers.push(path);
        } else if entry.is_dir && name == SPARE_FOLDER {
            let aside = data.join(format!("{SPARE_FOLDER}.{:016x}{DELETE_SUFFIX}", reactor.random_u64()));
            reactor.rename(&path, &aside).await?;
            leftovers.push(aside);
        } else if !entry.is_dir && name.ends_with(SCRATCH_SUFFIX) {
            unlink_if_there(reactor, &path).await?;
        }
    }
    Ok(leftovers)
}
