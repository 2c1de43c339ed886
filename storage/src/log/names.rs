//! Names of logs, and of the files in them.
//!
//! Holds: the name types and Kafka's file names. Never touches: files.

use crate::disk::checkpoint::LogKey;
use crate::ids::{Offset, PartitionIndex, TopicId};
use std::fmt;
use std::path::{Path, PathBuf};

/// The longest topic name Kafka allows.
const TOPIC_BYTES_MAX: usize = 249;

/// Which partition's log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LogName {
    /// The topic's name.
    pub topic: String,
    /// The partition.
    pub partition: PartitionIndex,
    /// The topic's immutable id.
    pub topic_id: TopicId,
}

impl fmt::Display for LogName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

impl LogName {
    /// What the checkpoint knows it by.
    #[must_use]
    pub const fn key(&self) -> LogKey {
        LogKey { topic_id: self.topic_id, partition: self.partition }
    }

    /// The folder's name, if topic and partition can name one: Kafka's rules for topic names, which keep it within the
    /// data folder.
    #[must_use]
    pub fn folder(&self) -> Option<String> {
        let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        let topic = self.topic.as_str();
        let is_legal = !topic.is_empty()
            && topic.len() <= TOPIC_BYTES_MAX
            && topic != "."
            && topic != ".."
            && topic.bytes().all(legal)
            && self.partition.0 >= 0;
        is_legal.then(|| self.to_string())
    }
}

/// The path of a segment's file: twenty digits and a suffix.
pub(super) fn segment_path(folder: &Path, base: Offset, suffix: &str) -> PathBuf {
    folder.join(format!("{:020}{suffix}", base.0))
}

/// The path with a further suffix.
pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// The offset in the name of a file with this suffix.
pub(super) fn parse_file_name(name: &str, suffix: &str) -> Option<Offset> {
    let digits = name.strip_suffix(suffix)?;
    if digits.len() != 20 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok().map(Offset)
}

/// Suffix of a segment's records.
pub(super) const LOG: &str = ".log";
/// Suffix of its offset index.
pub(super) const INDEX: &str = ".index";
/// Suffix of its time index.
pub(super) const TIME_INDEX: &str = ".timeindex";
/// Suffix of Kafka's index of aborted transactions (`txn_index`).
pub(super) const TXN_INDEX: &str = ".txnindex";
/// What is put behind the names of a segment's files that are to be removed, as Kafka does.
pub(super) const DELETED: &str = ".deleted";
/// Suffix of a producer snapshot.
pub(super) const SNAPSHOT: &str = ".snapshot";
/// What a segment may have, its records first: an index without records is nothing, records without an index are read whole.
pub const SEGMENT_SUFFIXES: [&str; 5] = [LOG, INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT];
/// Behind the suffix: of a cleaned segment that is being written.
pub(super) const CLEANED: &str = ".cleaned";
/// Behind the suffix: of one that is to take the place of others.
pub(super) const SWAP: &str = ".swap";

#[cfg(test)]
mod tests {
    use super::*;

    fn name(topic: &str, partition: i32) -> LogName {
        LogName { topic: topic.to_owned(), partition: PartitionIndex(partition), topic_id: TopicId::ZERO }
    }

    #[test]
    fn only_kafkas_topic_names_become_folders() {
        assert_eq!(name("a.b_c-D9", 12).folder().as_deref(), Some("a.b_c-D9-12"));
        for bad in ["", ".", "..", "a/b", "a b", "ä", "../x"] {
            assert_eq!(name(bad, 0).folder(), None, "{bad}");
        }
        assert_eq!(name(&"x".repeat(250), 0).folder(), None);
        assert_eq!(name("x", -1).folder(), None);
    }

    #[test]
    fn file_names_are_twenty_digits() {
        let path = segment_path(Path::new("d"), Offset(42), LOG);
        assert_eq!(path, Path::new("d/00000000000000000042.log"));
        assert_eq!(parse_file_name("00000000000000000042.log", LOG), Some(Offset(42)));
        assert_eq!(parse_file_name("0000000000000000042.log", LOG), None);
        assert_eq!(parse_file_name("00000000000000000042.index", LOG), None);
        assert_eq!(parse_file_name("+0000000000000000042.log", LOG), None);
    }
}
