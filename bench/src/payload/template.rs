//! Batches made before the run, so that sending one costs its header.
//!
//! Holds: encoded records, and for every count k the first k of them as a batch: bytes, CRC, and how that CRC combines
//! with a header's. Never touches: sockets, time.
//!
//! Offset and timestamp deltas of records count from the batch's start, so a prefix of encoded records is a batch too:
//! only the header differs. Its CRC is that of 40 header bytes followed by the records: CRCs are linear, so the records'
//! part is computed once and the header's part is moved past them by a matrix (`Shift`) instead of going over the records
//! again.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use corelog_storage::batch::{
    Attributes, BatchBuilder, BatchHeader, Compression, Compressor, HEADER_BYTES, LENGTH_PREFIX_BYTES, TargetCodec,
    field,
};
use corelog_storage::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};

use super::spec::{KEY_BYTES, RecordMaker};
use super::stamp::{STAMP_BYTES, Stamp};
use crate::error::BenchError;

/// Most records of a template, however small they are.
const RECORDS_MAX: usize = 32_768;

/// Who produces a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Producer {
    /// Id, -1 for none.
    pub id: i64,
    /// Epoch, -1 for none.
    pub epoch: i16,
    /// Sequence of the batch's first record, -1 for none.
    pub sequence: i32,
}

impl Producer {
    /// No idempotence.
    pub const NONE: Self = Self { id: -1, epoch: -1, sequence: -1 };
}

/// Records encoded once.
pub struct Template {
    payload: Arc<[u8]>,
    records: Vec<Place>,
    codec: TargetCodec,
    pieces: RefCell<Vec<Option<Rc<Piece>>>>,
}

/// Where a record lies.
#[derive(Clone, Copy, Debug)]
struct Place {
    key_at: Option<usize>,
    value_at: usize,
    value_len: usize,
    end: usize,
}

/// What differs from record to record of a batch that is [written](Template::written) for one send.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fill {
    /// Another key than the template's.
    pub key: Option<[u8; KEY_BYTES]>,
    /// At the front of the value.
    pub stamp: Option<Stamp>,
}

/// The records of a batch, ready to be sent any number of times.
#[derive(Debug)]
pub struct Piece {
    /// The bytes; only the first `len` of them.
    pub bytes: Arc<[u8]>,
    /// How many.
    pub len: usize,
    records: usize,
    codec: Compression,
    crc: u32,
    shift: Shift,
}

/// The linear map that moves a CRC-32C past a number of bytes.
#[derive(Clone, Debug)]
struct Shift(Box<[u32; 32]>);

impl Shift {
    fn past(bytes: usize) -> Self {
        let mut columns = Box::new([0; 32]);
        for (bit, column) in columns.iter_mut().enumerate() {
            *column = crc32c::crc32c_combine(1 << bit, 0, bytes);
        }
        Self(columns)
    }

    fn apply(&self, crc: u32) -> u32 {
        self.0.iter().enumerate().fold(0, |sum, (bit, column)| if crc >> bit & 1 == 1 { sum ^ column } else { sum })
    }
}

impl Template {
    /// Encodes records until a batch would pass `batch_bytes`, at least one; `value_bytes_min` makes room for stamps.
    ///
    /// # Errors
    /// The records do not fit a batch.
    pub fn new(maker: &mut RecordMaker, batch_bytes: usize, value_bytes_min: usize) -> Result<Self, BenchError> {
        let mut builder = BatchBuilder::new(TargetCodec::None);
        let mut records: Vec<Place> = Vec::new();
        let mut next = (maker.key(), maker.value(value_bytes_min));
        loop {
            builder.append(Timestamp(0), next.0.as_ref().map(<[u8; KEY_BYTES]>::as_slice), Some(&next.1), &[]);
            let end = builder.uncompressed_bytes() - HEADER_BYTES;
            // No headers: one byte that says so follows the value.
            let (value_at, value_len) = (end - 1 - next.1.len(), next.1.len());
            // Its length stands between key and value.
            let key_at = next.0.map(|_| value_at - varint_bytes(value_len) - KEY_BYTES);
            records.push(Place { key_at, value_at, value_len, end });
            next = (maker.key(), maker.value(value_bytes_min));
            let overhead = 24;
            let key_len = next.0.map_or(0, |_| KEY_BYTES);
            if HEADER_BYTES + end + next.1.len() + key_len + overhead > batch_bytes || records.len() >= RECORDS_MAX {
                break;
            }
        }
        let batch = builder.build().map_err(|error| BenchError::Usage(format!("--batch-bytes: {error}")))?;
        let payload = Arc::from(batch.get(HEADER_BYTES..).unwrap_or_default());
        let pieces = RefCell::new(vec![None; records.len() + 1]);
        Ok(Self { payload, records, codec: maker.codec(), pieces })
    }

    /// Records of a full batch.
    pub fn records(&self) -> usize {
        self.records.len()
    }

    /// The first `records` records.
    ///
    /// # Errors
    /// The codec failed.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn piece(&self, records: usize) -> Result<Rc<Piece>, BenchError> {
        if let Some(piece) = &self.pieces.borrow()[records] {
            return Ok(Rc::clone(piece));
        }
        let plain = &self.payload[..self.end(records)];
        let (bytes, len) = match self.codec {
            TargetCodec::None => (Arc::clone(&self.payload), plain.len()),
            codec => {
                let mut out = Vec::new();
                compress(codec, plain, &mut out)?;
                let len = out.len();
                (Arc::from(out), len)
            }
        };
        let crc = crc32c::crc32c(&bytes[..len]);
        let piece = Rc::new(Piece { bytes, len, records, codec: self.codec.codec(), crc, shift: Shift::past(len) });
        self.pieces.borrow_mut()[records] = Some(Rc::clone(&piece));
        Ok(piece)
    }

    /// Writes a whole batch of the first `records` records into `out`, each with what `fill` gives it.
    ///
    /// # Errors
    /// The codec failed.
    pub fn written(
        &self,
        records: usize,
        producer: Producer,
        now_unix_ms: i64,
        mut fill: impl FnMut(usize) -> Fill,
        scratch: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<(), BenchError> {
        out.clear();
        out.resize(HEADER_BYTES, 0);
        let end = self.end(records);
        let plain = |bytes: &mut [u8], fill: &mut dyn FnMut(usize) -> Fill| {
            for (index, place) in self.records[..records].iter().enumerate() {
                let Fill { key, stamp } = fill(index);
                if let (Some(key), Some(at)) = (key, place.key_at) {
                    bytes[at..at + KEY_BYTES].copy_from_slice(&key);
                }
                if let Some(stamp) = stamp {
                    stamp.write(&mut bytes[place.value_at..place.value_at + place.value_len]);
                }
            }
        };
        match self.codec {
            TargetCodec::None => {
                out.extend_from_slice(&self.payload[..end]);
                plain(&mut out[HEADER_BYTES..], &mut fill);
            }
            codec => {
                scratch.clear();
                scratch.extend_from_slice(&self.payload[..end]);
                plain(scratch, &mut fill);
                compress(codec, scratch, out)?;
            }
        }
        let header = header(self.codec.codec(), records, out.len() - HEADER_BYTES, producer, now_unix_ms);
        out[..HEADER_BYTES].copy_from_slice(&header.encode());
        let crc = crc32c::crc32c(&out[field::ATTRIBUTES..]);
        out[field::CRC..field::CRC + 4].copy_from_slice(&crc.to_be_bytes());
        Ok(())
    }

    fn end(&self, records: usize) -> usize {
        records.checked_sub(1).map_or(0, |last| self.records[last].end)
    }

    /// Whether every value has room for a stamp.
    pub fn has_room_for_stamps(&self) -> bool {
        self.records.iter().all(|place| place.value_len >= STAMP_BYTES)
    }
}

impl Piece {
    /// The header of a batch of these records.
    pub fn header(&self, producer: Producer, now_unix_ms: i64) -> [u8; HEADER_BYTES] {
        let mut bytes = header(self.codec, self.records, self.len, producer, now_unix_ms).encode();
        let head = crc32c::crc32c(&bytes[field::ATTRIBUTES..]);
        let crc = self.shift.apply(head) ^ self.crc;
        bytes[field::CRC..field::CRC + 4].copy_from_slice(&crc.to_be_bytes());
        bytes
    }

    /// Bytes of the batch.
    pub const fn batch_bytes(&self) -> usize {
        HEADER_BYTES + self.len
    }
}

/// Bytes of a length before what it measures: seven bits a byte, of twice the number (zigzag).
const fn varint_bytes(length: usize) -> usize {
    let mut rest = length * 2;
    let mut bytes = 1;
    while rest >= 128 {
        rest >>= 7;
        bytes += 1;
    }
    bytes
}

fn header(codec: Compression, records: usize, payload: usize, producer: Producer, now: i64) -> BatchHeader {
    BatchHeader {
        base_offset: Offset::ZERO,
        length: (HEADER_BYTES - LENGTH_PREFIX_BYTES + payload) as i32,
        leader_epoch: LeaderEpoch::NONE,
        crc: 0,
        attributes: Attributes(0).with_compression(codec),
        last_offset_delta: records as i32 - 1,
        base_timestamp: Timestamp(now),
        max_timestamp: Timestamp(now),
        producer_id: ProducerId(producer.id),
        producer_epoch: ProducerEpoch(producer.epoch),
        base_sequence: Sequence(producer.sequence),
        record_count: records as i32,
    }
}

fn compress(codec: TargetCodec, plain: &[u8], out: &mut Vec<u8>) -> Result<(), BenchError> {
    let failed = |error| BenchError::Usage(format!("--compression: {error}"));
    let mut compressor = Compressor::new(codec).map_err(failed)?;
    compressor.write(plain, out).map_err(failed)?;
    compressor.finish(out).map_err(failed)
}

#[cfg(test)]
mod tests {
    use corelog_storage::batch::{BatchView, DecompressScratch, Records, decompress_all};

    use super::super::spec::{RecordMaker, RecordSpec, ValueSource, key};
    use super::*;

    fn template(codec: Compression) -> Template {
        let spec = RecordSpec { values: ValueSource::Bytes(50, 190), keys: Some(9), codec, seed: 3 };
        Template::new(&mut RecordMaker::new(spec).unwrap(), 4096, STAMP_BYTES).unwrap()
    }

    const CODECS: [Compression; 5] =
        [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];

    #[test]
    fn every_prefix_of_a_template_is_a_sound_batch() {
        for codec in CODECS {
            let template = template(codec);
            assert!(template.records() > 20);
            for records in [1, 2, template.records() / 2, template.records()] {
                let piece = template.piece(records).unwrap();
                let producer = Producer { id: 77, epoch: 1, sequence: records as i32 };
                let mut batch = piece.header(producer, 1_700_000_000_000).to_vec();
                batch.extend_from_slice(&piece.bytes[..piece.len]);
                let view = BatchView::first(&batch).unwrap();
                assert!(view.crc_ok(), "{codec:?}, {records} records");
                assert_eq!((view.bytes.len(), view.header.record_count), (piece.batch_bytes(), records as i32));
                let plain = plain_of(&view);
                assert_eq!(Records::new(&view.header, &plain).filter(Result::is_ok).count(), records);
            }
        }
    }

    #[test]
    fn stamps_and_keys_arrive_as_they_were_written() {
        for codec in CODECS {
            let template = template(codec);
            let count = template.records();
            let stamp = |index: usize| Stamp { producer: 5, sequence: 1000 + index as u64, at_ns: 42 };
            let fill = |index| Fill { key: Some(key(index as u64)), stamp: Some(stamp(index)) };
            let (mut scratch, mut batch) = (Vec::new(), Vec::new());
            template.written(count, Producer::NONE, 9, fill, &mut scratch, &mut batch).unwrap();
            let view = BatchView::first(&batch).unwrap();
            assert!(view.crc_ok());
            let plain = plain_of(&view);
            for (index, record) in Records::new(&view.header, &plain).enumerate() {
                let record = record.unwrap();
                assert_eq!(record.key.unwrap(), key(index as u64));
                assert_eq!(Stamp::read(record.value.unwrap()), Some(stamp(index)));
            }
        }
    }

    fn plain_of(view: &BatchView<'_>) -> Vec<u8> {
        match view.header.attributes.compression().unwrap() {
            Compression::None => view.payload().to_vec(),
            codec => decompress_all(codec, view.payload(), 1 << 20, &mut DecompressScratch::new()).unwrap(),
        }
    }
}
