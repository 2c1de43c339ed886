//! ApiVersions (18): what this broker speaks.
//!
//! Holds: the advertised APIs and features. Never touches: anything that changes but the finalized features.

use std::rc::Rc;

use bytes::BytesMut;
use corelog_net::wire::messages::{
    ApiVersion, ApiVersionsRequest, ApiVersionsResponse, FinalizedFeatureKey, SupportedFeatureKey,
};
use corelog_net::wire::{ApiKey, Encoder, ErrorCode, Response, Wire};

use super::{ApiFailure, RequestContext};
use crate::controller::MetadataImage;
use crate::controller::features::FEATURES;
use crate::shard::Shard;
use crate::shard::connection::ClientReply;

/// Answers ApiVersions.
///
/// # Errors
/// None of its own.
pub async fn handle(
    shard: &Rc<Shard>,
    context: &RequestContext,
    request: ApiVersionsRequest<'_>,
    out: &mut Encoder,
) -> Result<(), ApiFailure> {
    answer(&shard.image(), context.version, &request).encode(out);
    Ok(())
}

/// Answers ApiVersions in a version we do not know: in the form of version 0, and with the versions of ApiVersions itself,
/// so that the client can ask again (KIP-511).
///
/// # Errors
/// [`ApiFailure`] if the reply cannot be encoded.
pub fn unsupported_version(context: &RequestContext) -> Result<ClientReply, ApiFailure> {
    let frame = version_unknown().encode_frame(BytesMut::new(), 0, context.correlation_id)?;
    Ok(frame.head.freeze().into())
}

fn version_unknown() -> ApiVersionsResponse<'static> {
    ApiVersionsResponse {
        error_code: ErrorCode::UnsupportedVersion,
        api_keys: vec![advertised(ApiKey::ApiVersions)],
        ..Default::default()
    }
}

fn answer<'a>(image: &'a MetadataImage, version: i16, request: &ApiVersionsRequest<'_>) -> ApiVersionsResponse<'a> {
    // KIP-511: what a client calls itself ends up in metrics and logs, so it has an alphabet.
    let named_well =
        is_software_name(request.client_software_name) && is_software_name(request.client_software_version);
    if version >= 3 && !named_well {
        return ApiVersionsResponse { error_code: ErrorCode::InvalidRequest, ..Default::default() };
    }
    ApiVersionsResponse {
        api_keys: ApiKey::SUPPORTED.iter().copied().map(advertised).collect(),
        supported_features: supported_features(version),
        finalized_features_epoch: image.features_epoch(),
        finalized_features: finalized_features(image),
        ..Default::default()
    }
}

fn advertised(api: ApiKey) -> ApiVersion {
    let versions = api.advertised_versions();
    ApiVersion { api_key: api.key(), min_version: versions.min, max_version: versions.max }
}

fn supported_features(version: i16) -> Vec<SupportedFeatureKey<'static>> {
    FEATURES
        .iter()
        // KAFKA-17492: clients before version 4 do not parse a lowest level of 0.
        .filter(|feature| version >= 4 || feature.min != 0)
        .map(|feature| SupportedFeatureKey { name: feature.name, min_version: feature.min, max_version: feature.max })
        .collect()
}

fn finalized_features(image: &MetadataImage) -> Vec<FinalizedFeatureKey<'_>> {
    let features = image.features().iter().filter(|(_, level)| **level != 0);
    features
        .map(|(name, &level)| FinalizedFeatureKey { name, max_version_level: level, min_version_level: level })
        .collect()
}

/// Letters and digits, with `-` and `.` between them.
fn is_software_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    let ends_well = |end: Option<&u8>| end.is_some_and(u8::is_ascii_alphanumeric);
    ends_well(bytes.first())
        && ends_well(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::Record;

    fn request(name: &'static str) -> ApiVersionsRequest<'static> {
        ApiVersionsRequest { client_software_name: name, client_software_version: "1.0" }
    }

    fn image() -> MetadataImage {
        let mut image = MetadataImage::default();
        let feature = Record::Feature { name: "metadata.version".into(), level: 29, epoch: 4 };
        assert_eq!(image.replay(&feature), Ok(()));
        image
    }

    #[test]
    fn every_api_that_is_spoken_is_advertised_by_key() {
        let image = image();
        let response = answer(&image, 4, &request("librdkafka"));
        let keys: Vec<i16> = response.api_keys.iter().map(|api| api.api_key).collect();
        let spoken: Vec<i16> = ApiKey::SUPPORTED.iter().map(|api| api.key()).collect();
        assert_eq!(keys, spoken);
        let produce = response.api_keys.iter().find(|api| api.api_key == 0);
        assert_eq!(produce.map(|api| (api.min_version, api.max_version)), Some((0, 13)));
    }

    #[test]
    fn the_finalized_features_come_with_their_epoch() {
        let image = image();
        let response = answer(&image, 3, &request("apache-kafka-java"));
        assert_eq!(response.finalized_features_epoch, 4);
        let levels: Vec<_> =
            response.finalized_features.iter().map(|f| (f.name, f.min_version_level, f.max_version_level)).collect();
        assert_eq!(levels, [("metadata.version", 29, 29)]);
        assert!(response.supported_features.iter().any(|f| f.name == "metadata.version"));
    }

    #[test]
    fn below_version_4_no_feature_has_a_lowest_level_of_0() {
        for version in 0..4 {
            assert!(supported_features(version).iter().all(|f| f.min_version != 0));
        }
        assert_eq!(supported_features(4).len(), FEATURES.len());
    }

    #[test]
    fn a_client_with_an_illegal_name_is_refused_from_version_3_on() {
        let image = image();
        for name in ["", "-", "a-", ".a", "a b", "caf\u{e9}", "a/b"] {
            let response = answer(&image, 3, &request(name));
            assert_eq!(response.error_code, ErrorCode::InvalidRequest, "{name:?}");
            assert!(response.api_keys.is_empty());
            assert_eq!(answer(&image, 2, &request(name)).error_code, ErrorCode::None);
        }
        for name in ["a", "apache-kafka-java", "kgo-1.2..3"] {
            assert_eq!(answer(&image, 3, &request(name)).error_code, ErrorCode::None, "{name:?}");
        }
    }

    #[test]
    fn an_unknown_version_is_answered_with_the_versions_of_this_api_alone() {
        let response = version_unknown();
        assert_eq!(response.error_code, ErrorCode::UnsupportedVersion);
        assert_eq!(response.api_keys, [ApiVersion { api_key: 18, min_version: 0, max_version: 4 }]);
    }
}
