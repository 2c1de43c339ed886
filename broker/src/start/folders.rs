//! The data folders of a node, taken one by one before any shard exists.
//!
//! Holds: which of them are ours, which are offline and why, the list of those that there were. Never touches: logs; what
//! happens to a folder that fails later (`shard/folders.rs`).
//!
//! ```text
//!   first folder   the metadata log, the list `data-folders`    must be there: the broker does not start without it
//!   the others     damaged, read-only, gone, empty              offline: told, and the rest serves
//!                  another broker's, a Kafka's, in use           the broker does not start: that is a mistake, not a failure
//! ```
//!
//! A folder is known by the `directory.id` in its `meta.properties`. The list says which id was found at which path: an empty
//! folder where there was one is a disk that is not mounted, and nothing is made in it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use corelog_reactor::{DirEntry, Reactor};
use corelog_storage::disk::datadir::{DataDir, DataDirError};
use corelog_storage::disk::files::{is_no_space, read_file, replace_file};
use corelog_storage::disk::meta::{META_PROPERTIES, MetaProperties, parse_topic_id};
use corelog_storage::ids::TopicId;
use tracing::{error, info};

use super::StartError;
use crate::config::BrokerConfig;
use crate::controller::DirectoryId;
use crate::names::CLUSTER_METADATA;
use crate::shard::folders::FolderNames;

/// The list of folders beside the first, in the first: a line for each, `<directory.id> <path>`.
pub const FOLDER_LIST: &str = "data-folders";

/// The data folders of a node. To be kept for as long as its shards live.
pub struct DataFolders {
    /// The one with the metadata log.
    pub first: DataDir,
    /// The others, as the configuration names them.
    pub more: Vec<MoreFolder>,
    /// The folders in them, where there are several.
    pub names: Arc<FolderNames>,
}

/// A data folder beside the first.
pub struct MoreFolder {
    /// Where it is.
    pub path: PathBuf,
    /// Whether there was a folder at an earlier start.
    pub was_there: bool,
    /// It, if it can be used; why not was told.
    pub opened: Option<OpenFolder>,
}

/// A data folder that can be used.
pub struct OpenFolder {
    /// It.
    pub data: DataDir,
    /// Its id.
    pub id: DirectoryId,
    /// Whether its disk takes direct I/O; `None`: as the first one's.
    pub direct: Option<bool>,
}

impl MoreFolder {
    /// Gives it up before anything was opened in it.
    pub fn set_offline(&mut self, reason: &dyn std::fmt::Display) {
        self.opened = None;
        tell_offline(&self.path, reason);
    }
}

fn tell_offline(path: &Path, reason: &dyn std::fmt::Display) {
    error!(
        folder = %path.display(),
        %reason,
        "data folder is offline: its partitions are refused until a restart finds it well, the others serve. Nothing in it was removed"
    );
}

/// Takes all data folders, on whatever reactor. New ones are given their ids.
///
/// # Errors
/// [`StartError`]: the first can't be used, or one belongs to somebody else.
pub async fn open_all(reactor: &Reactor, config: &BrokerConfig) -> Result<DataFolders, StartError> {
    let is_first_new = !has(reactor, &config.data_dir, META_PROPERTIES);
    for path in &config.more_data_dirs {
        if has(reactor, path, &format!("{CLUSTER_METADATA}-0")) {
            return Err(StartError::MetadataElsewhere { first: config.data_dir.clone(), path: path.clone() });
        }
        if is_first_new && has(reactor, path, META_PROPERTIES) {
            return Err(StartError::FirstIsNew { first: config.data_dir.clone(), path: path.clone() });
        }
    }
    let first = open_data(reactor, config).await?;
    let mut folders = DataFolders { first, more: Vec::new(), names: Arc::default() };
    if config.more_data_dirs.is_empty() {
        return Ok(folders);
    }
    let Some(ours) = folders.first.meta().cloned() else { return Ok(folders) };
    let list = config.data_dir.join(FOLDER_LIST);
    let failed = |error| DataDirError::Io { path: list.clone(), what: "read or write it", error };
    let mut known = read_list(reactor, &list).await.map_err(failed)?;
    let before = known.clone();
    let mut ids = vec![ours.directory_id];
    for path in &config.more_data_dirs {
        let opened = match open_more(reactor, path, &ours, &before).await {
            Ok(opened) => Some(opened),
            Err(Unusable::Mistake(failure)) => return Err(*failure),
            Err(Unusable::Offline(reason)) => {
                tell_offline(path, &reason);
                None
            }
        };
        if let Some(opened) = &opened {
            let id = TopicId(opened.id.0);
            if ids.contains(&id) {
                return Err(StartError::SameDirectory { path: path.clone(), id });
            }
            ids.push(id);
            let path = absolute(path);
            // The line of another id at this path stays: its disk may be the one that is missing elsewhere.
            known.retain(|(known_id, _)| *known_id != id);
            known.push((id, path));
        }
        let was_there = before.iter().any(|(_, at)| *at == absolute(path));
        folders.more.push(MoreFolder { path: path.clone(), was_there, opened });
    }
    if known != before {
        let lines: Vec<String> = known.iter().map(|(id, path)| format!("{id} {}\n", path.display())).collect();
        let bytes = lines.concat().into_bytes();
        // Also when the first folder is full: that may be why there is another one now.
        let write = async || replace_file(reactor, &list, bytes.clone()).await;
        folders.first.reserve().spend(reactor, is_no_space, write).await.map_err(failed)?;
    }
    folders.names = Arc::new(names_in(reactor, &mut folders));
    Ok(folders)
}

/// The names of folders in all data folders. One that can't be listed is offline.
fn names_in(reactor: &Reactor, folders: &mut DataFolders) -> FolderNames {
    let mut names = FolderNames::new();
    let mut note = |number: usize, entries: Vec<DirEntry>| {
        for name in entries.into_iter().filter(|e| e.is_dir).filter_map(|e| e.name.into_string().ok()) {
            names.entry(name).or_default().push(number);
        }
    };
    note(0, reactor.list_dir(folders.first.path()).unwrap_or_default());
    for (number, folder) in (1..).zip(&mut folders.more) {
        if folder.opened.is_some() {
            match reactor.list_dir(&folder.path) {
                Ok(entries) => note(number, entries),
                Err(error) => folder.set_offline(&error),
            }
        }
    }
    names
}

fn has(reactor: &Reactor, folder: &Path, name: &str) -> bool {
    reactor.list_dir(folder).is_ok_and(|entries| entries.iter().any(|entry| entry.name == name))
}

/// The path from the root, so that the list holds wherever the broker is started.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}

/// Which folders there were: id and path. A line that can't be read is nobody's.
async fn read_list(reactor: &Reactor, path: &Path) -> io::Result<Vec<(TopicId, PathBuf)>> {
    let bytes = match read_file(reactor, path).await {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let text = String::from_utf8_lossy(&bytes);
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    Ok(lines.filter_map(|(id, path)| Some((parse_topic_id(id)?, PathBuf::from(path)))).collect())
}

/// Why a folder beside the first is not used.
enum Unusable {
    /// It has failed: the others serve.
    Offline(String),
    /// It is not this broker's.
    Mistake(Box<StartError>),
}

async fn open_more(
    reactor: &Reactor,
    path: &Path,
    ours: &MetaProperties,
    known: &[(TopicId, PathBuf)],
) -> Result<OpenFolder, Unusable> {
    let mistake = |failure| Unusable::Mistake(Box::new(failure));
    if is_kafkas(reactor, path) {
        return Err(mistake(StartError::Kafka { path: path.to_path_buf() }));
    }
    if !has(reactor, path, META_PROPERTIES) {
        look_at_new(reactor, path, known).map_err(Unusable::Offline)?;
    }
    let mut data = match DataDir::open(reactor, path).await {
        Ok(data) => data,
        Err(error @ DataDirError::Locked { .. }) => return Err(mistake(StartError::Data(error))),
        Err(error) => return Err(Unusable::Offline(error.to_string())),
    };
    let meta = match data.meta() {
        Some(meta) if meta.node_id != ours.node_id => {
            let (path, found) = (path.to_path_buf(), meta.node_id);
            return Err(mistake(StartError::NodeId { path, found, ours: ours.node_id }));
        }
        Some(meta) if meta.cluster_id != ours.cluster_id => {
            let (path, found) = (path.to_path_buf(), meta.cluster_id.clone());
            return Err(mistake(StartError::ClusterId { path, found, ours: ours.cluster_id.clone() }));
        }
        Some(meta) => meta.clone(),
        None => {
            let meta = MetaProperties { directory_id: random_id(reactor), ..ours.clone() };
            let written = data.set_meta(reactor, meta.clone()).await;
            written.map_err(|error| Unusable::Offline(error.to_string()))?;
            info!(folder = %path.display(), id = %meta.directory_id, "a new data folder");
            meta
        }
    };
    Ok(OpenFolder { data, id: DirectoryId(meta.directory_id.0), direct: None })
}

/// Whether a folder without `meta.properties` may be made a data folder: not if there was one, or if it holds logs.
fn look_at_new(reactor: &Reactor, path: &Path, known: &[(TopicId, PathBuf)]) -> Result<(), String> {
    let own = absolute(path);
    if let Some((id, _)) = known.iter().find(|(_, at)| *at == own) {
        return Err(format!(
            "the data folder {id} was here, and its {META_PROPERTIES} is not: is its disk mounted? If it is lost for good: \
             remove its line from {FOLDER_LIST} in the first data folder, and start again; the topics that were in it are \
             offline until they are deleted"
        ));
    }
    let entries = match reactor.list_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(format!("cannot list it: {error}")),
    };
    let is_log = |name: &str| name.rsplit_once('-').is_some_and(|(_, number)| number.parse::<u32>().is_ok());
    let log = entries.iter().filter(|entry| entry.is_dir).filter_map(|entry| entry.name.to_str()).find(|n| is_log(n));
    match log {
        Some(log) => Err(format!(
            "it has partitions ({log}) and no {META_PROPERTIES}, which says whose they are: restore that file, or empty the folder"
        )),
        None => Ok(()),
    }
}

/// Takes the first data folder, before any shard exists. A new folder is given its ids.
async fn open_data(reactor: &Reactor, config: &BrokerConfig) -> Result<DataDir, StartError> {
    let path = &config.data_dir;
    if is_kafkas(reactor, path) {
        return Err(StartError::Kafka { path: path.clone() });
    }
    let mut data = DataDir::open(reactor, path).await?;
    match data.meta() {
        Some(meta) if meta.node_id != config.node_id => {
            return Err(StartError::NodeId { path: path.clone(), found: meta.node_id, ours: config.node_id });
        }
        Some(_) => {}
        None => {
            let cluster_id = random_id(reactor).to_string();
            let meta = MetaProperties { cluster_id, node_id: config.node_id, directory_id: random_id(reactor) };
            data.set_meta(reactor, meta).await?;
        }
    }
    Ok(data)
}

fn random_id(reactor: &Reactor) -> TopicId {
    let mut bytes = [0; 16];
    reactor.fill_random(&mut bytes);
    TopicId(*uuid::Builder::from_random_bytes(bytes).as_uuid().as_bytes())
}

/// Whether a Kafka wrote the folder: it has files that only Kafka makes. Looked for before anything is written into it.
fn is_kafkas(reactor: &Reactor, path: &Path) -> bool {
    let names = |folder: &Path| -> Vec<String> {
        let entries = reactor.list_dir(folder).unwrap_or_default();
        entries.into_iter().filter_map(|entry| entry.name.into_string().ok()).collect()
    };
    let metadata = names(&path.join(format!("{CLUSTER_METADATA}-0")));
    let is_metadata = |name: &String| {
        let is_numbered = name.strip_suffix(".log").is_some_and(|rest| rest.parse::<u64>().is_ok());
        name == "quorum-state" || name.ends_with(".checkpoint") || is_numbered
    };
    let own = ["bootstrap.checkpoint", "recovery-point-offset-checkpoint", "replication-offset-checkpoint"];
    metadata.iter().any(is_metadata) || names(path).iter().any(|name| own.contains(&name.as_str()))
}
