//! What is produced: records, batches, the stamps that let a reader check and time them.
//!
//! Holds: record contents and the bytes of batches. Never touches: sockets, schedules.
//!
//! ```text
//!   spec (sizes, keys, codec, seed) ──► Template: records encoded once
//!                                          │ the first k of them are a batch, for every k
//!                                          ▼
//!                     Piece { shared bytes, CRC, CRC shift } ──► 61-byte header written for each send
//! ```

pub mod spec;
pub mod stamp;
pub mod template;
