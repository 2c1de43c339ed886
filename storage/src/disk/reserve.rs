//! Space set aside for a full disk: without it, a broker whose disk is full could neither start nor delete, and deleting is how
//! a full disk becomes less full.
//!
//! Holds: the file `.reserve` of a data folder, whether it is there, the word that it is spent. Never touches: what the
//! space is used for.
//!
//! ```text
//!   whole ──(what must work finds no space: the file is removed, and the work is done again)──> spent
//!     ^                                                                                          │ logs, spares and topics
//!     └───────────────────(there is space for the file again: it is written)─────────────────────┘ do not grow meanwhile
//! ```
//!
//! While it is spent nothing else grows: else a busy log would take at once what was freed for the next deletion. And since the
//! disk may have other users, what was freed and not needed is set aside again, as a smaller file.

use super::files::{is_shortage, replace_file, unlink_if_there};
use corelog_reactor::{OpenHow, Reactor};
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Name of the file, in the data folder.
pub const RESERVE_FILE: &str = ".reserve";
/// What it holds at the least: some hundred small files, which is what a start and a deletion write beside the checkpoints.
const RESERVE_BYTES_MIN: u64 = 1 << 20;
/// Copies of all checkpoints that it has room for, beside the present ones.
const CHECKPOINT_COPIES: u64 = 2;
/// Tries of what must work, once the reserve is spent: a file system may give freed space out a little later, and another
/// shard may have been the one to free it.
const TRIES: u32 = 4;
/// The pause between two of them.
const TRY_PAUSE: Duration = Duration::from_millis(50);
/// Free beside the reserve before it is written again, so that it does not come and go.
const SLACK_BYTES: u64 = 64 << 10;
/// The part of its blocks that ext4 keeps for itself (`reserved_clusters` in its sysfs folder), and the most of them.
const EXT4_OWN_PART: u64 = 50;
const EXT4_OWN_BLOCKS_MAX: u64 = 4096;
/// The smallest part of it that is worth keeping.
const PART_BYTES_MIN: u64 = 16 << 10;

#[derive(Debug)]
struct Inner {
    data: PathBuf,
    bytes: u64,
    /// Whether it is spent ([`SPENT`]), and above that bit how often it was given up: who writes it must not call it whole when
    /// another shard has given it up meanwhile.
    state: AtomicU64,
    /// Somebody waits for space, to fill it again.
    is_awaited: AtomicBool,
    /// Somebody works on its file.
    is_being_filled: AtomicBool,
}

/// The bit of a reserve's state that says that it is spent.
const SPENT: u64 = 1;
/// What is added to a reserve's state each time it is given up.
const GIVEN_UP: u64 = 2;

/// The reserve of a data folder. All shards hold the same one.
#[derive(Clone, Debug)]
pub struct Reserve(Arc<Inner>);

impl Reserve {
    /// The reserve of the data folder `data`, whose checkpoints have `checkpoint_bytes` together. Nothing is written yet, and it
    /// counts as whole.
    #[must_use]
    pub fn new(data: &Path, checkpoint_bytes: u64) -> Self {
        Self(Arc::new(Inner {
            data: data.to_path_buf(),
            bytes: RESERVE_BYTES_MIN + checkpoint_bytes.saturating_mul(CHECKPOINT_COPIES),
            state: AtomicU64::new(0),
            is_awaited: AtomicBool::new(false),
            is_being_filled: AtomicBool::new(false),
        }))
    }

    /// Whether the disk was so full that it had to go, and it is not back: then nothing may grow that can wait.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.0.state.load(Ordering::Relaxed) & SPENT != 0
    }

    /// Refuses what would grow while the reserve is spent, as a full disk does.
    ///
    /// # Errors
    /// [`StorageFull`](io::ErrorKind::StorageFull).
    pub fn may_grow(&self) -> io::Result<()> {
        if !self.is_spent() {
            return Ok(());
        }
        let words = "the disk is full: what is left of it is kept for deletions";
        Err(io::Error::new(io::ErrorKind::StorageFull, words))
    }

    /// Makes the file, or makes it larger, unless it is as it should be. Durable when it returns. Returns at once if it is being
    /// made already.
    ///
    /// # Errors
    /// As the operations give them. For want of space, or of a file handle, the reserve counts as spent; after any other error
    /// the broker does without one.
    pub async fn fill(&self, reactor: &Reactor) -> io::Result<()> {
        match self.begin_filling() {
            Some(filling) => filling.fill(reactor).await,
            None => Ok(()),
        }
    }

    /// The mark that this one works on its file now; `None` if another one does.
    fn begin_filling(&self) -> Option<Filling<'_>> {
        (!self.0.is_being_filled.swap(true, Ordering::Relaxed)).then(|| Filling(self))
    }

    /// Sets aside what is left of the disk, if it is not enough for the whole.
    async fn keep_a_part(&self, reactor: &Reactor) {
        if reactor.is_simulated() {
            return;
        }
        let free = free_bytes(&self.0.data).unwrap_or(0);
        let mut bytes = free.saturating_sub(SLACK_BYTES).min(self.0.bytes);
        // What is free is not always free for us: then less must do.
        while bytes >= PART_BYTES_MIN {
            if self.write(reactor, bytes).await.is_ok() {
                tracing::debug!(bytes, "a part of the reserve is kept");
                return;
            }
            bytes /= 2;
        }
    }

    /// Writes the file of `bytes`, unless there is one as large.
    async fn write(&self, reactor: &Reactor, bytes: u64) -> io::Result<()> {
        let path = self.path();
        match reactor.open(&path, OpenHow::read()).await {
            Ok(file) if file.len()? >= bytes => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        unlink_if_there(reactor, &path).await?;
        let mut bytes = vec![0; usize::try_from(bytes).map_err(io::Error::other)?];
        // Not zeroes: a file system that compresses would set nothing aside.
        reactor.fill_random(&mut bytes);
        let written = replace_file(reactor, &path, bytes).await;
        if written.is_err() {
            // What is there of it would only take space.
            let _ = self.remove(reactor).await;
        }
        written
    }

    /// Does what must work also on a full disk: if it finds no space, the reserve is spent and it is done again. `work` must be
    /// such that it can be repeated after it failed that way.
    ///
    /// # Errors
    /// As `work` gives them in the end.
    pub async fn spend<T, E>(
        &self,
        reactor: &Reactor,
        is_no_space: impl Fn(&E) -> bool,
        mut work: impl AsyncFnMut() -> Result<T, E>,
    ) -> Result<T, E> {
        for attempt in 0..TRIES {
            match work().await {
                Err(error) if is_no_space(&error) => {
                    if attempt > 0 {
                        reactor.sleep(TRY_PAUSE).await;
                    }
                    // Each time: a part of it may have been set aside again.
                    self.release(reactor).await;
                }
                result => return result,
            }
        }
        work().await
    }

    /// Gives the space up.
    async fn release(&self, reactor: &Reactor) {
        let give_up = |state: u64| Some(state.wrapping_add(GIVEN_UP) | SPENT);
        let before = self.0.state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, give_up).unwrap_or(SPENT);
        if before & SPENT == 0 {
            let path = self.path();
            tracing::warn!(
                path = %path.display(),
                "the disk is full: the reserve is given up, for deletions. Nothing else grows until there is space for it again"
            );
        }
        if let Err(error) = self.remove(reactor).await {
            tracing::warn!(%error, "the reserve could not be removed");
        }
    }

    async fn remove(&self, reactor: &Reactor) -> io::Result<()> {
        let path = self.path();
        unlink_if_there(reactor, &path).await?;
        let mut scratch = path.into_os_string();
        scratch.push(super::files::SCRATCH_SUFFIX);
        unlink_if_there(reactor, Path::new(&scratch)).await?;
        // A journal gives freed blocks out once it has committed.
        reactor.sync_dir(&self.0.data).await
    }

    /// Fills the reserve again as soon as there is space, if it is spent and nobody else is doing so.
    pub async fn refill(&self, reactor: &Reactor, pause: Duration) {
        // Looked at again at the end: who gave it up just now was told that it is being filled.
        while self.is_spent() && !self.0.is_awaited.swap(true, Ordering::Relaxed) {
            let _awaiting = Awaiting(&self.0);
            while self.is_spent() {
                reactor.sleep(pause).await;
                let Some(filling) = self.begin_filling() else { continue };
                let part = self.part_bytes(reactor);
                if !self.has_room(reactor, part) {
                    if part == 0 {
                        self.keep_a_part(reactor).await;
                    }
                    continue;
                }
                match filling.fill(reactor).await {
                    Ok(()) => tracing::info!("the disk has space again: the reserve is back"),
                    Err(error) if is_shortage(&error) => {}
                    Err(error) => tracing::warn!(%error, "no reserve: on a full disk deletions may be refused"),
                }
            }
        }
    }

    /// Whether there seems to be space for the whole, of which `part` bytes are kept. A simulated disk is simply tried.
    fn has_room(&self, reactor: &Reactor, part: u64) -> bool {
        let wanted = (self.0.bytes + SLACK_BYTES).saturating_sub(part);
        part >= self.0.bytes || reactor.is_simulated() || free_bytes(&self.0.data).is_ok_and(|free| free >= wanted)
    }

    /// Bytes of the file there is.
    fn part_bytes(&self, reactor: &Reactor) -> u64 {
        if reactor.is_simulated() { 0 } else { std::fs::metadata(self.path()).map_or(0, |file| file.len()) }
    }

    fn path(&self) -> PathBuf {
        self.0.data.join(RESERVE_FILE)
    }
}

/// The mark that somebody waits for space, also when that is dropped half way.
struct Awaiting<'a>(&'a Inner);

impl Drop for Awaiting<'_> {
    fn drop(&mut self) {
        self.0.is_awaited.store(false, Ordering::Relaxed);
    }
}

/// The mark that somebody works on its file, also when that is dropped half way: two would remove each other's.
struct Filling<'a>(&'a Reserve);

impl Drop for Filling<'_> {
    fn drop(&mut self) {
        self.0.0.is_being_filled.store(false, Ordering::Relaxed);
    }
}

impl Filling<'_> {
    async fn fill(&self, reactor: &Reactor) -> io::Result<()> {
        let Self(reserve) = self;
        let state = &reserve.0.state;
        let begun = state.load(Ordering::Relaxed);
        // Looked at first: what a failed write has taken is not free again at once.
        let mut result = match reserve.has_room(reactor, reserve.part_bytes(reactor)) {
            true => reserve.write(reactor, reserve.0.bytes).await,
            false => Err(io::ErrorKind::StorageFull.into()),
        };
        // Given up while it was written: its file is gone, or was written into and removed before it was in place.
        if !result.as_ref().is_err_and(is_shortage)
            && state.compare_exchange(begun, begun & !SPENT, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            result = Err(io::ErrorKind::StorageFull.into());
        }
        if result.as_ref().is_err_and(is_shortage) {
            state.fetch_or(SPENT, Ordering::Relaxed);
            reserve.keep_a_part(reactor).await;
        }
        result
    }
}

/// Bytes that this process may still write to the disk under `folder`.
///
/// # Errors
/// As statfs(2).
pub fn free_bytes(folder: &Path) -> io::Result<u64> {
    let path = CString::new(folder.as_os_str().as_bytes())?;
    // SAFETY: `statfs` is plain numbers, for which all zeroes are a value.
    let mut stat: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: a path with its zero byte, and room for the answer.
    if unsafe { libc::statfs(path.as_ptr(), &raw mut stat) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: asks for a number, and cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    // Some file systems keep a part for root, and ext4 another one for itself, which nobody gets.
    let own = if stat.f_bfree > stat.f_bavail { (stat.f_blocks / EXT4_OWN_PART).min(EXT4_OWN_BLOCKS_MAX) } else { 0 };
    let for_root = stat.f_bfree.saturating_sub(own).max(stat.f_bavail);
    let blocks = if is_root { for_root } else { stat.f_bavail };
    Ok(blocks.saturating_mul(u64::try_from(stat.f_bsize).unwrap_or(super::BLOCK_BYTES)))
}
