//! Offsets by time, when a power cut or a failure fell into the writing of the indexes.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod log_common;

use corelog_reactor::sim::{DiskFault, DiskOpKind, SimWorld};
use corelog_reactor::{Reactor, ReactorLimits};
use corelog_storage::batch::{BatchBuilder, TargetCodec};
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

/// Writes records until a moment that the seed decides, cuts the power and looks for each record's time. From some moment on
/// no file whose name ends with `failing` is put in its place.
fn write_cut_and_look(seed: u64, time: fn(i64) -> Timestamp, failing: Option<&'static str>) {
    let world = SimWorld::new(seed);
    let node = world.add_node();
    let limits = || ReactorLimits { pool_bytes_max: 64 << 20, ..ReactorLimits::default() };
    let options = || StorageOptions {
        recovery_point_bytes_max: 4 << 10,
        checkpoint_interval: Duration::from_millis(1),
        ..StorageOptions::default()
    };
    let config = || LogConfig { index_interval_bytes: 512, ..LogConfig::default() };
    let writer = world.reactor(node, limits());
    let own = writer.clone();
    let written = Rc::new(Cell::new(0));
    let count = Rc::clone(&written);
    let is_over = Rc::new(Cell::new(false));
    let over = Rc::clone(&is_over);
    let write = async move {
        let (_data, env) = storage(&own, Path::new("/data"), options()).await;
        let log = Log::open_or_create(&env, name(), config()).await.unwrap();
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
            count.set(offset + 1);
        }
        over.set(true);
    };
    writer.spawn(write).unwrap();
    let enough = 40 + seed as i64 % 50;
    if let Some(suffix) = failing {
        world.run_until(|| written.get() > enough - 10).unwrap();
        let fails = move |path: &Path| path.to_str().is_some_and(|path| path.contains(suffix));
        let is_hit = move |kind| kind == DiskOpKind::Rename;
        world
            .disk(node)
            .set_fault(move |op| (is_hit(op.kind) && fails(&op.path)).then_some(DiskFault::Errno(libc::EIO)));
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
        let log = Log::open(&env, name(), config()).await.unwrap();
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
    (0..200).for_each(|seed| write_cut_and_look(seed, time, None));
}

/// Whichever of the two is the older one. (It holds with either order of replacing them: recovery resumes at its recovery point.)
#[test]
fn the_first_record_of_a_time_is_found_after_one_of_the_two_indexes_could_not_be_replaced() {
    for seed in 0..100 {
        write_cut_and_look(seed, rising_time, Some(".timeindex"));
        write_cut_and_look(seed, rising_time, Some(".index"));
    }
}
