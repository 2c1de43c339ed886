//! Why a broker did not start.
//!
//! Holds: the reasons, their words and their exit codes. Never touches: what happens on the way there.

use std::io;
use std::path::PathBuf;

use corelog_reactor::ring::{KernelMissing, RingError};
use corelog_storage::disk::datadir::DataDirError;
use corelog_storage::disk::files::remedy;
use corelog_storage::disk::probe::ProbeError;
use corelog_storage::ids::TopicId;
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
    /// The data folder belongs to another broker.
    #[error(
        "{path} is the data folder of node {found} (its meta.properties says so), and this broker is node {ours}: set node.id={found}, or give this broker a folder of its own with --data-dir or log.dirs"
    )]
    NodeId {
        /// The folder.
        path: PathBuf,
        /// Whose it is.
        found: i32,
        /// Who we are.
        ours: i32,
    },
    /// A data folder belongs to another cluster.
    #[error(
        "{path} is a data folder of cluster {found} (its meta.properties says so), and the first one is of cluster {ours}: take \
         it out of log.dirs, or put back the disk that belongs there"
    )]
    ClusterId {
        /// The folder.
        path: PathBuf,
        /// Whose it is.
        found: String,
        /// The first folder's.
        ours: String,
    },
    /// The first data folder is new, another one is not.
    #[error(
        "{first}, the first of log.dirs, is no data folder yet, and {path} is: the first has the metadata of all. Is its disk \
         mounted? If log.dirs was put in another order, put the old first folder first again. Nothing was changed"
    )]
    FirstIsNew {
        /// The first folder.
        first: PathBuf,
        /// The other one.
        path: PathBuf,
    },
    /// The metadata log is in another data folder than the first.
    #[error(
        "the metadata log (__cluster_metadata-0) is in {path}, and belongs in {first}, the first of log.dirs: put {path} first, \
         as it was"
    )]
    MetadataElsewhere {
        /// The first folder.
        first: PathBuf,
        /// The other one.
        path: PathBuf,
    },
    /// The first of several data folders has failed while the broker ran.
    #[error(
        "{path}, the first of log.dirs, has failed: {reason}. It has the metadata, without which the other folders can't be \
         served. Look for the disk's errors in `dmesg`, put them right, and start again: what was acknowledged is recovered"
    )]
    FirstFolderFailed {
        /// The folder.
        path: PathBuf,
        /// How.
        reason: String,
    },
    /// Two data folders have one id.
    #[error(
        "{path} has the directory.id {id}, as another folder of log.dirs: one is a copy of the other. Take the copy out of log.dirs"
    )]
    SameDirectory {
        /// The later of the two.
        path: PathBuf,
        /// The id.
        id: TopicId,
    },
    /// The data folder is a Kafka's.
    #[error(
        "{path} is the data folder of a Kafka: Corelog keeps its metadata in another form. Nothing was changed. Make a folder of \
         its own of it: corelog import {path} --into DIR --config SERVER_PROPERTIES (see corelog import --help), and start on DIR"
    )]
    Kafka {
        /// The folder.
        path: PathBuf,
    },
    /// The file system can't do what durability needs.
    #[error(transparent)]
    Disk(#[from] ProbeError),
    /// The metadata log can't be read, or its first records can't be written.
    #[error("metadata: {0}")]
    Metadata(String),
    /// A listener's address is taken or not ours.
    #[error("cannot listen on {address} (listeners, --listen): {error}. {}", listen_remedy(error, *port))]
    Listen {
        /// The address.
        address: String,
        /// Its port.
        port: u16,
        /// What the system said.
        error: io::Error,
    },
    /// A thread could not be started, or ended by itself.
    #[error("{0}")]
    Thread(String),
    /// No memory for a shard's buffers.
    #[error(
        "no memory for the buffers of shard {shard}: the system refuses {} MiB. Lower corelog.memory.bytes.per.core \
         ({bytes} now), or raise the limit of address space (ulimit -v, systemd: LimitAS=); vm.overcommit_memory=2 refuses, too",
        bytes >> 20
    )]
    Memory {
        /// Whose.
        shard: u16,
        /// How much it was to be.
        bytes: u64,
    },
}

/// What to do about an address that cannot be listened on.
fn listen_remedy(error: &io::Error, port: u16) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "Something listens there already, perhaps another broker: `ss -ltnp 'sport = :{port}'` shows what. Stop it, or choose \
             another port"
        ),
        io::ErrorKind::PermissionDenied => format!(
            "A port below net.ipv4.ip_unprivileged_port_start (1024) takes CAP_NET_BIND_SERVICE (systemd: \
             AmbientCapabilities=CAP_NET_BIND_SERVICE; or `setcap cap_net_bind_service=+ep` on the binary): {port} needs that, \
             or choose a port from 1024 on"
        ),
        io::ErrorKind::AddrNotAvailable => {
            "No interface of this machine has this address: `ip address` shows those there are. To listen on all of them, use \
             0.0.0.0, with advertised.listeners for the name that clients connect to"
                .to_owned()
        }
        _ if error.raw_os_error().is_none() => {
            "The name has no address here: look at /etc/hosts and the name server, or listen on an address".to_owned()
        }
        _ => format!("Choose another address{}", remedy(error)),
    }
}

impl StartError {
    /// The process's exit code: distinct for what an operator must tell apart.
    pub fn exit_code(&self) -> u8 {
        match self {
            StartError::Kernel(missing) => missing.exit_code(),
            StartError::Ring(_) => 70,
            StartError::Data(_)
            | StartError::NodeId { .. }
            | StartError::ClusterId { .. }
            | StartError::FirstIsNew { .. }
            | StartError::MetadataElsewhere { .. }
            | StartError::SameDirectory { .. }
            | StartError::Kafka { .. } => 73,
            StartError::Disk(_) | StartError::FirstFolderFailed { .. } => 74,
            StartError::Metadata(_) => 75,
            StartError::Listen { .. } => 76,
            StartError::Thread(_) | StartError::Memory { .. } => 71,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_that_an_address_is_refused_names_its_own_fix() {
        let cases = [
            (io::Error::from_raw_os_error(libc::EADDRINUSE), "ss -ltnp 'sport = :80'"),
            (io::Error::from_raw_os_error(libc::EACCES), "CAP_NET_BIND_SERVICE"),
            (io::Error::from_raw_os_error(libc::EADDRNOTAVAIL), "ip address"),
            (io::Error::from_raw_os_error(libc::EMFILE), "ulimit -n"),
            (io::Error::other("failed to lookup address information"), "/etc/hosts"),
        ];
        for (error, fix) in cases {
            let failure = StartError::Listen { address: "h:80".into(), port: 80, error };
            assert!(failure.to_string().contains(fix), "{failure}");
            assert_eq!(failure.exit_code(), 76);
        }
    }
}
