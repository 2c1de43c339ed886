//! Partitions whose acknowledged records may stay in memory for a while (`corelog.durability=memory`).
//!
//! Holds: which of them gather records before they are written, and until when. Never touches: what an acknowledgement
//! waits for (partition), how a commit is made (commit).
//!
//! Such a partition acknowledges what it has in memory. Its commit begins with the first of these:
//!
//! | bound | from |
//! |---|---|
//! | so many records | `flush.messages` (1, the default: at once) |
//! | so long | `flush.ms`, and [`GATHER_MAX`] at most |
//! | so many bytes | [`GATHER_BYTES`] |
//! | so many partitions that gather | an eighth of the shard's memory |

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use corelog_reactor::{Monotonic, Notify};

use super::Shard;
use crate::partition::Partition;

/// No record waits longer for its write to begin, whatever `flush.ms` says.
const GATHER_MAX: Duration = Duration::from_secs(1);
/// With so many bytes a write is as good as any larger one.
pub const GATHER_BYTES: u64 = 256 << 10;
/// Partitions that gather take up so much of the shard's memory at most: one part in so many.
const MEMORY_PART: usize = 8;

/// The partitions that gather.
#[derive(Default)]
pub(super) struct Relaxed {
    gathering: RefCell<Vec<(Monotonic, Rc<Partition>)>>,
    /// One came that may be due before the others.
    came: Notify,
}

impl Relaxed {
    fn earliest(&self) -> Option<Monotonic> {
        self.gathering.borrow().iter().map(|(due, _)| *due).min()
    }

    fn take_due(&self, now: Monotonic) -> Vec<Rc<Partition>> {
        let due = |(due, _): &mut (Monotonic, Rc<Partition>)| *due <= now;
        self.gathering.borrow_mut().extract_if(.., due).map(|(_, partition)| partition).collect()
    }
}

impl Shard {
    /// Whether what `partition` has in memory may wait for more; then its commit begins in time, without another word.
    pub(super) fn lets_gather(&self, partition: &Rc<Partition>) -> bool {
        let Some(flush) = partition.relaxed().filter(|flush| partition.may_gather(*flush)) else {
            return false;
        };
        if partition.gathers() {
            return true;
        }
        let mut gathering = self.relaxed.gathering.borrow_mut();
        let room = self.reactor.pool().budget() / MEMORY_PART / GATHER_BYTES as usize;
        if gathering.len() >= room {
            return false;
        }
        partition.set_gathers(true);
        gathering.push((self.reactor.now() + flush.within.min(GATHER_MAX), Rc::clone(partition)));
        drop(gathering);
        self.relaxed.came.notify();
        true
    }
}

/// Begins the commits of partitions that have gathered for long enough, until the shard ends.
pub async fn write_in_time(shard: Rc<Shard>) {
    loop {
        let came = shard.relaxed.came.notified();
        match shard.relaxed.earliest() {
            None => came.await,
            Some(due) => {
                let left = due.saturating_since(shard.reactor.now());
                if !left.is_zero() {
                    let _ = shard.reactor.within(left, came).await;
                }
            }
        }
        for partition in shard.relaxed.take_due(shard.reactor.now()) {
            partition.set_gathers(false);
            if partition.log().has_pending() {
                shard.commit_soon(&partition);
            }
        }
    }
}
