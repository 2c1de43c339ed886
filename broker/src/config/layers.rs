//! The layers of a broker's configuration, one over the other.
//!
//! Holds: what was set at start, what was set since for all brokers, what was set since for this one, and which of
//! them counts. Never touches: what values mean beyond their type.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::ConfigMap;
use super::definition::{Definition, broker_definition};
use super::origin::StaticProperties;
use super::synonyms::{Unit, broker_synonyms, topic_synonyms};
use super::table;
use super::topic::TopicValues;
use super::value::{Value, ValueError};

/// The layers; a later field is stronger.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    /// Set at start.
    pub(super) fixed: Arc<StaticProperties>,
    /// Set since, for all brokers.
    pub(super) cluster: Arc<ConfigMap>,
    /// Set since, for this broker.
    pub(super) broker: Arc<ConfigMap>,
}

impl Layers {
    /// Only what was set at start.
    #[must_use]
    pub fn fixed(properties: Arc<StaticProperties>) -> Self {
        Self { fixed: properties, ..Self::default() }
    }

    /// The text of a broker property that counts, if it was set anywhere.
    ///
    /// A layer that sets one of several synonyms hides all of them in the weaker layers: a dynamic
    /// `log.retention.ms` is not to lose against a `log.retention.hours` in the file, nor the other way round.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        let group = broker_synonyms(name);
        let set_in = |layer: &ConfigMap| group.iter().any(|n| layer.contains_key(*n));
        for layer in [&self.broker, &self.cluster] {
            if set_in(layer) {
                return layer.get(name).map(String::as_str);
            }
        }
        self.fixed.get(name)
    }

    /// The value of a broker property that counts: set, or its default; `None` when it is neither.
    ///
    /// # Errors
    /// [`ValueError`] if the text is not a value of this property.
    pub fn value(&self, row: &Definition) -> Result<Option<Value>, ValueError> {
        self.text(row.name).or(row.default).map(|text| row.parse(text)).transpose()
    }

    /// What a topic without overrides has.
    ///
    /// # Errors
    /// [`ValueError`] if a broker property behind a topic property is wrong.
    pub fn topic_values(&self) -> Result<TopicValues, ValueError> {
        let mut values = BTreeMap::new();
        for row in table::topic() {
            let value = match self.behind(row)? {
                Some(value) => Some(value),
                None => row.default.map(|text| row.parse(text)).transpose()?,
            };
            values.insert(row.name, value);
        }
        Ok(TopicValues::new(values))
    }

    /// The value of the first broker property behind a topic property that is set or has a default.
    fn behind(&self, topic: &Definition) -> Result<Option<Value>, ValueError> {
        for &(name, unit) in topic_synonyms(topic.name) {
            let Some(row) = broker_definition(name) else {
                continue;
            };
            if let Some(value) = self.value(row)? {
                return Ok(Some(in_topic_units(topic, value, unit)));
            }
        }
        Ok(None)
    }
}

fn in_topic_units(topic: &Definition, value: Value, unit: Unit) -> Value {
    let value = match (unit, value) {
        (Unit::Same, value) => value,
        (_, Value::Int(number)) => Value::Long(i64::from(number) * unit.factor()),
        (_, other) => unreachable!("{} is behind {} with {other:?}", unit.factor(), topic.name),
    };
    match value {
        // Any negative retention time of the broker's means "for ever", which a topic writes as -1.
        Value::Long(n) if topic.name == "retention.ms" && n < 0 => Value::Long(-1),
        value => value,
    }
}
