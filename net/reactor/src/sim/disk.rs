//! One node's disk: its requests, their faults and latencies.
//!
//! Holds: the fault switches and the execution of a request on the file system. Never touches: handles, completions.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::fs::{FileSystem, Ino, SECTOR};
use super::rng::Rng;
use crate::driver::OpenHow;
use crate::ids::Handle;

/// What kind of request a fault may hit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskOpKind {
    /// Reading bytes.
    Read,
    /// Writing bytes without durability.
    Write,
    /// Writing bytes durably (Dsync).
    DurableWrite,
    /// fsync or fdatasync of a file.
    Sync,
    /// fsync of a folder.
    SyncFolder,
    /// Reserving space.
    Allocate,
    /// Setting the length.
    Truncate,
    /// Opening or making a file.
    Open,
    /// Renaming.
    Rename,
    /// Removing a file or folder.
    Unlink,
    /// Making a folder.
    Mkdir,
    /// Asking for the device that a path leads to.
    Stat,
}

impl DiskOpKind {
    /// Whether it changes or saves bytes.
    pub fn is_write(self) -> bool {
        match self {
            DiskOpKind::Write | DiskOpKind::DurableWrite | DiskOpKind::Sync | DiskOpKind::SyncFolder => true,
            DiskOpKind::Read
            | DiskOpKind::Allocate
            | DiskOpKind::Truncate
            | DiskOpKind::Open
            | DiskOpKind::Rename
            | DiskOpKind::Unlink
            | DiskOpKind::Mkdir
            | DiskOpKind::Stat => false,
        }
    }
}

/// A request as a fault decides about it.
#[derive(Clone, Debug)]
pub struct DiskOp {
    /// What it does.
    pub kind: DiskOpKind,
    /// The path it opened or names (of a rename: the old name).
    pub path: PathBuf,
    /// Where in the file; zero if that means nothing.
    pub offset: u64,
    /// How many bytes; zero if that means nothing.
    pub len: u64,
    /// Requests this disk got before.
    pub number: u64,
}

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskFault {
    /// Fails with this errno. A failed write leaves each of its sectors old or new; a failed sync forgets what was
    /// dirty.
    Errno(i32),
    /// A read or write stops after at most this many bytes.
    Short(u64),
    /// Takes this much longer.
    Slow(Duration),
}

/// Decides about each request. Simulated disks ask it when the request starts.
pub type FaultFn = Box<dyn FnMut(&DiskOp) -> Option<DiskFault>>;

/// How long requests take: chosen evenly between two bounds.
#[derive(Clone, Copy, Debug)]
pub struct DiskLatency {
    /// Reads.
    pub read: (Duration, Duration),
    /// Writes that need not be durable.
    pub write: (Duration, Duration),
    /// Durable writes and syncs.
    pub durable: (Duration, Duration),
    /// Everything about names.
    pub names: (Duration, Duration),
}

impl Default for DiskLatency {
    fn default() -> DiskLatency {
        let us = Duration::from_micros;
        DiskLatency {
            read: (us(20), us(200)),
            write: (us(10), us(100)),
            durable: (us(80), us(1500)),
            names: (us(20), us(500)),
        }
    }
}

/// The device of a node's own file system.
const OWN_DEVICE: u64 = 1;

/// A request in execution.
pub(super) enum Request {
    Read {
        ino: Ino,
        buf: *mut u8,
        len: usize,
        offset: u64,
    },
    /// A read into a pipe: the world puts it there.
    Splice {
        ino: Ino,
        pipe: Handle,
        len: usize,
        offset: u64,
    },
    Write {
        ino: Ino,
        data: Vec<u8>,
        lent: Vec<(*const u8, usize)>,
        offset: u64,
        durable: bool,
    },
    Sync {
        ino: Ino,
    },
    Allocate {
        ino: Ino,
        end: u64,
    },
    Truncate {
        ino: Ino,
        len: u64,
    },
    Open {
        path: PathBuf,
        how: OpenHow,
    },
    Rename {
        from: PathBuf,
        to: PathBuf,
    },
    Unlink {
        path: PathBuf,
        directory: bool,
    },
    Mkdir {
        path: PathBuf,
    },
    Stat {
        path: PathBuf,
        into: *mut libc::statx,
    },
}

impl Request {
    /// The inode it keeps in use.
    pub fn ino(&self) -> Option<Ino> {
        match self {
            Request::Read { ino, .. }
            | Request::Splice { ino, .. }
            | Request::Write { ino, .. }
            | Request::Sync { ino }
            | Request::Allocate { ino, .. }
            | Request::Truncate { ino, .. } => Some(*ino),
            Request::Open { .. }
            | Request::Rename { .. }
            | Request::Unlink { .. }
            | Request::Mkdir { .. }
            | Request::Stat { .. } => None,
        }
    }
}

pub(super) struct Disk {
    pub fs: FileSystem,
    pub latency: DiskLatency,
    pub fault: Option<FaultFn>,
    pub capacity: Option<u64>,
    /// Reads and writes of a thousand that are cut short.
    pub short_per_mille: u32,
    /// What O_DIRECT asks for.
    pub direct_align: u64,
    pub requests: u64,
    /// Paths that lead to other file systems than the node's own, with their devices.
    pub mounts: Vec<(PathBuf, u64)>,
}

impl Disk {
    pub fn new() -> Disk {
        Disk {
            fs: FileSystem::new(),
            latency: DiskLatency::default(),
            fault: None,
            capacity: None,
            short_per_mille: 0,
            direct_align: 4096,
            requests: 0,
            mounts: Vec::new(),
        }
    }

    /// The device that a path leads to.
    pub fn device_of(&self, path: &Path) -> u64 {
        let mount = self.mounts.iter().find(|(at, _)| path.starts_with(at));
        mount.map_or(OWN_DEVICE, |(_, device)| *device)
    }

    fn describe(&self, request: &Request, path: &Path) -> DiskOp {
        let (kind, path, offset, len) = match request {
            Request::Read { len, offset, .. } | Request::Splice { len, offset, .. } => {
                (DiskOpKind::Read, path, *offset, *len as u64)
            }
            Request::Write { data, offset, durable: true, .. } => {
                (DiskOpKind::DurableWrite, path, *offset, data.len() as u64)
            }
            Request::Write { data, offset, .. } => (DiskOpKind::Write, path, *offset, data.len() as u64),
            Request::Sync { ino } if self.fs.is_folder(*ino) => (DiskOpKind::SyncFolder, path, 0, 0),
            Request::Sync { .. } => (DiskOpKind::Sync, path, 0, 0),
            Request::Allocate { end, .. } => (DiskOpKind::Allocate, path, 0, *end),
            Request::Truncate { len, .. } => (DiskOpKind::Truncate, path, *len, 0),
            Request::Open { path, .. } => (DiskOpKind::Open, path.as_path(), 0, 0),
            Request::Rename { from, .. } => (DiskOpKind::Rename, from.as_path(), 0, 0),
            Request::Unlink { path, .. } => (DiskOpKind::Unlink, path.as_path(), 0, 0),
            Request::Mkdir { path } => (DiskOpKind::Mkdir, path.as_path(), 0, 0),
            Request::Stat { path, .. } => (DiskOpKind::Stat, path.as_path(), 0, 0),
        };
        DiskOp { kind, path: path.to_path_buf(), offset, len, number: self.requests }
    }

    /// Takes a request in: how long it takes, and what is to go wrong.
    pub fn admit(&mut self, request: &Request, path: &Path, rng: &mut Rng) -> (u64, Option<DiskFault>) {
        let op = self.describe(request, path);
        self.requests += 1;
        let between = match op.kind {
            DiskOpKind::Read => self.latency.read,
            DiskOpKind::Write => self.latency.write,
            DiskOpKind::DurableWrite | DiskOpKind::Sync | DiskOpKind::SyncFolder => self.latency.durable,
            DiskOpKind::Allocate
            | DiskOpKind::Truncate
            | DiskOpKind::Open
            | DiskOpKind::Rename
            | DiskOpKind::Unlink
            | DiskOpKind::Mkdir
            | DiskOpKind::Stat => self.latency.names,
        };
        let nanos = rng.nanos(between);
        match self.fault.as_mut().and_then(|fault| fault(&op)) {
            Some(DiskFault::Slow(by)) => (nanos + by.as_nanos() as u64, None),
            None if op.len > SECTOR && rng.chance(self.short_per_mille) => {
                // Real short transfers end between sectors.
                let ends_before = (1 + rng.below(op.len / SECTOR)) * SECTOR;
                (nanos, Some(DiskFault::Short(ends_before - op.offset % SECTOR)))
            }
            fault => (nanos, fault),
        }
    }

    fn check_direct(&self, path: &Path, at: u64, len: usize, address: usize) -> Result<(), i32> {
        let aligned = |n: u64| n.is_multiple_of(self.direct_align);
        if aligned(at) && aligned(len as u64) && aligned(address as u64) {
            return Ok(());
        }
        tracing::debug!(?path, at, len, address, "unaligned direct request");
        Err(libc::EINVAL)
    }

    /// What O_DIRECT refuses.
    pub fn refuse_unaligned(&self, request: &Request, path: &Path) -> Result<(), i32> {
        match request {
            Request::Read { buf, len, offset, .. } => self.check_direct(path, *offset, *len, buf.addr()),
            Request::Write { lent, offset, .. } => {
                lent.iter().try_for_each(|(at, len)| self.check_direct(path, *offset, *len, at.addr()))
            }
            _ => Ok(()),
        }
    }

    /// Does the request. The result as a completion has it; for an open, the inode.
    ///
    /// # Safety
    /// The request's buffers are still lent.
    pub unsafe fn execute(&mut self, request: Request, fault: Option<DiskFault>, rng: &mut Rng) -> Result<u64, i32> {
        let cut = |len: usize| match fault {
            Some(DiskFault::Short(at_most)) => len.min(at_most as usize),
            _ => len,
        };
        if let Some(DiskFault::Errno(errno)) = fault {
            self.fail(&request, rng);
            return Err(errno);
        }
        match request {
            Request::Read { ino, buf, len, offset } => {
                // SAFETY: lent, says the caller, and nobody else looks at it meanwhile.
                let into = unsafe { std::slice::from_raw_parts_mut(buf, cut(len)) };
                self.fs.read(ino, offset, into).map(|n| n as u64)
            }
            // The world makes a read of it.
            Request::Splice { .. } => Err(libc::EINVAL),
            Request::Write { ino, data, lent, offset, durable } => {
                // SAFETY: lent, says the caller.
                unsafe { assert_unchanged(&data, &lent) };
                let data = data.get(..cut(data.len())).unwrap_or_default();
                let room = self.room_for(ino, offset, data.len() as u64)?;
                let data = data.get(..room as usize).unwrap_or_default();
                self.fs.write(ino, offset, data, durable)?;
                Ok(data.len() as u64)
            }
            Request::Sync { ino } => self.fs.sync(ino).map(|()| 0),
            Request::Allocate { ino, end } => {
                if self.room_for(ino, 0, end)? < end {
                    return Err(libc::ENOSPC);
                }
                self.fs.allocate(ino, end).map(|()| 0)
            }
            Request::Truncate { ino, len } => self.fs.truncate(ino, len).map(|()| 0),
            Request::Open { path, how } => self.fs.open(&path, how),
            Request::Rename { from, to } => self.fs.rename(&from, &to).map(|()| 0),
            Request::Unlink { path, directory } => self.fs.unlink(&path, directory).map(|()| 0),
            Request::Mkdir { path } => self.fs.mkdir(&path).map(|()| 0),
            Request::Stat { path, into } => {
                let device = self.device_of(&path);
                // SAFETY: lent, says the caller, and nobody else looks at it meanwhile.
                let about = unsafe { &mut *into };
                (about.stx_dev_major, about.stx_dev_minor) = (libc::major(device), libc::minor(device));
                Ok(0)
            }
        }
    }

    /// How much of a write fits; ENOSPC when nothing does.
    fn room_for(&self, ino: Ino, offset: u64, len: u64) -> Result<u64, i32> {
        let Some(capacity) = self.capacity else { return Ok(len) };
        let there = self.fs.len(ino)?.next_multiple_of(4096);
        let free = capacity.saturating_sub(self.fs.used_bytes()) / 4096 * 4096;
        let end = (offset + len).min(there + free);
        match end.saturating_sub(offset) {
            0 if len > 0 => Err(libc::ENOSPC),
            room => Ok(room),
        }
    }

    /// What a failed, or torn, request leaves behind.
    pub fn fail(&mut self, request: &Request, rng: &mut Rng) {
        match request {
            Request::Write { ino, data, offset, .. } => {
                let to_boundary = (SECTOR - offset % SECTOR) as usize;
                let (first, behind) = data.split_at(to_boundary.min(data.len()));
                let mut at = *offset;
                // Sectors of the file, not of the write: it may begin within one.
                for part in [first].into_iter().chain(behind.chunks(SECTOR as usize)).filter(|part| !part.is_empty()) {
                    if rng.coin() {
                        // Not durable: the crash decides again.
                        let _ = self.fs.write(*ino, at, part, false);
                    }
                    at += part.len() as u64;
                }
            }
            Request::Sync { ino } => self.fs.sync_failed(*ino),
            _ => {}
        }
    }
}

/// A buffer lent to the kernel must not change: hold our callers to it.
///
/// # Safety
/// The pieces are still lent.
unsafe fn assert_unchanged(data: &[u8], lent: &[(*const u8, usize)]) {
    let mut rest = data;
    for &(at, len) in lent {
        let (then, later) = rest.split_at(len.min(rest.len()));
        // SAFETY: promised by the caller.
        let now = unsafe { std::slice::from_raw_parts(at, len) };
        assert!(now == then, "a buffer of {len} bytes changed while it was lent to a write");
        rest = later;
    }
}
