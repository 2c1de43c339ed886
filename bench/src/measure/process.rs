//! What a process uses, read from /proc by pid.
//!
//! Holds: a sample, and the difference of two. Never touches: how the process came to be.
//!
//! CPU seconds are those of the whole process, its io-wq workers included: the kernel counts them as its threads. The
//! kernel's own work for it outside of its threads (interrupts, kworkers, the journal) belongs to nobody and is missing for
//! every broker alike.

use std::collections::BTreeMap;
use std::fs;
use std::net::ToSocketAddrs;

use serde::{Deserialize, Serialize};

/// A reading.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    user_s: f64,
    system_s: f64,
    resident_bytes: u64,
    written_bytes: u64,
    /// Context switches of each thread that lives, by its number.
    switches: BTreeMap<u32, u64>,
    threads: u64,
}

/// What a process used between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// CPU seconds in user space.
    pub user_s: f64,
    /// CPU seconds in the kernel.
    pub system_s: f64,
    /// Both.
    pub cpu_s: f64,
    /// Resident bytes at the end.
    pub resident_bytes: u64,
    /// Bytes sent to the block layer (`write_bytes`): the file system's own blocks are not in it.
    pub written_bytes: u64,
    /// Context switches, of threads that still live at the end.
    pub switches: u64,
    /// Threads at the end.
    pub threads: u64,
}

impl Sample {
    /// Reads the process's counters now; `None` when it is gone or not ours to read.
    pub fn take(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The second field is the name in parentheses, which may hold anything.
        let (_, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok());
        // proc(5): utime is field 14 and stime 15 of the line, 11 and 12 behind the name's end; threads is field 20.
        let per_second = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok().flatten()? as f64;
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let kib = find(&status, "VmRSS:").unwrap_or(0);
        // Readable for our own user's processes only; zero then says so by being implausible.
        let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
        let mut switches = BTreeMap::new();
        for task in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
            let Some(thread) = task.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
            let count = |name| find(&status, name).unwrap_or(0);
            switches.insert(thread, count("voluntary_ctxt_switches:") + count("nonvoluntary_ctxt_switches:"));
        }
        Some(Self {
            user_s: ticks(11)? / per_second,
            system_s: ticks(12)? / per_second,
            resident_bytes: kib * 1024,
            written_bytes: find(&io, "write_bytes:").unwrap_or(0),
            switches,
            threads: ticks(17)? as u64,
        })
    }

    /// Resident bytes; none of a process that has ended and was not waited for.
    pub const fn resident_bytes(&self) -> u64 {
        self.resident_bytes
    }

    /// What was used since `before`.
    pub fn since(&self, before: &Self) -> Usage {
        let (user_s, system_s) = (self.user_s - before.user_s, self.system_s - before.system_s);
        // Thread by thread: one that ended in between takes its count with it, and would be missed from the others'.
        let switches =
            self.switches.iter().map(|(thread, now)| now - before.switches.get(thread).unwrap_or(&0).min(now));
        Usage {
            user_s,
            system_s,
            cpu_s: user_s + system_s,
            resident_bytes: self.resident_bytes,
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
            switches: switches.sum(),
            threads: self.threads,
        }
    }
}

/// The number behind `name`, at a line's start.
fn find(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.split_ascii_whitespace().next()?.parse().ok())
}

/// The process on this machine that listens at `address` (`host:port`), if it is here and may be looked at.
pub fn listener_of(address: &str) -> Option<u32> {
    let local = address.to_socket_addrs().ok()?.any(|found| found.ip().is_loopback());
    let port: u16 = address.rsplit_once(':')?.1.parse().ok()?;
    let inode = ["/proc/net/tcp", "/proc/net/tcp6"].iter().find_map(|table| listening_inode(table, port))?;
    let wanted = format!("socket:[{inode}]");
    fs::read_dir("/proc").ok().filter(|_| local)?.flatten().find_map(|process| {
        let pid: u32 = process.file_name().to_str()?.parse().ok()?;
        let files = fs::read_dir(process.path().join("fd")).ok()?;
        let has = files.flatten().any(|file| fs::read_link(file.path()).is_ok_and(|link| link.as_os_str() == &*wanted));
        has.then_some(pid)
    })
}

/// proc_net_tcp: `sl local_address rem_address st ... inode`, numbers in hexadecimal, state 0A listens.
fn listening_inode(table: &str, port: u16) -> Option<u64> {
    let text = fs::read_to_string(table).ok()?;
    text.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let local = u16::from_str_radix(fields.get(1)?.rsplit_once(':')?.1, 16).ok()?;
        (local == port && *fields.get(3)? == "0A").then(|| fields.get(9)?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_process_that_computes_is_seen_to_use_its_cpu() {
        let pid = std::process::id();
        let before = Sample::take(pid).unwrap();
        let (started, mut turns) = (Instant::now(), 0u64);
        while started.elapsed().as_millis() < 200 {
            turns = std::hint::black_box(turns + 1);
        }
        let usage = Sample::take(pid).unwrap().since(&before);
        assert!(usage.cpu_s > 0.03, "200 ms of computing cost {} s", usage.cpu_s);
        assert!(usage.resident_bytes > 100_000 && usage.threads > 0);
    }

    #[test]
    fn a_listener_is_found_by_its_port() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        assert_eq!(listener_of(&address), Some(std::process::id()));
        drop(listener);
        assert_eq!(listener_of(&address), None);
    }

    #[test]
    fn a_thread_that_ended_takes_nothing_from_the_switches_of_the_others() {
        let before = Sample { switches: [(1, 50), (2, 100_000)].into(), ..Sample::default() };
        let after = Sample { switches: [(1, 80), (3, 7)].into(), ..Sample::default() };
        assert_eq!(after.since(&before).switches, 37);
    }

    #[test]
    fn a_process_that_is_gone_has_no_sample() {
        assert_eq!(Sample::take(u32::MAX - 1), None);
    }
}
