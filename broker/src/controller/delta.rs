//! What changed between two images.
//!
//! Holds: the comparison; it costs what changed, not what there is. Never touches: what the shards do about it.

use std::ops::Range;
use std::sync::Arc;

use corelog_storage::ids::{PartitionIndex, TopicId};

use super::image::{MetadataImage, TopicImage};
use super::record::ConfigResource;
use super::shared_map::SharedMap;

/// A topic that is in both images and differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicDelta {
    /// As it was.
    pub old: Arc<TopicImage>,
    /// As it is.
    pub new: Arc<TopicImage>,
    /// The partitions that are new.
    pub added: Range<usize>,
    /// The older ones that have changed: leader, epochs, replicas.
    pub changed: Vec<PartitionIndex>,
}

/// A pin that was set, moved or taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinDelta {
    /// The broker.
    pub broker_id: i32,
    /// The topic.
    pub topic: TopicId,
    /// The partition.
    pub partition: PartitionIndex,
    /// The shard now; `None`: the default placement.
    pub shard: Option<u16>,
}

/// What changed from one image to a later one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    /// Topics that are new. A topic that was deleted and created again under its name is in both lists.
    pub created: Vec<Arc<TopicImage>>,
    /// Topics that are gone.
    pub deleted: Vec<Arc<TopicImage>>,
    /// Topics that have changed.
    pub changed: Vec<TopicDelta>,
    /// Resources whose configuration has changed. Of a topic that is gone too.
    pub configs: Vec<ConfigResource>,
    /// Pins that have changed.
    pub pins: Vec<PinDelta>,
    /// Whether a broker has registered.
    pub brokers: bool,
    /// Whether a feature's level has changed.
    pub features: bool,
}

impl Delta {
    /// Compares two images.
    #[must_use]
    pub fn between(old: &MetadataImage, new: &MetadataImage) -> Self {
        let mut delta = Self {
            brokers: old.brokers() != new.brokers(),
            features: old.features() != new.features() || old.features_epoch() != new.features_epoch(),
            ..Self::default()
        };
        SharedMap::diff(old.topics_map(), new.topics_map(), |_, before, after| match (before, after) {
            (None, Some(topic)) => delta.created.push(Arc::clone(topic)),
            (Some(topic), None) => delta.deleted.push(Arc::clone(topic)),
            (Some(before), Some(after)) => delta.changed.push(topic_delta(before, after)),
            (None, None) => {}
        });
        SharedMap::diff(old.configs_map(), new.configs_map(), |resource, _, _| {
            delta.configs.push(resource.clone());
        });
        SharedMap::diff(old.core_pins_map(), new.core_pins_map(), |&(broker_id, topic, partition), _, after| {
            let shard = after.copied();
            delta.pins.push(PinDelta { broker_id, topic, partition: PartitionIndex(partition), shard });
        });
        delta
    }

    /// Whether nothing has changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

fn topic_delta(old: &Arc<TopicImage>, new: &Arc<TopicImage>) -> TopicDelta {
    let pairs = old.partitions.iter().zip(&new.partitions);
    let changed = (0..).zip(pairs).filter(|(_, (before, after))| before != after);
    TopicDelta {
        added: old.partitions.len()..new.partitions.len(),
        changed: changed.map(|(partition, _)| PartitionIndex(partition)).collect(),
        old: Arc::clone(old),
        new: Arc::clone(new),
    }
}
