//! The keeper: what follows a commit without anybody waiting for it.
//!
//! Holds: sealing of rolled segments, and the advance of the recovery point. Never touches: the active segment's records.
//!
//! One task per log at a time, oldest segment first. Order of steps, each on stable storage before the next:
//!
//! ```text
//!   sealing       indexes (all three), producer snapshot -> trim the records' file, sync -> folder -> recovery point
//!   advancing     indexes, producer snapshot (of the capture) -> folder -> recovery point
//! ```
//!
//! A crash between any two leaves more to recover, never less.

use super::error::ChangeError;
use super::names::{INDEX, SNAPSHOT, TIME_INDEX, parse_file_name, segment_path};
use super::state::{Capture, Phase, Status};
use super::{Inner, Log};
use crate::disk::checkpoint::RecoveryPoint;
use crate::disk::files::{is_shortage, put_in_place, remedy, replace_file, unlink_if_there, write_synced};
use crate::epochs::CHECKPOINT_FILE_NAME;
use crate::ids::Offset;
use crate::segment::index::SegmentIndex;
use std::io;
use std::time::Duration;

/// Pause before the keeper tries again what found no space or no handle.
const NO_SPACE_PAUSE: Duration = Duration::from_secs(2);

impl Log {
    /// Starts the keeper if there is work and it does not run.
    pub(super) fn keep(&self) {
        {
            let mut state = self.0.state.borrow_mut();
            if state.keeping || state.changing || !Inner::has_work_for_keeper(&state) {
                return;
            }
            if !matches!(state.status, Status::Open | Status::NoSpace) {
                return;
            }
            state.keeping = true;
        }
        let log = self.clone();
        let task = async move { log.keep_house().await };
        if self.0.env.reactor().spawn(task).is_err() {
            // The next commit tries again.
            self.0.state.borrow_mut().keeping = false;
        }
    }

    async fn keep_house(&self) {
        let inner = &*self.0;
        while let Err(error) = self.keep_all().await {
            if !is_shortage(&error) {
                self.fence_io("sealing a segment", &error);
                break;
            }
            tracing::warn!(log = %inner.name, %error, "no space, or no file handle, for sealing a segment; trying again{}", remedy(&error));
            inner.env.reactor().sleep(NO_SPACE_PAUSE).await;
            if inner.state.borrow().changing {
                break;
            }
        }
        inner.state.borrow_mut().keeping = false;
        inner.changed.fire();
    }

    async fn keep_all(&self) -> io::Result<()> {
        loop {
            let next = {
                let state = self.0.state.borrow();
                if state.changing || matches!(state.status, Status::Fenced(_)) {
                    return Ok(());
                }
                let unsealed = state.older.iter().find(|s| s.phase != Phase::Sealed);
                unsealed.map(|s| (s.base, s.is_written()))
            };
            match next {
                Some((base, true)) => self.seal(base).await?,
                Some((_, false)) => return Ok(()),
                None => {
                    let capture = {
                        let mut state = self.0.state.borrow_mut();
                        let is_written = state.capture.as_ref().is_some_and(|c| state.is_capture_written(c));
                        state.capture.take_if(|_| is_written)
                    };
                    let Some(capture) = capture else {
                        return Ok(());
                    };
                    self.advance(capture).await?;
                }
            }
        }
    }

    /// Seals a rolled segment that is written to its end.
    pub(super) async fn seal(&self, base: Offset) -> io::Result<()> {
        let inner = &*self.0;
        let reactor = inner.env.reactor();
        let Some((mut index, snapshot, bytes, file, end)) = ({
            let state = inner.state.borrow();
            let end = state.segment_of(base).map(|(_, end)| end);
            state.segment(base).and_then(|s| {
                assert!(s.is_written(), "segment {base} is sealed at {} of {} bytes", s.written, s.bytes());
                Some((s.index.clone()?, s.snapshot.clone(), s.bytes(), s.file.clone()?, end?))
            })
        }) else {
            return Ok(());
        };
        index.finish();
        self.write_index_files(base, &index).await?;
        self.write_aborted(base, end).await?;
        if let Some(snapshot) = snapshot {
            self.write_snapshot(end, snapshot).await?;
        }
        self.write_changed_epochs().await?;
        file.truncate(bytes).await?;
        file.fsync().await?;
        reactor.sync_dir(&inner.folder).await?;
        {
            let mut state = inner.state.borrow_mut();
            if let Some(segment) = state.segment_mut(base) {
                segment.phase = Phase::Sealed;
                segment.room = bytes;
                segment.file = None;
                segment.charge = None;
                segment.snapshot = None;
                segment.newest = Some(index.newest);
                segment.index = (!segment.tail.is_empty()).then_some(index);
            }
        }
        self.move_recovery_point(RecoveryPoint { offset: end, segment_base: end, position: 0 });
        self.remove_segments_below_start();
        self.replace_inner_snapshot(None).await
    }

    async fn advance(&self, capture: Capture) -> io::Result<()> {
        let inner = &*self.0;
        let index = {
            let state = inner.state.borrow();
            let segment = state.segment(capture.segment_base);
            segment.and_then(|s| s.index.clone())
        };
        let Some(index) = index else {
            return Ok(());
        };
        self.write_index_files(capture.segment_base, &index).await?;
        self.write_aborted(capture.segment_base, capture.offset).await?;
        self.write_snapshot(capture.offset, capture.snapshot).await?;
        self.write_changed_epochs().await?;
        inner.env.reactor().sync_dir(&inner.folder).await?;
        self.move_recovery_point(RecoveryPoint {
            offset: capture.offset,
            segment_base: capture.segment_base,
            position: capture.position,
        });
        self.replace_inner_snapshot(Some(capture.offset)).await
    }

    pub(super) fn move_recovery_point(&self, to: RecoveryPoint) {
        let durable = self.0.state.borrow().durable_end;
        assert!(to.offset <= durable, "recovery point {} behind durable end {durable}", to.offset);
        self.update_checkpoint(|entry| {
            if to.offset >= entry.recovery.offset {
                entry.recovery = to;
            }
        });
    }

    /// Replaces both: what the last recovery point relies on stays whole until the next one is made. The folder is the
    /// caller's to sync. The times come first: a failure or a crash between the two leaves more of them than of offsets, and
    /// what is too much is cut when they are read; an offset without its time would hide the largest time before it.
    pub(super) async fn write_index_files(&self, base: Offset, index: &SegmentIndex) -> io::Result<()> {
        let inner = &*self.0;
        let reactor = inner.env.reactor();
        let offsets = segment_path(&inner.folder, base, INDEX);
        let times = segment_path(&inner.folder, base, TIME_INDEX);
        put_in_place(reactor, &times, index.times.encode_from(0)).await?;
        put_in_place(reactor, &offsets, index.offsets.encode_from(0)).await
    }

    pub(super) async fn write_snapshot(&self, at: Offset, snapshot: Vec<u8>) -> io::Result<()> {
        let path = segment_path(&self.0.folder, at, SNAPSHOT);
        write_synced(self.0.env.reactor(), &path, snapshot).await
    }

    /// Writes the leader-epoch checkpoint as it is now; durable when it returns.
    pub(super) async fn write_epochs(&self) -> io::Result<()> {
        let inner = &*self.0;
        // One writer at a time: they share the scratch file.
        let free = || (!inner.writing_epochs.replace(true)).then_some(());
        inner.changed.until(free).await;
        let _writing = WritingEpochs(self);
        let written = inner.state.borrow().epochs.clone();
        let path = inner.folder.join(CHECKPOINT_FILE_NAME);
        replace_file(inner.env.reactor(), &path, written.encode().into_bytes()).await?;
        let mut state = inner.state.borrow_mut();
        state.are_epochs_written = state.epochs == written;
        Ok(())
    }

    /// The same, if records were written in others since. Before every move of the recovery point: recovery reads the epochs
    /// of what lies behind it from the batches, and of what lies before it from the checkpoint alone.
    pub(super) async fn write_changed_epochs(&self) -> io::Result<()> {
        if self.0.state.borrow().are_epochs_written {
            return Ok(());
        }
        self.write_epochs().await
    }

    /// Within a segment only the newest snapshot is of use; those at segment bounds stay, for truncations.
    pub(super) async fn replace_inner_snapshot(&self, newest: Option<Offset>) -> io::Result<()> {
        let inner = &*self.0;
        let before = {
            let mut state = inner.state.borrow_mut();
            let before = std::mem::replace(&mut state.inner_snapshot, newest);
            // Where a segment was rolled in the meantime, it is one of those at bounds.
            before.filter(|at| state.segment(*at).is_none())
        };
        match before.filter(|before| Some(*before) != newest) {
            Some(at) => {
                let path = segment_path(&inner.folder, at, SNAPSHOT);
                unlink_if_there(inner.env.reactor(), &path).await
            }
            None => Ok(()),
        }
    }

    /// Removes the snapshots whose offsets `which` picks. The folder is not synced.
    pub(super) async fn remove_snapshots(&self, which: impl Fn(Offset) -> bool) -> io::Result<()> {
        let inner = &*self.0;
        let reactor = inner.env.reactor();
        for entry in reactor.list_dir(&inner.folder)? {
            let at = entry.name.to_str().and_then(|n| parse_file_name(n, SNAPSHOT));
            if at.is_some_and(&which) {
                unlink_if_there(reactor, &inner.folder.join(&entry.name)).await?;
            }
        }
        Ok(())
    }

    /// Waits until commits, writes to segments and the keeper rest. The caller has set `changing`, so that nothing new starts.
    pub(super) async fn until_nothing_is_under_way(&self) {
        let inner = &*self.0;
        let look = || {
            let state = inner.state.borrow();
            let is_at_rest = !state.writing && !state.filing && !state.keeping && inner.unlinking.get() == 0;
            (is_at_rest && state.swapping.is_none()).then_some(())
        };
        inner.changed.until(look).await;
    }

    /// Sets the mark that a change of the whole log is under way, and waits until nothing else is.
    pub(super) async fn begin_change(&self) -> Result<Changing<'_>, ChangeError> {
        {
            let mut state = self.0.state.borrow_mut();
            if let Status::Fenced(reason) = &state.status {
                return Err(ChangeError::Fenced(reason.clone()));
            }
            if state.changing || state.status == Status::Closed {
                return Err(ChangeError::Closed);
            }
            state.changing = true;
        }
        let changing = Changing(self);
        self.until_nothing_is_under_way().await;
        Ok(changing)
    }
}

/// The mark that the log as a whole is being changed.
pub(super) struct Changing<'a>(&'a Log);

impl<'a> Changing<'a> {
    /// For whoever has set the mark itself.
    pub(super) const fn new(log: &'a Log) -> Self {
        Self(log)
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.0.0.state.borrow_mut().changing = false;
        self.0.0.changed.fire();
        self.0.keep();
    }
}

/// The mark that the leader-epoch checkpoint is being written.
struct WritingEpochs<'a>(&'a Log);

impl Drop for WritingEpochs<'_> {
    fn drop(&mut self) {
        self.0.0.writing_epochs.set(false);
        self.0.0.changed.fire();
    }
}
