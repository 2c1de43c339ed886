//! What is too old, or too much: the log start moves behind it, and its segments go.
//!
//! Holds: Kafka's rules for which segments those are. Never touches: when they are asked (the owner does), how files are
//! removed (`removal`), who decided `cleanup.policy` (without `delete` there are no limits in the configuration).
//!
//! From the oldest segment on, for as long as all of it lies below the high watermark and
//!
//! | limit | a segment goes if |
//! |---|---|
//! | `retention.bytes` | without it there are still as many bytes |
//! | `retention.ms` | its largest timestamp is older, also of a batch that a compaction has left without records, as in Kafka; if there is none, the last change of its file |
//!
//! The active segment is no exception, unless it is empty: a new one takes its place first.
//!
//! Steps: a new active segment if it takes one; the log start, durable; a file for the new segment; then the old ones go.
//! A crash before the log start is durable leaves one segment more; after that, segments below the log start.

use super::Log;
use super::error::{ChangeError, CommitError, ReadError};
use super::names::{LOG, segment_path};
use super::roll::roll_jitter;
use super::state::{Segment, State, Status};
use crate::disk::files::is_shortage;
use crate::ids::{Offset, Timestamp};

/// Segments that went, and the bytes of their records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deleted {
    /// How many.
    pub segments: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Deleted {
    fn add(&mut self, bytes: u64) {
        self.segments += 1;
        self.bytes += bytes;
    }
}

/// What one look at a log has found to delete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retained {
    /// Beyond `retention.bytes`.
    pub over_size: Deleted,
    /// Older than `retention.ms`.
    pub expired: Deleted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    Bytes(u64),
    Ms(i64),
}

/// Segments from the oldest on that are to go.
#[derive(Default)]
struct Breach {
    deleted: Deleted,
    /// Where the first one starts, and the log behind the last.
    first: Option<Offset>,
    end: Offset,
    /// The newest timestamp among them, if that was asked for.
    newest: Option<Timestamp>,
    /// The active segment, if it is the last of them: it takes a new one.
    active: Option<Looked>,
}

/// What is known of a segment when it is looked at.
#[derive(Clone, Copy)]
struct Looked {
    base: Offset,
    end: Offset,
    bytes: u64,
    is_active: bool,
}

impl Log {
    /// Deletes what is beyond the configured limits and wholly below `high_watermark`. The log start is durable when this
    /// returns; files go in the background.
    ///
    /// # Errors
    /// When the log is fenced, or the disk fails; segments that are deleted already stay so.
    pub async fn retain(&self, now: Timestamp, high_watermark: Offset) -> Result<Retained, ChangeError> {
        let (bytes_max, ms_max) = {
            let config = self.0.config.borrow();
            (config.retention_bytes_max, config.retention_ms_max)
        };
        // Below the log start already, and left there because of a file that could not be made.
        self.make_active_file_if_awaited().await?;
        self.remove_segments_below_start();
        let mut retained = Retained::default();
        if let Some(bytes_max) = bytes_max {
            retained.over_size = self.retain_within(Limit::Bytes(bytes_max), now, high_watermark).await?;
            self.0.env.count(|c| c.segments_over_size += retained.over_size.segments);
        }
        if let Some(ms_max) = ms_max {
            retained.expired = self.retain_within(Limit::Ms(ms_max), now, high_watermark).await?;
            self.0.env.count(|c| c.segments_expired += retained.expired.segments);
        }
        Ok(retained)
    }

    async fn retain_within(&self, limit: Limit, now: Timestamp, upper: Offset) -> Result<Deleted, ChangeError> {
        let mut breach = match limit {
            Limit::Bytes(max) => self.beyond_bytes(max, upper),
            Limit::Ms(max) => self.beyond_ms(now.0.saturating_sub(max), upper).await?,
        };
        // What lies below the high watermark is never cut off and written anew: meanwhile these segments can only have gone.
        if let Some(active) = breach.active
            && !self.roll_idle(&active, now).await?
        {
            breach.leave_active();
        }
        let Some(first) = breach.first else {
            return Ok(Deleted::default());
        };
        self.move_log_start(breach.end).await?;
        let Deleted { segments, bytes } = breach.deleted;
        let newest = breach.newest.map(|newest| newest.0);
        let (what, max) = match limit {
            Limit::Bytes(max) => ("retention.bytes", i128::from(max)),
            Limit::Ms(max) => ("retention.ms", i128::from(max)),
        };
        tracing::info!(
            log = %self.0.name, segments, bytes, from = %first, log_start = %self.log_start(), newest,
            "deleted for {what}={max}"
        );
        if breach.active.is_some() {
            self.make_active_file_if_awaited().await?;
            self.keep();
        }
        self.remove_segments_below_start();
        Ok(breach.deleted)
    }

    /// As Kafka counts: whole segments, also what of the first one lies below the log start, and the active one.
    fn beyond_bytes(&self, max: u64, upper: Offset) -> Breach {
        let mut breach = Breach::default();
        let total: u64 = {
            let state = self.0.state.borrow();
            let first = first_kept(&state);
            state.segments().rev().take_while(|s| s.base >= first).map(Segment::bytes).sum()
        };
        let Some(mut rest) = total.checked_sub(max) else {
            return breach;
        };
        while let Some(next) = self.look(&breach, upper) {
            let Some(less) = rest.checked_sub(next.bytes) else { break };
            rest = less;
            breach.take(&next, None);
        }
        breach
    }

    async fn beyond_ms(&self, oldest_kept: i64, upper: Offset) -> Result<Breach, ChangeError> {
        let mut breach = Breach::default();
        while let Some(next) = self.look(&breach, upper) {
            let newest = self.newest_of(&next).await.map_err(ChangeError::Read)?;
            if newest.is_none_or(|newest| newest.0 >= oldest_kept) {
                break;
            }
            breach.take(&next, newest);
        }
        Ok(breach)
    }

    /// The segment behind those that are to go, if it may go as well.
    fn look(&self, breach: &Breach, upper: Offset) -> Option<Looked> {
        let state = self.0.state.borrow();
        let goes_on = matches!(state.status, Status::Open | Status::NoSpace) && !state.changing;
        if !goes_on || breach.active.is_some() {
            return None;
        }
        let at = first_kept(&state).max(breach.end);
        let (segment, end) = state.segment_of(at)?;
        let is_active = segment.base == state.active.base;
        let may_go = end <= upper && end <= state.durable_end && segment.bytes() > 0;
        may_go.then(|| Looked { base: segment.base, end, bytes: segment.bytes(), is_active })
    }

    /// The largest timestamp of a segment's batches; without any, when its file was last changed. `None` if nobody can tell
    /// now: it was compacted meanwhile, and the next look asks the segment that is there then.
    async fn newest_of(&self, looked: &Looked) -> Result<Option<Timestamp>, ReadError> {
        let known = {
            let state = self.0.state.borrow();
            let segment = state.segment(looked.base);
            segment.and_then(|s| s.index.as_ref().map(|index| index.newest).max(s.newest))
        };
        let newest = match known {
            Some(newest) => newest,
            None => {
                let swaps = self.0.state.borrow().swaps;
                let newest = match self.proved_newest(looked.base, looked.bytes, looked.end).await {
                    Ok(newest) => newest,
                    Err(error) if self.was_exchanged(swaps, Some(&error)).await => return Ok(None),
                    Err(error) => return Err(error),
                };
                // A compacted segment that has taken its place meanwhile reaches further, and is as new as its newest part.
                let is_it = |s: &&mut Segment| s.bytes() == looked.bytes && s.newest.is_none();
                if let Some(segment) = self.0.state.borrow_mut().segment_mut(looked.base).filter(is_it) {
                    segment.newest = Some(newest);
                }
                newest
            }
        };
        Ok(if newest.0 >= 0 { Some(newest) } else { self.changed_at(looked.base) })
    }

    /// When the segment's file was last changed; the simulation has no such times.
    fn changed_at(&self, base: Offset) -> Option<Timestamp> {
        let inner = &*self.0;
        let changed = inner.env.reactor().changed_at(&segment_path(&inner.folder, base, LOG));
        let on_disk = changed.ok().flatten().map(|ms| Timestamp(ms.0));
        on_disk.or_else(|| inner.state.borrow().segment(base).map(|s| s.created))
    }

    /// Makes a new segment the active one, if the old one still ends the log. What only the commit log has of the old one is
    /// brought to its file, so that it can be sealed. Returns whether there is one.
    async fn roll_idle(&self, old: &Looked, now: Timestamp) -> Result<bool, ChangeError> {
        let inner = &*self.0;
        {
            let mut state = inner.state.borrow_mut();
            let is_idle = state.status == Status::Open
                && !state.changing
                && state.active.base == old.base
                && state.log_end == old.end
                && state.durable_end == old.end;
            if !is_idle {
                return Ok(false);
            }
            let jitter_ms = roll_jitter(inner.env.reactor(), &inner.config.borrow());
            let to_spare = state.roll(now, jitter_ms);
            state.assert_invariants();
            inner.env.count(|c| {
                c.rolls_to_spare += u64::from(to_spare);
                c.rolls_to_empty += u64::from(!to_spare);
            });
        }
        tracing::debug!(log = %inner.name, end = %old.end, "a new active segment: the last one is to be deleted");
        let is_unwritten = inner.state.borrow().older.back().is_some_and(|s| !s.is_written());
        if is_unwritten {
            self.write_pending().await.map_err(|error| match error {
                CommitError::Fenced(reason) => ChangeError::Fenced(reason),
                CommitError::Closed => ChangeError::Closed,
            })?;
        }
        self.keep();
        Ok(true)
    }

    /// Makes the file of an active segment before its first commit, if older segments wait for that to go.
    async fn make_active_file_if_awaited(&self) -> Result<(), ChangeError> {
        let inner = &*self.0;
        let is_awaited = || {
            let state = inner.state.borrow();
            let waits = state.older.back().is_some_and(|_| state.active.base <= state.log_start);
            waits && state.active.file.is_none() && state.status == Status::Open && !state.changing
        };
        if !is_awaited() {
            return Ok(());
        }
        let _filing = self.begin_filing().await;
        if !is_awaited() {
            return Ok(());
        }
        let base = inner.state.borrow().active.base;
        match self.make_file(base).await {
            Ok(()) => Ok(()),
            Err(error) if is_shortage(&error) => {
                tracing::warn!(log = %inner.name, %error, "no file for a new segment: those before it are removed once there is one");
                Ok(())
            }
            Err(error) => Err(ChangeError::Fenced(self.fence_io("making a segment file", &error))),
        }
    }
}

/// Where the first segment starts that is not wholly below the log start: one that is goes without being asked about again.
fn first_kept(state: &State) -> Offset {
    state.segment_of(state.log_start).map_or(state.active.base, |(segment, _)| segment.base)
}

impl Breach {
    fn take(&mut self, looked: &Looked, largest: Option<Timestamp>) {
        self.deleted.add(looked.bytes);
        self.first.get_or_insert(looked.base);
        self.end = looked.end;
        self.newest = self.newest.max(largest);
        self.active = looked.is_active.then_some(*looked);
    }

    fn leave_active(&mut self) {
        let Some(active) = self.active.take() else { return };
        self.deleted.segments -= 1;
        self.deleted.bytes -= active.bytes;
        self.end = active.base;
        self.first = self.first.filter(|first| *first < active.base);
    }
}
