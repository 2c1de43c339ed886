//! Describing configurations: DescribeConfigs, and the configurations in CreateTopics' answers.
//!
//! Holds: for each property its effective value, where that came from, and everything that would have counted
//! otherwise. Follows what Apache Kafka 4.2 answers. Never touches: the wire.

use super::ConfigMap;
use super::definition::{Definition, Scope, broker_definition, topic_definition};
use super::dynamic::dynamic_definition;
use super::layers::Layers;
use super::synonyms::{broker_synonyms, topic_synonyms};
use super::table;
use super::value::ConfigType;
use super::{BrokerConfig, TopicValues};

/// Where a value came from, with Kafka's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i8)]
pub enum ConfigSource {
    /// Set for the topic.
    DynamicTopic = 1,
    /// Set for this broker while it ran.
    DynamicBroker = 2,
    /// Set for all brokers while they ran.
    DynamicDefaultBroker = 3,
    /// Set when the broker started.
    StaticBroker = 4,
    /// Not set.
    Default = 5,
}

impl ConfigSource {
    /// Its number in the protocol.
    #[must_use]
    pub const fn id(self) -> i8 {
        self as i8
    }
}

/// A value that counts, or would count if the ones before it were not set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Synonym {
    /// The property that has it.
    pub name: String,
    /// The text; `None` for a secret.
    pub value: Option<String>,
    /// Where it came from.
    pub source: ConfigSource,
}

/// One property of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedConfig {
    /// Its name.
    pub name: String,
    /// Its effective value; `None`: null, or a secret.
    pub value: Option<String>,
    /// Where that came from.
    pub source: ConfigSource,
    /// Whether only a restart changes it.
    pub read_only: bool,
    /// Whether it is a secret.
    pub sensitive: bool,
    /// Its type; `None` for a name that nobody knows.
    pub kind: Option<ConfigType>,
    /// What it is for; `None` for a name that nobody knows.
    pub documentation: Option<&'static str>,
    /// Everything that was set for it, or is its default, the one that counts first.
    pub synonyms: Vec<Synonym>,
}

/// Describes a topic with these overrides. Sorted by name.
#[must_use]
pub fn describe_topic(config: &BrokerConfig, topic: &str, overrides: &ConfigMap) -> Vec<DescribedConfig> {
    let values = config.topic_values().with_stored_overrides(topic, overrides);
    table::topic()
        .iter()
        .filter(|row| !row.internal || overrides.contains_key(row.name))
        .map(|row| describe_topic_row(config, row, &values, overrides))
        .collect()
}

fn describe_topic_row(
    config: &BrokerConfig,
    row: &Definition,
    values: &TopicValues,
    overrides: &ConfigMap,
) -> DescribedConfig {
    let value = values.get(row.name).map(ToString::to_string);
    let mut synonyms = Vec::new();
    if overrides.contains_key(row.name) {
        synonyms.push(Synonym { name: row.name.to_owned(), value: value.clone(), source: ConfigSource::DynamicTopic });
    }
    if let Some(&(strongest, _)) = topic_synonyms(row.name).first() {
        synonyms.extend(all_set(config.layers(), strongest, false));
    }
    DescribedConfig {
        name: row.name.to_owned(),
        value,
        source: source_of(&synonyms),
        read_only: false,
        sensitive: row.is_sensitive(),
        kind: Some(row.kind),
        documentation: Some(row.doc),
        synonyms,
    }
}

/// Describes this broker. Sorted by name.
#[must_use]
pub fn describe_broker(config: &BrokerConfig) -> Vec<DescribedConfig> {
    let layers = config.layers();
    let mut described: Vec<DescribedConfig> = table::broker()
        .iter()
        .filter(|row| !row.internal || layers.text(row.name).is_some())
        .map(|row| {
            let value = layers.value(row).ok().flatten().map(|v| v.to_string());
            describe_broker_entry(layers, row.name, Some(row), value, true)
        })
        .collect();
    // What was set under a name that is no row of the table: listener overrides, names of plugins.
    let mut others: Vec<&str> = layers
        .fixed
        .iter()
        .map(|(name, _)| name)
        .chain(layers.cluster.keys().map(String::as_str))
        .chain(layers.broker.keys().map(String::as_str))
        .filter(|name| broker_definition(name).is_none())
        .collect();
    others.sort_unstable();
    others.dedup();
    for name in others {
        let value = layers.text(name).map(str::to_owned);
        described.push(describe_broker_entry(layers, name, dynamic_definition(name), value, true));
    }
    described.sort_by(|a, b| a.name.cmp(&b.name));
    described
}

/// Describes what was set for all brokers while they ran: only that, as Kafka does. Sorted by name.
#[must_use]
pub fn describe_cluster_default(config: &BrokerConfig) -> Vec<DescribedConfig> {
    let layers = config.layers();
    let entry = |(name, text): (&String, &String)| {
        describe_broker_entry(layers, name, dynamic_definition(name), Some(text.clone()), false)
    };
    layers.cluster.iter().map(entry).collect()
}

fn describe_broker_entry(
    layers: &Layers,
    name: &str,
    row: Option<&'static Definition>,
    value: Option<String>,
    per_broker: bool,
) -> DescribedConfig {
    // Kafka shows nothing of a property that it does not know: it may be a secret.
    let sensitive = row.is_none_or(Definition::is_sensitive);
    let mut synonyms = all_set(layers, name, sensitive);
    if !per_broker {
        synonyms.retain(|s| s.source == ConfigSource::DynamicDefaultBroker);
    }
    DescribedConfig {
        name: name.to_owned(),
        value: value.filter(|_| !sensitive),
        source: source_of(&synonyms),
        read_only: broker_definition(name).is_none_or(|row| row.scope == Scope::ReadOnly),
        sensitive,
        kind: row.map(|row| row.kind),
        documentation: row.map(|row| row.doc),
        synonyms,
    }
}

fn source_of(synonyms: &[Synonym]) -> ConfigSource {
    synonyms.first().map_or(ConfigSource::Default, |s| s.source)
}

/// Everything that was set for a broker property and its synonyms, and their defaults, in the order in which they
/// count. What stands before the property's own first entry is not its: a synonym that overrides it.
fn all_set(layers: &Layers, name: &str, sensitive: bool) -> Vec<Synonym> {
    let group = broker_synonyms(name);
    let mut all = Vec::new();
    let mut collect = |source, text_of: &dyn Fn(&str) -> Option<String>| {
        for member in &group {
            if let Some(text) = text_of(member) {
                all.push(Synonym { name: (*member).to_owned(), value: (!sensitive).then_some(text), source });
            }
        }
    };
    collect(ConfigSource::DynamicBroker, &|n| layers.broker.get(n).cloned());
    collect(ConfigSource::DynamicDefaultBroker, &|n| layers.cluster.get(n).cloned());
    collect(ConfigSource::StaticBroker, &|n| layers.fixed.get(n).map(str::to_owned));
    collect(ConfigSource::Default, &|n| {
        let row = broker_definition(n)?;
        row.default.map(str::to_owned)
    });
    let own = all.iter().position(|s| s.name == name).unwrap_or(all.len());
    all.split_off(own)
}

/// Describes a topic that is being created, as CreateTopics answers it: without synonyms. Sorted by name.
#[must_use]
pub fn describe_new_topic(config: &BrokerConfig, topic: &str, overrides: &ConfigMap) -> Vec<DescribedConfig> {
    let mut described = describe_topic(config, topic, overrides);
    for entry in &mut described {
        entry.source = new_topic_source(config.layers(), &entry.name, overrides);
        entry.synonyms.clear();
    }
    described
}

/// Here Kafka names the first broker property that was set, in whatever unit.
fn new_topic_source(layers: &Layers, name: &str, overrides: &ConfigMap) -> ConfigSource {
    if overrides.contains_key(name) {
        return ConfigSource::DynamicTopic;
    }
    debug_assert!(topic_definition(name).is_some(), "{name} is no topic property");
    let behind = topic_synonyms(name);
    let any = |is_set: &dyn Fn(&str) -> bool| behind.iter().any(|&(n, _)| is_set(n));
    if any(&|n| layers.broker.contains_key(n)) {
        ConfigSource::DynamicBroker
    } else if any(&|n| layers.cluster.contains_key(n)) {
        ConfigSource::DynamicDefaultBroker
    } else if any(&|n| layers.fixed.contains(n)) {
        ConfigSource::StaticBroker
    } else {
        ConfigSource::Default
    }
}
