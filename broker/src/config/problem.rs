//! What is wrong with a start-up configuration, said so that it can be put right.
//!
//! Holds: problems and warnings. Each names the property, the value, where it was set, and the fix.
//! Never touches: how they were found.

use std::fmt;
use std::path::PathBuf;

use thiserror::Error;

use super::core_map::CoreMapError;
use super::log_filter::LogFilterError;
use super::origin::Origin;
use super::properties::PropertiesError;

/// One thing that is wrong.
#[derive(Debug, Error)]
pub enum Problem {
    /// A file cannot be read.
    #[error("cannot read {}: {error}. {}", path.display(), unreadable_fix(error, named_by))]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
        /// What names the file, and may name another: `--config`, a property.
        named_by: &'static str,
    },
    /// The configuration file is malformed.
    #[error("{}:{}: {}", path.display(), error.line, error.reason)]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where and why.
        error: PropertiesError,
    },
    /// A value is wrong.
    #[error("{reason}{origin}{}", sentence(fix))]
    Value {
        /// What is wrong, naming property and value.
        reason: String,
        /// Where it was set.
        origin: OriginOrDefault,
        /// What to do.
        fix: String,
    },
    /// A name that is nearly, but not quite, a property's.
    #[error("unknown property `{name}` (set by {origin}). Did you mean `{nearest}`?")]
    Misspelled {
        /// The name.
        name: String,
        /// Where it was set.
        origin: Origin,
        /// The property that was probably meant.
        nearest: &'static str,
    },
    /// Two variables that mean one property.
    #[error("`{name}` is set by two environment variables, {first} and {second}: remove one of them")]
    TwoVariables {
        /// The property.
        name: String,
        /// One of them.
        first: String,
        /// The other.
        second: String,
    },
    /// A variable whose text is none.
    #[error("environment variable {variable} is not UTF-8 text: set it anew")]
    NotText {
        /// The variable.
        variable: String,
    },
    /// The log's filter is wrong.
    #[error(transparent)]
    LogFilter(#[from] LogFilterError),
    /// `--set` without `=`.
    #[error("--set {text}: write it as --set name=value")]
    NotAnAssignment {
        /// What was given.
        text: String,
    },
    /// The core map is wrong.
    #[error("{}: {error}", path.display())]
    CoreMap {
        /// The file.
        path: PathBuf,
        /// Why.
        error: CoreMapError,
    },
}

/// The fix behind the full stop of what is wrong.
fn sentence(fix: &str) -> String {
    if fix.is_empty() { String::new() } else { format!(". {fix}") }
}

fn unreadable_fix(error: &std::io::Error, named_by: &str) -> String {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            "The broker's user must be allowed to read it, and to enter the folders above it.".to_owned()
        }
        std::io::ErrorKind::IsADirectory => format!("It is a folder: name a file with {named_by}."),
        _ => format!("Check the path given with {named_by}."),
    }
}

/// Where a value was set; nothing, when it is a default or was set while the broker ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginOrDefault(pub Option<Origin>);

impl fmt::Display for OriginOrDefault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(origin) => write!(f, " (set by {origin})"),
            None => Ok(()),
        }
    }
}

/// Everything that is wrong, found in one go.
#[derive(Debug)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [one] => write!(f, "the configuration is wrong: {one}"),
            many => {
                write!(f, "{} things are wrong with the configuration:", many.len())?;
                for problem in many {
                    write!(f, "\n  - {problem}")?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for Problems {}

/// Something the operator should know that does not keep the broker from starting.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Warning {
    /// A property that nobody knows. Kafka warns too: a plugin may know it.
    #[error("unknown property `{name}` (set by {origin}) is ignored")]
    Unknown {
        /// The name.
        name: String,
        /// Where it was set.
        origin: Origin,
    },
    /// A topic's property, set for the broker.
    #[error(
        "`{name}` (set by {origin}) is ignored: it is a topic's property, and the broker's for all topics is `{brokers}`"
    )]
    TopicProperty {
        /// The name.
        name: String,
        /// Where it was set.
        origin: Origin,
        /// The broker's property that stands behind it.
        brokers: &'static str,
    },
    /// A property that Corelog accepts and does not act on.
    #[error(
        "`{name}` (set by {origin}) has no effect in this version: it is accepted, checked and listed, and that is all"
    )]
    NoEffect {
        /// The name.
        name: String,
        /// Where it was set.
        origin: Origin,
    },
    /// `flush.messages` alone does not relax durability.
    #[error(
        "`{name}` (set by {origin}) does not relax durability: every acknowledged record is on stable storage. \
         To trade that for speed set `corelog.durability=memory`, for a topic or for all"
    )]
    StaysDurable {
        /// The name.
        name: String,
        /// Where it was set.
        origin: Origin,
    },
    /// A property more than once in the file. Java lets the last one win, and so do we.
    #[error(
        "`{name}` is set more than once in {}: line {line} counts, not {}. Remove the others", path.display(), lines(overruled)
    )]
    Repeated {
        /// The property.
        name: String,
        /// The file.
        path: PathBuf,
        /// The line that counts: the last.
        line: usize,
        /// The lines before it.
        overruled: Vec<usize>,
    },
    /// Less memory than by default.
    #[error(
        "each core gets {} MiB, not the default of {} MiB: all {shards} cores' memory is to be half of this machine's at most. \
         corelog.memory.bytes.per.core sets it",
        bytes >> 20, default >> 20
    )]
    LessMemory {
        /// What a core gets.
        bytes: u64,
        /// What it would get elsewhere.
        default: u64,
        /// How many shards there are.
        shards: usize,
    },
    /// A listener of the controller's.
    #[error(
        "listener `{name}` is the controller's (`controller.listener.names`); it is not opened: a single node has no peers"
    )]
    ControllerListener {
        /// The listener.
        name: String,
    },
    /// More shards than cores.
    #[error("{shards} shards share {cores} cores; they will get in each other's way: lower corelog.shards")]
    MoreShardsThanCores {
        /// The shards.
        shards: usize,
        /// The cores.
        cores: usize,
    },
}

fn lines(numbers: &[usize]) -> String {
    let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    format!("line{} {}", if numbers.len() == 1 { "" } else { "s" }, numbers.join(", "))
}
