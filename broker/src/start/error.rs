//! Why a broker did not start.
//!
//! Holds: the reasons, their words and their exit codes. Never touches: what happens on the way there.

use std::io;
use std::path::PathBuf;

use corelog_reactor::ring::{KernelMissing, RingError};
use corelog_storage::disk::datadir::DataDirError;
use corelog_storage::disk::probe::ProbeError;
use thiserror::Error;

/// Why the broker did not start, or did not go on.
#[derive(Debug, Error)]
pub enum StartError {
    /// The kernel lacks something we can't do without.
    #[error(transparent)]
    Kernel(#[from] KernelMissing),
    /// A ring could not be made.
    #[error("cannot make an io_uring: {0}")]
    Ring(#[from] RingError),
    /// The data folder can't be used.
    #[error("data folder {0}")]
    Data(#[from] DataDirError),
    /// More than one data folder.
    #[error(
        "log.dirs names {0} folders: this version keeps everything in one. Give it one folder, and run one broker for each disk"
    )]
    SeveralFolders(usize),
    /// The data folder belongs to another broker.
    #[error("{path}/meta.properties is of node {found}, this broker is node {ours}: check node.id and log.dirs")]
    NodeId {
        /// The folder.
        path: PathBuf,
        /// Whose it is.
        found: i32,
        /// Who we are.
        ours: i32,
    },
    /// The file system can't do what durability needs.
    #[error(transparent)]
    Disk(#[from] ProbeError),
    /// The metadata log can't be read, or its first records can't be written.
    #[error("metadata: {0}")]
    Metadata(String),
    /// A listener's address is taken or not ours.
    #[error("cannot listen on {address}: {error}. Is another broker running? Choose another address with --listen")]
    Listen {
        /// The address.
        address: String,
        /// What the system said.
        error: io::Error,
    },
    /// A thread could not be started, or ended by itself.
    #[error("{0}")]
    Thread(String),
    /// No memory for a shard's buffers.
    #[error("no buffer memory: {0}")]
    Memory(String),
}

impl StartError {
    /// The process's exit code: distinct for what an operator must tell apart.
    pub fn exit_code(&self) -> u8 {
        match self {
            StartError::Kernel(missing) => missing.exit_code(),
            StartError::Ring(_) => 70,
            StartError::Data(_) | StartError::SeveralFolders(_) | StartError::NodeId { .. } => 73,
            StartError::Disk(_) => 74,
            StartError::Metadata(_) => 75,
            StartError::Listen { .. } => 76,
            StartError::Thread(_) | StartError::Memory(_) => 71,
        }
    }
}
