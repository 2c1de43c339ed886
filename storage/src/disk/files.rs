//! Whole reads, whole writes and replaced files over the reactor's single operations.
//!
//! Holds: the loops around short reads and writes, the order of steps that makes a small file durable.
//! Never touches: what the bytes mean.

use super::align_down;
use corelog_reactor::{AlignedBuf, BufSlice, Durability, File, OpenHow, Reactor};
use std::io;
use std::path::{Path, PathBuf};

/// Bytes that [`read_file`] asks for at once: memory grows with what has arrived.
const READ_STEP_BYTES: usize = 64 << 10;
/// Tries of a read or write that gets no further, not even by a block.
const STALLED_CALLS_MAX: u32 = 32;
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

/// What an operator can do about a file operation that failed, to stand behind the error; empty where nobody knows.
#[must_use]
pub fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; free some space: nothing is lost",
        io::ErrorKind::PermissionDenied => "; it must belong to the broker's user",
        io::ErrorKind::ReadOnlyFilesystem => {
            "; the file system is read-only: `dmesg` says why, if an error made it so; else mount it with rw"
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => "; there is a file where a folder should be",
        io::ErrorKind::IsADirectory => "; there is a folder where a file should be",
        _ => match error.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE) => {
                "; raise the limit of open files (ulimit -n, systemd: LimitNOFILE=; all processes together: fs.file-max)"
            }
            // What io_uring answers when it could start no thread for an operation that blocks.
            Some(libc::ECANCELED) => {
                "; the kernel could start no thread for it: raise the limit of processes (ulimit -u, systemd: LimitNPROC=, \
                 TasksMax=)"
            }
            Some(libc::EIO) => "; the disk failed: `dmesg` says more",
            _ => "",
        },
    }
}

/// The errors of a file that could not be made or opened, and that may be later: no space, no handle, no memory of ours.
/// Nothing was written.
#[must_use]
pub fn is_shortage(error: &io::Error) -> bool {
    let is_ours = error.raw_os_error().is_none();
    is_no_space(error)
        || matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
        || (is_ours && error.kind() == io::ErrorKind::OutOfMemory)
}

/// Fills `buf` from `offset` on, up to the file's end. Returns how many bytes there were.
///
/// Works for O_DIRECT, where a read must start at a block: one that was cut short within a block is repeated from that
/// block on, unless the file ends there.
pub async fn read_full(file: &File, mut buf: AlignedBuf, offset: u64) -> (io::Result<usize>, AlignedBuf) {
    let want = buf.len();
    let mut done = 0;
    let mut stalled = 0;
    while done < want {
        let from = align_down(done as u64) as usize;
        let (result, slice) = file.read_at(BufSlice::new(buf, from..want), offset + from as u64).await;
        buf = slice.into_inner();
        match result {
            Ok(0) => break,
            Ok(n) => {
                stalled = if from + n > done { 0 } else { stalled + 1 };
                done = done.max(from + n);
            }
            Err(error) if is_interrupted(&error) => continue,
            Err(error) => return (Err(error), buf),
        }
        if done < want {
            match file.len() {
                Ok(len) if offset + done as u64 >= len => break,
                Ok(_) if stalled > STALLED_CALLS_MAX => {
                    return (Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the disk gives no bytes")), buf);
                }
                Ok(_) => {}
                Err(error) => return (Err(error), buf),
            }
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
    let mut progress = WriteProgress::default();
    while progress.done() < len {
        let done = progress.done();
        let slice = BufSlice::new(buf, done..len);
        let (result, slice) = file.write_at(slice, offset + done as u64, durability).await;
        buf = slice.into_inner();
        match result.and_then(|n| progress.advance(n, len)) {
            Ok(()) => {}
            Err(error) if is_interrupted(&error) => {}
            Err(error) => return (Err(error), buf),
        }
    }
    (Ok(()), buf)
}

/// How far a direct write has got. A short one may end within a block: that block is written again, since a direct write
/// must start at a block's start.
#[derive(Debug, Default)]
pub struct WriteProgress {
    done: usize,
    stalled: u32,
}

impl WriteProgress {
    /// Bytes that are written, whole blocks.
    #[must_use]
    pub const fn done(&self) -> usize {
        self.done
    }

    /// Takes note of `n` further bytes, of `total` in all.
    ///
    /// # Errors
    /// When the write gets no further, try after try.
    pub fn advance(&mut self, n: usize, total: usize) -> io::Result<()> {
        let reached = self.done + n;
        let next = if reached >= total { total } else { align_down(reached as u64) as usize };
        self.stalled = if next > self.done { 0 } else { self.stalled + 1 };
        self.done = next;
        if n == 0 || self.stalled > STALLED_CALLS_MAX {
            return Err(io::Error::new(io::ErrorKind::WriteZero, "the disk takes no bytes"));
        }
        Ok(())
    }
}

/// Reads a whole small file through the page cache: one read, if its length is what it says and the read is not cut short.
/// Nobody writes to it meanwhile.
///
/// # Errors
/// As the operations give them; `NotFound` if there is no such file.
pub async fn read_file(reactor: &Reactor, path: &Path) -> io::Result<Vec<u8>> {
    let file = reactor.open(path, OpenHow::read()).await?;
    let len = usize::try_from(file.len()?).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
    let mut out = Vec::new();
    while out.len() < len {
        let step = (len - out.len()).min(READ_STEP_BYTES);
        let (result, mut buf) = file.read_at(vec![0; step], out.len() as u64).await;
        match result {
            Ok(0) => break,
            Ok(n) if out.is_empty() => {
                buf.truncate(n);
                out = buf;
            }
            Ok(n) => out.extend_from_slice(buf.get(..n).unwrap_or_default()),
            Err(error) if is_interrupted(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(out)
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
            Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero)),
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
    put_in_place(reactor, path, bytes).await?;
    match path.parent() {
        Some(folder) => reactor.sync_dir(folder).await,
        None => Ok(()),
    }
}

/// The same without the sync of the folder: until that, a crash may bring the old content back.
///
/// # Errors
/// As the operations give them; the old file is then still there.
pub async fn put_in_place(reactor: &Reactor, path: &Path, bytes: Vec<u8>) -> io::Result<()> {
    let scratch = scratch_path(path);
    let done = match write_synced(reactor, &scratch, bytes).await {
        Ok(()) => reactor.rename(&scratch, path).await,
        failed => failed,
    };
    if done.is_err() {
        // On a full disk what is there of it would keep the space that deletions need.
        let _ = unlink_if_there(reactor, &scratch).await;
    }
    done
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
        let mut progress = WriteProgress::default();
        progress.advance(5_000, 12_288).unwrap();
        assert_eq!(progress.done(), 4_096);
        progress.advance(512, 12_288).unwrap();
        assert_eq!(progress.done(), 4_096);
        progress.advance(8_192, 12_288).unwrap();
        assert_eq!(progress.done(), 12_288);
    }

    #[test]
    fn a_write_that_gets_no_further_fails() {
        assert!(WriteProgress::default().advance(0, 4_096).is_err());
        let mut progress = WriteProgress::default();
        let failed = (0..100).any(|_| progress.advance(512, 4_096).is_err());
        assert!(failed);
    }
}
