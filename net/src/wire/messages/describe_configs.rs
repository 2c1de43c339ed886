//! DescribeConfigs (32).

use crate::wire::ErrorCode;
use crate::wire::message::message;

message! {
    /// Asks for configurations.
    pub struct DescribeConfigsRequest<'a> {
        /// The resources.
        resources [0+]: Vec<DescribeConfigsResource<'a>>,
        /// Whether to list where else each entry is set (KIP-226).
        include_synonyms [1+]: bool,
        /// Whether to explain each entry (KIP-569).
        include_documentation [3+]: bool,
    }
}

message! {
    /// A resource.
    pub struct DescribeConfigsResource<'a> {
        /// 2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group.
        resource_type [0+]: i8,
        /// Its name.
        resource_name [0+]: &'a str,
        /// The entries; null for all of them.
        configuration_keys [0+]: Option<Vec<&'a str>> = Some(Vec::new()),
    }
}

message! {
    /// Configurations.
    pub struct DescribeConfigsResponse<'a> {
        /// Milliseconds the client has to wait before its next request.
        throttle_time_ms [0+]: i32,
        /// The resources.
        results [0+]: Vec<DescribeConfigsResult<'a>>,
    }
}

message! {
    /// A resource.
    pub struct DescribeConfigsResult<'a> {
        /// Whether it could be described.
        error_code [0+]: ErrorCode,
        /// Why not, in words.
        error_message [0+]: Option<&'a str> = Some(""),
        /// Its type, as in the request.
        resource_type [0+]: i8,
        /// Its name.
        resource_name [0+]: &'a str,
        /// Its entries.
        configs [0+]: Vec<DescribeConfigsResourceResult<'a>>,
    }
}

message! {
    /// A configuration entry.
    pub struct DescribeConfigsResourceResult<'a> {
        /// Its name.
        name [0+]: &'a str,
        /// Its value; null if sensitive or unset.
        value [0+]: Option<&'a str> = Some(""),
        /// Whether it can't be changed while the broker runs.
        read_only [0+]: bool,
        /// Where it comes from: 1 topic, 2 broker (dynamic), 3 cluster default (dynamic), 4 broker's file, 5 built-in
        /// default, 6 broker logger, 7 client metrics, 8 group; -1 unknown.
        config_source [1+]: i8 = -1,
        /// Whether the value is a secret.
        is_sensitive [0+]: bool,
        /// The places it is set in, the one in force first.
        synonyms [1+]: Vec<DescribeConfigsSynonym<'a>>,
        /// 1 boolean, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list, 8 class, 9 password; 0 unknown.
        config_type [3+]: i8,
        /// What it does.
        documentation [3+]: Option<&'a str> = Some(""),
    }
}

message! {
    /// A place where an entry is set.
    #[derive(Copy)]
    pub struct DescribeConfigsSynonym<'a> {
        /// The entry's name there.
        name [1+]: &'a str,
        /// Its value there; null if sensitive.
        value [1+]: Option<&'a str> = Some(""),
        /// The place, in the codes of [`DescribeConfigsResourceResult::config_source`].
        source [1+]: i8,
    }
}
