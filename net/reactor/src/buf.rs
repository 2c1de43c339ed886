//! What an operation may be lent: buffers that own their bytes and do not move them.
//!
//! Holds: the buffer traits and the list of pieces a vectored operation is given. Never touches: pools, drivers.

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

/// Most pieces one operation takes (the kernel's UIO_MAXIOV). Further pieces are left for the next call: the
/// operation is then short, as any write may be.
pub const IOVECS_MAX: usize = 1024;

/// A buffer the kernel may fill.
///
/// # Safety
/// The range must stay valid, initialised and at the same address while the value is owned by an operation, also when
/// the value itself is moved; nobody else may read or write it meanwhile.
pub unsafe trait IoBufMut: 'static {
    /// Start of the bytes to fill.
    fn start(&mut self) -> *mut u8;
    /// How many bytes may be filled.
    fn room(&self) -> usize;
}

// SAFETY: a Vec's bytes live on the heap and stay there while the Vec moves; the first `len` are initialised.
unsafe impl IoBufMut for Vec<u8> {
    fn start(&mut self) -> *mut u8 {
        self.as_mut_ptr()
    }
    fn room(&self) -> usize {
        self.len()
    }
}

// SAFETY: as for Vec.
unsafe impl IoBufMut for Box<[u8]> {
    fn start(&mut self) -> *mut u8 {
        self.as_mut_ptr()
    }
    fn room(&self) -> usize {
        self.len()
    }
}

/// Buffers the kernel may read: one or several pieces, in order.
///
/// # Safety
/// The pieces must stay valid, unchanged and at the same addresses while the value is owned by an operation, also
/// when the value itself is moved.
pub unsafe trait IoBufs: 'static {
    /// Pushes the pieces in order; may stop once [`IoVecs::is_full`].
    fn expose(&self, into: &mut IoVecs);
}

/// Pieces that an emptied list keeps its room for: 4 KiB. Each op slot has a list, and there are as many slots as
/// connections and more; with room for [`IOVECS_MAX`] each they would hold hundreds of megabytes that no budget knows of.
const IOVECS_KEPT: usize = 256;

/// The pieces of one vectored operation.
#[derive(Default)]
pub struct IoVecs {
    pieces: Vec<libc::iovec>,
    bytes: usize,
}

impl IoVecs {
    /// Adds a piece; an empty one adds nothing. False when there is no room for it.
    pub fn push(&mut self, piece: &[u8]) -> bool {
        if piece.is_empty() {
            return true;
        }
        if self.is_full() {
            return false;
        }
        self.bytes += piece.len();
        self.pieces.push(libc::iovec { iov_base: piece.as_ptr().cast_mut().cast(), iov_len: piece.len() });
        true
    }

    /// Whether no further piece fits.
    pub fn is_full(&self) -> bool {
        self.pieces.len() >= IOVECS_MAX
    }

    /// Sum of the pieces' lengths.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Number of pieces.
    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Whether there are no pieces.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.pieces.clear();
        if self.pieces.capacity() > IOVECS_KEPT {
            self.pieces.shrink_to(IOVECS_KEPT);
        }
        self.bytes = 0;
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut libc::iovec {
        self.pieces.as_mut_ptr()
    }
}

macro_rules! expose_bytes {
    ($($(#[$why:meta])* $buf:ty),* $(,)?) => { $(
        // SAFETY: the bytes are on the heap (or static), shared or owned, and do not move with the value; behind a
        // shared pointer nobody can change them.
        unsafe impl IoBufs for $buf {
            fn expose(&self, into: &mut IoVecs) {
                into.push(self);
            }
        }
    )* };
}
expose_bytes!(Vec<u8>, Box<[u8]>, Rc<[u8]>, Arc<[u8]>, &'static [u8], bytes::Bytes);

// SAFETY: nothing is exposed.
unsafe impl IoBufs for () {
    fn expose(&self, _into: &mut IoVecs) {}
}

macro_rules! expose_items {
    ($([$($generics:tt)*] $list:ty),* $(,)?) => { $(
        // SAFETY: the items keep their bytes still even when they move themselves (their own contract).
        unsafe impl<$($generics)*> IoBufs for $list {
            fn expose(&self, into: &mut IoVecs) {
                for item in self.iter() {
                    if into.is_full() {
                        return;
                    }
                    item.expose(into);
                }
            }
        }
    )* };
}
expose_items!(
    [W: IoBufs] Vec<W>,
    [W: IoBufs] VecDeque<W>,
    [W: IoBufs] Option<W>,
    [W: IoBufs, const N: usize] [W; N],
);

// SAFETY: as for the lists above.
unsafe impl<A: smallvec::Array + 'static> IoBufs for smallvec::SmallVec<A>
where
    A::Item: IoBufs,
{
    fn expose(&self, into: &mut IoVecs) {
        for item in self.iter() {
            if into.is_full() {
                return;
            }
            item.expose(into);
        }
    }
}

// SAFETY: both parts keep their bytes still (their own contract).
unsafe impl<A: IoBufs, B: IoBufs> IoBufs for (A, B) {
    fn expose(&self, into: &mut IoVecs) {
        self.0.expose(into);
        self.1.expose(into);
    }
}

// SAFETY: a box moves its pointer only; the value inside, and so its bytes, stay.
unsafe impl<W: IoBufs + ?Sized> IoBufs for Box<W> {
    fn expose(&self, into: &mut IoVecs) {
        (**self).expose(into);
    }
}

/// A range of a buffer, for filling or sending a part of it.
#[derive(Debug)]
pub struct BufSlice<B> {
    buf: B,
    range: Range<usize>,
}

impl<B> BufSlice<B> {
    /// The bytes `range` of `buf`. A range past the buffer's end is cut there.
    pub fn new(buf: B, range: Range<usize>) -> BufSlice<B> {
        BufSlice { buf, range }
    }

    /// Gives the whole buffer back.
    pub fn into_inner(self) -> B {
        self.buf
    }

    fn cut(&self, len: usize) -> Range<usize> {
        let end = self.range.end.min(len);
        self.range.start.min(end)..end
    }
}

// SAFETY: a sub-range of a buffer that keeps its bytes still.
unsafe impl<B: IoBufMut> IoBufMut for BufSlice<B> {
    fn start(&mut self) -> *mut u8 {
        let range = self.cut(self.buf.room());
        // SAFETY: `cut` keeps the offset within the buffer's room.
        unsafe { self.buf.start().add(range.start) }
    }
    fn room(&self) -> usize {
        self.cut(self.buf.room()).len()
    }
}

// SAFETY: a sub-range of bytes on the heap; see `expose_bytes`.
unsafe impl IoBufs for BufSlice<Vec<u8>> {
    fn expose(&self, into: &mut IoVecs) {
        into.push(self.buf.get(self.cut(self.buf.len())).unwrap_or_default());
    }
}

// SAFETY: a sub-range of a pool buffer, whose bytes do not move.
unsafe impl IoBufs for BufSlice<crate::pool::AlignedBuf> {
    fn expose(&self, into: &mut IoVecs) {
        into.push(self.buf.get(self.cut(self.buf.len())).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_exposed_in_order_and_empty_ones_skipped() {
        let mut iov = IoVecs::default();
        (vec![1u8, 2], vec![vec![], vec![3u8]]).expose(&mut iov);
        assert_eq!((iov.len(), iov.bytes()), (2, 3));
    }

    #[test]
    fn pieces_past_the_limit_are_left_out() {
        let mut iov = IoVecs::default();
        let many: Vec<&'static [u8]> = vec![b"x"; IOVECS_MAX + 5];
        many.expose(&mut iov);
        assert_eq!((iov.len(), iov.bytes()), (IOVECS_MAX, IOVECS_MAX));
    }

    #[test]
    fn an_emptied_list_keeps_little_room() {
        let mut iov = IoVecs::default();
        for pieces in [IOVECS_MAX, IOVECS_KEPT] {
            let many: Vec<&'static [u8]> = vec![b"x"; pieces];
            many.expose(&mut iov);
            iov.clear();
            assert_eq!((iov.len(), iov.bytes(), iov.pieces.capacity()), (0, 0, IOVECS_KEPT));
        }
    }

    #[test]
    fn a_slice_past_the_end_is_cut() {
        let mut slice = BufSlice::new(vec![0u8; 10], 8..20);
        assert_eq!(IoBufMut::room(&slice), 2);
        assert!(!slice.start().is_null());
        assert_eq!(BufSlice::new(vec![0u8; 4], 9..12).room(), 0);
    }
}
