//! Creating and opening logs.
//!
//! Holds: the order in which a new log's files come to be, the way from a folder to an open log.
//! Never touches: how much of a segment is good (`recover` decides).
//!
//! A folder becomes a log with its `partition.metadata`, which is written last: a folder without it is a creation that
//! was interrupted. Then the log gets its entry in the shard's checkpoint, which stays until the log is deleted: if there is
//! an entry and no log, somebody took the log away.

use super::common::TailOwner;
use super::compaction::complete_swaps;
use super::config::LogConfig;
use super::env::StorageEnv;
use super::error::{ACCEPT_LOSS, FenceReason, OpenError};
use super::names::{LOG, LogName, segment_path};
use super::recover::{Recovered, recover};
use super::removal::leftovers;
use super::roll::roll_jitter;
use super::state::{Capture, State, Status};
use super::{Inner, Log};
use crate::batch::HEADER_BYTES;
use crate::disk::align_up;
use crate::disk::checkpoint::{CheckpointEntry, LogKey};
use crate::disk::files::{SCRATCH_SUFFIX, is_shortage, mkdir_if_missing, read_file, replace_file, unlink_if_there};
use crate::disk::meta::{PARTITION_METADATA, PartitionMetadata};
use crate::disk::spare::{write_zeroes, zeroes};
use crate::epochs::{CHECKPOINT_FILE_NAME, EpochCache};
use crate::ids::{LeaderEpoch, Offset};
use corelog_reactor::{DirEntry, OpenHow, Reactor};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Weak;

/// Recovery that read more than this moves the recovery point at once, so that the next start need not read it again.
const CAPTURE_AFTER_BYTES: u64 = 4 << 20;

fn failed<'p>(path: &'p Path, what: &'static str) -> impl FnOnce(io::Error) -> OpenError + 'p {
    move |error| OpenError::Io { path: path.to_path_buf(), what, error }
}

/// What the checkpoint says about a log, if it ever was.
fn known(env: &StorageEnv, key: &LogKey) -> Option<CheckpointEntry> {
    env.checkpoint_of(key).filter(|entry| !entry.is_deleted)
}

fn folder_of(env: &StorageEnv, name: &LogName) -> Result<PathBuf, OpenError> {
    let folder = name.folder().ok_or_else(|| OpenError::Name { name: name.to_string() })?;
    Ok(env.data().join(folder))
}

impl Log {
    /// Makes a new, empty log. Its files, its folder, the entry of the folder and its entry in the checkpoint are on stable
    /// storage when this returns.
    ///
    /// # Errors
    /// [`OpenError::AlreadyExists`] for a log that is there already, [`OpenError::Lost`] for one that was; otherwise as the
    /// disk failed. A creation that failed or was interrupted may be repeated.
    pub async fn create(env: &StorageEnv, name: LogName, config: LogConfig) -> Result<Self, OpenError> {
        let folder = folder_of(env, &name)?;
        let reactor = env.reactor();
        let entries = match reactor.list_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(failed(&folder, "list it")(error)),
        };
        if has_metadata(&entries) {
            check_owner(env, &name, &folder).await?;
            return Err(OpenError::AlreadyExists { folder });
        }
        let is_loss_accepted = entries.iter().any(|e| e.name == ACCEPT_LOSS);
        for entry in entries.iter().filter(|e| e.name != ACCEPT_LOSS) {
            if !is_left_by_a_creation(reactor, &folder, entry).await.map_err(failed(&folder, "look into it"))? {
                return Err(OpenError::Unclaimed { folder, file: entry.name.clone() });
            }
        }
        env.is_still_there().await.and_then(|()| env.reserve().may_grow()).map_err(failed(&folder, "make it"))?;
        if let Some(known) = known(env, &name.key()) {
            let offset = known.recovery.offset.max(known.log_start);
            if !is_loss_accepted {
                return Err(OpenError::Lost { folder, offset });
            }
            tracing::warn!(log = %name, %offset, "the log is made anew, without its records: {ACCEPT_LOSS} says so");
            // Before the new files: nobody shall look for the old records in them.
            let fresh = CheckpointEntry::starting_at(name.topic.clone(), Offset::ZERO);
            env.set_checkpoint(
                name.key(),
                CheckpointEntry { version: known.version + 1, replay_from: env.commit_log().replay_from(), ..fresh },
            );
            env.flush_checkpoint().await.map_err(failed(env.data(), "write the checkpoint"))?;
        }
        mkdir_if_missing(reactor, &folder).await.map_err(failed(&folder, "make it"))?;
        for entry in entries.iter().filter(|e| e.name != ACCEPT_LOSS) {
            unlink_if_there(reactor, &folder.join(&entry.name)).await.map_err(failed(&folder, "clear it"))?;
        }
        let make = async {
            make_first_segment(env, &folder).await?;
            // A folder with this file is a whole log: whatever else belongs to one is durable before.
            reactor.sync_dir(&folder).await?;
            write_owner(env, &name, &folder).await
        };
        make.await.map_err(failed(&folder, "fill it"))?;
        Self::open(env, name, config).await
    }

    /// Opens a log, recovering it if it was not closed. What it then holds is on stable storage. If acknowledged bytes are
    /// found damaged the log opens [fenced](Self::fenced): it can be read up to the damage.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub async fn open(env: &StorageEnv, name: LogName, config: LogConfig) -> Result<Self, OpenError> {
        let folder = folder_of(env, &name)?;
        let reactor = env.reactor();
        let entries = match reactor.list_dir(&folder) {
            Ok(entries) if has_metadata(&entries) => entries,
            Ok(_) => return Err(OpenError::NotFound { folder }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(OpenError::NotFound { folder });
            }
            Err(error) => return Err(failed(&folder, "list it")(error)),
        };
        let owner = check_owner(env, &name, &folder).await?;
        let entries = if complete_swaps(env, &folder, &entries).await? {
            reactor.list_dir(&folder).map_err(failed(&folder, "list it"))?
        } else {
            entries
        };
        if env.commit_log().is_abandoned(&name.key()) {
            let words = "it was let go of before its segment had all that the commit log has: a restart opens it";
            return Err(failed(&folder, "open it")(io::Error::other(words)));
        }
        if entries.iter().any(|e| e.name == ACCEPT_LOSS) {
            // Its entry in the checkpoint was there before its files: nothing else would sync what an interrupted start made.
            reactor.sync_dir(&folder).await.map_err(failed(&folder, "sync it"))?;
            env.sync_data().await.map_err(failed(env.data(), "sync it"))?;
        }
        let is_done_with = |name: &str| name.ends_with(SCRATCH_SUFFIX) || name == ACCEPT_LOSS;
        for entry in entries.iter().filter(|e| e.name.to_str().is_some_and(is_done_with)) {
            unlink_if_there(reactor, &folder.join(&entry.name)).await.map_err(failed(&folder, "clean it up"))?;
        }
        if owner.partition.is_none() {
            match write_owner(env, &name, &folder).await {
                // The next start tries again.
                Err(error) if is_shortage(&error) => {}
                written => written.map_err(failed(&folder, "write its partition.metadata"))?,
            }
        }
        let epochs = read_epochs(env, &folder).await?;
        let written = epochs.clone();
        // Also an epoch whose records are gone is not begun a second time.
        let begun = epochs.latest().map_or(LeaderEpoch::NONE, |e| e.epoch);
        let checkpoint = known(env, &name.key());
        let vouched_for = checkpoint.as_ref().map_or(Offset::ZERO, |c| c.recovery.offset);
        let is_new = checkpoint.is_none();
        let truncating = checkpoint.as_ref().and_then(|c| c.truncate_to);
        let recovered = recover(env, &name, &folder, &entries, epochs, checkpoint, &config).await?;
        let begun = begun.max(recovered.newest_epoch);
        let log = Self::start(env, name, folder, config, recovered);
        {
            let mut state = log.0.state.borrow_mut();
            state.epoch_begun = state.epoch_begun.max(begun);
            state.are_epochs_written = state.epochs == written;
        }
        let are_epochs_anew = written.latest().is_none() && log.tell_missing_epochs(vouched_for);
        let is_writable = log.fenced().is_none();
        if is_writable && (truncating.is_some() || are_epochs_anew) {
            let path = log.folder().join(CHECKPOINT_FILE_NAME);
            log.write_epochs().await.map_err(failed(&path, "write it"))?;
        }
        if truncating.is_some() && is_writable {
            log.update_checkpoint(|_| ());
            env.flush_checkpoint().await.map_err(failed(env.data(), "write the checkpoint"))?;
        }
        if is_new {
            // In this order: an entry without a folder means that the folder was taken away.
            env.sync_data().await.map_err(failed(env.data(), "sync it"))?;
            log.update_checkpoint(|_| ());
            env.flush_checkpoint().await.map_err(failed(env.data(), "write the checkpoint"))?;
        }
        if is_writable {
            log.clear_leftovers(&entries).await?;
        }
        log.keep();
        Ok(log)
    }

    /// What a crash, or the last stop, has left of segments that are gone.
    async fn clear_leftovers(&self, entries: &[DirEntry]) -> Result<(), OpenError> {
        let inner = &*self.0;
        let first = inner.state.borrow().segments().next().map_or(Offset::ZERO, |first| first.base);
        let found = leftovers(entries, first, &inner.folder);
        for path in found.orphans {
            unlink_if_there(inner.env.reactor(), &path).await.map_err(failed(&path, "remove it"))?;
        }
        self.remove_deleted(found.deleted);
        Ok(())
    }

    /// Opens a log, or makes it if it was never there.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub async fn open_or_create(env: &StorageEnv, name: LogName, config: LogConfig) -> Result<Self, OpenError> {
        match Self::open(env, name.clone(), config.clone()).await {
            Err(OpenError::NotFound { .. }) => Self::create(env, name, config).await,
            other => other,
        }
    }

    fn start(env: &StorageEnv, name: LogName, folder: PathBuf, config: LogConfig, recovered: Recovered) -> Self {
        if recovered.scanned_bytes > 0 {
            tracing::debug!(log = %name, bytes = recovered.scanned_bytes, log_end = %recovered.log_end, "recovered");
        }
        let mut state = State::new(
            recovered.active,
            recovered.log_start,
            recovered.log_end,
            recovered.producers,
            recovered.epochs,
            recovered.checkpoint,
            env.reactor().now(),
        );
        state.older = recovered.older;
        let last = state.segments().rev().find_map(|s| s.aborted.as_deref()?.last_offset());
        state.aborted_to = last;
        state.active.jitter_ms = roll_jitter(env.reactor(), &config);
        let active_base = state.active.base;
        state.inner_snapshot = recovered.snapshot_at.filter(|at| *at > active_base);
        if recovered.scanned_bytes > CAPTURE_AFTER_BYTES && recovered.rot.is_none() {
            state.capture = Some(Capture {
                offset: state.log_end,
                segment_base: active_base,
                position: state.active.bytes(),
                snapshot: state.producers.snapshot(),
            });
        }
        if let Some(reason) = &recovered.rot {
            state.status = Status::Fenced(reason.clone());
        }
        let restored = state.active.tail.memory_bytes();
        let log = Self::new(env, name, folder, config, state);
        if restored > 0 {
            let me: Weak<dyn TailOwner> = log.0.me.clone();
            env.adopt_chunk(restored, me);
        }
        if let Some(reason) = recovered.rot {
            log.say_fenced(&reason);
        } else if !recovered.below_start.is_empty() {
            log.remove_unopened(recovered.below_start);
        }
        log
    }

    /// Whether records are here whose epochs had to be read from them, though the checkpoint had them before the recovery
    /// point passed them. Those behind it need not be in any file.
    fn tell_missing_epochs(&self, vouched_for: Offset) -> bool {
        let state = self.0.state.borrow();
        let (found, is_fenced) = (state.epochs.entries().len(), state.status != Status::Open);
        let is_all_new = state.segments().next().is_none_or(|first| vouched_for <= first.base);
        if found == 0 || state.log_end == state.log_start || is_all_new {
            return false;
        }
        tracing::warn!(
            log = %self.name(),
            file = %self.folder().join(CHECKPOINT_FILE_NAME).display(),
            epochs = found,
            "the leader-epoch checkpoint was missing or empty: the epochs were read from the log's batches{}",
            if is_fenced { "" } else { ", and the file is written anew" }
        );
        true
    }

    fn say_fenced(&self, reason: &FenceReason) {
        tracing::error!(
            log = %self.name(),
            folder = %self.folder().display(),
            %reason,
            "the log opens fenced: it can be read up to the damage, not written. {}",
            reason.remedy()
        );
        self.0.env.count(|c| c.fenced += 1);
    }
}

/// Whether a creation that was interrupted can have left this file: a scratch file, or a first segment of zeros alone.
async fn is_left_by_a_creation(reactor: &Reactor, folder: &Path, entry: &DirEntry) -> io::Result<bool> {
    let path = folder.join(&entry.name);
    if entry.name.to_str().is_some_and(|name| name.ends_with(SCRATCH_SUFFIX)) {
        return Ok(true);
    }
    if path != segment_path(folder, Offset::ZERO, LOG) {
        return Ok(false);
    }
    // A record batch has no header of zeros.
    let file = reactor.open(&path, OpenHow::read()).await?;
    let (read, head) = file.read_at(vec![0; HEADER_BYTES], 0).await;
    let read = read?;
    Ok(head.iter().take(read).all(|byte| *byte == 0))
}

fn has_metadata(entries: &[DirEntry]) -> bool {
    entries.iter().any(|e| e.name == PARTITION_METADATA)
}

/// A folder with this file is a whole log.
async fn write_owner(env: &StorageEnv, name: &LogName, folder: &Path) -> io::Result<()> {
    let owner = PartitionMetadata { topic_id: name.topic_id, partition: Some(name.partition) };
    replace_file(env.reactor(), &folder.join(PARTITION_METADATA), owner.encode()).await
}

/// Whose log the folder holds, if it is the one of `name`.
async fn check_owner(env: &StorageEnv, name: &LogName, folder: &Path) -> Result<PartitionMetadata, OpenError> {
    let path = folder.join(PARTITION_METADATA);
    let bytes = read_file(env.reactor(), &path).await.map_err(failed(&path, "read it"))?;
    let found = PartitionMetadata::decode(&bytes).map_err(|error| OpenError::Metadata {
        path,
        error,
        topic: name.topic.clone(),
        topic_id: name.topic_id,
    })?;
    if found.topic_id != name.topic_id {
        let (found, expected) = (found.topic_id, name.topic_id);
        return Err(OpenError::TopicId { folder: folder.to_path_buf(), found, expected });
    }
    match found.partition {
        Some(other) if other != name.partition => {
            let home = LogName { partition: other, ..name.clone() }.to_string();
            let (folder, home) = (folder.to_path_buf(), env.data().join(home));
            Err(OpenError::Misplaced { folder, name: name.to_string(), found: other, home })
        }
        _ => Ok(found),
    }
}

async fn read_epochs(env: &StorageEnv, folder: &Path) -> Result<EpochCache, OpenError> {
    let path = folder.join(CHECKPOINT_FILE_NAME);
    match read_file(env.reactor(), &path).await {
        Ok(bytes) => EpochCache::decode(&bytes).map_err(|error| OpenError::Epochs { path, error: error.to_string() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(EpochCache::new()),
        Err(error) => Err(failed(&path, "read it")(error)),
    }
}

/// The first segment, with a little pre-written room: enough for a quiet partition's first hours.
async fn make_first_segment(env: &StorageEnv, folder: &Path) -> io::Result<()> {
    let how = OpenHow { direct: env.options().direct, ..OpenHow::write().create().truncate() };
    let path = segment_path(folder, Offset::ZERO, LOG);
    let file = env.reactor().open(&path, how).await?;
    let room = align_up(env.options().first_room_bytes);
    if room > 0 {
        write_zeroes(&file, zeroes(env.reactor(), room)?, 0, room).await?;
    }
    file.fsync().await
}

impl Inner {
    /// Whether the log takes part in anything any more.
    pub(super) fn is_closed(&self) -> bool {
        self.state.borrow().status == Status::Closed
    }
}
