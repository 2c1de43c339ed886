//! DeleteRecords (21): moves the start of a log (KIP-107).

use crate::wire::ErrorCode;
use crate::wire::message::message;

message! {
    /// Asks to delete records.
    pub struct DeleteRecordsRequest<'a> {
        /// The topics.
        topics [0+]: Vec<DeleteRecordsTopic<'a>>,
        /// Milliseconds to wait for the deletion.
        timeout_ms [0+]: i32,
    }
}

message! {
    /// A topic.
    pub struct DeleteRecordsTopic<'a> {
        /// Its name.
        name [0+]: &'a str,
        /// The partitions.
        partitions [0+]: Vec<DeleteRecordsPartition>,
    }
}

message! {
    /// A partition.
    #[derive(Copy)]
    pub struct DeleteRecordsPartition {
        /// Its index in the topic.
        partition_index [0+]: i32,
        /// Everything below this offset goes; -1 for the high watermark.
        offset [0+]: i64,
    }
}

message! {
    /// What became of the records.
    pub struct DeleteRecordsResponse<'a> {
        /// Milliseconds the client has to wait before its next request.
        throttle_time_ms [0+]: i32,
        /// The topics.
        topics [0+]: Vec<DeleteRecordsTopicResult<'a>>,
    }
}

message! {
    /// A topic.
    pub struct DeleteRecordsTopicResult<'a> {
        /// Its name.
        name [0+]: &'a str,
        /// The partitions.
        partitions [0+]: Vec<DeleteRecordsPartitionResult>,
    }
}

message! {
    /// A partition.
    #[derive(Copy)]
    pub struct DeleteRecordsPartitionResult {
        /// Its index in the topic.
        partition_index [0+]: i32,
        /// First offset that is left on every replica, or -1.
        low_watermark [0+]: i64,
        /// Whether the records were deleted.
        error_code [0+]: ErrorCode,
    }
}
