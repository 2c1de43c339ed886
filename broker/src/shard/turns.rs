//! Who may go next, when only so many may at once.
//!
//! Holds: turns, given out in the order in which they were asked for. Never touches: what is done in one.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::task::{Poll, Waker};

/// Turns of a shard's tasks, at most so many at once.
#[derive(Debug)]
pub(super) struct Turns {
    at_once: u64,
    asked: Cell<u64>,
    ended: Cell<u64>,
    /// Of those whose turn has not come, the next one first.
    waiting: RefCell<VecDeque<Waker>>,
}

/// A turn; it ends when dropped.
#[derive(Debug)]
pub(super) struct Turn<'a>(&'a Turns);

impl Turns {
    pub(super) const fn new(at_once: u64) -> Self {
        Self { at_once, asked: Cell::new(0), ended: Cell::new(0), waiting: RefCell::new(VecDeque::new()) }
    }

    /// Waits for the turn.
    pub(super) async fn next(&self) -> Turn<'_> {
        let number = self.asked.replace(self.asked.get() + 1);
        // Also if it is dropped before it has come: then a turn too many may run for a while, and nobody waits for ever.
        let turn = Turn(self);
        std::future::poll_fn(|context| {
            let begun = self.ended.get() + self.at_once;
            if number < begun {
                return Poll::Ready(());
            }
            let mut waiting = self.waiting.borrow_mut();
            let place = usize::try_from(number - begun).unwrap_or(usize::MAX);
            match waiting.get_mut(place) {
                Some(waker) => waker.clone_from(context.waker()),
                None => waiting.push_back(context.waker().clone()),
            }
            Poll::Pending
        })
        .await;
        turn
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.ended.set(self.0.ended.get() + 1);
        let next = self.0.waiting.borrow_mut().pop_front();
        if let Some(next) = next {
            next.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future as _;
    use std::pin::pin;
    use std::task::Context;

    #[test]
    fn turns_come_in_the_order_in_which_they_were_asked_for() {
        let turns = Turns::new(2);
        let context = &mut Context::from_waker(Waker::noop());
        let (mut a, mut b, mut c, mut d) =
            (pin!(turns.next()), pin!(turns.next()), pin!(turns.next()), pin!(turns.next()));
        let Poll::Ready(first) = a.as_mut().poll(context) else { panic!("the first waits") };
        let Poll::Ready(second) = b.as_mut().poll(context) else { panic!("the second waits") };
        for _ in 0..2 {
            assert!(c.as_mut().poll(context).is_pending());
            assert!(d.as_mut().poll(context).is_pending());
        }
        drop(second);
        let mut again = pin!(turns.next());
        assert!(again.as_mut().poll(context).is_pending(), "who has just had a turn goes to the end");
        assert!(d.as_mut().poll(context).is_pending());
        let Poll::Ready(third) = c.as_mut().poll(context) else { panic!("the third waits") };
        drop((first, third));
        assert!(d.as_mut().poll(context).is_ready());
        assert!(again.as_mut().poll(context).is_ready());
    }
}
