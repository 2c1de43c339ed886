//! Holds: Kafka's protocol by hand, as far as tests need it on a bare socket: frames, request headers, a few old versions.
//! Never touches: the broker's own codec: an error there must not hide itself.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longest answer that a test accepts.
const FRAME_BYTES_MAX: usize = 256 << 20;

/// Bytes of a request or response under construction; numbers are big-endian, as Kafka has them.
#[derive(Clone, Debug, Default)]
pub struct Encoder {
    /// What has been written so far.
    pub bytes: Vec<u8>,
}

impl Encoder {
    /// One byte.
    pub fn i8(mut self, value: i8) -> Encoder {
        self.bytes.extend(value.to_be_bytes());
        self
    }

    /// INT16.
    pub fn i16(mut self, value: i16) -> Encoder {
        self.bytes.extend(value.to_be_bytes());
        self
    }

    /// INT32, also an array's length.
    pub fn i32(mut self, value: i32) -> Encoder {
        self.bytes.extend(value.to_be_bytes());
        self
    }

    /// INT64.
    pub fn i64(mut self, value: i64) -> Encoder {
        self.bytes.extend(value.to_be_bytes());
        self
    }

    /// STRING with a two-byte length.
    pub fn string(self, value: &str) -> Encoder {
        self.i16(value.len() as i16).raw(value.as_bytes())
    }

    /// NULLABLE_STRING without a value.
    pub fn null_string(self) -> Encoder {
        self.i16(-1)
    }

    /// BYTES (and RECORDS) with a four-byte length.
    pub fn blob(self, value: &[u8]) -> Encoder {
        self.i32(value.len() as i32).raw(value)
    }

    /// Bytes as they are.
    pub fn raw(mut self, value: &[u8]) -> Encoder {
        self.bytes.extend_from_slice(value);
        self
    }
}

/// Reads the fields of an answer in order.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    /// From the answer's start.
    pub fn new(bytes: &'a [u8]) -> Decoder<'a> {
        Decoder { rest: bytes }
    }

    /// The next `len` bytes.
    ///
    /// # Panics
    /// If the answer is shorter, here and below.
    pub fn raw(&mut self, len: usize) -> &'a [u8] {
        assert!(len <= self.rest.len(), "an answer ends early: {len} bytes wanted, {} left", self.rest.len());
        let (taken, rest) = self.rest.split_at(len);
        self.rest = rest;
        taken
    }

    /// INT16.
    pub fn i16(&mut self) -> i16 {
        i16::from_be_bytes(self.raw(2).try_into().expect("2 bytes"))
    }

    /// INT32, also an array's length.
    pub fn i32(&mut self) -> i32 {
        i32::from_be_bytes(self.raw(4).try_into().expect("4 bytes"))
    }

    /// INT64.
    pub fn i64(&mut self) -> i64 {
        i64::from_be_bytes(self.raw(8).try_into().expect("8 bytes"))
    }

    /// STRING or NULLABLE_STRING.
    pub fn string(&mut self) -> Option<String> {
        let len = usize::try_from(self.i16()).ok()?;
        Some(String::from_utf8_lossy(self.raw(len)).into_owned())
    }

    /// BYTES or RECORDS; null as empty.
    pub fn blob(&mut self) -> &'a [u8] {
        let len = usize::try_from(self.i32()).unwrap_or(0);
        self.raw(len)
    }

    /// What is left.
    pub fn left(&self) -> usize {
        self.rest.len()
    }
}

/// A request with the header version 1 (no tagged fields): key, version, correlation id, client id.
pub fn request(api_key: i16, version: i16, correlation_id: i32, body: Encoder) -> Vec<u8> {
    Encoder::default().i16(api_key).i16(version).i32(correlation_id).string("raw").raw(&body.bytes).bytes
}

/// `bytes` with their length in front.
pub fn frame(bytes: &[u8]) -> Vec<u8> {
    Encoder::default().blob(bytes).bytes
}

/// A connection without a client behind it.
#[derive(Debug)]
pub struct RawConnection {
    stream: TcpStream,
    next_correlation_id: i32,
}

impl RawConnection {
    /// Connects.
    pub fn connect(address: SocketAddr) -> io::Result<RawConnection> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(RawConnection { stream, next_correlation_id: 1 })
    }

    /// The socket.
    pub fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// The next frame's content.
    pub fn receive(&mut self) -> io::Result<Vec<u8>> {
        let mut len = [0; 4];
        self.stream.read_exact(&mut len)?;
        let len = usize::try_from(i32::from_be_bytes(len)).ok().filter(|&len| len <= FRAME_BYTES_MAX);
        let len = len.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "an impossible frame length"))?;
        let mut bytes = vec![0; len];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// One request and its answer's body, for versions whose header is not flexible.
    pub fn call(&mut self, api_key: i16, version: i16, body: Encoder) -> io::Result<Vec<u8>> {
        let correlation_id = self.next_correlation_id;
        self.next_correlation_id += 1;
        self.send(&frame(&request(api_key, version, correlation_id, body)))?;
        let mut answer = self.receive()?;
        let got = Decoder::new(&answer).i32();
        if got != correlation_id {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("correlation id {got}, not {correlation_id}"),
            ));
        }
        answer.drain(..4);
        Ok(answer)
    }

    /// ApiVersions 0: (key, lowest version, highest version) of each API.
    pub fn api_versions(&mut self) -> io::Result<Vec<(i16, i16, i16)>> {
        let answer = self.call(18, 0, Encoder::default())?;
        let mut answer = Decoder::new(&answer);
        let error = answer.i16();
        if error != 0 {
            return Err(io::Error::other(format!("ApiVersions answered error {error}")));
        }
        Ok((0..answer.i32()).map(|_| (answer.i16(), answer.i16(), answer.i16())).collect())
    }

    /// True as soon as the other side has closed; false if it hasn't within `patience`. Answers on the way are dropped.
    pub fn is_closed_within(&mut self, patience: Duration) -> bool {
        if self.stream.set_read_timeout(Some(patience)).is_err() {
            return true;
        }
        let mut dropped = [0; 4096];
        loop {
            match self.stream.read(&mut dropped) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    return false;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return true,
            }
        }
    }
}
