//! Holds: a disk that is full, and one that fails: what is refused, what goes on being served, and how it heals.
//! Never touches: power cuts (see `power_cut.rs`).

mod support;

use std::time::{Duration, Instant};

use rdkafka::error::RDKafkaErrorCode;
use support::admin::Admin;
use support::broker::{Broker, BrokerSetup};
use support::fuse_disk::{Fault, FaultOn, FuseDisk};
use support::raw::RawConnection;
use support::requests::{FETCH, PRODUCE, Session, batch, fetch, fetch_answer, produce, produce_answer, values_of};

const PATIENCE: Duration = Duration::from_secs(30);
/// KAFKA_STORAGE_ERROR.
const STORAGE_ERROR: i16 = 56;

/// A client that counts: record `n` of a topic's partition 0 has the value `n`.
struct Client {
    connection: RawConnection,
}

impl Client {
    fn new(setup: &BrokerSetup) -> Client {
        Client { connection: RawConnection::connect(setup.address()).expect("a connection") }
    }

    /// Error code and offset of the answer to one record of `padding` more bytes.
    fn produce(&mut self, topic: &str, number: i64, padding: usize) -> (i16, i64) {
        let value = [format!("{number}/").into_bytes(), vec![b'.'; padding]].concat();
        let answer = self.connection.call(PRODUCE, 3, produce(topic, 0, -1, &batch(&[&value], 1)));
        produce_answer(&answer.expect("an answer, also to what is refused"))
    }

    /// Reads from the beginning and checks that records `0..count` are there.
    fn assert_holds(&mut self, topic: &str, count: i64) {
        let mut next = 0;
        while next < count {
            let body = fetch(Session { id: 0, epoch: -1 }, 100, &[(topic, 0, next)]);
            let fetched = fetch_answer(&self.connection.call(FETCH, 7, body).expect("an answer"));
            let (_, _, error, high_watermark, _, records) = &fetched.partitions[0];
            assert_eq!((fetched.error, *error), (0, 0), "reads of what is known good go on");
            assert!(*high_watermark >= count, "high watermark {high_watermark}, {count} acknowledged");
            let records = values_of(records);
            assert!(!records.is_empty(), "nothing at offset {next} of {topic}, {count} acknowledged");
            for (offset, value) in records {
                // A batch is sent from its beginning, and what was refused may follow what was acknowledged.
                if offset < next || offset >= count {
                    continue;
                }
                assert_eq!(offset, next, "offsets of {topic}");
                assert!(value.starts_with(format!("{next}/").as_bytes()), "record {next} of {topic}");
                next += 1;
            }
        }
    }

    /// Produces record `number` as soon as the broker takes it.
    fn produce_when_healed(&mut self, topic: &str, number: i64) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.produce(topic, number, 10) {
                (0, offset) => {
                    // The refused record was stamped already and keeps its offset; like any error that a client retries,
                    // its refusal does not say that it is nowhere.
                    assert!((number..=number + 1).contains(&offset), "offset {offset} for record {number}");
                    return;
                }
                (error, _) => assert!(
                    Instant::now() < deadline,
                    "{topic} still answers {error} {PATIENCE:?} after the disk healed"
                ),
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn a_full_disk_refuses_produces_serves_reads_and_recovers_when_there_is_room() {
    let Some(disk) = FuseDisk::for_test("a_full_disk_refuses_produces_serves_reads_and_recovers_when_there_is_room")
    else {
        return;
    };
    let setup = BrokerSetup::new(&disk.join("data"), 2);
    let mut broker = setup.start();
    Admin::new(&setup.bootstrap(), PATIENCE).create_topic("t", 1, &[]).expect("a topic");
    let mut client = Client::new(&setup);
    let mut acknowledged = 0;
    while acknowledged < 10 {
        assert_eq!(client.produce("t", acknowledged, 10), (0, acknowledged));
        acknowledged += 1;
    }
    // Room for some more: what was set aside before may still be filled.
    disk.set_capacity(disk.bytes_used() + (1 << 20));
    let refusal = loop {
        match client.produce("t", acknowledged, 500_000) {
            (0, _) => acknowledged += 1,
            (error, _) => break error,
        }
        assert!(acknowledged < 5_000, "2.5 GB went onto a full disk");
    };
    assert_eq!(refusal, STORAGE_ERROR);
    client.assert_holds("t", acknowledged);
    assert_eq!(broker.exited(), None);

    disk.set_capacity(16 << 30);
    client.produce_when_healed("t", acknowledged);
    acknowledged += 1;
    client.assert_holds("t", acknowledged);
    broker.kill();
    let _broker = setup.start();
    Client::new(&setup).assert_holds("t", acknowledged);
}

/// A broker whose disk has the topic `t` with ten records, and `big` with some megabytes.
fn filled(disk: &FuseDisk) -> (BrokerSetup, Broker, Admin) {
    let setup = BrokerSetup::new(&disk.join("data"), 2);
    let broker = setup.start();
    let admin = Admin::new(&setup.bootstrap(), PATIENCE);
    let mut client = Client::new(&setup);
    for (topic, records, padding) in [("t", 10, 10), ("big", 8, 500_000)] {
        admin.create_topic(topic, 1, &[]).expect("a topic");
        (0..records).for_each(|number| assert_eq!(client.produce(topic, number, padding), (0, number)));
    }
    (setup, broker, admin)
}

/// From now on nothing fits on the disk.
fn fill_up(disk: &FuseDisk) {
    disk.set_capacity(disk.bytes_used());
}

/// Produces to `t` until there is no room left of what was set aside before; returns how many it has taken, `from` and all.
fn use_up_room(client: &mut Client, from: i64) -> i64 {
    let mut acknowledged = from;
    loop {
        match client.produce("t", acknowledged, 500_000) {
            (0, _) => acknowledged += 1,
            (error, _) => {
                assert_eq!(error, STORAGE_ERROR);
                return acknowledged;
            }
        }
        assert!(acknowledged < 1_000, "500 MB went onto a full disk");
    }
}

#[test]
fn on_a_disk_without_a_free_byte_records_and_topics_are_deleted_and_then_it_goes_on() {
    let test = "on_a_disk_without_a_free_byte_records_and_topics_are_deleted_and_then_it_goes_on";
    let Some(disk) = FuseDisk::for_test(test) else { return };
    let (setup, mut broker, admin) = filled(&disk);
    let mut client = Client::new(&setup);
    fill_up(&disk);
    let acknowledged = use_up_room(&mut client, 10);
    assert_eq!(admin.create_topic("new", 3, &[]), Err(RDKafkaErrorCode::KafkaStorageError), "it would have no room");
    fill_up(&disk);

    assert_eq!(admin.delete_records("t", 0, 5), Ok(()));
    assert_eq!(admin.watermarks("t", 0).0, 5);
    broker.log_with("the reserve is given up");
    // What the reserve has freed is for deletions alone.
    assert_eq!(client.produce("t", acknowledged, 500_000).0, STORAGE_ERROR);
    assert_eq!(admin.create_topic("new", 1, &[]), Err(RDKafkaErrorCode::KafkaStorageError));
    assert_eq!(admin.delete_topic("big"), Ok(()));
    assert_eq!(admin.topics(), ["t"]);

    client.produce_when_healed("t", acknowledged);
    broker.log_with("the reserve is back");
    assert_eq!(admin.create_topic("new", 1, &[]), Ok(()));
    assert_eq!(broker.terminate(PATIENCE).code(), Some(0));
    assert!(disk.join("data/.reserve").exists());
    let _broker = setup.start();
    assert_eq!(admin.watermarks("t", 0).0, 5);
}

/// Lets the broker have `files` open files at the most, from now on.
fn limit_files(broker: &Broker, files: u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let pid = broker.pid() as i32;
    // SAFETY: asks for a limit of our own child, which has not been waited for.
    let asked = unsafe { libc::prlimit(pid, libc::RLIMIT_NOFILE, std::ptr::null(), &raw mut limit) };
    limit.rlim_cur = files.min(limit.rlim_max);
    // SAFETY: and sets it.
    let set = unsafe { libc::prlimit(pid, libc::RLIMIT_NOFILE, &raw const limit, std::ptr::null_mut()) };
    assert_eq!((asked, set), (0, 0), "prlimit");
}

#[test]
fn partitions_that_found_no_file_handle_come_online_once_there_are_some() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let setup = BrokerSetup::new(&data.path().join("data"), 2);
    let broker = setup.start();
    let admin = Admin::new(&setup.bootstrap(), PATIENCE);
    admin.create_topic("old", 1, &[("segment.bytes", "1048576")]).expect("a topic");
    let mut client = Client::new(&setup);
    assert_eq!(client.produce("old", 0, 10), (0, 0));
    // No further file; the connections there are stay.
    limit_files(&broker, 1);
    assert_eq!(admin.create_topic("new", 2, &[]), Ok(()), "as Kafka: the topic is made, its partitions are not");
    broker.log_with("partition is offline");
    assert_eq!(client.produce("new", 0, 10).0, STORAGE_ERROR);
    // Nor can a log begin its next segment, which must not cost it more than the time without handles.
    let mut acknowledged = 1;
    while client.produce("old", acknowledged, 500_000).0 == 0 {
        acknowledged += 1;
        assert!(acknowledged < 100, "segments without files");
    }
    limit_files(&broker, u64::MAX);
    client.produce_when_healed("new", 0);
    client.produce_when_healed("old", acknowledged);
    client.assert_holds("old", acknowledged);
}

#[test]
fn a_start_on_a_disk_without_a_free_byte_serves_reads_and_deletions() {
    for by_kill in [false, true] {
        let test = "a_start_on_a_disk_without_a_free_byte_serves_reads_and_deletions";
        let Some(disk) = FuseDisk::for_test(test) else { return };
        let (setup, mut broker, admin) = filled(&disk);
        if by_kill {
            broker.kill();
        } else {
            assert_eq!(broker.terminate(PATIENCE).code(), Some(0));
        }
        for _ in 0..3 {
            // Others use the disk, too: they take what the last start did not need.
            fill_up(&disk);
            let mut broker = setup.start();
            Client::new(&setup).assert_holds("t", 10);
            Client::new(&setup).assert_holds("big", 8);
            if by_kill {
                broker.kill();
            } else {
                assert_eq!(broker.terminate(PATIENCE).code(), Some(0));
            }
        }
        fill_up(&disk);
        let mut broker = setup.start();
        let mut client = Client::new(&setup);
        let acknowledged = use_up_room(&mut client, 10);
        assert_eq!(admin.delete_topic("big"), Ok(()), "after a {}", if by_kill { "kill" } else { "stop" });
        client.produce_when_healed("t", acknowledged);
        client.assert_holds("t", acknowledged + 1);
        broker.kill();
    }
}

#[test]
fn a_failed_write_or_sync_fences_its_partition_until_a_restart_and_no_other() {
    for on in [FaultOn::Write, FaultOn::Sync] {
        let test = "a_failed_write_or_sync_fences_its_partition_until_a_restart_and_no_other";
        let Some(disk) = FuseDisk::for_test(test) else { return };
        let setup = BrokerSetup::new(&disk.join("data"), 2);
        let mut broker = setup.start();
        let admin = Admin::new(&setup.bootstrap(), PATIENCE);
        let mut client = Client::new(&setup);
        for topic in ["bad", "good"] {
            admin.create_topic(topic, 1, &[]).expect("a topic");
            for number in 0..10 {
                assert_eq!(client.produce(topic, number, 10), (0, number));
            }
        }
        disk.add_fault(Fault { path_part: "bad-0/".to_owned(), on, errno: libc::EIO });
        assert_eq!(client.produce("bad", 10, 10).0, STORAGE_ERROR, "{on:?}: the disk failed under the record");
        assert_eq!(client.produce("good", 10, 10), (0, 10), "{on:?}: another partition goes on");
        client.assert_holds("bad", 10);
        disk.clear_faults();
        assert_eq!(
            client.produce("bad", 10, 10).0,
            STORAGE_ERROR,
            "{on:?}: a fenced partition does not trust its disk again"
        );
        client.assert_holds("bad", 10);

        broker.kill();
        let _broker = setup.start();
        let mut client = Client::new(&setup);
        client.assert_holds("bad", 10);
        client.assert_holds("good", 11);
        // The refused record may have come through or not; the next one follows.
        let (error, offset) = client.produce("bad", 10, 10);
        assert_eq!(error, 0, "{on:?}: a restart lifts the fence");
        assert!((10..=11).contains(&offset), "{on:?}: offset {offset}");
    }
}

#[test]
fn commits_that_wait_for_space_do_not_take_what_was_given_up_for_deletions() {
    let test = "commits_that_wait_for_space_do_not_take_what_was_given_up_for_deletions";
    let Some(disk) = FuseDisk::for_test(test) else { return };
    let (setup, broker, admin) = filled(&disk);
    let mut client = Client::new(&setup);
    // Together more than the reserve, and small ones for what large ones leave of it.
    let sizes = [900_000, 500_000, 200_000, 100_000, 40_000, 20_000, 8_000, 4_000, 4_000, 4_000];
    let waiting: Vec<(String, usize)> = sizes.iter().enumerate().map(|(at, size)| (format!("w{at}"), *size)).collect();
    for (topic, _) in &waiting {
        admin.create_topic(topic, 1, &[]).expect("a topic");
        assert_eq!(client.produce(topic, 0, 10), (0, 0));
    }
    fill_up(&disk);
    for (topic, size) in &waiting {
        let refused = (1..1000).any(|batch| client.produce(topic, batch, *size).0 != 0);
        assert!(refused, "{topic} goes on growing on a full disk");
    }
    fill_up(&disk);
    assert_eq!(admin.delete_records("t", 0, 5), Ok(()));
    broker.log_with("the reserve is given up");
    // Long enough for each of them to have tried again.
    std::thread::sleep(Duration::from_millis(1800));
    let kept = std::fs::metadata(disk.join("data/.reserve")).map_or(0, |file| file.len());
    assert!(kept > 512 << 10, "{kept} bytes of the reserve are left");
    assert_eq!(admin.delete_topic("big"), Ok(()));
}
