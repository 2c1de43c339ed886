//! DescribeProducers (61): the producers that a partition remembers (KIP-664).
//!
//! Holds: the shape of the answer. Never touches: producer state (partitions have it).

use std::rc::Rc;

use corelog_net::wire::messages::{
    DescribeProducersPartitionResponse, DescribeProducersRequest, DescribeProducersResponse,
    DescribeProducersTopicResponse, ProducerState,
};
use corelog_net::wire::{Encoder, ErrorCode, Wire};

use super::common::{PartitionCalls, Refusal, find_partition};
use super::{ApiFailure, Operation, RequestContext, Resource, authorize};
use crate::controller::MetadataImage;
use crate::names;
use crate::partition::call::{ActiveProducer, PartitionAnswer, PartitionCall, PartitionKey};
use crate::shard::Shard;

/// Answers DescribeProducers.
///
/// # Errors
/// None of its own.
pub async fn handle(
    shard: &Rc<Shard>,
    context: &RequestContext,
    request: DescribeProducersRequest<'_>,
    out: &mut Encoder,
) -> Result<(), ApiFailure> {
    let image = shard.image();
    let mut calls = PartitionCalls::default();
    for topic in &request.topics {
        let topic_refusal = check_topic(&image, context, topic.name);
        for &partition in &topic.partition_indexes {
            let key = topic_refusal.clone().and_then(|()| find(&image, topic.name, partition));
            calls.add(key.map(|key| (key, PartitionCall::Producers)));
        }
    }

    let producers = |answer| match answer {
        PartitionAnswer::Producers(producers) => Some(producers),
        _ => None,
    };
    let outcomes: Vec<Result<Vec<ActiveProducer>, Refusal>> = calls.carry_out(shard, producers).await.collect();
    let mut outcomes = outcomes.iter();
    let topics = request
        .topics
        .iter()
        .map(|topic| DescribeProducersTopicResponse {
            name: topic.name,
            partitions: topic
                .partition_indexes
                .iter()
                .zip(&mut outcomes)
                .map(|(partition, outcome)| encode(*partition, outcome))
                .collect(),
        })
        .collect();
    DescribeProducersResponse { topics, ..Default::default() }.encode(out);
    Ok(())
}

/// What is wrong with a topic as a whole. Kafka gives a text here, and none for a single partition.
fn check_topic(image: &MetadataImage, context: &RequestContext, topic: &str) -> Result<(), Refusal> {
    names::validate_topic_name(topic)
        .map_err(|error| Refusal::new(ErrorCode::InvalidTopicException, error.to_string()))?;
    let code = if !authorize(context, Operation::Read, Resource::Topic(topic)) {
        ErrorCode::TopicAuthorizationFailed
    } else if image.topic_by_name(topic).is_none() {
        ErrorCode::UnknownTopicOrPartition
    } else {
        return Ok(());
    };
    Err(Refusal::new(code, code.message()))
}

fn find(image: &MetadataImage, topic: &str, partition: i32) -> Result<PartitionKey, Refusal> {
    Ok(find_partition(image, topic, partition)?.0)
}

fn encode(
    partition_index: i32,
    outcome: &Result<Vec<ActiveProducer>, Refusal>,
) -> DescribeProducersPartitionResponse<'_> {
    match outcome {
        Ok(producers) => DescribeProducersPartitionResponse {
            partition_index,
            active_producers: producers.iter().map(encode_producer).collect(),
            ..Default::default()
        },
        Err(refusal) => DescribeProducersPartitionResponse {
            partition_index,
            error_code: refusal.code,
            error_message: refusal.message.as_deref(),
            ..Default::default()
        },
    }
}

fn encode_producer(producer: &ActiveProducer) -> ProducerState {
    ProducerState {
        producer_id: producer.id.0,
        producer_epoch: i32::from(producer.epoch.0),
        last_sequence: producer.last_sequence.0,
        last_timestamp: producer.last_timestamp.0,
        coordinator_epoch: producer.coordinator_epoch,
        current_txn_start_offset: producer.transaction_start.map_or(-1, |offset| offset.0),
    }
}

#[cfg(test)]
mod tests {
    use super::super::common::testing::{Cluster, context};
    use super::*;
    use corelog_net::wire::ApiKey;

    #[test]
    fn a_topic_that_is_wrong_as_a_whole_says_so_in_words() {
        let image = Cluster::of_one().topic("a", &[&[1]]).image();
        let context = context(ApiKey::DescribeProducers, 0);
        let check = |topic| check_topic(&image, &context, topic);
        assert_eq!(check("a"), Ok(()));
        let unknown =
            Refusal::new(ErrorCode::UnknownTopicOrPartition, "This server does not host this topic-partition.");
        assert_eq!(check("b"), Err(unknown));
        let refusal = check("a b").map_err(|refusal| refusal.code);
        assert_eq!(refusal, Err(ErrorCode::InvalidTopicException));
        assert_eq!(find(&image, "a", 4).map_err(|refusal| refusal.message), Err(None));
    }
}
