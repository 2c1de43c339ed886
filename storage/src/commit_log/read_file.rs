//! The reading of one commit-log file: which of its writes hold, and what they say.
//!
//! Holds: the walk over the file's blocks. Never touches: other files; what it means that a write does not hold (`judge`).
//!
//! ```text
//!   |h|[ 7 ][ 8   ]~~~~~~[ 10 ]~~~ ~~~ zeroes, or writes of an earlier generation
//!                  │     └── holds, and is of this use of the file: its entries count
//!                  └── write 9 does not hold: from here on block by block
//! ```
//!
//! Behind a write that does not hold, any block may start the next one that does. What the batches of a client hold may
//! look like a write as well. So where the header of the bad write is still there, the place behind it comes first, and
//! a write counts only if as many are missing before it as there is room for.

use super::format::{EntryHeader, FIRST_WRITE, HeaderFault, WRITE_BYTES_MAX, WriteHeader, decode_file_header, entries};
use super::replay::Entry;
use crate::disk::checkpoint::LogKey;
use crate::disk::files::is_interrupted;
use crate::disk::{BLOCK_BYTES, align_up};
use corelog_reactor::{BufSlice, File, OpenHow, Reactor};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Bytes read at once; at least one whole write.
const READ_BYTES: usize = 2 * WRITE_BYTES_MAX;

/// What the writes of one use of a file say of it, all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InUse {
    pub(super) generation: u64,
    /// The sequence of its first write.
    pub(super) first: u64,
    /// The number and one of the file before it, or zero.
    pub(super) follows: u64,
}

/// A file as it was read.
pub(super) struct FileFound {
    pub(super) header: Result<u64, HeaderFault>,
    pub(super) blocks: u64,
    /// `None` if no write of it holds.
    pub(super) in_use: Option<InUse>,
    /// The sequences of the writes that hold: runs, first and last, in their order.
    pub(super) runs: Vec<(u64, u64)>,
    /// The entries of these.
    pub(super) entries: Vec<(LogKey, Entry)>,
    /// What the headers in writes say that do not hold: not to be believed where a record is at stake.
    pub(super) named: Vec<(LogKey, Entry)>,
}

impl FileFound {
    /// The last write that holds.
    pub(super) fn last(&self) -> Option<u64> {
        self.runs.last().map(|run| run.1)
    }

    /// The first sequence behind all that it mentions.
    pub(super) fn reached(&self) -> u64 {
        let by_header = self.header.unwrap_or(0);
        self.last().map_or(by_header, |last| by_header.max(last + 1))
    }

    fn note(&mut self, sequence: u64) {
        match self.runs.last_mut() {
            Some(run) if run.1 + 1 == sequence => run.1 = sequence,
            _ => self.runs.push((sequence, sequence)),
        }
    }
}

/// Reads a file. `counts` says of which logs, from which sequence on, entries are wanted.
///
/// # Errors
/// When it cannot be read, or is of another version.
pub(super) async fn read_file(
    reactor: &Reactor,
    path: &Arc<Path>,
    counts: impl Fn(&LogKey, u64) -> bool,
) -> io::Result<FileFound> {
    let file = reactor.open(path, OpenHow::read()).await?;
    let end = file.len()?;
    let mut window = Window { file: &file, bytes: vec![0; READ_BYTES], start: 0, have: 0 };
    window.move_to(0).await?;
    let header = decode_file_header(window.at(0, BLOCK_BYTES as usize));
    if let Err(HeaderFault::Version(version)) = header {
        let words = format!("a commit log of version {version}: start the release that wrote it, and stop it cleanly");
        return Err(io::Error::new(io::ErrorKind::InvalidData, words));
    }
    let mut found = FileFound {
        header,
        blocks: end / BLOCK_BYTES,
        in_use: None,
        runs: Vec::new(),
        entries: Vec::new(),
        named: Vec::new(),
    };
    let generation = match header {
        Ok(generation) => Some(generation),
        // Then the newest writes are those of the last use.
        Err(_) => newest_generation(&mut window, end).await?,
    };
    let Some(generation) = generation else { return Ok(found) };
    let mut walk = Walk { generation, last: None, last_end: FIRST_WRITE };
    let mut at = FIRST_WRITE;
    while at < end {
        window.move_to(at).await?;
        let bytes = window.at(at, WRITE_BYTES_MAX);
        let Some(write) = WriteHeader::parse(bytes).filter(|write| walk.may_be(write, at, found.in_use)) else {
            at += BLOCK_BYTES;
            continue;
        };
        let is_sound = WriteHeader::check(bytes).is_some();
        let whole = bytes.get(..(write.bytes as usize).min(bytes.len())).unwrap_or_default();
        let entry_of = |entry: EntryHeader, within: usize| Entry {
            sequence: write.sequence,
            segment: entry.segment,
            position: entry.position,
            start: entry.start,
            end: entry.end,
            bytes: entry.bytes,
            is_sound,
            at: at + within as u64,
            file: path.clone(),
        };
        let behind = at + align_up(u64::from(write.bytes));
        if is_sound {
            for entry in entries(whole) {
                let Some((entry, within)) = entry else {
                    let words = format!("the write at byte {at} of a commit log holds what no broker writes");
                    return Err(io::Error::new(io::ErrorKind::InvalidData, words));
                };
                if counts(&entry.key, write.sequence) {
                    found.entries.push((entry.key, entry_of(entry, within)));
                }
            }
            let WriteHeader { generation, first, follows, .. } = write;
            found.in_use = Some(InUse { generation, first, follows });
            found.note(write.sequence);
            walk.last = Some(write.sequence);
            walk.last_end = behind;
            at = behind;
            continue;
        }
        let is_next = write.sequence == walk.last.map_or(write.first, |last| last + 1);
        if !is_next || at != walk.last_end {
            at += BLOCK_BYTES;
            continue;
        }
        for (entry, within) in entries(whole).map_while(|entry| entry) {
            if counts(&entry.key, write.sequence) {
                found.named.push((entry.key, entry_of(entry, within)));
            }
        }
        window.move_to(behind).await?;
        let next = WriteHeader::check(window.at(behind, WRITE_BYTES_MAX));
        let is_followed = next.is_some_and(|next| next.generation == generation && next.sequence == write.sequence + 1);
        at = if is_followed { behind } else { at + BLOCK_BYTES };
    }
    Ok(found)
}

/// How far the walk has come.
struct Walk {
    generation: u64,
    /// The last write that holds, and where it ends.
    last: Option<u64>,
    last_end: u64,
}

impl Walk {
    /// Whether a write with this header may stand at `at`.
    fn may_be(&self, write: &WriteHeader, at: u64, in_use: Option<InUse>) -> bool {
        let next = self.last.map_or(write.first, |last| last + 1);
        let is_same = in_use.is_none_or(|of| (of.first, of.follows) == (write.first, write.follows));
        let room = (at - self.last_end) / BLOCK_BYTES;
        write.generation == self.generation && is_same && write.sequence >= next && write.sequence - next <= room
    }
}

/// The highest generation of any write in the file.
async fn newest_generation(window: &mut Window<'_>, end: u64) -> io::Result<Option<u64>> {
    let mut newest = None;
    let mut at = FIRST_WRITE;
    while at < end {
        window.move_to(at).await?;
        let write = WriteHeader::check(window.at(at, WRITE_BYTES_MAX));
        newest = newest.max(write.map(|write| write.generation));
        at += BLOCK_BYTES;
    }
    Ok(newest)
}

/// A part of a file, in memory.
struct Window<'f> {
    file: &'f File,
    bytes: Vec<u8>,
    start: u64,
    have: usize,
}

impl Window<'_> {
    /// Sees to it that a whole write at `at` is in the window, as far as the file goes.
    async fn move_to(&mut self, at: u64) -> io::Result<()> {
        let is_within = at >= self.start && at + WRITE_BYTES_MAX as u64 <= self.start + self.have as u64;
        let is_at_end = self.have > 0 && self.have < self.bytes.len() && at >= self.start;
        if is_within || is_at_end {
            return Ok(());
        }
        self.have = read_up_to(self.file, &mut self.bytes, at).await?;
        self.start = at;
        Ok(())
    }

    /// The bytes from `at` on, at most `len`.
    fn at(&self, at: u64, len: usize) -> &[u8] {
        let from = usize::try_from(at.saturating_sub(self.start)).unwrap_or(self.have).min(self.have);
        self.bytes.get(from..self.have.min(from + len)).unwrap_or_default()
    }
}

/// Fills `bytes` from `offset` on, up to the file's end.
pub(super) async fn read_up_to(file: &File, bytes: &mut Vec<u8>, offset: u64) -> io::Result<usize> {
    let want = bytes.len();
    let mut done = 0;
    while done < want {
        let (result, slice) =
            file.read_at(BufSlice::new(std::mem::take(bytes), done..want), offset + done as u64).await;
        *bytes = slice.into_inner();
        match result {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(error) if is_interrupted(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
