//! The log checkpoint of one shard: where recovery may start, where each log starts, which truncation is under way.
//!
//! Holds: the entries, their text format with its CRC, and the merge of all shards' files at start.
//! Never touches: files (see `datadir` and `log::env`).
//!
//! ```text
//! 1                                                       format
//! 2                                                       entries
//! <topic> <partition> <topic id> <version> <log start> <recovery offset> <segment base> <position> <mark>
//! ...
//! crc32c <8 hex digits over everything above>
//! ```
//!
//! The mark is the offset of a truncation under way, -1 if there is none, -2 if the log is deleted. A tenth word, if
//! there is one, is the first sequence of the commit logs that counts for the log: a truncation leaves what is older
//! behind. An eleventh and a twelfth, of a log that was compacted (the tenth may be 0 then): the offset below which
//! offsets may be missing, and the one below which the log is compacted, -1 before a first round has come to its end.
//!
//! Each shard writes the entries of the logs it owns into a file of its own. At start all files are merged, whatever
//! the number of shards was: of several entries for one log the highest version counts, and every owner raises the
//! version with every change.
//!
//! A log has an entry from its creation until its deletion: that is how a start tells a log that was never made from
//! one whose folder somebody took away.

use super::meta::parse_topic_id;
use crate::ids::{Offset, PartitionIndex, TopicId};
use std::collections::BTreeMap;
use std::fmt::Write as _;

const FORMAT: &str = "1";
/// The mark of a deleted log.
const DELETED: i64 = -2;

/// Which log an entry is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogKey {
    /// The topic, by its immutable id: a new topic of an old name finds nothing.
    pub topic_id: TopicId,
    /// The partition.
    pub partition: PartitionIndex,
}

/// Everything below this is known to be on stable storage, indexed, and covered by a producer snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryPoint {
    /// The offset.
    pub offset: Offset,
    /// Base offset of the segment that the offset lies in (or right behind).
    pub segment_base: Offset,
    /// Where the batch with that offset starts (or will start) in the segment.
    pub position: u64,
}

/// What is remembered about one log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointEntry {
    /// The topic's name, for people.
    pub topic: String,
    /// Raised with every change; the highest counts.
    pub version: u64,
    /// The first offset that readers may see.
    pub log_start: Offset,
    /// Where recovery starts.
    pub recovery: RecoveryPoint,
    /// A truncation to this offset has begun and must be completed before the log opens.
    pub truncate_to: Option<Offset>,
    /// The log was deleted: what is left of its folder may go.
    pub is_deleted: bool,
    /// What the commit logs hold of the log before this sequence must not be applied: it was cut off.
    pub replay_from: u64,
    /// Below this offset a compaction may have taken records out: batches need not join there. From here on they must.
    pub compacted_to: Offset,
    /// Below this offset the log is compacted: where the last round has ended.
    pub clean_to: Option<Offset>,
}

impl CheckpointEntry {
    /// The entry of a log that starts at `offset`, and of which nothing is known.
    #[must_use]
    pub const fn starting_at(topic: String, offset: Offset) -> Self {
        let recovery = RecoveryPoint { offset, segment_base: offset, position: 0 };
        Self {
            topic,
            version: 0,
            log_start: offset,
            recovery,
            truncate_to: None,
            is_deleted: false,
            replay_from: 0,
            compacted_to: Offset::ZERO,
            clean_to: None,
        }
    }

    /// Forgets what was compacted behind `end`, where the log was cut.
    pub fn cut_compaction(&mut self, end: Offset) {
        self.compacted_to = self.compacted_to.min(end);
        self.clean_to = self.clean_to.map(|clean_to| clean_to.min(end));
    }
}

/// The entries of one file, or of all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckpointSet {
    entries: BTreeMap<LogKey, CheckpointEntry>,
}

/// Why a checkpoint file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    /// The CRC line is missing or wrong.
    #[error("the checksum does not match: the file is damaged")]
    Checksum,
    /// Another format.
    #[error("format {found:?} where {FORMAT} is expected")]
    Format {
        /// The first line.
        found: String,
    },
    /// The number of entries differs from what the file says.
    #[error("{found} entries where the file promises {promised}")]
    Count {
        /// Lines there are.
        found: usize,
        /// The second line.
        promised: String,
    },
    /// A line that is no entry.
    #[error("line {line} is no entry: {text:?}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// The line.
        text: String,
    },
}

impl CheckpointSet {
    /// The entry of a log.
    #[must_use]
    pub fn get(&self, key: &LogKey) -> Option<&CheckpointEntry> {
        self.entries.get(key)
    }

    /// Puts an entry in, replacing the one there is.
    pub fn set(&mut self, key: LogKey, entry: CheckpointEntry) {
        self.entries.insert(key, entry);
    }

    /// Takes an entry out.
    pub fn remove(&mut self, key: &LogKey) -> Option<CheckpointEntry> {
        self.entries.remove(key)
    }

    /// All entries.
    pub fn iter(&self) -> impl Iterator<Item = (&LogKey, &CheckpointEntry)> {
        self.entries.iter()
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Keeps the entries that `keep` says yes to.
    pub fn retain(&mut self, mut keep: impl FnMut(&LogKey, &CheckpointEntry) -> bool) {
        self.entries.retain(|key, entry| keep(key, entry));
    }

    /// Adds the entries of another file; of two for the same log the higher version stays.
    pub fn merge(&mut self, other: Self) {
        for (key, entry) in other.entries {
            match self.entries.get(&key) {
                Some(ours) if ours.version >= entry.version => {}
                _ => {
                    self.entries.insert(key, entry);
                }
            }
        }
    }

    /// The file's text.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut text = String::with_capacity(32 + self.entries.len() * 112);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{FORMAT}\n{}", self.entries.len());
        for (key, e) in &self.entries {
            let _ = write!(
                text,
                "{} {} {} {} {} {} {} {} {}",
                e.topic,
                key.partition,
                key.topic_id,
                e.version,
                e.log_start,
                e.recovery.offset,
                e.recovery.segment_base,
                e.recovery.position,
                if e.is_deleted { DELETED } else { e.truncate_to.unwrap_or(Offset::NONE).0 },
            );
            // Most logs are never cut: their lines stay as short, and as readable for earlier versions, as they were.
            let _ = match (e.replay_from, e.compacted_to) {
                (0, Offset::ZERO) => writeln!(text),
                (from, Offset::ZERO) => writeln!(text, " {from}"),
                (from, compacted_to) => {
                    writeln!(text, " {from} {compacted_to} {}", e.clean_to.unwrap_or(Offset::NONE))
                }
            };
        }
        let crc = crc32c::crc32c(text.as_bytes());
        let _ = writeln!(text, "crc32c {crc:08x}");
        text.into_bytes()
    }

    /// Reads a file's text.
    ///
    /// # Errors
    /// When anything about it is not as it was written.
    pub fn decode(bytes: &[u8]) -> Result<Self, CheckpointError> {
        const TRAILER_BYTES: usize = "crc32c 00000000\n".len();
        let split = bytes.len().checked_sub(TRAILER_BYTES).ok_or(CheckpointError::Checksum)?;
        let (body, trailer) = bytes.split_at(split);
        if trailer != format!("crc32c {:08x}\n", crc32c::crc32c(body)).as_bytes() {
            return Err(CheckpointError::Checksum);
        }
        let body = str::from_utf8(body).map_err(|_| CheckpointError::Checksum)?;
        let mut lines = body.lines();
        let format = lines.next().unwrap_or_default();
        if format != FORMAT {
            return Err(CheckpointError::Format { found: format.to_owned() });
        }
        let promised = lines.next().unwrap_or_default();
        let mut set = Self::default();
        let mut found = 0;
        for (number, line) in lines.enumerate() {
            let (key, entry) =
                parse_line(line).ok_or_else(|| CheckpointError::Line { line: number + 3, text: line.to_owned() })?;
            set.entries.insert(key, entry);
            found += 1;
        }
        if promised.parse() != Ok(found) {
            return Err(CheckpointError::Count { found, promised: promised.to_owned() });
        }
        Ok(set)
    }
}

fn parse_line(line: &str) -> Option<(LogKey, CheckpointEntry)> {
    let mut words = line.split(' ');
    let topic = words.next()?.to_owned();
    let partition = PartitionIndex(words.next()?.parse().ok()?);
    let topic_id = parse_topic_id(words.next()?)?;
    let version = words.next()?.parse().ok()?;
    let mut number = || -> Option<i64> { words.next()?.parse().ok() };
    let log_start = Offset(number()?);
    let recovery = RecoveryPoint {
        offset: Offset(number()?),
        segment_base: Offset(number()?),
        position: u64::try_from(number()?).ok()?,
    };
    let mark = number()?;
    let (truncate_to, is_deleted) = ((mark >= 0).then_some(Offset(mark)), mark == DELETED);
    let is_possible = mark >= DELETED
        && log_start >= Offset::ZERO
        && recovery.segment_base >= Offset::ZERO
        && recovery.offset >= recovery.segment_base
        // A truncation takes the recovery point back before it begins.
        && truncate_to.is_none_or(|to| to >= recovery.offset);
    let replay_from = match words.next() {
        Some(word) => Some(word.parse::<u64>().ok()?),
        None => None,
    };
    let (compacted_to, clean_to) = match words.next() {
        Some(word) => {
            let compacted_to = word.parse().ok().filter(|to| *to > 0)?;
            let clean_to = words.next()?.parse().ok().filter(|to| *to >= Offset::NONE.0)?;
            (Offset(compacted_to), (clean_to >= 0).then_some(Offset(clean_to)))
        }
        // Alone, the tenth word is there for a reason.
        None if replay_from == Some(0) => return None,
        None => (Offset::ZERO, None),
    };
    if words.next().is_some() || !is_possible {
        return None;
    }
    Some((
        LogKey { topic_id, partition },
        CheckpointEntry {
            topic,
            version,
            log_start,
            recovery,
            truncate_to,
            is_deleted,
            replay_from: replay_from.unwrap_or(0),
            compacted_to,
            clean_to,
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: u8, partition: i32) -> LogKey {
        LogKey { topic_id: TopicId([id; 16]), partition: PartitionIndex(partition) }
    }

    fn entry(version: u64, offset: i64) -> CheckpointEntry {
        CheckpointEntry {
            topic: "orders".to_owned(),
            version,
            log_start: Offset(1),
            recovery: RecoveryPoint { offset: Offset(offset), segment_base: Offset(2), position: 4_321 },
            truncate_to: (version == 9).then_some(Offset(77)),
            is_deleted: version == 10,
            replay_from: version / 4,
            compacted_to: Offset(version as i64 / 2),
            clean_to: (version > 8).then_some(Offset(version as i64)),
        }
    }

    #[test]
    fn a_checkpoint_reads_back_what_it_wrote() {
        let mut set = CheckpointSet::default();
        assert_eq!(CheckpointSet::decode(&set.encode()), Ok(set.clone()));
        set.set(key(1, 0), entry(3, 55));
        set.set(key(250, 12), entry(9, 66));
        set.set(key(250, 13), entry(10, 66));
        assert_eq!(CheckpointSet::decode(&set.encode()), Ok(set));
    }

    #[test]
    fn a_damaged_checkpoint_is_refused() {
        let mut set = CheckpointSet::default();
        set.set(key(1, 0), entry(3, 55));
        let sound = set.encode();
        for at in 0..sound.len() {
            let mut bytes = sound.clone();
            bytes[at] ^= 1;
            assert!(CheckpointSet::decode(&bytes).is_err(), "byte {at}");
            assert!(CheckpointSet::decode(&sound[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn an_entry_that_no_log_can_have_is_refused_though_the_checksum_is_right() {
        let impossible: [fn(&mut CheckpointEntry); 4] = [
            |entry| entry.log_start = Offset(-2),
            |entry| entry.recovery.segment_base = Offset(-2),
            |entry| entry.recovery.offset = entry.recovery.segment_base.plus(-1).unwrap(),
            |entry| entry.truncate_to = entry.recovery.offset.plus(-1),
        ];
        for make in impossible {
            let mut set = CheckpointSet::default();
            let mut wrong = entry(3, 55);
            make(&mut wrong);
            set.set(key(1, 0), wrong);
            assert!(matches!(CheckpointSet::decode(&set.encode()), Err(CheckpointError::Line { line: 3, .. })));
        }
    }

    #[test]
    fn of_two_entries_the_higher_version_counts() {
        let mut set = CheckpointSet::default();
        set.set(key(1, 0), entry(3, 55));
        set.set(key(1, 1), entry(8, 10));
        let mut other = CheckpointSet::default();
        other.set(key(1, 0), entry(4, 44));
        other.set(key(1, 1), entry(7, 99));
        set.merge(other);
        assert_eq!(set.get(&key(1, 0)), Some(&entry(4, 44)));
        assert_eq!(set.get(&key(1, 1)), Some(&entry(8, 10)));
    }
}
