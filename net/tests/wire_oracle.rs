//! The codec against `kafka-protocol`, which is generated from Kafka's own schemas: every API, every version, both
//! directions.

#[path = "wire_support/shown.rs"]
mod shown;
#[path = "wire_support/mod.rs"]
mod support;

use bytes::{Bytes, BytesMut};
use corelog_net::wire::{ApiKey, RequestBody, RequestHeader, ResponseBody, ResponseHeader};
use kafka_protocol::messages as oracle;
use kafka_protocol::protocol::{Decodable, Encodable};
use proptest::collection::vec;
use proptest::prelude::*;
use support::{Choices, Side, every_message};

/// What we make of a body: how it shows, and the body we write for it.
fn ours(key: ApiKey, version: i16, side: Side, body: &[u8]) -> (String, Vec<u8>) {
    match side {
        Side::Request => {
            let value = RequestBody::decode(key, version, body).unwrap();
            let mut e = RequestHeader::begin(BytesMut::new(), key, version, 0, None);
            let header_bytes = e.head_bytes();
            value.encode(&mut e);
            (format!("{value:?}"), e.finish().unwrap().head[header_bytes..].to_vec())
        }
        Side::Response => {
            let value = ResponseBody::decode(key, version, body).unwrap();
            let mut e = ResponseHeader::begin(BytesMut::new(), key, version, 0);
            let header_bytes = e.head_bytes();
            value.encode(&mut e);
            (format!("{value:?}"), e.finish().unwrap().head[header_bytes..].to_vec())
        }
    }
}

fn through<M: Decodable + Encodable + std::fmt::Debug>(version: i16, body: &[u8]) -> (String, Vec<u8>) {
    let mut bytes = Bytes::copy_from_slice(body);
    let value = M::decode(&mut bytes, version).unwrap();
    assert!(bytes.is_empty(), "the oracle left {} bytes", bytes.len());
    let mut written = BytesMut::new();
    value.encode(&mut written, version).unwrap();
    // Shown as ours is, inside the enum of all messages.
    (format!("Body({value:?})"), written.to_vec())
}

macro_rules! oracle {
    ($($api:ident: $request:ident, $response:ident;)*) => {
        fn oracles(key: ApiKey, version: i16, side: Side, body: &[u8]) -> (String, Vec<u8>) {
            match (key, side) {
                $(
                    (ApiKey::$api, Side::Request) => through::<oracle::$request>(version, body),
                    (ApiKey::$api, Side::Response) => through::<oracle::$response>(version, body),
                )*
            }
        }
    };
}

oracle! {
    Produce: ProduceRequest, ProduceResponse;
    Fetch: FetchRequest, FetchResponse;
    ListOffsets: ListOffsetsRequest, ListOffsetsResponse;
    Metadata: MetadataRequest, MetadataResponse;
    ApiVersions: ApiVersionsRequest, ApiVersionsResponse;
    CreateTopics: CreateTopicsRequest, CreateTopicsResponse;
    DeleteTopics: DeleteTopicsRequest, DeleteTopicsResponse;
    DeleteRecords: DeleteRecordsRequest, DeleteRecordsResponse;
    InitProducerId: InitProducerIdRequest, InitProducerIdResponse;
    OffsetForLeaderEpoch: OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse;
    DescribeConfigs: DescribeConfigsRequest, DescribeConfigsResponse;
    AlterConfigs: AlterConfigsRequest, AlterConfigsResponse;
    DescribeLogDirs: DescribeLogDirsRequest, DescribeLogDirsResponse;
    CreatePartitions: CreatePartitionsRequest, CreatePartitionsResponse;
    IncrementalAlterConfigs: IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse;
    DescribeCluster: DescribeClusterRequest, DescribeClusterResponse;
    DescribeProducers: DescribeProducersRequest, DescribeProducersResponse;
    ListConfigResources: ListConfigResourcesRequest, ListConfigResourcesResponse;
    DescribeTopicPartitions: DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse;
}

/// The version in which the oracle reads a body: it was made from Kafka 4.1, where ListOffsets ended at 10. Version 11 adds
/// a mark for the timestamp (KIP-1023) and no field.
fn oracle_version(key: ApiKey, version: i16) -> i16 {
    match (key, version) {
        (ApiKey::ListOffsets, 11) => 10,
        _ => version,
    }
}

fn compare(key: ApiKey, version: i16, side: Side, choices: &[u8]) {
    let body = support::body(key, version, side, &mut Choices::new(choices));
    let what = format!("{key} {side:?} v{version}");
    let (our_value, our_bytes) = ours(key, version, side, &body);
    let (oracle_value, oracle_bytes) = oracles(key, oracle_version(key, version), side, &body);
    shown::assert_same(&what, &shown::read(&our_value), &shown::read(&oracle_value));
    assert_eq!(our_bytes, oracle_bytes, "{what}: {our_value}");
    // What the oracle wrote reads back as the same value, and a second pass changes nothing.
    let (again, bytes_again) = ours(key, version, side, &oracle_bytes);
    assert_eq!(again, our_value, "{what}");
    assert_eq!(bytes_again, our_bytes, "{what}");
}

#[test]
fn every_message_reads_and_writes_as_the_oracle_does() {
    for (key, version, side) in every_message() {
        for seed in 0..40 {
            compare(key, version, side, &support::rich_choices(seed, 2000));
        }
    }
}

#[test]
fn a_message_without_contents_shows_kafkas_defaults_for_what_its_version_lacks() {
    for (key, version, side) in every_message() {
        compare(key, version, side, &[]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn any_message_reads_and_writes_as_the_oracle_does(choices in vec(any::<u8>(), 0..800)) {
        for (key, version, side) in every_message() {
            compare(key, version, side, &choices);
        }
    }

    #[test]
    fn tagged_fields_that_nobody_knows_change_nothing(choices in vec(any::<u8>(), 0..400)) {
        for (key, version, side) in every_message() {
            let body = support::body_with_unknown_tags(key, version, side, &mut Choices::new(&choices));
            let (value, written) = ours(key, version, side, &body);
            let (again, written_again) = ours(key, version, side, &written);
            prop_assert_eq!(value, again);
            prop_assert_eq!(written, written_again);
        }
    }
}
