//! The second pass of a compaction: what stays of one batch.
//!
//! Holds: Kafka's rules for batches and records, and the walk that applies them, in slices. Never touches: files, the
//! clock.
//!
//! A record stays if it lies behind what the map covers, or if no later record has its key; a tombstone that is the
//! newest of its key, until the delete horizon of its batch. Records without a key don't stay. Offsets never change.
//!
//! | nothing of a batch stays, and | then |
//! |---|---|
//! | it has the last sequence of an active producer, or it is the last of the round | its header stays, without records |
//! | otherwise | it goes |
//!
//! The delete horizon (KIP-534) is set when a compaction first leaves a tombstone, or the marker of a transaction of
//! which nothing is left, in a batch: it takes the place of the base timestamp, and the records' deltas are counted
//! from it.

use super::key_map::KeyMap;
use super::records::WholeRecords;
use super::transactions::{Control, Transactions};
use crate::batch::{Attributes, BatchHeader, BatchView, Compression, DecompressScratch, Record, ScanError, ScanState};
use crate::ids::{Offset, ProducerEpoch, ProducerId, Timestamp};
use crate::producers::ProducerState;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// What one round goes by.
#[derive(Clone, Copy, Debug)]
pub struct Round<'a> {
    /// The newest offset of each key.
    pub map: &'a KeyMap,
    /// Where active producers wrote last.
    pub producers: &'a LastWrites,
    /// The first offset that the round must not touch. The batch before it stays, if only as a header, so that the
    /// log's offsets go on from there.
    pub end: Offset,
    /// The time at the round's start.
    pub now: Timestamp,
    /// `delete.retention.ms`.
    pub delete_retention_ms: i64,
    /// Most bytes that a batch may decompress to.
    pub decompressed_bytes_max: u64,
}

/// Where each active producer wrote last: what must stay so that its sequence and epoch are not forgotten.
#[derive(Clone, Debug, Default)]
pub struct LastWrites(BTreeMap<ProducerId, (Option<Offset>, ProducerEpoch)>);

impl LastWrites {
    /// Of these producers.
    #[must_use]
    pub fn of(producers: &ProducerState) -> Self {
        let last = |entry: &crate::producers::ProducerEntry| (entry.last_batch().map(|b| b.last_offset), entry.epoch);
        Self(producers.active_producers().map(|entry| (entry.producer_id, last(entry))).collect())
    }

    /// Whether the batch has the last data of its producer or, if there is none of this epoch, the marker with the
    /// epoch.
    fn has(&self, header: &BatchHeader) -> bool {
        match self.0.get(&header.producer_id) {
            Some((Some(last), _)) => header.last_offset() == Some(*last),
            Some((None, epoch)) => header.attributes.is_control() && header.producer_epoch == *epoch,
            None => false,
        }
    }
}

/// What is known of a batch before its records are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchVerdict {
    /// None of its records stays.
    discards_records: bool,
    /// Its header stays, also without records.
    keeps_header: bool,
    /// It is the marker of a transaction of which nothing is left.
    is_spent_marker: bool,
}

impl BatchVerdict {
    /// Judges the next batch of the log; every batch of the range, in order.
    #[must_use]
    pub fn on(
        header: &BatchHeader,
        control: Option<Control>,
        transactions: &mut Transactions,
        round: &Round<'_>,
    ) -> Self {
        let may_go = match control {
            Some(control) => transactions.on_control(header, control),
            None => transactions.on_data(header),
        };
        let is_past_horizon = header.delete_horizon().is_some_and(|horizon| horizon <= round.now);
        let is_last_of_round = header.last_offset().map(Offset::next) == Some(round.end);
        Self {
            discards_records: may_go && (control.is_none() || is_past_horizon),
            keeps_header: is_last_of_round || (header.has_producer_id() && round.producers.has(header)),
            is_spent_marker: may_go && control.is_some(),
        }
    }

    /// Whether it is a marker, and nothing is left of what it ends.
    #[must_use]
    pub const fn is_spent_marker(&self) -> bool {
        self.is_spent_marker
    }
}

/// What stays of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remains {
    /// Nothing.
    Nothing,
    /// All of it, as it is.
    All,
    /// Its header, as a batch without records.
    Header(BatchHeader),
    /// Some of its records, or all with other timestamps' deltas.
    Some(Survivors),
}

/// The records that stay, and the header in front of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survivors {
    pub(super) header: BatchHeader,
    /// A bit for each record of the batch.
    pub(super) stays: Vec<u64>,
}

/// The walk over one batch that finds what stays of it.
#[derive(Debug)]
pub struct Filter<'a> {
    records: WholeRecords<'a>,
    header: BatchHeader,
    verdict: BatchVerdict,
    stays: Vec<u64>,
    read: i32,
    kept: i32,
    has_tombstone: bool,
    first_timestamp: Timestamp,
    max_timestamp: Timestamp,
}

impl<'a> Filter<'a> {
    /// Starts on a batch.
    ///
    /// # Errors
    /// When the codec is unknown.
    pub fn new(
        batch: &BatchView<'a>,
        verdict: BatchVerdict,
        decompressed_bytes_max: u64,
        scratch: &'a mut DecompressScratch,
    ) -> Result<Self, ScanError> {
        Ok(Self {
            records: WholeRecords::new(batch, decompressed_bytes_max, scratch)?,
            header: batch.header,
            verdict,
            stays: Vec::new(),
            read: 0,
            kept: 0,
            has_tombstone: false,
            first_timestamp: Timestamp::NONE,
            max_timestamp: Timestamp::NONE,
        })
    }

    /// Goes on for about `bytes_max` bytes. `None`: call again.
    ///
    /// # Errors
    /// When the records cannot be read.
    pub fn step(&mut self, round: &Round<'_>, bytes_max: usize) -> Result<Option<Remains>, ScanError> {
        if self.verdict.discards_records {
            return Ok(Some(self.without_records()));
        }
        let Self { records, header, stays, read, kept, has_tombstone, first_timestamp, max_timestamp, .. } = self;
        let is_control = header.attributes.is_control();
        let horizon = header.delete_horizon();
        let state = records.step(bytes_max, |record, _| {
            let at = *read as usize;
            if at.is_multiple_of(64) {
                stays.push(0);
            }
            *read += 1;
            if is_control || record_stays(record, horizon, round) {
                if let Some(word) = stays.last_mut() {
                    *word |= 1 << (at % 64);
                }
                if *kept == 0 {
                    *first_timestamp = record.timestamp;
                }
                *kept += 1;
                *max_timestamp = (*max_timestamp).max(record.timestamp);
                *has_tombstone |= record.value.is_none();
            }
            ControlFlow::Continue(())
        })?;
        Ok((state == ScanState::Done).then(|| self.decide(round)))
    }

    /// How many records were read, and how many of them stay.
    #[must_use]
    pub const fn counts(&self) -> (i32, i32) {
        (self.read, self.kept)
    }

    fn decide(&mut self, round: &Round<'_>) -> Remains {
        if self.kept == 0 {
            return self.without_records();
        }
        let horizon = self.header.delete_horizon();
        let sets_horizon = (self.has_tombstone || self.verdict.is_spent_marker) && horizon.is_none();
        if self.kept == self.read && !sets_horizon {
            return Remains::All;
        }
        let horizon = if sets_horizon {
            Some(Timestamp(round.now.0.saturating_add(round.delete_retention_ms.max(0))))
        } else {
            horizon
        };
        Remains::Some(Survivors {
            header: BatchHeader {
                attributes: self.header.attributes.known().with_delete_horizon(horizon.is_some()),
                base_timestamp: horizon.unwrap_or(self.first_timestamp),
                // With LogAppendTime this is the batch's own: it is every record's timestamp.
                max_timestamp: self.max_timestamp,
                record_count: self.kept,
                ..self.header
            },
            stays: std::mem::take(&mut self.stays),
        })
    }

    fn without_records(&self) -> Remains {
        if !self.verdict.keeps_header {
            return Remains::Nothing;
        }
        let attributes: Attributes = self.header.attributes.known();
        Remains::Header(BatchHeader {
            attributes: attributes.with_compression(Compression::None).with_delete_horizon(false),
            base_timestamp: Timestamp::NONE,
            record_count: 0,
            ..self.header
        })
    }
}

fn record_stays(record: &Record<'_>, horizon: Option<Timestamp>, round: &Round<'_>) -> bool {
    if record.offset > round.map.latest() {
        return true;
    }
    let Some(key) = record.key else {
        return false;
    };
    let is_newest = round.map.get(key).is_none_or(|newest| record.offset >= newest);
    is_newest && (record.value.is_some() || horizon.is_none_or(|horizon| round.now < horizon))
}
