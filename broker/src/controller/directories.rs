//! Data folders of brokers: which are online, and which one holds a partition (KIP-858).
//!
//! Holds: what the records about them do to the image, the choice of a folder for a new partition. Never touches: files; how
//! a folder fails.
//!
//! A broker's first folder has the metadata log; the broker lives and dies with it, so it has no mention here: a partition
//! without a folder is in that one, and a broker with one folder has none of these records. Folders have ids, not paths:
//! disks may change places.

use std::collections::BTreeMap;

use corelog_storage::ids::{PartitionIndex, TopicId};

use super::error::DirectoryFailedError;
use super::image::{MetadataImage, PartitionImage, ReplayError, TopicImage};
use super::record::{DirectoryId, Record};
use super::request::DirectoryFailed;
use super::state::Controller;

impl PartitionImage {
    /// The folder of `broker` that holds it; `None`: the first.
    #[must_use]
    pub fn directory(&self, broker: i32) -> Option<DirectoryId> {
        self.directories.iter().find(|(id, _)| *id == broker).map(|(_, directory)| *directory)
    }
}

impl MetadataImage {
    /// Whether a replica is in a folder of its broker that is offline.
    #[must_use]
    pub fn is_in_offline_directory(&self, partition: &PartitionImage, broker: i32) -> bool {
        partition.directory(broker).is_some_and(|directory| {
            self.brokers().get(&broker).is_none_or(|broker| !broker.directories.contains(&directory))
        })
    }

    /// From now on these of the broker's folders beside the first are online, and no others. Partitions of one that went lose
    /// their leader, those of one that came back have it again: each with new epochs.
    pub(super) fn replay_broker_directories(
        &mut self,
        broker_id: i32,
        online: &[DirectoryId],
    ) -> Result<(), ReplayError> {
        if !self.brokers().contains_key(&broker_id) {
            return Err(ReplayError::UnknownBroker(broker_id));
        }
        let leader_after = |partition: &PartitionImage| -> Option<i32> {
            let is_online = online.contains(&partition.directory(broker_id)?);
            match partition.leader {
                leader if leader == broker_id && !is_online => Some(-1),
                -1 if is_online && partition.isr.contains(&broker_id) => Some(broker_id),
                _ => None,
            }
        };
        let mut changed = Vec::new();
        for topic in self.topics() {
            for (index, state) in (0_i32..).zip(&topic.partitions) {
                if leader_after(state).is_none() {
                    continue;
                }
                if state.leader_epoch.0 == i32::MAX || state.partition_epoch == i32::MAX {
                    return Err(ReplayError::EpochsExhausted { topic: topic.id, partition: PartitionIndex(index) });
                }
                if changed.last() != Some(&topic.id) {
                    changed.push(topic.id);
                }
            }
        }
        for id in changed {
            for state in &mut self.topic_mut(id)?.partitions {
                if let Some(leader) = leader_after(state) {
                    state.leader = leader;
                    state.leader_epoch.0 += 1;
                    state.partition_epoch += 1;
                }
            }
        }
        if let Some(broker) = self.broker_mut(broker_id) {
            broker.directories = online.to_vec();
        }
        Ok(())
    }

    /// The partition is in this folder of the broker.
    pub(super) fn replay_partition_directory(
        &mut self,
        broker_id: i32,
        topic: TopicId,
        partition: PartitionIndex,
        directory: DirectoryId,
    ) -> Result<(), ReplayError> {
        let at = usize::try_from(partition.0).unwrap_or(usize::MAX);
        let unknown = ReplayError::UnknownPartition(topic, partition);
        let state = self.topic_mut(topic)?.partitions.get_mut(at).ok_or(unknown)?;
        match state.directories.iter_mut().find(|(broker, _)| *broker == broker_id) {
            Some((_, held_in)) => *held_in = directory,
            None => state.directories.push((broker_id, directory)),
        }
        Ok(())
    }
}

/// How many partitions the online folders of each broker with several have: a new one goes to the folder with the fewest.
pub(super) struct DirectoryLoads(BTreeMap<i32, Vec<(Option<DirectoryId>, usize)>>);

impl DirectoryLoads {
    pub(super) fn of(image: &MetadataImage) -> Self {
        let several = image.brokers().values().filter(|broker| !broker.directories.is_empty());
        let folders = several.map(|broker| {
            let online = std::iter::once(None).chain(broker.directories.iter().copied().map(Some));
            (broker.id, online.map(|directory| (directory, 0)).collect())
        });
        let mut loads = Self(folders.collect());
        if !loads.0.is_empty() {
            for topic in image.topics() {
                loads.count(topic);
            }
        }
        loads
    }

    fn count(&mut self, topic: &TopicImage) {
        for partition in &topic.partitions {
            for broker in &partition.replicas {
                let directory = partition.directory(*broker);
                let folders = self.0.get_mut(broker).into_iter().flatten();
                folders.filter(|(id, _)| *id == directory).for_each(|(_, held)| *held += 1);
            }
        }
    }

    /// Where the replicas of a new partition go, as far as that is not their broker's first folder.
    pub(super) fn place(&mut self, topic: TopicId, partition: PartitionIndex, replicas: &[i32]) -> Vec<Record> {
        let mut records = Vec::new();
        for &broker_id in replicas {
            let folders = self.0.get_mut(&broker_id).into_iter().flatten();
            let Some((directory, held)) = folders.min_by_key(|(_, held)| *held) else { continue };
            *held += 1;
            if let Some(directory) = *directory {
                records.push(Record::PartitionDirectory { broker_id, topic, partition, directory });
            }
        }
        records
    }
}

impl Controller {
    /// A broker's folder is offline until the broker starts again.
    pub(super) fn directory_failed(
        &self,
        request: &DirectoryFailed,
    ) -> (Result<(), DirectoryFailedError>, Vec<Record>) {
        let DirectoryFailed { broker_id, directory } = *request;
        let Some(broker) = self.image.brokers().get(&broker_id) else {
            return (Err(DirectoryFailedError::UnknownBroker(broker_id)), Vec::new());
        };
        if !broker.directories.contains(&directory) {
            return (Ok(()), Vec::new());
        }
        let exhausted = self.image.topics().find(|topic| {
            let is_last = |p: &PartitionImage| p.leader_epoch.0 == i32::MAX || p.partition_epoch == i32::MAX;
            topic.partitions.iter().any(|p| p.directory(broker_id) == Some(directory) && is_last(p))
        });
        if let Some(topic) = exhausted {
            return (Err(DirectoryFailedError::EpochsExhausted(topic.id)), Vec::new());
        }
        let online = broker.directories.iter().copied().filter(|id| *id != directory).collect();
        (Ok(()), vec![Record::BrokerDirectories { broker_id, online }])
    }
}
