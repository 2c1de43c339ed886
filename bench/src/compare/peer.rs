//! A broker to measure: started from a file in `bench/peers`, or running already.
//!
//! Holds: the process, its address, how long it took to serve. Never touches: load. Ends only what it started.

use std::fs::{self, File};
use std::io;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use corelog_net::wire::ErrorCode;
use corelog_reactor::Reactor;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::cli::Compare;
use crate::client::cluster::Cluster;
use crate::error::BenchError;
use crate::interrupt::is_interrupted;
use crate::measure::clock::now_ns;
use crate::measure::process::{Sample, listener_of};

/// How long a broker may take to serve.
const START_S_MAX: u64 = 120;
/// How often it is tried.
const START_LOOK: Duration = Duration::from_millis(5);
/// How the names of a comparison's topics begin, and so those of their folders: Kafka and Corelog name them alike, also while
/// they are being removed.
pub const TOPIC_PREFIX: &str = "bench-";
/// How long a deleted topic may stay on the disk with no folder of it going.
const SETTLE_S_MAX: u64 = 300;
/// How often it is looked for.
const SETTLE_LOOK: Duration = Duration::from_millis(100);
/// What a disk that discards what was freed gets to do it in.
const SETTLE_REST: Duration = Duration::from_secs(2);
/// How long it may take to stop.
const STOP_S_MAX: u64 = 60;

/// Its words. That it is there tells a peer's folder from others.
const LOG: &str = "peer.log";

/// A running broker.
pub struct Peer {
    /// Its name in the comparison.
    pub name: String,
    /// `host:port`.
    pub address: String,
    /// Its process, if it is known.
    pub pid: Option<u32>,
    /// Seconds from its start to its first answer, if we started it.
    pub start_s: Option<f64>,
    process: Option<Child>,
    folder: PathBuf,
}

impl Peer {
    /// Starts the peer called `name`, or takes the broker at `name` if that is an address. The folder of its data has its name:
    /// what is in that is removed if it was a peer's, and it is not touched if it wasn't.
    ///
    /// # Errors
    /// There is no such peer, or it doesn't serve.
    pub fn start(reactor: &Reactor, name: &str, options: &Compare) -> Result<Self, BenchError> {
        let failed = |what: String| BenchError::Peer { peer: name.to_owned(), what };
        if name.contains(':') {
            let pid = listener_of(name);
            let peer = Self {
                name: name.into(),
                address: name.into(),
                pid,
                start_s: None,
                process: None,
                folder: PathBuf::new(),
            };
            reactor.block_on(Cluster::connect(reactor, name))?;
            return Ok(peer);
        }
        if Path::new(name).file_name() != Some(name.as_ref()) {
            let what = "a peer is named by its file's name alone, its folder by --peers";
            return Err(BenchError::Usage(format!("{name:?}: {what}")));
        }
        let program = fs::canonicalize(options.peers.join(name))
            .map_err(|error| failed(format!("{}: {error}; see --peers", options.peers.join(name).display())))?;
        let folder = options.work.join(name);
        fresh_folder(&folder)?;
        let folder = fs::canonicalize(&folder).map_err(BenchError::file(&folder))?;
        let log = folder.join(LOG);
        let out = File::create(&log).map_err(BenchError::file(&log))?;
        let both = out.try_clone().map_err(BenchError::file(&log))?;
        let port = free_port().map_err(|error| failed(error.to_string()))?;
        let started = now_ns();
        let mut command = Command::new(program);
        // SAFETY: prctl(2) alone, which is safe between fork and exec.
        unsafe { command.pre_exec(end_with_us) };
        let process = command
            .env("PEER_DIR", &folder)
            .env("PEER_PORT", port.to_string())
            .env("PEER_CORES", &options.broker_cores)
            // Ctrl-C is meant for us: its terminal would send it to a broker in our group, too.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(both)
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        let address = format!("127.0.0.1:{port}");
        let pid = process.id();
        let mut peer =
            Self { name: name.into(), address, pid: Some(pid), start_s: None, process: Some(process), folder };
        let give_up = started + START_S_MAX * 1_000_000_000;
        loop {
            if reactor.block_on(Cluster::connect(reactor, &peer.address)).is_ok() {
                peer.start_s = Some((now_ns() - started) as f64 / 1e9);
                return Ok(peer);
            }
            let gone = peer.process.as_mut().and_then(|process| process.try_wait().ok().flatten());
            if let Some(status) = gone {
                return Err(failed(format!("ended at once ({status}); its words are in {}", log.display())));
            }
            if is_interrupted() {
                return Err(BenchError::Interrupted);
            }
            if now_ns() > give_up {
                return Err(failed(format!("does not serve after {START_S_MAX} s; see {}", log.display())));
            }
            reactor.block_on(reactor.sleep(START_LOOK));
        }
    }

    /// Waits until nothing is left of deleted topics on its disk, and until the disk has taken it in: else one run's deletions
    /// would stall the next one's writes, whosever they are. Brokers that we did not start are taken as they are.
    ///
    /// # Errors
    /// The topics don't go.
    pub fn settle(&self) -> Result<(), BenchError> {
        if self.process.is_none() {
            return Ok(());
        }
        let data = self.folder.join("data");
        let (mut fewest, mut give_up) = (usize::MAX, 0);
        loop {
            let entries = fs::read_dir(&data).map_err(BenchError::file(&data))?;
            let names = entries.flatten().map(|entry| entry.file_name());
            let names = names.filter(|name| name.to_string_lossy().starts_with(TOPIC_PREFIX));
            let (count, last) = names.fold((0, None), |(count, _), name| (count + 1, Some(name)));
            let Some(left) = last else { break };
            if is_interrupted() {
                return Err(BenchError::Interrupted);
            }
            if !self.is_running() {
                return Err(BenchError::Peer {
                    peer: self.name.clone(),
                    what: "ended before its topic was gone".into(),
                });
            }
            if count < fewest {
                (fewest, give_up) = (count, now_ns() + SETTLE_S_MAX * 1_000_000_000);
            }
            if now_ns() > give_up {
                let what = format!("{} is still there {SETTLE_S_MAX} s after its deletion", left.display());
                return Err(BenchError::Peer { peer: self.name.clone(), what });
            }
            std::thread::sleep(SETTLE_LOOK);
        }
        nix::unistd::sync();
        std::thread::sleep(SETTLE_REST);
        Ok(())
    }

    /// What a run against it ended with, and whether the peer has ended with it.
    pub fn explain(&self, error: BenchError) -> BenchError {
        let is_storage_error = matches!(error, BenchError::Refused { code: ErrorCode::KafkaStorageError, .. });
        let what = match self.is_running() {
            _ if matches!(error, BenchError::Interrupted) => return error,
            false => "has ended",
            true if is_storage_error && self.process.is_some() => "can't write (is its disk full?)",
            true => return error,
        };
        let what = format!("{what}; its words are in {}", self.folder.join(LOG).display());
        BenchError::PeerFailed { peer: self.name.clone(), what, error: Box::new(error) }
    }

    /// Whether it is there, for all that is known of one that we did not start.
    fn is_running(&self) -> bool {
        let Some(process) = &self.process else { return true };
        Sample::take(process.id()).is_some_and(|now| now.resident_bytes() > 0)
    }

    /// Stops it, if we started it, and removes its data.
    pub fn stop(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        let _ = kill(Pid::from_raw(process.id() as i32), Signal::SIGTERM);
        let give_up = now_ns() + STOP_S_MAX * 1_000_000_000;
        while process.try_wait().is_ok_and(|status| status.is_none()) {
            if now_ns() > give_up {
                let _ = process.kill();
                let _ = process.wait();
            }
            std::thread::sleep(START_LOOK);
        }
        let _ = fs::remove_dir_all(self.folder.join("data"));
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The peer is told to stop when this process ends, however it does: a comparison that is interrupted leaves no brokers
/// behind. The name of the program changes with exec(2), the wish stays.
fn end_with_us() -> io::Result<()> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGTERM).map_err(io::Error::from)
}

/// Makes the folder anew. One that is there and holds anything but what a peer left is somebody's data.
fn fresh_folder(folder: &Path) -> Result<(), BenchError> {
    let holds_something = fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some());
    if holds_something && !folder.join(LOG).exists() {
        let what = "is there and is no folder of a peer: remove it, or take another with --work";
        return Err(BenchError::Usage(format!("{} {what}", folder.display())));
    }
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(BenchError::file(folder)(error)),
        _ => {}
    }
    fs::create_dir_all(folder).map_err(BenchError::file(folder))
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
