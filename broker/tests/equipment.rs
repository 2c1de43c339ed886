//! Holds: the tests of the tests' own judge: each kind of broken promise is found, and a kept one is not.
//! Never touches: the broker; librdkafka's mock cluster stands in for it.

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::mocking::MockCluster;
use support::workload::{Finding, Ledger, Load, LoadOptions, MadeUp, PartitionCheck, Source, Text, Watcher, verify};

const SOURCE: MadeUp = MadeUp { seed: 7, bytes_max: 100 };

/// Partition 1 of 2, in which payloads with the indexes `acked` were acknowledged at the offsets of the same value.
fn promises(acked: std::ops::Range<u64>) -> Ledger {
    let ledger = Ledger::new(2);
    for index in acked {
        ledger.acknowledge(index * 2 + 1, index as i64);
    }
    ledger
}

/// Judges a partition 1 that holds the payloads with these (offset, index).
fn judge(ledger: &Ledger, records: &[(i64, u64)], idempotent: bool) -> Vec<Finding> {
    let promises = ledger.of(1).clone();
    let mut check = PartitionCheck::new(1, 2, &SOURCE, &promises, idempotent);
    for &(offset, index) in records {
        check.record(offset, &SOURCE.payload(index * 2 + 1));
    }
    check.finish().1
}

#[test]
fn a_log_that_keeps_its_promises_is_not_blamed() {
    assert_eq!(judge(&promises(0..3), &[(0, 0), (1, 1), (2, 2)], true), []);
    assert_eq!(
        judge(&promises(0..2), &[(0, 0), (1, 1), (2, 2)], true),
        [],
        "a record that is not acknowledged yet may be there"
    );
    assert_eq!(
        judge(&promises(0..2), &[(0, 0), (1, 1), (2, 1)], false),
        [],
        "without idempotence duplicates are allowed"
    );
    let ledger = promises(0..1);
    ledger.acknowledge(3, -1001);
    assert_eq!(judge(&ledger, &[(0, 0), (1, 1)], true), [], "an acknowledgement without an offset");
}

#[test]
fn a_lost_record_is_found() {
    let lost = Finding::Lost { partition: 1, index: 2, offset: Some(2) };
    assert_eq!(judge(&promises(0..3), &[(0, 0), (1, 1)], true), std::slice::from_ref(&lost));
    assert_eq!(judge(&promises(0..3), &[(0, 0), (1, 1)], false), [lost]);
    let ledger = promises(0..1);
    ledger.acknowledge(3, -1001);
    assert_eq!(judge(&ledger, &[(0, 0)], true), [Finding::Lost { partition: 1, index: 1, offset: None }]);
}

#[test]
fn a_duplicate_and_a_disorder_are_found() {
    let duplicate = Finding::Duplicate { partition: 1, index: 1, offset: 2 };
    assert!(judge(&promises(0..2), &[(0, 0), (1, 1), (2, 1)], true).contains(&duplicate));
    let disorder = Finding::Disordered { partition: 1, offset: 0, expected_index: 0, found_index: 1 };
    assert!(judge(&promises(0..0), &[(0, 1), (1, 0)], true).contains(&disorder));
    let skipped = Finding::Disordered { partition: 1, offset: 1, expected_index: 1, found_index: 2 };
    assert!(judge(&promises(0..0), &[(0, 0), (1, 2)], true).contains(&skipped));
}

#[test]
fn a_gap_a_move_and_changed_bytes_are_found() {
    assert!(judge(&promises(0..0), &[(0, 0), (2, 1)], true).contains(&Finding::Gap {
        partition: 1,
        expected: 1,
        found: 2
    }));
    let ledger = Ledger::new(2);
    ledger.acknowledge(1, 5);
    assert!(judge(&ledger, &[(0, 0)], true).contains(&Finding::Moved { partition: 1, index: 0, acked: 5, found: 0 }));
    assert!(judge(&ledger, &[(0, 0)], false).contains(&Finding::Lost { partition: 1, index: 0, offset: Some(5) }));
    let promises = Ledger::new(2).of(1).clone();
    let mut check = PartitionCheck::new(1, 2, &SOURCE, &promises, true);
    let mut payload = SOURCE.payload(1).into_owned();
    payload[8] ^= 1;
    check.record(0, &payload);
    check.record(1, &SOURCE.payload(2));
    let found = check.finish().1;
    assert!(matches!(found[..], [Finding::Changed { offset: 0, .. }, Finding::Changed { offset: 1, .. }]), "{found:?}");
}

#[test]
fn a_record_that_a_consumer_saw_and_that_changed_or_went_is_found() {
    let ledger = promises(0..0);
    ledger.show(1, 0, 1);
    ledger.show(1, 1, 3);
    assert_eq!(judge(&ledger, &[(0, 0), (1, 1)], true), []);
    let gone = Finding::Unseen { partition: 1, offset: 1, shown_index: 1, found_index: None };
    assert_eq!(judge(&ledger, &[(0, 0)], true), [gone]);
    let changed = Finding::Unseen { partition: 1, offset: 1, shown_index: 1, found_index: Some(2) };
    assert!(judge(&ledger, &[(0, 0), (1, 2)], true).contains(&changed));
}

#[test]
fn real_text_comes_as_numbered_lines_and_the_same_each_time() {
    let (text, again) = (Text::gather(1 << 20), Text::gather(1 << 20));
    assert!(text.bytes() >= 1 << 20 && text.lines() > 1_000, "{} bytes, {} lines", text.bytes(), text.lines());
    for number in [0, 1, text.lines() / 2, text.lines() - 1] {
        let payload = text.payload(number);
        assert_eq!(text.number_of(&payload), Some(number));
        assert_eq!(payload, again.payload(number));
    }
    assert_eq!(text.number_of(b"no number"), None);
}

#[test]
fn producer_watcher_and_verifier_agree_with_a_broker_that_works() {
    let cluster = MockCluster::new(1).expect("a mock cluster");
    cluster.create_topic("t", 4, 1).expect("a topic");
    let (source, ledger): (Arc<dyn Source>, _) = (Arc::new(SOURCE), Arc::new(Ledger::new(4)));
    let bootstrap = cluster.bootstrap_servers();
    let watcher = Watcher::new(&bootstrap, "t", Arc::clone(&source), Arc::clone(&ledger));
    let load = Load::new(&bootstrap, "t", Arc::clone(&source), Arc::clone(&ledger), &LoadOptions::default());
    let deadline = Instant::now() + Duration::from_secs(60);
    for number in 0..20_000 {
        assert!(load.push(number, deadline));
    }
    load.flush(Duration::from_secs(60)).expect("all acknowledged");
    assert_eq!(ledger.acked_count(), 20_000);
    let verified = verify(&bootstrap, "t", &*source, &ledger, true).expect("no promise broken");
    assert_eq!(verified.records, 20_000);
    drop(watcher);
    assert!(ledger.of(0).shown_end() > 0, "the watcher saw something");
    assert_eq!(ledger.failures(), Vec::<String>::new());

    // What was promised and is not there is found through the network, too.
    ledger.acknowledge(20_000, 5_000);
    let findings = verify(&bootstrap, "t", &*source, &ledger, true).expect_err("a broken promise");
    assert_eq!(findings, [Finding::Lost { partition: 0, index: 5_000, offset: Some(5_000) }]);
}
