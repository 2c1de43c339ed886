//! Takes over a metadata image: partitions of this shard are made, opened, changed, deleted.
//!
//! Holds: the step from "the controller decided" to "it is so on this core". Never touches: what the controller decides.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use corelog_net::wire::ErrorCode;
use corelog_storage::disk::remove::DELETE_SUFFIX;
use corelog_storage::ids::PartitionIndex;
use corelog_storage::log::{Log, LogName, OpenError};
use tracing::{error, warn};

use super::Shard;
use super::offline::{Reason, set_offline};
use super::together::together;
use crate::config::BrokerConfig;
use crate::controller::{ConfigResource, MetadataImage, TopicImage};
use crate::partition::Partition;
use crate::partition::call::PartitionKey;
use crate::partition::rules::log_config;

/// Logs opened, made or deleted at once on one shard.
const LOGS_AT_ONCE: usize = 16;

/// Brings this shard to `image`, then puts the image in force. Returns when every partition is as it says, so that a
/// client that was told "created" finds it on any connection.
pub async fn apply(shard: &Rc<Shard>, image: Arc<MetadataImage>) {
    let _turn = shard.offline.turn().await;
    let before = shard.image();
    // Deletions first: a topic made anew has its predecessor's folder names.
    let gone: Vec<PartitionKey> = shard
        .partitions
        .borrow()
        .keys()
        .filter(|key| image.topic(key.topic_id).is_none_or(|topic| topic.partition(key.partition).is_none()))
        .copied()
        .collect();
    together(LOGS_AT_ONCE, gone.into_iter().map(|key| delete(shard, key))).await;
    shard.offline.retain(|key| image.topic(key.topic_id).is_some());

    let config = in_force(shard, &image);
    let same_broker = Arc::ptr_eq(&config, &shard.config());
    *shard.config.borrow_mut() = config;
    let mut wanted = Vec::new();
    for topic in image.topics() {
        let unchanged = before.topic(topic.id).is_some_and(|old| Arc::ptr_eq(old, topic));
        let resource = ConfigResource::topic(&topic.name);
        let same_config = before.config(&resource) == image.config(&resource);
        if !unchanged || !same_config || !same_broker {
            wanted.push(Arc::clone(topic));
        }
    }
    let work = wanted.iter().flat_map(|topic| {
        let image = &image;
        (0..topic.partitions.len() as i32).map(PartitionIndex).filter_map(move |partition| {
            let key = PartitionKey { topic_id: topic.id, partition };
            (shard.server().owner(image, key) == shard.id()).then(|| bring(shard, image, topic, key))
        })
    });
    together(LOGS_AT_ONCE, work).await;
    *shard.image.borrow_mut() = image;
}

/// The broker's configuration under `image`: the same `Arc` as before if nothing of it was changed while it runs.
fn in_force(shard: &Shard, image: &MetadataImage) -> Arc<BrokerConfig> {
    let (cluster, ours) = (ConfigResource::cluster_default(), ConfigResource::broker(shard.config().node_id));
    let before = shard.image();
    let same = [&cluster, &ours].iter().all(|of| before.config(of) == image.config(of));
    if same {
        return shard.config();
    }
    match shard.server().config.with_stored_dynamic(&image.config(&cluster), &image.config(&ours)) {
        Ok(config) => Arc::new(config),
        Err(error) => {
            warn!(%error, "the stored dynamic configuration is ignored");
            shard.config()
        }
    }
}

/// Tries partitions again that could not be opened, under the image in force.
pub async fn open_again(shard: &Rc<Shard>, keys: Vec<PartitionKey>) {
    let image = shard.image();
    let work =
        keys.into_iter().filter_map(|key| image.topic(key.topic_id).map(|topic| bring(shard, &image, topic, key)));
    together(LOGS_AT_ONCE, work).await;
}

/// Makes one partition as the image says.
async fn bring(shard: &Rc<Shard>, image: &MetadataImage, topic: &TopicImage, key: PartitionKey) {
    let Some(state) = topic.partition(key.partition) else { return };
    let config = Arc::new(shard.config().topic_config(&topic.name, &image.config(&ConfigResource::topic(&topic.name))));
    let log_config = log_config(&config);
    if let Some(partition) = shard.partition(key) {
        partition.set_config(config);
        if state.leader_epoch > partition.leader_epoch() {
            begin_reign(shard, &partition, topic, key).await;
        }
        partition.set_state(state);
        return;
    }
    // A folder that is not there is made: the topic is new, or the broker stopped between deciding and making it.
    let name = LogName { topic: topic.name.to_string(), partition: key.partition, topic_id: key.topic_id };
    let mut opened = Log::open_or_create(shard.storage(), name.clone(), log_config.clone()).await;
    if let Err(OpenError::TopicId { folder, found, .. }) = &opened
        && image.topic(*found).is_none()
        && set_aside(shard, folder).await
    {
        opened = Log::open_or_create(shard.storage(), name, log_config).await;
    }
    match opened {
        Ok(log) => {
            let partition = Partition::new(key, Arc::clone(&topic.name), log, config, state);
            begin_reign(shard, &partition, topic, key).await;
            shard.offline.remove(key);
            shard.partitions.borrow_mut().insert(key, partition);
        }
        Err(reason) => {
            let why = if reason.is_no_space() { Reason::NoSpace } else { Reason::Broken };
            if !shard.offline.contains(key) {
                error!(topic = %topic.name, partition = key.partition.0, %reason, "partition is offline");
            }
            set_offline(shard, key, why);
        }
    }
}

/// The leader epoch is on disk before the partition serves in it.
async fn begin_reign(shard: &Rc<Shard>, partition: &Rc<Partition>, topic: &TopicImage, key: PartitionKey) {
    let Some(state) = topic.partition(key.partition) else { return };
    let log = partition.log();
    if let Err(reason) = log.new_epoch(state.leader_epoch, log.log_end()).await {
        // The log fences itself where it must: produces are refused with the reason.
        warn!(shard = shard.id().0, topic = %topic.name, partition = key.partition.0, %reason, "leader epoch not recorded");
    }
}

/// A folder that belongs to a topic which is gone makes room for its successor: renamed first, removed in the background.
async fn set_aside(shard: &Rc<Shard>, folder: &Path) -> bool {
    let unique = shard.reactor().random_u64();
    let aside = PathBuf::from(format!("{}.{unique:016x}{DELETE_SUFFIX}", folder.display()));
    let moved = async {
        shard.reactor().rename(folder, &aside).await?;
        shard.reactor().sync_dir(shard.storage().data()).await
    };
    match moved.await {
        Ok(()) => {
            warn!(folder = %folder.display(), "the folder of a deleted topic was still there; it is removed now");
            shard.storage().remove_leftovers(vec![aside]);
            true
        }
        Err(error) => {
            warn!(folder = %folder.display(), %error, "the folder of a deleted topic could not be moved aside");
            false
        }
    }
}

async fn delete(shard: &Rc<Shard>, key: PartitionKey) {
    let Some(partition) = shard.partitions.borrow_mut().remove(&key) else { return };
    partition.refuse_waiting(shard, ErrorCode::UnknownTopicOrPartition);
    shard.partition_moved(key);
    if let Err(reason) = partition.log().delete().await {
        warn!(topic = %partition.topic(), partition = key.partition.0, %reason, "deleting the log failed; the next start removes it");
    }
}
