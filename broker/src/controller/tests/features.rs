//! Features and their levels.

use super::World;
use crate::controller::features::METADATA_VERSION;
use crate::controller::request::{FeatureChange, FeatureUpdate, Request, Response, UpdateFeatures};

fn update(
    world: &mut World,
    name: &str,
    level: i16,
    allowed: FeatureChange,
    validate_only: bool,
) -> Result<(), String> {
    let updates = vec![FeatureUpdate { name: name.to_owned(), level, allowed }];
    match world.handle(Request::UpdateFeatures(UpdateFeatures { updates, validate_only })) {
        Response::UpdateFeatures(outcome) => outcome.map_err(|e| e.to_string()),
        other => panic!("{other:?}"),
    }
}

fn refusal(reason: &str) -> Result<(), String> {
    Err(format!("The update failed for all features since the following feature had an error: {reason}"))
}

#[test]
fn a_new_cluster_has_the_newest_metadata_version() {
    let image = World::empty(&[]).controller.image();
    assert_eq!(image.metadata_version(), 29);
    assert_eq!(image.features_epoch(), 1);
    assert_eq!(image.cluster_id().len(), 22);
}

#[test]
fn every_refusal_of_a_level_is_kafkas() {
    use FeatureChange::{SafeDowngrade, UnsafeDowngrade, Upgrade};
    let cases = [
        (
            METADATA_VERSION,
            5,
            Upgrade,
            "Invalid update version 5 for feature metadata.version. Local controller 1 only supports versions 7-29",
        ),
        (
            METADATA_VERSION,
            7,
            Upgrade,
            "Invalid update version 7 for feature metadata.version. Can't downgrade the version of this feature \
             without setting the upgrade type to either safe or unsafe downgrade.",
        ),
        (
            METADATA_VERSION,
            7,
            SafeDowngrade,
            "Unsupported metadata.version downgrade from 29 to 7. Refusing to perform the requested downgrade because \
             it might delete metadata information.",
        ),
        (
            METADATA_VERSION,
            7,
            UnsafeDowngrade,
            "Unsupported metadata.version downgrade from 29 to 7. Unsafe metadata downgrade is not supported in this \
             version.",
        ),
        (
            METADATA_VERSION,
            0,
            UnsafeDowngrade,
            "Invalid update version 0 for feature metadata.version. Local controller 1 only supports versions 7-29",
        ),
        (
            "nope",
            1,
            Upgrade,
            "Invalid update version 1 for feature nope. Local controller 1 does not support this feature.",
        ),
        ("nope", -1, Upgrade, "Invalid update version -1 for feature nope. A feature version cannot be less than 0."),
    ];
    for (name, level, allowed, reason) in cases {
        let mut world = World::empty(&[]);
        assert_eq!(update(&mut world, name, level, allowed, false), refusal(reason));
        assert_eq!(world.controller.image().features_epoch(), 1);
    }
}

#[test]
fn the_same_level_is_accepted_and_raises_the_epoch_unless_only_validated() {
    let mut world = World::empty(&[]);
    assert_eq!(update(&mut world, METADATA_VERSION, 29, FeatureChange::Upgrade, true), Ok(()));
    assert_eq!(world.controller.image().features_epoch(), 1);
    assert_eq!(update(&mut world, METADATA_VERSION, 29, FeatureChange::Upgrade, false), Ok(()));
    assert_eq!(world.controller.image().features_epoch(), 2);
}
