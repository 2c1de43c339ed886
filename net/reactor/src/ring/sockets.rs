//! The system calls that never wait and so need no ring.
//!
//! Holds: socket set-up, non-blocking accept and receive, file lengths and times, folder listings, random bytes. Never touches:
//! the ring.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::time::UNIX_EPOCH;

use crate::driver::DirEntry;
use crate::ids::Handle;
use crate::net::{Closer, ListenHow, RawConn, get_addr, put_addr};
use crate::time::UnixMillis;

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn socket(peer: SocketAddr, flags: libc::c_int) -> io::Result<OwnedFd> {
    let family = if peer.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: no pointers involved.
    let fd = checked(unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC | flags, 0) })?;
    // SAFETY: a descriptor the kernel just gave us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn set_option(fd: i32, level: libc::c_int, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the value is readable for its length.
    checked(unsafe { libc::setsockopt(fd, level, option, (&raw const value).cast(), len) }).map(drop)
}

pub(super) fn listen(addr: SocketAddr, how: ListenHow) -> io::Result<Handle> {
    // Non-blocking: accepting is tried, and waited for by readiness.
    let fd = socket(addr, libc::SOCK_NONBLOCK)?;
    // Lets a restart bind while connections of the last run linger; two listeners still exclude each other.
    set_option(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    // SAFETY: all zeroes is a valid address storage.
    let mut storage = unsafe { std::mem::zeroed() };
    let len = put_addr(addr, &mut storage);
    // SAFETY: the address is readable for its length.
    checked(unsafe { libc::bind(fd.as_raw_fd(), (&raw const storage).cast(), len) })?;
    // Accepted sockets take these over, tcp(7); the receive buffer must be known before the first handshake.
    for (option, bytes) in [(libc::SO_SNDBUF, how.send_buffer_bytes), (libc::SO_RCVBUF, how.receive_buffer_bytes)] {
        if let Some(bytes) = bytes {
            set_option(fd.as_raw_fd(), libc::SOL_SOCKET, option, i32::try_from(bytes).unwrap_or(i32::MAX))?;
        }
    }
    let backlog = i32::try_from(how.backlog).unwrap_or(i32::MAX);
    // SAFETY: no pointers involved.
    checked(unsafe { libc::listen(fd.as_raw_fd(), backlog) })?;
    Ok(Handle(std::os::fd::IntoRawFd::into_raw_fd(fd)))
}

pub(super) fn accept(listener: Handle) -> io::Result<(RawConn, SocketAddr)> {
    // SAFETY: all zeroes is a valid address storage.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut len = size_of_val(&storage) as libc::socklen_t;
    // The stream blocks: io_uring waits for it by itself, and receiving says MSG_DONTWAIT.
    // SAFETY: storage and length are writable and agree.
    let fd =
        checked(unsafe { libc::accept4(listener.0, (&raw mut storage).cast(), &raw mut len, libc::SOCK_CLOEXEC) })?;
    let conn = RawConn::new(Handle(fd), Closer::Descriptor);
    // Replies are whole frames: waiting to fill a segment only delays them.
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
    Ok((conn, get_addr(&storage)?))
}

pub(super) fn stream_socket(peer: SocketAddr) -> io::Result<Handle> {
    let fd = socket(peer, 0)?;
    set_option(fd.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
    Ok(Handle(std::os::fd::IntoRawFd::into_raw_fd(fd)))
}

pub(super) fn recv(handle: Handle, into: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the buffer is writable for its length.
    let got = unsafe { libc::recv(handle.0, into.as_mut_ptr().cast(), into.len(), libc::MSG_DONTWAIT) };
    usize::try_from(got).map_err(|_| io::Error::last_os_error())
}

/// tcp(7), TCP_INFO.
pub(super) fn acknowledged_bytes(handle: Handle) -> io::Result<u64> {
    // SAFETY: all zeroes is a valid value of this C structure.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut len = size_of_val(&info) as libc::socklen_t;
    // SAFETY: the structure is writable for its length.
    checked(unsafe {
        libc::getsockopt(handle.0, libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut info).cast(), &raw mut len)
    })?;
    Ok(info.tcpi_bytes_acked)
}

type NameOf = unsafe extern "C" fn(libc::c_int, *mut libc::sockaddr, *mut libc::socklen_t) -> libc::c_int;

fn addr_by(name_of: NameOf, handle: Handle) -> io::Result<SocketAddr> {
    // SAFETY: all zeroes is a valid address storage.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut len = size_of_val(&storage) as libc::socklen_t;
    // SAFETY: storage and length are writable and agree.
    checked(unsafe { name_of(handle.0, (&raw mut storage).cast(), &raw mut len) })?;
    get_addr(&storage)
}

pub(super) fn local_addr(handle: Handle) -> io::Result<SocketAddr> {
    addr_by(libc::getsockname, handle)
}

pub(super) fn peer_addr(handle: Handle) -> io::Result<SocketAddr> {
    addr_by(libc::getpeername, handle)
}

pub(super) fn file_len(handle: Handle) -> io::Result<u64> {
    // SAFETY: all zeroes is a valid stat.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: writable, of the type the call fills.
    checked(unsafe { libc::fstat(handle.0, &raw mut stat) })?;
    Ok(stat.st_size as u64)
}

/// ftruncate(2) on the spot, as a completion's result: for kernels before 6.9.
pub(super) fn truncate_now(handle: Handle, len: u64) -> i32 {
    let Ok(len) = libc::off_t::try_from(len) else {
        return -libc::EFBIG;
    };
    loop {
        // SAFETY: no pointers involved.
        match checked(unsafe { libc::ftruncate(handle.0, len) }) {
            Ok(_) => return 0,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return -error.raw_os_error().unwrap_or(libc::EIO),
        }
    }
}

pub(super) fn list_dir(path: &Path) -> io::Result<Vec<DirEntry>> {
    let mut listed = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        match entry.metadata() {
            Ok(about) => {
                listed.push(DirEntry { name: entry.file_name(), is_dir: about.is_dir(), len: about.len() });
            }
            // Removed since it was read: another core, or a worker, is at it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(listed)
}

/// When what is in a file was last changed.
pub(super) fn changed_at(path: &Path) -> io::Result<UnixMillis> {
    let changed = std::fs::metadata(path)?.modified()?;
    // Before 1970, or beyond all reckoning: not a time that anything is to go by.
    let since = changed.duration_since(UNIX_EPOCH).ok().and_then(|since| i64::try_from(since.as_millis()).ok());
    since.map(UnixMillis).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Random bytes from the kernel, fetched 256 at a time.
pub(super) struct RandomBuffer {
    bytes: [u8; 256],
    left: usize,
}

impl RandomBuffer {
    pub fn new() -> RandomBuffer {
        RandomBuffer { bytes: [0; 256], left: 0 }
    }

    pub fn fill(&mut self, into: &mut [u8]) {
        for byte in into {
            if self.left == 0 {
                self.refill();
            }
            self.left -= 1;
            if let Some(fresh) = self.bytes.get_mut(self.left) {
                // Given out once, and not kept.
                *byte = std::mem::take(fresh);
            }
        }
    }

    fn refill(&mut self) {
        loop {
            // SAFETY: the buffer is writable for its length. Up to 256 bytes come whole, once the pool is seeded.
            let got = unsafe { libc::getrandom(self.bytes.as_mut_ptr().cast(), self.bytes.len(), 0) };
            if got == self.bytes.len() as isize {
                self.left = self.bytes.len();
                return;
            }
            let error = io::Error::last_os_error();
            // Every kernel from 3.17 on has it; without randomness ids would repeat, so there is no going on.
            assert!(got >= 0 || error.kind() == io::ErrorKind::Interrupted, "getrandom: {error}");
        }
    }
}
