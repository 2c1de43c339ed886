//! The two small property files that Kafka keeps: `meta.properties` of a data folder, `partition.metadata` of a log.
//!
//! Holds: their formats. Never touches: files.

use crate::ids::{PartitionIndex, TopicId};

/// Name of a data folder's property file.
pub const META_PROPERTIES: &str = "meta.properties";
/// Name of a log's property file.
pub const PARTITION_METADATA: &str = "partition.metadata";

/// What `meta.properties` says: whose data this folder holds (KIP-631, KIP-858).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaProperties {
    /// The cluster's id.
    pub cluster_id: String,
    /// The broker's id.
    pub node_id: i32,
    /// The folder's own id, shown like a topic id.
    pub directory_id: TopicId,
}

/// Why a property file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetaError {
    /// The file is not text.
    #[error("the file is not UTF-8 text")]
    NotText,
    /// A key that must be there is not.
    #[error("{key} is missing")]
    Missing {
        /// The key.
        key: &'static str,
    },
    /// A value that means nothing.
    #[error("{key} has the value {value:?}")]
    Value {
        /// The key.
        key: &'static str,
        /// Its value.
        value: String,
    },
}

fn find<'t>(text: &'t str, key: &'static str, separator: char) -> Result<&'t str, MetaError> {
    text.lines()
        .filter(|line| !line.trim_start().starts_with(['#', '!']))
        .filter_map(|line| line.split_once(separator))
        .find(|(name, _)| name.trim() == key)
        .map(|(_, value)| value.trim())
        .ok_or(MetaError::Missing { key })
}

fn expect(key: &'static str, value: &str, expected: &str) -> Result<(), MetaError> {
    if value == expected {
        return Ok(());
    }
    Err(MetaError::Value { key, value: value.to_owned() })
}

impl MetaProperties {
    /// The file's text (Java properties, version 1).
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        format!(
            "cluster.id={}\ndirectory.id={}\nnode.id={}\nversion=1\n",
            self.cluster_id, self.directory_id, self.node_id
        )
        .into_bytes()
    }

    /// Reads the file's text.
    ///
    /// # Errors
    /// When a property is missing or has no meaning.
    pub fn decode(bytes: &[u8]) -> Result<Self, MetaError> {
        let text = str::from_utf8(bytes).map_err(|_| MetaError::NotText)?;
        expect("version", find(text, "version", '=')?, "1")?;
        let node_id = find(text, "node.id", '=')?;
        let directory_id = find(text, "directory.id", '=')?;
        Ok(Self {
            cluster_id: find(text, "cluster.id", '=')?.to_owned(),
            node_id: node_id.parse().map_err(|_| MetaError::Value { key: "node.id", value: node_id.to_owned() })?,
            directory_id: parse_topic_id(directory_id)
                .ok_or_else(|| MetaError::Value { key: "directory.id", value: directory_id.to_owned() })?,
        })
    }
}

/// What `partition.metadata` says: whose log a folder holds (KIP-516).
///
/// The partition is ours, in a third line; Kafka reads the first two and no further. Without it two folders of a topic that
/// somebody exchanged would each pass for the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionMetadata {
    /// The topic.
    pub topic_id: TopicId,
    /// The partition; `None` in a file of Kafka's, or of an earlier version.
    pub partition: Option<PartitionIndex>,
}

impl PartitionMetadata {
    /// The file's text.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let partition = self.partition.map(|partition| format!("\npartition: {partition}")).unwrap_or_default();
        format!("version: 0\ntopic_id: {}{partition}", self.topic_id).into_bytes()
    }

    /// Reads the file's text.
    ///
    /// # Errors
    /// When a line is missing or has no meaning.
    pub fn decode(bytes: &[u8]) -> Result<Self, MetaError> {
        let text = str::from_utf8(bytes).map_err(|_| MetaError::NotText)?;
        expect("version", find(text, "version", ':')?, "0")?;
        let wrong = |key, value: &str| MetaError::Value { key, value: value.to_owned() };
        let id = find(text, "topic_id", ':')?;
        let topic_id = parse_topic_id(id).ok_or_else(|| wrong("topic_id", id))?;
        let partition = match find(text, "partition", ':') {
            Ok(number) => Some(PartitionIndex(number.parse().map_err(|_| wrong("partition", number))?)),
            Err(_) => None,
        };
        Ok(Self { topic_id, partition })
    }
}

/// A topic id as Kafka shows it: 22 digits of URL-safe base64.
#[must_use]
pub fn parse_topic_id(text: &str) -> Option<TopicId> {
    if text.len() != 22 {
        return None;
    }
    let mut number: u128 = 0;
    for (digit, character) in text.bytes().enumerate() {
        let sextet = match character {
            b'A'..=b'Z' => character - b'A',
            b'a'..=b'z' => character - b'a' + 26,
            b'0'..=b'9' => character - b'0' + 52,
            b'-' => 62,
            b'_' => 63,
            _ => return None,
        };
        // 21 whole sextets make 126 bits; the last digit carries two bits, left-aligned.
        if digit < 21 {
            number = (number << 6) | u128::from(sextet);
        } else if sextet & 0x0f == 0 {
            number = (number << 2) | u128::from(sextet >> 4);
        } else {
            return None;
        }
    }
    Some(TopicId(number.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_id_reads_back_as_it_is_shown() {
        for seed in 0..50_u8 {
            let id =
                TopicId(core::array::from_fn(|i| (i as u8).wrapping_mul(seed).wrapping_add(seed.wrapping_mul(97))));
            assert_eq!(parse_topic_id(&id.to_string()), Some(id));
        }
        for bad in ["", "AAAA", "AAAAAAAAAAAAAAAAAAAAAB", "AAAAAAAAAAAAAAAAAAAAA=", "AAAAAAAAAAAAAAAAAAAAAé"] {
            assert_eq!(parse_topic_id(bad), None, "{bad}");
        }
    }

    #[test]
    fn partition_metadata_is_kafkas_with_a_line_more() {
        let kafkas = PartitionMetadata { topic_id: TopicId([7; 16]), partition: None };
        assert_eq!(kafkas.encode(), b"version: 0\ntopic_id: BwcHBwcHBwcHBwcHBwcHBw");
        assert_eq!(PartitionMetadata::decode(&kafkas.encode()), Ok(kafkas));
        let ours = PartitionMetadata { partition: Some(PartitionIndex(12)), ..kafkas };
        assert_eq!(ours.encode(), [&kafkas.encode()[..], b"\npartition: 12"].concat());
        assert_eq!(PartitionMetadata::decode(&ours.encode()), Ok(ours));
        let missing = MetaError::Missing { key: "topic_id" };
        assert_eq!(PartitionMetadata::decode(b"version: 0\npartition: 3\n"), Err(missing));
        let wrong = [&kafkas.encode()[..], b"\npartition: x"].concat();
        assert!(matches!(PartitionMetadata::decode(&wrong), Err(MetaError::Value { key: "partition", .. })));
    }

    #[test]
    fn meta_properties_reads_what_kafka_writes() {
        let text = b"#\n#Mon Nov 30 2026\nnode.id=4\ndirectory.id=BwcHBwcHBwcHBwcHBwcHBw\nversion=1\ncluster.id=abc\n";
        let meta = MetaProperties { cluster_id: "abc".to_owned(), node_id: 4, directory_id: TopicId([7; 16]) };
        assert_eq!(MetaProperties::decode(text), Ok(meta.clone()));
        assert_eq!(MetaProperties::decode(&meta.encode()), Ok(meta));
        assert!(matches!(MetaProperties::decode(b"version=0\n"), Err(MetaError::Value { key: "version", .. })));
    }
}
