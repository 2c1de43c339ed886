//! Pre-written spare segments: files full of zeroes, on stable storage before anybody needs them.
//!
//! Holds: the `.spare` folder of a data folder (one shard's files in it), the byte budget, the one task that writes.
//! Never touches: partitions; who needs a spare asks, and later finds it ready or not.
//!
//! Why (decision 0004): a durable write into space that was written before needs no journal commit: half the latency and
//! half the CPU of a growing file. Never is the file pre-written that is being appended to: its next durable write would
//! wait for the journal.
//!
//! The budget counts a spare from the moment it is asked for until the segment it became is sealed ([`Charge`]).

use super::files::{is_no_space, mkdir_if_missing, write_full};
use super::remove::remove_file;
use super::reserve::Reserve;
use corelog_reactor::{AlignedBuf, Durability, File, OpenHow, Reactor, ShardId};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Name of the folder, within the data folder.
pub const SPARE_FOLDER: &str = ".spare";
/// Zeroes per write.
const WRITE_BYTES: usize = 1 << 20;
/// Spares asked for but not begun; more are refused.
const QUEUE_MAX: usize = 64;

/// Bytes taken out of the budget; given back when dropped.
#[derive(Debug)]
pub struct Charge {
    bytes: u64,
    used: Rc<Cell<u64>>,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.used.set(self.used.get() - self.bytes);
    }
}

/// A finished spare.
#[derive(Debug)]
pub struct Spare {
    /// Where it lies; to be renamed into its partition's folder.
    pub path: PathBuf,
    /// Bytes of zeroes.
    pub bytes: u64,
    /// Open for reading and writing, direct if the disk allows it.
    pub file: Rc<File>,
    /// Its share of the budget.
    pub charge: Charge,
}

enum Slot {
    Waiting(Charge),
    Ready(Spare),
    /// Failed, or taken already.
    Empty,
}

/// A spare that was asked for.
pub struct SpareTicket {
    slot: Rc<RefCell<Slot>>,
    bytes: u64,
    maker: SpareMaker,
}

impl SpareTicket {
    /// Its size.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether it can be taken now.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        matches!(*self.slot.borrow(), Slot::Ready(_))
    }

    /// Whether it will never be ready.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        matches!(*self.slot.borrow(), Slot::Empty)
    }

    /// The spare, if it is ready.
    #[must_use]
    pub fn take(&self) -> Option<Spare> {
        let mut slot = self.slot.borrow_mut();
        match std::mem::replace(&mut *slot, Slot::Empty) {
            Slot::Ready(spare) => Some(spare),
            other => {
                *slot = other;
                None
            }
        }
    }
}

impl Drop for SpareTicket {
    /// A spare nobody took serves the next who asks for its size.
    fn drop(&mut self) {
        if let Some(spare) = self.take() {
            self.maker.keep(spare);
        }
    }
}

/// Counts for the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpareCounters {
    /// Spares written.
    pub made: u64,
    /// Bytes of zeroes written.
    pub bytes: u64,
    /// Requests refused: budget or queue full.
    pub refused: u64,
    /// Spares that could not be written.
    pub failed: u64,
}

struct Inner {
    reactor: Reactor,
    folder: PathBuf,
    shard: ShardId,
    direct: bool,
    bytes_max: u64,
    reserve: Reserve,
    used: Rc<Cell<u64>>,
    queue: RefCell<VecDeque<(u64, Rc<RefCell<Slot>>)>>,
    kept: RefCell<Vec<Spare>>,
    running: Cell<bool>,
    next: Cell<u64>,
    counters: Cell<SpareCounters>,
}

/// The shard's maker of spares.
#[derive(Clone)]
pub struct SpareMaker(Rc<Inner>);

impl SpareMaker {
    /// A maker for one shard's share `bytes_max` of the data folder's budget.
    #[must_use]
    pub fn new(reactor: Reactor, data: &Path, shard: ShardId, direct: bool, bytes_max: u64, reserve: Reserve) -> Self {
        Self(Rc::new(Inner {
            reactor,
            folder: data.join(SPARE_FOLDER),
            shard,
            direct,
            bytes_max,
            reserve,
            used: Rc::default(),
            queue: RefCell::default(),
            kept: RefCell::default(),
            running: Cell::default(),
            next: Cell::default(),
            counters: Cell::default(),
        }))
    }

    /// Asks for a spare of `bytes`. `None` when budget or queue are full: then the caller's file grows instead.
    #[must_use]
    pub fn ask(&self, bytes: u64) -> Option<SpareTicket> {
        let slot = match self.take_kept(bytes) {
            Some(spare) => Rc::new(RefCell::new(Slot::Ready(spare))),
            None => self.enqueue(bytes)?,
        };
        Some(SpareTicket { slot, bytes, maker: self.clone() })
    }

    /// Bytes of the budget in use.
    #[must_use]
    pub fn bytes_in_use(&self) -> u64 {
        self.0.used.get()
    }

    /// Counts so far.
    #[must_use]
    pub fn counters(&self) -> SpareCounters {
        self.0.counters.get()
    }

    fn count(&self, change: impl FnOnce(&mut SpareCounters)) {
        let mut counters = self.0.counters.get();
        change(&mut counters);
        self.0.counters.set(counters);
    }

    fn take_kept(&self, bytes: u64) -> Option<Spare> {
        let mut kept = self.0.kept.borrow_mut();
        let index = kept.iter().position(|s| s.bytes == bytes)?;
        Some(kept.swap_remove(index))
    }

    fn keep(&self, spare: Spare) {
        self.0.kept.borrow_mut().push(spare);
    }

    fn enqueue(&self, bytes: u64) -> Option<Rc<RefCell<Slot>>> {
        let inner = &self.0;
        let full = inner.queue.borrow().len() >= QUEUE_MAX || inner.used.get().saturating_add(bytes) > inner.bytes_max;
        if full {
            self.count(|c| c.refused += 1);
            return None;
        }
        inner.used.set(inner.used.get() + bytes);
        let charge = Charge { bytes, used: inner.used.clone() };
        let slot = Rc::new(RefCell::new(Slot::Waiting(charge)));
        inner.queue.borrow_mut().push_back((bytes, slot.clone()));
        if !inner.running.replace(true) {
            let maker = self.clone();
            if inner.reactor.spawn(async move { maker.run().await }).is_err() {
                inner.running.set(false);
                inner.queue.borrow_mut().pop_back();
                self.count(|c| c.refused += 1);
                return None;
            }
        }
        Some(slot)
    }

    async fn run(&self) {
        loop {
            let next = self.0.queue.borrow_mut().pop_front();
            let Some((bytes, slot)) = next else {
                self.0.running.set(false);
                return;
            };
            // Nobody waits for it any more.
            if Rc::strong_count(&slot) == 1 {
                continue;
            }
            let made = self.make(bytes).await;
            let Slot::Waiting(charge) = slot.replace(Slot::Empty) else {
                continue;
            };
            match made {
                Ok((path, file)) => {
                    self.count(|c| {
                        c.made += 1;
                        c.bytes += bytes;
                    });
                    let spare = Spare { path, bytes, file: Rc::new(file), charge };
                    if Rc::strong_count(&slot) == 1 {
                        self.keep(spare);
                    } else {
                        slot.replace(Slot::Ready(spare));
                    }
                }
                Err(error) => {
                    self.count(|c| c.failed += 1);
                    if !is_no_space(&error) {
                        tracing::warn!(%error, bytes, "a spare segment could not be written");
                    }
                }
            }
        }
    }

    async fn make(&self, bytes: u64) -> io::Result<(PathBuf, File)> {
        let inner = &self.0;
        inner.reserve.may_grow()?;
        let number = inner.next.replace(inner.next.get() + 1);
        let path = inner.folder.join(format!("{}-{number}", inner.shard));
        mkdir_if_missing(&inner.reactor, &inner.folder).await?;
        match self.write_zeroes(&path, bytes).await {
            Ok(file) => Ok((path, file)),
            Err(error) => {
                // What is there of it would only take space; if this fails as well, the next start removes it.
                let _ = remove_file(&inner.reactor, &path, bytes).await;
                Err(error)
            }
        }
    }

    async fn write_zeroes(&self, path: &Path, bytes: u64) -> io::Result<File> {
        let inner = &self.0;
        let how = OpenHow { direct: inner.direct, ..OpenHow::write().create().truncate() };
        let file = inner.reactor.open(path, how).await?;
        let zeroes = zeroes(&inner.reactor, bytes)?;
        write_zeroes(&file, zeroes, 0, bytes).await?;
        file.fsync().await?;
        inner.reactor.sync_dir(&inner.folder).await?;
        Ok(file)
    }
}

/// A buffer of zeroes for writing `bytes` of them.
///
/// # Errors
/// When the pool has none.
pub fn zeroes(reactor: &Reactor, bytes: u64) -> io::Result<AlignedBuf> {
    let want = usize::try_from(bytes).map_or(WRITE_BYTES, |b| b.min(WRITE_BYTES));
    let mut buf = reactor.pool().take(want).map_err(|e| io::Error::new(io::ErrorKind::OutOfMemory, e))?;
    buf.fill(0);
    Ok(buf)
}

/// Writes `bytes` zeroes from `offset` on, `zeroes` at a time.
///
/// # Errors
/// As the writes give them.
pub async fn write_zeroes(file: &File, mut zeroes: AlignedBuf, offset: u64, bytes: u64) -> io::Result<()> {
    let mut done = 0;
    while done < bytes {
        let now = usize::try_from(bytes - done).map_or(zeroes.len(), |b| b.min(zeroes.len()));
        let (result, back) = write_full(file, zeroes, now, offset + done, Durability::None).await;
        result?;
        zeroes = back;
        done += now as u64;
    }
    Ok(())
}
