//! Several data folders: where partitions go, what a folder that fails and comes back changes.

use super::super::record::{DirectoryId, Record};
use super::super::request::{CreatePartitions, DirectoryFailed, MorePartitions, RegisterBroker, Request, Response};
use super::super::snapshot::{decode_image, encode_image};
use super::{World, registration, topic};
use crate::controller::{MetadataImage, TopicImage};
use std::sync::Arc;

const B: DirectoryId = DirectoryId([0xb; 16]);
const C: DirectoryId = DirectoryId([0xc; 16]);

fn start_with(world: &mut World, directories: &[DirectoryId]) {
    let registration = RegisterBroker { directories: directories.to_vec(), ..registration(1) };
    let response = world.handle(Request::RegisterBroker(registration));
    assert!(matches!(response, Response::RegisterBroker(Ok(_))), "{response:?}");
}

fn fail(world: &mut World, directory: DirectoryId) {
    let response = world.handle(Request::DirectoryFailed(DirectoryFailed { broker_id: 1, directory }));
    assert_eq!(response, Response::DirectoryFailed(Ok(())));
}

fn of(image: &MetadataImage, name: &str) -> Arc<TopicImage> {
    Arc::clone(image.topic_by_name(name).unwrap_or_else(|| panic!("no topic {name}")))
}

/// Leader, leader epoch and folder of each partition.
fn states(world: &World, name: &str) -> Vec<(i32, i32, Option<DirectoryId>)> {
    let topic = of(&world.controller.image(), name);
    topic.partitions.iter().map(|p| (p.leader, p.leader_epoch.0, p.directory(1))).collect()
}

#[test]
fn a_broker_with_one_folder_writes_no_record_about_folders() {
    let mut world = World::new();
    world.create_one("t", 3);
    world.register(1);
    let is_about_folders =
        |r: &&Record| matches!(r, Record::BrokerDirectories { .. } | Record::PartitionDirectory { .. });
    assert_eq!(world.records.iter().find(is_about_folders), None);
}

#[test]
fn new_partitions_go_to_the_folder_with_the_fewest_also_within_one_request() {
    let mut world = World::new();
    world.create_one("old", 2);
    start_with(&mut world, &[B, C]);
    world.create(vec![topic("t", 3, 1), topic("u", 1, 1)]);
    let folders = |world: &World, name| states(world, name).into_iter().map(|(_, _, d)| d).collect::<Vec<_>>();
    assert_eq!(folders(&world, "old"), [None, None], "what was there stays where it is");
    assert_eq!(folders(&world, "t"), [Some(B), Some(C), Some(B)]);
    assert_eq!(folders(&world, "u"), [Some(C)]);
    let more = MorePartitions { name: "u".to_owned(), count: 4, assignments: None };
    world.handle(Request::CreatePartitions(CreatePartitions { topics: vec![more], validate_only: false }));
    assert_eq!(folders(&world, "u"), [Some(C), None, Some(B), Some(C)]);
}

#[test]
fn a_failed_folder_takes_its_partitions_leaders_and_no_others_and_gets_no_new_ones() {
    let mut world = World::new();
    start_with(&mut world, &[B]);
    world.create_one("t", 2);
    assert_eq!(states(&world, "t"), [(1, 0, None), (1, 0, Some(B))]);
    fail(&mut world, B);
    assert_eq!(states(&world, "t"), [(1, 0, None), (-1, 1, Some(B))]);
    let (image, t) = (world.controller.image(), of(&world.controller.image(), "t"));
    let offline: Vec<bool> = t.partitions.iter().map(|p| image.is_in_offline_directory(p, 1)).collect();
    assert_eq!(offline, [false, true]);
    let written = world.records.len();
    fail(&mut world, B);
    assert_eq!(world.records.len(), written, "it is offline already");
    world.create_one("u", 2);
    assert_eq!(states(&world, "u"), [(1, 0, None), (1, 0, None)]);
}

#[test]
fn a_folder_that_is_missing_at_a_start_is_offline_and_leads_again_in_a_new_epoch_when_it_is_back() {
    let mut world = World::new();
    start_with(&mut world, &[B]);
    world.create_one("t", 2);
    start_with(&mut world, &[]);
    assert_eq!(states(&world, "t"), [(1, 1, None), (-1, 1, Some(B))]);
    start_with(&mut world, &[]);
    assert_eq!(states(&world, "t"), [(1, 2, None), (-1, 1, Some(B))], "nobody leads it, so it gets no epochs");
    start_with(&mut world, &[C, B]);
    let now = states(&world, "t");
    assert_eq!((now[0], now[1].0, now[1].2), ((1, 3, None), 1, Some(B)));
    assert!(now[1].1 > 1, "a new reign: {now:?}");
}

#[test]
fn another_folder_in_its_place_does_not_bring_partitions_back() {
    let mut world = World::new();
    start_with(&mut world, &[B]);
    world.create_one("t", 2);
    start_with(&mut world, &[C]);
    assert_eq!(states(&world, "t")[1], (-1, 1, Some(B)));
}

#[test]
fn a_snapshot_has_the_folders_and_changes_no_epoch() {
    let mut world = World::new();
    start_with(&mut world, &[B, C]);
    world.create_one("t", 5);
    fail(&mut world, C);
    let image = world.controller.image();
    let Ok((_, again)) = decode_image(&encode_image(&image)) else { panic!("a snapshot that is read") };
    assert_eq!(again, *image);
}
