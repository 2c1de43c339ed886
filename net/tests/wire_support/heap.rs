//! A counting allocator for the tests that bound what decoding takes.
//!
//! Holds: live and peak bytes and the number of allocations of each thread. Never touches: other threads' counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

pub struct Counting;

#[derive(Debug, Clone, Copy)]
pub struct Taken {
    /// Most bytes live at once.
    pub bytes_peak: usize,
    /// Number of allocations.
    pub allocations: usize,
}

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

fn add(bytes: isize) {
    LIVE.set(LIVE.get() + bytes);
    PEAK.set(PEAK.get().max(LIVE.get()));
}

// SAFETY: every call goes to the system's allocator unchanged; the counters are thread-local cells that are initialised at
// compile time and have no destructor, so that touching them allocates nothing and is possible at any time.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        add(layout.size() as isize);
        // SAFETY: the caller's obligations are those of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        add(-(layout.size() as isize));
        // SAFETY: the caller's obligations are those of `System`, which `at` came from.
        unsafe { System.dealloc(at, layout) }
    }
}

/// What `work` takes from the heap on this thread.
pub fn taken<T>(work: impl FnOnce() -> T) -> (T, Taken) {
    let before = LIVE.get();
    PEAK.set(before);
    let count = COUNT.get();
    let result = work();
    let taken = Taken { bytes_peak: (PEAK.get() - before) as usize, allocations: COUNT.get() - count };
    (result, taken)
}
