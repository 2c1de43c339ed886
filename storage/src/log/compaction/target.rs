//! Writing a cleaned segment beside the log.
//!
//! Holds: the file under its scratch name, its indexes, the bytes that are not written yet. Never touches: the log's
//! own files.

use super::{CompactionError, failed};
use crate::batch::BatchHeader;
use crate::disk::files::{unlink_if_there, write_full, write_synced};
use crate::disk::{BLOCK_BYTES, align_up};
use crate::ids::{Offset, Timestamp};
use crate::log::Log;
use crate::log::names::{CLEANED, INDEX, LOG, SWAP, TIME_INDEX, TXN_INDEX, segment_path, with_suffix};
use crate::segment::index::SegmentIndex;
use crate::segment::txn_index::{AbortedTxn, TxnIndex, encode_all};
use corelog_reactor::{Durability, File, OpenHow};
use std::io;

/// Bytes of one write: commits beside it wait until it is in the disk's cache, and their flush until it is out of it.
const WRITE_BYTES: usize = 128 << 10;
const _: () = assert!((WRITE_BYTES as u64).is_multiple_of(BLOCK_BYTES));
/// Bytes between two syncs: what a sync finds unwritten holds up everybody's durable writes for as long as it takes.
const SYNC_BYTES: u64 = 4 << 20;

/// A cleaned segment under construction.
pub(super) struct Target<'a> {
    log: &'a Log,
    base: Offset,
    file: File,
    index: SegmentIndex,
    index_interval: u32,
    /// What is not written yet; whoever fills it notes each batch.
    pub(super) out: Vec<u8>,
    /// Bytes of it that are noted.
    noted: usize,
    /// Bytes in the file: whole blocks.
    written: u64,
    /// Bytes of them that no sync has covered.
    unsynced: u64,
    first_timestamp: Option<Timestamp>,
    /// The aborted transactions whose markers stay, with batches before them.
    pub(super) aborted: Vec<AbortedTxn>,
}

/// A cleaned segment: whole, and on stable storage under its scratch name.
pub(super) struct Cleaned {
    pub(super) base: Offset,
    pub(super) bytes: u64,
    pub(super) first_timestamp: Option<Timestamp>,
    pub(super) newest: Timestamp,
    pub(super) aborted: Option<Box<TxnIndex>>,
}

impl<'a> Target<'a> {
    pub(super) async fn create(log: &'a Log, base: Offset) -> Result<Self, CompactionError> {
        let env = &log.0.env;
        env.reserve().may_grow().map_err(failed("make a cleaned segment"))?;
        let how = OpenHow { direct: env.options().direct, ..OpenHow::write().create().truncate() };
        let path = with_suffix(&segment_path(&log.0.folder, base, LOG), CLEANED);
        let file = env.reactor().open(&path, how).await.map_err(failed("make a cleaned segment"))?;
        let index_interval = log.0.config.borrow().index_interval_bytes;
        Ok(Self {
            log,
            base,
            file,
            index: SegmentIndex::new(base),
            index_interval,
            out: Vec::new(),
            noted: 0,
            written: 0,
            unsynced: 0,
            first_timestamp: None,
            aborted: Vec::new(),
        })
    }

    /// Takes note of the batch that was put at the end of `out`, if one was.
    pub(super) fn note(&mut self) {
        let Ok(header) = BatchHeader::parse(self.out.get(self.noted..).unwrap_or_default()) else {
            return;
        };
        let position = self.written + self.noted as u64;
        let last_offset = header.last_offset().unwrap_or(header.base_offset);
        self.index.note(&header, last_offset, position, header.total_bytes(), self.index_interval);
        self.first_timestamp.get_or_insert(header.max_timestamp);
        self.noted += header.total_bytes();
    }

    /// Writes what makes whole pieces. Returns how many bytes that were.
    pub(super) async fn flush(&mut self) -> Result<u64, CompactionError> {
        let before = self.written;
        while self.out.len() >= WRITE_BYTES {
            self.write(WRITE_BYTES).await.map_err(failed("write a cleaned segment"))?;
            if self.unsynced >= SYNC_BYTES {
                self.file.fdatasync().await.map_err(failed("sync a cleaned segment"))?;
                self.unsynced = 0;
            }
        }
        Ok(self.written - before)
    }

    async fn write(&mut self, bytes: usize) -> io::Result<()> {
        let pool = self.log.0.env.reactor().pool();
        let len = align_up(bytes as u64) as usize;
        let mut buf = pool.take(len).map_err(|error| io::Error::new(io::ErrorKind::OutOfMemory, error))?;
        for (slot, piece) in [(0..bytes, self.out.get(..bytes)), (bytes..len, None)] {
            if let Some(slot) = buf.get_mut(slot) {
                match piece {
                    Some(piece) => slot.copy_from_slice(piece),
                    None => slot.fill(0),
                }
            }
        }
        let (result, _) = write_full(&self.file, buf, len, self.written, Durability::None).await;
        result?;
        self.out.drain(..bytes);
        self.noted -= bytes;
        self.written += bytes as u64;
        self.unsynced += bytes as u64;
        Ok(())
    }

    /// Writes the rest, and makes all of it durable: the records, then the indexes, then their names.
    pub(super) async fn finish(mut self) -> Result<Cleaned, CompactionError> {
        self.flush().await?;
        let cleaned = Cleaned {
            base: self.base,
            bytes: self.written + self.out.len() as u64,
            first_timestamp: self.first_timestamp,
            newest: self.index.newest,
            aborted: TxnIndex::new(
                self.aborted.len() as u64,
                self.aborted.last().map(|last| last.last_offset),
                Vec::new(),
            ),
        };
        self.write_rest(cleaned.bytes).await.map_err(failed("write a cleaned segment"))?;
        Ok(cleaned)
    }

    async fn write_rest(&mut self, bytes: u64) -> io::Result<()> {
        if !self.out.is_empty() {
            self.write(self.out.len()).await?;
        }
        self.file.truncate(bytes).await?;
        self.file.fsync().await?;
        let (reactor, folder) = (self.log.0.env.reactor(), &self.log.0.folder);
        self.index.finish();
        let index = &self.index;
        let indexes = [
            (TIME_INDEX, index.times.encode_from(0)),
            (INDEX, index.offsets.encode_from(0)),
            // Also without an entry: it says that there is none, until the exchange is done.
            (TXN_INDEX, encode_all(&self.aborted)),
        ];
        for (suffix, bytes) in indexes {
            write_synced(reactor, &with_suffix(&segment_path(folder, self.base, suffix), CLEANED), bytes).await?;
        }
        reactor.sync_dir(folder).await
    }
}

/// Removes what a round that came to no end, or to nothing, has written: also an index that was renamed already, when the
/// exchange then went no further. (Once the records are renamed, it goes on.)
pub(super) async fn discard(log: &Log, base: Offset) {
    if log.0.is_closed() {
        // The folder may be another log's by now.
        return;
    }
    let indexes = [INDEX, TIME_INDEX, TXN_INDEX];
    let both = indexes.into_iter().flat_map(|suffix| [(suffix, CLEANED), (suffix, SWAP)]);
    for (suffix, state) in std::iter::once((LOG, CLEANED)).chain(both) {
        let path = with_suffix(&segment_path(&log.0.folder, base, suffix), state);
        if let Err(error) = unlink_if_there(log.0.env.reactor(), &path).await {
            tracing::warn!(path = %path.display(), %error, "cannot remove it: the next start does");
        }
    }
}
