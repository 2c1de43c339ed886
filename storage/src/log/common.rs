//! What the logs of one shard share, in whatever data folder they are: memory and file handles.
//!
//! Holds: the tail cache's budget, the blocks kept aside, the open sealed segments, the numbers of opened logs, how long
//! commits take.
//! Never touches: what a log holds; anything that belongs to a data folder (`env`).

use super::cold_segments::ColdSegments;
use super::env::StorageEnv;
use super::foreground::{Beside, Foreground};
use crate::disk::BLOCK_BYTES;
use corelog_reactor::{AlignedBuf, PoolExhausted, Reactor};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Weak;

/// Logs looked at for one chunk to evict; the next append goes on from there.
const EVICTION_TRIES_MAX: usize = 16;
/// Blocks kept aside for commit writes.
const BLOCKS_KEPT: usize = 16;
/// This part of the pool is for appends alone: reads leave it free, however slowly those who asked for them take them.
///
/// ```text
///   the pool                                                                    256 MiB by default
///     tail cache, at most half                                                  128
///     for appends alone: PART, when all else is in use                            16
///     left free by cold reads, for reads of the tail and for frames              16
///     cold reads, tail chunks that only readers still hold, frames, the rest     96
/// ```
///
/// A read of the tail takes no memory, but keeps a chunk alive that the tail would let go of: such reads wait once only
/// the part for appends is free. So at any time an append finds that part, and every chunk that is durable and not held.
const RESERVE_PART: usize = 16;

/// What a log could let go of.
pub(crate) enum Evicted {
    /// Nothing: not durable yet, or in use.
    Nothing,
    /// A chunk of so many bytes.
    Chunk(usize),
    /// So many bytes of its last chunk, which it still holds.
    Part(usize),
}

/// Who holds tail chunks.
pub(crate) trait TailOwner {
    /// Lets go of the oldest durable chunk, or shrinks an idle one.
    fn evict_one(&self) -> Evicted;
}

#[derive(Default)]
struct TailCache {
    bytes: usize,
    /// One entry per chunk, oldest first: "this log has one more chunk".
    order: VecDeque<Weak<dyn TailOwner>>,
}

/// One for each shard: the storage of each of its data folders has a handle to it.
pub(super) struct Common {
    tails: RefCell<TailCache>,
    cold: ColdSegments,
    blocks: RefCell<Vec<AlignedBuf>>,
    next_log: Cell<u64>,
    foreground: Foreground,
}

impl Common {
    pub(super) fn new(reactor: &Reactor, cold_segments_max: usize) -> Self {
        let first_block = reactor.pool().take(BLOCK_BYTES as usize).ok();
        Self {
            tails: RefCell::default(),
            cold: ColdSegments::new(cold_segments_max),
            blocks: RefCell::new(first_block.into_iter().collect()),
            next_log: Cell::new(1),
            foreground: Foreground::default(),
        }
    }
}

impl StorageEnv {
    /// The shard's commits beside compaction, of all data folders: by them it goes faster or slower.
    #[must_use]
    pub fn commits_beside_compaction(&self) -> Beside {
        self.foreground().in_all()
    }

    /// How long the shard's commits take.
    pub(super) fn foreground(&self) -> &Foreground {
        &self.common().foreground
    }

    /// Bytes of tail chunks in memory, of all data folders.
    #[must_use]
    pub fn tail_bytes(&self) -> usize {
        self.common().tails.borrow().bytes
    }

    pub(crate) fn cold(&self) -> &ColdSegments {
        &self.common().cold
    }

    /// A number for a log that was opened; no other log of this shard has had it.
    pub(crate) fn next_log(&self) -> u64 {
        self.common().next_log.replace(self.common().next_log.get() + 1)
    }

    /// Bytes of the pool that are for appends alone.
    #[must_use]
    pub fn reserve_bytes(&self) -> usize {
        self.reactor().pool().budget() / RESERVE_PART
    }

    /// Whether only what is for appends is left: nothing else may come to hold memory now.
    pub(crate) fn is_short_of_memory(&self) -> bool {
        self.reactor().pool().free() < self.reserve_bytes()
    }

    /// Memory for a tail chunk of `owner`. Evicts older chunks, of whatever log, to stay within the budget. The caller
    /// must not have its own state borrowed.
    pub(crate) fn take_chunk(&self, bytes: usize, owner: Weak<dyn TailOwner>) -> Result<AlignedBuf, PoolExhausted> {
        let budget = self.options().tail_cache_bytes_max;
        if self.tail_bytes() + bytes > budget {
            self.evict((self.tail_bytes() + bytes) - budget);
        }
        let pool = self.reactor().pool();
        let buf = match pool.take(bytes) {
            Ok(buf) => buf,
            Err(_) => {
                self.evict(bytes);
                pool.take(bytes)?
            }
        };
        let mut tails = self.common().tails.borrow_mut();
        tails.bytes += bytes;
        tails.order.push_back(owner);
        Ok(buf)
    }

    /// Counts a chunk that was made before its log was there.
    pub(crate) fn adopt_chunk(&self, bytes: usize, owner: Weak<dyn TailOwner>) {
        let mut tails = self.common().tails.borrow_mut();
        tails.bytes += bytes;
        tails.order.push_back(owner);
    }

    /// Tail chunks of `bytes` have been let go of.
    pub(crate) fn give_chunk_bytes(&self, bytes: usize) {
        let mut tails = self.common().tails.borrow_mut();
        assert!(tails.bytes >= bytes, "{bytes} bytes given back of {} in the tail cache", tails.bytes);
        tails.bytes -= bytes;
    }

    fn evict(&self, want: usize) {
        let mut freed = 0;
        for _ in 0..EVICTION_TRIES_MAX {
            if freed >= want {
                return;
            }
            let oldest = self.common().tails.borrow_mut().order.pop_front();
            let Some(oldest) = oldest else { return };
            // Logs that are gone have given their bytes back themselves.
            let Some(owner) = oldest.upgrade() else {
                continue;
            };
            match owner.evict_one() {
                Evicted::Chunk(bytes) => freed += bytes,
                Evicted::Part(bytes) => {
                    freed += bytes;
                    self.common().tails.borrow_mut().order.push_back(oldest);
                }
                Evicted::Nothing => {
                    self.common().tails.borrow_mut().order.push_back(oldest);
                    continue;
                }
            }
            self.count(|c| c.chunks_evicted += 1);
        }
    }

    /// One block for the end of a commit write. Some are kept aside, so that an exhausted pool cannot stop the very writes
    /// that would free memory.
    pub(crate) fn take_block(&self) -> Option<AlignedBuf> {
        let kept = self.common().blocks.borrow_mut().pop();
        kept.or_else(|| self.reactor().pool().take(BLOCK_BYTES as usize).ok())
    }

    /// Gives a block back.
    pub(crate) fn give_block(&self, block: AlignedBuf) {
        let mut blocks = self.common().blocks.borrow_mut();
        if blocks.len() < BLOCKS_KEPT {
            blocks.push(block);
        }
    }
}
