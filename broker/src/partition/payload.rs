//! Record bytes on their way to a client: a slice of a partition's tail, or what was read from the disk.
//!
//! Holds: the one type that replies carry. Never touches: what the bytes say.

use corelog_net::conn::StableBytes;
use corelog_storage::log::ColdRead;
use corelog_storage::segment::tail::TailSlice;

/// Whole batches, or a part of them, in memory that is sent as it lies.
#[derive(Debug)]
pub enum Payload {
    /// In the tail; kept alive by this slice.
    Tail(TailSlice),
    /// In a buffer of its own.
    Cold(ColdRead),
}

impl AsRef<[u8]> for Payload {
    fn as_ref(&self) -> &[u8] {
        match self {
            Payload::Tail(slice) => slice,
            Payload::Cold(read) => read,
        }
    }
}

// SAFETY: both kinds own or share pool memory that does not move with them, and bytes that were appended or read never
// change while they live.
unsafe impl StableBytes for Payload {}
