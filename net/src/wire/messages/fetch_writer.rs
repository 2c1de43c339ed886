//! A Fetch response written piece by piece.
//!
//! Holds: what stands around its topics. Never touches: the heap, but for the encoder's own buffer.

use super::topics_writer::TopicsWriter;
use super::{FetchPartitionData, NodeEndpoint};
use crate::wire::{ApiKey, Encoder, ErrorCode, Uuid, Wire};

/// Writes a [`super::FetchResponse`] without building one.
///
/// Counts come first on the wire and so must be known first; a count that isn't kept is a mistake of ours and panics.
#[derive(Debug)]
pub struct FetchResponseWriter<'e> {
    topics: TopicsWriter<'e>,
}

impl<'e> FetchResponseWriter<'e> {
    /// Starts the body behind a header written by [`crate::wire::ResponseHeader::begin`]; `topics` topics follow.
    pub fn begin(
        e: &'e mut Encoder,
        throttle_time_ms: i32,
        error_code: ErrorCode,
        session_id: i32,
        topics: usize,
    ) -> Self {
        let version = e.version();
        assert!(ApiKey::Fetch.supports(version), "Fetch has no version {version}");
        throttle_time_ms.encode(e);
        if version >= 7 {
            error_code.encode(e);
            session_id.encode(e);
        }
        Self { topics: TopicsWriter::begin(e, topics) }
    }

    /// Starts a topic of `partitions` partitions. The version decides whether name or id is written.
    pub fn topic(&mut self, name: &str, topic_id: Uuid, partitions: usize) {
        self.topics.topic("FetchableTopicResponse.topic", name, topic_id, partitions);
    }

    /// Writes a partition of the topic started last.
    pub fn partition(&mut self, partition: &FetchPartitionData<'_>) {
        self.topics.partition(partition.partition_index, partition);
    }

    /// Ends the body. `node_endpoints` tell where the leaders named in it are (version 16 on, KIP-951).
    pub fn end(self, node_endpoints: &[NodeEndpoint<'_>]) {
        let since = 16;
        super::write_node_endpoints(self.topics.end(), since, node_endpoints);
    }
}
