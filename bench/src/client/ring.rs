//! The generator's thread: a core, a ring, a reactor.

use corelog_reactor::ring::{RingConfig, RingDriver};
use corelog_reactor::{Reactor, ReactorLimits, available_cores, pin_to_core};

use crate::error::BenchError;

/// Bytes that answers in flight may take.
const POOL_BYTES: usize = 1 << 30;

/// Pins the calling thread to `core`, if given, and makes its reactor.
///
/// # Errors
/// No such core, or no ring.
pub fn reactor(core: Option<usize>) -> Result<Reactor, BenchError> {
    if let Some(core) = core {
        let found = available_cores().into_iter().find(|have| have.0 == core);
        let pinned = found.is_some_and(pin_to_core);
        if !pinned {
            return Err(BenchError::Usage(format!("--core {core}: this process may not run on that core")));
        }
    }
    let driver = RingDriver::new(RingConfig::default()).map_err(|error| BenchError::Setup(error.to_string()))?;
    let limits = ReactorLimits { pool_bytes_max: POOL_BYTES, polls_per_turn_max: 4096, ..ReactorLimits::default() };
    Ok(Reactor::new(Box::new(driver), limits))
}
