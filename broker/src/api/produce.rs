//! Produce (0): groups a request's batches by owning shard, and encodes the reply when all owners have answered.
//!
//! Holds: the produces in flight of this shard's connections. Never touches: batches (`partition/produce.rs` does, on the
//! owner's shard).
//!
//! A produce is not a task: it is an entry in a slab, moved on by the answers that arrive. Its body is kept until the
//! reply is encoded, which walks it once more instead of copying topic names out of it.

use std::rc::Rc;

use bytes::Bytes;
use corelog_net::conn::ReplySlot;
use corelog_net::wire::ErrorCode;
use corelog_net::wire::messages::{
    BatchIndexAndErrorMessage, PartitionProduceData, PartitionProduceResponse, ProduceRequest, ProduceResponseWriter,
    Request, TopicProduceData,
};
use corelog_storage::batch::BatchHeader;
use corelog_storage::ids::{PartitionIndex, TopicId};
use tracing::warn;

use super::{ApiFailure, Operation, RequestContext, Resource, authorize, begin_shared_reply, end_shared_reply};
use crate::controller::{MetadataImage, TopicImage};
use crate::names;
use crate::partition::call::PartitionKey;
use crate::partition::produce::{ProduceEntry, ProduceOutcome};
use crate::shard::Shard;
use crate::shard::by_owner::{ByOwner, Parts};
use crate::shard::connection::{ClientConnection, ClientReply};
use crate::shard::mail::{Answer, Ask, AskId};

/// Topics are named by id from this version on, KIP-516.
const TOPIC_IDS_FROM: i16 = 13;
/// The client id that may write to the broker's own topics, as in Kafka.
const ADMIN_CLIENT: &str = "__admin_client";

/// A produce whose owners have not all answered.
pub struct PendingProduce {
    connection: Rc<ClientConnection>,
    slot: ReplySlot,
    context: RequestContext,
    body: Bytes,
    acks: i16,
    /// One for each partition of the request, in its order.
    outcomes: Parts<Option<ProduceOutcome>>,
    groups: Parts<AskedGroup>,
}

struct AskedGroup {
    ask: AskId,
    /// Which of the request's partitions this owner was asked about.
    positions: Parts<usize>,
}

/// Starts a produce. Its reply fills `slot` when every batch is durable or refused.
///
/// # Errors
/// [`ApiFailure`]: the body is no produce request; the connection is to be closed.
pub fn start(
    shard: &Rc<Shard>,
    connection: &Rc<ClientConnection>,
    slot: ReplySlot,
    context: RequestContext,
    body: Bytes,
) -> Result<(), ApiFailure> {
    let request = ProduceRequest::decode_body(&body, context.version)?;
    let image = shard.image();
    let partitions = request.topic_data.iter().map(|topic| topic.partition_data.len()).sum();
    let mut outcomes = Parts::with_capacity(partitions);
    let mut by_owner = ByOwner::new(shard.shards(), partitions);
    // As Kafka: transactional records without a transactional id fail the request as a whole.
    let refused = request.transactional_id.is_none() && has_transactional_records(&request);
    for topic in request.topic_data.iter() {
        let found = match refused {
            true => Err(ErrorCode::TransactionalIdAuthorizationFailed),
            false => find_topic(&image, &context, &topic),
        };
        for partition in topic.partition_data.iter() {
            let admitted = found.and_then(|topic| admit(&request, topic, &partition));
            match admitted {
                Err(code) => outcomes.push(Some(ProduceOutcome::failed(code))),
                Ok(key) => {
                    let entry = ProduceEntry {
                        key,
                        records: partition.records.map(|records| body.slice_ref(records)),
                        version: context.version,
                        acks: request.acks,
                    };
                    by_owner.push(shard.owner(key), outcomes.len(), entry);
                    outcomes.push(None);
                }
            }
        }
    }
    let acks = request.acks;
    let mut produces = shard.produces().borrow_mut();
    let pending = produces.vacant_key();
    let mut sends: Parts<_> = Parts::new();
    let mut asked = Parts::new();
    for group in by_owner.groups() {
        let ask = shard.asks().open_for_produce(pending);
        asked.push(AskedGroup { ask, positions: group.positions });
        sends.push((group.owner, ask, group.parts));
    }
    produces.insert(PendingProduce {
        connection: Rc::clone(connection),
        slot,
        context,
        body,
        acks,
        outcomes,
        groups: asked,
    });
    drop(produces);
    if sends.is_empty() {
        complete(shard, pending);
    }
    for (owner, ask, entries) in sends {
        shard.deliver_ask(owner, ask, Ask::Produce(entries));
    }
    Ok(())
}

/// An owner has answered.
pub fn group_answered(shard: &Rc<Shard>, pending: usize, ask: AskId, answer: Answer) {
    let mut produces = shard.produces().borrow_mut();
    let Some(produce) = produces.get_mut(pending) else {
        panic!("produce {pending} is complete, an owner's answer is not");
    };
    let Some(index) = produce.groups.iter().position(|group| group.ask == ask) else {
        panic!("produce {pending} was answered by an owner it did not ask");
    };
    let group = produce.groups.swap_remove(index);
    let answered = match answer {
        Answer::Produce(outcomes) => outcomes,
        // The owner is stopping: nothing is known to be durable.
        _ => Parts::from_elem(ProduceOutcome::failed(ErrorCode::NotLeaderOrFollower), group.positions.len()),
    };
    assert_eq!(answered.len(), group.positions.len(), "an owner answered for another number of entries than asked");
    for (position, outcome) in group.positions.into_iter().zip(answered) {
        produce.outcomes[position] = Some(outcome);
    }
    let done = produce.groups.is_empty();
    drop(produces);
    if done {
        complete(shard, pending);
    }
}

fn complete(shard: &Rc<Shard>, pending: usize) {
    let produce = shard.produces().borrow_mut().remove(pending);
    let mut outcomes = produce.outcomes.iter().flatten();
    if produce.acks == 0 {
        produce.connection.skip(produce.slot);
        if let Some(failed) = outcomes.find(|outcome| outcome.error.is_error()) {
            // As Kafka: the client asked for no answer, so the only way to say that something is wrong is to hang up.
            let reason = ApiFailure::UnacknowledgedProduceFailed(failed.error);
            warn!(peer = %produce.connection.peer(), %reason, "connection closed");
            produce.connection.close();
        }
        return;
    }
    match encode(shard, &produce.context, &produce.body, outcomes) {
        Ok(reply) => produce.connection.fill(produce.slot, reply),
        Err(reason) => {
            warn!(peer = %produce.connection.peer(), %reason, "connection closed");
            produce.connection.skip(produce.slot);
            produce.connection.close();
        }
    }
}

fn encode<'o>(
    shard: &Shard,
    context: &RequestContext,
    body: &Bytes,
    mut outcomes: impl Iterator<Item = &'o ProduceOutcome>,
) -> Result<ClientReply, ApiFailure> {
    let request = ProduceRequest::decode_body(body, context.version)?;
    let mut encoder = begin_shared_reply(shard, context);
    // A topic that named no partition is not answered, as in Kafka.
    let topics = || request.topic_data.iter().filter(|topic| !topic.partition_data.is_empty());
    let mut writer = ProduceResponseWriter::begin(&mut encoder, topics().count());
    for topic in topics() {
        writer.topic(topic.name, topic.topic_id, topic.partition_data.len());
        for partition in topic.partition_data.iter() {
            let Some(outcome) = outcomes.next() else { panic!("a produce has fewer outcomes than partitions") };
            write_partition(&mut writer, partition.index, outcome);
        }
    }
    writer.end(0, &[]);
    Ok(end_shared_reply(shard, encoder)?.head.freeze().into())
}

fn write_partition(writer: &mut ProduceResponseWriter<'_>, index: i32, outcome: &ProduceOutcome) {
    let (mut message, mut records) = (None, Vec::new());
    if let Some(detail) = &outcome.detail {
        message = detail.message.as_deref();
        records.extend(detail.records.iter().map(|(index, message)| BatchIndexAndErrorMessage {
            batch_index: *index,
            batch_index_error_message: message.as_deref(),
        }));
    }
    writer.partition(&PartitionProduceResponse {
        index,
        error_code: outcome.error,
        base_offset: outcome.base_offset,
        log_append_time_ms: outcome.log_append_time_ms,
        log_start_offset: outcome.log_start,
        record_errors: records,
        error_message: message,
        ..PartitionProduceResponse::default()
    });
}

/// Whether any partition's first batch says that it belongs to a transaction.
fn has_transactional_records(request: &ProduceRequest<'_>) -> bool {
    let is_transactional =
        |records: &[u8]| BatchHeader::parse(records).is_ok_and(|header| header.attributes.is_transactional());
    let mut partitions = request.topic_data.iter().flat_map(|topic| topic.partition_data.iter());
    partitions.any(|partition| partition.records.is_some_and(is_transactional))
}

fn find_topic<'i>(
    image: &'i MetadataImage,
    context: &RequestContext,
    topic: &TopicProduceData<'_>,
) -> Result<&'i TopicImage, ErrorCode> {
    let found = if context.version >= TOPIC_IDS_FROM {
        image.topic(TopicId(topic.topic_id.0)).ok_or(ErrorCode::UnknownTopicId)
    } else {
        image.topic_by_name(topic.name).ok_or(ErrorCode::UnknownTopicOrPartition)
    }?;
    if !authorize(context, Operation::Write, Resource::Topic(&found.name)) {
        return Err(ErrorCode::TopicAuthorizationFailed);
    }
    if names::is_internal(&found.name) && context.client_id.as_deref() != Some(ADMIN_CLIENT) {
        return Err(ErrorCode::InvalidTopicException);
    }
    Ok(found)
}

/// What is decided before the owner is asked.
fn admit(
    request: &ProduceRequest<'_>,
    topic: &TopicImage,
    partition: &PartitionProduceData<'_>,
) -> Result<PartitionKey, ErrorCode> {
    if !matches!(request.acks, -1..=1) {
        return Err(ErrorCode::InvalidRequiredAcks);
    }
    let index = PartitionIndex(partition.index);
    if topic.partition(index).is_none() {
        return Err(ErrorCode::UnknownTopicOrPartition);
    }
    Ok(PartitionKey { topic_id: topic.id, partition: index })
}
