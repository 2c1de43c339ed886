//! The simulated world's inside: the event queue, and what events do.
//!
//! Holds: time, nodes, drivers, handles. Never touches: reactors (see `mod.rs`, which runs them).
//!
//! Everything happens on one thread, in an order that the seed decides; the same seed gives the same run.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use super::disk::{Disk, DiskFault, Request};
use super::fs::Ino;
use super::net::{End, Net, NodeId, Parcel, PendingSend, SocketState};
use super::pipes::{self, Pipes};
use super::rng::Rng;
use crate::driver::{Completion, Wait};
use crate::ids::{Handle, OpToken};
use crate::wake::RemoteWaker;

/// What somebody's turn costs of virtual time, so that time passes also for those who never sleep.
pub(super) const ROUND_NANOS: u64 = 1_000;

pub(super) struct Node {
    pub disk: Disk,
    pub handles_max: usize,
}

pub(super) struct DriverState {
    pub node: NodeId,
    pub alive: bool,
    pub completions: Vec<Completion>,
    pub ops: HashMap<u64, SimOp>,
    pub wait: Wait,
    /// The last turn did something.
    pub worked: bool,
    pub remote: Option<RemoteWaker>,
    pub woken: bool,
}

impl DriverState {
    /// Whether somebody woke it since its last turn.
    pub fn is_woken(&self) -> bool {
        self.woken || self.remote.as_ref().is_some_and(RemoteWaker::is_pending)
    }

    /// Whether it slept through its last turn and still has no reason to wake.
    pub fn is_quiet(&self, now: u64) -> bool {
        let asleep = match self.wait {
            Wait::Poll => false,
            Wait::Until(deadline) => deadline.as_nanos() > now,
        };
        asleep && !self.worked && self.completions.is_empty() && !self.is_woken()
    }

    /// A turn begins: wake-ups until now are answered by it.
    pub fn begin_turn(&mut self) {
        self.woken = false;
        if let Some(remote) = &self.remote {
            remote.take();
        }
    }
}

pub(super) enum SimOp {
    Disk {
        request: Request,
        fault: Option<DiskFault>,
    },
    Poll(Handle),
    PollWritable(Handle),
    Send(Handle),
    Connect(Handle),
    /// Nothing is left to do but to say so.
    Settled(i32),
}

pub(super) struct OpenFile {
    pub node: NodeId,
    pub ino: Ino,
    pub path: PathBuf,
    pub direct: bool,
}

enum Event {
    Finish {
        driver: usize,
        token: OpToken,
    },
    Arrive {
        at: Handle,
        parcel: Parcel,
    },
    /// A connection attempt reaches its node.
    Knock {
        driver: usize,
        token: OpToken,
    },
}

pub(super) struct World {
    pub seed: u64,
    pub rng: Rng,
    pub now: u64,
    events: BTreeMap<(u64, u64), Event>,
    event_number: u64,
    pub nodes: Vec<Node>,
    pub drivers: Vec<DriverState>,
    pub net: Net,
    pub files: HashMap<Handle, OpenFile>,
    /// The standing readiness operation of a socket.
    pub polls: HashMap<Handle, (usize, OpToken)>,
    /// The operation that waits for room in a socket.
    pub writers: HashMap<Handle, (usize, OpToken)>,
    pub pipes: Pipes,
    next_handle: i32,
    /// Connections dropped before a reactor owned them.
    pub dropped: Arc<Mutex<Vec<Handle>>>,
    /// Parcels stopped by a cut between nodes, in order.
    held: Vec<(Handle, Parcel)>,
}

impl World {
    pub fn new(seed: u64) -> World {
        World {
            seed,
            rng: Rng::new(seed),
            now: 1_000_000_000,
            events: BTreeMap::new(),
            event_number: 0,
            nodes: Vec::new(),
            drivers: Vec::new(),
            net: Net::default(),
            files: HashMap::new(),
            polls: HashMap::new(),
            writers: HashMap::new(),
            pipes: Pipes::default(),
            next_handle: 3,
            dropped: Arc::default(),
            held: Vec::new(),
        }
    }

    pub fn node(&mut self, node: NodeId) -> Option<&mut Node> {
        self.nodes.get_mut(usize::from(node.0))
    }

    fn at(&mut self, time: u64, event: Event) {
        self.event_number += 1;
        self.events.insert((time, self.event_number), event);
    }

    pub fn next_event(&self) -> Option<u64> {
        self.events.keys().next().map(|(time, _)| *time)
    }

    pub fn fresh_handle(&mut self) -> Handle {
        self.next_handle += 1;
        Handle(self.next_handle)
    }

    pub fn handles_left(&mut self, node: NodeId) -> bool {
        let files = self.files.values().filter(|f| f.node == node).count();
        let of_node = |s: &&SocketState| match s {
            SocketState::Listener(l) => l.node == node,
            SocketState::End(e) => e.node == node,
        };
        let sockets = self.net.sockets.values().filter(of_node).count();
        let pipes = self.pipes.handles_of(node);
        self.node(node).is_some_and(|n| files + sockets + pipes < n.handles_max)
    }

    pub fn complete(&mut self, driver: usize, token: OpToken, result: i32, more: bool) {
        if let Some(driver) = self.drivers.get_mut(driver) {
            if !more {
                driver.ops.remove(&token.0);
            }
            driver.completions.push(Completion { token, result, more });
        }
    }

    /// Starts an operation whose result is known; it completes a little later.
    pub fn settle(&mut self, driver: usize, token: OpToken, result: i32) {
        let time = self.now + 1_000 + self.rng.below(5_000);
        self.start(driver, token, SimOp::Settled(result));
        self.at(time, Event::Finish { driver, token });
    }

    pub fn start(&mut self, driver: usize, token: OpToken, op: SimOp) {
        if let Some(driver) = self.drivers.get_mut(driver) {
            driver.ops.insert(token.0, op);
        }
    }

    pub fn start_disk(&mut self, driver: usize, token: OpToken, request: Request, file: Option<Handle>) {
        let Some(node_id) = self.drivers.get(driver).map(|d| d.node) else { return };
        let file = file.and_then(|handle| self.files.get(&handle));
        let direct = file.is_some_and(|f| f.direct);
        let path = file.map(|f| f.path.clone()).unwrap_or_default();
        let Some(node) = self.nodes.get_mut(usize::from(node_id.0)) else { return };
        if direct && let Err(errno) = node.disk.refuse_unaligned(&request, &path) {
            return self.settle(driver, token, -errno);
        }
        let (nanos, fault) = node.disk.admit(&request, &path, &mut self.rng);
        if let Some(ino) = request.ino() {
            node.disk.fs.hold(ino);
        }
        let time = self.now + nanos;
        self.start(driver, token, SimOp::Disk { request, fault });
        self.at(time, Event::Finish { driver, token });
    }

    // ---- events ----

    /// Does everything that is due.
    pub fn process_due(&mut self) {
        self.close_dropped();
        while let Some(entry) = self.events.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            match entry.remove() {
                Event::Finish { driver, token } => self.finish(driver, token),
                Event::Arrive { at, parcel } => self.arrive(at, parcel),
                Event::Knock { driver, token } => self.knock(driver, token),
            }
        }
    }

    fn finish(&mut self, driver: usize, token: OpToken) {
        let Some(state) = self.drivers.get_mut(driver) else { return };
        let node_id = state.node;
        let Some(op) = state.ops.remove(&token.0) else { return };
        let result = match op {
            SimOp::Settled(result) => result,
            SimOp::Disk { request, fault } => self.finish_disk(node_id, request, fault),
            // These end by other events.
            SimOp::Poll(_) | SimOp::PollWritable(_) | SimOp::Send(_) | SimOp::Connect(_) => return,
        };
        self.complete(driver, token, result, false);
    }

    fn finish_disk(&mut self, node_id: NodeId, request: Request, fault: Option<DiskFault>) -> i32 {
        let opened = match &request {
            Request::Open { path, how } => Some((path.clone(), how.direct)),
            _ => None,
        };
        if opened.is_some() && !self.handles_left(node_id) {
            return -libc::EMFILE;
        }
        let Some(node) = self.nodes.get_mut(usize::from(node_id.0)) else { return -libc::EIO };
        let held = request.ino();
        let (request, into_pipe) = pipes::as_read(request);
        // SAFETY: the operation has not completed, so by the driver's contract its buffers are still lent; a dead
        // driver's operations are gone from the table and never get here.
        let result = unsafe { node.disk.execute(request, fault, &mut self.rng) };
        if let Some(ino) = held {
            node.disk.fs.release(ino);
        }
        if let (Ok(count), Some((pipe, bytes))) = (&result, into_pipe) {
            self.pipes.put(pipe, bytes.get(..*count as usize).unwrap_or_default());
        }
        match (result, opened) {
            (Err(errno), _) => -errno,
            (Ok(ino), Some((path, direct))) => {
                let handle = self.fresh_handle();
                self.files.insert(handle, OpenFile { node: node_id, ino, path, direct });
                handle.0
            }
            (Ok(count), None) => i32::try_from(count).unwrap_or(i32::MAX),
        }
    }

    // ---- the network ----

    pub fn send_parcel(&mut self, to: Handle, parcel: Parcel) {
        let nanos = self.rng.nanos(self.net.behaviour.latency);
        let reset = matches!(parcel, Parcel::Bytes(_))
            && self.rng.below(1_000_000) < u64::from(self.net.behaviour.reset_per_million);
        let earliest = self.now + nanos;
        let Some(end) = self.net.end(to) else { return };
        end.last_arrival = earliest.max(end.last_arrival);
        let time = end.last_arrival;
        if reset {
            let from = end.peer;
            self.at(time, Event::Arrive { at: to, parcel: Parcel::Reset });
            if let Some(from) = from {
                self.at(time, Event::Arrive { at: from, parcel: Parcel::Reset });
            }
            return;
        }
        self.at(time, Event::Arrive { at: to, parcel });
    }

    fn arrive(&mut self, at: Handle, parcel: Parcel) {
        let Some(end) = self.net.end(at) else { return };
        let (here, there) = (Some(end.node), Net::node_of(end.node, end.peer_addr.ip()));
        if let (Some(here), Some(there)) = (here, there)
            && self.net.is_cut(here, there)
        {
            return self.held.push((at, parcel));
        }
        let Some(end) = self.net.end(at) else { return };
        match parcel {
            Parcel::Bytes(bytes) => {
                end.coming = end.coming.saturating_sub(bytes.len());
                if end.error.is_none() {
                    end.received.extend(bytes);
                }
            }
            Parcel::End => {
                end.ended = true;
                // Sends that waited for room at a peer that is gone fail now.
                if end.peer.is_none() {
                    self.pump(at);
                }
            }
            Parcel::Reset => {
                end.error.get_or_insert(libc::ECONNRESET);
                end.peer = None;
                self.pump(at);
            }
        }
        self.report_readable(at);
    }

    /// The cut is healed: what was held goes on.
    pub fn release_held(&mut self) {
        for (to, parcel) in std::mem::take(&mut self.held) {
            self.at(self.now, Event::Arrive { at: to, parcel });
        }
    }

    /// Poll bits of a socket now; zero when there is nothing to read.
    fn readable_bits(&mut self, handle: Handle) -> i32 {
        let bits = match self.net.sockets.get(&handle) {
            Some(SocketState::Listener(l)) if !l.waiting.is_empty() => libc::POLLIN,
            Some(SocketState::End(e)) if e.error.is_some() => libc::POLLIN | libc::POLLERR | libc::POLLHUP,
            Some(SocketState::End(e)) if e.ended => libc::POLLIN | libc::POLLRDHUP,
            Some(SocketState::End(e)) if !e.received.is_empty() => libc::POLLIN,
            Some(SocketState::Listener(_) | SocketState::End(_)) => 0,
            None => libc::POLLNVAL,
        };
        i32::from(bits)
    }

    pub fn report_readable(&mut self, handle: Handle) {
        let bits = self.readable_bits(handle);
        if bits == 0 {
            return;
        }
        if let Some(&(driver, token)) = self.polls.get(&handle) {
            let reported =
                self.drivers.get_mut(driver).and_then(|d| d.completions.iter_mut().find(|c| c.token == token));
            match reported {
                // One report says it all until it is reaped.
                Some(reported) => reported.result |= bits,
                None => self.complete(driver, token, bits, true),
            }
        }
    }

    pub fn pump(&mut self, from: Handle) {
        let (parcels, done) = self.net.pump(from, &mut self.rng);
        let peer = self.net.end(from).and_then(|end| end.peer);
        for parcel in parcels {
            if let Some(peer) = peer {
                self.send_parcel(peer, parcel);
            }
        }
        for (driver, token, result) in done {
            self.complete(driver, token, result, false);
        }
        self.report_writable(from);
    }

    pub fn start_send(&mut self, driver: usize, token: OpToken, handle: Handle, data: Vec<u8>) {
        let short = data.len() > 1 && self.rng.chance(self.net.behaviour.short_send_per_mille);
        let stop_at = if short { 1 + self.rng.below(data.len() as u64 - 1) as usize } else { data.len() };
        let Some(end) = self.net.end(handle) else { return self.settle(driver, token, -libc::EBADF) };
        end.sends.push_back(PendingSend { driver, token, data: data.into(), sent: 0, stop_at });
        self.start(driver, token, SimOp::Send(handle));
        self.pump(handle);
    }

    pub fn start_connect(&mut self, driver: usize, token: OpToken, handle: Handle) {
        let Some(end) = self.net.end(handle) else { return self.settle(driver, token, -libc::EBADF) };
        let (from, to) = (end.node, end.peer_addr.ip());
        let answers = Net::node_of(from, to)
            .is_some_and(|to| !self.net.is_cut(from, to) && self.drivers.iter().any(|d| d.alive && d.node == to));
        self.start(driver, token, SimOp::Connect(handle));
        let nanos = match answers {
            true => 2 * self.rng.nanos(self.net.behaviour.latency),
            false => self.net.behaviour.connect_timeout.as_nanos() as u64,
        };
        self.at(self.now + nanos, Event::Knock { driver, token });
    }

    fn knock(&mut self, driver: usize, token: OpToken) {
        let Some(SimOp::Connect(handle)) = self.drivers.get(driver).and_then(|d| d.ops.get(&token.0)) else { return };
        let result = match self.join(*handle) {
            Ok(()) => 0,
            Err(errno) => -errno,
        };
        self.complete(driver, token, result, false);
    }

    /// Makes the other end of a connecting socket and queues it at its listener.
    fn join(&mut self, near: Handle) -> Result<(), i32> {
        let Some(end) = self.net.end(near) else { return Err(libc::ECONNABORTED) };
        let (from, local, addr) = (end.node, end.local, end.peer_addr);
        let node = Net::node_of(from, addr.ip()).ok_or(libc::EHOSTUNREACH)?;
        if self.net.is_cut(from, node) || !self.drivers.iter().any(|d| d.alive && d.node == node) {
            return Err(libc::ETIMEDOUT);
        }
        let listener = self.net.find_listener(node, addr.port()).ok_or(libc::ECONNREFUSED)?;
        let full = self.net.listener(listener).is_some_and(|l| l.waiting.len() >= l.backlog);
        if full {
            return Err(libc::ETIMEDOUT);
        }
        let far = self.fresh_handle();
        let far_end = End { peer: Some(near), local: addr, peer_addr: local, node, ..self.net.fresh_end(node, local) };
        self.net.sockets.insert(far, SocketState::End(far_end));
        if let Some(end) = self.net.end(near) {
            end.peer = Some(far);
        }
        if let Some(listener) = self.net.listener(listener) {
            listener.waiting.push_back((far, local));
        }
        self.report_readable(listener);
        Ok(())
    }

    // ---- closing ----

    fn close_dropped(&mut self) {
        let dropped = self.dropped.lock().map(|mut d| std::mem::take(&mut *d)).unwrap_or_default();
        dropped.into_iter().for_each(|handle| self.close(handle));
    }

    pub fn close(&mut self, handle: Handle) {
        if let Some(file) = self.files.remove(&handle) {
            if let Some(node) = self.node(file.node) {
                node.disk.fs.release(file.ino);
            }
            return;
        }
        if self.pipes.close(handle) {
            return;
        }
        match self.net.sockets.remove(&handle) {
            Some(SocketState::Listener(listener)) => {
                listener.waiting.into_iter().for_each(|(end, _)| self.vanish(end));
            }
            Some(SocketState::End(end)) => {
                for send in &end.sends {
                    self.complete(send.driver, send.token, -libc::EPIPE, false);
                }
                if let Some(peer) = end.peer {
                    // Bytes nobody read make it a reset, as in TCP.
                    let parcel = if end.received.is_empty() { Parcel::End } else { Parcel::Reset };
                    self.send_parcel(peer, parcel);
                    if let Some(peer) = self.net.end(peer) {
                        peer.peer = None;
                    }
                }
            }
            None => {}
        }
        let waiting = [self.polls.remove(&handle), self.writers.remove(&handle)];
        for (driver, token) in waiting.into_iter().flatten() {
            self.complete(driver, token, -libc::ECANCELED, false);
        }
    }

    /// Both directions of a stream end.
    pub fn shutdown(&mut self, handle: Handle) {
        let Some(end) = self.net.end(handle) else { return };
        (end.ended, end.send_shut) = (true, true);
        if let Some(peer) = end.peer {
            self.send_parcel(peer, Parcel::End);
            if let Some(peer) = self.net.end(peer) {
                peer.peer = None;
            }
        }
        self.pump(handle);
        self.report_readable(handle);
    }

    /// An end is gone without a goodbye; its peer is reset.
    pub fn vanish(&mut self, handle: Handle) {
        let peer = self.net.end(handle).and_then(|end| end.peer.take());
        self.close(handle);
        if let Some(peer) = peer {
            self.send_parcel(peer, Parcel::Reset);
        }
    }

    /// The process behind a driver ends in order: what it gave to the disk is done, the rest is cancelled.
    pub fn cancel_all(&mut self, driver: usize) {
        let Some(state) = self.drivers.get_mut(driver) else { return };
        let mut tokens: Vec<u64> = state.ops.keys().copied().collect();
        tokens.sort_unstable();
        for token in tokens.into_iter().map(OpToken) {
            match self.drivers.get(driver).and_then(|d| d.ops.get(&token.0)) {
                Some(SimOp::Disk { .. } | SimOp::Settled(_)) => self.finish(driver, token),
                Some(SimOp::Poll(_) | SimOp::PollWritable(_) | SimOp::Send(_) | SimOp::Connect(_)) => {
                    self.cancel(driver, token);
                }
                None => {}
            }
        }
    }

    /// Ends an operation early, if its kind can be.
    pub fn cancel(&mut self, driver: usize, token: OpToken) {
        let Some(state) = self.drivers.get(driver) else { return };
        let result = match state.ops.get(&token.0) {
            // A disk finishes what it began.
            None | Some(SimOp::Disk { .. } | SimOp::Settled(_)) => return,
            Some(SimOp::Poll(handle)) => {
                let handle = *handle;
                self.polls.remove(&handle);
                -libc::ECANCELED
            }
            Some(SimOp::PollWritable(handle)) => {
                let handle = *handle;
                self.writers.remove(&handle);
                -libc::ECANCELED
            }
            Some(SimOp::Send(handle)) => {
                let handle = *handle;
                let Some(end) = self.net.end(handle) else { return };
                let sent = end.sends.iter().find(|send| send.token == token).map_or(0, |send| send.sent);
                end.sends.retain(|send| send.token != token);
                if sent > 0 { sent as i32 } else { -libc::ECANCELED }
            }
            Some(SimOp::Connect(_)) => -libc::ECANCELED,
        };
        self.complete(driver, token, result, false);
    }

    /// Every connection of a node is reset, at both ends.
    pub fn reset_connections(&mut self, node: NodeId) {
        for handle in self.net.sockets_of(node) {
            if let Some(peer) = self.net.end(handle).map(|end| end.peer) {
                self.send_parcel(handle, Parcel::Reset);
                if let Some(peer) = peer {
                    self.send_parcel(peer, Parcel::Reset);
                }
            }
        }
    }

    /// Cuts a node's power: its drivers are dead, its disk keeps what was durable.
    pub fn crash(&mut self, node_id: NodeId) {
        let indices: Vec<usize> =
            (0..self.drivers.len()).filter(|d| self.drivers.get(*d).is_some_and(|d| d.node == node_id)).collect();
        for index in indices {
            let Some(driver) = self.drivers.get_mut(index) else { continue };
            driver.alive = false;
            let mut ops: Vec<(u64, SimOp)> = driver.ops.drain().collect();
            ops.sort_by_key(|(token, _)| *token);
            for (token, op) in ops {
                driver.completions.push(Completion { token: OpToken(token), result: -libc::ECANCELED, more: false });
                // A write under way is torn.
                if let SimOp::Disk { request, .. } = op
                    && let Some(node) = self.nodes.get_mut(usize::from(node_id.0))
                    && !matches!(request, Request::Sync { .. })
                {
                    node.disk.fail(&request, &mut self.rng);
                }
            }
        }
        self.polls.retain(|_, (driver, _)| self.drivers.get(*driver).is_some_and(|d| d.alive));
        self.writers.retain(|_, (driver, _)| self.drivers.get(*driver).is_some_and(|d| d.alive));
        self.files.retain(|_, file| file.node != node_id);
        self.pipes.forget(node_id);
        for socket in self.net.sockets_of(node_id) {
            if let Some(end) = self.net.end(socket) {
                end.sends.clear();
            }
            self.vanish(socket);
        }
        if let Some(node) = self.nodes.get_mut(usize::from(node_id.0)) {
            node.disk.fs.crash(&mut self.rng);
        }
    }
}
