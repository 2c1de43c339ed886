//! What the tasks of a run tell each other.
//!
//! Holds: whether to go on, and why not. Never touches: what they do.

use std::cell::{Cell, RefCell};

use crate::error::BenchError;
use crate::measure::clock::now_ns;

/// Shared by all tasks of a run.
#[derive(Default)]
pub struct Control {
    stopping: Cell<bool>,
    failure: RefCell<Option<BenchError>>,
    failed_ns: Cell<Option<u64>>,
}

impl Control {
    /// No new work from now on; what is open is finished.
    pub fn stop(&self) {
        self.stopping.set(true);
    }

    /// Whether [`Self::stop`] was called or something failed.
    pub fn is_stopping(&self) -> bool {
        self.stopping.get()
    }

    /// Something failed; the first reason stays, and the run ends.
    pub fn fail(&self, error: BenchError) {
        self.failed_ns.set(self.failed_ns.get().or_else(|| Some(now_ns())));
        self.failure.borrow_mut().get_or_insert(error);
        self.stopping.set(true);
    }

    /// Whether something failed.
    pub fn has_failed(&self) -> bool {
        self.failure.borrow().is_some()
    }

    /// When that was.
    pub const fn failed_ns(&self) -> Option<u64> {
        self.failed_ns.get()
    }

    /// The reason.
    pub fn take_failure(&self) -> Option<BenchError> {
        self.failure.borrow_mut().take()
    }
}
