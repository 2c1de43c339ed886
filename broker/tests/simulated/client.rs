//! Holds: a client's connection in the simulated world: typed requests out, frames in, in whatever order the test wants.
//! Never touches: what requests mean. Asserts: replies come in the order of their requests, and they come at all.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::BytesMut;
use corelog_net::wire::{ApiKey, Request, ResponseHeader};
use corelog_reactor::{Notify, Reactor, Stream};

/// Virtual time after which a missing answer is a broker that hangs.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(20);

/// The connection ended before the answer came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

/// Folds what happens into a number: the same seed must give the same number.
#[derive(Clone, Default)]
pub struct Trace(Rc<Cell<u64>>);

impl Trace {
    pub fn fold(&self, bytes: &[u8]) {
        let hash = self.0.get().rotate_left(17) ^ u64::from(crc32c::crc32c_append(self.0.get() as u32, bytes));
        self.0.set(hash);
    }

    pub fn value(&self) -> u64 {
        self.0.get()
    }
}

struct Waiting {
    key: ApiKey,
    version: i16,
    correlation_id: i32,
    answer: Rc<Slot>,
}

#[derive(Default)]
struct Slot {
    answer: RefCell<Option<Result<Vec<u8>, Gone>>>,
    filled: Notify,
}

struct Shared {
    reactor: Reactor,
    stream: Stream,
    trace: Trace,
    next_correlation_id: Cell<i32>,
    outgoing: RefCell<VecDeque<Vec<u8>>>,
    queued: Notify,
    waiting: RefCell<VecDeque<Waiting>>,
    is_closed: Cell<bool>,
}

/// A connection; its requests are sent in the order they are made.
#[derive(Clone)]
pub struct Connection(Rc<Shared>);

/// An answer to come.
pub struct Answer {
    reactor: Reactor,
    key: ApiKey,
    slot: Rc<Slot>,
}

impl Connection {
    pub async fn open(reactor: &Reactor, address: SocketAddr, trace: &Trace) -> io::Result<Connection> {
        let stream = reactor.connect(address).await?;
        let shared = Rc::new(Shared {
            reactor: reactor.clone(),
            stream,
            trace: trace.clone(),
            next_correlation_id: Cell::new(1),
            outgoing: RefCell::default(),
            queued: Notify::new(),
            waiting: RefCell::default(),
            is_closed: Cell::new(false),
        });
        let sender = Rc::clone(&shared);
        reactor.spawn(async move { sender.send_all().await }).expect("a task");
        let receiver = Rc::clone(&shared);
        reactor.spawn(async move { receiver.receive_all().await }).expect("a task");
        Ok(Connection(shared))
    }

    pub fn is_closed(&self) -> bool {
        self.0.is_closed.get()
    }

    pub fn close(&self) {
        self.0.close();
    }

    /// Queues a request; its answer comes later.
    pub fn start<'a, R: Request<'a>>(&self, version: i16, request: &R) -> Answer {
        let answer = Rc::new(Slot::default());
        let correlation_id = self.queue(version, request);
        let waiting = Waiting { key: R::KEY, version, correlation_id, answer: Rc::clone(&answer) };
        self.0.waiting.borrow_mut().push_back(waiting);
        if self.is_closed() {
            self.0.close();
        }
        Answer { reactor: self.0.reactor.clone(), key: R::KEY, slot: answer }
    }

    /// Queues a request that has no answer.
    pub fn fire<'a, R: Request<'a>>(&self, version: i16, request: &R) {
        self.queue(version, request);
    }

    /// The body of a request's answer.
    pub async fn call<'a, R: Request<'a>>(&self, version: i16, request: &R) -> Result<Vec<u8>, Gone> {
        self.start(version, request).body().await
    }

    fn queue<'a, R: Request<'a>>(&self, version: i16, request: &R) -> i32 {
        let correlation_id = self.0.next_correlation_id.get();
        self.0.next_correlation_id.set(correlation_id + 1);
        let encoded = request.encode_frame(BytesMut::new(), version, correlation_id, Some("simulated"));
        let encoded = encoded.expect("a request that its version can say");
        self.0.outgoing.borrow_mut().push_back(encoded.head.to_vec());
        self.0.queued.notify();
        correlation_id
    }
}

impl Answer {
    /// Waits for the body.
    pub async fn body(self) -> Result<Vec<u8>, Gone> {
        let mut late = pin!(self.reactor.sleep(ANSWER_WAIT_MAX));
        let mut filled = pin!(async {
            loop {
                if let Some(answer) = self.slot.answer.borrow_mut().take() {
                    return answer;
                }
                self.slot.filled.notified().await;
            }
        });
        std::future::poll_fn(|context| {
            if let Poll::Ready(answer) = filled.as_mut().poll(context) {
                return Poll::Ready(answer);
            }
            let is_late = late.as_mut().poll(context).is_ready();
            assert!(!is_late, "no answer to {:?} within {ANSWER_WAIT_MAX:?} of virtual time", self.key);
            Poll::Pending
        })
        .await
    }
}

impl Shared {
    fn close(&self) {
        self.is_closed.set(true);
        self.stream.shutdown();
        self.queued.notify();
        for waiting in self.waiting.take() {
            *waiting.answer.answer.borrow_mut() = Some(Err(Gone));
            waiting.answer.filled.notify();
        }
    }

    async fn send_all(self: Rc<Self>) {
        while !self.is_closed.get() {
            let Some(mut rest) = self.outgoing.borrow_mut().pop_front() else {
                self.queued.notified().await;
                continue;
            };
            while !rest.is_empty() {
                match self.stream.send(rest).await {
                    (Ok(sent), bytes) if sent > 0 => rest = bytes[sent..].to_vec(),
                    _ => return self.close(),
                }
            }
        }
    }

    async fn receive_all(self: Rc<Self>) {
        let mut bytes = Vec::new();
        let mut piece = vec![0; 64 << 10];
        loop {
            match self.stream.try_recv(&mut piece) {
                Ok(0) => break,
                Ok(got) => bytes.extend_from_slice(&piece[..got]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.stream.readable().await.is_err() {
                        break;
                    }
                }
                Err(_) => break,
            }
            while let Some((head, rest)) = bytes.split_first_chunk::<4>() {
                let len = usize::try_from(i32::from_be_bytes(*head)).expect("a frame's length");
                let Some(frame) = rest.get(..len) else { break };
                self.take_frame(frame);
                bytes.drain(..4 + len);
            }
        }
        self.close();
    }

    fn take_frame(&self, frame: &[u8]) {
        self.trace.fold(frame);
        self.trace.fold(&self.reactor.now().as_nanos().to_be_bytes());
        let Some(waiting) = self.waiting.borrow_mut().pop_front() else {
            // Closed by us with answers on their way.
            assert!(self.is_closed.get(), "an answer to no request: {} bytes", frame.len());
            return;
        };
        let (header, body) = ResponseHeader::decode(frame, waiting.key, waiting.version).expect("a response header");
        assert_eq!(header.correlation_id, waiting.correlation_id, "replies out of order, at {:?}", waiting.key);
        *waiting.answer.answer.borrow_mut() = Some(Ok(body.to_vec()));
        waiting.answer.filled.notify();
    }
}
