//! The same workloads against two brokers, in turn.
//!
//! Holds: rounds, their order, medians and ratios. Never touches: how a run is made (see `load`), how brokers start (see
//! `peer`).
//!
//! ```text
//!   start both ──► warm both up ──► for each workload, each round: A, B  (the next round: B, A)  ──► verify both ──► stop
//! ```
//!
//! Rounds are interleaved so that a machine that gets slower or faster meanwhile does so for both. Each run has a topic of
//! its own, deleted afterwards. Both brokers live all the time on the same cores; the one that is not measured idles.

pub mod host;
pub mod limit;
pub mod peer;
pub mod plain_send;
pub mod record;
pub mod workloads;

use std::fs;
use std::time::Duration;

use corelog_reactor::Reactor;
use nix::sys::resource::{Resource, getrlimit};

use self::peer::{Peer, TOPIC_PREFIX};
use self::record::{Cell, Comparison};
use self::workloads::{Speed, Workload};
use crate::cli::Compare;
use crate::client::ring;
use crate::commands::perform;
use crate::error::BenchError;
use crate::interrupt::heed;
use crate::load::run::{Job, TargetSpec};
use crate::load::schedule::Pace;
use crate::measure::result::RunResult;
use crate::report::{files, html};
use crate::say;

/// Seconds of a run that only looks for the highest rate.
const PROBE_S: f64 = 8.0;
/// Seconds of a verifying run.
const VERIFY_S: f64 = 5.0;
/// A broker takes so much more than it is sent: space written ahead, indexes. A tenth.
const ROOM_PART: u64 = 10;
/// Files that a broker has open besides those of partitions: libraries, connections, its own records.
const FILES_BESIDES: u64 = 1_000;
/// The files of a comparison.
const RESULTS: &str = "results.json";
const PAGE: &str = "report.html";
const RECORD: &str = "record.md";

/// Compares.
///
/// # Errors
/// A peer can't be started, a run broke off, or something was lost. What was measured until then is written. That a peer could
/// not keep a rate is told at the end, after all the rest.
pub fn run(options: &Compare) -> Result<(), BenchError> {
    let (standard, special) = (workloads::standard(), workloads::special());
    if options.list {
        let show = |workload: &Workload| say!("{:<16} {}; {}\n", workload.name, workload.about, workload.plan(options));
        standard.iter().for_each(show);
        say!("\nonly when named:\n");
        special.iter().for_each(show);
        return Ok(());
    }
    let is_named = |workload: &&Workload| options.workloads.iter().any(|name| name == workload.name);
    let all: Vec<&Workload> = standard.iter().chain(&special).collect();
    let chosen: Vec<&Workload> = match &options.workloads[..] {
        [] => standard.iter().collect(),
        _ => all.iter().copied().filter(is_named).collect(),
    };
    if let Some(unknown) = options.workloads.iter().find(|name| all.iter().all(|known| known.name != **name)) {
        return Err(BenchError::Usage(format!("no workload {unknown}: --list shows them")));
    }
    if options.a == options.b {
        let what =
            "name two brokers: one peer beside itself needs its file under another name, too (a link to it will do)";
        return Err(BenchError::Usage(what.into()));
    }
    heed();
    fs::create_dir_all(&options.out).map_err(BenchError::file(&options.out))?;
    [RESULTS, PAGE, RECORD].iter().try_for_each(|name| files::can_be_written(&options.out.join(name)))?;
    has_room(options, &chosen)?;
    has_files(&chosen)?;
    let reactor = ring::reactor(Some(options.core))?;
    let names = [&options.a, &options.b].into_iter().flatten();
    let peers = names.map(|name| Peer::start(&reactor, name, options)).collect::<Result<Vec<_>, _>>()?;
    let mut comparison = Comparison::new(options, &peers, &chosen);
    let outcome = measure(&reactor, options, &peers, &chosen, &mut comparison);
    comparison.stopped_by = match &outcome {
        Ok(()) | Err(BenchError::TooFast { .. }) => None,
        Err(error) => Some(error.to_string()),
    };
    // Whatever happened: what was measured is kept.
    let written = write(options, &comparison);
    drop(peers);
    outcome.and(written)
}

/// Looks whether the largest of the workloads will fit on the disk, before minutes are spent on the others.
fn has_room(options: &Compare, chosen: &[&Workload]) -> Result<(), BenchError> {
    let Some((bytes, name)) = chosen.iter().filter_map(|workload| Some((workload.produce_bytes?, workload.name))).max()
    else {
        return Ok(());
    };
    let folder = &options.work;
    fs::create_dir_all(folder).map_err(BenchError::file(folder))?;
    let disk = nix::sys::statvfs::statvfs(folder).map_err(|error| BenchError::file(folder)(error.into()))?;
    let (needed, free) = (bytes + bytes / ROOM_PART, disk.blocks_available() * disk.fragment_size());
    if free < needed {
        return Err(BenchError::Usage(format!(
            "{name} needs {} GB of free space under {}, there are {} GB: free some, take another disk (--work), or leave it out \
             (--workloads)",
            needed.div_ceil(1_000_000_000),
            folder.display(),
            free / 1_000_000_000
        )));
    }
    Ok(())
}

/// Looks whether a broker may open a file for each of the partitions: it has the limit that we have. Kafka needs them, and maps
/// two more for each, for which the kernel's usual limit (`vm.max_map_count`) is enough.
fn has_files(chosen: &[&Workload]) -> Result<(), BenchError> {
    let Some(workload) = chosen.iter().max_by_key(|workload| workload.partitions) else { return Ok(()) };
    let needed = workload.partitions as u64 + FILES_BESIDES;
    let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(_, hard)| hard);
    if limit < needed {
        return Err(BenchError::Usage(format!(
            "{} needs a broker that may open {needed} files, the limit here is {limit}: raise it (ulimit -Hn), or leave it out \
             (--workloads)",
            workload.name
        )));
    }
    Ok(())
}

fn measure(
    reactor: &Reactor,
    options: &Compare,
    peers: &[Peer],
    chosen: &[&Workload],
    comparison: &mut Comparison,
) -> Result<(), BenchError> {
    for peer in peers {
        say(options, &format!("warming up {} for {:.0} s", peer.name, options.warm_up));
        warm_up(reactor, options, peer)?;
    }
    let mut too_fast = None;
    for workload in chosen {
        let rate = rate(reactor, options, peers, workload)?;
        let at = rate.map(|rate| format!(", {rate:.0} records/s")).unwrap_or_default();
        say!("\n{}: {}{at}\n", workload.name, workload.about);
        for round in 0..workload.plan(options).rounds {
            let limits = limit::measure(reactor, options, &workload.limits)?;
            comparison.add_limits(workload.name, &limits);
            let order: [usize; 2] = if round % 2 == 0 { [0, 1] } else { [1, 0] };
            for which in order {
                let peer = &peers[which];
                // Not looked at where bytes are what ends a round.
                let seconds = workload.duration.unwrap_or(options.duration);
                match one(reactor, options, peer, workload, rate, seconds, workload.lead_in) {
                    Ok(result) => {
                        say!("  {}\n", record::run_line(&result));
                        comparison.add(workload, rate, which, result);
                    }
                    // A finding of its own, and no reason to leave the rest out.
                    Err(error @ BenchError::TooFast { .. }) => {
                        say!("  {:<12} {error}\n", peer.name);
                        comparison.add_too_fast(workload, which);
                        too_fast.get_or_insert(error);
                        peer.settle()?;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        say!("{}", comparison.workload_table(workload.name));
    }
    for (which, peer) in peers.iter().enumerate() {
        let workload = workloads::verify();
        let rate = rate(reactor, options, peers, &workload)?;
        one(reactor, options, peer, &workload, rate, VERIFY_S, Duration::ZERO)?;
        say!("{}: verified, nothing lost, doubled, damaged or out of order\n", peer.name);
        comparison.verified[which] = true;
    }
    too_fast.map_or(Ok(()), Err)
}

/// Load of every kind, so that nothing is compiled or mapped for the first time when it counts.
fn warm_up(reactor: &Reactor, options: &Compare, peer: &Peer) -> Result<(), BenchError> {
    let all = workloads::standard();
    let kinds = ["bulk-256k-4", "small", "latency", "e2e-8", "tail-1"];
    let seconds = options.warm_up / kinds.len() as f64;
    if seconds < 0.1 {
        return Ok(());
    }
    for workload in all.iter().filter(|workload| kinds.contains(&workload.name)) {
        // What is a share of something later goes as fast as it can here.
        let rate = match workload.speed {
            Speed::Fixed(rate) => Some(rate),
            Speed::Unlimited | Speed::ShareOfSecond(_) => None,
        };
        one(reactor, options, peer, workload, rate, seconds, Duration::ZERO)?;
    }
    Ok(())
}

/// The rate of a workload: its own, or a share of what the second peer reaches.
fn rate(reactor: &Reactor, options: &Compare, peers: &[Peer], workload: &Workload) -> Result<Option<f64>, BenchError> {
    match workload.speed {
        Speed::Unlimited => Ok(None),
        Speed::Fixed(rate) => Ok(Some(rate)),
        Speed::ShareOfSecond(share) => {
            let Some(second) = peers.get(1) else { return Ok(None) };
            let result = one(reactor, options, second, workload, None, PROBE_S, workload.lead_in)?;
            let highest = result.records_per_s();
            say(options, &format!("{}: {highest:.0} records/s at most", second.name));
            Ok(Some((highest * share).max(1.0)))
        }
    }
}

/// One run against one peer. If the peer has ended, that is why it failed.
fn one(
    reactor: &Reactor,
    options: &Compare,
    peer: &Peer,
    workload: &Workload,
    rate: Option<f64>,
    seconds: f64,
    lead_in: Duration,
) -> Result<RunResult, BenchError> {
    attempt(reactor, options, peer, workload, rate, seconds, lead_in).map_err(|error| peer.explain(error))
}

fn attempt(
    reactor: &Reactor,
    options: &Compare,
    peer: &Peer,
    workload: &Workload,
    rate: Option<f64>,
    seconds: f64,
    lead_in: Duration,
) -> Result<RunResult, BenchError> {
    let mut target = TargetSpec {
        bootstrap: peer.address.clone(),
        topic: format!("{TOPIC_PREFIX}{}", workload.name),
        create: Some(workload.partitions),
        topic_configs: workload.topic_configs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
        fresh: true,
        delete_after: true,
    };
    let mut produce = workload.produce.clone();
    produce.pace = rate.map_or(Pace::Unlimited, Pace::Poisson);
    if workload.kind == "consume" {
        target.delete_after = false;
        fill(reactor, peer, workload, &target)?;
        (target.fresh, target.delete_after) = (false, true);
    }
    let job = Job {
        kind: workload.kind,
        broker: peer.name.clone(),
        workload: workload.name.to_owned(),
        target,
        produce: (workload.kind != "consume").then_some(produce),
        consume: workload.consume.clone(),
        warm_up: lead_in,
        duration: Duration::from_secs_f64(seconds),
        produce_bytes: workload.produce_bytes,
        broker_pid: peer.pid,
        ride_out: None,
    };
    let outcome = perform(reactor, &job, options.quiet)?;
    if let Some(error) = outcome.error {
        return Err(error);
    }
    peer.settle()?;
    match outcome.verdict {
        Some(Err(text)) => Err(BenchError::Verify(format!("{}: {text}", peer.name))),
        Some(Ok(_)) | None => Ok(outcome.result),
    }
}

/// Produces what a consuming run reads.
fn fill(reactor: &Reactor, peer: &Peer, workload: &Workload, target: &TargetSpec) -> Result<(), BenchError> {
    let per_second = 64e6;
    let mut produce = workload.produce.clone();
    // A paced load, so that the amount is the same for every broker.
    produce.pace = Pace::Constant(per_second / 1024.0);
    let job = Job {
        kind: "produce",
        broker: peer.name.clone(),
        workload: "prefill".into(),
        target: target.clone(),
        produce: Some(produce),
        consume: None,
        warm_up: Duration::ZERO,
        duration: Duration::from_secs_f64(workload.prefill_bytes as f64 / per_second),
        produce_bytes: None,
        broker_pid: None,
        ride_out: None,
    };
    match perform(reactor, &job, true)?.error {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

fn write(options: &Compare, comparison: &Comparison) -> Result<(), BenchError> {
    let results: Vec<RunResult> = comparison.results().cloned().collect();
    files::json(&options.out.join(RESULTS), &results)?;
    let representative: Vec<RunResult> = comparison.cells.iter().filter_map(Cell::middle).cloned().collect();
    let title = [&options.a, &options.b].map(|name| name.as_deref().unwrap_or_default()).join(" and ");
    let page = html::page(&title, &representative, &comparison.html_table());
    files::text(&options.out.join(PAGE), &page)?;
    let record = options.out.join(RECORD);
    files::text(&record, &comparison.markdown())?;
    say!("written: {} (and results.json, report.html beside it)\n", record.display());
    Ok(())
}

fn say(options: &Compare, text: &str) {
    if !options.quiet {
        eprintln!("{text}");
    }
}
