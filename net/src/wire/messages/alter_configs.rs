//! AlterConfigs (33): replaces a resource's whole configuration. IncrementalAlterConfigs took its place.

use super::AlterConfigsResourceResponse;
use crate::wire::message::message;

message! {
    /// Asks to replace configurations.
    pub struct AlterConfigsRequest<'a> {
        /// The resources.
        resources [0+]: Vec<AlterConfigsResource<'a>>,
        /// Whether to check only.
        validate_only [0+]: bool,
    }
}

message! {
    /// A resource.
    pub struct AlterConfigsResource<'a> {
        /// Its type, in the codes of DescribeConfigs.
        resource_type [0+]: i8,
        /// Its name.
        resource_name [0+]: &'a str,
        /// All the entries it shall have.
        configs [0+]: Vec<AlterableConfig<'a>>,
    }
}

message! {
    /// A configuration entry.
    #[derive(Copy)]
    pub struct AlterableConfig<'a> {
        /// Its name.
        name [0+]: &'a str,
        /// Its value.
        value [0+]: Option<&'a str> = Some(""),
    }
}

message! {
    /// What became of the resources.
    pub struct AlterConfigsResponse<'a> {
        /// Milliseconds the client has to wait before its next request.
        throttle_time_ms [0+]: i32,
        /// The resources.
        responses [0+]: Vec<AlterConfigsResourceResponse<'a>>,
    }
}
