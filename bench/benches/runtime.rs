//! Decision 0001, repeatable: the same two servers on our executor, on glommio and on compio.
//!
//! `cargo bench -p corelog-bench --bench runtime` (all), or `-- own compio echo` for some of them.
//!
//! *echo*: a request of 100 bytes, the same bytes back. *framed*: a request of 16 KiB behind a length, as a produce is; 24
//! bytes back. 64 connections, an open-loop schedule from the other core, latency counted from when a request was due.
//! Servers run on core 0, the load on the last one; rounds are interleaved, figures are medians.
#![allow(missing_docs, clippy::unwrap_used)]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use corelog_bench::client::ring;
use corelog_bench::load::schedule::{Pace, Schedule};
use corelog_bench::measure::clock::now_ns;
use corelog_reactor::{Monotonic, Reactor, Stream, available_cores};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

const CONNECTIONS: usize = 64;
const ROUNDS: usize = 5;
const SECONDS: u64 = 3;

#[derive(Clone, Copy, PartialEq, Eq)]
struct Workload {
    name: &'static str,
    request_bytes: usize,
    reply_bytes: usize,
    rate: u32,
}

const WORKLOADS: [Workload; 2] = [
    Workload { name: "echo", request_bytes: 100, reply_bytes: 100, rate: 40_000 },
    Workload { name: "framed", request_bytes: 16 << 10, reply_bytes: 24, rate: 15_000 },
];

/// A server: serves `CONNECTIONS` connections until all are closed, then tells its CPU nanoseconds.
type Server = fn(Workload, Sender<SocketAddr>) -> u64;

const RUNTIMES: [(&str, Server); 3] = [("own", own), ("compio", compio_server), ("glommio", glommio_server)];

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let named = |name: &str, all: &[&str]| {
        let any = all.iter().any(|known| wanted.iter().any(|word| word == known));
        !any || wanted.iter().any(|word| word == name)
    };
    println!(
        "{:<8} {:<8} {:>9} {:>9} {:>9} {:>12} {:>14}",
        "load", "runtime", "p50 µs", "p99 µs", "p99.9 µs", "server CPU", "CPU µs/request"
    );
    for workload in WORKLOADS.iter().filter(|workload| named(workload.name, &WORKLOADS.map(|known| known.name))) {
        let chosen: Vec<_> = RUNTIMES.iter().filter(|(name, _)| named(name, &RUNTIMES.map(|known| known.0))).collect();
        let mut rounds: Vec<Vec<[f64; 5]>> = vec![Vec::new(); chosen.len()];
        for _ in 0..ROUNDS {
            for (results, (_, server)) in rounds.iter_mut().zip(&chosen) {
                results.push(round(*workload, *server));
            }
        }
        for (results, (name, _)) in rounds.iter().zip(&chosen) {
            let median = |at: usize| {
                let mut values: Vec<f64> = results.iter().map(|figures| figures[at]).collect();
                values.sort_by(f64::total_cmp);
                values[values.len() / 2]
            };
            println!(
                "{:<8} {name:<8} {:>9.1} {:>9.1} {:>9.1} {:>10.1} % {:>14.2}",
                workload.name,
                median(0),
                median(1),
                median(2),
                median(3),
                median(4)
            );
        }
    }
}

/// One run: percentiles in µs, the server's share of its core in percent, its CPU µs for each request.
fn round(workload: Workload, server: Server) -> [f64; 5] {
    let (tell, told) = channel();
    let serving = thread::spawn(move || server(workload, tell));
    let address = told.recv().unwrap();
    let load = thread::spawn(move || load(workload, address));
    let (mut latencies, seconds) = load.join().unwrap();
    let cpu = serving.join().unwrap() as f64;
    latencies.sort_unstable();
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize] as f64 / 1e3;
    [at(0.5), at(0.99), at(0.999), cpu / 1e7 / seconds, cpu / 1e3 / latencies.len() as f64]
}

// ---- load ----

struct Lane {
    stream: Stream,
    due: RefCell<VecDeque<u64>>,
    wake: corelog_reactor::Notify,
}

fn load(workload: Workload, address: SocketAddr) -> (Vec<u64>, f64) {
    let reactor = ring::reactor(available_cores().last().map(|core| core.0)).unwrap();
    let latencies = Rc::new(RefCell::new(Vec::with_capacity((u64::from(workload.rate) * SECONDS) as usize)));
    let lanes: Vec<Rc<Lane>> = reactor.block_on(async {
        let mut lanes = Vec::new();
        for _ in 0..CONNECTIONS {
            let stream = reactor.connect(address).await.unwrap();
            lanes.push(Rc::new(Lane { stream, due: RefCell::default(), wake: corelog_reactor::Notify::new() }));
        }
        lanes
    });
    for lane in &lanes {
        let (lane, latencies) = (Rc::clone(lane), Rc::clone(&latencies));
        reactor.spawn(async move { ask(workload, &lane, &latencies).await }).unwrap();
    }
    let started = now_ns();
    let pace = Pace::Poisson(f64::from(workload.rate));
    let mut schedule = Schedule::new(pace, 1, started + 10_000_000, 1).unwrap();
    let mut sent = 0usize;
    reactor.block_on(async {
        let end = started + SECONDS * 1_000_000_000;
        while schedule.peek() < end {
            while schedule.peek() <= now_ns() {
                let lane = &lanes[sent % CONNECTIONS];
                lane.due.borrow_mut().push_back(schedule.pop());
                lane.wake.notify();
                sent += 1;
            }
            reactor.sleep_until(Monotonic::from_nanos(schedule.peek())).await;
        }
        while latencies.borrow().len() < sent {
            reactor.sleep(Duration::from_millis(1)).await;
        }
    });
    let seconds = (now_ns() - started) as f64 / 1e9;
    lanes.iter().for_each(|lane| lane.stream.shutdown());
    let latencies = latencies.borrow().clone();
    drop(lanes);
    reactor.shutdown();
    (latencies, seconds)
}

/// One request at a time on a connection.
async fn ask(workload: Workload, lane: &Lane, latencies: &RefCell<Vec<u64>>) {
    let request: Rc<[u8]> = vec![7; workload.request_bytes].into();
    let mut buffer = vec![0; 4096];
    loop {
        let Some(due) = lane.due.borrow_mut().pop_front() else {
            lane.wake.notified().await;
            continue;
        };
        let (sent, _) = lane.stream.send(Rc::clone(&request)).await;
        assert_eq!(sent.unwrap(), workload.request_bytes);
        let mut left = workload.reply_bytes;
        while left > 0 {
            match lane.stream.try_recv(&mut buffer) {
                Ok(count) => {
                    assert!(count > 0, "the server closed the connection");
                    left -= count;
                }
                Err(_) => lane.stream.readable().await.unwrap(),
            }
        }
        latencies.borrow_mut().push(now_ns() - due);
    }
}

// ---- servers ----

fn cpu_nanos() -> u64 {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).unwrap();
    ((usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) * 1000) as u64
}

fn first_core() -> usize {
    available_cores().first().map_or(0, |core| core.0)
}

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn own(workload: Workload, tell: Sender<SocketAddr>) -> u64 {
    let reactor = ring::reactor(Some(first_core())).unwrap();
    let open = Rc::new(std::cell::Cell::new(0));
    reactor.block_on(async {
        let listener = reactor.listen(loopback(), 1024).unwrap();
        tell.send(listener.local_addr()).unwrap();
        for _ in 0..CONNECTIONS {
            let (raw, _) = listener.accept().await.unwrap();
            let stream = reactor.adopt(raw);
            let open = Rc::clone(&open);
            open.set(open.get() + 1);
            reactor
                .spawn(async move {
                    serve(workload, &stream).await;
                    open.set(open.get() - 1);
                })
                .unwrap();
        }
    });
    let before = cpu_nanos();
    reactor.block_on(until_closed(&reactor, &open));
    let spent = cpu_nanos() - before;
    reactor.shutdown();
    spent
}

async fn until_closed(reactor: &Reactor, open: &std::cell::Cell<usize>) {
    while open.get() > 0 {
        reactor.sleep(Duration::from_millis(20)).await;
    }
}

async fn serve(workload: Workload, stream: &Stream) {
    let mut buffer = vec![0; 64 << 10];
    let reply: Rc<[u8]> = vec![7; workload.reply_bytes].into();
    let mut have = 0;
    loop {
        match stream.try_recv(&mut buffer) {
            Ok(0) => return,
            Ok(count) => have += count,
            Err(_) => {
                if stream.readable().await.is_err() {
                    return;
                }
                continue;
            }
        }
        while have >= workload.request_bytes {
            have -= workload.request_bytes;
            if stream.send(Rc::clone(&reply)).await.0.is_err() {
                return;
            }
        }
    }
}

fn compio_server(workload: Workload, tell: Sender<SocketAddr>) -> u64 {
    use compio::io::{AsyncRead, AsyncWriteExt};
    use compio::net::TcpListener;
    corelog_reactor::pin_to_core(corelog_reactor::CoreId(first_core()));
    let runtime = compio::runtime::Runtime::new().unwrap();
    runtime.block_on(async move {
        let listener = TcpListener::bind(loopback()).await.unwrap();
        tell.send(listener.local_addr().unwrap()).unwrap();
        let mut serving = Vec::new();
        for _ in 0..CONNECTIONS {
            let (mut stream, _) = listener.accept().await.unwrap();
            serving.push(compio::runtime::spawn(async move {
                let mut buffer = Vec::with_capacity(64 << 10);
                let mut reply = vec![7u8; workload.reply_bytes];
                let mut have = 0;
                loop {
                    let (count, back) = stream.read(buffer).await.into();
                    buffer = back;
                    match count {
                        Ok(0) | Err(_) => return,
                        Ok(count) => have += count,
                    }
                    buffer.clear();
                    while have >= workload.request_bytes {
                        have -= workload.request_bytes;
                        let (sent, back): (std::io::Result<()>, Vec<u8>) = stream.write_all(reply).await.into();
                        reply = back;
                        if sent.is_err() {
                            return;
                        }
                    }
                }
            }));
        }
        let before = cpu_nanos();
        for task in serving {
            let _ = task.await;
        }
        cpu_nanos() - before
    })
}

fn glommio_server(workload: Workload, tell: Sender<SocketAddr>) -> u64 {
    use futures_lite::{AsyncReadExt, AsyncWriteExt};
    use glommio::net::TcpListener;
    use glommio::{LocalExecutorBuilder, Placement};
    let executor = LocalExecutorBuilder::new(Placement::Fixed(first_core())).make().unwrap();
    executor.run(async move {
        let listener = TcpListener::bind(loopback()).unwrap();
        tell.send(listener.local_addr().unwrap()).unwrap();
        let mut serving = Vec::new();
        for _ in 0..CONNECTIONS {
            let mut stream = listener.accept().await.unwrap();
            let _ = stream.set_nodelay(true);
            serving.push(glommio::spawn_local(async move {
                let mut buffer = vec![0; 64 << 10];
                let reply = vec![7u8; workload.reply_bytes];
                let mut have = 0;
                loop {
                    match stream.read(&mut buffer).await {
                        Ok(0) | Err(_) => return,
                        Ok(count) => have += count,
                    }
                    while have >= workload.request_bytes {
                        have -= workload.request_bytes;
                        if stream.write_all(&reply).await.is_err() {
                            return;
                        }
                    }
                }
            }));
        }
        let before = cpu_nanos();
        for task in serving {
            task.await;
        }
        cpu_nanos() - before
    })
}
