//! The files of segments that readers see no more: set aside, and removed once nobody reads them.
//!
//! Holds: the queue of a shard, the one task that works on it, the order of the steps. Never touches: which segments go
//! (`retention` and `change` decide), other files of the log.
//!
//! ```text
//!   log start durable ──► no part of the log ──► checkpoint durable ──► `.deleted` ──► shorter by steps ──► gone
//!                                                                │  file.delete.delay.ms, and no read under way
//! ```
//!
//! A crash between any two leaves files below the log start, or files named `.deleted`: the next start removes both.
//! A segment that compaction has replaced comes here once its file is named `.deleted`.
//!
//! One file at a time in a shard, and a big one step by step (`disk::remove`): what is freed at once stalls everybody's
//! durable writes. Files are not made spares of: their zeroes would have to be written and synced before anybody may use
//! them, which costs as much of the disk's bandwidth as a new spare, and most logs ask for spares of other sizes.
//!
//! While the disk is full nothing waits for the delay.

use super::cold_segments::{Lent, Readers};
use super::env::StorageEnv;
use super::names::{DELETED, INDEX, LOG, SEGMENT_SUFFIXES, TIME_INDEX, TXN_INDEX, parse_file_name, segment_path};
use super::state::{Phase, Status};
use super::{Inner, Log};
use crate::disk::files::{is_no_space, unlink_if_there};
use crate::disk::remove::{is_big, shrink};
use crate::ids::Offset;
use corelog_reactor::{DirEntry, Monotonic, Notify, OpenHow};
use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::io;
use std::path::PathBuf;
use std::rc::Weak;
use std::time::Duration;

/// Pause before a segment is looked at again that somebody still reads.
const READERS_PAUSE: Duration = Duration::from_millis(200);
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Its files get other names.
    SetAside,
    /// Its files go, whatever they are called.
    Remove,
    /// Its files named `.deleted` go: an earlier run's, or those of a segment that was compacted. There may be a segment of
    /// this base.
    RemoveDeleted,
}

/// A segment whose files are to go.
struct Removal {
    due: Monotonic,
    number: u64,
    log: Weak<Inner>,
    base: Offset,
    /// Of its records, as far as is known.
    bytes: u64,
    readers: Readers,
    /// Whoever sends from it stops before it goes.
    lent: Lent,
    step: Step,
}

impl Ord for Removal {
    /// The one that is due first is the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.due, other.number).cmp(&(self.due, self.number))
    }
}

impl PartialOrd for Removal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Removal {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Removal {}

/// The removals of a shard. At most one for each segment there was.
#[derive(Default)]
pub(crate) struct Removals {
    waiting: RefCell<BinaryHeap<Removal>>,
    next: Cell<u64>,
    running: Cell<bool>,
    /// Something may be due sooner.
    more: Notify,
}

impl Removals {
    fn push(&self, removal: Removal, env: &StorageEnv) {
        let number = self.next.replace(self.next.get() + 1);
        self.waiting.borrow_mut().push(Removal { number, ..removal });
        self.more.notify();
        if !self.running.replace(true) {
            let own = env.clone();
            if env.reactor().spawn(async move { remove_due(&own).await }).is_err() {
                // The next one tries again, or the next start.
                self.running.set(false);
            }
        }
    }
}

impl Removals {
    /// Takes the removal of a file that was put aside out of the queue.
    fn take_deleted(&self, log: &Weak<Inner>, base: Offset) -> Option<Removal> {
        let mut waiting = self.waiting.borrow_mut();
        let is_it = |r: &Removal| r.step == Step::RemoveDeleted && r.base == base && r.log.ptr_eq(log);
        if !waiting.iter().any(is_it) {
            return None;
        }
        let mut all = std::mem::take(&mut *waiting).into_vec();
        let found = all.iter().position(is_it).map(|at| all.swap_remove(at));
        *waiting = all.into();
        found
    }
}

async fn remove_due(env: &StorageEnv) {
    let queue = env.removals();
    loop {
        let due = queue.waiting.borrow().peek().map(|first| first.due);
        let Some(due) = due else {
            queue.running.set(false);
            return;
        };
        if due > env.reactor().now() {
            let _ = env.reactor().until(due, queue.more.notified()).await;
            continue;
        }
        let Some(removal) = queue.waiting.borrow_mut().pop() else { continue };
        // A log that was let go of, or closed, leaves the rest to its next opening.
        let Some(log) = removal.log.upgrade().map(Log).filter(|log| !log.0.is_closed()) else { continue };
        let base = removal.base;
        if let Err(error) = log.go_on(removal).await {
            tracing::warn!(log = %log.name(), segment = %base, %error, "cannot remove a segment below the log start: the next start tries again");
        }
    }
}

/// The mark that names in the log's folder are being changed: a folder that is to be renamed waits for it.
struct Unlinking<'a>(&'a Log);

impl Drop for Unlinking<'_> {
    fn drop(&mut self) {
        self.0.0.unlinking.set(self.0.0.unlinking.get() - 1);
        self.0.0.changed.fire();
    }
}

/// What an earlier run has left in a log's folder.
pub(super) struct Leftovers {
    /// Segments that have files named `.deleted`.
    pub(super) deleted: Vec<Offset>,
    /// Small files of segments that are gone.
    pub(super) orphans: Vec<PathBuf>,
}

/// Looks for them among the files of a log whose first segment starts at `first`.
pub(super) fn leftovers(entries: &[DirEntry], first: Offset, folder: &std::path::Path) -> Leftovers {
    let base_of = |name: &str| SEGMENT_SUFFIXES.iter().find_map(|suffix| parse_file_name(name, suffix));
    let mut deleted = Vec::new();
    let mut orphans = Vec::new();
    for name in entries.iter().filter_map(|entry| entry.name.to_str()) {
        if let Some(base) = name.strip_suffix(DELETED).and_then(base_of) {
            deleted.push(base);
        } else if base_of(name).is_some_and(|base| base < first) && !name.ends_with(LOG) {
            orphans.push(folder.join(name));
        }
    }
    deleted.sort_unstable();
    deleted.dedup();
    Leftovers { deleted, orphans }
}

impl Log {
    /// Takes sealed segments that lie wholly below the log start out of the log, and has their files removed. One that is not
    /// sealed yet goes once it is; one whose successor has no file in the folder yet stays until it has: a folder without
    /// segments is a log that was lost.
    pub(super) fn remove_segments_below_start(&self) {
        let inner = &*self.0;
        loop {
            let mut state = inner.state.borrow_mut();
            let next = state.older.get(1).unwrap_or(&state.active);
            let has_file = next.phase == Phase::Sealed || next.file.is_some();
            let is_below = next.base <= state.log_start;
            let swapping = state.swapping;
            let first = state.older.pop_front_if(|first| {
                // One whose files are being exchanged goes when that is done.
                let is_exchanged = swapping.is_some_and(|base| first.base >= base);
                first.phase == Phase::Sealed && is_below && has_file && !is_exchanged
            });
            drop(state);
            let Some(first) = first else { break };
            inner.env.give_chunk_bytes(first.tail.memory_bytes());
            let readers = inner.env.cold().take(inner.number, first.base);
            self.remove_later(Duration::ZERO, first.base, first.bytes(), readers, Lent::default(), Step::SetAside);
        }
    }

    /// Has the files of segments removed that a start found below the log start, and did not open.
    pub(super) fn remove_unopened(&self, bases: Vec<Offset>) {
        for base in bases {
            self.remove_later(Duration::ZERO, base, u64::MAX, Readers::default(), Lent::default(), Step::Remove);
        }
    }

    /// Has the rest of removals done that an earlier run has begun.
    pub(super) fn remove_deleted(&self, bases: Vec<Offset>) {
        for base in bases {
            self.remove_later(Duration::ZERO, base, u64::MAX, Readers::default(), Lent::default(), Step::RemoveDeleted);
        }
    }

    /// Has the file removed, named `.deleted` by now, of a segment of `bytes` that a compacted one has replaced.
    pub(super) fn remove_replaced(&self, base: Offset, bytes: u64, readers: Readers, lent: Lent) {
        self.remove_later(self.delete_delay(), base, bytes, readers, lent, Step::RemoveDeleted);
    }

    /// Removes a file of this name that waits for its delay: another one is to get the name, and a big one must not go at
    /// once.
    pub(super) async fn clear_replaced(&self, base: Offset) -> io::Result<()> {
        while let Some(Removal { bytes, lent, step, .. }) = self.0.env.removals().take_deleted(&self.0.me, base) {
            lent.revoke();
            self.remove_files(base, bytes, step).await?;
        }
        Ok(())
    }

    fn remove_later(&self, delay: Duration, base: Offset, bytes: u64, readers: Readers, lent: Lent, step: Step) {
        let env = &self.0.env;
        let (due, log) = (env.reactor().now() + delay, self.0.me.clone());
        env.removals().push(Removal { due, number: 0, log, base, bytes, readers, lent, step }, env);
    }

    async fn go_on(&self, removal: Removal) -> io::Result<()> {
        let inner = &*self.0;
        let Removal { base, bytes, step, lent, .. } = removal;
        if inner.state.borrow().broken_swap.is_some() {
            // What a failed exchange has put aside is still read; the next start has the rest done.
            return Ok(());
        }
        if step != Step::RemoveDeleted {
            let first = inner.state.borrow().segments().next().map(|first| first.base);
            assert!(
                first.is_some_and(|first| base < first),
                "segment {base} is removed, and the log starts at {first:?}"
            );
            // What the checkpoint on disk still needs must not go before a later one is there.
            inner.env.spend(is_no_space, async || inner.env.flush_checkpoint().await).await?;
        }
        match step {
            Step::SetAside => {
                let delay = self.delete_delay();
                if !delay.is_zero()
                    && let Err(error) = self.set_aside(base).await
                {
                    tracing::warn!(log = %inner.name, segment = %base, %error, "cannot rename a segment below the log start; it is removed all the same");
                }
                self.remove_later(delay, base, bytes, removal.readers, lent, Step::Remove);
                // The epochs moved with the log start. A start does the same with what is in the file.
                self.write_changed_epochs().await
            }
            Step::Remove | Step::RemoveDeleted => {
                // Opened again since by a read that was planned before.
                let late = match step {
                    Step::RemoveDeleted => Readers::default(),
                    Step::SetAside | Step::Remove => inner.env.cold().take_back(inner.number, base),
                };
                let readers = removal.readers.and(late);
                if readers.are_there() {
                    self.remove_later(READERS_PAUSE, base, bytes, readers, lent, step);
                    return Ok(());
                }
                lent.revoke();
                self.remove_files(base, bytes, step).await
            }
        }
    }

    /// `file.delete.delay.ms`, unless the space is wanted.
    fn delete_delay(&self) -> Duration {
        let inner = &*self.0;
        if inner.env.reserve().is_spent() || inner.state.borrow().status == Status::NoSpace {
            return Duration::ZERO;
        }
        Duration::from_millis(inner.config.borrow().file_delete_delay_ms)
    }

    fn begin_unlinking(&self) -> Option<Unlinking<'_>> {
        if self.0.is_closed() {
            // Its folder may have another name soon, and another log this one.
            return None;
        }
        self.0.unlinking.set(self.0.unlinking.get() + 1);
        Some(Unlinking(self))
    }

    /// Names that readers, recovery and Kafka's tools pass over.
    async fn set_aside(&self, base: Offset) -> io::Result<()> {
        let inner = &*self.0;
        self.clear_replaced(base).await?;
        let Some(_unlinking) = self.begin_unlinking() else { return Ok(()) };
        // A snapshot below the first segment is nobody's any more.
        for suffix in [LOG, INDEX, TIME_INDEX, TXN_INDEX] {
            let from = segment_path(&inner.folder, base, suffix);
            let to = deleted_path(inner, base, suffix);
            match inner.env.spend(is_no_space, async || inner.env.reactor().rename(&from, &to).await).await {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                renamed => renamed?,
            }
        }
        Ok(())
    }

    async fn remove_files(&self, base: Offset, bytes: u64, step: Step) -> io::Result<()> {
        let inner = &*self.0;
        let reactor = inner.env.reactor();
        let both = |suffix| {
            let plain = (step == Step::Remove).then(|| segment_path(&inner.folder, base, suffix));
            [Some(deleted_path(inner, base, suffix)), plain].into_iter().flatten()
        };
        for path in both(LOG).filter(|_| is_big(bytes)) {
            let opened = {
                let Some(_unlinking) = self.begin_unlinking() else { return Ok(()) };
                reactor.open(&path, OpenHow::write()).await
            };
            match opened {
                Ok(file) => shrink(reactor, &file, || !inner.is_closed()).await?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        let Some(_unlinking) = self.begin_unlinking() else { return Ok(()) };
        for suffix in SEGMENT_SUFFIXES {
            for path in both(suffix) {
                unlink_if_there(reactor, &path).await?;
            }
        }
        inner.env.count(|c| {
            c.segments_removed += 1;
            c.segment_bytes_removed += if bytes == u64::MAX { 0 } else { bytes };
        });
        tracing::debug!(log = %inner.name, segment = %base, bytes, "the files of a segment are removed");
        Ok(())
    }
}

fn deleted_path(inner: &Inner, base: Offset, suffix: &str) -> PathBuf {
    let mut path = segment_path(&inner.folder, base, suffix).into_os_string();
    path.push(DELETED);
    path.into()
}
