//! Start and stop of the whole process.
//!
//! Holds: the order in which a broker comes up and goes down, and why it could not. Never touches: requests.
//!
//! ```text
//!   main thread                       shard 0                           other shards
//!   probe kernel, data folder, disk
//!   start a thread per core ───────>  metadata log, leader epochs
//!                                     image ──(Apply)────────────────>  open their partitions
//!                                     listen, accept <───────────────── applied
//!   "listening on" <───────────────── ready
//!   wait for a signal ──(stop)─────>  close connections, commit, close logs, each on its own
//!   join, exit 0
//! ```

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use corelog_reactor::ring::{self, KernelMissing, RingConfig, RingDriver, RingError};
use corelog_reactor::{CoreId, MailPort, Reactor, ReactorLimits, RemoteWaker, ShardId, mail_mesh, pin_to_core};
use corelog_storage::disk::datadir::{DataDir, DataDirError};
use corelog_storage::disk::meta::MetaProperties;
use corelog_storage::disk::probe::{self, DiskSupport, ProbeError};
use corelog_storage::ids::TopicId;
use corelog_storage::log::{StorageEnv, StorageOptions};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use thiserror::Error;
use tracing::{info, warn};

use crate::config::BrokerConfig;
use crate::server::Server;
use crate::shard::mail::Mail;
use crate::shard::{Shard, ShardParts, controlling};

/// Messages that may wait in one direction between two shards.
const MAILBOX_MESSAGES: usize = 1024;
/// Bytes of the buffer that a shard's connections receive small frames through.
const RECEIVE_BUFFER_BYTES: usize = 64 << 10;
/// Ring operations of a connection at one time: its readiness, and a send.
const OPS_PER_CONNECTION: usize = 2;
/// Ring operations of a shard's files at one time.
const OPS_OF_THE_SHARD: usize = 8192;
/// Tasks of a shard beyond its connections' (two each) and its partitions' commits.
const TASKS_MAX: usize = 1 << 20;

/// Why the broker did not start, or did not go on.
#[derive(Debug, Error)]
pub enum StartError {
    /// The kernel lacks something we can't do without.
    #[error(transparent)]
    Kernel(#[from] KernelMissing),
    /// A ring could not be made.
    #[error("cannot make an io_uring: {0}")]
    Ring(#[from] RingError),
    /// The data folder can't be used.
    #[error("data folder {0}")]
    Data(#[from] DataDirError),
    /// More than one data folder.
    #[error(
        "log.dirs names {0} folders: this version keeps everything in one. Give it one folder, and run one broker for each disk"
    )]
    SeveralFolders(usize),
    /// The data folder belongs to another broker.
    #[error("{path}/meta.properties is of node {found}, this broker is node {ours}: check node.id and log.dirs")]
    NodeId {
        /// The folder.
        path: PathBuf,
        /// Whose it is.
        found: i32,
        /// Who we are.
        ours: i32,
    },
    /// The file system can't do what durability needs.
    #[error(transparent)]
    Disk(#[from] ProbeError),
    /// The metadata log can't be read, or its first records can't be written.
    #[error("metadata: {0}")]
    Metadata(String),
    /// A listener's address is taken or not ours.
    #[error("cannot listen on {address}: {error}. Is another broker running? Choose another address with --listen")]
    Listen {
        /// The address.
        address: String,
        /// What the system said.
        error: io::Error,
    },
    /// A thread could not be started, or ended by itself.
    #[error("{0}")]
    Thread(String),
    /// No memory for a shard's buffers.
    #[error("no buffer memory: {0}")]
    Memory(String),
}

impl StartError {
    /// The process's exit code: distinct for what an operator must tell apart.
    pub fn exit_code(&self) -> u8 {
        match self {
            StartError::Kernel(missing) => missing.exit_code(),
            StartError::Ring(_) => 70,
            StartError::Data(_) | StartError::SeveralFolders(_) | StartError::NodeId { .. } => 73,
            StartError::Disk(_) => 74,
            StartError::Metadata(_) => 75,
            StartError::Listen { .. } => 76,
            StartError::Thread(_) | StartError::Memory(_) => 71,
        }
    }
}

/// What a shard's thread tells the main thread.
pub enum Report {
    /// Shard 0 serves on these addresses.
    Ready(Vec<SocketAddr>),
    /// A shard's waker, for stopping it.
    Waker(RemoteWaker),
    /// A shard could not go on.
    Failed(StartError),
}

/// Runs a broker until it is told to stop.
///
/// # Errors
/// [`StartError`].
pub fn run(config: BrokerConfig) -> Result<(), StartError> {
    let began = Instant::now();
    let signals = block_signals();
    raise_open_files();
    let kernel = ring::probe()?;
    let data = prepare_data(&config)?;
    let disk = probe::probe(data.path())?;
    if let Some(reason) = &disk.direct_refused {
        warn!(folder = %data.path().display(), reason, "no direct I/O here: writes go through the page cache and cost more");
    }
    let server = Arc::new(Server::new(Arc::new(config)));
    let (reports, inbox) = mpsc::channel();
    let threads = start_shards(&server, &data, &disk, &reports)?;
    let (mut wakers, addresses) = wait_until_ready(&inbox, server.shards)?;
    announce(&server, &addresses, began.elapsed(), kernel.version);
    let failed = wait_for_signals(&signals, &inbox, &server, &mut wakers);
    server.stop();
    wakers.iter().for_each(RemoteWaker::wake);
    for thread in threads {
        thread.join().map_err(|_| StartError::Thread("a shard's thread panicked".into()))?;
    }
    match failed {
        None => {
            info!("stopped");
            Ok(())
        }
        Some(failure) => Err(failure),
    }
}

/// Signals are taken by the main thread alone; blocked before any other thread starts, they are blocked in all.
fn block_signals() -> SigSet {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGUSR1, Signal::SIGUSR2] {
        signals.add(signal);
    }
    if let Err(error) = signals.thread_block() {
        warn!(%error, "cannot block signals: a stop will not be orderly");
    }
    signals
}

/// A broker needs a file handle for each connection and open segment: take all that the hard limit allows.
fn raise_open_files() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard).map(|()| hard));
    match raised {
        Ok(hard) if hard < 16_384 => {
            warn!(limit = hard, "few open files allowed: raise ulimit -n for many connections")
        }
        Ok(_) => {}
        Err(error) => warn!(%error, "cannot raise the open-file limit"),
    }
}

/// Opens the data folder on a ring of its own, before any shard exists.
fn prepare_data(config: &BrokerConfig) -> Result<DataDir, StartError> {
    let [path] = &config.data_dirs[..] else {
        return Err(StartError::SeveralFolders(config.data_dirs.len()));
    };
    let driver = RingDriver::new(RingConfig::default())?;
    let reactor = Reactor::new(Box::new(driver), ReactorLimits::default());
    let data = reactor.block_on(async {
        let mut data = DataDir::open(&reactor, path).await?;
        match data.meta() {
            Some(meta) if meta.node_id != config.node_id => {
                return Err(StartError::NodeId { path: path.clone(), found: meta.node_id, ours: config.node_id });
            }
            Some(_) => {}
            None => {
                let random = || {
                    let mut bytes = [0; 16];
                    reactor.fill_random(&mut bytes);
                    TopicId(*uuid::Builder::from_random_bytes(bytes).as_uuid().as_bytes())
                };
                let cluster_id = random().to_string();
                let meta = MetaProperties { cluster_id, node_id: config.node_id, directory_id: random() };
                data.set_meta(&reactor, meta).await?;
            }
        }
        Ok(data)
    });
    reactor.shutdown();
    data
}

/// What a shard's thread starts from.
struct Seed {
    id: ShardId,
    core: Option<CoreId>,
    server: Arc<Server>,
    port: MailPort<Mail>,
    data: PathBuf,
    checkpoints: Arc<corelog_storage::disk::checkpoint::CheckpointSet>,
    leftovers: Vec<PathBuf>,
    cluster_id: String,
    direct: bool,
    reports: Sender<Report>,
}

fn start_shards(
    server: &Arc<Server>,
    data: &DataDir,
    disk: &DiskSupport,
    reports: &Sender<Report>,
) -> Result<Vec<JoinHandle<()>>, StartError> {
    let cores = &server.config.cores;
    let cluster_id = data.meta().map(|meta| meta.cluster_id.clone()).unwrap_or_default();
    if server.shards > cores.len() {
        info!(shards = server.shards, cores = cores.len(), "more shards than cores: they share, unpinned");
    }
    let ports = mail_mesh::<Mail>(server.shards, MAILBOX_MESSAGES);
    let mut threads = Vec::new();
    for (number, port) in ports.into_iter().enumerate() {
        let seed = Seed {
            id: ShardId(number as u16),
            core: (server.shards <= cores.len()).then(|| CoreId(cores[number])),
            server: Arc::clone(server),
            port,
            data: data.path().to_path_buf(),
            checkpoints: data.checkpoints(),
            leftovers: if number == 0 { data.leftovers().to_vec() } else { Vec::new() },
            cluster_id: cluster_id.clone(),
            direct: disk.direct,
            reports: reports.clone(),
        };
        let thread = std::thread::Builder::new()
            .name(format!("shard-{number}"))
            .spawn(move || shard_thread(seed))
            .map_err(|error| StartError::Thread(format!("cannot start a thread for shard {number}: {error}")))?;
        threads.push(thread);
    }
    Ok(threads)
}

fn shard_thread(seed: Seed) {
    let reports = seed.reports.clone();
    if let Err(failure) = run_shard(seed) {
        report_failure(&reports, failure);
    }
}

/// Tells the main thread, which may be waiting for a signal.
pub fn report_failure(reports: &Sender<Report>, failure: StartError) {
    // The main thread is gone only when the process ends.
    let _ = reports.send(Report::Failed(failure));
    let _ = nix::sys::signal::kill(nix::unistd::getpid(), Signal::SIGUSR2);
}

fn run_shard(seed: Seed) -> Result<(), StartError> {
    if let Some(core) = seed.core
        && !pin_to_core(core)
    {
        warn!(shard = seed.id.0, core = core.0, "cannot pin the shard to its core");
    }
    let config = Arc::clone(&seed.server.config);
    let driver =
        RingDriver::new(RingConfig { worker_cores: seed.core.into_iter().collect(), ..RingConfig::default() })?;
    let limits = ReactorLimits {
        tasks_max: TASKS_MAX,
        op_slots_max: config.connections_per_core_max * OPS_PER_CONNECTION + OPS_OF_THE_SHARD,
        pool_bytes_max: config.memory_bytes_per_core as usize,
        ..ReactorLimits::default()
    };
    let reactor = Reactor::new(Box::new(driver), limits);
    if is_broken_on_purpose("no-dir-sync") {
        reactor.forget_folders_for_a_test();
    }
    let waker = reactor.remote_waker().map_err(|error| StartError::Thread(format!("no event counter: {error}")))?;
    let _ = seed.reports.send(Report::Waker(waker));
    let options = StorageOptions {
        break_durability_for_a_test: is_broken_on_purpose("no-dsync"),
        direct: seed.direct,
        tail_cache_bytes_max: config.tail_cache_bytes_per_core as usize,
        prewritten_bytes_max: config.prewrite_bytes_per_data_dir / seed.server.shards as u64,
        ..StorageOptions::default()
    };
    let storage = StorageEnv::new(reactor.clone(), seed.id, &seed.data, seed.checkpoints, options);
    storage.remove_leftovers(seed.leftovers);
    let receive_buffer =
        reactor.pool().take(RECEIVE_BUFFER_BYTES).map_err(|error| StartError::Memory(error.to_string()))?;
    let shard = Shard::new(ShardParts {
        id: seed.id,
        reactor: reactor.clone(),
        server: seed.server,
        storage,
        port: seed.port,
        receive_buffer,
    });
    if seed.id == controlling::CONTROLLER_SHARD {
        let (on, reports, data) = (shard.clone(), seed.reports, seed.data);
        shard.spawn(async move {
            match controlling::start(&on, &data, seed.cluster_id).await {
                Ok(addresses) => drop(reports.send(Report::Ready(addresses))),
                Err(failure) => report_failure(&reports, failure),
            }
        });
    }
    shard.run();
    reactor.shutdown();
    Ok(())
}

/// Whether a test asked for a broker that leaves something out, to show that it would notice. Never in a release build.
fn is_broken_on_purpose(what: &str) -> bool {
    cfg!(debug_assertions) && std::env::var("CORELOG_TEST_BREAK").is_ok_and(|broken| broken == what)
}

fn wait_until_ready(
    inbox: &Receiver<Report>,
    shards: usize,
) -> Result<(Vec<RemoteWaker>, Vec<SocketAddr>), StartError> {
    let (mut wakers, mut ready) = (Vec::new(), None);
    loop {
        match inbox.recv() {
            Ok(Report::Waker(waker)) => wakers.push(waker),
            Ok(Report::Ready(addresses)) => ready = Some(addresses),
            Ok(Report::Failed(failure)) => return Err(failure),
            Err(_) => return Err(StartError::Thread("all shards ended before the broker was ready".into())),
        }
        if wakers.len() == shards
            && let Some(addresses) = ready.take()
        {
            return Ok((wakers, addresses));
        }
    }
}

fn announce(server: &Server, addresses: &[SocketAddr], took: Duration, kernel: (u32, u32)) {
    for address in addresses {
        info!("listening on {address}");
    }
    let address = addresses.first().map(SocketAddr::to_string).unwrap_or_default();
    info!(
        shards = server.shards,
        ready_ms = took.as_millis() as u64,
        kernel = %format_args!("{}.{}", kernel.0, kernel.1),
        data = %server.config.data_dirs.first().map(|path| path.display().to_string()).unwrap_or_default(),
        "serving; every acknowledged record is on disk. Try: echo hello | kcat -P -b {address} -t demo; kcat -C -b {address} -t demo -e"
    );
}

/// Waits until the broker is to stop; returns why, if not by a signal.
fn wait_for_signals(
    signals: &SigSet,
    inbox: &Receiver<Report>,
    server: &Server,
    wakers: &mut Vec<RemoteWaker>,
) -> Option<StartError> {
    loop {
        let signal = signals.wait();
        while let Ok(report) = inbox.try_recv() {
            match report {
                Report::Failed(failure) => return Some(failure),
                Report::Waker(waker) => wakers.push(waker),
                Report::Ready(_) => {}
            }
        }
        match signal {
            Ok(Signal::SIGUSR1) => {
                server.ask_status();
                wakers.iter().for_each(RemoteWaker::wake);
            }
            Ok(Signal::SIGUSR2) => {}
            Ok(signal) => {
                info!(%signal, "stopping: no new connections, everything acknowledged is on disk already");
                return None;
            }
            Err(error) => warn!(%error, "waiting for signals failed"),
        }
    }
}
