//! Reading from a partition, on the shard that owns it.
//!
//! Holds: what one read returns, and the limits consumers see. Never touches: sessions, waiting (see [`super::watch`]),
//! how bytes reach the socket, what other partitions of a request have used up (the API layer shares out the disk).
//!
//! A read has two steps, so that the disk is asked for no more than the answer has room for: [`serve_group`] brings what
//! is in memory and says how much more there is on disk; [`serve_disk_group`] reads that for whom there is room.

use std::rc::Rc;

use corelog_net::conn::{FileRange, Item};
use corelog_net::wire::ErrorCode;
use corelog_reactor::ShardId;
use corelog_storage::epochs::EpochEnd;
use corelog_storage::ids::{LeaderEpoch, Offset};
use corelog_storage::log::{AbortedTxn, ColdPlan, ReadError, ReadOutcome};
use tracing::warn;

use super::Partition;
use super::call::PartitionKey;
use super::payload::Payload;
use super::watch::WatchEntry;
use crate::shard::Shard;
use crate::shard::by_owner::Parts;
use crate::shard::mail::{Answer, AskId};
use crate::shard::serve::answer_later;
use crate::shard::together::together;

/// Partitions of one request that are read from the disk at once.
const DISK_READS_AT_ONCE: usize = 16;
/// Aborted transactions that one answer about a partition names. A batch can be part of more only if more producers than a
/// partition knows had one open.
const ABORTED_MAX: usize = 100_000;

/// What a fetch wants from one partition.
#[derive(Debug, Clone, Copy)]
pub struct PartitionRead {
    /// The partition.
    pub key: PartitionKey,
    /// The leader epoch the fetcher believes in, KIP-320.
    pub current_epoch: Option<LeaderEpoch>,
    /// The epoch of the fetcher's last record, KIP-595: a fetcher that diverged is told where.
    pub last_fetched_epoch: Option<LeaderEpoch>,
    /// The first offset wanted.
    pub from: Offset,
    /// The most bytes.
    pub bytes_max: usize,
    /// The first batch comes whole even if it is larger (KIP-74).
    pub at_least_one: bool,
    /// Only what is committed.
    pub read_committed: bool,
    /// Checksums of what comes from the disk are checked before it is sent.
    pub checks_crc: bool,
}

/// Aborted transactions that may have records in an answer.
#[derive(Debug)]
pub struct Aborted(pub Vec<AbortedTxn>);

impl Aborted {
    /// Most answers have none, and take no memory for it.
    fn of(transactions: Vec<AbortedTxn>) -> Option<Box<Aborted>> {
        (!transactions.is_empty()).then(|| Box::new(Aborted(transactions)))
    }
}

/// What one read returns.
#[derive(Debug)]
pub struct PartitionData {
    /// Kafka's error, or none.
    pub error: ErrorCode,
    /// High watermark, -1 with an error that leaves it unknown.
    pub high_watermark: i64,
    /// Last stable offset, likewise.
    pub last_stable: i64,
    /// First offset of the log, likewise.
    pub log_start: i64,
    /// Where the fetcher's log departs from this one.
    pub diverging: Option<(LeaderEpoch, Offset)>,
    /// Whole batches, in pieces that are sent as they lie.
    pub records: Parts<Item<Payload>>,
    /// Bytes of `records`.
    pub bytes: usize,
    /// Whose transactions among them were aborted, if any were and only committed records were asked for.
    pub aborted: Option<Box<Aborted>>,
    /// The most that another read would bring, of the disk or with more room; zero if there is nothing, or it is all here.
    pub bytes_waiting: usize,
    /// With this much room there was none for the first batch.
    pub room_refused: Option<usize>,
    /// The records are of a segment behind the one that is written to.
    pub is_behind: bool,
    /// There was no memory for the read: the client is to come again at once, not to wait for news.
    pub come_again: bool,
    /// The partition was never asked: it is unknown, or the client may not read it.
    pub unread: bool,
}

impl PartitionData {
    /// Nothing but an error.
    pub fn failed(error: ErrorCode) -> PartitionData {
        PartitionData {
            error,
            high_watermark: -1,
            last_stable: -1,
            log_start: -1,
            diverging: None,
            records: Parts::new(),
            bytes: 0,
            aborted: None,
            bytes_waiting: 0,
            room_refused: None,
            is_behind: false,
            come_again: false,
            unread: false,
        }
    }

    /// An error for a partition that was never asked.
    pub fn unread(error: ErrorCode) -> PartitionData {
        PartitionData { unread: true, ..PartitionData::failed(error) }
    }

    /// Drops the records: there was no room for them in the response.
    pub fn without_records(&mut self) {
        self.records.clear();
        self.aborted = None;
        self.bytes = 0;
    }
}

/// Reads a group for shard `from`, in order: what is in memory, within `bytes_max` for all of them together.
pub fn serve_group(shard: &Rc<Shard>, from: ShardId, ask: AskId, reads: Parts<PartitionRead>, bytes_max: usize) {
    let mut left = bytes_max;
    let mut done = Parts::with_capacity(reads.len());
    let mut found = false;
    for read in &reads {
        let bytes_max = read.bytes_max.min(left);
        let data = look(shard, &PartitionRead { bytes_max, at_least_one: read.at_least_one && !found, ..*read });
        found |= data.bytes > 0;
        left = left.saturating_sub(data.bytes);
        done.push(data);
    }
    shard.deliver_answer(from, ask, Answer::Read(done));
}

/// Reads a group for shard `from` wherever the bytes are. Each read's limit is its share of the answer.
pub fn serve_disk_group(shard: &Rc<Shard>, from: ShardId, ask: AskId, reads: Parts<PartitionRead>) {
    let on = Rc::clone(shard);
    answer_later(shard, from, ask, async move {
        Answer::Read(together(DISK_READS_AT_ONCE, reads.iter().map(|read| read_waiting(&on, read))).await.into())
    });
}

/// Whether a watched partition has moved past what the watcher saw, or can't be watched.
pub fn has_moved(shard: &Rc<Shard>, entry: &WatchEntry) -> bool {
    shard.partition(entry.key).is_none_or(|partition| partition.visible(entry.read_committed) != entry.seen)
}

fn look(shard: &Rc<Shard>, read: &PartitionRead) -> PartitionData {
    let Some(partition) = shard.partition(read.key) else {
        return PartitionData::failed(shard.missing_partition(read.key));
    };
    match partition.read(read) {
        Ok((data, ReadOutcome::Cold(plan))) => PartitionData { bytes_waiting: plan.bytes_at_most(), ..data },
        Ok((data, outcome)) => {
            let (mut data, next) = with_hot(data, outcome, read);
            if read.read_committed && data.bytes > 0 {
                let log = partition.log();
                match log.aborted_transactions_in_memory(read.from, next, ABORTED_MAX) {
                    Some(aborted) => data.aborted = Aborted::of(aborted),
                    // What was aborted among these records is on the disk: they wait for it there.
                    None => {
                        data.bytes_waiting = data.bytes;
                        data.without_records();
                    }
                }
            }
            data
        }
        Err(data) => *data,
    }
}

async fn read_waiting(shard: &Rc<Shard>, read: &PartitionRead) -> PartitionData {
    let Some(partition) = shard.partition(read.key) else {
        return PartitionData::failed(shard.missing_partition(read.key));
    };
    let mut read = *read;
    loop {
        let (mut data, next) = read_once(&partition, &read).await;
        if !read.read_committed || data.bytes == 0 {
            return data;
        }
        match partition.log().aborted_transactions(read.from, next, ABORTED_MAX).await {
            Ok(Some(aborted)) => {
                data.aborted = Aborted::of(aborted);
                return data;
            }
            // Fewer records are part of fewer transactions. A batch that came within the room is no larger than that.
            Ok(None) if read.bytes_max > 1 => {
                read = PartitionRead { bytes_max: data.bytes.min(read.bytes_max) / 2, at_least_one: true, ..read };
            }
            Ok(None) => return PartitionData::failed(ErrorCode::UnknownServerError),
            Err(error) => return partition.read_failed(&error),
        }
    }
}

/// One read, and the offset behind what it brings.
async fn read_once(partition: &Partition, read: &PartitionRead) -> (PartitionData, Offset) {
    match partition.read(read) {
        Ok((data, ReadOutcome::Cold(plan))) => read_cold(partition, read, data, plan).await,
        Ok((data, outcome)) => with_hot(data, outcome, read),
        Err(data) => (*data, read.from),
    }
}

async fn read_cold(
    partition: &Partition,
    read: &PartitionRead,
    mut data: PartitionData,
    plan: ColdPlan,
) -> (PartitionData, Offset) {
    data.is_behind = plan.is_sealed();
    if !read.checks_crc
        && let Some(range) = partition.log().cold_range(&plan).await
    {
        data.bytes = range.bytes();
        data.records.push(Item::File(FileRange::new(range.file, range.start, range.end, range.file_end)));
        return (data, range.next_offset);
    }
    let segment = plan.segment();
    let cold = match partition.log().read_cold(plan).await {
        Ok(Some(cold)) if read.checks_crc => cold.checked(segment),
        Ok(Some(cold)) => Ok(cold),
        Ok(None) => {
            data.is_behind = false;
            return (refused(data, read), read.from);
        }
        Err(error) => Err(error),
    };
    match cold {
        Ok(cold) => {
            let next = cold.next_offset;
            data.bytes = cold.len();
            data.records.push(Item::Shared(Payload::Cold(cold)));
            (data, next)
        }
        Err(error) => (partition.read_failed(&error), read.from),
    }
}

fn with_hot(mut data: PartitionData, outcome: ReadOutcome, read: &PartitionRead) -> (PartitionData, Offset) {
    match outcome {
        ReadOutcome::Hot(hot) => {
            data.bytes = hot.bytes;
            data.records = hot.slices.into_iter().map(|slice| Item::Shared(Payload::Tail(slice))).collect();
            (data, hot.next_offset)
        }
        ReadOutcome::Empty => (refused(data, read), read.from),
        ReadOutcome::Cold(_) => unreachable!("a plan was not executed"),
    }
}

/// Nothing was found for a read that may have had too little room.
fn refused(data: PartitionData, read: &PartitionRead) -> PartitionData {
    let visible = Offset(if read.read_committed { data.last_stable } else { data.high_watermark });
    if read.at_least_one || read.from >= visible {
        return data;
    }
    PartitionData { bytes_waiting: usize::MAX, room_refused: Some(read.bytes_max), ..data }
}

impl Partition {
    /// The end of what a consumer may see.
    pub fn visible(&self, read_committed: bool) -> Offset {
        if read_committed { self.last_stable() } else { self.high_watermark() }
    }

    fn read(&self, read: &PartitionRead) -> Result<(PartitionData, ReadOutcome), Box<PartitionData>> {
        self.check_leader_epoch(read.current_epoch).map_err(|code| Box::new(PartitionData::failed(code)))?;
        let mut data = PartitionData {
            error: ErrorCode::None,
            high_watermark: self.high_watermark().0,
            last_stable: self.last_stable().0,
            log_start: self.log().log_start().0,
            diverging: None,
            records: Parts::new(),
            bytes: 0,
            aborted: None,
            bytes_waiting: 0,
            room_refused: None,
            is_behind: false,
            come_again: false,
            unread: false,
        };
        if let Some(epoch) = read.last_fetched_epoch {
            // KIP-595: a fetcher that left this log's history is told where they parted.
            let known = self.log().epoch_end_offset(epoch);
            if known == EpochEnd::UNDEFINED {
                return Err(Box::new(PartitionData::failed(ErrorCode::OffsetOutOfRange)));
            }
            if known.epoch < epoch || known.end < read.from {
                data.diverging = Some((known.epoch, known.end));
                return Err(Box::new(data));
            }
        }
        let upper = self.visible(read.read_committed);
        // Between what is visible and the log's end there is nothing to see yet, and nothing wrong with asking.
        if read.from > upper && read.from <= self.log().log_end() {
            return Err(Box::new(data));
        }
        match self.log().read(read.from, upper, read.bytes_max, read.at_least_one) {
            Ok(outcome) => Ok((data, outcome)),
            Err(error) => Err(Box::new(self.read_failed(&error))),
        }
    }

    fn read_failed(&self, error: &ReadError) -> PartitionData {
        let code = match error {
            // Everyday: a consumer that was away for long, or one that got ahead of a lost tail.
            ReadError::OutOfRange { .. } => return PartitionData::failed(ErrorCode::OffsetOutOfRange),
            // No memory for the read: an empty answer makes the client come again.
            ReadError::Busy { .. } => {
                return PartitionData {
                    high_watermark: self.high_watermark().0,
                    last_stable: self.last_stable().0,
                    log_start: self.log().log_start().0,
                    come_again: true,
                    ..PartitionData::failed(ErrorCode::None)
                };
            }
            ReadError::Damaged { .. } | ReadError::Io { .. } => ErrorCode::KafkaStorageError,
        };
        warn!(topic = %self.topic(), partition = self.key().partition.0, %error, "read failed");
        PartitionData::failed(code)
    }
}
