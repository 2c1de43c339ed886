//! Why a run did not come to its end.
//!
//! Holds: one error for the whole tool, with the exit code a script tells it by. Never touches: results; what was measured
//! before an error is kept and marked by whoever measured it.

use std::io;
use std::path::PathBuf;

use corelog_net::wire::{DecodeError, EncodeError, ErrorCode};
use thiserror::Error;

/// What went wrong.
#[derive(Debug, Error)]
pub enum BenchError {
    /// No ring, or no memory for it.
    #[error("cannot set up the load generator: {0}")]
    Setup(String),
    /// Nobody listens there.
    #[error("cannot reach a broker at {address}: {error}. Is it running, and is --bootstrap right?")]
    Unreachable {
        /// Where.
        address: String,
        /// What the system said.
        error: io::Error,
    },
    /// Somebody listens there who speaks another protocol.
    #[error(
        "{address} does not answer as a Kafka broker does: {error}. Is it one, and is this its plain (not TLS) listener?"
    )]
    NoKafka {
        /// Where.
        address: String,
        /// What it did instead.
        error: Box<BenchError>,
    },
    /// The connection ended or failed while it was in use.
    #[error("the broker at {address} {what} while a request was open")]
    Lost {
        /// Where.
        address: String,
        /// In words.
        what: String,
    },
    /// An answer did not come in time.
    #[error("no answer to {api} within {seconds} s: the broker hangs, or the load is far above what it can do")]
    Silent {
        /// What was asked.
        api: &'static str,
        /// How long we waited.
        seconds: u64,
    },
    /// The bytes that came are no answer to what was asked.
    #[error("the broker's answer to {api} can't be read: {error}")]
    Answer {
        /// What was asked.
        api: &'static str,
        /// Where it departs.
        error: DecodeError,
    },
    /// A request could not be written, which is our own mistake or an impossible option.
    #[error("cannot encode {api}: {error}")]
    Request {
        /// What was to be asked.
        api: &'static str,
        /// Why.
        error: EncodeError,
    },
    /// The broker speaks no version that we speak.
    #[error("the broker speaks no version of {api} that this tool speaks")]
    Version {
        /// The API.
        api: &'static str,
    },
    /// The topic isn't there.
    #[error("topic {topic} does not exist: create it with --create, or name another with --topic")]
    NoTopic {
        /// Its name.
        topic: String,
    },
    /// The broker refused.
    #[error("{what}: the broker answered {code}{}", detail.as_deref().map(|text| format!(": {text}")).unwrap_or_default())]
    Refused {
        /// What was asked.
        what: String,
        /// Its error.
        code: ErrorCode,
        /// Its words.
        detail: Option<String>,
    },
    /// The schedule ran away from the broker.
    #[error(
        "the rate of {rate:.0} records/s can't be kept: {behind} records were due and not sent after {seconds:.1} s. \
         The result up to there is kept and marked. Ask for less, or let `ramp` find the highest rate"
    )]
    TooFast {
        /// What was asked for.
        rate: f64,
        /// What is waiting.
        behind: u64,
        /// When that was.
        seconds: f64,
    },
    /// Somebody pressed Ctrl-C.
    #[error("interrupted: what was measured until then is kept and marked")]
    Interrupted,
    /// A peer ended in the middle of a comparison.
    #[error("peer {peer} {what}: {error}")]
    PeerFailed {
        /// Which.
        peer: String,
        /// In words, with where its own words are.
        what: String,
        /// What that looked like from outside.
        error: Box<BenchError>,
    },
    /// What was read is not what was acknowledged.
    #[error("verification failed: {0}")]
    Verify(String),
    /// An option that can't be.
    #[error("{0}")]
    Usage(String),
    /// A file could not be read or written.
    #[error("{path}: {error}")]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// A peer could not be started or stopped.
    #[error("peer {peer}: {what}")]
    Peer {
        /// Which.
        peer: String,
        /// Why.
        what: String,
    },
}

impl BenchError {
    /// What a script tells this by: 2 options, 3 no broker, 4 the broker failed during the run, 5 a rate that can't be
    /// kept, 6 records lost, doubled or out of order, 130 interrupted, 1 the rest.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Unreachable { .. } | Self::NoKafka { .. } | Self::NoTopic { .. } | Self::Version { .. } => 3,
            Self::Refused { code, .. } if is_about_options(*code) => 2,
            Self::Lost { .. }
            | Self::Silent { .. }
            | Self::Answer { .. }
            | Self::Refused { .. }
            | Self::PeerFailed { .. } => 4,
            Self::Interrupted => 130,
            Self::TooFast { .. } => 5,
            Self::Verify(_) => 6,
            Self::Setup(_) | Self::Request { .. } | Self::File { .. } | Self::Peer { .. } => 1,
        }
    }

    /// For `map_err` on a file's path.
    pub fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |error| Self::File { path, error }
    }
}

/// Whether the broker refused what the command line asked for.
const fn is_about_options(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::InvalidPartitions
            | ErrorCode::InvalidTopicException
            | ErrorCode::InvalidConfig
            | ErrorCode::InvalidReplicationFactor
            | ErrorCode::PolicyViolation
    )
}
