//! Corelog's own properties.
//!
//! Holds: the names that start with `corelog.`. Never touches: code.

use crate::config::definition::Definition;
use crate::config::definition::Effect::Acts;
use crate::config::definition::Importance::{High, Low, Medium};
use crate::config::definition::Scope::{ClusterWide, ReadOnly};
use crate::config::value::ConfigType::{Boolean, Int, List, Long, String};
use crate::config::value::Validator::{Any, AtLeast, Between, ListOf, OneOf};

use super::row;

/// The rows, one property a line.
#[rustfmt::skip]
pub(super) const ROWS: &[Definition] = &[
    row("corelog.commit.log", String, Some("auto"), OneOf(&["auto", "always", "never"]), Low, ReadOnly, Acts, "Whether small commits of many partitions of a core go through a log that they share, in one durable write, and to their segments later. `auto`: when that costs less, as measured."),
    row("corelog.commit.log.bytes", Long, Some("268435456"), AtLeast(524288), Medium, ReadOnly, Acts, "Disk space of a core's commit log in a data folder, in eight files that are made as they are wanted. The more, the fewer and larger are the writes to segments where many partitions take few records each; a start after a crash reads it. A quarter of the core's memory is room for the records in it."),
    row("corelog.connection.progress.timeout.ms", Long, Some("30000"), AtLeast(1), Medium, ReadOnly, Acts, "A connection is closed when for this long not one byte more comes of a request that has begun, or not one byte more of an answer is taken."),
    row("corelog.connections.per.core.max", Int, Some("16384"), AtLeast(1), Medium, ReadOnly, Acts, "How many connections one core serves; more are refused. `max.connections` bounds the whole broker."),
    row("corelog.core.map.file", String, None, Any, Low, ReadOnly, Acts, "A TOML file that pins topics and partitions to shards; the rest is placed by default. Not set: `core-map.toml` in the data folder, if it is there."),
    row("corelog.cores", List, Some(""), ListOf { allowed: &[], empty_allowed: true }, Low, ReadOnly, Acts, "The numbers of the cores that the shards are pinned to, in order. Empty: the first of those that the process may use."),
    row("corelog.durability", String, Some("durable"), OneOf(&["durable", "memory"]), High, ClusterWide, Acts, "What an acknowledgement means for topics that don't say: `durable`, the records are on stable storage; `memory`, they are in memory, and their write begins within `log.flush.interval.messages` and `log.flush.interval.ms`."),
    row("corelog.fetch.check.crc", Boolean, Some("false"), Any, Medium, ReadOnly, Acts, "Whether the checksums of records that a consumer is sent from the disk are checked first. Off, as in Kafka: the client checks them, and damaged records reach it."),
    row("corelog.fetch.splice.bytes.min", Long, Some("65536"), AtLeast(-1), Low, ReadOnly, Acts, "From how many bytes on a read of an older segment is sent to the client as it lies in the file, through the page cache and without a copy; smaller ones are read and sent. -1: all are. No effect with `corelog.fetch.check.crc`."),
    row("corelog.log.cleaner.io.min.bytes.per.second", Long, Some("8388608"), AtLeast(0), Medium, ClusterWide, Acts, "How much all compactors may read and write a second however slow commits become beside them, so that compaction never stands still. `log.cleaner.io.max.bytes.per.second` wins over it."),
    row("corelog.memory.bytes.per.core", Long, Some("268435456"), AtLeast(16_777_216), High, ReadOnly, Acts, "The buffers of one core: requests being read, the tail cache, answers being sent. When they are used up, connections wait. All cores' together must fit this machine; where it isn't set, it is less on a machine that has too little."),
    row("corelog.prewrite.bytes", Long, Some("1073741824"), AtLeast(0), Medium, ReadOnly, Acts, "How much pre-written space a data folder may hold ready for segments. 0: none, durable writes are slower then."),
    row("corelog.shards", Int, Some("0"), Between(0, 1024), High, ReadOnly, Acts, "How many cores serve, each with its share of the partitions and connections. 0: as many as the process may use."),
    row("corelog.tail.cache.bytes.per.core", Long, None, AtLeast(0), Medium, ReadOnly, Acts, "How much of a core's memory keeps records that were written lately, so that consumers who keep up are served without the disk. Not set: half of it."),
];
