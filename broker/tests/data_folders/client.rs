//! Holds: a client that counts what was acknowledged, and asks what is where; a broker on two folders with records in both.
//! Never touches: what a test does to a folder.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::admin::Admin;
use crate::support::broker::{Broker, BrokerSetup};
use crate::support::raw::{Decoder, Encoder, RawConnection};
use crate::support::requests::{
    FETCH, METADATA, PRODUCE, Session, batch, fetch, fetch_answer, produce, produce_answer, values_of,
};

pub const PATIENCE: Duration = Duration::from_secs(30);
pub const DESCRIBE_LOG_DIRS: i16 = 35;
/// KAFKA_STORAGE_ERROR.
pub const STORAGE_ERROR: i16 = 56;
/// LEADER_NOT_AVAILABLE.
pub const NO_LEADER: i16 = 5;
pub const PARTITIONS: i32 = 6;

pub fn setup(folders: &[&Path]) -> BrokerSetup {
    let names: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
    BrokerSetup::new(Path::new(&names.join(",")), 2)
}

/// The partitions of topic `t` whose folders are in a data folder.
pub fn in_folder(folder: &Path) -> Vec<i32> {
    let names = fs::read_dir(folder).map(|entries| entries.flatten().map(|e| e.file_name()).collect::<Vec<_>>());
    let names = names.unwrap_or_default();
    let of_t = names.iter().filter_map(|name| name.to_str()?.strip_prefix("t-")?.parse().ok());
    let mut partitions: Vec<i32> = of_t.collect();
    partitions.sort_unstable();
    partitions
}

/// A client that counts: the values of a partition of `t` are 0, 1, 2, ...
pub struct Client {
    pub connection: RawConnection,
    pub acknowledged: BTreeMap<i32, i64>,
}

impl Client {
    pub fn new(setup: &BrokerSetup) -> Client {
        Client { connection: connect(setup), acknowledged: BTreeMap::new() }
    }

    pub fn again(&mut self, setup: &BrokerSetup) {
        self.connection = connect(setup);
    }

    /// The error code of the answer to the next record.
    pub fn produce(&mut self, partition: i32) -> i16 {
        let next = self.acknowledged.get(&partition).copied().unwrap_or(0);
        let value = next.to_string().into_bytes();
        let answer = self.connection.call(PRODUCE, 3, produce("t", partition, -1, &batch(&[&value], 1)));
        let (error, _) = produce_answer(&answer.expect("an answer, also to what is refused"));
        if error == 0 {
            self.acknowledged.insert(partition, next + 1);
        }
        error
    }

    pub fn produce_to_all(&mut self, partitions: &[i32], times: usize) {
        for partition in partitions.iter().cycle().take(partitions.len() * times) {
            assert_eq!(self.produce(*partition), 0, "partition {partition}");
        }
    }

    /// Everything acknowledged is there, once a value at the least, in its order. (What was refused may be there, too.)
    pub fn assert_holds(&mut self, partitions: &[i32]) {
        for &partition in partitions {
            let acknowledged = self.acknowledged.get(&partition).copied().unwrap_or(0);
            let (mut offset, mut next) = (0, 0);
            while next < acknowledged {
                let body = fetch(Session { id: 0, epoch: -1 }, 100, &[("t", partition, offset)]);
                let fetched = fetch_answer(&self.connection.call(FETCH, 7, body).expect("an answer"));
                let (_, _, error, high_watermark, _, records) = &fetched.partitions[0];
                assert_eq!((fetched.error, *error), (0, 0), "partition {partition}");
                let values = values_of(records);
                assert!(
                    !values.is_empty(),
                    "partition {partition} ends at {high_watermark}, {acknowledged} acknowledged"
                );
                let from = offset;
                for (at, value) in values.into_iter().filter(|(at, _)| *at >= from) {
                    let value: i64 = String::from_utf8_lossy(&value).parse().expect("a number");
                    assert!(value <= next, "value {value} of partition {partition} where {next} should be");
                    next = next.max(value + 1);
                    offset = at + 1;
                }
            }
        }
    }

    pub fn fetch_error(&mut self, partition: i32) -> i16 {
        let body = fetch(Session { id: 0, epoch: -1 }, 100, &[("t", partition, 0)]);
        fetch_answer(&self.connection.call(FETCH, 7, body).expect("an answer")).partitions[0].2
    }

    /// Error code of each data folder, and the partitions of `t` that it has.
    pub fn log_dirs(&mut self) -> BTreeMap<PathBuf, (i16, Vec<i32>)> {
        let answer = self.connection.call(DESCRIBE_LOG_DIRS, 1, Encoder::default().i32(-1)).expect("an answer");
        let mut answer = Decoder::new(&answer);
        let _throttled = answer.i32();
        let mut dirs = BTreeMap::new();
        for _ in 0..answer.i32() {
            let (error, dir) = (answer.i16(), answer.string().expect("a folder's name"));
            let mut held = Vec::new();
            for _ in 0..answer.i32() {
                let topic = answer.string();
                for _ in 0..answer.i32() {
                    let partition = answer.i32();
                    answer.raw(17);
                    if topic.as_deref() == Some("t") {
                        held.push(partition);
                    }
                }
            }
            dirs.insert(PathBuf::from(dir), (error, held));
        }
        dirs
    }

    /// Error, leader and offline replicas of each partition of `t`.
    pub fn metadata(&mut self) -> BTreeMap<i32, (i16, i32, Vec<i32>)> {
        let body = Encoder::default().i32(1).string("t").i8(0);
        let answer = self.connection.call(METADATA, 5, body).expect("an answer");
        let mut answer = Decoder::new(&answer);
        let _throttled = answer.i32();
        for _ in 0..answer.i32() {
            let _broker = (answer.i32(), answer.string(), answer.i32(), answer.string());
        }
        let _cluster = (answer.string(), answer.i32());
        assert_eq!(answer.i32(), 1, "topics");
        let _topic = (answer.i16(), answer.string(), answer.raw(1));
        let mut partitions = BTreeMap::new();
        for _ in 0..answer.i32() {
            let (error, partition, leader) = (answer.i16(), answer.i32(), answer.i32());
            let mut lists = [(); 3].map(|()| (0..answer.i32()).map(|_| answer.i32()).collect::<Vec<i32>>());
            partitions.insert(partition, (error, leader, std::mem::take(&mut lists[2])));
        }
        partitions
    }
}

pub fn connect(setup: &BrokerSetup) -> RawConnection {
    RawConnection::connect(setup.address()).expect("a connection")
}

pub fn assert_leaders(client: &mut Client, online: &[i32], offline: &[i32]) {
    let metadata = client.metadata();
    for partition in online {
        assert_eq!(metadata[partition], (0, 1, vec![]), "partition {partition}");
    }
    for partition in offline {
        assert_eq!(metadata[partition], (NO_LEADER, -1, vec![1]), "partition {partition}");
    }
}

/// A broker on two folders, with `t` on both and some records in each partition.
pub fn filled(a: &Path, b: &Path) -> (BrokerSetup, Broker, Client, Vec<i32>, Vec<i32>) {
    let setup = setup(&[a, b]);
    let broker = setup.start();
    Admin::new(&setup.bootstrap(), PATIENCE).create_topic("t", PARTITIONS as usize, &[]).expect("a topic");
    let (in_a, in_b) = (in_folder(a), in_folder(b));
    assert_eq!((in_a.len(), in_b.len()), (3, 3), "{in_a:?} {in_b:?}");
    let mut client = Client::new(&setup);
    client.produce_to_all(&(0..PARTITIONS).collect::<Vec<_>>(), 5);
    (setup, broker, client, in_a, in_b)
}

pub fn stop(broker: &mut Broker) {
    assert_eq!(broker.terminate(PATIENCE).code(), Some(0), "{}", broker.log());
}
