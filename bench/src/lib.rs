//! An open-loop load generator for Kafka brokers, and comparisons made with it.
//!
//! Holds: everything of the tool; `main.rs` only calls [`run`]. Never touches: the broker's code: it measures from outside
//! and drives any Kafka broker.
//!
//! ```text
//!   cli ──► load (schedule, engines) ──► measure (latency, processes) ──► report (table, files, HTML)
//!               │                              ▲
//!               └── client, payload            └── compare: the same job against two peers, in turn
//! ```

pub mod cli;
pub mod client;
pub mod commands;
pub mod compare;
pub mod error;
pub mod interrupt;
pub mod load;
pub mod measure;
pub mod payload;
pub mod report;

pub use commands::run;
