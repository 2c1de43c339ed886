//! What a partition decides about its producers' batches.

use corelog_storage::batch::{AppendOrigin, BatchBuilder, BatchHeader, BatchView, Records, TargetCodec};
use corelog_storage::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};
use corelog_storage::producers::{
    CompletedTransaction, EndMarker, MarkerError, OpenTransaction, ProducerState, ProducerStateLimits,
    SNAPSHOT_BYTES_PER_ENTRY, SequenceError, Verdict, Verification,
};
use proptest::prelude::*;
use std::collections::HashMap;

const PRODUCER: ProducerId = ProducerId(9);

fn header(id: i64, epoch: i16, sequence: i32, count: i32) -> BatchHeader {
    let mut builder =
        BatchBuilder::new(TargetCodec::None).producer(ProducerId(id), ProducerEpoch(epoch), Sequence(sequence));
    builder.append_at(count - 1, Timestamp(1000), None, None, &[]);
    BatchView::first(&builder.build().expect("a batch")).expect("a batch").header
}

fn transactional(mut header: BatchHeader) -> BatchHeader {
    header.attributes = header.attributes.with_transactional(true);
    header
}

fn new() -> ProducerState {
    ProducerState::new(ProducerStateLimits::default(), Offset(0))
}

/// A partition that appends what it is told to.
struct Log {
    state: ProducerState,
}

impl Log {
    fn new() -> Self {
        Self { state: new() }
    }

    fn check(&self, header: &BatchHeader) -> Result<Verdict, SequenceError> {
        self.state.check(header, AppendOrigin::Client, Verification::Verified)
    }

    fn record(&mut self, mut header: BatchHeader) -> Offset {
        header.base_offset = self.state.end();
        self.state.record(&header);
        header.base_offset
    }

    fn append(&mut self, header: BatchHeader) -> Offset {
        assert_eq!(self.check(&header), Ok(Verdict::Append));
        self.record(header)
    }

    fn end_transaction(&mut self, epoch: i16, is_abort: bool) -> Option<CompletedTransaction> {
        let (mut header, marker) = marker(epoch, is_abort, 0);
        header.base_offset = self.state.end();
        self.state.record_marker(&header, marker, Timestamp(2000))
    }
}

fn marker(epoch: i16, is_abort: bool, coordinator_epoch: i32) -> (BatchHeader, EndMarker) {
    let mut header = transactional(header(PRODUCER.0, epoch, -1, 1));
    header.attributes = header.attributes.with_control(true);
    (header, EndMarker { is_abort, coordinator_epoch })
}

fn out_of_order(epoch: i16, first: i32, last: i32) -> Result<Verdict, SequenceError> {
    let (epoch, first, last) = (ProducerEpoch(epoch), Sequence(first), Sequence(last));
    Err(SequenceError::OutOfOrder { producer_id: PRODUCER, epoch, first, last })
}

#[test]
fn batches_without_a_producer_id_are_appended_and_leave_no_trace() {
    let mut log = Log::new();
    log.append(header(-1, -1, -1, 3));
    log.append(header(-1, -1, -1, 3));
    assert!(log.state.is_empty());
    assert_eq!(log.state.end(), Offset(6));
}

#[test]
fn sequences_must_follow_each_other() {
    let mut log = Log::new();
    log.append(header(9, 0, 0, 3));
    assert_eq!(log.check(&header(9, 0, 4, 1)), out_of_order(0, 4, 2), "a gap");
    assert_eq!(log.check(&header(9, 0, 2, 1)), out_of_order(0, 2, 2), "an overlap");
    assert_eq!(log.check(&header(9, 0, 0, 2)), out_of_order(0, 0, 2), "a part of a batch is no duplicate");
    assert_eq!(log.check(&header(9, 0, 0, 4)), out_of_order(0, 0, 2), "more than a batch is no duplicate");
    log.append(header(9, 0, 3, 1));
}

#[test]
fn the_last_five_batches_are_recognised_and_answered_as_the_first_time() {
    let mut log = Log::new();
    for n in 0..7 {
        log.append(header(9, 0, n * 2, 2));
    }
    for n in 2..7 {
        let expected = Verdict::Duplicate {
            base_offset: Offset(i64::from(n) * 2),
            last_offset: Offset(i64::from(n) * 2 + 1),
            timestamp: Timestamp(1000),
        };
        assert_eq!(log.check(&header(9, 0, n * 2, 2)), Ok(expected), "batch {n}");
    }
    assert_eq!(log.check(&header(9, 0, 2, 2)), out_of_order(0, 2, 13), "the sixth from the end is forgotten");
}

#[test]
fn after_the_largest_sequence_comes_zero() {
    let mut log = Log::new();
    log.append(header(9, 0, i32::MAX - 1, 2));
    assert_eq!(log.check(&header(9, 0, 1, 1)), out_of_order(0, 1, i32::MAX));
    log.append(header(9, 0, 0, 1));

    let mut log = Log::new();
    log.append(header(9, 0, i32::MAX, 3));
    assert_eq!(log.state.get(PRODUCER).map(|entry| entry.last_sequence()), Some(Sequence(1)));
    assert!(matches!(log.check(&header(9, 0, i32::MAX, 3)), Ok(Verdict::Duplicate { base_offset: Offset(0), .. })));
    log.append(header(9, 0, 2, 1));
}

#[test]
fn an_unknown_producer_may_start_anywhere_as_since_kip_360() {
    let mut log = Log::new();
    log.append(header(9, 5, 1234, 1));
    log.append(header(9, 5, 1235, 1));
}

#[test]
fn a_new_epoch_starts_at_zero_and_forgets_the_old_batches() {
    let mut log = Log::new();
    log.append(header(9, 0, 0, 3));
    assert_eq!(log.check(&header(9, 1, 3, 1)), out_of_order(1, 3, 2));
    log.append(header(9, 1, 0, 3));
    assert!(matches!(log.check(&header(9, 1, 0, 3)), Ok(Verdict::Duplicate { base_offset: Offset(3), .. })));
    assert_eq!(log.state.get(PRODUCER).map(|entry| entry.batches().count()), Some(1));
}

#[test]
fn an_old_epoch_is_fenced_even_if_its_sequence_would_follow() {
    let mut log = Log::new();
    log.append(header(9, 2, 0, 3));
    let fenced = Err(SequenceError::InvalidProducerEpoch {
        producer_id: PRODUCER,
        ours: ProducerEpoch(2),
        theirs: ProducerEpoch(1),
    });
    for sequence in [0, 3] {
        assert_eq!(log.check(&header(9, 1, sequence, 3)), fenced);
    }
    let coordinator = log.state.check(&header(9, 1, -1, 1), AppendOrigin::Coordinator, Verification::Verified);
    assert_eq!(coordinator, fenced);
}

#[test]
fn a_coordinators_batches_have_an_epoch_and_no_sequences() {
    let mut log = Log::new();
    for _ in 0..3 {
        let batch = header(9, 1, -1, 1);
        let verdict = log.state.check(&batch, AppendOrigin::Coordinator, Verification::Verified);
        assert_eq!(verdict, Ok(Verdict::Append));
        log.record(batch);
    }
}

#[test]
fn replicated_batches_are_taken_as_they_come_even_from_an_old_epoch() {
    let mut log = Log::new();
    log.append(header(9, 2, 0, 3));
    let old = header(9, 1, 77, 1);
    assert_eq!(log.state.check(&old, AppendOrigin::Replication, Verification::Missing), Ok(Verdict::Append));
    log.record(old);
    assert_eq!(log.state.get(PRODUCER).map(|entry| entry.epoch), Some(ProducerEpoch(1)));
}

#[test]
fn producers_do_not_mind_each_other() {
    let mut log = Log::new();
    log.append(header(9, 0, 0, 3));
    log.append(header(8, 4, 0, 1));
    log.append(header(9, 0, 3, 1));
    let ids: Vec<_> = log.state.active_producers().map(|entry| entry.producer_id.0).collect();
    assert_eq!(ids, [8, 9]);
}

#[test]
fn a_check_changes_nothing() {
    let mut log = Log::new();
    log.append(header(9, 0, 0, 3));
    let before = log.state.snapshot();
    for _ in 0..2 {
        assert_eq!(log.check(&header(9, 0, 3, 3)), Ok(Verdict::Append));
    }
    assert_eq!(log.state.snapshot(), before);
}

#[test]
fn idle_producers_expire_and_those_in_a_transaction_do_not() {
    let mut log = Log::new();
    log.append(header(7, 0, 0, 1));
    log.append(transactional(header(9, 0, 0, 1)));
    let idle = ProducerStateLimits::default().idle_ms_max;
    assert_eq!(log.state.expire(Timestamp(1000 + idle - 1)), 0);
    assert_eq!(log.state.expire(Timestamp(1000 + idle)), 1);
    assert!(log.state.get(ProducerId(7)).is_none() && log.state.get(PRODUCER).is_some());
    log.append(header(7, 0, 55, 1));
}

#[test]
fn new_producers_are_refused_when_there_is_no_room_until_one_expires() {
    let limits = ProducerStateLimits { producers_max: 2, idle_ms_max: 100 };
    let mut log = Log { state: ProducerState::new(limits, Offset(0)) };
    log.append(header(1, 0, 0, 1));
    log.append(header(2, 0, 0, 1));
    assert!(log.state.is_full());
    assert_eq!(log.check(&header(3, 0, 0, 1)), Err(SequenceError::TooManyProducers { producers: 2 }));
    log.append(header(2, 0, 1, 1));
    assert_eq!(
        log.state.check(&header(3, 0, 0, 1), AppendOrigin::Replication, Verification::Verified),
        Ok(Verdict::Append),
        "a follower follows"
    );
    assert_eq!(log.state.expire(Timestamp(2000)), 2);
    log.append(header(3, 0, 0, 1));
}

// ---- transactions -----------------------------------------------------------------------------------------------------------

#[test]
fn a_transaction_holds_back_the_stable_offset_until_its_marker_is_replicated() {
    let mut log = Log::new();
    log.append(header(-1, -1, -1, 5));
    log.append(transactional(header(9, 0, 0, 2)));
    log.append(transactional(header(9, 0, 2, 2)));
    assert_eq!(log.state.first_undecided(), Some(Offset(5)));
    assert_eq!(log.state.first_unstable(), Some(Offset(5)));
    let open = OpenTransaction { producer_id: PRODUCER, first_offset: Offset(5) };
    assert_eq!(log.state.oldest_open_transaction(), Some((open, Timestamp(1000))));

    let expected = CompletedTransaction {
        producer_id: PRODUCER,
        first_offset: Offset(5),
        last_offset: Offset(9),
        is_aborted: true,
        last_stable_offset: Offset(10),
    };
    assert_eq!(log.end_transaction(0, true), Some(expected));
    assert_eq!((log.state.first_undecided(), log.state.first_unstable()), (None, Some(Offset(5))));
    log.state.on_high_watermark(Offset(9));
    assert_eq!(log.state.first_unstable(), Some(Offset(5)), "the marker itself is not replicated yet");
    log.state.on_high_watermark(Offset(10));
    assert_eq!(log.state.first_unstable(), None);
    assert_eq!(log.state.end(), Offset(10));
}

#[test]
fn a_marker_leaves_the_other_open_transaction_as_the_last_stable_offset() {
    let mut log = Log::new();
    log.append(transactional(header(8, 0, 0, 1)));
    log.append(transactional(header(9, 0, 0, 1)));
    assert_eq!(log.end_transaction(0, false).map(|completed| completed.last_stable_offset), Some(Offset(0)));
}

#[test]
fn a_marker_without_a_transaction_completes_none() {
    let mut log = Log::new();
    assert_eq!(log.end_transaction(3, false), None);
    assert_eq!(log.state.get(PRODUCER).map(|entry| entry.epoch), Some(ProducerEpoch(3)));
    assert_eq!(log.check(&header(9, 3, 4, 1)), out_of_order(3, 4, -1), "an epoch without batches starts at zero");
    log.append(header(9, 3, 0, 1));
}

#[test]
fn sequences_go_on_after_a_marker_of_the_same_epoch_and_restart_after_one_of_a_higher() {
    let mut log = Log::new();
    log.append(transactional(header(9, 0, 0, 2)));
    log.end_transaction(0, false);
    log.append(transactional(header(9, 0, 2, 1)));
    log.end_transaction(1, false);
    log.append(transactional(header(9, 1, 0, 1)));
}

#[test]
fn a_batch_outside_of_the_open_transaction_is_refused() {
    let mut log = Log::new();
    log.append(transactional(header(9, 0, 0, 2)));
    let refused = Err(SequenceError::ExpectedTransaction { producer_id: PRODUCER, since: Offset(0) });
    assert_eq!(log.check(&header(9, 0, 2, 1)), refused);
}

#[test]
fn a_transaction_must_be_verified_before_its_first_batch_only() {
    let mut log = Log::new();
    let unverified =
        |log: &Log, header: &BatchHeader| log.state.check(header, AppendOrigin::Client, Verification::Missing);
    let refused = Err(SequenceError::NotInTransaction { producer_id: PRODUCER });
    assert_eq!(unverified(&log, &transactional(header(9, 0, 0, 1))), refused);
    assert_eq!(unverified(&log, &header(9, 0, 0, 1)), Ok(Verdict::Append), "no transaction, nothing to verify");
    log.append(transactional(header(9, 0, 0, 1)));
    assert_eq!(unverified(&log, &transactional(header(9, 0, 1, 1))), Ok(Verdict::Append));
    assert_eq!(unverified(&log, &transactional(header(9, 1, 0, 1))), refused, "another epoch is another transaction");
    log.end_transaction(0, false);
    assert_eq!(unverified(&log, &transactional(header(9, 0, 1, 1))), refused);
    let duplicate = unverified(&log, &transactional(header(9, 0, 0, 1)));
    assert!(matches!(duplicate, Ok(Verdict::Duplicate { .. })), "a duplicate is one, transaction or not");
}

#[test]
fn a_stale_epoch_is_told_before_a_missing_verification() {
    let mut log = Log::new();
    log.append(header(9, 3, 0, 1));
    let verdict = log.state.check(&transactional(header(9, 2, 0, 1)), AppendOrigin::Client, Verification::Missing);
    assert!(matches!(verdict, Err(SequenceError::InvalidProducerEpoch { .. })));
}

#[test]
fn markers_are_fenced_by_producer_and_coordinator_epoch() {
    let mut log = Log::new();
    log.append(transactional(header(9, 2, 0, 1)));
    let check = |log: &Log, epoch, coordinator_epoch, version| {
        let (header, marker) = marker(epoch, false, coordinator_epoch);
        log.state.check_marker(&header, marker, version)
    };
    let fenced = |theirs| {
        Err(MarkerError::InvalidProducerEpoch {
            producer_id: PRODUCER,
            ours: ProducerEpoch(2),
            theirs: ProducerEpoch(theirs),
        })
    };
    assert_eq!(check(&log, 1, 0, 0), fenced(1));
    assert_eq!(check(&log, 2, 0, 1), Ok(()));
    assert_eq!(check(&log, 2, 0, 2), fenced(2), "version 2 raises the epoch with the marker");
    assert_eq!(check(&log, 3, 0, 2), Ok(()));

    let (mut header, marker) = marker(3, false, 7);
    header.base_offset = log.state.end();
    log.state.record_marker(&header, marker, Timestamp(1));
    assert_eq!(check(&log, 3, 7, 2), Ok(()), "the repetition of a marker that ended the transaction");
    assert_eq!(check(&log, 4, 6, 2), Err(MarkerError::CoordinatorFenced { producer_id: PRODUCER, ours: 7, theirs: 6 }));
}

#[test]
fn an_end_marker_survives_its_record() {
    for is_abort in [false, true] {
        let marker = EndMarker { is_abort, coordinator_epoch: 77 };
        let (key, value) = marker.encode();
        let mut builder = BatchBuilder::new(TargetCodec::None).control();
        builder.append(Timestamp(5), Some(&key), Some(&value), &[]);
        let batch = builder.build().expect("a batch");
        let view = BatchView::first(&batch).expect("a batch");
        let record = Records::new(&view.header, view.payload()).next().expect("one record").expect("sound");
        assert_eq!(EndMarker::parse(&record), Ok(marker));
        let of = |key, value| EndMarker::parse(&corelog_storage::batch::Record { key, value, ..record.clone() });
        assert_eq!(of(None, Some(&value)), Err(MarkerError::Key { bytes: 0 }));
        assert_eq!(of(Some(&[0, 0, 0, 2]), Some(&value)), Err(MarkerError::NotAnEnd { kind: 2 }));
        assert_eq!(of(Some(&key), Some(&value[..5])), Err(MarkerError::Value { bytes: 5 }));
        assert_eq!(of(Some(&[0xff, 0, 0, 1]), Some(&value)), Err(MarkerError::Key { bytes: 4 }));
    }
}

// ---- snapshots, truncation --------------------------------------------------------------------------------------------------

#[test]
fn a_snapshot_keeps_everything() {
    let mut log = Log::new();
    for n in 0..3 {
        log.append(header(8, 1, n, 1));
    }
    log.append(transactional(header(9, 0, 0, 2)));
    let mut restored = Log::new();
    restored.state.load(&log.state.snapshot(), log.state.end(), Timestamp(1000)).expect("sound");
    assert_eq!(restored.state.end(), log.state.end());
    assert_eq!(restored.state.first_unstable(), Some(Offset(3)));
    assert_eq!(restored.state.get(PRODUCER), log.state.get(PRODUCER));
    for n in 0..3 {
        let at = Offset(i64::from(n));
        let duplicate = Verdict::Duplicate { base_offset: at, last_offset: at, timestamp: Timestamp(1000) };
        assert_eq!(restored.check(&header(8, 1, n, 1)), Ok(duplicate), "batch {n}");
    }
    assert_eq!(restored.state.snapshot(), log.state.snapshot());
}

/// Kafka puts each entry of a snapshot in the place of an earlier one with the same id.
#[test]
fn the_last_entry_of_a_producer_says_all_that_kafka_keeps() {
    let mut log = Log::new();
    for n in 0..7 {
        log.append(header(8, 1, n, 1));
    }
    let bytes = log.state.snapshot();
    assert_eq!(bytes.len(), 10 + 5 * SNAPSHOT_BYTES_PER_ENTRY, "the last five batches");
    let last = bytes.len() - SNAPSHOT_BYTES_PER_ENTRY;
    assert_eq!(bytes[last..last + 22], [&[0; 7][..], &[8, 0, 1], &[0, 0, 0, 6], &[0; 7], &[6]].concat());
}

#[test]
fn producers_that_expired_meanwhile_are_not_restored() {
    let mut log = Log::new();
    log.append(header(8, 0, 0, 1));
    let snapshot = log.state.snapshot();
    let later = Timestamp(1000 + ProducerStateLimits::default().idle_ms_max);
    let mut restored = new();
    restored.load(&snapshot, Offset(1), later).expect("sound");
    assert!(restored.is_empty());
}

#[test]
fn a_corrupt_snapshot_changes_nothing() {
    let mut log = Log::new();
    log.append(header(9, 0, 0, 1));
    let before = log.state.snapshot();
    let mut corrupt = before.clone();
    corrupt[20] ^= 1;
    assert!(log.state.load(&corrupt, Offset(50), Timestamp(0)).is_err());
    assert_eq!((log.state.snapshot(), log.state.end()), (before, Offset(1)));
}

#[test]
fn replaying_the_log_from_a_snapshot_comes_to_the_same_state() {
    let mut log = Log::new();
    let mut batches = Vec::new();
    let mut snapshot = None;
    for n in 0..10 {
        let batch = header(n % 3, 0, i32::try_from(n / 3).expect("small"), 1);
        let base_offset = log.append(batch);
        batches.push(BatchHeader { base_offset, leader_epoch: LeaderEpoch(0), ..batch });
        if n == 4 {
            snapshot = Some((log.state.snapshot(), log.state.end()));
        }
    }
    let (bytes, end) = snapshot.expect("taken");
    let mut replayed = new();
    replayed.load(&bytes, end, Timestamp(0)).expect("sound");
    for batch in batches.iter().filter(|batch| batch.base_offset >= end) {
        replayed.record(batch);
    }
    assert_eq!(replayed.snapshot(), log.state.snapshot());
    assert_eq!(replayed.end(), log.state.end());
}

#[test]
fn a_reset_forgets_producers_and_transactions() {
    let mut log = Log::new();
    log.append(transactional(header(9, 0, 0, 2)));
    log.end_transaction(0, true);
    log.append(transactional(header(9, 0, 2, 2)));
    log.state.reset(Offset(1));
    assert!(log.state.is_empty());
    assert_eq!((log.state.first_unstable(), log.state.end()), (None, Offset(1)));
}

#[test]
fn a_log_start_past_everything_moves_the_end_and_keeps_the_producers() {
    let mut log = Log::new();
    log.append(header(9, 0, 0, 2));
    log.state.on_log_start(Offset(100));
    assert_eq!(log.state.end(), Offset(100));
    log.append(header(9, 0, 2, 1));
}

// ---- the model --------------------------------------------------------------------------------------------------------------

/// A producer's stream as a plain list: every batch of every epoch, with its offset.
#[derive(Default)]
struct Model {
    epoch: Option<i16>,
    batches: Vec<(i64, i64, i64)>,
}

const CIRCLE: i64 = 1 << 31;

impl Model {
    /// `Ok(None)` to append, `Ok(Some(offset))` for a duplicate.
    fn judge(&self, epoch: i16, first: i64, count: i64) -> Result<Option<i64>, ()> {
        let Some(known) = self.epoch else {
            return Ok(None);
        };
        if epoch < known {
            return Err(());
        }
        if epoch > known {
            return if first == 0 { Ok(None) } else { Err(()) };
        }
        let recent = self.batches.iter().rev().take(5);
        if let Some(&(.., offset)) = recent.clone().find(|&&(f, c, _)| (f, c) == (first, count)) {
            return Ok(Some(offset));
        }
        let next = self.batches.last().map_or(0, |&(first, count, _)| (first + count) % CIRCLE);
        if first == next { Ok(None) } else { Err(()) }
    }

    fn append(&mut self, epoch: i16, first: i64, count: i64, offset: i64) {
        if self.epoch != Some(epoch) {
            self.batches.clear();
        }
        self.epoch = Some(epoch);
        self.batches.push((first, count, offset));
    }
}

proptest! {
    #[test]
    fn verdicts_are_those_of_a_plain_list(
        start in prop_oneof![Just(0_i64), (CIRCLE - 30)..CIRCLE],
        moves in prop::collection::vec((0_i64..2, -1_i16..3, -6_i64..4, 1_i64..4), 1..80),
    ) {
        let mut log = Log::new();
        let mut models: HashMap<i64, Model> = HashMap::new();
        for (id, epoch_move, back, count) in moves {
            let model = models.entry(id).or_default();
            let epoch = (model.epoch.unwrap_or(5) + epoch_move.min(1)).max(0);
            let next = model.batches.last().map_or(start, |&(first, count, _)| first + count);
            // Sometimes what comes next, often what was there, sometimes a gap.
            let first = match back {
                -6..0 => {
                    let at = model.batches.len() as i64 + back;
                    usize::try_from(at).ok().and_then(|at| model.batches.get(at)).map_or(0, |batch| batch.0)
                }
                0..3 => next,
                gap => next + gap,
            } % CIRCLE;
            let count = match model.batches.iter().find(|batch| batch.0 == first) {
                Some(batch) if back < -1 => batch.1,
                _ => count,
            };
            let batch = header(id, epoch, i32::try_from(first).expect("on the circle"), i32::try_from(count).expect("small"));
            match (log.check(&batch), model.judge(epoch, first, count)) {
                (Ok(Verdict::Append), Ok(None)) => {
                    let offset = log.record(batch);
                    model.append(epoch, first, count, offset.0);
                }
                (Ok(Verdict::Duplicate { base_offset, last_offset, .. }), Ok(Some(offset))) => {
                    prop_assert_eq!((base_offset.0, last_offset.0), (offset, offset + count - 1));
                }
                (Err(_), Err(())) => {}
                (ours, model) => prop_assert!(false, "{:?} where the list says {:?}", ours, model),
            }
        }
    }
}
