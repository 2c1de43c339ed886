//! The tables of all properties.
//!
//! Holds: one row per property, in files by subject, and the two sorted tables that are made of them once.
//! Names, types, defaults and rules are those of Apache Kafka 4.2; where Corelog differs by intent, `DEVIATIONS` says so.
//! Never touches: values that someone set.

mod groups;
mod log;
mod node;
mod own;
mod quota;
mod remote;
mod security;
mod server;
mod topic;

use std::sync::LazyLock;

use super::definition::{Definition, Effect, Importance, Scope};
use super::value::{ConfigType, Validator};

#[expect(clippy::too_many_arguments, reason = "a row of a table: its columns, in order")]
const fn row(
    name: &'static str,
    kind: ConfigType,
    default: Option<&'static str>,
    validator: Validator,
    importance: Importance,
    scope: Scope,
    effect: Effect,
    doc: &'static str,
) -> Definition {
    Definition { name, kind, default, validator, importance, scope, effect, internal: false, doc }
}

impl Definition {
    const fn internal(mut self) -> Self {
        self.internal = true;
        self
    }
}

/// Where a default is not Kafka's, and why. Listed in `docs/configuration.md` too.
pub const DEVIATIONS: &[(&str, &str)] = &[
    ("controller.listener.names", "the controller is in the broker"),
    ("flush.messages", "an acknowledged record is on stable storage"),
    ("listeners", "only this machine can connect until you say otherwise"),
    ("log.dir", "a folder beside you, not in /tmp"),
    ("log.flush.interval.messages", "an acknowledged record is on stable storage"),
    ("metric.reporters", "there is no JMX without a JVM"),
    ("node.id", "Kafka has no default"),
    ("process.roles", "Kafka has no default"),
    ("socket.receive.buffer.bytes", "the system adapts the buffer to the connection"),
    ("socket.send.buffer.bytes", "the system adapts the buffer to the connection"),
];

static BROKER: LazyLock<Vec<Definition>> = LazyLock::new(|| {
    sorted(&[groups::ROWS, log::ROWS, node::ROWS, own::ROWS, remote::ROWS, security::ROWS, server::ROWS])
});

static TOPIC: LazyLock<Vec<Definition>> = LazyLock::new(|| sorted(&[topic::ROWS]));

static DYNAMIC_ONLY: LazyLock<Vec<Definition>> = LazyLock::new(|| sorted(&[quota::ROWS]));

fn sorted(parts: &[&[Definition]]) -> Vec<Definition> {
    let mut all = parts.concat();
    all.sort_by_key(|row| row.name);
    for [a, b] in all.array_windows() {
        assert!(a.name < b.name, "the property {} stands in the tables twice", a.name);
    }
    all
}

/// Every property of a broker, by name.
pub fn broker() -> &'static [Definition] {
    &BROKER
}

/// Every property of a topic, by name.
pub fn topic() -> &'static [Definition] {
    &TOPIC
}

/// The broker properties that can only be set while the broker runs, by name.
pub fn dynamic_only() -> &'static [Definition] {
    &DYNAMIC_ONLY
}
