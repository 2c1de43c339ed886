//! Leader epochs whose checkpoint is missing: read from the log's batches.
//!
//! Holds: what a batch says about the epochs, the look at a sealed segment that recovery would not read.
//! Never touches: the checkpoint's file (`open` reads and writes it).
//!
//! Epochs never go back within a log. So where the first and the last batch of a segment agree, all of it is one epoch, and two
//! blocks were read instead of a gigabyte.

use super::env::StorageEnv;
use super::scan_file::scan_file;
use crate::batch::BatchHeader;
use crate::disk::BLOCK_BYTES;
use crate::disk::files::read_full;
use crate::epochs::EpochCache;
use crate::ids::{LeaderEpoch, Offset};
use crate::segment::scan::Scanner;
use corelog_reactor::File;
use std::io;

/// Notes the epoch of a batch, in the order of the log.
pub(super) fn note(epochs: &mut EpochCache, log_start: Offset, header: &BatchHeader, last_offset: Offset) {
    // What lies below the log start is forgotten already; assigning it again would drop the later epochs.
    let (epoch, start) = (header.leader_epoch, header.base_offset.max(log_start));
    if last_offset >= log_start && epochs.epoch_for_offset(start) != Some(epoch) {
        // Epoch -1 comes from Kafka's own logs only: there is nothing to remember about it.
        let _ = epochs.assign(epoch, start);
    }
}

/// A segment that recovery takes on trust.
pub(super) struct SealedSegment<'a> {
    pub(super) file: &'a File,
    pub(super) base: Offset,
    pub(super) bytes: u64,
    /// Of its last batch.
    pub(super) last_epoch: LeaderEpoch,
    /// Offset of its last record.
    pub(super) last_offset: Offset,
}

/// Notes the epochs of a sealed segment. Where a batch in the middle is damaged, those behind it count from the next segment
/// on: that a read will meet the damage is not for the epochs to say.
pub(super) async fn note_sealed(
    env: &StorageEnv,
    segment: SealedSegment<'_>,
    log_start: Offset,
    holes_below: Offset,
    epochs: &mut EpochCache,
) -> io::Result<()> {
    let reactor = env.reactor();
    let block = reactor.pool().take(BLOCK_BYTES as usize);
    let block = block.map_err(|error| io::Error::new(io::ErrorKind::OutOfMemory, error))?;
    let (read, block) = read_full(segment.file, block, 0).await;
    let first = BatchHeader::parse(block.get(..read?).unwrap_or_default());
    if let Ok(first) = first
        && first.leader_epoch == segment.last_epoch
    {
        note(epochs, log_start, &first, segment.last_offset);
        return Ok(());
    }
    let mut scanner = Scanner::new(0, segment.base, LeaderEpoch::NONE, None).with_holes_below(holes_below);
    scan_file(reactor, segment.file, &mut scanner, segment.bytes, |batch| {
        note(epochs, log_start, &batch.header, batch.last_offset);
    })
    .await?;
    Ok(())
}
