//! Holds: the consumers: long polls in sessions at the tail, and reads of any offset; and the reading of a whole log.
//! Never touches: the broker, faults.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use corelog_net::wire::ErrorCode;

use super::client::{Connection, Gone};
use super::model::{Facts, Key};
use super::random::Random;
use super::requests::{self, Fetch, Fetched, Place};
use super::work::Work;

/// Fetch versions that name topics by name, and by id.
const BY_NAME: [i16; 3] = [7, 11, 12];
const BY_ID: [i16; 3] = [13, 15, 16];
/// Reads of one log that bring nothing, one after the other, before it is a broker that withholds records.
const EMPTY_MAX: usize = 200;

/// Consumes the tail of everything, in fetch sessions.
pub async fn poll(work: Rc<Work>, connection: Connection, random: Rc<RefCell<Random>>) -> Result<(), Gone> {
    let by_name = random.borrow_mut().chance(400);
    let version = {
        let versions = if by_name { BY_NAME } else { BY_ID };
        versions[random.borrow_mut().below(3) as usize]
    };
    let mut session = (0, 0);
    let mut positions: BTreeMap<Key, (Place, i64)> = BTreeMap::new();
    // Partitions whose position the session does not know yet.
    let mut changed: Vec<Key> = Vec::new();
    while !work.is_ending.get() {
        if session.1 == 0 {
            let keys = work.model.borrow().keys().into_iter();
            let keys = keys.filter(|(topic, _)| !by_name || topic != super::admin::CHURN);
            positions = keys
                .map(|(topic, key)| {
                    let position = positions.get(&key).map_or(work.facts(key).log_start, |(_, position)| *position);
                    (key, (Place { topic, key }, position))
                })
                .collect();
            changed = positions.keys().copied().collect();
        }
        let wanted: Vec<(Place, i64)> = changed.iter().filter_map(|key| positions.get(key).cloned()).collect();
        let (wait_ms, bytes_max) = {
            let mut random = random.borrow_mut();
            (random.below(300) as i32, 1_000 + random.below(100_000) as i32)
        };
        let facts: BTreeMap<Key, Facts> = positions.keys().map(|key| (*key, work.facts(*key))).collect();
        let request = Fetch { version, session, wait_ms, bytes_max, partitions: wanted };
        let (error, id, fetched) = requests::fetch(&connection, &request).await?;
        work.model.borrow_mut().checked.polls += 1;
        changed.clear();
        match error {
            ErrorCode::None => session = if id == 0 { (0, 0) } else { (id, session.1 + 1) },
            ErrorCode::FetchSessionIdNotFound => session = (0, 0),
            error => panic!("a fetch in session {session:?} was answered with {}", error.name()),
        }
        for got in fetched {
            let found = positions.values_mut().find(|(place, _)| got.is_of(place));
            let Some((place, position)) = found else { panic!("a fetch brought {got:?}, which nobody asked for") };
            if let Some(next) = took(&work, place, *position, facts[&place.key], &got) {
                if next != *position {
                    changed.push(place.key);
                }
                *position = next;
            } else {
                // Gone, or broken: begin anew with what is there.
                session = (id, 0);
            }
        }
        let mut random = Random::new(random.borrow_mut().next_u64());
        if random.chance(20) {
            session = (session.0, 0);
        }
        let pause = Duration::from_micros(random.below(5_000));
        work.reactor.sleep(pause).await;
    }
    Ok(())
}

/// Checks what a partition gave. Returns the next position; `None` if the partition can't be read.
fn took(work: &Work, place: &Place, position: i64, then: Facts, got: &Fetched) -> Option<i64> {
    match got.error {
        ErrorCode::None => {}
        ErrorCode::OffsetOutOfRange => {
            let mut model = work.model.borrow_mut();
            let partition = model.partition(place.key);
            partition.out_of_range(position);
            let start = model.facts(place.key).log_start;
            return Some(start.max(position + 1));
        }
        error => {
            work.excuse("a fetch", place, error);
            return None;
        }
    }
    let now = work.now();
    let mut model = work.model.borrow_mut();
    let partition = model.partition(place.key);
    partition.ends(then, got.log_start, got.visible, now);
    let next = partition.read(then, position, got.visible, &got.records, now);
    model.checked.read += got.records.len() as u64;
    Some(next)
}

/// Reads here and there.
pub async fn read_anywhere(work: Rc<Work>, connection: Connection, random: Rc<RefCell<Random>>) -> Result<(), Gone> {
    while !work.is_ending.get() {
        let (place, request, facts) = {
            let mut random = random.borrow_mut();
            let Some(place) = work.some_place(&mut random) else { return Ok(()) };
            let facts = work.facts(place.key);
            let span = (facts.visible - facts.log_start).max(0) as u64;
            let from = facts.log_start + random.below(span + 1) as i64;
            let request = Fetch {
                version: BY_ID[random.below(3) as usize],
                session: (0, -1),
                wait_ms: 0,
                bytes_max: 1 + random.below(200_000) as i32,
                partitions: vec![(place.clone(), from)],
            };
            (place, request, facts)
        };
        let (error, _, fetched) = requests::fetch(&connection, &request).await?;
        assert_eq!(error, ErrorCode::None, "a fetch without a session");
        took(&work, &place, request.partitions[0].1, facts, &fetched[0]);
        let pause = Duration::from_micros(random.borrow_mut().below(8_000));
        work.reactor.sleep(pause).await;
    }
    Ok(())
}

/// Reads a log from its start to its end, when nothing else is under way, and checks that everything is there. Returns the
/// end.
pub async fn read_whole(work: &Rc<Work>, connection: &Connection, place: &Place, bytes_max: i32) -> Result<i64, Gone> {
    let then = work.facts(place.key);
    let (start_error, start) = requests::list_offset(connection, place, -2).await?;
    let (end_error, end) = requests::list_offset(connection, place, -1).await?;
    assert_eq!((start_error, end_error), (ErrorCode::None, ErrorCode::None), "the ends of {place:?}");
    {
        let mut model = work.model.borrow_mut();
        let partition = model.partition(place.key);
        partition.ends(then, start, end, work.now());
        partition.read_again();
    }
    let (mut at, mut empty) = (start, 0);
    while at < end {
        let partitions = vec![(place.clone(), at)];
        let request = Fetch { version: 16, session: (0, -1), wait_ms: 10, bytes_max, partitions };
        let (_, _, fetched) = requests::fetch(connection, &request).await?;
        if fetched[0].error == ErrorCode::OffsetOutOfRange && work.model.borrow().rules(place.key.0).retains() {
            // Its segment went meanwhile.
            let then = work.facts(place.key);
            let (error, start) = requests::list_offset(connection, place, -2).await?;
            assert!(error == ErrorCode::None && start > at, "offset {at} out of range of a log that starts at {start}");
            work.model.borrow_mut().partition(place.key).ends(then, start, then.visible, work.now());
            at = start;
            continue;
        }
        let next = took(work, place, at, work.facts(place.key), &fetched[0]);
        let next = next.unwrap_or_else(|| panic!("{place:?} can't be read at {at}"));
        empty = if next == at { empty + 1 } else { 0 };
        assert!(empty < EMPTY_MAX, "{place:?} has nothing at {at} of {start} to {end}");
        at = next;
    }
    work.model.borrow_mut().partition(place.key).read_whole(start, end, work.now());
    Ok(end)
}
