//! The partitions of one session, in the order in which they are read.
//!
//! Holds: each partition's latest request and what the client was last told of it; the order, as a list through a slab.
//! Never touches: other sessions, time.
//!
//! The order is fairness: a partition whose records went out moves to the end, so that a response full of one busy
//! partition cannot starve those behind it (KIP-227).

use super::{FetchKey, FetchPartition, PartitionOutcome};
use corelog_storage::ids::Offset;
use slab::Slab;
use std::collections::HashMap;

/// "No neighbour": the list ends here.
const END: usize = usize::MAX;

/// A partition that a session follows.
#[derive(Debug)]
struct Followed {
    request: FetchPartition,
    /// The high watermark last sent; -1 makes sure that the next one is sent.
    high_watermark: Offset,
    /// The log start offset last sent.
    log_start_offset: Offset,
    before: usize,
    after: usize,
}

impl Followed {
    /// Takes in what was read; returns whether the client must hear of it.
    fn observe(&mut self, outcome: &PartitionOutcome) -> bool {
        let is_news = outcome.has_records
            || outcome.is_error
            || outcome.has_diverging_epoch
            || outcome.has_preferred_replica
            || self.high_watermark != outcome.high_watermark
            || self.log_start_offset != outcome.log_start_offset;
        // After an error the partition is sent again as soon as the error is gone, whatever its high watermark is then.
        self.high_watermark = if outcome.is_error { Offset::NONE } else { outcome.high_watermark };
        self.log_start_offset = outcome.log_start_offset;
        is_news
    }
}

/// The partitions of one session.
#[derive(Debug)]
pub(super) struct SessionPartitions {
    /// Hashed with a secret of the process: clients choose the keys, and must not be able to make them collide.
    by_key: HashMap<FetchKey, usize>,
    nodes: Slab<Followed>,
    first: usize,
    last: usize,
}

impl SessionPartitions {
    pub(super) fn with_capacity(partitions: usize) -> Self {
        Self {
            by_key: HashMap::with_capacity(partitions),
            nodes: Slab::with_capacity(partitions),
            first: END,
            last: END,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Follows a partition: one already here keeps its place and takes the new parameters.
    pub(super) fn follow(&mut self, request: FetchPartition) {
        match self.by_key.get(&request.key) {
            Some(&at) => {
                if let Some(node) = self.nodes.get_mut(at) {
                    node.request = request;
                }
            }
            None => self.insert_last(request, Offset::NONE, Offset::NONE),
        }
    }

    /// Follows a partition of which the client has just been told. It must not be followed yet.
    pub(super) fn follow_told(&mut self, request: FetchPartition, told: &PartitionOutcome) {
        self.insert_last(request, told.high_watermark, told.log_start_offset);
    }

    fn insert_last(&mut self, request: FetchPartition, high_watermark: Offset, log_start_offset: Offset) {
        let key = request.key.clone();
        let at = self.nodes.insert(Followed { request, high_watermark, log_start_offset, before: END, after: END });
        let earlier = self.by_key.insert(key, at);
        assert!(earlier.is_none(), "a partition is followed twice, at {earlier:?} and {at}");
        self.link_last(at);
    }

    /// Stops following a partition; unknown ones are ignored.
    pub(super) fn forget(&mut self, key: &FetchKey) {
        if let Some(at) = self.by_key.remove(key) {
            self.unlink(at);
            self.nodes.remove(at);
        }
    }

    /// Takes in what was read of one partition; returns whether it belongs into the response.
    /// A partition with records goes to the end of the order. One that is not followed is always news.
    pub(super) fn observe(&mut self, key: &FetchKey, outcome: &PartitionOutcome) -> bool {
        let Some(&at) = self.by_key.get(key) else {
            return true;
        };
        let Some(node) = self.nodes.get_mut(at) else {
            return true;
        };
        let is_news = node.observe(outcome);
        if outcome.has_records {
            self.unlink(at);
            self.link_last(at);
        }
        is_news
    }

    /// Appends every partition's request to `into`, in order.
    pub(super) fn copy_into(&self, into: &mut Vec<FetchPartition>) {
        let mut at = self.first;
        while let Some(node) = self.nodes.get(at) {
            into.push(node.request.clone());
            at = node.after;
        }
    }

    fn link_last(&mut self, at: usize) {
        let last = self.last;
        if let Some(node) = self.nodes.get_mut(at) {
            node.before = last;
            node.after = END;
        }
        match self.nodes.get_mut(last) {
            Some(previous) => previous.after = at,
            None => self.first = at,
        }
        self.last = at;
    }

    fn unlink(&mut self, at: usize) {
        let Some((before, after)) = self.nodes.get(at).map(|node| (node.before, node.after)) else {
            return;
        };
        match self.nodes.get_mut(before) {
            Some(previous) => previous.after = after,
            None => self.first = after,
        }
        match self.nodes.get_mut(after) {
            Some(next) => next.before = before,
            None => self.last = before,
        }
    }
}
