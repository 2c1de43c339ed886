//! What the last runs left in the commit logs: read once at start, applied log by log, and then removed.
//!
//! Holds: the reading of the files, the list of entries for each log, the word when a file is needed no more.
//! Never touches: segments (`log::reapply` brings them up to date).
//!
//! ```text
//!   start: all files ──read──> for each log: its entries (where they are; not their bytes)
//!   a log opens: it reads what its segment lacks; once that is durable there, the log is settled
//!   a file all of whose logs are settled (or gone) is removed
//! ```
//!
//! It does not matter how many shards there were, or are: the logs of one run were written by one shard each.
//!
//! A log whose folder is missing, that is fenced, or that could not be opened keeps its files until a later start.
//!
//! ## What a crash leaves, and what is damage
//!
//! Two writes may be in flight. The later one may be whole and the earlier one torn; then neither has been
//! acknowledged, as writes are acknowledged in their order. A third one is begun only when the first is durable. So
//! behind the first write that does not hold, at sequence n, there may be a sound n + 1 after a crash. A sound n + 2,
//! in this file, proves that n was acknowledged: then n is damaged, and the start says so. The writes behind it in
//! this file are not used, so a log is fenced only where an entry in a later file shows the gap: decision 0007 lists
//! this among what comes before the commit log may be the default.

use super::COMMIT_LOG_FOLDER;
use super::format::{FIRST_WRITE, HeaderFault, WRITE_BYTES_MAX, WriteHeader, decode_file_header, entries};
use crate::disk::checkpoint::{CheckpointSet, LogKey};
use crate::disk::files::{is_interrupted, unlink_if_there};
use crate::disk::{BLOCK_BYTES, align_up};
use crate::ids::Offset;
use corelog_reactor::{BufSlice, File, OpenHow, Reactor};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes read at once; at least one whole write.
const READ_BYTES: usize = 4 * WRITE_BYTES_MAX;

/// Batches of one log in a commit-log file.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The write they are in.
    pub sequence: u64,
    /// Base offset of their segment.
    pub segment: Offset,
    /// Where in it they start.
    pub position: u64,
    /// Their first offset.
    pub start: Offset,
    /// The offset behind their last.
    pub end: Offset,
    /// Their length.
    pub bytes: u32,
    /// Where they start in the file.
    at: u64,
    file: Arc<Path>,
}

/// Reads entries' batches, of one file after the other.
pub struct EntryReader<'r> {
    reactor: &'r Reactor,
    open: Option<(Arc<Path>, File)>,
}

impl<'r> EntryReader<'r> {
    /// Nothing is open yet.
    #[must_use]
    pub const fn new(reactor: &'r Reactor) -> Self {
        Self { reactor, open: None }
    }

    /// The batches of an entry. They were checked at the start, and are to be checked again.
    ///
    /// # Errors
    /// As the disk gives them.
    pub async fn read(&mut self, entry: &Entry) -> io::Result<Vec<u8>> {
        if self.open.as_ref().is_none_or(|(path, _)| *path != entry.file) {
            let file = self.reactor.open(&entry.file, OpenHow::read()).await?;
            self.open = Some((entry.file.clone(), file));
        }
        let mut bytes = vec![0; entry.bytes as usize];
        let have = match &self.open {
            Some((_, file)) => read_up_to(file, &mut bytes, entry.at).await?,
            None => 0,
        };
        if have < bytes.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(bytes)
    }
}

#[derive(Debug, Default)]
struct Left {
    logs: HashMap<LogKey, Vec<Entry>>,
    /// For each file, how many logs are not settled that have entries in it.
    files: HashMap<Arc<Path>, usize>,
}

/// The entries of all logs. All shards hold the same one; it is looked at while logs are opened, never on the data
/// path.
#[derive(Debug, Default)]
pub struct Replay {
    left: Mutex<Left>,
    next_sequence: u64,
    next_number: u64,
}

impl Replay {
    /// Reads the commit logs of a data folder. Entries that `checkpoints` knows nothing of, or that lie before what
    /// they name as the first to count, are left out; files without any other are removed.
    ///
    /// # Errors
    /// When a file cannot be read, or is of a later version: without it acknowledged records may be missing.
    pub async fn read(
        reactor: &Reactor,
        data: &Path,
        checkpoints: &CheckpointSet,
    ) -> Result<Self, (PathBuf, io::Error)> {
        let floors = checkpoints.iter().map(|(_, entry)| entry.replay_from).max().unwrap_or(0);
        let mut replay = Self { left: Mutex::default(), next_sequence: floors.max(1), next_number: 0 };
        let folder = data.join(COMMIT_LOG_FOLDER);
        let listed = match reactor.list_dir(&folder) {
            Ok(listed) => listed,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(replay),
            Err(error) => return Err((folder, error)),
        };
        let mut left = Left::default();
        let mut done_with = Vec::new();
        for name in listed.iter().filter(|e| !e.is_dir).filter_map(|e| e.name.to_str()) {
            let Some(number) = file_number(name) else { continue };
            replay.next_number = replay.next_number.max(number + 1);
            let path: Arc<Path> = folder.join(name).into();
            let mut found = HashMap::new();
            let reached = read_file(reactor, &path, checkpoints, &mut found).await;
            let reached = reached.map_err(|error| (path.to_path_buf(), error))?;
            replay.next_sequence = replay.next_sequence.max(reached);
            if found.is_empty() {
                done_with.push(path.to_path_buf());
                continue;
            }
            left.files.insert(path, found.len());
            for (key, mut entries) in found {
                left.logs.entry(key).or_default().append(&mut entries);
            }
        }
        for entries in left.logs.values_mut() {
            entries.sort_by_key(|entry| (entry.sequence, entry.start));
        }
        replay.left = Mutex::new(left);
        remove(reactor, &folder, done_with).await;
        Ok(replay)
    }

    fn lock(&self) -> MutexGuard<'_, Left> {
        // Nothing in here is left half done by a panic.
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first sequence that no earlier run has used.
    #[must_use]
    pub const fn next_sequence(&self) -> u64 {
        self.next_sequence
    }

    /// The first number that no file has.
    #[must_use]
    pub const fn next_number(&self) -> u64 {
        self.next_number
    }

    /// The entries of a log, oldest first.
    #[must_use]
    pub fn entries(&self, key: &LogKey) -> Vec<Entry> {
        self.lock().logs.get(key).cloned().unwrap_or_default()
    }

    /// Whether every log is settled.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.lock().logs.is_empty()
    }

    /// The log needs its entries no more: they are durable in its segment, or it is gone. Returns the files that nobody
    /// needs now.
    #[must_use]
    pub fn settle(&self, key: &LogKey) -> Vec<PathBuf> {
        let mut left = self.lock();
        let Some(entries) = left.logs.remove(key) else { return Vec::new() };
        let mut files: Vec<Arc<Path>> = entries.into_iter().map(|entry| entry.file).collect();
        files.sort_unstable();
        files.dedup();
        let mut done_with = Vec::new();
        for file in files {
            if let Some(logs) = left.files.get_mut(&file) {
                *logs -= 1;
                if *logs == 0 {
                    left.files.remove(&file);
                    done_with.push(file.to_path_buf());
                }
            }
        }
        done_with
    }
}

/// Removes files that nobody needs. One that comes back, after a crash or because this failed, is read again, and does
/// no harm.
pub async fn remove(reactor: &Reactor, folder: &Path, files: Vec<PathBuf>) {
    if files.is_empty() {
        return;
    }
    for path in files {
        if let Err(error) = unlink_if_there(reactor, &path).await {
            tracing::warn!(path = %path.display(), %error, "cannot remove a commit log: the next start does it");
        }
    }
    if let Err(error) = reactor.sync_dir(folder).await {
        tracing::debug!(%error, "removed commit logs may come back");
    }
}

/// The number in a file's name, `<shard>-<number>`.
fn file_number(name: &str) -> Option<u64> {
    let (shard, number) = name.split_once('-')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    (is_number(shard) && is_number(number)).then(|| number.parse().ok())?
}

/// Reads one file's entries. Returns the first sequence behind all that it mentions.
async fn read_file(
    reactor: &Reactor,
    path: &Arc<Path>,
    checkpoints: &CheckpointSet,
    found: &mut HashMap<LogKey, Vec<Entry>>,
) -> io::Result<u64> {
    let file = reactor.open(path, OpenHow::read()).await?;
    let mut window = Window { file: &file, bytes: vec![0; READ_BYTES], start: 0, have: 0 };
    window.move_to(0).await?;
    let mut generation = match decode_file_header(window.at(0, BLOCK_BYTES as usize)) {
        Ok(generation) => Some(generation),
        Err(HeaderFault::Unused) => None,
        Err(HeaderFault::Damaged) => {
            tracing::error!(path = %path.display(), "the header of a commit log is damaged; what holds behind it is used");
            None
        }
        Err(HeaderFault::Version(version)) => {
            let words = format!("a commit log of version {version}: start the later release that wrote it");
            return Err(io::Error::new(io::ErrorKind::InvalidData, words));
        }
    };
    let mut expected = None;
    let mut at = FIRST_WRITE;
    loop {
        window.move_to(at).await?;
        let bytes = window.at(at, WRITE_BYTES_MAX);
        let Some(write) = WriteHeader::check(bytes).filter(|write| {
            // Without a header the first write that holds tells the generation.
            *generation.get_or_insert(write.generation) == write.generation
                && write.sequence >= write.generation
                && expected.is_none_or(|expected| write.sequence == expected)
        }) else {
            break;
        };
        for entry in entries(bytes.get(..write.bytes as usize).unwrap_or_default()) {
            let Some((entry, within)) = entry else {
                let words = format!("the write at byte {at} of a commit log holds what no broker writes");
                return Err(io::Error::new(io::ErrorKind::InvalidData, words));
            };
            if checkpoints.get(&entry.key).is_some_and(|log| write.sequence >= log.replay_from) {
                found.entry(entry.key).or_default().push(Entry {
                    sequence: write.sequence,
                    segment: entry.segment,
                    position: entry.position,
                    start: entry.start,
                    end: entry.end,
                    bytes: entry.bytes,
                    at: at + within as u64,
                    file: path.clone(),
                });
            }
        }
        expected = Some(write.sequence + 1);
        at += align_up(u64::from(write.bytes));
    }
    let reached = expected.or(generation).unwrap_or(0);
    let Some(generation) = generation else { return Ok(0) };
    let newest = find_behind(&mut window, at, generation).await?;
    if newest.is_some_and(|newest| newest >= reached + 2) {
        tracing::error!(
            path = %path.display(),
            position = at,
            sequence = reached,
            newest,
            "a commit log is damaged: a write that was durable does not hold. Acknowledged records may be lost; logs that miss some \
             are fenced where that shows"
        );
    }
    Ok(newest.map_or(reached, |newest| newest + 1).max(reached))
}

/// The newest write of this use of the file behind the last one that counts.
async fn find_behind(window: &mut Window<'_>, from: u64, generation: u64) -> io::Result<Option<u64>> {
    let end = window.file.len()?;
    let mut newest = None;
    let mut at = from;
    while at < end {
        window.move_to(at).await?;
        let bytes = window.at(at, WRITE_BYTES_MAX);
        if WriteHeader::parse(bytes).is_some_and(|write| write.generation == generation)
            && let Some(write) = WriteHeader::check(bytes)
        {
            newest = newest.max(Some(write.sequence));
        }
        at += BLOCK_BYTES;
    }
    Ok(newest)
}

/// A part of a file, in memory.
struct Window<'f> {
    file: &'f File,
    bytes: Vec<u8>,
    start: u64,
    have: usize,
}

impl Window<'_> {
    /// Sees to it that a whole write at `at` is in the window, as far as the file goes.
    async fn move_to(&mut self, at: u64) -> io::Result<()> {
        let is_within = at >= self.start && at + WRITE_BYTES_MAX as u64 <= self.start + self.have as u64;
        let is_at_end = self.have > 0 && self.have < self.bytes.len() && at >= self.start;
        if is_within || is_at_end {
            return Ok(());
        }
        self.have = read_up_to(self.file, &mut self.bytes, at).await?;
        self.start = at;
        Ok(())
    }

    /// The bytes from `at` on, at most `len`.
    fn at(&self, at: u64, len: usize) -> &[u8] {
        let from = usize::try_from(at.saturating_sub(self.start)).unwrap_or(self.have).min(self.have);
        self.bytes.get(from..self.have.min(from + len)).unwrap_or_default()
    }
}

/// Fills `bytes` from `offset` on, up to the file's end.
async fn read_up_to(file: &File, bytes: &mut Vec<u8>, offset: u64) -> io::Result<usize> {
    let want = bytes.len();
    let mut done = 0;
    while done < want {
        let (result, slice) =
            file.read_at(BufSlice::new(std::mem::take(bytes), done..want), offset + done as u64).await;
        *bytes = slice.into_inner();
        match result {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(error) if is_interrupted(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
