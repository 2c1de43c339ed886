//! Big files lose their length in steps: what readers are on the way to get of them stays what it is.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod log_common;

use corelog_reactor::OpenHow;
use corelog_storage::disk::remove::shrink;
use log_common::ring;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd};

/// A pipe with `len` bytes of a file in it, as its pages: nothing is copied.
fn piped(file: &File, offset: i64, len: usize) -> File {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors, which nobody else knows.
    let [read, write] = unsafe {
        assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
        ends.map(|end| File::from_raw_fd(end))
    };
    let mut at = offset;
    // SAFETY: two open descriptors and an offset of ours.
    let moved = unsafe {
        libc::splice(
            file.as_raw_fd(),
            &raw mut at,
            write.as_raw_fd(),
            std::ptr::null_mut(),
            len,
            libc::SPLICE_F_NONBLOCK,
        )
    };
    assert_eq!(moved, len as isize, "{}", std::io::Error::last_os_error());
    read
}

#[test]
fn a_file_that_is_shrunk_stays_what_it_was_where_it_is_on_its_way() {
    let folder = tempfile::Builder::new().tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("f");
    // Its end lies within a page, and so do places whole steps before it.
    let content: Vec<u8> = (0..(33 << 20) + 100).map(|n: u32| (n % 251) as u8 | 1).collect();
    std::fs::write(&path, &content).unwrap();
    let file = File::open(&path).unwrap();
    // Around each place where it may be cut.
    const AROUND: usize = 32 << 10;
    let places = [1 << 20, 16 << 20, 17 << 20, 32 << 20, content.len() - AROUND];
    let mut on_the_way = Vec::new();
    for place in places {
        let from = place - AROUND / 2;
        on_the_way.push((from, piped(&file, from as i64, AROUND)));
    }
    let reactor = ring();
    reactor.block_on(async {
        let file = reactor.open(&path, OpenHow::write()).await.unwrap();
        shrink(&reactor, &file, || true).await.unwrap();
        assert!(file.len().unwrap() <= 16 << 20);
    });
    reactor.shutdown();
    for (from, mut pipe) in on_the_way {
        let mut got = vec![0; AROUND];
        pipe.read_exact(&mut got).unwrap();
        let differs = got.iter().zip(&content[from..]).position(|(got, was)| got != was);
        assert_eq!(differs.map(|at| from + at), None, "zeroed behind a cut");
    }
}
