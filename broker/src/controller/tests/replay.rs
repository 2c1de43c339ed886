//! Replay: the records say all that the state is.

use std::sync::Arc;

use corelog_storage::ids::{LeaderEpoch, PartitionIndex, TopicId};
use proptest::prelude::*;

use super::{Seeded, World, broker_config, topic};
use crate::controller::codec::{decode, encode};
use crate::controller::delta::Delta;
use crate::controller::features::{FEATURES, METADATA_VERSION};
use crate::controller::image::{MetadataImage, ReplayError};
use crate::controller::log::{Entry, recover};
use crate::controller::record::{ConfigResource, Record};
use crate::controller::request::{
    AllocateProducerIds, AlterConfigs, ChangedConfig, ConfigChange, ConfigOperation, CreatePartitions, CreateTopics,
    DeleteTopics, FeatureChange, FeatureUpdate, IncrementalAlterConfigs, MorePartitions, NewTopic, PinCore,
    ReplacedConfig, Request, TopicSelector, UpdateFeatures,
};
use crate::controller::snapshot::{decode_image, encode_image, records_of};

/// Few names, so that requests meet topics that exist; some of them clash or are illegal.
const NAMES: [&str; 7] = ["a", "b", "a.b", "a_b", "__consumer_offsets", "x/y", ""];
const KEYS: [(&str, &str); 6] = [
    ("retention.ms", "100"),
    ("cleanup.policy", "compact"),
    ("log.retention.ms", "200"),
    ("corelog.durability", "memory"),
    ("no.such.key", "1"),
    ("segment.bytes", "oops"),
];

fn pick<T: Copy>(random: &mut Seeded, from: &[T]) -> T {
    from[random.below(from.len() as u64) as usize]
}

fn any_resource(random: &mut Seeded) -> ConfigResource {
    match random.below(4) {
        0 => ConfigResource::cluster_default(),
        1 => ConfigResource::broker(1),
        _ => ConfigResource::topic(pick(random, &NAMES)),
    }
}

fn any_topic_id(image: &MetadataImage, random: &mut Seeded) -> TopicId {
    image.topic_id(pick(random, &NAMES)).unwrap_or(TopicId([5; 16]))
}

fn any_request(world: &mut World) -> Request {
    let image = world.controller.image();
    let random = &mut world.random;
    let (name, (key, value)) = (pick(random, &NAMES).to_owned(), pick(random, &KEYS));
    let validate_only = random.below(8) == 0;
    match random.below(12) {
        0..=2 => {
            let mut topics = vec![topic(&name, random.below(6) as i32 - 1, random.below(4) as i16 - 1)];
            if random.below(3) == 0 {
                topics.push(NewTopic {
                    configs: vec![(key.to_owned(), Some(value.to_owned()))],
                    ..topic(pick(random, &NAMES), 2, 1)
                });
            }
            if random.below(4) == 0 {
                topics.push(NewTopic {
                    assignments: vec![(PartitionIndex(0), vec![2, 1]), (PartitionIndex(1), vec![1, 2])],
                    ..topic("manual", -1, -1)
                });
            }
            Request::CreateTopics(CreateTopics { topics, validate_only })
        }
        3 => {
            let by_id = random.below(2) == 0;
            let selector = TopicSelector {
                name: (!by_id).then_some(name),
                id: if by_id { any_topic_id(&image, random) } else { TopicId::ZERO },
            };
            Request::DeleteTopics(DeleteTopics { topics: vec![selector] })
        }
        4 => {
            let topics = vec![MorePartitions { name, count: random.below(12) as i32, assignments: None }];
            Request::CreatePartitions(CreatePartitions { topics, validate_only })
        }
        5 => {
            let configs = vec![(key.to_owned(), Some(value.to_owned()))];
            let resources = vec![ReplacedConfig { resource: any_resource(random), configs }];
            Request::AlterConfigs(AlterConfigs { resources, validate_only })
        }
        6 | 7 => {
            let operation = pick(
                random,
                &[ConfigOperation::Set, ConfigOperation::Delete, ConfigOperation::Append, ConfigOperation::Subtract],
            );
            let changes = vec![ConfigChange { name: key.to_owned(), operation, value: Some(value.to_owned()) }];
            let resources = vec![ChangedConfig { resource: any_resource(random), changes }];
            Request::IncrementalAlterConfigs(IncrementalAlterConfigs { resources, validate_only })
        }
        8 => {
            let broker_id = random.below(3) as i32;
            let broker_epoch = image.brokers().get(&broker_id).map_or(1, |b| b.epoch);
            Request::AllocateProducerIds(AllocateProducerIds { broker_id, broker_epoch })
        }
        9 => Request::RegisterBroker(super::registration(random.below(3) as i32)),
        10 => {
            let updates = vec![FeatureUpdate {
                name: METADATA_VERSION.to_owned(),
                level: pick(random, &[7, 29, 30]),
                allowed: FeatureChange::Upgrade,
            }];
            Request::UpdateFeatures(UpdateFeatures { updates, validate_only })
        }
        _ => Request::PinCore(PinCore {
            broker_id: random.below(3) as i32,
            topic: any_topic_id(&image, random),
            partition: PartitionIndex(random.below(4) as i32),
            shard: (random.below(3) > 0).then(|| random.below(4) as u16),
        }),
    }
}

/// Runs random requests; every step's records go through their bytes into a log.
fn live(seed: u64, steps: usize) -> (World, Vec<Entry>) {
    let mut world = World::with_brokers(&[], &[1, 2]);
    world.random = Seeded(seed);
    let entry = |index: usize, records: &[Record]| Entry { index: index as u64, term: 1, bytes: encode(records) };
    let mut entries = vec![entry(1, &world.records)];
    for step in 0..steps {
        let request = any_request(&mut world);
        let from = world.records.len();
        let before = world.controller.image();
        world.handle(request.clone());
        let after = world.controller.image();
        let delta = Delta::between(&before, &after);
        let records = &world.records[from..];
        // The shards do not care which producer ids are left.
        let same = *before == *after || matches!(request, Request::AllocateProducerIds(_));
        assert_eq!(delta.is_empty(), same, "seed {seed}, step {step}: {request:?}");
        if records.is_empty() {
            assert!(delta.is_empty(), "seed {seed}, step {step}: {request:?} changed something without a record");
        }
        check_delta(&delta, &before, &after);
        entries.push(entry(step + 2, records));
    }
    (world, entries)
}

fn check_delta(delta: &Delta, before: &MetadataImage, after: &MetadataImage) {
    for topic in &delta.created {
        assert!(before.topic(topic.id).is_none() && after.topic(topic.id) == Some(topic));
    }
    for topic in &delta.deleted {
        assert!(before.topic(topic.id) == Some(topic) && after.topic(topic.id).is_none());
    }
    for change in &delta.changed {
        assert_eq!((change.added.start, change.added.end), (change.old.partitions.len(), change.new.partitions.len()));
        assert!(!change.added.is_empty() || !change.changed.is_empty());
    }
    for resource in &delta.configs {
        assert_ne!(before.config(resource), after.config(resource));
    }
    for pin in &delta.pins {
        assert_eq!(after.core_pin(pin.broker_id, pin.topic, pin.partition), pin.shard);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn replaying_the_records_gives_the_live_state(seed in any::<u64>(), steps in 1..60_usize) {
        let (world, entries) = live(seed, steps);
        let replayed = recover(broker_config(&[]), FEATURES, None, &entries);
        let Ok(replayed) = replayed else { panic!("{replayed:?}") };
        prop_assert_eq!(replayed.image(), world.controller.image());
        prop_assert_eq!(&replayed.clashes, &world.controller.clashes);
        prop_assert_eq!(
            &replayed.broker_config().topic_defaults,
            &world.controller.broker_config().topic_defaults
        );
    }

    #[test]
    fn a_snapshot_and_the_entries_behind_it_give_the_live_state(seed in any::<u64>(), steps in 1..60_usize, at in any::<prop::sample::Index>()) {
        let (world, entries) = live(seed, steps);
        let (before, behind) = entries.split_at(at.index(entries.len()) + 1);
        let half = recover(broker_config(&[]), FEATURES, None, before);
        let Ok(half) = half else { panic!("{half:?}") };
        let snapshot = encode_image(&half.image());
        let whole = recover(broker_config(&[]), FEATURES, Some(&snapshot), behind);
        let Ok(whole) = whole else { panic!("{whole:?}") };
        prop_assert_eq!(whole.image(), world.controller.image());
        prop_assert_eq!(&whole.clashes, &world.controller.clashes);
    }

    #[test]
    fn an_image_read_back_from_its_snapshot_is_the_same_and_has_the_same_snapshot(seed in any::<u64>(), steps in 1..60_usize) {
        let (world, _) = live(seed, steps);
        let image = world.controller.image();
        let bytes = encode_image(&image);
        let read = decode_image(&bytes);
        let Ok((records, read)) = read else { panic!("{read:?}") };
        prop_assert_eq!(&read, &*image);
        prop_assert_eq!(records, records_of(&image));
        prop_assert_eq!(encode_image(&read), bytes);
    }
}

#[test]
fn an_image_that_was_published_does_not_change() {
    let mut world = World::new();
    world.create_one("t", 2);
    let published = world.controller.image();
    let copy = MetadataImage::clone(&published);
    world.create_one("u", 2);
    world.register(1);
    assert_eq!(*published, copy);
    assert_ne!(*world.controller.image(), copy);
}

#[test]
fn a_record_that_does_not_fit_is_refused_and_changes_nothing() {
    let mut world = World::new();
    world.create_one("t", 1);
    let image = world.controller.image();
    let Some(id) = image.topic_id("t") else { panic!("no topic") };
    let strange = TopicId([3; 16]);
    let change = |topic, partition: i32, leader_epoch, partition_epoch| Record::PartitionChange {
        topic,
        partition: PartitionIndex(partition),
        replicas: None,
        isr: None,
        leader: None,
        leader_epoch: LeaderEpoch(leader_epoch),
        partition_epoch,
    };
    let partition = |topic, number: i32| Record::Partition {
        topic,
        partition: PartitionIndex(number),
        replicas: vec![1],
        isr: vec![1],
        leader: 1,
        leader_epoch: LeaderEpoch(0),
        partition_epoch: 0,
    };
    let back = |which, ours, theirs| ReplayError::EpochGoesBack {
        topic: id,
        partition: PartitionIndex(0),
        which,
        ours,
        theirs,
    };
    let cases = [
        (Record::RemoveTopic { id: strange }, ReplayError::UnknownTopic(strange)),
        (change(strange, 0, 0, 1), ReplayError::UnknownTopic(strange)),
        (change(id, 1, 0, 1), ReplayError::UnknownPartition(id, PartitionIndex(1))),
        (change(id, -1, 0, 1), ReplayError::UnknownPartition(id, PartitionIndex(-1))),
        (change(id, 0, -1, 1), back("leader", 0, -1)),
        (change(id, 0, 0, 0), back("partition", 0, 0)),
        (partition(id, 2), ReplayError::PartitionOutOfOrder { topic: id, expected: 1, found: PartitionIndex(2) }),
        (Record::Topic { id: strange, name: "t".into() }, ReplayError::TopicExists { id: strange, name: "t".into() }),
        (Record::Topic { id, name: "u".into() }, ReplayError::TopicExists { id, name: "u".into() }),
        (
            Record::Cluster { cluster_id: "other".into() },
            ReplayError::ClusterChanges { ours: image.cluster_id().into(), theirs: "other".into() },
        ),
        (
            Record::ProducerIds { broker_id: 1, broker_epoch: 1, next_producer_id: 0 },
            ReplayError::ProducerIdsGoBack { ours: 0, theirs: 0 },
        ),
        (
            Record::Feature { name: "f".into(), level: 1, epoch: 0 },
            ReplayError::FeatureEpochGoesBack { ours: 1, theirs: 0 },
        ),
        (
            Record::CorePin { broker_id: 1, topic: id, partition: PartitionIndex(9), shard: Some(0) },
            ReplayError::UnknownPartition(id, PartitionIndex(9)),
        ),
    ];
    for (record, error) in cases {
        assert_eq!(world.controller.replay(&record), Err(error));
        assert_eq!(world.controller.image(), image);
    }
}

#[test]
fn a_log_that_cannot_be_read_names_the_entry() {
    let (_, mut entries) = live(1, 20);
    if let Some(entry) = entries.get_mut(7) {
        entry.bytes = vec![1, 1, 99, 1, 0];
    }
    let error = recover(broker_config(&[]), FEATURES, None, &entries).map(|_| ()).map_err(|e| e.to_string());
    let reason = "entry 8 of the metadata log cannot be read: metadata record type 99 is of a later version of Corelog; \
                  start that version, or restore a backup";
    assert_eq!(error, Err(reason.to_owned()));
    let error = recover(broker_config(&[]), FEATURES, Some(&[9]), &[]).map(|_| ()).map_err(|e| e.to_string());
    assert!(error.is_err_and(|e| e.starts_with("the snapshot of the metadata log cannot be read: metadata format 9")));
    let twice = [entries[0].clone(), entries[0].clone()];
    let error = recover(broker_config(&[]), FEATURES, None, &twice).map(|_| ()).map_err(|e| e.to_string());
    assert!(error.is_err_and(|e| e.contains("does not fit what is before it")));
}

#[test]
fn records_survive_their_bytes() {
    let (world, _) = live(3, 50);
    assert_eq!(decode(&encode(&world.records)), Ok(world.records));
    assert_eq!(Arc::strong_count(&world.controller.image()), 1);
}
