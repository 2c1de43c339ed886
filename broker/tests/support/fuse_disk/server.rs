//! Holds: the FUSE requests of the kernel, turned into calls of the model, and the freeze that precedes a power cut.
//! Never touches: what a request means for durability (the model knows), mounting.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use super::super::random::Random;
use super::content::PAGE_BYTES;
use super::model::{Body, Ino, Model};

/// How long the kernel may remember names and attributes; all changes come through it, so for long.
const REMEMBER: Duration = Duration::from_secs(3600);
/// Largest write request: what the kernel allows without raising fs.fuse.max_pages_limit.
const WRITE_BYTES_MAX: u32 = 1024 * 1024;

/// The disk with all that its sessions share.
#[derive(Debug)]
pub struct World {
    /// The disk's state.
    pub model: Model,
    /// Requests wait while this is set.
    pub frozen: bool,
    /// The mount that may use the disk; requests of an earlier one are refused.
    pub session: u64,
    /// Longest time that a sync takes, by chance from none to this.
    pub sync_time_max: Duration,
    /// Chance for the syncs' times.
    pub random: Random,
    next_handle: u64,
    listings: BTreeMap<u64, Vec<(OsString, Ino, bool)>>,
}

impl World {
    /// A disk that nothing has mounted yet.
    pub fn new(model: Model, seed: u64) -> World {
        World {
            model,
            frozen: false,
            session: 0,
            sync_time_max: Duration::ZERO,
            random: Random::new(seed),
            next_handle: 1,
            listings: BTreeMap::new(),
        }
    }
}

/// The world, and the signal that it has thawed.
#[derive(Debug)]
pub struct Shared {
    world: Mutex<World>,
    thawed: Condvar,
}

impl Shared {
    /// Wraps a world for the sessions to come.
    pub fn new(world: World) -> Shared {
        Shared { world: Mutex::new(world), thawed: Condvar::new() }
    }

    /// The world, whatever its state. A panic of another thread doesn't make the disk unusable for the report of that panic.
    pub fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Lets waiting requests go on; those of an ended session are refused.
    pub fn thaw(&self) {
        self.world().frozen = false;
        self.thawed.notify_all();
    }

    /// The world as soon as it is not frozen, for a request of `session`.
    fn enter(&self, session: u64) -> Result<MutexGuard<'_, World>, Errno> {
        let mut world = self.world();
        while world.frozen {
            world = self.thawed.wait(world).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        if world.session == session { Ok(world) } else { Err(Errno::EIO) }
    }
}

/// One mount's side of the disk.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    session: u64,
}

impl Server {
    /// Serves the session number `session` of the disk.
    pub fn new(shared: Arc<Shared>, session: u64) -> Server {
        Server { shared, session }
    }

    fn with<T>(&self, act: impl FnOnce(&mut World) -> Result<T, i32>) -> Result<T, Errno> {
        let mut world = self.shared.enter(self.session)?;
        act(&mut world).map_err(Errno::from_i32)
    }

    fn attributes(world: &World, ino: Ino) -> Result<FileAttr, i32> {
        let inode = world.model.inode(ino)?;
        let (kind, size, pages) = match &inode.body {
            Body::File(content) => (FileType::RegularFile, content.len(), content.pages_allocated()),
            Body::Dir(_) => (FileType::Directory, PAGE_BYTES as u64, 1),
        };
        Ok(FileAttr {
            ino: INodeNo(ino),
            size,
            blocks: pages * (PAGE_BYTES / 512) as u64,
            atime: inode.modified,
            mtime: inode.modified,
            ctime: inode.modified,
            crtime: inode.modified,
            kind,
            perm: inode.mode as u16 & 0o7777,
            nlink: world.model.link_count(ino),
            uid: inode.owner.0,
            gid: inode.owner.1,
            rdev: 0,
            blksize: PAGE_BYTES as u32,
            flags: 0,
        })
    }

    fn enter_entry(&self, reply: ReplyEntry, act: impl FnOnce(&mut World) -> Result<Ino, i32>) {
        match self.with(|world| act(world).and_then(|ino| Self::attributes(world, ino))) {
            Ok(attributes) => reply.entry(&REMEMBER, &attributes, Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    fn empty(&self, reply: ReplyEmpty, act: impl FnOnce(&mut World) -> Result<(), i32>) {
        match self.with(act) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    /// A sync covers what was written before it began, takes its time, and counts only if the power lasts that long.
    fn sync_file(&self, ino: Ino) -> Result<(), Errno> {
        let (ticket, pause) = self.with(|world| Ok((world.model.begin_sync(ino)?, Self::sync_time(world))))?;
        std::thread::sleep(pause);
        self.with(|world| world.model.finish_sync(ino, ticket))
    }

    fn sync_time(world: &mut World) -> Duration {
        if world.sync_time_max.is_zero() {
            Duration::ZERO
        } else {
            world.random.duration(Duration::ZERO, world.sync_time_max)
        }
    }

    fn open_handle(world: &mut World, ino: Ino) -> Result<FileHandle, i32> {
        world.model.inode_mut(ino)?.opens += 1;
        world.next_handle += 1;
        Ok(FileHandle(world.next_handle))
    }

    fn close_handle(&self, ino: Ino, handle: FileHandle) -> Result<(), Errno> {
        self.with(|world| {
            world.listings.remove(&handle.0);
            let inode = world.model.inode_mut(ino)?;
            inode.opens = inode.opens.saturating_sub(1);
            if inode.opens == 0 {
                world.model.drop_unreachable();
            }
            Ok(())
        })
    }
}

/// Not FOPEN_DIRECT_IO: on that path the kernel sends no FSYNC after a write with RWF_DSYNC (seen on Linux 6.18). O_DIRECT works
/// without it, and buffered writes come through at once, since the write-back cache is not asked for.
fn file_flags() -> FopenFlags {
    FopenFlags::empty()
}

impl Filesystem for Server {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let _ = config.set_max_write(WRITE_BYTES_MAX);
        // Without these the kernel only works more slowly; no refusal matters.
        let _ = config.set_max_background(64);
        let _ = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        // Never FUSE_ASYNC_DIO: with it the kernel completes an asynchronous direct write (io_uring's) without the FSYNC that
        // RWF_DSYNC asks for (seen on Linux 6.18: acknowledged records were gone after a cut).
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.enter_entry(reply, |world| world.model.lookup(parent.0, name));
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.with(|world| Self::attributes(world, ino.0)) {
            Ok(attributes) => reply.attr(&REMEMBER, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let done = self.with(|world| {
            if let Some(size) = size {
                world.model.truncate(ino.0, size, SystemTime::now())?;
            }
            let inode = world.model.inode_mut(ino.0)?;
            inode.mode = mode.unwrap_or(inode.mode);
            inode.owner = (uid.unwrap_or(inode.owner.0), gid.unwrap_or(inode.owner.1));
            match mtime {
                Some(TimeOrNow::SpecificTime(time)) => inode.modified = time,
                Some(TimeOrNow::Now) => inode.modified = SystemTime::now(),
                None => {}
            }
            Self::attributes(world, ino.0)
        });
        match done {
            Ok(attributes) => reply.attr(&REMEMBER, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let owner = (req.uid(), req.gid());
        self.enter_entry(reply, |world| {
            world.model.create(parent.0, name, true, mode & !umask, owner, SystemTime::now())
        });
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.empty(reply, |world| world.model.unlink(parent.0, name, SystemTime::now()));
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.empty(reply, |world| world.model.remove_dir(parent.0, name, SystemTime::now()));
    }

    fn rename(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let now = SystemTime::now();
        self.empty(reply, |world| world.model.rename((parent.0, name), (newparent.0, newname), flags.bits(), now));
    }

    fn link(&self, _req: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        self.enter_entry(reply, |world| {
            world.model.link(ino.0, newparent.0, newname, SystemTime::now()).map(|()| ino.0)
        });
    }

    fn open(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match self.with(|world| Self::open_handle(world, ino.0)) {
            Ok(handle) => reply.opened(handle, file_flags()),
            Err(error) => reply.error(error),
        }
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let owner = (req.uid(), req.gid());
        let done = self.with(|world| {
            let ino = world.model.create(parent.0, name, false, mode & !umask, owner, SystemTime::now())?;
            Ok((Self::open_handle(world, ino)?, Self::attributes(world, ino)?))
        });
        match done {
            Ok((handle, attributes)) => reply.created(&REMEMBER, &attributes, Generation(0), handle, file_flags()),
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.with(|world| world.model.read(ino.0, offset, size as usize)) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.with(|world| world.model.write(ino.0, offset, data, SystemTime::now())) {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(error),
        }
    }

    fn flush(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _lock_owner: LockOwner, reply: ReplyEmpty) {
        // Closing a file makes nothing durable.
        self.empty(reply, |_| Ok(()));
    }

    fn release(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        match self.close_handle(ino.0, fh) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn fsync(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        match self.sync_file(ino.0) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn opendir(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let done = self.with(|world| {
            let entries = world.model.list(ino.0)?;
            let handle = Self::open_handle(world, ino.0)?;
            world.listings.insert(handle.0, entries);
            Ok(handle)
        });
        match done {
            Ok(handle) => reply.opened(handle, FopenFlags::empty()),
            Err(error) => reply.error(error),
        }
    }

    fn readdir(&self, _req: &Request, ino: INodeNo, fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let listing = self.with(|world| {
            let mut all = vec![(OsString::from("."), ino.0, true), (OsString::from(".."), ino.0, true)];
            all.extend(world.listings.get(&fh.0).ok_or(libc::EBADF)?.iter().cloned());
            Ok(all)
        });
        match listing {
            Ok(all) => {
                for (index, (name, child, is_dir)) in all.into_iter().enumerate().skip(offset as usize) {
                    let kind = if is_dir { FileType::Directory } else { FileType::RegularFile };
                    if reply.add(INodeNo(child), index as u64 + 1, kind, name) {
                        break;
                    }
                }
                reply.ok();
            }
            Err(error) => reply.error(error),
        }
    }

    fn releasedir(&self, _req: &Request, ino: INodeNo, fh: FileHandle, _flags: OpenFlags, reply: ReplyEmpty) {
        match self.close_handle(ino.0, fh) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn fsyncdir(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        match self.with(|world| Ok(Self::sync_time(world))) {
            Ok(pause) => std::thread::sleep(pause),
            Err(error) => return reply.error(error),
        }
        self.empty(reply, |world| world.model.sync_dir(ino.0));
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        match self.with(|world| Ok((world.model.capacity, world.model.bytes_used()))) {
            Ok((capacity, used)) => {
                let block = PAGE_BYTES as u64;
                let free = capacity.saturating_sub(used) / block;
                reply.statfs(capacity / block, free, free, 1 << 20, 1 << 20, block as u32, 255, block as u32);
            }
            Err(error) => reply.error(error),
        }
    }

    fn fallocate(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        self.empty(reply, |world| world.model.allocate(ino.0, mode, offset, length, SystemTime::now()));
    }
}
