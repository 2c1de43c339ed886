//! DescribeTopicPartitions (75): topics page by page (KIP-966).
//!
//! Holds: the answer, as a function of the metadata image. Never touches: partitions' logs.

use std::rc::Rc;

use corelog_net::wire::messages::{
    Cursor, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse, DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
};
use corelog_net::wire::{Encoder, ErrorCode, Wire};

use super::common::{offline_replicas, reachable_leader, topic_operations, topics_by_name, wire_id};
use super::{ApiFailure, Operation, RequestContext, Resource, authorize};
use crate::controller::{MetadataImage, PartitionImage, TopicImage};
use crate::names;
use crate::shard::Shard;

/// Answers DescribeTopicPartitions.
///
/// # Errors
/// None of its own.
pub async fn handle(
    shard: &Rc<Shard>,
    context: &RequestContext,
    request: DescribeTopicPartitionsRequest<'_>,
    out: &mut Encoder,
) -> Result<(), ApiFailure> {
    let image = shard.image();
    match Page::wanted(&image, &request, shard.config().described_partitions_max) {
        Ok(page) => page.answer(&image, context).encode(out),
        Err(code) => refuse(&request, code).encode(out),
    }
    Ok(())
}

/// The answer to a request that cannot be served at all: it has an error for each topic, and none of its own.
fn refuse<'a>(
    request: &DescribeTopicPartitionsRequest<'a>,
    error_code: ErrorCode,
) -> DescribeTopicPartitionsResponse<'a> {
    let topics = request.topics.iter().map(|topic| DescribeTopicPartitionsResponseTopic {
        error_code,
        name: Some(topic.name),
        ..Default::default()
    });
    DescribeTopicPartitionsResponse { topics: topics.collect(), ..Default::default() }
}

/// Which part of the topics a request wants.
#[derive(Debug, PartialEq, Eq)]
struct Page<'a> {
    /// The topics from the cursor on, by name.
    names: Vec<&'a str>,
    /// Whether the client named them, so that missing ones are answered.
    named: bool,
    /// Where the first topic starts, if the cursor names it.
    cursor: Option<(&'a str, usize)>,
    /// The most partitions in the answer; at least 1.
    partitions_max: usize,
}

impl<'a> Page<'a> {
    fn wanted(
        image: &'a MetadataImage,
        request: &'a DescribeTopicPartitionsRequest<'_>,
        partitions_max: i32,
    ) -> Result<Self, ErrorCode> {
        let named = !request.topics.is_empty();
        let mut names: Vec<&str> = if named {
            request.topics.iter().map(|topic| topic.name).collect()
        } else {
            topics_by_name(image).into_iter().map(|topic| &*topic.name).collect()
        };
        names.sort_unstable();
        names.dedup();
        let mut cursor = None;
        if let Some(given) = &request.cursor {
            names.retain(|name| *name >= given.topic_name);
            if named && names.first() != Some(&given.topic_name) {
                return Err(ErrorCode::InvalidRequest);
            }
            let partition = usize::try_from(given.partition_index).map_err(|_| ErrorCode::InvalidRequest)?;
            cursor = Some((given.topic_name, partition));
        }
        let limit = partitions_max.min(request.response_partition_limit);
        Ok(Self { names, named, cursor, partitions_max: usize::try_from(limit).unwrap_or(1).max(1) })
    }

    fn answer(&self, image: &'a MetadataImage, context: &RequestContext) -> DescribeTopicPartitionsResponse<'a> {
        let mut response = DescribeTopicPartitionsResponse::default();
        let mut unauthorized = Vec::new();
        let mut left = self.partitions_max;
        for &name in &self.names {
            if !authorize(context, Operation::Describe, Resource::Topic(name)) {
                if self.named {
                    unauthorized.push(failed(ErrorCode::TopicAuthorizationFailed, name));
                }
                continue;
            }
            if left == 0 {
                response.next_cursor = cursor(name, 0);
                break;
            }
            let Some(topic) = image.topic_by_name(name) else {
                // Without names there are only topics of this very image.
                let code = match names::validate_topic_name(name) {
                    Ok(()) => ErrorCode::UnknownTopicOrPartition,
                    Err(_) => ErrorCode::InvalidTopicException,
                };
                response.topics.push(DescribeTopicPartitionsResponseTopic {
                    is_internal: names::is_internal(name),
                    topic_authorized_operations: topic_operations(context, name),
                    ..failed(code, name)
                });
                continue;
            };
            let first = self.cursor.filter(|(at, _)| *at == name).map_or(0, |(_, partition)| partition);
            let end = topic.partitions.len().min(first.saturating_add(left));
            let described = describe(image, context, topic, first, end);
            left -= described.partitions.len();
            response.topics.push(described);
            if end < topic.partitions.len() {
                response.next_cursor = cursor(name, end);
                break;
            }
        }
        response.topics.append(&mut unauthorized);
        response
    }
}

fn cursor(topic_name: &str, partition: usize) -> Option<Cursor<'_>> {
    let partition_index = i32::try_from(partition).unwrap_or(i32::MAX);
    Some(Cursor { topic_name, partition_index })
}

fn failed(error_code: ErrorCode, name: &str) -> DescribeTopicPartitionsResponseTopic<'_> {
    DescribeTopicPartitionsResponseTopic { error_code, name: Some(name), ..Default::default() }
}

fn describe<'a>(
    image: &'a MetadataImage,
    context: &RequestContext,
    topic: &'a TopicImage,
    first: usize,
    end: usize,
) -> DescribeTopicPartitionsResponseTopic<'a> {
    let partitions = (0_i32..).zip(&topic.partitions).take(end).skip(first);
    DescribeTopicPartitionsResponseTopic {
        name: Some(&topic.name),
        topic_id: wire_id(topic.id),
        is_internal: names::is_internal(&topic.name),
        partitions: partitions.map(|(index, partition)| describe_partition(image, context, index, partition)).collect(),
        topic_authorized_operations: topic_operations(context, &topic.name),
        ..Default::default()
    }
}

fn describe_partition(
    image: &MetadataImage,
    context: &RequestContext,
    index: i32,
    partition: &PartitionImage,
) -> DescribeTopicPartitionsResponsePartition {
    DescribeTopicPartitionsResponsePartition {
        partition_index: index,
        leader_id: reachable_leader(image, partition, &context.listener).unwrap_or(-1),
        leader_epoch: partition.leader_epoch.0,
        replica_nodes: partition.replicas.clone(),
        isr_nodes: partition.isr.clone(),
        // KIP-966's eligible leaders come with replication; empty, not null, says that there are none.
        eligible_leader_replicas: Some(Vec::new()),
        last_known_elr: Some(Vec::new()),
        offline_replicas: offline_replicas(image, partition, &context.listener),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::common::testing::{Cluster, context, id};
    use super::*;
    use corelog_net::wire::ApiKey;
    use corelog_net::wire::messages::DescribeTopicRequest;
    use std::sync::Arc;

    fn image() -> Arc<MetadataImage> {
        Cluster::of_one().topic("b", &[&[1], &[1], &[1]]).topic("a", &[&[1], &[1]]).topic("c", &[&[1]]).image()
    }

    fn named<'a>(names: &[&'a str]) -> DescribeTopicPartitionsRequest<'a> {
        let topics = names.iter().map(|name| DescribeTopicRequest { name }).collect();
        DescribeTopicPartitionsRequest { topics, ..Default::default() }
    }

    type Seen = (Vec<(String, ErrorCode, Vec<i32>)>, Option<(String, i32)>);

    /// The topics of the answer with their partitions, and the next cursor.
    fn ask(request: &DescribeTopicPartitionsRequest<'_>, partitions_max: i32) -> Result<Seen, ErrorCode> {
        let image = image();
        let context = context(ApiKey::DescribeTopicPartitions, 0);
        let page = Page::wanted(&image, request, partitions_max)?;
        let response = page.answer(&image, &context);
        let topic = |t: &DescribeTopicPartitionsResponseTopic<'_>| {
            let partitions = t.partitions.iter().map(|p| p.partition_index).collect();
            (t.name.unwrap_or_default().to_owned(), t.error_code, partitions)
        };
        let next = response.next_cursor.map(|cursor| (cursor.topic_name.to_owned(), cursor.partition_index));
        Ok((response.topics.iter().map(topic).collect(), next))
    }

    fn good(name: &str, partitions: &[i32]) -> (String, ErrorCode, Vec<i32>) {
        (name.to_owned(), ErrorCode::None, partitions.to_vec())
    }

    #[test]
    fn no_names_mean_all_topics_by_name() {
        let seen = ask(&named(&[]), 2000);
        assert_eq!(seen, Ok((vec![good("a", &[0, 1]), good("b", &[0, 1, 2]), good("c", &[0])], None)));
    }

    #[test]
    fn a_missing_topic_is_answered_where_its_name_stands() {
        let (topics, next) = ask(&named(&["c", "bad name", "b1", "c"]), 2000).unwrap_or_default();
        let errors: Vec<_> = topics.iter().map(|(name, code, _)| (name.as_str(), *code)).collect();
        let expected = [
            ("b1", ErrorCode::UnknownTopicOrPartition),
            ("bad name", ErrorCode::InvalidTopicException),
            ("c", ErrorCode::None),
        ];
        assert_eq!((errors, next), (expected.to_vec(), None));
    }

    #[test]
    fn a_page_ends_inside_a_topic_or_between_two_and_the_cursor_says_where() {
        let mut request = named(&[]);
        for (limit, expected) in [
            (1, (vec![good("a", &[0])], Some(("a".to_owned(), 1)))),
            (2, (vec![good("a", &[0, 1])], Some(("b".to_owned(), 0)))),
            (4, (vec![good("a", &[0, 1]), good("b", &[0, 1])], Some(("b".to_owned(), 2)))),
            (6, (vec![good("a", &[0, 1]), good("b", &[0, 1, 2]), good("c", &[0])], None)),
        ] {
            request.response_partition_limit = limit;
            assert_eq!(ask(&request, 2000), Ok(expected.clone()), "the client's limit of {limit}");
            request.response_partition_limit = 2000;
            assert_eq!(ask(&request, limit), Ok(expected), "the broker's limit of {limit}");
        }
        request.response_partition_limit = -5;
        assert_eq!(ask(&request, 2000).map(|(topics, _)| topics), Ok(vec![good("a", &[0])]), "at least one");
    }

    #[test]
    fn a_cursor_goes_on_where_the_last_page_ended() {
        let mut request = named(&[]);
        request.cursor = Some(Cursor { topic_name: "b", partition_index: 2 });
        assert_eq!(ask(&request, 2000), Ok((vec![good("b", &[2]), good("c", &[0])], None)));
        // The topic may be gone by now, or have no such partition.
        request.cursor = Some(Cursor { topic_name: "b0", partition_index: 9 });
        assert_eq!(ask(&request, 2000), Ok((vec![good("c", &[0])], None)));
        request.cursor = Some(Cursor { topic_name: "c", partition_index: 9 });
        assert_eq!(ask(&request, 2000), Ok((vec![good("c", &[])], None)));
    }

    #[test]
    fn a_cursor_outside_the_names_or_below_0_is_refused() {
        let mut request = named(&["a", "c"]);
        request.cursor = Some(Cursor { topic_name: "b", partition_index: 0 });
        assert_eq!(ask(&request, 2000), Err(ErrorCode::InvalidRequest));
        request.cursor = Some(Cursor { topic_name: "a", partition_index: -1 });
        assert_eq!(ask(&request, 2000), Err(ErrorCode::InvalidRequest));
        assert!(refuse(&request, ErrorCode::InvalidRequest).topics.iter().all(|t| t.error_code.is_error()));
    }

    #[test]
    fn a_topic_comes_with_its_id_and_what_may_be_done_with_it() {
        let image = image();
        let context = context(ApiKey::DescribeTopicPartitions, 0);
        let request = named(&["a"]);
        let page = Page::wanted(&image, &request, 10);
        let response = page.map(|page| page.answer(&image, &context)).unwrap_or_default();
        let topic = response.topics.first().cloned().unwrap_or_default();
        assert_eq!(topic.topic_id, wire_id(id(2)));
        assert_eq!(topic.topic_authorized_operations, 3576);
        let partition = topic.partitions.first().cloned().unwrap_or_default();
        assert_eq!((partition.leader_id, partition.leader_epoch), (1, 5));
        assert_eq!(partition.eligible_leader_replicas, Some(vec![]));
    }
}
