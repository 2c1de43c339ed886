//! Group commit: one write at a time for each partition, with everything that has arrived.
//!
//! Holds: which partitions of this shard have bytes to write, and the task that writes them. Never touches: how a log
//! writes (storage), who waits (partition).

use std::rc::Rc;

use super::Shard;
use crate::partition::Partition;

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
            self.spawn(async move {
                while partition.log().needs_commit() {
                    let result = partition.log().commit().await;
                    partition.committed(&shard, result);
                }
                partition.end_commit();
            });
        }
        true
    }
}
