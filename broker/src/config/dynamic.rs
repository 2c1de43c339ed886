//! What may be set for a broker, or for all brokers, while they run.
//!
//! Holds: the checks of AlterConfigs on broker resources, with Kafka's messages.
//! Never touches: where dynamic configurations are stored (`controller`).

use thiserror::Error;

use super::definition::{Definition, Scope, broker_definition, listener_override_base};
use super::table;
use super::value::ValueError;
use super::{BrokerConfig, ConfigMap};

/// Why a broker's dynamic configuration was refused. Shown, it reads as Kafka's own message.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DynamicConfigError {
    /// Properties that only a restart changes.
    #[error("Cannot update these configs dynamically: Set({names})")]
    NotDynamic {
        /// Their names.
        names: String,
    },
    /// Security properties without the prefix of a listener.
    #[error(
        "These security configs can be dynamically updated only per-listener using the listener prefix: HashSet({names})"
    )]
    OnlyPerListener {
        /// Their names.
        names: String,
    },
    /// Properties that one broker at a time has.
    #[error("Cannot update these configs at default cluster level, broker id must be specified: Set({names})")]
    OnlyPerBroker {
        /// Their names.
        names: String,
    },
    /// One value is wrong.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// The whole does not make a working configuration.
    #[error("{0}")]
    Whole(String),
}

/// The row of a property that can be set while the broker runs, with or without the prefix of a listener.
#[must_use]
pub fn dynamic_definition(name: &str) -> Option<&'static Definition> {
    let base = listener_override_base(name).unwrap_or(name);
    let quota = table::dynamic_only().iter().find(|row| row.name == base);
    let row = quota.or_else(|| broker_definition(base))?;
    (row.scope != Scope::ReadOnly).then_some(row)
}

/// Checks the whole dynamic configuration that a resource would have.
///
/// `per_broker`: it is one broker's, not all brokers'. `config` is this broker's configuration as it is now. Names that
/// nobody knows pass, as in Kafka: a plugin may know them.
///
/// # Errors
/// [`DynamicConfigError`], the first one found.
pub fn check_dynamic(proposed: &ConfigMap, per_broker: bool, config: &BrokerConfig) -> Result<(), DynamicConfigError> {
    let names_where = |wrong: fn(&str) -> bool| {
        let names: Vec<&str> = proposed.keys().map(String::as_str).filter(|n| wrong(n)).collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    let fixed = |name: &str| broker_definition(name).is_some_and(|row| row.scope == Scope::ReadOnly);
    if let Some(names) = names_where(fixed) {
        return Err(DynamicConfigError::NotDynamic { names });
    }
    if let Some(names) = names_where(is_bare_tls) {
        return Err(DynamicConfigError::OnlyPerListener { names });
    }
    for (name, text) in proposed {
        if let Some(row) = dynamic_definition(name) {
            row.parse(text)?;
        }
    }
    if !per_broker && let Some(names) = names_where(is_per_broker) {
        return Err(DynamicConfigError::OnlyPerBroker { names });
    }
    config.would_be(proposed, per_broker).map_err(|problems| DynamicConfigError::Whole(problems.to_string()))?;
    Ok(())
}

/// The key and trust stores, which Kafka reloads: dynamic, but only with a listener's prefix.
fn is_bare_tls(name: &str) -> bool {
    name == "ssl.key.password" || name.starts_with("ssl.keystore.") || name.starts_with("ssl.truststore.")
}

fn is_per_broker(name: &str) -> bool {
    match listener_override_base(name) {
        Some(base) => !matches!(base, "max.connections" | "max.connection.creation.rate" | "num.network.threads"),
        None => broker_definition(name).is_some_and(|row| row.scope == Scope::PerBroker),
    }
}
