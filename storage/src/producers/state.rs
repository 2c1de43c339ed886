//! The producers of one partition.
//!
//! Holds: the map from id to entry, the open and the not yet stable transactions, the offset up to which all of it is true.
//! Never touches: files, the clock, the log.

use super::snapshot::{SnapshotError, decode_snapshot, encode_snapshot};
use super::{BatchMemory, CompletedTransaction, EndMarker, MarkerError, OpenTransaction, ProducerEntry};
use crate::batch::{AppendOrigin, BatchHeader};
use crate::ids::{Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};
use std::collections::BTreeMap;

/// Bounds and times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerStateLimits {
    /// Producers that clients may bring up, 256 bytes each or less.
    pub producers_max: usize,
    /// `producer.id.expiration.ms`.
    pub idle_ms_max: i64,
}

impl Default for ProducerStateLimits {
    /// A hundred thousand producers, and Kafka's day.
    fn default() -> Self {
        Self { producers_max: 100_000, idle_ms_max: 86_400_000 }
    }
}

const _: () = assert!(size_of::<ProducerEntry>() <= 256);

/// What to do with a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Append it.
    Append,
    /// It is there already: answer as the first time, once the original is durable.
    Duplicate {
        /// Offset of its first record.
        base_offset: Offset,
        /// Offset of its last record.
        last_offset: Offset,
        /// The original's max timestamp, which Kafka answers as its append time, with CreateTime too.
        timestamp: Timestamp,
    },
}

/// Whether the transaction coordinator has confirmed that the partition is part of the producer's transaction (KIP-890). Counts
/// only for a transactional batch that does not continue a transaction which is open here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verification {
    /// It has, or need not (`transaction.partition.verification.enable` is off).
    Verified,
    /// It has not.
    Missing,
}

/// Why a batch must not be appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SequenceError {
    /// `INVALID_PRODUCER_EPOCH`: a newer incarnation has written.
    #[error("producer {producer_id} has epoch {ours}, the batch {theirs}")]
    InvalidProducerEpoch {
        /// Whose.
        producer_id: ProducerId,
        /// The known one.
        ours: ProducerEpoch,
        /// The batch's.
        theirs: ProducerEpoch,
    },
    /// `OUT_OF_ORDER_SEQUENCE_NUMBER`: a batch before this one is missing.
    #[error("producer {producer_id}, epoch {epoch}, sends sequence {first} after {last}")]
    OutOfOrder {
        /// Whose.
        producer_id: ProducerId,
        /// The batch's epoch.
        epoch: ProducerEpoch,
        /// The batch's first sequence.
        first: Sequence,
        /// The last known one; -1 at the start of an epoch.
        last: Sequence,
    },
    /// `INVALID_TXN_STATE`: the producer's transaction is open and the batch is not part of it.
    #[error("producer {producer_id} writes outside of its transaction, open since offset {since}")]
    ExpectedTransaction {
        /// Whose.
        producer_id: ProducerId,
        /// Its first record.
        since: Offset,
    },
    /// `INVALID_TXN_STATE`: the batch is transactional, and the coordinator has not said that the partition is part of a
    /// transaction of this producer (KIP-890).
    #[error("the batch is not part of an ongoing transaction of producer {producer_id}")]
    NotInTransaction {
        /// Whose.
        producer_id: ProducerId,
    },
    /// No room for another producer. Kafka has no such bound; answer with a retriable error.
    #[error("{producers} producers are known, which is the most")]
    TooManyProducers {
        /// How many there are.
        producers: usize,
    },
}

/// All that a partition knows of its producers.
#[derive(Clone, Debug)]
pub struct ProducerState {
    limits: ProducerStateLimits,
    /// By id, so that everything derived from it comes in one order, in every run.
    producers: BTreeMap<ProducerId, ProducerEntry>,
    /// Transactions without a marker, by first offset.
    open: BTreeMap<Offset, ProducerId>,
    /// Transactions with a marker that is not below the high watermark yet: first offset to marker.
    unreplicated: BTreeMap<Offset, Offset>,
    /// Everything below is accounted for.
    end: Offset,
}

impl ProducerState {
    /// Knows nothing, at offset `start`.
    #[must_use]
    pub fn new(limits: ProducerStateLimits, start: Offset) -> Self {
        Self { limits, producers: BTreeMap::new(), open: BTreeMap::new(), unreplicated: BTreeMap::new(), end: start }
    }

    /// The verdict on a batch that is about to be appended; changes nothing. See the table of [the module](super).
    ///
    /// # Errors
    /// When the batch must not be appended.
    pub fn check(
        &self,
        header: &BatchHeader,
        origin: AppendOrigin,
        verification: Verification,
    ) -> Result<Verdict, SequenceError> {
        if !header.has_producer_id() || origin == AppendOrigin::Replication {
            return Ok(Verdict::Append);
        }
        let producer_id = header.producer_id;
        let is_unverified = header.attributes.is_transactional()
            && !header.attributes.is_control()
            && verification == Verification::Missing;
        let Some(known) = self.producers.get(&producer_id) else {
            if is_unverified {
                return Err(SequenceError::NotInTransaction { producer_id });
            }
            let producers = self.producers.len();
            if producers >= self.limits.producers_max && origin == AppendOrigin::Client {
                return Err(SequenceError::TooManyProducers { producers });
            }
            return Ok(Verdict::Append);
        };
        let (first, last) = (header.base_sequence, header.last_sequence());
        if origin == AppendOrigin::Client
            && header.producer_epoch == known.epoch
            && let Some(original) = known.duplicate(first, last)
        {
            return Ok(Verdict::Duplicate {
                base_offset: original.first_offset(),
                last_offset: original.last_offset,
                timestamp: original.timestamp,
            });
        }
        if header.producer_epoch < known.epoch {
            let (ours, theirs) = (known.epoch, header.producer_epoch);
            return Err(SequenceError::InvalidProducerEpoch { producer_id, ours, theirs });
        }
        if header.attributes.is_control() {
            return Ok(Verdict::Append);
        }
        let is_ongoing = known.transaction_start.is_some() && known.epoch == header.producer_epoch;
        if is_unverified && !is_ongoing {
            return Err(SequenceError::NotInTransaction { producer_id });
        }
        if origin == AppendOrigin::Client && !follows(known, header) {
            let (epoch, last) = (header.producer_epoch, known.last_sequence());
            return Err(SequenceError::OutOfOrder { producer_id, epoch, first, last });
        }
        match known.transaction_start {
            Some(since) if !header.attributes.is_transactional() => {
                Err(SequenceError::ExpectedTransaction { producer_id, since })
            }
            Some(_) | None => Ok(Verdict::Append),
        }
    }

    /// Takes note of an appended data batch: `header` with its assigned base offset. Control batches go to
    /// [`record_marker`](Self::record_marker). Moves [`end`](Self::end) past the batch.
    pub fn record(&mut self, header: &BatchHeader) {
        let last_offset = header.last_offset().unwrap_or(header.base_offset);
        if header.has_producer_id() && !header.attributes.is_control() {
            let producer_id = header.producer_id;
            let entry = self.producers.entry(producer_id).or_insert_with(|| ProducerEntry::new(producer_id));
            entry.move_to_epoch(header.producer_epoch);
            entry.remember(BatchMemory {
                last_sequence: header.last_sequence(),
                last_offset,
                offset_delta: header.last_offset_delta,
                timestamp: header.max_timestamp,
            });
            if header.attributes.is_transactional() && entry.transaction_start.is_none() {
                entry.transaction_start = Some(header.base_offset);
                self.open.insert(header.base_offset, producer_id);
            }
        }
        self.end = self.end.max(last_offset.next());
    }

    /// Whether a coordinator's marker may be written. With version 2 of transactions (KIP-890) the marker's epoch must be
    /// higher than the producer's, except for the repetition of a marker that ended it already.
    ///
    /// # Errors
    /// When it may not.
    pub fn check_marker(
        &self,
        header: &BatchHeader,
        marker: EndMarker,
        transaction_version: i16,
    ) -> Result<(), MarkerError> {
        let producer_id = header.producer_id;
        let Some(known) = self.producers.get(&producer_id) else {
            return Ok(());
        };
        let (ours, theirs) = (known.epoch, header.producer_epoch);
        let is_repetition = theirs == ours && known.transaction_start.is_none();
        let is_stale = theirs < ours || (transaction_version >= 2 && theirs == ours && !is_repetition);
        if is_stale {
            return Err(MarkerError::InvalidProducerEpoch { producer_id, ours, theirs });
        }
        if known.coordinator_epoch > marker.coordinator_epoch {
            let (ours, theirs) = (known.coordinator_epoch, marker.coordinator_epoch);
            return Err(MarkerError::CoordinatorFenced { producer_id, ours, theirs });
        }
        Ok(())
    }

    /// Takes note of an appended end marker, in a control batch with its assigned base offset. Returns the transaction that it
    /// ends, if the producer had one open here.
    pub fn record_marker(
        &mut self,
        header: &BatchHeader,
        marker: EndMarker,
        timestamp: Timestamp,
    ) -> Option<CompletedTransaction> {
        let producer_id = header.producer_id;
        let last_offset = header.base_offset;
        self.end = self.end.max(header.last_offset().unwrap_or(last_offset).next());
        let entry = self.producers.entry(producer_id).or_insert_with(|| ProducerEntry::new(producer_id));
        entry.move_to_epoch(header.producer_epoch);
        entry.coordinator_epoch = marker.coordinator_epoch;
        entry.last_timestamp = timestamp;
        let first_offset = entry.transaction_start.take()?;
        self.open.remove(&first_offset);
        self.unreplicated.insert(first_offset, last_offset);
        Some(CompletedTransaction {
            producer_id,
            first_offset,
            last_offset,
            is_aborted: marker.is_abort,
            last_stable_offset: self.first_undecided().unwrap_or(last_offset.next()),
        })
    }

    /// Takes note of batches without a producer, and of control batches that compaction has emptied: moves `end` only.
    pub fn advance(&mut self, end: Offset) {
        self.end = self.end.max(end);
    }

    /// Everything below this offset is accounted for.
    #[must_use]
    pub const fn end(&self) -> Offset {
        self.end
    }

    /// The first offset of the oldest transaction without a marker.
    #[must_use]
    pub fn first_undecided(&self) -> Option<Offset> {
        self.open.first_key_value().map(|(&offset, _)| offset)
    }

    /// The first offset that a read-committed consumer must not see yet: of a transaction without a marker, or whose marker is not
    /// below the high watermark. The last stable offset is this, or the high watermark if there is none.
    #[must_use]
    pub fn first_unstable(&self) -> Option<Offset> {
        let unreplicated = self.unreplicated.first_key_value().map(|(&offset, _)| offset);
        match (self.first_undecided(), unreplicated) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// The oldest open transaction with the time of its producer's last write, to find those that hang (KIP-664).
    #[must_use]
    pub fn oldest_open_transaction(&self) -> Option<(OpenTransaction, Timestamp)> {
        let (&first_offset, &producer_id) = self.open.first_key_value()?;
        let last = self.producers.get(&producer_id).map_or(Timestamp::NONE, |entry| entry.last_timestamp);
        Some((OpenTransaction { producer_id, first_offset }, last))
    }

    /// Transactions whose markers are below the high watermark no longer hold back the last stable offset.
    pub fn on_high_watermark(&mut self, high_watermark: Offset) {
        self.unreplicated.retain(|_, marker| *marker >= high_watermark);
    }

    /// The log starts at `log_start` now. Producers stay, as in Kafka, until they expire.
    pub fn on_log_start(&mut self, log_start: Offset) {
        self.unreplicated.retain(|_, marker| *marker >= log_start);
        self.end = self.end.max(log_start);
    }

    /// From now on producers expire after this long (`producer.id.expiration.ms`).
    pub const fn set_idle_ms_max(&mut self, idle_ms_max: i64) {
        self.limits.idle_ms_max = idle_ms_max;
    }

    /// Forgets producers that were idle too long; returns how many.
    pub fn expire(&mut self, now: Timestamp) -> usize {
        let before = self.producers.len();
        let idle_ms_max = self.limits.idle_ms_max;
        self.producers.retain(|_, entry| !entry.is_expired(now, idle_ms_max));
        before - self.producers.len()
    }

    /// Forgets everything, at offset `start`. After a truncation: `reset` or [`load`](Self::load) the newest snapshot that is not
    /// past the cut, then [`record`](Self::record) the batches between the two.
    pub fn reset(&mut self, start: Offset) {
        self.producers.clear();
        self.open.clear();
        self.unreplicated.clear();
        self.end = start;
    }

    /// Replaces everything with a snapshot taken at `offset`, less the producers that have expired by `now`.
    ///
    /// # Errors
    /// When the snapshot is corrupt; everything is then as before.
    pub fn load(&mut self, snapshot: &[u8], offset: Offset, now: Timestamp) -> Result<(), SnapshotError> {
        let entries = decode_snapshot(snapshot)?;
        self.reset(offset);
        for entry in entries.filter(|entry| !entry.is_expired(now, self.limits.idle_ms_max)) {
            if let Some(first_offset) = entry.transaction_start {
                self.open.insert(first_offset, entry.producer_id);
            }
            self.producers.insert(entry.producer_id, entry);
        }
        Ok(())
    }

    /// A snapshot of all producers, to be stored under the name of [`end`](Self::end). Sorted by producer id, so that equal
    /// states make equal files.
    #[must_use]
    pub fn snapshot(&self) -> Vec<u8> {
        encode_snapshot(self.producers.values())
    }

    /// One producer.
    #[must_use]
    pub fn get(&self, producer_id: ProducerId) -> Option<&ProducerEntry> {
        self.producers.get(&producer_id)
    }

    /// All producers, by id, for DescribeProducers.
    pub fn active_producers(&self) -> impl ExactSizeIterator<Item = &ProducerEntry> {
        self.producers.values()
    }

    /// How many producers are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.producers.len()
    }

    /// Whether no producer is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.producers.is_empty()
    }

    /// Whether the next new producer id from a client is refused.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.producers.len() >= self.limits.producers_max
    }
}

/// Whether a client's batch continues its producer's stream.
fn follows(known: &ProducerEntry, header: &BatchHeader) -> bool {
    let first = header.base_sequence;
    // An entry without an epoch comes from nowhere but a snapshot of Kafka's that says so; its sequences are unknown.
    if known.epoch == ProducerEpoch::NONE {
        return true;
    }
    if header.producer_epoch != known.epoch {
        return first == Sequence::ZERO;
    }
    // Before the first batch the last sequence is -1, so that 0 follows.
    first == known.last_sequence().plus(1)
}
