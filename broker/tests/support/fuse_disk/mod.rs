//! Holds: a disk in a folder (FUSE) whose power can be cut. It forgets at the cut whatever was not synced, folder entries
//! included, and serves what is left. It also fills up, and fails, on demand.
//! Never touches: the broker.
//!
//! The order of a power cut: answers are frozen, the programs on the disk are killed by SIGKILL, the frozen requests are refused,
//! the folder is unmounted, chance decides over the unsynced, the folder is mounted again.

pub mod content;
pub mod model;
mod names;
mod server;

use std::ffi::CString;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use fuser::{BackgroundSession, Config, MountOption};
use tempfile::TempDir;

pub use model::{Counters, CutReport, Fault, FaultOn};

use super::random::Random;
use model::Model;
use server::{Server, Shared, World};

/// The name that the mounts carry in /proc/mounts.
const SOURCE_NAME: &str = "corelog-fuse-disk";
/// Time for a killed program to let go of the folder.
const UNMOUNT_PATIENCE: Duration = Duration::from_secs(5);
/// Threads that answer the kernel: more than one, so that a slow sync doesn't keep reads waiting.
const SERVER_THREADS: usize = 3;
/// Room on a disk that was not told otherwise.
const CAPACITY_DEFAULT: u64 = 16 << 30;

/// A mounted disk. Dropping it unmounts it and forgets all its bytes.
#[derive(Debug)]
pub struct FuseDisk {
    mount_point: PathBuf,
    shared: Arc<Shared>,
    session: Option<BackgroundSession>,
    // Removed after the unmount, which `drop` does first.
    _folder: Option<TempDir>,
}

impl FuseDisk {
    /// Mounts a new, empty disk on the existing folder `mount_point`.
    ///
    /// # Errors
    /// What the kernel or fusermount3 says: /dev/fuse missing (ENOENT), no permission (EPERM, EACCES), ...
    pub fn mount(mount_point: &Path) -> io::Result<FuseDisk> {
        detach_dead_mounts();
        // SAFETY: both calls only read this process's own ids and cannot fail.
        let owner = unsafe { (libc::geteuid(), libc::getegid()) };
        let model = Model::new(CAPACITY_DEFAULT, owner, SystemTime::now());
        let shared = Arc::new(Shared::new(World::new(model, 1)));
        let mut disk = FuseDisk { mount_point: mount_point.to_owned(), shared, session: None, _folder: None };
        disk.mount_again()?;
        Ok(disk)
    }

    /// Mounts a new disk on a temporary folder of its own, for the test named `test`. Where FUSE can't be had the test is left
    /// out, and says so past the test runner's capture; in CI (`CI` is set) it fails instead.
    pub fn for_test(test: &str) -> Option<FuseDisk> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        match FuseDisk::mount(folder.path()) {
            Ok(mut disk) => {
                disk._folder = Some(folder);
                Some(disk)
            }
            Err(error) => {
                let words = format!(
                    "{test} needs FUSE and can't have it: {error}. It needs /dev/fuse (modprobe fuse) and either root or \
                     fusermount3 (package fuse3)."
                );
                assert!(std::env::var_os("CI").is_none(), "{words}");
                let _ = writeln!(io::stderr(), "SKIPPED {words}");
                None
            }
        }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.mount_point
    }

    /// A path in it.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.mount_point.join(name)
    }

    /// What has happened so far.
    pub fn counters(&self) -> Counters {
        self.shared.world().model.counters
    }

    /// Bytes that files take up now.
    pub fn bytes_used(&self) -> u64 {
        self.shared.world().model.bytes_used()
    }

    /// Makes the disk as large as `bytes`, also smaller than what is on it: then all growth is refused (ENOSPC).
    pub fn set_capacity(&self, bytes: u64) {
        self.shared.world().model.capacity = bytes;
    }

    /// Syncs take a time between none and `longest` from now on, so that what comes too early for them shows.
    pub fn set_sync_time_max(&self, longest: Duration) {
        self.shared.world().sync_time_max = longest;
    }

    /// Adds a rule by which operations fail.
    pub fn add_fault(&self, fault: Fault) {
        self.shared.world().model.faults.push(fault);
    }

    /// Lifts all such rules.
    pub fn clear_faults(&self) {
        self.shared.world().model.faults.clear();
    }

    /// Cuts the power: `kill` must end (SIGKILL, not yet wait for) every program that uses the folder. From before `kill` is called
    /// nothing more becomes durable. Afterwards the folder holds what chance, by `seed`, left of the unsynced, and can be used.
    ///
    /// # Panics
    /// If the folder can't be unmounted or mounted again.
    pub fn power_cut(&mut self, seed: u64, kill: impl FnOnce()) -> CutReport {
        self.shared.world().frozen = true;
        kill();
        // A signal takes effect on a thread that is running elsewhere within microseconds; only then may requests be refused,
        // or the program could still see the refusal.
        std::thread::sleep(Duration::from_millis(2));
        self.shared.world().session += 1;
        self.shared.thaw();
        if let Some(session) = self.session.take() {
            self.unmount(session);
        }
        let report = {
            let mut world = self.shared.world();
            world.model.cut(&mut Random::new(seed))
        };
        if let Err(error) = self.mount_again() {
            panic!("the FUSE disk could not be mounted again after a power cut: {error}");
        }
        report
    }

    /// Somebody takes the mount away under a running program: its path leads to what lies below, its open files go on.
    pub fn take_away(&self) {
        if unmount_once(&self.mount_point, libc::MNT_DETACH).is_err() {
            let _ = std::process::Command::new("fusermount3").arg("-uz").arg(&self.mount_point).status();
        }
    }

    /// It is there again, with all that was on it.
    ///
    /// # Panics
    /// If it can't be mounted.
    pub fn put_back(&mut self) {
        self.shared.world().session += 1;
        if let Some(session) = self.session.take() {
            self.unmount(session);
        }
        if let Err(error) = self.mount_again() {
            panic!("the FUSE disk could not be put back: {error}");
        }
    }

    fn mount_again(&mut self) -> io::Result<()> {
        let session = self.shared.world().session;
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName(SOURCE_NAME.to_owned())];
        config.n_threads = Some(SERVER_THREADS);
        let server = Server::new(Arc::clone(&self.shared), session);
        self.session = Some(fuser::spawn_mount(server, &self.mount_point, &config)?);
        Ok(())
    }

    /// Unmounts as soon as the killed programs have let go; if they don't, detaches the folder and leaves them the dead session.
    fn unmount(&self, session: BackgroundSession) {
        let start = Instant::now();
        loop {
            match unmount_once(&self.mount_point, 0) {
                Ok(()) => break,
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) && start.elapsed() < UNMOUNT_PATIENCE => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) => {
                    if error.raw_os_error() == Some(libc::EBUSY) {
                        eprintln!(
                            "the FUSE disk is still in use {UNMOUNT_PATIENCE:?} after its programs were killed; detaching it"
                        );
                    }
                    if unmount_once(&self.mount_point, libc::MNT_DETACH).is_err() {
                        // Not root: the program that mounted it for us takes it away.
                        let _ = std::process::Command::new("fusermount3").arg("-uz").arg(&self.mount_point).status();
                    }
                    break;
                }
            }
        }
        drop(session);
    }
}

impl Drop for FuseDisk {
    fn drop(&mut self) {
        self.shared.world().session += 1;
        self.shared.thaw();
        if let Some(session) = self.session.take() {
            self.unmount(session);
        }
    }
}

fn unmount_once(mount_point: &Path, flags: libc::c_int) -> io::Result<()> {
    let path = CString::new(mount_point.as_os_str().as_bytes())?;
    // SAFETY: `path` is a string that ends in a zero byte and lives across the call.
    if unsafe { libc::umount2(path.as_ptr(), flags) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A test that was killed leaves a mount whose server is gone; everything that looks at it gets ENOTCONN.
fn detach_dead_mounts() {
    let Ok(mounts) = std::fs::read_to_string("/proc/mounts") else {
        return;
    };
    for line in mounts.lines().filter(|line| line.starts_with(SOURCE_NAME)) {
        let Some(path) = line.split(' ').nth(1).map(PathBuf::from) else {
            continue;
        };
        let dead = std::fs::metadata(&path).is_err_and(|error| error.raw_os_error() == Some(libc::ENOTCONN));
        if dead {
            let _ = unmount_once(&path, libc::MNT_DETACH);
        }
    }
}
