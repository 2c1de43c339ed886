//! One connection: receives frames, sends replies.
//!
//! Holds: the stream, the outbox and the two signals between reader and sender. Never touches: the meaning of frames,
//! shards, the clock.
//!
//! Two tasks share a connection: the *reader* ([`Receiver::next_frame`], then handlers) and the *sender*
//! ([`Connection::send_replies`]). The reader stops reading while the outbox has no room: that is the back-pressure a fast
//! client gets. Either of them ends the other by [`Connection::close`].

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use bytes::Bytes;
use corelog_reactor::{AlignedBuf, IoBufs, IoVecs, Notify, Reactor, Stream};
use thiserror::Error;

use super::file_range::FileRange;
use super::frame::{FrameAssembler, FrameError, SmallFrames};
use super::memory::FrameMemory;
use super::outbox::{Item, Outbox, Reply, ReplySlot, StableBytes};

/// Most bytes gathered into one send. Larger replies leave in several.
const SEND_BYTES_MAX: usize = 1 << 20;
/// Most bytes received from one connection before others get their turn.
const VISIT_BYTES_MAX: usize = 1 << 20;

/// A connection and its replies.
pub struct Connection<S> {
    stream: Stream,
    peer: SocketAddr,
    outbox: RefCell<Outbox<S>>,
    /// The sender waits here for a reply whose turn has come.
    ready: Notify,
    /// The reader waits here for room, or until all replies are sent.
    room: Notify,
    /// Replies that have left the outbox are on their way into the socket.
    sending: Cell<bool>,
    closed: Cell<bool>,
    received_bytes: Cell<u64>,
    /// The reader waits for the rest of a frame that has begun.
    mid_frame: Cell<bool>,
    sent_bytes: Cell<u64>,
}

/// How far a connection has got, for whoever watches that it does get on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes received; only grows.
    pub received_bytes: u64,
    /// The client owes the rest of a frame that has begun.
    pub mid_frame: bool,
    /// Bytes that have left. Only grows while `sending`: what the other end has acknowledged counts then, too.
    pub sent_bytes: u64,
    /// Replies are on their way: the client is to take them.
    pub sending: bool,
}

/// What a send moved, for the metrics of whoever drives the connection.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sent {
    /// Replies that left whole.
    pub replies: u64,
    /// Bytes.
    pub bytes: u64,
    /// Of those, bytes of files that were never in the broker's memory, unless the system was short of pipes.
    pub file_bytes: u64,
}

impl<S: StableBytes> Connection<S> {
    /// A connection on `stream` with at most `requests_max` requests that are read and not yet answered and sent.
    pub fn new(stream: Stream, peer: SocketAddr, requests_max: usize) -> Rc<Self> {
        Rc::new(Connection {
            stream,
            peer,
            outbox: RefCell::new(Outbox::new(requests_max)),
            ready: Notify::new(),
            room: Notify::new(),
            sending: Cell::new(false),
            closed: Cell::new(false),
            received_bytes: Cell::new(0),
            mid_frame: Cell::new(false),
            sent_bytes: Cell::new(0),
        })
    }

    /// The other side.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Ends both directions. Replies not yet sent are dropped; answers that still come are ignored.
    pub fn close(&self) {
        if !self.closed.replace(true) {
            self.stream.shutdown();
            self.ready.notify();
            self.room.notify();
        }
    }

    /// Whether [`Self::close`] was called.
    pub fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Waits until nobody needs to be kept waiting for at the other end: the client has closed its side, or the connection
    /// is closed or broken. For the reader's task, while it is not in [`Receiver::next_frame`].
    pub async fn hung_up(&self) {
        self.stream.hung_up().await;
    }

    /// How far it has got. Asks the system if a send is under way: a large one completes only when all of it has left.
    pub fn progress(&self) -> Progress {
        let sending = self.sending.get();
        let acknowledged = if sending { self.stream.acknowledged_bytes().unwrap_or(0) } else { 0 };
        Progress {
            received_bytes: self.received_bytes.get(),
            mid_frame: self.mid_frame.get(),
            sent_bytes: self.sent_bytes.get() + acknowledged,
            sending,
        }
    }

    /// Takes the next place in request order, waiting for room. `None` if the connection was closed meanwhile.
    pub async fn reserve(&self) -> Option<ReplySlot> {
        while !self.closed.get() {
            if self.outbox.borrow().has_room() {
                return Some(self.outbox.borrow_mut().reserve());
            }
            self.room.notified().await;
        }
        None
    }

    /// Waits until every request read so far is answered and its reply sent: a client that doesn't read its replies holds
    /// no more memory than one of them. Returns whether the connection is still open.
    pub async fn drained(&self) -> bool {
        while !self.closed.get() && (self.sending.get() || !self.outbox.borrow().is_empty()) {
            self.room.notified().await;
        }
        !self.closed.get()
    }

    /// Answers a request.
    pub fn fill(&self, slot: ReplySlot, reply: Reply<S>) {
        let leaves = self.outbox.borrow_mut().fill(slot, reply);
        self.after_settling(leaves);
    }

    /// A request gets no reply.
    pub fn skip(&self, slot: ReplySlot) {
        let leaves = self.outbox.borrow_mut().skip(slot);
        self.after_settling(leaves);
    }

    fn after_settling(&self, leaves: bool) {
        if leaves {
            self.ready.notify();
        }
        if self.outbox.borrow().is_empty() {
            self.room.notify();
        }
    }

    /// The sender: sends replies as their turn comes, several in one call where they are small; returns when the
    /// connection is closed.
    ///
    /// # Errors
    /// What the socket said. The connection is to be closed then.
    pub async fn send_replies(&self, mut sent: impl FnMut(Sent)) -> io::Result<()> {
        let mut batch = SendBatch { items: VecDeque::new(), offset: 0 };
        loop {
            let replies = self.gather(&mut batch);
            if batch.items.is_empty() {
                if self.closed.get() {
                    return Ok(());
                }
                self.ready.notified().await;
                continue;
            }
            self.sending.set(true);
            let (mut bytes, mut file_bytes) = (0, 0);
            while !batch.items.is_empty() {
                if let Some(range) = batch.take_file() {
                    let more = !batch.items.is_empty();
                    let sent = |count| self.sent_bytes.set(self.sent_bytes.get() + count as u64);
                    range.send(&self.stream, more, sent, || self.closed.get()).await?;
                    file_bytes += range.len() as u64;
                    bytes += range.len() as u64;
                    continue;
                }
                let more = batch.has_file();
                let (result, back) = self.stream.send_part(batch, more).await;
                batch = back;
                let count = result?;
                if count == 0 {
                    return Err(io::ErrorKind::WriteZero.into());
                }
                batch.advance(count);
                bytes += count as u64;
                self.sent_bytes.set(self.sent_bytes.get() + count as u64);
            }
            self.sending.set(false);
            sent(Sent { replies, bytes, file_bytes });
            self.room.notify();
        }
    }

    fn gather(&self, batch: &mut SendBatch<S>) -> u64 {
        let mut outbox = self.outbox.borrow_mut();
        let (mut replies, mut bytes) = (0, 0);
        while bytes < SEND_BYTES_MAX {
            let Some(reply) = outbox.pop_ready() else { break };
            replies += 1;
            for item in std::iter::once(Item::Bytes(reply.head)).chain(reply.rest) {
                bytes += item.len();
                // A send of nothing would be taken for the end of the connection.
                if !item.is_empty() {
                    batch.items.push_back(item);
                }
            }
        }
        replies
    }
}

/// What one send lends to the kernel.
struct SendBatch<S> {
    items: VecDeque<Item<S>>,
    /// Bytes of the first item that have left already.
    offset: usize,
}

impl<S: StableBytes> SendBatch<S> {
    /// The range of a file that comes next, if one does.
    fn take_file(&mut self) -> Option<FileRange> {
        match self.items.pop_front() {
            Some(Item::File(range)) => Some(range),
            Some(item) => {
                self.items.push_front(item);
                None
            }
            None => None,
        }
    }

    /// Whether a range of a file stands behind what is in memory.
    fn has_file(&self) -> bool {
        self.items.iter().any(|item| matches!(item, Item::File(_)))
    }

    fn advance(&mut self, mut count: usize) {
        // Up to the first range of a file: a send takes nothing behind it.
        while let Some(first) = self.items.front().and_then(Item::in_memory) {
            let left = first.len() - self.offset;
            if count < left {
                self.offset += count;
                return;
            }
            count -= left;
            self.offset = 0;
            self.items.pop_front();
        }
        assert_eq!(count, 0, "the kernel sent {count} bytes more than it was given");
    }
}

// SAFETY: every item is `StableBytes` (or `Bytes`): moving the batch moves no byte of it, and nothing changes them.
unsafe impl<S: StableBytes> IoBufs for SendBatch<S> {
    fn expose(&self, into: &mut IoVecs) {
        let mut skip = self.offset;
        for bytes in self.items.iter().map_while(Item::in_memory) {
            if !into.push(&bytes[skip..]) {
                return;
            }
            skip = 0;
        }
    }
}

/// Why no further frame will come.
#[derive(Debug, Error)]
pub enum ReceiveError {
    /// The bytes are no frames.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The stream ended inside a frame.
    #[error("the connection ended inside a frame")]
    Truncated,
    /// The socket failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// What all connections of a core receive their small frames through, in turn.
#[derive(Debug)]
pub struct ReceiveBuffer {
    bytes: AlignedBuf,
    small: SmallFrames,
}

impl ReceiveBuffer {
    /// Received into `bytes`.
    pub fn new(bytes: AlignedBuf) -> ReceiveBuffer {
        ReceiveBuffer { bytes, small: SmallFrames::default() }
    }
}

/// The reading side of one connection.
pub struct Receiver {
    assembler: FrameAssembler,
    frames: VecDeque<Bytes>,
    /// Bytes received through the shared buffer that found no memory; at most that buffer's size, empty otherwise.
    held: Vec<u8>,
    visit_bytes: usize,
}

impl Receiver {
    /// A receiver that refuses frames above `frame_bytes_max`.
    pub fn new(frame_bytes_max: usize) -> Self {
        Receiver {
            assembler: FrameAssembler::new(frame_bytes_max),
            frames: VecDeque::new(),
            held: Vec::new(),
            visit_bytes: 0,
        }
    }

    /// The next frame; `None` at the orderly end of the stream. Small frames come through `shared`, the receive buffer
    /// that all connections of this core use in turn (it is never held across a wait); what frames hold is charged to
    /// `memory`.
    ///
    /// # Errors
    /// [`ReceiveError`]. With [`FrameError::NoMemory`] the frame is kept and the call may be repeated later.
    pub async fn next_frame<S: StableBytes>(
        &mut self,
        connection: &Connection<S>,
        shared: &RefCell<ReceiveBuffer>,
        memory: &FrameMemory,
        reactor: &Reactor,
    ) -> Result<Option<Bytes>, ReceiveError> {
        loop {
            if let Some(frame) = self.frames.pop_front() {
                return Ok(Some(frame));
            }
            if connection.is_closed() {
                return Ok(None);
            }
            match self.receive(connection, shared, memory) {
                Ok(true) => {
                    if self.visit_bytes >= VISIT_BYTES_MAX {
                        // Receiving by readiness is unfair under saturation: let the others have their turn.
                        self.visit_bytes = 0;
                        reactor.yield_now().await;
                    }
                }
                Ok(false) if self.assembler.mid_frame() => return Err(ReceiveError::Truncated),
                Ok(false) => return Ok(None),
                Err(ReceiveError::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.visit_bytes = 0;
                    connection.mid_frame.set(self.assembler.mid_frame());
                    let readable = connection.stream.readable().await;
                    connection.mid_frame.set(false);
                    readable?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// One non-blocking receive, if there may be something. Returns whether the stream goes on.
    fn receive<S: StableBytes>(
        &mut self,
        connection: &Connection<S>,
        shared: &RefCell<ReceiveBuffer>,
        memory: &FrameMemory,
    ) -> Result<bool, ReceiveError> {
        let frames = &mut self.frames;
        let mut shared = shared.borrow_mut();
        let ReceiveBuffer { bytes: received, small } = &mut *shared;
        if !self.held.is_empty() {
            let mut bytes = &self.held[..];
            let result = self.assembler.feed(&mut bytes, small, memory, |frame| frames.push_back(frame));
            self.held = bytes.to_vec();
            result?;
            return Ok(true);
        }
        if !connection.stream.is_readable() {
            return Err(ReceiveError::Io(io::ErrorKind::WouldBlock.into()));
        }
        if let Some(room) = self.assembler.direct_room(memory)? {
            let count = connection.stream.try_recv(room)?;
            connection.received_bytes.set(connection.received_bytes.get() + count as u64);
            self.visit_bytes += count;
            frames.extend(self.assembler.received(count));
            return Ok(count > 0);
        }
        let room = self.assembler.shared_room(received);
        let count = connection.stream.try_recv(room)?;
        connection.received_bytes.set(connection.received_bytes.get() + count as u64);
        self.visit_bytes += count;
        let mut bytes = &received[..count];
        let result = self.assembler.feed(&mut bytes, small, memory, |frame| frames.push_back(frame));
        self.held.extend_from_slice(bytes);
        result?;
        Ok(count > 0)
    }
}
