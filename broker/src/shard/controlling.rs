//! The controller's runner, on shard 0: takes requests, makes their records durable, tells every shard, answers.
//!
//! Holds: the queue of requests, the metadata log, this shard's block of producer ids. Never touches: what is decided
//! (`controller/`, a pure state machine).
//!
//! ```text
//!   request ──> handle ──> records ──> metadata log (durable) ──> image ──> every shard applies ──> response
//!                             │ can't be written
//!                             └──> the state is what the log says again; the client gets KAFKA_STORAGE_ERROR
//! ```

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use corelog_net::wire::ErrorCode;
use corelog_reactor::{ListenHow, Listener, Notify, ShardId};
use corelog_storage::disk::files::is_shortage;
use corelog_storage::ids::ProducerId;
use corelog_storage::log::StorageEnv;
use tracing::{error, warn};

use super::ask::AskFuture;
use super::mail::{Answer, Ask, AskId};
use super::{Shard, accept, strays};
use crate::controller::codec::encode;
use crate::controller::features::FEATURES;
use crate::controller::log::{
    ACCEPT_LOSS, Entry, FileLog, HardState, LogWriteError, MetadataLog as _, OpenLogError, SnapshotMeta, recover,
};
use crate::controller::request::{AllocateProducerIds, RegisterBroker};
use crate::controller::snapshot::encode_image;
use crate::controller::{Controller, Endpoint, MetadataImage, Record, Request, Response};
use crate::start::StartError;

/// Where the controller runs.
pub const CONTROLLER_SHARD: ShardId = ShardId(0);
/// Requests that may wait for the controller; more are refused for the client to retry.
const REQUESTS_MAX: usize = 4096;

/// How long a stop waits for the controller to end.
const STOP_MAX: Duration = Duration::from_secs(2);
/// How often it looks.
const STOP_LOOK: Duration = Duration::from_millis(1);
/// How long a start waits for a predecessor's port to become free.
const BIND_PATIENCE: Duration = Duration::from_millis(800);
/// How often it looks.
const BIND_RETRY: Duration = Duration::from_millis(2);

/// Requests that wait for the controller.
#[derive(Default)]
pub struct Queue {
    requests: RefCell<VecDeque<(ShardId, AskId, Request)>>,
    /// Of requests, and of the word to stop.
    arrived: Notify,
    /// A request is being decided, or carried out.
    is_deciding: Cell<bool>,
    /// The broker stops: no further request is taken.
    is_closed: Cell<bool>,
    phase: Cell<Phase>,
}

/// What the controller is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// It has not come up, or runs on another shard.
    #[default]
    Down,
    Running,
    Stopping,
    Ended,
}

/// How long a stop waits for the request that is being decided.
const REST_MAX: Duration = Duration::from_secs(10);
/// How often it looks.
const REST_LOOK: Duration = Duration::from_millis(2);

/// Returns when the controller rests for good: what it has recorded is carried out on every shard. On every shard.
pub async fn rest(shard: &Rc<Shard>) {
    let queue = &shard.controlling;
    let deadline = shard.reactor().now() + REST_MAX;
    if shard.id() == CONTROLLER_SHARD {
        queue.is_closed.set(true);
        for (from, ask, _) in queue.requests.take() {
            refuse(shard, from, ask);
        }
        while queue.is_deciding.get() && shard.reactor().now() < deadline {
            shard.reactor().sleep(REST_LOOK).await;
        }
        shard.server().controller_rests();
    }
    while !shard.server().is_controller_at_rest() && shard.reactor().now() < deadline {
        shard.reactor().sleep(REST_LOOK).await;
    }
}

fn refuse(shard: &Rc<Shard>, from: ShardId, ask: AskId) {
    shard.deliver_answer(from, ask, Answer::Controller(Box::new(Err(ErrorCode::NotController))));
}

/// Producer ids of this shard that were never given out.
#[derive(Default)]
pub struct ProducerIds {
    blocks: VecDeque<Range<i64>>,
}

/// Takes in a request for the controller.
pub fn enqueue(shard: &Rc<Shard>, from: ShardId, ask: AskId, request: Request) {
    let queue = &shard.controlling;
    if queue.is_closed.get() || queue.requests.borrow().len() >= REQUESTS_MAX {
        return refuse(shard, from, ask);
    }
    queue.requests.borrow_mut().push_back((from, ask, request));
    queue.arrived.notify();
}

/// A producer id that was never given out, KIP-98: from a block that was recorded before it is used.
///
/// # Errors
/// `COORDINATOR_LOAD_IN_PROGRESS` (retriable) when no block could be had, as Kafka.
pub async fn next_producer_id(shard: &Rc<Shard>) -> Result<ProducerId, ErrorCode> {
    loop {
        if let Some(id) = shard.producer_ids.borrow_mut().take() {
            return Ok(ProducerId(id));
        }
        let request = AllocateProducerIds {
            broker_id: shard.config().node_id,
            broker_epoch: shard.image().brokers().get(&shard.config().node_id).map_or(-1, |broker| broker.epoch),
        };
        match shard.controller(Request::AllocateProducerIds(request)).await {
            Ok(Response::AllocateProducerIds(Ok(block))) => {
                let range = block.first..block.first + i64::from(block.len);
                shard.producer_ids.borrow_mut().blocks.push_back(range);
            }
            _ => return Err(ErrorCode::CoordinatorLoadInProgress),
        }
    }
}

impl ProducerIds {
    fn take(&mut self) -> Option<i64> {
        loop {
            let block = self.blocks.front_mut()?;
            if let Some(id) = block.next() {
                return Some(id);
            }
            self.blocks.pop_front();
        }
    }
}

/// Brings the controller up: its log, this broker's registration with new leader epochs, every shard's partitions, the
/// listeners. Returns the addresses it listens on.
///
/// # Errors
/// [`StartError`]: nothing is served then.
pub async fn start(shard: &Rc<Shard>, data: &Path, cluster_id: String) -> Result<Vec<SocketAddr>, StartError> {
    let mut runner = Runner::open(shard, data, cluster_id).await?;
    // Bound before registering, so that the registration names the real port; accepting comes last.
    let listeners = listen(shard).await?;
    let request = Request::RegisterBroker(RegisterBroker {
        broker_id: shard.config().node_id,
        endpoints: endpoints(shard, &listeners),
        rack: shard.config().rack.clone(),
        directories: shard.opened_directories(),
    });
    match runner.decide(shard, &request).await {
        Ok(Response::RegisterBroker(Ok(_))) => {}
        Ok(other) => return Err(StartError::Metadata(format!("this broker's registration was refused: {other:?}"))),
        Err(code) => return Err(StartError::Metadata(format!("this broker's registration failed: {}", code.name()))),
    }
    strays::set_strays_aside(shard).await;
    fill_reserve(shard).await;
    let addresses = listeners.iter().map(Listener::local_addr).collect();
    for (number, listener) in listeners.into_iter().enumerate() {
        shard.spawn(accept::run(Rc::clone(shard), listener, number));
    }
    let on = Rc::clone(shard);
    shard.spawn(async move { runner.run(&on).await });
    Ok(addresses)
}

/// Sets space aside for a full disk, or sees to it that it is as soon as there is some.
async fn fill_reserve(shard: &Shard) {
    for (_, storage) in shard.storages() {
        let data = storage.data().display();
        match storage.reserve().fill(shard.reactor()).await {
            Ok(()) => {}
            Err(error) if is_shortage(&error) => {
                warn!(%data, %error, "no space for the reserve: records are read and deleted, nothing grows until there is space");
                storage.refill_reserve();
            }
            Err(error) => {
                warn!(%data, %error, "no reserve: on a full disk deletions may be refused");
                storage.note_failure();
            }
        }
    }
}

/// Stops the controller, if it runs here, and has the end of its log recorded.
pub async fn stop(shard: &Shard) {
    let queue = &shard.controlling;
    if queue.phase.get() != Phase::Running {
        return;
    }
    queue.phase.set(Phase::Stopping);
    queue.arrived.notify();
    // It may wait for a shard that has ended already: not for ever.
    let deadline = shard.reactor().now() + STOP_MAX;
    while queue.phase.get() != Phase::Ended && shard.reactor().now() < deadline {
        shard.reactor().sleep(STOP_LOOK).await;
    }
}

async fn listen(shard: &Shard) -> Result<Vec<Listener>, StartError> {
    let config = shard.config();
    let mut listeners = Vec::new();
    for listener in &config.listeners {
        let host = listener.bind_host.as_deref().unwrap_or("0.0.0.0");
        let address = format!("{host}:{}", listener.bind_port);
        let failed = |error| StartError::Listen { address: address.clone(), port: listener.bind_port, error };
        // Names are resolved here, once, before anything is served: this may block.
        let resolved = (host, listener.bind_port).to_socket_addrs().map_err(failed)?.next();
        let resolved = resolved.ok_or_else(|| failed(io::Error::other("the name has no address")))?;
        let how = ListenHow {
            backlog: config.listen_backlog,
            send_buffer_bytes: config.socket_send_buffer_bytes,
            receive_buffer_bytes: config.socket_receive_buffer_bytes,
        };
        listeners.push(bind(shard, resolved, how).await.map_err(failed)?);
    }
    Ok(listeners)
}

/// Binds, exclusively. A broker that was killed a moment ago may hold its port a little longer than its lock on the data
/// folder: the kernel takes an io_uring apart in the background.
async fn bind(shard: &Shard, address: SocketAddr, how: ListenHow) -> io::Result<Listener> {
    let deadline = shard.reactor().now() + BIND_PATIENCE;
    loop {
        match shard.reactor().listen_with(address, how) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && shard.reactor().now() < deadline => {
                shard.reactor().sleep(BIND_RETRY).await;
            }
            other => return other,
        }
    }
}

/// What clients are told to connect to. Port 0 in the configuration means the port that was really bound.
fn endpoints(shard: &Shard, listeners: &[Listener]) -> Vec<Endpoint> {
    let config = shard.config();
    let open = config.listeners.iter().zip(listeners);
    open.filter(|(listener, _)| listener.is_advertised)
        .map(|(listener, bound)| Endpoint {
            listener: listener.name.clone(),
            host: listener.advertised_host.clone(),
            port: listener.port_told(bound.local_addr().port()),
            security_protocol: listener.protocol.id(),
        })
        .collect()
}

/// The controller and its log.
struct Runner {
    controller: Controller,
    log: FileLog,
    /// The term of this start: a quorum of one elects itself.
    term: u64,
}

impl Runner {
    async fn open(shard: &Rc<Shard>, data: &Path, cluster_id: String) -> Result<Runner, StartError> {
        let failed = |error: &dyn std::fmt::Display| StartError::Metadata(error.to_string());
        let partition = strays::any_log(shard).await.map_err(|error| failed(&error))?;
        let open = async || FileLog::open(shard.reactor(), data, partition.as_deref()).await;
        let opened = shard.storage().spend(OpenLogError::is_no_space, open).await.map_err(|error| failed(&error))?;
        let mut log = opened.log;
        if opened.torn_bytes > 0 {
            let (bytes, from, path) = (opened.torn_bytes, opened.end, opened.path.display());
            warn!(bytes, from, %path, "an interrupted write at the metadata log's end was cut off: it was never acknowledged");
        }
        let term = log.hard_state().term + 1;
        save_hard_state(shard, &mut log, term).await.map_err(|error| failed(&error))?;
        let controller = recovered(shard, &log).await.map_err(|error| failed(&error))?;
        let mut runner = Runner { controller, log, term };
        if runner.log.last_index() == 0 {
            let mut records = runner.controller.bootstrap(&mut || shard.reactor().random_u64());
            for record in &mut records {
                if let Record::Cluster { cluster_id: id } = record {
                    id.clone_from(&cluster_id);
                }
            }
            runner.append(&records).await.map_err(|error| failed(&error))?;
            for record in &records {
                runner.controller.replay(record).map_err(|error| failed(&error))?;
            }
            // From here on an empty log is known to be a loss.
            save_hard_state(shard, &mut runner.log, term).await.map_err(|error| failed(&error))?;
            if let Some(partition) = partition {
                warn!(partition, "the metadata is made anew, without the topics there were: {ACCEPT_LOSS} says so");
            }
        }
        runner.log.end_accepted_loss().await.map_err(|error| failed(&error))?;
        Ok(runner)
    }

    /// Answers requests until the shard stops, one at a time: each sees what the one before it changed.
    async fn run(mut self, shard: &Rc<Shard>) {
        shard.controlling.phase.set(Phase::Running);
        while shard.controlling.phase.get() == Phase::Running {
            let Some((from, ask, request)) = shard.controlling.requests.borrow_mut().pop_front() else {
                shard.controlling.arrived.notified().await;
                continue;
            };
            shard.controlling.is_deciding.set(true);
            let response = self.decide(shard, &request).await;
            shard.controlling.is_deciding.set(false);
            shard.deliver_answer(from, ask, Answer::Controller(Box::new(response)));
            self.snapshot_if_due(shard).await;
        }
        // So that the next start knows of every entry that it was whole.
        if let Err(reason) = save_hard_state(shard, &mut self.log, self.term).await {
            warn!(%reason, "the metadata log's end is not recorded; the next start trusts what it finds");
        }
        shard.controlling.phase.set(Phase::Ended);
    }

    /// Decides one request: when this returns, the decision is durable and in force on every shard, or nothing changed.
    async fn decide(&mut self, shard: &Rc<Shard>, request: &Request) -> Result<Response, ErrorCode> {
        let now = shard.reactor().unix_ms();
        let outcome = self.controller.handle(request, now, &mut || shard.reactor().random_u64());
        if outcome.records.is_empty() {
            return Ok(outcome.response);
        }
        if let Err(reason) = self.record(shard, request, &outcome.records).await {
            error!(%reason, "a metadata change was refused");
            if !reason.is_no_space() {
                shard.storage().note_failure();
            }
            // The state is ahead of its log: go back to what the log says.
            match recovered(shard, &self.log).await {
                Ok(controller) => self.controller = controller,
                Err(error) => {
                    error!(%error, "the controller could not be read back; it refuses changes until a restart")
                }
            }
            return Err(ErrorCode::KafkaStorageError);
        }
        publish(shard, MetadataImage::clone(&self.controller.image())).await;
        Ok(outcome.response)
    }

    /// Appends what a request changes. On a full disk, what makes room may take the reserve, and nothing else may go on.
    async fn record(&mut self, shard: &Shard, request: &Request, records: &[Record]) -> Result<(), LogWriteError> {
        if must_work_on_a_full_disk(request) {
            let append = async || self.append(records).await;
            return shard.storage().spend(LogWriteError::is_no_space, append).await;
        }
        shard.storage().reserve().may_grow().map_err(LogWriteError::NoSpace)?;
        let in_each = new_logs(shard, records);
        for (storage, logs) in in_each {
            storage.has_room_for_logs(logs).map_err(LogWriteError::NoSpace)?;
        }
        self.append(records).await
    }

    async fn append(&mut self, records: &[Record]) -> Result<(), LogWriteError> {
        let entry = Entry { index: self.log.last_index() + 1, term: self.term, bytes: encode(records) };
        self.log.append(vec![entry]).await
    }

    async fn snapshot_if_due(&mut self, shard: &Shard) {
        if self.log.bytes_since_snapshot() < shard.config().metadata_snapshot_bytes {
            return;
        }
        let meta = SnapshotMeta { index: self.log.last_index(), term: self.term };
        if let Err(reason) = self.log.save_snapshot(meta, encode_image(&self.controller.image())).await {
            warn!(%reason, "no metadata snapshot this time");
        }
    }
}

/// How many logs each data folder is to get.
fn new_logs<'a>(shard: &'a Shard, records: &[Record]) -> Vec<(&'a StorageEnv, u64)> {
    let is_new = |record: &&Record| matches!(record, Record::Partition { .. });
    let of_directory =
        |id| move |record: &&Record| matches!(record, Record::PartitionDirectory { directory, .. } if *directory == id);
    let more = shard.folders().more.iter().filter_map(|folder| folder.opened.as_ref());
    let mut logs: Vec<_> =
        more.map(|(id, storage)| (storage, records.iter().filter(of_directory(*id)).count() as u64)).collect();
    let in_more: u64 = logs.iter().map(|(_, count)| count).sum();
    logs.push((shard.storage(), (records.iter().filter(is_new).count() as u64).saturating_sub(in_more)));
    logs
}

/// A start, and what makes room: deletions, and configurations, among them how long records are kept.
const fn must_work_on_a_full_disk(request: &Request) -> bool {
    match request {
        Request::RegisterBroker(_)
        | Request::DeleteTopics(_)
        | Request::DirectoryFailed(_)
        | Request::AlterConfigs(_)
        | Request::IncrementalAlterConfigs(_) => true,
        Request::CreateTopics(_)
        | Request::CreatePartitions(_)
        | Request::AllocateProducerIds(_)
        | Request::UpdateFeatures(_)
        | Request::PinCore(_) => false,
    }
}

/// Records this term, and that every entry of the log is durable: with one voter, that is committed.
async fn save_hard_state(shard: &Shard, log: &mut FileLog, term: u64) -> Result<(), LogWriteError> {
    let state = HardState { term, voted_for: shard.config().node_id, commit: log.last_index() };
    shard.storage().spend(LogWriteError::is_no_space, async || log.save_hard_state(state).await).await
}

async fn recovered(shard: &Shard, log: &FileLog) -> Result<Controller, String> {
    let snapshot = log.read_snapshot().await.map_err(|error| error.to_string())?;
    recover(Arc::clone(&shard.server().config), FEATURES, snapshot.as_deref(), log.entries())
        .map_err(|error| error.to_string())
}

/// Puts an image in force on every shard, and returns when it is.
async fn publish(shard: &Rc<Shard>, image: MetadataImage) {
    let image = Arc::new(image.with_controller(Some(shard.config().node_id)));
    let asked: Vec<AskFuture> = (0..shard.shards())
        .map(|number| AskFuture::send(shard, ShardId(number as u16), Ask::Apply(Arc::clone(&image))))
        .collect();
    for applied in asked {
        applied.await;
    }
}
