//! The metadata log: what the controller must not forget.
//!
//! Holds: the log's seam (entries, hard state, snapshot: what a Raft log needs, KIP-595 and the Raft paper's figure 2),
//! its file implementation, and how a controller comes back from it.
//! Never touches: what the entries say (`codec`, `state`).

mod file;
mod files;
mod frame;
mod recover;
mod torn;

use std::path::{Path, PathBuf};

use corelog_storage::disk::files::{is_no_space, remedy};
use thiserror::Error;

pub use file::{FileLog, OpenedLog};
pub use recover::{RecoverError, recover};

/// An empty file of this name, in an otherwise empty folder, says that the metadata that was in it is given up.
pub const ACCEPT_LOSS: &str = "accept-loss";

/// One entry: what one request changed, or one message of the quorum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its position, counted from 1, without gaps.
    pub index: u64,
    /// The term of the leader that wrote it.
    pub term: u64,
    /// What it says.
    pub bytes: Vec<u8>,
}

/// What a voter must remember beside its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HardState {
    /// The newest term it has seen.
    pub term: u64,
    /// Whom it gave its vote in that term; -1: nobody.
    pub voted_for: i32,
    /// An index that is committed and durable here. May lag behind: it is not written for every entry. A log that has not
    /// got it does not open: it has lost something.
    pub commit: u64,
}

impl Default for HardState {
    fn default() -> Self {
        Self { term: 0, voted_for: -1, commit: 0 }
    }
}

/// The entry that a snapshot stands for, together with all before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotMeta {
    /// Its index.
    pub index: u64,
    /// Its term.
    pub term: u64,
}

/// Why something could not be written.
#[derive(Debug, Error)]
pub enum LogWriteError {
    /// There is no room. The log is as it was, and can be used.
    #[error("no room for the change: {}{}", .0, remedy(.0))]
    NoSpace(std::io::Error),
    /// Whether it was written is not known. The log refuses everything until the broker has been started again.
    #[error("the metadata log failed to {what}: {error}. Check the disk, then restart the broker")]
    Failed {
        /// What it tried.
        what: &'static str,
        /// What the system says.
        error: std::io::Error,
    },
    /// An earlier write failed.
    #[error("the metadata log failed earlier and refuses writes; restart the broker")]
    Broken,
    /// More than one frame can hold.
    #[error("{bytes} bytes are more than one entry of the metadata log may have")]
    TooLarge {
        /// How many.
        bytes: usize,
    },
}

impl LogWriteError {
    /// Whether there was no room: the same may succeed when there is.
    #[must_use]
    pub const fn is_no_space(&self) -> bool {
        matches!(self, Self::NoSpace(_))
    }
}

/// Why a log cannot be opened.
#[derive(Debug, Error)]
pub enum OpenLogError {
    /// The system refuses.
    #[error("cannot {what} {}: {error}{}", path.display(), remedy(error))]
    Io {
        /// What was tried.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// Bytes in the middle have rotted: valid entries follow.
    #[error(
        "{} is damaged at byte {offset}: entry {expected} cannot be read, but entry {found} behind it can. Nothing was \
         changed. Restore the file from a backup; cutting it there would lose acknowledged changes", path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the damage starts.
        offset: u64,
        /// The entry that should be there.
        expected: u64,
        /// The first entry that can be read again.
        found: u64,
    },
    /// The last entry has rotted.
    #[error(
        "{} is damaged at byte {offset}: entry {expected}, the last one, cannot be read, and no interrupted write leaves such \
         bytes. Nothing was changed. Restore the file from a backup; or, if what that entry changed may be lost, cut it off: \
         truncate -s {offset} {}", path.display(), path.display()
    )]
    Rotten {
        /// The file.
        path: PathBuf,
        /// Where the entry starts.
        offset: u64,
        /// The entry.
        expected: u64,
    },
    /// Entries are missing that are known to have been on the disk.
    #[error(
        "{}: entry {from} cannot be read at byte {offset}, and entries up to {to} were on the disk, as the hard state beside it \
         says. Nothing was changed. {}", path.display(), Fix(path.parent())
    )]
    Lost {
        /// The file.
        path: PathBuf,
        /// Where the first missing entry should start.
        offset: u64,
        /// The first missing entry.
        from: u64,
        /// The last one that is known of.
        to: u64,
    },
    /// There is no log file, and there was one.
    #[error("{} is missing, and {beside} beside it says that it was there. Nothing was changed. {}", path.display(), Fix(path.parent()))]
    NoLog {
        /// The file.
        path: PathBuf,
        /// The file that is there.
        beside: String,
    },
    /// There is no metadata, and there are logs of topics.
    #[error(
        "{} is missing or empty, and there are partitions ({partition}), which only the metadata knows. {}",
        path.display(), Fix(folder.as_path().into())
    )]
    NoMetadata {
        /// The folder, or the file in it.
        path: PathBuf,
        /// The folder.
        folder: PathBuf,
        /// A partition.
        partition: String,
    },
    /// An entry that can be read has the wrong index.
    #[error("{} has entry {found} at byte {offset}, where entry {expected} belongs. Restore it from a backup", path.display())]
    OutOfOrder {
        /// The file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// The entry that should be there.
        expected: u64,
        /// The entry that is.
        found: u64,
    },
    /// A snapshot or the hard state has rotted.
    #[error("{} is damaged: {reason}. Restore it from a backup", path.display())]
    DamagedFile {
        /// The file.
        path: PathBuf,
        /// In what way.
        reason: &'static str,
    },
    /// A file of a later version.
    #[error("{} has format {format}, of a later version of Corelog: start that version again", path.display())]
    UnknownFormat {
        /// The file.
        path: PathBuf,
        /// Its format.
        format: u32,
    },
    /// A file is missing.
    #[error("entries {from} to {to} of the metadata log are in no file of {}. Restore the folder from a backup", path.display())]
    Missing {
        /// The folder.
        path: PathBuf,
        /// The first entry that is missing.
        from: u64,
        /// The last one.
        to: u64,
    },
    /// The hard state is missing.
    #[error("{} has entries of term {term} and no hard state. Restore the folder from a backup", path.display())]
    NoHardState {
        /// The folder.
        path: PathBuf,
        /// The term of the last entry.
        term: u64,
    },
}

impl OpenLogError {
    /// Whether there was no room.
    #[must_use]
    pub fn is_no_space(&self) -> bool {
        matches!(self, Self::Io { error, .. } if is_no_space(error))
    }
}

/// What to do about a folder of metadata that has lost something.
struct Fix<'a>(Option<&'a Path>);

impl std::fmt::Display for Fix<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let folder = self.0.unwrap_or(Path::new("the folder")).display();
        write!(
            f,
            "Restore {folder} from a backup. To begin a new cluster instead, without its topics (their folders are kept as \
             strays): remove {folder} whole, make it anew with an empty file named {ACCEPT_LOSS} in it, and start again"
        )
    }
}

/// The log of the metadata quorum. One caller at a time; a call that returns `Ok` has made its change durable.
#[expect(async_fn_in_trait, reason = "a core's futures stay on its thread")]
pub trait MetadataLog {
    /// What was saved last.
    fn hard_state(&self) -> HardState;

    /// Saves it. Before an entry of a new term is appended, that term is saved. Its `commit` is an entry that is here.
    async fn save_hard_state(&mut self, state: HardState) -> Result<(), LogWriteError>;

    /// The snapshot that the log starts behind.
    fn snapshot_meta(&self) -> Option<SnapshotMeta>;

    /// Reads that snapshot's bytes; `None`: there is none.
    async fn read_snapshot(&self) -> Result<Option<Vec<u8>>, OpenLogError>;

    /// The entries behind the snapshot, in order.
    fn entries(&self) -> &[Entry];

    /// Appends entries, all or none of them: they are behind the last one without a gap.
    async fn append(&mut self, entries: Vec<Entry>) -> Result<(), LogWriteError>;

    /// Drops the entries from this index on, none of them committed: a leader of a later term has others.
    async fn truncate_suffix(&mut self, from: u64) -> Result<(), LogWriteError>;

    /// Replaces all entries up to this one by a snapshot. One that the log has not reached yet (a leader sent it)
    /// replaces all of them.
    async fn save_snapshot(&mut self, meta: SnapshotMeta, bytes: Vec<u8>) -> Result<(), LogWriteError>;

    /// How many bytes the entries behind the snapshot hold: when there are many, it is time for a new one.
    fn bytes_since_snapshot(&self) -> u64;

    /// The index of the first entry that is, or would be, in the log.
    fn first_index(&self) -> u64 {
        self.snapshot_meta().map_or(1, |meta| meta.index + 1)
    }

    /// The index of the last entry, or of the snapshot; 0 when there is neither.
    fn last_index(&self) -> u64 {
        self.first_index() - 1 + self.entries().len() as u64
    }

    /// The term of the entry with this index; `None` when it is not known here.
    fn term_of(&self, index: u64) -> Option<u64> {
        match self.snapshot_meta() {
            Some(meta) if meta.index == index => Some(meta.term),
            _ => self.entry(index).map(|entry| entry.term),
        }
    }

    /// The entry with this index.
    fn entry(&self, index: u64) -> Option<&Entry> {
        let at = usize::try_from(index.checked_sub(self.first_index())?).ok()?;
        self.entries().get(at)
    }
}
