//! A condition that several tasks of one shard wait for.
//!
//! Holds: the wakers. Never touches: other threads; the condition itself (each waiter brings its own).

use std::cell::RefCell;
use std::future::Future;
use std::task::{Poll, Waker};

/// Wakes everybody who waits, who then look for themselves.
#[derive(Default)]
pub(crate) struct Event {
    waiting: RefCell<Vec<Waker>>,
}

impl Event {
    /// Something may have changed.
    pub(crate) fn fire(&self) {
        let waiting = self.waiting.take();
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Waits until `look` finds something.
    pub(crate) fn until<'a, T: 'a>(&'a self, mut look: impl FnMut() -> Option<T> + 'a) -> impl Future<Output = T> + 'a {
        std::future::poll_fn(move |cx| {
            if let Some(found) = look() {
                return Poll::Ready(found);
            }
            let mut waiting = self.waiting.borrow_mut();
            if !waiting.iter().any(|w| w.will_wake(cx.waker())) {
                waiting.push(cx.waker().clone());
            }
            Poll::Pending
        })
    }
}
