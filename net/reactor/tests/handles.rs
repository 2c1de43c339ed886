//! Descriptors and places: an operation finds the file it was meant for, whatever is opened and closed meanwhile.

use std::fs;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::time::Duration;

use corelog_reactor::ring::{RingConfig, RingDriver};
use corelog_reactor::{Durability, File, OpenHow, Reactor, ReactorLimits};

fn reactor(files_at_hand_max: u32, op_slots_max: usize) -> Reactor {
    let driver = RingDriver::new(RingConfig { files_at_hand_max, ..RingConfig::default() }).unwrap();
    Reactor::new(Box::new(driver), ReactorLimits { op_slots_max, ..ReactorLimits::default() })
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

async fn made(reactor: &Reactor, dir: &tempfile::TempDir, name: &str) -> File {
    reactor.open(&dir.path().join(name), OpenHow::write().create_new()).await.unwrap()
}

async fn write(file: &File, bytes: &[u8], offset: u64) {
    assert_eq!(file.write_at(bytes.to_vec(), offset, Durability::Dsync).await.0.unwrap(), bytes.len());
}

/// Polls once: the operation is in the queue then, and not yet with the kernel.
async fn begun<F: Future>(future: &mut Pin<Box<F>>) {
    assert!(std::future::poll_fn(|cx| std::task::Poll::Ready(future.as_mut().poll(cx).is_pending())).await);
}

async fn settled(reactor: &Reactor) {
    while reactor.counters().ops_in_flight > 0 {
        reactor.sleep(Duration::from_millis(1)).await;
    }
    // Closes without a slot are not counted.
    reactor.sleep(Duration::from_millis(5)).await;
}

#[test]
fn a_file_at_hand_is_written_synced_and_read_as_any_other() {
    let (dir, reactor) = (folder(), reactor(2, 64));
    reactor.block_on(async {
        let files = [made(&reactor, &dir, "a").await, made(&reactor, &dir, "b").await, made(&reactor, &dir, "c").await];
        let places: Vec<bool> = files.iter().map(File::keep_at_hand).collect();
        assert_eq!(places, [true, true, false], "two places");
        assert!(files[0].keep_at_hand(), "it has one already");
        assert_eq!(reactor.counters().files_at_hand, 2);
        for (file, byte) in files.iter().zip(*b"abc") {
            write(file, &[byte; 100], 0).await;
            // Several pieces.
            let pieces = [vec![byte; 10], vec![byte; 20]];
            assert_eq!(file.write_at(pieces, 100, Durability::None).await.0.unwrap(), 30);
            file.fdatasync().await.unwrap();
            file.fsync().await.unwrap();
            file.allocate(0, 200).await.unwrap();
            file.truncate(130).await.unwrap();
        }
        for (file, byte) in files.iter().zip(*b"abc") {
            let (read, bytes) = file.read_at(vec![0; 500], 0).await;
            assert_eq!((read.unwrap(), &bytes[..130]), (130, &[byte; 130][..]));
        }
    });
}

#[test]
fn a_place_is_free_again_once_its_file_is_closed() {
    let (dir, reactor) = (folder(), reactor(1, 64));
    reactor.block_on(async {
        let first = made(&reactor, &dir, "first").await;
        let second = made(&reactor, &dir, "second").await;
        assert!(first.keep_at_hand() && !second.keep_at_hand());
        first.close().await.unwrap();
        assert_eq!(reactor.counters().files_at_hand, 0);
        assert!(second.keep_at_hand());
        write(&second, b"second", 0).await;
        drop(second);
        settled(&reactor).await;
        let third = made(&reactor, &dir, "third").await;
        assert!(third.keep_at_hand());
        write(&third, b"third", 0).await;
    });
    assert_eq!(fs::read(dir.path().join("first")).unwrap(), b"");
    assert_eq!(fs::read(dir.path().join("second")).unwrap(), b"second");
    assert_eq!(fs::read(dir.path().join("third")).unwrap(), b"third");
}

#[test]
fn a_write_still_queued_when_its_file_is_dropped_never_reaches_the_next_file_of_the_place() {
    let (dir, reactor) = (folder(), reactor(1, 64));
    reactor.block_on(async {
        let other = made(&reactor, &dir, "other").await;
        let file = made(&reactor, &dir, "file").await;
        assert!(file.keep_at_hand());
        let mut queued = Box::pin(file.write_at(b"meant for file".to_vec(), 0, Durability::None));
        begun(&mut queued).await;
        drop(queued);
        drop(file);
        assert!(!other.keep_at_hand(), "entries that name the place are still in the queue");
        settled(&reactor).await;
        assert!(other.keep_at_hand());
        assert!(other.is_empty().unwrap());
    });
}

#[test]
fn a_write_still_queued_when_its_file_is_dropped_never_reaches_the_next_file_of_the_descriptor() {
    // One slot: the write has it, so that the close has none.
    let (dir, reactor) = (folder(), reactor(0, 1));
    reactor.block_on(async {
        let file = made(&reactor, &dir, "file").await;
        let number = file.handle().0;
        let mut queued = Box::pin(file.write_at(b"meant for file".to_vec(), 0, Durability::None));
        begun(&mut queued).await;
        drop(queued);
        drop(file);
        let others: Vec<fs::File> =
            (0..8).map(|n| fs::File::create(dir.path().join(format!("other-{n}"))).unwrap()).collect();
        assert!(others.iter().all(|other| other.as_raw_fd() != number), "still to be closed");
        settled(&reactor).await;
        assert!(others.iter().all(|other| other.metadata().unwrap().len() == 0));
        // Other tests open files meanwhile: the number may be taken again.
        let found = fs::read_link(format!("/proc/self/fd/{number}")).unwrap_or_default();
        assert_ne!(found, dir.path().join("file"), "closed");
    });
}

#[test]
fn where_the_kernel_refuses_the_table_of_files_all_go_without() {
    // More than RLIMIT_NOFILE.
    let (dir, reactor) = (folder(), reactor(u32::MAX, 64));
    reactor.block_on(async {
        let file = made(&reactor, &dir, "f").await;
        assert!(!file.keep_at_hand());
        write(&file, b"written all the same", 0).await;
    });
}

#[test]
fn a_folder_can_be_listed_while_another_thread_makes_and_removes_files() {
    let (dir, reactor) = (folder(), reactor(0, 64));
    let stop = std::sync::atomic::AtomicBool::new(false);
    for n in 0..50 {
        fs::write(dir.path().join(format!("stays-{n}")), b"").unwrap();
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                for n in 0..50 {
                    let path = dir.path().join(format!("goes-{n}"));
                    fs::write(&path, b"").unwrap();
                    fs::remove_file(&path).unwrap();
                }
            }
        });
        let listings: Vec<_> = (0..2000).map(|_| reactor.list_dir(dir.path())).collect();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        for listed in listings {
            let stays = listed.unwrap().iter().filter(|e| e.name.to_string_lossy().starts_with("stays")).count();
            assert_eq!(stays, 50);
        }
    });
}
