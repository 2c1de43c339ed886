//! Two ways to receive small requests, in turn: readiness + recv(2), and multishot RECV into a ring of provided buffers.
//!
//! `cargo run --release -p corelog-reactor --example receive_strategies [rounds] [milliseconds a round]`
//!
//! A server thread answers 100-byte requests of 64 connections with 100 bytes; both ways share everything but the
//! receiving. What counts is the server's CPU time a request; latency says little on a machine that others use. It is a
//! raw ring, without the reactor: what a strategy saves here is the most that it could save there.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use io_uring::types::{BufRingEntry, Fd};
use io_uring::{IoUring, cqueue, opcode, squeue};

const CONNECTIONS: usize = 64;
const REQUEST: usize = 100;
const BUFFERS: u16 = 256;
const BUFFER_BYTES: usize = 4096;
/// The buffer that readiness receives into.
const SHARED_BYTES: usize = 64 << 10;

#[derive(Clone, Copy, PartialEq)]
enum Strategy {
    Readiness,
    Provided,
}

/// How requests come.
#[derive(Clone, Copy)]
enum Load {
    /// The next request of a connection follows its reply.
    Closed,
    /// So many a second, on one connection after the other.
    Paced(u32),
}

/// Poll bits of a connection that the client has ended.
const ENDED: i32 = (libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR) as i32;
const POLL: u64 = 0;
const RECV: u64 = 1;
const SEND: u64 = 2;

fn token(connection: usize, kind: u64) -> u64 {
    (connection as u64) << 2 | kind
}

/// The ring of provided buffers: entries and buffers in one mapping each, never moved.
struct Provided {
    entries: *mut BufRingEntry,
    buffers: Vec<u8>,
    tail: u16,
}

impl Provided {
    fn new(ring: &IoUring) -> Provided {
        let layout = std::alloc::Layout::from_size_align(usize::from(BUFFERS) * 16, 4096).expect("a layout");
        // SAFETY: not of size zero.
        let entries = unsafe { std::alloc::alloc_zeroed(layout) }.cast::<BufRingEntry>();
        assert!(!entries.is_null());
        // SAFETY: page-aligned, of that many entries, and never freed: an example that ends soon.
        unsafe { ring.submitter().register_buf_ring_with_flags(entries as u64, BUFFERS, 0, 0) }.expect("a buffer ring");
        let mut provided = Provided { entries, buffers: vec![0; usize::from(BUFFERS) * BUFFER_BYTES], tail: 0 };
        (0..BUFFERS).for_each(|id| provided.give(id));
        provided.publish();
        provided
    }

    fn give(&mut self, id: u16) {
        let at = usize::from(self.tail % BUFFERS);
        // SAFETY: within the entries; the kernel reads none past the published tail.
        let entry = unsafe { &mut *self.entries.add(at) };
        entry.set_addr(self.buffers[usize::from(id) * BUFFER_BYTES..].as_mut_ptr() as u64);
        entry.set_len(BUFFER_BYTES as u32);
        entry.set_bid(id);
        self.tail = self.tail.wrapping_add(1);
    }

    fn publish(&self) {
        // SAFETY: the tail lies in the first entry, which is initialised; the kernel reads it atomically.
        unsafe { &*BufRingEntry::tail(self.entries).cast::<AtomicU16>() }.store(self.tail, Ordering::Release);
    }
}

struct Server {
    ring: IoUring,
    streams: Vec<TcpStream>,
    /// Bytes of an unfinished request.
    partial: Vec<usize>,
    frame: Vec<u8>,
    reply: Vec<u8>,
    requests: u64,
}

impl Server {
    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: what entries point to lives as long as the server.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            self.ring.submit().expect("submitted");
        }
    }

    fn arm(&mut self, connection: usize, strategy: Strategy) {
        let fd = Fd(self.streams[connection].as_raw_fd());
        let entry = match strategy {
            Strategy::Readiness => opcode::PollAdd::new(fd, (libc::POLLIN | libc::POLLRDHUP) as u32)
                .multi(true)
                .build()
                .user_data(token(connection, POLL)),
            Strategy::Provided => opcode::RecvMulti::new(fd, 0).build().user_data(token(connection, RECV)),
        };
        self.push(&entry);
    }

    /// `got` bytes of a connection; the copy into a frame stands for what every server does with them.
    fn received(&mut self, connection: usize, bytes: &[u8]) {
        self.frame.clear();
        self.frame.extend_from_slice(bytes);
        let whole = self.partial[connection] + bytes.len();
        self.partial[connection] = whole % REQUEST;
        let requests = whole / REQUEST;
        if requests > 0 {
            self.requests += requests as u64;
            let bytes = (requests * REQUEST) as u32;
            let fd = Fd(self.streams[connection].as_raw_fd());
            let send = opcode::Send::new(fd, self.reply.as_ptr(), bytes).flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL);
            self.push(&send.build().user_data(token(connection, SEND)));
        }
    }

    fn run(&mut self, strategy: Strategy) {
        let mut provided = (strategy == Strategy::Provided).then(|| Provided::new(&self.ring));
        let mut shared = vec![0; SHARED_BYTES];
        (0..CONNECTIONS).for_each(|connection| self.arm(connection, strategy));
        let (mut open, mut closed) = (CONNECTIONS, [false; CONNECTIONS]);
        let mut done: Vec<(u64, i32, u32)> = Vec::new();
        while open > 0 {
            self.ring.submit_and_wait(1).expect("waited");
            done.extend(self.ring.completion().map(|c| (c.user_data(), c.result(), c.flags())));
            for (data, result, flags) in done.drain(..) {
                let connection = (data >> 2) as usize;
                let ended = match data & 3 {
                    POLL => result & ENDED != 0,
                    RECV => result <= 0 && -result != libc::ENOBUFS,
                    _ => false,
                };
                if ended && !std::mem::replace(&mut closed[connection], true) {
                    open -= 1;
                }
                match data & 3 {
                    POLL => loop {
                        let fd = self.streams[connection].as_raw_fd();
                        // SAFETY: the buffer is writable for its length.
                        let got =
                            unsafe { libc::recv(fd, shared.as_mut_ptr().cast(), shared.len(), libc::MSG_DONTWAIT) };
                        match usize::try_from(got) {
                            Ok(0) | Err(_) => break,
                            Ok(got) => {
                                let taken = std::mem::take(&mut shared);
                                self.received(connection, &taken[..got]);
                                shared = taken;
                                // Fewer than asked for: empty now.
                                if got < SHARED_BYTES {
                                    break;
                                }
                            }
                        }
                    },
                    RECV => {
                        if let (Some(id), Some(provided)) = (cqueue::buffer_select(flags), &mut provided) {
                            let from = usize::from(id) * BUFFER_BYTES;
                            let taken = std::mem::take(&mut provided.buffers);
                            self.received(connection, &taken[from..from + result.max(0) as usize]);
                            provided.buffers = taken;
                            provided.give(id);
                        }
                        if !cqueue::more(flags) && !closed[connection] {
                            self.arm(connection, strategy);
                        }
                    }
                    // A client that has gone doesn't take its last replies.
                    _ => assert!(
                        result > 0 || closed[connection] || result == -libc::EPIPE || result == -libc::ECONNRESET
                    ),
                }
            }
            if let Some(provided) = &provided {
                provided.publish();
            }
        }
    }
}

/// CPU time of this thread, kernel and user.
fn cpu() -> Duration {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: one writable timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut at) };
    Duration::new(at.tv_sec as u64, at.tv_nsec as u32)
}

struct Round {
    cpu_micros: f64,
    requests_a_second: f64,
    latency_p50_micros: f64,
    latency_p99_micros: f64,
}

fn round(strategy: Strategy, load: Load, length: Duration) -> Round {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("its address");
    let clients: Vec<TcpStream> = (0..CONNECTIONS).map(|_| TcpStream::connect(address).expect("connected")).collect();
    let streams: Vec<TcpStream> = (0..CONNECTIONS).map(|_| listener.accept().expect("accepted").0).collect();
    for stream in clients.iter().chain(&streams) {
        stream.set_nodelay(true).expect("no delay");
    }
    let server = std::thread::spawn(move || {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .setup_cqsize(8192)
            .build(1024)
            .expect("a ring");
        let (partial, reply) = (vec![0; CONNECTIONS], vec![0; SHARED_BYTES]);
        let mut server = Server { ring, streams, partial, frame: Vec::with_capacity(SHARED_BYTES), reply, requests: 0 };
        let before = cpu();
        server.run(strategy);
        ((cpu() - before).as_secs_f64() * 1e6, server.requests)
    });
    let began = Instant::now();
    let mut latencies = drive(clients, load, length);
    let took = began.elapsed();
    let (micros, requests) = server.join().expect("the server");
    latencies.sort_unstable();
    let percentile = |p: usize| latencies.get(latencies.len() * p / 100).map_or(0.0, |l| l.as_secs_f64() * 1e6);
    Round {
        cpu_micros: micros / requests as f64,
        requests_a_second: requests as f64 / took.as_secs_f64(),
        latency_p50_micros: percentile(50),
        latency_p99_micros: percentile(99),
    }
}

/// Sends requests and takes replies; ends all connections after `length`.
fn drive(clients: Vec<TcpStream>, load: Load, length: Duration) -> Vec<Duration> {
    let began = Instant::now();
    let mut latencies = Vec::with_capacity(1 << 20);
    // SAFETY: no pointers involved.
    let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    let mut sent = vec![None; clients.len()];
    for (number, client) in clients.iter().enumerate() {
        client.set_nonblocking(true).expect("non-blocking");
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: number as u64 };
        // SAFETY: one readable event.
        unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, client.as_raw_fd(), &raw mut event) };
    }
    let send = |number: usize, sent: &mut Vec<Option<Instant>>| {
        sent[number] = Some(Instant::now());
        (&clients[number]).write_all(&[1; REQUEST]).expect("sent");
    };
    if let Load::Closed = load {
        (0..clients.len()).for_each(|number| send(number, &mut sent));
    }
    let (mut paced, mut next) = (0u64, 0);
    let mut buffer = [0; REQUEST];
    let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; CONNECTIONS];
    while began.elapsed() < length {
        if let Load::Paced(rate) = load {
            let due = (began.elapsed().as_secs_f64() * f64::from(rate)) as u64;
            while paced < due {
                paced += 1;
                next = (next + 1) % clients.len();
                if sent[next].is_none() {
                    send(next, &mut sent);
                }
            }
        }
        let timeout = if let Load::Closed = load { 100 } else { 0 };
        // SAFETY: room for that many events.
        let ready = unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), events.len() as i32, timeout) };
        for event in events.iter().take(ready.max(0) as usize) {
            let number = event.u64 as usize;
            if matches!((&clients[number]).read(&mut buffer), Ok(REQUEST)) {
                latencies.extend(sent[number].take().map(|at| at.elapsed()));
                if let Load::Closed = load {
                    send(number, &mut sent);
                }
            }
        }
        if ready == 0 {
            std::thread::sleep(Duration::from_micros(20));
        }
    }
    // SAFETY: ours.
    unsafe { libc::close(epoll) };
    latencies
}

fn median(all: impl Iterator<Item = f64>) -> f64 {
    let mut all: Vec<f64> = all.collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn main() {
    let mut args = std::env::args().skip(1).map(|n| n.parse::<u64>().expect("a number"));
    let rounds = args.next().unwrap_or(11) as usize;
    let length = Duration::from_millis(args.next().unwrap_or(700));
    let loads = [("10,000/s", Load::Paced(10_000)), ("40,000/s", Load::Paced(40_000)), ("closed loop", Load::Closed)];
    for (name, load) in loads {
        let mut all = [Vec::new(), Vec::new()];
        for _ in 0..rounds {
            all[0].push(round(Strategy::Readiness, load, length));
            all[1].push(round(Strategy::Provided, load, length));
        }
        for (strategy, rounds) in ["readiness + recv(2)", "provided buffers"].into_iter().zip(&all) {
            println!(
                "{name}, {strategy}: {:.2} µs of CPU a request; {:.0} requests/s, p50 {:.0} µs, p99 {:.0} µs",
                median(rounds.iter().map(|r| r.cpu_micros)),
                median(rounds.iter().map(|r| r.requests_a_second)),
                median(rounds.iter().map(|r| r.latency_p50_micros)),
                median(rounds.iter().map(|r| r.latency_p99_micros)),
            );
        }
    }
}
