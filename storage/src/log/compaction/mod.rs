//! Compaction of one log: of each key the newest record stays.
//!
//! Holds: the round, from the choice of its segments to their exchange. Never touches: what stays of a batch
//! ([`crate::compact`]), the active segment, who decides when.
//!
//! A round reads and writes beside the log, for as long as it takes: appends, reads, deletions go on. Only the exchange
//! of a group of segments (`swap`) holds up what changes the log as a whole. A round that finds the log changed
//! underneath leaves it as it is; the next one begins anew.
//!
//! The last batch of each cleaned segment stays, if only as a header: so a segment still ends where the next one
//! starts, and one that has lost its end is told from one that was compacted. (Kafka keeps the last batch of the
//! round.)

mod old_index;
mod pace;
mod pass;
mod source;
mod swap;
mod target;

pub use pace::Pace;
pub(super) use swap::complete_swaps;

use super::Log;
use super::error::{FenceReason, ReadError};
use super::state::{Phase, Segment, State, Status};
use crate::compact::{Candidate, GroupLimits, HashSecret, LogFacts, RewriteError, SegmentFacts, Wishes};
use crate::ids::{Offset, Timestamp};
use crate::segment::offset_index::OFFSET_ENTRY_BYTES;
use crate::segment::scan::BatchFault;
use crate::segment::time_index::TIME_ENTRY_BYTES;
use std::io;

/// See [`CompactionRules::transactions_max`]: 24 MiB of them.
pub const TRANSACTIONS_MAX_DEFAULT: usize = 1 << 20;

/// What a round goes by. The names of Kafka's properties are in the comments.
#[derive(Clone, Copy, Debug)]
pub struct CompactionRules {
    /// `min.cleanable.dirty.ratio` and the two lags.
    pub wishes: Wishes,
    /// `delete.retention.ms`.
    pub delete_retention_ms: i64,
    /// `segment.bytes` and `segment.index.bytes`.
    pub limits: GroupLimits,
    /// This shard's share of `log.cleaner.dedupe.buffer.size`.
    pub map_bytes_max: usize,
    /// `log.cleaner.io.buffer.load.factor`.
    pub load_factor: f64,
    /// Most bytes that a batch may decompress to.
    pub decompressed_bytes_max: u64,
    /// Most transactions, aborted or undecided, that a round keeps in memory. It ends before the segment in which there
    /// are more.
    pub transactions_max: usize,
    /// Bytes that are worked on before others get their turn.
    pub slice_bytes: usize,
}

impl Default for CompactionRules {
    fn default() -> Self {
        Self {
            wishes: Wishes { dirty_ratio_min: 0.5, lag_ms_min: 0, lag_ms_max: i64::MAX },
            delete_retention_ms: 86_400_000,
            limits: GroupLimits { bytes: 1 << 30, index_bytes: 10 << 20 },
            map_bytes_max: 128 << 20,
            load_factor: 0.9,
            decompressed_bytes_max: crate::batch::validate::DECOMPRESSED_BYTES_MAX_DEFAULT,
            transactions_max: TRANSACTIONS_MAX_DEFAULT,
            slice_bytes: 64 << 10,
        }
    }
}

/// What a round did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Everything below is compacted.
    pub clean_to: Offset,
    /// Segments that were read, and those that took their place.
    pub segments: (usize, usize),
    /// Bytes of them, before and after.
    pub bytes: (u64, u64),
}

/// Why a round came to no end. The log is as it was, or as far compacted as the round had come.
#[derive(Debug, thiserror::Error)]
pub enum CompactionError {
    /// It was changed, closed or fenced meanwhile, or another round is under way.
    #[error("the log is being changed")]
    Interrupted,
    /// No space or no memory: a later round may find some.
    #[error("{what}: {error}")]
    Shortage {
        /// What was being done.
        what: &'static str,
        /// The error.
        error: io::Error,
    },
    /// The disk failed beside the log: the log is sound, but no round will come further.
    #[error("{what} failed: {error}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// The error.
        error: io::Error,
    },
    /// A batch is not what it was. Nothing of it is written anew.
    #[error("segment {segment} is damaged at byte {position}: {fault}")]
    Damaged {
        /// Base offset of the segment.
        segment: Offset,
        /// Where the batch starts.
        position: u64,
        /// What is wrong with it.
        fault: BatchFault,
    },
    /// A batch is sound, and its records can't be read.
    #[error("batch at offset {base_offset}: {error}")]
    Records {
        /// The batch.
        base_offset: Offset,
        /// What is wrong with it.
        error: RewriteError,
    },
    /// A round can't get past this segment: there would be more transactions than it keeps in memory.
    #[error("more than {max} transactions, aborted or undecided, up to segment {segment}")]
    TooManyTransactions {
        /// Base offset of the segment.
        segment: Offset,
        /// How many may be kept.
        max: usize,
    },
    /// The log is out of service: the exchange of segments failed half-way.
    #[error("fenced: {0}")]
    Fenced(FenceReason),
}

impl CompactionError {
    /// Whether there is no point in another round before a restart.
    #[must_use]
    pub const fn is_lasting(&self) -> bool {
        match self {
            Self::Interrupted | Self::Shortage { .. } => false,
            Self::Io { .. }
            | Self::Damaged { .. }
            | Self::Records { .. }
            | Self::TooManyTransactions { .. }
            | Self::Fenced(_) => true,
        }
    }
}

fn failed(what: &'static str) -> impl FnOnce(io::Error) -> CompactionError {
    move |error| {
        if crate::disk::files::is_shortage(&error) {
            CompactionError::Shortage { what, error }
        } else {
            CompactionError::Io { what, error }
        }
    }
}

/// The mark that a round is under way.
struct Compacting<'a>(&'a Log);

impl Drop for Compacting<'_> {
    fn drop(&mut self) {
        self.0.0.compacting.set(false);
    }
}

impl Log {
    /// Everything below this offset is compacted; `None` before the first round.
    #[must_use]
    pub fn clean_to(&self) -> Option<Offset> {
        self.0.state.borrow().checkpoint.clean_to
    }

    /// The round that this log could have now, given what is stable. `None` if there is nothing to compact.
    ///
    /// # Errors
    /// When a segment must be asked for its times, and cannot be read.
    pub async fn compaction_candidate(
        &self,
        rules: &CompactionRules,
        last_stable: Offset,
        now: Timestamp,
    ) -> Result<Option<Candidate>, CompactionError> {
        let interval = u64::from(self.0.config.borrow().index_interval_bytes.max(1));
        let (mut segments, end) = {
            let state = self.0.state.borrow();
            if state.status != Status::Open || state.changing {
                return Err(CompactionError::Interrupted);
            }
            (facts(&state, interval), sealed_end(&state))
        };
        let clean_to = self.clean_to().unwrap_or(Offset::ZERO);
        let (asks_largest, asks_first) = (rules.wishes.lag_ms_min > 0, rules.wishes.lag_ms_max < i64::MAX);
        for at in 0..segments.len() {
            let behind = segments.get(at + 1).map_or(end, |next| next.base);
            if let Some(segment) = segments.get_mut(at)
                && behind > clean_to
                && (asks_largest && segment.largest_timestamp.is_none()
                    || asks_first && segment.first_timestamp.is_none())
            {
                self.ask_for_times(segment, behind).await?;
            }
        }
        let state = self.0.state.borrow();
        let log = LogFacts {
            segments: &segments,
            active_base: end,
            log_start: state.log_start,
            log_end: state.log_end,
            last_stable,
            clean_to: state.checkpoint.clean_to,
        };
        let candidate = Candidate::of(&log, &rules.wishes, now);
        Ok((candidate.dirty_bytes > 0).then_some(candidate))
    }

    /// The times of a segment, which ends at `end`, whose index is not in memory.
    async fn ask_for_times(&self, segment: &mut SegmentFacts, end: Offset) -> Result<(), CompactionError> {
        let asked = async {
            let newest = self.proved_newest(segment.base, segment.bytes, end).await?;
            let cold = self.cold_segment(segment.base, segment.bytes).await?;
            Ok::<_, ReadError>((newest, cold))
        };
        let found = asked.await;
        if self.0.state.borrow().segment(segment.base).is_none() {
            return Err(CompactionError::Interrupted);
        }
        let (newest, cold) =
            found.map_err(|error| failed("read a segment's index")(io::Error::other(error.to_string())))?;
        segment.largest_timestamp = Some(newest);
        let first = source::first_timestamp(self, &cold.file).await.map_err(failed("read a segment"))?;
        segment.first_timestamp = first;
        if let Some(kept) = self.0.state.borrow_mut().segment_mut(segment.base) {
            kept.first_timestamp = first;
            kept.newest = segment.largest_timestamp;
        }
        Ok(())
    }

    /// One round. Others get their turn after every slice; dropping the future leaves files that the next start, or the
    /// next round, removes.
    ///
    /// # Errors
    /// See [`CompactionError`].
    pub async fn compact(
        &self,
        candidate: &Candidate,
        rules: &CompactionRules,
        pace: &Pace,
    ) -> Result<Compacted, CompactionError> {
        if self.0.compacting.replace(true) {
            return Err(CompactionError::Interrupted);
        }
        let _compacting = Compacting(self);
        let reactor = self.0.env.reactor();
        let secret = HashSecret([reactor.random_u64(), reactor.random_u64()]);
        let done = pass::round(self, candidate, rules, pace, secret).await?;
        self.0.env.count(|c| {
            c.compactions += 1;
            c.compaction_bytes_read += done.bytes.0;
            c.compaction_bytes_written += done.bytes.1;
        });
        Ok(done)
    }
}

/// The sealed segments at the log's front, as far as the one behind them has a file: without it, a start would take the
/// last of them for the active one, and hold it against what the commit log has of its old bytes.
fn sealed(state: &State) -> impl Iterator<Item = &Segment> {
    let end = sealed_end(state);
    state.older.iter().take_while(move |segment| segment.base < end)
}

/// Where they end.
fn sealed_end(state: &State) -> Offset {
    let mut end = Offset::NONE;
    for segment in state.segments() {
        if segment.phase == Phase::Sealed || segment.file.is_some() {
            end = segment.base;
        }
        if segment.phase != Phase::Sealed {
            break;
        }
    }
    end
}

fn facts(state: &State, index_interval: u64) -> Vec<SegmentFacts> {
    let facts = |segment: &Segment| {
        let entries = segment.bytes() / index_interval;
        SegmentFacts {
            base: segment.base,
            bytes: segment.bytes(),
            // At most; the files need not be asked.
            index_bytes: entries * OFFSET_ENTRY_BYTES as u64,
            time_index_bytes: (entries + 1) * TIME_ENTRY_BYTES as u64,
            first_timestamp: segment.first_timestamp,
            largest_timestamp: segment.newest.or_else(|| segment.index.as_ref().map(|index| index.newest)),
        }
    };
    sealed(state).map(facts).collect()
}
