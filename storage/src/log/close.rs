//! The end of a log that was closed cleanly.
//!
//! Holds: the drain, the last trim. Never touches: logs that go on, or that are deleted (see `forget`).

use super::Log;
use super::error::{ChangeError, CommitError};
use super::keeper::Changing;
use super::state::{Phase, Status};
use crate::disk::checkpoint::RecoveryPoint;
use std::io;

fn failed(what: &'static str) -> impl FnOnce(io::Error) -> ChangeError {
    move |error| ChangeError::Io { what, error }
}

impl Log {
    /// Waits until the segments have all that was appended, durably; whoever calls this keeps new appends out.
    pub(super) async fn drain(&self) -> Result<(), ChangeError> {
        let inner = &*self.0;
        loop {
            self.until_not_writing().await;
            if inner.state.borrow().first_unwritten().is_none() {
                return Ok(());
            }
            match self.write_pending().await {
                Ok(()) => {}
                Err(CommitError::Fenced(reason)) => return Err(ChangeError::Fenced(reason)),
                Err(CommitError::Closed) => return Err(ChangeError::Closed),
            }
        }
    }

    /// Closes the log: appends are refused from now on, what is pending becomes durable, files are trimmed and indexed,
    /// the recovery point moves to the end. A start after this scans nothing.
    ///
    /// # Errors
    /// When the log is fenced, the disk is full or fails. It is closed all the same, and recovered at the next start.
    pub async fn close(&self) -> Result<(), ChangeError> {
        {
            let mut state = self.0.state.borrow_mut();
            match &state.status {
                Status::Open => state.status = Status::Closed,
                // With a full disk nothing more can be written: what is pending was never acknowledged.
                Status::NoSpace => {
                    state.status = Status::Closed;
                    return Err(ChangeError::Closed);
                }
                Status::Fenced(reason) => return Err(ChangeError::Fenced(reason.clone())),
                Status::Closed => return Err(ChangeError::Closed),
            }
        }
        self.0.changed.fire();
        let changing = self.stop_others().await;
        self.drain().await?;
        let result = self.trim(&changing).await;
        let point = result.map_err(failed("close the log"))?;
        self.0.env.flush_checkpoint().await.map_err(failed("write the checkpoint"))?;
        if let Some(point) = point {
            // The checkpoint no longer asks for the one before.
            let inner = (point.offset > point.segment_base).then_some(point.offset);
            self.replace_inner_snapshot(inner).await.map_err(failed("remove a producer snapshot"))?;
        }
        Ok(())
    }

    /// Waits for whatever is under way to end, and keeps anything else from starting.
    pub(super) async fn stop_others(&self) -> Changing<'_> {
        let inner = &*self.0;
        inner
            .changed
            .until(|| {
                let mut state = inner.state.borrow_mut();
                (!std::mem::replace(&mut state.changing, true)).then_some(())
            })
            .await;
        let changing = Changing::new(self);
        self.until_nothing_is_under_way().await;
        changing
    }

    /// Seals what is left to seal; the active segment is trimmed and indexed as if it were sealed. The recovery point of a
    /// snapshot that was written for it.
    async fn trim(&self, _changing: &Changing<'_>) -> io::Result<Option<RecoveryPoint>> {
        let inner = &*self.0;
        loop {
            let next = {
                let state = inner.state.borrow();
                let unsealed = state.older.iter().find(|s| s.phase != Phase::Sealed);
                unsealed.map(|s| s.base)
            };
            let Some(base) = next else { break };
            self.seal(base).await?;
        }
        let (point, file, room, is_said) = {
            let mut state = inner.state.borrow_mut();
            state.ticket = None;
            let active = &state.active;
            let bytes = active.bytes();
            let point = RecoveryPoint { offset: state.log_end, segment_base: active.base, position: bytes };
            // What the recovery point vouches for, as an earlier stop left it, is indexed and in a snapshot: of thousands
            // of idle logs nothing is written, and nothing for the next start to read.
            let is_left_so = bytes == 0 || active.room == bytes && !active.is_index_lost;
            let is_left_so = is_left_so && active.aborted.as_ref().is_none_or(|index| index.pending().is_empty());
            let is_said = is_left_so && state.checkpoint.recovery == point && state.are_epochs_written;
            (point, active.file.clone(), active.room, is_said)
        };
        if is_said {
            if let Some(file) = file.filter(|_| room != point.position) {
                file.truncate(point.position).await?;
                file.fsync().await?;
            }
            return Ok(None);
        }
        let (base, bytes, end) = (point.segment_base, point.position, point.offset);
        let (index, snapshot) = {
            let state = inner.state.borrow();
            (state.active.index.clone(), state.producers.snapshot())
        };
        if let Some(mut index) = index {
            index.finish();
            self.write_index_files(base, &index).await?;
        }
        self.write_aborted(base, end).await?;
        self.write_snapshot(end, snapshot).await?;
        self.write_changed_epochs().await?;
        if let Some(file) = &file {
            file.truncate(bytes).await?;
            file.fsync().await?;
        }
        inner.env.reactor().sync_dir(&inner.folder).await?;
        if file.is_some() {
            self.move_recovery_point(point);
        }
        Ok(Some(point))
    }
}
