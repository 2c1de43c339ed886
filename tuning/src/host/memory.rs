//! Memory: enough of it, in large pages, and not on a disk.
//!
//! Holds: the checks of memory. Never touches: settings, the pools.

use super::{Facts, Outcome, chosen, costs, fine};

/// Of a machine's memory, the share that buffers may take. The rest is for the kernel, page tables, the heap.
const SHARE_PERCENT: u64 = 90;
/// Swapping readily, from here on.
const SWAPPINESS_MAX: u64 = 10;

/// The memory there is, and whose limit that is.
pub(super) fn there(facts: &Facts<'_>) -> Option<(u64, &'static str)> {
    let about = facts.read("proc/meminfo")?;
    let total = about.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let total_kib: u64 = total.split_whitespace().next()?.parse().ok()?;
    let groups = facts.groups();
    let limit = groups.iter().filter_map(|group| facts.number(&format!("{group}/memory.max"))).min();
    Some(match limit {
        Some(limit) if limit < total_kib << 10 => (limit, "the control group"),
        Some(_) | None => (total_kib << 10, "the machine"),
    })
}

/// The pools' budgets, against the memory there is.
pub(super) fn budget(facts: &Facts<'_>) -> Option<Outcome> {
    let (there, whose) = there(facts)?;
    let wanted = facts.wants.memory_bytes;
    let what = format!("buffers of up to {} MiB, {whose} has {} MiB", wanted >> 20, there >> 20);
    if wanted <= there / 100 * SHARE_PERCENT {
        return fine(what);
    }
    let shards = facts.wants.shards.max(1) as u64;
    let each = (there / 100 * SHARE_PERCENT / shards) >> 20 << 20;
    costs(
        what,
        "under load the kernel may end the broker for want of memory",
        format!("set corelog.memory.bytes.per.core={each} or less"),
    )
}

/// Buffers want huge pages: they ask for them with madvise, which `never` ignores.
pub(super) fn huge_pages(facts: &Facts<'_>) -> Option<Outcome> {
    let modes = facts.read("sys/kernel/mm/transparent_hugepage/enabled")?;
    match chosen(&modes)? {
        "never" => costs(
            "transparent huge pages are off".into(),
            "sending from memory costs about a tenth more CPU",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        ),
        mode => fine(mode),
    }
}

/// A buffer that was swapped out stops its core until it is back.
pub(super) fn swap(facts: &Facts<'_>) -> Option<Outcome> {
    let swaps = facts.read("proc/swaps")?;
    if swaps.lines().count() <= 1 {
        return fine("none");
    }
    let swappiness = facts.number("proc/sys/vm/swappiness")?;
    if swappiness <= SWAPPINESS_MAX {
        return fine(format!("on, vm.swappiness is {swappiness}"));
    }
    costs(
        format!("swap is on and vm.swappiness is {swappiness}"),
        "a core that touches swapped memory stands still for milliseconds",
        "swapoff -a, or sysctl -w vm.swappiness=1",
    )
}
