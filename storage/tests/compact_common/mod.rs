//! What the tests of compaction share: logs as lists of batches, a round over them, and what a consumer then sees.
//!
//! Holds: helpers. Never touches: assertions about the crate.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use corelog_storage::batch::{
    BatchBuilder, BatchView, Batches, Compression, DecompressScratch, ScanState, TargetCodec, decompress_all,
};
use corelog_storage::batch::{Records, crc_ok};
use corelog_storage::compact::{
    AbortedTransaction, BatchVerdict, Control, Filter, HashSecret, KeyMap, KeyScan, LastWrites, Remains, Round,
    SurvivorRewrite, Transactions, write_header,
};
use corelog_storage::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};
use corelog_storage::producers::EndMarker;

pub const BOUND: u64 = 1 << 24;
pub const SECRET: HashSecret = HashSecret([3, 5]);

/// A record as a consumer sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub offset: i64,
    pub timestamp: i64,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

/// What a round is told, besides the log.
#[derive(Clone, Debug)]
pub struct Plan {
    pub first_dirty: i64,
    /// The first offset that the round must not touch.
    pub end: i64,
    pub now: i64,
    pub delete_retention_ms: i64,
    pub map_bytes: usize,
    pub aborted: Vec<AbortedTransaction>,
    pub producers: LastWrites,
    /// Bytes of one slice.
    pub slice: usize,
}

impl Plan {
    pub fn up_to(end: i64) -> Self {
        Self {
            first_dirty: 0,
            end,
            now: 1_000_000,
            delete_retention_ms: 1_000,
            map_bytes: 1 << 20,
            aborted: Vec::new(),
            producers: LastWrites::default(),
            slice: 64 << 10,
        }
    }
}

/// The batches of a log's bytes.
pub fn batches(log: &[u8]) -> Vec<BatchView<'_>> {
    Batches::new(log).map(|batch| batch.expect("a log of whole batches")).collect()
}

/// One round over a log; the new log, and the offset behind what the map covered.
pub fn compact(log: &[u8], plan: &Plan) -> (Vec<u8>, i64) {
    let mut scratch = DecompressScratch::new();
    let mut map = KeyMap::new(plan.map_bytes, 0.9, u64::MAX, SECRET);
    let mut transactions = Transactions::new(plan.aborted.iter().copied());
    for batch in batches(log) {
        if batch.header.base_offset.0 >= plan.end {
            break;
        }
        if batch.header.attributes.is_control() {
            let control = Control::read(&batch, &mut scratch).expect("a readable control batch");
            transactions.on_control(&batch.header, control);
        } else if !transactions.on_data(&batch.header) {
            let mut scan = KeyScan::new(&batch, Offset(plan.first_dirty), BOUND, &mut scratch).expect("a known codec");
            let state = loop {
                match scan.step(&mut map, plan.slice).expect("readable records") {
                    ScanState::Pending => {}
                    state => break state,
                }
            };
            if state == ScanState::Stopped {
                break;
            }
        } else {
            map.reach(batch.header.last_offset().expect("a sound batch"));
        }
    }
    let covered = map.latest().0 + 1;
    let round = Round {
        map: &map,
        producers: &plan.producers,
        end: Offset(plan.end),
        now: Timestamp(plan.now),
        delete_retention_ms: plan.delete_retention_ms,
        decompressed_bytes_max: BOUND,
    };
    let mut transactions = Transactions::new(plan.aborted.iter().copied());
    let mut out = Vec::new();
    for batch in batches(log) {
        if batch.header.base_offset.0 >= plan.end.min(covered) {
            out.extend_from_slice(batch.bytes);
            continue;
        }
        filter(&batch, &round, &mut transactions, plan.slice, &mut out);
    }
    (out, covered)
}

pub fn filter(
    batch: &BatchView<'_>,
    round: &Round<'_>,
    transactions: &mut Transactions,
    slice: usize,
    out: &mut Vec<u8>,
) {
    let mut scratch = DecompressScratch::new();
    let is_control = batch.header.attributes.is_control();
    let control = is_control.then(|| Control::read(batch, &mut scratch).expect("a readable control batch"));
    let verdict = BatchVerdict::on(&batch.header, control, transactions, round);
    let remains = {
        let mut filter = Filter::new(batch, verdict, BOUND, &mut scratch).expect("a known codec");
        loop {
            if let Some(remains) = filter.step(round, slice).expect("readable records") {
                break remains;
            }
        }
    };
    match remains {
        Remains::Nothing => {}
        Remains::All => out.extend_from_slice(batch.bytes),
        Remains::Header(header) => write_header(header, out).expect("a header"),
        Remains::Some(survivors) => {
            let mut rewrite = SurvivorRewrite::new(batch, &survivors, BOUND, &mut scratch, out).expect("a codec");
            while !rewrite.step(slice, out).expect("a rewrite") {}
        }
    }
}

/// All records of a log, control records left out; every batch must be sound and stand behind the one before it.
pub fn seen(log: &[u8]) -> Vec<Seen> {
    let mut scratch = DecompressScratch::new();
    let mut out = Vec::new();
    let mut next = 0;
    for batch in batches(log) {
        let header = batch.header;
        assert!(crc_ok(batch.bytes), "CRC of batch {}", header.base_offset);
        assert!(header.base_offset.0 >= next, "batch {} behind offset {next}", header.base_offset);
        next = header.last_offset().expect("a sound header").0 + 1;
        if header.attributes.is_control() || header.record_count == 0 {
            continue;
        }
        let codec = header.attributes.compression().expect("a known codec");
        let payload = decompress_all(codec, batch.payload(), BOUND, &mut scratch).expect("sound data");
        for record in Records::new(&header, &payload) {
            let record = record.expect("a sound record");
            assert!((header.base_offset.0..next).contains(&record.offset.0), "offset {}", record.offset);
            out.push(Seen {
                offset: record.offset.0,
                timestamp: record.timestamp.0,
                key: record.key.map(<[u8]>::to_vec),
                value: record.value.map(<[u8]>::to_vec),
                headers: record.headers.clone().map(|(k, v)| (k.to_vec(), v.map(<[u8]>::to_vec))).collect(),
            });
        }
    }
    out
}

/// A log under construction.
#[derive(Clone, Debug, Default)]
pub struct LogBuilder {
    pub bytes: Vec<u8>,
    pub next: i64,
}

pub type Pair<'a> = (&'a str, Option<&'a str>);

impl LogBuilder {
    pub fn builder(&self, codec: Compression) -> BatchBuilder {
        BatchBuilder::new(TargetCodec::default_of(codec)).at(Offset(self.next), LeaderEpoch(4))
    }

    /// Appends a batch of these keys and values, a millisecond apart from the offset on.
    pub fn batch(&mut self, codec: Compression, records: &[Pair<'_>]) {
        let builder = self.builder(codec);
        self.push(builder, records);
    }

    pub fn push(&mut self, mut builder: BatchBuilder, records: &[Pair<'_>]) {
        for (at, (key, value)) in records.iter().enumerate() {
            let timestamp = Timestamp(1_000 + self.next + at as i64);
            builder.append(timestamp, Some(key.as_bytes()), value.map(str::as_bytes), &[]);
        }
        self.next += records.len() as i64;
        builder.build_into(&mut self.bytes).expect("a batch");
    }

    /// A transactional batch.
    pub fn transactional(&mut self, producer: i64, sequence: i32, records: &[Pair<'_>]) {
        let builder = self
            .builder(Compression::None)
            .producer(ProducerId(producer), ProducerEpoch(0), Sequence(sequence))
            .transactional();
        self.push(builder, records);
    }

    /// The marker that ends a transaction.
    pub fn marker(&mut self, producer: i64, is_abort: bool) {
        let (key, value) = EndMarker { is_abort, coordinator_epoch: 0 }.encode();
        let mut builder = self
            .builder(Compression::None)
            .producer(ProducerId(producer), ProducerEpoch(0), Sequence::NONE)
            .transactional()
            .control();
        builder.append(Timestamp(1_000 + self.next), Some(&key), Some(&value), &[]);
        self.next += 1;
        builder.build_into(&mut self.bytes).expect("a batch");
    }
}
