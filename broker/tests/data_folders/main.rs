//! Holds: a broker with several data folders: where partitions go, what a folder that is missing, fails or comes back changes,
//! and what it must never change: nothing acknowledged is lost, nothing is made anew in another folder.
//! Never touches: one folder's own faults (see `faulty_disk.rs`).

mod client;
mod failures;
mod starts;
#[path = "../support/mod.rs"]
mod support;
