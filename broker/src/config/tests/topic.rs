//! Topics' configurations: the merge and its checks.

use super::{config, map};
use crate::config::{CleanupPolicy, Durability, TimestampType, TopicCompression, TopicConfig};

fn refused(overrides: &[(&str, &str)]) -> String {
    match config(&[]).topic_values().with_overrides(&map(overrides)) {
        Ok(values) => panic!("accepted: {values:?}"),
        Err(error) => error.to_string(),
    }
}

fn topic(broker: &[(&str, &str)], overrides: &[(&str, &str)]) -> TopicConfig {
    config(broker).topic_config("t", &map(overrides))
}

#[test]
fn a_topics_override_wins_over_the_brokers_value_and_that_over_the_default() {
    let broker = [("log.retention.hours", "2"), ("message.max.bytes", "5000"), ("log.roll.hours", "3")];
    let with = topic(&broker, &[("retention.ms", "60000")]);
    assert_eq!(with.retention_ms, Some(60_000));
    assert_eq!(with.message_bytes_max, 5000);
    assert_eq!(with.segment_ms, 3 * 3_600_000);
    assert_eq!(with.segment_bytes, 1 << 30);
    assert_eq!(topic(&broker, &[]).retention_ms, Some(7_200_000));
}

#[test]
fn the_finest_unit_that_is_set_wins() {
    let retention = |broker: &[(&str, &str)]| topic(broker, &[]).retention_ms;
    assert_eq!(retention(&[("log.retention.minutes", "3"), ("log.retention.hours", "1")]), Some(180_000));
    assert_eq!(retention(&[("log.retention.minutes", "3"), ("log.retention.ms", "4")]), Some(4));
    assert_eq!(retention(&[("log.retention.hours", "-1")]), None);
}

#[test]
fn every_property_is_read_into_its_type() {
    let typed = topic(
        &[],
        &[
            ("cleanup.policy", "compact,delete"),
            ("compression.type", "zstd"),
            ("compression.zstd.level", "7"),
            ("corelog.durability", "memory"),
            ("message.timestamp.type", "LogAppendTime"),
            ("min.insync.replicas", "2"),
            ("retention.bytes", "-1"),
            ("internal.segment.bytes", "100"),
            ("max.compaction.lag.ms", "1000"),
            ("min.cleanable.dirty.ratio", "0.25"),
        ],
    );
    assert_eq!(typed.cleanup_policy, CleanupPolicy { compact: true, delete: true });
    assert_eq!(typed.compression, TopicCompression::Zstd { level: 7 });
    assert_eq!(typed.durability, Durability::Memory);
    assert_eq!(typed.timestamp_type, TimestampType::LogAppendTime);
    assert_eq!(typed.retention_bytes, None);
    assert_eq!(typed.segment_bytes, 100);
    assert_eq!(typed.segment_ms_effective(), 1000, "a compacted topic's segments close in time to be compacted");
    assert!((typed.cleanable_dirty_ratio_min - 0.25).abs() < f64::EPSILON);
    assert_eq!(topic(&[], &[("cleanup.policy", "")]).cleanup_policy, CleanupPolicy { compact: false, delete: false });
}

#[test]
fn min_insync_replicas_is_capped_by_the_replicas_there_are() {
    let typed = topic(&[("min.insync.replicas", "2")], &[]);
    assert_eq!(typed.effective_min_insync_replicas(1), 1);
    assert_eq!(typed.effective_min_insync_replicas(2), 2);
    assert_eq!(typed.effective_min_insync_replicas(3), 2);
}

#[test]
fn wrong_overrides_are_refused_with_kafkas_messages() {
    assert_eq!(refused(&[("no.such.key", "1")]), "Unknown topic config name: no.such.key");
    assert_eq!(
        refused(&[("retention.ms", "-2")]),
        "Invalid value -2 for configuration retention.ms: Value must be at least -1"
    );
    assert_eq!(
        refused(&[("segment.bytes", "100")]),
        "Invalid value 100 for configuration segment.bytes: Value must be at least 1048576"
    );
    assert_eq!(
        refused(&[("cleanup.policy", "keep")]),
        "Invalid value keep for configuration cleanup.policy: String must be one of: compact, delete"
    );
    assert_eq!(
        refused(&[("compression.type", "lzma")]),
        "Invalid value lzma for configuration compression.type: String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer"
    );
    assert_eq!(
        refused(&[("min.compaction.lag.ms", "5"), ("max.compaction.lag.ms", "4")]),
        "conflict topic config setting min.compaction.lag.ms (5) > max.compaction.lag.ms (4)"
    );
    assert_eq!(
        refused(&[("remote.storage.enable", "true")]),
        "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."
    );
    assert_eq!(
        refused(&[("corelog.durability", "maybe")]),
        "Invalid value maybe for configuration corelog.durability: String must be one of: durable, memory"
    );
}

#[test]
fn a_stored_override_that_no_longer_passes_is_left_out_and_the_others_count() {
    let typed = topic(&[], &[("gone.in.a.later.version", "1"), ("segment.bytes", "5"), ("retention.ms", "7")]);
    assert_eq!(typed.segment_bytes, 1 << 30);
    assert_eq!(typed.retention_ms, Some(7));
}
