//! From options to runs, and from runs to what the user gets.
//!
//! Holds: one function for each subcommand. Never touches: sockets, histograms.

use std::path::Path;
use std::time::Duration;

use corelog_reactor::Reactor;

use crate::cli::{Arrivals, Cli, Command, Load, Reading, Run, Target, words};
use crate::client::ring;
use crate::compare;
use crate::error::BenchError;
use crate::load::run::{ConsumeSpec, Job, Outcome, ProduceSpec, Start, TargetSpec, compression, run as make};
use crate::load::schedule::Pace;
use crate::measure::process::listener_of;
use crate::measure::result::RunResult;
use crate::payload::spec::{RecordSpec, ValueSource};
use crate::report::progress::Line;
use crate::report::{disk, files, html, table};
use crate::say;

/// A step of a ramp counts from this share of its rate on.
const REACHED_MIN: f64 = 0.9;

/// Does what the command line says.
///
/// # Errors
/// What went wrong; results up to there are written and marked.
pub fn run(cli: Cli) -> Result<(), BenchError> {
    match cli.command {
        Command::Produce { target, load, run } => {
            let produce = Some(produce_spec(&load)?);
            single(job("produce", &target, produce, None, &run), &run)
        }
        Command::Consume { target, reading, from, follow, run } => {
            let mut consume = consume_spec(&reading, from);
            consume.until_end = !follow;
            single(job("consume", &target, None, Some(consume), &run), &run)
        }
        Command::E2e { target, load, reading, run } => {
            let consume = consume_spec(&reading, Start::Latest);
            single(job("e2e", &target, Some(produce_spec(&load)?), Some(consume), &run), &run)
        }
        Command::Mixed { target, load, reading, catch_up, run } => {
            let mut consume = consume_spec(&reading, Start::Latest);
            consume.catch_up_groups = catch_up.min(consume.groups);
            single(job("mixed", &target, Some(produce_spec(&load)?), Some(consume), &run), &run)
        }
        Command::Verify { target, load, ride_out, run } => {
            let consume = ConsumeSpec::new(Start::Latest);
            if ride_out.is_some() && load.acks == 0 {
                return Err(BenchError::Usage("--ride-out needs answers to go by: --acks 1 or all".into()));
            }
            let mut job = job("verify", &target, Some(produce_spec(&load)?), Some(consume), &run);
            job.ride_out = ride_out.map(Duration::from_secs_f64);
            single(job, &run)
        }
        Command::Ramp { target, load, p99_ms, precision, run } => {
            let produce = produce_spec(&load)?;
            ramp(job("produce", &target, Some(produce), None, &run), p99_ms, precision, load.arrivals, &run)
        }
        Command::Disk { folder, mib, seconds, json } => disk::run(&folder, mib, seconds, json.as_deref()),
        Command::PlainSender => compare::plain_send::serve(),
        Command::Compare(options) => compare::run(&options),
        Command::Report { results, html } => report(&results, &html),
    }
}

/// What the options say about load.
///
/// # Errors
/// They contradict each other.
pub fn produce_spec(load: &Load) -> Result<ProduceSpec, BenchError> {
    let values = match &load.lines {
        Some(path) => ValueSource::Lines(path.clone()),
        None => ValueSource::Bytes(load.record_bytes.0, load.record_bytes.1),
    };
    let codec = compression(&load.compression).unwrap_or(corelog_storage::batch::Compression::None);
    if load.connections == 0 || load.in_flight == 0 {
        return Err(BenchError::Usage("--connections and --in-flight must be at least 1".into()));
    }
    if load.idempotent && (load.in_flight > 5 || load.acks != -1) {
        return Err(BenchError::Usage("--idempotent needs --acks all and --in-flight 5 or less, as in Kafka".into()));
    }
    let pace = match (load.rate, load.arrivals) {
        (None, _) => Pace::Unlimited,
        (Some(rate), Arrivals::Poisson) => Pace::Poisson(rate),
        (Some(rate), Arrivals::Constant) => Pace::Constant(rate),
    };
    Ok(ProduceSpec {
        records: RecordSpec { values, keys: load.keys.filter(|keys| *keys > 0), codec, seed: load.seed },
        pace,
        batch_bytes: load.batch_bytes,
        linger: load.linger_ms.map(|ms| Duration::from_secs_f64(ms.max(0.0) / 1e3)),
        connections: load.connections,
        in_flight: load.in_flight,
        acks: load.acks,
        idempotent: load.idempotent,
        timeout_ms: load.timeout_ms,
    })
}

/// What the options say about reading.
pub fn consume_spec(reading: &Reading, from: Start) -> ConsumeSpec {
    ConsumeSpec {
        consumers: reading.consumers.max(1),
        groups: reading.groups.max(1),
        wait_ms_max: reading.max_wait_ms,
        min_bytes: reading.min_bytes,
        max_bytes: reading.max_bytes as i32,
        partition_max_bytes: reading.partition_max_bytes as i32,
        read_committed: reading.read_committed,
        ..ConsumeSpec::new(from)
    }
}

fn job(
    kind: &'static str,
    target: &Target,
    produce: Option<ProduceSpec>,
    consume: Option<ConsumeSpec>,
    run: &Run,
) -> Job {
    let produce_only = kind == "produce";
    Job {
        kind,
        broker: run.name.clone().unwrap_or_else(|| target.bootstrap.clone()),
        workload: words(),
        target: TargetSpec {
            bootstrap: target.bootstrap.clone(),
            topic: target.topic.clone(),
            create: target.create,
            topic_configs: target.topic_config.clone(),
            fresh: target.fresh,
            delete_after: target.delete_after,
        },
        produce,
        consume,
        warm_up: Duration::from_secs_f64(run.warm_up.max(0.0)),
        duration: Duration::from_secs_f64(run.duration),
        produce_bytes: run.total.filter(|_| produce_only),
        broker_pid: run.broker_pid.or_else(|| listener_of(&target.bootstrap)),
        ride_out: None,
    }
}

/// Makes one run with its progress.
///
/// # Errors
/// It could not begin.
pub fn perform(reactor: &Reactor, job: &Job, quiet: bool) -> Result<Outcome, BenchError> {
    let mut line = Line::new(quiet);
    let outcome = reactor.block_on(make(reactor, job, &mut |progress| line.show(&progress)));
    line.end();
    outcome
}

fn single(job: Job, run: &Run) -> Result<(), BenchError> {
    if run.total.is_some() && job.produce_bytes.is_none() {
        return Err(BenchError::Usage(format!("--total is for produce; {} takes --duration", job.kind)));
    }
    files_can_be_written(run)?;
    let reactor = ring::reactor(run.core)?;
    let outcome = perform(&reactor, &job, run.quiet)?;
    // The files first: whoever reads the table may be gone.
    let written = write(&outcome, run);
    say!("{}", table::single(&outcome.result));
    conclude(outcome).and(written)
}

fn conclude(outcome: Outcome) -> Result<(), BenchError> {
    if let Some(error) = outcome.error {
        return Err(error);
    }
    match outcome.verdict {
        Some(Ok(text)) => {
            say!("verified: {text}\n");
            Ok(())
        }
        Some(Err(text)) => Err(BenchError::Verify(text)),
        None => Ok(()),
    }
}

/// Said before the run, not after it.
fn files_can_be_written(run: &Run) -> Result<(), BenchError> {
    let files = [&run.json, &run.hgrm, &run.hlog, &run.html];
    files.into_iter().flatten().try_for_each(|path| files::can_be_written(path))
}

/// Writes what was asked for; a file that fails leaves the others to be written.
fn write(outcome: &Outcome, run: &Run) -> Result<(), BenchError> {
    let result = &outcome.result;
    let page = || html::page("corelog-bench", std::slice::from_ref(result), "");
    let json = run.json.as_ref().map_or(Ok(()), |path| files::json(path, result));
    let hgrm = run.hgrm.as_ref().map_or(Ok(()), |path| files::text(path, &outcome.hgrm));
    let hlog = run.hlog.as_ref().map_or(Ok(()), |path| files::bytes(path, &outcome.interval_log));
    let html = run.html.as_ref().map_or(Ok(()), |path| files::text(path, &page()));
    json.and(hgrm).and(hlog).and(html)
}

/// Looks for the highest rate whose 99th percentile keeps the limit: doubles until it doesn't, then halves the interval.
fn ramp(mut job: Job, p99_ms: f64, precision: f64, arrivals: Arrivals, run: &Run) -> Result<(), BenchError> {
    files_can_be_written(run)?;
    let reactor = ring::reactor(run.core)?;
    let first = job.produce.as_ref().and_then(|spec| spec.pace.rate()).unwrap_or(10_000.0);
    let (mut low, mut high, mut rate) = (0.0_f64, f64::INFINITY, first);
    let mut best: Option<Outcome> = None;
    say!("{:>14} {:>14} {:>12} {:>12}  within {p99_ms} ms\n", "records/s", "reached", "p50 ms", "p99 ms");
    while high - low > low.max(1.0) * precision / 100.0 {
        if let Some(spec) = &mut job.produce {
            spec.pace = match arrivals {
                Arrivals::Poisson => Pace::Poisson(rate),
                Arrivals::Constant => Pace::Constant(rate),
            };
        }
        let outcome = perform(&reactor, &job, run.quiet)?;
        match &outcome.error {
            None | Some(BenchError::TooFast { .. }) => {}
            Some(_) => {
                let written = highest(best.as_ref(), low, p99_ms, run);
                return conclude(outcome).and(written);
            }
        }
        let latency = outcome.result.produced.as_ref().map(|side| side.latency.clone()).unwrap_or_default();
        let reached = outcome.result.records_per_s();
        // A rate that was asked for and not reached has no latency of its own.
        let is_reached = latency.count > 0 && reached >= rate * REACHED_MIN;
        let within = outcome.error.is_none() && is_reached && latency.p99 <= p99_ms * 1e3;
        let (p50, p99) = (latency.p50 / 1e3, latency.p99 / 1e3);
        say!("{rate:>14.0} {reached:>14.0} {p50:>12.3} {p99:>12.3}  {}\n", if within { "yes" } else { "no" });
        if within {
            low = rate;
            best = Some(outcome);
        } else {
            high = rate;
        }
        rate = if high.is_finite() { f64::midpoint(low, high) } else { rate * 2.0 };
        if high < 1.0 {
            return Err(BenchError::Usage(format!("not even one record a second keeps p99 within {p99_ms} ms")));
        }
    }
    highest(best.as_ref(), low, p99_ms, run)
}

/// What the best step of a ramp came to, if there is one.
fn highest(best: Option<&Outcome>, rate: f64, p99_ms: f64, run: &Run) -> Result<(), BenchError> {
    let Some(best) = best else { return Ok(()) };
    let written = write(best, run);
    say!("highest rate within {p99_ms} ms at p99: {rate:.0} records/s\n");
    say!("{}", table::single(&best.result));
    written
}

fn report(paths: &[std::path::PathBuf], page: &Path) -> Result<(), BenchError> {
    let mut results: Vec<RunResult> = Vec::new();
    for path in paths {
        let mut read = files::read_results(path)?;
        if paths.len() > 1 {
            // Runs against one broker are told apart by their files.
            let file = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            read.iter_mut().for_each(|result| result.broker = format!("{file}: {}", result.broker));
        }
        results.extend(read);
    }
    for result in &results {
        say!("{}", table::single(result));
    }
    files::text(page, &html::page("corelog-bench", &results, ""))?;
    say!("written: {}\n", page.display());
    Ok(())
}
