//! Holds: power cuts under load on a disk that forgets whatever was not synced (`support/fuse_disk`): nothing acknowledged is lost,
//! nothing that a consumer was shown changes; and the proof that this test can fail: without RWF_DSYNC, or without the syncs of
//! folders, it must find losses.
//! Never touches: kills without a power cut (see `kill.rs`).
//!
//! Longer runs: `CORELOG_TEST_CUTS` (200 in the full run). Repeat a run with `CORELOG_TEST_SEED`.

mod support;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rdkafka::error::RDKafkaErrorCode;
use support::admin::Admin;
use support::broker::{Broker, BrokerSetup};
use support::fuse_disk::FuseDisk;
use support::number_from_environment;
use support::random::{Random, test_seed};
use support::workload::{Ledger, Load, LoadOptions, MadeUp, Source, Watcher, verify};

const SHARDS: u16 = 4;
const PARTITIONS: usize = 4;
const PATIENCE: Duration = Duration::from_secs(60);
/// After so many cuts the topics are verified for the last time, deleted, and made anew: the disk stays small, deletion is tried too.
const CUTS_PER_GENERATION: u64 = 8;
/// Topics of the administrator that exist at a time.
const ADMIN_TOPICS_MAX: usize = 20;
/// A broken broker must be caught within so many cuts.
const CUTS_UNTIL_CAUGHT: u64 = 30;
/// How often, in a thousand, a cut is followed by another one soon after the broker was started again.
const CUT_DURING_START_PER_MILLE: u64 = 250;
/// The sabotage that the debug build of the broker understands, for this test alone.
const BREAK_VARIABLE: &str = "CORELOG_TEST_BREAK";

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// One topic under load, with a consumer that reads along.
struct Stream {
    topic: String,
    idempotent: bool,
    source: Arc<dyn Source>,
    ledger: Arc<Ledger>,
    stop: Arc<AtomicBool>,
    paused: Arc<AtomicBool>,
    pouring: Option<JoinHandle<()>>,
    watcher: Option<Watcher>,
}

impl Stream {
    fn start(bootstrap: &str, topic: String, idempotent: bool, seed: u64) -> Stream {
        let source: Arc<dyn Source> = Arc::new(MadeUp { seed, bytes_max: 2_000 });
        let ledger = Arc::new(Ledger::new(PARTITIONS));
        let stop = Arc::new(AtomicBool::new(false));
        // A short queue: most of what is under way at a cut should have been sent, and the disk is in memory.
        let options = LoadOptions { idempotent, queue_messages: 400, linger_ms: 1, ..LoadOptions::default() };
        let load = Load::new(bootstrap, &topic, Arc::clone(&source), Arc::clone(&ledger), &options);
        let paused = Arc::new(AtomicBool::new(false));
        let (stopped, pause) = (Arc::clone(&stop), Arc::clone(&paused));
        let pouring = std::thread::spawn(move || {
            let mut number = 0;
            while !stopped.load(Ordering::Relaxed) {
                // Bursts rather than a flood: cuts and their judgement are what counts, not megabytes.
                for _ in 0..40 {
                    number += u64::from(load.push(number, Instant::now() + Duration::from_millis(20)));
                }
                std::thread::sleep(Duration::from_millis(5));
                while pause.load(Ordering::Relaxed) && !stopped.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            // What is under way is acknowledged or not; nobody waits for it.
        });
        let watcher = Watcher::new(bootstrap, &topic, Arc::clone(&source), Arc::clone(&ledger));
        Stream { topic, idempotent, source, ledger, stop, paused, pouring: Some(pouring), watcher: Some(watcher) }
    }

    /// The first broken promise, if there is one.
    fn judge(&self, bootstrap: &str) -> Result<u64, String> {
        let verified =
            verify(bootstrap, &self.topic, &*self.source, &self.ledger, self.idempotent).map_err(|findings| {
                let list: Vec<String> = findings.iter().map(ToString::to_string).collect();
                format!("topic {}: {}", self.topic, list.join(", "))
            })?;
        match self.ledger.failures().first() {
            Some(failure) => Err(format!("topic {}: {failure}", self.topic)),
            None => Ok(verified.records),
        }
    }

    /// No new payloads while set; those under way go on.
    fn pause(&self, paused: bool) {
        self.paused.store(paused, Ordering::Relaxed);
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.watcher = None;
        if let Some(pouring) = self.pouring.take() {
            let _ = pouring.join();
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.end();
    }
}

/// What an administrator was promised.
#[derive(Debug, Default)]
struct AdminPromises {
    created: BTreeSet<String>,
    deleted: BTreeSet<String>,
    /// Topics with a deletion under way when the power went, and with an unclear outcome.
    unclear: BTreeSet<String>,
    /// Per stream topic that is trimmed: everything before this offset is deleted.
    log_start: i64,
}

/// Creates and deletes topics and deletes records of `trimmed`, until told to stop.
struct Administrator {
    stop: Arc<AtomicBool>,
    promises: Arc<Mutex<AdminPromises>>,
    thread: Option<JoinHandle<()>>,
}

impl Administrator {
    fn start(bootstrap: String, prefix: String, trimmed: String) -> Administrator {
        let (stop, promises) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(AdminPromises::default())));
        let (stopped, shared) = (Arc::clone(&stop), Arc::clone(&promises));
        let thread = std::thread::spawn(move || {
            let mut number = 0;
            let mut admin = Admin::new(&bootstrap, Duration::from_secs(2));
            while !stopped.load(Ordering::Relaxed) {
                let name = format!("{prefix}-{number:06}");
                number += 1;
                let lock = || shared.lock().unwrap_or_else(PoisonError::into_inner);
                let created = admin.create_topic(&name, 1 + number % 3, &[]);
                if created.is_err() {
                    // The power is off, or went during the call: the outcome is open, and the client starts afresh.
                    admin = Admin::new(&bootstrap, Duration::from_secs(2));
                    continue;
                }
                lock().created.insert(name);
                // The oldest goes when there are enough: each partition costs time at each start.
                let oldest = lock().created.iter().next().cloned();
                if let Some(oldest) = oldest
                    && lock().created.len() > ADMIN_TOPICS_MAX
                {
                    lock().unclear.insert(oldest.clone());
                    if admin.delete_topic(&oldest).is_ok() {
                        let mut promises = lock();
                        promises.deleted.insert(oldest.clone());
                        promises.unclear.remove(&oldest);
                    }
                    lock().created.remove(&oldest);
                }
                let end = admin.client().inner().fetch_watermarks(&trimmed, 0, Duration::from_secs(1));
                if let Ok((start, end)) = end
                    && end > start
                {
                    let before = start + (end - start) / 2;
                    if admin.delete_records(&trimmed, 0, before).is_ok() {
                        lock().log_start = before;
                    }
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        Administrator { stop, promises, thread: Some(thread) }
    }

    fn promises(&self) -> std::sync::MutexGuard<'_, AdminPromises> {
        self.promises.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Administrator {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What the cuts did, for the report.
#[derive(Debug, Default)]
struct Tally {
    cuts: u64,
    cuts_during_start: u64,
    sectors_lost: u64,
    entries_lost: u64,
    records: u64,
    acknowledged: u64,
    topics_checked: usize,
    slowest_start: Duration,
}

/// The topics of one generation, and those who use them.
struct Generation {
    streams: Vec<Stream>,
    administrator: Administrator,
    trimmed: Stream,
    /// Promises as they were when the power went: whatever came later is not judged.
    number: u64,
}

impl Generation {
    fn start(setup: &BrokerSetup, number: u64, random: &mut Random) -> Result<Generation, String> {
        let (bootstrap, admin) = (setup.bootstrap(), Admin::new(&setup.bootstrap(), PATIENCE));
        // Small segments, so that cuts fall into rolls as well.
        let configs = [("segment.bytes", "1048576")];
        let create = |topic: &str| {
            admin
                .create_topic(topic, PARTITIONS, &configs)
                .map_err(|code| format!("topic {topic} was not created: {code}"))
        };
        let (idempotent, plain) = (format!("idempotent-{number}"), format!("plain-{number}"));
        let trimmed = format!("trimmed-{number}");
        create(&idempotent)?;
        create(&plain)?;
        create(&trimmed)?;
        let streams = vec![
            Stream::start(&bootstrap, idempotent, true, random.next_u64()),
            Stream::start(&bootstrap, plain, false, random.next_u64()),
        ];
        let administrator = Administrator::start(bootstrap.clone(), format!("admin-{number}"), trimmed.clone());
        let mut trimmed = Stream::start(&bootstrap, trimmed, true, random.next_u64());
        // It is trimmed while it is written: a reader from the beginning would find its place gone.
        trimmed.watcher = None;
        Ok(Generation { streams, administrator, trimmed, number })
    }

    fn pause(&self, paused: bool) {
        self.streams.iter().chain([&self.trimmed]).for_each(|stream| stream.pause(paused));
    }

    /// Compares what the broker has after a cut with what it had promised before.
    fn judge(&self, setup: &BrokerSetup, tally: &mut Tally) -> Result<(), String> {
        let admin = Admin::new(&setup.bootstrap(), PATIENCE);
        {
            let promises = self.administrator.promises();
            let topics: BTreeSet<String> = admin.topics().into_iter().collect();
            tally.topics_checked += promises.created.len() + promises.deleted.len();
            for topic in promises.created.difference(&promises.unclear) {
                if !topics.contains(topic) {
                    return Err(format!("topic {topic} was created, acknowledged, and is gone"));
                }
            }
            if let Some(topic) = promises.deleted.iter().find(|topic| topics.contains(*topic)) {
                return Err(format!("topic {topic} was deleted, acknowledged, and is back"));
            }
            let (start, end) = admin.watermarks(&self.trimmed.topic, 0);
            if start < promises.log_start || end < promises.log_start {
                return Err(format!(
                    "records before {} of {} were deleted; now the log starts at {start} and ends at {end}",
                    promises.log_start, self.trimmed.topic
                ));
            }
        }
        for stream in &self.streams {
            tally.records += stream.judge(&setup.bootstrap())?;
        }
        self.pause(false);
        Ok(())
    }

    /// Ends the load and deletes the topics; they must not be there afterwards.
    fn end(mut self, setup: &BrokerSetup, tally: &mut Tally) -> Result<(), String> {
        tally.acknowledged += self.streams.iter().map(|stream| stream.ledger.acked_count()).sum::<u64>();
        self.streams.iter_mut().for_each(Stream::end);
        self.trimmed.end();
        let admin = Admin::new(&setup.bootstrap(), PATIENCE);
        let of_mine = |topic: &String| topic.ends_with(&format!("-{}", self.number)) || topic.starts_with("admin-");
        drop(self.administrator);
        for topic in admin.topics().iter().filter(|topic| of_mine(topic)) {
            match admin.delete_topic(topic) {
                Ok(()) | Err(RDKafkaErrorCode::UnknownTopicOrPartition) => {}
                Err(code) => return Err(format!("topic {topic} could not be deleted: {code}")),
            }
        }
        Ok(())
    }
}

fn start(setup: &BrokerSetup, tally: &mut Tally) -> Result<Broker, String> {
    let broker = setup.try_start().map_err(|failure| format!("after {} cuts: {failure}", tally.cuts))?;
    tally.slowest_start = tally.slowest_start.max(broker.start_time());
    Ok(broker)
}

/// Runs load on a disk and cuts its power `cuts` times. The error is the first broken promise; `tally` tells how far it came.
fn run(mut disk: FuseDisk, setup: &BrokerSetup, cuts: u64, seed: u64, tally: &mut Tally) -> Result<(), String> {
    let mut random = Random::new(seed);
    disk.set_sync_time_max(Duration::from_millis(1));
    let began = Instant::now();
    let mut broker = start(setup, tally)?;
    let mut generation = Generation::start(setup, 0, &mut random)?;
    for cut in 1..=cuts {
        std::thread::sleep(random.duration(Duration::from_millis(20), Duration::from_millis(400)));
        if let Some(exit) = broker.exited() {
            return Err(format!("the broker ended by itself before cut {cut} ({exit}); its log:\n{}", broker.log()));
        }
        let report = disk.power_cut(random.next_u64(), || broker.kill_at_once());
        broker.wait();
        generation.pause(true);
        tally.cuts += 1;
        tally.sectors_lost += report.sectors_lost;
        tally.entries_lost += report.entries_lost;
        while random.chance(CUT_DURING_START_PER_MILLE) {
            // The power comes back, and goes again while the broker recovers.
            let mut recovering = setup.launch();
            std::thread::sleep(random.duration(Duration::ZERO, Duration::from_millis(250)));
            disk.power_cut(random.next_u64(), || recovering.kill_at_once());
            recovering.wait();
            tally.cuts_during_start += 1;
        }
        broker = start(setup, tally)?;
        println!("{:?}: cut {cut}: {report:?}, start {:?}", began.elapsed(), broker.start_time());
        let when = |what: String| format!("after cut {cut} ({report:?}): {what}");
        generation.judge(setup, tally).map_err(when)?;
        if cut % CUTS_PER_GENERATION == 0 || cut == cuts {
            generation.end(setup, tally).map_err(when)?;
            generation = Generation::start(setup, cut, &mut random).map_err(when)?;
        }
    }
    drop(generation);
    Ok(())
}

#[test]
fn power_cuts_under_load_lose_nothing_that_was_promised() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(disk) = FuseDisk::for_test("power_cuts_under_load_lose_nothing_that_was_promised") else { return };
    let seed = test_seed("power_cut");
    let cuts = number_from_environment("CORELOG_TEST_CUTS", 10);
    let setup = BrokerSetup::new(&disk.join("data"), SHARDS);
    let mut tally = Tally::default();
    match run(disk, &setup, cuts, seed, &mut tally) {
        Ok(()) => {
            println!("power_cut: {tally:?}");
            assert!(tally.acknowledged > 0 && tally.records > 0, "the cuts fell into a run without load: {tally:?}");
        }
        Err(broken) => panic!("seed {seed}: {broken}"),
    }
}

/// Runs the same test on a broker that leaves something out, and expects it to be caught.
fn assert_is_caught(test: &str, sabotage: &str) {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    if !cfg!(debug_assertions) {
        eprintln!("SKIPPED {test}: only the debug build of the broker can be broken on purpose");
        return;
    }
    let Some(disk) = FuseDisk::for_test(test) else { return };
    let seed = test_seed(test);
    let setup = BrokerSetup::new(&disk.join("data"), SHARDS).environment(BREAK_VARIABLE, sabotage);
    let mut tally = Tally::default();
    match run(disk, &setup, CUTS_UNTIL_CAUGHT, seed, &mut tally) {
        // Before the first cut the sabotage can't show: then something else is broken.
        Err(broken) if tally.cuts == 0 => panic!("seed {seed}: {broken}"),
        Err(broken) => println!("{sabotage} was caught: {}", broken.lines().next().unwrap_or_default()),
        Ok(()) => panic!("seed {seed}: {sabotage} was not caught: {tally:?}"),
    }
}

#[test]
fn a_broker_without_dsync_is_caught() {
    assert_is_caught("a_broker_without_dsync_is_caught", "no-dsync");
}

#[test]
fn a_broker_without_folder_syncs_is_caught() {
    assert_is_caught("a_broker_without_folder_syncs_is_caught", "no-dir-sync");
}
