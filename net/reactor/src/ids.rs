//! The small numbers this crate hands out, one type each.
//!
//! Holds: shard ids and the handle and token numbers shared with drivers. Never touches: what they stand for.

use std::fmt;

/// One core's share of the broker. Ids are dense, from zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ShardId(pub u16);

impl ShardId {
    /// The id as an index into a table with one entry a shard.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// An open file or socket of one driver: a file descriptor on the ring, a table index in the simulation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Handle(pub i32);

/// Names one operation in flight: slot index in the low half, the slot's generation in the high half.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct OpToken(pub u64);

impl OpToken {
    /// Tokens from here up are the drivers' own and never name an op slot: a slot's generation has 31 bits.
    pub const RESERVED_FROM: u64 = 1 << 63;

    pub(crate) const fn new(index: u32, generation: u32) -> OpToken {
        OpToken(((generation as u64) << 32) | index as u64)
    }

    pub(crate) const fn index(self) -> usize {
        (self.0 & 0xffff_ffff) as usize
    }

    pub(crate) const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// A peer's address for wake-ups, as its driver gave it out. Only drivers of the same kind understand it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WakeTarget(pub i32);
