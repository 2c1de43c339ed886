//! Holds: the tests of the FUSE disk as a file system: what it supports, how it fills up and fails on demand.
//! Never touches: power cuts, the broker.

mod support;

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use support::direct::{Aligned, BLOCK_BYTES, allocate, open_direct, write_at};
use support::fuse_disk::{Fault, FaultOn, FuseDisk};

fn block(byte: u8) -> Aligned {
    Aligned::from_bytes(&[byte; BLOCK_BYTES])
}

#[test]
fn a_segment_of_zeroes_costs_neither_memory_nor_much_time() {
    let Some(disk) = FuseDisk::for_test("a_segment_of_zeroes_costs_neither_memory_nor_much_time") else {
        return;
    };
    let file = open_direct(&disk.join("segment")).expect("create");
    let zeroes = Aligned::from_bytes(&vec![0; 1 << 20]);
    for index in 0..64 {
        write_at(&file, zeroes.as_ref(), index << 20, false).expect("write");
    }
    file.sync_all().expect("fsync");
    assert_eq!(file.metadata().expect("stat").len(), 64 << 20);
    assert!(disk.bytes_used() >= 64 << 20, "zeroes take up space on the disk");
}

#[test]
fn a_full_disk_refuses_growth_and_takes_it_again_when_there_is_room() {
    let Some(disk) = FuseDisk::for_test("a_full_disk_refuses_growth_and_takes_it_again_when_there_is_room") else {
        return;
    };
    disk.set_capacity(64 << 10);
    let file = open_direct(&disk.join("f")).expect("create");
    let refused = (0..100).find_map(|index| write_at(&file, block(1).as_ref(), index * BLOCK_BYTES as u64, true).err());
    assert_eq!(refused.expect("a refusal").raw_os_error(), Some(libc::ENOSPC));
    write_at(&file, block(2).as_ref(), 0, true).expect("overwriting needs no room");
    assert_eq!(allocate(&file, 0, 0, 1 << 20).expect_err("no room").raw_os_error(), Some(libc::ENOSPC));
    disk.set_capacity(64 << 20);
    allocate(&file, 0, 0, 1 << 20).expect("room again");
}

#[test]
fn faults_hit_the_paths_and_operations_that_they_name() {
    let Some(disk) = FuseDisk::for_test("faults_hit_the_paths_and_operations_that_they_name") else {
        return;
    };
    let (bad, good) =
        (open_direct(&disk.join("bad.log")).expect("create"), open_direct(&disk.join("good.log")).expect("create"));
    for on in [FaultOn::Write, FaultOn::Sync] {
        disk.add_fault(Fault { path_part: "bad".to_owned(), on, errno: libc::EIO });
        let error = write_at(&bad, block(1).as_ref(), 0, true).expect_err("a fault");
        assert_eq!(error.raw_os_error(), Some(libc::EIO), "{on:?}");
        write_at(&good, block(1).as_ref(), 0, true).expect("the other file");
        disk.clear_faults();
        write_at(&bad, block(1).as_ref(), 0, true).expect("the fault is lifted");
    }
    disk.add_fault(Fault { path_part: "bad".to_owned(), on: FaultOn::Read, errno: libc::EIO });
    assert_eq!(fs::read(disk.join("bad.log")).expect_err("a fault").raw_os_error(), Some(libc::EIO));
    disk.add_fault(Fault { path_part: "never".to_owned(), on: FaultOn::Entry, errno: libc::EROFS });
    assert_eq!(File::create(disk.join("never")).expect_err("a fault").raw_os_error(), Some(libc::EROFS));
    assert!(disk.counters().refusals >= 4, "refusals are counted");
}

#[test]
fn the_folder_behaves_as_a_file_system() {
    let Some(disk) = FuseDisk::for_test("the_folder_behaves_as_a_file_system") else {
        return;
    };
    let path = disk.join("d/e/f");
    fs::create_dir_all(disk.join("d/e")).expect("mkdir");
    fs::write(&path, b"hello").expect("write");
    OpenOptions::new().append(true).open(&path).expect("open").write_all(b" world").expect("append");
    assert_eq!(fs::read(&path).expect("read"), b"hello world");
    assert_eq!(fs::remove_dir(disk.join("d")).expect_err("not empty").raw_os_error(), Some(libc::ENOTEMPTY));

    let open = File::open(&path).expect("open");
    fs::remove_file(&path).expect("unlink");
    assert!(!path.exists());
    let mut back = [0; 11];
    open.read_exact_at(&mut back, 0).expect("an unlinked file that is open can be read");
    assert_eq!(&back, b"hello world");

    for index in 0..500 {
        fs::write(disk.join(format!("d/{index:03}")), [0; 10]).expect("write");
    }
    let mut names: Vec<_> =
        fs::read_dir(disk.join("d")).expect("list").map(|entry| entry.expect("entry").file_name()).collect();
    names.sort();
    assert_eq!(names.len(), 501, "500 files and a folder");

    let c_string = |path: PathBuf| CString::new(path.as_os_str().as_bytes()).expect("no zero byte");
    let (from, to) = (c_string(disk.join("d/000")), c_string(disk.join("d/001")));
    // SAFETY: both strings end in a zero byte and live across the call.
    let done =
        unsafe { libc::renameat2(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), libc::RENAME_NOREPLACE) };
    assert_eq!(
        (done, io::Error::last_os_error().raw_os_error()),
        (-1, Some(libc::EEXIST)),
        "RENAME_NOREPLACE over a file"
    );
    fs::hard_link(disk.join("d/000"), disk.join("d/linked")).expect("link");

    let (first, second) =
        (File::create(disk.join("lock")).expect("create"), File::open(disk.join("lock")).expect("open"));
    first.try_lock().expect("the first lock");
    assert!(second.try_lock().is_err(), "flock excludes");
    drop(first);
    second.try_lock().expect("the lock is free again");
}
