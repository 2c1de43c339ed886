//! One partition, as its leader sees it.
//!
//! Holds: the log, the high watermark, the produces that wait for it, and the batches that wait to be checked. Never
//! touches: connections, the wire, other partitions.
//!
//! Offsets of a partition, left to right:
//!
//! ```text
//!   log_start ........ last_stable <= high_watermark <= durable_end <= log_end
//!       │                                  │                │             └ stamped, in the tail
//!       └ DeleteRecords moves it           │                └ on stable storage: moved by a commit
//!                                          └ what consumers see; on one node: the durable end
//! ```
//!
//! With `corelog.durability=memory` the high watermark is the log end, and the durable end follows.

pub mod call;
pub mod payload;
pub mod produce;
pub mod read;
pub mod rules;
pub mod waiters;
pub mod watch;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use corelog_net::wire::ErrorCode;
use corelog_storage::batch::validate::ValidationRules;
use corelog_storage::ids::{LeaderEpoch, Offset};
use corelog_storage::log::{CommitError, Log};
use tracing::{error, warn};

use self::call::PartitionKey;
use self::produce::{Backlogged, ProduceOutcome, Ticket};
use self::waiters::ProduceWaiters;
use crate::config::{BrokerConfig, Durability, TopicConfig};
use crate::controller::PartitionImage;
use crate::shard::Shard;
use crate::shard::relaxed::GATHER_BYTES;

/// A partition that this shard owns and leads.
pub struct Partition {
    key: PartitionKey,
    topic: Arc<str>,
    log: Log,
    config: RefCell<Arc<TopicConfig>>,
    rules: RefCell<Rc<ValidationRules>>,
    leader_epoch: Cell<LeaderEpoch>,
    high_watermark: Cell<Offset>,
    waiters: RefCell<ProduceWaiters<WaitingProduce>>,
    /// Batches that arrived while an earlier one was being checked slowly or found no room; in order.
    backlog: RefCell<VecDeque<Backlogged>>,
    committing: Cell<bool>,
    flush: Cell<Option<Flush>>,
    /// Its commit may wait for more: see `shard/relaxed.rs`.
    gathers: Cell<bool>,
    replicas: Cell<usize>,
    in_sync: Cell<usize>,
    /// It was said which acknowledged records are lost.
    is_loss_told: Cell<bool>,
}

/// How much of what a partition acknowledges may be in memory only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flush {
    /// `flush.messages`: with so many records their write begins,
    pub records: u64,
    /// `flush.ms`: and after so long.
    pub within: Duration,
}

impl Flush {
    /// `None`: nothing, as by default.
    fn of(config: &TopicConfig) -> Option<Flush> {
        let flush = Flush { records: config.flush_messages, within: Duration::from_millis(config.flush_ms) };
        (config.durability == Durability::Memory).then_some(flush)
    }
}

/// An appended produce that waits to be acknowledged.
#[derive(Debug)]
struct WaitingProduce {
    ticket: Ticket,
    outcome: ProduceOutcome,
}

impl Partition {
    /// A partition on its recovered log. What recovery found is durable, so consumers may see all of it.
    pub fn new(
        key: PartitionKey,
        topic: Arc<str>,
        log: Log,
        config: Arc<TopicConfig>,
        state: &PartitionImage,
    ) -> Rc<Partition> {
        let high_watermark = Cell::new(log.durable_end());
        Rc::new(Partition {
            key,
            topic,
            log,
            flush: Cell::new(Flush::of(&config)),
            gathers: Cell::new(false),
            rules: RefCell::new(Rc::new(rules::validation_rules(&config))),
            config: RefCell::new(config),
            leader_epoch: Cell::new(state.leader_epoch),
            high_watermark,
            waiters: RefCell::default(),
            backlog: RefCell::default(),
            committing: Cell::new(false),
            replicas: Cell::new(state.replicas.len()),
            in_sync: Cell::new(state.isr.len()),
            is_loss_told: Cell::default(),
        })
    }

    /// Which partition this is.
    pub fn key(&self) -> PartitionKey {
        self.key
    }

    /// The topic's name.
    pub fn topic(&self) -> &Arc<str> {
        &self.topic
    }

    /// Its log.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// The topic's configuration in force.
    pub fn config(&self) -> Arc<TopicConfig> {
        Arc::clone(&self.config.borrow())
    }

    /// Takes over a changed configuration.
    pub fn set_config(&self, config: Arc<TopicConfig>, broker: &BrokerConfig) {
        self.log.set_config(rules::log_config(&config, broker));
        *self.rules.borrow_mut() = Rc::new(rules::validation_rules(&config));
        self.flush.set(Flush::of(&config));
        *self.config.borrow_mut() = config;
    }

    /// The epoch this broker leads in.
    pub fn leader_epoch(&self) -> LeaderEpoch {
        self.leader_epoch.get()
    }

    /// Takes over what the controller decided about this partition.
    pub fn set_state(&self, state: &PartitionImage) {
        let (before, epoch) = (self.leader_epoch.get(), state.leader_epoch);
        assert!(epoch >= before, "leader epoch went from {before} back to {epoch}");
        self.leader_epoch.set(epoch);
        self.replicas.set(state.replicas.len());
        self.in_sync.set(state.isr.len());
    }

    /// Whether `acks=all` can be honoured: `min.insync.replicas`, capped by the replicas there are, as Kafka 4.x does.
    fn has_enough_replicas(&self) -> bool {
        self.in_sync.get() >= self.config.borrow().effective_min_insync_replicas(self.replicas.get())
    }

    /// Consumers see records below this.
    pub fn high_watermark(&self) -> Offset {
        self.high_watermark.get()
    }

    /// Consumers of committed data see records below this. Until there are transactions: the high watermark.
    pub fn last_stable(&self) -> Offset {
        self.high_watermark.get()
    }

    /// Checks the epoch a client believes in, KIP-320.
    ///
    /// # Errors
    /// `FENCED_LEADER_EPOCH` for an older one, `UNKNOWN_LEADER_EPOCH` for a newer one.
    pub fn check_leader_epoch(&self, theirs: Option<LeaderEpoch>) -> Result<(), ErrorCode> {
        match theirs {
            Some(epoch) if epoch < self.leader_epoch.get() => Err(ErrorCode::FencedLeaderEpoch),
            Some(epoch) if epoch > self.leader_epoch.get() => Err(ErrorCode::UnknownLeaderEpoch),
            Some(_) | None => Ok(()),
        }
    }

    /// Marks a commit as due. Returns false if one is due or in flight already.
    pub fn begin_commit(&self) -> bool {
        !self.committing.replace(true)
    }

    /// No commit is in flight or due any more.
    pub fn end_commit(&self) {
        self.committing.set(false);
    }

    /// A commit has ended: the acknowledged end moves, those who waited for it are answered.
    pub fn committed(self: &Rc<Self>, shard: &Rc<Shard>, result: Result<(), CommitError>) {
        if let Err(reason) = &result {
            error!(topic = %self.topic, partition = self.key.partition.0, %reason, "partition refuses writes");
        }
        self.answer(shard, result.is_err());
    }

    /// Records that were acknowledged from memory, and won't be written: nobody else will hear of them. Says so once.
    fn tell_what_is_lost(&self) {
        let (from, to) = (self.log.durable_end(), self.high_watermark.get());
        if from < to && self.log.fenced().is_some() && !self.is_loss_told.replace(true) {
            error!(
                topic = %self.topic,
                partition = self.key.partition.0,
                from = from.0,
                to = to.0,
                "acknowledged records are in memory only (corelog.durability=memory), and their write has failed: those at the \
                 offsets from `from` to before `to` are lost with the next stop"
            );
        }
    }

    /// Takes notice of what became durable, or can't any more, other than by a commit of the shard's.
    pub fn catch_up(self: &Rc<Self>, shard: &Rc<Shard>) {
        self.answer(shard, self.log.fenced().is_some());
    }

    /// Whether, and how far, acknowledged records may be in memory only.
    pub fn relaxed(&self) -> Option<Flush> {
        self.flush.get()
    }

    /// Whether the bounds leave room for more before the next write.
    pub fn may_gather(&self, flush: Flush) -> bool {
        let records = u64::try_from(self.log.log_end() - self.log.durable_end()).unwrap_or(u64::MAX);
        records < flush.records && self.log.pending_bytes() < GATHER_BYTES
    }

    /// Whether its commit has a time by which it begins.
    pub fn gathers(&self) -> bool {
        self.gathers.get()
    }

    /// It has one, or has none any more.
    pub fn set_gathers(&self, gathers: bool) {
        self.gathers.set(gathers);
    }

    /// A batch is in memory. Where that is enough it is acknowledged.
    fn in_memory(self: &Rc<Self>, shard: &Rc<Shard>) {
        if self.flush.get().is_some() {
            self.advance(shard, self.log.log_end());
        }
    }

    /// Acknowledges what is durable; if nothing more will be, the rest is refused.
    fn answer(self: &Rc<Self>, shard: &Rc<Shard>, is_over: bool) {
        // Further already, where memory was enough for an acknowledgement.
        self.advance(shard, self.log.durable_end().max(self.high_watermark.get()));
        if is_over {
            self.tell_what_is_lost();
            self.refuse_waiting(shard, ErrorCode::KafkaStorageError);
        }
    }

    fn advance(self: &Rc<Self>, shard: &Rc<Shard>, acknowledged: Offset) {
        let before = self.high_watermark.get();
        assert!(acknowledged >= before, "the acknowledged end went from {before} back to {acknowledged}");
        assert!(
            acknowledged <= self.log.log_end(),
            "the acknowledged end {acknowledged} passed log end {}",
            self.log.log_end()
        );
        self.high_watermark.set(acknowledged);
        loop {
            // Popped one at a time: answering may run code that produces to this partition again.
            let Some(waiting) = self.waiters.borrow_mut().pop(acknowledged) else { break };
            produce::settle(shard, waiting.ticket, waiting.outcome);
        }
        if acknowledged > before {
            shard.partition_moved(self.key);
        }
    }

    /// Nothing that waits can be acknowledged soon: the disk is full, the log is fenced or going away.
    pub fn refuse_waiting(&self, shard: &Rc<Shard>, code: ErrorCode) {
        let mut refused = 0;
        loop {
            let Some(waiting) = self.waiters.borrow_mut().pop_any() else { break };
            produce::settle(shard, waiting.ticket, ProduceOutcome::failed(code));
            refused += 1;
        }
        if refused > 0 {
            warn!(topic = %self.topic, partition = self.key.partition.0, refused, "produces not acknowledged");
        }
    }
}
