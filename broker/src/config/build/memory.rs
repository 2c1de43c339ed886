//! How much memory the cores get, and how much of it is tail cache.
//!
//! Holds: the defaults that depend on the machine and on each other, and the sum that must fit. Never touches: the pools.

use super::super::broker::Host;
use super::super::problem::Problem;
use super::Reader;

/// The property of one core's memory.
pub(super) const PER_CORE: &str = "corelog.memory.bytes.per.core";
/// The property of the part of it that is tail cache.
pub(super) const TAIL_CACHE: &str = "corelog.tail.cache.bytes.per.core";
/// The least that a core works with, and the property takes.
const BYTES_MIN: u64 = 16 << 20;
const MIB: u64 = 1 << 20;

/// What each core gets.
pub(super) struct Memory {
    pub per_core: u64,
    pub tail_cache: u64,
}

/// Reads and checks it. All cores' memory together must fit the machine's: what is set is refused if it does not; what is not
/// set becomes less, so that all cores take half of the memory at most.
pub(super) fn read(reader: &Reader<'_>, host: &Host, shards: usize, problems: &mut Vec<Problem>) -> Memory {
    let shards = u64::try_from(shards).unwrap_or(u64::MAX).max(1);
    let default = reader.count(PER_CORE);
    let per_core = match host.memory_bytes {
        Some(there) if !reader.is_set(PER_CORE) => {
            (there / 2 / shards / MIB * MIB).clamp(BYTES_MIN, default.max(BYTES_MIN))
        }
        Some(_) | None => default,
    };
    let sum = per_core.saturating_mul(shards);
    if let Some(there) = host.memory_bytes.filter(|there| sum > *there) {
        let reason = format!(
            "{PER_CORE} is {per_core}: for {shards} shards that is {} MiB, and there are {} MiB on this machine",
            sum / MIB,
            there / MIB
        );
        let each = there / 10 * 9 / shards / MIB * MIB;
        let fix = if each < BYTES_MIN {
            format!("Set corelog.shards to {} or less.", (there / 2 / BYTES_MIN).max(1))
        } else {
            format!("Set it to {each} or less, or corelog.shards lower.")
        };
        let name = if reader.is_set(PER_CORE) { PER_CORE } else { "corelog.shards" };
        problems.push(reader.problem(name, reason, &fix));
    }
    let tail_cache = match reader.optional_long(TAIL_CACHE) {
        Some(bytes) => u64::try_from(bytes).unwrap_or(0),
        None => per_core / 2,
    };
    if tail_cache > per_core {
        let reason = format!("{TAIL_CACHE} ({tail_cache}) is more than {PER_CORE} ({per_core}), which it is a part of");
        let fix = format!("Leave it out: it is half of {PER_CORE} then. Or lower the one, or raise the other.");
        problems.push(reader.problem(TAIL_CACHE, reason, &fix));
    }
    Memory { per_core, tail_cache }
}
