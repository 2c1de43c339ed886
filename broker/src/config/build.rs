//! From layers of texts to the typed configuration of the broker.
//!
//! Holds: reading every property that Corelog acts on, and the rules that tie several together.
//! Never touches: files, the environment (`load` has read them).

mod memory;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use corelog_storage::log::CommitLogUse;
use tracing::warn;

use super::ConfigMap;
use super::broker::{BrokerConfig, CleanerConfig, Host, InternalTopic};
use super::core_map::CoreMap;
use super::definition::broker_definition;
use super::dynamic::dynamic_definition;
use super::layers::Layers;
use super::listeners::{self, ListenerTexts, Listeners, SecurityProtocol};
use super::problem::{OriginOrDefault, Problem, Problems};
use super::value::Value;

/// What the broker's configuration is made of.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    pub layers: Layers,
    pub host: Host,
    /// The core map, read for this number of shards.
    pub core_map: Arc<CoreMap>,
}

impl BrokerConfig {
    /// The same broker with other dynamic configurations: `cluster` for all brokers, `broker` for this one.
    ///
    /// # Errors
    /// [`Problems`]: they do not make a working configuration.
    pub fn with_dynamic(&self, cluster: Arc<ConfigMap>, broker: Arc<ConfigMap>) -> Result<Self, Problems> {
        let layers = Layers { fixed: Arc::clone(&self.layers.fixed), cluster, broker };
        build(Parts { layers, host: self.host.clone(), core_map: Arc::clone(&self.core_map) })
    }

    /// The same broker with dynamic configurations that are in the log. They were checked when they were stored; one
    /// that no longer passes is left out with a warning.
    ///
    /// # Errors
    /// [`Problems`]: the rest does not make a working configuration together with what the broker was started with.
    pub fn with_stored_dynamic(&self, cluster: &ConfigMap, broker: &ConfigMap) -> Result<Self, Problems> {
        self.with_dynamic(Arc::new(stored(cluster)), Arc::new(stored(broker)))
    }

    /// What this broker would be if one of its two dynamic configurations were `proposed`.
    pub(super) fn would_be(&self, proposed: &ConfigMap, per_broker: bool) -> Result<Self, Problems> {
        let proposed = Arc::new(proposed.clone());
        if per_broker {
            self.with_dynamic(Arc::clone(&self.layers.cluster), proposed)
        } else {
            self.with_dynamic(proposed, Arc::clone(&self.layers.broker))
        }
    }
}

fn stored(configs: &ConfigMap) -> ConfigMap {
    let passes = |name: &str, text: &str| match dynamic_definition(name) {
        Some(row) => row.parse(text).map(|_| ()).map_err(|e| e.to_string()),
        None if broker_definition(name).is_some() => Err("it cannot be changed while the broker runs".to_owned()),
        None => Ok(()),
    };
    let mut kept = ConfigMap::new();
    for (name, text) in configs {
        match passes(name, text) {
            Ok(()) => {
                kept.insert(name.clone(), text.clone());
            }
            Err(reason) => warn!(name, reason, "a stored dynamic configuration is ignored"),
        }
    }
    kept
}

/// How many shards there will be, for reading the core map before the rest.
pub(super) fn shards(layers: &Layers, host: &Host) -> usize {
    let cores = host.cores.len().max(1);
    match Reader::new(layers).int("corelog.shards") {
        0 => cores,
        shards => usize::try_from(shards).unwrap_or(cores),
    }
}

/// The data folders: the first, and the others.
pub(super) fn data_dirs(layers: &Layers) -> (PathBuf, Vec<PathBuf>) {
    let reader = Reader::new(layers);
    let folders = reader.optional_list("log.dirs").unwrap_or_else(|| reader.list("log.dir"));
    let mut folders = folders.into_iter().map(PathBuf::from);
    // Neither list may be empty.
    let first = folders.next().unwrap_or_else(|| PathBuf::from("data"));
    (first, folders.collect())
}

/// A line break in a path would make two lines of one in the files and messages that name it.
fn check_data_dirs<'a>(reader: &Reader<'_>, folders: impl Iterator<Item = &'a PathBuf>, problems: &mut Vec<Problem>) {
    for folder in folders.filter(|folder| folder.to_string_lossy().contains(char::is_control)) {
        let name = if reader.is_set("log.dirs") { "log.dirs" } else { "log.dir" };
        let reason = format!("`{name}`: the path {folder:?} holds a line break or another control character");
        problems.push(reader.problem(name, reason, "Take a folder without one."));
    }
}

/// Builds the configuration. Every text has passed its own property's checks.
pub(super) fn build(parts: Parts) -> Result<BrokerConfig, Problems> {
    let Parts { layers, host, core_map } = parts;
    let mut problems = Vec::new();
    let reader = Reader::new(&layers);
    let listeners = read_listeners(&reader, &host, &mut problems);
    let cores = read_cores(&reader, &host, &mut problems);
    let (data_dir, more_data_dirs) = data_dirs(&layers);
    check_data_dirs(&reader, [&data_dir].into_iter().chain(&more_data_dirs), &mut problems);
    let memory = memory::read(&reader, &host, shards(&layers, &host), &mut problems);
    let overrides = read_ip_overrides(&reader, &mut problems);
    check_together(&reader, &mut problems);
    let topic_values = match layers.topic_values() {
        Ok(values) => values,
        Err(error) => {
            problems.push(reader.problem("log.retention.ms", error.to_string(), ""));
            return Err(Problems(problems));
        }
    };
    if !problems.is_empty() {
        return Err(Problems(problems));
    }
    let inter_broker_listener =
        inter_broker_listener(&reader, &listeners).map_err(|problem| Problems(vec![problem]))?;
    Ok(BrokerConfig {
        node_id: reader.int("node.id"),
        rack: reader.optional_text("broker.rack"),
        data_dir,
        more_data_dirs,
        listeners: listeners.open,
        inter_broker_listener,
        shards: shards(&layers, &host),
        cores,
        core_map,
        memory_bytes_per_core: memory.per_core,
        tail_cache_bytes_per_core: memory.tail_cache,
        prewrite_bytes_per_data_dir: reader.count("corelog.prewrite.bytes"),
        commit_log: match reader.text("corelog.commit.log").as_str() {
            "always" => CommitLogUse::Always,
            "never" => CommitLogUse::Never,
            // The table allows no fourth.
            _ => CommitLogUse::Auto,
        },
        commit_log_bytes: reader.count("corelog.commit.log.bytes"),
        connections_per_core_max: reader.size("corelog.connections.per.core.max"),
        connections_max: reader.size("max.connections"),
        connections_per_ip_max: reader.size("max.connections.per.ip"),
        connections_per_ip_overrides: overrides,
        connection_idle_max: reader.optional_millis("connections.max.idle.ms"),
        connection_progress_timeout: reader.millis("corelog.connection.progress.timeout.ms"),
        queued_request_bytes_max: u64::try_from(reader.long("queued.max.request.bytes"))
            .ok()
            .filter(|&bytes| bytes > 0),
        listen_backlog: reader.small_count("socket.listen.backlog.size"),
        socket_send_buffer_bytes: reader.optional_count("socket.send.buffer.bytes"),
        socket_receive_buffer_bytes: reader.optional_count("socket.receive.buffer.bytes"),
        request_bytes_max: reader.small_count("socket.request.max.bytes"),
        fetch_bytes_max: reader.small_count("fetch.max.bytes"),
        fetch_checks_crc: reader.boolean("corelog.fetch.check.crc"),
        // -1: never.
        fetch_splice_bytes_min: usize::try_from(reader.long("corelog.fetch.splice.bytes.min")).unwrap_or(usize::MAX),
        fetch_sessions_max: reader.size("max.incremental.fetch.session.cache.slots"),
        described_partitions_max: reader.int("max.request.partition.size.limit"),
        replica_lag_max: reader.millis("replica.lag.time.max.ms"),
        request_timeout: reader.int_millis("request.timeout.ms"),
        auto_create_topics: reader.boolean("auto.create.topics.enable"),
        topic_deletion: reader.boolean("delete.topic.enable"),
        partitions_default: reader.int("num.partitions"),
        replication_factor_default: i16::try_from(reader.int("default.replication.factor")).unwrap_or(i16::MAX),
        offsets_topic: offsets_topic(&reader),
        transaction_topic: transaction_topic(&reader),
        share_state_topic: share_state_topic(&reader),
        retention_check_interval: reader.millis("log.retention.check.interval.ms"),
        initial_task_delay: reader.millis("log.initial.task.delay.ms"),
        recovery_checkpoint_interval: reader.int_millis("log.flush.offset.checkpoint.interval.ms"),
        log_start_checkpoint_interval: reader.int_millis("log.flush.start.offset.checkpoint.interval.ms"),
        high_watermark_checkpoint_interval: reader.millis("replica.high.watermark.checkpoint.interval.ms"),
        producer_id_expiration: reader.int_millis("producer.id.expiration.ms"),
        producer_id_check_interval: reader.int_millis("producer.id.expiration.check.interval.ms"),
        cleaner: CleanerConfig {
            is_enabled: reader.boolean("log.cleaner.enable"),
            backoff: reader.millis("log.cleaner.backoff.ms"),
            map_bytes_max: reader.count("log.cleaner.dedupe.buffer.size"),
            map_load_factor: reader.double("log.cleaner.io.buffer.load.factor"),
            bytes_per_second_min: reader.count("corelog.log.cleaner.io.min.bytes.per.second") as f64,
            bytes_per_second_max: reader.double("log.cleaner.io.max.bytes.per.second"),
        },
        transaction_timeout_max: reader.int_millis("transaction.max.timeout.ms"),
        transaction_verification: reader.boolean("transaction.partition.verification.enable"),
        metadata_snapshot_bytes: reader.count("metadata.log.max.record.bytes.between.snapshots"),
        metadata_snapshot_interval: reader
            .optional_millis("metadata.log.max.snapshot.interval.ms")
            .filter(|interval| !interval.is_zero()),
        topic_defaults: topic_values.topic_config(),
        topic_values,
        host,
        layers,
    })
}

/// The default of the memory per core, if the machine was too small for it.
pub(super) fn memory_cut_short(config: &BrokerConfig) -> Option<u64> {
    let reader = Reader::new(&config.layers);
    let default = reader.count(memory::PER_CORE);
    (!reader.is_set(memory::PER_CORE) && config.memory_bytes_per_core < default).then_some(default)
}

/// The controller's listeners, which are not opened.
pub(super) fn controller_listeners(config: &BrokerConfig) -> Vec<String> {
    let reader = Reader::new(&config.layers);
    read_listeners(&reader, &config.host, &mut Vec::new()).controller
}

fn read_listeners(reader: &Reader<'_>, host: &Host, problems: &mut Vec<Problem>) -> Listeners {
    let advertised = reader.optional_text("advertised.listeners");
    let parsed = listeners::parse(ListenerTexts {
        listeners: &reader.raw("listeners"),
        advertised: advertised.as_deref(),
        protocol_map: &reader.raw("listener.security.protocol.map"),
        protocol_map_is_set: reader.is_set("listener.security.protocol.map"),
        controller_names: &reader.raw("controller.listener.names"),
        host_name: &host.name,
    });
    parsed.unwrap_or_else(|error| {
        problems.push(reader.problem(error.property().name(), error.to_string(), error.example()));
        Listeners::default()
    })
}

fn inter_broker_listener(reader: &Reader<'_>, listeners: &Listeners) -> Result<String, Problem> {
    const NAME: &str = "inter.broker.listener.name";
    const PROTOCOL: &str = "security.inter.broker.protocol";
    if let Some(name) = reader.optional_text(NAME) {
        if reader.is_set(PROTOCOL) {
            let reason = format!("only one of {NAME} and {PROTOCOL} may be set");
            return Err(reader.problem(NAME, reason, "Remove one of them."));
        }
        let name = name.to_uppercase();
        if listeners.open.iter().any(|l| l.name == name) {
            return Ok(name);
        }
        let reason = format!("{NAME} is `{name}`, which is not in listeners");
        return Err(reader.problem(NAME, reason, "Name one of the listeners."));
    }
    let wanted = reader.text(PROTOCOL);
    if SecurityProtocol::from_name(&wanted) != Some(SecurityProtocol::Plaintext) {
        let reason = format!("{PROTOCOL} is {wanted}; Corelog speaks only PLAINTEXT so far");
        return Err(reader.problem(PROTOCOL, reason, "Set it to PLAINTEXT, or leave it out."));
    }
    // Kafka wants a listener named like the protocol; alone, any listener is as good.
    let same_name = listeners.open.iter().find(|l| l.name == "PLAINTEXT");
    let listener = same_name.or_else(|| listeners.open.first());
    Ok(listener.map(|l| l.name.clone()).unwrap_or_default())
}

fn read_cores(reader: &Reader<'_>, host: &Host, problems: &mut Vec<Problem>) -> Vec<usize> {
    const NAME: &str = "corelog.cores";
    let shards = shards(reader.layers, host);
    let named = reader.list(NAME);
    if named.is_empty() {
        // More shards than cores share them in turn.
        return host.cores.iter().copied().cycle().take(shards).collect();
    }
    let mut cores = Vec::new();
    for text in &named {
        match text.parse::<usize>() {
            Ok(core) if host.cores.contains(&core) => cores.push(core),
            Ok(core) => {
                let reason = format!("{NAME} names core {core}, which this process may not use");
                let fix = format!("It may use {:?}.", host.cores);
                problems.push(reader.problem(NAME, reason, &fix));
            }
            Err(_) => {
                let reason = format!("`{text}` in {NAME} is no core's number");
                problems.push(reader.problem(NAME, reason, "Write numbers: 0,1,2"));
            }
        }
    }
    if problems.is_empty() && cores.len() != shards {
        let reason = format!("{NAME} names {} cores, and there are {shards} shards", cores.len());
        problems.push(reader.problem(NAME, reason, "Name one core per shard."));
    }
    cores
}

fn read_ip_overrides(reader: &Reader<'_>, problems: &mut Vec<Problem>) -> BTreeMap<IpAddr, usize> {
    const NAME: &str = "max.connections.per.ip.overrides";
    let mut overrides = BTreeMap::new();
    for item in super::value::split_list(&reader.text(NAME)) {
        let parsed = item.rsplit_once(':').and_then(|(ip, max)| {
            let ip = ip.trim_matches(['[', ']']).parse().ok()?;
            Some((ip, max.trim().parse().ok()?))
        });
        match parsed {
            Some((ip, max)) => {
                overrides.insert(ip, max);
            }
            None => {
                let reason = format!("`{item}` in {NAME} is not of the form address:number");
                problems.push(reader.problem(NAME, reason, "For example 127.0.0.1:100"));
            }
        }
    }
    overrides
}

/// The rules that tie several properties together, as Kafka checks them at start.
fn check_together(reader: &Reader<'_>, problems: &mut Vec<Problem>) {
    let mut refuse = |name: &str, reason: &str, fix: &str| {
        problems.push(reader.problem(name, reason.to_owned(), fix));
    };
    let at_least = |name: &str, min: i64| reader.optional_long(name).is_none_or(|v| v >= min);
    if !at_least("log.roll.ms", 1) {
        refuse("log.roll.ms", "log.roll.ms must be at least 1", "Remove it, or raise it.");
    }
    if !at_least("log.roll.jitter.ms", 0) {
        refuse("log.roll.jitter.ms", "log.roll.jitter.ms must not be negative", "Remove it, or raise it.");
    }
    for name in ["log.retention.ms", "log.retention.minutes", "log.retention.hours"] {
        if reader.optional_long(name) == Some(0) {
            let reason = format!("{name} must be at least 1, or -1 to keep records for ever");
            refuse(name, &reason, "Change it.");
        }
    }
    let both_ids = reader.is_set("node.id") && reader.is_set("broker.id");
    if both_ids && reader.int("node.id") != reader.int("broker.id") {
        refuse("broker.id", "broker.id and node.id differ", "Set them to the same number, or remove broker.id.");
    }
    if reader.int("node.id") < 0 {
        refuse("node.id", "the node's id is negative", "Set node.id to 0 or more.");
    }
    let roles = reader.list("process.roles");
    if roles.len() != 2 {
        let reason = format!("process.roles is {}; a Corelog node is broker and controller in one", roles.join(","));
        refuse("process.roles", &reason, "Set it to broker,controller, or leave it out.");
    }
    let factor = reader.int("default.replication.factor");
    if !(1..=i32::from(i16::MAX)).contains(&factor) {
        let reason = format!("default.replication.factor is {factor}");
        refuse("default.replication.factor", &reason, "Set it to 1 or more.");
    }
    let lags = (reader.count("log.cleaner.min.compaction.lag.ms"), reader.count("log.cleaner.max.compaction.lag.ms"));
    if lags.0 > lags.1 {
        let reason = format!(
            "log.cleaner.min.compaction.lag.ms ({}) is more than log.cleaner.max.compaction.lag.ms ({})",
            lags.0, lags.1
        );
        refuse("log.cleaner.min.compaction.lag.ms", &reason, "Lower the one, or raise the other.");
    }
}

fn offsets_topic(reader: &Reader<'_>) -> InternalTopic {
    internal_topic(
        reader,
        "offsets.topic",
        "offsets.topic.segment.bytes",
        &[("cleanup.policy", "compact"), ("compression.type", "producer")],
    )
}

fn transaction_topic(reader: &Reader<'_>) -> InternalTopic {
    let min_isr = reader.int("transaction.state.log.min.isr").to_string();
    internal_topic(
        reader,
        "transaction.state.log",
        "transaction.state.log.segment.bytes",
        &[
            ("cleanup.policy", "compact"),
            ("compression.type", "uncompressed"),
            ("min.insync.replicas", &min_isr),
            ("unclean.leader.election.enable", "false"),
        ],
    )
}

fn share_state_topic(reader: &Reader<'_>) -> InternalTopic {
    const PREFIX: &str = "share.coordinator.state.topic";
    let min_isr = reader.short("share.coordinator.state.topic.min.isr").to_string();
    internal_topic(
        reader,
        PREFIX,
        "share.coordinator.state.topic.segment.bytes",
        &[
            ("cleanup.policy", "delete"),
            ("compression.type", "producer"),
            ("min.insync.replicas", &min_isr),
            ("retention.ms", "-1"),
        ],
    )
}

fn internal_topic(reader: &Reader<'_>, prefix: &str, segment_bytes: &str, fixed: &[(&str, &str)]) -> InternalTopic {
    let mut configs: ConfigMap = fixed.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    configs.insert("segment.bytes".to_owned(), reader.int(segment_bytes).to_string());
    InternalTopic {
        partitions: reader.int(&format!("{prefix}.num.partitions")),
        replication_factor: reader.short(&format!("{prefix}.replication.factor")),
        configs,
    }
}

/// Reads typed values out of checked layers.
struct Reader<'a> {
    layers: &'a Layers,
}

impl<'a> Reader<'a> {
    const fn new(layers: &'a Layers) -> Self {
        Self { layers }
    }

    fn is_set(&self, name: &str) -> bool {
        self.layers.text(name).is_some()
    }

    fn problem(&self, name: &str, reason: String, fix: &str) -> Problem {
        Problem::Value { reason, origin: OriginOrDefault(self.layers.fixed.origin(name).cloned()), fix: fix.to_owned() }
    }

    fn optional(&self, name: &str) -> Option<Value> {
        let row = broker_definition(name);
        let Some(row) = row else {
            unreachable!("{name} is read, and is no property");
        };
        // A text that doesn't parse was reported when it was loaded; one that came later was checked when it was set.
        let value = self.layers.value(row).ok().flatten();
        value.or_else(|| row.default.and_then(|text| row.parse(text).ok()))
    }

    /// The text, as it was set or by default.
    fn raw(&self, name: &str) -> String {
        let default = || broker_definition(name).and_then(|row| row.default);
        self.layers.text(name).or_else(default).unwrap_or_default().to_owned()
    }

    fn optional_long(&self, name: &str) -> Option<i64> {
        match self.optional(name)? {
            Value::Long(n) => Some(n),
            Value::Int(n) => Some(i64::from(n)),
            other => unreachable!("{name} is {other:?}, not a number"),
        }
    }

    fn long(&self, name: &str) -> i64 {
        match self.optional_long(name) {
            Some(number) => number,
            None => unreachable!("{name} is not set and has no default"),
        }
    }

    fn int(&self, name: &str) -> i32 {
        match self.optional(name) {
            Some(Value::Int(n)) => n,
            other => unreachable!("{name} is {other:?}, not an INT"),
        }
    }

    fn short(&self, name: &str) -> i16 {
        match self.optional(name) {
            Some(Value::Short(n)) => n,
            other => unreachable!("{name} is {other:?}, not a SHORT"),
        }
    }

    fn boolean(&self, name: &str) -> bool {
        match self.optional(name) {
            Some(Value::Boolean(b)) => b,
            other => unreachable!("{name} is {other:?}, not a BOOLEAN"),
        }
    }

    fn double(&self, name: &str) -> f64 {
        match self.optional(name) {
            Some(Value::Double(n)) => n,
            other => unreachable!("{name} is {other:?}, not a DOUBLE"),
        }
    }

    fn optional_text(&self, name: &str) -> Option<String> {
        match self.optional(name)? {
            Value::Text(text) => Some(text),
            Value::List(items) => Some(items.join(",")),
            other => unreachable!("{name} is {other:?}, not a text"),
        }
    }

    fn text(&self, name: &str) -> String {
        self.optional_text(name).unwrap_or_default()
    }

    fn optional_list(&self, name: &str) -> Option<Vec<String>> {
        match self.optional(name)? {
            Value::List(items) => Some(items),
            other => unreachable!("{name} is {other:?}, not a LIST"),
        }
    }

    fn list(&self, name: &str) -> Vec<String> {
        self.optional_list(name).unwrap_or_default()
    }

    /// A LONG that its validator keeps from being negative.
    fn count(&self, name: &str) -> u64 {
        u64::try_from(self.long(name)).unwrap_or(0)
    }

    /// An INT that its validator keeps from being negative.
    fn small_count(&self, name: &str) -> u32 {
        u32::try_from(self.int(name)).unwrap_or(0)
    }

    /// An INT where a negative number means "not set".
    fn optional_count(&self, name: &str) -> Option<u32> {
        u32::try_from(self.int(name)).ok()
    }

    fn size(&self, name: &str) -> usize {
        self.small_count(name) as usize
    }

    fn millis(&self, name: &str) -> Duration {
        Duration::from_millis(self.count(name))
    }

    fn int_millis(&self, name: &str) -> Duration {
        Duration::from_millis(u64::from(self.small_count(name)))
    }

    /// A LONG where a negative number means "never".
    fn optional_millis(&self, name: &str) -> Option<Duration> {
        u64::try_from(self.long(name)).ok().map(Duration::from_millis)
    }
}
