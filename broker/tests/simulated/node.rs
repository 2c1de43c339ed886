//! Holds: the broker on a node of the simulated world: its start, its shards' turns, and every way to end.
//! Never touches: what the broker does; it is put together by the same code as the real one.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use corelog_broker::config::cli::ServeArgs;
use corelog_broker::config::{BrokerConfig, Host, load};
use corelog_broker::server::Server;
use corelog_broker::shard::Shard;
use corelog_broker::start::StartError;
use corelog_broker::start::folders::{self, DataFolders};
use corelog_broker::start::node::{self, Broken, NodeOptions};
use corelog_reactor::sim::{NodeId, SimWorld};
use corelog_reactor::{NoMail, Reactor, ReactorLimits};
use corelog_storage::log::StorageOptions;

use super::random::Random;

pub const DATA: &str = "/data";
/// A second data folder, in runs with two.
pub const MORE: &str = "/more";
const PORT: u16 = 9092;

/// What a broker is started with.
#[derive(Clone)]
pub struct Setup {
    pub shards: u16,
    /// Whether it has two data folders.
    pub has_two_folders: bool,
    pub properties: Vec<String>,
    pub options: NodeOptions,
}

impl Setup {
    /// Small numbers, so that everything that is bounded meets its bound.
    pub fn random(random: &mut Random, broken: Broken) -> Setup {
        let mut pick = |from: &[u64]| from[random.below(from.len() as u64) as usize];
        let options = NodeOptions {
            storage: StorageOptions {
                first_room_bytes: pick(&[0, 4 << 10, 64 << 10]),
                commit_bytes_max: pick(&[16 << 10, 64 << 10, 1 << 20]),
                pending_bytes_max: pick(&[64 << 10, 1 << 20, 16 << 20]),
                recovery_point_bytes_max: pick(&[20 << 10, 200 << 10, 32 << 20]),
                spare_bytes_max: pick(&[0, 256 << 10]),
                checkpoint_interval: Duration::from_millis(pick(&[5, 200])),
                no_space_retry: Duration::from_millis(pick(&[5, 500])),
                cold_segments_max: 3,
                write_back_bytes: pick(&[2 << 10, 16 << 10, 256 << 10]),
                ..StorageOptions::default()
            },
            broken,
        };
        let properties = vec![
            "corelog.memory.bytes.per.core=33554432".to_owned(),
            format!("corelog.tail.cache.bytes.per.core={}", pick(&[16 << 10, 256 << 10, 8 << 20])),
            format!("corelog.prewrite.bytes={}", pick(&[0, 4 << 20])),
            format!("corelog.commit.log={}", ["always", "auto", "always", "never"][pick(&[0, 1, 2, 3]) as usize]),
            format!("corelog.commit.log.bytes={}", pick(&[512 << 10, 2 << 20, 32 << 20])),
            format!("metadata.log.max.record.bytes.between.snapshots={}", pick(&[500, 5_000, 20 << 20])),
            format!("corelog.fetch.splice.bytes.min={}", pick(&[0, 1, 4_000, 65_536])),
            format!("corelog.fetch.check.crc={}", pick(&[0, 0, 0, 1]) == 1),
            "max.incremental.fetch.session.cache.slots=4".to_owned(),
            "auto.create.topics.enable=false".to_owned(),
        ];
        Setup { shards: 1 + random.below(4) as u16, has_two_folders: false, properties, options }
    }

    /// With retention and compaction in a hurry: a life lasts seconds.
    pub fn in_a_hurry(mut self, random: &mut Random) -> Setup {
        let mut pick = |from: &[u64]| from[random.below(from.len() as u64) as usize];
        self.properties.extend([
            format!("log.cleaner.backoff.ms={}", pick(&[1, 5, 50])),
            format!("log.cleaner.io.max.bytes.per.second={}", pick(&[200_000, 5_000_000, 1_000_000_000])),
            format!("log.retention.check.interval.ms={}", pick(&[1, 10, 300_000])),
            format!("log.initial.task.delay.ms={}", pick(&[1, 30, 30_000])),
        ]);
        self
    }

    fn config(&self, address: SocketAddr) -> BrokerConfig {
        let args = ServeArgs {
            data_dir: Some(if self.has_two_folders { format!("{DATA},{MORE}") } else { DATA.to_owned() }.into()),
            listen: Some(address.to_string()),
            shards: Some(self.shards),
            set: self.properties.clone(),
            ..ServeArgs::default()
        };
        let host = Host { name: "simulated".to_owned(), cores: vec![0, 1, 2, 3], memory_bytes: None };
        match load::load(&args, [], host) {
            Ok(loaded) => loaded.config,
            Err(problems) => panic!("{problems}"),
        }
    }
}

/// How a start ended.
pub enum Boot {
    Serving,
    /// The time that it was given is over.
    Underway,
    Failed(StartError),
}

/// The broker's machine.
pub struct SimBroker {
    world: Rc<SimWorld>,
    node: NodeId,
    running: Option<Running>,
}

struct Running {
    server: Arc<Server>,
    shards: Vec<(Reactor, Rc<Shard>)>,
    // Held as the real process holds it.
    _data: DataFolders,
}

type Started = Rc<RefCell<Option<Result<Vec<SocketAddr>, StartError>>>>;

impl SimBroker {
    pub fn new(world: &Rc<SimWorld>) -> SimBroker {
        let node = world.add_node();
        world.disk(node).mkdir_all(Path::new("/"));
        SimBroker { world: Rc::clone(world), node, running: None }
    }

    pub fn node(&self) -> NodeId {
        self.node
    }

    pub fn address(&self) -> SocketAddr {
        SocketAddr::new(self.world.ip(self.node), PORT)
    }

    /// Starts the broker, for at most this much virtual time.
    pub fn start(&mut self, setup: &Setup, time_max: Duration) -> Boot {
        let give_up = self.world.now() + time_max;
        let config = setup.config(self.address());
        let opened: Rc<RefCell<Option<Result<DataFolders, StartError>>>> = Rc::default();
        let reactor = self.world.reactor(self.node, ReactorLimits::default());
        let (slot, own, named) = (Rc::clone(&opened), reactor.clone(), config.clone());
        let open = async move {
            let result = folders::open_all(&own, &named).await;
            slot.borrow_mut().replace(result);
        };
        reactor.spawn(open).expect("a task");
        self.run_until(give_up, || opened.borrow().is_some());
        let result = opened.borrow_mut().take();
        let data = match result {
            None => return Boot::Underway,
            Some(Err(failure)) => return Boot::Failed(failure),
            Some(Ok(data)) => data,
        };
        self.world.stop(&reactor);

        let server = Arc::new(Server::new(Arc::new(config)));
        let started = Started::default();
        let mut shards = Vec::new();
        for seed in node::seeds(&server, &data, &setup.options) {
            let reactor = Reactor::new(self.world.driver(self.node), seed.limits());
            let told = Rc::clone(&started);
            let shard = seed.build(&reactor, move |result| drop(told.borrow_mut().replace(result)));
            let shard = shard.expect("memory for a shard");
            let (turning, own) = (Rc::clone(&shard), reactor.clone());
            let mut is_over = false;
            self.world.attach(&reactor, move || {
                if !is_over && turning.turn() {
                    return;
                }
                // Its thread would have ended; here it sleeps until the world lets go of it.
                if is_over {
                    own.reap();
                }
                is_over = true;
                own.park(&NoMail);
            });
            shards.push((reactor, shard));
        }
        self.running = Some(Running { server, shards, _data: data });
        self.run_until(give_up, || started.borrow().is_some());
        match started.borrow_mut().take() {
            None => Boot::Underway,
            Some(Err(failure)) => Boot::Failed(failure),
            Some(Ok(_)) => Boot::Serving,
        }
    }

    fn run_until(&self, give_up: corelog_reactor::Monotonic, done: impl Fn() -> bool) {
        while !done() && self.world.now() < give_up && self.world.step() {}
    }

    /// The power fails.
    pub fn cut(&mut self) {
        self.running = None;
        self.world.crash(self.node);
    }

    /// The process is killed: what it gave to the kernel is done.
    pub fn kill(&mut self) {
        let Some(running) = self.running.take() else { return };
        for (reactor, shard) in running.shards {
            drop(shard);
            self.world.stop(&reactor);
        }
    }

    /// The process is asked to end, and does.
    pub fn stop(&mut self) {
        let Some(running) = self.running.take() else { return };
        running.server.stop();
        for (reactor, _) in &running.shards {
            reactor.remote_waker().expect("a waker").wake();
        }
        let ended = self.world.run_until(|| running.shards.iter().all(|(_, shard)| shard.is_finished()));
        ended.expect("a stop that ends");
        for (reactor, shard) in running.shards {
            drop(shard);
            self.world.stop(&reactor);
        }
    }
}
