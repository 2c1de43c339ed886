//! What must be there before a run: the topic, the plans, the connections.
//!
//! Holds: the order in which they are asked for. Never touches: load.

use std::rc::Rc;

use corelog_net::wire::ApiKey;
use corelog_reactor::{Reactor, Stream};

use super::consume::{ConsumePlan, Look};
use super::produce::ProducePlan;
use super::ranges::Unanswered;
use super::ride::Ride;
use super::run::{ConsumeSpec, Job, ProduceSpec, Start, TargetSpec};
use crate::client::cluster::{Cluster, EARLIEST, LATEST, Made, Topic};
use crate::client::rpc::connect;
use crate::error::BenchError;
use crate::payload::spec::{RecordMaker, RecordSpec};
use crate::payload::stamp::STAMP_BYTES;
use crate::payload::template::Template;

/// Different batches that a producer sends in turn.
const TEMPLATES: u64 = 16;
/// Bytes that all of them may take.
const TEMPLATE_BYTES_MAX: usize = 64 << 20;
/// Ready to begin.
pub struct Ready {
    /// Where to.
    pub topic: Topic,
    /// What is sent, if anything.
    pub producing: Option<ProducePlan>,
    /// What is read, if anything.
    pub consuming: Option<ConsumePlan>,
    /// Where `verify` begins in each partition.
    pub starts: Vec<i64>,
    /// A connection for each lane.
    pub streams: Vec<Stream>,
    /// And for each reader.
    pub reader_streams: Vec<Stream>,
}

/// Prepares `job`. It may be done again when it failed.
///
/// # Errors
/// The run can't begin.
pub async fn set_up(
    reactor: &Reactor,
    job: &Job,
    look: &Look,
    ride: &Rc<Ride>,
    unanswered: &Unanswered,
) -> Result<Ready, BenchError> {
    let target = &job.target;
    let mut cluster = Cluster::connect(reactor, &target.bootstrap).await?;
    let topic = prepare(reactor, &mut cluster, target).await?;
    let name = topic.name.clone();
    let ready = plan(reactor, job, &mut cluster, topic, look, (ride, unanswered)).await;
    if ready.is_err() && target.delete_after {
        Cluster::tidy_up(reactor, &target.bootstrap, &name).await;
    }
    ready
}

async fn plan(
    reactor: &Reactor,
    job: &Job,
    cluster: &mut Cluster,
    topic: Topic,
    look: &Look,
    shared: (&Rc<Ride>, &Unanswered),
) -> Result<Ready, BenchError> {
    let verify = job.kind == "verify";
    let stamped = job.kind == "e2e" || verify;
    let producing = match &job.produce {
        Some(spec) => Some(produce_plan(cluster, &topic, spec, stamped, shared).await?),
        None => None,
    };
    let consuming = match &job.consume {
        Some(spec) => Some(consume_plan(cluster, &topic, spec, look.clone(), shared.0).await?),
        None => None,
    };
    // Nobody else is expected to write meanwhile: what `verify` reads is what this run sends.
    let starts = if verify { cluster.offsets(&topic, LATEST).await? } else { Vec::new() };
    let lanes = producing.as_ref().map_or(0, |plan| plan.lanes);
    let readers = consuming.as_ref().map_or(0, |plan| plan.assignments.len());
    let streams = connect_all(reactor, &topic.leader, lanes).await?;
    let reader_streams = connect_all(reactor, &topic.leader, readers).await?;
    Ok(Ready { topic, producing, consuming, starts, streams, reader_streams })
}

async fn prepare(reactor: &Reactor, cluster: &mut Cluster, target: &TargetSpec) -> Result<Topic, BenchError> {
    if target.fresh {
        cluster.delete(&target.topic).await?;
    }
    let just_made = match target.create {
        Some(partitions) => cluster.create(&target.topic, partitions, &target.topic_configs).await?,
        None => None,
    };
    let topic = ready(cluster, target, just_made).await;
    if topic.is_err() && just_made.is_some() && target.delete_after {
        Cluster::tidy_up(reactor, &target.bootstrap, &target.topic).await;
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
    (ride, unanswered): (&Rc<Ride>, &Unanswered),
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
        ride: Rc::clone(ride),
        unanswered: unanswered.clone(),
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
    ride: &Rc<Ride>,
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
        ride: Rc::clone(ride),
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
