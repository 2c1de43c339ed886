//! The committed fuzz corpora, replayed by every test run.

#[path = "../fuzz/checks/allocations.rs"]
mod allocations;
#[path = "../fuzz/checks/batch.rs"]
mod batch;
#[path = "../fuzz/checks/recovery/mod.rs"]
mod recovery;

use std::fs;
use std::path::{Path, PathBuf};

#[global_allocator]
static ALLOCATOR: allocations::Largest = allocations::Largest;

/// Calls with each committed input, in order; the last name printed is the one that failed.
fn replay(target: &str, check: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    for path in paths {
        println!("{}", path.display());
        check(&fs::read(path).unwrap());
    }
}

#[test]
fn the_committed_batches_hold_what_the_fuzzer_checks() {
    replay("batch", batch::batch);
}

#[test]
fn the_committed_folders_hold_what_the_fuzzer_checks() {
    // The first run makes the sound folders.
    recovery::recovery(&[0]);
    replay("recovery", |input| {
        let bytes = allocations::largest_of(|| recovery::recovery(input));
        assert!(bytes <= recovery::ALLOCATION_BYTES_MAX, "{bytes} bytes allocated at once");
    });
}
