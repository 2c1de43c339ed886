//! The files of the index of aborted transactions (`.txnindex`, Kafka's).
//!
//! Holds: how a segment's file is looked at, added to, cut and made anew. Never touches: who decides what is in it
//! (`recover_txn` at a start, the appends later); the format ([`crate::segment::txn_index`]).
//!
//! A file is there only if it has an entry. It is added to where the log knows its end to be, and what was added is synced
//! before the recovery point passes its markers. What lies behind in the file, an interrupted write has left: a start cuts it
//! off, and reads the batches behind the recovery point anyway.

use super::Log;
use super::names::{TXN_INDEX, segment_path};
use crate::disk::files::{is_interrupted, put_in_place, unlink_if_there};
use crate::ids::Offset;
use crate::segment::txn_index::{AbortedTxn, TXN_ENTRY_BYTES, encode_all};
use corelog_reactor::{BufSlice, Durability, File, OpenHow, Reactor};
use std::io;
use std::path::Path;

/// Bytes of one read.
const READ_BYTES: usize = 32 << 10;
/// Entries of one read.
pub(super) const READ_ENTRIES: u64 = (READ_BYTES / TXN_ENTRY_BYTES) as u64;

/// What a segment's file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Looked {
    /// There is none.
    Missing,
    /// Entries, all of them sound as far as was looked.
    Sound {
        /// Those whose markers lie below the end that was asked for.
        kept: u64,
        /// The last offset of the last of them.
        kept_to: Option<Offset>,
        /// Bytes of the file.
        bytes: u64,
    },
    /// Something before that end is not what Kafka writes.
    Malformed,
}

/// Byte at which the entry of this number starts.
pub(super) const fn position_of(entry: u64) -> u64 {
    entry * TXN_ENTRY_BYTES as u64
}

/// The entries from number `from` on, at most `count` and no more than there are. What has changed underneath, or is damaged,
/// ends them.
///
/// # Errors
/// As the disk gives them.
pub(super) async fn read_entries(file: &File, from: u64, count: u64) -> io::Result<Vec<Option<AbortedTxn>>> {
    let want = usize::try_from(position_of(count)).map_or(READ_BYTES, |bytes| bytes.min(READ_BYTES));
    let mut buf = vec![0; want];
    let mut have = 0;
    while have < want {
        let slice = BufSlice::new(buf, have..want);
        let (result, slice) = file.read_at(slice, position_of(from) + have as u64).await;
        buf = slice.into_inner();
        match result {
            Ok(0) => break,
            Ok(n) => have += n,
            Err(error) if is_interrupted(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(buf.get(..have).unwrap_or_default().chunks(TXN_ENTRY_BYTES).map(AbortedTxn::parse).collect())
}

/// Looks at the file of the segment at `base`, up to the first entry whose marker is not below `end`.
///
/// # Errors
/// As the disk gives them.
pub(super) async fn look(reactor: &Reactor, folder: &Path, base: Offset, end: Offset) -> io::Result<Looked> {
    let file = match reactor.open(&segment_path(folder, base, TXN_INDEX), OpenHow::read()).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Looked::Missing),
        opened => opened?,
    };
    let bytes = file.len()?;
    let (mut kept, mut kept_to) = (0, None);
    loop {
        let entries = read_entries(&file, kept, READ_ENTRIES).await?;
        let is_last = (entries.len() as u64) < READ_ENTRIES;
        for entry in entries {
            match entry.filter(|entry| entry.is_sound(base, kept_to)) {
                None => return Ok(Looked::Malformed),
                Some(entry) if entry.last_offset >= end => return Ok(Looked::Sound { kept, kept_to, bytes }),
                Some(entry) => (kept, kept_to) = (kept + 1, Some(entry.last_offset)),
            }
        }
        if is_last {
            return Ok(Looked::Sound { kept, kept_to, bytes });
        }
    }
}

/// Cuts the file behind its first `kept` entries, durably; one without entries is removed.
///
/// What it finds as it should be may be so in memory only, if an earlier cut was interrupted: so it syncs in any case. And
/// the entries go durably before the file does: if its name comes back after a crash, it is empty, and the next start removes it.
///
/// # Errors
/// As the disk gives them; the cut may then have to be made again.
pub(super) async fn cut(reactor: &Reactor, folder: &Path, base: Offset, kept: u64) -> io::Result<()> {
    let path = segment_path(folder, base, TXN_INDEX);
    let file = reactor.open(&path, OpenHow::write()).await?;
    let (bytes, kept_bytes) = (file.len()?, position_of(kept));
    if kept_bytes < bytes {
        tracing::info!(path = %path.display(), entries = kept, bytes, "cut an index of aborted transactions");
        file.truncate(kept_bytes).await?;
    }
    file.fsync().await?;
    drop(file);
    if kept == 0 {
        unlink_if_there(reactor, &path).await?;
    }
    Ok(())
}

/// Puts these entries in the place of the file, all or nothing; without any, it is removed. The folder is the caller's to
/// sync.
///
/// # Errors
/// As the disk gives them.
pub(super) async fn replace(reactor: &Reactor, folder: &Path, base: Offset, entries: &[AbortedTxn]) -> io::Result<()> {
    let path = segment_path(folder, base, TXN_INDEX);
    if entries.is_empty() {
        return unlink_if_there(reactor, &path).await;
    }
    put_in_place(reactor, &path, encode_all(entries)).await
}

/// Adds entries behind the first `filed` ones, and syncs the file.
async fn add(reactor: &Reactor, path: &Path, filed: u64, mut bytes: Vec<u8>) -> io::Result<()> {
    let file = reactor.open(path, OpenHow::write().create()).await?;
    let (len, mut done) = (bytes.len(), 0);
    while done < len {
        let slice = BufSlice::new(bytes, done..len);
        let (result, slice) = file.write_at(slice, position_of(filed) + done as u64, Durability::None).await;
        bytes = slice.into_inner();
        match result {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero)),
            Ok(n) => done += n,
            Err(error) if is_interrupted(&error) => {}
            Err(error) => return Err(error),
        }
    }
    file.fsync().await
}

impl Log {
    /// Brings the entries of a segment whose markers lie below `end` into its file, synced; the folder is the caller's to
    /// sync. Before every move of the recovery point: what it passes is not read for its markers any more.
    pub(super) async fn write_aborted(&self, base: Offset, end: Offset) -> io::Result<()> {
        let inner = &*self.0;
        let (filed, bytes) = {
            let state = inner.state.borrow();
            let Some(index) = state.segment(base).and_then(|segment| segment.aborted.as_deref()) else {
                return Ok(());
            };
            (index.filed(), encode_all(index.pending_below(end)))
        };
        if bytes.is_empty() {
            return Ok(());
        }
        let count = bytes.len() / TXN_ENTRY_BYTES;
        add(inner.env.reactor(), &segment_path(&inner.folder, base, TXN_INDEX), filed, bytes).await?;
        // What came meanwhile stands behind them.
        let mut state = inner.state.borrow_mut();
        if let Some(index) = state.segment_mut(base).and_then(|segment| segment.aborted.as_deref_mut()) {
            index.filed_more(count);
        }
        Ok(())
    }
}
