//! CreateTopics (19).
//!
//! Holds: the way from the wire to the controller and back. Never touches: what makes a topic legal (the controller decides).

use std::rc::Rc;

use corelog_net::wire::messages::{
    CreatableTopic, CreatableTopicConfigs, CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse,
};
use corelog_net::wire::{Encoder, ErrorCode, Wire};
use corelog_storage::ids::PartitionIndex;

use super::common::{CONTROLLER_GONE, Refusal, wire_id};
use super::{ApiFailure, Operation, RequestContext, Resource, authorize};
use crate::config::describe::{DescribedConfig, describe_new_topic};
use crate::controller;
use crate::controller::request::{CreateTopics, CreatedTopic, NewTopic, NewTopicFacts};
use crate::shard::Shard;

/// Answers CreateTopics, when the topics are durable and known to every core.
///
/// # Errors
/// None of its own.
pub async fn handle(
    shard: &Rc<Shard>,
    context: &RequestContext,
    request: CreateTopicsRequest<'_>,
    out: &mut Encoder,
) -> Result<(), ApiFailure> {
    let (allowed, forbidden): (Vec<_>, Vec<_>) =
        request.topics.iter().partition(|topic| may_create(context, topic.name));
    let asked = controller::Request::CreateTopics(CreateTopics {
        topics: allowed.iter().map(|topic| new_topic(topic)).collect(),
        validate_only: request.validate_only,
    });
    let outcomes: Vec<Outcome> = match shard.controller(asked).await {
        Ok(controller::Response::CreateTopics(created)) => created.into_iter().map(Outcome::of).collect(),
        other => {
            let gone = Refusal::from(other.err().unwrap_or(CONTROLLER_GONE));
            allowed.iter().map(|topic| Outcome::refused(topic.name, gone.clone())).collect()
        }
    };
    let forbidden = forbidden.iter().map(|topic| {
        let refusal = Refusal::new(ErrorCode::TopicAuthorizationFailed, "Authorization failed.");
        Outcome::refused(topic.name, refusal)
    });
    let outcomes: Vec<Outcome> = outcomes.into_iter().chain(forbidden).collect();

    // KIP-525: the configuration of a new topic is part of the answer.
    let described: Vec<Option<Vec<DescribedConfig>>> = outcomes
        .iter()
        .map(|outcome| {
            let facts = outcome.created.as_ref().ok()?;
            authorize(context, Operation::DescribeConfigs, Resource::Topic(&outcome.name))
                .then(|| describe_new_topic(&shard.config(), &outcome.name, &facts.configs))
        })
        .collect();
    let topics = outcomes.iter().zip(&described).map(|(outcome, configs)| outcome.encode(configs.as_deref())).collect();
    CreateTopicsResponse { topics, ..Default::default() }.encode(out);
    Ok(())
}

fn may_create(context: &RequestContext, topic: &str) -> bool {
    authorize(context, Operation::Create, Resource::Cluster)
        || authorize(context, Operation::Create, Resource::Topic(topic))
}

fn new_topic(topic: &CreatableTopic<'_>) -> NewTopic {
    let configs = topic.configs.iter().map(|c| (c.name.to_owned(), c.value.map(str::to_owned)));
    NewTopic {
        name: topic.name.to_owned(),
        partitions: topic.num_partitions,
        replication_factor: topic.replication_factor,
        assignments: topic
            .assignments
            .iter()
            .map(|assignment| (PartitionIndex(assignment.partition_index), assignment.broker_ids.clone()))
            .collect(),
        configs: configs.collect(),
    }
}

/// What became of one topic.
struct Outcome {
    name: String,
    created: Result<NewTopicFacts, Refusal>,
}

impl Outcome {
    fn of(topic: CreatedTopic) -> Self {
        let created = topic.outcome.map_err(|error| Refusal::by_controller(error.class(), &error));
        Self { name: topic.name, created }
    }

    fn refused(name: &str, refusal: Refusal) -> Self {
        Self { name: name.to_owned(), created: Err(refusal) }
    }

    /// `configs`: the topic's configuration, if the client may see it.
    fn encode<'a>(&'a self, configs: Option<&'a [DescribedConfig]>) -> CreatableTopicResult<'a> {
        let nothing = CreatableTopicResult { name: &self.name, error_message: None, ..Default::default() };
        match (&self.created, configs) {
            (Err(refusal), _) => {
                CreatableTopicResult { error_code: refusal.code, error_message: refusal.message.as_deref(), ..nothing }
            }
            // Without the right to see the configuration the client is told neither it nor the numbers.
            (Ok(facts), None) => CreatableTopicResult {
                topic_id: wire_id(facts.id),
                topic_config_error_code: ErrorCode::TopicAuthorizationFailed,
                ..nothing
            },
            (Ok(facts), Some(configs)) => CreatableTopicResult {
                topic_id: wire_id(facts.id),
                num_partitions: facts.partitions,
                replication_factor: facts.replication_factor,
                configs: Some(configs.iter().map(encode_config).collect()),
                ..nothing
            },
        }
    }
}

fn encode_config(entry: &DescribedConfig) -> CreatableTopicConfigs<'_> {
    CreatableTopicConfigs {
        name: &entry.name,
        value: entry.value.as_deref(),
        read_only: entry.read_only,
        config_source: entry.source.id(),
        is_sensitive: entry.sensitive,
    }
}

#[cfg(test)]
mod tests {
    use super::super::common::testing::id;
    use super::*;
    use crate::config::describe::ConfigSource;

    fn outcome(created: Result<NewTopicFacts, Refusal>) -> Outcome {
        Outcome { name: "a".to_owned(), created }
    }

    fn facts() -> NewTopicFacts {
        NewTopicFacts { id: id(3), partitions: 4, replication_factor: 1, configs: Default::default() }
    }

    #[test]
    fn a_new_topic_comes_with_its_numbers_and_its_configuration() {
        let config = DescribedConfig {
            name: "retention.ms".to_owned(),
            value: Some("5".to_owned()),
            source: ConfigSource::DynamicTopic,
            read_only: false,
            sensitive: false,
            kind: None,
            documentation: None,
            synonyms: Vec::new(),
        };
        let outcome = outcome(Ok(facts()));
        let encoded = outcome.encode(Some(std::slice::from_ref(&config)));
        assert_eq!((encoded.num_partitions, encoded.replication_factor), (4, 1));
        assert_eq!((encoded.error_code, encoded.error_message), (ErrorCode::None, None));
        assert_eq!(encoded.topic_id, wire_id(id(3)));
        let configs = encoded.configs.unwrap_or_default();
        assert_eq!(
            configs.iter().map(|c| (c.name, c.value, c.config_source)).collect::<Vec<_>>(),
            [("retention.ms", Some("5"), 1)]
        );
    }

    #[test]
    fn who_may_not_see_the_configuration_is_not_told_the_numbers_either() {
        let outcome = outcome(Ok(facts()));
        let encoded = outcome.encode(None);
        assert_eq!(encoded.topic_config_error_code, ErrorCode::TopicAuthorizationFailed);
        assert_eq!((encoded.error_code, encoded.num_partitions), (ErrorCode::None, -1));
    }

    #[test]
    fn a_refused_topic_has_a_reason_and_no_numbers() {
        let outcome = outcome(Err(Refusal::new(ErrorCode::TopicAlreadyExists, "Topic 'a' already exists.")));
        let encoded = outcome.encode(None);
        assert_eq!(encoded.error_code, ErrorCode::TopicAlreadyExists);
        assert_eq!(encoded.error_message, Some("Topic 'a' already exists."));
        assert_eq!((encoded.num_partitions, encoded.replication_factor), (-1, -1));
        assert_eq!(encoded.configs, Some(vec![]));
    }
}
