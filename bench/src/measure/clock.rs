//! The instrument's clock.
//!
//! Holds: CLOCK_MONOTONIC, the same for every process of the machine and the one that the reactor's timers use. The
//! reactor's own `now` is read once a turn; a latency needs the time of the very answer, so this is read for each.

use nix::time::{ClockId, clock_gettime};

/// Nanoseconds of the monotonic clock.
#[inline]
pub fn now_ns() -> u64 {
    match clock_gettime(ClockId::CLOCK_MONOTONIC) {
        Ok(time) => time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64,
        // The clock exists on every Linux; a process that may not read it can't measure anything.
        Err(error) => panic!("CLOCK_MONOTONIC: {error}"),
    }
}

/// Milliseconds since 1970, for record timestamps and reports.
pub fn unix_ms() -> i64 {
    match clock_gettime(ClockId::CLOCK_REALTIME) {
        Ok(time) => time.tv_sec() * 1000 + time.tv_nsec() / 1_000_000,
        Err(error) => panic!("CLOCK_REALTIME: {error}"),
    }
}
