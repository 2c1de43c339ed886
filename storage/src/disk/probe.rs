//! What the disk under a folder can do: O_DIRECT, RWF_DSYNC, block size, free space.
//!
//! Holds: one blocking try with a scratch file, at start or from the tuning tool. Never touches: logs, the reactor.

use super::BLOCK_BYTES;
use super::files::is_no_space;
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// What a folder's disk can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskSupport {
    /// Whether O_DIRECT writes work. If not, logs go through the page cache, and each commit syncs.
    pub direct: bool,
    /// Why not, to be said once at start.
    pub direct_refused: Option<String>,
    /// What offsets and lengths of direct I/O must be multiples of.
    pub block_bytes: u32,
    /// The file system, by its name.
    pub file_system: &'static str,
    /// Bytes that may still be written.
    pub free_bytes: u64,
    /// Bytes of the file system.
    pub total_bytes: u64,
}

/// Why a folder cannot hold logs.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// No file can be made or written there.
    #[error("{folder}: cannot {what}: {error}; the data folder must be writable by the broker's user")]
    NotWritable {
        /// The folder.
        folder: PathBuf,
        /// What was tried.
        what: &'static str,
        /// How it failed.
        error: io::Error,
    },
    /// Direct I/O works in larger blocks than logs are written in.
    #[error(
        "{folder}: the device wants direct I/O in blocks of {block_bytes} bytes, logs are written in blocks of {BLOCK_BYTES}: use a device or a format with 4 KiB (or 512-byte) blocks"
    )]
    BlockTooLarge {
        /// The folder.
        folder: PathBuf,
        /// What the device wants.
        block_bytes: u32,
    },
    /// The kernel or the file system refuses synchronous writes.
    #[error("{folder} ({file_system}): RWF_DSYNC is refused: {error}; use ext4, XFS or btrfs on Linux 4.7 or later")]
    NoDsync {
        /// The folder.
        folder: PathBuf,
        /// The file system.
        file_system: &'static str,
        /// How it failed.
        error: io::Error,
    },
}

impl ProbeError {
    /// Whether the disk was full.
    #[must_use]
    pub fn is_no_space(&self) -> bool {
        match self {
            Self::NotWritable { error, .. } | Self::NoDsync { error, .. } => is_no_space(error),
            Self::BlockTooLarge { .. } => false,
        }
    }
}

const SCRATCH_NAME: &str = ".probe.tmp";

#[repr(C, align(4096))]
struct Block([u8; BLOCK_BYTES as usize]);

/// Tries a folder that exists. Blocks for a few milliseconds.
///
/// # Errors
/// See [`ProbeError`].
pub fn probe(folder: &Path) -> Result<DiskSupport, ProbeError> {
    let not_writable = |what| move |error| ProbeError::NotWritable { folder: folder.to_path_buf(), what, error };
    let scratch = Scratch(folder.join(SCRATCH_NAME));
    let plain = open(&scratch.0, 0).map_err(not_writable("make a file in it"))?;
    let (file_system, total_bytes, free_bytes) = space(folder).map_err(not_writable("ask for its free space"))?;
    write_dsync(&plain).map_err(|error| ProbeError::NoDsync { folder: folder.to_path_buf(), file_system, error })?;
    let block_bytes = direct_block_bytes(folder, &scratch.0);
    if u64::from(block_bytes) > BLOCK_BYTES {
        return Err(ProbeError::BlockTooLarge { folder: folder.to_path_buf(), block_bytes });
    }
    let direct_refused = match open(&scratch.0, libc::O_DIRECT).and_then(|f| write_dsync(&f)) {
        Ok(()) => None,
        Err(error) => Some(format!(
            "{} ({file_system}) refuses O_DIRECT: {error}; logs go through the page cache, with a sync after each commit: slower, and as durable as the file system makes it{}",
            folder.display(),
            advice(file_system)
        )),
    };
    Ok(DiskSupport {
        direct: direct_refused.is_none(),
        direct_refused,
        block_bytes,
        file_system,
        free_bytes,
        total_bytes,
    })
}

fn advice(file_system: &str) -> &'static str {
    match file_system {
        "tmpfs" => "; tmpfs is memory: nothing in it survives a restart of the machine",
        "overlayfs" => "; a container's own file system: mount a volume for the data folder",
        _ => "; put the data folder on ext4 or XFS",
    }
}

struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // If it stays, the next start removes it: the name ends in .tmp.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn open(path: &Path, flags: i32) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).custom_flags(flags).open(path)
}

fn write_dsync(file: &File) -> io::Result<()> {
    let block = Block([0; BLOCK_BYTES as usize]);
    let piece = libc::iovec { iov_base: (&raw const block.0).cast_mut().cast(), iov_len: block.0.len() };
    // SAFETY: one piece that lives until the call returns; the kernel only reads it.
    let written = unsafe { libc::pwritev2(file.as_raw_fd(), &raw const piece, 1, 0, libc::RWF_DSYNC) };
    match usize::try_from(written) {
        Ok(n) if n == block.0.len() => Ok(()),
        Ok(_) => Err(io::Error::from(io::ErrorKind::WriteZero)),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// The file system's name, its size and what is free, in bytes.
fn space(folder: &Path) -> io::Result<(&'static str, u64, u64)> {
    let path = CString::new(folder.as_os_str().as_bytes())?;
    // SAFETY: `statfs` is plain numbers, for which all zeroes are a value.
    let mut stat: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: a path with its zero byte, and room for the answer.
    if unsafe { libc::statfs(path.as_ptr(), &raw mut stat) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // The numbers of statfs(2).
    let name = match stat.f_type {
        0xEF53 => "ext4",
        0x5846_5342 => "xfs",
        0x9123_683E => "btrfs",
        0x0102_1994 => "tmpfs",
        0x794C_7630 => "overlayfs",
        0x6573_5546 => "fuse",
        0x6969 => "nfs",
        0x2FC1_2FC1 => "zfs",
        _ => "another file system",
    };
    let unit = u64::try_from(stat.f_bsize).unwrap_or(BLOCK_BYTES);
    Ok((name, stat.f_blocks * unit, stat.f_bavail * unit))
}

/// What direct I/O must be aligned to: as statx(2) says since Linux 6.1, or else one block.
fn direct_block_bytes(folder: &Path, file: &Path) -> u32 {
    let fallback = BLOCK_BYTES as u32;
    let Ok(path) = CString::new(file.as_os_str().as_bytes()) else {
        tracing::debug!(folder = %folder.display(), "a path with a zero byte");
        return fallback;
    };
    // SAFETY: `statx` is plain numbers, for which all zeroes are a value.
    let mut stat: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: a path with its zero byte, and room for the answer.
    let result = unsafe { libc::statx(libc::AT_FDCWD, path.as_ptr(), 0, libc::STATX_DIOALIGN, &raw mut stat) };
    let known = result == 0 && stat.stx_mask & libc::STATX_DIOALIGN != 0;
    if known && stat.stx_dio_offset_align > 0 { stat.stx_dio_offset_align } else { fallback }
}
