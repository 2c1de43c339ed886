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
use corelog_net::conn::{Connection, FrameError, ReceiveError, Receiver, Reply};
use corelog_reactor::{Monotonic, RawConn};
use slab::Slab;
use tracing::{debug, info};

use super::Shard;
use crate::api::{self, Parsed, Principal};
use crate::partition::payload::Payload;

/// Requests of one connection that are read and not yet answered and sent.
const REQUESTS_IN_FLIGHT_MAX: usize = 128;
/// How long a frame may wait for buffer memory before its connection is closed.
const MEMORY_WAIT_MAX: Duration = Duration::from_secs(30);
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

    /// Closes those that have been silent for longer than `idle_max` (`connections.max.idle.ms`).
    pub fn close_idle(&self, now: Monotonic, idle_max: Duration) -> usize {
        let mut closed = 0;
        for (_, client) in self.open.borrow().iter() {
            if now.saturating_since(client.last_active.get()) > idle_max && !client.connection.is_closed() {
                client.connection.close();
                closed += 1;
            }
        }
        closed
    }

    /// Closes all.
    pub fn close_all(&self) {
        for (_, client) in self.open.borrow().iter() {
            client.connection.close();
        }
    }
}

/// A connection accepted elsewhere begins its life here.
pub fn adopt(shard: &Rc<Shard>, raw: RawConn, peer: SocketAddr, listener: usize) {
    let client = Rc::new(Client {
        connection: Connection::new(shard.reactor().adopt(raw), peer, REQUESTS_IN_FLIGHT_MAX),
        listener: shard.server().listener_name(listener),
        principal: shard.server().anonymous.clone(),
        last_client_id: RefCell::default(),
        last_active: Cell::new(shard.reactor().now()),
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
    shard.server().loads.left(shard.id());
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
        let next = receiver.next_frame(&client.connection, &shard.receive_buffer, shard.reactor()).await;
        match next {
            Err(ReceiveError::Frame(FrameError::NoMemory(_)))
                if shard.reactor().now().saturating_since(*waiting_since.get_or_insert(shard.reactor().now()))
                    < MEMORY_WAIT_MAX =>
            {
                shard.counters().memory_waits.increment();
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
