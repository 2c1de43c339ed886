//! Holds: what all clients of one life share, and the producers: idempotent ones, which go on in the next life where they
//! were, and plain ones. Never touches: the broker, faults.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use corelog_net::wire::ErrorCode;
use corelog_reactor::Reactor;
use corelog_storage::batch::{BatchBuilder, TargetCodec};
use corelog_storage::ids::{ProducerEpoch, ProducerId, Sequence, Timestamp};

use super::client::{Answer, Connection, Gone, Trace};
use super::model::{Facts, Key, Model, Origin, Topic};
use super::random::Random;
use super::requests::{self, Place, Produced};

/// Batches that an idempotent producer has on the way to one partition: Kafka's clients have at most five.
const UNACKED_MAX: usize = 5;
/// Requests that a plain producer has on the way.
const PIPELINE: usize = 8;
/// Pause before trying again.
const BACKOFF: Duration = Duration::from_millis(20);

/// What the clients of a run share.
pub struct Work {
    pub reactor: Reactor,
    pub address: SocketAddr,
    pub model: RefCell<Model>,
    pub trace: Trace,
    /// The workers are to finish.
    pub is_ending: Cell<bool>,
    /// The broker ends, or the disk fails or is full: refusals are no surprise.
    pub may_refuse: Cell<bool>,
    /// The disk fails: what it was asked to write may be there nevertheless.
    pub is_disk_bad: Cell<bool>,
    /// Every batch is one record with so many bytes, so that what a torn write left lies where batches begin.
    pub same_bytes: Cell<Option<usize>>,
    /// Workers that are not done.
    pub running: Cell<usize>,
    connections: Cell<u64>,
}

impl Work {
    pub fn new(reactor: Reactor, address: SocketAddr, trace: Trace) -> Rc<Work> {
        Rc::new(Work {
            reactor,
            address,
            model: RefCell::default(),
            trace,
            is_ending: Cell::new(false),
            may_refuse: Cell::new(false),
            is_disk_bad: Cell::new(false),
            same_bytes: Cell::new(None),
            running: Cell::new(0),
            connections: Cell::new(0),
        })
    }

    /// Starts a worker that connects again as long as its connection fails and the life goes on.
    pub fn start<F>(self: &Rc<Self>, mut work: impl FnMut(Connection) -> F + 'static)
    where
        F: Future<Output = Result<(), Gone>> + 'static,
    {
        self.running.set(self.running.get() + 1);
        let this = Rc::clone(self);
        let task = async move {
            while !this.is_ending.get() {
                match Connection::open(&this.reactor, this.address, &this.trace).await {
                    Ok(connection) => {
                        let _ = work(connection.clone()).await;
                        connection.close();
                    }
                    Err(_) => this.reactor.sleep(BACKOFF).await,
                }
            }
            this.running.set(this.running.get() - 1);
        };
        self.reactor.spawn(task).expect("a task");
    }

    /// Some partition that is there, if there is any.
    pub fn some_place(&self, random: &mut Random) -> Option<Place> {
        let keys = self.model.borrow().keys();
        let (topic, key) = keys.get(random.below(keys.len().max(1) as u64) as usize)?.clone();
        Some(Place { topic, key })
    }

    pub fn facts(&self, key: Key) -> Facts {
        self.model.borrow_mut().facts(key)
    }

    /// Whether an error of a partition is one that may happen now. Panics if not.
    pub fn excuse(&self, what: &str, place: &Place, error: ErrorCode) {
        let excused = match error {
            // While a topic is being deleted its partitions go one after the other.
            ErrorCode::NotLeaderOrFollower => self.may_refuse.get() || self.model.borrow().may_be_gone(place.key.0),
            ErrorCode::UnknownTopicOrPartition | ErrorCode::UnknownTopicId => {
                self.model.borrow().may_be_gone(place.key.0)
            }
            ErrorCode::KafkaStorageError | ErrorCode::NotController => self.may_refuse.get(),
            _ => false,
        };
        assert!(excused, "{what} of {place:?} was answered with {}", error.name());
        self.model.borrow_mut().checked.refused += 1;
    }

    /// The time that everybody goes by.
    pub fn now(&self) -> i64 {
        self.reactor.unix_ms().0
    }

    fn next_connection(&self) -> u64 {
        self.connections.set(self.connections.get() + 1);
        self.connections.get()
    }
}

/// What batches are compressed with: mostly nothing.
const CODECS: [TargetCodec; 4] = [TargetCodec::None, TargetCodec::None, TargetCodec::Lz4, TargetCodec::Snappy];

/// Records of some size that fits the topic; `number` makes them unlike all others.
fn batch(work: &Work, random: &mut Random, place: &Place, number: u64, producer: Option<(i64, i16, i32)>) -> Vec<u8> {
    let now = work.reactor.unix_ms().0;
    let bytes_max = work.model.borrow().segment_bytes.get(&place.topic).copied().unwrap_or_default();
    let rules = work.model.borrow().rules(place.key.0);
    // Clients' clocks are wrong, where it makes a difference.
    let now = if !rules.keeps_all() && random.chance(100) { now - random.below(1_000) as i64 } else { now };
    let keys = [3, 30, 300][random.below(3) as usize];
    let (codecs, records) = match work.same_bytes.get() {
        Some(_) => (1, 1),
        None => (CODECS.len() as u64, 1 + random.below(4)),
    };
    let mut builder = BatchBuilder::new(CODECS[random.below(codecs) as usize]);
    if let Some((id, epoch, sequence)) = producer {
        builder = builder.producer(ProducerId(id), ProducerEpoch(epoch), Sequence(sequence));
    }
    let some_bytes = match random.below(40) {
        0 => 40_000 + random.below(60_000),
        1 => 240_000,
        2..=6 => 1_000 + random.below(9_000),
        _ => random.below(300),
    };
    let value_bytes = work.same_bytes.get().unwrap_or(some_bytes as usize).min(bytes_max / 5);
    for nth in 0..records {
        let mut value = number.to_be_bytes().to_vec();
        value.extend(random.bytes(value_bytes));
        let time = Timestamp(now + nth as i64);
        if rules.compacts {
            let (key, number) = (random.below(keys).to_be_bytes(), random.next_u64().to_be_bytes());
            let value = (!random.chance(150)).then_some(value.as_slice());
            builder.append(time, Some(&key), value, &[(b"n".as_slice(), Some(number.as_slice()))]);
        } else {
            builder.append(time, None, Some(&value), &[]);
        }
    }
    builder.build().expect("a batch")
}

struct Unacked {
    place: Place,
    bytes: Vec<u8>,
    crc: u32,
    /// It was sent while it could be refused, so that one behind it may have been taken.
    may_be_overtaken: bool,
}

/// An idempotent producer. It sends what was not acknowledged again, in every life, until it knows.
#[derive(Default)]
pub struct Idempotent {
    id: Option<(i64, i16)>,
    sequences: BTreeMap<Key, i32>,
    unacked: VecDeque<Unacked>,
    number: u64,
}

impl Idempotent {
    /// Whether it will send this batch again.
    pub fn sends_again(&self, key: Key, crc: u32) -> bool {
        self.unacked.iter().any(|unacked| unacked.place.key == key && unacked.crc == crc)
    }

    /// Whether a batch can't be appended any more, because one that was sent behind it was: a partition takes the first batch
    /// that it gets from a producer whatever its sequence (KIP-360), and did not get the real first one while it was offline.
    fn is_overtaken(&self, work: &Work, crc: u32) -> bool {
        let unacked = self.unacked.iter().find(|unacked| unacked.crc == crc && unacked.may_be_overtaken);
        unacked.is_some_and(|unacked| work.model.borrow_mut().partition(unacked.place.key).is_overtaken(crc))
    }

    pub fn has_unacked(&self) -> bool {
        !self.unacked.is_empty()
    }

    /// Ends, and begins anew as a producer that has no id yet.
    fn retire(&mut self) {
        self.id = None;
        self.sequences.clear();
    }

    fn make(&mut self, work: &Work, random: &mut Random) {
        let (Some((id, epoch)), Some(place)) = (self.id, work.some_place(random)) else { return };
        let sequence = self.sequences.entry(place.key).or_default();
        self.number += 1;
        let bytes = batch(work, random, &place, self.number, Some((id, epoch, *sequence)));
        let origin = Origin::Idempotent { id, sequence: *sequence };
        let crc = work.model.borrow_mut().partition(place.key).send(&bytes, origin, work.now());
        *sequence += i32::from_be_bytes(bytes[57..61].try_into().expect("a count"));
        self.unacked.push_back(Unacked { place, bytes, crc, may_be_overtaken: false });
    }
}

/// Produces until the life ends; then until everything is acknowledged, as long as the broker answers.
pub async fn produce_idempotently(
    work: Rc<Work>,
    connection: Connection,
    state: Rc<RefCell<Idempotent>>,
    random: Rc<RefCell<Random>>,
) -> Result<(), Gone> {
    while !work.is_ending.get() || state.borrow().has_unacked() {
        if state.borrow().id.is_none() {
            let (error, id, epoch) = requests::producer_id(&connection).await?;
            if error != ErrorCode::None {
                assert!(work.may_refuse.get(), "no producer id: {}", error.name());
                work.reactor.sleep(BACKOFF).await;
                continue;
            }
            work.model.borrow_mut().producer(id);
            state.borrow_mut().id = Some((id, epoch));
        }
        let mut random = Random::new(random.borrow_mut().next_u64());
        while !work.is_ending.get() && state.borrow().unacked.len() < 1 + random.below(UNACKED_MAX as u64) as usize {
            let before = state.borrow().unacked.len();
            state.borrow_mut().make(&work, &mut random);
            if state.borrow().unacked.len() == before {
                break;
            }
        }
        if random.chance(20) && !state.borrow().has_unacked() {
            // Another producer takes its place.
            state.borrow_mut().retire();
            continue;
        }
        let pause = Duration::from_micros(random.below(2_000));
        if send_again(&work, &connection, &state).await? {
            work.reactor.sleep(BACKOFF).await;
        } else {
            work.reactor.sleep(pause).await;
        }
    }
    Ok(())
}

/// Sends all that is not acknowledged, in order and at once. Returns whether some of it was refused.
async fn send_again(work: &Rc<Work>, connection: &Connection, state: &Rc<RefCell<Idempotent>>) -> Result<bool, Gone> {
    let mut asked: Vec<(Vec<(Place, Vec<u8>)>, u32, Facts, Answer)> = Vec::new();
    for unacked in &mut state.borrow_mut().unacked {
        unacked.may_be_overtaken |= work.may_refuse.get();
        let batches = vec![(unacked.place.clone(), unacked.bytes.clone())];
        let facts = work.facts(unacked.place.key);
        let answer = requests::produce(connection, 13, -1, &batches).expect("an answer to wait for");
        asked.push((batches, unacked.crc, facts, answer));
    }
    let mut refused: Vec<Key> = Vec::new();
    for (batches, crc, facts, answer) in asked {
        let body = answer.body().await?;
        let place = &batches[0].0;
        let outcome = requests::produced(&body, 13, &batches)[0];
        match outcome.error {
            ErrorCode::None => acknowledged(work, place, crc, facts, outcome),
            ErrorCode::OutOfOrderSequenceNumber if refused.contains(&place.key) => continue,
            ErrorCode::OutOfOrderSequenceNumber if state.borrow().is_overtaken(work, crc) => {
                work.model.borrow_mut().checked.refused += 1;
            }
            error => {
                work.excuse("a produce", place, error);
                if error != ErrorCode::UnknownTopicId && error != ErrorCode::UnknownTopicOrPartition {
                    refused.push(place.key);
                    continue;
                }
            }
        }
        state.borrow_mut().unacked.retain(|unacked| unacked.crc != crc);
    }
    Ok(!refused.is_empty())
}

fn acknowledged(work: &Work, place: &Place, crc: u32, then: Facts, outcome: Produced) {
    let mut model = work.model.borrow_mut();
    let partition = model.partition(place.key);
    assert!(outcome.log_start >= then.log_start, "a produce saw the log start go back to {}", outcome.log_start);
    let was_known = partition.acknowledged(crc, outcome.base);
    model.checked.acknowledged += 1;
    model.checked.duplicates += u64::from(was_known);
}

/// A request under way: its acks, its batches by place, what was known of each partition then, and its answer.
type Asked = (i16, Vec<(Place, Vec<u8>)>, Vec<(u32, Facts)>, Answer);

/// Requests of several partitions and all kinds of acks, many at once; nothing is sent twice.
pub async fn produce_plainly(work: Rc<Work>, connection: Connection, random: Rc<RefCell<Random>>) -> Result<(), Gone> {
    let name = work.next_connection();
    let mut number = 0;
    let mut asked: VecDeque<Asked> = VecDeque::new();
    loop {
        let mut dice = Random::new(random.borrow_mut().next_u64());
        while asked.len() < PIPELINE && !work.is_ending.get() && dice.chance(700) {
            let acks = [-1, 1, -1, 1, 0][dice.below(5) as usize];
            let version = [13, 13, 9, 3][dice.below(4) as usize];
            let mut batches: Vec<(Place, Vec<u8>)> = Vec::new();
            let mut sent = Vec::new();
            for _ in 0..1 + dice.below(3) {
                let Some(place) = work.some_place(&mut dice) else { continue };
                let is_stable = place.topic != super::admin::CHURN;
                if batches.iter().any(|(other, _)| *other.topic == place.topic) || !(is_stable || version >= 13) {
                    continue;
                }
                number += 1;
                let bytes = batch(&work, &mut dice, &place, (name << 32) | number, None);
                let origin = Origin::Plain { connection: name, number };
                let crc = work.model.borrow_mut().partition(place.key).send(&bytes, origin, work.now());
                sent.push((crc, work.facts(place.key)));
                batches.push((place, bytes));
            }
            if batches.is_empty() {
                continue;
            }
            if let Some(answer) = requests::produce(&connection, version, acks, &batches) {
                asked.push_back((version, batches, sent, answer));
            }
        }
        let pause = Duration::from_micros(dice.below(3_000));
        if let Some((version, batches, sent, answer)) = asked.pop_front() {
            let body = answer.body().await?;
            for (((place, _), (crc, facts)), outcome) in
                batches.iter().zip(sent).zip(requests::produced(&body, version, &batches))
            {
                match outcome.error {
                    ErrorCode::None if version < 5 => {
                        // No log start in these versions.
                        let then = Facts { log_start: -1, ..facts };
                        acknowledged(&work, place, crc, then, outcome);
                    }
                    ErrorCode::None => acknowledged(&work, place, crc, facts, outcome),
                    error => work.excuse("a produce", place, error),
                }
            }
        } else if work.is_ending.get() || connection.is_closed() {
            return Ok(());
        }
        work.reactor.sleep(pause).await;
    }
}

/// Whether a topic is known to be there.
pub fn is_present(work: &Work, name: &str) -> bool {
    matches!(work.model.borrow().topics.get(name), Some(Topic::Present { .. }))
}
