//! What one core does for each batch: CRC, validation, append, index look-up.
//!
//! `cargo bench -p corelog-bench --bench storage`
#![allow(missing_docs, clippy::unwrap_used)]

use std::hint::black_box;

use corelog_reactor::ring::{RingConfig, RingDriver};
use corelog_reactor::{Reactor, ReactorLimits, ShardId};
use corelog_storage::batch::{
    AppendOrigin, BatchBuilder, BatchView, Compression, DecompressScratch, TargetCodec, ValidationRules, crc_ok,
    validate,
};
use corelog_storage::disk::datadir::DataDir;
use corelog_storage::ids::{LeaderEpoch, Offset, PartitionIndex, Timestamp, TopicId};
use corelog_storage::log::{AppendError, LeaderBatch, Log, LogConfig, LogName, StorageEnv, StorageOptions};
use corelog_storage::segment::offset_index::OffsetIndex;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

/// (records, bytes of a value): one small record, a full 16 KiB batch, a large one.
const SHAPES: [(usize, usize); 3] = [(1, 1024), (16, 1000), (240, 1024)];

fn batch(codec: Compression, records: usize, bytes: usize) -> Vec<u8> {
    let mut builder = BatchBuilder::new(TargetCodec::default_of(codec));
    let value: Vec<u8> = (0..bytes).map(|at| b"the quick brown fox "[at % 20]).collect();
    for _ in 0..records {
        builder.append(Timestamp(1_000_000), None, Some(&value), &[]);
    }
    builder.build().unwrap()
}

fn checks(c: &mut Criterion) {
    let mut group = c.benchmark_group("batch");
    for (records, bytes) in SHAPES {
        let plain = batch(Compression::None, records, bytes);
        group.throughput(Throughput::Bytes(plain.len() as u64));
        group.bench_with_input(BenchmarkId::new("crc", plain.len()), &plain, |b, batch| {
            b.iter(|| crc_ok(black_box(batch)))
        });
        for codec in [Compression::None, Compression::Lz4, Compression::Zstd] {
            let bytes = batch(codec, records, bytes);
            let mut scratch = DecompressScratch::new();
            let rules = ValidationRules::default();
            let name = BenchmarkId::new(format!("validate {}", codec.name()), plain.len());
            group.bench_with_input(name, &bytes, |b, bytes| {
                b.iter(|| {
                    let view = BatchView::first(black_box(bytes)).unwrap();
                    validate(view, &rules, Timestamp(1_000_000), &mut scratch).unwrap()
                });
            });
        }
    }
}

/// What one pass for the CRC and the copy into the tail would bring against two, behind a copy that stands for the kernel's.
fn passes(c: &mut Criterion) {
    /// As validation takes them.
    const PIECE_BYTES: usize = 16 << 10;
    let mut group = c.benchmark_group("passes");
    group.sample_size(50);
    let arrived = vec![7; 64 << 20];
    let mut tail = vec![1; 128 << 20];
    for bytes in [64 << 10, 256 << 10, 1 << 20] {
        let mut frame = vec![3; bytes];
        group.throughput(Throughput::Bytes(bytes as u64));
        for name in ["received", "received, CRC, copy", "received, both in one pass"] {
            let mut sources = arrived.chunks_exact(bytes).cycle();
            let (mut at, mut crc) = (0, 0);
            group.bench_function(BenchmarkId::new(name, bytes), |b| {
                b.iter(|| {
                    frame.copy_from_slice(sources.next().unwrap());
                    let place = &mut tail[at..at + bytes];
                    match name {
                        "received" => {}
                        "received, CRC, copy" => {
                            crc = frame.chunks(PIECE_BYTES).fold(crc, crc32c::crc32c_append);
                            place.copy_from_slice(&frame);
                        }
                        _ => {
                            for (from, to) in frame.chunks(PIECE_BYTES).zip(place.chunks_mut(PIECE_BYTES)) {
                                crc = crc32c::crc32c_append(crc, from);
                                to.copy_from_slice(from);
                            }
                        }
                    }
                    at = (at + bytes) % (128 << 20);
                });
            });
            black_box(crc);
        }
    }
}

fn append(c: &mut Criterion) {
    let mut group = c.benchmark_group("log");
    let folder = tempfile::Builder::new().prefix("corelog-bench-").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let driver = RingDriver::new(RingConfig::default()).unwrap();
    let limits = ReactorLimits { pool_bytes_max: 256 << 20, ..ReactorLimits::default() };
    let reactor = Reactor::new(Box::new(driver), limits);
    let (_data, log) = reactor.block_on(async {
        let data = DataDir::open(&reactor, folder.path()).await.unwrap();
        let env = StorageEnv::new(reactor.clone(), ShardId(0), data.share(), StorageOptions::default());
        let name = LogName { topic: "bench".into(), partition: PartitionIndex(0), topic_id: TopicId([7; 16]) };
        let log = Log::create(&env, name, LogConfig::default()).await.unwrap();
        log.new_epoch(LeaderEpoch(0), Offset(0)).unwrap();
        (data, log)
    });
    for (records, bytes) in SHAPES {
        let batch = batch(Compression::None, records, bytes);
        group.throughput(Throughput::Bytes(batch.len() as u64));
        // The copy into the tail alone; commits, outside of the measured time, make room again.
        group.bench_with_input(BenchmarkId::new("append", batch.len()), &batch, |b, batch| {
            b.iter_custom(|times| {
                let mut spent = std::time::Duration::ZERO;
                let mut done = 0;
                while done < times {
                    let begun = std::time::Instant::now();
                    let result = {
                        let checked = LeaderBatch::as_it_is(batch, AppendOrigin::Client).unwrap();
                        log.append_as_leader(checked, LeaderEpoch(0), Timestamp(2_000_000))
                    };
                    spent += begun.elapsed();
                    match result {
                        Ok(_) => done += 1,
                        Err(AppendError::Full { .. }) => reactor.block_on(async {
                            while log.needs_commit() {
                                log.commit().await.unwrap();
                            }
                        }),
                        Err(error) => panic!("{error}"),
                    }
                }
                spent
            });
        });
    }
    reactor.shutdown();
}

fn index(c: &mut Criterion) {
    // What a full segment of 1 GiB has at Kafka's default interval of 4 KiB.
    let mut index = OffsetIndex::new(Offset(0));
    for entry in 0..262_144u32 {
        index.append(Offset(i64::from(entry) * 4), entry * 4096);
    }
    let mut at = 0i64;
    c.bench_function("index/floor of 262144 entries", |b| {
        b.iter(|| {
            at = (at + 777_777) % (262_144 * 4);
            index.floor_position(black_box(Offset(at)))
        });
    });
}

criterion_group!(benches, checks, passes, append, index);
criterion_main!(benches);
