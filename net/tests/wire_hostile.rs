//! Bytes that mean harm: truncated messages, huge lengths in every position, arrays that are larger in memory than on the
//! wire. Decoding returns a value or an error and never takes more heap than it was given.

#[path = "wire_support/heap.rs"]
mod heap;
#[path = "wire_support/mod.rs"]
mod support;

use corelog_net::wire::messages::{FetchRequest, ListConfigResourcesRequest, ProduceRequest};
use corelog_net::wire::{
    ApiKey, DecodeErrorKind, HEAP_BYTES_MAX_DEFAULT, Request, RequestBody, RequestHeader, ResponseBody,
};
use support::{Choices, Side, every_message, rich_choices};

#[global_allocator]
static HEAP: heap::Counting = heap::Counting;

/// Small enough that a single length of 2^31 could not hide in it.
const HEAP_BYTES_MAX: usize = 64 << 10;

/// What an attacker writes over a length: the largest and smallest of each kind, and ones that are just too long.
const LENGTHS: [&[u8]; 10] = [
    &[0x7f, 0xff, 0xff, 0xff],
    &[0xff, 0xff, 0xff, 0xff],
    &[0x80, 0x00, 0x00, 0x00],
    &[0x00, 0x01, 0x00, 0x00],
    &[0xff, 0xff, 0xff, 0xff, 0x0f],
    &[0xff, 0xff, 0xff, 0xff, 0xff],
    &[0x7f, 0xff],
    &[0xff, 0xfe],
    &[0x80],
    &[0x7f],
];

/// Whether the bytes were a message; the heap taken is asserted.
fn decodes(key: ApiKey, version: i16, side: Side, body: &[u8]) -> bool {
    match side {
        Side::Request => {
            let decode = || RequestBody::decode_within(key, version, body, HEAP_BYTES_MAX).is_ok();
            let (is_ok, taken) = heap::taken(decode);
            let bytes = taken.bytes_peak;
            assert!(bytes <= HEAP_BYTES_MAX, "{key} v{version}: {bytes} bytes of heap for {body:?}");
            is_ok
        }
        Side::Response => {
            let (is_ok, taken) = heap::taken(|| ResponseBody::decode(key, version, body).is_ok());
            // No budget, but no more elements than the bytes can hold: at most the largest element over the smallest.
            let bytes = taken.bytes_peak;
            assert!(bytes <= 256 * body.len() + 256, "{key} v{version}: {bytes} bytes of heap");
            is_ok
        }
    }
}

#[test]
fn every_prefix_of_every_message_is_an_error_and_the_whole_is_not() {
    for (key, version, side) in every_message() {
        let body = support::body(key, version, side, &mut Choices::new(&rich_choices(1, 2000)));
        assert!(decodes(key, version, side, &body), "{key} {side:?} v{version}");
        for len in 0..body.len() {
            assert!(!decodes(key, version, side, &body[..len]), "{key} {side:?} v{version}: {len} bytes");
        }
    }
}

#[test]
fn a_huge_length_in_any_position_of_any_message_takes_no_heap_and_no_panic() {
    let mut refused = 0;
    for (key, version, side) in every_message() {
        for seed in 0..4 {
            let choices = rich_choices(seed, 2000);
            let body = support::body(key, version, side, &mut Choices::new(&choices));
            // Beyond a few hundred bytes a body only repeats itself.
            for at in 0..body.len().min(400) {
                for length in LENGTHS {
                    let mut hostile = body.clone();
                    let end = (at + length.len()).min(hostile.len());
                    hostile[at..end].copy_from_slice(&length[..end - at]);
                    refused += usize::from(!decodes(key, version, side, &hostile));
                    // And the same length in front of nothing but a few bytes more.
                    hostile.truncate(end + 3);
                    refused += usize::from(!decodes(key, version, side, &hostile));
                }
            }
        }
    }
    assert!(refused > 100_000, "only {refused} were refused: the lengths were not hit");
}

#[test]
fn random_bytes_are_an_error_or_a_value() {
    for (key, version, side) in every_message() {
        for seed in 0..200 {
            let mut bytes = rich_choices(seed, 100);
            // Small numbers, so that lengths are plausible and the decoder gets far.
            bytes.iter_mut().skip(usize::from(seed % 2 == 0)).for_each(|byte| *byte %= 6);
            decodes(key, version, side, &bytes);
        }
    }
}

#[test]
fn a_frame_of_one_byte_elements_meets_the_heap_budget_before_memory() {
    // 100 MiB of them, correctly announced: the length is true, and still too much.
    const ELEMENTS: u32 = 100 << 20;
    let mut body = vec![0u8; 0];
    let mut count = ELEMENTS + 1;
    while count >= 0x80 {
        body.push(count as u8 | 0x80);
        count >>= 7;
    }
    body.push(count as u8);
    body.resize(body.len() + ELEMENTS as usize + 1, 0);
    let (result, taken) = heap::taken(|| ListConfigResourcesRequest::decode_body(&body, 1));
    let wanted = ELEMENTS as usize;
    let expected = DecodeErrorKind::HeapBudget { wanted, left: HEAP_BYTES_MAX_DEFAULT };
    assert_eq!(result.unwrap_err().kind, expected);
    assert_eq!(taken.allocations, 0);
}

#[test]
fn a_count_that_the_rest_of_the_message_cannot_hold_is_refused_before_anything_is_allocated() {
    // 24 bytes could be two partitions of twelve; three are claimed, well within the budget.
    let mut body = vec![0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 3];
    body.extend_from_slice(&[0; 24]);
    let decode = || RequestBody::decode(ApiKey::DeleteRecords, 0, &body);
    let (result, taken) = heap::taken(decode);
    let error = result.unwrap_err();
    assert_eq!(error.kind, DecodeErrorKind::ArrayBeyondEnd { claimed: 3, left: 24 });
    assert_eq!((error.field, error.offset), ("DeleteRecordsTopic.partitions", 11));
    assert_eq!(taken.allocations, 1, "the array of topics, and nothing for its partitions");
}

#[test]
fn nested_arrays_share_one_budget() {
    // Topics of four partitions each: every array is small, all of them together are not.
    let topics = 3000u32;
    let mut body = topics.to_be_bytes().to_vec();
    for _ in 0..topics {
        body.extend_from_slice(&[0, 1, b't', 0, 0, 0, 4]);
        body.extend_from_slice(&[0; 4 * 12]);
    }
    body.extend_from_slice(&[0; 4]);
    let whole = |heap_bytes_max| {
        let decode = || RequestBody::decode_within(ApiKey::DeleteRecords, 0, &body, heap_bytes_max);
        let (result, taken) = heap::taken(decode);
        assert!(taken.bytes_peak <= heap_bytes_max, "{} bytes of heap", taken.bytes_peak);
        result
    };
    assert!(whole(1 << 20).is_ok());
    let error = whole(300 << 10).unwrap_err();
    assert!(matches!(error.kind, DecodeErrorKind::HeapBudget { .. }), "{error}");
    assert!(error.offset > body.len() / 4, "{error}: it should have come some way");
}

#[test]
fn produce_and_fetch_requests_decode_and_iterate_without_heap() {
    for key in [ApiKey::Produce, ApiKey::Fetch] {
        for version in key.versions().iter() {
            let choices = rich_choices(7, 4000);
            let body = support::body(key, version, Side::Request, &mut Choices::new(&choices));
            let ((partitions, bytes), taken) = heap::taken(|| match key {
                ApiKey::Produce => {
                    let request = ProduceRequest::decode_body(&body, version).unwrap();
                    let partitions = request.topic_data.iter().flat_map(|topic| topic.partition_data);
                    partitions
                        .fold((0, 0), |(n, bytes), partition| (n + 1, bytes + partition.records.map_or(0, <[u8]>::len)))
                }
                _ => {
                    let request = FetchRequest::decode_body(&body, version).unwrap();
                    let partitions = request.topics.iter().flat_map(|topic| topic.partitions);
                    let forgotten = request.forgotten_topics_data.iter().flat_map(|t| t.partitions);
                    (partitions.count() + forgotten.count(), 0)
                }
            });
            assert_eq!(taken.allocations, 0, "{key} v{version}");
            assert!(partitions > 0, "{key} v{version}: nothing was iterated");
            assert!(key == ApiKey::Fetch || bytes > 0, "{key} v{version}: no records");
        }
    }
}

#[test]
fn a_header_of_any_bytes_is_an_error_or_a_header() {
    for seed in 0..2000 {
        let bytes = rich_choices(seed, 40);
        for len in 0..bytes.len() {
            let (_, taken) = heap::taken(|| RequestHeader::decode(&bytes[..len]).is_ok());
            assert_eq!(taken.allocations, 0);
        }
    }
}
