//! The command line of `corelog export`.
//!
//! Holds: its options and the help that teaches it. Never touches: files.

use std::path::PathBuf;

use clap::Args;

/// What `corelog export --help` ends with.
pub const EXAMPLES: &str = "\
Examples:
  corelog export --from /var/lib/corelog --into /var/lib/kafka
      Make a data folder for a Kafka of all that is in this one. Stop the broker first.
  corelog export --from /disk1/corelog,/disk2/corelog --into /var/lib/kafka
      The same of a broker with several data folders: all of log.dirs, in its order.

Then, in that Kafka's server.properties (4.2, one node, broker and controller; no kafka-storage.sh format):
  process.roles=broker,controller
  node.id=1
  controller.quorum.voters=1@127.0.0.1:9093
  log.dirs=/var/lib/kafka
with the number that corelog export prints for node.id, the listeners, and the log.* properties that this broker
ran with.

What goes along: topics with their ids, configurations and leader epochs; every record with its offset, timestamp
and headers;
log starts; producers' states; dynamic configurations; producer ids; cluster and node id.

Exit code:
  0   exported
  65  refused: the reason stands there
  74  the disk failed
";

/// What to export, and to where.
#[derive(Clone, Debug, Args)]
pub struct ExportArgs {
    /// The data folder of a Corelog that is stopped; if it has several, all of them, in the order of log.dirs.
    #[arg(long, value_name = "DIR", value_delimiter = ',', required = true)]
    pub from: Vec<PathBuf>,
    /// The folder to make; it must not be there yet, or be empty.
    #[arg(long, value_name = "KAFKA_DATA")]
    pub into: PathBuf,
}
