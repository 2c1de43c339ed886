//! Holds: that a fetch reads from the disk about what it returns, and that no partition of a fetch session starves.
//! Never touches: clients; requests by hand, with limits that clients seldom set.

mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use support::admin::Admin;
use support::broker::{Broker, BrokerSetup};
use support::raw::RawConnection;
use support::requests::{FETCH, Fetched, PRODUCE, Session, batch, fetch_answer, fetch_within, produce, produce_answer};

const PATIENCE: Duration = Duration::from_secs(30);
const PARTITIONS: i32 = 32;
/// Bytes of a record's value: a batch of one is a few more.
const VALUE_BYTES: usize = 10_000;
const BATCHES: usize = 20;
/// What a direct read may take beyond the wanted bytes at either end, and the batches that it may touch in vain: the one
/// before, which the sparse index leads to, and the one behind, which does not fit any more.
const UNIT_BYTES: u64 = 2 * 4096 + 2 * (VALUE_BYTES as u64 + 100);
const WITHOUT: Session = Session { id: 0, epoch: -1 };

/// A broker whose topic "t" has all its records on disk alone: it was started anew, with nothing in memory.
fn cold_broker(setup: &BrokerSetup) -> Broker {
    let mut broker = setup.start();
    let admin = Admin::new(&setup.bootstrap(), PATIENCE);
    admin.create_topic("t", PARTITIONS as usize, &[]).expect("a topic");
    let mut connection = RawConnection::connect(setup.address()).expect("a connection");
    for round in 0..BATCHES {
        let bytes = batch(&[&[round as u8; VALUE_BYTES]], 1);
        for partition in 0..PARTITIONS {
            let answer = connection.call(PRODUCE, 3, produce("t", partition, 1, &bytes)).expect("an answer");
            assert_eq!(produce_answer(&answer), (0, round as i64));
        }
    }
    assert!(broker.terminate(PATIENCE).success(), "an orderly stop");
    setup.start()
}

fn all_from(offset: i64) -> Vec<(&'static str, i32, i64)> {
    (0..PARTITIONS).map(|partition| ("t", partition, offset)).collect()
}

/// The partitions that brought records, in the answer's order, and the bytes of all.
fn brought(fetched: &Fetched) -> (Vec<i32>, u64) {
    let with_records = fetched.partitions.iter().filter(|partition| !partition.5.is_empty());
    let partitions = with_records.clone().map(|partition| partition.1).collect();
    (partitions, with_records.map(|partition| partition.5.len() as u64).sum())
}

fn call(connection: &mut RawConnection, session: Session, limits: (i32, i32), offset: i64) -> Fetched {
    let request = fetch_within(session, 0, limits.0, limits.1, &all_from(offset));
    let fetched = fetch_answer(&connection.call(FETCH, 7, request).expect("an answer"));
    assert_eq!(fetched.error, 0);
    assert!(fetched.partitions.iter().all(|partition| partition.2 == 0), "{fetched:?}");
    fetched
}

#[test]
fn a_fetch_over_many_cold_partitions_reads_from_the_disk_about_what_it_returns() {
    for shards in [1, 3] {
        let data = tempfile::tempdir().expect("a temporary folder");
        let setup = BrokerSetup::new(data.path(), shards);
        let broker = cold_broker(&setup);
        let mut connection = RawConnection::connect(setup.address()).expect("a connection");
        // (limit of the answer, limit of a partition): the answer is full after a few partitions, or in the middle of one.
        for limits in
            [(200_000, 60_000), (200_000, 1 << 20), (45_000, 1 << 20), (15_000, 1 << 20), (1, 1 << 20), (1 << 20, 1)]
        {
            for offset in [0, 7, 15] {
                let before = broker.status("bytes_cold", usize::from(shards));
                let (partitions, bytes) = brought(&call(&mut connection, WITHOUT, limits, offset));
                let read = broker.status("bytes_cold", usize::from(shards)) - before;
                let what = format!(
                    "{shards} shards, limits {limits:?}, offset {offset}: {read} read for {bytes} of {partitions:?}"
                );
                assert!(bytes > 0, "{what}");
                assert!(partitions.len() == 1 || bytes <= limits.0 as u64, "{what}");
                // One more: the partition for whose next batch the rest of the answer was too small.
                assert!(read <= bytes + UNIT_BYTES * (partitions.len() as u64 + 1), "{what}");
                // Kafka fills an answer in the request's order.
                assert_eq!(partitions, (0..partitions.len() as i32).collect::<Vec<_>>(), "{what}");
                assert!(bytes + 10_100 > limits.0.min(limits.1) as u64, "{what}");
            }
        }
    }
}

#[test]
fn in_a_session_no_partition_starves_behind_those_that_always_have_records() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let setup = BrokerSetup::new(data.path(), 3);
    let _broker = cold_broker(&setup);
    let mut connection = RawConnection::connect(setup.address()).expect("a connection");
    // Room for two or three partitions at a time, and a client that never moves on: every partition always has records.
    let limits = (65_000, 25_000);
    let first = call(&mut connection, Session { id: 0, epoch: 0 }, limits, 0);
    assert_ne!(first.session_id, 0, "a session");
    let mut seen: BTreeMap<i32, usize> = BTreeMap::new();
    // The answer that opens a session moves nobody: in Kafka neither. So the next one brings the same again.
    let rounds = PARTITIONS as usize;
    for epoch in 1..=rounds {
        let session = Session { id: first.session_id, epoch: epoch as i32 };
        let request = fetch_within(session, 0, limits.0, limits.1, &[]);
        let fetched = fetch_answer(&connection.call(FETCH, 7, request).expect("an answer"));
        let (partitions, _) = brought(&fetched);
        assert!(!partitions.is_empty(), "round {epoch}: {fetched:?}");
        for partition in partitions {
            *seen.entry(partition).or_default() += 1;
        }
    }
    assert_eq!(seen.len(), PARTITIONS as usize, "every partition had its turn: {seen:?}");
    let (least, most) = (seen.values().min().copied(), seen.values().max().copied());
    assert!(most.unwrap_or(0) <= least.unwrap_or(0) + 1, "and all as often: {seen:?}");
}
