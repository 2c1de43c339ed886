//! Log compaction, as bytes in and bytes out: of each key the newest record stays.
//!
//! Holds: the key map, what stays of a batch, which logs are worth it. Never touches: files, the clock, the log's
//! state; the log reads, writes and swaps the segments (`log/compaction`).
//!
//! ```text
//!   log start            first dirty              end of the round     first uncleanable
//!   |  compacted before  |  not yet                 |                   |     active segment
//!   [........][..........][..........][..........][.......][..........][.......|
//!                        '--- pass 1: keys and their newest offsets ---'
//!   '--------------------- pass 2: filter, segment by segment --------'
//! ```
//!
//! Pass 1 ([`KeyScan`]) fills a [`KeyMap`] of bounded memory from the part that no round has covered; the round ends
//! where it is full. Pass 2 ([`BatchVerdict`], [`Filter`], [`SurvivorRewrite`]) goes over everything up to there. All
//! of it goes on in slices, so that a large batch holds no core.
//!
//! Semantics are Kafka's (KIP-58, KIP-354, KIP-534), and so are the bytes: an uncompressed batch comes out as Kafka
//! writes it.

mod filter;
mod gap;
mod hash;
mod key_map;
mod keys;
mod policy;
mod records;
mod rewrite;
mod transactions;

pub use filter::{BatchVerdict, Filter, LastWrites, Remains, Round, Survivors};
pub use gap::{GapError, fill_gap};
pub use hash::HashSecret;
pub use key_map::{BYTES_PER_KEY, KeyMap, Put};
pub use keys::KeyScan;
pub use policy::{Candidate, GroupLimits, LogFacts, SegmentFacts, Wishes, groups};
pub use rewrite::{RewriteError, SurvivorRewrite, write_header};
pub use transactions::{AbortedTransaction, Control, Transactions};
