//! DescribeLogDirs (35): what lies in a broker's data folders (KIP-113).

use crate::wire::ErrorCode;
use crate::wire::message::message;

message! {
    /// Asks for data folders.
    pub struct DescribeLogDirsRequest<'a> {
        /// The topics; null for all of them.
        topics [0+]: Option<Vec<DescribableLogDirTopic<'a>>> = Some(Vec::new()),
    }
}

message! {
    /// A topic.
    pub struct DescribableLogDirTopic<'a> {
        /// Its name.
        topic [0+]: &'a str,
        /// Indexes of the partitions.
        partitions [0+]: Vec<i32>,
    }
}

message! {
    /// Data folders.
    pub struct DescribeLogDirsResponse<'a> {
        /// Milliseconds the client has to wait before its next request.
        throttle_time_ms [0+]: i32,
        /// An error of the request as a whole (KIP-784).
        error_code [3+]: ErrorCode,
        /// The folders.
        results [0+]: Vec<DescribeLogDirsResult<'a>>,
    }
}

message! {
    /// A data folder.
    pub struct DescribeLogDirsResult<'a> {
        /// Whether it can be used.
        error_code [0+]: ErrorCode,
        /// Its absolute path.
        log_dir [0+]: &'a str,
        /// The topics in it.
        topics [0+]: Vec<DescribeLogDirsTopic<'a>>,
        /// Bytes of the volume, or -1 (KIP-827).
        total_bytes [4+]: i64 = -1,
        /// Bytes of it that are free for us, or -1.
        usable_bytes [4+]: i64 = -1,
    }
}

message! {
    /// A topic.
    pub struct DescribeLogDirsTopic<'a> {
        /// Its name.
        name [0+]: &'a str,
        /// The partitions.
        partitions [0+]: Vec<DescribeLogDirsPartition>,
    }
}

message! {
    /// A partition.
    #[derive(Copy)]
    pub struct DescribeLogDirsPartition {
        /// Its index in the topic.
        partition_index [0+]: i32,
        /// Bytes of its segments.
        partition_size [0+]: i64,
        /// How far its log end is behind the high watermark, or, for a log that is moving in, behind the present one.
        offset_lag [0+]: i64,
        /// Whether it is a log that is moving in.
        is_future_key [0+]: bool,
    }
}
