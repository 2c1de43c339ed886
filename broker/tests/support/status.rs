//! Holds: the broker's status lines, asked for by SIGUSR1, as numbers summed over its shards.
//! Never touches: how the broker counts.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::broker::Broker;

/// How long a status line may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// How soon it is looked for again.
const LOOK: Duration = Duration::from_millis(2);

/// What all shards say together: each number under its name.
#[derive(Clone, Debug)]
pub struct Status(BTreeMap<String, u64>);

impl Status {
    /// The number of this name.
    ///
    /// # Panics
    /// If the status has none.
    pub fn get(&self, name: &str) -> u64 {
        *self.0.get(name).unwrap_or_else(|| panic!("no {name} in the status {:?}", self.0))
    }
}

/// Asks for the status and waits for every shard's line.
///
/// # Panics
/// If the lines don't come.
pub fn status(broker: &Broker, shards: usize) -> Status {
    let before = lines(&broker.log()).len();
    // SAFETY: kill sends a signal to our own child, which is not waited for while `broker` is borrowed.
    let sent = unsafe { libc::kill(broker.pid() as libc::pid_t, libc::SIGUSR1) };
    assert_eq!(sent, 0, "SIGUSR1: {}", std::io::Error::last_os_error());
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let log = broker.log();
        let fresh = lines(&log);
        if fresh.len() >= before + shards {
            let mut sums = BTreeMap::new();
            for line in &fresh[before..] {
                for word in line.split_whitespace() {
                    if let Some((name, number)) = word.split_once('=')
                        && let Ok(number) = number.parse::<u64>()
                    {
                        *sums.entry(name.to_owned()).or_default() += number;
                    }
                }
            }
            return Status(sums);
        }
        std::thread::sleep(LOOK);
    }
    panic!("no status within {PATIENCE:?}; the broker's log:\n{}", broker.log());
}

/// Asks for the status until `is_so` of it, and returns how long that took.
///
/// # Panics
/// If it is not so within `patience`.
pub fn await_status(broker: &Broker, shards: usize, patience: Duration, is_so: impl Fn(&Status) -> bool) -> Duration {
    let began = Instant::now();
    loop {
        let now = status(broker, shards);
        if is_so(&now) {
            return began.elapsed();
        }
        assert!(began.elapsed() < patience, "not so after {patience:?}: {now:?}");
        std::thread::sleep(LOOK);
    }
}

fn lines(log: &str) -> Vec<&str> {
    log.lines().filter(|line| line.contains("status:")).collect()
}
