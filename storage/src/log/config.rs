//! What a log and a shard's storage can be told.
//!
//! Holds: plain numbers with their defaults. Never touches: where they come from (the broker reads topic and broker
//! configurations and fills these in).

use crate::batch::TimestampType;
use crate::disk::COMMIT_BYTES_MAX;
use std::time::Duration;

/// When small commits go through the shard's commit log (`corelog.commit.log`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CommitLogUse {
    /// When that costs less, as far as is measured.
    #[default]
    Auto,
    /// Whenever it can be.
    Always,
    /// Never: every commit is a write to its own segment.
    Never,
}

/// The configuration of one log; the comments name Kafka's keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// `segment.bytes`: a segment never grows past this, unless one batch alone is larger.
    pub segment_bytes_max: u32,
    /// `segment.ms`: a segment is rolled once its first batch is this old.
    pub segment_ms_max: i64,
    /// `segment.jitter.ms`: by up to how much less than that, at random for each segment.
    pub segment_jitter_ms_max: i64,
    /// `segment.index.bytes`: a segment is rolled once one of its indexes has this many bytes.
    pub index_bytes_max: u32,
    /// `index.interval.bytes`: about every how many bytes the indexes get an entry.
    pub index_interval_bytes: u32,
    /// `max.message.bytes`: the largest batch a producer may append.
    pub message_bytes_max: u32,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// `producer.id.expiration.ms`, of the broker: how long a silent producer is remembered.
    pub producer_idle_ms_max: i64,
    /// `retention.ms`, where `cleanup.policy` has `delete`: how old a segment's newest record may get.
    pub retention_ms_max: Option<i64>,
    /// `retention.bytes`, where `cleanup.policy` has `delete`: what is kept at the least, if there is as much.
    pub retention_bytes_max: Option<u64>,
    /// `file.delete.delay.ms`: how long the files of a segment stay that readers see no more.
    pub file_delete_delay_ms: u64,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            segment_bytes_max: 1 << 30,
            segment_ms_max: 7 * 24 * 3600 * 1000,
            segment_jitter_ms_max: 0,
            index_bytes_max: 10 << 20,
            index_interval_bytes: 4096,
            message_bytes_max: 1_048_588,
            timestamp_type: TimestampType::CreateTime,
            producer_idle_ms_max: 86_400_000,
            retention_ms_max: None,
            retention_bytes_max: None,
            file_delete_delay_ms: 0,
        }
    }
}

/// What one shard's storage is bounded by.
#[derive(Clone, Debug)]
pub struct StorageOptions {
    /// Whether O_DIRECT works on this folder (see the probe). If not, everything goes through the page cache.
    pub direct: bool,
    /// Bytes of tail chunks that may stay in memory for readers; what is not durable yet always stays. Never more than half of
    /// the reactor's pool, which also holds the pending bytes and cold reads.
    pub tail_cache_bytes_max: usize,
    /// Appended but not durable bytes of one log; beyond that appends get back-pressure.
    pub pending_bytes_max: u64,
    /// Bytes of one commit write; at most [`COMMIT_BYTES_MAX`].
    pub commit_bytes_max: u64,
    /// This shard's share of the data folder's budget for pre-written space.
    pub prewritten_bytes_max: u64,
    /// Pre-written room of a new log's first segment.
    pub first_room_bytes: u64,
    /// The largest spare segment.
    pub spare_bytes_max: u64,
    /// How many appended bytes the recovery point may stay behind.
    pub recovery_point_bytes_max: u64,
    /// Pause between retries of a write that found no space.
    pub no_space_retry: Duration,
    /// Pause between two writes of the shard's checkpoint when nobody waits for it.
    pub checkpoint_interval: Duration,
    /// Sealed segments that stay open (with their offset index) for cold reads.
    pub cold_segments_max: usize,
    /// Data folders that the shard has: their commit logs share its memory.
    pub data_folders: usize,
    /// Bytes from which on a read of a sealed segment is answered by a range of its file: smaller ones cost less when they
    /// are read and sent. [`usize::MAX`]: never.
    pub range_bytes_min: usize,
    /// When small commits go through the commit log.
    pub commit_log: CommitLogUse,
    /// Bytes of one file of the commit log. The batches in all of them together take at most a quarter of the reactor's
    /// pool, as what is in the commit log alone stays in memory; the files are larger, as each write takes whole blocks.
    pub commit_log_file_bytes: u64,
    /// Files of the commit log.
    pub commit_log_files_max: usize,
    /// Bytes that a log has in the commit log alone before they are brought to its segment.
    pub write_back_bytes: u64,
    /// Breaks durability on purpose, so that a test can show that it notices. Set by no configuration.
    #[doc(hidden)]
    pub break_durability_for_a_test: bool,
}

impl Default for StorageOptions {
    fn default() -> Self {
        Self {
            direct: true,
            tail_cache_bytes_max: 128 << 20,
            pending_bytes_max: 16 << 20,
            commit_bytes_max: COMMIT_BYTES_MAX,
            prewritten_bytes_max: 512 << 20,
            first_room_bytes: 48 << 10,
            spare_bytes_max: 64 << 20,
            recovery_point_bytes_max: 32 << 20,
            no_space_retry: Duration::from_millis(500),
            checkpoint_interval: Duration::from_millis(200),
            cold_segments_max: 128,
            data_folders: 1,
            range_bytes_min: 64 << 10,
            commit_log: CommitLogUse::default(),
            commit_log_file_bytes: 32 << 20,
            commit_log_files_max: 8,
            write_back_bytes: 512 << 10,
            break_durability_for_a_test: false,
        }
    }
}
