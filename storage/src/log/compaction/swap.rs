//! The exchange of segments for the cleaned one.
//!
//! Holds: the order of its steps, and their completion by the next start. Never touches: what is in the segments.
//!
//! The names are Kafka's. Each step is on stable storage before the next:
//!
//! 1. the cleaned segment with its indexes, as `.cleaned`;
//! 2. the log checkpoint: up to where offsets may be missing. (It also has the recovery point behind these segments);
//! 3. `.cleaned` becomes `.swap`: the indexes, then the records. From here on a start completes the exchange; before it,
//!    it removes what there is of the cleaned segment;
//! 4. the old segments become `.deleted`, their indexes go, those of the new one get their names. (That of aborted
//!    transactions only if it has an entry);
//! 5. `.log.swap` becomes `.log`.
//!
//! Readers of an old segment go on reading it: its file stays for a while (`removal`). A reader that finds a file gone,
//! or another one in its place, plans anew (`cold`).

use super::target::Cleaned;
use super::{CompactionError, failed};
use crate::compact::SegmentFacts;
use crate::disk::files::unlink_if_there;
use crate::ids::{LeaderEpoch, Offset, Timestamp};
use crate::log::Log;
use crate::log::env::StorageEnv;
use crate::log::error::OpenError;
use crate::log::names::{
    CLEANED, DELETED, INDEX, LOG, SNAPSHOT, SWAP, TIME_INDEX, TXN_INDEX, parse_file_name, segment_path, with_suffix,
};
use crate::log::scan_file::scan_file;
use crate::log::state::{Phase, Segment, Status};
use crate::segment::scan::Scanner;
use corelog_reactor::{DirEntry, OpenHow, Reactor};
use std::io;
use std::path::Path;

/// The mark that the files of segments are being exchanged.
struct Swapping<'a> {
    log: &'a Log,
    base: Offset,
    /// Which of the files a start would find is unknown.
    is_half_done: bool,
}

impl Drop for Swapping<'_> {
    fn drop(&mut self) {
        if self.is_half_done {
            // It completes what there is. Until then the old ones are read.
            self.log.0.state.borrow_mut().broken_swap = Some(self.base);
            self.log.fence_io("exchanging compacted segments", &io::ErrorKind::Interrupted.into());
        }
        self.log.0.state.borrow_mut().swapping = None;
        self.log.0.changed.fire();
        // What this has held up.
        self.log.remove_segments_below_start();
    }
}

/// Puts `cleaned` into the place of `group`, which ends at `end`.
pub(super) async fn swap(
    log: &Log,
    group: &[SegmentFacts],
    end: Offset,
    cleaned: Cleaned,
    cuts: u64,
) -> Result<(), CompactionError> {
    let inner = &*log.0;
    for segment in group {
        log.clear_replaced(segment.base).await.map_err(failed("remove a segment that was replaced before"))?;
    }
    {
        let mut state = inner.state.borrow_mut();
        let are_there = group.iter().all(|segment| {
            state.segment(segment.base).is_some_and(|s| s.phase == Phase::Sealed && s.bytes() == segment.bytes)
        });
        if state.status != Status::Open || state.changing || state.cuts != cuts || !are_there {
            return Err(CompactionError::Interrupted);
        }
        state.swapping = Some(cleaned.base);
    }
    let mut swapping = Swapping { log, base: cleaned.base, is_half_done: false };
    log.update_checkpoint(|entry| entry.compacted_to = entry.compacted_to.max(end));
    inner.env.flush_checkpoint().await.map_err(failed("write the checkpoint"))?;
    let (reactor, folder) = (inner.env.reactor(), &inner.folder);
    for suffix in [TIME_INDEX, INDEX, TXN_INDEX] {
        let path = segment_path(folder, cleaned.base, suffix);
        let renamed = reactor.rename(&with_suffix(&path, CLEANED), &with_suffix(&path, SWAP)).await;
        renamed.map_err(failed("rename a cleaned segment's index"))?;
    }
    reactor.sync_dir(folder).await.map_err(failed("sync the log's folder"))?;
    let olds: Vec<Offset> = group.iter().map(|segment| segment.base).collect();
    let exchange = async {
        let path = segment_path(folder, cleaned.base, LOG);
        reactor.rename(&with_suffix(&path, CLEANED), &with_suffix(&path, SWAP)).await?;
        reactor.sync_dir(folder).await?;
        put_in_place(reactor, folder, cleaned.base, &olds).await
    };
    swapping.is_half_done = true;
    if let Err(error) = exchange.await {
        return Err(CompactionError::Fenced(log.fence_io("exchanging compacted segments", &error)));
    }
    swapping.is_half_done = false;
    {
        let mut state = inner.state.borrow_mut();
        let now = Timestamp(reactor.unix_ms().0);
        let fresh = Segment {
            first_timestamp: cleaned.first_timestamp,
            newest: Some(cleaned.newest),
            aborted: cleaned.aborted,
            ..Segment::sealed(cleaned.base, cleaned.bytes, now)
        };
        let old = state.replace_older(cleaned.base, group.len(), fresh);
        let memory: usize = old.iter().map(|segment| segment.tail.memory_bytes()).sum();
        inner.env.give_chunk_bytes(memory);
        state.swaps += 1;
        state.assert_invariants();
    }
    let readers: Vec<_> = olds.iter().map(|old| inner.env.cold().take_replaced(inner.number, *old)).collect();
    drop(swapping);
    for (segment, (readers, lent)) in group.iter().zip(readers) {
        log.remove_replaced(segment.base, segment.bytes, readers, lent);
    }
    Ok(())
}

/// Steps 4 and 5: also again, after a crash in the middle of them.
async fn put_in_place(reactor: &Reactor, folder: &Path, base: Offset, olds: &[Offset]) -> io::Result<()> {
    for old in olds.iter().rev() {
        let path = segment_path(folder, *old, LOG);
        match reactor.rename(&path, &with_suffix(&path, DELETED)).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            renamed => renamed?,
        }
        if *old != base {
            // Of producers within the new segment its own batches tell; Kafka removes these as well.
            for suffix in [INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT] {
                unlink_if_there(reactor, &segment_path(folder, *old, suffix)).await?;
            }
        }
    }
    put_txn_index_in_place(reactor, folder, base).await?;
    for suffix in [TIME_INDEX, INDEX] {
        let path = segment_path(folder, base, suffix);
        match reactor.rename(&with_suffix(&path, SWAP), &path).await {
            // It has its name already; if not, the one that is there is found to be another segment's, and made anew.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            renamed => renamed?,
        }
    }
    reactor.sync_dir(folder).await?;
    let path = segment_path(folder, base, LOG);
    reactor.rename(&with_suffix(&path, SWAP), &path).await?;
    reactor.sync_dir(folder).await
}

/// The index of aborted transactions takes the place of the old one, also if it is empty. If it is not there that was done
/// before; so the old one must be gone durably before an empty one goes.
async fn put_txn_index_in_place(reactor: &Reactor, folder: &Path, base: Offset) -> io::Result<()> {
    let path = segment_path(folder, base, TXN_INDEX);
    let fresh = with_suffix(&path, SWAP);
    let bytes = match reactor.open(&fresh, OpenHow::read()).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?.len()?,
    };
    if bytes > 0 {
        return reactor.rename(&fresh, &path).await;
    }
    match reactor.unlink(&path).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        unlinked => {
            unlinked?;
            reactor.sync_dir(folder).await?;
        }
    }
    unlink_if_there(reactor, &fresh).await
}

/// What a start does with the files that a round has left: completes an exchange that had begun, and removes the rest.
/// Whether there was anything to do.
pub(in crate::log) async fn complete_swaps(
    env: &StorageEnv,
    folder: &Path,
    entries: &[DirEntry],
) -> Result<bool, OpenError> {
    let fail = |what: &'static str| move |error: io::Error| OpenError::Io { path: folder.to_path_buf(), what, error };
    let names = || entries.iter().filter_map(|entry| entry.name.to_str());
    let is_left = |name: &str| [CLEANED, SWAP].iter().any(|suffix| name.ends_with(suffix));
    if !names().any(is_left) {
        return Ok(false);
    }
    let reactor = env.reactor();
    let swap_log = format!("{LOG}{SWAP}");
    let mut swaps: Vec<Offset> = names().filter_map(|name| parse_file_name(name, &swap_log)).collect();
    swaps.sort_unstable();
    for base in swaps {
        let end = end_of(env, &with_suffix(&segment_path(folder, base, LOG), SWAP), base).await;
        let end = end.map_err(fail("read a compacted segment"))?;
        let replaced = |old: &Offset| (base..end).contains(old);
        let mut olds: Vec<Offset> = names().filter_map(|name| parse_file_name(name, LOG)).filter(replaced).collect();
        olds.sort_unstable();
        tracing::info!(folder = %folder.display(), %base, %end, "completing the exchange of compacted segments");
        put_in_place(reactor, folder, base, &olds).await.map_err(fail("exchange compacted segments"))?;
    }
    let entries = reactor.list_dir(folder).map_err(fail("list it"))?;
    for entry in entries.iter().filter(|entry| entry.name.to_str().is_some_and(is_left)) {
        unlink_if_there(reactor, &folder.join(&entry.name)).await.map_err(fail("clean it up"))?;
    }
    Ok(true)
}

/// Where the compacted segment in this file ends. All of it is checked: the segments that it replaces may be gone.
async fn end_of(env: &StorageEnv, path: &Path, base: Offset) -> io::Result<Offset> {
    let how = OpenHow { direct: env.options().direct, ..OpenHow::read() };
    let file = env.reactor().open(path, how).await?;
    let bytes = file.len()?;
    let mut scanner = Scanner::new(0, base, LeaderEpoch::NONE, None).with_holes_below(Offset(i64::MAX));
    match scan_file(env.reactor(), &file, &mut scanner, bytes, |_| ()).await? {
        None => Ok(scanner.next_offset()),
        Some(stop) => Err(io::Error::new(io::ErrorKind::InvalidData, format!("{stop:?} at {}", scanner.position()))),
    }
}
