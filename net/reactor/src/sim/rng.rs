//! Chance in the simulation: a seeded generator (splitmix64).
//!
//! Holds: one number. Never touches: any other source of randomness.

use std::time::Duration;

#[derive(Clone, Debug)]
pub(super) struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit` (zero for a limit of zero).
    pub fn below(&mut self, limit: u64) -> u64 {
        if limit == 0 { 0 } else { self.next() % limit }
    }

    pub fn coin(&mut self) -> bool {
        self.next() & 1 == 1
    }

    /// True in `per_mille` of a thousand cases.
    pub fn chance(&mut self, per_mille: u32) -> bool {
        self.below(1000) < u64::from(per_mille)
    }

    /// Nanoseconds between two bounds, the upper included.
    pub fn nanos(&mut self, between: (Duration, Duration)) -> u64 {
        let (low, high) = (between.0.as_nanos() as u64, between.1.as_nanos() as u64);
        low + self.below(high.saturating_sub(low) + 1)
    }

    pub fn fill(&mut self, into: &mut [u8]) {
        for chunk in into.chunks_mut(8) {
            let bytes = self.next().to_le_bytes();
            chunk.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        }
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            let j = self.below(i as u64 + 1) as usize;
            items.swap(i, j);
        }
    }
}
