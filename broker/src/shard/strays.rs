//! Folders and checkpoint entries of topics that the metadata does not know.
//!
//! Holds: finding them at start, and setting them aside. Never touches: what is in them; folders that hold no log.
//!
//! A deletion that a crash interrupted leaves such folders, and so do lost metadata and folders that somebody copied here.
//! Nobody can tell these apart, so nothing is removed: as in Kafka, a folder gets a name that ends in `-stray`, each start
//! tells of it, and a person decides. It is done before clients come: no topic can be made meanwhile.

use std::collections::HashSet;
use std::io;

use corelog_storage::disk::checkpoint::LogKey;
use corelog_storage::disk::remove::STRAY_SUFFIX;
use corelog_storage::ids::PartitionIndex;
use corelog_storage::log::{LogName, StorageEnv};
use tracing::{info, warn};

use super::Shard;
use super::apply::set_aside;
use super::together::together;
use crate::names::CLUSTER_METADATA;
use crate::partition::call::PartitionKey;

/// Folders looked at or renamed at once.
const FOLDERS_AT_ONCE: usize = 32;

/// Sets aside what no topic of the image in force owns. Failures are told and change nothing.
pub async fn set_strays_aside(shard: &Shard) {
    for (number, storage) in shard.storages() {
        let data = storage.data().display();
        let (folders, strays) = match folders(storage) {
            Ok(found) => found,
            Err(error) => {
                warn!(%data, %error, "cannot list the data folder to look for strays");
                storage.note_failure();
                continue;
            }
        };
        if let Some(first) = strays.first() {
            let count = strays.len();
            warn!(%data, count, first, "folders of unknown topics are kept: remove them when nobody needs them");
        }
        let unknown = folders.iter().filter(|folder| !is_known(shard, number, folder));
        together(FOLDERS_AT_ONCE, unknown.map(|folder| look_at(shard, storage, folder))).await;
        forget_what_is_gone(shard, storage, &folders, &strays);
        settle_what_is_gone(shard, storage).await;
    }
}

/// A partition that a data folder has, by its folder or by the checkpoints: none at a broker's first start.
///
/// # Errors
/// When the first data folder cannot be read.
pub async fn any_log(shard: &Shard) -> io::Result<Option<String>> {
    for (number, storage) in shard.storages() {
        match any_log_in(storage).await {
            Ok(None) => {}
            // Nobody knows what it has.
            Err(_) if number > 0 => return Ok(Some(format!("those in {}", storage.data().display()))),
            found => return found,
        }
    }
    // Nor what one has that is offline.
    let offline = shard.folders().more.iter().find(|folder| folder.opened.is_none() && folder.was_there);
    Ok(offline.map(|folder| format!("those in {}", folder.path.display())))
}

async fn any_log_in(storage: &StorageEnv) -> io::Result<Option<String>> {
    if let Some((key, entry)) = storage.checkpoints_at_start().iter().next() {
        return Ok(Some(format!("{}-{}", entry.topic, key.partition)));
    }
    for folder in folders(storage)?.0 {
        if storage.topic_of_folder(&folder).await?.is_some() {
            return Ok(Some(folder));
        }
    }
    Ok(None)
}

/// A data folder's folders: those that may be logs, and earlier strays.
fn folders(storage: &StorageEnv) -> io::Result<(Vec<String>, Vec<String>)> {
    let entries = storage.reactor().list_dir(storage.data())?;
    let names = entries.into_iter().filter(|entry| entry.is_dir).filter_map(|entry| entry.name.into_string().ok());
    let (strays, folders): (Vec<String>, Vec<String>) = names.partition(|name| name.ends_with(STRAY_SUFFIX));
    Ok((folders.into_iter().filter(|name| split(name).is_some()).collect(), strays))
}

/// Topic and partition in a log folder's name.
fn split(folder: &str) -> Option<(&str, PartitionIndex)> {
    let (topic, partition) = folder.rsplit_once('-')?;
    let partition = PartitionIndex(partition.parse().ok()?);
    // The metadata log has a folder of the same kind; it is the controller's.
    if topic == CLUSTER_METADATA {
        return None;
    }
    // The one way in which such a folder is written: no other, such as a leading zero, is a log's.
    (partition.0 >= 0 && format!("{topic}-{partition}") == folder).then_some((topic, partition))
}

/// Whether there is a partition of this name in this data folder: opening it has looked at whose folder it is.
fn is_known(shard: &Shard, number: usize, folder: &str) -> bool {
    let image = shard.image();
    let is_here = |state| shard.storage_of(&image, state).is_some_and(|(home, _)| home == number);
    split(folder).is_some_and(|(topic, partition)| {
        image.topic_by_name(topic).is_some_and(|topic| topic.partition(partition).is_some_and(is_here))
    })
}

async fn look_at(shard: &Shard, storage: &StorageEnv, folder: &str) {
    let Some((topic, partition)) = split(folder) else { return };
    match storage.topic_of_folder(folder).await {
        // The partition itself, in another data folder than its record says: whether that one is offline or has it, too,
        // nothing is done to it.
        Ok(Some(topic_id)) if shard.image().topic_id(topic) == Some(topic_id) => {
            warn!(folder, data = %storage.data().display(), "a partition's folder is not where it is recorded: it is left alone");
        }
        Ok(Some(topic_id)) => {
            set_aside(storage, folder, PartitionKey { topic_id, partition }).await;
        }
        Ok(None) => info!(folder, "a folder that is named like a log and holds none is left alone"),
        Err(error) => warn!(folder, %error, "cannot look into the folder of an unknown topic"),
    }
}

/// Entries of the checkpoint whose topic and folder are both gone would stay for ever otherwise.
fn forget_what_is_gone(shard: &Shard, storage: &StorageEnv, folders: &[String], strays: &[String]) {
    let image = shard.image();
    for (key, entry) in storage.checkpoints_at_start().iter() {
        let is_known = image.topic(key.topic_id).is_some_and(|topic| topic.partition(key.partition).is_some());
        let name = LogName { topic: entry.topic.clone(), partition: key.partition, topic_id: key.topic_id };
        let folder = name.to_string();
        let is_stray = |stray: &String| stray.strip_prefix(&folder).is_some_and(|rest| rest.starts_with('.'));
        if !is_known && !folders.contains(&folder) && !strays.iter().any(is_stray) {
            info!(folder, topic_id = %key.topic_id, "the checkpoint's entry of a topic that is gone is dropped");
            storage.mark_deleted(&name);
        }
    }
}

/// What the commit log has of logs that are neither known nor in a folder, set aside or not, is of no use to anybody.
async fn settle_what_is_gone(shard: &Shard, storage: &StorageEnv) {
    let image = shard.image();
    let is_known =
        |key: &LogKey| image.topic(key.topic_id).is_some_and(|topic| topic.partition(key.partition).is_some());
    if storage.unsettled().iter().all(is_known) {
        return;
    }
    // Read anew: some were set aside just now.
    let found = match folders(storage) {
        Ok((folders, strays)) => folders.into_iter().chain(strays),
        Err(error) => {
            warn!(%error, "cannot list the data folder: the commit log is kept");
            return;
        }
    };
    let mut there = HashSet::new();
    for folder in found {
        match storage.topic_of_folder(&folder).await {
            Ok(topic_id) => there.extend(topic_id),
            Err(error) => {
                warn!(folder, %error, "cannot look into a folder: the commit log is kept");
                return;
            }
        }
    }
    storage.settle_unknown(|key| is_known(key) || there.contains(&key.topic_id));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_as_the_broker_writes_them_are_taken_for_logs() {
        assert_eq!(split("orders-0"), Some(("orders", PartitionIndex(0))));
        assert_eq!(split("a-b-12"), Some(("a-b", PartitionIndex(12))));
        for other in [
            "orders",
            "orders-",
            "orders-00",
            "orders-+1",
            "orders--1x",
            "backup-2x",
            ".spare",
            "a-1-stray",
            "__cluster_metadata-0",
        ] {
            assert_eq!(split(other), None, "{other}");
        }
    }
}
