//! Metadata (3): the brokers, and the topics with their leaders. Missing topics may be created on the way.
//!
//! Holds: the answer, as a function of the metadata image, and auto-creation. Never touches: partitions' logs.

use std::collections::BTreeSet;
use std::rc::Rc;

use corelog_net::wire::messages::{
    MetadataRequest, MetadataResponse, MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use corelog_net::wire::{Encoder, ErrorCode, Uuid, Wire};
use tracing::{info, warn};

use super::common::{
    NoLeader, OPERATIONS_NOT_ASKED, cluster_operations, controller_id, is_reachable, offline_replicas,
    reachable_leader, topic_id, topic_operations, topics_by_name, wire_id,
};
use super::{ApiFailure, Operation, RequestContext, Resource, authorize};
use crate::controller::request::{CreateTopics, NewTopic};
use crate::controller::{self, MetadataImage, PartitionImage, TopicImage};
use crate::names;
use crate::shard::Shard;

/// Answers Metadata.
///
/// # Errors
/// None of its own.
pub async fn handle(
    shard: &Rc<Shard>,
    context: &RequestContext,
    request: MetadataRequest<'_>,
    out: &mut Encoder,
) -> Result<(), ApiFailure> {
    let image = shard.image();
    let wanted = match wanted(&request, context.version) {
        Ok(wanted) => wanted,
        Err(code) => {
            refuse(&request, code).encode(out);
            return Ok(());
        }
    };
    let may_create = request.allow_auto_topic_creation && shard.config().auto_create_topics;
    let view = View { image: &image, context, request: &request, may_create };
    let (response, missing) = view.answer(wanted);
    response.encode(out);
    if !missing.is_empty() {
        create_missing(shard, &missing).await;
    }
    Ok(())
}

/// What a request wants to know about.
#[derive(Debug, PartialEq, Eq)]
enum Wanted<'a> {
    All,
    ById(Vec<Uuid>),
    ByName(Vec<&'a str>),
}

/// Reads which topics a request names, each once.
fn wanted<'a>(request: &MetadataRequest<'a>, version: i16) -> Result<Wanted<'a>, ErrorCode> {
    // "All" is null; version 0 has no null and says it with an empty list.
    let Some(topics) = &request.topics else { return Ok(Wanted::All) };
    if topics.is_empty() && version == 0 {
        return Ok(Wanted::All);
    }
    // KIP-516: versions 10 and 11 have the fields, but only 12 may use them.
    if version < 12 && topics.iter().any(|topic| topic.name.is_none() || !topic.topic_id.is_zero()) {
        return Err(ErrorCode::InvalidRequest);
    }
    // As soon as one topic is named by its id, names alone do not count.
    if topics.iter().any(|topic| !topic.topic_id.is_zero()) {
        let ids = topics.iter().map(|topic| topic.topic_id).filter(|id| !id.is_zero());
        return Ok(Wanted::ById(each_once(ids)));
    }
    let names: Option<Vec<&str>> = topics.iter().map(|topic| topic.name).collect();
    names.map(|names| Wanted::ByName(each_once(names.into_iter()))).ok_or(ErrorCode::InvalidRequest)
}

/// The items, each where it stands first. Ordered, not hashed: a client must not be able to choose names that collide.
fn each_once<T: Copy + Ord>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = BTreeSet::new();
    items.filter(|item| seen.insert(*item)).collect()
}

/// The answer to a request that cannot be served at all.
fn refuse<'a>(request: &MetadataRequest<'a>, error_code: ErrorCode) -> MetadataResponse<'a> {
    let topics = request.topics.iter().flatten().map(|topic| MetadataResponseTopic {
        error_code,
        name: Some(topic.name.unwrap_or_default()),
        topic_id: topic.topic_id,
        ..Default::default()
    });
    MetadataResponse { topics: topics.collect(), error_code, ..Default::default() }
}

/// What an answer is made from.
struct View<'a> {
    image: &'a MetadataImage,
    context: &'a RequestContext,
    request: &'a MetadataRequest<'a>,
    may_create: bool,
}

impl<'a> View<'a> {
    /// The answer, and the topics to create.
    fn answer(&self, wanted: Wanted<'a>) -> (MetadataResponse<'a>, Vec<&'a str>) {
        let mut missing = Vec::new();
        let topics = match wanted {
            Wanted::All => {
                let topics = topics_by_name(self.image).into_iter();
                topics.filter(|topic| self.may_describe(&topic.name)).map(|topic| self.known(topic)).collect()
            }
            Wanted::ById(ids) => ids.into_iter().map(|id| self.by_id(id)).collect(),
            Wanted::ByName(names) => names.into_iter().map(|name| self.by_name(name, &mut missing)).collect(),
        };
        let response = MetadataResponse {
            brokers: self.brokers(),
            cluster_id: Some(self.image.cluster_id()),
            controller_id: controller_id(self.image),
            topics,
            cluster_authorized_operations: self.cluster_operations(),
            ..Default::default()
        };
        (response, missing)
    }

    fn by_id(&self, id: Uuid) -> MetadataResponseTopic<'a> {
        match self.image.topic(topic_id(id)) {
            None => self.failed(ErrorCode::UnknownTopicId, None, id),
            // Ids are no secret, names are.
            Some(topic) if !self.may_describe(&topic.name) => {
                self.failed(ErrorCode::TopicAuthorizationFailed, None, id)
            }
            Some(topic) => self.known(topic),
        }
    }

    fn by_name(&self, name: &'a str, missing: &mut Vec<&'a str>) -> MetadataResponseTopic<'a> {
        if !self.may_describe(name) {
            return self.failed(ErrorCode::TopicAuthorizationFailed, Some(name), Uuid::ZERO);
        }
        if let Some(topic) = self.image.topic_by_name(name) {
            return self.known(topic);
        }
        let mut answer = if names::validate_topic_name(name).is_err() {
            self.failed(ErrorCode::InvalidTopicException, Some(name), Uuid::ZERO)
        } else if self.may_create && !self.is_allowed(Operation::Create, name) {
            self.failed(ErrorCode::TopicAuthorizationFailed, Some(name), Uuid::ZERO)
        } else {
            if self.may_create {
                missing.push(name);
            }
            // Also when it is about to be created: the client asks again, as it does of Kafka.
            self.failed(ErrorCode::UnknownTopicOrPartition, Some(name), Uuid::ZERO)
        };
        answer.is_internal = names::is_internal(name);
        answer.topic_authorized_operations = self.topic_operations(name);
        answer
    }

    fn failed(&self, error_code: ErrorCode, name: Option<&'a str>, topic_id: Uuid) -> MetadataResponseTopic<'a> {
        MetadataResponseTopic { error_code, name, topic_id, ..Default::default() }
    }

    fn known(&self, topic: &'a TopicImage) -> MetadataResponseTopic<'a> {
        let partitions = (0_i32..).zip(&topic.partitions);
        MetadataResponseTopic {
            name: Some(&topic.name),
            topic_id: wire_id(topic.id),
            is_internal: names::is_internal(&topic.name),
            partitions: partitions.map(|(index, partition)| self.partition(index, partition)).collect(),
            topic_authorized_operations: self.topic_operations(&topic.name),
            ..Default::default()
        }
    }

    fn partition(&self, index: i32, partition: &PartitionImage) -> MetadataResponsePartition {
        let (image, listener, version) = (self.image, &*self.context.listener, self.context.version);
        // Version 0 leaves unreachable replicas out and calls that an error.
        let visible = |ids: &[i32]| -> Vec<i32> {
            ids.iter().copied().filter(|id| version > 0 || is_reachable(image, *id, listener)).collect()
        };
        let (replica_nodes, isr_nodes) = (visible(&partition.replicas), visible(&partition.isr));
        let some_hidden = replica_nodes.len() < partition.replicas.len() || isr_nodes.len() < partition.isr.len();
        let leader = reachable_leader(image, partition, listener);
        let error_code = match leader {
            Ok(_) if some_hidden => ErrorCode::ReplicaNotAvailable,
            Ok(_) => ErrorCode::None,
            // Version 6 tells a wrong set of listeners from a missing leader (KAFKA-6546).
            Err(NoLeader::OtherListeners) if version >= 6 => ErrorCode::ListenerNotFound,
            Err(NoLeader::OtherListeners | NoLeader::Absent) => ErrorCode::LeaderNotAvailable,
        };
        MetadataResponsePartition {
            error_code,
            partition_index: index,
            leader_id: leader.unwrap_or(-1),
            leader_epoch: partition.leader_epoch.0,
            replica_nodes,
            isr_nodes,
            offline_replicas: offline_replicas(image, partition, listener),
        }
    }

    fn brokers(&self) -> Vec<MetadataResponseBroker<'a>> {
        let reachable = |broker: &'a controller::BrokerImage| {
            let endpoint = broker.endpoint(&self.context.listener)?;
            Some(MetadataResponseBroker {
                node_id: broker.id,
                host: &endpoint.host,
                port: i32::from(endpoint.port),
                rack: broker.rack.as_deref(),
            })
        };
        self.image.brokers().values().filter_map(reachable).collect()
    }

    fn topic_operations(&self, name: &str) -> i32 {
        if self.request.include_topic_authorized_operations {
            topic_operations(self.context, name)
        } else {
            OPERATIONS_NOT_ASKED
        }
    }

    fn cluster_operations(&self) -> i32 {
        if !self.request.include_cluster_authorized_operations {
            OPERATIONS_NOT_ASKED
        } else if authorize(self.context, Operation::Describe, Resource::Cluster) {
            cluster_operations(self.context)
        } else {
            0
        }
    }

    fn may_describe(&self, topic: &str) -> bool {
        self.is_allowed(Operation::Describe, topic)
    }

    fn is_allowed(&self, operation: Operation, topic: &str) -> bool {
        // The right to create may be given for the whole cluster.
        (operation == Operation::Create && authorize(self.context, operation, Resource::Cluster))
            || authorize(self.context, operation, Resource::Topic(topic))
    }
}

/// Asks the controller for topics that somebody missed. Its answer changes nothing for the client, which asks again; the
/// request waits for it all the same, so that a client has at most one creation under way.
async fn create_missing(shard: &Rc<Shard>, missing: &[&str]) {
    let config = shard.config();
    let topics = missing.iter().map(|name| NewTopic::automatic(name, &config)).collect();
    let request = controller::Request::CreateTopics(CreateTopics { topics, validate_only: false });
    match shard.controller(request).await {
        Ok(controller::Response::CreateTopics(created)) => {
            for topic in created {
                match topic.outcome {
                    Ok(_) => info!(topic = topic.name, "topic created because a client asked for it"),
                    Err(error) => warn!(topic = topic.name, %error, "auto-creation failed"),
                }
            }
        }
        Ok(_) => {}
        Err(code) => warn!(code = code.name(), "auto-creation failed: the controller could not record it"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::common::testing::{Cluster, context, id};
    use super::*;
    use corelog_net::wire::ApiKey;
    use corelog_net::wire::messages::MetadataRequestTopic;

    fn named<'a>(names: &[&'a str]) -> MetadataRequest<'a> {
        let topic = |name: &&'a str| MetadataRequestTopic { name: Some(*name), ..Default::default() };
        MetadataRequest { topics: Some(names.iter().map(topic).collect()), ..Default::default() }
    }

    fn by_ids(ids: &[u8]) -> MetadataRequest<'static> {
        let topic = |n: &u8| MetadataRequestTopic { name: None, topic_id: wire_id(id(*n)) };
        MetadataRequest { topics: Some(ids.iter().map(topic).collect()), ..Default::default() }
    }

    /// The topics of the answer: error, name, number of partitions; and the names to create.
    fn ask(
        image: &MetadataImage,
        version: i16,
        request: &MetadataRequest<'_>,
        may_create: bool,
    ) -> (Vec<(ErrorCode, Option<String>, usize)>, Vec<String>) {
        let context = context(ApiKey::Metadata, version);
        let view = View { image, context: &context, request, may_create };
        let wanted = wanted(request, version);
        let (response, missing) = view.answer(wanted.unwrap_or(Wanted::All));
        let topics = response.topics.iter();
        let topics = topics.map(|t| (t.error_code, t.name.map(str::to_owned), t.partitions.len())).collect();
        (topics, missing.into_iter().map(str::to_owned).collect())
    }

    #[test]
    fn null_means_all_topics_and_so_does_an_empty_list_in_version_0() {
        let all = MetadataRequest { topics: None, ..Default::default() };
        let none = MetadataRequest { topics: Some(vec![]), ..Default::default() };
        assert_eq!(wanted(&all, 1), Ok(Wanted::All));
        assert_eq!(wanted(&none, 0), Ok(Wanted::All));
        assert_eq!(wanted(&none, 1), Ok(Wanted::ByName(vec![])));
    }

    #[test]
    fn a_topic_named_twice_is_answered_once() {
        assert_eq!(wanted(&named(&["b", "a", "b"]), 4), Ok(Wanted::ByName(vec!["b", "a"])));
    }

    #[test]
    fn ids_and_null_names_are_refused_below_version_12() {
        let request = by_ids(&[1]);
        for version in [10, 11] {
            assert_eq!(wanted(&request, version), Err(ErrorCode::InvalidRequest));
        }
        assert_eq!(wanted(&request, 12), Ok(Wanted::ById(vec![wire_id(id(1))])));
        let response = refuse(&request, ErrorCode::InvalidRequest);
        assert_eq!(response.topics.len(), 1);
        assert_eq!(response.topics[0].name, Some(""));
        assert_eq!(response.topics[0].error_code, ErrorCode::InvalidRequest);
    }

    #[test]
    fn one_id_makes_names_alone_not_count() {
        let mut request = by_ids(&[1]);
        request.topics.get_or_insert_default().extend(named(&["b"]).topics.unwrap_or_default());
        assert_eq!(wanted(&request, 12), Ok(Wanted::ById(vec![wire_id(id(1))])));
    }

    #[test]
    fn all_topics_are_listed_by_name() {
        let image = Cluster::of_one().topic("b", &[&[1]]).topic("a", &[&[1], &[1]]).image();
        let (topics, missing) = ask(&image, 12, &MetadataRequest { topics: None, ..Default::default() }, true);
        let expected = [(ErrorCode::None, Some("a".to_owned()), 2), (ErrorCode::None, Some("b".to_owned()), 1)];
        assert_eq!(topics, expected);
        assert!(missing.is_empty());
    }

    #[test]
    fn a_missing_topic_is_unknown_even_when_it_will_be_created() {
        let image = Cluster::of_one().image();
        for may_create in [false, true] {
            let (topics, missing) = ask(&image, 12, &named(&["new", "bad name"]), may_create);
            let unknown = (ErrorCode::UnknownTopicOrPartition, Some("new".to_owned()), 0);
            let invalid = (ErrorCode::InvalidTopicException, Some("bad name".to_owned()), 0);
            assert_eq!(topics, [unknown, invalid]);
            assert_eq!(missing, if may_create { vec!["new"] } else { vec![] });
        }
    }

    #[test]
    fn an_unknown_id_is_answered_with_a_null_name() {
        let image = Cluster::of_one().topic("a", &[&[1]]).image();
        let (topics, _) = ask(&image, 12, &by_ids(&[1, 2]), true);
        let expected = [(ErrorCode::None, Some("a".to_owned()), 1), (ErrorCode::UnknownTopicId, None, 0)];
        assert_eq!(topics, expected);
    }

    #[test]
    fn a_partition_without_a_reachable_leader_says_why_and_still_names_its_replicas() {
        let image = Cluster::of_one().broker(2, "INTERNAL").topic("a", &[&[2, 1], &[3, 1]]).image();
        let request = named(&["a"]);
        let expectations = [
            (5, [ErrorCode::LeaderNotAvailable, ErrorCode::LeaderNotAvailable]),
            (6, [ErrorCode::ListenerNotFound, ErrorCode::LeaderNotAvailable]),
        ];
        for (version, errors) in expectations {
            let context = context(ApiKey::Metadata, version);
            let view = View { image: &image, context: &context, request: &request, may_create: false };
            let (response, _) = view.answer(Wanted::ByName(vec!["a"]));
            let partitions = &response.topics[0].partitions;
            assert_eq!(partitions.iter().map(|p| p.error_code).collect::<Vec<_>>(), errors);
            assert!(partitions.iter().all(|p| p.leader_id == -1 && p.leader_epoch == 5));
            assert_eq!(partitions[0].replica_nodes, [2, 1]);
            assert_eq!(partitions[0].offline_replicas, [2]);
        }
    }

    #[test]
    fn version_0_hides_unreachable_replicas_and_calls_that_an_error() {
        let image = Cluster::of_one().topic("a", &[&[1, 2]]).image();
        let request = named(&["a"]);
        let context = context(ApiKey::Metadata, 0);
        let view = View { image: &image, context: &context, request: &request, may_create: false };
        let (response, _) = view.answer(Wanted::ByName(vec!["a"]));
        let partition = &response.topics[0].partitions[0];
        assert_eq!(partition.error_code, ErrorCode::ReplicaNotAvailable);
        assert_eq!((partition.leader_id, &*partition.replica_nodes), (1, &[1][..]));
    }

    #[test]
    fn brokers_are_those_with_the_clients_listener() {
        let image = Cluster::of_one().broker(2, "INTERNAL").image();
        let request = named(&[]);
        let context = context(ApiKey::Metadata, 9);
        let view = View { image: &image, context: &context, request: &request, may_create: false };
        let (response, _) = view.answer(Wanted::ByName(vec![]));
        let expected = MetadataResponseBroker { node_id: 1, host: "host-1", port: 9092, rack: Some("rack-a") };
        assert_eq!(response.brokers, [expected]);
        assert_eq!(response.controller_id, 1);
        assert_eq!(response.cluster_authorized_operations, i32::MIN);
    }

    #[test]
    fn authorized_operations_come_when_asked_for() {
        let image = Cluster::of_one().topic("a", &[&[1]]).image();
        let request = MetadataRequest {
            include_topic_authorized_operations: true,
            include_cluster_authorized_operations: true,
            ..named(&["a", "gone"])
        };
        let context = context(ApiKey::Metadata, 8);
        let view = View { image: &image, context: &context, request: &request, may_create: false };
        let (response, _) = view.answer(Wanted::ByName(vec!["a", "gone"]));
        assert!(response.topics.iter().all(|topic| topic.topic_authorized_operations == 3576));
        assert_eq!(response.cluster_authorized_operations, 8096);
    }
}
