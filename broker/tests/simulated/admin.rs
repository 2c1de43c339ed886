//! Holds: the client that makes, grows, changes and deletes topics and records; and the check of all that after a start.
//! Never touches: the broker, faults.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use corelog_net::wire::ErrorCode;

use super::client::{Connection, Gone};
use super::kept::Rules;
use super::model::Topic;
use super::random::Random;
use super::reads::read_whole;
use super::requests::{self, Place};
use super::work::{Work, is_present};

/// Topics that stay once they are made.
pub const STABLE: [&str; 4] = ["orders", "events", "keyed", "kept"];
/// Those of them that keep what they are given: their config is changed.
const KEPT_WHOLE: [&str; 2] = ["orders", "events"];
/// A topic that is deleted and made again.
pub const CHURN: &str = "churn";
/// The config that is changed.
const CONFIG: &str = "retention.ms";
const CONFIG_DEFAULT: &str = "604800000";
const PARTITIONS_MAX: i32 = 5;

/// Makes the stable topics, if they are not there.
pub async fn make_topics(work: &Rc<Work>, connection: &Connection, random: &mut Random) -> Result<(), Gone> {
    for name in STABLE {
        if !is_present(work, name) {
            make(work, connection, name, random).await?;
        }
    }
    Ok(())
}

async fn make(work: &Rc<Work>, connection: &Connection, name: &str, random: &mut Random) -> Result<(), Gone> {
    let mut pick = |from: &[u64]| from[random.below(from.len() as u64) as usize].to_string();
    let mut configs = vec![
        ("internal.segment.bytes", pick(&[24_000, 200_000, 4_000_000])),
        ("index.interval.bytes", pick(&[64, 512, 4_096])),
        ("file.delete.delay.ms", pick(&[0, 5, 60_000])),
    ];
    let takes_away = !KEPT_WHOLE.contains(&name) && (name != CHURN || random.chance(500));
    let rules = if takes_away { Rules::random(random) } else { Rules::default() };
    if !rules.keeps_all() {
        // So that there are segments that may go.
        configs[0].1 = ["3000", "8000", "24000"][random.below(3) as usize].to_owned();
    }
    configs.extend(rules.configs());
    work.model.borrow_mut().rules.insert(name.to_owned(), rules);
    work.model.borrow_mut().segment_bytes.insert(name.to_owned(), configs[0].1.parse().expect("a number"));
    let partitions = 1 + random.below(3) as i32;
    work.model.borrow_mut().topics.insert(name.to_owned(), Topic::Unknown);
    let (error, id) = requests::create_topic(connection, name, partitions, &configs).await?;
    match error {
        ErrorCode::None => work.model.borrow_mut().created(name, id, partitions),
        // It is not there, in this life or the next.
        error if is_refused(work, "creating", name, error) => {
            work.model.borrow_mut().topics.insert(name.to_owned(), Topic::Absent);
        }
        _ => {}
    }
    Ok(())
}

/// Whether a change that was answered with an error is not made, for certain. A write that a bad disk reported as failed may
/// have reached it all the same: what it says is in force from the next start on, or never. Panics if the error is none
/// that may happen now.
fn is_refused(work: &Work, what: &str, name: &str, error: ErrorCode) -> bool {
    let is_storage = error == ErrorCode::KafkaStorageError;
    let is_refusal = is_storage || matches!(error, ErrorCode::NotController | ErrorCode::NotLeaderOrFollower);
    assert!(work.may_refuse.get() && is_refusal, "{what} {name} was answered with {}", error.name());
    !(is_storage && work.is_disk_bad.get())
}

/// Whether a topic is there, or may be: a change that was not answered may still be on its way in this life.
fn is_open(work: &Work, name: &str) -> bool {
    matches!(work.model.borrow().topics.get(name), Some(Topic::Present { .. } | Topic::Unknown))
}

/// Changes things until the life ends.
pub async fn administer(work: Rc<Work>, connection: Connection, random: Rc<RefCell<Random>>) -> Result<(), Gone> {
    // Its own from here on: a borrow must not be held while others run.
    let mut random = Random::new(random.borrow_mut().next_u64());
    while !work.is_ending.get() {
        match random.below(10) {
            0 | 1 if is_present(&work, CHURN) => delete(&work, &connection).await?,
            0..=2 if !is_open(&work, CHURN) => make(&work, &connection, CHURN, &mut random).await?,
            3 => grow(&work, &connection, STABLE[random.below(4) as usize]).await?,
            4 | 5 => configure(&work, &connection, KEPT_WHOLE[random.below(2) as usize], &mut random).await?,
            6 | 7 => delete_records(&work, &connection, &mut random).await?,
            _ => ask_offsets(&work, &connection, &mut random).await?,
        }
        let pause = Duration::from_micros(random.below(20_000));
        work.reactor.sleep(pause).await;
    }
    Ok(())
}

async fn delete(work: &Rc<Work>, connection: &Connection) -> Result<(), Gone> {
    let now = |topic| work.model.borrow_mut().topics.insert(CHURN.to_owned(), topic);
    let Some(before) = now(Topic::Unknown) else { return Ok(()) };
    let after = match requests::delete_topic(connection, CHURN).await? {
        ErrorCode::None => Topic::Absent,
        error if is_refused(work, "deleting", CHURN, error) => before,
        _ => Topic::Unknown,
    };
    now(after);
    Ok(())
}

async fn grow(work: &Rc<Work>, connection: &Connection, name: &str) -> Result<(), Gone> {
    let Some(Topic::Present { id, partitions, growing: None }) = work.model.borrow().topics.get(name).cloned() else {
        return Ok(());
    };
    if partitions >= PARTITIONS_MAX {
        return Ok(());
    }
    let count = partitions + 1;
    let now = |growing, partitions| {
        work.model.borrow_mut().topics.insert(name.to_owned(), Topic::Present { id, partitions, growing });
    };
    now(Some(count), partitions);
    match requests::create_partitions(connection, name, count).await? {
        ErrorCode::None => now(None, count),
        error if is_refused(work, "growing", name, error) => now(None, partitions),
        _ => {}
    }
    Ok(())
}

async fn configure(work: &Rc<Work>, connection: &Connection, name: &str, random: &mut Random) -> Result<(), Gone> {
    // A change that was not answered may still be on its way, and come after this one.
    let is_open = work.model.borrow().configs.get(name).is_some_and(|values| values.len() > 1);
    if !is_present(work, name) || is_open {
        return Ok(());
    }
    let value = (1_000_000_000 + random.below(1_000_000_000)).to_string();
    let before = || [CONFIG_DEFAULT.to_owned()].into();
    work.model.borrow_mut().configs.entry(name.to_owned()).or_insert_with(before).insert(value.clone());
    let error = requests::set_config(connection, name, CONFIG, &value).await?;
    let is_done = error == ErrorCode::None;
    if is_done || is_refused(work, "configuring", name, error) {
        let mut model = work.model.borrow_mut();
        model.configs.entry(name.to_owned()).or_default().retain(|other| (*other == value) == is_done);
    }
    Ok(())
}

async fn delete_records(work: &Rc<Work>, connection: &Connection, random: &mut Random) -> Result<(), Gone> {
    let Some(place) = work.some_place(random) else { return Ok(()) };
    let facts = work.facts(place.key);
    let span = (facts.visible - facts.log_start).max(0) as u64;
    let offset = facts.log_start + random.below(span + 1) as i64;
    let rules = work.model.borrow().rules(place.key.0);
    if rules.compacts && !rules.deletes {
        let (error, _) = requests::delete_records(connection, &place, offset).await?;
        if error != ErrorCode::PolicyViolation {
            work.excuse("deleting records of a compacted topic", &place, error);
        }
        return Ok(());
    }
    work.model.borrow_mut().partition(place.key).ask_deletion(offset);
    let (error, low_watermark) = requests::delete_records(connection, &place, offset).await?;
    if error == ErrorCode::None {
        assert!(low_watermark >= offset, "records of {place:?} deleted to {low_watermark}, asked {offset}");
        let now = work.now();
        let mut model = work.model.borrow_mut();
        model.partition(place.key).deleted(low_watermark, now);
        model.checked.deletions += 1;
    } else {
        work.excuse("deleting records", &place, error);
    }
    Ok(())
}

async fn ask_offsets(work: &Rc<Work>, connection: &Connection, random: &mut Random) -> Result<(), Gone> {
    let Some(place) = work.some_place(random) else { return Ok(()) };
    if place.topic == CHURN {
        // By name, it may be another topic by now.
        return Ok(());
    }
    let then = work.facts(place.key);
    let mark = -1 - random.below(2) as i64;
    let (error, offset) = requests::list_offset(connection, &place, mark).await?;
    if error != ErrorCode::None {
        work.excuse("the offsets", &place, error);
        return Ok(());
    }
    let now = work.now();
    let mut model = work.model.borrow_mut();
    let partition = model.partition(place.key);
    match mark {
        -1 => partition.ends(then, then.log_start, offset, now),
        _ => partition.ends(then, offset, then.visible, now),
    }
    Ok(())
}

/// Asks for the first record of some times.
async fn ask_times(work: &Rc<Work>, connection: &Connection, place: &Place, random: &mut Random) -> Result<(), Gone> {
    let times = work.model.borrow_mut().partition(place.key).times();
    let pick = |number: u64| times.get(number as usize).copied();
    for known in (0..2).filter_map(|_| pick(random.below(times.len().max(1) as u64))).collect::<Vec<_>>() {
        let time = known + random.below(3) as i64 - 1;
        let rules = work.model.borrow().rules(place.key.0);
        if !rules.keeps_all() {
            let (error, found) = requests::list_offset(connection, place, time).await?;
            assert_eq!(error, ErrorCode::None, "the first record at {time} of {place:?}");
            if rules.compacts {
                work.model.borrow_mut().partition(place.key).check_first_at(time, found, work.now());
            }
            continue;
        }
        let wanted = work.model.borrow_mut().partition(place.key).first_at(time);
        let found = requests::list_offset(connection, place, time).await?;
        assert_eq!(found, (ErrorCode::None, wanted.unwrap_or(-1)), "the first record at {time} of {place:?}");
    }
    Ok(())
}

/// Compares all topics with what is known of them.
async fn observe(work: &Rc<Work>, connection: &Connection, is_new_life: bool) -> Result<(), Gone> {
    let described = requests::metadata(connection).await?;
    let mut model = work.model.borrow_mut();
    for name in STABLE.iter().chain([&CHURN]) {
        let found = described.iter().find(|(topic, _, _)| topic == name);
        model.observed(name, found.map(|(_, id, epochs)| (*id, epochs.len() as i32)), is_new_life);
        if let Some((_, id, epochs)) = found {
            for (partition, epoch) in (0..).zip(epochs) {
                model.partition((*id, partition)).leader_epoch(*epoch, is_new_life);
            }
        }
    }
    Ok(())
}

/// Everything is as it was told and read before: topics, configs, and every record.
pub async fn verify(
    work: &Rc<Work>,
    connection: &Connection,
    random: &mut Random,
    is_new_life: bool,
) -> Result<(), Gone> {
    observe(work, connection, is_new_life).await?;
    for name in STABLE {
        let wanted = work.model.borrow().configs.get(name).cloned().unwrap_or_default();
        if is_present(work, name) && !wanted.is_empty() {
            let (error, value) = requests::config(connection, name, CONFIG).await?;
            assert_eq!(error, ErrorCode::None, "the configs of {name}");
            assert!(wanted.contains(&value), "{CONFIG} of {name} is {value}, not {wanted:?}");
            if is_new_life {
                work.model.borrow_mut().configs.insert(name.to_owned(), [value].into());
            }
        }
    }
    let keys = work.model.borrow().keys();
    for (topic, key) in keys {
        let bytes_max = [1, 5_000, 1 << 20][random.below(3) as usize];
        let place = Place { topic, key };
        let end = read_whole(work, connection, &place, bytes_max).await?;
        let rules = work.model.borrow().rules(key.0);
        if rules.keeps_all() {
            ask_epochs(work, connection, &place, end).await?;
        }
        ask_times(work, connection, &place, random).await?;
    }
    // Metadata can be changed, whatever happened before.
    configure(work, connection, KEPT_WHOLE[random.below(2) as usize], random).await
}

/// Asks where each leader epoch of a log ends, whose end is `end`.
async fn ask_epochs(work: &Rc<Work>, connection: &Connection, place: &Place, end: i64) -> Result<(), Gone> {
    let ends = work.model.borrow_mut().partition(place.key).epoch_ends(end);
    for (epoch, end) in ends {
        let found = requests::epoch_end(connection, place, epoch).await?;
        assert_eq!(found, (ErrorCode::None, epoch, end), "the end of epoch {epoch} of {place:?}");
    }
    Ok(())
}
