//! Holds: a start of the real broker on a data folder from which something was taken away: a partition's folder, or the metadata, whole or in part.
//! Never touches: crashes between the steps of a creation or deletion (see the storage's tests).

mod support;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use support::admin::Admin;
use support::broker::{Broker, BrokerSetup};
use support::raw::RawConnection;
use support::requests::{PRODUCE, batch, produce, produce_answer};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);
const STORAGE_ERROR: i16 = 56;

fn setup() -> (TempDir, BrokerSetup) {
    let data = tempfile::tempdir().expect("a temporary folder");
    let setup = BrokerSetup::new(&data.path().join("data"), 2);
    (data, setup)
}

/// Sends one record; the error and the offset.
fn send(setup: &BrokerSetup, partition: i32) -> (i16, i64) {
    let mut connection = RawConnection::connect(setup.address()).expect("a connection");
    let answer = connection.call(PRODUCE, 3, produce("t", partition, -1, &batch(&[b"value"], 1))).expect("an answer");
    produce_answer(&answer)
}

fn stop(broker: &mut Broker) {
    let exit = broker.terminate(PATIENCE);
    assert_eq!(exit.code(), Some(0), "the broker's end; its log:\n{}", broker.log());
}

/// Starts a broker that does not come up because of its metadata; what it says.
fn refused(setup: &BrokerSetup) -> String {
    let mut broker = setup.launch();
    let exit = broker.wait();
    assert_eq!(exit.code(), Some(75), "the broker's log:\n{}", broker.log());
    // Its last words may still be on their way through the pipe.
    let began = Instant::now();
    while !broker.log().contains("metadata: ") && began.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(2));
    }
    broker.log()
}

/// The data folder's entries whose names have `part` in them.
fn named(setup: &BrokerSetup, part: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(&setup.data_dir).expect("the data folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().contains(part))).collect()
}

#[test]
fn a_partition_whose_folder_is_gone_is_offline_and_the_others_serve() {
    for by_kill in [false, true] {
        let (_data, setup) = setup();
        let mut broker = setup.start();
        let admin = Admin::new(&setup.bootstrap(), PATIENCE);
        admin.create_topic("t", 3, &[]).expect("a topic");
        (0..3).for_each(|partition| assert_eq!(send(&setup, partition), (0, 0)));
        if by_kill {
            broker.kill()
        } else {
            stop(&mut broker)
        }
        let (folder, elsewhere) = (setup.data_dir.join("t-1"), setup.data_dir.join("elsewhere"));
        std::fs::rename(&folder, &elsewhere).expect("a renamed folder");

        let mut broker = setup.start();
        assert_eq!(send(&setup, 1).0, STORAGE_ERROR, "the partition whose folder is gone");
        assert_eq!((send(&setup, 0), send(&setup, 2)), ((0, 1), (0, 1)), "its neighbours");
        let told = &broker.lines_with("partition is offline", 1)[0];
        assert!(told.contains("t-1") && told.contains("bring the folder back"), "the log names the fix: {told}");
        assert!(!folder.exists(), "nothing was made in its place");
        stop(&mut broker);

        std::fs::rename(&elsewhere, &folder).expect("a renamed folder");
        let mut broker = setup.start();
        assert_eq!(send(&setup, 1), (0, 1), "the folder is back, its record is the first");
        stop(&mut broker);

        std::fs::remove_dir_all(&folder).expect("a removed folder");
        std::fs::create_dir(&folder).expect("a new folder");
        std::fs::write(folder.join("accept-loss"), "").expect("the permission");
        let mut broker = setup.start();
        assert_eq!(send(&setup, 1), (0, 0), "given up: it begins anew");
        assert_eq!(send(&setup, 0), (0, 2));
        stop(&mut broker);

        // The other way to give up: the topic goes, with what is left of it, and comes back.
        std::fs::remove_dir_all(&folder).expect("a removed folder");
        let mut broker = setup.start();
        assert_eq!(send(&setup, 1).0, STORAGE_ERROR);
        admin.delete_topic("t").expect("deleted");
        admin.create_topic("t", 3, &[]).expect("a topic of the same name");
        (0..3).for_each(|partition| assert_eq!(send(&setup, partition), (0, 0)));
        stop(&mut broker);
        let mut broker = setup.start();
        (0..3).for_each(|partition| assert_eq!(send(&setup, partition), (0, 1), "after a last restart"));
        stop(&mut broker);
    }
}

#[test]
fn two_exchanged_folders_of_a_topic_are_told_of_and_left_as_they_are() {
    let (_data, setup) = setup();
    let mut broker = setup.start();
    Admin::new(&setup.bootstrap(), PATIENCE).create_topic("t", 3, &[]).expect("a topic");
    (0..3).for_each(|partition| assert_eq!(send(&setup, partition), (0, 0)));
    assert_eq!(send(&setup, 1), (0, 1));
    stop(&mut broker);
    let folder = |partition: i32| setup.data_dir.join(format!("t-{partition}"));
    // One folder is as Kafka leaves it, or a version before: with the topic's id alone.
    let metadata = std::fs::read_to_string(folder(2).join("partition.metadata")).expect("its metadata");
    let kafkas = metadata.lines().take(2).collect::<Vec<_>>().join("\n");
    assert_ne!(kafkas, metadata);
    std::fs::write(folder(2).join("partition.metadata"), kafkas).expect("as Kafka writes it");
    let exchange = || {
        let aside = setup.data_dir.join("x");
        for (from, to) in [(folder(0), aside.clone()), (folder(1), folder(0)), (aside, folder(1))] {
            std::fs::rename(from, to).expect("a renamed folder");
        }
    };
    exchange();
    let files = |partition| {
        let mut files: Vec<_> = std::fs::read_dir(folder(partition)).expect("the folder").flatten().collect();
        files.sort_by_key(|file| file.file_name());
        let read = |file: &std::fs::DirEntry| (file.file_name(), std::fs::read(file.path()).expect("a file"));
        files.iter().map(read).collect::<Vec<_>>()
    };
    let before = [files(0), files(1)];

    let mut broker = setup.start();
    assert_eq!(send(&setup, 2), (0, 1), "the folder that says nothing of its partition is taken");
    assert_eq!([send(&setup, 0).0, send(&setup, 1).0], [STORAGE_ERROR; 2]);
    let told = broker.lines_with("partition is offline", 2);
    assert_eq!(told.len(), 2, "{told:#?}");
    assert!(
        told.iter().all(|line| line.contains("t-0") && line.contains("t-1") && line.contains("name back")),
        "{told:#?}"
    );
    stop(&mut broker);
    assert!(before == [files(0), files(1)], "nothing in the folders was changed");
    let now = std::fs::read_to_string(folder(2).join("partition.metadata")).expect("its metadata");
    assert_eq!(now, metadata, "from now on it says it");

    exchange();
    // Another disk, and back from a backup: the same files, not the same inodes.
    let copied = std::process::Command::new("cp").arg("-a").arg(folder(1)).arg(setup.data_dir.join("copy")).status();
    assert!(copied.expect("cp").success());
    std::fs::remove_dir_all(folder(1)).expect("the original goes");
    std::fs::rename(setup.data_dir.join("copy"), folder(1)).expect("the copy takes its place");
    let mut broker = setup.start();
    assert_eq!([send(&setup, 0), send(&setup, 1), send(&setup, 2)], [(0, 1), (0, 2), (0, 2)]);
    stop(&mut broker);
}

#[test]
fn logs_of_unknown_topics_are_set_aside_and_never_removed() {
    let (data, setup) = setup();
    let mut broker = setup.start();
    Admin::new(&setup.bootstrap(), PATIENCE).create_topic("t", 2, &[]).expect("a topic");
    (0..2).for_each(|partition| assert_eq!(send(&setup, partition), (0, 0)));
    stop(&mut broker);
    // A folder that is none of the broker's business.
    std::fs::create_dir(setup.data_dir.join("mine-7")).expect("a folder");
    let (metadata, kept) = (setup.data_dir.join("__cluster_metadata-0"), data.path().join("kept"));
    std::fs::rename(&metadata, &kept).expect("the metadata is lost");

    let failure = refused(&setup);
    assert!(failure.contains("__cluster_metadata-0") && failure.contains("accept-loss"), "{failure}");
    assert!(!metadata.exists() && named(&setup, "-stray").is_empty(), "nothing was changed");
    std::fs::create_dir(&metadata).expect("a new folder");
    std::fs::write(metadata.join("accept-loss"), "").expect("the permission");

    // The topic is made again while its old folders are there, once before and once after they are looked for.
    let mut broker = setup.start();
    let strays = named(&setup, "-stray");
    assert!(!metadata.join("accept-loss").exists(), "it counts once");
    assert_eq!(strays.len(), 2, "the folders of the unknown topic: {strays:?}; the log:\n{}", broker.log());
    let admin = Admin::new(&setup.bootstrap(), PATIENCE);
    assert!(admin.topics().is_empty());
    admin.create_topic("t", 2, &[]).expect("a topic");
    (0..2).for_each(|partition| assert_eq!(send(&setup, partition), (0, 0)));
    stop(&mut broker);
    let mut broker = setup.start();
    broker.log_with("folders of unknown topics are kept");
    assert!(strays.iter().all(|stray| stray.exists()), "strays are kept");
    assert!(setup.data_dir.join("mine-7").exists());
    stop(&mut broker);

    // The metadata turns up, and what is now of an unknown topic gives way to what is not.
    std::fs::remove_dir_all(&metadata).expect("the new metadata goes");
    std::fs::rename(&kept, &metadata).expect("the old metadata");
    let mut broker = setup.start();
    assert_eq!(named(&setup, "-stray").len(), 4, "the second topic's folders stood where the first one's belong");
    assert_eq!(send(&setup, 0).0, STORAGE_ERROR, "its own folder is known to be missing");
    stop(&mut broker);
    for stray in &strays {
        let name = stray.file_name().expect("a name").to_string_lossy().into_owned();
        let (folder, _) = name.split_once('.').expect("a name with a suffix");
        std::fs::rename(stray, setup.data_dir.join(folder)).expect("a renamed folder");
    }
    let mut broker = setup.start();
    (0..2).for_each(|partition| assert_eq!(send(&setup, partition), (0, 1), "the first topic's records are all there"));
    stop(&mut broker);
}

#[test]
fn a_start_after_a_clean_stop_refuses_metadata_that_has_lost_something_and_changes_nothing() {
    let (_data, setup) = setup();
    let mut broker = setup.start();
    Admin::new(&setup.bootstrap(), PATIENCE).create_topic("t", 1, &[]).expect("a topic");
    assert_eq!(send(&setup, 0), (0, 0));
    stop(&mut broker);
    let log = setup.data_dir.join("__cluster_metadata-0/log-00000000000000000001");
    let whole = std::fs::read(&log).expect("the metadata log");
    let mut flipped = whole.clone();
    let last = flipped.len() - 5;
    flipped[last] ^= 4;
    // The last entry is gone without a trace, as after a torn write.
    let frame_start = whole.windows(4).rposition(|window| window == b"CLMF").expect("a frame");
    for (damage, bytes) in [
        ("a flipped bit", Some(flipped)),
        ("the last entry cut off", Some(whole[..frame_start].to_vec())),
        ("emptied", Some(Vec::new())),
        ("zeroed", Some(vec![0; whole.len()])),
        ("removed", None),
    ] {
        match &bytes {
            Some(bytes) => std::fs::write(&log, bytes).expect("a damaged log"),
            None => std::fs::remove_file(&log).expect("a removed log"),
        }
        let said = refused(&setup);
        let names_the_file = said.contains("__cluster_metadata-0/log-00000000000000000001");
        assert!(names_the_file && said.contains("Nothing was changed"), "{damage}: {said}");
        assert_eq!(std::fs::read(&log).ok(), bytes, "{damage}: the file is as it was");
        assert!(named(&setup, "-stray").is_empty(), "{damage}");
    }
    std::fs::write(&log, &whole).expect("the restored log");
    let mut broker = setup.start();
    assert_eq!(send(&setup, 0), (0, 1), "the topic and its record are there");
    stop(&mut broker);
}
