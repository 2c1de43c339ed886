//! Whether a data folder is still what it was when it was taken: there, and willing.
//!
//! Holds: the count of failures that its logs met, the file system it lies on, the trial write. Never touches: what is done
//! about a folder that has failed (the broker decides).

use super::env::StorageEnv;
use super::event::Event;
use crate::disk::files::{is_shortage, read_file, replace_file, unlink_if_there};
use std::cell::Cell;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Name of the file that a trial writes, and removes again; the shard's number follows: each makes its own.
const TRIAL_FILE: &str = ".trial";
/// What it holds.
const TRIAL_BYTES: &[u8] = b"written to see whether this folder still takes writes\n";

/// What is known of a data folder's health.
#[derive(Default)]
pub(super) struct Health {
    /// The device of its file system; `None` where nobody can say, and in a simulation.
    device: Option<u64>,
    failures: Cell<u64>,
    failed: Event,
}

impl Health {
    pub(super) fn of(folder: &Path) -> Self {
        Self { device: device_of(folder).ok(), ..Self::default() }
    }
}

fn device_of(folder: &Path) -> io::Result<u64> {
    std::fs::metadata(folder).map(|found| found.dev())
}

impl StorageEnv {
    /// A read, write or sync in the folder has failed, for no want of space.
    pub fn note_failure(&self) {
        let health = self.health();
        health.failures.set(health.failures.get() + 1);
        health.failed.fire();
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

    /// Whether the folder is the one that was taken at the start. If its mount was taken away, another folder has its path:
    /// what is written there by its path is not what the next start finds.
    ///
    /// # Errors
    /// When it is not.
    pub(super) fn is_still_there(&self) -> io::Result<()> {
        let Some(device) = self.health().device.filter(|_| !self.reactor().is_simulated()) else { return Ok(()) };
        if device_of(self.data())? == device {
            return Ok(());
        }
        Err(io::Error::other("its file system is not mounted any more, another folder has its path"))
    }

    /// Tries whether the folder still takes a durable write, and gives it back. A disk that is full, or a broker without
    /// file handles, is no reason to give a folder up.
    ///
    /// # Errors
    /// How it failed.
    pub async fn try_folder(&self) -> io::Result<()> {
        self.is_still_there()?;
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
