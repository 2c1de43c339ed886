//! Batches that are written anew, and the search for times in a batch.

mod batch_common;

use batch_common::*;
use corelog_storage::batch::validate::RewritePlan;
use corelog_storage::batch::{
    Attributes, BatchBuilder, Compression, DecompressScratch, ProduceError, ProduceErrorKind, Rewrite, TargetCodec,
    TimestampType, ValidationRules, crc_ok, field, first_at_or_after, offset_of_max_timestamp,
};
use corelog_storage::ids::{LeaderEpoch, Offset, Timestamp};
use proptest::prelude::*;

fn rewrite(batch: &[u8], rules: &ValidationRules, slice: usize) -> Result<Option<Vec<u8>>, ProduceError> {
    let validated = judge(batch, rules)?;
    let mut scratch = DecompressScratch::new();
    let Some(mut rewrite) = Rewrite::new(&view(batch), &validated, rules, &mut scratch)? else {
        return Ok(None);
    };
    loop {
        if let Some(written) = rewrite.step(slice)? {
            return Ok(Some(written));
        }
    }
}

const TARGETS: [TargetCodec; 6] = [
    TargetCodec::None,
    TargetCodec::Gzip { level: 1 },
    TargetCodec::Gzip { level: -1 },
    TargetCodec::Snappy,
    TargetCodec::Lz4,
    TargetCodec::Zstd { level: -5 },
];

#[test]
fn the_producers_codec_stays_unless_the_topic_wants_another() {
    for codec in CODECS {
        let batch = build(codec, &small_records(5));
        assert_eq!(rewrite(&batch, &ValidationRules::default(), 100), Ok(None));
        for target in TARGETS {
            let rules = ValidationRules { compression: Some(target), ..Default::default() };
            let written = rewrite(&batch, &rules, 100).expect("sound");
            assert_eq!(written.is_some(), target.codec() != codec, "{codec} to {target:?}");
        }
    }
}

#[test]
fn a_batch_that_grows_past_a_limit_when_rewritten_is_refused() {
    let batch = build(Compression::Zstd, &[Owned::new(1, None, Some(&vec![0; 10_000]))]);
    let rules = ValidationRules { compression: Some(TargetCodec::None), batch_bytes_max: 10_000, ..Default::default() };
    let error = rewrite(&batch, &rules, 1000).expect_err("too large");
    assert_eq!(error.kind(), ProduceErrorKind::MessageTooLarge);
    let rules = ValidationRules { batch_bytes_max: 20_000, segment_bytes_max: 10_000, ..rules };
    let error = rewrite(&batch, &rules, 1000).expect_err("too large");
    assert_eq!(error.kind(), ProduceErrorKind::RecordListTooLarge);
}

#[test]
fn offsets_out_of_order_are_put_in_order() {
    for codec in CODECS {
        let records = small_records(4);
        let mut builder = BatchBuilder::new(TargetCodec::default_of(codec));
        for (record, delta) in records.iter().zip([5, 70, 71, 9000]) {
            let (key, value) = (record.key.as_deref(), record.value.as_deref());
            builder.append_at(delta, Timestamp(record.timestamp), key, value, &[(b"h", None)]);
        }
        let batch = change(&builder.build().expect("a batch"), field::LAST_OFFSET_DELTA, &3_i32.to_be_bytes());
        let validated = judge(&batch, &ValidationRules::default()).expect("sound");
        let target = TargetCodec::default_of(codec);
        assert_eq!(validated.rewrite, Some(RewritePlan { target, renumber: true }));
        for slice in [1, 7, 100_000] {
            let written = rewrite(&batch, &ValidationRules::default(), slice).expect("sound").expect("rewritten");
            assert!(crc_ok(&written));
            let read = records_of(&written);
            let offsets: Vec<_> = read.iter().map(|(offset, _)| offset.0).collect();
            assert_eq!(offsets, [0, 1, 2, 3], "{codec}");
            assert!(
                read.iter().zip(&records).all(|((_, read), record)| read.key == record.key && read.headers.len() == 1)
            );
            assert_eq!(judge(&written, &ValidationRules::default()).map(|again| again.rewrite), Ok(None));
        }
    }
}

#[test]
fn a_rewrite_clears_what_only_the_broker_may_set() {
    let batch = change(&plain(), field::ATTRIBUTES, &[0x7f, 0x40]);
    let rules = ValidationRules { compression: Some(TargetCodec::Lz4), ..Default::default() };
    let written = rewrite(&batch, &rules, 1000).expect("sound").expect("rewritten");
    assert_eq!(view(&written).header.attributes, Attributes(3));
}

proptest! {
    #[test]
    fn a_rewrite_changes_the_codec_and_nothing_else(
        codec in any_codec(),
        target in (0..TARGETS.len()).prop_map(|at| TARGETS[at]),
        records in any_records(),
        has_append_time: bool,
        slice in 1_usize..5000,
    ) {
        let batch = build_with(idempotent(codec, 7, 2, 30), &records);
        let timestamp_type = if has_append_time { TimestampType::LogAppendTime } else { TimestampType::CreateTime };
        let rules = ValidationRules { compression: Some(target), timestamp_type, ..with_times(i64::MAX, i64::MAX) };
        let Some(written) = rewrite(&batch, &rules, slice).expect("sound") else {
            prop_assert_eq!(target.codec(), codec);
            return Ok(());
        };
        prop_assert!(crc_ok(&written));
        let (old, new) = (view(&batch).header, view(&written).header);
        prop_assert_eq!(new.attributes.compression(), Some(target.codec()));
        prop_assert_eq!(new.attributes.timestamp_type(), timestamp_type);
        prop_assert_eq!(
            (new.producer_id, new.producer_epoch, new.base_sequence, new.record_count, new.last_offset_delta, new.base_timestamp),
            (old.producer_id, old.producer_epoch, old.base_sequence, old.record_count, old.last_offset_delta, old.base_timestamp)
        );
        let expected: Vec<_> = records_of(&batch)
            .into_iter()
            .map(|(offset, record)| (offset, Owned { timestamp: if has_append_time { NOW.0 } else { record.timestamp }, ..record }))
            .collect();
        prop_assert_eq!(records_of(&written), expected);
    }

    #[test]
    fn the_first_record_at_a_time_is_found_as_a_plain_search_finds_it(
        codec in any_codec(),
        times in prop::collection::vec(0_i64..50, 1..30),
        from in 0_i64..60,
        skip in 0_i64..40,
    ) {
        let records: Vec<_> = times.iter().map(|&time| Owned::new(time, None, None)).collect();
        let builder = BatchBuilder::new(TargetCodec::default_of(codec)).at(Offset(100), LeaderEpoch(0));
        let batch = build_with(builder, &records);
        let mut scratch = DecompressScratch::new();
        let expected = times.iter().zip(100_i64..).find(|&(&time, offset)| time >= from && offset >= 100 + skip);
        let found = first_at_or_after(&view(&batch), Timestamp(from), Offset(100 + skip), BOUND, &mut scratch).expect("sound");
        prop_assert_eq!(found, expected.map(|(&time, offset)| (Timestamp(time), Offset(offset))));

        let max = times.iter().max();
        let expected = times.iter().zip(100_i64..).find(|(time, _)| Some(*time) == max).map(|(_, offset)| Offset(offset));
        prop_assert_eq!(offset_of_max_timestamp(&view(&batch), BOUND, &mut scratch), Ok(expected));
        let validated = judge(&build(codec, &records), &ValidationRules::default()).expect("sound");
        prop_assert_eq!(Some(Offset(100 + i64::from(validated.max_timestamp_delta))), expected);
    }
}

#[test]
fn with_append_time_the_earliest_record_with_the_max_timestamp_is_the_first() {
    let builder = BatchBuilder::new(TargetCodec::None).log_append_time(NOW).at(Offset(5), LeaderEpoch(0));
    let batch = build_with(builder, &small_records(3));
    let mut scratch = DecompressScratch::new();
    assert_eq!(offset_of_max_timestamp(&view(&batch), BOUND, &mut scratch), Ok(Some(Offset(5))));
    let found = first_at_or_after(&view(&batch), NOW, Offset(6), BOUND, &mut scratch);
    assert_eq!(found, Ok(Some((NOW, Offset(6)))));
}

/// Found by fuzzing: the records' own deltas, which count for nothing while the type bit stands, came to count.
#[test]
fn a_rewritten_batch_that_falsely_said_log_append_time_has_the_timestamp_that_was_judged_in_every_record() {
    let far = [Owned::new(NOW.0, None, None), Owned::new(i64::MAX / 2, Some(b"k"), Some(b"v"))];
    for codec in CODECS {
        let sent = build_with(BatchBuilder::new(TargetCodec::default_of(codec)).log_append_time(NOW), &far);
        for target in TARGETS.into_iter().filter(|target| target.codec() != codec) {
            let rules = ValidationRules { compression: Some(target), ..Default::default() };
            for slice in [1, 100_000] {
                let written = rewrite(&sent, &rules, slice).expect("sound").expect("rewritten");
                let header = view(&written).header;
                assert_eq!(header.attributes.timestamp_type(), TimestampType::CreateTime);
                assert_eq!((header.base_timestamp, header.max_timestamp), (NOW, NOW));
                let expected: Vec<_> =
                    (0..).map(Offset).zip(far.iter().map(|r| Owned { timestamp: NOW.0, ..r.clone() })).collect();
                assert_eq!(records_of(&written), expected, "{codec} to {target:?}");
            }
        }
    }
}

/// Found by fuzzing: no record's timestamp is above -1, which is then the header's maximum, and became the records' own.
#[test]
fn a_false_log_append_time_before_the_year_1970_is_kept_by_a_rewrite() {
    let early = Timestamp(-72_057_525_298_003_968);
    let sent = build_with(BatchBuilder::new(TargetCodec::None).log_append_time(early), &small_records(2));
    let rules = ValidationRules { compression: Some(TargetCodec::Snappy), ..Default::default() };
    let written = rewrite(&sent, &rules, 777).expect("sound").expect("rewritten");
    assert!(records_of(&written).iter().all(|(_, record)| record.timestamp == early.0));
}

/// The fuzzer's own input, behind its first byte, which chose a compacted topic with snappy.
#[test]
fn the_fuzzers_batch_of_a_false_log_append_time_is_judged_the_same_after_its_rewrite() {
    let mut batch = vec![0; 88];
    for (at, bytes) in [
        (15, &[0x40, 1, 1, 0, 0, 0, 0xc0, 8, 0, 0, 0, 0, 1][..]),
        (33, &[1, 4, 0, 0, 0, 0, 1, 0x38, 0, 0, 0x3f, 0, 0x28, 0x32]),
        (55, &[1, 0, 0, 0, 0, 1, 0x34, 0, 0, 0x3f, 0x28, 0x32]),
    ] {
        put(&mut batch, at, bytes);
    }
    put(&mut batch, field::MAGIC, &[2]);
    reseal(&mut batch);
    let rules = ValidationRules { is_compacted: true, compression: Some(TargetCodec::Snappy), ..Default::default() };
    let written = rewrite(&batch, &rules, 777).expect("sound").expect("rewritten");
    assert_eq!(judge(&written, &rules).map(|again| again.rewrite), Ok(None));
}
