//! Cutting the end of a log off: what a follower does when its leader's log went another way (KIP-101).
//!
//! Holds: the steps of a truncation. Never touches: who decides the offset.
//!
//! The steps, each on stable storage before the next:
//!
//! 1. the shard's checkpoint: "truncating to x", and a recovery point that is not above it. From here on every start
//!    completes the truncation first;
//! 2. later segments are removed, last one first;
//! 3. the rest of the cut segment is zeroed (or its file shortened), and its index of aborted transactions shortened;
//! 4. producer snapshots and leader epochs behind the cut are removed;
//! 5. the checkpoint: done.
//!
//! A batch is whole or gone: the cut is made before the batch that contains the offset. Where the log was compacted,
//! and there is none, behind the last batch before it.

use super::Log;
use super::cold::load_index;
use super::error::{ChangeError, ReadError};
use super::index_check::resume_before;
use super::keeper::Changing;
use super::names::{LOG, segment_path};
use super::repair::{discard, remove_segment_files};
use super::replay::{Part, Replay, ReplayError, snapshots_of};
use super::scan_file::scan_file;
use super::state::{Phase, Segment};
use super::txn_index::{self, Looked};
use crate::disk::checkpoint::RecoveryPoint;
use crate::disk::files::read_full;
use crate::disk::{BLOCK_BYTES, align_down};
use crate::ids::{LeaderEpoch, Offset, Timestamp};
use crate::producers::ProducerState;
use crate::segment::index::SegmentIndex;
use crate::segment::scan::{ScanStop, Scanner};
use crate::segment::tail::Tail;
use crate::segment::txn_index::{AbortedTxn, TxnIndex};
use corelog_reactor::{File, OpenHow};
use std::io;
use std::rc::Rc;

/// The segment that the cut lies in, once it is known where.
struct Cut {
    file: Rc<File>,
    position: u64,
    offset: Offset,
    index: SegmentIndex,
    file_bytes: u64,
}

fn failed(what: &'static str) -> impl FnOnce(io::Error) -> ChangeError {
    move |error| ChangeError::Io { what, error }
}

impl Log {
    /// Cuts off everything from the batch that contains `offset` on. Returns the new log end: `offset`, or less if it lay
    /// within a batch. Durable when it returns. Leader epochs that start at the new end go as well, as in Kafka, also where no
    /// record goes: what this replica began and its leader doesn't know would stand between them for ever.
    ///
    /// # Errors
    /// When `offset` lies before the log start, the log is fenced or being changed, or the disk fails; the last fences it.
    pub async fn truncate_to(&self, offset: Offset) -> Result<Offset, ChangeError> {
        let inner = &*self.0;
        let changing = self.begin_change().await?;
        let (log_start, log_end) = {
            let state = inner.state.borrow();
            (state.log_start, state.log_end)
        };
        if offset < log_start {
            return Err(ChangeError::OutOfRange { offset, from: log_start, to: log_end });
        }
        if offset >= log_end {
            // Nothing to cut but an epoch that was begun there and wrote nothing: the leader may know another one.
            let is_begun_there =
                inner.state.borrow().epochs.latest().is_some_and(|last| last.start == log_end && offset == log_end);
            if is_begun_there {
                self.cut_epochs(log_end).await?;
            }
            return Ok(log_end);
        }
        let result = self.cut_at(offset, &changing).await;
        if let Err(ChangeError::Io { what, error }) = &result {
            self.fence_io(what, error);
        }
        result
    }

    async fn cut_at(&self, offset: Offset, _changing: &Changing<'_>) -> Result<Offset, ChangeError> {
        let inner = &*self.0;
        self.drain().await?;
        let base = {
            let mut state = inner.state.borrow_mut();
            state.cuts += 1;
            state.segment_of(offset).map_or(state.active.base, |(s, _)| s.base)
        };
        let replay_from = inner.env.commit_log().replay_from();
        self.update_checkpoint(|entry| {
            entry.truncate_to = Some(offset);
            // The commit log holds what is cut off now: from here on that does not count.
            entry.replay_from = replay_from;
            if entry.recovery.offset > offset {
                // The offset may lie within a batch: only the segment's start is certain.
                entry.recovery = RecoveryPoint { offset: base, segment_base: base, position: 0 };
            }
        });
        inner.env.flush_checkpoint().await.map_err(failed("write the checkpoint"))?;
        self.drop_segments_behind(base).await?;
        let cut = self.find_cut(base, offset).await?;
        let end = self.cut_segment(base, cut).await?;
        self.cut_aborted(base, end).await?;
        self.cut_epochs_and_snapshots(end).await?;
        self.update_checkpoint(|entry| {
            entry.truncate_to = None;
            entry.log_start = entry.log_start.min(end);
            entry.cut_compaction(end);
        });
        inner.env.flush_checkpoint().await.map_err(failed("write the checkpoint"))?;
        Ok(end)
    }

    /// Takes the segments behind `base` out, last one first.
    async fn drop_segments_behind(&self, base: Offset) -> Result<(), ChangeError> {
        let inner = &*self.0;
        loop {
            let last = {
                let mut state = inner.state.borrow_mut();
                state.ticket = None;
                state.capture = None;
                if state.active.base <= base {
                    return Ok(());
                }
                let Some(before) = state.older.pop_back() else {
                    return Ok(());
                };
                let last = std::mem::replace(&mut state.active, before);
                state.pending_bytes -= last.bytes() - last.durable;
                state.log_end = last.base;
                state.durable_end = state.durable_end.min(last.base);
                inner.env.give_chunk_bytes(last.tail.memory_bytes());
                last
            };
            inner.env.cold().forget(inner.number, Some(last.base));
            let removed = last.base;
            drop(last);
            remove_segment_files(&inner.env, &inner.folder, removed)
                .await
                .map_err(failed("remove a truncated segment"))?;
        }
    }

    /// Where in the segment the batch that contains `offset` starts.
    async fn find_cut(&self, base: Offset, offset: Offset) -> Result<Cut, ChangeError> {
        let inner = &*self.0;
        inner.env.cold().forget(inner.number, Some(base));
        let (file, index, written, sealed) = {
            let state = inner.state.borrow();
            let segment = &state.active;
            (segment.file.clone(), segment.index.clone(), segment.written, segment.phase == Phase::Sealed)
        };
        let file = match file {
            Some(file) => file,
            None if sealed => {
                let how = OpenHow { direct: inner.env.options().direct, ..OpenHow::write() };
                let path = segment_path(&inner.folder, base, LOG);
                let file = inner.env.reactor().open(&path, how).await;
                Rc::new(file.map_err(failed("open a segment"))?)
            }
            None => {
                // All of it is written, so there is a file, unless there is nothing in it.
                return Err(failed("find a segment's file")(io::ErrorKind::NotFound.into()));
            }
        };
        let file_bytes = file.len().map_err(failed("ask for a segment's length"))?;
        let index = match index {
            Some(index) => Some(index),
            None => load_index(&inner.env, &inner.folder, base, written)
                .await
                .map_err(failed("read a segment's indexes"))?
                .ok(),
        };
        let mut index = index.unwrap_or_else(|| SegmentIndex::new(base));
        // Where to cut is not taken from an index that may be wrong: only from the batches themselves.
        let resume = resume_before(inner.env.reactor(), &file, &mut index, offset).await;
        let resume = resume.map_err(failed("read a segment"))?;
        let mut scanner = if resume == 0 {
            Scanner::new(0, base, LeaderEpoch::NONE, Some(offset))
        } else {
            Scanner::from_position(resume, LeaderEpoch::NONE, Some(offset))
        }
        .with_holes_below(self.compacted_to());
        let interval = inner.config.borrow().index_interval_bytes;
        let reactor = inner.env.reactor();
        let stop = scan_file(reactor, &file, &mut scanner, written, |b| {
            index.note(&b.header, b.last_offset, b.position, b.bytes, interval);
        })
        .await
        .map_err(failed("read a segment"))?;
        if let Some(ScanStop::Fault(fault)) = stop {
            return Err(ChangeError::Read(ReadError::Damaged {
                segment: base,
                position: scanner.position(),
                fault: fault.into(),
            }));
        }
        Ok(Cut { file, position: scanner.position(), offset: scanner.next_offset(), index, file_bytes })
    }

    async fn cut_segment(&self, base: Offset, cut: Cut) -> Result<Offset, ChangeError> {
        let inner = &*self.0;
        let reactor = inner.env.reactor();
        let aligned = align_down(cut.position);
        let buf = take_block(self)?;
        let (result, buf) = read_full(&cut.file, buf, aligned).await;
        let have = result.map_err(failed("read a segment"))?;
        let block = buf
            .get(..(cut.position - aligned) as usize)
            .filter(|b| b.len() <= have)
            .ok_or_else(|| failed("read a segment")(io::ErrorKind::UnexpectedEof.into()))?
            .to_vec();
        drop(buf);
        let room = discard(&inner.env, &cut.file, &block, cut.position, cut.file_bytes)
            .await
            .map_err(failed("zero a truncated tail"))?;
        let fresh = (!block.is_empty()).then(|| take_block(self)).transpose()?;
        let mut state = inner.state.borrow_mut();
        let now = Timestamp(reactor.unix_ms().0);
        let old = std::mem::replace(&mut state.active, Segment::new(base, now));
        state.pending_bytes -= old.bytes() - old.durable;
        inner.env.give_chunk_bytes(old.tail.memory_bytes());
        let mut tail = Tail::new(cut.position);
        if let Some(fresh) = fresh {
            let bytes = fresh.len();
            tail.restore_block(fresh, &block);
            inner.env.adopt_chunk(bytes, inner.me.clone());
        }
        state.active = Segment {
            file: Some(cut.file),
            room,
            charge: old.charge,
            tail,
            restored: Some((cut.offset, cut.position)),
            written: cut.position,
            durable: cut.position,
            boundary: cut.position,
            index: Some(cut.index),
            first_timestamp: old.first_timestamp.filter(|_| cut.position > 0),
            aborted: old.aborted,
            jitter_ms: old.jitter_ms,
            ..Segment::new(base, old.created)
        };
        state.log_end = cut.offset;
        state.durable_end = cut.offset;
        // The log start may lie within the batch that had to go as a whole.
        state.log_start = state.log_start.min(cut.offset);
        state.assert_invariants();
        Ok(cut.offset)
    }

    async fn cut_epochs_and_snapshots(&self, end: Offset) -> Result<(), ChangeError> {
        let inner = &*self.0;
        let reactor = inner.env.reactor();
        self.remove_snapshots(|at| at > end).await.map_err(failed("remove a producer snapshot"))?;
        reactor.sync_dir(&inner.folder).await.map_err(failed("sync the log's folder"))?;
        self.cut_epochs(end).await?;
        self.reload_producers(end).await
    }

    /// Forgets the leader epochs that start at `end` or behind it, durably.
    async fn cut_epochs(&self, end: Offset) -> Result<(), ChangeError> {
        {
            let mut state = self.0.state.borrow_mut();
            state.epoch_begun = state.epoch();
            state.epochs.truncate_from_end(end);
            state.are_epochs_written = false;
            state.is_epoch_unused = false;
        }
        self.write_epochs().await.map_err(failed("write the leader epochs"))
    }

    /// Takes the transactions whose markers are cut off out of the index of the segment at `base`, which ends at `end` now:
    /// durably, before their offsets are given to other records.
    async fn cut_aborted(&self, base: Offset, end: Offset) -> Result<(), ChangeError> {
        let inner = &*self.0;
        let (reactor, folder) = (inner.env.reactor(), &inner.folder);
        let cut_off = |error| failed("cut an index of aborted transactions")(error);
        let (kept, kept_to) = match txn_index::look(reactor, folder, base, end).await.map_err(cut_off)? {
            Looked::Missing => (0, None),
            Looked::Sound { kept, kept_to, .. } => {
                txn_index::cut(reactor, folder, base, kept).await.map_err(cut_off)?;
                (kept, kept_to)
            }
            Looked::Malformed => {
                let mut found = Vec::new();
                let mut producers = inner.state.borrow().producers.clone();
                let each = |segment, aborted| found.extend((segment == base).then_some(aborted));
                self.replay(&mut producers, base, end, each).await?;
                txn_index::replace(reactor, folder, base, &found).await.map_err(cut_off)?;
                tracing::warn!(
                    log = %inner.name, segment = %base, entries = found.len(),
                    "the index of aborted transactions was damaged: it was read from the log's batches and written anew"
                );
                (found.len() as u64, found.last().map(|last: &AbortedTxn| last.last_offset))
            }
        };
        let mut state = inner.state.borrow_mut();
        let pending = state.active.aborted.take().map_or(Vec::new(), |index| index.pending_below(end).to_vec());
        // One that was read anew has these as well.
        let pending = pending.into_iter().filter(|entry| kept_to.is_none_or(|to| to < entry.last_offset)).collect();
        state.active.aborted = TxnIndex::new(kept, kept_to, pending);
        Ok(())
    }

    /// The producers as they were at the log's end: the newest snapshot, and the batches after it.
    async fn reload_producers(&self, end: Offset) -> Result<(), ChangeError> {
        let mut producers = self.0.state.borrow().producers.clone();
        self.replay(&mut producers, end, end, |_, _| ()).await?;
        self.0.state.borrow_mut().producers = producers;
        Ok(())
    }

    /// Goes over the log, which ends at `end`, from the newest snapshot at or below `newest` on.
    async fn replay(
        &self,
        producers: &mut ProducerState,
        newest: Offset,
        end: Offset,
        each: impl FnMut(Offset, AbortedTxn),
    ) -> Result<(), ChangeError> {
        let inner = &*self.0;
        let entries = inner.env.reactor().list_dir(&inner.folder).map_err(failed("list the log's folder"))?;
        let parts: Vec<Part> = {
            let state = inner.state.borrow();
            let next_bases = state.segments().skip(1).map(|s| s.base).chain([end]);
            let part = |(s, end): (&Segment, Offset)| Part {
                base: s.base,
                bytes: s.written,
                end,
                is_last: s.base == state.active.base,
            };
            state.segments().zip(next_bases).map(part).collect()
        };
        let replay = Replay {
            env: &inner.env,
            folder: &inner.folder,
            parts: &parts,
            snapshots: &snapshots_of(&entries),
            holes_below: self.compacted_to(),
            goes_over_damage: false,
        };
        replay.run(producers, newest, each).await.map_err(|error| match error {
            ReplayError::Io(error) => failed("read a segment")(error),
            ReplayError::Damaged { segment, position, fault } => {
                ChangeError::Read(ReadError::Damaged { segment, position, fault: fault.into() })
            }
        })
    }
}

fn take_block(log: &Log) -> Result<corelog_reactor::AlignedBuf, ChangeError> {
    let pool = log.0.env.reactor().pool();
    pool.take(BLOCK_BYTES as usize).map_err(|e| failed("find memory")(io::Error::new(io::ErrorKind::OutOfMemory, e)))
}
