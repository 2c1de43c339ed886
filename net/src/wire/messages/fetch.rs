//! Fetch (1): record batches to read. The request borrows everything from its frame; the response leaves room for record
//! batches that are sent from where they lie.

use super::{LeaderIdAndEpoch, NodeEndpoint};
use crate::wire::message::message;
use crate::wire::{ErrorCode, LazyArray, Records, Uuid};

message! {
    /// Asks for record batches.
    pub struct FetchRequest<'a> {
        /// The broker that fetches, or -1 for a consumer.
        replica_id [0-14]: i32 = -1,
        /// Milliseconds to wait for enough data.
        max_wait_ms [0+]: i32,
        /// Bytes that are enough.
        min_bytes [0+]: i32,
        /// Bytes to return at most; the first batch comes whole even if it is larger (KIP-74).
        max_bytes [3+]: i32 = i32::MAX,
        /// 0 for all records below the high watermark, 1 for committed ones only (KIP-98).
        isolation_level [4+]: i8,
        /// The incremental session, or 0 (KIP-227).
        session_id [7+]: i32,
        /// Orders the requests of a session; -1 for none, 0 to begin one.
        session_epoch [7+]: i32 = -1,
        /// The topics.
        topics [0+]: LazyArray<'a, FetchTopic<'a>>,
        /// Partitions that leave the session.
        forgotten_topics_data [7+]: LazyArray<'a, ForgottenTopic<'a>>,
        /// The consumer's rack, or empty (KIP-392).
        rack_id [11+]: &'a str,
        /// The cluster's id, if the fetcher knows it; of the metadata quorum (KIP-595).
        cluster_id [12+] tag 0: Option<&'a str>,
        /// The broker that fetches (KIP-903).
        replica_state [15+] tag 1: ReplicaState,
    }
}

message! {
    /// The broker that fetches.
    #[derive(Copy)]
    pub struct ReplicaState {
        /// Its id, or -1 for a consumer.
        replica_id [0+]: i32 = -1,
        /// Its epoch, or -1.
        replica_epoch [0+]: i64 = -1,
    }
}

message! {
    /// A topic to read.
    #[derive(Copy)]
    pub struct FetchTopic<'a> {
        /// Its name.
        topic [0-12]: &'a str,
        /// Its id (KIP-516).
        topic_id [13+]: Uuid,
        /// The partitions.
        partitions [0+]: LazyArray<'a, FetchPartition>,
    }
}

message! {
    /// A partition to read.
    #[derive(Copy)]
    pub struct FetchPartition {
        /// Its index in the topic.
        partition [0+]: i32,
        /// The leader epoch the fetcher knows, or -1 (KIP-320).
        current_leader_epoch [9+]: i32 = -1,
        /// The offset to read from.
        fetch_offset [0+]: i64,
        /// Epoch of the last record the fetcher has, or -1 (KIP-595).
        last_fetched_epoch [12+]: i32 = -1,
        /// First offset of a follower's log, or -1 for a consumer.
        log_start_offset [5+]: i64 = -1,
        /// Bytes to return at most.
        partition_max_bytes [0+]: i32,
        /// The follower's log directory (KIP-853).
        replica_directory_id [17+] tag 0: Uuid,
        /// The high watermark the follower knows; -1 if none, `i64::MAX` if it doesn't say (KIP-1166).
        high_watermark [18+] tag 1: i64 = i64::MAX,
    }
}

message! {
    /// Partitions of a topic that leave the session.
    #[derive(Copy)]
    pub struct ForgottenTopic<'a> {
        /// The topic's name.
        topic [7-12]: &'a str,
        /// Its id.
        topic_id [13+]: Uuid,
        /// Their indexes in the topic.
        partitions [7+]: LazyArray<'a, i32>,
    }
}

message! {
    /// Record batches. See [`super::FetchResponseWriter`] for writing one without building it.
    pub struct FetchResponse<'a> {
        /// Milliseconds the client has to wait before its next request.
        throttle_time_ms [1+]: i32,
        /// An error of the request or its session as a whole.
        error_code [7+]: ErrorCode,
        /// The session, or 0.
        session_id [7+]: i32,
        /// The topics.
        responses [0+]: Vec<FetchableTopicResponse<'a>>,
        /// Where to find the leaders named below (KIP-951).
        node_endpoints [16+] tag 0: Vec<NodeEndpoint<'a>>,
    }
}

message! {
    /// A topic read.
    pub struct FetchableTopicResponse<'a> {
        /// Its name.
        topic [0-12]: &'a str,
        /// Its id.
        topic_id [13+]: Uuid,
        /// The partitions.
        partitions [0+]: Vec<FetchPartitionData<'a>>,
    }
}

message! {
    /// A partition read.
    pub struct FetchPartitionData<'a> {
        /// Its index in the topic.
        partition_index [0+]: i32,
        /// Whether it could be read.
        error_code [0+]: ErrorCode,
        /// The high watermark.
        high_watermark [0+]: i64,
        /// The last stable offset, or -1.
        last_stable_offset [4+]: i64 = -1,
        /// First offset of the log, or -1.
        log_start_offset [5+]: i64 = -1,
        /// Transactions aborted in what is returned; null unless only committed records were asked for.
        aborted_transactions [4+]: Option<Vec<AbortedTransaction>> = Some(Vec::new()),
        /// The replica to read from next time, or -1 (KIP-392).
        preferred_read_replica [11+]: i32 = -1,
        /// The record batches.
        records [0+]: Records<'a> = Records::Inline(&[]),
        /// Where the fetcher's log departs from the leader's (KIP-595).
        diverging_epoch [12+] tag 0: FetchEpochEndOffset,
        /// The leader, if it isn't this broker.
        current_leader [12+] tag 1: LeaderIdAndEpoch,
        /// The snapshot to fetch instead; of the metadata quorum (KIP-630).
        snapshot_id [12+] tag 2: SnapshotId,
    }
}

message! {
    /// A transaction aborted.
    #[derive(Copy)]
    pub struct AbortedTransaction {
        /// Its producer.
        producer_id [4+]: i64,
        /// Offset of its first record.
        first_offset [4+]: i64,
    }
}

message! {
    /// The end of an epoch in the leader's log.
    #[derive(Copy)]
    pub struct FetchEpochEndOffset {
        /// The epoch, or -1.
        epoch [0+]: i32 = -1,
        /// The offset behind its last record, or -1.
        end_offset [0+]: i64 = -1,
    }
}

message! {
    /// A snapshot of the metadata log.
    #[derive(Copy)]
    pub struct SnapshotId {
        /// The offset behind the last record in it, or -1.
        end_offset [0+]: i64 = -1,
        /// That record's epoch, or -1.
        epoch [0+]: i32 = -1,
    }
}
