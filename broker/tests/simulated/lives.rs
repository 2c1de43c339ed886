//! Holds: one run of a seed: several lives of a broker under load and faults, each ended some way, each begun by checking
//! that nothing was lost. Never touches: what clients check (`model`), how the broker works.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use corelog_broker::start::node::Broken;
use corelog_reactor::ReactorLimits;
use corelog_reactor::sim::{DiskFault, DiskLatency, NetBehaviour, NodeId, SimWorld};

use super::client::{Connection, Gone, Trace};
use super::model::Checked;
use super::node::{Boot, MORE, Setup, SimBroker};
use super::random::Random;
use super::work::{Idempotent, Work, produce_idempotently, produce_plainly};
use super::{admin, reads};

const LIVES: usize = 4;
const IDEMPOTENT_PRODUCERS: usize = 2;
/// Virtual time in which a broker without faults is up, whatever it has to recover.
const START_MAX: Duration = Duration::from_secs(60);
/// Virtual time in which clients end once they are to.
const END_MAX: Duration = Duration::from_secs(60);

/// What goes wrong in one life, besides its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    Nothing,
    Network,
    SlowDisk,
    FullDisk,
    BadDisk,
    /// The second data folder fails for good, until the broker starts again.
    BadFolder,
}

/// What a run was.
#[derive(Clone, Copy, Debug)]
pub struct Summary {
    pub trace: u64,
    pub checked: Checked,
}

struct Run {
    world: Rc<SimWorld>,
    clients: NodeId,
    broker: SimBroker,
    work: Rc<Work>,
    producers: Vec<Rc<RefCell<Idempotent>>>,
    random: Random,
    broken: Broken,
    has_two_folders: bool,
}

/// Runs a seed. Panics when the broker breaks its word.
pub fn run(seed: u64, broken: Broken) -> Summary {
    run_on(seed, broken, false)
}

/// The same on two data folders, of which the second fails now and then.
pub fn run_on_two_folders(seed: u64, broken: Broken) -> Summary {
    run_on(seed, broken, true)
}

fn run_on(seed: u64, broken: Broken, has_two_folders: bool) -> Summary {
    let world = Rc::new(SimWorld::new(seed));
    let clients = world.add_node();
    let broker = SimBroker::new(&world);
    let trace = Trace::default();
    let reactor = world.reactor(clients, ReactorLimits::default());
    let work = Work::new(reactor, broker.address(), trace.clone());
    let producers = (0..IDEMPOTENT_PRODUCERS).map(|_| Rc::default()).collect();
    let mut run = Run { world, clients, broker, work, producers, random: Random::new(seed), broken, has_two_folders };
    run.world.set_network(calm_network());
    if run.random.chance(250) {
        // The second makes batches of 1,024 bytes, the third of 4,096: they begin where the disk's blocks do.
        run.work.same_bytes.set(Some([100, 946, 4_018][run.random.below(3) as usize]));
    }
    for life in 0..LIVES {
        run.live(life);
    }
    run.begin_life(true);
    run.broker.stop();
    trace.fold(&run.world.now().as_nanos().to_be_bytes());
    trace.fold(&run.world.disk(run.broker.node()).requests().to_be_bytes());
    let checked = run.work.model.borrow().checked();
    Summary { trace: trace.value(), checked }
}

impl Run {
    fn live(&mut self, life: usize) {
        self.begin_life(life > 0);
        let trouble = match self.random.below(8) {
            0 | 1 => Trouble::Nothing,
            2 | 3 => Trouble::Network,
            4 => Trouble::SlowDisk,
            5 | 6 => Trouble::FullDisk,
            _ => Trouble::BadDisk,
        };
        let trouble = if self.has_two_folders && self.random.chance(400) { Trouble::BadFolder } else { trouble };
        println!("  life {life}: {trouble:?}, from {:?}", self.world.now());
        self.work.is_ending.set(false);
        self.work.may_refuse.set(matches!(trouble, Trouble::FullDisk | Trouble::BadDisk | Trouble::BadFolder));
        self.work.is_disk_bad.set(matches!(trouble, Trouble::BadDisk | Trouble::BadFolder));
        self.start_workers();
        let slices = 1 + self.random.below(12);
        let longest = [2_000, 20_000, 100_000][self.random.below(3) as usize];
        for _ in 0..slices {
            self.stir(trouble);
            let slice = Duration::from_micros(1 + self.random.below(longest));
            self.world.run_for(slice);
        }
        let ending = self.random.below(8);
        if ending >= 5 {
            self.end_of_trouble();
            self.finish_work(trouble);
        }
        match ending {
            0..=3 => self.end(|run| {
                run.broker.cut();
                run.work.model.borrow_mut().checked.cuts += 1;
            }),
            4 => self.end(|run| run.broker.kill()),
            5 => self.end(|run| run.broker.cut()),
            _ => self.end(|run| run.broker.stop()),
        }
        self.end_of_trouble();
    }

    /// Starts the broker, with the power failing during the start now and then, and checks everything.
    fn begin_life(&mut self, is_new_life: bool) {
        let setup = Setup::random(&mut self.random, self.broken).in_a_hurry(&mut self.random);
        let setup = Setup { has_two_folders: self.has_two_folders, ..setup };
        while self.random.chance(250) {
            let time_max = Duration::from_micros(self.random.below(20_000));
            let setup = Setup { shards: 1 + self.random.below(4) as u16, ..setup.clone() };
            // A start without the second folder: what is in it waits for the next one. Not before there is metadata: without
            // any, a folder that was there and can't be read may have partitions, and the broker refuses to begin anew.
            if self.has_two_folders && is_new_life && self.random.chance(500) {
                self.break_second_folder();
            }
            match self.broker.start(&setup, time_max) {
                Boot::Failed(failure) => panic!("a start without faults in the first folder failed: {failure}"),
                Boot::Serving => self.world.run_for(Duration::from_micros(self.random.below(20_000))),
                Boot::Underway => {}
            }
            self.broker.cut();
            self.world.disk(self.broker.node()).clear_fault();
        }
        match self.broker.start(&setup, START_MAX) {
            Boot::Serving => {}
            Boot::Underway => panic!("a start took more than {START_MAX:?}"),
            Boot::Failed(failure) => panic!("a start without faults failed: {failure}"),
        }
        self.work.is_ending.set(false);
        self.work.may_refuse.set(false);
        self.verify(is_new_life);
        let producers: Vec<_> = self.producers.iter().map(|producer| producer.borrow()).collect();
        let sends_again = |key, crc| producers.iter().any(|producer| producer.sends_again(key, crc));
        self.work.model.borrow_mut().forget_what_was_lost(sends_again);
    }

    /// Runs `task` on a connection of its own, to its end.
    fn verify(&mut self, is_new_life: bool) {
        let mut random = Random::new(self.random.next_u64());
        let work = Rc::clone(&self.work);
        let done: Rc<RefCell<Option<Result<(), Gone>>>> = Rc::default();
        let slot = Rc::clone(&done);
        let task = async move {
            let result = async {
                let connection = Connection::open(&work.reactor, work.address, &work.trace).await.map_err(|_| Gone)?;
                admin::verify(&work, &connection, &mut random, is_new_life).await?;
                admin::make_topics(&work, &connection, &mut random).await?;
                connection.close();
                Ok(())
            };
            let result = result.await;
            slot.borrow_mut().replace(result);
        };
        self.work.reactor.spawn(task).expect("a task");
        self.world.run_until(|| done.borrow().is_some()).expect("an end");
        assert_eq!(done.take(), Some(Ok(())), "the connection was lost without a fault");
    }

    fn start_workers(&mut self) {
        let mut random = || Rc::new(RefCell::new(Random::new(self.random.next_u64())));
        for producer in &self.producers {
            let (work, producer, random) = (Rc::clone(&self.work), Rc::clone(producer), random());
            self.work.start(move |connection| {
                produce_idempotently(Rc::clone(&work), connection, Rc::clone(&producer), Rc::clone(&random))
            });
        }
        for _ in 0..2 {
            let (work, random) = (Rc::clone(&self.work), random());
            self.work.start(move |connection| produce_plainly(Rc::clone(&work), connection, Rc::clone(&random)));
        }
        for _ in 0..3 {
            let (work, random) = (Rc::clone(&self.work), random());
            self.work.start(move |connection| reads::poll(Rc::clone(&work), connection, Rc::clone(&random)));
        }
        let (work, dice) = (Rc::clone(&self.work), random());
        self.work.start(move |connection| reads::read_anywhere(Rc::clone(&work), connection, Rc::clone(&dice)));
        let (work, dice) = (Rc::clone(&self.work), random());
        self.work.start(move |connection| admin::administer(Rc::clone(&work), connection, Rc::clone(&dice)));
    }

    /// Something goes wrong, or right again.
    fn stir(&mut self, trouble: Trouble) {
        let random = &mut self.random;
        let disk = self.world.disk(self.broker.node());
        match trouble {
            Trouble::Nothing => disk.set_short_per_mille([0, 0, 30][random.below(3) as usize]),
            Trouble::Network => match random.below(5) {
                0 => self.world.reset_connections(self.broker.node()),
                1 => self.world.cut(self.clients, self.broker.node()),
                2 => self.world.heal(),
                _ => self.world.set_network(NetBehaviour {
                    segment_bytes_max: [100, 1_500, 64 << 10][random.below(3) as usize],
                    latency: (Duration::ZERO, Duration::from_micros([50, 5_000][random.below(2) as usize])),
                    window_bytes: [4 << 10, 256 << 10][random.below(2) as usize],
                    short_send_per_mille: [0, 200][random.below(2) as usize],
                    reset_per_million: [0, 500][random.below(2) as usize],
                    ..calm_network()
                }),
            },
            Trouble::SlowDisk => {
                let us = Duration::from_micros([100, 3_000, 400_000][random.below(3) as usize]);
                disk.set_latency(DiskLatency { durable: (us / 10, us), read: (us / 10, us), ..DiskLatency::default() });
            }
            Trouble::FullDisk => {
                let room = random.below(400_000);
                disk.set_capacity(random.chance(700).then(|| disk.used_bytes() + room));
            }
            Trouble::BadFolder => {
                if random.chance(400) {
                    self.break_second_folder();
                }
            }
            Trouble::BadDisk => {
                let mut dice = Random::new(random.next_u64());
                let (reads, writes) = (random.below(4), 1 + random.below(6));
                let names = ["orders", "events", "churn", "log", "/", "keyed", "kept", ".cleaned", ".swap"];
                let name = names[random.below(9) as usize];
                disk.set_fault(move |op| {
                    let per_mille = if op.kind.is_write() { writes } else { reads };
                    let hit = dice.chance(per_mille) && op.path.to_string_lossy().contains(name);
                    hit.then_some(DiskFault::Errno(libc::EIO))
                });
            }
        }
    }

    fn break_second_folder(&self) {
        let disk = self.world.disk(self.broker.node());
        disk.set_fault(|op| op.path.starts_with(MORE).then_some(DiskFault::Errno(libc::EIO)));
    }

    fn end_of_trouble(&mut self) {
        let disk = self.world.disk(self.broker.node());
        disk.clear_fault();
        disk.set_capacity(None);
        disk.set_latency(DiskLatency::default());
        disk.set_short_per_mille(0);
        self.world.heal();
        self.world.set_network(calm_network());
    }

    /// The clients finish what they began: every request is answered, and without a broken disk everything that an
    /// idempotent producer sent is acknowledged. Then everything is there.
    fn finish_work(&mut self, trouble: Trouble) {
        if matches!(trouble, Trouble::BadDisk | Trouble::BadFolder) {
            return;
        }
        self.work.is_ending.set(true);
        self.wait_for_workers();
        // What found no space is tried again twice a second.
        self.world.run_for(Duration::from_secs(2));
        self.work.may_refuse.set(false);
        self.verify(false);
    }

    fn wait_for_workers(&self) {
        let give_up = self.world.now() + END_MAX;
        let ended = || self.work.running.get() == 0 || self.world.now() > give_up;
        self.world.run_until(ended).expect("workers that end");
        assert_eq!(self.work.running.get(), 0, "workers did not end within {END_MAX:?}");
    }

    fn end(&mut self, how: impl FnOnce(&mut Run)) {
        self.work.is_ending.set(true);
        self.work.may_refuse.set(true);
        how(self);
        self.end_of_trouble();
        self.wait_for_workers();
    }
}

fn calm_network() -> NetBehaviour {
    NetBehaviour { connect_timeout: Duration::from_millis(30), ..NetBehaviour::default() }
}

/// Seeds that were run, for asking whether they checked anything.
pub fn total(summaries: &[Summary]) -> Checked {
    let mut all = Checked::default();
    for checked in summaries.iter().map(|summary| summary.checked) {
        all.acknowledged += checked.acknowledged;
        all.read += checked.read;
        all.duplicates += checked.duplicates;
        all.polls += checked.polls;
        all.refused += checked.refused;
        all.cuts += checked.cuts;
        all.deletions += checked.deletions;
        all.topics += checked.topics;
        all.compacted += checked.compacted;
        all.tombstones += checked.tombstones;
        all.retained += checked.retained;
    }
    all
}
