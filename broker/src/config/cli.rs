//! The command line.
//!
//! Holds: what `corelog` can be told, the help that teaches it, and the printing of the property tables.
//! Never touches: files, the broker itself.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use super::definition::{Definition, Effect, Importance, Scope, broker_definition, nearest_name, topic_definition};
use super::synonyms::topic_synonyms;
use super::table;
use crate::export::args::{EXAMPLES as EXPORT_EXAMPLES, ExportArgs};
use crate::import::args::{EXAMPLES as IMPORT_EXAMPLES, ImportArgs};

/// Corelog: a Kafka broker without a JVM, one thread and one io_uring per core.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "corelog",
    version,
    about,
    args_conflicts_with_subcommands = true,
    after_long_help = EXAMPLES
)]
pub struct Cli {
    /// What to do; without it, serve.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// How to serve.
    #[command(flatten)]
    pub serve: ServeArgs,
}

const EXAMPLES: &str = "\
Examples:
  corelog
      Serve on 127.0.0.1:9092 with every core, data in ./data.
  corelog --data-dir /var/lib/corelog --listen 192.168.1.5:9092
      Serve the local network.
  corelog --config server.properties --set num.partitions=6
      Start from a Kafka broker's file, with six partitions for a topic that doesn't say.
  CORELOG_NUM_PARTITIONS=12 corelog --shards 4
      Any property can come from the environment; four cores serve.
  corelog check
      Is this machine set up for a broker? Says what is off, and the fix.
  corelog import /var/lib/kafka --into /var/lib/corelog --config server.properties
      Take over the data folder of a Kafka.
  corelog config list segment
      Every property that Corelog acts on with `segment` in its name.
  corelog config describe flush.messages
      What a property means, takes and defaults to.

A value is taken from the last of these that has it: the defaults, --config, the environment
(CORELOG_ and the name in capitals, with _ for .), --set, a flag of its own.

Then, with any Kafka client:
  kafka-console-producer.sh --bootstrap-server 127.0.0.1:9092 --topic hello
";

const CHECK_EXAMPLES: &str = "\
Examples:
  corelog check
      Look at kernel, disk and settings, for a broker as `corelog` would start it.
  corelog check --data-dir /var/lib/corelog --shards 8
      For this data folder and eight cores: all options of `corelog serve` are understood.
  corelog check --json | jq '.checks[] | select(.status != \"ok\")'
      For a script.

Each check says one of:
  ok       as a broker would have it
  costs    works, and costs speed or room; what changes it stands below
  UNSAFE   works, and an acknowledged record may not be on stable storage
  FATAL    the broker would not start
  unknown  this host doesn't say

Exit code:
  0        all is well, or costs something
  60       something is unsafe
  74, 80+  the broker would not start: its own code, for the disk or for io_uring
  2        the configuration is wrong

Nothing is changed. A scratch file is written into the data folder, if there is one, and removed.
";

/// What `corelog` can do.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Run the broker.
    #[command(after_long_help = EXAMPLES)]
    Serve(ServeArgs),
    /// Look whether this machine is set up for a broker, and what would make it better.
    #[command(after_long_help = CHECK_EXAMPLES)]
    Check {
        /// How it would serve.
        #[command(flatten)]
        serve: ServeArgs,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Make a data folder of that of a Kafka, with all its records and topics.
    #[command(after_long_help = IMPORT_EXAMPLES)]
    Import(ImportArgs),
    /// Make a data folder that a Kafka starts on of that of a broker that is stopped.
    #[command(after_long_help = EXPORT_EXAMPLES)]
    Export(ExportArgs),
    /// Show what can be configured.
    Config {
        /// Which part of it.
        #[command(subcommand)]
        what: ConfigCommand,
    },
}

/// How to serve.
#[derive(Clone, Debug, Default, Args)]
pub struct ServeArgs {
    /// A file of properties, as Kafka's server.properties.
    #[arg(long, value_name = "FILE", env = "CORELOG_CONFIG")]
    pub config: Option<PathBuf>,
    /// Where everything is kept (sets log.dirs) [default: ./data].
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Where clients connect (sets listeners) [default: 127.0.0.1:9092].
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Option<String>,
    /// How many cores serve (sets corelog.shards) [default: all that this process may use].
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u16).range(0..=1024))]
    pub shards: Option<u16>,
    /// Set any property; may be given more than once.
    #[arg(long, value_name = "NAME=VALUE")]
    pub set: Vec<String>,
}

/// What of the configuration to show.
#[derive(Clone, Debug, Subcommand)]
pub enum ConfigCommand {
    /// List the properties, with their defaults.
    List {
        /// Only those with this text in their name.
        part: Option<String>,
        /// The topics' properties instead of the broker's.
        #[arg(long)]
        topic: bool,
        /// Also those that Corelog accepts and does not act on.
        #[arg(long)]
        all: bool,
    },
    /// Explain one property.
    Describe {
        /// Its name.
        name: String,
    },
}

impl Cli {
    /// The arguments to serve with, or what to print instead.
    #[must_use]
    pub fn into_action(self) -> Action {
        match self.command {
            None => Action::Serve(self.serve),
            Some(Command::Serve(args)) => Action::Serve(args),
            Some(Command::Check { serve, json }) => Action::Check { args: serve, json },
            Some(Command::Import(args)) => Action::Import(args),
            Some(Command::Export(args)) => Action::Export(args),
            Some(Command::Config { what }) => match what {
                ConfigCommand::List { part, topic, all } => {
                    let asked = ListArgs { part: part.as_deref().unwrap_or(""), topic, all };
                    match list(&asked) {
                        Some(text) => Action::Print(text),
                        None => Action::Refuse(no_such_part(&asked)),
                    }
                }
                ConfigCommand::Describe { name } => match describe(&name) {
                    Some(text) => Action::Print(text),
                    None => Action::Refuse(no_such_property(&name)),
                },
            },
        }
    }
}

/// What the command line asks for.
#[derive(Clone, Debug)]
pub enum Action {
    /// Run the broker.
    Serve(ServeArgs),
    /// Look at the machine.
    Check {
        /// How it would serve.
        args: ServeArgs,
        /// Print JSON.
        json: bool,
    },
    /// Import a Kafka's data folder.
    Import(ImportArgs),
    /// Export a data folder for a Kafka.
    Export(ExportArgs),
    /// Print this and be done.
    Print(String),
    /// Print this to the error output, and fail.
    Refuse(String),
}

fn no_such_property(name: &str) -> String {
    let nearest = nearest_name(name, table::broker()).or_else(|| nearest_name(name, table::topic()));
    match nearest {
        Some(nearest) => format!("there is no property `{name}`; did you mean `{nearest}`?\n"),
        None => format!("there is no property `{name}`; `corelog config list --all` shows them all\n"),
    }
}

/// What `config list` is asked for.
struct ListArgs<'a> {
    part: &'a str,
    topic: bool,
    all: bool,
}

impl ListArgs<'_> {
    fn shown(&self) -> impl Iterator<Item = &'static Definition> {
        let rows = if self.topic { table::topic() } else { table::broker() };
        let shown = rows.iter().filter(|row| row.name.contains(self.part) && !row.internal);
        shown.filter(|row| self.all || row.effect == Effect::Acts)
    }
}

/// No property has this in its name: what has, with other options, or nearly so.
fn no_such_part(asked: &ListArgs<'_>) -> String {
    let ListArgs { part, topic, all } = asked;
    let own = if *topic { " --topic" } else { "" };
    let mut text = format!("no property{} has `{part}` in its name", if *topic { " of topics" } else { "" });
    let elsewhere = ListArgs { topic: !topic, ..*asked };
    let with_all = ListArgs { all: true, ..*asked };
    if !all && with_all.shown().next().is_some() {
        let _ = writeln!(text, " that Corelog acts on; `corelog config list{own} --all {part}` shows those it accepts");
    } else if elsewhere.shown().next().is_some() {
        let (whose, option) = if *topic { ("the broker", "") } else { ("topics", " --topic") };
        let _ = writeln!(text, "; `corelog config list{option} {part}` shows those of {whose}");
    } else if let Some(nearest) = nearest_name(part, if *topic { table::topic() } else { table::broker() }) {
        let _ = writeln!(text, "; did you mean `{nearest}`?");
    } else {
        let _ = writeln!(text, "; `corelog config list{own} --all` shows them all");
    }
    text
}

fn list(asked: &ListArgs<'_>) -> Option<String> {
    let shown: Vec<&Definition> = asked.shown().collect();
    let width = shown.iter().map(|row| row.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for row in &shown {
        let mark = match row.effect {
            Effect::Acts => ' ',
            Effect::Listed => '-',
        };
        let default = row.default.unwrap_or("(not set)");
        let _ = writeln!(text, "{mark} {:width$}  {:8} {default}", row.name, row.kind.name());
    }
    if asked.all {
        text.push_str("\n-: accepted, checked and listed, without effect here\n");
    }
    (!shown.is_empty()).then_some(text)
}

fn describe(name: &str) -> Option<String> {
    let broker = broker_definition(name);
    let topic = topic_definition(name);
    let mut text = String::new();
    for row in [broker, topic].into_iter().flatten() {
        describe_row(row, &mut text);
    }
    (!text.is_empty()).then_some(text)
}

fn describe_row(row: &Definition, text: &mut String) {
    let allowed = row.validator.describe();
    let allowed = if allowed.is_empty() { String::new() } else { format!(", {allowed}") };
    let where_set = match row.scope {
        Scope::ReadOnly => "of the broker, at start",
        Scope::PerBroker => "of the broker, at start or for one broker while it runs",
        Scope::ClusterWide => "of the broker, at start or while it runs, for one broker or all",
        Scope::Topic => "of a topic, at any time",
    };
    let importance = match row.importance {
        Importance::High => "high",
        Importance::Medium => "medium",
        Importance::Low => "low",
    };
    let _ = writeln!(text, "{}\n  {}", row.name, row.doc);
    let _ = writeln!(text, "  type        {}{allowed}", row.kind);
    let _ = writeln!(text, "  default     {}", row.default.unwrap_or("(not set)"));
    let _ = writeln!(text, "  set         {where_set}");
    let _ = writeln!(text, "  importance  {importance}");
    if row.effect == Effect::Listed {
        let _ = writeln!(text, "  effect      none here: accepted, checked and listed");
    }
    if let Some((_, why)) = table::DEVIATIONS.iter().find(|(name, _)| *name == row.name) {
        let _ = writeln!(text, "  not Kafka's default: {why}");
    }
    if row.scope == Scope::Topic {
        let behind: Vec<&str> = topic_synonyms(row.name).iter().map(|&(n, _)| n).collect();
        if !behind.is_empty() {
            let _ = writeln!(text, "  a topic that doesn't set it has the broker's {}", behind.join(", else "));
        }
    }
    text.push('\n');
}
