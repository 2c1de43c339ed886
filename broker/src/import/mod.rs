//! The import of a Kafka's data folder (`corelog import`).
//!
//! ```text
//!   Kafka's folders ──> source (what lies there) ─┐
//!   __cluster_metadata-0 ──> metadata_log ──> kafka_record ──> kafka_image ──> plan (what is carried, what is not)
//!                                                                               │ nothing, or all of it is ignored
//!                                                     stage (DIR.importing) <───┘
//!                                                       └ fill: copy, open, check, metadata log ──> renamed to DIR
//! ```
//!
//! Holds: the order of these steps. Never touches: a running broker; Kafka's folders, which are only read.

pub mod args;
mod fields;
mod fill;
mod holes;
mod kafka_image;
mod kafka_record;
mod metadata_log;
mod plan;
mod report;
mod source;
pub(crate) mod stage;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::Write;
use std::sync::Arc;

use corelog_storage::disk::reserve::free_bytes;
use thiserror::Error;

use self::args::{Ignore, ImportArgs};
use self::plan::{Plan, Refusal};
use self::report::Progress;
use self::source::Source;
use self::stage::Stage;
use crate::config::cli::ServeArgs;
use crate::config::problem::Problems;
use crate::config::{BrokerConfig, Host, load};

/// Space that is left free on the disk, beside what is copied.
const SPARE_BYTES: u64 = 64 << 20;

/// Why there was no import.
#[derive(Debug, Error)]
pub enum ImportError {
    /// A property is wrong.
    #[error("{0}")]
    Config(Problems),
    /// Something stands in the way.
    #[error("{0}")]
    Refused(String),
    /// The system failed.
    #[error("{0}")]
    Failed(String),
}

impl ImportError {
    /// The process's exit code.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_) => 2,
            Self::Refused(_) => 65,
            Self::Failed(_) => 74,
        }
    }
}

/// Imports, or looks only; progress goes to `out`. What to tell the operator at the end.
///
/// # Errors
/// [`ImportError`]; the folder to be made is not there then.
pub fn run(
    args: &ImportArgs,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    host: Host,
    out: &mut dyn Write,
) -> Result<String, ImportError> {
    let refused = |reason: &dyn std::fmt::Display| ImportError::Refused(reason.to_string());
    let source = source::look(&args.from).map_err(|error| refused(&error))?;
    let image = metadata_log::read(&source.metadata).map_err(|error| refused(&error))?;
    let config = Arc::new(config_of(args, &source, environment, host)?);
    let mut plan = plan::plan(&source, &image, &config, &args.ignore).map_err(|error| refused(&error))?;
    asks_for_properties(args, &mut plan);
    has_room(args, &mut plan);
    for note in &plan.notes {
        let _ = writeln!(out, "corelog: note: {note}");
    }
    if !plan.refusals.is_empty() {
        return Err(refused(&list(&plan.refusals)));
    }
    if args.check {
        return Ok(format!("{}\nnothing stands in the way\n", report::outlook(&plan)));
    }
    let stage = Stage::make(&args.into).map_err(|error| refused(&error))?;
    let filled = fill::fill(&stage, &source.meta, &plan, &config, &mut Progress::new(out, &plan))?;
    let facts = filled.map_err(|refusals| refused(&list(&refusals)))?;
    stage.finish().map_err(|error| ImportError::Failed(format!("{}: {error}", args.into.display())))?;
    Ok(format!("{}\n{}", report::table(&facts), what_next(args, &source)))
}

/// The configuration with which the broker would start on the new folder.
fn config_of(
    args: &ImportArgs,
    source: &Source,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    host: Host,
) -> Result<BrokerConfig, ImportError> {
    let mut set = args.set.clone();
    set.push(format!("node.id={}", source.meta.node_id));
    let serve =
        ServeArgs { config: args.config.clone(), data_dir: Some(args.into.clone()), set, ..ServeArgs::default() };
    load::load(&serve, environment, host).map(|loaded| loaded.config).map_err(ImportError::Config)
}

/// Topics without a property of their own have the broker's, and those are not in the data folder.
fn asks_for_properties(args: &ImportArgs, plan: &mut Plan) {
    if args.config.is_none() && !args.ignore.contains(&Ignore::ServerProperties) {
        let reason =
            "Kafka's server.properties is not given (--config): its log.cleanup.policy, log.retention.* and other \
                      log.* properties hold for topics that set none themselves"
                .to_owned();
        plan.refusals.push(Refusal { reason, ignored_by: Some(Ignore::ServerProperties) });
    }
}

fn has_room(args: &ImportArgs, plan: &mut Plan) {
    let place = args.into.ancestors().find(|folder| folder.is_dir()).unwrap_or_else(|| std::path::Path::new("."));
    let wanted = plan.bytes().saturating_add(SPARE_BYTES);
    if let Ok(free) = free_bytes(place)
        && free < wanted
    {
        let reason =
            format!("{} has {} MiB free, and the copy takes {} MiB", place.display(), free >> 20, wanted >> 20);
        plan.refusals.push(Refusal { reason, ignored_by: None });
    }
}

fn list(refusals: &[Refusal]) -> String {
    let mut text = "nothing was imported:".to_owned();
    for refusal in refusals {
        let _ = write!(text, "\n  - {refusal}");
    }
    text
}

fn what_next(args: &ImportArgs, source: &Source) -> String {
    let into = args.into.display();
    let start = match &args.config {
        Some(file) => format!("corelog --config {} --data-dir {into}", file.display()),
        None => format!("corelog --data-dir {into} --set node.id={}", source.meta.node_id),
    };
    format!(
        "{into} is ready. Kafka's own folders are as they were; never run both on the same clients. Start with:\n  \
        {start}\n"
    )
}
