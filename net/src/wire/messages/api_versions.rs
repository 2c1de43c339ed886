//! ApiVersions (18): what a broker speaks, asked before anything else.

use crate::wire::ErrorCode;
use crate::wire::message::message;

message! {
    /// Asks which APIs, versions and features there are.
    pub struct ApiVersionsRequest<'a> {
        /// Name of the client library; letters, digits, `-` and `.` (KIP-511).
        client_software_name [3+]: &'a str,
        /// Its version, in the same alphabet.
        client_software_version [3+]: &'a str,
    }
}

message! {
    /// The APIs, versions and features there are.
    ///
    /// A request in an unknown version is answered in the shape of version 0 with
    /// [`ErrorCode::UnsupportedVersion`] and the range of ApiVersions itself (KIP-511): encode this as version 0.
    pub struct ApiVersionsResponse<'a> {
        /// Whether the request was understood.
        error_code [0+]: ErrorCode,
        /// The APIs, each with its versions.
        api_keys [0+]: Vec<ApiVersion>,
        /// Milliseconds the client has to wait before its next request.
        throttle_time_ms [1+]: i32,
        /// Features this broker could run (KIP-584).
        supported_features [3+] tag 0: Vec<SupportedFeatureKey<'a>>,
        /// Counts changes of the finalized features; -1 for unknown.
        finalized_features_epoch [3+] tag 1: i64 = -1,
        /// Features the cluster runs; valid only if the epoch is not negative.
        finalized_features [3+] tag 2: Vec<FinalizedFeatureKey<'a>>,
        /// Left from the move away from ZooKeeper (KIP-866).
        zk_migration_ready [3+] tag 3: bool,
    }
}

message! {
    /// An API and its versions.
    pub struct ApiVersion {
        /// The API's key.
        api_key [0+]: i16,
        /// First version.
        min_version [0+]: i16,
        /// Last version.
        max_version [0+]: i16,
    }
}

message! {
    /// A feature and the levels this broker could run it at.
    pub struct SupportedFeatureKey<'a> {
        /// The feature.
        name [3+]: &'a str,
        /// Lowest level. Below version 4 clients take a minimum of 0 for a mistake (KIP-1022).
        min_version [3+]: i16,
        /// Highest level.
        max_version [3+]: i16,
    }
}

message! {
    /// A feature and the level the cluster runs it at.
    pub struct FinalizedFeatureKey<'a> {
        /// The feature.
        name [3+]: &'a str,
        /// Highest level.
        max_version_level [3+]: i16,
        /// Lowest level.
        min_version_level [3+]: i16,
    }
}
