//! See `checks/recovery/mod.rs`. Run from `storage/`: `RUSTC_BOOTSTRAP=1 cargo fuzz run recovery`.
#![no_main]

#[path = "../checks/allocations.rs"]
mod allocations;
#[path = "../checks/recovery/mod.rs"]
mod checks;

#[global_allocator]
static ALLOCATOR: allocations::Largest = allocations::Largest;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let bytes = allocations::largest_of(|| checks::recovery(input));
    assert!(bytes <= checks::ALLOCATION_BYTES_MAX, "{bytes} bytes allocated at once");
});
