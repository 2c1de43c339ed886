//! One run: prepare, warm up, measure, drain.
//!
//! Holds: the order of these, the seconds, the samples of processes. Never touches: options as text, files.
//!
//! ```text
//!   start          from                                to            drained
//!     |-- warm-up --|------------ measured -------------|-- answers ---|
//!     schedule begins                     no more arrivals: those that were due still count
//! ```

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use corelog_net::wire::ApiKey;
use corelog_reactor::{Monotonic, Reactor, Stream};
use corelog_storage::batch::Compression;

use super::check::Check;
use super::consume::{ConsumePlan, Consuming, Look};
use super::control::Control;
use super::produce::{ProducePlan, Producing};
use super::recorder::{Recorder, Window};
use super::schedule::Pace;
use crate::client::cluster::{Cluster, EARLIEST, LATEST, Made, Topic};
use crate::client::rpc::connect;
use crate::error::BenchError;
use crate::interrupt::{heed, is_interrupted};
use crate::measure::clock::{now_ns, unix_ms};
use crate::measure::latency::Interval;
use crate::measure::machine::MachineSample;
use crate::measure::process::Sample;
use crate::measure::result::{RunResult, Verified};
use crate::payload::spec::{RecordMaker, RecordSpec};
use crate::payload::stamp::STAMP_BYTES;
use crate::payload::template::Template;

/// Different batches that a producer sends in turn.
const TEMPLATES: u64 = 16;
/// Bytes that all of them may take.
const TEMPLATE_BYTES_MAX: usize = 64 << 20;
/// The schedule begins this long after everything is connected.
const LEAD: Duration = Duration::from_millis(50);
/// How long answers may take after the last arrival.
const DRAIN_S_MAX: u64 = 60;
/// How often an interruption, or a failure, is looked for.
const LOOK: Duration = Duration::from_millis(100);
/// How often the end of the drain is looked for.
const DRAIN_LOOK: Duration = Duration::from_millis(5);

/// Where to, and what is made there.
#[derive(Clone, Debug)]
pub struct TargetSpec {
    /// `host:port` of a broker.
    pub bootstrap: String,
    /// The topic's name.
    pub topic: String,
    /// Makes the topic with this many partitions if it isn't there.
    pub create: Option<usize>,
    /// Configuration of the topic, if it is made.
    pub topic_configs: Vec<(String, String)>,
    /// Deletes the topic first.
    pub fresh: bool,
    /// Deletes the topic afterwards.
    pub delete_after: bool,
}

/// What is produced.
#[derive(Clone, Debug)]
pub struct ProduceSpec {
    /// The records.
    pub records: RecordSpec,
    /// When.
    pub pace: Pace,
    /// Bytes of a full batch.
    pub batch_bytes: usize,
    /// See [`ProducePlan::linger`].
    pub linger: Option<Duration>,
    /// Connections.
    pub connections: usize,
    /// Open requests on each.
    pub in_flight: usize,
    /// 0, 1, -1.
    pub acks: i16,
    /// Whether each connection is an idempotent producer.
    pub idempotent: bool,
    /// Milliseconds that the broker may take.
    pub timeout_ms: i32,
}

/// Where reading starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Start {
    /// The first record there is.
    Earliest,
    /// What comes next.
    Latest,
}

/// What is consumed.
#[derive(Clone, Debug)]
pub struct ConsumeSpec {
    /// Connections of one group: they share the partitions.
    pub consumers: usize,
    /// Groups: each reads everything.
    pub groups: usize,
    /// Of these, how many read from the beginning, to catch up, while the others follow the end.
    pub catch_up_groups: usize,
    /// Where the others start.
    pub from: Start,
    /// Stops at what was there at the start (or, beside a producer, at what it had sent).
    pub until_end: bool,
    /// With `until_end`: begins again from the start until the time is over.
    pub again: bool,
    /// `fetch.max.wait.ms`.
    pub wait_ms_max: i32,
    /// `fetch.min.bytes`.
    pub min_bytes: i32,
    /// `fetch.max.bytes`.
    pub max_bytes: i32,
    /// `max.partition.fetch.bytes`.
    pub partition_max_bytes: i32,
    /// Only committed records.
    pub read_committed: bool,
}

impl ConsumeSpec {
    /// One reader of everything with Kafka's defaults, starting at `from`.
    pub const fn new(from: Start) -> Self {
        Self {
            consumers: 1,
            groups: 1,
            catch_up_groups: 0,
            from,
            until_end: false,
            again: false,
            wait_ms_max: 500,
            min_bytes: 1,
            max_bytes: 50 << 20,
            partition_max_bytes: 1 << 20,
            read_committed: false,
        }
    }
}

/// A run to make.
#[derive(Clone, Debug)]
pub struct Job {
    /// `produce`, `consume`, `e2e`, `mixed`, `verify`.
    pub kind: &'static str,
    /// The broker's name in reports.
    pub broker: String,
    /// The options in words.
    pub workload: String,
    /// Where to.
    pub target: TargetSpec,
    /// What is produced, if anything.
    pub produce: Option<ProduceSpec>,
    /// What is consumed, if anything.
    pub consume: Option<ConsumeSpec>,
    /// Seconds before anything counts.
    pub warm_up: Duration,
    /// Seconds that count.
    pub duration: Duration,
    /// Counts until this many bytes were produced instead, however long that takes.
    pub produce_bytes: Option<u64>,
    /// The broker's process, for its CPU and memory.
    pub broker_pid: Option<u32>,
}

/// What came of it.
pub struct Outcome {
    /// The figures.
    pub result: RunResult,
    /// Why the run broke off, if it did.
    pub error: Option<BenchError>,
    /// The percentile distribution as text.
    pub hgrm: String,
    /// The interval log.
    pub interval_log: Vec<u8>,
    /// What `verify` found.
    pub verdict: Option<Result<String, String>>,
}

/// A second of a run, as it passes.
pub struct Progress<'a> {
    /// Seconds since the start of what counts; negative during the warm-up.
    pub at_s: f64,
    /// What was produced in it.
    pub produced: Option<&'a Interval>,
    /// What was consumed in it.
    pub consumed: Option<&'a Interval>,
    /// Records due and not sent.
    pub behind: u64,
}

/// Makes the run on this thread. What was measured before a failure is in the outcome.
///
/// # Errors
/// The run could not begin.
pub async fn run(reactor: &Reactor, job: &Job, progress: &mut dyn FnMut(Progress<'_>)) -> Result<Outcome, BenchError> {
    if is_interrupted() {
        // Of several runs, between two.
        return Err(BenchError::Interrupted);
    }
    heed();
    let mut cluster = Cluster::connect(reactor, &job.target.bootstrap).await?;
    let topic = prepare(&mut cluster, &job.target).await?;
    let outcome = measure(reactor, job, &mut cluster, &topic, progress).await;
    if job.target.delete_after {
        // The figures stand, whatever becomes of the topic.
        cluster.tidy_up(&topic.name).await;
    }
    outcome
}

/// The run itself, on a topic that is ready.
async fn measure(
    reactor: &Reactor,
    job: &Job,
    cluster: &mut Cluster,
    topic: &Topic,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Outcome, BenchError> {
    let verify = job.kind == "verify";
    let stamped = job.kind == "e2e" || verify;

    let control = Rc::new(Control::default());
    let check = Rc::new(RefCell::new(Check::default()));
    let look = match job.kind {
        "verify" => Look::Verify(Rc::clone(&check)),
        "e2e" => Look::Time,
        _ => Look::Count,
    };

    // The window is known only when everything stands; recorders are made with it.
    let producing = match &job.produce {
        Some(spec) => Some(produce_plan(cluster, topic, spec, stamped).await?),
        None => None,
    };
    let consuming = match &job.consume {
        Some(spec) => Some(consume_plan(cluster, topic, spec, look).await?),
        None => None,
    };
    // Nobody else is expected to write meanwhile: what `verify` reads is what this run sends.
    let starts = if verify { cluster.offsets(topic, LATEST).await? } else { Vec::new() };
    let lanes = producing.as_ref().map_or(0, |plan| plan.lanes);
    let readers = consuming.as_ref().map_or(0, |plan| plan.assignments.len());
    let streams = connect_all(reactor, &topic.leader, lanes).await?;
    let reader_streams = connect_all(reactor, &topic.leader, readers).await?;

    let only_reads = job.produce.is_none();
    let reads_to_the_end =
        job.produce.is_none() && job.consume.as_ref().is_some_and(|spec| spec.until_end && !spec.again);
    // What is there already can be read at once, and counts from the first byte.
    let lead = if only_reads { Duration::ZERO } else { LEAD };
    let start_ns = now_ns() + lead.as_nanos() as u64;
    let from_ns = start_ns + job.warm_up.as_nanos() as u64;
    let mut window = Window { from_ns, to_ns: from_ns + job.duration.as_nanos() as u64 };
    let open_end = reads_to_the_end || job.produce_bytes.is_some();
    if reads_to_the_end {
        window.from_ns = start_ns;
    }
    if open_end {
        window.to_ns = u64::MAX;
    }
    let started_unix_ms = unix_ms();
    let recorder = || Ok::<_, BenchError>(Rc::new(RefCell::new(Recorder::new(window, started_unix_ms)?)));
    let (produced, consumed) = (recorder()?, recorder()?);
    let producing = match producing {
        Some(plan) => Some(Producing::new(plan, reactor, &control, &produced)?),
        None => None,
    };
    let consuming = consuming.map(|plan| Consuming::new(plan, reactor, &control, &consumed));

    if is_interrupted() {
        return Err(BenchError::Interrupted);
    }
    if let Some(engine) = &consuming {
        engine.start(reader_streams);
    }
    reactor.sleep_until(Monotonic::from_nanos(start_ns)).await;
    if let Some(engine) = &producing {
        engine.start(streams, start_ns);
    }

    // ---- warm-up, then the seconds that count ----
    let mut run = Seconds { reactor, window, control: &control, producing: &producing, consuming: &consuming };
    run.pass(window.from_ns, &produced, &consumed, End::Time, progress).await;
    let own = std::process::id();
    let sample = |pid: u32| Sample::take(pid);
    let before = (job.broker_pid.and_then(sample), sample(own), MachineSample::take());
    let end = match job.produce_bytes {
        _ if reads_to_the_end => End::Read,
        Some(bytes) => End::Produced(bytes),
        None => End::Time,
    };
    run.pass(window.to_ns, &produced, &consumed, end, progress).await;
    let after = (job.broker_pid.and_then(sample), sample(own), MachineSample::take());
    let ended_ns = control.failed_ns().unwrap_or_else(now_ns).clamp(window.from_ns, window.to_ns);
    if open_end || control.has_failed() {
        produced.borrow_mut().end_at(ended_ns);
        consumed.borrow_mut().end_at(ended_ns);
    }

    // ---- answers that are still to come ----
    if let Some(engine) = &producing {
        if consuming.is_some() && verify {
            drain_and_verify(reactor, cluster, topic, &control, engine, &starts, &check).await;
        } else {
            control.stop();
        }
        engine.wake_all();
    }
    control.stop();
    if let Some(engine) = &consuming {
        engine.abort();
    }
    let patience = if control.has_failed() { 1 } else { DRAIN_S_MAX };
    let give_up = now_ns() + patience * 1_000_000_000;
    let open = || {
        producing.as_ref().map_or(0, |engine| engine.open()) + consuming.as_ref().map_or(0, |engine| engine.reading())
    };
    while open() > 0 && now_ns() < give_up {
        if let Some(engine) = &producing {
            engine.wake_all();
        }
        reactor.sleep(DRAIN_LOOK).await;
    }
    let now = now_ns();
    if open() > 0 && !control.has_failed() {
        let seconds = now.saturating_sub(start_ns) as f64 / 1e9;
        let too_fast = producing.as_ref().and_then(|engine| Some((engine.rate_not_kept()?, engine.behind())));
        control.fail(match too_fast {
            Some((rate, behind)) => BenchError::TooFast { rate, behind, seconds },
            None => BenchError::Silent { api: "Produce", seconds: DRAIN_S_MAX },
        });
    }
    if let Some(engine) = &producing {
        engine.abort();
        engine.give_up(now);
    }
    produced.borrow_mut().tick(now);
    consumed.borrow_mut().tick(now);

    let acknowledged = producing.as_ref().map(|engine| engine.acknowledged()).unwrap_or_default();
    let verdict = verify.then(|| check.borrow().verdict(&acknowledged));
    let error = control.take_failure();
    let usage = |pair: (Option<Sample>, Option<Sample>)| Some(pair.1?.since(&pair.0?));
    let (broker_usage, own_usage) = (usage((before.0, after.0)), usage((before.1, after.1)));
    let verified = verdict.as_ref().map(|verdict| Verified {
        clean: verdict.is_ok(),
        found: verdict.as_ref().unwrap_or_else(|found| found).clone(),
    });
    let machine = before.2.zip(after.2).filter(|_| broker_usage.is_some());
    let main = if consuming.is_some() && job.kind != "mixed" { &consumed } else { &produced };
    let result = RunResult {
        kind: job.kind.to_owned(),
        broker: job.broker.clone(),
        workload: job.workload.clone(),
        started_unix_ms,
        seconds: ended_ns.saturating_sub(window.from_ns) as f64 / 1e9,
        complete: error.is_none(),
        stopped_by: error.as_ref().map(ToString::to_string),
        produced: producing.as_ref().map(|_| produced.borrow().side()),
        consumed: consuming.as_ref().map(|_| consumed.borrow().side()),
        broker_usage,
        own_usage: own_usage.unwrap_or_default(),
        verified,
        others_usage: machine.map(|(before, after)| after.since(&before, &[broker_usage, own_usage])),
    };
    let main = main.borrow();
    Ok(Outcome {
        result,
        error,
        hgrm: main.reported().hgrm(),
        interval_log: main.reported().interval_log().to_vec(),
        verdict,
    })
}

/// What ends a part of a run, besides its last moment and a failure.
#[derive(Clone, Copy)]
enum End {
    /// Nothing.
    Time,
    /// Every reader is at its end.
    Read,
    /// So many bytes were produced.
    Produced(u64),
}

/// Lets seconds pass.
struct Seconds<'a> {
    reactor: &'a Reactor,
    window: Window,
    control: &'a Rc<Control>,
    producing: &'a Option<Rc<Producing>>,
    consuming: &'a Option<Rc<Consuming>>,
}

impl Seconds<'_> {
    /// Until `until_ns`, a failure, or what `end` says.
    async fn pass(
        &mut self,
        until_ns: u64,
        produced: &RefCell<Recorder>,
        consumed: &RefCell<Recorder>,
        end: End,
        progress: &mut dyn FnMut(Progress<'_>),
    ) {
        let counts = until_ns > self.window.from_ns;
        let mut next = now_ns() + 1_000_000_000;
        loop {
            let step = match end {
                End::Time => next.min(now_ns() + LOOK.as_nanos() as u64),
                End::Read | End::Produced(_) => now_ns() + DRAIN_LOOK.as_nanos() as u64,
            };
            self.reactor.sleep_until(Monotonic::from_nanos(step.min(next).min(until_ns))).await;
            let now = now_ns();
            if is_interrupted() {
                self.control.fail(BenchError::Interrupted);
            }
            let finished = match end {
                End::Time => false,
                End::Read => self.consuming.as_ref().is_none_or(|engine| engine.reading() == 0),
                End::Produced(bytes) => produced.borrow().bytes() >= bytes,
            };
            let over = now >= until_ns || self.control.has_failed() || finished;
            if now < next && !over {
                continue;
            }
            next += 1_000_000_000;
            let (one, two) = (produced.borrow_mut().tick(now), consumed.borrow_mut().tick(now));
            progress(Progress {
                at_s: (now as f64 - self.window.from_ns as f64) / 1e9,
                produced: self.producing.as_ref().map(|_| &one),
                consumed: self.consuming.as_ref().map(|_| &two),
                behind: self.producing.as_ref().map_or(0, |engine| engine.behind()),
            });
            if counts {
                produced.borrow_mut().keep(one);
                consumed.borrow_mut().keep(two);
            }
            if over {
                return;
            }
        }
    }
}

/// Stops producing, waits for the last answers, then for the readers to have read all of it.
async fn drain_and_verify(
    reactor: &Reactor,
    cluster: &mut Cluster,
    topic: &Topic,
    control: &Rc<Control>,
    engine: &Rc<Producing>,
    starts: &[i64],
    check: &RefCell<Check>,
) {
    engine.finish();
    let give_up = now_ns() + DRAIN_S_MAX * 1_000_000_000;
    while engine.open() > 0 && now_ns() < give_up && !control.has_failed() {
        reactor.sleep(DRAIN_LOOK).await;
    }
    let ends = match cluster.offsets(topic, LATEST).await {
        Ok(ends) => ends,
        Err(error) => return control.fail(error),
    };
    let total: i64 = ends.iter().zip(starts).map(|(end, start)| end - start).sum();
    while check.borrow().records < total.max(0) as u64 && now_ns() < give_up && !control.has_failed() {
        reactor.sleep(DRAIN_LOOK).await;
    }
}

async fn prepare(cluster: &mut Cluster, target: &TargetSpec) -> Result<Topic, BenchError> {
    if target.fresh {
        cluster.delete(&target.topic).await?;
    }
    let just_made = match target.create {
        Some(partitions) => cluster.create(&target.topic, partitions, &target.topic_configs).await?,
        None => None,
    };
    let topic = ready(cluster, target, just_made).await;
    if topic.is_err() && just_made.is_some() && target.delete_after {
        cluster.tidy_up(&target.topic).await;
    }
    topic
}

async fn ready(cluster: &mut Cluster, target: &TargetSpec, just_made: Option<Made>) -> Result<Topic, BenchError> {
    let topic = cluster.find(&target.topic, just_made).await?;
    if let Some(wanted) = target.create.filter(|wanted| *wanted != topic.partitions) {
        return Err(BenchError::Usage(format!(
            "topic {} is there with {} partitions, not {wanted}: --fresh makes it anew, without --create it is taken as it is",
            topic.name, topic.partitions
        )));
    }
    cluster.await_leaders(&topic).await?;
    Ok(topic)
}

async fn produce_plan(
    cluster: &mut Cluster,
    topic: &Topic,
    spec: &ProduceSpec,
    stamped: bool,
) -> Result<ProducePlan, BenchError> {
    let producers = if spec.idempotent {
        let mut producers = Vec::with_capacity(spec.connections);
        for _ in 0..spec.connections {
            producers.push(cluster.producer_id().await?);
        }
        Some(producers)
    } else {
        None
    };
    let version = version(cluster, ApiKey::Produce)?;
    let templates = templates(&spec.records, spec.batch_bytes, stamped)?;
    Ok(ProducePlan {
        topic: topic.clone(),
        lanes: spec.connections,
        in_flight: spec.in_flight,
        acks: spec.acks,
        producers,
        pace: spec.pace,
        linger: spec.linger,
        stamped,
        keys: spec.records.keys,
        templates,
        version,
        timeout_ms: spec.timeout_ms,
        seed: spec.records.seed,
    })
}

fn templates(records: &RecordSpec, batch_bytes: usize, stamped: bool) -> Result<Vec<Template>, BenchError> {
    let count = (TEMPLATE_BYTES_MAX / batch_bytes.max(1)).clamp(1, TEMPLATES as usize) as u64;
    let least = if stamped { STAMP_BYTES } else { 0 };
    let mut maker = RecordMaker::new(records.clone())?;
    (0..count).map(|_| Template::new(&mut maker, batch_bytes, least)).collect()
}

async fn consume_plan(
    cluster: &mut Cluster,
    topic: &Topic,
    spec: &ConsumeSpec,
    look: Look,
) -> Result<ConsumePlan, BenchError> {
    let starts = cluster.offsets(topic, EARLIEST).await?;
    let ends = cluster.offsets(topic, LATEST).await?;
    let mut assignments = Vec::new();
    for group in 0..spec.groups {
        let from = if group < spec.catch_up_groups { Start::Earliest } else { spec.from };
        let offsets = match from {
            Start::Earliest => &starts,
            Start::Latest => &ends,
        };
        for consumer in 0..spec.consumers.min(topic.partitions) {
            let mine = (consumer..topic.partitions).step_by(spec.consumers);
            assignments.push(mine.map(|partition| (partition, offsets[partition])).collect());
        }
    }
    Ok(ConsumePlan {
        topic: topic.clone(),
        assignments,
        until: spec.until_end.then_some(ends),
        again: spec.again,
        wait_ms_max: spec.wait_ms_max,
        min_bytes: spec.min_bytes,
        max_bytes: spec.max_bytes,
        partition_max_bytes: spec.partition_max_bytes,
        isolation: i8::from(spec.read_committed),
        look,
        version: version(cluster, ApiKey::Fetch)?,
    })
}

fn version(cluster: &Cluster, key: ApiKey) -> Result<i16, BenchError> {
    cluster.versions().get(&key).copied().ok_or(BenchError::Version { api: key.name() })
}

async fn connect_all(reactor: &Reactor, address: &str, count: usize) -> Result<Vec<Stream>, BenchError> {
    let mut streams = Vec::with_capacity(count);
    for _ in 0..count {
        streams.push(connect(reactor, address).await?);
    }
    Ok(streams)
}

/// The codec's name as Kafka has it.
pub fn compression(name: &str) -> Option<Compression> {
    [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd]
        .into_iter()
        .find(|codec| codec.name() == name)
}
