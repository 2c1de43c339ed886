//! The logs and the metadata of the new folder, made and checked with the broker's own code.
//!
//! Holds: the order of things on a reactor of its own. Never touches: Kafka's folders; what is carried (`plan`).
//!
//! A log is opened as after a crash: recovery reads every batch, its checksum and its place. One that a broker
//! would not serve
//! whole is refused here.

use std::sync::Arc;

use corelog_reactor::ring::{RingConfig, RingDriver};
use corelog_reactor::{Reactor, ReactorLimits, ShardId};
use corelog_storage::disk::datadir::DataDir;
use corelog_storage::disk::meta::MetaProperties;
use corelog_storage::disk::probe;
use corelog_storage::log::{Log, StorageEnv, StorageOptions};

use super::ImportError;
use super::plan::{CarriedLog, Plan, Refusal};
use super::report::{CarriedFacts, Progress};
use super::stage::Stage;
use crate::config::BrokerConfig;
use crate::controller::MetadataImage;
use crate::controller::codec::encode;
use crate::controller::log::{Entry, FileLog, HardState, MetadataLog as _};
use crate::partition::rules::log_config;

/// The term of the new log's first entry.
const TERM: u64 = 1;

/// Fills the stage; what came of each log, or why some are refused.
pub fn fill(
    stage: &Stage,
    meta: &MetaProperties,
    plan: &Plan,
    config: &Arc<BrokerConfig>,
    progress: &mut Progress<'_>,
) -> Result<Result<Vec<CarriedFacts>, Vec<Refusal>>, ImportError> {
    let failed = |error: &dyn std::fmt::Display| ImportError::Failed(error.to_string());
    let mut holes_below = Vec::new();
    for log in &plan.logs {
        holes_below.push(stage.copy(log).map_err(|error| failed(&format!("{}: {error}", log.from.display())))?);
        progress.done(log);
    }
    stage.write_checkpoint(&plan.logs, &holes_below).map_err(|error| failed(&error))?;
    let disk = probe::probe(stage.path()).map_err(|error| failed(&error))?;
    let driver = RingDriver::new(RingConfig::default()).map_err(|error| failed(&error))?;
    let limits = ReactorLimits { pool_bytes_max: config.memory_bytes_per_core as usize, ..ReactorLimits::default() };
    let reactor = Reactor::new(Box::new(driver), limits);
    let filled = reactor.block_on(async {
        let mut data = DataDir::open(&reactor, stage.path()).await.map_err(|error| failed(&error))?;
        data.set_meta(&reactor, meta.clone()).await.map_err(|error| failed(&error))?;
        // Nothing is written but the ends of logs.
        let options = StorageOptions { direct: disk.direct, prewritten_bytes_max: 0, ..StorageOptions::default() };
        let env = StorageEnv::new(reactor.clone(), ShardId(0), data.share(), options);
        let (mut facts, mut refusals) = (Vec::new(), Vec::new());
        for log in &plan.logs {
            match check(&env, log, config).await {
                Ok(fact) => facts.push(fact),
                Err(reason) => {
                    refusals.push(Refusal { reason: format!("{}: {reason}", log.name), ignored_by: None });
                }
            }
        }
        if !refusals.is_empty() {
            return Ok(Err(refusals));
        }
        write_metadata(&reactor, stage, plan, meta.node_id).await.map_err(|error| failed(&error))?;
        Ok(Ok(facts))
    });
    reactor.shutdown();
    filled
}

/// Opens a log, looks whether all of it is there, and closes it.
async fn check(env: &StorageEnv, log: &CarriedLog, config: &BrokerConfig) -> Result<CarriedFacts, String> {
    let topic = config.topic_config(&log.name.topic, &log.overrides);
    let opened =
        Log::open(env, log.name.clone(), log_config(&topic, config)).await.map_err(|error| error.to_string())?;
    if let Some(reason) = opened.fenced() {
        return Err(format!("this version of Corelog would not serve it whole: {reason}"));
    }
    if let Some((open, _)) = opened.producers(|producers| producers.oldest_open_transaction()) {
        return Err(format!(
            "a transaction of producer {} has been open since offset {}: let it end, or abort it \
             (kafka-transactions.sh abort), before that Kafka stops",
            open.producer_id, open.first_offset
        ));
    }
    let status = opened.status();
    if let Some(mark) = log.high_watermark.filter(|mark| status.log_end.0 < *mark) {
        return Err(format!("it ends at offset {}, and Kafka had committed records up to {mark}", status.log_end));
    }
    let carried: u64 = log.files.iter().filter(|(name, _)| name.ends_with(".log")).map(|(_, bytes)| bytes).sum();
    // Segments wholly below the log start are let go of.
    if status.bytes < carried && log.log_start.is_none() {
        return Err(format!("only {} of its {carried} bytes are sound record batches", status.bytes));
    }
    opened.close().await.map_err(|error| error.to_string())?;
    Ok(CarriedFacts {
        topic: log.name.topic.clone(),
        start: status.log_start.0,
        end: status.log_end.0,
        segments: status.segments,
        bytes: status.bytes,
    })
}

/// Writes the metadata log: one entry with all there is. A broker that starts on it goes on from there.
async fn write_metadata(reactor: &Reactor, stage: &Stage, plan: &Plan, node_id: i32) -> Result<(), String> {
    let mut image = MetadataImage::default();
    for record in &plan.records {
        image.replay(record).map_err(|error| error.to_string())?;
    }
    let opened = FileLog::open(reactor, stage.path(), None).await.map_err(|error| error.to_string())?;
    let mut log = opened.log;
    let state = |commit| HardState { term: TERM, voted_for: node_id, commit };
    log.save_hard_state(state(0)).await.map_err(|error| error.to_string())?;
    let entry = Entry { index: 1, term: TERM, bytes: encode(&plan.records) };
    log.append(vec![entry]).await.map_err(|error| error.to_string())?;
    log.save_hard_state(state(1)).await.map_err(|error| error.to_string())
}
