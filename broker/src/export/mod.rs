//! The export of a data folder to one that a Kafka starts on (`corelog export`).
//!
//! Holds: the order of steps, and the small files of a Kafka's folder. Never touches: a running broker. The logs
//! of the source are
//! opened and closed, as a start and a clean stop would; nothing else in it changes. Of several data folders (`sources`) one is made.
//!
//! ```text
//!   DATA (locked) ──> metadata image ──> bootstrap.checkpoint ─┐
//!        └ each log opened, closed (trimmed, indexed) ──> copied ├──> KAFKA_DATA.importing ──> renamed to KAFKA_DATA
//!                          offsets ──> Kafka's checkpoints ──────┘
//! ```

pub mod args;
mod kafka_records;
mod sources;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Write;
use std::path::Path;

use corelog_reactor::ring::{RingConfig, RingDriver};
use corelog_reactor::{Reactor, ReactorLimits};
use corelog_storage::disk::meta::{META_PROPERTIES, MetaProperties};
use corelog_storage::ids::{PartitionIndex, Timestamp};
use corelog_storage::log::{Log, LogConfig, LogName, LogStatus, StorageEnv};

use self::args::ExportArgs;
use self::sources::Sources;
use crate::controller::MetadataImage;
use crate::controller::codec::decode;
use crate::controller::log::{FileLog, MetadataLog as _};
use crate::controller::snapshot::{decode_image, records_of};
use crate::import::ImportError;
use crate::import::stage::{Stage, carried_files};

/// Memory for reading logs.
const POOL_BYTES: usize = 64 << 20;

/// Exports; progress goes to `out`. What to tell the operator at the end.
///
/// # Errors
/// [`ImportError`]; the folder to be made is not there then.
pub fn run(args: &ExportArgs, out: &mut dyn Write) -> Result<String, ImportError> {
    let refused = |error: &dyn std::fmt::Display| ImportError::Refused(error.to_string());
    let first = sources::check(&args.from).map_err(ImportError::Refused)?;
    let driver = RingDriver::new(RingConfig::default()).map_err(|error| ImportError::Failed(error.to_string()))?;
    let limits = ReactorLimits { pool_bytes_max: POOL_BYTES, ..ReactorLimits::default() };
    let reactor = Reactor::new(Box::new(driver), limits);
    let exported = reactor.block_on(async {
        let sources = Sources::open(&reactor, &args.from).await?;
        let meta = sources.meta().clone();
        let image = read_image(&reactor, first).await.map_err(|error| refused(&error))?;
        let names = names(&image);
        // All of them are looked for before the first is copied.
        let of = |name: &LogName| sources.of(&image, name).map_err(ImportError::Refused);
        let envs = names.iter().map(of).collect::<Result<Vec<_>, _>>()?;
        let stage = Stage::make(&args.into).map_err(|error| refused(&error))?;
        let mut logs = BTreeMap::new();
        for (name, env) in names.into_iter().zip(envs) {
            let status = settle(env, &name).await.map_err(|error| refused(&format!("{name}: {error}")))?;
            let from = env.data().join(name.to_string());
            let copied = carried_files(&from).and_then(|files| stage.copy_files(&from, &name, files.keys(), None));
            copied.map_err(|error| ImportError::Failed(format!("{}: {error}", from.display())))?;
            // A closed standard error is no reason to stop.
            let _ = writeln!(out, "corelog: {name}: offsets {} to {}", status.log_start, status.log_end);
            logs.insert((name.topic.clone(), name.partition.0), status);
        }
        write_small_files(stage.path(), &meta, &image, &logs, Timestamp(reactor.unix_ms().0))
            .map_err(|error| ImportError::Failed(error.to_string()))?;
        stage.finish().map_err(|error| ImportError::Failed(error.to_string()))?;
        Ok((logs.len(), meta.node_id))
    });
    reactor.shutdown();
    let (partitions, node) = exported?;
    let into = args.into.display();
    Ok(format!(
        "{into} is ready: {partitions} partitions, node.id={node}. See corelog export --help for the properties to \
        start with\n"
    ))
}

/// The metadata at the end of its log.
async fn read_image(reactor: &Reactor, data: &Path) -> Result<MetadataImage, String> {
    let opened = FileLog::open(reactor, data, Some("any")).await.map_err(|error| error.to_string())?;
    let mut image = match &opened.snapshot {
        Some(bytes) => decode_image(bytes).map_err(|error| error.to_string())?.1,
        None => MetadataImage::default(),
    };
    for entry in opened.log.entries() {
        for record in decode(&entry.bytes).map_err(|error| error.to_string())? {
            image.replay(&record).map_err(|error| error.to_string())?;
        }
    }
    Ok(image)
}

fn names(image: &MetadataImage) -> Vec<LogName> {
    let mut names: Vec<LogName> = image
        .topics()
        .flat_map(|topic| {
            let number = 0..topic.partitions.len() as i32;
            number.map(|number| LogName {
                topic: topic.name.to_string(),
                partition: PartitionIndex(number),
                topic_id: topic.id,
            })
        })
        .collect();
    names.sort_by(|a, b| (&a.topic, a.partition.0).cmp(&(&b.topic, b.partition.0)));
    names
}

/// Opens and closes a log: after that its files end where its batches do, and are indexed.
async fn settle(env: &StorageEnv, name: &LogName) -> Result<LogStatus, String> {
    let log = Log::open(env, name.clone(), LogConfig::default()).await.map_err(|error| error.to_string())?;
    if let Some(reason) = log.fenced() {
        return Err(format!("it is damaged: {reason}"));
    }
    let status = log.status();
    log.close().await.map_err(|error| error.to_string())?;
    Ok(status)
}

/// What lies beside the logs in a Kafka's folder that was stopped in an orderly way.
fn write_small_files(
    folder: &Path,
    meta: &MetaProperties,
    image: &MetadataImage,
    logs: &BTreeMap<(String, i32), LogStatus>,
    now: Timestamp,
) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| error.to_string();
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        let synced = fs::write(&path, bytes).and_then(|()| fs::File::open(&path)?.sync_all());
        synced.map_err(|error| format!("{}: {error}", path.display()))
    };
    let bootstrap = kafka_records::bootstrap(&records_of(image), meta.node_id, meta.directory_id, now);
    write("bootstrap.checkpoint", &bootstrap.map_err(|error| failed(&error))?)?;
    write(META_PROPERTIES, &meta.encode())?;
    write("log-start-offset-checkpoint", checkpoint(logs, |status| status.log_start.0).as_bytes())?;
    write("recovery-point-offset-checkpoint", checkpoint(logs, |status| status.log_end.0).as_bytes())?;
    write("replication-offset-checkpoint", checkpoint(logs, |status| status.log_end.0).as_bytes())?;
    write(".kafka_cleanshutdown", b"{\"version\":0,\"brokerEpoch\":-1}")
}

fn checkpoint(logs: &BTreeMap<(String, i32), LogStatus>, offset: impl Fn(&LogStatus) -> i64) -> String {
    let mut text = format!("0\n{}\n", logs.len());
    for ((topic, partition), status) in logs {
        let _ = writeln!(text, "{topic} {partition} {}", offset(status));
    }
    text
}
