//! Cuts a connection's byte stream into Kafka frames (4-byte big-endian length, then that many bytes).
//!
//! Holds: the bytes of one connection that don't make a whole frame yet. Never touches: sockets, what is in a frame.
//!
//! Two ways lead in. Small frames arrive through the shard's shared receive buffer and are copied out whole, so an idle
//! connection owns no buffer. Once a frame is known to be longer than what has arrived, its own buffer takes the rest
//! straight from the socket: [`FrameAssembler::direct_room`]. That buffer grows with what *has* arrived, never with what
//! the length claims: four bytes from a stranger reserve nothing. Who has sent a large frame before is believed as much
//! again: no more than the beginning of his next one takes the way through the shared buffer, and its own buffer has the
//! right size at once. Else a frame of 64 KiB would be copied twice before anybody has looked at it.

use bytes::{Bytes, BytesMut};
use corelog_reactor::BufferPool;
use thiserror::Error;

use super::memory::{FrameBuf, FrameMemory};
use crate::wire;
use crate::wire::frame::SIZE_BYTES;

/// The first buffer of a frame that did not arrive at once.
const FIRST_BUFFER_BYTES: usize = 4096;
/// How a frame's buffer grows: as soon as it is full, to this many times its size.
const GROWTH: usize = 4;
/// A frame of more than this is a large one: behind it no more than [`FIRST_BUFFER_BYTES`] go through the shared buffer.
const LARGE_FRAME_BYTES: usize = 16 << 10;
/// So much at most is given to a frame because the one before it was as large.
const TRUSTED_BYTES_MAX: usize = 2 << 20;

/// Frames up to this size that arrive whole share chunks of memory, and are charged to nobody. What that may come to, for each
/// connection:
///
/// ```text
///   read and not yet handled: one read through the shared buffer, as no other is made before      64 KiB
///   a request that waits (a long poll), and the chunk that it keeps                               16 KiB
///   produces in flight, 128 of 4 KiB, while their appends wait for memory or the disk            512 KiB
/// ```
///
/// The first takes a client that pipelines that much behind a long poll; the last a disk that stands still. As a rule a
/// connection holds nothing here. Who lets strangers in bounds the sum by `max.connections`.
const SMALL_FRAME_BYTES_MAX: usize = 4096;
/// A chunk of them. One frame that is kept (a long poll's) keeps its chunk: it is small for that.
const SMALL_FRAMES_CHUNK_BYTES: usize = 16 << 10;

/// Memory for the small frames of all connections of a core.
///
/// A frame is copied behind the one before it. When a chunk is full, it is used again from its start if its frames are
/// gone by then, as they are as a rule; only else is there a new one. So a small request allocates nothing. It is not
/// charged to [`FrameMemory`] either, since a charge has to be kept somewhere: see `SMALL_FRAME_BYTES_MAX` for their bound.
#[derive(Debug, Default)]
pub struct SmallFrames(BytesMut);

impl SmallFrames {
    fn copy(&mut self, frame: &[u8]) -> Bytes {
        if self.0.capacity() < frame.len() {
            self.0.reserve(SMALL_FRAMES_CHUNK_BYTES);
        }
        self.0.extend_from_slice(frame);
        self.0.split().freeze()
    }
}

/// Why a connection's bytes can't be cut into frames.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum FrameError {
    /// The bytes are no Kafka frames. The connection is closed: there is no way to find the next frame's start.
    #[error(transparent)]
    NotKafka(#[from] wire::frame::FrameError),
    /// What frames may hold on this core is used up. Nothing is lost: the frame goes on when there is memory.
    #[error("no buffer memory left on this core for a frame of {0} bytes")]
    NoMemory(usize),
}

/// A frame that is arriving into a buffer of its own.
#[derive(Debug)]
struct Arriving {
    memory: FrameBuf,
    /// Bytes of the frame (without its length field) that have arrived.
    filled: usize,
    /// Bytes of the whole frame.
    total: usize,
}

/// The frame cutter of one connection.
#[derive(Debug)]
pub struct FrameAssembler {
    limit: usize,
    /// Up to four bytes of a length that arrived in pieces.
    size: [u8; SIZE_BYTES],
    size_filled: usize,
    arriving: Option<Arriving>,
    /// Bytes of the last whole frame.
    last_total: usize,
}

impl FrameAssembler {
    /// A cutter that refuses frames above `limit` bytes (`socket.request.max.bytes`).
    pub fn new(limit: usize) -> Self {
        FrameAssembler { limit, size: [0; SIZE_BYTES], size_filled: 0, arriving: None, last_total: 0 }
    }

    /// Whether a frame has begun and not ended (a close now is a truncated frame).
    pub fn mid_frame(&self) -> bool {
        self.size_filled > 0 || self.arriving.is_some()
    }

    /// How much of the shared buffer to receive into.
    pub fn shared_room<'b>(&self, shared: &'b mut [u8]) -> &'b mut [u8] {
        // Never nothing: a receive into no room would look like the end of the stream.
        let bytes = if self.last_total > LARGE_FRAME_BYTES { FIRST_BUFFER_BYTES } else { usize::MAX };
        let room = shared.len().min(bytes);
        &mut shared[..room]
    }

    /// Takes bytes that arrived through the shared buffer off the front of `bytes`; calls `each` with every frame that
    /// became whole.
    ///
    /// # Errors
    /// [`FrameError`]. After [`FrameError::NoMemory`], what could not be taken is still in `bytes`; feed it again later.
    pub fn feed(
        &mut self,
        bytes: &mut &[u8],
        small: &mut SmallFrames,
        memory: &FrameMemory,
        mut each: impl FnMut(Bytes),
    ) -> Result<(), FrameError> {
        loop {
            if let Some(arriving) = &mut self.arriving {
                arriving.append(bytes, memory)?;
                match self.take_whole() {
                    Some(frame) => each(frame),
                    None => return Ok(()),
                }
                continue;
            }
            let missing = split_front(bytes, SIZE_BYTES - self.size_filled);
            self.size[self.size_filled..self.size_filled + missing.len()].copy_from_slice(missing);
            self.size_filled += missing.len();
            if self.size_filled < SIZE_BYTES {
                return Ok(());
            }
            let total = wire::frame::body_bytes(self.size, self.limit)?;
            if let Some(whole) = bytes.get(..total) {
                each(if total <= SMALL_FRAME_BYTES_MAX {
                    small.copy(whole)
                } else {
                    memory.whole(whole).ok_or(FrameError::NoMemory(total))?
                });
                split_front(bytes, total);
                self.last_total = total;
            } else {
                let arrived = FIRST_BUFFER_BYTES.max(bytes.len()).min(total);
                let trusted = BufferPool::capacity_for(self.last_total).min(TRUSTED_BYTES_MAX).min(total);
                let memory = if trusted > arrived { memory.take(trusted) } else { None }
                    .or_else(|| memory.take(arrived))
                    .ok_or(FrameError::NoMemory(total))?;
                self.arriving = Some(Arriving { memory, filled: 0, total });
            }
            self.size_filled = 0;
        }
    }

    /// Room for the next bytes of the frame that is arriving, to receive straight into; `None` between frames.
    ///
    /// # Errors
    /// [`FrameError::NoMemory`] when the frame's buffer can't grow now. The connection may try again later.
    pub fn direct_room(&mut self, memory: &FrameMemory) -> Result<Option<&mut [u8]>, FrameError> {
        let Some(arriving) = &mut self.arriving else { return Ok(None) };
        if arriving.filled == arriving.memory.buf.capacity() {
            arriving.grow(memory)?;
        }
        let buf = &mut arriving.memory.buf;
        let end = buf.capacity().min(arriving.total);
        Ok(Some(&mut buf[arriving.filled..end]))
    }

    /// `bytes` more have been received into [`Self::direct_room`]; returns the frame if it is whole now.
    pub fn received(&mut self, bytes: usize) -> Option<Bytes> {
        if let Some(arriving) = &mut self.arriving {
            arriving.filled += bytes;
            assert!(
                arriving.filled <= arriving.total,
                "received {} bytes of a frame of {}",
                arriving.filled,
                arriving.total
            );
        }
        self.take_whole()
    }

    fn take_whole(&mut self) -> Option<Bytes> {
        let whole = self.arriving.take_if(|arriving| arriving.filled == arriving.total)?;
        self.last_total = whole.total;
        Some(whole.memory.into_frame(whole.total))
    }
}

impl Arriving {
    /// Takes what belongs to this frame off the front of `bytes`.
    fn append(&mut self, bytes: &mut &[u8], memory: &FrameMemory) -> Result<(), FrameError> {
        loop {
            let buf = &mut self.memory.buf;
            let room = buf.capacity().min(self.total) - self.filled;
            let part = split_front(bytes, room);
            buf[self.filled..self.filled + part.len()].copy_from_slice(part);
            self.filled += part.len();
            if bytes.is_empty() || self.filled == self.total {
                return Ok(());
            }
            self.grow(memory)?;
        }
    }

    /// Moves to a larger buffer: at most [`GROWTH`] times what has arrived, at most the frame.
    fn grow(&mut self, memory: &FrameMemory) -> Result<(), FrameError> {
        let next = self.memory.buf.capacity().saturating_mul(GROWTH).min(self.total);
        memory.grow(&mut self.memory, next, self.filled).ok_or(FrameError::NoMemory(self.total))
    }
}

/// Cuts at most `count` bytes off the front.
fn split_front<'a>(bytes: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (front, rest) = bytes.split_at(count.min(bytes.len()));
    *bytes = rest;
    front
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 1 << 20;

    /// Memory for frames, as much as the pool has.
    fn memory(pool: &BufferPool) -> FrameMemory {
        FrameMemory::new(pool.clone(), pool.budget() * 2, 0)
    }

    fn framed(body: &[u8]) -> Vec<u8> {
        [&(body.len() as u32).to_be_bytes()[..], body].concat()
    }

    fn feed_all(assembler: &mut FrameAssembler, memory: &FrameMemory, bytes: &[u8], piece: usize) -> Vec<Bytes> {
        let mut frames = Vec::new();
        for mut chunk in bytes.chunks(piece) {
            let chunk = &mut chunk;
            assembler
                .feed(chunk, &mut SmallFrames::default(), memory, |frame| frames.push(frame))
                .expect("well-formed frames");
        }
        frames
    }

    #[test]
    fn frames_come_out_whole_however_the_bytes_are_cut() {
        let pool = BufferPool::new(1 << 22);
        let bodies: Vec<Vec<u8>> =
            [0, 1, 3, 5000, 70_000, 0, 12].iter().map(|len| (0..*len).map(|i| i as u8).collect()).collect();
        let stream: Vec<u8> = bodies.iter().flat_map(|body| framed(body)).collect();
        for piece in [1, 2, 3, 7, 4096, 65_536, stream.len()] {
            let mut assembler = FrameAssembler::new(LIMIT);
            let frames = feed_all(&mut assembler, &memory(&pool), &stream, piece);
            assert!(!assembler.mid_frame());
            assert_eq!(frames.iter().map(|f| f.to_vec()).collect::<Vec<_>>(), bodies, "pieces of {piece}");
        }
        assert_eq!(pool.in_use(), 0);
    }

    #[test]
    fn small_frames_use_their_chunk_again_when_they_are_gone_and_stay_as_they_are_when_not() {
        let mut small = SmallFrames::default();
        let first = small.copy(&[1; 100]);
        let chunk = first.as_ptr() as usize;
        drop(first);
        let within = |frame: &Bytes| (chunk..chunk + SMALL_FRAMES_CHUNK_BYTES).contains(&(frame.as_ptr() as usize));
        for round in 0..1000 {
            let frame = small.copy(&[round as u8; 333]);
            assert!(within(&frame), "round {round}");
        }
        let kept: Vec<Bytes> = (0..200).map(|round| small.copy(&[round; 333])).collect();
        assert!(kept.iter().zip(0..).all(|(frame, round)| **frame == [round; 333]));
    }

    #[test]
    fn a_large_frame_is_received_straight_into_its_own_buffer() {
        let pool = BufferPool::new(1 << 22);
        let body: Vec<u8> = (0..100_000u32).map(|i| (i * 7) as u8).collect();
        let stream = framed(&body);
        let mut assembler = FrameAssembler::new(LIMIT);
        assembler
            .feed(&mut &stream[..100], &mut SmallFrames::default(), &memory(&pool), |_| panic!("not whole yet"))
            .expect("a beginning");
        let mut at = 100;
        let frame = loop {
            let room = assembler.direct_room(&memory(&pool)).expect("memory").expect("mid-frame");
            let count = room.len().min(stream.len() - at).min(10_000);
            room[..count].copy_from_slice(&stream[at..at + count]);
            at += count;
            if let Some(frame) = assembler.received(count) {
                break frame;
            }
        };
        assert_eq!(frame, body);
        assert!(assembler.direct_room(&memory(&pool)).expect("memory").is_none());
    }

    #[test]
    fn four_bytes_from_a_stranger_reserve_no_more_than_a_page() {
        let pool = BufferPool::new(1 << 28);
        let mut assembler = FrameAssembler::new(100 << 20);
        assembler
            .feed(&mut &(100u32 << 20).to_be_bytes()[..], &mut SmallFrames::default(), &memory(&pool), |_| {
                panic!("no frame")
            })
            .expect("within the limit");
        assembler
            .feed(&mut &[1][..], &mut SmallFrames::default(), &memory(&pool), |_| panic!("no frame"))
            .expect("one byte");
        assert!(pool.in_use() <= 4096, "{} bytes reserved", pool.in_use());
    }

    #[test]
    fn behind_a_large_frame_the_next_one_gets_its_buffer_at_once_and_hardly_anything_is_copied() {
        let pool = BufferPool::new(1 << 22);
        let (memory, mut shared) = (memory(&pool), vec![0; 64 << 10]);
        let mut assembler = FrameAssembler::new(LIMIT);
        assert_eq!(assembler.shared_room(&mut shared).len(), 64 << 10, "nothing is known of it");
        let body = vec![7; 64 << 10];
        feed_all(&mut assembler, &memory, &framed(&body), 64 << 10);
        assert_eq!(assembler.shared_room(&mut shared).len(), FIRST_BUFFER_BYTES);
        // The next one: its beginning comes through the shared buffer, all the rest straight into its place.
        let stream = framed(&body);
        let (begin, rest) = stream.split_at(FIRST_BUFFER_BYTES);
        let none = |_| panic!("not whole yet");
        assembler.feed(&mut &*begin, &mut SmallFrames::default(), &memory, none).expect("a beginning");
        let room = assembler.direct_room(&memory).expect("memory").expect("mid-frame");
        assert_eq!(room.len(), rest.len());
        room.copy_from_slice(rest);
        assert_eq!(assembler.received(rest.len()).expect("whole"), body);
        // One that claims more than the one before has no more than that at first.
        let begin = (1_u32 << 20).to_be_bytes();
        assembler.feed(&mut &begin[..], &mut SmallFrames::default(), &memory, none).expect("a beginning");
        assert_eq!(pool.in_use(), 64 << 10);
        drop(assembler);
        // A small one ends it.
        let mut assembler = FrameAssembler::new(LIMIT);
        feed_all(&mut assembler, &memory, &framed(&body), 64 << 10);
        feed_all(&mut assembler, &memory, &framed(b"small"), 64);
        assert_eq!(assembler.shared_room(&mut shared).len(), 64 << 10);
    }

    #[test]
    fn without_memory_for_as_much_as_it_is_trusted_with_a_frame_begins_as_a_strangers_does() {
        let pool = BufferPool::new(128 << 10);
        let memory = memory(&pool);
        let mut assembler = FrameAssembler::new(LIMIT);
        let body = vec![7; 64 << 10];
        feed_all(&mut assembler, &memory, &framed(&body), 64 << 10);
        let held = pool.take(64 << 10).expect("half of the pool");
        let more = pool.take(32 << 10).expect("a quarter of it");
        let begin = ((64 << 10) as u32).to_be_bytes();
        assembler
            .feed(&mut &begin[..], &mut SmallFrames::default(), &memory, |_| panic!("not whole yet"))
            .expect("a beginning");
        assert_eq!(pool.in_use(), (96 << 10) + FIRST_BUFFER_BYTES);
        drop((held, more));
    }

    #[test]
    fn a_frame_that_finds_no_memory_goes_on_when_there_is_some() {
        let pool = BufferPool::new(64 << 10);
        let held = pool.take(64 << 10).expect("the whole budget");
        let body = vec![9; 9000];
        let mut assembler = FrameAssembler::new(LIMIT);
        let stream = framed(&body);
        let mut bytes = &stream[..5000];
        let starved = assembler.feed(&mut bytes, &mut SmallFrames::default(), &memory(&pool), |_| panic!("no frame"));
        assert_eq!(starved, Err(FrameError::NoMemory(9000)));
        let left = bytes.to_vec();
        drop(held);
        let mut frames = Vec::new();
        for mut part in [&left[..], &stream[5000..]] {
            assembler
                .feed(&mut part, &mut SmallFrames::default(), &memory(&pool), |frame| frames.push(frame))
                .expect("memory now");
        }
        assert_eq!(frames, [Bytes::from(body)]);
    }

    #[test]
    fn sizes_outside_the_limit_are_refused() {
        let pool = BufferPool::new(1 << 20);
        for bytes in [[0xff, 0xff, 0xff, 0xff], [0x7f, 0xff, 0xff, 0xff], *b"GET ", [0x16, 3, 1, 2]] {
            let result =
                FrameAssembler::new(LIMIT)
                    .feed(&mut &bytes[..], &mut SmallFrames::default(), &memory(&pool), |_| panic!("no frame"));
            assert!(matches!(result, Err(FrameError::NotKafka(_))), "{bytes:?}: {result:?}");
        }
    }
}
