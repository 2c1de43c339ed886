//! OffsetForLeaderEpoch (23): where an epoch ends in the leader's log.

use crate::wire::ErrorCode;
use crate::wire::message::message;

message! {
    /// Asks for the end of epochs.
    pub struct OffsetForLeaderEpochRequest<'a> {
        /// The broker that asks; -1 for a consumer, -2 for a client that doesn't say.
        replica_id [3+]: i32 = -2,
        /// The topics.
        topics [0+]: Vec<OffsetForLeaderTopic<'a>>,
    }
}

message! {
    /// A topic.
    pub struct OffsetForLeaderTopic<'a> {
        /// Its name.
        topic [0+]: &'a str,
        /// The partitions.
        partitions [0+]: Vec<OffsetForLeaderPartition>,
    }
}

message! {
    /// A partition.
    #[derive(Copy)]
    pub struct OffsetForLeaderPartition {
        /// Its index in the topic.
        partition [0+]: i32,
        /// The leader epoch the client knows, or -1 (KIP-320).
        current_leader_epoch [2+]: i32 = -1,
        /// The epoch in question.
        leader_epoch [0+]: i32,
    }
}

message! {
    /// Ends of epochs.
    pub struct OffsetForLeaderEpochResponse<'a> {
        /// Milliseconds the client has to wait before its next request.
        throttle_time_ms [2+]: i32,
        /// The topics.
        topics [0+]: Vec<OffsetForLeaderTopicResult<'a>>,
    }
}

message! {
    /// A topic.
    pub struct OffsetForLeaderTopicResult<'a> {
        /// Its name.
        topic [0+]: &'a str,
        /// The partitions.
        partitions [0+]: Vec<EpochEndOffset>,
    }
}

message! {
    /// A partition.
    #[derive(Copy)]
    pub struct EpochEndOffset {
        /// Whether the epoch could be looked up.
        error_code [0+]: ErrorCode,
        /// The partition's index in the topic.
        partition [0+]: i32,
        /// The largest epoch that is not above the one in question, or -1.
        leader_epoch [1+]: i32 = -1,
        /// The offset behind its last record, or -1.
        end_offset [0+]: i64 = -1,
    }
}
