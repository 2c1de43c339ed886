//! The recovery scan: which bytes of a segment are batches that belong here, and where they end.
//!
//! Holds: a push parser that is fed a segment's bytes piece by piece, in any pieces. Never touches: files, memory beyond
//! one header and one control batch.
//!
//! Per batch it checks what Kafka's CRC does not cover as well as what it does: the base offset must be the one that is
//! expected next, or, where the log was compacted, a later one; and the leader epoch must not go back.

use crate::batch::{BatchHeader, HEADER_BYTES, HeaderError, field};
use crate::ids::{LeaderEpoch, Offset};

/// A control batch (transaction marker) longer than this is not one of ours; it holds one small record.
const CONTROL_BATCH_BYTES_MAX: usize = 4096;

/// A batch that passed every check.
#[derive(Clone, Copy, Debug)]
pub struct ScannedBatch<'a> {
    /// Its header.
    pub header: BatchHeader,
    /// Its last offset.
    pub last_offset: Offset,
    /// Where it starts in the segment.
    pub position: u64,
    /// Bytes of the whole batch.
    pub bytes: usize,
    /// The whole batch, for control batches only: their records carry the transaction marker.
    pub control: Option<&'a [u8]>,
}

/// Why the scan stopped at a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchFault {
    /// No sound header.
    #[error("{0}")]
    Header(#[from] HeaderError),
    /// Base offset other than the next one.
    #[error("base offset {found} where {expected} comes next")]
    Offset {
        /// What stands there.
        found: Offset,
        /// What should.
        expected: Offset,
    },
    /// The leader epoch went back.
    #[error("leader epoch {found} behind {before}")]
    Epoch {
        /// What stands there.
        found: LeaderEpoch,
        /// The epoch of the batch before it.
        before: LeaderEpoch,
    },
    /// A negative or overflowing number of offsets.
    #[error("last offset delta {delta}")]
    Delta {
        /// What stands there.
        delta: i32,
    },
    /// The stored CRC does not match.
    #[error("CRC {found:#010x} instead of {stored:#010x}")]
    Crc {
        /// Of the bytes.
        found: u32,
        /// In the header.
        stored: u32,
    },
    /// The segment ends within the batch.
    #[error("the segment ends within the batch")]
    CutShort,
}

/// Why [`Scanner::feed`] takes no more bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanStop {
    /// The batch at the scanner's position is not one that belongs here.
    Fault(BatchFault),
    /// The batch at the scanner's position contains the offset to stop at, or lies behind it.
    Limit,
}

/// The scan of one segment from some batch's first byte on.
#[derive(Debug)]
pub struct Scanner {
    position: u64,
    expected: Offset,
    /// The first batch says itself what its base offset is.
    takes_first: bool,
    /// Below this offset batches need not join.
    holes_below: Offset,
    epoch: LeaderEpoch,
    limit: Option<Offset>,
    head: [u8; HEADER_BYTES],
    head_len: usize,
    body: Option<Body>,
    control: Vec<u8>,
}

#[derive(Debug)]
struct Body {
    header: BatchHeader,
    last_offset: Offset,
    crc: u32,
    missing: usize,
}

impl Scanner {
    /// A scan that starts at `position`, where the batch with base offset `expected` should stand, after batches of
    /// `epoch`. With a `limit` it stops before the batch that contains that offset.
    #[must_use]
    pub fn new(position: u64, expected: Offset, epoch: LeaderEpoch, limit: Option<Offset>) -> Self {
        Self {
            position,
            expected,
            takes_first: false,
            holes_below: Offset::ZERO,
            epoch,
            limit,
            head: [0; HEADER_BYTES],
            head_len: 0,
            body: None,
            control: Vec::new(),
        }
    }

    /// A scan that starts at `position` with whatever offset the batch there has, for places that are known to hold the
    /// right ones: below the recovery point.
    #[must_use]
    pub fn from_position(position: u64, epoch: LeaderEpoch, limit: Option<Offset>) -> Self {
        Self { takes_first: true, ..Self::new(position, Offset::NONE, epoch, limit) }
    }

    /// The same scan of a log that was compacted below this offset: there, a batch may have any base offset behind the one
    /// before it.
    #[must_use]
    pub fn with_holes_below(self, offset: Offset) -> Self {
        Self { holes_below: offset, ..self }
    }

    /// Where the last sound batch ends.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// The offset after the last sound batch.
    #[must_use]
    pub const fn next_offset(&self) -> Offset {
        self.expected
    }

    /// The epoch of the last sound batch.
    #[must_use]
    pub const fn epoch(&self) -> LeaderEpoch {
        self.epoch
    }

    /// Bytes of an unfinished batch that were fed so far.
    #[must_use]
    pub fn unfinished(&self) -> usize {
        match &self.body {
            Some(body) => body.header.total_bytes() - body.missing,
            None => self.head_len,
        }
    }

    /// The segment's end has been reached.
    ///
    /// # Errors
    /// When it cuts a batch short.
    pub fn finish(&self) -> Result<(), BatchFault> {
        if self.unfinished() == 0 { Ok(()) } else { Err(BatchFault::CutShort) }
    }

    /// Takes the next bytes of the segment and hands every batch completed by them to `each`.
    ///
    /// # Errors
    /// At the first batch that is none, does not belong here or lies at the limit; the scanner then stands before it.
    pub fn feed(&mut self, mut bytes: &[u8], mut each: impl FnMut(ScannedBatch<'_>)) -> Result<(), ScanStop> {
        while !bytes.is_empty() {
            bytes = match &mut self.body {
                None => self.feed_head(bytes)?,
                Some(_) => self.feed_body(bytes),
            };
            if self.body.as_ref().is_some_and(|b| b.missing == 0) {
                self.complete(&mut each)?;
            }
        }
        Ok(())
    }

    fn feed_head<'b>(&mut self, bytes: &'b [u8]) -> Result<&'b [u8], ScanStop> {
        let want = HEADER_BYTES - self.head_len;
        let (now, rest) = bytes.split_at(want.min(bytes.len()));
        if let Some(slot) = self.head.get_mut(self.head_len..self.head_len + now.len()) {
            slot.copy_from_slice(now);
        }
        self.head_len += now.len();
        if self.head_len < HEADER_BYTES {
            return Ok(rest);
        }
        let header = self.check_header().inspect_err(|_| self.head_len = 0)?;
        let covered = self.head.get(field::ATTRIBUTES..).unwrap_or_default();
        if header.attributes.is_control() {
            self.control.clear();
            self.control.extend_from_slice(&self.head);
        }
        self.body = Some(Body {
            last_offset: header.base_offset + i64::from(header.last_offset_delta),
            crc: crc32c::crc32c(covered),
            missing: header.total_bytes() - HEADER_BYTES,
            header,
        });
        Ok(rest)
    }

    fn check_header(&mut self) -> Result<BatchHeader, ScanStop> {
        let header = BatchHeader::parse(&self.head).map_err(|e| ScanStop::Fault(BatchFault::Header(e)))?;
        if std::mem::take(&mut self.takes_first) {
            self.expected = header.base_offset;
        }
        let is_hole = header.base_offset > self.expected && header.base_offset < self.holes_below;
        if header.base_offset != self.expected && !is_hole {
            return Err(ScanStop::Fault(BatchFault::Offset { found: header.base_offset, expected: self.expected }));
        }
        if header.leader_epoch < self.epoch {
            return Err(ScanStop::Fault(BatchFault::Epoch { found: header.leader_epoch, before: self.epoch }));
        }
        let delta = header.last_offset_delta;
        let Some(last) = header.last_offset().filter(|_| delta >= 0) else {
            return Err(ScanStop::Fault(BatchFault::Delta { delta }));
        };
        if self.limit.is_some_and(|limit| last >= limit) {
            return Err(ScanStop::Limit);
        }
        Ok(header)
    }

    fn feed_body<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let Some(body) = &mut self.body else {
            return bytes;
        };
        let (now, rest) = bytes.split_at(body.missing.min(bytes.len()));
        body.crc = crc32c::crc32c_append(body.crc, now);
        body.missing -= now.len();
        if body.header.attributes.is_control() && self.control.len() + now.len() <= CONTROL_BATCH_BYTES_MAX {
            self.control.extend_from_slice(now);
        }
        rest
    }

    fn complete(&mut self, each: &mut impl FnMut(ScannedBatch<'_>)) -> Result<(), ScanStop> {
        let Some(body) = self.body.take() else {
            return Ok(());
        };
        self.head_len = 0;
        if body.crc != body.header.crc {
            return Err(ScanStop::Fault(BatchFault::Crc { found: body.crc, stored: body.header.crc }));
        }
        let bytes = body.header.total_bytes();
        let is_control = body.header.attributes.is_control();
        each(ScannedBatch {
            header: body.header,
            last_offset: body.last_offset,
            position: self.position,
            bytes,
            control: (is_control && self.control.len() == bytes).then_some(&self.control[..]),
        });
        self.position += bytes as u64;
        self.expected = body.last_offset.next();
        self.epoch = body.header.leader_epoch;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::sample::{batch, batch_of};

    fn collect(scanner: &mut Scanner, bytes: &[u8], piece: usize) -> (Vec<i64>, Result<(), ScanStop>) {
        let mut seen = Vec::new();
        for piece in bytes.chunks(piece) {
            let end = scanner.feed(piece, |b| seen.push(b.last_offset.0));
            if end.is_err() {
                return (seen, end);
            }
        }
        (seen, Ok(()))
    }

    #[test]
    fn batches_are_found_however_the_bytes_are_cut() {
        let bytes = [batch(10, 3, 1, 100), batch(13, 1, 1, 0), batch(14, 5, 2, 700)].concat();
        for piece in [1, 7, 61, 64, 500, 5_000] {
            let mut scanner = Scanner::new(4_096, Offset(10), LeaderEpoch(0), None);
            let (seen, end) = collect(&mut scanner, &bytes, piece);
            assert_eq!((seen, end), (vec![12, 13, 18], Ok(())), "pieces of {piece}");
            assert_eq!(scanner.position(), 4_096 + bytes.len() as u64);
            assert_eq!(scanner.next_offset(), Offset(19));
            assert_eq!(scanner.epoch(), LeaderEpoch(2));
            assert_eq!(scanner.finish(), Ok(()));
        }
    }

    #[test]
    fn the_scan_stops_before_the_first_bad_batch() {
        let good = batch(0, 1, 1, 50);
        let mut flipped = batch(1, 1, 1, 50);
        flipped[80] ^= 1;
        let cases: [(Vec<u8>, fn(&BatchFault) -> bool); 5] = [
            (flipped, |f| matches!(f, BatchFault::Crc { .. })),
            (batch(2, 1, 1, 50), |f| matches!(f, BatchFault::Offset { .. })),
            (batch(0, 1, 1, 50), |f| matches!(f, BatchFault::Offset { .. })),
            (batch(1, 1, 0, 50), |f| matches!(f, BatchFault::Epoch { .. })),
            (vec![0; 100], |f| matches!(f, BatchFault::Header(_))),
        ];
        for (bad, is_expected) in cases {
            let mut scanner = Scanner::new(0, Offset(0), LeaderEpoch(0), None);
            let (seen, end) = collect(&mut scanner, &[good.clone(), bad].concat(), 33);
            assert_eq!(seen, vec![0]);
            assert_eq!(scanner.position(), good.len() as u64);
            assert_eq!(scanner.next_offset(), Offset(1));
            match end {
                Err(ScanStop::Fault(fault)) => assert!(is_expected(&fault), "{fault}"),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn offsets_may_be_missing_below_the_place_that_was_compacted_to_and_nowhere_else() {
        let bytes = [batch(2, 1, 1, 50), batch(5, 2, 1, 50), batch(8, 1, 1, 50)].concat();
        for (below, expected) in [(0, vec![]), (2, vec![]), (3, vec![2]), (8, vec![2, 6]), (9, vec![2, 6, 8])] {
            let mut scanner = Scanner::new(0, Offset(0), LeaderEpoch(0), None).with_holes_below(Offset(below));
            let (seen, end) = collect(&mut scanner, &bytes, 77);
            assert_eq!((seen.clone(), end.is_ok()), (expected, seen.len() == 3), "compacted below {below}");
        }
        // Not backwards, though.
        let back = [batch(2, 1, 1, 50), batch(1, 1, 1, 50)].concat();
        let mut scanner = Scanner::new(0, Offset(0), LeaderEpoch(0), None).with_holes_below(Offset(9));
        assert_eq!(collect(&mut scanner, &back, 77).0, [2]);
    }

    #[test]
    fn a_limit_within_a_batch_stops_before_it() {
        let bytes = [batch(0, 3, 1, 50), batch(3, 3, 1, 50)].concat();
        for limit in [3, 4, 5] {
            let mut scanner = Scanner::new(0, Offset(0), LeaderEpoch(0), Some(Offset(limit)));
            let (seen, end) = collect(&mut scanner, &bytes, 4_096);
            assert_eq!((seen, end), (vec![2], Err(ScanStop::Limit)));
        }
    }

    #[test]
    fn an_end_within_a_batch_is_noticed() {
        let bytes = batch(0, 1, 1, 50);
        let mut scanner = Scanner::new(0, Offset(0), LeaderEpoch(0), None);
        let (seen, end) = collect(&mut scanner, &bytes[..70], 4_096);
        assert_eq!((seen, end), (vec![], Ok(())));
        assert_eq!(scanner.finish(), Err(BatchFault::CutShort));
    }

    #[test]
    fn a_control_batch_comes_with_its_bytes() {
        let bytes = batch_of(0, 1, 0, &[7; 16], |h| {
            h.attributes = h.attributes.with_control(true);
        });
        let mut scanner = Scanner::new(0, Offset(0), LeaderEpoch(0), None);
        let mut seen = 0;
        for piece in bytes.chunks(10) {
            let end = scanner.feed(piece, |b| {
                assert_eq!(b.control, Some(&bytes[..]));
                seen += 1;
            });
            assert_eq!(end, Ok(()));
        }
        assert_eq!(seen, 1);
    }
}
