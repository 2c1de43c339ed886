//! Sets of sequence numbers, kept as ranges: what is missing after a loss, what was never answered.
//!
//! Holds: ranges that neither touch nor overlap. Never touches: what the numbers stand for. A set takes memory by its gaps,
//! not by its numbers: a hundred million records without a gap are one range.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::rc::Rc;

/// A set of numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Puts all of `range` in.
    pub fn add(&mut self, range: Range<u64>) {
        let (mut start, mut end) = (range.start, range.end);
        if start >= end {
            return;
        }
        // Those that it touches or overlaps become part of it.
        while let Some((&from, &to)) = self.0.range(..=end).next_back().filter(|(_, to)| **to >= start) {
            (start, end) = (start.min(from), end.max(to));
            self.0.remove(&from);
        }
        self.0.insert(start, end);
    }

    /// Takes one number out; whether it was in.
    pub fn remove(&mut self, number: u64) -> bool {
        let found = self.0.range(..=number).next_back().filter(|(_, to)| **to > number);
        let Some((&from, &to)) = found else { return false };
        self.0.remove(&from);
        self.add(from..number);
        if number + 1 < to {
            self.0.insert(number + 1, to);
        }
        true
    }

    /// How many ranges it takes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing is in.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many numbers are in.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|(from, to)| to - from).sum()
    }

    /// How many numbers of `range` are in.
    pub fn within(&self, range: Range<u64>) -> u64 {
        if range.start >= range.end {
            return 0;
        }
        let first = self.0.range(..=range.start).next_back().map_or(range.start, |(from, _)| *from);
        let pieces = self.0.range(first..range.end);
        pieces.map(|(from, to)| (*to).min(range.end).saturating_sub((*from).max(range.start))).sum()
    }

    /// How many numbers below `end` are in both.
    pub fn shared(&self, other: &Self, end: u64) -> u64 {
        let (few, many) = if self.len() <= other.len() { (self, other) } else { (other, self) };
        few.0.iter().map(|(from, to)| many.within(*from..(*to).min(end))).sum()
    }
}

/// Records that were sent and never answered, by partition and lane: each may be there once, or not.
#[derive(Clone, Default)]
pub struct Unanswered(Rc<RefCell<HashMap<(u32, u32), Ranges>>>);

impl Unanswered {
    /// No answer will come for these.
    pub fn add(&self, partition: u32, lane: u32, sequences: Range<u64>) {
        self.0.borrow_mut().entry((partition, lane)).or_default().add(sequences);
    }

    /// Those of a stream.
    pub fn with<T>(&self, partition: u32, lane: u32, look: impl FnOnce(&Ranges) -> T) -> T {
        look(self.0.borrow().get(&(partition, lane)).unwrap_or(&Ranges::default()))
    }

    /// How many there are in all.
    pub fn count(&self) -> u64 {
        self.0.borrow().values().map(Ranges::count).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::payload::spec::Random;

    #[test]
    fn ranges_are_the_set_of_their_numbers_whatever_is_put_in_and_taken_out() {
        let mut random = Random::new(7);
        for _ in 0..200 {
            let (mut ranges, mut numbers) = (Ranges::default(), BTreeSet::new());
            let mut other = Ranges::default();
            other.add(10..20);
            other.add(30..31);
            for _ in 0..60 {
                let start = random.below(60);
                if random.below(2) == 0 {
                    let end = start + random.below(9);
                    ranges.add(start..end);
                    numbers.extend(start..end);
                } else {
                    assert_eq!(ranges.remove(start), numbers.remove(&start));
                }
                assert_eq!(ranges.count(), numbers.len() as u64);
                let end = start + random.below(30);
                assert_eq!(ranges.within(start..end), numbers.range(start..end).count() as u64);
                let both = numbers.range(..end).filter(|number| (10..20).contains(*number) || **number == 30).count();
                assert_eq!((ranges.shared(&other, end), other.shared(&ranges, end)), (both as u64, both as u64));
                let gaps = numbers.iter().filter(|number| !numbers.contains(&(*number + 1))).count();
                assert_eq!(ranges.len(), gaps, "ranges that touch are one");
            }
        }
    }

    #[test]
    fn a_hundred_million_numbers_in_a_row_are_one_range() {
        let mut ranges = Ranges::default();
        (0..100_000_000_u64).step_by(1_000_000).for_each(|start| ranges.add(start..start + 1_000_000));
        assert_eq!((ranges.len(), ranges.count()), (1, 100_000_000));
    }
}
