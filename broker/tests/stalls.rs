//! Holds: clients that begin something and don't go on: their connections are closed in bounded time, and what they hold meanwhile
//! is bounded, so that others are served. Also how many connections one address gets.
//! Never touches: clients; a bare socket stands still where it likes.

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use support::admin::Admin;
use support::broker::{Broker, BrokerSetup};
use support::raw::{Encoder, RawConnection, frame, request};
use support::requests::{FETCH, PRODUCE, Session, batch, fetch, produce, produce_answer};
use support::sockets::connect_from;
use support::status::{await_status, status};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(30);
/// `corelog.connection.progress.timeout.ms` here.
const STALL_MS: u64 = 1_000;
/// It is looked at four times in that time; and the machine may be busy.
const CLOSED_WITHIN: Duration = Duration::from_millis(STALL_MS * 5 / 4 + 1_000);
const NO_SESSION: Session = Session { id: 0, epoch: -1 };

struct Target {
    _data: TempDir,
    setup: BrokerSetup,
    broker: Broker,
}

fn target(settings: &[(&str, &str)]) -> Target {
    let data = tempfile::tempdir().expect("a temporary folder");
    let mut setup = BrokerSetup::new(data.path(), 1);
    for (name, value) in settings {
        setup = setup.set(name, value);
    }
    let broker = setup.start();
    Target { _data: data, setup, broker }
}

fn impatient() -> Target {
    target(&[("corelog.connection.progress.timeout.ms", &STALL_MS.to_string())])
}

impl Target {
    fn connect(&self) -> RawConnection {
        RawConnection::connect(self.setup.address()).expect("a connection")
    }

    /// A connection that has asked for all there is, and has room for little of it.
    fn fetch_into_little_room(&self) -> TcpStream {
        let mut stream = connect_from(1, Some(32 << 10), self.setup.address()).expect("a connection");
        stream.write_all(&fetch_all(20 << 20)).expect("sent");
        stream
    }

    fn create_topic(&self, name: &str) {
        Admin::new(&self.setup.bootstrap(), PATIENCE).create_topic(name, 1, &[]).expect("a topic");
    }

    /// Fills `t` with `count` batches of nearly a MiB.
    fn fill(&self, count: usize) {
        let mut connection = self.connect();
        let value = vec![b'x'; 1_000_000];
        for _ in 0..count {
            self.assert_produces(&mut connection, &value);
        }
    }

    fn assert_produces(&self, connection: &mut RawConnection, value: &[u8]) {
        let answer = connection.call(PRODUCE, 3, produce("t", 0, -1, &batch(&[value], 1))).expect("an answer");
        assert_eq!(produce_answer(&answer).0, 0, "produced");
    }
}

/// A fetch of all there is, up to 50 MiB.
fn fetch_all(partition_bytes_max: i32) -> Vec<u8> {
    let head = Encoder::default().i32(-1).i32(0).i32(1).i32(50 << 20).i8(0).i32(NO_SESSION.id).i32(NO_SESSION.epoch);
    let body = head.i32(1).string("t").i32(1).i32(0).i64(0).i64(-1).i32(partition_bytes_max).i32(0);
    frame(&request(FETCH, 7, 1, body))
}

#[test]
fn a_client_that_stops_inside_a_frame_is_closed_and_one_that_goes_on_slowly_is_not() {
    let target = impatient();
    let whole = frame(&request(18, 0, 7, Encoder::default()));
    // Inside the length, inside the frame.
    let mut stopped: Vec<RawConnection> = [2, whole.len() - 1]
        .into_iter()
        .map(|bytes| {
            let mut connection = target.connect();
            connection.send(&whole[..bytes]).expect("sent");
            connection
        })
        .collect();
    // Between frames nothing is owed.
    let mut idle = target.connect();
    idle.api_versions().expect("an answer");
    let began = Instant::now();
    let mut slow = target.connect();
    for byte in &whole {
        slow.send(&[*byte]).expect("a connection that goes on is not closed");
        std::thread::sleep(Duration::from_millis(STALL_MS / 5));
    }
    assert!(began.elapsed() > 3 * Duration::from_millis(STALL_MS), "the slow frame took {:?}", began.elapsed());
    assert_eq!(slow.receive().expect("an answer")[..4], 7i32.to_be_bytes());
    for connection in &mut stopped {
        assert!(connection.is_closed_within(Duration::from_millis(1)), "closed long ago");
    }
    idle.api_versions().expect("an idle connection is not stalled");
    assert_eq!(status(&target.broker, 1).get("connections_stalled"), 2);
    assert_eq!(target.broker.lines_with("a begun request stood still", 2).len(), 2, "one line a connection");
}

#[test]
fn a_client_that_stops_is_closed_about_when_its_time_is_up() {
    let target = impatient();
    let mut connection = target.connect();
    connection.send(&[0, 0, 1]).expect("sent");
    let began = Instant::now();
    assert!(connection.is_closed_within(CLOSED_WITHIN), "not closed within {CLOSED_WITHIN:?}");
    assert!(began.elapsed() >= Duration::from_millis(STALL_MS), "closed after {:?}", began.elapsed());
}

#[test]
fn a_client_that_never_reads_its_answer_is_closed_and_one_that_reads_slowly_is_not() {
    // Small buffers at both ends: an answer of a MB does not fit into them.
    let stall_ms = STALL_MS.to_string();
    let target =
        target(&[("corelog.connection.progress.timeout.ms", &stall_ms), ("socket.send.buffer.bytes", "32768")]);
    target.create_topic("t");
    target.fill(2);
    let [_never, mut slowly] = [(); 2].map(|()| target.fetch_into_little_room());
    let mut len = [0; 4];
    slowly.read_exact(&mut len).expect("an answer begins");
    let len = u32::from_be_bytes(len) as usize;
    assert!(len > 900_000, "an answer of {len} bytes");
    let began = Instant::now();
    let mut read = 0;
    while began.elapsed() < 3 * Duration::from_millis(STALL_MS) {
        // Enough to open the window again each time, and much less than there is.
        let mut piece = vec![0; 32 << 10];
        slowly.read_exact(&mut piece).expect("a connection that goes on is not closed");
        read += piece.len();
        std::thread::sleep(Duration::from_millis(STALL_MS / 5));
    }
    println!("{} KiB read in {:?}", read >> 10, began.elapsed());
    await_status(&target.broker, 1, PATIENCE, |status| status.get("connections_stalled") == 1);
    assert_eq!(target.broker.lines_with("an answer stood still", 1).len(), 1);
    let mut rest = vec![0; len - read];
    slowly.read_exact(&mut rest).expect("the slow client gets all of it");
}

#[test]
fn appends_go_on_while_slow_readers_and_unfinished_requests_hold_all_they_can() {
    // The least memory there may be: 16 MiB, of which 8 are tail cache, 4 may be frames.
    let target =
        target(&[("corelog.memory.bytes.per.core", "16777216"), ("corelog.tail.cache.bytes.per.core", "8388608")]);
    target.create_topic("t");
    target.fill(20);
    // Each asks for all of it and reads nothing: slices of the tail, and cold reads.
    let readers: Vec<TcpStream> = (0..60).map(|_| target.fetch_into_little_room()).collect();
    // Each sends the larger part of a large request.
    let part = [&Encoder::default().i32(1 << 20).i16(PRODUCE).i16(3).bytes[..], &vec![0; 700_000]].concat();
    let writers: Vec<TcpStream> = (0..10)
        .map(|_| {
            let mut stream = TcpStream::connect(target.setup.address()).expect("a connection");
            stream.set_nonblocking(true).expect("non-blocking");
            // The broker stops reading when there is no room: then not all of it leaves here.
            let _ = stream.write(&part);
            stream
        })
        .collect();
    std::thread::sleep(Duration::from_millis(300));
    let held = status(&target.broker, 1);
    println!(
        "held by frames: {} KiB; of the pool: {} KiB",
        held.get("frame_bytes") >> 10,
        held.get("pool_bytes") >> 10
    );
    assert!(held.get("frame_bytes") <= 4 << 20, "frames hold {} bytes", held.get("frame_bytes"));

    // Small requests and appends of their size go on, many times the reserve altogether.
    let mut honest = target.connect();
    let began = Instant::now();
    for _ in 0..500 {
        target.assert_produces(&mut honest, &[b'y'; 10_000]);
    }
    println!("500 appends of 10 KB in {:?}", began.elapsed());
    // So do large ones: requests that have begun and don't get on are closed sooner when others need what they hold.
    let began = Instant::now();
    target.fill(3);
    println!("3 appends of a MB in {:?}", began.elapsed());
    drop((readers, writers));
    await_status(&target.broker, 1, PATIENCE, |status| status.get("connections") == 1);
}

#[test]
fn an_address_gets_its_number_of_connections_and_no_more() {
    let target = target(&[("max.connections.per.ip", "3"), ("max.connections.per.ip.overrides", "127.0.0.9:1")]);
    await_status(&target.broker, 1, PATIENCE, |status| status.get("connections") == 0);
    let mut held: Vec<RawConnection> = (0..3).map(|_| target.connect()).collect();
    for connection in &mut held {
        connection.api_versions().expect("an answer");
    }
    let mut refused = target.connect();
    assert!(refused.is_closed_within(PATIENCE), "the fourth connection is closed");
    await_status(&target.broker, 1, PATIENCE, |_| target.broker.log().contains("max.connections.per.ip"));
    held.pop();
    await_status(&target.broker, 1, PATIENCE, |status| status.get("connections") == 2);
    target.connect().api_versions().expect("there is room again");
}

#[test]
fn silent_connections_are_closed_after_connections_max_idle_ms_and_busy_ones_are_not() {
    let target = target(&[("connections.max.idle.ms", "1500")]);
    let (mut silent, mut busy, mut trickling) = (target.connect(), target.connect(), target.connect());
    let mut whole = frame(&request(18, 0, 7, Encoder::default())).into_iter();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(4) {
        busy.api_versions().expect("an answer");
        // A byte is activity, as in Kafka.
        trickling.send(&[whole.next().expect("more bytes than time")]).expect("sent");
        std::thread::sleep(Duration::from_millis(250));
    }
    assert!(silent.is_closed_within(Duration::from_millis(1)), "silent for {:?}", began.elapsed());
    trickling.send(&whole.collect::<Vec<u8>>()).expect("sent");
    assert_eq!(trickling.receive().expect("an answer")[..4], 7i32.to_be_bytes());
    assert_eq!(status(&target.broker, 1).get("connections_idle_closed"), 1);
}

#[test]
fn a_fetch_is_still_a_fetch_with_socket_buffers_of_our_own() {
    let target = target(&[("socket.send.buffer.bytes", "16384"), ("socket.receive.buffer.bytes", "16384")]);
    target.create_topic("t");
    target.fill(2);
    let answer = target.connect().call(FETCH, 7, fetch(NO_SESSION, 0, &[("t", 0, 0)])).expect("an answer");
    assert!(answer.len() > 1_000_000, "{} bytes", answer.len());
}
