//! `corelog import` from a folder as Kafka writes it: what is carried, what is refused, and that nothing half-made
//! stays.
//!
//! Holds: a Kafka's data folder, made by hand, and what the command says of it. Never touches: a real Kafka: the
//! interop suite has
//! that.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use corelog_storage::batch::{BatchBuilder, TargetCodec};
use corelog_storage::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};
use tempfile::TempDir;

const TOPIC_ID: [u8; 16] = [7; 16];
const TOPIC_ID_SHOWN: &str = "BwcHBwcHBwcHBwcHBwcHBw";

/// A value of the metadata log: frame, type, version, fields, each short enough for a length of one byte.
fn value(kind: u8, version: u8, fields: &[&[u8]]) -> Vec<u8> {
    [&[1, kind, version][..], &fields.concat()].concat()
}

fn text(text: &str) -> Vec<u8> {
    [&[text.len() as u8 + 1], text.as_bytes()].concat()
}

fn numbers(list: &[i32]) -> Vec<u8> {
    list.iter().flat_map(|number| number.to_be_bytes()).collect()
}

fn ids(list: &[i32]) -> Vec<u8> {
    [&[list.len() as u8 + 1][..], &numbers(list)].concat()
}

fn topic_record() -> Vec<u8> {
    value(2, 0, &[&text("t"), &TOPIC_ID, &[0]])
}

fn partition_record(partition: i32, replicas: &[i32]) -> Vec<u8> {
    let (replicas, node) = (ids(replicas), numbers(&[4, 2, 3]));
    value(3, 0, &[&numbers(&[partition]), &TOPIC_ID, &replicas, &replicas, &[1, 1], &node, &[0]])
}

fn config_record(name: &str, of: &str) -> Vec<u8> {
    value(4, 0, &[&[2], &text("t"), &text(name), &text(of), &[0]])
}

fn batch(base: i64, values: &[Vec<u8>]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(TargetCodec::None).at(Offset(base), LeaderEpoch(1));
    for value in values {
        builder.append(Timestamp(1_700_000_000_000), None, Some(value), &[]);
    }
    builder.build().expect("a batch")
}

/// A folder of a Kafka that was stopped: node 4, a topic of two partitions, the second one without records.
struct Kafka {
    home: TempDir,
}

impl Kafka {
    fn new() -> Self {
        let mut records = vec![topic_record(), partition_record(0, &[4]), partition_record(1, &[4])];
        records.push(config_record("cleanup.policy", "compact"));
        records.push(value(15, 0, &[&numbers(&[4]), &9_i64.to_be_bytes(), &5000_i64.to_be_bytes(), &[0]]));
        Self::with(records)
    }

    fn with(records: Vec<Vec<u8>>) -> Self {
        let kafka = Self { home: tempfile::tempdir().expect("a folder") };
        let data = kafka.data();
        fs::create_dir(&data).expect("make");
        let meta = format!("version=1\ncluster.id=abc\nnode.id=4\ndirectory.id={TOPIC_ID_SHOWN}\n");
        fs::write(data.join("meta.properties"), meta).expect("write");
        fs::write(data.join(".kafka_cleanshutdown"), "{\"version\":0}").expect("write");
        fs::write(data.join(".lock"), "").expect("write");
        let metadata = data.join("__cluster_metadata-0");
        fs::create_dir(&metadata).expect("make");
        fs::write(metadata.join("00000000000000000000.log"), batch(0, &records)).expect("write");
        for partition in 0..2 {
            let folder = kafka.partition(partition);
            fs::create_dir(&folder).expect("make");
            fs::write(folder.join("partition.metadata"), format!("version: 0\ntopic_id: {TOPIC_ID_SHOWN}"))
                .expect("write");
            fs::write(folder.join("leader-epoch-checkpoint"), "0\n0\n").expect("write");
            fs::write(folder.join("00000000000000000000.log"), "").expect("write");
        }
        kafka.write_log(&[batch(0, &[b"a".to_vec(), b"b".to_vec()]), batch(2, &[b"c".to_vec()])]);
        fs::write(kafka.partition(0).join("leader-epoch-checkpoint"), "0\n1\n1 0\n").expect("write");
        kafka
    }

    fn write_log(&self, batches: &[Vec<u8>]) {
        fs::write(self.partition(0).join("00000000000000000000.log"), batches.concat()).expect("write");
    }

    fn data(&self) -> PathBuf {
        self.home.path().join("kafka")
    }

    fn partition(&self, number: i32) -> PathBuf {
        self.data().join(format!("t-{number}"))
    }

    fn target(&self) -> PathBuf {
        self.home.path().join("corelog")
    }

    fn staging(&self) -> PathBuf {
        self.home.path().join("corelog.importing")
    }

    fn import(&self, more: &[&str]) -> Output {
        self.import_only(&[&["--ignore", "server-properties"], more].concat())
    }

    fn import_only(&self, more: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_corelog"));
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CORELOG_")) {
            command.env_remove(name);
        }
        command
            .arg("import")
            .arg(self.data())
            .arg("--into")
            .arg(self.target())
            .args(more)
            .output()
            .expect("corelog runs")
    }

    /// Refused, for this reason, and nothing is left of the attempt.
    fn is_refused(&self, more: &[&str], reason: &str) {
        let before = files(&self.data());
        let output = self.import(more);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(65), "{said}");
        assert!(said.contains(reason), "{said}");
        assert!(!self.target().exists() && !self.staging().exists(), "something is left");
        assert_eq!(files(&self.data()), before, "the source has changed");
    }

    fn is_taken(&self, more: &[&str]) -> Output {
        let before = files(&self.data());
        let output = self.import(more);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(files(&self.data()), before, "the source has changed");
        output
    }
}

/// All files below a folder, with their bytes.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("list").map(|entry| entry.expect("entry").path()) {
        match entry.is_dir() {
            true => found.extend(files(&entry)),
            false => {
                let bytes = fs::read(&entry).expect("read");
                found.insert(entry, bytes);
            }
        }
    }
    found
}

#[test]
fn a_stopped_kafkas_folder_becomes_a_data_folder_with_the_same_bytes() {
    let kafka = Kafka::new();
    let output = kafka.is_taken(&[]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("is ready"), "{said}");
    let log = "t-0/00000000000000000000.log";
    let (theirs, ours) = (fs::read(kafka.data().join(log)), fs::read(kafka.target().join(log)));
    assert_eq!(ours.expect("carried"), theirs.expect("there"));
    let owner = fs::read_to_string(kafka.target().join("t-1/partition.metadata")).expect("there");
    assert_eq!(owner, format!("version: 0\ntopic_id: {TOPIC_ID_SHOWN}\npartition: 1"));
    let meta = fs::read_to_string(kafka.target().join("meta.properties")).expect("there");
    assert!(meta.contains("cluster.id=abc") && meta.contains("node.id=4"), "{meta}");
    assert!(!kafka.staging().exists());
    // What is there already is not touched.
    let again = kafka.import(&[]);
    assert!(String::from_utf8_lossy(&again.stderr).contains("is there already"), "{again:?}");
}

#[test]
fn a_log_that_kafka_has_compacted_is_taken_with_its_gaps() {
    let kafka = Kafka::new();
    let segment = |base: i64| format!("{base:020}.log");
    let value = || vec![b"a".to_vec()];
    // Gaps within segments, at their ends, over an epoch's start, and a segment of which nothing is left.
    let later = |base: i64, epoch: i32| {
        let mut builder = BatchBuilder::new(TargetCodec::None).at(Offset(base), LeaderEpoch(epoch));
        builder.append(Timestamp(1_700_000_000_000), Some(b"key"), Some(b"value"), &[]);
        builder.build().expect("a batch")
    };
    kafka.write_log(&[batch(1, &value()), batch(5, &value()), batch(6, &value())]);
    fs::write(kafka.partition(0).join(segment(10)), "").expect("write");
    fs::write(kafka.partition(0).join(segment(20)), [later(22, 1), later(25, 2), later(29, 2)].concat())
        .expect("write");
    fs::write(kafka.partition(0).join(segment(40)), [later(40, 2), later(41, 3)].concat()).expect("write");
    fs::write(kafka.partition(0).join("leader-epoch-checkpoint"), "0\n3\n1 0\n2 23\n3 41\n").expect("write");
    let output = kafka.is_taken(&[]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("42"), "42 offsets: {said}");
    for base in [0, 10, 20, 40] {
        let read = |data: PathBuf| fs::read(data.join("t-0").join(segment(base))).expect("a segment");
        let (theirs, ours) = (read(kafka.data()), read(kafka.target()));
        let rest = ours.strip_prefix(&theirs[..]).expect("what Kafka had");
        assert_eq!(rest.len(), if base == 40 { 0 } else { 61 }, "segment {base}");
    }
    let epochs = fs::read_to_string(kafka.target().join("t-0/leader-epoch-checkpoint")).expect("there");
    assert_eq!(epochs, "0\n3\n1 0\n2 23\n3 41\n");
    // A start on the folder reads it again, as does an export.
    let back = kafka.home.path().join("back");
    let mut command = Command::new(env!("CARGO_BIN_EXE_corelog"));
    let output =
        command.arg("export").arg("--from").arg(kafka.target()).arg("--into").arg(&back).output().expect("runs");
    assert!(output.status.success(), "{output:?}");
    // A gap in what was not compacted is damage, as ever: a batch of a lower offset behind it proves that.
    let kafka = Kafka::new();
    kafka.write_log(&[batch(5, &value()), batch(3, &value())]);
    kafka.is_refused(&[], "t-0: ");
}

/// Two records of a transaction, its end, and what the index says of it if that is an abort.
#[test]
fn the_index_of_aborted_transactions_is_made_of_the_batches_whatever_kafkas_says() {
    let in_transaction = |base: i64| {
        let builder = BatchBuilder::new(TargetCodec::None).at(Offset(base), LeaderEpoch(1)).transactional();
        builder.producer(ProducerId(77), ProducerEpoch(0), Sequence(0))
    };
    let mut data = in_transaction(3);
    for value in [b"x", b"y"] {
        data.append(Timestamp(1_700_000_000_000), Some(b"key"), Some(value), &[]);
    }
    let mut abort = in_transaction(5).control();
    abort.append(Timestamp(1_700_000_000_000), Some(&[0; 4]), Some(&[0; 6]), &[]);
    let batches = [batch(0, &vec![b"a".to_vec(); 3]), data.build().expect("a batch"), abort.build().expect("a batch")];
    let entry = [&[0, 0][..], &[77_i64, 3, 5, 6].map(i64::to_be_bytes).concat()].concat();
    let index = "t-0/00000000000000000000.txnindex";
    for theirs in [Some(entry.clone()), None, Some(vec![9; 34])] {
        let kafka = Kafka::new();
        kafka.write_log(&batches);
        if let Some(theirs) = theirs {
            fs::write(kafka.data().join(index), theirs).expect("write");
        }
        kafka.is_taken(&[]);
        assert_eq!(fs::read(kafka.target().join(index)).expect("there"), entry);
        let back = kafka.home.path().join("back");
        let mut command = Command::new(env!("CARGO_BIN_EXE_corelog"));
        command.arg("export").arg("--from").arg(kafka.target()).arg("--into").arg(&back);
        assert!(command.output().expect("runs").status.success());
        assert_eq!(fs::read(back.join(index)).expect("there"), entry);
    }
}

#[test]
fn an_export_of_the_import_has_the_same_logs_and_kafkas_small_files() {
    let kafka = Kafka::new();
    kafka.is_taken(&[]);
    let back = kafka.home.path().join("back");
    let export = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_corelog"));
        command.arg("export").arg("--from").arg(kafka.target()).arg("--into").arg(&back).output().expect("corelog runs")
    };
    let output = export();
    assert!(output.status.success(), "{output:?}");
    let read = |name: &str| fs::read(back.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let log = "t-0/00000000000000000000.log";
    assert_eq!(read(log), fs::read(kafka.data().join(log)).expect("there"));
    let owner = format!("version: 0\ntopic_id: {TOPIC_ID_SHOWN}");
    assert_eq!(read("t-1/partition.metadata"), owner.as_bytes());
    assert_eq!(read("recovery-point-offset-checkpoint"), b"0\n2\nt 0 3\nt 1 0\n");
    assert_eq!(read("log-start-offset-checkpoint"), b"0\n2\nt 0 0\nt 1 0\n");
    let bootstrap = read("bootstrap.checkpoint");
    let topic = topic_record();
    assert!(bootstrap.windows(topic.len()).any(|window| window == topic), "the topic's record");
    let again = export();
    assert_eq!(again.status.code(), Some(65), "{again:?}");
    assert!(String::from_utf8_lossy(&again.stderr).contains("is there already"), "{again:?}");
}

#[test]
fn a_check_says_what_would_be_carried_and_writes_nothing() {
    let kafka = Kafka::new();
    let output = kafka.is_taken(&["--check"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("nothing stands in the way"), "{output:?}");
    assert!(!kafka.target().exists() && !kafka.staging().exists());
}

#[test]
fn an_import_without_kafkas_properties_is_refused_as_topics_may_get_another_policy() {
    let kafka = Kafka::new();
    let output = kafka.import_only(&[]);
    assert_eq!(output.status.code(), Some(65));
    assert!(String::from_utf8_lossy(&output.stderr).contains("log.cleanup.policy"), "{output:?}");
    let properties = kafka.home.path().join("server.properties");
    fs::write(&properties, "node.id=4\nlog.cleanup.policy=compact\n").expect("write");
    let output = kafka.import_only(&["--config", &properties.to_string_lossy()]);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn what_kafka_was_stopped_in_the_middle_of_is_refused() {
    let kafka = Kafka::new();
    fs::remove_file(kafka.data().join(".kafka_cleanshutdown")).expect("remove");
    kafka.is_refused(&[], "did not stop in an orderly way");
}

#[test]
fn a_partition_whose_folder_is_elsewhere_is_refused() {
    let kafka = Kafka::new();
    fs::remove_dir_all(kafka.partition(1)).expect("remove");
    kafka.is_refused(&[], "t-1: not in the folders that were given");
}

#[test]
fn a_folder_of_a_topics_predecessor_is_refused() {
    let kafka = Kafka::new();
    let text = "version: 0\ntopic_id: CAgICAgICAgICAgICAgICA";
    fs::write(kafka.partition(1).join("partition.metadata"), text).expect("write");
    kafka.is_refused(&[], "t-1: the folder is of another topic of that name");
}

#[test]
fn replicas_on_other_brokers_are_refused_unless_they_are_ignored() {
    let two = |partition| partition_record(partition, &[4, 5]);
    let kafka = Kafka::with(vec![topic_record(), two(0), two(1)]);
    kafka.is_refused(&[], "t-0, t-1: has replicas on other brokers");
    kafka.is_taken(&["--ignore", "replicas"]);
    let elsewhere = Kafka::with(vec![topic_record(), partition_record(0, &[4]), partition_record(1, &[5])]);
    elsewhere.is_refused(&["--ignore", "replicas"], "t-1: no replica on this broker");
}

#[test]
fn access_control_lists_are_refused_unless_they_are_ignored() {
    let acl = value(18, 0, &[&[9; 16], &[2], &text("t"), &[3], &text("User:a"), &text("*"), &[3, 3, 0]]);
    let kafka = Kafka::with(vec![topic_record(), partition_record(0, &[4]), partition_record(1, &[4]), acl]);
    kafka.is_refused(&[], "1 access control lists");
    kafka.is_taken(&["--ignore", "acls"]);
}

#[test]
fn a_record_of_a_later_kafka_is_refused_whatever_is_ignored() {
    let later = value(99, 0, &[&[0]]);
    let kafka = Kafka::with(vec![topic_record(), partition_record(0, &[4]), partition_record(1, &[4]), later]);
    kafka.is_refused(&["--ignore", "configs"], "the record at offset 3: it is of type 99");
}

#[test]
fn a_property_that_is_not_known_is_refused_unless_it_is_ignored() {
    let property = config_record("no.such.property", "1");
    let kafka = Kafka::with(vec![topic_record(), partition_record(0, &[4]), partition_record(1, &[4]), property]);
    kafka.is_refused(&[], "no.such.property");
    kafka.is_taken(&["--ignore", "configs"]);
}

#[test]
fn damaged_metadata_is_refused() {
    let kafka = Kafka::new();
    let path = kafka.data().join("__cluster_metadata-0/00000000000000000000.log");
    let mut bytes = fs::read(&path).expect("read");
    *bytes.last_mut().expect("bytes") ^= 1;
    fs::write(&path, bytes).expect("write");
    kafka.is_refused(&[], "the batch's checksum is wrong");
}

#[test]
fn a_log_that_would_not_be_served_whole_is_refused_and_nothing_stays() {
    let kafka = Kafka::new();
    let mut damaged = batch(2, &[b"c".to_vec()]);
    *damaged.last_mut().expect("bytes") ^= 1;
    kafka.write_log(&[batch(0, &[b"a".to_vec(), b"b".to_vec()]), damaged]);
    kafka.is_refused(&[], "t-0: ");
}

#[test]
fn records_that_kafka_had_committed_and_the_log_lacks_are_noticed() {
    let kafka = Kafka::new();
    fs::write(kafka.data().join("replication-offset-checkpoint"), "0\n1\nt 0 9\n").expect("write");
    kafka.is_refused(&[], "Kafka had committed records up to 9");
}

#[test]
fn an_open_transaction_is_refused() {
    let kafka = Kafka::new();
    let mut open = BatchBuilder::new(TargetCodec::None).at(Offset(0), LeaderEpoch(1)).transactional();
    open = open.producer(ProducerId(3000), ProducerEpoch(0), Sequence(0));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock").as_millis();
    open.append(Timestamp(now as i64), None, Some(b"a"), &[]);
    kafka.write_log(&[open.build().expect("a batch")]);
    kafka.is_refused(&[], "a transaction of producer 3000 has been open since offset 0");
}

#[test]
fn what_an_import_that_was_killed_has_left_is_named_and_not_taken_for_a_data_folder() {
    let kafka = Kafka::new();
    fs::create_dir(kafka.staging()).expect("make");
    let output = kafka.import(&[]);
    assert_eq!(output.status.code(), Some(65));
    assert!(String::from_utf8_lossy(&output.stderr).contains("corelog.importing is what an import"), "{output:?}");
    assert!(!kafka.target().exists() && kafka.staging().exists());
}

#[test]
fn a_broker_does_not_start_on_a_kafkas_folder_and_names_the_import() {
    let kafka = Kafka::new();
    let before = files(&kafka.data());
    let mut command = Command::new(env!("CARGO_BIN_EXE_corelog"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--set", "node.id=4", "--data-dir"]).arg(kafka.data());
    let output = command.output().expect("corelog runs");
    assert_eq!(output.status.code(), Some(73));
    assert!(String::from_utf8_lossy(&output.stderr).contains("corelog import "), "{output:?}");
    assert_eq!(files(&kafka.data()), before);
}
