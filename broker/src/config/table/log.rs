//! Logs, segments, compaction and replication: properties of what is stored.
//!
//! Holds: their rows, in Kafka's names. Never touches: code.

use crate::config::definition::Definition;
use crate::config::definition::Effect::{Acts, Listed};
use crate::config::definition::Importance::{High, Low, Medium};
use crate::config::definition::Scope::{ClusterWide, ReadOnly};
use crate::config::value::ConfigType::{Boolean, Double, Int, List, Long, String};
use crate::config::value::Validator::{Any, AtLeast, Between, BetweenDouble, GzipLevel, ListOf, OneOf};

use super::row;

/// The rows, one property a line.
#[rustfmt::skip]
pub(super) const ROWS: &[Definition] = &[
    row("alter.log.dirs.replication.quota.window.num", Int, Some("11"), AtLeast(1), Low, ReadOnly, Listed, "How many samples are kept to measure moves between data folders."),
    row("alter.log.dirs.replication.quota.window.size.seconds", Int, Some("1"), AtLeast(1), Low, ReadOnly, Listed, "How long one of those samples is."),
    row("auto.leader.rebalance.enable", Boolean, Some("true"), Any, High, ReadOnly, Listed, "Whether leadership moves back to a partition's preferred leader by itself."),
    row("compression.gzip.level", Int, Some("-1"), GzipLevel, Medium, ClusterWide, Acts, "The level for topics stored with gzip; -1 is the codec's own default."),
    row("compression.lz4.level", Int, Some("9"), Between(1, 17), Medium, ClusterWide, Listed, "The level for topics stored with lz4."),
    row("compression.type", String, Some("producer"), OneOf(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]), High, ClusterWide, Acts, "How batches are stored: as the producer sent them, uncompressed, or compressed again with one codec."),
    row("compression.zstd.level", Int, Some("3"), Between(-131_072, 22), Medium, ClusterWide, Acts, "The level for topics stored with zstd."),
    row("delete.records.purgatory.purge.interval.requests", Int, Some("1"), Any, Medium, ReadOnly, Listed, "How many finished DeleteRecords requests Kafka lets pile up before it forgets them."),
    row("fetch.purgatory.purge.interval.requests", Int, Some("1000"), Any, Medium, ReadOnly, Listed, "How many finished fetches Kafka lets pile up before it forgets them."),
    row("leader.imbalance.check.interval.seconds", Long, Some("300"), AtLeast(1), High, ReadOnly, Listed, "How often the controller looks whether leadership should move back to preferred leaders."),
    row("log.cleaner.backoff.ms", Long, Some("15000"), AtLeast(0), Medium, ClusterWide, Acts, "How long the compactor sleeps when there is nothing to compact."),
    row("log.cleaner.dedupe.buffer.size", Long, Some("134217728"), Any, Medium, ClusterWide, Acts, "Memory of all compactors for the keys they have seen."),
    row("log.cleaner.delete.retention.ms", Long, Some("86400000"), AtLeast(0), Medium, ClusterWide, Acts, "How long a tombstone stays in a compacted topic, so that readers get to see it."),
    row("log.cleaner.enable", Boolean, Some("true"), Any, Medium, ReadOnly, Acts, "Whether compacted topics are compacted. Kafka has deprecated turning it off."),
    row("log.cleaner.io.buffer.load.factor", Double, Some("0.9"), Any, Medium, ClusterWide, Acts, "How full the compactors' table of keys may get."),
    row("log.cleaner.io.buffer.size", Int, Some("524288"), AtLeast(0), Medium, ClusterWide, Listed, "Memory of all compactors for reading and writing."),
    row("log.cleaner.io.max.bytes.per.second", Double, Some("1.7976931348623157E308"), Any, Medium, ClusterWide, Acts, "How much all compactors may read and write a second."),
    row("log.cleaner.max.compaction.lag.ms", Long, Some("9223372036854775807"), AtLeast(1), Medium, ClusterWide, Acts, "How long at most a record of a compacted topic stays uncompacted."),
    row("log.cleaner.min.cleanable.ratio", Double, Some("0.5"), BetweenDouble(0.0, 1.0), Medium, ClusterWide, Acts, "How much of a compacted topic has to be uncompacted before it is worth compacting."),
    row("log.cleaner.min.compaction.lag.ms", Long, Some("0"), AtLeast(0), Medium, ClusterWide, Acts, "How long at least a record of a compacted topic stays uncompacted."),
    row("log.cleaner.threads", Int, Some("1"), AtLeast(0), Medium, ClusterWide, Listed, "Threads that compact. Corelog compacts on the core that owns the partition."),
    row("log.cleanup.policy", List, Some("delete"), ListOf { allowed: &["compact", "delete"], empty_allowed: true }, Medium, ClusterWide, Acts, "What happens to old segments: deleted, compacted, both, or nothing."),
    row("log.dir", List, Some("data"), ListOf { allowed: &[], empty_allowed: false }, High, ReadOnly, Acts, "The data folder, where `log.dirs` is not set. Corelog's default is `data` in the folder it is started in."),
    row("log.dir.failure.timeout.ms", Long, Some("30000"), AtLeast(1), Low, ReadOnly, Listed, "How long a broker waits to tell the controller of a failed data folder before it stops."),
    row("log.dirs", List, None, ListOf { allowed: &[], empty_allowed: false }, High, ReadOnly, Acts, "The data folders, separated by commas: one for each disk. The first has the metadata, and the broker does not start without it; new partitions go to the one with the fewest. A folder whose name has a comma cannot be used."),
    row("log.flush.interval.messages", Long, Some("1"), AtLeast(1), High, ClusterWide, Acts, "How many records may gather in memory before their write begins. Corelog reads 1: an acknowledged record is on stable storage. A larger value counts only where `corelog.durability` is `memory`."),
    row("log.flush.interval.ms", Long, None, Any, High, ClusterWide, Acts, "How long a record may wait in memory for its write to begin, where `corelog.durability` is `memory`: a second at most, whatever it says."),
    row("log.flush.offset.checkpoint.interval.ms", Int, Some("60000"), AtLeast(0), High, ReadOnly, Listed, "How often the point is written down behind which recovery has nothing to check."),
    row("log.flush.scheduler.interval.ms", Long, Some("9223372036854775807"), Any, High, ReadOnly, Acts, "How often Kafka looks for logs to flush; the default of `log.flush.interval.ms`."),
    row("log.flush.start.offset.checkpoint.interval.ms", Int, Some("60000"), AtLeast(0), High, ReadOnly, Listed, "How often the first offsets of the logs are written down."),
    row("log.index.interval.bytes", Int, Some("4096"), AtLeast(0), Medium, ClusterWide, Acts, "How many bytes of records lie between two entries of the offset index."),
    row("log.index.size.max.bytes", Int, Some("10485760"), AtLeast(4), Medium, ClusterWide, Acts, "The largest offset or time index; a segment whose index is full is closed."),
    row("log.initial.task.delay.ms", Long, Some("30000"), AtLeast(0), Low, ReadOnly, Acts, "How long after its start the broker begins with retention and checkpoints.").internal(),
    row("log.local.retention.bytes", Long, Some("-2"), AtLeast(-2), Medium, ClusterWide, Listed, "How many bytes of a tiered partition stay on this broker; -2: `log.retention.bytes`."),
    row("log.local.retention.ms", Long, Some("-2"), AtLeast(-2), Medium, ClusterWide, Listed, "How long records of a tiered topic stay on this broker; -2: `log.retention.ms`."),
    row("log.message.timestamp.after.max.ms", Long, Some("3600000"), AtLeast(0), Medium, ClusterWide, Acts, "How far ahead of the broker's clock a record's timestamp may be."),
    row("log.message.timestamp.before.max.ms", Long, Some("9223372036854775807"), AtLeast(0), Medium, ClusterWide, Acts, "How far behind the broker's clock a record's timestamp may be."),
    row("log.message.timestamp.type", String, Some("CreateTime"), OneOf(&["CreateTime", "LogAppendTime"]), Medium, ClusterWide, Acts, "Whether a record carries the producer's timestamp or that of the append."),
    row("log.preallocate", Boolean, Some("false"), Any, Medium, ClusterWide, Listed, "Whether a new segment file is allocated whole. Corelog pre-writes its space anyway."),
    row("log.retention.bytes", Long, Some("-1"), Any, High, ClusterWide, Acts, "How many bytes of a partition are kept. Negative: no limit."),
    row("log.retention.check.interval.ms", Long, Some("300000"), AtLeast(1), Medium, ReadOnly, Acts, "How often the broker looks for segments that are old enough to go."),
    row("log.retention.hours", Int, Some("168"), Any, High, ReadOnly, Acts, "How long records are kept, in hours; `log.retention.minutes` and `log.retention.ms` win over it."),
    row("log.retention.minutes", Int, None, Any, High, ReadOnly, Acts, "How long records are kept, in minutes; `log.retention.ms` wins over it."),
    row("log.retention.ms", Long, None, Any, High, ClusterWide, Acts, "How long records are kept, in milliseconds. -1: for ever."),
    row("log.roll.hours", Int, Some("168"), AtLeast(1), High, ReadOnly, Acts, "The age, in hours, at which a segment is closed; `log.roll.ms` wins over it."),
    row("log.roll.jitter.hours", Int, Some("0"), AtLeast(0), High, ReadOnly, Acts, "By how many hours that age varies at random; `log.roll.jitter.ms` wins over it."),
    row("log.roll.jitter.ms", Long, None, Any, High, ClusterWide, Acts, "By how many milliseconds the age at which segments close varies at random, so that they don't all close at once."),
    row("log.roll.ms", Long, None, Any, High, ClusterWide, Acts, "The age, in milliseconds, at which a segment is closed."),
    row("log.segment.bytes", Int, Some("1073741824"), AtLeast(1_048_576), High, ClusterWide, Acts, "The size at which a segment is closed."),
    row("log.segment.delete.delay.ms", Long, Some("60000"), AtLeast(0), High, ClusterWide, Acts, "How long a deleted segment's file is kept."),
    row("message.max.bytes", Int, Some("1048588"), AtLeast(0), High, ClusterWide, Acts, "The largest record batch, as it is stored."),
    row("min.insync.replicas", Int, Some("1"), AtLeast(1), High, ClusterWide, Acts, "How many replicas must hold a record before `acks=all` is answered; never more than a topic has."),
    row("num.recovery.threads.per.data.dir", Int, Some("2"), AtLeast(1), High, ClusterWide, Listed, "Threads that recover logs at start. Corelog recovers on every core."),
    row("num.replica.alter.log.dirs.threads", Int, None, Any, High, ReadOnly, Listed, "Threads that move replicas between data folders."),
    row("num.replica.fetchers", Int, Some("1"), AtLeast(1), High, ClusterWide, Listed, "Threads that fetch from each other broker."),
    row("producer.purgatory.purge.interval.requests", Int, Some("1000"), Any, Medium, ReadOnly, Listed, "How many finished produce requests Kafka lets pile up before it forgets them."),
    row("replica.fetch.backoff.ms", Int, Some("1000"), AtLeast(0), Medium, ReadOnly, Listed, "The pause after a failed fetch from a leader."),
    row("replica.fetch.max.bytes", Int, Some("1048576"), AtLeast(0), Medium, ReadOnly, Listed, "How many bytes of one partition a follower asks for at once."),
    row("replica.fetch.min.bytes", Int, Some("1"), Any, High, ReadOnly, Listed, "How many bytes a follower waits for."),
    row("replica.fetch.response.max.bytes", Int, Some("10485760"), AtLeast(0), Medium, ReadOnly, Listed, "How many bytes in all a follower asks for at once."),
    row("replica.fetch.wait.max.ms", Int, Some("500"), Any, High, ReadOnly, Listed, "How long a follower's fetch may wait."),
    row("replica.high.watermark.checkpoint.interval.ms", Long, Some("5000"), Any, High, ReadOnly, Listed, "How often the high watermarks are written down."),
    row("replica.lag.time.max.ms", Long, Some("30000"), Any, High, ReadOnly, Listed, "How long a follower may lag before it is no longer in sync."),
    row("replica.selector.class", String, None, Any, Medium, ReadOnly, Listed, "The class that sends consumers to followers. Needs a JVM."),
    row("replica.socket.receive.buffer.bytes", Int, Some("65536"), Any, High, ReadOnly, Listed, "The receive buffer of connections to leaders."),
    row("replica.socket.timeout.ms", Int, Some("30000"), Any, High, ReadOnly, Listed, "How long a request to a leader may take."),
    row("replication.quota.window.num", Int, Some("11"), AtLeast(1), Low, ReadOnly, Listed, "How many samples are kept to measure replication against quotas."),
    row("replication.quota.window.size.seconds", Int, Some("1"), AtLeast(1), Low, ReadOnly, Listed, "How long one of those samples is."),
    row("unclean.leader.election.enable", Boolean, Some("false"), Any, High, ClusterWide, Listed, "Whether a replica that is out of sync may lead when no other is left, at the price of records."),
    row("unclean.leader.election.interval.ms", Long, Some("300000"), AtLeast(1), Medium, ReadOnly, Listed, "How often the controller looks for partitions that need such an election.").internal(),
];
