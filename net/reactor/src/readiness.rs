//! Whether a socket has something to read, without losing an edge.
//!
//! Holds: the state of one socket's standing readiness operation. Never touches: the bytes.
//!
//! The operation reports every edge while it stands. `ready` is set by a report and cleared only by whoever saw the
//! socket empty (WouldBlock, or fewer bytes than asked for); an edge after that look is a new report, reaped later, so
//! none is lost. Once the peer has closed, or the socket has failed, `ready` stays: there is always something to read
//! then (the end, or the error).

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Poll, Waker};

use crate::driver::Op;
use crate::ids::{Handle, OpToken};
use crate::reactor::Reactor;

/// Poll bits after which the socket stays readable for good. Plain POLLHUP/POLLERR on streams, RDHUP: the peer closed.
const FINAL_BITS: i32 = (libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) as i32;

#[derive(Default)]
pub(crate) struct Readiness {
    ready: Cell<bool>,
    last: Cell<bool>,
    failed: Cell<i32>,
    standing: Cell<Option<OpToken>>,
    waiter: RefCell<Option<Waker>>,
}

impl Readiness {
    /// A completion of the standing operation.
    pub fn report(&self, result: i32, more: bool) {
        if !more {
            self.standing.set(None);
        }
        match result {
            _ if result >= 0 => {
                self.ready.set(true);
                if result & FINAL_BITS != 0 {
                    self.last.set(true);
                }
            }
            // Cancelled by us or by the driver's shutdown; whoever still waits arms it again.
            _ if -result == libc::ECANCELED => {}
            _ => self.failed.set(-result),
        }
        let waiter = self.waiter.borrow_mut().take();
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }

    /// Somebody looked and saw the socket empty.
    pub fn seen_empty(&self) {
        if !self.last.get() {
            self.ready.set(false);
        }
    }

    /// Whether there may be something to read, as far as reports and looks say.
    pub fn is_ready(&self) -> bool {
        self.ready.get()
    }

    /// Waits until there may be something to read. One waiter at a time.
    pub async fn readable(self: &Rc<Self>, reactor: &Reactor, handle: Handle) -> io::Result<()> {
        poll_fn(|cx| {
            // Said once: the next call asks the kernel again.
            let failed = self.failed.take();
            if failed != 0 {
                return Poll::Ready(Err(io::Error::from_raw_os_error(failed)));
            }
            if self.ready.get() {
                return Poll::Ready(Ok(()));
            }
            self.stand(reactor, handle, cx.waker());
            Poll::Pending
        })
        .await
    }

    /// Waits until the peer has closed its side (or both), or the socket has failed or was shut down, whatever there
    /// still is to read. One waiter at a time, here and in [`Readiness::readable`] together.
    pub async fn hung_up(self: &Rc<Self>, reactor: &Reactor, handle: Handle) {
        poll_fn(|cx| {
            // A failure is left for whoever reads next.
            if self.last.get() || self.failed.get() != 0 {
                return Poll::Ready(());
            }
            self.stand(reactor, handle, cx.waker());
            Poll::Pending
        })
        .await
    }

    /// Has `waker` woken at the next report, and sees to it that there will be one.
    fn stand(self: &Rc<Self>, reactor: &Reactor, handle: Handle, waker: &Waker) {
        self.waiter.replace(Some(waker.clone()));
        if self.standing.get().is_none() {
            // Full: noted, and polled again when a slot frees.
            self.standing.set(reactor.begin_detached(Some(Rc::clone(self)), Op::PollReadable { handle }, Some(waker)));
        }
    }

    /// The socket was shut down from this side: whoever waits needs not wait for the kernel to say so.
    pub fn ended(&self) {
        self.ready.set(true);
        self.last.set(true);
        let waiter = self.waiter.borrow_mut().take();
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }

    /// Ends the standing operation: it holds the socket open until then.
    pub fn stop(&self, reactor: &Reactor) {
        if let Some(token) = self.standing.take() {
            reactor.0.driver.borrow_mut().cancel(token);
        }
    }
}
