//! Aborted transactions in a log that is compacted, on the simulated disk: whatever operation a round ends at, a read-committed
//! consumer sees no aborted record, and the newest committed one of each key.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod log_common;
mod log_compacted;
mod log_model;
mod log_txn;

use corelog_reactor::Reactor;
use corelog_reactor::sim::SimWorld;
use corelog_storage::batch::{Batches, Records};
use corelog_storage::compact::GroupLimits;
use corelog_storage::ids::{Offset, ProducerId};
use corelog_storage::log::{AbortedTxn, CompactionRules, Log, LogConfig, ReadOutcome, StorageOptions};
use corelog_storage::producers::EndMarker;
use log_common::*;
use log_compacted::{compact, open, options, reactor_of};
use log_model::{Dice, run};
use log_txn::*;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

const KEYS: u64 = 12;

fn small() -> LogConfig {
    log_compacted::config(4 << 10)
}

fn rules(dice: &mut Dice) -> CompactionRules {
    CompactionRules {
        limits: GroupLimits { bytes: [1, 12 << 10][dice.below(2) as usize], index_bytes: u64::MAX },
        delete_retention_ms: [0, i64::MAX / 4][dice.below(2) as usize],
        ..log_compacted::rules()
    }
}

fn seeded(seed: u64) -> StorageOptions {
    options(&mut Dice(seed))
}

/// What was written: of each record its key, and how its transaction ended.
#[derive(Clone, Default)]
struct Keyed {
    history: History,
    keys: BTreeMap<i64, u64>,
}

impl Keyed {
    /// Records of transactions with keys of a small range, and none without one.
    fn step(&mut self, log: &Log, dice: &mut Dice) -> bool {
        let producer = 1 + dice.below(3) as i64;
        let count = 1 + dice.below(3) as i32;
        let first = self.history.end();
        match dice.below(6) {
            0..4 => {
                let key = dice.below(KEYS - 2);
                let taken = self.history.keyed(log, producer, count, key as u8, 150);
                if taken {
                    self.keys.extend((0..count).map(|n| (first + i64::from(n), key + n as u64)));
                }
                taken
            }
            4 => self.history.marker(log, producer, true),
            _ => self.history.marker(log, producer, false),
        }
    }

    /// Of each record that was committed by now, or is undecided, its key.
    fn committed(&self, end: i64) -> BTreeMap<i64, u64> {
        let aborted = self.history.aborted();
        let is_aborted = |w: &Written| {
            aborted
                .iter()
                .any(|t| t.producer_id.0 == w.producer && t.first_offset.0 <= w.base && w.base < t.last_offset.0)
        };
        let data = self.history.written.iter().filter(|w| w.kind == Kind::Data && w.next <= end && !is_aborted(w));
        data.flat_map(|w| w.base..w.next).map(|offset| (offset, self.keys[&offset])).collect()
    }
}

/// A piece of the log as a read gives it.
async fn read_piece(log: &Log, at: Offset, piece: usize) -> (Vec<u8>, Offset) {
    match log.read(at, log.log_end(), piece, true).expect("a read") {
        ReadOutcome::Empty => panic!("nothing at {at} of {:?}", log.status()),
        ReadOutcome::Hot(hot) => (hot.slices.iter().flat_map(|s| s.to_vec()).collect(), hot.next_offset),
        ReadOutcome::Cold(plan) => {
            let cold = log.read_cold(plan).await.expect("a cold read").expect("bytes");
            (cold.to_vec(), cold.next_offset)
        }
    }
}

/// What a consumer of committed records sees, as Kafka's own goes about it: for each answer it begins with the aborted
/// transactions that came along, in the order of their first offsets; one ends at its producer's ABORT marker. And all that
/// is there: of each batch its offset, producer, records, and whether it is the end of an aborted transaction.
async fn consumed(log: &Log, piece: usize) -> (BTreeSet<i64>, Vec<(i64, i64, i32, bool)>) {
    let (mut seen, mut all) = (BTreeSet::new(), Vec::new());
    let mut at = log.log_start();
    while at < log.log_end() {
        let (bytes, next) = read_piece(log, at, piece).await;
        let aborted = log.aborted_transactions(at, next, 10_000).await.unwrap().expect("few");
        let mut ahead: Vec<AbortedTxn> = aborted;
        ahead.sort_by_key(|t| std::cmp::Reverse(t.first_offset));
        let mut hidden: BTreeSet<ProducerId> = BTreeSet::new();
        for batch in Batches::new(&bytes) {
            let batch = batch.unwrap();
            let header = batch.header;
            let last = header.last_offset().unwrap();
            while let Some(transaction) = ahead.pop_if(|t| t.first_offset <= last) {
                hidden.insert(transaction.producer_id);
            }
            let records: Vec<_> = Records::new(&header, batch.payload()).map(Result::unwrap).collect();
            let marker = records.first().filter(|_| header.attributes.is_control()).map(EndMarker::parse);
            let is_abort = matches!(marker, Some(Ok(EndMarker { is_abort: true, .. })));
            all.push((header.base_offset.0, header.producer_id.0, header.record_count, is_abort));
            if header.attributes.is_control() {
                if is_abort {
                    hidden.remove(&header.producer_id);
                }
            } else if !(header.attributes.is_transactional() && hidden.contains(&header.producer_id)) {
                seen.extend(records.iter().map(|record| record.offset.0));
            }
        }
        at = next;
    }
    (seen, all)
}

/// What is wrong with what a consumer sees, and with the entries.
async fn check(log: &Log, keyed: &Keyed, what: &str) {
    let committed = keyed.committed(log.log_end().0);
    let newest: BTreeMap<u64, i64> = committed.iter().map(|(offset, key)| (*key, *offset)).collect();
    for piece in [1, 700, 100_000] {
        let (seen, all) = consumed(log, piece).await;
        let wrong: Vec<_> = seen.iter().filter(|offset| !committed.contains_key(offset)).collect();
        assert!(wrong.is_empty(), "{what}: aborted records {wrong:?} are seen, in pieces of {piece}");
        for (key, offset) in &newest {
            assert!(seen.contains(offset), "{what}: record {offset}, the newest of key {key}, is not seen");
        }
        let entries = log.aborted_transactions(log.log_start(), log.log_end(), 10_000).await.unwrap().unwrap();
        for entry in &entries {
            let marker = all.iter().find(|(base, ..)| *base == entry.last_offset.0);
            assert!(marker.is_some_and(|m| m.3 && m.1 == entry.producer_id.0), "{what}: {entry:?} without its marker");
            let was = keyed.history.aborted().into_iter().find(|t| t.last_offset == entry.last_offset);
            assert_eq!(Some(*entry), was, "{what}: an entry stays as it was");
        }
        // As Kafka: an entry stays with each marker that has a batch of its transaction before it.
        for entry in keyed.history.aborted() {
            let of = |(base, producer, ..): &(i64, i64, i32, bool)| {
                *producer == entry.producer_id.0 && (entry.first_offset.0..entry.last_offset.0).contains(base)
            };
            let has_marker = all.iter().any(|(base, _, _, is_abort)| *base == entry.last_offset.0 && *is_abort);
            if has_marker && all.iter().any(of) {
                assert!(entries.contains(&entry), "{what}: {entry:?} is gone, and its marker and batches are there");
            }
            assert!(has_marker || !all.iter().any(of), "{what}: batches of {entry:?} without its marker");
        }
    }
}

/// A log of several segments.
async fn filled(log: &Log, keyed: &RefCell<Keyed>, dice: &mut Dice, reactor: &Reactor) {
    lead(log).await;
    let segments = log.status().segments + 5;
    while log.status().segments < segments {
        assert!(keyed.borrow_mut().step(log, dice));
        commit_all(log).await;
    }
    reactor.sleep(Duration::from_millis(50)).await;
}

/// Two rounds, the first of which ends at its `step`th operation. Returns whether it got that far, and how many entries were
/// left at the end.
fn interrupted(step: u64, is_cut: bool, seed: u64) -> (bool, usize) {
    let what = format!("step {step}, power cut: {is_cut}, seed {seed}");
    let world = SimWorld::new(seed ^ step << 8);
    let node = world.add_node();
    let reactor = reactor_of(&world, node);
    let keyed: Rc<RefCell<Keyed>> = Rc::default();
    let rules = rules(&mut Dice(seed));
    let (own_reactor, own) = (reactor.clone(), keyed.clone());
    let (kept, log) = run(&world, &reactor, async move {
        let (data, env, log) = open(own_reactor.clone(), small(), seeded(seed)).await;
        filled(&log, &own, &mut Dice(seed), &own_reactor).await;
        ((data, env), log)
    });
    let (own, round_rules) = (log.clone(), rules);
    let round = async move {
        let _ = compact(&own, &round_rules).await.unwrap();
    };
    let got_there = until(&world, node, &reactor, step, round);
    drop((kept, log));
    if is_cut {
        world.crash(node)
    } else {
        world.stop(&reactor)
    };
    let (mut reactor, mut left) = (reactor_of(&world, node), 0);
    for last in [false, true] {
        let (own_reactor, own, said) = (reactor.clone(), keyed.clone(), what.clone());
        left = run(&world, &reactor, async move {
            let (_data, _env, log) = open(own_reactor.clone(), small(), seeded(seed)).await;
            assert_eq!(log.fenced(), None, "{said}");
            own.borrow_mut().history.cut(log.log_end().0);
            let known = own.borrow().clone();
            check(&log, &known, &said).await;
            filled(&log, &own, &mut Dice(seed + 1), &own_reactor).await;
            let _ = compact(&log, &rules).await.unwrap();
            let known = own.borrow().clone();
            check(&log, &known, &format!("{said}, compacted")).await;
            if last {
                log.close().await.unwrap();
            }
            log.aborted_transactions(log.log_start(), log.log_end(), 10_000).await.unwrap().unwrap().len()
        });
        if is_cut {
            world.crash(node)
        } else {
            world.stop(&reactor)
        };
        reactor = reactor_of(&world, node);
    }
    (got_there, left)
}

#[test]
fn a_round_that_ends_at_any_operation_hides_what_was_aborted_and_nothing_else() {
    let mut left = 0;
    for is_cut in [true, false] {
        let steps = (0..3_000).find(|step| {
            let mut any = false;
            for seed in 0..4 {
                let (got_there, entries) = interrupted(*step, is_cut, seed);
                any |= got_there;
                left += entries;
            }
            !any
        });
        assert!(steps.is_some_and(|steps| steps > 60), "{steps:?} operations");
    }
    assert!(left > 1_000, "{left} entries");
}

/// Without an index, or with a damaged one, the batches say what was aborted, and no record is lost for it.
#[test]
fn a_round_takes_no_record_out_on_the_word_of_an_index() {
    for seed in 0..6 {
        let world = SimWorld::new(seed);
        let node = world.add_node();
        let reactor = reactor_of(&world, node);
        let disk = world.disk(node);
        let keyed: Rc<RefCell<Keyed>> = Rc::default();
        let (own_reactor, own) = (reactor.clone(), keyed.clone());
        let rules = rules(&mut Dice(seed));
        run(&world, &reactor, async move {
            let (_data, _env, log) = open(own_reactor.clone(), small(), seeded(seed)).await;
            filled(&log, &own, &mut Dice(seed), &own_reactor).await;
            for base in bases_of(&disk, ".txnindex") {
                let at = path(base, ".txnindex");
                let mut bytes = disk.contents(&at).unwrap();
                for entry in bytes.chunks_mut(ENTRY_BYTES) {
                    // As if everything of the first producer's had been aborted.
                    entry[2..18].copy_from_slice(&[1_i64.to_be_bytes(), 0_i64.to_be_bytes()].concat());
                }
                assert!(disk.put(&at, &bytes));
            }
            let _ = compact(&log, &rules).await.unwrap();
            let committed = own.borrow().committed(log.log_end().0);
            let newest: BTreeMap<u64, i64> = committed.iter().map(|(offset, key)| (*key, *offset)).collect();
            let all = read_all(&log, log.log_start(), 10_000).await;
            let there: BTreeSet<i64> = Batches::new(&all)
                .map(Result::unwrap)
                .flat_map(|b| Records::new(&b.header, b.payload()).map(|r| r.unwrap().offset.0).collect::<Vec<_>>())
                .collect();
            for (key, offset) in newest {
                assert!(there.contains(&offset), "seed {seed}: record {offset}, the newest of key {key}, is gone");
            }
        });
    }
}
