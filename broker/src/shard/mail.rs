//! What shards say to each other.
//!
//! Holds: the closed set of messages between cores. Never touches: how they travel (the reactor's mailboxes) or what
//! they do to a partition.
//!
//! Every exchange is one [`Mail::Ask`] and one [`Mail::Answer`] with the same [`AskId`]; messages of one pair of shards
//! arrive in the order they were sent, which is what keeps a connection's produces to one partition in order.

use std::net::SocketAddr;
use std::sync::Arc;

use corelog_net::wire::ErrorCode;
use corelog_reactor::RawConn;

use crate::api::fetch::{FetchAsk, FetchDone};
use crate::controller::{self, MetadataImage};
use crate::partition::call::{PartitionAnswer, PartitionCall, PartitionKey};
use crate::partition::produce::{ProduceEntry, ProduceOutcome};
use crate::partition::read::{PartitionData, PartitionRead};
use crate::partition::watch::WatchEntry;
use crate::shard::by_owner::Parts;

/// Correlates an answer with its ask, on the shard that asked. The generation tells a slot's later tenant from its earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AskId {
    /// Slot in the asking shard's table.
    pub index: u32,
    /// Which use of the slot this is.
    pub generation: u32,
}

/// A message from one shard to another.
pub enum Mail {
    /// A connection accepted elsewhere: it lives here from now on.
    Connection {
        /// The accepted socket.
        raw: RawConn,
        /// The client's address.
        peer: SocketAddr,
        /// Index into the broker's listeners.
        listener: usize,
    },
    /// Do something and answer.
    Ask {
        /// Whom to answer.
        id: AskId,
        /// What is asked.
        ask: Ask,
    },
    /// The answer to an ask of this shard.
    Answer {
        /// The ask it belongs to.
        id: AskId,
        /// The answer.
        answer: Answer,
    },
    /// Nobody waits for news on this ask any more: an [`Ask::Watch`] is forgotten and not answered, an [`Ask::Fetch`]
    /// answers with what there is. Other asks are short: it means nothing to them.
    Cancel {
        /// The ask, as the sender of this mail knows it.
        id: AskId,
    },
}

/// What one shard can ask of another (or of itself, by the same path).
pub enum Ask {
    /// Append batches; answered when all that must be durable is durable.
    Produce(Parts<ProduceEntry>),
    /// Read from partitions what is in memory, now.
    Read {
        /// The partitions, in the request's order.
        reads: Parts<PartitionRead>,
        /// The most bytes from all of them together.
        bytes_max: usize,
    },
    /// Read from partitions, from the disk where need be.
    ReadDisk(Parts<PartitionRead>),
    /// Tell when any of these partitions has something to read.
    Watch(Parts<WatchEntry>),
    /// Small control-plane calls on partitions.
    Call(Parts<(PartitionKey, PartitionCall)>),
    /// A request to the controller (shard 0 only).
    Controller(Box<controller::Request>),
    /// Run a fetch whose session lives on that shard.
    Fetch(Box<FetchAsk>),
    /// Take over a new metadata image.
    Apply(Arc<MetadataImage>),
}

/// Answers, one kind for each [`Ask`].
pub enum Answer {
    /// One outcome an entry, in the entries' order.
    Produce(Parts<ProduceOutcome>),
    /// One result a read, in order; to either way of reading.
    Read(Parts<PartitionData>),
    /// A watched partition moved, or its deadline passed.
    Watch,
    /// One answer a call, in order.
    Call(Vec<PartitionAnswer>),
    /// The controller's answer.
    Controller(Box<Result<controller::Response, ErrorCode>>),
    /// The encoded reply.
    Fetch(Box<FetchDone>),
    /// The image is in force here.
    Apply,
    /// The shard asked is stopping.
    Stopping,
    /// The shard asked has no room for another task; nothing was done.
    Busy,
}
