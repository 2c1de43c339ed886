//! Holds: a broker with several data folders: where partitions go, what a folder that is missing, fails or comes back changes,
//! and what it must never change: nothing acknowledged is lost, nothing is made anew in another folder.
//! Never touches: one folder's own faults (see `faulty_disk.rs`).

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use support::admin::Admin;
use support::broker::{Broker, BrokerSetup};
use support::fuse_disk::{Fault, FaultOn, FuseDisk};
use support::raw::{Decoder, Encoder, RawConnection};
use support::requests::{
    FETCH, METADATA, PRODUCE, Session, batch, fetch, fetch_answer, produce, produce_answer, values_of,
};

const PATIENCE: Duration = Duration::from_secs(30);
const DESCRIBE_LOG_DIRS: i16 = 35;
/// KAFKA_STORAGE_ERROR.
const STORAGE_ERROR: i16 = 56;
/// LEADER_NOT_AVAILABLE.
const NO_LEADER: i16 = 5;
const PARTITIONS: i32 = 6;

fn setup(folders: &[&Path]) -> BrokerSetup {
    let names: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
    BrokerSetup::new(Path::new(&names.join(",")), 2)
}

/// The partitions of topic `t` whose folders are in a data folder.
fn in_folder(folder: &Path) -> Vec<i32> {
    let names = fs::read_dir(folder).map(|entries| entries.flatten().map(|e| e.file_name()).collect::<Vec<_>>());
    let names = names.unwrap_or_default();
    let of_t = names.iter().filter_map(|name| name.to_str()?.strip_prefix("t-")?.parse().ok());
    let mut partitions: Vec<i32> = of_t.collect();
    partitions.sort_unstable();
    partitions
}

/// A client that counts: the values of a partition of `t` are 0, 1, 2, ...
struct Client {
    connection: RawConnection,
    acknowledged: BTreeMap<i32, i64>,
}

impl Client {
    fn new(setup: &BrokerSetup) -> Client {
        Client { connection: connect(setup), acknowledged: BTreeMap::new() }
    }

    fn again(&mut self, setup: &BrokerSetup) {
        self.connection = connect(setup);
    }

    /// The error code of the answer to the next record.
    fn produce(&mut self, partition: i32) -> i16 {
        let next = self.acknowledged.get(&partition).copied().unwrap_or(0);
        let value = next.to_string().into_bytes();
        let answer = self.connection.call(PRODUCE, 3, produce("t", partition, -1, &batch(&[&value], 1)));
        let (error, _) = produce_answer(&answer.expect("an answer, also to what is refused"));
        if error == 0 {
            self.acknowledged.insert(partition, next + 1);
        }
        error
    }

    fn produce_to_all(&mut self, partitions: &[i32], times: usize) {
        for partition in partitions.iter().cycle().take(partitions.len() * times) {
            assert_eq!(self.produce(*partition), 0, "partition {partition}");
        }
    }

    /// Everything acknowledged is there, once a value at the least, in its order. (What was refused may be there, too.)
    fn assert_holds(&mut self, partitions: &[i32]) {
        for &partition in partitions {
            let acknowledged = self.acknowledged.get(&partition).copied().unwrap_or(0);
            let (mut offset, mut next) = (0, 0);
            while next < acknowledged {
                let body = fetch(Session { id: 0, epoch: -1 }, 100, &[("t", partition, offset)]);
                let fetched = fetch_answer(&self.connection.call(FETCH, 7, body).expect("an answer"));
                let (_, _, error, high_watermark, _, records) = &fetched.partitions[0];
                assert_eq!((fetched.error, *error), (0, 0), "partition {partition}");
                let values = values_of(records);
                assert!(
                    !values.is_empty(),
                    "partition {partition} ends at {high_watermark}, {acknowledged} acknowledged"
                );
                let from = offset;
                for (at, value) in values.into_iter().filter(|(at, _)| *at >= from) {
                    let value: i64 = String::from_utf8_lossy(&value).parse().expect("a number");
                    assert!(value <= next, "value {value} of partition {partition} where {next} should be");
                    next = next.max(value + 1);
                    offset = at + 1;
                }
            }
        }
    }

    fn fetch_error(&mut self, partition: i32) -> i16 {
        let body = fetch(Session { id: 0, epoch: -1 }, 100, &[("t", partition, 0)]);
        fetch_answer(&self.connection.call(FETCH, 7, body).expect("an answer")).partitions[0].2
    }

    /// Error code of each data folder, and the partitions of `t` that it has.
    fn log_dirs(&mut self) -> BTreeMap<PathBuf, (i16, Vec<i32>)> {
        let answer = self.connection.call(DESCRIBE_LOG_DIRS, 1, Encoder::default().i32(-1)).expect("an answer");
        let mut answer = Decoder::new(&answer);
        let _throttled = answer.i32();
        let mut dirs = BTreeMap::new();
        for _ in 0..answer.i32() {
            let (error, dir) = (answer.i16(), answer.string().expect("a folder's name"));
            let mut held = Vec::new();
            for _ in 0..answer.i32() {
                let topic = answer.string();
                for _ in 0..answer.i32() {
                    let partition = answer.i32();
                    answer.raw(17);
                    if topic.as_deref() == Some("t") {
                        held.push(partition);
                    }
                }
            }
            dirs.insert(PathBuf::from(dir), (error, held));
        }
        dirs
    }

    /// Error, leader and offline replicas of each partition of `t`.
    fn metadata(&mut self) -> BTreeMap<i32, (i16, i32, Vec<i32>)> {
        let body = Encoder::default().i32(1).string("t").i8(0);
        let answer = self.connection.call(METADATA, 5, body).expect("an answer");
        let mut answer = Decoder::new(&answer);
        let _throttled = answer.i32();
        for _ in 0..answer.i32() {
            let _broker = (answer.i32(), answer.string(), answer.i32(), answer.string());
        }
        let _cluster = (answer.string(), answer.i32());
        assert_eq!(answer.i32(), 1, "topics");
        let _topic = (answer.i16(), answer.string(), answer.raw(1));
        let mut partitions = BTreeMap::new();
        for _ in 0..answer.i32() {
            let (error, partition, leader) = (answer.i16(), answer.i32(), answer.i32());
            let mut lists = [(); 3].map(|()| (0..answer.i32()).map(|_| answer.i32()).collect::<Vec<i32>>());
            partitions.insert(partition, (error, leader, std::mem::take(&mut lists[2])));
        }
        partitions
    }
}

fn connect(setup: &BrokerSetup) -> RawConnection {
    RawConnection::connect(setup.address()).expect("a connection")
}

fn assert_leaders(client: &mut Client, online: &[i32], offline: &[i32]) {
    let metadata = client.metadata();
    for partition in online {
        assert_eq!(metadata[partition], (0, 1, vec![]), "partition {partition}");
    }
    for partition in offline {
        assert_eq!(metadata[partition], (NO_LEADER, -1, vec![1]), "partition {partition}");
    }
}

/// A broker on two folders, with `t` on both and some records in each partition.
fn filled(a: &Path, b: &Path) -> (BrokerSetup, Broker, Client, Vec<i32>, Vec<i32>) {
    let setup = setup(&[a, b]);
    let broker = setup.start();
    Admin::new(&setup.bootstrap(), PATIENCE).create_topic("t", PARTITIONS as usize, &[]).expect("a topic");
    let (in_a, in_b) = (in_folder(a), in_folder(b));
    assert_eq!((in_a.len(), in_b.len()), (3, 3), "{in_a:?} {in_b:?}");
    let mut client = Client::new(&setup);
    client.produce_to_all(&(0..PARTITIONS).collect::<Vec<_>>(), 5);
    (setup, broker, client, in_a, in_b)
}

fn stop(broker: &mut Broker) {
    assert_eq!(broker.terminate(PATIENCE).code(), Some(0), "{}", broker.log());
}

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

/// A producer of its own, on one partition, that is never refused.
struct Load {
    is_over: Arc<AtomicBool>,
    producer: JoinHandle<Vec<(Instant, Duration)>>,
    began: Instant,
}

impl Load {
    fn start(setup: &BrokerSetup, partition: i32) -> Load {
        let (is_over, mut client) = (Arc::new(AtomicBool::new(false)), Client::new(setup));
        client.acknowledged.insert(partition, 5);
        let told = Arc::clone(&is_over);
        let producer = std::thread::spawn(move || {
            let mut took = Vec::new();
            while !told.load(Ordering::Relaxed) {
                let began = Instant::now();
                assert_eq!(client.produce(partition), 0, "a partition on a folder that is well");
                took.push((began, began.elapsed()));
            }
            took
        });
        Load { is_over, producer, began: Instant::now() }
    }

    fn run_for(&self, time: Duration) {
        std::thread::sleep(time);
    }

    /// How many records were acknowledged. What a request took in each second is printed.
    fn end(self) -> i64 {
        self.is_over.store(true, Ordering::Relaxed);
        let took = self.producer.join().expect("a producer that was never refused");
        let mut seconds: BTreeMap<u64, Vec<Duration>> = BTreeMap::new();
        for (at, time) in &took {
            seconds.entry((*at - self.began).as_secs()).or_default().push(*time);
        }
        for (second, times) in &mut seconds {
            times.sort_unstable();
            let (count, p99) = (times.len(), times[times.len() * 99 / 100]);
            println!("second {second}: {count} produces, p50 {:?}, p99 {p99:?}", times[count / 2]);
        }
        took.len() as i64
    }
}

/// From now on a disk refuses everything that would change it, and reads.
fn break_disk(disk: &FuseDisk) {
    for on in [FaultOn::Write, FaultOn::Sync, FaultOn::Entry, FaultOn::Read] {
        disk.add_fault(Fault { path_part: String::new(), on, errno: libc::EIO });
    }
}

#[test]
fn a_folder_that_fails_under_load_takes_its_partitions_alone_and_gives_them_back_when_it_is_well() {
    let test = "a_folder_that_fails_under_load_takes_its_partitions_alone_and_gives_them_back_when_it_is_well";
    let Some(disk) = FuseDisk::for_test(test) else { return };
    let data = tempfile::tempdir().expect("a temporary folder");
    let (a, b) = (data.path().join("a"), disk.join("b"));
    let (setup, mut broker, mut client, in_a, in_b) = filled(&a, &b);
    client.produce_to_all(&in_b, 20);
    let load = Load::start(&setup, in_a[0]);
    load.run_for(Duration::from_secs(1));
    break_disk(&disk);
    for &partition in &in_b {
        assert_eq!(client.produce(partition), STORAGE_ERROR, "partition {partition}");
    }
    broker.log_with("data folder has failed");
    let deadline = Instant::now() + PATIENCE;
    while client.log_dirs()[&b].0 != STORAGE_ERROR {
        assert!(Instant::now() < deadline, "the folder is not offline: {}", broker.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_leaders(&mut client, &in_a, &in_b);
    assert_eq!(client.fetch_error(in_b[0]), STORAGE_ERROR);
    load.run_for(Duration::from_secs(1));
    *client.acknowledged.entry(in_a[0]).or_default() += load.end();
    client.produce_to_all(&in_a, 20);
    client.assert_holds(&in_a);
    let admin = Admin::new(&setup.bootstrap(), PATIENCE);
    admin.create_topic("other", 2, &[]).expect("a topic, on the folder that is well");
    assert!(a.join("other-0").exists() && a.join("other-1").exists());

    // Also where the word of it was not the last thing that happened.
    broker.kill();
    let mut broker = setup.start();
    client.again(&setup);
    client.produce_to_all(&in_a, 5);
    client.assert_holds(&in_a);
    assert_eq!(client.produce(in_b[0]), STORAGE_ERROR);
    assert_leaders(&mut client, &in_a, &in_b);
    stop(&mut broker);

    disk.clear_faults();
    let mut broker = setup.start();
    client.again(&setup);
    let all = [in_a, in_b].concat();
    client.assert_holds(&all);
    assert_leaders(&mut client, &all, &[]);
    client.produce_to_all(&all, 3);
    client.assert_holds(&all);
    stop(&mut broker);
}

#[test]
fn what_lies_below_a_mount_that_was_taken_away_is_not_taken_for_the_folder() {
    let Some(disk) = FuseDisk::for_test("what_lies_below_a_mount_that_was_taken_away_is_not_taken_for_the_folder")
    else {
        return;
    };
    let data = tempfile::tempdir().expect("a temporary folder");
    let (a, b) = (data.path().join("a"), disk.path().to_owned());
    let (setup, mut broker, mut client, in_a, in_b) = filled(&a, &b);
    disk.take_away();
    Admin::new(&setup.bootstrap(), PATIENCE).create_topic("other", 2, &[]).expect("as Kafka: the topic is made");
    broker.log_with("data folder has failed");
    let deadline = Instant::now() + PATIENCE;
    while client.produce(in_b[0]) != STORAGE_ERROR {
        assert!(Instant::now() < deadline, "{}", broker.log());
    }
    client.produce_to_all(&in_a, 3);
    client.assert_holds(&in_a);
    let below: Vec<_> = fs::read_dir(&b).expect("the folder below").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(below, Vec::<std::ffi::OsString>::new(), "made where the disk should be");
    broker.kill();
}

#[test]
fn when_the_first_folder_fails_the_broker_ends_with_a_message_and_loses_nothing() {
    let test = "when_the_first_folder_fails_the_broker_ends_with_a_message_and_loses_nothing";
    let Some(disk) = FuseDisk::for_test(test) else { return };
    let data = tempfile::tempdir().expect("a temporary folder");
    let (a, b) = (disk.join("a"), data.path().join("b"));
    let (setup, mut broker, mut client, in_a, in_b) = filled(&a, &b);
    break_disk(&disk);
    assert_eq!(client.produce(in_a[0]), STORAGE_ERROR);
    let deadline = Instant::now() + PATIENCE;
    let exit = loop {
        if let Some(exit) = broker.exited() {
            break exit;
        }
        assert!(Instant::now() < deadline, "it goes on without its metadata: {}", broker.log());
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(exit.code(), Some(74), "{}", broker.log());
    broker.log_with("the first of log.dirs, has failed");
    disk.clear_faults();
    let mut broker = setup.start();
    client.again(&setup);
    client.assert_holds(&[in_a.clone(), in_b.clone()].concat());
    client.produce_to_all(&[in_a, in_b].concat(), 1);
    stop(&mut broker);
}

#[test]
fn one_partitions_failure_does_not_take_its_folder() {
    let Some(disk) = FuseDisk::for_test("one_partitions_failure_does_not_take_its_folder") else { return };
    let data = tempfile::tempdir().expect("a temporary folder");
    let (a, b) = (data.path().join("a"), disk.join("b"));
    let (_setup, _broker, mut client, in_a, in_b) = filled(&a, &b);
    disk.add_fault(Fault { path_part: format!("t-{}/", in_b[0]), on: FaultOn::Write, errno: libc::EIO });
    let deadline = Instant::now() + PATIENCE;
    while client.produce(in_b[0]) == 0 {
        assert!(Instant::now() < deadline, "it never reached its segment");
    }
    std::thread::sleep(Duration::from_millis(1500));
    client.produce_to_all(&[in_a, in_b[1..].to_vec()].concat(), 10);
    assert_eq!(client.log_dirs()[&b].0, 0, "the folder is well");
}
