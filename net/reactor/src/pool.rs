//! Buffers of one core: aligned, budgeted, backed by huge pages where the kernel gives them.
//!
//! Holds: the pool's region, its byte budget, the way home of buffers dropped on another core. Never touches: what
//! the buffers are used for.
//!
//! One anonymous mapping of the budget's size is reserved at the first take; the kernel backs it as it is touched, with
//! 2 MiB pages if it can, and ahead of that where [`BufferPool::warm_ahead`] asks for it. Sizes are rounded up to a power of two, at least 4 KiB. Budget: `budget_bytes` in all, of
//! which rounding may waste up to half.
//!
//! A buffer dropped on another thread is pushed onto a lock-free stack kept in the free memory itself; the home thread
//! takes the whole stack at its next take.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::buddy::Buddy;
use crate::buf::{IoBufMut, IoBufs, IoVecs};
use crate::warm::{WARM_PAGE, Warmer};

/// Alignment of every buffer, and the smallest: what O_DIRECT asks for on common devices.
pub const BUFFER_ALIGN: usize = 4096;
const HUGE_PAGE: usize = WARM_PAGE;
const _: () = assert!(HUGE_PAGE.is_multiple_of(BUFFER_ALIGN));

/// The budget, or the largest free block, is too small.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no buffer of {wanted} bytes: {in_use} of {budget} bytes are in use")]
pub struct PoolExhausted {
    /// Bytes asked for.
    pub wanted: usize,
    /// Bytes handed out, rounding included.
    pub in_use: usize,
    /// Bytes there are.
    pub budget: usize,
}

/// A handle to one core's pool; cheap to clone, stays on its thread.
#[derive(Clone)]
pub struct BufferPool {
    home: Arc<Home>,
    /// Taking is for the home thread only.
    not_send: std::marker::PhantomData<*const ()>,
}

/// Shared by the pool and its buffers, which may be on any thread.
struct Home {
    thread: u64,
    budget: usize,
    /// Buffers dropped elsewhere: a stack through their first bytes.
    returned: AtomicPtr<Returned>,
    /// Only the home thread looks in here.
    local: UnsafeCell<Local>,
}

// SAFETY: `local` is used by the thread whose token is `thread` only, and every access checks that; the rest is atomic
// or never changes.
unsafe impl Send for Home {}
// SAFETY: as above.
unsafe impl Sync for Home {}

struct Local {
    region: Option<Region>,
    in_use: usize,
    huge: bool,
    /// Whether memory shall be made ready ahead, once there is a region.
    warms: bool,
}

struct Region {
    base: NonNull<u8>,
    mapping: NonNull<libc::c_void>,
    mapping_bytes: usize,
    free: Buddy,
    warmer: Option<Warmer>,
}

impl Drop for Region {
    fn drop(&mut self) {
        // Its thread asks the kernel for pages of the mapping: it ends first.
        self.warmer = None;
        // SAFETY: our own mapping; the last buffer in it is gone, as buffers hold the pool's home.
        unsafe { libc::munmap(self.mapping.as_ptr(), self.mapping_bytes) };
    }
}

/// Written into a buffer's first bytes when it is dropped away from home.
struct Returned {
    next: *mut Returned,
    capacity: usize,
}

static THREADS: AtomicU64 = AtomicU64::new(1);
thread_local! {
    static THREAD: u64 = THREADS.fetch_add(1, Ordering::Relaxed);
}

/// A number for the current thread, never given to another; None while the thread winds down.
fn this_thread() -> Option<u64> {
    THREAD.try_with(|id| *id).ok()
}

impl Region {
    fn map(budget: usize) -> Option<(Region, bool)> {
        let mapping_bytes = budget + HUGE_PAGE;
        // SAFETY: a fresh anonymous mapping; nothing else is affected.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapping_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return None;
        }
        let mapping = NonNull::new(at)?;
        let padding = at.addr().next_multiple_of(HUGE_PAGE) - at.addr();
        // SAFETY: the mapping is one huge page longer than the budget, so the aligned start is within it.
        let base = unsafe { mapping.cast::<u8>().add(padding) };
        // SAFETY: advice about our own mapping. A kernel without transparent huge pages refuses: then small ones.
        let huge = unsafe { libc::madvise(base.as_ptr().cast(), budget, libc::MADV_HUGEPAGE) } == 0;
        Some((Region { base, mapping, mapping_bytes, free: Buddy::new(budget / BUFFER_ALIGN), warmer: None }, huge))
    }
}

impl Home {
    /// # Safety
    /// Only on the home thread, and not while another result of this is in use.
    #[allow(clippy::mut_from_ref)]
    unsafe fn local(&self) -> &mut Local {
        // SAFETY: promised by the caller: one thread, one borrow.
        unsafe { &mut *self.local.get() }
    }

    fn is_home(&self) -> bool {
        this_thread() == Some(self.thread)
    }

    fn collect(&self, local: &mut Local) {
        if self.returned.load(Ordering::Relaxed).is_null() {
            return;
        }
        let mut at = self.returned.swap(std::ptr::null_mut(), Ordering::Acquire);
        while let Some(block) = NonNull::new(at) {
            // SAFETY: written by `return_from_afar` before the block was published; the block is ours alone now.
            let Returned { next, capacity } = unsafe { block.read() };
            local.give(block.cast(), capacity);
            at = next;
        }
    }

    fn return_from_afar(&self, at: NonNull<u8>, capacity: usize) {
        let block: NonNull<Returned> = at.cast();
        let mut head = self.returned.load(Ordering::Relaxed);
        loop {
            // SAFETY: the buffer is at least 4 KiB, aligned, and nobody else's until it is published below.
            unsafe { block.write(Returned { next: head, capacity }) };
            // Taking takes the whole stack, so a head seen twice is no danger.
            match self.returned.compare_exchange_weak(head, block.as_ptr(), Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }
}

impl Local {
    fn give(&mut self, at: NonNull<u8>, capacity: usize) {
        let Some(region) = &mut self.region else {
            return;
        };
        let offset = at.as_ptr().addr() - region.base.as_ptr().addr();
        region.free.give(offset / BUFFER_ALIGN, Buddy::order_for(capacity / BUFFER_ALIGN));
        self.in_use -= capacity;
    }
}

impl BufferPool {
    /// A pool of the current thread with this many bytes (rounded down to 4 KiB, at least one buffer).
    pub fn new(budget_bytes: usize) -> BufferPool {
        let budget = (budget_bytes / BUFFER_ALIGN).max(1) * BUFFER_ALIGN;
        let home = Home {
            thread: this_thread().unwrap_or(0),
            budget,
            returned: AtomicPtr::new(std::ptr::null_mut()),
            local: UnsafeCell::new(Local { region: None, in_use: 0, huge: false, warms: false }),
        };
        BufferPool { home: Arc::new(home), not_send: std::marker::PhantomData }
    }

    /// From the first take on, has the kernel back memory before buffers are taken from it (see the module `warm`). To be called
    /// before that.
    pub fn warm_ahead(&self) {
        self.with(|local| local.warms = true);
    }

    fn with<T>(&self, f: impl FnOnce(&mut Local) -> T) -> T {
        assert!(self.home.is_home(), "a pool is used on its own thread {}", self.home.thread);
        // SAFETY: on the home thread (just asserted); `f` is ours and does not come back here.
        let local = unsafe { self.home.local() };
        self.home.collect(local);
        f(local)
    }

    /// A buffer of `len() == bytes`, with room up to its power-of-two capacity. The bytes are initialised but
    /// unspecified: whatever its last user left.
    pub fn take(&self, bytes: usize) -> Result<AlignedBuf, PoolExhausted> {
        let budget = self.home.budget;
        let taken = self.with(|local| {
            let order = Buddy::order_for(bytes.div_ceil(BUFFER_ALIGN));
            if bytes > budget {
                return Err(local.in_use);
            }
            if local.region.is_none()
                && let Some((mut region, huge)) = Region::map(budget)
            {
                local.huge = huge;
                region.warmer = if local.warms { Warmer::start(region.base, budget) } else { None };
                local.region = Some(region);
            }
            let Some(region) = &mut local.region else {
                return Err(local.in_use);
            };
            let Some(page) = region.free.take(order) else {
                return Err(local.in_use);
            };
            let capacity = BUFFER_ALIGN << order;
            local.in_use += capacity;
            if let Some(warmer) = &mut region.warmer {
                warmer.taken(page * BUFFER_ALIGN + capacity);
            }
            // SAFETY: the block lies within the region.
            Ok((unsafe { region.base.add(page * BUFFER_ALIGN) }, capacity))
        });
        match taken {
            Ok((at, capacity)) => Ok(AlignedBuf { at, len: bytes, capacity, home: Arc::clone(&self.home) }),
            Err(in_use) => Err(PoolExhausted { wanted: bytes, in_use, budget }),
        }
    }

    /// Like [`BufferPool::take`], but only if `keep` bytes stay free beyond it: for those who can wait, so that there is
    /// always something for those who can't.
    pub fn take_leaving(&self, bytes: usize, keep: usize) -> Result<AlignedBuf, PoolExhausted> {
        if self.free() < BufferPool::capacity_for(bytes).saturating_add(keep) {
            return Err(PoolExhausted { wanted: bytes, in_use: self.in_use(), budget: self.home.budget });
        }
        self.take(bytes)
    }

    /// Bytes that a buffer of `bytes` takes up.
    pub fn capacity_for(bytes: usize) -> usize {
        BUFFER_ALIGN << Buddy::order_for(bytes.div_ceil(BUFFER_ALIGN))
    }

    /// Bytes that are not handed out. Not necessarily in one piece.
    pub fn free(&self) -> usize {
        self.home.budget - self.in_use()
    }

    /// Bytes handed out, rounding included.
    pub fn in_use(&self) -> usize {
        self.with(|local| local.in_use)
    }

    /// Bytes there are.
    pub fn budget(&self) -> usize {
        self.home.budget
    }

    /// Whether the kernel took the advice to use huge pages (known after the first take).
    pub fn wants_huge_pages(&self) -> bool {
        self.with(|local| local.huge)
    }
}

/// A buffer from a pool: 4 KiB-aligned, a power of two in capacity, back in its pool when dropped, on whatever thread.
pub struct AlignedBuf {
    at: NonNull<u8>,
    len: usize,
    capacity: usize,
    home: Arc<Home>,
}

// SAFETY: the bytes are owned by this value alone; dropping it on another thread goes through the atomic stack.
unsafe impl Send for AlignedBuf {}
// SAFETY: shared references only read the bytes.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// Start of the bytes.
    pub fn as_ptr(&self) -> *const u8 {
        self.at.as_ptr()
    }

    /// Start of the bytes.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.at.as_ptr()
    }

    /// Bytes there is room for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// How many bytes the buffer shows, and an operation reads or writes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it shows none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Shows the first `len` bytes. Asserts that there are that many.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity, "length {len} past capacity {}", self.capacity);
        self.len = len;
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `len <= capacity` bytes of our own block; anonymous memory starts as zeroes, so all is initialised.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for Deref, and we are borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.len) }
    }
}

impl std::fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AlignedBuf").field("len", &self.len).field("capacity", &self.capacity).finish()
    }
}

// SAFETY: the bytes are in the pool's region and do not move; they are initialised and ours alone.
unsafe impl IoBufMut for AlignedBuf {
    fn start(&mut self) -> *mut u8 {
        self.at.as_ptr()
    }
    fn room(&self) -> usize {
        self.len
    }
}

// SAFETY: as above.
unsafe impl IoBufs for AlignedBuf {
    fn expose(&self, into: &mut IoVecs) {
        into.push(self);
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if self.home.is_home() {
            // SAFETY: on the home thread; nothing else borrows the local part while a drop runs.
            unsafe { self.home.local() }.give(self.at, self.capacity);
        } else {
            self.home.return_from_afar(self.at, self.capacity);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_sized_as_asked() {
        let pool = BufferPool::new(64 << 20);
        for bytes in [0, 1, 4096, 4097, 1 << 20, 3 << 20] {
            let mut buf = pool.take(bytes).unwrap();
            assert_eq!(buf.as_ptr().addr() % BUFFER_ALIGN, 0);
            assert_eq!(buf.len(), bytes);
            assert!(buf.capacity() >= bytes.max(BUFFER_ALIGN));
            buf.fill(7);
            assert!(buf.iter().all(|b| *b == 7));
        }
        assert_eq!(pool.in_use(), 0);
    }

    #[test]
    fn an_exhausted_pool_says_so_and_recovers() {
        let pool = BufferPool::new(16 * 4096);
        let held: Vec<AlignedBuf> = (0..16).map(|_| pool.take(4096).unwrap()).collect();
        assert_eq!(pool.take(1).unwrap_err(), PoolExhausted { wanted: 1, in_use: 65536, budget: 65536 });
        drop(held);
        assert_eq!(pool.take(65536).unwrap().capacity(), 65536);
        assert_eq!(pool.take(65537).unwrap_err().wanted, 65537);
    }

    #[test]
    fn a_taker_that_can_wait_leaves_something_to_others() {
        let pool = BufferPool::new(16 * 4096);
        let held: Vec<AlignedBuf> = std::iter::from_fn(|| pool.take_leaving(4096, 4 * 4096).ok()).collect();
        assert_eq!((held.len(), pool.free()), (12, 4 * 4096));
        assert_eq!(pool.take(4 * 4096).unwrap().capacity(), 4 * 4096);
    }

    #[test]
    fn a_buffer_dropped_on_another_thread_comes_home() {
        let pool = BufferPool::new(1 << 20);
        let held: Vec<AlignedBuf> = (0..256).map(|_| pool.take(4096).unwrap()).collect();
        assert_eq!(pool.in_use(), 1 << 20);
        let (left, right) = {
            let mut held = held;
            let right = held.split_off(128);
            (held, right)
        };
        let threads = [left, right].map(|half| std::thread::spawn(move || drop(half)));
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(pool.in_use(), 0);
        assert_eq!(pool.take(1 << 20).unwrap().capacity(), 1 << 20);
    }

    #[test]
    fn a_buffer_outlives_its_pool() {
        let pool = BufferPool::new(1 << 20);
        let mut buf = pool.take(8192).unwrap();
        drop(pool);
        buf.fill(1);
        std::thread::spawn(move || assert!(buf.iter().all(|b| *b == 1))).join().unwrap();
    }
}
