//! The node and its controller: identity, roles, metadata quorum.
//!
//! Holds: their rows, in Kafka's names. Never touches: code.

use crate::config::definition::Definition;
use crate::config::definition::Effect::{Acts, Listed};
use crate::config::definition::Importance::{High, Low, Medium};
use crate::config::definition::Scope::ReadOnly;
use crate::config::value::ConfigType::{Boolean, Int, List, Long, String};
use crate::config::value::Validator::{Any, AtLeast, ListOf};

use super::row;

/// The rows, one property a line.
#[rustfmt::skip]
pub(super) const ROWS: &[Definition] = &[
    row("broker.heartbeat.interval.ms", Int, Some("2000"), Any, Medium, ReadOnly, Listed, "How often a broker tells the controller that it lives."),
    row("broker.id", Int, Some("-1"), Any, High, ReadOnly, Acts, "An older name of `node.id`. If both are set they must be equal."),
    row("broker.rack", String, None, Any, Medium, ReadOnly, Acts, "The rack or zone this broker stands in: replicas are spread over racks, and consumers may fetch from their own."),
    row("broker.session.timeout.ms", Int, Some("9000"), Any, Medium, ReadOnly, Listed, "How long a broker may be silent before the controller fences it."),
    row("controller.listener.names", List, Some("CONTROLLER"), ListOf { allowed: &[], empty_allowed: false }, High, ReadOnly, Acts, "The listeners of the controller. Corelog's controller is in the broker, and they are not opened."),
    row("controller.performance.always.log.threshold.ms", Long, Some("2000"), AtLeast(0), Medium, ReadOnly, Listed, "Events of the controller that take longer are logged.").internal(),
    row("controller.performance.sample.period.ms", Long, Some("60000"), AtLeast(100), Medium, ReadOnly, Listed, "How often the slowest events of the controller are logged.").internal(),
    row("controller.quorum.append.linger.ms", Int, Some("25"), AtLeast(0), Medium, ReadOnly, Listed, "How long a leader of the metadata quorum collects records for one write."),
    row("controller.quorum.auto.join.enable", Boolean, Some("false"), Any, Low, ReadOnly, Listed, "Whether a new controller joins the voters by itself."),
    row("controller.quorum.bootstrap.servers", List, Some(""), Any, High, ReadOnly, Listed, "Controllers to ask for the metadata quorum: host:port, separated by commas."),
    row("controller.quorum.election.backoff.max.ms", Int, Some("1000"), AtLeast(0), High, ReadOnly, Listed, "The longest pause between two elections of the metadata quorum."),
    row("controller.quorum.election.timeout.ms", Int, Some("1000"), AtLeast(0), High, ReadOnly, Listed, "How long an election of the metadata quorum may take."),
    row("controller.quorum.fetch.timeout.ms", Int, Some("2000"), AtLeast(0), High, ReadOnly, Listed, "How long a voter waits for the leader of the metadata quorum before it stands for election."),
    row("controller.quorum.request.timeout.ms", Int, Some("2000"), AtLeast(0), Medium, ReadOnly, Listed, "How long a request in the metadata quorum may take."),
    row("controller.quorum.retry.backoff.ms", Int, Some("20"), AtLeast(0), Low, ReadOnly, Listed, "The pause before a request in the metadata quorum is repeated."),
    row("controller.quorum.voters", List, Some(""), Any, High, ReadOnly, Listed, "The fixed voters of the metadata quorum: id@host:port, separated by commas."),
    row("controller.quota.window.num", Int, Some("11"), AtLeast(1), Low, ReadOnly, Listed, "How many samples are kept to measure changes of topics against quotas."),
    row("controller.quota.window.size.seconds", Int, Some("1"), AtLeast(1), Low, ReadOnly, Listed, "How long one of those samples is."),
    row("controller.socket.timeout.ms", Int, Some("30000"), Any, Medium, ReadOnly, Listed, "How long the controller waits for a broker's answer."),
    row("initial.broker.registration.timeout.ms", Int, Some("60000"), Any, Medium, ReadOnly, Listed, "How long a starting broker tries to register before it gives up."),
    row("internal.metadata.delete.delay.millis", Long, Some("60000"), Any, Low, ReadOnly, Listed, "How long a deleted file of the metadata log is kept.").internal(),
    row("internal.metadata.log.segment.bytes", Int, None, Any, Low, ReadOnly, Listed, "The size of a segment of the metadata log, for tests.").internal(),
    row("internal.metadata.max.batch.size.in.bytes", Int, Some("8388608"), Any, Low, ReadOnly, Listed, "The largest batch of the metadata log.").internal(),
    row("internal.metadata.max.fetch.size.in.bytes", Int, Some("8388608"), Any, Low, ReadOnly, Listed, "The largest fetch from the metadata log.").internal(),
    row("metadata.log.dir", String, None, Any, High, ReadOnly, Listed, "Another folder for the metadata log. Corelog keeps it in the first data folder."),
    row("metadata.log.max.record.bytes.between.snapshots", Long, Some("20971520"), AtLeast(1), High, ReadOnly, Acts, "How many bytes of metadata records are written before a snapshot takes their place."),
    row("metadata.log.max.snapshot.interval.ms", Long, Some("3600000"), AtLeast(0), High, ReadOnly, Listed, "How long at most until a snapshot takes the place of new metadata records. 0: size alone decides."),
    row("metadata.log.segment.bytes", Int, Some("1073741824"), AtLeast(8_388_608), High, ReadOnly, Listed, "The size at which a segment of the metadata log is closed."),
    row("metadata.log.segment.ms", Long, Some("604800000"), Any, High, ReadOnly, Listed, "The age at which a segment of the metadata log is closed."),
    row("metadata.max.idle.interval.ms", Int, Some("500"), AtLeast(0), Low, ReadOnly, Listed, "How often an idle controller writes an empty record."),
    row("metadata.max.retention.bytes", Long, Some("104857600"), Any, High, ReadOnly, Listed, "How many bytes of old metadata records and snapshots are kept."),
    row("metadata.max.retention.ms", Long, Some("604800000"), Any, High, ReadOnly, Listed, "How long old metadata records and snapshots are kept."),
    row("node.id", Int, Some("1"), AtLeast(0), High, ReadOnly, Acts, "This node's number in the cluster. Corelog's default is 1."),
    row("process.roles", List, Some("broker,controller"), ListOf { allowed: &["broker", "controller"], empty_allowed: false }, High, ReadOnly, Acts, "What this node is. Corelog is broker and controller in one."),
    row("server.max.startup.time.ms", Long, Some("9223372036854775807"), AtLeast(0), Medium, ReadOnly, Listed, "How long starting may take before the broker gives up.").internal(),
];
