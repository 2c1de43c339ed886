//! What recovery and truncation do to a segment's files.
//!
//! Holds: making zeroes of what is cut off, removing a segment's files. Never touches: who decides what goes.

use super::env::StorageEnv;
use super::names::{INDEX, LOG, TIME_INDEX, TXN_INDEX, segment_path};
use crate::disk::files::{unlink_if_there, write_full};
use crate::disk::remove::STEP_BYTES;
use crate::disk::spare::{write_zeroes, zeroes};
use crate::disk::{BLOCK_BYTES, COMMIT_BYTES_MAX, align_down, align_up};
use crate::ids::Offset;
use corelog_reactor::{Durability, File};
use std::io;
use std::path::Path;

/// Makes the bytes `from..to` of a segment zeroes on disk, durably; behind `to` there are none but zeroes. `block` holds
/// the bytes of `from`'s block before it. Returns the file's length.
///
/// What readers are on the way to get of these bytes, in a pipe or a socket, stays what it was: a direct write takes pages out
/// of the page cache as they are. Of a folio that a file is cut within, the kernel zeroes the rest, wherever it is: so the file is
/// cut only where none lies across.
pub(super) async fn discard(env: &StorageEnv, file: &File, block: &[u8], from: u64, to: u64) -> io::Result<u64> {
    let start = align_down(from);
    let block_end = align_up(from);
    let mut end = align_up(to.max(from));
    let cut = block_end.next_multiple_of(STEP_BYTES);
    if end > cut && end - start > COMMIT_BYTES_MAX {
        // Writing so many zeroes takes longer than losing the pre-written space costs.
        file.truncate(cut).await?;
        file.fsync().await?;
        end = cut;
    }
    let mut zeroes = zeroes(env.reactor(), (end - start).max(BLOCK_BYTES))?;
    let mut rest = start;
    if block_end > start {
        if let Some(head) = zeroes.get_mut(..block.len()) {
            head.copy_from_slice(block);
        }
        let bytes = BLOCK_BYTES as usize;
        let (result, back) = write_full(file, zeroes, bytes, start, Durability::Dsync).await;
        result?;
        zeroes = back;
        if let Some(head) = zeroes.get_mut(..block.len()) {
            head.fill(0);
        }
        rest = block_end;
    }
    if rest < end {
        write_zeroes(file, zeroes, rest, end - rest).await?;
    }
    file.fsync().await?;
    file.len()
}

/// Removes a segment's files, its records last, and syncs the folder.
pub(super) async fn remove_segment_files(env: &StorageEnv, folder: &Path, base: Offset) -> io::Result<()> {
    let reactor = env.reactor();
    for suffix in [INDEX, TIME_INDEX, TXN_INDEX, LOG] {
        unlink_if_there(reactor, &segment_path(folder, base, suffix)).await?;
    }
    reactor.sync_dir(folder).await
}
