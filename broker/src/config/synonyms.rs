//! Which broker properties stand for the same thing, and which stand behind a topic property.
//!
//! Holds: Kafka's two synonym tables. Never touches: values.

/// Broker properties that say the same thing in other units, the one that wins first.
const GROUPS: [&[&str]; 4] = [
    &["log.roll.ms", "log.roll.hours"],
    &["log.roll.jitter.ms", "log.roll.jitter.hours"],
    &["log.retention.ms", "log.retention.minutes", "log.retention.hours"],
    &["log.flush.interval.ms", "log.flush.scheduler.interval.ms"],
];

/// The group of synonyms that `name` belongs to, the one that wins first; a group of itself alone for most.
///
/// `log.flush.scheduler.interval.ms` is a property of its own that only serves as the other's default.
pub fn broker_synonyms(name: &str) -> Vec<&str> {
    if name != "log.flush.scheduler.interval.ms" {
        for group in GROUPS {
            if group.contains(&name) {
                return group.to_vec();
            }
        }
    }
    match super::definition::listener_override_base(name) {
        Some(base) => vec![name, base],
        None => vec![name],
    }
}

/// The unit of a broker property that stands behind a topic property in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// The topic property's own.
    Same,
    /// Hours.
    Hours,
    /// Minutes.
    Minutes,
}

impl Unit {
    /// How many of the topic property's units one of these is.
    #[must_use]
    pub const fn factor(self) -> i64 {
        match self {
            Self::Same => 1,
            Self::Hours => 3_600_000,
            Self::Minutes => 60_000,
        }
    }
}

/// A topic property's broker properties: the first of them that is set counts.
#[must_use]
pub fn topic_synonyms(topic_property: &str) -> &'static [(&'static str, Unit)] {
    use Unit::{Hours, Minutes, Same};
    match topic_property {
        "cleanup.policy" => &[("log.cleanup.policy", Same)],
        "compression.gzip.level" => &[("compression.gzip.level", Same)],
        "compression.lz4.level" => &[("compression.lz4.level", Same)],
        "compression.type" => &[("compression.type", Same)],
        "compression.zstd.level" => &[("compression.zstd.level", Same)],
        "corelog.durability" => &[("corelog.durability", Same)],
        "delete.retention.ms" => &[("log.cleaner.delete.retention.ms", Same)],
        "file.delete.delay.ms" => &[("log.segment.delete.delay.ms", Same)],
        "flush.messages" => &[("log.flush.interval.messages", Same)],
        "flush.ms" => &[("log.flush.interval.ms", Same), ("log.flush.scheduler.interval.ms", Same)],
        "index.interval.bytes" => &[("log.index.interval.bytes", Same)],
        "local.retention.bytes" => &[("log.local.retention.bytes", Same)],
        "local.retention.ms" => &[("log.local.retention.ms", Same)],
        "max.compaction.lag.ms" => &[("log.cleaner.max.compaction.lag.ms", Same)],
        "max.message.bytes" => &[("message.max.bytes", Same)],
        "message.timestamp.after.max.ms" => &[("log.message.timestamp.after.max.ms", Same)],
        "message.timestamp.before.max.ms" => &[("log.message.timestamp.before.max.ms", Same)],
        "message.timestamp.type" => &[("log.message.timestamp.type", Same)],
        "min.cleanable.dirty.ratio" => &[("log.cleaner.min.cleanable.ratio", Same)],
        "min.compaction.lag.ms" => &[("log.cleaner.min.compaction.lag.ms", Same)],
        "min.insync.replicas" => &[("min.insync.replicas", Same)],
        "preallocate" => &[("log.preallocate", Same)],
        "retention.bytes" => &[("log.retention.bytes", Same)],
        "retention.ms" => {
            &[("log.retention.ms", Same), ("log.retention.minutes", Minutes), ("log.retention.hours", Hours)]
        }
        "segment.bytes" => &[("log.segment.bytes", Same)],
        "segment.index.bytes" => &[("log.index.size.max.bytes", Same)],
        "segment.jitter.ms" => &[("log.roll.jitter.ms", Same), ("log.roll.jitter.hours", Hours)],
        "segment.ms" => &[("log.roll.ms", Same), ("log.roll.hours", Hours)],
        "unclean.leader.election.enable" => &[("unclean.leader.election.enable", Same)],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::definition::broker_definition;
    use crate::config::table;
    use crate::config::value::ConfigType;

    #[test]
    fn every_synonym_is_a_broker_property_of_a_type_that_converts() {
        for topic in table::topic() {
            for (name, unit) in topic_synonyms(topic.name) {
                let broker = broker_definition(name);
                let Some(broker) = broker else {
                    panic!("{name}, behind {}, is no broker property", topic.name);
                };
                match unit {
                    Unit::Same => assert_eq!(broker.kind, topic.kind, "{name}"),
                    Unit::Hours | Unit::Minutes => {
                        assert_eq!(broker.kind, ConfigType::Int, "{name}");
                        assert_eq!(topic.kind, ConfigType::Long, "{name}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_synonyms_of_a_property_are_its_group_the_strongest_first() {
        assert_eq!(
            broker_synonyms("log.retention.hours"),
            ["log.retention.ms", "log.retention.minutes", "log.retention.hours"]
        );
        assert_eq!(broker_synonyms("log.flush.scheduler.interval.ms"), ["log.flush.scheduler.interval.ms"]);
        assert_eq!(
            broker_synonyms("listener.name.client.ssl.keystore.type"),
            ["listener.name.client.ssl.keystore.type", "ssl.keystore.type"]
        );
        assert_eq!(broker_synonyms("num.partitions"), ["num.partitions"]);
    }
}
