//! Holds: the bytes of one file of the FUSE disk, twice: as the running system sees them, and as they are on stable storage.
//! Never touches: folders, FUSE, the clock; chance comes in as an argument.
//!
//! ```text
//!   write ──> live ──(sync)──> stable
//!               \                 |
//!                `── dirty pages: every version since the last sync; at a power cut each 512-byte
//!                    sector is the stable one, an intermediate one or the last one, by chance
//! ```
//! Pages of zeroes are not stored, so a pre-written segment of 64 MiB costs nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::random::Random;

/// The unit of storage here; the kernel's page.
pub const PAGE_BYTES: usize = 4096;
/// What a power cut leaves old or new as a whole.
pub const SECTOR_BYTES: usize = 512;
/// Intermediate versions kept for one unsynced page; older ones are forgotten (the stable one never is).
const VERSIONS_MAX: usize = 4;

const _: () = assert!(PAGE_BYTES.is_multiple_of(SECTOR_BYTES));

type Bytes = [u8; PAGE_BYTES];
/// One page; `None` is a page of zeroes.
type Page = Option<Arc<Bytes>>;

/// A page that was written since it was last synced.
#[derive(Debug)]
struct Dirty {
    /// Stamp of the write that is on stable storage; a sync that began before it must not overwrite it.
    stable_stamp: u64,
    /// The writes since then, oldest first; the last one is the live page.
    versions: Vec<(u64, Page)>,
}

/// The bytes of one file, live and stable.
#[derive(Debug, Default)]
pub struct Content {
    live: BTreeMap<u64, Arc<Bytes>>,
    stable: BTreeMap<u64, Arc<Bytes>>,
    dirty: BTreeMap<u64, Dirty>,
    live_len: u64,
    live_len_stamp: u64,
    stable_len: u64,
    stable_len_stamp: u64,
    /// Which pages take up space on the disk, a bit each: written ones (of zeroes too) and allocated ones.
    allocated: Vec<u64>,
    pages_allocated: u64,
}

/// What a sync that has begun will make durable: the writes that were complete at its start, and no later ones.
#[derive(Debug)]
pub struct SyncTicket {
    pages: Vec<(u64, u64, Page)>,
    len: u64,
    len_stamp: u64,
}

impl Content {
    /// The file's length as the running system sees it.
    pub fn len(&self) -> u64 {
        self.live_len
    }

    /// Pages of disk space that the file takes up.
    pub fn pages_allocated(&self) -> u64 {
        self.pages_allocated
    }

    /// True if a power cut now could lose something of the file.
    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty() || self.live_len != self.stable_len
    }

    /// How many pages of `offset..offset + len` don't yet take up space.
    pub fn pages_missing(&self, offset: u64, len: u64) -> u64 {
        page_range(offset, len).filter(|&page| !self.is_allocated(page)).count() as u64
    }

    /// The live bytes at `offset`, at most `len` of them, fewer at the end of the file.
    pub fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let end = self.live_len.min(offset.saturating_add(len as u64));
        let mut bytes = vec![0; end.saturating_sub(offset) as usize];
        for (page, within, place) in pieces(offset, bytes.len()) {
            if let Some(stored) = self.live.get(&page) {
                let piece_len = place.len();
                bytes[place].copy_from_slice(&stored[within..within + piece_len]);
            }
        }
        bytes
    }

    /// Writes `data` at `offset`; live only.
    pub fn write(&mut self, offset: u64, data: &[u8], stamp: u64) {
        for (page, within, place) in pieces(offset, data.len()) {
            self.edit(page, within, &data[place], stamp);
            self.allocate_page(page);
        }
        self.set_len(self.live_len.max(offset + data.len() as u64), stamp);
    }

    /// Makes the file `len` bytes long; live only.
    pub fn truncate(&mut self, len: u64, stamp: u64) {
        if len < self.live_len {
            self.zero(len, self.live_len - len, stamp);
            let first_gone = len.div_ceil(PAGE_BYTES as u64);
            self.free_pages(first_gone, (self.allocated.len() as u64) * 64);
        }
        self.set_len(len, stamp);
    }

    /// Takes up space for `offset..offset + len`, and makes the file as long as that unless told to keep its length.
    pub fn allocate(&mut self, offset: u64, len: u64, keep_len: bool, stamp: u64) {
        for page in page_range(offset, len) {
            self.allocate_page(page);
        }
        if !keep_len {
            self.set_len(self.live_len.max(offset + len), stamp);
        }
    }

    /// Zeroes `offset..offset + len` and, when `free` is set, gives the whole pages in it back (a hole).
    pub fn zero_range(&mut self, offset: u64, len: u64, free: bool, stamp: u64) {
        self.zero(offset, len, stamp);
        if free {
            self.free_pages(offset.div_ceil(PAGE_BYTES as u64), (offset + len) / PAGE_BYTES as u64);
        }
    }

    /// Notes what a sync that starts now has to make durable.
    pub fn begin_sync(&self) -> SyncTicket {
        let last = |dirty: &Dirty| dirty.versions.last().cloned().expect("a dirty page has a version");
        SyncTicket {
            pages: self
                .dirty
                .iter()
                .map(|(&page, dirty)| {
                    let (stamp, bytes) = last(dirty);
                    (page, stamp, bytes)
                })
                .collect(),
            len: self.live_len,
            len_stamp: self.live_len_stamp,
        }
    }

    /// Makes durable what `ticket` noted. Syncs may finish in another order than they began in.
    pub fn finish_sync(&mut self, ticket: SyncTicket) {
        for (page, stamp, bytes) in ticket.pages {
            let Some(dirty) = self.dirty.get_mut(&page) else {
                continue;
            };
            if stamp <= dirty.stable_stamp {
                continue;
            }
            dirty.stable_stamp = stamp;
            dirty.versions.retain(|(version, _)| *version > stamp);
            if dirty.versions.is_empty() {
                self.dirty.remove(&page);
            }
            store(&mut self.stable, page, bytes);
        }
        if ticket.len_stamp > self.stable_len_stamp {
            self.stable_len = ticket.len;
            self.stable_len_stamp = ticket.len_stamp;
        }
    }

    /// The power goes: what was not synced survives by chance, sector by sector, `survival` times in a thousand.
    /// Returns how many sectors and lengths were lost.
    pub fn cut(&mut self, random: &mut Random, survival: u64) -> u64 {
        let mut lost = 0;
        for (page, dirty) in std::mem::take(&mut self.dirty) {
            let mut bytes = self.stable.get(&page).map_or([0; PAGE_BYTES], |stored| **stored);
            let last = dirty.versions.len() - 1;
            for sector in (0..PAGE_BYTES).step_by(SECTOR_BYTES) {
                if !random.chance(survival) {
                    lost += 1;
                    continue;
                }
                // Mostly the last version; now and then one that was overwritten before it was ever synced.
                let version = if random.chance(750) { last } else { random.below(last as u64 + 1) as usize };
                let range = sector..sector + SECTOR_BYTES;
                match &dirty.versions[version].1 {
                    Some(written) => bytes[range.clone()].copy_from_slice(&written[range]),
                    None => bytes[range].fill(0),
                }
            }
            store(&mut self.stable, page, pack(bytes));
        }
        if self.live_len != self.stable_len {
            let kept = random.chance(survival);
            lost += u64::from(!kept);
            if kept {
                // A growing file may have reached any length in between.
                let grown = self.live_len.saturating_sub(self.stable_len) / SECTOR_BYTES as u64;
                self.stable_len = if grown > 0 && random.chance(500) {
                    self.stable_len + random.below(grown + 1) * SECTOR_BYTES as u64
                } else {
                    self.live_len
                };
            }
        }
        self.forget_past_the_end();
        lost
    }

    /// Stable bytes past the stable end don't exist; the live state becomes the stable one.
    fn forget_past_the_end(&mut self) {
        let end = self.stable_len;
        self.stable.retain(|&page, _| page * (PAGE_BYTES as u64) < end);
        let within = (end % PAGE_BYTES as u64) as usize;
        if within > 0
            && let Some(stored) = self.stable.get(&(end / PAGE_BYTES as u64))
        {
            let mut bytes = **stored;
            bytes[within..].fill(0);
            store(&mut self.stable, end / PAGE_BYTES as u64, pack(bytes));
        }
        self.live = self.stable.clone();
        self.live_len = end;
        self.live_len_stamp = self.stable_len_stamp;
        self.free_pages(end.div_ceil(PAGE_BYTES as u64), (self.allocated.len() as u64) * 64);
        let pages: Vec<u64> = self.live.keys().copied().collect();
        for page in pages {
            self.allocate_page(page);
        }
    }

    fn set_len(&mut self, len: u64, stamp: u64) {
        if len != self.live_len {
            self.live_len = len;
            self.live_len_stamp = stamp;
        }
    }

    fn zero(&mut self, offset: u64, len: u64, stamp: u64) {
        let end = offset.saturating_add(len).min(self.live_len);
        let first = offset / PAGE_BYTES as u64;
        // Only stored pages can change; the rest are zeroes already.
        let pages: Vec<u64> = self.live.range(first..).map(|(&page, _)| page).collect();
        for page in pages {
            let start = page * PAGE_BYTES as u64;
            if start >= end {
                break;
            }
            let from = offset.max(start) - start;
            let to = (end - start).min(PAGE_BYTES as u64);
            self.edit(page, from as usize, &[0; PAGE_BYTES][..(to - from) as usize], stamp);
        }
    }

    fn edit(&mut self, page: u64, within: usize, data: &[u8], stamp: u64) {
        let old = self.live.get(&page);
        if old.is_none() && data.iter().all(|&byte| byte == 0) && !self.dirty.contains_key(&page) {
            return;
        }
        let mut bytes = old.map_or([0; PAGE_BYTES], |stored| **stored);
        bytes[within..within + data.len()].copy_from_slice(data);
        let new = pack(bytes);
        store(&mut self.live, page, new.clone());
        let dirty = self.dirty.entry(page).or_insert(Dirty { stable_stamp: stamp - 1, versions: Vec::new() });
        if dirty.versions.len() == VERSIONS_MAX {
            dirty.versions.remove(0);
        }
        dirty.versions.push((stamp, new));
    }

    fn is_allocated(&self, page: u64) -> bool {
        self.allocated.get((page / 64) as usize).is_some_and(|bits| bits & (1 << (page % 64)) != 0)
    }

    fn allocate_page(&mut self, page: u64) {
        if !self.is_allocated(page) {
            let word = (page / 64) as usize;
            if word >= self.allocated.len() {
                self.allocated.resize(word + 1, 0);
            }
            self.allocated[word] |= 1 << (page % 64);
            self.pages_allocated += 1;
        }
    }

    fn free_pages(&mut self, from: u64, to: u64) {
        for page in from..to {
            if self.is_allocated(page) {
                self.allocated[(page / 64) as usize] &= !(1 << (page % 64));
                self.pages_allocated -= 1;
            }
        }
    }
}

fn pack(bytes: Bytes) -> Page {
    if bytes.iter().all(|&byte| byte == 0) { None } else { Some(Arc::new(bytes)) }
}

fn store(pages: &mut BTreeMap<u64, Arc<Bytes>>, page: u64, bytes: Page) {
    match bytes {
        Some(bytes) => pages.insert(page, bytes),
        None => pages.remove(&page),
    };
}

fn page_range(offset: u64, len: u64) -> std::ops::Range<u64> {
    let end = offset.saturating_add(len).div_ceil(PAGE_BYTES as u64);
    if len == 0 { 0..0 } else { offset / PAGE_BYTES as u64..end }
}

/// Cuts `offset..offset + len` at page borders: (page, offset within the page, range within the whole).
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset + done as u64;
        let within = (at % PAGE_BYTES as u64) as usize;
        let piece = (PAGE_BYTES - within).min(len - done);
        let range = done..done + piece;
        done += piece;
        Some((at / PAGE_BYTES as u64, within, range))
    })
}
