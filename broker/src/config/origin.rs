//! Where a start-up value came from.
//!
//! Holds: the origins and the values themselves. Never touches: what the values mean.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// Where a value was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In the configuration file.
    File {
        /// Which file.
        path: PathBuf,
        /// The line that the property starts on.
        line: usize,
    },
    /// In the environment.
    Environment {
        /// The variable.
        variable: String,
    },
    /// With `--set name=value`.
    Set,
    /// With a flag of its own.
    Flag {
        /// The flag, as `--listen`.
        flag: &'static str,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Environment { variable } => write!(f, "environment variable {variable}"),
            Self::Set => f.write_str("--set"),
            Self::Flag { flag } => f.write_str(flag),
        }
    }
}

/// A value as it was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticProperty {
    /// The text.
    pub value: String,
    /// Where.
    pub origin: Origin,
}

/// Everything that was set at start, by name; a later source has replaced an earlier one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StaticProperties {
    entries: BTreeMap<String, StaticProperty>,
}

impl StaticProperties {
    /// Sets a property; replaces what an earlier source said.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>, origin: Origin) {
        let value = value.into();
        self.entries.insert(name.into(), StaticProperty { value, origin });
    }

    /// The text of a property, if it was set.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.entries.get(name).map(|p| p.value.as_str())
    }

    /// Where a property was set.
    #[must_use]
    pub fn origin(&self, name: &str) -> Option<&Origin> {
        self.entries.get(name).map(|p| &p.origin)
    }

    /// Whether a property was set.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    /// Everything that was set, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &StaticProperty)> {
        self.entries.iter().map(|(name, p)| (name.as_str(), p))
    }
}
