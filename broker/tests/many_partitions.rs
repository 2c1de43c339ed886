//! Holds: how long a start takes after a SIGKILL when there are many partitions with a little in each: they are recovered together,
//! not one after the other.
//! Never touches: few partitions with much in them (see `kill.rs`).
//!
//! `CORELOG_TEST_PARTITIONS`: how many (300; the full run is 2,000). `CORELOG_TEST_RESTART_MS`: the limit of a restart.

mod support;

use std::time::{Duration, Instant};

use support::admin::Admin;
use support::broker::BrokerSetup;
use support::number_from_environment;
use support::raw::RawConnection;
use support::requests::{PRODUCE, batch, produce, produce_answer};

const PATIENCE: Duration = Duration::from_secs(120);

#[test]
fn a_killed_broker_with_many_partitions_is_soon_back_with_all_of_them() {
    let partitions = number_from_environment("CORELOG_TEST_PARTITIONS", 300) as i32;
    let limit = Duration::from_millis(number_from_environment("CORELOG_TEST_RESTART_MS", 10_000));
    let data = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary folder");
    let setup = BrokerSetup::new(&data.path().join("data"), 2);
    let mut broker = setup.start();
    let began = Instant::now();
    Admin::new(&setup.bootstrap(), PATIENCE).create_topic("t", partitions as usize, &[]).expect("a topic");
    println!("{partitions} partitions created in {:?}", began.elapsed());
    for round in 0..2 {
        let mut connection = RawConnection::connect(setup.address()).expect("a connection");
        for partition in 0..partitions {
            // Half of them are busy before each kill, the others idle since the start.
            if round == 0 || partition % 2 == 0 {
                let body = produce("t", partition, -1, &batch(&[b"value"], 1));
                assert_eq!(produce_answer(&connection.call(PRODUCE, 3, body).expect("an answer")), (0, round));
            }
        }
        broker.kill();
        broker = setup.start();
        println!("restart after kill {}: {:?}", round + 1, broker.start_time());
        broker
            .log()
            .lines()
            .filter(|line| line.contains("serving") || line.contains("recover"))
            .take(5)
            .for_each(|line| println!("{line}"));
        assert!(
            broker.start_time() < limit,
            "{:?} for {partitions} partitions; its log:\n{}",
            broker.start_time(),
            broker.log()
        );
    }
    let mut connection = RawConnection::connect(setup.address()).expect("a connection");
    for partition in 0..partitions {
        let body = produce("t", partition, -1, &batch(&[b"value"], 1));
        let expected = if partition % 2 == 0 { 2 } else { 1 };
        assert_eq!(
            produce_answer(&connection.call(PRODUCE, 3, body).expect("an answer")),
            (0, expected),
            "{partition}"
        );
    }
}
