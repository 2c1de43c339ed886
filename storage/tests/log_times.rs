//! Offsets by time, when a power cut or a failure fell into the writing of the indexes.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod log_common;

use corelog_reactor::sim::{DiskFault, DiskOpKind, SimWorld};
use corelog_reactor::{Reactor, ReactorLimits};
use corelog_storage::batch::{BatchBuilder, HEADER_BYTES, TargetCodec};
use corelog_storage::ids::{Offset, Timestamp};
use corelog_storage::log::{Log, LogConfig, StorageOptions};
use log_common::*;
use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

/// The time of the record at an offset: in no order, the latest among the first.
fn time(offset: i64) -> Timestamp {
    Timestamp(4_000_000_000_000 + offset * 37 % 50 - offset / 10)
}

/// The same with the latest ones coming all along.
fn rising_time(offset: i64) -> Timestamp {
    Timestamp(4_000_000_000_000 + offset * 37 % 50 + offset / 2)
}

const fn always_later(offset: i64) -> Timestamp {
    Timestamp(4_000_000_000_000 + offset)
}

/// What fails from some moment on.
#[derive(Clone, Copy)]
enum Failing {
    Nothing,
    /// To put a file with such a name in its place.
    Rename(&'static str),
    /// To sync a log's folder.
    SyncFolder,
}

/// How the records are written.
struct Writing {
    time: fn(i64) -> Timestamp,
    config: LogConfig,
    /// Between two records.
    pause: Duration,
}

impl Writing {
    fn at_once(time: fn(i64) -> Timestamp) -> Self {
        let config = LogConfig { index_interval_bytes: 512, ..LogConfig::default() };
        Self { time, config, pause: Duration::ZERO }
    }
}

/// Writes records until a moment that the seed decides, cuts the power and looks for each record's time.
fn write_cut_and_look(seed: u64, writing: Writing, failing: Failing) {
    let Writing { time, config, pause } = writing;
    let world = SimWorld::new(seed);
    let node = world.add_node();
    let limits = || ReactorLimits { pool_bytes_max: 64 << 20, ..ReactorLimits::default() };
    let options = || StorageOptions {
        recovery_point_bytes_max: 4 << 10,
        checkpoint_interval: Duration::from_millis(1),
        ..StorageOptions::default()
    };
    let writer = world.reactor(node, limits());
    let own = writer.clone();
    let written = Rc::new(Cell::new(0));
    let count = Rc::clone(&written);
    let is_over = Rc::new(Cell::new(false));
    let over = Rc::clone(&is_over);
    let config_again = config.clone();
    let write = async move {
        let (_data, env) = storage(&own, Path::new("/data"), options()).await;
        let log = Log::open_or_create(&env, name(), config).await.unwrap();
        lead(&log).await;
        // Until a failure fences it, if there is one.
        for offset in 0.. {
            let mut builder = BatchBuilder::new(TargetCodec::None);
            builder.append(time(offset), None, Some(&[0; 700]), &[]);
            if append(&log, &builder.build().unwrap()).is_err() {
                break;
            }
            while log.needs_commit() {
                let _ = log.commit().await;
            }
            own.sleep(pause).await;
            count.set(offset + 1);
        }
        over.set(true);
    };
    writer.spawn(write).unwrap();
    let enough = 40 + seed as i64 % 50;
    if !matches!(failing, Failing::Nothing) {
        world.run_until(|| written.get() > enough - 10).unwrap();
        world.disk(node).set_fault(move |op| {
            let named = |part| op.path.to_str().is_some_and(|path| path.contains(part));
            let fails = match failing {
                Failing::Nothing => false,
                Failing::Rename(part) => op.kind == DiskOpKind::Rename && named(part),
                Failing::SyncFolder => op.kind == DiskOpKind::SyncFolder && named("/data/"),
            };
            fails.then_some(DiskFault::Errno(libc::EIO))
        });
    }
    world.run_until(|| written.get() > enough || is_over.get()).unwrap();
    for _ in 0..seed % 37 {
        world.step();
    }
    world.disk(node).clear_fault();
    world.crash(node);
    let reader = Reactor::new(world.driver(node), limits());
    reader.block_on(async {
        let (_data, env) = storage(&reader, Path::new("/data"), options()).await;
        let log = Log::open(&env, name(), config_again).await.unwrap();
        let end = log.log_end().0;
        assert!(end > 20, "seed {seed}: {end} records are too few to show anything");
        for wanted in 0..end {
            let found = log.offset_for_timestamp(time(wanted), Offset(end)).await.unwrap();
            let first = (0..end).find(|offset| time(*offset) >= time(wanted)).unwrap();
            assert_eq!(found.map(|found| found.offset.0), Some(first), "seed {seed}, of {end} at {wanted}");
        }
    });
}

/// Simulated seeds 40480 and 60289: the index file was emptied first and then written, and what was left of it was believed.
#[test]
fn the_first_record_of_a_time_is_found_after_a_power_cut_at_any_moment() {
    (0..200).for_each(|seed| write_cut_and_look(seed, Writing::at_once(time), Failing::Nothing));
}

/// Whichever of the two is the older one. (It holds with either order of replacing them: recovery resumes at its recovery point.)
#[test]
fn the_first_record_of_a_time_is_found_after_one_of_the_two_indexes_could_not_be_replaced() {
    for seed in 0..100 {
        write_cut_and_look(seed, Writing::at_once(rising_time), Failing::Rename(".timeindex"));
        write_cut_and_look(seed, Writing::at_once(rising_time), Failing::Rename(".index"));
    }
}

/// Simulated seed 71349: a recovery point at a segment's very end counted as the proof that the segment was sealed. Sealing
/// had trimmed the segment, and failed before its folder was synced: the time index was the one that had been written with
/// the recovery point.
#[test]
fn the_first_record_of_a_time_is_found_when_the_recovery_point_lies_at_the_end_of_an_unsealed_segment() {
    for seed in 0..200 {
        // A recovery point is due behind every sixth batch, an index entry behind every sixth but the first of a segment.
        let segment_bytes_max = 12 * (HEADER_BYTES as u32 + 720);
        let config = LogConfig { segment_bytes_max, ..LogConfig::default() };
        let writing = Writing { time: always_later, config, pause: Duration::from_millis(5) };
        write_cut_and_look(seed, writing, Failing::SyncFolder);
    }
}
