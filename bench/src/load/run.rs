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

use corelog_reactor::{Monotonic, Reactor};
use corelog_storage::batch::Compression;

use super::check::Check;
use super::consume::{Consuming, Look};
use super::control::Control;
use super::ending::{DRAIN_LOOK, DRAIN_S_MAX, Ending, verdict as conclude};
use super::produce::Producing;
use super::ranges::Unanswered;
use super::recorder::{Recorder, Window};
use super::ride::{Ride, insist};
use super::schedule::Pace;
use super::set_up::{Ready, set_up};
use crate::client::cluster::Cluster;
use crate::error::BenchError;
use crate::interrupt::{heed, is_interrupted};
use crate::measure::clock::{now_ns, unix_ms};
use crate::measure::latency::Interval;
use crate::measure::machine::MachineSample;
use crate::measure::process::Sample;
use crate::measure::result::{RunResult, Verified};
use crate::payload::spec::RecordSpec;

/// The schedule begins this long after everything is connected.
const LEAD: Duration = Duration::from_millis(50);
/// How often an interruption, or a failure, is looked for.
const LOOK: Duration = Duration::from_millis(100);

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
    /// How long the broker may be away; `None`: a connection that breaks ends the run.
    pub ride_out: Option<Duration>,
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
    /// For how many seconds the broker has been away, if it is.
    pub away_s: Option<f64>,
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
    let control = Rc::new(Control::default());
    let ride = Ride::new(job.ride_out);
    let unanswered = Unanswered::default();
    let check = Rc::new(RefCell::new(Check::new(&unanswered)));
    let look = match job.kind {
        "verify" => Look::Verify(Rc::clone(&check)),
        "e2e" => Look::Time,
        _ => Look::Count,
    };
    let set_up = || set_up(reactor, job, &look, &ride, &unanswered);
    let ready = insist(reactor, &ride, &control, set_up).await?;
    let topic = ready.topic.name.clone();
    let outcome = measure(reactor, job, ready, (&control, &ride, &unanswered, &check), progress).await;
    if job.target.delete_after {
        // The figures stand, whatever becomes of the topic.
        Cluster::tidy_up(reactor, &job.target.bootstrap, &topic).await;
    }
    outcome
}

/// The run itself, on a topic that is ready.
async fn measure(
    reactor: &Reactor,
    job: &Job,
    ready: Ready,
    (control, ride, unanswered, check): (&Rc<Control>, &Rc<Ride>, &Unanswered, &Rc<RefCell<Check>>),
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Outcome, BenchError> {
    let verify = job.kind == "verify";
    let Ready { topic, producing, consuming, starts, streams, reader_streams } = ready;

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
        Some(plan) => Some(Producing::new(plan, reactor, control, &produced)?),
        None => None,
    };
    let once_more = consuming.clone().filter(|_| ride.patience().is_some());
    let consuming = consuming.map(|plan| Consuming::new(plan, reactor, control, &consumed));

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
    let mut run = Seconds { reactor, ride, window, control, producing: &producing, consuming: &consuming };
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
    let refused = producing.as_ref().is_some_and(|engine| engine.is_finishing());
    if open_end || refused || control.has_failed() {
        produced.borrow_mut().end_at(ended_ns);
        consumed.borrow_mut().end_at(ended_ns);
    }

    // ---- answers that are still to come ----
    let mut again = None;
    if let Some(engine) = &producing {
        match &consuming {
            Some(following) if verify => {
                let (bootstrap, topic, producing, starts) = (&job.target.bootstrap, &topic, engine, &starts);
                let ending = Ending { reactor, bootstrap, topic, control, ride, producing, following, check, starts };
                again = ending.verify(once_more, unanswered).await;
            }
            _ => control.stop(),
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

    let sent = producing.as_ref().map(|engine| engine.sent()).unwrap_or_default();
    let refusal = producing.as_ref().and_then(|engine| engine.take_refusal());
    let again = again.as_ref().map(|again| again.borrow());
    let verdict = verify.then(|| conclude(&check.borrow(), again.as_deref(), &sent, ride, refusal.as_ref()));
    // Found in all that was read, a loss says more than the refusal that came of it.
    let says_more = matches!(verdict, Some(Err(_)));
    let error = control.take_failure().or(refusal.filter(|_| !says_more));
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
    ride: &'a Ride,
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
            let refused = self.producing.as_ref().is_some_and(|engine| engine.is_finishing());
            let over = now >= until_ns || self.control.has_failed() || finished || refused;
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
                away_s: self.ride.away_s(),
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

/// The codec's name as Kafka has it.
pub fn compression(name: &str) -> Option<Compression> {
    [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd]
        .into_iter()
        .find(|codec| codec.name() == name)
}
