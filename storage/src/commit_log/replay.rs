//! What the last runs left in the commit logs: read once at start, applied log by log, and then removed.
//!
//! Holds: the list of entries for each log, the word when a file is needed no more. Never touches: the bytes of files
//! (`read_file`), what is damage (`judge`), segments (`log::reapply` brings them up to date).
//!
//! ```text
//!   start: all files ──read──> for each log: its entries (where they are; not their bytes)
//!   a log opens: it reads what its segment lacks; once that is durable there, the log is settled
//!   a file all of whose logs are settled (or gone) is removed
//! ```
//!
//! It does not matter how many shards there were, or are: the logs of one run were written by one shard each.
//!
//! A log whose folder is missing, that is fenced, or that could not be opened keeps its files until a later start. A log
//! that no checkpoint knows keeps its entries as well: the checkpoint may be lost, or the log so new that it has no line.
//! Only who knows all topics can say that it is gone (`log::logged`).
//!
//! ## Damage
//!
//! A file in which a write does not hold that was durable is told of, and called `<shard>-<number>-damaged-<sequence>`
//! from then on: up to this sequence its writes are known to have been durable, also when the files that proved it are gone.
//! What else it holds counts as always, so that a log whose records are missing before is fenced. What the bad write itself
//! still says of whose records it had is taken for a warning: a log must have them, from wherever, or is fenced. When all
//! its logs are settled the file becomes `<shard>-<number>-aside`; it is not read any more, and never removed.

use super::COMMIT_LOG_FOLDER;
use super::judge::{Candidate, judge};
use super::read_file::{FileFound, read_file, read_up_to};
use crate::disk::checkpoint::{CheckpointSet, LogKey};
use crate::disk::files::unlink_if_there;
use crate::ids::Offset;
use corelog_reactor::{File, OpenHow, Reactor};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What stands in the name of a damaged file, before the sequence,
const DAMAGED: &str = "damaged";
/// and in the name of one that is not read any more.
const ASIDE: &str = "aside";

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
    /// Whether the write holds. If not, this is what is left of its headers: the log must have these records, but not from
    /// here.
    pub is_sound: bool,
    /// Where they start in the file.
    pub(super) at: u64,
    pub(super) file: Arc<Path>,
}

/// A file that nobody needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoneWith {
    /// Where it is.
    pub path: PathBuf,
    /// It is kept, for whoever wants to look into it.
    pub is_damaged: bool,
}

impl DoneWith {
    /// A file that may go.
    pub(super) const fn of(path: PathBuf) -> Self {
        Self { path, is_damaged: false }
    }
}

/// Reads entries' batches. A file stays open while anybody reads: at a start thousands of logs do, and each has entries in
/// all of them.
pub struct EntryReader {
    reactor: Reactor,
    readers: Cell<usize>,
    files: RefCell<HashMap<Arc<Path>, Rc<File>>>,
}

/// One who reads entries.
pub struct Reading<'r>(&'r EntryReader);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.readers.set(self.0.readers.get() - 1);
        if self.0.readers.get() == 0 {
            self.0.files.borrow_mut().clear();
        }
    }
}

impl EntryReader {
    /// Nothing is open yet.
    #[must_use]
    pub fn new(reactor: Reactor) -> Self {
        Self { reactor, readers: Cell::default(), files: RefCell::default() }
    }

    /// Begins to read.
    #[must_use]
    pub fn begin(&self) -> Reading<'_> {
        self.readers.set(self.readers.get() + 1);
        Reading(self)
    }

    async fn file(&self, path: &Arc<Path>) -> io::Result<Rc<File>> {
        let open = self.files.borrow().get(path).cloned();
        if let Some(file) = open {
            return Ok(file);
        }
        let file = Rc::new(self.reactor.open(path, OpenHow::read()).await?);
        self.files.borrow_mut().insert(path.clone(), file.clone());
        Ok(file)
    }
}

impl Reading<'_> {
    /// The batches of an entry that is sound. They were checked at the start, and are to be checked again.
    ///
    /// # Errors
    /// As the disk gives them.
    pub async fn read(&self, entry: &Entry) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; entry.bytes as usize];
        let have = read_up_to(&*self.0.file(&entry.file).await?, &mut bytes, entry.at).await?;
        if have < bytes.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(bytes)
    }
}

#[derive(Debug, Default)]
struct Left {
    /// In their order, so that a run with the same seed settles them alike.
    logs: BTreeMap<LogKey, Vec<Entry>>,
    files: HashMap<Arc<Path>, FileLeft>,
}

#[derive(Debug)]
struct FileLeft {
    /// How many logs are not settled that have entries in it.
    logs: usize,
    is_damaged: bool,
}

/// A file's name, taken apart.
struct Name {
    text: String,
    shard: String,
    number: u64,
    /// Of a damaged one.
    proved: Option<u64>,
    is_aside: bool,
}

impl Name {
    /// `None` if it is no commit log's.
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split('-');
        let number_in = |word: &str| word.bytes().all(|b| b.is_ascii_digit()).then(|| word.parse::<u64>().ok())?;
        let shard = words.next().filter(|word| number_in(word).is_some())?.to_owned();
        let number = number_in(words.next()?)?;
        let (proved, is_aside) = match words.next() {
            None => (None, false),
            Some(DAMAGED) => (Some(number_in(words.next()?)?), false),
            Some(ASIDE) => (None, true),
            Some(_) => return None,
        };
        words.next().is_none().then(|| Self { text: text.to_owned(), shard, number, proved, is_aside })
    }
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
    /// Reads the commit logs of a data folder. Entries that lie before what `checkpoints` name as the first to count are
    /// left out; files without any other are removed.
    ///
    /// # Errors
    /// When a file cannot be read, or is of another version: without it acknowledged records may be missing.
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
        // A file whose removal was not durable could come back later, with sequences that this run gives out again.
        reactor.sync_dir(&folder).await.map_err(|error| (folder.clone(), error))?;
        let names: Vec<Name> =
            listed.iter().filter(|e| !e.is_dir).filter_map(|e| Name::parse(e.name.to_str()?)).collect();
        replay.next_number = names.iter().map(|name| name.number + 1).max().unwrap_or(0);
        tell_of_those_aside(&folder, &names);
        let counts = |key: &LogKey, sequence| checkpoints.get(key).is_none_or(|log| sequence >= log.replay_from);
        let mut files = Vec::new();
        for name in names.into_iter().filter(|name| !name.is_aside) {
            let path: Arc<Path> = folder.join(&name.text).into();
            let found = read_file(reactor, &path, counts).await.map_err(|error| (path.to_path_buf(), error))?;
            replay.next_sequence = replay.next_sequence.max(found.reached());
            // No later file may have the number of one that this one goes by.
            replay.next_number = replay.next_number.max(found.in_use.map_or(0, |of| of.follows));
            files.push((name, path, found));
        }
        let damaged = judge_all(reactor, &folder, &mut files).await?;
        if damaged {
            // What the bad writes are: behind all that their files can hold, and the ones before.
            let blocks: u64 = files.iter().map(|(_, _, found)| found.blocks).sum();
            replay.next_sequence += blocks;
        }
        let mut left = Left::default();
        let mut done_with = Vec::new();
        for (name, path, found) in files {
            let is_damaged = name.proved.is_some();
            let mut keys = BTreeSet::new();
            for (key, entry) in found.entries.into_iter().chain(found.named) {
                keys.insert(key);
                left.logs.entry(key).or_default().push(Entry { file: path.clone(), ..entry });
            }
            if keys.is_empty() {
                done_with.push(DoneWith { path: path.to_path_buf(), is_damaged });
            } else {
                left.files.insert(path, FileLeft { logs: keys.len(), is_damaged });
            }
        }
        for entries in left.logs.values_mut() {
            entries.sort_by_key(|entry| (entry.sequence, entry.start));
            drop_what_was_cut_off(entries);
        }
        replay.left = Mutex::new(left);
        put_away(reactor, &folder, done_with).await;
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

    /// The logs that are not settled, in order.
    #[must_use]
    pub fn logs(&self) -> Vec<LogKey> {
        self.lock().logs.keys().copied().collect()
    }

    /// The log needs its entries no more: they are durable in its segment, or it is gone. Returns the files that nobody
    /// needs now.
    #[must_use]
    pub fn settle(&self, key: &LogKey) -> Vec<DoneWith> {
        let mut left = self.lock();
        let Some(entries) = left.logs.remove(key) else { return Vec::new() };
        let files: BTreeSet<Arc<Path>> = entries.into_iter().map(|entry| entry.file).collect();
        let mut done_with = Vec::new();
        for file in files {
            if let Some(of) = left.files.get_mut(&file) {
                of.logs -= 1;
                if of.logs == 0 {
                    let is_damaged = of.is_damaged;
                    left.files.remove(&file);
                    done_with.push(DoneWith { path: file.to_path_buf(), is_damaged });
                }
            }
        }
        done_with
    }
}

/// An entry that starts before an earlier one ends: what was there was cut off meanwhile. The checkpoint says so as well,
/// unless it is lost. Only entries of the same segment tell: one that starts anew begins a later one.
fn drop_what_was_cut_off(entries: &mut Vec<Entry>) {
    let mut kept: Vec<Entry> = Vec::with_capacity(entries.len());
    for entry in entries.drain(..) {
        if entry.is_sound {
            while kept.last().is_some_and(|last| last.is_sound && last.start >= entry.start) {
                kept.pop();
            }
        }
        kept.push(entry);
    }
    *entries = kept;
}

fn tell_of_those_aside(folder: &Path, names: &[Name]) {
    let aside: Vec<&str> = names.iter().filter(|name| name.is_aside).map(|name| name.text.as_str()).collect();
    if let Some(first) = aside.first() {
        tracing::warn!(
            folder = %folder.display(),
            count = aside.len(),
            first,
            "damaged commit logs are kept: remove them when nobody needs them"
        );
    }
}

/// Finds the damaged files, tells of them, and gives them the name that says so. Returns whether there are any.
async fn judge_all(
    reactor: &Reactor,
    folder: &Path,
    files: &mut [(Name, Arc<Path>, FileFound)],
) -> Result<bool, (PathBuf, io::Error)> {
    let candidates: Vec<Candidate<'_>> = files
        .iter()
        .map(|(name, _, found)| Candidate { shard: &name.shard, number: name.number, found, proved: name.proved })
        .collect();
    let judged = judge(&candidates);
    let mut are_new = false;
    for ((name, path, found), judged) in files.iter_mut().zip(&judged) {
        let proved = judged.as_ref().map(|damaged| damaged.proved);
        found.named.retain(|(_, entry)| proved.is_some_and(|proved| entry.sequence <= proved));
        let Some(damaged) = judged else { continue };
        tracing::error!(
            path = %path.display(),
            header = found.header.is_ok(),
            missing = damaged.missing,
            last = damaged.proved,
            "a commit log is damaged: what was durable does not hold. Logs that miss records are fenced where that shows; the \
             file is kept. Look for the disk's errors in `dmesg`"
        );
        if name.proved >= proved {
            continue;
        }
        let text = format!("{}-{}-{DAMAGED}-{}", name.shard, name.number, damaged.proved);
        let to: Arc<Path> = folder.join(&text).into();
        reactor.rename(path, &to).await.map_err(|error| (path.to_path_buf(), error))?;
        (name.text, name.proved, *path) = (text, proved, to);
        are_new = true;
    }
    if are_new {
        // Before the files that prove it may go.
        reactor.sync_dir(folder).await.map_err(|error| (folder.to_path_buf(), error))?;
    }
    Ok(judged.iter().any(Option::is_some))
}

/// Removes files that nobody needs; damaged ones get a name under which they are not read any more. One that comes back,
/// after a crash or because this failed, is read again, and does no harm.
pub(crate) async fn put_away(reactor: &Reactor, folder: &Path, files: Vec<DoneWith>) {
    if files.is_empty() {
        return;
    }
    for file in files {
        let path = file.path;
        let result = match path.file_name().and_then(|name| Name::parse(name.to_str()?)) {
            Some(name) if file.is_damaged => {
                let to = folder.join(format!("{}-{}-{ASIDE}", name.shard, name.number));
                reactor.rename(&path, &to).await
            }
            Some(_) if !file.is_damaged => unlink_if_there(reactor, &path).await,
            _ => Ok(()),
        };
        if let Err(error) = result {
            tracing::warn!(path = %path.display(), %error, "cannot put a commit log away: the next start does it");
        }
    }
    if let Err(error) = reactor.sync_dir(folder).await {
        tracing::debug!(%error, "commit logs that were put away may come back");
    }
}
