//! What the data folder lies on.
//!
//! Holds: its mount and its device, as the kernel tells of them. Never touches: the folder itself (the disk probe does).

use std::fs;
use std::path::{Path, PathBuf};

use super::{Facts, Outcome, chosen, costs, fine, unsafe_is};

/// Read-ahead that serves consumers of old segments and leaves acknowledgements alone: see decision 0008.
const READ_AHEAD_KIB: (u64, u64) = (64, 1024);

/// A mount, from /proc/self/mountinfo (proc(5)).
struct Mount {
    device: String,
    at: PathBuf,
    file_system: String,
    options: String,
}

impl Mount {
    /// `36 35 98:0 /root /at rw,noatime master:1 - ext4 /dev/root rw,errors=continue`
    fn parse(line: &str) -> Option<Mount> {
        let (place, what) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(2);
        let (device, _within, at) = (place.next()?, place.next()?, place.next()?);
        let mut what = what.split(' ');
        let (file_system, _source, options) = (what.next()?, what.next()?, what.next().unwrap_or_default());
        Some(Mount {
            device: device.to_owned(),
            at: PathBuf::from(unescaped(at)),
            file_system: file_system.to_owned(),
            options: options.to_owned(),
        })
    }

    fn has_option(&self, name: &str) -> bool {
        self.options.split(',').any(|option| option == name)
    }
}

/// Blanks and backslashes come as three octal digits.
fn unescaped(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                out.push(char::from(byte));
                out.push_str(part.get(3..).unwrap_or_default());
            }
            None => {
                out.push('\\');
                out.push_str(part);
            }
        }
    }
    out
}

/// The innermost mount that the folder lies in; of several at one place the last covers the others.
fn mount(facts: &Facts<'_>) -> Option<Mount> {
    let mounts = facts.read("proc/self/mountinfo")?;
    let around = |mount: &Mount| facts.wants.data_folder.starts_with(&mount.at);
    mounts.lines().filter_map(Mount::parse).filter(around).max_by_key(|mount| mount.at.components().count())
}

/// The request queue of the folder's device; a partition has its disk's.
fn queue(facts: &Facts<'_>) -> Option<PathBuf> {
    let device = facts.root.join("sys/dev/block").join(mount(facts)?.device);
    let device = fs::canonicalize(device).ok()?;
    [device.join("queue"), device.parent()?.join("queue")].into_iter().find(|queue| queue.is_dir())
}

fn setting(queue: &Path, name: &str) -> Option<String> {
    fs::read_to_string(queue.join(name)).ok().map(|text| text.trim().to_owned())
}

/// What some file systems mean for an acknowledgement.
pub(super) fn file_system(facts: &Facts<'_>) -> Option<Outcome> {
    let mount = mount(facts)?;
    let (kind, folder) = (mount.file_system.as_str(), facts.wants.data_folder.display());
    let what = format!("the data folder {folder} is on {kind}");
    let fix = "put the data folder on ext4 or XFS on a disk of this machine";
    match kind {
        "ext4" | "xfs" | "btrfs" => fine(kind),
        "tmpfs" | "ramfs" | "devtmpfs" => {
            unsafe_is(what, "it is memory: a restart of the machine loses what was acknowledged", fix)
        }
        "overlay" | "aufs" => unsafe_is(
            what,
            "it is the container's own file system, and goes with the container",
            "mount a volume for the data folder",
        ),
        _ if kind.starts_with("fuse") => unsafe_is(
            what,
            "a FUSE server may complete direct writes before they are stable, so that an acknowledgement promises too much",
            fix,
        ),
        "nfs" | "nfs4" | "cifs" | "smb3" | "9p" | "virtiofs" | "ceph" => {
            unsafe_is(what, "whether an acknowledged record is stable is up to the file server", fix)
        }
        _ => costs(what, "it is not among those that were tried: ext4, XFS, btrfs", fix),
    }
}

/// Without barriers a flush is not passed on to the device.
pub(super) fn barriers(facts: &Facts<'_>) -> Option<Outcome> {
    let mount = mount(facts)?;
    match ["nobarrier", "barrier=0"].into_iter().find(|option| mount.has_option(option)) {
        None => fine("on"),
        Some(option) => unsafe_is(
            format!("{} is mounted with {option}", mount.at.display()),
            "a power cut loses acknowledged records, unless the device's cache has its own power",
            format!("mount -o remount,barrier {}", mount.at.display()),
        ),
    }
}

/// A volatile cache that can't write through makes a flush of every durable write.
pub(super) fn write_cache(facts: &Facts<'_>) -> Option<Outcome> {
    let queue = queue(facts)?;
    let cache = setting(&queue, "write_cache")?;
    let fua = setting(&queue, "fua")?;
    match (cache.as_str(), fua.as_str()) {
        ("write through", _) => fine("write through: a write is stable when it completes"),
        (_, "1") => fine(format!("{cache}, with FUA: a durable write is one command")),
        _ => costs(
            format!("the device of {} has a volatile write cache and no FUA", facts.wants.data_folder.display()),
            "each durable write is followed by a flush of the whole cache",
            format!(
                "use a drive with FUA or power-loss protection; only for one that has the latter: echo 'write through' > {}",
                shown(&queue, "write_cache")
            ),
        ),
    }
}

/// A fast device needs nobody to sort its requests.
pub(super) fn scheduler(facts: &Facts<'_>) -> Option<Outcome> {
    let queue = queue(facts)?;
    let schedulers = setting(&queue, "scheduler")?;
    let used = chosen(&schedulers).unwrap_or(&schedulers);
    let turns = setting(&queue, "rotational").is_some_and(|rotational| rotational == "1");
    if used == "none" || turns {
        return fine(used);
    }
    costs(
        format!("the I/O scheduler of the data folder's device is {used}"),
        "it spends CPU on sorting requests that the device takes in any order",
        format!("echo none > {}", shown(&queue, "scheduler")),
    )
}

/// What the kernel reads ahead of a reader of old segments stands in the disk's queue before acknowledgements.
pub(super) fn read_ahead(facts: &Facts<'_>) -> Option<Outcome> {
    let queue = queue(facts)?;
    let kib: u64 = setting(&queue, "read_ahead_kb")?.parse().ok()?;
    if (READ_AHEAD_KIB.0..=READ_AHEAD_KIB.1).contains(&kib) {
        return fine(format!("{kib} KiB"));
    }
    let device = format!("the data folder's device reads {kib} KiB ahead");
    let fix = format!("echo 128 > {}", shown(&queue, "read_ahead_kb"));
    if kib < READ_AHEAD_KIB.0 {
        costs(device, "consumers of old segments wait for the disk more often", fix)
    } else {
        costs(
            device,
            "acknowledgements wait for that much in the disk's queue while a consumer of old segments catches up",
            fix,
        )
    }
}

/// Where an operator finds a setting.
fn shown(queue: &Path, name: &str) -> String {
    let disk = queue.parent().and_then(Path::file_name).unwrap_or_default();
    format!("/sys/block/{}/queue/{name}", disk.to_string_lossy())
}
