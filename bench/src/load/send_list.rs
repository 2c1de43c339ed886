//! What one send lends to the kernel: heads written for it, records that were made before the run.
//!
//! Holds: pieces in sending order. Never touches: what they say.

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use corelog_reactor::{IoBufs, IoVecs};

use crate::payload::template::Piece;

/// Pieces to send.
#[derive(Default)]
pub struct SendList {
    /// Heads and tails, one after the other.
    bytes: Vec<u8>,
    parts: VecDeque<Part>,
    /// Where the part begins that is being written.
    open: usize,
    /// Bytes of the first part that have left already.
    sent: usize,
    /// Buffers to use again.
    spare: Vec<Vec<u8>>,
}

enum Part {
    Written(Range<usize>),
    Shared(Rc<Piece>),
    Owned(Vec<u8>),
}

impl SendList {
    /// Where heads are written; they leave in the order of writing and [`Self::shared`], [`Self::owned`].
    pub const fn head(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Records made before the run come next.
    pub fn shared(&mut self, piece: Rc<Piece>) {
        self.close();
        self.parts.push_back(Part::Shared(piece));
    }

    /// A batch made for this send comes next.
    pub fn owned(&mut self, batch: Vec<u8>) {
        self.close();
        self.parts.push_back(Part::Owned(batch));
    }

    /// A buffer for [`Self::owned`].
    pub fn take_spare(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Nothing more is written before the send.
    pub fn close(&mut self) {
        if self.bytes.len() > self.open {
            self.parts.push_back(Part::Written(self.open..self.bytes.len()));
            self.open = self.bytes.len();
        }
    }

    /// Whether everything has left.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// `count` bytes have left.
    pub fn advance(&mut self, mut count: usize) {
        while let Some(first) = self.parts.front() {
            let left = self.bytes_of(first).len() - self.sent;
            if count < left {
                self.sent += count;
                return;
            }
            count -= left;
            self.sent = 0;
            if let Some(Part::Owned(buffer)) = self.parts.pop_front() {
                self.spare.push(buffer);
            }
        }
        self.bytes.clear();
        self.open = 0;
    }

    fn bytes_of<'a>(&'a self, part: &'a Part) -> &'a [u8] {
        match part {
            Part::Written(range) => &self.bytes[range.clone()],
            Part::Shared(piece) => &piece.bytes[..piece.len],
            Part::Owned(batch) => batch,
        }
    }
}

// SAFETY: all bytes are on the heap and stay there while the list moves; the list is owned by the operation meanwhile, and
// nobody changes a piece that is shared.
unsafe impl IoBufs for SendList {
    fn expose(&self, into: &mut IoVecs) {
        let mut skip = self.sent;
        for part in &self.parts {
            if !into.push(&self.bytes_of(part)[skip..]) {
                return;
            }
            skip = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_leave_in_order_whatever_the_kernel_takes_at_a_time() {
        for step in 1..7 {
            let mut list = SendList::default();
            list.head().extend(b"ab");
            list.owned(b"cde".to_vec());
            list.head().extend(b"f");
            list.head().extend(b"gh");
            list.owned(b"i".to_vec());
            list.close();
            let mut got = Vec::new();
            while !list.is_empty() {
                let mut vecs = IoVecs::default();
                list.expose(&mut vecs);
                let all: Vec<u8> = list.parts.iter().flat_map(|part| list.bytes_of(part).to_vec()).collect();
                let left = &all[list.sent..];
                assert_eq!(vecs.bytes(), left.len());
                let count = step.min(left.len());
                got.extend_from_slice(&left[..count]);
                list.advance(count);
            }
            assert_eq!(got, b"abcdefghi");
            assert_eq!(list.spare.len(), 2);
        }
    }
}
