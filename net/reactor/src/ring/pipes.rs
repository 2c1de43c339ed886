//! The system calls of pipes: making one, emptying it into a socket. None of them waits.
//!
//! Holds: pipe2(2), F_SETPIPE_SZ, splice(2). Never touches: the ring; how pipes are filled.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};

use crate::ids::Handle;
use crate::pipe::{PIPE_BYTES_MIN, RawPipe};

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A pipe of `bytes`, or of the largest half, quarter, ... that the system grants: pipe(7), "/proc/sys/fs/pipe-max-size".
pub(super) fn make(bytes: usize) -> io::Result<RawPipe> {
    let mut ends = [-1; 2];
    // SAFETY: two writable numbers.
    checked(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
    // SAFETY: descriptors the kernel just gave us.
    let [read, write] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    let mut wanted = bytes;
    let granted = loop {
        // SAFETY: no pointers involved.
        let granted = unsafe { libc::fcntl(write.as_raw_fd(), libc::F_SETPIPE_SZ, wanted as libc::c_int) };
        if granted >= 0 || wanted <= PIPE_BYTES_MIN {
            break granted;
        }
        wanted /= 2;
    };
    // A user that has too many pages in pipes gets pipes of a page or two.
    let granted = if granted >= 0 {
        granted
    } else {
        // SAFETY: no pointers involved.
        checked(unsafe { libc::fcntl(write.as_raw_fd(), libc::F_GETPIPE_SZ) })?
    };
    Ok(RawPipe { read: Handle(read.into_raw_fd()), write: Handle(write.into_raw_fd()), bytes: granted as usize })
}

/// splice(2) asks the socket, not the call, whether it may wait (fs/splice.c, `splice_to_socket`). Sends of the ring wait
/// by themselves all the same: they ask the operation.
pub(super) fn set_nonblocking(stream: Handle) -> io::Result<()> {
    // SAFETY: no pointers involved.
    let flags = checked(unsafe { libc::fcntl(stream.0, libc::F_GETFL) })?;
    // SAFETY: as above.
    checked(unsafe { libc::fcntl(stream.0, libc::F_SETFL, flags | libc::O_NONBLOCK) }).map(drop)
}

/// A broken connection is EPIPE; the signal that goes with it is ignored by every Rust program, and must be.
pub(super) fn splice(read: Handle, stream: Handle, len: usize, more: bool) -> io::Result<usize> {
    let more = if more { libc::SPLICE_F_MORE } else { 0 };
    let (from, to) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: without offsets no pointers are involved.
    let moved = unsafe { libc::splice(read.0, from, stream.0, to, len, libc::SPLICE_F_NONBLOCK | more) };
    usize::try_from(moved).map_err(|_| io::Error::last_os_error())
}
