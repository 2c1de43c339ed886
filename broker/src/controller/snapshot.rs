//! An image as records: what a snapshot of the metadata log holds.
//!
//! Holds: the way there and back. Never touches: files (`log`).

use std::collections::BTreeMap;
use std::sync::Arc;

use corelog_storage::ids::{PartitionIndex, TopicId};
use thiserror::Error;

use super::codec::{DecodeError, decode, encode};
use super::image::{MetadataImage, ReplayError, TopicImage};
use super::record::{ConfigResource, Record};
use crate::config::ConfigMap;

/// Why bytes are no snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SnapshotError {
    /// They are no records.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The records contradict each other.
    #[error(transparent)]
    Replay(#[from] ReplayError),
}

/// The records that make this image of nothing. The same image gives the same records, in the same order.
#[must_use]
pub fn records_of(image: &MetadataImage) -> Vec<Record> {
    let mut records = Vec::new();
    if !image.cluster_id().is_empty() {
        records.push(Record::Cluster { cluster_id: image.cluster_id().to_owned() });
    }
    for (name, &level) in image.features() {
        records.push(Record::Feature { name: name.clone(), level, epoch: image.features_epoch() });
    }
    for broker in image.brokers().values() {
        records.push(Record::BrokerRegistration {
            broker_id: broker.id,
            incarnation: broker.incarnation,
            broker_epoch: broker.epoch,
            endpoints: broker.endpoints.clone(),
            rack: broker.rack.clone(),
        });
        // Before there are partitions, so that none of them changes by it.
        if !broker.directories.is_empty() {
            let online = broker.directories.clone();
            records.push(Record::BrokerDirectories { broker_id: broker.id, online });
        }
    }
    let topics: BTreeMap<TopicId, &Arc<TopicImage>> = image.topics().map(|t| (t.id, t)).collect();
    for topic in topics.values() {
        write_topic(topic, &mut records);
    }
    let configs: BTreeMap<&ConfigResource, &Arc<ConfigMap>> = image.configs().collect();
    for (resource, properties) in configs {
        for (name, value) in properties.iter() {
            records.push(Record::Config { resource: resource.clone(), name: name.clone(), value: Some(value.clone()) });
        }
    }
    let pins: BTreeMap<(i32, TopicId, PartitionIndex), u16> =
        image.core_pins().map(|(broker, topic, partition, shard)| ((broker, topic, partition), shard)).collect();
    for ((broker_id, topic, partition), shard) in pins {
        records.push(Record::CorePin { broker_id, topic, partition, shard: Some(shard) });
    }
    if image.next_producer_id() > 0 {
        // Which broker got the last block is no part of the state.
        let next_producer_id = image.next_producer_id();
        records.push(Record::ProducerIds { broker_id: -1, broker_epoch: -1, next_producer_id });
    }
    records
}

fn write_topic(topic: &TopicImage, records: &mut Vec<Record>) {
    records.push(Record::Topic { id: topic.id, name: Arc::clone(&topic.name) });
    for (partition, state) in (0..).zip(&topic.partitions) {
        records.push(Record::Partition {
            topic: topic.id,
            partition: PartitionIndex(partition),
            replicas: state.replicas.clone(),
            isr: state.isr.clone(),
            leader: state.leader,
            leader_epoch: state.leader_epoch,
            partition_epoch: state.partition_epoch,
        });
        for &(broker_id, directory) in &state.directories {
            let partition = PartitionIndex(partition);
            records.push(Record::PartitionDirectory { broker_id, topic: topic.id, partition, directory });
        }
    }
}

/// The bytes of a snapshot of this image.
#[must_use]
pub fn encode_image(image: &MetadataImage) -> Vec<u8> {
    encode(&records_of(image))
}

/// The records of a snapshot, to be replayed into an empty controller.
///
/// # Errors
/// [`SnapshotError`] when the bytes are no snapshot.
pub fn decode_image(bytes: &[u8]) -> Result<(Vec<Record>, MetadataImage), SnapshotError> {
    let records = decode(bytes)?;
    let mut image = MetadataImage::default();
    for record in &records {
        image.replay(record)?;
    }
    Ok((records, image))
}
