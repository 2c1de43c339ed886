//! Deadlines and the futures that wait for them.
//!
//! Holds: an indexed binary heap with cancellation, and the sleep future. Never touches: a clock.
//!
//! The heap keeps its room: once warm, neither sleeping nor cancelling allocates. Its size is bounded by the futures
//! that own its entries: a dropped sleep takes its entry out at once.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crate::reactor::Reactor;
use crate::time::Monotonic;

/// Names an entry; stale once the entry fired or was cancelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TimerKey {
    slot: u32,
    /// Order of registration: breaks ties, so that equal deadlines fire first come, first served.
    sequence: u64,
}

struct Entry {
    deadline: Monotonic,
    sequence: u64,
    heap_position: u32,
    waker: Option<Waker>,
}

/// All deadlines of one reactor.
#[derive(Default)]
pub(crate) struct Timers {
    heap: Vec<u32>,
    entries: Vec<Entry>,
    free: Vec<u32>,
    next_sequence: u64,
}

impl Timers {
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// The earliest deadline, or [`Monotonic::MAX`].
    pub fn next_deadline(&self) -> Monotonic {
        self.heap.first().map_or(Monotonic::MAX, |&slot| self.order(slot).0)
    }

    pub fn insert(&mut self, deadline: Monotonic, waker: Waker) -> TimerKey {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        let heap_position = self.heap.len() as u32;
        let entry = Entry { deadline, sequence, heap_position, waker: Some(waker) };
        let slot = match self.free.pop() {
            Some(slot) => {
                if let Some(old) = self.entries.get_mut(slot as usize) {
                    *old = entry;
                }
                slot
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        };
        self.heap.push(slot);
        self.sift_up(heap_position as usize);
        TimerKey { slot, sequence }
    }

    /// Replaces the waker of an entry that has not fired. False: it has.
    pub fn set_waker(&mut self, key: TimerKey, waker: &Waker) -> bool {
        match self.entries.get_mut(key.slot as usize) {
            Some(Entry { sequence, waker: Some(held), .. }) if *sequence == key.sequence => {
                held.clone_from(waker);
                true
            }
            _ => false,
        }
    }

    pub fn cancel(&mut self, key: TimerKey) {
        if let Some(entry) = self.entries.get(key.slot as usize)
            && entry.sequence == key.sequence
            && entry.waker.is_some()
        {
            let position = entry.heap_position as usize;
            self.remove_at(position);
        }
    }

    /// The waker of the earliest entry if it is due at `now`; call until None.
    pub fn pop_due(&mut self, now: Monotonic) -> Option<Waker> {
        if self.next_deadline() > now || self.heap.is_empty() {
            return None;
        }
        self.remove_at(0)
    }

    fn order(&self, slot: u32) -> (Monotonic, u64) {
        self.entries.get(slot as usize).map_or((Monotonic::MAX, u64::MAX), |e| (e.deadline, e.sequence))
    }

    fn at(&self, position: usize) -> Option<(Monotonic, u64)> {
        self.heap.get(position).map(|&slot| self.order(slot))
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        for position in [a, b] {
            let slot = self.heap.get(position).copied();
            if let Some(entry) = slot.and_then(|slot| self.entries.get_mut(slot as usize)) {
                entry.heap_position = position as u32;
            }
        }
    }

    fn remove_at(&mut self, position: usize) -> Option<Waker> {
        let last = self.heap.len().checked_sub(1)?;
        if position != last {
            self.swap(position, last);
        }
        let slot = self.heap.pop()?;
        if position != last {
            self.sift_down(position);
            self.sift_up(position);
        }
        self.free.push(slot);
        self.entries.get_mut(slot as usize)?.waker.take()
    }

    fn sift_up(&mut self, mut position: usize) {
        while position > 0 {
            let parent = (position - 1) / 2;
            if self.at(parent) <= self.at(position) {
                break;
            }
            self.swap(parent, position);
            position = parent;
        }
    }

    fn sift_down(&mut self, mut position: usize) {
        loop {
            let (left, right) = (2 * position + 1, 2 * position + 2);
            let Some(mut least_order) = self.at(left) else {
                break;
            };
            let mut least = left;
            if let Some(order) = self.at(right)
                && order < least_order
            {
                (least, least_order) = (right, order);
            }
            if self.at(position) <= Some(least_order) {
                break;
            }
            self.swap(position, least);
            position = least;
        }
    }
}

/// Completes at a deadline; made by [`Reactor::sleep`] and [`Reactor::sleep_until`].
#[must_use = "futures do nothing unless polled"]
pub struct Sleep {
    reactor: Reactor,
    deadline: Monotonic,
    key: Option<TimerKey>,
}

impl Sleep {
    pub(crate) fn new(reactor: Reactor, deadline: Monotonic) -> Sleep {
        Sleep { reactor, deadline, key: None }
    }

    /// When it completes.
    pub fn deadline(&self) -> Monotonic {
        self.deadline
    }

    /// Moves the deadline; a waiting task waits for the new one once it polls again.
    pub fn reset(&mut self, deadline: Monotonic) {
        self.disarm();
        self.deadline = deadline;
    }

    fn disarm(&mut self) {
        if let Some(key) = self.key.take() {
            self.reactor.0.timers.borrow_mut().cancel(key);
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.reactor.now() >= self.deadline {
            self.disarm();
            return Poll::Ready(());
        }
        let mut timers = self.reactor.0.timers.borrow_mut();
        let armed = self.key.is_some_and(|key| timers.set_waker(key, cx.waker()));
        let key = if armed { self.key } else { Some(timers.insert(self.deadline, cx.waker().clone())) };
        drop(timers);
        self.key = key;
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.disarm();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(nanos: u64) -> Monotonic {
        Monotonic::from_nanos(nanos)
    }

    #[test]
    fn a_cancelled_timer_leaves_nothing_behind_and_its_key_is_stale() {
        let mut timers = Timers::default();
        let key = timers.insert(at(5), Waker::noop().clone());
        timers.cancel(key);
        assert_eq!((timers.len(), timers.next_deadline()), (0, Monotonic::MAX));
        let other = timers.insert(at(6), Waker::noop().clone());
        timers.cancel(key);
        assert_eq!(timers.len(), 1, "a stale key must not cancel the slot's next owner");
        assert!(timers.set_waker(other, Waker::noop()));
        assert!(timers.pop_due(at(6)).is_some());
        assert!(!timers.set_waker(other, Waker::noop()));
    }

    proptest! {
        #[test]
        fn the_heap_agrees_with_a_sorted_list(steps in prop::collection::vec((0u64..50, any::<bool>(), any::<prop::sample::Index>()), 1..200)) {
            let mut timers = Timers::default();
            let mut model: Vec<(Monotonic, u64, TimerKey)> = Vec::new();
            for (nanos, cancel, which) in steps {
                if cancel && !model.is_empty() {
                    let (_, _, key) = model.remove(which.index(model.len()));
                    timers.cancel(key);
                } else {
                    let key = timers.insert(at(nanos), Waker::noop().clone());
                    model.push((at(nanos), key.sequence, key));
                }
                model.sort_by_key(|(deadline, sequence, _)| (*deadline, *sequence));
                prop_assert_eq!(timers.len(), model.len());
                prop_assert_eq!(timers.next_deadline(), model.first().map_or(Monotonic::MAX, |m| m.0));
            }
            for (deadline, _, _) in model {
                prop_assert_eq!(timers.next_deadline(), deadline);
                prop_assert!(timers.pop_due(deadline).is_some());
            }
            prop_assert!(timers.pop_due(Monotonic::MAX).is_none());
        }
    }
}
