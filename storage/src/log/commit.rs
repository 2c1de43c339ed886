//! Group commit: everything pending, on stable storage when it completes.
//!
//! Holds: the one commit under way, its way. Never touches: the segments' files (`segment_write`), the commit log's
//! (`commit_log`).
//!
//! Two ways:
//!
//! - **direct**: one write to the segment, from where its file ends; it carries everything pending, also what the
//!   commit log has already.
//! - **logged**: what is pending is copied into the write that the shard's commit log gathers, with what other logs
//!   commit in this turn. The segment follows in the background (`write_back`).
//!
//! Logged is only what may follow: the segment's file is in its folder, durably; every older segment is written whole;
//! what is not written stays within one write. So what the commit log has belongs to the last segment, and a segment's
//! file is always a prefix. If the commit log fails, the same bytes go the direct way.

use super::error::{CommitError, FenceReason};
use super::segment_write::Reach;
use super::state::{Mark, Phase, Segment, State, Status};
use super::{Inner, Log};
use crate::commit_log::{Choice, Piece, Ticket};
use crate::disk::align_down;
use crate::ids::Offset;
use corelog_reactor::Monotonic;

/// So many write-backs' worth of bytes may be in the commit log alone; then commits go the direct way, which takes them
/// along.
const UNWRITTEN_WRITE_BACKS_MAX: u64 = 4;

/// A commit that goes through the commit log.
struct Logged {
    ticket: Ticket,
    segment: Offset,
    /// What is durable before it,
    start: Offset,
    /// and up to where in the segment after it.
    end: u64,
}

/// The mark that a commit is under way. If it is dropped before the end, what the disk holds is unknown.
struct InFlight<'a> {
    log: &'a Log,
    began: Monotonic,
    ended: bool,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.log.fence(FenceReason::CommitDropped);
        }
        self.log.0.state.borrow_mut().writing = false;
        let env = &self.log.0.env;
        env.commit_log().choice(Choice::end);
        env.foreground().ended(self.began, env.reactor().now());
        self.log.0.changed.fire();
    }
}

impl Log {
    /// Whether a [`commit`](Self::commit) should be started now: something is pending, no write is in flight.
    #[must_use]
    pub fn needs_commit(&self) -> bool {
        let state = self.0.state.borrow();
        !state.writing
            && !state.changing
            && state.pending_bytes > 0
            && matches!(state.status, Status::Open | Status::NoSpace)
    }

    /// Makes what is pending durable, with one write; at most `commit_bytes_max` of it, and of the oldest segment that has
    /// any. Returns at once if nothing is pending or a write is in flight already.
    ///
    /// Must be driven to its end: dropped with its write in flight it fences the log.
    ///
    /// # Errors
    /// When the log is fenced, or is closed while the disk is full.
    pub async fn commit(&self) -> Result<(), CommitError> {
        let Some(in_flight) = self.begin_commit(|state| !state.changing && state.pending_bytes > 0)? else {
            return Ok(());
        };
        self.drive(in_flight, self.commit_pending()).await
    }

    /// Brings the oldest bytes that are not in their segment's file there, also while the log is being changed: for
    /// whoever changes it.
    pub(super) async fn write_pending(&self) -> Result<(), CommitError> {
        let Some(in_flight) = self.begin_commit(|state| state.first_unwritten().is_some())? else {
            return Ok(());
        };
        self.drive(in_flight, self.write_oldest()).await
    }

    fn begin_commit(&self, is_wanted: impl FnOnce(&State) -> bool) -> Result<Option<InFlight<'_>>, CommitError> {
        let mut state = self.0.state.borrow_mut();
        if let Status::Fenced(reason) = &state.status {
            return Err(CommitError::Fenced(reason.clone()));
        }
        if state.writing || !is_wanted(&state) {
            return Ok(None);
        }
        state.writing = true;
        let (env, began) = (&self.0.env, self.0.env.reactor().now());
        env.commit_log().choice(Choice::begin);
        env.foreground().begun(began);
        Ok(Some(InFlight { log: self, began, ended: false }))
    }

    async fn drive(
        &self,
        mut in_flight: InFlight<'_>,
        work: impl Future<Output = Result<(), CommitError>>,
    ) -> Result<(), CommitError> {
        let result = work.await;
        in_flight.ended = true;
        drop(in_flight);
        self.keep();
        result
    }

    async fn commit_pending(&self) -> Result<(), CommitError> {
        if let Some(logged) = self.stage_pending()
            && logged.ticket.await.is_ok()
        {
            self.end_logged(logged.segment, logged.start, logged.end);
            return Ok(());
        }
        // If it went to the commit log and that failed, nobody knows what of it is on the disk: the segment gets the
        // identical bytes.
        self.write_oldest().await
    }

    /// Puts everything pending into the commit log, if it may go there and finds a place.
    fn stage_pending(&self) -> Option<Logged> {
        let inner = &*self.0;
        let (options, commit_log) = (inner.env.options(), inner.env.commit_log());
        let mut state = inner.state.borrow_mut();
        let state = &mut *state;
        let active = &state.active;
        let (from, end) = (active.durable, active.bytes());
        let bytes = usize::try_from(end - from).ok()?;
        let unwritten = end - active.written;
        let may_be = state.status == Status::Open
            && bytes > 0
            && from == active.boundary
            && active.file.is_some()
            && state.older.back().is_none_or(Segment::is_written)
            && end - align_down(active.written) <= options.commit_bytes_max
            && unwritten <= UNWRITTEN_WRITE_BACKS_MAX * options.write_back_bytes
            && bytes <= commit_log.piece_bytes_max();
        if !may_be || !inner.env.prefers_commit_log(bytes) {
            return None;
        }
        let (segment, start) = (active.base, state.durable_end);
        let piece = Piece { key: inner.name.key(), segment, position: from, start, end: state.log_end, bytes };
        let ticket = commit_log.stage(&piece, |out| active.tail.copy_out(from, out))?;
        let file = ticket.file();
        match state.marks.last_mut().filter(|mark| mark.file == file && mark.segment == segment) {
            Some(mark) => mark.end = end,
            None => {
                let me = inner.me.clone();
                commit_log.hold(file, me);
                state.marks.push(Mark { file, segment, end });
            }
        }
        Some(Logged { ticket, segment, start, end })
    }

    fn end_logged(&self, segment: Offset, start: Offset, end: u64) {
        let mut state = self.0.state.borrow_mut();
        if let Some(segment) = state.segment_mut(segment)
            && segment.written == segment.durable
        {
            // From here on the file lacks what may be read: the way to it must not lead over the file.
            segment.restored = Some((start, segment.written));
        }
        state.made_durable(segment, end);
        state.room_demand.logged();
        drop(state);
        self.write_back_if_due();
    }

    /// One write to the oldest segment that its file has not all of; first, what only the commit log has of a segment
    /// before the one that is pending.
    async fn write_oldest(&self) -> Result<(), CommitError> {
        let filing = self.begin_filing().await;
        loop {
            let next = {
                let state = self.0.state.borrow();
                state.first_unwritten().map(|s| (s.base, s.durable < s.bytes()))
            };
            let Some((base, is_pending)) = next else {
                return Ok(());
            };
            let bytes = self.write_segment(base, Reach::End, &filing).await?;
            self.0.state.borrow_mut().room_demand.committed(bytes);
            self.0.env.count(|c| {
                c.commits += 1;
                c.commit_bytes += bytes;
            });
            if is_pending {
                return Ok(());
            }
        }
    }

    /// Waits until no commit is under way. The caller keeps new ones from starting.
    pub(super) async fn until_not_writing(&self) {
        let inner = &*self.0;
        let look = || (!inner.state.borrow().writing).then_some(());
        inner.changed.until(look).await;
    }
}

impl Inner {
    /// Whether the keeper has something to do: see `keeper`.
    pub(super) fn has_work_for_keeper(state: &State) -> bool {
        let first_unsealed = state.older.iter().find(|s| s.phase != Phase::Sealed);
        first_unsealed.is_some_and(Segment::is_written)
            || first_unsealed.is_none() && state.capture.as_ref().is_some_and(|c| state.is_capture_written(c))
    }
}
