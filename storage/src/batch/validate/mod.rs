//! What a leader checks before it appends a batch.
//!
//! Holds: the checks, in Kafka's order, sliced so that a large batch does not hold a core.
//! Never touches: producer state (see `producers`), offsets, the log.
//!
//! # What is checked when
//!
//! | # | step | check | error |
//! |---|---|---|---|
//! | 1 | [`sole_batch`] | the length field is 14 or more (the smallest of any version) | `CORRUPT_MESSAGE` |
//! | 2 | | the format version is 0, 1 or 2 | `CORRUPT_MESSAGE` |
//! | 3 | | there is a whole batch; a cut one at the end is no batch | `INVALID_RECORD` |
//! | 4 | | the format version is 2 | `INVALID_RECORD` |
//! | 5 | | no zstd before Produce v7 (KIP-110) | `UNSUPPORTED_COMPRESSION_TYPE` |
//! | 6 | | no second whole batch; 1 and 2 hold for what follows | `INVALID_RECORD` |
//! | | *(API layer)* | *authorization, leadership, acks against `min.insync.replicas`* | |
//! | 7 | [`Validation::begin`] | base offset is 0 ᶜ | `INVALID_RECORD` |
//! | 8 | | at most `max.message.bytes`, length prefix included | `MESSAGE_TOO_LARGE` |
//! | 9 | [`Validation::step`] | at least a header of bytes, and the CRC | `CORRUPT_MESSAGE` |
//! | 10 | | the codec is known | `UNKNOWN_SERVER_ERROR` |
//! | 11 | | last offset delta is 0 or more ᶜ | `INVALID_RECORD` |
//! | 12 | | record count is 1 or more, and as many as offsets ᶜ | `INVALID_RECORD` |
//! | 13 | | no control batch ᶜ | `INVALID_RECORD` |
//! | 14 | | a producer id comes with a sequence of 0 or more ᶜ | `INVALID_RECORD` |
//! | 15 | records | the codec can read them | `UNKNOWN_SERVER_ERROR` |
//! | 16 | | they stay below the output bound (ours; a bomb) | `MESSAGE_TOO_LARGE` |
//! | 17 | | lengths and fields agree; headers have keys; as many records as promised; nothing behind them | `INVALID_RECORD` |
//! | 18 | each record | a key, on a compacted topic | `INVALID_RECORD` + `record_errors` |
//! | 19 | | with CreateTime: between now - `message.timestamp.before.max.ms` and now + `message.timestamp.after.max.ms`, unless -1 | `INVALID_TIMESTAMP` + `record_errors` |
//! | 20 | | otherwise: the producer has not set LogAppendTime | `INVALID_TIMESTAMP` + `record_errors` |
//! | 21 | after a [`Rewrite`](crate::batch::Rewrite) | at most `max.message.bytes` | `MESSAGE_TOO_LARGE` |
//! | 22 | at the end | at most `segment.bytes` | `RECORD_LIST_TOO_LARGE` |
//! | 23 | `producers` | duplicates, epoch, transaction, sequence | see there |
//!
//! ᶜ For a client's batches only. A record that 18-20 refuse is remembered and the walk goes on, so that all of them are listed; a
//! fault of 15-17 further on wins. If any timestamp is refused, the code is `INVALID_TIMESTAMP` for all.
//!
//! `UNSUPPORTED_FOR_MESSAGE_FORMAT` needs a topic of an older format; there is none since Kafka 4.0 (KIP-724).
//!
//! # What is repaired instead of refused
//!
//! - A wrong max timestamp in the header is replaced by the records' maximum.
//! - With LogAppendTime the type bit and the append time are stamped.
//! - Offset deltas other than 0, 1, 2 … are renumbered by a rewrite. Kafka 4.2 renumbers when it changes the codec, answers
//!   `UNKNOWN_SERVER_ERROR` to a compressed batch whose codec stays, and stores an uncompressed one as it is, with offsets that
//!   no consumer can rely on.
//! - A codec other than the topic's `compression.type` is replaced by a rewrite.
//! - A producer that set LogAppendTime on a CreateTime topic is judged by the max timestamp (19), which is what the bit makes
//!   of every record. The bit is cleared. A rewrite gives every record that timestamp; a batch that needs none keeps its
//!   records' own deltas, which nobody has judged. Both as Kafka.
//!
//! # Where we are stricter than Kafka
//!
//! - 16: Kafka has no bound.
//! - 17: for a compressed batch that needs no rewrite, Kafka does not compare a record's length with its fields.
//! - Bytes behind the end of a gzip or lz4 stream are refused (`INVALID_RECORD`), and a wrong lz4 content checksum or content
//!   size (by 15): there are consumers that do not get past them.
//! - Kafka lists every refused record; we list the first 1000.

mod error;
mod plain;
mod sole;

pub use error::{ProduceError, ProduceErrorKind, REFUSED_RECORDS_MAX, RecordRefusal, RefusedRecord, RefusedRecords};
pub use sole::sole_batch;

use super::codec::{DecompressScratch, TargetCodec};
use super::scan::{RecordScan, ScanState};
use super::walk::RecordFacts;
use super::{AppendOrigin, BatchHeader, BatchView, Compression, HEADER_BYTES, TimestampType, field, stamp};
use crate::ids::{LeaderEpoch, Offset, Timestamp};
use core::ops::ControlFlow;
use plain::PlainPass;

/// A bound on decompression for those who have no better one: 128 times Kafka's default batch.
pub const DECOMPRESSED_BYTES_MAX_DEFAULT: u64 = 128 << 20;

/// Checking a byte's CRC costs about this many times less than walking over it.
const CRC_BYTES_PER_STEP_BYTE: usize = 8;

/// What a topic's configuration asks of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValidationRules {
    /// Where the batch comes from.
    pub origin: AppendOrigin,
    /// `max.message.bytes`: bytes of a batch, length prefix included.
    pub batch_bytes_max: usize,
    /// `segment.bytes`.
    pub segment_bytes_max: usize,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`.
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`.
    pub timestamp_after_max_ms: i64,
    /// `cleanup.policy` includes `compact`.
    pub is_compacted: bool,
    /// `compression.type` with its level; `None` for `producer`, which keeps what the producer chose.
    pub compression: Option<TargetCodec>,
    /// Most bytes that a compressed batch may decompress to.
    pub decompressed_bytes_max: u64,
}

impl Default for ValidationRules {
    /// Kafka's defaults, for a client's batches.
    fn default() -> Self {
        Self {
            origin: AppendOrigin::Client,
            batch_bytes_max: 1_048_588,
            segment_bytes_max: 1 << 30,
            timestamp_type: TimestampType::CreateTime,
            timestamp_before_max_ms: i64::MAX,
            timestamp_after_max_ms: 3_600_000,
            is_compacted: false,
            compression: None,
            decompressed_bytes_max: DECOMPRESSED_BYTES_MAX_DEFAULT,
        }
    }
}

impl ValidationRules {
    pub(super) const fn check_batch_bytes(&self, bytes: usize) -> Result<(), ProduceError> {
        if bytes > self.batch_bytes_max {
            return Err(ProduceError::BatchTooLarge { bytes, bytes_max: self.batch_bytes_max });
        }
        Ok(())
    }

    pub(super) const fn check_segment_bytes(&self, bytes: usize) -> Result<(), ProduceError> {
        if bytes > self.segment_bytes_max {
            return Err(ProduceError::SegmentTooSmall { bytes, bytes_max: self.segment_bytes_max });
        }
        Ok(())
    }

    const fn is_from_client(&self) -> bool {
        matches!(self.origin, AppendOrigin::Client)
    }
}

/// Why and how a batch must be written anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RewritePlan {
    /// The codec to write.
    pub target: TargetCodec,
    /// Whether offset deltas are put in order.
    pub renumber: bool,
}

/// A batch that passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validated {
    /// Its header, as sent.
    pub header: BatchHeader,
    /// What the header's timestamp type must say.
    pub timestamp_type: TimestampType,
    /// What the header's max timestamp must say: the records' maximum, or the append time.
    pub max_timestamp: Timestamp,
    /// The earliest record with the max timestamp, relative to the base offset (0 for append time).
    pub max_timestamp_delta: i32,
    /// Set when the batch cannot be stored as it is.
    pub rewrite: Option<RewritePlan>,
    /// Bytes of the records when not compressed.
    pub uncompressed_bytes: u64,
}

impl Validated {
    /// The append time for the response; -1 unless the topic has LogAppendTime.
    #[must_use]
    pub const fn log_append_time(&self) -> Timestamp {
        match self.timestamp_type {
            TimestampType::CreateTime => Timestamp::NONE,
            TimestampType::LogAppendTime => self.max_timestamp,
        }
    }

    /// Whether [`stamp`](Self::stamp) changes more than base offset and leader epoch.
    #[must_use]
    pub fn changes_time(&self) -> bool {
        self.header.attributes.timestamp_type() != self.timestamp_type
            || self.header.max_timestamp != self.max_timestamp
    }

    /// Stamps a copy (or the original) of the header of a batch that needs no rewrite. Returns the new header, decoded.
    #[must_use]
    pub fn stamp(
        &self,
        header: &mut [u8; HEADER_BYTES],
        base_offset: Offset,
        leader_epoch: LeaderEpoch,
    ) -> BatchHeader {
        let mut stamped = self.header;
        stamp::stamp_place(header, base_offset, leader_epoch);
        stamp::stamp_time(header, &mut stamped, self.timestamp_type, self.max_timestamp);
        BatchHeader { base_offset, leader_epoch, ..stamped }
    }
}

/// A validation under way.
#[derive(Debug)]
pub struct Validation<'a> {
    batch: BatchView<'a>,
    rules: &'a ValidationRules,
    now: Timestamp,
    phase: Phase<'a>,
    verdicts: Verdicts,
}

#[derive(Debug)]
enum Phase<'a> {
    Plain(PlainPass<'a>),
    Crc { position: usize, crc: u32, scratch: &'a mut DecompressScratch },
    Records(RecordScan<'a>),
    Over,
}

/// What the records have shown so far.
#[derive(Debug)]
struct Verdicts {
    max_timestamp: Timestamp,
    max_timestamp_delta: i32,
    is_in_order: bool,
    refused: Option<Box<RefusedRecords>>,
}

impl<'a> Validation<'a> {
    /// Starts on a batch. `now` is the broker's time: the append time, and what CreateTime is compared with.
    ///
    /// # Errors
    /// When the header alone is reason to refuse.
    pub fn begin(
        batch: BatchView<'a>,
        rules: &'a ValidationRules,
        now: Timestamp,
        scratch: &'a mut DecompressScratch,
    ) -> Result<Self, ProduceError> {
        if rules.is_from_client() && batch.header.base_offset != Offset::ZERO {
            return Err(ProduceError::BaseOffset { base_offset: batch.header.base_offset.0 });
        }
        rules.check_batch_bytes(batch.bytes.len())?;
        let phase = if batch.header.attributes.compression() == Some(Compression::None) {
            let scan = RecordScan::new(&batch, rules.decompressed_bytes_max, scratch)?;
            Phase::Plain(PlainPass::new(scan, check_header(&batch.header, rules).err()))
        } else {
            Phase::Crc { position: field::ATTRIBUTES, crc: 0, scratch }
        };
        Ok(Self {
            batch,
            rules,
            now,
            phase,
            verdicts: Verdicts {
                max_timestamp: Timestamp::NONE,
                max_timestamp_delta: 0,
                is_in_order: true,
                refused: None,
            },
        })
    }

    /// Goes on for about `bytes_max` bytes' worth of work. `None`: call again, after letting others run.
    ///
    /// # Errors
    /// The first refusal in the order of the table; the validation is over then.
    pub fn step(&mut self, bytes_max: usize) -> Result<Option<Validated>, ProduceError> {
        match core::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Plain(mut pass) => {
                if !self.go_over(&mut pass, bytes_max) {
                    self.phase = Phase::Plain(pass);
                    return Ok(None);
                }
                self.check_crc(pass.crc)?;
                match pass.fault {
                    Some(fault) => Err(fault),
                    None => self.conclude(pass.scan, pass.state),
                }
            }
            Phase::Crc { position, crc, scratch } => {
                let rest = self.batch.bytes.get(position..).unwrap_or_default();
                let slice = rest.len().min(bytes_max.saturating_mul(CRC_BYTES_PER_STEP_BYTE));
                let crc = crc32c::crc32c_append(crc, rest.get(..slice).unwrap_or_default());
                if slice < rest.len() {
                    self.phase = Phase::Crc { position: position + slice, crc, scratch };
                    return Ok(None);
                }
                self.check_crc(crc)?;
                check_header(&self.batch.header, self.rules)?;
                let mut scan = RecordScan::new(&self.batch, self.rules.decompressed_bytes_max, scratch)?;
                // A batch that fits one slice is done in one call.
                let left = bytes_max.saturating_sub(slice / CRC_BYTES_PER_STEP_BYTE).max(1);
                let state = self.records(&mut scan, left)?;
                self.conclude(scan, state)
            }
            Phase::Records(mut scan) => {
                let state = self.records(&mut scan, bytes_max)?;
                self.conclude(scan, state)
            }
            Phase::Over => Ok(None),
        }
    }

    fn check_crc(&self, computed: u32) -> Result<(), ProduceError> {
        let stored = self.batch.header.crc;
        if computed == stored { Ok(()) } else { Err(ProduceError::Crc { stored, computed }) }
    }

    fn records(&mut self, scan: &mut RecordScan<'a>, bytes_max: usize) -> Result<ScanState, ProduceError> {
        let (header, rules, now) = (&self.batch.header, self.rules, self.now);
        let verdicts = &mut self.verdicts;
        let state = scan.step(bytes_max, |facts| {
            verdicts.record(facts, header, rules, now);
            ControlFlow::Continue(())
        })?;
        Ok(state)
    }

    fn conclude(&mut self, scan: RecordScan<'a>, state: ScanState) -> Result<Option<Validated>, ProduceError> {
        match state {
            ScanState::Pending | ScanState::Stopped => {
                self.phase = Phase::Records(scan);
                return Ok(None);
            }
            ScanState::Done => {}
        }
        if let Some(refused) = self.verdicts.refused.take() {
            return Err(ProduceError::Records(refused));
        }
        let header = self.batch.header;
        let rewrite = self.rewrite_plan();
        // The size of a rewritten batch is checked when it is known.
        if rewrite.is_none() {
            self.rules.check_segment_bytes(self.batch.bytes.len())?;
        }
        let (max_timestamp, max_timestamp_delta) = match self.rules.timestamp_type {
            TimestampType::CreateTime => (self.verdicts.max_timestamp, self.verdicts.max_timestamp_delta),
            TimestampType::LogAppendTime => (self.now, 0),
        };
        Ok(Some(Validated {
            header,
            timestamp_type: self.rules.timestamp_type,
            max_timestamp,
            max_timestamp_delta,
            rewrite,
            uncompressed_bytes: scan.uncompressed_bytes(),
        }))
    }

    fn rewrite_plan(&self) -> Option<RewritePlan> {
        let attributes = self.batch.header.attributes;
        let source = attributes.compression()?;
        let wanted = self.rules.compression.unwrap_or(TargetCodec::default_of(source));
        // Control records keep their form, so that whoever parses them need not decompress.
        let target = if attributes.is_control() { TargetCodec::default_of(source) } else { wanted };
        let renumber = !self.verdicts.is_in_order;
        (target.codec() != source || renumber).then_some(RewritePlan { target, renumber })
    }
}

fn check_header(header: &BatchHeader, rules: &ValidationRules) -> Result<(), ProduceError> {
    let attributes = header.attributes;
    if attributes.compression().is_none() {
        return Err(ProduceError::UnknownCodec { id: attributes.compression_id() });
    }
    if !rules.is_from_client() {
        return Ok(());
    }
    let offsets = i64::from(header.last_offset_delta) + 1;
    if offsets <= 0 {
        return Err(ProduceError::OffsetRange { last_offset_delta: header.last_offset_delta });
    }
    if header.record_count <= 0 {
        return Err(ProduceError::RecordCount { count: header.record_count });
    }
    if offsets != i64::from(header.record_count) {
        return Err(ProduceError::CountMismatch { offsets, count: header.record_count });
    }
    if attributes.is_control() {
        return Err(ProduceError::ControlBatch);
    }
    if header.has_producer_id() && header.base_sequence.0 < 0 {
        let (producer_id, base_sequence) = (header.producer_id, header.base_sequence);
        return Err(ProduceError::NegativeSequence { producer_id, base_sequence });
    }
    Ok(())
}

impl Verdicts {
    fn record(&mut self, facts: &RecordFacts, header: &BatchHeader, rules: &ValidationRules, now: Timestamp) {
        let batch_type = header.attributes.timestamp_type();
        let timestamp = super::record::record_timestamp(header, facts.timestamp_delta);
        if let Some(reason) = refusal(facts, timestamp, batch_type, rules, now) {
            self.refused.get_or_insert_default().push(facts.index, reason);
            return;
        }
        self.is_in_order &= facts.offset_delta == facts.index;
        if timestamp > self.max_timestamp {
            self.max_timestamp = timestamp;
            self.max_timestamp_delta = facts.index;
        }
    }
}

fn refusal(
    facts: &RecordFacts,
    timestamp: Timestamp,
    batch_type: TimestampType,
    rules: &ValidationRules,
    now: Timestamp,
) -> Option<RecordRefusal> {
    if rules.is_compacted && facts.key_bytes < 0 {
        return Some(RecordRefusal::NoKey);
    }
    if rules.timestamp_type == TimestampType::CreateTime && timestamp != Timestamp::NONE {
        // Wrapping as in Java, so that a timestamp at the edge of the number range gets Kafka's answer.
        let age = now.0.wrapping_sub(timestamp.0);
        let is_out = age > rules.timestamp_before_max_ms || age.wrapping_neg() > rules.timestamp_after_max_ms;
        return is_out.then_some(RecordRefusal::Timestamp {
            timestamp,
            earliest: Timestamp(now.0.saturating_sub(rules.timestamp_before_max_ms)),
            latest: Timestamp(now.0.saturating_add(rules.timestamp_after_max_ms)),
        });
    }
    (batch_type == TimestampType::LogAppendTime).then_some(RecordRefusal::LogAppendTime)
}

/// Validates a batch in one go: for small ones, tests and tools.
///
/// # Errors
/// As [`Validation::begin`] and [`Validation::step`].
pub fn validate(
    batch: BatchView<'_>,
    rules: &ValidationRules,
    now: Timestamp,
    scratch: &mut DecompressScratch,
) -> Result<Validated, ProduceError> {
    let mut validation = Validation::begin(batch, rules, now, scratch)?;
    loop {
        if let Some(validated) = validation.step(usize::MAX)? {
            return Ok(validated);
        }
    }
}
