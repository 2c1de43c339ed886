//! What a record says about the machine. Holds: words from /proc and /sys. Never touches: measuring.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Kernel, CPU, memory, disk and commit, in a few lines. And how TCP paces what it sends: that counts on loopback, too.
pub fn describe(folder: &Path) -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unknown CPU", |(_, model)| model);
    let cores = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    let memory = read("/proc/meminfo");
    let kib: u64 = memory
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse().ok())
        .unwrap_or(0);
    let device = device_of(folder).unwrap_or_default();
    let commit = Command::new("git").args(["describe", "--always", "--dirty"]).output().ok();
    let commit = commit.map(|out| String::from_utf8_lossy(&out.stdout).trim().to_owned()).unwrap_or_default();
    let commit = if commit.is_empty() { "not known".to_owned() } else { commit };
    format!(
        "Commit {commit}. Linux {}, {model}, {cores} cores, {} GiB of memory, TCP congestion control {}. Data on {device}.",
        read("/proc/sys/kernel/osrelease"),
        kib >> 20,
        read("/proc/sys/net/ipv4/tcp_congestion_control")
    )
}

/// Durable changes of names cost much less where there is no journal. ext4 shows each journal under /proc/fs/jbd2.
fn journal(file_system: &str, device: &str) -> &'static str {
    let is_of_device = |entry: fs::DirEntry| entry.file_name().to_string_lossy().starts_with(device);
    let has_journal = fs::read_dir("/proc/fs/jbd2").is_ok_and(|mut entries| entries.any(|e| e.is_ok_and(is_of_device)));
    if file_system == "ext4" && !has_journal { " without a journal" } else { "" }
}

/// `ext4 on /dev/vda, write cache "write back"`.
fn device_of(folder: &Path) -> Option<String> {
    let folder = folder
        .ancestors()
        .find_map(|path| fs::canonicalize(if path.as_os_str().is_empty() { Path::new(".") } else { path }).ok())?;
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mount = mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ');
            Some((fields.next()?, fields.next()?, fields.next()?))
        })
        .filter(|(_, point, _)| folder.starts_with(point))
        .max_by_key(|(_, point, _)| point.len())?;
    let name = mount.0.rsplit('/').next()?;
    let cache = fs::read_to_string(format!("/sys/class/block/{name}/queue/write_cache")).unwrap_or_default();
    Some(format!("{}{} ({}), write cache \"{}\"", mount.2, journal(mount.2, name), mount.0, cache.trim()))
}
