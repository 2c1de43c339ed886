//! ListOffsets (2): where a partition begins and ends, and where its records of a point in time are.
//!
//! Holds: what a request's numbers mean, duplicates, the shape of the answer. Never touches: logs (partitions look up).

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use corelog_net::wire::messages::{
    ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse,
    ListOffsetsTopicResponse,
};
use corelog_net::wire::{Encoder, ErrorCode, Wire};
use corelog_storage::ids::{Offset, Timestamp};

use super::common::{PartitionCalls, checked_epoch, find_partition};
use super::{ApiFailure, Operation, RequestContext, Resource, authorize};
use crate::controller::MetadataImage;
use crate::partition::call::{
    FoundOffset, ListOffset, OffsetAt, PartitionAnswer, PartitionCall, PartitionKey, Visible,
};
use crate::shard::Shard;

/// The replica id of consumers.
const CONSUMER: i32 = -1;

/// Answers ListOffsets.
///
/// # Errors
/// None of its own.
pub async fn handle(
    shard: &Rc<Shard>,
    context: &RequestContext,
    request: ListOffsetsRequest<'_>,
    out: &mut Encoder,
) -> Result<(), ApiFailure> {
    let image = shard.image();
    let visible = visible_to(&request);
    let mut times_named = BTreeMap::new();
    for (topic, partition) in pairs(&request) {
        *times_named.entry((topic, partition.partition_index)).or_insert(0_u32) += 1;
    }

    let mut calls = PartitionCalls::default();
    for (topic, partition) in pairs(&request) {
        let once = times_named.get(&(topic, partition.partition_index)) == Some(&1);
        calls.add(if !authorize(context, Operation::Describe, Resource::Topic(topic)) {
            Err(ErrorCode::TopicAuthorizationFailed)
        } else if !once {
            Err(ErrorCode::InvalidRequest)
        } else {
            lookup(&image, context.version, visible, topic, partition)
        });
    }

    let offset = |answer| match answer {
        PartitionAnswer::Offset(found) => Some(found),
        _ => None,
    };
    let mut outcomes = calls.carry_out(shard, offset).await;
    let mut answered = BTreeSet::new();
    let topics = request
        .topics
        .iter()
        .map(|topic| ListOffsetsTopicResponse {
            name: topic.name,
            partitions: topic
                .partitions
                .iter()
                .zip(&mut outcomes)
                // As Kafka: a partition that was named twice is refused once.
                .filter(|(partition, _)| answered.insert((topic.name, partition.partition_index)))
                .map(|(partition, outcome)| encode(context.version, partition.partition_index, outcome))
                .collect(),
        })
        .filter(|topic| !topic.partitions.is_empty())
        .collect();
    ListOffsetsResponse { topics, ..Default::default() }.encode(out);
    Ok(())
}

fn pairs<'r, 'a>(request: &'r ListOffsetsRequest<'a>) -> impl Iterator<Item = (&'a str, &'r ListOffsetsPartition)> {
    request.topics.iter().flat_map(|topic| topic.partitions.iter().map(|partition| (topic.name, partition)))
}

/// How far the asking client may see. Any replica id but a consumer's is a replica's or a tool's, which see everything.
fn visible_to(request: &ListOffsetsRequest<'_>) -> Visible {
    match (request.replica_id, request.isolation_level) {
        (CONSUMER, 1) => Visible::Stable,
        (CONSUMER, _) => Visible::Committed,
        _ => Visible::Everything,
    }
}

fn lookup(
    image: &MetadataImage,
    version: i16,
    visible: Visible,
    topic: &str,
    partition: &ListOffsetsPartition,
) -> Result<(PartitionKey, PartitionCall), ErrorCode> {
    let at = offset_at(partition.timestamp, version).ok_or(ErrorCode::UnsupportedVersion)?;
    let (key, _) = find_partition(image, topic, partition.partition_index)?;
    let current_epoch = checked_epoch(partition.current_leader_epoch);
    Ok((key, PartitionCall::ListOffset(ListOffset { at, visible, current_epoch })))
}

/// What a timestamp means in a version; `None` if the version does not have that special one.
fn offset_at(timestamp: i64, version: i16) -> Option<OffsetAt> {
    let (at, since) = match timestamp {
        -1 => (OffsetAt::Latest, 1),
        -2 => (OffsetAt::Earliest, 1),
        // KIP-734
        -3 => (OffsetAt::LargestTimestamp, 7),
        // KIP-405
        -4 => (OffsetAt::EarliestLocal, 8),
        // KIP-1005
        -5 => (OffsetAt::LatestTiered, 9),
        // KIP-1023
        -6 => (OffsetAt::EarliestPendingUpload, 11),
        0.. => (OffsetAt::Time(Timestamp(timestamp)), 1),
        _ => return None,
    };
    (version >= since).then_some(at)
}

fn encode(
    version: i16,
    partition_index: i32,
    outcome: Result<Option<FoundOffset>, ErrorCode>,
) -> ListOffsetsPartitionResponse {
    let nothing = ListOffsetsPartitionResponse {
        partition_index,
        timestamp: Timestamp::NONE.0,
        offset: Offset::NONE.0,
        leader_epoch: -1,
        ..Default::default()
    };
    match outcome {
        Ok(None) => nothing,
        Ok(Some(found)) => ListOffsetsPartitionResponse {
            timestamp: found.timestamp.0,
            offset: found.offset.0,
            leader_epoch: found.leader_epoch.map_or(-1, |epoch| epoch.0),
            ..nothing
        },
        // KIP-207: clients before version 5 know the situation by another name.
        Err(ErrorCode::OffsetNotAvailable) if version < 5 => {
            ListOffsetsPartitionResponse { error_code: ErrorCode::LeaderNotAvailable, ..nothing }
        }
        Err(error_code) => ListOffsetsPartitionResponse { error_code, ..nothing },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corelog_storage::ids::LeaderEpoch;

    #[test]
    fn each_special_timestamp_begins_with_its_version() {
        for (timestamp, since) in [(-1, 1), (-2, 1), (-3, 7), (-4, 8), (-5, 9), (-6, 11)] {
            for version in 1..=11 {
                assert_eq!(offset_at(timestamp, version).is_some(), version >= since, "{timestamp} in {version}");
            }
        }
        assert_eq!(offset_at(-7, 11), None);
        assert_eq!(offset_at(i64::MIN, 11), None);
        assert_eq!(offset_at(0, 1), Some(OffsetAt::Time(Timestamp(0))));
    }

    #[test]
    fn consumers_see_what_their_isolation_allows_and_replicas_see_everything() {
        let visible = |replica_id, isolation_level| {
            visible_to(&ListOffsetsRequest { replica_id, isolation_level, ..Default::default() })
        };
        assert_eq!(visible(-1, 0), Visible::Committed);
        assert_eq!(visible(-1, 1), Visible::Stable);
        assert_eq!(visible(2, 0), Visible::Everything);
        assert_eq!(visible(-2, 1), Visible::Everything);
    }

    #[test]
    fn nothing_found_is_no_error() {
        let response = encode(7, 3, Ok(None));
        assert_eq!((response.error_code, response.offset, response.timestamp), (ErrorCode::None, -1, -1));
        let found = FoundOffset { offset: Offset(9), timestamp: Timestamp(70), leader_epoch: Some(LeaderEpoch(2)) };
        let response = encode(7, 3, Ok(Some(found)));
        assert_eq!((response.offset, response.timestamp, response.leader_epoch), (9, 70, 2));
    }

    #[test]
    fn old_clients_hear_that_the_leader_is_not_available_when_its_offsets_are_not() {
        assert_eq!(encode(4, 0, Err(ErrorCode::OffsetNotAvailable)).error_code, ErrorCode::LeaderNotAvailable);
        assert_eq!(encode(5, 0, Err(ErrorCode::OffsetNotAvailable)).error_code, ErrorCode::OffsetNotAvailable);
    }
}
