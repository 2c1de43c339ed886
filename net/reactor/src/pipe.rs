//! Pipes that carry bytes of a file to a socket without a copy.
//!
//! Holds: the bounded pool of one core's pipes, and a pipe between its filling and its emptying. Never touches: which
//! bytes, sockets (see [`crate::Stream::try_splice`]).
//!
//! ```text
//!   file ──SPLICE in the ring (io-wq may wait for the disk)──> pipe ──splice(2), never waiting──> socket
//! ```
//!
//! A pipe holds references to pages of the page cache. Only an empty one is filled, so that filling waits for the disk
//! and never for the socket; one that is not empty when it is dropped is closed, never used again.

use std::io;

use crate::driver::Op;
use crate::ids::Handle;
use crate::op::{OpFuture, count};
use crate::reactor::Reactor;
use crate::shared_file::SharedFile;

/// Pages are what a pipe counts: bytes that begin within one take a page more.
const PAGE_BYTES: u64 = 4096;
/// A pipe smaller than this costs more calls than reading and sending: there is no memory for pipes then.
pub(crate) const PIPE_BYTES_MIN: usize = 64 << 10;

/// The idle pipes of one core, and the count of all.
#[derive(Default)]
pub(crate) struct PipePool {
    idle: Vec<RawPipe>,
    /// Idle and in use.
    count: usize,
    /// The size the kernel still granted, once it has refused more.
    bytes_granted: Option<usize>,
    /// A refusal is mentioned once.
    said: bool,
}

/// Both ends of a pipe and what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawPipe {
    /// Where bytes come out.
    pub read: Handle,
    /// Where bytes go in.
    pub write: Handle,
    /// Bytes that it takes when they begin with a page.
    pub bytes: usize,
}

impl PipePool {
    /// Ends the pool: what is to be closed.
    pub fn take_idle(&mut self) -> Vec<RawPipe> {
        self.count -= self.idle.len();
        std::mem::take(&mut self.idle)
    }
}

/// A pipe that this core uses for one range of one file at a time.
pub struct Pipe {
    reactor: Reactor,
    raw: RawPipe,
    filled: usize,
    /// What is in it is not known: its filling was given up midway, or failed.
    unknown: bool,
}

impl Pipe {
    /// Bytes that are in it.
    pub fn filled(&self) -> usize {
        self.filled
    }

    /// Bytes it would take.
    pub fn capacity(&self) -> usize {
        self.raw.bytes
    }

    /// Fills an empty pipe with at most `bytes` of `file` from `offset` on. May bring less; zero: the end of the file.
    pub async fn fill(mut self, file: &SharedFile, offset: u64, bytes: usize) -> (io::Result<usize>, Pipe) {
        assert_eq!(self.filled, 0, "only an empty pipe is filled: else filling would wait for the socket");
        let within = (offset % PAGE_BYTES) as usize;
        let len = bytes.min(self.raw.bytes - within.min(self.raw.bytes)) as u32;
        let (from, pipe) = (file.handle(), self.raw.write);
        self.unknown = true;
        let reactor = self.reactor.clone();
        // Both are lent: neither is closed while the kernel is at it.
        let fill = OpFuture::new(&reactor, (self, file.clone()), move |_, _| Op::Splice { from, offset, pipe, len });
        let (result, (mut pipe, _)) = fill.await;
        if let Ok(got) = count(result) {
            (pipe.filled, pipe.unknown) = (got, false);
        }
        (count(result), pipe)
    }

    pub(crate) fn read_end(&self) -> Handle {
        self.raw.read
    }

    /// `bytes` have left it.
    pub(crate) fn drained(&mut self, bytes: usize) {
        assert!(bytes <= self.filled, "{bytes} bytes left a pipe of {}", self.filled);
        self.filled -= bytes;
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let inner = &self.reactor.0;
        if self.filled == 0 && !self.unknown {
            inner.pipes.borrow_mut().idle.push(self.raw);
            return;
        }
        inner.pipes.borrow_mut().count -= 1;
        self.reactor.close(self.raw.read);
        self.reactor.close(self.raw.write);
    }
}

impl std::fmt::Debug for Pipe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pipe").field("raw", &self.raw).field("filled", &self.filled).finish()
    }
}

impl Reactor {
    /// An empty pipe; `None`: all are in use, or the system has none left (said once). Then read and send.
    pub fn take_pipe(&self) -> Option<Pipe> {
        let limits = self.limits();
        let mut pool = self.0.pipes.borrow_mut();
        let raw = match pool.idle.pop() {
            Some(raw) => raw,
            None if pool.count < limits.pipes_max => {
                let wanted = pool.bytes_granted.unwrap_or(limits.pipe_bytes).min(limits.pipe_bytes);
                let made = self.0.driver.borrow_mut().make_pipe(wanted);
                let refusal = match made {
                    Ok(raw) if raw.bytes >= PIPE_BYTES_MIN.min(limits.pipe_bytes) => {
                        let smaller = (raw.bytes < wanted).then(|| format!("pipes of {} bytes only", raw.bytes));
                        if smaller.is_some() {
                            pool.bytes_granted = Some(raw.bytes);
                        }
                        pool.count += 1;
                        (Some(raw), smaller)
                    }
                    Ok(raw) => {
                        self.close(raw.read);
                        self.close(raw.write);
                        (None, Some(format!("a pipe of no more than {} bytes", raw.bytes)))
                    }
                    Err(error) => (None, Some(error.to_string())),
                };
                if let (made, Some(what)) = &refusal
                    && !std::mem::replace(&mut pool.said, true)
                {
                    tracing::info!(
                        %what,
                        pipes = pool.count,
                        "the system is short of pipes: {} (see fs.pipe-user-pages-soft)",
                        if made.is_some() { "cold reads take more calls" } else { "cold reads are copied meanwhile" }
                    );
                }
                refusal.0?
            }
            None => return None,
        };
        drop(pool);
        Some(Pipe { reactor: self.clone(), raw, filled: 0, unknown: false })
    }

    /// Pipes there are, idle ones included.
    pub fn pipes(&self) -> usize {
        self.0.pipes.borrow().count
    }
}
