//! What readers are on the way to get of a file stays what it is: when a big one loses its length in steps, and when a log is
//! cut.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod log_common;

use corelog_reactor::OpenHow;
use corelog_storage::disk::remove::{STEP_BYTES, shrink};
use corelog_storage::ids::Offset;
use corelog_storage::log::{Log, LogConfig, StorageOptions};
use log_common::{append, batch, commit_all, lead, name, ring, storage};
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

#[test]
fn records_that_a_truncation_cuts_off_stay_what_they_were_where_they_are_on_their_way() {
    const BATCH: usize = 256 << 10;
    let folder = tempfile::Builder::new().tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let config = LogConfig { segment_bytes_max: 24 << 20, ..LogConfig::default() };
    let reactor = ring();
    reactor.block_on(async {
        let (_data, env) = storage(&reactor, folder.path(), StorageOptions::default()).await;
        let log = Log::create(&env, name(), config.clone()).await.unwrap();
        lead(&log).await;
        let mut starts = vec![0];
        while log.status().segments < 2 {
            let bytes = batch(1, BATCH, starts.len() as u64);
            append(&log, &bytes).unwrap();
            starts.push(starts.last().unwrap() + bytes.len());
            commit_all(&log).await;
        }
        log.close().await.unwrap();
        drop(log);
        let log = Log::open(&env, name(), config).await.unwrap();
        // Through the page cache, as readers are sent it, and in small steps: then its folios grow. Far more than what is zeroed
        // anyway lies behind the cut.
        let path = folder.path().join("orders-0/00000000000000000000.log");
        let (cut, mut file) = (40, File::open(&path).unwrap());
        let (mut content, mut piece) = (Vec::new(), vec![0; 16 << 10]);
        while let n @ 1.. = file.read(&mut piece).unwrap() {
            content.extend_from_slice(&piece[..n]);
        }
        assert!(content.len() > STEP_BYTES as usize + (5 << 20), "{} bytes", content.len());
        // Around the cut, behind it, and where the file is cut.
        const AROUND: usize = 32 << 10;
        let places = [starts[cut], starts[cut] + (1 << 20), starts[cut + 9], STEP_BYTES as usize];
        let on_the_way = places.map(|place| (place - AROUND / 2, piped(&file, (place - AROUND / 2) as i64, AROUND)));
        assert_eq!(log.truncate_to(Offset(cut as i64)).await.unwrap(), Offset(cut as i64));
        assert!(file.metadata().unwrap().len() <= STEP_BYTES, "nothing was cut");
        for (from, mut pipe) in on_the_way {
            let mut got = vec![0; AROUND];
            pipe.read_exact(&mut got).unwrap();
            let differs = got.iter().zip(&content[from..]).position(|(got, was)| got != was);
            assert_eq!(differs.map(|at| from + at), None, "changed on its way; the cut is at {}", starts[cut]);
        }
    });
    reactor.shutdown();
}
