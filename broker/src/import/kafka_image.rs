//! What Kafka's metadata records come to.
//!
//! Holds: the replay of the records into topics, configurations, producer ids, and what is not carried.
//! Never touches: bytes, files; what becomes of it here (`plan`).

use std::collections::{BTreeMap, BTreeSet};

use corelog_storage::ids::TopicId;

use super::kafka_record::{KafkaRecord, NewPartition, Other, PartitionChange};
use crate::config::ConfigMap;

/// A topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KafkaTopic {
    pub name: String,
    pub partitions: BTreeMap<i32, NewPartition>,
}

/// The cluster at the end of its log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KafkaImage {
    pub topics: BTreeMap<TopicId, KafkaTopic>,
    /// By Kafka's number of the kind, and the name.
    pub configs: BTreeMap<(i8, String), ConfigMap>,
    pub features: BTreeMap<String, i16>,
    pub next_producer_id: i64,
    pub brokers: BTreeSet<i32>,
    pub controllers: BTreeSet<i32>,
    pub others: BTreeSet<(Other, String)>,
    /// Records of a transaction that has not ended.
    pending: Option<Vec<KafkaRecord>>,
}

/// Kafka's number of the kind of resource that is a topic.
pub const TOPIC: i8 = 2;

impl KafkaImage {
    /// Takes the next record.
    ///
    /// # Errors
    /// What does not fit.
    pub fn replay(&mut self, record: KafkaRecord) -> Result<(), String> {
        match (record, &mut self.pending) {
            (KafkaRecord::Begin, _) => self.pending = Some(Vec::new()),
            (KafkaRecord::Abort, _) => self.pending = None,
            (KafkaRecord::End, pending) => {
                for record in pending.take().unwrap_or_default() {
                    self.apply(record)?;
                }
            }
            (record, Some(pending)) => pending.push(record),
            (record, None) => self.apply(record)?,
        }
        Ok(())
    }

    /// Whether a transaction of the controller has not ended: what is in it does not count.
    pub fn is_in_transaction(&self) -> bool {
        self.pending.is_some()
    }

    fn apply(&mut self, record: KafkaRecord) -> Result<(), String> {
        match record {
            KafkaRecord::Topic { name, id } => {
                self.topics.insert(id, KafkaTopic { name, partitions: BTreeMap::new() });
            }
            KafkaRecord::Partition(new) => {
                let topic =
                    self.topics.get_mut(&new.topic).ok_or_else(|| format!("there is no topic {}", new.topic))?;
                topic.partitions.insert(new.partition, new);
            }
            KafkaRecord::PartitionChange { topic, partition, change } => {
                let found = self.topics.get_mut(&topic).and_then(|topic| topic.partitions.get_mut(&partition));
                let found = found.ok_or_else(|| format!("there is no partition {partition} of topic {topic}"))?;
                change_partition(found, change);
            }
            KafkaRecord::RemoveTopic { id } => {
                let topic = self.topics.remove(&id).ok_or_else(|| format!("there is no topic {id}"))?;
                self.configs.remove(&(TOPIC, topic.name));
            }
            KafkaRecord::Config { kind, resource, name, value } => self.configure((kind, resource), name, value),
            KafkaRecord::Feature { name, level } => {
                self.features.insert(name, level);
            }
            KafkaRecord::ProducerIds { next } => self.next_producer_id = self.next_producer_id.max(next),
            KafkaRecord::Broker { id } => {
                self.brokers.insert(id);
            }
            KafkaRecord::BrokerGone { id } => {
                self.brokers.remove(&id);
            }
            KafkaRecord::Controller { id } => {
                self.controllers.insert(id);
            }
            KafkaRecord::Set { what, name } => {
                self.others.insert((what, name));
            }
            KafkaRecord::Removed { what, name } => {
                self.others.remove(&(what, name));
            }
            KafkaRecord::Begin | KafkaRecord::End | KafkaRecord::Abort | KafkaRecord::Nothing => {}
        }
        Ok(())
    }

    fn configure(&mut self, resource: (i8, String), name: String, value: Option<String>) {
        let configs = self.configs.entry(resource.clone()).or_default();
        match value {
            Some(value) => configs.insert(name, value),
            None => configs.remove(&name),
        };
        if configs.is_empty() {
            self.configs.remove(&resource);
        }
    }
}

fn change_partition(partition: &mut NewPartition, change: PartitionChange) {
    partition.partition_epoch += 1;
    if let Some(replicas) = change.replicas {
        partition.replicas = replicas;
    }
    if let Some(isr) = change.isr {
        partition.isr = isr;
    }
    if let Some(leader) = change.leader {
        partition.leader = leader;
        partition.leader_epoch += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: TopicId = TopicId([7; 16]);

    fn topic() -> KafkaRecord {
        KafkaRecord::Topic { name: "t".to_owned(), id: ID }
    }

    fn partition() -> NewPartition {
        NewPartition {
            topic: ID,
            partition: 0,
            replicas: vec![1],
            isr: vec![1],
            leader: 1,
            leader_epoch: 0,
            partition_epoch: 0,
        }
    }

    fn config(value: Option<&str>) -> KafkaRecord {
        let value = value.map(str::to_owned);
        KafkaRecord::Config { kind: TOPIC, resource: "t".to_owned(), name: "cleanup.policy".to_owned(), value }
    }

    fn image(records: Vec<KafkaRecord>) -> KafkaImage {
        let mut image = KafkaImage::default();
        records.into_iter().for_each(|record| assert_eq!(image.replay(record), Ok(())));
        image
    }

    #[test]
    fn a_change_of_leader_begins_an_epoch_and_any_change_counts() {
        let change = |change| KafkaRecord::PartitionChange { topic: ID, partition: 0, change };
        let image = image(vec![
            topic(),
            KafkaRecord::Partition(partition()),
            change(PartitionChange { isr: Some(vec![1]), ..PartitionChange::default() }),
            change(PartitionChange { leader: Some(1), ..PartitionChange::default() }),
        ]);
        let found = &image.topics[&ID].partitions[&0];
        assert_eq!((found.leader_epoch, found.partition_epoch), (1, 2));
    }

    #[test]
    fn a_topic_takes_its_configuration_along_when_it_goes() {
        let gone = image(vec![topic(), config(Some("compact")), KafkaRecord::RemoveTopic { id: ID }]);
        assert_eq!(gone, KafkaImage::default());
        assert_eq!(image(vec![topic(), config(Some("compact")), config(None)]).configs, BTreeMap::new());
    }

    #[test]
    fn a_controllers_transaction_counts_when_it_ends_and_not_before() {
        let begun = image(vec![KafkaRecord::Begin, topic()]);
        assert!(begun.is_in_transaction() && begun.topics.is_empty());
        assert_eq!(image(vec![KafkaRecord::Begin, topic(), KafkaRecord::Abort]), KafkaImage::default());
        assert_eq!(image(vec![KafkaRecord::Begin, topic(), KafkaRecord::End]).topics.len(), 1);
    }

    #[test]
    fn records_about_what_is_not_there_are_told() {
        assert!(KafkaImage::default().replay(KafkaRecord::Partition(partition())).is_err());
        assert!(KafkaImage::default().replay(KafkaRecord::RemoveTopic { id: ID }).is_err());
    }
}
