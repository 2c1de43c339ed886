//! Reading a sealed segment batch by batch, whole batches, each checked.
//!
//! Holds: the read-ahead and the batch at hand. Never touches: what becomes of it. What does not hold is an error: a
//! rewritten batch has a new CRC, which must not vouch for bytes that have rotted.

use super::{CompactionError, failed};
use crate::batch::{BatchError, BatchHeader, BatchView, crc_of};
use crate::disk::BLOCK_BYTES;
use crate::disk::files::read_full;
use crate::ids::{LeaderEpoch, Offset, Timestamp};
use crate::log::Log;
use crate::log::names::{LOG, segment_path};
use crate::log::scan_file::{Appetite, ReadAhead};
use crate::segment::scan::BatchFault;
use corelog_reactor::{File, OpenHow};
use std::io;

/// A batch larger than this is not compacted: it would have to be in memory as a whole.
const BATCH_BYTES_MAX: usize = 128 << 20;

/// A sealed segment, open.
pub(super) struct Source {
    pub(super) base: Offset,
    pub(super) bytes: u64,
    file: File,
}

impl Source {
    pub(super) async fn open(log: &Log, base: Offset, bytes: u64) -> Result<Self, CompactionError> {
        let how = OpenHow { direct: log.0.env.options().direct, ..OpenHow::read() };
        let path = segment_path(&log.0.folder, base, LOG);
        let file = log.0.env.reactor().open(&path, how).await.map_err(failed("open a segment"))?;
        Ok(Self { base, bytes, file })
    }

    /// Its batches; `holes_below` says where offsets may be missing.
    pub(super) fn batches<'a>(&'a self, log: &'a Log, holes_below: Offset) -> Batches<'a> {
        Batches {
            source: self,
            reads: ReadAhead::new(log.0.env.reactor(), &self.file, 0, self.bytes, Appetite::SMALL),
            have: Vec::new(),
            at: 0,
            position: 0,
            read: 0,
            expected: self.base,
            epoch: LeaderEpoch::NONE,
            holes_below,
        }
    }
}

/// The walk over a segment's batches.
pub(super) struct Batches<'a> {
    source: &'a Source,
    reads: ReadAhead<'a>,
    /// What was read and not given back yet.
    have: Vec<u8>,
    /// Where in it the next batch starts,
    at: usize,
    /// and where in the segment.
    position: u64,
    read: u64,
    expected: Offset,
    epoch: LeaderEpoch,
    holes_below: Offset,
}

impl Batches<'_> {
    /// The next batch, and its place in the segment; `None` at the segment's end.
    pub(super) async fn next(&mut self) -> Result<Option<BatchView<'_>>, CompactionError> {
        loop {
            if self.position == self.source.bytes {
                return Ok(None);
            }
            match BatchView::first(self.have.get(self.at..).unwrap_or_default()) {
                Ok(_) => break,
                Err(BatchError::Truncated { need, .. }) => {
                    let left = self.source.bytes - self.position;
                    if need as u64 > left || need > BATCH_BYTES_MAX {
                        return Err(self.damaged(BatchFault::CutShort));
                    }
                }
                Err(BatchError::Header { error, .. }) => return Err(self.damaged(BatchFault::Header(error))),
            }
            self.have.drain(..std::mem::take(&mut self.at));
            let Some(piece) = self.reads.next().await.map_err(failed("read a segment"))? else {
                return Err(self.damaged(BatchFault::CutShort));
            };
            let left = usize::try_from(self.source.bytes - self.read).unwrap_or(usize::MAX);
            let piece = piece.get(..piece.len().min(left)).unwrap_or_default();
            self.have.extend_from_slice(piece);
            self.read += piece.len() as u64;
        }
        let start = self.at;
        let header = self.check(start)?;
        self.at += header.total_bytes();
        self.position += header.total_bytes() as u64;
        self.expected = header.last_offset().unwrap_or(header.base_offset).next();
        self.epoch = header.leader_epoch;
        Ok(BatchView::first(self.have.get(start..).unwrap_or_default()).ok())
    }

    fn check(&self, start: usize) -> Result<BatchHeader, CompactionError> {
        let found = BatchView::first(self.have.get(start..).unwrap_or_default());
        let batch = found.map_err(|_| self.damaged(BatchFault::CutShort))?;
        let header = batch.header;
        let is_hole = header.base_offset > self.expected && header.base_offset < self.holes_below;
        if header.base_offset != self.expected && !is_hole {
            let (found, expected) = (header.base_offset, self.expected);
            return Err(self.damaged(BatchFault::Offset { found, expected }));
        }
        if header.leader_epoch < self.epoch {
            let (found, before) = (header.leader_epoch, self.epoch);
            return Err(self.damaged(BatchFault::Epoch { found, before }));
        }
        if header.last_offset_delta < 0 || header.last_offset().is_none() {
            return Err(self.damaged(BatchFault::Delta { delta: header.last_offset_delta }));
        }
        if !batch.crc_ok() {
            return Err(self.damaged(BatchFault::Crc { found: crc_of(batch.bytes), stored: header.crc }));
        }
        Ok(header)
    }

    fn damaged(&self, fault: BatchFault) -> CompactionError {
        CompactionError::Damaged { segment: self.source.base, position: self.position, fault }
    }
}

/// Largest timestamp of a segment's first batch.
pub(super) async fn first_timestamp(log: &Log, file: &File) -> io::Result<Option<Timestamp>> {
    let buf = log.0.env.reactor().pool().take(BLOCK_BYTES as usize);
    let buf = buf.map_err(|error| io::Error::new(io::ErrorKind::OutOfMemory, error))?;
    let (read, buf) = read_full(file, buf, 0).await;
    Ok(BatchHeader::parse(buf.get(..read?).unwrap_or_default()).ok().map(|header| header.max_timestamp))
}
