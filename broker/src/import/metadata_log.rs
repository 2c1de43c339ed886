//! Kafka's `__cluster_metadata-0`: its newest snapshot, and the log behind it.
//!
//! Holds: the reading of both, in order and without gaps. Never touches: what the records come to; the folder,
//! which is only
//! read.
//!
//! ```text
//! __cluster_metadata-0/<20 digits>-<10 digits>.checkpoint     all metadata below an offset, of an epoch
//!                      <20 digits>.log                        what came later, and some of what came before
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use corelog_storage::batch::{Batches, Compression, Records};
use thiserror::Error;

use super::kafka_image::KafkaImage;
use super::kafka_record::KafkaRecord;

/// Why the metadata cannot be read.
#[derive(Debug, Error)]
pub enum MetadataError {
    /// The system refuses.
    #[error("cannot read {path}: {error}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// A file is not what it should be.
    #[error("{path} at byte {position}: {reason}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where.
        position: usize,
        /// What is wrong.
        reason: String,
    },
    /// A record that cannot be understood.
    #[error("{path}: the record at offset {offset}: {reason}")]
    Record {
        /// The file.
        path: PathBuf,
        /// Which record.
        offset: i64,
        /// What is wrong.
        reason: String,
    },
    /// There is neither snapshot nor log.
    #[error("{path} has no metadata: neither a snapshot (*.checkpoint) nor a log (*.log)")]
    Nothing {
        /// The folder.
        path: PathBuf,
    },
    /// The log starts behind the snapshot's end.
    #[error("{path}: records {from} to {to} are in no file")]
    Gap {
        /// The folder.
        path: PathBuf,
        /// The first that is missing.
        from: i64,
        /// The last that is missing.
        to: i64,
    },
}

/// Reads the folder.
pub fn read(folder: &Path) -> Result<KafkaImage, MetadataError> {
    let names = names(folder)?;
    let snapshot = names.iter().filter_map(|name| Some((snapshot_offset(name)?, name))).max();
    let mut logs: Vec<(i64, &String)> = names.iter().filter_map(|name| Some((log_offset(name)?, name))).collect();
    logs.sort_unstable();
    if snapshot.is_none() && logs.is_empty() {
        return Err(MetadataError::Nothing { path: folder.to_owned() });
    }
    let mut image = KafkaImage::default();
    let mut next = 0;
    if let Some(((offset, _epoch), name)) = snapshot {
        replay_file(&folder.join(name), &mut image, &mut |_| Ok(true))?;
        next = offset;
    }
    let (snapshot_end, mut is_first) = (next, true);
    for (base, name) in logs {
        // The log reaches back behind the snapshot: its first batches are in both.
        if std::mem::take(&mut is_first) {
            next = next.min(base);
        }
        if base > next {
            return Err(MetadataError::Gap { path: folder.to_owned(), from: next, to: base - 1 });
        }
        let mut expect = |base: i64, end: i64| {
            let fits = base == next;
            next = end;
            fits
        };
        replay_log(&folder.join(name), &mut image, snapshot_end, &mut expect)?;
    }
    Ok(image)
}

fn names(folder: &Path) -> Result<Vec<String>, MetadataError> {
    let failed = |error| MetadataError::Io { path: folder.to_owned(), error };
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        names.extend(entry.map_err(failed)?.file_name().into_string().ok());
    }
    Ok(names)
}

fn digits(text: &str, count: usize) -> Option<i64> {
    (text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok()).flatten()
}

/// The end offset and the epoch in a snapshot's name.
fn snapshot_offset(name: &str) -> Option<(i64, i64)> {
    let (offset, epoch) = name.strip_suffix(".checkpoint")?.split_once('-')?;
    Some((digits(offset, 20)?, digits(epoch, 10)?))
}

fn log_offset(name: &str) -> Option<i64> {
    digits(name.strip_suffix(".log")?, 20)
}

fn replay_log(
    path: &Path,
    image: &mut KafkaImage,
    from: i64,
    expect: &mut dyn FnMut(i64, i64) -> bool,
) -> Result<(), MetadataError> {
    replay_file(path, image, &mut |batch| {
        let (base, end) = (batch.0, batch.1);
        if !expect(base, end) {
            return Err(format!("offset {base} does not follow what is before it"));
        }
        Ok(end > from)
    })
}

/// First offset of a batch, and the one behind its last.
struct Span(i64, i64);

/// Replays the records of the batches that `wants` says, which sees all of them.
fn replay_file(
    path: &Path,
    image: &mut KafkaImage,
    wants: &mut dyn FnMut(&Span) -> Result<bool, String>,
) -> Result<(), MetadataError> {
    let bytes = fs::read(path).map_err(|error| MetadataError::Io { path: path.to_owned(), error })?;
    let damaged = |position, reason| MetadataError::Damaged { path: path.to_owned(), position, reason };
    let mut batches = Batches::new(&bytes);
    loop {
        let position = batches.position();
        let Some(batch) = batches.next() else { return Ok(()) };
        let batch = batch.map_err(|error| damaged(position, error.to_string()))?;
        if !batch.crc_ok() {
            return Err(damaged(position, "the batch's checksum is wrong".to_owned()));
        }
        let header = &batch.header;
        let last = header.last_offset().ok_or_else(|| damaged(position, "the batch has no last offset".to_owned()))?;
        let is_wanted = wants(&Span(header.base_offset.0, last.0 + 1)).map_err(|reason| damaged(position, reason))?;
        // Control batches: leaders, voters, a snapshot's first and last.
        if !is_wanted || header.attributes.is_control() {
            continue;
        }
        if header.attributes.compression() != Some(Compression::None) {
            return Err(damaged(position, "the batch is compressed, which Kafka's metadata never is".to_owned()));
        }
        for record in Records::new(header, batch.payload()) {
            let record = record.map_err(|error| damaged(position, error.to_string()))?;
            let wrong = |reason| MetadataError::Record { path: path.to_owned(), offset: record.offset.0, reason };
            let value = KafkaRecord::decode(record.value.unwrap_or_default()).map_err(|e| wrong(e.to_string()))?;
            image.replay(value).map_err(wrong)?;
        }
    }
}
