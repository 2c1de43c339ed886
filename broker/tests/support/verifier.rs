//! Holds: `corelog-bench verify` as a process: found or built, started, and what it said at its end.
//! Never touches: its code; the broker's tests know its command line.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

/// The generator's binary: `CORELOG_BENCH`, or the one of this very source, built beside the broker's with the same profile.
///
/// # Panics
/// If it can't be built.
pub fn corelog_bench() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        if let Some(path) = std::env::var_os("CORELOG_BENCH") {
            return path.into();
        }
        let broker = Path::new(env!("CARGO_BIN_EXE_corelog"));
        let folder = broker.parent().expect("the broker's binary is in a folder");
        let profile = match folder.file_name().and_then(|name| name.to_str()) {
            Some("debug") | None => "dev",
            Some(profile) => profile,
        };
        let mut cargo = Command::new(env!("CARGO"));
        cargo.current_dir(env!("CARGO_MANIFEST_DIR")).args([
            "build",
            "-q",
            "-p",
            "corelog-bench",
            "--profile",
            profile,
        ]);
        cargo.arg("--target-dir").arg(folder.parent().expect("and that in the target folder"));
        assert!(cargo.status().expect("cargo can be run").success(), "corelog-bench can't be built");
        folder.join("corelog-bench")
    })
}

/// A verifying run that goes on.
#[derive(Debug)]
pub struct Verifier {
    name: String,
    child: Child,
}

impl Verifier {
    /// Starts `corelog-bench verify` with `arguments` (in words) on the broker at `bootstrap`.
    ///
    /// # Panics
    /// If it can't be started.
    pub fn start(name: &str, bootstrap: &str, arguments: &str) -> Verifier {
        let mut command = Command::new(corelog_bench());
        command.args(["verify", "-q", "-b", bootstrap, "-t", name]).args(arguments.split_whitespace());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // SAFETY: prctl with PR_SET_PDEATHSIG only sets a number of the new process; it is safe to call between fork and exec.
        unsafe {
            command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        Verifier { name: name.to_owned(), child: command.spawn().expect("the generator can be started") }
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("the generator's state can be asked for").is_none()
    }

    /// Waits for its end; what it said, and its exit code.
    pub fn finish(self) -> (String, Option<i32>) {
        let Output { status, stdout, stderr } = self.child.wait_with_output().expect("the generator can be waited for");
        let said = [stdout, stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        (format!("{}: {said}", self.name), status.code())
    }
}
