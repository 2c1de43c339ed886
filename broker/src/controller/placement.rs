//! Which brokers hold which new partition.
//!
//! Holds: the striped placement and the check of a manual assignment. Never touches: partitions that exist.
//!
//! ```text
//!              rack a      rack b          racks take turns, and the brokers within a rack take turns:
//!              1  2        3  4
//! partition 0  1           3               leaders 1 3 2 4 ..., replicas on different racks
//! partition 1     2           ...          as far as there are racks
//! ```

use std::collections::BTreeMap;

use super::error::{AssignmentError, PlacementError};
use super::image::BrokerImage;
use super::state::Random;

/// Places `partitions` new partitions with `replication_factor` replicas each: the first one is the leader.
pub(super) fn place(
    brokers: &BTreeMap<i32, BrokerImage>,
    partitions: usize,
    replication_factor: i16,
    random: &mut Random<'_>,
) -> Result<Vec<Vec<i32>>, PlacementError> {
    let Ok(replicas) = usize::try_from(replication_factor) else {
        return Err(PlacementError::NotPositive(replication_factor));
    };
    if replicas == 0 {
        return Err(PlacementError::NotPositive(replication_factor));
    }
    if replicas > brokers.len() {
        return Err(PlacementError::TooFewBrokers { wanted: replication_factor, brokers: brokers.len() });
    }
    let mut racks = racks(brokers, random);
    let start = below(random, racks.len());
    let placed = (0..partitions).map(|partition| place_one(&mut racks, start + partition, replicas)).collect();
    Ok(placed)
}

struct Rack {
    brokers: Vec<i32>,
    /// Whose turn it is.
    turn: usize,
}

fn racks(brokers: &BTreeMap<i32, BrokerImage>, random: &mut Random<'_>) -> Vec<Rack> {
    let mut by_name: BTreeMap<Option<&str>, Vec<i32>> = BTreeMap::new();
    for broker in brokers.values() {
        by_name.entry(broker.rack.as_deref()).or_default().push(broker.id);
    }
    by_name
        .into_values()
        .map(|brokers| {
            let turn = below(random, brokers.len());
            Rack { brokers, turn }
        })
        .collect()
}

fn place_one(racks: &mut [Rack], start: usize, replicas: usize) -> Vec<i32> {
    let mut chosen = Vec::with_capacity(replicas);
    let mut taken = vec![0_usize; racks.len()];
    let racks_len = racks.len();
    for at in (0..racks_len).cycle().skip(start % racks_len.max(1)) {
        if chosen.len() == replicas {
            break;
        }
        let (Some(rack), Some(taken)) = (racks.get(at), taken.get_mut(at)) else {
            break;
        };
        // Every broker of the rack holds this partition already.
        if *taken == rack.brokers.len() {
            continue;
        }
        if let Some(&broker) = rack.brokers.get((rack.turn + *taken) % rack.brokers.len()) {
            chosen.push(broker);
            *taken += 1;
        }
    }
    for (rack, taken) in racks.iter_mut().zip(taken) {
        if taken > 0 {
            rack.turn = (rack.turn + 1) % rack.brokers.len();
        }
    }
    chosen
}

/// A random number below `limit`; 0 if that is 0.
fn below(random: &mut Random<'_>, limit: usize) -> usize {
    // The bias of a remainder does not matter for where a round starts.
    usize::try_from(random() % (limit.max(1) as u64)).unwrap_or(0)
}

/// Checks one partition's manual assignment. `expected` is how many replicas the other partitions have.
pub(super) fn check_assignment(
    brokers: &BTreeMap<i32, BrokerImage>,
    replicas: &[i32],
    expected: Option<usize>,
) -> Result<(), AssignmentError> {
    if replicas.is_empty() {
        return Err(AssignmentError::NoReplicas);
    }
    let mut sorted = replicas.to_vec();
    sorted.sort_unstable();
    let mut previous = None;
    for id in sorted {
        if !brokers.contains_key(&id) {
            return Err(AssignmentError::UnknownBroker(id));
        }
        if previous == Some(id) {
            return Err(AssignmentError::RepeatedBroker(id));
        }
        previous = Some(id);
    }
    match expected {
        Some(expected) if expected != replicas.len() => {
            Err(AssignmentError::Inconsistent { expected, found: replicas.len() })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn brokers(racks: &[(i32, Option<&str>)]) -> BTreeMap<i32, BrokerImage> {
        let image = |(id, rack): &(i32, Option<&str>)| BrokerImage {
            id: *id,
            incarnation: [0; 16],
            epoch: 1,
            endpoints: Vec::new(),
            rack: rack.map(str::to_owned),
            directories: Vec::new(),
        };
        racks.iter().map(|b| (b.0, image(b))).collect()
    }

    fn placed(racks: &[(i32, Option<&str>)], partitions: usize, factor: i16, seed: u64) -> Vec<Vec<i32>> {
        let mut number = seed;
        let mut random = || {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            number >> 33
        };
        match place(&brokers(racks), partitions, factor, &mut random) {
            Ok(placed) => placed,
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn leaders_and_replicas_spread_evenly_over_the_brokers() {
        for seed in 0..50 {
            let all = placed(&[(1, None), (2, None), (3, None)], 30, 2, seed);
            for id in 1..=3 {
                let leads = all.iter().filter(|r| r.first() == Some(&id)).count();
                let holds = all.iter().filter(|r| r.contains(&id)).count();
                assert_eq!((leads, holds), (10, 20), "broker {id}, seed {seed}");
            }
        }
    }

    #[test]
    fn replicas_stand_on_different_racks_and_never_twice_on_a_broker() {
        let racks = [(1, Some("a")), (2, Some("a")), (3, Some("b")), (4, Some("b"))];
        for seed in 0..50 {
            for replicas in placed(&racks, 20, 2, seed) {
                let on_a = replicas.iter().filter(|&&id| id <= 2).count();
                assert_eq!(on_a, 1, "{replicas:?}, seed {seed}");
            }
            for mut replicas in placed(&racks, 20, 4, seed) {
                replicas.sort_unstable();
                assert_eq!(replicas, [1, 2, 3, 4], "seed {seed}");
            }
        }
    }

    #[test]
    fn more_replicas_than_brokers_cannot_be_placed() {
        let mut random = || 0;
        assert_eq!(
            place(&brokers(&[(1, None)]), 1, 3, &mut random).map_err(|e| e.to_string()),
            Err("The target replication factor of 3 cannot be reached because only 1 broker(s) are registered.".into())
        );
    }
}
