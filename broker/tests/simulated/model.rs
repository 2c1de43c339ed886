//! Holds: what a broker must be, as its clients have seen it: batches sent, acknowledged and read, topics made and deleted.
//! Never touches: connections, the broker. Everything that contradicts what was seen before panics.
//!
//! Answers may arrive in another order than they were made in, so each check takes the facts as they were when its request
//! was sent (`Facts`): what was true then must still be true in the answer.

use std::collections::{BTreeMap, BTreeSet};

use corelog_net::wire::Uuid;
use corelog_storage::batch::{BatchHeader, Batches};

use super::kept::{Kept, Keyed, Rules};

/// A partition of one incarnation of a topic.
pub type Key = (Uuid, i32);

/// Who wrote a batch, and where in the order of what it wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// An idempotent producer: its id, and the first sequence number.
    Idempotent { id: i64, sequence: i32 },
    /// A connection, and how many batches it sent before.
    Plain { connection: u64, number: u64 },
}

/// A batch that was sent, by its CRC: the broker changes nothing that it covers.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) bytes: Vec<u8>,
    records: i32,
    origin: Origin,
    /// It was lost in a power cut, and nobody sends it again.
    pub(super) is_lost: bool,
    /// Its records, if its topic is compacted.
    pub(super) keyed: Vec<Keyed>,
    /// When it was sent first.
    pub(super) at: i64,
}

impl Sent {
    /// The time of its first record.
    fn first_time(&self) -> i64 {
        BatchHeader::parse(&self.bytes).expect("a batch of ours").base_timestamp.0
    }

    /// The time of each record is one more than that of the one before it.
    pub(super) fn time_of(&self, nth: usize) -> i64 {
        self.first_time() + nth as i64
    }
}

/// A batch whose place is known.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub(super) crc: u32,
    pub(super) next: i64,
    /// Its leader epoch, once it was read.
    epoch: Option<i32>,
    /// Whether it was read since the last start.
    is_found: bool,
}

#[derive(Default)]
pub struct PartitionModel {
    pub(super) rules: Rules,
    pub(super) kept: Kept,
    pub(super) sent: BTreeMap<u32, Sent>,
    pub(super) placed: BTreeMap<i64, Placed>,
    pub(super) facts: Facts,
    /// The largest offset that was asked to be deleted up to.
    pub(super) delete_asked: i64,
    /// The leader epoch, once it was told.
    epoch: Option<i32>,
    /// Moves of the log start that nobody asked for.
    retained: u64,
}

/// What was certain about a partition at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts {
    /// Consumers saw, or were told of, everything below.
    pub visible: i64,
    /// The log began here, or later.
    pub log_start: i64,
    /// So many records of a compacted topic were known to be gone.
    pub gone: u64,
}

/// What is known of a topic's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topic {
    Absent,
    Present {
        id: Uuid,
        partitions: i32,
        /// Asked for, and not answered.
        growing: Option<i32>,
    },
    /// A change was not answered: it happened, or not.
    Unknown,
}

#[derive(Default)]
pub struct Model {
    partitions: BTreeMap<Key, PartitionModel>,
    pub topics: BTreeMap<String, Topic>,
    ids: BTreeSet<Uuid>,
    producer_ids: BTreeSet<i64>,
    /// Acknowledged values of a topic's `retention.ms`; several while an answer is missing.
    pub configs: BTreeMap<String, BTreeSet<String>>,
    /// The largest segment of a topic, and so its largest batch.
    pub segment_bytes: BTreeMap<String, usize>,
    /// What a topic of this name takes away, as it was made last; and of each topic that was.
    pub rules: BTreeMap<String, Rules>,
    rules_of: BTreeMap<Uuid, Rules>,
    pub checked: Checked,
}

/// How much was checked: a run that checks nothing proves nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Checked {
    pub acknowledged: u64,
    pub read: u64,
    pub duplicates: u64,
    pub polls: u64,
    pub refused: u64,
    pub cuts: u64,
    pub deletions: u64,
    pub topics: u64,
    /// Records that compaction took, tombstones among them, and moves of a log start that nobody asked for.
    pub compacted: u64,
    pub tombstones: u64,
    pub retained: u64,
}

impl Model {
    pub fn partition(&mut self, key: Key) -> &mut PartitionModel {
        let rules = || self.rules_of.get(&key.0).cloned().unwrap_or_default();
        self.partitions.entry(key).or_insert_with(|| PartitionModel { rules: rules(), ..PartitionModel::default() })
    }

    /// What this topic takes away.
    pub fn rules(&self, id: Uuid) -> Rules {
        self.rules_of.get(&id).cloned().unwrap_or_default()
    }

    /// What was checked in all.
    pub fn checked(&self) -> Checked {
        let mut checked = self.checked;
        for partition in self.partitions.values() {
            checked.compacted += partition.kept.counts.0;
            checked.tombstones += partition.kept.counts.1;
            checked.retained += partition.retained;
        }
        checked
    }

    fn takes_rules(&mut self, name: &str, id: Uuid) {
        let rules = self.rules.get(name).cloned().unwrap_or_default();
        // Its partitions may be known already: they were seen while it was not known whose they are.
        for (_, partition) in self.partitions.range_mut((id, i32::MIN)..=(id, i32::MAX)) {
            partition.rules = rules.clone();
        }
        self.rules_of.insert(id, rules);
    }

    pub fn facts(&mut self, key: Key) -> Facts {
        self.partition(key).facts
    }

    /// A topic was made: its id is a new one.
    pub fn created(&mut self, name: &str, id: Uuid, partitions: i32) {
        assert!(!id.is_zero(), "topic {name} has no id");
        assert!(self.ids.insert(id), "topic {name} has the id {id} of an earlier topic");
        self.takes_rules(name, id);
        self.topics.insert(name.to_owned(), Topic::Present { id, partitions, growing: None });
        self.checked.topics += 1;
    }

    /// A producer was given its id: a new one.
    pub fn producer(&mut self, id: i64) {
        assert!(self.producer_ids.insert(id), "producer id {id} was given to another one before");
    }

    /// The partitions that are known to be there.
    pub fn keys(&self) -> Vec<(String, Key)> {
        let mut keys = Vec::new();
        for (name, topic) in &self.topics {
            if let Topic::Present { id, partitions, .. } = topic {
                keys.extend((0..*partitions).map(|partition| (name.clone(), (*id, partition))));
            }
        }
        keys
    }

    /// Whether this incarnation of a topic may have been deleted.
    pub fn may_be_gone(&self, id: Uuid) -> bool {
        !self.topics.values().any(|topic| matches!(topic, Topic::Present { id: there, .. } if *there == id))
    }

    /// What the broker says of a topic. At the start of a life nothing is under way that could still change it.
    pub fn observed(&mut self, name: &str, found: Option<(Uuid, i32)>, is_start: bool) {
        match (self.topics.get(name).cloned().unwrap_or(Topic::Absent), found) {
            (Topic::Absent, None) => {}
            (Topic::Absent, Some((id, _))) => panic!("topic {name} ({id}) is there, and was never made or was deleted"),
            (Topic::Present { id, .. }, None) => panic!("topic {name} ({id}) is lost"),
            (Topic::Present { id, partitions, growing }, Some((found, count))) => {
                assert_eq!(found, id, "topic {name} has another id");
                let fits = count == partitions || Some(count) == growing;
                assert!(fits, "topic {name} has {count} partitions, not {partitions} or {growing:?}");
                if is_start {
                    self.topics.insert(name.to_owned(), Topic::Present { id, partitions: count, growing: None });
                }
            }
            (Topic::Unknown, _) if !is_start => {}
            (Topic::Unknown, None) => drop(self.topics.insert(name.to_owned(), Topic::Absent)),
            (Topic::Unknown, Some((id, partitions))) => {
                self.ids.insert(id);
                self.takes_rules(name, id);
                self.topics.insert(name.to_owned(), Topic::Present { id, partitions, growing: None });
            }
        }
    }

    /// A new life of the broker: what was not acknowledged and is not there will not come back.
    pub fn forget_what_was_lost(&mut self, sends_again: impl Fn(Key, u32) -> bool) {
        for (key, partition) in &mut self.partitions {
            let placed: BTreeSet<u32> = partition.placed.values().map(|placed| placed.crc).collect();
            let unplaced: Vec<u32> = partition.sent.keys().filter(|crc| !placed.contains(crc)).copied().collect();
            for crc in unplaced {
                let is_lost = !sends_again(*key, crc) && !partition.accounts_for_a_key(crc);
                if let Some(sent) = partition.sent.get_mut(&crc) {
                    sent.is_lost = is_lost;
                }
            }
        }
    }
}

impl PartitionModel {
    /// A batch is on its way.
    pub fn send(&mut self, bytes: &[u8], origin: Origin, at: i64) -> u32 {
        let header = BatchHeader::parse(bytes).expect("a batch of ours");
        let keyed = self.send_keyed(bytes, header.crc);
        let sent = Sent { bytes: bytes.to_vec(), records: header.record_count, origin, is_lost: false, keyed, at };
        let before = self.sent.insert(header.crc, sent);
        assert!(before.is_none_or(|before| before.bytes == bytes), "two batches with the CRC {}", header.crc);
        header.crc
    }

    /// Records up to `offset` may be deleted from now on.
    pub fn ask_deletion(&mut self, offset: i64) {
        self.delete_asked = self.delete_asked.max(offset);
    }

    pub fn deleted(&mut self, low_watermark: i64, now: i64) {
        self.check_start(low_watermark, now);
        self.facts.log_start = self.facts.log_start.max(low_watermark);
    }

    /// What an answer says about the log's ends, against what was known when it was asked for.
    pub fn ends(&mut self, then: Facts, log_start: i64, visible: i64, now: i64) {
        assert!(log_start >= then.log_start, "the log start went from {} back to {log_start}", then.log_start);
        self.check_start(log_start, now);
        self.retained += u64::from(log_start > self.facts.log_start.max(self.delete_asked));
        assert!(visible >= then.visible, "the visible end went from {} back to {visible}", then.visible);
        self.facts.log_start = self.facts.log_start.max(log_start);
        self.facts.visible = self.facts.visible.max(visible);
    }

    /// May a reader at `offset` be told that it is out of range? Only when records were deleted.
    pub fn out_of_range(&self, offset: i64) {
        let may_be = offset < self.delete_asked || self.rules.retains();
        assert!(may_be, "offset {offset} out of range, deleted to {}", self.delete_asked);
    }

    /// The leader epoch that Metadata tells: each start begins a new one.
    pub fn leader_epoch(&mut self, epoch: i32, is_new_life: bool) {
        let before = self.epoch.replace(epoch);
        assert!(before.is_none_or(|before| epoch >= before), "the leader epoch went from {before:?} back to {epoch}");
        assert!(!is_new_life || before != Some(epoch), "leader epoch {epoch} again after a start");
    }

    /// A batch was acknowledged at `base`. Returns whether it was known there already.
    pub fn acknowledged(&mut self, crc: u32, base: i64) -> bool {
        let next = base + i64::from(self.sent.get(&crc).expect("a batch that was sent").records);
        self.facts.visible = self.facts.visible.max(next);
        self.place(base, crc, None)
    }

    /// Whether another batch of its producer may be the first that this partition has got from it: nothing that was sent
    /// before this batch, nor this one, was acknowledged or seen, and something was sent behind it.
    pub fn is_overtaken(&self, crc: u32) -> bool {
        let place_in_order = |crc: &u32| match self.sent.get(crc).map(|sent| sent.origin) {
            Some(Origin::Idempotent { id, sequence }) => Some((id, sequence)),
            Some(Origin::Plain { .. }) | None => None,
        };
        let Some((id, sequence)) = place_in_order(&crc) else { return false };
        let of_it = |crc: &u32| place_in_order(crc).filter(|(other, _)| *other == id);
        let mut placed = self.placed.values().filter_map(|placed| of_it(&placed.crc));
        let mut sent = self.sent.keys().filter_map(of_it);
        placed.all(|(_, other)| other > sequence) && sent.any(|(_, other)| other > sequence)
    }

    pub(super) fn place(&mut self, base: i64, crc: u32, epoch: Option<i32>) -> bool {
        let sent = self.sent.get(&crc).unwrap_or_else(|| panic!("nobody sent the batch at {base} with CRC {crc}"));
        assert!(!sent.is_lost, "the batch at {base} was lost in a power cut, and is back: {:?}", sent.origin);
        let next = base + i64::from(sent.records);
        if let Some(there) = self.placed.get_mut(&base) {
            assert_eq!(there.crc, crc, "another batch at {base} than before");
            let same_epoch = epoch.is_none() || there.epoch.is_none() || there.epoch == epoch;
            assert!(same_epoch, "the batch at {base} went from epoch {:?} to {epoch:?}", there.epoch);
            there.epoch = there.epoch.or(epoch);
            there.is_found |= epoch.is_some();
            return true;
        }
        let before = self.placed.range(..base).next_back();
        assert!(before.is_none_or(|(_, before)| before.next <= base), "the batch at {base} lies in {before:?}");
        let after = self.placed.range(base..).next();
        assert!(after.is_none_or(|(after, _)| next <= *after), "the batch at {base} reaches into {after:?}");
        // A producer whose records were all deleted may be forgotten, and what it sends again is new then.
        let lost_below = self.delete_asked.max(self.facts.log_start);
        let again = self.placed.iter().find(|(_, placed)| placed.crc == crc && placed.next > lost_below);
        assert!(again.is_none(), "the batch at {base} is also at {again:?}: {:?}", sent.origin);
        self.kept.bases.insert(crc, base);
        self.placed.insert(base, Placed { crc, next, epoch, is_found: epoch.is_some() });
        false
    }

    /// Batches that a reader at `from` was given, who asked when `then` held. Returns the offset behind them.
    pub fn read(&mut self, then: Facts, from: i64, visible: i64, bytes: &[u8], now: i64) -> i64 {
        if self.rules.compacts {
            return self.read_compacted(then, from, visible, bytes, now);
        }
        let mut at = from;
        for batch in Batches::new(bytes) {
            let batch = batch.expect("whole batches");
            let (header, base) = (batch.header, batch.header.base_offset.0);
            let next = base + i64::from(header.record_count);
            assert!(batch.crc_ok(), "the batch at {base} is damaged");
            assert!(
                if at == from { base <= at && at < next } else { base == at },
                "offset {at} wanted, {base} to {next} read"
            );
            assert!(next <= visible, "the batch at {base} reaches to {next}, visible is {visible}");
            self.place(base, header.crc, Some(header.leader_epoch.0));
            let sent = self.sent.get(&header.crc).expect("placed, so sent");
            let same = batch.bytes[8..12] == sent.bytes[8..12] && batch.bytes[16..] == sent.bytes[16..];
            assert!(same, "the batch at {base} is not what was sent");
            at = next;
        }
        at
    }

    /// The whole log was read from `start` to `end` and nothing is under way: all that was ever seen must be in it.
    pub fn read_whole(&self, start: i64, end: i64, now: i64) {
        let start = start.max(self.facts.log_start);
        let compacts = self.rules.compacts;
        if compacts {
            self.check_newest(now);
        }
        let mut at = None;
        let mut epoch = 0;
        let mut last: BTreeMap<(u8, i64), i64> = BTreeMap::new();
        for (base, placed) in self.placed.iter().filter(|(_, placed)| placed.next > start) {
            assert!(at.is_none_or(|at| at == *base || compacts && at < *base), "nothing between {at:?} and {base}");
            assert!(placed.next <= end, "the batch at {base} was seen, and lies behind the log's end {end}");
            assert!(placed.is_found || compacts, "the batch at {base} was acknowledged or seen, and is not in the log");
            let own = placed.epoch.unwrap_or(epoch);
            assert!(own >= epoch, "the batch at {base} has the epoch {own} after {epoch}");
            (at, epoch) = (Some(placed.next), own);
            let sent = self.sent.get(&placed.crc).expect("placed, so sent");
            let (writer, number, step) = match sent.origin {
                Origin::Idempotent { id, sequence } => ((0, id), i64::from(sequence), Some(i64::from(sent.records))),
                Origin::Plain { connection, number } => ((1, connection as i64), number as i64, None),
            };
            if let Some(wanted) = last.get(&writer) {
                let in_order = if step.is_some() && !compacts { number == *wanted } else { number >= *wanted };
                assert!(in_order, "the batch at {base} is {:?}, {wanted} wanted", sent.origin);
            }
            last.insert(writer, number + step.unwrap_or(1));
        }
        assert!(at.is_none_or(|at| at == end || compacts && at <= end), "read to {at:?} of {end}");
    }

    /// The leader epochs of what was read, and where each ends in a log that ends at `end`: where the next begins.
    pub fn epoch_ends(&self, end: i64) -> Vec<(i32, i64)> {
        let there = self.placed.iter().filter(|(_, placed)| placed.is_found);
        let mut ends: Vec<(i32, i64)> = Vec::new();
        for (base, epoch) in there.filter_map(|(base, placed)| Some((*base, placed.epoch?))) {
            match ends.last_mut() {
                Some((before, _)) if *before == epoch => continue,
                Some((_, ends)) => *ends = base,
                None => {}
            }
            ends.push((epoch, end));
        }
        ends
    }

    /// The first times of the batches that were read.
    pub fn times(&self) -> Vec<i64> {
        let found = self.placed.values().filter(|placed| placed.is_found);
        found.filter_map(|placed| self.sent.get(&placed.crc).map(Sent::first_time)).collect()
    }

    /// The first of the records that were read whose time is this one or later.
    pub fn first_at(&self, time: i64) -> Option<i64> {
        let found = self.placed.iter().filter(|(_, placed)| placed.is_found);
        let sent = found.filter_map(|(base, placed)| Some((*base, self.sent.get(&placed.crc)?)));
        let mut offsets = sent.flat_map(|(base, sent)| {
            // The time of each record is one more than that of the one before it.
            let late_enough = (0..i64::from(sent.records)).filter(move |nth| sent.first_time() + nth >= time);
            late_enough.map(move |nth| base + nth)
        });
        offsets.find(|offset| *offset >= self.facts.log_start)
    }

    /// The next whole read must find everything again.
    pub fn read_again(&mut self) {
        self.find_again();
        for placed in self.placed.values_mut() {
            placed.is_found = false;
        }
    }
}
