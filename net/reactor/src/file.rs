//! Files: one future for each operation on the ring.
//!
//! Holds: the file handle and the path operations. Never touches: what is in the files; alignment (the caller's task).

use std::cell::Cell;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::buf::{IoBufMut, IoBufs};
use crate::driver::{Durability, Op, OpenHow};
use crate::ids::Handle;
use crate::op::{OpFuture, Scratch, count};
use crate::reactor::Reactor;

/// Most bytes one read asks for: what the kernel moves in one call at most.
const READ_BYTES_MAX: usize = 0x7fff_f000;

/// An open file or directory. Closes itself when dropped, without waiting.
pub struct File {
    reactor: Reactor,
    handle: Handle,
    closes_on_drop: bool,
    at_hand: Cell<bool>,
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("File").field("handle", &self.handle).finish()
    }
}

impl File {
    /// Reads at most `buf`'s length at `offset`, into its front. Zero: the end of the file. May be short.
    pub async fn read_at<B: IoBufMut>(&self, buf: B, offset: u64) -> (io::Result<usize>, B) {
        let handle = self.handle;
        let read = OpFuture::new(&self.reactor, buf, move |buf: &mut B, _| {
            let len = buf.room().min(READ_BYTES_MAX) as u32;
            Op::Read { handle, buf: buf.start(), len, offset }
        });
        let (result, buf) = read.await;
        (count(result), buf)
    }

    /// Writes the pieces of `bufs` at `offset`. May be short: also when there are more than
    /// [`crate::IOVECS_MAX`] pieces. With [`Durability::Dsync`] what was written is on stable storage.
    pub async fn write_at<W: IoBufs>(&self, bufs: W, offset: u64, durability: Durability) -> (io::Result<usize>, W) {
        let handle = self.handle;
        let write = OpFuture::new(&self.reactor, bufs, move |bufs: &mut W, scratch: &mut Scratch| {
            scratch.iovecs.clear();
            bufs.expose(&mut scratch.iovecs);
            let iov_len = scratch.iovecs.len() as u32;
            Op::Write { handle, iov: scratch.iovecs.as_mut_ptr(), iov_len, offset, durability }
        });
        let (result, bufs) = write.await;
        (count(result), bufs)
    }

    /// Data and metadata of this file to stable storage.
    pub async fn fsync(&self) -> io::Result<()> {
        self.plain(Op::Fsync { handle: self.handle, data_only: false }).await
    }

    /// Data, and what of the metadata is needed to read it, to stable storage.
    pub async fn fdatasync(&self) -> io::Result<()> {
        self.plain(Op::Fsync { handle: self.handle, data_only: true }).await
    }

    /// Sets the length. Below kernel 6.9 this blocks the core for as long as ftruncate(2) takes.
    pub async fn truncate(&self, len: u64) -> io::Result<()> {
        self.plain(Op::Truncate { handle: self.handle, len }).await
    }

    /// Reserves space (fallocate(2), mode 0: the length grows if needed).
    pub async fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.plain(Op::Allocate { handle: self.handle, offset, len }).await
    }

    /// The length now.
    pub fn len(&self) -> io::Result<u64> {
        self.reactor.0.driver.borrow_mut().file_len(self.handle)
    }

    /// Whether the length is zero.
    pub fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Gives the file one of the ring's bounded places for files that are used again and again, until it is closed: its
    /// reads, writes and syncs then cost a little less CPU. One system call the first time, nothing when repeated; not for
    /// short-lived files. False: all places are taken, or there are none (also in the simulation), and nothing changes.
    pub fn keep_at_hand(&self) -> bool {
        if !self.at_hand.get() && self.reactor.0.driver.borrow_mut().keep_at_hand(self.handle) {
            self.at_hand.set(true);
            self.reactor.0.tally(|c| c.files_at_hand += 1);
        }
        self.at_hand.get()
    }

    /// Gives the handle up without closing it.
    pub(crate) fn into_handle(mut self) -> Handle {
        self.closes_on_drop = false;
        self.handle
    }

    /// The descriptor (in the simulation: its number there).
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// Closes and waits for it: the only way to see an error of the close.
    pub async fn close(self) -> io::Result<()> {
        let (reactor, handle) = (self.reactor.clone(), self.handle);
        // The file closes itself until the moment the operation is sent; from then on the operation does it.
        let close = OpFuture::new(&reactor, Some(self), move |file: &mut Option<File>, _| {
            if let Some(mut file) = file.take() {
                file.closes_on_drop = false;
            }
            Op::Close { handle }
        });
        let (result, _) = close.closing().await;
        count(result).map(drop)
    }

    async fn plain(&self, op: Op) -> io::Result<()> {
        let (result, ()) = OpFuture::new(&self.reactor, (), move |_, _| op).await;
        count(result).map(drop)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if self.at_hand.get() {
            self.reactor.0.tally(|c| c.files_at_hand -= 1);
        }
        if self.closes_on_drop {
            self.reactor.close(self.handle);
        }
    }
}

fn c_path(path: &Path, into: &mut Vec<u8>) {
    into.clear();
    into.extend_from_slice(path.as_os_str().as_bytes());
    into.push(0);
}

fn checked(path: &Path) -> io::Result<&Path> {
    if path.as_os_str().as_bytes().contains(&0) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a path with a zero byte"));
    }
    Ok(path)
}

impl Reactor {
    /// Opens a file.
    pub async fn open(&self, path: &Path, how: OpenHow) -> io::Result<File> {
        let path = checked(path)?.to_path_buf();
        let open = OpFuture::new(self, path, move |path: &mut _, scratch: &mut Scratch| {
            c_path(path, &mut scratch.path);
            Op::Open { path: scratch.path.as_ptr().cast(), how }
        });
        let (result, _) = open.yielding_handle().await;
        count(result)?;
        Ok(File { reactor: self.clone(), handle: Handle(result), closes_on_drop: true, at_hand: Cell::new(false) })
    }

    /// Renames, replacing a file of the new name. Durable after [`Reactor::sync_dir`] of the folders.
    pub async fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let paths = (checked(from)?.to_path_buf(), checked(to)?.to_path_buf());
        let rename = OpFuture::new(self, paths, |(from, to): &mut (_, _), scratch: &mut Scratch| {
            c_path(from, &mut scratch.path);
            c_path(to, &mut scratch.path_to);
            Op::Rename { from: scratch.path.as_ptr().cast(), to: scratch.path_to.as_ptr().cast() }
        });
        let (result, _) = rename.await;
        count(result).map(drop)
    }

    /// Removes a file. Durable after [`Reactor::sync_dir`] of its folder.
    pub async fn unlink(&self, path: &Path) -> io::Result<()> {
        self.remove(path, false).await
    }

    /// Removes an empty directory.
    pub async fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.remove(path, true).await
    }

    async fn remove(&self, path: &Path, directory: bool) -> io::Result<()> {
        let path = checked(path)?.to_path_buf();
        let remove = OpFuture::new(self, path, move |path: &mut _, scratch: &mut Scratch| {
            c_path(path, &mut scratch.path);
            Op::Unlink { path: scratch.path.as_ptr().cast(), directory }
        });
        let (result, _) = remove.await;
        count(result).map(drop)
    }

    /// Makes a directory (mode 0o755). Durable after [`Reactor::sync_dir`] of its parent.
    pub async fn mkdir(&self, path: &Path) -> io::Result<()> {
        let path = checked(path)?.to_path_buf();
        let mkdir = OpFuture::new(self, path, |path: &mut _, scratch: &mut Scratch| {
            c_path(path, &mut scratch.path);
            Op::Mkdir { path: scratch.path.as_ptr().cast(), mode: 0o755 }
        });
        let (result, _) = mkdir.await;
        count(result).map(drop)
    }

    /// The device of the file system that a path leads to now, as in st_dev of stat(2).
    ///
    /// # Errors
    /// As the system gives them.
    pub async fn device_of(&self, path: &Path) -> io::Result<u64> {
        // SAFETY: a plain C structure for which all zeroes is a valid value.
        let about: Box<libc::statx> = Box::new(unsafe { std::mem::zeroed() });
        let lent = (checked(path)?.to_path_buf(), about);
        let stat = OpFuture::new(self, lent, |(path, about): &mut (_, Box<libc::statx>), scratch: &mut Scratch| {
            c_path(path, &mut scratch.path);
            Op::Stat { path: scratch.path.as_ptr().cast(), into: &raw mut **about }
        });
        let (result, (_, about)) = stat.await;
        count(result)?;
        Ok(libc::makedev(about.stx_dev_major, about.stx_dev_minor))
    }

    /// Makes what was created, renamed or removed in this folder durable.
    pub async fn sync_dir(&self, path: &Path) -> io::Result<()> {
        if self.0.forgets_folders.get() {
            return Ok(());
        }
        let folder = self.open(path, OpenHow::read().directory()).await?;
        folder.fsync().await
    }
}
