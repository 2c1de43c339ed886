//! One connection of the producing engine: what it has to send, what is open on it, what became of the rest.
//!
//! Holds: its state, and where it begins among the partitions. Never touches: the socket's bytes.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use corelog_reactor::{Notify, Stream};

use super::ride::Absence;
use crate::payload::spec::Random;

/// A connection, and those that came in its place.
pub(super) struct Lane {
    pub number: usize,
    stream: RefCell<Rc<Stream>>,
    pub wake: Notify,
    /// The connection is of no use any more: who sends on it leaves.
    pub broken: Cell<bool>,
    /// Somebody sends on it.
    pub sending: Cell<bool>,
    pub sender_left: Notify,
    pub absence: Absence,
    pub state: RefCell<LaneState>,
}

pub(super) struct LaneState {
    /// When arrivals were due: first those of requests in flight, then those that wait.
    pub arrivals: VecDeque<u64>,
    /// How many of them are in flight.
    pub sent: usize,
    pub flights: VecDeque<Flight>,
    pub next_partition: usize,
    pub next_template: usize,
    pub next_correlation: i32,
    /// For each partition: the next sequence, of the idempotent producer and of the stamps.
    pub sequences: Vec<u64>,
    pub scratch: Vec<u8>,
    /// Chooses keys.
    pub random: Random,
}

/// A request without an answer.
#[derive(Clone, Copy)]
pub(super) struct Flight {
    pub correlation: i32,
    pub partition: usize,
    pub template: usize,
    /// The first record's sequence.
    pub first: u64,
    pub records: usize,
    pub batch_bytes: usize,
    pub arrivals: usize,
    pub sent_ns: u64,
}

impl LaneState {
    /// Of lane `number` of `lanes`, with nothing sent.
    pub fn new(number: usize, lanes: usize, partitions: usize, seed: u64) -> Self {
        Self {
            arrivals: VecDeque::new(),
            sent: 0,
            flights: VecDeque::new(),
            next_partition: first_partition(number, lanes, partitions),
            next_template: number,
            next_correlation: 0,
            sequences: vec![0; partitions],
            scratch: Vec::new(),
            random: Random::new(seed.wrapping_add(number as u64)),
        }
    }
}

impl Flight {
    pub const fn sequences(&self) -> std::ops::Range<u64> {
        self.first..self.first + self.records as u64
    }
}

impl Lane {
    pub fn new(number: usize, stream: Stream, absence: Absence, state: LaneState) -> Self {
        Self {
            number,
            stream: RefCell::new(Rc::new(stream)),
            wake: Notify::new(),
            broken: Cell::new(false),
            sending: Cell::new(false),
            sender_left: Notify::new(),
            absence,
            state: RefCell::new(state),
        }
    }

    pub fn stream(&self) -> Rc<Stream> {
        Rc::clone(&self.stream.borrow())
    }

    /// Goes on with another connection.
    pub fn renew(&self, stream: Stream) {
        self.stream.replace(Rc::new(stream));
        self.broken.set(false);
    }
}

/// Where lane `number` of `lanes` begins its turns over the partitions. Spread out: lanes that began side by side would all go
/// through the same few of many partitions, one behind the other, and leave the others alone for as long.
const fn first_partition(number: usize, lanes: usize, partitions: usize) -> usize {
    (number as u128 * partitions as u128 / lanes as u128) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_reach_every_partition_in_as_many_requests_as_there_are_partitions() {
        for (lanes, partitions) in [(64, 10_000), (64, 16), (8, 16), (7, 100), (1, 5), (5, 5)] {
            let mut reached = vec![0; partitions];
            // Requests of a lane until all lanes together have sent as many as there are partitions.
            let each = partitions.div_ceil(lanes);
            for lane in 0..lanes {
                let first = first_partition(lane, lanes, partitions);
                assert!(first < partitions);
                (0..each).for_each(|turn| reached[(first + turn) % partitions] += 1);
            }
            assert!(reached.iter().all(|count| *count > 0), "{lanes} lanes, {partitions} partitions");
        }
    }
}
