//! Holds: what an unmodified Kafka client (librdkafka) does first: create a topic, produce, consume, administer.
//! Never touches: crashes.

mod support;

use std::time::{Duration, Instant};

use rdkafka::admin::{AlterConfig, ResourceSpecifier};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, Headers, Message, OwnedHeaders, OwnedMessage};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{Offset, TopicPartitionList};
use support::admin::{Admin, wait_for};
use support::broker::{Broker, BrokerSetup};
use support::workload::{client_config, consumer};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(30);
const SHARDS: u16 = 4;

struct Bench {
    _data: TempDir,
    setup: BrokerSetup,
    broker: Broker,
    admin: Admin,
}

impl Bench {
    fn new() -> Bench {
        let data = tempfile::tempdir().expect("a temporary folder");
        let setup = BrokerSetup::new(data.path(), SHARDS);
        let broker = setup.start();
        let admin = Admin::new(&setup.bootstrap(), PATIENCE);
        Bench { _data: data, setup, broker, admin }
    }

    fn producer(&self, settings: &[(&str, &str)]) -> BaseProducer {
        let mut config = client_config(&self.setup.bootstrap());
        config.set("acks", "all").set("message.timeout.ms", "30000").set("linger.ms", "5");
        for (name, value) in settings {
            config.set(*name, *value);
        }
        config.create().expect("a producer")
    }

    /// All records of a topic, each partition from the beginning, until the end.
    fn read_all(&self, topic: &str, partitions: usize) -> Vec<OwnedMessage> {
        read_to_the_end(&consumer(&self.setup.bootstrap(), topic, partitions, Offset::Beginning), partitions)
    }
}

fn read_to_the_end(consumer: &BaseConsumer, partitions: usize) -> Vec<OwnedMessage> {
    let (mut messages, mut ended) = (Vec::new(), 0);
    let deadline = Instant::now() + PATIENCE;
    while ended < partitions {
        assert!(Instant::now() < deadline, "only {ended} of {partitions} partitions were read to their end");
        match consumer.poll(Duration::from_millis(100)) {
            Some(Ok(message)) => messages.push(message.detach()),
            Some(Err(KafkaError::PartitionEOF(_))) => ended += 1,
            Some(Err(error)) => panic!("the consumer met {error}"),
            None => {}
        }
    }
    messages
}

/// What a record carries.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Carried {
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(String, Option<Vec<u8>>)>,
    timestamp: i64,
}

impl Carried {
    fn of(message: &OwnedMessage) -> Carried {
        let header = |header: Header<'_, &[u8]>| (header.key.to_owned(), header.value.map(<[u8]>::to_vec));
        Carried {
            key: message.key().map(<[u8]>::to_vec),
            value: message.payload().map(<[u8]>::to_vec),
            headers: message.headers().map(|headers| headers.iter().map(header).collect()).unwrap_or_default(),
            timestamp: message.timestamp().to_millis().expect("a timestamp"),
        }
    }

    fn send(&self, producer: &BaseProducer, topic: &str, partition: i32) {
        let mut headers = OwnedHeaders::new();
        for (key, value) in &self.headers {
            headers = headers.insert(Header { key, value: value.as_ref() });
        }
        let mut record: BaseRecord<'_, [u8], [u8]> =
            BaseRecord::to(topic).partition(partition).timestamp(self.timestamp);
        record.key = self.key.as_deref();
        record.payload = self.value.as_deref();
        if !self.headers.is_empty() {
            record = record.headers(headers);
        }
        producer.send(record).map_err(|(error, _)| error).expect("room in the producer's queue");
    }
}

/// Records of all shapes: with and without key, value and headers, empty ones, large ones.
fn all_shapes() -> Vec<Carried> {
    let bytes = |text: &str| Some(text.as_bytes().to_vec());
    let base = 1_700_000_000_000;
    let mut records = vec![
        Carried { key: bytes("key"), value: bytes("value"), headers: vec![], timestamp: base },
        Carried { key: None, value: bytes("no key"), headers: vec![], timestamp: base + 1 },
        Carried { key: bytes("no value"), value: None, headers: vec![], timestamp: base + 2 },
        Carried { key: None, value: None, headers: vec![], timestamp: base + 3 },
        Carried { key: bytes(""), value: bytes(""), headers: vec![], timestamp: base + 4 },
        Carried {
            key: bytes("headers"),
            value: bytes("x"),
            headers: vec![
                ("a".to_owned(), bytes("1")),
                ("a".to_owned(), bytes("twice")),
                ("null".to_owned(), None),
                ("empty".to_owned(), bytes("")),
                ("ünïcode".to_owned(), Some(vec![0, 255, 128])),
            ],
            timestamp: base + 5,
        },
        Carried { key: None, value: Some(vec![b'z'; 500_000]), headers: vec![], timestamp: base + 6 },
    ];
    for index in 0..500 {
        let text = format!("record {index} that resembles its neighbours");
        records.push(Carried {
            key: bytes(&index.to_string()),
            value: bytes(&text),
            headers: vec![],
            timestamp: base + 7 + index,
        });
    }
    records
}

#[test]
fn records_of_all_shapes_come_back_identical_with_each_compression() {
    let bench = Bench::new();
    let sent = all_shapes();
    for compression in ["none", "gzip", "snappy", "lz4", "zstd"] {
        for idempotent in ["false", "true"] {
            let topic = format!("shapes-{compression}-{idempotent}");
            bench.admin.create_topic(&topic, 1, &[]).expect("a topic");
            let producer = bench.producer(&[("compression.type", compression), ("enable.idempotence", idempotent)]);
            sent.iter().for_each(|record| record.send(&producer, &topic, 0));
            producer.flush(PATIENCE).expect("all acknowledged");
            let received: Vec<Carried> = bench.read_all(&topic, 1).iter().map(Carried::of).collect();
            assert_eq!(received.len(), sent.len(), "{topic}");
            for (index, (received, sent)) in received.iter().zip(&sent).enumerate() {
                assert_eq!(received, sent, "{topic}, record {index}");
            }
        }
    }
}

#[test]
fn each_level_of_acks_delivers() {
    let bench = Bench::new();
    for acks in ["0", "1", "all"] {
        let topic = format!("acks-{acks}");
        bench.admin.create_topic(&topic, 3, &[]).expect("a topic");
        let producer = bench.producer(&[("acks", acks)]);
        for partition in 0..3 {
            for index in 0..100 {
                let value = Some(format!("{partition}/{index}").into_bytes());
                Carried { key: None, value, headers: vec![], timestamp: 1 }.send(&producer, &topic, partition);
            }
        }
        producer.flush(PATIENCE).expect("all sent");
        let deadline = Instant::now() + PATIENCE;
        // Without acknowledgements the records may still be on their way.
        while (0..3).map(|partition| bench.admin.watermarks(&topic, partition).1).sum::<i64>() < 300 {
            assert!(Instant::now() < deadline, "acks={acks}: records are missing");
            std::thread::sleep(Duration::from_millis(10));
        }
        let messages = bench.read_all(&topic, 3);
        for partition in 0..3 {
            let in_partition: Vec<String> = messages
                .iter()
                .filter(|message| message.partition() == partition)
                .map(|message| String::from_utf8_lossy(message.payload().unwrap_or_default()).into_owned())
                .collect();
            let expected: Vec<String> = (0..100).map(|index| format!("{partition}/{index}")).collect();
            assert_eq!(in_partition, expected, "acks={acks}, partition {partition}");
        }
    }
}

#[test]
fn keyed_records_stay_together_and_in_order() {
    let bench = Bench::new();
    bench.admin.create_topic("keyed", 8, &[]).expect("a topic");
    let producer = bench.producer(&[]);
    for round in 0..20 {
        for key in 0..50 {
            let (key, value) = (Some(format!("k{key}").into_bytes()), Some(round.to_string().into_bytes()));
            let record = Carried { key, value, headers: vec![], timestamp: 1 };
            let plain: BaseRecord<'_, [u8], [u8]> = BaseRecord::to("keyed")
                .key(record.key.as_deref().unwrap_or_default())
                .payload(record.value.as_deref().unwrap_or_default());
            producer.send(plain).map_err(|(error, _)| error).expect("room in the producer's queue");
        }
    }
    producer.flush(PATIENCE).expect("all acknowledged");
    let messages = bench.read_all("keyed", 8);
    assert_eq!(messages.len(), 1_000);
    for key in 0..50 {
        let key = format!("k{key}").into_bytes();
        let of_key: Vec<&OwnedMessage> = messages.iter().filter(|message| message.key() == Some(&key[..])).collect();
        assert!(of_key.iter().all(|message| message.partition() == of_key[0].partition()), "a key has one partition");
        let rounds: Vec<String> = of_key
            .iter()
            .map(|message| String::from_utf8_lossy(message.payload().unwrap_or_default()).into_owned())
            .collect();
        assert_eq!(rounds, (0..20).map(|round| round.to_string()).collect::<Vec<_>>());
    }
}

#[test]
fn consuming_starts_at_a_timestamp() {
    let bench = Bench::new();
    bench.admin.create_topic("timed", 1, &[]).expect("a topic");
    // Several batches, timestamps 1000, 1010, 1020, ...
    for batch in 0..10 {
        let producer = bench.producer(&[]);
        for index in 0..10 {
            let timestamp = 1_000 + (batch * 10 + index) * 10;
            let value = Some(timestamp.to_string().into_bytes());
            Carried { key: None, value, headers: vec![], timestamp }.send(&producer, "timed", 0);
        }
        producer.flush(PATIENCE).expect("all acknowledged");
    }
    let reader = consumer(&bench.setup.bootstrap(), "timed", 1, Offset::Beginning);
    for (asked, expected) in
        [(0, Some(0)), (1_000, Some(0)), (1_001, Some(1)), (1_555, Some(56)), (1_990, Some(99)), (1_991, None)]
    {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset("timed", 0, Offset::Offset(asked)).expect("an offset");
        let found = reader.offsets_for_times(list, PATIENCE).expect("an answer");
        let offset = found.elements().first().expect("the partition").offset();
        let expected = expected.map_or(Offset::End, Offset::Offset);
        assert_eq!(offset, expected, "the first record at or after {asked}");
    }
    let mut list = TopicPartitionList::new();
    list.add_partition_offset("timed", 0, Offset::Offset(56)).expect("an offset");
    reader.assign(&list).expect("an assignment");
    let values: Vec<i64> = read_to_the_end(&reader, 1).iter().map(|message| Carried::of(message).timestamp).collect();
    assert_eq!(values, (56..100).map(|index| 1_000 + index * 10).collect::<Vec<_>>());
}

#[test]
fn a_topic_is_created_by_producing_to_it() {
    let bench = Bench::new();
    let producer = bench.producer(&[]);
    let record: BaseRecord<'_, [u8], [u8]> = BaseRecord::to("made-by-use").payload(b"first");
    producer.send(record).map_err(|(error, _)| error).expect("room in the producer's queue");
    producer.flush(PATIENCE).expect("acknowledged");
    assert!(bench.admin.topics().contains(&"made-by-use".to_owned()));
    let partitions = bench.admin.partitions("made-by-use");
    assert_eq!(bench.read_all("made-by-use", partitions).len(), 1);
}

#[test]
fn topics_are_administered() {
    let mut bench = Bench::new();
    let admin = &bench.admin;
    admin.create_topic("t", 2, &[("retention.ms", "12345")]).expect("a topic");
    assert_eq!(admin.create_topic("t", 2, &[]), Err(RDKafkaErrorCode::TopicAlreadyExists));
    assert_eq!(admin.create_topic("bad/name", 1, &[]), Err(RDKafkaErrorCode::InvalidTopic));
    assert_eq!(admin.create_topic("u", 1, &[("no.such.config", "1")]), Err(RDKafkaErrorCode::InvalidConfig));
    assert_eq!(admin.partitions("t"), 2);
    admin.create_partitions("t", 5).expect("more partitions");
    assert_eq!(admin.partitions("t"), 5);
    assert_eq!(admin.create_partitions("t", 3), Err(RDKafkaErrorCode::InvalidPartitions));

    let describe = || {
        let described = wait_for(admin.client().describe_configs([&ResourceSpecifier::Topic("t")], admin.options()));
        let described = described.expect("an answer").remove(0).expect("the topic's configs");
        described.get("retention.ms").and_then(|entry| entry.value.clone())
    };
    assert_eq!(describe().as_deref(), Some("12345"));
    let change = AlterConfig::new(ResourceSpecifier::Topic("t")).set("retention.ms", "54321");
    wait_for(admin.client().alter_configs([&change], admin.options())).expect("an answer").remove(0).expect("altered");
    assert_eq!(describe().as_deref(), Some("54321"));

    let producer = bench.producer(&[]);
    for index in 0..10 {
        let value = Some(vec![index]);
        Carried { key: None, value, headers: vec![], timestamp: 1 }.send(&producer, "t", 0);
        producer.flush(PATIENCE).expect("acknowledged");
    }
    admin.delete_records("t", 0, 4).expect("records deleted");
    assert_eq!(admin.watermarks("t", 0), (4, 10));
    let left: Vec<i64> = bench.read_all("t", 5).iter().map(Message::offset).collect();
    assert_eq!(left, [4, 5, 6, 7, 8, 9]);

    admin.delete_topic("t").expect("deleted");
    assert!(!admin.topics().contains(&"t".to_owned()));
    assert_eq!(admin.delete_topic("t"), Err(RDKafkaErrorCode::UnknownTopicOrPartition));
    let exit = bench.broker.terminate(PATIENCE);
    assert_eq!(exit.code(), Some(0), "SIGTERM ends the broker with 0");
}
