//! Holds: the FUSE disk's whole state: files, folders, and the changes of folder entries that are not yet on stable storage.
//! Never touches: FUSE, threads, the clock (times come in as arguments).

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::time::SystemTime;

use super::super::random::Random;
use super::content::{Content, PAGE_BYTES, SyncTicket};
pub use super::names::Entries;
use super::names::{Change, Name};

/// Number of an inode; the root folder is 1.
pub type Ino = u64;
/// The root folder's inode number, as FUSE has it.
pub const ROOT: Ino = 1;

/// An error number as in `errno(3)`.
pub type Errno = i32;
/// What an operation gives back.
pub type Answer<T> = Result<T, Errno>;

/// What a fault rule refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultOn {
    /// Reads of the file.
    Read,
    /// Writes, truncation and allocation of the file.
    Write,
    /// Syncs of the file or folder.
    Sync,
    /// Creating, renaming or removing the entry.
    Entry,
}

/// Operations on paths that contain `path_part` fail with `errno` until the rule is lifted.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Any part of the path below the mount point.
    pub path_part: String,
    /// Which operations fail.
    pub on: FaultOn,
    /// With what.
    pub errno: Errno,
}

/// What has happened on the disk since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// FSYNC requests for files (`fsync`, `fdatasync`, `O_DSYNC` and `RWF_DSYNC` writes).
    pub file_syncs: u64,
    /// FSYNCDIR requests.
    pub dir_syncs: u64,
    /// WRITE requests.
    pub writes: u64,
    /// Bytes in them.
    pub bytes_written: u64,
    /// READ requests.
    pub reads: u64,
    /// Files created.
    pub creates: u64,
    /// Renames.
    pub renames: u64,
    /// Files and folders removed.
    pub removals: u64,
    /// Requests refused by a fault rule or by the capacity.
    pub refusals: u64,
}

/// What a power cut lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CutReport {
    /// Files with unsynced bytes or length at the cut.
    pub files_unsynced: u64,
    /// Sectors and lengths that fell back to their synced state.
    pub sectors_lost: u64,
    /// Changes of folder entries that were not synced.
    pub entries_unsynced: u64,
    /// Those that were undone.
    pub entries_lost: u64,
}

/// A file or a folder.
#[derive(Debug)]
pub struct Inode {
    /// Its bytes, or its entries.
    pub body: Body,
    /// Permission bits.
    pub mode: u32,
    /// Owner and group.
    pub owner: (u32, u32),
    /// Last change of the bytes or entries.
    pub modified: SystemTime,
    /// Open handles on it.
    pub opens: u64,
    /// Where it was last linked, for fault rules.
    pub(super) home: Name,
}

/// What an inode holds.
#[derive(Debug)]
pub enum Body {
    /// A file's bytes.
    File(Content),
    /// A folder's entries.
    Dir(Entries),
}

/// The disk.
#[derive(Debug)]
pub struct Model {
    pub(super) inodes: BTreeMap<Ino, Inode>,
    pub(super) next_ino: Ino,
    stamp: u64,
    pub(super) pending: Vec<Change>,
    /// Bytes that fit on the disk.
    pub capacity: u64,
    /// The fault rules in force.
    pub faults: Vec<Fault>,
    /// What has happened so far.
    pub counters: Counters,
}

impl Model {
    /// An empty disk of `capacity` bytes.
    pub fn new(capacity: u64, owner: (u32, u32), now: SystemTime) -> Model {
        let root = Inode {
            body: Body::Dir(Entries::default()),
            mode: 0o755,
            owner,
            modified: now,
            opens: 0,
            home: (ROOT, OsString::new()),
        };
        Model {
            inodes: BTreeMap::from([(ROOT, root)]),
            next_ino: ROOT + 1,
            stamp: 1,
            pending: Vec::new(),
            capacity,
            faults: Vec::new(),
            counters: Counters::default(),
        }
    }

    /// The inode `ino`.
    pub fn inode(&self, ino: Ino) -> Answer<&Inode> {
        self.inodes.get(&ino).ok_or(libc::ENOENT)
    }

    /// The inode `ino`, to be changed.
    pub fn inode_mut(&mut self, ino: Ino) -> Answer<&mut Inode> {
        self.inodes.get_mut(&ino).ok_or(libc::ENOENT)
    }

    /// Live bytes of a file.
    pub fn read(&mut self, ino: Ino, offset: u64, len: usize) -> Answer<Vec<u8>> {
        self.check_faults(ino, FaultOn::Read)?;
        self.counters.reads += 1;
        Ok(self.content(ino)?.read(offset, len))
    }

    /// Writes to the live state of a file.
    pub fn write(&mut self, ino: Ino, offset: u64, data: &[u8], now: SystemTime) -> Answer<()> {
        self.check_faults(ino, FaultOn::Write)?;
        let missing = self.content(ino)?.pages_missing(offset, data.len() as u64);
        self.check_room(missing)?;
        self.counters.writes += 1;
        self.counters.bytes_written += data.len() as u64;
        let stamp = self.next_stamp();
        self.content_mut(ino, now)?.write(offset, data, stamp);
        Ok(())
    }

    /// Sets the live length of a file.
    pub fn truncate(&mut self, ino: Ino, len: u64, now: SystemTime) -> Answer<()> {
        self.check_faults(ino, FaultOn::Write)?;
        let stamp = self.next_stamp();
        self.content_mut(ino, now)?.truncate(len, stamp);
        Ok(())
    }

    /// `fallocate(2)` with the modes that Linux file systems have in common; others are refused with EOPNOTSUPP.
    pub fn allocate(&mut self, ino: Ino, mode: i32, offset: u64, len: u64, now: SystemTime) -> Answer<()> {
        self.check_faults(ino, FaultOn::Write)?;
        let keep_len = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        let stamp = self.next_stamp();
        match mode & !libc::FALLOC_FL_KEEP_SIZE {
            0 | libc::FALLOC_FL_ZERO_RANGE => {
                let missing = self.content(ino)?.pages_missing(offset, len);
                self.check_room(missing)?;
                let content = self.content_mut(ino, now)?;
                if mode & libc::FALLOC_FL_ZERO_RANGE != 0 {
                    content.zero_range(offset, len, false, stamp);
                }
                content.allocate(offset, len, keep_len, stamp);
                Ok(())
            }
            libc::FALLOC_FL_PUNCH_HOLE if keep_len => {
                self.content_mut(ino, now)?.zero_range(offset, len, true, stamp);
                Ok(())
            }
            _ => Err(libc::EOPNOTSUPP),
        }
    }

    /// Starts a file's sync: what was written before now will be durable when it has finished.
    pub fn begin_sync(&mut self, ino: Ino) -> Answer<SyncTicket> {
        self.check_faults(ino, FaultOn::Sync)?;
        self.counters.file_syncs += 1;
        Ok(self.content(ino)?.begin_sync())
    }

    /// Finishes it.
    pub fn finish_sync(&mut self, ino: Ino, ticket: SyncTicket) -> Answer<()> {
        match &mut self.inode_mut(ino)?.body {
            Body::File(content) => content.finish_sync(ticket),
            Body::Dir(_) => return Err(libc::EISDIR),
        }
        Ok(())
    }

    /// The power goes. Only what was synced is sure to be there afterwards; the rest is left to chance.
    pub fn cut(&mut self, random: &mut Random) -> CutReport {
        let mut report = CutReport { entries_unsynced: self.pending.len() as u64, ..CutReport::default() };
        report.entries_lost = self.cut_entries(random);
        for inode in self.inodes.values_mut() {
            inode.opens = 0;
            match &mut inode.body {
                Body::Dir(entries) => entries.live = entries.stable.clone(),
                Body::File(content) => {
                    report.files_unsynced += u64::from(content.is_dirty());
                    let survival = self::survival(random);
                    report.sectors_lost += content.cut(random, survival);
                }
            }
        }
        self.drop_unreachable();
        report
    }

    /// Bytes that are taken.
    pub fn bytes_used(&self) -> u64 {
        let pages = |inode: &Inode| match &inode.body {
            Body::File(content) => content.pages_allocated(),
            Body::Dir(_) => 1,
        };
        self.inodes.values().map(pages).sum::<u64>() * PAGE_BYTES as u64
    }

    pub(super) fn entries(&self, dir: Ino) -> Answer<&Entries> {
        match &self.inode(dir)?.body {
            Body::Dir(entries) => Ok(entries),
            Body::File(_) => Err(libc::ENOTDIR),
        }
    }

    pub(super) fn content(&self, ino: Ino) -> Answer<&Content> {
        match &self.inode(ino)?.body {
            Body::File(content) => Ok(content),
            Body::Dir(_) => Err(libc::EISDIR),
        }
    }

    fn content_mut(&mut self, ino: Ino, now: SystemTime) -> Answer<&mut Content> {
        let inode = self.inode_mut(ino)?;
        inode.modified = now;
        match &mut inode.body {
            Body::File(content) => Ok(content),
            Body::Dir(_) => Err(libc::EISDIR),
        }
    }

    fn next_stamp(&mut self) -> u64 {
        self.stamp += 1;
        self.stamp
    }

    pub(super) fn check_room(&mut self, pages: u64) -> Answer<()> {
        if self.bytes_used() + pages * PAGE_BYTES as u64 > self.capacity {
            self.counters.refusals += 1;
            return Err(libc::ENOSPC);
        }
        Ok(())
    }

    pub(super) fn check_entry_faults(&mut self, places: &[(Ino, &OsStr)]) -> Answer<()> {
        if self.faults.is_empty() {
            return Ok(());
        }
        for &(dir, name) in places {
            let path = self.path_of(dir).join(name);
            self.refuse_if_faulty(&path, FaultOn::Entry)?;
        }
        Ok(())
    }

    pub(super) fn check_faults(&mut self, ino: Ino, on: FaultOn) -> Answer<()> {
        if self.faults.is_empty() {
            return Ok(());
        }
        let path = self.path_of(ino);
        self.refuse_if_faulty(&path, on)
    }

    fn refuse_if_faulty(&mut self, path: &std::path::Path, on: FaultOn) -> Answer<()> {
        let path = path.to_string_lossy();
        let hit =
            self.faults.iter().find(|fault| fault.on == on && path.contains(&fault.path_part)).map(|fault| fault.errno);
        match hit {
            Some(errno) => {
                self.counters.refusals += 1;
                Err(errno)
            }
            None => Ok(()),
        }
    }
}

/// How likely the unsynced survives, in a thousand: often nothing, sometimes all, else a mixture.
pub(super) fn survival(random: &mut Random) -> u64 {
    match random.below(10) {
        0..4 => 0,
        4..5 => 1_000,
        5..6 => 950,
        6..7 => 100,
        _ => 500,
    }
}
