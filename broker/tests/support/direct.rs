//! Holds: the system calls of a durable writer, bare: direct files, aligned buffers, writes with RWF_DSYNC, folder syncs.
//! Never touches: the broker; stand-in writers of the equipment's own tests use this.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// What O_DIRECT asks of addresses, offsets and lengths on the disks at hand.
pub const BLOCK_BYTES: usize = 4096;

/// Bytes that start at a block's border.
pub struct Aligned {
    // One block more than asked for, so that an aligned stretch is always within.
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    /// `bytes`, filled up with zeroes to whole blocks.
    pub fn from_bytes(bytes: &[u8]) -> Aligned {
        let len = bytes.len().next_multiple_of(BLOCK_BYTES);
        let memory = vec![0; len + BLOCK_BYTES];
        let start = memory.as_ptr().align_offset(BLOCK_BYTES);
        let mut aligned = Aligned { memory, start, len };
        aligned.as_mut()[..bytes.len()].copy_from_slice(bytes);
        aligned
    }
}

impl AsRef<[u8]> for Aligned {
    fn as_ref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }
}

impl AsMut<[u8]> for Aligned {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

/// Opens (and creates) a file for direct reads and writes.
pub fn open_direct(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).custom_flags(libc::O_DIRECT).open(path)
}

/// One `pwritev2`, with RWF_DSYNC if `durable`.
pub fn write_at(file: &File, bytes: &[u8], offset: u64, durable: bool) -> io::Result<()> {
    let part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let flags = if durable { libc::RWF_DSYNC } else { 0 };
    // SAFETY: the iovec points at `bytes`, which lives across the call and is only read by it.
    let written = unsafe { libc::pwritev2(file.as_raw_fd(), &part, 1, offset as libc::off_t, flags) };
    match usize::try_from(written) {
        Ok(written) if written == bytes.len() => Ok(()),
        Ok(written) => Err(io::Error::other(format!("short write: {written} of {} bytes", bytes.len()))),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// `fallocate(2)`.
pub fn allocate(file: &File, mode: i32, offset: u64, len: u64) -> io::Result<()> {
    // SAFETY: plain numbers only.
    let done = unsafe { libc::fallocate(file.as_raw_fd(), mode, offset as libc::off_t, len as libc::off_t) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes a folder's entries durable.
pub fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
