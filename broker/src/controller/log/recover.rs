//! How a controller comes back from its log.
//!
//! Holds: the replay of a snapshot and the entries behind it. Never touches: files.

use std::sync::Arc;

use thiserror::Error;

use super::Entry;
use crate::config::BrokerConfig;
use crate::controller::codec::{DecodeError, decode};
use crate::controller::features::SupportedFeature;
use crate::controller::image::ReplayError;
use crate::controller::state::Controller;

/// Why a controller does not come back.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RecoverError {
    /// The snapshot or an entry cannot be read.
    #[error("{place} of the metadata log cannot be read: {error}")]
    Decode {
        /// The snapshot, or which entry.
        place: String,
        /// Why.
        error: DecodeError,
    },
    /// A record does not fit what is before it.
    #[error("{place} of the metadata log does not fit what is before it: {error}")]
    Replay {
        /// The snapshot, or which entry.
        place: String,
        /// Why.
        error: ReplayError,
    },
}

/// Replays a log: its snapshot, if it has one, then its entries.
///
/// # Errors
/// [`RecoverError`], with the place that is wrong.
pub fn recover(
    config: Arc<BrokerConfig>,
    features: &'static [SupportedFeature],
    snapshot: Option<&[u8]>,
    entries: &[Entry],
) -> Result<Controller, RecoverError> {
    let mut controller = Controller::new(config, features);
    if let Some(bytes) = snapshot {
        replay(&mut controller, bytes, || "the snapshot".to_owned())?;
    }
    for entry in entries {
        // A leader's first entry of a term says nothing.
        if !entry.bytes.is_empty() {
            replay(&mut controller, &entry.bytes, || format!("entry {}", entry.index))?;
        }
    }
    Ok(controller)
}

fn replay(controller: &mut Controller, bytes: &[u8], place: impl Fn() -> String) -> Result<(), RecoverError> {
    let records = decode(bytes).map_err(|error| RecoverError::Decode { place: place(), error })?;
    for record in &records {
        controller.replay(record).map_err(|error| RecoverError::Replay { place: place(), error })?;
    }
    Ok(())
}
