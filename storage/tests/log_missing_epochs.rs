//! A log whose leader-epoch checkpoint is missing, empty or damaged.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod log_common;

use corelog_reactor::sim::{NodeId, SimWorld};
use corelog_reactor::{Reactor, ReactorLimits};
use corelog_storage::disk::files::{read_file, replace_file, unlink_if_there};
use corelog_storage::ids::{LeaderEpoch, Offset};
use corelog_storage::log::{Log, LogConfig, OpenError, StorageOptions};
use log_common::*;
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

const CHECKPOINT: &str = "/data/orders-0/leader-epoch-checkpoint";
const RECORDS: i64 = 40;

/// Small segments: most are sealed below the recovery point.
fn config() -> LogConfig {
    LogConfig { segment_bytes_max: 2048, index_interval_bytes: 100, ..LogConfig::default() }
}

fn options() -> StorageOptions {
    StorageOptions { checkpoint_interval: Duration::from_millis(5), ..StorageOptions::default() }
}

async fn open(reactor: &Reactor) -> Result<Log, OpenError> {
    let (_data, env) = storage(reactor, Path::new("/data"), options()).await;
    Log::open_or_create(&env, name(), config()).await
}

/// The epoch of each offset.
fn epochs(log: &Log) -> Vec<Option<LeaderEpoch>> {
    (0..RECORDS).map(|at| log.epoch_of(Offset(at))).collect()
}

/// A log of many segments and a few leaders, some of whom begin amid a segment; closed, or not.
async fn make(reactor: &Reactor, is_closed: bool, deleted_to: i64) -> Vec<Option<LeaderEpoch>> {
    let log = open(reactor).await.expect("a log");
    for record in 0..RECORDS {
        if [0, 3, 22, 23, 38].contains(&record) {
            lead(&log).await;
        }
        append(&log, &batch(1, 200, record as u64 + 1)).expect("an append");
        commit_all(&log).await;
        // The keeper seals, and moves the recovery point, meanwhile.
        reactor.sleep(Duration::from_millis(20)).await;
    }
    if deleted_to > 0 {
        log.delete_records(Offset(deleted_to)).await.expect("a log start");
    }
    if is_closed {
        log.close().await.expect("a closed log");
    }
    epochs(&log)
}

/// Runs one life of the machine after another on the same disk.
struct Machine {
    world: SimWorld,
    node: NodeId,
}

impl Machine {
    fn new() -> Machine {
        let world = SimWorld::new(5);
        let node = world.add_node();
        Machine { world, node }
    }

    fn live<T: 'static, F: Future<Output = T> + 'static>(&self, life: impl FnOnce(Reactor) -> F) -> T {
        let limits = ReactorLimits { pool_bytes_max: 64 << 20, ..ReactorLimits::default() };
        let reactor = self.world.reactor(self.node, limits);
        let slot: Rc<RefCell<Option<T>>> = Rc::default();
        let (out, life) = (slot.clone(), life(reactor.clone()));
        let task = async move {
            let value = life.await;
            out.borrow_mut().replace(value);
        };
        reactor.spawn(task).expect("a task");
        self.world.run_until(|| slot.borrow().is_some()).expect("an end");
        self.world.crash(self.node);
        slot.borrow_mut().take().expect("a value")
    }
}

#[test]
fn epochs_whose_checkpoint_is_missing_or_empty_are_read_from_the_batches_and_written_anew() {
    for (is_closed, deleted_to, is_empty) in
        [(true, 0, false), (false, 0, false), (true, 0, true), (true, 12, false), (false, 22, false)]
    {
        let case = format!("closed: {is_closed}, deleted to {deleted_to}, empty: {is_empty}");
        let machine = Machine::new();
        let before = machine.live(|reactor| async move { make(&reactor, is_closed, deleted_to).await });
        let distinct: std::collections::BTreeSet<_> = before.iter().flatten().collect();
        assert!(distinct.len() >= 3, "{case}: {before:?}");
        let after = machine.live(move |reactor| async move {
            let file = Path::new(CHECKPOINT);
            match is_empty {
                true => replace_file(&reactor, file, Vec::new()).await.unwrap(),
                false => unlink_if_there(&reactor, file).await.unwrap(),
            }
            reactor.sync_dir(Path::new("/data/orders-0")).await.unwrap();
            let log = open(&reactor).await.expect("a log");
            assert_eq!((log.fenced(), log.log_end()), (None, Offset(RECORDS)));
            let text = read_file(&reactor, file).await.expect("the file, before anybody leads");
            assert!(text.starts_with(b"0\n"), "{text:?}");
            (epochs(&log), log.epoch())
        });
        assert_eq!(after, (before.clone(), LeaderEpoch(4)), "{case}");
        let again = machine.live(|reactor| async move { epochs(&open(&reactor).await.expect("a log")) });
        assert_eq!(again, before, "{case}");
    }
}

#[test]
fn a_log_without_records_needs_no_checkpoint_of_epochs() {
    let machine = Machine::new();
    machine.live(|reactor| async move { drop(open(&reactor).await.expect("a log")) });
    let is_there = machine.live(|reactor| async move {
        drop(open(&reactor).await.expect("a log"));
        read_file(&reactor, Path::new(CHECKPOINT)).await.is_ok()
    });
    assert!(!is_there, "nothing was missing");
}

#[test]
fn a_damaged_checkpoint_is_refused_with_the_file_and_the_way_out_which_works() {
    let machine = Machine::new();
    let before = machine.live(|reactor| async move { make(&reactor, true, 0).await });
    let after = machine.live(|reactor| async move {
        let file = Path::new(CHECKPOINT);
        replace_file(&reactor, file, b"0\n2\n0 0\nrubbish\n".to_vec()).await.unwrap();
        let refused = open(&reactor).await.err().expect("a damaged checkpoint").to_string();
        assert!(refused.starts_with(CHECKPOINT) && refused.contains("line 4"), "{refused}");
        assert!(refused.contains("Move it away and start again"), "{refused}");
        unlink_if_there(&reactor, file).await.unwrap();
        epochs(&open(&reactor).await.expect("a log"))
    });
    assert_eq!(after, before);
}

#[test]
fn a_damaged_partition_metadata_is_refused_with_the_line_that_writes_it_anew_which_works() {
    let machine = Machine::new();
    machine.live(|reactor| async move {
        drop(open(&reactor).await.expect("a log"));
        let file = Path::new("/data/orders-0/partition.metadata");
        replace_file(&reactor, file, b"version: 0\n".to_vec()).await.unwrap();
        let refused = open(&reactor).await.err().expect("a damaged file").to_string();
        let text = format!("version: 0\\ntopic_id: {}", name().topic_id);
        assert!(refused.contains(&format!("printf '{text}' > /data/orders-0/partition.metadata")), "{refused}");
        assert!(refused.contains("topic_id is missing") && refused.contains("topic orders"), "{refused}");
    });
}
