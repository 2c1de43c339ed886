//! The files of the index of aborted transactions: what a round of compaction and a truncation make of them, and what is in memory without them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod log_common;
mod log_compacted;
mod log_model;
mod log_txn;

use corelog_storage::ids::Offset;
use corelog_storage::log::{Log, LogConfig};
use log_common::*;
use log_compacted::{compact, rules};
use log_model::Dice;
use log_txn::*;
use std::time::Duration;

fn small() -> LogConfig {
    log_compacted::config(4 << 10)
}

async fn all_aborted(log: &Log) -> Vec<corelog_storage::log::AbortedTxn> {
    log.aborted_transactions(log.log_start(), log.log_end(), 1_000).await.unwrap().unwrap()
}

#[test]
fn entries_of_several_segments_that_become_one_are_in_its_file_in_their_order() {
    let mut bench = bench(1);
    let mut history = History::default();
    bench.reactor.block_on(async {
        let (_data, _env, log) = bench.open(small()).await;
        lead(&log).await;
        // Each producer has one aborted transaction, whose header stays; one lasts over a segment's end.
        history.keyed(&log, 99, 1, 1, 100);
        for producer in 1.. {
            history.keyed(&log, producer, 1, 1, 500);
            history.marker(&log, producer, true);
            commit_all(&log).await;
            if log.status().segments == 4 {
                break;
            }
            if log.status().segments == 2 && history.aborted().iter().all(|entry| entry.producer_id.0 != 99) {
                history.marker(&log, 99, true);
            }
        }
        bench.reactor.sleep(Duration::from_millis(50)).await;
        let sealed = segments(&bench.disk(), history.end());
        assert_eq!(bases_of(&bench.disk(), ".txnindex").len(), sealed.len() - 1, "one for each sealed segment");
        let (last, expected) = (sealed.last().unwrap().0, history.aborted());
        compact(&log, &rules()).await.unwrap().expect("a round");
        assert_eq!(bases_of(&bench.disk(), ".log"), [0, last], "one segment of three");
        assert_eq!(bench.disk().contents(&path(0, ".txnindex")).unwrap(), history.index(0, last));
        assert_eq!(all_aborted(&log).await, expected);
    });
    bench.cut_power();
    bench.reactor.block_on(async {
        let (_data, _env, log) = bench.open(small()).await;
        history.cut(log.log_end().0);
        assert_eq!(all_aborted(&log).await, history.aborted());
    });
}

/// Several segments with aborted transactions, closed.
async fn several(bench: &Bench, history: &mut History) {
    let (_data, _env, log) = bench.open(small()).await;
    lead(&log).await;
    let mut dice = Dice(5);
    while log.status().segments < 4 {
        assert!(history.step(&log, &mut dice));
        commit_all(&log).await;
    }
    log.close().await.unwrap();
}

#[test]
fn a_truncation_reads_a_damaged_index_anew_from_the_batches() {
    for damage in [0_usize, 1] {
        let mut bench = bench(4);
        let mut history = History { value_bytes_max: 100, ..History::default() };
        bench.reactor.block_on(several(&bench, &mut history));
        bench.kill();
        let disk = bench.disk();
        bench.reactor.block_on(async {
            let (_data, _env, log) = bench.open(small()).await;
            let (base, next) = segments(&disk, history.end())[1];
            let inside: Vec<_> =
                history.aborted().into_iter().filter(|entry| (base..next).contains(&entry.last_offset.0)).collect();
            assert!(inside.len() >= 2, "{} entries", inside.len());
            // It cuts the last of them off.
            let cut = inside.last().unwrap().last_offset;
            let whole = disk.contents(&path(base, ".txnindex")).unwrap();
            let damaged = if damage == 0 { whole[..20].to_vec() } else { vec![7; whole.len()] };
            assert!(disk.put(&path(base, ".txnindex"), &damaged));
            assert_eq!(log.truncate_to(cut).await.unwrap(), cut);
            history.cut(cut.0);
            check_found(&log, &history, &mut Dice(2), "truncated").await;
            check_files(&disk, &history, cut.0, true, "truncated");
        });
        bench.cut_power();
        bench.reactor.block_on(async {
            let (_data, _env, log) = bench.open(small()).await;
            check_found(&log, &history, &mut Dice(3), "after a power cut").await;
        });
    }
}

#[test]
fn what_is_in_memory_is_found_there_also_over_several_segments() {
    let bench = bench(3);
    bench.reactor.block_on(async {
        let (_data, _env, log) = bench.open(small()).await;
        lead(&log).await;
        let mut history = History::default();
        // Nothing is written meanwhile, so no entry has a file.
        for producer in 1.. {
            if log.status().segments == 3 {
                break;
            }
            assert!(history.data(&log, producer, 1, 500) && history.marker(&log, producer, true));
        }
        let all = history.aborted();
        assert!(all.len() > 10, "{} entries", all.len());
        assert_eq!(log.aborted_transactions_in_memory(Offset(0), log.log_end(), 1_000), Some(all.clone()));
        assert_eq!(log.aborted_transactions_in_memory(Offset(0), log.log_end(), all.len() - 1), None);
        commit_all(&log).await;
        bench.reactor.sleep(Duration::from_millis(50)).await;
        assert_eq!(log.aborted_transactions_in_memory(Offset(0), log.log_end(), 1_000), None, "some are in files");
        assert_eq!(all_aborted(&log).await, all);
    });
}
