//! A shard's data folders: which one holds a partition, and what happens when one fails.
//!
//! Holds: the storage of each folder, the names found in them at the start, the task that watches a folder. Never touches: how
//! a folder is opened (`start/folders.rs`), which folder a new partition gets (the controller decides).
//!
//! ```text
//!   a write or sync fails ──> its partition is fenced (storage) ──> is the folder still good? a trial write
//!        it is: that partition alone is fenced                           │ it is not
//!        it is not: DirectoryFailed ──> the controller's record ──> every shard takes the folder's partitions offline
//! ```
//!
//! A partition is only ever opened or made in the folder that its record names. One whose folder is offline is offline; one
//! that is found in another folder, too, or instead, is told and left alone: nobody can tell which records count.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use corelog_net::wire::ErrorCode;
use corelog_storage::log::{LogName, StorageEnv};
use tracing::{error, warn};

use super::Shard;
use super::offline::{Reason, set_offline};
use crate::controller::request::DirectoryFailed;
use crate::controller::{DirectoryId, PartitionImage, Request, Response};
use crate::partition::call::PartitionKey;

/// The pause after a folder was tried: failures come in crowds.
const TRIAL_PAUSE: Duration = Duration::from_secs(1);

/// Names of folders in the data folders, with the numbers of those that have them; 0 is the first. As the start found them,
/// and empty where there is only one data folder.
pub type FolderNames = BTreeMap<String, Vec<usize>>;

/// A data folder beside the first, as this shard has it.
pub struct MoreStorage {
    /// Where it is.
    pub path: PathBuf,
    /// Whether there was a folder at an earlier start.
    pub was_there: bool,
    /// It, unless it was offline at the start.
    pub opened: Option<(DirectoryId, StorageEnv)>,
}

/// The data folders beside the first.
#[derive(Default)]
pub struct Folders {
    /// In the configuration's order: number 1 is the first of these.
    pub more: Vec<MoreStorage>,
    /// What the start found in which.
    pub names: Arc<FolderNames>,
}

impl Folders {
    fn number_of(&self, id: DirectoryId) -> Option<usize> {
        let has_id = |folder: &MoreStorage| folder.opened.as_ref().is_some_and(|(own, _)| *own == id);
        self.more.iter().position(has_id).map(|at| at + 1)
    }
}

impl Shard {
    /// The storage of every data folder that was opened, with its number; the first has 0.
    pub fn storages(&self) -> impl Iterator<Item = (usize, &StorageEnv)> {
        let more = (1..).zip(&self.folders().more).filter_map(|(number, folder)| {
            let (_, storage) = folder.opened.as_ref()?;
            Some((number, storage))
        });
        std::iter::once((0, self.storage())).chain(more)
    }

    /// Number and storage of the folder that holds a partition on this broker; `None`: that folder is offline.
    pub fn storage_of(
        &self,
        image: &crate::controller::MetadataImage,
        state: &PartitionImage,
    ) -> Option<(usize, &StorageEnv)> {
        let broker = self.server().config.node_id;
        let Some(directory) = state.directory(broker) else { return Some((0, self.storage())) };
        if image.is_in_offline_directory(state, broker) {
            return None;
        }
        let number = self.folders().number_of(directory)?;
        self.storages().find(|(at, _)| *at == number)
    }

    /// The ids of the folders beside the first that were opened.
    pub fn opened_directories(&self) -> Vec<DirectoryId> {
        self.folders().more.iter().filter_map(|folder| Some(folder.opened.as_ref()?.0)).collect()
    }

    /// Whether a folder beside the first is online.
    pub fn is_online(&self, folder: &MoreStorage) -> bool {
        let (image, broker) = (self.image(), self.server().config.node_id);
        let online = image.brokers().get(&broker).map_or(&[][..], |broker| &broker.directories);
        folder.opened.as_ref().is_some_and(|(id, _)| online.contains(id))
    }
}

/// Where else a partition's folder is, if it is: then nobody may write to either. A folder that can't be read is not asked:
/// a log that its own folder lacks is never made anew, its checkpoint remembers it.
pub async fn found_elsewhere(shard: &Shard, home: usize, name: &LogName) -> Option<PathBuf> {
    let folder = name.to_string();
    let numbers = shard.folders().names.get(&folder)?;
    for (_, storage) in shard.storages().filter(|(number, _)| *number != home && numbers.contains(number)) {
        if storage.topic_of_folder(&folder).await.is_ok_and(|found| found == Some(name.topic_id)) {
            return Some(storage.data().join(&folder));
        }
    }
    None
}

/// Tells what is to be done about a partition that is in the wrong folder.
pub fn tell_elsewhere(shard: &Rc<Shard>, home: &StorageEnv, name: &LogName, found: &Path) {
    let own = home.data().join(name.to_string());
    let advice = if shard.reactor().list_dir(&own).is_ok() {
        "both are kept as they are: stop the broker, find out which has the records that count, move the other out of the data folder"
    } else {
        "stop the broker, and move it back to where it was: nothing was changed"
    };
    error!(
        topic = name.topic,
        partition = name.partition.0,
        recorded = %own.display(),
        found = %found.display(),
        "partition is offline: it is in another data folder than the one that is recorded for it. {advice}"
    );
}

/// A partition whose folder is offline is served no more; what was acknowledged waits there for the folder to come back.
pub fn take_offline(shard: &Rc<Shard>, key: PartitionKey) {
    set_offline(shard, key, Reason::Folder);
    let Some(partition) = shard.partitions.borrow_mut().remove(&key) else { return };
    partition.refuse_waiting(shard, ErrorCode::KafkaStorageError);
    shard.partition_moved(key);
}

/// Tries a folder whenever something in it has failed, until it does not pass. `None`: the first one.
pub async fn watch(shard: Rc<Shard>, storage: StorageEnv, directory: Option<DirectoryId>) {
    let mut seen = 0;
    loop {
        seen = storage.until_failed(seen).await;
        let Err(reason) = storage.try_folder().await else {
            shard.reactor().sleep(TRIAL_PAUSE).await;
            continue;
        };
        let Some(directory) = directory else {
            return shard.server().first_folder_fails(reason.to_string());
        };
        error!(
            shard = shard.id().0,
            folder = %storage.data().display(),
            %reason,
            "data folder has failed: its partitions are refused, the others serve. Look for the disk's errors in `dmesg`, put \
             them right, and restart: what was acknowledged is recovered"
        );
        while !tell_controller(&shard, directory).await {
            shard.reactor().sleep(TRIAL_PAUSE).await;
        }
        return;
    }
}

async fn tell_controller(shard: &Rc<Shard>, directory: DirectoryId) -> bool {
    let request = DirectoryFailed { broker_id: shard.server().config.node_id, directory };
    match shard.controller(Request::DirectoryFailed(request)).await {
        Ok(Response::DirectoryFailed(Ok(()))) => true,
        Ok(other) => {
            warn!(?other, "a data folder's failure was not recorded: trying again");
            false
        }
        Err(code) => {
            warn!(code = code.name(), "a data folder's failure could not be recorded: trying again");
            false
        }
    }
}
