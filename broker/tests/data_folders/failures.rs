//! Holds: folders that fail, or go away, while the broker runs.
//! Never touches: what a start finds (`starts`).

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::client::{Client, PARTITIONS, PATIENCE, STORAGE_ERROR, assert_leaders, filled, in_folder, setup, stop};
use crate::support::admin::Admin;
use crate::support::broker::BrokerSetup;
use crate::support::fuse_disk::{Fault, FaultOn, FuseDisk};

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
fn nothing_is_acknowledged_that_lies_below_a_mount_that_was_taken_away() {
    let Some(mut disk) = FuseDisk::for_test("nothing_is_acknowledged_that_lies_below_a_mount_that_was_taken_away")
    else {
        return;
    };
    let data = tempfile::tempdir().expect("a temporary folder");
    let (a, b) = (data.path().join("a"), disk.path().to_owned());
    // Commit-log files of 1 MiB: a new one is wanted soon.
    let setup = setup(&[&a, &b]).set("corelog.commit.log", "always").set("corelog.memory.bytes.per.core", "33554432");
    let mut broker = setup.start();
    Admin::new(&setup.bootstrap(), PATIENCE).create_topic("t", PARTITIONS as usize, &[]).expect("a topic");
    let in_b = in_folder(&b);
    let mut client = Client::new(&setup);
    client.produce_to_all(&in_b[..1], 100);
    disk.take_away();
    let acknowledged = (0..700).filter(|_| client.produce(in_b[0]) == 0).count();
    println!("{acknowledged} of 700 were acknowledged");
    let below: Vec<_> = fs::read_dir(&b).expect("the folder below").flatten().map(|entry| entry.file_name()).collect();
    broker.kill();
    disk.put_back();
    let _broker = setup.start();
    client.again(&setup);
    client.assert_holds(&in_b);
    assert_eq!(below, Vec::<std::ffi::OsString>::new(), "made where the disk should be");
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
