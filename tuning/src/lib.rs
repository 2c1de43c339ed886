//! What this machine is set to, and what a broker on it would rather have.
//!
//! Holds: the checks of the host. Never touches: settings (it only looks), the broker.
//!
//! The disk probe lives in `corelog_storage::disk::probe`; planning of core/partition maps comes with the tuning issue.

pub mod host;
