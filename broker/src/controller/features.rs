//! The features of the cluster and their levels (KIP-584).
//!
//! Holds: which features this version supports, and changes of their levels.
//! Never touches: what a level means to others.

use super::error::UpdateFeatureError;
use super::record::Record;
use super::request::{FeatureChange, UpdateFeatures};
use super::state::Controller;

/// The feature that says which records and APIs the cluster may use.
pub const METADATA_VERSION: &str = "metadata.version";

/// A feature that this version supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SupportedFeature {
    /// Its name.
    pub name: &'static str,
    /// The lowest level.
    pub min: i16,
    /// The highest level.
    pub max: i16,
    /// The level that a new cluster starts with; 0: off.
    pub bootstrap: i16,
}

/// The features that are whole. 7 is Kafka 3.3, 29 is Kafka 4.2.
pub const FEATURES: &[SupportedFeature] =
    &[SupportedFeature { name: METADATA_VERSION, min: 7, max: 29, bootstrap: 29 }];

impl Controller {
    /// Changes levels: all of them, or none and the first reason why not.
    pub(super) fn update_features(&self, request: &UpdateFeatures) -> (Result<(), UpdateFeatureError>, Vec<Record>) {
        let mut records = Vec::new();
        for (epoch, update) in (self.image.features_epoch() + 1..).zip(&request.updates) {
            if let Err(error) = self.check_feature(&update.name, update.level, update.allowed) {
                return (Err(error), Vec::new());
            }
            records.push(Record::Feature { name: update.name.clone(), level: update.level, epoch });
        }
        if request.validate_only {
            records.clear();
        }
        (Ok(()), records)
    }

    fn check_feature(&self, name: &str, level: i16, allowed: FeatureChange) -> Result<(), UpdateFeatureError> {
        let current = self.image.features().get(name).copied().unwrap_or(0);
        self.check_level(name, level, current, allowed).map_err(|reason| UpdateFeatureError::InvalidVersion {
            name: name.to_owned(),
            level,
            reason,
        })?;
        if name == METADATA_VERSION && level < current {
            let reason = match allowed {
                FeatureChange::UnsafeDowngrade => "Unsafe metadata downgrade is not supported in this version.",
                FeatureChange::Upgrade | FeatureChange::SafeDowngrade => {
                    "Refusing to perform the requested downgrade because it might delete metadata information."
                }
            };
            return Err(UpdateFeatureError::MetadataDowngrade { from: current, to: level, reason });
        }
        Ok(())
    }

    fn check_level(&self, name: &str, level: i16, current: i16, allowed: FeatureChange) -> Result<(), String> {
        if level < 0 {
            return Err("A feature version cannot be less than 0.".to_owned());
        }
        let node = self.config.node_id;
        match self.features.iter().find(|f| f.name == name) {
            None if level == 0 => {}
            None => return Err(format!("Local controller {node} does not support this feature.")),
            Some(feature) if (feature.min..=feature.max).contains(&level) => {}
            // Level 0 switches a feature off; the metadata version cannot be.
            Some(feature) if level == 0 && feature.name != METADATA_VERSION => {}
            Some(feature) if feature.min == feature.max => {
                return Err(format!("Local controller {node} only supports versions {}", feature.max));
            }
            Some(feature) => {
                return Err(format!("Local controller {node} only supports versions {}-{}", feature.min, feature.max));
            }
        }
        let upgrade = allowed == FeatureChange::Upgrade;
        if level < current && upgrade {
            return Err("Can't downgrade the version of this feature without setting the upgrade type to either safe \
                        or unsafe downgrade."
                .to_owned());
        }
        if level > current && !upgrade {
            return Err("Can't downgrade to a newer version.".to_owned());
        }
        Ok(())
    }
}
