//! Holds: names: what folders contain, live and stable, and the changes that wait between the two.
//! Never touches: the bytes of files.
//!
//! Each change of entries (create, rename, unlink, ...) waits in `pending` until a folder that it touches is synced. A power cut
//! keeps or loses each pending change by chance, but as a whole (a rename is atomic), and never keeps a change of a name while
//! losing an earlier change of the same name.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::SystemTime;

use super::super::random::Random;
use super::content::Content;
use super::model::{Answer, Body, FaultOn, Ino, Inode, Model, ROOT, survival};

/// A folder and a name in it.
pub type Name = (Ino, OsString);

/// A folder's entries, live and stable.
#[derive(Debug, Default)]
pub struct Entries {
    /// As the running system sees them.
    pub live: BTreeMap<OsString, Ino>,
    /// As they are after a power cut that loses everything it may lose.
    pub stable: BTreeMap<OsString, Ino>,
}

/// One change of folder entries, kept or lost as a whole.
#[derive(Debug)]
pub struct Change {
    /// The names it sets (or removes: `None`).
    edits: Vec<(Name, Option<Ino>)>,
    /// A folder that it removes: every earlier change in it must be kept if this one is.
    removed_dir: Option<Ino>,
}

impl Model {
    /// The inode that `name` means in the folder `dir`.
    pub fn lookup(&self, dir: Ino, name: &OsStr) -> Answer<Ino> {
        self.entries(dir)?.live.get(name).copied().ok_or(libc::ENOENT)
    }

    /// Every live entry of a folder: name, inode, whether it is a folder.
    pub fn list(&self, dir: Ino) -> Answer<Vec<(OsString, Ino, bool)>> {
        let is_dir = |ino: &Ino| matches!(self.inodes.get(ino).map(|inode| &inode.body), Some(Body::Dir(_)));
        Ok(self.entries(dir)?.live.iter().map(|(name, ino)| (name.clone(), *ino, is_dir(ino))).collect())
    }

    /// Makes the entries of a folder durable, and with them the changes elsewhere that they are part of or follow from.
    pub fn sync_dir(&mut self, dir: Ino) -> Answer<()> {
        self.check_faults(dir, FaultOn::Sync)?;
        self.entries(dir)?;
        self.counters.dir_syncs += 1;
        let mut names: BTreeSet<Name> = BTreeSet::new();
        let mut dirs = BTreeSet::from([dir]);
        let mut kept = vec![false; self.pending.len()];
        for (index, change) in self.pending.iter().enumerate().rev() {
            if change.edits.iter().any(|(name, _)| dirs.contains(&name.0) || names.contains(name)) {
                kept[index] = true;
                names.extend(change.edits.iter().map(|(name, _)| name.clone()));
                dirs.extend(change.removed_dir);
            }
        }
        let mut waiting = Vec::new();
        for (change, kept) in std::mem::take(&mut self.pending).into_iter().zip(kept) {
            if kept {
                self.make_stable(&change);
            } else {
                waiting.push(change);
            }
        }
        self.pending = waiting;
        self.drop_unreachable();
        Ok(())
    }

    /// Creates an empty file (`is_dir` false) or folder.
    pub fn create(
        &mut self,
        dir: Ino,
        name: &OsStr,
        is_dir: bool,
        mode: u32,
        owner: (u32, u32),
        now: SystemTime,
    ) -> Answer<Ino> {
        if self.entries(dir)?.live.contains_key(name) {
            return Err(libc::EEXIST);
        }
        let ino = self.next_ino;
        self.check_entry_faults(&[(dir, name)])?;
        self.check_room(1)?;
        self.next_ino += 1;
        self.counters.creates += u64::from(!is_dir);
        let body = if is_dir { Body::Dir(Entries::default()) } else { Body::File(Content::default()) };
        let home = (dir, name.to_owned());
        self.inodes.insert(ino, Inode { body, mode, owner, modified: now, opens: 0, home });
        self.change(vec![((dir, name.to_owned()), Some(ino))], None, now)?;
        Ok(ino)
    }

    /// Gives a file a further name.
    pub fn link(&mut self, ino: Ino, dir: Ino, name: &OsStr, now: SystemTime) -> Answer<()> {
        self.content(ino)?;
        if self.entries(dir)?.live.contains_key(name) {
            return Err(libc::EEXIST);
        }
        self.check_entry_faults(&[(dir, name)])?;
        self.change(vec![((dir, name.to_owned()), Some(ino))], None, now)
    }

    /// Removes a file's name.
    pub fn unlink(&mut self, dir: Ino, name: &OsStr, now: SystemTime) -> Answer<()> {
        let ino = self.lookup(dir, name)?;
        if matches!(self.inode(ino)?.body, Body::Dir(_)) {
            return Err(libc::EISDIR);
        }
        self.check_entry_faults(&[(dir, name)])?;
        self.counters.removals += 1;
        self.change(vec![((dir, name.to_owned()), None)], None, now)?;
        self.drop_unreachable();
        Ok(())
    }

    /// Removes an empty folder.
    pub fn remove_dir(&mut self, dir: Ino, name: &OsStr, now: SystemTime) -> Answer<()> {
        let ino = self.lookup(dir, name)?;
        if !self.entries(ino)?.live.is_empty() {
            return Err(libc::ENOTEMPTY);
        }
        self.check_entry_faults(&[(dir, name)])?;
        self.counters.removals += 1;
        self.change(vec![((dir, name.to_owned()), None)], Some(ino), now)?;
        self.drop_unreachable();
        Ok(())
    }

    /// `renameat2(2)`: atomic, also over an existing file; with RENAME_NOREPLACE and RENAME_EXCHANGE.
    pub fn rename(&mut self, from: (Ino, &OsStr), to: (Ino, &OsStr), flags: u32, now: SystemTime) -> Answer<()> {
        let moved = self.lookup(from.0, from.1)?;
        let replaced = self.entries(to.0)?.live.get(to.1).copied();
        if flags & !(libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE) != 0 {
            return Err(libc::EINVAL);
        }
        self.check_entry_faults(&[from, to])?;
        let name = |place: (Ino, &OsStr)| (place.0, place.1.to_owned());
        if flags & libc::RENAME_EXCHANGE != 0 {
            let other = replaced.ok_or(libc::ENOENT)?;
            self.counters.renames += 1;
            return self.change(vec![(name(from), Some(other)), (name(to), Some(moved))], None, now);
        }
        let mut removed_dir = None;
        if let Some(replaced) = replaced {
            if flags & libc::RENAME_NOREPLACE != 0 {
                return Err(libc::EEXIST);
            }
            if replaced == moved {
                return Ok(());
            }
            match (&self.inode(moved)?.body, &self.inode(replaced)?.body) {
                (Body::File(_), Body::Dir(_)) => return Err(libc::EISDIR),
                (Body::Dir(_), Body::File(_)) => return Err(libc::ENOTDIR),
                (Body::Dir(_), Body::Dir(entries)) if !entries.live.is_empty() => {
                    return Err(libc::ENOTEMPTY);
                }
                (Body::Dir(_), Body::Dir(_)) => removed_dir = Some(replaced),
                (Body::File(_), Body::File(_)) => {}
            }
        }
        self.counters.renames += 1;
        self.change(vec![(name(from), None), (name(to), Some(moved))], removed_dir, now)?;
        self.drop_unreachable();
        Ok(())
    }

    /// The pending changes survive a power cut by chance; returns how many did not.
    pub(super) fn cut_entries(&mut self, random: &mut Random) -> u64 {
        let mut changes_lost = 0;
        let survival = survival(random);
        let mut lost: BTreeSet<Name> = BTreeSet::new();
        for change in std::mem::take(&mut self.pending) {
            let follows_lost = change.edits.iter().any(|(name, _)| lost.contains(name))
                || change.removed_dir.is_some_and(|dir| lost.iter().any(|name| name.0 == dir));
            if follows_lost || !random.chance(survival) {
                changes_lost += 1;
                lost.extend(change.edits.into_iter().map(|(name, _)| name));
            } else {
                self.make_stable(&change);
            }
        }
        changes_lost
    }

    /// How many names a file has, or 2 and more for a folder, as `stat(2)` counts.
    pub fn link_count(&self, ino: Ino) -> u32 {
        match self.inodes.get(&ino).map(|inode| &inode.body) {
            Some(Body::Dir(_)) => 2,
            _ => self.dirs().flat_map(|entries| entries.live.values()).filter(|&&linked| linked == ino).count() as u32,
        }
    }

    /// Where an inode was last linked, below the mount point.
    pub fn path_of(&self, mut ino: Ino) -> PathBuf {
        let mut parts = Vec::new();
        while ino != ROOT
            && let Some(inode) = self.inodes.get(&ino)
        {
            parts.push(inode.home.1.clone());
            ino = inode.home.0;
        }
        parts.iter().rev().collect()
    }

    /// Forgets inodes that no name, live or stable or about to be, and no open handle leads to any more.
    pub fn drop_unreachable(&mut self) {
        let mut reached = BTreeSet::from([ROOT]);
        let mut queue = vec![ROOT];
        let waiting = self.pending.iter().flat_map(|change| &change.edits).filter_map(|(_, ino)| *ino);
        let open = self.inodes.iter().filter(|(_, inode)| inode.opens > 0).map(|(&ino, _)| ino);
        for ino in waiting.chain(open) {
            if reached.insert(ino) {
                queue.push(ino);
            }
        }
        while let Some(ino) = queue.pop() {
            if let Some(Inode { body: Body::Dir(entries), .. }) = self.inodes.get(&ino) {
                for &child in entries.live.values().chain(entries.stable.values()) {
                    if reached.insert(child) {
                        queue.push(child);
                    }
                }
            }
        }
        self.inodes.retain(|ino, _| reached.contains(ino));
    }

    fn dirs(&self) -> impl Iterator<Item = &Entries> {
        self.inodes.values().filter_map(|inode| match &inode.body {
            Body::Dir(entries) => Some(entries),
            Body::File(_) => None,
        })
    }

    /// Changes live entries, and notes the change as not yet stable.
    fn change(&mut self, edits: Vec<(Name, Option<Ino>)>, removed_dir: Option<Ino>, now: SystemTime) -> Answer<()> {
        for ((dir, name), to) in &edits {
            let inode = self.inode_mut(*dir)?;
            inode.modified = now;
            let Body::Dir(entries) = &mut inode.body else {
                return Err(libc::ENOTDIR);
            };
            match to {
                Some(ino) => entries.live.insert(name.clone(), *ino),
                None => entries.live.remove(name),
            };
            if let Some(ino) = to {
                self.inode_mut(*ino)?.home = (*dir, name.clone());
            }
        }
        self.pending.push(Change { edits, removed_dir });
        Ok(())
    }

    fn make_stable(&mut self, change: &Change) {
        for ((dir, name), to) in &change.edits {
            // The folder itself may be gone; then its entries don't matter.
            if let Some(Inode { body: Body::Dir(entries), .. }) = self.inodes.get_mut(dir) {
                match to {
                    Some(ino) => entries.stable.insert(name.clone(), *ino),
                    None => entries.stable.remove(name),
                };
            }
        }
    }
}
