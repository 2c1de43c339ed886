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
//! that starts further on shows that batches between are missing, which were acknowledged: that is rot.
//!
//! Only the entry's own bytes are written over. What stands behind them stays: it may be whole, and acknowledged by a
//! write to the segment that came later.

use super::error::{Damage, FenceReason, OpenError};
use super::names::{LOG, segment_path};
use super::recover::{Recovery, failed};
use super::recover_read::Scanned;
use crate::batch::Batches;
use crate::commit_log::replay::{Entry, EntryReader};
use crate::disk::files::{read_full, write_full};
use crate::disk::{align_down, align_up};
use crate::ids::Offset;
use corelog_reactor::Durability;
use std::io;
use std::path::Path;

/// Bytes that are put in with one write, and one reading after it, if one entry is not larger.
const PART_BYTES: usize = 512 << 10;

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
        let mut reader = EntryReader::new(self.env.reactor());
        let mut missing = Missing::behind(scanned);
        let mut expected = scanned.next;
        for entry in entries {
            // The segment may have what lies between: it is read on.
            if entry.start > missing.next || missing.bytes.len() >= PART_BYTES {
                self.put_in(&path, base, scanned, &missing).await?;
                missing = Missing::behind(scanned);
            }
            if entry.end <= missing.next {
                continue;
            }
            expected = entry.end;
            let may_fit = entry.segment == base && entry.start <= missing.next;
            let fits = may_fit && {
                let bytes = reader.read(entry).await.map_err(failed(&path, "read its part of the commit log"))?;
                missing.take(entry, &bytes)
            };
            if !fits {
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
        let start = align_down(missing.position);
        let end = align_up(missing.position + bytes.len() as u64);
        let buf = self.env.reactor().pool().take((end - start) as usize);
        let buf = buf.map_err(|e| failed(path, "write it")(io::Error::new(io::ErrorKind::OutOfMemory, e)))?;
        let (have, mut buf) = read_full(&scanned.file, buf, start).await;
        let have = have.map_err(failed(path, "read it"))?;
        if let Some(behind) = buf.get_mut(have..) {
            behind.fill(0);
        }
        let skip = (missing.position - start) as usize;
        if let Some(slot) = buf.get_mut(skip..skip + bytes.len()) {
            slot.copy_from_slice(bytes);
        }
        let len = buf.len();
        // Synced with all that was recovered, before the log opens and the commit log's file may go.
        let (written, _) = write_full(&scanned.file, buf, len, start, Durability::None).await;
        written.map_err(failed(path, "write what the commit log has of it"))?;
        scanned.file_bytes = scanned.file_bytes.max(end);
        scanned.is_mended = true;
        self.env.count(|c| c.log_replayed += missing.batches);
        self.read_on(base, scanned).await
    }
}
