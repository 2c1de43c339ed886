//! Which shard owns which partition: the static map and the default placement.
//!
//! Holds: the parser of `core-map.toml` and a pure function. Never touches: the cores, the partitions that exist, pins
//! that were set while the broker runs (the controller's records have those, and they win over both).
//!
//! ```toml
//! # All partitions of `audit` on shard 0.
//! [[pin]]
//! topic = "audit"
//! shard = 0
//!
//! # Two partitions of `orders` on shard 1; its other partitions are placed by default.
//! [[pin]]
//! topic = "orders"
//! partitions = [0, 4]
//! shard = 1
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;

use corelog_reactor::ShardId;
use corelog_storage::ids::{PartitionIndex, TopicId};
use serde::Deserialize;
use thiserror::Error;

use crate::names::{InvalidTopicName, validate_topic_name};

/// The static map. Empty where there is no file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CoreMap {
    topics: BTreeMap<String, TopicPins>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct TopicPins {
    whole: Option<ShardId>,
    partitions: BTreeMap<i32, ShardId>,
}

/// Why a core map was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CoreMapError {
    /// The file is not TOML, or not of the right shape.
    #[error("{0}")]
    Shape(String),
    /// A topic that cannot exist.
    #[error("pin {pin}: {reason}")]
    TopicName {
        /// The pin, counted from 1.
        pin: usize,
        /// The rule it breaks.
        reason: InvalidTopicName,
    },
    /// A negative partition.
    #[error("pin {pin}: topic `{topic}` has no partition {partition}; partitions count from 0")]
    NegativePartition {
        /// The pin, counted from 1.
        pin: usize,
        /// Its topic.
        topic: String,
        /// The number.
        partition: i32,
    },
    /// A list of no partitions.
    #[error("pin {pin}: `partitions` of topic `{topic}` is empty; leave it out to pin the whole topic")]
    NoPartitions {
        /// The pin, counted from 1.
        pin: usize,
        /// Its topic.
        topic: String,
    },
    /// Pinned twice.
    #[error("pin {pin}: {what} is pinned to shard {first} already, and to shard {second} here; keep one")]
    PinnedTwice {
        /// The pin, counted from 1.
        pin: usize,
        /// The topic, or the partition.
        what: String,
        /// Where it was pinned first.
        first: ShardId,
        /// Where it is pinned here.
        second: ShardId,
    },
    /// A shard that this broker does not have.
    #[error(
        "topic `{topic}` is pinned to shard {shard}, and this broker has {shards} (0 to {}); change the pin or `corelog.shards`",
        shards - 1
    )]
    NoSuchShard {
        /// The topic.
        topic: String,
        /// The shard.
        shard: ShardId,
        /// How many there are.
        shards: usize,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileShape {
    #[serde(default)]
    pin: Vec<PinShape>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PinShape {
    topic: String,
    partitions: Option<Vec<i32>>,
    shard: u16,
}

impl CoreMap {
    /// Reads the text of a `core-map.toml` for a broker with this many shards.
    ///
    /// # Errors
    /// [`CoreMapError`], the first one found.
    pub fn parse(text: &str, shards: usize) -> Result<Self, CoreMapError> {
        let file: FileShape = toml::from_str(text).map_err(|e| CoreMapError::Shape(e.to_string()))?;
        let mut map = Self::default();
        for (pin, entry) in (1..).zip(file.pin) {
            map.add(pin, entry, shards)?;
        }
        Ok(map)
    }

    fn add(&mut self, pin: usize, entry: PinShape, shards: usize) -> Result<(), CoreMapError> {
        let PinShape { topic, partitions, shard } = entry;
        validate_topic_name(&topic).map_err(|reason| CoreMapError::TopicName { pin, reason })?;
        let second = ShardId(shard);
        if usize::from(shard) >= shards {
            return Err(CoreMapError::NoSuchShard { topic, shard: second, shards });
        }
        let twice = |what: String, first| CoreMapError::PinnedTwice { pin, what, first, second };
        let pins = self.topics.entry(topic.clone()).or_default();
        let Some(partitions) = partitions else {
            return match pins.whole.replace(second) {
                Some(first) => Err(twice(format!("topic `{topic}`"), first)),
                None => Ok(()),
            };
        };
        if partitions.is_empty() {
            return Err(CoreMapError::NoPartitions { pin, topic });
        }
        for partition in partitions {
            if partition < 0 {
                return Err(CoreMapError::NegativePartition { pin, topic, partition });
            }
            if let Some(first) = pins.partitions.insert(partition, second) {
                return Err(twice(format!("partition {partition} of topic `{topic}`"), first));
            }
        }
        Ok(())
    }

    /// The shard that owns a partition: as pinned here, or else by [`default_shard`].
    #[must_use]
    pub fn shard_of(&self, name: &str, topic: TopicId, partition: PartitionIndex, shards: usize) -> ShardId {
        let pinned = self.topics.get(name).and_then(|pins| {
            let one = pins.partitions.get(&partition.0).copied();
            one.or(pins.whole)
        });
        pinned.unwrap_or_else(|| default_shard(topic, partition, shards))
    }

    /// Whether nothing is pinned.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.topics.is_empty()
    }

    /// The map as the text of a `core-map.toml`.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        for (topic, pins) in &self.topics {
            if let Some(shard) = pins.whole {
                let _ = writeln!(text, "[[pin]]\ntopic = \"{topic}\"\nshard = {}\n", shard.0);
            }
            let mut by_shard: BTreeMap<ShardId, Vec<i32>> = BTreeMap::new();
            for (&partition, &shard) in &pins.partitions {
                by_shard.entry(shard).or_default().push(partition);
            }
            for (shard, partitions) in by_shard {
                let _ =
                    writeln!(text, "[[pin]]\ntopic = \"{topic}\"\npartitions = {partitions:?}\nshard = {}\n", shard.0);
            }
        }
        text
    }
}

/// The shard that owns a partition that nobody pinned.
///
/// A topic's partitions go round the shards one by one, so they differ by at most one per shard; where the round
/// starts depends on the topic's id, so that topics of one partition spread too. The same on every broker, at every
/// start, in every version: changing this function moves partitions between cores.
///
/// # Panics
/// If `shards` is 0: no broker has none.
#[must_use]
pub fn default_shard(topic: TopicId, partition: PartitionIndex, shards: usize) -> ShardId {
    assert!(shards > 0, "a broker with {shards} shards owns no partition");
    let number = u128::from_be_bytes(topic.0);
    // Topic ids are random, but ids of other brokers or of tests may not be: mix both halves (SplitMix64's finaliser).
    let mut start = (number >> 64) as u64 ^ (number as u64).rotate_left(32);
    start = (start ^ (start >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    start = (start ^ (start >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    start ^= start >> 31;
    let shards = shards as u64;
    let turn = u64::from(partition.0.unsigned_abs());
    let shard = (start % shards + turn % shards) % shards;
    ShardId(u16::try_from(shard).unwrap_or(u16::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(n: u64) -> TopicId {
        let mut bytes = [0; 16];
        bytes[8..].copy_from_slice(&n.to_be_bytes());
        TopicId(bytes)
    }

    #[test]
    fn the_partitions_of_a_topic_spread_evenly_whatever_the_number_of_shards() {
        for shards in 1..=17_usize {
            for id in 0..50 {
                let mut owned = vec![0_i32; shards];
                for partition in 0..100 {
                    let shard = default_shard(topic(id), PartitionIndex(partition), shards);
                    owned[usize::from(shard.0)] += 1;
                }
                let spread = owned.iter().max().copied().unwrap_or(0) - owned.iter().min().copied().unwrap_or(0);
                assert!(spread <= 1, "topic {id} on {shards} shards: {owned:?}");
            }
        }
    }

    #[test]
    fn topics_of_one_partition_spread_over_the_shards() {
        let mut owned = [0_i32; 8];
        for id in 0..8000 {
            owned[usize::from(default_shard(topic(id), PartitionIndex(0), 8).0)] += 1;
        }
        for shard in owned {
            assert!((800..=1200).contains(&shard), "8000 topics on 8 shards: {owned:?}");
        }
    }

    #[test]
    fn the_default_placement_never_changes() {
        let id = TopicId(*b"0123456789abcdef");
        let placed: Vec<u16> = (0..6).map(|p| default_shard(id, PartitionIndex(p), 4).0).collect();
        assert_eq!(placed, [3, 0, 1, 2, 3, 0]);
    }

    #[test]
    fn a_pin_of_a_partition_wins_over_a_pin_of_its_topic_and_both_over_the_default() {
        let map = CoreMap::parse(
            "[[pin]]\ntopic = \"orders\"\nshard = 2\n\n[[pin]]\ntopic = \"orders\"\npartitions = [1]\nshard = 3\n",
            4,
        );
        let Ok(map) = map else { panic!("{map:?}") };
        let owner = |name, p| map.shard_of(name, topic(7), PartitionIndex(p), 4);
        assert_eq!(owner("orders", 0), ShardId(2));
        assert_eq!(owner("orders", 1), ShardId(3));
        assert_eq!(owner("other", 1), default_shard(topic(7), PartitionIndex(1), 4));
    }

    #[test]
    fn the_text_of_a_map_reads_back_as_the_same_map() {
        let text = "[[pin]]\ntopic = \"a\"\nshard = 1\n[[pin]]\ntopic = \"a\"\npartitions = [0, 2]\nshard = 0\n";
        let map = CoreMap::parse(text, 2);
        let Ok(map) = map else { panic!("{map:?}") };
        assert_eq!(CoreMap::parse(&map.to_toml(), 2), Ok(map));
    }

    #[test]
    fn a_wrong_map_is_refused_with_what_to_change() {
        let refusal = |text: &str| match CoreMap::parse(text, 2) {
            Ok(map) => panic!("accepted as {map:?}"),
            Err(error) => error.to_string(),
        };
        assert_eq!(
            refusal("[[pin]]\ntopic = \"t\"\nshard = 2\n"),
            "topic `t` is pinned to shard 2, and this broker has 2 (0 to 1); change the pin or `corelog.shards`"
        );
        assert_eq!(
            refusal("[[pin]]\ntopic = \"t\"\nshard = 0\n[[pin]]\ntopic = \"t\"\nshard = 1\n"),
            "pin 2: topic `t` is pinned to shard 0 already, and to shard 1 here; keep one"
        );
        assert_eq!(
            refusal("[[pin]]\ntopic = \"t\"\npartitions = [-1]\nshard = 0\n"),
            "pin 1: topic `t` has no partition -1; partitions count from 0"
        );
        assert_eq!(
            refusal("[[pin]]\ntopic = \"t\"\npartitions = []\nshard = 0\n"),
            "pin 1: `partitions` of topic `t` is empty; leave it out to pin the whole topic"
        );
        assert!(refusal("[[pin]]\ntopic = \"a/b\"\nshard = 0\n").contains("pin 1: Topic name is invalid"));
        assert!(refusal("[[pin]]\ntopic = \"t\"\ncore = 0\n").contains("unknown field `core`"));
        assert!(refusal("pin = 1").contains("invalid type"));
    }
}
