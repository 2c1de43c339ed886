//! Holds: what seeds have found, each as the smallest story that shows it. Never touches: random faults (`lives`).

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use corelog_broker::start::node::Broken;
use corelog_net::wire::{ErrorCode, Uuid};
use corelog_reactor::ReactorLimits;
use corelog_reactor::sim::{DiskFault, SimWorld};
use corelog_storage::batch::{BatchBuilder, Batches, TargetCodec};
use corelog_storage::ids::{ProducerEpoch, ProducerId, Sequence, Timestamp};

use super::client::{Connection, Gone, Trace};
use super::kept::Rules;
use super::model::{Model, Topic};
use super::node::{Boot, DATA, Setup, SimBroker};
use super::random::Random;
use super::requests::{self, Fetch, Place};
use super::work::Work;

/// A broker that serves, and a client.
pub(super) struct Scene {
    pub(super) world: Rc<SimWorld>,
    pub(super) broker: SimBroker,
    work: Rc<Work>,
}

impl Scene {
    pub(super) fn begin(seed: u64) -> Scene {
        Scene::begin_with(seed, |_| ())
    }

    fn begin_with(seed: u64, change: impl FnOnce(&mut Setup)) -> Scene {
        let world = Rc::new(SimWorld::new(seed));
        let clients = world.add_node();
        let mut broker = SimBroker::new(&world);
        let reactor = world.reactor(clients, ReactorLimits::default());
        let work = Work::new(reactor, broker.address(), Trace::default());
        let mut setup = Setup::random(&mut Random::new(seed), Broken::Nothing);
        change(&mut setup);
        assert!(matches!(broker.start(&setup, Duration::from_secs(10)), Boot::Serving));
        Scene { world, broker, work }
    }

    pub(super) fn now(&self) -> Timestamp {
        Timestamp(self.work.reactor.unix_ms().0)
    }

    /// The broker stops as asked, and starts again.
    pub(super) fn restart(&mut self) {
        self.broker.stop();
        let setup = Setup::random(&mut Random::new(1), Broken::Nothing);
        assert!(matches!(self.broker.start(&setup, Duration::from_secs(10)), Boot::Serving));
    }

    /// What a client does, to its end.
    pub(super) fn client<T: 'static, F>(&self, act: impl FnOnce(Connection) -> F + 'static) -> T
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

/// Sends a record of an idempotent producer: what became of it, and where it is.
async fn send(
    connection: &Connection,
    place: &Place,
    (id, epoch): (i64, i16),
    sequence: i32,
    now: Timestamp,
) -> Result<(ErrorCode, i64), Gone> {
    let builder = BatchBuilder::new(TargetCodec::None);
    let mut builder = builder.producer(ProducerId(id), ProducerEpoch(epoch), Sequence(sequence));
    builder.append(now, None, Some(&sequence.to_be_bytes()), &[]);
    let batches = vec![(place.clone(), builder.build().expect("a batch"))];
    let answer = requests::produce(connection, 13, -1, &batches).expect("an answer to wait for");
    let outcome = requests::produced(&answer.body().await?, 13, &batches)[0];
    Ok((outcome.error, outcome.base))
}

/// Seeds 5029, 10126, 10193, 10302: all but the last of them were out of order, which ends a client's producer.
#[test]
fn batches_sent_again_after_a_stop_are_known_by_all_their_sequences() {
    let mut scene = Scene::begin(5029);
    let now = scene.now();
    let send_five = move |connection: Connection, place: Place, producer| async move {
        let mut outcomes = Vec::new();
        for sequence in 0..5 {
            outcomes.push(send(&connection, &place, producer, sequence, now).await?);
        }
        Ok(outcomes)
    };
    let (place, producer, first) = scene.client(move |connection| async move {
        let (_, id) = requests::create_topic(&connection, "again", 1, &[]).await?;
        let place = Place { topic: "again".to_owned(), key: (id, 0) };
        let (_, id, epoch) = requests::producer_id(&connection).await?;
        Ok((place.clone(), (id, epoch), send_five(connection, place, (id, epoch)).await?))
    });
    assert_eq!(first, (0..5).map(|base| (ErrorCode::None, base)).collect::<Vec<_>>());
    scene.restart();
    let again = scene.client(move |connection| send_five(connection, place, producer));
    assert_eq!(again, first);
}

/// Seed 10985. As in Kafka, and no fault of the broker's: it can't tell a producer whose first batch it refused from one that
/// it has forgotten.
#[test]
fn a_batch_that_was_refused_is_out_of_order_once_a_later_one_was_taken_as_the_first() {
    let scene = Scene::begin(10985);
    let now = scene.now();
    let disk = scene.world.disk(scene.broker.node());
    disk.set_fault(|op| {
        let hit = op.kind.is_write() && op.path.to_string_lossy().contains("full-");
        hit.then_some(DiskFault::Errno(libc::ENOSPC))
    });
    let (place, producer, first) = scene.client(move |connection| async move {
        let (_, id) = requests::create_topic(&connection, "full", 1, &[]).await?;
        let place = Place { topic: "full".to_owned(), key: (id, 0) };
        let (_, id, epoch) = requests::producer_id(&connection).await?;
        let first = send(&connection, &place, (id, epoch), 0, now).await?;
        Ok((place, (id, epoch), first))
    });
    assert_eq!(first.0, ErrorCode::KafkaStorageError, "the partition is offline");
    disk.clear_fault();
    scene.world.run_for(Duration::from_secs(1));
    let then = scene.client(move |connection| async move {
        let second = send(&connection, &place, producer, 1, now).await?;
        Ok((second, send(&connection, &place, producer, 0, now).await?))
    });
    assert_eq!(then, ((ErrorCode::None, 0), (ErrorCode::OutOfOrderSequenceNumber, -1)));
}

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Two days of three records each, in segments of one record; the log start before, between and after their weeks are over.
#[test]
fn records_are_kept_for_the_week_of_the_default_and_go_with_the_next_look() {
    let mut scene = Scene::begin(7);
    let pour = |scene: &Scene, place: Place| {
        let now = scene.now();
        scene.client(move |connection| async move {
            for record in 0..3 {
                let mut builder = BatchBuilder::new(TargetCodec::None);
                builder.append(now, None, Some(&[record; 600]), &[]);
                let batches = vec![(place.clone(), builder.build().expect("a batch"))];
                let answer = requests::produce(&connection, 13, -1, &batches).expect("an answer to wait for");
                let outcome = requests::produced(&answer.body().await?, 13, &batches)[0];
                assert_eq!(outcome.error, ErrorCode::None);
            }
            Ok(())
        });
    };
    let place = scene.client(move |connection| async move {
        let configs = [("internal.segment.bytes", "1000".to_owned())];
        let (_, id) = requests::create_topic(&connection, "weeks", 1, &configs).await?;
        Ok(Place { topic: "weeks".to_owned(), key: (id, 0) })
    });
    let ends = |scene: &Scene| {
        let place = place.clone();
        scene.client(move |connection| async move {
            let (_, start) = requests::list_offset(&connection, &place, -2).await?;
            Ok((start, requests::list_offset(&connection, &place, -1).await?.1))
        })
    };
    pour(&scene, place.clone());
    scene.world.run_for(DAY);
    pour(&scene, place.clone());
    // The time of a look, five minutes apart.
    let look = Duration::from_secs(310);
    scene.world.run_for(6 * DAY - 2 * look);
    assert_eq!(ends(&scene), (0, 6), "before the first day's week is over");
    scene.world.run_for(3 * look);
    assert_eq!(ends(&scene), (3, 6));
    scene.restart();
    assert_eq!(ends(&scene), (3, 6), "after a restart");
    scene.world.run_for(DAY);
    assert_eq!(ends(&scene), (6, 6), "the active segment is no exception");
    pour(&scene, place.clone());
    assert_eq!(ends(&scene), (6, 9));
    assert_eq!(
        scene.client({
            let place = place.clone();
            move |connection| async move { requests::epoch_end(&connection, &place, 0).await }
        }),
        (ErrorCode::None, 0, 6),
        "the first leader epoch, of which nothing is left, ends where the log starts"
    );
}

#[test]
fn a_producer_is_forgotten_a_day_after_its_last_batch_with_the_next_look() {
    let scene = Scene::begin(8);
    let now = scene.now();
    let (place, producer, first) = scene.client(move |connection| async move {
        let (_, id) = requests::create_topic(&connection, "silent", 1, &[]).await?;
        let place = Place { topic: "silent".to_owned(), key: (id, 0) };
        let (_, id, epoch) = requests::producer_id(&connection).await?;
        let first = send(&connection, &place, (id, epoch), 0, now).await?;
        Ok((place, (id, epoch), first))
    });
    assert_eq!(first, (ErrorCode::None, 0));
    let gap = |scene: &Scene| {
        let (place, now) = (place.clone(), scene.now());
        scene.client(move |connection| async move { send(&connection, &place, producer, 7, now).await })
    };
    scene.world.run_for(DAY - Duration::from_secs(60));
    assert_eq!(gap(&scene), (ErrorCode::OutOfOrderSequenceNumber, -1), "it is known, and left something out");
    scene.world.run_for(Duration::from_secs(11 * 60));
    assert_eq!(gap(&scene), (ErrorCode::None, 1), "as from a producer that nobody knows");
}

/// The checkpoint does not say that a deleted topic's entries may go: it knows deleted logs no more than lost ones.
#[test]
fn what_the_commit_log_has_of_a_deleted_topic_goes_at_the_next_start() {
    let mut scene = Scene::begin_with(7, |setup| {
        setup.shards = 1;
        setup.properties.retain(|property| !property.starts_with("corelog.commit.log="));
        setup.properties.push("corelog.commit.log=always".to_owned());
        setup.options.storage.write_back_bytes = 256 << 10;
    });
    let disk = scene.world.disk(scene.broker.node());
    let commit_logs = move || disk.list(&Path::new(DATA).join(".commit"));
    let now = scene.now();
    let answer = scene.client(move |connection| async move {
        let (_, id) = requests::create_topic(&connection, "gone", 1, &[]).await?;
        let place = Place { topic: "gone".to_owned(), key: (id, 0) };
        let (_, id, epoch) = requests::producer_id(&connection).await?;
        for sequence in 0..200 {
            assert_eq!(send(&connection, &place, (id, epoch), sequence, now).await?.0, ErrorCode::None);
        }
        requests::delete_topic(&connection, "gone").await
    });
    assert_eq!(answer, ErrorCode::None);
    assert!(!commit_logs().is_empty());
    scene.broker.cut();
    let setup = Setup::random(&mut Random::new(1), Broken::Nothing);
    assert!(matches!(scene.broker.start(&setup, Duration::from_secs(10)), Boot::Serving));
    scene.world.run_for(Duration::from_secs(1));
    assert_eq!(commit_logs(), Vec::<PathBuf>::new());
}

/// The offsets of all records of a partition, read to its end.
pub(super) async fn offsets(connection: &Connection, place: &Place) -> Result<Vec<i64>, Gone> {
    let (_, mut at) = requests::list_offset(connection, place, -2).await?;
    let (_, end) = requests::list_offset(connection, place, -1).await?;
    let mut found = Vec::new();
    while at < end {
        let partitions = vec![(place.clone(), at)];
        let request = Fetch { version: 16, session: (0, -1), wait_ms: 10, bytes_max: 4_000, partitions };
        let (_, _, fetched) = requests::fetch(connection, &request).await?;
        for batch in Batches::new(&fetched[0].records) {
            let header = batch.expect("a whole batch").header;
            at = header.last_offset().expect("a sound header").0 + 1;
            if header.record_count > 0 {
                found.push(header.base_offset.0);
            }
        }
    }
    Ok(found)
}

#[test]
fn a_topic_with_both_policies_keeps_the_newest_of_each_key_until_it_is_a_week_old() {
    let mut scene = Scene::begin(9);
    let place = scene.client(move |connection| async move {
        let configs = [
            ("cleanup.policy", "compact,delete".to_owned()),
            ("internal.segment.bytes", "2000".to_owned()),
            ("min.cleanable.dirty.ratio", "0.01".to_owned()),
        ];
        let (_, id) = requests::create_topic(&connection, "both", 1, &configs).await?;
        Ok(Place { topic: "both".to_owned(), key: (id, 0) })
    });
    let pour = |scene: &Scene, keys: u8| {
        let (place, now) = (place.clone(), scene.now());
        scene.client(move |connection| async move {
            for n in 0..40 {
                let mut builder = BatchBuilder::new(TargetCodec::None);
                builder.append(now, Some(&[keys + n % 2]), Some(&[1; 300]), &[]);
                let batches = vec![(place.clone(), builder.build().expect("a batch"))];
                let answer = requests::produce(&connection, 13, -1, &batches).expect("an answer to wait for");
                assert_eq!(requests::produced(&answer.body().await?, 13, &batches)[0].error, ErrorCode::None);
            }
            Ok(())
        });
    };
    let read = |scene: &Scene| {
        let place = place.clone();
        scene.client(move |connection| async move { offsets(&connection, &place).await })
    };
    pour(&scene, 0);
    scene.world.run_for(DAY);
    pour(&scene, 10);
    scene.world.run_for(6 * DAY - Duration::from_secs(3600));
    let found = read(&scene);
    assert!(found.len() < 16 && found.contains(&38) && found.contains(&39), "the first day's keys: {found:?}");
    assert!(found.ends_with(&[78, 79]), "{found:?}");
    scene.restart();
    assert_eq!(read(&scene), found, "after a restart");
    // The first day's week is over; what was compacted into one segment with the second day's stays with it, as in Kafka.
    scene.world.run_for(Duration::from_secs(2 * 3600));
    assert!(read(&scene).ends_with(&[78, 79]));
    scene.world.run_for(DAY);
    assert_eq!(read(&scene), Vec::<i64>::new(), "the second day's week is over");
    pour(&scene, 0);
    assert!(read(&scene).starts_with(&[80]));
}

#[test]
fn a_compacted_topic_takes_records_with_keys_only_and_is_compacted_also_over_a_power_cut() {
    let mut scene = Scene::begin(7);
    let now = scene.now();
    let place = scene.client(move |connection| async move {
        let configs = [
            ("cleanup.policy", "compact".to_owned()),
            ("internal.segment.bytes", "2000".to_owned()),
            ("min.cleanable.dirty.ratio", "0.01".to_owned()),
        ];
        let (error, id) = requests::create_topic(&connection, "keys", 1, &configs).await?;
        assert_eq!(error, ErrorCode::None);
        let place = Place { topic: "keys".to_owned(), key: (id, 0) };
        let send = async |key: Option<u8>| {
            let mut builder = BatchBuilder::new(TargetCodec::None);
            builder.append(now, key.as_ref().map(std::slice::from_ref), Some(&[1; 300]), &[]);
            let batches = vec![(place.clone(), builder.build().expect("a batch"))];
            let answer = requests::produce(&connection, 13, -1, &batches).expect("an answer to wait for");
            Ok(requests::produced(&answer.body().await?, 13, &batches)[0].error)
        };
        assert_eq!(send(None).await?, ErrorCode::InvalidRecord);
        for n in 0..60 {
            assert_eq!(send(Some(n % 3)).await?, ErrorCode::None);
        }
        assert_eq!(offsets(&connection, &place).await?, (0..60).collect::<Vec<_>>());
        Ok(place)
    });
    // Longer than `log.cleaner.backoff.ms`.
    scene.world.run_for(Duration::from_secs(40));
    let read = |scene: &Scene| {
        let place = place.clone();
        scene.client(move |connection| async move { offsets(&connection, &place).await })
    };
    let compacted = read(&scene);
    assert!(compacted.len() < 12, "{compacted:?}");
    assert!(compacted.ends_with(&[57, 58, 59]), "{compacted:?}");
    scene.broker.cut();
    let setup = Setup::random(&mut Random::new(1), Broken::Nothing);
    assert!(matches!(scene.broker.start(&setup, Duration::from_secs(10)), Boot::Serving));
    assert_eq!(read(&scene), compacted);
}

/// Seed 600724, a fault of the model: the partitions were seen before it was known whose they are, and from then on taken for
/// those of a topic that keeps everything.
#[test]
fn a_topic_whose_creation_was_in_doubt_is_judged_by_its_own_settings() {
    let mut random = Random::new(600_724);
    let rules = std::iter::repeat_with(|| Rules::random(&mut random)).find(|rules| rules.retains() && rules.compacts);
    let mut model = Model::default();
    let id = Uuid([7; 16]);
    model.rules.insert("churn".to_owned(), rules.expect("some that retain"));
    model.topics.insert("churn".to_owned(), Topic::Unknown);
    // Its creation was not answered; it is there while that life goes on, and in the next.
    model.observed("churn", Some((id, 1)), false);
    model.partition((id, 0)).leader_epoch(0, false);
    model.observed("churn", Some((id, 1)), true);
    assert!(model.rules(id).retains());
    let then = model.facts((id, 0));
    model.partition((id, 0)).ends(then, 4, 9, 1_000);
    assert_eq!(model.facts((id, 0)).log_start, 4, "retention may have moved it");
}
