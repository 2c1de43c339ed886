//! Corelog, the broker.

pub mod config;
pub mod controller;
pub mod names;
