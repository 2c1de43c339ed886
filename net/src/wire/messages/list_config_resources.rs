//! ListConfigResources (74): what has a configuration. Version 0 is the former ListClientMetricsResources (KIP-714) and
//! lists client metrics only.

use crate::wire::ErrorCode;
use crate::wire::message::message;

message! {
    /// Asks for resources.
    pub struct ListConfigResourcesRequest {
        /// The types, in the codes of DescribeConfigs; empty for all of them (KIP-1142).
        resource_types [1+]: Vec<i8>,
    }
}

message! {
    /// Resources.
    pub struct ListConfigResourcesResponse<'a> {
        /// Milliseconds the client has to wait before its next request.
        throttle_time_ms [0+]: i32,
        /// Whether they could be listed.
        error_code [0+]: ErrorCode,
        /// The resources.
        config_resources [0+]: Vec<ConfigResource<'a>>,
    }
}

message! {
    /// A resource.
    #[derive(Copy)]
    pub struct ConfigResource<'a> {
        /// Its name.
        resource_name [0+]: &'a str,
        /// Its type; 16, client metrics, where the version doesn't say.
        resource_type [1+]: i8 = 16,
    }
}
