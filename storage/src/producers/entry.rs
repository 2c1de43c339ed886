//! What is known of one producer.
//!
//! Holds: its epoch, its last five batches, its transaction.
//! Never touches: other producers.

use crate::ids::{Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};

/// Batches of each producer that are remembered: as many as Java lets be in flight (`max.in.flight.requests.per.connection`).
pub const BATCHES_KEPT: usize = 5;

/// One appended batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchMemory {
    /// Sequence of its last record.
    pub last_sequence: Sequence,
    /// Offset of its last record.
    pub last_offset: Offset,
    /// Last minus first, of offsets and sequences alike.
    pub offset_delta: i32,
    /// Its max timestamp.
    pub timestamp: Timestamp,
}

impl BatchMemory {
    /// Sequence of its first record.
    #[must_use]
    pub const fn first_sequence(&self) -> Sequence {
        self.last_sequence.minus(self.offset_delta)
    }

    /// Offset of its first record.
    #[must_use]
    pub const fn first_offset(&self) -> Offset {
        Offset(self.last_offset.0.saturating_sub(self.offset_delta as i64))
    }
}

/// One producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerEntry {
    /// Its id.
    pub producer_id: ProducerId,
    /// The highest epoch that wrote.
    pub epoch: ProducerEpoch,
    /// Epoch of the coordinator that wrote the last marker; -1 before any.
    pub coordinator_epoch: i32,
    /// Max timestamp of the last batch or marker; decides when the producer expires.
    pub last_timestamp: Timestamp,
    /// First offset of the open transaction.
    pub transaction_start: Option<Offset>,
    batches: [Option<BatchMemory>; BATCHES_KEPT],
}

impl ProducerEntry {
    /// A producer that has written nothing.
    #[must_use]
    pub const fn new(producer_id: ProducerId) -> Self {
        Self {
            producer_id,
            epoch: ProducerEpoch::NONE,
            coordinator_epoch: -1,
            last_timestamp: Timestamp::NONE,
            transaction_start: None,
            batches: [None; BATCHES_KEPT],
        }
    }

    /// The remembered batches of the current epoch, oldest first.
    pub fn batches(&self) -> impl DoubleEndedIterator<Item = &BatchMemory> {
        self.batches.iter().flatten()
    }

    /// The last batch of the current epoch.
    #[must_use]
    pub fn last_batch(&self) -> Option<&BatchMemory> {
        self.batches().next_back()
    }

    /// Sequence of the last record, or [`Sequence::NONE`].
    #[must_use]
    pub fn last_sequence(&self) -> Sequence {
        self.last_batch().map_or(Sequence::NONE, |batch| batch.last_sequence)
    }

    /// Offset of the last record, or [`Offset::NONE`].
    #[must_use]
    pub fn last_offset(&self) -> Offset {
        self.last_batch().map_or(Offset::NONE, |batch| batch.last_offset)
    }

    /// Whether exactly these sequences were appended among the remembered batches.
    pub(super) fn duplicate(&self, first: Sequence, last: Sequence) -> Option<&BatchMemory> {
        self.batches().find(|batch| batch.last_sequence == last && batch.first_sequence() == first)
    }

    /// Moves to an epoch, forgetting the batches of another one.
    pub(super) fn move_to_epoch(&mut self, epoch: ProducerEpoch) {
        if self.epoch != epoch {
            self.batches = [None; BATCHES_KEPT];
            self.epoch = epoch;
        }
    }

    /// Remembers a batch, at the cost of the oldest one. The array is kept packed to its front.
    pub(super) fn remember(&mut self, batch: BatchMemory) {
        match self.batches.iter_mut().find(|slot| slot.is_none()) {
            Some(slot) => *slot = Some(batch),
            None => {
                self.batches.rotate_left(1);
                if let Some(slot) = self.batches.last_mut() {
                    *slot = Some(batch);
                }
            }
        }
        self.last_timestamp = batch.timestamp;
    }

    /// The same producer with these batches, oldest first, before its own.
    pub(super) fn after(mut self, older: impl Iterator<Item = BatchMemory>) -> Self {
        let (own, last_timestamp) = (std::mem::take(&mut self.batches), self.last_timestamp);
        for batch in older.chain(own.into_iter().flatten()) {
            self.remember(batch);
        }
        self.last_timestamp = last_timestamp;
        self
    }

    /// Whether the producer was idle for `idle_ms_max` or longer; never while its transaction is open.
    pub(super) const fn is_expired(&self, now: Timestamp, idle_ms_max: i64) -> bool {
        self.transaction_start.is_none() && now.0.saturating_sub(self.last_timestamp.0) >= idle_ms_max
    }
}
