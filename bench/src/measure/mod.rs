//! Instruments. Holds: the clock, latencies, what processes and the machine use, what a run came to. Never touches: sockets, brokers.

pub mod clock;
pub mod latency;
pub mod machine;
pub mod process;
pub mod result;
