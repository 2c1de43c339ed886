//! Holds: the real broker as a process: start, wait until it serves, stop or kill it, read its log and its use of the machine.
//! Never touches: the broker's code; it knows the command line, the protocol's ApiVersions and /proc.

use std::fs::{File, TryLockError};
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::raw::RawConnection;

/// Time for a start, on a machine that is busy with other things. What counts as fast enough is for the tests to say.
const START_PATIENCE: Duration = Duration::from_secs(30);
/// Ports for brokers: below the range from which the kernel gives ports to outgoing connections.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// A port that no other test on this machine uses while this lives: a file lock says so.
#[derive(Debug)]
pub struct ReservedPort {
    port: u16,
    _lock: File,
}

impl ReservedPort {
    /// Finds a free one.
    pub fn new() -> ReservedPort {
        let folder = std::env::temp_dir().join("corelog-test-ports");
        std::fs::create_dir_all(&folder).expect("a folder for port reservations");
        let start = (std::process::id() as u16) % PORTS.len() as u16;
        for step in 0..PORTS.len() as u16 {
            let port = PORTS.start + (start.wrapping_mul(7) % PORTS.len() as u16 + step) % PORTS.len() as u16;
            let lock = File::create(folder.join(port.to_string())).expect("a port reservation");
            match lock.try_lock() {
                Ok(()) if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() => {
                    return ReservedPort { port, _lock: lock };
                }
                Ok(()) | Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => panic!("port reservation {port} can't be locked: {error}"),
            }
        }
        panic!("no free port in {PORTS:?}");
    }

    /// The port on the loopback address.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }
}

/// How to start a broker; the same for each restart, unless changed in between.
#[derive(Debug)]
pub struct BrokerSetup {
    /// `--data-dir`.
    pub data_dir: PathBuf,
    /// `--shards`.
    pub shards: u16,
    /// `--set name=value`, each.
    pub settings: Vec<(String, String)>,
    /// Environment variables.
    pub environment: Vec<(String, String)>,
    port: ReservedPort,
}

impl BrokerSetup {
    /// A broker on a free port with its data in `data_dir`.
    pub fn new(data_dir: &Path, shards: u16) -> BrokerSetup {
        BrokerSetup {
            data_dir: data_dir.to_owned(),
            shards,
            // Many tests write records of 1970.
            settings: vec![("log.retention.ms".to_owned(), "-1".to_owned())],
            environment: Vec::new(),
            port: ReservedPort::new(),
        }
    }

    /// With a property of the broker.
    pub fn set(mut self, name: &str, value: &str) -> BrokerSetup {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With an environment variable.
    pub fn environment(mut self, name: &str, value: &str) -> BrokerSetup {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Where it listens, now and after each restart.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// The same for a client's `bootstrap.servers`.
    pub fn bootstrap(&self) -> String {
        self.address().to_string()
    }

    /// Starts the broker and waits until it answers an ApiVersions request.
    ///
    /// # Panics
    /// If it doesn't come up; with all it has logged.
    pub fn start(&self) -> Broker {
        self.try_start().unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// Like [`BrokerSetup::start`], for a broker that may have to refuse.
    pub fn try_start(&self) -> Result<Broker, StartFailure> {
        let mut broker = self.launch();
        let began = broker.launched;
        while began.elapsed() < START_PATIENCE {
            if let Some(exit) = broker.exited() {
                return Err(StartFailure { exit: Some(exit), waited: began.elapsed(), log: broker.log() });
            }
            if serves(self.address()) {
                broker.start_time = began.elapsed();
                return Ok(broker);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(StartFailure { exit: None, waited: began.elapsed(), log: broker.log() })
    }

    /// Starts the process and waits for nothing.
    pub fn launch(&self) -> Broker {
        let mut command = Command::new(env!("CARGO_BIN_EXE_corelog"));
        command.arg("serve").arg("--listen").arg(self.address().to_string());
        command.arg("--data-dir").arg(&self.data_dir).arg("--shards").arg(self.shards.to_string());
        for (name, value) in &self.settings {
            command.arg("--set").arg(format!("{name}={value}"));
        }
        // Our own settings from outside (how long to test, ...) are not the broker's.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CORELOG_")) {
            command.env_remove(name);
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // SAFETY: prctl with PR_SET_PDEATHSIG only sets a number of the new process; it is safe to call between fork and exec.
        unsafe {
            command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        self.wait_for_port();
        let launched = Instant::now();
        let mut child = command.spawn().expect("the broker's binary can be started");
        let log = Log::default();
        log.follow(child.stdout.take().expect("a piped stdout"));
        log.follow(child.stderr.take().expect("a piped stderr"));
        Broker { child, address: self.address(), log, launched, start_time: Duration::ZERO, exit: None }
    }
}

impl BrokerSetup {
    /// A killed process's ring lets go of its listening socket a moment after the process itself is gone. A broker that is started in
    /// that moment rightly takes the port for occupied; that is not what these tests are about.
    fn wait_for_port(&self) {
        let began = Instant::now();
        while TcpListener::bind(self.address()).is_err() && began.elapsed() < START_PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn serves(address: SocketAddr) -> bool {
    RawConnection::connect(address).is_ok_and(|mut connection| connection.api_versions().is_ok())
}

/// A broker that did not come up.
#[derive(Debug)]
pub struct StartFailure {
    /// How it ended, if it did.
    pub exit: Option<ExitStatus>,
    /// How long it was waited for.
    pub waited: Duration,
    /// What it logged.
    pub log: String,
}

impl std::fmt::Display for StartFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.exit {
            Some(exit) => write!(f, "the broker ended while starting ({exit}) after {:?}", self.waited)?,
            None => write!(f, "the broker did not serve within {:?}", self.waited)?,
        }
        write!(f, "; its log:\n{}", self.log)
    }
}

/// A running broker; killed when dropped.
#[derive(Debug)]
pub struct Broker {
    child: Child,
    address: SocketAddr,
    log: Log,
    launched: Instant,
    start_time: Duration,
    exit: Option<ExitStatus>,
}

impl Broker {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From the start of the process to its first answer.
    pub fn start_time(&self) -> Duration {
        self.start_time
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        if self.exit.is_none() {
            self.exit = self.child.try_wait().expect("the broker's state can be asked for");
        }
        self.exit
    }

    /// SIGKILL, without waiting for the end.
    pub fn kill_at_once(&mut self) {
        if self.exited().is_none() {
            self.child.kill().expect("the broker can be killed");
        }
    }

    /// SIGKILL, and waits until the process is gone.
    ///
    /// # Panics
    /// If it had ended before by itself: nobody asked it to.
    pub fn kill(&mut self) {
        if let Some(exit) = self.exited() {
            panic!("the broker had ended by itself ({exit}) before it was killed; its log:\n{}", self.log());
        }
        self.kill_at_once();
        let exit = self.wait();
        assert_eq!(exit.signal(), Some(libc::SIGKILL), "the broker ended otherwise ({exit}); its log:\n{}", self.log());
    }

    /// SIGTERM, and waits until the process is gone: its exit code should be 0.
    ///
    /// # Panics
    /// If it is not gone within `patience`.
    pub fn terminate(&mut self, patience: Duration) -> ExitStatus {
        // SAFETY: the child has not been waited for (else `exit` is set and it gets no signal), so its id can't be another's.
        if self.exited().is_none() && unsafe { libc::kill(self.pid() as libc::pid_t, libc::SIGTERM) } != 0 {
            panic!("SIGTERM: {}", std::io::Error::last_os_error());
        }
        let began = Instant::now();
        while began.elapsed() < patience {
            if let Some(exit) = self.exited() {
                return exit;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        panic!("the broker did not end within {patience:?} after SIGTERM; its log:\n{}", self.log());
    }

    /// Waits for the end of the process.
    pub fn wait(&mut self) -> ExitStatus {
        let exit = match self.exit {
            Some(exit) => exit,
            None => self.child.wait().expect("the broker can be waited for"),
        };
        self.exit = Some(exit);
        exit
    }

    /// All it has printed so far: whole, if it has ended; else what was read of it.
    pub fn log(&self) -> String {
        if self.exit.is_some() {
            self.log.finish();
        }
        self.log.text()
    }

    /// The same, once `text` is in it: what it prints takes its time to arrive here.
    ///
    /// # Panics
    /// If it does not come.
    pub fn log_with(&self, text: &str) -> String {
        let began = Instant::now();
        loop {
            let log = self.log();
            if log.contains(text) {
                return log;
            }
            assert!(began.elapsed() < START_PATIENCE, "no {text:?}; the log:\n{log}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The lines with `text` in them, once there are `at_least` so many: an answer can be here before the line that the
    /// broker wrote before it.
    ///
    /// # Panics
    /// If they do not come.
    pub fn lines_with(&self, text: &str, at_least: usize) -> Vec<String> {
        let began = Instant::now();
        loop {
            let log = self.log();
            let lines: Vec<_> = log.lines().filter(|line| line.contains(text)).map(str::to_owned).collect();
            if lines.len() >= at_least {
                return lines;
            }
            assert!(began.elapsed() < START_PATIENCE, "{} of {at_least} times {text:?}; the log:\n{log}", lines.len());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The sum over all shards of a number in the status lines (`name: 7` or `name=7`), asked for now.
    ///
    /// # Panics
    /// If the lines don't come, or don't have it.
    pub fn status(&self, name: &str, shards: usize) -> u64 {
        let lines =
            |log: &str| log.lines().filter(|line| line.contains("status:")).map(str::to_owned).collect::<Vec<_>>();
        let before = lines(&self.log()).len();
        // SAFETY: a signal to our own child, which has not been waited for while this value can be borrowed as running.
        assert_eq!(unsafe { libc::kill(self.pid() as libc::pid_t, libc::SIGUSR1) }, 0, "SIGUSR1");
        let began = Instant::now();
        loop {
            let lines = lines(&self.log());
            if lines.len() >= before + shards {
                return lines[before..].iter().map(|line| number_in(line, name)).sum();
            }
            assert!(began.elapsed() < START_PATIENCE, "no status; the log:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Resident memory in bytes.
    pub fn resident_bytes(&self) -> u64 {
        let status = self.proc_file("status");
        let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS in /proc/PID/status");
        kib.trim().trim_end_matches(" kB").parse::<u64>().expect("a number of KiB") * 1024
    }

    /// Processor time it has used, in user mode and in the kernel.
    pub fn cpu_time(&self) -> Duration {
        let stat = self.proc_file("stat");
        // The name in parentheses may hold spaces; fields 14 and 15 are utime and stime.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().expect("a number of ticks")).sum();
        // SAFETY: sysconf only reads a constant of the system.
        let ticks_per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as u64;
        Duration::from_millis(ticks * 1_000 / ticks_per_second)
    }

    /// Open file descriptors.
    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).map_or(0, |entries| entries.count())
    }

    fn proc_file(&self, name: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{name}", self.pid()))
            .unwrap_or_else(|error| panic!("/proc/{}/{name}: {error}; the broker's log:\n{}", self.pid(), self.log()))
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if self.exit.is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        if std::thread::panicking() {
            eprintln!("---- the broker's log ----\n{}\n---- end of the broker's log ----", self.log());
        }
    }
}

/// The number behind `name: ` or `name=` in a line.
fn number_in(line: &str, name: &str) -> u64 {
    let found = [": ", "="].iter().find_map(|between| line.split_once(&format!("{name}{between}")));
    let digits = found.map(|(_, rest)| rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default());
    digits.and_then(|digits| digits.parse().ok()).unwrap_or_else(|| panic!("no number {name} in {line:?}"))
}

/// What a process prints, collected by threads of their own.
#[derive(Clone, Debug, Default)]
struct Log {
    lines: Arc<Mutex<Vec<String>>>,
    /// Streams that have not come to their end.
    open: Arc<AtomicUsize>,
}

impl Log {
    fn follow(&self, stream: impl Read + Send + 'static) {
        let (lines, open) = (Arc::clone(&self.lines), Arc::clone(&self.open));
        open.fetch_add(1, Ordering::SeqCst);
        std::thread::spawn(move || {
            for line in BufReader::new(stream).lines() {
                let Ok(line) = line else { break };
                lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
            open.fetch_sub(1, Ordering::SeqCst);
        });
    }

    /// Waits for what a process that has ended has still to be read of.
    fn finish(&self) {
        let began = Instant::now();
        while self.open.load(Ordering::SeqCst) > 0 && began.elapsed() < START_PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn text(&self) -> String {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).join("\n")
    }
}
