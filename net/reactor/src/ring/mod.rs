//! The driver on io_uring.
//!
//! Holds: one ring, its submission backlog, its wake-ups. Never touches: futures, buffers beyond the pointers it hands
//! to the kernel.
//!
//! The ring is set up as SINGLE_ISSUER | DEFER_TASKRUN | COOP_TASKRUN: completions are posted only while this thread is
//! in `io_uring_enter`, so nothing interrupts a turn. Operations are queued as they come and handed over in one call
//! in `park`; a full queue is handed over early, without waiting.

mod enter;
mod probe;
mod sockets;
mod sqe;

use std::collections::VecDeque;
use std::io;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use io_uring::squeue::{self, Flags};
use io_uring::types::Fd;
use io_uring::{IoUring, cqueue, opcode};

use crate::driver::{Completion, DirEntry, Driver, Op, Wait};
use crate::ids::{Handle, OpToken, WakeTarget};
use crate::net::RawConn;
use crate::pin::CoreId;
use crate::time::{Monotonic, UnixMillis};
use crate::wake::RemoteWaker;

pub use probe::{KernelMissing, KernelSupport, probe};

use enter::Enter;

/// The remote waker's event counter has something.
const TOKEN_EVENT: u64 = OpToken::RESERVED_FROM;
/// A cancellation that found nothing to cancel; successful ones post nothing.
const TOKEN_CANCEL: u64 = OpToken::RESERVED_FROM + 1;
/// A wake-up we sent failed; successful ones post nothing here.
const TOKEN_WAKE_SENT: u64 = OpToken::RESERVED_FROM + 2;
/// A peer woke us.
const TOKEN_WOKEN: u64 = OpToken::RESERVED_FROM + 3;

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
}

impl Default for RingConfig {
    fn default() -> RingConfig {
        RingConfig {
            sq_entries: 1024,
            cq_entries: 8192,
            workers_bounded_max: 4,
            workers_unbounded_max: 4,
            worker_cores: Vec::new(),
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
    ring: IoUring,
    enter: Enter,
    /// What found the submission queue full even after handing it over. Bounded: one entry an op slot, one a
    /// cancellation of it, one a peer.
    backlog: VecDeque<squeue::Entry>,
    /// Completions of what was done on the spot.
    done: Vec<Completion>,
    remote: Option<RemoteWaker>,
    support: KernelSupport,
    random: sockets::RandomBuffer,
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
        let enter = Enter::new(ring.as_raw_fd(), support.no_iowait);
        Ok(RingDriver {
            ring,
            enter,
            backlog: VecDeque::new(),
            done: Vec::new(),
            remote: None,
            support,
            random: sockets::RandomBuffer::new(),
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
        // SAFETY: promised by the caller.
        let entry = unsafe { sqe::entry(op) }.user_data(token.0);
        // SAFETY: promised by the caller.
        unsafe { self.push(entry) };
    }

    fn cancel(&mut self, token: OpToken) {
        let cancel = opcode::AsyncCancel::new(token.0).build().user_data(TOKEN_CANCEL).flags(Flags::SKIP_SUCCESS);
        // SAFETY: the entry points to nothing.
        unsafe { self.push(cancel) };
    }

    fn reap(&mut self, into: &mut Vec<Completion>) {
        into.append(&mut self.done);
        loop {
            let mut event = None;
            for entry in self.ring.completion() {
                let more = cqueue::more(entry.flags());
                match entry.user_data() {
                    TOKEN_EVENT => event = Some(more && event.unwrap_or(true)),
                    TOKEN_CANCEL | TOKEN_WOKEN => {}
                    // The peer has closed its ring, or its queue is full: then it is awake.
                    TOKEN_WAKE_SENT => {
                        tracing::debug!(result = entry.result(), "wake-up of a peer")
                    }
                    token => into.push(Completion { token: OpToken(token), result: entry.result(), more }),
                }
            }
            if let Some(more) = event {
                self.take_event(more);
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
                    deadline => Some(deadline.saturating_since(enter::monotonic())),
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
            .user_data(TOKEN_WAKE_SENT)
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

    fn close_now(&mut self, handle: Handle) {
        // SAFETY: the handle's owner gives it up with this call.
        unsafe { libc::close(handle.0) };
    }

    fn listen(&mut self, addr: SocketAddr, backlog: u32) -> io::Result<Handle> {
        sockets::listen(addr, backlog)
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
