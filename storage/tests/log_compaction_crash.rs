//! Compaction of a log against a model, through power cuts and disk faults: on the simulated disk.
//!
//! At any time: every record that is there is one that was written, at its offset; of each key the newest one is there;
//! behind what was compacted all are there; what is gone stays so, a tombstone stays for its time, and what it deletes never
//! outlives it; and no log is fenced by a crash.
//! Run one seed with `CORELOG_SEED=n`, more of them with `CORELOG_SEEDS=n`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod log_common;
mod log_compacted;
mod log_model;

use corelog_reactor::Reactor;
use corelog_reactor::sim::{DiskFault, SimWorld};
use corelog_storage::ids::{LeaderEpoch, Offset, ProducerId, Timestamp};
use corelog_storage::log::{CommitLogUse, CompactionError, CompactionRules, Log, LogConfig, StorageOptions};
use log_common::*;
use log_compacted::*;
use log_model::{Dice, run, seeds};
use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

/// Appends, compacts, deletes and truncates for ever; the power cut ends it.
async fn work(
    reactor: Reactor,
    log: Log,
    model: Rc<RefCell<Model>>,
    mut dice: Dice,
    rounds: Rc<Cell<u64>>,
    ranges: Rc<Cell<usize>>,
) {
    let compacting = (log.clone(), rounds, model.clone());
    let task = async move {
        let (log, rounds, model) = compacting;
        let delete_retention_ms = model.borrow().tombstones_go_after.unwrap_or(i64::MAX / 4);
        let mut map_bytes = Dice(log.log_end().0 as u64);
        loop {
            // Often too small for all keys.
            let map_bytes_max = [24 * 8, 1 << 20][map_bytes.below(2) as usize];
            let rules = CompactionRules { map_bytes_max, delete_retention_ms, ..rules() };
            let stable = {
                let mut model = model.borrow_mut();
                model.stable = model.acked;
                Offset(model.stable)
            };
            match compact_below(&log, &rules, stable).await {
                Ok(done) => rounds.set(rounds.get() + u64::from(done.is_some())),
                Err(CompactionError::Interrupted | CompactionError::Shortage { .. }) => {}
                Err(CompactionError::Fenced(_)) => return,
                Err(error) => panic!("{error}"),
            }
            log_pause(&log, 3).await;
        }
    };
    reactor.spawn(task).expect("a task");
    loop {
        let count = 1 + dice.below(8);
        let keys = [5, 60, 1000][dice.below(3) as usize];
        model.borrow_mut().now = reactor.unix_ms().0;
        model.borrow_mut().append(&log, &mut dice, count, keys);
        match dice.below(60) {
            0 => {
                let (from, to) = (model.borrow().log_start, model.borrow().acked);
                let offset = from + dice.below((to - from + 1) as u64) as i64;
                model.borrow_mut().deleting = Some(offset);
                if log.delete_records(Offset(offset)).await.is_ok() {
                    model.borrow_mut().log_start = log.log_start().0;
                    model.borrow_mut().deleting = None;
                }
            }
            1 => {
                let (from, to) = (model.borrow().stable.max(log.log_start().0), model.borrow().end());
                let offset = from + dice.below((to - from + 1) as u64) as i64;
                model.borrow_mut().truncating = Some(offset);
                if let Ok(end) = log.truncate_to(Offset(offset)).await {
                    let mut model = model.borrow_mut();
                    model.cut(end.0);
                    model.truncating = None;
                    let sequence =
                        log.producers(|p| p.get(ProducerId(PRODUCER)).map_or(0, |p| p.last_sequence().0 + 1));
                    model.sequence = sequence;
                }
                if log.fenced().is_none() {
                    let next = LeaderEpoch(log.epoch().0 + 1);
                    let _ = log.new_epoch(next, log.log_end());
                }
            }
            2..=8 => {
                // A round beside it may take a tombstone out between the place of an older record, which the reader has
                // passed, and its own: who begins anew finds neither.
                for tries_left in (0..4).rev() {
                    let all = read_all(&log, log.log_start(), 5_000).await;
                    model.borrow_mut().now = reactor.unix_ms().0;
                    match model.borrow().check_records(&log, &all) {
                        Err(what) if what.contains("tombstone") && tries_left > 0 => println!("once more: {what}"),
                        checked => {
                            checked.unwrap();
                            break;
                        }
                    }
                }
            }
            9..=14 => {
                let (all, some) = read_ranges(&reactor, &log, 5_000).await;
                ranges.set(ranges.get() + some);
                model.borrow().check_read(&all).unwrap();
            }
            15 => {
                // Records are as old as their offsets say.
                let (from, to) = (model.borrow().log_start, model.borrow().stable.max(model.borrow().log_start));
                let kept = from + dice.below((to - from + 1) as u64) as i64;
                model.borrow_mut().retaining = Some(kept);
                log.set_config(LogConfig { retention_ms_max: Some(0), ..log.config() });
                if log.retain(Timestamp(TIME + kept), Offset(to)).await.is_ok() {
                    let start = log.log_start().0;
                    assert!(start <= kept, "records from {kept} on are to stay, and the log starts at {start}");
                    model.borrow_mut().log_start = start;
                    model.borrow_mut().retaining = None;
                }
            }
            _ => {}
        }
        let _ = log.commit().await;
        model.borrow_mut().acked = log.durable_end().0;
        if dice.one_in(3) {
            log_pause(&log, dice.below(20)).await;
        }
    }
}

thread_local! {
    static REACTOR: RefCell<Option<Reactor>> = const { RefCell::new(None) };
}

async fn log_pause(_log: &Log, hundreds_of_micros: u64) {
    let reactor = REACTOR.with(|r| r.borrow().clone()).expect("a reactor");
    reactor.sleep(Duration::from_micros(100 * (1 + hundreds_of_micros))).await;
}

fn lives(seed: u64, rounds: &Rc<Cell<u64>>, ranges: &Rc<Cell<usize>>) -> Result<(), String> {
    let world = SimWorld::new(seed);
    let node = world.add_node();
    let model: Rc<RefCell<Model>> = Rc::default();
    let mut dice = Dice(seed);
    model.borrow_mut().tombstones_go_after = [None, Some(0), Some(30)][dice.below(3) as usize];
    let config = LogConfig {
        file_delete_delay_ms: [0, 5, 60_000][dice.below(3) as usize],
        ..config([6 << 10, 20 << 10][dice.below(2) as usize])
    };
    for _life in 0..6 {
        let reactor = reactor_of(&world, node);
        REACTOR.with(|r| r.borrow_mut().replace(reactor.clone()));
        let opening = open(reactor.clone(), config.clone(), options(&mut dice));
        // Now and then the power fails during recovery, too.
        if dice.one_in(4) {
            reactor.spawn(async move { drop(opening.await) }).expect("a task");
            world.run_for(Duration::from_micros(dice.below(6_000)));
            world.crash(node);
            continue;
        }
        let (data, env, log) = run(&world, &reactor, opening);
        if let Some(reason) = log.fenced() {
            return Err(format!("fenced: {reason}"));
        }
        let own = log.clone();
        let found = run(&world, &reactor, async move { read_all(&own, own.log_start(), 10_000).await });
        model.borrow_mut().now = reactor.unix_ms().0;
        model.borrow_mut().check(&log, &found)?;
        model.borrow_mut().sequence =
            log.producers(|p| p.get(ProducerId(PRODUCER)).map_or(0, |p| p.last_sequence().0 + 1));
        let own = log.clone();
        run(&world, &reactor, async move { lead(&own).await });
        let work = work(reactor.clone(), log.clone(), model.clone(), Dice(dice.next()), rounds.clone(), ranges.clone());
        reactor.spawn(work).expect("a task");
        let millis = [20, 100, 400][dice.below(3) as usize];
        world.run_for(Duration::from_millis(1 + dice.below(millis)));
        drop((data, env, log));
        if dice.one_in(5) {
            world.stop(&reactor);
        } else {
            world.crash(node);
        }
    }
    Ok(())
}

#[test]
fn through_power_cuts_no_newest_record_is_lost_and_none_comes_back_changed() {
    let (rounds, ranges) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    for seed in seeds(200) {
        println!("seed {seed}");
        if let Err(what) = lives(seed, &rounds, &ranges) {
            panic!("seed {seed}: {what}");
        }
    }
    println!("{} rounds, {} ranges read", rounds.get(), ranges.get());
}

/// One round with something done at its `step`th operation on the disk. Returns whether the round got that far.
fn round_with(step: u64, is_cut: bool, fault: Option<i32>) -> bool {
    let world = SimWorld::new(7 + step);
    let node = world.add_node();
    let model: Rc<RefCell<Model>> = Rc::default();
    let reactor = reactor_of(&world, node);
    let own = (reactor.clone(), model.clone());
    let (data, env, log) = run(&world, &reactor, async move {
        let (reactor, model) = own;
        let mut dice = Dice(7);
        let opened = open(reactor.clone(), config(8 << 10), options(&mut dice)).await;
        lead(&opened.2).await;
        fill(&reactor, &opened.2, &model, &mut dice, 7, 40).await;
        model.borrow_mut().stable = opened.2.durable_end().0;
        opened
    });
    let count = Rc::new(Cell::new(0));
    let counted = count.clone();
    world.disk(node).set_fault(move |_| {
        counted.set(counted.get() + 1);
        fault.filter(|_| counted.get() == step + 1).map(DiskFault::Errno)
    });
    let ended: Rc<Cell<bool>> = Rc::default();
    let (own, end) = (log.clone(), ended.clone());
    reactor
        .spawn(async move {
            let _ = compact(&own, &CompactionRules { limits: small_groups(), ..rules() }).await;
            end.set(true);
        })
        .expect("a task");
    let (seen, end) = (count.clone(), ended.clone());
    world.run_until(move || end.get() || (is_cut && seen.get() > step)).expect("an end");
    let got_there = count.get() > step;
    world.disk(node).clear_fault();
    if !is_cut {
        let left = files(&reactor).into_iter().filter(|name| name.ends_with(".swap")).count();
        assert!(
            log.fenced().is_some() || left == 0,
            "{left} files on their way into the log after a fault at step {step}"
        );
        // What is good can be read, whatever has failed.
        let own = (log.clone(), model.clone());
        run(&world, &reactor, async move {
            let all = read_all(&own.0, own.0.log_start(), 3_000).await;
            own.1.borrow().check_records(&own.0, &all).unwrap_or_else(|e| panic!("fault at step {step}: {e}"));
        });
    }
    drop((data, env, log));
    world.crash(node);
    let reactor = reactor_of(&world, node);
    let own = (reactor.clone(), model);
    run(&world, &reactor, async move {
        let (reactor, model) = own;
        let (_data, _env, log) = open(reactor.clone(), config(8 << 10), options(&mut Dice(7))).await;
        let all = read_all(&log, log.log_start(), 10_000).await;
        model.borrow_mut().check(&log, &all).unwrap_or_else(|error| panic!("step {step}: {error}"));
        lead(&log).await;
        model.borrow_mut().stable = log.durable_end().0;
        compact(&log, &rules()).await.unwrap_or_else(|error| panic!("step {step}: {error}"));
        let all = read_all(&log, log.log_start(), 10_000).await;
        model.borrow_mut().check(&log, &all).unwrap_or_else(|error| panic!("step {step}, compacted: {error}"));
    });
    got_there
}

/// So that a round makes several exchanges.
fn small_groups() -> corelog_storage::compact::GroupLimits {
    corelog_storage::compact::GroupLimits { bytes: 20 << 10, index_bytes: u64::MAX }
}

#[test]
fn a_power_cut_after_any_operation_of_a_round_leaves_a_sound_log() {
    let steps = (0..2_000).find(|step| !round_with(*step, true, None)).expect("an end of the round");
    assert!(steps > 60, "{steps} operations");
}

#[test]
fn an_error_of_any_operation_of_a_round_leaves_a_log_that_can_be_read_and_opens_again() {
    for errno in [libc::EIO, libc::ENOSPC] {
        let steps = (0..2_000).find(|step| !round_with(*step, false, Some(errno))).expect("an end of the round");
        assert!(steps > 60, "{steps} operations");
    }
}

/// A round that is let go of at its `step`th operation on the disk. Returns whether it got that far, and whether that
/// was within an exchange.
fn dropped_round(step: u64) -> (bool, bool) {
    let world = SimWorld::new(17);
    let node = world.add_node();
    let model: Rc<RefCell<Model>> = Rc::default();
    let reactor = reactor_of(&world, node);
    let own = (reactor.clone(), model.clone());
    let (data, env, log) = run(&world, &reactor, async move {
        let (reactor, model) = own;
        let mut dice = Dice(17);
        let opened = open(reactor.clone(), config(8 << 10), options(&mut dice)).await;
        lead(&opened.2).await;
        fill(&reactor, &opened.2, &model, &mut dice, 7, 40).await;
        model.borrow_mut().stable = opened.2.durable_end().0;
        opened
    });
    let count = Rc::new(Cell::new(0));
    let counted = count.clone();
    world.disk(node).set_fault(move |_| {
        counted.set(counted.get() + 1);
        None
    });
    type Kept = Pin<Box<dyn Future<Output = bool>>>;
    let own = log.clone();
    let round: Kept =
        Box::pin(async move { compact(&own, &CompactionRules { limits: small_groups(), ..rules() }).await.is_ok() });
    let round = Rc::new(RefCell::new(Some(round)));
    let polled = round.clone();
    let task = std::future::poll_fn(move |context| match polled.borrow_mut().as_mut() {
        Some(round) => round.as_mut().poll(context),
        None => Poll::Ready(false),
    });
    let ended: Rc<Cell<bool>> = Rc::default();
    let end = ended.clone();
    reactor.spawn(async move { end.set(task.await) }).expect("a task");
    let (seen, end) = (count.clone(), ended.clone());
    world.run_until(move || end.get() || seen.get() > step).expect("an end");
    let got_there = !ended.get();
    drop(round.take());
    world.disk(node).clear_fault();
    let own = (log.clone(), reactor.clone(), model.clone());
    let is_fenced = run(&world, &reactor, async move {
        let (log, reactor, model) = own;
        reactor.sleep(Duration::from_millis(10)).await;
        let all = read_all(&log, log.log_start(), 3_000).await;
        model.borrow().check_records(&log, &all).unwrap_or_else(|e| panic!("dropped at step {step}: {e}"));
        if log.fenced().is_some() {
            return true;
        }
        // It goes on as if nothing had been.
        fill(&reactor, &log, &model, &mut Dice(18), log.status().segments + 3, 40).await;
        model.borrow_mut().stable = log.durable_end().0;
        compact(&log, &rules()).await.unwrap_or_else(|error| panic!("after a drop at step {step}: {error}"));
        let all = read_all(&log, log.log_start(), 3_000).await;
        model.borrow().check_records(&log, &all).unwrap_or_else(|e| panic!("after a drop at step {step}: {e}"));
        false
    });
    drop((data, env, log));
    world.crash(node);
    let reactor = reactor_of(&world, node);
    let own = (reactor.clone(), model);
    run(&world, &reactor, async move {
        let (reactor, model) = own;
        let (_data, _env, log) = open(reactor.clone(), config(8 << 10), options(&mut Dice(17))).await;
        let all = read_all(&log, log.log_start(), 10_000).await;
        model
            .borrow_mut()
            .check(&log, &all)
            .unwrap_or_else(|error| panic!("dropped at step {step}, reopened: {error}"));
    });
    (got_there, is_fenced)
}

#[test]
fn a_round_that_is_dropped_at_any_operation_leaves_a_log_that_goes_on_or_within_an_exchange_is_fenced_and_readable() {
    let mut fenced = 0;
    let steps = (0..2_000).find(|step| {
        let (got_there, is_fenced) = dropped_round(*step);
        fenced += u64::from(is_fenced);
        !got_there
    });
    let steps = steps.expect("an end of the round");
    assert!(steps > 60 && fenced > 5 && fenced < steps / 2, "{steps} operations, {fenced} of them within exchanges");
}

/// Retention that begins at the `step`th operation of a round, in a log whose segments' ages are in its files only.
/// Returns whether the round got that far.
fn retention_beside_a_round(step: u64) -> bool {
    let world = SimWorld::new(11);
    let node = world.add_node();
    let model: Rc<RefCell<Model>> = Rc::default();
    let reactor = reactor_of(&world, node);
    let own = (reactor.clone(), model.clone());
    let (data, env, log) = run(&world, &reactor, async move {
        let (reactor, model) = own;
        let mut dice = Dice(11);
        let sole = StorageOptions { commit_log: CommitLogUse::Never, ..options(&mut dice) };
        let (data, env, log) = open(reactor.clone(), config(8 << 10), sole).await;
        lead(&log).await;
        fill(&reactor, &log, &model, &mut dice, 7, 40).await;
        log.close().await.unwrap();
        drop(log);
        let log = Log::open(&env, name(), config(8 << 10)).await.unwrap();
        (data, env, log)
    });
    let mut bases: Vec<i64> = files(&reactor).iter().filter_map(|n| n.strip_suffix(".log")?.parse().ok()).collect();
    bases.sort_unstable();
    let kept = bases[1];
    let count = Rc::new(Cell::new(0));
    let counted = count.clone();
    world.disk(node).set_fault(move |_| {
        counted.set(counted.get() + 1);
        None
    });
    let ended: Rc<Cell<bool>> = Rc::default();
    let (own, end) = (log.clone(), ended.clone());
    reactor
        .spawn(async move {
            let _ = compact(&own, &rules()).await;
            end.set(true);
        })
        .expect("a task");
    let (seen, end) = (count.clone(), ended.clone());
    world.run_until(move || end.get() || seen.get() > step).expect("an end");
    let got_there = !ended.get();
    log.set_config(LogConfig { retention_ms_max: Some(0), ..log.config() });
    let own = (log.clone(), reactor.clone(), model);
    run(&world, &reactor, async move {
        let (log, reactor, model) = own;
        for _ in 0..3 {
            log.retain(Timestamp(TIME + kept), log.durable_end()).await.unwrap();
            reactor.sleep(Duration::from_millis(200)).await;
        }
        let start = log.log_start().0;
        assert!(start <= kept, "records from {kept} on are to stay, and the log starts at {start} (step {step})");
        let all = read_all(&log, log.log_start(), 10_000).await;
        model.borrow().check_records(&log, &all).unwrap_or_else(|error| panic!("step {step}: {error}"));
    });
    drop((data, env, log));
    got_there
}

#[test]
fn retention_at_any_operation_of_a_round_takes_no_record_that_is_young_enough() {
    let steps = (0..2_000).find(|step| !retention_beside_a_round(*step)).expect("an end of the round");
    assert!(steps > 60, "{steps} operations");
}
