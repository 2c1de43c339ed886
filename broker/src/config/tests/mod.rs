//! Scenarios that take several of this room's files.
//!
//! Holds: what is common to them. Never touches: anything outside this room.

mod describe;
mod dynamic;
mod listeners;
mod load;
mod topic;

use std::collections::BTreeMap;

use super::cli::ServeArgs;
use super::load::{Loaded, load};
use super::problem::Problems;
use super::{BrokerConfig, ConfigMap, Host};

/// A machine with four cores.
pub fn host() -> Host {
    Host { name: "box.example".to_owned(), cores: vec![0, 1, 2, 3], memory_bytes: None }
}

/// Loads these properties, given with `--set`.
pub fn load_set(properties: &[(&str, &str)]) -> Result<Loaded, Problems> {
    let set = properties.iter().map(|(name, value)| format!("{name}={value}")).collect();
    load(&ServeArgs { set, ..ServeArgs::default() }, [], host())
}

/// The configuration that these properties make.
pub fn config(properties: &[(&str, &str)]) -> BrokerConfig {
    match load_set(properties) {
        Ok(loaded) => loaded.config,
        Err(problems) => panic!("{problems}"),
    }
}

/// Why these properties make none.
pub fn refusal(properties: &[(&str, &str)]) -> String {
    match load_set(properties) {
        Ok(loaded) => panic!("accepted: {:?}", loaded.config),
        Err(problems) => problems.to_string(),
    }
}

/// Properties by name.
pub fn map(properties: &[(&str, &str)]) -> ConfigMap {
    properties.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect::<BTreeMap<_, _>>()
}
