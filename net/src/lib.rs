//! Connections and the Kafka wire protocol.

pub mod conn;
pub mod wire;
