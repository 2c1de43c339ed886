//! The topics of a response, and their partitions, written one by one.
//!
//! Holds: the order and the counts, checked as pieces come. Never touches: what else a response says.

use crate::wire::{Encoder, Uuid, Wire};

/// Writes an array of topics, each with its array of partitions, without building either.
///
/// Counts come first on the wire and so must be known first; a count that isn't kept is a mistake of ours and panics.
#[derive(Debug)]
pub(super) struct TopicsWriter<'e> {
    e: &'e mut Encoder,
    topics_left: usize,
    partitions_left: usize,
}

impl<'e> TopicsWriter<'e> {
    /// Starts the array; `topics` topics follow.
    pub(super) fn begin(e: &'e mut Encoder, topics: usize) -> Self {
        e.long_len(Some(topics));
        Self { e, topics_left: topics, partitions_left: 0 }
    }

    /// Starts a topic of `partitions` partitions. The version decides whether name or id is written: Produce and Fetch
    /// both changed from one to the other with their version 13. `field` names the place in errors.
    pub(super) fn topic(&mut self, field: &'static str, name: &str, topic_id: Uuid, partitions: usize) {
        assert_eq!(self.partitions_left, 0, "the topic before {name:?} lacks partitions");
        assert!(self.topics_left > 0, "topic {name:?} is one too many");
        self.topics_left -= 1;
        self.partitions_left = partitions;
        self.e.enter(field);
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

    /// Writes partition `index` of the topic started last.
    pub(super) fn partition<'a>(&mut self, index: i32, partition: &impl Wire<'a>) {
        assert!(self.partitions_left > 0, "partition {index} is one too many");
        self.partitions_left -= 1;
        partition.encode(self.e);
        if self.partitions_left == 0 {
            self.e.no_tagged_fields();
        }
    }

    /// Ends the array, and gives the encoder back for what follows.
    pub(super) fn end(self) -> &'e mut Encoder {
        assert_eq!(self.partitions_left, 0, "the last topic lacks partitions");
        assert_eq!(self.topics_left, 0, "the response lacks topics");
        self.e
    }
}
