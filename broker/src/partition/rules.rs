//! A topic's configuration, as the checks and the log want it.
//!
//! Holds: the translation from the topic's properties. Never touches: batches, files.

use corelog_storage::batch::TargetCodec;
use corelog_storage::batch::validate::{DECOMPRESSED_BYTES_MAX_DEFAULT, ValidationRules};
use corelog_storage::batch::{AppendOrigin, TimestampType as BatchTimestampType};
use corelog_storage::log::LogConfig;

use crate::config::{BrokerConfig, TimestampType, TopicCompression, TopicConfig};

/// What a client's batch must keep to.
pub fn validation_rules(config: &TopicConfig) -> ValidationRules {
    ValidationRules {
        origin: AppendOrigin::Client,
        batch_bytes_max: config.message_bytes_max as usize,
        segment_bytes_max: config.segment_bytes as usize,
        timestamp_type: timestamp_type(config),
        timestamp_before_max_ms: i64::try_from(config.timestamp_before_ms_max).unwrap_or(i64::MAX),
        timestamp_after_max_ms: i64::try_from(config.timestamp_after_ms_max).unwrap_or(i64::MAX),
        is_compacted: config.cleanup_policy.compact,
        compression: target_codec(config.compression),
        decompressed_bytes_max: DECOMPRESSED_BYTES_MAX_DEFAULT,
    }
}

/// What the log is told.
pub fn log_config(config: &TopicConfig, broker: &BrokerConfig) -> LogConfig {
    // Without `delete` only what lies below the log start goes, whatever the limits say.
    let (retention_ms, retention_bytes) =
        if config.cleanup_policy.delete { (config.retention_ms, config.retention_bytes) } else { (None, None) };
    LogConfig {
        segment_bytes_max: config.segment_bytes,
        segment_ms_max: i64::try_from(config.segment_ms_effective()).unwrap_or(i64::MAX),
        segment_jitter_ms_max: i64::try_from(config.segment_jitter_ms).unwrap_or(i64::MAX),
        index_bytes_max: config.segment_index_bytes,
        index_interval_bytes: config.index_interval_bytes,
        message_bytes_max: config.message_bytes_max,
        timestamp_type: timestamp_type(config),
        producer_idle_ms_max: i64::try_from(broker.producer_id_expiration.as_millis()).unwrap_or(i64::MAX),
        retention_ms_max: retention_ms.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX)),
        retention_bytes_max: retention_bytes,
        file_delete_delay_ms: config.file_delete_delay_ms,
    }
}

fn timestamp_type(config: &TopicConfig) -> BatchTimestampType {
    match config.timestamp_type {
        TimestampType::CreateTime => BatchTimestampType::CreateTime,
        TimestampType::LogAppendTime => BatchTimestampType::LogAppendTime,
    }
}

/// `None` keeps what the producer chose.
fn target_codec(compression: TopicCompression) -> Option<TargetCodec> {
    Some(match compression {
        TopicCompression::Producer => return None,
        TopicCompression::Uncompressed => TargetCodec::None,
        TopicCompression::Gzip { level } => TargetCodec::Gzip { level },
        TopicCompression::Snappy => TargetCodec::Snappy,
        TopicCompression::Lz4 { .. } => TargetCodec::Lz4,
        TopicCompression::Zstd { level } => TargetCodec::Zstd { level },
    })
}
