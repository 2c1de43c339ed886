//! Kafka's index of aborted transactions (`.txnindex`), as it comes with an imported log.
//!
//! Holds: its format, and its cut where its segment is cut. Never touches: who decides the offset, files of other kinds.
//!
//! An entry lies in the index of the segment that holds the ABORT marker. One whose marker is not in the log any more must
//! go before the marker's offset is given to another record: Kafka would hide committed records for it.

use super::names::{TXN_INDEX, segment_path};
use crate::disk::files::{is_interrupted, unlink_if_there};
use crate::ids::Offset;
use corelog_reactor::{File, OpenHow, Reactor};
use std::io;
use std::path::Path;

/// Bytes of an entry, all numbers big-endian: version (i16), producer id, first offset, last offset (the marker's), last
/// stable offset (i64 each). Kafka: `AbortedTxn`.
const ENTRY_BYTES: usize = 34;
/// The only version there is.
const VERSION: i16 = 0;
/// Bytes of one read.
const READ_BYTES: usize = 32 << 10;
const _: () = assert!(READ_BYTES >= ENTRY_BYTES);

/// What a cut asks of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    version: i16,
    first_offset: Offset,
    last_offset: Offset,
}

impl Entry {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (version, rest) = bytes.split_first_chunk()?;
        let (_producer_id, rest) = rest.split_first_chunk::<8>()?;
        let (first, rest) = rest.split_first_chunk()?;
        let (last, _last_stable) = rest.split_first_chunk()?;
        let offset = |bytes: &[u8; 8]| Offset(i64::from_be_bytes(*bytes));
        Some(Self { version: i16::from_be_bytes(*version), first_offset: offset(first), last_offset: offset(last) })
    }

    /// Whether Kafka can have written it into the index of the segment at `base`, behind an entry of `previous`.
    fn is_sound(&self, base: Offset, previous: Option<Offset>) -> bool {
        self.version == VERSION
            && self.first_offset <= self.last_offset
            && base <= self.last_offset
            && previous.is_none_or(|previous| previous < self.last_offset)
    }
}

/// Why the entries from some position on are none of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// Their markers lie at or behind the end, or there are no more.
    End,
    /// They are not what Kafka writes.
    Malformed,
}

/// Drops everything from the first entry on whose last offset is not below `end`, or that is none, from the index of the
/// segment at `base`, if there is one. They are gone durably when it returns; a file without entries is removed.
///
/// What it finds as it should be may be so in memory only, if an earlier cut was interrupted: so it syncs in any case. And
/// the entries go durably before the file does: if its name comes back after a crash, it is empty, and the next start removes it.
///
/// # Errors
/// As the disk gives them; the cut may then have to be made again.
pub(super) async fn cut(reactor: &Reactor, folder: &Path, base: Offset, end: Offset) -> io::Result<()> {
    let path = segment_path(folder, base, TXN_INDEX);
    let file = match reactor.open(&path, OpenHow::write()).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    let bytes = file.len()?;
    let (kept, stop) = kept_bytes(&file, base, end).await?;
    if kept < bytes {
        let dropped = bytes - kept;
        match stop {
            Stop::End => {
                tracing::info!(path = %path.display(), kept, dropped, %end, "cut an index of aborted transactions")
            }
            Stop::Malformed => {
                tracing::warn!(path = %path.display(), kept, dropped, %end, "cut an index of aborted transactions where it is none");
            }
        }
        file.truncate(kept).await?;
    }
    file.fsync().await?;
    drop(file);
    if kept == 0 {
        unlink_if_there(reactor, &path).await?;
    }
    Ok(())
}

/// Bytes of the entries that stay.
async fn kept_bytes(file: &File, base: Offset, end: Offset) -> io::Result<(u64, Stop)> {
    let mut buf = vec![0; READ_BYTES];
    // Read, and no whole entry yet.
    let mut part: Vec<u8> = Vec::new();
    let (mut kept, mut previous) = (0, None);
    loop {
        let (result, read) = file.read_at(buf, kept + part.len() as u64).await;
        buf = read;
        match result {
            Ok(0) => return Ok((kept, if part.is_empty() { Stop::End } else { Stop::Malformed })),
            Ok(n) => part.extend_from_slice(buf.get(..n).unwrap_or_default()),
            Err(error) if is_interrupted(&error) => continue,
            Err(error) => return Err(error),
        }
        let mut entries = part.chunks_exact(ENTRY_BYTES);
        for bytes in entries.by_ref() {
            match Entry::parse(bytes).filter(|entry| entry.is_sound(base, previous)) {
                None => return Ok((kept, Stop::Malformed)),
                Some(entry) if entry.last_offset >= end => return Ok((kept, Stop::End)),
                Some(entry) => previous = Some(entry.last_offset),
            }
            kept += ENTRY_BYTES as u64;
        }
        part = entries.remainder().to_vec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(version: i16, first: i64, last: i64) -> Vec<u8> {
        [&version.to_be_bytes()[..], &[9; 8], &first.to_be_bytes(), &last.to_be_bytes(), &[9; 8]].concat()
    }

    #[test]
    fn an_entry_is_sound_where_kafka_can_have_written_it() {
        let bytes = entry(0, 90, 110);
        assert_eq!(bytes.len(), ENTRY_BYTES);
        let sound = Entry::parse(&bytes).unwrap();
        assert_eq!(sound, Entry { version: 0, first_offset: Offset(90), last_offset: Offset(110) });
        // A transaction may have begun in an earlier segment; its marker lies in this one.
        assert!(sound.is_sound(Offset(100), None) && sound.is_sound(Offset(110), Some(Offset(109))));
        assert!(!sound.is_sound(Offset(111), None), "the marker lies before the segment");
        assert!(!sound.is_sound(Offset(100), Some(Offset(110))), "last offsets rise");
        for (version, first, last) in [(1, 90, 110), (-1, 90, 110), (0, 111, 110)] {
            assert!(!Entry::parse(&entry(version, first, last)).unwrap().is_sound(Offset(100), None));
        }
        assert_eq!(Entry::parse(&bytes[..20]), None);
    }
}
