//! Index files have no checksum, so what one of them says is believed only where the segment bears it out.
//!
//! Holds: the comparison of an entry with the batch it names. Never touches: how a wrong index is replaced.

use crate::batch::{BatchHeader, HEADER_BYTES};
use crate::disk::files::read_full;
use crate::disk::{BLOCK_BYTES, align_down};
use crate::ids::Offset;
use crate::segment::index::SegmentIndex;
use crate::segment::offset_index::OffsetEntry;
use corelog_reactor::{File, Reactor};
use std::io;

/// Whether the batch of this header is the one that the entry names.
pub(super) fn names(entry: OffsetEntry, header: &BatchHeader) -> bool {
    header.last_offset() == Some(entry.last_offset)
}

/// Rewinds an index that was read from its files to a batch before `position`, from which a scan may go on. 0, and an
/// empty index, if there is none, or if another batch stands there than the entry says.
///
/// That batch lies before the block of `position`: so whatever recovery brings back into memory (the last block) is indexed
/// by the scan, not by the file.
pub(super) async fn resume_at(
    reactor: &Reactor,
    file: &File,
    index: &mut SegmentIndex,
    position: u64,
) -> io::Result<u64> {
    let block = align_down(position);
    let entry = block.checked_sub(1).and_then(|before| index.offsets.floor_by_position(before));
    rewind_to(reactor, file, index, entry).await
}

/// The same for the batch that holds `offset`: back to one that ends at or before it.
pub(super) async fn resume_before(
    reactor: &Reactor,
    file: &File,
    index: &mut SegmentIndex,
    offset: Offset,
) -> io::Result<u64> {
    let entry = index.offsets.floor(offset);
    rewind_to(reactor, file, index, entry).await
}

async fn rewind_to(
    reactor: &Reactor,
    file: &File,
    index: &mut SegmentIndex,
    entry: Option<OffsetEntry>,
) -> io::Result<u64> {
    match entry {
        Some(entry) if stands(reactor, file, entry).await? => Ok(index.rewind(u64::from(entry.position) + 1)),
        Some(_) | None => Ok(index.rewind(0)),
    }
}

async fn stands(reactor: &Reactor, file: &File, entry: OffsetEntry) -> io::Result<bool> {
    let position = u64::from(entry.position);
    let start = align_down(position);
    // A header may lie across two blocks.
    let buf = reactor.pool().take(2 * BLOCK_BYTES as usize);
    let buf = buf.map_err(|error| io::Error::new(io::ErrorKind::OutOfMemory, error))?;
    let (result, buf) = read_full(file, buf, start).await;
    let have = result?;
    let from = (position - start) as usize;
    let head = buf.get(from..have.min(from + HEADER_BYTES)).unwrap_or_default();
    Ok(BatchHeader::parse(head).is_ok_and(|header| names(entry, &header)))
}
