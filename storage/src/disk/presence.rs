//! Whether a data folder's path still leads to the folder that was taken at the start.
//!
//! Holds: the device of its file system. Never touches: what is in it; what is done when it is gone (the broker decides).
//!
//! If a mount is taken away, its path leads to what lies below. Files that are open go on, on the file system that they are
//! on; one that is made by its path is not there at the next start. So whatever makes a file that acknowledged records are
//! to go to looks here when it has made it.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// A data folder as it was taken.
#[derive(Clone, Debug)]
pub(crate) struct Presence {
    folder: PathBuf,
    /// The device of its file system; `None` where nobody can say, and in a simulation.
    device: Option<u64>,
}

impl Presence {
    /// Of the folder as it is now.
    pub(crate) fn of(folder: &Path, is_simulated: bool) -> Self {
        let device = if is_simulated { None } else { device_of(folder).ok() };
        Self { folder: folder.to_path_buf(), device }
    }

    /// # Errors
    /// When the path leads elsewhere now, or nowhere.
    pub(crate) fn check(&self) -> io::Result<()> {
        let Some(device) = self.device else { return Ok(()) };
        if device_of(&self.folder)? == device {
            return Ok(());
        }
        Err(io::Error::other("its file system is not mounted any more, another folder has its path"))
    }
}

fn device_of(folder: &Path) -> io::Result<u64> {
    std::fs::metadata(folder).map(|found| found.dev())
}
