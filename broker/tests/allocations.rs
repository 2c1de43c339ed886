//! Holds: what one request takes from the heap, on the shard that serves it, once the broker is warm.
//! Never touches: how fast it is. The broker runs within this process, on a real ring and real files.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clap::Parser as _;
use corelog_broker::config::cli::{Action, Cli};
use corelog_broker::config::{Host, load};
use corelog_broker::start;
use support::admin::Admin;
use support::broker::ReservedPort;
use support::raw::{Decoder, Encoder, RawConnection, frame, request};
use support::requests::{FETCH, PRODUCE, Session, batch, fetch, fetch_answer, produce_answer};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The test's own threads are not counted.
    static IS_CLIENT: Cell<bool> = const { Cell::new(false) };
}

// SAFETY: every call is passed on unchanged to the system's allocator; the counters are an atomic and a thread-local cell
// that is initialised at compile time and has no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !IS_CLIENT.get() {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const PATIENCE: Duration = Duration::from_secs(30);
const PARTITIONS: i32 = 16;
/// Requests before anything is counted: buffers, tables and queues have grown to what they need.
const WARM_UP: usize = 300;
const COUNTED: usize = 201;

/// Starts a broker of one shard within this process; it ends with the process.
fn start_broker(data: &std::path::Path, port: &ReservedPort) {
    let listen = port.address().to_string();
    let data = data.to_str().expect("a path in UTF-8");
    let cli = Cli::parse_from(["corelog", "serve", "--listen", &listen, "--data-dir", data, "--shards", "1"]);
    let Action::Serve(args) = cli.into_action() else { panic!("a command line that serves") };
    let host = Host { name: "localhost".into(), cores: vec![0], memory_bytes: None };
    let config = load::load(&args, std::iter::empty(), host).expect("a configuration").config;
    std::thread::spawn(move || start::run(config).expect("a broker that runs"));
    let began = Instant::now();
    while RawConnection::connect(port.address()).and_then(|mut connection| connection.api_versions()).is_err() {
        assert!(began.elapsed() < PATIENCE, "the broker did not come up");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Sends `frame` and receives its answer again and again, and returns the median of what each took. What grows now and
/// then (an index, a table, a new tail chunk) does not show in it: it is the price of a single request.
fn median(connection: &mut RawConnection, frame: &[u8], check: impl Fn(&[u8])) -> usize {
    let mut counts = Vec::new();
    for round in 0..WARM_UP + COUNTED {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        connection.send(frame).expect("sent");
        let answer = connection.receive().expect("an answer");
        check(&answer[4..]);
        // The shard has gone to sleep again when the next request finds it idle; let what follows a reply pass.
        std::thread::sleep(Duration::from_micros(300));
        if round >= WARM_UP {
            counts.push(ALLOCATIONS.load(Ordering::Relaxed) - before);
        }
    }
    counts.sort_unstable();
    counts[COUNTED / 2]
}

// The only test of this binary: no other allocates meanwhile.
#[test]
fn a_request_takes_no_more_from_the_heap_than_its_budget() {
    IS_CLIENT.set(true);
    let data = tempfile::tempdir().expect("a temporary folder");
    let port = ReservedPort::new();
    start_broker(data.path(), &port);
    let admin = Admin::new(&port.address().to_string(), PATIENCE);
    admin.create_topic("t", PARTITIONS as usize, &[]).expect("a topic");
    drop(admin);
    let mut connection = RawConnection::connect(port.address()).expect("a connection");

    let bytes = batch(&[&[7; 100]], 1);
    let head = |count| Encoder::default().null_string().i16(-1).i32(30_000).i32(1).string("t").i32(count);
    let one = frame(&request(PRODUCE, 8, 1, head(1).i32(0).blob(&bytes)));
    let sixteen = (0..PARTITIONS).fold(head(PARTITIONS), |body, partition| body.i32(partition).blob(&bytes));
    let sixteen = frame(&request(PRODUCE, 8, 1, sixteen));
    let taken = |answer: &[u8]| assert_eq!(produce_answer(answer).0, 0);
    let all_taken = |answer: &[u8]| {
        let mut answer = Decoder::new(answer);
        let (topics, _name, partitions) = (answer.i32(), answer.string(), answer.i32());
        assert_eq!((topics, partitions), (1, PARTITIONS));
        for _ in 0..PARTITIONS {
            assert_eq!((answer.i32() < PARTITIONS, answer.i16()), (true, 0));
            // Offsets, the append time, no record errors, no message.
            answer.raw(8 + 8 + 8 + 4 + 2);
        }
    };

    let without_session = Session { id: 0, epoch: -1 };
    // The last batches, which are in the tail; all of what was produced below.
    let last = (WARM_UP + COUNTED) as i64 * 2 - 5;
    let fetch_one = frame(&request(FETCH, 7, 1, fetch(without_session, 500, &[("t", 0, last)])));
    let all: Vec<(&str, i32, i64)> = (1..PARTITIONS).map(|partition| ("t", partition, last / 2 - 5)).collect();
    let fetch_fifteen = frame(&request(FETCH, 7, 1, fetch(without_session, 500, &all)));
    let brought = |answer: &[u8]| assert!(!fetch_answer(answer).partitions[0].5.is_empty());
    let taken_from_heap = [
        ("produce, 1 partition", median(&mut connection, &one, taken)),
        ("produce, 16 partitions", median(&mut connection, &sixteen, all_taken)),
        ("fetch, 1 partition", median(&mut connection, &fetch_one, brought)),
        ("fetch, 15 partitions", median(&mut connection, &fetch_fifteen, brought)),
    ];
    // The budget. Frames, replies, pieces of both, tables and commits use memory again (SmallFrames, the shared replies,
    // Committers); what belongs to a single partition is inline. With more partitions each list of them is made once, in
    // the size it needs: pools of lists that go from core to core would cost more than they save.
    let budget = [
        ("produce, 1 partition", 0),
        // Outcomes wanted + places and entries by owner + outcomes at the owner + its answer.
        ("produce, 16 partitions", 1 + 2 + 1 + 1),
        // Partitions wanted: a list that the fetch session may keep.
        ("fetch, 1 partition", 1),
        // Partitions wanted + targets + results + places and reads by owner + the owner's answer + keys and outcomes for
        // the session + the answer's order + holes for records + pieces + items of the reply.
        ("fetch, 15 partitions", 1 + 1 + 1 + 2 + 1 + 2 + 1 + 1 + 1 + 1),
    ];
    assert_eq!(taken_from_heap, budget, "allocations of a request");
}
