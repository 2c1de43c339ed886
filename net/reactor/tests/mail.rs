//! Mail between reactors on several threads.

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use corelog_reactor::ring::{RingConfig, RingDriver};
use corelog_reactor::{MailPort, Reactor, ReactorLimits, ShardId, mail_mesh};

fn reactor() -> Reactor {
    Reactor::new(Box::new(RingDriver::new(RingConfig::default()).unwrap()), ReactorLimits::default())
}

/// Sends `messages` numbers to each peer and checks that every peer's arrive whole and in order, sleeping whenever
/// there is nothing to do. The number of times it slept.
fn exchange(mut port: MailPort<u64>, messages: u64, begin: &Barrier) -> u64 {
    let reactor = reactor();
    let shards = port.shards();
    let me = port.id();
    let mut sent = vec![0; shards];
    let mut received = vec![0; shards];
    begin.wait();
    loop {
        reactor.reap();
        while let Some((from, number)) = port.recv() {
            assert_eq!(number, received[from.index()], "from {from} to {me}");
            received[from.index()] += 1;
        }
        let mut room_ahead = false;
        for to in (0..shards as u16).map(ShardId) {
            // In bursts, so that both sides run dry and sleep often.
            for _ in 0..100 {
                if to != me && sent[to.index()] < messages && port.send(to, sent[to.index()]).is_ok() {
                    sent[to.index()] += 1;
                }
            }
            room_ahead |= to != me && sent[to.index()] < messages && port.room(to) > 0;
        }
        let all_sent = (0..shards).all(|s| s == me.index() || sent[s] == messages);
        let all_received = (0..shards).all(|s| s == me.index() || received[s] == messages);
        port.wake_peers(&reactor);
        if all_sent && all_received {
            // The last wake-ups go out.
            reactor.park(&AlwaysMail);
            return reactor.counters().sleeps;
        }
        if room_ahead {
            reactor.park(&AlwaysMail);
        } else if all_sent {
            reactor.park(&port);
        } else {
            // A full ring is not announced when it empties: look again shortly.
            let nap = reactor.sleep(Duration::from_micros(200));
            reactor.spawn(nap).unwrap();
            reactor.run_tasks();
            reactor.park(&port);
        }
    }
}

struct AlwaysMail;
impl corelog_reactor::Mail for AlwaysMail {
    fn has_mail(&self) -> bool {
        true
    }
    fn set_parked(&self, _: corelog_reactor::WakeTarget) {}
    fn clear_parked(&self) {}
}

#[test]
fn a_million_messages_over_four_ports_arrive_whole_and_in_order() {
    let ports = mail_mesh::<u64>(4, 256);
    let begin = Arc::new(Barrier::new(4));
    let threads: Vec<_> = ports
        .into_iter()
        .map(|port| {
            let begin = Arc::clone(&begin);
            std::thread::spawn(move || exchange(port, 84_000, &begin))
        })
        .collect();
    let slept: Vec<u64> = threads.into_iter().map(|t| t.join().unwrap()).collect();
    assert!(slept.iter().all(|s| *s > 0), "all must have slept now and then: {slept:?}");
}

#[test]
fn a_ping_pong_between_sleepers_loses_no_wake_up() {
    const ROUNDS: u64 = 20_000;
    let mut ports = mail_mesh::<u64>(2, 4);
    let mut far = ports.pop().unwrap();
    let mut near = ports.pop().unwrap();
    let echo = std::thread::spawn(move || {
        let reactor = reactor();
        let mut echoed = 0;
        while echoed < ROUNDS {
            reactor.reap();
            while let Some((from, number)) = far.recv() {
                far.send(from, number).unwrap();
                echoed += 1;
            }
            far.wake_peers(&reactor);
            if echoed == ROUNDS {
                reactor.park(&AlwaysMail);
            } else {
                reactor.park(&far);
            }
        }
    });
    let reactor = reactor();
    let begin = Instant::now();
    let mut next = 0;
    near.send(ShardId(1), next).unwrap();
    while next < ROUNDS {
        near.wake_peers(&reactor);
        reactor.park(&near);
        reactor.reap();
        while let Some((_, number)) = near.recv() {
            assert_eq!(number, next);
            next += 1;
            if next < ROUNDS {
                near.send(ShardId(1), next).unwrap();
            }
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "stuck at {next}");
    }
    echo.join().unwrap();
    assert!(reactor.counters().peers_woken > 0);
}

/// Sends ten messages at once to a peer that should sleep: wake-ups sent, and how often the peer slept.
fn mail_to_a_sleeper() -> (u64, u64) {
    let mut ports = mail_mesh::<u64>(2, 16);
    let mut far = ports.pop().unwrap();
    let mut near = ports.pop().unwrap();
    let sleeper = std::thread::spawn(move || {
        let reactor = reactor();
        let mut got = 0;
        while got < 10 {
            reactor.park(&far);
            reactor.reap();
            while far.recv().is_some() {
                got += 1;
            }
        }
        reactor.counters().sleeps
    });
    let reactor = reactor();
    std::thread::sleep(Duration::from_millis(50));
    for n in 0..10 {
        near.send(ShardId(1), n).unwrap();
    }
    near.wake_peers(&reactor);
    reactor.park(&AlwaysMail);
    (reactor.counters().peers_woken, sleeper.join().unwrap())
}

#[test]
fn a_sleeping_peer_is_woken_once_for_all_mail_of_a_turn() {
    // On a busy machine the peer may not sleep yet when the mail comes: then it needs no waking.
    let seen: Vec<(u64, u64)> = (0..5).map(|_| mail_to_a_sleeper()).collect();
    assert!(seen.contains(&(1, 1)), "{seen:?}");
    assert!(seen.iter().all(|(woken, _)| *woken <= 1), "{seen:?}");
}

#[test]
fn a_thread_without_a_ring_exchanges_mail_with_a_shard() {
    let mut ports = mail_mesh::<u64>(2, 4);
    let mut thread_port = ports.pop().unwrap();
    let mut shard_port = ports.pop().unwrap();
    let reactor = reactor();
    shard_port.accept_remote_wakes(&reactor).unwrap();
    let asking = std::thread::spawn(move || {
        for number in 0..500 {
            thread_port.send(ShardId(0), number).unwrap();
            thread_port.wake_peers_from_thread();
            let answer = loop {
                match thread_port.recv() {
                    Some((_, answer)) => break answer,
                    None => thread_port.park_thread(Duration::from_secs(20)),
                }
            };
            assert_eq!(answer, number * 2);
        }
    });
    let mut answered = 0;
    while answered < 500 {
        reactor.reap();
        while let Some((from, number)) = shard_port.recv() {
            shard_port.send(from, number * 2).unwrap();
            answered += 1;
        }
        shard_port.wake_peers(&reactor);
        if answered < 500 {
            reactor.park(&shard_port);
        }
    }
    asking.join().unwrap();
}
