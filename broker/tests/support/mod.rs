//! Holds: what the broker's tests share: a disk whose power can be cut, the broker as a process, producers and verifiers, real text.
//! Never touches: the broker's own code; it is tried from outside.

// Each test file is a crate of its own that uses its part of these rooms.
#![allow(dead_code, unused_imports)]

pub mod direct;
pub mod fuse_disk;
pub mod random;
