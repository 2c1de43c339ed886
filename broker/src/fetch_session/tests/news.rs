//! Which partitions an incremental response carries, and in which order the next request reads them.
//!
//! Holds: the rule of news and of fairness. Never touches: evictions.

use super::super::*;
use super::*;

#[test]
fn a_partition_without_news_is_left_out() {
    let mut bench = Bench::with_slots(10);
    let id = bench.open(vec![want("a", 0, 0), want("a", 1, 0)], false);
    assert!(bench.round(id, 1, |_| quiet(5)).is_empty());
}

#[test]
fn each_kind_of_news_brings_a_partition_into_the_response() {
    let news = [
        records(5),
        quiet(6),
        PartitionOutcome { log_start_offset: Offset(2), ..quiet(5) },
        failed(),
        PartitionOutcome { has_diverging_epoch: true, ..quiet(5) },
        PartitionOutcome { has_preferred_replica: true, ..quiet(5) },
    ];
    for outcome in news {
        let mut bench = Bench::with_slots(10);
        let id = bench.open(vec![want("a", 0, 0), want("a", 1, 0)], false);
        let told = bench.round(id, 1, |k| if k.partition.0 == 1 { outcome } else { quiet(5) });
        assert_eq!(told, vec![key("a", 1)], "{outcome:?}");
    }
}

#[test]
fn a_high_watermark_is_told_once() {
    let mut bench = Bench::with_slots(10);
    let id = bench.open(vec![want("a", 0, 0)], false);
    assert_eq!(bench.round(id, 1, |_| quiet(8)), vec![key("a", 0)]);
    assert!(bench.round(id, 2, |_| quiet(8)).is_empty());
}

#[test]
fn a_partition_is_told_again_when_its_error_is_gone() {
    let mut bench = Bench::with_slots(10);
    let id = bench.open(vec![want("a", 0, 0)], false);
    assert_eq!(bench.round(id, 1, |_| failed()), vec![key("a", 0)]);
    assert_eq!(bench.round(id, 2, |_| failed()), vec![key("a", 0)]);
    assert_eq!(bench.round(id, 3, |_| quiet(5)), vec![key("a", 0)]);
    assert!(bench.round(id, 4, |_| quiet(5)).is_empty());
}

#[test]
fn a_partition_new_to_the_session_is_told_even_if_empty() {
    let mut bench = Bench::with_slots(10);
    let id = bench.open(vec![want("a", 0, 0)], false);
    let context = bench.begin(id, 1, vec![want("b", 0, 0)]);
    let mut outcomes = [quiet(5), quiet(0)];
    bench.finish(context, &mut outcomes);
    assert_eq!(outcomes.map(|o| o.included), [false, true]);
}

#[test]
fn partitions_whose_records_went_out_are_read_last_next_time() {
    let mut bench = Bench::with_slots(10);
    let id = bench.open(vec![want("a", 0, 0), want("a", 1, 0), want("a", 2, 0)], false);
    bench.round(id, 1, |k| if k.partition.0 == 0 { records(9) } else { quiet(5) });
    let order = |context: &FetchContext| context.partitions.iter().map(|p| p.key.partition.0).collect::<Vec<_>>();
    let context = bench.begin(id, 2, vec![]);
    assert_eq!(order(&context), vec![1, 2, 0]);
    // News without records does not move a partition.
    let mut outcomes = [quiet(6), records(9), quiet(9)];
    bench.finish(context, &mut outcomes);
    let context = bench.begin(id, 3, vec![]);
    assert_eq!(order(&context), vec![1, 0, 2]);
}

#[test]
fn a_request_overtaken_by_another_of_its_session_answers_with_an_error_alone() {
    let mut bench = Bench::with_slots(10);
    let id = bench.open(vec![want("a", 0, 0)], false);
    let slow = bench.begin(id, 1, vec![]);
    let quick = bench.begin(id, 2, vec![]);
    assert_eq!(bench.finish(quick, &mut [quiet(5)]).error, None);
    let mut outcomes = [records(9)];
    let finished = bench.finish(slow, &mut outcomes);
    assert_eq!(finished.session_id, id);
    assert_eq!(finished.error, Some(SessionError::WrongEpoch { session_id: id, expected: 3, got: 2 }));
    assert!(!outcomes[0].included);
}

#[test]
fn a_session_closed_while_it_was_reading_still_delivers_what_was_read() {
    let mut bench = Bench::with_slots(10);
    let id = bench.open(vec![want("a", 0, 0)], false);
    let context = bench.begin(id, 1, vec![]);
    bench.begin(id, EPOCH_FINAL, vec![]);
    let mut outcomes = [records(9)];
    assert_eq!(bench.finish(context, &mut outcomes), FinishedFetch { session_id: id, error: None });
    assert!(outcomes[0].included);
}
