//! The seam between the executor and what it runs on: the ring, or the simulation.
//!
//! Holds: the operations, their completions, and the trait both drivers implement. Never touches: tasks, futures.

use std::ffi::{OsString, c_char};
use std::io;
use std::net::SocketAddr;
use std::path::Path;

use crate::ids::{Handle, OpToken, WakeTarget};
use crate::net::{Closer, ListenHow, RawConn};
use crate::pipe::RawPipe;
use crate::time::{Monotonic, UnixMillis};
use crate::wake::RemoteWaker;

/// How a file is opened. Build from [`OpenHow::read`], [`OpenHow::write`] or [`OpenHow::new`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenHow {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Make the file when it is missing.
    pub create: bool,
    /// Make the file, and fail with `AlreadyExists` when it is there.
    pub create_new: bool,
    /// Cut an existing file to length zero.
    pub truncate: bool,
    /// O_DIRECT: offsets, lengths and addresses must be aligned to the device's blocks.
    pub direct: bool,
    /// O_DIRECTORY: fail unless it is a directory.
    pub directory: bool,
    /// Permission bits of a file that is made.
    pub mode: u32,
}

impl Default for OpenHow {
    fn default() -> OpenHow {
        OpenHow::new()
    }
}

impl OpenHow {
    /// Nothing set but the mode, 0o644.
    pub const fn new() -> OpenHow {
        OpenHow {
            read: false,
            write: false,
            create: false,
            create_new: false,
            truncate: false,
            direct: false,
            directory: false,
            mode: 0o644,
        }
    }

    /// An existing file, for reading.
    pub const fn read() -> OpenHow {
        OpenHow { read: true, ..OpenHow::new() }
    }

    /// An existing file, for reading and writing.
    pub const fn write() -> OpenHow {
        OpenHow { read: true, write: true, ..OpenHow::new() }
    }

    /// Also make the file when it is missing.
    pub const fn create(mut self) -> OpenHow {
        self.create = true;
        self
    }

    /// Also make the file, which must not be there.
    pub const fn create_new(mut self) -> OpenHow {
        self.create_new = true;
        self
    }

    /// Also cut the file to length zero.
    pub const fn truncate(mut self) -> OpenHow {
        self.truncate = true;
        self
    }

    /// Also with O_DIRECT.
    pub const fn direct(mut self) -> OpenHow {
        self.direct = true;
        self
    }

    /// Only a directory.
    pub const fn directory(mut self) -> OpenHow {
        self.directory = true;
        self
    }
}

/// What a write's completion promises.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// Nothing beyond "other readers see it".
    None,
    /// The bytes, and the length if the write extends the file, are on stable storage (RWF_DSYNC).
    Dsync,
}

/// What is said of a part of a file, posix_fadvise(2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advice {
    /// It is not needed soon: the page cache may have its place back.
    DontNeed,
}

/// One operation as a driver gets it; the fields mean what their names say. Pointers stay valid until the token's last completion has been reaped.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub enum Op {
    /// Read at an offset.
    Read { handle: Handle, buf: *mut u8, len: u32, offset: u64 },
    /// Vectored write at an offset.
    Write { handle: Handle, iov: *const libc::iovec, iov_len: u32, offset: u64, durability: Durability },
    /// fsync, or fdatasync.
    Fsync { handle: Handle, data_only: bool },
    /// Reserve space (fallocate, mode 0: the length grows).
    Allocate { handle: Handle, offset: u64, len: u64 },
    /// Set the length.
    Truncate { handle: Handle, len: u64 },
    /// Open; the result is a handle.
    Open { path: *const c_char, how: OpenHow },
    /// Close a file or socket.
    Close { handle: Handle },
    /// Rename, replacing what is there.
    Rename { from: *const c_char, to: *const c_char },
    /// Remove a file, or an empty directory.
    Unlink { path: *const c_char, directory: bool },
    /// Make a directory.
    Mkdir { path: *const c_char, mode: u32 },
    /// What is known of the file a path leads to, statx(2): only what it is on.
    Stat { path: *const c_char, into: *mut libc::statx },
    /// Connect a socket made by [`Driver::socket`].
    Connect { handle: Handle, addr: *const libc::sockaddr, addr_len: libc::socklen_t },
    /// Readiness for reading (of a listener: a waiting connection), reported again and again until cancelled. A
    /// result is a mask of poll(2) bits; a completion with `more == false` ends it.
    PollReadable { handle: Handle },
    /// Room for sending, or an error to be told at the next send: reported once.
    PollWritable { handle: Handle },
    /// Vectored send of everything in the message, unless an error or the peer stops it. With `more` to follow at once.
    Send { handle: Handle, msg: *const libc::msghdr, more: bool },
    /// Bytes of a file into an empty pipe, as far as it has room, without a copy.
    Splice { from: Handle, offset: u64, pipe: Handle, len: u32 },
    /// Advice about a part of a file.
    Advise { handle: Handle, offset: u64, len: u64, advice: Advice },
}

/// What came of an operation.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    /// Which operation.
    pub token: OpToken,
    /// A count or handle, or a negated errno.
    pub result: i32,
    /// Further completions follow for the same token.
    pub more: bool,
}

/// How long [`Driver::park`] may sleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Not at all: there is work.
    Poll,
    /// Until something completes, somebody wakes us, or this time comes ([`Monotonic::MAX`]: no limit).
    Until(Monotonic),
}

/// One entry of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirEntry {
    /// File name without the folder.
    pub name: OsString,
    /// Whether it is a directory itself.
    pub is_dir: bool,
    /// Bytes of a file; unspecified for a directory.
    pub len: u64,
}

/// What the executor runs on. One per shard, used by its thread only.
pub trait Driver {
    /// Starts an operation (or queues it: at the latest [`Driver::park`] starts it). Its completions are delivered by
    /// [`Driver::reap`]; the last one has `more == false`. Failures are completions too.
    ///
    /// # Safety
    /// Everything `op` points to must stay valid, and unchanged where the driver reads it and unread where it writes,
    /// until the last completion of `token` has been reaped. No other operation in flight may have the same token.
    unsafe fn submit(&mut self, token: OpToken, op: Op);
    /// Asks for an operation to end early. Its last completion still comes, with ECANCELED or with its true result.
    fn cancel(&mut self, token: OpToken);
    /// The reactor is about to end and has cancelled everything: finish what can be finished without waiting.
    fn cancel_all(&mut self) {}
    /// Appends what has completed.
    fn reap(&mut self, into: &mut Vec<Completion>);
    /// Starts everything queued, then sleeps as `wait` says. `worked` tells whether this turn did anything (polled a
    /// task or reaped a completion): the simulation moves time only when nobody does.
    fn park(&mut self, wait: Wait, worked: bool);
    /// Whether something has completed since the last reap: cheap, no system call; for spinning.
    fn has_completions(&mut self) -> bool;
    /// Starts everything queued, without waiting.
    fn flush(&mut self);

    /// Where peers send wake-ups for this driver.
    fn wake_target(&self) -> WakeTarget;
    /// Wakes a parked peer, at the latest when this driver parks.
    fn wake_peer(&mut self, peer: WakeTarget);
    /// A waker for threads that have no ring.
    fn remote_waker(&mut self) -> io::Result<RemoteWaker>;

    /// Reads the monotonic clock.
    fn now(&mut self) -> Monotonic;
    /// Reads the wall clock.
    fn unix_ms(&mut self) -> UnixMillis;
    /// Fills with random bytes: of cryptographic quality on the ring, from the seed in the simulation.
    fn fill_random(&mut self, into: &mut [u8]);
    /// Whether this is the simulation.
    fn is_simulated(&self) -> bool;

    /// Lists a directory, blocking; without "." and "..", in no particular order.
    fn list_dir(&mut self, path: &Path) -> io::Result<Vec<DirEntry>>;
    /// Length of an open file.
    fn file_len(&mut self, handle: Handle) -> io::Result<u64>;
    /// When what is in a file was last changed; `None`: no such times are kept.
    fn changed_at(&mut self, _path: &Path) -> io::Result<Option<UnixMillis>> {
        Ok(None)
    }
    /// The device that the file at this path is on, at once: blocks the core.
    fn device_of(&mut self, path: &Path) -> io::Result<u64>;
    /// Closes, behind everything submitted so far: for when no op slot is free.
    fn close_now(&mut self, handle: Handle);
    /// Prepares an open file for many operations, until it is closed; see [`crate::File::keep_at_hand`]. False: it goes
    /// without.
    fn keep_at_hand(&mut self, _handle: Handle) -> bool {
        false
    }

    /// How a handle that may be dropped on any thread is closed.
    #[doc(hidden)]
    fn closer(&mut self) -> Closer;
    /// A fresh pipe of about `bytes`: less if the system allows no more.
    fn make_pipe(&mut self, bytes: usize) -> io::Result<RawPipe>;
    /// Moves at most `len` bytes from the pipe `read` into a stream, without a copy and without waiting: WouldBlock when
    /// the stream has no room. With `more` to follow at once.
    fn try_splice(&mut self, read: Handle, stream: Handle, len: usize, more: bool) -> io::Result<usize>;
    /// From now on [`Driver::try_splice`] into this stream does not wait.
    fn prepare_splice(&mut self, stream: Handle) -> io::Result<()>;

    /// Binds and listens; exclusive (no SO_REUSEPORT).
    fn listen(&mut self, addr: SocketAddr, how: ListenHow) -> io::Result<Handle>;
    /// Takes a waiting connection; WouldBlock when there is none.
    fn try_accept(&mut self, listener: Handle) -> io::Result<(RawConn, SocketAddr)>;
    /// A fresh stream socket for connecting to `peer`.
    fn socket(&mut self, peer: SocketAddr) -> io::Result<Handle>;
    /// Makes a connection accepted elsewhere this driver's own.
    fn adopt(&mut self, conn: RawConn) -> Handle;
    /// Receives what is there; WouldBlock when nothing is, 0 at the end.
    fn try_recv(&mut self, handle: Handle, into: &mut [u8]) -> io::Result<usize>;
    /// Bytes sent on a stream that the other side has acknowledged, since it was connected.
    fn acknowledged_bytes(&mut self, handle: Handle) -> io::Result<u64>;
    /// Ends both directions: pending and later operations of either side see the end.
    fn shutdown(&mut self, handle: Handle);
    /// Own address of a listener or stream.
    fn local_addr(&mut self, handle: Handle) -> io::Result<SocketAddr>;
    /// The other side's address of a stream.
    fn peer_addr(&mut self, handle: Handle) -> io::Result<SocketAddr>;
}
