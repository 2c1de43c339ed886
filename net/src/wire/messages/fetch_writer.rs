//! A Fetch response written piece by piece.
//!
//! Holds: the order of its pieces, checked as they come. Never touches: the heap, but for the encoder's own buffer.

use super::{FetchPartitionData, NodeEndpoint};
use crate::wire::{ApiKey, Encoder, ErrorCode, Uuid, Wire};

/// Writes a [`super::FetchResponse`] without building one.
///
/// Counts come first on the wire and so must be known first; a count that isn't kept is a mistake of ours and panics.
#[derive(Debug)]
pub struct FetchResponseWriter<'e> {
    e: &'e mut Encoder,
    topics_left: usize,
    partitions_left: usize,
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
        e.long_len(Some(topics));
        Self { e, topics_left: topics, partitions_left: 0 }
    }

    /// Starts a topic of `partitions` partitions. The version decides whether name or id is written.
    pub fn topic(&mut self, name: &str, topic_id: Uuid, partitions: usize) {
        assert_eq!(self.partitions_left, 0, "the topic before {name:?} lacks partitions");
        assert!(self.topics_left > 0, "topic {name:?} is one too many");
        self.topics_left -= 1;
        self.partitions_left = partitions;
        self.e.enter("FetchableTopicResponse.topic");
        if self.e.version() <= 12 {
            name.encode(self.e);
        } else {
            topic_id.encode(self.e);
        }
        self.e.long_len(Some(partitions));
        if partitions == 0 {
            self.e.no_tagged_fields();
        }
    }

    /// Writes a partition of the topic started last.
    pub fn partition(&mut self, partition: &FetchPartitionData<'_>) {
        let index = partition.partition_index;
        assert!(self.partitions_left > 0, "partition {index} is one too many");
        self.partitions_left -= 1;
        partition.encode(self.e);
        if self.partitions_left == 0 {
            self.e.no_tagged_fields();
        }
    }

    /// Ends the body. `node_endpoints` tell where the leaders named in it are (version 16 on, KIP-951).
    pub fn end(self, node_endpoints: &[NodeEndpoint<'_>]) {
        assert_eq!(self.partitions_left, 0, "the last topic lacks partitions");
        assert_eq!(self.topics_left, 0, "the response lacks topics");
        let since = 16;
        super::write_node_endpoints(self.e, since, node_endpoints);
    }
}
