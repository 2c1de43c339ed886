//! CreatePartitions (37): more partitions for topics that exist (KIP-195).
//!
//! Holds: the way from the wire to the controller and back. Never touches: where partitions go (the controller decides).

use std::rc::Rc;

use corelog_net::wire::messages::{
    CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopic, CreatePartitionsTopicResult,
};
use corelog_net::wire::{Encoder, ErrorCode, Wire};

use super::common::{CONTROLLER_GONE, Refusal};
use super::{ApiFailure, Operation, RequestContext, Resource, authorize};
use crate::controller;
use crate::controller::request::{CreatePartitions, MorePartitions};
use crate::shard::Shard;

/// Answers CreatePartitions, when the partitions are durable and known to every core.
///
/// # Errors
/// None of its own.
pub async fn handle(
    shard: &Rc<Shard>,
    context: &RequestContext,
    request: CreatePartitionsRequest<'_>,
    out: &mut Encoder,
) -> Result<(), ApiFailure> {
    let may_alter =
        |topic: &&CreatePartitionsTopic<'_>| authorize(context, Operation::Alter, Resource::Topic(topic.name));
    let (allowed, forbidden): (Vec<_>, Vec<_>) = request.topics.iter().partition(may_alter);
    let asked = controller::Request::CreatePartitions(CreatePartitions {
        topics: allowed.iter().map(|topic| more_partitions(topic)).collect(),
        validate_only: request.validate_only,
    });
    let mut outcomes: Vec<(String, Option<Refusal>)> = match shard.controller(asked).await {
        Ok(controller::Response::CreatePartitions(results)) => results
            .into_iter()
            .map(|(name, result)| (name, result.err().map(|error| Refusal::by_controller(error.class(), &error))))
            .collect(),
        other => refuse_all(&allowed, other.err().unwrap_or(CONTROLLER_GONE)),
    };
    outcomes.append(&mut refuse_all(&forbidden, ErrorCode::TopicAuthorizationFailed));

    let results = outcomes
        .iter()
        .map(|(name, refusal)| CreatePartitionsTopicResult {
            name,
            error_code: refusal.as_ref().map_or(ErrorCode::None, |refusal| refusal.code),
            error_message: refusal.as_ref().and_then(|refusal| refusal.message.as_deref()),
        })
        .collect();
    CreatePartitionsResponse { results, ..Default::default() }.encode(out);
    Ok(())
}

fn more_partitions(topic: &CreatePartitionsTopic<'_>) -> MorePartitions {
    let assignments = topic.assignments.as_ref();
    MorePartitions {
        name: topic.name.to_owned(),
        count: topic.count,
        assignments: assignments.map(|all| all.iter().map(|assignment| assignment.broker_ids.clone()).collect()),
    }
}

fn refuse_all(topics: &[&CreatePartitionsTopic<'_>], code: ErrorCode) -> Vec<(String, Option<Refusal>)> {
    topics.iter().map(|topic| (topic.name.to_owned(), Some(code.into()))).collect()
}
