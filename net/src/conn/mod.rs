//! Connections: frames in, replies out, in request order.
//!
//! Holds: [`frame`] (bytes to frames), [`memory`] (what frames may hold), [`outbox`] (replies in order),
//! [`file_range`] (bytes of a file in a reply), [`connection`] (all on one stream). Never touches: what a frame says, partitions, the clock.

pub mod connection;
pub mod file_range;
pub mod frame;
pub mod memory;
pub mod outbox;

pub use connection::{Connection, Progress, ReceiveBuffer, ReceiveError, Receiver, Sent};
pub use file_range::FileRange;
pub use frame::{FrameAssembler, FrameError, SmallFrames};
pub use memory::FrameMemory;
pub use outbox::{Item, Outbox, Reply, ReplySlot, StableBytes};
