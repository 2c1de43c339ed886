//! The log of one partition: the crate's front door.
//!
//! Holds: [`Log`], what it is made of, and what is asked of it. Never touches: requests, replicas, the high watermark (the
//! caller brings limits with every read).
//!
//! A log lives on one shard: every method takes `&self`, nothing is locked. What needs no disk is synchronous: appending
//! (into the tail in memory), planning a read, reading what is hot. What waits for the disk is a future.
//!
//! ```text
//!   append_as_leader ──► tail in memory ──► log_end
//!                            │ commit(): one write in flight, all that is pending
//!                            ▼
//!                        stable storage ──► durable_end        an acknowledgement waits for this
//!                            │ rolled, durable
//!                            ▼
//!                        the keeper: indexes, producer snapshot, trim, then the recovery point
//! ```
//!
//! The owner's part: whenever [`Log::needs_commit`] says so, run [`Log::commit`] in a task, until it says no more.
//!
//! Read on: `state` (what there is), `append`, `commit`, `keeper`, `read`, `open` and `recover`, `change`, `retention`,
//! `forget`.

mod aborted;
mod append;
mod change;
mod close;
mod cold;
mod cold_range;
mod cold_segments;
mod commit;
mod common;
mod compaction;
mod config;
mod counters;
mod env;
mod error;
mod event;
mod foreground;
mod forget;
mod health;
mod index_check;
mod keeper;
mod logged;
mod lookup;
mod missing_epochs;
mod names;
mod open;
mod read;
mod reapply;
mod recover;
mod recover_read;
mod recover_txn;
mod removal;
mod repair;
mod replay;
mod retention;
mod roll;
mod room;
mod scan_file;
mod segment_write;
mod state;
mod truncate;
mod txn_index;
mod write_back;

pub use append::{Appended, LeaderBatch};
pub use cold::ColdRead;
pub use cold_range::ColdRange;
pub use compaction::{Compacted, CompactionError, CompactionRules, Pace, TRANSACTIONS_MAX_DEFAULT};
pub use config::{CommitLogUse, LogConfig, StorageOptions};
pub use counters::StorageCounters;
pub use env::StorageEnv;
pub use error::{AppendError, ChangeError, CommitError, Damage, FenceReason, OpenError, ReadError};
pub use foreground::Beside;
pub use lookup::LookupError;
pub use names::{LogName, SEGMENT_SUFFIXES};
pub use read::{ColdPlan, HotRead, ReadOutcome};
pub use retention::{Deleted, Retained};
pub use scan_file::SCAN_BYTES_MAX;

use crate::disk::checkpoint::{CheckpointEntry, LogKey};
use crate::epochs::EpochEnd;
use crate::ids::{LeaderEpoch, Offset, Timestamp};
use crate::producers::ProducerState;
pub use crate::segment::txn_index::AbortedTxn;
use common::{Evicted, TailOwner};
use event::Event;
use state::{Phase, State, Status};
use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};

/// One partition's log. A cheap handle to it; never leaves its thread.
#[derive(Clone)]
pub struct Log(Rc<Inner>);

struct Inner {
    env: StorageEnv,
    name: LogName,
    /// Tells this opening of the log apart from every other, for caches.
    number: u64,
    folder: PathBuf,
    config: RefCell<LogConfig>,
    state: RefCell<State>,
    /// Fired when offsets, the status or what is under way have changed.
    changed: Event,
    /// The active chunk must not be replaced just now.
    appending: Cell<bool>,
    /// The leader-epoch checkpoint is being written.
    writing_epochs: Cell<bool>,
    /// A DeleteRecords is under way.
    deleting_records: Cell<bool>,
    /// Its turn to be written back is coming.
    is_due: Cell<bool>,
    /// How many are renaming or removing files in its folder.
    unlinking: Cell<u32>,
    /// A round of compaction is under way.
    compacting: Cell<bool>,
    me: Weak<Inner>,
}

/// What a log looks like from outside, for metrics and admin requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogStatus {
    /// First offset that readers may see.
    pub log_start: Offset,
    /// Offset behind the last appended record.
    pub log_end: Offset,
    /// Offset behind the last record on stable storage.
    pub durable_end: Offset,
    /// Number of segments.
    pub segments: usize,
    /// Bytes of records, in memory or on disk.
    pub bytes: u64,
    /// Bytes that are not durable yet.
    pub pending_bytes: u64,
    /// Whether the disk is full.
    pub no_space: bool,
    /// Why the log takes no writes, if it is fenced.
    pub fenced: Option<FenceReason>,
}

impl Log {
    fn new(env: &StorageEnv, name: LogName, folder: PathBuf, config: LogConfig, state: State) -> Self {
        state.assert_invariants();
        Self(Rc::new_cyclic(|me| Inner {
            env: env.clone(),
            name,
            number: env.next_log(),
            folder,
            config: RefCell::new(config),
            state: RefCell::new(state),
            changed: Event::default(),
            appending: Cell::new(false),
            writing_epochs: Cell::new(false),
            deleting_records: Cell::new(false),
            is_due: Cell::new(false),
            unlinking: Cell::new(0),
            compacting: Cell::new(false),
            me: me.clone(),
        }))
    }

    /// Which partition's log it is.
    #[must_use]
    pub fn name(&self) -> &LogName {
        &self.0.name
    }

    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.0.folder
    }

    /// A copy of its configuration.
    #[must_use]
    pub fn config(&self) -> LogConfig {
        self.0.config.borrow().clone()
    }

    /// Replaces the configuration; applies from the next append on.
    pub fn set_config(&self, config: LogConfig) {
        self.0.state.borrow_mut().producers.set_idle_ms_max(config.producer_idle_ms_max);
        self.0.config.replace(config);
    }

    /// The first offset that readers may see.
    #[must_use]
    pub fn log_start(&self) -> Offset {
        self.0.state.borrow().log_start
    }

    /// The offset that the next record gets (LEO).
    #[must_use]
    pub fn log_end(&self) -> Offset {
        self.0.state.borrow().log_end
    }

    /// The offset behind the last record on stable storage. An acknowledgement, and the high watermark, wait for this.
    #[must_use]
    pub fn durable_end(&self) -> Offset {
        self.0.state.borrow().durable_end
    }

    /// Waits until everything below `offset` is on stable storage, or the log takes no writes. Somebody has to commit.
    pub async fn until_durable(&self, offset: Offset) {
        let inner = &*self.0;
        let look = || {
            let state = inner.state.borrow();
            (state.durable_end >= offset || state.status != Status::Open).then_some(())
        };
        inner.changed.until(look).await;
    }

    /// The newest leader epoch; [`LeaderEpoch::NONE`] before the first.
    #[must_use]
    pub fn epoch(&self) -> LeaderEpoch {
        self.0.state.borrow().epoch()
    }

    /// Why the log takes no writes, if a restart is needed to lift it.
    #[must_use]
    pub fn fenced(&self) -> Option<FenceReason> {
        match &self.0.state.borrow().status {
            Status::Fenced(reason) => Some(reason.clone()),
            Status::Open | Status::NoSpace | Status::Closed => None,
        }
    }

    /// Whether appended bytes wait for a commit that may still come: also while a change of the log holds commits up.
    #[must_use]
    pub fn has_pending(&self) -> bool {
        let state = self.0.state.borrow();
        state.pending_bytes > 0 && matches!(state.status, Status::Open | Status::NoSpace)
    }

    /// Appended bytes that are not durable yet.
    #[must_use]
    pub fn pending_bytes(&self) -> u64 {
        self.0.state.borrow().pending_bytes
    }

    /// Whether the disk is full: appends are refused until a commit finds space again.
    #[must_use]
    pub fn is_out_of_space(&self) -> bool {
        self.0.state.borrow().status == Status::NoSpace
    }

    /// All of it, for metrics and admin requests.
    #[must_use]
    pub fn status(&self) -> LogStatus {
        let state = self.0.state.borrow();
        LogStatus {
            log_start: state.log_start,
            log_end: state.log_end,
            durable_end: state.durable_end,
            segments: state.older.len() + 1,
            bytes: state.segments().map(state::Segment::bytes).sum(),
            pending_bytes: state.pending_bytes,
            no_space: state.status == Status::NoSpace,
            fenced: match &state.status {
                Status::Fenced(reason) => Some(reason.clone()),
                Status::Open | Status::NoSpace | Status::Closed => None,
            },
        }
    }

    /// Looks at the producers' state.
    pub fn producers<T>(&self, look: impl FnOnce(&ProducerState) -> T) -> T {
        look(&self.0.state.borrow().producers)
    }

    /// Forgets producers that have written nothing for `producer.id.expiration.ms`; returns how many.
    pub fn expire_producers(&self, now: Timestamp) -> usize {
        self.0.state.borrow_mut().producers.expire(now)
    }

    /// Changes the producers' state as the high watermark passes (stable offsets).
    pub fn producers_mut<T>(&self, change: impl FnOnce(&mut ProducerState) -> T) -> T {
        change(&mut self.0.state.borrow_mut().producers)
    }

    /// The epoch of the last record, or the one begun behind it: what a follower asks its leader about. Unlike
    /// [`epoch`](Self::epoch) it goes back with a truncation. [`LeaderEpoch::NONE`] in an empty log.
    #[must_use]
    pub fn epoch_at_end(&self) -> LeaderEpoch {
        self.0.state.borrow().epoch_of_end()
    }

    /// Where a leader epoch ends (KIP-101): the answer to OffsetForLeaderEpoch.
    #[must_use]
    pub fn epoch_end_offset(&self, epoch: LeaderEpoch) -> EpochEnd {
        let state = self.0.state.borrow();
        state.epochs.end_offset_for(epoch, state.log_end)
    }

    /// The epoch that the record at `offset` was written in, as far as is known.
    #[must_use]
    pub fn epoch_of(&self, offset: Offset) -> Option<LeaderEpoch> {
        self.0.state.borrow().epochs.epoch_for_offset(offset)
    }

    /// Below this offset batches need not join: the log was compacted there.
    fn compacted_to(&self) -> Offset {
        self.0.state.borrow().checkpoint.compacted_to
    }

    fn key(&self) -> LogKey {
        self.0.name.key()
    }

    /// Changes what the shard's checkpoint says about this log. On the disk soon, or after `flush_checkpoint`.
    fn update_checkpoint(&self, change: impl FnOnce(&mut CheckpointEntry)) {
        let mut state = self.0.state.borrow_mut();
        change(&mut state.checkpoint);
        state.checkpoint.version += 1;
        let entry = state.checkpoint.clone();
        drop(state);
        self.0.env.set_checkpoint(self.key(), entry);
    }

    /// Takes the log out of service until a restart. The first reason stays.
    fn fence(&self, reason: FenceReason) -> FenceReason {
        if matches!(reason, FenceReason::Io { .. }) {
            self.0.env.note_failure();
        }
        let mut state = self.0.state.borrow_mut();
        if let Status::Fenced(first) = &state.status {
            return first.clone();
        }
        tracing::error!(
            log = %self.0.name,
            folder = %self.0.folder.display(),
            %reason,
            "the log is fenced: it takes no writes until a restart. {}",
            reason.remedy()
        );
        state.status = Status::Fenced(reason.clone());
        state.capture = None;
        state.ticket = None;
        drop(state);
        self.0.env.count(|c| c.fenced += 1);
        self.0.changed.fire();
        reason
    }

    fn fence_io(&self, what: &'static str, error: &std::io::Error) -> FenceReason {
        self.fence(FenceReason::Io { what, error: error.to_string() })
    }
}

impl TailOwner for Inner {
    fn evict_one(&self) -> Evicted {
        let Ok(mut state) = self.state.try_borrow_mut() else {
            return Evicted::Nothing;
        };
        let state = &mut *state;
        for segment in &mut state.older {
            if segment.tail.is_empty() {
                continue;
            }
            let whole = segment.is_written().then(|| segment.tail.oldest_bytes());
            let Some(bytes) = whole.flatten().or_else(|| segment.tail.oldest_evictable(segment.written)) else {
                if segment.unwritten() > 0 {
                    self.want_write_back();
                }
                return Evicted::Nothing;
            };
            segment.tail.evict_oldest();
            if segment.tail.is_empty() && segment.phase == Phase::Sealed {
                segment.index = None;
            }
            self.env.give_chunk_bytes(bytes);
            return Evicted::Chunk(bytes);
        }
        let active = &mut state.active;
        if let Some(bytes) = active.tail.oldest_evictable(active.written) {
            active.tail.evict_oldest();
            self.env.give_chunk_bytes(bytes);
            return Evicted::Chunk(bytes);
        }
        if active.unwritten() > 0 && !active.tail.is_small() {
            self.want_write_back();
            return Evicted::Nothing;
        }
        // An idle partition that was busy once: it needs no more than its last block.
        let idle = !self.appending.get() && !state.writing && !state.filing;
        if idle
            && active.tail.is_shrinkable(active.written)
            && let Some(block) = self.env.take_block()
        {
            let before = active.tail.memory_bytes();
            active.tail.shrink(block);
            active.restored = Some((state.log_end, active.tail.end()));
            let after = active.tail.memory_bytes();
            self.env.give_chunk_bytes(before - after);
            return if after == 0 { Evicted::Chunk(before) } else { Evicted::Part(before - after) };
        }
        Evicted::Nothing
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let bytes = state.segments().map(|s| s.tail.memory_bytes()).sum();
        if !state.marks.is_empty() {
            self.env.commit_log().abandon(self.name.key());
        }
        self.env.give_chunk_bytes(bytes);
        self.env.cold().close(self.number, None);
    }
}
