//! The bytes of the metadata log's records.
//!
//! Holds: the encoder and the checked decoder of batches and of each record; `fields` has what records are made of. Never touches:
//! frames and checksums (`log`), what records mean.
//!
//! ```text
//! batch   = format:u8 (1)  count:varint  record*
//! record  = tag:u8  version:u8  len:varint  body[len]
//!
//! u8 i16 i32 i64   big-endian       varint   LEB128, at most 5 bytes
//! text             len:varint UTF-8       list     count:varint item*       option   0 | 1 value
//! ```
//!
//! Tags and versions are for ever: a field that is added makes a new version of its record, and the decoder keeps
//! reading the old ones. A tag or a version that this build does not know is an error, never skipped: skipping a record
//! would leave this node with another state than the one that wrote it.

mod fields;

use std::sync::Arc;

use corelog_storage::ids::{LeaderEpoch, PartitionIndex, TopicId};
use thiserror::Error;

use self::fields::{Input, put_epochs, put_ids, put_length, put_option, put_partition, put_text};
use super::record::{ConfigResource, DirectoryId, Record, ResourceKind};

const FORMAT: u8 = 1;

/// Tags of the records.
mod tag {
    pub const CLUSTER: u8 = 1;
    pub const FEATURE: u8 = 2;
    pub const BROKER_REGISTRATION: u8 = 3;
    pub const TOPIC: u8 = 4;
    pub const PARTITION: u8 = 5;
    pub const PARTITION_CHANGE: u8 = 6;
    pub const LEADER_EPOCH_BUMP: u8 = 7;
    pub const REMOVE_TOPIC: u8 = 8;
    pub const CONFIG: u8 = 9;
    pub const PRODUCER_IDS: u8 = 10;
    pub const CORE_PIN: u8 = 11;
    pub const BROKER_DIRECTORIES: u8 = 12;
    pub const PARTITION_DIRECTORY: u8 = 13;
}

/// The newest version of every record: all are at their first.
const VERSION: u8 = 1;

/// Why bytes are no records.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The batch has a format of a later version.
    #[error("metadata format {0} is of a later version of Corelog; this one reads format {FORMAT}")]
    UnknownFormat(u8),
    /// A record of a kind that this build does not know.
    #[error("metadata record type {0} is of a later version of Corelog; start that version, or restore a backup")]
    UnknownRecord(u8),
    /// A record in a version that this build does not know.
    #[error(
        "version {version} of metadata record type {tag} is of a later version of Corelog; start that version, or restore a backup"
    )]
    UnknownVersion {
        /// The record's tag.
        tag: u8,
        /// Its version.
        version: u8,
    },
    /// The bytes end in the middle of something.
    #[error("the metadata record ends {missing} bytes too early")]
    Truncated {
        /// How many bytes are missing at least.
        missing: usize,
    },
    /// There are bytes behind the end.
    #[error("{0} bytes stand behind the end of the metadata record")]
    TrailingBytes(usize),
    /// A length is no number.
    #[error("a length in a metadata record is malformed")]
    MalformedLength,
    /// A text is not UTF-8.
    #[error("a text in a metadata record is not UTF-8")]
    MalformedText,
    /// An option is neither absent nor present.
    #[error("an optional field of a metadata record has the mark {0}, which is neither 0 nor 1")]
    MalformedOption(u8),
    /// A configuration belongs to nothing known.
    #[error("a metadata record configures a resource of type {0}, which there is not")]
    UnknownResource(i8),
}

/// Encodes records as one batch.
#[must_use]
pub fn encode(records: &[Record]) -> Vec<u8> {
    let mut out = vec![FORMAT];
    put_length(&mut out, records.len());
    let mut body = Vec::new();
    for record in records {
        body.clear();
        let tag = put_body(&mut body, record);
        out.extend_from_slice(&[tag, VERSION]);
        put_length(&mut out, body.len());
        out.extend_from_slice(&body);
    }
    out
}

/// Decodes a batch. No length in the bytes sizes an allocation before that many bytes are known to be there.
///
/// # Errors
/// [`DecodeError`]
pub fn decode(bytes: &[u8]) -> Result<Vec<Record>, DecodeError> {
    let mut input = Input(bytes);
    match input.u8()? {
        FORMAT => {}
        format => return Err(DecodeError::UnknownFormat(format)),
    }
    let count = input.length()?;
    let mut records = Vec::new();
    for _ in 0..count {
        let tag = input.u8()?;
        let version = input.u8()?;
        let len = input.length()?;
        let mut body = Input(input.take(len)?);
        records.push(body_of(&mut body, tag, version)?);
        body.end()?;
    }
    input.end()?;
    Ok(records)
}

fn put_body(out: &mut Vec<u8>, record: &Record) -> u8 {
    match record {
        Record::Cluster { cluster_id } => {
            put_text(out, cluster_id);
            tag::CLUSTER
        }
        Record::Feature { name, level, epoch } => {
            put_text(out, name);
            out.extend_from_slice(&level.to_be_bytes());
            out.extend_from_slice(&epoch.to_be_bytes());
            tag::FEATURE
        }
        Record::BrokerRegistration { broker_id, incarnation, broker_epoch, endpoints, rack } => {
            out.extend_from_slice(&broker_id.to_be_bytes());
            out.extend_from_slice(incarnation);
            out.extend_from_slice(&broker_epoch.to_be_bytes());
            put_length(out, endpoints.len());
            for endpoint in endpoints {
                put_text(out, &endpoint.listener);
                put_text(out, &endpoint.host);
                out.extend_from_slice(&endpoint.port.to_be_bytes());
                out.extend_from_slice(&endpoint.security_protocol.to_be_bytes());
            }
            put_option(out, rack.as_ref(), |out, rack| put_text(out, rack));
            tag::BROKER_REGISTRATION
        }
        Record::Topic { id, name } => {
            out.extend_from_slice(&id.0);
            put_text(out, name);
            tag::TOPIC
        }
        Record::Partition { topic, partition, replicas, isr, leader, leader_epoch, partition_epoch } => {
            put_partition(out, *topic, *partition);
            put_ids(out, replicas);
            put_ids(out, isr);
            out.extend_from_slice(&leader.to_be_bytes());
            put_epochs(out, *leader_epoch, *partition_epoch);
            tag::PARTITION
        }
        Record::PartitionChange { topic, partition, replicas, isr, leader, leader_epoch, partition_epoch } => {
            put_partition(out, *topic, *partition);
            put_option(out, replicas.as_ref(), |out, ids| put_ids(out, ids));
            put_option(out, isr.as_ref(), |out, ids| put_ids(out, ids));
            put_option(out, leader.as_ref(), |out, leader| out.extend_from_slice(&leader.to_be_bytes()));
            put_epochs(out, *leader_epoch, *partition_epoch);
            tag::PARTITION_CHANGE
        }
        Record::LeaderEpochBump { broker_id } => {
            out.extend_from_slice(&broker_id.to_be_bytes());
            tag::LEADER_EPOCH_BUMP
        }
        Record::RemoveTopic { id } => {
            out.extend_from_slice(&id.0);
            tag::REMOVE_TOPIC
        }
        Record::Config { resource, name, value } => {
            out.extend_from_slice(&resource.kind.id().to_be_bytes());
            put_text(out, &resource.name);
            put_text(out, name);
            put_option(out, value.as_ref(), |out, value| put_text(out, value));
            tag::CONFIG
        }
        Record::ProducerIds { broker_id, broker_epoch, next_producer_id } => {
            out.extend_from_slice(&broker_id.to_be_bytes());
            out.extend_from_slice(&broker_epoch.to_be_bytes());
            out.extend_from_slice(&next_producer_id.to_be_bytes());
            tag::PRODUCER_IDS
        }
        Record::CorePin { broker_id, topic, partition, shard } => {
            out.extend_from_slice(&broker_id.to_be_bytes());
            put_partition(out, *topic, *partition);
            put_option(out, shard.as_ref(), |out, shard| out.extend_from_slice(&shard.to_be_bytes()));
            tag::CORE_PIN
        }
        Record::BrokerDirectories { broker_id, online } => {
            out.extend_from_slice(&broker_id.to_be_bytes());
            put_length(out, online.len());
            for directory in online {
                out.extend_from_slice(&directory.0);
            }
            tag::BROKER_DIRECTORIES
        }
        Record::PartitionDirectory { broker_id, topic, partition, directory } => {
            out.extend_from_slice(&broker_id.to_be_bytes());
            put_partition(out, *topic, *partition);
            out.extend_from_slice(&directory.0);
            tag::PARTITION_DIRECTORY
        }
    }
}

fn body_of(input: &mut Input<'_>, tag: u8, version: u8) -> Result<Record, DecodeError> {
    if !(tag::CLUSTER..=tag::PARTITION_DIRECTORY).contains(&tag) {
        return Err(DecodeError::UnknownRecord(tag));
    }
    if version != VERSION {
        return Err(DecodeError::UnknownVersion { tag, version });
    }
    Ok(match tag {
        tag::CLUSTER => Record::Cluster { cluster_id: input.text()?.to_owned() },
        tag::FEATURE => Record::Feature { name: input.text()?.to_owned(), level: input.i16()?, epoch: input.i64()? },
        tag::BROKER_REGISTRATION => Record::BrokerRegistration {
            broker_id: input.i32()?,
            incarnation: input.array()?,
            broker_epoch: input.i64()?,
            endpoints: input.list(Input::endpoint)?,
            rack: input.option(|input| input.text().map(str::to_owned))?,
        },
        tag::TOPIC => Record::Topic { id: TopicId(input.array()?), name: Arc::from(input.text()?) },
        tag::PARTITION => Record::Partition {
            topic: TopicId(input.array()?),
            partition: PartitionIndex(input.i32()?),
            replicas: input.list(Input::i32)?,
            isr: input.list(Input::i32)?,
            leader: input.i32()?,
            leader_epoch: LeaderEpoch(input.i32()?),
            partition_epoch: input.i32()?,
        },
        tag::PARTITION_CHANGE => Record::PartitionChange {
            topic: TopicId(input.array()?),
            partition: PartitionIndex(input.i32()?),
            replicas: input.option(|input| input.list(Input::i32))?,
            isr: input.option(|input| input.list(Input::i32))?,
            leader: input.option(Input::i32)?,
            leader_epoch: LeaderEpoch(input.i32()?),
            partition_epoch: input.i32()?,
        },
        tag::LEADER_EPOCH_BUMP => Record::LeaderEpochBump { broker_id: input.i32()? },
        tag::REMOVE_TOPIC => Record::RemoveTopic { id: TopicId(input.array()?) },
        tag::CONFIG => {
            let kind = i8::from_be_bytes([input.u8()?]);
            let kind = ResourceKind::from_id(kind).ok_or(DecodeError::UnknownResource(kind))?;
            Record::Config {
                resource: ConfigResource { kind, name: Arc::from(input.text()?) },
                name: input.text()?.to_owned(),
                value: input.option(|input| input.text().map(str::to_owned))?,
            }
        }
        tag::PRODUCER_IDS => {
            Record::ProducerIds { broker_id: input.i32()?, broker_epoch: input.i64()?, next_producer_id: input.i64()? }
        }
        tag::CORE_PIN => Record::CorePin {
            broker_id: input.i32()?,
            topic: TopicId(input.array()?),
            partition: PartitionIndex(input.i32()?),
            shard: input.option(|input| input.array().map(u16::from_be_bytes))?,
        },
        tag::BROKER_DIRECTORIES => Record::BrokerDirectories {
            broker_id: input.i32()?,
            online: input.list(|input| input.array().map(DirectoryId))?,
        },
        tag::PARTITION_DIRECTORY => Record::PartitionDirectory {
            broker_id: input.i32()?,
            topic: TopicId(input.array()?),
            partition: PartitionIndex(input.i32()?),
            directory: DirectoryId(input.array()?),
        },
        other => return Err(DecodeError::UnknownRecord(other)),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::record::Endpoint;
    use super::*;

    /// Records of every kind, with every field drawn at random.
    pub fn any_record() -> impl Strategy<Value = Record> {
        let topic = || any::<[u8; 16]>().prop_map(TopicId);
        let partition = || any::<i32>().prop_map(PartitionIndex);
        let ids = || prop::collection::vec(any::<i32>(), 0..5);
        let epoch = || any::<i32>().prop_map(LeaderEpoch);
        let endpoint = (".{0,20}", ".{0,20}", any::<u16>(), any::<i16>())
            .prop_map(|(listener, host, port, security_protocol)| Endpoint { listener, host, port, security_protocol });
        let kind = prop_oneof![
            Just(ResourceKind::Topic),
            Just(ResourceKind::Broker),
            Just(ResourceKind::ClientMetrics),
            Just(ResourceKind::Group)
        ];
        prop_oneof![
            ".{0,40}".prop_map(|cluster_id| Record::Cluster { cluster_id }),
            (".{0,40}", any::<i16>(), any::<i64>()).prop_map(|(name, level, epoch)| Record::Feature {
                name,
                level,
                epoch
            }),
            (
                any::<i32>(),
                any::<[u8; 16]>(),
                any::<i64>(),
                prop::collection::vec(endpoint, 0..4),
                prop::option::of(".{0,20}")
            )
                .prop_map(|(broker_id, incarnation, broker_epoch, endpoints, rack)| {
                    Record::BrokerRegistration { broker_id, incarnation, broker_epoch, endpoints, rack }
                }),
            (topic(), ".{0,249}").prop_map(|(id, name)| Record::Topic { id, name: name.into() }),
            (topic(), partition(), ids(), ids(), any::<i32>(), epoch(), any::<i32>()).prop_map(
                |(topic, partition, replicas, isr, leader, leader_epoch, partition_epoch)| Record::Partition {
                    topic,
                    partition,
                    replicas,
                    isr,
                    leader,
                    leader_epoch,
                    partition_epoch
                }
            ),
            (
                topic(),
                partition(),
                prop::option::of(ids()),
                prop::option::of(ids()),
                any::<Option<i32>>(),
                epoch(),
                any::<i32>()
            )
                .prop_map(|(topic, partition, replicas, isr, leader, leader_epoch, partition_epoch)| {
                    Record::PartitionChange { topic, partition, replicas, isr, leader, leader_epoch, partition_epoch }
                }),
            any::<i32>().prop_map(|broker_id| Record::LeaderEpochBump { broker_id }),
            topic().prop_map(|id| Record::RemoveTopic { id }),
            (kind, ".{0,40}", ".{0,40}", prop::option::of(".{0,300}")).prop_map(|(kind, whose, name, value)| {
                Record::Config { resource: ConfigResource { kind, name: whose.into() }, name, value }
            }),
            (any::<i32>(), any::<i64>(), any::<i64>()).prop_map(|(broker_id, broker_epoch, next_producer_id)| {
                Record::ProducerIds { broker_id, broker_epoch, next_producer_id }
            }),
            (any::<i32>(), topic(), partition(), any::<Option<u16>>()).prop_map(
                |(broker_id, topic, partition, shard)| Record::CorePin { broker_id, topic, partition, shard }
            ),
            (any::<i32>(), prop::collection::vec(any::<[u8; 16]>().prop_map(DirectoryId), 0..4))
                .prop_map(|(broker_id, online)| Record::BrokerDirectories { broker_id, online }),
            (any::<i32>(), topic(), partition(), any::<[u8; 16]>().prop_map(DirectoryId)).prop_map(
                |(broker_id, topic, partition, directory)| Record::PartitionDirectory {
                    broker_id,
                    topic,
                    partition,
                    directory
                }
            ),
        ]
    }

    proptest! {
        #[test]
        fn every_record_is_read_back_as_it_was_written(records in prop::collection::vec(any_record(), 0..20)) {
            prop_assert_eq!(decode(&encode(&records)), Ok(records));
        }

        #[test]
        fn hostile_bytes_are_refused_or_read_and_never_break_the_decoder(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(records) = decode(&bytes) {
                prop_assert!(records.len() <= bytes.len());
            }
        }

        #[test]
        fn hostile_bytes_behind_a_good_start_too(tag in 0_u8..16, body in prop::collection::vec(any::<u8>(), 0..100)) {
            let mut bytes = vec![FORMAT, 1, tag, VERSION, body.len() as u8];
            bytes.extend_from_slice(&body);
            let _ = decode(&bytes);
        }

        #[test]
        fn a_batch_that_is_cut_anywhere_is_refused(records in prop::collection::vec(any_record(), 1..5), cut in any::<prop::sample::Index>()) {
            let bytes = encode(&records);
            let cut = cut.index(bytes.len());
            prop_assert!(decode(&bytes[..cut]).is_err(), "cut at {} of {}", cut, bytes.len());
        }

        #[test]
        fn a_flipped_bit_never_breaks_the_decoder(records in prop::collection::vec(any_record(), 1..5), at in any::<prop::sample::Index>(), bit in 0..8_u32) {
            let mut bytes = encode(&records);
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            let _ = decode(&bytes);
        }
    }

    #[test]
    fn a_length_of_four_gigabytes_in_a_short_batch_allocates_nothing() {
        // Count of records, then: a list of replicas.
        assert!(matches!(decode(&[FORMAT, 0xff, 0xff, 0xff, 0xff, 0x0f]), Err(DecodeError::Truncated { .. })));
        let mut body = vec![0; 20];
        body.extend_from_slice(&[0xff, 0xff, 0xff, 0xff, 0x0f]);
        let mut bytes = vec![FORMAT, 1, tag::PARTITION, VERSION, body.len() as u8];
        bytes.extend_from_slice(&body);
        assert!(matches!(decode(&bytes), Err(DecodeError::Truncated { .. })));
    }

    #[test]
    fn a_record_of_a_later_version_is_named_as_such() {
        assert_eq!(decode(&[2, 0]), Err(DecodeError::UnknownFormat(2)));
        assert_eq!(decode(&[FORMAT, 1, 14, VERSION, 0]), Err(DecodeError::UnknownRecord(14)));
        assert_eq!(decode(&[FORMAT, 1, 0, VERSION, 0]), Err(DecodeError::UnknownRecord(0)));
        assert_eq!(
            decode(&[FORMAT, 1, tag::TOPIC, 2, 0]),
            Err(DecodeError::UnknownVersion { tag: tag::TOPIC, version: 2 })
        );
    }

    #[test]
    fn bytes_behind_a_record_or_a_batch_are_refused() {
        let record = [Record::LeaderEpochBump { broker_id: 1 }];
        let mut behind_batch = encode(&record);
        behind_batch.push(0);
        assert_eq!(decode(&behind_batch), Err(DecodeError::TrailingBytes(1)));
        assert_eq!(
            decode(&[FORMAT, 1, tag::LEADER_EPOCH_BUMP, VERSION, 5, 0, 0, 0, 1, 9]),
            Err(DecodeError::TrailingBytes(1))
        );
    }

    #[test]
    fn the_bytes_of_a_record_never_change() {
        // What is on disks: a change of this test is a change of the format.
        let records = [
            Record::Topic { id: TopicId(*b"0123456789abcdef"), name: "t".into() },
            Record::Config {
                resource: ConfigResource::topic("t"),
                name: "retention.ms".into(),
                value: Some("1".into()),
            },
        ];
        let mut expected = vec![1, 2, 4, 1, 18];
        expected.extend_from_slice(b"0123456789abcdef\x01t");
        expected.extend_from_slice(&[9, 1, 19, 2, 1, b't', 12]);
        expected.extend_from_slice(b"retention.ms\x01\x011");
        assert_eq!(encode(&records), expected);
    }
}
