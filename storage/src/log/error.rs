//! Why an operation on a log did not happen: one enum per operation.
//!
//! Holds: the variants with what a log line needs. Never touches: Kafka's error codes (the API layer chooses those).

use crate::batch::BatchError;
use crate::disk::checkpoint::CheckpointError;
use crate::disk::files::{is_shortage, remedy};
use crate::disk::meta::MetaError;
use crate::ids::{LeaderEpoch, Offset, PartitionIndex, Timestamp, TopicId};
use crate::producers::{MarkerError, SequenceError};
use crate::segment::scan::BatchFault;
use std::io;
use std::path::PathBuf;

/// Why a log takes no more writes until a restart has recovered it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FenceReason {
    /// A write or sync failed: what is on the disk behind the durable end is unknown.
    #[error("{what} failed: {error}")]
    Io {
        /// Which one.
        what: &'static str,
        /// The error's text.
        error: String,
    },
    /// Acknowledged bytes have changed on the disk. Nothing is cut or overwritten.
    #[error("segment {segment} is damaged at byte {position} (offset {offset}): {fault}; the file is kept as it is")]
    Rot {
        /// Base offset of the segment.
        segment: Offset,
        /// Where the first bad batch starts.
        position: u64,
        /// The offset it should have.
        offset: Offset,
        /// What is wrong with it.
        fault: Damage,
    },
    /// A commit's future was dropped before its write completed: nobody knows what the disk holds.
    #[error("a commit was dropped while its write was in flight")]
    CommitDropped,
}

impl FenceReason {
    /// What to do about it.
    #[must_use]
    pub const fn remedy(&self) -> &'static str {
        match self {
            Self::Io { .. } => {
                "Look for the disk's errors in `dmesg`, put them right, and restart: what was acknowledged is recovered"
            }
            Self::Rot { .. } => {
                "Restore the folder from a backup and restart; or consume what can still be read into another topic, then \
                 delete this one. No restart repairs it"
            }
            Self::CommitDropped => "Restart: what was acknowledged is recovered",
        }
    }
}

/// What is wrong with acknowledged bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// A batch does not hold.
    #[error("{0}")]
    Batch(#[from] BatchFault),
    /// A segment is shorter than it was, or its batches end elsewhere.
    #[error("the segment ends at offset {found}, the next one starts at {expected}")]
    End {
        /// Where it ends.
        found: Offset,
        /// Base offset of the next segment.
        expected: Offset,
    },
    /// A segment file is missing.
    #[error("the segment is missing")]
    Missing,
    /// The commit log has records that do not join what the segment has.
    #[error(
        "the segment ends at offset {found}; the commit log has acknowledged records up to {expected} that do not join it"
    )]
    Unapplied {
        /// Where the segment ends.
        found: Offset,
        /// The offset behind the last of the records.
        expected: Offset,
    },
    /// The commit log and the segment have different bytes for the same offsets.
    #[error(
        "the commit log has other bytes for the offsets {from} to {to} than the segment: one of the two is damaged"
    )]
    Differs {
        /// The first of the entry's offsets.
        from: Offset,
        /// The offset behind its last.
        to: Offset,
    },
}

/// An empty file of this name, in an otherwise empty folder, says that what was in it is given up.
pub(super) const ACCEPT_LOSS: &str = "accept-loss";

/// Why a log was not created or opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The topic's name or the partition's number cannot name a folder.
    #[error("{name:?} cannot name a folder")]
    Name {
        /// The name.
        name: String,
    },
    /// There is a whole log already.
    #[error("{folder} exists already")]
    AlreadyExists {
        /// Its folder.
        folder: PathBuf,
    },
    /// There are records, and `partition.metadata`, which says whose they are, is missing: never taken for a log that was
    /// never completed.
    #[error("{folder} holds {file:?} and no partition.metadata: restore that file, or move the folder away")]
    Unclaimed {
        /// The folder.
        folder: PathBuf,
        /// What it holds.
        file: std::ffi::OsString,
    },
    /// There is no log, or its creation was interrupted.
    #[error("{folder} does not exist, or was never completed")]
    NotFound {
        /// Its folder.
        folder: PathBuf,
    },
    /// The log was here, and its folder is gone: never made anew without a word.
    #[error(
        "{folder} is gone or empty, and the log in it had reached offset {offset} at the least: bring the folder back (is its \
         disk mounted?) and start again. To go on without its records: delete the topic, or make {folder} with an empty file \
         named {ACCEPT_LOSS} in it and start again"
    )]
    Lost {
        /// Its folder.
        folder: PathBuf,
        /// What the checkpoint knows of its end.
        offset: Offset,
    },
    /// The folder belongs to another topic of the same name.
    #[error(
        "{folder} belongs to another topic of this name, with the id {found}, and not to {expected}: if folders were moved or \
         restored, put the right one in its place and start again; else move it out of the data folder"
    )]
    TopicId {
        /// The folder.
        folder: PathBuf,
        /// What `partition.metadata` says.
        found: TopicId,
        /// Whose log was to be opened.
        expected: TopicId,
    },
    /// The folder holds another partition of the same topic.
    #[error(
        "{folder} holds partition {found} of the topic, as its partition.metadata says, so folders were exchanged or restored \
         to the wrong place. Nothing was changed. Stop the broker and give the folder its name back: {}. (To make its records \
         those of {name} for good, remove the line `partition: {found}` from its partition.metadata)", home.display()
    )]
    Misplaced {
        /// The folder.
        folder: PathBuf,
        /// Which partition it should hold.
        name: String,
        /// Which one it holds.
        found: PartitionIndex,
        /// The folder of that one.
        home: PathBuf,
    },
    /// `partition.metadata` is damaged.
    #[error(
        "{path} is damaged: {error}. It says whose records lie beside it. If they are those of topic {topic}, write it anew and \
         start again: printf 'version: 0\\ntopic_id: {topic_id}' > {path}. If not, move the folder away"
    )]
    Metadata {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: MetaError,
        /// Whose log was to be opened.
        topic: String,
        /// The same topic's id.
        topic_id: TopicId,
    },
    /// The leader-epoch checkpoint is damaged.
    #[error(
        "{path} is damaged: {error}. Move it away and start again: the leader epochs are then read from the log's batches"
    )]
    Epochs {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: String,
    },
    /// The disk failed.
    #[error("{path}: cannot {what}: {error}{}", remedy(error))]
    Io {
        /// Where.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// How it failed.
        error: io::Error,
    },
}

impl OpenError {
    /// Whether there was no space, no file handle or no memory: the same may succeed later.
    #[must_use]
    pub fn is_shortage(&self) -> bool {
        matches!(self, OpenError::Io { error, .. } if is_shortage(error))
    }
}

/// Why batches were not appended. Nothing of them is in the log.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The bytes do not start with a whole batch.
    #[error(transparent)]
    Malformed(#[from] BatchError),
    /// A leader appends one batch at a time.
    #[error("{bytes} bytes behind the batch")]
    Trailing {
        /// How many.
        bytes: usize,
    },
    /// The batch holds no offsets.
    #[error("last offset delta {delta}")]
    Delta {
        /// What the header says.
        delta: i32,
    },
    /// A batch is larger than `max.message.bytes` or than a segment can be.
    #[error("a batch of {bytes} bytes where {max} are allowed")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        max: u64,
    },
    /// The caller's leader epoch is not the log's.
    #[error("leader epoch {theirs} where the log is at {ours}")]
    StaleEpoch {
        /// The log's.
        ours: LeaderEpoch,
        /// The caller's.
        theirs: LeaderEpoch,
    },
    /// The producer's batch is in the log already. It is acknowledged with these numbers once it is durable:
    /// once `durable_end` lies behind `last_offset`.
    #[error("a duplicate of offsets {base_offset} to {last_offset}")]
    Duplicate {
        /// First offset of the original.
        base_offset: Offset,
        /// Last offset of the original.
        last_offset: Offset,
        /// Its timestamp.
        timestamp: Timestamp,
    },
    /// The producer state forbids it (sequence, epoch).
    #[error(transparent)]
    Producer(#[from] SequenceError),
    /// A transaction marker that must not be written.
    #[error(transparent)]
    Marker(#[from] MarkerError),
    /// A follower's batch does not start at the log's end, or goes back in epochs.
    #[error("{0}")]
    NotNext(BatchFault),
    /// Back-pressure: too much waits to become durable, or there is no memory. Try again after a commit.
    #[error("{pending} bytes wait for the disk")]
    Full {
        /// Bytes that are not durable yet.
        pending: u64,
    },
    /// The disk is full, or no file handle is left. Goes away by itself once there is room.
    #[error("no space on the disk, or no file handle left")]
    NoSpace,
    /// The log takes no writes any more.
    #[error("the log is fenced: {0}")]
    Fenced(FenceReason),
    /// The log is being truncated, closed or deleted.
    #[error("the log is closed")]
    Closed,
}

/// Why pending bytes did not become durable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// The log is fenced, now or before.
    #[error("the log is fenced: {0}")]
    Fenced(FenceReason),
    /// The log was closed while the disk was full.
    #[error("the log is closed")]
    Closed,
}

/// Why nothing was read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Below the log's start or behind its end.
    #[error("offset {offset} is not within {log_start}..={log_end}")]
    OutOfRange {
        /// What was asked for.
        offset: Offset,
        /// First offset there is.
        log_start: Offset,
        /// Offset behind the last one.
        log_end: Offset,
    },
    /// A sealed segment's bytes do not hold.
    #[error("segment {segment} is damaged at byte {position}: {fault}")]
    Damaged {
        /// Base offset of the segment.
        segment: Offset,
        /// Where.
        position: u64,
        /// What is wrong.
        fault: Damage,
    },
    /// No memory for the read at the moment.
    #[error("no buffer of {bytes} bytes")]
    Busy {
        /// What was needed.
        bytes: usize,
    },
    /// The disk failed.
    #[error("cannot read segment {segment}: {error}")]
    Io {
        /// Base offset of the segment.
        segment: Offset,
        /// How it failed.
        error: io::Error,
    },
}

/// Why a change to the log as a whole (truncation, log start, epoch, close, deletion) did not complete.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The offset lies outside what the operation may touch.
    #[error("offset {offset} is not within {from}..={to}")]
    OutOfRange {
        /// What was asked for.
        offset: Offset,
        /// The lowest allowed.
        from: Offset,
        /// The highest allowed.
        to: Offset,
    },
    /// An epoch that goes back.
    #[error("epoch {theirs} behind {ours}")]
    StaleEpoch {
        /// The log's.
        ours: LeaderEpoch,
        /// The caller's.
        theirs: LeaderEpoch,
    },
    /// The log is fenced.
    #[error("the log is fenced: {0}")]
    Fenced(FenceReason),
    /// The log is closed, or another change is under way.
    #[error("the log is closed, or being changed")]
    Closed,
    /// A read that the change needs failed.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The disk failed.
    #[error("cannot {what}: {error}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// How it failed.
        error: io::Error,
    },
    /// The shard's checkpoint could not be written.
    #[error("the checkpoint: {0}")]
    Checkpoint(#[from] CheckpointError),
}
