//! The rotation of the commit log's files: full ones are free again in time, whatever single logs do.

use super::files::Holder;
use super::replay::Replay;
use super::tests::{DATA, FILE_BYTES, User, commit_log, parts, reactor_of, read, run, world};
use super::writer::{CommitLog, Parts};
use corelog_reactor::Reactor;
use corelog_reactor::sim::SimWorld;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

fn of(reactor: &Reactor, replay: &Replay, change: impl FnOnce(&mut Parts)) -> CommitLog {
    let mut parts = parts(reactor, replay);
    change(&mut parts);
    CommitLog::new(Path::new(DATA), parts)
}

/// Eight files, each of which takes 150 ms or so to fill.
fn large(parts: &mut Parts) {
    (parts.files_max, parts.file_bytes, parts.file_batch_bytes) = (8, 512 << 10, 512 << 10);
}

/// Logs that put in a small piece every 20 ms each.
fn quiet_users(reactor: &Reactor, log: &CommitLog, number: i32, takes: Duration) -> Vec<Rc<User>> {
    let users: Vec<_> = (0..number).map(|partition| User::that_takes(log, partition, 0, Some(takes))).collect();
    for (n, user) in users.iter().enumerate() {
        let (user, own) = (user.clone(), reactor.clone());
        let work = async move {
            // Not all at once: that is more than a write takes.
            own.sleep(Duration::from_micros(n as u64 * 200)).await;
            loop {
                let _ = user.commit(300).await;
                own.sleep(Duration::from_millis(20)).await;
            }
        };
        reactor.spawn(work).unwrap();
    }
    users
}

/// Write-backs of all of them in each of so many milliseconds.
fn write_backs(world: &SimWorld, users: &[Rc<User>], millis: usize) -> Vec<u64> {
    let sum = || users.iter().map(|user| user.asked.get()).sum::<u64>();
    let mut before = sum();
    (0..millis)
        .map(|_| {
            world.run_for(Duration::from_millis(1));
            let after = sum();
            after - std::mem::replace(&mut before, after)
        })
        .collect()
}

/// What is expected of 100 logs that commit evenly, once each file has been in use a few times.
fn assert_even(world: &SimWorld, log: &CommitLog, users: &[Rc<User>]) {
    world.run_for(Duration::from_secs(3));
    let (before, commits) = (log.counters(), users.iter().map(|user| user.acked.get()).sum::<i64>());
    let each = write_backs(world, users, 3_000);
    let commits = users.iter().map(|user| user.acked.get()).sum::<i64>() - commits;
    let counters = log.counters();
    assert!(counters.recycles > before.recycles + 10, "{counters:?}");
    assert_eq!(counters.no_place, before.no_place, "a file was wanted that was not free: {counters:?}");
    let (sum, most) = (each.iter().sum::<u64>(), each.iter().max().copied().unwrap_or(0));
    assert!(most <= users.len() as u64 / 8, "{most} write-backs in one millisecond of {sum} in 3 s");
    assert!(commits as u64 >= 4 * sum, "{sum} write-backs for {commits} commits");
}

#[test]
fn logs_that_get_little_are_written_back_evenly_and_much_at_a_time() {
    let (world, node) = world(18);
    let reactor = reactor_of(&world, node);
    let log = of(&reactor, &read(&world, &reactor, 0), large);
    let users = quiet_users(&reactor, &log, 100, Duration::from_millis(2));
    assert_even(&world, &log, &users);
}

#[test]
fn a_log_that_cannot_be_written_costs_its_file_and_changes_nothing_for_others() {
    let (world, node) = world(19);
    let reactor = reactor_of(&world, node);
    let log = of(&reactor, &read(&world, &reactor, 0), large);
    let stuck = User::new(&log, 1_000, 0, true);
    let own = stuck.clone();
    run(&world, &reactor, {
        let reactor = reactor.clone();
        async move {
            while own.commit(300).await.is_none() {
                reactor.sleep(Duration::from_millis(1)).await;
            }
        }
    });
    let users = quiet_users(&reactor, &log, 100, Duration::from_millis(2));
    assert_even(&world, &log, &users);
    // Once a pass over all, and never again: it is not what the others wait for.
    assert!(stuck.looked_at.get() < 20, "asked {} times", stuck.looked_at.get());
}

#[test]
fn the_batches_in_all_files_together_take_no_more_memory_than_they_may() {
    let (world, node) = world(20);
    let reactor = reactor_of(&world, node);
    let batch_bytes = 24 << 10;
    let log = of(&reactor, &read(&world, &reactor, 0), |parts| parts.file_batch_bytes = batch_bytes);
    let users: Vec<_> = (0..5).map(|n| User::that_takes(&log, n, 0, Some(Duration::from_millis(20)))).collect();
    for user in &users {
        reactor.spawn(user.clone().commit_for_ever(reactor.clone())).unwrap();
    }
    let mut most = 0;
    for _ in 0..3_000 {
        world.run_for(Duration::from_micros(200));
        most = users.iter().map(|user| user.unwritten.get()).sum::<usize>().max(most);
    }
    // Three files, each with one write more than it should have, and what five users put in next.
    let bound = 3 * (batch_bytes + batch_bytes / 5) as usize + 5 * 5_000;
    assert!(log.counters().recycles > 10, "{:?}", log.counters());
    assert!(most < bound && most > FILE_BYTES as usize / 8, "{most} bytes, of {bound}");
}

#[test]
fn full_files_are_asked_back_also_where_no_new_one_can_be_made() {
    let (world, node) = world(15);
    let reactor = reactor_of(&world, node);
    let log = of(&reactor, &read(&world, &reactor, 0), |parts| parts.no_space_retry = Duration::from_secs(10));
    let user = User::new(&log, 0, 0, false);
    reactor.spawn(user.clone().commit_for_ever(reactor.clone())).unwrap();
    world.run_until(|| log.counters().files == 1).unwrap();
    world.disk(node).set_capacity(Some(world.disk(node).used_bytes()));
    world.run_for(Duration::from_millis(300));
    assert_eq!(log.counters().files, 1);
    assert!(log.counters().recycles > 3, "{:?}", log.counters());
}

#[test]
fn while_no_file_is_free_commits_do_not_ask_for_one_again_and_again() {
    let (world, node) = world(16);
    let reactor = reactor_of(&world, node);
    let log = commit_log(&reactor, &read(&world, &reactor, 0));
    let user = User::new(&log, 0, 0, true);
    reactor.spawn(user.clone().commit_for_ever(reactor.clone())).unwrap();
    world.run_for(Duration::from_millis(500));
    let (asked, before) = (user.looked_at.get(), log.counters().no_place);
    world.run_for(Duration::from_millis(500));
    let commits = log.counters().no_place - before;
    assert!(commits > 500, "{commits} commits");
    // Up to three files, and a pause between.
    assert!(
        user.looked_at.get() - asked <= 3 * 26,
        "asked {} times in {commits} commits",
        user.looked_at.get() - asked
    );
}

#[test]
fn a_log_is_listed_once_among_those_that_hold_a_file() {
    let (world, node) = world(17);
    let reactor = reactor_of(&world, node);
    let log = commit_log(&reactor, &read(&world, &reactor, 0));
    // The last one keeps the file.
    let users: Vec<Rc<User>> = (0..3).map(|partition| User::new(&log, partition, 0, partition == 2)).collect();
    let (own, mine) = (reactor.clone(), users.clone());
    run(&world, &reactor, async move {
        while mine[0].log.0.state.borrow().files.filled().is_empty() {
            for user in &mine {
                if user.commit(10).await.is_none() {
                    own.sleep(Duration::from_millis(1)).await;
                }
                // Its segment has it already.
                user.ask_write_back();
            }
        }
    });
    let state = log.0.state.borrow();
    assert_eq!(state.files.filled().into_iter().map(|id| state.files.holders_of(id)).collect::<Vec<_>>(), [3]);
}
