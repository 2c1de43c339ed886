//! Connections, requests, quotas, metrics: properties of the server around the logs.
//!
//! Holds: their rows, in Kafka's names. Never touches: code.

use crate::config::definition::Definition;
use crate::config::definition::Effect::{Acts, Listed};
use crate::config::definition::Importance::{High, Low, Medium};
use crate::config::definition::Scope::{ClusterWide, PerBroker, ReadOnly};
use crate::config::value::ConfigType::{Boolean, Class, Int, List, Long, String};
use crate::config::value::Validator::{Any, AtLeast, ListOf};

use super::row;

/// The rows, one property a line.
#[rustfmt::skip]
pub(super) const ROWS: &[Definition] = &[
    row("advertised.listeners", List, None, ListOf { allowed: &[], empty_allowed: false }, High, ReadOnly, Acts, "What clients and other brokers are told to connect to, where that differs from `listeners`: NAME://host:port, separated by commas."),
    row("alter.config.policy.class.name", Class, None, Any, Low, ReadOnly, Listed, "A class that may refuse changes of configurations. Needs a JVM."),
    row("auto.create.topics.enable", Boolean, Some("true"), Any, High, ReadOnly, Acts, "Whether a topic that a client asks for comes into being."),
    row("background.threads", Int, Some("10"), AtLeast(1), High, ClusterWide, Listed, "Threads for work in the background. Corelog does that on its cores."),
    row("client.quota.callback.class", Class, None, Any, Low, ReadOnly, Listed, "A class that decides clients' quotas. Needs a JVM."),
    row("config.providers", List, Some(""), ListOf { allowed: &[], empty_allowed: true }, Low, ClusterWide, Listed, "Names of classes that fetch values from outside. Need a JVM."),
    row("connections.max.idle.ms", Long, Some("600000"), Any, Medium, ReadOnly, Acts, "A connection that is silent for this long is closed. Negative: never."),
    row("controlled.shutdown.enable", Boolean, Some("true"), Any, Medium, ReadOnly, Listed, "Whether a stopping broker first hands over what it leads."),
    row("create.topic.policy.class.name", Class, None, Any, Low, ReadOnly, Listed, "A class that may refuse new topics. Needs a JVM."),
    row("default.replication.factor", Int, Some("1"), Any, Medium, ReadOnly, Acts, "How many replicas a topic gets that is created without a number."),
    row("delete.topic.enable", Boolean, Some("true"), Any, High, ReadOnly, Acts, "Whether topics can be deleted at all."),
    row("early.start.listeners", List, None, ListOf { allowed: &[], empty_allowed: true }, High, ReadOnly, Listed, "Listeners that open before the broker knows who may do what."),
    row("fetch.max.bytes", Int, Some("57671680"), AtLeast(1024), Medium, ReadOnly, Acts, "The most bytes of records in one answer to a fetch."),
    row("inter.broker.listener.name", String, None, Any, Medium, ReadOnly, Acts, "The listener that brokers use among themselves."),
    row("kafka.metrics.polling.interval.secs", Int, Some("10"), AtLeast(1), Low, ReadOnly, Listed, "How often the reporters of `kafka.metrics.reporters` are asked to report."),
    row("kafka.metrics.reporters", List, Some(""), ListOf { allowed: &[], empty_allowed: true }, Low, ReadOnly, Listed, "Classes that report Kafka's own metrics. Need a JVM."),
    row("listener.security.protocol.map", String, Some("SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"), Any, Low, PerBroker, Acts, "Which security protocol each listener speaks: NAME:PROTOCOL, separated by commas. Corelog speaks PLAINTEXT so far."),
    row("listeners", List, Some("PLAINTEXT://127.0.0.1:9092"), ListOf { allowed: &[], empty_allowed: false }, High, PerBroker, Acts, "Where the broker listens: NAME://host:port, separated by commas. No host: every interface."),
    row("max.connection.creation.rate", Int, Some("2147483647"), AtLeast(0), Medium, ClusterWide, Listed, "How many connections a second the broker accepts."),
    row("max.connections", Int, Some("2147483647"), AtLeast(0), Medium, ClusterWide, Acts, "How many connections the broker holds open."),
    row("max.connections.per.ip", Int, Some("2147483647"), AtLeast(0), Medium, ClusterWide, Acts, "How many connections the broker holds open from one address."),
    row("max.connections.per.ip.overrides", String, Some(""), Any, Medium, ClusterWide, Acts, "Other limits for single addresses: address:number, separated by commas."),
    row("max.incremental.fetch.session.cache.slots", Int, Some("1000"), AtLeast(0), Medium, ReadOnly, Acts, "How many incremental fetch sessions the broker remembers."),
    row("max.request.partition.size.limit", Int, Some("2000"), AtLeast(1), Medium, ReadOnly, Acts, "How many partitions one answer to DescribeTopicPartitions holds."),
    row("metric.reporters", List, Some(""), ListOf { allowed: &[], empty_allowed: true }, Low, ClusterWide, Listed, "Classes that report metrics. Need a JVM."),
    row("metrics.num.samples", Int, Some("2"), AtLeast(1), Low, ReadOnly, Listed, "How many samples a metric is computed from."),
    row("metrics.recording.level", String, Some("INFO"), Any, Low, ReadOnly, Listed, "How detailed metrics are."),
    row("metrics.sample.window.ms", Long, Some("30000"), AtLeast(1), Low, ReadOnly, Listed, "How long one of those samples is."),
    row("num.io.threads", Int, Some("8"), AtLeast(1), High, ClusterWide, Listed, "Threads that handle requests. Corelog has one per core: see `corelog.shards`."),
    row("num.network.threads", Int, Some("3"), AtLeast(1), High, ClusterWide, Listed, "Threads that read and write connections. Corelog has one per core: see `corelog.shards`."),
    row("num.partitions", Int, Some("1"), AtLeast(1), Medium, ReadOnly, Acts, "How many partitions a topic gets that is created without a number."),
    row("queued.max.request.bytes", Long, Some("-1"), Any, Medium, ReadOnly, Acts, "How many bytes of requests the broker holds before it reads no more. Each core gets its share, and holds no more than a quarter of its memory in any case; one request at a time may grow beyond that."),
    row("queued.max.requests", Int, Some("500"), AtLeast(1), High, ReadOnly, Listed, "How many requests may wait before the network threads stop reading."),
    row("quota.window.num", Int, Some("11"), AtLeast(1), Low, ReadOnly, Listed, "How many samples are kept to measure clients against quotas."),
    row("quota.window.size.seconds", Int, Some("1"), AtLeast(1), Low, ReadOnly, Listed, "How long one of those samples is."),
    row("request.timeout.ms", Int, Some("30000"), Any, High, ReadOnly, Listed, "How long the broker waits for an answer to a request of its own."),
    row("socket.connection.setup.timeout.max.ms", Long, Some("30000"), Any, Medium, ReadOnly, Listed, "The longest that connecting to another node may take."),
    row("socket.connection.setup.timeout.ms", Long, Some("10000"), Any, Medium, ReadOnly, Listed, "How long the first try of connecting to another node may take."),
    row("socket.listen.backlog.size", Int, Some("50"), AtLeast(1), Medium, ReadOnly, Acts, "How many connections may wait to be accepted."),
    row("socket.receive.buffer.bytes", Int, Some("-1"), Any, High, ReadOnly, Acts, "The receive buffer of a connection. -1: the system chooses, and adapts it to the connection."),
    row("socket.request.max.bytes", Int, Some("104857600"), AtLeast(1), High, ReadOnly, Acts, "The largest request."),
    row("socket.send.buffer.bytes", Int, Some("-1"), Any, High, ReadOnly, Acts, "The send buffer of a connection. -1: the system chooses, and adapts it to the connection."),
    row("telemetry.max.bytes", Int, Some("1048576"), AtLeast(1), Low, ReadOnly, Listed, "The largest batch of metrics that a client may push."),
    row("unstable.api.versions.enable", Boolean, Some("false"), Any, High, ReadOnly, Listed, "Whether versions of APIs under development are offered.").internal(),
    row("unstable.feature.versions.enable", Boolean, Some("false"), Any, High, ReadOnly, Listed, "Whether levels of features under development are offered.").internal(),
];
