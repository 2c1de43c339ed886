//! One node's file system: what programs see, and what a power cut leaves.
//!
//! Holds: inodes, folders, what of them is durable. Never touches: time, faults, handles.
//!
//! The model is stricter than any one real file system:
//! - File bytes are durable when written with Dsync or fsynced. Else each 512-byte sector is old or new after a crash.
//! - A length is durable when a Dsync write reaches it or the file is fsynced. Else it is the old, the new, or between.
//! - Folder changes (create, rename, unlink, mkdir) are durable after an fsync of the folder, and not by an fsync of
//!   the file. Else each of them, whole, survives or not. Syncing one of the folders of a rename syncs the rename.
//! - A failed fsync forgets that its sectors were dirty, as Linux does: a later fsync that succeeds does not save them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path};

use super::rng::Rng;
use super::sparse::Sparse;
use crate::driver::{DirEntry, OpenHow};

pub(super) const SECTOR: u64 = 512;
const ROOT: Ino = 0;

pub(super) type Ino = u64;
/// A negated errno is never stored: these are positive.
type Errno = i32;

/// A sector that differs, or may differ, from its durable version.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Dirty {
    /// The next fsync saves it.
    Pending,
    /// A failed fsync dropped it: nothing saves it but writing it again.
    Dropped,
}

#[derive(Default)]
struct FileData {
    seen: Sparse,
    durable: Sparse,
    dirty: BTreeMap<u64, Dirty>,
}

#[derive(Default)]
struct Folder {
    seen: BTreeMap<OsString, Ino>,
    durable: BTreeMap<OsString, Ino>,
}

enum Kind {
    File(FileData),
    Folder(Folder),
}

struct Inode {
    kind: Kind,
    /// Open handles and operations in flight.
    users: u32,
}

/// One folder change, whole or not at all: which names of which folders then mean what.
struct Change(Vec<(Ino, OsString, Option<Ino>)>);

pub(super) struct FileSystem {
    inodes: HashMap<Ino, Inode>,
    next_ino: Ino,
    changes: Vec<Change>,
}

fn sectors(offset: u64, len: u64) -> std::ops::Range<u64> {
    if len == 0 { 0..0 } else { offset / SECTOR..(offset + len).div_ceil(SECTOR) }
}

impl FileData {
    fn write(&mut self, offset: u64, data: &[u8], durable: bool) {
        self.seen.write(offset, data);
        if durable {
            self.durable.write(offset, data);
        }
        for sector in sectors(offset, data.len() as u64) {
            // A part of a sector made durable keeps the rest of it as dirty as it was.
            let whole = sector * SECTOR >= offset && (sector + 1) * SECTOR <= offset + data.len() as u64;
            if durable && whole {
                self.dirty.remove(&sector);
            } else if !durable {
                self.dirty.insert(sector, Dirty::Pending);
            }
        }
    }

    fn set_len(&mut self, len: u64) {
        let old = self.seen.len();
        self.seen.set_len(len);
        // What was cut off is zero from now on, though not yet durably so.
        for sector in sectors(len, self.durable.len().max(old).saturating_sub(len)) {
            self.dirty.insert(sector, Dirty::Pending);
        }
    }

    fn sync(&mut self) {
        let mut bytes = [0; SECTOR as usize];
        self.durable.set_len(self.seen.len());
        self.dirty.retain(|sector, state| {
            if *state == Dirty::Dropped {
                return true;
            }
            let at = sector * SECTOR;
            let there = self.seen.read(at, &mut bytes);
            self.durable.write(at, bytes.get(..there).unwrap_or_default());
            false
        });
    }

    fn drop_dirty(&mut self) {
        self.dirty.values_mut().for_each(|state| *state = Dirty::Dropped);
    }

    /// What the power cut leaves becomes all there is.
    fn crash(&mut self, rng: &mut Rng) {
        // Files differ in how they are torn: by sector, wholly old, wholly new, new up to a point.
        let style = rng.below(4);
        let (old_len, new_len) = (self.durable.len(), self.seen.len());
        let len = match (style, rng.below(3)) {
            (1, _) | (0, 0) | (3, 0) => old_len,
            (2, _) | (0, 1) | (3, 1) => new_len,
            _ => old_len.min(new_len) + rng.below(old_len.abs_diff(new_len) + 1),
        };
        let torn_at = rng.below(self.dirty.len() as u64 + 1);
        let mut bytes = [0; SECTOR as usize];
        for (nth, (sector, _)) in std::mem::take(&mut self.dirty).into_iter().enumerate() {
            let new = match style {
                1 => false,
                2 => true,
                3 => (nth as u64) < torn_at,
                _ => rng.coin(),
            };
            if new {
                let at = sector * SECTOR;
                self.seen.copy_out(at, &mut bytes);
                self.durable.write(at, &bytes);
            }
        }
        self.durable.set_len(len);
        self.seen = self.durable.clone();
    }
}

impl FileSystem {
    pub fn new() -> FileSystem {
        let root = Inode { kind: Kind::Folder(Folder::default()), users: 0 };
        FileSystem { inodes: HashMap::from([(ROOT, root)]), next_ino: ROOT + 1, changes: Vec::new() }
    }

    // ---- names ----

    fn folder(&self, ino: Ino) -> Result<&Folder, Errno> {
        match self.inodes.get(&ino).map(|inode| &inode.kind) {
            Some(Kind::Folder(folder)) => Ok(folder),
            Some(Kind::File(_)) => Err(libc::ENOTDIR),
            None => Err(libc::ENOENT),
        }
    }

    fn file_mut(&mut self, ino: Ino) -> Result<&mut FileData, Errno> {
        match self.inodes.get_mut(&ino).map(|inode| &mut inode.kind) {
            Some(Kind::File(file)) => Ok(file),
            Some(Kind::Folder(_)) => Err(libc::EISDIR),
            None => Err(libc::EIO),
        }
    }

    fn file(&self, ino: Ino) -> Result<&FileData, Errno> {
        match self.inodes.get(&ino).map(|inode| &inode.kind) {
            Some(Kind::File(file)) => Ok(file),
            Some(Kind::Folder(_)) => Err(libc::EISDIR),
            None => Err(libc::EIO),
        }
    }

    fn names(path: &Path) -> Vec<&OsStr> {
        let mut names = Vec::new();
        for part in path.components() {
            match part {
                Component::Normal(name) => names.push(name),
                Component::ParentDir => drop(names.pop()),
                Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
            }
        }
        names
    }

    /// Relative paths start at the root.
    pub fn find(&self, path: &Path) -> Result<Ino, Errno> {
        let mut at = ROOT;
        for name in Self::names(path) {
            at = self.folder(at)?.seen.get(name).copied().ok_or(libc::ENOENT)?;
        }
        Ok(at)
    }

    fn find_parent(&self, path: &Path) -> Result<(Ino, OsString), Errno> {
        let mut names = Self::names(path);
        let name = names.pop().ok_or(libc::EEXIST)?.to_os_string();
        let parent = self.find(&names.iter().collect::<std::path::PathBuf>())?;
        self.folder(parent)?;
        Ok((parent, name))
    }

    pub fn is_folder(&self, ino: Ino) -> bool {
        self.folder(ino).is_ok()
    }

    fn add(&mut self, kind: Kind) -> Ino {
        let ino = self.next_ino;
        self.next_ino += 1;
        self.inodes.insert(ino, Inode { kind, users: 0 });
        ino
    }

    fn change(&mut self, change: Change) {
        for (folder, name, ino) in &change.0 {
            if let Some(Inode { kind: Kind::Folder(folder), .. }) = self.inodes.get_mut(folder) {
                assign(&mut folder.seen, name, *ino);
            }
        }
        self.changes.push(change);
    }

    pub fn open(&mut self, path: &Path, how: OpenHow) -> Result<Ino, Errno> {
        let ino = match self.find(path) {
            Ok(_) if how.create_new => return Err(libc::EEXIST),
            Ok(ino) => ino,
            Err(libc::ENOENT) if how.create || how.create_new => {
                let (parent, name) = self.find_parent(path)?;
                let ino = self.add(Kind::File(FileData::default()));
                self.change(Change(vec![(parent, name, Some(ino))]));
                ino
            }
            Err(errno) => return Err(errno),
        };
        let folder = self.is_folder(ino);
        if folder && how.write {
            return Err(libc::EISDIR);
        }
        if !folder && how.directory {
            return Err(libc::ENOTDIR);
        }
        if how.truncate && !folder && self.file(ino)?.seen.len() > 0 {
            self.file_mut(ino)?.set_len(0);
        }
        self.hold(ino);
        Ok(ino)
    }

    pub fn mkdir(&mut self, path: &Path) -> Result<(), Errno> {
        if self.find(path).is_ok() {
            return Err(libc::EEXIST);
        }
        let (parent, name) = self.find_parent(path)?;
        let ino = self.add(Kind::Folder(Folder::default()));
        self.change(Change(vec![(parent, name, Some(ino))]));
        Ok(())
    }

    pub fn unlink(&mut self, path: &Path, directory: bool) -> Result<(), Errno> {
        let ino = self.find(path)?;
        let (parent, name) = self.find_parent(path)?;
        match (self.folder(ino), directory) {
            (Ok(_), false) => return Err(libc::EISDIR),
            (Err(_), true) => return Err(libc::ENOTDIR),
            (Ok(folder), true) if !folder.seen.is_empty() => return Err(libc::ENOTEMPTY),
            (Ok(_), true) | (Err(_), false) => {}
        }
        self.change(Change(vec![(parent, name, None)]));
        Ok(())
    }

    pub fn rename(&mut self, from: &Path, to: &Path) -> Result<(), Errno> {
        let ino = self.find(from)?;
        let (from_parent, from_name) = self.find_parent(from)?;
        let (to_parent, to_name) = self.find_parent(to)?;
        if (from_parent, &from_name) == (to_parent, &to_name) {
            return Ok(());
        }
        if let Ok(there) = self.find(to) {
            match (self.folder(ino), self.folder(there)) {
                (Ok(_), Ok(folder)) if !folder.seen.is_empty() => return Err(libc::ENOTEMPTY),
                (Ok(_), Ok(_)) | (Err(_), Err(_)) => {}
                (Ok(_), Err(_)) => return Err(libc::ENOTDIR),
                (Err(_), Ok(_)) => return Err(libc::EISDIR),
            }
        }
        self.change(Change(vec![(from_parent, from_name, None), (to_parent, to_name, Some(ino))]));
        Ok(())
    }

    pub fn list(&self, path: &Path) -> Result<Vec<DirEntry>, Errno> {
        let folder = self.folder(self.find(path)?)?;
        let entry = |(name, ino): (&OsString, &Ino)| DirEntry {
            name: name.clone(),
            is_dir: self.is_folder(*ino),
            len: self.len(*ino).unwrap_or(0),
        };
        Ok(folder.seen.iter().map(entry).collect())
    }

    // ---- bytes ----

    pub fn len(&self, ino: Ino) -> Result<u64, Errno> {
        if self.is_folder(ino) { Ok(4096) } else { Ok(self.file(ino)?.seen.len()) }
    }

    pub fn read(&self, ino: Ino, offset: u64, into: &mut [u8]) -> Result<usize, Errno> {
        Ok(self.file(ino)?.seen.read(offset, into))
    }

    pub fn write(&mut self, ino: Ino, offset: u64, data: &[u8], durable: bool) -> Result<(), Errno> {
        self.file_mut(ino)?.write(offset, data, durable);
        Ok(())
    }

    pub fn truncate(&mut self, ino: Ino, len: u64) -> Result<(), Errno> {
        self.file_mut(ino)?.set_len(len);
        Ok(())
    }

    pub fn allocate(&mut self, ino: Ino, len: u64) -> Result<(), Errno> {
        self.file_mut(ino)?.seen.grow(len);
        Ok(())
    }

    /// fsync of a file or a folder.
    pub fn sync(&mut self, ino: Ino) -> Result<(), Errno> {
        if let Ok(file) = self.file_mut(ino) {
            file.sync();
            return Ok(());
        }
        self.folder(ino)?;
        self.sync_folder(ino);
        Ok(())
    }

    /// An fsync that failed: what was dirty is forgotten.
    pub fn sync_failed(&mut self, ino: Ino) {
        if let Ok(file) = self.file_mut(ino) {
            file.drop_dirty();
        }
    }

    fn sync_folder(&mut self, ino: Ino) {
        let (synced, kept) =
            std::mem::take(&mut self.changes).into_iter().partition(|c: &Change| c.0.iter().any(|s| s.0 == ino));
        self.changes = kept;
        for change in synced {
            for (folder, name, _) in &change.0 {
                // An older change of the same name must not come back over this one.
                self.changes.iter_mut().for_each(|c| c.0.retain(|s| (s.0, &s.1) != (*folder, name)));
            }
            self.make_durable(&change);
        }
        self.changes.retain(|c| !c.0.is_empty());
        self.sweep();
    }

    fn make_durable(&mut self, change: &Change) {
        for (folder, name, ino) in &change.0 {
            if let Some(Inode { kind: Kind::Folder(folder), .. }) = self.inodes.get_mut(folder) {
                assign(&mut folder.durable, name, *ino);
            }
        }
    }

    /// Makes everything durable, as sync(2).
    pub fn sync_all(&mut self) {
        for inode in self.inodes.values_mut() {
            if let Kind::File(file) = &mut inode.kind {
                file.sync();
            }
        }
        for change in std::mem::take(&mut self.changes) {
            self.make_durable(&change);
        }
        self.sweep();
    }

    // ---- users ----

    pub fn hold(&mut self, ino: Ino) {
        if let Some(inode) = self.inodes.get_mut(&ino) {
            inode.users += 1;
        }
    }

    pub fn release(&mut self, ino: Ino) {
        if let Some(inode) = self.inodes.get_mut(&ino) {
            inode.users = inode.users.saturating_sub(1);
        }
    }

    /// Bytes that count against the disk's capacity: files that are linked or open, in blocks of 4 KiB.
    pub fn used_bytes(&self) -> u64 {
        let linked: HashSet<Ino> = self.folders().flat_map(|folder| folder.seen.values().copied()).collect();
        let counts = |(ino, inode): &(&Ino, &Inode)| inode.users > 0 || linked.contains(ino);
        let bytes = |(_, inode): (&Ino, &Inode)| match &inode.kind {
            Kind::File(file) => file.seen.len().next_multiple_of(4096),
            Kind::Folder(_) => 0,
        };
        self.inodes.iter().filter(counts).map(bytes).sum()
    }

    fn folders(&self) -> impl Iterator<Item = &Folder> {
        self.inodes.values().filter_map(|inode| match &inode.kind {
            Kind::Folder(folder) => Some(folder),
            Kind::File(_) => None,
        })
    }

    /// Frees inodes that nothing names and nobody uses.
    fn sweep(&mut self) {
        let mut named: HashSet<Ino> = HashSet::from([ROOT]);
        for folder in self.folders() {
            named.extend(folder.seen.values().chain(folder.durable.values()));
        }
        named.extend(self.changes.iter().flat_map(|c| c.0.iter().filter_map(|s| s.2)));
        self.inodes.retain(|ino, inode| inode.users > 0 || named.contains(ino));
    }

    // ---- the power cut ----

    /// What was not durable is lost or kept, by the seed.
    pub fn crash(&mut self, rng: &mut Rng) {
        // A journal keeps a prefix of the folder changes; the strictest reading keeps any of them.
        let changes = std::mem::take(&mut self.changes);
        let prefix = rng.coin().then(|| rng.below(changes.len() as u64 + 1));
        for (nth, change) in changes.iter().enumerate() {
            if prefix.map_or_else(|| rng.coin(), |kept| (nth as u64) < kept) {
                self.make_durable(change);
            }
        }
        let mut inos: Vec<Ino> = self.inodes.keys().copied().collect();
        inos.sort_unstable();
        for ino in inos {
            let Some(inode) = self.inodes.get_mut(&ino) else { continue };
            inode.users = 0;
            match &mut inode.kind {
                Kind::File(file) => file.crash(rng),
                Kind::Folder(folder) => folder.seen = folder.durable.clone(),
            }
        }
        self.sweep();
    }

    // ---- for tests, on the spot ----

    pub fn mkdir_all(&mut self, path: &Path) {
        let names: Vec<OsString> = Self::names(path).into_iter().map(OsStr::to_os_string).collect();
        for depth in 1..=names.len() {
            // Those that are there already are fine.
            let _ = self.mkdir(&names.iter().take(depth).collect::<std::path::PathBuf>());
        }
        self.sync_all();
    }

    pub fn contents(&self, path: &Path) -> Option<Vec<u8>> {
        Some(self.file(self.find(path).ok()?).ok()?.seen.to_vec())
    }

    pub fn put(&mut self, path: &Path, bytes: &[u8]) -> Result<(), Errno> {
        let ino = self.open(path, OpenHow::write().create().truncate())?;
        self.write(ino, 0, bytes, false)?;
        self.release(ino);
        self.sync_all();
        Ok(())
    }

    /// Flips bits of a file, durably: rot.
    pub fn rot(&mut self, path: &Path, offset: u64, mask: u8) -> bool {
        let Ok(file) = self.find(path).and_then(|ino| self.file_mut(ino)) else { return false };
        for version in [&mut file.seen, &mut file.durable] {
            let mut byte = [0];
            if version.read(offset, &mut byte) == 1 {
                version.write(offset, &[byte[0] ^ mask]);
            }
        }
        true
    }
}

fn assign(names: &mut BTreeMap<OsString, Ino>, name: &OsString, ino: Option<Ino>) {
    match ino {
        Some(ino) => drop(names.insert(name.clone(), ino)),
        None => drop(names.remove(name)),
    }
}

#[cfg(test)]
#[path = "fs_tests.rs"]
mod tests;
