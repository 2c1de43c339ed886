//! Holds: a few requests by hand, at old versions without flexible fields where there is one, and record batches.
//! Never touches: the broker's own codec.

use std::io;

use super::raw::{Decoder, Encoder, RawConnection, frame};

/// API keys used here.
pub const PRODUCE: i16 = 0;
/// Fetch.
pub const FETCH: i16 = 1;
/// ListOffsets.
pub const LIST_OFFSETS: i16 = 2;
/// Metadata.
pub const METADATA: i16 = 3;

fn zigzag(mut out: Encoder, value: i64) -> Encoder {
    let mut bits = ((value << 1) ^ (value >> 63)) as u64;
    while bits >= 0x80 {
        out.bytes.push(bits as u8 | 0x80);
        bits >>= 7;
    }
    out.bytes.push(bits as u8);
    out
}

/// A record batch (format 2, not compressed, no producer id) with these values; the key is null.
pub fn batch(values: &[&[u8]], timestamp: i64) -> Vec<u8> {
    let mut records = Encoder::default();
    for (delta, value) in values.iter().enumerate() {
        // Attributes, timestamp delta, offset delta, key length -1, value, no headers.
        let mut record = zigzag(zigzag(zigzag(Encoder::default().i8(0), 0), delta as i64), -1);
        record = zigzag(zigzag(record, value.len() as i64).raw(value), 0);
        records = zigzag(records, record.bytes.len() as i64).raw(&record.bytes);
    }
    let count = values.len() as i32;
    let checked = Encoder::default()
        .i16(0)
        .i32(count - 1)
        .i64(timestamp)
        .i64(timestamp)
        .i64(-1)
        .i16(-1)
        .i32(-1)
        .i32(count)
        .raw(&records.bytes)
        .bytes;
    let crc = crc32c::crc32c(&checked) as i32;
    Encoder::default().i64(0).i32(checked.len() as i32 + 9).i32(-1).i8(2).i32(crc).raw(&checked).bytes
}

/// The values of the records in uncompressed batches, with their offsets.
pub fn values_of(mut blob: &[u8]) -> Vec<(i64, Vec<u8>)> {
    let mut values = Vec::new();
    while blob.len() >= 61 {
        let mut header = Decoder::new(blob);
        let (base, len) = (header.i64(), header.i32() as usize);
        let Some(body) = blob.get(12..12 + len) else { break };
        let count = i32::from_be_bytes(body[45..49].try_into().expect("4 bytes"));
        let mut records = &body[49..];
        for _ in 0..count {
            let len = read_zigzag(&mut records) as usize;
            let (mut record, rest) = records.split_at(len);
            records = rest;
            record = &record[1..];
            let _timestamp_delta = read_zigzag(&mut record);
            let offset = base + read_zigzag(&mut record);
            let key_len = read_zigzag(&mut record).max(0) as usize;
            record = &record[key_len..];
            let value_len = read_zigzag(&mut record).max(0) as usize;
            values.push((offset, record[..value_len].to_vec()));
        }
        blob = &blob[12 + len..];
    }
    values
}

fn read_zigzag(bytes: &mut &[u8]) -> i64 {
    let (mut bits, mut shift) = (0u64, 0);
    loop {
        let (&byte, rest) = bytes.split_first().expect("a varint ends");
        *bytes = rest;
        bits |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            return (bits >> 1) as i64 ^ -((bits & 1) as i64);
        }
    }
}

/// Produce 3 of one batch to one partition.
pub fn produce(topic: &str, partition: i32, acks: i16, batch: &[u8]) -> Encoder {
    let head = Encoder::default().null_string().i16(acks).i32(30_000);
    head.i32(1).string(topic).i32(1).i32(partition).blob(batch)
}

/// (error code, base offset) in the answer to [`produce`].
pub fn produce_answer(answer: &[u8]) -> (i16, i64) {
    let mut answer = Decoder::new(answer);
    assert_eq!(answer.i32(), 1, "topics in a produce answer");
    let _topic = answer.string();
    assert_eq!(answer.i32(), 1, "partitions in a produce answer");
    let _partition = answer.i32();
    (answer.i16(), answer.i64())
}

/// ListOffsets 1 for one partition: -1 latest, -2 earliest.
pub fn list_offsets(topic: &str, partition: i32, timestamp: i64) -> Encoder {
    Encoder::default().i32(-1).i32(1).string(topic).i32(1).i32(partition).i64(timestamp)
}

/// (error code, offset) in the answer to [`list_offsets`].
pub fn list_offsets_answer(answer: &[u8]) -> (i16, i64) {
    let mut answer = Decoder::new(answer);
    assert_eq!(answer.i32(), 1, "topics in a list-offsets answer");
    let _topic = answer.string();
    assert_eq!(answer.i32(), 1, "partitions in a list-offsets answer");
    let _partition = answer.i32();
    let error = answer.i16();
    let _timestamp = answer.i64();
    (error, answer.i64())
}

/// Which fetch session to use.
#[derive(Clone, Copy, Debug)]
pub struct Session {
    /// 0 for none or a new one.
    pub id: i32,
    /// 0 opens a session, -1 is without, else one more each time.
    pub epoch: i32,
}

/// Fetch 7 of these (topic, partition, offset).
pub fn fetch(session: Session, wait_ms_max: i32, partitions: &[(&str, i32, i64)]) -> Encoder {
    fetch_within(session, wait_ms_max, 50 << 20, 1 << 20, partitions)
}

/// The same with limits: bytes of the answer, and of each partition.
pub fn fetch_within(
    session: Session,
    wait_ms_max: i32,
    bytes_max: i32,
    partition_bytes_max: i32,
    partitions: &[(&str, i32, i64)],
) -> Encoder {
    let mut body = Encoder::default().i32(-1).i32(wait_ms_max).i32(1).i32(bytes_max).i8(0);
    body = body.i32(session.id).i32(session.epoch).i32(partitions.len() as i32);
    for (topic, partition, offset) in partitions {
        body = body.string(topic).i32(1).i32(*partition).i64(*offset).i64(-1).i32(partition_bytes_max);
    }
    body.i32(0)
}

/// What a fetch brought.
#[derive(Clone, Debug, Default)]
pub struct Fetched {
    /// Error of the whole request.
    pub error: i16,
    /// The session that it belongs to.
    pub session_id: i32,
    /// (topic, partition, error, high watermark, log start, records).
    pub partitions: Vec<(String, i32, i16, i64, i64, Vec<u8>)>,
}

/// The answer to [`fetch`].
pub fn fetch_answer(answer: &[u8]) -> Fetched {
    let mut answer = Decoder::new(answer);
    let _throttle = answer.i32();
    let mut fetched = Fetched { error: answer.i16(), session_id: answer.i32(), partitions: Vec::new() };
    for _ in 0..answer.i32() {
        let topic = answer.string().unwrap_or_default();
        for _ in 0..answer.i32() {
            let (partition, error, high_watermark) = (answer.i32(), answer.i16(), answer.i64());
            let (_last_stable, log_start) = (answer.i64(), answer.i64());
            for _ in 0..answer.i32().max(0) {
                let _aborted = (answer.i64(), answer.i64());
            }
            let records = answer.blob().to_vec();
            fetched.partitions.push((topic.clone(), partition, error, high_watermark, log_start, records));
        }
    }
    fetched
}

/// Metadata 4 of one topic.
pub fn metadata(topic: &str, create: bool) -> Encoder {
    Encoder::default().i32(1).string(topic).i8(i8::from(create))
}

/// The id of a topic, by Metadata 10, the first version that tells it.
///
/// # Errors
/// What the connection says.
///
/// # Panics
/// If the answer has another shape.
pub fn topic_id(connection: &mut RawConnection, topic: &str) -> io::Result<(i16, [u8; 16])> {
    let compact = |out: Encoder, text: &str| out.i8(text.len() as i8 + 1).raw(text.as_bytes());
    let head = Encoder::default().i16(METADATA).i16(10).i32(77).string("raw").i8(0);
    let body = compact(head.i8(2).raw(&[0; 16]), topic).i8(0).i8(0).i8(0).i8(0).i8(0);
    connection.send(&frame(&body.bytes))?;
    let answer = connection.receive()?;
    let mut answer = Decoder::new(&answer);
    assert_eq!(answer.i32(), 77, "correlation id");
    let byte = |answer: &mut Decoder<'_>| answer.raw(1)[0] as usize;
    assert_eq!(byte(&mut answer), 0, "tagged fields in the header");
    let _throttle = answer.i32();
    for _ in 1..byte(&mut answer) {
        let _node = answer.i32();
        let host = byte(&mut answer) - 1;
        answer.raw(host);
        let _port = answer.i32();
        let rack = byte(&mut answer).saturating_sub(1);
        answer.raw(rack + 1);
    }
    let cluster_id = byte(&mut answer).saturating_sub(1);
    answer.raw(cluster_id);
    let _controller = answer.i32();
    assert_eq!(byte(&mut answer), 2, "one topic");
    let error = answer.i16();
    let name = byte(&mut answer) - 1;
    answer.raw(name);
    Ok((error, answer.raw(16).try_into().expect("16 bytes")))
}
