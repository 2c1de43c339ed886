//! What all shards of a broker share.
//!
//! Holds: the configuration, where partitions and connections are placed, the word to stop. Never touches: anything that
//! one shard owns. Everything here is immutable, or an atomic or a lock that no request waits for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use corelog_reactor::ShardId;

use crate::api::Principal;
use crate::config::BrokerConfig;
use crate::controller::MetadataImage;
use crate::partition::call::PartitionKey;
use crate::shard::accept::Loads;

/// The shared part of a running broker.
pub struct Server {
    /// Static configuration.
    pub config: Arc<BrokerConfig>,
    /// Number of shards.
    pub shards: usize,
    /// Connections by shard and by address.
    pub loads: Loads,
    /// Everybody, until there is authentication.
    pub anonymous: Principal,
    /// Called when a shard finds that the broker can't go on.
    pub alarm: fn(),
    first_folder_failed: OnceLock<String>,
    listener_names: Vec<Arc<str>>,
    stopping: AtomicBool,
    controller_at_rest: AtomicBool,
    status_asked: Vec<AtomicBool>,
}

impl Server {
    /// The shared part for a broker with this configuration.
    pub fn new(config: Arc<BrokerConfig>) -> Server {
        let shards = config.shards;
        assert!(shards > 0, "a broker needs a shard");
        Server {
            loads: Loads::new(shards),
            anonymous: Principal::anonymous(),
            alarm: || (),
            first_folder_failed: OnceLock::new(),
            listener_names: config.listeners.iter().map(|listener| listener.name.as_str().into()).collect(),
            stopping: AtomicBool::new(false),
            controller_at_rest: AtomicBool::new(false),
            status_asked: (0..shards).map(|_| AtomicBool::new(false)).collect(),
            shards,
            config,
        }
    }

    /// Which shard owns a partition: a pin of the controller's, the core map, or the stable default, in this order.
    pub fn owner(&self, image: &MetadataImage, key: PartitionKey) -> ShardId {
        if let Some(pinned) = image.core_pin(self.config.node_id, key.topic_id, key.partition)
            && usize::from(pinned) < self.shards
        {
            return ShardId(pinned);
        }
        let name = image.topic(key.topic_id).map_or("", |topic| &*topic.name);
        self.config.core_map.shard_of(name, key.topic_id, key.partition, self.shards)
    }

    /// A listener's name.
    pub fn listener_name(&self, number: usize) -> Arc<str> {
        Arc::clone(&self.listener_names[number])
    }

    /// Asks all shards to stop. They notice at their next turn: wake them.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// Whether the broker is stopping.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// The controller has carried out its last decision.
    pub fn controller_rests(&self) {
        self.controller_at_rest.store(true, Ordering::Release);
    }

    /// Whether it has.
    pub fn is_controller_at_rest(&self) -> bool {
        self.controller_at_rest.load(Ordering::Acquire)
    }

    /// The first data folder, which has the metadata, has failed: the broker ends.
    pub fn first_folder_fails(&self, reason: String) {
        if self.first_folder_failed.set(reason).is_ok() {
            (self.alarm)();
        }
    }

    /// Why the first data folder has failed, if it has.
    pub fn first_folder_failure(&self) -> Option<&str> {
        self.first_folder_failed.get().map(String::as_str)
    }

    /// Asks every shard to log what it has done. Wake them.
    pub fn ask_status(&self) {
        for asked in &self.status_asked {
            asked.store(true, Ordering::Release);
        }
    }

    /// Whether this shard was asked since it last looked.
    pub fn take_status_asked(&self, shard: ShardId) -> bool {
        self.status_asked[usize::from(shard.0)].swap(false, Ordering::AcqRel)
    }
}
