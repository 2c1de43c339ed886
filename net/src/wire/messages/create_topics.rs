//! CreateTopics (19).

use crate::wire::message::message;
use crate::wire::{ErrorCode, Uuid};

message! {
    /// Asks to create topics.
    pub struct CreateTopicsRequest<'a> {
        /// The topics.
        topics [0+]: Vec<CreatableTopic<'a>>,
        /// Milliseconds to wait for them.
        timeout_ms [0+]: i32 = 60_000,
        /// Whether to check only.
        validate_only [1+]: bool,
    }
}

message! {
    /// A topic to create.
    pub struct CreatableTopic<'a> {
        /// Its name.
        name [0+]: &'a str,
        /// Number of partitions; -1 for the broker's default (KIP-464) or with assignments.
        num_partitions [0+]: i32,
        /// Number of replicas; -1 for the broker's default or with assignments.
        replication_factor [0+]: i16,
        /// Which brokers host which partition; empty to let the broker choose.
        assignments [0+]: Vec<CreatableReplicaAssignment>,
        /// The topic's own configuration.
        configs [0+]: Vec<CreatableTopicConfig<'a>>,
    }
}

message! {
    /// The brokers that host a partition.
    pub struct CreatableReplicaAssignment {
        /// The partition's index in the topic.
        partition_index [0+]: i32,
        /// The brokers, the preferred leader first.
        broker_ids [0+]: Vec<i32>,
    }
}

message! {
    /// A configuration entry.
    #[derive(Copy)]
    pub struct CreatableTopicConfig<'a> {
        /// Its name.
        name [0+]: &'a str,
        /// Its value.
        value [0+]: Option<&'a str> = Some(""),
    }
}

message! {
    /// What became of the topics.
    pub struct CreateTopicsResponse<'a> {
        /// Milliseconds the client has to wait before its next request.
        throttle_time_ms [2+]: i32,
        /// The topics.
        topics [0+]: Vec<CreatableTopicResult<'a>>,
    }
}

message! {
    /// A topic created, or not.
    pub struct CreatableTopicResult<'a> {
        /// Its name.
        name [0+]: &'a str,
        /// Its id (KIP-516).
        topic_id [7+]: Uuid,
        /// Whether it was created.
        error_code [0+]: ErrorCode,
        /// Why not, in words.
        error_message [1+]: Option<&'a str> = Some(""),
        /// Number of partitions, or -1 (KIP-525).
        num_partitions [5+]: i32 = -1,
        /// Number of replicas, or -1.
        replication_factor [5+]: i16 = -1,
        /// The topic's configuration; null if the client may not see it.
        configs [5+]: Option<Vec<CreatableTopicConfigs<'a>>> = Some(Vec::new()),
        /// Why the configuration is missing.
        topic_config_error_code [5+] tag 0: ErrorCode,
    }
}

message! {
    /// A configuration entry in force.
    #[derive(Copy)]
    pub struct CreatableTopicConfigs<'a> {
        /// Its name.
        name [5+]: &'a str,
        /// Its value; null if sensitive.
        value [5+]: Option<&'a str> = Some(""),
        /// Whether it can't be changed.
        read_only [5+]: bool,
        /// Where it comes from, in the codes of DescribeConfigs; -1 for unknown.
        config_source [5+]: i8 = -1,
        /// Whether the value is a secret.
        is_sensitive [5+]: bool,
    }
}
