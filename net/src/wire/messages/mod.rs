//! The messages, one file per API, request and response together.
//!
//! Holds: layouts, and the table that ties each to its [`ApiKey`]. Never touches: what a request means.
//!
//! To add an API: its line in `api_key.rs`, its file here (see [`super::message`] for the notation), its line in the table
//! below. The tests walk the table and cover it from then on.

mod alter_configs;
mod api_versions;
mod common;
mod create_partitions;
mod create_topics;
mod delete_records;
mod delete_topics;
mod describe_cluster;
mod describe_configs;
mod describe_log_dirs;
mod describe_producers;
mod describe_topic_partitions;
mod fetch;
mod fetch_writer;
mod incremental_alter_configs;
mod init_producer_id;
mod list_config_resources;
mod list_offsets;
mod metadata;
mod offset_for_leader_epoch;
mod produce;
mod produce_writer;
mod topics_writer;

pub use alter_configs::*;
pub use api_versions::*;
pub use common::*;
pub use create_partitions::*;
pub use create_topics::*;
pub use delete_records::*;
pub use delete_topics::*;
pub use describe_cluster::*;
pub use describe_configs::*;
pub use describe_log_dirs::*;
pub use describe_producers::*;
pub use describe_topic_partitions::*;
pub use fetch::*;
pub use fetch_writer::*;
pub use incremental_alter_configs::*;
pub use init_producer_id::*;
pub use list_config_resources::*;
pub use list_offsets::*;
pub use metadata::*;
pub use offset_for_leader_epoch::*;
pub use produce::*;
pub use produce_writer::*;

use bytes::BytesMut;

use super::encoder::{EncodeErrorKind, Encoded};
use super::header::body_decoder;
use super::{ApiKey, DecodeError, Decoder, EncodeError, Encoder, FieldType, HEAP_BYTES_MAX_DEFAULT, Wire};
use super::{RequestHeader, ResponseHeader};

/// The body of a request.
pub trait Request<'a>: Wire<'a> {
    /// Its API.
    const KEY: ApiKey;

    /// Reads the body; bytes behind it are ignored, as in Kafka.
    ///
    /// # Errors
    /// A version outside [`ApiKey::versions`], or bytes that don't hold such a request.
    fn decode_body(body: &'a [u8], version: i16) -> Result<Self, DecodeError> {
        Self::decode(&mut body_decoder(body, Self::KEY, version)?)
    }

    /// Writes a whole request frame, as a client does.
    ///
    /// # Errors
    /// A version outside [`ApiKey::versions`], or a value that the version has no bytes for.
    fn encode_frame(
        &self,
        buf: BytesMut,
        version: i16,
        correlation_id: i32,
        client_id: Option<&str>,
    ) -> Result<Encoded, EncodeError> {
        let mut e = RequestHeader::begin(buf, Self::KEY, version, correlation_id, client_id);
        encode_body(self, Self::KEY, &mut e);
        e.finish()
    }
}

/// The body of a response.
pub trait Response<'a>: Wire<'a> {
    /// Its API.
    const KEY: ApiKey;

    /// Reads the body, as a client does; nothing may be left behind it.
    ///
    /// # Errors
    /// A version outside [`ApiKey::versions`], or bytes that don't hold such a response.
    fn decode_body(body: &'a [u8], version: i16) -> Result<Self, DecodeError> {
        // A response comes from a broker we chose to trust and may be large; its own bytes bound it.
        let mut d = body_decoder(body, Self::KEY, version)?.with_heap_bytes_max(usize::MAX);
        let response = Self::decode(&mut d)?;
        d.finish().map(|()| response)
    }

    /// Writes a whole response frame.
    ///
    /// # Errors
    /// A version outside [`ApiKey::versions`], or a value that the version has no bytes for.
    fn encode_frame(&self, buf: BytesMut, version: i16, correlation_id: i32) -> Result<Encoded, EncodeError> {
        let mut e = ResponseHeader::begin(buf, Self::KEY, version, correlation_id);
        encode_body(self, Self::KEY, &mut e);
        e.finish()
    }
}

fn encode_body<'a>(body: &impl Wire<'a>, key: ApiKey, e: &mut Encoder) {
    let version = e.version();
    if key.supports(version) {
        body.encode(e);
    } else {
        e.enter(key.name());
        e.fail(EncodeErrorKind::UnsupportedVersion { version });
    }
}

/// The end of a response that may say where other brokers are, in its tagged field 0 from version `since` on.
fn write_node_endpoints(e: &mut Encoder, since: i16, node_endpoints: &[NodeEndpoint<'_>]) {
    if e.version() < since || node_endpoints.is_empty() {
        return e.no_tagged_fields();
    }
    e.uvarint(1);
    e.tagged(0, |e| {
        e.long_len(Some(node_endpoints.len()));
        for endpoint in node_endpoints {
            endpoint.encode(e);
        }
    });
}

macro_rules! bodies {
    ($lt:lifetime $($api:ident: $request:ty, $response:ty;)*) => {
        /// A request of any API: one match hands each to its handler.
        #[derive(Debug, Clone, PartialEq)]
        #[allow(missing_docs, clippy::large_enum_variant)]
        pub enum RequestBody<$lt> {
            $($api($request),)*
        }

        /// A response of any API.
        #[derive(Debug, Clone, PartialEq)]
        #[allow(missing_docs, clippy::large_enum_variant)]
        pub enum ResponseBody<$lt> {
            $($api($response),)*
        }

        $(
            impl<$lt> Request<$lt> for $request {
                const KEY: ApiKey = ApiKey::$api;
            }

            impl<$lt> Response<$lt> for $response {
                const KEY: ApiKey = ApiKey::$api;
            }
        )*

        impl<$lt> RequestBody<$lt> {
            /// Layout of the request of this API, as data.
            pub fn layout(key: ApiKey) -> &'static FieldType {
                match key { $(ApiKey::$api => <$request as Wire<$lt>>::TYPE,)* }
            }

            /// The API.
            pub fn key(&self) -> ApiKey {
                match self { $(Self::$api(_) => ApiKey::$api,)* }
            }

            fn read(key: ApiKey, d: &mut Decoder<$lt>) -> Result<Self, DecodeError> {
                Ok(match key { $(ApiKey::$api => Self::$api(Wire::decode(d)?),)* })
            }

            fn write(&self, e: &mut Encoder) {
                match self { $(Self::$api(body) => body.encode(e),)* }
            }
        }

        impl<$lt> ResponseBody<$lt> {
            /// Layout of the response of this API, as data.
            pub fn layout(key: ApiKey) -> &'static FieldType {
                match key { $(ApiKey::$api => <$response as Wire<$lt>>::TYPE,)* }
            }

            /// The API.
            pub fn key(&self) -> ApiKey {
                match self { $(Self::$api(_) => ApiKey::$api,)* }
            }

            fn read(key: ApiKey, d: &mut Decoder<$lt>) -> Result<Self, DecodeError> {
                Ok(match key { $(ApiKey::$api => Self::$api(Wire::decode(d)?),)* })
            }

            fn write(&self, e: &mut Encoder) {
                match self { $(Self::$api(body) => body.encode(e),)* }
            }
        }
    };
}

bodies! { 'a
    Produce: ProduceRequest<'a>, ProduceResponse<'a>;
    Fetch: FetchRequest<'a>, FetchResponse<'a>;
    ListOffsets: ListOffsetsRequest<'a>, ListOffsetsResponse<'a>;
    Metadata: MetadataRequest<'a>, MetadataResponse<'a>;
    ApiVersions: ApiVersionsRequest<'a>, ApiVersionsResponse<'a>;
    CreateTopics: CreateTopicsRequest<'a>, CreateTopicsResponse<'a>;
    DeleteTopics: DeleteTopicsRequest<'a>, DeleteTopicsResponse<'a>;
    DeleteRecords: DeleteRecordsRequest<'a>, DeleteRecordsResponse<'a>;
    InitProducerId: InitProducerIdRequest<'a>, InitProducerIdResponse;
    OffsetForLeaderEpoch: OffsetForLeaderEpochRequest<'a>, OffsetForLeaderEpochResponse<'a>;
    DescribeConfigs: DescribeConfigsRequest<'a>, DescribeConfigsResponse<'a>;
    AlterConfigs: AlterConfigsRequest<'a>, AlterConfigsResponse<'a>;
    DescribeLogDirs: DescribeLogDirsRequest<'a>, DescribeLogDirsResponse<'a>;
    CreatePartitions: CreatePartitionsRequest<'a>, CreatePartitionsResponse<'a>;
    IncrementalAlterConfigs: IncrementalAlterConfigsRequest<'a>, IncrementalAlterConfigsResponse<'a>;
    DescribeCluster: DescribeClusterRequest, DescribeClusterResponse<'a>;
    DescribeProducers: DescribeProducersRequest<'a>, DescribeProducersResponse<'a>;
    ListConfigResources: ListConfigResourcesRequest, ListConfigResourcesResponse<'a>;
    DescribeTopicPartitions: DescribeTopicPartitionsRequest<'a>, DescribeTopicPartitionsResponse<'a>;
}

impl<'a> RequestBody<'a> {
    /// Reads the body of a request; bytes behind it are ignored, as in Kafka.
    ///
    /// # Errors
    /// A version outside [`ApiKey::versions`], or bytes that don't hold such a request.
    pub fn decode(key: ApiKey, version: i16, body: &'a [u8]) -> Result<Self, DecodeError> {
        Self::decode_within(key, version, body, HEAP_BYTES_MAX_DEFAULT)
    }

    /// [`RequestBody::decode`] with a heap budget of the caller's.
    ///
    /// # Errors
    /// As there.
    pub fn decode_within(
        key: ApiKey,
        version: i16,
        body: &'a [u8],
        heap_bytes_max: usize,
    ) -> Result<Self, DecodeError> {
        Self::read(key, &mut body_decoder(body, key, version)?.with_heap_bytes_max(heap_bytes_max))
    }

    /// Appends the body to a frame begun with [`RequestHeader::begin`].
    pub fn encode(&self, e: &mut Encoder) {
        self.write(e);
    }
}

impl<'a> ResponseBody<'a> {
    /// Reads the body of a response; nothing may be left behind it.
    ///
    /// # Errors
    /// A version outside [`ApiKey::versions`], or bytes that don't hold such a response.
    pub fn decode(key: ApiKey, version: i16, body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut d = body_decoder(body, key, version)?.with_heap_bytes_max(usize::MAX);
        let response = Self::read(key, &mut d)?;
        d.finish().map(|()| response)
    }

    /// Appends the body to a frame begun with [`ResponseHeader::begin`].
    pub fn encode(&self, e: &mut Encoder) {
        self.write(e);
    }
}
