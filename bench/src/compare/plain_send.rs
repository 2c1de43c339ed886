//! A plain sender: bytes from memory to whoever connects, as fast as they are taken.
//!
//! Holds: what a tail fetch is measured against. Never touches: Kafka's protocol, files.
//!
//! It is a process of its own on the brokers' cores, with blocking send(2) calls from memory in huge pages: the least that
//! bringing these bytes to a socket costs on this machine.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::Duration;
use std::{env, thread};

use std::cell::Cell;

use corelog_reactor::{BufferPool, Reactor, Stream};

use super::limit::Measured;
use crate::cli::Compare;
use crate::client::rpc::connect;
use crate::error::BenchError;
use crate::measure::clock::now_ns;
use crate::measure::process::Sample;

/// Bytes of one send(2).
const PIECE_BYTES: usize = 1 << 20;
/// Different pieces that are sent in turn: as much as a tail fetch's workload reads in turn.
const PIECES: usize = 48;
/// Bytes received from one connection before others get their turn.
const VISIT_BYTES: usize = 1 << 20;
/// Time for both sides to get going.
const LEAD_IN: Duration = Duration::from_secs(1);

/// Sends for ever to each that connects. The port is the only line on standard output.
///
/// # Errors
/// No memory, or no socket.
pub fn serve() -> Result<(), BenchError> {
    let setup = |error: &dyn std::fmt::Display| BenchError::Setup(error.to_string());
    let pool = BufferPool::new(2 * PIECES * PIECE_BYTES);
    let taken = (0..PIECES).map(|_| pool.take(PIECE_BYTES)).collect::<Result<Vec<_>, _>>();
    let mut pieces = taken.map_err(|error| setup(&error))?;
    for (at, piece) in pieces.iter_mut().enumerate() {
        piece.fill(at as u8);
    }
    let pieces: Vec<&[u8]> = pieces.iter().map(|piece| &piece[..]).collect();
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| setup(&error))?;
    let port = listener.local_addr().map_err(|error| setup(&error))?.port();
    println!("{port}");
    io::stdout().flush().map_err(|error| setup(&error))?;
    thread::scope(|scope| {
        for stream in listener.incoming().flatten() {
            let pieces = &pieces;
            scope.spawn(move || send(stream, pieces));
        }
    });
    Ok(())
}

/// Ends when the other side goes away.
fn send(mut stream: TcpStream, pieces: &[&[u8]]) {
    while pieces.iter().all(|piece| stream.write_all(piece).is_ok()) {}
}

/// A running sender; ended when dropped.
struct Sender {
    process: Child,
    address: SocketAddr,
}

impl Sender {
    fn start(cores: &str) -> Result<Self, BenchError> {
        let failed = |what: String| BenchError::Peer { peer: "plain sender".into(), what };
        let program = env::current_exe().map_err(|error| failed(error.to_string()))?;
        let mut process = Command::new("taskset")
            .args(["-c", cores])
            .arg(program)
            .arg("plain-sender")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| failed(format!("taskset: {error}")))?;
        let mut line = String::new();
        let said = process.stdout.take().map(|out| BufReader::new(out).read_line(&mut line));
        let mut sender = Self { process, address: SocketAddr::from(([127, 0, 0, 1], 0)) };
        match (said, line.trim().parse()) {
            (Some(Ok(_)), Ok(port)) => sender.address.set_port(port),
            _ => return Err(failed(format!("told no port but {line:?}"))),
        }
        Ok(sender)
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Receives over `connections` from a plain sender on the brokers' cores, as consumers do.
///
/// # Errors
/// The sender can't be started, or ended.
pub fn measure(reactor: &Reactor, options: &Compare, connections: usize) -> Result<Measured, BenchError> {
    let sender = Sender::start(&options.broker_cores)?;
    let received = Rc::new(Cell::new(0_u64));
    let open = Rc::new(Cell::new(connections));
    reactor.block_on(async {
        let mut streams = Vec::with_capacity(connections);
        for _ in 0..connections {
            streams.push(Rc::new(connect(reactor, &sender.address.to_string()).await?));
        }
        for stream in &streams {
            let (stream, received, open) = (Rc::clone(stream), Rc::clone(&received), Rc::clone(&open));
            let own = reactor.clone();
            let task = async move {
                receive(&stream, &own, &received).await;
                open.set(open.get() - 1);
            };
            reactor.spawn(task).map_err(|error| BenchError::Setup(error.to_string()))?;
        }
        reactor.sleep(LEAD_IN).await;
        let sample = || Sample::take(sender.process.id());
        let (begun, before, from) = (now_ns(), sample(), received.get());
        reactor.sleep(Duration::from_secs_f64(options.duration)).await;
        let (nanos, after, bytes) = (now_ns() - begun, sample(), received.get() - from);
        let ended = open.get() < connections;
        streams.iter().for_each(|stream| stream.shutdown());
        while open.get() > 0 {
            reactor.sleep(Duration::from_millis(1)).await;
        }
        match (before, after) {
            (Some(before), Some(after)) if !ended && bytes > 0 => Ok(Measured {
                mb_per_s: bytes as f64 * 1e3 / nanos as f64,
                cpu_s_per_gb: Some(after.since(&before).cpu_s / (bytes as f64 / 1e9)),
            }),
            _ => Err(BenchError::Peer { peer: "plain sender".into(), what: "ended early".into() }),
        }
    })
}

/// As [`crate::client::reader::FrameReader`] does for large answers.
async fn receive(stream: &Stream, reactor: &Reactor, received: &Cell<u64>) {
    let mut buffer = vec![0; 8 * PIECE_BYTES];
    let (mut at, mut visit) = (0, 0);
    loop {
        match stream.try_recv(&mut buffer[at..]) {
            Ok(0) => return,
            Ok(count) => {
                received.set(received.get() + count as u64);
                at = if at + count == buffer.len() { 0 } else { at + count };
                visit += count;
                if visit >= VISIT_BYTES {
                    visit = 0;
                    reactor.yield_now().await;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                visit = 0;
                if stream.readable().await.is_err() {
                    return;
                }
            }
            Err(_) => return,
        }
    }
}
