//! What a shard's storage has done, in numbers.
//!
//! Holds: the counts. Never touches: who counts, who asks.

/// Counts for the metrics, since the shard's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StorageCounters {
    /// Batches appended.
    pub batches: u64,
    /// Bytes appended.
    pub bytes: u64,
    /// Commits that went to their segments directly, and completed.
    pub commits: u64,
    /// Bytes that they carried, whole blocks.
    pub commit_bytes: u64,
    /// Writes to segments that went beyond the pre-written room, so that the file grew.
    pub commits_growing: u64,
    /// Rolls into a pre-written spare.
    pub rolls_to_spare: u64,
    /// Rolls into an empty file.
    pub rolls_to_empty: u64,
    /// Tail chunks evicted.
    pub chunks_evicted: u64,
    /// Reads served from the tail.
    pub reads_hot: u64,
    /// Reads planned from the disk.
    pub reads_cold: u64,
    /// Bytes that they took from the disk.
    pub bytes_cold: u64,
    /// Reads answered by a range of a file.
    pub reads_ranged: u64,
    /// Bytes of those ranges.
    pub bytes_ranged: u64,
    /// Times a log ran out of disk space.
    pub no_space: u64,
    /// Logs fenced.
    pub fenced: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
    /// Commits that went through the commit log.
    pub logged_commits: u64,
    /// Writes to the commit log.
    pub log_writes: u64,
    /// Bytes that they carried, whole blocks.
    pub log_bytes: u64,
    /// Files of the commit log made.
    pub log_files: u64,
    /// Files of the commit log taken into use again.
    pub log_recycles: u64,
    /// Commits that found no place in the commit log, and went the direct way.
    pub log_no_place: u64,
    /// Writes that brought to segments what the commit log had.
    pub write_backs: u64,
    /// Bytes that they carried, whole blocks.
    pub write_back_bytes: u64,
    /// Segments that retention took for being older than `retention.ms`.
    pub segments_expired: u64,
    /// Segments that retention took for what a log has beyond `retention.bytes`.
    pub segments_over_size: u64,
    /// Segments whose files are gone, also those below a log start that DeleteRecords has moved.
    pub segments_removed: u64,
    /// Bytes of their records.
    pub segment_bytes_removed: u64,
    /// Batches that recovery took from the commit log.
    pub log_replayed: u64,
    /// Rounds of compaction that came to their end.
    pub compactions: u64,
    /// Bytes of the segments that they took.
    pub compaction_bytes_read: u64,
    /// Bytes of those that they put in their place.
    pub compaction_bytes_written: u64,
}
