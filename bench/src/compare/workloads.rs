//! The standard workloads.
//!
//! Holds: what each sends and reads, in the same terms as the command line. Never touches: brokers.

use std::fmt;
use std::time::Duration;

use corelog_storage::batch::Compression;

use super::limit::Limit;
use crate::cli::Compare;
use crate::load::run::{ConsumeSpec, ProduceSpec, Start};
use crate::load::schedule::Pace;
use crate::payload::spec::{RecordSpec, ValueSource};

/// How fast.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Speed {
    /// As fast as answers come.
    Unlimited,
    /// Records a second.
    Fixed(f64),
    /// This share of the highest rate that the second peer reaches with the same load.
    ShareOfSecond(f64),
}

/// A workload.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Its name.
    pub name: &'static str,
    /// In words.
    pub about: &'static str,
    /// See [`crate::load::run::Job::kind`].
    pub kind: &'static str,
    /// Partitions of its topic.
    pub partitions: usize,
    /// What is produced: during the run, or before it when the run only consumes.
    pub produce: ProduceSpec,
    /// What is consumed.
    pub consume: Option<ConsumeSpec>,
    /// How fast.
    pub speed: Speed,
    /// For runs that only consume: bytes to produce first.
    pub prefill_bytes: u64,
    /// Produces this much, instead of for the comparison's seconds.
    pub produce_bytes: Option<u64>,
    /// Rounds, if not the comparison's.
    pub rounds: Option<usize>,
    /// What the machine allows: measured beside it in each round.
    pub limits: Vec<Limit>,
    /// Load before each run's window.
    pub lead_in: Duration,
    /// Seconds of each run, if not the comparison's.
    pub duration: Option<f64>,
    /// Of its topic.
    pub topic_configs: &'static [(&'static str, &'static str)],
}

impl Workload {
    /// How often it is run against each broker, for how long, and behind what.
    pub fn plan(&self, options: &Compare) -> Plan {
        let length = match self.produce_bytes {
            Some(bytes) => Length::Bytes(bytes),
            None => Length::Seconds(self.duration.unwrap_or(options.duration)),
        };
        Plan { rounds: self.rounds.unwrap_or(options.rounds).max(1), length, lead_in: self.lead_in }
    }
}

/// The rounds of a workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// How many.
    pub rounds: usize,
    /// What counts in each.
    pub length: Length,
    /// Load before that in each.
    pub lead_in: Duration,
}

/// How long a round is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Length {
    /// So many seconds.
    Seconds(f64),
    /// Until so many bytes were produced.
    Bytes(u64),
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = if self.rounds == 1 { "" } else { "s" };
        match self.length {
            Length::Seconds(seconds) => write!(f, "{} round{s} of {seconds} s", self.rounds)?,
            Length::Bytes(bytes) => write!(f, "{} round{s} of {} GB", self.rounds, bytes as f64 / 1e9)?,
        }
        write!(f, ", behind {} s of the same load", self.lead_in.as_secs_f64())
    }
}

const KIB: usize = 1024;

/// Those that are compared unless others are named.
pub fn standard() -> Vec<Workload> {
    let mut all = Vec::new();
    for (name, about, batch, partitions) in [
        ("bulk-64k-1", "1 KiB records, 64 KiB batches, 1 partition", 64, 1),
        ("bulk-64k-16", "1 KiB records, 64 KiB batches, 16 partitions", 64, 16),
        ("bulk-256k-4", "1 KiB records, 256 KiB batches, 4 partitions", 256, 4),
        ("bulk-1m-16", "1 KiB records, 1 MiB batches, 16 partitions", 1008, 16),
    ] {
        let produce = ProduceSpec { connections: 8, in_flight: 4, ..produce(1024, batch * KIB) };
        let limits = disk_limits();
        all.push(Workload { name, about, partitions, produce, limits, ..base() });
    }
    all.push(Workload {
        name: "sustained",
        about: "30 GB without a pause: 1 KiB records, 256 KiB batches, 16 partitions",
        partitions: 16,
        produce: ProduceSpec { connections: 8, in_flight: 4, ..produce(1024, 256 * KIB) },
        produce_bytes: Some(30_000_000_000),
        rounds: Some(1),
        limits: disk_limits(),
        ..base()
    });
    all.push(Workload {
        name: "small",
        about: "one 1 KiB record a request, 64 connections with 1 request open each, 16 partitions",
        partitions: 16,
        produce: ProduceSpec { connections: 64, in_flight: 1, ..produce(1024, 1) },
        ..base()
    });
    all.push(Workload {
        name: "cross-core",
        about: "one 1 KiB record a request, 1 connection with 16 requests open, 16 partitions",
        partitions: 16,
        produce: ProduceSpec { connections: 1, in_flight: 16, ..produce(1024, 1) },
        ..base()
    });
    all.push(Workload {
        name: "latency",
        about: "open loop at half of the second peer's highest rate: 1 KiB records, 16 KiB batches, 16 partitions",
        partitions: 16,
        produce: ProduceSpec { connections: 8, in_flight: 5, ..produce(1024, 16 * KIB) },
        speed: Speed::ShareOfSecond(0.5),
        ..base()
    });
    let reads = ConsumeSpec { again: true, until_end: true, ..ConsumeSpec::new(Start::Earliest) };
    let small = ConsumeSpec { max_bytes: 64 << 10, ..reads.clone() };
    for (name, about, consume) in [
        ("tail-1", "tail fetch, 1 consumer", reads.clone()),
        ("tail-8", "tail fetch, 8 consumers that each read all", ConsumeSpec { groups: 8, ..reads }),
        ("tail-1-64k", "tail fetch of at most 64 KiB, 1 consumer", small.clone()),
        (
            "tail-8-64k",
            "tail fetch of at most 64 KiB, 8 consumers that each read all",
            ConsumeSpec { groups: 8, ..small },
        ),
    ] {
        all.push(Workload {
            name,
            about,
            kind: "consume",
            partitions: 8,
            produce: ProduceSpec { connections: 8, in_flight: 4, ..produce(1024, 64 * KIB) },
            limits: vec![Limit::PlainSend(consume.groups)],
            consume: Some(consume),
            prefill_bytes: 48 << 20,
            ..base()
        });
    }
    for (name, about, partitions) in [
        ("e2e-8", "end to end: 10,000 records/s of 1 KiB one by one over 8 partitions, linger 0", 8),
        ("e2e-1", "end to end: 10,000 records/s of 1 KiB one by one over 1 partition, linger 0", 1),
    ] {
        all.push(Workload {
            name,
            about,
            kind: "e2e",
            partitions,
            produce: ProduceSpec { linger: Some(Duration::ZERO), connections: 4, ..produce(1024, 16 * KIB) },
            consume: Some(ConsumeSpec::new(Start::Latest)),
            speed: Speed::Fixed(10_000.0),
            ..base()
        });
    }
    all
}

/// Those that are compared when they are named: they take long, or need brokers that are set up for them.
pub fn special() -> Vec<Workload> {
    let singles = || ProduceSpec { connections: 64, in_flight: 1, ..produce(1024, 1) };
    let many = [
        ("partitions-16", "10,000 single records/s of 1 KiB over 16 partitions", 16),
        ("partitions-10000", "10,000 single records/s of 1 KiB over 10,000 partitions, each receives", 10_000),
    ];
    let many = many.map(|(name, about, partitions)| Workload {
        name,
        about,
        partitions,
        produce: singles(),
        speed: Speed::Fixed(10_000.0),
        // Each partition gets a record a second: its first ones make files, and are not what is measured.
        lead_in: Duration::from_secs(20),
        duration: Some(20.0),
        ..base()
    });
    let keyed = |keys| {
        let produce = produce(1024, 16 * KIB);
        ProduceSpec { connections: 8, records: RecordSpec { keys: Some(keys), ..produce.records }, ..produce }
    };
    let kept: [(_, _, &[_]); 2] = [
        (
            "retained",
            "40,000 records/s of 1 KiB in 16 KiB batches over 8 partitions; segments of 16 MiB, 32 MiB of each are kept",
            &[("segment.bytes", "16777216"), ("retention.bytes", "33554432")],
        ),
        (
            "compacted",
            "40,000 records/s of 1 KiB with 100,000 keys in 16 KiB batches over 8 partitions; compacted segments of 16 MiB",
            &[("segment.bytes", "16777216"), ("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0.1")],
        ),
    ];
    let kept = kept.map(|(name, about, topic_configs)| Workload {
        name,
        about,
        partitions: 8,
        produce: keyed(100_000),
        speed: Speed::Fixed(40_000.0),
        lead_in: Duration::from_secs(10),
        duration: Some(20.0),
        topic_configs,
        ..base()
    });
    many.into_iter().chain(kept).collect()
}

/// Records that carry producer, sequence and checksum: run after every comparison.
pub fn verify() -> Workload {
    Workload {
        name: "verify",
        about: "every record carries producer, sequence and checksum",
        kind: "verify",
        partitions: 8,
        produce: ProduceSpec { connections: 4, idempotent: true, ..produce(1024, 16 * KIB) },
        consume: Some(ConsumeSpec::new(Start::Latest)),
        speed: Speed::Fixed(20_000.0),
        ..base()
    }
}

fn base() -> Workload {
    Workload {
        name: "",
        about: "",
        kind: "produce",
        partitions: 1,
        produce: produce(1024, 16 * KIB),
        consume: None,
        speed: Speed::Unlimited,
        prefill_bytes: 0,
        produce_bytes: None,
        rounds: None,
        limits: Vec::new(),
        lead_in: Duration::from_secs(2),
        duration: None,
        topic_configs: &[],
    }
}

fn disk_limits() -> Vec<Limit> {
    vec![Limit::DurableWrites, Limit::DurableWritesOnFreshSpace]
}

const fn produce(record_bytes: usize, batch_bytes: usize) -> ProduceSpec {
    ProduceSpec {
        records: RecordSpec {
            values: ValueSource::Bytes(record_bytes, record_bytes),
            keys: None,
            codec: Compression::None,
            seed: 1,
        },
        pace: Pace::Unlimited,
        batch_bytes,
        linger: None,
        connections: 4,
        in_flight: 5,
        acks: -1,
        idempotent: false,
        timeout_ms: 30_000,
    }
}
