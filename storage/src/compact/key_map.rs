//! The newest offset of each key in the part of a log that is not compacted yet.
//!
//! Holds: hashes of keys and offsets, in memory of a fixed bound, as Kafka's `SkimpyOffsetMap`: 24 bytes a key,
//! whatever its length. Never touches: batches.
//!
//! The map takes keys until it is as full as the load factor allows; then the round ends where it is, and a later one
//! goes on.

use super::hash::{HashSecret, hash};
use crate::ids::Offset;

/// Bytes that a key takes, as in Kafka: 16 of hash and 8 of offset.
pub const BYTES_PER_KEY: usize = 24;

/// Two words of hash, and the offset plus one: 0 is a free place.
type Slot = [u64; 3];

const _: () = assert!(size_of::<Slot>() == BYTES_PER_KEY);

/// What became of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// The map has it.
    Done,
    /// The map takes no more keys.
    Full,
}

/// The map.
pub struct KeyMap {
    slots: Vec<Slot>,
    secret: HashSecret,
    keys: usize,
    keys_max: usize,
    latest: Offset,
}

impl KeyMap {
    /// An empty map of at most `bytes_max`, and of no more than `records` records can fill. It takes keys until
    /// `load_factor` of its places are taken.
    ///
    /// Whatever the bound, there is room for one key: a round must come further.
    #[must_use]
    pub fn new(bytes_max: usize, load_factor: f64, records: u64, secret: HashSecret) -> Self {
        let load_factor = if load_factor > 0.0 && load_factor < 1.0 { load_factor } else { 0.9 };
        let places_max = (bytes_max / BYTES_PER_KEY).max(2);
        let wanted = (records as f64 / load_factor).ceil() as u64;
        let places = usize::try_from(wanted.saturating_add(1)).unwrap_or(usize::MAX).clamp(2, places_max);
        let keys_max = ((places as f64 * load_factor) as usize).clamp(1, places - 1);
        Self { slots: vec![[0; 3]; places], secret, keys: 0, keys_max, latest: Offset::NONE }
    }

    /// Remembers that `key` was written at `offset`, which no offset before exceeds.
    pub fn put(&mut self, key: &[u8], offset: Offset) -> Put {
        if self.keys >= self.keys_max {
            return Put::Full;
        }
        let [low, high] = hash(self.secret, key);
        if let Some(slot) = self.place(low, high) {
            let is_new = slot[2] == 0;
            *slot = [low, high, (offset.0 as u64).wrapping_add(1)];
            self.keys += usize::from(is_new);
        }
        self.latest = self.latest.max(offset);
        Put::Done
    }

    /// The newest offset of a key; `None` if it is not in the map.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<Offset> {
        let [low, high] = hash(self.secret, key);
        let (before, from) = self.slots.split_at_checked(self.start(low))?;
        let slot = from.iter().chain(before).find(|slot| slot[2] == 0 || (slot[0], slot[1]) == (low, high))?;
        (slot[2] != 0).then(|| Offset(slot[2].wrapping_sub(1) as i64))
    }

    /// The place of this hash, or the free one for it. There always is a free one.
    fn place(&mut self, low: u64, high: u64) -> Option<&mut Slot> {
        let start = self.start(low);
        let (before, from) = self.slots.split_at_mut_checked(start)?;
        from.iter_mut().chain(before).find(|slot| slot[2] == 0 || (slot[0], slot[1]) == (low, high))
    }

    /// Where the search for a hash begins; the hash is as good as random already.
    fn start(&self, low: u64) -> usize {
        ((u128::from(low) * self.slots.len() as u128) >> 64) as usize
    }

    /// Takes note that the map covers the log up to and with `offset`, whether that has a key or not.
    pub fn reach(&mut self, offset: Offset) {
        self.latest = self.latest.max(offset);
    }

    /// The last offset that the map covers; [`Offset::NONE`] before the first.
    #[must_use]
    pub const fn latest(&self) -> Offset {
        self.latest
    }

    /// Keys in it.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.keys
    }

    /// Whether no key is in it.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.keys == 0
    }

    /// Bytes of memory it takes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.slots.len() * BYTES_PER_KEY
    }
}

impl core::fmt::Debug for KeyMap {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("KeyMap")
            .field("keys", &self.keys)
            .field("keys_max", &self.keys_max)
            .field("latest", &self.latest)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const SECRET: HashSecret = HashSecret([7, 11]);

    #[test]
    fn the_map_is_no_larger_than_its_bound_nor_than_the_records_need() {
        assert_eq!(KeyMap::new(24 * 1000, 0.9, u64::MAX, SECRET).bytes(), 24 * 1000);
        assert!(KeyMap::new(128 << 20, 0.9, 10, SECRET).bytes() < 24 * 20);
        assert_eq!(KeyMap::new(0, 0.9, 10, SECRET).keys_max, 1, "one key must fit, or no round ever ends");
    }

    #[test]
    fn a_map_sized_for_its_records_takes_all_of_them() {
        for records in 1..200_u64 {
            let mut map = KeyMap::new(1 << 20, 0.9, records, SECRET);
            for n in 0..records {
                assert_eq!(map.put(&n.to_be_bytes(), Offset(n as i64)), Put::Done, "{n} of {records}");
            }
        }
    }

    #[test]
    fn a_full_map_takes_no_key_and_stays_where_it_is() {
        let mut map = KeyMap::new(24 * 10, 0.5, 1000, SECRET);
        for n in 0..5_u8 {
            assert_eq!(map.put(&[n], Offset(i64::from(n))), Put::Done);
        }
        assert_eq!(map.put(&[5], Offset(5)), Put::Full);
        assert_eq!((map.latest(), map.len(), map.get(&[5])), (Offset(4), 5, None));
    }

    proptest! {
        #[test]
        fn the_newest_offset_of_each_key_is_found(
            keys in prop::collection::vec(prop::collection::vec(0_u8..4, 0..4), 0..300),
        ) {
            let mut map = KeyMap::new(1 << 20, 0.9, keys.len() as u64, SECRET);
            let mut model = BTreeMap::new();
            for (at, key) in keys.iter().enumerate() {
                prop_assert_eq!(map.put(key, Offset(at as i64)), Put::Done);
                model.insert(key, at as i64);
            }
            prop_assert_eq!(map.len(), model.len());
            for (key, offset) in model {
                prop_assert_eq!(map.get(key), Some(Offset(offset)));
            }
            prop_assert_eq!(map.get(b"another key"), None);
        }
    }
}
