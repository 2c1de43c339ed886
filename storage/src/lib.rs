//! Partition logs on durable direct I/O.
