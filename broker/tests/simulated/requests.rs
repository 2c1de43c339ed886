//! Holds: the requests of the workload and what is of interest in their answers. Never touches: what must be true of them.

use corelog_net::wire::messages::*;
use corelog_net::wire::{ErrorCode, LazyArray, Records, Response, Uuid};

use super::client::{Answer, Connection, Gone};
use super::model::Key;

/// Topics are named by id from these versions on.
const PRODUCE_BY_ID: i16 = 13;
const FETCH_BY_ID: i16 = 13;

/// Where a topic's id and name are both known, either may be used.
#[derive(Clone, Debug)]
pub struct Place {
    pub topic: String,
    pub key: Key,
}

fn read<'a, R: Response<'a>>(body: &'a [u8], version: i16) -> R {
    R::decode_body(body, version).unwrap_or_else(|error| panic!("an answer in version {version}: {error}"))
}

/// Sends batches, one to each place; with `acks` 0 there is nothing to wait for.
pub fn produce(connection: &Connection, version: i16, acks: i16, batches: &[(Place, Vec<u8>)]) -> Option<Answer> {
    let partitions: Vec<[PartitionProduceData<'_>; 1]> = batches
        .iter()
        .map(|(place, bytes)| [PartitionProduceData { index: place.key.1, records: Some(bytes) }])
        .collect();
    let topics: Vec<TopicProduceData<'_>> = batches
        .iter()
        .zip(&partitions)
        .map(|((place, _), partitions)| TopicProduceData {
            name: &place.topic,
            topic_id: place.key.0,
            partition_data: LazyArray::from_slice(partitions),
        })
        .collect();
    let request =
        ProduceRequest { transactional_id: None, acks, timeout_ms: 30_000, topic_data: LazyArray::from_slice(&topics) };
    if acks == 0 {
        connection.fire(version, &request);
        return None;
    }
    Some(connection.start(version, &request))
}

/// What became of one batch.
#[derive(Clone, Copy, Debug)]
pub struct Produced {
    pub error: ErrorCode,
    pub base: i64,
    pub log_start: i64,
}

/// One outcome a batch, in the order of the request, whose batches went to different partitions.
pub fn produced(body: &[u8], version: i16, batches: &[(Place, Vec<u8>)]) -> Vec<Produced> {
    let response: ProduceResponse<'_> = read(body, version);
    let found = |place: &Place| {
        let of_topic = |topic: &&TopicProduceResponse<'_>| {
            if version >= PRODUCE_BY_ID { topic.topic_id == place.key.0 } else { topic.name == place.topic }
        };
        let topics = response.responses.iter().filter(of_topic);
        let mut partitions = topics.flat_map(|topic| &topic.partition_responses);
        let found = partitions.find(|partition| partition.index == place.key.1);
        found.unwrap_or_else(|| panic!("no outcome for {place:?} in {response:?}"))
    };
    let outcome = |place: &Place| {
        let partition = found(place);
        Produced { error: partition.error_code, base: partition.base_offset, log_start: partition.log_start_offset }
    };
    batches.iter().map(|(place, _)| outcome(place)).collect()
}

/// A fetch of several partitions.
#[derive(Clone, Debug)]
pub struct Fetch {
    pub version: i16,
    pub session: (i32, i32),
    pub wait_ms: i32,
    pub bytes_max: i32,
    pub partitions: Vec<(Place, i64)>,
}

/// What a fetch brought from one partition.
#[derive(Clone, Debug)]
pub struct Fetched {
    pub topic: String,
    pub id: Uuid,
    pub partition: i32,
    pub error: ErrorCode,
    pub visible: i64,
    pub log_start: i64,
    pub records: Vec<u8>,
}

impl Fetched {
    pub fn is_of(&self, place: &Place) -> bool {
        (self.id == place.key.0 || self.topic == place.topic) && self.partition == place.key.1
    }
}

/// The error of the whole, the session, and the partitions.
pub async fn fetch(connection: &Connection, fetch: &Fetch) -> Result<(ErrorCode, i32, Vec<Fetched>), Gone> {
    let partitions: Vec<[FetchPartition; 1]> = fetch
        .partitions
        .iter()
        .map(|(place, offset)| {
            [FetchPartition {
                partition: place.key.1,
                fetch_offset: *offset,
                partition_max_bytes: fetch.bytes_max,
                ..FetchPartition::default()
            }]
        })
        .collect();
    let topics: Vec<FetchTopic<'_>> = fetch
        .partitions
        .iter()
        .zip(&partitions)
        .map(|((place, _), partitions)| FetchTopic {
            topic: &place.topic,
            topic_id: place.key.0,
            partitions: LazyArray::from_slice(partitions),
        })
        .collect();
    let request = FetchRequest {
        max_wait_ms: fetch.wait_ms,
        min_bytes: 1,
        max_bytes: fetch.bytes_max.saturating_mul(2),
        session_id: fetch.session.0,
        session_epoch: fetch.session.1,
        topics: LazyArray::from_slice(&topics),
        ..FetchRequest::default()
    };
    let body = connection.call(fetch.version, &request).await?;
    let response: FetchResponse<'_> = read(&body, fetch.version);
    let mut fetched = Vec::new();
    for topic in &response.responses {
        for partition in &topic.partitions {
            fetched.push(Fetched {
                topic: if fetch.version < FETCH_BY_ID { topic.topic.to_owned() } else { String::new() },
                id: topic.topic_id,
                partition: partition.partition_index,
                error: partition.error_code,
                visible: partition.high_watermark,
                log_start: partition.log_start_offset,
                records: match partition.records {
                    Records::Inline(bytes) => bytes.to_vec(),
                    Records::Null | Records::External { .. } => Vec::new(),
                },
            });
        }
    }
    Ok((response.error_code, response.session_id, fetched))
}

/// (error, offset) at a timestamp or mark.
pub async fn list_offset(connection: &Connection, place: &Place, timestamp: i64) -> Result<(ErrorCode, i64), Gone> {
    let partitions =
        vec![ListOffsetsPartition { partition_index: place.key.1, timestamp, ..ListOffsetsPartition::default() }];
    let topics = vec![ListOffsetsTopic { name: &place.topic, partitions }];
    let request = ListOffsetsRequest { replica_id: -1, topics, ..ListOffsetsRequest::default() };
    let body = connection.call(7, &request).await?;
    let response: ListOffsetsResponse<'_> = read(&body, 7);
    let found = &response.topics[0].partitions[0];
    Ok((found.error_code, found.offset))
}

/// (error, epoch, end offset): where an epoch ends in the leader's log.
pub async fn epoch_end(connection: &Connection, place: &Place, epoch: i32) -> Result<(ErrorCode, i32, i64), Gone> {
    let partitions =
        vec![OffsetForLeaderPartition { partition: place.key.1, current_leader_epoch: -1, leader_epoch: epoch }];
    let topics = vec![OffsetForLeaderTopic { topic: &place.topic, partitions }];
    let request = OffsetForLeaderEpochRequest { replica_id: -1, topics };
    let body = connection.call(4, &request).await?;
    let response: OffsetForLeaderEpochResponse<'_> = read(&body, 4);
    let found = &response.topics[0].partitions[0];
    Ok((found.error_code, found.leader_epoch, found.end_offset))
}

/// (error, low watermark).
pub async fn delete_records(connection: &Connection, place: &Place, offset: i64) -> Result<(ErrorCode, i64), Gone> {
    let partitions = vec![DeleteRecordsPartition { partition_index: place.key.1, offset }];
    let topics = vec![DeleteRecordsTopic { name: &place.topic, partitions }];
    let body = connection.call(2, &DeleteRecordsRequest { topics, timeout_ms: 30_000 }).await?;
    let response: DeleteRecordsResponse<'_> = read(&body, 2);
    let found = &response.topics[0].partitions[0];
    Ok((found.error_code, found.low_watermark))
}

/// (error, id).
pub async fn create_topic(
    connection: &Connection,
    name: &str,
    partitions: i32,
    configs: &[(&str, String)],
) -> Result<(ErrorCode, Uuid), Gone> {
    let configs = configs.iter().map(|(name, value)| CreatableTopicConfig { name, value: Some(value) }).collect();
    let topic = CreatableTopic {
        name,
        num_partitions: partitions,
        replication_factor: 1,
        configs,
        ..CreatableTopic::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], ..CreateTopicsRequest::default() };
    let body = connection.call(7, &request).await?;
    let response: CreateTopicsResponse<'_> = read(&body, 7);
    Ok((response.topics[0].error_code, response.topics[0].topic_id))
}

pub async fn delete_topic(connection: &Connection, name: &str) -> Result<ErrorCode, Gone> {
    let topics = vec![DeleteTopicState { name: Some(name), topic_id: Uuid::ZERO }];
    let request = DeleteTopicsRequest { topics, timeout_ms: 30_000, ..DeleteTopicsRequest::default() };
    let body = connection.call(6, &request).await?;
    let response: DeleteTopicsResponse<'_> = read(&body, 6);
    Ok(response.responses[0].error_code)
}

pub async fn create_partitions(connection: &Connection, name: &str, count: i32) -> Result<ErrorCode, Gone> {
    let topics = vec![CreatePartitionsTopic { name, count, assignments: None }];
    let request = CreatePartitionsRequest { topics, timeout_ms: 30_000, validate_only: false };
    let body = connection.call(3, &request).await?;
    let response: CreatePartitionsResponse<'_> = read(&body, 3);
    Ok(response.results[0].error_code)
}

/// A topic's resource type in the config APIs.
const TOPIC_RESOURCE: i8 = 2;

pub async fn set_config(connection: &Connection, topic: &str, name: &str, value: &str) -> Result<ErrorCode, Gone> {
    let configs = vec![IncrementalAlterableConfig { name, config_operation: 0, value: Some(value) }];
    let resource = IncrementalAlterConfigsResource { resource_type: TOPIC_RESOURCE, resource_name: topic, configs };
    let request = IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: false };
    let body = connection.call(1, &request).await?;
    let response: IncrementalAlterConfigsResponse<'_> = read(&body, 1);
    Ok(response.responses[0].error_code)
}

pub async fn config(connection: &Connection, topic: &str, name: &str) -> Result<(ErrorCode, String), Gone> {
    let resource = DescribeConfigsResource {
        resource_type: TOPIC_RESOURCE,
        resource_name: topic,
        configuration_keys: Some(vec![name]),
    };
    let request = DescribeConfigsRequest { resources: vec![resource], ..DescribeConfigsRequest::default() };
    let body = connection.call(4, &request).await?;
    let response: DescribeConfigsResponse<'_> = read(&body, 4);
    let found = &response.results[0];
    let value = found.configs.first().and_then(|config| config.value).unwrap_or_default();
    Ok((found.error_code, value.to_owned()))
}

/// (error, id, epoch).
pub async fn producer_id(connection: &Connection) -> Result<(ErrorCode, i64, i16), Gone> {
    let request = InitProducerIdRequest { transactional_id: None, ..InitProducerIdRequest::default() };
    let body = connection.call(4, &request).await?;
    let response: InitProducerIdResponse = read(&body, 4);
    Ok((response.error_code, response.producer_id, response.producer_epoch))
}

/// A topic as Metadata tells it: name, id, leader epochs of its partitions.
pub type Described = (String, Uuid, Vec<i32>);

/// All topics.
pub async fn metadata(connection: &Connection) -> Result<Vec<Described>, Gone> {
    let request = MetadataRequest { topics: None, ..MetadataRequest::default() };
    let body = connection.call(12, &request).await?;
    let response: MetadataResponse<'_> = read(&body, 12);
    let described = |topic: &MetadataResponseTopic<'_>| {
        assert_eq!(topic.error_code, ErrorCode::None, "{topic:?}");
        let epochs = topic.partitions.iter().map(|partition| partition.leader_epoch).collect();
        (topic.name.unwrap_or_default().to_owned(), topic.topic_id, epochs)
    };
    Ok(response.topics.iter().map(described).collect())
}
