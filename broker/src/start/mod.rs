//! Start and stop of the whole process.
//!
//! Holds: the order in which a broker comes up and goes down as a process: signals, threads, rings. Never touches: requests,
//! or how a node is put together ([`node`]).
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

mod error;
pub mod folders;
pub mod node;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use corelog_reactor::ring::{self, RingConfig, RingDriver};
use corelog_reactor::{CoreId, Reactor, ReactorLimits, RemoteWaker, pin_to_core};
use corelog_storage::disk::datadir::DataDir;
use corelog_storage::disk::files::remedy;
use corelog_storage::disk::probe::{self, DiskSupport, ProbeError};
use corelog_storage::log::StorageOptions;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use tracing::{info, warn};

pub use self::error::StartError;
use self::folders::DataFolders;
use self::node::{Broken, NodeOptions, ShardSeed};
use crate::check;
use crate::config::BrokerConfig;
use crate::server::Server;

/// What a shard's thread tells the main thread.
enum Report {
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
    let (data, disk) = prepare_data(&config)?;
    check::warn_of_host(&config);
    let mut server = Server::new(Arc::new(config));
    server.alarm = wake_main;
    let server = Arc::new(server);
    let (reports, inbox) = mpsc::channel();
    let storage = StorageOptions { direct: disk.direct, ..StorageOptions::default() };
    let seeds = node::seeds(&server, &data, &NodeOptions { storage, broken: broken_on_purpose() });
    let threads = start_shards(&server, seeds, &reports)?;
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
    // A write past RLIMIT_FSIZE is to fail with EFBIG, as any other write may fail, not to end the process.
    let mut blocked = signals;
    blocked.add(Signal::SIGXFSZ);
    if let Err(error) = blocked.thread_block() {
        warn!(%error, "cannot block signals: a stop will not be orderly");
    }
    signals
}

/// A broker needs a file handle for each connection and open segment: take all that the hard limit allows.
fn raise_open_files() {
    let raised =
        getrlimit(Resource::RLIMIT_NOFILE).and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        warn!(%error, "cannot raise the open-file limit");
    }
}

/// Opens the data folders on a ring of their own, before any shard exists, and tries what their disks can do.
fn prepare_data(config: &BrokerConfig) -> Result<(DataFolders, DiskSupport), StartError> {
    let driver = RingDriver::new(RingConfig::default())?;
    let reactor = Reactor::new(Box::new(driver), ReactorLimits::default());
    let prepared = reactor.block_on(async {
        let mut folders = folders::open_all(&reactor, config).await?;
        let disk = try_disk(&reactor, &folders.first).await?;
        for folder in &mut folders.more {
            let Some(open) = &mut folder.opened else { continue };
            match try_disk(&reactor, &open.data).await {
                Ok(disk) => open.direct = Some(disk.direct),
                Err(failure) => folder.set_offline(&failure),
            }
        }
        Ok((folders, disk))
    });
    reactor.shutdown();
    prepared
}

async fn try_disk(reactor: &Reactor, data: &DataDir) -> Result<DiskSupport, ProbeError> {
    let probe = async || probe::probe(data.path());
    let disk = data.reserve().spend(reactor, ProbeError::is_no_space, probe).await?;
    if let Some(reason) = &disk.direct_refused {
        warn!(folder = %data.path().display(), reason, "no direct I/O here: writes go through the page cache and cost more");
    }
    Ok(disk)
}

/// Starts a thread for each shard.
fn start_shards(
    server: &Arc<Server>,
    seeds: Vec<ShardSeed>,
    reports: &Sender<Report>,
) -> Result<Vec<JoinHandle<()>>, StartError> {
    let cores = &server.config.cores;
    let mut threads = Vec::new();
    for (number, seed) in seeds.into_iter().enumerate() {
        let core = (server.shards <= cores.len()).then(|| CoreId(cores[number]));
        let reports = reports.clone();
        let thread = std::thread::Builder::new()
            .name(format!("shard-{number}"))
            .spawn(move || {
                if let Err(failure) = run_shard(seed, core, &reports) {
                    report_failure(&reports, failure);
                }
            })
            .map_err(|error| {
                StartError::Thread(format!(
                    "cannot start a thread for shard {number}: {error}. Raise the limit of processes (ulimit -u, systemd: \
                     LimitNPROC=, TasksMax=) or of memory, or lower corelog.shards"
                ))
            })?;
        threads.push(thread);
    }
    Ok(threads)
}

/// Tells the main thread, which may be waiting for a signal.
fn report_failure(reports: &Sender<Report>, failure: StartError) {
    // The main thread is gone only when the process ends.
    let _ = reports.send(Report::Failed(failure));
    wake_main();
}

/// Has the main thread look at what there is.
fn wake_main() {
    let _ = nix::sys::signal::kill(nix::unistd::getpid(), Signal::SIGUSR2);
}

/// A shard's life on its thread.
fn run_shard(seed: ShardSeed, core: Option<CoreId>, reports: &Sender<Report>) -> Result<(), StartError> {
    if let Some(core) = core
        && !pin_to_core(core)
    {
        warn!(shard = seed.id().0, core = core.0, "cannot pin the shard to its core");
    }
    let driver = RingDriver::new(RingConfig { worker_cores: core.into_iter().collect(), ..RingConfig::default() })?;
    let reactor = Reactor::new(Box::new(driver), seed.limits());
    reactor.pool().warm_ahead();
    let waker = reactor
        .remote_waker()
        .map_err(|error| StartError::Thread(format!("no event counter: {error}{}", remedy(&error))))?;
    let _ = reports.send(Report::Waker(waker));
    let to_main = reports.clone();
    let shard = seed.build(&reactor, move |started| match started {
        Ok(addresses) => drop(to_main.send(Report::Ready(addresses))),
        Err(failure) => report_failure(&to_main, failure),
    })?;
    shard.run();
    reactor.shutdown();
    Ok(())
}

/// What a test asked this broker to leave out. Never in a release build.
fn broken_on_purpose() -> Broken {
    let asked = std::env::var("CORELOG_TEST_BREAK").unwrap_or_default();
    match asked.as_str() {
        "no-dsync" if cfg!(debug_assertions) => Broken::NoDsync,
        "no-dir-sync" if cfg!(debug_assertions) => Broken::NoDirSync,
        _ => Broken::Nothing,
    }
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
    // What clients are told, since what is bound may be every interface.
    let told = server.config.listeners.iter().zip(addresses).find(|(listener, _)| listener.is_advertised);
    let address = told.map(|(listener, bound)| listener.address_told(bound.port())).unwrap_or_default();
    info!(
        shards = server.shards,
        ready_ms = took.as_millis() as u64,
        kernel = %format_args!("{}.{}", kernel.0, kernel.1),
        data = %server.config.data_dir.display(),
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
        if let Some(reason) = server.first_folder_failure() {
            let path = server.config.data_dir.clone();
            return Some(StartError::FirstFolderFailed { path, reason: reason.to_owned() });
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
