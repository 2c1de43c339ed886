//! Transactions as a partition sees them: where one starts, where a marker ends it.
//!
//! Holds: the end marker's format, what ends and what that leaves open.
//! Never touches: the transaction coordinator's view.

use crate::batch::Record;
use crate::ids::{Offset, ProducerEpoch, ProducerId};

/// A transaction with records in the log and no marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenTransaction {
    /// Whose.
    pub producer_id: ProducerId,
    /// Its first record.
    pub first_offset: Offset,
}

/// A transaction that a marker ended, for the transaction index and the last stable offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletedTransaction {
    /// Whose.
    pub producer_id: ProducerId,
    /// Its first record.
    pub first_offset: Offset,
    /// Its marker.
    pub last_offset: Offset,
    /// Whether it was aborted; only then the transaction index lists it.
    pub is_aborted: bool,
    /// The first undecided offset once this transaction is out of the way.
    pub last_stable_offset: Offset,
}

/// A control record that ends a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndMarker {
    /// Abort or commit.
    pub is_abort: bool,
    /// Epoch of the coordinator that wrote it.
    pub coordinator_epoch: i32,
}

/// Why a control record is no end marker, or one that must not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MarkerError {
    /// The key is too short or of a negative version.
    #[error("control record key of {bytes} bytes")]
    Key {
        /// Bytes of the key.
        bytes: usize,
    },
    /// The value is too short or of a negative version.
    #[error("end marker value of {bytes} bytes")]
    Value {
        /// Bytes of the value.
        bytes: usize,
    },
    /// Another kind of control record.
    #[error("control record of type {kind} ends no transaction")]
    NotAnEnd {
        /// The type in the key: 0 is abort, 1 commit.
        kind: i16,
    },
    /// `INVALID_PRODUCER_EPOCH`.
    #[error("producer {producer_id} has epoch {ours}, the marker {theirs}")]
    InvalidProducerEpoch {
        /// Whose.
        producer_id: ProducerId,
        /// The known one.
        ours: ProducerEpoch,
        /// The marker's.
        theirs: ProducerEpoch,
    },
    /// `TRANSACTION_COORDINATOR_FENCED`.
    #[error("producer {producer_id} has coordinator epoch {ours}, the marker {theirs}")]
    CoordinatorFenced {
        /// Whose.
        producer_id: ProducerId,
        /// The known one.
        ours: i32,
        /// The marker's.
        theirs: i32,
    },
}

const KIND_ABORT: i16 = 0;
const KIND_COMMIT: i16 = 1;

impl EndMarker {
    /// Reads a control record: key `version i16 | type i16`, value `version i16 | coordinator epoch i32`. Later versions may
    /// append fields, so longer ones are read as this one.
    ///
    /// # Errors
    /// When it is malformed or of another type.
    pub fn parse(record: &Record<'_>) -> Result<Self, MarkerError> {
        let key = record.key.unwrap_or_default();
        let (version, kind) = two_numbers(key).ok_or(MarkerError::Key { bytes: key.len() })?;
        if version < 0 {
            return Err(MarkerError::Key { bytes: key.len() });
        }
        let is_abort = match kind {
            KIND_ABORT => true,
            KIND_COMMIT => false,
            kind => return Err(MarkerError::NotAnEnd { kind }),
        };
        let value = record.value.unwrap_or_default();
        let bad_value = MarkerError::Value { bytes: value.len() };
        let (version, rest) = value.split_first_chunk::<2>().ok_or(bad_value)?;
        let epoch = rest.first_chunk::<4>().ok_or(bad_value)?;
        if i16::from_be_bytes(*version) < 0 {
            return Err(bad_value);
        }
        Ok(Self { is_abort, coordinator_epoch: i32::from_be_bytes(*epoch) })
    }

    /// Key and value of the control record.
    #[must_use]
    pub fn encode(self) -> ([u8; 4], [u8; 6]) {
        let [k0, k1] = if self.is_abort { KIND_ABORT } else { KIND_COMMIT }.to_be_bytes();
        let [e0, e1, e2, e3] = self.coordinator_epoch.to_be_bytes();
        ([0, 0, k0, k1], [0, 0, e0, e1, e2, e3])
    }
}

fn two_numbers(key: &[u8]) -> Option<(i16, i16)> {
    let (version, rest) = key.split_first_chunk::<2>()?;
    let kind = rest.first_chunk::<2>()?;
    Some((i16::from_be_bytes(*version), i16::from_be_bytes(*kind)))
}
