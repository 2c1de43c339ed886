//! A wake-up between two tasks of one shard.
//!
//! Holds: one permit and one waiter. Never touches: other threads.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Remembers one notification for one waiting task. Put it in an `Rc` to share it.
#[derive(Default)]
pub struct Notify {
    permit: Cell<bool>,
    waiter: RefCell<Option<Waker>>,
}

impl Notify {
    /// Nothing notified yet.
    pub fn new() -> Notify {
        Notify::default()
    }

    /// Lets the waiting task go on, or else the next one that waits. Several before that are one.
    pub fn notify(&self) {
        self.permit.set(true);
        let waiter = self.waiter.borrow_mut().take();
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }

    /// Whether a notification waits to be taken.
    pub fn is_notified(&self) -> bool {
        self.permit.get()
    }

    /// Takes a waiting notification.
    pub fn take(&self) -> bool {
        self.permit.take()
    }

    /// Waits for a notification and takes it. One task at a time: a second waiter takes the first one's place.
    /// Dropping the future loses no notification.
    pub fn notified(&self) -> Notified<'_> {
        Notified { notify: self }
    }
}

/// Made by [`Notify::notified`].
#[must_use = "futures do nothing unless polled"]
pub struct Notified<'a> {
    notify: &'a Notify,
}

impl Future for Notified<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.notify.permit.take() {
            return Poll::Ready(());
        }
        self.notify.waiter.replace(Some(cx.waker().clone()));
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll(future: &mut Notified<'_>) -> Poll<()> {
        Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_notification_before_the_wait_is_remembered_once() {
        let notify = Notify::new();
        notify.notify();
        notify.notify();
        assert!(poll(&mut notify.notified()).is_ready());
        assert!(poll(&mut notify.notified()).is_pending());
    }

    #[test]
    fn a_dropped_waiter_does_not_take_the_notification_along() {
        let notify = Notify::new();
        let mut waiting = notify.notified();
        assert!(poll(&mut waiting).is_pending());
        notify.notify();
        drop(waiting);
        assert!(poll(&mut notify.notified()).is_ready());
    }
}
