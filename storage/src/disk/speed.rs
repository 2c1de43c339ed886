//! How fast the disk under a folder is, in the ways that a log uses it.
//!
//! Holds: timed loops over one scratch file, through the same ring operations as a log's. Never touches: logs, the clock
//! (the caller brings it).
//!
//! A log's limit is the durable rate on space that was written before, sustained. The other figures say what that space
//! costs to make, and what happens without it.

use std::cell::{Cell, RefCell};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use corelog_reactor::{AlignedBuf, Durability, File, OpenHow, Reactor};

use super::BLOCK_BYTES;

/// The scratch file's name.
const SCRATCH: &str = ".corelog-disk-probe";
/// How often the end of a loop is looked for.
const LOOK: Duration = Duration::from_millis(1);
/// Bytes of a write that makes space.
const ZERO_BYTES: usize = 1 << 20;
/// Such writes in flight.
const ZERO_DEPTH: usize = 4;

/// One way of using the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Direct writes over space written before, each durable: a log's commits.
    DurableOnWritten,
    /// The same at the end of a growing file.
    DurableGrowing,
    /// Direct writes over space written before, no durability.
    DirectOnWritten,
    /// Direct writes that extend the file: making space, made durable at the end.
    Fresh,
    /// Direct reads.
    Read,
}

/// A loop to time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loop {
    /// How.
    pub way: Way,
    /// Bytes of each operation: a multiple of 4 KiB.
    pub block_bytes: usize,
    /// Operations in flight.
    pub depth: usize,
}

/// What a loop came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Speed {
    /// Bytes moved.
    pub bytes: u64,
    /// Nanoseconds it took.
    pub nanos: u64,
    /// Nanoseconds of each operation, ascending.
    pub latencies: Vec<u64>,
}

impl Speed {
    /// Megabytes (10^6) a second.
    #[must_use]
    pub fn mb_per_s(&self) -> f64 {
        if self.nanos == 0 { 0.0 } else { self.bytes as f64 * 1e3 / self.nanos as f64 }
    }

    /// Microseconds that a share of the operations stayed below.
    #[must_use]
    pub fn percentile_us(&self, share: f64) -> f64 {
        let at = (self.latencies.len() as f64 * share) as usize;
        self.latencies.get(at.min(self.latencies.len().saturating_sub(1))).map_or(0.0, |nanos| *nanos as f64 / 1e3)
    }
}

/// A scratch file of a given size, all of it written.
pub struct Scratch {
    reactor: Reactor,
    path: PathBuf,
    bytes: u64,
    now: fn() -> u64,
}

impl Scratch {
    /// Makes the file's name in `folder`; nothing is written yet. `now` tells nanoseconds.
    ///
    /// # Errors
    /// A scratch file of an earlier run can't be removed.
    pub async fn new(reactor: &Reactor, folder: &Path, bytes: u64, now: fn() -> u64) -> io::Result<Self> {
        let bytes = (bytes / ZERO_BYTES as u64).max(1) * ZERO_BYTES as u64;
        let scratch = Self { reactor: reactor.clone(), path: folder.join(SCRATCH), bytes, now };
        scratch.remove().await?;
        Ok(scratch)
    }

    /// Removes the file.
    ///
    /// # Errors
    /// It can't be removed.
    pub async fn remove(&self) -> io::Result<()> {
        match self.reactor.unlink(&self.path).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// Writes the whole file anew: what pre-written space costs. Durable when it returns.
    ///
    /// # Errors
    /// The disk is full, or fails.
    pub async fn write_fresh(&self) -> io::Result<Speed> {
        self.remove().await?;
        let how = Loop { way: Way::Fresh, block_bytes: ZERO_BYTES, depth: ZERO_DEPTH };
        self.measure(how, u64::MAX).await
    }

    /// Times one loop for about `nanos`, or until the file's end for those that extend it.
    ///
    /// # Errors
    /// The disk is full, or fails.
    pub async fn measure(&self, how: Loop, nanos: u64) -> io::Result<Speed> {
        let extends = matches!(how.way, Way::DurableGrowing | Way::Fresh);
        if extends {
            self.remove().await?;
        }
        let mut open = OpenHow::new();
        (open.read, open.write, open.create, open.direct) = (true, true, true, true);
        let file = Rc::new(self.reactor.open(&self.path, open).await?);
        // All of them before the first operation: nothing is under way when there is no memory.
        let mut bufs = Vec::with_capacity(how.depth);
        for seed in 0..how.depth {
            let mut buf = self.reactor.pool().take(how.block_bytes).map_err(io::Error::other)?;
            fill(&mut buf, seed as u64);
            bufs.push(buf);
        }
        let started = (self.now)();
        let work = Rc::new(Work {
            file: Rc::clone(&file),
            how,
            end: self.bytes,
            extends,
            until: started.saturating_add(nanos),
            next: Cell::new(0),
            open: Cell::new(how.depth),
            moved: Cell::new(0),
            latencies: RefCell::default(),
            failed: RefCell::default(),
            now: self.now,
        });
        for buf in bufs {
            let work = Rc::clone(&work);
            self.reactor.spawn(async move { work.run(buf).await }).map_err(io::Error::other)?;
        }
        while work.open.get() > 0 {
            self.reactor.sleep(LOOK).await;
        }
        if let Some(error) = work.failed.borrow_mut().take() {
            return Err(error);
        }
        if how.way == Way::Fresh {
            file.fsync().await?;
        }
        let nanos = (self.now)() - started;
        let mut latencies = work.latencies.take();
        latencies.sort_unstable();
        Ok(Speed { bytes: work.moved.get(), nanos, latencies })
    }
}

struct Work {
    file: Rc<File>,
    how: Loop,
    end: u64,
    extends: bool,
    until: u64,
    next: Cell<u64>,
    open: Cell<usize>,
    moved: Cell<u64>,
    latencies: RefCell<Vec<u64>>,
    failed: RefCell<Option<io::Error>>,
    now: fn() -> u64,
}

impl Work {
    async fn run(&self, mut buf: AlignedBuf) {
        while let Some(at) = self.take() {
            let begun = (self.now)();
            let (result, back) = match self.how.way {
                Way::Read => self.file.read_at(buf, at).await,
                Way::DurableOnWritten | Way::DurableGrowing => self.file.write_at(buf, at, Durability::Dsync).await,
                Way::DirectOnWritten | Way::Fresh => self.file.write_at(buf, at, Durability::None).await,
            };
            buf = back;
            match result {
                Ok(count) if count == self.how.block_bytes => {
                    self.latencies.borrow_mut().push((self.now)() - begun);
                    self.moved.set(self.moved.get() + count as u64);
                }
                Ok(count) => {
                    let text = format!("{count} of {} bytes moved", self.how.block_bytes);
                    self.failed.borrow_mut().get_or_insert(io::Error::other(text));
                }
                Err(error) => {
                    self.failed.borrow_mut().get_or_insert(error);
                }
            }
        }
        self.open.set(self.open.get() - 1);
    }

    /// Where the next operation goes; `None` when the loop is over.
    fn take(&self) -> Option<u64> {
        let bytes = self.how.block_bytes as u64;
        debug_assert_eq!(bytes % BLOCK_BYTES, 0);
        if self.failed.borrow().is_some() || (self.now)() >= self.until {
            return None;
        }
        let mut at = self.next.get();
        if at + bytes > self.end {
            if self.extends {
                return None;
            }
            at = 0;
        }
        self.next.set(at + bytes);
        Some(at)
    }
}

/// Bytes that no layer below can compress or take for zeroes.
fn fill(buf: &mut AlignedBuf, seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for chunk in buf.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        chunk.copy_from_slice(&state.to_ne_bytes());
    }
}
