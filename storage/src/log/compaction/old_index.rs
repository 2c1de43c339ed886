//! The entries of aborted transactions whose markers stay.
//!
//! Holds: the index of a segment that is being compacted, read along with its batches. Never touches: which markers stay (the
//! batches alone tell: an index has no checksum, and no record goes on its word).
//!
//! Kafka's rule (`CleanedTransactionMetadata`): an entry stays as it is for as long as its marker has a batch of its transaction
//! before it, if only a header. Without such a batch it goes, the marker a while later. An entry must never outlive its marker:
//! a consumer would hide what the producer commits next.

use super::{CompactionError, failed};
use crate::compact::AbortedTransaction;
use crate::ids::Offset;
use crate::log::Log;
use crate::log::names::{TXN_INDEX, segment_path};
use crate::log::txn_index::{READ_ENTRIES, read_entries};
use crate::segment::txn_index::AbortedTxn;
use corelog_reactor::{File, OpenHow};
use std::collections::VecDeque;
use std::io;

/// A segment's index, up to the entry that was asked for.
pub(super) struct OldIndex {
    file: Option<File>,
    /// Entries in it, and how many were read.
    filed: u64,
    at: u64,
    /// Read, and not passed yet.
    ahead: VecDeque<AbortedTxn>,
}

impl OldIndex {
    pub(super) async fn open(log: &Log, base: Offset) -> Result<Self, CompactionError> {
        let filed = {
            let state = log.0.state.borrow();
            let index = state.segment(base).and_then(|segment| segment.aborted.as_deref());
            index.map_or(0, |index| index.filed())
        };
        let mut file = None;
        if filed > 0 {
            let path = segment_path(&log.0.folder, base, TXN_INDEX);
            match log.0.env.reactor().open(&path, OpenHow::read()).await {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                opened => file = Some(opened.map_err(failed("open an index of aborted transactions"))?),
            }
        }
        Ok(Self { file, filed, at: 0, ahead: VecDeque::new() })
    }

    /// The entry of the marker at `marker`, which stays; markers come in order. If the index has none, what the batches say:
    /// `found` is the transaction, if there are records of it.
    pub(super) async fn entry(
        &mut self,
        marker: Offset,
        found: Option<AbortedTransaction>,
    ) -> Result<Option<AbortedTxn>, CompactionError> {
        loop {
            while let Some(entry) = self.ahead.pop_front_if(|entry| entry.last_offset <= marker) {
                let belongs = found.is_none_or(|found| {
                    found.producer_id == entry.producer_id && entry.first_offset <= found.first_offset
                });
                if entry.last_offset == marker && belongs {
                    return Ok(Some(entry));
                }
            }
            if !self.ahead.is_empty() || !self.read().await? {
                break;
            }
        }
        let of = |found: AbortedTransaction| AbortedTxn {
            producer_id: found.producer_id,
            first_offset: found.first_offset,
            last_offset: found.last_offset,
            // What else was open then is not known: no search ends here.
            last_stable_offset: Offset::ZERO,
        };
        Ok(found.filter(|found| found.last_offset == marker).map(of))
    }

    /// Reads on. Whether there was more; what is damaged ends it.
    async fn read(&mut self) -> Result<bool, CompactionError> {
        let Some(file) = self.file.as_ref().filter(|_| self.at < self.filed) else {
            return Ok(false);
        };
        let read = read_entries(file, self.at, READ_ENTRIES.min(self.filed - self.at)).await;
        let read = read.map_err(failed("read an index of aborted transactions"))?;
        self.at = if read.is_empty() { self.filed } else { self.at + read.len() as u64 };
        let sound = read.iter().take_while(|entry| entry.is_some()).count();
        if sound < read.len() {
            self.at = self.filed;
        }
        self.ahead.extend(read.into_iter().take(sound).flatten());
        Ok(!self.ahead.is_empty())
    }
}
