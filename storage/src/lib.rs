//! Partition logs on durable direct I/O.

pub mod batch;
pub mod ids;
