//! Produce, on the shard that owns the partition: check, append, wait to be durable, answer.
//!
//! Holds: the path of one batch from mail to tail, the groups it arrived in, and the codes of its refusals. Never touches:
//! connections, frames.
//!
//! ```text
//!   group of entries ──> each: checks ──> append ──> waiters ──(commit)──> settle ──> group complete ──> answer
//!                               │ slow (large and compressed) or no room
//!                               └──> backlog ──> task, in slices ──> append ...
//! ```

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use corelog_net::wire::ErrorCode;
use corelog_reactor::ShardId;
use corelog_storage::batch::DecompressScratch;
use corelog_storage::batch::validate::{
    ProduceError, ProduceErrorKind, RecordRefusal, RefusedRecord, RefusedRecords, Validation, ValidationRules,
    sole_batch,
};
use corelog_storage::batch::{BatchView, Compression, Rewrite};
use corelog_storage::ids::{Offset, PartitionIndex, Timestamp};
use corelog_storage::log::{AppendError, Appended, LeaderBatch};
use corelog_storage::producers::SequenceError;
use slab::Slab;
use tracing::warn;

use super::call::PartitionKey;
use super::{Partition, WaitingProduce};
use crate::shard::Shard;
use crate::shard::by_owner::Parts;
use crate::shard::mail::{Answer, AskId};
use crate::shard::work::SLICE_BYTES;

/// A batch up to this size is checked where it arrives, without a task.
const AT_ONCE_BYTES_MAX: usize = 256 << 10;
/// The same for compressed batches, whose work is a multiple of their size: as long as it turns out to be no more than
/// [`AT_ONCE_WORK_BYTES_MAX`].
const AT_ONCE_COMPRESSED_BYTES_MAX: usize = 16 << 10;
/// The work that a batch checked where it arrives may make; a bomb makes more, and is checked by a task. A batch that is not
/// compressed is walked over once, and its CRC costs less than an eighth of that.
const AT_ONCE_WORK_BYTES_MAX: usize = AT_ONCE_BYTES_MAX + AT_ONCE_BYTES_MAX / 8;
/// How soon a batch that found no room in the tail looks again.
const ROOM_RETRY: Duration = Duration::from_millis(1);
/// How long it does so before it is refused for the client to retry.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(15);
/// Entries that may wait in one partition's backlog; more are refused for the client to retry.
const BACKLOG_MAX: usize = 4096;

/// What a produce asks of one partition.
#[derive(Debug)]
pub struct ProduceEntry {
    /// The partition.
    pub key: PartitionKey,
    /// The records field as it lies in the frame; `None` if it was null.
    pub records: Option<Bytes>,
    /// Version of the request: some checks depend on it.
    pub version: i16,
    /// 0: the answer need not wait for the disk; 1 and -1 (all): only when the batch is durable.
    pub acks: i16,
}

/// What became of one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProduceOutcome {
    /// Kafka's error, or none.
    pub error: ErrorCode,
    /// Offset of the first record, -1 if refused.
    pub base_offset: i64,
    /// Append time if the topic stamps it, else -1.
    pub log_append_time_ms: i64,
    /// First offset of the log, -1 if refused.
    pub log_start: i64,
    /// Words and record errors, for the few refusals that have them.
    pub detail: Option<Box<RefusalDetail>>,
}

/// What a refusal says beyond its code (KIP-467).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RefusalDetail {
    /// In words.
    pub message: Option<String>,
    /// Which records, each with its reason.
    pub records: Vec<(i32, Option<String>)>,
}

impl ProduceOutcome {
    /// A refusal with nothing but a code.
    pub fn failed(error: ErrorCode) -> ProduceOutcome {
        ProduceOutcome { error, base_offset: -1, log_append_time_ms: -1, log_start: -1, detail: None }
    }
}

/// An entry's place: its group, and its position in it.
#[derive(Debug, Clone, Copy)]
pub struct Ticket {
    group: usize,
    position: usize,
}

/// Entries that arrived together and are answered together.
#[derive(Debug)]
struct Group {
    from: ShardId,
    ask: AskId,
    outcomes: Parts<Option<ProduceOutcome>>,
    open: usize,
}

/// The open groups of one shard. Bounded by the produces in flight on all connections.
#[derive(Debug, Default)]
pub struct ProduceGroups(Slab<Group>);

/// An entry that waits its turn in a partition's backlog.
#[derive(Debug)]
pub struct Backlogged {
    entry: ProduceEntry,
    ticket: Ticket,
}

/// Appends a group of entries for shard `from` and answers when all are settled.
pub fn serve_group(shard: &Rc<Shard>, from: ShardId, ask: AskId, entries: Parts<ProduceEntry>) {
    assert!(!entries.is_empty(), "a produce group without entries would never be answered");
    let outcomes = entries.iter().map(|_| None).collect();
    let group = shard.groups().borrow_mut().0.insert(Group { from, ask, outcomes, open: entries.len() });
    for (position, entry) in entries.into_iter().enumerate() {
        let ticket = Ticket { group, position };
        match shard.partition(entry.key) {
            Some(partition) => partition.produce(shard, entry, ticket),
            None => settle(shard, ticket, ProduceOutcome::failed(shard.missing_partition(entry.key))),
        }
    }
}

/// One entry has its outcome; the last one of a group sends the answer.
pub fn settle(shard: &Rc<Shard>, ticket: Ticket, outcome: ProduceOutcome) {
    let mut groups = shard.groups().borrow_mut();
    let Some(group) = groups.0.get_mut(ticket.group) else {
        panic!("produce group {} is closed, entry {} of it is not", ticket.group, ticket.position);
    };
    let place = &mut group.outcomes[ticket.position];
    assert!(place.is_none(), "entry {} of produce group {} settled twice", ticket.position, ticket.group);
    *place = Some(outcome);
    group.open -= 1;
    if group.open > 0 {
        return;
    }
    let group = groups.0.remove(ticket.group);
    drop(groups);
    let mut outcomes = Parts::with_capacity(group.outcomes.len());
    outcomes.extend(group.outcomes.into_iter().flatten());
    shard.deliver_answer(group.from, group.ask, Answer::Produce(outcomes));
}

impl Partition {
    /// Takes one entry in: settled at once, or when its batch is durable, or by way of the backlog.
    fn produce(self: &Rc<Self>, shard: &Rc<Shard>, entry: ProduceEntry, ticket: Ticket) {
        if entry.acks == -1 && !self.has_enough_replicas() {
            settle(shard, ticket, ProduceOutcome::failed(ErrorCode::NotEnoughReplicas));
            return;
        }
        if !self.backlog.borrow().is_empty() || !is_quick(&entry) {
            self.push_backlog(shard, entry, ticket);
            return;
        }
        let mut scratch = shard.take_scratch();
        let appended = self.check_at_once(&entry, shard, &mut scratch);
        shard.return_scratch(scratch);
        match appended {
            Ok(Some(appended)) => self.appended(shard, appended, &entry, ticket),
            // A rewrite, or no room in the tail: the slow way.
            Ok(None) => self.push_backlog(shard, entry, ticket),
            Err(outcome) => settle(shard, ticket, *outcome),
        }
    }

    fn push_backlog(self: &Rc<Self>, shard: &Rc<Shard>, entry: ProduceEntry, ticket: Ticket) {
        if self.backlog.borrow().len() >= BACKLOG_MAX {
            // Retriable for every client; nothing was appended.
            shard.counters().backlog_full.increment();
            settle(shard, ticket, ProduceOutcome::failed(ErrorCode::KafkaStorageError));
            return;
        }
        let first = self.backlog.borrow().is_empty();
        self.backlog.borrow_mut().push_back(Backlogged { entry, ticket });
        if first {
            let (partition, on) = (Rc::clone(self), Rc::clone(shard));
            if !shard.spawn(async move { partition.work_off_backlog(&on).await }) {
                let refused = self.backlog.borrow_mut().pop_front();
                assert!(refused.is_some(), "the backlog's only entry left before its task was started");
                settle(shard, ticket, ProduceOutcome::failed(ErrorCode::KafkaStorageError));
            }
        }
    }

    /// Works the backlog off in order. The entry in work stays at the front, so that later ones queue behind it.
    async fn work_off_backlog(self: &Rc<Self>, shard: &Rc<Shard>) {
        loop {
            let Some((entry, ticket)) =
                self.backlog.borrow().front().map(|first| (first.entry.clone_handle(), first.ticket))
            else {
                return;
            };
            let mut scratch = shard.take_scratch();
            let result = self.check_in_slices(&entry, shard, &mut scratch).await;
            shard.return_scratch(scratch);
            let removed = self.backlog.borrow_mut().pop_front();
            assert!(removed.is_some(), "the backlog's front left while it was in work");
            match result {
                Ok(appended) => self.appended(shard, appended, &entry, ticket),
                Err(outcome) => settle(shard, ticket, *outcome),
            }
        }
    }

    fn rules(&self) -> Rc<ValidationRules> {
        Rc::clone(&self.rules.borrow())
    }

    /// The checks and the append in one go; `None` if the batch must go the slow way.
    fn check_at_once(
        &self,
        entry: &ProduceEntry,
        shard: &Rc<Shard>,
        scratch: &mut DecompressScratch,
    ) -> Result<Option<Done>, Box<ProduceOutcome>> {
        let batch = sole(entry)?;
        let work = shard.work();
        if batch.bytes.len() > work.at_once_left() {
            return Ok(None);
        }
        let (rules, now) = (self.rules(), shard.unix_now());
        let mut validation = Validation::begin(batch, &rules, now, scratch).map_err(|error| self.refusal(&error))?;
        let stepped = validation.step(AT_ONCE_WORK_BYTES_MAX);
        work.done_at_once(match &stepped {
            Ok(Some(validated)) => validated.uncompressed_bytes as usize,
            // As much as was allowed, or less: nobody knows.
            Ok(None) | Err(_) if batch.header.attributes.compression() != Some(Compression::None) => {
                AT_ONCE_WORK_BYTES_MAX
            }
            Ok(None) | Err(_) => batch.bytes.len(),
        });
        let Some(validated) = stepped.map_err(|error| self.refusal(&error))? else {
            return Ok(None);
        };
        if validated.rewrite.is_some() {
            return Ok(None);
        }
        let checked = LeaderBatch::validated(batch.bytes, &validated);
        match self.log.append_as_leader(checked, self.leader_epoch.get(), now) {
            Err(AppendError::Full { .. }) => Ok(None),
            other => self.append_outcome(other).map(Some),
        }
    }

    /// The same, letting others run after each slice of work, rewriting if the topic asks for it, and waiting for room.
    async fn check_in_slices(
        &self,
        entry: &ProduceEntry,
        shard: &Rc<Shard>,
        scratch: &mut DecompressScratch,
    ) -> Result<Done, Box<ProduceOutcome>> {
        let batch = sole(entry)?;
        let (rules, now) = (self.rules(), shard.unix_now());
        let validated = {
            let mut validation =
                Validation::begin(batch, &rules, now, scratch).map_err(|error| self.refusal(&error))?;
            loop {
                shard.work().slice().await;
                if let Some(validated) = validation.step(SLICE_BYTES).map_err(|error| self.refusal(&error))? {
                    break validated;
                }
            }
        };
        let rewritten = match Rewrite::new(&batch, &validated, &rules, scratch).map_err(|error| self.refusal(&error))? {
            None => None,
            Some(mut rewrite) => loop {
                shard.work().slice().await;
                if let Some(bytes) = rewrite.step(SLICE_BYTES).map_err(|error| self.refusal(&error))? {
                    break Some(bytes);
                }
            },
        };
        let give_up = shard.reactor().now() + ROOM_WAIT_MAX;
        loop {
            let bytes = rewritten.as_deref().unwrap_or(batch.bytes);
            let checked = LeaderBatch::validated(bytes, &validated);
            match self.log.append_as_leader(checked, self.leader_epoch.get(), now) {
                // A commit of this log, or somebody else's memory, makes room: look again soon, but not for ever.
                Err(AppendError::Full { .. }) if shard.reactor().now() < give_up => {
                    shard.reactor().sleep(ROOM_RETRY).await;
                }
                other => return self.append_outcome(other),
            }
        }
    }

    /// Kafka's code and words for a batch that did not pass. As in Kafka, the log's start is told with most refusals, and
    /// not with those that say that the bytes are damaged or too many.
    fn refusal(&self, error: &ProduceError) -> Box<ProduceOutcome> {
        let code = code_of(error);
        let detail =
            error.refused_records().map(|refused| Box::new(refused_records(refused, &self.topic, self.key.partition)));
        let log_start = match error.kind() {
            ProduceErrorKind::CorruptMessage
            | ProduceErrorKind::MessageTooLarge
            | ProduceErrorKind::RecordListTooLarge => -1,
            ProduceErrorKind::InvalidTimestamp
            | ProduceErrorKind::UnsupportedCompressionType
            | ProduceErrorKind::InvalidRecord
            | ProduceErrorKind::UnknownServerError => self.log.log_start().0,
        };
        Box::new(ProduceOutcome { detail, log_start, ..ProduceOutcome::failed(code) })
    }

    fn append_outcome(&self, result: Result<Appended, AppendError>) -> Result<Done, Box<ProduceOutcome>> {
        match result {
            Ok(appended) => Ok(Done {
                base: appended.base_offset,
                end: appended.last_offset.next(),
                append_time: appended.log_append_time,
                duplicate: false,
            }),
            // Acknowledged like a success, and no sooner than its original (KIP-98).
            Err(AppendError::Duplicate { base_offset, last_offset, timestamp }) => {
                Ok(Done { base: base_offset, end: last_offset.next(), append_time: timestamp, duplicate: true })
            }
            Err(AppendError::Producer(error)) => {
                Err(Box::new(ProduceOutcome { log_start: self.log.log_start().0, ..producer_refusal(&error) }))
            }
            Err(error) => Err(Box::new(append_refusal(&self.topic, &error))),
        }
    }

    /// The batch is in the tail: it is committed at the end of this turn, and answered when durable.
    fn appended(self: &Rc<Self>, shard: &Rc<Shard>, done: Done, entry: &ProduceEntry, ticket: Ticket) {
        let outcome = ProduceOutcome {
            error: ErrorCode::None,
            base_offset: done.base.0,
            log_append_time_ms: done.append_time.0,
            log_start: self.log.log_start().0,
            detail: None,
        };
        if !done.duplicate {
            self.in_memory(shard);
            shard.mark_dirty(self);
        }
        if entry.acks == 0 || done.end <= self.high_watermark.get() {
            settle(shard, ticket, outcome);
        } else {
            self.waiters.borrow_mut().wait(done.end, WaitingProduce { ticket, outcome });
        }
    }
}

/// A batch that is in the log.
#[derive(Debug, Clone, Copy)]
struct Done {
    base: Offset,
    end: Offset,
    append_time: Timestamp,
    duplicate: bool,
}

impl ProduceEntry {
    /// The same entry; the bytes are shared.
    fn clone_handle(&self) -> ProduceEntry {
        ProduceEntry { key: self.key, records: self.records.clone(), version: self.version, acks: self.acks }
    }
}

/// Whether checking this entry is short enough to be done where it arrives.
fn is_quick(entry: &ProduceEntry) -> bool {
    let Some(records) = &entry.records else { return true };
    match sole_batch(records, entry.version) {
        Ok(batch) if batch.header.attributes.compression() == Some(Compression::None) => {
            records.len() <= AT_ONCE_BYTES_MAX
        }
        Ok(_) => records.len() <= AT_ONCE_COMPRESSED_BYTES_MAX,
        Err(_) => true,
    }
}

/// The request's own checks (docs/wire.md): they come before the log is looked at, so its start is not told.
fn sole(entry: &ProduceEntry) -> Result<BatchView<'_>, Box<ProduceOutcome>> {
    sole_batch(entry.records.as_deref().unwrap_or_default(), entry.version).map_err(|error| {
        let message = match &error {
            ProduceError::UnknownMagic { magic } => Some(format!("Invalid magic found in record: {magic}")),
            ProduceError::Length { length } => {
                Some(format!("Record size {length} is less than the minimum record overhead (14)"))
            }
            _ => None,
        };
        let detail = message.map(|message| Box::new(RefusalDetail { message: Some(message), records: Vec::new() }));
        Box::new(ProduceOutcome { detail, ..ProduceOutcome::failed(code_of(&error)) })
    })
}

fn code_of(error: &ProduceError) -> ErrorCode {
    match error.kind() {
        ProduceErrorKind::CorruptMessage => ErrorCode::CorruptMessage,
        ProduceErrorKind::MessageTooLarge => ErrorCode::MessageTooLarge,
        ProduceErrorKind::RecordListTooLarge => ErrorCode::RecordListTooLarge,
        ProduceErrorKind::InvalidTimestamp => ErrorCode::InvalidTimestamp,
        ProduceErrorKind::UnsupportedCompressionType => ErrorCode::UnsupportedCompressionType,
        ProduceErrorKind::InvalidRecord => ErrorCode::InvalidRecord,
        ProduceErrorKind::UnknownServerError => ErrorCode::UnknownServerError,
    }
}

/// KIP-467: the records that were refused one by one, in Kafka's words.
fn refused_records(refused: &RefusedRecords, topic: &str, partition: PartitionIndex) -> RefusalDetail {
    let words = |record: &RefusedRecord| match record.reason {
        RecordRefusal::NoKey => {
            format!("Compacted topic cannot accept message without key in topic partition {topic}-{}", partition.0)
        }
        RecordRefusal::Timestamp { .. } | RecordRefusal::LogAppendTime => record.to_string(),
    };
    let records: Vec<(i32, String)> = refused.records.iter().map(|record| (record.index, words(record))).collect();
    let message = if refused.has_timestamps {
        "One or more records have been rejected due to invalid timestamp".to_owned()
    } else {
        let first: Vec<String> = records
            .iter()
            .take(3)
            .map(|(index, message)| format!("RecordError(batchIndex={index}, message='{message}')"))
            .collect();
        format!(
            "One or more records have been rejected due to {} record errors in total, and only showing the first three \
             errors at most: [{}]",
            refused.total,
            first.join(", ")
        )
    };
    RefusalDetail {
        message: Some(message),
        records: records.into_iter().map(|(index, words)| (index, Some(words))).collect(),
    }
}

/// Kafka's code for a batch that passed and was not appended.
fn append_refusal(topic: &str, error: &AppendError) -> ProduceOutcome {
    match error {
        AppendError::Producer(error) => producer_refusal(error),
        AppendError::TooLarge { .. } => ProduceOutcome::failed(ErrorCode::RecordListTooLarge),
        AppendError::StaleEpoch { .. } => ProduceOutcome::failed(ErrorCode::NotLeaderOrFollower),
        AppendError::Closed => ProduceOutcome::failed(ErrorCode::NotLeaderOrFollower),
        AppendError::Full { .. } | AppendError::NoSpace | AppendError::Fenced(_) => {
            ProduceOutcome::failed(ErrorCode::KafkaStorageError)
        }
        AppendError::Malformed(_)
        | AppendError::Trailing { .. }
        | AppendError::Delta { .. }
        | AppendError::Marker(_)
        | AppendError::NotNext(_)
        | AppendError::Duplicate { .. } => {
            warn!(topic, %error, "a validated batch was not appended");
            ProduceOutcome::failed(ErrorCode::UnknownServerError)
        }
    }
}

/// Kafka's code for a batch that its producer's state forbids (KIP-98, KIP-360).
fn producer_refusal(error: &SequenceError) -> ProduceOutcome {
    let code = match error {
        SequenceError::InvalidProducerEpoch { .. } => ErrorCode::InvalidProducerEpoch,
        SequenceError::OutOfOrder { .. } => ErrorCode::OutOfOrderSequenceNumber,
        SequenceError::NotInTransaction { .. } | SequenceError::ExpectedTransaction { .. } => {
            ErrorCode::InvalidTxnState
        }
        // Retriable: room comes with expiry.
        SequenceError::TooManyProducers { .. } => ErrorCode::KafkaStorageError,
    };
    ProduceOutcome::failed(code)
}
