//! Bytes of a file as a piece of a reply: through a pipe into the socket, without a copy where that works.
//!
//! Holds: the range, its way out, giving the page cache back behind it. Never touches: what the bytes say; other pieces;
//! reading ahead, which the kernel does by itself: asked to (POSIX_FADV_WILLNEED) it takes small folios, one by one.
//!
//! ```text
//!   room in the socket? ──> a free pipe? ──yes──> fill it (ring) ──> splice it out, while there is room
//!        ^                       │ no                                       │ none for a while:
//!        │                       └──> read into memory, send                │ the pipe goes to others
//!        └──────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A client that doesn't read holds no pipe, no memory and no io-wq thread. The frame's length has been sent before its
//! bytes: when the file doesn't hold what was promised, the connection ends there; nothing else is put in their place.

use std::io;
use std::time::Duration;

use corelog_reactor::{Advice, AlignedBuf, IoBufs, IoVecs, Pipe, Reactor, SharedFile, Stream};

/// How far behind a reader the page cache is given back: what is nearer may still be on its way, and would be kept.
const BEHIND_BYTES: u64 = 4 << 20;
/// In steps of this.
const GIVE_BACK_BYTES: u64 = 2 << 20;
/// The kernel gives back whole folios: the last one of the step before may have been one of this size, and only half within.
const FOLIO_BYTES_MAX: u64 = 2 << 20;
/// How far behind in time, at the end of a file.
const BEHIND_TIME: Duration = Duration::from_secs(1);
/// How long a socket without room may keep a pipe that has something for it. Longer than a client that reads ever takes.
const PIPE_HOLD: Duration = Duration::from_millis(20);
/// Most bytes moved into a socket before others get their turn.
const VISIT_BYTES_MAX: usize = 256 << 10;
/// Bytes read at once when there is no pipe.
const COPY_BYTES: usize = 256 << 10;
/// Copies leave this part of a core's memory to others.
const MEMORY_LEFT_PART: usize = 8;
/// How often a range that finds neither pipe nor memory looks again.
const RETRY: Duration = Duration::from_millis(2);

/// A part of a file that doesn't change, to be sent as it is.
#[derive(Debug, Clone)]
pub struct FileRange {
    file: SharedFile,
    start: u64,
    end: u64,
    file_end: u64,
}

impl FileRange {
    /// The bytes `[start, end)` of `file`; behind them a reader may go on up to `file_end`.
    pub fn new(file: SharedFile, start: u64, end: u64, file_end: u64) -> FileRange {
        assert!(start < end, "a range from {start} to {end}");
        assert!(end <= file_end, "a range to {end} of a file of {file_end}");
        FileRange { file, start, end, file_end }
    }

    /// How many bytes.
    pub fn len(&self) -> usize {
        (self.end - self.start) as usize
    }

    /// Never: for the lint's sake.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Sends it; `more` tells that other bytes of the reply follow. `left` is told how many bytes have left; whether anybody
    /// still wants them is asked of `is_over`.
    ///
    /// # Errors
    /// What the socket or the file said: the connection is to be closed. Where it was the file, it is marked as failed.
    pub(super) async fn send(
        &self,
        stream: &Stream,
        more: bool,
        mut left: impl FnMut(usize),
        is_over: impl Fn() -> bool,
    ) -> io::Result<()> {
        let reactor = stream.reactor();
        let mut at = self.start;
        while at < self.end {
            // First, so that nothing is held for a client that takes nothing.
            stream.writable().await?;
            if let Some(pipe) = reactor.take_pipe() {
                self.through_pipe(stream, pipe, &mut at, more, &mut left).await?;
                continue;
            }
            let bytes = usize::try_from(self.end - at).unwrap_or(COPY_BYTES).min(COPY_BYTES);
            let keep = reactor.pool().budget() / MEMORY_LEFT_PART;
            match reactor.pool().take_leaving(bytes, keep) {
                Ok(buf) => self.through_memory(stream, buf, bytes, &mut at, more, &mut left).await?,
                Err(_) if is_over() => return Err(io::ErrorKind::ConnectionAborted.into()),
                Err(_) => reactor.sleep(RETRY).await,
            }
        }
        self.give_back(stream);
        Ok(())
    }

    async fn through_pipe(
        &self,
        stream: &Stream,
        pipe: Pipe,
        at: &mut u64,
        more: bool,
        left: &mut impl FnMut(usize),
    ) -> io::Result<()> {
        let wanted = usize::try_from(self.end - *at).unwrap_or(usize::MAX);
        let (filled, mut pipe) = pipe.fill(&self.file, *at, wanted).await;
        self.check(filled)?;
        while pipe.filled() > 0 {
            let more = more || *at + (pipe.filled() as u64) < self.end;
            match stream.try_splice(&mut pipe, VISIT_BYTES_MAX, more) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    *at += count as u64;
                    left(count);
                    if pipe.filled() > 0 {
                        // The core has been at it for as long as the system takes for so many bytes: others have their turn.
                        stream.reactor().yield_now().await;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let Some(writable) = stream.reactor().within(PIPE_HOLD, stream.writable()).await else {
                        // What is in the pipe is forgotten with it; it is taken from the file once more.
                        return Ok(());
                    };
                    writable?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn through_memory(
        &self,
        stream: &Stream,
        buf: AlignedBuf,
        bytes: usize,
        at: &mut u64,
        more: bool,
        left: &mut impl FnMut(usize),
    ) -> io::Result<()> {
        let (read, buf) = self.file.read_at(stream.reactor(), buf, *at).await;
        let end = self.check(read)?.min(bytes);
        let mut part = Part { buf, start: 0, end };
        while part.start < part.end {
            let more = more || *at + ((part.end - part.start) as u64) < self.end;
            let (sent, back) = stream.send_part(part, more).await;
            part = back;
            let count = sent?;
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            part.start += count;
            *at += count as u64;
            left(count);
        }
        Ok(())
    }

    /// What the file gave, if it is what was promised.
    fn check(&self, got: io::Result<usize>) -> io::Result<usize> {
        let fault = match got {
            // After the bytes were taken: what changes the file says so first.
            Ok(_) if self.file.is_revoked() => io::Error::other("the file was given up while it was sent"),
            Ok(0) => io::Error::new(io::ErrorKind::UnexpectedEof, "the file has become shorter"),
            Ok(count) => return Ok(count),
            Err(error) => error,
        };
        // The next read of it is the owner's, who can tell the client.
        self.file.fail();
        if !self.file.is_revoked() {
            tracing::warn!(file = %self.file.path().display(), error = %fault, "a reply was broken off: its file does not give the bytes");
        }
        Err(fault)
    }

    /// Tells the kernel what this reader is done with.
    fn give_back(&self, stream: &Stream) {
        let reactor = stream.reactor();
        let give_back = |file: &SharedFile, on: &Reactor, to: u64, step: u64| {
            if let Some((from, to)) = file.next_behind(to, BEHIND_BYTES, step) {
                let from = from.saturating_sub(FOLIO_BYTES_MAX);
                file.advise_soon(on, from, to - from, Advice::DontNeed);
            }
        };
        give_back(&self.file, reactor, self.start.saturating_sub(BEHIND_BYTES), GIVE_BACK_BYTES);
        if self.end == self.file_end {
            let (file, end, on) = (self.file.clone(), self.file_end, reactor.clone());
            // No task left: the kernel finds out by itself, only later.
            let _ = reactor.spawn(async move {
                on.sleep(BEHIND_TIME).await;
                give_back(&file, &on, end, 0);
            });
        }
    }
}

/// The part of a buffer that is still to be sent.
struct Part {
    buf: AlignedBuf,
    start: usize,
    end: usize,
}

// SAFETY: the bytes are in a pool buffer of this value alone; they neither move nor change.
unsafe impl IoBufs for Part {
    fn expose(&self, into: &mut IoVecs) {
        into.push(self.buf.get(self.start..self.end).unwrap_or_default());
    }
}
