//! The whole broker in a simulated world: shards, controller, storage, connections and protocol as they are, on virtual time,
//! an in-memory network and an in-memory disk, all of it decided by a seed.
//!
//! Holds: runs of seeds, and named tests of what seeds have found. Never touches: the clock, the network, the disk.
//! Run one seed with `CORELOG_SEED=n`, more of them with `CORELOG_SEEDS=n` (from `CORELOG_SEED_FIRST=n`).
//!
//! What must hold, whatever fails: nothing acknowledged is lost; what a consumer saw is there ever after, the same; an
//! idempotent producer's batches are there once and in order; offsets have no gaps; the log start never goes back; leader epochs
//! and topic ids are never used again; every request is answered, in order. Where records go by themselves, none goes too
//! early, and of each key a reader finds the newest (`kept`).
#![allow(clippy::unwrap_used, clippy::expect_used)]
// The random numbers are shared with tests that use more of them.
#![allow(dead_code)]

mod admin;
mod client;
mod kept;
mod lives;
mod model;
mod node;
#[path = "../support/random.rs"]
mod random;
mod reads;
mod relaxed;
mod requests;
mod scenarios;
mod work;

use corelog_broker::start::node::Broken;

use self::lives::{Summary, run, run_on_two_folders, total};

/// Seeds that every `cargo test` runs.
const SEEDS: u64 = 12;

/// Says how to repeat a run that fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("seed {} failed: repeat it with CORELOG_SEED={}", self.0, self.0);
        }
    }
}

/// `CORELOG_LOG=debug` shows what the broker says of itself.
fn log_if_asked() {
    if let Ok(filter) = std::env::var("CORELOG_LOG") {
        let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
        // A second test finds the first one's in place.
        let _ = log.without_time().with_ansi(false).try_init();
    }
}

fn run_said(seed: u64) -> Summary {
    log_if_asked();
    println!("seed {seed}");
    let said = Seed(seed);
    let summary = run(seed, Broken::Nothing);
    drop(said);
    println!("  {summary:?}");
    summary
}

fn seeds() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    match number("CORELOG_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let first = number("CORELOG_SEED_FIRST").unwrap_or(0);
            first..first + number("CORELOG_SEEDS").unwrap_or(SEEDS)
        }
    }
}

#[test]
fn a_broker_keeps_its_word_through_faults_and_power_cuts() {
    let summaries: Vec<Summary> = seeds().map(run_said).collect();
    let all = total(&summaries);
    println!("{all:?}");
    if summaries.len() as u64 >= SEEDS {
        let enough = all.acknowledged > 1_000 && all.polls > 1_000 && all.cuts > 5 && all.duplicates > 0;
        let is_cleaned = all.compacted > 100 && all.tombstones > 0 && all.retained > 0;
        assert!(
            enough && all.deletions > 0 && all.topics > 0 && all.refused > 0 && is_cleaned,
            "{all:?} is too little to prove anything"
        );
    }
}

#[test]
fn a_broker_with_two_folders_keeps_its_word_while_one_fails() {
    log_if_asked();
    let summaries: Vec<Summary> = seeds()
        .map(|seed| {
            println!("seed {seed}, two folders");
            let said = Seed(seed);
            let summary = run_on_two_folders(seed, Broken::Nothing);
            drop(said);
            println!("  {summary:?}");
            summary
        })
        .collect();
    let all = total(&summaries);
    println!("{all:?}");
    if summaries.len() as u64 >= SEEDS {
        assert!(all.acknowledged > 1_000 && all.refused > 0 && all.cuts > 5, "{all:?} is too little to prove anything");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let traces: Vec<u64> = (0..2).map(|_| run(7, Broken::Nothing).trace).collect();
    assert_eq!(traces[0], traces[1]);
    assert_ne!(traces[0], run(8, Broken::Nothing).trace, "the trace does not depend on the seed");
}

#[test]
fn without_synced_writes_the_simulation_fails() {
    let fails = |seed| std::panic::catch_unwind(|| run(seed, Broken::NoDsync)).is_err();
    assert!((0..10).any(fails), "the simulation does not notice that commits are not durable");
}
