//! Holds: the tests of the FUSE disk itself: what it must lose at a power cut, and what it must never lose.
//! Never touches: the broker.

mod support;

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use support::direct::{Aligned, BLOCK_BYTES, allocate, open_direct, sync_dir, write_at};
use support::fuse_disk::FuseDisk;

fn block(byte: u8) -> Aligned {
    Aligned::from_bytes(&[byte; BLOCK_BYTES])
}

/// A durable file of two blocks of ones, its folder entry synced.
fn durable_file(path: &Path) -> File {
    let file = open_direct(path).expect("create");
    write_at(&file, Aligned::from_bytes(&[1; 2 * BLOCK_BYTES]).as_ref(), 0, true).expect("durable write");
    sync_dir(path.parent().expect("a folder")).expect("folder sync");
    file
}

#[test]
fn bytes_written_without_a_sync_can_be_lost_sector_by_sector() {
    let Some(mut disk) = FuseDisk::for_test("bytes_written_without_a_sync_can_be_lost_sector_by_sector") else {
        return;
    };
    let (mut all_old, mut all_new, mut mixed) = (0, 0, 0);
    for seed in 0..40 {
        let path = disk.join("f");
        let file = durable_file(&path);
        write_at(&file, block(2).as_ref(), 0, false).expect("write");
        drop(file);
        disk.power_cut(seed, || {});
        let bytes = fs::read(&path).expect("read");
        assert_eq!(bytes.len(), 2 * BLOCK_BYTES, "the synced length is kept");
        assert!(bytes[BLOCK_BYTES..].iter().all(|&byte| byte == 1), "the block that was not written again is kept");
        for sector in bytes[..BLOCK_BYTES].chunks(512) {
            assert!(sector.iter().all(|&byte| byte == sector[0]), "a sector is old or new as a whole");
        }
        match (bytes[..BLOCK_BYTES].contains(&1), bytes[..BLOCK_BYTES].contains(&2)) {
            (true, false) => all_old += 1,
            (false, true) => all_new += 1,
            _ => mixed += 1,
        }
    }
    assert!(all_old > 0 && all_new > 0 && mixed > 0, "old {all_old}, new {all_new}, mixed {mixed}: each must occur");
}

#[test]
fn bytes_written_with_dsync_or_before_an_fsync_are_never_lost() {
    let Some(mut disk) = FuseDisk::for_test("bytes_written_with_dsync_or_before_an_fsync_are_never_lost") else {
        return;
    };
    for seed in 0..20 {
        let path = disk.join("f");
        let file = durable_file(&path);
        write_at(&file, block(2).as_ref(), 0, true).expect("durable write");
        write_at(&file, block(3).as_ref(), 2 * BLOCK_BYTES as u64, false).expect("write");
        file.sync_data().expect("fdatasync");
        drop(file);
        disk.power_cut(seed, || {});
        let bytes = fs::read(&path).expect("read");
        assert_eq!(bytes.len(), 3 * BLOCK_BYTES, "fdatasync makes a grown length durable");
        for (index, expected) in [2, 1, 3].into_iter().enumerate() {
            let part = &bytes[index * BLOCK_BYTES..(index + 1) * BLOCK_BYTES];
            assert!(part.iter().all(|&byte| byte == expected), "block {index} is not all {expected} (seed {seed})");
        }
        fs::remove_file(&path).expect("remove");
    }
}

#[test]
fn a_direct_dsync_write_reaches_the_disk_as_one_write_and_one_sync() {
    let Some(disk) = FuseDisk::for_test("a_direct_dsync_write_reaches_the_disk_as_one_write_and_one_sync") else {
        return;
    };
    let file = open_direct(&disk.join("f")).expect("create");
    let before = disk.counters();
    for index in 0..10 {
        write_at(&file, block(7).as_ref(), index * BLOCK_BYTES as u64, true).expect("durable write");
    }
    let after = disk.counters();
    assert_eq!(after.writes - before.writes, 10, "writes");
    assert_eq!(after.file_syncs - before.file_syncs, 10, "file syncs");
    sync_dir(disk.path()).expect("folder sync");
    assert_eq!(disk.counters().dir_syncs - after.dir_syncs, 1, "folder syncs");
}

/// One durable write through the ring, waited for.
fn write_through_ring(ring: &mut io_uring::IoUring, file: &File, bytes: &[u8], offset: u64) {
    let part = [libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }];
    let write = io_uring::opcode::Writev::new(io_uring::types::Fd(file.as_raw_fd()), part.as_ptr(), 1)
        .offset(offset)
        .rw_flags(libc::RWF_DSYNC)
        .build();
    // SAFETY: the iovec, its bytes and the file live until the completion has been reaped below.
    unsafe { ring.submission().push(&write).expect("room in the ring") };
    ring.submit_and_wait(1).expect("submit");
    assert_eq!(ring.completion().next().expect("a completion").result(), bytes.len() as i32);
}

#[test]
fn direct_writes_through_io_uring_are_durable_when_they_grow_a_file_and_when_they_do_not() {
    let test = "direct_writes_through_io_uring_are_durable_when_they_grow_a_file_and_when_they_do_not";
    let Some(mut disk) = FuseDisk::for_test(test) else { return };
    let mut ring = io_uring::IoUring::new(4).expect("a ring");
    for seed in 0..10 {
        let file = durable_file(&disk.join("f"));
        file.set_len(2 * BLOCK_BYTES as u64).expect("ftruncate");
        for (blocks, byte) in [(3, 9), (2, 8)] {
            let before = disk.counters().file_syncs;
            let bytes = Aligned::from_bytes(&vec![byte; blocks * BLOCK_BYTES]);
            write_through_ring(&mut ring, &file, bytes.as_ref(), 0);
            assert_eq!(disk.counters().file_syncs - before, 1, "syncs for a write of {blocks} blocks");
        }
        drop(file);
        disk.power_cut(seed, || {});
        let file = open_direct(&disk.join("f")).expect("open");
        let mut back = Aligned::from_bytes(&[0; 3 * BLOCK_BYTES]);
        assert_eq!(file.read_at(back.as_mut(), 0).expect("read"), 3 * BLOCK_BYTES);
        let expected = [vec![8; 2 * BLOCK_BYTES], vec![9; BLOCK_BYTES]].concat();
        assert!(back.as_ref() == expected, "seed {seed}");
    }
}

#[test]
fn a_created_file_can_vanish_until_its_folder_is_synced() {
    let Some(mut disk) = FuseDisk::for_test("a_created_file_can_vanish_until_its_folder_is_synced") else {
        return;
    };
    let (mut vanished, mut stayed) = (0, 0);
    for seed in 0..40 {
        let path = disk.join(format!("f{seed}"));
        let file = open_direct(&path).expect("create");
        write_at(&file, block(1).as_ref(), 0, true).expect("durable write");
        drop(file);
        disk.power_cut(seed, || {});
        match fs::read(&path) {
            Ok(bytes) => {
                stayed += 1;
                assert_eq!(bytes, block(1).as_ref(), "a synced file that is there has its bytes");
            }
            Err(error) => {
                vanished += 1;
                assert_eq!(error.kind(), io::ErrorKind::NotFound);
            }
        }
    }
    assert!(vanished > 0 && stayed > 0, "vanished {vanished}, stayed {stayed}: each must occur");
}

#[test]
fn a_folder_sync_keeps_created_files_and_no_folder_above_it() {
    let Some(mut disk) = FuseDisk::for_test("a_folder_sync_keeps_created_files_and_no_folder_above_it") else {
        return;
    };
    let (mut vanished, mut stayed) = (0, 0);
    for seed in 0..40 {
        let (kept, unsynced) = (disk.join(format!("kept{seed}")), disk.join(format!("unsynced{seed}")));
        fs::create_dir(&kept).expect("mkdir");
        sync_dir(disk.path()).expect("folder sync");
        fs::create_dir(&unsynced).expect("mkdir");
        drop(durable_file(&kept.join("f")));
        drop(durable_file(&unsynced.join("f")));
        disk.power_cut(seed, || {});
        assert!(kept.join("f").exists(), "a file whose folders are synced all the way up (seed {seed})");
        if unsynced.join("f").exists() { stayed += 1 } else { vanished += 1 }
    }
    assert!(vanished > 0 && stayed > 0, "vanished {vanished}, stayed {stayed}: each must occur");
}

#[test]
fn an_unsynced_rename_is_undone_or_done_but_never_loses_both_names() {
    let Some(mut disk) = FuseDisk::for_test("an_unsynced_rename_is_undone_or_done_but_never_loses_both_names") else {
        return;
    };
    let (mut old, mut new) = (0, 0);
    for seed in 0..40 {
        let (from, to) = (disk.join("from"), disk.join("to"));
        let file = durable_file(&to);
        drop(file);
        let file = open_direct(&from).expect("create");
        write_at(&file, block(2).as_ref(), 0, true).expect("durable write");
        drop(file);
        sync_dir(disk.path()).expect("folder sync");
        fs::rename(&from, &to).expect("rename");
        disk.power_cut(seed, || {});
        let bytes = fs::read(&to).expect("the name that is replaced never vanishes");
        match (from.exists(), bytes[0]) {
            (true, 1) => old += 1,
            (false, 2) => new += 1,
            state => panic!("half a rename: source exists, target holds {state:?} (seed {seed})"),
        }
    }
    assert!(old > 0 && new > 0, "undone {old}, done {new}: each must occur");
    for (seed, dir) in [(1, "a"), (2, "b")] {
        for name in ["a", "b"] {
            let _ = fs::create_dir(disk.join(name));
        }
        sync_dir(disk.path()).expect("folder sync");
        drop(durable_file(&disk.join("a/f")));
        fs::rename(disk.join("a/f"), disk.join("b/f")).expect("rename");
        sync_dir(&disk.join(dir)).expect("folder sync");
        disk.power_cut(seed, || {});
        assert!(
            !disk.join("a/f").exists() && disk.join("b/f").exists(),
            "a rename is durable by the sync of either folder"
        );
        fs::remove_file(disk.join("b/f")).expect("remove");
    }
}

#[test]
fn an_unsynced_removal_can_be_undone_and_a_synced_one_cannot() {
    let Some(mut disk) = FuseDisk::for_test("an_unsynced_removal_can_be_undone_and_a_synced_one_cannot") else {
        return;
    };
    let (mut back, mut gone) = (0, 0);
    for seed in 0..40 {
        drop(durable_file(&disk.join("unsynced")));
        drop(durable_file(&disk.join("synced")));
        fs::remove_file(disk.join("synced")).expect("remove");
        sync_dir(disk.path()).expect("folder sync");
        fs::remove_file(disk.join("unsynced")).expect("remove");
        disk.power_cut(seed, || {});
        assert!(!disk.join("synced").exists(), "a synced removal (seed {seed})");
        if disk.join("unsynced").exists() {
            back += 1;
            assert_eq!(
                fs::read(disk.join("unsynced")).expect("read"),
                [1; 2 * BLOCK_BYTES],
                "it comes back with its bytes"
            );
        } else {
            gone += 1;
        }
    }
    assert!(back > 0 && gone > 0, "back {back}, gone {gone}: each must occur");
}

#[test]
fn a_change_of_a_name_never_survives_without_the_changes_before_it() {
    let Some(mut disk) = FuseDisk::for_test("a_change_of_a_name_never_survives_without_the_changes_before_it") else {
        return;
    };
    for seed in 0..60 {
        let path = disk.join("f");
        for round in 1..=4u8 {
            // The usual replacement: a new file under another name, synced, renamed over the old one, folder not synced.
            let file = File::create(disk.join("new")).expect("create");
            file.write_at(&[round; 100], 0).expect("write");
            file.sync_all().expect("fsync");
            fs::rename(disk.join("new"), &path).expect("rename");
        }
        disk.power_cut(seed, || {});
        match fs::read(&path) {
            Ok(bytes) => assert!(bytes.len() == 100 && bytes.iter().all(|&byte| byte == bytes[0]), "one whole version"),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::NotFound),
        }
        let _ = fs::remove_file(&path);
        let _ = fs::remove_file(disk.join("new"));
        sync_dir(disk.path()).expect("folder sync");
    }
}

#[test]
fn a_write_during_a_sync_is_not_covered_by_it() {
    let Some(mut disk) = FuseDisk::for_test("a_write_during_a_sync_is_not_covered_by_it") else {
        return;
    };
    let mut lost = 0;
    for seed in 0..20 {
        disk.set_sync_time_max(Duration::ZERO);
        let path = disk.join("f");
        let file = durable_file(&path);
        disk.set_sync_time_max(Duration::from_millis(30));
        std::thread::scope(|scope| {
            let syncing = scope.spawn(|| file.sync_data().expect("fdatasync"));
            // If the sync happens to be over before, the write is unsynced all the same.
            std::thread::sleep(Duration::from_millis(3));
            write_at(&file, block(2).as_ref(), 0, false).expect("write");
            syncing.join().expect("the syncing thread");
        });
        drop(file);
        disk.power_cut(seed, || {});
        lost += usize::from(fs::read(&path).expect("read")[..BLOCK_BYTES].contains(&1));
    }
    assert!(lost > 0, "a write that came after the sync's start was never lost");
}

#[test]
fn lengths_and_allocations_are_as_durable_as_their_sync() {
    let Some(mut disk) = FuseDisk::for_test("lengths_and_allocations_are_as_durable_as_their_sync") else {
        return;
    };
    let path = disk.join("f");
    let file = durable_file(&path);
    allocate(&file, 0, 0, 64 << 20).expect("fallocate");
    assert_eq!(file.metadata().expect("stat").len(), 64 << 20);
    file.sync_all().expect("fsync");
    file.set_len(BLOCK_BYTES as u64).expect("ftruncate");
    file.sync_all().expect("fsync");
    file.set_len(3 * BLOCK_BYTES as u64).expect("ftruncate");
    file.sync_all().expect("fsync");
    allocate(&file, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, 0, 512).expect("punch");
    file.sync_all().expect("fsync");
    drop(file);
    disk.power_cut(3, || {});
    let bytes = fs::read(&path).expect("read");
    assert_eq!(bytes.len(), 3 * BLOCK_BYTES);
    assert!(bytes[..512].iter().all(|&byte| byte == 0), "the hole");
    assert!(bytes[512..BLOCK_BYTES].iter().all(|&byte| byte == 1), "the rest of the first block");
    assert!(bytes[BLOCK_BYTES..].iter().all(|&byte| byte == 0), "what was cut off does not come back");
}

#[test]
fn a_program_killed_at_the_cut_leaves_a_disk_that_can_be_used() {
    let Some(mut disk) = FuseDisk::for_test("a_program_killed_at_the_cut_leaves_a_disk_that_can_be_used") else {
        return;
    };
    disk.set_sync_time_max(Duration::from_millis(1));
    for seed in 0..5 {
        let path = disk.join("counter");
        // Each line is durable before the next begins; what the program prints is an acknowledgement.
        let script = "i=0; while :; do i=$((i+1)); echo $i >> \"$1\"; sync \"$1\" \"$2\"; echo $i; done";
        let mut child = std::process::Command::new("sh")
            .args(["-c", script, "sh"])
            .args([path.as_path(), disk.path()])
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("a shell");
        std::thread::sleep(Duration::from_millis(150));
        disk.power_cut(seed, || child.kill().expect("kill"));
        let output = child.wait_with_output().expect("wait");
        let acknowledged = String::from_utf8_lossy(&output.stdout).lines().count();
        let text = String::from_utf8_lossy(&fs::read(&path).expect("read")).into_owned();
        let kept = text.lines().take_while(|line| !line.is_empty()).count();
        assert!(acknowledged > 0 && kept >= acknowledged, "{acknowledged} acknowledged, {kept} kept (seed {seed})");
        fs::remove_file(&path).expect("the disk can be used again");
    }
}
