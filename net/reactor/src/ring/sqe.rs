//! Operations as submission queue entries.
//!
//! Holds: the one translation from [`Op`] to the kernel's form. Never touches: the queue.

use io_uring::types::{Fd, FsyncFlags};
use io_uring::{opcode, squeue};

use crate::driver::{Advice, Durability, Op, OpenHow};
use crate::ids::Handle;

const AT_CWD: Fd = Fd(libc::AT_FDCWD);
/// What readability is made of; RDHUP tells a half-closed peer from an empty socket.
const READABLE: u32 = (libc::POLLIN | libc::POLLRDHUP) as u32;

/// The flags of open(2).
fn open_flags(how: OpenHow) -> i32 {
    let access = match (how.read, how.write) {
        (_, false) => libc::O_RDONLY,
        (false, true) => libc::O_WRONLY,
        (true, true) => libc::O_RDWR,
    };
    let flag = |set: bool, flag: i32| if set { flag } else { 0 };
    access
        | libc::O_CLOEXEC
        | flag(how.create || how.create_new, libc::O_CREAT)
        | flag(how.create_new, libc::O_EXCL)
        | flag(how.truncate, libc::O_TRUNC)
        | flag(how.direct, libc::O_DIRECT)
        | flag(how.directory, libc::O_DIRECTORY)
}

/// The file of an operation that is worth a place in the ring's table: what a segment's life consists of.
pub(super) fn file_of(op: &Op) -> Option<Handle> {
    match *op {
        Op::Read { handle, .. } | Op::Write { handle, .. } | Op::Fsync { handle, .. } => Some(handle),
        Op::Allocate { .. }
        | Op::Truncate { .. }
        | Op::Open { .. }
        | Op::Close { .. }
        | Op::Rename { .. }
        | Op::Unlink { .. }
        | Op::Mkdir { .. }
        | Op::Stat { .. }
        | Op::Connect { .. }
        | Op::PollReadable { .. }
        | Op::PollWritable { .. }
        | Op::Send { .. }
        | Op::Splice { .. }
        | Op::Advise { .. } => None,
    }
}

/// The entry for an operation; `place` is that of its [`file_of`], if it has one.
///
/// # Safety
/// The operation's pointers are valid (only a single-piece write looks behind one here).
pub(super) unsafe fn entry(mut op: Op, place: Option<u32>) -> squeue::Entry {
    let Some(place) = place else {
        // SAFETY: promised by the caller.
        return unsafe { plain_entry(op) };
    };
    if let Op::Read { handle, .. } | Op::Write { handle, .. } | Op::Fsync { handle, .. } = &mut op {
        // The flag makes a place of the number.
        *handle = Handle(place as i32);
    }
    // SAFETY: promised by the caller.
    unsafe { plain_entry(op) }.flags(squeue::Flags::FIXED_FILE)
}

/// # Safety
/// As [`entry`].
unsafe fn plain_entry(op: Op) -> squeue::Entry {
    match op {
        Op::Read { handle, buf, len, offset } => opcode::Read::new(Fd(handle.0), buf, len).offset(offset).build(),
        Op::Write { handle, iov, iov_len, offset, durability } => {
            let rw_flags = match durability {
                Durability::None => 0,
                Durability::Dsync => libc::RWF_DSYNC,
            };
            // SAFETY: promised by the caller: `iov_len` pieces are there. (Without any, the pointer leads nowhere.)
            let only = (iov_len == 1).then(|| unsafe { iov.read() });
            match only {
                // One piece needs no list for the kernel to copy in.
                Some(libc::iovec { iov_base, iov_len: bytes }) if u32::try_from(bytes).is_ok() => {
                    opcode::Write::new(Fd(handle.0), iov_base.cast(), bytes as u32)
                        .offset(offset)
                        .rw_flags(rw_flags)
                        .build()
                }
                _ => opcode::Writev::new(Fd(handle.0), iov, iov_len).offset(offset).rw_flags(rw_flags).build(),
            }
        }
        Op::Fsync { handle, data_only } => {
            let flags = if data_only { FsyncFlags::DATASYNC } else { FsyncFlags::empty() };
            opcode::Fsync::new(Fd(handle.0)).flags(flags).build()
        }
        Op::Allocate { handle, offset, len } => opcode::Fallocate::new(Fd(handle.0), len).offset(offset).build(),
        Op::Truncate { handle, len } => opcode::Ftruncate::new(Fd(handle.0), len).build(),
        Op::Open { path, how } => opcode::OpenAt::new(AT_CWD, path).flags(open_flags(how)).mode(how.mode).build(),
        Op::Close { handle } => opcode::Close::new(Fd(handle.0)).build(),
        Op::Rename { from, to } => opcode::RenameAt::new(AT_CWD, from, AT_CWD, to).build(),
        Op::Unlink { path, directory } => {
            let flags = if directory { libc::AT_REMOVEDIR } else { 0 };
            opcode::UnlinkAt::new(AT_CWD, path).flags(flags).build()
        }
        Op::Mkdir { path, mode } => opcode::MkDirAt::new(AT_CWD, path).mode(mode).build(),
        // Always goes to io-wq. As stat(2) does it, but for what a server would have to be asked for.
        Op::Stat { path, into } => opcode::Statx::new(AT_CWD, path, into.cast())
            .flags(libc::AT_NO_AUTOMOUNT | libc::AT_STATX_DONT_SYNC)
            .build(),
        Op::Connect { handle, addr, addr_len } => opcode::Connect::new(Fd(handle.0), addr, addr_len).build(),
        Op::PollReadable { handle } => opcode::PollAdd::new(Fd(handle.0), READABLE).multi(true).build(),
        // WAITALL: the kernel goes on by itself after a partial send, instead of one turn for each bufferful.
        Op::Send { handle, msg, more } => {
            let more = if more { libc::MSG_MORE } else { 0 };
            let flags = (libc::MSG_NOSIGNAL | libc::MSG_WAITALL | more) as u32;
            opcode::SendMsg::new(Fd(handle.0), msg).flags(flags).build()
        }
        Op::PollWritable { handle } => opcode::PollAdd::new(Fd(handle.0), libc::POLLOUT as u32).build(),
        // Always goes to io-wq. No SPLICE_F_NONBLOCK: it may wait for the disk, and there is room in an empty pipe.
        Op::Splice { from, offset, pipe, len } => {
            opcode::Splice::new(Fd(from.0), offset as i64, Fd(pipe.0), -1, len).build()
        }
        // Goes to io-wq.
        Op::Advise { handle, offset, len, advice } => {
            let advice = match advice {
                Advice::DontNeed => libc::POSIX_FADV_DONTNEED,
            };
            opcode::Fadvise::new(Fd(handle.0), len as libc::off_t, advice).offset(offset).build()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's `rw_flags` field of an entry.
    fn rw_flags(pieces: &[libc::iovec], durability: Durability) -> i32 {
        let (iov, iov_len) = (pieces.as_ptr(), pieces.len() as u32);
        // SAFETY: the pieces are there; the entry is never submitted.
        let entry = unsafe { entry(Op::Write { handle: Handle(0), iov, iov_len, offset: 0, durability }, None) };
        // SAFETY: an entry is the kernel's 64-byte structure, of plain numbers.
        let bytes: [u8; 64] = unsafe { std::mem::transmute(entry) };
        i32::from_ne_bytes([bytes[28], bytes[29], bytes[30], bytes[31]])
    }

    #[test]
    fn durable_writes_ask_for_durability_and_others_do_not() {
        let piece = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        for pieces in [&[piece][..], &[piece, piece][..]] {
            assert_eq!(rw_flags(pieces, Durability::Dsync), libc::RWF_DSYNC);
            assert_eq!(rw_flags(pieces, Durability::None), 0);
        }
    }
}
