//! Connections: frames in, replies out, in request order.
//!
//! Holds: [`frame`] (bytes to frames), [`memory`] (what frames may hold), [`outbox`] (replies in order), [`connection`] (both on one stream). Never touches:
//! what a frame says, partitions, the clock.

pub mod connection;
pub mod frame;
pub mod memory;
pub mod outbox;

pub use connection::{Connection, Progress, ReceiveBuffer, ReceiveError, Receiver, Sent};
pub use frame::{FrameAssembler, FrameError, SmallFrames};
pub use memory::FrameMemory;
pub use outbox::{Item, Outbox, Reply, ReplySlot, StableBytes};
