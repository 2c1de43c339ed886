//! Scenarios of the controller.
//!
//! Holds: what is common to them. Never touches: anything outside this room.

mod brokers;
mod configs;
mod crash;
mod directories;
mod features;
mod replay;
mod topics;

use std::sync::Arc;

use corelog_reactor::UnixMillis;

use super::features::FEATURES;
use super::record::{Endpoint, Record};
use super::request::{CreateTopics, CreatedTopic, NewTopic, RegisterBroker, Request, Response};
use super::state::Controller;
use crate::config::cli::ServeArgs;
use crate::config::load::load;
use crate::config::{BrokerConfig, Host};

/// A reproducible source of numbers (SplitMix64).
pub struct Seeded(pub u64);

impl Seeded {
    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// Node 1's configuration, with these properties.
pub fn broker_config(properties: &[(&str, &str)]) -> Arc<BrokerConfig> {
    let set = properties.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let host = Host { name: "box".to_owned(), cores: vec![0, 1], memory_bytes: None };
    match load(&ServeArgs { set, ..ServeArgs::default() }, [], host) {
        Ok(loaded) => Arc::new(loaded.config),
        Err(problems) => panic!("{problems}"),
    }
}

/// A controller and what it wrote.
pub struct World {
    pub controller: Controller,
    pub records: Vec<Record>,
    pub random: Seeded,
}

impl World {
    /// A new cluster without brokers.
    pub fn empty(properties: &[(&str, &str)]) -> Self {
        let mut random = Seeded(7);
        let mut controller = Controller::new(broker_config(properties), FEATURES);
        let records = controller.bootstrap(&mut || random.next());
        for record in &records {
            assert_eq!(controller.replay(record), Ok(()));
        }
        Self { controller, records, random }
    }

    /// A cluster with these brokers.
    pub fn with_brokers(properties: &[(&str, &str)], ids: &[i32]) -> Self {
        let mut world = Self::empty(properties);
        for &id in ids {
            world.register(id);
        }
        world
    }

    /// A cluster of broker 1.
    pub fn new() -> Self {
        Self::with_brokers(&[], &[1])
    }

    /// Handles a request; keeps its records.
    pub fn handle(&mut self, request: impl Into<Request>) -> Response {
        let random = &mut self.random;
        let outcome = self.controller.handle(&request.into(), UnixMillis(0), &mut || random.next());
        self.records.extend(outcome.records);
        outcome.response
    }

    /// Registers a broker.
    pub fn register(&mut self, broker_id: i32) {
        let response = self.handle(Request::RegisterBroker(registration(broker_id)));
        assert!(matches!(response, Response::RegisterBroker(Ok(_))), "{response:?}");
    }

    /// Creates topics.
    pub fn create(&mut self, topics: Vec<NewTopic>) -> Vec<CreatedTopic> {
        match self.handle(Request::CreateTopics(CreateTopics { topics, validate_only: false })) {
            Response::CreateTopics(created) => created,
            other => panic!("{other:?}"),
        }
    }

    /// Creates a topic that nothing is wrong with.
    pub fn create_one(&mut self, name: &str, partitions: i32) {
        let created = self.create(vec![topic(name, partitions, 1)]);
        assert!(created.iter().all(|c| c.outcome.is_ok()), "{created:?}");
    }

    /// Why one topic is not created.
    pub fn refused(&mut self, topic: NewTopic) -> String {
        let written = self.records.len();
        let mut created = self.create(vec![topic]);
        assert_eq!(self.records.len(), written, "a refused topic leaves no record");
        match created.pop() {
            Some(CreatedTopic { outcome: Err(error), .. }) => format!("{:?}: {error}", error.class()),
            other => panic!("created: {other:?}"),
        }
    }
}

/// A registration with one endpoint.
pub fn registration(broker_id: i32) -> RegisterBroker {
    let endpoint = Endpoint { listener: "PLAINTEXT".into(), host: "box".into(), port: 9092, security_protocol: 0 };
    RegisterBroker { broker_id, endpoints: vec![endpoint], rack: None, directories: Vec::new() }
}

/// A topic to create.
pub fn topic(name: &str, partitions: i32, replication_factor: i16) -> NewTopic {
    NewTopic { name: name.to_owned(), partitions, replication_factor, ..NewTopic::default() }
}
