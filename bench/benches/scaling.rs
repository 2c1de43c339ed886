//! Two shards in one process that append and mail, on one core and on two.
//!
//! `cargo bench -p corelog-bench --bench scaling`
//!
//! Each shard appends batches of its own and batches that the other shard mails to it, and mails as many itself; each mailed
//! batch is answered. The logs lie in memory (tmpfs), so that the cores are measured and not the disk they share. Threads
//! share nothing but the mailboxes: what the second core brings is what is lost nowhere.
#![allow(missing_docs, clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use corelog_reactor::ring::{RingConfig, RingDriver};
use corelog_reactor::{CoreId, MailPort, Reactor, ReactorLimits, ShardId, available_cores, mail_mesh, pin_to_core};
use corelog_storage::batch::{AppendOrigin, BatchBuilder, Compression, TargetCodec};
use corelog_storage::disk::datadir::DataDir;
use corelog_storage::ids::{LeaderEpoch, Offset, PartitionIndex, Timestamp, TopicId};
use corelog_storage::log::{AppendError, LeaderBatch, Log, LogConfig, LogName, StorageEnv, StorageOptions};

/// Batches of its own that a shard appends; it mails as many.
const BATCHES: u64 = 40_000;
/// Mailed batches that are not answered yet.
const WINDOW: u64 = 64;
/// Runs of each kind.
const ROUNDS: usize = 5;

enum Message {
    Append(Bytes),
    Appended,
    /// The sender needs no more answers.
    Done,
}

struct Shard {
    reactor: Reactor,
    port: MailPort<Message>,
    log: Log,
    _data: DataDir,
    batch: Bytes,
}

impl Shard {
    fn new(number: u16, port: MailPort<Message>, folder: &Path) -> Self {
        let folder = folder.join(number.to_string());
        std::fs::create_dir(&folder).unwrap();
        let limits = ReactorLimits { pool_bytes_max: 256 << 20, spin_max: Duration::ZERO, ..ReactorLimits::default() };
        let reactor = Reactor::new(Box::new(RingDriver::new(RingConfig::default()).unwrap()), limits);
        let id = ShardId(number);
        let (data, log) = reactor.block_on(async {
            let data = DataDir::open(&reactor, &folder).await.unwrap();
            let env = StorageEnv::new(reactor.clone(), id, data.share(), StorageOptions::default());
            let name = LogName { topic: "bench".into(), partition: PartitionIndex(0), topic_id: TopicId([7; 16]) };
            let log = Log::create(&env, name, LogConfig::default()).await.unwrap();
            log.new_epoch(LeaderEpoch(0), Offset(0)).unwrap();
            (data, log)
        });
        let mut builder = BatchBuilder::new(TargetCodec::default_of(Compression::None));
        for _ in 0..16 {
            builder.append(Timestamp(1_000_000), None, Some(&[42; 1000]), &[]);
        }
        Self { reactor, port, log, _data: data, batch: builder.build().unwrap().into() }
    }

    fn append(&self, batch: &[u8]) {
        loop {
            let checked = LeaderBatch::as_it_is(batch, AppendOrigin::Client).unwrap();
            match self.log.append_as_leader(checked, LeaderEpoch(0), Timestamp(2_000_000)) {
                Ok(_) => return,
                Err(AppendError::Full { .. }) => self.reactor.block_on(async {
                    while self.log.needs_commit() {
                        self.log.commit().await.unwrap();
                    }
                }),
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn run(&mut self) {
        let peer = ShardId(1 - self.port.id().0);
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
            while mailed < BATCHES
                && mailed - answered < WINDOW
                && self.port.send(peer, Message::Append(self.batch.clone())).is_ok()
            {
                mailed += 1;
            }
            for _ in 0..WINDOW.min(BATCHES - own) {
                self.append(&self.batch);
                own += 1;
            }
            if answered == BATCHES && !told {
                told = self.port.send(peer, Message::Done).is_ok();
            }
            self.port.wake_peers(&self.reactor);
            if own == BATCHES && answered == BATCHES && peer_done && told && owed == 0 {
                break;
            }
            if own == BATCHES && !self.port.has_mail() {
                self.reactor.park(&self.port);
            }
            self.reactor.reap();
            // The log's own background work.
            self.reactor.run_tasks();
        }
        self.reactor.reap();
    }
}

fn run(cores: [CoreId; 2], folder: &Path) -> f64 {
    let start = Arc::new(Barrier::new(3));
    let ports = mail_mesh::<Message>(2, 1024);
    let threads: Vec<_> = ports
        .into_iter()
        .zip(cores)
        .enumerate()
        .map(|(number, (port, core))| {
            let (folder, start): (PathBuf, _) = (folder.into(), Arc::clone(&start));
            thread::spawn(move || {
                assert!(pin_to_core(core));
                let mut shard = Shard::new(number as u16, port, &folder);
                start.wait();
                shard.run();
                let done = Instant::now();
                shard.reactor.shutdown();
                done
            })
        })
        .collect();
    start.wait();
    let begun = Instant::now();
    let done = threads.into_iter().map(|thread| thread.join().unwrap()).max().unwrap();
    4.0 * BATCHES as f64 / (done - begun).as_secs_f64()
}

fn main() {
    let cores = available_cores();
    let [one, two, ..] = cores[..] else {
        println!("one core only: nothing to compare");
        return;
    };
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (which, pair) in [[one, one], [one, two]].into_iter().enumerate() {
            let folder = tempfile::Builder::new().prefix("corelog-scaling-").tempdir_in("/dev/shm").unwrap();
            rates[which].push(run(pair, folder.path()));
        }
    }
    let median = rates.map(|mut rates| {
        rates.sort_by(f64::total_cmp);
        println!("{:.0} – {:.0} appends/s", rates[0], rates[ROUNDS - 1]);
        rates[ROUNDS / 2]
    });
    println!("on one core: {:.0} appends/s, on two: {:.0}, ratio {:.2}", median[0], median[1], median[1] / median[0]);
}
