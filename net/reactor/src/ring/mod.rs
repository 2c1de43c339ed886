//! The driver on io_uring.
//!
//! Holds: one ring, its submission backlog, its wake-ups. Never touches: futures, buffers beyond the pointers it hands
//! to the kernel.
//!
//! The ring is set up as SINGLE_ISSUER | DEFER_TASKRUN | COOP_TASKRUN: completions are posted only while this thread is
//! in `io_uring_enter`, so nothing interrupts a turn. Operations are queued as they come and handed over in one call
//! in `park`; a full queue is handed over early, without waiting.

mod enter;
mod files;
mod pipes;
mod probe;
mod sockets;
mod sqe;

use std::collections::VecDeque;
use std::io;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use io_uring::squeue::{self, Flags};
use io_uring::types::{Fd, Fixed};
use io_uring::{IoUring, cqueue, opcode};

use crate::driver::{Completion, DirEntry, Driver, Op, Wait};
use crate::ids::{Handle, OpToken, WakeTarget};
use crate::net::{Closer, ListenHow, RawConn};
use crate::pin::CoreId;
use crate::pipe::RawPipe;
use crate::shared_file::ClosingBin;
use crate::time::{Monotonic, UnixMillis};
use crate::wake::RemoteWaker;

pub use probe::{KernelMissing, KernelSupport, probe};

use enter::Enter;
use files::FileTable;

/// The remote waker's event counter has something.
const TOKEN_EVENT: u64 = OpToken::RESERVED_FROM;
/// A cancellation that found nothing to cancel; successful ones post nothing.
const TOKEN_CANCEL: u64 = OpToken::RESERVED_FROM + 1;
/// A peer woke us.
const TOKEN_WOKEN: u64 = OpToken::RESERVED_FROM + 2;
/// A close without an op slot failed; successful ones post nothing.
const TOKEN_CLOSE: u64 = OpToken::RESERVED_FROM + 3;
/// A wake-up we sent failed; successful ones post nothing here. The low half is whom.
const TOKEN_WAKE_SENT: u64 = OpToken::RESERVED_FROM + (1 << 32);
/// A place in the table of files is empty again. The low half is which.
const TOKEN_EMPTIED: u64 = OpToken::RESERVED_FROM + (2 << 32);
const LOW_HALF: u64 = 0xffff_ffff;
/// Longest sleep with a deadline; the loop then goes round. The kernel adds a timeout to its clock in signed nanoseconds:
/// one of 300 years would be over at once, again and again.
const SLEEP_MAX: Duration = Duration::from_secs(3600);

/// How a ring is set up.
#[derive(Clone, Debug)]
pub struct RingConfig {
    /// Operations handed over in one call; a power of two.
    pub sq_entries: u32,
    /// Completions the kernel keeps ready; a power of two, at least `sq_entries`. More than that many wait in the
    /// kernel's overflow list: slower, not lost.
    pub cq_entries: u32,
    /// Most io-wq threads for work on regular files (fsync, buffered reads that miss).
    pub workers_bounded_max: u32,
    /// Most io-wq threads for everything else that may block.
    pub workers_unbounded_max: u32,
    /// Cores for the io-wq threads; empty: wherever this thread may run.
    pub worker_cores: Vec<CoreId>,
    /// Places for files that are used again and again, see [`crate::File::keep_at_hand`]; files beyond them are looked
    /// up at each operation. The kernel takes no more than RLIMIT_NOFILE, and 8 bytes for each.
    pub files_at_hand_max: u32,
}

impl Default for RingConfig {
    fn default() -> RingConfig {
        RingConfig {
            sq_entries: 1024,
            cq_entries: 8192,
            workers_bounded_max: 4,
            workers_unbounded_max: 4,
            worker_cores: Vec::new(),
            files_at_hand_max: 1024,
        }
    }
}

/// Why there is no ring.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// This machine cannot run it; says what is missing and how to fix it.
    #[error(transparent)]
    Kernel(#[from] KernelMissing),
    /// A step of the setup failed although the kernel should support it.
    #[error("io_uring setup: {step}: {source}")]
    Setup {
        /// What was tried.
        step: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// One thread's io_uring. Make it on the thread that uses it: the kernel admits no other.
pub struct RingDriver {
    // Dropped, and so given back, while the ring is still open: a registered descriptor would keep it alive.
    enter: Enter,
    ring: IoUring,
    files: FileTable,
    /// What found the submission queue full even after handing it over. Bounded: one entry an op slot, one a
    /// cancellation of it, two a handle (its place, its close), one a peer.
    backlog: VecDeque<squeue::Entry>,
    /// Completions of what was done on the spot.
    done: Vec<Completion>,
    remote: Option<RemoteWaker>,
    support: KernelSupport,
    random: sockets::RandomBuffer,
    /// Files whose last user was on whatever core.
    closing: Arc<ClosingBin>,
    not_send: PhantomData<*const ()>,
}

impl RingDriver {
    /// Sets up the ring of the current thread.
    pub fn new(config: RingConfig) -> Result<RingDriver, RingError> {
        let (ring, support) = probe::build(config.sq_entries, config.cq_entries)?;
        let submitter = ring.submitter();
        let mut workers = [config.workers_bounded_max, config.workers_unbounded_max];
        submitter
            .register_iowq_max_workers(&mut workers)
            .map_err(|source| RingError::Setup { step: "bounding the io-wq workers", source })?;
        if !config.worker_cores.is_empty() {
            let cores = enter::cpu_set(&config.worker_cores);
            submitter
                .register_iowq_aff(&cores)
                .map_err(|source| RingError::Setup { step: "binding the io-wq workers to cores", source })?;
        }
        let files = FileTable::new(&submitter, config.files_at_hand_max);
        let enter = Enter::new(ring.as_raw_fd(), support.no_iowait);
        Ok(RingDriver {
            enter,
            ring,
            files,
            backlog: VecDeque::new(),
            done: Vec::new(),
            remote: None,
            support,
            random: sockets::RandomBuffer::new(),
            closing: Arc::default(),
            not_send: PhantomData,
        })
    }

    /// What the kernel was found to support.
    pub fn support(&self) -> KernelSupport {
        self.support
    }

    /// # Safety
    /// As [`Driver::submit`]: what the entry points to stays valid until its last completion.
    unsafe fn push(&mut self, entry: squeue::Entry) {
        self.drain_backlog();
        // SAFETY: promised by the caller.
        if !self.backlog.is_empty() || unsafe { self.ring.submission().push(&entry) }.is_err() {
            self.backlog.push_back(entry);
            self.drain_backlog();
        }
    }

    /// Moves the backlog into the submission queue, handing over a full queue as often as the kernel takes it.
    fn drain_backlog(&mut self) {
        while let Some(entry) = self.backlog.front() {
            // SAFETY: every entry in the backlog came through `push`, with its promise.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                self.backlog.pop_front();
                continue;
            }
            let before = self.ring.submission().len();
            self.enter.submit(before);
            if self.ring.submission().len() >= before {
                return;
            }
        }
    }

    fn arm_event(&mut self) {
        let Some(fd) = self.remote.as_ref().and_then(RemoteWaker::event_fd) else {
            return;
        };
        let poll = opcode::PollAdd::new(Fd(fd), libc::POLLIN as u32).multi(true).build().user_data(TOKEN_EVENT);
        // SAFETY: the entry points to nothing.
        unsafe { self.push(poll) };
    }

    fn take_event(&mut self, more: bool) {
        if let Some(remote) = &self.remote {
            if let Some(fd) = remote.event_fd() {
                let mut count = [0u8; 8];
                // SAFETY: eight writable bytes; the descriptor is open and non-blocking.
                unsafe { libc::read(fd, count.as_mut_ptr().cast(), count.len()) };
            }
            // After the counter is empty, so that a wake from here on writes it again.
            remote.take();
        }
        if !more {
            self.arm_event();
        }
    }

    /// Queues what must come before the close of a descriptor: its place in the table of files is emptied.
    fn leave_place(&mut self, handle: Handle) {
        if let Some(place) = self.files.leave(handle.0) {
            let empty = opcode::Close::new(Fixed(place)).build().user_data(TOKEN_EMPTIED | u64::from(place));
            // SAFETY: the entry points to nothing.
            unsafe { self.push(empty) };
        }
    }

    /// Work the kernel has for us that costs a call to fetch: deferred completions, or an overflowed queue.
    fn kernel_has_more(&mut self) -> bool {
        let queue = self.ring.submission();
        queue.taskrun() || queue.cq_overflow()
    }
}

impl Driver for RingDriver {
    unsafe fn submit(&mut self, token: OpToken, op: Op) {
        if let Op::Truncate { handle, len } = op
            && !self.support.ftruncate
        {
            let result = sockets::truncate_now(handle, len);
            self.done.push(Completion { token, result, more: false });
            return;
        }
        if let Op::Close { handle } = op {
            self.leave_place(handle);
        }
        let place = sqe::file_of(&op).and_then(|handle| self.files.place(handle.0));
        // SAFETY: promised by the caller.
        let entry = unsafe { sqe::entry(op, place) }.user_data(token.0);
        // SAFETY: promised by the caller.
        unsafe { self.push(entry) };
    }

    fn keep_at_hand(&mut self, handle: Handle) -> bool {
        self.files.put(&self.ring.submitter(), handle.0)
    }

    fn cancel(&mut self, token: OpToken) {
        let cancel = opcode::AsyncCancel::new(token.0).build().user_data(TOKEN_CANCEL).flags(Flags::SKIP_SUCCESS);
        // SAFETY: the entry points to nothing.
        unsafe { self.push(cancel) };
    }

    fn reap(&mut self, into: &mut Vec<Completion>) {
        into.append(&mut self.done);
        for handle in self.closing.take() {
            self.close_now(handle);
        }
        loop {
            let (mut event, mut wake_again) = (None, Vec::new());
            for entry in self.ring.completion() {
                let (token, result, more) = (entry.user_data(), entry.result(), cqueue::more(entry.flags()));
                match token {
                    TOKEN_EVENT => event = Some(more && event.unwrap_or(true)),
                    TOKEN_CANCEL | TOKEN_WOKEN => {}
                    TOKEN_CLOSE => tracing::warn!(error = %io::Error::from_raw_os_error(-result), "a close failed"),
                    _ if token < OpToken::RESERVED_FROM => {
                        into.push(Completion { token: OpToken(token), result, more });
                    }
                    _ if token & !LOW_HALF == TOKEN_EMPTIED => self.files.emptied((token & LOW_HALF) as u32),
                    // The kernel had no memory for the message: the peer sleeps on.
                    _ if matches!(-result, libc::ENOMEM | libc::EAGAIN) => wake_again.push(token & LOW_HALF),
                    // The peer has closed its ring, or its queue is full: then it is awake.
                    _ => tracing::debug!(result, "wake-up of a peer"),
                }
            }
            if let Some(more) = event {
                self.take_event(more);
            }
            for peer in wake_again {
                self.wake_peer(WakeTarget(peer as i32));
            }
            if !self.ring.submission().cq_overflow() {
                return;
            }
            // The kernel kept back what did not fit; a call moves it into the queue.
            self.enter.poll(0);
            if self.ring.completion().is_empty() {
                return;
            }
        }
    }

    fn park(&mut self, wait: Wait, _worked: bool) {
        self.drain_backlog();
        let queued = self.ring.submission().len();
        let busy = !self.done.is_empty() || !self.backlog.is_empty() || !self.ring.completion().is_empty();
        match wait {
            Wait::Until(deadline) if !busy => {
                let timeout = match deadline {
                    Monotonic::MAX => None,
                    deadline => Some(deadline.saturating_since(enter::monotonic()).min(SLEEP_MAX)),
                };
                self.enter.wait(queued, timeout);
            }
            Wait::Until(_) | Wait::Poll => {
                if queued > 0 || self.kernel_has_more() {
                    self.enter.poll(queued);
                }
            }
        }
    }

    fn has_completions(&mut self) -> bool {
        !self.done.is_empty() || !self.ring.completion().is_empty() || self.kernel_has_more()
    }

    fn flush(&mut self) {
        self.drain_backlog();
        let queued = self.ring.submission().len();
        if queued > 0 {
            self.enter.submit(queued);
        }
    }

    fn wake_target(&self) -> WakeTarget {
        WakeTarget(self.ring.as_raw_fd())
    }

    fn wake_peer(&mut self, peer: WakeTarget) {
        let wake = opcode::MsgRingData::new(Fd(peer.0), 0, TOKEN_WOKEN, None)
            .build()
            .user_data(TOKEN_WAKE_SENT | u64::from(peer.0 as u32))
            .flags(Flags::SKIP_SUCCESS);
        // SAFETY: the entry points to nothing.
        unsafe { self.push(wake) };
    }

    fn remote_waker(&mut self) -> io::Result<RemoteWaker> {
        if let Some(remote) = &self.remote {
            return Ok(remote.clone());
        }
        // SAFETY: no pointers involved.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a descriptor the kernel just gave us.
        let remote = RemoteWaker::with_event(unsafe { OwnedFd::from_raw_fd(fd) });
        self.remote = Some(remote.clone());
        self.arm_event();
        Ok(remote)
    }

    fn now(&mut self) -> Monotonic {
        enter::monotonic()
    }

    fn unix_ms(&mut self) -> UnixMillis {
        enter::unix_ms()
    }

    fn fill_random(&mut self, into: &mut [u8]) {
        self.random.fill(into);
    }

    fn is_simulated(&self) -> bool {
        false
    }

    fn list_dir(&mut self, path: &Path) -> io::Result<Vec<DirEntry>> {
        sockets::list_dir(path)
    }

    fn file_len(&mut self, handle: Handle) -> io::Result<u64> {
        sockets::file_len(handle)
    }

    fn changed_at(&mut self, path: &Path) -> io::Result<Option<UnixMillis>> {
        sockets::changed_at(path).map(Some)
    }

    fn device_of(&mut self, path: &Path) -> io::Result<u64> {
        std::fs::metadata(path).map(|about| about.dev())
    }

    fn close_now(&mut self, handle: Handle) {
        self.leave_place(handle);
        // In the queue, not at once: entries there may name the descriptor, and would find whatever gets its number.
        let close = opcode::Close::new(Fd(handle.0)).build().user_data(TOKEN_CLOSE).flags(Flags::SKIP_SUCCESS);
        // SAFETY: the entry points to nothing.
        unsafe { self.push(close) };
    }

    fn closer(&mut self) -> Closer {
        Closer::Bin(Arc::clone(&self.closing))
    }

    fn make_pipe(&mut self, bytes: usize) -> io::Result<RawPipe> {
        pipes::make(bytes)
    }

    fn try_splice(&mut self, read: Handle, stream: Handle, len: usize, more: bool) -> io::Result<usize> {
        pipes::splice(read, stream, len, more)
    }

    fn prepare_splice(&mut self, stream: Handle) -> io::Result<()> {
        pipes::set_nonblocking(stream)
    }

    fn listen(&mut self, addr: SocketAddr, how: ListenHow) -> io::Result<Handle> {
        sockets::listen(addr, how)
    }

    fn try_accept(&mut self, listener: Handle) -> io::Result<(RawConn, SocketAddr)> {
        sockets::accept(listener)
    }

    fn socket(&mut self, peer: SocketAddr) -> io::Result<Handle> {
        sockets::stream_socket(peer)
    }

    fn adopt(&mut self, conn: RawConn) -> Handle {
        conn.into_handle()
    }

    fn try_recv(&mut self, handle: Handle, into: &mut [u8]) -> io::Result<usize> {
        sockets::recv(handle, into)
    }

    fn acknowledged_bytes(&mut self, handle: Handle) -> io::Result<u64> {
        sockets::acknowledged_bytes(handle)
    }

    fn shutdown(&mut self, handle: Handle) {
        // SAFETY: no pointers involved. A socket that is not connected any more needs no shutting down.
        unsafe { libc::shutdown(handle.0, libc::SHUT_RDWR) };
    }

    fn local_addr(&mut self, handle: Handle) -> io::Result<SocketAddr> {
        sockets::local_addr(handle)
    }

    fn peer_addr(&mut self, handle: Handle) -> io::Result<SocketAddr> {
        sockets::peer_addr(handle)
    }
}

impl Drop for RingDriver {
    fn drop(&mut self) {
        // Closes that nobody waits for.
        self.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_ring_gives_its_registered_descriptor_back() {
        // A thread has 16 places for them, and a ring that keeps one lives on.
        for nth in 0..40 {
            let driver = RingDriver::new(RingConfig::default()).unwrap();
            assert!(driver.enter.is_registered(), "ring {nth} of this thread");
        }
    }
}
