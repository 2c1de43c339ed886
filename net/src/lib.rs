//! Connections and the Kafka wire protocol.
