//! Metadata (3): brokers, topics, who leads what.

use crate::wire::message::message;
use crate::wire::{ErrorCode, Uuid};

message! {
    /// Asks for brokers and topics.
    pub struct MetadataRequest<'a> {
        /// The topics; null for all of them. In version 0, which has no null, an empty list means all.
        topics [0+] null [1+]: Option<Vec<MetadataRequestTopic<'a>>> = Some(Vec::new()),
        /// Whether a missing topic may be created, if the broker is configured to.
        allow_auto_topic_creation [4+]: bool = true,
        /// Whether to say what the client may do with the cluster. DescribeCluster took it over (KIP-700).
        include_cluster_authorized_operations [8-10]: bool,
        /// Whether to say what the client may do with each topic (KIP-430).
        include_topic_authorized_operations [8+]: bool,
    }
}

message! {
    /// A topic asked for, by name or by id.
    pub struct MetadataRequestTopic<'a> {
        /// The topic's id; zero if asked for by name (KIP-516).
        topic_id [10+]: Uuid,
        /// The topic's name; null if asked for by id.
        name [0+] null [10+]: Option<&'a str> = Some(""),
    }
}

message! {
    /// Brokers and topics.
    pub struct MetadataResponse<'a> {
        /// Milliseconds the client has to wait before its next request.
        throttle_time_ms [3+]: i32,
        /// The live brokers.
        brokers [0+]: Vec<MetadataResponseBroker<'a>>,
        /// The cluster's id.
        cluster_id [2+]: Option<&'a str>,
        /// The broker to send cluster changes to, or -1.
        controller_id [1+]: i32 = -1,
        /// The topics.
        topics [0+]: Vec<MetadataResponseTopic<'a>>,
        /// Bits of the operations allowed on the cluster; `i32::MIN` if not asked for.
        cluster_authorized_operations [8-10]: i32 = i32::MIN,
        /// An error of the request as a whole: [`ErrorCode::RebootstrapRequired`] (KIP-1102).
        error_code [13+]: ErrorCode,
    }
}

message! {
    /// A live broker.
    pub struct MetadataResponseBroker<'a> {
        /// Its id.
        node_id [0+]: i32,
        /// Host name to connect to.
        host [0+]: &'a str,
        /// Port to connect to.
        port [0+]: i32,
        /// Its rack.
        rack [1+]: Option<&'a str>,
    }
}

message! {
    /// A topic.
    pub struct MetadataResponseTopic<'a> {
        /// Whether the topic could be described.
        error_code [0+]: ErrorCode,
        /// Its name; null only for an id that names no topic.
        name [0+] null [12+]: Option<&'a str> = Some(""),
        /// Its id; zero only for a name that names no topic.
        topic_id [10+]: Uuid,
        /// Whether the brokers keep their own state in it.
        is_internal [1+]: bool,
        /// Its partitions.
        partitions [0+]: Vec<MetadataResponsePartition>,
        /// Bits of the operations allowed on the topic; `i32::MIN` if not asked for.
        topic_authorized_operations [8+]: i32 = i32::MIN,
    }
}

message! {
    /// A partition.
    pub struct MetadataResponsePartition {
        /// Whether the partition can be used.
        error_code [0+]: ErrorCode,
        /// Its index in the topic.
        partition_index [0+]: i32,
        /// The broker that leads it, or -1.
        leader_id [0+]: i32,
        /// The leader's epoch, or -1 if unknown (KIP-320).
        leader_epoch [7+]: i32 = -1,
        /// The brokers that host it.
        replica_nodes [0+]: Vec<i32>,
        /// Those of them that are in sync.
        isr_nodes [0+]: Vec<i32>,
        /// Those of them that are offline.
        offline_replicas [5+]: Vec<i32>,
    }
}
