//! The controller room: who decides what topics there are.
//!
//! ```text
//!   Request --> Controller::handle(request, now, random) --> (Response, records)
//!                      |  (its own state is already ahead)        |
//!                      |                                          v
//!                      |                             MetadataLog::append, durable
//!                      v                                          |
//!                MetadataImage --- published to the cores, and the response sent, once that is done
//! ```
//!
//! Holds: a pure state machine, the records of its log, their bytes, and the image that every core reads.
//! Never touches: sockets, clocks, random sources; only `log` touches files.

mod brokers;
pub mod codec;
mod configs;
pub mod delta;
mod directories;
pub mod error;
pub mod features;
pub mod image;
pub mod log;
mod placement;
pub mod record;
pub mod request;
pub mod shared_map;
pub mod snapshot;
pub mod state;
#[cfg(test)]
mod tests;
mod topics;

pub use brokers::PRODUCER_ID_BLOCK_LEN;
pub use delta::Delta;
pub use error::ErrorClass;
pub use image::{BrokerImage, MetadataImage, PartitionImage, ReplayError, TopicImage};
pub use record::{ConfigResource, DirectoryId, Endpoint, Record, ResourceKind};
pub use request::{Request, Response};
pub use state::{Controller, Outcome, Random};
pub use topics::PARTITIONS_PER_REQUEST_MAX;
