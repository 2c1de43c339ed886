//! A log's producers: how long they are remembered.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod log_common;

use corelog_reactor::sim::{NodeId, SimWorld};
use corelog_reactor::{Reactor, ReactorLimits};
use corelog_storage::ids::{ProducerId, Timestamp};
use corelog_storage::log::{AppendError, Log, LogConfig, StorageOptions};
use log_common::*;
use std::path::Path;

/// The time in every batch of [`producer_batch`].
const WRITTEN: i64 = 4_000_000_000_000;

fn start(world: &SimWorld, node: NodeId) -> Reactor {
    Reactor::new(world.driver(node), ReactorLimits { pool_bytes_max: 64 << 20, ..ReactorLimits::default() })
}

fn remembers_for(idle_ms: i64) -> LogConfig {
    LogConfig { producer_idle_ms_max: idle_ms, ..LogConfig::default() }
}

#[test]
fn a_silent_producer_is_forgotten_after_the_configured_time_and_not_before() {
    let world = SimWorld::new(1);
    let node = world.add_node();
    let reactor = start(&world, node);
    reactor.block_on(async {
        let (_data, env) = storage(&reactor, Path::new("/data"), StorageOptions::default()).await;
        let log = Log::open_or_create(&env, name(), remembers_for(5_000)).await.unwrap();
        lead(&log).await;
        append(&log, &producer_batch(2, 10, 1, 42, 0)).unwrap();
        assert_eq!(log.expire_producers(Timestamp(WRITTEN + 4_999)), 0);
        assert!(matches!(append(&log, &producer_batch(2, 10, 1, 42, 0)), Err(AppendError::Duplicate { .. })));
        // Changed while the log is open: it counts from the next look on.
        log.set_config(remembers_for(10_000));
        assert_eq!(log.expire_producers(Timestamp(WRITTEN + 9_999)), 0);
        assert_eq!(log.expire_producers(Timestamp(WRITTEN + 10_000)), 1);
        assert!(log.producers(|p| p.get(ProducerId(42)).is_none()));
        // As Kafka has it: what it sends now is as from a new producer, also with a sequence in the middle.
        append(&log, &producer_batch(2, 10, 1, 42, 7)).unwrap();
        commit_all(&log).await;
        log.close().await.unwrap();
    });
}

#[test]
fn the_configured_time_holds_for_what_a_start_loads() {
    let world = SimWorld::new(2);
    let node = world.add_node();
    let reactor = start(&world, node);
    reactor.block_on(async {
        let (_data, env) = storage(&reactor, Path::new("/data"), StorageOptions::default()).await;
        let log = Log::open_or_create(&env, name(), LogConfig::default()).await.unwrap();
        lead(&log).await;
        append(&log, &producer_batch(2, 10, 1, 42, 0)).unwrap();
        commit_all(&log).await;
        log.close().await.unwrap();
        let log = Log::open(&env, name(), remembers_for(3_000)).await.unwrap();
        assert_eq!(log.expire_producers(Timestamp(WRITTEN + 2_999)), 0);
        assert_eq!(log.expire_producers(Timestamp(WRITTEN + 3_000)), 1);
    });
}
