//! The reactor on a real ring, files and sockets.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use corelog_reactor::ring::{RingConfig, RingDriver};
use corelog_reactor::{Durability, Listener, OpenHow, Reactor, ReactorLimits, Stream};

fn reactor_with(limits: ReactorLimits) -> Reactor {
    Reactor::new(Box::new(RingDriver::new(RingConfig::default()).unwrap()), limits)
}

fn reactor() -> Reactor {
    reactor_with(ReactorLimits::default())
}

fn listener(reactor: &Reactor) -> Listener {
    reactor.listen("127.0.0.1:0".parse().unwrap(), 128).unwrap()
}

async fn pair(reactor: &Reactor) -> (Stream, Stream) {
    let listener = listener(reactor);
    let client = reactor.connect(listener.local_addr()).await.unwrap();
    let (conn, from) = listener.accept().await.unwrap();
    assert_eq!(from, client.local_addr().unwrap());
    (client, reactor.adopt(conn))
}

async fn recv(stream: &Stream, buf: &mut [u8]) -> io::Result<usize> {
    loop {
        match stream.try_recv(buf) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => stream.readable().await?,
            done => return done,
        }
    }
}

/// A folder on a real disk: tmpfs has no O_DIRECT everywhere.
fn disk_folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

#[test]
fn a_durable_direct_write_reads_back() {
    let dir = disk_folder();
    let reactor = reactor();
    reactor.block_on(async {
        let path = dir.path().join("00000000000000000000.log");
        let file = reactor.open(&path, OpenHow::write().create_new().direct()).await.unwrap();
        reactor.sync_dir(dir.path()).await.unwrap();
        let mut first = reactor.pool().take(8192).unwrap();
        let mut second = reactor.pool().take(4096).unwrap();
        first.fill(b'a');
        second.fill(b'b');
        let (written, bufs) = file.write_at([first, second], 4096, Durability::Dsync).await;
        assert_eq!(written.unwrap(), 12288);
        drop(bufs);
        assert_eq!(file.len().unwrap(), 16384);
        let (read, buf) = file.read_at(reactor.pool().take(16384).unwrap(), 0).await;
        assert_eq!(read.unwrap(), 16384);
        assert!(buf[..4096].iter().all(|b| *b == 0));
        assert!(buf[4096..12288].iter().all(|b| *b == b'a'));
        assert!(buf[12288..].iter().all(|b| *b == b'b'));
        let (read, _) = file.read_at(reactor.pool().take(4096).unwrap(), 1 << 20).await;
        assert_eq!(read.unwrap(), 0, "past the end");
    });
    assert_eq!(reactor.pool().in_use(), 0);
}

#[test]
fn a_file_says_when_it_was_last_changed_and_a_missing_one_is_an_error() {
    let dir = disk_folder();
    let reactor = reactor();
    let path = dir.path().join("f");
    let file = std::fs::File::create(&path).unwrap();
    file.set_modified(std::time::UNIX_EPOCH + Duration::from_millis(1_234_567)).unwrap();
    assert_eq!(reactor.changed_at(&path).unwrap().map(|at| at.0), Some(1_234_567));
    assert_eq!(reactor.changed_at(&dir.path().join("g")).unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn folders_and_files_are_made_renamed_listed_and_removed() {
    let dir = disk_folder();
    let reactor = reactor();
    reactor.block_on(async {
        let folder = dir.path().join("topic-0");
        reactor.mkdir(&folder).await.unwrap();
        assert_eq!(reactor.mkdir(&folder).await.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        let (old, new) = (folder.join("a"), folder.join("b"));
        let file = reactor.open(&old, OpenHow::write().create()).await.unwrap();
        let (written, _) = file.write_at(b"hello".to_vec(), 0, Durability::None).await;
        assert_eq!(written.unwrap(), 5);
        file.allocate(0, 100).await.unwrap();
        assert_eq!(file.len().unwrap(), 100);
        file.truncate(3).await.unwrap();
        file.fdatasync().await.unwrap();
        file.fsync().await.unwrap();
        file.close().await.unwrap();
        reactor.rename(&old, &new).await.unwrap();
        reactor.sync_dir(&folder).await.unwrap();
        let listed = reactor.list_dir(&folder).unwrap();
        assert_eq!(listed.len(), 1);
        assert_eq!((listed[0].name.to_str(), listed[0].is_dir, listed[0].len), (Some("b"), false, 3));
        assert_eq!(reactor.open(&old, OpenHow::read()).await.unwrap_err().kind(), io::ErrorKind::NotFound);
        reactor.unlink(&new).await.unwrap();
        reactor.remove_dir(&folder).await.unwrap();
        assert!(reactor.list_dir(&folder).is_err());
    });
}

#[test]
fn a_large_transfer_arrives_whole_and_ends_with_the_close() {
    let reactor = reactor();
    let total = 20 << 20;
    reactor.block_on(async {
        let (client, server) = pair(&reactor).await;
        reactor
            .spawn(async move {
                let data: Vec<u8> = (0..total).map(|i| (i % 251) as u8).collect();
                let mut sent = 0;
                let mut rest = data;
                while !rest.is_empty() {
                    let (n, back) = client.send(rest).await;
                    let n = n.unwrap();
                    sent += n;
                    rest = back[n..].to_vec();
                }
                assert_eq!(sent, total);
            })
            .unwrap();
        let mut got = 0;
        let mut buf = vec![0; 256 << 10];
        loop {
            let n = recv(&server, &mut buf).await.unwrap();
            if n == 0 {
                break;
            }
            assert!(buf[..n].iter().enumerate().all(|(i, b)| *b == ((got + i) % 251) as u8));
            got += n;
        }
        assert_eq!(got, total);
        // The end stays readable.
        server.readable().await.unwrap();
        assert_eq!(server.try_recv(&mut buf).unwrap(), 0);
    });
}

#[test]
fn small_messages_back_and_forth_lose_no_edge() {
    let reactor = reactor();
    reactor.block_on(async {
        let (client, server) = pair(&reactor).await;
        reactor
            .spawn(async move {
                let mut buf = [0; 64];
                while let Ok(n @ 1..) = recv(&server, &mut buf).await {
                    assert_eq!(server.send(buf[..n].to_vec()).await.0.unwrap(), n);
                }
            })
            .unwrap();
        let mut buf = [0; 64];
        for round in 0..2000u32 {
            client.send(round.to_be_bytes().to_vec()).await.0.unwrap();
            let mut got = 0;
            while got < 4 {
                got += recv(&client, &mut buf[got..]).await.unwrap();
            }
            assert_eq!(buf[..4], round.to_be_bytes());
        }
    });
    let counters = reactor.counters();
    assert!(counters.ops < 2000 * 2 + 50, "readiness must stand, not be asked for each time: {counters:?}");
}

#[test]
fn readiness_remains_while_bytes_are_left() {
    let reactor = reactor();
    reactor.block_on(async {
        let (client, server) = pair(&reactor).await;
        client.send(vec![7u8; 1000]).await.0.unwrap();
        let mut buf = [0; 100];
        for _ in 0..10 {
            server.readable().await.unwrap();
            assert_eq!(server.try_recv(&mut buf).unwrap(), 100);
        }
        assert_eq!(server.try_recv(&mut buf).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(client);
        server.readable().await.unwrap();
        assert_eq!(server.try_recv(&mut buf).unwrap(), 0);
    });
}

#[test]
fn the_end_is_seen_even_if_it_was_reported_before_the_last_bytes_were_read() {
    let reactor = reactor();
    reactor.block_on(async {
        let (client, server) = pair(&reactor).await;
        client.send(vec![7u8; 10]).await.0.unwrap();
        server.readable().await.unwrap();
        drop(client);
        // Bytes and end are both reported by now; the short count below must not clear the end.
        reactor.sleep(Duration::from_millis(10)).await;
        let mut buf = [0; 100];
        assert_eq!(server.try_recv(&mut buf).unwrap(), 10);
        server.readable().await.unwrap();
        assert_eq!(server.try_recv(&mut buf).unwrap(), 0);
    });
}

#[test]
fn a_hang_up_is_seen_over_unread_bytes_and_a_pause_is_none() {
    let reactor = reactor();
    reactor.block_on(async {
        let (client, server) = pair(&reactor).await;
        client.send(vec![1; 100]).await.0.unwrap();
        server.readable().await.unwrap();
        let mut hung_up = Box::pin(server.hung_up());
        let paused = std::future::poll_fn(|cx| std::task::Poll::Ready(hung_up.as_mut().poll(cx).is_pending()));
        assert!(paused.await, "a peer that only sends has not hung up");
        drop(client);
        hung_up.await;
        assert_eq!(server.try_recv(&mut [0; 200]).unwrap(), 100, "what came before is still there");
        // Our own end counts as well.
        let (_client, server) = pair(&reactor).await;
        server.shutdown();
        server.hung_up().await;
    });
}

#[test]
fn a_send_dropped_in_flight_parks_its_buffer_until_the_completion() {
    struct Tracked(Vec<u8>, Rc<Cell<bool>>);
    impl Drop for Tracked {
        fn drop(&mut self) {
            self.1.set(true);
        }
    }
    // SAFETY: the bytes are a Vec's and never change.
    unsafe impl corelog_reactor::IoBufs for Tracked {
        fn expose(&self, into: &mut corelog_reactor::IoVecs) {
            into.push(&self.0);
        }
    }
    let reactor = reactor();
    let dropped = Rc::new(Cell::new(false));
    reactor.block_on(async {
        let (client, server) = pair(&reactor).await;
        // Nobody receives: it cannot complete.
        let mut send = Box::pin(client.send(Tracked(vec![1; 64 << 20], Rc::clone(&dropped))));
        let pending = std::future::poll_fn(|cx| std::task::Poll::Ready(send.as_mut().poll(cx).is_pending())).await;
        assert!(pending);
        reactor.sleep(Duration::from_millis(5)).await;
        let before = reactor.counters();
        drop(send);
        assert!(!dropped.get(), "the kernel still has it");
        assert_eq!(reactor.counters().ops_parked, before.ops_parked + 1);
        while !dropped.get() {
            reactor.sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(reactor.counters().ops_parked, 0);
        drop((client, server));
    });
}

#[test]
fn an_accept_that_is_dropped_loses_no_connection() {
    let reactor = reactor();
    reactor.block_on(async {
        let listener = listener(&reactor);
        let mut accept = Box::pin(listener.accept());
        assert!(std::future::poll_fn(|cx| std::task::Poll::Ready(accept.as_mut().poll(cx).is_pending())).await);
        let _client = reactor.connect(listener.local_addr()).await.unwrap();
        reactor.sleep(Duration::from_millis(2)).await;
        drop(accept);
        listener.accept().await.unwrap();
    });
}

#[test]
fn a_second_listener_on_the_address_is_refused() {
    let reactor = reactor();
    let first = listener(&reactor);
    assert_eq!(reactor.listen(first.local_addr(), 1).unwrap_err().kind(), io::ErrorKind::AddrInUse);
}

#[test]
fn connecting_to_nobody_is_refused() {
    let reactor = reactor();
    let addr = listener(&reactor).local_addr();
    reactor.block_on(async {
        reactor.sleep(Duration::from_millis(5)).await;
        assert_eq!(reactor.connect(addr).await.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    });
}

#[test]
fn timers_fire_in_order_and_dropped_ones_are_gone() {
    let reactor = reactor();
    let order = Rc::new(std::cell::RefCell::new(Vec::new()));
    reactor.block_on(async {
        for (name, ms) in [(3, 30), (1, 10), (2, 20)] {
            let (timer, order) = (reactor.sleep(Duration::from_millis(ms)), Rc::clone(&order));
            reactor
                .spawn(async move {
                    timer.await;
                    order.borrow_mut().push(name);
                })
                .unwrap();
        }
        let long = reactor.sleep(Duration::from_secs(3600));
        let mut long = Box::pin(long);
        assert!(std::future::poll_fn(|cx| std::task::Poll::Ready(long.as_mut().poll(cx).is_pending())).await);
        drop(long);
        let start = reactor.now();
        reactor.sleep(Duration::from_millis(40)).await;
        assert!(reactor.now() - start >= Duration::from_millis(40));
        // On a busy machine all four were due in one turn.
        reactor.yield_now().await;
    });
    assert_eq!(*order.borrow(), [1, 2, 3]);
    assert_eq!(reactor.counters().timers, 0);
}

#[test]
fn more_operations_than_slots_wait_for_one() {
    let dir = disk_folder();
    let reactor = reactor_with(ReactorLimits { op_slots_max: 2, ..ReactorLimits::default() });
    let done = Rc::new(Cell::new(0));
    reactor.block_on(async {
        let file = reactor.open(&dir.path().join("f"), OpenHow::write().create()).await.unwrap();
        let file = Rc::new(file);
        for i in 0..50u64 {
            let (file, done) = (Rc::clone(&file), Rc::clone(&done));
            reactor
                .spawn(async move {
                    file.write_at(vec![i as u8; 10], i * 10, Durability::None).await.0.unwrap();
                    done.set(done.get() + 1);
                })
                .unwrap();
        }
        while done.get() < 50 {
            assert!(reactor.counters().ops_in_flight <= 2);
            reactor.yield_now().await;
        }
        assert_eq!(file.len().unwrap(), 500);
    });
}

#[test]
fn more_operations_than_the_submission_queue_holds_all_complete() {
    let config = RingConfig { sq_entries: 4, cq_entries: 8, ..RingConfig::default() };
    let reactor = Reactor::new(Box::new(RingDriver::new(config).unwrap()), ReactorLimits::default());
    let dir = disk_folder();
    let done = Rc::new(Cell::new(0));
    reactor.block_on(async {
        let file = Rc::new(reactor.open(&dir.path().join("f"), OpenHow::write().create()).await.unwrap());
        for i in 0..500u64 {
            let (file, done) = (Rc::clone(&file), Rc::clone(&done));
            reactor
                .spawn(async move {
                    file.write_at(vec![1; 10], i * 10, Durability::None).await.0.unwrap();
                    done.set(done.get() + 1);
                })
                .unwrap();
        }
        while done.get() < 500 {
            reactor.yield_now().await;
        }
    });
}

#[test]
fn tasks_past_the_limit_are_refused() {
    let reactor = reactor_with(ReactorLimits { tasks_max: 2, ..ReactorLimits::default() });
    reactor.spawn(std::future::pending()).unwrap();
    reactor.spawn(async {}).unwrap();
    assert_eq!(reactor.spawn(async {}).unwrap_err().tasks_max, 2);
    reactor.block_on(reactor.yield_now());
    reactor.run_tasks();
    reactor.spawn(async {}).unwrap();
}

#[test]
fn a_turn_polls_no_more_tasks_than_its_bound() {
    let reactor = reactor_with(ReactorLimits { polls_per_turn_max: 3, ..ReactorLimits::default() });
    for _ in 0..10 {
        reactor.spawn(async {}).unwrap();
    }
    reactor.run_tasks();
    assert_eq!((reactor.counters().tasks, reactor.counters().turns_cut), (7, 1));
}

#[test]
fn a_long_turn_shows_in_the_stalls() {
    let reactor = reactor();
    reactor.block_on(async {
        std::thread::sleep(Duration::from_millis(30));
        reactor.yield_now().await;
        reactor.sleep(Duration::from_millis(1)).await;
    });
    let stalls = reactor.stalls();
    assert!(stalls.longest() >= Duration::from_millis(30));
    assert!(stalls.longer_than(Duration::from_millis(25)) >= 1);
    assert!(stalls.turns() >= 2);
}

#[test]
fn a_thread_without_a_ring_wakes_the_reactor() {
    let reactor = reactor();
    let waker = reactor.remote_waker().unwrap();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let waking = std::thread::spawn({
        let (waker, stop) = (waker.clone(), std::sync::Arc::clone(&stop));
        move || {
            for round in 0..3 {
                std::thread::sleep(Duration::from_millis(20));
                stop.store(round == 2, std::sync::atomic::Ordering::Release);
                waker.wake();
            }
        }
    });
    let mut turns = 0;
    while !stop.load(std::sync::atomic::Ordering::Acquire) {
        reactor.reap();
        reactor.run_tasks();
        reactor.park(&corelog_reactor::NoMail);
        turns += 1;
        assert!(turns < 1000, "must sleep between wakes");
    }
    waking.join().unwrap();
}

#[test]
fn an_idle_reactor_sleeps() {
    let reactor = reactor();
    let cpu = || {
        let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: one writable timespec.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut at) };
        Duration::new(at.tv_sec as u64, at.tv_nsec as u32)
    };
    let before = cpu();
    reactor.block_on(reactor.sleep(Duration::from_millis(300)));
    assert!(cpu() - before < Duration::from_millis(3), "{:?}", cpu() - before);
}

#[test]
fn shutdown_ends_tasks_and_operations() {
    let reactor = reactor();
    reactor.block_on(async {
        let (client, server) = pair(&reactor).await;
        let keep = reactor.clone();
        reactor
            .spawn(async move {
                let _keep = (keep, client);
                server.readable().await.unwrap();
                unreachable!("nothing is ever sent");
            })
            .unwrap();
        reactor.sleep(Duration::from_millis(5)).await;
    });
    reactor.shutdown();
    let counters = reactor.counters();
    assert_eq!((counters.tasks, counters.ops_in_flight), (0, 0));
}

#[test]
fn a_closed_files_descriptor_is_free_again() {
    let dir = disk_folder();
    let reactor = reactor();
    reactor.block_on(async {
        let path = dir.path().join("f");
        let first = reactor.open(&path, OpenHow::write().create()).await.unwrap();
        let second = reactor.open(&path, OpenHow::write()).await.unwrap();
        let number = first.handle();
        first.close().await.unwrap();
        assert_eq!(reactor.open(&path, OpenHow::read()).await.unwrap().handle(), number);
        // Closed by the drop above, without waiting.
        while reactor.counters().ops_in_flight > 0 {
            reactor.yield_now().await;
        }
        drop(second.close());
        assert_eq!(reactor.counters().ops_in_flight, 1, "a close that was never polled closes by its drop");
    });
}

#[test]
fn a_spinning_reactor_sleeps_when_nothing_comes() {
    let limits = ReactorLimits { spin_max: Duration::from_micros(50), ..ReactorLimits::default() };
    let reactor = reactor_with(limits);
    reactor.block_on(async {
        let (client, server) = pair(&reactor).await;
        let mut buf = [0; 8];
        for _ in 0..50 {
            client.send(vec![1; 8]).await.0.unwrap();
            assert_eq!(recv(&server, &mut buf).await.unwrap(), 8);
        }
        let before = reactor.counters().sleeps;
        reactor.sleep(Duration::from_millis(20)).await;
        assert!(reactor.counters().sleeps > before);
    });
}

#[test]
fn a_deadline_centuries_away_lets_the_reactor_sleep() {
    let reactor = reactor();
    let mut far = Box::pin(reactor.sleep_until(corelog_reactor::Monotonic::from_nanos(u64::MAX - 1)));
    let waker = reactor.remote_waker().unwrap();
    let (parking, parks) = std::sync::mpsc::channel();
    let waking = std::thread::spawn(move || {
        parks.recv().unwrap();
        std::thread::sleep(Duration::from_millis(50));
        waker.wake();
    });
    reactor
        .spawn(async move {
            far.as_mut().await;
            unreachable!("not in this century");
        })
        .unwrap();
    reactor.run_tasks();
    let began = std::time::Instant::now();
    parking.send(()).unwrap();
    reactor.park(&corelog_reactor::NoMail);
    assert!(began.elapsed() >= Duration::from_millis(50), "it slept for {:?}", began.elapsed());
    waking.join().unwrap();
}

#[test]
fn a_waker_that_outlives_block_on_keeps_no_later_turn_awake() {
    let reactor = reactor();
    let mut kept = None;
    reactor.block_on(std::future::poll_fn(|cx| {
        kept = Some(cx.waker().clone());
        std::task::Poll::Ready(())
    }));
    kept.unwrap().wake();
    reactor.reap();
    let before = reactor.counters().sleeps;
    let deadline = reactor.sleep(Duration::from_millis(5));
    reactor.spawn(deadline).unwrap();
    reactor.run_tasks();
    reactor.park(&corelog_reactor::NoMail);
    assert_eq!(reactor.counters().sleeps, before + 1);
}
