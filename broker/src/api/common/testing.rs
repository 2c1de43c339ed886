//! Small clusters for the handlers' tests.
//!
//! Holds: metadata images built from records, and request contexts. Never touches: anything that runs.

use std::sync::Arc;

use corelog_net::wire::ApiKey;
use corelog_storage::ids::{LeaderEpoch, PartitionIndex, TopicId};

use crate::api::{Principal, RequestContext};
use crate::controller::{Endpoint, MetadataImage, Record};

/// The listener of [`context`].
pub const LISTENER: &str = "PLAINTEXT";

/// The id of the topic made as the `n`th.
pub const fn id(n: u8) -> TopicId {
    TopicId([n; 16])
}

/// A request of this version.
pub fn context(api_key: ApiKey, version: i16) -> RequestContext {
    RequestContext {
        principal: Principal::anonymous(),
        listener: LISTENER.into(),
        client_id: None,
        client_addr: ([127, 0, 0, 1], 40_000).into(),
        api_key,
        version,
        correlation_id: 7,
    }
}

/// A cluster in the making.
pub struct Cluster {
    image: MetadataImage,
    topics: u8,
}

impl Cluster {
    /// A cluster with one broker, number 1, reachable through [`LISTENER`].
    pub fn of_one() -> Self {
        let mut cluster = Self { image: MetadataImage::default(), topics: 0 };
        cluster.replay(&Record::Cluster { cluster_id: "AAAAAAAAAAAAAAAAAAAAAQ".into() });
        cluster.broker(1, LISTENER)
    }

    /// Another broker, with one listener.
    pub fn broker(mut self, broker_id: i32, listener: &str) -> Self {
        self.replay(&Record::BrokerRegistration {
            broker_id,
            incarnation: [9; 16],
            broker_epoch: 10,
            endpoints: vec![Endpoint {
                listener: listener.to_owned(),
                host: format!("host-{broker_id}"),
                port: 9092,
                security_protocol: 0,
            }],
            rack: (broker_id == 1).then(|| "rack-a".to_owned()),
        });
        self
    }

    /// A topic whose partitions have these replicas; the first of them leads, in epoch 5.
    pub fn topic(mut self, name: &str, partitions: &[&[i32]]) -> Self {
        self.topics += 1;
        let topic = id(self.topics);
        self.replay(&Record::Topic { id: topic, name: name.into() });
        for (index, replicas) in (0..).zip(partitions) {
            self.replay(&Record::Partition {
                topic,
                partition: PartitionIndex(index),
                replicas: replicas.to_vec(),
                isr: replicas.to_vec(),
                leader: replicas.first().copied().unwrap_or(-1),
                leader_epoch: LeaderEpoch(5),
                partition_epoch: 0,
            });
        }
        self
    }

    /// The image.
    pub fn image(self) -> Arc<MetadataImage> {
        Arc::new(self.image)
    }

    fn replay(&mut self, record: &Record) {
        assert_eq!(self.image.replay(record), Ok(()), "{record:?}");
    }
}
