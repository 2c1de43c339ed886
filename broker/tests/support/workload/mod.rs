//! Holds: numbered payloads, and the ledger of what a broker has promised about them: acknowledged, or shown to a consumer.
//! Never touches: the network (`load.rs`, `watch.rs` and `verify.rs` do, through librdkafka).
//!
//! Payload number `n` belongs to partition `n % partitions` and is the `n / partitions`-th there (its index). A producer sends each
//! partition's payloads in the order of their index.

mod check;
mod load;
mod text;
mod verify;
mod watch;

use std::borrow::Cow;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use check::{Finding, PartitionCheck};
pub use load::{Load, LoadOptions, client_config};
pub use text::Text;
pub use verify::{Verified, consumer, verify, verify_or_panic};
pub use watch::Watcher;

use super::random::Random;

/// Where payloads come from; the same number gives the same bytes, whenever it is asked for.
pub trait Source: Send + Sync + 'static {
    /// The payload `number`.
    fn payload(&self, number: u64) -> Cow<'_, [u8]>;

    /// The number that a payload carries; `None` if it can't be one of these payloads.
    fn number_of(&self, payload: &[u8]) -> Option<u64>;
}

/// Made-up payloads: 8 bytes of number, then bytes that follow from it; their lengths vary up to a bound.
#[derive(Clone, Copy, Debug)]
pub struct MadeUp {
    /// Changes all bytes.
    pub seed: u64,
    /// Longest payload, at least 9.
    pub bytes_max: usize,
}

impl Source for MadeUp {
    fn payload(&self, number: u64) -> Cow<'_, [u8]> {
        let mut random = Random::new(self.seed ^ number.wrapping_mul(0x0001_0000_0001_B3B1));
        let len = 1 + random.below(self.bytes_max as u64 - 8) as usize;
        let mut bytes = number.to_be_bytes().to_vec();
        bytes.extend(random.bytes(len));
        Cow::Owned(bytes)
    }

    fn number_of(&self, payload: &[u8]) -> Option<u64> {
        payload.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
    }
}

/// Not acknowledged so far.
const OPEN: i64 = -1;
/// Acknowledged, but the answer did not say at which offset (a duplicate of a batch that the broker no longer remembers singly).
const SOMEWHERE: i64 = -2;

/// What was promised about one partition.
#[derive(Clone, Debug, Default)]
pub struct Promises {
    /// By index: the offset that was acknowledged, or one of the marks above.
    acked: Vec<i64>,
    /// By offset: the index of the payload that a consumer was shown there (`u64::MAX`: none).
    shown: Vec<u64>,
    /// How many were acknowledged.
    pub acked_count: u64,
}

impl Promises {
    /// The offset at which the payload was acknowledged: `None` if it was not, `Some(None)` if at an unknown one.
    pub fn acked(&self, index: u64) -> Option<Option<i64>> {
        match self.acked.get(index as usize).copied().unwrap_or(OPEN) {
            OPEN => None,
            SOMEWHERE => Some(None),
            offset => Some(Some(offset)),
        }
    }

    /// The index of the payload that a consumer was shown at `offset`.
    pub fn shown(&self, offset: i64) -> Option<u64> {
        self.shown.get(usize::try_from(offset).ok()?).copied().filter(|&index| index != u64::MAX)
    }

    /// One past the highest offset that a consumer was shown.
    pub fn shown_end(&self) -> i64 {
        self.shown.len() as i64
    }

    /// The acknowledged payloads: index and offset, if known.
    pub fn acked_all(&self) -> impl Iterator<Item = (u64, Option<i64>)> + '_ {
        (0..self.acked.len() as u64).filter_map(|index| self.acked(index).map(|offset| (index, offset)))
    }
}

/// All promises about a topic.
#[derive(Debug)]
pub struct Ledger {
    partitions: Vec<Mutex<Promises>>,
    failures: Mutex<Vec<String>>,
}

impl Ledger {
    /// Nothing promised yet.
    pub fn new(partitions: usize) -> Ledger {
        Ledger { partitions: (0..partitions).map(|_| Mutex::default()).collect(), failures: Mutex::default() }
    }

    /// How many partitions the topic has.
    pub fn partitions(&self) -> usize {
        self.partitions.len()
    }

    /// The promises about a partition so far.
    pub fn of(&self, partition: usize) -> MutexGuard<'_, Promises> {
        self.partitions[partition].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The partition and index of a payload number.
    pub fn place(&self, number: u64) -> (usize, u64) {
        let partitions = self.partitions.len() as u64;
        ((number % partitions) as usize, number / partitions)
    }

    /// Notes an acknowledgement; a negative offset is one that the answer did not give.
    pub fn acknowledge(&self, number: u64, offset: i64) {
        let (partition, index) = self.place(number);
        let mut promises = self.of(partition);
        let index = index as usize;
        if promises.acked.len() <= index {
            promises.acked.resize(index + 1, OPEN);
        }
        promises.acked_count += u64::from(promises.acked[index] == OPEN);
        promises.acked[index] = if offset < 0 { SOMEWHERE } else { offset };
    }

    /// Notes that a consumer was shown a payload.
    pub fn show(&self, partition: usize, offset: i64, number: u64) {
        let mut promises = self.of(partition);
        let place = usize::try_from(offset).expect("offsets are not negative");
        if promises.shown.len() <= place {
            promises.shown.resize(place + 1, u64::MAX);
        }
        promises.shown[place] = number / self.partitions.len() as u64;
    }

    /// Notes what a producer or consumer was refused for good.
    pub fn fail(&self, what: String) {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    /// What was refused for good.
    pub fn failures(&self) -> Vec<String> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many payloads were acknowledged, over all partitions.
    pub fn acked_count(&self) -> u64 {
        (0..self.partitions.len()).map(|partition| self.of(partition).acked_count).sum()
    }
}
