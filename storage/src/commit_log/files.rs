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
    /// Whether some are in this file, and can be written to the segment: not if the log is fenced.
    fn can_do_without(&self, file: FileId) -> bool;

    /// Asks for them to be written to the segment, if that can be.
    fn ask_write_back(&self);
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
    /// How much of it is taken up: it is full when all its bytes are, in the file or in memory (`CommitLog::share`).
    taken: u64,
    /// Logs that need it, and writes to it that are not over.
    needed_by: usize,
    /// The logs among these, each once. Some may need it no more.
    holders: Vec<Weak<dyn Holder>>,
    /// Where these are in memory.
    listed: HashSet<*const ()>,
    /// So many of them were asked to do without it.
    asked: usize,
    /// None of those that need it can do without it.
    is_stuck: bool,
}

/// A full file that is to be free in time.
pub(super) struct Due {
    pub(super) id: FileId,
    /// Logs that need it.
    pub(super) needed_by: u64,
    /// Bytes that can be written until it is wanted.
    pub(super) left: u64,
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
            taken: 0,
            needed_by: 0,
            holders: Vec::new(),
            listed: HashSet::new(),
            asked: 0,
            is_stuck: false,
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
            Some(index) if self.files.get(index).is_some_and(|f| f.end + bytes_max <= f.bytes && f.taken < f.bytes) => {
                index
            }
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

    /// A write will take so many bytes: the next one goes behind them. Of what the file can take, that is `share`.
    pub(super) fn took(&mut self, id: FileId, bytes: u64, share: u64) {
        self.with(id, |file| {
            file.end += bytes;
            file.taken += share;
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

    /// Forgets up to `max` of the logs that held a file which nobody needs. Returns whether there are more.
    pub(super) fn forget_holders(&mut self, id: FileId, max: usize) -> bool {
        let mut has_more = false;
        self.with(id, |file| {
            file.listed.clear();
            file.holders.truncate(file.holders.len().saturating_sub(max));
            has_more = !file.holders.is_empty();
        });
        has_more
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
            file.taken = 0;
            assert!(file.holders.is_empty(), "a commit-log file was renewed before its logs were forgotten");
            file.asked = 0;
            file.is_stuck = false;
        });
    }

    /// The oldest full file of which somebody is still to be asked, and how much can be written until it is wanted, where so many more files
    /// of `file_bytes` can be made.
    pub(super) fn due(&self, more: usize, file_bytes: u64) -> Option<Due> {
        let index = self.find(|f| f.used == Use::Filled && f.needed_by > 0 && f.asked < f.holders.len())?;
        let needed_by = self.files.get(index)?.needed_by as u64;
        let free = self.files.iter().filter(|f| match f.used {
            Use::Ready | Use::Renewing => true,
            // All were asked to do without it, or nobody needs it.
            Use::Filled => f.asked >= f.holders.len() && !f.is_stuck,
            Use::Current => false,
        });
        let free = (free.count() + more) as u64 * file_bytes;
        Some(Due { id: FileId(index), needed_by, left: free + self.rest() })
    }

    /// What the current file can still take.
    pub(super) fn rest(&self) -> u64 {
        let current = self.files.iter().find(|f| f.used == Use::Current);
        current.map_or(0, |f| f.bytes.saturating_sub(f.taken.max(f.end)))
    }

    /// Asks the next log that needs the file, and can, to do without it. Returns whether there was one.
    pub(super) fn ask_next(&mut self, id: FileId) -> bool {
        let mut was_asked = false;
        self.with(id, |file| {
            // To the one after it, so that it is known when there is none.
            while let Some(holder) = file.holders.get(file.asked) {
                if let Some(holder) = holder.upgrade().filter(|holder| holder.can_do_without(id)) {
                    if was_asked {
                        break;
                    }
                    holder.ask_write_back();
                    was_asked = true;
                }
                file.asked += 1;
            }
        });
        was_asked
    }

    /// Asks up to `max` logs, from the first again once all have been. Returns how many there were.
    pub(super) fn ask_many(&mut self, id: FileId, max: usize) -> usize {
        self.with(id, |file| {
            if file.asked >= file.holders.len() {
                file.asked = 0;
            }
        });
        let asked = (0..max).take_while(|_| self.ask_next(id)).count();
        self.with(id, |file| file.is_stuck = asked == 0);
        asked
    }

    /// The full files that somebody needs, oldest first.
    pub(super) fn filled(&self) -> Vec<FileId> {
        let filled = self.files.iter().enumerate().filter(|(_, f)| f.used == Use::Filled && f.needed_by > 0);
        let mut filled: Vec<(usize, u64)> = filled.map(|(index, f)| (index, f.generation)).collect();
        filled.sort_by_key(|(_, generation)| *generation);
        filled.into_iter().map(|(index, _)| FileId(index)).collect()
    }

    /// The logs that are listed with a file.
    #[cfg(test)]
    pub(super) fn holders_of(&self, id: FileId) -> usize {
        self.files.get(id.0).map_or(0, |f| f.holders.len())
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
