//! A node, put together from reactors.
//!
//! Holds: the one way from a configuration to shards that run: on a ring and a thread each (see [`super::run`]), or all of
//! them on one thread in a simulated world (`tests/simulated.rs`). Never touches: threads, signals, the kernel, requests.
//!
//! ```text
//!   open_data ──> seeds ──> for each shard, where it is to live: a reactor of these limits ──> ShardSeed::build
//!                                                                                                 └ then turn after turn
//! ```

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use corelog_reactor::{MailPort, Reactor, ReactorLimits, ShardId, mail_mesh};
use corelog_storage::disk::datadir::{DataDir, DataShare};
use corelog_storage::disk::meta::MetaProperties;
use corelog_storage::ids::TopicId;
use corelog_storage::log::{StorageEnv, StorageOptions};

use super::StartError;
use crate::config::BrokerConfig;
use crate::names::CLUSTER_METADATA;
use crate::server::Server;
use crate::shard::mail::Mail;
use crate::shard::{Shard, ShardParts, compaction, controlling, housekeeping, relaxed, retention, serve};

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

/// What a node is told besides its configuration.
#[derive(Clone, Debug, Default)]
pub struct NodeOptions {
    /// The bounds of each shard's storage. What the configuration says about them wins.
    pub storage: StorageOptions,
    /// What a test wants left out.
    pub broken: Broken,
}

/// What a broker leaves out, so that a test can show that it would notice. Set by no configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Broken {
    /// Nothing.
    #[default]
    Nothing,
    /// Commits are not synced.
    NoDsync,
    /// Folders are not synced.
    NoDirSync,
}

/// Takes the data folder, on whatever reactor, before any shard exists. A new folder is given its ids.
///
/// # Errors
/// [`StartError`]: the folder is another broker's, in use, or damaged.
pub async fn open_data(reactor: &Reactor, config: &BrokerConfig) -> Result<DataDir, StartError> {
    let path = &config.data_dir;
    if is_kafkas(reactor, path) {
        return Err(StartError::Kafka { path: path.clone() });
    }
    let mut data = DataDir::open(reactor, path).await?;
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
            data.set_meta(reactor, meta).await?;
        }
    }
    Ok(data)
}

/// Whether a Kafka wrote the folder: it has files that only Kafka makes. Looked for before anything is written into it.
fn is_kafkas(reactor: &Reactor, path: &Path) -> bool {
    let names = |folder: &Path| -> Vec<String> {
        let entries = reactor.list_dir(folder).unwrap_or_default();
        entries.into_iter().filter_map(|entry| entry.name.into_string().ok()).collect()
    };
    let metadata = names(&path.join(format!("{CLUSTER_METADATA}-0")));
    let is_metadata = |name: &String| {
        let is_numbered = name.strip_suffix(".log").is_some_and(|rest| rest.parse::<u64>().is_ok());
        name == "quorum-state" || name.ends_with(".checkpoint") || is_numbered
    };
    let own = ["bootstrap.checkpoint", "recovery-point-offset-checkpoint", "replication-offset-checkpoint"];
    metadata.iter().any(is_metadata) || names(path).iter().any(|name| own.contains(&name.as_str()))
}

/// What one shard is made from. May go to the thread it is to live on.
pub struct ShardSeed {
    id: ShardId,
    server: Arc<Server>,
    options: NodeOptions,
    port: MailPort<Mail>,
    data: DataShare,
    leftovers: Vec<PathBuf>,
    cluster_id: String,
}

/// The seeds of all shards of a node, with the mailboxes between them. `data` must stay open for as long as they live.
pub fn seeds(server: &Arc<Server>, data: &DataDir, options: &NodeOptions) -> Vec<ShardSeed> {
    let ports = mail_mesh::<Mail>(server.shards, MAILBOX_MESSAGES);
    let seed = |(number, port)| ShardSeed {
        id: ShardId(number),
        server: Arc::clone(server),
        options: options.clone(),
        port,
        data: data.share(),
        leftovers: if number == 0 { data.leftovers().to_vec() } else { Vec::new() },
        cluster_id: data.meta().map(|meta| meta.cluster_id.clone()).unwrap_or_default(),
    };
    (0..).zip(ports).map(seed).collect()
}

impl ShardSeed {
    /// The shard's number.
    pub fn id(&self) -> ShardId {
        self.id
    }

    /// The limits of the reactor that it needs.
    pub fn limits(&self) -> ReactorLimits {
        let config = &self.server.config;
        ReactorLimits {
            tasks_max: TASKS_MAX,
            op_slots_max: config.connections_per_core_max * OPS_PER_CONNECTION + OPS_OF_THE_SHARD,
            pool_bytes_max: config.memory_bytes_per_core as usize,
            ..ReactorLimits::default()
        }
    }

    /// Makes the shard, ready for its first turn. Shard 0 brings the node up and tells `started` how that went: the
    /// addresses it serves on, or why it does not; the other shards never call it.
    ///
    /// # Errors
    /// [`StartError::Memory`].
    pub fn build(
        self,
        reactor: &Reactor,
        started: impl FnOnce(Result<Vec<SocketAddr>, StartError>) + 'static,
    ) -> Result<Rc<Shard>, StartError> {
        let config = Arc::clone(&self.server.config);
        if self.options.broken == Broken::NoDirSync {
            reactor.forget_folders_for_a_test();
        }
        let options = StorageOptions {
            break_durability_for_a_test: self.options.broken == Broken::NoDsync,
            tail_cache_bytes_max: config.tail_cache_bytes_per_core as usize,
            commit_log: config.commit_log,
            range_bytes_min: config.fetch_splice_bytes_min,
            prewritten_bytes_max: config.prewrite_bytes_per_data_dir / self.server.shards as u64,
            ..self.options.storage
        };
        let data = self.data.path.clone();
        let storage = StorageEnv::new(reactor.clone(), self.id, self.data, options);
        storage.remove_leftovers(self.leftovers);
        // The first buffer of the pool: it fails if the system refuses the pool its address space.
        let refused = |_| StartError::Memory { shard: self.id.0, bytes: config.memory_bytes_per_core };
        let receive_buffer = reactor.pool().take(RECEIVE_BUFFER_BYTES).map_err(refused)?;
        let shard = Shard::new(ShardParts {
            id: self.id,
            reactor: reactor.clone(),
            server: self.server,
            storage,
            port: self.port,
            receive_buffer,
        });
        if self.id == controlling::CONTROLLER_SHARD {
            let (on, cluster_id) = (Rc::clone(&shard), self.cluster_id);
            shard.spawn(async move { started(controlling::start(&on, &data, cluster_id).await) });
        }
        shard.spawn(housekeeping::sweep(Rc::clone(&shard)));
        shard.spawn(relaxed::write_in_time(Rc::clone(&shard)));
        shard.spawn(serve::apply_images(Rc::clone(&shard)));
        shard.spawn(housekeeping::expire_producers(Rc::clone(&shard)));
        shard.spawn(retention::rounds(Rc::clone(&shard)));
        shard.spawn(compaction::compact(Rc::clone(&shard)));
        Ok(shard)
    }
}
