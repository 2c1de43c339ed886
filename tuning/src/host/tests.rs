//! The checks on made-up hosts.

use std::os::unix::fs::symlink;

use super::*;

/// A host made of files; gone with the value.
struct Sample(PathBuf);

impl Sample {
    fn new(files: &[(&str, &str)]) -> Sample {
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let sample = Sample(std::env::temp_dir().join(format!("corelog-host-{}-{number}", std::process::id())));
        fs::create_dir_all(&sample.0).expect("a folder");
        files.iter().for_each(|(name, text)| sample.put(name, text));
        sample
    }

    fn put(&self, name: &str, text: &str) {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().expect("a file in a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }

    /// A disk with one partition, and its queue's settings.
    fn put_disk(&self, settings: &[(&str, &str)]) {
        for (name, text) in settings {
            self.put(&format!("sys/devices/pci/nvme0n1/queue/{name}"), text);
        }
        self.put("sys/devices/pci/nvme0n1/nvme0n1p1/partition", "1\n");
        fs::create_dir_all(self.0.join("sys/dev/block")).expect("a folder");
        symlink("../../devices/pci/nvme0n1/nvme0n1p1", self.0.join("sys/dev/block/259:1")).expect("a link");
    }

    fn says(&self, name: &str, wants: &Wants) -> Outcome {
        let all = checks(&self.0, wants);
        all.into_iter().find(|check| check.name == name).expect("a check of that name").outcome
    }

    fn off(&self, name: &str, wants: &Wants) -> Finding {
        match self.says(name, wants) {
            Outcome::Off(finding) => finding,
            other => panic!("{name}: {other:?}"),
        }
    }

    fn is_fine(&self, name: &str, wants: &Wants) -> bool {
        matches!(self.says(name, wants), Outcome::Fine(_))
    }
}

impl Drop for Sample {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn wants() -> Wants {
    Wants {
        connections_max: 10_000,
        partitions: 1000,
        shards: 2,
        cores: vec![0, 1],
        memory_bytes: 2 << 30,
        listen_backlog: 511,
        data_folder: "/var/lib/corelog".into(),
    }
}

const ROOT_MOUNT: &str = "27 1 259:1 / / rw,relatime - ext4 /dev/nvme0n1p1 rw\n";

#[test]
fn a_host_that_says_nothing_is_off_in_nothing() {
    let all = checks(Path::new("/nowhere"), &Wants::default());
    assert!(all.iter().all(|check| check.outcome == Outcome::Unknown || check.name == "cpu-sharing"), "{all:?}");
    assert_eq!(findings(Path::new("/nowhere"), &wants()), []);
}

#[test]
fn every_check_has_a_name_of_its_own() {
    let mut names: Vec<_> = CHECKS.iter().map(|(name, _)| name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), CHECKS.len());
}

#[test]
fn this_machine_answers_quickly() {
    let began = std::time::Instant::now();
    let all = checks(Path::new("/"), &wants());
    assert!(began.elapsed() < std::time::Duration::from_millis(500), "{:?}", began.elapsed());
    assert!(all.iter().any(|check| matches!(check.outcome, Outcome::Fine(_))), "{all:?}");
}

#[test]
fn a_governor_other_than_performance_on_any_of_our_cores_is_named_with_the_fix() {
    let host = Sample::new(&[
        ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n"),
        ("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave\n"),
    ]);
    let off = host.off("cpu-governor", &wants()).to_string();
    assert!(off.contains("core 1 is powersave") && off.contains("Fix: cpupower"), "{off}");
    assert!(host.is_fine("cpu-governor", &Wants { cores: vec![0], ..wants() }));
}

#[test]
fn a_quota_of_the_group_or_of_one_around_it_counts_against_the_shards() {
    let host = Sample::new(&[
        ("proc/self/cgroup", "1:cpu:/x\n0::/system.slice/corelog.service\n"),
        ("sys/fs/cgroup/system.slice/corelog.service/cpu.max", "max 100000\n"),
    ]);
    assert!(host.is_fine("cpu-quota", &wants()));
    host.put("sys/fs/cgroup/system.slice/cpu.max", "150000 100000\n");
    let off = host.off("cpu-quota", &wants());
    assert!(off.what.contains("1.5 cores") && off.fix.contains("corelog.shards=1"), "{off}");
    assert!(host.is_fine("cpu-quota", &Wants { shards: 1, ..wants() }));
}

#[test]
fn more_shards_than_cores_are_told_that_they_share() {
    let host = Sample::new(&[]);
    assert!(host.is_fine("cpu-sharing", &wants()));
    assert!(host.off("cpu-sharing", &Wants { shards: 3, ..wants() }).fix.contains("corelog.shards=2"));
}

#[test]
fn a_clock_that_costs_a_system_call_is_off_and_a_virtual_machines_own_is_not() {
    let file = "sys/devices/system/clocksource/clocksource0/current_clocksource";
    for (source, fine) in [("tsc", true), ("kvm-clock", true), ("hpet", false), ("acpi_pm", false)] {
        let host = Sample::new(&[(file, source)]);
        assert_eq!(host.is_fine("clock-source", &wants()), fine, "{source}");
    }
}

#[test]
fn buffers_that_do_not_fit_the_machine_or_its_group_are_off() {
    let host = Sample::new(&[("proc/meminfo", "MemTotal:        8388608 kB\nMemFree: 1 kB\n")]);
    assert!(host.is_fine("memory", &wants()));
    assert!(host.off("memory", &Wants { memory_bytes: 8 << 30, ..wants() }).what.contains("the machine has 8192 MiB"));
    host.put("proc/self/cgroup", "0::/\n");
    host.put("sys/fs/cgroup/memory.max", "1073741824\n");
    let off = host.off("memory", &wants());
    assert!(off.what.contains("the control group has 1024 MiB"), "{off}");
    // 90 % of a GiB, halved, in whole MiB.
    assert!(off.fix.ends_with(&format!("={} or less", 460u64 << 20)), "{off}");
    host.put("sys/fs/cgroup/memory.max", "max\n");
    assert!(host.is_fine("memory", &wants()));
}

#[test]
fn huge_pages_that_are_off_or_swap_that_is_eager_are_off() {
    let thp = "sys/kernel/mm/transparent_hugepage/enabled";
    assert!(Sample::new(&[(thp, "always [madvise] never\n")]).is_fine("huge-pages", &wants()));
    assert!(Sample::new(&[(thp, "[always] madvise never\n")]).is_fine("huge-pages", &wants()));
    assert!(Sample::new(&[(thp, "always madvise [never]\n")]).off("huge-pages", &wants()).what.contains("off"));
    let head = "Filename\t\tType\n";
    let host = Sample::new(&[("proc/swaps", head), ("proc/sys/vm/swappiness", "60\n")]);
    assert!(host.is_fine("swap", &wants()), "no swap");
    host.put("proc/swaps", &format!("{head}/swapfile file\n"));
    assert!(host.off("swap", &wants()).what.contains("60"));
    host.put("proc/sys/vm/swappiness", "1\n");
    assert!(host.is_fine("swap", &wants()));
}

#[test]
fn limits_below_what_the_configuration_may_want_are_off() {
    let limits = |files: &str, locked: &str| {
        format!(
            "Limit                     Soft Limit           Hard Limit           Units\n\
             Max open files            1024                 {files}                files\n\
             Max locked memory         1                    {locked}              bytes\n"
        )
    };
    let host = Sample::new(&[("proc/self/limits", &limits("12256", "8388608"))]);
    assert!(host.is_fine("open-files", &wants()), "exactly enough: {:?}", host.says("open-files", &wants()));
    assert!(host.is_fine("locked-memory", &wants()));
    let more = Wants { partitions: 1001, ..wants() };
    let off = host.off("open-files", &more);
    assert!(off.what.starts_with("12256 open files") && off.fix.contains("ulimit -Hn 12258"), "{off}");
    host.put("proc/self/limits", &limits("unlimited", "65536"));
    assert!(host.is_fine("open-files", &more));
    assert!(host.off("locked-memory", &wants()).fix.contains("ulimit -Hl 2048"));
}

#[test]
fn a_backlog_that_the_kernel_would_cut_is_off() {
    let host = Sample::new(&[("proc/sys/net/core/somaxconn", "128\n")]);
    assert!(host.off("listen-backlog", &wants()).fix.contains("net.core.somaxconn=511"));
    assert!(host.is_fine("listen-backlog", &Wants { listen_backlog: 50, ..wants() }));
}

#[test]
fn a_data_folder_where_acknowledgements_promise_too_much_is_unsafe() {
    for (kind, severity) in [
        ("tmpfs", Some(Severity::Unsafe)),
        ("fuse.sshfs", Some(Severity::Unsafe)),
        ("fuseblk", Some(Severity::Unsafe)),
        ("nfs4", Some(Severity::Unsafe)),
        ("overlay", Some(Severity::Unsafe)),
        ("zfs", Some(Severity::Costs)),
        ("ext4", None),
        ("xfs", None),
    ] {
        let mounts = format!(
            "{ROOT_MOUNT}40 27 0:50 / /var/lib rw - {kind} none rw\n41 27 0:51 / /var/library rw - tmpfs x rw\n"
        );
        let host = Sample::new(&[("proc/self/mountinfo", &mounts)]);
        match severity {
            Some(severity) => assert_eq!(host.off("file-system", &wants()).severity, severity, "{kind}"),
            None => assert!(host.is_fine("file-system", &wants()), "{kind}"),
        }
    }
}

#[test]
fn the_innermost_mount_counts_and_of_two_at_one_place_the_later() {
    let mounts = format!(
        "{ROOT_MOUNT}40 27 0:50 / /var/lib/core\\040log rw - tmpfs none rw\n\
         41 27 0:51 / /var/lib/core\\040log rw shared:1 master:2 - xfs /dev/x rw\n"
    );
    let host = Sample::new(&[("proc/self/mountinfo", &mounts)]);
    let folder = |folder: &str| Wants { data_folder: folder.into(), ..wants() };
    assert_eq!(host.says("file-system", &folder("/var/lib/core log/data")), Outcome::Fine("xfs".into()));
    assert_eq!(host.says("file-system", &folder("/var/lib/core")), Outcome::Fine("ext4".into()));
}

#[test]
fn a_mount_without_barriers_is_unsafe() {
    for option in ["nobarrier", "barrier=0"] {
        let mounts = format!("27 1 259:1 / / rw - ext4 /dev/x rw,{option},stripe=4\n");
        let host = Sample::new(&[("proc/self/mountinfo", &mounts)]);
        assert_eq!(host.off("write-barriers", &wants()).severity, Severity::Unsafe, "{option}");
    }
    assert!(Sample::new(&[("proc/self/mountinfo", ROOT_MOUNT)]).is_fine("write-barriers", &wants()));
}

#[test]
fn a_partitions_device_is_asked_for_its_cache_and_scheduler() {
    let host = Sample::new(&[("proc/self/mountinfo", ROOT_MOUNT)]);
    assert_eq!(host.says("write-cache", &wants()), Outcome::Unknown, "no device");
    host.put_disk(&[
        ("write_cache", "write back\n"),
        ("fua", "0\n"),
        ("scheduler", "none [mq-deadline] kyber\n"),
        ("rotational", "0\n"),
    ]);
    assert!(host.off("write-cache", &wants()).fix.contains("/sys/block/nvme0n1/queue/write_cache"));
    let off = host.off("io-scheduler", &wants());
    assert!(off.what.contains("mq-deadline") && off.fix == "echo none > /sys/block/nvme0n1/queue/scheduler", "{off}");
    host.put_disk_again("fua", "1\n");
    assert!(host.is_fine("write-cache", &wants()));
    host.put_disk_again("write_cache", "write through\n");
    host.put_disk_again("rotational", "1\n");
    assert!(host.is_fine("write-cache", &wants()) && host.is_fine("io-scheduler", &wants()), "a disk that turns");
}

#[test]
fn a_device_that_reads_far_ahead_or_not_at_all_is_named_with_the_way_to_change_it() {
    let host = Sample::new(&[("proc/self/mountinfo", ROOT_MOUNT)]);
    host.put_disk(&[("read_ahead_kb", "128\n")]);
    assert!(host.is_fine("read-ahead", &wants()));
    for kib in ["8192\n", "0\n"] {
        host.put_disk_again("read_ahead_kb", kib);
        let off = host.off("read-ahead", &wants());
        assert_eq!(off.fix, "echo 128 > /sys/block/nvme0n1/queue/read_ahead_kb");
    }
    host.put_disk_again("read_ahead_kb", "unknown\n");
    assert_eq!(host.says("read-ahead", &wants()), Outcome::Unknown);
}

impl Sample {
    fn put_disk_again(&self, name: &str, text: &str) {
        self.put(&format!("sys/devices/pci/nvme0n1/queue/{name}"), text);
    }
}
