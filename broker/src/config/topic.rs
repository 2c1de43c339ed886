//! The configuration of one topic as its partitions use it.
//!
//! Holds: `TopicConfig`, typed and merged: the topic's own overrides over the broker's values over the defaults.
//! Never touches: where a value came from (`describe`), how overrides are stored (`controller`).

use std::collections::BTreeMap;

use thiserror::Error;
use tracing::warn;

use super::ConfigMap;
use super::definition::topic_definition;
use super::table;
use super::value::{Value, ValueError};

/// What happens to old segments (`cleanup.policy`). Both: compacted, and deleted when they are old. Neither: kept for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanupPolicy {
    /// Keep only the last record of each key.
    pub compact: bool,
    /// Delete segments past the retention time or size.
    pub delete: bool,
}

/// How the broker stores batches (`compression.type` and the codec's level).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopicCompression {
    /// As the producer sent them.
    Producer,
    /// Uncompressed.
    Uncompressed,
    /// gzip; -1 is the codec's own default level.
    Gzip {
        /// `compression.gzip.level`
        level: i32,
    },
    /// Snappy.
    Snappy,
    /// LZ4.
    Lz4 {
        /// `compression.lz4.level`
        level: i32,
    },
    /// Zstandard.
    Zstd {
        /// `compression.zstd.level`
        level: i32,
    },
}

/// Whose clock a record's timestamp is from (`message.timestamp.type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampType {
    /// The producer's.
    CreateTime,
    /// The broker's, at the moment of the append.
    LogAppendTime,
}

/// What an acknowledgement means (`corelog.durability`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The records are on stable storage.
    Durable,
    /// The records are in memory; `flush.messages` and `flush.ms` bound how long.
    Memory,
}

/// The effective configuration of one topic.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicConfig {
    /// `cleanup.policy`
    pub cleanup_policy: CleanupPolicy,
    /// `compression.type`, with the level of the codec it names.
    pub compression: TopicCompression,
    /// `corelog.durability`
    pub durability: Durability,
    /// `delete.retention.ms`: how long a tombstone survives compaction.
    pub delete_retention_ms: u64,
    /// `file.delete.delay.ms`
    pub file_delete_delay_ms: u64,
    /// `flush.messages`: counts only with [`Durability::Memory`].
    pub flush_messages: u64,
    /// `flush.ms`: counts only with [`Durability::Memory`].
    pub flush_ms: u64,
    /// `index.interval.bytes`
    pub index_interval_bytes: u32,
    /// `max.compaction.lag.ms`
    pub compaction_lag_ms_max: u64,
    /// `max.message.bytes`: the largest record batch, header included.
    pub message_bytes_max: u32,
    /// `message.timestamp.after.max.ms`
    pub timestamp_after_ms_max: u64,
    /// `message.timestamp.before.max.ms`
    pub timestamp_before_ms_max: u64,
    /// `message.timestamp.type`
    pub timestamp_type: TimestampType,
    /// `min.cleanable.dirty.ratio`
    pub cleanable_dirty_ratio_min: f64,
    /// `min.compaction.lag.ms`
    pub compaction_lag_ms_min: u64,
    /// `min.insync.replicas` as configured; see [`TopicConfig::effective_min_insync_replicas`].
    pub min_insync_replicas: u32,
    /// `preallocate`
    pub preallocate: bool,
    /// `retention.bytes`; `None`: no limit.
    pub retention_bytes: Option<u64>,
    /// `retention.ms`; `None`: no limit.
    pub retention_ms: Option<u64>,
    /// `segment.bytes`, or `internal.segment.bytes` where a test set it.
    pub segment_bytes: u32,
    /// `segment.index.bytes`
    pub segment_index_bytes: u32,
    /// `segment.jitter.ms`
    pub segment_jitter_ms: u64,
    /// `segment.ms`
    pub segment_ms: u64,
    /// `unclean.leader.election.enable`
    pub unclean_leader_election: bool,
}

impl TopicConfig {
    /// The in-sync replicas that `acks=all` really needs: a topic with fewer replicas than `min.insync.replicas`
    /// could never take such a write, so Kafka 4.x caps the number by the replicas there are.
    #[must_use]
    pub fn effective_min_insync_replicas(&self, replicas: usize) -> usize {
        (self.min_insync_replicas as usize).min(replicas)
    }

    /// The age at which the active segment is closed: of a compacted topic also `max.compaction.lag.ms`,
    /// since only closed segments are compacted.
    #[must_use]
    pub fn segment_ms_effective(&self) -> u64 {
        if self.cleanup_policy.compact && self.compaction_lag_ms_max > 0 {
            self.segment_ms.min(self.compaction_lag_ms_max)
        } else {
            self.segment_ms
        }
    }

    pub(super) fn read(values: &TopicValues) -> Self {
        let policy = values.list("cleanup.policy");
        let has = |what: &str| policy.iter().any(|p| p.eq_ignore_ascii_case(what));
        let limit = |name| u64::try_from(values.long(name)).ok();
        let segment_bytes =
            values.optional_int("internal.segment.bytes").unwrap_or_else(|| values.int("segment.bytes"));
        Self {
            cleanup_policy: CleanupPolicy { compact: has("compact"), delete: has("delete") },
            compression: compression(values),
            durability: match values.text("corelog.durability") {
                "memory" => Durability::Memory,
                _ => Durability::Durable,
            },
            delete_retention_ms: values.count("delete.retention.ms"),
            file_delete_delay_ms: values.count("file.delete.delay.ms"),
            flush_messages: values.count("flush.messages"),
            flush_ms: values.count("flush.ms"),
            index_interval_bytes: values.small_count("index.interval.bytes"),
            compaction_lag_ms_max: values.count("max.compaction.lag.ms"),
            message_bytes_max: values.small_count("max.message.bytes"),
            timestamp_after_ms_max: values.count("message.timestamp.after.max.ms"),
            timestamp_before_ms_max: values.count("message.timestamp.before.max.ms"),
            timestamp_type: match values.text("message.timestamp.type") {
                "LogAppendTime" => TimestampType::LogAppendTime,
                _ => TimestampType::CreateTime,
            },
            cleanable_dirty_ratio_min: values.double("min.cleanable.dirty.ratio"),
            compaction_lag_ms_min: values.count("min.compaction.lag.ms"),
            min_insync_replicas: values.small_count("min.insync.replicas"),
            preallocate: values.boolean("preallocate"),
            retention_bytes: limit("retention.bytes"),
            retention_ms: limit("retention.ms"),
            segment_bytes: u32::try_from(segment_bytes).unwrap_or(1),
            segment_index_bytes: values.small_count("segment.index.bytes"),
            segment_jitter_ms: values.count("segment.jitter.ms"),
            segment_ms: values.count("segment.ms"),
            unclean_leader_election: values.boolean("unclean.leader.election.enable"),
        }
    }
}

fn compression(values: &TopicValues) -> TopicCompression {
    match values.text("compression.type") {
        "uncompressed" => TopicCompression::Uncompressed,
        "gzip" => TopicCompression::Gzip { level: values.int("compression.gzip.level") },
        "snappy" => TopicCompression::Snappy,
        "lz4" => TopicCompression::Lz4 { level: values.int("compression.lz4.level") },
        "zstd" => TopicCompression::Zstd { level: values.int("compression.zstd.level") },
        _ => TopicCompression::Producer,
    }
}

/// Why a topic's configuration was refused. Shown, it reads as Kafka's own message.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TopicConfigError {
    /// No topic property has this name.
    #[error("Unknown topic config name: {name}")]
    UnknownName {
        /// The name.
        name: String,
    },
    /// One value is wrong.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// Two values contradict each other.
    #[error("conflict topic config setting min.compaction.lag.ms ({min_ms}) > max.compaction.lag.ms ({max_ms})")]
    CompactionLags {
        /// `min.compaction.lag.ms`
        min_ms: i64,
        /// `max.compaction.lag.ms`
        max_ms: i64,
    },
    /// `remote.storage.enable=true` on a broker without tiered storage.
    #[error(
        "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."
    )]
    RemoteStorageDisabled,
}

/// A value for every topic property: what a topic without overrides has on this broker.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicValues(BTreeMap<&'static str, Option<Value>>);

impl TopicValues {
    pub(super) fn new(values: BTreeMap<&'static str, Option<Value>>) -> Self {
        for row in table::topic() {
            assert!(values.contains_key(row.name), "no value for the topic property {}", row.name);
        }
        Self(values)
    }

    /// The value of a topic property; `None` when it is not set and has no default.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)?.as_ref()
    }

    /// Puts a topic's overrides over these values, with all the checks of CreateTopics and AlterConfigs.
    ///
    /// # Errors
    /// [`TopicConfigError`], the first one found.
    pub fn with_overrides(&self, overrides: &ConfigMap) -> Result<Self, TopicConfigError> {
        // Kafka checks every name before any value.
        if let Some(name) = overrides.keys().find(|n| topic_definition(n).is_none()) {
            return Err(TopicConfigError::UnknownName { name: name.clone() });
        }
        let mut merged = self.clone();
        for (name, text) in overrides {
            merged.set(name, text)?;
        }
        merged.check()?;
        Ok(merged)
    }

    /// Puts a topic's stored overrides over these values. They were checked when they were stored; one that no
    /// longer passes (a rule of a later version) is left out with a warning instead of losing the topic.
    #[must_use]
    pub fn with_stored_overrides(&self, topic: &str, overrides: &ConfigMap) -> Self {
        let mut merged = self.clone();
        for (name, text) in overrides {
            if let Err(error) = merged.set(name, text) {
                warn!(topic, %error, "a stored topic configuration is ignored");
            }
        }
        merged
    }

    /// The typed form.
    #[must_use]
    pub fn topic_config(&self) -> TopicConfig {
        TopicConfig::read(self)
    }

    fn set(&mut self, name: &str, text: &str) -> Result<(), TopicConfigError> {
        let Some(row) = topic_definition(name) else {
            return Err(TopicConfigError::UnknownName { name: name.to_owned() });
        };
        let value = row.parse(text)?;
        self.0.insert(row.name, Some(value));
        Ok(())
    }

    fn check(&self) -> Result<(), TopicConfigError> {
        let (min_ms, max_ms) = (self.long("min.compaction.lag.ms"), self.long("max.compaction.lag.ms"));
        if min_ms > max_ms {
            return Err(TopicConfigError::CompactionLags { min_ms, max_ms });
        }
        if self.boolean("remote.storage.enable") {
            return Err(TopicConfigError::RemoteStorageDisabled);
        }
        Ok(())
    }

    fn of_type<T>(&self, name: &str, pick: impl FnOnce(&Value) -> Option<T>) -> T {
        let value = self.get(name);
        match value.and_then(pick) {
            Some(picked) => picked,
            None => unreachable!("topic property {name} is {value:?}, not of the type it is read as"),
        }
    }

    fn boolean(&self, name: &str) -> bool {
        self.of_type(name, |v| match v {
            Value::Boolean(b) => Some(*b),
            _ => None,
        })
    }

    fn int(&self, name: &str) -> i32 {
        self.of_type(name, |v| match v {
            Value::Int(n) => Some(*n),
            _ => None,
        })
    }

    fn optional_int(&self, name: &str) -> Option<i32> {
        self.get(name).map(|_| self.int(name))
    }

    fn long(&self, name: &str) -> i64 {
        self.of_type(name, |v| match v {
            Value::Long(n) => Some(*n),
            _ => None,
        })
    }

    /// A LONG whose validator keeps it from being negative.
    fn count(&self, name: &str) -> u64 {
        u64::try_from(self.long(name)).unwrap_or(0)
    }

    /// An INT whose validator keeps it from being negative.
    fn small_count(&self, name: &str) -> u32 {
        u32::try_from(self.int(name)).unwrap_or(0)
    }

    fn double(&self, name: &str) -> f64 {
        self.of_type(name, |v| match v {
            Value::Double(n) => Some(*n),
            _ => None,
        })
    }

    fn text(&self, name: &str) -> &str {
        match self.get(name) {
            Some(Value::Text(text)) => text,
            other => unreachable!("topic property {name} is {other:?}, not a text"),
        }
    }

    fn list(&self, name: &str) -> &[String] {
        match self.get(name) {
            Some(Value::List(items)) => items,
            other => unreachable!("topic property {name} is {other:?}, not a list"),
        }
    }
}
