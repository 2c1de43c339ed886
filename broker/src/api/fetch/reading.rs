//! Reading the partitions of a fetch: all owners at once, within the request's limits, waiting while there is too little.
//!
//! Holds: who gets how much of an answer, and when it is enough. Never touches: logs (through `partition/read.rs` on their
//! owners), sessions, the wire.
//!
//! ```text
//!   what is in memory, from all owners ──> shared out ──> enough, with what is on disk? ──> disk ──> enough? ──> done
//!            ^                                                    │ no                                  │ no
//!            └──────────── any watch, or the deadline <───────────┴─────────────────────────────────────┘
//! ```
//!
//! Bytes are shared out in the request's order, as in Kafka (`ReplicaManager.readFromLog`): each partition may fill what
//! those before it left, and its own limit; the first one that has anything brings a batch even if that is larger
//! (KIP-74). The disk is asked only for what was given a share, so that it reads about what the answer carries.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use corelog_net::wire::ErrorCode;
use corelog_storage::ids::Offset;

use super::breathe;
use crate::partition::read::{PartitionData, PartitionRead};
use crate::partition::watch::WatchEntry;
use crate::shard::Shard;
use crate::shard::ask::{AskFuture, Woken, any_answer};
use crate::shard::by_owner::{ByOwner, OwnedParts, Parts};
use crate::shard::mail::{Answer, Ask};

/// What a fetch request says of the whole answer.
pub(super) struct Limits {
    pub(super) bytes_max: usize,
    pub(super) bytes_min: usize,
    pub(super) wait_max: Duration,
    pub(super) read_committed: bool,
    /// Checksums of what comes from the disk are checked: always for followers.
    pub(super) checks_crc: bool,
    /// The whole limit is below zero: Kafka fails such reads with an unexpected error.
    pub(super) is_negative: bool,
}

/// Where a partition of the request is read, or why it isn't.
pub(super) enum Target {
    /// Read it so.
    Read(PartitionRead),
    /// The client may not read it, or it is not there.
    Unread(ErrorCode),
    /// What is asked for can't be read.
    Failed(ErrorCode),
}

/// What the answer still has room for.
struct Room {
    left: usize,
    /// Nothing has been found yet: whatever comes first comes whole.
    first: bool,
}

impl Room {
    /// The room of a whole answer.
    fn new(bytes_max: usize) -> Room {
        Room { left: bytes_max, first: true }
    }

    /// The read of a partition within its share of what is left; `None`: there is nothing left for it.
    fn share(&self, read: &PartitionRead) -> Option<PartitionRead> {
        let bytes_max = read.bytes_max.min(self.left);
        (self.first || bytes_max > 0).then_some(PartitionRead { bytes_max, at_least_one: self.first, ..*read })
    }

    /// Whether `bytes` may be added by a partition with this limit of its own.
    fn has(&self, bytes: usize, own: usize) -> bool {
        self.first || bytes <= self.left.min(own)
    }

    /// Adds them.
    fn take(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes);
        self.first &= bytes == 0;
    }
}

/// Reads, and waits for more while there is too little and time left.
/// Not for longer than until `hung_up` completes: what there is then must do.
pub(super) async fn read_until_enough(
    shard: &Rc<Shard>,
    targets: &[Target],
    limits: &Limits,
    mut hung_up: Pin<&mut impl Future<Output = ()>>,
) -> Parts<PartitionData> {
    let mut deadline = shard.reactor().now() + limits.wait_max;
    loop {
        let mut results = read_memory(shard, targets, limits.bytes_max).await;
        // As Kafka: an error or a diverging epoch is told at once.
        let told = results.iter().any(|data| data.error.is_error() || data.diverging.is_some());
        let is_final = |now| told || targets.is_empty() || now >= deadline;
        let expected = share_out(&mut results, targets, limits.bytes_max, |_, _, _| {});
        if expected >= limits.bytes_min || is_final(shard.reactor().now()) {
            read_disk(shard, &mut results, targets, limits.bytes_max).await;
            trim(&mut results, targets, limits.bytes_max);
            let bytes: usize = results.iter().map(|data| data.bytes).sum();
            let told = results.iter().any(|data| data.error.is_error() || data.come_again || data.is_behind);
            // As Kafka, too: who reads an older segment is far from the end that waiting is for.
            if bytes >= limits.bytes_min || told || is_final(shard.reactor().now()) {
                return results;
            }
        }
        let mut watches = watch(shard, targets, &results, limits.read_committed);
        drop(results);
        let time_up = shard.reactor().sleep_until(deadline);
        match any_answer(&mut watches, Some(time_up), hung_up.as_mut()).await {
            Woken::Answered | Woken::TimeUp => {}
            Woken::HungUp => deadline = shard.reactor().now(),
        }
    }
}

/// Asks every target's owner for what it has in memory, all owners at once.
async fn read_memory(shard: &Rc<Shard>, targets: &[Target], bytes_max: usize) -> Parts<PartitionData> {
    let mut results: Parts<PartitionData> = Parts::with_capacity(targets.len());
    let mut by_owner = ByOwner::new(shard.shards(), targets.len());
    for (position, target) in targets.iter().enumerate() {
        results.push(match target {
            Target::Unread(code) => PartitionData::unread(*code),
            Target::Failed(code) => PartitionData::failed(*code),
            Target::Read(read) => {
                by_owner.push(shard.owner(read.key), position, *read);
                // What it is if its owner is stopping.
                PartitionData::failed(ErrorCode::NotLeaderOrFollower)
            }
        });
        breathe(shard, results.len()).await;
    }
    ask(shard, by_owner, &mut results, |reads| Ask::Read { reads, bytes_max }).await;
    results
}

/// Reads from the disk what there is room for, between what is in memory; and once more from memory what stands astride
/// the limit, cut to what is left.
async fn read_disk(shard: &Rc<Shard>, results: &mut [PartitionData], targets: &[Target], bytes_max: usize) {
    // Once, as a rule. But what is shared out is an estimate from above: what it left over goes to those behind, as long as
    // that brings something. (At the end of a sealed segment there may be much less than the estimate.)
    let mut before = None;
    loop {
        let mut by_owner = ByOwner::new(shard.shards(), 1);
        share_out(results, targets, bytes_max, |position, read, data| {
            data.bytes_waiting = 0;
            by_owner.push(shard.owner(read.key), position, read);
        });
        if by_owner.is_empty() {
            return;
        }
        ask(shard, by_owner, results, Ask::ReadDisk).await;
        let bytes: usize = results.iter().map(|data| data.bytes).sum();
        if bytes > 0 && before == Some(bytes) {
            return;
        }
        before = Some(bytes);
    }
}

/// Shares the answer out in the request's order and returns about how many bytes it will carry. `again` gets each
/// partition that must be read once more for that, and how.
fn share_out(
    results: &mut [PartitionData],
    targets: &[Target],
    bytes_max: usize,
    mut again: impl FnMut(usize, PartitionRead, &mut PartitionData),
) -> usize {
    let (mut room, mut bytes) = (Room::new(bytes_max), 0);
    for (position, (data, target)) in results.iter_mut().zip(targets).enumerate() {
        let Target::Read(read) = target else { continue };
        let there_is = data.bytes.max(data.bytes_waiting);
        let taken = if data.bytes > 0 && room.has(data.bytes, read.bytes_max) {
            data.bytes
        } else if there_is > 0
            && let Some(share) = room.share(read)
            && data.room_refused.is_none_or(|refused| share.at_least_one || share.bytes_max > refused)
        {
            again(position, share, data);
            there_is.min(share.bytes_max.max(1))
        } else {
            continue;
        };
        room.take(taken);
        bytes += taken;
    }
    bytes
}

/// Asks the owners and puts their answers into their places.
async fn ask(
    shard: &Rc<Shard>,
    by_owner: ByOwner<PartitionRead>,
    results: &mut [PartitionData],
    ask: impl Fn(Parts<PartitionRead>) -> Ask,
) {
    let send = |group: OwnedParts<_>| (group.positions, AskFuture::send(shard, group.owner, ask(group.parts)));
    let asked: Parts<_> = by_owner.groups().map(send).collect();
    for (positions, answer) in asked {
        if let Answer::Read(read) = answer.await {
            for (position, data) in positions.into_iter().zip(read) {
                results[position] = data;
            }
        }
    }
}

/// Keeps the answer within `bytes_max` and each partition within its own limit, in the request's order. Only the very
/// first records come whole even if they are larger (KIP-74).
fn trim(results: &mut [PartitionData], targets: &[Target], bytes_max: usize) {
    let mut room = Room::new(bytes_max);
    for (data, target) in results.iter_mut().zip(targets) {
        let own = match target {
            Target::Read(read) => read.bytes_max,
            Target::Unread(_) | Target::Failed(_) => 0,
        };
        if !room.has(data.bytes, own) {
            data.without_records();
        }
        room.take(data.bytes);
    }
}

/// Watches every readable target on its owner.
fn watch(shard: &Rc<Shard>, targets: &[Target], results: &[PartitionData], read_committed: bool) -> Vec<AskFuture> {
    let mut by_owner = ByOwner::new(shard.shards(), targets.len());
    for (position, (target, data)) in targets.iter().zip(results).enumerate() {
        if let Target::Read(read) = target {
            let seen = Offset(if read_committed { data.last_stable } else { data.high_watermark });
            by_owner.push(shard.owner(read.key), position, WatchEntry { key: read.key, seen, read_committed });
        }
    }
    by_owner.groups().map(|group| AskFuture::send(shard, group.owner, Ask::Watch(group.parts))).collect()
}

#[cfg(test)]
mod tests {
    use corelog_storage::ids::{PartitionIndex, TopicId};

    use super::*;
    use crate::partition::call::PartitionKey;

    fn data(bytes: usize) -> PartitionData {
        PartitionData { bytes, ..PartitionData::failed(ErrorCode::None) }
    }

    fn on_disk(bytes: usize) -> PartitionData {
        PartitionData { bytes_waiting: bytes, ..PartitionData::failed(ErrorCode::None) }
    }

    fn targets(limits: &[usize]) -> Vec<Target> {
        let key = PartitionKey { topic_id: TopicId([0; 16]), partition: PartitionIndex(0) };
        let read = |&bytes_max: &usize| PartitionRead {
            key,
            current_epoch: None,
            last_fetched_epoch: None,
            from: Offset::ZERO,
            bytes_max,
            at_least_one: true,
            read_committed: false,
            checks_crc: false,
        };
        limits.iter().map(|limit| Target::Read(read(limit))).collect()
    }

    /// (place, limit, first) of each read that sharing out asks for, and the bytes expected.
    fn shares(results: &mut [PartitionData], limits: &[usize], bytes_max: usize) -> (Vec<(usize, usize, bool)>, usize) {
        let mut shares = Vec::new();
        let bytes = share_out(results, &targets(limits), bytes_max, |position, read, _| {
            shares.push((position, read.bytes_max, read.at_least_one));
        });
        (shares, bytes)
    }

    #[test]
    fn the_first_records_come_whole_and_the_rest_only_within_the_limits() {
        let mut results = [data(0), data(500), data(40), data(70), data(50)];
        trim(&mut results, &targets(&[600; 5]), 600);
        assert_eq!(results.map(|data| data.bytes), [0, 500, 40, 0, 50]);

        let mut results = [data(500), data(1)];
        trim(&mut results, &targets(&[100; 2]), 100);
        assert_eq!(results.map(|data| data.bytes), [500, 0]);

        // A later partition whose first batch is larger than its own limit has to wait until it comes first.
        let mut results = [data(50), data(60), data(40)];
        trim(&mut results, &targets(&[40, 40, 40]), 1000);
        assert_eq!(results.map(|data| data.bytes), [50, 0, 40]);
    }

    #[test]
    fn the_disk_is_asked_in_the_requests_order_and_only_for_what_is_left() {
        let mut results = [data(0), on_disk(100), on_disk(100), data(30), on_disk(100), on_disk(100)];
        let (asked, bytes) = shares(&mut results, &[100; 6], 250);
        assert_eq!(asked, [(1, 100, true), (2, 100, false), (4, 20, false)]);
        assert_eq!(bytes, 250);
    }

    #[test]
    fn a_partition_with_a_smaller_limit_of_its_own_leaves_the_rest_to_others() {
        let mut results = [on_disk(10), on_disk(1000), on_disk(1000)];
        let (asked, bytes) = shares(&mut results, &[10, 60, 500], 300);
        assert_eq!(asked, [(0, 10, true), (1, 60, false), (2, 230, false)]);
        assert_eq!(bytes, 300);
    }

    #[test]
    fn the_first_with_anything_is_read_even_if_nothing_may_be_returned() {
        let mut results = [data(0), on_disk(100), on_disk(100)];
        assert_eq!(shares(&mut results, &[0, 0, 0], 0).0, [(1, 0, true)]);
    }

    #[test]
    fn memory_astride_the_limit_is_read_again_within_it() {
        let mut results = [data(80), data(80), data(80)];
        let (asked, bytes) = shares(&mut results, &[80; 3], 100);
        assert_eq!(asked, [(1, 20, false)]);
        assert_eq!(bytes, 100);
    }

    #[test]
    fn memory_alone_within_the_limits_is_not_read_again() {
        let mut results = [data(150), data(50), data(0)];
        assert_eq!(shares(&mut results, &[100, 100, 100], 200), (Vec::new(), 200));
    }

    #[test]
    fn what_did_not_fit_is_read_again_only_with_more_room() {
        let refused = |room| PartitionData { room_refused: Some(room), ..on_disk(usize::MAX) };
        let mut results = [data(50), refused(60), refused(30), on_disk(10)];
        let (asked, bytes) = shares(&mut results, &[80; 4], 100);
        assert_eq!(asked, [(2, 50, false)], "50 are left");
        assert_eq!(bytes, 100);
    }
}
