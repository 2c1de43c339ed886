//! Holds: fetches that wait for records while their clients vanish: the wait ends with its client, and nothing is left of it.
//! Never touches: clients; only a bare socket goes away in so many ways.

mod support;

use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use support::admin::Admin;
use support::broker::{Broker, BrokerSetup};
use support::raw::{Decoder, RawConnection, frame, request};
use support::requests::{FETCH, PRODUCE, Session, batch, fetch, fetch_answer, produce, produce_answer};
use support::status::{await_status, status};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(30);
/// How long a fetch asks to wait here.
const WAIT_MS: i32 = 30_000;
/// How soon all of a vanished client must be gone.
const RELEASE_MAX: Duration = Duration::from_secs(1);
const SHARDS: u16 = 2;
const CLIENTS: usize = 40;
const NO_SESSION: Session = Session { id: 0, epoch: -1 };

struct Target {
    _data: TempDir,
    setup: BrokerSetup,
    broker: Broker,
}

fn target() -> Target {
    let data = tempfile::tempdir().expect("a temporary folder");
    let setup = BrokerSetup::new(data.path(), SHARDS);
    let broker = setup.start();
    // Partitions on both shards, so that watches cross.
    Admin::new(&setup.bootstrap(), PATIENCE).create_topic("t", 8, &[]).expect("a topic");
    let target = Target { _data: data, setup, broker };
    target.assert_rests(PATIENCE);
    target
}

impl Target {
    fn connect(&self) -> RawConnection {
        RawConnection::connect(self.setup.address()).expect("a connection")
    }

    /// No connection, ask or watch is open, within `patience`.
    fn assert_rests(&self, patience: Duration) -> Duration {
        await_status(&self.broker, SHARDS.into(), patience, |status| {
            ["connections", "asks", "watches", "fetches_for_others"].iter().all(|name| status.get(name) == 0)
        })
    }

    /// As many watches as `count` fetches of partitions of both shards open.
    fn await_watches(&self, count: usize) {
        await_status(&self.broker, SHARDS.into(), PATIENCE, |status| status.get("watches") == 2 * count as u64);
    }

    /// Connections with a fetch that waits on all partitions.
    fn waiting(&self, count: usize) -> Vec<RawConnection> {
        let connections = (0..count)
            .map(|id| {
                let mut connection = self.connect();
                connection.send(&frame(&waiting_fetch(id as i32, NO_SESSION))).expect("sent");
                connection
            })
            .collect();
        self.await_watches(count);
        connections
    }
}

fn waiting_fetch(id: i32, session: Session) -> Vec<u8> {
    let all: Vec<(&str, i32, i64)> = (0..8).map(|partition| ("t", partition, 0)).collect();
    // A session knows its partitions.
    request(FETCH, 7, id, fetch(session, WAIT_MS, if session.id == 0 { &all } else { &[] }))
}

/// The close of `stream` is a reset.
fn reset_at_close(stream: &TcpStream) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let len = size_of_val(&linger) as libc::socklen_t;
    // SAFETY: the value is readable for its length.
    let set = unsafe {
        libc::setsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, (&raw const linger).cast(), len)
    };
    assert_eq!(set, 0, "SO_LINGER: {}", std::io::Error::last_os_error());
}

#[test]
fn a_long_poll_ends_with_the_client_that_closed_or_reset_its_connection() {
    let target = target();
    for reset in [false, true] {
        let mut connections = target.waiting(CLIENTS);
        if reset {
            connections.iter_mut().for_each(|connection| reset_at_close(connection.stream()));
        }
        drop(connections);
        let took = target.assert_rests(RELEASE_MAX);
        println!("{CLIENTS} long polls of clients that went away (reset: {reset}) were gone after {took:?}");
    }
}

#[test]
fn a_long_poll_whose_session_lives_on_another_shard_ends_with_its_client_and_the_session_goes_on() {
    let target = target();
    // Connections are spread over the shards in turn, and a session lives where it was made: with the next connection's
    // session each fetch runs on the other shard.
    let mut connections: Vec<RawConnection> = (0..CLIENTS).map(|_| target.connect()).collect();
    let open = |connection: &mut RawConnection| {
        let first = fetch(Session { id: 0, epoch: 0 }, 0, &[("t", 0, 0), ("t", 1, 0), ("t", 2, 0), ("t", 3, 0)]);
        let session = fetch_answer(&connection.call(FETCH, 7, first).expect("an answer")).session_id;
        assert_ne!(session, 0, "a session was opened");
        session
    };
    let mut sessions: Vec<i32> = connections.iter_mut().map(open).collect();
    sessions.rotate_left(1);
    for (connection, &id) in connections.iter_mut().zip(&sessions) {
        connection.send(&frame(&waiting_fetch(1, Session { id, epoch: 1 }))).expect("sent");
    }
    await_status(&target.broker, SHARDS.into(), PATIENCE, |status| status.get("watches") >= CLIENTS as u64);
    assert!(status(&target.broker, SHARDS.into()).get("fetches_for_others") > 0, "none of the fetches crossed");
    drop(connections);
    target.assert_rests(RELEASE_MAX);
    // What was waited for was answered into nothing: the session is where the client would expect it.
    let answer = target.connect().call(FETCH, 7, fetch(Session { id: sessions[0], epoch: 2 }, 0, &[]));
    assert_eq!(fetch_answer(&answer.expect("an answer")).error, 0);
}

#[test]
fn pipelined_long_polls_of_a_client_that_went_away_are_not_waited_for_one_by_one() {
    let target = target();
    let mut connection = target.connect();
    let all: Vec<u8> = (0..50).flat_map(|id| frame(&waiting_fetch(id, NO_SESSION))).collect();
    connection.send(&all).expect("sent");
    target.await_watches(1);
    drop(connection);
    target.assert_rests(RELEASE_MAX);
}

#[test]
fn a_client_that_closes_its_sending_side_gets_the_answers_it_has_asked_for() {
    let target = target();
    let mut connection = target.connect();
    let mut all = Vec::new();
    for id in 0..5 {
        let body = produce("t", 0, -1, &batch(&[&[b'x'; 1_000]], 1));
        all.extend(frame(&request(PRODUCE, 3, id, body)));
    }
    // Behind the records that there are now: it would wait.
    all.extend(frame(&request(FETCH, 7, 5, fetch(NO_SESSION, WAIT_MS, &[("t", 0, 5)]))));
    connection.send(&all).expect("sent");
    connection.stream().shutdown(Shutdown::Write).expect("half closed");
    let began = Instant::now();
    for id in 0..5 {
        let answer = connection.receive().expect("an answer");
        assert_eq!(Decoder::new(&answer).i32(), id);
        assert_eq!(produce_answer(&answer[4..]), (0, i64::from(id)));
    }
    let answer = connection.receive().expect("what there is, at once");
    let fetched = fetch_answer(&answer[4..]);
    assert_eq!((fetched.error, fetched.partitions.len()), (0, 1));
    assert!(connection.is_closed_within(PATIENCE));
    assert!(began.elapsed() < Duration::from_millis(WAIT_MS as u64 / 2), "waited for {:?}", began.elapsed());
    target.assert_rests(RELEASE_MAX);
}

#[test]
fn a_produce_whose_client_went_away_is_in_the_log() {
    let target = target();
    let mut connection = target.connect();
    let body = produce("t", 3, -1, &batch(&[b"kept"], 1));
    // The fetch behind it waits when the client goes.
    let mut all = frame(&request(PRODUCE, 3, 1, body));
    all.extend(frame(&waiting_fetch(2, NO_SESSION)));
    connection.send(&all).expect("sent");
    reset_at_close(connection.stream());
    // The broker has read it: its answer is here, or at least on its way.
    let first = connection.receive().expect("the produce's answer");
    assert_eq!(produce_answer(&first[4..]), (0, 0));
    drop(connection);
    target.assert_rests(RELEASE_MAX);
    let end = Admin::new(&target.setup.bootstrap(), PATIENCE).watermarks("t", 3).1;
    assert_eq!(end, 1);
}

#[test]
fn a_stop_does_not_wait_for_long_polls() {
    let mut target = target();
    let _connections = target.waiting(CLIENTS);
    let began = Instant::now();
    let exit = target.broker.terminate(PATIENCE);
    assert!(exit.success(), "{exit}");
    assert!(began.elapsed() < Duration::from_secs(5), "the stop took {:?}", began.elapsed());
}
