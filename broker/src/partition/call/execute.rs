//! Answering the calls, on the shard that owns the partition.
//!
//! Holds: how each question is put to the log, and Kafka's error for what goes wrong. Never touches: other partitions, the
//! wire.

use std::rc::Rc;

use corelog_net::wire::ErrorCode;
use corelog_storage::ids::{LeaderEpoch, Offset, Timestamp};
use corelog_storage::log::{ChangeError, LookupError, ReadError};
use tracing::warn;

use super::{
    ActiveProducer, FoundOffset, ListOffset, LogSize, OffsetAt, PartitionAnswer, PartitionCall, PartitionKey, Visible,
};
use crate::partition::Partition;
use crate::shard::Shard;
use crate::shard::by_owner::Parts;
use crate::shard::together::together;

/// Calls of one request that wait for the disk at once.
const CALLS_AT_ONCE: usize = 16;

/// Executes calls on partitions of this shard; answers come in the calls' order.
pub async fn execute_all(shard: &Rc<Shard>, calls: Parts<(PartitionKey, PartitionCall)>) -> Vec<PartitionAnswer> {
    let work = calls.into_iter().map(|(key, call)| async move {
        match shard.partition(key) {
            Some(partition) => partition.execute(shard, call).await,
            None => PartitionAnswer::Failed(shard.missing_partition(key)),
        }
    });
    together(CALLS_AT_ONCE, work).await
}

impl Partition {
    /// Executes one call.
    pub async fn execute(self: &Rc<Self>, shard: &Rc<Shard>, call: PartitionCall) -> PartitionAnswer {
        let answer = match call {
            PartitionCall::ListOffset(wanted) => self.find_offset(wanted).await.map(PartitionAnswer::Offset),
            PartitionCall::EpochEnd { current_epoch, epoch } => self
                .check_leader_epoch(current_epoch)
                .map(|()| PartitionAnswer::EpochEnd(self.log().epoch_end_offset(epoch))),
            PartitionCall::DeleteRecords { before } => {
                self.delete_records(shard, before).await.map(PartitionAnswer::LowWatermark)
            }
            PartitionCall::Producers => Ok(PartitionAnswer::Producers(self.active_producers())),
            PartitionCall::LogSize => Ok(PartitionAnswer::LogSize(self.log_size())),
        };
        answer.unwrap_or_else(PartitionAnswer::Failed)
    }

    async fn find_offset(&self, wanted: ListOffset) -> Result<Option<FoundOffset>, ErrorCode> {
        self.check_leader_epoch(wanted.current_epoch)?;
        let end = match wanted.visible {
            Visible::Stable => self.last_stable(),
            Visible::Committed => self.high_watermark(),
            Visible::Everything => self.log().log_end(),
        };
        let bare = |offset, leader_epoch| FoundOffset { offset, timestamp: Timestamp::NONE, leader_epoch };
        let found = match wanted.at {
            OffsetAt::Latest => return Ok(Some(bare(end, Some(self.leader_epoch())))),
            OffsetAt::Earliest | OffsetAt::EarliestLocal => {
                let start = self.log().log_start();
                return Ok(Some(bare(start, self.log().epoch_of(start))));
            }
            // Without tiered storage Kafka answers as if there were one, and nothing in it.
            OffsetAt::LatestTiered | OffsetAt::EarliestPendingUpload => {
                return Ok(Some(bare(Offset::NONE, Some(LeaderEpoch::NONE))));
            }
            OffsetAt::LargestTimestamp => self.log().max_timestamp(end).await,
            OffsetAt::Time(time) => self.log().offset_for_timestamp(time, end).await,
        };
        let found = found.map_err(|error| self.lookup_failed(&error))?;
        // What the client may not see yet, it does not find either.
        Ok(found.filter(|found| found.offset < end).map(|found| FoundOffset {
            offset: found.offset,
            timestamp: found.timestamp,
            leader_epoch: self.log().epoch_of(found.offset),
        }))
    }

    fn lookup_failed(&self, error: &LookupError) -> ErrorCode {
        warn!(topic = %self.topic(), partition = self.key().partition.0, %error, "looking up an offset failed");
        match error {
            // The log's start passed the place while it was looked at: the client asks again.
            LookupError::Read(ReadError::OutOfRange { .. } | ReadError::Busy { .. }) => ErrorCode::OffsetNotAvailable,
            LookupError::Read(ReadError::Damaged { .. } | ReadError::Io { .. }) | LookupError::Records { .. } => {
                ErrorCode::KafkaStorageError
            }
        }
    }

    /// KIP-107. Answers with the log's start, which is durable then.
    async fn delete_records(self: &Rc<Self>, shard: &Rc<Shard>, before: Option<Offset>) -> Result<Offset, ErrorCode> {
        let policy = self.config().cleanup_policy;
        if policy.compact && !policy.delete {
            return Err(ErrorCode::PolicyViolation);
        }
        let high_watermark = self.high_watermark();
        let before = before.unwrap_or(high_watermark);
        if before < Offset::ZERO || before > high_watermark {
            return Err(ErrorCode::OffsetOutOfRange);
        }
        if self.log().durable_end() < before {
            // Acknowledged in memory only: the log's start never passes what is on the disk.
            shard.commit_soon(self);
            self.log().until_durable(before).await;
        }
        match self.log().delete_records(before).await {
            Ok(log_start) => Ok(log_start),
            Err(error) => {
                warn!(topic = %self.topic(), partition = self.key().partition.0, %error, "deleting records failed");
                Err(match error {
                    ChangeError::OutOfRange { .. } => ErrorCode::OffsetOutOfRange,
                    // Going away, or busy with another change: the client finds out by asking again.
                    ChangeError::Closed | ChangeError::StaleEpoch { .. } => ErrorCode::NotLeaderOrFollower,
                    ChangeError::Fenced(_)
                    | ChangeError::Read(_)
                    | ChangeError::Io { .. }
                    | ChangeError::Checkpoint(_) => ErrorCode::KafkaStorageError,
                })
            }
        }
    }

    fn active_producers(&self) -> Vec<ActiveProducer> {
        let mut producers: Vec<ActiveProducer> = self.log().producers(|state| {
            let active = |entry: &corelog_storage::producers::ProducerEntry| ActiveProducer {
                id: entry.producer_id,
                epoch: entry.epoch,
                last_sequence: entry.last_sequence(),
                last_timestamp: entry.last_timestamp,
                coordinator_epoch: entry.coordinator_epoch,
                transaction_start: entry.transaction_start,
            };
            state.active_producers().map(active).collect()
        });
        producers.sort_unstable_by_key(|producer| producer.id);
        producers
    }

    fn log_size(&self) -> LogSize {
        let folder = self.log().folder();
        LogSize { bytes: self.log().status().bytes, data_dir: folder.parent().unwrap_or(folder).into() }
    }
}
