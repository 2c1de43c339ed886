//! DescribeTopicPartitions (75): topics in pages, with their eligible leaders (KIP-966).

use super::Cursor;
use crate::wire::message::message;
use crate::wire::{ErrorCode, Uuid};

message! {
    /// Asks for topics.
    pub struct DescribeTopicPartitionsRequest<'a> {
        /// The topics; empty for all of them.
        topics [0+]: Vec<DescribeTopicRequest<'a>>,
        /// Partitions to return at most.
        response_partition_limit [0+]: i32 = 2000,
        /// Where the page begins.
        cursor [0+]: Option<Cursor<'a>>,
    }
}

message! {
    /// A topic asked for.
    #[derive(Copy)]
    pub struct DescribeTopicRequest<'a> {
        /// Its name.
        name [0+]: &'a str,
    }
}

message! {
    /// Topics.
    pub struct DescribeTopicPartitionsResponse<'a> {
        /// Milliseconds the client has to wait before its next request.
        throttle_time_ms [0+]: i32,
        /// The topics.
        topics [0+]: Vec<DescribeTopicPartitionsResponseTopic<'a>>,
        /// Where the next page begins; null at the end.
        next_cursor [0+]: Option<Cursor<'a>>,
    }
}

message! {
    /// A topic.
    pub struct DescribeTopicPartitionsResponseTopic<'a> {
        /// Whether it could be described.
        error_code [0+]: ErrorCode,
        /// Its name.
        name [0+]: Option<&'a str> = Some(""),
        /// Its id.
        topic_id [0+]: Uuid,
        /// Whether the brokers keep their own state in it.
        is_internal [0+]: bool,
        /// Its partitions.
        partitions [0+]: Vec<DescribeTopicPartitionsResponsePartition>,
        /// Bits of the operations allowed on the topic; `i32::MIN` if unknown.
        topic_authorized_operations [0+]: i32 = i32::MIN,
    }
}

message! {
    /// A partition.
    pub struct DescribeTopicPartitionsResponsePartition {
        /// Whether the partition can be used.
        error_code [0+]: ErrorCode,
        /// Its index in the topic.
        partition_index [0+]: i32,
        /// The broker that leads it, or -1.
        leader_id [0+]: i32,
        /// The leader's epoch, or -1.
        leader_epoch [0+]: i32 = -1,
        /// The brokers that host it.
        replica_nodes [0+]: Vec<i32>,
        /// Those of them that are in sync.
        isr_nodes [0+]: Vec<i32>,
        /// Those of them that may lead although they are not in sync.
        eligible_leader_replicas [0+]: Option<Vec<i32>>,
        /// The last of them that were known.
        last_known_elr [0+]: Option<Vec<i32>>,
        /// Those of them that are offline.
        offline_replicas [0+]: Vec<i32>,
    }
}
