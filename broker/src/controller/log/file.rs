//! The metadata log in files.
//!
//! Holds: the folder `__cluster_metadata-0` and the order in which its files change. Never touches: what is in the
//! entries.
//!
//! ```text
//! __cluster_metadata-0/
//!   hard-state                                             term, vote; replaced whole
//!   snapshot-00000000000000000100-00000000000000000003     up to entry 100, of term 3
//!   log-00000000000000000101                               entries from 101 on; one is appended to
//!   accept-loss                                            a person's word that what was here is given up; counts once
//!   *.tmp                                                  being written; dropped at start
//! ```
//!
//! A file is replaced in this order: write `x.tmp`, sync it, rename it to `x`, sync the folder. A snapshot is in place
//! before the log behind it is, and that before the old ones go, so that a power cut between any two steps leaves a
//! snapshot and a log that goes on from it; what is left over is dropped at the next start. The first log is there before
//! the first hard state, so a hard state without a log is a loss.

use std::io;
use std::path::{Path, PathBuf};

use corelog_reactor::{Durability, File, OpenHow, Reactor};
use corelog_storage::disk::files::{is_no_space, is_shortage};
use tracing::warn;

use super::files::{self, Found, read_file, write_all, write_tmp};
use super::frame::{self, Scan};
use super::{ACCEPT_LOSS, Entry, HardState, LogWriteError, MetadataLog, OpenLogError, SnapshotMeta};
use crate::names::CLUSTER_METADATA;

/// The file implementation; see the module.
pub struct FileLog {
    reactor: Reactor,
    dir: PathBuf,
    hard_state: HardState,
    snapshot: Option<SnapshotMeta>,
    /// Behind the snapshot.
    entries: Vec<Entry>,
    entries_bytes: u64,
    log: LogFile,
    /// There is a file that says that what was here is given up.
    accepts_loss: bool,
    /// A write is on its way or has failed: what the disk has is not known.
    broken: bool,
}

impl std::fmt::Debug for FileLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileLog")
            .field("dir", &self.dir)
            .field("hard_state", &self.hard_state)
            .field("snapshot", &self.snapshot)
            .field("last_index", &self.last_index())
            .field("broken", &self.broken)
            .finish_non_exhaustive()
    }
}

/// The file that is appended to.
#[derive(Debug)]
struct LogFile {
    path: PathBuf,
    file: File,
    /// Where the next frame goes.
    end: u64,
}

/// A log as it was found.
#[derive(Debug)]
pub struct OpenedLog {
    /// The log.
    pub log: FileLog,
    /// The bytes of its snapshot.
    pub snapshot: Option<Vec<u8>>,
    /// How many bytes of a torn append were cut off its end.
    pub torn_bytes: u64,
    /// The file that it is appended to.
    pub path: PathBuf,
    /// Where that file ends.
    pub end: u64,
}

impl FileLog {
    /// Opens the log in a data folder, which exists, or makes an empty one. `partition` is one that the folder has, and that
    /// only the metadata knows: then an empty log is a loss, and made only if a person says so.
    ///
    /// # Errors
    /// [`OpenLogError`]; the folder has lost nothing then.
    pub async fn open(reactor: &Reactor, data_dir: &Path, partition: Option<&str>) -> Result<OpenedLog, OpenLogError> {
        let dir = data_dir.join(format!("{CLUSTER_METADATA}-0"));
        let none_of = |path: &Path, partition: &str| OpenLogError::NoMetadata {
            path: path.to_owned(),
            folder: dir.clone(),
            partition: partition.to_owned(),
        };
        if let Some(partition) = partition.filter(|_| files::is_missing(reactor, &dir)) {
            return Err(none_of(&dir, partition));
        }
        files::make_folder(reactor, data_dir, &dir).await?;
        // The last process may have died between a rename and its sync: what is found here must be what stays.
        reactor.sync_dir(&dir).await.map_err(files::cannot("sync", &dir))?;
        let mut found = Found::look(reactor, &dir)?;
        let accepts_loss = found.accepts_loss();
        let needed_by = partition.filter(|_| !accepts_loss);
        let hard_state = found.read_hard_state(reactor, &dir).await?;
        let beside = found.comes_behind_a_log();
        let snapshot = match found.newest_snapshot() {
            Some((meta, path)) => Some((meta, files::read_snapshot(reactor, &path, meta).await?)),
            None => None,
        };
        let meta = snapshot.as_ref().map(|(meta, _)| *meta);
        let next = meta.map_or(1, |meta| meta.index + 1);
        let (first, path) = match (found.newest_log(), beside, needed_by) {
            (Some((first, _)), ..) if first > next => {
                return Err(OpenLogError::Missing { path: dir, from: next, to: first - 1 });
            }
            (Some(newest), ..) => newest,
            (None, Some(beside), _) => {
                return Err(OpenLogError::NoLog { path: dir.join(files::log_name(next)), beside });
            }
            (None, None, Some(partition)) => return Err(none_of(&dir, partition)),
            (None, None, None) => {
                let path = dir.join(files::log_name(next));
                let tmp = write_tmp(reactor, &path, Vec::new()).await;
                let made = match tmp {
                    Ok(tmp) => files::publish(reactor, &tmp, &path).await,
                    Err(error) => Err(error),
                };
                made.map_err(files::cannot("make", &path))?;
                (next, path)
            }
        };
        // A snapshot stands for all entries up to its own.
        let committed = if hard_state.commit < next { 0 } else { hard_state.commit };
        let (log, held, torn_bytes) = LogFile::open(reactor, path, first, committed).await?;
        let last_held = first - 1 + held.len() as u64;
        if let Some(partition) = needed_by.filter(|_| last_held == 0 && meta.is_none()) {
            return Err(none_of(&log.path, partition));
        }
        let entries: Vec<Entry> = held.into_iter().filter(|entry| entry.index >= next).collect();
        let term = entries.last().map_or(meta.map_or(0, |meta| meta.term), |entry| entry.term);
        if hard_state.term < term {
            return Err(OpenLogError::NoHardState { path: dir, term });
        }
        let mut opened = Self {
            reactor: reactor.clone(),
            entries_bytes: bytes_of(&entries),
            dir: dir.clone(),
            hard_state,
            snapshot: meta,
            entries,
            log,
            accepts_loss,
            broken: false,
        };
        if last_held + 1 < next {
            // A leader's snapshot has overtaken the log, and the power went before the log behind it was in place.
            let old = opened.replace_log(Vec::new()).await;
            let old = old.map_err(files::cannot("make the log behind the snapshot in", &dir))?;
            found.leave(old);
        }
        found.drop_leftovers(reactor, &dir).await?;
        let (path, end) = (opened.log.path.clone(), opened.log.end);
        Ok(OpenedLog { log: opened, snapshot: snapshot.map(|(_, bytes)| bytes), torn_bytes, path, end })
    }

    /// The word that a loss is accepted has been heeded, or was not needed: it does not count a second time.
    ///
    /// # Errors
    /// What the system says.
    pub async fn end_accepted_loss(&mut self) -> Result<(), OpenLogError> {
        if !self.accepts_loss {
            return Ok(());
        }
        let path = self.dir.join(ACCEPT_LOSS);
        self.reactor.unlink(&path).await.map_err(files::cannot("remove", &path))?;
        self.reactor.sync_dir(&self.dir).await.map_err(files::cannot("sync", &self.dir))?;
        self.accepts_loss = false;
        Ok(())
    }

    /// Puts a log file with these entries in place of the present one; returns the path of the old one, if that is
    /// another.
    async fn replace_log(&mut self, kept: Vec<Entry>) -> io::Result<Option<PathBuf>> {
        let written = self.write_log(&kept).await?;
        self.put_log(written, kept).await
    }

    /// Writes a log file with these entries beside the present one: where it is, where it belongs, where it ends.
    async fn write_log(&self, kept: &[Entry]) -> io::Result<(PathBuf, PathBuf, u64)> {
        let path = self.dir.join(files::log_name(self.first_index()));
        let mut bytes = Vec::new();
        if !kept.is_empty() {
            frame::put_frame(&mut bytes, kept);
        }
        let end = bytes.len() as u64;
        Ok((write_tmp(&self.reactor, &path, bytes).await?, path, end))
    }

    /// Puts what [`write_log`](Self::write_log) wrote in place. If that fails, it is not known which of the two is the log.
    async fn put_log(
        &mut self,
        (tmp, path, end): (PathBuf, PathBuf, u64),
        kept: Vec<Entry>,
    ) -> io::Result<Option<PathBuf>> {
        files::publish(&self.reactor, &tmp, &path).await?;
        let file = self.reactor.open(&path, OpenHow::write()).await?;
        let old = std::mem::replace(&mut self.log, LogFile { path: path.clone(), file, end });
        self.entries_bytes = bytes_of(&kept);
        self.entries = kept;
        Ok((old.path != path).then_some(old.path))
    }

    /// Removes files that nothing refers to any more. If that fails, the next start does it.
    async fn drop_old(&self, paths: impl IntoIterator<Item = PathBuf>) {
        for path in paths {
            if let Err(error) = self.reactor.unlink(&path).await {
                warn!(path = %path.display(), %error, "an old file of the metadata log is left for the next start");
            }
        }
    }

    /// Takes back a frame that did not fit.
    async fn roll_back(&self) -> io::Result<()> {
        self.log.file.truncate(self.log.end).await?;
        self.log.file.fsync().await
    }

    fn begin(&mut self) -> Result<(), LogWriteError> {
        if self.broken {
            return Err(LogWriteError::Broken);
        }
        // Until it is known how it ended: the future may be dropped on the way.
        self.broken = true;
        Ok(())
    }
}

impl LogFile {
    /// Opens and reads a log file, and cuts a torn end off. Entries up to `committed` were whole once: they are not torn.
    async fn open(
        reactor: &Reactor,
        path: PathBuf,
        first: u64,
        committed: u64,
    ) -> Result<(Self, Vec<Entry>, u64), OpenLogError> {
        let file = reactor.open(&path, OpenHow::write()).await.map_err(files::cannot("open", &path))?;
        let bytes = read_file(&file).await.map_err(files::cannot("read", &path))?;
        let lost = |from: u64, offset: usize| OpenLogError::Lost {
            path: path.clone(),
            offset: offset as u64,
            from,
            to: committed,
        };
        let (entries, end) = match frame::scan(&bytes, first) {
            Scan::Ends { entries, end } => {
                let next = first + entries.len() as u64;
                if next <= committed {
                    return Err(lost(next, end));
                }
                (entries, end as u64)
            }
            Scan::Damaged { offset, expected, found } => {
                return Err(OpenLogError::Damaged { path, offset: offset as u64, expected, found });
            }
            Scan::Rotten { offset, expected } if expected <= committed => return Err(lost(expected, offset)),
            Scan::Rotten { offset, expected } => {
                return Err(OpenLogError::Rotten { path, offset: offset as u64, expected });
            }
            Scan::OutOfOrder { offset, expected, found } => {
                return Err(OpenLogError::OutOfOrder { path, offset: offset as u64, expected, found });
            }
        };
        let torn_bytes = bytes.len() as u64 - end;
        if torn_bytes > 0 {
            file.truncate(end).await.map_err(files::cannot("cut the torn end off", &path))?;
        }
        // What can be read may not be on the disk yet: the last start may have died between its write and its sync.
        file.fsync().await.map_err(files::cannot("sync", &path))?;
        Ok((Self { path, file, end }, entries, torn_bytes))
    }
}

impl MetadataLog for FileLog {
    fn hard_state(&self) -> HardState {
        self.hard_state
    }

    async fn save_hard_state(&mut self, state: HardState) -> Result<(), LogWriteError> {
        self.begin()?;
        let (last, commit) = (self.last_index(), state.commit);
        assert!(commit <= last, "entry {commit} is said to be committed, and entry {last} is the last one here");
        let path = self.dir.join(files::HARD_STATE);
        let tmp = write_tmp(&self.reactor, &path, frame::hard_state_file(state)).await;
        let tmp = self.or_no_space(tmp, "write the hard state")?;
        let published = files::publish(&self.reactor, &tmp, &path).await;
        published.map_err(failed("put the hard state in place"))?;
        self.hard_state = state;
        self.broken = false;
        Ok(())
    }

    fn snapshot_meta(&self) -> Option<SnapshotMeta> {
        self.snapshot
    }

    async fn read_snapshot(&self) -> Result<Option<Vec<u8>>, OpenLogError> {
        let Some(meta) = self.snapshot else {
            return Ok(None);
        };
        let path = self.dir.join(files::snapshot_name(meta));
        files::read_snapshot(&self.reactor, &path, meta).await.map(Some)
    }

    fn entries(&self) -> &[Entry] {
        &self.entries
    }

    async fn append(&mut self, entries: Vec<Entry>) -> Result<(), LogWriteError> {
        let last = self.last_index();
        for (expected, entry) in (last + 1..).zip(&entries) {
            let (index, term) = (entry.index, entry.term);
            assert!(index == expected, "entry {index} is appended where entry {expected} is next");
            assert!(term <= self.hard_state.term, "entry {index} is of term {term}, which was not saved");
        }
        if entries.is_empty() {
            return Ok(());
        }
        let bytes = frame::body_bytes(&entries);
        if bytes > frame::BODY_BYTES_MAX {
            return Err(LogWriteError::TooLarge { bytes });
        }
        self.begin()?;
        let mut frame = Vec::new();
        frame::put_frame(&mut frame, &entries);
        let len = frame.len() as u64;
        let written = write_all(&self.log.file, frame, self.log.end, Durability::Dsync).await;
        if let Err(error) = written {
            if !is_no_space(&error) {
                return Err(failed("append")(error));
            }
            self.roll_back().await.map_err(failed("take an append back"))?;
            self.broken = false;
            return Err(LogWriteError::NoSpace(error));
        }
        self.log.end += len;
        self.entries_bytes += bytes_of(&entries);
        self.entries.extend(entries);
        self.broken = false;
        Ok(())
    }

    async fn truncate_suffix(&mut self, from: u64) -> Result<(), LogWriteError> {
        let first = self.first_index();
        assert!(from >= first, "the log starts with entry {first} and cannot be cut from entry {from} on");
        let commit = self.hard_state.commit;
        assert!(from > commit, "entries up to {commit} are committed, and those from {from} on are to be cut");
        let keep = usize::try_from(from - first).unwrap_or(usize::MAX);
        let Some(kept) = self.entries.get(..keep).filter(|kept| kept.len() < self.entries.len()) else {
            return Ok(());
        };
        let kept = kept.to_vec();
        self.begin()?;
        // Not cut in place: the entries kept may share a frame with those dropped, and must survive a power cut.
        let old = self.replace_log(kept).await.map_err(failed("cut the log"))?;
        self.drop_old(old).await;
        self.broken = false;
        Ok(())
    }

    async fn save_snapshot(&mut self, meta: SnapshotMeta, bytes: Vec<u8>) -> Result<(), LogWriteError> {
        let old = self.snapshot;
        let old_index = old.map_or(0, |old| old.index);
        assert!(meta.index > old_index, "a snapshot of entry {} follows one of entry {old_index}", meta.index);
        let held = self.term_of(meta.index);
        assert!(
            held.is_none_or(|term| term == meta.term),
            "a snapshot of entry {} has term {}, and the entry has {held:?}",
            meta.index,
            meta.term
        );
        self.begin()?;
        let path = self.dir.join(files::snapshot_name(meta));
        let tmp = write_tmp(&self.reactor, &path, frame::snapshot_file(meta, &bytes)).await;
        let tmp = self.or_no_space(tmp, "write a snapshot")?;
        drop(bytes);
        files::publish(&self.reactor, &tmp, &path).await.map_err(failed("put a snapshot in place"))?;
        // From here on the snapshot counts, whatever becomes of the log.
        let ahead = meta.index > self.last_index();
        self.snapshot = Some(meta);
        self.entries.retain(|entry| entry.index > meta.index);
        self.entries_bytes = bytes_of(&self.entries);
        let old_log = match self.write_log(&self.entries).await {
            Ok(written) => {
                let put = self.put_log(written, self.entries.clone()).await;
                put.map_err(failed("start the log behind a snapshot"))?
            }
            // The old log goes on, with entries that nobody reads any more at its start, until the next snapshot.
            Err(error) if is_shortage(&error) && !ahead => {
                warn!(path = %self.log.path.display(), %error, "no room to start the log anew behind a snapshot: it goes on");
                None
            }
            Err(error) => return Err(failed("write the log behind a snapshot")(error)),
        };
        let old_snapshot = old.map(|old| self.dir.join(files::snapshot_name(old)));
        self.drop_old(old_log.into_iter().chain(old_snapshot)).await;
        self.broken = false;
        Ok(())
    }

    fn bytes_since_snapshot(&self) -> u64 {
        self.entries_bytes
    }
}

impl FileLog {
    /// A file beside the log could not be written: without room or a file handle the log is as it was.
    fn or_no_space<T>(&mut self, written: io::Result<T>, what: &'static str) -> Result<T, LogWriteError> {
        match written {
            Ok(value) => Ok(value),
            Err(error) if is_shortage(&error) => {
                self.broken = false;
                Err(LogWriteError::NoSpace(error))
            }
            Err(error) => Err(failed(what)(error)),
        }
    }
}

fn failed(what: &'static str) -> impl FnOnce(io::Error) -> LogWriteError {
    move |error| LogWriteError::Failed { what, error }
}

fn bytes_of(entries: &[Entry]) -> u64 {
    entries.iter().map(|entry| entry.bytes.len() as u64).sum()
}
