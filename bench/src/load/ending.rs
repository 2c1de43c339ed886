//! How a verifying run ends: the last answers, then all of it read.
//!
//! Holds: what is waited for, and what the readings come to together. Never touches: how records are sent or checked.
//!
//! A reader follows while records are sent: it must never be shown what later isn't there. Where the broker may go away and come
//! back, that reader alone would prove too little: what it has read can be lost after it. So everything is read once more at
//! the end.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use corelog_reactor::Reactor;

use super::check::Check;
use super::consume::{ConsumePlan, Consuming, Look};
use super::control::Control;
use super::produce::Producing;
use super::ranges::Unanswered;
use super::recorder::{Recorder, Window};
use super::ride::{Ride, insist};
use crate::client::cluster::{Cluster, LATEST, Topic};
use crate::error::BenchError;
use crate::interrupt::is_interrupted;
use crate::measure::clock::{now_ns, unix_ms};

/// How long answers may take after the last arrival, and readers to get on.
pub const DRAIN_S_MAX: u64 = 60;
/// How often the end of the drain is looked for.
pub const DRAIN_LOOK: Duration = Duration::from_millis(5);

/// What is there at the end of a verifying run.
pub struct Ending<'a> {
    /// The run's thread.
    pub reactor: &'a Reactor,
    /// A broker.
    pub bootstrap: &'a str,
    /// What was written to.
    pub topic: &'a Topic,
    /// The run's.
    pub control: &'a Rc<Control>,
    /// Whether the broker may go away.
    pub ride: &'a Ride,
    /// Who sends.
    pub producing: &'a Rc<Producing>,
    /// Who follows.
    pub following: &'a Consuming,
    /// What the one who follows has found.
    pub check: &'a RefCell<Check>,
    /// Where the run began in each partition.
    pub starts: &'a [i64],
}

impl Ending<'_> {
    /// Stops producing, waits for the last answers, then for the reader that follows to have read all of it. Where the broker may
    /// go away, all of it is read again as `plan` says: what that found is returned, if it came to its end.
    pub async fn verify(&self, plan: Option<ConsumePlan>, unanswered: &Unanswered) -> Option<Rc<RefCell<Check>>> {
        self.producing.finish();
        let give_up = self.patience_ends_ns();
        while self.producing.open() > 0 && now_ns() < give_up && !self.control.has_failed() {
            self.reactor.sleep(DRAIN_LOOK).await;
        }
        let found = insist(self.reactor, self.ride, self.control, || async {
            Cluster::connect(self.reactor, self.bootstrap).await?.offsets(self.topic, LATEST).await
        });
        let ends = match found.await {
            Ok(ends) => ends,
            Err(error) => {
                self.control.fail(error);
                return None;
            }
        };
        let is_at_end = || self.check.borrow().is_at(self.starts, &ends) || self.following.reading() == 0;
        self.wait(self.check, is_at_end).await;
        let again = Rc::new(RefCell::new(Check::new(unanswered)));
        let plan = ConsumePlan { until: Some(ends.clone()), look: Look::Verify(Rc::clone(&again)), ..plan? };
        if let Err(error) = self.read_again(plan, &again).await {
            self.control.fail(error);
        }
        (!self.control.has_failed()).then_some(again)
    }

    async fn read_again(&self, plan: ConsumePlan, check: &RefCell<Check>) -> Result<(), BenchError> {
        let mut streams = Vec::with_capacity(plan.assignments.len());
        for _ in &plan.assignments {
            let connect = || crate::client::rpc::connect(self.reactor, &self.topic.leader);
            streams.push(insist(self.reactor, self.ride, self.control, connect).await?);
        }
        // Its figures are nobody's.
        let window = Window { from_ns: u64::MAX, to_ns: u64::MAX };
        let recorder = Rc::new(RefCell::new(Recorder::new(window, unix_ms())?));
        let reading = Consuming::new(plan, self.reactor, self.control, &recorder);
        reading.start(streams);
        if !self.wait(check, || reading.reading() == 0).await {
            reading.abort();
            return Err(BenchError::Silent { api: "Fetch", seconds: DRAIN_S_MAX });
        }
        Ok(())
    }

    /// Waits for `is_done`, as long as records come or the run fails; whether it was.
    async fn wait(&self, check: &RefCell<Check>, is_done: impl Fn() -> bool) -> bool {
        let (mut seen, mut give_up) = (0, self.patience_ends_ns());
        while !is_done() && !self.control.has_failed() {
            if is_interrupted() {
                self.control.fail(BenchError::Interrupted);
            }
            let records = check.borrow().records;
            if records > seen {
                (seen, give_up) = (records, self.patience_ends_ns());
            } else if now_ns() > give_up {
                return false;
            }
            self.reactor.sleep(DRAIN_LOOK).await;
        }
        true
    }

    fn patience_ends_ns(&self) -> u64 {
        let away = self.ride.patience().unwrap_or_default().as_nanos() as u64;
        now_ns().saturating_add(DRAIN_S_MAX * 1_000_000_000).saturating_add(away)
    }
}

/// What the readings came to: the last one, which saw everything, has the word, unless only the one that followed has something to say.
///
/// # Errors
/// What is wrong, in words.
pub fn verdict(
    followed: &Check,
    again: Option<&Check>,
    sent: &[Vec<u64>],
    ride: &Ride,
    refusal: Option<&BenchError>,
) -> Result<String, String> {
    let first = followed.verdict(sent);
    let verdict = match again.map(|again| again.verdict(sent)) {
        None => first,
        Some(Err(found)) => Err(found),
        Some(Ok(counts)) => match first {
            Ok(_) => Ok(counts),
            Err(found) => Err(format!("at the end {counts}\n  but while records were sent {found}")),
        },
    };
    let (times, seconds) = ride.total();
    let away =
        if times > 0 { format!("the broker was away {times} times, {seconds:.1} s in all; ") } else { String::new() };
    match verdict {
        Ok(counts) => Ok(format!("{away}{counts}")),
        Err(found) => {
            let refusal = refusal.map(|refusal| format!("\n  {refusal}")).unwrap_or_default();
            Err(format!("{away}{found}{refusal}"))
        }
    }
}
