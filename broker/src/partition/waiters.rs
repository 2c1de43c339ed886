//! Produces of one partition that wait to become durable.
//!
//! Holds: for each waiting produce the offset that must be acknowledged and whom to tell, in offset order. Never
//! touches: the log, shards, connections. Waiting is on offsets, not on operations: whichever write moves the
//! acknowledged end past a produce's end answers it.

use std::collections::VecDeque;

use corelog_storage::ids::Offset;

/// Produces in offset order. Bounded: each waiting produce belongs to a request in flight, and those are bounded by connection.
#[derive(Debug)]
pub struct ProduceWaiters<W> {
    queue: VecDeque<(Offset, W)>,
}

impl<W> Default for ProduceWaiters<W> {
    fn default() -> Self {
        ProduceWaiters { queue: VecDeque::new() }
    }
}

impl<W> ProduceWaiters<W> {
    /// `who` waits until everything below `end` is acknowledged. Most ends arrive in order; a recognised duplicate may
    /// wait for an older end, which an earlier entry covers soon enough: it is put where it belongs.
    pub fn wait(&mut self, end: Offset, who: W) {
        let at = self.queue.iter().rposition(|(other, _)| *other <= end).map_or(0, |before| before + 1);
        self.queue.insert(at, (end, who));
    }

    /// The next produce whose end is at or below `acknowledged`.
    pub fn pop(&mut self, acknowledged: Offset) -> Option<W> {
        let (end, _) = self.queue.front()?;
        if *end > acknowledged {
            return None;
        }
        self.queue.pop_front().map(|(_, who)| who)
    }

    /// The next produce, acknowledged or not: for a partition that can't acknowledge any more.
    pub fn pop_any(&mut self) -> Option<W> {
        self.queue.pop_front().map(|(_, who)| who)
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn produces_are_answered_in_offset_order_up_to_the_acknowledged_end() {
        let mut waiters = ProduceWaiters::default();
        for end in [10, 20, 30] {
            waiters.wait(Offset(end), end);
        }
        assert_eq!(waiters.pop(Offset(9)), None);
        assert_eq!(waiters.pop(Offset(20)), Some(10));
        assert_eq!(waiters.pop(Offset(20)), Some(20));
        assert_eq!(waiters.pop(Offset(20)), None);
        assert_eq!(waiters.len(), 1);
    }

    #[test]
    fn a_duplicate_that_waits_for_an_older_end_does_not_hide_behind_a_newer_one() {
        let mut waiters = ProduceWaiters::default();
        waiters.wait(Offset(30), "new");
        waiters.wait(Offset(10), "duplicate of an old batch");
        assert_eq!(waiters.pop(Offset(10)), Some("duplicate of an old batch"));
        assert_eq!(waiters.pop(Offset(29)), None);
        assert_eq!(waiters.pop_any(), Some("new"));
        assert!(waiters.is_empty());
    }
}
