//! What a leader refuses, in which order, and what it repairs.

mod batch_common;

use batch_common::*;
use corelog_storage::batch::validate::{REFUSED_RECORDS_MAX, RecordRefusal};
use corelog_storage::batch::{
    AppendOrigin, BatchBuilder, Compression, DecompressScratch, HEADER_BYTES, MalformedRecords, ProduceError,
    ProduceErrorKind, TargetCodec, TimestampType, Validation, ValidationRules, crc_ok, field, sole_batch,
};
use corelog_storage::ids::{LeaderEpoch, Offset, Timestamp};
use proptest::prelude::*;

fn kind(batch: &[u8]) -> ProduceErrorKind {
    refusal(batch, &ValidationRules::default()).kind()
}

#[test]
fn a_sound_batch_passes_with_every_codec_and_needs_no_change() {
    for codec in CODECS {
        let batch = build(codec, &small_records(50));
        let validated = judge(&batch, &ValidationRules::default()).expect("sound");
        assert_eq!(validated.rewrite, None, "{codec}");
        assert!(!validated.changes_time());
        assert_eq!(validated.max_timestamp, Timestamp(1_700_000_000_049));
        assert_eq!(validated.max_timestamp_delta, 49);
        assert_eq!(validated.log_append_time(), Timestamp::NONE);
    }
}

// ---- the one batch of a partition -------------------------------------------------------------------------------------------

#[test]
fn a_length_below_any_versions_smallest_is_corrupt() {
    for length in [13, 0, -1] {
        let mut batch = plain();
        put(&mut batch, field::LENGTH, &i32::to_be_bytes(length));
        assert_eq!(sole_batch(&batch, VERSION), Err(ProduceError::Length { length }));
        assert_eq!(kind(&batch), ProduceErrorKind::CorruptMessage);
    }
}

#[test]
fn a_format_version_that_does_not_exist_is_corrupt() {
    for magic in [3_i8, -1, 127] {
        let batch = change(&plain(), field::MAGIC, &[magic as u8]);
        assert_eq!(sole_batch(&batch, VERSION), Err(ProduceError::UnknownMagic { magic }));
        assert_eq!(kind(&batch), ProduceErrorKind::CorruptMessage);
    }
}

#[test]
fn no_batch_at_all_is_an_invalid_record() {
    let batch = plain();
    for cut in [0, 11, 16, 17, 60, batch.len() - 1] {
        assert_eq!(sole_batch(&batch[..cut], VERSION), Err(ProduceError::NoBatch { version: VERSION }), "{cut} bytes");
        assert_eq!(kind(&batch[..cut]), ProduceErrorKind::InvalidRecord);
    }
}

#[test]
fn message_sets_of_version_0_and_1_are_invalid_records() {
    for magic in [0_i8, 1] {
        let batch = change(&plain(), field::MAGIC, &[magic as u8]);
        assert_eq!(sole_batch(&batch, VERSION), Err(ProduceError::OldMagic { version: VERSION, magic }));
        assert_eq!(kind(&batch), ProduceErrorKind::InvalidRecord);
    }
}

#[test]
fn zstd_needs_produce_version_7() {
    let batch = build(Compression::Zstd, &small_records(1));
    for version in [3, 6] {
        let error = sole_batch(&batch, version).expect_err("too early");
        assert_eq!(error, ProduceError::ZstdTooEarly { version });
        assert_eq!(error.kind(), ProduceErrorKind::UnsupportedCompressionType);
    }
    assert!(sole_batch(&batch, 7).is_ok());
}

#[test]
fn a_second_batch_is_an_invalid_record_and_a_cut_one_is_left_out() {
    let batch = plain();
    let two = [&batch[..], &batch].concat();
    assert_eq!(sole_batch(&two, VERSION), Err(ProduceError::SecondBatch { version: VERSION }));
    assert_eq!(kind(&two), ProduceErrorKind::InvalidRecord);
    let cut = &two[..two.len() - 1];
    assert_eq!(sole_batch(cut, VERSION).map(|view| view.bytes.len()), Ok(batch.len()));
}

#[test]
fn what_follows_the_batch_is_corrupt_if_it_is_no_batch() {
    let two = [&plain()[..], &[0; 12]].concat();
    assert_eq!(sole_batch(&two, VERSION), Err(ProduceError::Length { length: 0 }));
    assert!(sole_batch(&two[..two.len() - 1], VERSION).is_ok(), "eleven bytes do not hold a length");
}

#[test]
fn a_batch_shorter_than_its_header_is_corrupt() {
    let mut batch = plain();
    put(&mut batch, field::LENGTH, &48_i32.to_be_bytes());
    assert_eq!(sole_batch(&batch[..60], VERSION), Err(ProduceError::TooShort { bytes: 60 }));
    assert_eq!(kind(&batch[..60]), ProduceErrorKind::CorruptMessage);
}

// ---- the header -------------------------------------------------------------------------------------------------------------

#[test]
fn a_client_must_leave_the_base_offset_at_zero() {
    let mut batch = plain();
    put(&mut batch, field::BASE_OFFSET, &1_i64.to_be_bytes());
    let error = refusal(&batch, &ValidationRules::default());
    assert_eq!(error, ProduceError::BaseOffset { base_offset: 1 });
    assert_eq!(error.kind(), ProduceErrorKind::InvalidRecord);
    let rules = ValidationRules { origin: AppendOrigin::Coordinator, ..Default::default() };
    assert!(judge(&batch, &rules).is_ok());
}

#[test]
fn a_batch_above_the_topics_maximum_is_too_large_and_one_byte_less_is_not() {
    let batch = plain();
    let bytes = batch.len();
    let rules = |batch_bytes_max| ValidationRules { batch_bytes_max, ..Default::default() };
    let error = refusal(&batch, &rules(bytes - 1));
    assert_eq!(error, ProduceError::BatchTooLarge { bytes, bytes_max: bytes - 1 });
    assert_eq!(error.kind(), ProduceErrorKind::MessageTooLarge);
    assert!(judge(&batch, &rules(bytes)).is_ok());
}

#[test]
fn a_wrong_crc_is_corrupt_with_every_codec() {
    for codec in CODECS {
        let mut batch = build(codec, &small_records(20));
        let last = batch.len() - 1;
        batch[last] ^= 1;
        let error = refusal(&batch, &ValidationRules::default());
        assert!(matches!(error, ProduceError::Crc { .. }), "{codec}: {error}");
        assert_eq!(error.kind(), ProduceErrorKind::CorruptMessage);
    }
}

#[test]
fn an_unassigned_codec_is_a_server_error_as_in_kafka() {
    let batch = change(&plain(), field::ATTRIBUTES, &[0, 5]);
    assert_eq!(refusal(&batch, &ValidationRules::default()), ProduceError::UnknownCodec { id: 5 });
    assert_eq!(kind(&batch), ProduceErrorKind::UnknownServerError);
}

#[test]
fn offsets_and_record_count_must_agree_and_be_positive() {
    let cases = [
        (-1, 3, ProduceError::OffsetRange { last_offset_delta: -1 }),
        (i32::MIN, 3, ProduceError::OffsetRange { last_offset_delta: i32::MIN }),
        (2, 0, ProduceError::RecordCount { count: 0 }),
        (2, -5, ProduceError::RecordCount { count: -5 }),
        (2, 4, ProduceError::CountMismatch { offsets: 3, count: 4 }),
        (i32::MAX, 3, ProduceError::CountMismatch { offsets: 1 << 31, count: 3 }),
    ];
    for (delta, count, expected) in cases {
        let batch = change(&plain(), field::LAST_OFFSET_DELTA, &i32::to_be_bytes(delta));
        let batch = change(&batch, field::RECORD_COUNT, &i32::to_be_bytes(count));
        let error = refusal(&batch, &ValidationRules::default());
        assert_eq!(error, expected);
        assert_eq!(error.kind(), ProduceErrorKind::InvalidRecord);
    }
}

#[test]
fn a_client_must_not_write_control_records_and_a_coordinator_may() {
    let batch = build_with(BatchBuilder::new(TargetCodec::None).control(), &small_records(1));
    assert_eq!(refusal(&batch, &ValidationRules::default()), ProduceError::ControlBatch);
    assert_eq!(kind(&batch), ProduceErrorKind::InvalidRecord);
    let rules = ValidationRules {
        origin: AppendOrigin::Coordinator,
        compression: Some(TargetCodec::Lz4),
        ..Default::default()
    };
    assert_eq!(judge(&batch, &rules).map(|validated| validated.rewrite), Ok(None), "control records keep their form");
}

#[test]
fn a_producer_id_needs_a_sequence() {
    let batch = build_with(idempotent(Compression::None, 5, 0, -1), &small_records(1));
    assert!(matches!(refusal(&batch, &ValidationRules::default()), ProduceError::NegativeSequence { .. }));
    assert_eq!(kind(&batch), ProduceErrorKind::InvalidRecord);
    let batch = build_with(idempotent(Compression::None, -2, 0, -1), &small_records(1));
    assert!(judge(&batch, &ValidationRules::default()).is_ok(), "a negative id is no id");
}

#[test]
fn checks_come_in_kafkas_order() {
    // A batch with every fault at once shows them one by one as they are repaired.
    let mut batch = build_with(idempotent(Compression::None, 5, 0, -1).control(), &small_records(3));
    batch[HEADER_BYTES] ^= 1;
    reseal(&mut batch);
    put(&mut batch, field::BASE_OFFSET, &9_i64.to_be_bytes());
    put(&mut batch, field::LAST_OFFSET_DELTA, &(-1_i32).to_be_bytes());
    put(&mut batch, field::RECORD_COUNT, &0_i32.to_be_bytes());
    put(&mut batch, field::ATTRIBUTES, &[0, 0x25]);
    let small = ValidationRules { batch_bytes_max: 10, ..Default::default() };
    let roomy = ValidationRules::default();

    assert!(matches!(refusal(&batch, &small), ProduceError::BaseOffset { .. }));
    put(&mut batch, field::BASE_OFFSET, &0_i64.to_be_bytes());
    assert!(matches!(refusal(&batch, &small), ProduceError::BatchTooLarge { .. }));
    assert!(matches!(refusal(&batch, &roomy), ProduceError::Crc { .. }));
    reseal(&mut batch);
    assert!(matches!(refusal(&batch, &roomy), ProduceError::UnknownCodec { .. }));
    batch = change(&batch, field::ATTRIBUTES, &[0, 0x20]);
    assert!(matches!(refusal(&batch, &roomy), ProduceError::OffsetRange { .. }));
    batch = change(&batch, field::LAST_OFFSET_DELTA, &2_i32.to_be_bytes());
    assert!(matches!(refusal(&batch, &roomy), ProduceError::RecordCount { .. }));
    batch = change(&batch, field::RECORD_COUNT, &2_i32.to_be_bytes());
    assert!(matches!(refusal(&batch, &roomy), ProduceError::CountMismatch { .. }));
    batch = change(&batch, field::RECORD_COUNT, &3_i32.to_be_bytes());
    assert!(matches!(refusal(&batch, &roomy), ProduceError::ControlBatch));
    batch = change(&batch, field::ATTRIBUTES, &[0, 0]);
    assert!(matches!(refusal(&batch, &roomy), ProduceError::NegativeSequence { .. }));
    batch = change(&batch, field::BASE_SEQUENCE, &0_i32.to_be_bytes());
    assert!(matches!(refusal(&batch, &roomy), ProduceError::Malformed(_)));
}

// ---- the records ------------------------------------------------------------------------------------------------------------

#[test]
fn malformed_records_are_invalid_with_every_codec() {
    for codec in CODECS {
        let batch = build(codec, &small_records(3));
        for count in [2_i32, 4] {
            let batch = change(&batch, field::RECORD_COUNT, &count.to_be_bytes());
            let batch = change(&batch, field::LAST_OFFSET_DELTA, &(count - 1).to_be_bytes());
            let error = refusal(&batch, &ValidationRules::default());
            let expected = if count == 2 {
                MalformedRecords::Trailing { promised: 2 }
            } else {
                MalformedRecords::TooFew { promised: 4, found: 3 }
            };
            assert_eq!(error, ProduceError::Malformed(expected), "{codec}");
            assert_eq!(error.kind(), ProduceErrorKind::InvalidRecord);
            assert!(error.refused_records().is_none());
        }
    }
}

#[test]
fn undecodable_data_under_a_correct_crc_is_a_server_error_as_in_kafka() {
    for codec in [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd] {
        let mut batch = plain();
        batch[field::ATTRIBUTES + 1] = codec.id();
        reseal(&mut batch);
        assert_eq!(kind(&batch), ProduceErrorKind::UnknownServerError, "{codec}");
    }
}

#[test]
fn a_bomb_is_too_large() {
    let bomb = vec![Owned::new(NOW.0, None, Some(&vec![0; 1 << 20]))];
    for codec in [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd] {
        let batch = build(codec, &bomb);
        let rules = ValidationRules { decompressed_bytes_max: 1 << 18, ..Default::default() };
        assert_eq!(refusal(&batch, &rules).kind(), ProduceErrorKind::MessageTooLarge, "{codec}");
        assert!(judge(&batch, &ValidationRules::default()).is_ok(), "{codec}");
    }
}

#[test]
fn a_compacted_topic_refuses_the_records_without_a_key_and_names_them() {
    let rules = ValidationRules { is_compacted: true, ..Default::default() };
    let records = [
        Owned::new(1, Some(b""), None),
        Owned::new(2, None, Some(b"v")),
        Owned::new(3, Some(b"k"), None),
        Owned::new(4, None, None),
    ];
    for codec in CODECS {
        let batch = build(codec, &records);
        let error = refusal(&batch, &rules);
        assert_eq!(error.kind(), ProduceErrorKind::InvalidRecord);
        let refused = error.refused_records().expect("records are named");
        let named: Vec<_> = refused.records.iter().map(|record| (record.index, record.reason)).collect();
        assert_eq!(named, [(1, RecordRefusal::NoKey), (3, RecordRefusal::NoKey)]);
        assert!(judge(&batch, &ValidationRules::default()).is_ok(), "{codec}");
    }
}

fn time_is_admitted(timestamp: i64, rules: &ValidationRules) -> bool {
    let batch = build(Compression::None, &[Owned::new(timestamp, None, None)]);
    match judge(&batch, rules) {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.kind(), ProduceErrorKind::InvalidTimestamp);
            assert_eq!(error.refused_records().map(|refused| refused.total), Some(1));
            false
        }
    }
}

#[test]
fn timestamps_may_be_as_far_off_as_the_topic_says() {
    let rules = with_times(1000, 500);
    assert!(time_is_admitted(NOW.0 - 1000, &rules));
    assert!(!time_is_admitted(NOW.0 - 1001, &rules));
    assert!(time_is_admitted(NOW.0 + 500, &rules));
    assert!(!time_is_admitted(NOW.0 + 501, &rules));
    assert!(time_is_admitted(-1, &rules), "-1 is no timestamp");
    assert!(!time_is_admitted(0, &rules));
}

#[test]
fn by_default_the_past_is_open_and_the_future_an_hour_long() {
    let rules = ValidationRules::default();
    assert!(time_is_admitted(0, &rules));
    assert!(time_is_admitted(NOW.0 + 3_600_000, &rules));
    assert!(!time_is_admitted(NOW.0 + 3_600_001, &rules));
    assert!(!time_is_admitted(i64::MAX, &rules));
    assert!(!time_is_admitted(i64::MIN, &rules), "Java's subtraction wraps, and so must ours");
}

/// Retention goes by the header's largest timestamp: neither a record nor the header may bring one from far ahead.
#[test]
fn nothing_from_the_future_gets_in_with_any_codec_wherever_it_stands() {
    const FAR: i64 = 32_503_680_000_000;
    for codec in CODECS {
        for at in [0, 7, 19] {
            let mut records = small_records(20);
            records[at].timestamp = FAR;
            let error = refusal(&build(codec, &records), &ValidationRules::default());
            assert_eq!(error.kind(), ProduceErrorKind::InvalidTimestamp, "{codec}, record {at}");
        }
        let batch = change(&build(codec, &small_records(20)), field::MAX_TIMESTAMP, &FAR.to_be_bytes());
        let validated = judge(&batch, &ValidationRules::default()).expect("sound records");
        assert_eq!(validated.max_timestamp, Timestamp(1_700_000_000_019), "{codec}: as the records say");
    }
}

#[test]
fn one_bad_timestamp_decides_the_code_for_all_refused_records() {
    let rules = ValidationRules { is_compacted: true, ..with_times(10, 10) };
    let records = [Owned::new(NOW.0, None, None), Owned::new(0, Some(b"k"), None)];
    let error = refusal(&build(Compression::Lz4, &records), &rules);
    assert_eq!(error.kind(), ProduceErrorKind::InvalidTimestamp);
    assert_eq!(error.refused_records().map(|refused| refused.total), Some(2));
}

#[test]
fn a_missing_key_is_named_before_a_bad_timestamp_of_the_same_record() {
    let rules = ValidationRules { is_compacted: true, ..with_times(10, 10) };
    let error = refusal(&build(Compression::None, &[Owned::new(0, None, None)]), &rules);
    assert_eq!(error.kind(), ProduceErrorKind::InvalidRecord);
}

#[test]
fn a_long_list_of_refused_records_is_counted_to_the_end_and_listed_to_its_bound() {
    let rules = ValidationRules { is_compacted: true, ..Default::default() };
    let records = vec![Owned::new(1, None, None); REFUSED_RECORDS_MAX + 5];
    let error = refusal(&build(Compression::None, &records), &rules);
    let refused = error.refused_records().expect("records are named");
    assert_eq!(refused.total as usize, REFUSED_RECORDS_MAX + 5);
    assert_eq!(refused.records.len(), REFUSED_RECORDS_MAX);
    let message = error.to_string();
    assert!(message.starts_with("1005 record(s) refused: record 0: ") && message.ends_with('…'), "{message}");
}

#[test]
fn a_malformed_record_further_on_wins_over_refused_ones() {
    let rules = ValidationRules { is_compacted: true, ..Default::default() };
    let records = vec![Owned::new(1, None, None); 3];
    let batch = build(Compression::None, &records);
    let batch = change(&batch, field::RECORD_COUNT, &4_i32.to_be_bytes());
    let batch = change(&batch, field::LAST_OFFSET_DELTA, &3_i32.to_be_bytes());
    assert!(matches!(refusal(&batch, &rules), ProduceError::Malformed(_)));
}

// ---- time -------------------------------------------------------------------------------------------------------------------

#[test]
fn append_time_is_stamped_and_the_crc_follows() {
    let rules = ValidationRules { timestamp_type: TimestampType::LogAppendTime, ..with_times(0, 0) };
    for codec in CODECS {
        let mut batch = build(codec, &small_records(5));
        let validated = judge(&batch, &rules).expect("the producers' times do not matter");
        assert_eq!(validated.log_append_time(), NOW);
        assert!(validated.changes_time());
        let header = batch.first_chunk_mut::<HEADER_BYTES>().expect("a header");
        let stamped = validated.stamp(header, Offset(10), LeaderEpoch(2));
        assert!(crc_ok(&batch), "{codec}");
        assert_eq!(view(&batch).header, stamped);
        assert!(records_of(&batch).iter().all(|(_, record)| record.timestamp == NOW.0));
        assert_eq!(records_of(&batch).last().map(|(offset, _)| *offset), Some(Offset(14)));
    }
}

#[test]
fn a_wrong_max_timestamp_is_repaired() {
    for codec in CODECS {
        let batch = build(codec, &small_records(5));
        let mut batch = change(&batch, field::MAX_TIMESTAMP, &1_i64.to_be_bytes());
        let validated = judge(&batch, &ValidationRules::default()).expect("sound");
        let header = batch.first_chunk_mut::<HEADER_BYTES>().expect("a header");
        let _ = validated.stamp(header, Offset(0), LeaderEpoch(0));
        assert!(crc_ok(&batch));
        assert_eq!(view(&batch).header.max_timestamp, Timestamp(1_700_000_000_004), "{codec}");
    }
}

#[test]
fn a_producer_must_not_claim_append_time() {
    let builder = || BatchBuilder::new(TargetCodec::None).log_append_time(NOW);
    let batch = build_with(builder(), &small_records(1));
    let rules = ValidationRules { timestamp_type: TimestampType::LogAppendTime, ..Default::default() };
    let error = refusal(&batch, &rules);
    assert_eq!(error.kind(), ProduceErrorKind::InvalidTimestamp);
    let reason = error.refused_records().and_then(|refused| refused.records.first()).map(|record| record.reason);
    assert_eq!(reason, Some(RecordRefusal::LogAppendTime));

    // With CreateTime Kafka only looks at the time that is claimed, and clears the flag.
    let validated = judge(&batch, &ValidationRules::default()).expect("a time within the range");
    assert!(validated.changes_time());
    let untimed = build_with(BatchBuilder::new(TargetCodec::None).log_append_time(Timestamp::NONE), &small_records(1));
    assert_eq!(refusal(&untimed, &ValidationRules::default()).kind(), ProduceErrorKind::InvalidTimestamp);
}

#[test]
fn a_batch_larger_than_a_segment_is_refused() {
    let rules = ValidationRules { segment_bytes_max: 50, ..Default::default() };
    assert_eq!(refusal(&plain(), &rules).kind(), ProduceErrorKind::RecordListTooLarge);
}

#[test]
fn a_wrong_crc_is_told_before_anything_that_is_wrong_with_header_or_records() {
    for at in [field::RECORD_COUNT, HEADER_BYTES, HEADER_BYTES + 4] {
        let mut batch = plain();
        batch[at] ^= 0x40;
        let refused = refusal(&batch, &ValidationRules::default());
        assert!(matches!(refused, ProduceError::Crc { .. }), "byte {at}: {refused}");
        reseal(&mut batch);
        let refused = refusal(&batch, &ValidationRules::default());
        assert!(!matches!(refused, ProduceError::Crc { .. }), "byte {at}: {refused}");
    }
}

proptest! {
    #[test]
    fn slices_of_any_size_come_to_the_same_verdict(
        codec in any_codec(),
        records in any_records(),
        is_compacted: bool,
        place: prop::sample::Index,
        value: u8,
        slice in 1_usize..3000,
    ) {
        let mut batch = build(codec, &records);
        let at = field::ATTRIBUTES + place.index(batch.len() - field::ATTRIBUTES);
        batch[at] = value;
        reseal(&mut batch);
        let rules = ValidationRules { is_compacted, decompressed_bytes_max: 1 << 20, ..Default::default() };
        let at_once = judge(&batch, &rules);
        let mut scratch = DecompressScratch::new();
        let sliced = (|| {
            let mut validation = Validation::begin(sole_batch(&batch, VERSION)?, &rules, NOW, &mut scratch)?;
            loop {
                if let Some(validated) = validation.step(slice)? {
                    return Ok(validated);
                }
            }
        })();
        // Of two faults in compressed data, the records' and the codec's own, the slices decide which is met first.
        let are_both_refused = codec != Compression::None && sliced.is_err() && at_once.is_err();
        prop_assert!(are_both_refused || sliced == at_once, "{:?} in slices, {:?} at once", sliced, at_once);
    }

    #[test]
    fn a_slice_does_about_as_much_work_as_it_was_given(codec in any_codec(), slice in 1000_usize..100_000) {
        let batch = build(codec, &[Owned::new(1, None, Some(&[noise(100_000), vec![1; 400_000]].concat()))]);
        let rules = ValidationRules::default();
        let mut scratch = DecompressScratch::new();
        let mut validation = Validation::begin(view(&batch), &rules, NOW, &mut scratch).expect("sound");
        let mut steps = 1;
        while validation.step(slice).expect("sound").is_none() {
            steps += 1;
        }
        // Lz4's block of 64 KiB is the largest unit of work here.
        prop_assert!(steps >= 500_000 / (slice + 64 * 1024), "{} steps of {}", steps, slice);
        prop_assert!(steps <= 3 + 2 * (500_000 / slice), "{} steps of {}", steps, slice);
    }
}
