//! The ring when its queues are too small, and when signals come.

use std::cell::Cell;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::thread::JoinHandleExt;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use corelog_reactor::ring::{RingConfig, RingDriver};
use corelog_reactor::{NoMail, Reactor, ReactorLimits, Stream};

fn reactor(config: RingConfig) -> Reactor {
    Reactor::new(Box::new(RingDriver::new(config).unwrap()), ReactorLimits::default())
}

async fn answer_all(stream: Stream, answered: Rc<Cell<usize>>) {
    let mut buf = [0; 64];
    loop {
        match stream.try_recv(&mut buf) {
            Ok(0) => return,
            Ok(got) => {
                assert_eq!(stream.send(buf[..got].to_vec()).await.0.unwrap(), got);
                answered.set(answered.get() + 1);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => stream.readable().await.unwrap(),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn readiness_that_overflows_the_completion_queue_is_not_lost() {
    // The kernel ends a standing operation whose completion finds no room.
    let reactor = reactor(RingConfig { sq_entries: 4, cq_entries: 8, ..RingConfig::default() });
    let connections = 100;
    let answered = Rc::new(Cell::new(0));
    reactor.block_on(async {
        let listener = reactor.listen("127.0.0.1:0".parse().unwrap(), 128).unwrap();
        let mut clients = Vec::new();
        for _ in 0..connections {
            let client = TcpStream::connect(listener.local_addr()).unwrap();
            client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            clients.push(client);
            let stream = reactor.adopt(listener.accept().await.unwrap().0);
            reactor.spawn(answer_all(stream, Rc::clone(&answered))).unwrap();
        }
        for round in 1..=50 {
            // All at once, while the reactor isn't looking.
            for client in &mut clients {
                client.write_all(&[round]).unwrap();
            }
            let began = Instant::now();
            while answered.get() < connections * usize::from(round) {
                assert!(began.elapsed() < Duration::from_secs(20), "{} answers in round {round}", answered.get());
                reactor.sleep(Duration::from_millis(1)).await;
            }
            for client in &mut clients {
                let mut byte = [0];
                client.read_exact(&mut byte).unwrap();
                assert_eq!(byte, [round]);
            }
        }
    });
}

static SIGNALS: AtomicU64 = AtomicU64::new(0);

extern "C" fn count(_signal: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn signals_end_a_sleep_and_lose_no_operation() {
    // SAFETY: a handler that does nothing but count; without SA_RESTART, so that calls are interrupted.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = count as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGURG, &raw const action, std::ptr::null_mut()), 0);
    }
    let done = std::sync::Arc::new(AtomicBool::new(false));
    let working = std::thread::spawn({
        let done = std::sync::Arc::clone(&done);
        move || {
            let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            let reactor = reactor(RingConfig::default());
            let mut turns = 0u64;
            reactor.block_on(async {
                let path = dir.path().join("f");
                let file = reactor.open(&path, corelog_reactor::OpenHow::write().create()).await.unwrap();
                for block in 0..200u64 {
                    let (written, _) =
                        file.write_at(vec![block as u8; 4096], block * 4096, corelog_reactor::Durability::Dsync).await;
                    assert_eq!(written.unwrap(), 4096, "block {block}");
                }
                assert_eq!(file.len().unwrap(), 200 * 4096);
            });
            // Nothing to wait for: only signals end these sleeps.
            let before = SIGNALS.load(Ordering::Relaxed);
            while SIGNALS.load(Ordering::Relaxed) < before + 50 {
                reactor.reap();
                reactor.park(&NoMail);
                turns += 1;
            }
            done.store(true, Ordering::Release);
            turns
        }
    });
    let began = Instant::now();
    while !done.load(Ordering::Acquire) {
        assert!(began.elapsed() < Duration::from_secs(60), "{} signals", SIGNALS.load(Ordering::Relaxed));
        // SAFETY: the thread has not been joined yet.
        unsafe { libc::pthread_kill(working.as_pthread_t(), libc::SIGURG) };
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(working.join().unwrap() <= SIGNALS.load(Ordering::Relaxed) + 1);
}
