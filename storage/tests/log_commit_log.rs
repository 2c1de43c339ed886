//! Many logs that commit through their shards' commit logs, against a model: through power cuts, kills, clean stops,
//! changes of the number of shards, and failing disks.
//!
//! After each: nothing acknowledged is lost, nothing appears twice or changed, offsets are contiguous, no log has
//! another's records. Run one seed with `CORELOG_SEED=n`, more of them with `CORELOG_SEEDS=n`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod log_common;
mod log_many;
mod log_model;

use corelog_reactor::ReactorLimits;
use corelog_reactor::sim::{DiskFault, DiskOp, DiskOpKind, NodeId, SimWorld};
use corelog_storage::ids::Offset;
use corelog_storage::log::{CommitLogUse, StorageCounters, StorageOptions};
use log_common::*;
use log_many::*;
use log_model::*;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Default)]
struct Seen {
    logged: u64,
    replayed: u64,
    recycles: u64,
    write_backs: u64,
}

impl Seen {
    fn add(&mut self, broker: &Broker) {
        for counters in broker.counters() {
            self.logged += counters.logged_commits;
            self.replayed += counters.log_replayed;
            self.recycles += counters.log_recycles;
            self.write_backs += counters.write_backs;
        }
    }
}

/// Several lives of a broker, with another number of shards each.
fn lives(seed: u64, options: impl Fn() -> StorageOptions, seen: &mut Seen) -> Result<(), String> {
    let world = SimWorld::new(seed);
    let node = world.add_node();
    world.disk(node).set_short_per_mille((seed % 3) as u32 * 20);
    let models = models();
    let mut dice = Dice(seed);
    for _life in 0..6 {
        let shards = 1 + dice.below(3) as usize;
        // Now and then the power fails during recovery, too.
        if dice.below(4) == 0 {
            let limits = ReactorLimits { pool_bytes_max: 64 << 20, ..ReactorLimits::default() };
            let reactor = world.reactor(node, limits);
            let (own, options) = (reactor.clone(), options());
            let open = async move { drop(Broker::open(own, seed, shards, options).await) };
            reactor.spawn(open).expect("a task");
            world.run_for(Duration::from_micros(dice.below(20_000)));
            world.crash(node);
            continue;
        }
        let broker = Broker::start(&world, node, seed, shards, options());
        broker.check(&world, &models)?;
        broker.work(&models, &mut dice, true);
        let millis = [3, 30, 200][dice.below(3) as usize];
        world.run_for(Duration::from_millis(1 + dice.below(millis)));
        seen.add(&broker);
        let reactor = broker.reactor.clone();
        match dice.below(6) {
            0 => {
                broker.close(&world);
                drop(broker);
                world.stop(&reactor);
            }
            1 => {
                // A kill: the kernel has everything, the process is gone.
                drop(broker);
                world.stop(&reactor);
            }
            _ => {
                drop(broker);
                world.crash(node);
            }
        }
    }
    Ok(())
}

#[test]
fn nothing_acknowledged_is_lost_in_a_power_cut_however_many_shards_there_are() {
    let mut seen = Seen::default();
    let mut ran = 0;
    for seed in seeds(120) {
        println!("seed {seed}");
        ran += 1;
        if let Err(what) = lives(seed, || options(seed), &mut seen) {
            panic!("seed {seed}: {what}");
        }
    }
    println!("logged {} replayed {} recycles {}", seen.logged, seen.replayed, seen.recycles);
    if ran > 1 {
        assert!(seen.logged > 10_000 && seen.replayed > 100, "logged {} replayed {}", seen.logged, seen.replayed);
        assert!(seen.recycles > 100 && seen.write_backs > 100, "{} {}", seen.recycles, seen.write_backs);
    }
}

#[test]
fn without_synced_writes_the_power_cut_test_fails() {
    let broken = |seed| StorageOptions { break_durability_for_a_test: true, ..options(seed) };
    let failed = (0..40).any(|seed| lives(seed, || broken(seed), &mut Seen::default()).is_err());
    assert!(failed, "the test does not notice that commits are not durable");
}

/// One life with faults of the disk, a second one on a sound disk; returns the first one's broker's logs that were
/// fenced.
fn with_faults(seed: u64, fault: impl FnMut(&DiskOp) -> Option<DiskFault> + 'static) -> (usize, Vec<StorageCounters>) {
    let world = SimWorld::new(seed);
    let node = world.add_node();
    let models = models();
    let mut dice = Dice(seed);
    let options = || StorageOptions { commit_log: CommitLogUse::Always, ..options(seed) };
    let broker = Broker::start(&world, node, seed, 2, options());
    broker.work(&models, &mut dice, false);
    world.run_for(Duration::from_millis(1 + dice.below(60)));
    world.disk(node).set_fault(fault);
    world.run_for(Duration::from_millis(1 + dice.below(60)));
    let fenced = broker.logs.iter().filter(|log| log.fenced().is_some()).count();
    let counters = broker.counters();
    world.disk(node).clear_fault();
    drop(broker);
    world.crash(node);
    let broker = Broker::start(&world, node, seed, 1 + dice.below(3) as usize, options());
    if let Err(what) = broker.check(&world, &models) {
        panic!("seed {seed}: {what}");
    }
    (fenced, counters)
}

fn is_in_commit_log(op: &DiskOp) -> bool {
    op.path.starts_with(Path::new(DATA).join(".commit"))
}

#[test]
fn a_commit_log_that_fails_fences_no_log_and_loses_nothing() {
    for seed in seeds(60) {
        let mut nth = seed % 7;
        let fault = move |op: &DiskOp| {
            let hit = is_in_commit_log(op) && op.kind == DiskOpKind::DurableWrite;
            nth = nth.saturating_sub(u64::from(hit));
            (hit && nth == 0).then_some(DiskFault::Errno(libc::EIO))
        };
        let (fenced, _) = with_faults(seed, fault);
        assert_eq!(fenced, 0, "seed {seed}");
    }
}

#[test]
fn a_segment_that_fails_fences_its_log_and_what_the_commit_log_has_of_it_is_found_again() {
    let mut all = 0;
    for seed in seeds(60) {
        let fault = move |op: &DiskOp| {
            let hit = op.kind == DiskOpKind::DurableWrite && op.path.to_string_lossy().contains("orders-1/");
            hit.then_some(DiskFault::Errno(libc::EIO))
        };
        let (fenced, _) = with_faults(seed, fault);
        assert!(fenced <= 1, "seed {seed}: {fenced} fenced");
        all += fenced;
    }
    assert!(all > 0);
}

#[test]
fn a_full_disk_holds_nothing_up_for_good_and_loses_nothing() {
    for seed in seeds(40) {
        let world = SimWorld::new(seed);
        let node = world.add_node();
        let models = models();
        let mut dice = Dice(seed);
        let broker = Broker::start(&world, node, seed, 2, options(seed));
        broker.work(&models, &mut dice, false);
        for _ in 0..3 {
            world.run_for(Duration::from_millis(1 + dice.below(40)));
            let used = world.disk(node).used_bytes();
            world.disk(node).set_capacity(Some(used + dice.below(64 << 10)));
            world.run_for(Duration::from_millis(1 + dice.below(40)));
            world.disk(node).set_capacity(None);
        }
        let before: i64 = models.iter().map(|m| m.borrow().acked).sum();
        world.run_for(Duration::from_millis(100));
        assert!(models.iter().map(|m| m.borrow().acked).sum::<i64>() > before, "seed {seed}: no progress");
        assert!(broker.logs.iter().all(|log| log.fenced().is_none()), "seed {seed}");
        drop(broker);
        world.crash(node);
        let broker = Broker::start(&world, node, seed, 3, options(seed));
        if let Err(what) = broker.check(&world, &models) {
            panic!("seed {seed}: {what}");
        }
    }
}

fn always() -> StorageOptions {
    StorageOptions { commit_log: CommitLogUse::Always, checkpoint_interval: Duration::from_millis(5), ..options(1) }
}

fn commit_logs(world: &SimWorld, node: NodeId) -> Vec<PathBuf> {
    world.disk(node).list(&Path::new(DATA).join(".commit"))
}

#[test]
fn a_clean_stop_leaves_no_commit_log_and_a_recovered_one_goes() {
    let world = SimWorld::new(1);
    let node = world.add_node();
    let models = models();
    let mut dice = Dice(1);
    let broker = Broker::start(&world, node, 1, 2, always());
    broker.work(&models, &mut dice, false);
    world.run_for(Duration::from_millis(100));
    assert!(!commit_logs(&world, node).is_empty());
    let reactor = broker.reactor.clone();
    broker.close(&world);
    assert_eq!(commit_logs(&world, node), Vec::<PathBuf>::new());
    drop(broker);
    world.stop(&reactor);

    let broker = Broker::start(&world, node, 1, 3, always());
    broker.check(&world, &models).unwrap();
    broker.work(&models, &mut dice, false);
    world.run_for(Duration::from_millis(100));
    drop(broker);
    world.crash(node);
    assert!(!commit_logs(&world, node).is_empty());
    let broker = Broker::start(&world, node, 1, 1, always());
    broker.check(&world, &models).unwrap();
    world.run_for(Duration::from_millis(100));
    assert_eq!(commit_logs(&world, node), Vec::<PathBuf>::new());
}

#[test]
fn what_was_cut_off_does_not_come_back_from_the_commit_log() {
    let world = SimWorld::new(2);
    let node = world.add_node();
    let broker = Broker::start(&world, node, 1, 1, always());
    let log = broker.logs[0].clone();
    let own = broker.reactor.clone();
    let kept = run(&world, &broker.reactor, async move {
        lead(&log).await;
        for n in 0..40 {
            append(&log, &batch(1, 100, n)).unwrap();
            log.commit().await.unwrap();
            own.sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(log.truncate_to(Offset(20)).await.unwrap(), Offset(20));
        lead(&log).await;
        // As many as were cut off, so that the old ones would fit behind any of them.
        for n in 100..110 {
            append(&log, &batch(1, 100, n)).unwrap();
            log.commit().await.unwrap();
        }
        assert_eq!(log.durable_end(), Offset(30));
        read_all(&log, Offset(0), 1_000).await
    });
    assert!(broker.counters()[0].logged_commits > 20);
    drop(broker);
    world.crash(node);
    let broker = Broker::start(&world, node, 1, 1, always());
    let log = broker.logs[0].clone();
    assert_eq!((log.fenced(), log.log_end()), (None, Offset(30)));
    let found = run(&world, &broker.reactor, async move { read_all(&log, Offset(0), 1_000).await });
    assert_eq!(found, kept);
}

#[test]
fn an_acknowledged_batch_that_is_missing_before_what_the_commit_log_has_fences_the_log() {
    let world = SimWorld::new(3);
    let node = world.add_node();
    let options = || StorageOptions { write_back_bytes: 1 << 20, commit_log_file_bytes: 1 << 20, ..always() };
    let broker = Broker::start(&world, node, 1, 1, options());
    let log = broker.logs[0].clone();
    let own = broker.reactor.clone();
    run(&world, &broker.reactor, async move {
        lead(&log).await;
        for n in 0..40 {
            append(&log, &batch(1, 100, n)).unwrap();
            log.commit().await.unwrap();
            own.sleep(Duration::from_millis(1)).await;
        }
    });
    assert!(broker.counters()[0].logged_commits > 20);
    drop(broker);
    world.crash(node);
    // The batch at the front went to the segment, and to nothing else.
    let path = Path::new(DATA).join("orders-0/00000000000000000000.log");
    assert!(world.disk(node).rot(&path, 70, 1));
    let broker = Broker::start(&world, node, 1, 1, options());
    assert!(broker.logs[0].fenced().is_some());
    world.run_for(Duration::from_millis(50));
    assert!(!commit_logs(&world, node).is_empty(), "a fenced log keeps its part of the commit log");
    assert!(broker.logs[1].fenced().is_none());
}

#[test]
fn rot_in_a_segment_that_the_commit_log_covers_is_mended() {
    let world = SimWorld::new(4);
    let node = world.add_node();
    let options = || StorageOptions { write_back_bytes: 2 << 10, commit_log_file_bytes: 1 << 20, ..always() };
    let broker = Broker::start(&world, node, 1, 1, options());
    let log = broker.logs[0].clone();
    let own = broker.reactor.clone();
    let all = run(&world, &broker.reactor, async move {
        lead(&log).await;
        for n in 0..40 {
            append(&log, &batch(1, 100, n)).unwrap();
            log.commit().await.unwrap();
            own.sleep(Duration::from_millis(1)).await;
        }
        read_all(&log, Offset(0), 1_000).await
    });
    drop(broker);
    world.crash(node);
    let path = Path::new(DATA).join("orders-0/00000000000000000000.log");
    let written = world.disk(node).contents(&path).unwrap();
    // In the middle: the segment has it by now.
    let at = all.len() / 2 + 30;
    assert_eq!(written.get(at), all.get(at));
    assert!(world.disk(node).rot(&path, at as u64, 1));
    let broker = Broker::start(&world, node, 1, 1, options());
    let log = broker.logs[0].clone();
    assert_eq!((log.fenced(), log.log_end()), (None, Offset(40)));
    let found = run(&world, &broker.reactor, async move { read_all(&log, Offset(0), 1_000).await });
    assert_eq!(found, all);
}

#[test]
fn a_log_that_gets_little_is_written_back_once_while_the_commit_log_goes_round() {
    let world = SimWorld::new(5);
    let node = world.add_node();
    let options = StorageOptions {
        write_back_bytes: 256 << 10,
        commit_log_file_bytes: 64 << 10,
        commit_log_files_max: 8,
        ..always()
    };
    let broker = Broker::start(&world, node, 1, 1, options);
    for (n, log) in broker.logs.iter().cloned().enumerate() {
        let own = broker.reactor.clone();
        let work = async move {
            lead(&log).await;
            own.sleep(Duration::from_micros(n as u64 * 400)).await;
            loop {
                append(&log, &batch(1, 100, n as u64)).unwrap();
                log.commit().await.unwrap();
                own.sleep(Duration::from_millis(5)).await;
            }
        };
        broker.reactor.spawn(work).unwrap();
    }
    world.run_for(Duration::from_secs(2));
    let before = broker.counters().remove(0);
    world.run_for(Duration::from_secs(3));
    let after = broker.counters().remove(0);
    let (commits, write_backs) = (after.logged_commits - before.logged_commits, after.write_backs - before.write_backs);
    assert!(after.log_recycles > before.log_recycles + 16, "{after:?}");
    assert!(commits > 30 * write_backs, "{write_backs} write-backs for {commits} commits");
    assert_eq!(after.log_no_place, before.log_no_place, "{commits} commits, {before:?} {after:?}");
}
