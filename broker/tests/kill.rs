//! Holds: SIGKILL at random moments while real text is poured in, and under `corelog-bench verify`: restarts are quick, nothing
//! acknowledged is lost, nothing is duplicated, and new producers are never taken for old ones.
//! Never touches: the power (see `power_cut.rs`).
//!
//! Longer runs: `CORELOG_TEST_MB` (text to pour in), `CORELOG_TEST_KILLS`, `CORELOG_TEST_PRODUCERS`, `CORELOG_TEST_RESTART_MS` (limit of
//! the slowest restart). The full run is 1024 MB, 50 kills, 1,000 producers; under `corelog-bench verify` 500 kills:
//! `CORELOG_TEST_KILLS=500 cargo test --release -p corelog-broker --test kill verify -- --nocapture`.

mod support;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use support::admin::Admin;
use support::broker::{Broker, BrokerSetup};
use support::number_from_environment;
use support::random::{Random, test_seed};
use support::verifier::Verifier;
use support::workload::{Ledger, Load, LoadOptions, MadeUp, Source, Text, Watcher, verify_or_panic};

const PARTITIONS: usize = 8;
const SHARDS: u16 = 4;
const PATIENCE: Duration = Duration::from_secs(120);

/// Each of these tests uses the whole machine; one after the other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// How long restarts took.
#[derive(Default)]
struct Restarts {
    times: Vec<Duration>,
}

impl Restarts {
    fn restart(&mut self, setup: &BrokerSetup) -> Broker {
        let broker = setup.start();
        if broker.start_time() > Duration::from_secs(1) {
            println!("a slow restart, {:?}:\n{}", broker.start_time(), broker.log());
        }
        self.times.push(broker.start_time());
        broker
    }

    /// A second is enough. A machine that is busy with other things may hold some of them up, but not all; on a quiet one
    /// `CORELOG_TEST_RESTART_MS=1000` demands it of each.
    fn assert_quick(&mut self) {
        self.times.sort_unstable();
        let (quickest, slowest) = (self.times[0], self.times[self.times.len() - 1]);
        let median = self.times[self.times.len() / 2];
        println!("{} restarts: quickest {quickest:?}, median {median:?}, slowest {slowest:?}", self.times.len());
        assert!(quickest < Duration::from_secs(1), "even the quickest restart took {quickest:?}");
        let limit = Duration::from_millis(number_from_environment("CORELOG_TEST_RESTART_MS", 10_000));
        assert!(slowest < limit, "a restart took {slowest:?}, the limit is {limit:?}");
    }
}

#[test]
fn text_survives_kills_at_random_moments_complete_in_order_and_without_duplicates() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut random = Random::new(test_seed("kill"));
    let text = Arc::new(Text::gather((number_from_environment("CORELOG_TEST_MB", 64) as usize) << 20));
    let kills = number_from_environment("CORELOG_TEST_KILLS", 5);
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary folder");
    let setup = BrokerSetup::new(&folder.path().join("data"), SHARDS);
    let mut broker = setup.start();
    Admin::new(&setup.bootstrap(), PATIENCE).create_topic("text", PARTITIONS, &[]).expect("a topic");

    let source: Arc<dyn Source> = text.clone();
    let ledger = Arc::new(Ledger::new(PARTITIONS));
    let load = Load::new(&setup.bootstrap(), "text", Arc::clone(&source), Arc::clone(&ledger), &LoadOptions::default());
    let watcher = Watcher::new(&setup.bootstrap(), "text", Arc::clone(&source), Arc::clone(&ledger));
    // Kills come when this many lines are acknowledged, so that they fall into the run however fast it is.
    let mut moments: Vec<u64> = (0..kills).map(|_| random.below(text.lines() * 95 / 100)).collect();
    moments.sort_unstable();
    let began = Instant::now();
    let mut restarts = Restarts::default();
    std::thread::scope(|scope| {
        let pouring = scope.spawn(|| {
            let deadline = Instant::now() + PATIENCE * 20;
            let taken = (0..text.lines()).all(|number| load.push(number, deadline));
            assert!(taken, "the producer was held up for too long: {:?}", ledger.failures());
            load.flush(PATIENCE * 2)
        });
        for moment in moments {
            let waiting = Instant::now();
            while ledger.acked_count() < moment && !pouring.is_finished() {
                assert!(waiting.elapsed() < PATIENCE * 10, "{moment} lines were not acknowledged in time");
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(random.duration(Duration::ZERO, Duration::from_millis(30)));
            broker.kill();
            broker = restarts.restart(&setup);
        }
        pouring.join().expect("the pouring thread").expect("all acknowledged");
    });
    let took = began.elapsed();
    drop(watcher);
    assert_eq!(ledger.failures(), Vec::<String>::new());
    assert_eq!(ledger.acked_count(), text.lines());
    let verified = verify_or_panic(&setup.bootstrap(), "text", &*source, &ledger, true, "after the kills");
    assert_eq!(verified.records, text.lines(), "as many records as lines");
    println!(
        "kill: {} lines, {} MB, {kills} kills, {took:?} in all ({:.1} MB/s)",
        text.lines(),
        text.bytes() >> 20,
        (text.bytes() >> 20) as f64 / took.as_secs_f64()
    );
    broker.kill();
    let _broker = restarts.restart(&setup);
    verify_or_panic(&setup.bootstrap(), "text", &*source, &ledger, true, "after one more kill, with nothing under way");
    restarts.assert_quick();
}

#[test]
fn no_new_producer_after_a_kill_is_taken_for_an_old_one() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut random = Random::new(test_seed("new producers"));
    let producers = number_from_environment("CORELOG_TEST_PRODUCERS", 64);
    let rounds = 4;
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary folder");
    let setup = BrokerSetup::new(&folder.path().join("data"), SHARDS);
    let mut broker = setup.start();
    Admin::new(&setup.bootstrap(), PATIENCE).create_topic("t", PARTITIONS, &[]).expect("a topic");
    let source: Arc<dyn Source> = Arc::new(MadeUp { seed: random.next_u64(), bytes_max: 60 });
    let ledger = Arc::new(Ledger::new(PARTITIONS));
    let sent = AtomicU64::new(0);
    // Each payload has a producer of its own, whose first batch it is. A thread for each partition keeps the order there.
    let new_producers = |indexes: std::ops::Range<u64>| {
        std::thread::scope(|scope| {
            for partition in 0..PARTITIONS as u64 {
                let (bootstrap, source, ledger, indexes, sent) =
                    (setup.bootstrap(), &source, &ledger, indexes.clone(), &sent);
                scope.spawn(move || {
                    for index in indexes {
                        let options = LoadOptions { linger_ms: 0, ..LoadOptions::default() };
                        let load = Load::new(&bootstrap, "t", Arc::clone(source), Arc::clone(ledger), &options);
                        let number = index * PARTITIONS as u64 + partition;
                        assert!(load.push(number, Instant::now() + PATIENCE), "room in a new producer's queue");
                        load.flush(PATIENCE).expect("the first batch of a new producer is acknowledged");
                        sent.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
    };
    new_producers(0..2);
    let per_round = producers.div_ceil(rounds * PARTITIONS as u64);
    for round in 0..rounds {
        broker.kill();
        broker = setup.start();
        new_producers(2 + round * per_round..2 + (round + 1) * per_round);
    }
    assert_eq!(ledger.failures(), Vec::<String>::new());
    let sent = sent.load(Ordering::Relaxed);
    assert_eq!(ledger.acked_count(), sent);
    let verified = verify_or_panic(&setup.bootstrap(), "t", &*source, &ledger, true, "after new producers");
    assert_eq!(verified.records, sent, "each new producer's first batch is in the log, once");
}

/// How often, in a thousand, a kill is followed by another one before the broker serves.
const KILL_DURING_START_PER_MILLE: u64 = 300;
/// The longest that the broker is left alone.
const LEFT_ALONE_MAX: Duration = Duration::from_millis(700);
/// What is verified side by side: single small records and whole large batches, idempotent and not, also compressed, many segments.
const LOADS: [(&str, &str); 4] = [
    ("small", "--create 6 --rate 1500 --record-bytes 40-900 --batch-bytes 1 --idempotent"),
    ("large", "--create 3 --rate 4000 --batch-bytes 512KiB --connections 2 --topic-config segment.bytes=4194304"),
    ("packed", "--create 4 --rate 3000 --linger-ms 5 --compression lz4 --keys 100 --idempotent"),
    ("alone", "--create 1 --rate 300 --batch-bytes 1 --in-flight 1 --connections 8"),
];

#[test]
fn corelog_bench_verify_finds_nothing_lost_doubled_or_out_of_order_through_kills_at_random_moments() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut random = Random::new(test_seed("kills under verify"));
    let kills = number_from_environment("CORELOG_TEST_KILLS", 5);
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary folder");
    let setup = BrokerSetup::new(&folder.path().join("data"), SHARDS);
    let mut broker = setup.start();
    let (mut killed, mut round, mut during_start) = (0, 0, 0);
    while killed < kills {
        round += 1;
        let begin = |(name, load): (&str, &str)| {
            let run = "--fresh --delete-after --ride-out 120 --warm-up 0 --duration 10";
            Verifier::start(&format!("{name}-{round}"), &setup.bootstrap(), &format!("{load} {run} --seed {round}"))
        };
        let mut verifiers = LOADS.map(begin);
        // Until the last of them is through: also while topics are made and deleted, and while everything is read at the end.
        while verifiers.iter_mut().any(Verifier::is_running) {
            std::thread::sleep(random.duration(Duration::ZERO, LEFT_ALONE_MAX));
            if killed == kills {
                continue;
            }
            broker.kill();
            killed += 1;
            while killed < kills && random.chance(KILL_DURING_START_PER_MILLE) {
                broker = setup.launch();
                std::thread::sleep(random.duration(Duration::ZERO, Duration::from_millis(80)));
                broker.kill();
                (killed, during_start) = (killed + 1, during_start + 1);
            }
            broker = setup.start();
        }
        for verifier in verifiers {
            let (said, code) = verifier.finish();
            let told = said.lines().find(|line| line.contains("verified: ")).unwrap_or_default();
            assert!(
                code == Some(0) && told.contains("the broker was away"),
                "{killed} kills, exit code {code:?}; {said}"
            );
            println!("round {round}, {killed} kills: {told}");
        }
    }
    println!("kills under verify: {killed}, of them {during_start} during a start, in {round} rounds");
}
