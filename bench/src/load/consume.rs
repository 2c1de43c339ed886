//! The consuming engine: connections that fetch, one request open on each, as consumers do.
//!
//! Holds: offsets, fetch requests, what each answer brought. Never touches: groups; partitions are assigned.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bytes::BytesMut;
use corelog_net::wire::messages::{FetchPartition, FetchRequest, FetchResponse, FetchTopic, Response};
use corelog_net::wire::{ApiKey, ErrorCode, LazyArray, Records as Bytes, Request, ResponseHeader};
use corelog_reactor::{Reactor, Stream};
use corelog_storage::batch::{Batches, Compression, DecompressScratch, Records, decompress_all};

use super::check::Check;
use super::control::Control;
use super::recorder::{Answered, Recorder};
use super::ride::{Absence, Ride, is_absence};
use crate::client::cluster::Topic;
use crate::client::reader::FrameReader;
use crate::client::rpc::CLIENT_ID;
use crate::error::BenchError;
use crate::measure::clock::now_ns;
use crate::payload::stamp::Stamp;

/// Most bytes that a batch may decompress to.
const DECOMPRESSED_BYTES_MAX: u64 = 1 << 30;

/// What is looked at in what arrives.
#[derive(Clone)]
pub enum Look {
    /// Batch headers: how many records, how many bytes.
    Count,
    /// Each record's stamp: how long since it was due.
    Time,
    /// Each record whole: nothing lost, doubled, damaged or out of order.
    Verify(Rc<RefCell<Check>>),
}

/// How load is consumed.
#[derive(Clone)]
pub struct ConsumePlan {
    /// Where from.
    pub topic: Topic,
    /// For each connection, the partitions it reads and the offsets it starts from.
    pub assignments: Vec<Vec<(usize, i64)>>,
    /// Where reading ends, for each partition; `None` reads on.
    pub until: Option<Vec<i64>>,
    /// Begins again when all of it is read.
    pub again: bool,
    /// `fetch.max.wait.ms`.
    pub wait_ms_max: i32,
    /// `fetch.min.bytes`.
    pub min_bytes: i32,
    /// `fetch.max.bytes`.
    pub max_bytes: i32,
    /// `max.partition.fetch.bytes`.
    pub partition_max_bytes: i32,
    /// 1 for committed records only.
    pub isolation: i8,
    /// What is looked at.
    pub look: Look,
    /// The version of Fetch.
    pub version: i16,
    /// Whether the broker may go away and come back.
    pub ride: Rc<Ride>,
}

/// The engine.
pub struct Consuming {
    plan: ConsumePlan,
    reactor: Reactor,
    control: Rc<Control>,
    recorder: Rc<RefCell<Recorder>>,
    streams: RefCell<Vec<Rc<Stream>>>,
    reading: Cell<usize>,
}

/// One connection's state.
struct Reader {
    partitions: Vec<FetchPartition>,
    scratch: DecompressScratch,
    next_correlation: i32,
}

impl Consuming {
    /// Prepares the engine.
    pub fn new(
        plan: ConsumePlan,
        reactor: &Reactor,
        control: &Rc<Control>,
        recorder: &Rc<RefCell<Recorder>>,
    ) -> Rc<Self> {
        Rc::new(Self {
            plan,
            reactor: reactor.clone(),
            control: Rc::clone(control),
            recorder: Rc::clone(recorder),
            streams: RefCell::default(),
            reading: Cell::new(0),
        })
    }

    /// Starts fetching on `streams`, one for each assignment.
    pub fn start(self: &Rc<Self>, streams: Vec<Stream>) {
        for (stream, assigned) in streams.into_iter().zip(self.plan.assignments.clone()) {
            let stream = Rc::new(stream);
            let number = self.streams.borrow().len();
            self.streams.borrow_mut().push(Rc::clone(&stream));
            let engine = Rc::clone(self);
            self.reading.set(self.reading.get() + 1);
            let started = self.reactor.spawn(async move {
                engine.read(number, stream, &assigned).await;
                engine.reading.set(engine.reading.get() - 1);
            });
            if started.is_err() {
                self.reading.set(self.reading.get() - 1);
                self.control.fail(BenchError::Setup("more connections than this tool has tasks for".into()));
            }
        }
    }

    /// Connections that have not reached their end.
    pub const fn reading(&self) -> usize {
        self.reading.get()
    }

    /// Ends what is still open: a long poll may take its time.
    pub fn abort(&self) {
        self.streams.borrow().iter().for_each(|stream| stream.shutdown());
    }

    async fn read(&self, number: usize, mut stream: Rc<Stream>, assigned: &[(usize, i64)]) {
        let absence = Absence::new(&self.plan.ride);
        let partition = |(partition, offset): &(usize, i64)| FetchPartition {
            partition: *partition as i32,
            fetch_offset: *offset,
            partition_max_bytes: self.plan.partition_max_bytes,
            ..FetchPartition::default()
        };
        let all: Vec<FetchPartition> = assigned.iter().map(partition).collect();
        let mut reader = Reader { partitions: all.clone(), scratch: DecompressScratch::new(), next_correlation: 0 };
        let mut frames = FrameReader::default();
        while !self.control.is_stopping() {
            if let Some(until) = &self.plan.until {
                let open = |partition: &FetchPartition| partition.fetch_offset < until[partition.partition as usize];
                reader.partitions.retain(open);
                if reader.partitions.is_empty() {
                    if !self.plan.again {
                        return;
                    }
                    reader.partitions.clone_from(&all);
                }
            }
            if reader.partitions.is_empty() {
                return;
            }
            let why = match self.fetch(&stream, &mut frames, &mut reader).await {
                Ok(()) => {
                    absence.answered();
                    continue;
                }
                Err(why) => why,
            };
            stream.shutdown();
            let again = match is_absence(&why) {
                true => absence.reconnect(&self.reactor, &self.control, &self.plan.topic.leader, why).await,
                false => Err(why),
            };
            match again {
                Ok(again) => {
                    (stream, frames) = (Rc::new(again), FrameReader::default());
                    if let Some(place) = self.streams.borrow_mut().get_mut(number) {
                        *place = Rc::clone(&stream);
                    }
                }
                Err(error) => {
                    // A stop closes the connection under a long poll: no failure of the broker's.
                    if !self.control.is_stopping() {
                        self.control.fail(error);
                    }
                    return;
                }
            }
        }
    }

    async fn fetch(&self, stream: &Stream, frames: &mut FrameReader, reader: &mut Reader) -> Result<(), BenchError> {
        let lost = |what: String| BenchError::Lost { address: self.plan.topic.leader.clone(), what };
        reader.next_correlation = reader.next_correlation.wrapping_add(1);
        let mut frame = self.request(reader)?;
        let sent_ns = now_ns();
        while !frame.is_empty() {
            let (sent, back) = stream.send(frame).await;
            let sent = sent.map_err(|error| lost(format!("failed ({error})")))?;
            frame = back.slice(sent..);
        }
        let answer = frames.next(stream, &self.reactor).await.map_err(lost)?;
        self.take(answer, reader, sent_ns)
    }

    fn request(&self, reader: &Reader) -> Result<bytes::Bytes, BenchError> {
        let topics = [FetchTopic {
            topic: &self.plan.topic.name,
            topic_id: self.plan.topic.id,
            partitions: LazyArray::from_slice(&reader.partitions),
        }];
        let request = FetchRequest {
            max_wait_ms: self.plan.wait_ms_max,
            min_bytes: self.plan.min_bytes,
            max_bytes: self.plan.max_bytes,
            isolation_level: self.plan.isolation,
            topics: LazyArray::from_slice(&topics),
            ..FetchRequest::default()
        };
        let encoded =
            request.encode_frame(BytesMut::new(), self.plan.version, reader.next_correlation, Some(CLIENT_ID));
        Ok(encoded.map_err(|error| BenchError::Request { api: "Fetch", error })?.head.freeze())
    }

    fn take(&self, frame: &[u8], reader: &mut Reader, sent_ns: u64) -> Result<(), BenchError> {
        let now = now_ns();
        let answer = |error| BenchError::Answer { api: "Fetch", error };
        let (header, body) = ResponseHeader::decode(frame, ApiKey::Fetch, self.plan.version).map_err(answer)?;
        if header.correlation_id != reader.next_correlation {
            let what = "answered out of order".into();
            return Err(BenchError::Lost { address: self.plan.topic.leader.clone(), what });
        }
        let response = FetchResponse::decode_body(body, self.plan.version).map_err(answer)?;
        let refused = |what: String, code| BenchError::Refused { what, code, detail: None };
        if response.error_code != ErrorCode::None {
            return Err(refused(format!("fetching from {}", self.plan.topic.name), response.error_code));
        }
        let (mut records, mut bytes) = (0, 0);
        for partition in response.responses.iter().flat_map(|topic| &topic.partitions) {
            if partition.error_code == ErrorCode::OffsetOutOfRange
                && let (Look::Verify(check), Some(_)) = (&self.plan.look, self.plan.ride.patience())
            {
                self.leave(partition.partition_index, reader, check);
                continue;
            }
            if partition.error_code != ErrorCode::None {
                let what = format!("fetching from {} partition {}", self.plan.topic.name, partition.partition_index);
                return Err(refused(what, partition.error_code));
            }
            let Bytes::Inline(batches) = partition.records else { continue };
            let wanted = reader.partitions.iter_mut().find(|wanted| wanted.partition == partition.partition_index);
            let Some(wanted) = wanted else { continue };
            let taken = self.take_batches(wanted, batches, &mut reader.scratch, now)?;
            records += taken.0;
            bytes += taken.1;
        }
        if records > 0 {
            self.recorder.borrow_mut().answered(Answered { now_ns: now, sent_ns, records, bytes });
        }
        Ok(())
    }

    /// What was read of a partition is no longer there: that is noted, and the partition not read on.
    fn leave(&self, partition: i32, reader: &mut Reader, check: &RefCell<Check>) {
        if let Some(at) = reader.partitions.iter().position(|one| one.partition == partition) {
            let left = reader.partitions.swap_remove(at);
            check.borrow_mut().cut_short(partition as u32, left.fetch_offset);
        }
    }

    fn take_batches(
        &self,
        wanted: &mut FetchPartition,
        batches: &[u8],
        scratch: &mut DecompressScratch,
        now: u64,
    ) -> Result<(u64, u64), BenchError> {
        let (mut records, mut bytes) = (0, 0);
        // The last batch may be cut by the limit on bytes: the walk ends there.
        for batch in Batches::new(batches).map_while(Result::ok) {
            let Some(last) = batch.header.last_offset() else { break };
            if last.0 < wanted.fetch_offset {
                continue;
            }
            match &self.plan.look {
                Look::Count => {}
                Look::Time | Look::Verify(_) if batch.header.attributes.is_control() => {}
                Look::Time => {
                    let mut recorder = self.recorder.borrow_mut();
                    each_value(&batch, scratch, |_, value| {
                        if let Some(due) = value.and_then(Stamp::due_ns) {
                            recorder.latency(due, now, 1);
                        }
                    })?;
                }
                Look::Verify(check) => {
                    if !batch.crc_ok() {
                        let at = batch.header.base_offset;
                        let text = format!("partition {}: bad CRC of the batch at {at}", wanted.partition);
                        return Err(BenchError::Verify(text));
                    }
                    let (mut check, mut recorder) = (check.borrow_mut(), self.recorder.borrow_mut());
                    let (partition, from) = (wanted.partition as u32, wanted.fetch_offset);
                    each_value(&batch, scratch, |offset, value| {
                        if offset >= from {
                            if let Some(due) = value.and_then(Stamp::due_ns) {
                                recorder.latency(due, now, 1);
                            }
                            check.record(partition, offset, value.and_then(Stamp::read));
                        }
                    })?;
                }
            }
            records += u64::from(batch.header.record_count.unsigned_abs());
            bytes += batch.bytes.len() as u64;
            wanted.fetch_offset = last.0 + 1;
        }
        Ok((records, bytes))
    }
}

fn each_value(
    batch: &corelog_storage::batch::BatchView<'_>,
    scratch: &mut DecompressScratch,
    mut each: impl FnMut(i64, Option<&[u8]>),
) -> Result<(), BenchError> {
    let bad = |what: String| BenchError::Verify(format!("batch at {}: {what}", batch.header.base_offset));
    let plain;
    let payload = match batch.header.attributes.compression() {
        Some(Compression::None) => batch.payload(),
        Some(codec) => {
            plain = decompress_all(codec, batch.payload(), DECOMPRESSED_BYTES_MAX, scratch)
                .map_err(|error| bad(error.to_string()))?;
            &plain
        }
        None => return Err(bad("unknown compression".into())),
    };
    for record in Records::new(&batch.header, payload) {
        let record = record.map_err(|error| bad(error.to_string()))?;
        each(record.offset.0, record.value);
    }
    Ok(())
}
