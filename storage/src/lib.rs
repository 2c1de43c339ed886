//! Partition logs on durable direct I/O.

pub mod ids;
