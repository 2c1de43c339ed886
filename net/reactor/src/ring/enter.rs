//! The io_uring_enter calls and the clocks.
//!
//! Holds: the ring's descriptor and, where the kernel took it, its registered number. Never touches: the queues.
//!
//! The crate's own submitter forgets the registered descriptor between calls, so the call is made here.

use std::io;
use std::time::Duration;

use io_uring::EnterFlags;
use io_uring::types::{SubmitArgs, Timespec};

use crate::pin::CoreId;
use crate::time::{Monotonic, UnixMillis};

const REGISTER_RING_FDS: libc::c_uint = 20;
const UNREGISTER_RING_FDS: libc::c_uint = 21;

/// The kernel's `io_uring_rsrc_update`.
#[repr(C)]
struct RingFdUpdate {
    offset: u32,
    reserved: u32,
    data: u64,
}

pub(super) struct Enter {
    fd: i32,
    registered: Option<u32>,
    no_iowait: bool,
}

impl Enter {
    pub fn new(fd: i32, no_iowait: bool) -> Enter {
        // A registered descriptor saves a reference count each call. A thread has 16 places; without one the plain
        // descriptor does.
        let mut update = RingFdUpdate { offset: u32::MAX, reserved: 0, data: fd as u64 };
        // SAFETY: one structure of the layout the call expects, writable: it puts the number into `offset`.
        let done = unsafe { libc::syscall(libc::SYS_io_uring_register, fd, REGISTER_RING_FDS, &raw mut update, 1) };
        Enter { fd, registered: (done == 1).then_some(update.offset), no_iowait }
    }

    #[cfg(test)]
    pub fn is_registered(&self) -> bool {
        self.registered.is_some()
    }

    /// Hands over `queued` entries.
    pub fn submit(&self, queued: usize) {
        self.enter(queued, 0, EnterFlags::empty(), None);
    }

    /// Hands over `queued` entries and posts what has completed, without waiting.
    pub fn poll(&self, queued: usize) {
        self.enter(queued, 0, EnterFlags::GETEVENTS, None);
    }

    /// Hands over `queued` entries and waits for one completion, at most `timeout`.
    pub fn wait(&self, queued: usize, timeout: Option<Duration>) {
        let flags = if self.no_iowait { EnterFlags::NO_IOWAIT } else { EnterFlags::empty() };
        let flags = flags | EnterFlags::GETEVENTS;
        match timeout {
            Some(timeout) => {
                let timeout = Timespec::from(timeout);
                let args = SubmitArgs::new().timespec(&timeout);
                self.enter(queued, 1, flags | EnterFlags::EXT_ARG, Some(&args));
            }
            None => self.enter(queued, 1, flags, None),
        }
    }

    fn enter(&self, queued: usize, complete_min: u32, flags: EnterFlags, args: Option<&SubmitArgs<'_, '_>>) {
        let (fd, flags) = match self.registered {
            Some(number) => (number as i32, flags | EnterFlags::REGISTERED_RING),
            None => (self.fd, flags),
        };
        let (arg, arg_bytes) = match args {
            Some(args) => (std::ptr::from_ref(args), size_of::<SubmitArgs<'_, '_>>()),
            None => (std::ptr::null(), 0),
        };
        // SAFETY: the arguments outlive the call; what the queued entries point to is promised by whoever queued them.
        let entered = unsafe {
            libc::syscall(
                libc::SYS_io_uring_enter,
                fd,
                queued as libc::c_uint,
                complete_min,
                flags.bits(),
                arg,
                arg_bytes,
            )
        };
        if entered >= 0 {
            return;
        }
        match io::Error::last_os_error().raw_os_error() {
            // The time was over, or a signal came: the loop goes round.
            Some(libc::ETIME | libc::EINTR) => {}
            // The kernel is short of memory, or wants completions reaped first: entries stay queued for the next call.
            Some(libc::EAGAIN | libc::EBUSY) => {}
            error => tracing::error!(?error, queued, "io_uring_enter"),
        }
    }
}

impl Drop for Enter {
    fn drop(&mut self) {
        if let Some(number) = self.registered {
            let update = RingFdUpdate { offset: number, reserved: 0, data: 0 };
            // SAFETY: as in `new`. The ring is dropped after this: see the order of its driver's fields.
            unsafe { libc::syscall(libc::SYS_io_uring_register, self.fd, UNREGISTER_RING_FDS, &raw const update, 1) };
        }
    }
}

fn clock(clock: libc::clockid_t) -> libc::timespec {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: one writable timespec. Both clocks used here exist on every kernel, so it cannot fail.
    unsafe { libc::clock_gettime(clock, &raw mut at) };
    at
}

pub(super) fn monotonic() -> Monotonic {
    let at = clock(libc::CLOCK_MONOTONIC);
    Monotonic::from_nanos(at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64)
}

pub(super) fn unix_ms() -> UnixMillis {
    let at = clock(libc::CLOCK_REALTIME);
    UnixMillis(at.tv_sec * 1000 + at.tv_nsec / 1_000_000)
}

pub(super) fn cpu_set(cores: &[CoreId]) -> libc::cpu_set_t {
    // SAFETY: all zeroes is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for core in cores.iter().filter(|core| core.0 < libc::CPU_SETSIZE as usize) {
        // SAFETY: the number is below the set's size.
        unsafe { libc::CPU_SET(core.0, &mut set) };
    }
    set
}
