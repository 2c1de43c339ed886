//! Checks of the host: each finding names what is set, what it costs, and the command that changes it.
//!
//! Holds: the checks. Never touches: settings.

use std::fmt;
use std::fs;
use std::path::Path;

/// Something that is set to a broker's disadvantage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What is set, and to what.
    pub what: String,
    /// What it costs.
    pub cost: &'static str,
    /// What changes it.
    pub fix: &'static str,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}. Fix: {}", self.what, self.cost, self.fix)
    }
}

/// Looks at the host under `root` (`/` in production; a folder of samples in tests). What can't be read is no finding.
pub fn findings(root: &Path) -> Vec<Finding> {
    [huge_pages(root), governor(root), socket_backlog(root)].into_iter().flatten().collect()
}

fn read(root: &Path, file: &str) -> Option<String> {
    fs::read_to_string(root.join(file)).ok().map(|text| text.trim().to_owned())
}

/// Buffers want huge pages: they ask for them with madvise, which `never` ignores.
fn huge_pages(root: &Path) -> Option<Finding> {
    let modes = read(root, "sys/kernel/mm/transparent_hugepage/enabled")?;
    modes.contains("[never]").then(|| Finding {
        what: "transparent huge pages are off".into(),
        cost: "sending from memory costs about a tenth more CPU",
        fix: "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
    })
}

/// A core that sleeps deep or clocks down answers late.
fn governor(root: &Path) -> Option<Finding> {
    let governor = read(root, "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")?;
    (governor != "performance").then(|| Finding {
        what: format!("the CPU frequency governor is {governor}"),
        cost: "the first requests after a pause are slow",
        fix: "cpupower frequency-set -g performance",
    })
}

/// `socket.listen.backlog.size` is capped by this.
fn socket_backlog(root: &Path) -> Option<Finding> {
    let somaxconn: u32 = read(root, "proc/sys/net/core/somaxconn")?.parse().ok()?;
    (somaxconn < 1024).then(|| Finding {
        what: format!("net.core.somaxconn is {somaxconn}"),
        cost: "many clients that connect at once are turned away",
        fix: "sysctl -w net.core.somaxconn=4096",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(files: &[(&str, &str)]) -> std::path::PathBuf {
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("corelog-host-{}-{number}", std::process::id()));
        for (name, text) in files {
            let path = root.join(name);
            fs::create_dir_all(path.parent().expect("a file in a folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        }
        root
    }

    #[test]
    fn a_host_at_a_brokers_disadvantage_is_told_so_with_the_fix() {
        let root = host(&[
            ("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n"),
            ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n"),
            ("proc/sys/net/core/somaxconn", "128\n"),
        ]);
        let found = findings(&root);
        assert_eq!(found.len(), 3);
        assert!(found[1].to_string().contains("powersave") && found[1].to_string().contains("Fix: cpupower"));
        fs::remove_dir_all(root).expect("removed");
    }

    #[test]
    fn a_well_set_host_and_one_that_cannot_be_read_have_no_findings() {
        let root = host(&[
            ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
            ("proc/sys/net/core/somaxconn", "4096\n"),
        ]);
        assert_eq!(findings(&root), []);
        fs::remove_dir_all(root).expect("removed");
        assert_eq!(findings(Path::new("/nowhere")), []);
    }
}
