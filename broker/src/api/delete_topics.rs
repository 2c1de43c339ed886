//! DeleteTopics (20): by name, and from version 6 on by id (KIP-516).
//!
//! Holds: the way from the wire to the controller and back. Never touches: files (shards drop the logs of topics that go).

use std::rc::Rc;

use corelog_net::wire::messages::{DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse};
use corelog_net::wire::{Encoder, ErrorCode, Wire};
use corelog_storage::ids::TopicId;

use super::common::{CONTROLLER_GONE, Refusal, topic_id, wire_id};
use super::{ApiFailure, Operation, RequestContext, Resource, authorize};
use crate::controller::request::{DeleteTopics, DeletedTopic, TopicSelector};
use crate::controller::{self, MetadataImage};
use crate::shard::Shard;

/// Answers DeleteTopics, when the deletions are durable and known to every core.
///
/// # Errors
/// None of its own.
pub async fn handle(
    shard: &Rc<Shard>,
    context: &RequestContext,
    request: DeleteTopicsRequest<'_>,
    out: &mut Encoder,
) -> Result<(), ApiFailure> {
    let selected = selected(&request);
    let outcomes: Vec<Outcome> = if shard.config().topic_deletion {
        delete(shard, context, selected).await
    } else {
        // KIP-322: clients before version 3 do not know the error.
        let code = match context.version {
            ..3 => ErrorCode::InvalidRequest,
            _ => ErrorCode::TopicDeletionDisabled,
        };
        refuse_all(selected, code)
    };
    let responses = outcomes.iter().map(|outcome| outcome.encode(context.version)).collect();
    DeleteTopicsResponse { responses, ..Default::default() }.encode(out);
    Ok(())
}

/// The topics as they are named: one list of names up to version 5, names or ids after it.
fn selected(request: &DeleteTopicsRequest<'_>) -> Vec<TopicSelector> {
    let by_name =
        request.topic_names.iter().map(|name| TopicSelector { name: Some((*name).to_owned()), id: TopicId::ZERO });
    let by_either = request
        .topics
        .iter()
        .map(|topic| TopicSelector { name: topic.name.map(str::to_owned), id: topic_id(topic.topic_id) });
    by_name.chain(by_either).collect()
}

async fn delete(shard: &Rc<Shard>, context: &RequestContext, selected: Vec<TopicSelector>) -> Vec<Outcome> {
    let image = shard.image();
    let (allowed, forbidden): (Vec<_>, Vec<_>) =
        selected.into_iter().partition(|topic| may_delete(&image, context, topic));
    let asked = controller::Request::DeleteTopics(DeleteTopics { topics: allowed.clone() });
    let mut outcomes: Vec<Outcome> = match shard.controller(asked).await {
        Ok(controller::Response::DeleteTopics(deleted)) => deleted.into_iter().map(Outcome::of).collect(),
        other => refuse_all(allowed, other.err().unwrap_or(CONTROLLER_GONE)),
    };
    outcomes.extend(forbidden.into_iter().map(|topic| {
        let code = ErrorCode::TopicAuthorizationFailed;
        Outcome { name: topic.name, id: topic.id, refusal: Some(Refusal::new(code, code.message())) }
    }));
    outcomes
}

/// What names no topic at all is the controller's to refuse.
fn may_delete(image: &MetadataImage, context: &RequestContext, topic: &TopicSelector) -> bool {
    let of_id = || image.topic(topic.id).map(|topic| &*topic.name);
    let name = topic.name.as_deref().or_else(of_id);
    authorize(context, Operation::Delete, Resource::Cluster)
        || name.is_none_or(|name| authorize(context, Operation::Delete, Resource::Topic(name)))
}

fn refuse_all(topics: Vec<TopicSelector>, code: ErrorCode) -> Vec<Outcome> {
    let refused = |topic: TopicSelector| Outcome { name: topic.name, id: topic.id, refusal: Some(code.into()) };
    topics.into_iter().map(refused).collect()
}

/// What became of one topic.
struct Outcome {
    name: Option<String>,
    id: TopicId,
    refusal: Option<Refusal>,
}

impl Outcome {
    fn of(topic: DeletedTopic) -> Self {
        let refusal = topic.outcome.err().map(|error| match Refusal::by_controller(error.class(), &error) {
            // Here Kafka repeats the code's own message instead of leaving it out.
            Refusal { code, message: None } => Refusal::new(code, code.message()),
            refusal => refusal,
        });
        Self { name: topic.name, id: topic.id, refusal }
    }

    fn encode(&self, version: i16) -> DeletableTopicResult<'_> {
        let refusal = self.refusal.as_ref();
        DeletableTopicResult {
            // Below version 6 a topic is always named, and null has no bytes.
            name: if version < 6 { Some(self.name.as_deref().unwrap_or_default()) } else { self.name.as_deref() },
            topic_id: wire_id(self.id),
            error_code: refusal.map_or(ErrorCode::None, |refusal| refusal.code),
            error_message: refusal.and_then(|refusal| refusal.message.as_deref()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corelog_net::wire::Uuid;
    use corelog_net::wire::messages::DeleteTopicState;

    #[test]
    fn topics_are_selected_by_name_or_by_id() {
        let old = DeleteTopicsRequest { topic_names: vec!["a"], ..Default::default() };
        assert_eq!(selected(&old), [TopicSelector { name: Some("a".into()), id: TopicId::ZERO }]);
        let by_id = DeleteTopicState { name: None, topic_id: Uuid([3; 16]) };
        let new = DeleteTopicsRequest { topics: vec![by_id], ..Default::default() };
        assert_eq!(selected(&new), [TopicSelector { name: None, id: TopicId([3; 16]) }]);
    }

    #[test]
    fn an_unknown_topic_is_answered_with_the_codes_own_message() {
        let unknown = crate::controller::error::DeleteTopicError::UnknownName;
        let topic = DeletedTopic { name: Some("a".into()), id: TopicId::ZERO, outcome: Err(unknown) };
        let outcome = Outcome::of(topic);
        let encoded = outcome.encode(6);
        assert_eq!(encoded.error_code, ErrorCode::UnknownTopicOrPartition);
        assert_eq!(encoded.error_message, Some("This server does not host this topic-partition."));
    }
}
