//! The batch format: header, walk, records, builder.

mod batch_common;

use batch_common::*;
use core::ops::ControlFlow;
use corelog_storage::batch::{
    Attributes, BatchBuilder, BatchError, BatchHeader, BatchView, Batches, Compression, HEADER_BYTES, HeaderError,
    MalformedRecords, RecordFacts, RecordWalk, Records, TargetCodec, TimestampType, crc_ok, field, stamp_place,
    stamp_time,
};
use corelog_storage::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};
use proptest::prelude::*;

#[test]
fn fewer_bytes_than_a_header_are_no_batch() {
    let batch = build(Compression::None, &small_records(1));
    for have in 0..HEADER_BYTES {
        assert_eq!(BatchHeader::parse(&batch[..have]), Err(HeaderError::TooShort { have }));
        assert!(!crc_ok(&batch[..have]), "{have} bytes");
    }
}

#[test]
fn another_format_version_is_no_batch() {
    let mut batch = build(Compression::None, &small_records(1));
    for magic in [0_i8, 1, 3, -1] {
        batch[field::MAGIC] = magic as u8;
        assert_eq!(BatchHeader::parse(&batch), Err(HeaderError::Magic { magic }));
    }
}

#[test]
fn a_length_that_does_not_cover_the_header_is_no_batch() {
    let mut batch = build(Compression::None, &small_records(1));
    for length in [48, 0, -1, i32::MIN] {
        put(&mut batch, field::LENGTH, &length.to_be_bytes());
        assert_eq!(BatchHeader::parse(&batch), Err(HeaderError::Length { length }));
    }
    put(&mut batch, field::LENGTH, &49_i32.to_be_bytes());
    assert_eq!(BatchHeader::parse(&batch).map(|header| header.total_bytes()), Ok(HEADER_BYTES));
}

#[test]
fn the_attributes_are_where_kafka_puts_them() {
    let batch = idempotent(Compression::Zstd, 7, 1, 0).transactional().control().log_append_time(Timestamp(5));
    let batch = build_with(batch, &small_records(1));
    let attributes = view(&batch).header.attributes;
    assert_eq!(attributes, Attributes(0b11_1100));
    assert_eq!(attributes.compression(), Some(Compression::Zstd));
    assert_eq!(attributes.timestamp_type(), TimestampType::LogAppendTime);
    assert!(attributes.is_transactional() && attributes.is_control());
    assert!(!attributes.has_delete_horizon());
    assert_eq!(Attributes(0x45).compression(), None);
    assert!(Attributes(0x40).has_delete_horizon());
}

#[test]
fn the_delete_horizon_is_the_base_timestamp_under_its_flag() {
    let batch = build(Compression::None, &small_records(1));
    let mut header = view(&batch).header;
    assert_eq!(header.delete_horizon(), None);
    header.attributes = header.attributes.with_delete_horizon(true);
    assert_eq!(header.delete_horizon(), Some(header.base_timestamp));
}

#[test]
fn the_last_sequence_wraps_as_the_producer_counts() {
    let batch = build_with(idempotent(Compression::None, 1, 0, i32::MAX - 1), &small_records(4));
    assert_eq!(view(&batch).header.last_sequence(), Sequence(1));
    let batch = build(Compression::None, &small_records(4));
    assert_eq!(view(&batch).header.last_sequence(), Sequence::NONE);
}

#[test]
fn a_blob_yields_its_batches_and_reports_a_cut_one() {
    let batches: Vec<_> = (1..4).map(|n| build(Compression::None, &small_records(n))).collect();
    let blob = batches.concat();
    let found: Vec<_> = Batches::new(&blob).map(|view| view.expect("whole").bytes.to_vec()).collect();
    assert_eq!(found, batches);

    let whole = batches[0].len() + batches[1].len();
    for cut in whole + 1..blob.len() {
        let mut walk = Batches::new(&blob[..cut]);
        assert!(walk.by_ref().take(2).all(|view| view.is_ok()));
        let need = if cut - whole < 12 { HEADER_BYTES } else { batches[2].len() };
        let expected = BatchError::Truncated { position: whole, need, have: cut - whole };
        assert_eq!(walk.next(), Some(Err(expected)), "cut at {cut}");
        assert_eq!(walk.next(), None, "a walk that failed is over");
        assert_eq!(walk.position(), whole);
    }
}

#[test]
fn garbage_between_batches_ends_the_walk_with_its_position() {
    let batch = build(Compression::None, &small_records(1));
    let blob = [&batch[..], &[0; 100]].concat();
    let mut walk = Batches::new(&blob);
    assert!(walk.next().is_some_and(|view| view.is_ok()));
    let error = HeaderError::Magic { magic: 0 };
    assert_eq!(walk.next(), Some(Err(BatchError::Header { position: batch.len(), error })));
}

#[test]
fn base_offset_and_leader_epoch_are_not_covered_by_the_crc() {
    let mut batch = build(Compression::None, &small_records(3));
    let header = batch.first_chunk_mut::<HEADER_BYTES>().expect("a header");
    stamp_place(header, Offset(42), LeaderEpoch(9));
    let view = view(&batch);
    assert!(view.crc_ok());
    assert_eq!((view.header.base_offset, view.header.leader_epoch), at(42, 9));
    assert_eq!(view.header.last_offset(), Some(Offset(44)));
}

#[test]
fn stamping_the_time_that_is_there_changes_nothing() {
    let batch = build(Compression::None, &small_records(3));
    let mut header = *batch.first_chunk::<HEADER_BYTES>().expect("a header");
    let mut parsed = view(&batch).header;
    let max = parsed.max_timestamp;
    assert!(!stamp_time(&mut header, &mut parsed, TimestampType::CreateTime, max));
    assert_eq!(header[..], batch[..HEADER_BYTES]);
}

#[test]
fn records_with_append_time_all_carry_it() {
    let builder = BatchBuilder::new(TargetCodec::None).log_append_time(Timestamp(77));
    let batch = build_with(builder, &small_records(3));
    assert!(records_of(&batch).iter().all(|(_, record)| record.timestamp == 77));
}

#[test]
fn a_batch_that_compaction_thinned_out_keeps_its_offsets() {
    let mut builder = BatchBuilder::new(TargetCodec::None).at(Offset(100), LeaderEpoch(1));
    builder.append_at(3, Timestamp(1), Some(b"a"), None, &[]);
    builder.append_at(7, Timestamp(2), Some(b"b"), None, &[]);
    let batch = builder.build().expect("a batch");
    let offsets: Vec<_> = records_of(&batch).iter().map(|(offset, _)| offset.0).collect();
    assert_eq!(offsets, [103, 107]);
    assert_eq!(view(&batch).header.last_offset(), Some(Offset(107)));
}

#[test]
fn an_empty_batch_has_no_records() {
    let batch = BatchBuilder::new(TargetCodec::None).build().expect("a batch");
    assert_eq!(batch.len(), HEADER_BYTES);
    assert!(records_of(&batch).is_empty());
}

#[test]
#[should_panic(expected = "offset delta 2 after 3 were used")]
fn offsets_that_go_back_are_our_own_mistake() {
    let mut builder = BatchBuilder::new(TargetCodec::None);
    builder.append_at(2, Timestamp(0), None, None, &[]);
    builder.append_at(2, Timestamp(0), None, None, &[]);
}

/// One record's bytes: attributes 0, deltas 0, then what is given.
fn raw_record(rest: &[u8]) -> Vec<u8> {
    let mut bytes = vec![((3 + rest.len()) * 2) as u8, 0, 0, 0];
    bytes.extend_from_slice(rest);
    bytes
}

fn walk(payload: &[u8], promised: i32, slice: usize) -> Result<i32, MalformedRecords> {
    let mut walk = RecordWalk::new(promised);
    for piece in payload.chunks(slice) {
        let _ = walk.feed(piece, |_| ControlFlow::Continue(()))?;
    }
    walk.finish()?;
    Ok(walk.records())
}

fn iterate(payload: &[u8], promised: i32) -> Result<i32, MalformedRecords> {
    let batch = BatchBuilder::new(TargetCodec::None).build().expect("a batch");
    let header = BatchHeader { record_count: promised, ..view(&batch).header };
    let mut count = 0;
    for record in Records::new(&header, payload) {
        for (_, value) in record?.headers {
            let _ = value;
        }
        count += 1;
    }
    Ok(count)
}

#[test]
fn a_negative_count_promises_no_record() {
    assert_eq!(both(&[], -1), Ok(0));
    assert!(both(&[2, 0], -1).is_err(), "a record that was not promised");
}

/// A batch of the records, one byte of which, behind the header, is another.
fn with_a_byte_changed(records: &[Owned], place: prop::sample::Index, value: u8) -> Vec<u8> {
    let mut batch = build(Compression::None, records);
    let at = HEADER_BYTES + place.index(batch.len() - HEADER_BYTES);
    batch[at] = value;
    batch
}

/// The iterator and the walk must judge alike, whatever the pieces; only the place of a cut may be told differently.
fn both(payload: &[u8], promised: i32) -> Result<i32, MalformedRecords> {
    let expected = iterate(payload, promised);
    for slice in [1, 2, 3, 7, 4096] {
        assert_eq!(walk(payload, promised, slice).is_ok(), expected.is_ok(), "in pieces of {slice}");
    }
    let walked = walk(payload, promised, 4096);
    if let (Ok(walked), Ok(expected)) = (&walked, &expected) {
        assert_eq!(walked, expected);
    }
    walked
}

#[test]
fn a_null_key_and_value_and_no_headers_are_the_smallest_record() {
    assert_eq!(both(&raw_record(&[1, 1, 0]), 1), Ok(1));
}

#[test]
fn any_negative_length_means_null() {
    assert_eq!(both(&raw_record(&[3, 5, 0]), 1), Ok(1));
}

#[test]
fn a_record_of_negative_length_is_refused() {
    assert_eq!(both(&[1], 1), Err(MalformedRecords::NegativeLength { index: 0, length: -1 }));
}

#[test]
fn a_field_that_reaches_past_its_record_is_refused() {
    let mismatch = |body_bytes| Err(MalformedRecords::LengthMismatch { index: 0, body_bytes });
    assert_eq!(both(&raw_record(&[20, 1, 0]), 1), mismatch(6));
    assert_eq!(both(&raw_record(&[1, 20, 0]), 1), mismatch(6));
    assert!(both(&raw_record(&[1, 1]), 1).is_err());
    assert!(both(&[0], 1).is_err(), "not even attributes");
}

#[test]
fn bytes_that_no_field_accounts_for_are_refused() {
    let payload = raw_record(&[1, 1, 0, 99]);
    assert_eq!(both(&payload, 1), Err(MalformedRecords::LengthMismatch { index: 0, body_bytes: 7 }));
}

#[test]
fn a_header_without_a_key_is_refused() {
    let payload = raw_record(&[1, 1, 2, 1, 1]);
    assert_eq!(both(&payload, 1), Err(MalformedRecords::HeaderKey { index: 0, length: -1 }));
}

#[test]
fn header_counts_that_cannot_be_true_are_refused() {
    assert_eq!(both(&raw_record(&[1, 1, 1]), 1), Err(MalformedRecords::HeaderCount { index: 0, count: -1 }));
    let huge = raw_record(&[1, 1, 0xfe, 0xff, 0xff, 0xff, 0x0f]);
    assert_eq!(both(&huge, 1), Err(MalformedRecords::HeaderCount { index: 0, count: i32::MAX }));
}

#[test]
fn fewer_records_than_promised_are_refused() {
    let record = raw_record(&[1, 1, 0]);
    assert_eq!(both(&record, 2), Err(MalformedRecords::TooFew { promised: 2, found: 1 }));
    assert_eq!(both(&record[..4], 1), Err(MalformedRecords::TooFew { promised: 1, found: 0 }));
    assert_eq!(both(&[], 1), Err(MalformedRecords::TooFew { promised: 1, found: 0 }));
    let in_last_header = raw_record(&[1, 1, 2, 2, b'k', 8, 1, 2, 3, 4]);
    assert_eq!(both(&in_last_header, 1), Ok(1));
    let cut = &in_last_header[..in_last_header.len() - 1];
    assert_eq!(both(cut, 1), Err(MalformedRecords::TooFew { promised: 1, found: 0 }));
}

#[test]
fn bytes_behind_the_last_promised_record_are_refused() {
    let records = [raw_record(&[1, 1, 0]), raw_record(&[1, 1, 0])].concat();
    assert_eq!(both(&records, 1), Err(MalformedRecords::Trailing { promised: 1 }));
    assert_eq!(both(&records, 2), Ok(2));
}

#[test]
fn a_number_that_never_ends_is_refused() {
    assert_eq!(both(&[0x80; 20], 1), Err(MalformedRecords::Number { index: 0 }));
}

proptest! {
    #[test]
    fn what_is_built_is_what_is_read(codec in any_codec(), records in any_records(), base in 0..1_i64 << 60) {
        let builder = BatchBuilder::new(TargetCodec::default_of(codec))
            .at(Offset(base), LeaderEpoch(3))
            .producer(ProducerId(5), ProducerEpoch(2), Sequence(9));
        let batch = build_with(builder, &records);
        let view = view(&batch);
        prop_assert!(view.crc_ok());
        prop_assert_eq!(view.bytes.len(), batch.len());
        prop_assert_eq!(view.header.encode()[..].to_vec(), batch[..HEADER_BYTES].to_vec());
        prop_assert_eq!(view.header.record_count as usize, records.len());
        prop_assert_eq!(view.header.max_timestamp.0, records.iter().map(|record| record.timestamp).max().unwrap_or(-1));
        let read = records_of(&batch);
        prop_assert!(read.iter().zip(0..).all(|((offset, _), n)| offset.0 == base + n));
        prop_assert_eq!(read.into_iter().map(|(_, record)| record).collect::<Vec<_>>(), records);
    }

    #[test]
    fn any_changed_byte_is_noticed_and_none_panics(
        codec in any_codec(),
        records in any_records(),
        place: prop::sample::Index,
        change in 1_u8..,
    ) {
        let mut batch = build(codec, &records);
        let at = place.index(batch.len());
        batch[at] ^= change;
        let is_place = at < field::LENGTH || (field::LEADER_EPOCH..field::MAGIC).contains(&at);
        let is_noticed = !BatchView::first(&batch).is_ok_and(|view| view.crc_ok());
        prop_assert!(is_noticed || is_place, "byte {} changed unnoticed", at);
    }

    #[test]
    fn any_bytes_are_walked_over_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), promised in -2..5) {
        let _ = both(&bytes, promised);
    }

    #[test]
    fn records_with_a_changed_byte_are_judged_alike_by_both_readers(
        records in any_records(),
        place: prop::sample::Index,
        value: u8,
    ) {
        let batch = with_a_byte_changed(&records, place, value);
        let _ = both(&batch[HEADER_BYTES..], records.len() as i32);
    }

    #[test]
    fn records_that_come_whole_and_byte_by_byte_say_the_same(
        records in any_records(),
        place: prop::sample::Index,
        value: u8,
    ) {
        let batch = with_a_byte_changed(&records, place, value);
        let tell = |slice| {
            let mut facts = Vec::new();
            let mut walk = RecordWalk::new(records.len() as i32);
            let walked = batch[HEADER_BYTES..].chunks(slice).try_for_each(|piece| {
                let note = |record: &RecordFacts| {
                    facts.push(*record);
                    ControlFlow::Continue(())
                };
                walk.feed(piece, note).map(|_| ())
            });
            (walked.and_then(|()| walk.finish()), facts)
        };
        prop_assert_eq!(tell(1), tell(usize::MAX));
    }

    #[test]
    fn a_stamped_time_leaves_a_correct_crc(codec in any_codec(), records in any_records(), time: i64) {
        let batch = build(codec, &records);
        for kind in [TimestampType::LogAppendTime, TimestampType::CreateTime] {
            let mut stamped = batch.clone();
            let mut parsed = view(&batch).header;
            let header = stamped.first_chunk_mut::<HEADER_BYTES>().expect("a header");
            stamp_time(header, &mut parsed, kind, Timestamp(time));
            prop_assert!(crc_ok(&stamped));
            prop_assert_eq!(view(&stamped).header, parsed);
            prop_assert_eq!(parsed.max_timestamp, Timestamp(time));
            prop_assert_eq!(parsed.attributes.timestamp_type(), kind);
        }
    }
}
