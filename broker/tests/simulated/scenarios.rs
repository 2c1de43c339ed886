//! Holds: what seeds have found, each as the smallest story that shows it. Never touches: random faults (`lives`).

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use corelog_broker::start::node::Broken;
use corelog_net::wire::ErrorCode;
use corelog_reactor::ReactorLimits;
use corelog_reactor::sim::{DiskFault, SimWorld};

use super::client::{Connection, Gone, Trace};
use super::node::{Boot, Setup, SimBroker};
use super::random::Random;
use super::requests::{self, Place};
use super::work::Work;

/// A broker that serves, and a client.
struct Scene {
    world: Rc<SimWorld>,
    broker: SimBroker,
    work: Rc<Work>,
}

impl Scene {
    fn begin(seed: u64) -> Scene {
        let world = Rc::new(SimWorld::new(seed));
        let clients = world.add_node();
        let mut broker = SimBroker::new(&world);
        let reactor = world.reactor(clients, ReactorLimits::default());
        let work = Work::new(reactor, broker.address(), Trace::default());
        let setup = Setup::random(&mut Random::new(seed), Broken::Nothing);
        assert!(matches!(broker.start(&setup, Duration::from_secs(10)), Boot::Serving));
        Scene { world, broker, work }
    }

    /// What a client does, to its end.
    fn client<T: 'static, F>(&self, act: impl FnOnce(Connection) -> F + 'static) -> T
    where
        F: Future<Output = Result<T, Gone>> + 'static,
    {
        let done: Rc<RefCell<Option<T>>> = Rc::default();
        let (slot, work) = (Rc::clone(&done), Rc::clone(&self.work));
        let task = async move {
            let connection = Connection::open(&work.reactor, work.address, &work.trace).await.expect("a connection");
            let result = act(connection).await.expect("answers");
            slot.borrow_mut().replace(result);
        };
        self.work.reactor.spawn(task).expect("a task");
        self.world.run_until(|| done.borrow().is_some()).expect("an end");
        done.take().expect("a result")
    }
}

/// Seeds 11, 19, 34: its partitions stayed offline until a restart.
#[test]
fn a_topic_made_on_a_full_disk_serves_once_there_is_space() {
    let scene = Scene::begin(11);
    let disk = scene.world.disk(scene.broker.node());
    disk.set_fault(|op| {
        let hit = op.kind.is_write() && op.path.to_string_lossy().contains("full-");
        hit.then_some(DiskFault::Errno(libc::ENOSPC))
    });
    let ask = |connection: Connection, id| async move {
        let place = Place { topic: "full".to_owned(), key: (id, 1) };
        requests::list_offset(&connection, &place, -1).await
    };
    let (id, before) = scene.client(move |connection| async move {
        let (error, id) = requests::create_topic(&connection, "full", 2, &[]).await?;
        assert_eq!(error, ErrorCode::None, "the topic is made: the metadata log has space");
        Ok((id, ask(connection, id).await?))
    });
    assert_eq!(before.0, ErrorCode::KafkaStorageError);
    disk.clear_fault();
    scene.world.run_for(Duration::from_secs(1));
    let after = scene.client(move |connection| ask(connection, id));
    assert_eq!(after, (ErrorCode::None, 0));
}
