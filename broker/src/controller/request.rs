//! What can be asked of the controller, and what it answers.
//!
//! Holds: requests and responses as plain values, independent of the wire's versions; both are `Send`, so they travel
//! by mail to the controller's core and back. Never touches: the state, the wire, Kafka's error numbers.

use std::sync::Arc;

use corelog_storage::ids::{PartitionIndex, TopicId};

use super::error::{
    AllocateProducerIdsError, AlterConfigError, CreatePartitionsError, CreateTopicError, DeleteTopicError,
    DirectoryFailedError, PinCoreError, RegisterBrokerError, UpdateFeatureError,
};
use super::record::{ConfigResource, DirectoryId, Endpoint};

/// A topic's name, and whether what was asked for it was done.
pub type NamedResult<E> = (String, Result<(), E>);

/// Anything that can be asked.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Create topics (CreateTopics, API key 19, and auto-creation).
    CreateTopics(CreateTopics),
    /// Delete topics (20).
    DeleteTopics(DeleteTopics),
    /// Give topics more partitions (37).
    CreatePartitions(CreatePartitions),
    /// Replace whole configurations (33).
    AlterConfigs(AlterConfigs),
    /// Change single properties (44).
    IncrementalAlterConfigs(IncrementalAlterConfigs),
    /// Hand out a block of producer ids (67).
    AllocateProducerIds(AllocateProducerIds),
    /// Tell that a broker has started (62), and bump the leader epoch of every partition it leads.
    RegisterBroker(RegisterBroker),
    /// Change the levels of features (57).
    UpdateFeatures(UpdateFeatures),
    /// Pin a partition to a core, or unpin it.
    PinCore(PinCore),
    /// Tell that a data folder has failed (the `OfflineLogDirs` of a BrokerHeartbeat, 63).
    DirectoryFailed(DirectoryFailed),
}

/// The answer to a [`Request`], of the same kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Response {
    /// To [`Request::CreateTopics`]: one result per topic; duplicates in the request have one result together.
    CreateTopics(Vec<CreatedTopic>),
    /// To [`Request::DeleteTopics`].
    DeleteTopics(Vec<DeletedTopic>),
    /// To [`Request::CreatePartitions`]: one result per topic.
    CreatePartitions(Vec<NamedResult<CreatePartitionsError>>),
    /// To [`Request::AlterConfigs`] and [`Request::IncrementalAlterConfigs`]: one result per resource, in request order.
    AlterConfigs(Vec<(ConfigResource, Result<(), AlterConfigError>)>),
    /// To [`Request::AllocateProducerIds`].
    AllocateProducerIds(Result<ProducerIdBlock, AllocateProducerIdsError>),
    /// To [`Request::RegisterBroker`].
    RegisterBroker(Result<Registered, RegisterBrokerError>),
    /// To [`Request::UpdateFeatures`]: all of them, or none.
    UpdateFeatures(Result<(), UpdateFeatureError>),
    /// To [`Request::PinCore`].
    PinCore(Result<(), PinCoreError>),
    /// To [`Request::DirectoryFailed`].
    DirectoryFailed(Result<(), DirectoryFailedError>),
}

/// Create topics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreateTopics {
    /// The topics.
    pub topics: Vec<NewTopic>,
    /// Check everything, create nothing.
    pub validate_only: bool,
}

/// A topic to create.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewTopic {
    /// Its name.
    pub name: String,
    /// How many partitions; -1: `num.partitions`, or as many as `assignments` names.
    pub partitions: i32,
    /// How many replicas; -1: `default.replication.factor`, or as `assignments` says.
    pub replication_factor: i16,
    /// Which brokers hold which partition; empty: the controller decides.
    pub assignments: Vec<(PartitionIndex, Vec<i32>)>,
    /// Its overrides. A null value is an error of the client's, and is answered as such.
    pub configs: Vec<(String, Option<String>)>,
}

/// What became of a topic to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatedTopic {
    /// Its name.
    pub name: String,
    /// What it is now, or why it is not.
    pub outcome: Result<NewTopicFacts, CreateTopicError>,
}

/// What a created topic is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTopicFacts {
    /// Its id. Of a topic that was only validated: an id that was not given to anything.
    pub id: TopicId,
    /// How many partitions it has.
    pub partitions: i32,
    /// How many replicas each has.
    pub replication_factor: i16,
    /// The overrides it was created with, for describing its configuration in the answer.
    pub configs: Arc<crate::config::ConfigMap>,
}

/// Delete topics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteTopics {
    /// Which ones.
    pub topics: Vec<TopicSelector>,
}

/// How a request names a topic. As on the wire: one of the two is to be given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicSelector {
    /// Its name.
    pub name: Option<String>,
    /// Its id; zero: not given.
    pub id: TopicId,
}

/// What became of a topic to delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletedTopic {
    /// Its name, where known.
    pub name: Option<String>,
    /// Its id, or zero.
    pub id: TopicId,
    /// Whether it is gone.
    pub outcome: Result<(), DeleteTopicError>,
}

/// Give topics more partitions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreatePartitions {
    /// Which topics.
    pub topics: Vec<MorePartitions>,
    /// Check everything, create nothing.
    pub validate_only: bool,
}

/// A topic to give more partitions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MorePartitions {
    /// Its name.
    pub name: String,
    /// How many partitions it shall have.
    pub count: i32,
    /// Which brokers hold each of the new ones; `None`: the controller decides.
    pub assignments: Option<Vec<Vec<i32>>>,
}

/// Replace whole configurations: what is not named is removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlterConfigs {
    /// The resources.
    pub resources: Vec<ReplacedConfig>,
    /// Check everything, change nothing.
    pub validate_only: bool,
}

/// The new configuration of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplacedConfig {
    /// Whose.
    pub resource: ConfigResource,
    /// All its properties from now on.
    pub configs: Vec<(String, Option<String>)>,
}

/// Change single properties.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IncrementalAlterConfigs {
    /// The resources.
    pub resources: Vec<ChangedConfig>,
    /// Check everything, change nothing.
    pub validate_only: bool,
}

/// The changes to one resource's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedConfig {
    /// Whose.
    pub resource: ConfigResource,
    /// What changes.
    pub changes: Vec<ConfigChange>,
}

/// A change to one property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigChange {
    /// The property.
    pub name: String,
    /// What to do with it.
    pub operation: ConfigOperation,
    /// The value to set, append or subtract.
    pub value: Option<String>,
}

/// What to do with a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigOperation {
    /// Give it this value.
    Set,
    /// Remove it: the default, or a broker's value, counts again.
    Delete,
    /// Add items to a list.
    Append,
    /// Remove items from a list.
    Subtract,
}

impl ConfigOperation {
    /// The operation with this number in the protocol.
    #[must_use]
    pub const fn from_id(id: i8) -> Option<Self> {
        match id {
            0 => Some(Self::Set),
            1 => Some(Self::Delete),
            2 => Some(Self::Append),
            3 => Some(Self::Subtract),
            _ => None,
        }
    }
}

/// Hand out a block of producer ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocateProducerIds {
    /// The broker that asks.
    pub broker_id: i32,
    /// Its epoch, as its registration was answered.
    pub broker_epoch: i64,
}

/// Producer ids that no other broker has and none will get. Usable once the records have committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerIdBlock {
    /// The first.
    pub first: i64,
    /// How many.
    pub len: i32,
}

/// Tell that a broker has started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisterBroker {
    /// Its id.
    pub broker_id: i32,
    /// Where it can be reached.
    pub endpoints: Vec<Endpoint>,
    /// Its rack.
    pub rack: Option<String>,
    /// Its data folders that are online, beside the first.
    pub directories: Vec<DirectoryId>,
}

/// Tell that a data folder, not the broker's first, has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryFailed {
    /// Whose it is.
    pub broker_id: i32,
    /// Which one.
    pub directory: DirectoryId,
}

/// What a registration gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registered {
    /// The broker's epoch in the cluster.
    pub broker_epoch: i64,
    /// Its incarnation, drawn for this start.
    pub incarnation: [u8; 16],
}

/// Change the levels of features.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpdateFeatures {
    /// Name, level, and how the change may go.
    pub updates: Vec<FeatureUpdate>,
    /// Check everything, change nothing.
    pub validate_only: bool,
}

/// A change of one feature's level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureUpdate {
    /// The feature.
    pub name: String,
    /// The level it shall have; 0: off.
    pub level: i16,
    /// Which direction is allowed.
    pub allowed: FeatureChange,
}

/// Which way a feature's level may move (UpdateFeatures' upgrade type).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureChange {
    /// Up only.
    Upgrade,
    /// Down too, where nothing is lost.
    SafeDowngrade,
    /// Down too, whatever is lost.
    UnsafeDowngrade,
}

/// Pin a partition to a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinCore {
    /// The broker.
    pub broker_id: i32,
    /// The topic.
    pub topic: TopicId,
    /// The partition.
    pub partition: PartitionIndex,
    /// The shard; `None`: the default placement again.
    pub shard: Option<u16>,
}
