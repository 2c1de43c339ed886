//! Topics: creating, deleting, giving more partitions.
//!
//! Holds: Kafka's rules and the order in which they are checked. Never touches: configurations beyond handing them on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use corelog_storage::ids::{LeaderEpoch, PartitionIndex, TopicId};

use super::directories::DirectoryLoads;
use super::error::{CreatePartitionsError, CreateTopicError, DeleteTopicError};
use super::placement::{check_assignment, place};
use super::record::{ConfigResource, Record};
use super::request::{
    CreatePartitions, CreateTopics, CreatedTopic, DeleteTopics, DeletedTopic, MorePartitions, NamedResult, NewTopic,
    NewTopicFacts,
};
use super::state::{Controller, Random, random_id};
use crate::config::{BrokerConfig, ConfigMap};
use crate::names::{
    CLUSTER_METADATA, CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE, collision_key, is_internal,
    validate_topic_name,
};

/// The most partitions that one request may create.
pub const PARTITIONS_PER_REQUEST_MAX: usize = 10_000;

impl NewTopic {
    /// A topic that comes into being because a client asked for it, or because a coordinator needs it.
    #[must_use]
    pub fn automatic(name: &str, config: &BrokerConfig) -> Self {
        let internal = match name {
            CONSUMER_OFFSETS => &config.offsets_topic,
            TRANSACTION_STATE => &config.transaction_topic,
            SHARE_GROUP_STATE => &config.share_state_topic,
            _ => {
                return Self { name: name.to_owned(), partitions: -1, replication_factor: -1, ..Self::default() };
            }
        };
        Self {
            name: name.to_owned(),
            partitions: internal.partitions,
            replication_factor: internal.replication_factor,
            assignments: Vec::new(),
            configs: internal.configs.iter().map(|(k, v)| (k.clone(), Some(v.clone()))).collect(),
        }
    }
}

/// A topic that passed every check.
struct Planned {
    facts: NewTopicFacts,
    replicas: Vec<Vec<i32>>,
}

impl Controller {
    /// Creates topics: each one on its own, those that can be.
    pub(super) fn create_topics(
        &self,
        request: &CreateTopics,
        random: &mut Random<'_>,
    ) -> (Vec<CreatedTopic>, Vec<Record>) {
        if self.partitions_asked_for(request) > PARTITIONS_PER_REQUEST_MAX as u64 {
            let refuse = |topic: &NewTopic| CreatedTopic {
                name: topic.name.clone(),
                outcome: Err(CreateTopicError::TooManyPartitionsInRequest),
            };
            return (request.topics.iter().map(refuse).collect(), Vec::new());
        }
        let mut records = Vec::new();
        let mut results = Vec::new();
        let mut duplicates = BTreeSet::new();
        let mut loads = DirectoryLoads::of(&self.image);
        let times = times_named(request.topics.iter().map(|topic| topic.name.as_str()));
        for topic in &request.topics {
            let outcome = if times.get(topic.name.as_str()) != Some(&1) {
                // One answer for all of them.
                if !duplicates.insert(topic.name.as_str()) {
                    continue;
                }
                Err(CreateTopicError::DuplicateName)
            } else {
                self.plan_topic(topic, random).map(|planned| {
                    write_topic(topic, &planned, &mut loads, &mut records);
                    planned.facts
                })
            };
            results.push(CreatedTopic { name: topic.name.clone(), outcome });
        }
        if request.validate_only {
            records.clear();
        }
        (results, records)
    }

    fn partitions_asked_for(&self, request: &CreateTopics) -> u64 {
        let of = |topic: &NewTopic| match (topic.assignments.len(), topic.partitions) {
            (0, -1) => u64::from(self.config.partitions_default.unsigned_abs()),
            (0, partitions) => u64::try_from(partitions).unwrap_or(0),
            (assigned, _) => assigned as u64,
        };
        request.topics.iter().map(of).sum()
    }

    fn plan_topic(&self, topic: &NewTopic, random: &mut Random<'_>) -> Result<Planned, CreateTopicError> {
        if topic.name == CLUSTER_METADATA {
            return Err(CreateTopicError::MetadataTopic);
        }
        self.check_new_name(&topic.name)?;
        let configs = new_configs(topic)?;
        self.check_topic_config(&configs)?;
        let replicas = self.new_replicas(topic, random)?;
        let facts = NewTopicFacts {
            id: random_id(random),
            partitions: i32::try_from(replicas.len()).unwrap_or(i32::MAX),
            replication_factor: replicas.first().and_then(|r| i16::try_from(r.len()).ok()).unwrap_or(0),
            configs: Arc::new(configs),
        };
        Ok(Planned { facts, replicas })
    }

    fn check_new_name(&self, name: &str) -> Result<(), CreateTopicError> {
        // Kafka says "exists" of a topic that exists even where another rule is broken too.
        if self.image.topic_id(name).is_some() {
            return Err(CreateTopicError::Exists { name: name.to_owned() });
        }
        validate_topic_name(name)?;
        let existing = collision_key(name).and_then(|key| self.clashes.get(&key)).and_then(|names| names.first());
        match existing {
            Some(existing) => Err(CreateTopicError::Collides { name: name.to_owned(), existing: existing.to_string() }),
            None => Ok(()),
        }
    }

    fn new_replicas(&self, topic: &NewTopic, random: &mut Random<'_>) -> Result<Vec<Vec<i32>>, CreateTopicError> {
        if !topic.assignments.is_empty() {
            return self.assigned_replicas(topic);
        }
        if topic.replication_factor < -1 || topic.replication_factor == 0 {
            return Err(CreateTopicError::ReplicationFactorNotPositive);
        }
        if topic.partitions < -1 || topic.partitions == 0 {
            return Err(CreateTopicError::PartitionsNotPositive);
        }
        let partitions = if topic.partitions == -1 { self.config.partitions_default } else { topic.partitions };
        let partitions = usize::try_from(partitions).unwrap_or(1);
        let mut replication_factor = topic.replication_factor;
        if replication_factor == -1 {
            replication_factor = self.config.replication_factor_default;
        }
        if is_internal(&topic.name) {
            // Ours: one node works out of the box, though the internal topics default to three replicas.
            let brokers = i16::try_from(self.image.brokers().len()).unwrap_or(i16::MAX);
            replication_factor = replication_factor.min(brokers.max(1));
        }
        place(self.image.brokers(), partitions, replication_factor, random)
            .map_err(|reason| CreateTopicError::CannotReplicate { replication_factor, reason })
    }

    fn assigned_replicas(&self, topic: &NewTopic) -> Result<Vec<Vec<i32>>, CreateTopicError> {
        if topic.replication_factor != -1 {
            return Err(CreateTopicError::AssignmentWithReplicationFactor);
        }
        if topic.partitions != -1 {
            return Err(CreateTopicError::AssignmentWithPartitions);
        }
        let mut by_partition = BTreeMap::new();
        let mut expected = None;
        for (partition, replicas) in &topic.assignments {
            if by_partition.contains_key(&partition.0) {
                return Err(CreateTopicError::RepeatedPartition(partition.0));
            }
            check_assignment(self.image.brokers(), replicas, expected)?;
            expected = Some(replicas.len());
            by_partition.insert(partition.0, replicas.clone());
        }
        if by_partition.keys().copied().ne((0..).take(by_partition.len())) {
            return Err(CreateTopicError::PartitionGap);
        }
        Ok(by_partition.into_values().collect())
    }

    /// Deletes topics: each one on its own, those that can be.
    pub(super) fn delete_topics(&self, request: &DeleteTopics) -> (Vec<DeletedTopic>, Vec<Record>) {
        let mut results = Vec::new();
        let mut refuse = |name: Option<&str>, id, error| {
            results.push(DeletedTopic { name: name.map(str::to_owned), id, outcome: Err(error) });
        };
        let mut names: Vec<&str> = Vec::new();
        let mut ids: Vec<TopicId> = Vec::new();
        for selector in &request.topics {
            match (&selector.name, selector.id) {
                (None, TopicId::ZERO) => refuse(None, TopicId::ZERO, DeleteTopicError::NotNamed),
                (None, id) => ids.push(id),
                (Some(name), TopicId::ZERO) => names.push(name),
                (Some(name), id) => refuse(Some(name), id, DeleteTopicError::NamedTwice),
            }
        }
        let mut doomed: BTreeMap<TopicId, String> = BTreeMap::new();
        let mut supplied: BTreeSet<TopicId> = BTreeSet::new();
        for (id, times) in times_named(ids.into_iter()) {
            supplied.insert(id);
            match self.image.topic(id) {
                _ if times > 1 => refuse(None, id, DeleteTopicError::DuplicateId),
                Some(topic) => {
                    doomed.insert(id, topic.name.to_string());
                }
                None => refuse(None, id, DeleteTopicError::UnknownId),
            }
        }
        for (name, times) in times_named(names.into_iter()) {
            if times > 1 {
                refuse(Some(name), TopicId::ZERO, DeleteTopicError::DuplicateName);
                continue;
            }
            match self.image.topic_id(name) {
                None => refuse(Some(name), TopicId::ZERO, DeleteTopicError::UnknownName),
                Some(id) if supplied.contains(&id) => {
                    // Then the id's own deletion is called off too.
                    doomed.remove(&id);
                    refuse(Some(name), id, DeleteTopicError::NameOfSuppliedId);
                }
                Some(id) => {
                    doomed.insert(id, name.to_owned());
                }
            }
        }
        let mut records = Vec::new();
        for (id, name) in doomed {
            records.push(Record::RemoveTopic { id });
            results.push(DeletedTopic { name: Some(name), id, outcome: Ok(()) });
        }
        (results, records)
    }

    /// Gives topics more partitions: each one on its own, those that can be.
    pub(super) fn create_partitions(
        &self,
        request: &CreatePartitions,
        random: &mut Random<'_>,
    ) -> (Vec<NamedResult<CreatePartitionsError>>, Vec<Record>) {
        let mut records = Vec::new();
        let mut results = Vec::new();
        let mut duplicates = BTreeSet::new();
        let mut loads = DirectoryLoads::of(&self.image);
        let times = times_named(request.topics.iter().map(|topic| topic.name.as_str()));
        for topic in &request.topics {
            let outcome = if times.get(topic.name.as_str()) != Some(&1) {
                if !duplicates.insert(topic.name.as_str()) {
                    continue;
                }
                Err(CreatePartitionsError::DuplicateName)
            } else {
                self.plan_partitions(topic, random, &mut loads).map(|mut more| records.append(&mut more))
            };
            results.push((topic.name.clone(), outcome));
        }
        if request.validate_only {
            records.clear();
        }
        (results, records)
    }

    fn plan_partitions(
        &self,
        request: &MorePartitions,
        random: &mut Random<'_>,
        loads: &mut DirectoryLoads,
    ) -> Result<Vec<Record>, CreatePartitionsError> {
        let Some(topic) = self.image.topic_by_name(&request.name) else {
            return Err(CreatePartitionsError::UnknownTopic);
        };
        let partitions = topic.partitions.len();
        let count = usize::try_from(request.count).unwrap_or(0);
        if count == partitions {
            return Err(CreatePartitionsError::NoChange(partitions));
        }
        if count < partitions {
            let name = request.name.clone();
            return Err(CreatePartitionsError::NotAnIncrease { name, partitions, count: request.count });
        }
        let additional = count - partitions;
        if let Some(assignments) = &request.assignments
            && assignments.len() != additional
        {
            return Err(CreatePartitionsError::AssignmentCount { additional, assignments: assignments.len() });
        }
        if additional > PARTITIONS_PER_REQUEST_MAX {
            return Err(CreatePartitionsError::TooMany);
        }
        let factor = topic.replication_factor();
        let replicas = match &request.assignments {
            Some(assignments) => {
                for replicas in assignments {
                    check_assignment(self.image.brokers(), replicas, Some(factor))?;
                }
                assignments.clone()
            }
            None => {
                let factor = i16::try_from(factor).unwrap_or(i16::MAX);
                place(self.image.brokers(), additional, factor, random)?
            }
        };
        Ok(partition_records(topic.id, partitions, &replicas, loads))
    }
}

/// How often each thing is named. Ordered, not hashed: a client must not be able to choose names that collide.
pub(super) fn times_named<T: Ord>(named: impl Iterator<Item = T>) -> BTreeMap<T, usize> {
    let mut times = BTreeMap::new();
    for name in named {
        *times.entry(name).or_default() += 1;
    }
    times
}

fn new_configs(topic: &NewTopic) -> Result<ConfigMap, CreateTopicError> {
    let nulls: Vec<&str> =
        topic.configs.iter().filter(|(_, value)| value.is_none()).map(|(name, _)| name.as_str()).collect();
    if !nulls.is_empty() {
        return Err(CreateTopicError::NullConfigs { names: nulls.join(",") });
    }
    Ok(topic.configs.iter().filter_map(|(name, value)| Some((name.clone(), value.clone()?))).collect())
}

fn write_topic(topic: &NewTopic, planned: &Planned, loads: &mut DirectoryLoads, records: &mut Vec<Record>) {
    let id = planned.facts.id;
    records.push(Record::Topic { id, name: topic.name.as_str().into() });
    for (name, value) in planned.facts.configs.iter() {
        records.push(Record::Config {
            resource: ConfigResource::topic(&topic.name),
            name: name.clone(),
            value: Some(value.clone()),
        });
    }
    records.extend(partition_records(id, 0, &planned.replicas, loads));
}

fn partition_records(topic: TopicId, first: usize, replicas: &[Vec<i32>], loads: &mut DirectoryLoads) -> Vec<Record> {
    let mut records = Vec::new();
    for (partition, replicas) in (first..).zip(replicas) {
        let partition = PartitionIndex(i32::try_from(partition).unwrap_or(i32::MAX));
        records.push(Record::Partition {
            topic,
            partition,
            replicas: replicas.clone(),
            isr: replicas.clone(),
            leader: replicas.first().copied().unwrap_or(-1),
            leader_epoch: LeaderEpoch(0),
            partition_epoch: 0,
        });
        records.append(&mut loads.place(topic, partition, replicas));
    }
    records
}
