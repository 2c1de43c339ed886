//! The APIs we speak and the versions of each.
//!
//! Holds: [`ApiKey`], the version table. Never touches: what the broker advertises of it (it advertises only what it
//! implements whole), message layouts.

/// A closed range of message versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionRange {
    /// First version.
    pub min: i16,
    /// Last version.
    pub max: i16,
}

impl VersionRange {
    /// The range from `min` to `max`, both included.
    pub const fn new(min: i16, max: i16) -> Self {
        Self { min, max }
    }

    /// No version at all.
    pub const NONE: Self = Self::new(0, -1);

    /// Whether `version` is in the range.
    #[inline]
    pub const fn contains(self, version: i16) -> bool {
        self.min <= version && version <= self.max
    }

    /// The versions, ascending.
    pub fn iter(self) -> impl Iterator<Item = i16> {
        self.min..=self.max
    }
}

macro_rules! api_keys {
    ($($(#[$meta:meta])* $name:ident = $key:literal,
        versions $min:literal - $max:literal $(advertised from $advertised:literal)?, flexible $flexible:literal +;)*) => {
        /// An API, by its key on the wire. Only what this codec speaks: the broker's match on it has no catch-all arm.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(i16)]
        pub enum ApiKey {
            $(#[doc = concat!(stringify!($name), ", versions ", $min, " to ", $max, ".")] $(#[$meta])* $name = $key,)*
        }

        impl ApiKey {
            /// Every API, by key.
            pub const SUPPORTED: &'static [Self] = &[$(Self::$name),*];

            /// Kafka's name of the API.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            /// The versions that have a layout here: a request outside them is never decoded.
            pub const fn versions(self) -> VersionRange {
                match self { $(Self::$name => VersionRange::new($min, $max),)* }
            }

            /// The versions to show in ApiVersions. Wider than [`ApiKey::versions`] for Produce alone: librdkafka reads its
            /// minimum to decide whether it may compress, so Kafka shows 0 and refuses 0 to 2 when they are used
            /// (KAFKA-18659).
            pub const fn advertised_versions(self) -> VersionRange {
                match self { $(Self::$name => VersionRange::new(first!($($advertised,)? $min), $max),)* }
            }

            /// First version with compact lengths and tagged fields (KIP-482).
            pub const fn flexible_from(self) -> i16 {
                match self { $(Self::$name => $flexible,)* }
            }
        }

        impl TryFrom<i16> for ApiKey {
            type Error = UnknownApiKey;

            #[inline]
            fn try_from(key: i16) -> Result<Self, UnknownApiKey> {
                match key {
                    $($key => Ok(Self::$name),)*
                    _ => Err(UnknownApiKey(key)),
                }
            }
        }
    };
}

macro_rules! first {
    ($first:expr $(, $rest:expr)*) => {
        $first
    };
}

/// A key that isn't in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("API key {0} is not supported")]
pub struct UnknownApiKey(pub i16);

impl ApiKey {
    /// The number on the wire.
    #[inline]
    pub const fn key(self) -> i16 {
        self as i16
    }

    /// Whether `version` of this API has a layout here.
    #[inline]
    pub const fn supports(self, version: i16) -> bool {
        self.versions().contains(version)
    }

    /// Whether `version` of this API has compact lengths and tagged fields (KIP-482).
    #[inline]
    pub const fn is_flexible(self, version: i16) -> bool {
        version >= self.flexible_from()
    }

    /// Version of the request header (KIP-482): 2 ends in tagged fields. Version 0 belonged to ControlledShutdown alone.
    #[inline]
    pub const fn request_header_version(self, version: i16) -> i16 {
        if self.is_flexible(version) { 2 } else { 1 }
    }

    /// Version of the response header: 1 ends in tagged fields. ApiVersions stays at 0, since a client reads that response
    /// before it knows what the broker speaks (KIP-511).
    #[inline]
    pub const fn response_header_version(self, version: i16) -> i16 {
        match self {
            Self::ApiVersions => 0,
            _ if self.is_flexible(version) => 1,
            _ => 0,
        }
    }
}

impl std::fmt::Display for ApiKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

// One line an API; its messages are in `messages/`, and the table there has a line for it too.
api_keys! {
    Produce = 0, versions 3-13 advertised from 0, flexible 9+;
    Fetch = 1, versions 4-18, flexible 12+;
    ListOffsets = 2, versions 1-11, flexible 6+;
    Metadata = 3, versions 0-13, flexible 9+;
    ApiVersions = 18, versions 0-4, flexible 3+;
    CreateTopics = 19, versions 2-7, flexible 5+;
    DeleteTopics = 20, versions 1-6, flexible 4+;
    DeleteRecords = 21, versions 0-2, flexible 2+;
    InitProducerId = 22, versions 0-5, flexible 2+;
    OffsetForLeaderEpoch = 23, versions 2-4, flexible 4+;
    DescribeConfigs = 32, versions 1-4, flexible 4+;
    AlterConfigs = 33, versions 0-2, flexible 2+;
    DescribeLogDirs = 35, versions 1-4, flexible 2+;
    CreatePartitions = 37, versions 0-3, flexible 2+;
    IncrementalAlterConfigs = 44, versions 0-1, flexible 1+;
    DescribeCluster = 60, versions 0-2, flexible 0+;
    DescribeProducers = 61, versions 0-0, flexible 0+;
    ListConfigResources = 74, versions 0-1, flexible 0+;
    DescribeTopicPartitions = 75, versions 0-0, flexible 0+;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_ordered_by_key_and_reads_back() {
        assert!(ApiKey::SUPPORTED.is_sorted());
        for &api in ApiKey::SUPPORTED {
            assert_eq!(ApiKey::try_from(api.key()), Ok(api));
            assert!(api.versions().min <= api.versions().max, "{api}");
        }
        assert_eq!(ApiKey::try_from(7), Err(UnknownApiKey(7)));
    }

    #[test]
    fn produce_is_advertised_from_0_and_decoded_from_3() {
        assert_eq!(ApiKey::Produce.advertised_versions(), VersionRange::new(0, 13));
        assert_eq!(ApiKey::Produce.versions(), VersionRange::new(3, 13));
        assert_eq!(ApiKey::Fetch.advertised_versions(), ApiKey::Fetch.versions());
    }

    #[test]
    fn header_versions_follow_the_flexible_versions_but_for_the_api_versions_response() {
        assert_eq!(ApiKey::Produce.request_header_version(8), 1);
        assert_eq!(ApiKey::Produce.request_header_version(9), 2);
        assert_eq!(ApiKey::Produce.response_header_version(8), 0);
        assert_eq!(ApiKey::Produce.response_header_version(9), 1);
        assert_eq!(ApiKey::ApiVersions.request_header_version(3), 2);
        assert_eq!(ApiKey::ApiVersions.response_header_version(3), 0);
    }
}
