//! One client connection on its shard: reads requests, has them handled, sends replies.
//!
//! Holds: the connections that live here. Never touches: what requests mean (`api`), frames and sockets (`corelog_net`).
//!
//! Produces overlap; everything else waits for what came before it and holds up what comes after it
//! (docs/decisions/0005-requests-and-order.md).

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use corelog_net::conn::{Connection, FrameError, FrameMemory, Progress, ReceiveError, Receiver, Reply};
use corelog_reactor::{Monotonic, RawConn, Reactor};
use corelog_storage::log::StorageEnv;
use slab::Slab;
use tracing::{debug, info};

use super::Shard;
use crate::api::{self, Parsed, Principal};
use crate::config::BrokerConfig;
use crate::partition::payload::Payload;

/// Requests of one connection that are read and not yet answered and sent.
const REQUESTS_IN_FLIGHT_MAX: usize = 128;
/// This part of a core's memory is the most that frames hold there: arriving, waiting, being handled. What else the memory
/// is for: `RESERVE_PART` in `storage/src/log/env.rs`.
const FRAMES_PART: usize = 4;
/// The least that frames may hold, whatever `queued.max.request.bytes` says: some must be served.
const FRAMES_BYTES_MIN: usize = 1 << 20;
/// How long a frame may wait for buffer memory before its connection is closed.
const MEMORY_WAIT_MAX: Duration = Duration::from_secs(30);
/// While frames wait for memory, a frame that has begun must get on by so many bytes ...
const PRESSED_BYTES_MIN: u64 = 16 << 10;
/// ... in this time: what it holds is needed by others.
const PRESSED_STALL_MAX: Duration = Duration::from_secs(1);
/// How often a frame that waits for memory looks again.
const MEMORY_RETRY: Duration = Duration::from_millis(5);

/// A connection of this broker.
pub type ClientConnection = Connection<Payload>;
/// A reply of this broker.
pub type ClientReply = Reply<Payload>;

/// A connection and when it last did something.
pub struct Client {
    /// The connection itself.
    pub connection: Rc<ClientConnection>,
    /// Name of the listener it came in by.
    pub listener: Arc<str>,
    /// Who is at the other end.
    pub principal: Principal,
    /// The client's name for itself in its last request: the next one mostly has the same.
    last_client_id: RefCell<Option<Arc<str>>>,
    last_active: Cell<Monotonic>,
    seen: Cell<Seen>,
}

/// How far a connection had got when it was last looked at, and since when it stands still.
#[derive(Debug, Clone, Copy)]
struct Seen {
    progress: Progress,
    /// The last time that the frame that had begun had got on, or that there was none.
    received_at: Monotonic,
    /// Bytes received until then.
    received_bytes: u64,
    /// The last time that the replies on their way had got on, or that there were none.
    sent_at: Monotonic,
}

impl Seen {
    fn new(now: Monotonic) -> Seen {
        Seen { progress: Progress::default(), received_at: now, received_bytes: 0, sent_at: now }
    }

    /// Looks again. A frame gets on if `bytes_min` more of it have come. Returns whether anything has moved at all.
    fn update(&mut self, progress: Progress, now: Monotonic, bytes_min: u64) -> bool {
        let before = std::mem::replace(&mut self.progress, progress);
        if !progress.mid_frame || progress.received_bytes - self.received_bytes >= bytes_min {
            (self.received_at, self.received_bytes) = (now, progress.received_bytes);
        }
        let has_sent = progress.sent_bytes != before.sent_bytes;
        if has_sent || !progress.sending {
            self.sent_at = now;
        }
        has_sent || progress.received_bytes != before.received_bytes
    }
}

/// Connections that a sweep closed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// They were silent.
    pub idle: u64,
    /// A request or an answer stood still.
    pub stalled: u64,
}

impl Client {
    /// A client's name for itself, shared with the requests before that had the same.
    pub fn client_id(&self, id: Option<&str>) -> Option<Arc<str>> {
        let mut last = self.last_client_id.borrow_mut();
        if last.as_deref() != id {
            *last = id.map(Into::into);
        }
        last.clone()
    }
}

/// The connections of one shard.
#[derive(Default)]
pub struct Connections {
    open: RefCell<Slab<Rc<Client>>>,
}

impl Connections {
    /// How many are open.
    pub fn count(&self) -> usize {
        self.open.borrow().len()
    }

    /// Closes those that have been silent for longer than `idle_max` (`connections.max.idle.ms`), and those that have owed
    /// the rest of a request, or not taken the rest of an answer, for `stall_max` without a byte of it. If others are
    /// `pressed` for the memory that a begun request holds, it must come faster than that.
    pub fn sweep(&self, now: Monotonic, idle_max: Duration, stall_max: Duration, pressed: bool) -> Swept {
        let (receive_max, bytes_min) =
            if pressed { (stall_max.min(PRESSED_STALL_MAX), PRESSED_BYTES_MIN) } else { (stall_max, 1) };
        let mut swept = Swept::default();
        for (_, client) in self.open.borrow().iter().filter(|(_, client)| !client.connection.is_closed()) {
            let mut seen = client.seen.get();
            if seen.update(client.connection.progress(), now, bytes_min) {
                client.last_active.set(now);
            }
            client.seen.set(seen);
            let stalled = [(seen.received_at, receive_max, "a begun request"), (seen.sent_at, stall_max, "an answer")];
            let stalled = stalled.iter().find(|(since, max, _)| now.saturating_since(*since) >= *max);
            if let Some((_, max, what)) = stalled {
                let bytes = if *max < stall_max { PRESSED_BYTES_MIN } else { 1 };
                info!(peer = %client.connection.peer(), for_ms = max.as_millis() as u64, bytes_min = bytes, "connection closed: {what} stood still");
                client.connection.close();
                swept.stalled += 1;
            } else if now.saturating_since(client.last_active.get()) > idle_max {
                client.connection.close();
                swept.idle += 1;
            }
        }
        swept
    }

    /// Closes all.
    pub fn close_all(&self) {
        for (_, client) in self.open.borrow().iter() {
            client.connection.close();
        }
    }
}

/// What the frames of a shard's connections may hold: a part of its memory, or its share of `queued.max.request.bytes`.
pub fn frame_memory(reactor: &Reactor, storage: &StorageEnv, config: &BrokerConfig) -> FrameMemory {
    let part = reactor.pool().budget() / FRAMES_PART;
    let share = config.queued_request_bytes_max.map(|bytes| (bytes / config.shards as u64) as usize);
    FrameMemory::new(
        reactor.pool().clone(),
        share.map_or(part, |share| share.clamp(FRAMES_BYTES_MIN.min(part), part)),
        storage.reserve_bytes(),
    )
}

/// A connection accepted elsewhere begins its life here.
pub fn adopt(shard: &Rc<Shard>, raw: RawConn, peer: SocketAddr, listener: usize) {
    let now = shard.reactor().now();
    let client = Rc::new(Client {
        connection: Connection::new(shard.reactor().adopt(raw), peer, REQUESTS_IN_FLIGHT_MAX),
        listener: shard.server().listener_name(listener),
        principal: shard.server().anonymous.clone(),
        last_client_id: RefCell::default(),
        last_active: Cell::new(now),
        seen: Cell::new(Seen::new(now)),
    });
    shard.counters().connections_opened.increment();
    let index = shard.connections.open.borrow_mut().insert(Rc::clone(&client));

    let (sending, on) = (Rc::clone(&client), Rc::clone(shard));
    let started = shard.spawn(async move {
        let counters = on.counters();
        let result = sending.connection.send_replies(|sent| counters.sent(sent)).await;
        if let Err(error) = result {
            debug!(peer = %sending.connection.peer(), %error, "sending failed");
        }
        sending.connection.close();
    });

    let (reading, on) = (Rc::clone(&client), Rc::clone(shard));
    let started = started
        && shard.spawn(async move {
            if let Err(reason) = read_requests(&on, &reading).await {
                // One line a connection, whatever it sent.
                on.counters().connections_bad.increment();
                info!(peer = %reading.connection.peer(), %reason, "connection closed");
            }
            left(&on, index);
        });
    if !started {
        // No room for its tasks: the client comes again.
        shard.counters().connections_refused.increment();
        left(shard, index);
    }
}

/// A connection ends.
fn left(shard: &Shard, index: usize) {
    let client = shard.connections.open.borrow_mut().remove(index);
    client.connection.close();
    shard.server().loads.left(shard.id(), client.connection.peer().ip());
}

async fn read_requests(shard: &Rc<Shard>, client: &Rc<Client>) -> Result<(), CloseReason> {
    let mut receiver = Receiver::new(shard.config().request_bytes_max as usize);
    loop {
        let Some(frame) = next_frame(shard, client, &mut receiver).await? else {
            // The client has closed its sending side and may still read: like Kafka, answer what it has asked.
            client.connection.drained().await;
            break;
        };
        client.last_active.set(shard.reactor().now());
        shard.counters().requests.increment();
        let parsed = api::parse(client, &frame)?;
        drop(frame);
        if let Parsed::Produce(context, body) = parsed {
            let Some(slot) = client.connection.reserve().await else { break };
            api::produce::start(shard, &client.connection, slot, context, body)?;
            continue;
        }
        if !client.connection.drained().await {
            break;
        }
        let Some(slot) = client.connection.reserve().await else { break };
        client.connection.fill(slot, api::handle(shard, &client.connection, parsed).await?);
        client.last_active.set(shard.reactor().now());
    }
    Ok(())
}

/// The next frame. A frame that finds no buffer memory waits for some, with the connection unread meanwhile.
async fn next_frame(shard: &Rc<Shard>, client: &Client, receiver: &mut Receiver) -> Result<Option<Bytes>, CloseReason> {
    let mut waiting_since = None;
    loop {
        let next =
            receiver.next_frame(&client.connection, &shard.receive_buffer, &shard.frame_memory, shard.reactor()).await;
        match next {
            Err(ReceiveError::Frame(FrameError::NoMemory(_)))
                if shard.reactor().now().saturating_since(*waiting_since.get_or_insert(shard.reactor().now()))
                    < MEMORY_WAIT_MAX =>
            {
                shard.counters().memory_waits.increment();
                shard.pressed.notify();
                shard.reactor().sleep(MEMORY_RETRY).await;
            }
            Err(ReceiveError::Io(error)) => {
                // A peer that goes away is no news.
                debug!(peer = %client.connection.peer(), %error, "receiving failed");
                return Ok(None);
            }
            Err(ReceiveError::Truncated) if client.connection.is_closed() => return Ok(None),
            other => return Ok(other?),
        }
    }
}

/// Why a connection was closed by us: bytes that are no request of ours.
#[derive(Debug, thiserror::Error)]
pub enum CloseReason {
    /// The bytes are no frames.
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    /// The frame is no request that we can answer.
    #[error(transparent)]
    Request(#[from] api::ApiFailure),
}
