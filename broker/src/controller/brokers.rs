//! Brokers, their producer ids, and their cores.
//!
//! Holds: registration with the epoch bump that every start needs, blocks of producer ids, core pins.
//! Never touches: topics' contents.

use corelog_storage::ids::LeaderEpoch;

use super::error::{AllocateProducerIdsError, PinCoreError, RegisterBrokerError};
use super::image::PartitionImage;
use super::record::Record;
use super::request::{AllocateProducerIds, PinCore, ProducerIdBlock, RegisterBroker, Registered};
use super::state::{Controller, Random, random_id};

/// How many producer ids a block holds (KIP-730).
pub const PRODUCER_ID_BLOCK_LEN: i32 = 1000;

impl Controller {
    /// Registers a broker, and gives every partition it leads a new leader epoch: offsets that it had stamped and not
    /// made durable before it stopped may be known to others, and must not come again in the same epoch.
    pub(super) fn register_broker(
        &self,
        request: &RegisterBroker,
        random: &mut Random<'_>,
    ) -> (Result<Registered, RegisterBrokerError>, Vec<Record>) {
        let broker_id = request.broker_id;
        if broker_id < 0 {
            return (Err(RegisterBrokerError::NegativeId(broker_id)), Vec::new());
        }
        if request.endpoints.is_empty() {
            return (Err(RegisterBrokerError::NoEndpoints(broker_id)), Vec::new());
        }
        let mut leads = false;
        for topic in self.image.topics() {
            let is_ours = |p: &&PartitionImage| p.leader == broker_id || p.directory(broker_id).is_some();
            for partition in topic.partitions.iter().filter(is_ours) {
                // It may get two: when its folder comes back, and for the start.
                if partition.leader_epoch >= LeaderEpoch(i32::MAX - 1) || partition.partition_epoch >= i32::MAX - 1 {
                    return (Err(RegisterBrokerError::EpochsExhausted(topic.id)), Vec::new());
                }
                leads |= partition.leader == broker_id;
            }
        }
        let known = self.image.brokers().get(&broker_id);
        let broker_epoch = known.map_or(1, |broker| broker.epoch + 1);
        let incarnation = random_id(random).0;
        let mut records = vec![Record::BrokerRegistration {
            broker_id,
            incarnation,
            broker_epoch,
            endpoints: request.endpoints.clone(),
            rack: request.rack.clone(),
        }];
        // Before the epochs: those of a folder that is gone are led by nobody, those of one that is back have a new epoch.
        if known.map_or(&[][..], |broker| &broker.directories) != request.directories {
            records.push(Record::BrokerDirectories { broker_id, online: request.directories.clone() });
        }
        if leads {
            records.push(Record::LeaderEpochBump { broker_id });
        }
        (Ok(Registered { broker_epoch, incarnation }), records)
    }

    /// Hands out the next block of producer ids.
    pub(super) fn allocate_producer_ids(
        &self,
        request: AllocateProducerIds,
    ) -> (Result<ProducerIdBlock, AllocateProducerIdsError>, Vec<Record>) {
        let AllocateProducerIds { broker_id, broker_epoch } = request;
        let refuse = |error| (Err(error), Vec::new());
        let Some(broker) = self.image.brokers().get(&broker_id) else {
            return refuse(AllocateProducerIdsError::NotRegistered(broker_id));
        };
        if broker.epoch != broker_epoch {
            let error = AllocateProducerIdsError::StaleBrokerEpoch { ours: broker.epoch, theirs: broker_epoch };
            return refuse(error);
        }
        let first = self.image.next_producer_id();
        let Some(next_producer_id) = first.checked_add(i64::from(PRODUCER_ID_BLOCK_LEN)) else {
            return refuse(AllocateProducerIdsError::Exhausted);
        };
        let block = ProducerIdBlock { first, len: PRODUCER_ID_BLOCK_LEN };
        (Ok(block), vec![Record::ProducerIds { broker_id, broker_epoch, next_producer_id }])
    }

    /// Pins a partition to a shard of a broker, or unpins it. Whether the broker has that shard is for the broker to
    /// say: it ignores a pin to one that it does not have.
    pub(super) fn pin_core(&self, request: PinCore) -> (Result<(), PinCoreError>, Vec<Record>) {
        let PinCore { broker_id, topic, partition, shard } = request;
        if !self.image.brokers().contains_key(&broker_id) {
            return (Err(PinCoreError::UnknownBroker(broker_id)), Vec::new());
        }
        if self.image.topic(topic).and_then(|t| t.partition(partition)).is_none() {
            return (Err(PinCoreError::UnknownPartition), Vec::new());
        }
        if self.image.core_pin(broker_id, topic, partition) == shard {
            return (Ok(()), Vec::new());
        }
        (Ok(()), vec![Record::CorePin { broker_id, topic, partition, shard }])
    }
}
