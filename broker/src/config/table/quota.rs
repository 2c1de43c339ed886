//! Broker properties that can only be set while the broker runs.
//!
//! Holds: Kafka's three replication quotas. They are not in `server.properties`, and DescribeConfigs does not list them. Never touches: code.

use crate::config::definition::Definition;
use crate::config::definition::Effect::Listed;
use crate::config::definition::Importance::Medium;
use crate::config::definition::Scope::ClusterWide;
use crate::config::value::ConfigType::Long;
use crate::config::value::Validator::AtLeast;

use super::row;

/// The rows, one property a line.
#[rustfmt::skip]
pub(super) const ROWS: &[Definition] = &[
    row("follower.replication.throttled.rate", Long, Some("9223372036854775807"), AtLeast(0), Medium, ClusterWide, Listed, "Bytes a second that replicas may be read at by this broker, for the partitions that a topic names. Set while the broker runs."),
    row("leader.replication.throttled.rate", Long, Some("9223372036854775807"), AtLeast(0), Medium, ClusterWide, Listed, "Bytes a second that this broker may send to replicas, for the partitions that a topic names. Set while the broker runs."),
    row("replica.alter.log.dirs.io.max.bytes.per.second", Long, Some("9223372036854775807"), AtLeast(0), Medium, ClusterWide, Listed, "Bytes a second at which replicas move between data folders. Set while the broker runs."),
];
