//! Changing configurations of topics and brokers.
//!
//! Holds: Kafka's rules and the order in which they are checked. Never touches: what the properties mean (`config`).

use std::collections::{BTreeMap, BTreeSet};

use super::error::AlterConfigError;
use super::record::{ConfigResource, Record, ResourceKind};
use super::request::{AlterConfigs, ConfigChange, ConfigOperation, IncrementalAlterConfigs};
use super::state::Controller;
use super::topics::times_named;
use crate::config::ConfigMap;
use crate::config::definition::{broker_definition, topic_definition};
use crate::config::dynamic::check_dynamic;
use crate::config::value::ConfigType;
use crate::names::validate_topic_name;

/// The longest value, in UTF-16 units as Kafka counts them.
const VALUE_UNITS_MAX: usize = i16::MAX as usize;

/// What became of each resource, in request order.
type Altered = Vec<(ConfigResource, Result<(), AlterConfigError>)>;

/// The changes to one resource: property to value, or to nothing.
type Changes = BTreeMap<String, Option<String>>;

impl Controller {
    /// Replaces whole configurations.
    pub(super) fn alter_configs(&self, request: &AlterConfigs) -> (Altered, Vec<Record>) {
        let resources = request.resources.iter().map(|r| &r.resource);
        let plan = |at: usize| {
            let Some(replaced) = request.resources.get(at) else {
                return Ok(Changes::new());
            };
            let (resource, configs) = (&replaced.resource, &replaced.configs);
            check_keys(configs.iter().map(|(name, _)| name))?;
            check_nulls(configs.iter().filter(|(_, value)| value.is_none()).map(|(name, _)| name))?;
            let new: ConfigMap =
                configs.iter().filter_map(|(name, value)| Some((name.clone(), value.clone()?))).collect();
            self.check_config(resource, &new)?;
            let old = self.image.config(resource);
            let mut changes: Changes = new.into_iter().map(|(name, value)| (name, Some(value))).collect();
            for name in old.keys() {
                changes.entry(name.clone()).or_insert(None);
            }
            Ok(changes)
        };
        self.alter_each(resources.collect(), plan, request.validate_only)
    }

    /// Changes single properties.
    pub(super) fn incremental_alter_configs(&self, request: &IncrementalAlterConfigs) -> (Altered, Vec<Record>) {
        let resources = request.resources.iter().map(|r| &r.resource);
        let plan = |at: usize| {
            let Some(changed) = request.resources.get(at) else {
                return Ok(Changes::new());
            };
            let (resource, wanted) = (&changed.resource, &changed.changes);
            check_keys(wanted.iter().map(|change| &change.name))?;
            let needs_value = |c: &&ConfigChange| c.operation != ConfigOperation::Delete && c.value.is_none();
            check_nulls(wanted.iter().filter(needs_value).map(|change| &change.name))?;
            let old = self.image.config(resource);
            let mut new = (*old).clone();
            let mut changes = Changes::new();
            for change in wanted {
                let value = changed_value(resource, change, old.get(&change.name))?;
                match &value {
                    Some(value) => new.insert(change.name.clone(), value.clone()),
                    None => new.remove(&change.name),
                };
                changes.insert(change.name.clone(), value);
            }
            self.check_config(resource, &new)?;
            Ok(changes)
        };
        self.alter_each(resources.collect(), plan, request.validate_only)
    }

    /// Makes records of what `plan` gives for each resource. One wrong property leaves its resource unchanged, and no
    /// other.
    fn alter_each(
        &self,
        resources: Vec<&ConfigResource>,
        plan: impl Fn(usize) -> Result<Changes, AlterConfigError>,
        validate_only: bool,
    ) -> (Altered, Vec<Record>) {
        let mut records = Vec::new();
        let mut results = Altered::new();
        let times = times_named(resources.iter().copied());
        for (at, &resource) in resources.iter().enumerate() {
            let outcome =
                if times.get(resource) != Some(&1) { Err(AlterConfigError::DuplicateResource) } else { plan(at) };
            let outcome = outcome.map(|changes| self.write_changes(resource, changes, &mut records));
            results.push((resource.clone(), outcome));
        }
        if validate_only {
            records.clear();
        }
        (results, records)
    }

    fn write_changes(&self, resource: &ConfigResource, changes: Changes, records: &mut Vec<Record>) {
        let old = self.image.config(resource);
        for (name, value) in changes {
            // A broker's property is written even if it stays: setting it again makes the broker read its files again.
            if resource.kind == ResourceKind::Broker || old.get(&name) != value.as_ref() {
                records.push(Record::Config { resource: resource.clone(), name, value });
            }
        }
    }

    /// Checks the whole configuration that a resource would have.
    fn check_config(&self, resource: &ConfigResource, new: &ConfigMap) -> Result<(), AlterConfigError> {
        match resource.kind {
            ResourceKind::Topic => {
                if resource.name.is_empty() {
                    return Err(AlterConfigError::DefaultTopic);
                }
                validate_topic_name(&resource.name)?;
                self.check_topic_config(new)?;
                if self.image.topic_id(&resource.name).is_none() {
                    return Err(AlterConfigError::UnknownTopic { name: resource.name.to_string() });
                }
                Ok(())
            }
            ResourceKind::Broker => {
                let ours = self.config.node_id;
                if !resource.name.is_empty() {
                    let name = || resource.name.to_string();
                    let id: i32 =
                        resource.name.parse().map_err(|_| AlterConfigError::BrokerNameNotANumber { name: name() })?;
                    if id != ours {
                        return Err(AlterConfigError::OtherBroker { ours, name: name() });
                    }
                }
                check_lengths(new)?;
                check_dynamic(new, !resource.name.is_empty(), &self.config)?;
                Ok(())
            }
            ResourceKind::ClientMetrics | ResourceKind::Group => {
                Err(AlterConfigError::UnknownResourceKind(resource.kind.id()))
            }
        }
    }

    /// Checks the overrides that a topic would have, new or not.
    pub(super) fn check_topic_config(&self, overrides: &ConfigMap) -> Result<(), AlterConfigError> {
        check_lengths(overrides)?;
        self.config.topic_values().with_overrides(overrides)?;
        Ok(())
    }
}

fn check_lengths(configs: &ConfigMap) -> Result<(), AlterConfigError> {
    let too_long = |value: &String| value.encode_utf16().count() > VALUE_UNITS_MAX;
    if configs.values().any(too_long) {
        return Err(AlterConfigError::ValueTooLong);
    }
    Ok(())
}

fn check_keys<'a>(names: impl Iterator<Item = &'a String>) -> Result<(), AlterConfigError> {
    let mut names: Vec<&String> = names.collect();
    names.sort_unstable();
    if names.array_windows().any(|[a, b]| a == b) {
        return Err(AlterConfigError::DuplicateKeys);
    }
    Ok(())
}

fn check_nulls<'a>(nulls: impl Iterator<Item = &'a String>) -> Result<(), AlterConfigError> {
    let names: Vec<&str> = nulls.map(String::as_str).collect();
    if names.is_empty() {
        return Ok(());
    }
    Err(AlterConfigError::NullValues { names: names.join(", ") })
}

/// What a property would be after a change.
fn changed_value(
    resource: &ConfigResource,
    change: &ConfigChange,
    current: Option<&String>,
) -> Result<Option<String>, AlterConfigError> {
    let name = &change.name;
    let value = change.value.as_deref().unwrap_or_default();
    let operation = match change.operation {
        ConfigOperation::Set => return Ok(change.value.clone()),
        ConfigOperation::Delete => return Ok(None),
        ConfigOperation::Append => "APPEND",
        ConfigOperation::Subtract => "SUBTRACT",
    };
    let row = match resource.kind {
        ResourceKind::Topic => topic_definition(name),
        ResourceKind::Broker => broker_definition(name),
        ResourceKind::ClientMetrics | ResourceKind::Group => None,
    };
    let list = row.filter(|row| row.kind == ConfigType::List);
    let Some(list) = list else {
        return Err(match resource.kind {
            ResourceKind::Broker => {
                AlterConfigError::BrokerNotAList { operation: operation.to_lowercase(), name: name.clone() }
            }
            ResourceKind::Topic | ResourceKind::ClientMetrics | ResourceKind::Group => {
                AlterConfigError::NotAList { operation, name: name.clone() }
            }
        });
    };
    // What a list without a value of its own is added to or taken from is its default.
    let current = current.map(String::as_str).or(list.default).unwrap_or_default();
    let mut items: Vec<&str> = current.split(',').filter(|item| !item.is_empty()).collect();
    if change.operation == ConfigOperation::Subtract {
        // Each takes away one of its like.
        let mut unwanted = times_named(value.split(','));
        items.retain(|item| match unwanted.get_mut(item) {
            None | Some(0) => true,
            Some(times) => {
                *times -= 1;
                false
            }
        });
    } else {
        let mut known: BTreeSet<&str> = items.iter().copied().collect();
        items.extend(value.split(',').filter(|item| known.insert(item)));
    }
    Ok(Some(items.join(",")))
}
