//! Holds: a librdkafka producer that sends numbered payloads and enters what is acknowledged into the ledger.
//! Never touches: what the broker stored.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message};
use rdkafka::producer::{BaseRecord, Producer, ProducerContext, ThreadedProducer};

use super::{Ledger, Source};

/// How to produce.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// `enable.idempotence`.
    pub idempotent: bool,
    /// `acks`.
    pub acks: &'static str,
    /// `compression.type`.
    pub compression: &'static str,
    /// `linger.ms`.
    pub linger_ms: u32,
    /// Payloads that may be under way at a time.
    pub queue_messages: u32,
}

impl Default for LoadOptions {
    fn default() -> LoadOptions {
        LoadOptions { idempotent: true, acks: "all", compression: "none", linger_ms: 2, queue_messages: 100_000 }
    }
}

/// The settings that all clients of these tests share: they must notice quickly that a broker is back.
pub fn client_config(bootstrap: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", bootstrap)
        .set("reconnect.backoff.ms", "10")
        .set("reconnect.backoff.max.ms", "100")
        .set("retry.backoff.ms", "20")
        .set("topic.metadata.refresh.fast.interval.ms", "50")
        .set("broker.address.family", "v4")
        // Connections break at every kill; that is not worth a line each.
        .set("log.connection.close", "false")
        .set("log_level", "2");
    config
}

/// Enters deliveries into the ledger.
struct Clerk {
    ledger: Arc<Ledger>,
}

impl ClientContext for Clerk {
    fn log(&self, level: rdkafka::config::RDKafkaLogLevel, facility: &str, message: &str) {
        // FAIL is a connection that broke or was refused, as they are at every kill.
        if facility != "FAIL" {
            eprintln!("librdkafka {level:?} {facility}: {message}");
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        // Brokers that are down come back; a fatal error is what the idempotent producer calls the end of its guarantees.
        if matches!(error.rdkafka_error_code(), Some(RDKafkaErrorCode::Fatal)) {
            self.ledger.fail(format!("the producer had a fatal error: {reason}"));
        }
    }
}

impl ProducerContext for Clerk {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, number: usize) {
        match result {
            Ok(message) => {
                let (partition, _) = self.ledger.place(number as u64);
                if message.partition() == partition as i32 {
                    self.ledger.acknowledge(number as u64, message.offset());
                } else {
                    self.ledger.fail(format!("payload {number} went to partition {}", message.partition()));
                }
            }
            Err((error, _)) => self.ledger.fail(format!("payload {number} was not delivered: {error}")),
        }
    }
}

/// A producer at work on one topic.
pub struct Load {
    producer: ThreadedProducer<Clerk>,
    ledger: Arc<Ledger>,
    source: Arc<dyn Source>,
    topic: String,
}

impl Load {
    /// A producer for `topic`, whose partitions are those of the ledger.
    pub fn new(
        bootstrap: &str,
        topic: &str,
        source: Arc<dyn Source>,
        ledger: Arc<Ledger>,
        options: &LoadOptions,
    ) -> Load {
        let mut config = client_config(bootstrap);
        config
            .set("acks", options.acks)
            .set("enable.idempotence", options.idempotent.to_string())
            .set("compression.type", options.compression)
            .set("linger.ms", options.linger_ms.to_string())
            .set("queue.buffering.max.messages", options.queue_messages.to_string())
            .set("message.timeout.ms", "600000")
            .set("request.timeout.ms", "30000");
        if !options.idempotent {
            config.set("max.in.flight.requests.per.connection", "1");
        }
        let producer = config.create_with_context(Clerk { ledger: Arc::clone(&ledger) }).expect("a producer");
        Load { producer, ledger, source, topic: topic.to_owned() }
    }

    /// Sends payload `number`; waits while the queue is full, at most until `deadline`. Returns whether it was taken.
    pub fn push(&self, number: u64, deadline: Instant) -> bool {
        let (partition, _) = self.ledger.place(number);
        let payload = self.source.payload(number);
        let mut record: BaseRecord<'_, [u8], [u8], usize> =
            BaseRecord::with_opaque_to(&self.topic, number as usize).partition(partition as i32).payload(&payload);
        loop {
            record = match self.producer.send(record) {
                Ok(()) => return true,
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), record)) => record,
                Err((error, _)) => {
                    self.ledger.fail(format!("payload {number} could not be sent: {error}"));
                    return false;
                }
            };
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Waits until everything sent is acknowledged or failed.
    ///
    /// # Errors
    /// If that takes longer than `patience`.
    pub fn flush(&self, patience: Duration) -> Result<(), String> {
        self.producer.flush(patience).map_err(|error| format!("not all was acknowledged within {patience:?}: {error}"))
    }

    /// Payloads under way.
    pub fn in_flight(&self) -> i32 {
        self.producer.in_flight_count()
    }
}
