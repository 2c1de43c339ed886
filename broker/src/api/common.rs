//! What several handlers share: finding a topic, Kafka's error for a refusal, authorized operations.
//!
//! Holds: pure helpers, the one table from the controller's refusals to Kafka's error codes, and (in `calls`) the way to
//! partitions and back. Never touches: logs, the wire of any particular API.

mod calls;
#[cfg(test)]
pub mod testing;

use corelog_net::wire::{ErrorCode, Uuid};
use corelog_storage::ids::{LeaderEpoch, PartitionIndex, TopicId};

use super::{Operation, RequestContext, Resource, authorize};
use crate::controller::error::ErrorClass;
use crate::controller::{MetadataImage, PartitionImage, TopicImage};
use crate::partition::call::PartitionKey;

pub use calls::PartitionCalls;

/// What "authorized operations" fields hold when nobody asked for them: Kafka's default.
pub const OPERATIONS_NOT_ASKED: i32 = i32::MIN;

/// The highest id of an ACL operation whose bit stands for brokers acting among themselves (`CLUSTER_ACTION`).
const CLUSTER_ACTION_BIT: u32 = 9;

/// The operations that exist on a topic, with the bit of each: Kafka's ACL operation ids.
const TOPIC_OPERATIONS: [(Operation, u32); 8] = [
    (Operation::Read, 3),
    (Operation::Write, 4),
    (Operation::Create, 5),
    (Operation::Delete, 6),
    (Operation::Alter, 7),
    (Operation::Describe, 8),
    (Operation::DescribeConfigs, 10),
    (Operation::AlterConfigs, 11),
];

/// The operations that exist on the cluster, likewise.
const CLUSTER_OPERATIONS: [(Operation, u32); 6] = [
    (Operation::Create, 5),
    (Operation::Alter, 7),
    (Operation::Describe, 8),
    (Operation::DescribeConfigs, 10),
    (Operation::AlterConfigs, 11),
    (Operation::IdempotentWrite, 12),
];

/// The operations on a topic that the client may do, as the bit field of KIP-430.
pub fn topic_operations(context: &RequestContext, topic: &str) -> i32 {
    bits(context, Resource::Topic(topic), &TOPIC_OPERATIONS)
}

/// The operations on the cluster that the client may do, as the bit field of KIP-430. Who may do everything else may
/// also act as a broker.
pub fn cluster_operations(context: &RequestContext) -> i32 {
    let bits = bits(context, Resource::Cluster, &CLUSTER_OPERATIONS);
    let all = CLUSTER_OPERATIONS.iter().fold(0, |sum, (_, bit)| sum | (1 << bit));
    if bits == all { bits | (1 << CLUSTER_ACTION_BIT) } else { bits }
}

fn bits(context: &RequestContext, resource: Resource<'_>, operations: &[(Operation, u32)]) -> i32 {
    operations
        .iter()
        .filter(|(operation, _)| authorize(context, *operation, resource))
        .fold(0, |sum, (_, bit)| sum | (1 << bit))
}

/// A partition that a request names, where the metadata knows it.
///
/// # Errors
/// `UNKNOWN_TOPIC_OR_PARTITION`: there is no such topic, or it has no such partition.
pub fn find_partition<'a>(
    image: &'a MetadataImage,
    topic: &str,
    partition: i32,
) -> Result<(PartitionKey, &'a PartitionImage), ErrorCode> {
    let topic = image.topic_by_name(topic).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    let index = PartitionIndex(partition);
    let found = topic.partition(index).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    Ok((PartitionKey { topic_id: topic.id, partition: index }, found))
}

/// The leader that a client can turn to: it must be reachable through the listener by which the client came.
///
/// # Errors
/// Why there is none.
pub fn reachable_leader(image: &MetadataImage, partition: &PartitionImage, listener: &str) -> Result<i32, NoLeader> {
    let broker = image.brokers().get(&partition.leader).ok_or(NoLeader::Absent)?;
    broker.endpoint(listener).map(|_| broker.id).ok_or(NoLeader::OtherListeners)
}

/// Why a client cannot turn to a partition's leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoLeader {
    /// There is no leader, or it is not registered.
    Absent,
    /// It does not have the client's listener.
    OtherListeners,
}

/// The replicas of a partition that a client cannot reach through its listener, or whose data folder is offline.
pub fn offline_replicas(image: &MetadataImage, partition: &PartitionImage, listener: &str) -> Vec<i32> {
    let is_offline = |id: &&i32| !is_reachable(image, **id, listener) || image.is_in_offline_directory(partition, **id);
    partition.replicas.iter().filter(is_offline).copied().collect()
}

/// Whether a broker is registered with this listener.
pub fn is_reachable(image: &MetadataImage, broker: i32, listener: &str) -> bool {
    image.brokers().get(&broker).is_some_and(|broker| broker.endpoint(listener).is_some())
}

/// The broker to send changes of the cluster to: the active controller if it is a broker, or else any; -1 if there is none.
pub fn controller_id(image: &MetadataImage) -> i32 {
    let registered = |id: &i32| image.brokers().contains_key(id);
    let any = || image.brokers().keys().next().copied();
    image.controller_id().filter(registered).or_else(any).unwrap_or(-1)
}

/// Every topic, by name.
pub fn topics_by_name(image: &MetadataImage) -> Vec<&TopicImage> {
    let mut topics: Vec<&TopicImage> = image.topics().map(AsRef::as_ref).collect();
    topics.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    topics
}

/// A topic's id as the wire writes it.
pub const fn wire_id(id: TopicId) -> Uuid {
    Uuid(id.0)
}

/// A topic's id as the wire wrote it.
pub const fn topic_id(id: Uuid) -> TopicId {
    TopicId(id.0)
}

/// The leader epoch that a request wants checked (KIP-320); -1 wants no check.
pub fn checked_epoch(epoch: i32) -> Option<LeaderEpoch> {
    (epoch != LeaderEpoch::NONE.0).then_some(LeaderEpoch(epoch))
}

/// Why a request, or one item of it, was refused: the code and, where Kafka gives one, the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The code.
    pub code: ErrorCode,
    /// The message; `None` where the code says it all.
    pub message: Option<String>,
}

impl Refusal {
    /// A refusal with a message of its own.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: Some(message.into()) }
    }

    /// A refusal by the controller, whose errors read as Kafka's messages. Like Kafka, a message that only repeats the
    /// code's own is left out.
    pub fn by_controller(class: ErrorClass, error: &dyn std::error::Error) -> Self {
        let code = code_of(class);
        let message = error.to_string();
        Self { code, message: (message != code.message()).then_some(message) }
    }
}

impl From<ErrorCode> for Refusal {
    /// A refusal without a message.
    fn from(code: ErrorCode) -> Self {
        Self { code, message: None }
    }
}

/// Kafka's error code for a refusal of the controller's.
pub const fn code_of(class: ErrorClass) -> ErrorCode {
    match class {
        ErrorClass::InvalidRequest => ErrorCode::InvalidRequest,
        ErrorClass::InvalidTopic => ErrorCode::InvalidTopicException,
        ErrorClass::TopicAlreadyExists => ErrorCode::TopicAlreadyExists,
        ErrorClass::InvalidPartitions => ErrorCode::InvalidPartitions,
        ErrorClass::InvalidReplicationFactor => ErrorCode::InvalidReplicationFactor,
        ErrorClass::InvalidReplicaAssignment => ErrorCode::InvalidReplicaAssignment,
        ErrorClass::InvalidConfig => ErrorCode::InvalidConfig,
        ErrorClass::PolicyViolation => ErrorCode::PolicyViolation,
        ErrorClass::UnknownTopicOrPartition => ErrorCode::UnknownTopicOrPartition,
        ErrorClass::UnknownTopicId => ErrorCode::UnknownTopicId,
        ErrorClass::BrokerIdNotRegistered => ErrorCode::BrokerIdNotRegistered,
        ErrorClass::StaleBrokerEpoch => ErrorCode::StaleBrokerEpoch,
        ErrorClass::InvalidUpdateVersion => ErrorCode::InvalidUpdateVersion,
        ErrorClass::UnknownServerError => ErrorCode::UnknownServerError,
    }
}

/// The code for a request whose answer the controller could not give: clients look for the controller again and retry.
pub const CONTROLLER_GONE: ErrorCode = ErrorCode::NotController;

#[cfg(test)]
mod tests {
    use super::testing::{Cluster, LISTENER, context, id};
    use super::*;
    use corelog_net::wire::ApiKey;

    #[test]
    fn a_client_that_may_do_everything_has_every_bit_that_kafka_gives() {
        let context = context(ApiKey::Metadata, 8);
        assert_eq!(topic_operations(&context, "a"), 3576);
        assert_eq!(cluster_operations(&context), 8096);
    }

    #[test]
    fn a_partition_is_found_by_name_and_number() {
        let image = Cluster::of_one().topic("a", &[&[1], &[1]]).image();
        let found = find_partition(&image, "a", 1).map(|(key, _)| key);
        assert_eq!(found, Ok(PartitionKey { topic_id: id(1), partition: PartitionIndex(1) }));
        for (topic, partition) in [("a", 2), ("a", -1), ("b", 0)] {
            assert_eq!(
                find_partition(&image, topic, partition).map(|(key, _)| key),
                Err(ErrorCode::UnknownTopicOrPartition)
            );
        }
    }

    #[test]
    fn a_leader_is_reachable_through_its_own_listeners_alone() {
        let image = Cluster::of_one().broker(2, "INTERNAL").topic("a", &[&[1, 2], &[2, 1], &[3, 1]]).image();
        let leaders: Vec<_> = image
            .topic_by_name("a")
            .into_iter()
            .flat_map(|topic| &topic.partitions)
            .map(|p| (reachable_leader(&image, p, LISTENER), offline_replicas(&image, p, LISTENER)))
            .collect();
        let expected = [(Ok(1), vec![2]), (Err(NoLeader::OtherListeners), vec![2]), (Err(NoLeader::Absent), vec![3])];
        assert_eq!(leaders, expected);
    }

    #[test]
    fn a_message_that_only_repeats_the_code_is_left_out() {
        let repeated = crate::controller::error::DeleteTopicError::UnknownId;
        assert_eq!(Refusal::by_controller(repeated.class(), &repeated).message, None);
        let own = crate::controller::error::DeleteTopicError::DuplicateId;
        assert_eq!(
            Refusal::by_controller(own.class(), &own),
            Refusal::new(ErrorCode::InvalidRequest, "Duplicate topic id.")
        );
    }
}
