//! DescribeConfigs: values, sources and synonyms.

use std::sync::Arc;

use super::{config, map};
use crate::config::describe::{
    ConfigSource, DescribedConfig, describe_broker, describe_cluster_default, describe_new_topic, describe_topic,
};
use crate::config::value::ConfigType;
use crate::config::{BrokerConfig, ConfigMap};

fn one(described: &[DescribedConfig], name: &str) -> DescribedConfig {
    match described.iter().find(|entry| entry.name == name) {
        Some(entry) => entry.clone(),
        None => panic!("{name} is not described"),
    }
}

fn synonyms(entry: &DescribedConfig) -> Vec<(String, Option<String>, i8)> {
    entry.synonyms.iter().map(|s| (s.name.clone(), s.value.clone(), s.source.id())).collect()
}

fn synonym(name: &str, value: &str, source: i8) -> (String, Option<String>, i8) {
    (name.to_owned(), Some(value.to_owned()), source)
}

fn dynamic(started: &BrokerConfig, cluster: &[(&str, &str)], broker: &[(&str, &str)]) -> BrokerConfig {
    match started.with_dynamic(Arc::new(map(cluster)), Arc::new(map(broker))) {
        Ok(config) => config,
        Err(problems) => panic!("{problems}"),
    }
}

#[test]
fn a_topics_property_lists_everything_that_would_count_in_order() {
    let started = config(&[("log.retention.hours", "1")]);
    let config = dynamic(&started, &[("log.retention.ms", "5000")], &[("log.retention.ms", "6000")]);
    let entry = one(&describe_topic(&config, "t", &map(&[("retention.ms", " 7000 ")])), "retention.ms");
    assert_eq!(entry.value.as_deref(), Some("7000"));
    assert_eq!(entry.source, ConfigSource::DynamicTopic);
    assert_eq!((entry.read_only, entry.sensitive, entry.kind), (false, false, Some(ConfigType::Long)));
    assert_eq!(
        synonyms(&entry),
        [
            synonym("retention.ms", "7000", 1),
            synonym("log.retention.ms", "6000", 2),
            synonym("log.retention.ms", "5000", 3),
            synonym("log.retention.hours", "1", 4),
            synonym("log.retention.hours", "168", 5),
        ]
    );
}

#[test]
fn a_topic_without_overrides_has_the_brokers_values_and_sources() {
    let config = config(&[("log.retention.ms", "5000")]);
    let described = describe_topic(&config, "t", &ConfigMap::new());
    let retention = one(&described, "retention.ms");
    assert_eq!((retention.value.as_deref(), retention.source), (Some("5000"), ConfigSource::StaticBroker));
    let flush = one(&described, "flush.messages");
    assert_eq!((flush.value.as_deref(), flush.source), (Some("1"), ConfigSource::Default));
    assert_eq!(synonyms(&flush), [synonym("log.flush.interval.messages", "1", 5)]);
    let remote = one(&described, "remote.storage.enable");
    assert_eq!((remote.source, remote.synonyms.len()), (ConfigSource::Default, 0));
    let names: Vec<&str> = described.iter().map(|entry| entry.name.as_str()).collect();
    assert!(names.is_sorted());
    assert_eq!(names.len(), 34, "33 of Kafka's that are not internal, and our durability key");
    assert!(!names.contains(&"internal.segment.bytes"));
}

#[test]
fn an_hour_in_the_file_stands_behind_the_finest_unit() {
    // Kafka starts from the property that a topic's stands for first, and that one has no value of its own here.
    let config = config(&[("log.retention.hours", "1")]);
    let entry = one(&describe_topic(&config, "t", &ConfigMap::new()), "retention.ms");
    assert_eq!(entry.value.as_deref(), Some("3600000"));
    assert_eq!(entry.source, ConfigSource::Default);
    let created = one(&describe_new_topic(&config, "t", &ConfigMap::new()), "retention.ms");
    assert_eq!(created.source, ConfigSource::StaticBroker, "CreateTopics answers otherwise");
    assert!(created.synonyms.is_empty());
}

#[test]
fn a_brokers_property_says_whether_a_restart_is_needed() {
    let config = config(&[("num.partitions", "3")]);
    let described = describe_broker(&config);
    let partitions = one(&described, "num.partitions");
    assert_eq!(
        (partitions.value.as_deref(), partitions.source, partitions.read_only),
        (Some("3"), ConfigSource::StaticBroker, true)
    );
    assert_eq!(synonyms(&partitions), [synonym("num.partitions", "3", 4), synonym("num.partitions", "1", 5)]);
    let segment = one(&described, "log.segment.bytes");
    assert_eq!((segment.source, segment.read_only), (ConfigSource::Default, false));
    let unset = one(&described, "log.retention.ms");
    assert_eq!((unset.value.as_deref(), unset.source, unset.synonyms.len()), (None, ConfigSource::Default, 0));
    assert!(described.iter().all(|entry| entry.documentation.is_some()));
    assert!(described.iter().all(|entry| entry.name != "unstable.api.versions.enable"), "internal ones are not shown");
}

#[test]
fn secrets_and_names_that_nobody_knows_are_never_shown() {
    let config = config(&[
        ("ssl.keystore.password", "hunter2"),
        ("listener.name.x.ssl.key.password", "hunter2"),
        ("my.plugin.key", "hunter2"),
    ]);
    let described = describe_broker(&config);
    for name in ["ssl.keystore.password", "listener.name.x.ssl.key.password", "my.plugin.key"] {
        let entry = one(&described, name);
        assert!(entry.sensitive, "{name}");
        assert_eq!(entry.value, None, "{name}");
        assert!(entry.synonyms.iter().all(|s| s.value.is_none()), "{name}");
        assert_eq!(entry.source, ConfigSource::StaticBroker, "{name}");
    }
}

#[test]
fn the_default_of_all_brokers_shows_only_what_was_set_there() {
    let started = config(&[("log.retention.ms", "1")]);
    let config = dynamic(&started, &[("log.retention.ms", "2")], &[("log.retention.ms", "3")]);
    let described = describe_cluster_default(&config);
    assert_eq!(described.len(), 1);
    let entry = one(&described, "log.retention.ms");
    assert_eq!((entry.value.as_deref(), entry.source), (Some("2"), ConfigSource::DynamicDefaultBroker));
    assert_eq!(synonyms(&entry), [synonym("log.retention.ms", "2", 3)]);
}
