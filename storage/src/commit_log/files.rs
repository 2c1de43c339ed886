//! The files in rotation: which one is written to, which are full, which logs still need them.
//!
//! Holds: the table of files. Never touches: their making and renewal (`upkeep`), the writes (`writer`).
//!
//! ```text
//!           make (upkeep)             switch                  full
//!   (none) ──────────────> Ready ───────────────> Current ──────────> Filled
//!                            ^                                        │    ^
//!                 new header │        everything is in the segments   │    │ no memory for a header
//!                            └──────────────── Renewing <─────────────┘    │
//!                                                  └───────────────────────┘
//! ```

use super::format::FIRST_WRITE;
use corelog_reactor::File;
use std::collections::HashSet;
use std::path::PathBuf;
use std::rc::{Rc, Weak};

/// A log that has bytes in the commit log which its segment has not yet.
pub(crate) trait Holder {
    /// Asks for them to be written to the segment. Returns whether that can be: not if the log is fenced.
    fn ask_write_back(&self) -> bool;
}

/// A file of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId(usize);

/// Where a file is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Has a durable header, and no write of this generation.
    Ready,
    /// Is written to.
    Current,
    /// Takes no more.
    Filled,
    /// Gets a new header.
    Renewing,
}

struct LogFile {
    path: PathBuf,
    number: u64,
    file: Rc<File>,
    generation: u64,
    used: Use,
    /// The sequence of its first write since it got its header.
    first: u64,
    /// The number and one of the file that was written to before it.
    follows: u64,
    /// Where the next write goes.
    end: u64,
    bytes: u64,
    /// Logs that need it, and writes to it that are not over.
    needed_by: usize,
    /// The logs among these, each once. Some may need it no more.
    holders: Vec<Weak<dyn Holder>>,
    /// Where these are in memory.
    listed: HashSet<*const ()>,
}

/// Where a write goes.
pub(super) struct Place {
    pub(super) id: FileId,
    pub(super) file: Rc<File>,
    pub(super) generation: u64,
    pub(super) first: u64,
    pub(super) follows: u64,
    pub(super) position: u64,
}

#[derive(Default)]
pub(super) struct Files {
    files: Vec<LogFile>,
    /// The number and one of the file that was written to last; zero at first.
    last: u64,
}

impl Files {
    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    fn find(&self, which: impl Fn(&LogFile) -> bool) -> Option<usize> {
        let found = self.files.iter().enumerate().filter(|(_, f)| which(f));
        found.min_by_key(|(_, f)| f.generation).map(|(index, _)| index)
    }

    fn with(&mut self, id: FileId, change: impl FnOnce(&mut LogFile)) {
        assert!(id.0 < self.files.len(), "commit-log file {} of {}", id.0, self.files.len());
        if let Some(file) = self.files.get_mut(id.0) {
            change(file);
        }
    }

    /// Takes in a file that has been made.
    pub(super) fn add(&mut self, path: PathBuf, number: u64, file: Rc<File>, generation: u64, bytes: u64) {
        self.files.push(LogFile {
            path,
            number,
            file,
            generation,
            used: Use::Ready,
            first: 0,
            follows: 0,
            end: FIRST_WRITE,
            bytes,
            needed_by: 0,
            holders: Vec::new(),
            listed: HashSet::new(),
        });
    }

    /// Whether a file is ready to follow the current one.
    pub(super) fn has_ready(&self) -> bool {
        self.files.iter().any(|f| f.used == Use::Ready)
    }

    /// The place of the write `sequence`, of at most `bytes_max`; it is needed until it is [released](Self::release).
    /// `None`: no file is free.
    pub(super) fn begin(&mut self, sequence: u64, bytes_max: u64) -> Option<Place> {
        let current = match self.find(|f| f.used == Use::Current) {
            Some(index) if self.files.get(index).is_some_and(|f| f.end + bytes_max <= f.bytes) => index,
            full => {
                if let Some(file) = full.and_then(|index| self.files.get_mut(index)) {
                    file.used = Use::Filled;
                }
                self.find(|f| f.used == Use::Ready)?
            }
        };
        let file = self.files.get_mut(current)?;
        if file.used == Use::Ready {
            file.used = Use::Current;
            file.first = sequence;
            file.follows = std::mem::replace(&mut self.last, file.number + 1);
        }
        file.needed_by += 1;
        let (handle, generation, position) = (file.file.clone(), file.generation, file.end);
        Some(Place {
            id: FileId(current),
            file: handle,
            generation,
            first: file.first,
            follows: file.follows,
            position,
        })
    }

    /// A write will take so many bytes: the next one goes behind them.
    pub(super) fn took(&mut self, id: FileId, bytes: u64) {
        self.with(id, |file| {
            file.end += bytes;
            assert!(file.end <= file.bytes, "writes up to {} of a file of {}", file.end, file.bytes);
        });
    }

    /// A log needs the file, until it gives it back.
    pub(super) fn hold(&mut self, id: FileId, holder: Weak<dyn Holder>) {
        self.with(id, |file| {
            file.needed_by += 1;
            // What is listed here stays in memory, if dead: no other log can come to lie in its place.
            if file.listed.insert(holder.as_ptr().cast()) {
                file.holders.push(holder);
            }
        });
    }

    /// Somebody needs the file no more. Returns whether nobody does now.
    pub(super) fn release(&mut self, id: FileId) -> bool {
        let mut is_free = false;
        self.with(id, |file| {
            assert!(file.needed_by > 0, "commit-log file {} is given back by nobody", file.path.display());
            file.needed_by -= 1;
            is_free = file.needed_by == 0;
        });
        is_free
    }

    /// The oldest full file that nobody needs; it is being renewed from now on.
    pub(super) fn begin_renewal(&mut self) -> Option<(FileId, Rc<File>)> {
        let index = self.find(|f| f.used == Use::Filled && f.needed_by == 0)?;
        let file = self.files.get_mut(index)?;
        file.used = Use::Renewing;
        Some((FileId(index), file.file.clone()))
    }

    /// Whether there is one for [`begin_renewal`](Self::begin_renewal).
    pub(super) fn has_renewable(&self) -> bool {
        self.files.iter().any(|f| f.used == Use::Filled && f.needed_by == 0)
    }

    /// The file got no new header, and its old one is what it was: it is full again.
    pub(super) fn not_renewed(&mut self, id: FileId) {
        self.with(id, |file| file.used = Use::Filled);
    }

    /// The file has a new header.
    pub(super) fn renewed(&mut self, id: FileId, generation: u64) {
        self.with(id, |file| {
            assert!(generation > file.generation, "generation {generation} after {}", file.generation);
            file.generation = generation;
            file.used = Use::Ready;
            file.end = FIRST_WRITE;
            file.holders.clear();
            file.listed.clear();
        });
    }

    /// The logs that may need full files, for each file, oldest first.
    pub(super) fn holders_of_filled(&self) -> Vec<Vec<Weak<dyn Holder>>> {
        let mut filled: Vec<&LogFile> = self.files.iter().filter(|f| f.used == Use::Filled).collect();
        filled.sort_by_key(|f| f.generation);
        filled.into_iter().map(|f| f.holders.clone()).collect()
    }

    /// The logs that may need any file.
    pub(super) fn holders(&self) -> Vec<Weak<dyn Holder>> {
        self.files.iter().flat_map(|f| f.holders.iter().cloned()).collect()
    }

    /// Takes out the files that nobody needs, for good.
    pub(super) fn take_free(&mut self) -> Vec<PathBuf> {
        // Numbers of files stay what they are: those who hold one know it by its number. So the table keeps its places.
        let free = self.files.iter_mut().filter(|f| f.needed_by == 0 && f.used != Use::Renewing);
        free.map(|f| {
            f.used = Use::Renewing;
            f.path.clone()
        })
        .collect()
    }
}
