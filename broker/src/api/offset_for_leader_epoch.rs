//! OffsetForLeaderEpoch (23): where an epoch ended, for those who look for the point at which two logs part (KIP-320).
//!
//! Holds: the shape of the answer. Never touches: logs (partitions look up).

use std::rc::Rc;

use corelog_net::wire::messages::{
    EpochEndOffset, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, OffsetForLeaderTopicResult,
};
use corelog_net::wire::{Encoder, ErrorCode, Wire};
use corelog_storage::epochs::EpochEnd;
use corelog_storage::ids::LeaderEpoch;

use super::common::{PartitionCalls, checked_epoch, find_partition};
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
    let mut calls = PartitionCalls::default();
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
            calls.add(found.map(|(key, _)| (key, call)));
        }
    }

    let end = |answer| match answer {
        PartitionAnswer::EpochEnd(end) => Some(end),
        _ => None,
    };
    let mut outcomes = calls.carry_out(shard, end).await;
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

fn encode(partition: i32, outcome: Result<EpochEnd, ErrorCode>) -> EpochEndOffset {
    let (end, error_code) = outcome.map_or_else(|code| (EpochEnd::UNDEFINED, code), |end| (end, ErrorCode::None));
    EpochEndOffset { partition, error_code, leader_epoch: end.epoch.0, end_offset: end.end.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corelog_storage::ids::Offset;

    #[test]
    fn an_epoch_that_the_log_knows_nothing_of_is_no_error() {
        let encoded = encode(3, Ok(EpochEnd::UNDEFINED));
        assert_eq!((encoded.error_code, encoded.leader_epoch, encoded.end_offset), (ErrorCode::None, -1, -1));
        let end = EpochEnd { epoch: LeaderEpoch(2), end: Offset(40) };
        let encoded = encode(3, Ok(end));
        assert_eq!((encoded.partition, encoded.leader_epoch, encoded.end_offset), (3, 2, 40));
        assert_eq!(encode(3, Err(ErrorCode::FencedLeaderEpoch)).error_code, ErrorCode::FencedLeaderEpoch);
    }
}
