//! An allocator that remembers how much was asked for at once.
//!
//! Holds: the largest allocation of this thread. Never touches: what is allocated.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// To be set as the `#[global_allocator]`.
pub struct Largest;

thread_local! {
    static BYTES: Cell<usize> = const { Cell::new(0) };
}

/// What `work` asked for at once, at most.
pub fn largest_of(work: impl FnOnce()) -> usize {
    BYTES.set(0);
    work();
    BYTES.get()
}

fn note(bytes: usize) {
    // A thread that ends has no such memory any more.
    let _ = BYTES.try_with(|largest| largest.set(largest.get().max(bytes)));
}

// SAFETY: every call is passed on unchanged to the system's allocator; the counter touches no memory of theirs.
unsafe impl GlobalAlloc for Largest {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        note(new_size);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(pointer, layout, new_size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}
