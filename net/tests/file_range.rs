//! Replies with bytes of files in them, on a real ring and in the simulation.
//! Never touches: what a frame says.

#[path = "../reactor/tests/sending_files/mod.rs"]
mod sending_files;

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use corelog_net::conn::{Connection, FileRange, Item, Reply, Sent};
use corelog_reactor::ring::{RingConfig, RingDriver};
use corelog_reactor::sim::{DiskFault, DiskOpKind, NetBehaviour, SimWorld};
use corelog_reactor::{Reactor, ReactorLimits, SharedFile, Stream};
use sending_files::{content, folder, receive, slow_pair};

const PATIENCE: Duration = Duration::from_secs(60);

fn ring(pipes_max: usize) -> Reactor {
    let driver = RingDriver::new(RingConfig::default()).unwrap();
    let limits = ReactorLimits { pipes_max, pool_bytes_max: 4 << 20, ..ReactorLimits::default() };
    Reactor::new(Box::new(driver), limits)
}

async fn pair(reactor: &Reactor) -> (Stream, Rc<Connection<Bytes>>) {
    let (client, server, from) = slow_pair(reactor).await;
    (client, Connection::new(server, from, 128))
}

type Ended = Rc<RefCell<Option<(io::Result<()>, Sent)>>>;

/// Starts the sender of a connection; how it ended, and what it sent.
fn start(reactor: &Reactor, connection: &Rc<Connection<Bytes>>) -> Ended {
    let ended = Ended::default();
    let (into, on) = (Rc::clone(&ended), Rc::clone(connection));
    reactor
        .spawn(async move {
            let mut all = Sent::default();
            let result = on
                .send_replies(|sent| {
                    all.replies += sent.replies;
                    all.bytes += sent.bytes;
                    all.file_bytes += sent.file_bytes;
                })
                .await;
            on.close();
            into.replace(Some((result, all)));
        })
        .unwrap();
    ended
}

/// Replies of memory and parts of a file of `bytes`, and what they say.
fn replies(file: &SharedFile, bytes: &[u8]) -> (Vec<Reply<Bytes>>, Vec<u8>) {
    let whole = bytes.len() as u64;
    let range = |from: u64, to: u64| Item::File(FileRange::new(file.clone(), from, to, whole));
    let memory = |text: &'static str| Item::Bytes(Bytes::from_static(text.as_bytes()));
    let reply = |rest: Vec<Item<Bytes>>| Reply { head: Bytes::from_static(b"head"), rest: rest.into() };
    let replies = vec![
        reply(vec![range(0, whole / 3), memory("between"), range(whole / 2, whole), memory("behind")]),
        reply(vec![]),
        reply(vec![range(1, 2), range(4095, 4097), Item::Shared(Bytes::from_static(b"shared"))]),
        reply(vec![range(0, whole)]),
    ];
    let part = |from: u64, to: u64| &bytes[from as usize..to as usize];
    let text = [
        b"head",
        part(0, whole / 3),
        b"between",
        part(whole / 2, whole),
        b"behindheadhead",
        part(1, 2),
        part(4095, 4097),
        b"sharedhead",
        bytes,
    ];
    (replies, text.concat())
}

#[test]
fn pieces_of_memory_and_of_files_leave_in_order_and_whole_with_and_without_pipes() {
    for pipes_max in [0, 1, 8] {
        let (folder, reactor) = (folder(), ring(pipes_max));
        reactor.block_on(async {
            let bytes = content(3_000_001);
            let path = folder.path().join("f");
            std::fs::write(&path, &bytes).unwrap();
            let file = reactor.open_shared(&path).await.unwrap();
            let (client, connection) = pair(&reactor).await;
            let ended = start(&reactor, &connection);
            let (replies, text) = replies(&file, &bytes);
            for reply in replies {
                let slot = connection.reserve().await.unwrap();
                connection.fill(slot, reply);
            }
            let got = reactor.within(PATIENCE, receive(&client, text.len())).await.expect("all of it");
            assert!(got == text, "{pipes_max} pipes: {} of {} bytes", got.len(), text.len());
            assert!(connection.drained().await);
            assert_eq!(connection.progress().sent_bytes, text.len() as u64);
            connection.close();
            while ended.borrow().is_none() {
                reactor.sleep(Duration::from_millis(1)).await;
            }
            let (result, sent) = ended.take().unwrap();
            result.unwrap();
            assert_eq!((sent.replies, sent.bytes), (4, text.len() as u64));
            assert_eq!(sent.file_bytes, (1_000_000 + 1_500_001 + 1 + 2 + 3_000_001) as u64);
            assert!(reactor.pipes() <= pipes_max);
        });
        reactor.shutdown();
    }
}

#[test]
fn a_client_that_does_not_read_leaves_its_pipe_to_others() {
    let (folder, reactor) = (folder(), ring(1));
    reactor.block_on(async {
        let bytes = content(3_000_000);
        let path = folder.path().join("f");
        std::fs::write(&path, &bytes).unwrap();
        let file = reactor.open_shared(&path).await.unwrap();
        let (client, connection) = pair(&reactor).await;
        let _ended = start(&reactor, &connection);
        let whole = bytes.len() as u64;
        let range = FileRange::new(file.clone(), 0, whole, whole);
        let slot = connection.reserve().await.unwrap();
        connection.fill(slot, Reply { head: Bytes::new(), rest: vec![Item::File(range)].into() });
        while connection.progress().sent_bytes == 0 {
            reactor.sleep(Duration::from_millis(1)).await;
        }
        let free = async {
            loop {
                if let Some(pipe) = reactor.take_pipe() {
                    return pipe;
                }
                reactor.sleep(Duration::from_millis(1)).await;
            }
        };
        let pipe = reactor.within(PATIENCE, free).await.expect("the only pipe, while the client takes nothing");
        assert_eq!(pipe.filled(), 0);
        drop(pipe);
        // And loses nothing by it.
        let got = reactor.within(PATIENCE, receive(&client, bytes.len())).await.expect("all of it");
        assert!(got == bytes);
    });
    reactor.shutdown();
}

#[test]
fn a_file_that_lost_bytes_or_was_given_up_ends_the_connection_where_its_bytes_end() {
    for revoked in [false, true] {
        for pipes_max in [0, 4] {
            let (folder, reactor) = (folder(), ring(pipes_max));
            reactor.block_on(async {
                let bytes = content(3_000_000);
                let path = folder.path().join("f");
                std::fs::write(&path, &bytes).unwrap();
                let file = reactor.open_shared(&path).await.unwrap();
                let (client, connection) = pair(&reactor).await;
                let ended = start(&reactor, &connection);
                let (replies, text) = replies(&file, &bytes);
                for reply in replies {
                    let slot = connection.reserve().await.unwrap();
                    connection.fill(slot, reply);
                }
                // The client begins to read when it has happened.
                while connection.progress().sent_bytes == 0 {
                    reactor.sleep(Duration::from_millis(1)).await;
                }
                if revoked {
                    file.revoke();
                } else {
                    // Behind what is in a pipe by now: of a folio that is cut within, the kernel zeroes the rest wherever it is.
                    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(300 * 4096).unwrap();
                }
                let got = reactor.within(PATIENCE, receive(&client, text.len())).await.expect("the end of the stream");
                assert!(text.starts_with(&got), "{} bytes of something else", got.len());
                assert!(got.len() < 2_000_000, "{} bytes", got.len());
                while ended.borrow().is_none() {
                    reactor.sleep(Duration::from_millis(1)).await;
                }
                ended.take().unwrap().0.unwrap_err();
                assert!(file.has_failed() && connection.is_closed());
            });
            reactor.shutdown();
        }
    }
}

/// Bytes of a file that are in the page cache.
fn cached(path: &Path, len: usize) -> usize {
    let file = std::fs::File::open(path).unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
    // SAFETY: a fresh mapping of a file that is not changed meanwhile.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, libc::MAP_SHARED, fd, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    let mut pages = vec![0u8; len.div_ceil(4096)];
    // SAFETY: our own mapping, and a byte for each of its pages.
    assert_eq!(unsafe { libc::mincore(at, len, pages.as_mut_ptr()) }, 0);
    // SAFETY: our own mapping, used by nobody else.
    unsafe { libc::munmap(at, len) };
    pages.iter().filter(|page| **page & 1 == 1).count() * 4096
}

#[test]
fn behind_a_reader_the_page_cache_is_given_back() {
    let (folder, reactor) = (folder(), ring(4));
    reactor.block_on(async {
        let bytes = content(24 << 20);
        let path = folder.path().join("f");
        std::fs::write(&path, &bytes).unwrap();
        // What isn't on the disk yet can't be given back.
        std::fs::File::open(&path).unwrap().sync_all().unwrap();
        let file = reactor.open_shared(&path).await.unwrap();
        let (client, connection) = pair(&reactor).await;
        let _ended = start(&reactor, &connection);
        let (whole, step) = (bytes.len() as u64, 1 << 20);
        assert!(cached(&path, bytes.len()) == bytes.len(), "a file that was just written");
        for from in (0..whole).step_by(step) {
            let range = FileRange::new(file.clone(), from, from + step as u64, whole);
            let slot = connection.reserve().await.unwrap();
            connection.fill(slot, Reply { head: Bytes::new(), rest: vec![Item::File(range)].into() });
            let got = reactor.within(PATIENCE, receive(&client, step)).await.expect("a piece");
            assert!(got == bytes[from as usize..from as usize + step]);
        }
        let left = async {
            loop {
                let left = cached(&path, bytes.len());
                if left <= 64 << 10 {
                    return left;
                }
                reactor.sleep(Duration::from_millis(50)).await;
            }
        };
        let left = reactor.within(Duration::from_secs(20), left).await;
        assert!(left.is_some(), "{} bytes are still in the page cache", cached(&path, bytes.len()));
    });
    reactor.shutdown();
}

/// A world in which a node sends replies with parts of a file to another. What arrived, what was to, how sending ended.
fn simulated(seed: u64, fault: Option<DiskFault>) -> (Vec<u8>, Vec<u8>, io::Result<()>, bool) {
    let world = SimWorld::new(seed);
    let (near, far) = (world.add_node(), world.add_node());
    let bytes = content(500_001);
    assert!(world.disk(near).put(Path::new("/f"), &bytes));
    world.disk(near).set_short_per_mille(100);
    let window_bytes = [2_000, 50_000, 300_000][seed as usize % 3];
    world.set_network(NetBehaviour { window_bytes, short_send_per_mille: 100, ..NetBehaviour::default() });
    let limits = ReactorLimits {
        pipes_max: seed as usize % 3,
        pipe_bytes: [4096, 65536][seed as usize % 2],
        pool_bytes_max: 4 << 20,
        ..ReactorLimits::default()
    };
    let reader = world.reactor(far, limits);
    let listener = reader.listen("0.0.0.0:9092".parse().unwrap(), 16).unwrap();
    let got = Rc::new(RefCell::new(None));
    let (into, on) = (Rc::clone(&got), reader.clone());
    reader
        .spawn(async move {
            let (conn, _) = listener.accept().await.unwrap();
            let stream = on.adopt(conn);
            // Some clients take their time: longer than a pipe is held for them.
            on.sleep(Duration::from_millis([0, 200][seed as usize / 3 % 2])).await;
            into.replace(Some(receive(&stream, usize::MAX).await));
        })
        .unwrap();
    let reactor = Reactor::new(world.driver(near), limits);
    let (text, ended, failed) = reactor.block_on(async {
        let file = reactor.open_shared(Path::new("/f")).await.unwrap();
        let to = SocketAddr::new(far.ip(), 9092);
        let connection: Rc<Connection<Bytes>> = Connection::new(reactor.connect(to).await.unwrap(), to, 128);
        if let Some(fault) = fault {
            let mut reads = 0;
            world.disk(near).set_fault(move |op| {
                reads += u32::from(op.kind == DiskOpKind::Read);
                (op.kind == DiskOpKind::Read && reads > 3).then_some(fault)
            });
        }
        let ended = start(&reactor, &connection);
        let (replies, text) = replies(&file, &bytes);
        for reply in replies {
            let slot = connection.reserve().await.unwrap();
            connection.fill(slot, reply);
        }
        connection.drained().await;
        connection.close();
        while ended.borrow().is_none() || got.borrow().is_none() {
            reactor.sleep(Duration::from_millis(1)).await;
        }
        (text, ended.take().unwrap().0, file.has_failed())
    });
    let got = got.take().unwrap();
    (got, text, ended, failed)
}

#[test]
fn in_the_simulation_replies_with_files_arrive_whole_whatever_the_windows_and_short_transfers() {
    for seed in 0..60 {
        let (got, text, ended, failed) = simulated(seed, None);
        assert!(got == text, "seed {seed}: {} of {} bytes; {ended:?}", got.len(), text.len());
        assert!(ended.is_ok() && !failed, "seed {seed}: {ended:?}");
    }
}

#[test]
fn in_the_simulation_a_disk_that_fails_ends_the_connection_and_marks_the_file() {
    for seed in 0..60 {
        let (got, text, ended, failed) = simulated(seed, Some(DiskFault::Errno(libc::EIO)));
        assert!(text.starts_with(&got) && got.len() < text.len(), "seed {seed}: {} bytes", got.len());
        assert_eq!(ended.unwrap_err().raw_os_error(), Some(libc::EIO), "seed {seed}");
        assert!(failed, "seed {seed}");
    }
}
