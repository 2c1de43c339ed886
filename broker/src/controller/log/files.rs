//! The files of the metadata log's folder.
//!
//! Holds: their names, finding them, and replacing one whole. Never touches: the log's state.

use std::io;
use std::path::{Path, PathBuf};

use corelog_reactor::{BufSlice, Durability, File, OpenHow, Reactor};

use super::frame::{self, FileFault};
use super::{ACCEPT_LOSS, HardState, OpenLogError, SnapshotMeta};

/// The hard state's file.
pub const HARD_STATE: &str = "hard-state";

const TMP: &str = ".tmp";

/// The name of a log file whose first entry has this index.
pub fn log_name(first: u64) -> String {
    format!("log-{first:020}")
}

/// The name of a snapshot's file.
pub fn snapshot_name(meta: SnapshotMeta) -> String {
    format!("snapshot-{:020}-{:020}", meta.index, meta.term)
}

fn parse_log_name(name: &str) -> Option<u64> {
    parse_number(name.strip_prefix("log-")?)
}

fn parse_snapshot_name(name: &str) -> Option<SnapshotMeta> {
    let (index, term) = name.strip_prefix("snapshot-")?.split_once('-')?;
    Some(SnapshotMeta { index: parse_number(index)?, term: parse_number(term)? })
}

fn parse_number(text: &str) -> Option<u64> {
    (text.len() == 20 && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok()).flatten()
}

/// Makes an error of what was tried on which file.
pub fn cannot(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> OpenLogError {
    let path = path.to_owned();
    move |error| OpenLogError::Io { what, path, error }
}

fn faulty(path: &Path, fault: FileFault) -> OpenLogError {
    let path = path.to_owned();
    match fault {
        FileFault::UnknownFormat(format) => OpenLogError::UnknownFormat { path, format },
        FileFault::Damaged(reason) => OpenLogError::DamagedFile { path, reason },
    }
}

/// The files of the folder, by what they are.
#[derive(Debug, Default)]
pub struct Found {
    hard_state: bool,
    accept_loss: bool,
    snapshots: Vec<(SnapshotMeta, PathBuf)>,
    logs: Vec<(u64, PathBuf)>,
    leftovers: Vec<PathBuf>,
}

impl Found {
    /// Looks into the folder.
    pub fn look(reactor: &Reactor, dir: &Path) -> Result<Self, OpenLogError> {
        let mut found = Self::default();
        for entry in reactor.list_dir(dir).map_err(cannot("list", dir))? {
            let path = dir.join(&entry.name);
            let Some(name) = entry.name.to_str() else {
                continue;
            };
            if name.ends_with(TMP) {
                found.leftovers.push(path);
            } else if name == HARD_STATE {
                found.hard_state = true;
            } else if name == ACCEPT_LOSS {
                found.accept_loss = true;
            } else if let Some(meta) = parse_snapshot_name(name) {
                found.snapshots.push((meta, path));
            } else if let Some(first) = parse_log_name(name) {
                found.logs.push((first, path));
            }
            // Anything else is somebody's own: left alone.
        }
        found.snapshots.sort_by_key(|(meta, _)| meta.index);
        found.logs.sort_by_key(|(first, _)| *first);
        Ok(found)
    }

    /// Whether somebody says that what was here is given up.
    pub fn accepts_loss(&self) -> bool {
        self.accept_loss
    }

    /// A file that is only there once a log has been: the first log comes before both.
    pub fn comes_behind_a_log(&self) -> Option<String> {
        let snapshot = self.snapshots.last().map(|(meta, _)| snapshot_name(*meta));
        if self.hard_state { Some(HARD_STATE.to_owned()) } else { snapshot }
    }

    /// The newest snapshot; the others are left over.
    pub fn newest_snapshot(&mut self) -> Option<(SnapshotMeta, PathBuf)> {
        let newest = self.snapshots.pop();
        self.leftovers.extend(self.snapshots.drain(..).map(|(_, path)| path));
        newest
    }

    /// The newest log file; the others are left over.
    pub fn newest_log(&mut self) -> Option<(u64, PathBuf)> {
        let newest = self.logs.pop();
        self.leftovers.extend(self.logs.drain(..).map(|(_, path)| path));
        newest
    }

    /// A file that nothing refers to any more.
    pub fn leave(&mut self, path: Option<PathBuf>) {
        self.leftovers.extend(path);
    }

    /// The hard state; the default where there is no file.
    pub async fn read_hard_state(&self, reactor: &Reactor, dir: &Path) -> Result<HardState, OpenLogError> {
        if !self.hard_state {
            return Ok(HardState::default());
        }
        let path = dir.join(HARD_STATE);
        let bytes = read_path(reactor, &path).await.map_err(cannot("read", &path))?;
        frame::read_hard_state_file(&bytes).map_err(|fault| faulty(&path, fault))
    }

    /// Removes what is left over from before the last power cut.
    pub async fn drop_leftovers(self, reactor: &Reactor, dir: &Path) -> Result<(), OpenLogError> {
        if self.leftovers.is_empty() {
            return Ok(());
        }
        for path in &self.leftovers {
            match reactor.unlink(path).await {
                Ok(()) => {}
                // A file that was made anew on the way has taken its place and its name.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(cannot("remove", path)(error)),
            }
        }
        reactor.sync_dir(dir).await.map_err(cannot("sync", dir))
    }
}

/// Reads a snapshot's bytes.
pub async fn read_snapshot(reactor: &Reactor, path: &Path, meta: SnapshotMeta) -> Result<Vec<u8>, OpenLogError> {
    let file = read_path(reactor, path).await.map_err(cannot("read", path))?;
    let (found, bytes) = frame::read_snapshot_file(&file).map_err(|fault| faulty(path, fault))?;
    if found != meta {
        return Err(faulty(path, FileFault::Damaged("it is not the snapshot that its name says")));
    }
    Ok(bytes.to_vec())
}

/// Whether there is no such folder.
pub fn is_missing(reactor: &Reactor, dir: &Path) -> bool {
    reactor.list_dir(dir).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Makes the folder, if it is missing.
pub async fn make_folder(reactor: &Reactor, parent: &Path, dir: &Path) -> Result<(), OpenLogError> {
    match reactor.mkdir(dir).await {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(cannot("make", dir)(error)),
    }
    reactor.sync_dir(parent).await.map_err(cannot("sync", parent))
}

/// Writes and syncs `path.tmp`; returns its path.
pub async fn write_tmp(reactor: &Reactor, path: &Path, bytes: Vec<u8>) -> io::Result<PathBuf> {
    let mut name = path.as_os_str().to_owned();
    name.push(TMP);
    let tmp = PathBuf::from(name);
    let write = async {
        let file = reactor.open(&tmp, OpenHow::write().create().truncate()).await?;
        write_all(&file, bytes, 0, Durability::None).await?;
        file.fsync().await
    };
    match write.await {
        Ok(()) => Ok(tmp),
        Err(error) => {
            // On a full disk what is there of it would keep the space that deletions need.
            let _ = reactor.unlink(&tmp).await;
            Err(error)
        }
    }
}

/// Puts a written file in its place, durably.
pub async fn publish(reactor: &Reactor, tmp: &Path, path: &Path) -> io::Result<()> {
    reactor.rename(tmp, path).await?;
    reactor.sync_dir(path.parent().unwrap_or(Path::new("."))).await
}

/// Writes all bytes, in as many writes as it takes.
pub async fn write_all(file: &File, bytes: Vec<u8>, mut offset: u64, durability: Durability) -> io::Result<()> {
    let len = bytes.len();
    let mut slice = BufSlice::new(bytes, 0..len);
    let mut written = 0;
    while written < len {
        let (result, back) = file.write_at(slice, offset, durability).await;
        let count = result?;
        if count == 0 {
            return Err(io::Error::from(io::ErrorKind::WriteZero));
        }
        written += count;
        offset += count as u64;
        slice = BufSlice::new(back.into_inner(), written..len);
    }
    Ok(())
}

async fn read_path(reactor: &Reactor, path: &Path) -> io::Result<Vec<u8>> {
    let file = reactor.open(path, OpenHow::read()).await?;
    read_file(&file).await
}

/// Reads a whole file.
pub async fn read_file(file: &File) -> io::Result<Vec<u8>> {
    let len = usize::try_from(file.len()?).map_err(io::Error::other)?;
    let mut bytes = vec![0; len];
    let mut filled = 0;
    while filled < len {
        let (result, back) = file.read_at(BufSlice::new(bytes, filled..len), filled as u64).await;
        bytes = back.into_inner();
        match result? {
            0 => break,
            count => filled += count,
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}
