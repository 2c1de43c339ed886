//! What the tests of sending files share, those of `corelog-net` too: content to tell apart, a connection that fills up.

use std::io;
use std::net::SocketAddr;

use corelog_reactor::{ListenHow, Reactor, Stream};

/// On the disk that the build is on.
pub fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Bytes of which no part looks like another.
pub fn content(bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|i| (i.wrapping_mul(0x9E37_79B9) >> 13) as u8).collect()
}

/// A client, the server's end of its connection, and where it came from. They buffer little, so that a client that doesn't
/// read is noticed.
pub async fn slow_pair(reactor: &Reactor) -> (Stream, Stream, SocketAddr) {
    let small = ListenHow { backlog: 8, send_buffer_bytes: Some(64 << 10), receive_buffer_bytes: Some(64 << 10) };
    let listener = reactor.listen_with("127.0.0.1:0".parse().unwrap(), small).unwrap();
    let client = reactor.connect(listener.local_addr()).await.unwrap();
    let (conn, from) = listener.accept().await.unwrap();
    (client, reactor.adopt(conn), from)
}

/// Reads to the end of the stream, at most `bytes`.
pub async fn receive(stream: &Stream, bytes: usize) -> Vec<u8> {
    let (mut all, mut buf) = (Vec::new(), vec![0; 64 << 10]);
    while all.len() < bytes {
        let room = buf.len().min(bytes - all.len());
        match stream.try_recv(&mut buf[..room]) {
            Ok(0) => break,
            Ok(count) => all.extend_from_slice(&buf[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => stream.readable().await.unwrap(),
            // What was sent before a connection was given up may be lost with it.
            Err(_) => break,
        }
    }
    all
}
