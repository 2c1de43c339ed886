//! The command line: what can be asked for, and what it means.
//!
//! Holds: options, their defaults and their words. Never touches: how anything is done.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::load::run::Start;

/// The words of this process's command line, behind its name: for the results to say how they were made.
pub fn words() -> String {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    words.collect::<Vec<_>>().join(" ")
}

/// Load generator for Kafka brokers.
///
/// Latencies are counted from when a record was due, on a schedule that does not wait for the broker:
/// a stall is charged with everything that was due in it. Try it on a broker of yours:
///
///   corelog-bench produce --create 16 --rate 100000 --duration 10
///   corelog-bench e2e -t e2e --create 8 --rate 10000 --linger-ms 0
///   corelog-bench ramp --create 16 --p99-ms 5
///   corelog-bench compare corelog kafka
#[derive(Debug, Parser)]
#[command(name = "corelog-bench", version, verbatim_doc_comment)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What can be done.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Produce records at a rate, or as fast as answers come.
    Produce {
        /// Where to.
        #[command(flatten)]
        target: Target,
        /// What.
        #[command(flatten)]
        load: Load,
        /// How long, and what comes of it.
        #[command(flatten)]
        run: Run,
    },
    /// Consume what is in a topic, or what comes.
    Consume {
        /// Where from.
        #[command(flatten)]
        target: Target,
        /// How.
        #[command(flatten)]
        reading: Reading,
        /// Where to start.
        #[arg(long, value_enum, default_value_t = Start::Earliest)]
        from: Start,
        /// Go on at the end, waiting for more, instead of stopping at what was there at the start.
        #[arg(long)]
        follow: bool,
        /// How long, and what comes of it.
        #[command(flatten)]
        run: Run,
    },
    /// End to end: from when a record was due at the producer to its arrival at a consumer.
    E2e {
        /// Where to.
        #[command(flatten)]
        target: Target,
        /// What.
        #[command(flatten)]
        load: Load,
        /// How it is read.
        #[command(flatten)]
        reading: Reading,
        /// How long, and what comes of it.
        #[command(flatten)]
        run: Run,
    },
    /// Produce, follow the end and catch up from the beginning, all at once.
    Mixed {
        /// Where to.
        #[command(flatten)]
        target: Target,
        /// What.
        #[command(flatten)]
        load: Load,
        /// How it is read.
        #[command(flatten)]
        reading: Reading,
        /// Of the groups, how many read from the beginning.
        #[arg(long, default_value_t = 0)]
        catch_up: usize,
        /// How long, and what comes of it.
        #[command(flatten)]
        run: Run,
    },
    /// Produce and read back records that carry producer, sequence and checksum: reports loss, duplicates, reordering.
    Verify {
        /// Where to.
        #[command(flatten)]
        target: Target,
        /// What.
        #[command(flatten)]
        load: Load,
        /// Seconds that the broker may be away at a time: connections that break are made anew, and at the end everything is
        /// read once more. Idempotent producers send again what has no answer; of others it may be there once, or not.
        /// Without it, a connection that breaks ends the run.
        #[arg(long, value_name = "SECONDS", value_parser = positive)]
        ride_out: Option<f64>,
        /// How long, and what comes of it.
        #[command(flatten)]
        run: Run,
    },
    /// Find the highest rate that keeps a limit on the 99th percentile.
    Ramp {
        /// Where to.
        #[command(flatten)]
        target: Target,
        /// What (--rate is the first rate that is tried).
        #[command(flatten)]
        load: Load,
        /// The limit, in milliseconds.
        #[arg(long, default_value_t = 5.0, value_parser = positive)]
        p99_ms: f64,
        /// How close the answer has to be, in percent of the rate.
        #[arg(long, default_value_t = 5.0, value_parser = percent)]
        precision: f64,
        /// How long each step is, and what comes of it.
        #[command(flatten)]
        run: Run,
    },
    /// What the disk under a folder can do: the limit for every durable broker on it.
    Disk {
        /// The folder. A scratch file, .corelog-disk-probe, is made in it and removed; what a killed run leaves, the next one removes.
        folder: PathBuf,
        /// Bytes of the scratch file, in MiB.
        #[arg(long, default_value_t = 2048, value_parser = clap::value_parser!(u64).range(1..))]
        mib: u64,
        /// Seconds for each measurement.
        #[arg(long, default_value_t = 5.0, value_parser = positive)]
        seconds: f64,
        /// Also as JSON, into this file.
        #[arg(long)]
        json: Option<PathBuf>,
    },
    /// Sends bytes to each that connects: what `compare` sets tail fetches against.
    #[command(hide = true)]
    PlainSender,
    /// The same workloads against two brokers in turn: medians, spread and ratios.
    Compare(Compare),
    /// Overlay the results of several runs in one page.
    Report {
        /// Results written by --json.
        #[arg(required = true)]
        results: Vec<PathBuf>,
        /// The page.
        #[arg(long, default_value = "report.html")]
        html: PathBuf,
    },
}

/// Where load goes.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Target")]
pub struct Target {
    /// A broker of the cluster.
    #[arg(long, short = 'b', value_name = "HOST:PORT", default_value = "127.0.0.1:9092")]
    pub bootstrap: String,
    /// The topic.
    #[arg(long, short = 't', default_value = "corelog-bench")]
    pub topic: String,
    /// Make the topic with this many partitions if it isn't there.
    #[arg(long, value_name = "PARTITIONS", value_parser = partitions)]
    pub create: Option<usize>,
    /// A setting of the topic, if it is made (repeatable).
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting)]
    pub topic_config: Vec<(String, String)>,
    /// Delete the topic first, so that it is made anew.
    #[arg(long, requires = "create")]
    pub fresh: bool,
    /// Delete the topic afterwards.
    #[arg(long)]
    pub delete_after: bool,
}

/// What is produced.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Load")]
pub struct Load {
    /// Records a second in total; without it, as fast as answers come.
    #[arg(long, value_parser = rate)]
    pub rate: Option<f64>,
    /// How arrivals are spaced.
    #[arg(long, value_enum, default_value_t = Arrivals::Poisson)]
    pub arrivals: Arrivals,
    /// Bytes of a record's value, or a range such as 100-2000.
    #[arg(long, default_value = "1024", value_parser = bytes_range, conflicts_with = "lines")]
    pub record_bytes: (usize, usize),
    /// Take the lines of this file as values.
    #[arg(long, value_name = "FILE")]
    pub lines: Option<PathBuf>,
    /// Give each record one of this many keys by chance; without it, keys are null.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub keys: Option<u64>,
    /// none, gzip, snappy, lz4 or zstd.
    #[arg(long, default_value = "none", value_parser = codec)]
    pub compression: String,
    /// Most bytes of a batch; one batch is one request.
    #[arg(long, default_value = "16KiB", value_parser = bytes)]
    pub batch_bytes: usize,
    /// Records arrive one by one and gather in a batch for this long at most. Without it, whole batches arrive.
    #[arg(long, requires = "rate", value_parser = not_negative)]
    pub linger_ms: Option<f64>,
    /// Connections.
    #[arg(long, default_value_t = 4, value_parser = connections)]
    pub connections: usize,
    /// Requests that a connection may have open.
    #[arg(long, default_value_t = 5)]
    pub in_flight: usize,
    /// 0, 1 or all. With 0 nothing answers: latency ends when the request is handed to the system.
    #[arg(long, default_value = "all", value_parser = acks)]
    pub acks: i16,
    /// Each connection is an idempotent producer.
    #[arg(long)]
    pub idempotent: bool,
    /// Milliseconds that the broker may take for a request.
    #[arg(long, default_value_t = 30_000, value_parser = clap::value_parser!(i32).range(1..))]
    pub timeout_ms: i32,
    /// Seed of contents and schedule.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// How it is read.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Reading")]
pub struct Reading {
    /// Connections that share the partitions.
    #[arg(long, default_value_t = 1, value_parser = connections)]
    pub consumers: usize,
    /// Groups of such connections; each reads everything.
    #[arg(long, default_value_t = 1, value_parser = connections)]
    pub groups: usize,
    /// fetch.max.wait.ms
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(i32).range(0..=60_000))]
    pub max_wait_ms: i32,
    /// fetch.min.bytes
    #[arg(long, default_value_t = 1)]
    pub min_bytes: i32,
    /// fetch.max.bytes
    #[arg(long, default_value = "50MiB", value_parser = some_bytes)]
    pub max_bytes: usize,
    /// max.partition.fetch.bytes
    #[arg(long, default_value = "1MiB", value_parser = some_bytes)]
    pub partition_max_bytes: usize,
    /// Only committed records.
    #[arg(long)]
    pub read_committed: bool,
}

/// How long, and what comes of it.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Run")]
pub struct Run {
    /// Seconds that count.
    #[arg(long, default_value_t = 30.0, value_parser = positive)]
    pub duration: f64,
    /// Seconds before that.
    #[arg(long, default_value_t = 3.0, value_parser = not_negative)]
    pub warm_up: f64,
    /// Count until this much was produced, such as 30GiB, instead of for --duration.
    #[arg(long, value_parser = total_bytes)]
    pub total: Option<u64>,
    /// Pin the generator to this core.
    #[arg(long)]
    pub core: Option<usize>,
    /// The broker's process, for its CPU and memory. Found by itself for a broker on this machine.
    #[arg(long)]
    pub broker_pid: Option<u32>,
    /// The name of the broker in reports.
    #[arg(long)]
    pub name: Option<String>,
    /// The result as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// The percentile distribution, for HdrHistogram's plotter.
    #[arg(long, value_name = "FILE")]
    pub hgrm: Option<PathBuf>,
    /// The interval log (V2), a histogram for each second.
    #[arg(long, value_name = "FILE")]
    pub hlog: Option<PathBuf>,
    /// A page with plots that needs nothing else.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// No progress on the terminal.
    #[arg(long, short = 'q')]
    pub quiet: bool,
}

/// Two brokers side by side.
#[derive(Clone, Debug, Args)]
pub struct Compare {
    /// The first peer: a file in bench/peers, or host:port of a running broker.
    #[arg(required_unless_present = "list")]
    pub a: Option<String>,
    /// The second.
    #[arg(required_unless_present = "list")]
    pub b: Option<String>,
    /// The workloads, by name; all of the standard set without it (see --list).
    #[arg(long, value_delimiter = ',')]
    pub workloads: Vec<String>,
    /// Show the workloads and end.
    #[arg(long)]
    pub list: bool,
    /// How often each workload is run against each.
    #[arg(long, default_value_t = 3, value_parser = rounds)]
    pub rounds: usize,
    /// Seconds that count in each run.
    #[arg(long, default_value_t = 15.0, value_parser = positive)]
    pub duration: f64,
    /// Seconds of load on each broker before anything counts (a JVM needs about a minute).
    #[arg(long, default_value_t = 60.0, value_parser = not_negative)]
    pub warm_up: f64,
    /// Cores for the brokers, as taskset(1) takes them.
    #[arg(long, default_value = "0")]
    pub broker_cores: String,
    /// Core for the generator.
    #[arg(long, default_value_t = 1)]
    pub core: usize,
    /// Folder for the brokers' data and logs.
    #[arg(long, default_value = "bench-data")]
    pub work: PathBuf,
    /// Folder with the peers' files.
    #[arg(long, default_value = "bench/peers")]
    pub peers: PathBuf,
    /// Where the results go: results.json, report.html and record.md.
    #[arg(long, default_value = "bench-results")]
    pub out: PathBuf,
    /// No progress on the terminal.
    #[arg(long, short = 'q')]
    pub quiet: bool,
}

/// How arrivals are spaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Arrivals {
    /// Independently of each other, as those of many clients.
    Poisson,
    /// Evenly.
    Constant,
}

/// No time or number of seconds is longer than this: some four months.
const NUMBER_MAX: f64 = 1e7;
/// More records a second than this no machine sends.
const RATE_MAX: f64 = 1e9;
/// Connections of one run.
const CONNECTIONS_MAX: usize = 10_000;
/// Partitions of one topic.
const PARTITIONS_MAX: usize = 1_000_000;
/// Rounds of a comparison.
const ROUNDS_MAX: usize = 1_000;

fn number(text: &str, within: impl Fn(f64) -> bool, words: &str) -> Result<f64, String> {
    text.parse::<f64>().ok().filter(|number| within(*number)).ok_or(words.into())
}

fn positive(text: &str) -> Result<f64, String> {
    number(text, |number| number > 0.0 && number <= NUMBER_MAX, "a number above 0, at most 10000000")
}

fn not_negative(text: &str) -> Result<f64, String> {
    number(text, |number| (0.0..=NUMBER_MAX).contains(&number), "a number from 0 to 10000000")
}

fn rate(text: &str) -> Result<f64, String> {
    number(text, |number| number > 0.0 && number <= RATE_MAX, "records a second, above 0 and at most 1000000000")
}

fn percent(text: &str) -> Result<f64, String> {
    number(text, |number| (0.1..=100.0).contains(&number), "percent, from 0.1 to 100")
}

fn connections(text: &str) -> Result<usize, String> {
    whole(text, CONNECTIONS_MAX)
}

fn partitions(text: &str) -> Result<usize, String> {
    whole(text, PARTITIONS_MAX)
}

fn rounds(text: &str) -> Result<usize, String> {
    whole(text, ROUNDS_MAX)
}

fn whole(text: &str, max: usize) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=max).contains(number));
    number.ok_or(format!("from 1 to {max}"))
}

fn some_bytes(text: &str) -> Result<usize, String> {
    match bytes(text)? {
        0 => Err("at least 1 byte".into()),
        bytes => Ok(bytes),
    }
}

fn acks(text: &str) -> Result<i16, String> {
    match text {
        "0" => Ok(0),
        "1" => Ok(1),
        "all" | "-1" => Ok(-1),
        _ => Err("0, 1 or all".into()),
    }
}

fn codec(text: &str) -> Result<String, String> {
    crate::load::run::compression(text)
        .map(|codec| codec.name().to_owned())
        .ok_or("none, gzip, snappy, lz4 or zstd".into())
}

fn setting(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("NAME=VALUE, such as retention.ms=3600000")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// A number of bytes that fits a request: 1024, 16KiB, 2MiB.
pub fn bytes(text: &str) -> Result<usize, String> {
    let bytes = total_bytes(text)?;
    i32::try_from(bytes).map(|bytes| bytes as usize).map_err(|_| "at most 2147483647 bytes".into())
}

/// Any number of bytes.
fn total_bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1 << 40,
        _ => return Err("bytes, such as 1024, 16KiB or 2MiB".into()),
    };
    let number: u64 = digits.parse().map_err(|_| "bytes, such as 1024, 16KiB or 2MiB")?;
    number.checked_mul(unit).ok_or("fewer bytes".into())
}

fn bytes_range(text: &str) -> Result<(usize, usize), String> {
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    let (low, high) = (bytes(low)?, bytes(high)?);
    if low > high {
        return Err(format!("{low} is more than {high}"));
    }
    Ok((low, high))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_workloads_are_listed_without_naming_two_brokers_and_compared_only_with_them() {
        assert!(Cli::try_parse_from(["corelog-bench", "compare", "--list"]).is_ok());
        assert!(Cli::try_parse_from(["corelog-bench", "compare", "--list", "corelog", "kafka"]).is_ok());
        assert!(Cli::try_parse_from(["corelog-bench", "compare", "corelog"]).is_err());
        assert!(Cli::try_parse_from(["corelog-bench", "compare"]).is_err());
    }

    #[test]
    fn numbers_that_no_run_could_have_are_refused() {
        let refused = |words: &str| Cli::try_parse_from(words.split(' ')).is_err();
        for bad in [
            "produce --rate 1e300",
            "produce --rate NaN",
            "produce --duration 1e300",
            "produce --warm-up NaN",
            "produce --warm-up=-1",
            "produce --rate 1 --linger-ms=-5",
            "produce --keys 0",
            "produce --connections 0",
            "produce --create 0",
            "produce --create 4294967301",
            "produce --create=-1",
            "compare a b --rounds 0",
            "produce --connections 100000",
            "produce --timeout-ms=-5",
            "consume --max-bytes 0",
            "consume --max-wait-ms 2147483647",
            "e2e --groups 0",
            "ramp --precision 0",
            "ramp --precision NaN",
            "ramp --p99-ms=-1",
            "disk . --seconds NaN",
            "disk . --mib 0",
            "verify --ride-out 0",
        ] {
            assert!(refused(&format!("corelog-bench {bad}")), "{bad}");
        }
        assert!(!refused("corelog-bench produce --rate 0.1 --warm-up 0 --linger-ms 0 --create 1"));
    }

    #[test]
    fn bytes_take_binary_units_and_nothing_else() {
        assert_eq!((bytes("1024"), bytes("16KiB"), bytes("2m")), (Ok(1024), Ok(16384), Ok(2 << 20)));
        assert_eq!(total_bytes("30GiB"), Ok(30 << 30));
        for bad in ["", "x", "-1", "16 KiB", "9999GiB", "1.5MiB"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
        assert_eq!(bytes_range("100-2k"), Ok((100, 2048)));
        assert!(bytes_range("2k-100").is_err());
    }
}
