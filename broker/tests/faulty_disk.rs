//! Holds: a disk that is full, and one that fails: what is refused, what goes on being served, and how it heals.
//! Never touches: power cuts (see `power_cut.rs`).

mod support;

use std::time::{Duration, Instant};

use support::admin::Admin;
use support::broker::BrokerSetup;
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
