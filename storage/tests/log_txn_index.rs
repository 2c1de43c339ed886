//! Kafka's index of aborted transactions beside an imported log's segments, on the simulated disk: whatever ends a
//! truncation, a start or a round of compaction, and however often, no entry is left for an offset that another record
//! gets, and none goes whose marker stays.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod log_common;
mod log_compacted;
mod log_model;

use corelog_reactor::Reactor;
use corelog_reactor::sim::{NodeId, SimDisk, SimWorld};
use corelog_storage::compact::GroupLimits;
use corelog_storage::disk::datadir::DataDir;
use corelog_storage::ids::Offset;
use corelog_storage::log::{CompactionRules, Log, LogConfig, StorageEnv};
use log_common::*;
use log_compacted::*;
use log_model::{Dice, run};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

const FOLDER: &str = "/data/orders-0";
const ENTRY_BYTES: usize = 34;

/// The last offsets of entries, by the segment they are of.
type Entries = BTreeMap<i64, Vec<i64>>;

/// An entry as Kafka writes it: of one transaction with one record, right before its marker.
fn entry(last: i64) -> Vec<u8> {
    with_version(0, (last - 1).max(0), last)
}

fn with_version(version: i16, first: i64, last: i64) -> Vec<u8> {
    let numbers = [7, first, last, last + 1].map(i64::to_be_bytes).concat();
    [&version.to_be_bytes()[..], &numbers].concat()
}

fn index(lasts: impl IntoIterator<Item = i64>) -> Vec<u8> {
    lasts.into_iter().flat_map(entry).collect()
}

fn path(base: i64, suffix: &str) -> PathBuf {
    Path::new(FOLDER).join(format!("{base:020}{suffix}"))
}

fn bases_of(disk: &SimDisk, suffix: &str) -> Vec<i64> {
    let name = |path: &PathBuf| path.file_name()?.to_str()?.strip_suffix(suffix)?.parse().ok();
    disk.list(Path::new(FOLDER)).iter().filter_map(name).collect()
}

fn put(disk: &SimDisk, entries: &Entries) {
    for (base, lasts) in entries {
        assert!(disk.put(&path(*base, ".txnindex"), &index(lasts.iter().copied())));
    }
}

/// What there is, also of segments that are not there. No file is without an entry.
fn found(disk: &SimDisk) -> Entries {
    let read = |base: i64| {
        let bytes = disk.contents(&path(base, ".txnindex")).unwrap();
        assert!(!bytes.is_empty() && bytes.len().is_multiple_of(ENTRY_BYTES), "{} bytes at {base}", bytes.len());
        let lasts = bytes.chunks_exact(ENTRY_BYTES).map(|e| i64::from_be_bytes(e[18..26].try_into().unwrap()));
        (base, lasts.collect())
    };
    bases_of(disk, ".txnindex").into_iter().map(read).collect()
}

/// Those of `all` that stay in a log that ends at `end`.
fn below(all: &Entries, end: i64) -> Entries {
    let kept = |lasts: &Vec<i64>| lasts.iter().copied().filter(|last| *last < end).collect::<Vec<_>>();
    all.iter().map(|(base, lasts)| (*base, kept(lasts))).filter(|(_, lasts)| !lasts.is_empty()).collect()
}

/// Counts the disk's operations.
fn counted(disk: &SimDisk) -> Rc<Cell<u64>> {
    let count = Rc::new(Cell::new(0));
    let own = count.clone();
    disk.set_fault(move |_| {
        own.set(own.get() + 1);
        None
    });
    count
}

/// How a life of the broker ends.
#[derive(Clone, Copy, Debug)]
enum End {
    PowerCut,
    /// The kernel keeps what it was given, for now.
    Kill,
}

fn end_life(world: &SimWorld, node: NodeId, reactor: &Reactor, end: End) -> Reactor {
    match end {
        End::PowerCut => world.crash(node),
        End::Kill => world.stop(reactor),
    }
    world.disk(node).clear_fault();
    reactor_of(world, node)
}

/// Runs `work` until the disk's `step`th operation, or to its end. Returns whether it got that far.
fn until(
    world: &SimWorld,
    node: NodeId,
    reactor: &Reactor,
    step: u64,
    work: impl Future<Output = ()> + 'static,
) -> bool {
    let count = counted(&world.disk(node));
    let ended: Rc<Cell<bool>> = Rc::default();
    let end = ended.clone();
    let task = async move {
        work.await;
        end.set(true);
    };
    reactor.spawn(task).expect("a task");
    let seen = count.clone();
    world.run_until(move || ended.get() || seen.get() > step).expect("an end");
    count.get() > step
}

fn small() -> LogConfig {
    config(8 << 10)
}

type Kept = (DataDir, StorageEnv);

async fn reopened(reactor: Reactor, seed: u64) -> (Kept, Log) {
    let (data, env, log) = open(reactor, small(), options(&mut Dice(seed))).await;
    ((data, env), log)
}

fn reopen(world: &SimWorld, reactor: &Reactor, seed: u64) -> (Kept, Log) {
    run(world, reactor, reopened(reactor.clone(), seed))
}

/// A log of six segments; where they start, and its end behind these.
fn six_segments(world: &SimWorld, reactor: &Reactor, seed: u64) -> (Kept, Log, Vec<i64>) {
    let own = reactor.clone();
    let (kept, log, ..) = run(world, reactor, async move { filled(&own, Dice(seed), small(), 6, 40).await });
    let mut starts: Vec<i64> =
        files(reactor).iter().filter_map(|name| name.strip_suffix(".log")?.parse().ok()).collect();
    assert_eq!(starts.len(), 6);
    starts.push(log.log_end().0);
    (kept, log, starts)
}

/// The life after: the index is right, and stays so when other records get the offsets and the power goes. Returns the log's
/// end at the start.
fn next_lives(world: &SimWorld, node: NodeId, reactor: Reactor, seed: u64, all: &Entries, what: &str) -> i64 {
    let (kept, log) = reopen(world, &reactor, seed);
    assert_eq!(log.fenced(), None, "{what}");
    let end = log.log_end().0;
    assert_eq!(found(&world.disk(node)), below(all, end), "{what}: the log ends at {end}");
    let (own, to) = (log.clone(), all.values().flatten().max().unwrap() + 3);
    run(world, &reactor, async move {
        lead(&own).await;
        // A segment may begin where one began before, or none.
        let is_long = seed.is_multiple_of(3);
        loop {
            append(&own, &batch(10, 300, seed)).unwrap();
            commit_all(&own).await;
            if !is_long || own.log_end().0 > to {
                break;
            }
        }
    });
    drop((kept, log));
    let reactor = end_life(world, node, &reactor, End::PowerCut);
    let (_kept, log) = reopen(world, &reactor, seed);
    assert!(log.log_end().0 > end);
    assert_eq!(
        found(&world.disk(node)),
        below(all, end),
        "{what}: the log ended at {end}, and has other records since"
    );
    end
}

/// A truncation that ends at its `step`th operation; the start after it may end at one, too. Returns whether they got that
/// far, and whether the log was cut.
fn truncated(step: u64, end: End, start: Option<(u64, End)>, seed: u64) -> (bool, bool) {
    let what = format!("truncation {step} {end:?}, start {start:?}, seed {seed}");
    let world = SimWorld::new(seed ^ step << 8);
    let node = world.add_node();
    let reactor = reactor_of(&world, node);
    let (kept, log, starts) = six_segments(&world, &reactor, 3);
    let log_end = starts[6];
    // From the start of each segment, or from its middle on: then a cut may leave nothing.
    let all: Entries = starts
        .windows(2)
        .map(|s| (s[0], [s[0], (s[0] + s[1]) / 2][seed as usize % 2]))
        .zip(&starts[1..])
        .map(|((base, from), next)| (base, (from..*next).collect()))
        .collect();
    put(&world.disk(node), &all);
    let mut dice = Dice(seed);
    let to = starts[2] + dice.below((starts[3] - starts[2]) as u64) as i64;
    let work = async move {
        log.truncate_to(Offset(to)).await.unwrap();
    };
    let mut got_there = until(&world, node, &reactor, step, work);
    drop(kept);
    let mut reactor = end_life(&world, node, &reactor, end);
    if let Some((step, end)) = start {
        let own = reactor.clone();
        let opening = async move { drop(reopened(own, 3).await) };
        got_there &= until(&world, node, &reactor, step, opening);
        reactor = end_life(&world, node, &reactor, end);
    }
    let left = next_lives(&world, node, reactor, 3 + 16 * (seed / 4), &all, &what);
    assert!(left == log_end || left <= to, "{what}");
    (got_there, left < log_end)
}

/// Records that follow in the same life, and then the power goes: in a new segment where one began before, or in the cut one.
#[test]
fn a_truncation_leaves_no_entry_for_the_records_that_follow_it() {
    for seed in 0..12 {
        let world = SimWorld::new(seed);
        let node = world.add_node();
        let reactor = reactor_of(&world, node);
        let (kept, log, starts) = six_segments(&world, &reactor, 3);
        let disk = world.disk(node);
        let all: Entries = starts.windows(2).map(|s| (s[0], (s[0]..s[1]).collect())).collect();
        put(&disk, &all);
        // Also to a segment's start.
        let to = Offset(starts[2] + [0, 1, 30][seed as usize % 3]);
        let own = log.clone();
        let end = run(&world, &reactor, async move { own.truncate_to(to).await.unwrap().0 });
        assert_eq!(found(&disk), below(&all, end), "seed {seed}");
        let (own, to) = (log.clone(), if seed % 2 == 0 { end + 1 } else { starts[6] + 9 });
        run(&world, &reactor, async move {
            lead(&own).await;
            while own.log_end().0 < to {
                append(&own, &batch(10, 300, seed)).unwrap();
                commit_all(&own).await;
            }
        });
        drop((kept, log));
        let reactor = end_life(&world, node, &reactor, End::PowerCut);
        let (_kept, log) = reopen(&world, &reactor, 3);
        assert!(log.log_end().0 >= to, "seed {seed}");
        assert_eq!(found(&disk), below(&all, end), "seed {seed}");
    }
}

#[test]
fn a_truncation_that_ends_at_any_operation_leaves_no_entry_behind_the_cut() {
    let mut outcomes = [0, 0];
    for end in [End::PowerCut, End::Kill] {
        let steps = (0..1_000).find(|step| {
            let mut got_there = false;
            for seed in 0..4 {
                let (got, is_cut) = truncated(*step, end, None, seed);
                got_there |= got;
                outcomes[usize::from(is_cut)] += 1;
            }
            !got_there
        });
        assert!(steps.is_some_and(|steps| steps > 20), "{steps:?} operations");
    }
    assert!(outcomes.iter().all(|n| *n > 20), "{outcomes:?} not cut and cut");
}

#[test]
fn a_start_that_completes_a_truncation_and_ends_at_any_operation_leaves_none_either() {
    for (first, second) in [(End::PowerCut, End::Kill), (End::Kill, End::PowerCut)] {
        for step in [12, 20] {
            let steps = (0..1_000).find(|start| {
                let any = (0..4).map(|seed| truncated(step, first, Some((*start, second)), seed).0);
                !any.fold(false, |a, b| a | b)
            });
            assert!(steps.is_some_and(|steps| steps > 10), "{steps:?} operations");
        }
    }
}

/// A start that finds entries behind the log's end, and an index without a segment; it ends at its `step`th operation.
fn ahead(step: u64, end: End, seed: u64) -> bool {
    let what = format!("start {step} {end:?}, seed {seed}");
    let world = SimWorld::new(seed ^ step << 8);
    let node = world.add_node();
    let reactor = reactor_of(&world, node);
    let (kept, log, starts) = six_segments(&world, &reactor, 3);
    let (base, log_end) = (starts[5], starts[6]);
    let own = log.clone();
    run(&world, &reactor, async move { own.close().await.unwrap() });
    drop((kept, log));
    let reactor = end_life(&world, node, &reactor, End::Kill);
    let from = [base, log_end][seed as usize % 2];
    let all = Entries::from([(base, (from..log_end + 5).collect()), (log_end + 4, vec![log_end + 4, log_end + 6])]);
    put(&world.disk(node), &all);
    let own = reactor.clone();
    let got_there = until(&world, node, &reactor, step, async move { drop(reopened(own, 3).await) });
    let reactor = end_life(&world, node, &reactor, end);
    assert_eq!(next_lives(&world, node, reactor, 3 + 16 * (seed / 2), &all, &what), log_end);
    got_there
}

#[test]
fn a_start_drops_entries_behind_the_end_for_good_whatever_operation_it_ends_at() {
    for end in [End::PowerCut, End::Kill] {
        let steps = (0..1_000).find(|step| !(0..6).map(|seed| ahead(*step, end, seed)).fold(false, |a, b| a | b));
        assert!(steps.is_some_and(|steps| steps > 10), "{steps:?} operations");
    }
}

#[test]
fn a_start_keeps_the_entries_before_the_first_that_is_none_and_no_file_without_an_entry() {
    const END: i64 = 5_000;
    let cases: [(&str, Vec<u8>, Vec<i64>); 12] = [
        ("whole", index([3, 9, END - 1]), vec![3, 9, END - 1]),
        ("more than one read", index(0..END), (0..END).collect()),
        ("cut behind the first read", index((0..END + 9).step_by(3)), (0..END).step_by(3).collect()),
        ("behind the end", index([3, END - 1, END, END + 7]), vec![3, END - 1]),
        ("another version", [index([3]), with_version(1, 4, 5), index([7])].concat(), vec![3]),
        ("the same marker again", index([3, 3, 5]), vec![3]),
        ("an earlier marker", index([5, 4, 7]), vec![5]),
        ("the first behind the last", [index([3]), with_version(0, 6, 5), index([7])].concat(), vec![3]),
        ("zeroes", [index([3]), vec![0; 500]].concat(), vec![3]),
        ("part of an entry", [index([3, 9]), entry(11)[..20].to_vec()].concat(), vec![3, 9]),
        ("nothing below the end", index([END, END + 1]), vec![]),
        ("nothing", vec![], vec![]),
    ];
    for (what, bytes, expected) in cases {
        let mut bench = bench(4);
        bench.reactor.block_on(async {
            let (_data, _env, log) = bench.open(LogConfig::default()).await;
            lead(&log).await;
            append(&log, &batch(END as i32, 1, 1)).unwrap();
            commit_all(&log).await;
            log.close().await.unwrap();
        });
        bench.kill();
        assert!(bench.disk().put(&path(0, ".txnindex"), &bytes));
        bench.disk().set_short_per_mille(300);
        bench.reactor.block_on(async {
            let (_data, _env, log) = bench.open(LogConfig::default()).await;
            assert_eq!(log.log_end(), Offset(END), "{what}");
        });
        bench.cut_power();
        let expected = if expected.is_empty() { Entries::new() } else { Entries::from([(0, expected)]) };
        assert_eq!(found(&bench.disk()), expected, "{what}");
    }
}

/// What a folder has of each segment: its bytes, and the entries of its index.
fn contents(disk: &SimDisk) -> BTreeMap<i64, Vec<u8>> {
    bases_of(disk, ".log").into_iter().map(|base| (base, disk.contents(&path(base, ".log")).unwrap())).collect()
}

/// A round that ends at its `step`th operation. Returns whether it got that far.
fn compacted(step: u64, end: End, seed: u64) -> bool {
    let what = format!("round {step} {end:?}, seed {seed}");
    let world = SimWorld::new(seed ^ step << 8);
    let node = world.add_node();
    let reactor = reactor_of(&world, node);
    let (kept, log, starts) = six_segments(&world, &reactor, 7);
    let all: Entries = starts.windows(2).map(|s| (s[0], (s[0]..s[1]).collect())).collect();
    let disk = world.disk(node);
    put(&disk, &all);
    let (before, active) = (contents(&disk), starts[5]);
    let rules = CompactionRules { limits: GroupLimits { bytes: 20 << 10, index_bytes: u64::MAX }, ..rules() };
    // A segment that nothing has taken the place of keeps its index; no other has one.
    let check = |when: &str| {
        let is_old = |(base, bytes): &(i64, Vec<u8>)| *base == active || before.get(base) == Some(bytes);
        let old = contents(&disk).into_iter().filter(is_old).map(|(base, _)| (base, all[&base].clone()));
        assert_eq!(found(&disk), old.collect::<Entries>(), "{what}, {when}");
    };
    let own = log.clone();
    let round = async move {
        compact(&own, &rules).await.unwrap().expect("a round");
    };
    let got_there = until(&world, node, &reactor, step, round);
    drop((kept, log));
    let mut reactor = end_life(&world, node, &reactor, end);
    for last in [false, true] {
        let (kept, log) = reopen(&world, &reactor, 7);
        assert_eq!(log.fenced(), None, "{what}");
        check("opened");
        if last {
            assert!(found(&disk).len() < 4, "{what}: {:?}", found(&disk).keys());
            break;
        }
        let own = log.clone();
        run(&world, &reactor, async move {
            lead(&own).await;
            let _ = compact(&own, &rules).await.unwrap();
        });
        check("compacted");
        drop((kept, log));
        reactor = end_life(&world, node, &reactor, End::PowerCut);
    }
    got_there
}

#[test]
fn a_round_that_ends_at_any_operation_leaves_no_index_of_a_segment_that_was_compacted_and_takes_none_of_another() {
    for end in [End::PowerCut, End::Kill] {
        let steps = (0..2_000).find(|step| !(0..3).map(|seed| compacted(*step, end, seed)).fold(false, |a, b| a | b));
        assert!(steps.is_some_and(|steps| steps > 40), "{steps:?} operations");
    }
}

#[test]
fn the_index_of_a_segment_below_the_log_start_is_set_aside_with_it_and_goes_with_it() {
    let world = SimWorld::new(5);
    let node = world.add_node();
    let reactor = reactor_of(&world, node);
    let (_kept, log, starts) = six_segments(&world, &reactor, 5);
    let disk = world.disk(node);
    let all: Entries = starts.windows(2).map(|s| (s[0], (s[0]..s[1]).collect())).collect();
    put(&disk, &all);
    log.set_config(LogConfig { file_delete_delay_ms: 60_000, ..log.config() });
    let (own, to) = (reactor.clone(), Offset(starts[2]));
    let pass = |time: Duration| {
        let own = own.clone();
        run(&world, &reactor, async move { own.sleep(time).await });
    };
    let changed = log.clone();
    run(&world, &reactor, async move { changed.delete_records(to).await.unwrap() });
    pass(Duration::from_secs(1));
    let kept: Entries = all.into_iter().skip(2).collect();
    assert_eq!(found(&disk), kept);
    for suffix in [".log.deleted", ".txnindex.deleted"] {
        assert_eq!(bases_of(&disk, suffix), starts[..2], "{suffix}");
    }
    pass(Duration::from_secs(61));
    assert_eq!((found(&disk), bases_of(&disk, ".txnindex.deleted")), (kept, vec![]));
}
