//! One segment of a log: its tail in memory, its indexes, its recovery scan.
//!
//! Holds: the parts that know bytes and positions. Never touches: other segments, producers, files (see [`crate::log`]).

pub mod index;
pub mod offset_index;
#[cfg(test)]
pub(crate) mod sample;
pub mod scan;
pub mod tail;
pub mod time_index;
pub mod txn_index;
pub mod verdict;
