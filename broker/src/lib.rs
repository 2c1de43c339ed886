//! Corelog, the broker.
