//! Simulated pipes: bytes of a file on their way to a socket.
//!
//! Holds: the pipes of all nodes; the moving from one into a connection. Never touches: what a page cache would keep.

use std::collections::{HashMap, VecDeque};

use super::disk::Request;
use super::net::{NodeId, Parcel};
use super::world::World;
use crate::ids::Handle;
use crate::pipe::RawPipe;

struct PipeState {
    node: NodeId,
    /// The end where bytes come out; they are kept by the other.
    read: Handle,
    bytes: VecDeque<u8>,
}

/// All pipes, by the handle of the end that is filled.
#[derive(Default)]
pub(super) struct Pipes {
    by_write_end: HashMap<Handle, PipeState>,
}

impl Pipes {
    pub fn handles_of(&self, node: NodeId) -> usize {
        2 * self.by_write_end.values().filter(|pipe| pipe.node == node).count()
    }

    pub fn put(&mut self, pipe: Handle, bytes: &[u8]) {
        if let Some(pipe) = self.by_write_end.get_mut(&pipe) {
            assert!(pipe.bytes.is_empty(), "a pipe that is not empty was filled: on the ring that could wait for ever");
            pipe.bytes.extend(bytes);
        }
    }

    /// Closes an end of a pipe; with the first, what is in it is gone. False: it is none.
    pub fn close(&mut self, handle: Handle) -> bool {
        let before = self.by_write_end.len();
        self.by_write_end.retain(|write, pipe| *write != handle && pipe.read != handle);
        self.by_write_end.len() < before
    }

    pub fn forget(&mut self, node: NodeId) {
        self.by_write_end.retain(|_, pipe| pipe.node != node);
    }
}

/// A splice as the read it is for the disk, into memory of its own; and which pipe that is for.
pub(super) fn as_read(request: Request) -> (Request, Option<(Handle, Vec<u8>)>) {
    let Request::Splice { ino, pipe, len, offset } = request else { return (request, None) };
    let mut bytes = vec![0; len];
    (Request::Read { ino, buf: bytes.as_mut_ptr(), len, offset }, Some((pipe, bytes)))
}

impl World {
    pub fn make_pipe(&mut self, node: NodeId, bytes: usize) -> Result<RawPipe, i32> {
        if !self.handles_left(node) {
            return Err(libc::EMFILE);
        }
        let (read, write) = (self.fresh_handle(), self.fresh_handle());
        self.pipes.by_write_end.insert(write, PipeState { node, read, bytes: VecDeque::new() });
        Ok(RawPipe { read, write, bytes })
    }

    /// Bytes a connection takes now; an error if it takes none any more.
    fn room(&mut self, socket: Handle) -> Result<usize, i32> {
        let window = self.net.behaviour.window_bytes;
        let end = self.net.end(socket).ok_or(libc::EBADF)?;
        if let Some(error) = end.error {
            return Err(error);
        }
        let peer = end.peer.filter(|_| !end.send_shut).ok_or(libc::EPIPE)?;
        let waiting: usize = end.sends.iter().map(|send| send.stop_at - send.sent).sum();
        let peer = self.net.end(peer).ok_or(libc::EPIPE)?;
        Ok(window.saturating_sub(peer.received.len() + peer.coming + waiting))
    }

    /// Whoever waits for room, or for the news that there will be none, is told.
    pub fn report_writable(&mut self, socket: Handle) {
        if self.writers.contains_key(&socket)
            && self.room(socket) != Ok(0)
            && let Some((driver, token)) = self.writers.remove(&socket)
        {
            self.complete(driver, token, i32::from(libc::POLLOUT), false);
        }
    }

    pub fn splice(&mut self, read: Handle, socket: Handle, len: usize) -> Result<usize, i32> {
        let room = self.room(socket)?;
        if room == 0 {
            return Err(libc::EWOULDBLOCK);
        }
        let segment_max = self.net.behaviour.segment_bytes_max as u64;
        let short = self.rng.chance(self.net.behaviour.short_send_per_mille);
        let mut pipes = self.pipes.by_write_end.values_mut();
        let pipe = pipes.find(|pipe| pipe.read == read).ok_or(libc::EBADF)?;
        let mut left = len.min(room).min(pipe.bytes.len());
        if short && left > 1 {
            left = 1 + self.rng.below(left as u64 - 1) as usize;
        }
        let (moved, mut parcels) = (left, Vec::new());
        while left > 0 {
            let n = left.min(1 + self.rng.below(segment_max) as usize);
            parcels.push(Parcel::Bytes(pipe.bytes.drain(..n).collect()));
            left -= n;
        }
        let Some(peer) = self.net.end(socket).and_then(|end| {
            end.sent_bytes += moved as u64;
            end.peer
        }) else {
            return Err(libc::EPIPE);
        };
        if let Some(peer) = self.net.end(peer) {
            peer.coming += moved;
        }
        for parcel in parcels {
            self.send_parcel(peer, parcel);
        }
        Ok(moved)
    }
}
