//! See `checks.rs`. Run from `net/`: `RUSTC_BOOTSTRAP=1 cargo fuzz run request`.
#![no_main]

#[path = "../checks.rs"]
#[allow(dead_code)]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::request(bytes));
