//! A map that is cheap to snapshot.
//!
//! Holds: a hash map in 256 buckets, each behind an `Arc`. A clone copies 256 pointers; a change after a clone copies
//! one bucket. So publishing an image costs the same for ten topics as for a hundred thousand.
//! Never touches: what is stored in it.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use rustc_hash::FxBuildHasher;

const BUCKETS: usize = 256;

/// A persistent map; see the module.
#[derive(Clone, Debug)]
pub struct SharedMap<K, V> {
    buckets: Box<[Arc<BTreeMap<K, V>>]>,
    len: usize,
}

impl<K, V> Default for SharedMap<K, V> {
    fn default() -> Self {
        let empty = Arc::new(BTreeMap::new());
        Self { buckets: vec![empty; BUCKETS].into_boxed_slice(), len: 0 }
    }
}

impl<K: PartialEq, V: PartialEq> PartialEq for SharedMap<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.buckets.iter().zip(&other.buckets).all(|(a, b)| Arc::ptr_eq(a, b) || a == b)
    }
}

fn bucket_of<Q: Hash + ?Sized>(key: &Q) -> usize {
    // The high bits: FxHash mixes upwards.
    (FxBuildHasher.hash_one(key) >> 56) as usize % BUCKETS
}

impl<K: Ord + Hash + Clone, V: Clone> SharedMap<K, V> {
    /// How many entries there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no entry.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value of `key`.
    #[must_use]
    pub fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        K: std::borrow::Borrow<Q>,
        Q: Ord + Hash + ?Sized,
    {
        self.buckets.get(bucket_of(key))?.get(key)
    }

    /// The value of `key`, to change it. Copies its bucket if a snapshot still holds it.
    pub fn get_mut<Q>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: std::borrow::Borrow<Q>,
        Q: Ord + Hash + ?Sized,
    {
        let bucket = self.buckets.get_mut(bucket_of(key))?;
        if !bucket.contains_key(key) {
            return None;
        }
        Arc::make_mut(bucket).get_mut(key)
    }

    /// Puts a value in; returns what was there.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let bucket = self.buckets.get_mut(bucket_of(&key))?;
        let old = Arc::make_mut(bucket).insert(key, value);
        if old.is_none() {
            self.len += 1;
        }
        old
    }

    /// Takes a value out.
    pub fn remove<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: std::borrow::Borrow<Q>,
        Q: Ord + Hash + ?Sized,
    {
        let bucket = self.buckets.get_mut(bucket_of(key))?;
        if !bucket.contains_key(key) {
            return None;
        }
        let old = Arc::make_mut(bucket).remove(key);
        if old.is_some() {
            self.len -= 1;
        }
        old
    }

    /// Every entry, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.buckets.iter().flat_map(|bucket| bucket.iter())
    }

    /// Calls `changed(key, old, new)` for each key whose value differs between the two maps. Buckets that both share
    /// are skipped whole.
    pub fn diff<'a>(old: &'a Self, new: &'a Self, mut changed: impl FnMut(&'a K, Option<&'a V>, Option<&'a V>))
    where
        V: PartialEq,
    {
        for (before, after) in old.buckets.iter().zip(&new.buckets) {
            if Arc::ptr_eq(before, after) {
                continue;
            }
            for (key, value) in before.iter() {
                let now = after.get(key);
                if now != Some(value) {
                    changed(key, Some(value), now);
                }
            }
            for (key, value) in after.iter() {
                if !before.contains_key(key) {
                    changed(key, None, Some(value));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_does_not_see_later_changes() {
        let mut map = SharedMap::default();
        for n in 0..1000_u32 {
            map.insert(n, n);
        }
        let snapshot = map.clone();
        map.insert(5, 500);
        map.remove(&6);
        map.insert(1000, 1000);
        assert_eq!(snapshot.get(&5), Some(&5));
        assert_eq!(snapshot.get(&6), Some(&6));
        assert_eq!(snapshot.len(), 1000);
        assert_eq!(map.len(), 1000);
        assert_eq!(map.get(&6), None);
        assert_ne!(map, snapshot);
    }

    #[test]
    fn a_diff_names_what_was_added_changed_and_removed_and_nothing_else() {
        let mut map = SharedMap::default();
        for n in 0..1000_u32 {
            map.insert(n, n);
        }
        let before = map.clone();
        map.insert(5, 500);
        map.remove(&6);
        map.insert(1000, 1000);
        map.insert(7, 7);
        let mut seen = Vec::new();
        SharedMap::diff(&before, &map, |k, old, new| {
            seen.push((*k, old.copied(), new.copied()));
        });
        seen.sort_unstable();
        assert_eq!(seen, [(5, Some(5), Some(500)), (6, Some(6), None), (1000, None, Some(1000))]);
    }

    #[test]
    fn the_keys_spread_over_the_buckets() {
        let mut used = std::collections::BTreeSet::new();
        for n in 0..2000_u32 {
            used.insert(bucket_of(format!("topic-{n}").as_str()));
        }
        assert!(used.len() > 200, "2000 names fell into {} of {BUCKETS} buckets", used.len());
    }
}
