//! Reading from a partition, on the shard that owns it.
//!
//! Holds: what one read returns, and the limits consumers see. Never touches: sessions, waiting (see [`super::watch`]),
//! how bytes reach the socket.

use std::rc::Rc;

use corelog_net::conn::Item;
use corelog_net::wire::ErrorCode;
use corelog_reactor::ShardId;
use corelog_storage::epochs::EpochEnd;
use corelog_storage::ids::{LeaderEpoch, Offset};
use corelog_storage::log::{ReadError, ReadOutcome};
use tracing::warn;

use super::Partition;
use super::call::PartitionKey;
use super::payload::Payload;
use super::watch::WatchEntry;
use crate::shard::Shard;
use crate::shard::mail::{Answer, AskId};

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
    /// About how many bytes; the first batch comes whole even if it is larger (KIP-74).
    pub bytes_max: usize,
    /// Only what is committed.
    pub read_committed: bool,
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
    pub records: Vec<Item<Payload>>,
    /// Bytes of `records`.
    pub bytes: usize,
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
            records: Vec::new(),
            bytes: 0,
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
        self.bytes = 0;
    }
}

/// Reads a group for shard `from`: at once what is in memory, from a task if the disk must be asked.
pub fn serve_group(shard: &Rc<Shard>, from: ShardId, ask: AskId, reads: Vec<PartitionRead>) {
    let mut done = Vec::with_capacity(reads.len());
    for (position, read) in reads.iter().enumerate() {
        match begin(shard, read) {
            Begun::Done(data) => done.push(data),
            Begun::Cold => {
                let (shard, rest) = (Rc::clone(shard), reads[position..].to_vec());
                shard.clone().spawn(async move {
                    for read in &rest {
                        done.push(read_waiting(&shard, read).await);
                    }
                    shard.deliver_answer(from, ask, Answer::Read(done));
                });
                return;
            }
        }
    }
    shard.deliver_answer(from, ask, Answer::Read(done));
}

/// Whether a watched partition has moved past what the watcher saw, or can't be watched.
pub fn has_moved(shard: &Rc<Shard>, entry: &WatchEntry) -> bool {
    shard.partition(entry.key).is_none_or(|partition| partition.visible(entry.read_committed) != entry.seen)
}

enum Begun {
    Done(PartitionData),
    Cold,
}

fn begin(shard: &Rc<Shard>, read: &PartitionRead) -> Begun {
    let Some(partition) = shard.partition(read.key) else {
        return Begun::Done(PartitionData::failed(shard.missing_partition(read.key)));
    };
    match partition.read(read) {
        Ok((data, ReadOutcome::Cold(_))) => {
            drop(data);
            Begun::Cold
        }
        Ok((data, outcome)) => Begun::Done(with_hot(data, outcome)),
        Err(data) => Begun::Done(*data),
    }
}

async fn read_waiting(shard: &Rc<Shard>, read: &PartitionRead) -> PartitionData {
    let Some(partition) = shard.partition(read.key) else {
        return PartitionData::failed(shard.missing_partition(read.key));
    };
    match partition.read(read) {
        Ok((mut data, ReadOutcome::Cold(plan))) => match partition.log().read_cold(plan).await {
            Ok(Some(cold)) => {
                data.bytes = cold.len();
                data.records = vec![Item::Shared(Payload::Cold(cold))];
                data
            }
            Ok(None) => data,
            Err(error) => partition.read_failed(&error),
        },
        Ok((data, outcome)) => with_hot(data, outcome),
        Err(data) => *data,
    }
}

fn with_hot(mut data: PartitionData, outcome: ReadOutcome) -> PartitionData {
    if let ReadOutcome::Hot(hot) = outcome {
        data.bytes = hot.bytes;
        data.records = hot.slices.into_iter().map(|slice| Item::Shared(Payload::Tail(slice))).collect();
    }
    data
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
            records: Vec::new(),
            bytes: 0,
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
        match self.log().read(read.from, upper, read.bytes_max, true) {
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
