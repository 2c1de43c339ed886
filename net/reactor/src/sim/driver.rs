//! The driver that runs in the simulated world.
//!
//! Holds: the translation of operations into the world's requests. Never touches: real files, sockets, clocks.

use std::ffi::{CStr, OsStr};
use std::io;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::disk::Request;
use super::net::{NodeId, SocketState};
use super::world::{SimOp, World};
use super::{Shared, advance, round};
use crate::driver::{Completion, DirEntry, Driver, Durability, Op, Wait};
use crate::ids::{Handle, OpToken, WakeTarget};
use crate::net::{Closer, ListenHow, RawConn, get_addr};
use crate::pipe::RawPipe;
use crate::time::{Monotonic, UnixMillis};
use crate::wake::RemoteWaker;

/// The wall clock's date at the world's beginning: 2023-11-14.
const UNIX_MS_AT_START: i64 = 1_700_000_000_000;

/// More turns than any world has shards.
const PARKS_IN_ROUND_MAX: u32 = 1_000_000;

/// One shard of a simulated node.
pub(super) struct SimDriver {
    pub shared: Rc<Shared>,
    pub index: usize,
}

impl SimDriver {
    fn with<T>(&self, f: impl FnOnce(&mut World) -> T) -> T {
        f(&mut self.shared.world.borrow_mut())
    }

    fn node(&self) -> NodeId {
        self.with(|w| w.drivers.get(self.index).map_or(NodeId(0), |d| d.node))
    }

    fn is_alive(&self) -> bool {
        self.with(|w| w.drivers.get(self.index).is_some_and(|d| d.alive))
    }

    fn has_news(&self) -> bool {
        self.with(|w| w.drivers.get(self.index).is_some_and(|d| !d.completions.is_empty() || d.is_woken()))
    }
}

fn errno(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

/// # Safety
/// A C string, valid for the call.
unsafe fn path(at: *const std::ffi::c_char) -> PathBuf {
    // SAFETY: promised by the caller.
    PathBuf::from(OsStr::from_bytes(unsafe { CStr::from_ptr(at) }.to_bytes()))
}

/// # Safety
/// `count` pieces, valid for the call.
unsafe fn gather(iov: *const libc::iovec, count: usize) -> (Vec<u8>, Vec<(*const u8, usize)>) {
    let mut data = Vec::new();
    let mut lent = Vec::new();
    for nth in 0..count {
        // SAFETY: promised by the caller.
        let piece = unsafe { iov.add(nth).read() };
        let at = piece.iov_base.cast_const().cast::<u8>();
        // SAFETY: promised by the caller: a piece is readable for its length.
        data.extend_from_slice(unsafe { std::slice::from_raw_parts(at, piece.iov_len) });
        lent.push((at, piece.iov_len));
    }
    (data, lent)
}

/// The disk request of an operation, and the handle it is on; None for the other operations.
///
/// # Safety
/// As [`Driver::submit`].
unsafe fn disk_request(world: &World, op: Op) -> Option<Result<(Request, Option<Handle>), i32>> {
    let ino = |handle: Handle| world.files.get(&handle).map(|f| f.ino).ok_or(libc::EBADF);
    let on = |handle: Handle, request: &dyn Fn(u64) -> Request| ino(handle).map(|ino| (request(ino), Some(handle)));
    Some(match op {
        Op::Read { handle, buf, len, offset } => {
            on(handle, &|ino| Request::Read { ino, buf, len: len as usize, offset })
        }
        Op::Write { handle, iov, iov_len, offset, durability } => {
            // SAFETY: promised by the caller.
            let (data, lent) = unsafe { gather(iov, iov_len as usize) };
            let durable = durability == Durability::Dsync;
            ino(handle).map(|ino| (Request::Write { ino, data, lent, offset, durable }, Some(handle)))
        }
        Op::Splice { from, offset, pipe, len } => {
            on(from, &|ino| Request::Splice { ino, pipe, len: len as usize, offset })
        }
        Op::Fsync { handle, data_only: _ } => on(handle, &|ino| Request::Sync { ino }),
        Op::Allocate { handle, offset, len } => on(handle, &|ino| Request::Allocate { ino, end: offset + len }),
        Op::Truncate { handle, len } => on(handle, &|ino| Request::Truncate { ino, len }),
        // SAFETY: paths are C strings, valid for the call (here and below).
        Op::Open { path: at, how } => Ok((Request::Open { path: unsafe { path(at) }, how }, None)),
        // SAFETY: as above.
        Op::Rename { from, to } => Ok((unsafe { Request::Rename { from: path(from), to: path(to) } }, None)),
        // SAFETY: as above.
        Op::Unlink { path: at, directory } => Ok((Request::Unlink { path: unsafe { path(at) }, directory }, None)),
        // SAFETY: as above.
        Op::Mkdir { path: at, mode: _ } => Ok((Request::Mkdir { path: unsafe { path(at) } }, None)),
        // SAFETY: as above.
        Op::Stat { path: at, into } => Ok((Request::Stat { path: unsafe { path(at) }, into }, None)),
        Op::Close { .. }
        | Op::Connect { .. }
        | Op::PollReadable { .. }
        | Op::PollWritable { .. }
        | Op::Send { .. }
        | Op::Advise { .. } => return None,
    })
}

impl Driver for SimDriver {
    unsafe fn submit(&mut self, token: OpToken, op: Op) {
        let (alive, index) = (self.is_alive(), self.index);
        let mut world = self.shared.world.borrow_mut();
        if !alive {
            return world.complete(index, token, -libc::EIO, false);
        }
        // SAFETY: promised by the caller.
        if let Some(request) = unsafe { disk_request(&world, op) } {
            return match request {
                Ok((request, handle)) => world.start_disk(index, token, request, handle),
                Err(errno) => world.settle(index, token, -errno),
            };
        }
        match op {
            Op::Close { handle } => {
                world.close(handle);
                world.settle(index, token, 0);
            }
            Op::PollReadable { handle } => {
                world.start(index, token, SimOp::Poll(handle));
                world.polls.insert(handle, (index, token));
                world.report_readable(handle);
            }
            Op::PollWritable { handle } => {
                world.start(index, token, SimOp::PollWritable(handle));
                world.writers.insert(handle, (index, token));
                world.report_writable(handle);
            }
            // There is no page cache.
            Op::Advise { handle, .. } => {
                let known = world.files.contains_key(&handle);
                world.settle(index, token, if known { 0 } else { -libc::EBADF });
            }
            Op::Send { handle, msg, more: _ } => {
                // SAFETY: promised by the caller: message and pieces are valid for the call.
                let (data, _) = unsafe { gather((*msg).msg_iov, (*msg).msg_iovlen) };
                world.start_send(index, token, handle, data);
            }
            Op::Connect { handle, addr, addr_len: _ } => {
                // SAFETY: the address was written into a whole sockaddr_storage.
                let addr = get_addr(unsafe { &*addr.cast::<libc::sockaddr_storage>() });
                debug_assert!(addr.is_ok(), "an address of ours: {addr:?}");
                world.start_connect(index, token, handle);
            }
            Op::Read { .. }
            | Op::Splice { .. }
            | Op::Write { .. }
            | Op::Fsync { .. }
            | Op::Allocate { .. }
            | Op::Truncate { .. }
            | Op::Open { .. }
            | Op::Rename { .. }
            | Op::Unlink { .. }
            | Op::Mkdir { .. }
            | Op::Stat { .. } => {}
        }
    }

    fn cancel(&mut self, token: OpToken) {
        let index = self.index;
        self.with(|w| w.cancel(index, token));
    }

    fn cancel_all(&mut self) {
        let index = self.index;
        self.with(|w| w.cancel_all(index));
    }

    fn reap(&mut self, into: &mut Vec<Completion>) {
        self.with(|w| {
            w.process_due();
            if let Some(driver) = w.drivers.get_mut(self.index) {
                driver.begin_turn();
                into.append(&mut driver.completions);
            }
        });
    }

    fn park(&mut self, wait: Wait, worked: bool) {
        self.with(|w| {
            if let Some(driver) = w.drivers.get_mut(self.index) {
                (driver.wait, driver.worked) = (wait, worked);
            }
        });
        // Within a round the world goes on to the next shard; time moves between rounds.
        if self.shared.in_round.get() {
            let parks = self.shared.parks_in_round.get() + 1;
            self.shared.parks_in_round.set(parks);
            assert!(parks < PARKS_IN_ROUND_MAX, "{parks} turns in one round: block_on within a turn can never end");
            return;
        }
        if !self.is_alive() {
            assert!(self.has_news() || std::thread::panicking(), "a reactor of a crashed node was run");
            return;
        }
        // A reactor driven by `block_on`: run the others, and time, until there is something for it.
        let deadline = match wait {
            Wait::Poll => Monotonic::ZERO,
            Wait::Until(deadline) => deadline,
        };
        loop {
            let busy = round(&self.shared, Some(self.index));
            if self.has_news() || self.with(|w| w.now) >= deadline.as_nanos() {
                return;
            }
            if !busy {
                let moved = advance(&self.shared, deadline);
                assert!(moved, "the simulation is stuck: seed {}", self.with(|w| w.seed));
                if self.has_news() || self.with(|w| w.now) >= deadline.as_nanos() {
                    return;
                }
            }
        }
    }

    fn has_completions(&mut self) -> bool {
        self.has_news()
    }

    fn flush(&mut self) {}

    fn wake_target(&self) -> WakeTarget {
        WakeTarget(self.index as i32)
    }

    fn wake_peer(&mut self, peer: WakeTarget) {
        self.with(|w| {
            if let Some(driver) = w.drivers.get_mut(peer.0 as usize) {
                driver.woken = true;
            }
        });
    }

    fn remote_waker(&mut self) -> io::Result<RemoteWaker> {
        Ok(self.with(|w| match w.drivers.get_mut(self.index) {
            Some(driver) => driver.remote.get_or_insert_with(RemoteWaker::flag_only).clone(),
            None => RemoteWaker::flag_only(),
        }))
    }

    fn now(&mut self) -> Monotonic {
        Monotonic::from_nanos(self.with(|w| w.now))
    }

    fn unix_ms(&mut self) -> UnixMillis {
        UnixMillis(UNIX_MS_AT_START + (self.with(|w| w.now) / 1_000_000) as i64)
    }

    fn fill_random(&mut self, into: &mut [u8]) {
        self.with(|w| w.rng.fill(into));
    }

    fn is_simulated(&self) -> bool {
        true
    }

    fn list_dir(&mut self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let node = self.node();
        self.with(|w| w.node(node).ok_or(libc::EIO).and_then(|n| n.disk.fs.list(path))).map_err(errno)
    }

    fn file_len(&mut self, handle: Handle) -> io::Result<u64> {
        self.with(|w| {
            let file = w.files.get(&handle).ok_or(libc::EBADF)?;
            let (node, ino) = (file.node, file.ino);
            w.node(node).ok_or(libc::EIO)?.disk.fs.len(ino)
        })
        .map_err(errno)
    }

    fn device_of(&mut self, path: &Path) -> io::Result<u64> {
        let node = self.node();
        self.with(|w| w.node(node).ok_or(libc::EIO).map(|n| n.disk.device_of(path))).map_err(errno)
    }

    fn close_now(&mut self, handle: Handle) {
        if self.is_alive() {
            self.with(|w| w.close(handle));
        }
    }

    fn closer(&mut self) -> Closer {
        Closer::World(self.with(|w| w.dropped.clone()))
    }

    fn make_pipe(&mut self, bytes: usize) -> io::Result<RawPipe> {
        let node = self.node();
        self.with(|w| w.make_pipe(node, bytes)).map_err(errno)
    }

    fn try_splice(&mut self, read: Handle, stream: Handle, len: usize, _more: bool) -> io::Result<usize> {
        self.with(|w| w.splice(read, stream, len)).map_err(errno)
    }

    fn prepare_splice(&mut self, _stream: Handle) -> io::Result<()> {
        Ok(())
    }

    fn listen(&mut self, addr: SocketAddr, how: ListenHow) -> io::Result<Handle> {
        let node = self.node();
        self.with(|w| {
            if !w.handles_left(node) {
                return Err(libc::EMFILE);
            }
            let listener = w.net.bind(node, addr, how.backlog)?;
            let handle = w.fresh_handle();
            w.net.sockets.insert(handle, SocketState::Listener(listener));
            Ok(handle)
        })
        .map_err(errno)
    }

    fn try_accept(&mut self, listener: Handle) -> io::Result<(RawConn, SocketAddr)> {
        let node = self.node();
        self.with(|w| {
            let left = w.handles_left(node);
            let state = w.net.listener(listener).ok_or(libc::EBADF)?;
            if state.waiting.is_empty() {
                return Err(libc::EWOULDBLOCK);
            }
            if !left {
                return Err(libc::EMFILE);
            }
            let (handle, from) = state.waiting.pop_front().ok_or(libc::EWOULDBLOCK)?;
            Ok((RawConn::new(handle, Closer::World(w.dropped.clone())), from))
        })
        .map_err(errno)
    }

    fn socket(&mut self, peer: SocketAddr) -> io::Result<Handle> {
        let node = self.node();
        self.with(|w| {
            if !w.handles_left(node) {
                return Err(libc::EMFILE);
            }
            let end = w.net.fresh_end(node, peer);
            let handle = w.fresh_handle();
            w.net.sockets.insert(handle, SocketState::End(end));
            Ok(handle)
        })
        .map_err(errno)
    }

    fn adopt(&mut self, conn: RawConn) -> Handle {
        conn.into_handle()
    }

    fn try_recv(&mut self, handle: Handle, into: &mut [u8]) -> io::Result<usize> {
        self.with(|w| {
            let end = w.net.end(handle).ok_or(libc::EBADF)?;
            let n = end.received.len().min(into.len());
            let mut to = &mut into[..n];
            let (first, second) = end.received.as_slices();
            for from in [first, second] {
                let (now, later) = to.split_at_mut(from.len().min(to.len()));
                now.copy_from_slice(&from[..now.len()]);
                to = later;
            }
            end.received.drain(..n);
            let (peer, error, ended) = (end.peer, end.error, end.ended);
            if n > 0 {
                // There is room again.
                if let Some(peer) = peer {
                    w.pump(peer);
                }
                return Ok(n);
            }
            match error {
                _ if into.is_empty() => Ok(0),
                Some(error) => Err(error),
                None if ended => Ok(0),
                None => Err(libc::EWOULDBLOCK),
            }
        })
        .map_err(errno)
    }

    fn acknowledged_bytes(&mut self, handle: Handle) -> io::Result<u64> {
        self.with(|w| w.net.end(handle).map(|e| e.sent_bytes).ok_or(libc::ENOTCONN)).map_err(errno)
    }

    fn shutdown(&mut self, handle: Handle) {
        self.with(|w| w.shutdown(handle));
    }

    fn local_addr(&mut self, handle: Handle) -> io::Result<SocketAddr> {
        self.with(|w| match w.net.sockets.get(&handle) {
            Some(SocketState::Listener(l)) => Ok(l.local),
            Some(SocketState::End(e)) => Ok(e.local),
            None => Err(libc::EBADF),
        })
        .map_err(errno)
    }

    fn peer_addr(&mut self, handle: Handle) -> io::Result<SocketAddr> {
        self.with(|w| w.net.end(handle).map(|e| e.peer_addr).ok_or(libc::ENOTCONN)).map_err(errno)
    }
}

impl Drop for SimDriver {
    fn drop(&mut self) {
        self.with(|w| {
            if let Some(driver) = w.drivers.get_mut(self.index) {
                driver.alive = false;
            }
        });
    }
}
