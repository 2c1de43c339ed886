//! Changes to what a log is: where it starts, which epoch it is in.
//!
//! Holds: the move of the log start, new leader epochs. Never touches: the end of the log (see `truncate`), the files of
//! what lies below its start (see `removal`).

use super::Log;
use super::error::ChangeError;
use super::state::Status;
use crate::disk::files::is_no_space;
use crate::ids::{LeaderEpoch, Offset};
use std::io;

fn failed(what: &'static str) -> impl FnOnce(io::Error) -> ChangeError {
    move |error| ChangeError::Io { what, error }
}

impl Log {
    /// Moves the log start up to `offset` (KIP-107). Returns the log start, which never goes back. Durable when it
    /// returns, and seen by nobody before; segments wholly below it are removed in the background.
    ///
    /// The caller keeps `offset` at or below the high watermark.
    ///
    /// # Errors
    /// When `offset` lies behind what is durable, the log is fenced or being changed, or the checkpoint cannot be written.
    /// The log start is then where it was, and stays there; only if the broker ends before the next checkpoint is on disk,
    /// the start may be at `offset` afterwards.
    pub async fn delete_records(&self, offset: Offset) -> Result<Offset, ChangeError> {
        let before = self.log_start();
        let log_start = self.move_log_start(offset).await?;
        if log_start > before {
            tracing::info!(log = %self.0.name, from = %before, %log_start, "deleted for DeleteRecords");
        }
        self.remove_segments_below_start();
        Ok(log_start)
    }

    /// The same, without removing anything.
    pub(super) async fn move_log_start(&self, offset: Offset) -> Result<Offset, ChangeError> {
        let inner = &*self.0;
        // One at a time: what a failed one takes back must not be another's.
        let free = || (!inner.deleting_records.replace(true)).then_some(());
        inner.changed.until(free).await;
        let mut deleting = DeletingRecords { log: self, is_recorded: false };
        {
            let state = inner.state.borrow();
            if let Status::Fenced(reason) = &state.status {
                return Err(ChangeError::Fenced(reason.clone()));
            }
            if state.changing || state.status == Status::Closed {
                return Err(ChangeError::Closed);
            }
            if offset <= state.log_start {
                return Ok(state.log_start);
            }
            if offset > state.durable_end {
                return Err(ChangeError::OutOfRange { offset, from: state.log_start, to: state.durable_end });
            }
        }
        self.update_checkpoint(|entry| entry.log_start = entry.log_start.max(offset));
        deleting.is_recorded = true;
        // Also on a full disk: records go, and then there is space.
        let flushed = inner.env.spend(is_no_space, async || inner.env.flush_checkpoint().await).await;
        flushed.map_err(failed("write the checkpoint"))?;
        {
            let mut state = inner.state.borrow_mut();
            let start = state.log_start.max(offset).min(state.log_end);
            state.log_start = start;
            state.are_epochs_written &= !state.epochs.truncate_from_start(start);
            state.producers.on_log_start(start);
            state.assert_invariants();
        }
        deleting.is_recorded = false;
        drop(deleting);
        Ok(self.log_start())
    }

    /// Begins a leader epoch at the log's end; nothing is written. It is the caller who never begins one a second time, also
    /// after a crash: the controller's record of it is durable before. Here it is durable with the first batch that
    /// carries it, and in the checkpoint of epochs before the recovery point passes that batch.
    ///
    /// # Errors
    /// When the epoch goes back, `start` is not the log's end, or the log is fenced or closed.
    pub fn new_epoch(&self, epoch: LeaderEpoch, start: Offset) -> Result<(), ChangeError> {
        let mut state = self.0.state.borrow_mut();
        if let Status::Fenced(reason) = &state.status {
            return Err(ChangeError::Fenced(reason.clone()));
        }
        if state.changing || state.status == Status::Closed {
            return Err(ChangeError::Closed);
        }
        let ours = state.epoch();
        if epoch < ours || epoch.0 < 0 {
            return Err(ChangeError::StaleEpoch { ours, theirs: epoch });
        }
        if epoch == ours {
            return Ok(());
        }
        if start != state.log_end {
            return Err(ChangeError::OutOfRange { offset: start, from: state.log_end, to: state.log_end });
        }
        // Neither number is negative.
        let _ = state.epochs.assign(epoch, start);
        state.epoch_begun = epoch;
        state.is_epoch_unused = true;
        Ok(())
    }
}

/// The mark that a DeleteRecords is under way. If it ends with its offset recorded, and not known to be on disk, the record is
/// taken back: the log start stays where readers have seen it.
struct DeletingRecords<'a> {
    log: &'a Log,
    is_recorded: bool,
}

impl Drop for DeletingRecords<'_> {
    fn drop(&mut self) {
        if self.is_recorded {
            let log_start = self.log.log_start();
            self.log.update_checkpoint(|entry| entry.log_start = log_start);
        }
        self.log.0.deleting_records.set(false);
        self.log.0.changed.fire();
    }
}
