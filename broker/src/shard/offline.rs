//! Partitions of this shard that could not be opened.
//!
//! Holds: which they are, and the task that tries those again that found no space or no handle. Never touches: how a
//! partition is opened ([`super::apply`]).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use corelog_reactor::Notify;
use rustc_hash::FxHashMap;

use super::{Shard, apply};
use crate::partition::call::PartitionKey;

/// Why a partition is offline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// There was no space, no file handle or no memory: it is tried again by itself.
    Shortage,
    /// Its log is damaged, or the disk failed: that takes a restart, or more.
    Broken,
    /// Its data folder is offline: that was told of the folder.
    Folder,
}

/// The offline partitions of a shard. Bounded: they are partitions.
#[derive(Default)]
pub struct Offline {
    partitions: RefCell<FxHashMap<PartitionKey, Reason>>,
    is_retrying: Cell<bool>,
    /// Partitions are opened and removed by an image being applied, or by the retry: never by both at once.
    is_busy: Cell<bool>,
    freed: Notify,
}

/// Held while partitions are opened and removed.
pub struct Turn<'a>(&'a Offline);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.is_busy.set(false);
        self.0.freed.notify();
    }
}

impl Offline {
    /// Waits for the other one to finish. Images are applied one at a time, so there is one other at most.
    pub async fn turn(&self) -> Turn<'_> {
        while self.is_busy.get() {
            self.freed.notified().await;
        }
        self.is_busy.set(true);
        Turn(self)
    }

    /// Whether this one is offline.
    pub fn contains(&self, key: PartitionKey) -> bool {
        self.partitions.borrow().contains_key(&key)
    }

    /// Why this one is offline, if it is.
    pub fn reason(&self, key: PartitionKey) -> Option<Reason> {
        self.partitions.borrow().get(&key).copied()
    }

    /// It is open, or gone. Returns whether it was offline.
    pub fn remove(&self, key: PartitionKey) -> bool {
        self.partitions.borrow_mut().remove(&key).is_some()
    }

    /// Forgets those that are gone, and tells which they were.
    pub fn take(&self, is_gone: impl Fn(PartitionKey) -> bool) -> Vec<PartitionKey> {
        self.partitions.borrow_mut().extract_if(|key, _| is_gone(*key)).map(|(key, _)| key).collect()
    }

    fn waiting(&self) -> Vec<PartitionKey> {
        let partitions = self.partitions.borrow();
        partitions.iter().filter(|(_, reason)| **reason == Reason::Shortage).map(|(key, _)| *key).collect()
    }
}

/// A partition could not be opened.
pub fn set_offline(shard: &Rc<Shard>, key: PartitionKey, reason: Reason) {
    let offline = &shard.offline;
    offline.partitions.borrow_mut().insert(key, reason);
    if reason == Reason::Shortage && !offline.is_retrying.replace(true) {
        // Without a task now, the next partition that goes offline starts one.
        offline.is_retrying.set(shard.spawn(retry(Rc::clone(shard))));
    }
}

/// Opens what found no space or no handle, again and again until there is some.
async fn retry(shard: Rc<Shard>) {
    let offline = &shard.offline;
    while !offline.waiting().is_empty() {
        shard.reactor().sleep(shard.storage().options().no_space_retry).await;
        let turn = offline.turn().await;
        apply::open_again(&shard, offline.waiting()).await;
        drop(turn);
    }
    offline.is_retrying.set(false);
}
