//! Scanning a segment's file: large direct reads, several in flight.
//!
//! Holds: the read-ahead. Never touches: what the scan means.

use crate::disk::files::read_full;
use crate::disk::{BLOCK_BYTES, align_down, align_up};
use crate::segment::scan::{ScanStop, ScannedBatch, Scanner};
use corelog_reactor::{AlignedBuf, File, Monotonic, Reactor};
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

/// How much is read ahead.
#[derive(Clone, Copy, Debug)]
pub(super) struct Appetite {
    /// Bytes of one read,
    bytes: u64,
    /// and reads in flight.
    reads_max: usize,
}

impl Appetite {
    /// Nobody is served meanwhile, or somebody waits for it: as fast as the disk goes.
    pub(super) const LARGE: Self = Self { bytes: 512 << 10, reads_max: 4 };
    /// Beside commits, which wait for each read that the disk has begun.
    pub(super) const SMALL: Self = Self { bytes: 128 << 10, reads_max: 2 };
}

/// Memory that scanning one file takes.
pub const SCAN_BYTES_MAX: usize = Appetite::LARGE.reads_max * Appetite::LARGE.bytes as usize;
/// How long a scan waits for memory that others hold,
const MEMORY_PATIENCE: Duration = Duration::from_secs(10);
/// and how often it looks.
const MEMORY_RETRY: Duration = Duration::from_millis(2);
const _: () =
    assert!(Appetite::LARGE.bytes.is_multiple_of(BLOCK_BYTES) && Appetite::SMALL.bytes.is_multiple_of(BLOCK_BYTES));

type Reading<'a> = Pin<Box<dyn Future<Output = (io::Result<usize>, AlignedBuf)> + 'a>>;

enum Piece<'a> {
    Reading(Reading<'a>),
    Read(io::Result<usize>, AlignedBuf),
}

/// Reads a file's blocks in order, some pieces ahead.
pub(super) struct ReadAhead<'a> {
    reactor: &'a Reactor,
    file: &'a File,
    pieces: VecDeque<Piece<'a>>,
    appetite: Appetite,
    next: u64,
    end: u64,
}

impl<'a> ReadAhead<'a> {
    /// From the block of `start` up to `end`.
    pub(super) fn new(reactor: &'a Reactor, file: &'a File, start: u64, end: u64, appetite: Appetite) -> Self {
        Self { reactor, file, pieces: VecDeque::new(), appetite, next: align_down(start), end: align_up(end) }
    }

    /// The next bytes; `None` at the end (of the file, if that comes first).
    pub(super) async fn next(&mut self) -> io::Result<Option<AlignedBuf>> {
        let mut give_up: Option<Monotonic> = None;
        while self.pieces.len() < self.appetite.reads_max && self.next < self.end {
            let bytes = self.appetite.bytes.min(self.end - self.next);
            let buf = match self.reactor.pool().take(bytes as usize) {
                Ok(buf) => buf,
                // One piece must do when memory is short.
                Err(_) if !self.pieces.is_empty() => break,
                // Other logs are being read at the same time, and give theirs back.
                Err(_) if self.reactor.now() < *give_up.get_or_insert(self.reactor.now() + MEMORY_PATIENCE) => {
                    self.reactor.sleep(MEMORY_RETRY).await;
                    continue;
                }
                Err(error) => return Err(io::Error::new(io::ErrorKind::OutOfMemory, error)),
            };
            let (file, at) = (self.file, self.next);
            let reading: Reading<'a> = Box::pin(read_full(file, buf, at));
            self.pieces.push_back(Piece::Reading(reading));
            self.next += bytes;
        }
        if self.pieces.is_empty() {
            return Ok(None);
        }
        // Polls all of them: that is what starts them.
        std::future::poll_fn(|cx| {
            for piece in &mut self.pieces {
                if let Piece::Reading(reading) = piece
                    && let Poll::Ready((result, buf)) = reading.as_mut().poll(cx)
                {
                    *piece = Piece::Read(result, buf);
                }
            }
            match self.pieces.front() {
                Some(Piece::Reading(_)) => Poll::Pending,
                Some(Piece::Read(..)) | None => Poll::Ready(()),
            }
        })
        .await;
        match self.pieces.pop_front() {
            Some(Piece::Read(result, mut buf)) => {
                let have = result?;
                if have < buf.len() {
                    // The end of the file: nothing behind it counts.
                    self.next = self.end;
                    self.pieces.clear();
                }
                buf.set_len(have);
                Ok((have > 0).then_some(buf))
            }
            Some(Piece::Reading(_)) | None => Ok(None),
        }
    }
}

/// Feeds the file's bytes from the scanner's position up to `end` to the scanner. Returns where it stopped before that, if
/// it did.
///
/// # Errors
/// As the reads give them.
pub(super) async fn scan_file(
    reactor: &Reactor,
    file: &File,
    scanner: &mut Scanner,
    end: u64,
    mut each: impl FnMut(ScannedBatch<'_>),
) -> io::Result<Option<ScanStop>> {
    let start = scanner.position();
    if start >= end {
        return Ok(None);
    }
    let mut reads = ReadAhead::new(reactor, file, start, end, Appetite::LARGE);
    let mut at = align_down(start);
    while let Some(buf) = reads.next().await? {
        let from = usize::try_from(start.saturating_sub(at)).unwrap_or(0);
        let to = usize::try_from(end - at).map_or(buf.len(), |n| n.min(buf.len()));
        at += buf.len() as u64;
        let bytes = buf.get(from.min(to)..to).unwrap_or_default();
        if let Err(stop) = scanner.feed(bytes, &mut each) {
            return Ok(Some(stop));
        }
    }
    Ok(scanner.finish().err().map(ScanStop::Fault))
}
