//! CreatePartitions (37): more partitions for a topic (KIP-195).

use crate::wire::ErrorCode;
use crate::wire::message::message;

message! {
    /// Asks for more partitions.
    pub struct CreatePartitionsRequest<'a> {
        /// The topics.
        topics [0+]: Vec<CreatePartitionsTopic<'a>>,
        /// Milliseconds to wait for them.
        timeout_ms [0+]: i32,
        /// Whether to check only.
        validate_only [0+]: bool,
    }
}

message! {
    /// A topic to grow.
    pub struct CreatePartitionsTopic<'a> {
        /// Its name.
        name [0+]: &'a str,
        /// Number of partitions it shall have, the present ones included.
        count [0+]: i32,
        /// The brokers of each new partition; null to let the broker choose.
        assignments [0+]: Option<Vec<CreatePartitionsAssignment>> = Some(Vec::new()),
    }
}

message! {
    /// The brokers that host a new partition.
    pub struct CreatePartitionsAssignment {
        /// The brokers, the preferred leader first.
        broker_ids [0+]: Vec<i32>,
    }
}

message! {
    /// What became of the topics.
    pub struct CreatePartitionsResponse<'a> {
        /// Milliseconds the client has to wait before its next request.
        throttle_time_ms [0+]: i32,
        /// The topics.
        results [0+]: Vec<CreatePartitionsTopicResult<'a>>,
    }
}

message! {
    /// A topic grown, or not.
    #[derive(Copy)]
    pub struct CreatePartitionsTopicResult<'a> {
        /// Its name.
        name [0+]: &'a str,
        /// Whether it has the partitions.
        error_code [0+]: ErrorCode,
        /// Why not, in words.
        error_message [0+]: Option<&'a str>,
    }
}
