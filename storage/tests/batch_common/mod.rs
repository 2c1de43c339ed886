//! What the tests of batches share: owned records, strategies, builders.
//!
//! Holds: helpers. Never touches: assertions about the crate.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use corelog_storage::batch::{
    BatchBuilder, BatchView, Compression, DecompressScratch, ProduceError, Record, Records, TargetCodec, Validated,
    ValidationRules, decompress_all, field, sole_batch, validate,
};
use corelog_storage::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};
use proptest::collection::vec;
use proptest::prelude::*;

pub const BOUND: u64 = 1 << 24;

pub const CODECS: [Compression; 5] =
    [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];

/// A record that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    pub timestamp: i64,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Owned {
    pub fn new(timestamp: i64, key: Option<&[u8]>, value: Option<&[u8]>) -> Self {
        Self { timestamp, key: key.map(<[u8]>::to_vec), value: value.map(<[u8]>::to_vec), headers: Vec::new() }
    }

    pub fn of(record: &Record<'_>) -> Self {
        Self {
            timestamp: record.timestamp.0,
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
            headers: record.headers.clone().map(|(key, value)| (key.to_vec(), value.map(<[u8]>::to_vec))).collect(),
        }
    }
}

pub fn append(builder: &mut BatchBuilder, record: &Owned) {
    let headers: Vec<_> = record.headers.iter().map(|(key, value)| (&key[..], value.as_deref())).collect();
    builder.append(Timestamp(record.timestamp), record.key.as_deref(), record.value.as_deref(), &headers);
}

pub fn build(codec: Compression, records: &[Owned]) -> Vec<u8> {
    build_with(BatchBuilder::new(TargetCodec::default_of(codec)), records)
}

pub fn build_with(mut builder: BatchBuilder, records: &[Owned]) -> Vec<u8> {
    for record in records {
        append(&mut builder, record);
    }
    builder.build().expect("a batch that fits")
}

pub fn idempotent(codec: Compression, id: i64, epoch: i16, sequence: i32) -> BatchBuilder {
    BatchBuilder::new(TargetCodec::default_of(codec)).producer(ProducerId(id), ProducerEpoch(epoch), Sequence(sequence))
}

/// `count` small records, a millisecond apart.
pub fn small_records(count: usize) -> Vec<Owned> {
    (0..count)
        .map(|n| {
            let key = format!("key-{n}");
            Owned::new(1_700_000_000_000 + n as i64, Some(key.as_bytes()), Some(b"value"))
        })
        .collect()
}

/// Bytes that no codec makes smaller.
pub fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    (0..bytes)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u8
        })
        .collect()
}

pub fn view(bytes: &[u8]) -> BatchView<'_> {
    BatchView::first(bytes).expect("a whole batch")
}

/// Everything in a batch, whatever its codec.
pub fn records_of(batch: &[u8]) -> Vec<(Offset, Owned)> {
    let view = view(batch);
    let codec = view.header.attributes.compression().expect("a known codec");
    let payload =
        decompress_all(codec, view.payload(), BOUND, &mut DecompressScratch::new()).expect("sound compressed data");
    Records::new(&view.header, &payload)
        .map(|record| record.map(|record| (record.offset, Owned::of(&record))))
        .collect::<Result<_, _>>()
        .expect("sound records")
}

pub fn put(batch: &mut [u8], at: usize, bytes: &[u8]) {
    batch[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Makes the length and the CRC of changed bytes right again.
pub fn reseal(batch: &mut [u8]) {
    use corelog_storage::batch::crc_of;
    let length = (batch.len() - 12) as i32;
    put(batch, field::LENGTH, &length.to_be_bytes());
    let crc = crc_of(batch);
    put(batch, field::CRC, &crc.to_be_bytes());
}

pub fn at(base: i64, epoch: i32) -> (Offset, LeaderEpoch) {
    (Offset(base), LeaderEpoch(epoch))
}

pub fn any_codec() -> impl Strategy<Value = Compression> {
    (0..CODECS.len()).prop_map(|at| CODECS[at])
}

fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => vec(any::<u8>(), 0..40),
        2 => (any::<u8>(), 0_usize..3000).prop_map(|(byte, count)| vec![byte; count]),
        1 => vec(any::<u8>(), 0..3000),
    ]
}

pub fn any_record() -> impl Strategy<Value = Owned> {
    let headers = vec((vec(any::<u8>(), 0..8), proptest::option::of(any_bytes())), 0..4);
    (0..2_000_000_000_000_i64, proptest::option::of(any_bytes()), proptest::option::of(any_bytes()), headers)
        .prop_map(|(timestamp, key, value, headers)| Owned { timestamp, key, value, headers })
}

pub fn any_records() -> impl Strategy<Value = Vec<Owned>> {
    vec(any_record(), 1..30)
}

pub const NOW: Timestamp = Timestamp(1_700_000_001_000);
/// The newest version of Produce.
pub const VERSION: i16 = 13;

pub fn judge(batch: &[u8], rules: &ValidationRules) -> Result<Validated, ProduceError> {
    let batch = sole_batch(batch, VERSION)?;
    validate(batch, rules, NOW, &mut DecompressScratch::new())
}

pub fn refusal(batch: &[u8], rules: &ValidationRules) -> ProduceError {
    judge(batch, rules).expect_err("the batch must be refused")
}

pub fn change(batch: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut batch = batch.to_vec();
    put(&mut batch, at, bytes);
    reseal(&mut batch);
    batch
}

pub fn plain() -> Vec<u8> {
    build(Compression::None, &small_records(3))
}

pub fn with_times(before: i64, after: i64) -> ValidationRules {
    ValidationRules { timestamp_before_max_ms: before, timestamp_after_max_ms: after, ..Default::default() }
}
