//! Recovery from the commit log: a segment gets what it lacks.
//!
//! Holds: the step between the reading of the last segment and the judgement over its end. Never touches: other
//! segments, which were written whole before the last one had its file.
//!
//! ```text
//!   segment       [ a ][ b ][ c ]~~~~~~ torn, or zeroes          reading stops behind c
//!   commit log         [ b ][ c ][ d ]     [ e ][ f ]            entries of this log, oldest first
//!   segment       [ a ][ b ][ c ][ d ][ e ]~~~~                  d is put in; reading goes on, also over what is there already
//! ```
//!
//! An entry ends where the segment has been read to, or before: the segment has it. An entry that covers that place
//! brings what is missing; then the reading goes on there, and checks the batches as it checks all others. An entry
//! that starts further on shows that batches between are missing, which were acknowledged: that is rot. So is what the
//! segment has already and has otherwise than the entry, and a record that only a damaged write of the commit log names.
//!
//! Only the entry's own bytes are written over. What stands behind them stays: it may be whole, and acknowledged by a
//! write to the segment that came later.

use super::error::{Damage, FenceReason, OpenError};
use super::names::{LOG, segment_path};
use super::recover::{Recovery, failed};
use super::recover_read::Scanned;
use crate::batch::Batches;
use crate::commit_log::replay::Entry;
use crate::disk::files::{read_full, write_full};
use crate::disk::{BLOCK_BYTES, align_down, align_up};
use crate::ids::Offset;
use corelog_reactor::Durability;
use std::io;
use std::path::Path;

/// Bytes that are put in before the segment is read on: so many, and those of one entry.
const PART_BYTES: usize = 256 << 10;
/// Bytes of one write, if there is the memory; else a block, which the storage keeps aside.
const PIECE_BYTES: usize = 64 << 10;

/// Batches that the segment lacks, from where it was read to.
struct Missing {
    position: u64,
    /// The offset behind them.
    next: Offset,
    bytes: Vec<u8>,
    batches: u64,
}

impl Missing {
    const fn behind(scanned: &Scanned) -> Self {
        Self { position: scanned.position, next: scanned.next, bytes: Vec::new(), batches: 0 }
    }

    /// Takes what the entry has behind them. Returns whether it fits, and holds.
    fn take(&mut self, entry: &Entry, bytes: &[u8]) -> bool {
        let mut from = None;
        let mut at = 0;
        for batch in Batches::new(bytes) {
            let Some(batch) = batch.ok().filter(|batch| batch.crc_ok()) else {
                return false;
            };
            if batch.header.base_offset == self.next {
                from = Some(at);
            }
            self.batches += u64::from(from.is_some());
            at += batch.bytes.len();
        }
        let Some(from) = from.filter(|from| entry.position + *from as u64 == self.position + self.bytes.len() as u64)
        else {
            return false;
        };
        self.bytes.extend_from_slice(bytes.get(from..).unwrap_or_default());
        self.next = entry.end;
        true
    }
}

impl Recovery<'_> {
    /// Puts into the segment `base` what the commit log has and it lacks. Returns why the log cannot be trusted, if so.
    pub(super) async fn reapply(
        &mut self,
        base: Offset,
        scanned: &mut Scanned,
        entries: &[Entry],
    ) -> Result<Option<FenceReason>, OpenError> {
        let path = segment_path(self.folder, base, LOG);
        let reader = self.env.entry_reader().begin();
        let mut missing = Missing::behind(scanned);
        let mut expected = scanned.next;
        for entry in entries {
            // The segment may have what lies between, or before: it is read on.
            let is_known_place = entry.start == missing.next && entry.is_sound;
            if !is_known_place || missing.bytes.len() >= PART_BYTES {
                self.put_in(&path, base, scanned, &missing).await?;
                missing = Missing::behind(scanned);
            }
            let is_there = entry.end <= missing.next;
            // Older segments were whole before this one had a file.
            if is_there && (entry.segment < base || !entry.is_sound) {
                continue;
            }
            expected = expected.max(entry.end);
            if entry.segment != base || entry.start > missing.next || !entry.is_sound {
                break;
            }
            let bytes = reader.read(entry).await.map_err(failed(&path, "read its part of the commit log"))?;
            if entry.start < missing.next
                && let Some(position) = self.first_difference(&path, scanned, entry.position, &bytes).await?
            {
                let fault = Damage::Differs { from: entry.start, to: entry.end };
                return Ok(Some(FenceReason::Rot { segment: base, position, offset: entry.start, fault }));
            }
            if !is_there && !missing.take(entry, &bytes) {
                break;
            }
        }
        self.put_in(&path, base, scanned, &missing).await?;
        if scanned.next >= expected {
            return Ok(None);
        }
        let fault = Damage::Unapplied { found: scanned.next, expected };
        let (position, offset) = (scanned.position, scanned.next);
        Ok(Some(FenceReason::Rot { segment: base, position, offset, fault }))
    }

    /// Writes what is missing, and reads on.
    async fn put_in(
        &mut self,
        path: &Path,
        base: Offset,
        scanned: &mut Scanned,
        missing: &Missing,
    ) -> Result<(), OpenError> {
        let bytes = &missing.bytes;
        if bytes.is_empty() {
            return Ok(());
        }
        let end = align_up(missing.position + bytes.len() as u64);
        let mut done = 0;
        while done < bytes.len() {
            done += self
                .put_piece(path, scanned, missing.position + done as u64, bytes.get(done..).unwrap_or_default())
                .await?;
        }
        scanned.file_bytes = scanned.file_bytes.max(end);
        scanned.is_mended = true;
        self.env.count(|c| c.log_replayed += missing.batches);
        self.read_on(base, scanned).await
    }

    /// Writes the first of `bytes` at `position`, as many as there is memory for. Returns their number.
    async fn put_piece(&self, path: &Path, scanned: &Scanned, position: u64, bytes: &[u8]) -> Result<usize, OpenError> {
        let start = align_down(position);
        let skip = (position - start) as usize;
        let wanted = align_up((skip + bytes.len()) as u64).min(PIECE_BYTES as u64) as usize;
        let buf = self.env.reactor().pool().take(wanted).ok().or_else(|| self.env.take_block());
        let Some(buf) = buf else {
            let error = io::Error::new(io::ErrorKind::OutOfMemory, "no block of memory");
            return Err(failed(path, "write it")(error));
        };
        let (have, mut buf) = read_full(&scanned.file, buf, start).await;
        let have = have.map_err(failed(path, "read it"))?;
        if let Some(behind) = buf.get_mut(have..) {
            behind.fill(0);
        }
        let len = buf.len();
        let part = bytes.get(..(len - skip).min(bytes.len())).unwrap_or_default();
        if let Some(slot) = buf.get_mut(skip..skip + part.len()) {
            slot.copy_from_slice(part);
        }
        // Synced with all that was recovered, before the log opens and the commit log's file may go.
        let (written, buf) = write_full(&scanned.file, buf, len, start, Durability::None).await;
        written.map_err(failed(path, "write what the commit log has of it"))?;
        if len == BLOCK_BYTES as usize {
            self.env.give_block(buf);
        }
        Ok(part.len())
    }

    /// Where the segment has other bytes than an entry that starts at `position`, if it does before its end.
    async fn first_difference(
        &self,
        path: &Path,
        scanned: &Scanned,
        position: u64,
        bytes: &[u8],
    ) -> Result<Option<u64>, OpenError> {
        let end = scanned.position.min(position + bytes.len() as u64);
        if position >= end {
            // It claims to be elsewhere than its offsets are.
            return Ok(Some(scanned.position));
        }
        let have = self.read_range(scanned, position, end).await.map_err(failed(path, "read it"))?;
        let ours = bytes.get(..(end - position) as usize).unwrap_or_default();
        let same = have.iter().zip(ours).take_while(|(a, b)| a == b).count();
        Ok((same < ours.len()).then_some(position + same as u64))
    }
}
