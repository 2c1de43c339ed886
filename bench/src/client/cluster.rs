//! What a run needs to know of a cluster, and what it makes there.
//!
//! Holds: topics (made, grown, found, deleted), their ids and partitions, start and end offsets, producer ids. Never touches:
//! load.
//!
//! One broker leads everything in this version: a topic whose partitions are led by several is refused with a word.

use std::time::Duration;

use corelog_net::wire::messages::{
    CreatableTopic, CreatableTopicConfig, CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopic,
    CreateTopicsRequest, CreateTopicsResponse, DeleteTopicState, DeleteTopicsRequest, DeleteTopicsResponse,
    InitProducerIdRequest, InitProducerIdResponse, ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse,
    ListOffsetsTopic, MetadataRequest, MetadataRequestTopic, MetadataResponse,
};
use corelog_net::wire::{ApiKey, ErrorCode, Uuid};
use corelog_reactor::Reactor;

use super::rpc::{Rpc, Versions};
use crate::error::BenchError;
use crate::interrupt::is_interrupted;

/// Partitions that one request makes: Kafka's controller takes at most 10,000 records of a request, of which the topic itself
/// and each of its settings are some.
const PARTITIONS_A_REQUEST_MAX: usize = 5_000;
/// How long a topic that was just made may take to be led everywhere.
const READY_PATIENCE: Duration = Duration::from_secs(10);
/// And for each of its partitions: Kafka makes a hundred of them a second, on a busy machine fewer.
const READY_PATIENCE_A_PARTITION: Duration = Duration::from_millis(60);
/// How often a producer id is asked for.
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

/// What is known of a topic that was just made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    /// Its id; zero where the broker told none.
    pub id: Uuid,
    /// How many partitions it has, or is about to have.
    pub partitions: usize,
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
    bootstrap: String,
}

impl Cluster {
    /// Connects to a broker of the cluster.
    ///
    /// # Errors
    /// Nobody there.
    pub async fn connect(reactor: &Reactor, bootstrap: &str) -> Result<Self, BenchError> {
        let rpc = Rpc::connect(reactor, bootstrap).await?;
        Ok(Self { rpc, reactor: reactor.clone(), bootstrap: bootstrap.to_owned() })
    }

    /// The versions that both sides speak.
    pub const fn versions(&self) -> &Versions {
        self.rpc.versions()
    }

    /// Makes a topic, unless it is there.
    ///
    /// More partitions than one request may ask for are added by further ones; if one of those fails, the topic is deleted
    /// again: half of it is of no use to anybody.
    ///
    /// # Errors
    /// The broker refuses.
    pub async fn create(
        &mut self,
        name: &str,
        partitions: usize,
        configs: &[(String, String)],
    ) -> Result<Option<Made>, BenchError> {
        let first = partitions.min(PARTITIONS_A_REQUEST_MAX);
        let Some(id) = self.create_at_once(name, first, configs).await? else { return Ok(None) };
        if let Err(error) = self.grow(name, first, partitions).await {
            Self::tidy_up(&self.reactor, &self.bootstrap, name).await;
            return Err(error);
        }
        Ok(Some(Made { id, partitions }))
    }

    /// The id of the topic, unless it was there.
    async fn create_at_once(
        &mut self,
        name: &str,
        partitions: usize,
        configs: &[(String, String)],
    ) -> Result<Option<Uuid>, BenchError> {
        let configs = configs.iter().map(|(name, value)| CreatableTopicConfig { name, value: Some(value) }).collect();
        let topic = CreatableTopic {
            name,
            num_partitions: count(partitions)?,
            replication_factor: 1,
            configs,
            ..CreatableTopic::default()
        };
        let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: ADMIN_TIMEOUT_MS, validate_only: false };
        let answer = self.rpc.call(&request).await?;
        let response: CreateTopicsResponse<'_> = answer.body()?;
        match response.topics.first() {
            Some(made) if made.error_code == ErrorCode::TopicAlreadyExists => Ok(None),
            Some(refused) if refused.error_code != ErrorCode::None => Err(BenchError::Refused {
                what: format!("creating topic {name}"),
                code: refused.error_code,
                detail: refused.error_message.map(str::to_owned),
            }),
            Some(made) => Ok(Some(made.topic_id)),
            None => Ok(Some(Uuid::default())),
        }
    }

    /// Adds partitions to a topic that has `from` of them, until it has `to`.
    async fn grow(&mut self, name: &str, from: usize, to: usize) -> Result<(), BenchError> {
        let mut have = from;
        while have < to {
            if is_interrupted() {
                return Err(BenchError::Interrupted);
            }
            have = to.min(have + PARTITIONS_A_REQUEST_MAX);
            let topic = CreatePartitionsTopic { name, count: count(have)?, assignments: None };
            let request =
                CreatePartitionsRequest { topics: vec![topic], timeout_ms: ADMIN_TIMEOUT_MS, validate_only: false };
            let answer = self.rpc.call(&request).await?;
            let response: CreatePartitionsResponse<'_> = answer.body()?;
            if let Some(refused) = response.results.first().filter(|topic| topic.error_code != ErrorCode::None) {
                return Err(BenchError::Refused {
                    what: format!("growing topic {name} to {have} partitions"),
                    code: refused.error_code,
                    detail: refused.error_message.map(str::to_owned),
                });
            }
        }
        Ok(())
    }

    /// Finds a topic. One that was `just_made` may need a while to appear with all of its partitions, in place of one of the same
    /// name that was deleted before it; one that wasn't is looked for once more only, as a leader may be in the making.
    ///
    /// # Errors
    /// It isn't there, or several brokers lead it.
    pub async fn find(&mut self, name: &str, just_made: Option<Made>) -> Result<Topic, BenchError> {
        let give_up = self.reactor.now() + ready_patience(just_made.map_or(0, |made| made.partitions));
        let mut looks = 0;
        let last = loop {
            let wanted = MetadataRequestTopic { name: Some(name), ..MetadataRequestTopic::default() };
            let request = MetadataRequest {
                topics: Some(vec![wanted]),
                allow_auto_topic_creation: false,
                ..MetadataRequest::default()
            };
            let answer = self.rpc.call(&request).await?;
            let response: MetadataResponse<'_> = answer.body()?;
            let last = match ready(name, just_made, &response) {
                Ok(topic) => return topic,
                Err(code) => code,
            };
            looks += 1;
            if is_interrupted() {
                return Err(BenchError::Interrupted);
            }
            let is_there_not = looks > 1 && just_made.is_none() && last == ErrorCode::UnknownTopicOrPartition;
            if is_there_not || self.reactor.now() > give_up {
                break last;
            }
            self.reactor.sleep(LOOK_PAUSE).await;
        };
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
        let give_up = self.reactor.now() + ready_patience(topic.partitions);
        loop {
            match self.offsets(topic, LATEST).await {
                Err(BenchError::Refused { code, .. }) if is_passing(code) && self.reactor.now() < give_up => {}
                other => return other.map(drop),
            }
            if is_interrupted() {
                return Err(BenchError::Interrupted);
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

    /// Deletes a topic after something went wrong, if that can be had: over a connection of its own, since the one there may wait
    /// for an answer still.
    pub async fn tidy_up(reactor: &Reactor, bootstrap: &str, name: &str) {
        if let Ok(mut cluster) = Self::connect(reactor, bootstrap).await {
            let _ = cluster.delete(name).await;
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

/// How long a topic of so many partitions may take to be led everywhere.
fn ready_patience(partitions: usize) -> Duration {
    READY_PATIENCE + READY_PATIENCE_A_PARTITION * u32::try_from(partitions).unwrap_or(u32::MAX)
}

/// As requests carry it.
fn count(partitions: usize) -> Result<i32, BenchError> {
    i32::try_from(partitions).map_err(|_| BenchError::Usage(format!("no topic can have {partitions} partitions")))
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

/// The topic as the metadata shows it, if that knows of all of one that was just made; the outer error says that it may yet come.
fn ready(
    name: &str,
    just_made: Option<Made>,
    metadata: &MetadataResponse<'_>,
) -> Result<Result<Topic, BenchError>, ErrorCode> {
    let found = metadata.topics.first().ok_or(ErrorCode::UnknownTopicOrPartition)?;
    if found.error_code != ErrorCode::None {
        return Err(found.error_code);
    }
    let made = just_made.unwrap_or(Made { id: found.topic_id, partitions: 1 });
    if made.id != found.topic_id && made.id != Uuid::default() && found.topic_id != Uuid::default() {
        return Err(ErrorCode::UnknownTopicOrPartition);
    }
    let leaders: Vec<i32> = found.partitions.iter().map(|partition| partition.leader_id).collect();
    let Some(&leader) =
        leaders.first().filter(|_| leaders.len() >= made.partitions && leaders.iter().all(|one| *one >= 0))
    else {
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
