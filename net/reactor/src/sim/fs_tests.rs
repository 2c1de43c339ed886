//! What a power cut leaves of a simulated file system.

use std::path::Path;

use super::*;

/// Runs `before` on fresh file systems with 200 seeds, cuts the power, and gathers what `look` sees.
fn outcomes<T: Ord>(before: impl Fn(&mut FileSystem), look: impl Fn(&FileSystem) -> T) -> Vec<T> {
    let mut seen: Vec<T> = (0..200)
        .map(|seed| {
            let mut fs = FileSystem::new();
            before(&mut fs);
            fs.crash(&mut Rng::new(seed));
            look(&fs)
        })
        .collect();
    seen.sort();
    seen.dedup();
    seen
}

fn make(fs: &mut FileSystem, path: &str) -> Ino {
    fs.open(Path::new(path), OpenHow::write().create()).unwrap()
}

fn root_names(fs: &FileSystem) -> Vec<String> {
    fs.list(Path::new("/")).unwrap().into_iter().map(|e| e.name.into_string().unwrap()).collect()
}

#[test]
fn a_synced_file_in_a_synced_folder_survives_whole() {
    let before = |fs: &mut FileSystem| {
        let ino = make(fs, "/f");
        fs.write(ino, 0, &[7; 3000], false).unwrap();
        fs.sync(ino).unwrap();
        fs.sync(ROOT).unwrap();
    };
    assert_eq!(outcomes(before, |fs| fs.contents(Path::new("/f"))), [Some(vec![7; 3000])]);
}

#[test]
fn a_durable_write_survives_without_fsync_and_brings_its_length() {
    let before = |fs: &mut FileSystem| {
        let ino = make(fs, "/f");
        fs.sync(ROOT).unwrap();
        fs.write(ino, 4096, &[7; 4096], true).unwrap();
    };
    let mut want = vec![0; 8192];
    want[4096..].fill(7);
    assert_eq!(outcomes(before, |fs| fs.contents(Path::new("/f"))), [Some(want)]);
}

#[test]
fn unsynced_sectors_are_each_old_or_new() {
    let before = |fs: &mut FileSystem| {
        let ino = make(fs, "/f");
        fs.write(ino, 0, &[1; 1024], true).unwrap();
        fs.sync(ROOT).unwrap();
        fs.write(ino, 0, &[2; 1024], false).unwrap();
    };
    let seen = outcomes(before, |fs| {
        let bytes = fs.contents(Path::new("/f")).unwrap();
        assert_eq!(bytes.len(), 1024);
        assert!(bytes[..512].iter().all(|b| *b == bytes[0]), "a sector is never torn inside");
        (bytes[0], bytes[512])
    });
    assert_eq!(seen, [(1, 1), (1, 2), (2, 1), (2, 2)]);
}

#[test]
fn an_unsynced_length_is_old_new_or_between() {
    let before = |fs: &mut FileSystem| {
        let ino = make(fs, "/f");
        fs.sync(ROOT).unwrap();
        fs.write(ino, 0, &[2; 2048], false).unwrap();
    };
    let seen = outcomes(before, |fs| fs.contents(Path::new("/f")).unwrap().len());
    assert_eq!((seen[0], seen[seen.len() - 1]), (0, 2048));
    assert!(seen.len() > 2);
}

#[test]
fn a_folder_entry_without_fsync_of_the_folder_may_be_lost() {
    let before = |fs: &mut FileSystem| {
        let ino = make(fs, "/f");
        fs.write(ino, 0, &[1], false).unwrap();
        fs.sync(ino).unwrap();
    };
    assert_eq!(outcomes(before, |fs| fs.contents(Path::new("/f"))), [None, Some(vec![1])]);
}

#[test]
fn a_rename_is_whole_or_not_at_all() {
    let before = |fs: &mut FileSystem| {
        fs.put(Path::new("/new"), b"new").unwrap();
        fs.put(Path::new("/current"), b"old").unwrap();
        fs.rename(Path::new("/new"), Path::new("/current")).unwrap();
    };
    let seen = outcomes(before, |fs| (root_names(fs).len(), fs.contents(Path::new("/current")).unwrap()));
    assert_eq!(seen, [(1, b"new".to_vec()), (2, b"old".to_vec())]);
}

#[test]
fn a_synced_rename_stays_even_if_the_creation_was_not_synced() {
    let before = |fs: &mut FileSystem| {
        fs.mkdir_all(Path::new("/a"));
        fs.mkdir_all(Path::new("/b"));
        let ino = make(fs, "/a/f");
        fs.sync(ino).unwrap();
        fs.rename(Path::new("/a/f"), Path::new("/b/f")).unwrap();
        fs.sync(fs.find(Path::new("/b")).unwrap()).unwrap();
    };
    let seen = outcomes(before, |fs| (fs.contents(Path::new("/a/f")), fs.contents(Path::new("/b/f"))));
    assert_eq!(seen, [(None, Some(vec![]))]);
}

#[test]
fn an_unlinked_file_may_come_back_until_the_folder_is_synced() {
    let unlink = |fs: &mut FileSystem| {
        fs.put(Path::new("/f"), b"x").unwrap();
        fs.unlink(Path::new("/f"), false).unwrap();
    };
    assert_eq!(outcomes(unlink, root_names), [vec![], vec!["f".to_owned()]]);
    let unlink_and_sync = |fs: &mut FileSystem| {
        unlink(fs);
        fs.sync(ROOT).unwrap();
    };
    assert_eq!(outcomes(unlink_and_sync, root_names), [Vec::<String>::new()]);
}

#[test]
fn what_a_truncation_cut_off_may_come_back_until_it_is_synced() {
    let before = |fs: &mut FileSystem| {
        fs.put(Path::new("/f"), &[1; 1024]).unwrap();
        let ino = fs.find(Path::new("/f")).unwrap();
        fs.truncate(ino, 512).unwrap();
        fs.allocate(ino, 1024).unwrap();
    };
    let seen = outcomes(before, |fs| fs.contents(Path::new("/f")).unwrap()[512..].first().copied());
    assert_eq!(seen, [Some(0), Some(1)]);
}

#[test]
fn an_fsync_after_a_failed_one_saves_nothing_of_what_was_dropped() {
    let before = |fs: &mut FileSystem| {
        fs.put(Path::new("/f"), &[1; 512]).unwrap();
        let ino = fs.find(Path::new("/f")).unwrap();
        fs.write(ino, 0, &[2; 512], false).unwrap();
        fs.sync_failed(ino);
        fs.sync(ino).unwrap();
    };
    assert_eq!(outcomes(before, |fs| fs.contents(Path::new("/f")).unwrap()[0]), [1, 2]);
}

#[test]
fn removed_files_free_their_space_when_nobody_uses_them() {
    let mut fs = FileSystem::new();
    let ino = make(&mut fs, "/f");
    fs.write(ino, 0, &[1; 5000], false).unwrap();
    assert_eq!(fs.used_bytes(), 8192);
    fs.unlink(Path::new("/f"), false).unwrap();
    assert_eq!(fs.used_bytes(), 8192, "still open");
    fs.release(ino);
    assert_eq!(fs.used_bytes(), 0);
    fs.sync(ROOT).unwrap();
    assert_eq!(fs.inodes.len(), 1);
}

#[test]
fn folders_follow_the_usual_rules() {
    let mut fs = FileSystem::new();
    fs.mkdir(Path::new("/d")).unwrap();
    assert_eq!(fs.mkdir(Path::new("/d")), Err(libc::EEXIST));
    make(&mut fs, "/d/f");
    assert_eq!(fs.unlink(Path::new("/d"), true), Err(libc::ENOTEMPTY));
    assert_eq!(fs.unlink(Path::new("/d"), false), Err(libc::EISDIR));
    assert_eq!(fs.unlink(Path::new("/d/f"), true), Err(libc::ENOTDIR));
    assert_eq!(fs.find(Path::new("/d/f/x")), Err(libc::ENOTDIR));
    assert_eq!(fs.open(Path::new("/d"), OpenHow::write()), Err(libc::EISDIR));
    assert_eq!(fs.open(Path::new("/d/f"), OpenHow::read().directory()), Err(libc::ENOTDIR));
    assert_eq!(fs.open(Path::new("/d/f"), OpenHow::write().create_new()), Err(libc::EEXIST));
    assert_eq!(fs.open(Path::new("/nowhere/f"), OpenHow::write().create()), Err(libc::ENOENT));
    assert!(fs.find(Path::new("d/../d/f")).is_ok());
}
