//! Instruments. Holds: the clock, latencies, what processes use, what a run came to. Never touches: sockets, brokers.

pub mod clock;
pub mod latency;
pub mod process;
pub mod result;
