//! What a property is: its name, type, default, rules, and whether Corelog acts on it.
//!
//! Holds: the shape of a row of the tables in `table/`, and looking rows up.
//! Never touches: values that someone set.

use super::table;
use super::value::{self, ConfigType, Validator, Value, ValueError};

/// How much an operator should care, as Kafka's documentation ranks its properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Importance {
    /// Decide on this one.
    High,
    /// Worth knowing.
    Medium,
    /// For special cases.
    Low,
}

/// Whether and where a broker property can be changed while the broker runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Only in the file, the environment or on the command line.
    ReadOnly,
    /// For one broker at a time (`--entity-type brokers --entity-name ID`).
    PerBroker,
    /// For one broker or for all (`--entity-default`).
    ClusterWide,
    /// A topic's property: changed per topic, at any time.
    Topic,
}

/// What Corelog does with a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It obeys it.
    Acts,
    /// It accepts, checks and lists it, so that a Kafka cluster's files and tools work, and does nothing else with it.
    Listed,
}

/// One property.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Definition {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: ConfigType,
    /// The text of its default; `None` is null: "not set", where something else then decides.
    pub default: Option<&'static str>,
    /// What a value may be.
    pub validator: Validator,
    /// How much it matters.
    pub importance: Importance,
    /// Where it can be changed.
    pub scope: Scope,
    /// What Corelog does with it.
    pub effect: Effect,
    /// Kafka's internal properties are accepted, and shown only when they were set.
    pub internal: bool,
    /// One or two sentences of what it is for.
    pub doc: &'static str,
}

impl Definition {
    /// Whether its value must never be shown.
    #[must_use]
    pub const fn is_sensitive(&self) -> bool {
        matches!(self.kind, ConfigType::Password)
    }

    /// Reads and checks a value of this property.
    ///
    /// # Errors
    /// [`ValueError`] with Kafka's message.
    pub fn parse(&self, text: &str) -> Result<Value, ValueError> {
        value::parse(self.name, text, self.kind, self.validator)
    }
}

/// The broker property of this name.
#[must_use]
pub fn broker_definition(name: &str) -> Option<&'static Definition> {
    find(table::broker(), name)
}

/// The topic property of this name.
#[must_use]
pub fn topic_definition(name: &str) -> Option<&'static Definition> {
    find(table::topic(), name)
}

fn find(sorted: &'static [Definition], name: &str) -> Option<&'static Definition> {
    sorted.binary_search_by(|row| row.name.cmp(name)).ok().and_then(|at| sorted.get(at))
}

/// What a `listener.name.<listener>.[<mechanism>.]<property>` sets, if `name` is one.
///
/// Kafka lets security and connection properties be set for one listener by that prefix.
#[must_use]
pub fn listener_override_base(name: &str) -> Option<&str> {
    let rest = name.strip_prefix("listener.name.")?;
    let (_listener, base) = rest.split_once('.')?;
    // SASL properties have the mechanism between the listener and the name.
    const PER_MECHANISM: [&str; 5] = [
        "sasl.jaas.config",
        "sasl.login.callback.handler.class",
        "sasl.login.class",
        "sasl.server.callback.handler.class",
        "connections.max.reauth.ms",
    ];
    Some(PER_MECHANISM.into_iter().find(|known| base.ends_with(known)).unwrap_or(base))
}

/// The known broker or topic property whose name is closest to `name`, if it is close enough to be a slip of the pen.
#[must_use]
pub fn nearest_name(name: &str, among: &'static [Definition]) -> Option<&'static str> {
    nearest(name, among.iter().map(|row| (row.name, row.name)))
}

/// As [`nearest_name`], for a name that may have been written without the `corelog.` of Corelog's own properties.
#[must_use]
pub fn nearest_own_name(name: &str) -> Option<&'static str> {
    nearest(name, table::broker().iter().filter_map(|row| Some((row.name.strip_prefix("corelog.")?, row.name))))
}

/// Of pairs of what may be written and what it means, the meaning of the one that is closest.
fn nearest(name: &str, among: impl Iterator<Item = (&'static str, &'static str)>) -> Option<&'static str> {
    let slips_max = match name.len() {
        0..=4 => 1,
        5..=11 => 2,
        _ => 3,
    };
    among
        .filter(|(written, _)| written.len().abs_diff(name.len()) <= slips_max)
        .map(|(written, meant)| (edit_distance(name, written), meant))
        .filter(|&(distance, _)| distance <= slips_max)
        .min()
        .map(|(_, nearest)| nearest)
}

/// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
fn edit_distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    let at = |row: &[usize], column: usize| row.get(column).copied().unwrap_or(usize::MAX / 2);
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, to) in b.iter().enumerate() {
            let replaced = at(&last, j) + usize::from(from != to);
            let mut best = replaced.min(at(&last, j + 1) + 1).min(at(&row, j) + 1);
            let swapped = i > 0 && j > 0 && a.get(i - 1) == Some(to) && b.get(j - 1) == Some(from);
            if swapped {
                best = best.min(at(&before_last, j - 1) + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_pen_is_recognised_and_a_stranger_is_not() {
        let nearest = |name| nearest_name(name, table::broker());
        assert_eq!(nearest("log.retention.hour"), Some("log.retention.hours"));
        assert_eq!(nearest("log.retetnion.ms"), Some("log.retention.ms"));
        assert_eq!(nearest("num.partition"), Some("num.partitions"));
        assert_eq!(nearest("com.example.plugin.setting"), None);
    }

    #[test]
    fn edit_distance_counts_a_swap_as_one() {
        assert_eq!(edit_distance("abc", "abc"), 0);
        assert_eq!(edit_distance("abc", "acb"), 1);
        assert_eq!(edit_distance("", "abc"), 3);
        assert_eq!(edit_distance("kitten", "sitting"), 3);
    }

    #[test]
    fn a_listener_override_names_its_base_property() {
        assert_eq!(
            listener_override_base("listener.name.internal.ssl.keystore.location"),
            Some("ssl.keystore.location")
        );
        assert_eq!(
            listener_override_base("listener.name.client.scram-sha-256.sasl.jaas.config"),
            Some("sasl.jaas.config")
        );
        assert_eq!(listener_override_base("listeners"), None);
        assert_eq!(listener_override_base("listener.name.alone"), None);
    }
}
