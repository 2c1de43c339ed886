//! What the validation of a batch allocates: nothing, once its scratch is warm.

mod batch_common;

use batch_common::*;
use core::sync::atomic::{AtomicUsize, Ordering};
use corelog_storage::batch::{Compression, DecompressScratch, HEADER_BYTES, ValidationRules, sole_batch, validate};
use corelog_storage::ids::{LeaderEpoch, Offset, Timestamp};
use std::alloc::{GlobalAlloc, Layout, System};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on unchanged to the system's allocator; the counter touches no memory of theirs.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// The only test of this binary, so that no other thread allocates meanwhile.
#[test]
fn validating_and_stamping_a_batch_allocates_nothing_once_the_scratch_is_warm() {
    let rules = ValidationRules::default();
    for codec in [Compression::None, Compression::Gzip, Compression::Lz4, Compression::Zstd, Compression::Snappy] {
        let batch = build(codec, &small_records(1000));
        let mut header = *batch.first_chunk::<HEADER_BYTES>().expect("a header");
        let mut scratch = DecompressScratch::new();
        let mut run = || {
            let view = sole_batch(&batch, 13).expect("sound");
            let validated = validate(view, &rules, Timestamp(1_700_000_000_000), &mut scratch).expect("sound");
            validated.stamp(&mut header, Offset(7), LeaderEpoch(1))
        };
        if codec != Compression::None {
            run();
        }
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        run();
        assert_eq!(ALLOCATIONS.load(Ordering::Relaxed) - before, 0, "{codec}");
    }
}
