//! A node, put together from reactors.
//!
//! Holds: the one way from a configuration to shards that run: on a ring and a thread each (see [`super::run`]), or all of
//! them on one thread in a simulated world (`tests/simulated.rs`). Never touches: threads, signals, the kernel, requests.
//!
//! ```text
//!   folders::open_all ──> seeds ──> for each shard, where it is to live: a reactor of these limits ──> ShardSeed::build
//!                                                                                                         └ then turn after turn
//! ```

use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use corelog_reactor::{MailPort, Reactor, ReactorLimits, ShardId, mail_mesh};
use corelog_storage::disk::datadir::DataShare;
use corelog_storage::log::{StorageEnv, StorageOptions};

use super::StartError;
use super::folders::DataFolders;
use crate::controller::DirectoryId;
use crate::server::Server;
use crate::shard::folders::{self, FolderNames, Folders, MoreStorage};
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

/// What one shard is made from. May go to the thread it is to live on.
pub struct ShardSeed {
    id: ShardId,
    server: Arc<Server>,
    options: NodeOptions,
    port: MailPort<Mail>,
    data: DataShare,
    leftovers: Vec<PathBuf>,
    more: Vec<MoreSeed>,
    names: Arc<FolderNames>,
    cluster_id: String,
}

/// A data folder beside the first, for one shard.
struct MoreSeed {
    path: PathBuf,
    was_there: bool,
    opened: Option<(DirectoryId, DataShare, Option<bool>)>,
    leftovers: Vec<PathBuf>,
}

/// The seeds of all shards of a node, with the mailboxes between them. `folders` must stay open for as long as they live.
pub fn seeds(server: &Arc<Server>, folders: &DataFolders, options: &NodeOptions) -> Vec<ShardSeed> {
    let data = &folders.first;
    let more = |number: u16| {
        let seed = |folder: &super::folders::MoreFolder| MoreSeed {
            path: folder.path.clone(),
            was_there: folder.was_there,
            opened: folder.opened.as_ref().map(|open| (open.id, open.data.share(), open.direct)),
            leftovers: match &folder.opened {
                Some(open) if number == 0 => open.data.leftovers().to_vec(),
                _ => Vec::new(),
            },
        };
        folders.more.iter().map(seed).collect()
    };
    let ports = mail_mesh::<Mail>(server.shards, MAILBOX_MESSAGES);
    let seed = |(number, port)| ShardSeed {
        id: ShardId(number),
        server: Arc::clone(server),
        options: options.clone(),
        port,
        data: data.share(),
        leftovers: if number == 0 { data.leftovers().to_vec() } else { Vec::new() },
        more: more(number),
        names: Arc::clone(&folders.names),
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
            commit_log_file_bytes: config.commit_log_bytes / self.options.storage.commit_log_files_max as u64,
            range_bytes_min: config.fetch_splice_bytes_min,
            prewritten_bytes_max: config.prewrite_bytes_per_data_dir / self.server.shards as u64,
            data_folders: 1 + self.more.len(),
            ..self.options.storage
        };
        let data = self.data.path.clone();
        let storage = StorageEnv::new(reactor.clone(), self.id, self.data, options.clone());
        storage.remove_leftovers(self.leftovers);
        let more = self.more.into_iter().map(|seed| {
            let opened = seed.opened.map(|(id, share, direct)| {
                let options = StorageOptions { direct: direct.unwrap_or(options.direct), ..options.clone() };
                let beside = storage.beside(share, options);
                beside.remove_leftovers(seed.leftovers);
                (id, beside)
            });
            MoreStorage { path: seed.path, was_there: seed.was_there, opened }
        });
        let folders = Folders { more: more.collect(), names: self.names };
        // The first buffer of the pool: it fails if the system refuses the pool its address space.
        let refused = |_| StartError::Memory { shard: self.id.0, bytes: config.memory_bytes_per_core };
        let receive_buffer = reactor.pool().take(RECEIVE_BUFFER_BYTES).map_err(refused)?;
        let shard = Shard::new(ShardParts {
            id: self.id,
            reactor: reactor.clone(),
            server: self.server,
            storage,
            folders,
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
        for (directory, storage) in shard.folders().more.iter().filter_map(|folder| folder.opened.clone()) {
            shard.spawn(folders::watch(Rc::clone(&shard), storage, Some(directory)));
        }
        if !shard.folders().more.is_empty() {
            shard.spawn(folders::watch(Rc::clone(&shard), shard.storage().clone(), None));
        }
        Ok(shard)
    }
}
