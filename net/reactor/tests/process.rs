//! What the reactor promises about the process: no allocation once warm, an end when a task panics.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use corelog_reactor::ring::{RingConfig, RingDriver};
use corelog_reactor::{
    AlignedBuf, Durability, MailPort, Notify, OpenHow, RawConn, Reactor, ReactorLimits, RemoteWaker,
};

struct Counting;
thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is the system allocator's; only a count is kept besides.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: passed on as it came.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: passed on as it came.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn reactor() -> Reactor {
    Reactor::new(Box::new(RingDriver::new(RingConfig::default()).unwrap()), ReactorLimits::default())
}

#[test]
fn a_warm_reactor_allocates_nothing_for_io_timers_and_wakes() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let reactor = reactor();
    let allocated = reactor.block_on(async {
        let file = reactor.open(&dir.path().join("log"), OpenHow::write().create().direct()).await.unwrap();
        let listener = reactor.listen("127.0.0.1:0".parse().unwrap(), 1).unwrap();
        let client = reactor.connect(listener.local_addr()).await.unwrap();
        let server = reactor.adopt(listener.accept().await.unwrap().0);
        let notify = Notify::new();
        let mut bytes = Some(vec![1u8; 100]);
        let mut received = [0; 100];
        let mut before = 0;
        for round in 0..200u64 {
            if round == 100 {
                before = ALLOCATIONS.get();
            }
            let buf = reactor.pool().take(4096).unwrap();
            let (written, buf) = file.write_at(buf, round * 4096, Durability::None).await;
            assert_eq!(written.unwrap(), 4096);
            assert_eq!(file.read_at(buf, round * 4096).await.0.unwrap(), 4096);
            let (sent, back) = client.send(bytes.take().unwrap()).await;
            assert_eq!(sent.unwrap(), 100);
            bytes = Some(back);
            let mut got = 0;
            while got < 100 {
                match server.try_recv(&mut received[got..]) {
                    Ok(n) => got += n,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => server.readable().await.unwrap(),
                    Err(error) => panic!("{error}"),
                }
            }
            notify.notify();
            notify.notified().await;
            reactor.sleep(Duration::from_micros(10)).await;
            drop(reactor.sleep(Duration::from_secs(10)));
            reactor.yield_now().await;
        }
        ALLOCATIONS.get() - before
    });
    assert_eq!(allocated, 0, "allocations in 100 warm rounds");
}

#[test]
#[ignore = "run by a_panicking_task_ends_the_process"]
fn child_with_a_panicking_task() {
    let reactor = reactor();
    reactor.spawn(async { panic!("on purpose") }).unwrap();
    reactor.block_on(reactor.sleep(Duration::from_secs(10)));
}

#[test]
fn a_panicking_task_ends_the_process() {
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_with_a_panicking_task", "--ignored", "--nocapture"])
        .output()
        .unwrap();
    assert_eq!(child.status.signal(), Some(libc::SIGABRT));
    assert!(String::from_utf8_lossy(&child.stderr).contains("on purpose"));
}

#[test]
fn what_crosses_cores_is_send() {
    fn is_send<T: Send>() {}
    is_send::<RawConn>();
    is_send::<AlignedBuf>();
    is_send::<RemoteWaker>();
    is_send::<MailPort<AlignedBuf>>();
}
