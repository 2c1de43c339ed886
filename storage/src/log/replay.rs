//! The producers as they were somewhere in the log: from a snapshot, and the batches behind it.
//!
//! Holds: which snapshot, which segments, what a batch tells. Never touches: what the log knows now.

use super::append::{marker_of, record_in};
use super::env::StorageEnv;
use super::names::{LOG, SNAPSHOT, parse_file_name, segment_path};
use super::scan_file::scan_file;
use crate::batch::{AppendOrigin, BatchView};
use crate::disk::files::read_file;
use crate::ids::{LeaderEpoch, Offset, Timestamp};
use crate::producers::ProducerState;
use crate::segment::scan::{BatchFault, ScanStop, ScannedBatch, Scanner};
use crate::segment::txn_index::AbortedTxn;
use corelog_reactor::{DirEntry, OpenHow};
use std::io;
use std::path::Path;

/// A segment that is read for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) base: Offset,
    /// Bytes of its records.
    pub(super) bytes: u64,
    /// The offset behind them.
    pub(super) end: Offset,
    /// It is the log's last one.
    pub(super) is_last: bool,
}

/// What is read for it.
pub(super) struct Replay<'a> {
    pub(super) env: &'a StorageEnv,
    pub(super) folder: &'a Path,
    /// Whole segments, oldest first, from the first of the log on.
    pub(super) parts: &'a [Part],
    pub(super) snapshots: &'a [Offset],
    pub(super) holes_below: Offset,
    /// It goes on behind a segment's sound part, with the next one.
    pub(super) goes_over_damage: bool,
}

/// Why it came to no end.
#[derive(Debug)]
pub(super) enum ReplayError {
    Io(io::Error),
    Damaged { segment: Offset, position: u64, fault: BatchFault },
}

impl From<io::Error> for ReplayError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The offsets of the producer snapshots in a folder, rising.
pub(super) fn snapshots_of(entries: &[DirEntry]) -> Vec<Offset> {
    let mut found: Vec<Offset> =
        entries.iter().filter_map(|entry| parse_file_name(entry.name.to_str()?, SNAPSHOT)).collect();
    found.sort_unstable();
    found
}

/// What a batch that was read tells the producers. The transaction that it has aborted, if it did.
pub(super) fn replay_batch(producers: &mut ProducerState, batch: &ScannedBatch<'_>) -> Option<AbortedTxn> {
    let marker = batch
        .control
        .and_then(|bytes| BatchView::first(bytes).ok())
        .and_then(|view| marker_of(&view, AppendOrigin::Replication).ok().flatten());
    record_in(producers, &batch.header, marker)
}

impl Replay<'_> {
    /// Takes the newest sound snapshot at or below `newest`, or else begins with nothing where the log begins, and goes over
    /// the batches behind it. Calls `each` with every transaction that was aborted, and the segment of its marker.
    pub(super) async fn run(
        &self,
        producers: &mut ProducerState,
        newest: Offset,
        mut each: impl FnMut(Offset, AbortedTxn),
    ) -> Result<(), ReplayError> {
        let reactor = self.env.reactor();
        let now = Timestamp(reactor.unix_ms().0);
        let mut from = self.parts.first().map_or(newest, |first| first.base);
        producers.reset(from);
        for at in self.snapshots.iter().rev().filter(|at| (from..=newest).contains(*at)) {
            let bytes = read_file(reactor, &segment_path(self.folder, *at, SNAPSHOT)).await?;
            if producers.load(&bytes, *at, now).is_ok() {
                from = *at;
                break;
            }
        }
        for part in self.parts.iter().filter(|part| part.end > from) {
            let how = OpenHow { direct: self.env.options().direct, ..OpenHow::read() };
            let file = reactor.open(&segment_path(self.folder, part.base, LOG), how).await?;
            let mut scanner = Scanner::new(0, part.base, LeaderEpoch::NONE, None).with_holes_below(self.holes_below);
            let stop = scan_file(reactor, &file, &mut scanner, part.bytes, |batch| {
                if batch.header.base_offset >= from
                    && let Some(aborted) = replay_batch(producers, &batch)
                {
                    each(part.base, aborted);
                }
            })
            .await?;
            if let Some(ScanStop::Fault(fault)) = stop
                && !self.goes_over_damage
            {
                return Err(ReplayError::Damaged { segment: part.base, position: scanner.position(), fault });
            }
        }
        Ok(())
    }
}
