//! The sessions of one shard: opening, using, closing, and who makes room for whom.
//!
//! Holds: the slots, the ids, the eviction rule. Never touches: which partitions are news (that is `partitions`).

use super::partitions::SessionPartitions;
use super::{
    ContextKind, EPOCH_FINAL, EPOCH_INITIAL, FetchContext, FetchKey, FetchPartition, FinishedFetch, PartitionOutcome,
    SESSION_ID_NONE, SessionError, SessionRequest, epoch_after,
};
use rustc_hash::FxHashMap;
use std::collections::HashMap;
use std::time::Duration;

use corelog_reactor::{Monotonic, ShardId};

/// How many draws a new id gets before the fetch is answered without a session. With 64 shards and every slot taken
/// the chance of needing more is below 2^-90.
const ID_DRAWS_MAX: u32 = 4096;

/// The bounds of a shard's cache.
#[derive(Clone, Copy, Debug)]
pub struct SessionLimits {
    /// The most sessions; with none, every fetch is sessionless.
    pub slots_max: usize,
    /// The most partitions that they follow together.
    pub partitions_max: usize,
    /// How long a session rests until any other may take its slot: Kafka's fixed two minutes.
    pub eviction_min: Duration,
}

impl SessionLimits {
    /// Kafka's fixed time until an unused session may be evicted.
    pub const EVICTION_MIN: Duration = Duration::from_millis(120_000);
    /// The most partitions that the sessions of a broker follow together: about 200 MB if they all did. Kafka has no such
    /// bound, and a client that keeps naming partitions could fill its memory.
    pub const PARTITIONS_MAX: usize = 1 << 20;
}

/// What the cache holds and has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionCounters {
    /// Sessions now.
    pub sessions: usize,
    /// Partitions followed by them.
    pub partitions: usize,
    /// Sessions thrown out for others, ever.
    pub evictions: u64,
}

#[derive(Debug)]
struct Session {
    partitions: SessionPartitions,
    /// The epoch that the next request must carry.
    epoch: i32,
    uses_topic_ids: bool,
    /// A follower's.
    privileged: bool,
    created: Monotonic,
    used: Monotonic,
    /// The number of partitions when it was last used, which is what counts for its rank.
    size: usize,
}

impl Session {
    /// What makes a session worth keeping: a follower's before a consumer's, then many partitions before few.
    fn rank(&self, id: i32) -> (bool, usize, i32) {
        (self.privileged, self.size, id)
    }

    /// Whether it was already old when last used. The young are spared, so that two crowds of consumers with the same
    /// number of partitions do not evict each other at every request (KIP-227).
    fn is_seasoned(&self, limits: &SessionLimits) -> bool {
        self.used.saturating_since(self.created) > limits.eviction_min
    }
}

/// The shard on which a session lives. An id that no session can have names a shard all the same, where it is not found.
#[must_use]
pub fn session_home(session_id: i32, shards: usize) -> ShardId {
    let shards = u32::try_from(shards.max(1)).unwrap_or(u32::MAX);
    let home = session_id.unsigned_abs() % shards;
    ShardId(u16::try_from(home).unwrap_or(0))
}

/// The fetch sessions whose home is this shard.
pub struct FetchSessions {
    limits: SessionLimits,
    is_home: Box<dyn Fn(i32) -> bool>,
    sessions: FxHashMap<i32, Session>,
    /// The partitions that they follow.
    partitions: usize,
    evictions: u64,
    /// Where each key of the request at hand stands; empty between calls, kept for its memory.
    positions: HashMap<FetchKey, usize>,
}

impl FetchSessions {
    /// The empty cache of shard `home`, one of `shards` that share the broker's `slots_max` evenly.
    #[must_use]
    pub fn new(home: ShardId, shards: usize, slots_max: usize) -> Self {
        assert!(shards > usize::from(home.0), "shard {home:?} is not one of {shards}");
        let limits = SessionLimits {
            slots_max: slots_max.div_ceil(shards),
            partitions_max: SessionLimits::PARTITIONS_MAX.div_ceil(shards),
            eviction_min: SessionLimits::EVICTION_MIN,
        };
        Self::with_rule(limits, move |id| session_home(id, shards) == home)
    }

    /// An empty cache. `is_home` says which ids live on this shard: every shard must be able to tell from the id alone.
    #[must_use]
    pub fn with_rule(limits: SessionLimits, is_home: impl Fn(i32) -> bool + 'static) -> Self {
        Self {
            limits,
            is_home: Box::new(is_home),
            sessions: FxHashMap::default(),
            partitions: 0,
            evictions: 0,
            positions: HashMap::new(),
        }
    }

    /// Decides what a request reads. A request with a session id belongs on that id's home, others on any shard.
    pub fn begin(
        &mut self,
        request: SessionRequest,
        mut partitions: Vec<FetchPartition>,
        forgotten: &[FetchKey],
        now: Monotonic,
    ) -> FetchContext {
        self.keep_last_of_each(&mut partitions);
        let SessionRequest { session_id, epoch, uses_topic_ids, from_follower } = request;
        if epoch == EPOCH_INITIAL || epoch == EPOCH_FINAL {
            self.close(session_id);
            let kind = if epoch == EPOCH_FINAL {
                ContextKind::Sessionless
            } else {
                ContextKind::Full { uses_topic_ids, from_follower }
            };
            return FetchContext { kind, partitions };
        }

        let Some(session) = self.sessions.get_mut(&session_id) else {
            return refused(SessionError::NotFound { session_id });
        };
        if session.epoch != epoch {
            return refused(SessionError::WrongEpoch { session_id, expected: session.epoch, got: epoch });
        }
        // KIP-516: a client that was up- or downgraded in between starts a new session.
        if session.uses_topic_ids != uses_topic_ids {
            return refused(SessionError::TopicNaming { session_id });
        }
        for partition in &partitions {
            session.partitions.follow(partition.clone());
        }
        for key in forgotten {
            session.partitions.forget(key);
        }
        let size = session.partitions.len();
        if size == 0 {
            self.close(session_id);
            return FetchContext { kind: ContextKind::Sessionless, partitions };
        }
        let all = self.partitions - session.size + size;
        if all > self.limits.partitions_max {
            // The client starts anew, and is served without a session as long as there is no room for it.
            self.close(session_id);
            return refused(SessionError::NotFound { session_id });
        }
        self.partitions = all;
        session.size = size;
        session.used = now;
        session.epoch = epoch_after(session.epoch);
        partitions.clear();
        session.partitions.copy_into(&mut partitions);
        let kind = ContextKind::Incremental { session_id, epoch_expected: session.epoch };
        FetchContext { kind, partitions }
    }

    /// Decides what the response carries. `outcomes` are those of `context.partitions`, one each, in order; their
    /// `included` is set. A full fetch opens its session here, with what it was told.
    pub fn finish(
        &mut self,
        context: FetchContext,
        outcomes: &mut [PartitionOutcome],
        now: Monotonic,
        random: &mut dyn FnMut() -> u64,
    ) -> FinishedFetch {
        let partitions = context.partitions;
        assert!(partitions.len() == outcomes.len(), "{} outcomes for {} partitions", outcomes.len(), partitions.len());
        for outcome in &mut *outcomes {
            outcome.included = true;
        }
        match context.kind {
            ContextKind::Refused(error) => FinishedFetch { session_id: SESSION_ID_NONE, error: Some(error) },
            ContextKind::Sessionless => FinishedFetch { session_id: SESSION_ID_NONE, error: None },
            ContextKind::Full { uses_topic_ids, from_follower } => {
                let session_id = self.open(partitions, outcomes, uses_topic_ids, from_follower, now, random);
                FinishedFetch { session_id, error: None }
            }
            ContextKind::Incremental { session_id, epoch_expected } => {
                // Evicted while it was reading: the data is good all the same, and the next request learns of it.
                let Some(session) = self.sessions.get_mut(&session_id) else {
                    return FinishedFetch { session_id, error: None };
                };
                if session.epoch != epoch_expected {
                    // Another request of the same session overtook this one.
                    for outcome in outcomes {
                        outcome.included = false;
                    }
                    let error = SessionError::WrongEpoch { session_id, expected: session.epoch, got: epoch_expected };
                    return FinishedFetch { session_id, error: Some(error) };
                }
                for (partition, outcome) in partitions.iter().zip(outcomes) {
                    outcome.included = session.partitions.observe(&partition.key, outcome);
                }
                FinishedFetch { session_id, error: None }
            }
        }
    }

    /// What the cache holds and has done.
    #[must_use]
    pub fn counters(&self) -> SessionCounters {
        SessionCounters { sessions: self.sessions.len(), partitions: self.partitions, evictions: self.evictions }
    }

    /// Opens a session and returns its id, or "none" if every slot is taken by something better.
    fn open(
        &mut self,
        partitions: Vec<FetchPartition>,
        outcomes: &[PartitionOutcome],
        uses_topic_ids: bool,
        privileged: bool,
        now: Monotonic,
        random: &mut dyn FnMut() -> u64,
    ) -> i32 {
        let size = partitions.len();
        if size > self.limits.partitions_max {
            return SESSION_ID_NONE;
        }
        while self.sessions.len() >= self.limits.slots_max || self.partitions + size > self.limits.partitions_max {
            if !self.evict_for((privileged, size, 0), now) {
                return SESSION_ID_NONE;
            }
        }
        let Some(id) = self.draw_id(random) else {
            return SESSION_ID_NONE;
        };
        let mut followed = SessionPartitions::with_capacity(size);
        for (partition, outcome) in partitions.into_iter().zip(outcomes) {
            followed.follow_told(partition, outcome);
        }
        let session = Session {
            partitions: followed,
            epoch: epoch_after(EPOCH_INITIAL),
            uses_topic_ids,
            privileged,
            created: now,
            used: now,
            size,
        };
        self.sessions.insert(id, session);
        self.partitions += size;
        assert!(
            self.sessions.len() <= self.limits.slots_max,
            "{} sessions in {} slots",
            self.sessions.len(),
            self.limits.slots_max
        );
        id
    }

    /// A positive id that lives here and is free. Random, so that a client from before a restart hardly meets another's.
    fn draw_id(&self, random: &mut dyn FnMut() -> u64) -> Option<i32> {
        for _ in 0..ID_DRAWS_MAX {
            // The top 31 bits: never negative.
            let id = (random() >> 33) as i32;
            if id != SESSION_ID_NONE && (self.is_home)(id) && !self.sessions.contains_key(&id) {
                return Some(id);
            }
        }
        None
    }

    /// Makes room for a session of the given rank. It may take the slot of a session that rested too long; or of the
    /// lowest in rank that is a consumer's (for a follower) or seasoned (for anyone), if that ranks below it.
    fn evict_for(&mut self, rank: (bool, usize, i32), now: Monotonic) -> bool {
        let stale = self
            .sessions
            .iter()
            .min_by_key(|(id, session)| (session.used, **id))
            .filter(|(_, session)| now.saturating_since(session.used) > self.limits.eviction_min)
            .map(|(id, _)| *id);
        let least = || {
            let privileged = rank.0;
            self.sessions
                .iter()
                .filter(|(_, session)| (privileged && !session.privileged) || session.is_seasoned(&self.limits))
                .map(|(id, session)| session.rank(*id))
                .min()
                .filter(|least| rank >= *least)
                .map(|(_, _, id)| id)
        };
        let Some(id) = stale.or_else(least) else {
            return false;
        };
        self.close(id);
        self.evictions += 1;
        true
    }

    fn close(&mut self, id: i32) {
        if let Some(session) = self.sessions.remove(&id) {
            self.partitions -= session.size;
        }
    }

    /// A partition given twice counts once: at its first place, with its last parameters.
    fn keep_last_of_each(&mut self, partitions: &mut Vec<FetchPartition>) {
        if partitions.len() < 2 {
            return;
        }
        self.positions.clear();
        let mut kept = 0;
        for at in 0..partitions.len() {
            let Some(key) = partitions.get(at).map(|partition| partition.key.clone()) else {
                break;
            };
            let place = *self.positions.entry(key).or_insert(kept);
            partitions.swap(place, at);
            if place == kept {
                kept += 1;
            }
        }
        partitions.truncate(kept);
        self.positions.clear();
    }
}

fn refused(error: SessionError) -> FetchContext {
    FetchContext { kind: ContextKind::Refused(error), partitions: Vec::new() }
}
