//! The aligned tail of one segment: what was appended, still in memory.
//!
//! Holds: chunks of pool memory that mirror the file's bytes; a chunk's file position is a multiple of 4 KiB, so that
//! the same memory serves the direct write, the fetches and, at once, the cache.
//! Never touches: files, offsets, budgets (the caller asks the pool).
//!
//! ```text
//!   file    |....|....|....|....|....|....|....|....|....|       4 KiB blocks
//!   chunks       [ chunk 0          ][ chunk 1           ]       each full before the next one starts
//!                 ^start                    ^end                 bytes before `end` never change again
//! ```
//!
//! The one copy of the produce path is [`Tail::append`]. Readers hold [`TailSlice`]s, which keep a chunk's memory alive
//! when the tail has let go of it, also on another core. The writer only writes behind `end`, readers only read before
//! it, so nobody waits for anybody; after a truncation the bytes behind the cut are never reused: a new chunk replaces
//! the rest of the old one.

use crate::disk::{BLOCK_BYTES, align_down};
use corelog_reactor::{AlignedBuf, IoBufs, IoVecs};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

/// Memory of one chunk, shared between the tail (which writes behind `end`) and slices (which read before it).
struct ChunkMemory {
    start: NonNull<u8>,
    capacity: usize,
    // Keeps the memory; touched again only when it is dropped, on whichever core that happens.
    _owner: AlignedBuf,
}

// SAFETY: the memory is reached through `start` only. Bytes that a slice covers were written before the slice was made
// and never change (module docs); handing a slice to another core goes through a channel, which orders the writes.
unsafe impl Send for ChunkMemory {}
// SAFETY: as above: concurrent access is reads of settled bytes, and writes by the one tail to bytes nobody reads yet.
unsafe impl Sync for ChunkMemory {}

impl ChunkMemory {
    fn new(mut buf: AlignedBuf) -> Self {
        let capacity = buf.len();
        Self { start: NonNull::new(buf.as_mut_ptr()).unwrap_or(NonNull::dangling()), capacity, _owner: buf }
    }

    /// # Safety
    /// The range must have been written, and lie before the tail's end.
    unsafe fn bytes(&self, start: usize, len: usize) -> &[u8] {
        assert!(start + len <= self.capacity, "bytes {start}+{len} of a chunk of {}", self.capacity);
        // SAFETY: in bounds (asserted); written and settled (the caller's promise).
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(start), len) }
    }

    /// # Safety
    /// Nobody may be able to read the range yet, and only the one tail may write.
    unsafe fn write(&self, at: usize, bytes: &[u8]) {
        assert!(
            at + bytes.len() <= self.capacity,
            "write of {} bytes at {at} of a chunk of {}",
            bytes.len(),
            self.capacity
        );
        // SAFETY: in bounds (asserted); the source is a live slice, and the target is not readable by anyone yet.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.as_ptr().add(at), bytes.len());
        }
    }
}

/// Bytes of the tail, shared without a copy. May be sent to, read and dropped on another core.
#[derive(Clone)]
pub struct TailSlice {
    memory: Arc<ChunkMemory>,
    start: u32,
    len: u32,
}

impl Deref for TailSlice {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: slices are made by `Tail` over ranges before its end, which never change.
        unsafe { self.memory.bytes(self.start as usize, self.len as usize) }
    }
}

impl std::fmt::Debug for TailSlice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TailSlice({} bytes)", self.len)
    }
}

// SAFETY: the bytes live in a pool buffer that the slice keeps alive; they do not move or change.
unsafe impl IoBufs for TailSlice {
    fn expose(&self, into: &mut IoVecs) {
        into.push(self);
    }
}

/// Pieces of the tail in file order.
pub type TailSlices = SmallVec<[TailSlice; 4]>;

struct Chunk {
    memory: Arc<ChunkMemory>,
    /// Where its first byte lies in the segment.
    position: u64,
    /// Bytes it may hold; less than the memory's size after a truncation.
    capacity: u64,
}

impl Chunk {
    fn end(&self) -> u64 {
        self.position + self.capacity
    }
}

/// The unsealed (or just sealed) bytes of one segment that are still in memory.
pub struct Tail {
    chunks: VecDeque<Chunk>,
    start: u64,
    end: u64,
}

impl Tail {
    /// An empty tail of a segment whose bytes end at `end`. Unless `end` is block-aligned, the bytes of its last block
    /// must be [restored](Self::restore_block) before the first append.
    #[must_use]
    pub const fn new(end: u64) -> Self {
        Self { chunks: VecDeque::new(), start: end, end }
    }

    /// The first position in memory; equals `end` when nothing is.
    #[must_use]
    pub const fn start(&self) -> u64 {
        self.start
    }

    /// Behind the last appended byte.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.end
    }

    /// Whether nothing is in memory.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Number of chunks.
    #[must_use]
    pub fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// Bytes that can be appended without another chunk.
    #[must_use]
    pub fn room(&self) -> u64 {
        self.chunks.back().map_or(0, |c| c.end() - self.end)
    }

    /// Adds a chunk behind the ones there are. Its length must be a multiple of the block size.
    pub fn add_chunk(&mut self, buf: AlignedBuf) {
        let position = match self.chunks.back() {
            Some(last) => last.end(),
            None => self.end,
        };
        assert!(position.is_multiple_of(BLOCK_BYTES), "chunk at {position}: its last block was never restored");
        let capacity = buf.len() as u64;
        assert!(capacity > 0 && capacity.is_multiple_of(BLOCK_BYTES), "chunk of {capacity} bytes");
        self.chunks.push_back(Chunk { memory: Arc::new(ChunkMemory::new(buf)), position, capacity });
    }

    /// Puts the bytes of the partial last block back into memory: `block` holds them from the block's start on.
    pub fn restore_block(&mut self, buf: AlignedBuf, block: &[u8]) {
        assert!(self.chunks.is_empty(), "restoring a block into a tail of {} chunks", self.chunks.len());
        let start = align_down(self.end);
        assert_eq!(
            block.len() as u64,
            self.end - start,
            "bytes of the last block of a segment that ends at {}",
            self.end
        );
        let capacity = buf.len() as u64;
        assert!(capacity.is_multiple_of(BLOCK_BYTES) && capacity >= BLOCK_BYTES, "chunk of {capacity} bytes");
        let memory = ChunkMemory::new(buf);
        // SAFETY: the memory is new: nobody else knows it.
        unsafe { memory.write(0, block) };
        self.chunks.push_back(Chunk { memory: Arc::new(memory), position: start, capacity });
        self.start = start;
    }

    /// Copies `bytes` behind the end. The room must be there.
    pub fn append(&mut self, mut bytes: &[u8]) {
        assert!(bytes.len() as u64 <= self.room(), "append of {} bytes into room for {}", bytes.len(), self.room());
        let mut index = self.chunk_at(self.end);
        while !bytes.is_empty() {
            let Some(chunk) = self.chunks.get(index) else {
                return;
            };
            let (now, rest) =
                bytes.split_at(usize::try_from(chunk.end() - self.end).map_or(bytes.len(), |n| n.min(bytes.len())));
            // SAFETY: the range lies at or behind `end`: no slice covers it, and this tail is the one writer.
            unsafe {
                chunk.memory.write((self.end - chunk.position) as usize, now);
            }
            self.end += now.len() as u64;
            bytes = rest;
            index += 1;
        }
    }

    /// The chunk that holds `position`, or the number of chunks.
    fn chunk_at(&self, position: u64) -> usize {
        // Hot reads and appends are near the end: search from there.
        let behind = self.chunks.iter().rev().take_while(|c| c.position > position).count();
        let index = self.chunks.len() - behind;
        match index.checked_sub(1) {
            Some(i) if self.chunks.get(i).is_some_and(|c| position < c.end()) => i,
            _ => index,
        }
    }

    /// Calls `each` with the pieces of `from..to`, which must be in memory.
    fn pieces(&self, from: u64, to: u64, mut each: impl FnMut(&Chunk, u32, u32)) {
        assert!(
            self.start <= from && from <= to && to <= self.end,
            "bytes {from}..{to} of a tail that holds {}..{}",
            self.start,
            self.end
        );
        let mut at = from;
        let mut index = self.chunk_at(from);
        while at < to {
            let Some(chunk) = self.chunks.get(index) else {
                return;
            };
            let end = chunk.end().min(to);
            each(chunk, (at - chunk.position) as u32, (end - at) as u32);
            at = end;
            index += 1;
        }
    }

    /// The bytes `from..to`, shared without a copy.
    pub fn slices(&self, from: u64, to: u64, into: &mut TailSlices) {
        self.pieces(from, to, |chunk, start, len| {
            into.push(TailSlice { memory: chunk.memory.clone(), start, len });
        });
    }

    /// Copies the bytes from `from` on into `out`, which must be in memory.
    pub fn copy_out(&self, from: u64, out: &mut [u8]) {
        let mut done = 0;
        self.pieces(from, from + out.len() as u64, |chunk, start, len| {
            // SAFETY: `pieces` stays before `end`.
            let bytes = unsafe { chunk.memory.bytes(start as usize, len as usize) };
            if let Some(slot) = out.get_mut(done..done + bytes.len()) {
                slot.copy_from_slice(bytes);
            }
            done += bytes.len();
        });
    }

    /// Bytes of the oldest chunk, if no commit will write any of it again: all of it lies before `durable`.
    #[must_use]
    pub fn oldest_evictable(&self, durable: u64) -> Option<usize> {
        let oldest = self.chunks.front()?;
        // The block that the durable end lies in is written again by the next commit.
        (oldest.end() <= align_down(durable)).then_some(oldest.memory.capacity)
    }

    /// Bytes of the oldest chunk.
    #[must_use]
    pub fn oldest_bytes(&self) -> Option<usize> {
        self.chunks.front().map(|c| c.memory.capacity)
    }

    /// Lets go of the oldest chunk.
    pub fn evict_oldest(&mut self) {
        if let Some(oldest) = self.chunks.pop_front() {
            self.start = self.chunks.front().map_or(self.end, |c| c.position).max(oldest.end().min(self.end));
        }
    }

    /// Bytes of the memory the chunks hold.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.chunks.iter().map(|c| c.memory.capacity).sum()
    }

    /// Lets go of everything.
    pub fn clear(&mut self) {
        self.chunks.clear();
        self.start = self.end;
    }

    /// Forgets the bytes from `end` on. What readers hold stays as it is: the block that `end` lies in is copied into
    /// `block`, a fresh chunk, which is needed (and used) only if `end` is not block-aligned and in memory.
    ///
    /// Returns false when the last block was not in memory: then it has to be restored from the disk.
    pub fn truncate_to(&mut self, end: u64, block: AlignedBuf) -> bool {
        assert!(end <= self.end, "truncate to {end} behind end {}", self.end);
        let aligned = align_down(end);
        let in_memory = aligned >= self.start || end == aligned;
        let mut partial = [0_u8; BLOCK_BYTES as usize];
        let partial = partial.get_mut(..(end - aligned) as usize).unwrap_or_default();
        if in_memory && !partial.is_empty() {
            self.copy_out(aligned, partial);
        }
        while self.chunks.back().is_some_and(|c| c.position >= aligned) {
            self.chunks.pop_back();
        }
        if let Some(last) = self.chunks.back_mut() {
            last.capacity = last.capacity.min(aligned - last.position);
        }
        self.end = end;
        if !in_memory {
            self.clear();
            return false;
        }
        if partial.is_empty() {
            self.start = self.start.min(end);
            return true;
        }
        let memory = ChunkMemory::new(block);
        // SAFETY: the memory is new: nobody else knows it.
        unsafe { memory.write(0, partial) };
        let capacity = memory.capacity as u64;
        self.chunks.push_back(Chunk { memory: Arc::new(memory), position: aligned, capacity });
        true
    }

    /// Whether all that is needed of a single, larger chunk is its last block: all is durable.
    #[must_use]
    pub fn is_shrinkable(&self, durable: u64) -> bool {
        self.chunks.len() == 1 && durable == self.end && self.oldest_bytes() > Some(BLOCK_BYTES as usize)
    }

    /// Whether it holds no more than one block, which is never let go of.
    #[must_use]
    pub fn is_small(&self) -> bool {
        self.memory_bytes() <= BLOCK_BYTES as usize
    }

    /// Keeps the partly filled last block only, in `block`.
    pub fn shrink(&mut self, block: AlignedBuf) {
        let aligned = align_down(self.end);
        let mut partial = [0_u8; BLOCK_BYTES as usize];
        let partial = partial.get_mut(..(self.end - aligned) as usize).unwrap_or_default();
        self.copy_out(aligned.max(self.start), partial);
        self.clear();
        if !partial.is_empty() {
            self.restore_block(block, partial);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corelog_reactor::BufferPool;

    const BLOCK: usize = BLOCK_BYTES as usize;

    fn pool() -> BufferPool {
        BufferPool::new(1 << 20)
    }

    fn bytes(tail: &Tail, from: u64, to: u64) -> Vec<u8> {
        let mut slices = TailSlices::new();
        tail.slices(from, to, &mut slices);
        slices.iter().flat_map(|s| s.to_vec()).collect()
    }

    fn data(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i % 251) as u8).collect()
    }

    #[test]
    fn appended_bytes_are_read_back_across_chunks() {
        let pool = pool();
        let mut tail = Tail::new(0);
        let data = data(3 * BLOCK);
        for piece in data.chunks(1_000) {
            while tail.room() < piece.len() as u64 {
                tail.add_chunk(pool.take(BLOCK).unwrap());
            }
            tail.append(piece);
        }
        assert_eq!((tail.end(), tail.chunks()), (data.len() as u64, 3));
        assert_eq!(bytes(&tail, 0, tail.end()), data);
        assert_eq!(bytes(&tail, 4_000, 8_500), data[4_000..8_500]);
        let mut copy = [0; 61];
        tail.copy_out(4_090, &mut copy);
        assert_eq!(copy, data[4_090..4_151]);
    }

    #[test]
    fn a_slice_keeps_its_bytes_when_the_tail_is_cut_and_appended_to() {
        let pool = pool();
        let mut tail = Tail::new(0);
        tail.add_chunk(pool.take(2 * BLOCK).unwrap());
        let data = data(6_000);
        tail.append(&data);
        let mut held = TailSlices::new();
        tail.slices(0, 6_000, &mut held);
        assert!(tail.truncate_to(5_000, pool.take(BLOCK).unwrap()));
        tail.append(&[0xff; 1_000]);
        assert_eq!(held[0][..], data[..]);
        assert_eq!(bytes(&tail, 0, 6_000), [&data[..5_000], &[0xff; 1_000]].concat());
        // Also when the tail is gone, and on another thread.
        drop(tail);
        let sent = held.remove(0);
        std::thread::spawn(move || assert_eq!(sent[..], data[..])).join().unwrap();
    }

    #[test]
    fn only_chunks_before_the_block_of_the_durable_end_are_evicted() {
        let pool = pool();
        let mut tail = Tail::new(0);
        for _ in 0..3 {
            tail.add_chunk(pool.take(BLOCK).unwrap());
        }
        tail.append(&data(2 * BLOCK + 10));
        assert_eq!(tail.oldest_evictable(4_095), None);
        assert_eq!(tail.oldest_evictable(4_096), Some(BLOCK));
        tail.evict_oldest();
        assert_eq!(tail.start(), 4_096);
        assert_eq!(tail.oldest_evictable(8_191), None);
        tail.evict_oldest();
        assert_eq!(bytes(&tail, 8_192, 8_202), data(2 * BLOCK + 10)[8_192..]);
    }

    #[test]
    fn an_idle_tail_shrinks_to_its_last_block() {
        let pool = pool();
        let mut tail = Tail::new(0);
        tail.add_chunk(pool.take(4 * BLOCK).unwrap());
        tail.append(&data(5_000));
        assert!(!tail.is_shrinkable(4_999));
        assert!(tail.is_shrinkable(5_000));
        tail.shrink(pool.take(BLOCK).unwrap());
        assert_eq!((tail.memory_bytes(), tail.start(), tail.end()), (BLOCK, 4_096, 5_000));
        assert_eq!(bytes(&tail, 4_096, 5_000), data(5_000)[4_096..]);
        tail.append(&[9; 100]);
        assert_eq!(tail.end(), 5_100);
    }
}
