//! Group commit: one write at a time for each partition, with everything that has arrived.
//!
//! Holds: which partitions of this shard have bytes to write, and the task that writes them. Never touches: how a log
//! writes (storage), who waits (partition).

use std::future::Future as _;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use corelog_storage::log::CommitError;

use super::Shard;
use crate::partition::Partition;

/// How soon a commit that is held up looks again.
const HELD_UP_RETRY: Duration = Duration::from_millis(1);

impl Shard {
    /// `partition` got bytes that are not durable yet. Its commit starts at the end of this turn, unless one is in flight:
    /// then it follows that one.
    pub fn mark_dirty(&self, partition: &Rc<Partition>) {
        if partition.begin_commit() {
            self.dirty.borrow_mut().push(Rc::clone(partition));
        }
    }

    /// Starts the commits of this turn. Returns whether there were any.
    pub(super) fn start_commits(self: &Rc<Self>) -> bool {
        if self.dirty.borrow().is_empty() {
            return false;
        }
        for partition in self.dirty.take() {
            // One task for a burst of commits, not for each: it ends when the log has caught up.
            let shard = Rc::clone(self);
            let committed = Rc::clone(&partition);
            let started = self.reactor.spawn(async move {
                while partition.log().has_pending() {
                    if !partition.log().needs_commit() {
                        // Records are being deleted, or the log is being truncated: that ends soon, and nobody else would
                        // start this commit then.
                        shard.reactor().sleep(HELD_UP_RETRY).await;
                        continue;
                    }
                    let result = commit(&shard, &partition).await;
                    partition.committed(&shard, result);
                }
                partition.end_commit();
                // A change of the log commits what is pending itself.
                partition.catch_up(&shard);
            });
            if started.is_err() {
                // No task now: the partition stays dirty, and the next turn tries again.
                self.counters.tasks_full.increment();
                self.dirty.borrow_mut().push(committed);
            }
        }
        true
    }
}

/// One commit. While the disk is full it goes on trying, and those who wait for it are told at once that they can't have
/// their acknowledgement: what they sent may still become durable, as after any error that a client retries.
async fn commit(shard: &Rc<Shard>, partition: &Rc<Partition>) -> Result<(), CommitError> {
    let mut commit = pin!(partition.log().commit());
    std::future::poll_fn(|context| {
        let polled = commit.as_mut().poll(context);
        if polled.is_pending() && partition.log().is_out_of_space() {
            partition.out_of_space(shard);
        }
        polled
    })
    .await
}
