//! What the machine itself allows: the figure that a workload is set against besides the other broker's.
//!
//! Holds: which limit a workload has, and how it is measured. Never touches: brokers.

use std::path::Path;

use corelog_reactor::Reactor;
use corelog_storage::disk::speed::{Loop, Scratch, Way};

use super::plain_send;
use crate::cli::Compare;
use crate::error::BenchError;
use crate::measure::clock::now_ns;

/// Bytes of the scratch file: more than the disk's own cache takes.
const SCRATCH_BYTES: u64 = 4 << 30;
/// Nanoseconds for each loop over it.
const LOOP_NS: u64 = 3_000_000_000;

/// A kind of limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Durable writes over space that was written before, at the best block size and depth.
    DurableWrites,
    /// The same when that space has to be written first: every byte goes to the disk twice.
    DurableWritesOnFreshSpace,
    /// A plain sender with this many connections.
    PlainSend(usize),
}

/// What a limit came to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// Megabytes (10^6) a second.
    pub mb_per_s: f64,
    /// CPU seconds for each gigabyte (10^9), where that is the sender's to spend.
    pub cpu_s_per_gb: Option<f64>,
}

impl Limit {
    /// In words.
    pub const fn about(self) -> &'static str {
        match self {
            Self::DurableWrites => "durable writes over space written before",
            Self::DurableWritesOnFreshSpace => "durable writes, with the writing of their space",
            Self::PlainSend(_) => "a plain send of as many bytes",
        }
    }
}

/// Measures the limits of a workload, all in one go since they share their loops.
///
/// # Errors
/// The disk failed, or the sender did.
pub fn measure(reactor: &Reactor, options: &Compare, limits: &[Limit]) -> Result<Vec<(Limit, Measured)>, BenchError> {
    let mut measured = Vec::with_capacity(limits.len());
    let mut disk = None;
    for &limit in limits {
        let found = match limit {
            Limit::PlainSend(connections) => plain_send::measure(reactor, options, connections)?,
            Limit::DurableWrites | Limit::DurableWritesOnFreshSpace => {
                let (written, fresh) = match disk {
                    Some(found) => found,
                    None => *disk.insert(disk_rates(reactor, &options.work)?),
                };
                let mb_per_s = match limit {
                    // Each byte is written twice, one after the other on the same disk.
                    Limit::DurableWritesOnFreshSpace => 1.0 / (1.0 / written + 1.0 / fresh),
                    _ => written,
                };
                Measured { mb_per_s, cpu_s_per_gb: None }
            }
        };
        measured.push((limit, found));
    }
    Ok(measured)
}

/// Megabytes a second: durable over written space, and of writing that space.
fn disk_rates(reactor: &Reactor, folder: &Path) -> Result<(f64, f64), BenchError> {
    let rates = reactor.block_on(async {
        let scratch = Scratch::new(reactor, folder, SCRATCH_BYTES, now_ns).await?;
        let rates = async {
            let fresh = scratch.write_fresh().await?.mb_per_s();
            let mut best = 0.0_f64;
            for (block_bytes, depth) in [(1 << 20, 4), (1 << 20, 16), (4 << 20, 4)] {
                let how = Loop { way: Way::DurableOnWritten, block_bytes, depth };
                best = best.max(scratch.measure(how, LOOP_NS).await?.mb_per_s());
            }
            Ok((best, fresh))
        };
        let rates = rates.await;
        scratch.remove().await.and(rates)
    });
    rates.map_err(BenchError::file(folder))
}
