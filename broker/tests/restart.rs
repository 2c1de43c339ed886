//! Holds: what must be the same after a restart: all records with other numbers of shards, log starts, deleted topics, sessions of
//! fetches over connections, and who may use a data folder.
//! Never touches: kills under load (see `kill.rs`), the power (see `power_cut.rs`).

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use support::admin::Admin;
use support::broker::{Broker, BrokerSetup};
use support::raw::RawConnection;
use support::requests::{
    FETCH, PRODUCE, Session, batch, fetch, fetch_answer, produce, produce_answer, topic_id, values_of,
};
use support::workload::{Ledger, Load, LoadOptions, MadeUp, Source, verify_or_panic};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);

fn setup(shards: u16) -> (TempDir, BrokerSetup) {
    let data = tempfile::tempdir().expect("a temporary folder");
    let setup = BrokerSetup::new(&data.path().join("data"), shards);
    (data, setup)
}

/// Sends payloads `numbers` and waits until all are acknowledged.
fn pour(
    setup: &BrokerSetup,
    topic: &str,
    source: &Arc<dyn Source>,
    ledger: &Arc<Ledger>,
    numbers: std::ops::Range<u64>,
) {
    let load = Load::new(&setup.bootstrap(), topic, Arc::clone(source), Arc::clone(ledger), &LoadOptions::default());
    for number in numbers {
        assert!(load.push(number, Instant::now() + PATIENCE), "room in the producer's queue");
    }
    load.flush(PATIENCE).expect("all acknowledged");
    assert_eq!(ledger.failures(), Vec::<String>::new());
}

fn end(broker: &mut Broker, by_kill: bool) {
    if by_kill {
        broker.kill();
    } else {
        let exit = broker.terminate(PATIENCE);
        assert_eq!(exit.code(), Some(0), "SIGTERM flushes and exits with 0; the log:\n{}", broker.log());
    }
}

#[test]
fn restarts_with_other_numbers_of_shards_keep_all_data() {
    const PARTITIONS: usize = 12;
    for by_kill in [false, true] {
        let (_data, mut setup) = setup(4);
        let mut broker = setup.start();
        Admin::new(&setup.bootstrap(), PATIENCE).create_topic("t", PARTITIONS, &[]).expect("a topic");
        let source: Arc<dyn Source> = Arc::new(MadeUp { seed: 3, bytes_max: 300 });
        let ledger = Arc::new(Ledger::new(PARTITIONS));
        let mut sent = 0;
        for shards in [4, 1, 3, 4] {
            pour(&setup, "t", &source, &ledger, sent..sent + 6_000);
            sent += 6_000;
            end(&mut broker, by_kill);
            setup.shards = shards;
            broker = setup.start();
            let when = format!("after a restart with {shards} shards (by kill: {by_kill})");
            let verified = verify_or_panic(&setup.bootstrap(), "t", &*source, &ledger, true, &when);
            assert_eq!(verified.records, sent, "{when}");
        }
    }
}

#[test]
fn deleted_records_stay_deleted_after_a_kill() {
    let (_data, setup) = setup(2);
    let mut broker = setup.start();
    let admin = Admin::new(&setup.bootstrap(), PATIENCE);
    admin.create_topic("t", 2, &[]).expect("a topic");
    let source: Arc<dyn Source> = Arc::new(MadeUp { seed: 4, bytes_max: 100 });
    let ledger = Arc::new(Ledger::new(2));
    pour(&setup, "t", &source, &ledger, 0..2_000);
    admin.delete_records("t", 0, 600).expect("records deleted");
    broker.kill();
    broker = setup.start();
    assert_eq!(admin.watermarks("t", 0), (600, 1_000), "the partition whose records were deleted");
    assert_eq!(admin.watermarks("t", 1), (0, 1_000), "its neighbour");
    admin.delete_records("t", 0, 1_000).expect("all records deleted");
    broker.kill();
    let _broker = setup.start();
    assert_eq!(admin.watermarks("t", 0), (1_000, 1_000), "an empty partition keeps its place");
    let mut connection = RawConnection::connect(setup.address()).expect("a connection");
    let answer = connection.call(PRODUCE, 3, produce("t", 0, 1, &batch(&[b"next"], 1))).expect("an answer");
    assert_eq!(produce_answer(&answer), (0, 1_000), "the next record follows the deleted ones");
}

#[test]
fn a_topic_created_again_has_a_new_id_and_no_old_record() {
    for by_kill in [false, true] {
        let (_data, setup) = setup(3);
        let mut broker = setup.start();
        let admin = Admin::new(&setup.bootstrap(), PATIENCE);
        let id = || {
            let mut connection = RawConnection::connect(setup.address()).expect("a connection");
            topic_id(&mut connection, "t").expect("an answer")
        };
        let source: Arc<dyn Source> = Arc::new(MadeUp { seed: 5, bytes_max: 100 });
        admin.create_topic("t", 3, &[]).expect("a topic");
        let (error, first_id) = id();
        assert_eq!(error, 0);
        pour(&setup, "t", &source, &Arc::new(Ledger::new(3)), 0..3_000);
        admin.delete_topic("t").expect("deleted");
        if by_kill {
            broker.kill();
            broker = setup.start();
        }
        assert!(!admin.topics().contains(&"t".to_owned()), "a deleted topic is gone (by kill: {by_kill})");
        admin.create_topic("t", 3, &[]).expect("a topic of the same name");
        let (error, second_id) = id();
        assert_eq!(error, 0);
        assert_ne!(first_id, second_id, "topic ids");
        assert_ne!(second_id, [0; 16], "a topic has an id");
        for partition in 0..3 {
            assert_eq!(admin.watermarks("t", partition), (0, 0), "an empty partition (by kill: {by_kill})");
        }
        let ledger = Arc::new(Ledger::new(3));
        pour(&setup, "t", &source, &ledger, 0..30);
        end(&mut broker, by_kill);
        let _broker = setup.start();
        assert_eq!(id(), (0, second_id), "the id survives a restart");
        let verified = verify_or_panic(&setup.bootstrap(), "t", &*source, &ledger, true, "after delete and create");
        assert_eq!(verified.records, 30, "only the new records");
    }
}

#[test]
fn a_fetch_session_goes_on_over_another_connection() {
    let (_data, setup) = setup(4);
    let _broker = setup.start();
    Admin::new(&setup.bootstrap(), PATIENCE).create_topic("t", 4, &[]).expect("a topic");
    let connect = || RawConnection::connect(setup.address()).expect("a connection");
    let mut producing = connect();
    let mut send = |partition: i32, value: &str| {
        let body = produce("t", partition, -1, &batch(&[value.as_bytes()], 1));
        let answer = producing.call(PRODUCE, 3, body).expect("an answer");
        assert_eq!(produce_answer(&answer).0, 0);
    };
    send(0, "first");
    let all: Vec<(&str, i32, i64)> = (0..4).map(|partition| ("t", partition, 0)).collect();
    let mut first = connect();
    let opened = fetch_answer(&first.call(FETCH, 7, fetch(Session { id: 0, epoch: 0 }, 100, &all)).expect("an answer"));
    assert_eq!((opened.error, opened.partitions.len()), (0, 4), "a full fetch answers for each partition");
    assert_ne!(opened.session_id, 0, "a session was opened");
    drop(first);

    // On another connection, probably on another shard: only the partition with news is answered.
    send(2, "second");
    let mut second = connect();
    let session = Session { id: opened.session_id, epoch: 1 };
    let answer = second.call(FETCH, 7, fetch(session, 1_000, &[("t", 0, 1)])).expect("an answer");
    let fetched = fetch_answer(&answer);
    assert_eq!((fetched.error, fetched.session_id), (0, opened.session_id));
    let with_records: Vec<i32> =
        fetched.partitions.iter().filter(|partition| !partition.5.is_empty()).map(|partition| partition.1).collect();
    assert_eq!(with_records, [2], "{fetched:?}");
    let news = fetched.partitions.iter().find(|partition| partition.1 == 2).expect("partition 2");
    assert_eq!(values_of(&news.5), [(0, b"second".to_vec())]);

    let answer = second.call(FETCH, 7, fetch(Session { id: opened.session_id, epoch: 9 }, 0, &[])).expect("an answer");
    assert_eq!(fetch_answer(&answer).error, 71, "INVALID_FETCH_SESSION_EPOCH");
    let answer =
        second.call(FETCH, 7, fetch(Session { id: opened.session_id ^ 1, epoch: 1 }, 0, &[])).expect("an answer");
    assert_eq!(fetch_answer(&answer).error, 70, "FETCH_SESSION_ID_NOT_FOUND");
}

#[test]
fn a_second_broker_is_refused_the_data_folder_and_the_port() {
    let (_data, setup) = setup(1);
    let mut broker = setup.start();
    let same_folder = BrokerSetup::new(&setup.data_dir, 1);
    let refused = same_folder.try_start().expect_err("the folder is in use");
    assert!(refused.exit.is_some_and(|exit| exit.code().is_some_and(|code| code != 0)), "{refused}");

    // The port: started by hand, since the harness would take the first broker's answer for the second's.
    let other = tempfile::tempdir().expect("a temporary folder");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_corelog"))
        .args(["serve", "--listen", &setup.bootstrap(), "--shards", "1", "--data-dir"])
        .arg(other.path())
        .output()
        .expect("the broker's binary can be started");
    assert!(output.status.code().is_some_and(|code| code != 0), "the port is in use: {:?}", output.status);
    assert_eq!(broker.exited(), None, "the first broker is not disturbed");
    assert!(RawConnection::connect(setup.address()).is_ok_and(|mut connection| connection.api_versions().is_ok()));
    end(&mut broker, false);
    let _broker = same_folder.start();
}

#[test]
fn an_idle_broker_ends_soon_after_sigterm() {
    let (_data, setup) = setup(2);
    // Without a topic there is nothing to close, and nothing else that would keep a shard awake.
    let mut broker = setup.start();
    // Past what follows a start, so that all shards sleep.
    std::thread::sleep(Duration::from_millis(500));
    let began = Instant::now();
    end(&mut broker, false);
    let took = began.elapsed();
    assert!(
        took < Duration::from_secs(3),
        "SIGTERM to the end of an idle broker took {took:?}; its log:\n{}",
        broker.log()
    );
}

#[test]
fn an_idle_broker_is_small_quiet_and_quickly_up() {
    let (_data, setup) = setup(2);
    let broker = setup.start();
    println!("start to first answer: {:?}", broker.start_time());
    std::thread::sleep(Duration::from_millis(500));
    let (before, began) = (broker.cpu_time(), Instant::now());
    std::thread::sleep(Duration::from_secs(3));
    let busy = (broker.cpu_time() - before).as_secs_f64() / began.elapsed().as_secs_f64();
    let resident = broker.resident_bytes();
    println!("idle: {:.2} % of a processor, {} MiB resident", busy * 100.0, resident >> 20);
    assert!(busy < 0.01, "an idle broker used {:.2} % of a processor", busy * 100.0);
    assert!(resident < 100 << 20, "an idle broker holds {} MiB", resident >> 20);
}
