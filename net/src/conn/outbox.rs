//! Replies of one connection, in the order of its requests.
//!
//! Holds: a queue of reply slots (reserved when a request is read, filled when its answer is known) and the bytes that
//! are ready to leave. Never touches: sockets, partitions, the clock.
//!
//! ```text
//!   reserve()  reserve()  reserve()          pop_ready()
//!      |          |          |                  |
//!   [filled]  [waiting]  [filled]   ->  only the first leaves: the second request has no answer yet
//! ```

use std::collections::VecDeque;

use bytes::Bytes;
use smallvec::SmallVec;

use super::file_range::FileRange;

/// Bytes that don't move when their owner does, and don't change while it lives: fit to be lent to the kernel.
///
/// # Safety
/// `as_ref` returns the same address and contents for as long as the value (moved or not) is alive.
pub unsafe trait StableBytes: AsRef<[u8]> + 'static {}

// SAFETY: `Bytes` is an immutable view of heap or static memory; moving it moves only the view.
unsafe impl StableBytes for Bytes {}

/// Piece of a reply. How it reaches the socket is the sink's choice.
#[derive(Debug, Clone)]
pub enum Item<S> {
    /// Encoded bytes that belong to this reply alone.
    Bytes(Bytes),
    /// Bytes shared with their owner (a slice of a partition's tail): sent without a copy.
    Shared(S),
    /// Bytes of a file, which need not be in memory.
    File(FileRange),
}

impl<S: AsRef<[u8]>> Item<S> {
    /// The piece's bytes, if they are in memory.
    pub fn in_memory(&self) -> Option<&[u8]> {
        match self {
            Item::Bytes(bytes) => Some(bytes),
            Item::Shared(shared) => Some(shared.as_ref()),
            Item::File(_) => None,
        }
    }

    /// Their number.
    pub fn len(&self) -> usize {
        match self {
            Item::Bytes(bytes) => bytes.len(),
            Item::Shared(shared) => shared.as_ref().len(),
            Item::File(range) => range.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A whole reply: its frame length, header and body, cut where shared bytes stand.
#[derive(Debug)]
pub struct Reply<S> {
    /// The first piece; for most replies the only one.
    pub head: Bytes,
    /// What follows the head (record payloads and the encoded bytes between them); empty for most replies.
    pub rest: SmallVec<[Item<S>; 2]>,
}

impl<S> From<Bytes> for Reply<S> {
    fn from(head: Bytes) -> Self {
        Reply { head, rest: SmallVec::new() }
    }
}

/// Names one reserved place in an [`Outbox`]. Only its own outbox understands it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReplySlot(u64);

#[derive(Debug)]
enum Place<S> {
    Waiting,
    Filled(Reply<S>),
    /// The request gets no reply (produce with `acks=0`).
    Silent,
}

/// The reply queue of a connection. Bounded by its user: a request is read only while [`Outbox::has_room`].
#[derive(Debug)]
pub struct Outbox<S> {
    places: VecDeque<Place<S>>,
    /// Slot number of `places[0]`.
    first: u64,
    requests_max: usize,
}

impl<S> Outbox<S> {
    /// An outbox for at most `requests_max` requests that are not yet answered and sent.
    pub fn new(requests_max: usize) -> Self {
        assert!(requests_max > 0, "an outbox of no requests can never answer");
        Outbox { places: VecDeque::new(), first: 0, requests_max }
    }

    /// Whether another request may be read; if not, the connection is not read until replies have left.
    pub fn has_room(&self) -> bool {
        self.places.len() < self.requests_max
    }

    /// Whether nothing is queued at all.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Takes the next place in request order.
    pub fn reserve(&mut self) -> ReplySlot {
        assert!(self.has_room(), "reserved beyond {} requests", self.requests_max);
        let slot = ReplySlot(self.first + self.places.len() as u64);
        self.places.push_back(Place::Waiting);
        slot
    }

    /// Puts the reply into its place. Returns whether something is now ready to leave.
    pub fn fill(&mut self, slot: ReplySlot, reply: Reply<S>) -> bool {
        self.settle(slot, Place::Filled(reply))
    }

    /// Marks a request that gets no reply. Returns whether something is now ready to leave.
    pub fn skip(&mut self, slot: ReplySlot) -> bool {
        self.settle(slot, Place::Silent)
    }

    fn settle(&mut self, slot: ReplySlot, place: Place<S>) -> bool {
        let index = slot.0.checked_sub(self.first).map(|i| i as usize);
        let Some(target) = index.and_then(|i| self.places.get_mut(i)) else {
            panic!("reply slot {} is not in the queue that starts at {}", slot.0, self.first);
        };
        assert!(matches!(target, Place::Waiting), "reply slot {} answered twice", slot.0);
        *target = place;
        while matches!(self.places.front(), Some(Place::Silent)) {
            self.places.pop_front();
            self.first += 1;
        }
        matches!(self.places.front(), Some(Place::Filled(_)))
    }

    /// The next reply whose turn has come.
    pub fn pop_ready(&mut self) -> Option<Reply<S>> {
        if !matches!(self.places.front(), Some(Place::Filled(_))) {
            return None;
        }
        let Some(Place::Filled(reply)) = self.places.pop_front() else { return None };
        self.first += 1;
        while matches!(self.places.front(), Some(Place::Silent)) {
            self.places.pop_front();
            self.first += 1;
        }
        Some(reply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(text: &'static str) -> Reply<Vec<u8>> {
        Bytes::from_static(text.as_bytes()).into()
    }

    #[test]
    fn replies_leave_in_request_order_whatever_the_order_of_their_answers() {
        let mut outbox = Outbox::new(8);
        let (a, b, c) = (outbox.reserve(), outbox.reserve(), outbox.reserve());
        assert!(!outbox.fill(c, reply("c")));
        assert!(!outbox.fill(b, reply("b")));
        assert!(outbox.pop_ready().is_none());
        assert!(outbox.fill(a, reply("a")));
        let order: Vec<_> = std::iter::from_fn(|| outbox.pop_ready()).map(|r| r.head).collect();
        assert_eq!(order, ["a", "b", "c"].map(|s| Bytes::from_static(s.as_bytes())));
        assert!(outbox.is_empty());
    }

    #[test]
    fn a_silent_request_frees_its_place_and_holds_nobody_up() {
        let mut outbox = Outbox::new(2);
        let (a, b) = (outbox.reserve(), outbox.reserve());
        assert!(!outbox.has_room());
        assert!(!outbox.fill(b, reply("b")));
        assert!(outbox.skip(a));
        assert_eq!(outbox.pop_ready().expect("b is ready").head, Bytes::from_static(b"b"));
        let c = outbox.reserve();
        assert!(!outbox.skip(c), "nothing leaves for a silent request");
        assert!(outbox.is_empty());
    }

    #[test]
    #[should_panic(expected = "answered twice")]
    fn answering_a_request_twice_is_our_own_mistake() {
        let mut outbox = Outbox::new(2);
        let _first = outbox.reserve();
        let b = outbox.reserve();
        outbox.fill(b, reply("b"));
        outbox.fill(b, reply("b"));
    }
}
