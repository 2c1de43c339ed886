//! A Produce response written piece by piece.
//!
//! Holds: what stands around its topics. Never touches: the heap, but for the encoder's own buffer.

use super::topics_writer::TopicsWriter;
use super::{NodeEndpoint, PartitionProduceResponse};
use crate::wire::{ApiKey, Encoder, Uuid, Wire};

/// Writes a [`super::ProduceResponse`] without building one.
///
/// Counts come first on the wire and so must be known first; a count that isn't kept is a mistake of ours and panics.
#[derive(Debug)]
pub struct ProduceResponseWriter<'e> {
    topics: TopicsWriter<'e>,
}

impl<'e> ProduceResponseWriter<'e> {
    /// Starts the body behind a header written by [`crate::wire::ResponseHeader::begin`]; `topics` topics follow.
    pub fn begin(e: &'e mut Encoder, topics: usize) -> Self {
        let version = e.version();
        assert!(ApiKey::Produce.supports(version), "Produce has no version {version}");
        Self { topics: TopicsWriter::begin(e, topics) }
    }

    /// Starts a topic of `partitions` partitions. The version decides whether name or id is written.
    pub fn topic(&mut self, name: &str, topic_id: Uuid, partitions: usize) {
        self.topics.topic("TopicProduceResponse.name", name, topic_id, partitions);
    }

    /// Writes a partition of the topic started last.
    pub fn partition(&mut self, partition: &PartitionProduceResponse<'_>) {
        self.topics.partition(partition.index, partition);
    }

    /// Ends the body. `node_endpoints` tell where the leaders named in it are (version 10 on, KIP-951).
    pub fn end(self, throttle_time_ms: i32, node_endpoints: &[NodeEndpoint<'_>]) {
        let e = self.topics.end();
        throttle_time_ms.encode(e);
        let since = 10;
        super::write_node_endpoints(e, since, node_endpoints);
    }
}
