//! What the kernel allows a process, and the sockets.
//!
//! Holds: the checks of limits. Never touches: settings; the raising of the soft limit (the broker's start does that).

use super::{Facts, Outcome, costs, fine};

/// Descriptors beside connections and segments: rings, event counters, listeners, checkpoints, cold segments.
const OTHER_FILES: u64 = 256;
/// Files of a partition: its active segment, and one that is being sealed or read.
const FILES_PER_PARTITION: u64 = 2;
/// What kernels that charge rings to the limit want for a shard's ring.
const RING_BYTES: u64 = 1 << 20;

/// The hard value of a limit of this process; None within: unlimited.
fn hard_limit(facts: &Facts<'_>, name: &str) -> Option<Option<u64>> {
    let limits = facts.read("proc/self/limits")?;
    let row = limits.lines().find_map(|line| line.strip_prefix(name))?;
    match row.split_whitespace().nth(1)? {
        "unlimited" => Some(None),
        number => number.parse().ok().map(Some),
    }
}

/// A descriptor for each connection and for each open segment.
pub(super) fn open_files(facts: &Facts<'_>) -> Option<Outcome> {
    let wants = facts.wants;
    let wanted = wants.connections_max + FILES_PER_PARTITION * wants.partitions + OTHER_FILES;
    match hard_limit(facts, "Max open files")? {
        None => fine("unlimited"),
        Some(limit) if limit >= wanted => fine(format!("{limit}, of which {wanted} may be used")),
        Some(limit) => costs(
            format!(
                "{limit} open files are allowed; {} connections and {} partitions may want {wanted}",
                wants.connections_max, wants.partitions
            ),
            "past the limit connections are turned away and segments can't be opened",
            format!(
                "ulimit -Hn {wanted} (systemd: LimitNOFILE={wanted}), or lower max.connections or corelog.connections.per.core.max"
            ),
        ),
    }
}

/// Older kernels charge a ring's own memory to this limit.
pub(super) fn locked_memory(facts: &Facts<'_>) -> Option<Outcome> {
    let wanted = RING_BYTES * facts.wants.shards.max(1) as u64;
    match hard_limit(facts, "Max locked memory")? {
        None => fine("unlimited"),
        Some(limit) if limit >= wanted => fine(format!("{} KiB", limit >> 10)),
        Some(limit) => costs(
            format!("{} KiB of memory may be locked", limit >> 10),
            "the kernel may refuse a shard its ring, and the broker then doesn't start",
            format!("ulimit -Hl {} (systemd: LimitMEMLOCK=infinity)", wanted >> 10),
        ),
    }
}

/// `socket.listen.backlog.size` is cut to this without a word.
pub(super) fn listen_backlog(facts: &Facts<'_>) -> Option<Outcome> {
    let allowed = facts.number("proc/sys/net/core/somaxconn")?;
    let wanted = u64::from(facts.wants.listen_backlog);
    if allowed >= wanted {
        return fine(format!("net.core.somaxconn is {allowed}, socket.listen.backlog.size {wanted}"));
    }
    costs(
        format!("net.core.somaxconn is {allowed}, socket.listen.backlog.size {wanted}"),
        "clients that connect at once, as after a restart, wait a second and more for another try",
        format!("sysctl -w net.core.somaxconn={wanted}"),
    )
}
