//! Why the controller refuses a request.
//!
//! Holds: one error enum per operation. Shown, each reads as Kafka's message to the client; `class` says which of
//! Kafka's errors it is. Never touches: the numbers of Kafka's errors (the API layer has that one table).

use corelog_storage::ids::TopicId;
use thiserror::Error;

use crate::config::{DynamicConfigError, TopicConfigError};
use crate::names::InvalidTopicName;

/// Which of Kafka's errors a refusal is. One to one with Kafka's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// `INVALID_REQUEST`
    InvalidRequest,
    /// `INVALID_TOPIC_EXCEPTION`
    InvalidTopic,
    /// `TOPIC_ALREADY_EXISTS`
    TopicAlreadyExists,
    /// `INVALID_PARTITIONS`
    InvalidPartitions,
    /// `INVALID_REPLICATION_FACTOR`
    InvalidReplicationFactor,
    /// `INVALID_REPLICA_ASSIGNMENT`
    InvalidReplicaAssignment,
    /// `INVALID_CONFIG`
    InvalidConfig,
    /// `POLICY_VIOLATION`
    PolicyViolation,
    /// `UNKNOWN_TOPIC_OR_PARTITION`
    UnknownTopicOrPartition,
    /// `UNKNOWN_TOPIC_ID`
    UnknownTopicId,
    /// `BROKER_ID_NOT_REGISTERED`
    BrokerIdNotRegistered,
    /// `STALE_BROKER_EPOCH`
    StaleBrokerEpoch,
    /// `INVALID_UPDATE_VERSION`
    InvalidUpdateVersion,
    /// `UNKNOWN_SERVER_ERROR`
    UnknownServerError,
}

/// Why a manual assignment of replicas was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AssignmentError {
    /// A partition with no replica.
    #[error("The manual partition assignment includes an empty replica list.")]
    NoReplicas,
    /// A broker nobody knows.
    #[error("The manual partition assignment includes broker {0}, but no such broker is registered.")]
    UnknownBroker(i32),
    /// A broker named twice for one partition.
    #[error("The manual partition assignment includes the broker {0} more than once.")]
    RepeatedBroker(i32),
    /// Partitions with different numbers of replicas.
    #[error(
        "The manual partition assignment includes a partition with {found} replica(s), but this is not consistent \
         with previous partitions, which have {expected} replica(s)."
    )]
    Inconsistent {
        /// The other partitions' number.
        expected: usize,
        /// This one's.
        found: usize,
    },
}

/// Why replicas could not be placed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlacementError {
    /// No or a negative number of replicas.
    #[error("Invalid replication factor {0}: the replication factor must be positive.")]
    NotPositive(i16),
    /// More replicas than brokers.
    #[error(
        "The target replication factor of {wanted} cannot be reached because only {brokers} broker(s) are registered."
    )]
    TooFewBrokers {
        /// The replicas wanted.
        wanted: i16,
        /// The brokers there are.
        brokers: usize,
    },
}

/// Why a topic was not created.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CreateTopicError {
    /// The request asks for more partitions than one may.
    #[error("Excessively large number of partitions per request.")]
    TooManyPartitionsInRequest,
    /// The name stands more than once in the request.
    #[error("Duplicate topic name.")]
    DuplicateName,
    /// The metadata log's name.
    #[error("Creation of internal topic __cluster_metadata is prohibited.")]
    MetadataTopic,
    /// The name breaks a rule.
    #[error(transparent)]
    InvalidName(#[from] InvalidTopicName),
    /// A topic exists whose name differs only in `.` and `_`.
    #[error("Topic '{name}' collides with existing topic: {existing}")]
    Collides {
        /// The new name.
        name: String,
        /// The topic it collides with.
        existing: String,
    },
    /// The topic exists.
    #[error("Topic '{name}' already exists.")]
    Exists {
        /// The name.
        name: String,
    },
    /// A property with a null value.
    #[error("Null value not supported for topic configs: {names}")]
    NullConfigs {
        /// The properties, separated by commas.
        names: String,
    },
    /// A property is wrong.
    #[error(transparent)]
    Config(#[from] AlterConfigError),
    /// An assignment and a replication factor.
    #[error("A manual partition assignment was specified, but replication factor was not set to -1.")]
    AssignmentWithReplicationFactor,
    /// An assignment and a number of partitions.
    #[error("A manual partition assignment was specified, but numPartitions was not set to -1.")]
    AssignmentWithPartitions,
    /// Two assignments for one partition.
    #[error("Found multiple manual partition assignments for partition {0}")]
    RepeatedPartition(i32),
    /// The assignments leave a partition out.
    #[error("partitions should be a consecutive 0-based integer sequence")]
    PartitionGap,
    /// One assignment is wrong.
    #[error(transparent)]
    Assignment(#[from] AssignmentError),
    /// No or a negative number of replicas.
    #[error("Replication factor must be larger than 0, or -1 to use the default value.")]
    ReplicationFactorNotPositive,
    /// No or a negative number of partitions.
    #[error("Number of partitions was set to an invalid non-positive value.")]
    PartitionsNotPositive,
    /// Too many replicas for the brokers there are.
    #[error("Unable to replicate the partition {replication_factor} time(s): {reason}")]
    CannotReplicate {
        /// The replicas wanted.
        replication_factor: i16,
        /// Why not.
        reason: PlacementError,
    },
}

impl CreateTopicError {
    /// Which of Kafka's errors it is.
    #[must_use]
    pub const fn class(&self) -> ErrorClass {
        match self {
            Self::TooManyPartitionsInRequest => ErrorClass::PolicyViolation,
            Self::DuplicateName
            | Self::MetadataTopic
            | Self::AssignmentWithReplicationFactor
            | Self::AssignmentWithPartitions => ErrorClass::InvalidRequest,
            Self::InvalidName(_) | Self::Collides { .. } => ErrorClass::InvalidTopic,
            Self::Exists { .. } => ErrorClass::TopicAlreadyExists,
            Self::NullConfigs { .. } => ErrorClass::InvalidConfig,
            Self::Config(error) => error.class(),
            Self::RepeatedPartition(_) | Self::PartitionGap | Self::Assignment(_) => {
                ErrorClass::InvalidReplicaAssignment
            }
            Self::ReplicationFactorNotPositive | Self::CannotReplicate { .. } => ErrorClass::InvalidReplicationFactor,
            Self::PartitionsNotPositive => ErrorClass::InvalidPartitions,
        }
    }
}

/// Why a topic was not deleted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DeleteTopicError {
    /// Neither a name nor an id.
    #[error("Neither topic name nor id were specified.")]
    NotNamed,
    /// A name and an id.
    #[error("You may not specify both topic name and topic id.")]
    NamedTwice,
    /// The name stands more than once in the request.
    #[error("Duplicate topic name.")]
    DuplicateName,
    /// The id stands more than once in the request.
    #[error("Duplicate topic id.")]
    DuplicateId,
    /// The name is that of an id in the request.
    #[error("The provided topic name maps to an ID that was already supplied.")]
    NameOfSuppliedId,
    /// No topic has this name.
    #[error("This server does not host this topic-partition.")]
    UnknownName,
    /// No topic has this id.
    #[error("This server does not host this topic ID.")]
    UnknownId,
}

impl DeleteTopicError {
    /// Which of Kafka's errors it is.
    #[must_use]
    pub const fn class(&self) -> ErrorClass {
        match self {
            Self::NotNamed | Self::NamedTwice | Self::DuplicateName | Self::DuplicateId | Self::NameOfSuppliedId => {
                ErrorClass::InvalidRequest
            }
            Self::UnknownName => ErrorClass::UnknownTopicOrPartition,
            Self::UnknownId => ErrorClass::UnknownTopicId,
        }
    }
}

/// Why a topic did not get more partitions.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CreatePartitionsError {
    /// The name stands more than once in the request.
    #[error("Duplicate topic name.")]
    DuplicateName,
    /// No topic has this name.
    #[error("This server does not host this topic-partition.")]
    UnknownTopic,
    /// It has that many already.
    #[error("Topic already has {0} partition(s).")]
    NoChange(usize),
    /// It has more.
    #[error("The topic {name} currently has {partitions} partition(s); {count} would not be an increase.")]
    NotAnIncrease {
        /// The topic.
        name: String,
        /// What it has.
        partitions: usize,
        /// What was asked for.
        count: i32,
    },
    /// More than one request may ask for.
    #[error("Excessively large number of partitions per request.")]
    TooMany,
    /// Not one assignment per new partition.
    #[error(
        "Attempted to add {additional} additional partition(s), but only {assignments} assignment(s) were specified."
    )]
    AssignmentCount {
        /// The new partitions.
        additional: usize,
        /// The assignments.
        assignments: usize,
    },
    /// One assignment is wrong.
    #[error(transparent)]
    Assignment(#[from] AssignmentError),
    /// Too many replicas for the brokers there are.
    #[error(transparent)]
    Placement(#[from] PlacementError),
}

impl CreatePartitionsError {
    /// Which of Kafka's errors it is.
    #[must_use]
    pub const fn class(&self) -> ErrorClass {
        match self {
            Self::DuplicateName => ErrorClass::InvalidRequest,
            Self::UnknownTopic => ErrorClass::UnknownTopicOrPartition,
            Self::NoChange(_) | Self::NotAnIncrease { .. } => ErrorClass::InvalidPartitions,
            Self::TooMany => ErrorClass::PolicyViolation,
            Self::AssignmentCount { .. } | Self::Assignment(_) => ErrorClass::InvalidReplicaAssignment,
            Self::Placement(_) => ErrorClass::InvalidReplicationFactor,
        }
    }
}

/// Why a configuration was not changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AlterConfigError {
    /// The resource stands more than once in the request.
    #[error("Each resource must appear at most once.")]
    DuplicateResource,
    /// A property stands more than once for a resource.
    #[error("Error due to duplicate config keys")]
    DuplicateKeys,
    /// A null value where one is needed.
    #[error("Null value not supported for : {names}")]
    NullValues {
        /// The properties, separated by commas.
        names: String,
    },
    /// Resources of this kind have no stored configuration here.
    #[error("Unknown resource type {0}")]
    UnknownResourceKind(i8),
    /// A topic without a name.
    #[error("Default topic resources are not allowed.")]
    DefaultTopic,
    /// The topic's name breaks a rule.
    #[error(transparent)]
    InvalidTopicName(#[from] InvalidTopicName),
    /// No topic has this name.
    #[error("The topic '{name}' does not exist.")]
    UnknownTopic {
        /// The name.
        name: String,
    },
    /// A broker's name that is no number.
    #[error("Node id must be an integer, but it is: {name}")]
    BrokerNameNotANumber {
        /// The name.
        name: String,
    },
    /// Another broker's configuration.
    #[error("Unexpected broker id, expected {ours}, but received {name}")]
    OtherBroker {
        /// The broker that was asked.
        ours: i32,
        /// The broker it was asked for.
        name: String,
    },
    /// Append or subtract on a property that is no list.
    #[error("Can't {operation} to key {name} because its type is not LIST.")]
    NotAList {
        /// `APPEND` or `SUBTRACT`.
        operation: &'static str,
        /// The property.
        name: String,
    },
    /// The same on a broker's property.
    #[error("Config value {operation} is not allowed for config key: {name}")]
    BrokerNotAList {
        /// `append` or `subtract`.
        operation: String,
        /// The property.
        name: String,
    },
    /// A value longer than the log takes.
    #[error("The configuration value cannot be added because it exceeds the maximum value size of 32767 bytes.")]
    ValueTooLong,
    /// A topic's property is wrong.
    #[error(transparent)]
    Topic(#[from] TopicConfigError),
    /// A broker's property is wrong, or cannot be changed while the broker runs.
    #[error(transparent)]
    Broker(#[from] DynamicConfigError),
}

impl AlterConfigError {
    /// Which of Kafka's errors it is.
    #[must_use]
    pub const fn class(&self) -> ErrorClass {
        match self {
            Self::DuplicateResource
            | Self::DuplicateKeys
            | Self::NullValues { .. }
            | Self::UnknownResourceKind(_)
            | Self::DefaultTopic
            | Self::BrokerNameNotANumber { .. }
            | Self::OtherBroker { .. }
            | Self::Broker(_) => ErrorClass::InvalidRequest,
            Self::InvalidTopicName(_) => ErrorClass::InvalidTopic,
            Self::UnknownTopic { .. } => ErrorClass::UnknownTopicOrPartition,
            Self::NotAList { .. } | Self::BrokerNotAList { .. } | Self::ValueTooLong | Self::Topic(_) => {
                ErrorClass::InvalidConfig
            }
        }
    }
}

/// Why no producer ids were handed out.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AllocateProducerIdsError {
    /// The broker has not registered.
    #[error("No broker registration found for broker id {0}")]
    NotRegistered(i32),
    /// The broker has registered again since.
    #[error("Expected broker epoch {ours}, but got broker epoch {theirs}")]
    StaleBrokerEpoch {
        /// The epoch it has.
        ours: i64,
        /// The epoch it gave.
        theirs: i64,
    },
    /// All 2^63 are used up.
    #[error("Exhausted all producerIds as the next block's end producerId has exceeded the int64 type limit")]
    Exhausted,
}

impl AllocateProducerIdsError {
    /// Which of Kafka's errors it is.
    #[must_use]
    pub const fn class(&self) -> ErrorClass {
        match self {
            Self::NotRegistered(_) | Self::StaleBrokerEpoch { .. } => ErrorClass::StaleBrokerEpoch,
            Self::Exhausted => ErrorClass::UnknownServerError,
        }
    }
}

/// Why a broker was not registered.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RegisterBrokerError {
    /// A broker that cannot be reached.
    #[error("Broker {0} registered without an endpoint")]
    NoEndpoints(i32),
    /// A negative id.
    #[error("Broker id {0} is negative")]
    NegativeId(i32),
    /// A partition it leads has used up its epochs.
    #[error("a partition of topic {0} that this broker leads has used up its epochs")]
    EpochsExhausted(TopicId),
}

impl RegisterBrokerError {
    /// Which of Kafka's errors it is.
    #[must_use]
    pub const fn class(&self) -> ErrorClass {
        match self {
            Self::NoEndpoints(_) | Self::NegativeId(_) => ErrorClass::InvalidRequest,
            Self::EpochsExhausted(_) => ErrorClass::UnknownServerError,
        }
    }
}

/// Why a data folder's failure was not recorded.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DirectoryFailedError {
    /// Nobody knows the broker.
    #[error("Broker {0} is not registered")]
    UnknownBroker(i32),
    /// A partition in the folder has used up its epochs.
    #[error("a partition of topic {0} in the data folder has used up its epochs")]
    EpochsExhausted(TopicId),
}

/// Why a feature's level was not changed, and with it no other of the request. Shown, it reads as Kafka's message.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UpdateFeatureError {
    /// No such feature, or not at this level.
    #[error(
        "The update failed for all features since the following feature had an error: Invalid update version {level} \
         for feature {name}. {reason}"
    )]
    InvalidVersion {
        /// The feature.
        name: String,
        /// The level asked for.
        level: i16,
        /// Why not.
        reason: String,
    },
    /// An older metadata version.
    #[error(
        "The update failed for all features since the following feature had an error: Unsupported metadata.version \
         downgrade from {from} to {to}. {reason}"
    )]
    MetadataDowngrade {
        /// The level it has.
        from: i16,
        /// The level asked for.
        to: i16,
        /// Why not.
        reason: &'static str,
    },
}

impl UpdateFeatureError {
    /// Which of Kafka's errors it is.
    #[must_use]
    pub const fn class(&self) -> ErrorClass {
        match self {
            Self::InvalidVersion { .. } | Self::MetadataDowngrade { .. } => ErrorClass::InvalidUpdateVersion,
        }
    }
}

/// Why a partition was not pinned.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PinCoreError {
    /// No such partition.
    #[error("This server does not host this topic-partition.")]
    UnknownPartition,
    /// No such broker.
    #[error("Broker ID {0} is not currently registered")]
    UnknownBroker(i32),
}

impl PinCoreError {
    /// Which of Kafka's errors it is.
    #[must_use]
    pub const fn class(&self) -> ErrorClass {
        match self {
            Self::UnknownPartition => ErrorClass::UnknownTopicOrPartition,
            Self::UnknownBroker(_) => ErrorClass::BrokerIdNotRegistered,
        }
    }
}
