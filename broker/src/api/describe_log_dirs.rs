//! DescribeLogDirs (35): the data folders, what is in them and what room they have (KIP-113, KIP-827).
//!
//! Holds: the grouping by folder, the file system's figures. Never touches: files, logs (partitions know their size).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use corelog_net::wire::messages::{
    DescribeLogDirsPartition, DescribeLogDirsRequest, DescribeLogDirsResponse, DescribeLogDirsResult,
    DescribeLogDirsTopic,
};
use corelog_net::wire::{Encoder, ErrorCode, Wire};
use corelog_storage::ids::PartitionIndex;
use nix::sys::statvfs::statvfs;
use tracing::warn;

use super::common::topics_by_name;
use super::{ApiFailure, Operation, RequestContext, Resource, authorize};
use crate::controller::MetadataImage;
use crate::partition::call::{LogSize, PartitionAnswer, PartitionCall, PartitionKey};
use crate::shard::Shard;

/// Answers DescribeLogDirs.
///
/// # Errors
/// None of its own.
pub async fn handle(
    shard: &Rc<Shard>,
    context: &RequestContext,
    request: DescribeLogDirsRequest<'_>,
    out: &mut Encoder,
) -> Result<(), ApiFailure> {
    if !authorize(context, Operation::Describe, Resource::Cluster) {
        let error_code = ErrorCode::ClusterAuthorizationFailed;
        DescribeLogDirsResponse { error_code, ..Default::default() }.encode(out);
        return Ok(());
    }
    let image = shard.image();
    let wanted = wanted(&image, &request, shard.config().node_id);
    let calls = wanted.iter().map(|partition| (partition.key, PartitionCall::LogSize)).collect();
    let sizes = shard.call(calls).await;
    // A partition without a log here is left out: nothing in the answer could say why.
    let held: Vec<(&Wanted<'_>, LogSize)> = wanted
        .iter()
        .zip(sizes)
        .filter_map(|(partition, answer)| match answer {
            PartitionAnswer::LogSize(size) => Some((partition, size)),
            _ => None,
        })
        .collect();

    let config = shard.config();
    let mut dirs = vec![(absolute(&config.data_dir), Room::of(&config.data_dir))];
    for folder in &shard.folders().more {
        let room = if shard.is_online(folder) { Room::of(&folder.path) } else { Room::OFFLINE };
        dirs.push((absolute(&folder.path), room));
    }
    let names: Vec<String> = dirs.iter().map(|(dir, _)| dir.display().to_string()).collect();
    let results = dirs.iter().zip(&names).map(|((dir, room), name)| DescribeLogDirsResult {
        error_code: room.error_code,
        log_dir: name,
        topics: topics_in(dir, &held),
        total_bytes: room.total_bytes,
        usable_bytes: room.usable_bytes,
    });
    DescribeLogDirsResponse { results: results.collect(), ..Default::default() }.encode(out);
    Ok(())
}

/// A partition that the request is about.
#[derive(Debug, PartialEq, Eq)]
struct Wanted<'a> {
    topic: &'a str,
    key: PartitionKey,
}

/// The partitions that this broker holds, and that the request wants: all if it names no topic, by topic and number.
fn wanted<'a>(image: &'a MetadataImage, request: &DescribeLogDirsRequest<'_>, broker: i32) -> Vec<Wanted<'a>> {
    let named: Option<BTreeSet<(&str, i32)>> = request.topics.as_ref().map(|topics| {
        topics.iter().flat_map(|topic| topic.partitions.iter().map(|partition| (topic.topic, *partition))).collect()
    });
    let is_named = |topic: &str, partition| named.as_ref().is_none_or(|named| named.contains(&(topic, partition)));
    let mut wanted = Vec::new();
    for topic in topics_by_name(image) {
        for (index, partition) in (0_i32..).zip(&topic.partitions) {
            if partition.replicas.contains(&broker) && is_named(&topic.name, index) {
                let key = PartitionKey { topic_id: topic.id, partition: PartitionIndex(index) };
                wanted.push(Wanted { topic: &topic.name, key });
            }
        }
    }
    wanted
}

fn topics_in<'a>(dir: &Path, held: &[(&Wanted<'a>, LogSize)]) -> Vec<DescribeLogDirsTopic<'a>> {
    let mut topics: Vec<DescribeLogDirsTopic<'a>> = Vec::new();
    for (partition, size) in held.iter().filter(|(_, size)| absolute(&size.data_dir) == dir) {
        let described = DescribeLogDirsPartition {
            partition_index: partition.key.partition.0,
            partition_size: i64::try_from(size.bytes).unwrap_or(i64::MAX),
            // How far a replica that is being moved between folders lags: none is.
            offset_lag: 0,
            is_future_key: false,
        };
        match topics.last_mut().filter(|topic| topic.name == partition.topic) {
            Some(topic) => topic.partitions.push(described),
            None => topics.push(DescribeLogDirsTopic { name: partition.topic, partitions: vec![described] }),
        }
    }
    topics
}

/// A folder's path from the root; as it was given, if that cannot be told.
fn absolute(dir: &Path) -> PathBuf {
    std::path::absolute(dir).unwrap_or_else(|_| dir.to_path_buf())
}

/// What the file system of a data folder says.
struct Room {
    error_code: ErrorCode,
    total_bytes: i64,
    usable_bytes: i64,
}

impl Room {
    /// Of a folder that has failed.
    const OFFLINE: Self = Self { error_code: ErrorCode::KafkaStorageError, total_bytes: -1, usable_bytes: -1 };

    fn of(dir: &Path) -> Self {
        let bytes = |blocks: u64, block: u64| i64::try_from(blocks.saturating_mul(block)).unwrap_or(i64::MAX);
        match statvfs(dir) {
            Ok(stat) => Self {
                error_code: ErrorCode::None,
                total_bytes: bytes(stat.blocks(), stat.fragment_size()),
                usable_bytes: bytes(stat.blocks_available(), stat.fragment_size()),
            },
            Err(error) => {
                warn!(dir = %dir.display(), %error, "a data folder does not say how much room it has");
                Self::OFFLINE
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::common::testing::{Cluster, id};
    use super::*;
    use corelog_net::wire::messages::DescribableLogDirTopic;

    fn names(wanted: &[Wanted<'_>]) -> Vec<(String, i32)> {
        wanted.iter().map(|w| (w.topic.to_owned(), w.key.partition.0)).collect()
    }

    #[test]
    fn null_topics_mean_every_partition_that_this_broker_holds() {
        let image = Cluster::of_one().topic("b", &[&[1]]).topic("a", &[&[1], &[2], &[2, 1]]).image();
        let all = DescribeLogDirsRequest { topics: None };
        let expected = [("a", 0), ("a", 2), ("b", 0)].map(|(topic, partition)| (topic.to_owned(), partition));
        assert_eq!(names(&wanted(&image, &all, 1)), expected);
        let none = DescribeLogDirsRequest { topics: Some(vec![]) };
        assert_eq!(names(&wanted(&image, &none, 1)), []);
    }

    #[test]
    fn partitions_that_are_not_here_are_left_out() {
        let image = Cluster::of_one().topic("a", &[&[1], &[1]]).image();
        let topic = |topic, partitions: &[i32]| DescribableLogDirTopic { topic, partitions: partitions.to_vec() };
        let request = DescribeLogDirsRequest { topics: Some(vec![topic("a", &[1, 7]), topic("gone", &[0])]) };
        assert_eq!(names(&wanted(&image, &request, 1)), [("a".to_owned(), 1)]);
    }

    #[test]
    fn partitions_are_grouped_by_folder_and_topic() {
        let partition = |topic, n, partition| Wanted {
            topic,
            key: PartitionKey { topic_id: id(n), partition: PartitionIndex(partition) },
        };
        let size = |dir: &str, bytes| LogSize { bytes, data_dir: Path::new(dir).into() };
        let (a0, a1, b0) = (partition("a", 1, 0), partition("a", 1, 1), partition("b", 2, 0));
        let held = [(&a0, size("/x", 10)), (&a1, size("/y", 20)), (&b0, size("/x", 30))];
        let topics = topics_in(Path::new("/x"), &held);
        let seen: Vec<_> =
            topics.iter().map(|t| (t.name, t.partitions.iter().map(|p| p.partition_size).sum())).collect();
        assert_eq!(seen, [("a", 10_i64), ("b", 30)]);
    }

    #[test]
    fn a_folder_that_does_not_exist_is_a_storage_error() {
        let room = Room::of(Path::new("/nowhere/at/all"));
        assert_eq!((room.error_code, room.total_bytes), (ErrorCode::KafkaStorageError, -1));
        let root = Room::of(Path::new("/"));
        assert!(root.total_bytes >= root.usable_bytes && root.usable_bytes >= 0);
    }
}
