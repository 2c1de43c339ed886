//! The commit log of one shard in one data folder: one durable write for the small commits of many logs.
//!
//! Holds: the files, the write that gathers, the writes in flight, the choice between the two ways of a commit, and
//! what the last runs left. Never touches: segments; what a log does with its bytes (they follow later, see
//! `log::write_back`).
//!
//! ```text
//!   logs of a shard      a   b   c                      one turn's small commits
//!                         \  |  /
//!   staging               [a][b][c]                     copied; at most 1 MiB
//!                            │  one direct durable write
//!   .commit/0-1     |h|......[a][b][c]|      |          32 MiB, written with zeroes before
//!                            ┆  later, in the background
//!   segments        a: |....aaaa|   b: |...bbb|         one large write for each
//! ```
//!
//! What is in the commit log is durable. As long as it is there alone it stays in memory as well: so there is a bound for
//! the batches in a file beside that for its bytes (`writer::Parts`). A file of it is used again once everything in it is in the segments, durably;
//! one whose logs can't be written stays as it is. If no file is free, commits go to the segments directly, as they do
//! without a commit log.
//!
//! After a failed write nobody knows what that file holds. The commit log is then switched off until a restart: what
//! was in the failed write goes to the segments with the same bytes, and what is durable here follows as it always
//! does.
//!
//! Read on: `format` (the bytes), `writer` (the way of a commit), `files` and `upkeep` (the rotation), `choice`,
//! `replay` (with `read_file` and `judge`).

mod choice;
#[cfg(test)]
mod damage_tests;
mod files;
pub mod format;
mod judge;
mod read_file;
pub mod replay;
#[cfg(test)]
mod tests;
mod upkeep;
#[cfg(test)]
mod upkeep_tests;
mod writer;

pub(crate) use choice::Choice;
pub(crate) use files::{FileId, Holder};
pub(crate) use writer::{CommitLog, Parts, Piece, Ticket};

/// The folder of the commit logs, within the data folder.
pub const COMMIT_LOG_FOLDER: &str = ".commit";

/// Counts for the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommitLogCounters {
    /// Commits that were put in.
    pub commits: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes of them, whole blocks.
    pub bytes: u64,
    /// Files made.
    pub files: u64,
    /// Files taken into use again.
    pub recycles: u64,
    /// Commits that found no place: no free file, or the write that gathers was full.
    pub no_place: u64,
}
