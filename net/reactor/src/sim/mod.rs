//! A simulated world: several nodes on one thread, with virtual time, a network and disks in memory, and power cuts.
//!
//! Holds: the world's front door and its rounds. Never touches: real time, files or sockets.
//!
//! ```text
//! let world = SimWorld::new(seed);
//! let node = world.add_node();
//! let reactor = world.reactor(node, limits);      one shard, run by the world
//! reactor.spawn(...);
//! world.run_until(|| done.get())?;                or: reactor.block_on(...)
//! world.crash(node);                              power cut
//! let reactor = world.reactor(node, limits);      starts again on what the disk kept
//! ```
//!
//! A round gives every attached shard one turn, in an order chosen by the seed. When a whole round did nothing, time
//! jumps to the next event or deadline. The same seed, program and order of calls give the same run.

mod disk;
mod driver;
mod fs;
mod net;
mod pipes;
mod rng;
mod sparse;
mod world;

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use crate::driver::{Driver, Wait};
use crate::mail::NoMail;
use crate::reactor::{Reactor, ReactorLimits};
use crate::time::Monotonic;

pub use disk::{DiskFault, DiskLatency, DiskOp, DiskOpKind, FaultFn};
pub use net::{NetBehaviour, NodeId};

use disk::Disk;
use driver::SimDriver;
use world::{DriverState, Node, ROUND_NANOS, World};

/// Virtual time one [`SimWorld::run_until`] may take.
const RUN_TIME_MAX: Duration = Duration::from_secs(3600);

/// Why a simulation did not get where it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SimStuck {
    /// Nothing is runnable, on its way, or due: it would stay like this for ever.
    #[error("simulation with seed {seed} is stuck at {now:?}: nothing left to happen")]
    Nothing {
        /// The world's seed.
        seed: u64,
        /// The virtual time.
        now: Monotonic,
    },
    /// An hour of virtual time was not enough.
    #[error("simulation with seed {seed} ran to {now:?} without getting there")]
    TooLong {
        /// The world's seed.
        seed: u64,
        /// The virtual time.
        now: Monotonic,
    },
}

struct Actor {
    driver: usize,
    reactor: Reactor,
    /// Away while it runs.
    turn: Option<Box<dyn FnMut()>>,
}

struct Shared {
    world: RefCell<World>,
    actors: RefCell<Vec<Actor>>,
    in_round: Cell<bool>,
    /// Turns ended since the round began: far too many are somebody blocking inside of one.
    parks_in_round: Cell<u32>,
}

/// The simulated world. Not shared between threads; dropping it ends every attached reactor.
pub struct SimWorld {
    shared: Rc<Shared>,
}

impl SimWorld {
    /// An empty world. Print the seed when a test fails: it is all that is needed to run it again.
    pub fn new(seed: u64) -> SimWorld {
        let world = RefCell::new(World::new(seed));
        SimWorld {
            shared: Rc::new(Shared {
                world,
                actors: RefCell::default(),
                in_round: Cell::new(false),
                parks_in_round: Cell::new(0),
            }),
        }
    }

    fn with<T>(&self, f: impl FnOnce(&mut World) -> T) -> T {
        f(&mut self.shared.world.borrow_mut())
    }

    /// Its seed.
    pub fn seed(&self) -> u64 {
        self.with(|w| w.seed)
    }

    /// The virtual time.
    pub fn now(&self) -> Monotonic {
        Monotonic::from_nanos(self.with(|w| w.now))
    }

    // ---- nodes and shards ----

    /// A machine with an empty disk.
    pub fn add_node(&self) -> NodeId {
        self.with(|w| {
            w.nodes.push(Node { disk: Disk::new(), handles_max: 65_536 });
            NodeId((w.nodes.len() - 1) as u16)
        })
    }

    /// The address others reach a node at.
    pub fn ip(&self, node: NodeId) -> IpAddr {
        node.ip()
    }

    /// A driver for one shard of a node. Its reactor is run by [`Reactor::block_on`], or by the world once attached.
    pub fn driver(&self, node: NodeId) -> Box<dyn Driver> {
        let index = self.with(|w| {
            let nodes = w.nodes.len();
            assert!(usize::from(node.0) < nodes, "node {node:?} of {nodes}");
            w.drivers.push(DriverState {
                node,
                alive: true,
                completions: Vec::new(),
                ops: std::collections::HashMap::new(),
                wait: Wait::Poll,
                worked: true,
                remote: None,
                woken: false,
            });
            w.drivers.len() - 1
        });
        Box::new(SimDriver { shared: Rc::clone(&self.shared), index })
    }

    /// A reactor for one shard of a node, attached with the plain turn: reap, run tasks, park.
    pub fn reactor(&self, node: NodeId, limits: ReactorLimits) -> Reactor {
        let reactor = Reactor::new(self.driver(node), limits);
        let own = reactor.clone();
        self.attach(&reactor, move || {
            own.reap();
            own.run_tasks();
            own.park(&NoMail);
        });
        reactor
    }

    /// Lets the world run `turn`, one turn of the loop that owns `reactor` (which must be on a driver of this world).
    /// The turn must end with [`Reactor::park`]. A crash of the node drops it, with all the reactor's tasks.
    pub fn attach(&self, reactor: &Reactor, turn: impl FnMut() + 'static) {
        assert!(reactor.is_simulated(), "only simulated reactors can be attached");
        let driver = reactor.0.driver.borrow().wake_target().0 as usize;
        let actor = Actor { driver, reactor: reactor.clone(), turn: Some(Box::new(turn)) };
        self.shared.actors.borrow_mut().push(actor);
    }

    /// Stops running a reactor: the process ends in order, its disk keeps everything the kernel was given. Its files
    /// and connections are closed.
    pub fn stop(&self, reactor: &Reactor) {
        self.detach(|actor| Rc::ptr_eq(&actor.reactor.0, &reactor.0));
    }

    /// Cuts a node's power. Its shards are gone: drivers dead, tasks and turns dropped, connections reset. Its disk
    /// keeps what was durable; of the rest, chance decides. New drivers may start on it at once.
    pub fn crash(&self, node: NodeId) {
        let gone: Vec<usize> = self.with(|w| {
            w.crash(node);
            (0..w.drivers.len()).filter(|d| w.drivers.get(*d).is_some_and(|d| d.node == node)).collect()
        });
        self.detach(|actor| gone.contains(&actor.driver));
    }

    fn detach(&self, which: impl Fn(&Actor) -> bool) {
        let (gone, kept) = self.shared.actors.take().into_iter().partition(|actor| which(actor));
        self.shared.actors.replace(kept);
        for actor in gone {
            actor.reactor.shutdown();
            drop(actor);
        }
    }

    // ---- running ----

    /// Runs until `done` says so, which is asked between rounds.
    pub fn run_until(&self, mut done: impl FnMut() -> bool) -> Result<(), SimStuck> {
        let give_up = self.now() + RUN_TIME_MAX;
        while !done() {
            if !round(&self.shared, None) && !advance(&self.shared, Monotonic::MAX) {
                return Err(SimStuck::Nothing { seed: self.seed(), now: self.now() });
            }
            if self.now() > give_up {
                return Err(SimStuck::TooLong { seed: self.seed(), now: self.now() });
            }
        }
        Ok(())
    }

    /// Runs for this much virtual time.
    pub fn run_for(&self, time: Duration) {
        let end = self.now() + time;
        while self.now() < end {
            if !round(&self.shared, None) {
                advance(&self.shared, end);
            }
        }
    }

    /// One round, and the jump in time if it did nothing. False: there is nothing left to happen.
    pub fn step(&self) -> bool {
        round(&self.shared, None) || advance(&self.shared, Monotonic::MAX)
    }

    // ---- what goes wrong ----

    /// A node's disk.
    pub fn disk(&self, node: NodeId) -> SimDisk {
        SimDisk { shared: Rc::clone(&self.shared), node }
    }

    /// Changes how the network behaves from now on.
    pub fn set_network(&self, behaviour: NetBehaviour) {
        self.with(|w| w.net.behaviour = behaviour);
    }

    /// How the network behaves.
    pub fn network(&self) -> NetBehaviour {
        self.with(|w| w.net.behaviour)
    }

    /// Stops everything between two nodes; what is on its way waits.
    pub fn cut(&self, a: NodeId, b: NodeId) {
        self.with(|w| w.net.cut.push((a, b)));
    }

    /// Ends all cuts.
    pub fn heal(&self) {
        self.with(|w| {
            w.net.cut.clear();
            w.release_held();
        });
    }

    /// Resets every connection of a node.
    pub fn reset_connections(&self, node: NodeId) {
        self.with(|w| w.reset_connections(node));
    }

    /// Bounds the files and sockets a node may have open: EMFILE past it.
    pub fn set_handles_max(&self, node: NodeId, handles_max: usize) {
        self.with(|w| {
            if let Some(node) = w.node(node) {
                node.handles_max = handles_max;
            }
        });
    }
}

impl Drop for SimWorld {
    fn drop(&mut self) {
        // Reactors hold the world and the world holds reactors: ends the circle.
        if !std::thread::panicking() {
            self.detach(|_| true);
        }
    }
}

/// Gives every attached shard one turn, but for `except`. Whether anybody did anything, or has a reason to.
fn round(shared: &Shared, except: Option<usize>) -> bool {
    let mut order: Vec<usize> = {
        let mut world = shared.world.borrow_mut();
        world.now += ROUND_NANOS;
        world.process_due();
        let actors = shared.actors.borrow();
        let mut order: Vec<usize> = actors.iter().map(|a| a.driver).filter(|d| Some(*d) != except).collect();
        world.rng.shuffle(&mut order);
        order
    };
    shared.parks_in_round.set(0);
    let _in_round = InRound::enter(&shared.in_round);
    for driver in &order {
        let turn = shared.actors.borrow_mut().iter_mut().find(|a| a.driver == *driver).and_then(|a| a.turn.take());
        let Some(mut turn) = turn else { continue };
        turn();
        // Gone if its node crashed meanwhile.
        if let Some(actor) = shared.actors.borrow_mut().iter_mut().find(|a| a.driver == *driver) {
            actor.turn = Some(turn);
        }
    }
    let world = shared.world.borrow();
    order.retain(|driver| world.drivers.get(*driver).is_some_and(|d| d.alive && !d.is_quiet(world.now)));
    !order.is_empty()
}

/// Moves time to the next event or deadline, at most to `limit`. False: there is none, and no limit.
fn advance(shared: &Shared, limit: Monotonic) -> bool {
    let mut world = shared.world.borrow_mut();
    let deadlines = shared.actors.borrow().iter().map(|a| a.driver).collect::<Vec<usize>>();
    let deadlines = deadlines.iter().filter_map(|driver| match world.drivers.get(*driver)?.wait {
        Wait::Until(deadline) => Some(deadline.as_nanos()),
        Wait::Poll => None,
    });
    let next = deadlines.chain(world.next_event()).min().unwrap_or(u64::MAX).min(limit.as_nanos());
    if next == u64::MAX {
        return false;
    }
    world.now = world.now.max(next);
    world.process_due();
    true
}

struct InRound<'a> {
    flag: &'a Cell<bool>,
    before: bool,
}

impl InRound<'_> {
    fn enter(flag: &Cell<bool>) -> InRound<'_> {
        InRound { flag, before: flag.replace(true) }
    }
}

impl Drop for InRound<'_> {
    fn drop(&mut self) {
        self.flag.set(self.before);
    }
}

/// One node's disk: faults, and a look inside. Survives crashes of its node.
pub struct SimDisk {
    shared: Rc<Shared>,
    node: NodeId,
}

impl SimDisk {
    fn with<T>(&self, f: impl FnOnce(&mut Disk) -> T) -> T {
        let mut world = self.shared.world.borrow_mut();
        let nodes = world.nodes.len();
        let node = world.node(self.node);
        assert!(node.is_some(), "node {:?} of {nodes}", self.node);
        match node {
            Some(node) => f(&mut node.disk),
            None => f(&mut Disk::new()),
        }
    }

    /// Asks `fault` about every request from now on; replaces what was set before.
    pub fn set_fault(&self, fault: impl FnMut(&DiskOp) -> Option<DiskFault> + 'static) {
        self.with(|d| d.fault = Some(Box::new(fault)));
    }

    /// No faults from now on.
    pub fn clear_fault(&self) {
        self.with(|d| d.fault = None);
    }

    /// Fails the `nth` request from now (0: the next) of this kind with `errno`, once.
    pub fn fail_nth(&self, kind: DiskOpKind, nth: u64, errno: i32) {
        let mut left = nth;
        self.set_fault(move |op| {
            if op.kind != kind {
                return None;
            }
            let hit = left == 0;
            left = left.wrapping_sub(1);
            hit.then_some(DiskFault::Errno(errno))
        });
    }

    /// Fails with EIO whatever `which` picks, until cleared.
    pub fn eio_where(&self, mut which: impl FnMut(&DiskOp) -> bool + 'static) {
        self.set_fault(move |op| which(op).then_some(DiskFault::Errno(libc::EIO)));
    }

    /// From now on this path, and what is below it, says that it is on the file system of this device: as when a mount was
    /// taken away, though what is there stays the same. (At first all is on device 1.)
    pub fn set_device(&self, path: &Path, device: u64) {
        self.with(|d| {
            d.mounts.retain(|(at, _)| at != path);
            d.mounts.push((path.to_path_buf(), device));
        });
    }

    /// Bytes that fit; ENOSPC past it. None: no bound.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.with(|d| d.capacity = bytes);
    }

    /// Bytes in use, in blocks of 4 KiB.
    pub fn used_bytes(&self) -> u64 {
        self.with(|d| d.fs.used_bytes())
    }

    /// Reads and writes of a thousand that are cut short, at a sector.
    pub fn set_short_per_mille(&self, per_mille: u32) {
        self.with(|d| d.short_per_mille = per_mille);
    }

    /// How long requests take.
    pub fn set_latency(&self, latency: DiskLatency) {
        self.with(|d| d.latency = latency);
    }

    /// What offsets, lengths and addresses of direct requests must be multiples of (4096 at first).
    pub fn set_direct_align(&self, bytes: u64) {
        assert!(bytes.is_power_of_two(), "direct alignment {bytes}");
        self.with(|d| d.direct_align = bytes);
    }

    /// Requests so far.
    pub fn requests(&self) -> u64 {
        self.with(|d| d.requests)
    }

    /// Makes folders, durably and at once.
    pub fn mkdir_all(&self, path: &Path) {
        self.with(|d| d.fs.mkdir_all(path));
    }

    /// Writes a file, durably and at once. False: its folder is missing.
    pub fn put(&self, path: &Path, bytes: &[u8]) -> bool {
        self.with(|d| d.fs.put(path, bytes).is_ok())
    }

    /// A file's bytes as programs see them.
    pub fn contents(&self, path: &Path) -> Option<Vec<u8>> {
        self.with(|d| d.fs.contents(path))
    }

    /// Paths of a folder's entries, sorted.
    pub fn list(&self, path: &Path) -> Vec<PathBuf> {
        self.with(|d| d.fs.list(path)).unwrap_or_default().into_iter().map(|e| path.join(e.name)).collect()
    }

    /// Flips the bits `mask` of one stored byte: rot. False: there is no such file.
    pub fn rot(&self, path: &Path, offset: u64, mask: u8) -> bool {
        self.with(|d| d.fs.rot(path, offset, mask))
    }
}
