//! Holds: bytes that no client would send: the connection closes, the broker stays, its memory doesn't move, others are not held up.
//! Never touches: clients.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use support::admin::Admin;
use support::bomb::gzip_bomb_batch;
use support::broker::{Broker, BrokerSetup};
use support::random::{Random, test_seed};
use support::raw::{Encoder, RawConnection, frame, request};
use support::requests::{FETCH, PRODUCE, batch, produce, produce_answer};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(20);
/// What resident memory may grow by; buffers that are kept for reuse, and the measure's own noise.
const GROWTH_BYTES_MAX: u64 = 24 << 20;

struct Target {
    _data: TempDir,
    setup: BrokerSetup,
    broker: Broker,
}

impl Target {
    fn new() -> Target {
        let data = tempfile::tempdir().expect("a temporary folder");
        let setup = BrokerSetup::new(data.path(), 2);
        let broker = setup.start();
        Admin::new(&setup.bootstrap(), PATIENCE).create_topic("t", 1, &[]).expect("a topic");
        let target = Target { _data: data, setup, broker };
        // The first connections and records take up memory that stays in use.
        for _ in 0..50 {
            target.assert_serves();
        }
        target
    }

    fn connect(&self) -> RawConnection {
        RawConnection::connect(self.setup.address()).expect("a connection")
    }

    /// An honest client is served: it asks for the versions and produces a record.
    fn assert_serves(&self) {
        let mut connection = self.connect();
        connection.api_versions().expect("an honest request is answered");
        let body = produce("t", 0, -1, &batch(&[b"honest"], 1));
        assert_eq!(produce_answer(&connection.call(PRODUCE, 3, body).expect("an answer")).0, 0);
    }

    /// Sends `bytes` on a connection of its own, which must be closed for it.
    fn assert_closes(&self, what: &str, bytes: &[u8]) {
        let mut connection = self.connect();
        // The broker may close before all is sent.
        let _ = connection.send(bytes);
        assert!(connection.is_closed_within(PATIENCE), "{what}: the connection was not closed");
    }

    /// Runs `attack` and checks that the broker is as well and as small afterwards as before.
    fn survives(&mut self, attack: impl FnOnce(&Target)) {
        let before = self.broker.resident_bytes();
        let (bystander, latencies) = bystander(self.setup.address());
        attack(self);
        drop(bystander);
        let mut latencies = latencies.lock().expect("the bystander's notes").clone();
        latencies.sort_unstable();
        let p99 = latencies.get(latencies.len() * 99 / 100).copied().unwrap_or_default();
        if let Some(exit) = self.broker.exited() {
            panic!("the broker ended ({exit}); its log:\n{}", self.broker.log());
        }
        self.assert_serves();
        let grown = self.broker.resident_bytes().saturating_sub(before);
        println!("memory grew by {} KiB; a bystander's p99 was {p99:?} over {} requests", grown >> 10, latencies.len());
        assert!(grown < GROWTH_BYTES_MAX, "resident memory grew by {} MiB", grown >> 20);
    }
}

/// Asks for the versions every 2 ms on a connection of its own, and notes how long each answer took; ends when dropped.
struct Bystander {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

fn bystander(address: std::net::SocketAddr) -> (Bystander, Arc<Mutex<Vec<Duration>>>) {
    let (stop, notes) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
    let (stopped, shared) = (Arc::clone(&stop), Arc::clone(&notes));
    let thread = std::thread::spawn(move || {
        let mut connection = RawConnection::connect(address).expect("a connection");
        while !stopped.load(Ordering::Relaxed) {
            let began = Instant::now();
            connection.api_versions().expect("a bystander is answered while others misbehave");
            shared.lock().expect("the bystander's notes").push(began.elapsed());
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    (Bystander { stop, thread: Some(thread) }, notes)
}

impl Drop for Bystander {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("the bystander was not served");
        }
    }
}

#[test]
fn garbage_impossible_lengths_and_foreign_protocols_close_the_connection() {
    let mut target = Target::new();
    let mut random = Random::new(test_seed("hostile garbage"));
    target.survives(|target| {
        let tls_hello = [&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], &[7; 500]].concat();
        target.assert_closes("a TLS hello", &tls_hello);
        target.assert_closes("an HTTP request", b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n");
        target.assert_closes("an SSH greeting", b"SSH-2.0-OpenSSH_9.0\r\n");
        for length in [-1, i32::MIN, i32::MAX, 1 << 30, 200 << 20] {
            target.assert_closes(
                &format!("a frame of {length} bytes"),
                &Encoder::default().i32(length).raw(&[0; 64]).bytes,
            );
        }
        for length in [0, 1, 7] {
            target.assert_closes(&format!("a frame of {length} bytes"), &frame(&vec![0; length]));
        }
        for (key, version) in [(-1, 0), (999, 0), (i16::MAX, 0), (PRODUCE, -1), (PRODUCE, 999), (3, 99), (36, 0)] {
            let bytes = frame(&request(key, version, 1, Encoder::default()));
            target.assert_closes(&format!("API {key} version {version}"), &bytes);
        }
        for _ in 0..200 {
            let len = 12 + random.below(300) as usize;
            // A length that fits, an API key that exists, and garbage after it.
            let mut bytes = random.bytes(len);
            bytes[..2].copy_from_slice(&(random.below(4) as i16).to_be_bytes());
            bytes[2..4].copy_from_slice(&9i16.to_be_bytes());
            let mut connection = target.connect();
            let _ = connection.send(&frame(&bytes));
            let _ = connection.stream().shutdown(Shutdown::Write);
            assert!(connection.is_closed_within(PATIENCE), "garbage {bytes:?}: the connection was not closed");
        }
    });
}

#[test]
fn a_frame_that_ends_early_is_forgotten_with_its_connection() {
    let mut target = Target::new();
    let whole = frame(&request(PRODUCE, 3, 1, produce("t", 0, -1, &batch(&[&[b'x'; 5_000]], 1))));
    target.survives(|target| {
        for cut in (0..whole.len()).step_by(whole.len() / 97) {
            let mut connection = target.connect();
            connection.send(&whole[..cut]).expect("sent");
            connection.stream().shutdown(Shutdown::Write).expect("half closed");
            assert!(connection.is_closed_within(PATIENCE), "cut at {cut}: the connection was not closed");
        }
    });
    // Nothing of them was appended: only the honest records are there.
    let end = Admin::new(&target.setup.bootstrap(), PATIENCE).watermarks("t", 0).1;
    assert_eq!(end, 51, "50 honest records at first, one after the attack");
}

#[test]
fn many_connections_that_promise_large_frames_take_up_no_memory() {
    let mut target = Target::new();
    target.survives(|target| {
        // Each promises 90 MB, within the default limit, and sends 100 bytes of them.
        let begun = Encoder::default().i32(90 << 20).i16(PRODUCE).i16(3).i32(1).raw(&[0; 92]).bytes;
        let connections: Vec<RawConnection> = (0..200)
            .map(|_| {
                let mut connection = target.connect();
                connection.send(&begun).expect("sent");
                connection
            })
            .collect();
        std::thread::sleep(Duration::from_millis(300));
        target.assert_serves();
        let held = target.broker.resident_bytes();
        assert!(held < 300 << 20, "{} promises of 90 MB hold {} MiB", connections.len(), held >> 20);
    });
}

/// Valid small requests, one for each API and version that we decode, as the fuzzers start from.
fn seeds() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../net/fuzz/corpus/request");
    let mut seeds: Vec<(String, Vec<u8>)> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .flatten()
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path()).expect("a seed")))
        // Others are inputs that a fuzzer found; these are named after an API and a version.
        .filter(|(name, bytes)| {
            bytes.len() >= 8 && name.rsplit_once("-v").is_some_and(|(_, v)| v.parse::<i16>().is_ok())
        })
        .collect();
    seeds.sort();
    seeds
}

#[test]
fn array_lengths_near_two_to_the_31_in_every_api_and_version_take_up_no_memory() {
    let mut target = Target::new();
    let advertised: BTreeSet<(i16, i16)> = target
        .connect()
        .api_versions()
        .expect("versions")
        .into_iter()
        .flat_map(|(key, lowest, highest)| (lowest..=highest).map(move |version| (key, version)))
        .collect();
    let seeds = seeds();
    let id = |bytes: &[u8]| (i16::from_be_bytes([bytes[0], bytes[1]]), i16::from_be_bytes([bytes[2], bytes[3]]));
    let tried: BTreeSet<(i16, i16)> = seeds.iter().map(|(_, bytes)| id(bytes)).collect();
    // Produce 0-2 are advertised for librdkafka's sake and refused when used.
    let missing: Vec<_> =
        advertised.difference(&tried).filter(|(key, version)| *key != PRODUCE || *version > 2).collect();
    assert!(missing.is_empty(), "no seed for (API, version) {missing:?}");

    let mut requests = 0;
    target.survives(|target| {
        for (name, seed) in &seeds {
            // Every place that could hold a length, in both encodings of one.
            for place in 8..seed.len() {
                for huge in [&[0x7f, 0xff, 0xff, 0xff][..], &[0xff, 0xff, 0xff, 0xff, 0x07][..], &[0x7f, 0xff][..]] {
                    let mut bytes = seed.clone();
                    let end = (place + huge.len()).min(bytes.len());
                    if huge.len() == 5 {
                        // A varint is as long as its number: what followed the old one-byte length follows the new one.
                        bytes.splice(place..place + 1, huge.iter().copied());
                    } else {
                        bytes[place..end].copy_from_slice(&huge[..end - place]);
                    }
                    requests += 1;
                    send_and_hang_up(target, &bytes).unwrap_or_else(|error| panic!("{name}, place {place}: {error}"));
                }
            }
        }
    });
    println!("{requests} requests from {} seeds", seeds.len());

    // The seeds themselves are well-formed, or the attack would have tried nothing but the header.
    let refused: Vec<&str> = seeds
        .iter()
        .filter(|(_, seed)| advertised.contains(&id(seed)))
        .filter(|(_, seed)| {
            let mut connection = target.connect();
            let answered = connection.send(&frame(seed)).and_then(|()| connection.receive());
            !answered.is_ok_and(|answer| answer.starts_with(&seed[4..8]))
        })
        .map(|(name, _)| name.as_str())
        .collect();
    assert!(refused.is_empty(), "requests that are not hostile were not answered: {refused:?}");
}

#[test]
fn a_large_well_formed_request_that_names_everything_twice_does_not_hold_up_others() {
    const NAMED: usize = 40_000;
    let data = tempfile::tempdir().expect("a temporary folder");
    // One shard, so that the bystander is on the same one.
    let setup = BrokerSetup::new(data.path(), 1);
    let mut broker = setup.start();
    Admin::new(&setup.bootstrap(), PATIENCE).create_topic("t", 1, &[]).expect("a topic");
    let name = |index: usize| format!("topic-with-a-long-common-beginning-{}", index % (NAMED / 2));
    let array = |count: usize, each: &dyn Fn(Encoder, usize) -> Encoder| {
        (0..count).fold(Encoder::default().i32(count as i32), each)
    };
    let resource = |out: Encoder, kind: i8, name: &str| out.i8(kind).string(name);
    let requests: Vec<(&str, i16, i16, Encoder)> = vec![
        // No partitions: so that their sum is no reason to refuse the whole.
        (
            "CreateTopics",
            19,
            2,
            array(NAMED, &|out, i| out.string(&name(i)).i32(0).i16(1).i32(0).i32(0)).i32(1000).i8(0),
        ),
        ("CreatePartitions", 37, 1, array(NAMED, &|out, i| out.string(&name(i)).i32(9).i32(-1)).i32(1000).i8(0)),
        ("DeleteTopics", 20, 3, array(NAMED, &|out, i| out.string(&name(i))).i32(1000)),
        ("Metadata", 3, 4, array(NAMED, &|out, i| out.string(&name(i))).i8(0)),
        ("AlterConfigs", 33, 1, array(NAMED, &|out, i| resource(out, 2, &name(i)).i32(0)).i8(0)),
        ("IncrementalAlterConfigs", 44, 0, array(NAMED, &|out, i| resource(out, 2, &name(i)).i32(0)).i8(0)),
        // The broker's own properties, again and again; then a topic's.
        ("DescribeConfigs of a broker", 32, 1, array(400, &|out, _| resource(out, 4, "1").i32(-1)).i8(1)),
        ("DescribeConfigs of a topic", 32, 1, array(2000, &|out, _| resource(out, 2, "t").i32(-1)).i8(1)),
        ("ListOffsets", 2, 1, array(NAMED, &|out, i| out.string("t").i32(1).i32((i % (NAMED / 2)) as i32).i64(-1))),
    ];
    let (bystander, latencies) = bystander(setup.address());
    for (what, key, version, body) in requests {
        let body = if key == 2 { Encoder::default().i32(-1).raw(&body.bytes) } else { body };
        let before = latencies.lock().expect("the bystander's notes").len();
        let began = Instant::now();
        let mut connection = RawConnection::connect(setup.address()).expect("a connection");
        let answer = connection.call(key, version, body).unwrap_or_else(|error| panic!("{what}: {error}"));
        let took = began.elapsed();
        let worst =
            latencies.lock().expect("the bystander's notes")[before..].iter().max().copied().unwrap_or_default();
        println!("{what}: {} bytes of answer in {took:?}; the bystander's longest wait was {worst:?}", answer.len());
        // Work that grows with the square of the names takes minutes, all of them in one turn.
        assert!(took < PATIENCE && worst < Duration::from_secs(3), "{what}: {took:?}, the bystander waited {worst:?}");
    }
    // More than an answer may carry: refused before it has taken up that much memory.
    let request = array(100_000, &|out, _| resource(out, 4, "1").i32(-1)).i8(1);
    let mut connection = RawConnection::connect(setup.address()).expect("a connection");
    let frame = frame(&support::raw::request(32, 1, 1, request));
    let _ = connection.send(&frame);
    assert!(connection.is_closed_within(Duration::from_secs(120)), "an answer of a gigabyte");
    assert!(broker.resident_bytes() < 600 << 20, "{} MiB", broker.resident_bytes() >> 20);
    drop(bystander);
    let worst = latencies.lock().expect("the bystander's notes").iter().max().copied();
    assert!(worst < Some(Duration::from_secs(3)), "the bystander waited {worst:?}");
    assert!(broker.exited().is_none(), "the broker goes on");
}

/// Fetch 4 of partitions `0..count` of a topic.
fn fetch_of(topic: &str, count: i32) -> Encoder {
    let head = Encoder::default().i32(-1).i32(0).i32(0).i32(1 << 20).i8(0).i32(1).string(topic).i32(count);
    (0..count).fold(head, |out, partition| out.i32(partition).i64(0).i32(1 << 20))
}

#[test]
fn a_fetch_names_tens_of_thousands_of_partitions_without_holding_up_others_and_never_millions() {
    const NAMED: i32 = 32_000;
    let data = tempfile::tempdir().expect("a temporary folder");
    let setup = BrokerSetup::new(data.path(), 1);
    let mut broker = setup.start();
    Admin::new(&setup.bootstrap(), PATIENCE).create_topic("t", 1, &[]).expect("a topic");
    let before = broker.resident_bytes();
    for topic in ["t", "unknown"] {
        let mut connection = RawConnection::connect(setup.address()).expect("a connection");
        let answer = connection.call(FETCH, 4, fetch_of(topic, NAMED)).expect("an answer");
        assert!(answer.len() > NAMED as usize * 30, "{} bytes", answer.len());
    }
    let longest = broker.status("turn_max_us", 1);
    println!("the longest turn took {longest} µs");

    // The largest request that there may be: six million partitions.
    let frame = frame(&request(FETCH, 4, 1, fetch_of("t", 6_000_000)));
    assert!(frame.len() > 90 << 20);
    let began = Instant::now();
    let mut connection = RawConnection::connect(setup.address()).expect("a connection");
    let _ = connection.send(&frame);
    assert!(connection.is_closed_within(PATIENCE), "it was answered");
    let grown = broker.resident_bytes().saturating_sub(before);
    println!(
        "{:?}, {} MiB, the longest turn took {} µs",
        began.elapsed(),
        grown >> 20,
        broker.status("turn_max_us", 1)
    );
    assert!(grown < 400 << 20, "{} MiB for a request of 100", grown >> 20);
    assert!(broker.exited().is_none(), "the broker goes on");
}

/// A request may be answered (a number is not always a length) or not; the client does not wait for it, and hangs up.
fn send_and_hang_up(target: &Target, bytes: &[u8]) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(target.setup.address())?;
    stream.set_read_timeout(Some(Duration::from_millis(5)))?;
    let _ = stream.write_all(&frame(bytes));
    let _ = stream.read(&mut [0; 64]);
    Ok(())
}

#[test]
fn a_decompression_bomb_is_refused_and_takes_up_no_memory() {
    let mut target = Target::new();
    Admin::new(&target.setup.bootstrap(), PATIENCE)
        // Only a broker that recompresses, or checks the records, opens the batch at all.
        .create_topic("recompressed", 1, &[("compression.type", "lz4")])
        .expect("a topic");
    target.survives(|target| {
        let bomb = gzip_bomb_batch(900 << 20);
        for topic in ["t", "recompressed"] {
            let mut connection = target.connect();
            let answer = connection.call(PRODUCE, 3, produce(topic, 0, -1, &bomb));
            match answer {
                Ok(answer) => assert_ne!(produce_answer(&answer).0, 0, "a bomb is not a valid batch"),
                Err(error) => println!("{topic}: the connection was closed: {error}"),
            }
        }
    });
}
