//! Holds: the reading of a whole topic by assignment, from the beginning to the end, and its judgement.
//! Never touches: the broker's files.

use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};

use super::load::client_config;
use super::{Finding, Ledger, PartitionCheck, Promises, Source};

/// Time without any record or end of partition after which reading is given up.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a topic held that kept its promises.
#[derive(Clone, Copy, Debug, Default)]
pub struct Verified {
    /// Records in all partitions.
    pub records: u64,
    /// Bytes of their values.
    pub bytes: u64,
}

/// A consumer of `topic`, assigned to all its partitions from offset `from`.
pub fn consumer(bootstrap: &str, topic: &str, partitions: usize, from: Offset) -> BaseConsumer {
    let mut config = client_config(bootstrap);
    config
        // librdkafka wants a group's name also for plain assignments; nothing is ever committed under it.
        .set("group.id", "assigned")
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "true")
        .set("auto.offset.reset", "error")
        .set("fetch.wait.max.ms", "50")
        .set("fetch.error.backoff.ms", "20")
        .set("check.crcs", "true");
    let consumer: BaseConsumer = config.create().expect("a consumer");
    let mut list = TopicPartitionList::new();
    for partition in 0..partitions {
        list.add_partition_offset(topic, partition as i32, from).expect("an assignment");
    }
    consumer.assign(&list).expect("an assignment");
    consumer
}

/// Reads all of `topic` and compares it with the promises.
///
/// # Errors
/// Every promise found broken (a few for each partition).
pub fn verify(
    bootstrap: &str,
    topic: &str,
    source: &dyn Source,
    ledger: &Ledger,
    idempotent: bool,
) -> Result<Verified, Vec<Finding>> {
    let partitions = ledger.partitions();
    // What is acknowledged from here on may already be in the log; what was before must be.
    let promises: Vec<Promises> = (0..partitions).map(|partition| ledger.of(partition).clone()).collect();
    let mut checks: Vec<Option<PartitionCheck<'_>>> = promises
        .iter()
        .enumerate()
        .map(|(partition, promises)| Some(PartitionCheck::new(partition, partitions, source, promises, idempotent)))
        .collect();
    let consumer = consumer(bootstrap, topic, partitions, Offset::Beginning);
    let mut verified = Verified::default();
    let mut findings = Vec::new();
    // A topic that is still being written has no quiet moment; what was promised lies before the ends as they are now.
    let mut ends = Vec::new();
    for partition in 0..partitions {
        match consumer.fetch_watermarks(topic, partition as i32, PATIENCE) {
            Ok((_, end)) => ends.push(end),
            Err(error) => {
                let why = format!("no watermarks: {error}");
                return Err(vec![Finding::Unreadable { partition: Some(partition), why }]);
            }
        }
    }
    let mut last_news = Instant::now();
    let mut open = partitions;
    while open > 0 {
        match consumer.poll(Duration::from_millis(100)) {
            Some(Ok(message)) => {
                last_news = Instant::now();
                let payload = message.payload().unwrap_or_default();
                verified.bytes += payload.len() as u64;
                let partition = message.partition() as usize;
                if let Some(check) = &mut checks[partition] {
                    check.record(message.offset(), payload);
                    if message.offset() + 1 >= ends[partition] {
                        finish(&mut checks[partition], &mut verified, &mut findings);
                        open -= 1;
                    }
                }
            }
            Some(Err(KafkaError::PartitionEOF(partition))) => {
                last_news = Instant::now();
                if checks[partition as usize].is_some() {
                    finish(&mut checks[partition as usize], &mut verified, &mut findings);
                    open -= 1;
                }
            }
            // Connections come and go around a restart; anything else will still be there when patience ends.
            Some(Err(error)) if last_news.elapsed() > PATIENCE => {
                findings.push(Finding::Unreadable { partition: None, why: error.to_string() });
                break;
            }
            Some(Err(_)) => {}
            None if last_news.elapsed() > PATIENCE => {
                for (partition, _) in checks.iter().enumerate().filter(|(_, check)| check.is_some()) {
                    let why = format!("no record and no end within {PATIENCE:?}");
                    findings.push(Finding::Unreadable { partition: Some(partition), why });
                }
                break;
            }
            None => {}
        }
    }
    if findings.is_empty() { Ok(verified) } else { Err(findings) }
}

fn finish(check: &mut Option<PartitionCheck<'_>>, verified: &mut Verified, findings: &mut Vec<Finding>) {
    if let Some(check) = check.take() {
        let (records, found) = check.finish();
        verified.records += records;
        findings.extend(found);
    }
}

/// Like [`verify`], for tests that expect all promises to be kept.
///
/// # Panics
/// With the broken promises; `when` says in which situation.
pub fn verify_or_panic(
    bootstrap: &str,
    topic: &str,
    source: &dyn Source,
    ledger: &Ledger,
    idempotent: bool,
    when: &str,
) -> Verified {
    verify(bootstrap, topic, source, ledger, idempotent).unwrap_or_else(|findings| {
        let list: Vec<String> = findings.iter().map(|finding| format!("  {finding}")).collect();
        panic!("{when}: topic {topic} broke {} promises:\n{}", findings.len(), list.join("\n"))
    })
}
