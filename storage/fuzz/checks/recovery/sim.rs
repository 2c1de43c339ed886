//! A simulated machine with one data folder.
//!
//! Holds: the world, its disk, the running of one start after another. Never touches: what is checked.

use super::image::Files;
use corelog_reactor::sim::{NodeId, SimWorld};
use corelog_reactor::{Reactor, ReactorLimits, ShardId};
use corelog_storage::disk::datadir::{DataDir, DataDirError};
use corelog_storage::ids::{PartitionIndex, TopicId};
use corelog_storage::log::{LogName, StorageEnv, StorageOptions};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The log's folder.
pub const TOPIC: &str = "orders-0";
const DATA: &str = "/data";

/// A reactor's pool: small, so that no length on the disk can take much, and so that it is made quickly.
const POOL_BYTES_MAX: usize = 1 << 20;

/// Which log.
pub fn name() -> LogName {
    LogName { topic: "orders".to_owned(), partition: PartitionIndex(0), topic_id: TopicId([7; 16]) }
}

/// The storage's options: nothing is written ahead.
#[allow(non_snake_case, reason = "a constant, but for its type")]
pub fn OPTIONS() -> StorageOptions {
    StorageOptions {
        first_room_bytes: 4096,
        spare_bytes_max: 0,
        prewritten_bytes_max: 0,
        checkpoint_interval: std::time::Duration::from_millis(5),
        cold_segments_max: 2,
        ..StorageOptions::default()
    }
}

/// The machine.
pub struct Machine {
    world: SimWorld,
    node: NodeId,
}

impl Machine {
    /// A machine whose data folder holds these files.
    pub fn new(seed: u64, files: &Files) -> Self {
        let world = SimWorld::new(seed);
        let node = world.add_node();
        let disk = world.disk(node);
        disk.mkdir_all(&Path::new(DATA).join(TOPIC));
        for (path, bytes) in files {
            assert!(disk.put(&Path::new(DATA).join(path), bytes), "no folder for {path}");
        }
        Self { world, node }
    }

    /// Starts the storage and runs `work` on it to its end. Whatever it leaves running goes on until the power cut.
    pub fn try_run<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        options: StorageOptions,
        work: impl FnOnce(Reactor, StorageEnv) -> F + 'static,
    ) -> Result<T, DataDirError> {
        let limits = ReactorLimits { pool_bytes_max: POOL_BYTES_MAX, ..ReactorLimits::default() };
        let reactor = self.world.reactor(self.node, limits);
        let slot: Rc<RefCell<Option<Result<T, DataDirError>>>> = Rc::default();
        let out = slot.clone();
        let own = reactor.clone();
        let task = async move {
            let value = match DataDir::open(&own, Path::new(DATA)).await {
                Ok(data) => {
                    let env = StorageEnv::new(own.clone(), ShardId(0), data.share(), options);
                    Ok(work(own, env).await)
                }
                Err(error) => Err(error),
            };
            out.borrow_mut().replace(value);
        };
        reactor.spawn(task).expect("a task");
        self.world.run_until(|| slot.borrow().is_some()).expect("an end");
        let value = slot.borrow_mut().take();
        value.expect("a value")
    }

    /// The same where the folder is known to be sound.
    pub fn run<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        options: StorageOptions,
        work: impl FnOnce(Reactor, StorageEnv) -> F + 'static,
    ) -> T {
        self.try_run(options, work).expect("a data folder")
    }

    /// Cuts the power.
    pub fn crash(&self) {
        self.world.crash(self.node);
    }

    /// What is on the disk.
    pub fn files(&self) -> Files {
        let disk = self.world.disk(self.node);
        let mut files = Files::new();
        let mut folders = vec![PathBuf::from(DATA)];
        while let Some(folder) = folders.pop() {
            for path in disk.list(&folder) {
                match disk.contents(&path) {
                    Some(bytes) => {
                        let within = path.strip_prefix(DATA).ok().and_then(Path::to_str);
                        files.insert(within.expect("a path of text").to_owned(), bytes);
                    }
                    None => folders.push(path),
                }
            }
        }
        files
    }
}
