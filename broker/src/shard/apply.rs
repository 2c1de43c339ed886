//! Takes over a metadata image: partitions of this shard are made, opened, changed, deleted.
//!
//! Holds: the step from "the controller decided" to "it is so on this core". Never touches: what the controller decides.

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use corelog_net::wire::ErrorCode;
use corelog_storage::disk::checkpoint::LogKey;
use corelog_storage::ids::PartitionIndex;
use corelog_storage::log::{Log, LogName, OpenError, SCAN_BYTES_MAX, StorageEnv};
use tracing::{debug, error, info, warn};

use super::Shard;
use super::folders::{found_elsewhere, take_offline, tell_elsewhere};
use super::offline::{Reason, set_offline};
use super::together::together;
use crate::config::BrokerConfig;
use crate::controller::{ConfigResource, MetadataImage, TopicImage};
use crate::partition::Partition;
use crate::partition::call::PartitionKey;
use crate::partition::rules::log_config;

/// Logs opened, made or deleted at once on one shard, if there is memory for reading as many. Syncs that are asked for at the
/// same time share the journal's commits, so thousands of logs take seconds.
const LOGS_AT_ONCE: usize = 32;
/// How often a long start tells how far it is.
const PROGRESS_EVERY: Duration = Duration::from_secs(3);

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
    delete_all(shard, &before, &image, gone).await;

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
            (shard.server().owner(image, key) == shard.id()).then_some((topic, key))
        })
    });
    let work: Vec<_> = work.collect();
    let (total, done) = (work.len(), Cell::new(0));
    let work = work.into_iter().map(|(topic, key)| {
        let (image, done) = (&image, &done);
        async move {
            bring(shard, image, topic, key).await;
            done.set(done.get() + 1);
        }
    });
    let memory = shard.reactor().pool().budget() / 4 / SCAN_BYTES_MAX;
    tell_progress(shard, &done, total, together(LOGS_AT_ONCE.min(memory.max(1)), work)).await;
    *shard.image.borrow_mut() = image;
}

/// Waits for `work`; every few seconds the log says how far it is.
async fn tell_progress<T>(shard: &Shard, done: &Cell<usize>, total: usize, work: impl Future<Output = T>) -> T {
    let (began, mut work) = (shard.reactor().now(), pin!(work));
    loop {
        if let Some(result) = shard.reactor().within(PROGRESS_EVERY, work.as_mut()).await {
            return result;
        }
        info!(
            shard = shard.id().0,
            done = done.get(),
            total,
            recovered_bytes = shard.storages().map(|(_, storage)| storage.recovered_bytes()).sum::<u64>(),
            seconds = shard.reactor().now().saturating_since(began).as_secs(),
            "opening partitions"
        );
    }
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
    // The try before may have changed the checkpoint in memory alone: what is opened relies on the one on disk.
    let image = shard.image();
    let mut flushed = Vec::new();
    for (number, storage) in shard.storages() {
        match storage.flush_checkpoint().await {
            Ok(()) => flushed.push(number),
            Err(error) => debug!(%error, "partitions stay offline: the checkpoint can't be written"),
        }
    }
    let is_flushed = |topic: &TopicImage, key: PartitionKey| {
        let state = topic.partition(key.partition);
        state.and_then(|state| shard.storage_of(&image, state)).is_none_or(|(number, _)| flushed.contains(&number))
    };
    let work = keys.into_iter().filter_map(|key| {
        let topic = image.topic(key.topic_id).filter(|topic| is_flushed(topic, key))?;
        Some(bring(shard, &image, topic, key))
    });
    together(LOGS_AT_ONCE, work).await;
}

/// Makes one partition as the image says.
async fn bring(shard: &Rc<Shard>, image: &MetadataImage, topic: &TopicImage, key: PartitionKey) {
    let Some(state) = topic.partition(key.partition) else { return };
    let Some((home, storage)) = shard.storage_of(image, state) else {
        return take_offline(shard, key);
    };
    let broker = shard.config();
    let config = Arc::new(broker.topic_config(&topic.name, &image.config(&ConfigResource::topic(&topic.name))));
    let log_config = log_config(&config, &broker);
    if let Some(partition) = shard.partition(key) {
        partition.set_config(config, &broker);
        if state.leader_epoch > partition.leader_epoch() {
            begin_reign(shard, &partition, topic, key);
        }
        partition.set_state(state);
        return;
    }
    let name = LogName { topic: topic.name.to_string(), partition: key.partition, topic_id: key.topic_id };
    if let Some(found) = found_elsewhere(shard, home, &name).await {
        if shard.offline.reason(key).is_none() {
            tell_elsewhere(shard, storage, &name, &found);
        }
        return set_offline(shard, key, Reason::Broken);
    }
    // A folder that is not there is made: the topic is new, or the broker stopped between deciding and making it.
    let mut opened = Log::open_or_create(storage, name.clone(), log_config.clone()).await;
    if let Err(OpenError::TopicId { found, .. }) = &opened
        && image.topic(*found).is_none()
        && set_aside(storage, &name.to_string(), PartitionKey { topic_id: *found, ..key }).await
    {
        opened = Log::open_or_create(storage, name, log_config).await;
    }
    match opened {
        Ok(log) => {
            let partition = Partition::new(key, Arc::clone(&topic.name), log, config, state);
            begin_reign(shard, &partition, topic, key);
            if shard.offline.remove(key) {
                info!(topic = %topic.name, partition = key.partition.0, "partition is online again");
            }
            shard.partitions.borrow_mut().insert(key, partition);
        }
        Err(reason) => {
            let why = if reason.is_shortage() { Reason::Shortage } else { Reason::Broken };
            if matches!(reason, OpenError::Io { .. }) && why == Reason::Broken {
                storage.note_failure();
            }
            if shard.offline.reason(key) != Some(why) {
                error!(topic = %topic.name, partition = key.partition.0, %reason, "partition is offline");
            }
            set_offline(shard, key, why);
        }
    }
}

/// The leader epoch that the image says: it was durable in the metadata log before the image came here, and is given to no
/// other reign. So the log need not record it before it has records to show for it.
fn begin_reign(shard: &Rc<Shard>, partition: &Rc<Partition>, topic: &TopicImage, key: PartitionKey) {
    let Some(state) = topic.partition(key.partition) else { return };
    let log = partition.log();
    if let Err(reason) = log.new_epoch(state.leader_epoch, log.log_end()) {
        // It is fenced, or has seen a later epoch: it refuses produces.
        warn!(shard = shard.id().0, topic = %topic.name, partition = key.partition.0, %reason, "leader epoch not begun");
    }
}

/// The folder of a topic that nobody knows gets another name. Returns whether it has.
pub(super) async fn set_aside(storage: &StorageEnv, folder: &str, key: PartitionKey) -> bool {
    let log = LogKey { topic_id: key.topic_id, partition: key.partition };
    match storage.set_stray_aside(folder, log).await {
        Ok(now) => {
            warn!(folder, topic_id = %key.topic_id, now = %now.display(), "no topic has this id: its folder has another name now");
            true
        }
        Err(error) => {
            warn!(folder, topic_id = %key.topic_id, %error, "no topic has this id, and its folder could not be renamed");
            false
        }
    }
}

/// Deletes the logs of partitions that `image` has no more, also of those that could not be opened.
async fn delete_all(shard: &Rc<Shard>, before: &MetadataImage, image: &MetadataImage, gone: Vec<PartitionKey>) {
    let is_gone = |key: PartitionKey| image.topic(key.topic_id).is_none_or(|t| t.partition(key.partition).is_none());
    // In a folder that is offline they stay: when it is back, nobody knows them, and it is told.
    let unopened: Vec<(&StorageEnv, LogName)> = shard
        .offline
        .take(is_gone)
        .into_iter()
        .filter_map(|key| {
            let topic = before.topic(key.topic_id)?;
            let (_, storage) = shard.storage_of(before, topic.partition(key.partition)?)?;
            let name = LogName { topic: topic.name.to_string(), partition: key.partition, topic_id: key.topic_id };
            Some((storage, name))
        })
        .collect();
    if gone.is_empty() && unopened.is_empty() {
        return;
    }
    // All of them are marked, and the first to flush flushes for all: a crash soon after leaves no half-deleted topic.
    for partition in gone.iter().filter_map(|key| shard.partition(*key)) {
        partition.log().mark_deleted();
    }
    unopened.iter().for_each(|(storage, name)| storage.mark_deleted(name));
    together(LOGS_AT_ONCE, gone.into_iter().map(|key| delete(shard, key))).await;
    let unopened = unopened.into_iter().map(|(storage, name)| async move {
        if let Err(reason) = storage.delete_unopened(&name).await {
            warn!(topic = %name.topic, partition = name.partition.0, %reason, "deleting the log failed; the next start removes it");
        }
    });
    together(LOGS_AT_ONCE, unopened).await;
}

async fn delete(shard: &Rc<Shard>, key: PartitionKey) {
    let Some(partition) = shard.partitions.borrow_mut().remove(&key) else { return };
    partition.refuse_waiting(shard, ErrorCode::UnknownTopicOrPartition);
    shard.partition_moved(key);
    if let Err(reason) = partition.log().delete().await {
        warn!(topic = %partition.topic(), partition = key.partition.0, %reason, "deleting the log failed; the next start removes it");
    }
}
