//! Which batches of transactions a compaction may drop, in the order of the log.
//!
//! Holds: what one pass has seen of the transactions under way. Never touches: files; the aborted transactions of the
//! range are brought to it (Kafka: `CleanedTransactionMetadata`), but for those of which there are headers without records only.
//!
//! | batch | may go |
//! |---|---|
//! | data of an aborted transaction | yes |
//! | other data | record by record, by key |
//! | the marker of a transaction of which this pass has seen data | no |
//! | the marker of one of which nothing is left | yes, once its delete horizon has passed |
//! | a control batch without a record | yes: a compaction has emptied it |
//! | any other control record | no |

use crate::batch::{BatchHeader, BatchView, DecompressScratch, Record, ScanError};
use crate::ids::{Offset, ProducerId};
use crate::producers::{EndMarker, MarkerError};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::ControlFlow;

use super::records::WholeRecords;

/// Bytes that a control batch decompresses to at most: it holds one record of a few bytes.
const CONTROL_BYTES_MAX: u64 = 64 << 10;

/// A transaction that was aborted, as the transaction index lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    /// Whose.
    pub producer_id: ProducerId,
    /// Its first record.
    pub first_offset: Offset,
    /// Its marker.
    pub last_offset: Offset,
}

/// What a control batch says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// A transaction is committed.
    Commit,
    /// A transaction is aborted.
    Abort,
    /// Nothing any more: a compaction has emptied it.
    Empty,
    /// Something that is no end of a transaction.
    Other,
}

impl Control {
    /// Reads a control batch.
    ///
    /// # Errors
    /// When its records cannot be read.
    pub fn read(batch: &BatchView<'_>, scratch: &mut DecompressScratch) -> Result<Self, ScanError> {
        let mut control = Self::Empty;
        let mut records = WholeRecords::new(batch, CONTROL_BYTES_MAX, scratch)?;
        records.step(usize::MAX, |record, _| {
            control = Self::of(record);
            ControlFlow::Break(())
        })?;
        Ok(control)
    }

    fn of(record: &Record<'_>) -> Self {
        match EndMarker::parse(record) {
            Ok(EndMarker { is_abort: true, .. }) => Self::Abort,
            Ok(EndMarker { is_abort: false, .. }) => Self::Commit,
            Err(
                MarkerError::Key { .. }
                | MarkerError::Value { .. }
                | MarkerError::NotAnEnd { .. }
                | MarkerError::InvalidProducerEpoch { .. }
                | MarkerError::CoordinatorFenced { .. },
            ) => Self::Other,
        }
    }
}

/// The transactions of one pass over the log.
#[derive(Debug, Default)]
pub struct Transactions {
    /// By first offset, those that the pass has not reached.
    ahead: VecDeque<AbortedTransaction>,
    /// And whether the pass has seen data of them.
    aborted: BTreeMap<ProducerId, (AbortedTransaction, bool)>,
    /// Producers of whose transaction, none of those aborted, it has seen data.
    others: BTreeSet<ProducerId>,
    kept: Vec<AbortedTransaction>,
}

impl Transactions {
    /// A pass over a part of the log with these aborted transactions: all that have records in it.
    #[must_use]
    pub fn new(aborted: impl IntoIterator<Item = AbortedTransaction>) -> Self {
        let mut transactions = Self::default();
        transactions.add(aborted);
        transactions
    }

    /// More of them, for a pass that is given them piece by piece. One may come twice.
    pub fn add(&mut self, aborted: impl IntoIterator<Item = AbortedTransaction>) {
        self.ahead.extend(aborted);
        self.ahead.make_contiguous().sort_by_key(|transaction| transaction.first_offset);
    }

    /// Takes note of a data batch. Whether it belongs to an aborted transaction.
    pub fn on_data(&mut self, header: &BatchHeader) -> bool {
        self.reach(header);
        if !header.attributes.is_transactional() {
            return false;
        }
        match self.aborted.get_mut(&header.producer_id) {
            Some((_, is_seen)) => {
                *is_seen = true;
                true
            }
            None => {
                self.others.insert(header.producer_id);
                false
            }
        }
    }

    /// Takes note of a control batch. Whether nothing is left of what it ends.
    pub fn on_control(&mut self, header: &BatchHeader, control: Control) -> bool {
        self.reach(header);
        match control {
            Control::Abort => match self.aborted.remove(&header.producer_id) {
                Some((transaction, true)) => {
                    self.kept.push(transaction);
                    false
                }
                Some((_, false)) => true,
                None => !self.others.remove(&header.producer_id),
            },
            Control::Commit => !self.others.remove(&header.producer_id),
            Control::Empty => true,
            Control::Other => false,
        }
    }

    /// The aborted transactions whose markers stay because data was seen, since the last call: the next transaction
    /// index.
    pub fn take_kept(&mut self) -> Vec<AbortedTransaction> {
        std::mem::take(&mut self.kept)
    }

    fn reach(&mut self, header: &BatchHeader) {
        let offset = header.last_offset().unwrap_or(header.base_offset);
        while let Some(transaction) = self.ahead.pop_front_if(|transaction| transaction.first_offset <= offset) {
            self.aborted.entry(transaction.producer_id).or_insert((transaction, false));
        }
    }
}
