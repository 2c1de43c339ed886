//! Transactions in a log that is compacted, on the simulated disk: what goes, what stays, where a round ends.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod log_common;
mod log_compacted;
mod log_model;

use corelog_reactor::sim::SimWorld;
use corelog_storage::batch::{AppendOrigin, BatchBuilder, BatchHeader, Batches, Records, TargetCodec};
use corelog_storage::ids::{Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};
use corelog_storage::log::{CompactionError, CompactionRules, LeaderBatch, Log};
use corelog_storage::producers::EndMarker;
use log_common::*;
use log_compacted::*;
use log_model::{Dice, run};
use std::time::Duration;

#[test]
fn aborted_records_go_and_delete_nothing_and_a_round_ends_before_what_is_undecided() {
    let world = SimWorld::new(8);
    let node = world.add_node();
    let reactor = reactor_of(&world, node);
    let own = reactor.clone();
    run(&world, &reactor, async move {
        let (_data, _env, log) = open(own.clone(), config(4 << 10), options(&mut Dice(8))).await;
        lead(&log).await;
        let filler = |log: &Log| {
            let mut builder = BatchBuilder::new(TargetCodec::None);
            let key = log.log_end().0.to_be_bytes();
            builder.append(Timestamp(TIME), Some(&key), Some(&[1; 3_000]), &[]);
            append(log, &builder.build().unwrap()).unwrap();
        };
        let committed = transactional(&log, 1, 0, b"committed");
        marker(&log, 1, false);
        filler(&log);
        let aborted = transactional(&log, 2, 0, b"aborted");
        marker(&log, 2, true);
        (0..4).for_each(|_| filler(&log));
        let open = transactional(&log, 3, 0, b"undecided");
        (0..4).for_each(|_| filler(&log));
        commit_all(&log).await;
        own.sleep(Duration::from_millis(100)).await;
        // The caller's limit would be the last stable offset. Even without it a round ends before the open transaction.
        let done = compact(&log, &rules()).await.unwrap().expect("a round");
        assert!(aborted < done.clean_to && done.clean_to <= open, "{done:?}, open since {open}");
        let all = read_all(&log, Offset(0), 10_000).await;
        assert_eq!(shared(&all), [committed, open]);
    });
}

#[test]
fn a_round_ends_before_it_keeps_more_transactions_than_it_may_and_the_next_ones_do_the_rest() {
    let world = SimWorld::new(12);
    let node = world.add_node();
    let reactor = reactor_of(&world, node);
    let own = reactor.clone();
    run(&world, &reactor, async move {
        let (_data, _env, log) = open(own.clone(), config(4 << 10), options(&mut Dice(12))).await;
        lead(&log).await;
        let committed = transactional(&log, 1, 0, b"committed");
        marker(&log, 1, false);
        let abort = |of: std::ops::Range<i32>| {
            for n in of {
                let producer = i64::from(2 + n % 3);
                transactional(&log, producer, n / 3, b"aborted");
                marker(&log, producer, true);
            }
        };
        abort(0..400);
        commit_all(&log).await;
        own.sleep(Duration::from_millis(100)).await;
        let few = CompactionRules { transactions_max: 60, ..rules() };
        let (mut rounds, mut clean_to) = (0, Offset(0));
        while let Some(done) = compact(&log, &few).await.unwrap() {
            assert!(done.clean_to >= clean_to, "{done:?} after {clean_to}");
            if done.clean_to == clean_to {
                // The next transaction's marker is in the active segment.
                break;
            }
            (rounds, clean_to) = (rounds + 1, done.clean_to);
        }
        assert!(rounds > 4 && clean_to.0 > 700, "{rounds} rounds, up to {clean_to}");
        let all = read_all(&log, Offset(0), 10_000).await;
        let found: Vec<Offset> = shared(&all).into_iter().filter(|offset| *offset < clean_to).collect();
        assert_eq!(found, [committed], "the aborted ones are gone up to {clean_to}");
        // More than a round may keep in one segment: it says so, and not again and again.
        abort(400..800);
        commit_all(&log).await;
        own.sleep(Duration::from_millis(100)).await;
        let none = CompactionRules { transactions_max: 5, ..rules() };
        let error = compact(&log, &none).await.unwrap_err();
        assert!(matches!(error, CompactionError::TooManyTransactions { max: 5, .. }) && error.is_lasting(), "{error}");
        assert_eq!(log.fenced(), None);
        assert_eq!(log.clean_to(), Some(clean_to));
    });
}

#[test]
fn headers_that_stay_of_aborted_transactions_do_not_count_against_a_round_and_their_markers_stay_with_them() {
    const PRODUCERS: i64 = 100;
    let world = SimWorld::new(15);
    let node = world.add_node();
    let reactor = reactor_of(&world, node);
    let own = reactor.clone();
    run(&world, &reactor, async move {
        let (_data, _env, log) = open(own.clone(), config(4 << 10), options(&mut Dice(15))).await;
        lead(&log).await;
        let more = async |filler: u64| {
            for n in 0..100 {
                let mut builder = BatchBuilder::new(TargetCodec::None);
                builder.append(Timestamp(TIME), Some(&(filler + n % 3).to_be_bytes()), Some(&[1; 100]), &[]);
                append(&log, &builder.build().unwrap()).unwrap();
            }
            commit_all(&log).await;
            own.sleep(Duration::from_millis(100)).await;
        };
        for producer in 1..=PRODUCERS {
            transactional(&log, producer, 0, b"aborted");
            marker(&log, producer, true);
        }
        more(0).await;
        let rules = CompactionRules { delete_retention_ms: 0, ..rules() };
        compact(&log, &rules).await.unwrap().expect("a round");
        // Each producer's last batch is there, as a header, behind it the marker; and neither is ever alone.
        for round in 1..4 {
            let all = read_all(&log, Offset(0), 10_000).await;
            let is_header = |header: &BatchHeader| header.has_producer_id() && header.record_count == 0;
            let headers: Vec<_> = Batches::new(&all).map(|batch| batch.unwrap().header).collect();
            let found = headers.iter().filter(|header| is_header(header)).count() as i64;
            let markers = headers.iter().filter(|h| h.attributes.is_control() && h.record_count == 1).count() as i64;
            assert_eq!((found, markers), (PRODUCERS, PRODUCERS), "before round {round}");
            more(10 * round).await;
            let few = CompactionRules { transactions_max: 5, ..rules };
            let candidate = log.compaction_candidate(&few, log.durable_end(), Timestamp(TIME)).await.unwrap().unwrap();
            let done = log.compact(&candidate, &few, &pace()).await.unwrap();
            assert_eq!(done.clean_to, candidate.end, "round {round} ends early");
        }
    });
}

/// A batch of a transaction, with one record of the key "shared". Its offset.
fn transactional(log: &Log, producer: i64, sequence: i32, value: &[u8]) -> Offset {
    let builder = BatchBuilder::new(TargetCodec::None).transactional();
    let mut builder = builder.producer(ProducerId(producer), ProducerEpoch(0), Sequence(sequence));
    builder.append(Timestamp(TIME), Some(b"shared"), Some(value), &[]);
    append(log, &builder.build().unwrap()).unwrap().base_offset
}

/// The end of a transaction.
fn marker(log: &Log, producer: i64, is_abort: bool) {
    let (key, value) = EndMarker { is_abort, coordinator_epoch: 0 }.encode();
    let builder = BatchBuilder::new(TargetCodec::None).transactional().control();
    let mut builder = builder.producer(ProducerId(producer), ProducerEpoch(0), Sequence::NONE);
    builder.append(Timestamp(TIME), Some(&key), Some(&value), &[]);
    let bytes = builder.build().unwrap();
    let batch = LeaderBatch::as_it_is(&bytes, AppendOrigin::Coordinator).unwrap();
    log.append_as_leader(batch, log.epoch(), Timestamp(TIME)).unwrap();
}

/// The offsets of the records with the key "shared".
fn shared(all: &[u8]) -> Vec<Offset> {
    let mut found = Vec::new();
    for batch in Batches::new(all).map(Result::unwrap).filter(|b| !b.header.attributes.is_control()) {
        for record in Records::new(&batch.header, batch.payload()).map(Result::unwrap) {
            if record.key == Some(b"shared") {
                found.push(record.offset);
            }
        }
    }
    found
}
