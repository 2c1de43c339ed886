//! Creating and deleting topics, and giving them partitions.

use corelog_storage::ids::{LeaderEpoch, PartitionIndex, TopicId};

use super::{World, broker_config, topic};
use crate::controller::record::{ConfigResource, Record};
use crate::controller::request::{
    CreatePartitions, CreateTopics, DeleteTopics, DeletedTopic, MorePartitions, NewTopic, Request, Response,
    TopicSelector,
};

fn assigned(name: &str, assignments: &[(i32, &[i32])]) -> NewTopic {
    let assignments = assignments.iter().map(|&(p, replicas)| (PartitionIndex(p), replicas.to_vec())).collect();
    NewTopic { assignments, ..topic(name, -1, -1) }
}

fn configured(name: &str, configs: &[(&str, Option<&str>)]) -> NewTopic {
    let configs = configs.iter().map(|&(k, v)| (k.to_owned(), v.map(str::to_owned))).collect();
    NewTopic { configs, ..topic(name, 1, 1) }
}

fn delete(world: &mut World, topics: Vec<TopicSelector>) -> Vec<(Option<String>, Result<(), String>)> {
    match world.handle(Request::DeleteTopics(DeleteTopics { topics })) {
        Response::DeleteTopics(deleted) => deleted
            .into_iter()
            .map(|DeletedTopic { name, outcome, .. }| (name, outcome.map_err(|e| format!("{:?}: {e}", e.class()))))
            .collect(),
        other => panic!("{other:?}"),
    }
}

fn named(name: &str) -> TopicSelector {
    TopicSelector { name: Some(name.to_owned()), id: TopicId::ZERO }
}

fn with_id(id: TopicId) -> TopicSelector {
    TopicSelector { name: None, id }
}

fn more(world: &mut World, name: &str, count: i32, assignments: Option<&[&[i32]]>) -> Result<(), String> {
    let assignments = assignments.map(|all| all.iter().map(|replicas| replicas.to_vec()).collect());
    let topics = vec![MorePartitions { name: name.to_owned(), count, assignments }];
    match world.handle(Request::CreatePartitions(CreatePartitions { topics, validate_only: false })) {
        Response::CreatePartitions(results) => match results.as_slice() {
            [(_, outcome)] => outcome.clone().map_err(|e| format!("{:?}: {e}", e.class())),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_created_topic_is_in_the_image_with_its_id_partitions_and_configuration() {
    let mut world = World::new();
    let created = world
        .create(vec![NewTopic { configs: vec![("retention.ms".into(), Some("5".into()))], ..topic("orders", 3, 1) }]);
    let Some(Ok(facts)) = created.into_iter().next().map(|c| c.outcome) else { panic!("refused") };
    assert_eq!((facts.partitions, facts.replication_factor, facts.configs.len()), (3, 1, 1));
    let image = world.controller.image();
    let Some(topic) = image.topic_by_name("orders") else { panic!("not there") };
    assert_eq!(topic.id, facts.id);
    assert_eq!(image.topic(facts.id), Some(topic));
    assert_eq!((topic.partitions.len(), image.topic_count(), image.partition_count()), (3, 1, 3));
    let Some(partition) = topic.partition(PartitionIndex(2)) else { panic!("no partition 2") };
    assert_eq!((partition.replicas.as_slice(), partition.isr.as_slice()), ([1].as_slice(), [1].as_slice()));
    assert_eq!((partition.leader, partition.leader_epoch, partition.partition_epoch), (1, LeaderEpoch(0), 0));
    let configs = image.config(&ConfigResource::topic("orders"));
    assert_eq!(configs.get("retention.ms").map(String::as_str), Some("5"));
    // A version 4 UUID.
    assert_eq!((facts.id.0[6] >> 4, facts.id.0[8] >> 6), (4, 2));
}

#[test]
fn minus_one_takes_the_brokers_defaults() {
    let mut world = World::with_brokers(&[("num.partitions", "4"), ("default.replication.factor", "2")], &[1, 2]);
    world.create(vec![topic("t", -1, -1)]);
    let image = world.controller.image();
    let found = image.topic_by_name("t").map(|t| (t.partitions.len(), t.replication_factor()));
    assert_eq!(found, Some((4, 2)));
}

#[test]
fn every_refusal_of_a_new_topic_is_kafkas() {
    let mut world = World::with_brokers(&[], &[1, 2]);
    world.create_one("a.b", 1);
    let cases = [
        (topic("", 1, 1), "InvalidTopic: Topic name is invalid: the empty string is not allowed"),
        (topic("..", 1, 1), "InvalidTopic: Topic name is invalid: '..' is not allowed"),
        (topic("a.b", 1, 1), "TopicAlreadyExists: Topic 'a.b' already exists."),
        (topic("a_b", 1, 1), "InvalidTopic: Topic 'a_b' collides with existing topic: a.b"),
        (
            topic("__cluster_metadata", 1, 1),
            "InvalidRequest: Creation of internal topic __cluster_metadata is prohibited.",
        ),
        (topic("t", 0, 1), "InvalidPartitions: Number of partitions was set to an invalid non-positive value."),
        (topic("t", -2, 1), "InvalidPartitions: Number of partitions was set to an invalid non-positive value."),
        (
            topic("t", 1, 0),
            "InvalidReplicationFactor: Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (
            topic("t", 0, -2),
            "InvalidReplicationFactor: Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (
            topic("t", 1, 3),
            "InvalidReplicationFactor: Unable to replicate the partition 3 time(s): The target replication factor of 3 \
             cannot be reached because only 2 broker(s) are registered.",
        ),
        (topic("t", 10_001, 1), "PolicyViolation: Excessively large number of partitions per request."),
        (configured("t", &[("nope", Some("1"))]), "InvalidConfig: Unknown topic config name: nope"),
        (
            configured("t", &[("segment.bytes", Some("1"))]),
            "InvalidConfig: Invalid value 1 for configuration segment.bytes: Value must be at least 1048576",
        ),
        (
            configured("t", &[("retention.ms", None), ("segment.ms", None)]),
            "InvalidConfig: Null value not supported for topic configs: retention.ms,segment.ms",
        ),
        (
            NewTopic { replication_factor: 1, ..assigned("t", &[(0, &[1])]) },
            "InvalidRequest: A manual partition assignment was specified, but replication factor was not set to -1.",
        ),
        (
            NewTopic { partitions: 1, ..assigned("t", &[(0, &[1])]) },
            "InvalidRequest: A manual partition assignment was specified, but numPartitions was not set to -1.",
        ),
        (
            assigned("t", &[(0, &[1]), (0, &[2])]),
            "InvalidReplicaAssignment: Found multiple manual partition assignments for partition 0",
        ),
        (
            assigned("t", &[(0, &[1]), (2, &[2])]),
            "InvalidReplicaAssignment: partitions should be a consecutive 0-based integer sequence",
        ),
        (
            assigned("t", &[(0, &[])]),
            "InvalidReplicaAssignment: The manual partition assignment includes an empty replica list.",
        ),
        (
            assigned("t", &[(0, &[9])]),
            "InvalidReplicaAssignment: The manual partition assignment includes broker 9, but no such broker is \
             registered.",
        ),
        (
            assigned("t", &[(0, &[1, 1])]),
            "InvalidReplicaAssignment: The manual partition assignment includes the broker 1 more than once.",
        ),
        (
            assigned("t", &[(0, &[1, 2]), (1, &[1])]),
            "InvalidReplicaAssignment: The manual partition assignment includes a partition with 1 replica(s), but \
             this is not consistent with previous partitions, which have 2 replica(s).",
        ),
    ];
    for (topic, reason) in cases {
        assert_eq!(world.refused(topic.clone()), reason, "{topic:?}");
    }
}

#[test]
fn a_manual_assignment_is_kept_with_its_first_replica_as_the_leader() {
    let mut world = World::with_brokers(&[], &[1, 2]);
    world.create(vec![assigned("t", &[(1, &[2, 1]), (0, &[1, 2])])]);
    let image = world.controller.image();
    let Some(topic) = image.topic_by_name("t") else { panic!("refused") };
    let leaders: Vec<i32> = topic.partitions.iter().map(|p| p.leader).collect();
    assert_eq!(leaders, [1, 2]);
    assert_eq!(topic.partition(PartitionIndex(1)).map(|p| p.replicas.clone()), Some(vec![2, 1]));
}

#[test]
fn one_refused_topic_does_not_keep_the_others_from_being_created() {
    let mut world = World::new();
    let created = world.create(vec![
        topic("one", 1, 1),
        topic("x/y", 1, 1),
        topic("two", 1, 1),
        topic("dup", 1, 1),
        topic("dup", 2, 1),
    ]);
    let summary: Vec<(&str, bool)> = created.iter().map(|c| (c.name.as_str(), c.outcome.is_ok())).collect();
    assert_eq!(summary, [("one", true), ("x/y", false), ("two", true), ("dup", false)]);
    let duplicate = created.iter().find(|c| c.name == "dup").map(|c| c.outcome.clone().map_err(|e| e.to_string()));
    assert!(matches!(duplicate, Some(Err(reason)) if reason == "Duplicate topic name."));
    assert_eq!(world.controller.image().topic_count(), 2);
}

#[test]
fn two_names_that_clash_within_a_request_are_both_created_as_in_kafka() {
    let mut world = World::new();
    let created = world.create(vec![topic("a.b", 1, 1), topic("a_b", 1, 1)]);
    assert!(created.iter().all(|c| c.outcome.is_ok()));
}

#[test]
fn a_name_is_free_again_when_the_topic_it_clashed_with_is_deleted() {
    let mut world = World::new();
    world.create_one("a.b", 1);
    world.refused(topic("a_b", 1, 1));
    delete(&mut world, vec![named("a.b")]);
    world.create_one("a_b", 1);
}

#[test]
fn validate_only_answers_as_if_and_changes_nothing() {
    let mut world = World::new();
    let request = CreateTopics { topics: vec![topic("t", 2, 1), topic("", 1, 1)], validate_only: true };
    let written = world.records.len();
    let Response::CreateTopics(created) = world.handle(Request::CreateTopics(request)) else { panic!("other") };
    assert_eq!(created.iter().map(|c| c.outcome.is_ok()).collect::<Vec<_>>(), [true, false]);
    assert_eq!(world.records.len(), written);
    assert_eq!(world.controller.image().topic_count(), 0);
}

#[test]
fn internal_topics_get_as_many_replicas_as_there_are_brokers_and_others_do_not() {
    let mut world = World::new();
    let config = broker_config(&[]);
    for name in ["__consumer_offsets", "__transaction_state", "__share_group_state"] {
        let created = world.create(vec![NewTopic::automatic(name, &config)]);
        let Some(Ok(facts)) = created.into_iter().next().map(|c| c.outcome) else { panic!("{name} refused") };
        assert_eq!((facts.partitions, facts.replication_factor), (50, 1), "{name}");
        assert_eq!(facts.configs.get("segment.bytes").map(String::as_str), Some("104857600"), "{name}");
    }
    let transactions = world.controller.image().config(&ConfigResource::topic("__transaction_state"));
    assert_eq!(transactions.get("min.insync.replicas").map(String::as_str), Some("2"));
    assert_eq!(transactions.get("cleanup.policy").map(String::as_str), Some("compact"));
    world.refused(topic("mine", 1, 3));
    let ordinary = NewTopic::automatic("mine", &config);
    assert_eq!((ordinary.partitions, ordinary.replication_factor, ordinary.configs.len()), (-1, -1, 0));
}

#[test]
fn the_records_of_a_topic_come_in_an_order_that_a_reader_can_rely_on() {
    let mut world = World::new();
    let from = world.records.len();
    world.create(vec![configured("t", &[("retention.ms", Some("1"))])]);
    let kinds: Vec<&str> = world.records[from..]
        .iter()
        .map(|record| match record {
            Record::Topic { .. } => "topic",
            Record::Config { .. } => "config",
            Record::Partition { .. } => "partition",
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(kinds, ["topic", "config", "partition"]);
}

#[test]
fn a_deleted_topic_takes_its_configuration_along() {
    let mut world = World::new();
    world.create(vec![configured("t", &[("retention.ms", Some("1"))])]);
    world.create_one("other", 2);
    let deleted = delete(&mut world, vec![named("t")]);
    assert_eq!(deleted, [(Some("t".to_owned()), Ok(()))]);
    let image = world.controller.image();
    assert_eq!((image.topic_count(), image.partition_count()), (1, 2));
    assert!(image.config(&ConfigResource::topic("t")).is_empty());
    world.create_one("t", 1);
    assert!(world.controller.image().config(&ConfigResource::topic("t")).is_empty());
}

#[test]
fn every_refusal_of_a_deletion_is_kafkas() {
    let mut world = World::new();
    world.create_one("t", 1);
    world.create_one("u", 1);
    let Some(id) = world.controller.image().topic_id("t") else { panic!("no topic") };
    let unknown = TopicId([9; 16]);
    let both = TopicSelector { name: Some("t".into()), id };
    let one = |world: &mut World, selectors: Vec<TopicSelector>| delete(world, selectors);
    let refused = |name: Option<&str>, reason: &str| (name.map(str::to_owned), Err(reason.to_owned()));
    assert_eq!(
        one(&mut world, vec![TopicSelector::default()]),
        [refused(None, "InvalidRequest: Neither topic name nor id were specified.")]
    );
    assert_eq!(
        one(&mut world, vec![both]),
        [refused(Some("t"), "InvalidRequest: You may not specify both topic name and topic id.")]
    );
    assert_eq!(
        one(&mut world, vec![named("t"), named("t")]),
        [refused(Some("t"), "InvalidRequest: Duplicate topic name.")]
    );
    assert_eq!(
        one(&mut world, vec![with_id(id), with_id(id), named("t")]),
        [
            refused(None, "InvalidRequest: Duplicate topic id."),
            refused(Some("t"), "InvalidRequest: The provided topic name maps to an ID that was already supplied."),
        ]
    );
    assert_eq!(
        one(&mut world, vec![with_id(id), named("t")]),
        [refused(Some("t"), "InvalidRequest: The provided topic name maps to an ID that was already supplied.")]
    );
    assert_eq!(
        one(&mut world, vec![named("none"), with_id(unknown)]),
        [
            refused(None, "UnknownTopicId: This server does not host this topic ID."),
            refused(Some("none"), "UnknownTopicOrPartition: This server does not host this topic-partition."),
        ]
    );
    assert_eq!(world.controller.image().topic_count(), 2, "nothing was deleted");
    assert_eq!(one(&mut world, vec![with_id(id), named("u")]).iter().filter(|(_, o)| o.is_ok()).count(), 2);
    assert_eq!(world.controller.image().topic_count(), 0);
}

#[test]
fn new_partitions_follow_the_old_ones_with_the_same_number_of_replicas() {
    let mut world = World::with_brokers(&[], &[1, 2, 3]);
    world.create(vec![topic("t", 2, 2)]);
    assert_eq!(more(&mut world, "t", 5, None), Ok(()));
    assert_eq!(more(&mut world, "t", 6, Some(&[&[3, 1]])), Ok(()));
    let image = world.controller.image();
    let Some(topic) = image.topic_by_name("t") else { panic!("no topic") };
    assert_eq!(topic.partitions.len(), 6);
    assert!(topic.partitions.iter().all(|p| p.replicas.len() == 2 && p.leader_epoch == LeaderEpoch(0)));
    assert_eq!(topic.partition(PartitionIndex(5)).map(|p| p.leader), Some(3));
    assert_eq!(image.partition_count(), 6);
}

#[test]
fn every_refusal_of_more_partitions_is_kafkas() {
    let mut world = World::new();
    world.create_one("t", 2);
    let refused =
        |world: &mut World, name, count, assignments: Option<&[&[i32]]>| match more(world, name, count, assignments) {
            Ok(()) => panic!("accepted"),
            Err(reason) => reason,
        };
    assert_eq!(
        refused(&mut world, "none", 3, None),
        "UnknownTopicOrPartition: This server does not host this topic-partition."
    );
    assert_eq!(refused(&mut world, "t", 2, None), "InvalidPartitions: Topic already has 2 partition(s).");
    assert_eq!(
        refused(&mut world, "t", 1, None),
        "InvalidPartitions: The topic t currently has 2 partition(s); 1 would not be an increase."
    );
    assert_eq!(
        refused(&mut world, "t", -1, None),
        "InvalidPartitions: The topic t currently has 2 partition(s); -1 would not be an increase."
    );
    assert_eq!(
        refused(&mut world, "t", 4, Some(&[&[1]])),
        "InvalidReplicaAssignment: Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified."
    );
    assert_eq!(
        refused(&mut world, "t", 3, Some(&[&[1, 1]])),
        "InvalidReplicaAssignment: The manual partition assignment includes the broker 1 more than once."
    );
    assert_eq!(
        refused(&mut world, "t", 20_000, None),
        "PolicyViolation: Excessively large number of partitions per request."
    );
    assert_eq!(world.controller.image().partition_count(), 2);
}

#[test]
fn a_topic_named_twice_in_a_request_for_partitions_gets_none() {
    let mut world = World::new();
    world.create_one("t", 1);
    let twice = |count| MorePartitions { name: "t".into(), count, assignments: None };
    let request = CreatePartitions { topics: vec![twice(2), twice(3)], validate_only: false };
    let Response::CreatePartitions(results) = world.handle(Request::CreatePartitions(request)) else { panic!("other") };
    assert_eq!(results.len(), 1);
    assert_eq!(world.controller.image().partition_count(), 1);
}
