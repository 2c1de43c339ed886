//! Mail between cores: one bounded ring for each ordered pair of shards, and the parked flags.
//!
//! Holds: the mesh of single-producer single-consumer rings, who sleeps, whom this turn's mail must wake. Never
//! touches: what the messages mean.
//!
//! No wake-up is lost (the store/load pattern of Dekker):
//!
//! ```text
//!   sender                                receiver, in Reactor::park
//!     push                                  parked = my wake target
//!     fence(SeqCst)                         fence(SeqCst)
//!     parked.swap(awake) -> target? wake    any mail? then do not sleep
//! ```
//!
//! At least one of the two sees the other's write. The swap lets one sender of several take the wake-up on itself.

use std::sync::atomic::{AtomicI64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::Duration;

use rtrb::{Consumer, Producer, RingBuffer};

use crate::ids::{ShardId, WakeTarget};
use crate::reactor::Reactor;
use crate::wake::RemoteWaker;

/// What [`Reactor::park`] asks of the mail before it sleeps.
pub trait Mail {
    /// Whether anything waits to be received.
    fn has_mail(&self) -> bool;
    /// Announces that this shard is about to sleep and how to wake it.
    fn set_parked(&self, target: WakeTarget);
    /// Takes the announcement back.
    fn clear_parked(&self);
}

/// No mail, ever: for a reactor alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoMail;

impl Mail for NoMail {
    fn has_mail(&self) -> bool {
        false
    }
    fn set_parked(&self, _target: WakeTarget) {}
    fn clear_parked(&self) {}
}

/// The ring to that shard is full; the message comes back.
#[derive(thiserror::Error)]
#[error("mail to shard {to} is full at {capacity} messages")]
pub struct MailFull<M> {
    /// The message.
    pub message: M,
    /// Whom it was for.
    pub to: ShardId,
    /// Messages that ring holds.
    pub capacity: usize,
}

impl<M> std::fmt::Debug for MailFull<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MailFull").field("to", &self.to).field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

/// Values of [`Peer::parked`] other than a wake target.
const AWAKE: i64 = -1;
/// Asleep in [`MailPort::park_thread`].
const THREAD: i64 = -2;

/// What others know of one port. A line of its own: senders write it.
#[repr(align(128))]
struct Peer {
    parked: AtomicI64,
    thread: OnceLock<Thread>,
    remote: OnceLock<RemoteWaker>,
}

/// One shard's end of the mesh: a ring to and a ring from every port, itself included.
pub struct MailPort<M> {
    id: ShardId,
    to: Vec<Producer<M>>,
    from: Vec<Consumer<M>>,
    peers: Arc<[Peer]>,
    capacity: usize,
    /// Per peer: whether it was sent mail since the last `wake_peers`.
    mailed: Vec<bool>,
    mailed_any: bool,
    /// Where `recv` goes on looking: every sender gets its turn.
    next_from: usize,
}

/// Makes a port for each of `shards` threads; every ordered pair can hold `capacity_per_pair` messages. Memory is
/// `shards² × capacity × size of M`, taken here.
pub fn mail_mesh<M: Send>(shards: usize, capacity_per_pair: usize) -> Vec<MailPort<M>> {
    assert!(shards > 0 && shards <= usize::from(u16::MAX), "shards {shards}");
    assert!(capacity_per_pair > 0, "capacity_per_pair {capacity_per_pair}");
    let peer = |_| Peer { parked: AtomicI64::new(AWAKE), thread: OnceLock::new(), remote: OnceLock::new() };
    let peers: Arc<[Peer]> = (0..shards).map(peer).collect();
    let mut ports: Vec<MailPort<M>> = (0..shards)
        .map(|id| MailPort {
            id: ShardId(id as u16),
            to: Vec::with_capacity(shards),
            from: Vec::with_capacity(shards),
            peers: Arc::clone(&peers),
            capacity: capacity_per_pair,
            mailed: vec![false; shards],
            mailed_any: false,
            next_from: 0,
        })
        .collect();
    for from in 0..shards {
        for to in 0..shards {
            let (producer, consumer) = RingBuffer::new(capacity_per_pair);
            // Outer loop `from`: each receiver's consumers come in the order of senders, each sender's producers in
            // the order of receivers.
            if let Some(port) = ports.get_mut(from) {
                port.to.push(producer);
            }
            if let Some(port) = ports.get_mut(to) {
                port.from.push(consumer);
            }
        }
    }
    ports
}

impl<M> MailPort<M> {
    /// This port's shard.
    pub fn id(&self) -> ShardId {
        self.id
    }

    /// How many ports the mesh has.
    pub fn shards(&self) -> usize {
        self.to.len()
    }

    /// Puts a message in the ring to `to` (which may be this port itself). The receiver finds it when it next looks;
    /// a sleeping one is woken by [`MailPort::wake_peers`].
    pub fn send(&mut self, to: ShardId, message: M) -> Result<(), MailFull<M>> {
        let shards = self.to.len();
        assert!(to.index() < shards, "mail to shard {to} of {shards}");
        let full = |message| MailFull { message, to, capacity: self.capacity };
        let Some(ring) = self.to.get_mut(to.index()) else {
            return Err(full(message));
        };
        if let Err(rtrb::PushError::Full(message)) = ring.push(message) {
            return Err(full(message));
        }
        if let Some(mailed) = self.mailed.get_mut(to.index()) {
            *mailed = true;
            self.mailed_any = true;
        }
        Ok(())
    }

    /// Free places in the ring to `to`.
    pub fn room(&self, to: ShardId) -> usize {
        self.to.get(to.index()).map_or(0, Producer::slots)
    }

    /// The next message, from each sender in turn; one sender's messages come in the order sent.
    pub fn recv(&mut self) -> Option<(ShardId, M)> {
        let senders = self.from.len();
        for step in 0..senders {
            let sender = (self.next_from + step) % senders;
            if let Some(message) = self.from.get_mut(sender).and_then(|ring| ring.pop().ok()) {
                self.next_from = (sender + 1) % senders;
                return Some((ShardId(sender as u16), message));
            }
        }
        None
    }

    /// Whether [`MailPort::recv`] would return something.
    pub fn has_mail(&self) -> bool {
        self.from.iter().any(|ring| !ring.is_empty())
    }

    /// Wakes each peer that was sent mail since the last call and sleeps: one ring message a peer at most, sent with
    /// the reactor's next submission. Call once a turn, right before [`Reactor::park`].
    pub fn wake_peers(&mut self, reactor: &Reactor) {
        self.wake_parked(|target, _| reactor.wake_peer(target));
    }

    /// As [`MailPort::wake_peers`], for a port whose thread has no reactor. Peers must have called
    /// [`MailPort::accept_remote_wakes`].
    pub fn wake_peers_from_thread(&mut self) {
        let id = self.id;
        self.wake_parked(|target, peer| {
            let remote = peer.remote.get();
            assert!(remote.is_some(), "port {id} mailed a shard at {target:?} that accepts no remote wakes");
            if let Some(remote) = remote {
                remote.wake();
            }
        });
    }

    fn wake_parked(&mut self, wake: impl Fn(WakeTarget, &Peer)) {
        if !std::mem::take(&mut self.mailed_any) {
            return;
        }
        fence(Ordering::SeqCst);
        for ((shard, mailed), peer) in self.mailed.iter_mut().enumerate().zip(self.peers.iter()) {
            if !std::mem::take(mailed) || shard == self.id.index() || peer.parked.load(Ordering::Relaxed) == AWAKE {
                continue;
            }
            match peer.parked.swap(AWAKE, Ordering::AcqRel) {
                AWAKE => {}
                THREAD => {
                    if let Some(thread) = peer.thread.get() {
                        thread.unpark();
                    }
                }
                target => wake(WakeTarget(target as i32), peer),
            }
        }
    }

    /// Lets ports without a reactor wake this one.
    pub fn accept_remote_wakes(&self, reactor: &Reactor) -> std::io::Result<()> {
        let remote = reactor.remote_waker()?;
        if let Some(me) = self.me() {
            // A second call finds the same reactor's waker in place.
            let _ = me.remote.set(remote);
        }
        Ok(())
    }

    /// Sleeps until mail comes or the time is over: for a thread without a reactor. May return early.
    pub fn park_thread(&mut self, at_most: Duration) {
        let Some(me) = self.me() else { return };
        me.thread.get_or_init(std::thread::current);
        me.parked.store(THREAD, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !self.has_mail() {
            std::thread::park_timeout(at_most);
        }
        me.parked.store(AWAKE, Ordering::Release);
    }

    fn me(&self) -> Option<&Peer> {
        self.peers.get(self.id.index())
    }
}

impl<M> Mail for MailPort<M> {
    fn has_mail(&self) -> bool {
        MailPort::has_mail(self)
    }

    fn set_parked(&self, target: WakeTarget) {
        if let Some(me) = self.me() {
            me.parked.store(i64::from(target.0), Ordering::Relaxed);
        }
    }

    fn clear_parked(&self) {
        if let Some(me) = self.me() {
            me.parked.store(AWAKE, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_ring_gives_the_message_back() {
        let mut ports = mail_mesh::<u32>(1, 2);
        let port = &mut ports[0];
        port.send(ShardId(0), 1).unwrap();
        port.send(ShardId(0), 2).unwrap();
        let full = port.send(ShardId(0), 3).unwrap_err();
        assert_eq!((full.message, full.to, full.capacity), (3, ShardId(0), 2));
        assert_eq!(port.recv(), Some((ShardId(0), 1)));
        port.send(ShardId(0), 3).unwrap();
        assert_eq!(port.recv(), Some((ShardId(0), 2)));
        assert_eq!(port.recv(), Some((ShardId(0), 3)));
        assert_eq!(port.recv(), None);
    }

    #[test]
    fn every_sender_gets_its_turn_and_keeps_its_order() {
        let mut ports = mail_mesh::<u32>(3, 4);
        for sender in 1..3u32 {
            for n in 0..3 {
                ports[sender as usize].send(ShardId(0), sender * 10 + n).unwrap();
            }
        }
        assert!(ports[0].has_mail());
        let got: Vec<u32> = std::iter::from_fn(|| ports[0].recv().map(|(_, m)| m)).collect();
        assert_eq!(got, [10, 20, 11, 21, 12, 22]);
    }

    #[test]
    fn a_thread_without_a_reactor_is_woken_by_mail() {
        let mut ports = mail_mesh::<u32>(2, 4);
        let mut sleeper = ports.pop().unwrap();
        let mut sender = ports.pop().unwrap();
        let thread = std::thread::spawn(move || {
            loop {
                if let Some(mail) = sleeper.recv() {
                    return mail;
                }
                sleeper.park_thread(Duration::from_secs(30));
            }
        });
        std::thread::sleep(Duration::from_millis(20));
        sender.send(ShardId(1), 7).unwrap();
        sender.wake_peers_from_thread();
        assert_eq!(thread.join().unwrap(), (ShardId(0), 7));
    }
}
