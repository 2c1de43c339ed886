//! Bytes of files through pipes into sockets, on a real ring.

mod sending_files;

use std::io;
use std::path::Path;
use std::time::Duration;

use corelog_reactor::ring::{RingConfig, RingDriver};
use corelog_reactor::{Advice, Pipe, Reactor, ReactorLimits, SharedFile, Stream};
use sending_files::{content, folder, receive, slow_pair};

fn reactor_with(limits: ReactorLimits) -> Reactor {
    Reactor::new(Box::new(RingDriver::new(RingConfig::default()).unwrap()), limits)
}

fn reactor() -> Reactor {
    reactor_with(ReactorLimits::default())
}

async fn pair(reactor: &Reactor) -> (Stream, Stream) {
    let (client, server, _) = slow_pair(reactor).await;
    (client, server)
}

async fn file(reactor: &Reactor, folder: &Path, bytes: &[u8]) -> SharedFile {
    let path = folder.join("00000000000000000000.log");
    std::fs::write(&path, bytes).unwrap();
    reactor.open_shared(&path).await.unwrap()
}

/// Sends `[at, end)`. The pipe comes back when the socket has had no room for `patience`.
async fn send(
    stream: &Stream,
    file: &SharedFile,
    mut at: u64,
    end: u64,
    patience: Duration,
) -> io::Result<Option<Pipe>> {
    let mut pipe = stream.reactor().take_pipe().expect("a pipe");
    while at < end {
        let (filled, back) = pipe.fill(file, at, (end - at) as usize).await;
        pipe = back;
        assert_eq!(pipe.filled(), filled.as_ref().copied().unwrap_or(0));
        if filled? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        while pipe.filled() > 0 {
            match stream.try_splice(&mut pipe, usize::MAX, false) {
                Ok(count) => at += count as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    match stream.reactor().within(patience, stream.writable()).await {
                        Some(writable) => writable?,
                        None => return Ok(Some(pipe)),
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(None)
}

const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_range_of_a_file_reaches_a_socket_as_it_is() {
    let (folder, reactor) = (folder(), reactor());
    reactor.block_on(async {
        let bytes = content(5 << 20);
        let file = file(&reactor, folder.path(), &bytes).await;
        let (client, server) = pair(&reactor).await;
        for (from, to) in [(0, bytes.len()), (1, 2), (4097, 3_000_001), (5_000_000, 5 << 20)] {
            let sender = async { send(&server, &file, from as u64, to as u64, LONG).await.unwrap() };
            let (_, got) = both(sender, receive(&client, to - from)).await;
            assert!(got == bytes[from..to], "{from}..{to}");
            file.advise(&reactor, 0, 0, Advice::DontNeed).await.unwrap();
        }
        assert_eq!(reactor.pipes(), 1, "one pipe does for all");
        // An ordinary send still waits for room, although splicing made the socket one that doesn't wait.
        let sender = async {
            let mut left = bytes.clone();
            while !left.is_empty() {
                let (count, back) = server.send(left).await;
                left = back[count.unwrap()..].to_vec();
            }
        };
        let late = async {
            reactor.sleep(Duration::from_millis(50)).await;
            receive(&client, bytes.len()).await
        };
        let ((), got) = both(sender, late).await;
        assert!(got == bytes);
    });
    reactor.shutdown();
}

/// Two futures at once.
async fn both<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> (A, B) {
    let (mut a, mut b) = (std::pin::pin!(a), std::pin::pin!(b));
    let (mut out_a, mut out_b) = (None, None);
    std::future::poll_fn(move |cx| {
        if out_a.is_none()
            && let std::task::Poll::Ready(out) = a.as_mut().poll(cx)
        {
            out_a = Some(out);
        }
        if out_b.is_none()
            && let std::task::Poll::Ready(out) = b.as_mut().poll(cx)
        {
            out_b = Some(out);
        }
        match (out_a.take(), out_b.take()) {
            (Some(a), Some(b)) => std::task::Poll::Ready((a, b)),
            (a, b) => {
                (out_a, out_b) = (a, b);
                std::task::Poll::Pending
            }
        }
    })
    .await
}

#[test]
fn clients_that_do_not_read_hold_no_worker() {
    let (folder, reactor) = (folder(), reactor());
    reactor.block_on(async {
        let bytes = content(4 << 20);
        let file = file(&reactor, folder.path(), &bytes).await;
        // More than there are io-wq threads.
        let mut stalled = Vec::new();
        for _ in 0..RingConfig::default().workers_unbounded_max + 4 {
            let (client, server) = pair(&reactor).await;
            let pipe = send(&server, &file, 0, bytes.len() as u64, Duration::from_millis(20)).await.unwrap();
            stalled.push((client, server, pipe.expect("this client takes nothing")));
        }
        let (client, server) = pair(&reactor).await;
        let sender = async { send(&server, &file, 0, bytes.len() as u64, LONG).await.unwrap() };
        let whole = reactor.within(LONG, both(sender, receive(&client, bytes.len()))).await;
        assert!(whole.expect("the reader that reads is served").1 == bytes);
        assert!(stalled.iter().all(|(_, _, pipe)| pipe.filled() > 0));
    });
    reactor.shutdown();
}

#[test]
fn a_client_that_has_gone_is_an_error_and_no_signal() {
    let (folder, reactor) = (folder(), reactor());
    reactor.block_on(async {
        let bytes = content(4 << 20);
        let file = file(&reactor, folder.path(), &bytes).await;
        let (client, server) = pair(&reactor).await;
        drop(client);
        let error = send(&server, &file, 0, bytes.len() as u64, LONG).await.unwrap_err();
        assert!(matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset), "{error}");
        // What was left in the pipe went with it.
        assert_eq!(reactor.pipes(), 0);
        assert_eq!(reactor.take_pipe().expect("a fresh one").filled(), 0);
    });
    reactor.shutdown();
}

#[test]
fn waiting_for_room_ends_when_this_side_is_shut_down() {
    let (folder, reactor) = (folder(), reactor());
    reactor.block_on(async {
        let bytes = content(4 << 20);
        let file = file(&reactor, folder.path(), &bytes).await;
        let (_client, server) = pair(&reactor).await;
        let shut = async {
            reactor.sleep(Duration::from_millis(20)).await;
            server.shutdown();
        };
        let sender = send(&server, &file, 0, bytes.len() as u64, LONG);
        let (sent, ()) = both(sender, shut).await;
        assert_eq!(sent.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    });
    reactor.shutdown();
}

#[test]
fn a_file_that_became_shorter_ends_early_and_a_missing_part_is_not_made_up() {
    let (folder, reactor) = (folder(), reactor());
    reactor.block_on(async {
        let bytes = content(1 << 20);
        let file = file(&reactor, folder.path(), &bytes).await;
        let writer = std::fs::OpenOptions::new().write(true).open(file.path()).unwrap();
        writer.set_len(300_000).unwrap();
        let (client, server) = pair(&reactor).await;
        let sender = async {
            let sent = send(&server, &file, 0, bytes.len() as u64, LONG).await;
            server.shutdown();
            sent
        };
        let (sent, got) = both(sender, receive(&client, bytes.len())).await;
        assert_eq!(sent.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert!(got == bytes[..300_000]);
    });
    reactor.shutdown();
}

#[test]
fn pipes_are_bounded_and_only_empty_ones_are_used_again() {
    let folder = folder();
    let reactor = reactor_with(ReactorLimits { pipes_max: 2, ..ReactorLimits::default() });
    reactor.block_on(async {
        let bytes = content(1 << 20);
        let file = file(&reactor, folder.path(), &bytes).await;
        let (first, second) = (reactor.take_pipe().unwrap(), reactor.take_pipe().unwrap());
        assert!(first.capacity() >= 64 << 10);
        assert!(reactor.take_pipe().is_none(), "two are all");
        let (filled, first) = first.fill(&file, 100, 5_000).await;
        assert_eq!(filled.unwrap(), 5_000);
        drop(second);
        assert_eq!(reactor.pipes(), 2);
        drop(first);
        assert_eq!(reactor.pipes(), 1, "closed, with what was in it");
        // Given up midway: it isn't known what will be in it.
        let mut fill = Box::pin(reactor.take_pipe().unwrap().fill(&file, 0, 5_000));
        std::future::poll_fn(|cx| {
            assert!(fill.as_mut().poll(cx).is_pending());
            std::task::Poll::Ready(())
        })
        .await;
        drop(fill);
        while reactor.pipes() > 0 {
            reactor.sleep(Duration::from_millis(1)).await;
        }
        let pipes = [reactor.take_pipe().unwrap(), reactor.take_pipe().unwrap()];
        assert!(pipes.iter().all(|pipe| pipe.filled() == 0));
    });
    reactor.shutdown();
}

#[test]
fn a_shared_file_is_closed_by_its_own_core_wherever_its_last_user_was() {
    let (folder, reactor) = (folder(), reactor());
    let file = reactor.block_on(file(&reactor, folder.path(), b"hello"));
    let fd = file.handle().0;
    // SAFETY: no pointers involved.
    let is_open = || unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0;
    let clone = file.clone();
    drop(file);
    let weak = clone.downgrade();
    std::thread::spawn(move || drop(clone)).join().unwrap();
    assert!(weak.upgrade().is_none());
    assert!(is_open(), "not closed by the other thread");
    reactor.block_on(async {
        for _ in 0..100 {
            reactor.sleep(Duration::from_millis(5)).await;
            if !is_open() {
                break;
            }
        }
    });
    assert!(!is_open());
    reactor.shutdown();
}
