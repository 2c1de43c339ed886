//! How much memory the frames of one core's connections may hold together.
//!
//! Holds: the bound, what is held, and the charge that travels with a frame. Never touches: sockets, what is in a frame.
//!
//! A frame is charged from its first bytes until the last view of it is gone, which may be on another core: the request
//! is handled there. So the count is atomic; that is one uncontended addition a frame, and one subtraction.
//!
//! ```text
//!   held_max   |<---------------- frames in buffers of their own --------------->|<-- frames that arrive whole -->|
//!              0                                                            3/4 of it                          held_max
//!   and beside it one at a time that could not grow within it
//! ```
//!
//! The smallest frames, up to 4 KiB, that arrive whole are not charged at all: their bound is the number of connections
//! times what each may have of them (see `SMALL_FRAME_BYTES_MAX` in [`frame`](super::frame)).
//!
//! So clients that begin frames and don't end them leave room for the small ones of others; many frames that each hold
//! some memory and want more are never stuck for good, since one of them gets on, then the next; and a frame may be as
//! large as the protocol's limit allows whatever else is held.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use corelog_reactor::{AlignedBuf, BufferPool};

/// What a frame costs beyond its bytes: its owner, its place in the queues.
const FRAME_OVERHEAD_BYTES: usize = 128;
/// This part of what frames may hold is for those that arrive whole.
const WHOLE_PART: usize = 4;

/// The memory of the frames of one core's connections. A cheap handle.
#[derive(Clone)]
pub struct FrameMemory {
    pool: BufferPool,
    account: Arc<Account>,
    held_max: usize,
    pool_keeps: usize,
}

#[derive(Debug, Default)]
struct Account {
    held: AtomicUsize,
    /// A frame has grown beyond the bound. It is not part of `held`: else nobody else could be served beside it.
    beyond: AtomicBool,
}

/// What a frame holds; given back when it is dropped.
#[derive(Debug)]
struct Charge {
    account: Arc<Account>,
    bytes: usize,
    is_beyond: bool,
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.is_beyond {
            self.account.beyond.store(false, Ordering::Relaxed);
        } else {
            self.account.held.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

/// A pooled buffer of a frame that is arriving.
#[derive(Debug)]
pub(super) struct FrameBuf {
    pub(super) buf: AlignedBuf,
    charge: Charge,
}

impl FrameMemory {
    /// Frames hold at most `held_max` bytes together, besides a single one that may grow beyond that, and leave `pool_keeps` bytes of `pool` to
    /// others.
    pub fn new(pool: BufferPool, held_max: usize, pool_keeps: usize) -> FrameMemory {
        FrameMemory { pool, account: Arc::default(), held_max, pool_keeps }
    }

    /// Bytes that frames hold now.
    pub fn held(&self) -> usize {
        self.account.held.load(Ordering::Relaxed)
    }

    fn charge(&self, bytes: usize, held_max: usize) -> Option<Charge> {
        if self.held() + bytes > held_max {
            return None;
        }
        self.account.held.fetch_add(bytes, Ordering::Relaxed);
        Some(Charge { account: Arc::clone(&self.account), bytes, is_beyond: false })
    }

    /// The charge of the one frame beyond the bound. Only this thread takes it, so looking first is no race.
    fn charge_beyond(&self, bytes: usize) -> Option<Charge> {
        if self.account.beyond.load(Ordering::Relaxed) {
            return None;
        }
        self.account.beyond.store(true, Ordering::Relaxed);
        Some(Charge { account: Arc::clone(&self.account), bytes, is_beyond: true })
    }

    /// A frame that has arrived whole: a copy of `bytes`.
    pub(super) fn whole(&self, bytes: &[u8]) -> Option<Bytes> {
        let charge = self.charge(bytes.len() + FRAME_OVERHEAD_BYTES, self.held_max)?;
        Some(Bytes::from_owner(WholeFrame { bytes: bytes.into(), _charge: charge }))
    }

    /// A buffer of at least `bytes`, all of its capacity in use, for a frame that is arriving.
    pub(super) fn take(&self, bytes: usize) -> Option<FrameBuf> {
        let capacity = BufferPool::capacity_for(bytes);
        let charge = self.charge(capacity, self.arriving_max())?;
        Some(FrameBuf { buf: self.buffer(bytes)?, charge })
    }

    /// A larger buffer for the frame in `small`, with a copy of its first `filled` bytes. `None`: `small` is as it was.
    pub(super) fn grow(&self, small: &mut FrameBuf, bytes: usize, filled: usize) -> Option<()> {
        let capacity = BufferPool::capacity_for(bytes);
        // The one beyond the bound stays that until it ends: its charge covers whatever it grows to.
        let charge = match small.charge.is_beyond {
            true => None,
            false => Some(self.charge(capacity, self.arriving_max()).or_else(|| self.charge_beyond(capacity))?),
        };
        let mut larger = self.buffer(bytes)?;
        larger[..filled].copy_from_slice(&small.buf[..filled]);
        small.buf = larger;
        if let Some(charge) = charge {
            small.charge = charge;
        }
        Some(())
    }

    fn arriving_max(&self) -> usize {
        self.held_max - self.held_max / WHOLE_PART
    }

    fn buffer(&self, bytes: usize) -> Option<AlignedBuf> {
        let mut buf = self.pool.take_leaving(bytes, self.pool_keeps).ok()?;
        let capacity = buf.capacity();
        buf.set_len(capacity);
        Some(buf)
    }
}

impl FrameBuf {
    /// The whole frame, which is `len` bytes long.
    pub(super) fn into_frame(self, len: usize) -> Bytes {
        Bytes::from_owner(PooledFrame { buf: self, len })
    }
}

struct WholeFrame {
    bytes: Box<[u8]>,
    _charge: Charge,
}

impl AsRef<[u8]> for WholeFrame {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Owner that lets a pooled buffer travel as [`Bytes`].
struct PooledFrame {
    buf: FrameBuf,
    len: usize,
}

impl AsRef<[u8]> for PooledFrame {
    fn as_ref(&self) -> &[u8] {
        &self.buf.buf[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_that_arrive_leave_room_for_those_that_arrive_whole() {
        let memory = FrameMemory::new(BufferPool::new(1 << 20), 64 << 10, 0);
        let arriving: Vec<_> = std::iter::from_fn(|| memory.take(4_096)).collect();
        assert_eq!((arriving.len(), memory.held()), (12, 48 << 10));
        let whole: Vec<_> = std::iter::from_fn(|| memory.whole(&[0; 1_000])).collect();
        assert_eq!(whole.len(), (16 << 10) / (1_000 + FRAME_OVERHEAD_BYTES));
        drop((arriving, whole));
        assert_eq!(memory.held(), 0);
    }

    #[test]
    fn one_frame_at_a_time_may_grow_beyond_the_bound() {
        let memory = FrameMemory::new(BufferPool::new(1 << 20), 64 << 10, 0);
        // All hold some, and all want more.
        let mut frames: Vec<_> = std::iter::from_fn(|| memory.take(16 << 10)).collect();
        assert_eq!(frames.len(), 3);
        frames[0].buf[..3].copy_from_slice(b"abc");
        memory.grow(&mut frames[0], 64 << 10, 3).expect("the first one");
        assert_eq!((frames[0].buf.len(), &frames[0].buf[..3]), (64 << 10, &b"abc"[..]));
        assert!(memory.grow(&mut frames[1], 64 << 10, 0).is_none(), "another one");
        assert_eq!(frames[1].buf.len(), 16 << 10, "it has what it had");
        memory.grow(&mut frames[0], 256 << 10, 3).expect("the first one again");
        assert_eq!(memory.held(), 32 << 10, "the others' part");
        // When it is done, the next one gets on.
        let frame = frames.remove(0).into_frame(3);
        assert!(memory.grow(&mut frames[0], 64 << 10, 0).is_none());
        drop(frame);
        memory.grow(&mut frames[0], 64 << 10, 0).expect("its turn");
        drop(frames);
        assert_eq!(memory.held(), 0);
        // Without need it is not taken.
        let mut frame = memory.take(4_096).expect("room");
        memory.grow(&mut frame, 16 << 10, 0).expect("room");
        assert_eq!(memory.held(), 16 << 10);
    }

    #[test]
    fn a_frame_that_is_dropped_on_another_thread_gives_its_memory_back() {
        let memory = FrameMemory::new(BufferPool::new(1 << 20), 1 << 20, 0);
        let frames = [memory.whole(b"small").expect("room"), memory.take(5_000).expect("room").into_frame(5_000)];
        let views = frames.clone();
        std::thread::spawn(move || drop(frames)).join().expect("a thread");
        assert!(memory.held() > 8_192, "views of them are still here");
        drop(views);
        assert_eq!(memory.held(), 0);
    }

    #[test]
    fn frames_leave_the_pools_reserve_alone() {
        let pool = BufferPool::new(64 << 10);
        let memory = FrameMemory::new(pool.clone(), 1 << 20, 16 << 10);
        let held: Vec<_> = std::iter::from_fn(|| memory.take(4_096)).collect();
        assert_eq!((held.len(), pool.free()), (12, 16 << 10));
        assert_eq!(memory.held(), 48 << 10, "what found no buffer is not charged");
    }
}
