//! Holds: client sockets with what the standard library can't say before connecting: their own address, their receive buffer.
//! Never touches: what is sent.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Longest wait for bytes.
const PATIENCE: Duration = Duration::from_secs(60);

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Connects from the loopback address 127.0.0.`last`: each has ports of its own. With `receive_buffer`, the socket has one of
/// about that size from the start: what the other side sends soon has no room.
///
/// # Errors
/// What the system says.
pub fn connect_from(last: u8, receive_buffer: Option<i32>, to: SocketAddr) -> io::Result<TcpStream> {
    let address = |of: SocketAddrV4| libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: of.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(of.ip().octets()) },
        sin_zero: [0; 8],
    };
    let SocketAddr::V4(to) = to else { panic!("{to} is no IPv4 address") };
    // SAFETY: no pointers involved.
    let fd = checked(unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: a descriptor the kernel just gave us.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    if let Some(bytes) = receive_buffer {
        let (value, len) = (&raw const bytes, size_of_val(&bytes) as libc::socklen_t);
        // SAFETY: the value is readable for its length.
        checked(unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, value.cast(), len) })?;
    }
    let (from, to) = (address(SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, last), 0)), address(to));
    let len = size_of::<libc::sockaddr_in>() as libc::socklen_t;
    // SAFETY: the address is readable for its length.
    checked(unsafe { libc::bind(socket.as_raw_fd(), (&raw const from).cast(), len) })?;
    // SAFETY: as above.
    checked(unsafe { libc::connect(socket.as_raw_fd(), (&raw const to).cast(), len) })?;
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}
