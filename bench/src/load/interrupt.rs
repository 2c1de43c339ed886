//! Ctrl-C while a run is measured: it ends where it is, and its figures are kept. The second one ends the process, as the
//! first does before there is anything to keep.
//!
//! Holds: whether it was pressed. Never touches: runs; they look.

use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

static PRESSED: AtomicBool = AtomicBool::new(false);

extern "C" fn pressed(_: i32) {
    PRESSED.store(true, Ordering::Relaxed);
}

/// From now on the first SIGINT or SIGTERM is noted instead of ending the process.
pub fn heed() {
    let action = SigAction::new(SigHandler::Handler(pressed), SaFlags::SA_RESETHAND, SigSet::empty());
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        // SAFETY: the handler stores to an atomic and does nothing else.
        let _ = unsafe { sigaction(signal, &action) };
    }
}

/// Whether to end.
pub fn is_interrupted() -> bool {
    PRESSED.load(Ordering::Relaxed)
}
