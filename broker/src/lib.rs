//! Corelog, the broker: shards, partitions, the Kafka APIs, the controller.
//!
//! Read `shard/mod.rs` first: it is the loop, and everything hangs from it.

pub mod api;
pub mod check;
pub mod config;
pub mod controller;
pub mod counters;
pub mod export;
pub mod fetch_session;
pub mod import;
pub mod names;
pub mod partition;
pub mod server;
pub mod shard;
pub mod start;
