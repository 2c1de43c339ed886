//! Whole reads, whole writes and replaced files over the reactor's single operations.
//!
//! Holds: the loops around short reads and writes, the order of steps that makes a small file durable.
//! Never touches: what the bytes mean.

use super::{BLOCK_BYTES, align_down};
use corelog_reactor::{AlignedBuf, BufSlice, Durability, File, OpenHow, Reactor};
use std::io;
use std::path::{Path, PathBuf};

/// Bytes that [`read_file`] asks for first, and then again and again.
const READ_STEP_BYTES: usize = 64 << 10;
/// Suffix of a file that is being written and will be renamed; leftovers of a crash are removed at start.
pub const SCRATCH_SUFFIX: &str = ".tmp";

/// The errors after which the same call is simply made again.
#[must_use]
pub fn is_interrupted(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
}

/// The errors that go away when somebody makes room.
#[must_use]
pub fn is_no_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Fills `buf` from `offset` on, up to the file's end. Returns how many bytes there were.
///
/// Works for O_DIRECT, where a read that ends off a block boundary has reached the end of the file.
pub async fn read_full(file: &File, mut buf: AlignedBuf, offset: u64) -> (io::Result<usize>, AlignedBuf) {
    let want = buf.len();
    let mut done = 0;
    while done < want {
        let slice = BufSlice::new(buf, done..want);
        let (result, slice) = file.read_at(slice, offset + done as u64).await;
        buf = slice.into_inner();
        match result {
            Ok(0) => break,
            Ok(n) => {
                done += n;
                if !n.is_multiple_of(BLOCK_BYTES as usize) {
                    break;
                }
            }
            Err(error) if is_interrupted(&error) => {}
            Err(error) => return (Err(error), buf),
        }
    }
    (Ok(done), buf)
}

/// Writes the first `len` bytes of `buf` at `offset`, however many calls it takes.
pub async fn write_full(
    file: &File,
    mut buf: AlignedBuf,
    len: usize,
    offset: u64,
    durability: Durability,
) -> (io::Result<()>, AlignedBuf) {
    let mut done = 0;
    while done < len {
        let slice = BufSlice::new(buf, done..len);
        let (result, slice) = file.write_at(slice, offset + done as u64, durability).await;
        buf = slice.into_inner();
        match result {
            // A short direct write may end within a block: that block is written again.
            Ok(n) => match advance(done, n) {
                Some(next) => done = next,
                None => return (Err(no_progress()), buf),
            },
            Err(error) if is_interrupted(&error) => {}
            Err(error) => return (Err(error), buf),
        }
    }
    (Ok(()), buf)
}

/// Where a write goes on that had done `done` bytes and now `n` more; `None` if it would not get on.
#[must_use]
pub fn advance(done: usize, n: usize) -> Option<usize> {
    let next = align_down((done + n) as u64) as usize;
    (next > done).then_some(next)
}

/// The error for a write that keeps writing nothing.
#[must_use]
pub fn no_progress() -> io::Error {
    io::Error::new(io::ErrorKind::WriteZero, "the disk takes no bytes")
}

/// Reads a whole small file through the page cache.
///
/// # Errors
/// As the operations give them; `NotFound` if there is no such file.
pub async fn read_file(reactor: &Reactor, path: &Path) -> io::Result<Vec<u8>> {
    let file = reactor.open(path, OpenHow::read()).await?;
    let mut out = Vec::new();
    let mut buf = vec![0; READ_STEP_BYTES];
    loop {
        let (result, back) = file.read_at(buf, out.len() as u64).await;
        buf = back;
        match result {
            Ok(0) => return Ok(out),
            Ok(n) => out.extend_from_slice(buf.get(..n).unwrap_or_default()),
            Err(error) if is_interrupted(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Writes a small file through the page cache and syncs it; its folder is not synced.
///
/// # Errors
/// As the operations give them.
pub async fn write_synced(reactor: &Reactor, path: &Path, bytes: Vec<u8>) -> io::Result<()> {
    let file = reactor.open(path, OpenHow::write().create().truncate()).await?;
    let len = bytes.len();
    let mut bytes = bytes;
    let mut done = 0;
    while done < len {
        let (result, slice) = file.write_at(BufSlice::new(bytes, done..len), done as u64, Durability::None).await;
        bytes = slice.into_inner();
        match result {
            Ok(0) => return Err(no_progress()),
            Ok(n) => done += n,
            Err(error) if is_interrupted(&error) => {}
            Err(error) => return Err(error),
        }
    }
    file.fsync().await
}

/// Replaces (or makes) a small file so that after a crash either the old or the new content is there, whole:
/// scratch file, sync, rename, sync of the folder. Returns when it is durable.
///
/// # Errors
/// As the operations give them; the old file is then still there, or the new one already.
pub async fn replace_file(reactor: &Reactor, path: &Path, bytes: Vec<u8>) -> io::Result<()> {
    let scratch = scratch_path(path);
    write_synced(reactor, &scratch, bytes).await?;
    reactor.rename(&scratch, path).await?;
    match path.parent() {
        Some(folder) => reactor.sync_dir(folder).await,
        None => Ok(()),
    }
}

fn scratch_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(SCRATCH_SUFFIX);
    PathBuf::from(name)
}

/// Removes a file that may be gone already.
///
/// # Errors
/// As the operation gives them, `NotFound` excepted.
pub async fn unlink_if_there(reactor: &Reactor, path: &Path) -> io::Result<()> {
    match reactor.unlink(path).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Makes a folder that may be there already.
///
/// # Errors
/// As the operation gives them, `AlreadyExists` excepted.
pub async fn mkdir_if_missing(reactor: &Reactor, path: &Path) -> io::Result<()> {
    match reactor.mkdir(path).await {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_direct_write_goes_on_at_a_block() {
        assert_eq!(advance(0, 4_096), Some(4_096));
        assert_eq!(advance(4_096, 5_000), Some(8_192));
        assert_eq!(advance(4_096, 512), None);
        assert_eq!(advance(0, 0), None);
    }
}
