//! The configuration of this broker as its shards use it.
//!
//! Holds: `BrokerConfig`, typed, immutable, shared by all cores behind an `Arc`.
//! Never touches: files, the environment, the command line (`load`).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use corelog_storage::log::CommitLogUse;

use super::ConfigMap;
use super::core_map::CoreMap;
use super::layers::Layers;
use super::listeners::Listener;
use super::topic::{TopicConfig, TopicValues};

/// Facts about this machine that defaults depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// The name others can reach this machine by; advertised where a listener names no host.
    pub name: String,
    /// The cores this process may run on.
    pub cores: Vec<usize>,
    /// The memory that this process may have, the machine's or its control group's; `None`: it isn't known.
    pub memory_bytes: Option<u64>,
}

impl Host {
    /// What this machine says of itself. Called once, before the configuration is loaded.
    #[must_use]
    pub fn of_this_machine() -> Self {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let name = if name.trim().is_empty() { "localhost" } else { name.trim() };
        Self {
            name: name.to_owned(),
            cores: corelog_reactor::available_cores().into_iter().map(|core| core.0).collect(),
            memory_bytes: corelog_tune::host::memory_bytes(Path::new("/")),
        }
    }
}

/// How one of the broker's own topics is created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InternalTopic {
    /// How many partitions it gets.
    pub partitions: i32,
    /// How many replicas are wanted; clamped to the brokers there are when it is created.
    pub replication_factor: i16,
    /// The overrides it is created with.
    pub configs: ConfigMap,
}

/// How this broker compacts; `log.cleaner.*`.
#[derive(Clone, Debug, PartialEq)]
pub struct CleanerConfig {
    /// `log.cleaner.enable`
    pub is_enabled: bool,
    /// `log.cleaner.backoff.ms`: the pause when nothing is to be compacted.
    pub backoff: Duration,
    /// `log.cleaner.dedupe.buffer.size`: memory for keys, of all cores.
    pub map_bytes_max: u64,
    /// `log.cleaner.io.buffer.load.factor`
    pub map_load_factor: f64,
    /// `corelog.log.cleaner.io.min.bytes.per.second`, of all cores.
    pub bytes_per_second_min: f64,
    /// `log.cleaner.io.max.bytes.per.second`, of all cores.
    pub bytes_per_second_max: f64,
}

/// The effective configuration of this broker.
#[derive(Clone, Debug)]
pub struct BrokerConfig {
    /// `node.id`, or `broker.id` where only that is set.
    pub node_id: i32,
    /// `broker.rack`
    pub rack: Option<String>,
    /// `log.dirs`, or `log.dir`: the first data folder, which has the metadata.
    pub data_dir: PathBuf,
    /// The data folders beside it.
    pub more_data_dirs: Vec<PathBuf>,
    /// Where clients connect. At least one.
    pub listeners: Vec<Listener>,
    /// The listener other brokers use (`inter.broker.listener.name`, or the first with the inter-broker protocol).
    pub inter_broker_listener: String,

    /// `corelog.shards`: how many cores serve; each has its share of the partitions.
    pub shards: usize,
    /// The core that each shard is pinned to; as long as `shards`.
    pub cores: Vec<usize>,
    /// `corelog.core.map.file`, read: which shard owns which partition.
    pub core_map: Arc<CoreMap>,
    /// `corelog.memory.bytes.per.core`, or less where it isn't set and the machine has little: the buffer pool of a core.
    pub memory_bytes_per_core: u64,
    /// `corelog.tail.cache.bytes.per.core`, or half of the memory per core: how much of it keeps records that were written lately.
    pub tail_cache_bytes_per_core: u64,
    /// `corelog.prewrite.bytes`: how much pre-written space a data folder may hold.
    pub prewrite_bytes_per_data_dir: u64,
    /// `corelog.commit.log`: when small commits go through a core's commit log.
    pub commit_log: CommitLogUse,
    /// `corelog.commit.log.bytes`: the space of a core's commit log in a data folder.
    pub commit_log_bytes: u64,
    /// `corelog.connections.per.core.max`
    pub connections_per_core_max: usize,

    /// `max.connections`
    pub connections_max: usize,
    /// `max.connections.per.ip`
    pub connections_per_ip_max: usize,
    /// `max.connections.per.ip.overrides`
    pub connections_per_ip_overrides: BTreeMap<IpAddr, usize>,
    /// `connections.max.idle.ms`; `None`: idle connections stay open.
    pub connection_idle_max: Option<Duration>,
    /// `corelog.connection.progress.timeout.ms`: how long a begun request or answer may stand still.
    pub connection_progress_timeout: Duration,
    /// `queued.max.request.bytes`, all cores together; `None`: a part of the memory is the only bound.
    pub queued_request_bytes_max: Option<u64>,
    /// `socket.listen.backlog.size`
    pub listen_backlog: u32,
    /// `socket.send.buffer.bytes`; `None`: the system's default.
    pub socket_send_buffer_bytes: Option<u32>,
    /// `socket.receive.buffer.bytes`; `None`: the system's default.
    pub socket_receive_buffer_bytes: Option<u32>,
    /// `socket.request.max.bytes`: the largest request frame.
    pub request_bytes_max: u32,

    /// `fetch.max.bytes`: the most bytes of records in one fetch response.
    pub fetch_bytes_max: u32,
    /// `corelog.fetch.check.crc`: whether consumers' reads from the disk are checked.
    pub fetch_checks_crc: bool,
    /// `corelog.fetch.splice.bytes.min`: from how many bytes on a read of a sealed segment is sent without a copy.
    pub fetch_splice_bytes_min: usize,
    /// `max.incremental.fetch.session.cache.slots`
    pub fetch_sessions_max: usize,
    /// `max.request.partition.size.limit`
    pub described_partitions_max: i32,
    /// `replica.lag.time.max.ms`
    pub replica_lag_max: Duration,
    /// `request.timeout.ms`
    pub request_timeout: Duration,

    /// `auto.create.topics.enable`
    pub auto_create_topics: bool,
    /// `delete.topic.enable`
    pub topic_deletion: bool,
    /// `num.partitions`: of a topic created without a number.
    pub partitions_default: i32,
    /// `default.replication.factor`: of a topic created without one.
    pub replication_factor_default: i16,
    /// `offsets.topic.*`
    pub offsets_topic: InternalTopic,
    /// `transaction.state.log.*`
    pub transaction_topic: InternalTopic,
    /// `share.coordinator.state.topic.*`
    pub share_state_topic: InternalTopic,

    /// `log.retention.check.interval.ms`
    pub retention_check_interval: Duration,
    /// `log.initial.task.delay.ms`
    pub initial_task_delay: Duration,
    /// `log.flush.offset.checkpoint.interval.ms`
    pub recovery_checkpoint_interval: Duration,
    /// `log.flush.start.offset.checkpoint.interval.ms`
    pub log_start_checkpoint_interval: Duration,
    /// `replica.high.watermark.checkpoint.interval.ms`
    pub high_watermark_checkpoint_interval: Duration,
    /// `producer.id.expiration.ms`
    pub producer_id_expiration: Duration,
    /// `producer.id.expiration.check.interval.ms`
    pub producer_id_check_interval: Duration,
    /// `transaction.max.timeout.ms`
    pub transaction_timeout_max: Duration,
    /// `transaction.partition.verification.enable`
    pub transaction_verification: bool,

    /// `metadata.log.max.record.bytes.between.snapshots`
    pub metadata_snapshot_bytes: u64,
    /// `metadata.log.max.snapshot.interval.ms`; `None`: size alone decides.
    pub metadata_snapshot_interval: Option<Duration>,

    /// `log.cleaner.*`
    pub cleaner: CleanerConfig,
    /// What a topic without overrides has.
    pub topic_defaults: TopicConfig,
    pub(super) host: Host,
    pub(super) topic_values: TopicValues,
    pub(super) layers: Layers,
}

impl BrokerConfig {
    /// The effective configuration of a topic with these stored overrides.
    #[must_use]
    pub fn topic_config(&self, topic: &str, overrides: &ConfigMap) -> TopicConfig {
        if overrides.is_empty() {
            return self.topic_defaults.clone();
        }
        self.topic_values.with_stored_overrides(topic, overrides).topic_config()
    }

    /// What a topic without overrides has, for checking the overrides of a new one.
    #[must_use]
    pub fn topic_values(&self) -> &TopicValues {
        &self.topic_values
    }

    /// Where each value came from, for DescribeConfigs.
    #[must_use]
    pub fn layers(&self) -> &Layers {
        &self.layers
    }
}
