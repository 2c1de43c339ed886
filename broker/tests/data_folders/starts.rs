//! Holds: what a start finds: folders that are new, missing, moved, damaged, somebody else's; partitions in the wrong one.
//! Never touches: folders that fail while the broker runs (`failures`).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::client::{Client, PARTITIONS, PATIENCE, STORAGE_ERROR, assert_leaders, filled, in_folder, setup, stop};
use crate::support::admin::Admin;
use crate::support::fuse_disk::{Fault, FaultOn, FuseDisk};

#[test]
fn partitions_are_spread_over_the_folders_and_found_there_again() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let (a, b) = (data.path().join("a"), data.path().join("b"));
    let (setup, mut broker, mut client, in_a, in_b) = filled(&a, &b);
    let all: Vec<i32> = (0..PARTITIONS).collect();
    for by_kill in [true, false] {
        if by_kill {
            broker.kill()
        } else {
            stop(&mut broker)
        }
        broker = setup.start();
        client.again(&setup);
        client.assert_holds(&all);
        client.produce_to_all(&all, 3);
        let expected = BTreeMap::from([(a.clone(), (0, in_a.clone())), (b.clone(), (0, in_b.clone()))]);
        assert_eq!(client.log_dirs(), expected);
    }
    assert!(!b.join("__cluster_metadata-0").exists(), "the metadata log is in the first folder alone");
    let id = |folder: &Path| fs::read_to_string(folder.join("meta.properties")).expect("meta.properties");
    let line = |text: &str, key: &str| text.lines().find(|l| l.starts_with(key)).map(str::to_owned);
    assert_eq!(line(&id(&a), "cluster.id"), line(&id(&b), "cluster.id"));
    assert_ne!(line(&id(&a), "directory.id"), line(&id(&b), "directory.id"));
}

#[test]
fn an_export_of_all_folders_is_one_that_a_kafka_starts_on_and_one_of_them_alone_is_refused() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let (a, b) = (data.path().join("a"), data.path().join("b"));
    let (_setup, mut broker, _client, in_a, in_b) = filled(&a, &b);
    // Killed: what was acknowledged is in the commit logs of both folders.
    broker.kill();
    let into = data.path().join("kafka");
    let export = |from: &[&Path]| {
        let from: Vec<String> = from.iter().map(|path| path.display().to_string()).collect();
        let mut command = Command::new(env!("CARGO_BIN_EXE_corelog"));
        command.args(["export", "--from", &from.join(",")]).arg("--into").arg(&into).output().expect("corelog runs")
    };
    let refused = |from: &[&Path], words: &str| {
        let output = export(from);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(65) && said.contains(words), "{words:?} is not in {output:?}");
        assert!(!into.exists());
    };
    refused(&[&a], "which was not named: give --from all of log.dirs");
    refused(&[&b, &a], "it is not the first data folder");
    assert!(!b.join("__cluster_metadata-0").exists(), "nothing is made there");
    let output = export(&[&a, &b]);
    assert!(output.status.success(), "{output:?}");
    let mut sizes = BTreeMap::new();
    for (folder, partitions) in [(&a, &in_a), (&b, &in_b)] {
        for partition in partitions {
            let log = format!("t-{partition}/00000000000000000000.log");
            let bytes = fs::read(into.join(&log)).unwrap_or_else(|error| panic!("{log}: {error}"));
            // The source's file ends where its batches do, once the log was opened and closed.
            assert_eq!(bytes, fs::read(folder.join(&log)).expect("a segment"), "{log}");
            sizes.insert(*partition, bytes.len());
        }
    }
    assert!(sizes.len() == PARTITIONS as usize && sizes.values().all(|bytes| *bytes > 0), "{sizes:?}");
    let points = fs::read_to_string(into.join("recovery-point-offset-checkpoint")).expect("Kafka's checkpoint");
    assert_eq!(points.lines().nth(1), Some(PARTITIONS.to_string().as_str()), "{points}");
    assert!(points.lines().skip(2).all(|line| !line.ends_with(" 0")), "{points}");
}

#[test]
fn a_broker_with_one_folder_takes_a_second_one_and_keeps_its_partitions() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let (a, b) = (data.path().join("a"), data.path().join("b"));
    let one = setup(&[&a]);
    let mut broker = one.start();
    Admin::new(&one.bootstrap(), PATIENCE).create_topic("t", 2, &[]).expect("a topic");
    let mut client = Client::new(&one);
    client.produce_to_all(&[0, 1], 3);
    broker.kill();

    let two = setup(&[&a, &b]);
    let mut broker = two.start();
    Admin::new(&two.bootstrap(), PATIENCE).create_partitions("t", 4).expect("more partitions");
    assert_eq!((in_folder(&a), in_folder(&b)), (vec![0, 1], vec![2, 3]));
    client.again(&two);
    client.produce_to_all(&[0, 1, 2, 3], 3);
    broker.kill();

    // And without it: what it has is offline, not made anew.
    let mut broker = one.start();
    client.again(&one);
    client.assert_holds(&[0, 1]);
    client.produce_to_all(&[0, 1], 1);
    assert_eq!((client.produce(2), client.fetch_error(3)), (STORAGE_ERROR, STORAGE_ERROR));
    assert_leaders(&mut client, &[0, 1], &[2, 3]);
    assert_eq!(in_folder(&a), [0, 1]);
    stop(&mut broker);
    let _broker = two.start();
    client.again(&two);
    client.assert_holds(&[0, 1, 2, 3]);
    client.produce_to_all(&[0, 1, 2, 3], 1);
}

#[test]
fn a_folder_that_is_not_mounted_is_offline_and_nothing_is_made_in_its_place() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let (a, b, away) = (data.path().join("a"), data.path().join("b"), data.path().join("away"));
    let (setup, mut broker, mut client, in_a, in_b) = filled(&a, &b);
    broker.kill();
    fs::rename(&b, &away).expect("a disk that goes");
    for is_mount_point_left in [false, true] {
        if is_mount_point_left {
            fs::create_dir(&b).expect("a mount point");
        }
        let mut broker = setup.start();
        broker.log_with("is its disk mounted?");
        client.again(&setup);
        client.produce_to_all(&in_a, 3);
        client.assert_holds(&in_a);
        for &partition in &in_b {
            assert_eq!((client.produce(partition), client.fetch_error(partition)), (STORAGE_ERROR, STORAGE_ERROR));
        }
        assert_leaders(&mut client, &in_a, &in_b);
        assert_eq!(client.log_dirs()[&b], (STORAGE_ERROR, vec![]));
        assert_eq!(client.log_dirs()[&a], (0, in_a.clone()));
        let admin = Admin::new(&setup.bootstrap(), PATIENCE);
        let other = format!("other-{is_mount_point_left}");
        admin.create_topic(&other, 2, &[]).expect("a topic, on what is there");
        assert!(a.join(format!("{other}-0")).exists() && a.join(format!("{other}-1")).exists());
        stop(&mut broker);
        let left = fs::read_dir(&b).map_or(0, Iterator::count);
        assert_eq!(left, 0, "something was made where the disk should be");
    }
    fs::remove_dir(&b).expect("the mount point");
    fs::rename(&away, &b).expect("the disk is back");
    let _broker = setup.start();
    client.again(&setup);
    let all: Vec<i32> = (0..PARTITIONS).collect();
    client.assert_holds(&all);
    assert_leaders(&mut client, &all, &[]);
    client.produce_to_all(&all, 2);
    client.assert_holds(&all);
}

#[test]
fn disks_may_change_places() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let (a, b, c) = (data.path().join("a"), data.path().join("b"), data.path().join("c"));
    let (_setup, mut broker, mut client, in_a, in_b) = filled(&a, &b);
    stop(&mut broker);
    fs::rename(&b, &c).expect("another path");
    // What is at the old path then is new.
    for folders in [&[a.as_path(), &c][..], &[&a, &c, &b]] {
        let setup = setup(folders);
        let mut broker = setup.start();
        client.again(&setup);
        client.assert_holds(&[in_a.clone(), in_b.clone()].concat());
        client.produce_to_all(&in_b, 2);
        assert_eq!(client.log_dirs()[&c], (0, in_b.clone()));
        assert_eq!(client.log_dirs().get(&b), (folders.len() == 3).then_some(&(0, vec![])));
        stop(&mut broker);
    }
}

#[test]
fn a_disk_at_the_path_of_one_that_is_missing_does_not_make_that_ones_path_a_new_folder() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let [a, b, c, away] = ["a", "b", "c", "away"].map(|name| data.path().join(name));
    let setup = setup(&[&a, &b, &c]);
    let mut broker = setup.start();
    Admin::new(&setup.bootstrap(), PATIENCE).create_topic("t", PARTITIONS as usize, &[]).expect("a topic");
    let (in_a, in_b, in_c) = (in_folder(&a), in_folder(&b), in_folder(&c));
    let mut client = Client::new(&setup);
    client.produce_to_all(&(0..PARTITIONS).collect::<Vec<_>>(), 3);
    stop(&mut broker);
    fs::rename(&b, &away).expect("a disk that goes");
    fs::rename(&c, &b).expect("a disk in its place");
    fs::create_dir(&c).expect("a mount point");
    let mut broker = setup.start();
    broker.log_with("is its disk mounted?");
    client.again(&setup);
    client.assert_holds(&[in_a, in_c.clone()].concat());
    assert_eq!((client.produce(in_b[0]), client.produce(in_c[0])), (STORAGE_ERROR, 0));
    stop(&mut broker);
    assert_eq!(fs::read_dir(&c).expect("the mount point").count(), 0, "something was made where a disk should be");

    fs::remove_dir(&c).expect("the mount point");
    fs::rename(&b, &c).expect("the one goes back");
    fs::rename(&away, &b).expect("and so does the other");
    let _broker = setup.start();
    client.again(&setup);
    client.assert_holds(&(0..PARTITIONS).collect::<Vec<_>>());
}

#[test]
fn a_folder_that_is_not_this_brokers_stops_the_start_and_nothing_is_changed() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| data.path().join(name);
    let (a, b) = (path("a"), path("b"));
    let (_setup, mut broker, _, _, _) = filled(&a, &b);
    let said = |folders: &[&Path], words: &str| {
        let failure = setup(folders).try_start().expect_err("a start that is refused");
        assert_eq!(failure.exit.and_then(|exit| exit.code()), Some(73), "{failure}");
        assert!(failure.log.contains(words), "{failure}");
    };
    let other = path("other");
    stop(&mut setup(&[&other]).start());
    said(&[&other, &b], "is in use by process");
    stop(&mut broker);
    said(&[&b, &a], "belongs in");
    said(&[&path("first"), &b], "Is its disk mounted?");
    assert!(!path("first").exists());
    said(&[&a, &b, &other], "the metadata log (__cluster_metadata-0) is in");
    fs::remove_dir_all(other.join("__cluster_metadata-0")).expect("the other's metadata");
    said(&[&a, &b, &other], "is a data folder of cluster");
    let copied = std::process::Command::new("cp").arg("-a").arg(&b).arg(path("copy")).status();
    assert!(copied.is_ok_and(|status| status.success()));
    said(&[&a, &b, &path("copy")], "one is a copy of the other");
    let mut broker = setup(&[&a, &b]).start();
    stop(&mut broker);
}

#[test]
fn a_damaged_or_read_only_folder_is_offline_with_a_line_and_the_rest_serves() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let (a, b) = (data.path().join("a"), data.path().join("b"));
    let (setup, mut broker, mut client, in_a, in_b) = filled(&a, &b);
    broker.kill();
    for (file, words) in [
        ("meta.properties", "version has the value \"9\""),
        ("log-checkpoint", "removing the file makes recovery read everything"),
    ] {
        let whole = fs::read(b.join(file)).expect("a file to damage");
        fs::write(b.join(file), if file == "meta.properties" { &b"version=9\n"[..] } else { b"garbage" })
            .expect("damage");
        let mut broker = setup.start();
        broker.log_with(words);
        client.again(&setup);
        client.produce_to_all(&in_a, 1);
        assert_eq!(client.produce(in_b[0]), STORAGE_ERROR);
        stop(&mut broker);
        fs::write(b.join(file), whole).expect("the file is restored");
    }
    let mut broker = setup.start();
    client.again(&setup);
    client.assert_holds(&[in_a, in_b].concat());
    stop(&mut broker);
}

#[test]
fn a_partition_in_two_folders_or_in_the_wrong_one_is_offline_alone_and_both_are_kept() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let (a, b) = (data.path().join("a"), data.path().join("b"));
    let (setup, mut broker, mut client, in_a, in_b) = filled(&a, &b);
    stop(&mut broker);
    let (copied, moved) = (in_b[0], in_b[1]);
    let name = |partition: i32| format!("t-{partition}");
    let copy = std::process::Command::new("cp").arg("-a").arg(b.join(name(copied))).arg(a.join(name(copied))).status();
    assert!(copy.is_ok_and(|status| status.success()));
    fs::rename(b.join(name(moved)), a.join(name(moved))).expect("a folder that is moved");
    for _ in 0..2 {
        let mut broker = setup.start();
        broker.log_with("both are kept as they are");
        broker.log_with("move it back to where it was");
        client.again(&setup);
        let rest: Vec<i32> = in_a.iter().chain(&in_b[2..]).copied().collect();
        client.produce_to_all(&rest, 1);
        assert_eq!((client.produce(copied), client.produce(moved)), (STORAGE_ERROR, STORAGE_ERROR));
        stop(&mut broker);
        assert!(a.join(name(copied)).exists() && b.join(name(copied)).exists() && a.join(name(moved)).exists());
        assert!(!b.join(name(moved)).exists(), "it was made anew where it is recorded");
    }
    fs::remove_dir_all(a.join(name(copied))).expect("the copy goes");
    fs::rename(a.join(name(moved)), b.join(name(moved))).expect("back again");
    let _broker = setup.start();
    client.again(&setup);
    let all: Vec<i32> = (0..PARTITIONS).collect();
    client.assert_holds(&all);
    client.produce_to_all(&all, 1);
}

#[test]
fn a_topic_that_is_deleted_while_its_folder_is_offline_does_not_come_back_and_is_not_removed() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let (a, b, away) = (data.path().join("a"), data.path().join("b"), data.path().join("away"));
    let (setup, mut broker, _client, _, in_b) = filled(&a, &b);
    stop(&mut broker);
    fs::rename(&b, &away).expect("a disk that goes");
    let mut broker = setup.start();
    let admin = Admin::new(&setup.bootstrap(), PATIENCE);
    admin.delete_topic("t").expect("deleted");
    admin.create_topic("t", PARTITIONS as usize, &[]).expect("a topic of the same name");
    let mut client = Client::new(&setup);
    client.produce_to_all(&(0..PARTITIONS).collect::<Vec<_>>(), 2);
    stop(&mut broker);
    fs::rename(&away, &b).expect("the disk is back");
    let _broker = setup.start();
    client.again(&setup);
    client.assert_holds(&(0..PARTITIONS).collect::<Vec<_>>());
    let names: Vec<String> =
        fs::read_dir(&b).expect("b").flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let strays = names.iter().filter(|name| name.ends_with("-stray")).count();
    assert_eq!(strays, in_b.len(), "{names:?}");
}

#[test]
fn a_folder_whose_disk_fails_the_trial_at_a_start_is_offline_and_the_rest_serves() {
    let test = "a_folder_whose_disk_fails_the_trial_at_a_start_is_offline_and_the_rest_serves";
    let Some(disk) = FuseDisk::for_test(test) else { return };
    let data = tempfile::tempdir().expect("a temporary folder");
    let (a, b) = (data.path().join("a"), disk.join("b"));
    let (setup, mut broker, mut client, in_a, in_b) = filled(&a, &b);
    broker.kill();
    // The trial's file alone: all else in the folder works, so far.
    disk.add_fault(Fault { path_part: ".probe".to_owned(), on: FaultOn::Sync, errno: libc::EIO });
    let mut broker = setup.start();
    broker.log_with("RWF_DSYNC is refused");
    client.again(&setup);
    client.produce_to_all(&in_a, 1);
    client.assert_holds(&in_a);
    assert_eq!((client.produce(in_b[0]), client.log_dirs()[&b].0), (STORAGE_ERROR, STORAGE_ERROR));
    stop(&mut broker);
    disk.clear_faults();
    let _broker = setup.start();
    client.again(&setup);
    client.assert_holds(&[in_a, in_b].concat());
}
