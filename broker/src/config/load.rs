//! Reading the configuration when the broker starts.
//!
//! Holds: the order of the sources, the checks of every single value, and the two files that are read.
//! Never touches: what changes while the broker runs.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::broker::{BrokerConfig, Host};
use super::build::{self, Parts};
use super::cli::ServeArgs;
use super::core_map::CoreMap;
use super::definition::{
    Definition, Effect, broker_definition, listener_override_base, nearest_name, nearest_own_name,
};
use super::layers::Layers;
use super::log_filter::{self, LogFilter};
use super::origin::{Origin, StaticProperties};
use super::problem::{OriginOrDefault, Problem, Problems, Warning};
use super::properties::Property;
use super::synonyms::topic_synonyms;
use super::value::ValueError;
use super::{properties, table};

/// Variables that start with `CORELOG_` and are neither properties nor the log's filter: the flags' own.
const OTHER_VARIABLES: [&str; 2] = ["CORELOG_CONFIG", "CORELOG_TEST_BREAK"];

/// The prefix of the environment's variables.
const PREFIX: &str = "CORELOG_";

/// The configuration, and what the operator should know about it.
#[derive(Debug)]
pub struct Loaded {
    /// The configuration.
    pub config: BrokerConfig,
    /// To be logged once.
    pub warnings: Vec<Warning>,
    /// What the log is to show.
    pub log_filter: LogFilter,
}

/// Reads the configuration: the file, then the environment, then `--set`, then the flags; a later one wins.
///
/// # Errors
/// [`Problems`]: everything that is wrong, at once.
pub fn load(
    args: &ServeArgs,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    host: Host,
) -> Result<Loaded, Problems> {
    let mut loader = Loader::default();
    if let Some(path) = &args.config {
        loader.read_file(path);
    }
    loader.read_environment(environment);
    loader.read_flags(args);
    loader.finish(host)
}

#[derive(Default)]
struct Loader {
    properties: StaticProperties,
    problems: Vec<Problem>,
    warnings: Vec<Warning>,
    log_filter: LogFilter,
}

impl Loader {
    fn read_file(&mut self, path: &Path) {
        let text = match std::fs::read(path) {
            Ok(bytes) => decode(bytes),
            Err(error) => {
                self.problems.push(Problem::Unreadable { path: path.to_owned(), error, named_by: "--config" });
                return;
            }
        };
        match properties::parse(&text) {
            Ok(parsed) => {
                self.warn_of_repetitions(path, &parsed);
                for property in parsed {
                    let origin = Origin::File { path: path.to_owned(), line: property.line };
                    self.properties.set(property.key, property.value, origin);
                }
            }
            Err(error) => self.problems.push(Problem::Malformed { path: path.to_owned(), error }),
        }
    }

    fn warn_of_repetitions(&mut self, path: &Path, parsed: &[Property]) {
        let mut lines: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for property in parsed {
            lines.entry(&property.key).or_default().push(property.line);
        }
        for (name, mut lines) in lines {
            if let Some(line) = lines.pop()
                && !lines.is_empty()
            {
                let (name, path) = (name.to_owned(), path.to_owned());
                self.warnings.push(Warning::Repeated { name, path, line, overruled: lines });
            }
        }
    }

    fn read_environment(&mut self, environment: impl IntoIterator<Item = (OsString, OsString)>) {
        for (variable, value) in environment {
            // A name that is no text is none of ours.
            let Ok(variable) = variable.into_string() else { continue };
            let Some(rest) = variable.strip_prefix(PREFIX) else {
                continue;
            };
            if OTHER_VARIABLES.contains(&variable.as_str()) {
                continue;
            }
            let Ok(value) = value.into_string() else {
                self.problems.push(Problem::NotText { variable });
                continue;
            };
            if variable == log_filter::VARIABLE {
                match LogFilter::parse(&value) {
                    Ok(filter) => self.log_filter = filter,
                    Err(error) => self.problems.push(error.into()),
                }
                continue;
            }
            let name = property_of_variable(rest);
            if let Some(Origin::Environment { variable: first }) = self.properties.origin(&name) {
                self.problems.push(Problem::TwoVariables { name, first: first.clone(), second: variable });
                continue;
            }
            self.properties.set(name, value, Origin::Environment { variable });
        }
    }

    fn read_flags(&mut self, args: &ServeArgs) {
        for text in &args.set {
            match text.split_once('=') {
                Some((name, value)) if !name.trim().is_empty() => {
                    self.properties.set(name.trim(), value, Origin::Set);
                }
                _ => self.problems.push(Problem::NotAnAssignment { text: text.clone() }),
            }
        }
        let mut flag = |flag, name: &str, value: String| {
            self.properties.set(name, value, Origin::Flag { flag });
        };
        if let Some(dir) = &args.data_dir {
            flag("--data-dir", "log.dirs", dir.display().to_string());
        }
        if let Some(address) = &args.listen {
            flag("--listen", "listeners", format!("PLAINTEXT://{address}"));
        }
        if let Some(shards) = args.shards {
            flag("--shards", "corelog.shards", shards.to_string());
        }
    }

    fn finish(mut self, host: Host) -> Result<Loaded, Problems> {
        self.mirror_node_id();
        self.check_each();
        if !self.problems.is_empty() {
            return Err(Problems(self.problems));
        }
        let layers = Layers::fixed(Arc::new(self.properties));
        let core_map = Arc::new(read_core_map(&layers, &host)?);
        let config = build::build(Parts { layers, host, core_map })?;
        let mut warnings = self.warnings;
        warn_of_the_whole(&config, &mut warnings);
        Ok(Loaded { config, warnings, log_filter: self.log_filter })
    }

    /// `node.id` and `broker.id` are one: where only one is set, the other is taken to be set too, as in Kafka.
    fn mirror_node_id(&mut self) {
        for (from, to) in [("node.id", "broker.id"), ("broker.id", "node.id")] {
            if let (Some(value), Some(origin)) = (self.properties.get(from), self.properties.origin(from))
                && !self.properties.contains(to)
            {
                let (value, origin) = (value.to_owned(), origin.clone());
                self.properties.set(to, value, origin);
            }
        }
    }

    fn check_each(&mut self) {
        for (name, property) in self.properties.iter() {
            let base = listener_override_base(name).unwrap_or(name);
            let Some(row) = broker_definition(base) else {
                match about_stranger(name.to_owned(), property.origin.clone()) {
                    Ok(warning) => self.warnings.push(warning),
                    Err(problem) => self.problems.push(problem),
                }
                continue;
            };
            match row.parse(&property.value) {
                Err(error) => self.problems.push(Problem::Value {
                    reason: reason_of(&error, name, &property.value),
                    origin: OriginOrDefault(Some(property.origin.clone())),
                    fix: fix_for(row),
                }),
                Ok(value) => {
                    let is_default = row.default.and_then(|text| row.parse(text).ok());
                    if row.effect == Effect::Listed && Some(value) != is_default {
                        self.warnings
                            .push(Warning::NoEffect { name: name.to_owned(), origin: property.origin.clone() });
                    }
                }
            }
        }
    }
}

/// A name that is no broker property's: a topic's, a slip of the pen, or unknown.
fn about_stranger(name: String, origin: Origin) -> Result<Warning, Problem> {
    if let Some((brokers, _)) = topic_synonyms(&name).first() {
        return Ok(Warning::TopicProperty { name, origin, brokers });
    }
    let from_environment = matches!(origin, Origin::Environment { .. });
    let nearest = nearest_name(&name, table::broker());
    match nearest.or_else(|| nearest_own_name(&name).filter(|_| from_environment)) {
        Some(nearest) => Err(Problem::Misspelled { name, origin, nearest }),
        None => Ok(Warning::Unknown { name, origin }),
    }
}

/// Java wrote these files in Latin-1, people write them in UTF-8: what is not UTF-8 is Latin-1.
fn decode(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| error.as_bytes().iter().map(|&byte| char::from(byte)).collect())
}

/// `LOG_RETENTION_MS` is `log.retention.ms`; a name that only Corelog has may do without its `CORELOG_`: `SHARDS` is
/// `corelog.shards`.
fn property_of_variable(rest: &str) -> String {
    let name = rest.to_ascii_lowercase().replace('_', ".");
    let own = format!("corelog.{name}");
    if broker_definition(&name).is_none() && broker_definition(&own).is_some() {
        return own;
    }
    name
}

/// Kafka's words, to be followed by where the value was set. Of a list with a comma too many Kafka says, as the case may be,
/// that an item is empty or that one stands twice: neither shows what to look for.
fn reason_of(error: &ValueError, name: &str, text: &str) -> String {
    let has_comma_too_many = text.split(',').any(|item| item.trim().is_empty());
    match error {
        ValueError::DuplicateItem { .. } | ValueError::EmptyItem { .. } if has_comma_too_many => {
            format!("`{}` in {name} has a comma with no item beside it", text.trim())
        }
        _ => error.to_string().trim_end_matches('.').to_owned(),
    }
}

fn fix_for(row: &Definition) -> String {
    let allowed = row.validator.describe();
    let mut fix = format!("It takes {}", article(row));
    if !allowed.is_empty() {
        fix.push_str(", ");
        fix.push_str(&allowed);
    }
    match row.default {
        Some("") | None => fix.push_str("; leave it out if you don't need it."),
        Some(default) => fix.push_str(&format!("; its default is {default}.")),
    }
    fix
}

fn article(row: &Definition) -> &'static str {
    use super::value::ConfigType;
    match row.kind {
        ConfigType::Boolean => "true or false",
        ConfigType::String | ConfigType::Password => "a text",
        ConfigType::Int => "a 32-bit integer",
        ConfigType::Short => "a 16-bit integer",
        ConfigType::Long => "a 64-bit integer",
        ConfigType::Double => "a number",
        ConfigType::List => "a list separated by commas",
        ConfigType::Class => "the name of a class",
    }
}

/// Reads the core map: the file that is named, or `core-map.toml` in the data folder if it is there.
fn read_core_map(layers: &Layers, host: &Host) -> Result<CoreMap, Problems> {
    const NAME: &str = "corelog.core.map.file";
    let named = layers.fixed.get(NAME).map(|text| PathBuf::from(text.trim()));
    let must_exist = named.is_some();
    let path = named.unwrap_or_else(|| build::data_dirs(layers).0.join("core-map.toml"));
    // That the data folder is a file is for those to say who open it.
    let is_absent = |error: &io::Error| matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if is_absent(&error) && !must_exist => return Ok(CoreMap::default()),
        Err(error) => {
            return Err(Problems(vec![Problem::Unreadable { path, error, named_by: NAME }]));
        }
    };
    CoreMap::parse(&text, build::shards(layers, host)).map_err(|error| Problems(vec![Problem::CoreMap { path, error }]))
}

fn warn_of_the_whole(config: &BrokerConfig, warnings: &mut Vec<Warning>) {
    let fixed = &config.layers.fixed;
    if config.topic_defaults.durability == super::Durability::Durable {
        for name in ["log.flush.interval.messages", "log.flush.interval.ms"] {
            if let Some(origin) = fixed.origin(name)
                && fixed.get(name).is_some_and(|text| text.trim() != "1")
            {
                warnings.push(Warning::StaysDurable { name: name.to_owned(), origin: origin.clone() });
            }
        }
    }
    if let Some(default) = build::memory_cut_short(config) {
        warnings.push(Warning::LessMemory { bytes: config.memory_bytes_per_core, default, shards: config.shards });
    }
    for name in build::controller_listeners(config) {
        warnings.push(Warning::ControllerListener { name });
    }
    if config.shards > config.host.cores.len() {
        warnings.push(Warning::MoreShardsThanCores { shards: config.shards, cores: config.host.cores.len() });
    }
}
