//! The configuration room: what can be set, where it comes from, and what it comes to.
//!
//! ```text
//!   defaults < server.properties < environment < --set < flags      (load: once, at start)
//!                        |
//!                 StaticProperties   + dynamic, for all brokers   + dynamic, for this broker
//!                        \______________________ Layers _____________________/
//!                                  |                       |
//!                    BrokerConfig (typed, Arc)        describe (value, source, synonyms)
//!                                  |
//!                    TopicConfig = a topic's overrides over the broker's values
//! ```
//!
//! Holds: the tables of properties, the parsers, the merge. Never touches: sockets, logs, other cores. Only `load`
//! reads files, and only when the broker starts.

pub mod broker;
mod build;
pub mod cli;
pub mod core_map;
pub mod definition;
pub mod describe;
pub mod dynamic;
pub mod layers;
pub mod listeners;
pub mod load;
pub mod log_filter;
pub mod origin;
pub mod problem;
pub mod properties;
pub mod synonyms;
mod table;
#[cfg(test)]
pub(crate) mod tests;
pub mod topic;
pub mod value;

use std::collections::BTreeMap;

pub use broker::{BrokerConfig, CleanerConfig, Host, InternalTopic};
pub use core_map::CoreMap;
pub use dynamic::DynamicConfigError;
pub use listeners::{Listener, SecurityProtocol};
pub use topic::{
    CleanupPolicy, Durability, TimestampType, TopicCompression, TopicConfig, TopicConfigError, TopicValues,
};

/// Properties that were set, by name: the form in which overrides and dynamic configurations are stored.
pub type ConfigMap = BTreeMap<String, String>;
