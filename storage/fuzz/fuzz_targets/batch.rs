//! See `checks/batch.rs`. Run from `storage/`: `RUSTC_BOOTSTRAP=1 cargo fuzz run batch`.
#![no_main]

#[path = "../checks/batch.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|input: &[u8]| checks::batch(input));
