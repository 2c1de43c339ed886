//! The rules of fetch sessions, as sentences: `table` (the room's head, row by row), `news`, `room` (evictions).
//!
//! Holds: a cache with a clock and chance of its own, and ways to write a request in one line.
//! Never touches: shards, connections.

mod news;
mod room;
mod table;

use super::*;
use corelog_reactor::{Monotonic, ShardId};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn name(topic: &str) -> FetchTopic {
    FetchTopic::Name(Arc::from(topic))
}

fn key(topic: &str, partition: i32) -> FetchKey {
    FetchKey { topic: name(topic), partition: PartitionIndex(partition) }
}

fn want(topic: &str, partition: i32, offset: i64) -> FetchPartition {
    FetchPartition {
        key: key(topic, partition),
        fetch_offset: Offset(offset),
        max_bytes: 1024,
        current_leader_epoch: None,
        last_fetched_epoch: None,
        log_start_offset: Offset::NONE,
    }
}

fn quiet(high_watermark: i64) -> PartitionOutcome {
    PartitionOutcome {
        has_records: false,
        high_watermark: Offset(high_watermark),
        log_start_offset: Offset(0),
        is_error: false,
        has_diverging_epoch: false,
        has_preferred_replica: false,
        included: false,
    }
}

fn records(high_watermark: i64) -> PartitionOutcome {
    PartitionOutcome { has_records: true, ..quiet(high_watermark) }
}

fn failed() -> PartitionOutcome {
    PartitionOutcome { is_error: true, high_watermark: Offset::NONE, log_start_offset: Offset::NONE, ..quiet(0) }
}

/// A cache with a clock and a source of chance of its own.
struct Bench {
    cache: FetchSessions,
    now: Monotonic,
    seed: u64,
}

impl Bench {
    fn with_slots(slots_max: usize) -> Self {
        Self::with_limits(slots_max, 100, |_| true)
    }

    fn with_limits(slots_max: usize, partitions_max: usize, is_home: fn(i32) -> bool) -> Self {
        let limits = SessionLimits { slots_max, partitions_max, eviction_min: SessionLimits::EVICTION_MIN };
        Self { cache: FetchSessions::with_rule(limits, is_home), now: Monotonic::ZERO, seed: 7 }
    }

    fn begin(&mut self, session_id: i32, epoch: i32, partitions: Vec<FetchPartition>) -> FetchContext {
        self.begin_forgetting(session_id, epoch, partitions, &[])
    }

    fn begin_forgetting(
        &mut self,
        session_id: i32,
        epoch: i32,
        partitions: Vec<FetchPartition>,
        forgotten: &[FetchKey],
    ) -> FetchContext {
        let request = SessionRequest { session_id, epoch, uses_topic_ids: false, from_follower: false };
        self.cache.begin(request, partitions, forgotten, self.now)
    }

    fn finish(&mut self, context: FetchContext, outcomes: &mut [PartitionOutcome]) -> FinishedFetch {
        let seed = &mut self.seed;
        self.cache.finish(context, outcomes, self.now, &mut || {
            *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *seed
        })
    }

    /// A session that follows the given partitions, each told a high watermark of 5; its next epoch is 1.
    fn open(&mut self, partitions: Vec<FetchPartition>, from_follower: bool) -> i32 {
        let request = SessionRequest { session_id: 0, epoch: 0, uses_topic_ids: false, from_follower };
        let context = self.cache.begin(request, partitions, &[], self.now);
        let mut outcomes = vec![quiet(5); context.partitions.len()];
        self.finish(context, &mut outcomes).session_id
    }

    /// One incremental round over the whole session; returns which partitions the response carries.
    fn round(&mut self, session_id: i32, epoch: i32, outcome: impl Fn(&FetchKey) -> PartitionOutcome) -> Vec<FetchKey> {
        let context = self.begin(session_id, epoch, vec![]);
        assert_eq!(context.refusal(), None);
        let keys: Vec<FetchKey> = context.partitions.iter().map(|p| p.key.clone()).collect();
        let mut outcomes: Vec<PartitionOutcome> = keys.iter().map(outcome).collect();
        let finished = self.finish(context, &mut outcomes);
        assert_eq!(finished, FinishedFetch { session_id, error: None });
        keys.into_iter().zip(outcomes).filter(|(_, o)| o.included).map(|(k, _)| k).collect()
    }

    fn knows(&mut self, session_id: i32) -> bool {
        let probe = self.begin(session_id, 77, vec![]);
        match probe.refusal() {
            Some(SessionError::NotFound { .. }) => false,
            Some(SessionError::WrongEpoch { .. }) => true,
            other => panic!("a probe with a wrong epoch got {other:?}"),
        }
    }
}
