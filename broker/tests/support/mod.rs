//! Holds: what the broker's tests share: a disk whose power can be cut, the broker as a process, producers and verifiers, real text.
//! Never touches: the broker's own code; it is tried from outside.

// Each test file is a crate of its own that uses its part of these rooms.
#![allow(dead_code, unused_imports)]

pub mod admin;
pub mod bomb;
pub mod broker;
pub mod direct;
pub mod fuse_disk;
pub mod random;
pub mod raw;
pub mod requests;
pub mod sockets;
pub mod status;
pub mod verifier;
pub mod workload;

/// A number from the environment, for tests that can be run longer than by default.
pub fn number_from_environment(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} must be a whole number, not {text:?}")),
        Err(_) => default,
    }
}
