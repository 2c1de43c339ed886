//! DeleteRecords (21): moves the starts of logs (KIP-107).
//!
//! Holds: the shape of the answer, and what cannot be deleted from. Never touches: logs (partitions move their starts).

use std::rc::Rc;

use corelog_net::wire::messages::{
    DeleteRecordsPartitionResult, DeleteRecordsRequest, DeleteRecordsResponse, DeleteRecordsTopicResult,
};
use corelog_net::wire::{Encoder, ErrorCode, Wire};
use corelog_storage::ids::Offset;

use super::common::{PartitionCalls, find_partition};
use super::{ApiFailure, Operation, RequestContext, Resource, authorize};
use crate::controller::MetadataImage;
use crate::names;
use crate::partition::call::{PartitionAnswer, PartitionCall, PartitionKey};
use crate::shard::Shard;

/// The offset that stands for the high watermark.
const HIGH_WATERMARK: i64 = -1;

/// Answers DeleteRecords. The new log starts are durable then, whatever the request's timeout says.
///
/// # Errors
/// None of its own.
pub async fn handle(
    shard: &Rc<Shard>,
    context: &RequestContext,
    request: DeleteRecordsRequest<'_>,
    out: &mut Encoder,
) -> Result<(), ApiFailure> {
    let image = shard.image();
    let mut calls = PartitionCalls::default();
    for topic in &request.topics {
        for partition in &topic.partitions {
            let key = deletable(&image, context, topic.name, partition.partition_index);
            let before = (partition.offset != HIGH_WATERMARK).then_some(Offset(partition.offset));
            calls.add(key.map(|key| (key, PartitionCall::DeleteRecords { before })));
        }
    }

    let low_watermark = |answer| match answer {
        PartitionAnswer::LowWatermark(offset) => Some(offset),
        _ => None,
    };
    let mut outcomes = calls.carry_out(shard, low_watermark).await;
    let topics = request
        .topics
        .iter()
        .map(|topic| DeleteRecordsTopicResult {
            name: topic.name,
            partitions: topic
                .partitions
                .iter()
                .zip(&mut outcomes)
                .map(|(partition, outcome)| encode(partition.partition_index, outcome))
                .collect(),
        })
        .collect();
    DeleteRecordsResponse { topics, ..Default::default() }.encode(out);
    Ok(())
}

fn deletable(
    image: &MetadataImage,
    context: &RequestContext,
    topic: &str,
    partition: i32,
) -> Result<PartitionKey, ErrorCode> {
    if !authorize(context, Operation::Delete, Resource::Topic(topic)) {
        return Err(ErrorCode::TopicAuthorizationFailed);
    }
    let (key, _) = find_partition(image, topic, partition)?;
    // The coordinators' state is not the clients' to delete.
    if names::is_internal(topic) { Err(ErrorCode::InvalidTopicException) } else { Ok(key) }
}

fn encode(partition_index: i32, outcome: Result<Offset, ErrorCode>) -> DeleteRecordsPartitionResult {
    let (low_watermark, error_code) = outcome.map_or_else(|code| (Offset::NONE, code), |low| (low, ErrorCode::None));
    DeleteRecordsPartitionResult { partition_index, low_watermark: low_watermark.0, error_code }
}

#[cfg(test)]
mod tests {
    use super::super::common::testing::{Cluster, context};
    use super::*;
    use corelog_net::wire::ApiKey;

    #[test]
    fn records_of_the_coordinators_are_not_the_clients_to_delete() {
        let image = Cluster::of_one().topic("a", &[&[1]]).topic("__consumer_offsets", &[&[1]]).image();
        let context = context(ApiKey::DeleteRecords, 2);
        let deletable = |topic, partition| deletable(&image, &context, topic, partition).map(|key| key.partition.0);
        assert_eq!(deletable("a", 0), Ok(0));
        assert_eq!(deletable("__consumer_offsets", 0), Err(ErrorCode::InvalidTopicException));
        assert_eq!(deletable("__consumer_offsets", 9), Err(ErrorCode::UnknownTopicOrPartition));
        assert_eq!(deletable("b", 0), Err(ErrorCode::UnknownTopicOrPartition));
    }
}
