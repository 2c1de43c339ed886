//! How fast a round goes, and what it notes of commits beside it, on the simulated disk.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod log_common;
mod log_compacted;
mod log_model;

use corelog_reactor::Reactor;
use corelog_reactor::sim::SimWorld;
use corelog_storage::ids::Timestamp;
use corelog_storage::log::{Beside, Log, Pace};
use log_common::*;
use log_compacted::*;
use log_model::{Dice, run};
use std::time::Duration;

/// A round at `pace`, with a commit of the same log each millisecond until it ends. How long it took, and the bytes.
async fn round(own: &Reactor, log: &Log, pace: &Pace) -> (Duration, u64) {
    let candidate = log.compaction_candidate(&rules(), log.durable_end(), Timestamp(TIME)).await.unwrap().unwrap();
    let began = own.now();
    let (committing, writer) = (own.clone(), log.clone());
    let others = std::rc::Rc::new(std::cell::Cell::new(true));
    let goes_on = others.clone();
    let task = async move {
        while goes_on.get() {
            append(&writer, &batch(1, 100, 7)).unwrap();
            commit_all(&writer).await;
            committing.sleep(Duration::from_millis(1)).await;
        }
    };
    own.spawn(task).unwrap();
    let done = log.compact(&candidate, &rules(), pace).await.unwrap();
    others.set(false);
    (own.now().saturating_since(began), done.bytes.0)
}

#[test]
fn a_round_reads_no_faster_than_it_may_and_knows_the_commits_beside_it() {
    let world = SimWorld::new(1);
    let node = world.add_node();
    let reactor = reactor_of(&world, node);
    let own = reactor.clone();
    run(&world, &reactor, async move {
        let ((_data, env), log, ..) = filled(&own, Dice(1), config(16 << 10), 9, 30).await;
        assert_eq!(env.commits_beside_compaction(), Beside::default(), "nothing was compacted yet");
        let (took, bytes) = round(&own, &log, &Pace::new(1.0, 128.0 * 1024.0)).await;
        // Each byte is read twice: for its key, and to be written anew or left out.
        let least = Duration::from_secs_f64(2.0 * bytes as f64 / (128.0 * 1024.0));
        assert!(took >= least && took < 2 * least, "{bytes} bytes took {took:?}");
        let beside = env.commits_beside_compaction();
        assert!(beside.commits > 10, "{beside:?}");
        own.sleep(Duration::from_secs(1)).await;
        for _ in 0..50 {
            append(&log, &batch(1, 100, 7)).unwrap();
            commit_all(&log).await;
        }
        assert_eq!(env.commits_beside_compaction(), beside, "none of these was beside a round");
    });
}
