//! Holds: the tests' own random numbers: a seed gives the same sequence everywhere, and is printed when a test fails.
//! Never touches: the clock, except to choose a seed when none was given.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A SplitMix64 generator: small, seedable, and good enough to choose moments and sectors.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// A generator whose whole sequence follows from `seed`.
    pub fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number in `0..bound`.
    ///
    /// # Panics
    /// If `bound` is 0: there is no such number.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "a random number below 0 was asked for");
        // The bias of the plain remainder is below 2^-32 for the bounds that the tests use.
        self.next_u64() % bound
    }

    /// True in `per_mille` of 1,000 cases.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }

    /// A duration in `from..=to`.
    pub fn duration(&mut self, from: Duration, to: Duration) -> Duration {
        assert!(from <= to, "the shortest duration {from:?} is past the longest {to:?}");
        let span = (to - from).as_nanos() as u64;
        from + Duration::from_nanos(self.below(span + 1))
    }

    /// `len` random bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend_from_slice(&self.next_u64().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }
}

/// The seed of a test run: from `CORELOG_TEST_SEED` if it is set, else from the clock. Printed, so that a failure can be repeated.
pub fn test_seed(test: &str) -> u64 {
    let seed = match std::env::var("CORELOG_TEST_SEED") {
        Ok(text) => text.parse().expect("CORELOG_TEST_SEED must be a whole number"),
        Err(_) => SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_nanos() as u64),
    };
    println!("{test}: seed {seed} (set CORELOG_TEST_SEED={seed} to repeat)");
    seed
}
