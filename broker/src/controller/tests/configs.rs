//! Changing configurations.

use super::World;
use crate::config::Durability;
use crate::controller::record::{ConfigResource, ResourceKind};
use crate::controller::request::ConfigOperation::{Append, Delete, Set, Subtract};
use crate::controller::request::{
    AlterConfigs, ChangedConfig, ConfigChange, ConfigOperation, IncrementalAlterConfigs, ReplacedConfig, Request,
    Response,
};

type Change<'a> = (&'a str, ConfigOperation, Option<&'a str>);

fn changed(resource: &ConfigResource, changes: &[Change<'_>]) -> ChangedConfig {
    let change = |&(name, operation, value): &Change<'_>| ConfigChange {
        name: name.to_owned(),
        operation,
        value: value.map(str::to_owned),
    };
    ChangedConfig { resource: resource.clone(), changes: changes.iter().map(change).collect() }
}

fn outcomes(response: Response) -> Vec<Result<(), String>> {
    match response {
        Response::AlterConfigs(results) => {
            results.into_iter().map(|(_, outcome)| outcome.map_err(|e| format!("{:?}: {e}", e.class()))).collect()
        }
        other => panic!("{other:?}"),
    }
}

fn alter(world: &mut World, resource: &ConfigResource, changes: &[Change<'_>]) -> Result<(), String> {
    let request = IncrementalAlterConfigs { resources: vec![changed(resource, changes)], validate_only: false };
    outcomes(world.handle(Request::IncrementalAlterConfigs(request))).pop().unwrap_or(Ok(()))
}

fn replace(world: &mut World, resource: &ConfigResource, configs: &[(&str, Option<&str>)]) -> Result<(), String> {
    let configs = configs.iter().map(|&(k, v)| (k.to_owned(), v.map(str::to_owned))).collect();
    let resources = vec![ReplacedConfig { resource: resource.clone(), configs }];
    let request = AlterConfigs { resources, validate_only: false };
    outcomes(world.handle(Request::AlterConfigs(request))).pop().unwrap_or(Ok(()))
}

fn stored(world: &World, resource: &ConfigResource) -> Vec<(String, String)> {
    world.controller.image().config(resource).iter().map(|(k, v)| (k.clone(), v.clone())).collect()
}

fn pair(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

fn with_topic() -> (World, ConfigResource) {
    let mut world = World::new();
    world.create_one("t", 1);
    (world, ConfigResource::topic("t"))
}

#[test]
fn set_and_delete_change_one_property_and_leave_the_others() {
    let (mut world, t) = with_topic();
    let set = [("retention.ms", Set, Some("5")), ("segment.ms", Set, Some("6"))];
    assert_eq!(alter(&mut world, &t, &set), Ok(()));
    assert_eq!(alter(&mut world, &t, &[("retention.ms", Delete, None)]), Ok(()));
    assert_eq!(stored(&world, &t), [pair("segment.ms", "6")]);
    assert_eq!(alter(&mut world, &t, &[("segment.ms", Delete, None), ("flush.ms", Delete, None)]), Ok(()));
    assert_eq!(stored(&world, &t), []);
}

#[test]
fn append_and_subtract_start_from_the_default_and_keep_items_single() {
    let (mut world, t) = with_topic();
    assert_eq!(alter(&mut world, &t, &[("cleanup.policy", Append, Some("delete,compact"))]), Ok(()));
    assert_eq!(stored(&world, &t), [pair("cleanup.policy", "delete,compact")]);
    assert_eq!(alter(&mut world, &t, &[("cleanup.policy", Subtract, Some("delete"))]), Ok(()));
    assert_eq!(stored(&world, &t), [pair("cleanup.policy", "compact")]);
    assert_eq!(alter(&mut world, &t, &[("cleanup.policy", Subtract, Some("delete,compact"))]), Ok(()));
    assert_eq!(stored(&world, &t), [pair("cleanup.policy", "")]);
}

#[test]
fn replacing_a_configuration_removes_what_is_not_named() {
    let (mut world, t) = with_topic();
    assert_eq!(replace(&mut world, &t, &[("retention.ms", Some("5")), ("segment.ms", Some("6"))]), Ok(()));
    assert_eq!(replace(&mut world, &t, &[("segment.ms", Some("6")), ("flush.ms", Some("7"))]), Ok(()));
    assert_eq!(stored(&world, &t), [pair("flush.ms", "7"), pair("segment.ms", "6")]);
    assert_eq!(replace(&mut world, &t, &[]), Ok(()));
    assert_eq!(stored(&world, &t), []);
}

#[test]
fn setting_a_topics_property_to_what_it_is_writes_nothing_and_a_brokers_does() {
    let (mut world, t) = with_topic();
    assert_eq!(alter(&mut world, &t, &[("retention.ms", Set, Some("5"))]), Ok(()));
    let written = world.records.len();
    assert_eq!(alter(&mut world, &t, &[("retention.ms", Set, Some("5"))]), Ok(()));
    assert_eq!(world.records.len(), written);
    let all = ConfigResource::cluster_default();
    for _ in 0..2 {
        assert_eq!(alter(&mut world, &all, &[("log.retention.ms", Set, Some("5"))]), Ok(()));
    }
    assert_eq!(world.records.len(), written + 2);
}

#[test]
fn every_refusal_on_a_topic_is_kafkas_and_changes_nothing() {
    let (mut world, t) = with_topic();
    let long = "9".repeat(32_768);
    let none = ConfigResource::topic("none");
    let cases: [(&ConfigResource, &[Change<'_>], &str); 13] = [
        (&t, &[("nope", Set, Some("1"))], "InvalidConfig: Unknown topic config name: nope"),
        (
            &t,
            &[("segment.ms", Set, Some("5")), ("retention.ms", Set, Some("x"))],
            "InvalidConfig: Invalid value x for configuration retention.ms: Not a number of type LONG",
        ),
        (
            &t,
            &[("retention.ms", Append, Some("1"))],
            "InvalidConfig: Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (
            &t,
            &[("nope", Subtract, Some("1"))],
            "InvalidConfig: Can't SUBTRACT to key nope because its type is not LIST.",
        ),
        (
            &t,
            &[("min.compaction.lag.ms", Set, Some("5")), ("max.compaction.lag.ms", Set, Some("4"))],
            "InvalidConfig: conflict topic config setting min.compaction.lag.ms (5) > max.compaction.lag.ms (4)",
        ),
        (
            &t,
            &[("remote.storage.enable", Set, Some("true"))],
            "InvalidConfig: Tiered Storage functionality is disabled in the broker. Topic cannot be configured with \
             remote log storage.",
        ),
        (
            &t,
            &[("leader.replication.throttled.replicas", Set, Some("0:1,x"))],
            "InvalidConfig: Invalid value [0:1, x] for configuration leader.replication.throttled.replicas: \
             leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the following \
             format: [partitionId]:[brokerId],[partitionId]:[brokerId],...",
        ),
        (&t, &[("retention.ms", Set, None)], "InvalidRequest: Null value not supported for : retention.ms"),
        (
            &t,
            &[("retention.ms", Set, Some("1")), ("retention.ms", Delete, None)],
            "InvalidRequest: Error due to duplicate config keys",
        ),
        (
            &t,
            &[("leader.replication.throttled.replicas", Set, Some(&long))],
            "InvalidConfig: The configuration value cannot be added because it exceeds the maximum value size of 32767 \
             bytes.",
        ),
        (&none, &[("retention.ms", Set, Some("1"))], "UnknownTopicOrPartition: The topic 'none' does not exist."),
        (
            &none,
            &[("retention.ms", Set, Some("y"))],
            "InvalidConfig: Invalid value y for configuration retention.ms: Not a number of type LONG",
        ),
        (
            &ConfigResource::topic(""),
            &[("retention.ms", Set, Some("1"))],
            "InvalidRequest: Default topic resources are not allowed.",
        ),
    ];
    for (resource, changes, reason) in cases {
        assert_eq!(alter(&mut world, resource, changes), Err(reason.to_owned()));
        assert_eq!(stored(&world, &t), [], "{reason}");
    }
    assert_eq!(
        replace(&mut world, &t, &[("retention.ms", None)]),
        Err("InvalidRequest: Null value not supported for : retention.ms".to_owned())
    );
    assert_eq!(
        alter(&mut world, &ConfigResource::topic("a/b"), &[]).map_err(|e| e.starts_with("InvalidTopic: ")),
        Err(true)
    );
}

#[test]
fn every_refusal_on_a_broker_is_kafkas() {
    let mut world = World::new();
    let (all, ours) = (ConfigResource::cluster_default(), ConfigResource::broker(1));
    let cases: [(&ConfigResource, &[Change<'_>], &str); 8] = [
        (
            &ours,
            &[("node.id", Set, Some("2")), ("log.dirs", Set, Some("x"))],
            "InvalidRequest: Cannot update these configs dynamically: Set(log.dirs, node.id)",
        ),
        (
            &all,
            &[("listeners", Set, Some("PLAINTEXT://h:1"))],
            "InvalidRequest: Cannot update these configs at default cluster level, broker id must be specified: \
             Set(listeners)",
        ),
        (
            &all,
            &[("log.segment.bytes", Set, Some("5"))],
            "InvalidRequest: Invalid value 5 for configuration log.segment.bytes: Value must be at least 1048576",
        ),
        (
            &all,
            &[("log.segment.bytes", Append, Some("5"))],
            "InvalidConfig: Config value append is not allowed for config key: log.segment.bytes",
        ),
        (
            &ConfigResource::broker(7),
            &[("log.segment.bytes", Set, Some("2000000"))],
            "InvalidRequest: Unexpected broker id, expected 1, but received 7",
        ),
        (
            &ConfigResource { kind: ResourceKind::Broker, name: "one".into() },
            &[("log.segment.bytes", Set, Some("2000000"))],
            "InvalidRequest: Node id must be an integer, but it is: one",
        ),
        (
            &ConfigResource { kind: ResourceKind::Group, name: "g".into() },
            &[("x", Set, Some("1"))],
            "InvalidRequest: Unknown resource type 32",
        ),
        (&all, &[("log.segment.bytes", Set, None)], "InvalidRequest: Null value not supported for : log.segment.bytes"),
    ];
    for (resource, changes, reason) in cases {
        assert_eq!(alter(&mut world, resource, changes), Err(reason.to_owned()));
    }
}

#[test]
fn a_brokers_dynamic_configuration_counts_at_once_for_topics_that_do_not_say() {
    let mut world = World::new();
    assert_eq!(world.controller.broker_config().topic_defaults.durability, Durability::Durable);
    let all = ConfigResource::cluster_default();
    assert_eq!(alter(&mut world, &all, &[("corelog.durability", Set, Some("memory"))]), Ok(()));
    assert_eq!(world.controller.broker_config().topic_defaults.durability, Durability::Memory);
    let ours = ConfigResource::broker(1);
    assert_eq!(alter(&mut world, &ours, &[("corelog.durability", Set, Some("durable"))]), Ok(()));
    assert_eq!(world.controller.broker_config().topic_defaults.durability, Durability::Durable);
    assert_eq!(alter(&mut world, &ours, &[("corelog.durability", Delete, None)]), Ok(()));
    assert_eq!(world.controller.broker_config().topic_defaults.durability, Durability::Memory);
}

#[test]
fn a_resource_named_twice_is_refused_twice_and_the_others_are_changed() {
    let (mut world, t) = with_topic();
    world.create_one("u", 1);
    let u = ConfigResource::topic("u");
    let set = [("retention.ms", Set, Some("5"))];
    let resources = vec![changed(&t, &set), changed(&u, &set), changed(&t, &set)];
    let request = IncrementalAlterConfigs { resources, validate_only: false };
    let twice = Err("InvalidRequest: Each resource must appear at most once.".to_owned());
    assert_eq!(outcomes(world.handle(Request::IncrementalAlterConfigs(request))), [twice.clone(), Ok(()), twice]);
    assert_eq!((stored(&world, &t).len(), stored(&world, &u).len()), (0, 1));
}

#[test]
fn validate_only_checks_and_changes_nothing() {
    let (mut world, t) = with_topic();
    let resources = vec![changed(&t, &[("retention.ms", Set, Some("5"))])];
    let request = IncrementalAlterConfigs { resources, validate_only: true };
    assert_eq!(outcomes(world.handle(Request::IncrementalAlterConfigs(request))), [Ok(())]);
    assert_eq!(stored(&world, &t), []);
}
