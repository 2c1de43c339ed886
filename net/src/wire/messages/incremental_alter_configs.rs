//! IncrementalAlterConfigs (44): changes single entries of a resource's configuration (KIP-339).

use crate::wire::ErrorCode;
use crate::wire::message::message;

message! {
    /// Asks to change configurations.
    pub struct IncrementalAlterConfigsRequest<'a> {
        /// The resources.
        resources [0+]: Vec<IncrementalAlterConfigsResource<'a>>,
        /// Whether to check only.
        validate_only [0+]: bool,
    }
}

message! {
    /// A resource.
    pub struct IncrementalAlterConfigsResource<'a> {
        /// Its type, in the codes of DescribeConfigs.
        resource_type [0+]: i8,
        /// Its name.
        resource_name [0+]: &'a str,
        /// The changes.
        configs [0+]: Vec<IncrementalAlterableConfig<'a>>,
    }
}

message! {
    /// A change of a configuration entry.
    #[derive(Copy)]
    pub struct IncrementalAlterableConfig<'a> {
        /// The entry's name.
        name [0+]: &'a str,
        /// 0 set, 1 delete, 2 append to a list, 3 take from a list.
        config_operation [0+]: i8,
        /// The value to set, append or take.
        value [0+]: Option<&'a str> = Some(""),
    }
}

message! {
    /// What became of the resources.
    pub struct IncrementalAlterConfigsResponse<'a> {
        /// Milliseconds the client has to wait before its next request.
        throttle_time_ms [0+]: i32,
        /// The resources.
        responses [0+]: Vec<AlterConfigsResourceResponse<'a>>,
    }
}

message! {
    /// A resource changed, or not; AlterConfigs answers with the same.
    #[derive(Copy)]
    pub struct AlterConfigsResourceResponse<'a> {
        /// Whether it was changed.
        error_code [0+]: ErrorCode,
        /// Why not, in words.
        error_message [0+]: Option<&'a str> = Some(""),
        /// Its type, as in the request.
        resource_type [0+]: i8,
        /// Its name.
        resource_name [0+]: &'a str,
    }
}
