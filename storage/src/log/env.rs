//! What all logs of one shard in one data folder share.
//!
//! Holds: the reactor's handle, the options, the maker of spares, the writer of the shard's checkpoint, the syncs of the data
//! folder, the counters. Never touches: what a log holds; what is shared with the shard's other data folders (`common`).

use super::common::Common;
use super::config::StorageOptions;
use super::counters::StorageCounters;
use super::event::Event;
use super::health::Health;
use super::removal::Removals;
use super::write_back::WriteBacks;
use crate::commit_log::replay::{EntryReader, Replay};
use crate::commit_log::{CommitLog, Parts};
use crate::disk::checkpoint::{CheckpointEntry, CheckpointSet, LogKey};
use crate::disk::datadir::{DataShare, checkpoint_path};
use crate::disk::files::replace_file;
use crate::disk::presence::Presence;
use crate::disk::remove::remove_folder;
use crate::disk::reserve::{Reserve, free_bytes};
use crate::disk::spare::SpareMaker;
use crate::disk::{BLOCK_BYTES, COMMIT_BYTES_MAX, align_up};
use corelog_reactor::{Reactor, ShardId};
use std::cell::{Cell, RefCell};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

/// What a new log takes on the disk beside its first segment: its folder, two small files and their scratch.
const LOG_FILES_BYTES: u64 = 4 * BLOCK_BYTES;

/// The least bytes of a file of the commit log.
const COMMIT_LOG_FILE_BYTES_MIN: u64 = 64 << 10;
/// A file of the commit log is at most so many times as large as the batches in it may be: more would only be used by
/// records of less than 512 bytes that come alone, each of which takes a block.
const FILE_BYTES_FOR_A_BYTE: u64 = 8;

#[derive(Default)]
struct Checkpoint {
    set: CheckpointSet,
    /// Raised by every change.
    changed: u64,
    /// The change up to which the file is durable.
    durable: u64,
    writing: bool,
    timer: bool,
}

/// Syncs of the data folder: numbered as they are asked for.
#[derive(Default)]
struct DataSyncs {
    asked: u64,
    done: u64,
    running: bool,
}

struct Inner {
    reactor: Reactor,
    shard: ShardId,
    data: PathBuf,
    common: Rc<Common>,
    health: Health,
    options: StorageOptions,
    at_start: Arc<CheckpointSet>,
    reserve: Reserve,
    spares: SpareMaker,
    checkpoint: RefCell<Checkpoint>,
    checkpoint_written: Event,
    data_syncs: RefCell<DataSyncs>,
    data_synced: Event,
    replay: Arc<Replay>,
    commit_log: CommitLog,
    entry_reader: EntryReader,
    write_backs: WriteBacks,
    removals: Removals,
    counters: Cell<StorageCounters>,
    recovered_bytes: Cell<u64>,
}

/// One shard's storage in one data folder. A cheap handle; never leaves its thread.
#[derive(Clone)]
pub struct StorageEnv(Rc<Inner>);

impl StorageEnv {
    /// The storage of `shard` in the data folder that `share` is of.
    ///
    /// # Panics
    /// When the options contradict the block size.
    #[must_use]
    pub fn new(reactor: Reactor, shard: ShardId, share: DataShare, options: StorageOptions) -> Self {
        let common = Rc::new(Common::new(&reactor, options.cold_segments_max));
        Self::with(reactor, shard, share, options, common)
    }

    /// The same shard's storage in another data folder: memory and file handles are for both together.
    ///
    /// # Panics
    /// When the options contradict the block size.
    #[must_use]
    pub fn beside(&self, share: DataShare, options: StorageOptions) -> Self {
        Self::with(self.reactor().clone(), self.0.shard, share, options, Rc::clone(&self.0.common))
    }

    fn with(reactor: Reactor, shard: ShardId, share: DataShare, options: StorageOptions, common: Rc<Common>) -> Self {
        let DataShare { path: data, checkpoints, reserve, replay } = share;
        assert!(
            options.commit_bytes_max <= COMMIT_BYTES_MAX
                && options.commit_bytes_max >= BLOCK_BYTES
                && options.commit_bytes_max.is_multiple_of(BLOCK_BYTES),
            "commit writes of {} bytes",
            options.commit_bytes_max
        );
        let spares = SpareMaker::new(
            reactor.clone(),
            &data,
            shard,
            options.direct,
            options.prewritten_bytes_max,
            reserve.clone(),
        );
        // The rest of the pool is for what is pending, for cold reads and for everybody else: see `RESERVE_PART`.
        let mut options = options;
        options.tail_cache_bytes_max = options.tail_cache_bytes_max.min(reactor.pool().budget() / 2);
        let files = options.commit_log_files_max.max(1) * options.data_folders.max(1);
        let batches = (reactor.pool().budget() as u64 / 4 / files as u64).max(COMMIT_LOG_FILE_BYTES_MIN);
        let presence = Presence::of(&reactor, &data);
        let parts = Parts {
            presence: presence.clone(),
            reactor: reactor.clone(),
            shard,
            direct: options.direct,
            reserve: reserve.clone(),
            file_bytes: options.commit_log_file_bytes.clamp(COMMIT_LOG_FILE_BYTES_MIN, batches * FILE_BYTES_FOR_A_BYTE),
            file_batch_bytes: batches,
            files_max: options.commit_log_files_max,
            no_space_retry: options.no_space_retry,
            write_back_bytes: options.write_back_bytes,
            break_durability_for_a_test: options.break_durability_for_a_test,
            next_sequence: replay.next_sequence(),
            next_number: replay.next_number(),
        };
        let commit_log = CommitLog::new(&data, parts);
        Self(Rc::new(Inner {
            common,
            health: Health::of(presence),
            replay,
            commit_log,
            entry_reader: EntryReader::new(reactor.clone()),
            write_backs: WriteBacks::default(),
            removals: Removals::default(),
            reactor,
            shard,
            data,
            options,
            at_start: checkpoints,
            reserve,
            spares,
            checkpoint: RefCell::default(),
            checkpoint_written: Event::default(),
            data_syncs: RefCell::default(),
            data_synced: Event::default(),
            counters: Cell::default(),
            recovered_bytes: Cell::default(),
        }))
    }

    /// The shard's reactor.
    #[must_use]
    pub fn reactor(&self) -> &Reactor {
        &self.0.reactor
    }

    pub(super) fn shard(&self) -> ShardId {
        self.0.shard
    }

    pub(super) fn common(&self) -> &Common {
        &self.0.common
    }

    pub(super) fn health(&self) -> &Health {
        &self.0.health
    }

    /// The data folder.
    #[must_use]
    pub fn data(&self) -> &Path {
        &self.0.data
    }

    /// What it was told.
    #[must_use]
    pub fn options(&self) -> &StorageOptions {
        &self.0.options
    }

    /// Counts so far.
    #[must_use]
    pub fn counters(&self) -> StorageCounters {
        let log = self.0.commit_log.counters();
        StorageCounters {
            logged_commits: log.commits,
            log_writes: log.writes,
            log_bytes: log.bytes,
            log_files: log.files,
            log_recycles: log.recycles,
            log_no_place: log.no_place,
            ..self.0.counters.get()
        }
    }

    /// The maker of spare segments.
    #[must_use]
    pub fn spares(&self) -> &SpareMaker {
        &self.0.spares
    }

    /// The space for what must work on a full disk.
    #[must_use]
    pub fn reserve(&self) -> &Reserve {
        &self.0.reserve
    }

    /// Refuses `count` new logs that the disk has no room for, before anything is made of them. A simulated disk has no such
    /// number: there it shows when they are made.
    ///
    /// # Errors
    /// [`StorageFull`](io::ErrorKind::StorageFull).
    pub fn has_room_for_logs(&self, count: u64) -> io::Result<()> {
        let needed = count.saturating_mul(align_up(self.0.options.first_room_bytes) + LOG_FILES_BYTES);
        if count == 0 || self.0.reactor.is_simulated() {
            return Ok(());
        }
        // A file system that does not say what is free is simply tried.
        match free_bytes(&self.0.data) {
            Ok(free) if free < needed => {
                let words = format!("{count} new logs take {needed} bytes, and {free} are free");
                Err(io::Error::new(io::ErrorKind::StorageFull, words))
            }
            _ => Ok(()),
        }
    }

    /// Does what must work also on a full disk, with the reserve if it takes that: see [`Reserve::spend`].
    ///
    /// # Errors
    /// As `work` gives them in the end.
    pub async fn spend<T, E>(
        &self,
        is_no_space: impl Fn(&E) -> bool,
        work: impl AsyncFnMut() -> Result<T, E>,
    ) -> Result<T, E> {
        let result = self.0.reserve.spend(&self.0.reactor, is_no_space, work).await;
        self.refill_reserve();
        result
    }

    /// Has the reserve filled again, if it is spent, as soon as there is space.
    pub fn refill_reserve(&self) {
        if !self.0.reserve.is_spent() {
            return;
        }
        let (reactor, reserve, pause) = (self.0.reactor.clone(), self.0.reserve.clone(), self.0.options.no_space_retry);
        let task = async move { reserve.refill(&reactor, pause).await };
        if self.0.reactor.spawn(task).is_err() {
            tracing::warn!("no task for filling the reserve: the next deletion or start tries again");
        }
    }

    /// Starts removing folders that a crash or a deletion left behind.
    pub fn remove_leftovers(&self, folders: Vec<PathBuf>) {
        let reactor = self.0.reactor.clone();
        let task = async move {
            for folder in folders {
                if let Err(error) = remove_folder(&reactor, &folder).await {
                    tracing::warn!(folder = %folder.display(), %error, "cannot remove what is left of a log");
                }
            }
        };
        if self.0.reactor.spawn(task).is_err() {
            tracing::warn!("no task for removing leftovers: the next start does it");
        }
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut StorageCounters)) {
        let mut counters = self.0.counters.get();
        change(&mut counters);
        self.0.counters.set(counters);
    }

    /// Bytes that recovery has read and checked, also of logs that are not open yet.
    #[must_use]
    pub fn recovered_bytes(&self) -> u64 {
        self.0.recovered_bytes.get()
    }

    pub(crate) fn recovered(&self, bytes: usize) {
        self.0.recovered_bytes.set(self.0.recovered_bytes.get() + bytes as u64);
    }

    // ---- the commit log ----

    pub(crate) fn commit_log(&self) -> &CommitLog {
        &self.0.commit_log
    }

    pub(super) fn entry_reader(&self) -> &EntryReader {
        &self.0.entry_reader
    }

    pub(crate) fn write_backs(&self) -> &WriteBacks {
        &self.0.write_backs
    }

    pub(crate) fn removals(&self) -> &Removals {
        &self.0.removals
    }

    pub(crate) fn replay(&self) -> &Replay {
        &self.0.replay
    }

    // ---- the checkpoint ----

    /// The entry of a log: of this run, or else as the last one left it.
    pub(crate) fn checkpoint_of(&self, key: &LogKey) -> Option<CheckpointEntry> {
        let ours = self.0.checkpoint.borrow().set.get(key).cloned();
        ours.or_else(|| self.0.at_start.get(key).cloned())
    }

    /// What the last run left.
    #[must_use]
    pub fn checkpoints_at_start(&self) -> &CheckpointSet {
        &self.0.at_start
    }

    /// Remembers an entry; it reaches the disk within the checkpoint interval.
    pub(crate) fn set_checkpoint(&self, key: LogKey, entry: CheckpointEntry) {
        let mut checkpoint = self.0.checkpoint.borrow_mut();
        checkpoint.set.set(key, entry);
        checkpoint.changed += 1;
        if !std::mem::replace(&mut checkpoint.timer, true) {
            drop(checkpoint);
            let env = self.clone();
            let task = async move { env.write_checkpoint_later().await };
            if self.0.reactor.spawn(task).is_err() {
                // Whoever changes an entry next, or waits for one, tries again.
                self.0.checkpoint.borrow_mut().timer = false;
            }
        }
    }

    /// Forgets a log that was deleted, its folder renamed durably.
    pub(crate) fn drop_checkpoint(&self, key: &LogKey) {
        if self.0.at_start.get(key).is_some() {
            // The merged file has an entry of it until the next start: the mark of the deletion must outlive that one.
            return;
        }
        let mut checkpoint = self.0.checkpoint.borrow_mut();
        if checkpoint.set.remove(key).is_some() {
            checkpoint.changed += 1;
        }
    }

    async fn write_checkpoint_later(&self) {
        let mut is_told = false;
        loop {
            self.0.reactor.sleep(self.0.options.checkpoint_interval).await;
            if let Err(error) = self.flush_checkpoint().await {
                // Once: a folder that has failed does so until a restart.
                if !std::mem::replace(&mut is_told, true) {
                    let data = self.data().display();
                    tracing::warn!(%data, %error, "cannot write the log checkpoint; trying again");
                }
                self.0.reactor.sleep(self.0.options.no_space_retry).await;
                continue;
            }
            let mut checkpoint = self.0.checkpoint.borrow_mut();
            if checkpoint.durable == checkpoint.changed {
                checkpoint.timer = false;
                return;
            }
        }
    }

    /// Waits until every entry as it is now is on stable storage.
    ///
    /// # Errors
    /// As writing the file gave them; what was there before is still there.
    pub async fn flush_checkpoint(&self) -> io::Result<()> {
        let inner = &self.0;
        let want = inner.checkpoint.borrow().changed;
        loop {
            // One write at a time; whoever finds none under way makes the next one.
            let write = inner
                .checkpoint_written
                .until(|| {
                    let mut checkpoint = inner.checkpoint.borrow_mut();
                    if checkpoint.durable >= want {
                        return Some(None);
                    }
                    if checkpoint.writing {
                        return None;
                    }
                    checkpoint.writing = true;
                    Some(Some((checkpoint.changed, checkpoint.set.encode())))
                })
                .await;
            let Some((changed, bytes)) = write else {
                return Ok(());
            };
            let ended = CheckpointWrite(self);
            let path = checkpoint_path(&inner.data, inner.shard);
            let result = match self.is_still_there().await {
                Ok(()) => replace_file(&inner.reactor, &path, bytes).await,
                gone => gone,
            };
            if let Err(error) = &result {
                self.note_error(error);
            }
            if result.is_ok() {
                inner.checkpoint.borrow_mut().durable = changed;
                self.count(|c| c.checkpoints += 1);
            }
            drop(ended);
            result?;
        }
    }
}

impl StorageEnv {
    /// Makes the data folder's entries durable as they are now. Those who ask at the same time share a sync.
    pub(crate) async fn sync_data(&self) -> io::Result<()> {
        let inner = &self.0;
        let want = {
            let mut syncs = inner.data_syncs.borrow_mut();
            syncs.asked += 1;
            syncs.asked
        };
        loop {
            let sync = inner
                .data_synced
                .until(|| {
                    let mut syncs = inner.data_syncs.borrow_mut();
                    if syncs.done >= want {
                        return Some(None);
                    }
                    (!std::mem::replace(&mut syncs.running, true)).then_some(Some(syncs.asked))
                })
                .await;
            let Some(reaches) = sync else {
                return Ok(());
            };
            let ended = DataSync(self);
            let result = inner.reactor.sync_dir(&inner.data).await;
            if result.is_ok() {
                inner.data_syncs.borrow_mut().done = reaches;
            }
            drop(ended);
            result?;
        }
    }
}

/// Lets the next sync of the data folder in, also when this one is dropped.
struct DataSync<'a>(&'a StorageEnv);

impl Drop for DataSync<'_> {
    fn drop(&mut self) {
        let inner = &self.0.0;
        inner.data_syncs.borrow_mut().running = false;
        inner.data_synced.fire();
    }
}

/// Lets the next writer of the checkpoint in, also when this one is dropped.
struct CheckpointWrite<'a>(&'a StorageEnv);

impl Drop for CheckpointWrite<'_> {
    fn drop(&mut self) {
        let inner = &self.0.0;
        inner.checkpoint.borrow_mut().writing = false;
        inner.checkpoint_written.fire();
    }
}
