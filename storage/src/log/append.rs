//! Appending: checks, place, one copy into the tail.
//!
//! Holds: the synchronous part of produce and replication. Never touches: files; nothing here waits.

use super::common::TailOwner;
use super::error::AppendError;
use super::roll::roll_jitter;
use super::state::{CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, State, Status};
use super::{Inner, Log};
use crate::batch::{
    AppendOrigin, BatchError, BatchHeader, BatchView, Batches, HEADER_BYTES, Records, TimestampType, Validated,
    stamp_place, stamp_time,
};
use crate::compact::fill_gap;
use crate::ids::{LeaderEpoch, Offset, Timestamp};
use crate::producers::{EndMarker, MarkerError, SequenceError, Verdict, Verification};
use crate::segment::scan::BatchFault;
use crate::segment::txn_index::AbortedTxn;
use std::rc::Weak;

/// Tail chunks that the cache has room for at the least.
const CHUNKS_IN_CACHE_MIN: usize = 16;

/// A batch that the leader is about to append, validated.
#[derive(Clone, Copy, Debug)]
pub struct LeaderBatch<'a> {
    /// Exactly one batch; its base offset and leader epoch do not matter yet.
    pub bytes: &'a [u8],
    /// Who writes it.
    pub origin: AppendOrigin,
    /// The timestamp type to stamp.
    pub timestamp_type: TimestampType,
    /// The max timestamp to stamp.
    pub max_timestamp: Timestamp,
    /// Whether the transaction coordinator has confirmed a transactional batch (KIP-890).
    pub verification: Verification,
}

impl<'a> LeaderBatch<'a> {
    /// A client's batch with what its validation found out.
    #[must_use]
    pub const fn validated(bytes: &'a [u8], validated: &Validated) -> Self {
        Self {
            bytes,
            origin: AppendOrigin::Client,
            timestamp_type: validated.timestamp_type,
            max_timestamp: validated.max_timestamp,
            verification: Verification::Verified,
        }
    }

    /// A batch made in this broker, whose header says what is true.
    ///
    /// # Errors
    /// When the bytes do not start with a whole batch.
    pub fn as_it_is(bytes: &'a [u8], origin: AppendOrigin) -> Result<Self, BatchError> {
        let header = BatchView::first(bytes)?.header;
        Ok(Self {
            bytes,
            origin,
            timestamp_type: header.attributes.timestamp_type(),
            max_timestamp: header.max_timestamp,
            verification: Verification::Verified,
        })
    }
}

/// Where a batch went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Offset of its first record.
    pub base_offset: Offset,
    /// Offset of its last record. It is acknowledged once `durable_end` lies behind this.
    pub last_offset: Offset,
    /// The append time for the response; -1 unless the topic has LogAppendTime.
    pub log_append_time: Timestamp,
}

impl Log {
    /// Appends one batch as the leader of `epoch`. In memory when it returns; durable once a [`commit`](Self::commit) has
    /// moved `durable_end` behind it.
    ///
    /// # Errors
    /// See [`AppendError`]; nothing of the batch is then in the log.
    pub fn append_as_leader(
        &self,
        batch: LeaderBatch<'_>,
        epoch: LeaderEpoch,
        now: Timestamp,
    ) -> Result<Appended, AppendError> {
        let view = BatchView::first(batch.bytes)?;
        if view.bytes.len() != batch.bytes.len() {
            return Err(AppendError::Trailing { bytes: batch.bytes.len() - view.bytes.len() });
        }
        let delta = view.header.last_offset_delta;
        let Some((head, records)) = view.bytes.split_first_chunk::<HEADER_BYTES>().filter(|_| delta >= 0) else {
            return Err(AppendError::Delta { delta });
        };
        let marker = marker_of(&view, batch.origin)?;
        let max = u64::from(self.0.config.borrow().message_bytes_max);
        if batch.origin == AppendOrigin::Client && view.bytes.len() as u64 > max {
            let bytes = view.bytes.len();
            return Err(AppendError::TooLarge { bytes, max });
        }
        let base_offset = {
            let mut state = self.0.state.borrow_mut();
            self.check_open(&state, view.bytes.len())?;
            let ours = state.epoch();
            if ours != epoch || epoch.0 < 0 {
                return Err(AppendError::StaleEpoch { ours, theirs: epoch });
            }
            check_producer(&mut state, &view.header, &batch, marker, now)?;
            state.log_end
        };
        let mut head = *head;
        let mut header = view.header;
        stamp_time(&mut head, &mut header, batch.timestamp_type, batch.max_timestamp);
        stamp_place(&mut head, base_offset, epoch);
        header.base_offset = base_offset;
        header.leader_epoch = epoch;
        let last_offset = self.place(&header, &head, records, marker, now)?;
        Ok(Appended {
            base_offset,
            last_offset,
            log_append_time: match batch.timestamp_type {
                TimestampType::CreateTime => Timestamp::NONE,
                TimestampType::LogAppendTime => batch.max_timestamp,
            },
        })
    }

    /// Appends batches that a leader has stamped, as they are. Their offsets must continue the log, their epochs must not
    /// go back. CRCs are the caller's to check.
    ///
    /// # Errors
    /// See [`AppendError`]. The batches before the one that failed are in the log; `log_end` tells which.
    pub fn append_as_follower(&self, batches: &[u8], now: Timestamp) -> Result<Option<Appended>, AppendError> {
        self.follow(batches, now, false)
    }

    /// The same of a leader whose log is compacted. Where its batches don't join, batches without records take the place
    /// of what is missing: so this log has no gaps, and what recovery expects of it is as strict as ever.
    ///
    /// # Errors
    /// As above; also when more is missing than the compaction of a sound log leaves out.
    pub fn append_as_follower_of_compacted(
        &self,
        batches: &[u8],
        now: Timestamp,
    ) -> Result<Option<Appended>, AppendError> {
        self.follow(batches, now, true)
    }

    fn follow(&self, batches: &[u8], now: Timestamp, fills_gaps: bool) -> Result<Option<Appended>, AppendError> {
        let mut appended: Option<Appended> = None;
        for view in Batches::new(batches) {
            let view = view?;
            let header = view.header;
            let Some((head, records)) =
                view.bytes.split_first_chunk::<HEADER_BYTES>().filter(|_| header.last_offset_delta >= 0)
            else {
                return Err(AppendError::Delta { delta: header.last_offset_delta });
            };
            if fills_gaps {
                self.fill_gap_before(&header, now)?;
            }
            {
                let state = self.0.state.borrow();
                self.check_open(&state, view.bytes.len())?;
                if header.base_offset != state.log_end {
                    return Err(AppendError::NotNext(BatchFault::Offset {
                        found: header.base_offset,
                        expected: state.log_end,
                    }));
                }
                let before = state.epoch_of_end();
                if header.leader_epoch < before || header.leader_epoch.0 < 0 {
                    return Err(AppendError::NotNext(BatchFault::Epoch { found: header.leader_epoch, before }));
                }
            }
            let marker = marker_of(&view, AppendOrigin::Replication)?;
            let last_offset = self.place(&header, head, records, marker, now)?;
            appended = Some(Appended {
                base_offset: appended.map_or(header.base_offset, |a| a.base_offset),
                last_offset,
                log_append_time: Timestamp::NONE,
            });
        }
        Ok(appended)
    }

    /// Puts batches without records in front of a leader's batch that does not join, if it lies further on.
    fn fill_gap_before(&self, header: &BatchHeader, now: Timestamp) -> Result<(), AppendError> {
        let (end, before) = {
            let state = self.0.state.borrow();
            (state.log_end, state.epoch_of_end())
        };
        if header.base_offset <= end || header.leader_epoch < before || header.leader_epoch.0 < 0 {
            return Ok(());
        }
        let ends_nowhere = header.base_offset.0.checked_add(i64::from(header.last_offset_delta)).is_none();
        let not_next = AppendError::NotNext(BatchFault::Offset { found: header.base_offset, expected: end });
        if ends_nowhere {
            return Err(not_next);
        }
        let epoch = if before.0 < 0 { header.leader_epoch } else { before };
        // Memory for it: replication of compacted logs alone comes here, once for each gap.
        let mut empty = Vec::new();
        fill_gap(end, header.base_offset, epoch, &mut empty).map_err(|_| not_next)?;
        self.follow(&empty, now, false)?;
        Ok(())
    }

    fn check_open(&self, state: &State, bytes: usize) -> Result<(), AppendError> {
        match &state.status {
            Status::Open => {}
            Status::NoSpace => return Err(AppendError::NoSpace),
            Status::Fenced(reason) => return Err(AppendError::Fenced(reason.clone())),
            Status::Closed => return Err(AppendError::Closed),
        }
        if state.changing {
            return Err(AppendError::Closed);
        }
        let max = u64::from(self.0.config.borrow().segment_bytes_max);
        if bytes as u64 > max {
            return Err(AppendError::TooLarge { bytes, max });
        }
        let pending = state.pending_bytes;
        let fits = pending + bytes as u64 <= self.0.env.options().pending_bytes_max;
        if !fits && pending > 0 {
            return Err(AppendError::Full { pending });
        }
        Ok(())
    }

    /// Puts a stamped batch at the log's end: rolls if it must, finds the memory, copies. The rest cannot fail.
    fn place(
        &self,
        header: &BatchHeader,
        head: &[u8; HEADER_BYTES],
        records: &[u8],
        marker: Option<EndMarker>,
        now: Timestamp,
    ) -> Result<Offset, AppendError> {
        let inner = &*self.0;
        let last_offset = header.base_offset + i64::from(header.last_offset_delta);
        let bytes = HEADER_BYTES + records.len();
        let _appending = Appending::begin(inner);
        let (must_roll, room) = {
            let state = inner.state.borrow();
            let config = inner.config.borrow();
            let must_roll = state.must_roll(bytes, header, last_offset, now, &config);
            (must_roll, if must_roll { 0 } else { state.active.tail.room() })
        };
        let chunks = self.take_chunks((bytes as u64).saturating_sub(room))?;

        let mut state = inner.state.borrow_mut();
        if must_roll {
            let jitter_ms = roll_jitter(inner.env.reactor(), &inner.config.borrow());
            let to_spare = state.roll(now, jitter_ms);
            inner.env.count(|c| {
                c.rolls_to_spare += u64::from(to_spare);
                c.rolls_to_empty += u64::from(!to_spare);
            });
        }
        for chunk in chunks {
            state.active.tail.add_chunk(chunk);
        }
        let config = inner.config.borrow();
        let turn = inner.env.reactor().now();
        // Negative epochs were refused before.
        let assigned = state.epochs.assign(header.leader_epoch, header.base_offset);
        let is_first_of_epoch = std::mem::take(&mut state.is_epoch_unused);
        state.are_epochs_written &= !(assigned.unwrap_or(false) || is_first_of_epoch);
        state.push(header, last_offset, head, records, &config, turn);
        record_producer(&mut state, header, marker);
        let options = inner.env.options();
        state.capture_if_due(options.recovery_point_bytes_max);
        if let Some(spare_bytes) = state.spare_due(&config, options.spare_bytes_max) {
            state.ticket = inner.env.spares().ask(spare_bytes);
        }
        state.assert_invariants();
        drop(state);
        inner.env.count(|c| {
            c.batches += 1;
            c.bytes += bytes as u64;
        });
        if must_roll {
            self.keep();
        }
        Ok(last_offset)
    }

    fn take_chunks(&self, need: u64) -> Result<smallvec::SmallVec<[corelog_reactor::AlignedBuf; 2]>, AppendError> {
        let inner = &*self.0;
        // A small cache is made of small chunks, or it would hold none but those in use.
        let share = inner.env.options().tail_cache_bytes_max / CHUNKS_IN_CACHE_MIN;
        let bytes_max = (share.max(CHUNK_BYTES_MIN) + 1).next_power_of_two() / 2;
        let bytes_max = bytes_max.min(CHUNK_BYTES_MAX);
        let mut chunks = smallvec::SmallVec::new();
        let mut have = 0;
        while have < need {
            let bytes = {
                let now = inner.env.reactor().now();
                let mut state = inner.state.borrow_mut();
                state.next_chunk_bytes(need - have, bytes_max, now)
            };
            let me: Weak<dyn TailOwner> = inner.me.clone();
            match inner.env.take_chunk(bytes, me) {
                Ok(chunk) => {
                    have += chunk.len() as u64;
                    chunks.push(chunk);
                }
                Err(_) => {
                    inner.env.give_chunk_bytes(have as usize);
                    let pending = inner.state.borrow().pending_bytes;
                    return Err(AppendError::Full { pending });
                }
            }
        }
        Ok(chunks)
    }
}

/// While it lives, the active chunk is not replaced by a smaller one.
struct Appending<'a>(&'a Inner);

impl<'a> Appending<'a> {
    fn begin(inner: &'a Inner) -> Self {
        inner.appending.set(true);
        Self(inner)
    }
}

impl Drop for Appending<'_> {
    fn drop(&mut self) {
        self.0.appending.set(false);
    }
}

/// The transaction marker in a control batch. Clients may not write any (validation refuses them); other control batches
/// have no meaning here.
pub(super) fn marker_of(view: &BatchView<'_>, origin: AppendOrigin) -> Result<Option<EndMarker>, MarkerError> {
    if !view.header.attributes.is_control() || origin == AppendOrigin::Client {
        return Ok(None);
    }
    let first = Records::new(&view.header, view.payload()).next();
    match first {
        Some(Ok(record)) => match EndMarker::parse(&record) {
            Ok(marker) => Ok(Some(marker)),
            Err(MarkerError::NotAnEnd { .. }) => Ok(None),
            Err(error) => Err(error),
        },
        // Emptied by compaction.
        Some(Err(_)) | None => Ok(None),
    }
}

fn check_producer(
    state: &mut State,
    header: &BatchHeader,
    batch: &LeaderBatch<'_>,
    marker: Option<EndMarker>,
    now: Timestamp,
) -> Result<(), AppendError> {
    let (origin, verification) = (batch.origin, batch.verification);
    if let Some(marker) = marker {
        return Ok(state.producers.check_marker(header, marker, 0)?);
    }
    let verdict = match state.producers.check(header, origin, verification) {
        Err(SequenceError::TooManyProducers { .. }) if state.producers.expire(now) > 0 => {
            state.producers.check(header, origin, verification)
        }
        first => first,
    };
    match verdict? {
        Verdict::Append => Ok(()),
        Verdict::Duplicate { base_offset, last_offset, timestamp } => {
            Err(AppendError::Duplicate { base_offset, last_offset, timestamp })
        }
    }
}

/// Takes note of a batch that was appended.
fn record_producer(state: &mut State, header: &BatchHeader, marker: Option<EndMarker>) {
    if let Some(aborted) = record_in(&mut state.producers, header, marker) {
        state.note_aborted(aborted);
    }
}

/// What appending, and recovery, tell the producers' state about a batch. The transaction that it has aborted, if it did: it
/// belongs into the index of its segment.
pub(super) fn record_in(
    producers: &mut crate::producers::ProducerState,
    header: &BatchHeader,
    marker: Option<EndMarker>,
) -> Option<AbortedTxn> {
    match marker {
        Some(marker) => producers.record_marker(header, marker, header.max_timestamp).and_then(AbortedTxn::of),
        None if header.attributes.is_control() => {
            producers.advance(header.last_offset().unwrap_or(header.base_offset).next());
            None
        }
        None => {
            producers.record(header);
            None
        }
    }
}
