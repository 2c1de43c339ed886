//! Holds: what `corelog.durability=memory` promises and what it does not. Never touches: random faults (`lives`).

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use corelog_broker::start::node::Broken;
use corelog_net::wire::ErrorCode;
use corelog_reactor::sim::DiskFault;
use corelog_storage::batch::{BatchBuilder, TargetCodec};

use super::node::{Boot, Setup};
use super::random::Random;
use super::requests::{self, Place};
use super::scenarios::{Scene, offsets};

/// Bounds that leave a record in memory for as long as it can be.
const FAR: &[(&str, &str)] = &[("flush.messages", "1000000"), ("flush.ms", "3600000")];

/// A relaxed topic with one partition.
fn topic(scene: &Scene, bounds: &[(&'static str, &'static str)]) -> Place {
    let mut configs = vec![("corelog.durability", "memory".to_owned())];
    configs.extend(bounds.iter().map(|(name, value)| (*name, (*value).to_owned())));
    let id = scene.client(move |connection| async move {
        let (error, id) = requests::create_topic(&connection, "relaxed", 1, &configs).await?;
        assert_eq!(error, ErrorCode::None);
        Ok(id)
    });
    Place { topic: "relaxed".to_owned(), key: (id, 0) }
}

/// Produces so many records of `bytes` with acks=all, one by one; what each was answered.
fn pour(scene: &Scene, place: &Place, records: usize, bytes: usize) -> Vec<(ErrorCode, i64)> {
    let (place, now) = (place.clone(), scene.now());
    scene.client(move |connection| async move {
        let mut answers = Vec::new();
        for _ in 0..records {
            let mut builder = BatchBuilder::new(TargetCodec::None);
            builder.append(now, None, Some(&vec![7; bytes]), &[]);
            let batches = vec![(place.clone(), builder.build().expect("a batch"))];
            let answer = requests::produce(&connection, 13, -1, &batches).expect("an answer to wait for");
            let outcome = &requests::produced(&answer.body().await?, 13, &batches)[0];
            answers.push((outcome.error, outcome.base));
        }
        Ok(answers)
    })
}

fn read(scene: &Scene, place: &Place) -> Vec<i64> {
    let place = place.clone();
    scene.client(move |connection| async move { offsets(&connection, &place).await })
}

fn cut_and_start(scene: &mut Scene) {
    scene.broker.cut();
    let setup = Setup::random(&mut Random::new(1), Broken::Nothing);
    assert!(matches!(scene.broker.start(&setup, Duration::from_secs(10)), Boot::Serving));
}

fn acknowledged(from: i64, to: i64) -> Vec<(ErrorCode, i64)> {
    (from..to).map(|offset| (ErrorCode::None, offset)).collect()
}

#[test]
fn records_are_acknowledged_and_read_from_memory_and_a_power_cut_takes_those() {
    let mut scene = Scene::begin(3);
    let place = topic(&scene, FAR);
    assert_eq!(pour(&scene, &place, 10, 100), acknowledged(0, 10));
    assert_eq!(read(&scene, &place), (0..10).collect::<Vec<_>>(), "consumers see them");
    cut_and_start(&mut scene);
    assert_eq!(read(&scene, &place), Vec::<i64>::new(), "nothing was written: else this test shows nothing");
    assert_eq!(pour(&scene, &place, 3, 100), acknowledged(0, 3), "it goes on behind what is left");
}

#[test]
fn a_record_s_write_begins_within_a_second_whatever_the_bounds_say() {
    let mut scene = Scene::begin(3);
    let place = topic(&scene, FAR);
    assert_eq!(pour(&scene, &place, 10, 100), acknowledged(0, 10));
    scene.world.run_for(Duration::from_millis(1_500));
    cut_and_start(&mut scene);
    assert_eq!(read(&scene, &place), (0..10).collect::<Vec<_>>());
}

#[test]
fn a_record_s_write_begins_within_flush_ms() {
    let mut scene = Scene::begin(3);
    let place = topic(&scene, &[("flush.messages", "1000000"), ("flush.ms", "50")]);
    assert_eq!(pour(&scene, &place, 10, 100), acknowledged(0, 10));
    scene.world.run_for(Duration::from_millis(250));
    cut_and_start(&mut scene);
    assert_eq!(read(&scene, &place), (0..10).collect::<Vec<_>>());
}

#[test]
fn with_flush_messages_of_one_a_write_begins_at_once() {
    let mut scene = Scene::begin(3);
    let place = topic(&scene, &[]);
    assert_eq!(pour(&scene, &place, 10, 100), acknowledged(0, 10));
    scene.world.run_for(Duration::from_millis(200));
    cut_and_start(&mut scene);
    assert_eq!(read(&scene, &place), (0..10).collect::<Vec<_>>());
}

#[test]
fn much_that_has_gathered_is_written_before_its_time() {
    let mut scene = Scene::begin(3);
    let place = topic(&scene, FAR);
    assert_eq!(pour(&scene, &place, 10, 40_000), acknowledged(0, 10));
    scene.world.run_for(Duration::from_millis(300));
    cut_and_start(&mut scene);
    assert!(read(&scene, &place).len() >= 6, "256 KiB are as good a write as any larger one");
}

#[test]
fn a_clean_stop_loses_nothing() {
    let mut scene = Scene::begin(3);
    let place = topic(&scene, FAR);
    assert_eq!(pour(&scene, &place, 10, 100), acknowledged(0, 10));
    scene.restart();
    assert_eq!(read(&scene, &place), (0..10).collect::<Vec<_>>());
}

#[test]
fn records_in_memory_only_can_be_deleted_and_stay_so() {
    let mut scene = Scene::begin(3);
    let place = topic(&scene, FAR);
    assert_eq!(pour(&scene, &place, 10, 100), acknowledged(0, 10));
    let gone = place.clone();
    let answer = scene.client(move |connection| async move { requests::delete_records(&connection, &gone, 7).await });
    assert_eq!(answer, (ErrorCode::None, 7));
    cut_and_start(&mut scene);
    assert_eq!(read(&scene, &place), vec![7, 8, 9]);
}

/// What is logged on this thread while `act` runs.
fn logged<T>(act: impl FnOnce() -> T) -> (T, String) {
    let lines: Arc<Mutex<Vec<u8>>> = Arc::default();
    let to = Arc::clone(&lines);
    let lines_of = move || Lines(Arc::clone(&to));
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(lines_of).finish();
    let result = tracing::subscriber::with_default(subscriber, act);
    let lines = lines.lock().expect("nobody panicked").clone();
    (result, String::from_utf8(lines).expect("text"))
}

struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("nobody panicked").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn after_a_failed_write_the_partition_takes_no_more_and_others_do_and_what_was_acknowledged_is_reported_as_lost() {
    let mut scene = Scene::begin(3);
    let place = topic(&scene, FAR);
    let other = scene.client(move |connection| async move {
        let (error, id) = requests::create_topic(&connection, "other", 1, &[]).await?;
        assert_eq!(error, ErrorCode::None);
        Ok(Place { topic: "other".to_owned(), key: (id, 0) })
    });
    // Durable, all ten: what comes is behind them.
    assert_eq!(pour(&scene, &place, 10, 100), acknowledged(0, 10));
    scene.world.run_for(Duration::from_millis(1_500));
    scene.world.disk(scene.broker.node()).set_fault(|op| {
        // The commit log, too: it would take them for the partition.
        let path = op.path.to_string_lossy();
        let hit = op.kind.is_write() && (path.contains("relaxed-0") || path.contains("/.commit/"));
        hit.then_some(DiskFault::Errno(libc::EIO))
    });
    let (lost, lines) = logged(|| {
        assert_eq!(pour(&scene, &place, 5, 100), acknowledged(10, 15), "memory is enough for an acknowledgement");
        scene.world.run_for(Duration::from_secs(3));
        pour(&scene, &place, 1, 100)
    });
    assert_eq!(lost, vec![(ErrorCode::KafkaStorageError, -1)]);
    let told = lines.lines().find(|line| line.contains("acknowledged records are in memory only"));
    let told = told.unwrap_or_else(|| panic!("nothing is said of the acknowledged records: {lines}"));
    assert!(told.contains("from=10 to=15") && told.contains("relaxed"), "{told}");
    assert_eq!(
        read(&scene, &place),
        (0..15).collect::<Vec<_>>(),
        "what is in memory can be read as long as it is there"
    );
    scene.world.disk(scene.broker.node()).clear_fault();
    assert_eq!(pour(&scene, &other, 3, 100), acknowledged(0, 3), "another partition is not touched");
    cut_and_start(&mut scene);
    // The failed write may have left some of its sectors.
    let kept = read(&scene, &place);
    let end = kept.len() as i64;
    assert!((10..=15).contains(&end), "what was durable is there: {kept:?}");
    assert_eq!(kept, (0..end).collect::<Vec<_>>());
    assert_eq!(pour(&scene, &place, 1, 100), acknowledged(end, end + 1), "a restart lifts it");
}

#[test]
fn made_durable_while_it_runs_it_acknowledges_what_is_on_the_disk() {
    let mut scene = Scene::begin(3);
    let place = topic(&scene, FAR);
    assert_eq!(pour(&scene, &place, 10, 100), acknowledged(0, 10));
    let answer = scene.client(move |connection| async move {
        requests::set_config(&connection, "relaxed", "corelog.durability", "durable").await
    });
    assert_eq!(answer, ErrorCode::None);
    scene.world.run_for(Duration::from_millis(20));
    assert_eq!(pour(&scene, &place, 1, 100), acknowledged(10, 11));
    cut_and_start(&mut scene);
    assert_eq!(read(&scene, &place), (0..11).collect::<Vec<_>>());
}
