//! Holds: a consumer that reads along while a topic is written, and enters what it is shown into the ledger: records that a consumer
//! has seen are as binding as acknowledgements.
//! Never touches: what the broker stored.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rdkafka::Offset;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;

use super::verify::consumer;
use super::{Ledger, Source};

/// A consumer on a thread of its own; ends when dropped.
pub struct Watcher {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    /// Reads `topic` from its beginning.
    pub fn new(bootstrap: &str, topic: &str, source: Arc<dyn Source>, ledger: Arc<Ledger>) -> Watcher {
        let consumer = consumer(bootstrap, topic, ledger.partitions(), Offset::Beginning);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                match consumer.poll(Duration::from_millis(20)) {
                    Some(Ok(message)) => match message.payload().and_then(|payload| source.number_of(payload)) {
                        Some(number) => ledger.show(message.partition() as usize, message.offset(), number),
                        None => ledger.fail(format!("a consumer was shown strange bytes at {}", message.offset())),
                    },
                    // The broker has forgotten an offset that it had shown: the consumer stands past the end of the log.
                    Some(Err(KafkaError::MessageConsumption(
                        code @ (RDKafkaErrorCode::OffsetOutOfRange | RDKafkaErrorCode::AutoOffsetReset),
                    ))) => {
                        ledger.fail(format!("a consumer that read along was told {code:?}"));
                        break;
                    }
                    Some(Err(_)) | None => {}
                }
            }
        });
        Watcher { stop, thread: Some(thread) }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
