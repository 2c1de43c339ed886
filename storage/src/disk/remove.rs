//! Removing big files and whole folders without stalling the writers of the same disk.
//!
//! Holds: the stepwise shrinking of a file before it is unlinked. Never touches: what is in them.
//!
//! Unlinking a file of half a gigabyte stalled durable writes on the same ext4 for 0.7-0.85 s: the journal carries all of
//! its extents (and discards) at once. So a big file loses its length in steps first, with pauses between.
//!
//! A step ends where no folio of the page cache lies across: of one that is cut within, the kernel zeroes the rest, also where
//! it is on its way to a reader (in a pipe, in a socket). Pages that leave the file whole keep their bytes.

use super::files::unlink_if_there;
use corelog_reactor::{File, OpenHow, Reactor};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What a file loses at once, and multiples of which it is cut at. Folios are as large as a power of two, lie at multiples of
/// it, and are no larger than this (2 MiB with pages of 4 KiB).
pub const STEP_BYTES: u64 = 16 << 20;
const _: () = assert!(STEP_BYTES.is_power_of_two());
/// The pause after a step, for everybody else's writes.
const STEP_PAUSE: Duration = Duration::from_millis(20);
/// The suffix of a folder whose log (or purpose) is gone and whose content is being removed.
pub const DELETE_SUFFIX: &str = "-delete";
/// The suffix of a log's folder whose topic nobody knows: kept, for a person to decide about (as Kafka does).
pub const STRAY_SUFFIX: &str = "-stray";
/// The longest file name Linux allows.
const NAME_BYTES_MAX: usize = 255;

/// Where the folder `name` in `data` goes before something is done to it: as Kafka names it, `<name>.<32 hex><suffix>`.
#[must_use]
pub fn aside(reactor: &Reactor, data: &Path, name: &str, suffix: &str) -> PathBuf {
    let mut random = [0; 16];
    reactor.fill_random(&mut random);
    let tail = format!(".{:032x}{suffix}", u128::from_ne_bytes(random));
    // Topic names are ASCII: any byte is a place to cut.
    let head = name.get(..name.len().min(NAME_BYTES_MAX - tail.len())).unwrap_or(name);
    data.join(format!("{head}{tail}"))
}

/// Whether a file of so many bytes is one to shrink first.
#[must_use]
pub const fn is_big(len: u64) -> bool {
    len > STEP_BYTES
}

/// Takes a file's length in steps to multiples of [`STEP_BYTES`], until little is left or it shall not go on.
///
/// # Errors
/// As the operations give them.
pub async fn shrink(reactor: &Reactor, file: &File, goes_on: impl Fn() -> bool) -> io::Result<()> {
    let mut left = file.len()?;
    while is_big(left) && goes_on() {
        left = (left - 1) / STEP_BYTES * STEP_BYTES;
        file.truncate(left).await?;
        reactor.sleep(STEP_PAUSE).await;
    }
    Ok(())
}

/// Removes one file, a big one in steps. A missing file is removed already.
///
/// # Errors
/// As the operations give them.
pub async fn remove_file(reactor: &Reactor, path: &Path, len: u64) -> io::Result<()> {
    if is_big(len) {
        match reactor.open(path, OpenHow::write()).await {
            Ok(file) => shrink(reactor, &file, || true).await?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    unlink_if_there(reactor, path).await
}

/// Removes a folder of files (folders within it are left, and make it fail), then syncs its parent.
///
/// # Errors
/// As the operations give them.
pub async fn remove_folder(reactor: &Reactor, path: &Path) -> io::Result<()> {
    let entries = match reactor.list_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        remove_file(reactor, &path.join(&entry.name), entry.len).await?;
    }
    reactor.remove_dir(path).await?;
    match path.parent() {
        Some(parent) => reactor.sync_dir(parent).await,
        None => Ok(()),
    }
}
