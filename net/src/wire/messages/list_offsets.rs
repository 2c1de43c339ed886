//! ListOffsets (2): the offset at a timestamp, or at one of the log's own marks.

use crate::wire::ErrorCode;
use crate::wire::message::message;

message! {
    /// Asks for offsets.
    pub struct ListOffsetsRequest<'a> {
        /// The broker that asks, or -1 for a client.
        replica_id [0+]: i32,
        /// 0 for all records below the high watermark, 1 for committed ones only (KIP-98).
        isolation_level [2+]: i8,
        /// The topics.
        topics [0+]: Vec<ListOffsetsTopic<'a>>,
        /// Milliseconds to wait if remote storage has to be read (KIP-1075).
        timeout_ms [10+]: i32,
    }
}

message! {
    /// A topic.
    pub struct ListOffsetsTopic<'a> {
        /// Its name.
        name [0+]: &'a str,
        /// The partitions.
        partitions [0+]: Vec<ListOffsetsPartition>,
    }
}

message! {
    /// A partition.
    #[derive(Copy)]
    pub struct ListOffsetsPartition {
        /// Its index in the topic.
        partition_index [0+]: i32,
        /// The leader epoch the client knows, or -1 (KIP-320).
        current_leader_epoch [4+]: i32 = -1,
        /// Milliseconds since 1970, or a mark: -1 latest, -2 earliest, -3 the record with the largest timestamp (7+,
        /// KIP-734), -4 earliest local (8+, KIP-405), -5 latest tiered (9+, KIP-1005), -6 earliest not yet tiered (11+,
        /// KIP-1023).
        timestamp [0+]: i64,
    }
}

message! {
    /// Offsets.
    pub struct ListOffsetsResponse<'a> {
        /// Milliseconds the client has to wait before its next request.
        throttle_time_ms [2+]: i32,
        /// The topics.
        topics [0+]: Vec<ListOffsetsTopicResponse<'a>>,
    }
}

message! {
    /// A topic.
    pub struct ListOffsetsTopicResponse<'a> {
        /// Its name.
        name [0+]: &'a str,
        /// The partitions.
        partitions [0+]: Vec<ListOffsetsPartitionResponse>,
    }
}

message! {
    /// A partition.
    #[derive(Copy)]
    pub struct ListOffsetsPartitionResponse {
        /// Its index in the topic.
        partition_index [0+]: i32,
        /// Whether the offset could be found.
        error_code [0+]: ErrorCode,
        /// Timestamp of the record found, or -1.
        timestamp [1+]: i64 = -1,
        /// Its offset, or -1.
        offset [1+]: i64 = -1,
        /// Its leader epoch, or -1.
        leader_epoch [4+]: i32 = -1,
    }
}
