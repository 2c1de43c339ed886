//! Long polls that wait for partitions of this shard to move.
//!
//! Holds: the open watches, each with the partitions it looks at. Never touches: logs, clocks (the shard that asked keeps
//! the deadline and calls the watch off), connections.

use corelog_reactor::ShardId;
use corelog_storage::ids::Offset;
use rustc_hash::FxHashMap;
use slab::Slab;

use super::call::PartitionKey;
use crate::shard::mail::AskId;

/// "Tell me when this partition's visible end passes what I have seen."
#[derive(Debug, Clone, Copy)]
pub struct WatchEntry {
    /// The partition.
    pub key: PartitionKey,
    /// The visible end that the asker has seen.
    pub seen: Offset,
    /// Whether visible means the last stable offset (read committed) and not the high watermark.
    pub read_committed: bool,
}

/// Number of a watch in its shard's table.
pub type WatchIndex = usize;

#[derive(Debug)]
struct Watch {
    from: ShardId,
    ask: AskId,
    keys: Vec<PartitionKey>,
}

/// The open watches of one shard. Bounded: a connection has at most one fetch in flight, a fetch one watch a shard.
#[derive(Debug, Default)]
pub struct Watches {
    open: Slab<Watch>,
    by_ask: FxHashMap<(ShardId, AskId), WatchIndex>,
    by_partition: FxHashMap<PartitionKey, Vec<WatchIndex>>,
}

impl Watches {
    /// Opens a watch on `keys` for the ask `ask` of shard `from`.
    pub fn open(&mut self, from: ShardId, ask: AskId, keys: Vec<PartitionKey>) {
        let index = self.open.vacant_key();
        for key in &keys {
            self.by_partition.entry(*key).or_default().push(index);
        }
        self.by_ask.insert((from, ask), index);
        self.open.insert(Watch { from, ask, keys });
    }

    /// The ask is not interested any more.
    pub fn cancel(&mut self, from: ShardId, ask: AskId) {
        if let Some(index) = self.by_ask.get(&(from, ask)).copied() {
            self.close(index);
        }
    }

    /// Closes every watch on `key` and returns whom to tell.
    pub fn moved(&mut self, key: PartitionKey) -> Vec<(ShardId, AskId)> {
        let Some(indexes) = self.by_partition.remove(&key) else { return Vec::new() };
        indexes.into_iter().filter_map(|index| self.close(index)).collect()
    }

    /// Whether anything watches `key`.
    pub fn is_watched(&self, key: PartitionKey) -> bool {
        self.by_partition.contains_key(&key)
    }

    /// Open watches.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether none is open.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    fn close(&mut self, index: WatchIndex) -> Option<(ShardId, AskId)> {
        let watch = self.open.try_remove(index)?;
        self.by_ask.remove(&(watch.from, watch.ask));
        for key in &watch.keys {
            if let Some(others) = self.by_partition.get_mut(key) {
                others.retain(|other| *other != index);
                if others.is_empty() {
                    self.by_partition.remove(key);
                }
            }
        }
        Some((watch.from, watch.ask))
    }
}

#[cfg(test)]
mod tests {
    use corelog_storage::ids::{PartitionIndex, TopicId};

    use super::*;

    fn key(partition: i32) -> PartitionKey {
        PartitionKey { topic_id: TopicId([1; 16]), partition: PartitionIndex(partition) }
    }

    fn ask(index: u32) -> AskId {
        AskId { index, generation: 1 }
    }

    #[test]
    fn a_moving_partition_closes_its_watches_everywhere_and_names_the_askers_once() {
        let mut watches = Watches::default();
        watches.open(ShardId(0), ask(1), vec![key(0), key(1)]);
        watches.open(ShardId(2), ask(1), vec![key(1)]);
        let told = watches.moved(key(1));
        assert_eq!(told, [(ShardId(0), ask(1)), (ShardId(2), ask(1))]);
        assert!(watches.moved(key(0)).is_empty(), "the first watch was closed on both its partitions");
        assert!(watches.is_empty() && !watches.is_watched(key(0)) && !watches.is_watched(key(1)));
    }

    #[test]
    fn a_cancelled_watch_leaves_nothing_behind() {
        let mut watches = Watches::default();
        watches.open(ShardId(1), ask(7), vec![key(0), key(3)]);
        watches.cancel(ShardId(1), ask(7));
        watches.cancel(ShardId(1), ask(7));
        assert!(watches.is_empty() && !watches.is_watched(key(3)));
        assert!(watches.moved(key(3)).is_empty());
    }
}
