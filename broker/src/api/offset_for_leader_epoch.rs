//! OffsetForLeaderEpoch (23): where an epoch ended, for those who look for the point at which two logs part (KIP-320).
//!
//! Holds: the shape of the answer. Never touches: logs (partitions look up).

use std::rc::Rc;

use corelog_net::wire::messages::{
    EpochEndOffset, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, OffsetForLeaderTopicResult,
};
use corelog_net::wire::{Encoder, ErrorCode, Wire};
use corelog_storage::ids::LeaderEpoch;

use super::common::{checked_epoch, find_partition};
use super::{ApiFailure, Operation, RequestContext, Resource, authorize};
use crate::partition::call::{PartitionAnswer, PartitionCall};
use crate::shard::Shard;

/// Answers OffsetForLeaderEpoch.
///
/// # Errors
/// None of its own.
pub async fn handle(
    shard: &Rc<Shard>,
    context: &RequestContext,
    request: OffsetForLeaderEpochRequest<'_>,
    out: &mut Encoder,
) -> Result<(), ApiFailure> {
    let image = shard.image();
    let mut calls = Vec::new();
    let mut plan = Vec::new();
    for topic in &request.topics {
        let allowed = authorize(context, Operation::Describe, Resource::Topic(topic.topic));
        for partition in &topic.partitions {
            let found = match allowed {
                true => find_partition(&image, topic.topic, partition.partition),
                false => Err(ErrorCode::TopicAuthorizationFailed),
            };
            let call = PartitionCall::EpochEnd {
                current_epoch: checked_epoch(partition.current_leader_epoch),
                epoch: LeaderEpoch(partition.leader_epoch),
            };
            plan.push(found.map(|(key, _)| calls.push((key, call))));
        }
    }

    let mut answers = shard.call(calls).await.into_iter();
    let mut outcomes = plan.into_iter().map(|planned| planned.map(|()| answers.next()));
    let topics = request
        .topics
        .iter()
        .map(|topic| OffsetForLeaderTopicResult {
            topic: topic.topic,
            partitions: topic
                .partitions
                .iter()
                .zip(&mut outcomes)
                .map(|(partition, outcome)| encode(partition.partition, outcome))
                .collect(),
        })
        .collect();
    OffsetForLeaderEpochResponse { topics, ..Default::default() }.encode(out);
    Ok(())
}

fn encode(partition: i32, outcome: Result<Option<PartitionAnswer>, ErrorCode>) -> EpochEndOffset {
    // An epoch that the log knows nothing of is answered with -1 and -1, and is no error.
    let nothing = EpochEndOffset { partition, leader_epoch: -1, end_offset: -1, ..Default::default() };
    match outcome {
        Ok(Some(PartitionAnswer::EpochEnd(None))) => nothing,
        Ok(Some(PartitionAnswer::EpochEnd(Some(end)))) => {
            EpochEndOffset { leader_epoch: end.epoch.0, end_offset: end.offset.0, ..nothing }
        }
        Ok(Some(PartitionAnswer::Failed(error_code))) | Err(error_code) => EpochEndOffset { error_code, ..nothing },
        Ok(_) => EpochEndOffset { error_code: ErrorCode::UnknownServerError, ..nothing },
    }
}
