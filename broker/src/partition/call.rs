//! Small questions to one partition, and its answers: what ListOffsets, DeleteRecords and their like come down to.
//!
//! Holds: the calls as plain values that travel between shards. Never touches: the wire's versions (the API layer), logs
//! ([`execute`] asks them, on the shard that owns the partition).

mod execute;

pub use execute::execute_all;

use std::path::Path;
use std::sync::Arc;

use corelog_net::wire::ErrorCode;
use corelog_storage::epochs::EpochEnd;
use corelog_storage::ids::{
    LeaderEpoch, Offset, PartitionIndex, ProducerEpoch, ProducerId, Sequence, Timestamp, TopicId,
};

/// Which partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionKey {
    /// Its topic.
    pub topic_id: TopicId,
    /// Its number.
    pub partition: PartitionIndex,
}

/// A question to a partition, or a small change of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionCall {
    /// Find an offset.
    ListOffset(ListOffset),
    /// Where did an epoch end (KIP-320)?
    EpochEnd {
        /// The epoch that the client believes to be the leader's.
        current_epoch: Option<LeaderEpoch>,
        /// The epoch in question.
        epoch: LeaderEpoch,
    },
    /// Move the log's start.
    DeleteRecords {
        /// The first offset to keep; `None`: the high watermark.
        before: Option<Offset>,
    },
    /// Which producers does it remember (KIP-664)?
    Producers,
    /// How large is its log, and where?
    LogSize,
}

/// Find an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListOffset {
    /// Which one.
    pub at: OffsetAt,
    /// What the client may see: what lies beyond is not found.
    pub visible: Visible,
    /// The epoch that the client believes to be the leader's.
    pub current_epoch: Option<LeaderEpoch>,
}

/// Which offset of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetAt {
    /// The end of what the client may see.
    Latest,
    /// The log's start.
    Earliest,
    /// Of the record with the largest timestamp (KIP-734).
    LargestTimestamp,
    /// The start of what is on this broker's own disks (KIP-405); without tiered storage, the log's start.
    EarliestLocal,
    /// The last one in tiered storage (KIP-1005); there is none.
    LatestTiered,
    /// The first one that is yet to be copied to tiered storage (KIP-1023); there is none.
    EarliestPendingUpload,
    /// The first record whose timestamp is at or after this one.
    Time(Timestamp),
}

/// How far a client may see into a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visible {
    /// Up to the last stable offset: consumers that read what is committed.
    Stable,
    /// Up to the high watermark: other consumers.
    Committed,
    /// Up to the log's end: replicas and tools.
    Everything,
}

/// The answer to a [`PartitionCall`] of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartitionAnswer {
    /// To [`PartitionCall::ListOffset`]; `None`: there is no such offset, and that is no error.
    Offset(Option<FoundOffset>),
    /// To [`PartitionCall::EpochEnd`]; [`EpochEnd::UNDEFINED`] if the log knows nothing of that epoch, which is no error.
    EpochEnd(EpochEnd),
    /// To [`PartitionCall::DeleteRecords`]: the log's start now, durable.
    LowWatermark(Offset),
    /// To [`PartitionCall::Producers`], by id.
    Producers(Vec<ActiveProducer>),
    /// To [`PartitionCall::LogSize`].
    LogSize(LogSize),
    /// To any of them.
    Failed(ErrorCode),
}

/// An offset, and what is known of its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundOffset {
    /// The offset.
    pub offset: Offset,
    /// Its record's timestamp; none for the ends of the log.
    pub timestamp: Timestamp,
    /// The epoch of the leader that wrote it.
    pub leader_epoch: Option<LeaderEpoch>,
}

/// A producer that a partition remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActiveProducer {
    /// Its id.
    pub id: ProducerId,
    /// Its epoch.
    pub epoch: ProducerEpoch,
    /// The sequence of its last record.
    pub last_sequence: Sequence,
    /// The timestamp of its last batch.
    pub last_timestamp: Timestamp,
    /// The epoch of the transaction coordinator that wrote its last marker; -1 for none.
    pub coordinator_epoch: i32,
    /// Where its open transaction starts.
    pub transaction_start: Option<Offset>,
}

/// A log's size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSize {
    /// Bytes of records in its segments.
    pub bytes: u64,
    /// The data folder that it is in.
    pub data_dir: Arc<Path>,
}
