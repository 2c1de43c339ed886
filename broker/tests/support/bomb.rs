//! Holds: a small batch that is very large when decompressed.
//! Never touches: connections.

use std::io::Write;

use super::requests::batch;

/// A batch of one record of `len` zero bytes, compressed by gzip to about a thousandth.
pub fn gzip_bomb_batch(len: usize) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    let zeroes = vec![0; 1 << 20];
    // A valid record: attributes, timestamp delta, offset delta, no key, the value's length; the zeroes; no headers.
    let head = [&[0, 0, 0, 1][..], &zigzag(len as u64)].concat();
    encoder.write_all(&zigzag((head.len() + len + 1) as u64)).expect("compressed");
    encoder.write_all(&head).expect("compressed");
    for _ in 0..len >> 20 {
        encoder.write_all(&zeroes).expect("compressed");
    }
    encoder.write_all(&[0]).expect("compressed");
    let records = encoder.finish().expect("compressed");
    let mut batch = batch(&[b"x"], 1);
    // Keep the header up to the records count; attributes say gzip; lengths and CRC follow.
    batch.truncate(61);
    batch.extend(records);
    let batch_len = (batch.len() - 12) as i32;
    batch[8..12].copy_from_slice(&batch_len.to_be_bytes());
    batch[21..23].copy_from_slice(&1i16.to_be_bytes());
    let crc = crc32c::crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    batch
}

fn zigzag(value: u64) -> Vec<u8> {
    let (mut bits, mut bytes) = (value << 1, Vec::new());
    while bits >= 0x80 {
        bytes.push(bits as u8 | 0x80);
        bits >>= 7;
    }
    bytes.push(bits as u8);
    bytes
}
