//! Requests: one file per API key, and the only match over them.
//!
//! Holds: parsing a frame's header, the context every handler gets, the dispatch, the start and end of a reply. Never
//! touches: logs (through `partition`), sockets.

pub mod alter_configs;
pub mod api_versions;
pub mod common;
pub mod create_partitions;
pub mod create_topics;
pub mod delete_records;
pub mod delete_topics;
pub mod describe_cluster;
pub mod describe_configs;
pub mod describe_log_dirs;
pub mod describe_producers;
pub mod describe_topic_partitions;
pub mod fetch;
pub mod incremental_alter_configs;
pub mod init_producer_id;
pub mod list_config_resources;
pub mod list_offsets;
pub mod metadata;
pub mod offset_for_leader_epoch;
pub mod produce;

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use corelog_net::wire::{
    Api, ApiKey, DecodeError, EncodeError, Encoded, Encoder, ErrorCode, RequestBody, RequestHeader, ResponseHeader,
};
use thiserror::Error;

use crate::shard::Shard;
use crate::shard::connection::{Client, ClientConnection, ClientReply};

/// Who asks. With no authentication yet, always Kafka's anonymous user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal(pub Arc<str>);

impl Principal {
    /// `User:ANONYMOUS`, Kafka's name for an unauthenticated client.
    pub fn anonymous() -> Principal {
        Principal("User:ANONYMOUS".into())
    }
}

/// What a handler knows about a request besides its body.
#[derive(Debug, Clone)]
pub struct RequestContext {
    /// Who asks.
    pub principal: Principal,
    /// Name of the listener it came in by: decides which advertised addresses it is told.
    pub listener: Arc<str>,
    /// The client's own name for itself.
    pub client_id: Option<Arc<str>>,
    /// The client's address.
    pub client_addr: SocketAddr,
    /// Which API.
    pub api_key: ApiKey,
    /// Which version of it.
    pub version: i16,
    /// Comes back in the reply.
    pub correlation_id: i32,
}

/// What somebody wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Read records.
    Read,
    /// Write records.
    Write,
    /// Make a topic.
    Create,
    /// Delete a topic or records.
    Delete,
    /// Change a topic.
    Alter,
    /// See that it exists.
    Describe,
    /// See configuration.
    DescribeConfigs,
    /// Change configuration.
    AlterConfigs,
    /// Produce idempotently.
    IdempotentWrite,
}

/// What it is done to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource<'a> {
    /// The cluster itself.
    Cluster,
    /// A topic by name.
    Topic(&'a str),
    /// A transactional id.
    TransactionalId(&'a str),
}

/// Whether `context` may do `operation` to `resource`. Today everybody may do everything: the security issue puts its
/// rules here, and every handler asks already.
pub fn authorize(_context: &RequestContext, _operation: Operation, _resource: Resource<'_>) -> bool {
    true
}

/// A frame that is no request we can answer: the connection closes, as Kafka's does.
#[derive(Debug, Error)]
pub enum ApiFailure {
    /// Unreadable header or body.
    #[error("malformed request: {0}")]
    Malformed(#[from] DecodeError),
    /// An API key that we don't advertise.
    #[error("API key {key} version {version} is not supported by this broker")]
    UnknownApi {
        /// Its key.
        key: i16,
        /// Its version.
        version: i16,
    },
    /// A version of a known API that we don't advertise.
    #[error("{api} version {version} is not supported by this broker")]
    UnsupportedVersion {
        /// The API.
        api: &'static str,
        /// The version asked for.
        version: i16,
    },
    /// Produce with `acks=0` that failed: the only way to tell such a client is to hang up, as Kafka does.
    #[error("a produce with acks=0 failed: {0}")]
    UnacknowledgedProduceFailed(ErrorCode),
    /// The broker is stopping: what was asked for has no answer any more.
    #[error("the broker is stopping")]
    Stopping,
    /// The answer would be unreasonably long.
    #[error("the reply would be longer than {bytes_max} bytes")]
    ReplyTooLarge {
        /// The limit.
        bytes_max: usize,
    },
    /// A shard has no room for another task: the client comes again.
    #[error("the broker is too busy")]
    Busy,
    /// Our own answer would not fit the protocol.
    #[error("the reply could not be encoded: {0}")]
    Reply(#[from] EncodeError),
}

/// A request whose header is known and whose body is not read yet.
pub enum Parsed {
    /// A produce: they overlap.
    Produce(RequestContext, Bytes),
    /// Anything else we support.
    Other(RequestContext, Bytes),
    /// ApiVersions at a version we don't know: answered in version 0, KIP-511.
    FutureApiVersions(RequestContext),
}

/// Reads a frame's header and decides whether we speak it.
///
/// # Errors
/// [`ApiFailure`]: the connection is to be closed.
pub fn parse(client: &Client, frame: &Bytes) -> Result<Parsed, ApiFailure> {
    let (header, body) = RequestHeader::decode(frame)?;
    let context = |api_key| RequestContext {
        principal: client.principal.clone(),
        listener: Arc::clone(&client.listener),
        client_id: client.client_id(header.client_id),
        client_addr: client.connection.peer(),
        api_key,
        version: header.api_version,
        correlation_id: header.correlation_id,
    };
    match header.api {
        Api::Known(ApiKey::Produce) => Ok(Parsed::Produce(context(ApiKey::Produce), frame.slice_ref(body))),
        Api::Known(key) => Ok(Parsed::Other(context(key), frame.slice_ref(body))),
        Api::UnsupportedVersion(ApiKey::ApiVersions) => Ok(Parsed::FutureApiVersions(context(ApiKey::ApiVersions))),
        Api::UnsupportedVersion(key) => {
            Err(ApiFailure::UnsupportedVersion { api: key.name(), version: header.api_version })
        }
        Api::Unknown => Err(ApiFailure::UnknownApi { key: header.api_key, version: header.api_version }),
    }
}

/// Handles a request of `connection` other than produce, to its encoded reply. A request that waits for something to
/// happen stops waiting when the client has hung up; all others are short, and run to their end.
///
/// # Errors
/// [`ApiFailure`]: the connection is to be closed.
pub async fn handle(
    shard: &Rc<Shard>,
    connection: &ClientConnection,
    parsed: Parsed,
) -> Result<ClientReply, ApiFailure> {
    let (context, body) = match parsed {
        Parsed::Other(context, body) => (context, body),
        Parsed::FutureApiVersions(context) => return api_versions::unsupported_version(&context),
        Parsed::Produce(..) => unreachable!("produces are started, not handled: they overlap"),
    };
    if context.api_key == ApiKey::Fetch {
        // The one reply with payload that is not encoded; and the one request that may run on another shard.
        return fetch::handle(shard, connection, context, body).await;
    }
    // Boxed, so that an idle connection's task does not carry the largest handler's state around.
    let encoded = Box::pin(dispatch(shard, &context, &body)).await?;
    Ok(encoded.head.freeze().into())
}

/// Where every API key meets its handler.
async fn dispatch(shard: &Rc<Shard>, context: &RequestContext, body: &[u8]) -> Result<Encoded, ApiFailure> {
    let out = &mut begin_reply(context);
    match RequestBody::decode(context.api_key, context.version, body)? {
        RequestBody::Produce(_) | RequestBody::Fetch(_) => unreachable!("handled apart"),
        RequestBody::ApiVersions(request) => api_versions::handle(shard, context, request, out).await,
        RequestBody::Metadata(request) => metadata::handle(shard, context, request, out).await,
        RequestBody::ListOffsets(request) => list_offsets::handle(shard, context, request, out).await,
        RequestBody::OffsetForLeaderEpoch(request) => {
            offset_for_leader_epoch::handle(shard, context, request, out).await
        }
        RequestBody::InitProducerId(request) => init_producer_id::handle(shard, context, request, out).await,
        RequestBody::CreateTopics(request) => create_topics::handle(shard, context, request, out).await,
        RequestBody::DeleteTopics(request) => delete_topics::handle(shard, context, request, out).await,
        RequestBody::CreatePartitions(request) => create_partitions::handle(shard, context, request, out).await,
        RequestBody::DeleteRecords(request) => delete_records::handle(shard, context, request, out).await,
        RequestBody::DescribeConfigs(request) => describe_configs::handle(shard, context, request, out).await,
        RequestBody::AlterConfigs(request) => alter_configs::handle(shard, context, request, out).await,
        RequestBody::IncrementalAlterConfigs(request) => {
            incremental_alter_configs::handle(shard, context, request, out).await
        }
        RequestBody::ListConfigResources(request) => list_config_resources::handle(shard, context, request, out).await,
        RequestBody::DescribeCluster(request) => describe_cluster::handle(shard, context, request, out).await,
        RequestBody::DescribeTopicPartitions(request) => {
            describe_topic_partitions::handle(shard, context, request, out).await
        }
        RequestBody::DescribeLogDirs(request) => describe_log_dirs::handle(shard, context, request, out).await,
        RequestBody::DescribeProducers(request) => describe_producers::handle(shard, context, request, out).await,
    }?;
    Ok(std::mem::replace(out, begin_reply(context)).finish()?)
}

/// Replies to Produce and Fetch share chunks of this size: such a reply allocates nothing as long as those before it have
/// left by the time a chunk is full. One that is kept by a slow client keeps its chunk: it is small for that.
const REPLY_CHUNK_BYTES: usize = 4096;
/// What a reply should find free when it begins.
const REPLY_BYTES_EXPECTED: usize = 256;

/// Like [`begin_reply`], in the shard's own buffer; to be ended by [`end_shared_reply`].
fn begin_shared_reply(shard: &Shard, context: &RequestContext) -> Encoder {
    let mut buffer = shard.reply_buffer().take();
    if buffer.capacity() < REPLY_BYTES_EXPECTED {
        buffer.reserve(REPLY_CHUNK_BYTES);
    }
    ResponseHeader::begin(buffer, context.api_key, context.version, context.correlation_id)
}

/// Ends a reply that [`begin_shared_reply`] began.
fn end_shared_reply(shard: &Shard, encoder: Encoder) -> Result<Encoded, EncodeError> {
    let mut encoded = encoder.finish()?;
    let rest = encoded.head.split_off(encoded.head.len());
    // The chunk of a large reply goes with it.
    if encoded.head.len() + rest.capacity() <= REPLY_CHUNK_BYTES {
        *shard.reply_buffer().borrow_mut() = rest;
    }
    Ok(encoded)
}

/// Starts the reply to a request: length, response header; the body comes next.
pub fn begin_reply(context: &RequestContext) -> Encoder {
    ResponseHeader::begin(BytesMut::new(), context.api_key, context.version, context.correlation_id)
}
