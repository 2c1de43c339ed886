//! What a run needs to know of a cluster, and what it makes there.
//!
//! Holds: topics (made, found, deleted), their ids and partitions, start and end offsets, producer ids. Never touches: load.
//!
//! One broker leads everything in this version: a topic whose partitions are led by several is refused with a word.

use std::time::Duration;

use corelog_net::wire::messages::{
    CreatableTopic, CreatableTopicConfig, CreateTopicsRequest, CreateTopicsResponse, DeleteTopicState,
    DeleteTopicsRequest, DeleteTopicsResponse, InitProducerIdRequest, InitProducerIdResponse, ListOffsetsPartition,
    ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic, MetadataRequest, MetadataRequestTopic, MetadataResponse,
};
use corelog_net::wire::{ApiKey, ErrorCode, Uuid};
use corelog_reactor::Reactor;

use super::rpc::{Rpc, Versions};
use crate::error::BenchError;

/// How often a topic that was just made is looked for.
const LOOKS: usize = 100;
/// Pause between two looks.
const LOOK_PAUSE: Duration = Duration::from_millis(100);
/// How long the broker may take to make or delete a topic.
const ADMIN_TIMEOUT_MS: i32 = 30_000;

/// The timestamp that stands for the end of a log.
pub const LATEST: i64 = -1;
/// The timestamp that stands for the start of a log.
pub const EARLIEST: i64 = -2;

/// A topic ready for load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// Its name.
    pub name: String,
    /// Its id; zero where the broker has none.
    pub id: Uuid,
    /// How many partitions.
    pub partitions: usize,
    /// `host:port` of the broker that leads them.
    pub leader: String,
}

/// An id of an idempotent producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerId {
    /// The id.
    pub id: i64,
    /// Its epoch.
    pub epoch: i16,
}

/// A connection for preparing runs.
pub struct Cluster {
    rpc: Rpc,
    reactor: Reactor,
}

impl Cluster {
    /// Connects to a broker of the cluster.
    ///
    /// # Errors
    /// Nobody there.
    pub async fn connect(reactor: &Reactor, bootstrap: &str) -> Result<Self, BenchError> {
        Ok(Self { rpc: Rpc::connect(reactor, bootstrap).await?, reactor: reactor.clone() })
    }

    /// The versions that both sides speak.
    pub const fn versions(&self) -> &Versions {
        self.rpc.versions()
    }

    /// Makes a topic, unless it is there. Returns whether it was made.
    ///
    /// # Errors
    /// The broker refuses.
    pub async fn create(
        &mut self,
        name: &str,
        partitions: usize,
        configs: &[(String, String)],
    ) -> Result<bool, BenchError> {
        let configs = configs.iter().map(|(name, value)| CreatableTopicConfig { name, value: Some(value) }).collect();
        let topic = CreatableTopic {
            name,
            num_partitions: partitions as i32,
            replication_factor: 1,
            configs,
            ..CreatableTopic::default()
        };
        let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: ADMIN_TIMEOUT_MS, validate_only: false };
        let answer = self.rpc.call(&request).await?;
        let response: CreateTopicsResponse<'_> = answer.body()?;
        match response.topics.first() {
            Some(made) if made.error_code == ErrorCode::TopicAlreadyExists => Ok(false),
            Some(refused) if refused.error_code != ErrorCode::None => Err(BenchError::Refused {
                what: format!("creating topic {name}"),
                code: refused.error_code,
                detail: refused.error_message.map(str::to_owned),
            }),
            Some(_) | None => Ok(true),
        }
    }

    /// Finds a topic. One that was `just_made` may need a while to appear; one that wasn't is looked for once more only, as
    /// a leader may be in the making.
    ///
    /// # Errors
    /// It isn't there, or several brokers lead it.
    pub async fn find(&mut self, name: &str, just_made: bool) -> Result<Topic, BenchError> {
        let mut last = ErrorCode::UnknownTopicOrPartition;
        for look in 0..LOOKS {
            if look > 1 && !just_made && last == ErrorCode::UnknownTopicOrPartition {
                break;
            }
            let wanted = MetadataRequestTopic { name: Some(name), ..MetadataRequestTopic::default() };
            let request = MetadataRequest {
                topics: Some(vec![wanted]),
                allow_auto_topic_creation: false,
                ..MetadataRequest::default()
            };
            let answer = self.rpc.call(&request).await?;
            let response: MetadataResponse<'_> = answer.body()?;
            match ready(name, &response) {
                Ok(topic) => return topic,
                Err(code) => last = code,
            }
            self.reactor.sleep(LOOK_PAUSE).await;
        }
        match last {
            ErrorCode::UnknownTopicOrPartition => Err(BenchError::NoTopic { topic: name.into() }),
            code => Err(BenchError::Refused { what: format!("looking for topic {name}"), code, detail: None }),
        }
    }

    /// Waits until every partition answers: metadata may name a leader that has not begun to lead.
    ///
    /// # Errors
    /// A partition does not come.
    pub async fn await_leaders(&mut self, topic: &Topic) -> Result<(), BenchError> {
        let mut looks = LOOKS;
        loop {
            match self.offsets(topic, LATEST).await {
                Err(BenchError::Refused { code, .. }) if looks > 0 && is_passing(code) => looks -= 1,
                other => return other.map(drop),
            }
            self.reactor.sleep(LOOK_PAUSE).await;
        }
    }

    /// Deletes a topic.
    ///
    /// # Errors
    /// The broker refuses.
    pub async fn delete(&mut self, name: &str) -> Result<(), BenchError> {
        let by_state = self.rpc.version(ApiKey::DeleteTopics)? >= 6;
        let request = DeleteTopicsRequest {
            topics: if by_state {
                vec![DeleteTopicState { name: Some(name), topic_id: Uuid::default() }]
            } else {
                vec![]
            },
            topic_names: if by_state { vec![] } else { vec![name] },
            timeout_ms: ADMIN_TIMEOUT_MS,
        };
        let answer = self.rpc.call(&request).await?;
        let response: DeleteTopicsResponse<'_> = answer.body()?;
        match response.responses.first().map(|topic| topic.error_code) {
            None | Some(ErrorCode::None | ErrorCode::UnknownTopicOrPartition) => Ok(()),
            Some(code) => Err(BenchError::Refused { what: format!("deleting topic {name}"), code, detail: None }),
        }
    }

    /// The offset of each partition at `timestamp`, which may be [`LATEST`] or [`EARLIEST`].
    ///
    /// # Errors
    /// The broker refuses.
    pub async fn offsets(&mut self, topic: &Topic, timestamp: i64) -> Result<Vec<i64>, BenchError> {
        let partition = |index| ListOffsetsPartition { partition_index: index as i32, timestamp, ..Default::default() };
        let wanted = ListOffsetsTopic { name: &topic.name, partitions: (0..topic.partitions).map(partition).collect() };
        let request = ListOffsetsRequest {
            replica_id: -1,
            topics: vec![wanted],
            timeout_ms: ADMIN_TIMEOUT_MS,
            ..ListOffsetsRequest::default()
        };
        let answer = self.rpc.call(&request).await?;
        let response: ListOffsetsResponse<'_> = answer.body()?;
        let mut offsets = vec![0; topic.partitions];
        for found in response.topics.iter().flat_map(|topic| &topic.partitions) {
            if found.error_code != ErrorCode::None {
                let what = format!("offsets of {} partition {}", topic.name, found.partition_index);
                return Err(BenchError::Refused { what, code: found.error_code, detail: None });
            }
            if let Some(place) = offsets.get_mut(found.partition_index as usize) {
                *place = found.offset;
            }
        }
        Ok(offsets)
    }

    /// An id for an idempotent producer.
    ///
    /// # Errors
    /// The broker refuses.
    pub async fn producer_id(&mut self) -> Result<ProducerId, BenchError> {
        let request = InitProducerIdRequest { transactional_id: None, ..InitProducerIdRequest::default() };
        let mut code = ErrorCode::None;
        for _ in 0..LOOKS {
            let answer = self.rpc.call(&request).await?;
            let response: InitProducerIdResponse = answer.body()?;
            code = response.error_code;
            match code {
                ErrorCode::None => return Ok(ProducerId { id: response.producer_id, epoch: response.producer_epoch }),
                ErrorCode::CoordinatorLoadInProgress | ErrorCode::CoordinatorNotAvailable => {
                    self.reactor.sleep(LOOK_PAUSE).await;
                }
                _ => break,
            }
        }
        Err(BenchError::Refused { what: "a producer id".into(), code, detail: None })
    }
}

/// Errors of a partition whose leader is still to begin.
fn is_passing(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::NotLeaderOrFollower
            | ErrorCode::LeaderNotAvailable
            | ErrorCode::UnknownTopicOrPartition
            | ErrorCode::UnknownLeaderEpoch
    )
}

/// The topic as the metadata shows it; the outer error says that it may yet come.
fn ready(name: &str, metadata: &MetadataResponse<'_>) -> Result<Result<Topic, BenchError>, ErrorCode> {
    let found = metadata.topics.first().ok_or(ErrorCode::UnknownTopicOrPartition)?;
    if found.error_code != ErrorCode::None {
        return Err(found.error_code);
    }
    let leaders: Vec<i32> = found.partitions.iter().map(|partition| partition.leader_id).collect();
    let Some(&leader) = leaders.first().filter(|leader| **leader >= 0) else {
        return Err(ErrorCode::LeaderNotAvailable);
    };
    if leaders.iter().any(|other| *other != leader) {
        let text = format!("topic {name} is led by several brokers: this version loads one broker at a time");
        return Ok(Err(BenchError::Usage(text)));
    }
    let broker = metadata.brokers.iter().find(|broker| broker.node_id == leader);
    let broker = broker.ok_or(ErrorCode::LeaderNotAvailable)?;
    Ok(Ok(Topic {
        name: name.to_owned(),
        id: found.topic_id,
        partitions: found.partitions.len(),
        leader: format!("{}:{}", broker.host, broker.port),
    }))
}
