//! Waking a reactor from a thread that has none.
//!
//! Holds: the remote waker's two forms. Never touches: mail, the ring itself (its driver reads the event counter).

use std::fmt;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Wakes one reactor out of its sleep, from any thread or a signal handler (an atomic swap and at most one write(2)).
/// Wakes before the reactor looks are one wake.
#[derive(Clone)]
pub struct RemoteWaker(Arc<Shared>);

struct Shared {
    pending: AtomicBool,
    /// The simulation has no descriptor: its world looks at the flag.
    event: Option<OwnedFd>,
}

impl RemoteWaker {
    pub(crate) fn with_event(event: OwnedFd) -> RemoteWaker {
        RemoteWaker(Arc::new(Shared { pending: AtomicBool::new(false), event: Some(event) }))
    }

    pub(crate) fn flag_only() -> RemoteWaker {
        RemoteWaker(Arc::new(Shared { pending: AtomicBool::new(false), event: None }))
    }

    /// Wakes the reactor, or makes its next sleep end at once.
    pub fn wake(&self) {
        if self.0.pending.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Some(event) = &self.0.event {
            let one = 1u64.to_ne_bytes();
            // SAFETY: eight readable bytes and an open descriptor. A full counter (EAGAIN) is a wake already under
            // way, so the result says nothing we need.
            unsafe { libc::write(event.as_raw_fd(), one.as_ptr().cast(), one.len()) };
        }
    }

    /// Takes the pending wake; the driver calls this before it looks for work.
    pub(crate) fn take(&self) -> bool {
        self.0.pending.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn is_pending(&self) -> bool {
        self.0.pending.load(Ordering::Acquire)
    }

    pub(crate) fn event_fd(&self) -> Option<i32> {
        self.0.event.as_ref().map(AsRawFd::as_raw_fd)
    }
}

impl fmt::Debug for RemoteWaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteWaker").field("pending", &self.0.pending).finish()
    }
}
