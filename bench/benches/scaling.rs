//! Appends and mail in one process: of one shard on one core, and of two shards on two.
//!
//! `cargo bench -p corelog-bench --bench scaling`
//!
//! Each shard appends batches of its own and batches that the other shard mails to it, and mails as many itself; each mailed
//! batch is answered. A shard that is alone mails to itself. Batches are counted while they are made part of the log in memory; between rounds, not counted, both
//! logs commit what they hold: the cores are measured and not the disk that they share. Threads share nothing but the
//! mailboxes and the batches on their way: what the second core brings is what is lost nowhere.
//!
//! `cargo bench -p corelog-bench --bench scaling -- PAYLOAD` does the same with records of that many bytes, one a batch.
#![allow(missing_docs, clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use corelog_reactor::ring::{RingConfig, RingDriver};
use corelog_reactor::{
    CoreId, Mail, MailPort, Reactor, ReactorLimits, ShardId, WakeTarget, available_cores, mail_mesh, pin_to_core,
};
use corelog_storage::batch::{AppendOrigin, BatchBuilder, Compression, TargetCodec};
use corelog_storage::disk::datadir::DataDir;
use corelog_storage::ids::{LeaderEpoch, Offset, PartitionIndex, Timestamp, TopicId};
use corelog_storage::log::{LeaderBatch, Log, LogConfig, LogName, StorageEnv, StorageOptions};

/// Bytes that a shard appends in a round, of its own and mailed ones together: as much as waits in memory for a commit.
const ROUND_BYTES: usize = 32 << 20;
/// Mailed batches that are not answered yet: of 64 connections with 8 requests open.
const WINDOW: u64 = 512;
/// Batches of its own that a shard appends in a turn.
const TURN: u64 = 32;
/// Rounds before anything counts: memory is touched for the first time, files get their room.
const WARM_UP: usize = 6;
/// Rounds of a run.
const ROUNDS: usize = 10;
/// Runs of each kind.
const RUNS: usize = 5;
/// Copies of the batch that a shard mails in turn: a count of references that two cores change all the time is no load that a
/// broker has, whose batches are of many requests.
const COPIES: usize = 1024;

enum Message {
    Append(Bytes),
    Appended,
    /// The sender needs no more answers in this round.
    Done,
}

struct Shard {
    reactor: Reactor,
    port: MailPort<Message>,
    /// Whom it mails.
    peer: ShardId,
    log: Log,
    _data: DataDir,
    batches: Vec<Bytes>,
    /// Of its own that it appends in a round; it mails as many.
    round: u64,
}

impl Shard {
    fn new(port: MailPort<Message>, peer: ShardId, folder: &Path, payload: Option<usize>) -> Self {
        let folder = folder.join(port.id().0.to_string());
        std::fs::create_dir(&folder).unwrap();
        let limits =
            ReactorLimits { pool_bytes_max: 4 * ROUND_BYTES, spin_max: Duration::ZERO, ..ReactorLimits::default() };
        let reactor = Reactor::new(Box::new(RingDriver::new(RingConfig::default()).unwrap()), limits);
        let id = port.id();
        let (data, log) = reactor.block_on(async {
            let data = DataDir::open(&reactor, &folder).await.unwrap();
            let env = StorageEnv::new(reactor.clone(), id, data.share(), options());
            let name = LogName { topic: "bench".into(), partition: PartitionIndex(0), topic_id: TopicId([7; 16]) };
            let log = Log::create(&env, name, LogConfig::default()).await.unwrap();
            log.new_epoch(LeaderEpoch(0), Offset(0)).unwrap();
            (data, log)
        });
        let mut builder = BatchBuilder::new(TargetCodec::default_of(Compression::None));
        let (records, bytes) = payload.map_or((16, 1000), |bytes| (1, bytes));
        for _ in 0..records {
            builder.append(Timestamp(1_000_000), None, Some(&vec![42; bytes]), &[]);
        }
        let batch = builder.build().unwrap();
        let batches = (0..COPIES).map(|_| Bytes::copy_from_slice(&batch)).collect();
        Self { reactor, port, peer, log, _data: data, batches, round: (ROUND_BYTES / batch.len() / 2) as u64 }
    }

    fn batch(&self, number: u64) -> &Bytes {
        &self.batches[number as usize % COPIES]
    }

    fn append(&self, batch: &[u8]) {
        let checked = LeaderBatch::as_it_is(batch, AppendOrigin::Client).unwrap();
        self.log.append_as_leader(checked, LeaderEpoch(0), Timestamp(2_000_000)).unwrap();
    }

    /// Everything that was appended goes to the disk, and the log's own background work is done.
    fn commit(&self) {
        self.reactor.block_on(async {
            while self.log.needs_commit() {
                self.log.commit().await.unwrap();
            }
        });
        self.reactor.run_tasks();
    }

    fn run(&mut self) {
        let peer = self.peer;
        let (mut own, mut mailed, mut answered, mut peer_done, mut told) = (0, 0, 0, false, false);
        let mut owed = 0;
        loop {
            while let Some((_, message)) = self.port.recv() {
                match message {
                    Message::Append(batch) => {
                        self.append(&batch);
                        owed += 1;
                    }
                    Message::Appended => answered += 1,
                    Message::Done => peer_done = true,
                }
            }
            while owed > 0 && self.port.send(peer, Message::Appended).is_ok() {
                owed -= 1;
            }
            while mailed < self.round
                && mailed - answered < WINDOW
                && self.port.send(peer, Message::Append(self.batch(mailed).clone())).is_ok()
            {
                mailed += 1;
            }
            // Half of the load is mail, from the beginning of a round to its end.
            for _ in 0..TURN.min(mailed - own) {
                self.append(self.batch(own));
                own += 1;
            }
            if answered == self.round && !told {
                told = self.port.send(peer, Message::Done).is_ok();
            }
            self.port.wake_peers(&self.reactor);
            if own == self.round && answered == self.round && peer_done && told && owed == 0 {
                break;
            }
            self.reactor.park(&Turn { port: &self.port, is_busy: own < mailed });
            self.reactor.reap();
        }
        // Hands the last wake-up to the kernel.
        self.reactor.park(&Turn { port: &self.port, is_busy: true });
        self.reactor.reap();
    }
}

/// The mail, and whether there is work without any.
struct Turn<'a> {
    port: &'a MailPort<Message>,
    is_busy: bool,
}

impl Mail for Turn<'_> {
    fn has_mail(&self) -> bool {
        self.is_busy || self.port.has_mail()
    }

    fn set_parked(&self, target: WakeTarget) {
        self.port.set_parked(target);
    }

    fn clear_parked(&self) {
        self.port.clear_parked();
    }
}

/// As much in memory as a round appends, so that none waits for the disk.
fn options() -> StorageOptions {
    let bytes = 2 * ROUND_BYTES;
    StorageOptions { pending_bytes_max: bytes as u64, tail_cache_bytes_max: bytes, ..StorageOptions::default() }
}

fn run(cores: &[CoreId], folder: &Path, payload: Option<usize>) -> Rate {
    let barrier = Arc::new(Barrier::new(cores.len()));
    let ports = mail_mesh::<Message>(cores.len(), 1024);
    let threads: Vec<_> = ports
        .into_iter()
        .zip(cores)
        .map(|(port, &core)| {
            let peer = ShardId((port.id().0 + 1) % cores.len() as u16);
            let (folder, barrier): (PathBuf, _) = (folder.into(), Arc::clone(&barrier));
            thread::spawn(move || {
                assert!(pin_to_core(core));
                let mut shard = Shard::new(port, peer, &folder, payload);
                let (mut took, mut busy) = (Duration::ZERO, Duration::ZERO);
                for round in 0..WARM_UP + ROUNDS {
                    barrier.wait();
                    let (begun, busy_before) = (Instant::now(), thread_cpu());
                    shard.run();
                    let busy_after = thread_cpu();
                    // The round is over when it is for all.
                    barrier.wait();
                    if round >= WARM_UP {
                        took += begun.elapsed();
                        busy += busy_after - busy_before;
                    }
                    shard.commit();
                }
                shard.reactor.shutdown();
                let appends = 2.0 * (shard.round * ROUNDS as u64) as f64;
                Rate { appends: appends / took.as_secs_f64(), busy: busy.as_secs_f64() / took.as_secs_f64() }
            })
        })
        .collect();
    let rates: Vec<Rate> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    let busy = rates.iter().map(|rate| rate.busy).sum::<f64>() / rates.len() as f64;
    Rate { appends: rates.iter().map(|rate| rate.appends).sum(), busy }
}

struct Rate {
    /// A second, of all shards together.
    appends: f64,
    /// Share of the time that a thread was on its core.
    busy: f64,
}

fn thread_cpu() -> Duration {
    Duration::from(nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap())
}

fn main() {
    let cores = available_cores();
    let [one, two, ..] = cores[..] else {
        println!("one core only: nothing to compare");
        return;
    };
    // Cargo adds an option of its own.
    let payload = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let payload = payload.map(|bytes| bytes.parse().expect("the bytes of a record"));
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..RUNS {
        for (which, cores) in [&[one][..], &[one, two]].into_iter().enumerate() {
            let folder = tempfile::Builder::new().prefix("corelog-scaling-").tempdir().unwrap();
            rates[which].push(run(cores, folder.path(), payload));
        }
    }
    let median = rates.map(|mut rates| {
        rates.sort_by(|a, b| a.appends.total_cmp(&b.appends));
        let (least, middle, most) = (&rates[0], &rates[RUNS / 2], &rates[RUNS - 1]);
        println!("{:.0} – {:.0} appends/s, cores {:.0} % busy", least.appends, most.appends, 100.0 * middle.busy);
        middle.appends
    });
    println!("on one core: {:.0} appends/s, on two: {:.0}, ratio {:.2}", median[0], median[1], median[1] / median[0]);
}
