//! Whether this kernel can run the ring, and what to do when it cannot.
//!
//! Holds: the kernel floor, the probing, the diagnosis of refusals. Never touches: anything but throw-away rings.

use std::io;

use io_uring::{IoUring, Probe, opcode};

use super::RingError;

/// The oldest kernel that has all the ring needs: DEFER_TASKRUN came with 6.1.
pub const KERNEL_FLOOR: (u32, u32) = (6, 1);

/// What a kernel that passed the probe has beyond the floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelSupport {
    /// Version: major, minor.
    pub version: (u32, u32),
    /// IORING_OP_FTRUNCATE (6.9). Without it truncation blocks the core.
    pub ftruncate: bool,
    /// Waiting that is not counted as waiting for I/O (6.15).
    pub no_iowait: bool,
    /// IORING_OP_SEND_ZC (6.0).
    pub send_zero_copy: bool,
    /// RLIMIT_MEMLOCK in bytes, None for unlimited: what registered buffers and zero-copy sends may pin.
    pub memlock_bytes: Option<u64>,
}

/// What keeps the ring from running here. The message names the fix; see [`KernelMissing::exit_code`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KernelMissing {
    /// Below the floor.
    #[error("kernel {release} is too old: io_uring as used here needs 6.1 or newer; upgrade the kernel")]
    TooOld {
        /// What uname says.
        release: String,
    },
    /// The administrator's switch.
    #[error(
        "io_uring is switched off by kernel.io_uring_disabled={value}; run `sysctl -w kernel.io_uring_disabled=0` \
         and keep it in /etc/sysctl.d"
    )]
    SwitchedOff {
        /// 1: for processes without privileges outside kernel.io_uring_group. 2: for all.
        value: u32,
    },
    /// EPERM although the switch is open.
    #[error(
        "io_uring_setup is forbidden (EPERM) by a security policy, usually a container's seccomp profile; allow \
         io_uring_setup, io_uring_enter and io_uring_register in it (docker, podman: --security-opt seccomp=…)"
    )]
    Forbidden,
    /// ENOSYS on a kernel new enough.
    #[error(
        "io_uring_setup does not exist here (ENOSYS): a seccomp profile hides it, or the kernel was built without \
         CONFIG_IO_URING; allow io_uring_setup, io_uring_enter and io_uring_register, or change the kernel"
    )]
    Hidden,
    /// ENOMEM.
    #[error(
        "no memory for the ring (RLIMIT_MEMLOCK is {memlock}); raise it (`ulimit -l`, systemd: LimitMEMLOCK=infinity) \
         or the container's memory limit"
    )]
    NoMemory {
        /// The limit, as text.
        memlock: String,
    },
    /// EMFILE or ENFILE.
    #[error("no file descriptor left for the ring; raise RLIMIT_NOFILE (`ulimit -n`, systemd: LimitNOFILE=)")]
    NoDescriptors,
    /// The kernel says it is new enough but lacks something.
    #[error("this kernel ({release}) lacks {feature}; use a mainline kernel of 6.1 or newer")]
    Feature {
        /// What uname says.
        release: String,
        /// What is missing.
        feature: &'static str,
    },
    /// Anything else.
    #[error("io_uring_setup failed: {error}")]
    Other {
        /// The kernel's answer.
        error: String,
    },
}

impl KernelMissing {
    /// A process exit code that tells the reasons apart: 80 to 87.
    pub fn exit_code(&self) -> u8 {
        match self {
            KernelMissing::TooOld { .. } => 80,
            KernelMissing::SwitchedOff { .. } => 81,
            KernelMissing::Forbidden => 82,
            KernelMissing::Hidden => 83,
            KernelMissing::NoMemory { .. } => 84,
            KernelMissing::NoDescriptors => 85,
            KernelMissing::Feature { .. } => 86,
            KernelMissing::Other { .. } => 87,
        }
    }
}

/// Sets up a small ring, looks at it, and takes it down again.
pub fn probe() -> Result<KernelSupport, KernelMissing> {
    match build(8, 16) {
        Ok((_, support)) => Ok(support),
        Err(RingError::Kernel(missing)) => Err(missing),
        Err(error @ RingError::Setup { .. }) => Err(KernelMissing::Other { error: error.to_string() }),
    }
}

/// Builds a ring and finds out what its kernel supports.
pub(super) fn build(sq_entries: u32, cq_entries: u32) -> Result<(IoUring, KernelSupport), RingError> {
    let release = release();
    let version = parse_version(&release);
    if version < KERNEL_FLOOR {
        return Err(KernelMissing::TooOld { release }.into());
    }
    let ring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_coop_taskrun()
        .setup_taskrun_flag()
        .setup_submit_all()
        .setup_clamp()
        .setup_cqsize(cq_entries)
        .build(sq_entries)
        .map_err(|error| diagnose(&error, switch(), &release, memlock()))?;
    let feature = |feature| RingError::from(KernelMissing::Feature { release: release.clone(), feature });
    let params = ring.params();
    for (there, name) in [
        (params.is_feature_nodrop(), "completions that survive an overflow (IORING_FEAT_NODROP)"),
        (params.is_feature_ext_arg(), "waiting with a timeout (IORING_FEAT_EXT_ARG)"),
        (params.is_feature_skip_cqe_on_success(), "completions on failure only (IORING_FEAT_CQE_SKIP)"),
    ] {
        if !there {
            return Err(feature(name));
        }
    }
    let mut ops = Probe::new();
    ring.submitter()
        .register_probe(&mut ops)
        .map_err(|source| RingError::Setup { step: "asking for the supported operations", source })?;
    for (code, name) in [
        (opcode::Writev::CODE, "vectored writes (IORING_OP_WRITEV)"),
        (opcode::Fallocate::CODE, "reserving space (IORING_OP_FALLOCATE)"),
        (opcode::OpenAt::CODE, "opening files (IORING_OP_OPENAT)"),
        (opcode::RenameAt::CODE, "renaming (IORING_OP_RENAMEAT)"),
        (opcode::MkDirAt::CODE, "making folders (IORING_OP_MKDIRAT)"),
        (opcode::Statx::CODE, "asking for a file's device (IORING_OP_STATX)"),
        (opcode::SendMsg::CODE, "sending (IORING_OP_SENDMSG)"),
        (opcode::PollAdd::CODE, "readiness (IORING_OP_POLL_ADD)"),
        (opcode::MsgRingData::CODE, "messages between rings (IORING_OP_MSG_RING)"),
    ] {
        if !ops.is_supported(code) {
            return Err(feature(name));
        }
    }
    let support = KernelSupport {
        version,
        ftruncate: ops.is_supported(opcode::Ftruncate::CODE),
        no_iowait: params.is_feature_no_iowait(),
        send_zero_copy: ops.is_supported(opcode::SendZc::CODE),
        memlock_bytes: memlock(),
    };
    Ok((ring, support))
}

/// Why a ring could not be set up.
fn diagnose(error: &io::Error, switch: Option<u32>, release: &str, memlock: Option<u64>) -> KernelMissing {
    match (error.raw_os_error(), switch) {
        (Some(libc::EPERM), Some(value)) if value > 0 => KernelMissing::SwitchedOff { value },
        (Some(libc::EPERM), _) => KernelMissing::Forbidden,
        (Some(libc::ENOSYS), _) => KernelMissing::Hidden,
        (Some(libc::ENOMEM), _) => {
            KernelMissing::NoMemory { memlock: memlock.map_or("unlimited".to_owned(), |b| format!("{b} bytes")) }
        }
        (Some(libc::EMFILE | libc::ENFILE), _) => KernelMissing::NoDescriptors,
        (Some(libc::EINVAL), _) => KernelMissing::Feature {
            release: release.to_owned(),
            feature: "SINGLE_ISSUER, DEFER_TASKRUN or another setup flag",
        },
        _ => KernelMissing::Other { error: error.to_string() },
    }
}

fn switch() -> Option<u32> {
    std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok()?.trim().parse().ok()
}

fn memlock() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: one writable rlimit.
    let got = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
    (got == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

fn release() -> String {
    let named = nix::sys::utsname::uname();
    named.map(|n| n.release().to_string_lossy().into_owned()).unwrap_or_default()
}

/// Major and minor; zeroes for what cannot be read.
fn parse_version(release: &str) -> (u32, u32) {
    let mut parts = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_release_names() {
        assert_eq!(parse_version("6.18.44-fc-v769"), (6, 18));
        assert_eq!(parse_version("5.4.0-1-generic"), (5, 4));
        assert_eq!(parse_version("7.0-rc1"), (7, 0));
        assert_eq!(parse_version("nonsense"), (0, 0));
        assert!(parse_version("6.0.19") < KERNEL_FLOOR);
    }

    #[test]
    fn a_refusal_names_its_cause() {
        let because = |errno, switch| diagnose(&io::Error::from_raw_os_error(errno), switch, "6.8", Some(8192));
        assert_eq!(because(libc::EPERM, Some(2)), KernelMissing::SwitchedOff { value: 2 });
        assert_eq!(because(libc::EPERM, Some(0)), KernelMissing::Forbidden);
        assert_eq!(because(libc::EPERM, None), KernelMissing::Forbidden);
        assert_eq!(because(libc::ENOSYS, None), KernelMissing::Hidden);
        assert_eq!(because(libc::ENOMEM, Some(0)), KernelMissing::NoMemory { memlock: "8192 bytes".to_owned() });
        assert_eq!(because(libc::EMFILE, Some(0)), KernelMissing::NoDescriptors);
        assert!(because(libc::EPERM, Some(1)).to_string().contains("sysctl -w kernel.io_uring_disabled=0"));
    }

    #[test]
    fn exit_codes_tell_the_reasons_apart() {
        let all = [
            KernelMissing::TooOld { release: "5.4".to_owned() },
            KernelMissing::SwitchedOff { value: 2 },
            KernelMissing::Forbidden,
            KernelMissing::Hidden,
            KernelMissing::NoMemory { memlock: String::new() },
            KernelMissing::NoDescriptors,
            KernelMissing::Feature { release: String::new(), feature: "" },
            KernelMissing::Other { error: String::new() },
        ];
        let mut codes: Vec<u8> = all.iter().map(KernelMissing::exit_code).collect();
        codes.dedup();
        assert_eq!(codes, (80..88).collect::<Vec<u8>>());
    }

    #[test]
    fn this_machine_passes_the_probe() {
        let support = probe().unwrap();
        assert!(support.version >= KERNEL_FLOOR, "{support:?}");
    }
}
