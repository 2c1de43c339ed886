//! The way of a commit through the commit log.
//!
//! Holds: the write that gathers what a turn brings, the writes in flight, who waits for them. Never touches: which
//! logs there are.
//!
//! A commit is copied into the gathering write at once, and waits. The first of a turn wakes a writer task; as tasks
//! run first come, first served, it finds what all others of the turn have put in. Two writers: a write that comes
//! while one is in flight need not wait for it. Writes are done in the order of their sequences: the second waits for
//! the first, and a third is not begun before the first is done (`replay` relies on it). If one fails, so do all behind
//! it.
//!
//! Nothing is allocated for a commit: staging memory and the lists of those who wait are used again and again.

use super::files::{FileId, Files, Holder, Place};
use super::format::{
    ENTRY_HEADER_BYTES, EntryHeader, FILE_BYTES_MAX, WRITE_BYTES_MAX, WRITE_HEADER_BYTES, WriteHeader,
};
use super::{COMMIT_LOG_FOLDER, Choice, CommitLogCounters};
use crate::disk::checkpoint::LogKey;
use crate::disk::files::write_full;
use crate::disk::presence::Presence;
use crate::disk::reserve::Reserve;
use crate::disk::{BLOCK_BYTES, align_down, align_up};
use crate::ids::Offset;
use corelog_reactor::{AlignedBuf, Durability, Monotonic, Reactor, ShardId};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Writes in flight. Each is two visits to a disk without FUA, the data and the flush, and flushes follow each other: with
/// two in flight a piece waits longer for its turn than for its write. Against two, four gave single requests of 64
/// connections 1.12 times the rate at 0.96 of the CPU each, and 0.7 of the p99 at 190,000 records/s in batches of 16 KiB.
pub(super) const WRITES_MAX: usize = 4;
/// A file holds at least so many writes of the largest size.
const WRITES_PER_FILE_MIN: u64 = 4;

/// What a commit log is made of.
pub(crate) struct Parts {
    pub(crate) reactor: Reactor,
    pub(crate) shard: ShardId,
    pub(crate) direct: bool,
    pub(crate) reserve: Reserve,
    pub(crate) presence: Presence,
    /// Bytes of a file,
    pub(crate) file_bytes: u64,
    /// and of batches in it, which stay in memory meanwhile.
    pub(crate) file_batch_bytes: u64,
    pub(crate) files_max: usize,
    /// Pause before a file is tried again for which there was no space.
    pub(crate) no_space_retry: Duration,
    /// What a log gathers here before its segment gets it.
    pub(crate) write_back_bytes: u64,
    pub(crate) break_durability_for_a_test: bool,
    /// What no earlier run has used.
    pub(crate) next_sequence: u64,
    pub(crate) next_number: u64,
}

/// What is put in: whole batches of one log, and where they belong.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) key: LogKey,
    pub(crate) segment: Offset,
    pub(crate) position: u64,
    pub(crate) start: Offset,
    pub(crate) end: Offset,
    pub(crate) bytes: usize,
}

/// A write that gathers, or is in flight.
struct Write {
    sequence: u64,
    place: Place,
    buf: Option<AlignedBuf>,
    bytes: usize,
    entries: u32,
    waiting: Vec<Option<Waker>>,
    is_done: bool,
}

pub(super) struct State {
    pub(super) files: Files,
    /// Switched off until a restart.
    pub(super) is_off: bool,
    /// Of the gathering write, or of the next one.
    pub(super) next_sequence: u64,
    gathering: Option<Write>,
    /// In the order of their sequences.
    in_flight: Vec<Write>,
    /// Every write up to this one is durable.
    durable: u64,
    /// Every write from this one on has failed.
    failed_from: u64,
    idle: Vec<Waker>,
    writers: usize,
    spare_bufs: Vec<AlignedBuf>,
    spare_lists: Vec<Vec<Option<Waker>>>,
    pub(super) next_number: u64,
    /// No new file before this: there was no space for one,
    pub(super) make_at: Option<Monotonic>,
    /// and no new header: there was no memory.
    pub(super) renew_at: Option<Monotonic>,
    /// No log is asked to give a full file back before this: some have been.
    pub(super) ask_at: Option<Monotonic>,
    pub(super) is_tended: bool,
    /// What is to be asked of logs in good time, as a part of what is left: see `keep_up`.
    pub(super) asks_due: u64,
    /// Logs that were let go of with bytes that only the commit log has.
    abandoned: HashSet<LogKey>,
}

pub(super) struct Inner {
    pub(super) reactor: Reactor,
    pub(super) folder: PathBuf,
    pub(super) parts: Parts,
    write_bytes_max: usize,
    pub(super) state: RefCell<State>,
    choice: RefCell<Choice>,
    counters: Cell<CommitLogCounters>,
}

/// One shard's commit log in one data folder. A cheap handle; never leaves its thread.
#[derive(Clone)]
pub(crate) struct CommitLog(pub(super) Rc<Inner>);

/// The write that a commit waits for has failed: nobody knows what of it is on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failed;

impl CommitLog {
    /// The commit log of a shard in the data folder `data`. Nothing is made before it is wanted.
    pub(crate) fn new(data: &Path, parts: Parts) -> Self {
        let file_bytes = align_down(parts.file_bytes.min(FILE_BYTES_MAX));
        let share = align_down(file_bytes.min(parts.file_batch_bytes) / (WRITES_PER_FILE_MIN + 1));
        assert!(share >= BLOCK_BYTES, "commit-log files of {file_bytes} bytes");
        let write_bytes_max = usize::try_from(share).map_or(WRITE_BYTES_MAX, |share| share.min(WRITE_BYTES_MAX));
        Self(Rc::new(Inner {
            reactor: parts.reactor.clone(),
            folder: data.join(COMMIT_LOG_FOLDER),
            write_bytes_max,
            state: RefCell::new(State {
                files: Files::default(),
                is_off: false,
                next_sequence: parts.next_sequence,
                gathering: None,
                in_flight: Vec::with_capacity(WRITES_MAX),
                durable: parts.next_sequence - 1,
                failed_from: u64::MAX,
                idle: Vec::with_capacity(WRITES_MAX),
                writers: 0,
                spare_bufs: Vec::new(),
                spare_lists: Vec::new(),
                next_number: parts.next_number,
                make_at: None,
                renew_at: None,
                ask_at: None,
                is_tended: false,
                asks_due: 0,
                abandoned: HashSet::new(),
            }),
            choice: RefCell::new(Choice::new(parts.write_back_bytes)),
            parts: Parts { file_bytes, ..parts },
            counters: Cell::default(),
        }))
    }

    pub(crate) fn counters(&self) -> CommitLogCounters {
        self.0.counters.get()
    }

    pub(super) fn count(&self, change: impl FnOnce(&mut CommitLogCounters)) {
        let mut counters = self.0.counters.get();
        change(&mut counters);
        self.0.counters.set(counters);
    }

    /// Tells the choice of the way what happens, or asks it.
    pub(crate) fn choice<T>(&self, f: impl FnOnce(&mut Choice) -> T) -> T {
        f(&mut self.0.choice.borrow_mut())
    }

    /// The largest piece that may be put in.
    pub(crate) fn piece_bytes_max(&self) -> usize {
        self.0.write_bytes_max - WRITE_HEADER_BYTES - ENTRY_HEADER_BYTES
    }

    /// The sequence from which on what is put in counts for a log that has nothing in the commit log that shall be
    /// applied. Zero while nothing was ever put in.
    pub(crate) fn replay_from(&self) -> u64 {
        let next = self.0.state.borrow().next_sequence;
        if next == 1 { 0 } else { next }
    }

    /// Puts a piece in; `copy` writes its bytes. `None`: there is no place for it now.
    pub(crate) fn stage(&self, piece: &Piece, copy: impl FnOnce(&mut [u8])) -> Option<Ticket> {
        let staged = self.try_stage(piece, copy);
        self.count(|c| match staged {
            Some(_) => c.commits += 1,
            None => c.no_place += 1,
        });
        staged
    }

    fn try_stage(&self, piece: &Piece, copy: impl FnOnce(&mut [u8])) -> Option<Ticket> {
        let mut state = self.0.state.borrow_mut();
        if state.is_off || !self.gather(&mut state) {
            return None;
        }
        let write = state.gathering.as_mut()?;
        let at = write.bytes;
        let end = at + ENTRY_HEADER_BYTES + piece.bytes;
        let slot = write.buf.as_mut()?.get_mut(at..end)?;
        let (head, batches) = slot.split_at_mut(ENTRY_HEADER_BYTES);
        EntryHeader {
            key: piece.key,
            bytes: u32::try_from(piece.bytes).ok()?,
            segment: piece.segment,
            position: piece.position,
            start: piece.start,
            end: piece.end,
        }
        .encode(head);
        copy(batches);
        write.bytes = end;
        write.entries += 1;
        write.waiting.push(None);
        let is_first = write.entries == 1;
        let ticket = Ticket {
            log: self.clone(),
            sequence: write.sequence,
            number: write.waiting.len() - 1,
            file: write.place.id,
        };
        if is_first && let Some(writer) = state.idle.pop() {
            writer.wake();
        }
        Some(ticket)
    }

    /// Sees to it that there is a write that gathers.
    fn gather(&self, state: &mut State) -> bool {
        if state.gathering.is_some() {
            return true;
        }
        let bytes_max = self.0.write_bytes_max;
        if !self.has_writers(state) {
            return false;
        }
        let Some(buf) = state.spare_bufs.pop().or_else(|| self.0.reactor.pool().take(bytes_max).ok()) else {
            return false;
        };
        let place = state.files.begin(state.next_sequence, bytes_max as u64);
        if !state.files.has_ready() {
            self.tend(state);
        }
        let Some(place) = place else {
            state.spare_bufs.push(buf);
            return false;
        };
        state.gathering = Some(Write {
            sequence: state.next_sequence,
            place,
            buf: Some(buf),
            bytes: WRITE_HEADER_BYTES,
            entries: 0,
            waiting: state.spare_lists.pop().unwrap_or_default(),
            is_done: false,
        });
        true
    }

    fn has_writers(&self, state: &mut State) -> bool {
        while state.writers < WRITES_MAX {
            let log = Rc::downgrade(&self.0);
            if self.0.reactor.spawn(write_for(log)).is_err() {
                break;
            }
            state.writers += 1;
        }
        state.writers > 0
    }

    /// Takes the gathering write out to be written, if it may be: see the module's docs.
    fn begin_write(&self) -> Option<(u64, AlignedBuf, usize, Rc<corelog_reactor::File>, u64)> {
        let mut state = self.0.state.borrow_mut();
        let state = &mut *state;
        let reach = state.durable + WRITES_MAX as u64;
        let mut write = state.gathering.take_if(|write| write.entries > 0 && write.sequence <= reach)?;
        let mut buf = write.buf.take()?;
        let padded = align_up(write.bytes as u64) as usize;
        if let Some(padding) = buf.get_mut(write.bytes..padded) {
            padding.fill(0);
        }
        let header = WriteHeader {
            sequence: write.sequence,
            generation: write.place.generation,
            first: write.place.first,
            follows: write.place.follows,
            bytes: write.bytes as u32,
            entries: write.entries,
        };
        if let Some(bytes) = buf.get_mut(..write.bytes) {
            header.seal(bytes);
        }
        state.next_sequence = write.sequence + 1;
        let share = self.share(padded as u64, write.bytes as u64);
        state.files.took(write.place.id, padded as u64, share);
        self.keep_up(state, share);
        let (sequence, file, position) = (write.sequence, write.place.file.clone(), write.place.position);
        state.in_flight.push(write);
        Some((sequence, buf, padded, file, position))
    }

    /// How much of a file a write takes up that is `padded` bytes long and has `bytes`: as many of its bytes, or, if that
    /// is more, the same part of them as of the bytes that its batches may have.
    fn share(&self, padded: u64, bytes: u64) -> u64 {
        let parts = &self.0.parts;
        padded.max(bytes.saturating_mul(parts.file_bytes) / parts.file_batch_bytes.max(1))
    }

    fn end_write(&self, sequence: u64, bytes: usize, buf: AlignedBuf, result: io::Result<()>) {
        let mut state = self.0.state.borrow_mut();
        let state = &mut *state;
        state.spare_bufs.push(buf);
        match result {
            Ok(()) => {
                self.count(|c| {
                    c.writes += 1;
                    c.bytes += bytes as u64;
                });
                if let Some(write) = state.in_flight.iter_mut().find(|write| write.sequence == sequence) {
                    write.is_done = true;
                }
            }
            Err(error) => {
                state.failed_from = state.failed_from.min(sequence);
                self.switch_off(state, "a commit-log write", &error);
            }
        }
        while let Some(first) = state.in_flight.first()
            && first.is_done
            && first.sequence < state.failed_from
        {
            assert!(first.sequence == state.durable + 1, "write {} done after {}", first.sequence, state.durable);
            state.durable = first.sequence;
            let write = state.in_flight.remove(0);
            self.let_go(state, write);
        }
        if state.failed_from < u64::MAX {
            let failed = state.failed_from;
            let gathering = state.gathering.take();
            let (lost, rest) = std::mem::take(&mut state.in_flight).into_iter().partition(|w| w.sequence >= failed);
            state.in_flight = rest;
            let lost: Vec<Write> = lost;
            for write in lost.into_iter().chain(gathering) {
                self.let_go(state, write);
            }
        }
        // The other one may have waited for this one to be done.
        state.idle.drain(..).for_each(Waker::wake);
    }

    /// The end of a write, good or bad: who waits for it looks for himself.
    fn let_go(&self, state: &mut State, mut write: Write) {
        write.waiting.drain(..).flatten().for_each(Waker::wake);
        state.spare_lists.push(write.waiting);
        state.spare_bufs.extend(write.buf);
        self.released(state, write.place.id);
    }

    fn released(&self, state: &mut State, file: FileId) {
        if state.files.release(file) && !state.files.has_ready() {
            self.tend(state);
        }
    }

    /// No more of it until a restart. What it holds is durable, and goes on to the segments.
    pub(super) fn switch_off(&self, state: &mut State, what: &str, error: &io::Error) {
        if std::mem::replace(&mut state.is_off, true) {
            return;
        }
        tracing::error!(
            folder = %self.0.folder.display(),
            shard = %self.0.parts.shard,
            %error,
            "{what} failed: the commit log is switched off until a restart, commits go to the segments one by one. Look for the \
             disk's errors in `dmesg`"
        );
        let holders = state.files.holders();
        let task = async move {
            for holder in holders.iter().filter_map(Weak::upgrade) {
                holder.ask_write_back();
            }
        };
        // Without a task they follow when their logs write the next time.
        let _ = self.0.reactor.spawn(task);
    }

    /// A log needs the file until it gives it back.
    pub(crate) fn hold(&self, file: FileId, holder: Weak<dyn Holder>) {
        self.0.state.borrow_mut().files.hold(file, holder);
    }

    /// A log needs the file no more.
    pub(crate) fn release(&self, file: FileId) {
        let mut state = self.0.state.borrow_mut();
        self.released(&mut state, file);
    }

    /// A log is let go of with bytes that only the commit log has: this run must not open it again.
    pub(crate) fn abandon(&self, key: LogKey) {
        self.0.state.borrow_mut().abandoned.insert(key);
    }

    /// Whether only a restart can open the log.
    pub(crate) fn is_abandoned(&self, key: &LogKey) -> bool {
        self.0.state.borrow().abandoned.contains(key)
    }
}

/// A writer: one write after the other, for as long as there is somebody to write for.
async fn write_for(log: Weak<Inner>) {
    loop {
        let next = std::future::poll_fn(|cx| {
            // Nothing is kept alive by a writer at rest.
            let Some(log) = log.upgrade().map(CommitLog) else {
                return Poll::Ready(None);
            };
            if let Some(write) = log.begin_write() {
                return Poll::Ready(Some((log, write)));
            }
            let mut state = log.0.state.borrow_mut();
            if state.is_off && state.gathering.is_none() {
                return Poll::Ready(None);
            }
            if !state.idle.iter().any(|waker| waker.will_wake(cx.waker())) {
                state.idle.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
        let Some((log, (sequence, buf, bytes, file, position))) = next else {
            return;
        };
        let durability = if log.0.parts.break_durability_for_a_test { Durability::None } else { Durability::Dsync };
        let began = log.0.reactor.now();
        let (result, buf) = write_full(&file, buf, bytes, position, durability).await;
        if result.is_ok() {
            let took = log.0.reactor.now().saturating_since(began);
            log.choice(|choice| choice.measured(bytes as u64, took));
        }
        log.end_write(sequence, bytes, buf, result);
    }
}

/// A piece that was put in: completes when it is durable.
#[must_use = "futures do nothing unless polled"]
pub(crate) struct Ticket {
    log: CommitLog,
    sequence: u64,
    number: usize,
    file: FileId,
}

impl Ticket {
    /// The file it goes to.
    pub(crate) const fn file(&self) -> FileId {
        self.file
    }
}

impl Future for Ticket {
    type Output = Result<(), Failed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.log.0.state.borrow_mut();
        let state = &mut *state;
        if self.sequence <= state.durable {
            return Poll::Ready(Ok(()));
        }
        if self.sequence >= state.failed_from {
            return Poll::Ready(Err(Failed));
        }
        let writes = state.in_flight.iter_mut().chain(&mut state.gathering);
        for write in writes.filter(|write| write.sequence == self.sequence) {
            if let Some(slot) = write.waiting.get_mut(self.number) {
                match slot {
                    Some(waker) if waker.will_wake(cx.waker()) => {}
                    _ => *slot = Some(cx.waker().clone()),
                }
            }
        }
        Poll::Pending
    }
}
