//! Ctrl-C: what runs ends where it is, in order, and its figures are kept. The second one ends the process at once.
//!
//! Holds: whether it was pressed, and a wait that it ends. Never touches: runs; they look.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use corelog_reactor::Reactor;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// How often it is looked for in a wait.
const LOOK: Duration = Duration::from_millis(100);

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

/// Why a wait ended without what it was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// Ctrl-C was pressed meanwhile. Pressed before, it does not end a wait: what is done then is tidying up.
    Interrupted,
    /// It took too long.
    TooLong,
}

/// Waits for `work`, at most for `patience`, and not beyond a Ctrl-C.
///
/// # Errors
/// One of these was the case.
pub async fn within<T>(reactor: &Reactor, patience: Duration, work: impl Future<Output = T>) -> Result<T, Broken> {
    let tidying_up = is_interrupted();
    let give_up = reactor.now() + patience;
    let mut work = pin!(work);
    loop {
        let now = reactor.now();
        if let Some(done) = reactor.until((now + LOOK).min(give_up), work.as_mut()).await {
            return Ok(done);
        }
        if !tidying_up && is_interrupted() {
            return Err(Broken::Interrupted);
        }
        if reactor.now() >= give_up {
            return Err(Broken::TooLong);
        }
    }
}
