//! What a partition knows of its idempotent and transactional producers (KIP-98, KIP-360).
//!
//! Holds: the state of each producer id, the verdict on a batch, the snapshot format.
//! Never touches: files, the clock, the log. [`ProducerState::check`] reads, [`ProducerState::record`] writes; between the two lies
//! the append.
//!
//! # What `check` decides
//!
//! | # | batch | origin | verdict |
//! |---|---|---|---|
//! | 1 | no producer id | any | `Append` |
//! | 2 | same epoch, and first and last sequence equal to one of the last five batches | client | `Duplicate` |
//! | 3 | epoch below the known one | client, coordinator | [`InvalidProducerEpoch`](SequenceError::InvalidProducerEpoch) |
//! | 4 | transactional, not continuing a transaction open here, not verified with the coordinator | client, coordinator | [`NotInTransaction`](SequenceError::NotInTransaction) |
//! | 5 | producer unknown (never seen, expired or deleted with its records) | client | `Append`, whatever the sequence: since 2.5 (KIP-360) no broker answers `UNKNOWN_PRODUCER_ID` |
//! | 6 | higher epoch, first sequence not 0 | client | [`OutOfOrder`](SequenceError::OutOfOrder) |
//! | 7 | same epoch, first sequence not the one after the last (after `i32::MAX` comes 0; after a marker comes 0) | client | `OutOfOrder` |
//! | 8 | not transactional while the producer's transaction is open | any | [`ExpectedTransaction`](SequenceError::ExpectedTransaction) |
//! | 9 | a new producer id, and there is no room | client | [`TooManyProducers`](SequenceError::TooManyProducers) |
//!
//! A coordinator's batches carry no sequences, so 2, 6 and 7 do not apply to them, and 9 does not either: its coordinator bounds them. Replicated batches were judged by their leader: all
//! of them are `Append`, an epoch that goes back included.
//!
//! The number of producers is bounded. When it is reached, `check` refuses new ids from clients; the caller expires idle ones and
//! tries again, or answers with a retriable error. `record` never refuses, since replication and recovery must follow the log.

mod entry;
mod snapshot;
mod state;
mod transactions;

pub use entry::{BATCHES_KEPT, BatchMemory, ProducerEntry};
pub use snapshot::{SNAPSHOT_BYTES_PER_ENTRY, SnapshotError, decode_snapshot, encode_snapshot};
pub use state::{ProducerState, ProducerStateLimits, SequenceError, Verdict, Verification};
pub use transactions::{CompletedTransaction, EndMarker, MarkerError, OpenTransaction};
