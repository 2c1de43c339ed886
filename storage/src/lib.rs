//! Partition logs on durable direct I/O.
//!
//! Holds: everything about a partition's bytes, from the batch to the data folder.
//! Never touches: sockets, the Kafka protocol's requests, other brokers.
//!
//! Read [`log`] first: it is the front door. Below it, in this order: [`segment`] (the aligned tail, indexes, the
//! recovery scan), [`commit_log`], [`compact`], [`disk`] (files, checkpoints, spares), [`batch`], [`producers`],
//! [`epochs`], [`ids`].

pub mod batch;
pub mod commit_log;
pub mod compact;
pub mod disk;
pub mod epochs;
pub mod ids;
pub mod log;
pub mod producers;
pub mod segment;
