//! The simulated network: listeners, connections, what is on its way.
//!
//! Holds: sockets of all nodes. Never touches: time (the world schedules what is returned), completions.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::rng::Rng;
use crate::ids::{Handle, OpToken};

/// A machine of the simulated world.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub u16);

impl NodeId {
    /// Its address: 10.0.0.1 for node 0, and so on. Loopback and unspecified addresses also mean the own node.
    pub fn ip(self) -> IpAddr {
        let [high, low] = (self.0 + 1).to_be_bytes();
        IpAddr::V4(Ipv4Addr::new(10, 0, high, low))
    }
}

/// How the network behaves.
#[derive(Clone, Copy, Debug)]
pub struct NetBehaviour {
    /// How long a segment takes, chosen evenly between two bounds; order is kept within a connection.
    pub latency: (Duration, Duration),
    /// Largest segment: what arrives at once. Each is cut at random below that.
    pub segment_bytes_max: usize,
    /// Bytes a connection holds on the way and unread, each direction.
    pub window_bytes: usize,
    /// Sends of a thousand that complete short.
    pub short_send_per_mille: u32,
    /// Segments of a million that reset their connection instead of arriving.
    pub reset_per_million: u32,
    /// How long connecting to a node that does not answer takes to fail.
    pub connect_timeout: Duration,
}

impl Default for NetBehaviour {
    fn default() -> NetBehaviour {
        NetBehaviour {
            latency: (Duration::from_micros(10), Duration::from_micros(200)),
            segment_bytes_max: 64 << 10,
            window_bytes: 256 << 10,
            short_send_per_mille: 0,
            reset_per_million: 0,
            connect_timeout: Duration::from_secs(10),
        }
    }
}

/// What travels towards one end of a connection.
#[derive(Debug)]
pub(super) enum Parcel {
    Bytes(Vec<u8>),
    End,
    Reset,
}

/// A send that waits for room.
pub(super) struct PendingSend {
    pub driver: usize,
    pub token: OpToken,
    pub data: VecDeque<u8>,
    pub sent: usize,
    /// Completes once this many bytes are out.
    pub stop_at: usize,
}

pub(super) struct End {
    pub node: NodeId,
    pub local: SocketAddr,
    pub peer_addr: SocketAddr,
    pub peer: Option<Handle>,
    pub received: VecDeque<u8>,
    /// Bytes on their way to this end.
    pub coming: usize,
    /// No parcel may overtake this time.
    pub last_arrival: u64,
    pub ended: bool,
    pub error: Option<i32>,
    pub send_shut: bool,
    pub sends: VecDeque<PendingSend>,
    /// Bytes that have left for the peer, which has promised room for them.
    pub sent_bytes: u64,
}

pub(super) struct ListenerState {
    pub node: NodeId,
    pub local: SocketAddr,
    pub backlog: usize,
    pub waiting: VecDeque<(Handle, SocketAddr)>,
}

pub(super) enum SocketState {
    Listener(ListenerState),
    End(End),
}

#[derive(Default)]
pub(super) struct Net {
    pub behaviour: NetBehaviour,
    pub sockets: HashMap<Handle, SocketState>,
    next_port: HashMap<NodeId, u16>,
    pub cut: Vec<(NodeId, NodeId)>,
}

impl Net {
    pub fn end(&mut self, handle: Handle) -> Option<&mut End> {
        match self.sockets.get_mut(&handle) {
            Some(SocketState::End(end)) => Some(end),
            Some(SocketState::Listener(_)) | None => None,
        }
    }

    pub fn listener(&mut self, handle: Handle) -> Option<&mut ListenerState> {
        match self.sockets.get_mut(&handle) {
            Some(SocketState::Listener(listener)) => Some(listener),
            Some(SocketState::End(_)) | None => None,
        }
    }

    /// A node's sockets, in the order they were made.
    pub fn sockets_of(&self, node: NodeId) -> Vec<Handle> {
        let of_node = |(handle, socket): (&Handle, &SocketState)| match socket {
            SocketState::Listener(l) => (l.node == node).then_some(*handle),
            SocketState::End(e) => (e.node == node).then_some(*handle),
        };
        let mut handles: Vec<Handle> = self.sockets.iter().filter_map(of_node).collect();
        handles.sort_unstable_by_key(|handle| handle.0);
        handles
    }

    /// Which node an address means to `from`.
    pub fn node_of(from: NodeId, ip: IpAddr) -> Option<NodeId> {
        match ip {
            _ if ip.is_loopback() || ip.is_unspecified() => Some(from),
            IpAddr::V4(v4) => match v4.octets() {
                [10, 0, high, low] => u16::from_be_bytes([high, low]).checked_sub(1).map(NodeId),
                _ => None,
            },
            IpAddr::V6(_) => None,
        }
    }

    fn fresh_port(&mut self, node: NodeId) -> u16 {
        let next = self.next_port.entry(node).or_insert(40_000);
        *next = next.checked_add(1).unwrap_or(40_000);
        *next
    }

    pub fn bind(&mut self, node: NodeId, mut addr: SocketAddr, backlog: u32) -> Result<ListenerState, i32> {
        if Net::node_of(node, addr.ip()) != Some(node) {
            return Err(libc::EADDRNOTAVAIL);
        }
        if addr.port() == 0 {
            addr.set_port(self.fresh_port(node));
        }
        if self.find_listener(node, addr.port()).is_some() {
            return Err(libc::EADDRINUSE);
        }
        Ok(ListenerState { node, local: addr, backlog: backlog.max(1) as usize, waiting: VecDeque::new() })
    }

    pub fn find_listener(&self, node: NodeId, port: u16) -> Option<Handle> {
        self.sockets.iter().find_map(|(handle, socket)| match socket {
            SocketState::Listener(l) if l.node == node && l.local.port() == port => Some(*handle),
            SocketState::Listener(_) | SocketState::End(_) => None,
        })
    }

    /// A socket that is about to connect.
    pub fn fresh_end(&mut self, node: NodeId, peer_addr: SocketAddr) -> End {
        let ip = if peer_addr.ip().is_loopback() { peer_addr.ip() } else { node.ip() };
        End {
            node,
            local: SocketAddr::new(ip, self.fresh_port(node)),
            peer_addr,
            peer: None,
            received: VecDeque::new(),
            coming: 0,
            last_arrival: 0,
            ended: false,
            error: None,
            send_shut: false,
            sends: VecDeque::new(),
            sent_bytes: 0,
        }
    }

    pub fn is_cut(&self, a: NodeId, b: NodeId) -> bool {
        self.cut.iter().any(|&(x, y)| (x, y) == (a, b) || (x, y) == (b, a))
    }

    /// Moves bytes of the waiting sends of `from` onto the way: parcels for its peer, and sends that are done.
    pub fn pump(&mut self, from: Handle, rng: &mut Rng) -> (Vec<Parcel>, Vec<(usize, OpToken, i32)>) {
        let behaviour = self.behaviour;
        let (mut parcels, mut done) = (Vec::new(), Vec::new());
        let Some(peer) = self.end(from).and_then(|end| end.peer) else {
            // No peer (any more): every send fails.
            if let Some(end) = self.end(from) {
                let errno = end.error.unwrap_or(libc::EPIPE);
                done.extend(end.sends.drain(..).map(|s| (s.driver, s.token, failed(&s, errno))));
            }
            return (parcels, done);
        };
        let mut room = match self.end(peer) {
            Some(peer) => behaviour.window_bytes.saturating_sub(peer.received.len() + peer.coming),
            None => 0,
        };
        let mut moved = 0;
        if let Some(end) = self.end(from) {
            while let Some(send) = end.sends.front_mut() {
                if end.send_shut || end.error.is_some() {
                    let errno = end.error.unwrap_or(libc::EPIPE);
                    done.extend(end.sends.drain(..).map(|s| (s.driver, s.token, failed(&s, errno))));
                    break;
                }
                let left = send.stop_at - send.sent;
                if left == 0 {
                    done.push((send.driver, send.token, send.sent as i32));
                    end.sends.pop_front();
                    continue;
                }
                if room == 0 {
                    break;
                }
                let segment = 1 + rng.below(behaviour.segment_bytes_max as u64) as usize;
                let n = segment.min(left).min(room);
                parcels.push(Parcel::Bytes(send.data.drain(..n).collect()));
                send.sent += n;
                room -= n;
                moved += n;
            }
            end.sent_bytes += moved as u64;
        }
        if let Some(peer) = self.end(peer) {
            peer.coming += moved;
        }
        (parcels, done)
    }
}

/// A send that cannot go on: what got out counts, as on the ring.
fn failed(send: &PendingSend, errno: i32) -> i32 {
    if send.sent > 0 { send.sent as i32 } else { -errno }
}
