//! Fetch (1): reads from many partitions, at once or by long poll, with or without a session.
//!
//! Holds: the course of a fetch: session, reading ([`reading`]), encoding. Never touches: logs (through
//! `partition/read.rs` on their owners), the session rules (`fetch_session`).
//!
//! ```text
//!   frame ──> session's home shard? ──> begin ──> read_until_enough ──> finish ──> encode
//! ```
//!
//! A client that hangs up ends the wait: what there is then is its answer, which reaches a client that closed only its
//! sending side, and nobody else.

mod reading;

use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use corelog_net::conn::Item;
use corelog_net::wire::messages::{
    AbortedTransaction, FetchEpochEndOffset, FetchPartitionData, FetchRequest, FetchResponse, FetchResponseWriter,
    Request, Response,
};
use corelog_net::wire::{Encoded, ErrorCode, Piece, Records, Uuid};
use corelog_storage::ids::{LeaderEpoch, Offset, PartitionIndex, TopicId};
use corelog_storage::log::AbortedTxn;
use smallvec::SmallVec;

use self::reading::{Limits, Target, read_until_enough};
use super::{ApiFailure, Operation, RequestContext, Resource, authorize, begin_shared_reply, end_shared_reply};
use crate::controller::MetadataImage;
use crate::fetch_session::{
    EPOCH_FINAL, FetchContext, FetchKey, FetchPartition, FetchTopic, PartitionOutcome, SESSION_ID_NONE, SessionError,
    SessionRequest, session_home,
};
use crate::partition::call::PartitionKey;
use crate::partition::payload::Payload;
use crate::partition::read::{PartitionData, PartitionRead};
use crate::shard::Shard;
use crate::shard::ask::{AskFuture, Woken, any_answer};
use crate::shard::by_owner::Parts;
use crate::shard::connection::{ClientConnection, ClientReply};
use crate::shard::mail::{Answer, Ask};

/// Topics are named by id from this version on, KIP-516.
const TOPIC_IDS_FROM: i16 = 13;
/// Sessions exist from this version on, KIP-227.
const SESSIONS_FROM: i16 = 7;
/// Partitions of one fetch that are handled before others have their turn.
const PARTITIONS_A_TURN: usize = 1024;
/// The longest a fetch waits, whatever it asks for. A client that closes its connection ends its wait at once; one whose
/// machine is gone without a word is noticed when its answer is sent.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// A fetch on its way to the shard where its session lives.
#[derive(Debug)]
pub struct FetchAsk {
    /// The request's context.
    pub context: RequestContext,
    /// Its body.
    pub body: Bytes,
}

/// The reply that comes back.
pub type FetchDone = Result<ClientReply, ApiFailure>;

/// Handles a fetch that arrived on this shard.
///
/// # Errors
/// [`ApiFailure`]: the connection is to be closed.
pub async fn handle(
    shard: &Rc<Shard>,
    connection: &ClientConnection,
    context: RequestContext,
    body: Bytes,
) -> FetchDone {
    let session_id = FetchRequest::decode_body(&body, context.version)?.session_id;
    let ask = FetchAsk { context, body };
    let home = if session_id == SESSION_ID_NONE { shard.id() } else { session_home(session_id, shard.shards()) };
    if home == shard.id() {
        return run(shard, ask, pin!(connection.hung_up())).await;
    }
    let mut asked = [AskFuture::send(shard, home, Ask::Fetch(Box::new(ask)))];
    if let Woken::HungUp = any_answer(&mut asked, None, pin!(connection.hung_up())).await {
        // The answer comes all the same, and soon: its session lives on.
        asked[0].call_off();
    }
    let [asked] = asked;
    match asked.await {
        Answer::Fetch(done) => *done,
        Answer::Busy => Err(ApiFailure::Busy),
        _ => Err(ApiFailure::Stopping),
    }
}

/// Runs a fetch on the shard where its session lives. It waits for news no longer than until `hung_up` completes.
///
/// # Errors
/// [`ApiFailure`]: the connection is to be closed.
pub async fn run(shard: &Rc<Shard>, ask: FetchAsk, hung_up: Pin<&mut impl Future<Output = ()>>) -> FetchDone {
    let FetchAsk { context, body } = ask;
    let request = FetchRequest::decode_body(&body, context.version)?;
    let from_follower = request.replica_id >= 0 || request.replica_state.replica_id >= 0;
    let session = SessionRequest {
        session_id: request.session_id,
        epoch: if context.version < SESSIONS_FROM { EPOCH_FINAL } else { request.session_epoch },
        uses_topic_ids: context.version >= TOPIC_IDS_FROM,
        from_follower,
    };
    let image = shard.image();
    let (wanted, forgotten) = named(shard, &request, context.version, &image).await;
    let fetch = shard.sessions().borrow_mut().begin(session, wanted, &forgotten, shard.reactor().now());
    if let Some(error) = fetch.refusal() {
        return refuse(&context, session_code(error), SESSION_ID_NONE);
    }
    let bytes_max = (request.max_bytes.max(0) as usize).min(shard.config().fetch_bytes_max as usize);
    let is_negative = request.max_bytes < 0;
    let limits = Limits {
        bytes_max,
        bytes_min: (request.min_bytes.max(0) as usize).min(bytes_max),
        wait_max: Duration::from_millis(request.max_wait_ms.max(0) as u64).min(WAIT_MAX),
        read_committed: request.isolation_level == 1,
        checks_crc: from_follower || shard.config().fetch_checks_crc,
        is_negative,
    };
    let mut targets: Parts<Target> = Parts::with_capacity(fetch.partitions.len());
    for partition in &fetch.partitions {
        targets.push(target(partition, &image, &context, &limits));
        breathe(shard, targets.len()).await;
    }
    let results = read_until_enough(shard, &targets, &limits, hung_up).await;
    finish(shard, &context, &image, fetch, results, &limits).await
}

/// Between the partitions of a request that names very many: others have their turn every now and then.
async fn breathe(shard: &Shard, done: usize) {
    if done.is_multiple_of(PARTITIONS_A_TURN) {
        shard.reactor().yield_now().await;
    }
}

/// The partitions that a request names, and those it forgets.
async fn named(
    shard: &Shard,
    request: &FetchRequest<'_>,
    version: i16,
    image: &MetadataImage,
) -> (Vec<FetchPartition>, Vec<FetchKey>) {
    let topic = |name: &str, id: Uuid| {
        if version >= TOPIC_IDS_FROM {
            FetchTopic::Id(TopicId(id.0))
        } else {
            // The image's own copy of the name, where it has one: shared, not allocated.
            FetchTopic::Name(image.topic_by_name(name).map_or_else(|| name.into(), |topic| Arc::clone(&topic.name)))
        }
    };
    let epoch = |epoch: i32| (epoch >= 0).then_some(LeaderEpoch(epoch));
    // What a session may keep: the one allocation of a fetch of one partition (tests/allocations.rs).
    let mut wanted = Vec::with_capacity(request.topics.iter().map(|topic| topic.partitions.len()).sum());
    for named in request.topics.iter() {
        let topic = topic(named.topic, named.topic_id);
        for partition in named.partitions.iter() {
            wanted.push(FetchPartition {
                key: FetchKey { topic: topic.clone(), partition: PartitionIndex(partition.partition) },
                fetch_offset: Offset(partition.fetch_offset),
                max_bytes: partition.partition_max_bytes,
                current_leader_epoch: epoch(partition.current_leader_epoch),
                last_fetched_epoch: epoch(partition.last_fetched_epoch),
                log_start_offset: Offset(partition.log_start_offset),
            });
            breathe(shard, wanted.len()).await;
        }
    }
    let mut forgotten = Vec::new();
    for named in request.forgotten_topics_data.iter() {
        let topic = topic(named.topic, named.topic_id);
        forgotten.extend(
            named
                .partitions
                .iter()
                .map(|partition| FetchKey { topic: topic.clone(), partition: PartitionIndex(partition) }),
        );
    }
    (wanted, forgotten)
}

fn target(partition: &FetchPartition, image: &MetadataImage, context: &RequestContext, limits: &Limits) -> Target {
    let (topic, unknown) = match &partition.key.topic {
        FetchTopic::Id(id) => (image.topic(*id), ErrorCode::UnknownTopicId),
        FetchTopic::Name(name) => (image.topic_by_name(name), ErrorCode::UnknownTopicOrPartition),
    };
    let Some(topic) = topic else { return Target::Unread(unknown) };
    if !authorize(context, Operation::Read, Resource::Topic(&topic.name)) {
        return Target::Unread(ErrorCode::TopicAuthorizationFailed);
    }
    if topic.partition(partition.key.partition).is_none() {
        return Target::Unread(ErrorCode::UnknownTopicOrPartition);
    }
    if limits.is_negative || partition.max_bytes < 0 {
        return Target::Failed(ErrorCode::UnknownServerError);
    }
    Target::Read(PartitionRead {
        key: PartitionKey { topic_id: topic.id, partition: partition.key.partition },
        current_epoch: partition.current_leader_epoch,
        last_fetched_epoch: partition.last_fetched_epoch,
        from: partition.fetch_offset,
        bytes_max: (partition.max_bytes.max(0) as usize).min(limits.bytes_max),
        at_least_one: true,
        read_committed: limits.read_committed,
        checks_crc: limits.checks_crc,
    })
}

/// Tells the session what was read, and encodes what it says is news.
async fn finish(
    shard: &Rc<Shard>,
    context: &RequestContext,
    image: &MetadataImage,
    fetch: FetchContext,
    mut results: Parts<PartitionData>,
    limits: &Limits,
) -> FetchDone {
    let keys: Parts<FetchKey> = fetch.partitions.iter().map(|partition| partition.key.clone()).collect();
    let mut outcomes: Parts<PartitionOutcome> = results.iter().map(outcome).collect();
    let finished = shard
        .sessions()
        .borrow_mut()
        .finish(fetch, &mut outcomes, shard.reactor().now(), &mut || shard.reactor().random_u64());
    if let Some(error) = finished.error {
        // Overtaken by another request of the same session: Kafka names the session here.
        return refuse(context, session_code(error), finished.session_id);
    }
    // What could not even be asked for stands behind what was read, as in Kafka's answers.
    let included = |unread: bool| {
        let all = results.iter().zip(&outcomes).enumerate();
        all.filter(move |(_, (data, outcome))| outcome.included && data.unread == unread).map(|(position, _)| position)
    };
    let mut order: Parts<usize> = Parts::with_capacity(results.len());
    order.extend(included(false).chain(included(true)));

    // Consecutive partitions of one topic stand together, as in Kafka's answers.
    let topics = || order.chunk_by(|a, b| keys[*a].topic == keys[*b].topic);
    let mut encoder = begin_shared_reply(shard, context);
    let mut writer =
        FetchResponseWriter::begin(&mut encoder, 0, ErrorCode::None, finished.session_id, topics().count());
    let mut written = 0;
    for partitions in topics() {
        let (name, id) = match &keys[partitions[0]].topic {
            FetchTopic::Id(id) => (image.topic(*id).map_or("", |topic| &topic.name), Uuid(id.0)),
            FetchTopic::Name(name) => (&**name, Uuid::ZERO),
        };
        writer.topic(name, id, partitions.len());
        for &position in partitions {
            writer.partition(&encoded(keys[position].partition, &results[position], limits.read_committed));
            written += 1;
            breathe(shard, written).await;
        }
    }
    writer.end(&[]);
    let encoded = end_shared_reply(shard, encoder)?;
    let payloads = order.into_iter().map(|position| std::mem::take(&mut results[position].records));
    Ok(interleave(encoded, payloads.filter(|records| !records.is_empty())))
}

fn outcome(data: &PartitionData) -> PartitionOutcome {
    PartitionOutcome {
        has_records: data.bytes > 0,
        high_watermark: Offset(data.high_watermark),
        log_start_offset: Offset(data.log_start),
        is_error: data.error.is_error(),
        has_diverging_epoch: data.diverging.is_some(),
        has_preferred_replica: false,
        included: false,
    }
}

fn encoded(partition: PartitionIndex, data: &PartitionData, read_committed: bool) -> FetchPartitionData<'static> {
    FetchPartitionData {
        partition_index: partition.0,
        error_code: data.error,
        high_watermark: data.high_watermark,
        last_stable_offset: data.last_stable,
        log_start_offset: data.log_start,
        // As Kafka: null unless asked for and known; but empty for what was never read.
        aborted_transactions: (data.unread || read_committed && !data.error.is_error()).then(|| {
            let of = |aborted: &AbortedTxn| AbortedTransaction {
                producer_id: aborted.producer_id.0,
                first_offset: aborted.first_offset.0,
            };
            data.aborted.iter().flat_map(|aborted| &aborted.0).map(of).collect()
        }),
        records: if data.bytes == 0 { Records::Inline(&[]) } else { Records::External { len: data.bytes } },
        diverging_epoch: data.diverging.map_or_else(FetchEpochEndOffset::default, |(epoch, end)| FetchEpochEndOffset {
            epoch: epoch.0,
            end_offset: end.0,
        }),
        ..FetchPartitionData::default()
    }
}

/// Puts the payloads into the holes of the encoded head: nothing is copied.
fn interleave(encoded: Encoded, mut payloads: impl Iterator<Item = Parts<Item<Payload>>>) -> ClientReply {
    // Before each payload a piece of the head, and one behind the last.
    let pieces_expected = encoded.holes.len() * 2 + 1;
    let mut pieces: SmallVec<[Piece; 4]> = SmallVec::with_capacity(pieces_expected);
    pieces.extend(encoded.pieces());
    let head = encoded.head.freeze();
    let mut reply = ClientReply::from(Bytes::new());
    reply.rest.reserve(pieces_expected - 1);
    for piece in pieces {
        match piece {
            // A frame begins with its length: the first piece is encoded.
            Piece::Head(range) if range.start == 0 => reply.head = head.slice(range),
            Piece::Head(range) => reply.rest.push(Item::Bytes(head.slice(range))),
            Piece::Payload { .. } => reply.rest.extend(payloads.next().unwrap_or_default()),
        }
    }
    reply
}

fn session_code(error: SessionError) -> ErrorCode {
    match error {
        SessionError::NotFound { .. } => ErrorCode::FetchSessionIdNotFound,
        SessionError::WrongEpoch { .. } => ErrorCode::InvalidFetchSessionEpoch,
        SessionError::TopicNaming { .. } => ErrorCode::FetchSessionTopicIdError,
    }
}

/// The answer to a request whose session can't serve it: an error and no partition.
fn refuse(context: &RequestContext, error_code: ErrorCode, session_id: i32) -> FetchDone {
    let response = FetchResponse { error_code, session_id, ..FetchResponse::default() };
    let encoded = response.encode_frame(BytesMut::new(), context.version, context.correlation_id)?;
    Ok(encoded.head.freeze().into())
}
