//! Which transactions were aborted that a range of the log has records of: what a read-committed consumer must not show.
//!
//! Holds: the search over the segments' indexes, in memory and in their files. Never touches: how these come to be
//! (`txn_index`), the last stable offset (callers bring their own end).
//!
//! As Kafka searches (`UnifiedLog.collectAbortedTransactions`): from the segment that holds the range's start on, since the
//! marker of a transaction stands behind its records; and no further than an entry whose last stable offset is not below the
//! range's end: what ends behind it began behind the range. Files are read piece by piece, and only of segments that have one.

use super::Log;
use super::error::ReadError;
use super::names::{TXN_INDEX, segment_path};
use super::state::Status;
use super::txn_index::{READ_ENTRIES, read_entries};
use crate::ids::Offset;
use crate::segment::txn_index::AbortedTxn;
use corelog_reactor::{File, OpenHow};
use std::io;

/// What is sought.
#[derive(Clone, Copy)]
struct Search {
    from: Offset,
    upper: Offset,
    max: usize,
}

/// What was found so far.
#[derive(Default)]
struct Found {
    entries: Vec<AbortedTxn>,
    /// Nothing further on belongs to it.
    is_complete: bool,
    /// There is more than may be.
    is_too_much: bool,
}

impl Found {
    /// Takes note of the next entry. Whether the search goes on.
    fn goes_on_behind(&mut self, entry: &AbortedTxn, search: Search) -> bool {
        if entry.overlaps(search.from, search.upper) {
            self.is_too_much = self.entries.len() >= search.max;
            if !self.is_too_much {
                self.entries.push(*entry);
            }
        }
        self.is_complete = entry.last_stable_offset >= search.upper;
        self.goes_on()
    }

    /// The same of all that `more` has found behind it.
    fn append(&mut self, more: Self, search: Search) {
        for entry in &more.entries {
            if !self.goes_on_behind(entry, search) {
                return;
            }
        }
        (self.is_complete, self.is_too_much) = (more.is_complete, more.is_too_much);
    }

    const fn goes_on(&self) -> bool {
        !self.is_complete && !self.is_too_much
    }
}

/// One segment that has aborted transactions.
struct Indexed {
    base: Offset,
    /// The offset behind it.
    end: Offset,
    /// Entries in its file, if one of them may be wanted.
    filed: Option<u64>,
    /// What is wanted of those that are in memory. They may be filed while the file is read.
    pending: Found,
}

/// A log at rest: what is read while it stays as it is belongs together.
#[derive(Clone, Copy, PartialEq, Eq)]
struct AtRest {
    swaps: u64,
    cuts: u64,
}

impl Log {
    /// The aborted transactions that may have records at or behind `from` and below `upper`, in the order of their markers.
    /// `None` if they are more than `max`: a smaller range has fewer.
    ///
    /// # Errors
    /// [`ReadError::OutOfRange`] when `from` lies before the log's start; otherwise when an index cannot be read, or is
    /// damaged: whoever needs it must not go on as if there were none.
    pub async fn aborted_transactions(
        &self,
        from: Offset,
        upper: Offset,
        max: usize,
    ) -> Result<Option<Vec<AbortedTxn>>, ReadError> {
        let inner = &*self.0;
        let at_rest = || {
            let state = inner.state.borrow();
            let is_changing = state.changing && state.status != Status::Closed;
            let at_rest = AtRest { swaps: state.swaps, cuts: state.cuts };
            (state.swapping.is_none() && !is_changing).then_some(at_rest)
        };
        loop {
            let before = inner.changed.until(at_rest).await;
            let found = self.search_aborted(Search { from, upper, max }).await;
            let (log_start, log_end) = (self.log_start(), self.log_end());
            if found.is_err() && from < log_start {
                // The file has gone with its segment.
                return Err(ReadError::OutOfRange { offset: from, log_start, log_end });
            }
            if at_rest() == Some(before) {
                if let Err(ReadError::Io { error, .. }) = &found
                    && error.kind() != io::ErrorKind::InvalidData
                {
                    inner.env.note_error(error);
                }
                return found.map(|found| (!found.is_too_much).then_some(found.entries));
            }
        }
    }

    /// The same without the disk: `None` if a file would have to be read, or the log is being changed, or they are too many.
    /// A log without transactions always has its answer here.
    #[must_use]
    pub fn aborted_transactions_in_memory(&self, from: Offset, upper: Offset, max: usize) -> Option<Vec<AbortedTxn>> {
        let search = Search { from, upper, max };
        let mut found = Found::default();
        let mut at = from;
        {
            let state = self.0.state.borrow();
            if from < state.log_start || state.changing || state.swapping.is_some() {
                return None;
            }
        }
        while let Some(indexed) = self.next_indexed(at, search) {
            if indexed.filed.is_some() {
                return None;
            }
            found.append(indexed.pending, search);
            if !found.goes_on() {
                break;
            }
            at = indexed.end;
        }
        (!found.is_too_much).then_some(found.entries)
    }

    async fn search_aborted(&self, search: Search) -> Result<Found, ReadError> {
        let mut found = Found::default();
        let mut at = search.from;
        let (log_start, log_end) = (self.log_start(), self.log_end());
        if at < log_start {
            return Err(ReadError::OutOfRange { offset: at, log_start, log_end });
        }
        while let Some(indexed) = self.next_indexed(at, search) {
            let segment = indexed.base;
            if let Some(filed) = indexed.filed {
                let searched = self.search_file(segment, filed, search, &mut found).await;
                searched.map_err(|error| ReadError::Io { segment, error })?;
            }
            if found.goes_on() {
                found.append(indexed.pending, search);
            }
            if !found.goes_on() {
                break;
            }
            at = indexed.end;
        }
        Ok(found)
    }

    /// The first segment with aborted transactions, of those from the one of `at` on.
    fn next_indexed(&self, at: Offset, search: Search) -> Option<Indexed> {
        let state = self.0.state.borrow();
        let last = state.aborted_to.filter(|last| at <= *last && at < state.log_end)?;
        for (segment, end) in state.segments_from(at).take_while(|(segment, _)| segment.base <= last) {
            if let Some(index) = &segment.aborted {
                let is_wanted = index.filed_to().is_some_and(|to| search.from <= to);
                let mut pending = Found::default();
                let _ = index.pending().iter().all(|entry| pending.goes_on_behind(entry, search));
                return Some(Indexed { base: segment.base, end, filed: is_wanted.then_some(index.filed()), pending });
            }
        }
        None
    }

    /// Goes over the first `filed` entries of a segment's file, from the first on that ends where it is wanted.
    async fn search_file(&self, base: Offset, filed: u64, search: Search, found: &mut Found) -> io::Result<()> {
        let inner = &*self.0;
        let path = segment_path(&inner.folder, base, TXN_INDEX);
        let file = inner.env.reactor().open(&path, OpenHow::read()).await?;
        let mut at = first_behind(&file, filed, search.from).await?;
        while at < filed {
            let entries = read_entries(&file, at, READ_ENTRIES.min(filed - at)).await?;
            if entries.is_empty() {
                return Err(damaged());
            }
            at += entries.len() as u64;
            for entry in entries {
                if !found.goes_on_behind(&entry.ok_or_else(damaged)?, search) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// Number of an entry before which all end below `from`: found by halves while there is more than one read of them.
async fn first_behind(file: &File, filed: u64, from: Offset) -> io::Result<u64> {
    let (mut low, mut high) = (0, filed);
    while high - low > READ_ENTRIES {
        let middle = low + (high - low) / 2;
        let entry = read_entries(file, middle, 1).await?.into_iter().next().flatten().ok_or_else(damaged)?;
        if entry.last_offset < from {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}

fn damaged() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "its index of aborted transactions is damaged: a restart reads it anew from the log's batches",
    )
}
