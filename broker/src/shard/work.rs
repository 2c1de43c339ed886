//! How much checking of batches one turn does.
//!
//! Holds: the turn's budgets, and the tasks that wait for the next. Never touches: batches, partitions.
//!
//! A batch is checked where it arrives if that is quick, or else by a task, slice by slice. Neither may hold the core:
//! whoever sends a hundred large batches in one request, or a decompression bomb to each of a hundred partitions, must not
//! delay the requests of others by more than about a millisecond. So both draw from a budget that each turn renews; they
//! have one each, so that a queue of slices does not delay small batches.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// Bytes of one slice. 64 KiB of decompressing and walking are about 0.1 ms.
pub const SLICE_BYTES: usize = 64 << 10;
/// Slices of all tasks together in a turn: about 0.4 ms.
const SLICES_PER_TURN: usize = 4;
/// Bytes checked at once, where they arrive, in a turn: about 0.8 ms. Later ones are checked in slices.
const AT_ONCE_BYTES_PER_TURN: usize = 512 << 10;

/// The budgets of one shard's turn.
#[derive(Debug)]
pub struct Work {
    at_once_left: Cell<usize>,
    slices_left: Cell<usize>,
    /// Tasks that want a slice, in order. Bounded: one a partition.
    waiting: RefCell<VecDeque<Waker>>,
}

impl Default for Work {
    fn default() -> Work {
        Work {
            at_once_left: Cell::new(AT_ONCE_BYTES_PER_TURN),
            slices_left: Cell::new(SLICES_PER_TURN),
            waiting: RefCell::default(),
        }
    }
}

impl Work {
    /// Bytes that may still be checked at once in this turn.
    pub fn at_once_left(&self) -> usize {
        self.at_once_left.get()
    }

    /// Bytes have been checked at once.
    pub fn done_at_once(&self, bytes: usize) {
        self.at_once_left.set(self.at_once_left.get().saturating_sub(bytes));
    }

    /// Waits for its turn to do a slice of work: first come, first served.
    pub async fn slice(&self) {
        let mut is_queued = false;
        poll_fn(|context| {
            if is_queued {
                // Woken by `renew`, which counted this slice.
                return Poll::Ready(());
            }
            let mut waiting = self.waiting.borrow_mut();
            if waiting.is_empty() && self.slices_left.get() > 0 {
                self.slices_left.set(self.slices_left.get() - 1);
                return Poll::Ready(());
            }
            waiting.push_back(context.waker().clone());
            is_queued = true;
            Poll::Pending
        })
        .await;
    }

    /// A new turn: fresh budgets. Tasks that are woken here keep the shard from sleeping.
    pub fn renew(&self) {
        self.at_once_left.set(AT_ONCE_BYTES_PER_TURN);
        let mut left = SLICES_PER_TURN;
        while left > 0 {
            // The borrow ends before the waker is called.
            let Some(waker) = self.waiting.borrow_mut().pop_front() else { break };
            waker.wake();
            left -= 1;
        }
        self.slices_left.set(left);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake};

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn slices_go_round_in_order_and_no_more_than_a_turns_worth_at_once() {
        let work = Work::default();
        let woken: Vec<Arc<Woken>> = (0..10).map(|_| Arc::default()).collect();
        let mut tasks: Vec<Pin<Box<dyn Future<Output = ()> + '_>>> =
            (0..10).map(|_| Box::pin(work.slice()) as Pin<Box<dyn Future<Output = ()> + '_>>).collect();
        let mut poll = |task: usize| {
            let waker = Waker::from(Arc::clone(&woken[task]));
            tasks[task].as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
        };
        let ready: Vec<bool> = (0..10).map(&mut poll).collect();
        assert_eq!(ready.iter().filter(|ready| **ready).count(), SLICES_PER_TURN);
        assert!(ready[..SLICES_PER_TURN].iter().all(|ready| *ready), "the first ones");
        for turn in 1..=2 {
            work.renew();
            let so_far: usize = woken.iter().map(|woken| woken.0.load(Ordering::Relaxed)).sum();
            assert_eq!(so_far, (turn * SLICES_PER_TURN).min(10 - SLICES_PER_TURN));
            for task in turn * SLICES_PER_TURN..((turn + 1) * SLICES_PER_TURN).min(10) {
                assert!(poll(task), "task {task} in turn {turn}");
            }
        }
        assert_eq!(work.slices_left.get(), 2 * SLICES_PER_TURN - (10 - SLICES_PER_TURN), "what nobody wanted is left");
    }

    #[test]
    fn what_is_checked_at_once_is_bounded_by_the_turn() {
        let work = Work::default();
        work.done_at_once(AT_ONCE_BYTES_PER_TURN - 1);
        assert_eq!(work.at_once_left(), 1);
        work.done_at_once(1 << 20);
        assert_eq!(work.at_once_left(), 0);
        work.renew();
        assert_eq!(work.at_once_left(), AT_ONCE_BYTES_PER_TURN);
    }
}
