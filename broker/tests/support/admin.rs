//! Holds: administration through librdkafka, each call waited for.
//! Never touches: the protocol by hand.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::{Offset, TopicPartitionList};

/// Waits for a future on this thread.
pub fn wait_for<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// An administrator's connection.
pub struct Admin {
    client: AdminClient<DefaultClientContext>,
    options: AdminOptions,
}

impl Admin {
    /// For the broker at `bootstrap`; each call gets `patience`.
    pub fn new(bootstrap: &str, patience: Duration) -> Admin {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", bootstrap)
            .set("broker.address.family", "v4")
            .set("reconnect.backoff.ms", "10")
            .set("reconnect.backoff.max.ms", "100")
            .set("log_level", "2");
        let options = AdminOptions::new().request_timeout(Some(patience)).operation_timeout(Some(patience));
        Admin { client: config.create().expect("an admin client"), options }
    }

    /// The client, for calls that are not here.
    pub fn client(&self) -> &AdminClient<DefaultClientContext> {
        &self.client
    }

    /// How its calls are made.
    pub fn options(&self) -> &AdminOptions {
        &self.options
    }

    /// Creates a topic with one replica.
    ///
    /// # Errors
    /// The broker's error, or the client's (a time-out: the topic may or may not have been created). So for all below.
    pub fn create_topic(
        &self,
        name: &str,
        partitions: usize,
        configs: &[(&str, &str)],
    ) -> Result<(), RDKafkaErrorCode> {
        let mut topic = NewTopic::new(name, partitions as i32, TopicReplication::Fixed(1));
        for (key, value) in configs {
            topic = topic.set(key, value);
        }
        only(wait_for(self.client.create_topics([&topic], &self.options)))
    }

    /// Deletes a topic.
    pub fn delete_topic(&self, name: &str) -> Result<(), RDKafkaErrorCode> {
        only(wait_for(self.client.delete_topics(&[name], &self.options)))
    }

    /// Gives a topic more partitions.
    pub fn create_partitions(&self, name: &str, partitions: usize) -> Result<(), RDKafkaErrorCode> {
        only(wait_for(self.client.create_partitions([&NewPartitions::new(name, partitions)], &self.options)))
    }

    /// Deletes a partition's records before `offset`.
    pub fn delete_records(&self, topic: &str, partition: i32, before: i64) -> Result<(), RDKafkaErrorCode> {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(topic, partition, Offset::Offset(before)).expect("an offset");
        let answer = wait_for(self.client.delete_records(&list, &self.options));
        let answer = answer.map_err(|error| error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail))?;
        for element in answer.elements() {
            element.error().map_err(|error| error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail))?;
        }
        Ok(())
    }

    /// The names of all topics.
    ///
    /// # Panics
    /// If the broker doesn't answer.
    pub fn topics(&self) -> Vec<String> {
        let metadata = self.client.inner().fetch_metadata(None, Duration::from_secs(20)).expect("metadata");
        metadata.topics().iter().map(|topic| topic.name().to_owned()).collect()
    }

    /// How many partitions a topic has.
    pub fn partitions(&self, topic: &str) -> usize {
        let metadata = self.client.inner().fetch_metadata(Some(topic), Duration::from_secs(20)).expect("metadata");
        metadata.topics().iter().find(|found| found.name() == topic).map_or(0, |found| found.partitions().len())
    }

    /// Log start and high watermark of a partition.
    pub fn watermarks(&self, topic: &str, partition: i32) -> (i64, i64) {
        self.client.inner().fetch_watermarks(topic, partition, Duration::from_secs(20)).expect("watermarks")
    }
}

/// What the admin client gives back: for each topic its name, or its name and error.
type TopicResults = Result<Vec<Result<String, (String, RDKafkaErrorCode)>>, KafkaError>;

/// The outcome of a call about one topic.
fn only(answer: TopicResults) -> Result<(), RDKafkaErrorCode> {
    let results = answer.map_err(|error| error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail))?;
    for result in results {
        result.map_err(|(_, code)| code)?;
    }
    Ok(())
}
