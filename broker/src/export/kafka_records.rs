//! Our metadata in Kafka's records.
//!
//! Holds: the values of the few record types that a new cluster is bootstrapped with, and the batches around them.
//! Never touches: files. The way back is `import::kafka_record`.

use corelog_storage::batch::{BatchBuilder, BuildError, TargetCodec};
use corelog_storage::ids::{LeaderEpoch, Offset, PartitionIndex, Timestamp, TopicId};

use crate::controller::Record;

/// Records of one batch.
const BATCH_RECORDS: usize = 500;
const FRAME_VERSION: u32 = 1;

/// A record's value, while it is written.
struct Value(Vec<u8>);

impl Value {
    fn new(kind: u32, version: u32) -> Self {
        Self(Vec::new()).varint(FRAME_VERSION).varint(kind).varint(version)
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn varint(mut self, mut value: u32) -> Self {
        while value >= 0x80 {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
        self
    }

    fn length(self, length: usize) -> Self {
        self.varint(u32::try_from(length).unwrap_or(u32::MAX - 1) + 1)
    }

    fn text(self, text: &str) -> Self {
        self.length(text.len()).bytes(text.as_bytes())
    }

    fn numbers(self, numbers: &[i32]) -> Self {
        numbers.iter().fold(self.length(numbers.len()), |value, number| value.bytes(&number.to_be_bytes()))
    }

    /// No tagged field: the end.
    fn end(self) -> Vec<u8> {
        self.varint(0).0
    }
}

fn topic(id: TopicId, name: &str) -> Vec<u8> {
    Value::new(2, 0).text(name).bytes(&id.0).end()
}

fn feature(name: &str, level: i16) -> Vec<u8> {
    Value::new(12, 0).text(name).bytes(&level.to_be_bytes()).end()
}

fn config(kind: i8, resource: &str, name: &str, value: &str) -> Vec<u8> {
    Value::new(4, 0).bytes(&kind.to_be_bytes()).text(resource).text(name).text(value).end()
}

fn producer_ids(node: i32, next: i64) -> Vec<u8> {
    Value::new(15, 0).bytes(&node.to_be_bytes()).bytes(&(-1_i64).to_be_bytes()).bytes(&next.to_be_bytes()).end()
}

/// One partition, led by this node, in this folder.
fn partition(topic: TopicId, partition: PartitionIndex, node: i32, epochs: (i32, i32), folder: TopicId) -> Vec<u8> {
    let value = Value::new(3, 1).bytes(&partition.0.to_be_bytes()).bytes(&topic.0).numbers(&[node]).numbers(&[node]);
    let value = value.numbers(&[]).numbers(&[]).bytes(&node.to_be_bytes());
    let value = value.bytes(&epochs.0.to_be_bytes()).bytes(&epochs.1.to_be_bytes());
    value.length(1).bytes(&folder.0).end()
}

/// What this record of ours is for Kafka; `None`: nothing, Kafka finds it out itself or has no such thing.
fn value_of(record: &Record, node: i32, folder: TopicId) -> Option<Vec<u8>> {
    match record {
        Record::Feature { name, level, .. } => Some(feature(name, *level)),
        Record::Topic { id, name } => Some(topic(*id, name)),
        Record::Partition { topic, partition: number, leader_epoch, partition_epoch, .. } => {
            Some(partition(*topic, *number, node, (leader_epoch.0, *partition_epoch), folder))
        }
        Record::Config { resource, name, value: Some(value) } if !name.starts_with("corelog.") => {
            Some(config(resource.kind.id(), &resource.name, name, value))
        }
        Record::ProducerIds { next_producer_id, .. } => Some(producer_ids(node, *next_producer_id)),
        // An image holds none of these changes.
        Record::PartitionChange { .. } | Record::LeaderEpochBump { .. } | Record::RemoveTopic { .. } => None,
        // Kafka has the cluster's id from meta.properties; brokers register themselves; cores are ours.
        Record::Cluster { .. } | Record::BrokerRegistration { .. } | Record::Config { .. } | Record::CorePin { .. } => {
            None
        }
        // What is exported is all in one folder.
        Record::BrokerDirectories { .. } | Record::PartitionDirectory { .. } => None,
    }
}

/// The file that a Kafka's first controller makes its metadata from.
///
/// # Errors
/// When a batch is too large.
pub fn bootstrap(records: &[Record], node: i32, folder: TopicId, now: Timestamp) -> Result<Vec<u8>, BuildError> {
    let values: Vec<Vec<u8>> = records.iter().filter_map(|record| value_of(record, node, folder)).collect();
    let (mut bytes, mut offset) = (Vec::new(), 0);
    for chunk in values.chunks(BATCH_RECORDS) {
        let mut batch = BatchBuilder::new(TargetCodec::None).at(Offset(offset), LeaderEpoch(0));
        for value in chunk {
            batch.append(now, None, Some(value), &[]);
        }
        batch.build_into(&mut bytes)?;
        offset += chunk.len() as i64;
    }
    Ok(bytes)
}
