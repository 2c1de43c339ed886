//! Small durable commits of many partitions of one core: through the commit log, and each to its own segment.
//!
//! `cargo bench -p corelog-bench --bench commit_log [-- FOLDER]`
//!
//! Each partition appends a batch and commits it, again and again, as fast as its commits complete. FOLDER must be on
//! the disk that is to be measured; without it, the build's scratch folder is.
#![allow(missing_docs, clippy::unwrap_used)]

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use corelog_reactor::ring::{RingConfig, RingDriver};
use corelog_reactor::{Reactor, ReactorLimits, ShardId};
use corelog_storage::batch::{AppendOrigin, BatchBuilder, Compression, TargetCodec};
use corelog_storage::disk::datadir::DataDir;
use corelog_storage::ids::{LeaderEpoch, Offset, PartitionIndex, Timestamp, TopicId};
use corelog_storage::log::{CommitLogUse, LeaderBatch, Log, LogConfig, LogName, StorageEnv, StorageOptions};

/// (partitions, bytes of a batch's one record).
const SHAPES: [(i32, usize); 5] = [(1, 1 << 10), (4, 1 << 10), (16, 1 << 10), (16, 16 << 10), (64, 1 << 10)];
const USES: [CommitLogUse; 3] = [CommitLogUse::Never, CommitLogUse::Always, CommitLogUse::Auto];
/// Not measured: files are made, the choice is found.
const WARM_UP: Duration = Duration::from_millis(1_000);
const MEASURED: Duration = Duration::from_millis(3_000);

fn main() {
    let folder = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let folder = folder.unwrap_or_else(|| env!("CARGO_TARGET_TMPDIR").to_owned());
    println!("partitions, bytes, commit log: commits/s, p50 us, p99 us, CPU us a commit, writes a commit, logged");
    for (partitions, bytes) in SHAPES {
        for uses in USES {
            let at = tempfile::Builder::new().prefix("corelog-bench-").tempdir_in(&folder).unwrap();
            measure(at.path(), partitions, bytes, uses);
        }
    }
}

fn measure(folder: &Path, partitions: i32, bytes: usize, uses: CommitLogUse) {
    let driver = RingDriver::new(RingConfig::default()).unwrap();
    let limits = ReactorLimits { pool_bytes_max: 256 << 20, ..ReactorLimits::default() };
    let reactor = Reactor::new(Box::new(driver), limits);
    let options = StorageOptions { commit_log: uses, ..StorageOptions::default() };
    let (data, env, logs) = reactor.block_on(open(&reactor, folder, partitions, options));
    let mut builder = BatchBuilder::new(TargetCodec::default_of(Compression::None));
    builder.append(Timestamp(1_000_000), None, Some(&vec![42; bytes]), &[]);
    let batch: Rc<[u8]> = builder.build().unwrap().into();
    let (times, stop) = (Rc::new(RefCell::new(Vec::<Duration>::new())), Rc::new(Cell::new(false)));
    let running = Rc::new(Cell::new(logs.len()));
    for log in logs {
        let (batch, times, stop, running) = (batch.clone(), times.clone(), stop.clone(), running.clone());
        let task = async move {
            while !stop.get() {
                let checked = LeaderBatch::as_it_is(&batch, AppendOrigin::Client).unwrap();
                log.append_as_leader(checked, LeaderEpoch(0), Timestamp(2_000_000)).unwrap();
                let begun = Instant::now();
                log.commit().await.unwrap();
                times.borrow_mut().push(begun.elapsed());
            }
            running.set(running.get() - 1);
        };
        reactor.spawn(task).unwrap();
    }
    reactor.block_on(reactor.sleep(WARM_UP));
    times.borrow_mut().clear();
    let (before, begun, cpu) = (env.counters(), Instant::now(), cpu_nanos());
    reactor.block_on(reactor.sleep(MEASURED));
    let (after, took, cpu) = (env.counters(), begun.elapsed(), cpu_nanos() - cpu);
    let mut sorted = times.take();
    sorted.sort_unstable();
    let at = |part: f64| sorted.get((sorted.len() as f64 * part) as usize).map_or(0.0, |t| t.as_secs_f64() * 1e6);
    let commits = sorted.len().max(1) as f64;
    let writes = (after.commits - before.commits) + (after.log_writes - before.log_writes);
    let writes = writes + (after.write_backs - before.write_backs);
    println!(
        "{partitions:3} {bytes:6} {:>6}: {:7.0} {:6.0} {:6.0} {:6.1} {:5.2} {:4.0}%",
        format!("{uses:?}"),
        commits / took.as_secs_f64(),
        at(0.5),
        at(0.99),
        cpu as f64 / 1e3 / commits,
        writes as f64 / commits,
        (after.logged_commits - before.logged_commits) as f64 * 100.0 / commits,
    );
    stop.set(true);
    reactor.block_on(async {
        while running.get() > 0 {
            reactor.sleep(Duration::from_millis(1)).await;
        }
    });
    drop((env, data));
    reactor.shutdown();
}

async fn open(
    reactor: &Reactor,
    folder: &Path,
    partitions: i32,
    options: StorageOptions,
) -> (DataDir, StorageEnv, Vec<Log>) {
    let data = DataDir::open(reactor, folder).await.unwrap();
    let env = StorageEnv::new(reactor.clone(), ShardId(0), data.share(), options);
    let mut logs = Vec::new();
    for partition in (0..partitions).map(PartitionIndex) {
        let name = LogName { topic: "bench".into(), partition, topic_id: TopicId([7; 16]) };
        let log = Log::create(&env, name, LogConfig::default()).await.unwrap();
        log.new_epoch(LeaderEpoch(0), Offset(0)).unwrap();
        logs.push(log);
    }
    (data, env, logs)
}

/// What this thread has spent on a CPU.
fn cpu_nanos() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0)
}
