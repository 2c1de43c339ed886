//! Holds: what people do to a broker without meaning harm: unlucky names, a lock file removed, limits of zero, a log that can't
//! be written, a stop amid a deletion. Never touches: load, the power.

mod support;

use std::fs::{self, OpenOptions};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::admin::Admin;
use support::broker::BrokerSetup;
use support::raw::RawConnection;
use support::requests::{METADATA, PRODUCE, batch, metadata, produce, produce_answer};

const PATIENCE: Duration = Duration::from_secs(30);

/// Has one record acknowledged, in a topic that is made for it. A connection that is closed meanwhile is made anew.
fn acknowledge(setup: &BrokerSetup, topic: &str) {
    let give_up = Instant::now() + PATIENCE;
    let attempt = || -> std::io::Result<i16> {
        let mut connection = RawConnection::connect(setup.address())?;
        connection.call(METADATA, 4, metadata(topic, true))?;
        let answer = connection.call(PRODUCE, 3, produce(topic, 0, -1, &batch(&[b"kept"], 1_000)))?;
        Ok(produce_answer(&answer).0)
    };
    while !matches!(attempt(), Ok(0)) {
        assert!(Instant::now() < give_up, "nothing was acknowledged in {topic}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_topic_named_like_a_file_of_the_data_folder_survives_restarts_and_copies_of_checkpoints_are_left_alone() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let folder = data.path().join("data");
    let setup = BrokerSetup::new(&folder, 2);
    let names = ["log-checkpoint", "log-checkpoint.1", "log-checkpoint.0", "meta.properties", "x-delete", "x-stray"];
    let mut broker = setup.start();
    let admin = Admin::new(&setup.bootstrap(), PATIENCE);
    for name in names {
        admin.create_topic(name, 1, &[]).expect("a topic");
        acknowledge(&setup, name);
    }
    assert_eq!(broker.terminate(PATIENCE).code(), Some(0));
    fs::copy(folder.join("log-checkpoint"), folder.join("log-checkpoint.bak")).expect("a copy");
    fs::create_dir(folder.join("log-checkpoint.old")).expect("a folder");
    let mut broker = setup.start();
    let admin = Admin::new(&setup.bootstrap(), PATIENCE);
    for name in names {
        assert_eq!(admin.watermarks(name, 0), (0, 1), "{name}");
    }
    assert!(folder.join("log-checkpoint.bak").exists() && folder.join("log-checkpoint.old").exists());
    broker.kill();
}

#[test]
fn a_second_broker_is_refused_also_when_the_lock_file_was_removed() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let folder = data.path().join("data");
    let mut broker = BrokerSetup::new(&folder, 1).start();
    fs::remove_file(folder.join(".lock")).expect("the lock file");
    let second = BrokerSetup::new(&folder, 1).try_start();
    assert!(second.is_err(), "a second broker runs on the same folder");
    broker.kill();
}

#[test]
fn an_idle_limit_of_zero_keeps_nothing_from_working() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let setup = BrokerSetup::new(&data.path().join("data"), 1).set("connections.max.idle.ms", "0");
    let mut broker = setup.start();
    acknowledge(&setup, "t");
    assert_eq!(broker.terminate(PATIENCE).code(), Some(0));
}

#[test]
fn a_log_that_cannot_be_written_does_not_stop_the_broker() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let setup = BrokerSetup::new(&data.path().join("data"), 1);
    let full = OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
    let mut process = Command::new(env!("CARGO_BIN_EXE_corelog"))
        .args(["serve", "--listen", &setup.bootstrap(), "--shards", "1", "--data-dir"])
        .arg(data.path().join("data"))
        .stdin(Stdio::null())
        .stdout(full.try_clone().expect("another handle"))
        .stderr(full)
        .spawn()
        .expect("a process");
    let give_up = Instant::now() + PATIENCE;
    while RawConnection::connect(setup.address()).is_err() {
        assert_eq!(process.try_wait().expect("a status"), None, "it ended for want of a place to log to");
        assert!(Instant::now() < give_up, "it does not serve");
        std::thread::sleep(Duration::from_millis(20));
    }
    acknowledge(&setup, "t");
    process.kill().expect("to end it");
    process.wait().expect("its end");
}

#[test]
fn a_stop_amid_deletions_leaves_no_half_deleted_topic() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let folder = data.path().join("data");
    let setup = BrokerSetup::new(&folder, 3);
    for round in 0..6u64 {
        let mut broker = setup.start();
        let admin = Admin::new(&setup.bootstrap(), PATIENCE);
        let names: Vec<String> = (0..8).map(|number| format!("t-{round}-{number}")).collect();
        for name in &names {
            admin.create_topic(name, 4, &[]).expect("a topic");
        }
        let deleting = std::thread::spawn(move || {
            // Whether an answer comes before the stop is a matter of luck: both must leave things whole.
            for name in &names {
                let _ = admin.delete_topic(name);
            }
        });
        std::thread::sleep(Duration::from_millis(2 + round * 3));
        assert_eq!(broker.terminate(PATIENCE).code(), Some(0));
        let mut broker = setup.start();
        let strays = fs::read_dir(&folder).expect("the folder").flatten();
        let strays: Vec<_> = strays.filter(|entry| entry.file_name().to_string_lossy().ends_with("-stray")).collect();
        assert!(strays.is_empty(), "round {round}: {strays:?}");
        broker.kill();
        deleting.join().expect("the deleting client");
    }
}
