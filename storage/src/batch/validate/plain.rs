//! The checks of a batch that is not compressed, in one pass.
//!
//! Holds: how far the CRC and the walk have come. Never touches: what the records mean (`Validation` looks at each).
//!
//! CRC and walk take turns, piece by piece: a large batch would else be fetched into the cache twice. So records are looked at
//! before the CRC is known to be right; what they have against them is kept until it is, as the order of the checks asks.

use super::{ProduceError, Validation};
use crate::batch::field;
use crate::batch::scan::{RecordScan, ScanState};

/// Bytes that the CRC and then the walk go over: half of a first-level cache.
const PIECE_BYTES: usize = 16 << 10;

/// A pass under way.
#[derive(Debug)]
pub(super) struct PlainPass<'a> {
    position: usize,
    pub(super) crc: u32,
    pub(super) scan: RecordScan<'a>,
    pub(super) state: ScanState,
    /// What is wrong behind a good CRC; the records are not looked at any further then.
    pub(super) fault: Option<ProduceError>,
}

impl<'a> PlainPass<'a> {
    /// A pass over a batch whose header has this against it.
    pub(super) const fn new(scan: RecordScan<'a>, fault: Option<ProduceError>) -> Self {
        Self { position: field::ATTRIBUTES, crc: 0, scan, state: ScanState::Pending, fault }
    }
}

impl<'a> Validation<'a> {
    /// Goes on for about `bytes_max` bytes. Returns whether the end is reached.
    pub(super) fn go_over(&mut self, pass: &mut PlainPass<'a>, bytes_max: usize) -> bool {
        let bytes = self.batch.bytes;
        let stop = pass.position.saturating_add(bytes_max.max(1)).min(bytes.len());
        while pass.position < stop {
            let end = stop.min(pass.position + PIECE_BYTES);
            let piece = bytes.get(pass.position..end).unwrap_or_default();
            pass.crc = crc32c::crc32c_append(pass.crc, piece);
            pass.position = end;
            self.look_at_records(pass, piece.len());
        }
        if pass.position < bytes.len() {
            return false;
        }
        // The records start behind the header, and so end before the last piece does: this is their end.
        self.look_at_records(pass, 1);
        true
    }

    fn look_at_records(&mut self, pass: &mut PlainPass<'a>, bytes: usize) {
        if pass.fault.is_some() || pass.state != ScanState::Pending {
            return;
        }
        match self.records(&mut pass.scan, bytes) {
            Ok(state) => pass.state = state,
            Err(error) => pass.fault = Some(error),
        }
    }
}
