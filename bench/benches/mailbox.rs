//! Messages between two cores: a round trip with a parked and with a spinning peer, and a flood.
//!
//! `cargo bench -p corelog-bench --bench mailbox`
#![allow(missing_docs, clippy::unwrap_used)]

use std::time::{Duration, Instant};

use corelog_reactor::ring::{RingConfig, RingDriver};
use corelog_reactor::{MailPort, Reactor, ReactorLimits, ShardId, available_cores, mail_mesh, pin_to_core};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

/// A number to send back, or `None` to end.
type Message = Option<u64>;

fn reactor(spin: Duration) -> Reactor {
    let limits = ReactorLimits { spin_max: spin, ..ReactorLimits::default() };
    Reactor::new(Box::new(RingDriver::new(RingConfig::default()).unwrap()), limits)
}

/// One turn of a loop that does nothing but mail, as a shard's does.
fn turn(reactor: &Reactor, port: &mut MailPort<Message>) {
    port.wake_peers(reactor);
    if !port.has_mail() {
        reactor.park(&*port);
        reactor.reap();
    }
}

/// Answers until told to end.
fn peer(mut port: MailPort<Message>, spin: Duration) {
    if let Some(core) = available_cores().first() {
        pin_to_core(*core);
    }
    let reactor = reactor(spin);
    loop {
        while let Some((from, message)) = port.recv() {
            let Some(number) = message else { return };
            while port.send(from, Some(number)).is_err() {
                turn(&reactor, &mut port);
            }
        }
        turn(&reactor, &mut port);
    }
}

fn exchange(port: &mut MailPort<Message>, reactor: &Reactor, times: u64, burst: u64) -> Duration {
    let begun = Instant::now();
    let (mut sent, mut received) = (0, 0);
    while received < times {
        while sent < times && sent - received < burst && port.send(ShardId(1), Some(sent)).is_ok() {
            sent += 1;
        }
        while port.recv().is_some() {
            received += 1;
        }
        turn(reactor, port);
    }
    begun.elapsed()
}

fn round_trip(c: &mut Criterion) {
    let mut group = c.benchmark_group("mailbox");
    for (name, spin, burst) in [
        ("round trip, parked peer", Duration::ZERO, 1),
        ("round trip, spinning 20 µs", Duration::from_micros(20), 1),
        ("flood of 512", Duration::from_micros(20), 512),
    ] {
        group.throughput(Throughput::Elements(1));
        group.bench_function(name, |b| {
            b.iter_custom(|times| {
                let mut ports = mail_mesh::<Message>(2, 1024);
                let (theirs, mut ours) = (ports.pop().unwrap(), ports.pop().unwrap());
                let thread = std::thread::spawn(move || peer(theirs, spin));
                if let Some(core) = available_cores().last() {
                    pin_to_core(*core);
                }
                let reactor = reactor(spin);
                let spent = exchange(&mut ours, &reactor, times, burst);
                while ours.send(ShardId(1), None).is_err() {}
                ours.wake_peers(&reactor);
                reactor.reap();
                thread.join().unwrap();
                spent
            });
        });
    }
}

criterion_group!(benches, round_trip);
criterion_main!(benches);
