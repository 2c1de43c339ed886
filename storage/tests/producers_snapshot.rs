//! The producer snapshot file.

use corelog_storage::ids::{Offset, ProducerEpoch, ProducerId, Timestamp};
use corelog_storage::producers::{
    ProducerEntry, SNAPSHOT_BYTES_PER_ENTRY, SnapshotError, decode_snapshot, encode_snapshot,
};
use proptest::prelude::*;

// As Kafka 4.2.0 writes it: producer 1 (epoch 2, batch of 4 to sequence 10 and offset 100, transaction from 90, coordinator
// epoch 5), producer 7 (epoch 3, no batch).
const KAFKA_SNAPSHOT: &str = "0001a627dfb300000002000000000000000100020000000a00000000000000640000000300000000000004d200000005000000000000005a0000000000\
    0000070003ffffffffffffffffffffffff00000000000000000000004dffffffffffffffffffffffff";

fn unhex(text: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal");
    (0..text.len()).step_by(2).map(digit).collect()
}

fn entries(bytes: &[u8]) -> Result<Vec<ProducerEntry>, SnapshotError> {
    decode_snapshot(bytes).map(Iterator::collect)
}

#[test]
fn a_snapshot_of_kafkas_is_read_and_written_again_byte_for_byte() {
    let bytes = unhex(KAFKA_SNAPSHOT);
    let entries = entries(&bytes).expect("sound");
    assert_eq!(encode_snapshot(entries.iter()), bytes);
    let [first, second] = &entries[..] else { panic!("{} entries", entries.len()) };
    assert_eq!((first.producer_id, first.epoch), (ProducerId(1), ProducerEpoch(2)));
    assert_eq!((first.last_sequence().0, first.last_offset().0), (10, 100));
    assert_eq!(first.last_batch().map(|batch| (batch.first_sequence().0, batch.first_offset().0)), Some((7, 97)));
    assert_eq!((first.last_timestamp, first.coordinator_epoch), (Timestamp(1234), 5));
    assert_eq!(first.transaction_start, Some(Offset(90)));
    assert_eq!((second.producer_id, second.last_batch(), second.transaction_start), (ProducerId(7), None, None));
    assert_eq!((second.epoch, second.last_timestamp), (ProducerEpoch(3), Timestamp(77)));
}

#[test]
fn an_empty_snapshot_has_no_producers() {
    let bytes = encode_snapshot([].iter());
    assert_eq!(bytes.len(), 10);
    assert_eq!(entries(&bytes), Ok(Vec::new()));
}

#[test]
fn another_version_is_refused() {
    let mut bytes = unhex(KAFKA_SNAPSHOT);
    bytes[1] = 2;
    assert_eq!(entries(&bytes), Err(SnapshotError::Version { version: 2 }));
}

#[test]
fn every_cut_and_every_changed_byte_is_noticed() {
    let bytes = unhex(KAFKA_SNAPSHOT);
    for at in 0..bytes.len() {
        assert!(entries(&bytes[..at]).is_err(), "cut at {at}");
        let mut changed = bytes.clone();
        changed[at] ^= 0x10;
        assert!(entries(&changed).is_err(), "byte {at} changed");
    }
    assert!(entries(&[&bytes[..], &[0]].concat()).is_err());
}

#[test]
fn a_count_that_the_bytes_do_not_bear_out_is_refused_before_it_sizes_anything() {
    for count in [i32::MAX, -1, 3] {
        let mut bytes = unhex(KAFKA_SNAPSHOT);
        bytes[6..10].copy_from_slice(&count.to_be_bytes());
        let crc = crc32c::crc32c(&bytes[6..]);
        bytes[2..6].copy_from_slice(&crc.to_be_bytes());
        let expected = usize::try_from(count).map_or(0, |count| 10 + count * SNAPSHOT_BYTES_PER_ENTRY);
        assert_eq!(entries(&bytes), Err(SnapshotError::Length { bytes: bytes.len(), count, expected }));
    }
}

proptest! {
    #[test]
    fn any_bytes_are_decoded_or_refused_without_a_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), is_sealed: bool) {
        if is_sealed && bytes.len() >= 10 {
            bytes[..2].copy_from_slice(&[0, 1]);
            let count = ((bytes.len() - 10) / SNAPSHOT_BYTES_PER_ENTRY) as i32;
            bytes.truncate(10 + count as usize * SNAPSHOT_BYTES_PER_ENTRY);
            bytes[6..10].copy_from_slice(&count.to_be_bytes());
            let crc = crc32c::crc32c(&bytes[6..]);
            bytes[2..6].copy_from_slice(&crc.to_be_bytes());
            prop_assert!(entries(&bytes).is_ok());
        }
        for entry in entries(&bytes).unwrap_or_default() {
            let _ = (entry.last_sequence(), entry.last_batch().map(|batch| (batch.first_offset(), batch.first_sequence())));
        }
    }
}
