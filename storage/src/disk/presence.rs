//! Whether a data folder's path still leads to the folder that was taken at the start.
//!
//! Holds: the device of its file system. Never touches: what is in it; what is done when it is gone (the broker decides).
//!
//! If a mount is taken away, its path leads to what lies below. Files that are open go on, on the file system that they are
//! on; one that is made by its path is not there at the next start. So whatever makes a file that acknowledged records are
//! to go to looks here when it has made it.

use corelog_reactor::Reactor;
use std::io;
use std::path::{Path, PathBuf};

/// A data folder as it was taken.
#[derive(Clone, Debug)]
pub(crate) struct Presence {
    folder: PathBuf,
    /// The device of its file system; `None` where nobody can say.
    device: Option<u64>,
}

impl Presence {
    /// Of the folder as it is now.
    pub(crate) fn of(reactor: &Reactor, folder: &Path) -> Self {
        Self { folder: folder.to_path_buf(), device: reactor.device_of_now(folder).ok() }
    }

    /// # Errors
    /// When the path leads elsewhere now, or nowhere.
    pub(crate) async fn check(&self, reactor: &Reactor) -> io::Result<()> {
        let Some(device) = self.device else { return Ok(()) };
        if reactor.device_of(&self.folder).await? == device {
            return Ok(());
        }
        Err(io::Error::other("its file system is not mounted any more, another folder has its path"))
    }
}
