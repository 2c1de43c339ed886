//! Responses on their way out: the streaming writers against the structs, and record batches that stay outside the frame.

#[path = "wire_support/mod.rs"]
mod support;

use bytes::BytesMut;
use corelog_net::wire::messages::*;
use corelog_net::wire::{
    ApiKey, EncodeErrorKind, Encoded, Encoder, ErrorCode, Piece, Records, Response, ResponseHeader, Uuid, VersionRange,
};
use support::{Choices, Side, rich_choices};

fn head(write: impl FnOnce(&mut Encoder), key: ApiKey, version: i16) -> Encoded {
    let mut e = ResponseHeader::begin(BytesMut::new(), key, version, 77);
    write(&mut e);
    e.finish().unwrap()
}

#[test]
fn the_fetch_writer_writes_what_the_struct_does() {
    for version in ApiKey::Fetch.versions().iter() {
        for seed in 0..20 {
            let choices = rich_choices(seed, 3000);
            let body = support::body(ApiKey::Fetch, version, Side::Response, &mut Choices::new(&choices));
            let response = FetchResponse::decode_body(&body, version).unwrap();
            let by_struct = response.encode_frame(BytesMut::new(), version, 77).unwrap();
            let by_writer = head(
                |e| {
                    let (throttle, session) = (response.throttle_time_ms, response.session_id);
                    let topics = response.responses.len();
                    let mut w = FetchResponseWriter::begin(e, throttle, response.error_code, session, topics);
                    for topic in &response.responses {
                        w.topic(topic.topic, topic.topic_id, topic.partitions.len());
                        topic.partitions.iter().for_each(|partition| w.partition(partition));
                    }
                    w.end(&response.node_endpoints);
                },
                ApiKey::Fetch,
                version,
            );
            assert_eq!(by_writer.head, by_struct.head, "version {version}: {response:?}");
        }
    }
}

#[test]
fn the_produce_writer_writes_what_the_struct_does() {
    for version in ApiKey::Produce.versions().iter() {
        for seed in 0..20 {
            let choices = rich_choices(seed, 3000);
            let body = support::body(ApiKey::Produce, version, Side::Response, &mut Choices::new(&choices));
            let response = ProduceResponse::decode_body(&body, version).unwrap();
            let by_struct = response.encode_frame(BytesMut::new(), version, 77).unwrap();
            let by_writer = head(
                |e| {
                    let mut w = ProduceResponseWriter::begin(e, response.responses.len());
                    for topic in &response.responses {
                        w.topic(topic.name, topic.topic_id, topic.partition_responses.len());
                        topic.partition_responses.iter().for_each(|partition| w.partition(partition));
                    }
                    w.end(response.throttle_time_ms, &response.node_endpoints);
                },
                ApiKey::Produce,
                version,
            );
            assert_eq!(by_writer.head, by_struct.head, "version {version}: {response:?}");
        }
    }
}

/// A response of two topics and three partitions; `records` says how each partition's batches are given.
fn fetch_response<'a>(records: [Records<'a>; 3]) -> FetchResponse<'a> {
    let mut records = records.into_iter();
    let mut partition = |partition_index| FetchPartitionData {
        partition_index,
        high_watermark: 100,
        records: records.next().unwrap(),
        ..FetchPartitionData::default()
    };
    let topic = |topic, partitions| FetchableTopicResponse { topic, topic_id: Uuid([9; 16]), partitions };
    FetchResponse {
        session_id: 5,
        responses: vec![topic("a", vec![partition(0), partition(1)]), topic("b", vec![partition(0)])],
        ..FetchResponse::default()
    }
}

#[test]
fn external_records_spliced_in_give_the_same_frame_as_inline_ones() {
    let batches: [&[u8]; 3] = [&[1; 300], &[], &[3; 7]];
    for version in ApiKey::Fetch.versions().iter() {
        let inline = fetch_response(batches.map(Records::Inline));
        let expected = inline.encode_frame(BytesMut::new(), version, 77).unwrap();
        assert!(expected.holes.is_empty());

        let external = fetch_response(batches.map(|batch| Records::External { len: batch.len() }));
        let encoded = external.encode_frame(BytesMut::new(), version, 77).unwrap();
        let mut frame = Vec::new();
        for piece in encoded.pieces() {
            match piece {
                Piece::Head(range) => frame.extend_from_slice(&encoded.head[range]),
                Piece::Payload { hole, len } => {
                    assert_eq!(batches[hole].len(), len);
                    frame.extend_from_slice(batches[hole]);
                }
            }
        }
        assert_eq!(frame, &expected.head[..], "version {version}");
        assert_eq!(encoded.frame_bytes(), frame.len());
    }
}

#[test]
fn null_records_and_empty_records_stay_apart() {
    for version in ApiKey::Fetch.versions().iter() {
        let records = [Records::Null, Records::Inline(&[]), Records::Inline(&[1])];
        let response = fetch_response(records);
        let encoded = response.encode_frame(BytesMut::new(), version, 77).unwrap();
        let (header, body) = ResponseHeader::decode(&encoded.head[4..], ApiKey::Fetch, version).unwrap();
        assert_eq!(header.correlation_id, 77);
        let decoded = FetchResponse::decode_body(body, version).unwrap();
        let partitions = decoded.responses.iter().flat_map(|topic| &topic.partitions);
        assert_eq!(partitions.map(|partition| partition.records).collect::<Vec<_>>(), records);
    }
}

#[test]
fn an_unknown_version_of_api_versions_is_answered_in_the_shape_of_version_0() {
    let VersionRange { min, max } = ApiKey::ApiVersions.advertised_versions();
    let response = ApiVersionsResponse {
        error_code: ErrorCode::UnsupportedVersion,
        api_keys: vec![ApiVersion { api_key: 18, min_version: min, max_version: max }],
        ..ApiVersionsResponse::default()
    };
    let encoded = response.encode_frame(BytesMut::new(), 0, 7).unwrap();
    let expected = [0, 0, 0, 16, 0, 0, 0, 7, 0, 35, 0, 0, 0, 1, 0, 18, 0, 0, 0, 4];
    assert_eq!(&encoded.head[..], &expected);
}

#[test]
fn the_api_versions_response_has_no_tagged_fields_in_its_header() {
    let encoded = ApiVersionsResponse::default().encode_frame(BytesMut::new(), 4, 7).unwrap();
    // Size, correlation id, error, empty array, throttle time, no tagged fields of the body.
    assert_eq!(&encoded.head[..], &[0, 0, 0, 12, 0, 0, 0, 7, 0, 0, 1, 0, 0, 0, 0, 0]);
}

#[test]
fn a_null_name_cannot_be_written_in_a_version_without_it() {
    let topic = MetadataResponseTopic { name: None, ..MetadataResponseTopic::default() };
    let response = MetadataResponse { topics: vec![topic], ..MetadataResponse::default() };
    assert!(response.encode_frame(BytesMut::new(), 12, 1).is_ok());
    let error = response.encode_frame(BytesMut::new(), 11, 1).unwrap_err();
    assert_eq!(error.field, "MetadataResponseTopic.name");
    assert_eq!(error.kind, EncodeErrorKind::Null { version: 11 });
}

#[test]
fn a_version_without_a_layout_is_neither_read_nor_written() {
    let error = MetadataResponse::default().encode_frame(BytesMut::new(), 14, 1).unwrap_err();
    assert_eq!(error.kind, EncodeErrorKind::UnsupportedVersion { version: 14 });
    assert!(MetadataResponse::decode_body(&[0; 64], 14).is_err());
    assert!(MetadataResponse::decode_body(&[0; 64], -1).is_err());
}

#[test]
#[should_panic(expected = "the last topic lacks partitions")]
fn a_promised_partition_that_does_not_come_is_caught() {
    let mut e = ResponseHeader::begin(BytesMut::new(), ApiKey::Fetch, 13, 1);
    let mut w = FetchResponseWriter::begin(&mut e, 0, ErrorCode::None, 0, 1);
    w.topic("t", Uuid::ZERO, 1);
    w.end(&[]);
}
