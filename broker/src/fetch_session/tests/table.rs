//! Each row of the table that opens the room, and the epochs.
//!
//! Holds: what a request gets for its session id and epoch. Never touches: evictions.

use super::super::*;
use super::*;

#[test]
fn a_full_fetch_opens_a_session_with_a_positive_id() {
    let mut bench = Bench::with_slots(10);
    for _ in 0..10 {
        assert!(bench.open(vec![want("a", 0, 0)], false) > 0);
    }
    assert_eq!(bench.cache.counters(), SessionCounters { sessions: 10, partitions: 10, evictions: 0 });
}

#[test]
fn a_full_fetch_includes_every_partition() {
    let mut bench = Bench::with_slots(10);
    let context = bench.begin(0, 0, vec![want("a", 0, 0), want("a", 1, 0)]);
    let mut outcomes = [quiet(0), failed()];
    bench.finish(context, &mut outcomes);
    assert!(outcomes.iter().all(|o| o.included));
}

#[test]
fn a_full_fetch_with_a_session_id_closes_that_session_and_opens_another() {
    let mut bench = Bench::with_slots(10);
    let old = bench.open(vec![want("a", 0, 0)], false);
    let context = bench.begin(old, 0, vec![want("a", 0, 0)]);
    assert!(!bench.knows(old));
    let new = bench.finish(context, &mut [quiet(5)]).session_id;
    assert_ne!(new, old);
    assert!(bench.knows(new));
}

#[test]
fn a_final_fetch_closes_its_session_and_reads_what_it_asked_for() {
    let mut bench = Bench::with_slots(10);
    let id = bench.open(vec![want("a", 0, 0), want("a", 1, 0)], false);
    let context = bench.begin(id, EPOCH_FINAL, vec![want("a", 1, 3)]);
    assert_eq!(context.partitions, vec![want("a", 1, 3)]);
    let mut outcomes = [quiet(5)];
    assert_eq!(bench.finish(context, &mut outcomes), FinishedFetch { session_id: 0, error: None });
    assert!(outcomes[0].included);
    assert!(!bench.knows(id));
}

#[test]
fn a_fetch_without_a_session_leaves_none_behind() {
    let mut bench = Bench::with_slots(10);
    let context = bench.begin(0, EPOCH_FINAL, vec![want("a", 0, 0)]);
    assert_eq!(bench.finish(context, &mut [quiet(5)]).session_id, 0);
    assert_eq!(bench.cache.counters(), SessionCounters::default());
}

#[test]
fn an_unknown_session_is_refused_and_nothing_is_read() {
    let mut bench = Bench::with_slots(10);
    let context = bench.begin(42, 1, vec![want("a", 0, 0)]);
    let error = SessionError::NotFound { session_id: 42 };
    assert_eq!(context.refusal(), Some(error));
    assert!(context.partitions.is_empty());
    assert_eq!(bench.finish(context, &mut []), FinishedFetch { session_id: 0, error: Some(error) });
}

#[test]
fn a_wrong_epoch_is_refused_and_the_session_stays_as_it_was() {
    let mut bench = Bench::with_slots(10);
    let id = bench.open(vec![want("a", 0, 0)], false);
    for wrong in [2, 5, i32::MAX, -2, i32::MIN] {
        let context = bench.begin(id, wrong, vec![want("b", 0, 0)]);
        let error = SessionError::WrongEpoch { session_id: id, expected: 1, got: wrong };
        assert_eq!(context.refusal(), Some(error));
        assert_eq!(bench.finish(context, &mut []).session_id, 0);
    }
    let context = bench.begin(id, 1, vec![]);
    assert_eq!(context.partitions, vec![want("a", 0, 0)]);
}

#[test]
fn a_session_by_name_refuses_requests_by_id_and_the_other_way_round() {
    let mut bench = Bench::with_slots(10);
    let by_name = bench.open(vec![want("a", 0, 0)], false);
    let by_id = {
        let request = SessionRequest { session_id: 0, epoch: 0, uses_topic_ids: true, from_follower: false };
        let mut partition = want("a", 0, 0);
        partition.key.topic = FetchTopic::Id(TopicId([1; 16]));
        let context = bench.cache.begin(request, vec![partition], &[], bench.now);
        bench.finish(context, &mut [quiet(5)]).session_id
    };
    for (session_id, uses_topic_ids) in [(by_name, true), (by_id, false)] {
        let request = SessionRequest { session_id, epoch: 1, uses_topic_ids, from_follower: false };
        let context = bench.cache.begin(request, vec![], &[], bench.now);
        assert_eq!(context.refusal(), Some(SessionError::TopicNaming { session_id }));
    }
    // Neither lost its turn.
    for (session_id, uses_topic_ids) in [(by_name, false), (by_id, true)] {
        let request = SessionRequest { session_id, epoch: 1, uses_topic_ids, from_follower: false };
        let context = bench.cache.begin(request, vec![], &[], bench.now);
        assert_eq!(context.refusal(), None);
    }
}

#[test]
fn forgetting_the_last_partition_closes_the_session() {
    let mut bench = Bench::with_slots(10);
    let id = bench.open(vec![want("a", 0, 0)], false);
    let context = bench.begin_forgetting(id, 1, vec![], &[key("a", 0)]);
    assert!(context.partitions.is_empty());
    assert_eq!(bench.finish(context, &mut []), FinishedFetch { session_id: 0, error: None });
    assert!(!bench.knows(id));
}

#[test]
fn an_incremental_fetch_reads_the_whole_session() {
    let mut bench = Bench::with_slots(10);
    let id = bench.open(vec![want("a", 0, 0), want("a", 1, 0), want("b", 0, 0)], false);
    let context =
        bench.begin_forgetting(id, 1, vec![want("c", 4, 9), want("a", 1, 7)], &[key("a", 0), key("never", 0)]);
    assert!(context.is_incremental());
    assert_eq!(context.partitions, vec![want("a", 1, 7), want("b", 0, 0), want("c", 4, 9)]);
}

#[test]
fn a_partition_both_added_and_forgotten_is_forgotten() {
    let mut bench = Bench::with_slots(10);
    let id = bench.open(vec![want("a", 0, 0)], false);
    let context = bench.begin_forgetting(id, 1, vec![want("b", 0, 0)], &[key("b", 0)]);
    assert_eq!(context.partitions, vec![want("a", 0, 0)]);
}

#[test]
fn each_incremental_fetch_moves_the_epoch_on() {
    let mut bench = Bench::with_slots(10);
    let id = bench.open(vec![want("a", 0, 0)], false);
    for epoch in 1..6 {
        bench.round(id, epoch, |_| quiet(5));
    }
}

#[test]
fn the_epoch_after_the_largest_is_one() {
    assert_eq!(epoch_after(EPOCH_INITIAL), 1);
    assert_eq!(epoch_after(i32::MAX), 1);
    assert_eq!(epoch_after(EPOCH_FINAL), EPOCH_FINAL);
    assert_eq!(epoch_after(i32::MIN), EPOCH_FINAL);
}

#[test]
fn a_partition_given_twice_counts_once_with_its_last_parameters() {
    let mut bench = Bench::with_slots(10);
    let given = vec![want("a", 0, 1), want("b", 0, 2), want("a", 0, 3), want("c", 0, 4), want("b", 0, 5)];
    let context = bench.begin(0, 0, given);
    assert_eq!(context.partitions, vec![want("a", 0, 3), want("b", 0, 5), want("c", 0, 4)]);
}
