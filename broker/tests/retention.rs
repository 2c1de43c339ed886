//! Holds: retention on the real broker: what goes by size and by age, what clients see of it, and after a restart.
//! Never touches: which segments go (storage's tests), crashes (`storage/tests/log_retention.rs`).

mod support;

use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rdkafka::admin::{AlterConfig, ResourceSpecifier};
use support::admin::{Admin, wait_for};
use support::broker::{Broker, BrokerSetup};
use support::raw::RawConnection;
use support::requests::{
    FETCH, LIST_OFFSETS, PRODUCE, Session, batch, fetch, fetch_answer, list_offsets, list_offsets_answer, produce,
    produce_answer,
};

const PATIENCE: Duration = Duration::from_secs(60);
const OFFSET_OUT_OF_RANGE: i16 = 1;
const VALUE_BYTES: usize = 10_000;
const SEGMENT_BYTES: u64 = 100_000;
const SESSIONLESS: Session = Session { id: 0, epoch: -1 };

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970").as_millis() as i64
}

fn pour(broker: &Broker, topic: &str, count: i64, time: i64) -> i64 {
    let mut connection = RawConnection::connect(broker.address()).expect("a connection");
    let batch = batch(&[&[7; VALUE_BYTES]], time);
    let mut last = 0;
    for _ in 0..count {
        let answer = connection.call(PRODUCE, 3, produce(topic, 0, -1, &batch)).expect("an answer");
        let (error, base) = produce_answer(&answer);
        assert_eq!(error, 0, "a produce");
        last = base;
    }
    last + 1
}

fn start_becomes(admin: &Admin, topic: &str, is_so: impl Fn(i64, i64) -> bool, broker: &Broker) -> i64 {
    let began = Instant::now();
    loop {
        let (start, end) = admin.watermarks(topic, 0);
        if is_so(start, end) {
            return start;
        }
        assert!(began.elapsed() < PATIENCE, "{topic} still has {start}..{end}; the log:\n{}", broker.log());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Bytes of the segments' files.
fn bytes_on_disk(data: &Path, topic: &str) -> u64 {
    let files = std::fs::read_dir(data.join(format!("{topic}-0"))).expect("the partition's folder");
    let bytes = files.filter_map(|file| {
        let file = file.ok()?;
        file.file_name().to_str()?.contains(".log").then(|| file.metadata().map_or(0, |about| about.len()))
    });
    bytes.sum()
}

fn alter(admin: &Admin, topic: &str, configs: &[(&str, &str)]) {
    let segment_bytes = SEGMENT_BYTES.to_string();
    let mut change = AlterConfig::new(ResourceSpecifier::Topic(topic));
    for (name, value) in [("internal.segment.bytes", segment_bytes.as_str()), ("file.delete.delay.ms", "0")] {
        change = change.set(name, value);
    }
    for (name, value) in configs {
        change = change.set(name, value);
    }
    wait_for(admin.client().alter_configs([&change], admin.options())).expect("an answer").remove(0).expect("altered");
}

#[test]
fn old_segments_go_by_size_and_by_age_and_clients_find_the_new_start() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let data = data.path().join("data");
    let setup =
        BrokerSetup::new(&data, 2).set("log.initial.task.delay.ms", "50").set("log.retention.check.interval.ms", "50");
    let mut broker = setup.start();
    let admin = Admin::new(&setup.bootstrap(), PATIENCE);
    let segment_bytes = SEGMENT_BYTES.to_string();
    let small = |more: &[(&'static str, &'static str)]| {
        let mut configs = vec![("internal.segment.bytes", segment_bytes.as_str()), ("file.delete.delay.ms", "0")];
        configs.extend_from_slice(more);
        configs
    };
    admin.create_topic("sized", 1, &small(&[("retention.bytes", "250000")])).expect("a topic");
    admin.create_topic("kept", 1, &small(&[])).expect("a topic");
    admin.create_topic("aged", 1, &small(&[])).expect("a topic");

    let end = pour(&broker, "sized", 60, now_ms());
    let kept = |start: i64, end: i64| (end - start) as u64 * (VALUE_BYTES as u64 + 80);
    let start = start_becomes(&admin, "sized", |start, end| kept(start, end) < 250_000 + SEGMENT_BYTES, &broker);
    assert!(kept(start, end) >= 240_000, "from {start} to {end} is left: less than the limit");
    broker.log_with("deleted for retention.bytes=250000");

    let mut connection = RawConnection::connect(broker.address()).expect("a connection");
    let earliest = connection.call(LIST_OFFSETS, 1, list_offsets("sized", 0, -2)).expect("an answer");
    assert_eq!(list_offsets_answer(&earliest), (0, start));
    let before = connection.call(FETCH, 7, fetch(SESSIONLESS, 0, &[("sized", 0, start - 1)])).expect("an answer");
    assert_eq!(fetch_answer(&before).partitions[0].2, OFFSET_OUT_OF_RANGE);
    let first = connection.call(FETCH, 7, fetch(SESSIONLESS, 0, &[("sized", 0, start)])).expect("an answer");
    assert_eq!(fetch_answer(&first).partitions[0].2, 0);
    let began = Instant::now();
    while bytes_on_disk(&data, "sized") > 250_000 + 3 * SEGMENT_BYTES {
        assert!(began.elapsed() < PATIENCE, "{} bytes are on the disk", bytes_on_disk(&data, "sized"));
        std::thread::sleep(Duration::from_millis(20));
    }

    // Of a topic that is compacted alone nothing goes, though its records are as old as the next one's.
    let kept_end = pour(&broker, "kept", 25, now_ms() - 60_000);
    let compacted = [("cleanup.policy", "compact"), ("min.compaction.lag.ms", "1000000000")];
    alter(&admin, "kept", &[&compacted[..], &[("retention.bytes", "0"), ("retention.ms", "1")]].concat());
    let end = pour(&broker, "aged", 25, now_ms() - 60_000);
    assert_eq!(admin.watermarks("aged", 0), (0, end), "no limit of age yet");
    alter(&admin, "aged", &[("retention.ms", "30000")]);
    start_becomes(&admin, "aged", |start, end| start == end, &broker);
    broker.log_with("deleted for retention.ms=30000");
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(admin.watermarks("kept", 0), (0, kept_end));
    assert!(broker.status("segments_over_size", 2) >= 3, "{}", broker.log());
    assert!(broker.status("segments_expired", 2) >= 3, "{}", broker.log());

    broker.kill();
    broker = setup.start();
    let admin = Admin::new(&setup.bootstrap(), PATIENCE);
    assert_eq!(admin.watermarks("aged", 0), (end, end), "all of it is gone, and the offsets go on");
    assert!(admin.watermarks("sized", 0).0 >= start);
    assert_eq!(pour(&broker, "aged", 1, now_ms()), end + 1);
    assert_eq!(admin.watermarks("aged", 0), (end, end + 1));
}
