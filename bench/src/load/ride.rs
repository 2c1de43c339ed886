//! Living through a broker that goes away and comes back.
//!
//! Holds: how long each connection has been without an answer, when to try again, and how long the broker was away in all.
//! Never touches: requests; what becomes of those that were open is for their senders to know.

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use corelog_net::wire::ErrorCode;
use corelog_reactor::{Reactor, Stream};

use super::control::Control;
use crate::client::rpc::connect;
use crate::error::BenchError;
use crate::measure::clock::now_ns;

/// The first pause before a connection is tried again; each further one is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// The longest one.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// A connection that lasted this long was one, even if nothing was asked of it.
const SETTLED: Duration = Duration::from_secs(1);

/// How long a broker may be away, and how long it was; shared by all connections of a run.
#[derive(Default)]
pub struct Ride {
    patience: Option<Duration>,
    /// Connections without a broker now, and since when there are any.
    away: Cell<usize>,
    since_ns: Cell<u64>,
    /// What is over.
    times: Cell<u64>,
    away_ns: Cell<u64>,
}

impl Ride {
    /// Waits for a broker for so long, at each connection; without it, the first broken one ends the run.
    pub fn new(patience: Option<Duration>) -> Rc<Self> {
        Rc::new(Self { patience, ..Self::default() })
    }

    /// How long a broker may be away, if it may be.
    pub const fn patience(&self) -> Option<Duration> {
        self.patience
    }

    /// Since when the broker is away, if it is.
    pub fn away_s(&self) -> Option<f64> {
        (self.away.get() > 0).then(|| now_ns().saturating_sub(self.since_ns.get()) as f64 / 1e9)
    }

    /// How often the broker was away, and for how many seconds in all.
    pub fn total(&self) -> (u64, f64) {
        (self.times.get(), self.away_ns.get() as f64 / 1e9)
    }

    fn leave(&self) {
        if self.away.replace(self.away.get() + 1) == 0 {
            self.since_ns.set(now_ns());
            self.times.set(self.times.get() + 1);
        }
    }

    fn arrive(&self) {
        self.away.set(self.away.get() - 1);
        if self.away.get() == 0 {
            self.away_ns.set(self.away_ns.get() + now_ns().saturating_sub(self.since_ns.get()));
        }
    }
}

/// One connection's part of it.
pub struct Absence {
    ride: Rc<Ride>,
    /// When the last answer was missed for the first time.
    since_ns: Cell<Option<u64>>,
    connected_ns: Cell<u64>,
    pause: Cell<Duration>,
}

impl Absence {
    /// Of a connection that is there.
    pub fn new(ride: &Rc<Ride>) -> Self {
        let (since_ns, pause) = (Cell::new(None), Cell::new(PAUSE_MIN));
        Self { ride: Rc::clone(ride), since_ns, connected_ns: Cell::new(now_ns()), pause }
    }

    /// An answer came.
    pub fn answered(&self) {
        self.since_ns.set(None);
        self.pause.set(PAUSE_MIN);
    }

    /// Connects again after `why`, however often that takes.
    ///
    /// # Errors
    /// `why`, if a broker may not be away or is for too long, or if the run ends.
    pub async fn reconnect(
        &self,
        reactor: &Reactor,
        control: &Control,
        address: &str,
        why: BenchError,
    ) -> Result<Stream, BenchError> {
        let Some(patience) = self.ride.patience else { return Err(why) };
        let began_ns = now_ns();
        if began_ns.saturating_sub(self.connected_ns.get()) > SETTLED.as_nanos() as u64 {
            self.answered();
        }
        let since_ns = self.since_ns.get().unwrap_or(began_ns);
        self.since_ns.set(Some(since_ns));
        let give_up_ns = since_ns.saturating_add(patience.as_nanos() as u64);
        self.ride.leave();
        let outcome = loop {
            if control.is_stopping() {
                break Err(why);
            }
            if now_ns() > give_up_ns {
                let what = format!("was away for more than {} s", patience.as_secs_f64());
                break Err(BenchError::Lost { address: address.to_owned(), what });
            }
            let pause = self.pause.get();
            self.pause.set(PAUSE_MAX.min(pause * 2));
            reactor.sleep(pause).await;
            match connect(reactor, address).await {
                Ok(stream) => break Ok(stream),
                Err(BenchError::Interrupted) => break Err(BenchError::Interrupted),
                Err(_) => {}
            }
        };
        self.ride.arrive();
        self.connected_ns.set(now_ns());
        outcome
    }
}

/// Does `work` again while it fails as calls to a broker that is away do, for as long as that may be.
///
/// # Errors
/// It failed for good.
pub async fn insist<T, F: Future<Output = Result<T, BenchError>>>(
    reactor: &Reactor,
    ride: &Ride,
    control: &Control,
    mut work: impl FnMut() -> F,
) -> Result<T, BenchError> {
    let give_up = ride.patience.map(|patience| reactor.now() + patience);
    loop {
        match work().await {
            Err(error) if is_absence(&error) && !control.has_failed() => {
                if give_up.is_none_or(|give_up| reactor.now() > give_up) {
                    return Err(error);
                }
                reactor.sleep(PAUSE_MIN * 5).await;
            }
            done => return done,
        }
    }
}

/// Whether this is how a broker that is away, or not all there yet, looks from here.
pub const fn is_absence(error: &BenchError) -> bool {
    match error {
        BenchError::Lost { .. }
        | BenchError::Unreachable { .. }
        | BenchError::NoKafka { .. }
        | BenchError::Silent { .. } => true,
        BenchError::Refused { code, .. } => is_passing(*code),
        BenchError::Setup(_)
        | BenchError::Answer { .. }
        | BenchError::Request { .. }
        | BenchError::Version { .. }
        | BenchError::NoTopic { .. }
        | BenchError::TooFast { .. }
        | BenchError::Interrupted
        | BenchError::PeerFailed { .. }
        | BenchError::Verify(_)
        | BenchError::Usage(_)
        | BenchError::File { .. }
        | BenchError::Peer { .. } => false,
    }
}

/// Refusals after which Kafka's producer and consumer ask again, as far as a broker that starts or stops gives them.
const fn is_passing(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::NotLeaderOrFollower
            | ErrorCode::LeaderNotAvailable
            | ErrorCode::UnknownTopicOrPartition
            | ErrorCode::UnknownTopicId
            | ErrorCode::UnknownLeaderEpoch
            | ErrorCode::RequestTimedOut
            | ErrorCode::NotEnoughReplicas
            | ErrorCode::NotEnoughReplicasAfterAppend
            | ErrorCode::KafkaStorageError
            | ErrorCode::CoordinatorLoadInProgress
            | ErrorCode::CoordinatorNotAvailable
            | ErrorCode::BrokerNotAvailable
    )
}
