//! What Kafka's compaction has left out of a log.
//!
//! Holds: the walk over the batches of a copied log, and the empty batches that end its segments. Never touches:
//! Kafka's folders; whether the batches are sound (recovery reads them all).
//!
//! ```text
//!   Kafka's   |batch| gap |batch| gap   |next segment        gaps may be anywhere
//!   ours      |batch| gap |batch| empty |next segment        a segment ends where the next one starts
//! ```
//!
//! So a segment that has lost its end is told from one that was compacted: that is how Corelog's own compaction leaves
//! them. Kafka itself keeps batches without records where it must remember a producer (KAFKA-5490).

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use corelog_storage::batch::{BatchHeader, HEADER_BYTES};
use corelog_storage::compact::fill_gap;
use corelog_storage::epochs::EpochCache;
use corelog_storage::ids::{LeaderEpoch, Offset};

/// Ends every segment in `folder` but the last where the next one starts. The offset below which batches need not join,
/// if there is any gap. `bases` are the segments' in order.
pub fn close_segments(folder: &Path, bases: &[i64], log_start: i64) -> io::Result<Option<Offset>> {
    let epochs = match std::fs::read(folder.join(super::stage::EPOCHS)) {
        Ok(bytes) => EpochCache::decode(&bytes).unwrap_or_default(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => EpochCache::new(),
        Err(error) => return Err(error),
    };
    let mut holes_below = None;
    let mut epoch = LeaderEpoch::NONE;
    for (at, base) in bases.iter().enumerate() {
        let path = folder.join(format!("{base:020}.log"));
        let Some(walked) = walk(&File::open(&path)?, Offset(*base), epoch)? else {
            // Damage: recovery finds it, and says what it is.
            return Ok(holes_below);
        };
        holes_below = walked.holes_below.or(holes_below);
        epoch = walked.epoch;
        if let Some(next) = bases.get(at + 1).map(|next| Offset(*next)).filter(|next| walked.end < *next) {
            let at = walked.end.max(Offset(log_start));
            epoch = epochs.epoch_for_offset(at).unwrap_or(epoch).max(epoch);
            let mut empty = Vec::new();
            fill_gap(walked.end, next, epoch, &mut empty).map_err(io::Error::other)?;
            let mut file = OpenOptions::new().append(true).open(&path)?;
            file.write_all(&empty)?;
            file.sync_all()?;
        }
    }
    Ok(holes_below)
}

/// What the batches of a segment say.
struct Walked {
    /// Behind the last one.
    end: Offset,
    /// Of the last one.
    epoch: LeaderEpoch,
    /// Behind the base offset of the last one before which offsets are missing.
    holes_below: Option<Offset>,
}

/// Goes over the headers; `None` if they don't lead to the file's end.
fn walk(file: &File, base: Offset, epoch: LeaderEpoch) -> io::Result<Option<Walked>> {
    let bytes = file.metadata()?.len();
    let mut walked = Walked { end: base, epoch, holes_below: None };
    let mut position = 0;
    while position < bytes {
        let mut head = [0; HEADER_BYTES];
        match file.read_exact_at(&mut head, position) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        let Some((header, last)) = BatchHeader::parse(&head).ok().and_then(|h| Some((h, h.last_offset()?))) else {
            return Ok(None);
        };
        if header.base_offset < walked.end || last < header.base_offset {
            return Ok(None);
        }
        if header.base_offset > walked.end {
            walked.holes_below = Some(header.base_offset.next());
        }
        walked.end = last.next();
        walked.epoch = walked.epoch.max(header.leader_epoch);
        position += header.total_bytes() as u64;
    }
    Ok((position == bytes).then_some(walked))
}
