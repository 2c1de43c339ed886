//! Logs that are stopped cleanly, again and again: what is left in their folders.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod log_common;

use corelog_reactor::Reactor;
use corelog_storage::disk::files::write_synced;
use corelog_storage::ids::Offset;
use corelog_storage::log::{Log, LogConfig, StorageOptions};
use log_common::*;
use std::path::{Path, PathBuf};

const RECORDS: i32 = 4;

fn names(reactor: &Reactor, suffix: &str) -> Vec<i64> {
    let entries = reactor.list_dir(Path::new("/data/orders-0")).unwrap();
    let offset = |name: &str| name.strip_suffix(suffix)?.parse().ok();
    let mut found: Vec<i64> = entries.iter().filter_map(|e| offset(e.name.to_str()?)).collect();
    found.sort_unstable();
    found
}

fn path(offset: i64, suffix: &str) -> PathBuf {
    PathBuf::from(format!("/data/orders-0/{offset:020}{suffix}"))
}

/// One life of the log: opened, `batches` written, stopped. What the start has read and checked, and the log's end.
async fn life(reactor: &Reactor, config: &LogConfig, batches: i32) -> (u64, Offset) {
    let (_data, env) = storage(reactor, Path::new("/data"), StorageOptions::default()).await;
    let log = Log::open_or_create(&env, name(), config.clone()).await.unwrap();
    let read = env.recovered_bytes();
    lead(&log).await;
    for _ in 0..batches {
        let sequence = i32::try_from(log.log_end().0).unwrap();
        append(&log, &producer_batch(RECORDS, 300, 1, 42, sequence)).unwrap();
        commit_all(&log).await;
    }
    let end = log.log_end();
    log.close().await.unwrap();
    (read, end)
}

#[test]
fn each_clean_stop_leaves_the_snapshots_at_segments_bases_and_its_own() {
    let reactor = bench(1).reactor;
    reactor.block_on(async {
        let config = LogConfig { segment_bytes_max: 16 << 10, ..LogConfig::default() };
        let mut most = 0;
        for _ in 0..12 {
            let (_, end) = life(&reactor, &config, 3).await;
            let bases = names(&reactor, ".log");
            let mut expected: Vec<i64> = bases.into_iter().filter(|base| *base > 0).chain([end.0]).collect();
            expected.dedup();
            assert_eq!(names(&reactor, ".snapshot"), expected);
            most = most.max(expected.len());
        }
        assert!(most >= 3, "segments were rolled: {most}");
    });
}

#[test]
fn a_start_removes_snapshots_that_are_at_no_base_and_not_the_latest() {
    let reactor = bench(2).reactor;
    reactor.block_on(async {
        let (_, end) = life(&reactor, &LogConfig::default(), 3).await;
        // As versions before this one have left them, one for each stop.
        for stray in [RECORDS, RECORDS * 2] {
            write_synced(&reactor, &path(i64::from(stray), ".snapshot"), vec![1; 50]).await.unwrap();
        }
        let (_, same) = life(&reactor, &LogConfig::default(), 0).await;
        assert_eq!((same, names(&reactor, ".snapshot")), (end, vec![end.0]));
        let (_data, env) = storage(&reactor, Path::new("/data"), StorageOptions::default()).await;
        let log = Log::open(&env, name(), LogConfig::default()).await.unwrap();
        assert!(log.producers(|p| p.get(corelog_storage::ids::ProducerId(42)).is_some()));
    });
}

#[test]
fn a_damaged_index_of_a_log_that_was_stopped_is_read_from_its_batches_once() {
    for suffix in [".index", ".timeindex"] {
        for damage in ["garbage", "another batch", "missing"] {
            let reactor = bench(3).reactor;
            reactor.block_on(async {
                let config = LogConfig::default();
                life(&reactor, &config, 40).await;
                let (sound, _) = life(&reactor, &config, 0).await;
                assert!(sound < 10_000, "a sound one: {sound} bytes");
                match damage {
                    "missing" => reactor.unlink(&path(0, suffix)).await.unwrap(),
                    "garbage" => write_synced(&reactor, &path(0, suffix), vec![0xff; 21]).await.unwrap(),
                    // An entry in its place that names what is not there: an index of times has no such check.
                    _ if suffix == ".timeindex" => return,
                    _ => write_synced(&reactor, &path(0, suffix), vec![0, 0, 0, 1, 0, 0, 0, 2]).await.unwrap(),
                }
                let (read, _) = life(&reactor, &config, 0).await;
                assert!(read > 40_000, "{damage} {suffix}: {read} bytes are read");
                let (again, _) = life(&reactor, &config, 0).await;
                assert_eq!(again, sound, "{damage} {suffix}: written anew");
            });
        }
    }
}
