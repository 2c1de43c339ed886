//! Tiered storage.
//!
//! Holds: its rows, in Kafka's names. Corelog has no remote tier so far. Never touches: code.

use crate::config::definition::Definition;
use crate::config::definition::Effect::Listed;
use crate::config::definition::Importance::{Low, Medium};
use crate::config::definition::Scope::{ClusterWide, ReadOnly};
use crate::config::value::ConfigType::{Boolean, Double, Int, Long, String};
use crate::config::value::Validator::{Any, AtLeast, BetweenDouble, NonEmpty};

use super::row;

/// The rows, one property a line.
#[rustfmt::skip]
pub(super) const ROWS: &[Definition] = &[
    row("remote.fetch.max.wait.ms", Int, Some("500"), AtLeast(1), Medium, ClusterWide, Listed, "How long a fetch from the remote tier may wait."),
    row("remote.list.offsets.request.timeout.ms", Long, Some("30000"), AtLeast(1), Medium, ClusterWide, Listed, "How long looking up an offset in the remote tier may take."),
    row("remote.log.index.file.cache.total.size.bytes", Long, Some("1073741824"), AtLeast(1), Low, ClusterWide, Listed, "How much room cached indexes of remote segments may take."),
    row("remote.log.manager.copier.thread.pool.size", Int, Some("10"), AtLeast(1), Medium, ClusterWide, Listed, "Threads that copy segments to the remote tier."),
    row("remote.log.manager.copy.max.bytes.per.second", Long, Some("9223372036854775807"), AtLeast(1), Medium, ClusterWide, Listed, "How fast segments are copied to the remote tier."),
    row("remote.log.manager.copy.quota.window.num", Int, Some("11"), AtLeast(1), Medium, ReadOnly, Listed, "How many samples are kept to measure that."),
    row("remote.log.manager.copy.quota.window.size.seconds", Int, Some("1"), AtLeast(1), Medium, ReadOnly, Listed, "How long one of those samples is."),
    row("remote.log.manager.expiration.thread.pool.size", Int, Some("10"), AtLeast(1), Medium, ClusterWide, Listed, "Threads that delete expired remote segments."),
    row("remote.log.manager.fetch.max.bytes.per.second", Long, Some("9223372036854775807"), AtLeast(1), Medium, ClusterWide, Listed, "How fast records are read from the remote tier."),
    row("remote.log.manager.fetch.quota.window.num", Int, Some("11"), AtLeast(1), Medium, ReadOnly, Listed, "How many samples are kept to measure that."),
    row("remote.log.manager.fetch.quota.window.size.seconds", Int, Some("1"), AtLeast(1), Medium, ReadOnly, Listed, "How long one of those samples is."),
    row("remote.log.manager.follower.thread.pool.size", Int, Some("2"), AtLeast(1), Medium, ClusterWide, Listed, "Threads that keep followers informed of the remote tier."),
    row("remote.log.manager.task.interval.ms", Long, Some("30000"), AtLeast(1), Low, ReadOnly, Listed, "How often work for the remote tier is looked for."),
    row("remote.log.manager.task.retry.backoff.max.ms", Long, Some("30000"), AtLeast(1), Low, ReadOnly, Listed, "The longest pause before work for the remote tier is tried again.").internal(),
    row("remote.log.manager.task.retry.backoff.ms", Long, Some("500"), AtLeast(1), Low, ReadOnly, Listed, "The first pause before work for the remote tier is tried again.").internal(),
    row("remote.log.manager.task.retry.jitter", Double, Some("0.2"), BetweenDouble(0.0, 0.5), Low, ReadOnly, Listed, "By how much that pause varies at random.").internal(),
    row("remote.log.manager.thread.pool.size", Int, Some("2"), AtLeast(1), Medium, ReadOnly, Listed, "Threads that schedule work for the remote tier."),
    row("remote.log.metadata.custom.metadata.max.bytes", Int, Some("128"), AtLeast(0), Low, ReadOnly, Listed, "How many bytes a remote storage plugin may keep with a segment."),
    row("remote.log.metadata.manager.class.name", String, Some("org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager"), NonEmpty, Medium, ReadOnly, Listed, "The class that keeps what is known of remote segments. Needs a JVM."),
    row("remote.log.metadata.manager.class.path", String, None, Any, Medium, ReadOnly, Listed, "Where that class is."),
    row("remote.log.metadata.manager.impl.prefix", String, Some("rlmm.config."), NonEmpty, Medium, ReadOnly, Listed, "The prefix of the properties that it is given."),
    row("remote.log.metadata.manager.listener.name", String, None, NonEmpty, Medium, ReadOnly, Listed, "The listener through which it talks to the brokers."),
    row("remote.log.reader.max.pending.tasks", Int, Some("100"), AtLeast(1), Medium, ReadOnly, Listed, "How many reads from the remote tier may wait."),
    row("remote.log.reader.threads", Int, Some("10"), AtLeast(1), Medium, ClusterWide, Listed, "Threads that read from the remote tier."),
    row("remote.log.storage.manager.class.name", String, None, NonEmpty, Medium, ReadOnly, Listed, "The class that stores remote segments. Needs a JVM."),
    row("remote.log.storage.manager.class.path", String, None, Any, Medium, ReadOnly, Listed, "Where that class is."),
    row("remote.log.storage.manager.impl.prefix", String, Some("rsm.config."), NonEmpty, Medium, ReadOnly, Listed, "The prefix of the properties that it is given."),
    row("remote.log.storage.system.enable", Boolean, Some("false"), Any, Medium, ReadOnly, Listed, "Whether the broker has a remote tier. Corelog has none so far."),
];
