//! DescribeProducers (61): the producers a partition remembers (KIP-664).

use crate::wire::ErrorCode;
use crate::wire::message::message;

message! {
    /// Asks for producers.
    pub struct DescribeProducersRequest<'a> {
        /// The topics.
        topics [0+]: Vec<DescribeProducersTopic<'a>>,
    }
}

message! {
    /// A topic.
    pub struct DescribeProducersTopic<'a> {
        /// Its name.
        name [0+]: &'a str,
        /// Indexes of the partitions.
        partition_indexes [0+]: Vec<i32>,
    }
}

message! {
    /// Producers.
    pub struct DescribeProducersResponse<'a> {
        /// Milliseconds the client has to wait before its next request.
        throttle_time_ms [0+]: i32,
        /// The topics.
        topics [0+]: Vec<DescribeProducersTopicResponse<'a>>,
    }
}

message! {
    /// A topic.
    pub struct DescribeProducersTopicResponse<'a> {
        /// Its name.
        name [0+]: &'a str,
        /// The partitions.
        partitions [0+]: Vec<DescribeProducersPartitionResponse<'a>>,
    }
}

message! {
    /// A partition.
    pub struct DescribeProducersPartitionResponse<'a> {
        /// Its index in the topic.
        partition_index [0+]: i32,
        /// Whether it could be described.
        error_code [0+]: ErrorCode,
        /// Why not, in words.
        error_message [0+]: Option<&'a str>,
        /// The producers.
        active_producers [0+]: Vec<ProducerState>,
    }
}

message! {
    /// A producer.
    #[derive(Copy)]
    pub struct ProducerState {
        /// Its id.
        producer_id [0+]: i64,
        /// Its epoch.
        producer_epoch [0+]: i32,
        /// The last sequence number it wrote, or -1.
        last_sequence [0+]: i32 = -1,
        /// Timestamp of what it wrote last, or -1.
        last_timestamp [0+]: i64 = -1,
        /// Epoch of the coordinator that wrote its last marker.
        coordinator_epoch [0+]: i32,
        /// Where its open transaction begins, or -1.
        current_txn_start_offset [0+]: i64 = -1,
    }
}
