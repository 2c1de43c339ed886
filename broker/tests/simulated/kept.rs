//! Holds: what may be missing from a partition by its topic's rules: compaction and retention, as clients can tell.
//! Never touches: connections, the broker, what a partition is otherwise (`model`).
//!
//! | a record is missing, and that is right if | |
//! |---|---|
//! | the log starts behind it | which retention or a deletion must account for |
//! | a later one has its key | and is as old as `min.compaction.lag.ms` |
//! | it is a tombstone | sent longer ago than `delete.retention.ms` |
//!
//! What is gone never comes back. A record of a compacted topic has its own number in a header, as batches are written anew.

use std::collections::{BTreeMap, BTreeSet};

use corelog_storage::batch::{BatchView, Batches, DecompressScratch, Records, decompress_all};

use super::model::{Facts, PartitionModel};
use super::random::Random;

/// Most bytes of a batch of ours.
const BATCH_BYTES_MAX: usize = 16 << 20;
const DAY_MS: i64 = 86_400_000;

/// A topic's configuration, as far as it takes records away. The default takes none in the time that a run lasts.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    pub compacts: bool,
    pub deletes: bool,
    retention_bytes: Option<i64>,
    retention_ms: Option<i64>,
    delete_retention_ms: i64,
    lag_ms: i64,
    lag_ms_max: Option<i64>,
    dirty_ratio: &'static str,
}

impl Rules {
    /// Of a topic that is compacted, or loses its oldest records, or both.
    pub fn random(random: &mut Random) -> Rules {
        let mut pick = |from: &[i64]| from[random.below(from.len() as u64) as usize];
        let some = |ms: i64| (ms >= 0).then_some(ms);
        let (compacts, deletes) =
            [(true, false), (true, true), (true, false), (false, true)][pick(&[0, 1, 2, 3]) as usize];
        Rules {
            compacts,
            deletes,
            retention_bytes: some(pick(&[-1, 10_000, 60_000])).filter(|_| deletes),
            retention_ms: some(pick(&[-1, 30, 400])).filter(|_| deletes),
            delete_retention_ms: pick(&[0, 5, 60, DAY_MS]),
            lag_ms: pick(&[0, 0, 20, 300]),
            lag_ms_max: some(pick(&[-1, -1, 400])),
            dirty_ratio: ["0", "0.01", "0.5"][pick(&[0, 1, 2]) as usize],
        }
    }

    /// Nothing is taken away unless a client asks for it.
    pub fn keeps_all(&self) -> bool {
        !self.compacts && !self.retains()
    }

    /// The oldest records go by themselves.
    pub fn retains(&self) -> bool {
        self.retention_bytes.is_some() || self.retention_ms.is_some()
    }

    /// As a topic's configs.
    pub fn configs(&self) -> Vec<(&'static str, String)> {
        if !self.compacts && !self.deletes {
            return Vec::new();
        }
        let policy = match (self.compacts, self.deletes) {
            (true, true) => "compact,delete",
            (true, false) => "compact",
            (false, _) => "delete",
        };
        let mut configs = vec![
            ("cleanup.policy", policy.to_owned()),
            ("delete.retention.ms", self.delete_retention_ms.to_string()),
            ("min.compaction.lag.ms", self.lag_ms.to_string()),
            ("min.cleanable.dirty.ratio", self.dirty_ratio.to_owned()),
            ("retention.bytes", self.retention_bytes.unwrap_or(-1).to_string()),
            ("retention.ms", self.retention_ms.unwrap_or(-1).to_string()),
        ];
        configs.extend(self.lag_ms_max.map(|ms| ("max.compaction.lag.ms", ms.to_string())));
        configs
    }
}

/// A record that was sent to a compacted topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyed {
    number: u64,
    key: Vec<u8>,
    value: Option<Vec<u8>>,
    time: i64,
}

/// Of a compacted partition.
#[derive(Default)]
pub struct Kept {
    /// By number, its batch and its place in it.
    numbers: BTreeMap<u64, (u32, usize)>,
    /// Where each batch is.
    pub bases: BTreeMap<u32, i64>,
    /// Everything that was sent with a key.
    keys: BTreeMap<Vec<u8>, Vec<(u32, usize)>>,
    /// Where a reader found nothing, and the how manieth such place it was.
    gone: BTreeMap<i64, u64>,
    /// What was read since the last start.
    found: BTreeSet<i64>,
    /// Records, and tombstones among them, that were found to be gone.
    pub counts: (u64, u64),
}

/// The records of a batch, their offsets counted from its base offset.
pub fn keyed(batch: &BatchView<'_>) -> Vec<(i64, Keyed)> {
    if batch.header.record_count == 0 {
        return Vec::new();
    }
    let codec = batch.header.attributes.compression().expect("a codec");
    let payload = decompress_all(codec, batch.payload(), BATCH_BYTES_MAX as u64, &mut DecompressScratch::new());
    let payload = payload.expect("sound data");
    let record = |record: corelog_storage::batch::Record<'_>| {
        let mut headers = record.headers.clone();
        let (_, number) = headers.next().expect("a header");
        let number = u64::from_be_bytes(number.expect("a number").try_into().expect("eight bytes"));
        let key = record.key.expect("a key").to_vec();
        (record.offset.0, Keyed { number, key, value: record.value.map(<[u8]>::to_vec), time: record.timestamp.0 })
    };
    Records::new(&batch.header, &payload).map(|found| record(found.expect("a sound record"))).collect()
}

impl PartitionModel {
    /// Takes note of a batch of keyed records that is on its way.
    pub(super) fn send_keyed(&mut self, bytes: &[u8], crc: u32) -> Vec<Keyed> {
        if !self.rules.compacts {
            return Vec::new();
        }
        let records = keyed(&BatchView::first(bytes).expect("a batch of ours"));
        for (nth, (_, record)) in records.iter().enumerate() {
            if self.kept.numbers.insert(record.number, (crc, nth)).is_none() {
                self.kept.keys.entry(record.key.clone()).or_default().push((crc, nth));
            }
        }
        records.into_iter().map(|(_, record)| record).collect()
    }

    fn keyed_at(&self, offset: i64) -> Option<(u32, usize)> {
        let (base, placed) = self.placed.range(..=offset).next_back()?;
        (offset < placed.next).then(|| (placed.crc, (offset - base) as usize))
    }

    fn keyed_of(&self, (crc, nth): (u32, usize)) -> Option<&Keyed> {
        self.sent.get(&crc)?.keyed.get(nth)
    }

    /// Where this record is, if that is known.
    fn offset_of(&self, (crc, nth): (u32, usize)) -> Option<i64> {
        Some(self.kept.bases.get(&crc)? + nth as i64)
    }

    fn is_spent_tombstone(&self, place: (u32, usize), now: i64) -> bool {
        let sent_at = self.sent.get(&place.0).map_or(now, |sent| sent.at);
        let is_tombstone = self.keyed_of(place).is_some_and(|record| record.value.is_none());
        is_tombstone && sent_at + self.rules.delete_retention_ms <= now
    }

    /// Whether compaction may have taken a record by now.
    fn may_be_compacted(&self, place: (u32, usize), now: i64) -> bool {
        let Some(record) = self.keyed_of(place) else { return false };
        let is_old = |record: &Keyed| self.rules.lag_ms == 0 || record.time + self.rules.lag_ms <= now;
        let offset = self.offset_of(place);
        let is_later = |other: (u32, usize)| match (offset, self.offset_of(other)) {
            (Some(own), Some(other)) => other > own,
            // It may be there, and be taken itself by now.
            (_, None) | (None, _) => true,
        };
        let others = self.kept.keys.get(&record.key).into_iter().flatten().filter(|other| **other != place);
        let mut superseding = others.filter(|other| is_later(**other)).filter_map(|other| self.keyed_of(*other));
        superseding.any(is_old) || is_old(record) && self.is_spent_tombstone(place, now)
    }

    /// Batches of a compacted log that a reader at `from` was given. Returns the offset behind them.
    pub(super) fn read_compacted(&mut self, then: Facts, from: i64, visible: i64, bytes: &[u8], now: i64) -> i64 {
        let mut at = from;
        for batch in Batches::new(bytes) {
            let batch = batch.expect("whole batches");
            let (header, base) = (batch.header, batch.header.base_offset.0);
            let next = header.last_offset().expect("a sound header").0 + 1;
            assert!(batch.crc_ok(), "the batch at {base} is damaged");
            assert!(base >= at || at == from && next > at, "offset {at} wanted, {base} to {next} read");
            assert!(next <= visible, "the batch at {base} reaches to {next}, visible is {visible}");
            for (offset, record) in keyed(&batch) {
                let known = self.kept.numbers.get(&record.number).copied();
                let place = known.unwrap_or_else(|| panic!("nobody sent the record at {offset}"));
                assert_eq!(self.keyed_of(place), Some(&record), "the record at {offset} is not what was sent");
                assert!((base..next).contains(&offset), "the record at {offset} in the batch from {base} to {next}");
                self.place(offset - place.1 as i64, place.0, Some(header.leader_epoch.0));
                if offset < at {
                    // Of the first batch, before what was asked for.
                    continue;
                }
                (at..offset).for_each(|missing| self.missing(missing, now));
                // Who asked before anybody knew may have been given what was there then.
                let is_back = self.kept.gone.get(&offset).is_some_and(|nth| *nth <= then.gone);
                assert!(!is_back, "the record at {offset} was gone, and is back");
                self.kept.found.insert(offset);
                at = offset + 1;
            }
            (at..next).for_each(|missing| self.missing(missing, now));
            at = next;
        }
        at
    }

    /// A reader found nothing at this offset.
    fn missing(&mut self, offset: i64, now: i64) {
        let is_new = !self.kept.gone.contains_key(&offset);
        if is_new {
            self.facts.gone += 1;
            self.kept.gone.insert(offset, self.facts.gone);
        }
        self.kept.found.remove(&offset);
        let Some(place) = self.keyed_at(offset).filter(|_| is_new && offset >= self.facts.log_start) else { return };
        let record = self.keyed_of(place);
        let is_right = self.may_be_compacted(place, now);
        assert!(is_right, "the record at {offset} is missing at {now}: {record:?}, {:?}", self.rules);
        let is_tombstone = record.is_some_and(|record| record.value.is_none());
        self.kept.counts.0 += 1;
        self.kept.counts.1 += u64::from(is_tombstone);
    }

    /// Of each key the newest record is there, or none: what a consumer of the whole log ends with.
    pub(super) fn check_newest(&self, now: i64) {
        let start = self.facts.log_start;
        let mut state: BTreeMap<&[u8], (i64, Option<&[u8]>)> = BTreeMap::new();
        for offset in self.kept.found.range(start..) {
            if let Some(record) = self.keyed_at(*offset).and_then(|place| self.keyed_of(place)) {
                state.insert(&record.key, (*offset, record.value.as_deref()));
            }
        }
        for (key, places) in &self.kept.keys {
            let placed = places.iter().filter_map(|place| Some((self.offset_of(*place)?, *place)));
            let Some((newest, place)) = placed.max().filter(|(offset, _)| *offset >= start) else { continue };
            let found = state.get(key.as_slice()).copied();
            let record = self.keyed_of(place).expect("placed, so sent");
            if found == Some((newest, record.value.as_deref())) {
                continue;
            }
            let is_unknown_tombstone = |other: &&(u32, usize)| {
                let is_placed = self.kept.bases.contains_key(&other.0);
                !is_placed && !self.sent[&other.0].is_lost && self.is_spent_tombstone(**other, now)
            };
            let excused = self.is_spent_tombstone(place, now) || places.iter().find(is_unknown_tombstone).is_some();
            assert!(
                found.is_none() && excused,
                "the newest record of {key:?} is at {newest} and a reader ends with {found:?}; it is {record:?}, {:?}",
                self.rules
            );
        }
    }

    /// Whether a batch that is nowhere accounts for a key of which nothing is left: compaction has taken it, not a crash.
    pub(super) fn accounts_for_a_key(&self, crc: u32) -> bool {
        let keyed = self.sent.get(&crc).map(|sent| sent.keyed.as_slice()).unwrap_or_default();
        keyed.iter().filter(|record| record.value.is_none()).any(|record| {
            let places = self.kept.keys.get(&record.key).into_iter().flatten();
            let newest = places.filter_map(|place| self.offset_of(*place)).max();
            newest.is_some_and(|newest| self.kept.gone.contains_key(&newest))
        })
    }

    pub(super) fn find_again(&mut self) {
        self.kept.found.clear();
    }

    /// Whether the log may start at `start`: a deletion was asked for, or what is before that is too old or too much.
    pub(super) fn check_start(&mut self, start: i64, now: i64) {
        if start <= self.facts.log_start.max(self.delete_asked) {
            return;
        }
        assert!(self.rules.retains(), "the log starts at {start}, deleted to {}", self.delete_asked);
        let is_over = |crc: &u32, nth: usize| {
            let time = self.sent[crc].time_of(nth);
            self.rules.retention_ms.is_some_and(|ms| time + ms < now)
                || self.rules.compacts && self.may_be_compacted((*crc, nth), now)
        };
        let below = self.placed.range(..start).rev();
        let mut kept = below.flat_map(|(base, placed)| {
            let offsets = (*base..placed.next.min(start)).rev();
            offsets.map(move |offset| (offset, placed.crc, (offset - base) as usize))
        });
        let Some((last, ..)) = kept.find(|(_, crc, nth)| !is_over(crc, *nth)).filter(|k| k.0 >= self.facts.log_start)
        else {
            return;
        };
        if last < self.delete_asked {
            return;
        }
        let behind = self.placed.values().filter(|placed| placed.next > last + 1).map(|placed| placed.crc);
        let placed: BTreeSet<u32> = self.placed.values().map(|placed| placed.crc).collect();
        let unknown = self.sent.keys().filter(|crc| !placed.contains(crc)).copied();
        let bytes: usize = behind.chain(unknown).map(|crc| self.sent[&crc].bytes.len()).sum();
        let is_too_much = self.rules.retention_bytes.is_some_and(|max| bytes as i64 >= max);
        assert!(
            is_too_much,
            "the log starts at {start}, and the record at {last} is young, and there are {bytes} bytes behind it; {now}, {:?}",
            self.rules
        );
    }

    /// ListOffsets has answered `found` for a time, in a compacted log that was read as a whole before.
    pub(super) fn check_first_at(&self, time: i64, found: i64, now: i64) {
        // What nobody was told of yet may be found, too; and what was sent before the topic was compacted.
        if let Some(there) = self.keyed_at(found).and_then(|place| self.keyed_of(place)) {
            assert!(there.time >= time, "the first at {time} is {there:?} at {found}");
        }
        let before = self.kept.found.range(self.facts.log_start..).take_while(|offset| found < 0 || **offset < found);
        for place in before.filter_map(|offset| self.keyed_at(*offset)) {
            let record = self.keyed_of(place);
            let is_earlier = record.is_some_and(|record| record.time >= time);
            let may_go = !is_earlier || self.rules.retains() || self.may_be_compacted(place, now);
            assert!(may_go, "the first record at {time} is {record:?}, not the one at {found}");
        }
    }
}
