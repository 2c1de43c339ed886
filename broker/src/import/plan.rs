//! What is carried over, and what stands in the way.
//!
//! Holds: the decision, made before anything is written. Never touches: files beyond their names and lengths.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use corelog_storage::ids::{LeaderEpoch, PartitionIndex, TopicId};
use corelog_storage::log::LogName;

use super::args::Ignore;
use super::kafka_image::{KafkaImage, KafkaTopic, TOPIC};
use super::kafka_record::{NewPartition, Other};
use super::source::{FoundLog, Source};
use super::stage::carried_files;
use crate::config::dynamic::check_dynamic;
use crate::config::{BrokerConfig, ConfigMap};
use crate::controller::features::FEATURES;
use crate::controller::{ConfigResource, Record, ResourceKind};

/// How many examples a reason names.
const EXAMPLES_MAX: usize = 5;

/// Something that stands in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What it is, and what helps.
    pub reason: String,
    /// What would overlook it.
    pub ignored_by: Option<Ignore>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.reason)?;
        match self.ignored_by {
            Some(ignore) => write!(f, " [--ignore {}]", name_of(ignore)),
            None => Ok(()),
        }
    }
}

fn name_of(ignore: Ignore) -> String {
    clap::ValueEnum::to_possible_value(&ignore).map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// A log that is carried.
#[derive(Clone, Debug)]
pub struct CarriedLog {
    pub name: LogName,
    pub from: PathBuf,
    /// Its files and their lengths, by name.
    pub files: BTreeMap<String, u64>,
    pub log_start: Option<i64>,
    pub high_watermark: Option<i64>,
    pub overrides: ConfigMap,
}

impl CarriedLog {
    /// Bytes of all its files.
    pub fn bytes(&self) -> u64 {
        self.files.values().sum()
    }
}

/// All that is to be done.
#[derive(Debug, Default)]
pub struct Plan {
    pub logs: Vec<CarriedLog>,
    /// Of the new metadata log.
    pub records: Vec<Record>,
    pub refusals: Vec<Refusal>,
    /// What is left behind, for the operator to know.
    pub notes: Vec<String>,
}

impl Plan {
    /// Bytes of all logs.
    pub fn bytes(&self) -> u64 {
        self.logs.iter().map(CarriedLog::bytes).sum()
    }
}

/// Decides. `config` is the broker's as it would start on the new folder.
pub fn plan(source: &Source, image: &KafkaImage, config: &BrokerConfig, ignored: &[Ignore]) -> io::Result<Plan> {
    let mut planner = Planner { source, image, config, ignored, plan: Plan::default(), unfit: BTreeMap::new() };
    planner.plan.records.push(Record::Cluster { cluster_id: source.meta.cluster_id.clone() });
    planner.features();
    for (id, topic) in &image.topics {
        planner.topic(*id, topic)?;
    }
    planner.configs();
    if image.next_producer_id > 0 {
        let next_producer_id = image.next_producer_id;
        planner.plan.records.push(Record::ProducerIds { broker_id: -1, broker_epoch: -1, next_producer_id });
    }
    planner.others();
    planner.strangers();
    planner.refuse_unfit();
    Ok(planner.plan)
}

struct Planner<'a> {
    source: &'a Source,
    image: &'a KafkaImage,
    config: &'a BrokerConfig,
    ignored: &'a [Ignore],
    plan: Plan,
    /// Reasons that many partitions or topics share, and whose they are.
    unfit: BTreeMap<(&'static str, Option<Ignore>), Vec<String>>,
}

impl Planner<'_> {
    fn refuse(&mut self, ignored_by: Option<Ignore>, reason: String) {
        if ignored_by.is_some_and(|ignore| self.ignored.contains(&ignore)) {
            self.plan.notes.push(reason);
        } else {
            self.plan.refusals.push(Refusal { reason, ignored_by });
        }
    }

    fn unfit(&mut self, ignored_by: Option<Ignore>, reason: &'static str, whose: String) {
        self.unfit.entry((reason, ignored_by)).or_default().push(whose);
    }

    fn refuse_unfit(&mut self) {
        for ((reason, ignored_by), whose) in std::mem::take(&mut self.unfit) {
            let shown = whose.iter().take(EXAMPLES_MAX).cloned().collect::<Vec<_>>().join(", ");
            let more = match whose.len().saturating_sub(EXAMPLES_MAX) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            self.refuse(ignored_by, format!("{shown}{more}: {reason}"));
        }
    }

    fn features(&mut self) {
        for feature in FEATURES {
            let theirs = self.image.features.get(feature.name).copied();
            let level = theirs.filter(|level| (feature.min..=feature.max).contains(level)).unwrap_or(feature.bootstrap);
            self.plan.records.push(Record::Feature { name: feature.name.to_owned(), level, epoch: 1 });
        }
    }

    fn topic(&mut self, id: TopicId, topic: &KafkaTopic) -> io::Result<()> {
        self.plan.records.push(Record::Topic { id, name: topic.name.as_str().into() });
        let overrides = self.topic_configs(topic);
        for (expected, partition) in (0..).zip(topic.partitions.values()) {
            let name =
                LogName { topic: topic.name.clone(), partition: PartitionIndex(partition.partition), topic_id: id };
            if partition.partition != expected || name.folder().is_none() {
                self.unfit(None, "the metadata has no such partition or no such name", name.to_string());
                continue;
            }
            self.partition(name, partition, &overrides)?;
        }
        Ok(())
    }

    fn partition(&mut self, name: LogName, partition: &NewPartition, overrides: &ConfigMap) -> io::Result<()> {
        let node = self.source.meta.node_id;
        let shown = name.to_string();
        if !partition.replicas.contains(&node) {
            let reason = "no replica on this broker: move the topic's partitions here first \
                          (kafka-reassign-partitions.sh), or delete the topic";
            self.unfit(None, reason, shown);
            return Ok(());
        }
        if !partition.isr.contains(&node) {
            let reason =
                "this broker's replica was not in sync: it may lack records. Let it catch up, and stop it last";
            self.unfit(None, reason, shown);
            return Ok(());
        }
        if partition.replicas.len() > 1 {
            let reason = "has replicas on other brokers, too, which may have been ahead of this one when it stopped";
            self.unfit(Some(Ignore::Replicas), reason, shown.clone());
        }
        self.plan.records.push(Record::Partition {
            topic: name.topic_id,
            partition: name.partition,
            replicas: vec![node],
            isr: vec![node],
            leader: node,
            leader_epoch: LeaderEpoch(partition.leader_epoch),
            partition_epoch: partition.partition_epoch,
        });
        let key = (name.topic.clone(), name.partition.0);
        match self.source.logs.get(&key) {
            None => {
                self.unfit(None, "not in the folders that were given: give all log.dirs of that Kafka", shown);
            }
            Some(found) if found.topic_id != name.topic_id => {
                self.unfit(None, "the folder is of another topic of that name (partition.metadata)", shown);
            }
            Some(found) => {
                let log = carried(name, found, overrides)?;
                self.plan.logs.push(log);
            }
        }
        Ok(())
    }

    /// A topic's own configuration, without what is not taken.
    fn topic_configs(&mut self, topic: &KafkaTopic) -> ConfigMap {
        let mut configs = self.image.configs.get(&(TOPIC, topic.name.clone())).cloned().unwrap_or_default();
        if configs.get("remote.storage.enable").is_some_and(|value| value == "true") {
            let reason = "is tiered (remote.storage.enable), and its records may lie in the remote tier only";
            self.unfit(None, reason, topic.name.clone());
        }
        let mut refused = Vec::new();
        configs.retain(|name, value| {
            let alone = ConfigMap::from([(name.clone(), value.clone())]);
            match self.config.topic_values().with_overrides(&alone) {
                Ok(_) => true,
                Err(error) => {
                    refused.push(format!("topic {}: {name}={value} is not taken: {error}", topic.name));
                    false
                }
            }
        });
        for reason in refused {
            self.refuse(Some(Ignore::Configs), reason);
        }
        if let Err(error) = self.config.topic_values().with_overrides(&configs) {
            self.refuse(None, format!("topic {}: its configuration is not taken: {error}", topic.name));
        }
        self.config_records(&ConfigResource::topic(&topic.name), &configs);
        configs
    }

    fn config_records(&mut self, resource: &ConfigResource, configs: &ConfigMap) {
        for (name, value) in configs {
            let (resource, name, value) = (resource.clone(), name.clone(), Some(value.clone()));
            self.plan.records.push(Record::Config { resource, name, value });
        }
    }

    /// Configurations of all that is no topic.
    fn configs(&mut self) {
        let node = self.source.meta.node_id.to_string();
        for ((kind, name), configs) in &self.image.configs {
            let Some(kind) = ResourceKind::from_id(*kind) else {
                self.refuse(None, format!("a configuration belongs to a resource of type {kind}, which is not known"));
                continue;
            };
            match kind {
                ResourceKind::Topic => {}
                ResourceKind::Broker if name.is_empty() || *name == node => self.broker_configs(name, configs),
                ResourceKind::Broker => {
                    self.plan.notes.push(format!("the configuration of broker {name} is left behind"));
                }
                ResourceKind::ClientMetrics | ResourceKind::Group => {
                    let resource = ConfigResource { kind, name: Arc::from(name.as_str()) };
                    self.config_records(&resource, configs);
                }
            }
        }
    }

    fn broker_configs(&mut self, broker: &str, configs: &ConfigMap) {
        let mut taken = ConfigMap::new();
        for (name, value) in configs {
            let alone = ConfigMap::from([(name.clone(), value.clone())]);
            match check_dynamic(&alone, !broker.is_empty(), self.config) {
                Ok(()) => {
                    taken.insert(name.clone(), value.clone());
                }
                Err(error) => {
                    let whose = if broker.is_empty() { "all brokers" } else { "this broker" };
                    let reason = format!("dynamic configuration of {whose}: {name} is not taken: {error}");
                    self.refuse(Some(Ignore::Configs), reason);
                }
            }
        }
        let resource = ConfigResource { kind: ResourceKind::Broker, name: Arc::from(broker) };
        self.config_records(&resource, &taken);
    }

    /// What Corelog has no use for.
    fn others(&mut self) {
        let kinds = [
            (Other::Acl, Ignore::Acls, "access control lists"),
            (Other::Scram, Ignore::Scram, "SCRAM credentials"),
            (Other::Quota, Ignore::Quotas, "client quotas"),
            (Other::DelegationToken, Ignore::DelegationTokens, "delegation tokens"),
        ];
        for (kind, ignore, what) in kinds {
            let names: Vec<&str> =
                self.image.others.iter().filter(|(of, _)| *of == kind).map(|(_, name)| name.as_str()).collect();
            if !names.is_empty() {
                let shown = names.iter().take(EXAMPLES_MAX).copied().collect::<Vec<_>>().join(", ");
                let reason = format!("{} {what} ({shown}) cannot be carried", names.len());
                self.refuse(Some(ignore), reason);
            }
        }
    }

    /// Other nodes, folders that nobody owns.
    fn strangers(&mut self) {
        if self.image.is_in_transaction() {
            self.plan
                .notes
                .push("a change of the metadata that its controller had not completed is left behind".to_owned());
        }
        if self.image.controllers.len() > 1 {
            let reason = format!(
                "the cluster has controllers {:?}: what is last in this copy of the metadata may not be committed. \
                 Stop all brokers before the last controller",
                self.image.controllers
            );
            self.refuse(Some(Ignore::Quorum), reason);
        }
        let known = |topic: &str, partition| {
            let found = self.image.topics.values().find(|known| known.name == topic);
            found.is_some_and(|topic| topic.partitions.contains_key(&partition))
        };
        let unknown = self.source.logs.iter().filter(|((topic, partition), _)| !known(topic, *partition));
        let folders = unknown.map(|(_, log)| &log.path).chain(&self.source.left_out);
        let notes: Vec<String> = folders
            .map(|path| format!("{} is no partition of the metadata's and is left behind", path.display()))
            .collect();
        self.plan.notes.extend(notes);
    }
}

fn carried(name: LogName, found: &FoundLog, overrides: &ConfigMap) -> io::Result<CarriedLog> {
    let files = carried_files(&found.path)?;
    let overrides = overrides.clone();
    Ok(CarriedLog {
        name,
        from: found.path.clone(),
        files,
        log_start: found.log_start,
        high_watermark: found.high_watermark,
        overrides,
    })
}
