//! The one write that a segment's file gets at a time: direct, and on stable storage when it completes.
//!
//! Holds: what the write covers, its retries, the making of the file. Never touches: who wants it (`commit`,
//! `write_back`), what is being appended meanwhile (the write covers settled bytes only, and its partial last block
//! goes from a private copy).
//!
//! ```text
//!   segment   |....|....|....|....|....|....|      4 KiB blocks
//!             written ──┘         └── end
//!   write         [whole blocks, from the tail's chunks][copy of the last block, zero-padded]
//!                 ^ block of the written end, written again with the same first bytes
//! ```
//!
//! | the write ends with | then |
//! |---|---|
//! | all its bytes | `written` moves, and `durable` if it lay before |
//! | fewer bytes | it goes on where it stopped, with the identical bytes |
//! | ENOSPC, EDQUOT | appends are refused; the identical bytes are tried again until there is space |
//! | any other error | the log is fenced |
//!
//! A segment's file that cannot be made for want of space or a file handle is tried again in the same way.

use super::Log;
use super::error::CommitError;
use super::names::{LOG, segment_path};
use super::state::Status;
use crate::disk::files::{WriteProgress, is_interrupted, is_no_space, is_shortage, remedy};
use crate::disk::{align_down, align_up};
use crate::ids::Offset;
use crate::segment::tail::TailSlices;
use corelog_reactor::{AlignedBuf, Durability, File, IoBufs, IoVecs, OpenHow};
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

/// How far a write to a segment goes, if its size allows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// To the segment's end: it makes durable what is not.
    End,
    /// To where the segment is durable: it brings what the commit log has.
    Durable,
}

/// Pause before a commit looks again for the one block of memory it needs.
const BLOCK_PAUSE: Duration = Duration::from_millis(1);

/// The pieces of one write, less what was written already.
struct WriteBufs {
    whole: TailSlices,
    last: Option<AlignedBuf>,
    skip: usize,
}

// SAFETY: tail slices keep settled bytes alive and still; the last block is a pool buffer of this value alone, which
// nobody changes while the operation owns it.
unsafe impl IoBufs for WriteBufs {
    fn expose(&self, into: &mut IoVecs) {
        let mut skip = self.skip;
        let whole = self.whole.iter().map(|s| &**s);
        for piece in whole.chain(self.last.as_deref()) {
            let from = skip.min(piece.len());
            skip -= from;
            if into.is_full() {
                return;
            }
            into.push(piece.get(from..).unwrap_or_default());
        }
    }
}

/// One write, as decided at its start.
struct SegmentWrite {
    base: Offset,
    /// Where the write starts: the block of the written end.
    start: u64,
    /// What is written when it is done.
    target: u64,
    /// The offset at the target, if a batch that is durable ends there.
    boundary: Option<Offset>,
    /// Whether the file grows by it.
    is_growing: bool,
    bufs: WriteBufs,
}

impl SegmentWrite {
    /// Where the write ends: a block boundary.
    const fn end(&self) -> u64 {
        align_up(self.target)
    }
}

/// The mark that a write to a segment is in flight.
pub(super) struct Filing<'a>(&'a Log);

impl Drop for Filing<'_> {
    fn drop(&mut self) {
        self.0.0.state.borrow_mut().filing = false;
        self.0.0.changed.fire();
    }
}

impl Log {
    /// Waits for the turn to write to a segment.
    pub(super) async fn begin_filing(&self) -> Filing<'_> {
        let inner = &*self.0;
        let look = || (!std::mem::replace(&mut inner.state.borrow_mut().filing, true)).then_some(());
        inner.changed.until(look).await;
        Filing(self)
    }

    /// One write to the segment `base`, from where its file ends. Returns its bytes.
    pub(super) async fn write_segment(
        &self,
        base: Offset,
        reach: Reach,
        _filing: &Filing<'_>,
    ) -> Result<u64, CommitError> {
        let inner = &*self.0;
        let file = self.file_of(base).await?;
        let mut write = loop {
            match self.begin_write(base, reach) {
                Some(write) => break write,
                None => inner.env.reactor().sleep(BLOCK_PAUSE).await,
            }
        };
        let durability =
            if inner.env.options().break_durability_for_a_test { Durability::None } else { Durability::Dsync };
        let total = (write.end() - write.start) as usize;
        let mut bufs = std::mem::replace(&mut write.bufs, WriteBufs::none());
        let mut progress = WriteProgress::default();
        while progress.done() < total {
            // Before each try: the reserve may have been given up while this write waited, and is not for it.
            if write.is_growing
                && let Err(error) = inner.env.reserve().may_grow()
            {
                self.wait_for_space(&error).await?;
                continue;
            }
            bufs.skip = progress.done();
            let at = write.start + progress.done() as u64;
            let began = inner.env.reactor().now();
            let (result, back) = file.write_at(bufs, at, durability).await;
            bufs = back;
            if result.as_ref().is_ok_and(|n| *n == total) {
                let took = inner.env.reactor().now().saturating_since(began);
                inner.env.commit_log().choice(|choice| choice.measured(total as u64, took));
            }
            match result.and_then(|n| progress.advance(n, total)) {
                Ok(()) => {}
                Err(error) if is_interrupted(&error) => {}
                Err(error) if is_no_space(&error) => self.wait_for_space(&error).await?,
                Err(error) => return Err(CommitError::Fenced(self.fence_io("a commit write", &error))),
            }
        }
        if let Some(block) = bufs.last.take() {
            inner.env.give_block(block);
        }
        self.end_write(&write);
        Ok(total as u64)
    }

    /// Decides what the write covers. `None` when there is no memory for its last block.
    fn begin_write(&self, base: Offset, reach: Reach) -> Option<SegmentWrite> {
        let inner = &*self.0;
        let state = inner.state.borrow();
        let segment = state.segment(base)?;
        let start = align_down(segment.written);
        let end = match reach {
            Reach::End => segment.bytes(),
            Reach::Durable => segment.durable,
        };
        let target = end.min(start + inner.env.options().commit_bytes_max);
        let is_boundary = target == segment.boundary && target == segment.durable;
        let boundary = is_boundary.then(|| state.end_of_durable(base)).flatten();
        let whole_end = align_down(target);
        let mut whole = TailSlices::new();
        segment.tail.slices(start, whole_end, &mut whole);
        let last = if whole_end < target {
            let mut block = inner.env.take_block()?;
            let (head, padding) = block.split_at_mut((target - whole_end) as usize);
            segment.tail.copy_out(whole_end, head);
            padding.fill(0);
            Some(block)
        } else {
            None
        };
        Some(SegmentWrite {
            base,
            start,
            target,
            boundary,
            is_growing: align_up(target) > segment.room,
            bufs: WriteBufs { whole, last, skip: 0 },
        })
    }

    fn end_write(&self, write: &SegmentWrite) {
        let inner = &*self.0;
        let mut state = inner.state.borrow_mut();
        assert!(state.filing, "a write of segment {} ended, but none was in flight", write.base);
        if state.status == Status::NoSpace {
            state.status = Status::Open;
            tracing::info!(log = %inner.name, "appends are taken again");
        }
        state.made_written(write.base, write.target, write.end());
        if let (Some(offset), Some(segment)) = (write.boundary, state.segment_mut(write.base))
            && segment.durable > write.target
        {
            segment.restored = Some((offset, write.target));
        }
        while let Some(mark) = state.take_mark() {
            inner.env.commit_log().release(mark.file);
        }
        drop(state);
        inner.env.count(|c| {
            c.commits_growing += u64::from(write.is_growing);
        });
    }

    /// The disk is full: refuses appends, and waits a little.
    async fn wait_for_space(&self, error: &io::Error) -> Result<(), CommitError> {
        let inner = &*self.0;
        {
            let mut state = inner.state.borrow_mut();
            match &state.status {
                Status::Open => {
                    tracing::warn!(log = %inner.name, %error, "no space on the disk, or no file handle: appends are refused until there is{}", remedy(error));
                    state.status = Status::NoSpace;
                    inner.env.count(|c| c.no_space += 1);
                }
                Status::NoSpace => {}
                Status::Fenced(reason) => return Err(CommitError::Fenced(reason.clone())),
                Status::Closed => return Err(CommitError::Closed),
            }
        }
        inner.changed.fire();
        let reactor = inner.env.reactor();
        reactor.sleep(inner.env.options().no_space_retry).await;
        if inner.state.borrow().status == Status::Closed {
            return Err(CommitError::Closed);
        }
        Ok(())
    }

    /// The segment's file. The first commit into a segment brings it into the folder, durably: the spare it was rolled
    /// into, or a new one.
    async fn file_of(&self, base: Offset) -> Result<Rc<File>, CommitError> {
        loop {
            let file = self.0.state.borrow().segment(base).and_then(|s| s.file.clone());
            if let Some(file) = file {
                // Not before the first commit: most partitions of a large broker lie idle, and places are few.
                file.keep_at_hand();
                return Ok(file);
            }
            match self.make_file(base).await {
                Ok(()) => {}
                Err(error) if is_shortage(&error) => self.wait_for_space(&error).await?,
                Err(error) => {
                    return Err(CommitError::Fenced(self.fence_io("making a segment file", &error)));
                }
            }
        }
    }

    pub(super) async fn make_file(&self, base: Offset) -> io::Result<()> {
        let inner = &*self.0;
        let reactor = inner.env.reactor();
        let path = segment_path(&inner.folder, base, LOG);
        let (spare, moved_before): (Option<(PathBuf, Rc<File>)>, bool) = {
            let state = inner.state.borrow();
            let segment = state.segment(base);
            let spare = segment.and_then(|s| s.spare.as_ref());
            (spare.map(|s| (s.path.clone(), s.file.clone())), segment.is_some_and(|s| s.spare_moved))
        };
        let moved = match &spare {
            None => false,
            Some(_) if moved_before => true,
            Some((from, _)) => match reactor.rename(from, &path).await {
                Ok(()) => {
                    if let Some(segment) = inner.state.borrow_mut().segment_mut(base) {
                        segment.spare_moved = true;
                    }
                    true
                }
                // Somebody took the spare away: what is written into it would be in a file without a name.
                Err(error) if error.kind() == io::ErrorKind::NotFound => false,
                Err(error) => return Err(error),
            },
        };
        let file = match spare.filter(|_| moved) {
            Some((from, file)) => {
                // Both folders: the file must be found here after a crash, and nowhere else.
                if let Some(folder) = from.parent() {
                    reactor.sync_dir(folder).await?;
                }
                file
            }
            None => {
                inner.env.reserve().may_grow()?;
                let how = OpenHow { direct: inner.env.options().direct, ..OpenHow::write().create() };
                Rc::new(reactor.open(&path, how).await?)
            }
        };
        reactor.sync_dir(&inner.folder).await?;
        // Else it is one that the next start does not find.
        inner.env.is_still_there().await?;
        let room = file.len()?;
        let mut state = inner.state.borrow_mut();
        if let Some(segment) = state.segment_mut(base) {
            segment.charge = segment.spare.take().map(|s| s.charge);
            segment.room = room;
            segment.file = Some(file);
        }
        drop(state);
        // Those before it may have waited for this file.
        self.remove_segments_below_start();
        Ok(())
    }
}

impl WriteBufs {
    fn none() -> Self {
        Self { whole: TailSlices::new(), last: None, skip: 0 }
    }
}
