//! The records of the metadata log: what can happen to the cluster.
//!
//! Holds: their types. Never touches: bytes (`codec`), the state they change (`image`).

use std::sync::Arc;

use corelog_storage::ids::{LeaderEpoch, PartitionIndex, TopicId};

/// What a configuration belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConfigResource {
    /// Its kind.
    pub kind: ResourceKind,
    /// Its name: a topic's name, a broker's id in decimal, or empty for all brokers.
    pub name: Arc<str>,
}

impl ConfigResource {
    /// A topic's configuration.
    #[must_use]
    pub fn topic(name: &str) -> Self {
        Self { kind: ResourceKind::Topic, name: name.into() }
    }

    /// One broker's dynamic configuration.
    #[must_use]
    pub fn broker(id: i32) -> Self {
        Self { kind: ResourceKind::Broker, name: id.to_string().into() }
    }

    /// The dynamic configuration of all brokers.
    #[must_use]
    pub fn cluster_default() -> Self {
        Self { kind: ResourceKind::Broker, name: "".into() }
    }
}

/// The kinds of resource that have a configuration, with Kafka's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(i8)]
pub enum ResourceKind {
    /// A topic.
    Topic = 2,
    /// A broker, or all brokers.
    Broker = 4,
    /// A client metrics subscription (KIP-714).
    ClientMetrics = 16,
    /// A group.
    Group = 32,
}

impl ResourceKind {
    /// The kind with this number in the protocol; `None` for a number without a stored configuration.
    #[must_use]
    pub const fn from_id(id: i8) -> Option<Self> {
        match id {
            2 => Some(Self::Topic),
            4 => Some(Self::Broker),
            16 => Some(Self::ClientMetrics),
            32 => Some(Self::Group),
            _ => None,
        }
    }

    /// Its number in the protocol.
    #[must_use]
    pub const fn id(self) -> i8 {
        self as i8
    }

    /// Its name in Kafka's messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Topic => "TOPIC",
            Self::Broker => "BROKER",
            Self::ClientMetrics => "CLIENT_METRICS",
            Self::Group => "GROUP",
        }
    }
}

/// The id of a data folder, as its `meta.properties` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DirectoryId(pub [u8; 16]);

impl std::fmt::Display for DirectoryId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        TopicId(self.0).fmt(f)
    }
}

/// An address that a broker can be reached at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The listener's name.
    pub listener: String,
    /// The host to connect to.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The number of the security protocol: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL.
    pub security_protocol: i16,
}

/// One event. Replaying the events in order gives the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The cluster has this id. The first record of every log.
    Cluster {
        /// 22 characters of base64, as Kafka's ids.
        cluster_id: String,
    },
    /// A feature has this level from now on; 0: it is off. `metadata.version` is one of them.
    Feature {
        /// Its name.
        name: String,
        /// Its level.
        level: i16,
        /// The epoch of the cluster's features after the change.
        epoch: i64,
    },
    /// A broker has started and can be reached there.
    BrokerRegistration {
        /// Its id.
        broker_id: i32,
        /// Its incarnation: new at each start.
        incarnation: [u8; 16],
        /// Counts the broker's registrations in this cluster, from 1.
        broker_epoch: i64,
        /// Where it can be reached. At least one.
        endpoints: Vec<Endpoint>,
        /// Its rack.
        rack: Option<String>,
    },
    /// A topic has been created. Its partitions follow.
    Topic {
        /// Its id.
        id: TopicId,
        /// Its name.
        name: Arc<str>,
    },
    /// A partition has been created: the next one of its topic.
    Partition {
        /// Its topic.
        topic: TopicId,
        /// Its number.
        partition: PartitionIndex,
        /// The brokers that hold it, the preferred leader first.
        replicas: Vec<i32>,
        /// Those that are in sync.
        isr: Vec<i32>,
        /// The one that leads; -1: none.
        leader: i32,
        /// The first leader epoch.
        leader_epoch: LeaderEpoch,
        /// The first partition epoch.
        partition_epoch: i32,
    },
    /// A partition has changed. What is `None` stays.
    PartitionChange {
        /// Its topic.
        topic: TopicId,
        /// Its number.
        partition: PartitionIndex,
        /// The new replicas.
        replicas: Option<Vec<i32>>,
        /// The new in-sync replicas.
        isr: Option<Vec<i32>>,
        /// The new leader.
        leader: Option<i32>,
        /// The leader epoch after the change.
        leader_epoch: LeaderEpoch,
        /// The partition epoch after the change: each change raises it.
        partition_epoch: i32,
    },
    /// Every partition led by this broker gets the next leader epoch (and partition epoch): the broker has restarted,
    /// and offsets that it had stamped but not made durable are now free for other bytes.
    LeaderEpochBump {
        /// The broker.
        broker_id: i32,
    },
    /// A topic is gone, with its partitions, its configuration and its pins.
    RemoveTopic {
        /// Its id.
        id: TopicId,
    },
    /// A property of a resource has been set, or removed.
    Config {
        /// Whose.
        resource: ConfigResource,
        /// The property.
        name: String,
        /// Its value; `None`: removed.
        value: Option<String>,
    },
    /// Producer ids below this one are given out.
    ProducerIds {
        /// The broker that got the block.
        broker_id: i32,
        /// Its epoch then.
        broker_epoch: i64,
        /// The first id of the next block.
        next_producer_id: i64,
    },
    /// A partition is pinned to a shard of a broker, or no longer.
    CorePin {
        /// The broker.
        broker_id: i32,
        /// The topic.
        topic: TopicId,
        /// The partition.
        partition: PartitionIndex,
        /// The shard; `None`: the default placement again.
        shard: Option<u16>,
    },
    /// These data folders of a broker are online, beside its first: partitions of others have no leader there.
    BrokerDirectories {
        /// The broker.
        broker_id: i32,
        /// The folders.
        online: Vec<DirectoryId>,
    },
    /// A broker holds a partition in this data folder, not in its first. Follows the partition's own record.
    PartitionDirectory {
        /// The broker.
        broker_id: i32,
        /// The topic.
        topic: TopicId,
        /// The partition.
        partition: PartitionIndex,
        /// The folder.
        directory: DirectoryId,
    },
}
