//! The reactor in the simulated world.

use std::cell::{Cell, RefCell};
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use corelog_reactor::sim::{DiskFault, DiskOpKind, NetBehaviour, NodeId, SimStuck, SimWorld};
use corelog_reactor::{Durability, MailPort, Monotonic, OpenHow, Reactor, ReactorLimits, ShardId, Stream, mail_mesh};

fn limits() -> ReactorLimits {
    ReactorLimits { pool_bytes_max: 4 << 20, ..ReactorLimits::default() }
}

fn one_node(seed: u64) -> (SimWorld, NodeId, Reactor) {
    let world = SimWorld::new(seed);
    let node = world.add_node();
    let reactor = world.reactor(node, limits());
    (world, node, reactor)
}

async fn recv(stream: &Stream, buf: &mut [u8]) -> io::Result<usize> {
    loop {
        match stream.try_recv(buf) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => stream.readable().await?,
            done => return done,
        }
    }
}

async fn recv_all(stream: &Stream) -> io::Result<Vec<u8>> {
    let (mut all, mut buf) = (Vec::new(), [0; 1000]);
    loop {
        match recv(stream, &mut buf).await? {
            0 => return Ok(all),
            n => all.extend_from_slice(&buf[..n]),
        }
    }
}

async fn send_all(stream: &Stream, mut data: Vec<u8>) -> io::Result<()> {
    while !data.is_empty() {
        let (sent, back) = stream.send(data).await;
        data = back[sent?..].to_vec();
    }
    Ok(())
}

/// Serves echoes on port 9092 of its node.
fn serve_echo(reactor: &Reactor) {
    let listener = reactor.listen("0.0.0.0:9092".parse().unwrap(), 16).unwrap();
    let own = reactor.clone();
    reactor
        .spawn(async move {
            while let Ok((conn, _)) = listener.accept().await {
                let stream = own.adopt(conn);
                own.spawn(async move {
                    let mut buf = [0; 4096];
                    while let Ok(n @ 1..) = recv(&stream, &mut buf).await {
                        if send_all(&stream, buf[..n].to_vec()).await.is_err() {
                            return;
                        }
                    }
                })
                .unwrap();
            }
        })
        .unwrap();
}

#[test]
fn virtual_hours_pass_at_once() {
    let (world, _, reactor) = one_node(1);
    let begin = std::time::Instant::now();
    let before = world.now();
    reactor.block_on(reactor.sleep(Duration::from_secs(3600)));
    assert!(world.now() - before >= Duration::from_secs(3600));
    assert!(begin.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_file_written_direct_and_durable_survives_a_crash_whole() {
    for seed in 0..50 {
        let (world, node, reactor) = one_node(seed);
        reactor.block_on(async {
            let file = reactor.open(Path::new("/log"), OpenHow::write().create().direct()).await.unwrap();
            reactor.sync_dir(Path::new("/")).await.unwrap();
            let mut buf = reactor.pool().take(8192).unwrap();
            buf.fill(3);
            assert_eq!(file.write_at(buf, 4096, Durability::Dsync).await.0.unwrap(), 8192);
        });
        world.crash(node);
        let reactor = world.reactor(node, limits());
        let bytes = reactor.block_on(async {
            let file = reactor.open(Path::new("/log"), OpenHow::read().direct()).await.unwrap();
            assert_eq!(file.len().unwrap(), 12288);
            let (read, buf) = file.read_at(reactor.pool().take(16384).unwrap(), 0).await;
            assert_eq!(read.unwrap(), 12288);
            buf[..12288].to_vec()
        });
        assert!(bytes[..4096].iter().all(|b| *b == 0));
        assert!(bytes[4096..].iter().all(|b| *b == 3), "seed {seed}");
    }
}

#[test]
fn a_durable_write_in_flight_at_the_crash_is_torn_by_sector() {
    let mut kinds = [0; 3];
    for seed in 0..100 {
        let (world, node, reactor) = one_node(seed);
        world.disk(node).put(Path::new("/log"), &[1; 4096]);
        let own = reactor.clone();
        reactor
            .spawn(async move {
                let file = own.open(Path::new("/log"), OpenHow::write()).await.unwrap();
                file.write_at(vec![2; 4096], 0, Durability::Dsync).await.0.unwrap();
                std::future::pending::<()>().await;
            })
            .unwrap();
        let disk = world.disk(node);
        let before = disk.requests();
        world.run_until(|| disk.requests() == before + 2).unwrap();
        world.crash(node);
        let bytes = disk.contents(Path::new("/log")).unwrap();
        assert_eq!(bytes.len(), 4096);
        for sector in bytes.chunks(512) {
            assert!(sector.iter().all(|b| *b == sector[0]));
        }
        let new = bytes.chunks(512).filter(|s| s[0] == 2).count();
        kinds[match new {
            0 => 0,
            8 => 1,
            _ => 2,
        }] += 1;
    }
    assert!(kinds[0] > 0 && kinds[2] > 0, "never wholly old, or never torn: {kinds:?}");
}

#[test]
fn unaligned_direct_requests_are_refused() {
    let (_world, _, reactor) = one_node(5);
    reactor.block_on(async {
        let file = reactor.open(Path::new("/log"), OpenHow::write().create().direct()).await.unwrap();
        let buf = reactor.pool().take(4096).unwrap();
        let (written, mut buf) = file.write_at(buf, 512, Durability::None).await;
        assert_eq!(written.unwrap_err().raw_os_error(), Some(libc::EINVAL));
        buf.set_len(100);
        let (written, _) = file.write_at(buf, 0, Durability::None).await;
        assert_eq!(written.unwrap_err().raw_os_error(), Some(libc::EINVAL));
    });
}

#[test]
fn injected_faults_hit_the_request_they_are_meant_for() {
    let (world, node, reactor) = one_node(6);
    let disk = world.disk(node);
    reactor.block_on(async {
        let file = reactor.open(Path::new("/log"), OpenHow::write().create()).await.unwrap();
        disk.fail_nth(DiskOpKind::DurableWrite, 1, libc::EIO);
        let outcomes = [
            file.write_at(vec![1; 512], 0, Durability::Dsync).await.0.is_ok(),
            file.write_at(vec![1; 512], 0, Durability::Dsync).await.0.is_ok(),
            file.write_at(vec![1; 512], 0, Durability::Dsync).await.0.is_ok(),
        ];
        assert_eq!(outcomes, [true, false, true]);

        disk.eio_where(|op| op.path == Path::new("/log") && op.kind == DiskOpKind::Read);
        assert_eq!(file.read_at(vec![0; 10], 0).await.0.unwrap_err().raw_os_error(), Some(libc::EIO));
        let other = reactor.open(Path::new("/other"), OpenHow::write().create()).await.unwrap();
        assert_eq!(other.read_at(vec![0; 10], 0).await.0.unwrap(), 0);

        disk.set_fault(|op| (op.len > 1024).then_some(DiskFault::Short(512)));
        assert_eq!(file.write_at(vec![1; 4096], 0, Durability::None).await.0.unwrap(), 512);

        disk.clear_fault();
        disk.set_capacity(Some(disk.used_bytes() + 8192));
        assert_eq!(other.write_at(vec![1; 10_000], 0, Durability::None).await.0.unwrap(), 8192);
        let full = other.write_at(vec![1; 10], 8192, Durability::None).await.0.unwrap_err();
        assert_eq!(full.raw_os_error(), Some(libc::ENOSPC));
        assert_eq!(other.write_at(vec![2; 10], 0, Durability::None).await.0.unwrap(), 10, "space there already");
        reactor.unlink(Path::new("/other")).await.unwrap();
        drop(other);
        assert_eq!(file.write_at(vec![1; 8192], 4096, Durability::None).await.0.unwrap(), 8192);
    });
}

#[test]
fn two_nodes_talk_and_every_byte_arrives_in_order() {
    for seed in 0..20 {
        let world = SimWorld::new(seed);
        let (server, client) = (world.add_node(), world.add_node());
        world.set_network(NetBehaviour {
            segment_bytes_max: 700,
            window_bytes: 5000,
            short_send_per_mille: 200,
            ..NetBehaviour::default()
        });
        serve_echo(&world.reactor(server, limits()));
        let reactor = world.reactor(client, limits());
        let addr = (world.ip(server), 9092).into();
        let data: Vec<u8> = (0..50_000u32).map(|i| (i % 251) as u8).collect();
        let got = reactor.block_on(async {
            let stream = Rc::new(reactor.connect(addr).await.unwrap());
            let (sender, to_send) = (Rc::clone(&stream), data.clone());
            reactor.spawn(async move { send_all(&sender, to_send).await.unwrap() }).unwrap();
            let (mut got, mut buf) = (Vec::new(), [0; 900]);
            while got.len() < data.len() {
                let n = recv(&stream, &mut buf).await.unwrap();
                assert!(n > 0);
                got.extend_from_slice(&buf[..n]);
            }
            got
        });
        assert!(got == data, "seed {seed}");
    }
}

#[test]
fn an_orderly_close_is_the_end_and_a_crash_is_a_reset() {
    let world = SimWorld::new(3);
    let (server, client) = (world.add_node(), world.add_node());
    let serving = world.reactor(server, limits());
    let listener = serving.listen("0.0.0.0:9092".parse().unwrap(), 16).unwrap();
    let own = serving.clone();
    serving
        .spawn(async move {
            let (conn, _) = listener.accept().await.unwrap();
            send_all(&own.adopt(conn), b"bye".to_vec()).await.unwrap();
            let (conn, _) = listener.accept().await.unwrap();
            let _open = own.adopt(conn);
            std::future::pending::<()>().await;
        })
        .unwrap();
    let reactor = world.reactor(client, limits());
    let addr = (world.ip(server), 9092).into();
    reactor.block_on(async {
        let stream = reactor.connect(addr).await.unwrap();
        assert_eq!(recv_all(&stream).await.unwrap(), b"bye");
        let stream = reactor.connect(addr).await.unwrap();
        reactor.sleep(Duration::from_millis(10)).await;
        world.crash(server);
        assert_eq!(recv_all(&stream).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        assert_eq!(reactor.connect(addr).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let _back = world.driver(server);
        assert_eq!(reactor.connect(addr).await.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    });
}

#[test]
fn a_cut_network_delays_and_a_healed_one_delivers() {
    let world = SimWorld::new(4);
    let (server, client) = (world.add_node(), world.add_node());
    serve_echo(&world.reactor(server, limits()));
    let reactor = world.reactor(client, limits());
    reactor.block_on(async {
        let stream = reactor.connect((world.ip(server), 9092).into()).await.unwrap();
        world.cut(server, client);
        send_all(&stream, b"hello".to_vec()).await.unwrap();
        reactor.sleep(Duration::from_secs(5)).await;
        let mut buf = [0; 16];
        assert_eq!(stream.try_recv(&mut buf).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        world.heal();
        let mut got = Vec::new();
        while got.len() < 5 {
            let n = recv(&stream, &mut buf).await.unwrap();
            got.extend_from_slice(&buf[..n]);
        }
        assert_eq!(got, b"hello");
        world.reset_connections(server);
        assert_eq!(recv(&stream, &mut buf).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    });
}

#[test]
fn too_many_open_handles_leave_the_listener_usable() {
    let world = SimWorld::new(4);
    let (server, client) = (world.add_node(), world.add_node());
    let serving = world.reactor(server, limits());
    let listener = serving.listen("0.0.0.0:9092".parse().unwrap(), 16).unwrap();
    world.set_handles_max(server, 1);
    let reactor = world.reactor(client, limits());
    let stream = reactor.block_on(reactor.connect((world.ip(server), 9092).into())).unwrap();
    let refused = serving.block_on(listener.accept()).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EMFILE));
    world.set_handles_max(server, 10);
    let (_conn, from) = serving.block_on(listener.accept()).unwrap();
    assert_eq!(from, stream.local_addr().unwrap());
}

#[test]
fn shards_of_a_node_exchange_mail_and_connections() {
    let world = SimWorld::new(9);
    let node = world.add_node();
    let mut ports = mail_mesh::<corelog_reactor::RawConn>(2, 4);
    let served = Rc::new(Cell::new(0));
    // Shard 1 takes what it is sent.
    let second = Reactor::new(world.driver(node), limits());
    let mut port: MailPort<_> = ports.pop().unwrap();
    let (own, count) = (second.clone(), Rc::clone(&served));
    world.attach(&second, move || {
        own.reap();
        while let Some((from, conn)) = port.recv() {
            assert_eq!(from, ShardId(0));
            let (stream, count) = (own.adopt(conn), Rc::clone(&count));
            own.spawn(async move {
                assert_eq!(recv_all(&stream).await.unwrap(), b"x");
                count.set(count.get() + 1);
            })
            .unwrap();
        }
        own.run_tasks();
        port.wake_peers(&own);
        own.park(&port);
    });
    // Shard 0 accepts and passes on.
    let first = world.reactor(node, limits());
    let port = Rc::new(RefCell::new(ports.pop().unwrap()));
    let listener = first.listen("127.0.0.1:9092".parse().unwrap(), 16).unwrap();
    first
        .spawn(async move {
            while let Ok((conn, _)) = listener.accept().await {
                port.borrow_mut().send(ShardId(1), conn).unwrap();
            }
        })
        .unwrap();
    for _ in 0..3 {
        let own = first.clone();
        first
            .spawn(async move {
                let stream = own.connect("127.0.0.1:9092".parse().unwrap()).await.unwrap();
                send_all(&stream, b"x".to_vec()).await.unwrap();
            })
            .unwrap();
    }
    world.run_until(|| served.get() == 3).unwrap();
}

#[test]
fn a_world_in_which_nothing_can_happen_says_so() {
    let (world, _, reactor) = one_node(11);
    reactor.spawn(std::future::pending()).unwrap();
    let stuck = world.run_until(|| false).unwrap_err();
    assert_eq!(stuck, SimStuck::Nothing { seed: 11, now: world.now() });
}

#[test]
#[should_panic(expected = "the simulation is stuck: seed 12")]
fn blocking_on_what_cannot_happen_says_so() {
    let (_world, _, reactor) = one_node(12);
    reactor.block_on(std::future::pending::<()>());
}

#[test]
#[should_panic(expected = "changed while it was lent")]
fn changing_a_buffer_that_is_lent_is_noticed() {
    struct Shared(Rc<RefCell<Vec<u8>>>);
    // SAFETY: it is not: the test breaks the contract, on one thread, to see it noticed.
    unsafe impl corelog_reactor::IoBufs for Shared {
        fn expose(&self, into: &mut corelog_reactor::IoVecs) {
            into.push(&self.0.borrow());
        }
    }
    let (_world, _, reactor) = one_node(13);
    reactor.block_on(async {
        let file = reactor.open(Path::new("/f"), OpenHow::write().create()).await.unwrap();
        let bytes = Rc::new(RefCell::new(vec![1; 512]));
        let mut write = Box::pin(file.write_at(Shared(Rc::clone(&bytes)), 0, Durability::None));
        std::future::poll_fn(|cx| {
            assert!(write.as_mut().poll(cx).is_pending());
            std::task::Poll::Ready(())
        })
        .await;
        bytes.borrow_mut()[0] = 2;
        write.await.0.unwrap();
    });
}

#[test]
fn a_crashed_nodes_tasks_are_gone_and_its_streams_and_files_with_them() {
    let (world, node, reactor) = one_node(14);
    let alive = Rc::new(());
    let held = Rc::clone(&alive);
    let own = reactor.clone();
    reactor
        .spawn(async move {
            let _held = held;
            let file = own.open(Path::new("/f"), OpenHow::write().create()).await.unwrap();
            loop {
                file.write_at(vec![1; 512], 0, Durability::None).await.0.unwrap();
            }
        })
        .unwrap();
    world.run_for(Duration::from_millis(10));
    assert_eq!(Rc::strong_count(&alive), 2);
    world.crash(node);
    assert_eq!(Rc::strong_count(&alive), 1);
    world.run_for(Duration::from_millis(10));
}

#[test]
fn a_read_dropped_in_flight_parks_its_buffer_until_it_completes() {
    let (world, node, reactor) = one_node(15);
    world.disk(node).put(Path::new("/f"), &[7; 4096]);
    world.disk(node).set_fault(|op| (op.kind == DiskOpKind::Read).then_some(DiskFault::Slow(Duration::from_secs(1))));
    reactor.block_on(async {
        let file = reactor.open(Path::new("/f"), OpenHow::read()).await.unwrap();
        let mut read = Box::pin(file.read_at(reactor.pool().take(4096).unwrap(), 0));
        std::future::poll_fn(|cx| {
            assert!(read.as_mut().poll(cx).is_pending());
            std::task::Poll::Ready(())
        })
        .await;
        drop(read);
        assert_eq!((reactor.counters().ops_parked, reactor.pool().in_use()), (1, 4096));
        reactor.sleep(Duration::from_millis(900)).await;
        assert_eq!((reactor.counters().ops_parked, reactor.pool().in_use()), (1, 4096));
        reactor.sleep(Duration::from_millis(200)).await;
        assert_eq!((reactor.counters().ops_parked, reactor.pool().in_use()), (0, 0));
    });
}

/// A busy world's trace: everything that depends on chance and order.
fn trace(seed: u64) -> Vec<u64> {
    let world = SimWorld::new(seed);
    let (server, client) = (world.add_node(), world.add_node());
    serve_echo(&world.reactor(server, limits()));
    let trace = Rc::new(RefCell::new(Vec::new()));
    let done = Rc::new(Cell::new(0));
    let reactor = world.reactor(client, limits());
    for task in 0..4u64 {
        let (own, trace, done) = (reactor.clone(), Rc::clone(&trace), Rc::clone(&done));
        let addr = (world.ip(server), 9092).into();
        reactor
            .spawn(async move {
                let stream = own.connect(addr).await.unwrap();
                let path = format!("/f{task}");
                let file = own.open(Path::new(&path), OpenHow::write().create()).await.unwrap();
                for round in 0..20u64 {
                    send_all(&stream, vec![task as u8; 100]).await.unwrap();
                    let mut buf = [0; 64];
                    let n = recv(&stream, &mut buf).await.unwrap();
                    let _ = file.write_at(buf[..n].to_vec(), round * 64, Durability::Dsync).await;
                    trace.borrow_mut().extend([task, n as u64, own.now().as_nanos(), own.random_u64()]);
                }
                done.set(done.get() + 1);
            })
            .unwrap();
    }
    world.run_until(|| done.get() == 4).unwrap();
    trace.take()
}

#[test]
fn the_same_seed_gives_the_same_run() {
    assert_eq!(trace(77), trace(77));
    assert_ne!(trace(77), trace(78));
}

#[test]
fn mail_wakes_a_shard_whose_sender_did_nothing_but_pass_it_on() {
    // Such a turn runs no task and reaps nothing: only the wake-up says that the world has not come to rest.
    let world = SimWorld::new(3);
    let node = world.add_node();
    let passed = Rc::new(Cell::new(0));
    for mut port in mail_mesh::<u32>(3, 4) {
        let reactor = Reactor::new(world.driver(node), limits());
        let (own, count) = (reactor.clone(), Rc::clone(&passed));
        if port.id() == ShardId(0) {
            port.send(ShardId(1), 0).unwrap();
        }
        world.attach(&reactor, move || {
            own.reap();
            while let Some((_, hops)) = port.recv() {
                count.set(hops);
                port.send(ShardId((port.id().0 + 1) % 3), hops + 1).unwrap();
            }
            own.run_tasks();
            port.wake_peers(&own);
            own.park(&port);
        });
    }
    // At least: the world looks once a round, and a message may pass several shards in one.
    world.run_until(|| passed.get() >= 1_000).unwrap();
}

#[test]
fn work_that_outlasts_its_patience_is_given_up_and_can_be_gone_on_with() {
    let world = SimWorld::new(5);
    let reactor = Reactor::new(world.driver(world.add_node()), limits());
    reactor.block_on(async {
        let begun = reactor.now();
        assert_eq!(reactor.within(Duration::from_secs(2), std::future::ready(7)).await, Some(7));
        assert_eq!(reactor.now(), begun, "what is done is not waited for");
        let mut work = std::pin::pin!(reactor.sleep(Duration::from_secs(5)));
        assert_eq!(reactor.within(Duration::from_secs(2), work.as_mut()).await, None);
        assert_eq!(reactor.now(), begun + Duration::from_secs(2));
        assert!(reactor.until(Monotonic::MAX, work).await.is_some());
        assert_eq!(reactor.now(), begun + Duration::from_secs(5));
    });
}

/// Sends bytes of a file through a pipe from node to node; what arrived, and how the sending ended.
fn spliced(seed: u64, fault: Option<DiskFault>, short_send_per_mille: u32) -> (Vec<u8>, Vec<u8>, io::Result<()>) {
    let world = SimWorld::new(seed);
    let (near, far) = (world.add_node(), world.add_node());
    let bytes: Vec<u8> = (0..300_000u32).map(|i| (i % 251) as u8).collect();
    assert!(world.disk(near).put(Path::new("/f"), &bytes));
    world.disk(near).set_short_per_mille(200);
    world.set_network(NetBehaviour { window_bytes: 10_000, short_send_per_mille, ..NetBehaviour::default() });
    let reader = world.reactor(far, limits());
    let listener = reader.listen("0.0.0.0:9092".parse().unwrap(), 16).unwrap();
    let got = Rc::new(RefCell::new(None));
    let (into, on) = (Rc::clone(&got), reader.clone());
    reader
        .spawn(async move {
            let (conn, _) = listener.accept().await.unwrap();
            let all = recv_all(&on.adopt(conn)).await;
            into.replace(Some(all.unwrap_or_default()));
        })
        .unwrap();
    let reactor = Reactor::new(world.driver(near), limits());
    let sent = reactor.block_on(async {
        let file = reactor.open_shared(Path::new("/f")).await.unwrap();
        file.advise(&reactor, 0, 1000, corelog_reactor::Advice::DontNeed).await.unwrap();
        if let Some(fault) = fault {
            let mut reads = 0;
            world.disk(near).set_fault(move |op| {
                reads += u32::from(op.kind == DiskOpKind::Read);
                (op.kind == DiskOpKind::Read && reads > 3).then_some(fault)
            });
        }
        let to = std::net::SocketAddr::new(far.ip(), 9092);
        let stream = reactor.connect(to).await.unwrap();
        let sending = async {
            let mut at = 0;
            while at < bytes.len() {
                let mut pipe = reactor.take_pipe().unwrap();
                let filled;
                (filled, pipe) = pipe.fill(&file, at as u64, 50_000.min(bytes.len() - at)).await;
                filled?;
                while pipe.filled() > 0 {
                    match stream.try_splice(&mut pipe, usize::MAX, false) {
                        Ok(count) => at += count,
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => stream.writable().await?,
                        Err(error) => return Err(error),
                    }
                }
            }
            Ok(())
        };
        let sent = sending.await;
        drop(stream);
        while got.borrow().is_none() {
            reactor.sleep(Duration::from_millis(1)).await;
        }
        sent
    });
    assert_eq!(reactor.pipes(), usize::from(fault.is_none()), "one pipe did, or was closed");
    let got = got.take().unwrap();
    (bytes, got, sent)
}

#[test]
fn bytes_of_a_file_reach_the_other_node_through_a_pipe() {
    for seed in 0..20 {
        let (bytes, got, sent) = spliced(seed, None, 300);
        assert!(sent.is_ok(), "seed {seed}: {sent:?}");
        assert!(bytes == got, "seed {seed}: {} of {} bytes", got.len(), bytes.len());
    }
}

#[test]
fn a_fault_of_the_disk_ends_the_filling_of_a_pipe() {
    for seed in 0..20 {
        let (bytes, got, sent) = spliced(seed, Some(DiskFault::Errno(libc::EIO)), 0);
        assert_eq!(sent.unwrap_err().raw_os_error(), Some(libc::EIO), "seed {seed}");
        assert!(bytes.starts_with(&got) && got.len() < bytes.len(), "seed {seed}");
    }
}
