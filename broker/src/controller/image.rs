//! The cluster as of one point in the metadata log.
//!
//! Holds: `MetadataImage`, an immutable snapshot that every core reads, and what replaying one record does to it.
//! Never touches: the log, clocks, other cores.

use std::collections::BTreeMap;
use std::sync::Arc;

use corelog_storage::ids::{LeaderEpoch, PartitionIndex, TopicId};
use thiserror::Error;

use super::record::{ConfigResource, DirectoryId, Endpoint, Record};
use super::shared_map::SharedMap;
use crate::config::ConfigMap;

/// One partition: who holds it, who leads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionImage {
    /// The brokers that hold it, the preferred leader first.
    pub replicas: Vec<i32>,
    /// Those that are in sync.
    pub isr: Vec<i32>,
    /// The one that leads; -1: none.
    pub leader: i32,
    /// Counts the changes of leadership.
    pub leader_epoch: LeaderEpoch,
    /// Counts all changes.
    pub partition_epoch: i32,
    /// The data folders that hold it, by broker, where that is not the broker's first.
    pub directories: Vec<(i32, DirectoryId)>,
}

/// One topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicImage {
    /// Its id.
    pub id: TopicId,
    /// Its name.
    pub name: Arc<str>,
    /// Its partitions, by number.
    pub partitions: Vec<PartitionImage>,
}

impl TopicImage {
    /// One of its partitions.
    #[must_use]
    pub fn partition(&self, index: PartitionIndex) -> Option<&PartitionImage> {
        self.partitions.get(usize::try_from(index.0).ok()?)
    }

    /// How many replicas its partitions have (those of partition 0).
    #[must_use]
    pub fn replication_factor(&self) -> usize {
        self.partitions.first().map_or(0, |p| p.replicas.len())
    }
}

/// One broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerImage {
    /// Its id.
    pub id: i32,
    /// Its incarnation: new at each start.
    pub incarnation: [u8; 16],
    /// Counts its registrations.
    pub epoch: i64,
    /// Where it can be reached.
    pub endpoints: Vec<Endpoint>,
    /// Its rack.
    pub rack: Option<String>,
    /// Its data folders that are online, beside the first.
    pub directories: Vec<DirectoryId>,
}

impl BrokerImage {
    /// Where it can be reached through the listener of this name.
    #[must_use]
    pub fn endpoint(&self, listener: &str) -> Option<&Endpoint> {
        self.endpoints.iter().find(|e| e.listener == listener)
    }
}

/// The whole cluster. A clone is cheap: it shares what is unchanged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetadataImage {
    cluster_id: Arc<str>,
    controller_id: Option<i32>,
    features: Arc<BTreeMap<String, i16>>,
    features_epoch: i64,
    brokers: Arc<BTreeMap<i32, BrokerImage>>,
    topics: SharedMap<TopicId, Arc<TopicImage>>,
    ids: SharedMap<Arc<str>, TopicId>,
    configs: SharedMap<ConfigResource, Arc<ConfigMap>>,
    core_pins: SharedMap<(i32, TopicId, i32), u16>,
    next_producer_id: i64,
    partitions: usize,
}

/// Why a record does not fit the state: the log is not the log of this state, or a bug wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReplayError {
    /// The topic of the record does not exist.
    #[error("the record is about topic {0}, which does not exist")]
    UnknownTopic(TopicId),
    /// The broker of the record does not exist.
    #[error("the record is about broker {0}, which was never registered")]
    UnknownBroker(i32),
    /// The partition of the record does not exist.
    #[error("the record is about partition {1} of topic {0}, which does not exist")]
    UnknownPartition(TopicId, PartitionIndex),
    /// A topic with this id or name exists already.
    #[error("topic {id} ({name}) exists already")]
    TopicExists {
        /// The record's id.
        id: TopicId,
        /// The record's name.
        name: Arc<str>,
    },
    /// The partition is not the next one of its topic.
    #[error("partition {found} of topic {topic} is created where partition {expected} is next")]
    PartitionOutOfOrder {
        /// The topic.
        topic: TopicId,
        /// The next number.
        expected: usize,
        /// The record's number.
        found: PartitionIndex,
    },
    /// An epoch goes back, or a change does not raise the partition epoch.
    #[error("partition {partition} of topic {topic}: {which} epoch {ours} is followed by {theirs}")]
    EpochGoesBack {
        /// The topic.
        topic: TopicId,
        /// The partition.
        partition: PartitionIndex,
        /// `leader` or `partition`.
        which: &'static str,
        /// The state's epoch.
        ours: i32,
        /// The record's epoch.
        theirs: i32,
    },
    /// The producer ids go back.
    #[error("producer ids below {ours} are given out, and the record says below {theirs}")]
    ProducerIdsGoBack {
        /// The state's first free id.
        ours: i64,
        /// The record's.
        theirs: i64,
    },
    /// The log belongs to another cluster.
    #[error("this is the log of cluster {ours}, and a record names cluster {theirs}")]
    ClusterChanges {
        /// The state's id.
        ours: Arc<str>,
        /// The record's id.
        theirs: String,
    },
    /// A broker's registration has an epoch that was used before.
    #[error("broker {broker_id} was registered with epoch {ours}, and the record says {theirs}")]
    BrokerEpochGoesBack {
        /// The broker.
        broker_id: i32,
        /// The state's epoch.
        ours: i64,
        /// The record's epoch.
        theirs: i64,
    },
    /// The epoch of the features goes back.
    #[error("the features have epoch {ours}, and the record says {theirs}")]
    FeatureEpochGoesBack {
        /// The state's epoch.
        ours: i64,
        /// The record's epoch.
        theirs: i64,
    },
    /// An epoch has reached the end of its number range.
    #[error("partition {partition} of topic {topic} has used up its epochs")]
    EpochsExhausted {
        /// The topic.
        topic: TopicId,
        /// The partition.
        partition: PartitionIndex,
    },
}

impl MetadataImage {
    /// The cluster's id; empty before the first record.
    #[must_use]
    pub fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    /// The node that is the active controller, as far as this image knows.
    #[must_use]
    pub const fn controller_id(&self) -> Option<i32> {
        self.controller_id
    }

    /// Says who the active controller is. Not part of the log: who leads it is known by leading it.
    #[must_use]
    pub fn with_controller(mut self, id: Option<i32>) -> Self {
        self.controller_id = id;
        self
    }

    /// The finalized features and their levels, `metadata.version` among them.
    #[must_use]
    pub fn features(&self) -> &BTreeMap<String, i16> {
        &self.features
    }

    /// Rises with each change of a feature, from 1; 0 before the first.
    #[must_use]
    pub const fn features_epoch(&self) -> i64 {
        self.features_epoch
    }

    /// The level of `metadata.version`; 0 before it is set.
    #[must_use]
    pub fn metadata_version(&self) -> i16 {
        self.features.get("metadata.version").copied().unwrap_or(0)
    }

    /// The brokers, by id.
    #[must_use]
    pub fn brokers(&self) -> &BTreeMap<i32, BrokerImage> {
        &self.brokers
    }

    /// The topic with this id.
    #[must_use]
    pub fn topic(&self, id: TopicId) -> Option<&Arc<TopicImage>> {
        self.topics.get(&id)
    }

    /// The id of the topic with this name.
    #[must_use]
    pub fn topic_id(&self, name: &str) -> Option<TopicId> {
        self.ids.get(name).copied()
    }

    /// The topic with this name.
    #[must_use]
    pub fn topic_by_name(&self, name: &str) -> Option<&Arc<TopicImage>> {
        self.topic(self.topic_id(name)?)
    }

    /// Every topic, in no particular order.
    pub fn topics(&self) -> impl Iterator<Item = &Arc<TopicImage>> {
        self.topics.iter().map(|(_, topic)| topic)
    }

    /// How many topics there are.
    #[must_use]
    pub const fn topic_count(&self) -> usize {
        self.topics.len()
    }

    /// How many partitions there are.
    #[must_use]
    pub const fn partition_count(&self) -> usize {
        self.partitions
    }

    /// What has been set for a resource; empty when nothing has.
    #[must_use]
    pub fn config(&self, resource: &ConfigResource) -> Arc<ConfigMap> {
        self.configs.get(resource).cloned().unwrap_or_default()
    }

    /// Every resource for which something has been set, in no particular order.
    pub fn configs(&self) -> impl Iterator<Item = (&ConfigResource, &Arc<ConfigMap>)> {
        self.configs.iter()
    }

    /// The shard that a partition is pinned to on a broker.
    #[must_use]
    pub fn core_pin(&self, broker_id: i32, topic: TopicId, partition: PartitionIndex) -> Option<u16> {
        self.core_pins.get(&(broker_id, topic, partition.0)).copied()
    }

    /// Every pin: broker, topic, partition, shard.
    pub fn core_pins(&self) -> impl Iterator<Item = (i32, TopicId, PartitionIndex, u16)> {
        self.core_pins
            .iter()
            .map(|(&(broker, topic, partition), &shard)| (broker, topic, PartitionIndex(partition), shard))
    }

    /// The first producer id that no block contains.
    #[must_use]
    pub const fn next_producer_id(&self) -> i64 {
        self.next_producer_id
    }

    /// Applies one record.
    ///
    /// # Errors
    /// [`ReplayError`] when the record does not fit; the image is unchanged then.
    pub fn replay(&mut self, record: &Record) -> Result<(), ReplayError> {
        match record {
            Record::Cluster { cluster_id } => {
                if !self.cluster_id.is_empty() && *self.cluster_id != **cluster_id {
                    return Err(ReplayError::ClusterChanges {
                        ours: Arc::clone(&self.cluster_id),
                        theirs: cluster_id.clone(),
                    });
                }
                self.cluster_id = cluster_id.as_str().into();
            }
            Record::Feature { name, level, epoch } => {
                if *epoch < self.features_epoch {
                    return Err(ReplayError::FeatureEpochGoesBack { ours: self.features_epoch, theirs: *epoch });
                }
                let features = Arc::make_mut(&mut self.features);
                if *level == 0 {
                    features.remove(name);
                } else {
                    features.insert(name.clone(), *level);
                }
                self.features_epoch = *epoch;
            }
            Record::BrokerRegistration { broker_id, incarnation, broker_epoch, endpoints, rack } => {
                let ours = self.brokers.get(broker_id).map_or(0, |b| b.epoch);
                if *broker_epoch <= ours {
                    return Err(ReplayError::BrokerEpochGoesBack {
                        broker_id: *broker_id,
                        ours,
                        theirs: *broker_epoch,
                    });
                }
                let broker = BrokerImage {
                    id: *broker_id,
                    incarnation: *incarnation,
                    epoch: *broker_epoch,
                    endpoints: endpoints.clone(),
                    rack: rack.clone(),
                    directories: self.brokers.get(broker_id).map(|b| b.directories.clone()).unwrap_or_default(),
                };
                Arc::make_mut(&mut self.brokers).insert(*broker_id, broker);
            }
            Record::Topic { id, name } => {
                if self.topics.get(id).is_some() || self.ids.get(name).is_some() {
                    return Err(ReplayError::TopicExists { id: *id, name: Arc::clone(name) });
                }
                let topic = TopicImage { id: *id, name: Arc::clone(name), partitions: Vec::new() };
                self.topics.insert(*id, Arc::new(topic));
                self.ids.insert(Arc::clone(name), *id);
            }
            Record::Partition { topic, partition, replicas, isr, leader, leader_epoch, partition_epoch } => {
                let image = self.topic_mut(*topic)?;
                let expected = image.partitions.len();
                if usize::try_from(partition.0) != Ok(expected) {
                    return Err(ReplayError::PartitionOutOfOrder { topic: *topic, expected, found: *partition });
                }
                image.partitions.push(PartitionImage {
                    replicas: replicas.clone(),
                    isr: isr.clone(),
                    leader: *leader,
                    leader_epoch: *leader_epoch,
                    partition_epoch: *partition_epoch,
                    directories: Vec::new(),
                });
                self.partitions += 1;
            }
            Record::PartitionChange { topic, partition, replicas, isr, leader, leader_epoch, partition_epoch } => {
                let at = usize::try_from(partition.0).unwrap_or(usize::MAX);
                let image = self.topic_mut(*topic)?;
                let Some(state) = image.partitions.get_mut(at) else {
                    return Err(ReplayError::UnknownPartition(*topic, *partition));
                };
                let goes_back = |which, ours, theirs| ReplayError::EpochGoesBack {
                    topic: *topic,
                    partition: *partition,
                    which,
                    ours,
                    theirs,
                };
                if *leader_epoch < state.leader_epoch {
                    return Err(goes_back("leader", state.leader_epoch.0, leader_epoch.0));
                }
                if *partition_epoch <= state.partition_epoch {
                    return Err(goes_back("partition", state.partition_epoch, *partition_epoch));
                }
                if let Some(replicas) = replicas {
                    state.replicas.clone_from(replicas);
                }
                if let Some(isr) = isr {
                    state.isr.clone_from(isr);
                }
                if let Some(leader) = leader {
                    state.leader = *leader;
                }
                state.leader_epoch = *leader_epoch;
                state.partition_epoch = *partition_epoch;
            }
            Record::LeaderEpochBump { broker_id } => self.bump_leader_epochs(*broker_id)?,
            Record::RemoveTopic { id } => {
                let Some(topic) = self.topics.remove(id) else {
                    return Err(ReplayError::UnknownTopic(*id));
                };
                self.ids.remove(&*topic.name);
                self.configs.remove(&ConfigResource::topic(&topic.name));
                self.partitions -= topic.partitions.len();
                let pins: Vec<(i32, TopicId, i32)> =
                    self.core_pins.iter().filter(|((_, pinned, _), _)| pinned == id).map(|(key, _)| *key).collect();
                for pin in pins {
                    self.core_pins.remove(&pin);
                }
            }
            Record::Config { resource, name, value } => self.replay_config(resource, name, value.as_ref()),
            Record::ProducerIds { next_producer_id, .. } => {
                if *next_producer_id <= self.next_producer_id {
                    return Err(ReplayError::ProducerIdsGoBack {
                        ours: self.next_producer_id,
                        theirs: *next_producer_id,
                    });
                }
                self.next_producer_id = *next_producer_id;
            }
            Record::CorePin { broker_id, topic, partition, shard } => {
                if self.topic(*topic).and_then(|t| t.partition(*partition)).is_none() {
                    return Err(ReplayError::UnknownPartition(*topic, *partition));
                }
                let key = (*broker_id, *topic, partition.0);
                match shard {
                    Some(shard) => self.core_pins.insert(key, *shard),
                    None => self.core_pins.remove(&key),
                };
            }
            Record::BrokerDirectories { broker_id, online } => self.replay_broker_directories(*broker_id, online)?,
            Record::PartitionDirectory { broker_id, topic, partition, directory } => {
                self.replay_partition_directory(*broker_id, *topic, *partition, *directory)?;
            }
        }
        Ok(())
    }

    pub(super) fn broker_mut(&mut self, id: i32) -> Option<&mut BrokerImage> {
        Arc::make_mut(&mut self.brokers).get_mut(&id)
    }

    pub(super) fn topic_mut(&mut self, id: TopicId) -> Result<&mut TopicImage, ReplayError> {
        self.topics.get_mut(&id).map(Arc::make_mut).ok_or(ReplayError::UnknownTopic(id))
    }

    fn bump_leader_epochs(&mut self, broker_id: i32) -> Result<(), ReplayError> {
        let led = |topic: &TopicImage| topic.partitions.iter().any(|p| p.leader == broker_id);
        for topic in self.topics.iter().map(|(_, topic)| topic) {
            for (partition, state) in (0_i32..).zip(&topic.partitions) {
                let last = state.leader_epoch.0 == i32::MAX || state.partition_epoch == i32::MAX;
                if state.leader == broker_id && last {
                    return Err(ReplayError::EpochsExhausted { topic: topic.id, partition: PartitionIndex(partition) });
                }
            }
        }
        let ids: Vec<TopicId> = self.topics.iter().filter(|(_, topic)| led(topic)).map(|(id, _)| *id).collect();
        for id in ids {
            for state in &mut self.topic_mut(id)?.partitions {
                if state.leader == broker_id {
                    state.leader_epoch.0 += 1;
                    state.partition_epoch += 1;
                }
            }
        }
        Ok(())
    }

    fn replay_config(&mut self, resource: &ConfigResource, name: &str, value: Option<&String>) {
        let mut configs = self.configs.remove(resource).unwrap_or_default();
        match value {
            Some(value) => Arc::make_mut(&mut configs).insert(name.to_owned(), value.clone()),
            None => Arc::make_mut(&mut configs).remove(name),
        };
        if !configs.is_empty() {
            self.configs.insert(resource.clone(), configs);
        }
    }

    pub(super) fn topics_map(&self) -> &SharedMap<TopicId, Arc<TopicImage>> {
        &self.topics
    }

    pub(super) fn configs_map(&self) -> &SharedMap<ConfigResource, Arc<ConfigMap>> {
        &self.configs
    }

    pub(super) fn core_pins_map(&self) -> &SharedMap<(i32, TopicId, i32), u16> {
        &self.core_pins
    }
}
