//! Who makes room for whom, and where an id lives.
//!
//! Holds: the eviction rule of KIP-227. Never touches: what is news.

use super::super::*;
use super::*;

#[test]
fn a_full_cache_of_young_sessions_gives_way_to_nobody_of_its_kind() {
    let mut bench = Bench::with_slots(1);
    let id = bench.open(vec![want("a", 0, 0)], false);
    bench.now += SECOND;
    assert_eq!(bench.open(vec![want("a", 0, 0), want("a", 1, 0), want("a", 2, 0)], false), 0);
    assert!(bench.knows(id));
}

#[test]
fn a_session_that_rested_two_minutes_gives_way_to_any() {
    let mut bench = Bench::with_slots(1);
    let id = bench.open(vec![want("a", 0, 0), want("a", 1, 0)], true);
    bench.now += SessionLimits::EVICTION_MIN;
    assert_eq!(bench.open(vec![want("a", 0, 0)], false), 0, "exactly two minutes are not yet too long");
    bench.now += Duration::from_millis(1);
    assert!(bench.open(vec![want("a", 0, 0)], false) > 0);
    assert!(!bench.knows(id));
    assert_eq!(bench.cache.counters().evictions, 1);
}

#[test]
fn a_follower_takes_the_slot_of_a_young_consumer_but_not_of_a_young_follower() {
    let mut bench = Bench::with_slots(2);
    let consumer = bench.open(vec![want("a", 0, 0), want("a", 1, 0)], false);
    let follower = bench.open(vec![want("a", 0, 0)], true);
    bench.now += SECOND;
    assert!(bench.open(vec![want("a", 0, 0)], true) > 0);
    assert!(!bench.knows(consumer));
    assert!(bench.knows(follower));
    assert_eq!(bench.open(vec![want("a", 0, 0), want("a", 1, 0)], true), 0);
}

#[test]
fn a_seasoned_session_in_use_gives_way_to_one_with_more_partitions() {
    for (partitions, takes_the_slot) in [(1, false), (2, false), (3, true)] {
        let mut bench = Bench::with_slots(1);
        let id = bench.open(vec![want("a", 0, 0), want("a", 1, 0)], false);
        bench.now += SessionLimits::EVICTION_MIN;
        bench.round(id, 1, |_| quiet(5));
        bench.now += SECOND;
        bench.round(id, 2, |_| quiet(5));
        let wanted = (0..partitions).map(|p| want("b", p, 0)).collect();
        assert_eq!(bench.open(wanted, false) > 0, takes_the_slot, "{partitions} partitions");
        assert_eq!(bench.knows(id), !takes_the_slot);
    }
}

#[test]
fn a_consumer_never_takes_the_slot_of_a_follower_in_use() {
    let mut bench = Bench::with_slots(1);
    let id = bench.open(vec![want("a", 0, 0)], true);
    bench.now += SessionLimits::EVICTION_MIN + SECOND;
    bench.round(id, 1, |_| quiet(5));
    assert_eq!(bench.open((0..9).map(|p| want("b", p, 0)).collect(), false), 0);
}

#[test]
fn the_smallest_seasoned_session_goes_first() {
    let mut bench = Bench::with_slots(2);
    let large = bench.open(vec![want("a", 0, 0), want("a", 1, 0)], false);
    let small = bench.open(vec![want("a", 0, 0)], false);
    bench.now += SessionLimits::EVICTION_MIN + SECOND;
    bench.round(large, 1, |_| quiet(5));
    bench.round(small, 1, |_| quiet(5));
    assert!(bench.open(vec![want("b", 0, 0), want("b", 1, 0)], false) > 0);
    assert!(bench.knows(large));
    assert!(!bench.knows(small));
}

#[test]
fn a_cache_without_slots_answers_every_fetch_without_a_session() {
    let mut bench = Bench::with_slots(0);
    assert_eq!(bench.open(vec![want("a", 0, 0)], false), 0);
}

#[test]
fn every_id_lives_on_the_shard_that_made_it() {
    let mut bench = Bench::with_limits(50, 100, |id| id % 3 == 1);
    for _ in 0..50 {
        assert_eq!(bench.open(vec![want("a", 0, 0)], false) % 3, 1);
    }
}

#[test]
fn every_shard_can_tell_where_a_session_lives() {
    for home in 0..4 {
        let cache = FetchSessions::new(ShardId(home), 4, 1000);
        let mut bench = Bench { cache, now: Monotonic::ZERO, seed: 3 };
        for _ in 0..250 {
            assert_eq!(session_home(bench.open(vec![want("a", 0, 0)], false), 4), ShardId(home));
        }
        assert_eq!(bench.open(vec![want("a", 0, 0)], false), 0, "a shard has its share of the slots");
    }
    assert_eq!(session_home(i32::MIN, 3), ShardId(2), "an impossible id has a home that does not know it");
}

#[test]
fn a_shard_on_which_no_id_can_live_opens_no_session() {
    let mut bench = Bench::with_limits(50, 100, |_| false);
    assert_eq!(bench.open(vec![want("a", 0, 0)], false), 0);
}

#[test]
fn a_context_can_travel_between_shards() {
    fn sendable<T: Send>() {}
    sendable::<FetchContext>();
    sendable::<PartitionOutcome>();
    sendable::<FinishedFetch>();
    sendable::<SessionRequest>();
}

fn many(topic: &str, partitions: i32) -> Vec<FetchPartition> {
    (0..partitions).map(|partition| want(topic, partition, 0)).collect()
}

#[test]
fn sessions_together_follow_no_more_partitions_than_fit() {
    let mut bench = Bench::with_limits(10, 8, |_| true);
    let id = bench.open(many("a", 6), false);
    assert_eq!(bench.open(many("b", 3), false), 0, "six and three are more than eight");
    assert_eq!(bench.open(many("b", 9), false), 0, "and nine never fit");
    assert!(bench.knows(id), "nobody was evicted for what does not fit");
    assert!(bench.open(many("b", 2), false) > 0);
    assert_eq!(bench.cache.counters(), SessionCounters { sessions: 2, partitions: 8, evictions: 0 });
}

#[test]
fn a_session_that_grows_past_what_fits_is_closed() {
    let mut bench = Bench::with_limits(10, 8, |_| true);
    let id = bench.open(many("a", 6), false);
    let context = bench.begin(id, 1, many("b", 3));
    assert_eq!(context.refusal(), Some(SessionError::NotFound { session_id: id }));
    assert_eq!(bench.cache.counters(), SessionCounters::default());
}

#[test]
fn a_stale_session_makes_room_for_partitions_too() {
    let mut bench = Bench::with_limits(10, 8, |_| true);
    let stale = bench.open(many("a", 6), false);
    bench.now += SessionLimits::EVICTION_MIN + SECOND;
    assert!(bench.open(many("b", 8), false) > 0);
    assert!(!bench.knows(stale));
    assert_eq!(bench.cache.counters(), SessionCounters { sessions: 1, partitions: 8, evictions: 1 });
}
