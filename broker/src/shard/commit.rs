//! Group commit: one write at a time for each partition, with everything that has arrived.
//!
//! Holds: which partitions of this shard have bytes to write, and the tasks that write them. Never touches: how a log
//! writes (storage), who waits (partition).

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future as _;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use corelog_net::wire::ErrorCode;
use corelog_storage::log::CommitError;

use super::Shard;
use super::turns::{Turn, Turns};
use crate::partition::Partition;

/// How soon a commit that is held up looks again.
const HELD_UP_RETRY: Duration = Duration::from_millis(1);
/// A commit of at least so many bytes is a large one,
const LARGE_BYTES: u64 = 64 << 10;
/// and this many of those are enough for any disk: with more of them under way each carries less, and costs as much.
const LARGE_AT_ONCE: u64 = 4;
/// Tasks that may rest until there is something to commit; about 1 KiB each.
const IDLE_MAX: usize = 64;

impl Shard {
    /// `partition` got bytes that are not durable yet. Its commit starts at the end of this turn, unless one is in flight:
    /// then it follows that one. Or later, if what it acknowledges may be in memory only.
    pub fn mark_dirty(&self, partition: &Rc<Partition>) {
        if !self.lets_gather(partition) {
            self.commit_soon(partition);
        }
    }

    /// The same, and not later.
    pub fn commit_soon(&self, partition: &Rc<Partition>) {
        if partition.begin_commit() {
            self.dirty.borrow_mut().push(Rc::clone(partition));
        }
    }

    /// Starts the commits of this turn. Returns whether there were any.
    pub(super) fn start_commits(self: &Rc<Self>) -> bool {
        if self.dirty.borrow().is_empty() {
            return false;
        }
        let mut dirty = self.dirty.take();
        for partition in dirty.drain(..) {
            self.committers.handed.borrow_mut().push_back(partition);
            if let Some(idle) = self.committers.idle.borrow_mut().pop() {
                idle.wake();
                continue;
            }
            if self.reactor.spawn(work(Rc::clone(self))).is_err() {
                // No task now: the partition stays dirty, and the next turn tries again.
                self.counters.tasks_full.increment();
                let left = self.committers.handed.borrow_mut().pop_back();
                self.dirty.borrow_mut().extend(left);
            }
        }
        // The list's memory serves the next turn.
        let mut now = self.dirty.borrow_mut();
        dirty.append(&mut now);
        *now = dirty;
        true
    }
}

/// The tasks that commit, and what they are given. Each has one partition in work, for a burst of commits; then it takes
/// the next, or rests: a commit must not cost the making of a task.
pub(super) struct Committers {
    handed: RefCell<VecDeque<Rc<Partition>>>,
    /// Of those at rest, at most [`IDLE_MAX`].
    idle: RefCell<Vec<Waker>>,
    large: Turns,
}

impl Default for Committers {
    fn default() -> Self {
        Self { handed: RefCell::default(), idle: RefCell::default(), large: Turns::new(LARGE_AT_ONCE) }
    }
}

async fn work(shard: Rc<Shard>) {
    while let Some(partition) = next(&shard).await {
        burst(&shard, &partition).await;
    }
}

/// The next partition to commit, waited for; `None`: enough others wait.
async fn next(shard: &Shard) -> Option<Rc<Partition>> {
    std::future::poll_fn(|context| {
        if let Some(partition) = shard.committers.handed.borrow_mut().pop_front() {
            return Poll::Ready(Some(partition));
        }
        let mut idle = shard.committers.idle.borrow_mut();
        if idle.len() >= IDLE_MAX {
            return Poll::Ready(None);
        }
        // Woken for something that another one took: its waker was taken off the list for that.
        idle.push(context.waker().clone());
        Poll::Pending
    })
    .await
}

/// Commits until the log has caught up.
async fn burst(shard: &Rc<Shard>, partition: &Rc<Partition>) {
    while partition.log().has_pending() {
        if !partition.log().needs_commit() {
            // Records are being deleted, or the log is being truncated: that ends soon, and nobody else would start this
            // commit then.
            shard.reactor().sleep(HELD_UP_RETRY).await;
            continue;
        }
        let is_large = partition.log().pending_bytes() >= LARGE_BYTES;
        let turn = if is_large { Some(shard.committers.large.next().await) } else { None };
        let result = commit(shard, partition, turn).await;
        partition.committed(shard, result);
        if partition.log().has_pending() && shard.lets_gather(partition) {
            break;
        }
    }
    partition.end_commit();
    // A change of the log commits what is pending itself.
    partition.catch_up(shard);
}

/// One commit. While the disk is full it goes on trying, and those who wait for it are told at once that they can't have
/// their acknowledgement: what they sent may still become durable, as after any error that a client retries.
async fn commit(shard: &Rc<Shard>, partition: &Rc<Partition>, mut turn: Option<Turn<'_>>) -> Result<(), CommitError> {
    let mut commit = pin!(partition.log().commit());
    std::future::poll_fn(|context| {
        let polled = commit.as_mut().poll(context);
        if polled.is_pending() && partition.log().is_out_of_space() {
            partition.refuse_waiting(shard, ErrorCode::KafkaStorageError);
            // Others may have room in their files, or must be refused too.
            turn = None;
        }
        polled
    })
    .await
}
