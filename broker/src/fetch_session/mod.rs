//! Incremental fetch sessions (KIP-227): the broker remembers what a consumer follows, and answers with what changed.
//!
//! Holds: the cache of one shard's sessions, their partitions and what each was last told, and the rules of both.
//! Never touches: sockets, logs, the clock, other shards (time, chance and the rule "which ids live here" are arguments).
//!
//! A session lives on one shard, its home, which its id names; a request that carries a session id is begun and
//! finished there, whatever connection brought it. A request is two calls around the reading:
//!
//! ```text
//!   begin(request, partitions, forgotten, now) -> FetchContext: what to read, in which order
//!        ... read each partition of the context ...
//!   finish(context, outcomes, now, random)     -> FinishedFetch: the session id to answer, and outcomes marked `included`
//! ```
//!
//! | request: session id, epoch      | session             | context     | session afterwards                           |
//! |---------------------------------|---------------------|-------------|----------------------------------------------|
//! | any, 0                          | any                 | full        | removed; a new one at `finish`, if room      |
//! | any, -1                         | any                 | sessionless | removed                                      |
//! | id, any other                   | not found           | refused     | -                                            |
//! | id, not the epoch it expects    | found               | refused     | as it was                                    |
//! | id, the epoch, ids versus names | of the other naming | refused     | as it was                                    |
//! | id, the epoch                   | left with nothing   | sessionless | removed                                      |
//! | id, the epoch                   | found               | incremental | updated, epoch + 1, used now                 |

mod cache;
mod partitions;
#[cfg(test)]
mod tests;

pub use cache::{FetchSessions, SessionCounters, SessionLimits, session_home};

use corelog_storage::ids::{LeaderEpoch, Offset, PartitionIndex, TopicId};
use std::sync::Arc;
use thiserror::Error;

/// The session id that means "no session", in requests and answers.
pub const SESSION_ID_NONE: i32 = 0;
/// The epoch of a request that wants a new session.
pub const EPOCH_INITIAL: i32 = 0;
/// The epoch of a request that wants no session, and its old one closed.
pub const EPOCH_FINAL: i32 = -1;

/// The epoch that follows `epoch` in a session: from `i32::MAX` back to 1, since 0 asks for a new session.
#[must_use]
pub const fn epoch_after(epoch: i32) -> i32 {
    if epoch < 0 {
        EPOCH_FINAL
    } else if epoch == i32::MAX {
        1
    } else {
        epoch + 1
    }
}

/// How a request names a topic: by id from version 13 on (KIP-516), by name below. A session never mixes the two.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FetchTopic {
    /// The topic's id, known to the broker or not.
    Id(TopicId),
    /// The topic's name; cheap to clone, best taken from the metadata snapshot.
    Name(Arc<str>),
}

/// One partition, as the request names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FetchKey {
    /// The topic.
    pub topic: FetchTopic,
    /// The partition's number.
    pub partition: PartitionIndex,
}

/// What a consumer or follower wants from one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchPartition {
    /// The partition.
    pub key: FetchKey,
    /// The offset to read from.
    pub fetch_offset: Offset,
    /// The most bytes wanted from this partition.
    pub max_bytes: i32,
    /// The leader epoch that the client knows (KIP-320); `None` checks nothing.
    pub current_leader_epoch: Option<LeaderEpoch>,
    /// The epoch of the last record that a follower has (KIP-595); `None` checks nothing.
    pub last_fetched_epoch: Option<LeaderEpoch>,
    /// A follower's own log start offset; -1 from consumers.
    pub log_start_offset: Offset,
}

/// What of a fetch request concerns the session.
#[derive(Clone, Copy, Debug)]
pub struct SessionRequest {
    /// The session's id, or [`SESSION_ID_NONE`]. Versions below 7 carry none: give [`SESSION_ID_NONE`].
    pub session_id: i32,
    /// The session's epoch. Versions below 7 carry none: give [`EPOCH_FINAL`].
    pub epoch: i32,
    /// Whether topics are named by id (version 13 and above).
    pub uses_topic_ids: bool,
    /// Whether a follower asks: its session outranks those of consumers when slots are short.
    pub from_follower: bool,
}

/// What came of reading one partition, as far as "is it news?" needs to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionOutcome {
    /// Whether there are records in the answer.
    pub has_records: bool,
    /// The high watermark in the answer; -1 with an error.
    pub high_watermark: Offset,
    /// The log start offset in the answer; -1 with an error.
    pub log_start_offset: Offset,
    /// Whether the partition answers with an error.
    pub is_error: bool,
    /// Whether the answer tells the follower where its log diverges.
    pub has_diverging_epoch: bool,
    /// Whether the answer sends the consumer to another replica (KIP-392).
    pub has_preferred_replica: bool,
    /// Set by [`FetchSessions::finish`]: whether the partition belongs into the response.
    pub included: bool,
}

/// What a fetch request reads, and what `finish` needs to know of it.
#[derive(Debug)]
pub struct FetchContext {
    kind: ContextKind,
    /// The partitions to read, in order; each key once.
    pub partitions: Vec<FetchPartition>,
}

#[derive(Debug)]
enum ContextKind {
    Refused(SessionError),
    Sessionless,
    Full { uses_topic_ids: bool, from_follower: bool },
    Incremental { session_id: i32, epoch_expected: i32 },
}

impl FetchContext {
    /// Why the request cannot be served, if so: the response then carries this error, session id 0 and no partition.
    #[must_use]
    pub fn refusal(&self) -> Option<SessionError> {
        match self.kind {
            ContextKind::Refused(error) => Some(error),
            ContextKind::Sessionless | ContextKind::Full { .. } | ContextKind::Incremental { .. } => None,
        }
    }

    /// Whether the answer may leave partitions out, so that an empty one means "nothing new".
    #[must_use]
    pub fn is_incremental(&self) -> bool {
        matches!(self.kind, ContextKind::Incremental { .. })
    }
}

/// How the response begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FinishedFetch {
    /// The session id to answer with.
    pub session_id: i32,
    /// The error of the whole response; no partition is included then.
    pub error: Option<SessionError>,
}

/// Why a session cannot serve a request. The client starts a new session after any of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SessionError {
    /// `FETCH_SESSION_ID_NOT_FOUND`: never here, closed, or evicted.
    #[error("no fetch session {session_id}")]
    NotFound {
        /// The id asked for.
        session_id: i32,
    },
    /// `INVALID_FETCH_SESSION_EPOCH`: a request was lost, repeated or overtaken.
    #[error("fetch session {session_id} is at epoch {expected}, the request at {got}")]
    WrongEpoch {
        /// The session.
        session_id: i32,
        /// The epoch that the session expects next.
        expected: i32,
        /// The epoch of the request.
        got: i32,
    },
    /// `FETCH_SESSION_TOPIC_ID_ERROR`: the session names topics the other way (KIP-516).
    #[error("fetch session {session_id} and the request name topics in different ways")]
    TopicNaming {
        /// The session.
        session_id: i32,
    },
}
