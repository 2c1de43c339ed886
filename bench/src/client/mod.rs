//! A lean Kafka client on the reactor: what a generator needs and no more.
//!
//! Holds: the thread's ring, connections, the requests that prepare a run. Never touches: load, latencies.

pub mod cluster;
pub mod reader;
pub mod ring;
pub mod rpc;
