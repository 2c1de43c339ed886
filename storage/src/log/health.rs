//! Whether a data folder is still what it was when it was taken: there, and willing.
//!
//! Holds: the count of failures that its logs met, the trial write. Never touches: what is done
//! about a folder that has failed (the broker decides).

use super::env::StorageEnv;
use super::event::Event;
use crate::disk::files::{is_shortage, read_file, replace_file, unlink_if_there};
use crate::disk::presence::Presence;
use std::cell::Cell;
use std::io;
use std::path::Path;

/// Name of the file that a trial writes, and removes again; the shard's number follows: each makes its own.
const TRIAL_FILE: &str = ".trial";
/// What it holds.
const TRIAL_BYTES: &[u8] = b"written to see whether this folder still takes writes\n";

/// What is known of a data folder's health.
pub(super) struct Health {
    presence: Presence,
    failures: Cell<u64>,
    failed: Event,
}

impl Health {
    pub(super) fn of(presence: Presence) -> Self {
        Self { presence, failures: Cell::default(), failed: Event::default() }
    }
}

impl StorageEnv {
    /// A read, write or sync in the folder has failed, for no want of space.
    pub fn note_failure(&self) {
        let health = self.health();
        health.failures.set(health.failures.get() + 1);
        health.failed.fire();
    }

    /// The same, of what says so itself: want of space, of handles or of memory is none, nor is a file that is just being exchanged.
    pub(super) fn note_error(&self, error: &io::Error) {
        if !is_shortage(error) && error.kind() != io::ErrorKind::WouldBlock {
            self.note_failure();
        }
    }

    /// How often that has happened.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.health().failures.get()
    }

    /// Waits until it has happened more often than `seen`; returns how often.
    pub async fn until_failed(&self, seen: u64) -> u64 {
        let health = self.health();
        health.failed.until(|| Some(health.failures.get()).filter(|now| *now > seen)).await
    }

    /// Whether the folder is the one that was taken at the start.
    ///
    /// # Errors
    /// When it is not: see [`Presence`].
    pub(super) async fn is_still_there(&self) -> io::Result<()> {
        self.health().presence.check(self.reactor()).await
    }

    /// Tries whether the folder still takes a durable write, and gives it back. A disk that is full, or a broker without
    /// file handles, is no reason to give a folder up.
    ///
    /// # Errors
    /// How it failed.
    pub async fn try_folder(&self) -> io::Result<()> {
        self.is_still_there().await?;
        let path = self.data().join(format!("{TRIAL_FILE}.{}", self.shard()));
        match self.write_and_read(&path).await {
            Err(error) if is_shortage(&error) => Ok(()),
            other => other,
        }
    }

    async fn write_and_read(&self, path: &Path) -> io::Result<()> {
        let reactor = self.reactor();
        replace_file(reactor, path, TRIAL_BYTES.to_vec()).await?;
        let found = read_file(reactor, path).await?;
        unlink_if_there(reactor, path).await?;
        if found == TRIAL_BYTES {
            return Ok(());
        }
        Err(io::Error::other("it gives back other bytes than were written"))
    }
}
