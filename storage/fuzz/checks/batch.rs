//! What the `batch` target checks of any bytes. Shared with the test that replays the committed corpus.
//!
//! Holds: a produce request's records validated, in slices and at once, and rewritten. Never touches: the fuzzer.

use corelog_storage::batch::{
    DecompressScratch, ProduceError, Records, Rewrite, TargetCodec, TimestampType, Validated, Validation,
    ValidationRules, crc_of, crc_ok, decompress_all, field, sole_batch, validate,
};
use corelog_storage::ids::Timestamp;

const NOW: Timestamp = Timestamp(1_700_000_000_000);

/// The first byte chooses rules and target codec; the rest is what a client sent.
pub fn batch(input: &[u8]) {
    let Some((&choice, records)) = input.split_first() else { return };
    let mut records = records.to_vec();
    // Most inputs get a correct length and CRC, or nothing would come past the first checks.
    if choice & 1 == 0 && records.len() >= field::RECORDS {
        let length = (records.len() - field::LEADER_EPOCH) as i32;
        records[field::LENGTH..field::LEADER_EPOCH].copy_from_slice(&length.to_be_bytes());
        records[field::MAGIC] = 2;
        let crc = crc_of(&records);
        records[field::CRC..field::ATTRIBUTES].copy_from_slice(&crc.to_be_bytes());
    }
    let targets = [None, Some(TargetCodec::None), Some(TargetCodec::Lz4), Some(TargetCodec::Snappy)];
    let rules = ValidationRules {
        is_compacted: choice & 2 != 0,
        compression: targets[usize::from(choice >> 2) % targets.len()],
        decompressed_bytes_max: 1 << 22,
        ..ValidationRules::default()
    };
    let mut scratch = DecompressScratch::new();
    let Ok(view) = sole_batch(&records, 13) else { return };
    let at_once = validate(view, &rules, NOW, &mut scratch);
    let sliced = in_slices(&records, &rules, &mut scratch);
    assert_eq!(sliced.is_ok(), at_once.is_ok(), "{sliced:?} in slices, {at_once:?} at once");
    let Ok(validated) = at_once else { return };
    let Some(written) = rewritten(&records, &validated, &rules, &mut scratch) else { return };
    assert!(crc_ok(&written));
    let again = validate(sole_batch(&written, 13).expect("ours"), &rules, NOW, &mut scratch).expect("ours");
    assert_eq!(again.rewrite, None);
    assert_eq!(again.header.record_count, validated.header.record_count);
    if view.header.attributes.timestamp_type() == TimestampType::LogAppendTime {
        let judged = view.header.max_timestamp;
        assert!(timestamps(&written, &rules, &mut scratch).iter().all(|found| *found == judged), "{judged} was judged");
    }
}

fn timestamps(batch: &[u8], rules: &ValidationRules, scratch: &mut DecompressScratch) -> Vec<Timestamp> {
    let view = sole_batch(batch, 13).expect("ours");
    let codec = view.header.attributes.compression().expect("a known codec");
    let payload = decompress_all(codec, view.payload(), rules.decompressed_bytes_max, scratch).expect("ours");
    Records::new(&view.header, &payload).map(|record| record.expect("ours").timestamp).collect()
}

fn in_slices(
    records: &[u8],
    rules: &ValidationRules,
    scratch: &mut DecompressScratch,
) -> Result<Validated, ProduceError> {
    let mut validation = Validation::begin(sole_batch(records, 13)?, rules, NOW, scratch)?;
    loop {
        if let Some(validated) = validation.step(333)? {
            return Ok(validated);
        }
    }
}

fn rewritten(
    records: &[u8],
    validated: &Validated,
    rules: &ValidationRules,
    scratch: &mut DecompressScratch,
) -> Option<Vec<u8>> {
    let view = sole_batch(records, 13).ok()?;
    let mut rewrite = Rewrite::new(&view, validated, rules, scratch).ok()??;
    loop {
        if let Some(written) = rewrite.step(777).ok()? {
            return Some(written);
        }
    }
}
