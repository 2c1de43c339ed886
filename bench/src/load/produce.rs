//! The producing engine: lanes (connections) that send what is due.
//!
//! Holds: arrivals, requests in flight, what each answer means for the counts. Never touches: where bytes of batches come
//! from, when arrivals are due.
//!
//! **A broker that goes away** and may ([`Ride`]): requests that were open have no answer, so nobody knows whether they were
//! done. An idempotent producer sends them again, as they were, until they are answered; the broker must know them again. Without
//! idempotence they are left: sent again, they could rightly be there twice, and a broker that doubles records were not found out.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use corelog_net::wire::messages::{ProduceResponse, Response};
use corelog_net::wire::{ApiKey, ErrorCode, ResponseHeader};
use corelog_reactor::{Monotonic, Notify, Reactor, Stream};

use super::control::Control;
use super::heads::Heads;
use super::lane::{Flight, Lane, LaneState};
use super::ranges::Unanswered;
use super::recorder::{Answered, Recorder};
use super::ride::{Absence, Ride, is_absence};
use super::schedule::{Pace, Schedule};
use super::send_list::SendList;
use crate::client::cluster::{ProducerId, Topic};
use crate::client::reader::FrameReader;
use crate::error::BenchError;
use crate::measure::clock::{now_ns, unix_ms};
use crate::payload::spec::key;
use crate::payload::stamp::Stamp;
use crate::payload::template::{Fill, Producer, Template};

/// How many seconds' worth of arrivals may wait before the rate is called impossible.
const BEHIND_S_MAX: f64 = 10.0;
/// Arrivals that may wait in any case.
const BEHIND_MIN: u64 = 100_000;

/// How load is produced.
pub struct ProducePlan {
    /// Where to.
    pub topic: Topic,
    /// Connections.
    pub lanes: usize,
    /// Requests that a connection may have open.
    pub in_flight: usize,
    /// 0, 1, or -1 for all.
    pub acks: i16,
    /// One for each lane, if producers are idempotent.
    pub producers: Option<Vec<ProducerId>>,
    /// When arrivals are due.
    pub pace: Pace,
    /// `Some`: records arrive one by one and gather in a batch for this long at most. `None`: whole batches arrive.
    pub linger: Option<Duration>,
    /// Records carry stamps, made for each send.
    pub stamped: bool,
    /// Distinct keys: each record of each batch gets one by chance.
    pub keys: Option<u64>,
    /// Contents, used in turn.
    pub templates: Vec<Template>,
    /// The version of Produce.
    pub version: i16,
    /// `timeout.ms` of the requests.
    pub timeout_ms: i32,
    /// Seed of the schedule.
    pub seed: u64,
    /// Whether the broker may go away and come back.
    pub ride: Rc<Ride>,
    /// Where records go that are never answered.
    pub unanswered: Unanswered,
}

/// The engine.
pub struct Producing {
    plan: ProducePlan,
    heads: Heads,
    reactor: Reactor,
    control: Rc<Control>,
    recorder: Rc<RefCell<Recorder>>,
    batch_records: usize,
    lanes: RefCell<Vec<Rc<Lane>>>,
    behind: Cell<u64>,
    finishing: Cell<bool>,
    /// The schedule waits here for its next arrival, or the end.
    ended: Notify,
    open: Cell<usize>,
    /// What the broker refused for good, where that ends the sending and not the run.
    refusal: RefCell<Option<BenchError>>,
}

enum Filled {
    Something,
    /// Nothing to send; perhaps at that time.
    Nothing(Option<u64>),
    Finished,
}

impl Producing {
    /// Prepares the engine; nothing is sent before [`Self::start`].
    ///
    /// # Errors
    /// The requests can't be written.
    pub fn new(
        plan: ProducePlan,
        reactor: &Reactor,
        control: &Rc<Control>,
        recorder: &Rc<RefCell<Recorder>>,
    ) -> Result<Rc<Self>, BenchError> {
        let heads = Heads::new(&plan.topic, plan.version, plan.acks, plan.timeout_ms)?;
        let batch_records = plan.templates.iter().map(Template::records).min().unwrap_or(1);
        if plan.stamped && !plan.templates.iter().all(Template::has_room_for_stamps) {
            return Err(BenchError::Usage("records are too small for stamps".into()));
        }
        Ok(Rc::new(Self {
            plan,
            heads,
            reactor: reactor.clone(),
            control: Rc::clone(control),
            recorder: Rc::clone(recorder),
            batch_records,
            lanes: RefCell::default(),
            behind: Cell::new(0),
            finishing: Cell::new(false),
            ended: Notify::new(),
            open: Cell::new(0),
            refusal: RefCell::default(),
        }))
    }

    /// Records of a full batch.
    pub const fn batch_records(&self) -> usize {
        self.batch_records
    }

    /// Starts sending on `streams`, one for each lane; the schedule begins at `start_ns`.
    pub fn start(self: &Rc<Self>, streams: Vec<Stream>, start_ns: u64) {
        let partitions = self.plan.topic.partitions;
        let lanes = streams.len();
        for (number, stream) in streams.into_iter().enumerate() {
            let state = LaneState::new(number, lanes, partitions, self.plan.seed);
            let lane = Rc::new(Lane::new(number, stream, Absence::new(&self.plan.ride), state));
            self.lanes.borrow_mut().push(Rc::clone(&lane));
            self.start_sender(&lane);
            if self.plan.acks != 0 {
                let engine = Rc::clone(self);
                self.spawn(async move { engine.receive(&lane).await });
            }
        }
        let each = if self.plan.linger.is_some() { 1 } else { self.batch_records };
        if let Some(schedule) = Schedule::new(self.plan.pace, each, start_ns, self.plan.seed) {
            let engine = Rc::clone(self);
            self.spawn(async move { engine.arrive(schedule, start_ns).await });
        }
    }

    fn start_sender(self: &Rc<Self>, lane: &Rc<Lane>) {
        let (engine, lane) = (Rc::clone(self), Rc::clone(lane));
        lane.sending.set(true);
        self.spawn(async move {
            engine.send(&lane).await;
            lane.sending.set(false);
            lane.sender_left.notify();
        });
    }

    /// No more arrivals: lanes finish what is due, while readers go on.
    pub fn finish(&self) {
        self.finishing.set(true);
        self.wake_all();
    }

    /// Lets every lane look at what there is to do.
    pub fn wake_all(&self) {
        self.lanes.borrow().iter().for_each(|lane| lane.wake.notify());
        if self.is_finishing() {
            self.ended.notify();
        }
    }

    /// No answer is waited for any more: what was due and has none counts with its age.
    pub fn give_up(&self, now: u64) {
        let each = if self.plan.linger.is_some() { 1 } else { self.batch_records as u64 };
        let mut recorder = self.recorder.borrow_mut();
        for lane in self.lanes.borrow().iter() {
            let state = lane.state.borrow();
            state.arrivals.iter().for_each(|due| recorder.gave_up(*due, now, each));
            state.flights.iter().for_each(|flight| self.note_unanswered(lane, flight));
        }
    }

    fn note_unanswered(&self, lane: &Lane, flight: &Flight) {
        self.plan.unanswered.add(flight.partition as u32, lane.number as u32, flight.sequences());
    }

    /// The rate that was asked for, if records that were due are still not sent: it was too high.
    pub fn rate_not_kept(&self) -> Option<f64> {
        self.plan.pace.rate().filter(|_| self.behind.get() > 0)
    }

    /// Tasks that have not ended.
    pub const fn open(&self) -> usize {
        self.open.get()
    }

    /// Whether no more is sent than what is due.
    pub fn is_finishing(&self) -> bool {
        self.finishing.get() || self.control.is_stopping()
    }

    /// Ends what is still open.
    pub fn abort(&self) {
        self.lanes.borrow().iter().for_each(|lane| lane.stream().shutdown());
        self.wake_all();
    }

    /// Records sent, by lane and partition: answered, but for those in the plan's `unanswered`.
    pub fn sent(&self) -> Vec<Vec<u64>> {
        self.lanes.borrow().iter().map(|lane| lane.state.borrow().sequences.clone()).collect()
    }

    /// What the broker refused for good, if that ended the sending and not the run.
    pub fn take_refusal(&self) -> Option<BenchError> {
        self.refusal.borrow_mut().take()
    }

    /// Arrivals that were due and are not sent.
    pub const fn behind(&self) -> u64 {
        self.behind.get()
    }

    fn spawn(self: &Rc<Self>, task: impl Future<Output = ()> + 'static) {
        let engine = Rc::clone(self);
        self.open.set(self.open.get() + 1);
        let started = self.reactor.spawn(async move {
            task.await;
            engine.open.set(engine.open.get() - 1);
        });
        if started.is_err() {
            self.open.set(self.open.get() - 1);
            self.control.fail(BenchError::Setup("more connections than this tool has tasks for".into()));
        }
    }

    /// Hands arrivals to the lanes in turn, when they are due.
    async fn arrive(self: &Rc<Self>, mut schedule: Schedule, start_ns: u64) {
        let lanes = self.lanes.borrow().clone();
        let each = if self.plan.linger.is_some() { 1 } else { self.batch_records as u64 };
        let rate = self.plan.pace.rate().unwrap_or(0.0);
        // What is due while the broker is away waits for it.
        let away_s = self.plan.ride.patience().map_or(0.0, |patience| patience.as_secs_f64());
        let behind_max = BEHIND_MIN.max((rate * (BEHIND_S_MAX + away_s)) as u64);
        let mut next = 0;
        while !self.is_finishing() {
            let now = now_ns();
            while schedule.peek() <= now {
                let lane = &lanes[next];
                next = if next + 1 == lanes.len() { 0 } else { next + 1 };
                lane.state.borrow_mut().arrivals.push_back(schedule.pop());
                lane.wake.notify();
                self.behind.set(self.behind.get() + each);
            }
            if self.behind.get() > behind_max {
                let seconds = (now - start_ns) as f64 / 1e9;
                self.control.fail(BenchError::TooFast { rate, behind: self.behind.get(), seconds });
                break;
            }
            let _ = self.reactor.until(Monotonic::from_nanos(schedule.peek()), self.ended.notified()).await;
        }
        self.wake_all();
    }

    async fn send(self: &Rc<Self>, lane: &Lane) {
        let stream = lane.stream();
        let mut list = SendList::default();
        if let Err(error) = self.write_again(lane, &mut list) {
            return self.control.fail(error);
        }
        loop {
            list.close();
            while !list.is_empty() {
                let (sent, back) = stream.send(list).await;
                list = back;
                match sent {
                    Ok(count) => list.advance(count),
                    // Who receives sees the end, too, and says what comes of it.
                    Err(_) if self.plan.acks != 0 && self.plan.ride.patience().is_some() => return stream.shutdown(),
                    Err(error) => return self.lost(format!("failed ({error})")),
                }
            }
            if self.plan.acks == 0 {
                self.settle_unacknowledged(lane);
            }
            loop {
                if lane.broken.get() {
                    return;
                }
                match self.fill(lane, &mut list) {
                    Ok(Filled::Something) => break,
                    Ok(Filled::Nothing(until)) => {
                        let until = until.map_or(Monotonic::MAX, Monotonic::from_nanos);
                        let _ = self.reactor.until(until, lane.wake.notified()).await;
                    }
                    Ok(Filled::Finished) => {
                        // The receiver ends with the connection, once the last answer is in.
                        if lane.state.borrow().flights.is_empty() {
                            return stream.shutdown();
                        }
                        lane.wake.notified().await;
                    }
                    Err(error) => return self.control.fail(error),
                }
            }
        }
    }

    /// Writes what was open on the connection before this one, in its order.
    fn write_again(&self, lane: &Lane, list: &mut SendList) -> Result<(), BenchError> {
        let state = &mut *lane.state.borrow_mut();
        let mut arrivals_before = 0;
        for at in 0..state.flights.len() {
            let Some(mut flight) = state.flights.get(at).copied() else { break };
            flight.correlation = state.next_correlation;
            state.next_correlation = flight.correlation.wrapping_add(1);
            self.encode(lane.number, state, list, &mut flight, arrivals_before)?;
            arrivals_before += flight.arrivals;
            if let Some(place) = state.flights.get_mut(at) {
                *place = flight;
            }
        }
        Ok(())
    }

    /// Writes requests for what is due, as many as may be in flight.
    fn fill(&self, lane: &Lane, list: &mut SendList) -> Result<Filled, BenchError> {
        let state = &mut *lane.state.borrow_mut();
        let mut any = false;
        while state.flights.len() < self.plan.in_flight && !self.control.has_failed() {
            let now = now_ns();
            let due = state.arrivals.len() - state.sent;
            let (arrivals, records) = match (self.plan.pace, self.plan.linger) {
                (Pace::Unlimited, _) => {
                    if self.is_finishing() {
                        break;
                    }
                    state.arrivals.push_back(now);
                    (1, self.batch_records)
                }
                (_, None) => (due.min(1), self.batch_records),
                (_, Some(linger)) => {
                    let records = due.min(self.batch_records);
                    let ready = state.arrivals.get(state.sent).map(|first| first + linger.as_nanos() as u64);
                    match ready {
                        Some(ready) if records < self.batch_records && ready > now && !self.is_finishing() => {
                            return Ok(if any { Filled::Something } else { Filled::Nothing(Some(ready)) });
                        }
                        _ => (records, records),
                    }
                }
            };
            if arrivals == 0 {
                break;
            }
            self.write(lane.number, state, list, arrivals, records, now)?;
            any = true;
        }
        Ok(match any {
            true => Filled::Something,
            false if self.is_finishing() && state.arrivals.len() == state.sent => Filled::Finished,
            false => Filled::Nothing(None),
        })
    }

    fn write(
        &self,
        lane: usize,
        state: &mut LaneState,
        list: &mut SendList,
        arrivals: usize,
        records: usize,
        now: u64,
    ) -> Result<(), BenchError> {
        let partition = state.next_partition;
        state.next_partition = if partition + 1 == self.plan.topic.partitions { 0 } else { partition + 1 };
        let template = state.next_template;
        state.next_template = template.wrapping_add(1);
        let first = state.sequences[partition];
        state.sequences[partition] = first + records as u64;
        let correlation = state.next_correlation;
        state.next_correlation = correlation.wrapping_add(1);
        let mut flight =
            Flight { correlation, partition, template, first, records, batch_bytes: 0, arrivals, sent_ns: now };
        let sent = state.sent;
        self.encode(lane, state, list, &mut flight, sent)?;
        state.sent += arrivals;
        state.flights.push_back(flight);
        if self.plan.pace != Pace::Unlimited {
            self.behind.set(self.behind.get().saturating_sub(records as u64));
        }
        Ok(())
    }

    /// Writes the request of `flight`, whose arrivals follow `arrivals_before` others.
    fn encode(
        &self,
        lane: usize,
        state: &mut LaneState,
        list: &mut SendList,
        flight: &mut Flight,
        arrivals_before: usize,
    ) -> Result<(), BenchError> {
        let Flight { correlation, partition, first, records, arrivals, sent_ns, .. } = *flight;
        let template = &self.plan.templates[flight.template % self.plan.templates.len()];
        let producer = self.plan.producers.as_ref().and_then(|producers| producers.get(lane));
        // Sequences wrap at 2^31, as Kafka's do.
        let producer = producer.map_or(Producer::NONE, |producer| Producer {
            id: producer.id,
            epoch: producer.epoch,
            sequence: (first % (1 << 31)) as i32,
        });
        flight.batch_bytes = if self.plan.stamped || self.plan.keys.is_some() {
            let mut batch = list.take_spare();
            let due = &state.arrivals;
            let stamp = |index: usize| Stamp {
                producer: lane as u32,
                sequence: first + index as u64,
                at_ns: due.get(arrivals_before + index.min(arrivals - 1)).copied().unwrap_or(sent_ns),
            };
            let fill = |index| Fill {
                key: self.plan.keys.map(|keys| key(state.random.below(keys))),
                stamp: self.plan.stamped.then(|| stamp(index)),
            };
            template.written(records, producer, unix_ms(), fill, &mut state.scratch, &mut batch)?;
            let bytes = batch.len();
            let tail = self.heads.write(partition, bytes, correlation, list.head());
            list.owned(batch);
            list.head().extend_from_slice(tail);
            bytes
        } else {
            let piece = template.piece(records)?;
            let bytes = piece.batch_bytes();
            let tail = self.heads.write(partition, bytes, correlation, list.head());
            list.head().extend_from_slice(&piece.header(producer, unix_ms()));
            list.shared(piece);
            list.head().extend_from_slice(tail);
            bytes
        };
        Ok(())
    }

    /// Receives answers, on this connection and those that come in its place.
    async fn receive(self: &Rc<Self>, lane: &Rc<Lane>) {
        loop {
            let stream = lane.stream();
            let why = self.receive_on(lane, &stream).await;
            if self.has_all(lane) || self.control.has_failed() {
                return;
            }
            stream.shutdown();
            lane.broken.set(true);
            lane.wake.notify();
            while lane.sending.get() {
                lane.sender_left.notified().await;
            }
            let rides = self.plan.ride.patience().is_some();
            let ends_sending = rides && !is_absence(&why);
            if ends_sending || (rides && self.plan.producers.is_none()) {
                self.leave_open_requests(lane);
            }
            if ends_sending {
                self.refusal.borrow_mut().get_or_insert(why);
                return self.finish();
            }
            if self.has_all(lane) {
                return;
            }
            match lane.absence.reconnect(&self.reactor, &self.control, &self.plan.topic.leader, why).await {
                Ok(stream) => lane.renew(stream),
                Err(error) => {
                    self.control.fail(error);
                    return self.wake_all();
                }
            }
            self.start_sender(lane);
        }
    }

    /// Whether everything that was due has its answer, and nothing more will be.
    fn has_all(&self, lane: &Lane) -> bool {
        self.is_finishing() && lane.state.borrow().arrivals.is_empty()
    }

    /// Receives answers until the connection is of no use any more; returns why.
    async fn receive_on(self: &Rc<Self>, lane: &Lane, stream: &Stream) -> BenchError {
        let mut reader = FrameReader::default();
        loop {
            let frame = match reader.next(stream, &self.reactor).await {
                Ok(frame) => frame,
                Err(what) => return self.lost_error(what),
            };
            let now = now_ns();
            let Some(flight) = lane.state.borrow().flights.front().copied() else {
                return self.lost_error("answered what was not asked".into());
            };
            if let Err(error) = self.check(frame, flight) {
                return error;
            }
            lane.state.borrow_mut().flights.pop_front();
            lane.absence.answered();
            self.settle(lane, flight, now);
            lane.wake.notify();
        }
    }

    /// What is open stays without an answer.
    fn leave_open_requests(&self, lane: &Lane) {
        let state = &mut *lane.state.borrow_mut();
        let (now, mut recorder) = (now_ns(), self.recorder.borrow_mut());
        for flight in state.flights.drain(..) {
            self.note_unanswered(lane, &flight);
            let each = (flight.records / flight.arrivals.max(1)) as u64;
            state.arrivals.drain(..flight.arrivals).for_each(|due| recorder.gave_up(due, now, each));
            state.sent -= flight.arrivals;
        }
    }

    fn check(&self, frame: &[u8], flight: Flight) -> Result<(), BenchError> {
        let answer = |error| BenchError::Answer { api: "Produce", error };
        let (header, body) = ResponseHeader::decode(frame, ApiKey::Produce, self.heads.version).map_err(answer)?;
        if header.correlation_id != flight.correlation {
            return Err(self.lost_error("answered out of order".into()));
        }
        let response = ProduceResponse::decode_body(body, self.heads.version).map_err(answer)?;
        let partition = response.responses.first().and_then(|topic| topic.partition_responses.first());
        match partition {
            Some(answer) if answer.error_code == ErrorCode::None => Ok(()),
            // Sent again, it was there already, and too long ago for its offset to be known: as good an answer.
            Some(answer)
                if answer.error_code == ErrorCode::DuplicateSequenceNumber && self.plan.ride.patience().is_some() =>
            {
                Ok(())
            }
            Some(answer) => Err(BenchError::Refused {
                what: format!("producing to {} partition {}", self.plan.topic.name, flight.partition),
                code: answer.error_code,
                detail: match answer.error_code {
                    ErrorCode::MessageTooLarge => Some(
                        "a batch is larger than the topic's max.message.bytes: ask for less with --batch-bytes (or \
                         --record-bytes), or for a larger one with --topic-config"
                            .into(),
                    ),
                    _ => answer.error_message.map(str::to_owned),
                },
            }),
            None => Err(self.lost_error("answered for no partition".into())),
        }
    }

    fn settle(&self, lane: &Lane, flight: Flight, now: u64) {
        let state = &mut *lane.state.borrow_mut();
        let mut recorder = self.recorder.borrow_mut();
        let each = (flight.records / flight.arrivals.max(1)) as u64;
        for due in state.arrivals.drain(..flight.arrivals) {
            recorder.latency(due, now, each);
        }
        state.sent -= flight.arrivals;
        let (records, bytes) = (flight.records as u64, flight.batch_bytes as u64);
        recorder.answered(Answered { now_ns: now, sent_ns: flight.sent_ns, records, bytes });
    }

    fn settle_unacknowledged(&self, lane: &Lane) {
        let now = now_ns();
        loop {
            let Some(flight) = lane.state.borrow_mut().flights.pop_front() else { return };
            self.settle(lane, flight, now);
        }
    }

    fn lost_error(&self, what: String) -> BenchError {
        BenchError::Lost { address: self.plan.topic.leader.clone(), what }
    }

    fn lost(&self, what: String) {
        self.control.fail(self.lost_error(what));
        self.wake_all();
    }
}
