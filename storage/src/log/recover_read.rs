//! The reading of recovery: segments, batch by batch, and what stands behind their end.
//!
//! Holds: what is read, and what it tells of producers, epochs and indexes. Never touches: what becomes of it
//! (`recover`).

use super::cold::load_index;
use super::error::OpenError;
use super::index_check::resume_at;
use super::missing_epochs::{self, SealedSegment};
use super::names::LOG;
use super::recover::{Recovery, failed};
use super::replay::replay_batch;
use super::scan_file::{Appetite, ReadAhead, scan_file};
use crate::batch::BatchHeader;
use crate::disk::files::read_full;
use crate::disk::{BLOCK_BYTES, align_down};
use crate::ids::{LeaderEpoch, Offset, Timestamp};
use crate::segment::index::SegmentIndex;
use crate::segment::scan::{ScanStop, ScannedBatch, Scanner};
use crate::segment::txn_index::AbortedTxn;
use corelog_reactor::{File, OpenHow};
use std::io;
use std::path::Path;
use std::rc::Rc;

/// A segment that was read.
pub(super) struct Scanned {
    pub(super) file: Rc<File>,
    pub(super) file_bytes: u64,
    pub(super) index: SegmentIndex,
    pub(super) first_timestamp: Option<Timestamp>,
    pub(super) position: u64,
    pub(super) next: Offset,
    epoch: LeaderEpoch,
    pub(super) stop: Option<ScanStop>,
    /// It was written to, from the commit log.
    pub(super) is_mended: bool,
    /// What its index files should say was read from the batches: they are missing or damaged.
    pub(super) is_index_lost: bool,
    /// The transactions that its batches say were aborted, of those that were replayed.
    pub(super) aborted: Vec<AbortedTxn>,
}

impl Recovery<'_> {
    /// A look at a sealed segment: its index, and the batches behind the last entry up to the file's end. Its length if
    /// all is as it should be.
    pub(super) async fn check_sealed(&mut self, base: Offset, next: Offset) -> Result<Option<u64>, OpenError> {
        let path = self.path(base, LOG);
        let file = self.open(&path, OpenHow::read()).await?;
        let bytes = file.len().map_err(failed(&path, "ask for its length"))?;
        let index = load_index(self.env, self.folder, base, bytes).await.map_err(failed(&path, "read its indexes"))?;
        let Ok(mut index) = index else {
            return Ok(None);
        };
        let largest = index.largest.timestamp;
        let resume = index.rewind(bytes);
        let mut scanner = if resume == 0 {
            Scanner::new(0, base, LeaderEpoch::NONE, None)
        } else {
            Scanner::from_position(resume, LeaderEpoch::NONE, None)
        }
        .with_holes_below(self.holes_below);
        // An index that doesn't know the latest of them would hide them from a search by time.
        let mut are_times_known = true;
        let each = |batch: ScannedBatch<'_>| {
            are_times_known &= batch.header.record_count == 0 || batch.header.max_timestamp <= largest;
        };
        let stop =
            scan_file(self.env.reactor(), &file, &mut scanner, bytes, each).await.map_err(failed(&path, "read it"))?;
        self.newest_epoch = self.newest_epoch.max(scanner.epoch());
        let is_whole =
            stop.is_none() && scanner.next_offset() == next && scanner.position() == bytes && are_times_known;
        if is_whole && self.are_epochs_missing {
            let (last_epoch, last_offset) = (scanner.epoch(), Offset(next.0 - 1));
            let segment = SealedSegment { file: &file, base, bytes, last_epoch, last_offset };
            missing_epochs::note_sealed(self.env, segment, self.log_start, self.holes_below, &mut self.epochs)
                .await
                .map_err(failed(&path, "read its leader epochs"))?;
        }
        Ok(is_whole.then_some(bytes))
    }

    async fn open(&self, path: &Path, how: OpenHow) -> Result<File, OpenError> {
        let how = OpenHow { direct: self.env.options().direct, ..how };
        let open = self.env.reactor().open(path, how).await;
        open.map_err(failed(path, "open it"))
    }

    /// Reads a segment, from the last indexed batch below the recovery point if its index can be trusted, or else
    /// whole.
    pub(super) async fn scan(
        &mut self,
        base: Offset,
        may_resume: bool,
        limit: Option<Offset>,
    ) -> Result<Scanned, OpenError> {
        let path = self.path(base, LOG);
        let file = self.open(&path, OpenHow::write()).await?;
        let file_bytes = file.len().map_err(failed(&path, "ask for its length"))?;
        let known = self.recovery.offset.min(self.replay_from);
        let mut is_index_lost = false;
        let loaded = if may_resume && known > base && !self.are_epochs_missing {
            let loaded = load_index(self.env, self.folder, base, file_bytes).await;
            let loaded = loaded.map_err(failed(&path, "read its indexes"))?;
            if let Err(fault) = &loaded {
                tracing::warn!(path = %path.display(), %fault, "the segment's indexes are read from its batches");
                is_index_lost = true;
            }
            loaded.ok()
        } else {
            None
        };
        let mut index = SegmentIndex::new(base);
        let mut scanner = Scanner::new(0, base, LeaderEpoch::NONE, limit).with_holes_below(self.holes_below);
        let mut first_timestamp = None;
        if let Some(mut loaded) = loaded {
            let at = &self.recovery;
            let position = if at.segment_base == base && at.offset == known {
                at.position
            } else {
                u64::from(loaded.offsets.floor_position(known)) + 1
            };
            let has_entry = align_down(position)
                .checked_sub(1)
                .is_some_and(|before| loaded.offsets.floor_by_position(before).is_some());
            let resume =
                resume_at(self.env.reactor(), &file, &mut loaded, position).await.map_err(failed(&path, "read it"))?;
            // Its entry names no batch.
            is_index_lost = has_entry && resume == 0;
            if resume > 0 {
                // The epoch checkpoint has no checksum: only the batches themselves say what their epochs are.
                scanner = Scanner::from_position(resume, LeaderEpoch::NONE, limit).with_holes_below(self.holes_below);
                index = loaded;
                first_timestamp = self.first_timestamp(&file, &path).await?;
            }
        }
        let mut scanned = Scanned {
            file: Rc::new(file),
            file_bytes,
            index,
            first_timestamp,
            position: scanner.position(),
            next: scanner.next_offset(),
            epoch: LeaderEpoch::NONE,
            stop: None,
            is_mended: false,
            is_index_lost,
            aborted: Vec::new(),
        };
        self.read_from(base, scanner, &mut scanned).await?;
        Ok(scanned)
    }

    /// Reads on from where the reading of the segment `base` has stopped.
    pub(super) async fn read_on(&mut self, base: Offset, scanned: &mut Scanned) -> Result<(), OpenError> {
        let scanner =
            Scanner::new(scanned.position, scanned.next, scanned.epoch, self.limit).with_holes_below(self.holes_below);
        self.read_from(base, scanner, scanned).await
    }

    async fn read_from(&mut self, base: Offset, mut scanner: Scanner, to: &mut Scanned) -> Result<(), OpenError> {
        let path = self.path(base, LOG);
        let started = scanner.position();
        let (interval, replay_from, log_start) = (self.index_interval, self.replay_from, self.log_start);
        let (env, producers, epochs) = (self.env, &mut self.producers, &mut self.epochs);
        let (index, first_timestamp, aborted) = (&mut to.index, &mut to.first_timestamp, &mut to.aborted);
        let all_epochs = self.are_epochs_missing;
        let each = |batch: ScannedBatch<'_>| {
            env.recovered(batch.bytes);
            index.note(&batch.header, batch.last_offset, batch.position, batch.bytes, interval);
            if batch.position == 0 {
                *first_timestamp = Some(batch.header.max_timestamp);
            }
            let is_new = batch.header.base_offset >= replay_from;
            if is_new || all_epochs {
                missing_epochs::note(epochs, log_start, &batch.header, batch.last_offset);
            }
            if is_new {
                aborted.extend(replay_batch(producers, &batch));
            }
        };
        let stop = scan_file(self.env.reactor(), &to.file, &mut scanner, to.file_bytes, each)
            .await
            .map_err(failed(&path, "read it"))?;
        self.scanned_bytes += scanner.position() - started;
        self.newest_epoch = self.newest_epoch.max(scanner.epoch());
        to.position = scanner.position();
        to.next = scanner.next_offset();
        to.epoch = scanner.epoch();
        to.stop = stop;
        Ok(())
    }

    async fn first_timestamp(&self, file: &File, path: &Path) -> Result<Option<Timestamp>, OpenError> {
        let block = self.read_block(file, path, 0).await?;
        Ok(BatchHeader::parse(&block).ok().map(|h| h.max_timestamp))
    }

    pub(super) async fn read_block(&self, file: &File, path: &Path, at: u64) -> Result<Vec<u8>, OpenError> {
        let buf = self
            .env
            .reactor()
            .pool()
            .take(BLOCK_BYTES as usize)
            .map_err(|e| failed(path, "read it")(io::Error::new(io::ErrorKind::OutOfMemory, e)))?;
        let (result, buf) = read_full(file, buf, at).await;
        let have = result.map_err(failed(path, "read it"))?;
        Ok(buf.get(..have).unwrap_or_default().to_vec())
    }

    pub(super) async fn read_range(&self, scanned: &Scanned, from: u64, to: u64) -> io::Result<Vec<u8>> {
        let to = to.min(scanned.file_bytes);
        let mut out = Vec::new();
        let mut reads = ReadAhead::new(self.env.reactor(), &scanned.file, from, to, Appetite::LARGE);
        let mut at = align_down(from);
        while at < to
            && let Some(buf) = reads.next().await?
        {
            let skip = usize::try_from(from.saturating_sub(at)).unwrap_or(0);
            let end = usize::try_from(to - at).map_or(buf.len(), |n| n.min(buf.len()));
            out.extend_from_slice(buf.get(skip.min(end)..end).unwrap_or_default());
            at += buf.len() as u64;
        }
        Ok(out)
    }

    pub(super) async fn has_bytes(&self, scanned: &Scanned, from: u64) -> io::Result<bool> {
        if from >= scanned.file_bytes {
            return Ok(false);
        }
        let mut reads = ReadAhead::new(self.env.reactor(), &scanned.file, from, scanned.file_bytes, Appetite::LARGE);
        while let Some(buf) = reads.next().await? {
            if buf.iter().any(|b| *b != 0) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
