//! Compaction of a log, on the simulated disk: what a round leaves, what can be read of it, what a start makes of it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod log_common;
mod log_compacted;
mod log_model;

use corelog_reactor::Reactor;
use corelog_reactor::sim::{DiskOpKind, SimWorld};
use corelog_storage::batch::{BatchBuilder, Batches, TargetCodec};
use corelog_storage::compact::GroupLimits;
use corelog_storage::ids::{Offset, ProducerId, Timestamp};
use corelog_storage::log::{
    AppendError, CommitLogUse, CompactionError, CompactionRules, Damage, FenceReason, LogConfig, ReadOutcome,
    StorageOptions,
};
use log_common::*;
use log_compacted::*;
use log_model::{Dice, run};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

#[test]
fn a_round_leaves_the_newest_record_of_each_key_and_the_log_goes_on() {
    let world = SimWorld::new(1);
    let node = world.add_node();
    let reactor = reactor_of(&world, node);
    let own = reactor.clone();
    let _kept = run(&world, &reactor, async move {
        let later = LogConfig { file_delete_delay_ms: 60_000, ..config(16 << 10) };
        let (kept, log, model, mut dice) = filled(&own, Dice(1), later, 9, 30).await;
        let before = (log.log_end(), log.status().bytes);
        let done = compact(&log, &rules()).await.unwrap().expect("a round");
        assert_eq!(done.segments, (8, 1));
        assert_eq!(log.status().segments, 2);
        assert!(log.status().bytes < before.1 / 2, "{:?} after {before:?}", log.status());
        assert_eq!(Some(done.clean_to), log.clean_to());
        assert_eq!(log.log_end(), before.0);
        let all = read_all(&log, Offset(0), 10_000).await;
        model.borrow_mut().check(&log, &all).unwrap();
        let dirty = records(&all).iter().filter(|(offset, ..)| *offset < done.clean_to.0).count();
        assert!(dirty <= 30, "{dirty} records of 30 keys");
        // Nothing is left to do, and doing it all the same changes nothing.
        assert!(compact(&log, &rules()).await.unwrap().is_none());
        // From any offset, also one that is gone, the next batch comes.
        for from in 0..log.log_end().0 {
            let piece = match log.read(Offset(from), log.log_end(), 100, true).unwrap() {
                ReadOutcome::Hot(hot) => hot.slices.iter().flat_map(|s| s.to_vec()).collect::<Vec<u8>>(),
                ReadOutcome::Cold(plan) => log.read_cold(plan).await.unwrap().expect("bytes").to_vec(),
                ReadOutcome::Empty => panic!("nothing at {from}"),
            };
            let (_, last) = offsets(&piece)[0];
            let expected = offsets(&all).into_iter().find(|(_, last)| *last >= from).unwrap();
            assert_eq!(last, expected.1, "read from {from}");
        }
        // Times are found, too.
        let (offset, ..) = records(&all)[3];
        let found = log.offset_for_timestamp(Timestamp(TIME + offset), log.log_end()).await.unwrap().unwrap();
        assert_eq!(found.offset, Offset(offset));
        fill(&own, &log, &model, &mut dice, 5, 30).await;
        let done = compact(&log, &rules()).await.unwrap().expect("another round");
        assert_eq!(done.segments, (4, 1), "the compacted segment and the three behind it become one");
        let all = read_all(&log, Offset(0), 10_000).await;
        model.borrow_mut().check(&log, &all).unwrap();
        (kept, log)
    });
    // The replaced files go a while later.
    assert!(files(&reactor).iter().any(|name| name.ends_with(".deleted")));
    world.run_for(Duration::from_secs(70));
    let left = files(&reactor);
    assert!(
        left.iter().all(|n| !n.ends_with(".deleted") && !n.ends_with(".cleaned") && !n.ends_with(".swap")),
        "{left:?}"
    );
    assert_eq!(left.iter().filter(|n| n.ends_with(".log")).count(), 2, "{left:?}");
    assert_eq!(left.iter().filter(|n| n.ends_with(".index")).count(), 1, "{left:?}");
}

#[test]
fn a_compacted_log_opens_again_with_and_without_its_indexes_and_snapshots() {
    for what in ["", ".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint", "all"] {
        let world = SimWorld::new(2);
        let node = world.add_node();
        let reactor = reactor_of(&world, node);
        let own = reactor.clone();
        let model = run(&world, &reactor, async move {
            let (_kept, log, model, mut dice) = filled(&own, Dice(2), config(16 << 10), 9, 30).await;
            compact(&log, &rules()).await.unwrap().expect("a round");
            fill(&own, &log, &model, &mut dice, 4, 30).await;
            model
        });
        world.crash(node);
        let reactor = reactor_of(&world, node);
        let own = (reactor.clone(), model.clone());
        run(&world, &reactor, async move {
            let (reactor, model) = own;
            for entry in reactor.list_dir(Path::new("/data/orders-0")).unwrap() {
                let name = entry.name.to_str().unwrap();
                let goes = match what {
                    "" => false,
                    "all" => !name.ends_with(".log") && name != "partition.metadata",
                    suffix => name.ends_with(suffix),
                };
                if goes {
                    reactor.unlink(&Path::new("/data/orders-0").join(name)).await.unwrap();
                }
            }
            let (_data, _env, log) = open(reactor.clone(), config(16 << 10), options(&mut Dice(2))).await;
            let all = read_all(&log, log.log_start(), 10_000).await;
            model.borrow_mut().check(&log, &all).unwrap_or_else(|error| panic!("without {what:?}: {error}"));
            let sequence = model.borrow().sequence - 1;
            let last = log.producers(|p| p.get(ProducerId(PRODUCER)).map(|p| p.last_sequence().0));
            assert_eq!(last, Some(sequence), "without {what:?}");
            lead(&log).await;
            let mut dice = Dice(5);
            assert!(model.borrow_mut().append(&log, &mut dice, 3, 30));
            commit_all(&log).await;
            reactor.sleep(Duration::from_millis(100)).await;
            compact(&log, &rules()).await.unwrap().expect("a round");
            let all = read_all(&log, log.log_start(), 10_000).await;
            model.borrow_mut().check(&log, &all).unwrap();
        });
    }
}

#[test]
fn a_truncation_to_within_what_was_compacted_cuts_behind_the_last_batch_before_it() {
    for offset in (1..120).step_by(7) {
        let world = SimWorld::new(6);
        let node = world.add_node();
        let reactor = reactor_of(&world, node);
        let own = reactor.clone();
        let expected = run(&world, &reactor, async move {
            let (_kept, log, ..) = filled(&own, Dice(6), config(8 << 10), 9, 30).await;
            compact(&log, &rules()).await.unwrap().expect("a round");
            let all = read_all(&log, Offset(0), 10_000).await;
            let before: Vec<_> = offsets(&all).into_iter().take_while(|(_, last)| *last < offset).collect();
            let end = log.truncate_to(Offset(offset)).await.unwrap();
            assert_eq!(end.0, before.last().map_or(0, |(_, last)| last + 1), "truncated to {offset}");
            assert!(log.clean_to().unwrap() <= end);
            lead(&log).await;
            assert_eq!(append(&log, &batch(2, 10, 1)).unwrap().base_offset, end);
            commit_all(&log).await;
            let all = read_all(&log, Offset(0), 10_000).await;
            assert_eq!(offsets(&all), [&before[..], &[(end.0, end.0 + 1)]].concat());
            offsets(&all)
        });
        world.crash(node);
        let reactor = reactor_of(&world, node);
        let own = reactor.clone();
        run(&world, &reactor, async move {
            let (_data, _env, log) = open(own, config(8 << 10), options(&mut Dice(6))).await;
            assert_eq!(log.fenced(), None, "truncated to {offset}");
            assert_eq!(offsets(&read_all(&log, Offset(0), 10_000).await), expected);
        });
    }
}

fn segment(base: i64) -> PathBuf {
    PathBuf::from(format!("/data/orders-0/{base:020}.log"))
}

/// Opens a log with one compacted segment, after `change` has changed its files.
fn opened_after(change: impl AsyncFn(&Reactor, i64) + 'static) -> Option<FenceReason> {
    // The commit log would have what is changed here.
    let sole = StorageOptions { commit_log: CommitLogUse::Never, ..options(&mut Dice(3)) };
    let first = sole.clone();
    let world = SimWorld::new(3);
    let node = world.add_node();
    let model: Rc<RefCell<Model>> = Rc::default();
    let reactor = reactor_of(&world, node);
    let own = reactor.clone();
    let active = run(&world, &reactor, async move {
        let mut dice = Dice(3);
        let (_data, _env, log) = open(own.clone(), config(16 << 10), first).await;
        lead(&log).await;
        fill(&own, &log, &model, &mut dice, 6, 30).await;
        let done = compact(&log, &rules()).await.unwrap().expect("a round");
        for _ in 0..3 {
            assert!(model.borrow_mut().append(&log, &mut dice, 2, 30));
            commit_all(&log).await;
        }
        own.sleep(Duration::from_millis(100)).await;
        done.clean_to.0
    });
    world.crash(node);
    let reactor = reactor_of(&world, node);
    let own = reactor.clone();
    run(&world, &reactor, async move {
        change(&own, active).await;
        let (_data, _env, log) = open(own.clone(), config(16 << 10), sole).await;
        log.fenced()
    })
}

#[test]
fn a_compacted_segment_that_lost_its_end_is_rot_and_so_is_a_hole_behind_what_was_compacted() {
    assert_eq!(opened_after(async |_, _| ()), None);
    let shortened = opened_after(async |reactor, _| {
        let file = reactor.open(&segment(0), corelog_reactor::OpenHow::write()).await.unwrap();
        let bytes = file.len().unwrap() as usize;
        let (read, all) = file.read_at(vec![0; bytes], 0).await;
        assert_eq!(read.unwrap(), bytes);
        let last = Batches::new(&all).last().unwrap().unwrap();
        file.truncate(last.position as u64).await.unwrap();
    });
    assert!(matches!(shortened, Some(FenceReason::Rot { fault: Damage::End { .. }, .. })), "{shortened:?}");
    let missing = opened_after(async |reactor, active| {
        let file = reactor.open(&segment(active), corelog_reactor::OpenHow::write()).await.unwrap();
        let bytes = file.len().unwrap() as usize;
        let (read, all) = file.read_at(vec![0; bytes], 0).await;
        assert_eq!(read.unwrap(), bytes);
        let second = Batches::new(&all).nth(1).unwrap().unwrap().position;
        let mut moved = all[second..].to_vec();
        moved.resize(bytes, 0);
        let (written, _) = file.write_at(moved, 0, corelog_reactor::Durability::Dsync).await;
        assert_eq!(written.unwrap(), bytes);
    });
    assert!(matches!(missing, Some(FenceReason::Rot { .. })), "{missing:?}");
}

#[test]
fn a_round_that_reads_a_damaged_batch_writes_nothing_anew() {
    let world = SimWorld::new(4);
    let node = world.add_node();
    let reactor = reactor_of(&world, node);
    let own = reactor.clone();
    run(&world, &reactor, async move {
        let (_kept, log, ..) = filled(&own, Dice(4), config(16 << 10), 4, 30).await;
        let file = own.open(&segment(0), corelog_reactor::OpenHow::write()).await.unwrap();
        let (read, byte) = file.read_at(vec![0; 1], 900).await;
        read.unwrap();
        let (written, _) = file.write_at(vec![byte[0] ^ 1], 900, corelog_reactor::Durability::Dsync).await;
        written.unwrap();
        let error = compact(&log, &rules()).await.unwrap_err();
        assert!(matches!(error, CompactionError::Damaged { segment: Offset(0), .. }), "{error}");
        assert!(error.is_lasting());
        assert_eq!((log.status().segments, log.clean_to(), log.fenced()), (4, None, None));
        let left = own.list_dir(Path::new("/data/orders-0")).unwrap();
        assert!(left.iter().all(|e| !e.name.to_str().unwrap().ends_with(".cleaned")));
    });
}

#[test]
fn a_big_file_of_a_replaced_segment_gets_shorter_step_by_step_also_before_the_next_one_takes_its_name() {
    let world = SimWorld::new(9);
    let node = world.add_node();
    let reactor = reactor_of(&world, node);
    let own = reactor.clone();
    let steps = Rc::new(Cell::new(0));
    let (counted, seen) = (steps.clone(), steps.clone());
    let disk = world.disk(node);
    let keep = run(&world, &reactor, async move {
        let roomy = LogConfig { segment_bytes_max: 20 << 20, file_delete_delay_ms: 60_000, ..LogConfig::default() };
        let (data, env, log) = open(own.clone(), roomy, options(&mut Dice(9))).await;
        lead(&log).await;
        let pour = async |count: u64, keys: u64| {
            for n in 0..count {
                let mut builder = BatchBuilder::new(TargetCodec::None);
                builder.append(Timestamp(TIME), Some(&(n % keys).to_be_bytes()), Some(&[1; 1_000_000]), &[]);
                append(&log, &builder.build().unwrap()).unwrap();
                commit_all(&log).await;
            }
            own.sleep(Duration::from_secs(1)).await;
        };
        pour(23, 16).await;
        disk.set_fault(move |op| {
            let shrinks = op.kind == DiskOpKind::Truncate && op.path.to_string_lossy().ends_with(".deleted");
            counted.set(counted.get() + u32::from(shrinks));
            None
        });
        let done = compact(&log, &rules()).await.unwrap().expect("a round");
        assert_eq!((done.segments, seen.get()), ((1, 1), 0), "nothing goes before its delay");
        // The same segment again, long before that.
        pour(23, 16).await;
        let done = compact(&log, &rules()).await.unwrap().expect("another round");
        assert!(done.segments.0 > 1, "{done:?}");
        assert_eq!(seen.get(), 1, "20 MB in steps of 16 MiB, before the name goes to another file");
        (data, env, log)
    });
    world.run_for(Duration::from_secs(120));
    assert!(files(&reactor).iter().all(|name| !name.ends_with(".deleted")), "{:?}", files(&reactor));
    assert!(steps.get() >= 2, "{} steps", steps.get());
    assert!(keep.1.counters().segments_removed >= 3);
}

#[test]
fn a_follower_of_a_compacted_log_has_its_records_and_no_gaps_also_after_a_power_cut() {
    let world = SimWorld::new(10);
    let (leader, follower) = (world.add_node(), world.add_node());
    let reactor = reactor_of(&world, leader);
    let own = reactor.clone();
    let (bytes, end) = run(&world, &reactor, async move {
        let (_kept, log, ..) = filled(&own, Dice(10), config(16 << 10), 9, 30).await;
        compact(&log, &rules()).await.unwrap().expect("a round");
        (read_all(&log, Offset(0), 10_000).await, log.log_end())
    });
    let reactor = reactor_of(&world, follower);
    let own = reactor.clone();
    let all = bytes.clone();
    run(&world, &reactor, async move {
        let (_data, _env, log) = open(own.clone(), config(16 << 10), options(&mut Dice(11))).await;
        let refused = log.append_as_follower(&all, Timestamp(TIME)).unwrap_err();
        assert!(matches!(refused, AppendError::NotNext(_)), "{refused}");
        for batch in Batches::new(&all[log_bytes(&all, log.log_end())..]) {
            log.append_as_follower_of_compacted(batch.unwrap().bytes, Timestamp(TIME)).unwrap();
            commit_all(&log).await;
        }
        assert_eq!(log.log_end(), end);
        // What went back is no gap.
        let first = Batches::new(&all).next().unwrap().unwrap();
        assert!(log.append_as_follower_of_compacted(first.bytes, Timestamp(TIME)).is_err());
    });
    world.crash(follower);
    let reactor = reactor_of(&world, follower);
    let own = reactor.clone();
    run(&world, &reactor, async move {
        let (_data, _env, log) = open(own.clone(), config(16 << 10), options(&mut Dice(11))).await;
        assert_eq!((log.fenced(), log.log_end()), (None, end));
        let found = read_all(&log, Offset(0), 10_000).await;
        assert_eq!(records(&found), records(&bytes));
        let mut next = 0;
        for (base, last) in offsets(&found) {
            assert_eq!(base, next, "a gap");
            next = last + 1;
        }
        own.sleep(Duration::from_millis(100)).await;
        compact(&log, &rules()).await.unwrap().expect("a round");
        let found = read_all(&log, Offset(0), 10_000).await;
        let newest = |all: &[u8]| -> BTreeMap<u64, _> { records(all).into_iter().map(|r| (r.1, (r.0, r.2))).collect() };
        assert_eq!(newest(&found), newest(&bytes));
    });
}

#[test]
fn a_gap_of_more_offsets_than_compaction_leaves_out_is_refused_and_appends_nothing() {
    let world = SimWorld::new(10);
    let node = world.add_node();
    let reactor = reactor_of(&world, node);
    let own = reactor.clone();
    run(&world, &reactor, async move {
        let (_data, _env, log) = open(own.clone(), config(16 << 10), options(&mut Dice(11))).await;
        let batch_at = |offset: i64| {
            let mut builder = BatchBuilder::new(TargetCodec::None);
            builder.append(Timestamp(TIME), Some(&[1]), Some(&[1]), &[]);
            let mut bytes = builder.build().unwrap();
            bytes[..8].copy_from_slice(&offset.to_be_bytes());
            bytes[12..16].copy_from_slice(&3_i32.to_be_bytes());
            bytes
        };
        for far in [i64::MAX, i64::MAX - 1, 1 << 50] {
            let refused = log.append_as_follower_of_compacted(&batch_at(far), Timestamp(TIME)).unwrap_err();
            assert!(matches!(refused, AppendError::NotNext(_)), "{refused}");
            assert_eq!(log.log_end(), Offset(0));
        }
        // Two batches without records: one can't have as many offsets, and a segment neither.
        let near = (1 << 31) + 100;
        log.append_as_follower_of_compacted(&batch_at(near), Timestamp(TIME)).unwrap();
        commit_all(&log).await;
        assert_eq!(log.log_end(), Offset(near + 1));
    });
    world.crash(node);
    let reactor = reactor_of(&world, node);
    let own = reactor.clone();
    run(&world, &reactor, async move {
        let (_data, _env, log) = open(own.clone(), config(16 << 10), options(&mut Dice(11))).await;
        assert_eq!((log.fenced(), log.log_end()), (None, Offset((1 << 31) + 101)));
    });
}

#[test]
fn a_segment_that_two_readers_opened_at_once_is_read_as_it_is_after_it_was_compacted() {
    let world = SimWorld::new(14);
    let node = world.add_node();
    let reactor = reactor_of(&world, node);
    let own = reactor.clone();
    run(&world, &reactor, async move {
        let (_kept, log, model, _) = filled(&own, Dice(14), config(8 << 10), 6, 40).await;
        let read = Rc::new(Cell::new(0));
        for _ in 0..2 {
            let (log, read) = (log.clone(), read.clone());
            let task = async move {
                drop(read_all(&log, Offset(0), 3_000).await);
                read.set(read.get() + 1);
            };
            own.spawn(task).expect("a task");
        }
        while read.get() < 2 {
            own.sleep(Duration::from_millis(1)).await;
        }
        compact(&log, &CompactionRules { limits: GroupLimits { bytes: 1, index_bytes: 1 << 20 }, ..rules() })
            .await
            .unwrap()
            .expect("a round");
        let all = read_all(&log, Offset(0), 3_000).await;
        model.borrow_mut().check(&log, &all).unwrap();
    });
}

#[test]
fn a_cleaned_segment_is_synced_in_slices_while_it_is_written() {
    let world = SimWorld::new(13);
    let node = world.add_node();
    let reactor = reactor_of(&world, node);
    let own = reactor.clone();
    let disk = world.disk(node);
    let slices: Rc<RefCell<Vec<usize>>> = Rc::new(RefCell::new(vec![0]));
    let noted = slices.clone();
    run(&world, &reactor, async move {
        let roomy = LogConfig { segment_bytes_max: 20 << 20, ..LogConfig::default() };
        let (_data, _env, log) = open(own.clone(), roomy, options(&mut Dice(13))).await;
        lead(&log).await;
        for n in 0..23_u64 {
            let mut builder = BatchBuilder::new(TargetCodec::None);
            builder.append(Timestamp(TIME), Some(&(n % 16).to_be_bytes()), Some(&[1; 1_000_000]), &[]);
            append(&log, &builder.build().unwrap()).unwrap();
            commit_all(&log).await;
        }
        own.sleep(Duration::from_secs(1)).await;
        disk.set_fault(move |op| {
            if op.path.to_string_lossy().ends_with(".log.cleaned") {
                match op.kind {
                    DiskOpKind::Write | DiskOpKind::DurableWrite => {
                        *noted.borrow_mut().last_mut().unwrap() += op.len as usize
                    }
                    DiskOpKind::Sync => noted.borrow_mut().push(0),
                    _ => {}
                }
            }
            None
        });
        compact(&log, &rules()).await.unwrap().expect("a round");
    });
    let slices = slices.take();
    assert!(slices.iter().sum::<usize>() > 14_000_000, "{slices:?}");
    assert!(slices.iter().all(|bytes| *bytes <= 5 << 20), "{slices:?} bytes between syncs");
}

/// Where in `bytes` the batch with this offset starts.
fn log_bytes(bytes: &[u8], offset: Offset) -> usize {
    let found = Batches::new(bytes).map(Result::unwrap).find(|batch| batch.header.base_offset >= offset);
    found.map_or(bytes.len(), |batch| batch.position)
}
