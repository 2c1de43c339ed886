//! What can be set for a topic.
//!
//! Holds: the topic properties, in Kafka's names, and our own durability key. Never touches: code.

use crate::config::definition::Definition;
use crate::config::definition::Effect::{Acts, Listed};
use crate::config::definition::Importance::{High, Medium};
use crate::config::definition::Scope::Topic;
use crate::config::value::ConfigType::{Boolean, Double, Int, List, Long, String};
use crate::config::value::Validator::{
    Any, AtLeast, Between, BetweenDouble, GzipLevel, ListOf, OneOf, ThrottledReplicas,
};

use super::row;

/// The rows, one property a line.
#[rustfmt::skip]
pub(super) const ROWS: &[Definition] = &[
    row("cleanup.policy", List, Some("delete"), ListOf { allowed: &["compact", "delete"], empty_allowed: true }, Medium, Topic, Acts, "What happens to old segments: `delete` them, `compact` them (keep the last record of each key), both, or nothing if empty."),
    row("compression.gzip.level", Int, Some("-1"), GzipLevel, Medium, Topic, Acts, "The level for gzip, where `compression.type` is gzip; -1 is the codec's own default."),
    row("compression.lz4.level", Int, Some("9"), Between(1, 17), Medium, Topic, Listed, "The level for lz4, where `compression.type` is lz4."),
    row("compression.type", String, Some("producer"), OneOf(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]), Medium, Topic, Acts, "How batches are stored: as the producer sent them, uncompressed, or compressed again with one codec."),
    row("compression.zstd.level", Int, Some("3"), Between(-131_072, 22), Medium, Topic, Acts, "The level for zstd, where `compression.type` is zstd."),
    row("corelog.durability", String, Some("durable"), OneOf(&["durable", "memory"]), High, Topic, Acts, "What an acknowledgement means: `durable`, the records are on stable storage; `memory`, they are in memory, and their write begins within `flush.messages` and `flush.ms`."),
    row("delete.retention.ms", Long, Some("86400000"), AtLeast(0), Medium, Topic, Acts, "How long a tombstone stays in a compacted topic, so that readers get to see it."),
    row("file.delete.delay.ms", Long, Some("60000"), AtLeast(0), Medium, Topic, Acts, "How long a deleted segment's file is kept."),
    row("flush.messages", Long, Some("1"), AtLeast(1), Medium, Topic, Acts, "How many records may gather in memory before their write begins. Corelog reads 1: an acknowledged record is on stable storage. A larger value counts only where `corelog.durability` is `memory`."),
    row("flush.ms", Long, Some("9223372036854775807"), AtLeast(0), Medium, Topic, Acts, "How long a record may wait in memory for its write to begin, where `corelog.durability` is `memory`: a second at most, whatever it says."),
    row("follower.replication.throttled.replicas", List, Some(""), ThrottledReplicas, Medium, Topic, Listed, "The replicas whose fetching is held back by a quota: partition:broker, separated by commas, or * for all."),
    row("index.interval.bytes", Int, Some("4096"), AtLeast(0), Medium, Topic, Acts, "How many bytes of records lie between two entries of the offset index."),
    row("internal.segment.bytes", Int, None, Any, Medium, Topic, Acts, "The size at which a segment is closed, without a lower limit, for tests.").internal(),
    row("leader.replication.throttled.replicas", List, Some(""), ThrottledReplicas, Medium, Topic, Listed, "The replicas that are served by leaders within a quota: partition:broker, separated by commas, or * for all."),
    row("local.retention.bytes", Long, Some("-2"), AtLeast(-2), Medium, Topic, Listed, "How many bytes of a tiered partition stay on the broker; -2: `retention.bytes`."),
    row("local.retention.ms", Long, Some("-2"), AtLeast(-2), Medium, Topic, Listed, "How long records of a tiered topic stay on the broker; -2: `retention.ms`."),
    row("max.compaction.lag.ms", Long, Some("9223372036854775807"), AtLeast(1), Medium, Topic, Acts, "How long at most a record of a compacted topic stays uncompacted."),
    row("max.message.bytes", Int, Some("1048588"), AtLeast(0), Medium, Topic, Acts, "The largest record batch, as it is stored."),
    row("message.timestamp.after.max.ms", Long, Some("3600000"), AtLeast(0), Medium, Topic, Acts, "How far ahead of the broker's clock a record's timestamp may be."),
    row("message.timestamp.before.max.ms", Long, Some("9223372036854775807"), AtLeast(0), Medium, Topic, Acts, "How far behind the broker's clock a record's timestamp may be."),
    row("message.timestamp.type", String, Some("CreateTime"), OneOf(&["CreateTime", "LogAppendTime"]), Medium, Topic, Acts, "Whether a record carries the producer's timestamp or that of the append."),
    row("min.cleanable.dirty.ratio", Double, Some("0.5"), BetweenDouble(0.0, 1.0), Medium, Topic, Acts, "How much of a compacted topic has to be uncompacted before it is worth compacting."),
    row("min.compaction.lag.ms", Long, Some("0"), AtLeast(0), Medium, Topic, Acts, "How long at least a record of a compacted topic stays uncompacted."),
    row("min.insync.replicas", Int, Some("1"), AtLeast(1), Medium, Topic, Acts, "How many replicas must hold a record before `acks=all` is answered; never more than the topic has."),
    row("preallocate", Boolean, Some("false"), Any, Medium, Topic, Listed, "Whether a new segment file is allocated whole. Corelog pre-writes its space anyway."),
    row("remote.log.copy.disable", Boolean, Some("false"), Any, Medium, Topic, Listed, "Whether a tiered topic's segments are no longer copied to the remote tier."),
    row("remote.log.delete.on.disable", Boolean, Some("false"), Any, Medium, Topic, Listed, "Whether a topic's remote segments are deleted when it is no longer tiered."),
    row("remote.storage.enable", Boolean, Some("false"), Any, Medium, Topic, Listed, "Whether the topic is tiered. Corelog has no remote tier so far."),
    row("retention.bytes", Long, Some("-1"), Any, Medium, Topic, Acts, "How many bytes of a partition are kept. Negative: no limit."),
    row("retention.ms", Long, Some("604800000"), AtLeast(-1), Medium, Topic, Acts, "How long records are kept. -1: for ever."),
    row("segment.bytes", Int, Some("1073741824"), AtLeast(1_048_576), Medium, Topic, Acts, "The size at which a segment is closed."),
    row("segment.index.bytes", Int, Some("10485760"), AtLeast(4), Medium, Topic, Acts, "The largest offset or time index; a segment whose index is full is closed."),
    row("segment.jitter.ms", Long, Some("0"), AtLeast(0), Medium, Topic, Acts, "By how much the age at which segments close varies at random, so that they don't all close at once."),
    row("segment.ms", Long, Some("604800000"), AtLeast(1), Medium, Topic, Acts, "The age at which a segment is closed."),
    row("unclean.leader.election.enable", Boolean, Some("false"), Any, Medium, Topic, Listed, "Whether a replica that is out of sync may lead when no other is left, at the price of records."),
];
