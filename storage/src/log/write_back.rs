//! What is durable in the commit log follows to the segments: in the background, in large writes.
//!
//! Holds: which logs are due, and the few tasks that write. Never touches: what is not durable yet.
//!
//! A log is due when much of it is in the commit log alone, when a file of the commit log is wanted again that it has
//! bytes in, or when the memory is wanted that these bytes take. Commits go on meanwhile: into the commit log at once,
//! to the segment behind this write.

use super::env::StorageEnv;
use super::segment_write::Reach;
use super::state::{State, Status};
use super::{Inner, Log};
use crate::commit_log::{FileId, Holder};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Weak;

/// Logs of a shard that are written back at the same time.
const AT_ONCE_MAX: usize = 4;

/// The logs of a shard that are due; each at most once.
#[derive(Default)]
pub(crate) struct WriteBacks {
    due: RefCell<VecDeque<Weak<Inner>>>,
    running: Cell<usize>,
}

impl WriteBacks {
    /// Sees to it that somebody works on what is due.
    fn start(&self, env: &StorageEnv) {
        if self.running.get() >= AT_ONCE_MAX || self.due.borrow().is_empty() {
            return;
        }
        let own = env.clone();
        if env.reactor().spawn(async move { write_back_due(&own).await }).is_ok() {
            self.running.set(self.running.get() + 1);
        }
        // Else whoever asks next tries again, also if it is a log that is due already.
    }
}

async fn write_back_due(env: &StorageEnv) {
    let queue = env.write_backs();
    loop {
        let next = queue.due.borrow_mut().pop_front();
        let Some(next) = next else { break };
        if let Some(log) = next.upgrade().map(Log) {
            log.0.is_due.set(false);
            log.write_back().await;
        }
    }
    queue.running.set(queue.running.get() - 1);
}

impl Log {
    /// Brings what is durable, and not in the segment's file, there. Fences the log if that fails.
    async fn write_back(&self) {
        let inner = &*self.0;
        let filing = self.begin_filing().await;
        let base = {
            let state = inner.state.borrow();
            // Whoever changes the log writes everything itself.
            let goes_on = !state.changing && matches!(state.status, Status::Open | Status::NoSpace);
            let first = state.first_unwritten().filter(|s| goes_on && s.written < s.durable);
            first.map(|s| s.base)
        };
        let Some(base) = base else { return };
        let written = self.write_segment(base, Reach::Durable, &filing).await;
        drop(filing);
        if let Ok(bytes) = written {
            inner.env.count(|c| {
                c.write_backs += 1;
                c.write_back_bytes += bytes;
            });
            self.keep();
            self.write_back_if_due();
        }
    }

    /// Asks for it once enough has gathered.
    pub(super) fn write_back_if_due(&self) {
        let unwritten = self.0.state.borrow().active.unwritten();
        if unwritten >= self.0.env.options().write_back_bytes {
            self.0.want_write_back();
        }
    }
}

impl Inner {
    /// The log is due.
    pub(super) fn want_write_back(&self) {
        let queue = self.env.write_backs();
        if !self.is_due.replace(true) {
            queue.due.borrow_mut().push_back(self.me.clone());
            queue.start(&self.env);
        } else if queue.running.get() == 0 {
            queue.start(&self.env);
        }
    }
}

impl Holder for Inner {
    fn can_do_without(&self, file: FileId) -> bool {
        let state = self.state.borrow();
        state.marks.iter().any(|mark| mark.file == file) && state.can_be_written_back()
    }

    fn ask_write_back(&self) {
        let can_be = self.state.borrow().can_be_written_back();
        if can_be {
            self.want_write_back();
        }
    }
}

impl State {
    fn can_be_written_back(&self) -> bool {
        let is_alive = matches!(self.status, Status::Open | Status::NoSpace);
        is_alive && self.first_unwritten().is_some_and(|s| s.written < s.durable)
    }
}
