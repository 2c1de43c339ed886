//! Registration, epochs, producer ids, pins.

use corelog_storage::ids::{LeaderEpoch, PartitionIndex, TopicId};

use super::{World, registration, topic};
use crate::controller::PRODUCER_ID_BLOCK_LEN;
use crate::controller::record::Record;
use crate::controller::request::{AllocateProducerIds, PinCore, ProducerIdBlock, RegisterBroker, Request, Response};

fn allocate(world: &mut World, broker_id: i32, broker_epoch: i64) -> Result<ProducerIdBlock, String> {
    match world.handle(Request::AllocateProducerIds(AllocateProducerIds { broker_id, broker_epoch })) {
        Response::AllocateProducerIds(outcome) => outcome.map_err(|e| format!("{:?}: {e}", e.class())),
        other => panic!("{other:?}"),
    }
}

fn pin(world: &mut World, pin: PinCore) -> Result<(), String> {
    match world.handle(Request::PinCore(pin)) {
        Response::PinCore(outcome) => outcome.map_err(|e| format!("{:?}: {e}", e.class())),
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_start_gives_every_partition_that_the_broker_leads_a_new_epoch() {
    let mut world = World::with_brokers(&[], &[1, 2]);
    world.create(vec![topic("t", 4, 1)]);
    let led = |world: &World| -> Vec<(i32, i32, i32)> {
        let image = world.controller.image();
        let topic = image.topic_by_name("t").cloned();
        topic.iter().flat_map(|t| &t.partitions).map(|p| (p.leader, p.leader_epoch.0, p.partition_epoch)).collect()
    };
    world.register(1);
    world.register(1);
    for (leader, leader_epoch, partition_epoch) in led(&world) {
        let starts = if leader == 1 { 2 } else { 0 };
        assert_eq!((leader_epoch, partition_epoch), (starts, starts), "led by {leader}");
    }
    let brokers = world.controller.image();
    assert_eq!(brokers.brokers().get(&1).map(|b| b.epoch), Some(3));
    assert_eq!(brokers.brokers().get(&2).map(|b| b.epoch), Some(1));
}

#[test]
fn a_restart_of_many_partitions_is_one_short_record() {
    let mut world = World::new();
    world.create_one("t", 5000);
    let from = world.records.len();
    world.register(1);
    assert!(matches!(
        &world.records[from..],
        [Record::BrokerRegistration { .. }, Record::LeaderEpochBump { broker_id: 1 }]
    ));
}

#[test]
fn a_registration_needs_an_id_an_endpoint_and_epochs_that_are_left() {
    let mut world = World::new();
    let refused = |world: &mut World, request: RegisterBroker| match world.handle(Request::RegisterBroker(request)) {
        Response::RegisterBroker(Err(error)) => error.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(&mut world, registration(-1)), "Broker id -1 is negative");
    let nowhere = RegisterBroker { endpoints: Vec::new(), ..registration(1) };
    assert_eq!(refused(&mut world, nowhere), "Broker 1 registered without an endpoint");
    world.create_one("t", 1);
    let Some(id) = world.controller.image().topic_id("t") else { panic!("no topic") };
    let last = Record::PartitionChange {
        topic: id,
        partition: PartitionIndex(0),
        replicas: None,
        isr: None,
        leader: None,
        leader_epoch: LeaderEpoch(i32::MAX),
        partition_epoch: 1,
    };
    assert_eq!(world.controller.replay(&last), Ok(()));
    assert!(refused(&mut world, registration(1)).contains("has used up its epochs"));
}

#[test]
fn blocks_of_producer_ids_never_overlap() {
    let mut world = World::new();
    for block in 0..5 {
        let expected = ProducerIdBlock { first: block * i64::from(PRODUCER_ID_BLOCK_LEN), len: 1000 };
        assert_eq!(allocate(&mut world, 1, 1), Ok(expected));
    }
    assert_eq!(world.controller.image().next_producer_id(), 5000);
}

#[test]
fn producer_ids_are_for_the_brokers_present_start_only() {
    let mut world = World::new();
    assert_eq!(
        allocate(&mut world, 2, 1),
        Err("StaleBrokerEpoch: No broker registration found for broker id 2".to_owned())
    );
    world.register(1);
    assert_eq!(
        allocate(&mut world, 1, 1),
        Err("StaleBrokerEpoch: Expected broker epoch 2, but got broker epoch 1".to_owned())
    );
    let used_up = Record::ProducerIds { broker_id: 1, broker_epoch: 2, next_producer_id: i64::MAX - 999 };
    assert_eq!(world.controller.replay(&used_up), Ok(()));
    assert!(allocate(&mut world, 1, 2).is_err_and(|e| e.starts_with("UnknownServerError: Exhausted all producerIds")));
}

#[test]
fn a_pin_is_kept_until_it_or_its_topic_is_removed() {
    let mut world = World::new();
    world.create_one("t", 2);
    let Some(id) = world.controller.image().topic_id("t") else { panic!("no topic") };
    let to = |shard| PinCore { broker_id: 1, topic: id, partition: PartitionIndex(1), shard };
    assert_eq!(pin(&mut world, to(Some(3))), Ok(()));
    assert_eq!(world.controller.image().core_pin(1, id, PartitionIndex(1)), Some(3));
    let written = world.records.len();
    assert_eq!(pin(&mut world, to(Some(3))), Ok(()));
    assert_eq!(world.records.len(), written, "nothing to write");
    assert_eq!(pin(&mut world, to(None)), Ok(()));
    assert_eq!(world.controller.image().core_pins().count(), 0);
    assert_eq!(pin(&mut world, to(Some(1))), Ok(()));
    assert_eq!(world.controller.replay(&Record::RemoveTopic { id }), Ok(()));
    assert_eq!(world.controller.image().core_pins().count(), 0);
}

#[test]
fn a_pin_needs_a_partition_and_a_broker() {
    let mut world = World::new();
    let missing = PinCore { broker_id: 1, topic: TopicId([1; 16]), partition: PartitionIndex(0), shard: Some(0) };
    assert_eq!(
        pin(&mut world, missing),
        Err("UnknownTopicOrPartition: This server does not host this topic-partition.".to_owned())
    );
    assert_eq!(
        pin(&mut world, PinCore { broker_id: 9, ..missing }),
        Err("BrokerIdNotRegistered: Broker ID 9 is not currently registered".to_owned())
    );
}
