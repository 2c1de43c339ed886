//! The receiving side of a client's connection.
//!
//! Holds: bytes that make no whole answer yet. Never touches: what answers mean. A broker that we chose to measure is
//! trusted with the memory of one answer; the broker's own cutter, which trusts nobody, is `corelog_net::conn`.

use std::io;

use corelog_net::wire::frame::{Front, SIZE_BYTES, front};
use corelog_reactor::{Reactor, Stream};

/// Largest answer taken.
const FRAME_BYTES_MAX: usize = 512 << 20;
/// Bytes received at a time, unless an answer that is known to be longer takes them directly.
const RECEIVE_BYTES: usize = 64 << 10;
/// Bytes received from one connection before others get their turn.
const VISIT_BYTES_MAX: usize = 1 << 20;

/// Cuts one connection's bytes into answers.
pub struct FrameReader {
    /// What was received and not taken is `start..end` of it.
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// An answer larger than the buffer, its memory used again for the next.
    large: Vec<u8>,
    /// Bytes of it that have arrived, and that it has, if one is arriving.
    arriving: Option<(usize, usize)>,
    visit_bytes: usize,
}

impl Default for FrameReader {
    fn default() -> Self {
        let buffer = vec![0; RECEIVE_BYTES].into_boxed_slice();
        Self { buffer, start: 0, end: 0, large: Vec::new(), arriving: None, visit_bytes: 0 }
    }
}

/// Where the next answer lies.
enum Found {
    Buffer(std::ops::Range<usize>),
    Large(usize),
}

impl FrameReader {
    /// The next answer, without its size.
    ///
    /// # Errors
    /// In words: the connection failed, ended, or carries no frames.
    pub async fn next(&mut self, stream: &Stream, reactor: &Reactor) -> Result<&[u8], String> {
        let found = loop {
            if let Some(found) = self.cut()? {
                break found;
            }
            match self.receive(stream) {
                Ok(0) => return Err("closed the connection".into()),
                Ok(count) => {
                    self.visit_bytes += count;
                    if self.visit_bytes >= VISIT_BYTES_MAX {
                        // Others may have answers, too: receiving by readiness is unfair to those that come later.
                        self.visit_bytes = 0;
                        reactor.yield_now().await;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.visit_bytes = 0;
                    stream.readable().await.map_err(|error| format!("failed ({error})"))?;
                }
                Err(error) => return Err(format!("failed ({error})")),
            }
        };
        Ok(match found {
            Found::Buffer(range) => &self.buffer[range],
            Found::Large(bytes) => &self.large[..bytes],
        })
    }

    /// Takes a whole answer off the front, or prepares for the rest of it.
    fn cut(&mut self) -> Result<Option<Found>, String> {
        if let Some((filled, total)) = self.arriving {
            if filled < total {
                return Ok(None);
            }
            self.arriving = None;
            return Ok(Some(Found::Large(total)));
        }
        let received = &self.buffer[self.start..self.end];
        match front(received, FRAME_BYTES_MAX).map_err(|error| error.to_string())? {
            Front::Whole(body) => {
                let range = self.start + body.start..self.start + body.end;
                self.start = range.end;
                Ok(Some(Found::Buffer(range)))
            }
            Front::Partial { missing } => {
                let have = received.len();
                if have >= SIZE_BYTES && have + missing > RECEIVE_BYTES {
                    let (filled, total) = (have - SIZE_BYTES, have + missing - SIZE_BYTES);
                    if self.large.len() < total {
                        self.large.resize(total, 0);
                    }
                    self.large[..filled].copy_from_slice(&received[SIZE_BYTES..]);
                    self.arriving = Some((filled, total));
                    (self.start, self.end) = (0, 0);
                } else {
                    self.buffer.copy_within(self.start..self.end, 0);
                    (self.start, self.end) = (0, have);
                }
                Ok(None)
            }
        }
    }

    fn receive(&mut self, stream: &Stream) -> io::Result<usize> {
        match &mut self.arriving {
            Some((filled, total)) => {
                let count = stream.try_recv(&mut self.large[*filled..*total])?;
                *filled += count;
                Ok(count)
            }
            None => {
                let count = stream.try_recv(&mut self.buffer[self.end..])?;
                self.end += count;
                Ok(count)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds bytes as a socket would, in pieces.
    fn answers(bytes: &[u8], piece: usize) -> Vec<Vec<u8>> {
        let (mut reader, mut left, mut got) = (FrameReader::default(), bytes, Vec::new());
        loop {
            match reader.cut().unwrap() {
                Some(Found::Buffer(range)) => got.push(reader.buffer[range].to_vec()),
                Some(Found::Large(len)) => got.push(reader.large[..len].to_vec()),
                None if left.is_empty() => return got,
                None => {
                    let room = match &reader.arriving {
                        Some((filled, total)) => total - filled,
                        None => RECEIVE_BYTES - reader.end,
                    };
                    assert!(room > 0, "no room to go on");
                    let count = piece.min(room).min(left.len());
                    let (now, later) = left.split_at(count);
                    match &mut reader.arriving {
                        Some((filled, _)) => {
                            reader.large[*filled..*filled + count].copy_from_slice(now);
                            *filled += count;
                        }
                        None => {
                            reader.buffer[reader.end..reader.end + count].copy_from_slice(now);
                            reader.end += count;
                        }
                    }
                    left = later;
                }
            }
        }
    }

    #[test]
    fn answers_of_every_size_come_whole_and_in_order_however_they_arrive() {
        let sizes = [0, 1, 100, RECEIVE_BYTES - 4, RECEIVE_BYTES - 3, RECEIVE_BYTES, 200_000, 7, 65_000, 65_000, 3];
        let frames: Vec<Vec<u8>> = sizes.iter().enumerate().map(|(at, size)| vec![at as u8; *size]).collect();
        let mut bytes = Vec::new();
        for frame in &frames {
            bytes.extend_from_slice(&(frame.len() as u32).to_be_bytes());
            bytes.extend_from_slice(frame);
        }
        for piece in [1, 3, 1000, 65_536, 1 << 20] {
            assert!(answers(&bytes, piece) == frames, "pieces of {piece} bytes");
        }
    }
}
