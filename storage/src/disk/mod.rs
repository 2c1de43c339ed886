//! Files as a log needs them: aligned, durable, and gone without a stall.
//!
//! Holds: typed wrappers over the reactor's files (there is no second disk trait: the simulated disk lives under the
//! reactor's driver, decision 0003), the small file formats of a data folder, its lock, the probe, pre-written spares, the reserve.
//! Never touches: batches, offsets, sockets.

pub mod checkpoint;
pub mod datadir;
pub mod files;
pub mod meta;
pub(crate) mod presence;
pub mod probe;
pub mod remove;
pub mod reserve;
pub mod spare;
pub mod speed;

/// What O_DIRECT writes are aligned to, and what the tail is rewritten in. Devices with larger blocks are refused by the
/// probe.
pub const BLOCK_BYTES: u64 = 4096;

/// Most bytes of one commit write. At most one is in flight per log, so a crash tears at most this much.
pub const COMMIT_BYTES_MAX: u64 = 4 << 20;

const _: () = assert!(COMMIT_BYTES_MAX.is_multiple_of(BLOCK_BYTES));
const _: () = assert!(corelog_reactor::BUFFER_ALIGN as u64 == BLOCK_BYTES);

/// The start of the block that `position` lies in.
#[inline]
#[must_use]
pub const fn align_down(position: u64) -> u64 {
    position / BLOCK_BYTES * BLOCK_BYTES
}

/// The end of the block that the byte before `position` lies in.
#[inline]
#[must_use]
pub const fn align_up(position: u64) -> u64 {
    position.next_multiple_of(BLOCK_BYTES)
}
