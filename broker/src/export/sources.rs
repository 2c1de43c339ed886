//! The data folders that are exported: one, or all of `log.dirs`.
//!
//! Holds: that they are one broker's, and which of them holds a partition. Never touches: logs.

use std::path::{Path, PathBuf};

use corelog_reactor::{Reactor, ShardId};
use corelog_storage::disk::datadir::DataDir;
use corelog_storage::disk::meta::{META_PROPERTIES, MetaProperties};
use corelog_storage::disk::probe;
use corelog_storage::log::{LogName, StorageEnv, StorageOptions};

use crate::controller::MetadataImage;
use crate::import::ImportError;
use crate::names::CLUSTER_METADATA;

/// The folders, locked.
pub(super) struct Sources {
    first: (MetaProperties, StorageEnv),
    more: Vec<(MetaProperties, StorageEnv)>,
    _locked: Vec<DataDir>,
}

/// Looks at the folders before anything in them is opened. The first of them.
///
/// # Errors
/// In words.
pub(super) fn check(folders: &[PathBuf]) -> Result<&Path, String> {
    for folder in folders {
        if !folder.join(META_PROPERTIES).is_file() {
            return Err(format!("{} is no data folder: it has no {META_PROPERTIES}", folder.display()));
        }
    }
    let metadata = format!("{CLUSTER_METADATA}-0");
    match folders.first() {
        Some(first) if first.join(&metadata).is_dir() => Ok(first),
        Some(first) => Err(format!(
            "{} has no {metadata}, so it is not the first data folder of a broker: name all of log.dirs, in its order",
            first.display()
        )),
        None => Err("no data folder is named".to_owned()),
    }
}

impl Sources {
    /// Opens the folders: what a crash left in them is put right, as at a start.
    ///
    /// # Errors
    /// One can't be opened, or is another broker's than the first.
    pub(super) async fn open(reactor: &Reactor, folders: &[PathBuf]) -> Result<Self, ImportError> {
        let mut opened: Option<((MetaProperties, StorageEnv), Vec<_>)> = None;
        let mut locked = Vec::new();
        for path in folders {
            let refused = |words: String| ImportError::Refused(format!("{}: {words}", path.display()));
            let disk = probe::probe(path).map_err(|error| ImportError::Failed(error.to_string()))?;
            let data = DataDir::open(reactor, path).await.map_err(|error| ImportError::Refused(error.to_string()))?;
            let meta = data.meta().cloned().ok_or_else(|| refused(format!("no {META_PROPERTIES}")))?;
            let options = StorageOptions {
                direct: disk.direct,
                prewritten_bytes_max: 0,
                data_folders: folders.len(),
                ..StorageOptions::default()
            };
            match &mut opened {
                None => {
                    let env = StorageEnv::new(reactor.clone(), ShardId(0), data.share(), options);
                    opened = Some(((meta, env), Vec::new()));
                }
                Some((first, more)) => {
                    if (&meta.cluster_id, meta.node_id) != (&first.0.cluster_id, first.0.node_id) {
                        return Err(refused("it is another broker's than the first folder".to_owned()));
                    }
                    more.push((meta, first.1.beside(data.share(), options)));
                }
            }
            locked.push(data);
        }
        let (first, more) = opened.ok_or_else(|| ImportError::Refused("no data folder is named".to_owned()))?;
        Ok(Self { first, more, _locked: locked })
    }

    /// Whose data it is.
    pub(super) fn meta(&self) -> &MetaProperties {
        &self.first.0
    }

    /// The storage that holds a log: the recorded folder's, or without a record the first one's.
    ///
    /// # Errors
    /// In words: that folder was not named.
    pub(super) fn of(&self, image: &MetadataImage, name: &LogName) -> Result<&StorageEnv, String> {
        let topic = image.topic(name.topic_id);
        let number = usize::try_from(name.partition.0).ok();
        let partition = topic.zip(number).and_then(|(topic, number)| topic.partitions.get(number));
        let Some(recorded) = partition.and_then(|partition| partition.directory(self.first.0.node_id)) else {
            return Ok(&self.first.1);
        };
        let mut all = [&self.first].into_iter().chain(&self.more);
        let found = all.find(|(meta, _)| meta.directory_id.0 == recorded.0);
        found.map(|(_, env)| env).ok_or_else(|| {
            format!(
                "{name} is in the data folder with the directory.id {recorded}, which was not named: give --from all of \
                 log.dirs, in its order"
            )
        })
    }
}
