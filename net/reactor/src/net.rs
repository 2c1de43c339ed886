//! Stream sockets: listeners, connections on their way between cores, streams.
//!
//! Holds: the socket handles and their readiness. Never touches: frames, protocols.

use std::cell::Cell;
use std::io;
use std::mem::offset_of;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use crate::buf::IoBufs;
use crate::driver::Op;
use crate::ids::Handle;
use crate::op::{OpFuture, Scratch, count};
use crate::pipe::Pipe;
use crate::reactor::Reactor;
use crate::readiness::Readiness;
use crate::shared_file::ClosingBin;

/// An accepted connection that no reactor owns yet: may go to another core as mail. Closes itself when dropped.
#[derive(Debug)]
pub struct RawConn {
    handle: Handle,
    closer: Closer,
}

/// What dropping something open does that no reactor owns.
#[derive(Debug, Clone)]
pub enum Closer {
    /// close(2).
    Descriptor,
    /// Leaves it to the driver that opened it.
    #[doc(hidden)]
    Bin(Arc<ClosingBin>),
    /// Tells the simulated world, which looks here.
    World(Arc<Mutex<Vec<Handle>>>),
}

impl RawConn {
    pub(crate) fn new(handle: Handle, closer: Closer) -> RawConn {
        RawConn { handle, closer }
    }

    /// The descriptor (in the simulation: its number there).
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// Gives the handle up without closing it.
    pub(crate) fn into_handle(self) -> Handle {
        let handle = self.handle;
        let mut this = std::mem::ManuallyDrop::new(self);
        // SAFETY: `this` is never used or dropped again; only its closer needs dropping.
        unsafe { std::ptr::drop_in_place(&raw mut this.closer) };
        handle
    }
}

impl Drop for RawConn {
    fn drop(&mut self) {
        self.closer.close(self.handle);
    }
}

impl Closer {
    /// Closes a handle that its owner alone knows, and gives up with this.
    pub(crate) fn close(&self, handle: Handle) {
        match self {
            // SAFETY: nobody else has the descriptor; who owned it is being dropped.
            Closer::Descriptor => drop(unsafe { libc::close(handle.0) }),
            Closer::Bin(bin) => bin.put(handle),
            Closer::World(closed) => {
                if let Ok(mut closed) = closed.lock() {
                    closed.push(handle);
                }
            }
        }
    }
}

/// How a listener listens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ListenHow {
    /// Connections that may wait to be accepted.
    pub backlog: u32,
    /// SO_SNDBUF of its connections; `None`: the system chooses, and adapts it to each.
    pub send_buffer_bytes: Option<u32>,
    /// SO_RCVBUF, likewise.
    pub receive_buffer_bytes: Option<u32>,
}

/// A socket that takes connections in. Stops listening when dropped.
pub struct Listener {
    socket: Socket,
    local: SocketAddr,
}

impl Listener {
    /// The next connection. An error (EMFILE, ENFILE, ECONNABORTED…) leaves the listener usable: wait a little and
    /// call again. Dropping the future loses no connection.
    pub async fn accept(&self) -> io::Result<(RawConn, SocketAddr)> {
        loop {
            match self.try_accept() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.socket.readable().await?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }

    /// A connection that waits already; WouldBlock when none does.
    pub fn try_accept(&self) -> io::Result<(RawConn, SocketAddr)> {
        let accepted = self.socket.reactor.0.driver.borrow_mut().try_accept(self.socket.handle);
        if let Err(error) = &accepted
            && error.kind() == io::ErrorKind::WouldBlock
        {
            self.socket.readiness.seen_empty();
        }
        accepted
    }

    /// Where it listens: with the port the kernel chose if port 0 was asked for.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }
}

/// A connected stream socket. Closes itself when dropped, without waiting; what was sent still goes out.
pub struct Stream {
    socket: Socket,
    peer: SocketAddr,
    /// Splicing into it does not wait.
    splices: Cell<bool>,
}

impl Stream {
    /// Waits until [`Stream::try_recv`] has something to say: bytes, the end, or an error. One task at a time.
    pub async fn readable(&self) -> io::Result<()> {
        self.socket.readable().await
    }

    /// Whether [`Stream::readable`] would not wait. False of a stream that was never waited for, and of one that the last
    /// [`Stream::try_recv`] has emptied: another one would be a system call for nothing.
    pub fn is_readable(&self) -> bool {
        self.socket.readiness.is_ready()
    }

    /// Waits until the peer has closed its side (or both), or the stream has failed or was [shut
    /// down](Stream::shutdown), whatever there still is to read. Not while another task is in [`Stream::readable`].
    pub async fn hung_up(&self) {
        self.socket.readiness.hung_up(&self.socket.reactor, self.socket.handle).await;
    }

    /// Receives what is there, without waiting: WouldBlock when nothing is, 0 at the end (or for an empty `buf`).
    pub fn try_recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        let asked = buf.len();
        let received = loop {
            let received = self.socket.reactor.0.driver.borrow_mut().try_recv(self.socket.handle, buf);
            match received {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        match &received {
            // Fewer bytes than asked for: the socket is empty now (or at its end, which stays readable).
            Ok(got) if *got < asked && *got > 0 => self.socket.readiness.seen_empty(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.socket.readiness.seen_empty(),
            Ok(_) | Err(_) => {}
        }
        received
    }

    /// Sends the pieces of `bufs`, waiting for room as long as it takes: everything on the ring unless there are more
    /// than [`crate::IOVECS_MAX`] pieces or the connection fails midway; still, callers must handle a short count. One
    /// send at a time keeps the bytes in order. Dropping the future may leave a part sent: close the connection then.
    pub async fn send<W: IoBufs>(&self, bufs: W) -> (io::Result<usize>, W) {
        self.send_part(bufs, false).await
    }

    /// The same; with `more` to follow at once, the system may let a packet that isn't full wait for it.
    pub async fn send_part<W: IoBufs>(&self, bufs: W, more: bool) -> (io::Result<usize>, W) {
        let handle = self.socket.handle;
        let send = OpFuture::new(&self.socket.reactor, bufs, move |bufs: &mut W, scratch: &mut Scratch| {
            scratch.iovecs.clear();
            bufs.expose(&mut scratch.iovecs);
            scratch.msg.msg_name = std::ptr::null_mut();
            scratch.msg.msg_namelen = 0;
            scratch.msg.msg_iovlen = scratch.iovecs.len() as _;
            scratch.msg.msg_iov = scratch.iovecs.as_mut_ptr();
            Op::Send { handle, msg: &raw const scratch.msg, more }
        });
        let (result, bufs) = send.await;
        (count(result), bufs)
    }

    /// Waits until there is room for sending, or an error that the next send tells.
    pub async fn writable(&self) -> io::Result<()> {
        let handle = self.socket.handle;
        let (result, ()) = OpFuture::new(&self.socket.reactor, (), move |_, _| Op::PollWritable { handle }).await;
        count(result).map(drop)
    }

    /// Sends what is in `pipe`, at most `bytes_max`, without a copy and without waiting, as far as there is room: WouldBlock
    /// when there is none. With `more` to follow at once. Not while a send is under way.
    pub fn try_splice(&self, pipe: &mut Pipe, bytes_max: usize, more: bool) -> io::Result<usize> {
        let mut driver = self.socket.reactor.0.driver.borrow_mut();
        if !self.splices.get() {
            driver.prepare_splice(self.socket.handle)?;
            self.splices.set(true);
        }
        let len = pipe.filled().min(bytes_max);
        let more = more || len < pipe.filled();
        let count = loop {
            match driver.try_splice(pipe.read_end(), self.socket.handle, len, more) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        pipe.drained(count);
        Ok(count)
    }

    /// The reactor it is on.
    pub fn reactor(&self) -> &Reactor {
        &self.socket.reactor
    }

    /// Bytes sent that the other side has acknowledged: how a send that waits for room gets on. A system call.
    pub fn acknowledged_bytes(&self) -> io::Result<u64> {
        self.socket.reactor.0.driver.borrow_mut().acknowledged_bytes(self.socket.handle)
    }

    /// Ends both directions: pending operations of either side see the end or an error.
    pub fn shutdown(&self) {
        self.socket.reactor.0.driver.borrow_mut().shutdown(self.socket.handle);
        self.socket.readiness.ended();
    }

    /// The other side's address.
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// Own address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.reactor.0.driver.borrow_mut().local_addr(self.socket.handle)
    }

    /// The descriptor (in the simulation: its number there).
    pub fn handle(&self) -> Handle {
        self.socket.handle
    }
}

struct Socket {
    reactor: Reactor,
    handle: Handle,
    readiness: Rc<Readiness>,
}

impl Socket {
    fn new(reactor: &Reactor, handle: Handle) -> Socket {
        Socket { reactor: reactor.clone(), handle, readiness: Rc::default() }
    }

    async fn readable(&self) -> io::Result<()> {
        self.readiness.readable(&self.reactor, self.handle).await
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // The standing operation holds the socket open: end it first, else the peer never sees our close.
        self.readiness.stop(&self.reactor);
        self.reactor.close(self.handle);
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("local", &self.local).finish()
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").field("handle", &self.socket.handle).field("peer", &self.peer).finish()
    }
}

impl Reactor {
    /// Binds and listens. The bind is exclusive: a second listener on the address fails with AddrInUse.
    pub fn listen(&self, addr: SocketAddr, backlog: u32) -> io::Result<Listener> {
        self.listen_with(addr, ListenHow { backlog, ..ListenHow::default() })
    }

    /// The same, saying more about it.
    pub fn listen_with(&self, addr: SocketAddr, how: ListenHow) -> io::Result<Listener> {
        let mut driver = self.0.driver.borrow_mut();
        let handle = driver.listen(addr, how)?;
        let local = driver.local_addr(handle);
        drop(driver);
        let socket = Socket::new(self, handle);
        Ok(Listener { socket, local: local? })
    }

    /// Makes a connection accepted here or on another core a stream of this one.
    pub fn adopt(&self, conn: RawConn) -> Stream {
        let mut driver = self.0.driver.borrow_mut();
        let handle = driver.adopt(conn);
        // A peer that has gone already has no address; the stream then says so at its first use.
        let nowhere = SocketAddr::new(IpAddr::from([0, 0, 0, 0]), 0);
        let peer = driver.peer_addr(handle).unwrap_or(nowhere);
        drop(driver);
        Stream { socket: Socket::new(self, handle), peer, splices: Cell::new(false) }
    }

    /// Connects to a listener.
    pub async fn connect(&self, addr: SocketAddr) -> io::Result<Stream> {
        let handle = self.0.driver.borrow_mut().socket(addr)?;
        let socket = Socket::new(self, handle);
        let connect = OpFuture::new(self, addr, move |addr: &mut SocketAddr, scratch: &mut Scratch| {
            let addr_len = put_addr(*addr, &mut scratch.addr);
            Op::Connect { handle, addr: (&raw const scratch.addr).cast(), addr_len }
        });
        let (result, peer) = connect.await;
        count(result)?;
        Ok(Stream { socket, peer, splices: Cell::new(false) })
    }
}

/// Writes an address as the kernel wants it; its length.
pub(crate) fn put_addr(addr: SocketAddr, into: &mut libc::sockaddr_storage) -> libc::socklen_t {
    // SAFETY: all zeroes is a valid value of these C structures.
    let (mut v4, mut v6): (libc::sockaddr_in, libc::sockaddr_in6) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    match addr {
        SocketAddr::V4(addr) => {
            v4.sin_family = libc::AF_INET as libc::sa_family_t;
            v4.sin_port = addr.port().to_be();
            v4.sin_addr.s_addr = u32::from_ne_bytes(addr.ip().octets());
            // SAFETY: sockaddr_storage is large enough and aligned for every address family.
            unsafe { (&raw mut *into).cast::<libc::sockaddr_in>().write(v4) };
            size_of::<libc::sockaddr_in>() as libc::socklen_t
        }
        SocketAddr::V6(addr) => {
            v6.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            v6.sin6_port = addr.port().to_be();
            v6.sin6_addr.s6_addr = addr.ip().octets();
            v6.sin6_flowinfo = addr.flowinfo();
            v6.sin6_scope_id = addr.scope_id();
            // SAFETY: as above.
            unsafe { (&raw mut *into).cast::<libc::sockaddr_in6>().write(v6) };
            size_of::<libc::sockaddr_in6>() as libc::socklen_t
        }
    }
}

/// Reads an address the kernel wrote.
pub(crate) fn get_addr(from: &libc::sockaddr_storage) -> io::Result<SocketAddr> {
    const _: () = assert!(offset_of!(libc::sockaddr_storage, ss_family) == 0);
    match i32::from(from.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that it is one; the storage is large enough and aligned.
            let v4 = unsafe { (&raw const *from).cast::<libc::sockaddr_in>().read() };
            Ok(SocketAddr::new(IpAddr::from(v4.sin_addr.s_addr.to_ne_bytes()), u16::from_be(v4.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { (&raw const *from).cast::<libc::sockaddr_in6>().read() };
            let ip = std::net::Ipv6Addr::from(v6.sin6_addr.s6_addr);
            let port = u16::from_be(v6.sin6_port);
            Ok(SocketAddr::V6(std::net::SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id)))
        }
        family => Err(io::Error::new(io::ErrorKind::Unsupported, format!("address family {family}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_kernels_form() {
        for text in ["127.0.0.1:9092", "[::1]:80", "[fe80::1%3]:1"] {
            let addr: SocketAddr = text.parse().unwrap();
            // SAFETY: all zeroes is valid.
            let mut storage = unsafe { std::mem::zeroed() };
            assert!(put_addr(addr, &mut storage) > 0);
            assert_eq!(get_addr(&storage).unwrap(), addr);
        }
    }
}
