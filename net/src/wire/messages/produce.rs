//! Produce (0): record batches to append. The request borrows everything from its frame.

use super::{LeaderIdAndEpoch, NodeEndpoint};
use crate::wire::message::message;
use crate::wire::{ErrorCode, LazyArray, Uuid};

message! {
    /// Asks to append record batches.
    pub struct ProduceRequest<'a> {
        /// The transaction's id, if the producer is transactional (KIP-98).
        transactional_id [3+]: Option<&'a str>,
        /// Which acknowledgements to wait for: 0 none, and no response at all; 1 the leader's; -1 all in-sync replicas'.
        acks [0+]: i16,
        /// Milliseconds to wait for them.
        timeout_ms [0+]: i32,
        /// The topics.
        topic_data [0+]: LazyArray<'a, TopicProduceData<'a>>,
    }
}

message! {
    /// A topic to append to.
    #[derive(Copy)]
    pub struct TopicProduceData<'a> {
        /// Its name.
        name [0-12]: &'a str,
        /// Its id (KIP-516).
        topic_id [13+]: Uuid,
        /// The partitions.
        partition_data [0+]: LazyArray<'a, PartitionProduceData<'a>>,
    }
}

message! {
    /// A partition to append to.
    #[derive(Copy)]
    pub struct PartitionProduceData<'a> {
        /// Its index in the topic.
        index [0+]: i32,
        /// The record batches, as they lie in the frame; [`crate::wire::range_within`] tells where.
        records [0+]: Option<&'a [u8]> = Some(&[]),
    }
}

message! {
    /// What became of the batches. See [`super::ProduceResponseWriter`] for writing one without building it.
    pub struct ProduceResponse<'a> {
        /// The topics.
        responses [0+]: Vec<TopicProduceResponse<'a>>,
        /// Milliseconds the client has to wait before its next request.
        throttle_time_ms [1+]: i32,
        /// Where to find the leaders named below (KIP-951).
        node_endpoints [10+] tag 0: Vec<NodeEndpoint<'a>>,
    }
}

message! {
    /// A topic appended to.
    pub struct TopicProduceResponse<'a> {
        /// Its name.
        name [0-12]: &'a str,
        /// Its id.
        topic_id [13+]: Uuid,
        /// The partitions.
        partition_responses [0+]: Vec<PartitionProduceResponse<'a>>,
    }
}

message! {
    /// A partition appended to.
    pub struct PartitionProduceResponse<'a> {
        /// Its index in the topic.
        index [0+]: i32,
        /// Whether the batches were appended.
        error_code [0+]: ErrorCode,
        /// Offset of the first record, or -1.
        base_offset [0+]: i64,
        /// The broker's time, if the topic stamps it; -1 if it keeps the producer's.
        log_append_time_ms [2+]: i64 = -1,
        /// First offset of the log, or -1.
        log_start_offset [5+]: i64 = -1,
        /// The records that caused the refusal (KIP-467).
        record_errors [8+]: Vec<BatchIndexAndErrorMessage<'a>>,
        /// Why the batches were refused, in words.
        error_message [8+]: Option<&'a str>,
        /// The leader to turn to instead (KIP-951).
        current_leader [10+] tag 0: LeaderIdAndEpoch,
    }
}

message! {
    /// A record that caused its batch to be refused.
    pub struct BatchIndexAndErrorMessage<'a> {
        /// Its index in the batch.
        batch_index [8+]: i32,
        /// What is wrong with it.
        batch_index_error_message [8+]: Option<&'a str>,
    }
}
