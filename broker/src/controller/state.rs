//! The controller itself: requests in, responses and records out.
//!
//! Holds: the state machine's front door and the state that follows from the records.
//! Never touches: the log (its caller appends the records), clocks, random sources.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use corelog_reactor::UnixMillis;
use tracing::warn;

use super::features::SupportedFeature;
use super::image::{MetadataImage, ReplayError};
use super::record::{ConfigResource, Record};
use super::request::{Request, Response};
use crate::config::BrokerConfig;
use crate::names::collision_key;

/// The answer to a request, and what has to be in the log before it is sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The answer.
    pub response: Response,
    /// To be appended as one entry: all of them or none. Empty: the answer can go at once.
    pub records: Vec<Record>,
}

/// Where random numbers come from: the reactor in production, a seed in tests.
pub type Random<'a> = dyn FnMut() -> u64 + 'a;

/// The controller's state: what the log says, plus what was answered and is on its way into the log.
///
/// `handle` applies its own records at once, so that the next request sees them. If the append fails, this state is
/// ahead of the log and must be thrown away: replay the log into a new one.
#[derive(Clone, Debug)]
pub struct Controller {
    pub(super) image: MetadataImage,
    /// The names that can clash, by their clashing form.
    pub(super) clashes: BTreeMap<String, BTreeSet<Arc<str>>>,
    /// This broker's configuration as of `image`.
    pub(super) config: Arc<BrokerConfig>,
    /// What this version supports.
    pub(super) features: &'static [SupportedFeature],
}

impl Controller {
    /// The controller of an empty log. `config` is this broker's as it was loaded.
    #[must_use]
    pub fn new(config: Arc<BrokerConfig>, features: &'static [SupportedFeature]) -> Self {
        Self { image: MetadataImage::default(), clashes: BTreeMap::new(), config, features }
    }

    /// The first records of a new cluster. To be appended before anything else, and replayed like any others.
    pub fn bootstrap(&self, random: &mut Random<'_>) -> Vec<Record> {
        let cluster_id = random_id(random);
        let mut records = vec![Record::Cluster { cluster_id: cluster_id.to_string() }];
        for (epoch, feature) in (1..).zip(self.features.iter().filter(|f| f.bootstrap > 0)) {
            records.push(Record::Feature { name: feature.name.to_owned(), level: feature.bootstrap, epoch });
        }
        records
    }

    /// Answers a request. `now` is for what expires; `random` gives ids and spreads replicas.
    pub fn handle(&mut self, request: &Request, now: UnixMillis, random: &mut Random<'_>) -> Outcome {
        // Nothing of one node's expires yet: broker sessions come with the second node.
        let _ = now;
        let (response, records) = match request {
            Request::CreateTopics(request) => {
                let (response, records) = self.create_topics(request, random);
                (Response::CreateTopics(response), records)
            }
            Request::DeleteTopics(request) => {
                let (response, records) = self.delete_topics(request);
                (Response::DeleteTopics(response), records)
            }
            Request::CreatePartitions(request) => {
                let (response, records) = self.create_partitions(request, random);
                (Response::CreatePartitions(response), records)
            }
            Request::AlterConfigs(request) => {
                let (response, records) = self.alter_configs(request);
                (Response::AlterConfigs(response), records)
            }
            Request::IncrementalAlterConfigs(request) => {
                let (response, records) = self.incremental_alter_configs(request);
                (Response::AlterConfigs(response), records)
            }
            Request::AllocateProducerIds(request) => {
                let (response, records) = self.allocate_producer_ids(*request);
                (Response::AllocateProducerIds(response), records)
            }
            Request::RegisterBroker(request) => {
                let (response, records) = self.register_broker(request, random);
                (Response::RegisterBroker(response), records)
            }
            Request::UpdateFeatures(request) => {
                let (response, records) = self.update_features(request);
                (Response::UpdateFeatures(response), records)
            }
            Request::DirectoryFailed(request) => {
                let (response, records) = self.directory_failed(request);
                (Response::DirectoryFailed(response), records)
            }
            Request::PinCore(request) => {
                let (response, records) = self.pin_core(*request);
                (Response::PinCore(response), records)
            }
        };
        for record in &records {
            if let Err(error) = self.replay(record) {
                panic!("the controller wrote a record that does not fit its own state: {error}; {record:?}");
            }
        }
        Outcome { response, records }
    }

    /// Applies a record of the log.
    ///
    /// # Errors
    /// [`ReplayError`] when it does not fit; the state is unchanged then.
    pub fn replay(&mut self, record: &Record) -> Result<(), ReplayError> {
        let removed = match record {
            Record::RemoveTopic { id } => self.image.topic(*id).map(|topic| Arc::clone(&topic.name)),
            _ => None,
        };
        self.image.replay(record)?;
        match record {
            Record::Topic { name, .. } => {
                if let Some(key) = collision_key(name) {
                    self.clashes.entry(key).or_default().insert(Arc::clone(name));
                }
            }
            Record::RemoveTopic { .. } => {
                if let Some(name) = removed {
                    self.forget_clash(&name);
                }
            }
            Record::Config { resource, .. } => self.refresh_config(resource),
            Record::Cluster { .. }
            | Record::Feature { .. }
            | Record::BrokerRegistration { .. }
            | Record::Partition { .. }
            | Record::PartitionChange { .. }
            | Record::LeaderEpochBump { .. }
            | Record::ProducerIds { .. }
            | Record::CorePin { .. }
            | Record::BrokerDirectories { .. }
            | Record::PartitionDirectory { .. } => {}
        }
        Ok(())
    }

    /// The cluster as of everything that was handled or replayed. Cheap. To be published once the records of the last
    /// `handle` are durable.
    #[must_use]
    pub fn image(&self) -> Arc<MetadataImage> {
        Arc::new(self.image.clone())
    }

    /// This broker's configuration, with what was set while it ran.
    #[must_use]
    pub fn broker_config(&self) -> &Arc<BrokerConfig> {
        &self.config
    }

    fn forget_clash(&mut self, name: &str) {
        let Some(key) = collision_key(name) else {
            return;
        };
        if let Some(names) = self.clashes.get_mut(&key) {
            names.remove(name);
            if names.is_empty() {
                self.clashes.remove(&key);
            }
        }
    }

    fn refresh_config(&mut self, changed: &ConfigResource) {
        let cluster = ConfigResource::cluster_default();
        let ours = ConfigResource::broker(self.config.node_id);
        if *changed != cluster && *changed != ours {
            return;
        }
        match self.config.with_stored_dynamic(&self.image.config(&cluster), &self.image.config(&ours)) {
            Ok(config) => self.config = Arc::new(config),
            Err(error) => warn!(%error, "the stored dynamic configuration is ignored"),
        }
    }
}

/// An id as Kafka draws them: a random UUID that is none of the reserved ones and does not look like a flag when it is
/// typed on a command line.
pub(super) fn random_id(random: &mut Random<'_>) -> corelog_storage::ids::TopicId {
    loop {
        let high = random().to_be_bytes();
        let low = random().to_be_bytes();
        let mut bytes = [0; 16];
        for (to, from) in bytes.iter_mut().zip(high.iter().chain(&low)) {
            *to = *from;
        }
        // RFC 9562: version 4, variant 10.
        if let Some(version) = bytes.get_mut(6) {
            *version = (*version & 0x0f) | 0x40;
        }
        if let Some(variant) = bytes.get_mut(8) {
            *variant = (*variant & 0x3f) | 0x80;
        }
        let id = corelog_storage::ids::TopicId(bytes);
        if !id.to_string().starts_with('-') {
            return id;
        }
    }
}
