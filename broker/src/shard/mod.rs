//! A shard: all that one core owns, and THE LOOP.
//!
//! Holds: the partitions, connections, open asks and timers of one core, and the order in which a turn goes through them.
//! Never touches: another shard's memory. What must cross goes by [`mail`].
//!
//! ```text
//!            one turn
//!   reap ──> drain_mail ──> run_tasks ──> end_turn ──> park
//!    │           │              │             │          └ submit; sleep until a completion, mail or a timer
//!    │           │              │             └ group commit: one write for each partition that got batches this turn
//!    │           │              └ connections read frames, handlers append and read, replies are queued for sending
//!    │           └ what other shards ask and answer
//!    └ completions of the ring wake the tasks that wait for them; the clock is read, once
//! ```
//!
//! Follow a batch: [`connection`] reads the frame, `api/produce.rs` groups it by owner, `partition/produce.rs` checks and
//! appends it, [`commit`] makes it durable, `partition/mod.rs` moves the high watermark, `api/produce.rs` encodes the reply.

pub mod accept;
pub mod apply;
pub mod ask;
pub mod by_owner;
pub mod commit;
pub mod compaction;
pub mod connection;
pub mod controlling;
pub mod folders;
pub mod housekeeping;
pub mod mail;
pub mod offline;
pub mod relaxed;
pub mod retention;
pub mod serve;
pub mod strays;
pub mod together;
mod turns;
pub mod work;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use bytes::BytesMut;
use corelog_net::conn::{FrameMemory, ReceiveBuffer};
use corelog_net::wire::ErrorCode;
use corelog_reactor::{AlignedBuf, MailPort, Notify, Reactor, ShardId};
use corelog_storage::batch::DecompressScratch;
use corelog_storage::ids::{ProducerId, Timestamp};
use corelog_storage::log::StorageEnv;
use rustc_hash::FxHashMap;
use slab::Slab;
use tracing::error;

use self::ask::{AskFuture, Asks};
use self::by_owner::ByOwner;
use self::connection::Connections;
use self::mail::{Answer, Ask, AskId, Mail};
use crate::api::produce::PendingProduce;
use crate::config::BrokerConfig;
use crate::controller::{self, MetadataImage};
use crate::counters::Counters;
use crate::fetch_session::FetchSessions;
use crate::partition::Partition;
use crate::partition::call::{PartitionAnswer, PartitionCall, PartitionKey};
use crate::partition::produce::ProduceGroups;
use crate::partition::watch::Watches;
use crate::server::Server;

/// One core's share of the broker. Lives on its thread alone, behind an `Rc`.
pub struct Shard {
    id: ShardId,
    reactor: Reactor,
    server: Arc<Server>,
    counters: Counters,
    storage: StorageEnv,
    folders: folders::Folders,
    port: RefCell<MailPort<Mail>>,
    /// Mail that found a full mailbox, oldest first, one queue a peer. Bounded by the asks in flight; while a queue is not
    /// empty everything for that peer goes through it, so that order is kept.
    unsent: RefCell<Vec<VecDeque<Mail>>>,
    config: RefCell<Arc<BrokerConfig>>,
    image: RefCell<Arc<MetadataImage>>,
    partitions: RefCell<FxHashMap<PartitionKey, Rc<Partition>>>,
    /// Partitions of this shard whose log could not be opened.
    offline: offline::Offline,
    dirty: RefCell<Vec<Rc<Partition>>>,
    committers: commit::Committers,
    relaxed: relaxed::Relaxed,
    asks: Asks,
    produces: RefCell<Slab<PendingProduce>>,
    groups: RefCell<ProduceGroups>,
    watches: RefCell<Watches>,
    serving: serve::Serving,
    work: work::Work,
    sessions: RefCell<FetchSessions>,
    connections: Connections,
    producer_ids: RefCell<controlling::ProducerIds>,
    controlling: controlling::Queue,
    /// Decompressors at rest: one for each check that was ever under way at the same time.
    scratches: RefCell<Vec<DecompressScratch>>,
    receive_buffer: RefCell<ReceiveBuffer>,
    /// Where replies to the requests that never end are encoded, one behind the other.
    reply_buffer: RefCell<BytesMut>,
    frame_memory: FrameMemory,
    /// A frame has found no memory.
    pressed: Notify,
    stopping: Cell<bool>,
    finished: Cell<bool>,
}

/// What a shard is made of.
pub struct ShardParts {
    /// Its number.
    pub id: ShardId,
    /// Its reactor.
    pub reactor: Reactor,
    /// What all shards share, immutable or atomic.
    pub server: Arc<Server>,
    /// The storage room of this core, in the first data folder.
    pub storage: StorageEnv,
    /// The other data folders.
    pub folders: folders::Folders,
    /// Its end of the mailboxes.
    pub port: MailPort<Mail>,
    /// Receive buffer shared by this shard's connections.
    pub receive_buffer: AlignedBuf,
}

impl Shard {
    /// Puts a shard together. Nothing runs before its first turn.
    pub fn new(parts: ShardParts) -> Rc<Shard> {
        let shards = parts.port.shards();
        let frame_memory = connection::frame_memory(&parts.reactor, &parts.storage, &parts.server.config);
        Rc::new(Shard {
            id: parts.id,
            sessions: RefCell::new(FetchSessions::new(parts.id, shards, parts.server.config.fetch_sessions_max)),
            connections: Connections::default(),
            config: RefCell::new(Arc::clone(&parts.server.config)),
            reactor: parts.reactor,
            server: parts.server,
            storage: parts.storage,
            folders: parts.folders,
            unsent: RefCell::new((0..shards).map(|_| VecDeque::new()).collect()),
            port: RefCell::new(parts.port),
            // Empty until the controller has loaded and shard 0 has told everybody.
            image: RefCell::default(),
            counters: Counters::default(),
            partitions: RefCell::default(),
            offline: offline::Offline::default(),
            dirty: RefCell::default(),
            committers: commit::Committers::default(),
            relaxed: relaxed::Relaxed::default(),
            asks: Asks::default(),
            produces: RefCell::default(),
            groups: RefCell::default(),
            watches: RefCell::default(),
            serving: serve::Serving::default(),
            work: work::Work::default(),
            producer_ids: RefCell::default(),
            controlling: controlling::Queue::default(),
            scratches: RefCell::default(),
            receive_buffer: RefCell::new(ReceiveBuffer::new(parts.receive_buffer)),
            reply_buffer: RefCell::default(),
            frame_memory,
            pressed: Notify::new(),
            stopping: Cell::new(false),
            finished: Cell::new(false),
        })
    }

    /// THE LOOP. Returns when [`Shard::finish`] was called.
    pub fn run(self: &Rc<Self>) {
        while self.turn() {}
    }

    /// One turn, with the sleep at its end; false if it was the last. A simulated world calls it on each shard in turn.
    pub fn turn(self: &Rc<Self>) -> bool {
        self.reactor.reap();
        self.heed_signals();
        self.drain_mail();
        self.reactor.run_tasks();
        self.end_turn();
        if self.finished.get() {
            // Parking now would sleep until something happens, and nothing will.
            return false;
        }
        self.reactor.park(&*self.port.borrow());
        true
    }

    /// Looks whether the main thread wants something.
    fn heed_signals(self: &Rc<Self>) {
        if self.server.take_status_asked(self.id) {
            housekeeping::report(self);
        }
        if self.server.is_stopping() && !self.stopping.get() {
            // Not started for want of a task: the next turn tries again.
            self.stopping.set(self.spawn(housekeeping::stop(Rc::clone(self))));
        }
    }

    /// Takes everything that other shards have sent, in order for each of them.
    fn drain_mail(self: &Rc<Self>) {
        loop {
            // The borrow ends before the mail is handled: handling may send mail.
            let Some((from, mail)) = self.port.borrow_mut().recv() else { break };
            match mail {
                Mail::Connection { raw, peer, listener } => connection::adopt(self, raw, peer, listener),
                Mail::Ask { id, ask } => serve::serve(self, from, id, ask),
                Mail::Answer { id, answer } => self.take_answer(id, answer),
                Mail::Cancel { id } => serve::call_off(self, from, id),
            }
        }
    }

    /// Starts the group commit of every partition that got batches, and lets mail leave.
    fn end_turn(self: &Rc<Self>) {
        if self.start_commits() {
            // Their first step puts the writes into the ring, so that this turn's park submits them.
            self.reactor.run_tasks();
        }
        self.work.renew();
        self.send_unsent();
        self.port.borrow_mut().wake_peers(&self.reactor);
    }

    /// The loop ends after this turn.
    pub fn finish(&self) {
        self.finished.set(true);
    }

    /// Whether its last turn is over.
    pub fn is_finished(&self) -> bool {
        self.finished.get()
    }

    // ---- mail ----

    /// Sends an ask; an ask of this very shard is served at once, by the same code.
    pub(crate) fn deliver_ask(self: &Rc<Self>, to: ShardId, id: AskId, ask: Ask) {
        if to == self.id {
            serve::serve(self, to, id, ask);
        } else {
            self.send(to, Mail::Ask { id, ask });
        }
    }

    /// Answers an ask.
    pub(crate) fn deliver_answer(self: &Rc<Self>, to: ShardId, id: AskId, answer: Answer) {
        if to == self.id {
            self.take_answer(id, answer);
        } else {
            self.send(to, Mail::Answer { id, answer });
        }
    }

    /// Calls off an ask that nobody waits for.
    pub(crate) fn cancel_ask(&self, to: ShardId, id: AskId) {
        if to == self.id {
            serve::call_off(self, to, id);
        } else {
            self.send(to, Mail::Cancel { id });
        }
    }

    fn take_answer(self: &Rc<Self>, id: AskId, answer: Answer) {
        if let Some((pending, answer)) = self.asks.settle(id, answer) {
            crate::api::produce::group_answered(self, pending, id, answer);
        }
    }

    pub(crate) fn send(&self, to: ShardId, mail: Mail) {
        let mut unsent = self.unsent.borrow_mut();
        let queue = &mut unsent[usize::from(to.0)];
        if !queue.is_empty() {
            queue.push_back(mail);
            return;
        }
        if let Err(full) = self.port.borrow_mut().send(to, mail) {
            self.counters.mailbox_full.increment();
            queue.push_back(full.message);
        }
    }

    fn send_unsent(&self) {
        let mut waiting = false;
        for (peer, queue) in self.unsent.borrow_mut().iter_mut().enumerate() {
            while let Some(mail) = queue.pop_front() {
                if let Err(full) = self.port.borrow_mut().send(ShardId(peer as u16), mail) {
                    queue.push_front(full.message);
                    waiting = true;
                    break;
                }
            }
        }
        if waiting {
            // The peer is busy, not parked: look again next turn without sleeping.
            self.spawn(std::future::ready(()));
        }
    }

    // ---- what handlers use ----

    /// This shard's number.
    pub fn id(&self) -> ShardId {
        self.id
    }

    /// How many shards there are.
    pub fn shards(&self) -> usize {
        self.server.shards
    }

    /// This core's reactor.
    pub fn reactor(&self) -> &Reactor {
        &self.reactor
    }

    /// The broker's configuration in force: as it was started, and what was set since.
    pub fn config(&self) -> Arc<BrokerConfig> {
        Arc::clone(&self.config.borrow())
    }

    /// What all shards share.
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// This core's storage room in the first data folder.
    pub fn storage(&self) -> &StorageEnv {
        &self.storage
    }

    /// The other data folders.
    pub fn folders(&self) -> &folders::Folders {
        &self.folders
    }

    /// The metadata in force.
    pub fn image(&self) -> Arc<MetadataImage> {
        Arc::clone(&self.image.borrow())
    }

    /// The shard that owns a partition.
    pub fn owner(&self, key: PartitionKey) -> ShardId {
        self.server.owner(&self.image.borrow(), key)
    }

    /// A partition of this shard.
    pub fn partition(&self, key: PartitionKey) -> Option<Rc<Partition>> {
        self.partitions.borrow().get(&key).cloned()
    }

    /// What this shard has done.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The turn's wall time, as a record's timestamp.
    pub fn unix_now(&self) -> Timestamp {
        Timestamp(self.reactor.unix_ms().0)
    }

    /// Starts a task. Returns whether there was room for it: if not, that is counted and said, the task is dropped, and
    /// its work is not done. Whoever waits for that work must be told.
    pub fn spawn(&self, task: impl Future<Output = ()> + 'static) -> bool {
        let started = self.reactor.spawn(task);
        if let Err(full) = &started {
            self.counters.tasks_full.increment();
            error!(shard = self.id.0, %full, "a task was not started");
        }
        started.is_ok()
    }

    /// Why a partition is not here: its log is broken, or the client should look for it elsewhere or nowhere.
    pub(crate) fn missing_partition(&self, key: PartitionKey) -> ErrorCode {
        if self.offline.contains(key) {
            return ErrorCode::KafkaStorageError;
        }
        let image = self.image.borrow();
        let known = image.topic(key.topic_id).is_some_and(|topic| topic.partition(key.partition).is_some());
        if known { ErrorCode::NotLeaderOrFollower } else { ErrorCode::UnknownTopicOrPartition }
    }

    /// The visible end of a partition has moved (or the partition is gone): its watches are over.
    pub(crate) fn partition_moved(self: &Rc<Self>, key: PartitionKey) {
        let told = self.watches.borrow_mut().moved(key);
        for (from, ask) in told {
            self.deliver_answer(from, ask, Answer::Watch);
        }
    }

    pub(crate) fn take_scratch(&self) -> DecompressScratch {
        self.scratches.borrow_mut().pop().unwrap_or_default()
    }

    pub(crate) fn return_scratch(&self, scratch: DecompressScratch) {
        self.scratches.borrow_mut().push(scratch);
    }

    /// What is left of this turn for checking batches.
    pub(crate) fn work(&self) -> &work::Work {
        &self.work
    }

    pub(crate) fn reply_buffer(&self) -> &RefCell<BytesMut> {
        &self.reply_buffer
    }

    pub(crate) fn produces(&self) -> &RefCell<Slab<PendingProduce>> {
        &self.produces
    }

    pub(crate) fn groups(&self) -> &RefCell<ProduceGroups> {
        &self.groups
    }

    pub(crate) fn asks(&self) -> &Asks {
        &self.asks
    }

    pub(crate) fn sessions(&self) -> &RefCell<FetchSessions> {
        &self.sessions
    }

    /// Asks the controller. The answer comes when its records are durable and every shard has applied them.
    ///
    /// # Errors
    /// The code to answer when the controller could not record its decision: nothing has changed then.
    pub async fn controller(self: &Rc<Self>, request: controller::Request) -> Result<controller::Response, ErrorCode> {
        match AskFuture::send(self, controlling::CONTROLLER_SHARD, Ask::Controller(Box::new(request))).await {
            Answer::Controller(response) => *response,
            _ => Err(ErrorCode::NotController),
        }
    }

    /// Makes small calls on partitions wherever they live. Answers come in the calls' order.
    pub async fn call(self: &Rc<Self>, calls: Vec<(PartitionKey, PartitionCall)>) -> Vec<PartitionAnswer> {
        let total = calls.len();
        let mut by_owner = ByOwner::new(self.shards(), total);
        for (position, (key, call)) in calls.into_iter().enumerate() {
            by_owner.push(self.owner(key), position, (key, call));
        }
        let asked: Vec<_> = by_owner
            .groups()
            .map(|group| (group.positions, AskFuture::send(self, group.owner, Ask::Call(group.parts))))
            .collect();
        let mut answers: Vec<_> = (0..total).map(|_| PartitionAnswer::Failed(ErrorCode::NotLeaderOrFollower)).collect();
        for (positions, future) in asked {
            if let Answer::Call(results) = future.await {
                for (position, result) in positions.into_iter().zip(results) {
                    answers[position] = result;
                }
            }
        }
        answers
    }

    /// A producer id that was never given out before, from this shard's durable block.
    ///
    /// # Errors
    /// The code to answer when the controller could not give a new block.
    pub async fn next_producer_id(self: &Rc<Self>) -> Result<ProducerId, ErrorCode> {
        controlling::next_producer_id(self).await
    }
}
