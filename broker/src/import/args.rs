//! The command line of `corelog import`.
//!
//! Holds: its options and the help that teaches it. Never touches: files.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// What `corelog import --help` ends with.
pub const EXAMPLES: &str = "\
Examples:
  corelog import /var/lib/kafka --into /var/lib/corelog --config /etc/kafka/server.properties --check
      What would be carried over, and what stands in the way. Writes nothing.
  corelog import /var/lib/kafka --into /var/lib/corelog --config /etc/kafka/server.properties
      Do it. Stop that Kafka first, cleanly.
  corelog import /disk1/kafka /disk2/kafka --into /disk3/corelog --config server.properties
      A Kafka with two log.dirs: all of them, in any order.
  corelog import /var/lib/kafka --into /var/lib/corelog --config server.properties --ignore acls --ignore quotas
      Leave behind what Corelog has no use for. Without the flag the import is refused, and says so.

Then, with the same properties:
  corelog --config /etc/kafka/server.properties --data-dir /var/lib/corelog

What is carried: topics with their ids, configurations, partitions and leader epochs; every record with its offset,
timestamp
and headers; log starts; producers' states; dynamic configurations of the broker; producer ids; cluster and node id. The
folder of Kafka is only read: it stays as it is, and that Kafka can be started on it again. DIR appears whole, or
not at all:
everything is made in DIR.importing beside it, checked there record batch by record batch, and renamed at the end.

Exit code:
  0   imported (with --check: nothing stands in the way)
  2   the command line or a property is wrong
  65  refused: the reasons stand there, each with what helps
  74  the disk failed
";

/// What an import may leave behind or overlook, if it is told to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Ignore {
    /// Access control lists: everybody may do everything afterwards.
    Acls,
    /// SCRAM credentials.
    Scram,
    /// Client quotas.
    Quotas,
    /// Delegation tokens.
    DelegationTokens,
    /// Replicas on other brokers: partitions are carried as they lie here, with one replica.
    Replicas,
    /// Other controllers: changes at the very end of this copy of the metadata may never have been committed.
    Quorum,
    /// Properties of topics and of the broker that Corelog does not know or take.
    Configs,
    /// Kafka's server.properties, which is not given: topics without a property of their own get Corelog's default.
    ServerProperties,
}

/// What to import, from where, to where.
#[derive(Clone, Debug, Args)]
pub struct ImportArgs {
    /// The data folders (log.dirs) of a Kafka that was stopped cleanly: all of them.
    #[arg(required = true, value_name = "KAFKA_DATA")]
    pub from: Vec<PathBuf>,
    /// The data folder to make; it must not be there yet, or be empty.
    #[arg(long, value_name = "DIR")]
    pub into: PathBuf,
    /// Kafka's server.properties: what topics have that set nothing themselves. Start Corelog with the same file.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Set any property besides; may be given more than once.
    #[arg(long, value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    /// Go on in spite of this; may be given more than once.
    #[arg(long, value_name = "WHAT")]
    pub ignore: Vec<Ignore>,
    /// Only look: say what would be carried and what stands in the way.
    #[arg(long)]
    pub check: bool,
}
