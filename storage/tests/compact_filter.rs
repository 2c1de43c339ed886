//! What a compaction leaves of batches.

mod compact_common;

use compact_common::{BOUND, LogBuilder, Plan, SECRET, Seen, batches, compact, seen};
use corelog_storage::batch::{
    BatchHeader, BatchView, Compression, DecompressScratch, HEADER_BYTES, ScanError, ScanState,
};
use corelog_storage::compact::{AbortedTransaction, KeyMap, KeyScan, LastWrites};
use corelog_storage::ids::{Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};
use corelog_storage::producers::{ProducerState, ProducerStateLimits};
use proptest::prelude::*;
use std::collections::BTreeMap;

const CODECS: [Compression; 5] =
    [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];

fn offsets(log: &[u8]) -> Vec<i64> {
    seen(log).iter().map(|record| record.offset).collect()
}

fn headers(log: &[u8]) -> Vec<BatchHeader> {
    batches(log).iter().map(|batch| batch.header).collect()
}

#[test]
fn the_newest_record_of_each_key_stays_where_it_is() {
    for codec in CODECS {
        let mut log = LogBuilder::default();
        log.batch(codec, &[("a", Some("1")), ("b", Some("2")), ("a", Some("3"))]);
        log.batch(codec, &[("b", Some("4")), ("c", Some("5"))]);
        log.batch(codec, &[("d", Some("6"))]);
        let (out, covered) = compact(&log.bytes, &Plan::up_to(6));
        assert_eq!((offsets(&out), covered), (vec![2, 3, 4, 5], 6), "{codec}");
        let before = headers(&log.bytes);
        let after = headers(&out);
        assert_eq!(after[0].base_offset, before[0].base_offset);
        assert_eq!(after[0].last_offset_delta, before[0].last_offset_delta);
        assert_eq!(after[0].leader_epoch, before[0].leader_epoch);
        assert_eq!(after[0].base_timestamp, Timestamp(1_002), "the first record that is left");
        assert_eq!(after[1..], before[1..], "{codec}: a batch of which all stays is not written anew");
    }
}

#[test]
fn a_batch_of_which_nothing_stays_goes_unless_it_ends_the_round() {
    let mut log = LogBuilder::default();
    log.batch(Compression::None, &[("a", Some("1"))]);
    log.batch(Compression::None, &[("a", Some("2")), ("b", Some("2"))]);
    log.batch(Compression::Gzip, &[("a", None), ("b", None)]);
    let mut plan = Plan { delete_retention_ms: 0, ..Plan::up_to(5) };
    let (once, _) = compact(&log.bytes, &plan);
    assert_eq!(offsets(&once), [3, 4], "tombstones stay until their horizon");
    plan.now += 1;
    let (twice, _) = compact(&once, &plan);
    assert_eq!(seen(&twice), []);
    let [header] = headers(&twice)[..] else { panic!("one batch keeps the offset of the log's end") };
    assert_eq!((header.base_offset, header.last_offset_delta, header.record_count), (Offset(3), 1, 0));
    assert_eq!((header.base_timestamp, header.max_timestamp), (Timestamp::NONE, Timestamp(1_004)));
    assert!(!header.attributes.has_delete_horizon());
    assert_eq!(header.attributes.compression(), Some(Compression::None));
    assert_eq!(twice.len(), HEADER_BYTES);
    assert_eq!(compact(&twice, &plan).0, twice);
}

#[test]
fn a_tombstone_goes_once_the_horizon_of_its_batch_has_passed() {
    for codec in CODECS {
        let mut log = LogBuilder::default();
        log.batch(codec, &[("a", Some("1")), ("b", Some("2"))]);
        log.batch(codec, &[("a", None), ("c", Some("3"))]);
        log.batch(codec, &[("d", Some("4"))]);
        let plan = Plan::up_to(5);
        let (first, _) = compact(&log.bytes, &plan);
        assert_eq!(offsets(&first), [1, 2, 3, 4]);
        let marked = headers(&first)[1];
        assert_eq!(marked.delete_horizon(), Some(Timestamp(plan.now + plan.delete_retention_ms)));
        assert_eq!(seen(&first)[1..], seen(&log.bytes)[2..], "{codec}: timestamps are the same behind the horizon");
        // Not yet: neither does the horizon move, nor anything else.
        let later = Plan { now: plan.now + plan.delete_retention_ms - 1, ..plan.clone() };
        assert_eq!(compact(&first, &later).0, first, "{codec}");
        let due = Plan { now: plan.now + plan.delete_retention_ms, ..plan };
        let (last, _) = compact(&first, &due);
        assert_eq!(offsets(&last), [1, 3, 4], "{codec}");
        assert_eq!(headers(&last)[1].delete_horizon(), marked.delete_horizon());
    }
}

#[test]
fn records_without_a_key_go_and_those_behind_the_map_stay() {
    let mut log = LogBuilder::default();
    let mut builder = log.builder(Compression::Lz4);
    builder.append(Timestamp(5), None, Some(b"no key"), &[]);
    builder.append(Timestamp(6), Some(b"a"), Some(b"1"), &[]);
    builder.build_into(&mut log.bytes).unwrap();
    log.next = 2;
    log.batch(Compression::None, &[("b", Some("2"))]);
    log.batch(Compression::None, &[("b", Some("3")), ("a", Some("4"))]);
    // One key only: the round ends before the second.
    let plan = Plan { map_bytes: 24 * 2, ..Plan::up_to(5) };
    let (out, covered) = compact(&log.bytes, &plan);
    assert_eq!((offsets(&out), covered), (vec![1, 2, 3, 4], 2));
    // And the next one goes on from there.
    let (out, covered) = compact(&out, &Plan { first_dirty: covered, ..Plan::up_to(5) });
    assert_eq!((offsets(&out), covered), (vec![3, 4], 5));
}

#[test]
fn the_last_batch_of_an_active_producer_stays_with_its_sequence() {
    let mut log = LogBuilder::default();
    let idempotent = |log: &LogBuilder, sequence| {
        log.builder(Compression::None).producer(ProducerId(9), ProducerEpoch(2), Sequence(sequence))
    };
    log.push(idempotent(&log, 0), &[("a", Some("1")), ("b", Some("1"))]);
    log.push(idempotent(&log, 2), &[("a", Some("2")), ("b", Some("2"))]);
    log.batch(Compression::None, &[("a", Some("3")), ("b", Some("3"))]);
    let mut state = ProducerState::new(ProducerStateLimits::default(), Offset(0));
    for header in headers(&log.bytes) {
        state.record(&header);
    }
    let plan = Plan { producers: LastWrites::of(&state), ..Plan::up_to(6) };
    let (out, _) = compact(&log.bytes, &plan);
    let [empty, last] = headers(&out)[..] else { panic!("the producer's last batch and the log's") };
    assert_eq!((empty.base_offset, empty.last_sequence(), empty.record_count), (Offset(2), Sequence(3), 0));
    assert_eq!((empty.producer_id, empty.producer_epoch), (ProducerId(9), ProducerEpoch(2)));
    assert_eq!(last.base_offset, Offset(4));
    // A state that is read from the compacted log knows the sequence.
    let mut again = ProducerState::new(ProducerStateLimits::default(), Offset(0));
    headers(&out).iter().for_each(|header| again.record(header));
    let last = |state: &ProducerState| state.get(ProducerId(9)).map(|p| (p.last_sequence(), p.epoch, p.last_offset()));
    assert_eq!(last(&again), last(&state));
    // Once the producer is forgotten, so is the batch.
    let plan = Plan { producers: LastWrites::default(), ..plan };
    assert_eq!(headers(&compact(&out, &plan).0).len(), 1);
}

#[test]
fn an_aborted_transaction_goes_and_its_marker_a_horizon_later() {
    let mut log = LogBuilder::default();
    log.batch(Compression::None, &[("a", Some("before"))]);
    log.transactional(7, 0, &[("a", Some("aborted")), ("x", Some("aborted"))]);
    log.marker(7, true);
    log.batch(Compression::None, &[("z", Some("after"))]);
    let aborted =
        vec![AbortedTransaction { producer_id: ProducerId(7), first_offset: Offset(1), last_offset: Offset(3) }];
    let plan = Plan { aborted, ..Plan::up_to(5) };
    let (first, _) = compact(&log.bytes, &plan);
    assert_eq!(offsets(&first), [0, 4], "an aborted record deletes nothing");
    let marker = headers(&first)[1];
    assert!(marker.attributes.is_control() && marker.delete_horizon().is_none(), "data was there in this pass");
    // Now it is spent, and gets its horizon.
    let (second, _) = compact(&first, &plan);
    let horizon = plan.now + plan.delete_retention_ms;
    assert_eq!(headers(&second)[1].delete_horizon(), Some(Timestamp(horizon)));
    assert_eq!(headers(&second)[1].record_count, 1);
    let (third, _) = compact(&second, &Plan { now: horizon - 1, ..plan.clone() });
    assert_eq!(third, second);
    let (fourth, _) = compact(&second, &Plan { now: horizon, ..plan });
    assert_eq!(headers(&fourth).iter().map(|h| h.base_offset.0).collect::<Vec<_>>(), [0, 4]);
}

#[test]
fn the_marker_of_a_committed_transaction_stays_while_any_of_its_batches_is_there() {
    let mut log = LogBuilder::default();
    log.transactional(7, 0, &[("a", Some("1"))]);
    log.marker(7, false);
    log.transactional(8, 0, &[("b", Some("1"))]);
    log.marker(8, false);
    log.batch(Compression::None, &[("b", Some("2")), ("c", Some("3"))]);
    let plan = Plan { delete_retention_ms: 0, ..Plan::up_to(6) };
    let (first, _) = compact(&log.bytes, &plan);
    let (second, _) = compact(&first, &plan);
    let (third, _) = compact(&second, &Plan { now: plan.now + 1, ..plan });
    let bases = |log: &[u8]| headers(log).iter().map(|h| h.base_offset.0).collect::<Vec<_>>();
    assert_eq!((bases(&second), bases(&third)), (vec![0, 1, 3, 4], vec![0, 1, 4]));
    assert_eq!(offsets(&third), [0, 4, 5]);
}

#[test]
fn the_marker_with_the_epoch_of_an_active_producer_without_data_stays() {
    let mut log = LogBuilder::default();
    log.marker(7, false);
    log.batch(Compression::None, &[("a", Some("1"))]);
    let mut state = ProducerState::new(ProducerStateLimits::default(), Offset(0));
    let marker = corelog_storage::producers::EndMarker { is_abort: false, coordinator_epoch: 0 };
    state.record_marker(&headers(&log.bytes)[0], marker, Timestamp(1));
    let plan = Plan { producers: LastWrites::of(&state), delete_retention_ms: 0, ..Plan::up_to(2) };
    let (marked, _) = compact(&log.bytes, &plan);
    let (out, _) = compact(&marked, &Plan { now: plan.now + 1, ..plan.clone() });
    let first = headers(&out)[0];
    assert_eq!((first.record_count, first.producer_epoch), (0, ProducerEpoch(0)), "empty, but there");
    assert!(first.attributes.is_control());
    let (out, _) = compact(&out, &Plan { producers: LastWrites::default(), now: plan.now + 2, ..plan });
    assert_eq!(headers(&out).len(), 1);
}

#[test]
fn with_append_time_every_record_keeps_the_time_of_its_batch() {
    let mut log = LogBuilder::default();
    let builder = log.builder(Compression::None).log_append_time(Timestamp(77_000));
    log.push(builder, &[("a", Some("1")), ("b", None), ("a", Some("2"))]);
    log.batch(Compression::None, &[("z", Some("9"))]);
    let (out, _) = compact(&log.bytes, &Plan::up_to(4));
    let times: Vec<_> = seen(&out).iter().map(|r| (r.offset, r.timestamp)).collect();
    assert_eq!(times[..2], [(1, 77_000), (2, 77_000)]);
    assert_eq!(headers(&out)[0].max_timestamp, Timestamp(77_000));
}

#[test]
fn a_batch_that_decompresses_to_more_than_the_bound_is_refused() {
    let mut log = LogBuilder::default();
    let value = "x".repeat(100_000);
    log.batch(Compression::Zstd, &[("a", Some(&value))]);
    let mut scratch = DecompressScratch::new();
    let mut map = KeyMap::new(1 << 10, 0.9, 10, SECRET);
    let batch = BatchView::first(&log.bytes).unwrap();
    let mut scan = KeyScan::new(&batch, Offset(0), 50_000, &mut scratch).unwrap();
    let error = loop {
        match scan.step(&mut map, 1 << 10) {
            Ok(ScanState::Pending) => {}
            Ok(state) => panic!("{state:?}"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, ScanError::Decompress(_)), "{error}");
}

#[test]
fn a_record_count_that_is_wrong_is_noticed_however_the_payload_is_cut() {
    let mut log = LogBuilder::default();
    log.batch(Compression::None, &[("a", Some("1")), ("b", Some("2"))]);
    for (count, slice) in [(1, 1), (3, 1), (1, 1 << 16), (3, 1 << 16)] {
        let mut bytes = log.bytes.clone();
        bytes[57..61].copy_from_slice(&i32::to_be_bytes(count));
        let batch = BatchView::first(&bytes).unwrap();
        let mut scratch = DecompressScratch::new();
        let mut map = KeyMap::new(1 << 10, 0.9, 10, SECRET);
        let mut scan = KeyScan::new(&batch, Offset(0), BOUND, &mut scratch).unwrap();
        let end = loop {
            match scan.step(&mut map, slice) {
                Ok(ScanState::Pending) => {}
                other => break other,
            }
        };
        assert!(matches!(end, Err(ScanError::Malformed(_))), "{count} records, slices of {slice}: {end:?}");
    }
}

/// What the log should hold after a round, given what it held: the plain rules, over records.
fn model(records: &[Seen], end: i64) -> Vec<Seen> {
    let mut newest: BTreeMap<&[u8], i64> = BTreeMap::new();
    for record in records.iter().filter(|r| r.offset < end) {
        if let Some(key) = &record.key {
            newest.insert(key, record.offset);
        }
    }
    let stays = |r: &&Seen| r.offset >= end || r.key.as_ref().is_some_and(|k| newest.get(&k[..]) == Some(&r.offset));
    records.iter().filter(stays).cloned().collect()
}

type RecordPlan = (Option<u8>, Option<Vec<u8>>);

fn logs() -> impl Strategy<Value = Vec<(usize, bool, Vec<RecordPlan>)>> {
    let value = prop::option::weighted(0.8, prop::collection::vec(any::<u8>(), 0..40));
    let record = (prop::option::weighted(0.95, 0_u8..12), value);
    prop::collection::vec((0_usize..5, any::<bool>(), prop::collection::vec(record, 1..12)), 1..20)
}

fn written(plan: &[(usize, bool, Vec<RecordPlan>)]) -> LogBuilder {
    let mut log = LogBuilder::default();
    for (codec, has_append_time, records) in plan {
        let mut builder = log.builder(CODECS[*codec]);
        if *has_append_time {
            builder = builder.log_append_time(Timestamp(5_000));
        }
        for (key, value) in records {
            let key = key.map(|n| vec![n; usize::from(n) * 9]);
            let header: [(&[u8], Option<&[u8]>); 2] = [(b"h", None), (b"", Some(b"v"))];
            builder.append(Timestamp(2_000 + log.next % 7), key.as_deref(), value.as_deref(), &header);
            log.next += 1;
        }
        builder.build_into(&mut log.bytes).unwrap();
    }
    log
}

proptest! {
    #[test]
    fn what_stays_is_what_a_simple_model_says(plan in logs(), cut in 0.0_f64..1.0, slice in 1_usize..300) {
        let log = written(&plan);
        // A round ends at the start of a batch: segments do.
        let bases: Vec<i64> = headers(&log.bytes).iter().map(|h| h.base_offset.0).chain([log.next]).collect();
        let end = bases[(cut * bases.len() as f64) as usize];
        let (out, covered) = compact(&log.bytes, &Plan { slice, ..Plan::up_to(end) });
        prop_assert_eq!(covered, end);
        prop_assert_eq!(seen(&out), model(&seen(&log.bytes), end));
        let last = |log: &[u8]| headers(log).last().and_then(|h| h.last_offset());
        prop_assert_eq!(last(&out), last(&log.bytes), "the log ends where it ended");
        // Again, with the same clock: nothing changes.
        let (again, _) = compact(&out, &Plan { slice: 64 << 10, ..Plan::up_to(end) });
        prop_assert!(again == out);
        // And however it is sliced.
        prop_assert!(compact(&log.bytes, &Plan::up_to(end)).0 == out);
    }

    #[test]
    fn rounds_of_a_small_map_come_to_the_same_as_one_of_a_large(plan in logs(), keys in 2_usize..9) {
        let log = written(&plan);
        let whole = compact(&log.bytes, &Plan::up_to(log.next)).0;
        let mut bytes = log.bytes.clone();
        let mut first_dirty = 0;
        while first_dirty < log.next {
            let plan = Plan { first_dirty, map_bytes: 24 * keys, ..Plan::up_to(log.next) };
            let (out, covered) = compact(&bytes, &plan);
            prop_assert!(covered > first_dirty || first_dirty == log.next);
            (bytes, first_dirty) = (out, covered);
        }
        prop_assert_eq!(seen(&bytes), seen(&whole));
    }

    #[test]
    fn once_every_horizon_has_passed_no_tombstone_is_left(plan in logs()) {
        let log = written(&plan);
        let round = Plan::up_to(log.next);
        let (first, _) = compact(&log.bytes, &round);
        let (out, _) = compact(&first, &Plan { now: round.now + round.delete_retention_ms, ..round });
        prop_assert!(seen(&out).iter().all(|r| r.value.is_some()));
        let values: Vec<_> = seen(&first).into_iter().filter(|r| r.value.is_some()).collect();
        prop_assert_eq!(seen(&out), values);
    }

    #[test]
    fn damaged_batches_are_errors_and_never_panics(plan in logs(), at in any::<prop::sample::Index>(), byte: u8) {
        let log = written(&plan);
        let batch = batches(&log.bytes)[0];
        let mut bytes = batch.bytes.to_vec();
        let at = at.index(bytes.len() - 57) + 57;
        bytes[at] = byte;
        if let Ok(batch) = BatchView::first(&bytes) {
            let mut scratch = DecompressScratch::new();
            let mut map = KeyMap::new(1 << 10, 0.9, 10, SECRET);
            if let Ok(mut scan) = KeyScan::new(&batch, Offset(0), BOUND, &mut scratch) {
                while matches!(scan.step(&mut map, 64), Ok(ScanState::Pending)) {}
            }
        }
    }
}
